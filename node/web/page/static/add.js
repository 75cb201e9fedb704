// Adds torrents: from files, magnet links and URLs, by a form or by drag and drop.

import { post } from "./api.js";
import { el } from "./dom.js";
import { ask, say, sayError } from "./messages.js";
import { plural } from "./format.js";

const LARGEST = 64 << 20; // a .torrent file of more bytes is none, and would only be read for nothing

/** linesIn returns the lines of a text. Info hashes become magnet links. */
const linesIn = (text) => text.split(/[\r\n]+/).map((line) => line.trim().replace(/^[0-9a-f]{40}$/i, "magnet:?xt=urn:btih:$&")).filter(Boolean);

/** sourcesIn finds the magnet links, URLs and info hashes in a text, one in each line. */
export const sourcesIn = (text) => linesIn(text).filter((line) => /^(magnet:\?|https?:\/\/)/i.test(line));

/** openAdd shows the form. Files and links that were dropped are in it already. */
export async function openAdd({ files = [], text = "" } = {}) {
  const links = el("textarea", { rows: "4", placeholder: "magnet:?xt=urn:btih:…", spellcheck: "false" });
  links.value = text;
  const picker = el("input", { type: "file", multiple: true, accept: ".torrent,application/x-bittorrent" });
  const dropped = el("p", { class: "hint", text: files.length > 0 ? `Dropped: ${files.map((f) => f.name).join(", ")}` : "" });
  const directory = el("input", { type: "text", placeholder: "default directory", spellcheck: "false" });
  const labels = el("input", { type: "text", placeholder: "data, mirror", spellcheck: "false" });
  const paused = el("input", { type: "checkbox" });
  const sequential = el("input", { type: "checkbox" });
  const body = [
    el("label", {}, "Torrent files", picker), dropped,
    el("label", {}, "Magnet links or URLs, one in each line", links),
    el("label", {}, "Directory on braid's machine", directory),
    el("label", {}, "Labels, with commas between them", labels),
    el("label", { class: "check" }, paused, "Add paused"),
    el("label", { class: "check" }, sequential, "Fetch pieces in order"),
  ];
  if (!(await ask("Add torrents", body, "Add"))) return;
  const options = {};
  if (directory.value.trim()) options.directory = directory.value.trim();
  const names = labels.value.split(",").map((l) => l.trim()).filter(Boolean);
  if (names.length > 0) options.labels = names;
  if (paused.checked) options.paused = true;
  if (sequential.checked) options.sequential = true;
  const sources = linesIn(links.value); // the server says which of them are no links
  const given = [...files, ...picker.files];
  if (sources.length + given.length === 0) {
    say("Nothing was added: give a .torrent file, a magnet link or a URL.", { bad: true });
    return;
  }
  await addAll(given, sources, options);
}

async function addAll(files, sources, options) {
  const added = [];
  const add = async (name, request) => {
    try {
      added.push(await request());
    } catch (err) {
      sayError(new Error(`${name}: ${err.message}`));
    }
  };
  for (const file of files) {
    await add(file.name, () => {
      if (file.size > LARGEST) throw new Error("This is not a .torrent file: it is too large.");
      const form = new FormData();
      form.append("options", JSON.stringify(options));
      form.append("torrent", file);
      return post("torrents", form);
    });
  }
  for (const source of sources) await add(source.slice(0, 60), () => post("torrents", { ...options, source }));
  const fresh = added.filter((a) => !a.existed);
  if (fresh.length === 1) say(`${fresh[0].name || "The torrent"} was added.`);
  else if (fresh.length > 1) say(`${plural(fresh.length, "torrent")} were added.`);
  for (const a of added) if (a.existed) say(`${a.name || a.info_hash} was there already.`);
}

/** acceptDrops lets the user drop files and links anywhere on the page. */
export function acceptDrops() {
  let depth = 0; // of elements that the pointer has entered
  const mark = (on) => document.body.classList.toggle("dropping", on);
  const wanted = (e) => ["Files", "text/uri-list", "text/plain"].some((t) => e.dataTransfer.types.includes(t));
  addEventListener("dragenter", (e) => wanted(e) && mark(++depth > 0));
  addEventListener("dragleave", (e) => wanted(e) && mark((depth = Math.max(0, depth - 1)) > 0));
  addEventListener("dragover", (e) => wanted(e) && e.preventDefault());
  addEventListener("drop", (e) => {
    mark((depth = 0) > 0);
    if (!wanted(e)) return;
    const form = document.querySelector("dialog[open]");
    if (form && e.dataTransfer.files.length === 0) return; // a field of the form takes the text
    e.preventDefault(); // else the browser would leave the page and open the file
    if (form) {
      const picker = form.querySelector("input[type=file]");
      if (picker) picker.files = e.dataTransfer.files;
      return;
    }
    const files = [...e.dataTransfer.files].filter((f) => /\.torrent$/i.test(f.name));
    const text = e.dataTransfer.getData("text/uri-list") || e.dataTransfer.getData("text/plain");
    if (files.length > 0 || sourcesIn(text).length > 0) openAdd({ files, text: sourcesIn(text).join("\n") });
    else say("Only .torrent files, magnet links and URLs can be dropped here.", { bad: true });
  });
}
