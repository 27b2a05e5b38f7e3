//! The time of one core's block in closed form: what the search minimises.
//!
//! ```text
//!   inputs two slots, result two:   max(loads, unit, stores)              + first load + last store
//!   inputs two slots, result one:   max(loads, unit + stores of each tile) + first load + last store
//!   one slot each:                  loads + unit + stores
//! ```
//!
//! Beside the core's own engines, main memory and the cache carry the bytes of all cores and may be what is waited for.

use super::gemm::{Feeder, Gemm};
use super::instructions::{Instruction, Over};
use super::machine::{Hop, Machine};
use super::nest::{Nest, Slots, round_up};
use super::operator::{OperandRole, Operator, OperatorKind, Unit};
use super::search::{Leaf, Objective, Score};
use super::transfer::Shape;
use npumem_ir::ElementType;
use npumem_ir::device::Precision;
use std::cell::RefCell;

/// What is best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Goal {
    /// The least time; then the least traffic, then the fewest bytes near the unit.
    #[default]
    Time,
    /// The least traffic between main memory (or its cache) and the cores; then the least time.
    Traffic,
    /// The fewest bytes near the unit of all schedules within 5 % of the best time.
    Memory,
}

impl Goal {
    /// Its word on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Goal::Time => "time",
            Goal::Traffic => "traffic",
            Goal::Memory => "memory",
        }
    }
}

/// Cycles of one core's block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreTime {
    /// All of it.
    pub total: f64,
    /// Copies in.
    pub loads: f64,
    /// The unit, with the copies between stage and unit.
    pub unit: f64,
    /// The unit alone, waiting for nothing.
    pub alone: f64,
    /// Copies out.
    pub stores: f64,
    /// Bytes of all cores over main memory's bandwidth.
    pub main: f64,
    /// Bytes of all cores over the cache's bandwidth.
    pub cache: f64,
    /// Copies and uses of the input whose slots come round slowest.
    pub rounds: f64,
    /// Before the unit begins.
    pub fill: f64,
    /// After it ends.
    pub drain: f64,
}

/// What of a tile's time does not depend on the order of the loops.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    tiles: Vec<u64>,
    /// Bytes that move for one of each operand.
    inflation: Vec<f64>,
    /// Cycles of the unit for one tile with its feed, and alone; `None` when it cannot be fed.
    unit: Option<(f64, f64)>,
    /// Cycles before the first product of a tile.
    feed_fill: f64,
}

/// What the time of a block is made of.
#[derive(Debug)]
pub struct Timer<'a> {
    /// The whole operator.
    pub operator: &'a Operator,
    /// The operator with the extents of one core's block.
    pub block: &'a Operator,
    /// The machine.
    pub machine: &'a Machine,
    /// Feeds of the matrix unit.
    pub feeder: Option<&'a Feeder<'a>>,
    /// Rows, columns and depth.
    pub gemm: &'a Gemm,
    /// Cores at work.
    pub cores: u64,
    /// Slots.
    pub slots: Slots,
    /// Granules of the dims.
    pub granules: &'a [u64],
    /// What is best.
    pub goal: Goal,
    /// No score above this many thousandths of cycles counts (for [`Goal::Memory`]).
    pub limit: Option<u128>,
    /// Cycles that the unit needs at least.
    pub least_unit: f64,
    /// Vector instructions of a tile; none for a matrix unit.
    pub instructions: &'a [Instruction],
    /// What was found for the tiles that were looked at last.
    pub standing: RefCell<Standing>,
    /// For each operand, its bytes from the first that is touched to the last, of the whole operator.
    pub moved: Vec<f64>,
}

