//! `--picture`: tiles on the tensors, buffers in each space, the pipeline in time, as text.
//!
//! Everything drawn is in the JSON too: tiles, offsets and spans.

use super::device::{duration, spaces};
use npumem_ir::Device;
use npumem_planner::tiling::{OperandRole, Schedule};
use std::fmt::Write as _;

/// Columns of a bar.
const WIDE: usize = 64;
/// Most cells of a tensor's grid, each way.
const CELLS: u64 = 24;

/// The picture.
#[must_use]
pub fn picture(schedule: &Schedule, device: &Device) -> String {
    format!("{}\n{}\n{}", tensors(schedule), buffers(schedule), pipeline(schedule, device))
}

/// Each operand's last two axes as a grid of its tiles; `#` is the first tile of the first core.
fn tensors(schedule: &Schedule) -> String {
    let mut out = String::from("Tiles on the tensors (# the first, one cell a tile, at most 24 each way)\n");
    let operator = &schedule.operator;
    for operand in operator.operands.iter().filter(|operand| operand.role != OperandRole::Temporary) {
        let count = |axis: &npumem_planner::tiling::Axis| -> u64 {
            axis.terms.iter().map(|(dim, _)| operator.dims[*dim].extent.div_ceil(schedule.found.tiles[*dim])).product()
        };
        let axes = &operand.axes;
        let columns = axes.last().map_or(1, count);
        let rows = axes.len().checked_sub(2).map_or(1, |at| count(&axes[at]));
        let shape: Vec<String> = axes.iter().map(|axis| axis.extent.to_string()).collect();
        let _ = writeln!(
            out,
            "  {} {} {}: {rows} x {columns} tiles",
            operand.name,
            operand.element.name(),
            shape.join("x")
        );
        for row in 0..rows.min(CELLS) {
            let line: String =
                (0..columns.min(CELLS)).map(|column| if row + column == 0 { '#' } else { '.' }).collect();
            let more = if columns > CELLS { "..." } else { "" };
            let _ = writeln!(out, "    {line}{more}");
        }
        if rows > CELLS {
            out.push_str("    ...\n");
        }
    }
    out
}

/// Each space as a bar: a letter for each buffer, one run for each slot.
fn buffers(schedule: &Schedule) -> String {
    let mut out = String::from("Buffers in each space (a letter a buffer, upper and lower case its slots)\n");
    for (name, used, capacity) in spaces(schedule) {
        let mut bar = vec!['.'; WIDE];
        let mut legend = Vec::new();
        for (number, buffer) in schedule.buffers.iter().filter(|buffer| buffer.space_name == name).enumerate() {
            let letter = char::from(b'a' + u8::try_from(number % 26).unwrap_or(0));
            legend.push(format!("{letter} {}", buffer.name));
            for slot in 0..buffer.slots {
                let start = buffer.offset.saturating_add(buffer.pitch.saturating_mul(slot));
                let cell = |bytes: u64| (u128::from(bytes) * WIDE as u128 / u128::from(capacity.max(1))) as usize;
                let (from, to) = (cell(start).min(WIDE - 1), cell(start.saturating_add(buffer.bytes)).min(WIDE));
                let mark = if slot % 2 == 0 { letter.to_ascii_uppercase() } else { letter };
                bar[from..to.max(from + 1)].iter_mut().for_each(|cell| *cell = mark);
            }
        }
        let bar: String = bar.into_iter().collect();
        let _ = writeln!(out, "  {name:<8} [{bar}] {used} of {capacity} B: {}", legend.join(", "));
    }
    out
}

/// The first statements of one core: one row an engine, statements in turn as `=` and `-`.
fn pipeline(schedule: &Schedule, device: &Device) -> String {
    let spans = &schedule.spans;
    let mut engines = Vec::new();
    for (engine, ..) in spans {
        if !engines.contains(engine) {
            engines.push(*engine);
        }
    }
    // As far as every engine's statements are known.
    let last = |engine| spans.iter().filter(|span| span.0 == engine).map(|span| span.2).fold(0.0, f64::max);
    let shown = engines.iter().map(|engine| last(*engine)).fold(0.0, f64::max).min(schedule.cycles).max(1.0);
    let shown = if spans.len() > 60 { shown.min(spans[60].2 * 2.0) } else { shown };
    let mut out = format!(
        "The pipeline of one core, the first {} of {}\n",
        duration(shown / schedule.machine.clock),
        duration(schedule.seconds())
    );
    for engine in engines {
        let mut row = vec![' '; WIDE];
        for (number, (_, start, end)) in spans.iter().filter(|span| span.0 == engine).enumerate() {
            if *start >= shown {
                continue;
            }
            let cell = |time: f64| ((time / shown * WIDE as f64) as usize).min(WIDE);
            let (from, to) = (cell(*start).min(WIDE - 1), cell(*end));
            let mark = if number % 2 == 0 { '=' } else { '-' };
            row[from..to.max(from + 1).min(WIDE)].iter_mut().for_each(|cell| *cell = mark);
        }
        let row: String = row.into_iter().collect();
        let _ = writeln!(out, "  {:<10} |{row}|", device.engine(engine).name);
    }
    out
}
