// The files of a torrent, with their priorities. All that is shown can be set at once.

import { get, patch } from "./api.js";
import { el, setText } from "./dom.js";
import { percent, plural, size } from "./format.js";
import { sayError } from "./messages.js";
import { table } from "./tables.js";
import { poll } from "./poll.js";

const PRIORITIES = ["high", "normal", "low", "skip"];

export function filesTab(signal, hash) {
  let files = [];
  const filter = el("input", { type: "search", "aria-label": "Filter files by name", placeholder: "Filter" });
  const all = el("select", { "aria-label": "Priority of all files shown" }, el("option", { value: "", text: "Set all shown …" }), ...PRIORITIES.map(option));
  const count = el("span", { class: "count", role: "status" });
  const wanted = () => files.filter((f) => f.path.toLowerCase().includes(filter.value.toLowerCase()));

  const set = async (which, priority) => {
    try {
      await patch(`torrents/${hash}`, { files: Object.fromEntries(which.map((f) => [f.number, priority])) });
      show(await get(`torrents/${hash}/files`, signal));
    } catch (err) {
      if (!signal.aborted) sayError(err);
    }
  };
  const choice = {
    make: () => {
      const select = el("select", {}, ...PRIORITIES.map(option));
      select.addEventListener("change", () => set([select.file], select.value));
      return select;
    },
    show: (select, file) => {
      select.file = file;
      select.ariaLabel = `Priority of ${file.path}`;
      if (select.value !== file.priority) select.value = file.priority;
    },
  };
  const progress = {
    make: () => el("div", { class: "progress" }, el("i", { class: "fill" })),
    show: (node, f) => (node.firstChild.style.width = `${f.size_bytes > 0 ? (100 * f.have_bytes) / f.size_bytes : 100}%`),
  };
  const t = table(signal, {
    label: "Files", key: (f) => f.number, template: "files-grid", height: [40, 68],
    columns: [["File", "wide", (f) => f.path], ["", "", progress], ["Done", "num", (f) => (f.size_bytes > 0 ? percent(f.have_bytes, f.size_bytes) : "100 %")], ["Size", "num", (f) => size(f.size_bytes)], ["Priority", "", choice]],
  });
  function show(list) {
    files = list;
    const shown = wanted();
    t.set(shown, files.length > 0 ? "No file fits the filter." : "The files are not known yet.");
    setText(count, plural(shown.length, "file"));
  }
  filter.addEventListener("input", () => show(files));
  all.addEventListener("change", () => {
    const priority = all.value;
    all.value = "";
    if (priority) set(wanted(), priority);
  });
  poll(signal, `torrents/${hash}/files`, show, 3000);
  return el("div", { class: "tab" }, el("div", { class: "bar" }, filter, all, count), t.root);
}

const option = (p) => el("option", { value: p, text: p });
