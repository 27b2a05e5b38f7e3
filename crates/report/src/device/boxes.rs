//! The hierarchy as nested boxes: the device holds its spaces and one box for each kind of core.
//!
//! ```text
//!   +-- device -------------------------------------------+
//!   | hbm   64.00 GiB   ~720 cy   ~1.60 TB/s              |
//!   |   <- ub    mte3       64 B/cy, 115 GB/s             |
//!   |   +-- aiv, 48 of them --------------------------+   |
//!   |   | ub   192.00 KiB (184.00 usable)  ...        |   |
//!   |   |   <- hbm   mte2_aiv   32 B/cy, 57.6 GB/s    |   |
//!   |   | * vector: f16 128 op/cy on ub               |   |
//!   |   +---------------------------------------------+   |
//!   +-----------------------------------------------------+
//! ```
//!
//! Under a space stand the links that fill it, `<- FROM  ENGINE  RATE`; `*` marks a compute unit.

use npumem_ir::SpaceId;
use npumem_ir::device::{CoreId, Device, Engine, Scope, Space};
use npumem_ir::units::grouped;

use super::{shown, shown_cycles, shown_rate, shown_size};
use crate::text::figures::{printable, shorten, width};

/// The lines of the picture, at most `room` columns wide.
pub fn picture(device: &Device, room: usize) -> Vec<String> {
    let inner = room.saturating_sub(6);
    let mut inside = spaces(device, |scope| *scope == Scope::Device);
    inside.extend(units(device, None));
    for (id, space) in device.spaces() {
        if let Scope::Cluster(count) = &space.scope {
            let title = format!("cluster, {} of them", shown(count, |count| grouped(*count)));
            inside.extend(frame(&title, &space_lines(device, id, space), inner.saturating_sub(4)));
        }
    }
    for (core, index) in device.cores.iter().zip(0..) {
        let id = CoreId(index);
        let mut lines = spaces(device, |scope| *scope == Scope::Core(id));
        lines.extend(units(device, Some(id)));
        let title = format!("{}, {} of them", printable(&core.name), shown(&core.count, |count| grouped(*count)));
        inside.extend(frame(&title, &lines, inner.saturating_sub(4)));
    }
    frame("device", &inside, inner).into_iter().map(|line| format!("  {line}")).collect()
}

fn spaces(device: &Device, of: impl Fn(&Scope) -> bool) -> Vec<String> {
    device
        .spaces()
        .filter(|(_, space)| of(&space.scope))
        .flat_map(|(id, space)| space_lines(device, id, space))
        .collect()
}

fn space_lines(device: &Device, id: SpaceId, space: &Space) -> Vec<String> {
    let mut size = shown_size(&space.capacity);
    if space.usable.known().is_some() && space.usable.known() != space.capacity.known() {
        size.push_str(&format!(" ({} usable)", shown_size(&space.usable)));
    }
    let mut lines = vec![format!(
        "{:<6} {:<10}  {size}  {}  {}",
        printable(&space.name),
        space.kind.text(),
        shown_cycles(&space.latency),
        shown_rate(device, &space.bandwidth)
    )];
    for link in device.links.iter().filter(|link| link.to == id) {
        let from = printable(&device.space(link.from).name);
        let engine = printable(&device.engine(link.engine).name);
        lines.push(format!("   <- {from:<6} {engine:<10} {}", shown_rate(device, &link.rate)));
    }
    lines
}

/// The compute units of a kind of core, or those that the device shares.
fn units(device: &Device, core: Option<CoreId>) -> Vec<String> {
    device.engines.iter().filter(|engine| engine.core == core).filter_map(|engine| unit_line(device, engine)).collect()
}

fn unit_line(device: &Device, engine: &Engine) -> Option<String> {
    let unit = engine.compute.as_ref()?;
    let mut line = format!("* {}", printable(&engine.name));
    if let Some(count) = &engine.count {
        line.push_str(&format!(" x{}", shown(count, |count| grouped(*count))));
    }
    let rates: Vec<String> = unit
        .operations_per_cycle
        .iter()
        .map(|(precision, rate)| format!("{precision} {}", shown(rate, |rate| rate.to_string())))
        .collect();
    if !rates.is_empty() {
        line.push_str(&format!(": {} op/cy", rates.join(", ")));
    }
    let names = |ids: &[SpaceId]| -> Vec<String> {
        ids.iter().map(|id| printable(&device.space(*id).name).into_owned()).collect()
    };
    if !unit.reads.is_empty() {
        line.push_str(&format!("; {} -> {}", names(&unit.reads).join(" "), names(&unit.writes).join(" ")));
    }
    Some(line)
}

/// Lines in a box of `inner` columns between its walls.
fn frame(title: &str, lines: &[String], inner: usize) -> Vec<String> {
    let title = shorten(title, inner.saturating_sub(4)).into_owned();
    let rest = inner.saturating_sub(width(&title) + 2);
    let mut framed = vec![format!("+-- {title} {}+", "-".repeat(rest))];
    for line in lines {
        let line = shorten(line, inner);
        let padding = " ".repeat(inner.saturating_sub(width(&line)));
        framed.push(format!("| {line}{padding} |"));
    }
    framed.push(format!("+{}+", "-".repeat(inner + 2)));
    framed
}
