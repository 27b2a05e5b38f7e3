//! `--fit` and `--explain`, as text and JSON.

use super::device::duration;
use npumem_ir::Bytes;
use npumem_ir::units::grouped;
use npumem_planner::tiling::{Explanation, Fit, Larger, Operator, Schedule};
use serde_json::{Value, json};
use std::fmt::Write as _;

fn named(operator: &Operator, sizes: &[u64]) -> String {
    let list: Vec<String> = operator.dims.iter().zip(sizes).map(|(dim, size)| format!("{}={size}", dim.name)).collect();
    list.join(" ")
}

/// One device's verdict.
#[must_use]
pub fn text(operator: &Operator, fit: &Fit) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let word = if fit.fits() { "fits" } else { "does not fit" };
    let _ = writeln!(out, "{}: {} {word}", fit.device, named(operator, &fit.tiles));
    let _ = writeln!(out, "{:<16} {:<8} {:>6} {:>14} {:>14}", "buffer", "space", "slots", "slot bytes", "total");
    for buffer in &fit.buffers {
        let total = buffer.pitch.saturating_mul(buffer.slots);
        let _ = writeln!(
            out,
            "{:<16} {:<8} {:>6} {:>14} {:>14}",
            buffer.name,
            buffer.space_name,
            buffer.slots,
            grouped(buffer.bytes),
            grouped(total)
        );
    }
    for space in &fit.spaces {
        let over = if space.over() > 0 {
            format!("  MISSES BY {}", Bytes(space.over()))
        } else {
            format!("  {} free", Bytes(space.capacity - space.used))
        };
        let _ = writeln!(out, "{:<16} {} of {}{over}", space.name, Bytes(space.used), Bytes(space.capacity));
    }
    if fit.no_feed {
        let _ = writeln!(out, "the matrix unit's own buffers do not hold one block of each side");
    }
    if let Some(nearest) = &fit.nearest {
        let _ = writeln!(out, "nearest that fits: {}", named(operator, nearest));
    } else if !fit.fits() {
        let _ = writeln!(out, "no smaller tile fits either");
    }
    let largest: Vec<String> = operator
        .dims
        .iter()
        .zip(&fit.largest)
        .map(|(dim, size)| if *size == 0 { format!("{}: none", dim.name) } else { format!("{}={size}", dim.name) })
        .collect();
    let _ = writeln!(out, "largest along each dimension, the others as given: {}", largest.join("  "));
    out
}

/// One device's verdict.
#[must_use]
pub fn json(operator: &Operator, fit: &Fit) -> Value {
    let tile = |sizes: &[u64]| -> Value {
        operator
            .dims
            .iter()
            .zip(sizes)
            .map(|(dim, size)| (dim.name.clone(), json!(size)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let buffers: Vec<Value> = fit
        .buffers
        .iter()
        .map(|buffer| json!({"name": buffer.name, "space": buffer.space_name, "slots": buffer.slots, "slot_bytes": buffer.bytes, "pitch": buffer.pitch}))
        .collect();
    let spaces: Vec<Value> = fit
        .spaces
        .iter()
        .map(|space| json!({"name": space.name, "used_bytes": space.used, "capacity_bytes": space.capacity, "missing_bytes": space.over()}))
        .collect();
    json!({"device": fit.device, "fits": fit.fits(), "tile": tile(&fit.tiles), "buffers": buffers, "spaces": spaces,
        "nearest": fit.nearest.as_ref().map(|nearest| tile(nearest)), "largest": tile(&fit.largest)})
}

/// A paragraph that says why this tile.
#[must_use]
pub fn explained(schedule: &Schedule, explanation: &Explanation) -> String {
    let clock = schedule.machine.clock;
    let mut out = String::from("Why this tile. ");
    let (limit, share) = &explanation.limit;
    let _ =
        write!(out, "What limits it is {limit}: busy {:.0} % of the {}. ", share * 100.0, duration(schedule.seconds()));
    let [compute, memory] = schedule.roofs;
    let bound = if compute >= memory { "compute" } else { "bandwidth" };
    let _ = write!(
        out,
        "The operator itself is bound by {bound} on this device ({} of compute, {} of bandwidth), so no schedule is faster than {}; this one takes {:.2} times that. ",
        duration(compute / clock),
        duration(memory / clock),
        duration(schedule.least_cycles() / clock),
        schedule.cycles / schedule.least_cycles().max(1e-9)
    );
    match explanation.single_slots {
        Some(cycles) => {
            let _ = write!(
                out,
                "With one slot for each buffer the same tiles would take {} ({:.2} times): that is what the second slots buy. ",
                duration(cycles / clock),
                cycles / schedule.cycles.max(1.0)
            );
        }
        None => out.push_str("No buffer has a second slot: nothing would be copied while the unit works. "),
    }
    for (dim, size, verdict) in &explanation.larger {
        let _ = match verdict {
            Larger::Overflows { space, over } => {
                write!(out, "A tile of {dim}={size} (one fewer) misses {space} by {}. ", Bytes(*over))
            }
            Larger::Takes(cycles) => {
                let change = 100.0 * (cycles / schedule.cycles.max(1.0) - 1.0);
                write!(out, "A tile of {dim}={size} fits and takes {} ({change:+.1} %). ", duration(cycles / clock))
            }
        };
    }
    wrapped(out.trim_end())
}

/// Lines of at most 100 columns.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        if column > 0 && column + 1 + word.len() > 100 {
            out.push('\n');
            column = 0;
        }
        if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.len();
    }
    out.push('\n');
    out
}

/// The numbers of the paragraph.
#[must_use]
pub fn explanation_json(explanation: &Explanation) -> Value {
    let larger: Vec<Value> = explanation
        .larger
        .iter()
        .map(|(dim, size, verdict)| match verdict {
            Larger::Overflows { space, over } => {
                json!({"dim": dim, "tile": size, "space": space, "missing_bytes": over})
            }
            Larger::Takes(cycles) => json!({"dim": dim, "tile": size, "cycles": cycles}),
        })
        .collect();
    json!({"limit": explanation.limit.0, "limit_share": explanation.limit.1, "single_slot_cycles": explanation.single_slots, "larger": larger})
}
