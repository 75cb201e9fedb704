// Changes the path policy. What a change would do is shown before it is applied: the server says for each AS with
// peers which of its paths would remain, and nothing changes until the user agrees.

import { get, post, put } from "./api.js";
import { el, icon } from "./dom.js";
import { plural, rate } from "./format.js";
import { fill, number, sending } from "./forms.js";
import { live } from "./live.js";
import { dialog, say, sayError } from "./messages.js";
import { hopText } from "./paths.js";

/** isFor tells whether a pattern is exactly this interface or AS. The server writes an AS with #0. */
const isFor = (pattern, target) => pattern === target || pattern === `${target}#0`;

/** entriesOf splits an access control list: a sign, with the hops that it is about or none. */
function entriesOf(acl) {
  const entries = [];
  for (const word of acl.replace(/\s*,\s*(?=[+-])/g, " ").trim().split(/\s+/)) {
    if (word === "+" || word === "-") entries.push(word);
    else if (entries.length > 0) entries.push(`${entries.pop()} ${word}`);
  }
  return entries;
}

const forbids = (entry, target) => entry.startsWith("- ") && isFor(entry.slice(2), target);

/** without takes the entries for exactly this interface or AS out of a policy: a pure function. */
export function without(policy, target) {
  const rest = entriesOf(policy.acl).filter((e) => !forbids(e, target));
  return {
    ...policy,
    acl: rest.length === 1 && rest[0] === "+" ? "" : rest.join(", "),
    limits: policy.limits.filter((l) => !isFor(l.pattern, target)),
  };
}

/** rulesFor says what a policy has for exactly this interface or AS: {forbidden, limit}. */
export function rulesFor(policy, target) {
  const limit = policy.limits.find((l) => isFor(l.pattern, target))?.mbit_s ?? 0;
  return { forbidden: entriesOf(policy.acl).some((e) => forbids(e, target)), limit };
}

/** limitsIn reads limits, one in each line. An error names a line without a rate, since null would remove the limit. */
export function limitsIn(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const [pattern, mbit] = line.split(/\s+/);
    if (!(Number(mbit) >= 0)) throw new Error(`${line}: want an interface or AS, and a number of Mbit/s`);
    return { pattern, mbit_s: Number(mbit) };
  });
}

/** previewOf shows what a preview says: for each destination its paths, and a warning where none remains. */
function previewOf(preview) {
  const path = (p) => el("li", { class: p.allowed ? "stays" : "goes" },
    icon(p.allowed ? "check" : "cross"), el("span", { class: "mono", text: p.hops.length > 0 ? hopText(p.hops) : "inside the AS" }),
    el("span", { class: "hint", text: p.allowed ? (p.limit_mbit_s > 0 ? `at most ${rate(p.limit_mbit_s)}` : "remains") : p.reason || p.clause }));
  const items = preview.destinations.map((d) => {
    const lost = d.remaining === 0 && d.paths.length > 0;
    return el("details", { open: lost || preview.destinations.length <= 3 },
      el("summary", { class: lost ? "bad" : "" }, lost ? icon("warn") : null, `${d.isd_as}: ${d.remaining} of ${plural(d.paths.length, "path")} ${d.paths.length === 1 ? "remains" : "remain"}`),
      el("ul", { class: "preview" }, ...d.paths.map(path)));
  });
  if (items.length === 0) return [el("p", { class: "hint", text: "No paths are known now, so nothing can be shown." })];
  const cut = preview.destinations.filter((d) => d.remaining === 0 && d.paths.length > 0).length;
  const warning = cut > 0 ? el("p", { class: "warning", text: `Peers in ${plural(cut, "AS", "ASes")} could not be reached any more.` }) : null;
  return warning ? [warning, ...items] : items;
}

/**
 * changeInterface asks what shall hold for an interface (1-ff00:0:110#2) or an AS (1-ff00:0:110): allow, forbid or
 * limit. about says what it is.
 */
