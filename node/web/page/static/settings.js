// The settings of all torrents: rates and their schedule, the queue, directories, and the path policy.

import { get } from "./api.js";
import { el } from "./dom.js";
import { check, choice, fill, number, saving, text } from "./forms.js";
import { live } from "./live.js";
import { sayError } from "./messages.js";
import { policyForm } from "./policy.js";

const DAYS = { mon: "Mon", tue: "Tue", wed: "Wed", thu: "Thu", fri: "Fri", sat: "Sat", sun: "Sun" };

export function settingsView(signal) {
  const [rates, places] = [ratesForm(), placesForm()];
  const panels = [
    section("Rates", "In Mbit/s. Empty is no limit.", rates.form),
    section("Queue and directories", "How many torrents run at a time, and where their data goes.", places.form),
    section("Path policy", "Over which SCION paths data may go, for all torrents. The map changes it by a click on an interface.", policyForm(signal)),
  ];
  const body = el("div", { class: "panels" });
  const root = el("section", { class: "settings", "aria-label": "Settings" }, el("h1", { text: "Settings" }), body);
  const show = (s) => {
    rates.show(s);
    places.show(s);
    if (!body.firstChild) body.append(...panels);
  };
  const load = () => get("settings", signal).then(show, (err) => signal.aborted || sayError(err));
  live.addEventListener("settings", ({ detail }) => show(detail), { signal });
  live.addEventListener("snapshot", load, { signal });
  load();
  return { root, title: () => "Settings" };
}

const section = (title, about, form) => el("section", {}, el("h2", { text: title }), el("p", { class: "hint", text: about }), form);

function ratesForm() {
  const [down, up, slowDown, slowUp] = [number(), number(), number(), number()];
  const [always, enabled] = [check(), check()];
  const [begin, end] = [el("input", { type: "time" }), el("input", { type: "time" })];
  const days = Object.entries(DAYS).map(([id, name]) => {
    const box = check();
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
  const show = (s) => {
    fill(down, s.limits.download_mbit_s || "");
    fill(up, s.limits.upload_mbit_s || "");
    fill(slowDown, s.alternative.download_mbit_s || "");
    fill(slowUp, s.alternative.upload_mbit_s || "");
    fill(always, s.schedule.always);
    fill(enabled, s.schedule.enabled);
    fill(begin, s.schedule.begin);
    fill(end, s.schedule.end);
    for (const d of days) fill(d.box, (s.schedule.days ?? []).includes(d.id));
  };
  saving(form, "settings", show, (now) => ({
    limits: { ...now.limits, download_mbit_s: Number(down.value), upload_mbit_s: Number(up.value) },
    alternative: { ...now.alternative, download_mbit_s: Number(slowDown.value), upload_mbit_s: Number(slowUp.value) },
    schedule: { always: always.checked, enabled: enabled.checked, begin: begin.value, end: end.value, days: days.filter((d) => d.box.checked).map((d) => d.id) },
  }));
  return { form, show };
}

function placesForm() {
  const [downloads, seeds] = [number("all"), number("all")];
  const [ratio, idle] = [number("never"), number("never")];
  const paused = check();
  const [directory, complete, watch] = [text(), text("it stays where it is"), text("none")];
  const then = choice("keep", "rename", "delete");
  // The program is shown, not changed: whoever can name one can run anything on this machine.
  const script = el("input", { type: "text", readonly: true });
  const form = el("form", { class: "panel fields" },
    el("label", {}, "Active downloads", downloads), el("label", {}, "Active seeds", seeds),
    el("label", {}, "Seed until this ratio", ratio), el("label", {}, "Seed until idle for minutes", idle),
    el("label", {}, "Directory for data", directory), el("label", {}, "Directory for complete data", complete),
    el("label", {}, "Watched directory", watch), el("label", {}, "Files added from there", then),
    el("label", { class: "check whole" }, paused, "Added torrents wait until they are resumed"),
    el("label", { class: "whole" }, "Program that runs on completion (change it at /api/v1/settings)", script),
    el("div", { class: "buttons" }, el("button", { class: "main", text: "Save" })));
  const show = (s) => {
    fill(downloads, s.active_downloads || "");
    fill(seeds, s.active_seeds || "");
    fill(ratio, s.goal.ratio || "");
    fill(idle, s.goal.idle_s / 60 || "");
    fill(paused, s.add_paused);
    fill(directory, s.directory);
    fill(complete, s.complete_directory);
    fill(watch, s.watch_directory);
    fill(then, s.watched_files);
    fill(script, s.completion_script || "none");
  };
  saving(form, "settings", show, (now) => ({
    goal: { ...now.goal, ratio: Number(ratio.value), idle_s: Number(idle.value) * 60 }, add_paused: paused.checked,
    active_downloads: Number(downloads.value), active_seeds: Number(seeds.value),
    directory: directory.value.trim(), complete_directory: complete.value.trim(), watch_directory: watch.value.trim(), watched_files: then.value,
  }));
  return { form, show };
}
