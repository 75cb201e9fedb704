// Places the ASes and links of the map. The result depends on nothing but which ASes and links there are: rates and
// states may change at any time and nothing moves. The same network looks the same in every browser, every time.
//
// Our own AS is on the left. Each AS stands in the column of its distance from us in links, so that traffic runs from
// right to left. Within a column, ASes are ordered so that few links cross. An AS is a box, and its interfaces are
// ports on the side that faces the neighbour, so that each link can be followed from port to port.

const BOX = 138; // width of an AS in pixels; the longest AS number still fits
const PORT = 24; // height of an interface; a finger can hit it
const GAP = 34; // between boxes of a column
const COLUMN = 124; // between columns, room for the curves and their rates
const LOOP = 90; // more room after a column with links between its own ASes
const MARGIN = 34;
const SWEEPS = 12; // after fewer sweeps some crossings remain; more have not removed any

/** interfaceName is the text of an interface: 1-ff00:0:110#2. */
const interfaceName = (i) => `${i.isd_as}#${i.id}`;

/** linkName is the same for both directions of a link. */
export function linkName(a, b) {
  const [x, y] = [interfaceName(a), interfaceName(b)].sort();
  return `${x} ${y}`;
}

/** compareIA orders ISD-ASes by number. */
export function compareIA(a, b) {
  const [ia, aa] = numbers(a);
  const [ib, ab] = numbers(b);
  return ia - ib || aa - ab || (a < b ? -1 : a > b ? 1 : 0);
}

function numbers(isdAS) {
  const [isd, as = ""] = isdAS.split("-");
  const value = as.includes(":") ? as.split(":").reduce((v, g) => v * 65536 + parseInt(g || "0", 16), 0) : Number(as);
  return [Number(isd), value];
}

/**
 * layout takes links [{a, b}] of interfaces {isd_as, id}, each link once, and the names of our own ASes. It returns
 * { width, height, boxes: [{name, x, y, w, h, ports: [{name, x, y, side, link}]}], links: [{name, d, from, to, label}] }.
 */
export function layout(links, own) {
  const graph = build(links, own);
  const columns = columnsOf(graph, own);
  order(columns, graph);
  return place(columns, graph);
}

function build(links, own) {
  const ases = new Map(); // name -> {name, links: [{link, id, other}]}
  const as = (name) => ases.get(name) ?? ases.set(name, { name, ends: [] }).get(name);
  for (const name of own) as(name);
  const sorted = new Map(links.map((l) => [linkName(l.a, l.b), l]));
  for (const name of [...sorted.keys()].sort()) {
    const { a, b } = sorted.get(name);
    as(a.isd_as).ends.push({ link: name, id: a.id, other: as(b.isd_as) });
    as(b.isd_as).ends.push({ link: name, id: b.id, other: as(a.isd_as) });
  }
  return ases;
}

/** columnsOf groups the ASes by their distance from us. Parts that no link joins to us begin at the left as well. */
function columnsOf(ases, own) {
  const all = [...ases.values()].sort((a, b) => compareIA(a.name, b.name));
  let wave = all.filter((a) => own.includes(a.name));
  for (const as of wave) as.column = 0;
  const columns = [];
  for (let rest = all; rest.length > 0; rest = all.filter((a) => a.column === undefined)) {
    if (wave.length === 0) wave = [rest[0]];
    for (let n = 0; wave.length > 0; n++) {
      for (const a of wave) a.column = n;
      (columns[n] ??= []).push(...wave);
      const next = wave.flatMap((a) => a.ends.map((e) => e.other)).filter((a) => a.column === undefined);
      wave = [...new Set(next)].sort((a, b) => compareIA(a.name, b.name));
    }
    if (all.every((a) => a.column !== undefined)) break;
  }
  return columns;
}