impl Timer<'_> {
    fn hop(&self, operand: usize) -> &Hop {
        let operand = &self.operator.operands[operand];
        let route = self.machine.route(operand.side);
        if operand.role == OperandRole::Output { &self.machine.out.hops[0] } else { &route.hops[0] }
    }

    /// The share of an operand's copies that miss in the cache, when so many bytes are copied to all cores.
    #[must_use]
    pub fn miss_share(&self, operand: usize, copied: f64) -> f64 {
        let Some((_, capacity, _)) = self.machine.cache else { return 1.0 };
        let all = self.moved[operand];
        // What is larger than the cache by itself is taken to be gone before it is read again.
        if all > capacity as f64 || copied <= 0.0 { 1.0 } else { (all / copied).min(1.0) }
    }

    /// The time of a block with these tiles, by parts; `None` when the unit cannot be fed.
    #[must_use]
    pub fn time(
        &self,
        tiles: &[u64],
        copies: &dyn Fn(usize) -> f64,
        read: &[u64],
        written: &[u64],
        slots: Slots,
    ) -> Option<CoreTime> {
        let mut standing = self.standing.borrow_mut();
        if standing.tiles != tiles {
            *standing = self.standing(tiles);
        }
        let mut time = CoreTime::default();
        let mut lines = [(npumem_ir::EngineId::new(0), f64::NAN); 8];
        let (mut first, mut waits) = (0.0_f64, 0.0_f64);
        let (together, alone) = standing.unit?;
        let (mut counts, mut all_tiles) = (1.0, 1.0);
        for (dim, tile) in tiles.iter().enumerate() {
            let (unit, extent) = (self.granules[dim], self.block.dims[dim].extent);
            counts *= round_up(extent, unit) as f64 / round_up(*tile, unit) as f64;
            all_tiles *= extent.div_ceil(*tile) as f64;
        }
        (time.unit, time.alone) = (counts * together, counts * alone);
        let use_of_one = time.unit / f64::max(all_tiles, 1.0);
        for (at, operand) in self.operator.operands.iter().enumerate() {
            if operand.role == OperandRole::Temporary {
                continue;
            }
            let hop = self.hop(at);
            let bytes = (read[at] + written[at]) as f64;
            let count = copies(at);
            let all = bytes * self.cores as f64;
            let miss = if operand.role == OperandRole::Output { 0.0 } else { self.miss_share(at, all) };
            let inflation = standing.inflation[at];
            let per_byte = inflation * ((1.0 - miss) / hop.hit_rate + miss / hop.rate);
            let large = (bytes / count.max(1.0) / hop.largest as f64).ceil().max(1.0);
            let latency = hop.latency[0] * (1.0 - miss) + hop.latency[1] * miss;
            let alone = hop.startup * large + bytes / count.max(1.0) * per_byte;
            // While its bytes are on the way a copy holds one of the places that the engine has for them.
            let cycles = count * alone.max((alone + latency) / hop.outstanding as f64);
            let of_main =
                if self.machine.cache.is_some() && operand.role != OperandRole::Output { all * miss } else { all };
            time.main += of_main * inflation.min(4.0) / self.machine.main_rate;
            if let Some((_, _, rate)) = self.machine.cache {
                time.cache += all / rate;
            }
            if operand.role == OperandRole::Output {
                time.stores += cycles;
                time.drain = cycles / count.max(1.0) + hop.latency[1];
            } else {
                let one = cycles / count.max(1.0);
                if count > 1.0 {
                    // A slot comes free once its copy was used.
                    let slots = if slots == Slots::Single { 1.0 } else { 2.0 };
                    time.rounds = time.rounds.max(count * (alone + latency + use_of_one) / slots);
                    waits = f64::max(waits, count * (latency + use_of_one) / slots);
                }
                first = first.max(hop.latency[1]);
                time.fill += one;
                let line = lines.iter_mut().find(|(engine, sum)| *engine == hop.engine || sum.is_nan());
                if let Some((engine, sum)) = line {
                    (*engine, *sum) = (hop.engine, if sum.is_nan() { cycles } else { *sum + cycles });
                }
            }
        }
        time.fill += first;
        time.loads = lines.iter().map(|(_, cycles)| *cycles).fold(0.0, f64::max);
        time.fill = time.fill.max(standing.feed_fill + first);
        let out = self.operator.output();
        let chain = if slots == Slots::All {
            time.unit
        } else {
            // The next tile's first product waits until the sums are out.
            time.unit + time.stores + copies(out) * self.hop(out).latency[0]
        };
        let busy = match slots {
            Slots::Single => time.loads + chain,
            _ => time.loads.max(chain).max(time.stores),
        };
        // Where main memory is what all wait for, a copy takes its share of that, too.
        let slots_of = if slots == Slots::Single { 1.0 } else { 2.0 };
        time.rounds = time.rounds.max(if waits > 0.0 { time.main / slots_of + waits } else { 0.0 });
        let busy = busy.max(time.rounds);
        time.total = busy.max(time.main).max(time.cache) + time.fill + time.drain;
        Some(time)
    }

    fn standing(&self, tiles: &[u64]) -> Standing {
        let inflation = self.operator.operands.iter().enumerate().map(|(at, operand)| match operand.role {
            OperandRole::Temporary => 1.0,
            _ => Shape::of(self.operator, operand, tiles).inflation(self.hop(at)),
        });
        let mut standing = Standing { tiles: tiles.to_vec(), inflation: inflation.collect(), ..Standing::default() };
        let (Unit::Matrix, Some(feeder)) = (self.operator.unit, self.feeder) else {
            let unit = self.vector_cycles(tiles);
            standing.unit = Some((unit, unit));
            return standing;
        };
        let (mut together, mut alone) = (0.0, 0.0);
        for (size, times) in products(self.operator, self.gemm, tiles) {
            let Some(feed) = feeder.feed(size) else { return standing };
            standing.feed_fill = standing.feed_fill.max(feed.fill);
            together += feed.together * times as f64;
            alone += feed.unit * times as f64;
        }
        if let (OperatorKind::Attention, Some(softmax)) = (self.operator.kind, &self.machine.softmax) {
            // Scores, softmax and the second product follow each other.
            let [m, k, ..] = self.gemm.size(tiles);
            together += softmax.softmax_cycles(m * k);
        }
        standing.unit = Some((together, alone));
        standing
    }

    /// Cycles that a block needs at least when its operands read and write so much.
    #[must_use]
    pub fn least_cycles(&self, read: &[u64], written: &[u64]) -> f64 {
        let mut lines = [(npumem_ir::EngineId::new(0), 0.0_f64); 8];
        let (mut loads, mut first, mut fill, mut drain) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
        let (mut all, mut outwards) = (0.0, 0.0);
        for (at, operand) in self.operator.operands.iter().enumerate() {
            if operand.role == OperandRole::Temporary {
                continue;
            }
            let hop = self.hop(at);
            let bytes = (read[at] + written[at]) as f64;
            all += bytes;
            if operand.role == OperandRole::Output {
                outwards += bytes;
                drain = hop.startup + hop.latency[1];
                continue;
            }
            first = first.max(hop.latency[1]);
            fill += hop.startup;
            let line = lines.iter_mut().find(|(engine, sum)| *engine == hop.engine || *sum == 0.0);
            if let Some((engine, sum)) = line {
                (*engine, *sum) = (hop.engine, *sum + bytes / hop.hit_rate.max(hop.rate));
                loads = loads.max(*sum);
            }
        }
        let cores = self.cores as f64;
        let main = if self.machine.cache.is_some() { outwards * cores } else { all * cores } / self.machine.main_rate;
        let cache = self.machine.cache.map_or(0.0, |(_, _, rate)| all * cores / rate);
        loads.max(self.least_unit).max(main).max(cache) + first + fill + drain
    }

    /// Cycles of the vector unit for one tile.
    #[must_use]
    pub fn vector_cycles(&self, tiles: &[u64]) -> f64 {
        let elements = |at: usize| -> u64 {
            let axes = self.operator.operands[at].axes.iter();
            axes.map(|axis| match axis.as_plain() {
                Some(dim) => tiles[dim].min(axis.extent),
                None if axis.terms.is_empty() => axis.extent,
                None => {
                    let (first, end) = axis.touched(&|dim| (0, tiles[dim]));
                    end - first
                }
            })
            .product()
        };
        let out = self.operator.output();
        self.instructions
            .iter()
            .map(|instruction| {
                let (count, times) = match instruction.over {
                    Over::Operand(at) => (elements(at), 1),
                    Over::Points => {
                        let points: u64 = tiles.iter().product();
                        let out = elements(out).max(1);
                        (out, (points / out).max(1))
                    }
                };
                times as f64 * instruction_cycles(self.operator, self.machine, instruction, count)
            })
            .sum()
    }
}

