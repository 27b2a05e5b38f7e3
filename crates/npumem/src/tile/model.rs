//! Every operator of a model, each with its schedule: `npumem plan model.onnx --tiles`.

use super::device::duration;
use super::node::{Node, operator};
use npumem_ir::graph::Graph;
use npumem_ir::units::grouped;
use npumem_ir::{Device, OperatorId};
use npumem_planner::tiling::{Goal, Schedule, TileError, schedule};
use npumem_report::text::printable;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One operator of the model.
#[derive(Clone, Debug)]
pub struct Row {
    /// The node's name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its schedule, or why it has none.
    pub schedule: Result<Box<Schedule>, String>,
}

/// Schedules of a whole model, operator by operator.
#[derive(Clone, Debug)]
pub struct ModelTiles {
    /// The model.
    pub name: String,
    /// The device.
    pub device: String,
    /// Operators with a schedule, or with a reason for none, in order.
    pub rows: Vec<Row>,
    /// Nodes that only move bytes, or nothing.
    pub moves: usize,
    /// Searches; equal operators share one.
    pub searched: usize,
}

/// Schedules of every operator of a graph.
#[must_use]
pub fn tiles(name: &str, graph: &Graph, device: &Device, goal: Goal) -> ModelTiles {
    let mut known: BTreeMap<String, Result<Box<Schedule>, String>> = BTreeMap::new();
    let mut all =
        ModelTiles { name: name.to_owned(), device: device.name.clone(), rows: Vec::new(), moves: 0, searched: 0 };
    for (at, node) in graph.operators.iter().enumerate() {
        let found = match operator(graph, OperatorId::new(at)) {
            Node::Moves => {
                all.moves += 1;
                continue;
            }
            Node::Unknown(why) => Err(why),
            Node::Tiled(operator) => {
                // What the operator is, without the node's name.
                let key = format!("{:?} {:?} {:?}", operator.dims, operator.operands, operator.epilogue);
                match known.get(&key) {
                    Some(found) => found.clone(),
                    None => {
                        all.searched += 1;
                        let found = schedule(&operator, device, goal)
                            .map(Box::new)
                            .map_err(|error: TileError| error.to_string());
                        known.insert(key, found.clone());
                        found
                    }
                }
            }
        };
        all.rows.push(Row { name: node.name.clone(), kind: node.kind.clone(), schedule: found });
    }
    all
}

impl ModelTiles {
    /// Seconds of all operators one after another, and the sum of their rooflines.
    #[must_use]
    pub fn seconds(&self) -> (f64, f64) {
        let done = || self.rows.iter().filter_map(|row| row.schedule.as_ref().ok());
        (done().map(|one| one.seconds()).sum(), done().map(|one| one.least_cycles() / one.machine.clock).sum())
    }

    /// As text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{} on {}: {} operators with a schedule of their own, {} that only move bytes",
            printable(&self.name),
            self.device,
            self.rows.iter().filter(|row| row.schedule.is_ok()).count(),
            self.moves
        );
        let _ = writeln!(
            out,
            "\n{:<28} {:<14} {:>5} {:<44} {:>12} {:>8} {:>10}",
            "operator", "kind", "cores", "tile", "time", "x roof", "cycles"
        );
        for row in &self.rows {
            let name: String = printable(&row.name).chars().take(28).collect();
            let _ = match &row.schedule {
                Ok(one) => {
                    let tile: Vec<String> = one
                        .operator
                        .dims
                        .iter()
                        .zip(&one.found.tiles)
                        .map(|(dim, tile)| format!("{}={tile}", dim.name))
                        .collect();
                    let tile: String = tile.join(" ").chars().take(44).collect();
                    writeln!(
                        out,
                        "{name:<28} {:<14} {:>5} {tile:<44} {:>12} {:>8.2} {:>10}",
                        row.kind,
                        one.cores,
                        duration(one.seconds()),
                        one.cycles / one.least_cycles().max(1e-9),
                        grouped(one.cycles.round() as u64)
                    )
                }
                Err(why) => writeln!(out, "{name:<28} {:<14} {why}", row.kind),
            };
        }
        let (all, least) = self.seconds();
        let _ = writeln!(
            out,
            "\none after another: {}; sum of the rooflines: {} ({:.2}x); {} searches (equal operators share one)",
            duration(all),
            duration(least),
            all / least.max(1e-12),
            self.searched
        );
        out
    }

    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| match &row.schedule {
                Ok(one) => json!({"name": row.name, "kind": row.kind, "schedule": super::device::json(one)}),
                Err(why) => json!({"name": row.name, "kind": row.kind, "none": why}),
            })
            .collect();
        let (all, least) = self.seconds();
        json!({"format": "npumem-tiles", "version": 1, "model": self.name, "device": self.device, "operators": rows,
            "moves": self.moves, "searches": self.searched, "seconds": all, "roofline_seconds": least})
    }
}
