// Tells the user what happened: short messages that screen readers speak, and questions.

import { el } from "./dom.js";

const SHOWN = 8000; // milliseconds; an error stays twice as long
const MOST = 4; // more than that would cover the page

/** say shows a message for some seconds. If it is shown already, it moves to the end. */
export function say(text, { bad = false } = {}) {
  const box = document.getElementById("messages");
  const close = el("button", { type: "button", "aria-label": "Close this message", text: "×", on: { click: () => note.remove() } });
  const note = el("div", { class: bad ? "message bad" : "message" }, el("span", { text }), close);
  [...box.children].find((old) => old.textContent === note.textContent)?.remove();
  box.append(note);
  while (box.children.length > MOST) box.firstChild.remove();
  setTimeout(() => note.remove(), bad ? 2 * SHOWN : SHOWN);
}

/** sayError shows an error. */
export const sayError = (err) => say(err.message, { bad: true });

/** dialog opens a modal window and resolves once it is closed, with the value of the button that closed it. */
export function dialog(title, body, buttons) {
  const heading = el("h2", { id: "dialog-title", text: title });
  const form = el("form", { method: "dialog" }, heading, ...body, el("div", { class: "buttons" }, ...buttons));
  const box = el("dialog", { "aria-labelledby": "dialog-title" }, form);
  document.body.append(box);
  // The key that opened the window may still be held. It is no answer.
  box.addEventListener("keydown", (e) => e.repeat && e.key === "Enter" && e.preventDefault());
  box.showModal();
  return new Promise((resolve) =>
    box.addEventListener("close", () => {
      box.remove();
      resolve(box.returnValue);
    }),
  );
}

/** ask is a dialog with a button to cancel and one that does it. It resolves to whether to do it. */
export async function ask(title, body, action, { bad = false } = {}) {
  const buttons = [
    el("button", { value: "do", class: bad ? "bad" : "main", text: action }), // the first one is what Enter does
    el("button", { value: "", formnovalidate: true, text: "Cancel" }),
  ];
  return (await dialog(title, body, buttons)) === "do";
}
