// The rectangles of one memory space, and an index over them: which ones does this window touch?
//
//   A packed R-tree: rectangles sorted into tiles of equal count (by step, then by address), NODE of them
//   to a node, nodes of nodes above, all in flat arrays. Built once, asked at every frame and every hover.

const NODE = 16;

class Rectangles {
  /** @param {object} report @param {number} space */
  constructor(report, space) {
    const owner = [], left = [], right = [], low = [], high = [];
    report.buffers.forEach((buffer, id) => {
      for (const place of buffer.places ?? []) {
        if (place.space !== space) continue;
        for (const [start, end, first = 0, after = buffer.size] of buffer.live) {
          const from = Math.max(start, place.steps.start), to = Math.min(end, place.steps.end);
          if (from >= to || first >= after) continue;
          owner.push(id);
          left.push(from);
          right.push(to);
          low.push(place.offset + first);
          high.push(place.offset + after);
        }
      }
    });
    this.count = owner.length;
    const order = tiled(left, right, low, high);
    const pick = (values, Type) => Type.from(order, (index) => values[index]);
    this.owner = pick(owner, Uint32Array);
    this.left = pick(left, Float64Array);
    this.right = pick(right, Float64Array);
    this.low = pick(low, Float64Array);
    this.high = pick(high, Float64Array);
    this.build();
    this.byOwner = new Map();
    for (let i = 0; i < this.count; i++) {
      const list = this.byOwner.get(this.owner[i]);
      if (list) list.push(i);
      else this.byOwner.set(this.owner[i], [i]);
    }
  }

  /** The levels of boxes over the rectangles, lowest first. */
  build() {
    this.levels = [];
    let below = { left: this.left, right: this.right, low: this.low, high: this.high, count: this.count };
    while (below.count > NODE) {
      const count = Math.ceil(below.count / NODE);
      const level = { count };
      for (const [name, choose, start] of [["left", Math.min, Infinity], ["low", Math.min, Infinity], ["right", Math.max, -Infinity], ["high", Math.max, -Infinity]]) {
        const values = new Float64Array(count).fill(start);
        for (let i = 0; i < below.count; i++) {
          const node = Math.floor(i / NODE);
          values[node] = choose(values[node], below[name][i]);
        }
        level[name] = values;
      }
      this.levels.push(level);
      below = level;
    }
  }

  /** Calls `visit(i)` for each rectangle that shares a point with the window. */
  search(left, low, right, high, visit) {
    const stack = [];
    const top = this.levels.length;
    const root = top ? this.levels[top - 1].count : this.count;
    for (let i = 0; i < root; i++) stack.push(top, i);
    while (stack.length) {
      const node = stack.pop(), level = stack.pop();
      const boxes = level ? this.levels[level - 1] : this;
      if (boxes.left[node] >= right || boxes.right[node] <= left || boxes.low[node] >= high || boxes.high[node] <= low) continue;
      if (level === 0) {
        visit(node);
        continue;
      }
      const count = level === 1 ? this.count : this.levels[level - 2].count;
      const end = Math.min(count, (node + 1) * NODE);
      for (let i = node * NODE; i < end; i++) stack.push(level - 1, i);
    }
  }

  /** The rectangles at one point, smallest first. */
  at(step, address) {
    const found = [];
    this.search(step, address, step + 1e-9, address + 1e-9, (i) => found.push(i));
    const area = (i) => (this.right[i] - this.left[i]) * (this.high[i] - this.low[i]);
    return found.sort((a, b) => area(a) - area(b) || this.owner[a] - this.owner[b]);
  }

  /** The addresses that hold something for a part of the run only: `[low, high]`, or null. */
  changing(steps) {
    let low = Infinity, high = -Infinity;
    for (let i = 0; i < this.count; i++) {
      if (this.left[i] <= steps.start && this.right[i] >= steps.end) continue;
      low = Math.min(low, this.low[i]);
      high = Math.max(high, this.high[i]);
    }
    return low < high ? [low, high] : null;
  }

  of(owner) {
    return this.byOwner.get(owner) ?? [];
  }
}

/** An order in which neighbours in the list are neighbours on the plane. */
function tiled(left, right, low, high) {
  const count = left.length;
  const order = Uint32Array.from({ length: count }, (_, index) => index);
  const middle = Float64Array.from(left, (start, i) => start + right[i]);
  const height = Float64Array.from(low, (start, i) => start + high[i]);
  order.sort((a, b) => middle[a] - middle[b] || a - b);
  const slices = Math.max(1, Math.ceil(Math.sqrt(count / NODE)));
  const size = Math.ceil(count / slices / NODE) * NODE || 1;
  for (let start = 0; start < count; start += size) {
    order.subarray(start, start + size).sort((a, b) => height[a] - height[b] || a - b);
  }
  return order;
}
