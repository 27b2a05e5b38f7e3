// Everything around the map: the key figures, the tables, the hierarchy, how the plan was made.

const STOPS = {
  optimal: "optimal: no plan is better", satisfied: "it fits, and no more was asked for",
  exhausted: "every method that the effort allows has ended", budget: "the budget of work was spent", interrupted: "interrupted: the best so far",
};

function section(id, title, ...children) {
  const element = byId(id);
  element.replaceChildren(make("h2", title), ...children.filter(Boolean));
  element.hidden = false;
  return element;
}

function stepName(report, step) {
  const names = report.step_names ?? [];
  let low = 0, high = names.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (names[middle].step < step) low = middle + 1;
    else high = middle;
  }
  const named = names[low]?.step === step ? ` (${names[low].name})` : "";
  return `step ${grouped(step)}${named}`;
}

function tile(name, bytes, why, classes = "", extra = null) {
  const big = make(`div.big${classes}`, typeof bytes === "number" ? short(bytes) : bytes);
  const exactly = typeof bytes === "number" && binary(bytes) ? make("div.exact", `${grouped(bytes)} B`) : null;
  return make("dl.tile", make("dt", name), make("dd", big, exactly, extra, why ? make("div.why", why) : null));
}

function showTiles(report, space) {
  const owner = space.peak_buffer === null ? null : report.buffers[space.peak_buffer];
  const gap = space.gap === null ? "the lower bound is zero"
    : space.peak <= space.lower_bound ? "no plan needs less" : `${grouped(space.peak - space.lower_bound)} B above the lower bound`;
  const tiles = [
    tile("Peak", space.peak, owner ? `the end of ${owner.name}` : ""),
    tile("Lower bound", space.lower_bound, space.bound_reason),
    tile("Gap", space.gap === null ? "–" : `${fixed(space.gap * 100, 2)} %`, gap, space.peak <= space.lower_bound ? ".good" : ""),
  ];
  if (space.capacity !== null) {
    const fill = make(space.fits ? "i" : "i.bad");
    fill.style.width = `${Math.min(100, (space.peak / space.capacity) * 100)}%`;
    const why = space.fits ? `${share(space.peak, space.capacity)} used, ${short(space.headroom)} free` : `short of ${exact(space.over)}`;
    tiles.push(tile("Capacity", space.capacity, why, space.fits ? "" : ".bad", make("div.meter", fill)));
  }
  const saved = space.peak < space.total ? `; reuse saves ${share(space.total - space.peak, space.total)}` : "";
  tiles.push(tile("All sizes", space.total, counted(space.buffers, "buffer") + saved));
  if (space.reserved_bytes > 0) tiles.push(tile("Reserved", space.reserved_bytes, counted(space.reserved.length, "range")));
  if (report.moves.length) {
    const bytes = report.moves.reduce((sum, move) => sum + report.buffers[move.buffer].size, 0);
    tiles.push(tile("Moves", bytes, counted(report.moves.length, "copy").replace("copys", "copies")));
  }
  byId("tiles").replaceChildren(...tiles);
}

