//! A run for a terminal: the time first, then who was busy, who waited and for what.

use super::{EngineRow, RunReport};
use crate::text::figures::seconds;
use crate::text::ink::Ink;
use crate::text::rate;
use crate::text::table::{Cell, Column, Table};
use crate::text::{TextOptions, printable};
use npumem_ir::units::{Bytes, grouped};
use std::fmt::Write as _;

/// The report as text; it ends with a newline.
#[must_use]
pub fn render(report: &RunReport, options: &TextOptions) -> String {
    let mut page = Page { report, options: *options, text: String::new() };
    page.head();
    page.engines();
    page.idle();
    page.links();
    page.memories();
    page.dram();
    page.statements();
    page.advice();
    page.values();
    page.sanitizer();
    page.notes();
    page.text
}

struct Page<'a> {
    report: &'a RunReport,
    options: TextOptions,
    text: String,
}

fn cycles(value: f64) -> String {
    grouped(value.round().max(0.0) as u64)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// `2,048.0` for a mean that is not whole.
fn mean(value: f64) -> String {
    if value.fract() == 0.0 || value >= 1e4 { cycles(value) } else { format!("{value:.1}") }
}

impl Page<'_> {
    fn heading(&mut self, text: &str) {
        let _ = writeln!(self.text, "\n{}", Ink::Heading.paint(text, self.options.colour));
    }

    fn table(&mut self, table: &Table) {
        for line in table.lines(self.options.width.max(40), self.options.colour) {
            let _ = writeln!(self.text, "{line}");
        }
    }

    fn head(&mut self) {
        let report = self.report;
        let (word, good) = match report.end.as_str() {
            "complete" => (seconds(report.seconds), true),
            "deadlock" => ("DEADLOCK".to_owned(), false),
            _ => ("STOPPED".to_owned(), false),
        };
        let ink = if good { Ink::Good } else { Ink::Bad };
        let name = printable(&report.program);
        let _ = writeln!(
            self.text,
            "{}: {} cycles: {name} on {} ({}, {} of {} {})",
            ink.paint(&word, self.options.colour),
            cycles(report.cycles),
            report.device,
            report.detail,
            grouped(report.blocks),
            grouped(report.cores),
            if report.cores == 1 { "core" } else { "cores" },
        );
        if good && report.bound.cycles > 0.0 {
            let _ = writeln!(
                self.text,
                "at least {} cycles by {} alone; the run takes {:.2} times that",
                cycles(report.bound.cycles),
                report.bound.by,
                report.cycles / report.bound.cycles
            );
        }
        let _ = writeln!(self.text, "{} statements; {}", grouped(report.statements), report.order);
        for waits in &report.deadlock {
            let line = if waits.line == 0 { String::new() } else { format!(", line {}", waits.line) };
            let _ = writeln!(
                self.text,
                "  {} stands at step {}{line} and waits for {}",
                waits.engine, waits.step, waits.waits_for
            );
        }
    }

    fn engines(&mut self) {
        if self.report.engines.is_empty() {
            return;
        }
        self.heading("Engines");
        let mut table = Table::new(&[
            (Column::Left, "engine"),
            (Column::SideNumber, "cores"),
            (Column::Right, "statements"),
            (Column::Right, "busy cycles"),
            (Column::Right, "busy"),
            (Column::SideNumber, "slowed by sharing"),
            (Column::SideNumber, "bytes"),
            (Column::Side, ""),
        ]);
        for engine in &self.report.engines {
            let bar = (engine.busy_share * 20.0).round().clamp(0.0, 20.0) as usize;
            table.row(vec![
                Cell::new(engine.name.as_str(), Ink::Plain),
                grouped(engine.instances).into(),
                grouped(engine.statements).into(),
                mean(engine.busy_cycles).into(),
                percent(engine.busy_share).into(),
                if engine.slowed_cycles > 0.5 { mean(engine.slowed_cycles) } else { String::new() }.into(),
                if engine.bytes > 0 { grouped(engine.bytes) } else { String::new() }.into(),
                Cell::new("#".repeat(bar), Ink::Bar),
            ]);
        }
        self.table(&table);
    }

    fn idle(&mut self) {
        let waits = |engine: &EngineRow| engine.idle.iter().any(|row| row.cycles > 0.5);
        if !self.report.engines.iter().any(waits) {
            return;
        }
        self.heading("Why they wait (cycles of one engine, on average)");
        let mut table = Table::new(&[
            (Column::Left, "engine"),
            (Column::Right, "cycles"),
            (Column::Right, "of the run"),
            (Column::Prose, "cause"),
        ]);
        for engine in self.report.engines.iter().filter(|engine| engine.statements > 0) {
            let shown = engine.idle.iter().filter(|row| row.share >= 0.001).take(self.options.rows.min(5));
            for (index, row) in shown.enumerate() {
                table.row(vec![
                    Cell::new(if index == 0 { engine.name.as_str() } else { "" }, Ink::Plain),
                    mean(row.cycles).into(),
                    percent(row.share).into(),
                    row.text.clone().into(),
                ]);
            }
        }
        self.table(&table);
    }

    fn links(&mut self) {
        if self.report.links.is_empty() {
            return;
        }
        self.heading("Bytes over links");
        let mut table = Table::new(&[
            (Column::Left, "link"),
            (Column::Right, "bytes"),
            (Column::Side, ""),
            (Column::Right, "transfers"),
            (Column::SideNumber, "mean rate"),
        ]);
        for link in &self.report.links {
            table.row(vec![
                Cell::new(link.name.as_str(), Ink::Plain),
                grouped(link.bytes).into(),
                Cell::new(Bytes(link.bytes).binary().unwrap_or_default(), Ink::Dim),
                grouped(link.transfers).into(),
                rate(link.bytes_per_second, "B/s").into(),
            ]);
        }
        self.table(&table);
    }

    fn memories(&mut self) {
        if self.report.memories.is_empty() {
            return;
        }
        self.heading("Shared memories");
        let mut table = Table::new(&[
            (Column::Left, "space"),
            (Column::Right, "bytes"),
            (Column::Right, "bandwidth"),
            (Column::Right, "used"),
        ]);
        for memory in &self.report.memories {
            table.row(vec![
                Cell::new(memory.name.as_str(), Ink::Plain),
                cycles(memory.bytes).into(),
                rate(memory.bytes_per_second, "B/s").into(),
                percent(memory.share).into(),
            ]);
        }
        self.table(&table);
    }

    fn dram(&mut self) {
        let Some(dram) = &self.report.dram else { return };
        let (peak, used) = (rate(dram.peak_bytes_per_second, "B/s"), percent(dram.share));
        self.heading(&format!("Main memory, command by command ({}, {peak}, {used} used)", printable(&dram.part)));
        let bursts = (dram.row_hits + dram.row_misses + dram.row_conflicts).max(1) as f64;
        let one = |name: &str, count: u64| format!("{} {name} ({})", grouped(count), percent(count as f64 / bursts));
        let _ = writeln!(
            self.text,
            "  {}, {}, {}; {} rows opened, {} refreshes",
            one("row hits", dram.row_hits),
            one("row misses", dram.row_misses),
            one("row conflicts", dram.row_conflicts),
            grouped(dram.activates),
            grouped(dram.refreshes),
        );
        let idle: u64 = dram.idle.iter().map(|row| row.clocks).sum();
        if idle > 0 {
            let rows = dram.idle.iter().filter(|row| row.clocks > 0);
            let rows = rows.map(|row| format!("{} {}", row.cause, percent(row.clocks as f64 / idle as f64)));
            let _ = writeln!(self.text, "  idle data buses: {}", rows.collect::<Vec<_>>().join(", "));
        }
        let mut table =
            Table::new(&[(Column::Right, "channel"), (Column::Right, "bytes read"), (Column::Right, "bytes written")]);
        for (index, channel) in dram.channels.iter().enumerate().take(self.options.rows) {
            table.row(vec![
                index.to_string().into(),
                grouped(channel.read_bytes).into(),
                grouped(channel.written_bytes).into(),
            ]);
        }
        self.table(&table);
    }

    fn statements(&mut self) {
        if self.report.statement_rows.is_empty() {
            return;
        }
        self.heading("Statements that take longest");
        let mut table = Table::new(&[
            (Column::Right, "step"),
            (Column::SideNumber, "line"),
            (Column::Left, "operation"),
            (Column::Left, "engine"),
            (Column::Right, "runs"),
            (Column::Right, "cycles a run"),
            (Column::SideNumber, "waited for a run"),
            (Column::Right, "of its engine"),
        ]);
        for row in self.report.statement_rows.iter().take(self.options.rows) {
            table.row(vec![
                row.step.to_string().into(),
                if row.line == 0 { String::new() } else { row.line.to_string() }.into(),
                row.name.clone().into(),
                row.engine.clone().into(),
                grouped(row.runs).into(),
                mean(row.busy_cycles).into(),
                mean(row.waited_cycles).into(),
                percent(row.share).into(),
            ]);
        }
        self.table(&table);
    }

    fn advice(&mut self) {
        if self.report.advice.is_empty() {
            return;
        }
        self.heading("What would help (each was tried: the program rewritten and run again)");
        for advice in &self.report.advice {
            let ink = if advice.helps { Ink::Good } else { Ink::Dim };
            let _ = writeln!(
                self.text,
                "  {}: {} cycles, {:.2} times as fast; {} stands still {} of the run instead of {}; {}",
                ink.paint(&printable(&advice.change), self.options.colour),
                cycles(advice.cycles_after),
                advice.speedup,
                advice.engine,
                percent(advice.waits_after),
                percent(advice.waits_before),
                advice.room
            );
        }
    }

    fn values(&mut self) {
        let Some(values) = &self.report.values else { return };
        self.heading("Values of the caller's memory");
        let mut table = Table::new(&[
            (Column::Name, "buffer"),
            (Column::Left, "type"),
            (Column::Right, "elements"),
            (Column::Left, "role"),
            (Column::Right, "least"),
            (Column::Right, "most"),
            (Column::Right, "mean"),
            (Column::SideName, "from or to"),
        ]);
        for row in &values.buffers {
            let number = |value: f64| format!("{value:.6}");
            table.row(vec![
                row.name.clone().into(),
                row.element.clone().into(),
                grouped(row.elements).into(),
                row.role.clone().into(),
                number(row.least).into(),
                number(row.most).into(),
                number(row.mean).into(),
                row.origin.clone().into(),
            ]);
            if row.not_numbers > 0 {
                table.row(vec![Cell::new(format!("  {} of them are NaN", grouped(row.not_numbers)), Ink::Warning)]);
            }
        }
        self.table(&table);
        for (name, times) in &values.skipped {
            let text = format!("  not computed: {name}, met {} times: what follows from it is wrong", grouped(*times));
            let _ = writeln!(self.text, "{}", Ink::Warning.paint(&text, self.options.colour));
        }
    }

    fn sanitizer(&mut self) {
        let Some(found) = &self.report.sanitizer else { return };
        self.heading("Faults of memory");
        if found.findings.is_empty() {
            let _ = writeln!(
                self.text,
                "  {}: {} accesses were looked at",
                Ink::Good.paint("none", self.options.colour),
                grouped(found.accesses)
            );
            return;
        }
        for fault in found.findings.iter().take(self.options.rows) {
            let again =
                if fault.again == 0 { String::new() } else { format!(" (and {} times more)", grouped(fault.again)) };
            let _ = writeln!(
                self.text,
                "  {} {}{again}",
                Ink::Bad.paint(&format!("{}:", fault.kind), self.options.colour),
                printable(&fault.message)
            );
        }
        let left = found.findings.len().saturating_sub(self.options.rows);
        if left > 0 {
            let _ = writeln!(self.text, "  ... and {left} more (--top 0 shows all)");
        }
        let _ = writeln!(self.text, "  {} faults in {} accesses", grouped(found.faults), grouped(found.accesses));
    }

    fn notes(&mut self) {
        if self.report.notes.is_empty() {
            return;
        }
        self.heading("Notes");
        for note in &self.report.notes {
            let _ = writeln!(self.text, "  {}", printable(note));
        }
    }
}
