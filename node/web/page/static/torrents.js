// The list of all torrents: sorted, filtered, and with actions for those that are selected.

import { post, patch, remove } from "./api.js";
import { el, icon, later, setAttr, setText } from "./dom.js";
import * as format from "./format.js";
import { List } from "./list.js";
import { live } from "./live.js";
import { ask, say } from "./messages.js";
import { badge, ORDER, showState } from "./states.js";
import { openAdd } from "./add.js";

const byText = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" }).compare;
const doneOf = (t) => (t.size_bytes > 0 ? t.have_bytes / t.size_bytes : 0);

// The columns: title, value to sort by, and whether large values come first.
const COLUMNS = {
  name: ["Name", (t) => t.name],
  state: ["State", (t) => ORDER.indexOf(t.state)],
  done: ["Done", doneOf, true],
  size: ["Size", (t) => t.size_bytes, true],
  down: ["Down", (t) => t.down_mbit_s, true],
  up: ["Up", (t) => t.up_mbit_s, true],
  ratio: ["Ratio", (t) => t.ratio, true],
  left: ["Time left", (t) => t.left_s ?? Infinity],
  paths: ["Paths", (t) => t.paths, true],
  added: ["Added", (t) => Date.parse(t.added), true],
};

/** arrange filters and sorts torrents: a pure function of them and what the user has chosen. */
export function arrange(torrents, { text, state, column, descending }) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (t) => {
    if (state && t.state !== state) return false;
    const all = `${t.name} ${t.labels.join(" ")} ${t.info_hash}`.toLowerCase();
    return words.every((w) => all.includes(w));
  };
  const value = COLUMNS[column][1];
  const compare = (a, b) => {
    const [x, y] = [value(a), value(b)];
    const d = typeof x === "string" ? byText(x, y) : x === y ? 0 : x < y ? -1 : 1;
    return (descending ? -d : d) || byText(a.name, b.name) || (a.info_hash < b.info_hash ? -1 : 1);
  };
  return torrents.filter(fits).sort(compare);
}

// What the user has chosen stays while other views are open.
const chosen = { text: "", state: "", column: "added", descending: true };

/** torrentsView is the view of all torrents. */
export function torrentsView(signal) {
  const filter = el("input", { type: "search", "aria-label": "Filter by name, label or info hash", placeholder: "Filter", value: chosen.text });
  const states = el("select", { "aria-label": "Show torrents in this state" });
  const count = el("span", { class: "count", role: "status" });
  const heads = Object.entries(COLUMNS).map(([name, [title]]) =>
    el("div", { role: "columnheader", class: `c-${name}`, "data-column": name }, el("button", { type: "button", text: title, on: { click: () => sortBy(name) } })),
  );
  const all = el("input", { type: "checkbox", "aria-label": "Select all torrents shown", on: { change: () => list.select(all.checked ? list.items.map((t) => t.info_hash) : []) } });
  const head = el("div", { class: "row-grid head", role: "row" }, el("div", { role: "columnheader", class: "c-box" }, all), ...heads);
  const empty = el("p", { class: "empty", hidden: true });
  const list = new List(signal, {
    label: "Torrents", multiple: true, head, make: makeRow, update: updateRow, key: (t) => t.info_hash,
    height: [46, 76],
    open: (t) => (location.hash = `#/torrent/${t.info_hash}`),
    chosen: showActions,
  });
  const actions = actionBar(() => list.selected);
  const sort = el("select", { class: "sort", "aria-label": "Sort by", on: { change: () => sortBy(sort.value) } },
    ...Object.entries(COLUMNS).map(([name, [title]]) => el("option", { value: name, text: `Sort: ${title}` })));
  const root = el("section", { class: "torrents", "aria-label": "Torrents" },
    el("h1", { class: "hidden", text: "Torrents" }),
    el("div", { class: "bar" },
      el("button", { type: "button", class: "main", on: { click: () => openAdd() } }, icon("add"), "Add"), filter, states, sort, count),
    actions, el("div", { class: "table" }, list.root), empty);

  filter.addEventListener("input", () => {
    chosen.text = filter.value;
    refresh();
  });
  states.addEventListener("change", () => {
    chosen.state = states.value;
    refresh();
  });
  root.addEventListener("keydown", (e) => {
    if (e.key === "Delete" && (e.target === list.root || e.target === all) && list.selected.size > 0) removeTorrents(list.selected);
  });

  function sortBy(column) {
    chosen.descending = chosen.column === column ? !chosen.descending : Boolean(COLUMNS[column][2]);
    chosen.column = column;
    refresh();
  }

  function showActions() {
    const n = list.selected.size;
    actions.hidden = n === 0;
    setText(actions.firstChild, `${n} selected`);
    all.checked = n > 0 && n === list.items.length;
    all.indeterminate = n > 0 && !all.checked;
  }

  const refresh = later(() => {
    const torrents = [...live.torrents.values()];
    const shown = arrange(torrents, chosen);
    list.set(shown);
    showActions();
    for (const h of heads) {
      const is = h.dataset.column === chosen.column;
      setAttr(h, "aria-sort", is ? (chosen.descending ? "descending" : "ascending") : null);
    }
    sort.value = chosen.column;
    fillStates(states, torrents);
    setText(count, shown.length === torrents.length ? format.plural(shown.length, "torrent") : `${shown.length} of ${torrents.length}`);
    empty.hidden = shown.length > 0;
    setText(empty, !live.totals ? "Loading …" : torrents.length > 0 ? "No torrent fits the filter." : "No torrents yet. Drop a .torrent file or a magnet link here, or press Add.");
  });
  live.addEventListener("torrents", refresh, { signal });
  refresh();
  return { root, title: () => "Torrents" };
}