export async function changeInterface(target, about) {
  let policy;
  try {
    policy = await get("policy");
  } catch (err) {
    sayError(err);
    return;
  }
  const rules = rulesFor(policy, target);
  const now = rules.forbidden ? "forbid" : rules.limit > 0 ? "limit" : "allow";
  const radio = (value, text, ...more) => el("label", { class: "check" }, el("input", { type: "radio", name: "rule", value, checked: value === now }), text, ...more);
  const most = el("input", { type: "number", min: "0.1", step: "any", value: rules.limit || 10, "aria-label": "Limit in Mbit/s" });
  const choice = el("fieldset", {}, el("legend", { text: "For all torrents" }),
    radio("allow", "Allow"), radio("forbid", "Forbid: no path may use it"), radio("limit", "Limit to ", most, " Mbit/s in each direction"));
  const shown = el("div", { class: "remaining", role: "status" });
  const apply = el("button", { value: "do", class: "main", text: "Apply", disabled: true });
  let preview = null;
  let asked = 0;

  async function show() {
    const mine = ++asked;
    apply.disabled = true;
    const rule = choice.querySelector("input:checked").value;
    most.required = rule === "limit"; // an empty one would be no limit
    const request = { policy: without(policy, target) };
    if (rule === "forbid") request.forbid = [target];
    if (rule === "limit") request.limit = [{ pattern: target, mbit_s: Number(most.value) }];
    try {
      const answer = await post("policy/preview", request);
      if (mine !== asked) return; // the user has chosen something else meanwhile
      preview = answer;
      shown.replaceChildren(...previewOf(answer));
      apply.disabled = false;
    } catch (err) {
      if (mine === asked) shown.replaceChildren(el("p", { class: "warning", text: err.message }));
    }
  }
  choice.addEventListener("change", show);
  most.addEventListener("input", () => {
    choice.querySelector("[value=limit]").checked = true;
    show();
  });
  show();
  const heading = el("h3", { text: "Paths that remain" });
  const newer = ({ detail }) => { // somebody else has changed the policy
    policy = detail;
    show();
  };
  live.addEventListener("policy", newer);
  const answer = await dialog(target, [el("p", { class: "hint", text: about }), choice, heading, shown], [apply, el("button", { value: "", formnovalidate: true, text: "Cancel" })]);
  live.removeEventListener("policy", newer);
  if (answer === "do") put("policy", preview.policy).then(() => say(`The policy for ${target} was changed.`), sayError);
}

/** policyForm edits the whole policy as text, with the same preview. */
export function policyForm(signal) {
  const text = (placeholder) => el("input", { type: "text", class: "mono", placeholder, spellcheck: "false", autocapitalize: "off" });
  const [acl, sequence, preference] = [text("- 1-ff00:0:110#2, +"), text("any"), text("latency, bandwidth, hops, mtu")];
  const latency = number("any");
  const mtu = el("input", { type: "number", min: "0", placeholder: "any" });
  const limits = el("textarea", { rows: "3", class: "mono", placeholder: "1-ff00:0:110#2 10", spellcheck: "false" });
  const shown = el("div", { class: "remaining", role: "status" });
  const form = el("form", { class: "panel fields" },
    el("label", {}, "Access control list", acl), el("label", {}, "Sequence of hops", sequence),
    el("label", {}, "Preference, the most important first", preference),
    el("label", {}, "Longest announced latency in ms", latency), el("label", {}, "Smallest MTU in bytes", mtu),
    el("label", { class: "whole" }, "Limits: an interface or AS and a rate in Mbit/s in each line", limits), shown,
    el("div", { class: "buttons" }, el("button", { value: "preview", text: "Show which paths remain" }), el("button", { value: "apply", class: "main", text: "Apply" })));
  const show = (p) => {
    fill(acl, p.acl);
    fill(sequence, p.sequence);
    fill(preference, (p.preference ?? []).join(", "));
    fill(latency, p.max_latency_ms || "");
    fill(mtu, p.min_mtu_bytes || "");
    fill(limits, p.limits.map((l) => `${l.pattern} ${l.mbit_s}`).join("\n"));
  };
  const read = () => ({
    acl: acl.value.trim(), sequence: sequence.value.trim(),
    preference: preference.value.split(",").map((w) => w.trim()).filter(Boolean),
    max_latency_ms: Number(latency.value), min_mtu_bytes: Number(mtu.value),
    limits: limitsIn(limits.value),
  });
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    try {
      show(await get("policy"));
      const saved = sending(form);
      const preview = await post("policy/preview", { policy: read() });
      shown.replaceChildren(...previewOf(preview));
      if (e.submitter?.value === "apply") {
        const newer = await put("policy", preview.policy);
        saved();
        show(newer);
        say("The policy was changed.");
      }
    } catch (err) {
      shown.replaceChildren(el("p", { class: "warning", text: err.message }));
    }
  });
  const load = () => get("policy", signal).then(show, (err) => signal.aborted || sayError(err));
  live.addEventListener("policy", ({ detail }) => show(detail), { signal });
  live.addEventListener("snapshot", load, { signal });
  load();
  return form;
}
