// The settings of all torrents: rates and their schedule, the queue, directories, and the path policy.

import { get, patch } from "./api.js";
import { el } from "./dom.js";
import { say, sayError } from "./messages.js";
import { policyForm } from "./policy.js";

const DAYS = { mon: "Mon", tue: "Tue", wed: "Wed", thu: "Thu", fri: "Fri", sat: "Sat", sun: "Sun" };

export function settingsView(signal) {
  const body = el("div", { class: "panels" });
  const root = el("section", { class: "settings", "aria-label": "Settings" }, el("h1", { text: "Settings" }), body);
  const show = (s) => body.replaceChildren(
    section("Rates", "In Mbit/s. Empty is no limit.", ratesForm(s)),
    section("Queue and directories", "How many torrents run at a time, and where their data goes.", placesForm(s)),
    section("Path policy", "Over which SCION paths data may go, for all torrents. The map changes it by a click on an interface.", policyForm(signal)));
  get("settings", signal).then(show, (err) => signal.aborted || sayError(err));
  return { root, title: () => "Settings" };
}

const section = (title, about, form) => el("section", {}, el("h2", { text: title }), el("p", { class: "hint", text: about }), form);

/** saving makes a form that sends what read() makes of the settings of the moment: others may have changed some. */
function saving(form, read) {
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    get("settings").then((now) => patch("settings", read(now))).then(() => say("The settings were saved."), sayError);
  });
  return form;
}

const number = (value, placeholder = "no limit") => el("input", { type: "number", min: "0", step: "any", value: value || "", placeholder });
const check = (checked) => el("input", { type: "checkbox", checked });

function ratesForm(s) {
  const down = number(s.limits.download_mbit_s);
  const up = number(s.limits.upload_mbit_s);
  const slowDown = number(s.alternative.download_mbit_s);
  const slowUp = number(s.alternative.upload_mbit_s);
  const always = check(s.schedule.always);
  const enabled = check(s.schedule.enabled);
  const begin = el("input", { type: "time", value: s.schedule.begin || "08:00" });
  const end = el("input", { type: "time", value: s.schedule.end || "18:00" });
  const days = Object.entries(DAYS).map(([id, name]) => {
    const box = check((s.schedule.days ?? []).includes(id));
    return { id, box, label: el("label", { class: "check day" }, box, name) };
  });
  const form = el("form", { class: "panel fields" },
    el("label", {}, "Download", down), el("label", {}, "Upload", up),
    el("label", {}, "Alternative download", slowDown), el("label", {}, "Alternative upload", slowUp),
    el("label", { class: "check whole" }, always, "Use the alternative rates now"),
    el("label", { class: "check whole" }, enabled, "Use the alternative rates at these times"),
    el("label", {}, "From", begin), el("label", {}, "To", end),
    el("fieldset", { class: "whole days" }, el("legend", { text: "Days on which they begin" }), ...days.map((d) => d.label)),
    el("div", { class: "buttons" }, el("button", { class: "main", text: "Save" })));
  return saving(form, (now) => ({
    limits: { ...now.limits, download_mbit_s: Number(down.value), upload_mbit_s: Number(up.value) },
    alternative: { ...now.alternative, download_mbit_s: Number(slowDown.value), upload_mbit_s: Number(slowUp.value) },
    schedule: { always: always.checked, enabled: enabled.checked, begin: begin.value, end: end.value, days: days.filter((d) => d.box.checked).map((d) => d.id) },
  }));
}

function placesForm(s) {
  const text = (value, placeholder) => el("input", { type: "text", value, placeholder, spellcheck: "false" });
  const downloads = number(s.active_downloads, "all");
  const seeds = number(s.active_seeds, "all");
  const ratio = number(s.goal.ratio, "never");
  const idle = number(s.goal.idle_s / 60, "never");
  const paused = check(s.add_paused);
  const directory = text(s.directory);
  const complete = text(s.complete_directory, "it stays where it is");
  const watch = text(s.watch_directory, "none");
  const then = el("select", {}, ...["keep", "rename", "delete"].map((v) => el("option", { value: v, text: v, selected: v === s.watched_files })));
  // The program is shown, not changed: whoever can name one can run anything on this machine.
  const script = el("input", { type: "text", value: s.completion_script || "none", readonly: true });
  const form = el("form", { class: "panel fields" },
    el("label", {}, "Active downloads", downloads), el("label", {}, "Active seeds", seeds),
    el("label", {}, "Seed until this ratio", ratio), el("label", {}, "Seed until idle for minutes", idle),
    el("label", {}, "Directory for data", directory), el("label", {}, "Directory for complete data", complete),
    el("label", {}, "Watched directory", watch), el("label", {}, "Files added from there", then),
    el("label", { class: "check whole" }, paused, "Added torrents wait until they are resumed"),
    el("label", { class: "whole" }, "Program that runs on completion (change it at /api/v1/settings)", script),
    el("div", { class: "buttons" }, el("button", { class: "main", text: "Save" })));
  return saving(form, (now) => ({
    goal: { ...now.goal, ratio: Number(ratio.value), idle_s: Number(idle.value) * 60 }, add_paused: paused.checked,
    active_downloads: Number(downloads.value), active_seeds: Number(seeds.value),
    directory: directory.value.trim(), complete_directory: complete.value.trim(), watch_directory: watch.value.trim(), watched_files: then.value,
  }));
}
