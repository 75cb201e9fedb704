// The overview of a torrent: its pieces, what is known about it, and its settings.

import { post } from "./api.js";
import { el, setText } from "./dom.js";
import * as format from "./format.js";
import { check, choice, fill, number, saving, text } from "./forms.js";
import { live } from "./live.js";
import { ask, say, sayError } from "./messages.js";
import { bytesOf, countPieces, drawPieces } from "./pieces.js";
import { colours } from "./theme.js";
import { poll } from "./poll.js";

export function overviewTab(signal, hash) {
  const canvas = el("canvas", { class: "pieces", role: "img" });
  const caption = el("p", { class: "hint" });
  const facts = el("dl", { class: "facts" });
  const settings = settingsForm(hash);
  let pieces = null;

  const draw = () => {
    if (!pieces || canvas.clientWidth === 0) return;
    drawPieces(canvas, pieces, colours({ have: "--good", missing: "--line", none: "--bad" }));
  };
  poll(signal, `torrents/${hash}/pieces`, (p) => {
    pieces = { have: bytesOf(p.have), available: bytesOf(p.available), count: p.count };
    const { done, rare } = countPieces(pieces.have, pieces.available, p.count);
    const text = p.count === 0 ? (p.length_bytes > 0 ? "The pieces are shown while the torrent runs." : "The pieces are not known yet.")
      : `${done} of ${format.plural(p.count, "piece")} verified, ${format.size(p.length_bytes)} each` +
        (rare > 0 ? `; no connected peer has ${rare} of the missing ones` : "");
    setText(caption, text);
    canvas.ariaLabel = text;
    draw();
  });
  const resize = new ResizeObserver(draw);
  resize.observe(canvas);
  signal.addEventListener("abort", () => resize.disconnect());

  poll(signal, `torrents/${hash}`, (t) => {
    showFacts(facts, t);
    settings.show(t);
  });
  return el("div", { class: "tab overview" },
    el("h2", { text: "Pieces" }), canvas, caption, el("div", { class: "two" },
      el("div", {}, el("h2", { text: "About" }), facts), el("div", {}, el("h2", { text: "Settings" }), settings.form)));
}

function showFacts(list, t) {
  const rows = {
    "Info hash": t.info_hash, Directory: t.directory, Size: format.size(t.size_bytes),
    Files: String(t.file_count), "Received": `${format.size(t.fetched_bytes)}, of no use: ${format.size(t.wasted_bytes)}`,
    Sent: format.size(t.sent_bytes), "Wrong pieces": String(t.dropped_pieces), Storage: t.storage,
    Added: format.moment(Date.parse(t.added)), Completed: t.completed ? format.moment(Date.parse(t.completed)) : "–",
    Private: t.private ? "yes" : "no", Comment: t.comment || "–",
    "Created": [t.created && format.moment(Date.parse(t.created)), t.creator && `by ${t.creator}`].filter(Boolean).join(" ") || "–", "Magnet link": t.magnet_link,
  };
  if (!list.firstChild) list.append(...Object.keys(rows).flatMap((k) => [el("dt", { text: k }), el("dd")]));
  Object.values(rows).forEach((v, i) => setText(list.children[2 * i + 1], v));
}

function settingsForm(hash) {
  const [down, up] = [number(), number()];
  // Of a goal, 0 is what holds for all torrents, and less is no goal.
  const goal = () => el("input", { type: "number", step: "any", placeholder: "as for all; -1: never" });
  const [ratio, idle] = [goal(), goal()];
  const labels = text();
  const priority = choice("high", "normal", "low");
  const [sequential, honour] = [check(), check()];
  const move = el("button", { type: "button", text: "Move the data …", on: { click: () => moveData(hash) } });
  const form = el("form", { class: "panel fields" },
    el("label", {}, "Download limit in Mbit/s", down), el("label", {}, "Upload limit in Mbit/s", up),
    el("label", {}, "Seed until this ratio", ratio), el("label", {}, "Seed until idle for minutes", idle),
    el("label", {}, "Priority", priority), el("label", {}, "Labels", labels),
    el("label", { class: "check" }, sequential, "Fetch pieces in order"),
    el("label", { class: "check" }, honour, "The limits of all torrents hold, too"),
    el("div", { class: "buttons" }, move, el("button", { class: "main", text: "Save" })));
  const show = ({ labels: names, priority: level, settings: s }) => {
    fill(down, s.limits.download_mbit_s || "");
    fill(up, s.limits.upload_mbit_s || "");
    fill(ratio, s.goal.ratio || "");
    fill(idle, s.goal.idle_s / 60 || "");
    fill(labels, names.join(", "));
    fill(priority, level);
    fill(sequential, s.sequential);
    fill(honour, s.honour_global);
  };
  saving(form, `torrents/${hash}`, show, ({ settings: s }) => ({
    limits: { ...s.limits, download_mbit_s: Number(down.value), upload_mbit_s: Number(up.value) },
    goal: { ...s.goal, ratio: Number(ratio.value), idle_s: Number(idle.value) * 60 },
    labels: labels.value.split(",").map((l) => l.trim()).filter(Boolean),
    priority: priority.value, sequential: sequential.checked, honour_global: honour.checked,
  }));
  return { form, show };
}

async function moveData(hash) {
  const directory = el("input", { type: "text", required: true, value: live.torrents.get(hash)?.directory, spellcheck: "false" });
  const data = el("input", { type: "checkbox", checked: true });
  const body = [el("label", {}, "Directory on braid's machine", directory), el("label", { class: "check" }, data, "Move the data there. Otherwise it is there already.")];
  if (!(await ask("Move the torrent", body, "Move"))) return;
  post(`torrents/${hash}/move`, { directory: directory.value, data: data.checked }).then(() => say("The torrent is being moved."), sayError);
}
