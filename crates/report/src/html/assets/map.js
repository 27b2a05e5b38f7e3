// The memory map: steps to the right, addresses upwards, one rectangle a buffer; and what the mouse and the keys do to it.

const MARGIN = { left: 84, right: 12, top: 8, bottom: 24 };

/** Two canvases in one box: what changes with the view below, what changes with the mouse above. */
class Plot {
  constructor(box) {
    this.box = box;
    [this.base, this.over] = box.querySelectorAll("canvas");
    this.resize();
  }

  resize() {
    const { width, height } = this.box.getBoundingClientRect();
    this.scale = Math.min(2, window.devicePixelRatio || 1);
    this.width = width;
    this.height = height;
    for (const canvas of [this.base, this.over]) {
      canvas.width = Math.max(1, Math.round(width * this.scale));
      canvas.height = Math.max(1, Math.round(height * this.scale));
    }
  }

  /** The part of the box that the axes enclose, in CSS pixels. */
  get area() {
    return {
      left: MARGIN.left, top: MARGIN.top,
      width: Math.max(1, this.width - MARGIN.left - MARGIN.right),
      height: Math.max(1, this.height - MARGIN.top - MARGIN.bottom),
    };
  }

  context(canvas) {
    const context = canvas.getContext("2d");
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = "11.5px system-ui, sans-serif";
    context.textBaseline = "middle";
    return context;
  }
}

class MemoryMap {
  /** `events`: `view()` when the window moved, `hover(step, found, event)`, `select(owner)`. */
  constructor(box, report, events) {
    this.plot = new Plot(box);
    this.report = report;
    this.events = events;
    this.isView = Uint8Array.from(report.buffers, (buffer) => (buffer.base === undefined ? 0 : 1));
    this.faded = new Uint8Array(report.buffers.length);
    this.hovered = null;
    this.selected = null;
    this.crosshair = null;
    this.times = [];
    this.listen(box);
  }

  show(space, rectangles) {
    this.space = space;
    this.rectangles = rectangles;
    this.changing = rectangles.changing(this.report.steps);
    this.reset();
    // Where weights fill most of the space, what happens is in a thin strip: start there.
    if (this.changing && this.changing[1] - this.changing[0] < 0.5 * this.whole.high) this.showChanging();
  }

  showChanging() {
    if (!this.changing) return;
    const [low, high] = this.changing;
    const edge = (high - low) * 0.06;
    this.move({ ...this.whole, low: low - edge, high: high + edge });
  }

  /** The window that holds everything; the capacity too when it is near. */
  get whole() {
    const { steps } = this.report;
    const near = this.space.capacity !== null && this.space.capacity <= this.space.peak * 1.6;
    const top = Math.max(this.space.peak, this.space.lower_bound, near ? this.space.capacity : 0, 1);
    return { left: steps.start, right: Math.max(steps.end, steps.start + 1), low: 0, high: top * 1.04 };
  }

  reset() {
    this.view = this.whole;
    this.events.view();
  }

  get zoomed() {
    const { view, whole } = this;
    return view.left > whole.left || view.right < whole.right || view.low > whole.low || view.high < whole.high;
  }

  // --- from data to pixels and back

  x(step) {
    const { left, width } = this.plot.area;
    return left + ((step - this.view.left) / (this.view.right - this.view.left)) * width;
  }

  y(address) {
    const { top, height } = this.plot.area;
    return top + height - ((address - this.view.low) / (this.view.high - this.view.low)) * height;
  }

  step(x) {
    const { left, width } = this.plot.area;
    return this.view.left + ((x - left) / width) * (this.view.right - this.view.left);
  }

  address(y) {
    const { top, height } = this.plot.area;
    return this.view.low + ((top + height - y) / height) * (this.view.high - this.view.low);
  }

  // --- moving the window

  move(view) {
    const whole = this.whole;
    const fit = (start, end, least, most, narrowest) => {
      const span = Math.min(most - least, Math.max(narrowest, end - start));
      const from = Math.min(Math.max(least, (start + end - span) / 2), most - span);
      return [from, from + span];
    };
    const [left, right] = fit(view.left, view.right, whole.left, whole.right, Math.min(2, whole.right - whole.left));
    const [low, high] = fit(view.low, view.high, whole.low, whole.high, Math.min(16, whole.high));
    this.view = { left, right, low, high };
    this.events.view();
  }

