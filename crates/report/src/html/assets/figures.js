// Numbers and elements. A foreign name only ever becomes text, never markup.

const UNITS = [["EiB", 2 ** 60], ["PiB", 2 ** 50], ["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

function grouped(number) {
  return Math.trunc(number).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** Like `toFixed`, with ties to even as the terminal text rounds them: 1.625 is 1.62. */
function fixed(value, digits) {
  const tie = (value * 2 ** (digits + 1)) % 2 === 1;
  if (!tie) return value.toFixed(digits);
  const down = Math.floor(value * 10 ** digits);
  return ((down + (down % 2)) / 10 ** digits).toFixed(digits);
}

function binary(bytes) {
  const unit = UNITS.find(([, size]) => bytes >= size);
  return unit ? `${fixed(bytes / unit[1], 2)} ${unit[0]}` : null;
}

/** `1,048,576 B (1.00 MiB)` */
function exact(bytes) {
  const short = binary(bytes);
  return `${grouped(bytes)} B${short ? ` (${short})` : ""}`;
}

/** `1.00 MiB` */
function short(bytes) {
  return binary(bytes) ?? `${grouped(bytes)} B`;
}

/** An axis label without needless decimals: `64 MiB`, `1.5 GiB`. */
function tick(bytes) {
  const unit = UNITS.find(([, size]) => bytes >= size);
  return unit ? `${Number((bytes / unit[1]).toFixed(2))} ${unit[0]}` : `${grouped(bytes)} B`;
}

function threeDigits(value) {
  return fixed(value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
}

function rate(figure) {
  const scale = PREFIXES.find(([size]) => figure.value >= size);
  if (scale) return `${threeDigits(figure.value / scale[0])} ${scale[1]}${figure.unit}`;
  return `${Number.isInteger(figure.value) ? figure.value : threeDigits(figure.value)} ${figure.unit}`;
}

function seconds(time) {
  if (time === 0) return "0 s";
  const [size, unit] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]].find(([size]) => time >= size) ?? [1e-9, "ns"];
  return `${threeDigits(time / size)} ${unit}`;
}

function share(part, whole) {
  if (!whole || !part) return "0 %";
  if (part === whole) return "100 %";
  const percent = (part / whole) * 100;
  if (percent < 0.1) return "< 0.1 %";
  return percent > 99.9 && part < whole ? "> 99.9 %" : `${fixed(percent, 1)} %`;
}

function counted(count, one) {
  return `${grouped(count)} ${one}${count === 1 ? "" : "s"}`;
}

function range(pair) {
  return `[${grouped(pair[0])}, ${grouped(pair[1])})`;
}

/** `make("p.dim", "text", child, ...)`: an element with classes, text and children. */
function make(kind, ...children) {
  const [name, ...classes] = kind.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function byId(id) {
  return document.getElementById(id);
}

/** Columns that a text takes in a fixed-width font: a CJK character takes two. */
function columnsOf(text) {
  let columns = 0;
  for (const c of text) columns += c.codePointAt(0) >= 0x2e80 ? 2 : 1;
  return columns;
}

/** The text in at most `room` columns, the middle left out where it is longer. */
function shorten(text, room) {
  if (text.length <= room && columnsOf(text) <= room) return text;
  if (room < 3) return "";
  const letters = Array.from(text.length > 400 ? text.slice(0, 200) + text.slice(-200) : text);
  const take = (list, limit) => {
    const taken = [];
    let used = 0;
    for (const c of list) {
      used += c.codePointAt(0) >= 0x2e80 ? 2 : 1;
      if (used > limit) break;
      taken.push(c);
    }
    return taken;
  };
  const front = Math.floor((room - 1) / 2);
  const back = take(letters.slice().reverse(), room - 1 - front).reverse();
  return take(letters, front).join("") + "…" + back.join("");
}
