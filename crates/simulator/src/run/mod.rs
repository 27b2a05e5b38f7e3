//! Runs a program on a device description: how long it takes, who is busy, who waits and for what.
//!
//! ```text
//!   program --walk--> statements --schedule--> engines in time --> totals, and events for a sink
//!                        |                        |
//!                  bytes of each access     cost from the device's figures (`cost`), shared memories (`flows`),
//!                     (`touch`, `region`)   the cache that fills itself (`cache`)
//! ```
//!
//! Nothing here reads a clock: the same program, device and options give the same result.

mod banks;
mod cache;
mod cost;
mod engine;
mod error;
mod flows;
mod hbm;
mod machine;
mod outcome;
mod region;
mod schedule;
pub mod shadow;
mod sink;
mod stuck;
mod totals;
mod touch;
pub mod values;
mod walk;

#[cfg(test)]
mod tests;

pub use crate::dram::Detail;
pub use banks::Conflict;
pub use error::RunError;
pub use outcome::{
    Cause, DramChannel, DramTotals, End, EngineTotals, LinkTotals, OrderUsed, Outcome, SpaceTotals, StepTotals, Stuck,
};
pub use region::{MAX_DIMS, Region};
pub use sink::{Beginning, Kept, Nothing, Several, Sink, Span};
pub use touch::{NOWHERE, Places, Shape, Touch, bytes_of, element_bytes};

use machine::Machine;
use npumem_ir::Device;
use npumem_ir::ScalarId;
use npumem_ir::program::{Program, ScalarKind, Step, Sync, Values};
use schedule::{Scheduler, Setup};
use std::collections::BTreeSet;

/// The most blocks of a grid.
pub const MAX_BLOCKS: u64 = 1 << 20;

/// Where the order between engines comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// From the program's own flags, tokens and barriers when it has them, else from the bytes.
    #[default]
    Auto,
    /// From the bytes that statements read and write.
    Ranges,
    /// From the program's own flags, tokens and barriers alone.
    Program,
}

/// How to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Blocks of the grid; without it the program's own extent, or one for each core, or one.
    pub blocks: Option<u64>,
    /// Cores that run them; without it all that the device has.
    pub cores: Option<u64>,
    /// Where the order between engines comes from.
    pub order: Order,
    /// Statements that a queue holds before the core that issues them must wait.
    pub queue_depth: usize,
    /// How closely the main memory is simulated.
    pub detail: Detail,
    /// Steps that are run before an endless loop is given up.
    pub max_steps: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            blocks: None,
            cores: None,
            order: Order::Auto,
            queue_depth: 32,
            detail: Detail::Fast,
            max_steps: 200_000_000,
        }
    }
}

/// Runs the program; events go to the sink as they happen.
///
/// # Errors
/// [`RunError`]: the program breaks a rule, the device lacks a figure or a way, an argument has no value. A deadlock
/// or a bound that was reached is no error: see [`Outcome::end`].
pub fn run(program: &Program, device: &Device, options: &Options, sink: &mut dyn Sink) -> Result<Outcome, RunError> {
    let structure = program.structure()?;
    let mut machine = Machine::new(program, device)?;
    machine.detailed = options.detail == Detail::Detailed;
    let grid = Grid::new(program, options, machine.cores)?;
    let order = match options.order {
        Order::Ranges => OrderUsed::Ranges,
        Order::Program => OrderUsed::Program,
        Order::Auto if states_order(program) => OrderUsed::Program,
        Order::Auto => OrderUsed::Ranges,
    };
    let cores = options.cores.unwrap_or(machine.cores).clamp(1, grid.blocks.max(1)).min(MAX_CORES);
    let start = |block| grid.values(program, block);
    let setup = Setup {
        machine: &machine,
        program,
        ground: walk::Ground { program, structure, budget: options.max_steps, assumed: BTreeSet::new() },
        order,
        depth: options.queue_depth.max(1),
        start: &start,
        blocks: grid.blocks,
        cores,
    };
    let mut scheduler = Scheduler::new(setup, sink)?;
    for space in machine.unplaced.iter().filter(|_| machine.detailed) {
        let name = &device.space(*space).name;
        scheduler
            .ground
            .assumed
            .insert(format!("no bank of {name} is asked for twice at once: its buffers have no addresses"));
    }
    scheduler.run()?;
    let end = if scheduler.out_of_steps {
        End::Limit { steps: options.max_steps }
    } else if scheduler.cores.iter().any(|core| !core.over) {
        End::Deadlock { waits: stuck::explain(&scheduler) }
    } else {
        End::Complete
    };
    let cycles = scheduler.now;
    scheduler.totals.settle(&mut scheduler.cores, cycles);
    Ok(Outcome {
        program: program.name.clone(),
        device: device.name.clone(),
        clock_hz: machine.clock,
        cycles,
        blocks: scheduler.next_block,
        cores,
        statements: scheduler.totals.statements,
        order,
        end,
        links: scheduler.totals.links(&machine),
        spaces: scheduler.totals.spaces(&machine),
        dram: scheduler.hbm.as_ref().map(hbm::Hbm::totals),
        engines: std::mem::take(&mut scheduler.totals.engines),
        steps: std::mem::take(&mut scheduler.totals.steps),
        assumed: std::mem::take(&mut scheduler.ground.assumed).into_iter().collect(),
        most_in_flight: scheduler.totals.most_in_flight,
    })
}

