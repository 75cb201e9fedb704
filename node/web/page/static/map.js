// The map: the ASes and links that the known paths cross, coloured by our rate. A click on an interface or an AS
// forbids or limits it. The drawing is made again only if there are new ASes or links; otherwise only classes and
// texts change, so that nothing moves.

import { el, later, setAttr, setText, svg } from "./dom.js";
import { plural, rate } from "./format.js";
import { layout, linkName } from "./layout.js";
import { poll } from "./poll.js";
import { changeInterface } from "./policy.js";

const STEPS = [1, 3, 10, 30, 100]; // Mbit/s at which the colour changes
const KEPT = 300; // links; ones that no path uses any more stay on the map until it is opened again

/** classOf is the class of colour for a rate: 0 for none, then 1 to 6. */
const classOf = (mbit) => (mbit > 0.001 ? 1 + STEPS.filter((s) => mbit >= s).length : 0);

const parse = (name) => {
  const [isd_as, id] = name.split("#");
  return { isd_as, id: Number(id) };
};

export function mapView(signal) {
  const canvas = svg("svg", { class: "map", role: "group", "aria-label": "Map of ASes and links" });
  const note = el("p", { class: "summary", role: "status" });
  const direction = el("select", { "aria-label": "Rate to show" },
    ...[["both", "Both directions"], ["down", "Download"], ["up", "Upload"]].map(([value, text]) => el("option", { value, text })));
  const whole = el("select", { "aria-label": "Size of the map", on: { change: () => box.classList.toggle("whole", whole.value === "whole") } },
    el("option", { value: "", text: "Legible size" }), el("option", { value: "whole", text: "Whole map" }));
  const empty = el("p", { class: "empty", hidden: true, text: "No SCION path to a peer is known. The map shows the ASes between this host and its peers." });
  const box = el("div", { class: "map-box", tabindex: "0", role: "region", "aria-label": "Map, scrollable" }, canvas);
  const root = el("section", { class: "map-view", "aria-label": "Map" },
    el("h1", { class: "hidden", text: "Map" }), el("div", { class: "bar" }, note, direction, whole, legend()), box, empty);

  const known = new Map(); // name of a link -> {a, b}
  let drawing = null;
  let state = null;

  const refresh = later(() => {
    if (!state) return;
    let fresh = !drawing || drawing.local !== state.local;
    for (const l of state.links) {
      const link = { a: parse(l.a), b: parse(l.b) };
      const name = linkName(link.a, link.b);
      if (known.has(name) || known.size >= KEPT) continue;
      known.set(name, link);
      fresh = true;
    }
    empty.hidden = known.size > 0;
    box.hidden = known.size === 0;
    if (fresh) drawing = draw(canvas, [...known.values()], state.local);
    colour(drawing, state, direction.value);
    const busy = state.links.filter((l) => l.down_mbit_s + l.up_mbit_s > 0.001).length;
    setText(note, known.size === 0 ? "" : `${plural(state.ases.length, "AS", "ASes")}, ${plural(state.links.length, "link")}; ${busy} carry our data. Click an interface or an AS to forbid or limit it.`);
  });
  direction.addEventListener("change", refresh);
  poll(signal, "map", (m) => {
    state = m;
    refresh();
  });
  return { root, title: () => "Map" };
}

function legend() {
  const steps = ["idle", "< 1", "1", "3", "10", "30", "≥ 100"];
  return el("div", { class: "legend", role: "img", "aria-label": "Legend: links are wider and stronger in colour the higher our rate is; broken red lines are forbidden" },
    ...steps.map((text, i) => el("span", {}, svg("svg", { width: "26", height: "12" }, svg("path", { class: `link r${i}`, d: "M1 6H25" })), text)),
    el("span", { text: "Mbit/s" }),
    el("span", {}, svg("svg", { width: "26", height: "12" }, svg("path", { class: "link r0 forbidden", d: "M1 6H25" })), "forbidden"));
}