/** A table whose headers sort. `columns`: name, value for sorting, cell, and whether it is a number. */
function sortable(columns, rows, limit, start, pick) {
  const body = make("tbody"), head = make("tr"), more = make("button.link");
  more.type = "button";
  let sorted = start, down = true, all = false;
  const fill = () => {
    const value = columns[sorted].value;
    const compare = (a, b) => (typeof value(a) === "number" ? value(a) - value(b) : String(value(a)).localeCompare(String(value(b))));
    const order = rows.slice().sort((a, b) => (down ? compare(b, a) : compare(a, b)));
    const shown = all ? order : order.slice(0, limit);
    body.replaceChildren(...shown.map((row) => make("tr", ...columns.map((column) => make(column.number ? "td.number" : column.kind ?? "td", column.cell(row, pick))))));
    more.hidden = all || rows.length <= limit;
    const rest = order.slice(limit).reduce((sum, row) => sum + (row.bytes ?? row.size ?? 0), 0);
    more.textContent = `Show ${grouped(rows.length - limit)} more: ${exact(rest)}`;
    [...head.children].forEach((cell, index) => {
      if (index === sorted) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
  };
  columns.forEach((column, index) => {
    const button = make("button", column.name);
    button.type = "button";
    button.addEventListener("click", () => {
      down = sorted === index ? !down : Boolean(column.number);
      sorted = index;
      fill();
    });
    const cell = make(column.number ? "th.number" : "th", button);
    cell.scope = "col";
    head.append(cell);
  });
  more.addEventListener("click", () => {
    all = true;
    fill();
  });
  fill();
  return make("div.scroll", make("table", make("thead", head), body), more);
}

function nameCell(name, owner, pick) {
  const button = make("button.link.mono", name);
  button.type = "button";
  button.title = "Show on the map";
  button.addEventListener("click", () => pick(owner));
  return button;
}

function barOf(part, whole) {
  const fill = make("i");
  fill.style.width = `${whole ? (part / whole) * 100 : 0}%`;
  return make("span.bar", fill);
}

function showPeak(report, space, pick, swatch) {
  const { at_peak: peak } = space;
  byId("peak").hidden = peak.rows.length === 0;
  if (!peak.rows.length) return;
  // Hundreds of weights would hide what makes this step the peak: they wait behind a box.
  const fixed = (row) => row.kind === "weight" || row.kind === "constant";
  const folded = peak.rows.some((row) => !fixed(row)) ? peak.rows.filter(fixed).length : 0;
  const box = make("input");
  box.type = "checkbox";
  const rows = () => (folded && !box.checked ? peak.rows.filter((row) => !fixed(row)) : peak.rows);
  const table = () => sortable(columns, rows(), 100, 1);
  box.addEventListener("change", () => byId("peak").querySelector(".scroll").replaceWith(table()));
  const largest = peak.rows[0].bytes;
  const views = peak.rows.some((row) => row.base !== undefined), producers = peak.rows.some((row) => row.producer);
  const columns = [
    { name: "Buffer", value: (row) => row.name, kind: "td.name", cell: (row) => nameCell(row.name, row.buffer, pick) },
    { name: "Bytes", value: (row) => row.bytes, number: true, cell: (row) => exact(row.bytes) },
    { name: "Share", value: (row) => row.bytes, number: true, cell: (row) => share(row.bytes, space.live_peak) },
    { name: "", value: (row) => row.bytes, cell: (row) => barOf(row.bytes, largest) },
    { name: "Kind", value: (row) => row.kind, cell: (row) => make("span", swatch(row.kind), row.kind) },
    producers && { name: "Made by", value: (row) => row.producer ?? "", kind: "td.name", cell: (row) => row.producer ?? "" },
    { name: "Offset", value: (row) => row.offset, number: true, cell: (row) => grouped(row.offset) },
    views && { name: "Within", value: (row) => (row.base === undefined ? "" : report.buffers[row.base].name), kind: "td.name", cell: (row) => (row.base === undefined ? "" : nameCell(report.buffers[row.base].name, row.base, pick)) },
  ].filter(Boolean);
  const shared = peak.shared > 0 ? `; ${exact(peak.shared)} more in views and in-place results, which share those bytes` : "";
  const kinds = peak.by_kind.map((kind) => `${counted(kind.count, kind.kind)} ${short(kind.bytes)}`).join(", ");
  section("peak", `Live at the peak of ${space.name}: ${stepName(report, space.live_peak_step)}`,
    make("p.dim", `${counted(peak.rows.length, "buffer")}, ${exact(space.live_peak)} live${shared}. By kind: ${kinds}.`),
    folded ? make("label.fold", box, ` Show weights and constants (${counted(folded, "buffer")})`) : null,
    table());
}

function showPooled(report, pick) {
  const { pooled } = report;
  if (!pooled.buffers.length && !report.unplaced.length) return;
  const rows = [...pooled.buffers, ...report.unplaced].map((id) => ({ id, size: report.buffers[id].size, ...report.buffers[id] }));
  const known = (bytes) => (bytes === null ? "unbounded" : exact(bytes));
  const columns = [
    { name: "Buffer", value: (row) => row.name, kind: "td.name", cell: (row) => make("span", row.name) },
    { name: "Size, at most", value: (row) => row.size, number: true, cell: (row) => (row.sizing === "unbounded" ? "unbounded" : exact(row.size)) },
    { name: "Made by", value: (row) => row.producer ?? "", kind: "td.name", cell: (row) => row.producer ?? "" },
    { name: "", value: (row) => (row.pooled ? 1 : 0), cell: (row) => (row.pooled ? "" : make("span.estimated", "no place found")) },
  ];
  section("pooled", "Left to the run-time pool",
    make("p.dim", `${counted(pooled.buffers.length, "buffer")}; all sizes ${known(pooled.total)}, live at once ${known(pooled.live_peak)}, at most.`),
    sortable(columns, rows, 50, 1, pick));
}

function showBounds(report) {
  const bounds = report.bounds ?? [];
  if (!bounds.length) return;
  const list = make("div.bars");
  for (const bound of bounds) {
    list.append(make("span", bound.actions), barOf(bound.bytes, bounds[0].bytes), make("span.number", `${exact(bound.bytes)}`));
    const place = bound.step === undefined ? bound.operator : bound.operator ? `step ${grouped(bound.step)} (${bound.operator})` : stepName(report, bound.step);
    list.append(make("span.note", `${share(bound.bytes, bounds[0].bytes)}${place ? `, set at ${place}` : ""}`));
  }
  section("bounds", "Lower bound by what a plan may do", list);
}

function showStrategies(report) {
  const rows = report.strategies ?? [];
  if (!rows.length) return;
  const header = ["Strategy", "Planned", "Pool, at most", "Allocator calls"].map((name, index) => make(index ? "th.number" : "th", name));
  const body = rows.map((row) => make("tr",
    make("td", make(row.chosen ? "b" : "span", row.strategy), row.chosen ? make("div.dim", "this plan") : null, row.note ? make("div.dim", row.note) : null),
    make("td.number", exact(row.planned)), make("td.number", row.pool === null ? "unbounded" : exact(row.pool)), make("td.number", grouped(row.allocator_calls))));
  section("strategies", "Strategies", make("div.scroll", make("table", make("thead", make("tr", ...header)), make("tbody", ...body))));
}

function showRoofline(report) {
  const { roofline } = report;
  if (!roofline) return;
  const longest = Math.max(0, ...roofline.rows.map((row) => row.seconds ?? 0));
  const list = make("div.bars");
  for (const row of roofline.rows) {
    const bounds = row.engine === roofline.bound_by;
    list.append(make(bounds ? "span.first" : "span", row.engine), row.seconds === null ? make("span.dim", "not known") : barOf(row.seconds, longest), make("span.number", row.seconds === null ? "?" : seconds(row.seconds)));
    const work = row.unit === "B" ? exact(row.work) : `${grouped(row.work)} ${row.unit}`;
    const note = make("span.note", `${work} at `);
    if (row.rate === null) note.append(make("span.estimated", "a rate that the device file does not say"));
    else note.append(rate(row.rate), row.rate.source === null ? make("span.estimated", " (estimated)") : ` (${row.rate.source})`);
    list.append(note);
  }
  const verdict = roofline.bound_by && roofline.seconds !== null ? make("p", make("b", roofline.bound_by), ` bounds the whole: at least ${seconds(roofline.seconds)}.`) : null;
  const missing = roofline.missing?.length ? make("p.estimated", `Missing: ${roofline.missing.join(", ")}`) : null;
  section("roofline", "The least time each engine needs", verdict, list, missing);
}

function figureText(figure, name) {
  if (!figure) return make("span.dim", `${name} ?`);
  const text = make("span.dim", `${name} ${rate(figure)}`);
  if (figure.source === null) text.append(make("span.estimated", " est."));
  else text.title = figure.source;
  return text;
}

/** Nearest level on top, largest at the bottom; the wider, the more it holds (by logarithm). */
function showHierarchy(report) {
  const { hierarchy } = report;
  if (!hierarchy) return;
  const logs = hierarchy.levels.map((level) => (level.capacity ? Math.log2(level.capacity) : null));
  const known = logs.filter((log) => log !== null);
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const pyramid = make("div.pyramid");
  hierarchy.levels.map((level, index) => [level, logs[index]]).reverse().forEach(([level, log], position, list) => {
    const box = make(level.holds.length ? "div.level.used" : "div.level");
    box.style.width = `${66 + (log === null || most === least ? 34 : (34 * (log - least)) / (most - least))}%`;
    const scope = level.count > 1 ? `${grouped(level.count)} × ${level.scope}` : level.scope;
    const size = level.capacity === null ? "capacity ?" : short(level.capacity);
    const usable = level.usable !== null && level.usable !== level.capacity ? `, ${short(level.usable)} usable` : "";
    box.append(make("div.line", make("b", level.name), make("span", size + usable), make("span.dim", scope), figureText(level.latency, "latency"), figureText(level.bandwidth, "bandwidth")));
    const total = level.usable ?? level.capacity;
    for (const held of level.holds) {
      const part = total ? ` · ${share(held.bytes, total)}` : "";
      box.append(make("div.held", `${held.what}: ${exact(held.bytes)}${part}`, total ? barOf(Math.min(held.bytes, total), total) : null));
    }
    if (level.note) box.append(make("div.held.dim", level.note));
    pyramid.append(box);
    const below = list[position + 1]?.[0];
    if (!below) return;
    const links = hierarchy.links.filter((link) => [link.from, link.to].includes(level.name) && [link.from, link.to].includes(below.name));
    const text = links.map((link) => `${link.engine} ${link.from} → ${link.to}${link.bandwidth ? ` ${rate(link.bandwidth)}` : ""}`).join(" · ");
    pyramid.append(make("div.wire", text || "↕"));
  });
  const shown = new Set(hierarchy.levels.slice(1).map((level, index) => [level.name, hierarchy.levels[index].name].sort().join("\n")));
  const other = hierarchy.links.filter((link) => !shown.has([link.from, link.to].sort().join("\n")));
  const rest = other.length ? make("p.dim", `Other links: ${other.map((link) => `${link.engine} ${link.from} → ${link.to}${link.bandwidth ? ` ${rate(link.bandwidth)}` : ""}`).join(" · ")}`) : null;
  section("hierarchy", `Memory of ${hierarchy.device}`, pyramid, rest);
}

function facts(pairs) {
  return make("dl.facts", ...pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined).flatMap(([name, value]) => [make("dt", name), make("dd", value)]));
}

function showTotals(report) {
  const { totals } = report;
  if (!totals) return;
  const rows = ["inputs", "outputs", "weights", "constants", "activations"].map((name) => make("tr",
    make("td", name), make("td.number", exact(totals[name].bytes)), make("td.number", counted(totals[name].count, "tensor"))));
  section("totals", `Graph: ${counted(totals.operators, "operator")}`, make("table", make("tbody", ...rows)));
}

function showOrigin(report) {
  const { origin } = report;
  const list = (object, number) => Object.entries(object).map(([name, value]) => `${name}${number ? " " : "="}${number ? grouped(value) : value}`).join(", ");
  section("origin", "How the plan was made", facts([
    ["tool", origin.tool], ["method", origin.method], ["goals", origin.goals.join(", ")], ["stopped", STOPS[origin.stop] ?? origin.stop],
    ["work", list(origin.work, true)], ["seed", String(origin.seed)], ["options", list(origin.options, false) || "defaults"],
    ["input digest", origin.digest ? make("span.mono", origin.digest) : ""],
  ]));
}

function showNotes(report) {
  const notes = report.notes ?? [];
  if (notes.length) section("notes", "Notes", make("ul.notes", ...notes.map((note) => make(`li.${note.severity === "warning" ? "warning" : "info"}`, note.text))));
}

function showInfeasible(report, pick) {
  const { infeasible } = report;
  if (!infeasible) return;
  const conflicts = infeasible.conflicts.map((conflict) => {
    const columns = [
      { name: "Buffer", value: (row) => row.name, kind: "td.name", cell: (row) => nameCell(row.name, row.buffer, pick) },
      { name: "Size", value: (row) => row.size, number: true, cell: (row) => exact(row.size) },
      { name: "Live", value: (row) => row.steps.start, number: true, cell: (row) => range([row.steps.start, row.steps.end]) },
    ];
    return make("div", make("p", `${counted(conflict.buffers.length, "buffer")} in steps ${range([conflict.steps.start, conflict.steps.end])}`), sortable(columns, conflict.buffers, 20, 1));
  });
  const capacity = infeasible.capacity === null ? "" : ` of ${exact(infeasible.capacity)}`;
  section("infeasible", "Why it cannot fit", make("p", infeasible.reason), make("p", `${infeasible.space} needs at least ${exact(infeasible.needed)}${capacity}.`),
    ...conflicts, infeasible.advice?.length ? make("ul", ...infeasible.advice.map((line) => make("li", line))) : null);
}
