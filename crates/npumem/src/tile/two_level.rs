//! The plain machine of comparisons: DRAM, one SRAM, an array that keeps sums while they are in the SRAM.

use super::{bytes, over};
use npumem_ir::Bytes;
use npumem_planner::tiling::{Found, IoBound, OperandRole, Operator, SearchError, Slots, io_bound, two_level};
use npumem_report::text::printable;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A schedule between DRAM and one SRAM.
#[derive(Clone, Debug)]
pub struct TwoLevel {
    /// The operator.
    pub operator: Operator,
    /// Bytes of the SRAM.
    pub capacity: u64,
    /// How many slots were asked for.
    pub slots: Slots,
    /// The schedule.
    pub found: Found,
    /// The least traffic that any schedule has.
    pub bound: IoBound,
}

/// Plans an operator between DRAM and one SRAM for the least traffic.
///
/// # Errors
/// When no tile fits.
pub fn plan_two_level(operator: Operator, capacity: u64, slots: Slots) -> Result<TwoLevel, SearchError> {
    let found = two_level(&operator, capacity, slots)?;
    let bound = io_bound(&operator, capacity);
    Ok(TwoLevel { operator, capacity, slots, found, bound })
}

impl TwoLevel {
    /// As text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        let (operator, found) = (&self.operator, &self.found);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{}", printable(&operator.name));
        let _ = writeln!(
            out,
            "machine  DRAM, one SRAM of {}; second slots: {}; objective: traffic",
            Bytes(self.capacity),
            self.slots.word()
        );
        let tiles: Vec<String> = operator
            .dims
            .iter()
            .zip(&found.tiles)
            .map(|(dim, tile)| {
                let count = dim.extent.div_ceil(*tile);
                let edge = dim.extent - (count - 1) * tile;
                let edge = if edge == *tile { String::new() } else { format!(", the last {edge}") };
                format!("{}={tile} of {} (x{count}{edge})", dim.name, dim.extent)
            })
            .collect();
        let _ = writeln!(out, "tiles    {}", tiles.join("  "));
        let order: Vec<&str> = found.order.iter().map(|dim| operator.dims[*dim].name.as_str()).collect();
        let order = if order.is_empty() { "one tile: no loop".to_owned() } else { order.join(" > ") };
        let _ = writeln!(out, "loops    {order} (outermost first)");
        let _ =
            writeln!(out, "\n{:<12} {:>6} {:>14} {:>16} {:>16}", "buffer", "slots", "slot bytes", "read", "written");
        for (at, operand) in operator.operands.iter().enumerate() {
            let _ = writeln!(
                out,
                "{:<12} {:>6} {:>14} {:>16} {:>16}",
                operand.name,
                found.slots[at],
                npumem_ir::units::grouped(found.slot_bytes[at]),
                npumem_ir::units::grouped(found.read[at]),
                npumem_ir::units::grouped(found.written[at]),
            );
        }
        let taken = found.taken[0];
        let _ = writeln!(
            out,
            "\nSRAM     {} of {} ({:.1} %)",
            Bytes(taken),
            Bytes(self.capacity),
            100.0 * taken as f64 / self.capacity as f64
        );
        let traffic = found.traffic();
        let _ = writeln!(out, "traffic  {}, {} the bound", bytes(traffic), over(traffic, self.bound.bytes));
        let _ = writeln!(out, "bound    {} = {}", bytes(self.bound.bytes), self.bound.formula);
        let _ = writeln!(out, "         {} compulsory; source: {}", bytes(self.bound.compulsory), self.bound.source);
        let proof = if found.proven {
            "best of all rectangular schedules (exhaustive, pruned without loss)".to_owned()
        } else {
            format!("the search ended at its budget: at most {} from the best", over(traffic, self.bound.bytes))
        };
        let _ = writeln!(out, "search   {} nodes; {proof}", npumem_ir::units::grouped(found.work));
        out
    }

    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let (operator, found) = (&self.operator, &self.found);
        let operands: Vec<Value> = operator
            .operands
            .iter()
            .enumerate()
            .map(|(at, operand)| {
                json!({
                    "name": operand.name, "element": operand.element.name(),
                    "role": role(operand.role), "slots": found.slots[at], "slot_bytes": found.slot_bytes[at],
                    "read_bytes": found.read[at], "written_bytes": found.written[at],
                })
            })
            .collect();
        let dims: Vec<Value> = operator
            .dims
            .iter()
            .zip(&found.tiles)
            .map(|(dim, tile)| json!({"name": dim.name, "extent": dim.extent, "tile": tile}))
            .collect();
        json!({
            "format": "npumem-tile", "version": 1, "operator": operator.name,
            "machine": {"kind": "two-level", "sram_bytes": self.capacity, "slots": self.slots.word()},
            "objective": "traffic", "dims": dims,
            "order": found.order.iter().map(|dim| operator.dims[*dim].name.clone()).collect::<Vec<_>>(),
            "operands": operands, "sram_taken_bytes": found.taken[0],
            "traffic_bytes": found.traffic().to_string().parse::<u64>().ok(),
            "bound": bound_json(&self.bound), "proven": found.proven, "work": found.work,
        })
    }
}

pub(super) fn role(role: OperandRole) -> &'static str {
    match role {
        OperandRole::Input => "input",
        OperandRole::Late => "late input",
        OperandRole::Output => "output",
        OperandRole::Temporary => "workspace",
    }
}

pub(super) fn bound_json(bound: &IoBound) -> Value {
    json!({
        "bytes": u64::try_from(bound.bytes).ok(), "compulsory_bytes": u64::try_from(bound.compulsory).ok(),
        "capacity_term_bytes": u64::try_from(bound.capacity_term).ok(), "formula": bound.formula, "source": bound.source,
    })
}