  zoom(factor, x, y, steps = true, addresses = true) {
    const { view } = this;
    const around = (centre, start, end, on) => (on ? [centre - (centre - start) * factor, centre + (end - centre) * factor] : [start, end]);
    const area = this.plot.area;
    const [left, right] = around(this.step(x ?? area.left + area.width / 2), view.left, view.right, steps);
    const [low, high] = around(this.address(y ?? area.top + area.height / 2), view.low, view.high, addresses);
    this.move({ left, right, low, high });
  }

  pan(steps, addresses) {
    const { left, right, low, high } = this.view;
    const across = (right - left) * steps, up = (high - low) * addresses;
    this.move({ left: left + across, right: right + across, low: low + up, high: high + up });
  }

  /** A window around a buffer, `part` of it filled. */
  focus(owner, part = 0.4) {
    const own = this.rectangles.of(owner);
    if (!own.length) return;
    const left = Math.min(...own.map((i) => this.rectangles.left[i])), right = Math.max(...own.map((i) => this.rectangles.right[i]));
    const low = Math.min(...own.map((i) => this.rectangles.low[i])), high = Math.max(...own.map((i) => this.rectangles.high[i]));
    const across = ((right - left) / part - (right - left)) / 2, up = ((high - low) / part - (high - low)) / 2;
    this.move({ left: left - across, right: right + across, low: low - up, high: high + up });
  }

  /** Brings a buffer into the window if no part of it is there. */
  reveal(owner) {
    const own = this.rectangles.of(owner);
    const { view, rectangles } = this;
    const visible = own.some((i) => rectangles.right[i] > view.left && rectangles.left[i] < view.right && rectangles.high[i] > view.low && rectangles.low[i] < view.high);
    if (!visible) this.focus(owner, 0.2);
  }

  // --- drawing

  drawBase(palette, shades) {
    const started = performance.now();
    const { plot, view } = this;
    const { left, top, width, height } = plot.area;
    const context = plot.context(plot.base);
    const columns = Math.max(1, Math.round(width * plot.scale)), rows = Math.max(1, Math.round(height * plot.scale));
    if (!this.image || this.image.width !== columns || this.image.height !== rows) this.image = new ImageData(columns, rows);
    const colour = (owner) => (this.faded[owner] ? shades.dimmed[owner] : shades.plain[owner]);
    const labels = paint(this.image, this.rectangles, view, colour, pixel(palette.background), this.isView);
    context.putImageData(this.image, Math.round(left * plot.scale), Math.round(top * plot.scale));
    this.drawReserved(context, palette);
    this.drawAxes(context, palette);
    this.drawLabels(context, labels, palette);
    this.drawLevels(context, palette);
    this.times.push(performance.now() - started);
    if (this.times.length > 240) this.times.shift();
  }

  /** Above the capacity, and ranges that no buffer may touch. */
  drawReserved(context, palette) {
    const { left, width, top, height } = this.plot.area;
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    if (this.space.capacity !== null && this.y(this.space.capacity) > top) {
      context.fillStyle = palette.capacity;
      context.globalAlpha = 0.13;
      context.fillRect(left, top, width, this.y(this.space.capacity) - top);
      context.globalAlpha = 1;
    }
    context.strokeStyle = palette.hatch;
    for (const { start, end } of this.space.reserved.slice(0, 64)) {
      const high = Math.max(top, this.y(end)), low = Math.min(top + height, this.y(start));
      if (low - high < 0.5) continue;
      context.beginPath();
      context.rect(left, high, width, low - high);
      context.save();
      context.clip();
      for (let x = left - height; x < left + width; x += 8) {
        context.moveTo(x, top + height);
        context.lineTo(x + height, top);
      }
      context.stroke();
      context.restore();
    }
    context.restore();
  }

  drawAxes(context, palette) {
    const { left, top, width, height } = this.plot.area;
    context.strokeStyle = palette.grid;
    context.fillStyle = palette.dim;
    context.lineWidth = 1;
    context.beginPath();
    const address = niceStep(this.view.high - this.view.low, height / 44, true);
    context.textAlign = "right";
    for (let at = Math.ceil(this.view.low / address) * address; at < this.view.high; at += address) {
      const y = Math.round(this.y(at)) + 0.5;
      context.moveTo(left, y);
      context.lineTo(left + width, y);
      context.fillText(address < 1024 ? grouped(at) : tick(at), left - 8, y);
    }
    drawSteps(context, this);
    context.stroke();
  }

