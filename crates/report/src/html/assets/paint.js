// Colours and the painter of rectangles: straight into the pixels, so that a hundred thousand take milliseconds.

const KINDS = ["activation", "weight", "constant", "input", "output", "workspace"];
const PIXEL_BUDGET = 48e6; // pixels written in one frame; past it, rectangles become outlines

/** The theme's colours, read once. */
class Palette {
  constructor() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    for (const name of ["plot", "ink", "dim", "line", "grid", "accent", "bound", "peak", "capacity", "live", "hatch", "card", "bad"]) {
      this[name] = read(name);
    }
    this.kind = Object.fromEntries(KINDS.map((kind) => [kind, read(kind)]));
    this.background = rgb(this.plot);
    this.dark = document.documentElement.dataset.theme === "dark";
  }

  /** One pixel value a buffer: its kind's colour in one of five shades, so that neighbours differ; and the same, dimmed. */
  shades(buffers) {
    const plain = new Uint32Array(buffers.length), dimmed = new Uint32Array(buffers.length);
    const table = new Map(KINDS.map((kind) => {
      const colour = rgb(this.kind[kind]);
      return [kind, [-0.14, -0.07, 0, 0.07, 0.14].map((shift) => {
        const shade = mix(colour, shift < 0 ? [0, 0, 0] : [255, 255, 255], Math.abs(shift));
        return [pixel(shade), pixel(mix(shade, this.background, 0.82))];
      })];
    }));
    buffers.forEach((buffer, id) => {
      const shade = (table.get(buffer.kind) ?? table.get("activation"))[(Math.imul(id, 2654435761) >>> 8) % 5];
      plain[id] = shade[0];
      dimmed[id] = shade[1];
    });
    return { plain, dimmed };
  }
}

function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function mix(from, to, part) {
  return from.map((value, i) => Math.round(value + (to[i] - value) * part));
}

function pixel([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/**
 * Paints the rectangles that a view shows. `colour(owner)` gives each one's pixel value.
 * Returns the indices of those large enough for a label.
 */
function paint(image, rectangles, view, colour, background, isView) {
  const pixels = new Uint32Array(image.data.buffer), { width, height } = image;
  pixels.fill(background);
  const scaleX = width / (view.right - view.left), scaleY = height / (view.high - view.low);
  const labels = [], later = [];
  let written = 0;
  const one = (i) => {
    const x0 = Math.max(0, Math.floor((rectangles.left[i] - view.left) * scaleX));
    let x1 = Math.min(width, Math.max(x0 + 1, Math.floor((rectangles.right[i] - view.left) * scaleX)));
    const y1 = Math.min(height, height - Math.floor((rectangles.low[i] - view.low) * scaleY));
    let y0 = Math.max(0, Math.min(y1 - 1, height - Math.floor((rectangles.high[i] - view.low) * scaleY)));
    if (x0 >= width || y1 <= 0) return;
    if (x1 - x0 > 60 && y1 - y0 > 14) labels.push([i, x0, y0, x1, y1]);
    // A line of background between neighbours, where there is room for one.
    if (x1 - x0 > 3) x1 -= 1;
    if (y1 - y0 > 3) y0 += 1;
    const value = colour(rectangles.owner[i]);
    written += (x1 - x0) * (y1 - y0);
    const outline = written > PIXEL_BUDGET && y1 - y0 > 2;
    for (let y = y0; y < y1; y++) {
      const row = y * width;
      if (outline && y !== y0 && y !== y1 - 1) pixels[row + x0] = pixels[row + x1 - 1] = value;
      else pixels.fill(value, row + x0, row + x1);
    }
  };
  rectangles.search(view.left, view.low, view.right, view.high, (i) => (isView[rectangles.owner[i]] ? later.push(i) : one(i)));
  later.forEach(one); // what lives inside another buffer is drawn on top of it
  return labels;
}

/** Round distances between axis lines: 1, 2, 5 times a power of ten, or a power of two for bytes. */
function niceStep(span, lines, bytes) {
  const rough = Math.max(span / lines, bytes ? 1 : 1);
  if (bytes) return 2 ** Math.ceil(Math.log2(rough));
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) ?? rough;
}
