// Live bytes over the steps of the map above it, with the lower bound, the peak and the capacity.

class Curve {
  constructor(box, map) {
    this.plot = new Plot(box);
    this.map = map;
    box.addEventListener("pointermove", (event) => {
      const x = event.clientX - box.getBoundingClientRect().left;
      map.hoverAt(x, -1, event);
    });
    box.addEventListener("pointerleave", (event) => map.events.hover(null, [], event));
    box.addEventListener("dblclick", () => map.reset());
    box.addEventListener("wheel", (event) => {
      if (event.deltaY > 0 && !map.zoomed) return;
      event.preventDefault();
      const x = event.clientX - box.getBoundingClientRect().left;
      map.zoom(Math.exp(Math.max(-240, Math.min(240, event.deltaY)) * 0.0022), x, undefined, true, false);
    }, { passive: false });
  }

  show(space) {
    this.space = space;
    const near = space.capacity !== null && space.capacity <= space.peak * 1.6;
    this.top = Math.max(space.live_peak, space.lower_bound, space.peak, near ? space.capacity : 0, 1);
    // What lives for the whole run would flatten everything else: the axis starts above it, and says so.
    const inside = space.curve.slice(0, -1).map(([, bytes]) => bytes);
    const least = inside.reduce((low, bytes) => Math.min(low, bytes), Infinity);
    this.floor = Number.isFinite(least) && least > this.top * 0.5 ? Math.max(0, least - (this.top - least) * 0.15) : 0;
    this.top += (this.top - this.floor) * 0.06;
  }

  y(bytes) {
    const { top, height } = this.plot.area;
    return top + height - ((bytes - this.floor) / (this.top - this.floor)) * height;
  }

  /** The last entry at or before a step, or -1. */
  entry(step) {
    const { curve } = this.space;
    let low = 0, high = curve.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (curve[middle][0] <= step) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  live(step) {
    const at = this.entry(step);
    return at < 0 ? 0 : this.space.curve[at][1];
  }

  draw(palette) {
    const { plot, map, space } = this;
    const { left, top, width, height } = plot.area;
    const context = plot.context(plot.base);
    context.fillStyle = palette.plot;
    context.fillRect(left, top, width, height);
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    this.drawArea(context, palette);
    const line = (bytes, colour, dash) => {
      if (bytes === null || bytes > this.top) return;
      context.strokeStyle = colour;
      context.lineWidth = 1.5;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(left, this.y(bytes));
      context.lineTo(left + width, this.y(bytes));
      context.stroke();
    };
    line(space.capacity, palette.capacity, []);
    line(space.peak, palette.peak, [6, 4]);
    line(space.lower_bound, palette.bound, [2, 3]);
    context.restore();
    context.strokeStyle = palette.grid;
    context.fillStyle = palette.dim;
    context.lineWidth = 1;
    context.beginPath();
    const every = niceStep(this.top - this.floor, height / 32, true);
    context.textAlign = "right";
    for (let at = Math.ceil(this.floor / every) * every; at < this.top; at += every) {
      const y = Math.round(this.y(at)) + 0.5;
      context.moveTo(left, y);
      context.lineTo(left + width, y);
      context.fillText(tick(at), left - 8, y);
    }
    drawSteps(context, { plot, view: map.view, x: (step) => map.x(step) });
    context.stroke();
  }

  /** One column of pixels shows the most of its steps. */
  drawArea(context, palette) {
    const { map, space, plot } = this;
    const { left, top, width, height } = plot.area;
    const { curve } = space;
    const floor = top + height;
    const from = Math.max(0, this.entry(map.view.left));
    context.fillStyle = palette.live;
    context.beginPath();
    context.moveTo(left, floor);
    let column = -Infinity, most = 0;
    const flush = () => {
      if (column === -Infinity) return;
      context.lineTo(column, this.y(most));
    };
    for (let i = from; i < curve.length && curve[i][0] <= map.view.right; i++) {
      const x = Math.max(left, map.x(curve[i][0]));
      const before = i > 0 ? curve[i - 1][1] : 0;
      if (x - column >= 1) {
        flush();
        context.lineTo(x, this.y(column === -Infinity ? before : curve[i - 1][1]));
        column = x;
        most = curve[i][1];
      } else most = Math.max(most, curve[i][1]);
    }
    flush();
    const last = this.live(map.view.right);
    context.lineTo(left + width, this.y(last));
    context.lineTo(left + width, floor);
    context.closePath();
    context.fill();
  }

  drawOver(palette) {
    const { plot, map } = this;
    const { left, top, width, height } = plot.area;
    const context = plot.context(plot.over);
    if (map.crosshair === null) return;
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    drawCrosshair(context, map, palette);
    const live = this.live(map.crosshair);
    const x = (map.x(map.crosshair) + map.x(map.crosshair + 1)) / 2;
    context.fillStyle = palette.accent;
    context.beginPath();
    context.arc(x, this.y(live), 3.5, 0, 7);
    context.fill();
    const text = `${short(live)} at step ${grouped(map.crosshair)}`;
    const wide = context.measureText(text).width + 10;
    const at = Math.min(left + width - wide - 4, x + 8);
    const y = Math.min(Math.max(top + 12, this.y(live) - 14), top + height - 12);
    context.fillStyle = palette.card;
    context.globalAlpha = 0.9;
    context.fillRect(at, y - 9, wide, 18);
    context.globalAlpha = 1;
    context.fillStyle = palette.ink;
    context.textAlign = "left";
    context.fillText(text, at + 5, y);
    context.restore();
  }
}