  drawLabels(context, labels, palette) {
    context.font = "11px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
    context.textAlign = "left";
    const letter = context.measureText("0").width || 6.6;
    const { plot } = this;
    labels.sort((a, b) => (b[3] - b[1]) * (b[4] - b[2]) - (a[3] - a[1]) * (a[4] - a[2]));
    context.save();
    context.beginPath();
    context.rect(plot.area.left, plot.area.top, plot.area.width, plot.area.height);
    context.clip();
    // A view lies inside its base: the label that comes first, on the larger one, stays alone.
    const taken = [];
    for (const [i, x0, y0, x1, y1] of labels.slice(0, 300)) {
      const owner = this.rectangles.owner[i];
      const width = (x1 - x0) / plot.scale - 10, height = (y1 - y0) / plot.scale;
      const text = shorten(this.report.buffers[owner].name, Math.floor(width / letter));
      if (height < 13 || !text) continue;
      context.globalAlpha = this.faded[owner] ? 0.25 : 0.92;
      context.fillStyle = palette.dark ? "#f2f5fa" : "#101828";
      const x = plot.area.left + x0 / plot.scale + 5;
      const y = plot.area.top + (y0 + y1) / 2 / plot.scale;
      const size = short(this.report.buffers[owner].size);
      const box = [x, y - 12, x + letter * columnsOf(text), y + 12];
      if (taken.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3])) continue;
      taken.push(box);
      if (height > 30 && columnsOf(size) * letter <= width) {
        context.fillText(text, x, y - 7);
        context.globalAlpha *= 0.65;
        context.fillText(size, x, y + 7);
      } else context.fillText(text, x, y);
    }
    context.restore();
  }

  /** The peak, the lower bound and the capacity. */
  drawLevels(context, palette) {
    const { left, top, width, height } = this.plot.area;
    const { peak, lower_bound: bound, capacity } = this.space;
    // Where two lines would lie on each other the more telling one is kept.
    const levels = [[capacity, palette.capacity, [], "capacity"], [peak, palette.peak, [6, 4], "peak"], [bound, palette.bound, [2, 3], "lower bound"]];
    const drawn = [];
    context.font = "11.5px system-ui, sans-serif";
    for (const [bytes, colour, dash, name] of levels) {
      if (bytes === null) continue;
      const y = this.y(bytes);
      if (y < top || y > top + height) continue;
      const twin = drawn.find((other) => Math.abs(other.y - y) < 1);
      if (twin) twin.names.push(name);
      else drawn.push({ y, colour, dash, names: [name] });
    }
    context.textAlign = "right";
    let free = -Infinity;
    for (const { y, colour, dash, names } of drawn.sort((a, b) => a.y - b.y)) {
      context.strokeStyle = context.fillStyle = colour;
      context.lineWidth = 1.5;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(left, y);
      context.lineTo(left + width, y);
      context.stroke();
      context.setLineDash([]);
      const text = names.join(" = ");
      let at = y - top < 14 ? y + 9 : y - 8;
      if (at < free + 14) at = Math.max(y + 9, free + 14);
      free = at;
      const wide = context.measureText(text).width;
      context.fillStyle = palette.plot;
      context.globalAlpha = 0.85;
      context.fillRect(left + width - wide - 10, at - 8, wide + 8, 16);
      context.globalAlpha = 1;
      context.fillStyle = colour;
      context.fillText(text, left + width - 6, at);
    }
  }

  drawOver(palette) {
    const { plot } = this;
    const { left, top, width, height } = plot.area;
    const context = plot.context(plot.over);
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    if (this.crosshair !== null) drawCrosshair(context, this, palette);
    const outline = (owner, colour, wide) => {
      context.strokeStyle = colour;
      context.lineWidth = wide;
      for (const i of this.rectangles.of(owner).slice(0, 2000)) {
        const x = this.x(this.rectangles.left[i]), y = this.y(this.rectangles.high[i]);
        const across = Math.max(2, this.x(this.rectangles.right[i]) - x), down = Math.max(2, this.y(this.rectangles.low[i]) - y);
        context.strokeRect(x, y, across, down);
      }
    };
    if (this.hovered !== null) {
      const base = this.report.buffers[this.hovered].base;
      if (base !== undefined) outline(base, palette.dim, 1);
      outline(this.hovered, palette.ink, 2);
    }
    if (this.selected !== null) outline(this.selected, palette.accent, 3);
  }

  // --- the mouse and the keys

  listen(box) {
    let grip = null;
    const local = (event) => {
      const edge = box.getBoundingClientRect();
      return [event.clientX - edge.left, event.clientY - edge.top];
    };
    box.addEventListener("wheel", (event) => {
      // Fully zoomed out and asked for more: that scroll is the page's.
      if (event.deltaY > 0 && !this.zoomed) return;
      event.preventDefault();
      const delta = (event.deltaY || event.deltaX) * (event.deltaMode === 1 ? 16 : 1);
      const [x, y] = local(event);
      const inAxis = x < MARGIN.left, inSteps = y > this.plot.height - MARGIN.bottom;
      this.zoom(Math.exp(Math.max(-240, Math.min(240, delta)) * 0.0022), x, y, !event.altKey && !inAxis, !event.shiftKey && !inSteps);
    }, { passive: false });
    box.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const [x, y] = local(event);
      grip = { x, y, view: this.view, moved: false };
      box.setPointerCapture(event.pointerId);
    });
    box.addEventListener("pointermove", (event) => {
      const [x, y] = local(event);
      if (grip && (grip.moved || Math.hypot(x - grip.x, y - grip.y) > 4)) {
        grip.moved = true;
        box.classList.add("dragging");
        const { view } = grip, area = this.plot.area;
        const across = ((grip.x - x) / area.width) * (view.right - view.left), up = ((y - grip.y) / area.height) * (view.high - view.low);
        this.move({ left: view.left + across, right: view.right + across, low: view.low + up, high: view.high + up });
        this.events.hover(null, [], event);
        return;
      }
      this.hoverAt(x, y, event);
    });
    const release = (event) => {
      const [x, y] = local(event);
      if (grip && !grip.moved && event.type === "pointerup") {
        const [found] = this.near(x, y);
        this.events.select(found === undefined ? null : this.rectangles.owner[found]);
      }
      grip = null;
      box.classList.remove("dragging");
    };
    box.addEventListener("pointerup", release);
    box.addEventListener("pointercancel", release);
    box.addEventListener("pointerleave", (event) => this.events.hover(null, [], event));
    box.addEventListener("dblclick", () => this.reset());
    box.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey) return;
      const actions = {
        ArrowLeft: () => this.pan(-0.1, 0), ArrowRight: () => this.pan(0.1, 0), ArrowUp: () => this.pan(0, 0.1), ArrowDown: () => this.pan(0, -0.1),
        "+": () => this.zoom(0.8), "=": () => this.zoom(0.8), "-": () => this.zoom(1.25), 0: () => this.reset(), Home: () => this.reset(),
        n: () => this.events.next(1), p: () => this.events.next(-1), g: () => this.events.peak(), c: () => this.showChanging(),
        Enter: () => this.selected !== null && this.focus(this.selected), Escape: () => this.events.select(null),
      };
      const action = actions[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    });
  }

  /** The rectangles under the mouse; a thin one is found from a pixel beside it. */
  near(x, y) {
    const { left, top, width, height } = this.plot.area;
    if (x < left || x > left + width || y < top || y > top + height) return [];
    const exactly = this.rectangles.at(this.step(x), this.address(y));
    if (exactly.length) return exactly;
    const found = [];
    this.rectangles.search(this.step(x - 2), this.address(y + 2), this.step(x + 2), this.address(y - 2), (i) => found.push(i));
    return found.slice(0, 1);
  }

  hoverAt(x, y, event) {
    const { left, width } = this.plot.area;
    const inside = x >= left && x <= left + width;
    this.events.hover(inside ? Math.floor(this.step(x)) : null, this.near(x, y), event);
  }
}

/** Lines and numbers of the step axis; the map and the curve share them. */
function drawSteps(context, map) {
  const { left, width, top } = map.plot.area;
  const height = map.plot.height - MARGIN.top - MARGIN.bottom;
  const every = Math.max(1, niceStep(map.view.right - map.view.left, width / 80, false));
  context.textAlign = "center";
  for (let at = Math.ceil(map.view.left / every) * every; at <= map.view.right; at += every) {
    const x = Math.round(map.x(at)) + 0.5;
    if (x > left + width + 1) break;
    context.moveTo(x, top);
    context.lineTo(x, top + height + 4);
    const label = grouped(at);
    const half = context.measureText(label).width / 2;
    context.fillText(label, Math.min(x, map.plot.width - half - 2), top + height + 14);
  }
}

/** The step under the mouse, as a band. */
function drawCrosshair(context, map, palette) {
  const x = map.x(map.crosshair), across = Math.max(1, map.x(map.crosshair + 1) - x);
  context.fillStyle = palette.ink;
  context.globalAlpha = across > 3 ? 0.07 : 0.3;
  context.fillRect(x, 0, across, 4000);
  context.globalAlpha = 1;
}