/** draw makes the drawing, and returns its parts by name. */
function draw(canvas, links, local) {
  const plan = layout(links, local ? [local] : []);
  const parts = { local, links: new Map(), ports: new Map(), boxes: new Map() };
  const below = svg("g", {});
  const middle = svg("g", {});
  const above = svg("g", {});
  for (const l of plan.links) {
    const line = svg("path", { d: l.d, class: "link r0" }, svg("title", {}));
    const label = svg("text", { x: l.label.x, y: l.label.y, class: `link-rate ${l.label.anchor}` });
    below.append(svg("path", { d: l.d, class: "casing" }), line);
    above.append(label);
    parts.links.set(l.name, { line, label, title: line.firstChild });
  }
  for (const b of plan.boxes) {
    const [isd, as] = b.name.split("-");
    const what = svg("text", { x: b.x + b.w / 2, y: b.y + b.h - 8, class: "as-note" });
    const box = svg("g", { class: b.name === local ? "as own" : "as", "data-target": b.name },
      svg("rect", { x: b.x, y: b.y, width: b.w, height: b.h, rx: 10 }),
      svg("text", { x: b.x + b.w / 2, y: b.y + 20, class: "as-name", textLength: b.name.length > 15 ? b.w - 14 : null, lengthAdjust: "spacingAndGlyphs" }, svg("tspan", { class: "isd", text: `${isd}-` }), svg("tspan", { text: as })), what);
    button(box, b.name, () => changeInterface(b.name, "All paths through this AS."));
    middle.append(box);
    parts.boxes.set(b.name, { box, what });
    for (const p of b.ports) {
      const wide = 12 + 7.5 * String(p.id).length;
      const x = p.side === "left" ? p.x - 4 : p.x + 4 - wide;
      const port = svg("g", { class: "port", "data-target": p.name },
        svg("rect", { class: "hit", x: p.x - 22, y: p.y - 12, width: 44, height: 24 }),
        svg("rect", { x, y: p.y - 9, width: wide, height: 18, rx: 9 }), svg("text", { x: x + wide / 2, y: p.y + 4, text: String(p.id) }));
      const other = p.link.split(" ").find((n) => n !== p.name) ?? p.name;
      button(port, p.name, () => changeInterface(p.name, `The link between ${p.name} and ${other}.`));
      middle.append(port);
      parts.ports.set(p.name, { port, link: p.link, other });
    }
  }
  canvas.replaceChildren(below, middle, above);
  setAttr(canvas, "viewBox", `0 0 ${plan.width} ${plan.height}`);
  // A wide window enlarges the map a little; a narrow one scrolls, so that texts stay legible.
  canvas.style.minWidth = `${Math.round(plan.width * 0.8)}px`;
  canvas.style.maxWidth = `${Math.round(plan.width * 1.35)}px`;
  return parts;
}

function button(node, label, act) {
  setAttr(node, "role", "button");
  setAttr(node, "tabindex", "0");
  setAttr(node, "aria-label", label);
  node.addEventListener("click", act);
  node.addEventListener("keydown", (e) => {
    if (e.key !== "Enter" && e.key !== " ") return;
    e.preventDefault();
    act();
  });
}

/** colour shows the rates and rules of the moment in a drawing. */
function colour(parts, state, direction) {
  const rateOf = (x) => (direction === "up" ? 0 : x.down_mbit_s) + (direction === "down" ? 0 : x.up_mbit_s);
  const now = new Map(state.links.map((l) => [linkName(parse(l.a), parse(l.b)), l]));
  for (const [name, { line, label, title }] of parts.links) {
    const l = now.get(name);
    const mbit = l ? rateOf(l) : 0;
    setAttr(line, "class", `link r${classOf(mbit)}${l?.forbidden ? " forbidden" : ""}${l ? "" : " unused"}${l?.limit_mbit_s > 0 ? " limited" : ""}`);
    setText(label, [mbit > 0.001 ? rate(mbit) : "", l?.limit_mbit_s > 0 ? `≤ ${rate(l.limit_mbit_s)}` : ""].filter(Boolean).join(", "));
    setText(title, `${name.replace(" ", " – ")}: ${l ? `${rate(l.down_mbit_s)} down, ${rate(l.up_mbit_s)} up, ${l.active_paths} of ${plural(l.paths, "path")} carry data` : "no path uses it now"}`);
  }
  for (const [name, { port, link, other }] of parts.ports) {
    const l = now.get(link);
    setAttr(port, "class", `port${l?.forbidden ? " forbidden" : ""}${l?.limit_mbit_s > 0 ? " limited" : ""}`);
    setAttr(port, "aria-label", `Interface ${name}, link to ${other}, ${l?.forbidden ? "forbidden" : rate(l ? rateOf(l) : 0)}. Forbid or limit.`);
  }
  const ases = new Map(state.ases.map((a) => [a.isd_as, a]));
  for (const [name, { box, what }] of parts.boxes) {
    const a = ases.get(name);
    const text = name === parts.local ? "this host" : a?.peers > 0 ? plural(a.peers, "peer") : "";
    setText(what, text);
    box.classList.toggle("peers", Boolean(a?.peers > 0));
    setAttr(box, "aria-label", `AS ${name}${text ? `, ${text}` : ""}${a ? `, ${rate(rateOf(a))}` : ""}. Forbid or limit.`);
  }
}
