//! The tables of a device: spaces, engines, links, peaks, and the origins of all figures.

use std::collections::BTreeMap;

use npumem_ir::device::{Banks, Device, EngineKind, Figure, Origin, Precision, Space};
use npumem_ir::units::{Bytes, grouped};

use super::{
    Page, peaks, shown, shown_cycles, shown_engine_scope, shown_rate, shown_rate_short, shown_scope, shown_size,
};
use crate::text::figures;
use crate::text::ink::Ink;
use crate::text::rate;
use crate::text::table::{Cell, Column, Table};

/// Paths named for one reason before the rest is counted.
const PATHS_SHOWN: usize = 12;

/// One line for each device.
pub fn list<'a>(devices: impl IntoIterator<Item = &'a Device>) -> Table {
    let mut table = Table::new(&[
        (Column::Left, "device"),
        (Column::SideName, "what it is"),
        (Column::Right, "memory"),
        (Column::SideNumber, "bandwidth"),
        (Column::Right, "f16 or bf16"),
        (Column::SideNumber, "i8"),
        (Column::SideNumber, "figures known"),
        (Column::SideNumber, "of them sourced"),
    ]);
    for device in devices {
        let main = device.main_memory().map(|id| device.space(id));
        let figures = device.figures();
        let known = figures.iter().filter(|row| row.value.is_some()).count();
        let sourced = figures.iter().filter(|row| matches!(row.origin, Some(Origin::Source(_)))).count();
        table.row(vec![
            Cell::new(device.name.as_str(), Ink::Plain),
            device.title.as_str().into(),
            main.map_or("?".to_owned(), |space| shown_size(&space.capacity)).into(),
            main.map_or("?".to_owned(), |space| main_bandwidth(device, space)).into(),
            peak(device, &[Precision::F16, Precision::Bf16]).into(),
            peak(device, &[Precision::I8]).into(),
            format!("{known}/{}", figures.len()).into(),
            grouped(sourced as u64).into(),
        ]);
    }
    table
}

fn main_bandwidth(device: &Device, space: &Space) -> String {
    let clock = device.clock_hz.known().copied();
    shown(&space.bandwidth, |value| match clock {
        Some(clock) => rate(value.per_second(clock), "B/s"),
        None => rate(value.number(), "B/s"),
    })
}

fn peak(device: &Device, precisions: &[Precision]) -> String {
    let best = precisions.iter().find_map(|precision| device.peak(*precision).ok());
    match best {
        Some((_, peak)) if peak.is_estimated() => format!("~{}", rate(peak.value, "op/s")),
        Some((_, peak)) => rate(peak.value, "op/s"),
        None => "?".to_owned(),
    }
}

fn exact(figure: &Figure<Bytes>) -> String {
    shown(figure, |size| grouped(size.get()))
}

fn banks(banks: &Banks) -> String {
    let mut text = shown(&banks.count, |count| grouped(*count));
    if banks.groups.known().is_some_and(|groups| *groups > 1) {
        text.push_str(&format!(" in {}", shown(&banks.groups, |groups| grouped(*groups))));
    }
    text
}

