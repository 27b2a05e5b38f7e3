//! The sections of the page, in the order in which they are printed.

use super::figures::{printable, rate, seconds, share};
use super::ink::Ink;
use super::table::{Cell, Column, Table};
use super::{Page, chart};
use crate::plan_report::{AtPeak, Figure, GoalValue, KindTotal, PeakRow, Severity, SpaceReport, Total};
use npumem_ir::plan::Stop;
use npumem_ir::problem::{BufferKind, Goal};
use npumem_ir::units::grouped;
use npumem_ir::{Bytes, Step};
use std::cmp::Reverse;

/// Exact bytes and their binary unit, for two columns.
fn bytes(bytes: Bytes) -> [Cell; 2] {
    [format!("{} B", grouped(bytes.0)).into(), Cell::new(bytes.binary().unwrap_or_default(), Ink::Dim)]
}

/// The same for a figure that may be missing.
fn bytes_or(size: Option<Bytes>, otherwise: &str) -> [Cell; 2] {
    size.map_or_else(|| [otherwise.into(), Cell::default()], bytes)
}

fn row<const N: usize>(first: impl Into<Cell>, size: [Cell; 2], rest: [Cell; N]) -> Vec<Cell> {
    [first.into()].into_iter().chain(size).chain(rest).collect()
}

fn counted(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{} {one}s", grouped(count)) }
}

/// A kind in words.
pub(crate) fn kind(kind: BufferKind) -> &'static str {
    match kind {
        BufferKind::Activation => "activation",
        BufferKind::Weight => "weight",
        BufferKind::Constant => "constant",
        BufferKind::Input => "input",
        BufferKind::Output => "output",
        BufferKind::Workspace => "workspace",
    }
}

fn goal(goal: Goal) -> &'static str {
    match goal {
        Goal::Peak => "peak",
        Goal::TotalPeak => "total peak",
        Goal::MaxPeak => "largest peak",
        Goal::Fit => "fit",
        Goal::ReuseCost => "reuse cost",
        Goal::KeepHints => "keep hints",
        Goal::Traffic => "traffic",
    }
}

/// What was reached of one goal, and the bound beside it.
fn reached(one: &GoalValue) -> String {
    let amount = |value: u64| if one.goal == Goal::ReuseCost { grouped(value) } else { Bytes(value).to_string() };
    let what = match one.goal {
        Goal::KeepHints => "bytes away from their hints",
        other => goal(other),
    };
    let bound = one.bound.map_or_else(String::new, |bound| format!(" (bound {})", amount(bound)));
    format!("{what} {}{bound}", amount(one.value))
}

fn stop(stop: Stop) -> &'static str {
    match stop {
        Stop::Optimal => "optimal: no plan is better",
        Stop::Satisfied => "it fits, and no more was asked for",
        Stop::Exhausted => "every method that the effort allows has ended",
        Stop::Budget => "the budget of work was spent",
        Stop::Interrupted => "interrupted: the best so far",
        Stop::Infeasible => "proven: no plan keeps the capacities",
    }
}

fn figure(figure: &Option<Figure>) -> Cell {
    match figure {
        None => "?".into(),
        Some(figure) if figure.source.is_none() => {
            Cell::new(format!("~{}", rate(figure.value, &figure.unit)), Ink::Warning)
        }
        Some(figure) => rate(figure.value, &figure.unit).into(),
    }
}

/// A line of the table of the peak.
enum Line<'a> {
    Buffer(&'a PeakRow),
    Kind(KindTotal),
}

/// Kinds that are shown as one line: a model's hundreds of weights would hide what makes this step the peak.
fn folded_kinds(at_peak: &AtPeak) -> Vec<BufferKind> {
    let all_alike = at_peak.by_kind.len() == 1;
    let fixed = |total: &&KindTotal| matches!(total.kind, BufferKind::Weight | BufferKind::Constant) && total.count > 2;
    if all_alike { Vec::new() } else { at_peak.by_kind.iter().filter(fixed).map(|total| total.kind).collect() }
}

