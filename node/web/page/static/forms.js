// Forms of settings that others may change, too, while they are open. A field shows newer values until the user changes
// it. So a form never sends an old value over a newer one.

import { get, patch } from "./api.js";
import { el } from "./dom.js";
import { say, sayError } from "./messages.js";

export const number = (placeholder = "no limit") => el("input", { type: "number", min: "0", step: "any", placeholder });
export const check = () => el("input", { type: "checkbox" });
export const text = (placeholder) => el("input", { type: "text", placeholder, spellcheck: "false" });
export const choice = (...values) => el("select", {}, ...values.map((v) => el("option", { value: v, text: v })));

const keyOf = (field) => (field.type === "checkbox" ? "checked" : "value");

/** fill shows a value in a field, unless the user has changed the field since it was filled. */
export function fill(field, value) {
  const key = keyOf(field);
  const next = key === "checked" ? Boolean(value) : String(value ?? "");
  const touched = field.filled !== undefined && field[key] !== field.filled;
  if (next === field.filled || (touched && field[key] !== next)) return;
  field[key] = next;
  field.filled = field[key];
}

/**
 * sending notes what a form sends. The function that it returns is for the time when that is saved: then the user has
 * changed only what is different by then. The server may write the same in another way, such as "a, b" for "a,b".
 */
export function sending(form) {
  const sent = [...form.elements].filter((f) => f.filled !== undefined).map((f) => [f, f[keyOf(f)]]);
  return () => sent.forEach(([f, value]) => (f.filled = value));
}

/** saving lets a form patch the settings at a path: it shows the newest ones, and sends what read makes of them. */
export function saving(form, path, show, read) {
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    try {
      const now = await get(path);
      show(now);
      const saved = sending(form);
      const newer = await patch(path, read(now));
      saved();
      show(newer);
      say("The settings were saved.");
    } catch (err) {
      sayError(err);
    }
  });
}