/// Cycles of one vector instruction over so many elements.
#[must_use]
pub fn instruction_cycles(operator: &Operator, machine: &Machine, instruction: &Instruction, elements: u64) -> f64 {
    let types = || instruction.reads.iter().chain([&instruction.writes]).map(|at| operator.operands[*at].element);
    let bytes = |element: ElementType| (element.bits() / 8).max(1);
    let width = machine.vector_width.max(1);
    // The widest type decides how many elements one step covers, the slowest its pace.
    let lanes = (width / types().map(bytes).max().unwrap_or(1)).max(1);
    let paces = types().filter_map(|element| {
        let rate = machine.rates.get(&Precision::of(element)?)?;
        Some((width / bytes(element)).max(1) as f64 / rate)
    });
    // A step takes a cycle at least.
    let pace = paces.fold(f64::NAN, f64::max);
    let pace = if pace.is_nan() { lanes as f64 / machine.rate } else { pace }.max(1.0);
    let steps = elements.div_ceil(lanes);
    let starts = steps.div_ceil(machine.repeats).max(1);
    instruction.passes * (starts as f64 * machine.startup + steps as f64 * pace)
}

/// The products of one tile, rows, depth and columns, and how many of each: attention has two.
#[must_use]
pub fn products(operator: &Operator, gemm: &Gemm, tiles: &[u64]) -> Vec<([u64; 3], u64)> {
    let [m, k, n, batch] = gemm.size(tiles);
    if operator.kind != OperatorKind::Attention {
        return vec![([m, k, n], batch)];
    }
    let width = |at: usize| operator.operands[at].axes.last().map_or(1, |axis| axis.extent);
    // Scores: rows of the queries by rows of the keys; then the weights by the values.
    vec![([m, width(1), k], batch), ([m, k, width(2)], batch)]
}

