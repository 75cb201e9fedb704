// The tabs of a torrent that are plain lists: peers, trackers and log.

import { get, post } from "./api.js";
import { el, icon, setText } from "./dom.js";
import * as format from "./format.js";
import { List } from "./list.js";
import { live } from "./live.js";
import { say, sayError } from "./messages.js";
import { badge, showState } from "./states.js";
import { poll } from "./poll.js";

/**
 * table is a virtual list with titled columns. columns are [title, class, text(item)]; a text may be an element
 * maker, with make() and show(element, item).
 */
export function table(signal, { label, key, columns, height, template }) {
  const head = el("div", { class: `row-grid head ${template}`, role: "row" }, ...columns.map(([title, cls]) => el("div", { role: "columnheader", class: cls, text: title })));
  const list = new List(signal, {
    label, key, height, head,
    make: () => el("div", { class: `row-grid ${template}` }, ...columns.map(([title, cls, text]) =>
      el("div", { role: "gridcell", class: cls, "data-title": title }, ...(text.make ? [text.make()] : [])))),
    update: (row, item) => columns.forEach(([, , text], i) => {
      const cell = row.children[i];
      if (text.make) text.show(cell.firstChild, item);
      else {
        setText(cell, text(item));
        cell.title = cell.textContent;
      }
    }),
  });
  const empty = el("p", { class: "empty" });
  const root = el("div", { class: "table" }, list.root, empty);
  const set = (items, none) => {
    list.set(items);
    setText(empty, items.length === 0 ? none : "");
    empty.hidden = items.length > 0;
  };
  return { root, set };
}

// sources say where a peer's address comes from.
export const sources = {
  named: "named by you or the torrent", tracker: "from a tracker", dht: "from the DHT", pex: "from another peer",
  lsd: "found nearby", earlier: "known from before", incoming: "came to us",
};

export function peersTab(signal, hash) {
  const flags = (p) => [
    p.transport, sources[p.source], p.incoming && p.source !== "incoming" && "came to us", p.choked && "serves us nothing now", p.peer_interested && (p.held ? "waits for us" : "served by us"),
  ].filter(Boolean).join(" · ");
  const t = table(signal, {
    label: "Peers", key: (p) => p.address, template: "peers-grid", height: [36, 128],
    columns: [
      ["Address", "wide mono", (p) => p.address], ["Client", "", (p) => p.client || "–"],
      ["Has", "num", (p) => format.percent(p.have, 1)], ["Down", "num", (p) => format.rate(p.down_mbit_s)],
      ["Up", "num", (p) => format.rate(p.up_mbit_s)], ["Share", "num", (p) => format.percent(p.share, 1)],
      ["Paths", "num", (p) => String(p.active_paths)], ["Connection", "wide", flags],
    ],
  });
  poll(signal, `torrents/${hash}/peers`, (peers) => t.set(peers.sort((a, b) => b.share - a.share || (a.address < b.address ? -1 : 1)), "No peer is connected."));
  const address = el("input", { type: "text", "aria-label": "Address of a peer to add", placeholder: "ISD-AS,[host]:port or host:port", spellcheck: "false" });
  const form = el("form", { class: "bar" }, address, el("button", { text: "Add peer" }));
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    post(`torrents/${hash}/peers`, { peers: [address.value.trim()] }).then(() => {
      say("The peer was added.");
      form.reset();
    }, sayError);
  });
  return el("div", { class: "tab" }, form, t.root);
}

export function trackersTab(signal, hash) {
  const state = { make: badge, show: (node, tr) => showState(node, tr.state) };
  const at = (time) => (time ? format.clock(Date.parse(time)) : "–");
  const t = table(signal, {
    label: "Trackers", key: (tr) => `${tr.tier} ${tr.url}`, template: "trackers-grid", height: [44, 128],
    columns: [
      ["State", "", state], ["Tracker", "wide mono", (tr) => tr.url], ["Tier", "num", (tr) => (tr.tier < 0 ? "–" : String(tr.tier + 1))],
      ["Asked", "num", (tr) => at(tr.last_announce)], ["Next", "num", (tr) => at(tr.next_announce)],
      ["Seeders", "num", (tr) => String(tr.seeders ?? "–")], ["Leechers", "num", (tr) => String(tr.leechers ?? "–")],
      ["Error", "wide", (tr) => tr.error ?? tr.warning ?? ""],
    ],
  });
  poll(signal, `torrents/${hash}/trackers`, (trackers) => t.set(trackers, "This torrent has no trackers."));
  const announce = el("button", { type: "button", on: { click: () => post(`torrents/${hash}/announce`).then(() => say("The trackers are being asked."), sayError) } }, icon("ask"), "Ask the trackers now");
  return el("div", { class: "tab" }, el("div", { class: "bar" }, announce), t.root);
}

export function logTab(signal, hash) {
  const MOST = 1000; // entries; the page stays open for days
  let entries = []; // oldest first
  const keyOf = (e) => e.time + e.text;
  const level = { make: () => el("span", { class: "level" }), show: (node, e) => {
    node.className = `level ${e.level}`;
    setText(node, e.level);
  } };
  const t = table(signal, {
    label: "Log", key: keyOf, template: "log-grid", height: [30, 64],
    columns: [["Time", "", (e) => format.stamp(Date.parse(e.time))], ["Level", "", level], ["What happened", "wide", (e) => e.text]],
  });
  // An entry may come twice or late: in the answer, and as an event.
  const show = (more) => {
    const all = new Map([...entries, ...more].map((e) => [keyOf(e), e]));
    entries = [...all.values()].sort((a, b) => Date.parse(a.time) - Date.parse(b.time)).slice(-MOST);
    t.set(entries.toReversed(), "Nothing has happened yet.");
  };
  const load = () => get(`torrents/${hash}/log`, signal).then(show, (err) => signal.aborted || sayError(err));
  load();
  live.addEventListener("snapshot", load, { signal });
  live.addEventListener("log", ({ detail }) => detail.info_hash === hash && show([detail]), { signal });
  return el("div", { class: "tab" }, t.root);
}