function fillStates(select, torrents) {
  const counts = {};
  for (const t of torrents) counts[t.state] = (counts[t.state] ?? 0) + 1;
  const options = ["", ...ORDER.filter((s) => counts[s] || s === chosen.state)];
  const text = options.map((s) => (s ? `${s} (${counts[s] ?? 0})` : "All states"));
  if (select.text === text.join()) return;
  select.text = text.join();
  select.replaceChildren(...options.map((s, i) => el("option", { value: s, text: text[i], selected: s === chosen.state })));
}

function makeRow() {
  const cell = (name, ...children) => el("div", { class: `c-${name}`, role: "gridcell" }, ...children);
  const row = el("div", { class: "row-grid" });
  const box = el("input", { type: "checkbox", tabindex: "-1" });
  const link = el("a", { tabindex: "-1" });
  const bar = el("i", { class: "fill" });
  const progress = el("div", { class: "progress", "aria-hidden": "true" }, bar);
  const state = badge();
  const cells = Object.fromEntries(["done", "size", "down", "up", "ratio", "left", "paths", "added"].map((n) => [n, cell(n)]));
  const brief = el("span", { class: "brief" });
  row.append(cell("box", box), cell("name", link, progress, brief), cell("state", state), ...Object.values(cells));
  return Object.assign(row, { box, link, bar, state, cells, brief, progress });
}

function updateRow(row, t) {
  setText(row.link, t.name || t.info_hash);
  setAttr(row.link, "href", `#/torrent/${t.info_hash}`);
  setAttr(row.box, "aria-label", `Select ${t.name}`);
  row.box.checked = row.classList.contains("selected");
  showState(row.state, t.state);
  setAttr(row.state, "title", t.error ?? t.cause?.text ?? t.waiting ?? null);
  const part = t.state === "checking" && t.size_bytes > 0 ? t.checked_bytes / t.size_bytes : doneOf(t);
  const wide = `${Math.min(100, part * 100).toFixed(1)}%`;
  if (row.wide !== wide) row.bar.style.width = row.wide = wide;
  row.progress.className = `progress ${row.state.className.split(" ")[1]}`;
  const c = row.cells;
  setText(c.done, format.percent(t.have_bytes, t.size_bytes));
  setText(c.size, format.size(t.size_bytes));
  setText(c.down, format.rate(t.down_mbit_s));
  setText(c.up, format.rate(t.up_mbit_s));
  setText(c.ratio, format.ratio(t.ratio));
  setText(c.left, t.left_s === undefined ? "–" : format.span(t.left_s));
  setText(c.paths, t.peers > 0 ? `${t.paths} to ${format.plural(t.peers, "peer")}` : "–");
  setText(c.added, format.moment(Date.parse(t.added)));
  setText(row.brief, briefly(t));
}