/// Thousandths of cycles, as the search compares them.
fn thousandths(cycles: f64) -> u128 {
    // Beyond 64 bits nothing is told apart.
    u128::from((cycles.max(0.0) * 1000.0) as u64)
}

impl Objective for Timer<'_> {
    fn score(&self, leaf: &Leaf<'_>) -> Score {
        let nest: &Nest = leaf.nest;
        let copies = |at: usize| {
            let part = &nest.parts[at];
            let touched = leaf.picks.iter().enumerate().filter(|(dim, _)| part.touches & (1 << dim) != 0);
            let tiles: f64 = touched.map(|(dim, pick)| nest.choices[dim][*pick].count as f64).product();
            tiles * leaf.turns[at] as f64
        };
        if !self.sums_fit(leaf, leaf.tiles) {
            return [u128::MAX; 3];
        }
        let Some(time) = self.time(leaf.tiles, &copies, leaf.read, leaf.written, self.slots) else {
            return [u128::MAX; 3];
        };
        let total = thousandths(time.total);
        let traffic = leaf.traffic();
        let taken = u128::from(leaf.taken);
        match self.goal {
            Goal::Time => [total, traffic, taken],
            Goal::Traffic => [traffic, total, taken],
            Goal::Memory if self.limit.is_some_and(|limit| total > limit) => [u128::MAX; 3],
            Goal::Memory => [taken, total, traffic],
        }
    }

    fn larger_is_better(&self) -> bool {
        self.goal == Goal::Traffic
    }

    fn least(&self, read: &[u64], written: &[u64]) -> u128 {
        let bytes: u128 = read.iter().chain(written).map(|bytes| u128::from(*bytes)).sum();
        match self.goal {
            Goal::Traffic => bytes,
            Goal::Memory => 0,
            Goal::Time => thousandths(self.least_cycles(read, written)),
        }
    }
}

impl Timer<'_> {
    /// Whether the sums of a tile fit when rows of several dims are rounded up together.
    fn sums_fit(&self, leaf: &Leaf<'_>, tiles: &[u64]) -> bool {
        if self.operator.unit == Unit::Vector || self.gemm.rows.len() < 2 {
            return true;
        }
        let out = self.operator.output();
        let part = &leaf.nest.parts[out];
        let Some(pool) = part.pool else { return true };
        let [m, _, n, batch] = self.gemm.size(tiles);
        let [fm, _, fn_] = self.machine.fractal;
        let bytes = round_up(m, fm) * round_up(n, fn_) * batch * part.near_bits / 8;
        bytes.saturating_mul(leaf.nest.slots_of(part, leaf.picks, leaf.order)) <= leaf.nest.pools[pool].capacity
    }
}
