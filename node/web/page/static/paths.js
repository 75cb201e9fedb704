// The tab with a torrent's paths: for each, where it leads, what it does and why, its figures, and its rate over time
// with the selector's decisions. Other clients have one connection to a peer; braid has one for each path.

import { get } from "./api.js";
import { el, later, setAttr, setText } from "./dom.js";
import * as format from "./format.js";
import { History } from "./history.js";
import { drawLane, drawShape, MARKS, niceMaximum } from "./lane.js";
import { List } from "./list.js";
import { live } from "./live.js";
import { sayError } from "./messages.js";
import { poll } from "./poll.js";
import { badge, showState } from "./states.js";
import { sources } from "./tables.js";
import { colours, onTheme } from "./theme.js";

const SORTS = {
  peer: ["Peer", (a, b) => (a.peer < b.peer ? -1 : a.peer > b.peer ? 1 : 0) || b.share - a.share],
  rate: ["Rate", (a, b) => b.down_mbit_s + b.up_mbit_s - a.down_mbit_s - a.up_mbit_s],
  share: ["Share of the download", (a, b) => b.share - a.share],
  rtt: ["Round-trip time", (a, b) => (a.min_rtt_ms || Infinity) - (b.min_rtt_ms || Infinity)],
};
const SHOWN = { all: ["All paths", () => true], open: ["Open connections", (p) => ["active", "parked", "probing", "opening"].includes(p.state)] };
const chosen = { sort: "share", shown: "all", minutes: 2 };