impl Page<'_> {
    fn table(&mut self, table: &Table) {
        for line in table.lines(self.options.width, self.options.colour) {
            self.line(&line);
        }
    }

    fn at_step(&self, step: Step) -> String {
        match self.report.step_name(step) {
            Some(name) => format!("step {} ({})", grouped(step.0), printable(name)),
            None => format!("step {}", grouped(step.0)),
        }
    }

    pub(super) fn verdict(&mut self) {
        let ink = if self.report.fits { Ink::Good } else { Ink::Bad };
        let headline = printable(&self.report.headline).into_owned();
        for line in super::figures::wrap(&headline, self.options.width) {
            let line = self.ink(ink, &line);
            self.line(&line);
        }
    }

    pub(super) fn infeasible(&mut self) {
        let Some(infeasible) = &self.report.infeasible else { return };
        self.heading("Why it cannot fit");
        self.paragraph(Ink::Bad, "  ", &infeasible.reason, 2);
        let mut table = Table::new(&[(Column::Left, ""), (Column::Right, ""), (Column::Right, "")]);
        table.row(row("needed", bytes(infeasible.needed), []));
        table.row(row("capacity", bytes_or(infeasible.capacity, "none"), []));
        self.table(&table);
        for conflict in &infeasible.conflicts {
            let count = counted(conflict.buffers.len() as u64, "buffer");
            self.line(&format!("  {count} in steps {}:", conflict.steps));
            let mut table = Table::new(&[
                (Column::Right, "size"),
                (Column::Right, ""),
                (Column::Left, "live"),
                (Column::Name, "buffer"),
            ]);
            for buffer in conflict.buffers.iter().take(self.options.rows) {
                let [exact, binary] = bytes(buffer.size);
                table.row(vec![exact, binary, buffer.steps.to_string().into(), buffer.name.as_str().into()]);
            }
            self.table(&table);
            if let Some(more) = conflict.buffers.len().checked_sub(self.options.rows).filter(|more| *more > 0) {
                let rest: Bytes = conflict.buffers.iter().skip(self.options.rows).map(|buffer| buffer.size).sum();
                self.line(&format!("  and {} more: {rest}", grouped(more as u64)));
            }
        }
        for advice in &infeasible.advice {
            self.paragraph(Ink::Plain, "  -", advice, 4);
        }
    }

    pub(super) fn space(&mut self, space: &SpaceReport) {
        if space.buffers == 0 {
            return;
        }
        let verdict = match (space.capacity, space.fits) {
            (_, false) => self.ink(Ink::Bad, "does not fit"),
            (Some(_), true) => self.ink(Ink::Good, "fits"),
            (None, true) => self.ink(Ink::Dim, "no capacity given"),
        };
        self.heading(&printable(&space.name));
        let end = self.text.len() - 1;
        self.text.insert_str(end, &format!("  {verdict}"));
        let mut table =
            Table::new(&[(Column::Left, ""), (Column::Right, ""), (Column::SideNumber, ""), (Column::Prose, "")]);
        let why = |text: String| [Cell::new(text, Ink::Dim)];
        let owner = space.peak_buffer.and_then(|id| self.report.buffer(id));
        let owner = owner.map_or_else(String::new, |buffer| format!("the end of {}", printable(&buffer.name)));
        table.row(row("peak", bytes(space.peak), why(owner)));
        table.row(row("lower bound", bytes(space.lower_bound), why(space.bound_reason.clone())));
        let gap = match space.gap {
            Some(gap) if space.peak <= space.lower_bound && gap <= 0.0 => "no plan needs less".to_owned(),
            Some(gap) => format!("{:.2} % above the lower bound", gap * 100.0),
            None => "the lower bound is zero".to_owned(),
        };
        table.row(row("gap", bytes(space.peak.saturating_sub(space.lower_bound.0)), why(gap)));
        let step = space.live_peak_step.map_or_else(String::new, |step| self.at_step(step));
        table.row(row("largest live load", bytes(space.live_peak), why(step)));
        let count = counted(space.buffers, "buffer");
        let reuse = if space.peak < space.total {
            format!("{count}; reuse saves {}", share(space.total.0 - space.peak.0, space.total.0))
        } else {
            count
        };
        table.row(row("all sizes", bytes(space.total), why(reuse)));
        if let Some(capacity) = space.capacity {
            let used = format!("{} used", share(space.peak.0, capacity.0));
            table.row(row("capacity", bytes(capacity), why(used)));
            match space.headroom {
                Some(headroom) => table.row(row("headroom", bytes(headroom), why(String::new()))),
                None => {
                    let over = share(space.over.0, capacity.0);
                    table.row(row(
                        "over by",
                        bytes(space.over),
                        [Cell::new(format!("{over} of the capacity"), Ink::Bad)],
                    ));
                }
            }
        }
        if space.reserved_bytes > Bytes::ZERO {
            let ranges: Vec<String> = space.reserved.iter().take(4).map(ToString::to_string).collect();
            let more = if space.reserved.len() > 4 { ", …" } else { "" };
            table.row(row("reserved", bytes(space.reserved_bytes), why(format!("{}{more}", ranges.join(", ")))));
        }
        self.table(&table);
    }

    pub(super) fn pooled(&mut self) {
        let pooled = &self.report.pooled;
        if pooled.buffers.is_empty() {
            return;
        }
        self.heading("Left to the run-time pool");
        let mut table =
            Table::new(&[(Column::Left, ""), (Column::Right, ""), (Column::SideNumber, ""), (Column::Prose, "")]);
        let count = Cell::new(counted(pooled.buffers.len() as u64, "buffer"), Ink::Dim);
        table.row(row("all sizes, at most", bytes_or(pooled.total, "unbounded"), [count]));
        table.row(row("live at once, at most", bytes_or(pooled.live_peak, "unbounded"), []));
        self.table(&table);
    }

    pub(super) fn live_load(&mut self, space: &SpaceReport) {
        const HEIGHT: usize = 6;
        self.heading(&format!("Live bytes in {}", printable(&space.name)));
        let top = space.live_peak.max(space.lower_bound);
        let labels = [top.short(), "0 B".to_owned()];
        let margin = labels.iter().map(|label| super::figures::width(label)).max().unwrap_or(0);
        let room = self.options.width.saturating_sub(margin + 4).clamp(8, 120);
        let columns = chart::columns(&space.curve, self.report.steps, room);
        for (index, line) in chart::area(&columns, top, HEIGHT).iter().enumerate() {
            let label = if index == 0 { &labels[0] } else { "" };
            let line = self.ink(Ink::Bar, line.trim_end());
            self.line(&format!("  {label:>margin$} {line}"));
        }
        let (first, last) = (grouped(self.report.steps.start.0), grouped(self.report.steps.end.0));
        let gap = room.saturating_sub(first.len() + last.len()).max(1);
        let axis = format!("  {:>margin$} {first}{}{last}", labels[1], " ".repeat(gap));
        let axis = self.ink(Ink::Dim, &axis);
        self.line(&axis);
    }

    pub(super) fn peak_table(&mut self, space: &SpaceReport) {
        let at_peak = &space.at_peak;
        let step = space.live_peak_step.unwrap_or_default();
        let title = format!("Live at the peak of {}: {}", printable(&space.name), self.at_step(step));
        self.heading(&super::figures::shorten(&title, self.options.width));
        let mut table = Table::new(&[
            (Column::Right, "bytes"),
            (Column::SideNumber, ""),
            (Column::Right, "share"),
            (Column::Side, ""),
            (Column::Name, "buffer"),
            (Column::SideName, "made by"),
            (Column::Side, "kind"),
            (Column::SideNumber, "offset"),
            (Column::SideName, "within"),
        ]);
        let folded = folded_kinds(at_peak);
        let whole = |total: &KindTotal| (total.bytes, Line::Kind(*total));
        let mut lines: Vec<(Bytes, Line)> =
            at_peak.by_kind.iter().filter(|t| folded.contains(&t.kind)).map(whole).collect();
        lines.extend(
            at_peak.rows.iter().filter(|row| !folded.contains(&row.kind)).map(|row| (row.bytes, Line::Buffer(row))),
        );
        lines.sort_by_key(|(size, _)| Reverse(*size));
        let largest = lines.first().map_or(0, |(size, _)| size.0);
        for (size, line) in lines.iter().take(self.options.rows) {
            let [exact, binary] = bytes(*size);
            let bar = Cell::new(chart::bar(size.0, largest, 8), Ink::Bar);
            let mut cells = vec![exact, binary, share(size.0, space.live_peak.0).into(), bar];
            match line {
                Line::Kind(total) => {
                    cells.push(Cell::new(format!("all {}", counted(total.count, kind(total.kind))), Ink::Dim))
                }
                Line::Buffer(row) => {
                    let base = row.base.and_then(|base| self.report.buffer(base));
                    cells.push(row.name.as_str().into());
                    cells.push(row.producer.as_deref().unwrap_or("").into());
                    cells.push(kind(row.kind).into());
                    cells.push(grouped(row.offset.0).into());
                    cells.push(base.map_or("", |base| base.name.as_str()).into());
                }
            }
            table.row(cells);
        }
        let rest = lines.get(self.options.rows..).unwrap_or_default();
        if !rest.is_empty() {
            let size: Bytes = rest.iter().map(|(size, _)| *size).sum();
            let [exact, binary] = bytes(size);
            let name = Cell::new(format!("{} more", grouped(rest.len() as u64)), Ink::Dim);
            table.row(vec![exact, binary, share(size.0, space.live_peak.0).into(), Cell::default(), name]);
        }
        self.table(&table);
        let count = counted(at_peak.rows.len() as u64, "buffer");
        let mut total = format!("{count}, {} live", space.live_peak);
        if at_peak.shared > Bytes::ZERO {
            total += &format!("; {} more in views and in-place results, which share those bytes", at_peak.shared);
        }
        self.paragraph(Ink::Plain, "", &total, 2);
        if at_peak.by_kind.len() > 1 {
            let kinds: Vec<String> = (at_peak.by_kind.iter())
                .map(|total| format!("{} {}", counted(total.count, kind(total.kind)), total.bytes))
                .collect();
            self.paragraph(Ink::Plain, "", &format!("by kind: {}", kinds.join("; ")), 2);
        }
    }

    pub(super) fn bounds(&mut self) {
        let Some(first) = self.report.bounds.first() else { return };
        self.heading("Lower bound by what a plan may do");
        let mut table = Table::new(&[
            (Column::Left, ""),
            (Column::Right, ""),
            (Column::SideNumber, ""),
            (Column::Side, ""),
            (Column::Right, ""),
            (Column::Name, ""),
        ]);
        for bound in &self.report.bounds {
            let place = match (bound.step, &bound.operator) {
                (Some(step), Some(operator)) => format!("step {} ({operator})", grouped(step.0)),
                (Some(step), None) => self.at_step(step),
                (None, operator) => operator.clone().unwrap_or_default(),
            };
            let bar = Cell::new(chart::bar(bound.bytes.0, first.bytes.0, 16), Ink::Bar);
            let part = share(bound.bytes.0, first.bytes.0);
            table.row(row(bound.actions.as_str(), bytes(bound.bytes), [bar, part.into(), Cell::new(place, Ink::Dim)]));
        }
        self.table(&table);
    }

    pub(super) fn strategies(&mut self) {
        if self.report.strategies.is_empty() {
            return;
        }
        self.heading("Strategies");
        let mut table = Table::new(&[
            (Column::Left, ""),
            (Column::Right, "planned"),
            (Column::SideNumber, ""),
            (Column::Right, "pool, at most"),
            (Column::SideNumber, ""),
            (Column::Right, "allocator calls"),
            (Column::Side, ""),
        ]);
        for strategy in &self.report.strategies {
            let [pool, pool_binary] = bytes_or(strategy.pool, "unbounded");
            let chosen = if strategy.chosen { "this plan" } else { "" };
            let name = Cell::new(strategy.strategy.as_str(), if strategy.chosen { Ink::Heading } else { Ink::Plain });
            let calls = grouped(strategy.allocator_calls).into();
            table.row(row(name, bytes(strategy.planned), [pool, pool_binary, calls, Cell::new(chosen, Ink::Good)]));
        }
        self.table(&table);
        for strategy in &self.report.strategies {
            if let (Some(live), Some(reserved)) = (strategy.pool_live, strategy.pool_reserved) {
                let over = if live.get() == 0 { 1.0 } else { reserved.get() as f64 / live.get() as f64 };
                let told = format!(
                    "{}: two runs replayed through npumem's pool reserve {reserved} for {live} live, {over:.3} times as much",
                    strategy.strategy
                );
                self.paragraph(Ink::Dim, "", &told, 2);
            }
            if let Some(note) = &strategy.note {
                self.paragraph(Ink::Dim, "", &format!("{}: {note}", strategy.strategy), 2);
            }
        }
    }

    pub(super) fn roofline(&mut self) {
        let Some(roofline) = &self.report.roofline else { return };
        self.heading("The least time each engine needs");
        let mut table = Table::new(&[
            (Column::Left, ""),
            (Column::Right, "work"),
            (Column::SideNumber, ""),
            (Column::Right, "rate"),
            (Column::Right, "time"),
            (Column::Side, ""),
            (Column::SideName, "source of the rate"),
        ]);
        let longest = roofline.rows.iter().filter_map(|row| row.seconds).fold(0.0, f64::max);
        for engine in &roofline.rows {
            let bounds = roofline.bound_by.as_deref() == Some(engine.engine.as_str());
            let scaled = if engine.unit == "B" {
                Bytes(engine.work).binary()
            } else {
                Some(rate(engine.work as f64, &engine.unit))
            };
            let part = engine.seconds.filter(|_| longest > 0.0).map_or(0, |time| (time / longest * 1e6) as u64);
            let source = match &engine.rate {
                None => Cell::new("the device file does not say", Ink::Warning),
                Some(Figure { source: None, .. }) => Cell::new("estimated", Ink::Warning),
                Some(Figure { source: Some(source), .. }) => Cell::new(source.as_str(), Ink::Dim),
            };
            table.row(vec![
                Cell::new(engine.engine.as_str(), if bounds { Ink::Heading } else { Ink::Plain }),
                format!("{} {}", grouped(engine.work), engine.unit).into(),
                Cell::new(scaled.unwrap_or_default(), Ink::Dim),
                figure(&engine.rate),
                engine.seconds.map_or_else(|| "?".to_owned(), seconds).into(),
                Cell::new(chart::bar(part, 1_000_000, 12), if bounds { Ink::Warning } else { Ink::Bar }),
                source,
            ]);
        }
        self.table(&table);
        if let (Some(engine), Some(time)) = (&roofline.bound_by, roofline.seconds) {
            let text = format!("{} bounds the whole: at least {}", engine, seconds(time));
            self.paragraph(Ink::Plain, "  ", &text, 2);
        }
        if !roofline.missing.is_empty() {
            self.paragraph(Ink::Warning, "  !", &format!("missing: {}", roofline.missing.join(", ")), 4);
        }
    }

    pub(super) fn hierarchy(&mut self) {
        let Some(hierarchy) = &self.report.hierarchy else { return };
        self.heading(&format!("Memory of {}", printable(&hierarchy.device)));
        let mut table = Table::new(&[
            (Column::Left, "level"),
            (Column::Right, "usable"),
            (Column::SideNumber, ""),
            (Column::SideNumber, "latency"),
            (Column::SideNumber, "bandwidth"),
            (Column::Side, "each"),
            (Column::Prose, "holds"),
        ]);
        for level in &hierarchy.levels {
            let [usable, binary] = bytes_or(level.usable.or(level.capacity), "?");
            let mut holds: Vec<String> =
                level.holds.iter().map(|held| format!("{} {}", held.what, held.bytes.short())).collect();
            holds.extend(level.note.clone());
            let scope = match level.count {
                Some(count) if count > 1 => format!("{} x{}", level.scope, grouped(count)),
                _ => level.scope.clone(),
            };
            let (latency, bandwidth) = (figure(&level.latency), figure(&level.bandwidth));
            table.row(vec![
                level.name.as_str().into(),
                usable,
                binary,
                latency,
                bandwidth,
                scope.into(),
                holds.join("; ").into(),
            ]);
        }
        self.table(&table);
        let figures = hierarchy.levels.iter().flat_map(|level| [&level.latency, &level.bandwidth]).flatten();
        if figures.into_iter().any(|figure| figure.source.is_none()) {
            self.paragraph(Ink::Dim, "  ", "~ estimated; ? not known", 2);
        }
    }

    pub(super) fn totals(&mut self) {
        let Some(totals) = &self.report.totals else { return };
        self.heading(&format!("Graph: {}", counted(totals.operators, "operator")));
        let mut table =
            Table::new(&[(Column::Left, ""), (Column::Right, ""), (Column::Right, ""), (Column::Right, "")]);
        let rows = [
            ("inputs", totals.inputs),
            ("outputs", totals.outputs),
            ("weights", totals.weights),
            ("constants", totals.constants),
            ("activations", totals.activations),
        ];
        for (name, Total { count, bytes: size }) in rows {
            table.row(row(name, bytes(size), [Cell::new(counted(count, "tensor"), Ink::Dim)]));
        }
        self.table(&table);
    }

    pub(super) fn origin(&mut self) {
        let origin = &self.report.origin;
        self.heading("How the plan was made");
        let join = |pairs: Vec<String>| if pairs.is_empty() { "none".to_owned() } else { pairs.join(", ") };
        let goals = origin.goals.iter().map(|each| goal(*each).to_owned()).collect();
        let work = origin.work.iter().map(|(method, count)| format!("{method} {}", grouped(*count))).collect();
        let options = origin.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let rows = [
            ("tool", origin.tool.clone()),
            ("method", origin.method.clone()),
            ("goals", join(goals)),
            ("reached", self.report.goals.iter().map(reached).collect::<Vec<_>>().join("; ")),
            ("stopped", stop(origin.stop).to_owned()),
            ("work", join(work)),
            ("seed", origin.seed.to_string()),
            ("options", if origin.options.is_empty() { "defaults".to_owned() } else { join(options) }),
            ("input digest", origin.digest.clone()),
        ];
        for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
            self.paragraph(Ink::Plain, &format!("  {name}"), value, 16);
        }
    }

    pub(super) fn notes(&mut self) {
        if self.report.notes.is_empty() {
            return;
        }
        self.heading("Notes");
        for note in &self.report.notes {
            match note.severity {
                Severity::Warning => self.paragraph(Ink::Warning, "  !", &note.text, 4),
                Severity::Info => self.paragraph(Ink::Dim, "  -", &note.text, 4),
            }
        }
    }
}