/// Cores that are told apart; no described device has so many.
const MAX_CORES: u64 = 4096;

/// Whether the program says itself which engine waits for which.
#[must_use]
pub fn states_order(program: &Program) -> bool {
    program.steps.iter().any(|step| {
        let Step::Sync(sync) = step else { return false };
        matches!(sync, Sync::SetFlag { .. } | Sync::WaitFlag { .. } | Sync::Acquire { .. } | Sync::Barrier(None))
    })
}

/// The grid: how many blocks, and what each of them is told.
struct Grid {
    blocks: u64,
    /// Blocks that share one index of the outer grid: the vector cores beside one matrix core.
    inner: u64,
    outer_index: Vec<ScalarId>,
    inner_index: Vec<ScalarId>,
    counts: Vec<(ScalarId, i64)>,
}

impl Grid {
    fn new(program: &Program, options: &Options, cores: u64) -> Result<Self, RunError> {
        let mut grid =
            Grid { blocks: 1, inner: 1, outer_index: Vec::new(), inner_index: Vec::new(), counts: Vec::new() };
        let mut extent = None;
        for (index, scalar) in program.scalars.iter().enumerate() {
            let ScalarKind::Grid(known) = scalar.kind else { continue };
            if scalar.name.contains("subblock") {
                grid.inner_index.push(ScalarId::new(index));
                grid.inner = known.unwrap_or(2).max(1);
            } else {
                grid.outer_index.push(ScalarId::new(index));
                extent = extent.max(known);
            }
        }
        let asks = !grid.outer_index.is_empty();
        let outer = match (options.blocks, extent) {
            (Some(blocks), _) => blocks.max(1),
            (None, Some(extent)) => extent.max(1),
            (None, None) if asks => cores.div_ceil(grid.inner).max(1),
            (None, None) => 1,
        };
        grid.blocks = outer.saturating_mul(grid.inner);
        if grid.blocks > MAX_BLOCKS {
            return Err(RunError::Grid { blocks: grid.blocks, most: MAX_BLOCKS });
        }
        for (index, scalar) in program.scalars.iter().enumerate() {
            if matches!(scalar.kind, ScalarKind::Argument(None)) {
                let count = match scalar.name.as_str() {
                    "get_block_num" => outer,
                    "get_subblock_num" => grid.inner,
                    _ => continue,
                };
                grid.counts.push((ScalarId::new(index), i64::try_from(count).unwrap_or(i64::MAX)));
            }
        }
        Ok(grid)
    }

    fn values(&self, program: &Program, block: u64) -> Values {
        let mut values = Values::new(program);
        let number = |value: u64| Some(i64::try_from(value).unwrap_or(i64::MAX));
        self.outer_index.iter().for_each(|id| values.set(*id, number(block / self.inner)));
        self.inner_index.iter().for_each(|id| values.set(*id, number(block % self.inner)));
        self.counts.iter().for_each(|(id, count)| values.set(*id, Some(*count)));
        values
    }
}
