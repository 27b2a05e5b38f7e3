//! A schedule on a device, as text and JSON.

use super::two_level::{bound_json, role};
use super::{bytes, over};
use npumem_ir::Bytes;
use npumem_ir::units::grouped;
use npumem_planner::tiling::{LinkTraffic, OperandRole, Schedule};
use npumem_report::text::printable;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// `123.4 us` or `1.234 ms`.
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.3} ms", s * 1e3),
        s => format!("{:.2} us", s * 1e6),
    }
}

/// `m=128 n=256 k=64`.
pub(super) fn dims(schedule: &Schedule, sizes: &[u64]) -> String {
    let list: Vec<String> =
        schedule.operator.dims.iter().zip(sizes).map(|(dim, size)| format!("{}={size}", dim.name)).collect();
    list.join(" ")
}

/// The schedule as text.
#[must_use]
pub fn text(schedule: &Schedule) -> String {
    let mut out = String::new();
    let (operator, found, machine) = (&schedule.operator, &schedule.found, &schedule.machine);
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{}", printable(&operator.name));
    let _ = writeln!(
        out,
        "device   {}: {} of {} cores; objective: {}",
        machine.device,
        schedule.cores,
        machine.cores,
        schedule.goal.word()
    );
    let cut: Vec<String> = operator
        .dims
        .iter()
        .zip(&schedule.parts)
        .filter(|(_, parts)| **parts > 1)
        .map(|(dim, parts)| format!("{} / {parts}", dim.name))
        .collect();
    let cut = if cut.is_empty() { "all on one core".to_owned() } else { cut.join(", ") };
    let _ = writeln!(out, "cut      {cut}; the largest block: {}", dims(schedule, &schedule.block));
    let _ = writeln!(out, "tile     {}{}", dims(schedule, &found.tiles), edges(schedule));
    let order: Vec<String> = found
        .order
        .iter()
        .map(|dim| format!("{} x{}", operator.dims[*dim].name, schedule.block[*dim].div_ceil(found.tiles[*dim])))
        .collect();
    let order = if order.is_empty() { "one tile a core: no loop".to_owned() } else { order.join(" > ") };
    let turned: Vec<&str> = schedule.back_and_forth.iter().map(|dim| operator.dims[*dim].name.as_str()).collect();
    let turned = if turned.is_empty() { String::new() } else { format!("; {} back and forth", turned.join(", ")) };
    let _ = writeln!(out, "loops    {order} (outermost first{turned})");
    if let Some(feed) = schedule.feed.filter(|feed| feed.slots[0] > 0) {
        let [m, k, n] = feed.step;
        let _ = writeln!(
            out,
            "feed     steps of rows={m} depth={k} columns={n}, {} for a tile, {} slot(s) each side",
            feed.steps, feed.slots[0]
        );
    }
    let _ = writeln!(
        out,
        "\n{:<16} {:<6} {:>10} {:>6} {:>12} {:>12} {:>14} {:>14}",
        "buffer", "space", "offset", "slots", "slot bytes", "total", "read/core", "written/core"
    );
    let mut shown = vec![false; operator.operands.len()];
    for buffer in &schedule.buffers {
        let first = !std::mem::replace(&mut shown[buffer.operand], true);
        let moved = |list: &[u64]| if first { grouped(list[buffer.operand]) } else { String::new() };
        let _ = writeln!(
            out,
            "{:<16} {:<6} {:>10} {:>6} {:>12} {:>12} {:>14} {:>14}",
            buffer.name,
            buffer.space_name,
            buffer.offset,
            buffer.slots,
            grouped(buffer.bytes),
            grouped(buffer.pitch.saturating_mul(buffer.slots)),
            moved(&found.read),
            moved(&found.written),
        );
    }
    let _ = writeln!(out);
    for (name, used, capacity) in spaces(schedule) {
        let _ = writeln!(
            out,
            "{name:<8} {} of {} ({:.1} %)",
            Bytes(used),
            Bytes(capacity),
            100.0 * used as f64 / capacity.max(1) as f64
        );
    }
    let _ = writeln!(out, "\n{:<28} {:>34} {:>34} {:>8}", "traffic, all cores", "bytes", "bound", "ratio");
    for link in &schedule.links {
        let (bound, ratio) = match &link.bound {
            Some(bound) => (bytes(bound.bytes), over(link.bytes, bound.bytes)),
            None => (String::new(), String::new()),
        };
        let _ = writeln!(out, "{:<28} {:>34} {:>34} {:>8}", link.name, bytes(link.bytes), bound, ratio);
    }
    for link in &schedule.links {
        if let Some(bound) = &link.bound {
            let _ = writeln!(out, "  bound of {}: {}\n    source: {}", link.name, bound.formula, bound.source);
        }
    }
    out.push('\n');
    out.push_str(&time(schedule));
    for note in &schedule.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

fn time(schedule: &Schedule) -> String {
    let mut out = String::new();
    let (time, clock) = (&schedule.time, schedule.machine.clock);
    let cycles =
        |cycles: f64| format!("{:>12} cycles  {:>10}", grouped(cycles.round() as u64), duration(cycles / clock));
    let _ = writeln!(
        out,
        "time     {}  (followed copy by copy; closed form {})",
        cycles(schedule.cycles),
        grouped(time.total.round() as u64)
    );
    for (name, value) in [
        ("unit and its feed", time.unit),
        ("copies in", time.loads),
        ("copies out", time.stores),
        ("slots coming round", time.rounds),
        ("main memory", time.main),
        ("cache", time.cache),
        ("fill and drain", time.fill + time.drain),
    ] {
        if value > 0.0 {
            let _ =
                writeln!(out, "  {name:<18} {}  {:>5.1} %", cycles(value), 100.0 * value / schedule.cycles.max(1.0));
        }
    }
    let [compute, memory] = schedule.roofs;
    let _ = writeln!(
        out,
        "rooflines: compute {}, bandwidth {}; the schedule takes {:.3}x the larger",
        duration(compute / clock),
        duration(memory / clock),
        schedule.cycles / schedule.least_cycles().max(1e-9)
    );
    let (searched, many) = schedule.partitions;
    let proof = if schedule.found.proven { "each exhaustively" } else { "each to its budget" };
    let _ = writeln!(
        out,
        "search   {} nodes; {searched} of {many} ways to cut over the cores, {proof}",
        grouped(schedule.work)
    );
    out
}

fn edges(schedule: &Schedule) -> String {
    let list: Vec<String> = schedule
        .operator
        .dims
        .iter()
        .zip(schedule.block.iter().zip(&schedule.found.tiles))
        .filter(|(_, (block, tile))| *block % *tile != 0)
        .map(|(dim, (block, tile))| format!("{}={}", dim.name, block % tile))
        .collect();
    if list.is_empty() { String::new() } else { format!("  (edge tiles: {})", list.join(" ")) }
}

/// Every space with the bytes that buffers take, and its capacity.
pub(super) fn spaces(schedule: &Schedule) -> Vec<(String, u64, u64)> {
    let mut list: Vec<(String, u64, u64)> = Vec::new();
    let machine = &schedule.machine;
    for buffer in &schedule.buffers {
        let end = buffer.offset.saturating_add(buffer.pitch.saturating_mul(buffer.slots));
        let rooms = [&machine.left, &machine.right, &machine.out]
            .into_iter()
            .flat_map(|route| route.stage.iter().chain([&route.near]));
        let room = rooms.into_iter().find(|room| room.space == buffer.space);
        let (start, capacity) = room.map_or((0, 0), |room| (room.start, room.whole));
        match list.iter_mut().find(|(name, ..)| *name == buffer.space_name) {
            Some((_, used, _)) => *used = (*used).max(end - start),
            None => list.push((buffer.space_name.clone(), end - start, capacity)),
        }
    }
    list
}

/// The schedule as JSON.
#[must_use]
pub fn json(schedule: &Schedule) -> Value {
    let (operator, found, machine, time) = (&schedule.operator, &schedule.found, &schedule.machine, &schedule.time);
    let dims: Vec<Value> = operator
        .dims
        .iter()
        .enumerate()
        .map(|(at, dim)| {
            json!({"name": dim.name, "extent": dim.extent, "cores": schedule.parts[at], "block": schedule.block[at],
                "tile": found.tiles[at], "count": schedule.block[at].div_ceil(found.tiles[at])})
        })
        .collect();
    let operands: Vec<Value> = operator
        .operands
        .iter()
        .enumerate()
        .filter(|(_, operand)| operand.role != OperandRole::Temporary)
        .map(|(at, operand)| {
            json!({"name": operand.name, "element": operand.element.name(), "role": role(operand.role),
                "bytes": operand.bytes(), "read_bytes_per_core": found.read[at], "written_bytes_per_core": found.written[at]})
        })
        .collect();
    let buffers: Vec<Value> = schedule
        .buffers
        .iter()
        .map(|buffer| {
            json!({"name": buffer.name, "operand": operator.operands[buffer.operand].name, "space": buffer.space_name,
                "offset": buffer.offset, "slots": buffer.slots, "slot_bytes": buffer.bytes, "pitch": buffer.pitch})
        })
        .collect();
    let feed = schedule.feed.filter(|feed| feed.slots[0] > 0).map(|feed| {
        json!({"rows": feed.step[0], "depth": feed.step[1], "columns": feed.step[2], "steps_per_tile": feed.steps, "slots": feed.slots})
    });
    let spaces: Vec<Value> = spaces(schedule)
        .into_iter()
        .map(|(name, used, capacity)| json!({"name": name, "used_bytes": used, "capacity_bytes": capacity}))
        .collect();
    json!({
        "format": "npumem-tile", "version": 1, "operator": operator.name, "kind": operator.kind.word(),
        "machine": {"kind": "device", "device": machine.device, "cores": machine.cores, "clock_hz": machine.clock},
        "objective": schedule.goal.word(), "cores_used": schedule.cores, "dims": dims,
        "order": found.order.iter().map(|dim| operator.dims[*dim].name.clone()).collect::<Vec<_>>(),
        "back_and_forth": schedule.back_and_forth.iter().map(|dim| operator.dims[*dim].name.clone()).collect::<Vec<_>>(),
        "slots": schedule.slots.word(), "feed": feed, "operands": operands, "buffers": buffers, "spaces": spaces,
        "links": schedule.links.iter().map(link).collect::<Vec<_>>(),
        "time": {"cycles": schedule.cycles, "closed_form_cycles": time.total, "slot_round_cycles": time.rounds, "seconds": schedule.seconds(), "unit_cycles": time.unit, "load_cycles": time.loads,
            "store_cycles": time.stores, "main_memory_cycles": time.main, "cache_cycles": time.cache,
            "fill_cycles": time.fill, "drain_cycles": time.drain},
        "rooflines": {"compute_cycles": schedule.roofs[0], "bandwidth_cycles": schedule.roofs[1],
            "compulsory_bytes": u64::try_from(operator.compulsory_bytes()).ok(), "ratio": schedule.cycles / schedule.least_cycles().max(1e-9)},
        "spans": schedule.spans.iter().take(200).map(|(engine, start, end)| json!([engine.0, start, end])).collect::<Vec<_>>(),
        "search": {"nodes": schedule.work, "partitions_searched": schedule.partitions.0, "partitions": schedule.partitions.1, "proven": found.proven},
        "notes": schedule.notes,
    })
}

fn link(link: &LinkTraffic) -> Value {
    json!({"name": link.name, "bytes": u64::try_from(link.bytes).ok(), "bound": link.bound.as_ref().map(bound_json),
        "ratio": link.bound.as_ref().map(|bound| link.bytes as f64 / bound.bytes.max(1) as f64)})
}
