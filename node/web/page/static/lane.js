// Draws the rate of one path over time, with the decisions of the selector marked where they were taken.
// The same time and the same scale apply to all lanes of a list, so that paths can be compared by eye.

/** MARKS names the steps in the life of a path: the shape that stands for it, and the word for it. */
export const MARKS = {
  "path-selected": { shape: "ring", word: "selected" },
  "path-opened": { shape: "right", word: "opened" },
  "path-parked": { shape: "bars", word: "parked" },
  "path-probed": { shape: "diamond", word: "probed" },
  "path-returned": { shape: "up", word: "returned" },
  "path-closed": { shape: "square", word: "closed" },
  "path-failed": { shape: "cross", word: "failed" },
};

const HEAD = 16; // pixels at the top for the marks, so that they do not cover the rate

/** niceMaximum is the next of 1, 2, 5, 10, 20 ... above x, so that the scale changes seldom. */
export function niceMaximum(x) {
  if (!(x > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(x));
  for (const step of [1, 2, 5, 10]) if (x <= step * power * 1.0001) return step * power;
  return 10 * power;
}

/** placeOf is where a time is in a lane, in pixels. */
const placeOf = (time, { from, to, width }) => ((time - from) / (to - from)) * width;

/**
 * drawLane draws on a canvas context, in CSS pixels. samples are [time, Mbit/s] in order of time, marks are
 * {time, kind} (a key of MARKS), top is the rate at the upper edge and scale its text, and colours are CSS colours by name.
 */
export function drawLane(ctx, { samples, marks, from, to, top, scale, width, height, colours }) {
  const range = { from, to, width };
  const y = (rate) => height - 1 - (Math.min(rate, top) / top) * (height - HEAD - 1);
  ctx.clearRect(0, 0, width, height);
  grid(ctx, range, height, y(top), colours);
  area(ctx, samples.filter(([time]) => time >= from - 3000), range, y, height, colours);
  ctx.font = "10.5px system-ui, sans-serif";
  ctx.fillStyle = colours.muted;
  ctx.fillText(scale, 2, HEAD + 11);
  for (const mark of marks) {
    if (mark.time < from || mark.time > to) continue;
    const x = Math.max(6, Math.min(width - 6, placeOf(mark.time, range)));
    ctx.strokeStyle = colours.mark;
    ctx.globalAlpha = 0.35;
    ctx.beginPath();
    ctx.moveTo(x, HEAD);
    ctx.lineTo(x, height);
    ctx.stroke();
    ctx.globalAlpha = 1;
    drawShape(ctx, MARKS[mark.kind]?.shape, x, HEAD / 2, mark.kind === "path-failed" ? colours.bad : colours.mark);
  }
}

function grid(ctx, { from, to, width }, height, topLine, colours) {
  ctx.lineWidth = 1;
  ctx.strokeStyle = colours.grid;
  ctx.beginPath();
  for (const line of [topLine, (topLine + height) / 2, height - 0.5]) {
    ctx.moveTo(0, Math.round(line) + 0.5);
    ctx.lineTo(width, Math.round(line) + 0.5);
  }
  const minute = 60000;
  const step = to - from > 6 * minute ? 2 * minute : minute;
  for (let t = Math.ceil(from / step) * step; t < to; t += step) {
    const x = Math.round(placeOf(t, { from, to, width })) + 0.5;
    ctx.moveTo(x, HEAD);
    ctx.lineTo(x, height);
  }
  ctx.stroke();
}

/** area fills below the rate. Where no samples came for a while there is a gap: nothing is known there. */
function area(ctx, samples, range, y, height, colours) {
  const GAP = 5000;
  for (let i = 0; i < samples.length; ) {
    let j = i + 1;
    while (j < samples.length && samples[j][0] - samples[j - 1][0] <= GAP) j++;
    const run = samples.slice(i, j).map(([time, rate]) => [placeOf(time, range), y(rate)]);
    ctx.beginPath();
    ctx.moveTo(run[0][0], height - 1);
    for (const [a, b] of run) ctx.lineTo(a, b);
    ctx.lineTo(run[run.length - 1][0], height - 1);
    ctx.closePath();
    ctx.fillStyle = colours.fill;
    ctx.fill();
    ctx.beginPath();
    for (const [a, b] of run) ctx.lineTo(a, b);
    ctx.strokeStyle = colours.line;
    ctx.lineWidth = 1.5;
    ctx.stroke();
    ctx.lineWidth = 1;
    i = j;
  }
}

/** drawShape draws a mark of 10 pixels. The shapes differ, so that nobody needs to tell colours apart. */
export function drawShape(ctx, shape, x, y, colour) {
  const polygon = (...points) => {
    ctx.beginPath();
    for (const [a, b] of points) ctx.lineTo(x + a, y + b);
    ctx.closePath();
    ctx.fill();
  };
  ctx.fillStyle = ctx.strokeStyle = colour;
  ctx.lineWidth = 2;
  switch (shape) {
    case "right": polygon([-4, -5], [5, 0], [-4, 5]); break;
    case "up": polygon([-5, 4], [0, -5], [5, 4]); break;
    case "diamond": polygon([0, -5.5], [5.5, 0], [0, 5.5], [-5.5, 0]); break;
    case "square": polygon([-4, -4], [4, -4], [4, 4], [-4, 4]); break;
    case "bars": polygon([-4, -5], [-1, -5], [-1, 5], [-4, 5]); polygon([1, -5], [4, -5], [4, 5], [1, 5]); break;
    case "cross":
      ctx.beginPath();
      ctx.moveTo(x - 4, y - 4); ctx.lineTo(x + 4, y + 4);
      ctx.moveTo(x + 4, y - 4); ctx.lineTo(x - 4, y + 4);
      ctx.stroke();
      break;
    default:
      ctx.beginPath();
      ctx.arc(x, y, 4, 0, 2 * Math.PI);
      ctx.stroke();
  }
  ctx.lineWidth = 1;
}
