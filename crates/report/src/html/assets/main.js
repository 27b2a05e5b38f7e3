// Puts the page together: reads the data, wires the map to the search box, the tooltip and the tables.

const report = JSON.parse(byId("data").textContent);
const state = { palette: null, shades: null, hidden: new Set(), matches: null, position: -1, dirty: new Set(), asked: false };

const map = new MemoryMap(byId("map"), report, { view: () => redraw("base", "over"), hover, select, next, peak: showPeakStep });
const curve = new Curve(byId("curve"), map);

function redraw(...what) {
  what.forEach((layer) => state.dirty.add(layer));
  if (state.asked) return;
  state.asked = true;
  requestAnimationFrame(() => {
    state.asked = false;
    const { dirty } = state;
    state.dirty = new Set();
    if (dirty.has("base")) {
      map.drawBase(state.palette, state.shades);
      curve.draw(state.palette);
    }
    map.drawOver(state.palette);
    curve.drawOver(state.palette);
  });
}

// --- theme

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  state.palette = new Palette();
  state.shades = state.palette.shades(report.buffers);
  redraw("base");
}

const darkness = window.matchMedia("(prefers-color-scheme: dark)");
document.documentElement.dataset.theme = darkness.matches ? "dark" : "light";
state.palette = new Palette();
state.shades = state.palette.shades(report.buffers);
darkness.addEventListener("change", () => setTheme(darkness.matches ? "dark" : "light"));
byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));

function swatch(kind) {
  const box = make("i.swatch");
  box.style.background = `var(--${kind})`;
  return box;
}

// --- one buffer in words

function describe(owner, step) {
  const buffer = report.buffers[owner];
  const places = (buffer.places ?? []).map((place) => `${report.spaces[place.space].name} ${range([place.offset, place.offset + buffer.size])}`);
  const live = buffer.live.map(([start, end, first, after]) => range([start, end]) + (first === undefined ? "" : ` bytes ${range([first, after])}`));
  const few = (list) => (list.length > 4 ? `${list.slice(0, 4).join(", ")} and ${list.length - 4} more` : list.join(", "));
  return [
    ["size", exact(buffer.size) + (buffer.sizing ? `, ${buffer.sizing}` : "")],
    ["offset", few(places)],
    ["live", `steps ${few(live)}`],
    ["made by", buffer.producer],
    ["kind", buffer.kind + (buffer.pinned ? ", pinned" : "")],
    ["within", buffer.base === undefined ? null : report.buffers[buffer.base].name],
    ["here", step === null ? null : stepName(report, step)],
  ];
}

function hover(step, found, event) {
  const tooltip = byId("tooltip");
  const owner = found.length ? map.rectangles.owner[found[0]] : null;
  if (map.hovered === owner && map.crosshair === step && owner === null) return;
  const moved = map.hovered !== owner || map.crosshair !== step;
  map.hovered = owner;
  map.crosshair = step;
  if (moved) redraw("over");
  tooltip.hidden = owner === null;
  if (owner === null) return;
  if (moved) {
    const others = [...new Set(found.map((i) => map.rectangles.owner[i]))].slice(1, 4).map((other) => report.buffers[other].name);
    const rows = describe(owner, step);
    if (others.length) rows.push(["shares with", others.join(", ")]);
    tooltip.replaceChildren(make("b", report.buffers[owner].name), facts(rows));
  }
  const { width, height } = tooltip.getBoundingClientRect();
  const x = event.clientX + 16 + width > window.innerWidth ? event.clientX - width - 16 : event.clientX + 16;
  const y = Math.min(event.clientY + 16, window.innerHeight - height - 8);
  tooltip.style.left = `${Math.max(8, x)}px`;
  tooltip.style.top = `${Math.max(8, y)}px`;
}

function select(owner) {
  map.selected = owner;
  const line = byId("selected");
  line.replaceChildren();
  if (owner !== null) {
    const text = describe(owner, null).filter(([, value]) => value).map(([name, value]) => `${name} ${value}`).join(" · ");
    line.append(make("b", report.buffers[owner].name), ` · ${text}`);
  }
  redraw("over");
}

/** From a table: show the buffer on the map, in its own space. */
function pick(owner) {
  const [place] = report.buffers[owner].places ?? [];
  if (place && report.spaces[place.space] !== map.space) showSpace(place.space);
  select(owner);
  map.reveal(owner);
  byId("map").scrollIntoView({ block: "nearest" });
  byId("map").focus({ preventScroll: true });
}

/** The buffer after or before the selected one, by start; among the matches where there is a search. */
function next(direction) {
  const { rectangles } = map;
  const first = (owner) => rectangles.left[rectangles.of(owner)[0]];
  state.order ??= [...rectangles.byOwner.keys()].sort((a, b) => first(a) - first(b) || a - b);
  const order = state.matches ? state.order.filter((owner) => state.matches[owner]) : state.order;
  if (!order.length) return;
  const at = order.indexOf(map.selected);
  const owner = order[at < 0 ? (direction > 0 ? 0 : order.length - 1) : (at + direction + order.length) % order.length];
  select(owner);
  map.reveal(owner);
}