/** order sweeps over the columns and sorts each by the mean place of its neighbours in the column before. */
function order(columns, ases) {
  const number = () => columns.forEach((c) => c.forEach((a, i) => (a.at = (i + 0.5) / c.length)));
  number();
  let best = columns.map((c) => [...c]);
  let fewest = crossings(columns);
  for (let sweep = 0; sweep < SWEEPS && fewest > 0; sweep++) {
    const forward = sweep % 2 === 0;
    const turns = columns.map((_, i) => (forward ? i : columns.length - 1 - i));
    for (const i of turns) {
      for (const a of columns[i]) {
        const near = a.ends.filter((e) => (forward ? e.other.column < i : e.other.column > i)).map((e) => e.other.at);
        a.pull = near.length > 0 ? near.reduce((x, y) => x + y, 0) / near.length : a.at;
      }
      columns[i].sort((a, b) => a.pull - b.pull || compareIA(a.name, b.name));
      columns[i].forEach((a, k) => (a.at = (k + 0.5) / columns[i].length));
    }
    const now = crossings(columns);
    if (now < fewest) {
      fewest = now;
      best = columns.map((c) => [...c]);
    }
  }
  best.forEach((c, i) => (columns[i] = c));
  number();
}

function crossings(columns) {
  let n = 0;
  for (const column of columns) {
    const lines = column.flatMap((a) => a.ends.filter((e) => e.other.column === a.column + 1).map((e) => [a.at, e.other.at]));
    for (let i = 0; i < lines.length; i++) {
      for (let j = 0; j < i; j++) {
        if ((lines[i][0] - lines[j][0]) * (lines[i][1] - lines[j][1]) < 0) n++;
      }
    }
  }
  return n;
}

function place(columns, ases) {
  for (const a of ases.values()) {
    const side = (left) => a.ends.filter((e) => (e.other.column < a.column) === left);
    a.left = side(true);
    a.right = side(false);
    a.h = 36 + PORT * Math.max(1, a.left.length, a.right.length);
  }
  const tall = (c) => c.reduce((sum, a) => sum + a.h + GAP, -GAP);
  const height = Math.max(...columns.map(tall), 60);
  let x = MARGIN;
  for (const c of columns) {
    // What is free is spread evenly, so that a short column stands beside the middle of a tall one.
    const free = (height - tall(c)) / (c.length + 1);
    let y = MARGIN + free;
    for (const a of c) {
      Object.assign(a, { x, y });
      y += a.h + GAP + free;
    }
    x += BOX + COLUMN + (c.some((a) => a.right.some((e) => e.other.column === a.column)) ? LOOP : 0);
  }
  const ports = new Map();
  const boxes = [...ases.values()].map((a) => ({ name: a.name, x: a.x, y: a.y, w: BOX, h: a.h, ports: portsOf(a, ports) }));
  const links = [];
  for (const [name, ends] of ports) {
    const [p, q] = ends.sort((a, b) => a.x - b.x || a.y - b.y);
    if (q) links.push({ name, ...curve(p, q), from: p.name, to: q.name });
  }
  return { width: Math.max(x - COLUMN, MARGIN) + MARGIN, height: height + 2 * MARGIN, boxes, links };
}

/** portsOf stacks the ports of each side, in the order of what they lead to. */
function portsOf(a, ports) {
  const out = [];
  for (const [ends, side] of [[a.left, "left"], [a.right, "right"]]) {
    const middle = (as) => as.y + as.h / 2;
    ends.sort((e, f) => middle(e.other) - middle(f.other) || (e.link < f.link ? -1 : 1));
    const top = a.y + 30 + (a.h - 36 - PORT * ends.length) / 2;
    ends.forEach((e, i) => {
      const port = {
        name: interfaceName({ isd_as: a.name, id: e.id }), id: e.id, link: e.link, side,
        x: side === "left" ? a.x : a.x + BOX, y: top + PORT * (i + 0.5),
      };
      out.push(port);
      if (!ports.has(e.link)) ports.set(e.link, []);
      ports.get(e.link).push(port);
    });
  }
  return out;
}

/** curve draws a link, and places its label beside the port at its far end, where links do not cross. */
function curve(p, q) {
  const out = p.side === "right" ? 1 : -1;
  if (p.x === q.x) {
    // Both ends are in one column: the link bows out to the side.
    const bow = Math.min(100, 30 + Math.abs(q.y - p.y) / 5);
    return {
      d: `M${p.x} ${p.y}C${p.x + out * bow} ${p.y} ${q.x + out * bow} ${q.y} ${q.x} ${q.y}`,
      label: { x: q.x + out * 16, y: q.y - 7, anchor: out > 0 ? "start" : "end" },
    };
  }
  const bend = (q.x - p.x) / 2;
  return {
    d: `M${p.x} ${p.y}C${p.x + bend} ${p.y} ${q.x - bend} ${q.y} ${q.x} ${q.y}`,
    label: { x: q.x - 26, y: q.y - 7, anchor: "end" },
  };
}
