// Draws which pieces of a torrent are there. Few pieces are a grid of squares, one for each. Where the squares would
// be too small to see, one stands for several pieces and is filled as far as they are there.

const CELLS = [14, 10, 8, 6, 5, 4]; // pixels of a square with its gap, the largest that fits is taken
const HIGH = 220; // most pixels of height, so that the rest of the page stays in view

/** bytesOf reads base64. */
export const bytesOf = (text) => Uint8Array.from(atob(text ?? ""), (c) => c.charCodeAt(0));

/** hasPiece reads a bit field whose first piece is the highest bit. */
const hasPiece = (bits, i) => (bits[i >> 3] & (0x80 >> (i & 7))) !== 0;

/** gridFor chooses the size of squares for a number of pieces and a width: {cell, across, cells, each}. */
export function gridFor(count, width) {
  for (const cell of CELLS) {
    const across = Math.max(1, Math.floor(width / cell));
    if (Math.ceil(count / across) * cell <= HIGH) return { cell, across, cells: count, each: 1 };
  }
  const cell = CELLS.at(-1);
  const across = Math.max(1, Math.floor(width / cell));
  const each = Math.ceil(count / (across * Math.floor(HIGH / cell)));
  return { cell, across, cells: Math.ceil(count / each), each };
}

/** countPieces sums up for people: verified pieces, and missing ones that no connected peer has. */
export function countPieces(have, available, count) {
  let done = 0;
  let rare = 0;
  for (let i = 0; i < count; i++) {
    if (hasPiece(have, i)) done++;
    else if (available.length > 0 && !available[i]) rare++;
  }
  return { done, rare };
}

/** drawPieces draws on a canvas, which gets the height that it needs. */
export function drawPieces(canvas, { have, available, count }, colours) {
  const width = canvas.clientWidth;
  const { cell, across, cells, each } = gridFor(count, width);
  const height = Math.max(cell, Math.ceil(cells / across) * cell);
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(scale, 0, 0, scale, 0, 0);
  ctx.clearRect(0, 0, width, height);
  const gap = cell > 4 ? 1 : 0.5;
  for (let n = 0; n < cells; n++) {
    let done = 0;
    let least = 255;
    const end = Math.min(count, (n + 1) * each);
    for (let i = n * each; i < end; i++) {
      if (hasPiece(have, i)) done++;
      else if (available.length > 0) least = Math.min(least, available[i]);
    }
    const [x, y] = [(n % across) * cell, Math.floor(n / across) * cell];
    const part = done / (end - n * each);
    ctx.fillStyle = part === 1 ? colours.have : least === 0 ? colours.none : colours.missing;
    ctx.fillRect(x, y, cell - gap, cell - gap);
    if (part > 0 && part < 1) {
      ctx.fillStyle = colours.have;
      const h = (cell - gap) * part;
      ctx.fillRect(x, y + cell - gap - h, cell - gap, h);
    }
  }
}
