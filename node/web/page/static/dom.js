// Builds and updates elements. Text always goes in as text, never as markup, since names of torrents, peers and
// errors come from strangers.

const SVG = "http://www.w3.org/2000/svg";

/** el makes an HTML element. Attributes whose value is null, undefined or false are left out; "on" holds listeners. */
export function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** svg makes an SVG element. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** icon is one drawing of icons.svg. It is hidden from screen readers: the text beside it says the same. */
export function icon(name) {
  return svg("svg", { class: "icon", "aria-hidden": "true" }, svg("use", { href: `page/icons.svg#${name}` }));
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (name === "text") {
      setText(node, value);
    } else {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  node.append(...children.filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

/** visible shows characters that would hide or reorder a text as escapes. */
export const visible = (text) =>
  String(text ?? "").replace(/(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}]/gu, (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);

/** setText changes a text only if it differs, since each change makes the browser lay out again. */
export function setText(node, text) {
  text = visible(text);
  if (node.textContent !== text) node.textContent = text;
}

/** setAttr changes an attribute only if it differs; null removes it. */
export function setAttr(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== visible(value)) node.setAttribute(name, visible(value));
}

/** later runs a function once in the next frame, however often it is called before. */
export function later(run) {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      run();
    });
  };
}