/** briefly is the second line of a row on a phone. */
function briefly(t) {
  const parts = [t.state, format.percent(t.have_bytes, t.size_bytes)];
  if (t.down_mbit_s > 0.001) parts.push(`↓ ${format.rate(t.down_mbit_s)}`);
  if (t.up_mbit_s > 0.001) parts.push(`↑ ${format.rate(t.up_mbit_s)}`);
  if (t.left_s !== undefined) parts.push(format.span(t.left_s));
  return parts.join(" · ");
}

function actionBar(selected) {
  const button = (text, drawing, run, cls) =>
    el("button", { type: "button", class: cls, on: { click: () => run(selected()) } }, icon(drawing), text);
  const priority = el("select", { "aria-label": "Set the priority of the selected torrents" },
    el("option", { value: "", text: "Priority …" }), ...["high", "normal", "low"].map((p) => el("option", { value: p, text: p })));
  priority.addEventListener("change", () => {
    const value = priority.value;
    priority.value = "";
    if (value) each(selected(), (h) => patch(`torrents/${h}`, { priority: value }), `now of ${value} priority`);
  });
  return el("div", { class: "bar actions", role: "toolbar", "aria-label": "Actions for the selected torrents", hidden: true },
    el("span", { class: "count" }),
    button("Resume", "play", resumeTorrents),
    button("Pause", "pause", (s) => each(s, (h) => post(`torrents/${h}/pause`), "paused")),
    button("Verify", "verify", (s) => each(s, (h) => post(`torrents/${h}/verify`), "being verified")),
    button("Announce", "ask", (s) => each(s, (h) => post(`torrents/${h}/announce`), "announced")),
    priority,
    button("Remove", "remove", removeTorrents, "bad"));
}

/** each does something with each torrent, and says how often that worked, and why not. */
export async function each(hashes, act, done) {
  let n = 0;
  const errors = [];
  for (const hash of [...hashes]) await act(hash).then(() => n++, (err) => errors.push(err.message));
  if (n > 0) say(`${format.plural(n, "torrent")} ${done}.`);
  if (errors.length > 0) say(errors[0] + (errors.length > 1 ? ` (and ${format.plural(errors.length - 1, "more error")})` : ""), { bad: true });
  return n;
}

/** resumeTorrents starts torrents. Those in the queue keep their turn, unless the user has chosen no others. */
export function resumeTorrents(hashes) {
  const all = [...hashes];
  const queued = (h) => live.torrents.get(h)?.state === "queued";
  const now = all.every(queued);
  return each(now ? all : all.filter((h) => !queued(h)), (h) => post(`torrents/${h}/resume`, { now }), "resumed");
}

/** removeTorrents asks, and removes torrents, with their data if the user wants that. */
export async function removeTorrents(hashes) {
  hashes = [...hashes]; // the selection may change while the window is open
  const names = hashes.map((h) => live.torrents.get(h)?.name ?? h);
  const data = el("input", { type: "checkbox" });
  const shown = names.slice(0, 5).map((n) => el("li", { text: n }));
  if (names.length > 5) shown.push(el("li", { text: `and ${names.length - 5} more` }));
  const body = [el("ul", {}, ...shown), el("label", { class: "check" }, data, "Delete the downloaded data, too. This cannot be undone.")];
  if (!(await ask(`Remove ${format.plural(names.length, "torrent")}?`, body, "Remove", { bad: true }))) return 0;
  return each(hashes, (h) => remove(`torrents/${h}${data.checked ? "?data=true" : ""}`), data.checked ? "removed with their data" : "removed");
}