impl Page<'_> {
    fn table(&mut self, table: &Table) {
        for line in table.lines(self.options.width, self.options.colour) {
            self.line(&line);
        }
    }

    pub(super) fn spaces(&mut self) {
        self.heading("Memory spaces");
        let mut table = Table::new(&[
            (Column::Left, "space"),
            (Column::Right, "capacity"),
            (Column::Right, "usable bytes"),
            (Column::SideNumber, "latency"),
            (Column::SideNumber, "bandwidth"),
            (Column::Side, "each"),
            (Column::SideNumber, "align"),
            (Column::SideNumber, "banks"),
            (Column::Prose, "used for"),
        ]);
        for (id, space) in self.device.spaces() {
            let usable = if space.usable.known().is_some() { &space.usable } else { &space.capacity };
            let mut role = space.role.clone();
            if !space.aliases.is_empty() {
                role.push_str(&format!(" (also {})", space.aliases.join(", ")));
            }
            for reserved in &space.reserved {
                role.push_str(&format!("; {} reserved: {}", reserved.range, reserved.why));
            }
            table.row(vec![
                space.name.as_str().into(),
                shown_size(&space.capacity).into(),
                exact(usable).into(),
                shown_cycles(&space.latency).into(),
                shown_rate_short(&space.bandwidth).into(),
                shown_scope(self.device, id).into(),
                shown(&space.alignment, |alignment| grouped(alignment.get())).into(),
                space.banks.as_ref().map(banks).unwrap_or_default().into(),
                role.into(),
            ]);
        }
        self.table(&table);
    }

    pub(super) fn engines(&mut self) {
        self.heading("Engines");
        let mut table = Table::new(&[
            (Column::Left, "engine"),
            (Column::Left, "kind"),
            (Column::Side, "each"),
            (Column::SideNumber, "start-up"),
            (Column::SideNumber, "in flight"),
            (Column::Prose, "what it does"),
        ]);
        for (id, engine) in self.device.engines() {
            let mut does = engine.title.clone();
            if let Some(unit) = &engine.compute {
                let fractals: Vec<String> = unit
                    .fractal
                    .iter()
                    .map(|(precision, shape)| {
                        format!("{precision} {}", shown(shape, |[m, k, n]| format!("{m}x{k}x{n}")))
                    })
                    .collect();
                if !fractals.is_empty() {
                    does.push_str(&format!("; smallest product (m x k x n): {}", fractals.join(", ")));
                }
                if unit.vector_width.known().is_some() {
                    does.push_str(&format!("; {} a step", shown_size(&unit.vector_width)));
                }
            }
            table.row(vec![
                engine.name.as_str().into(),
                engine.kind.text().into(),
                shown_engine_scope(self.device, id).into(),
                shown_cycles(&engine.startup).into(),
                shown(&engine.outstanding, |outstanding| grouped(*outstanding)).into(),
                does.into(),
            ]);
        }
        self.table(&table);
    }

    pub(super) fn links(&mut self) {
        self.heading("Links, by one engine");
        let mut table = Table::new(&[
            (Column::Left, "from"),
            (Column::Left, "to"),
            (Column::Left, "engine"),
            (Column::Right, "rate"),
            (Column::SideNumber, "start-up"),
            (Column::SideNumber, "grain"),
            (Column::SideNumber, "align"),
            (Column::SideNumber, "else at"),
            (Column::SideNumber, "best from"),
            (Column::SideNumber, "at most"),
        ]);
        let known = |figure: &Figure<Bytes>| figure.known().map(|_| shown_size(figure)).unwrap_or_default();
        for link in &self.device.links {
            let share = |figure: &Figure<f64>| shown(figure, |share| format!("{:.0} %", share * 100.0));
            table.row(vec![
                self.device.space(link.from).name.as_str().into(),
                self.device.space(link.to).name.as_str().into(),
                self.device.engine(link.engine).name.as_str().into(),
                shown_rate(self.device, &link.rate).into(),
                shown_cycles(&link.startup).into(),
                shown_size(&link.granularity).into(),
                known(&link.alignment).into(),
                link.unaligned_share.known().map(|_| share(&link.unaligned_share)).unwrap_or_default().into(),
                known(&link.best_transfer).into(),
                known(&link.largest_transfer).into(),
            ]);
        }
        self.table(&table);
    }

    pub(super) fn peaks(&mut self) {
        let peaks = peaks(self.device);
        if peaks.is_empty() {
            return;
        }
        self.heading("Peak of the whole device (a multiply-accumulate is two operations)");
        let mut table = Table::new(&[(Column::Left, "type"), (Column::Right, "matrix"), (Column::Right, "vector")]);
        for precision in Precision::ALL {
            let of = |kind: EngineKind| {
                peaks.iter().find(|peak| peak.kind == kind && peak.precision == *precision).map(|peak| {
                    let mark = if peak.estimated { "~" } else { "" };
                    format!("{mark}{}", rate(peak.operations, "op/s"))
                })
            };
            let (matrix, vector) = (of(EngineKind::Matrix), of(EngineKind::Vector));
            if matrix.is_some() || vector.is_some() {
                table.row(vec![
                    precision.text().into(),
                    matrix.unwrap_or_default().into(),
                    vector.unwrap_or_default().into(),
                ]);
            }
        }
        self.table(&table);
    }

    pub(super) fn origins(&mut self) {
        let rows = self.device.figures();
        let mut sourced: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut estimated: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut unknown: Vec<&str> = Vec::new();
        for row in &rows {
            match &row.origin {
                Some(Origin::Source(key)) => sourced.entry(key).or_default().push(&row.path),
                Some(Origin::Estimated(why)) => estimated.entry(why).or_default().push(&row.path),
                None => unknown.push(&row.path),
            }
        }
        let count: usize = sourced.values().map(Vec::len).sum();
        self.heading(&format!("Sources ({count} of {} figures)", rows.len()));
        for (key, text) in &self.device.sources {
            let used = sourced.get(key.as_str()).map_or(0, Vec::len);
            let key = figures::printable(key);
            let indent = 12.max(figures::width(&key) + 3);
            self.paragraph(&format!("  {key} "), &format!("({used}) {text}"), indent);
        }
        if !estimated.is_empty() {
            let count: usize = estimated.values().map(Vec::len).sum();
            self.heading(&format!("Estimated ({count})"));
            for (why, paths) in &estimated {
                self.paragraph("  ", &format!("{}: {why}", some(paths)), 4);
            }
        }
        if !unknown.is_empty() {
            self.heading(&format!("Not known ({})", unknown.len()));
            self.paragraph("  ", &some(&unknown), 4);
        }
    }
}

/// The first paths, and how many more.
fn some(paths: &[&str]) -> String {
    let mut text = paths.iter().take(PATHS_SHOWN).copied().collect::<Vec<&str>>().join(", ");
    if paths.len() > PATHS_SHOWN {
        text.push_str(&format!(" and {} more", paths.len() - PATHS_SHOWN));
    }
    text
}