function showPeakStep() {
  const { live_peak_step: step, live_peak: live } = map.space;
  if (step === null) return;
  const span = Math.max(12, (map.whole.right - map.whole.left) / 40);
  map.move({ ...map.view, left: step - span / 2, right: step + span / 2 });
  hover(step, [], null);
  byId("selected").textContent = `Largest live load: ${exact(live)} at ${stepName(report, step)}.`;
}

// --- search and kinds

function fade() {
  report.buffers.forEach((buffer, id) => {
    map.faded[id] = state.hidden.has(buffer.kind) || (state.matches && !state.matches[id]) ? 1 : 0;
  });
  redraw("base");
}

function search(text) {
  const wanted = text.trim().toLowerCase();
  state.names ??= report.buffers.map((buffer) => `${buffer.name}\n${buffer.producer ?? ""}`.toLowerCase());
  state.matches = wanted ? Uint8Array.from(state.names, (name) => (name.includes(wanted) ? 1 : 0)) : null;
  const count = state.matches ? state.matches.reduce((sum, match) => sum + match, 0) : 0;
  byId("matches").textContent = wanted ? `${grouped(count)} of ${counted(report.buffers.length, "buffer")}` : "";
  fade();
}

byId("search").addEventListener("input", (event) => search(event.target.value));
byId("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter") {
    event.preventDefault();
    next(event.shiftKey ? -1 : 1);
  } else if (event.key === "Escape") {
    event.target.value = "";
    search("");
    byId("map").focus({ preventScroll: true });
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  byId("search").focus();
});

function showLegend() {
  const present = KINDS.filter((kind) => report.buffers.some((buffer) => buffer.kind === kind && (buffer.places ?? []).length));
  byId("legend").replaceChildren(...present.map((kind) => {
    const button = make("button", swatch(kind), kind);
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      if (!state.hidden.delete(kind)) state.hidden.add(kind);
      button.setAttribute("aria-pressed", String(!state.hidden.has(kind)));
      fade();
    });
    return button;
  }));
}

// --- spaces

function showSpace(index) {
  const space = report.spaces[index];
  state.spaces ??= new Map();
  if (!state.spaces.has(index)) state.spaces.set(index, new Rectangles(report, index));
  state.order = undefined;
  curve.show(space);
  map.show(space, state.spaces.get(index));
  select(null);
  showTiles(report, space);
  showPeak(report, space, pick, swatch);
  const lines = [["lower bound", "bound", "dotted", space.lower_bound], ["peak", "peak", "dashed", space.peak], ["capacity", "capacity", "", space.capacity]];
  byId("curve-key").replaceChildren(...lines.filter(([, , , bytes]) => bytes !== null).map(([name, colour, dash, bytes]) => {
    const line = make(dash ? `i.${dash}` : "i");
    line.style.borderColor = `var(--${colour})`;
    const off = bytes > curve.top ? ", above this picture" : "";
    return make("span", line, `${name} ${short(bytes)}${off}`);
  }));
  if (curve.floor > 0) byId("curve-key").append(make("span.estimated", `axis starts at ${short(curve.floor)}`));
  byId("changing").hidden = !map.changing || map.changing[1] - map.changing[0] > 0.9 * map.whole.high;
  byId("spaces").querySelectorAll("button").forEach((button) => button.setAttribute("aria-selected", String(button.value === String(index))));
}

function showTabs() {
  const used = report.spaces.map((space, index) => [space, index]).filter(([space]) => space.buffers > 0);
  byId("spaces").hidden = used.length < 2;
  byId("spaces").replaceChildren(...used.map(([space, index]) => {
    const button = make("button", space.name);
    button.type = "button";
    button.value = index;
    button.setAttribute("role", "tab");
    button.addEventListener("click", () => showSpace(index));
    return button;
  }));
  return used.length ? used[0][1] : 0;
}

function start() {
  byId("problem").textContent = report.problem || "(no name)";
  byId("device").textContent = report.device ?? "";
  byId("headline").textContent = report.headline;
  byId("headline").classList.add(report.fits ? "good" : "bad");
  showInfeasible(report, pick);
  showPooled(report, pick);
  showHierarchy(report);
  showRoofline(report);
  showBounds(report);
  showStrategies(report);
  showTotals(report);
  showOrigin(report);
  const largest = Math.max(0, ...report.spaces.flatMap((space) => [space.peak, space.capacity ?? 0, space.total]));
  if (largest > Number.MAX_SAFE_INTEGER) {
    (report.notes ??= []).push({ severity: "info", text: "Some sizes are above 2^53 bytes; this page rounds them, the JSON does not." });
  }
  showNotes(report);
  showLegend();
  const first = showTabs();
  if (!report.spaces.length) {
    document.querySelector(".map-card").hidden = true;
    return;
  }
  byId("to-peak").addEventListener("click", showPeakStep);
  byId("changing").addEventListener("click", () => map.showChanging());
  byId("zoom-in").addEventListener("click", () => map.zoom(0.7));
  byId("zoom-out").addEventListener("click", () => map.zoom(1 / 0.7));
  byId("reset").addEventListener("click", () => map.reset());
  showSpace(first);
  new ResizeObserver(() => {
    map.plot.resize();
    curve.plot.resize();
    redraw("base");
  }).observe(byId("map"));
}

start();
// For the console and the tests: the report, the map, and how long its last frames took to draw, in milliseconds.
window.npumemReport = { report, map, curve, state };