/** hopText is the route in words: 1-ff00:0:111#1 > 2#1-ff00:0:110#3 > ... */
export function hopText(hops) {
  return hops.map((h) => `${h.ingress ? `${h.ingress}#` : ""}${h.isd_as}${h.egress ? `#${h.egress}` : ""}`).join(" > ");
}

export function pathsTab(signal, hash) {
  const history = new History();
  let paths = [];
  let top = 1;
  let paint = {};
  const readTheme = () => (paint = colours({ line: "--line-rate", fill: "--fill-rate", grid: "--line", muted: "--muted", mark: "--text", bad: "--bad" }));
  readTheme();

  const summary = el("p", { class: "summary", role: "status" });
  const scale = el("span", { class: "hint" });
  const list = new List(signal, {
    label: "Paths", key: (p) => p.id, make: makeRow,
    height: [178, 336],
    update: (row, p) => showPath(row, p, { history, top, paint, to: history.now(), minutes: chosen.minutes }),
  });
  const decisions = decisionList(signal, history);
  const choice = (label, options, value, set) => el("select", { "aria-label": label, on: { change: (e) => set(e.target.value) } },
    ...options.map(([v, text]) => el("option", { value: v, text, selected: v === value })));
  const empty = el("p", { class: "empty" });

  const refresh = later(() => {
    const shown = paths.filter(SHOWN[chosen.shown][1]).sort((a, b) => SORTS[chosen.sort][1](a, b) || (a.id < b.id ? -1 : 1));
    top = niceMaximum(history.highest(history.now() - chosen.minutes * 60000));
    list.set(shown);
    decisions.refresh();
    const active = paths.filter((p) => p.down_mbit_s + p.up_mbit_s > 0.001);
    const peers = new Set(active.map((p) => p.peer)).size;
    setText(summary, paths.length === 0 ? "" : `${active.length} of ${format.plural(paths.length, "path")} carry data` + (peers > 0 ? `, from and to ${format.plural(peers, "peer")}` : ""));
    setText(scale, `A vertical line every ${chosen.minutes > 6 ? "two minutes" : "minute"}.`);
    setText(empty, paths.length === 0 ? "No path to a peer is known yet." : shown.length === 0 ? "No path fits the choice." : "");
    empty.hidden = shown.length > 0;
  });

  const load = () => get(`torrents/${hash}/history`, signal).then((h) => {
    history.fill(h);
    refresh();
  }, (err) => signal.aborted || sayError(err));
  load();
  live.addEventListener("snapshot", load, { signal });
  poll(signal, `torrents/${hash}/paths`, (now) => {
    paths = now;
    history.add(history.now(), paths);
    refresh();
  }, 1000);
  live.addEventListener("decision", ({ detail }) => {
    if (detail.info_hash !== hash) return;
    history.decide(detail);
    refresh();
  }, { signal });
  onTheme(signal, () => {
    readTheme();
    refresh();
  });
  const set = (name) => (value) => {
    chosen[name] = name === "minutes" ? Number(value) : value;
    refresh();
  };
  return el("div", { class: "tab paths" },
    el("div", { class: "bar" }, summary,
      choice("Show", Object.entries(SHOWN).map(([k, [t]]) => [k, t]), chosen.shown, set("shown")),
      choice("Sort by", Object.entries(SORTS).map(([k, [t]]) => [k, `Sort: ${t}`]), chosen.sort, set("sort")),
      choice("Time shown", [[1, "1 minute"], [2, "2 minutes"], [5, "5 minutes"], [10, "10 minutes"]], chosen.minutes, set("minutes")), scale),
    el("div", { class: "split" }, el("div", { class: "table" }, list.root, empty), decisions.root));
}

// A figure of a path: its name, its text, and a hint that explains it.
const FIGURES = {
  down: ["Down", (p) => format.rate(p.down_mbit_s), "payload and protocol that we receive"],
  up: ["Up", (p) => format.rate(p.up_mbit_s), "what we send"],
  rtt: ["Round trip", (p) => (p.rtt_ms > 0 ? `${format.milliseconds(p.rtt_ms)}, least ${format.milliseconds(p.min_rtt_ms)}` : "–"), "of QUIC, smoothed"],
  loss: ["Loss", (p) => (p.packets_sent > 0 ? (p.loss > 0 ? format.percent(p.loss, 1) : "none") : "–"), "part of our packets that got lost"],
  expiry: ["Expires", expiry, "the path is refreshed before"],
  mtu: ["MTU", (p) => (p.mtu_bytes > 0 ? `${p.mtu_bytes} B` : "–"), "largest SCION packet, as announced"],
  latency: ["Latency", (p) => pair(latency(p), format.milliseconds(p.measured_latency_ms)), "one way: as the ASes announce it, and half of the least round trip"],
  bandwidth: ["Bandwidth", (p) => pair(format.rate(p.announced_bandwidth_mbit_s), format.rate(p.measured_bandwidth_mbit_s)), "as the ASes announce it, and the payload that the path carried"],
};

/** pair puts two figures side by side. If both have the same unit, it stands once. */
function pair(announced, measured) {
  if (announced === "–" && measured === "–") return "–";
  const unit = announced.slice(announced.lastIndexOf(" "));
  return `${measured.endsWith(unit) ? announced.slice(0, -unit.length) : announced} announced, ${measured} measured`;
}
const latency = (p) => (p.announced_latency_ms > 0 && !p.announced_latency_known ? `≥ ${format.milliseconds(p.announced_latency_ms)}` : format.milliseconds(p.announced_latency_ms));

function expiry(p, now) {
  if (!p.expiry) return "–";
  const left = (Date.parse(p.expiry) - now) / 1000;
  return left > 0 ? `in ${format.span(left)}` : "expired";
}

function makeRow() {
  const state = badge();
  const route = el("div", { class: "route mono", role: "gridcell" });
  const peer = el("span", { class: "mono" });
  const reason = el("span", { class: "reason" });
  const canvas = el("canvas", { class: "lane", role: "img" });
  const tip = el("div", { class: "tip", hidden: true });
  const figures = Object.fromEntries(Object.keys(FIGURES).map((k) => [k, el("dd")]));
  const list = el("dl", { class: "figures" }, ...Object.entries(FIGURES).map(([k, [name, , why]]) => el("div", { class: `f-${k}`, title: why }, el("dt", { text: name }), figures[k])));
  const share = el("i", { class: "fill" });
  const portion = el("span");
  const row = el("div", { class: "path" },
    el("div", { class: "path-head" }, state, route),
    el("div", { class: "path-why" }, el("div", { role: "gridcell" }, peer, reason),
      el("div", { class: "share", role: "gridcell", title: "share of what this torrent has received" }, el("span", { text: "Share" }), el("div", { class: "progress good" }, share), portion)),
    el("div", { class: "path-body", role: "gridcell" }, el("div", { class: "lane-box" }, canvas, tip), list));
  canvas.addEventListener("pointermove", (e) => showTip(row, e));
  canvas.addEventListener("pointerleave", () => (tip.hidden = true));
  return Object.assign(row, { state, route, peer, reason, canvas, tip, figures, share, portion });
}

function showPath(row, p, view) {
  Object.assign(row, { shown: p, view });
  showState(row.state, p.refused ? "forbidden" : p.state);
  showRoute(row, p);
  setText(row.peer, `${p.peer}${p.incoming ? ", came to us" : ""}${sources[p.source] && p.source !== "incoming" ? `, ${sources[p.source]}` : ""}`);
  const why = [p.refused && `forbidden by the policy (${p.refused})`, p.reason, p.error].filter(Boolean).join("; ");
  setText(row.reason, why);
  setAttr(row.reason, "title", why);
  const wide = `${(p.share * 100).toFixed(1)}%`;
  if (row.wide !== wide) row.share.style.width = row.wide = wide;
  setText(row.portion, format.percent(p.share, 1));
  for (const [k, [, text]] of Object.entries(FIGURES)) setText(row.figures[k], text(p, view.to));
  drawRow(row);
}

/** showRoute shows each AS with the interfaces at which the path enters and leaves it. */
function showRoute(row, p) {
  const text = p.hops.length > 0 ? hopText(p.hops) : p.transport;
  if (row.text === text) return;
  row.text = text;
  const parts = p.hops.map((h) => el("span", { class: "hop" },
    h.ingress ? el("b", { text: h.ingress }) : null, el("span", { text: h.isd_as }), h.egress ? el("b", { text: h.egress }) : null));
  row.route.replaceChildren(...(parts.length > 0 ? parts : [el("span", { class: "hop" }, el("span", { text: p.transport === "scion" ? "no path is known" : p.transport }))]));
  row.route.title = `${text}\n${p.fingerprint ? `fingerprint ${p.fingerprint}` : ""}`;
}

function drawRow(row) {
  const { canvas, shown: p, view } = row;
  const [width, height] = (row.measured ??= [canvas.clientWidth, canvas.clientHeight]);
  if (width === 0) {
    row.measured = null;
    return;
  }
  const scale = devicePixelRatio || 1;
  if (row.scaled !== `${width} ${height} ${scale}`) {
    row.scaled = `${width} ${height} ${scale}`;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(scale, 0, 0, scale, 0, 0);
  const lane = {
    scale: format.rate(view.top), samples: view.history.samples(p.id), marks: view.history.marks(p.id),
    from: view.to - view.minutes * 60000, to: view.to, top: view.top, width, height, colours: view.paint,
  };
  row.lane = lane;
  drawLane(ctx, lane);
  canvas.ariaLabel = `Rate over the last ${format.plural(view.minutes, "minute")}: now ${format.rate(p.down_mbit_s + p.up_mbit_s)}. ${format.plural(lane.marks.length, "decision")}, listed beside.`;
}

/** showTip explains what is under the pointer: the decision near it, or else the rate. */
function showTip(row, event) {
  const { lane, tip } = row;
  if (!lane) return;
  const x = event.offsetX;
  const time = lane.from + (x / lane.width) * (lane.to - lane.from);
  const reach = (10 / lane.width) * (lane.to - lane.from);
  const near = lane.marks.filter((m) => Math.abs(m.time - time) <= reach).sort((a, b) => Math.abs(a.time - time) - Math.abs(b.time - time))[0];
  const sample = lane.samples.findLast(([t]) => t <= time);
  setText(tip, near ? `${format.clock(near.time)} ${MARKS[near.kind]?.word ?? near.kind}: ${near.reason}`
    : `${format.clock(time)}${sample && time - sample[0] < 5000 ? `: ${format.rate(sample[1])}` : ""}`);
  tip.hidden = false;
  tip.classList.toggle("flip", x > lane.width / 2);
  tip.style.left = x > lane.width / 2 ? "auto" : `${x + 12}px`;
  tip.style.right = x > lane.width / 2 ? `${lane.width - x + 12}px` : "auto";
}

/** decisionList is the list of all decisions, the newest first, each with its mark and its reason. */
function decisionList(signal, history) {
  const list = new List(signal, {
    label: "Decisions of the path selector, newest first", key: (d) => d.number, height: [92, 92],
    make: () => {
      const mark = el("canvas", { width: "28", height: "28", class: "mark" });
      const [time, what, why] = [el("time"), el("b"), el("span", { class: "why" })];
      const name = el("span", { class: "mono" });
      return Object.assign(el("div", { class: "decision" }, mark, el("div", { role: "gridcell" }, time, " ", what, el("div", {}, name), why)), { mark, time, what, name, why });
    },
    update: (row, d) => {
      setText(row.time, format.stamp(d.time));
      setText(row.what, MARKS[d.kind]?.word ?? d.kind);
      setText(row.name, d.name);
      setText(row.why, d.reason);
      row.title = `${d.reason}\n${d.peer}\n${d.route}`;
      const paint = colours({ mark: "--text", bad: "--bad" });
      const look = d.kind + paint.mark;
      if (row.look === look) return;
      row.look = look;
      const ctx = row.mark.getContext("2d");
      ctx.setTransform(2, 0, 0, 2, 0, 0);
      ctx.clearRect(0, 0, 14, 14);
      drawShape(ctx, MARKS[d.kind]?.shape, 7, 7, d.kind === "path-failed" ? paint.bad : paint.mark);
    },
  });
  const empty = el("p", { class: "empty", text: "No decision yet." });
  const root = el("aside", { class: "decisions", "aria-label": "Decisions" }, el("h2", { text: "Decisions" }), list.root, empty);
  return {
    root,
    refresh: () => {
      empty.hidden = history.decisions.length > 0;
      list.set(history.decisions);
    },
  };
}
