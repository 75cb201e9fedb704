// One torrent: its state at the top, and below it one of the tabs paths, overview, files, peers, trackers and log.

import { post } from "./api.js";
import { el, icon, later, setAttr, setText } from "./dom.js";
import * as format from "./format.js";
import { filesTab } from "./files.js";
import { live } from "./live.js";
import { overviewTab } from "./overview.js";
import { pathsTab } from "./paths.js";
import { badge, showState } from "./states.js";
import { logTab, peersTab, trackersTab } from "./tables.js";
import { each, removeTorrents, resumeTorrents } from "./torrents.js";

const TABS = {
  paths: ["Paths", pathsTab], overview: ["Overview", overviewTab], files: ["Files", filesTab],
  peers: ["Peers", peersTab], trackers: ["Trackers", trackersTab], log: ["Log", logTab],
};

/** torrentView is the view of the torrent with this info hash. */
export function torrentView(signal, hash, tab) {
  const name = el("h1");
  const state = badge();
  const bar = el("i", { class: "fill" });
  const progress = el("div", { class: "progress", role: "progressbar", "aria-label": "Progress", "aria-valuemin": "0", "aria-valuemax": "100" }, bar);
  const line = el("p", { class: "line" });
  const trouble = el("p", { class: "trouble", role: "status" });
  const button = (text, drawing, act, cls) => el("button", { type: "button", class: cls, on: { click: act } }, icon(drawing), text);
  const resume = button("Resume", "play", () => resumeTorrents([hash]));
  const pause = button("Pause", "pause", () => each([hash], (h) => post(`torrents/${h}/pause`), "paused"));
  const gone = button("Remove", "remove", async () => {
    if ((await removeTorrents([hash])) > 0) location.hash = "#/";
  }, "bad");
  const [title, make] = TABS[tab] ?? TABS.paths;
  const tabs = el("nav", { class: "tabs", "aria-label": "Parts of the torrent" },
    ...Object.entries(TABS).map(([id, [text]]) => el("a", { href: `#/torrent/${hash}/${id}`, "aria-current": text === title ? "page" : null, text })));
  const root = el("section", { class: "torrent", "aria-label": "Torrent" },
    el("div", { class: "torrent-head" },
      el("a", { class: "back", href: "#/", "aria-label": "Back to all torrents", text: "‹" }), name, state,
      el("div", { class: "bar" }, resume, pause, gone)),
    progress, line, trouble, tabs, make(signal, hash));

  const refresh = later(() => {
    const t = live.torrents.get(hash);
    if (!t) {
      setText(name, live.totals ? "This torrent is not there" : "Loading …");
      return;
    }
    setText(name, t.name || hash);
    showState(state, t.state);
    const part = t.size_bytes > 0 ? Math.min(1, t.have_bytes / t.size_bytes) : 0;
    bar.style.width = `${(part * 100).toFixed(2)}%`;
    progress.className = `progress ${state.className.split(" ")[1]}`;
    setAttr(progress, "aria-valuenow", Math.floor(part * 100));
    const parts = [
      `${format.size(t.have_bytes)} of ${format.size(t.size_bytes)} (${format.percent(t.have_bytes, t.size_bytes)})`,
      `↓ ${format.rate(t.down_mbit_s)}`, `↑ ${format.rate(t.up_mbit_s)}`, `ratio ${format.ratio(t.ratio)}`,
      t.left_s === undefined ? "" : `${format.span(t.left_s)} left`,
      t.peers > 0 ? `${format.plural(t.paths, "path")} to ${format.plural(t.peers, "peer")}` : "",
    ];
    setText(line, parts.filter(Boolean).join(" · "));
    const paused = ["paused", "failed", "served"].includes(t.state);
    resume.hidden = !paused && t.state !== "queued";
    pause.hidden = paused;
    setText(trouble, t.error ?? t.cause?.text ?? t.waiting ?? "");
    trouble.hidden = trouble.textContent === "";
  });
  live.addEventListener("torrents", refresh, { signal });
  refresh();
  return { root, title: () => live.torrents.get(hash)?.name || title };
}
