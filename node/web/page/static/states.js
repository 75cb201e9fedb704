// What the states of torrents and paths are called and look like. Each has an icon: colour alone tells nothing to many.

import { el, icon, setText } from "./dom.js";

const STATES = {
  starting: ["wait", "idle"], queued: ["wait", "idle"], metadata: ["magnet", "busy"], checking: ["verify", "busy"],
  downloading: ["down", "good"], seeding: ["up", "calm"], paused: ["pause", "idle"], served: ["check", "calm"],
  moving: ["move", "busy"], failed: ["warn", "bad"],
  idle: ["wait", "idle"], opening: ["wait", "busy"], active: ["down", "good"], parked: ["pause", "idle"],
  probing: ["ask", "busy"], waiting: ["wait", "idle"], working: ["check", "good"], forbidden: ["cross", "bad"],
};

/** ORDER sorts states so that what needs attention or moves comes first. */
export const ORDER = ["failed", "downloading", "checking", "metadata", "moving", "starting", "queued", "seeding", "served", "paused"];

/** badge is an empty sign of a state; showState fills it. */
export const badge = () => el("span", { class: "badge" }, icon("wait"), el("span"));

/** showState makes a badge show a state. */
export function showState(node, state) {
  if (node.state === state) return;
  node.state = state;
  const [drawing, tone] = STATES[state] ?? ["wait", "idle"];
  node.className = `badge ${tone}`;
  node.querySelector("use").setAttribute("href", `page/icons.svg#${drawing}`);
  setText(node.lastChild, state);
}
