//! The time of a schedule, copy by copy: each engine in order, each buffer with its slots.
//!
//! ```text
//!   copies in   |A0|B0|A1|B1|     |A2|B2|         a copy begins when its engine is free, its slot is no longer read,
//!   feed           |a0|b0|a1|b1|  ...             and fewer copies are under way than the engine can have
//!   unit              |--0--|--1--|  ...          a product begins when both its sides are there and its sums are free
//!   copies out                    |C0|
//! ```
//!
//! One core is followed, the one with the largest block. What the cores share (main memory, the cache) makes each copy
//! longer by the share that a core gets while all of them copy. Long schedules are followed for some thousand tiles and
//! continued at the pace of the last half.

use super::instructions::{Instruction, Over};
use super::machine::Hop;
use super::objective::{Timer, instruction_cycles, products};
use super::operator::{DimRole, OperandRole, OperatorKind, Unit};
use super::search::Found;
use super::transfer::Shape;
use npumem_ir::EngineId;
use std::collections::BTreeMap;

/// Tiles that are followed one by one.
const MAX_TILES: u64 = 3000;
/// Statements that wait in the queue of one engine.
const QUEUE: usize = 32;

/// An engine: when it is free, what is under way, what waits.
#[derive(Clone, Debug, Default)]
struct Line {
    free: f64,
    /// When each of the last transfers ends, oldest first.
    under_way: Vec<f64>,
    /// When each of the last statements started.
    started: Vec<f64>,
    at: usize,
    busy: f64,
}

/// A memory that all cores share, as one core sees it: its part of the bandwidth, busy in some stretches of time.
#[derive(Clone, Debug, Default)]
struct Shared {
    /// Busy stretches, in order, apart.
    busy: Vec<(f64, f64)>,
}

/// Busy stretches that are kept: older ones no transfer reaches back to.
const STRETCHES: usize = 64;

impl Shared {
    /// Takes `work` cycles of the memory from `start` on, in the gaps that are left; returns when the last is done.
    fn take(&mut self, start: f64, work: f64) -> f64 {
        if work <= 0.0 {
            return start;
        }
        let mut left = work;
        let mut now = start;
        let mut at = self.busy.partition_point(|(_, end)| *end <= start);
        let first = at;
        let mut from = now;
        let mut taken: Vec<(f64, f64)> = Vec::new();
        while let Some((busy_from, busy_to)) = self.busy.get(at).copied() {
            let gap = (busy_from - now).max(0.0);
            if gap >= left {
                break;
            }
            if gap > 0.0 {
                taken.push((from, busy_from));
                left -= gap;
            }
            now = now.max(busy_to);
            from = now;
            at += 1;
        }
        taken.push((from, now + left));
        let end = now + left;
        // All from the first to the last is one stretch now, with what lay between.
        let begin = taken.first().map_or(start, |one| one.0);
        let begin = self.busy.get(first).filter(|_| at > first).map_or(begin, |one| one.0.min(begin));
        self.busy.splice(first..at, [(begin, end)]);
        if self.busy.len() > STRETCHES {
            self.busy.drain(..self.busy.len() - STRETCHES);
        }
        end
    }
}

/// What one core does.
struct Core {
    main: Shared,
    cache: Shared,
    lines: BTreeMap<EngineId, Line>,
    spans: Vec<(EngineId, f64, f64)>,
    /// When the core issued its last statement.
    issued: f64,
    end: f64,
}

impl Core {
    /// Runs a statement; returns when its engine is free and when its results are there.
    fn run(&mut self, engine: EngineId, ready: f64, cycles: f64, latency: f64, outstanding: u64) -> f64 {
        self.run_shared(engine, ready, [cycles, 0.0, 0.0], latency, outstanding)
    }

    /// As `run`, with cycles of main memory and of the cache beside the engine's own.
    fn run_shared(
        &mut self,
        engine: EngineId,
        ready: f64,
        [cycles, main, cache]: [f64; 3],
        latency: f64,
        outstanding: u64,
    ) -> f64 {
        let line = self.lines.entry(engine).or_default();
        if line.started.len() == QUEUE {
            // The core waits until the queue has room.
            self.issued = self.issued.max(line.started[line.at % QUEUE]);
        }
        let mut start = ready.max(line.free).max(self.issued);
        let many = usize::try_from(outstanding.min(1024)).unwrap_or(1024);
        if line.under_way.len() >= many {
            start = start.max(line.under_way[line.under_way.len() - many]);
            let from = line.under_way.len() - many + 1;
            line.under_way.drain(..from);
        }
        // A copy that meets one the other way gets half of the memory until that one ends, and is then alone.
        let half = |shared: &mut Shared, work: f64| shared.take(start, work).min(start + 2.0 * work);
        let free = (start + cycles).max(half(&mut self.main, main)).max(half(&mut self.cache, cache));
        line.free = free;
        line.busy += cycles;
        if self.spans.len() < SPANS {
            self.spans.push((engine, start, free));
        }
        line.under_way.push(free + latency);
        if line.started.len() < QUEUE {
            line.started.push(start);
        } else {
            line.started[line.at % QUEUE] = start;
        }
        line.at += 1;
        self.end = self.end.max(free + latency);
        free + latency
    }
}

/// A slot: when its content is there, and when the last reader of it is done.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    there: f64,
    read: f64,
}

/// What was followed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predicted {
    /// Cycles of one core's block, shared memories counted.
    pub total: f64,
    /// Cycles that the unit is busy.
    pub unit: f64,
    /// The first statements: engine, start and end.
    pub spans: Vec<(EngineId, f64, f64)>,
}

/// Statements that are kept for the picture.
const SPANS: usize = 600;

struct Follower<'a, 'b> {
    timer: &'a Timer<'b>,
    found: &'a Found,
    counts: Vec<u64>,
    core: Core,
    slots: Vec<Vec<Slot>>,
    turn: Vec<u64>,
    fed: [Vec<Slot>; 2],
    fed_turn: usize,
    known: BTreeMap<(usize, u64), ([f64; 3], f64)>,
    miss: Vec<f64>,
}

/// Follows one core.
#[must_use]
pub fn predict(timer: &Timer<'_>, found: &Found) -> Option<Predicted> {
    let dims = timer.block.dims.len();
    let counts: Vec<u64> = (0..dims).map(|dim| timer.block.dims[dim].extent.div_ceil(found.tiles[dim])).collect();
    let slots =
        found.slots.iter().map(|count| vec![Slot::default(); usize::try_from(*count).unwrap_or(1).max(1)]).collect();
    let all: u64 = found.order.iter().map(|dim| counts[*dim]).product();
    let miss = (0..timer.operator.operands.len())
        .map(|at| timer.miss_share(at, (found.read[at] + found.written[at]) as f64 * timer.cores as f64))
        .collect();
    let mut follower = Follower {
        timer,
        found,
        counts,
        core: Core {
            main: Shared::default(),
            cache: Shared::default(),
            lines: BTreeMap::new(),
            spans: Vec::new(),
            issued: 0.0,
            end: 0.0,
        },
        slots,
        turn: vec![0; timer.operator.operands.len()],
        fed: [vec![Slot::default(); 2], vec![Slot::default(); 2]],
        fed_turn: 0,
        known: BTreeMap::new(),
        miss,
    };
    let followed = all.min(MAX_TILES);
    let mut index = vec![0_u64; dims];
    let mut half = 0.0;
    for step in 0..followed {
        if step == followed / 2 {
            half = follower.core.end;
        }
        follower.tile(&index)?;
        for dim in found.order.iter().rev() {
            index[*dim] += 1;
            if index[*dim] < follower.counts[*dim] {
                break;
            }
            index[*dim] = 0;
        }
    }
    let mut total = follower.core.end;
    let mut unit = follower.core.lines.get(&timer.machine.unit).map_or(0.0, |line| line.busy);
    if followed < all {
        let pace = (total - half) / (followed - followed / 2) as f64;
        total += pace * (all - followed) as f64;
        unit *= all as f64 / followed as f64;
    }
    Some(Predicted { total, unit, spans: follower.core.spans })
}

impl Follower<'_, '_> {
    fn length(&self, dim: usize, index: &[u64]) -> u64 {
        let (tile, extent) = (self.found.tiles[dim], self.timer.block.dims[dim].extent);
        tile.min(extent - (index[dim] * tile).min(extent - 1))
    }

    /// Loops around the copy of an operand's tile.
    fn depth(&self, operand: usize) -> usize {
        let about = &self.timer.operator.operands[operand];
        self.found.order.iter().rposition(|dim| about.touches(*dim)).map_or(0, |at| at + 1)
    }

    /// Whether an operand's tile changes (or is complete) at this index.
    fn turns(&self, operand: usize, index: &[u64], last: bool) -> bool {
        self.found.order[self.depth(operand)..]
            .iter()
            .all(|dim| if last { index[*dim] + 1 == self.counts[*dim] } else { index[*dim] == 0 })
    }

    fn hop(&self, operand: usize) -> &Hop {
        let machine = self.timer.machine;
        let about = &self.timer.operator.operands[operand];
        match about.role {
            OperandRole::Output => &machine.out.hops[0],
            OperandRole::Late => &machine.left.hops[0],
            _ => &machine.route(about.side).hops[0],
        }
    }

    /// Cycles and latency of the copy of a tile.
    fn copy(&mut self, operand: usize, index: &[u64]) -> ([f64; 3], f64) {
        let edges = index.iter().enumerate().fold(0_u64, |mask, (dim, at)| {
            mask | (u64::from(at + 1 == self.counts[dim]) << (2 * dim)) | (u64::from(*at == 0) << (2 * dim + 1))
        });
        if let Some(known) = self.known.get(&(operand, edges)) {
            return *known;
        }
        let timer = self.timer;
        let about = &timer.operator.operands[operand];
        let elements: f64 = about
            .axes
            .iter()
            .map(|axis| {
                let (first, end) = axis.touched(&|dim| {
                    let low = index[dim] * self.found.tiles[dim];
                    (low, low + self.length(dim, index))
                });
                (end - first) as f64
            })
            .product();
        let output = about.role == OperandRole::Output;
        let bytes = elements * about.element.bits() as f64 / 8.0;
        let hop = self.hop(operand);
        let shape = Shape::of(timer.operator, about, &self.found.tiles);
        let miss = if output { 0.0 } else { self.miss[operand] };
        let moved = bytes * shape.inflation(hop);
        let alone = moved * ((1.0 - miss) / hop.hit_rate + miss / hop.rate);
        let cores = timer.cores as f64;
        let to_main = if output { 1.0 } else { miss };
        // Behind a cache whole sectors come, and neighbours find the rest of theirs there.
        let rounded = if timer.machine.cache.is_some() { bytes } else { bytes * shape.rounding(hop) };
        let of_main = rounded * cores * to_main / timer.machine.main_rate;
        let of_cache = timer.machine.cache.map_or(0.0, |(_, _, rate)| bytes * cores / rate);
        let starts = (bytes / hop.largest as f64).ceil().max(1.0);
        let latency = if miss > 0.0 { hop.latency[1] } else { hop.latency[0] };
        let result = ([starts * hop.startup + alone, of_main, of_cache], latency);
        self.known.insert((operand, edges), result);
        result
    }

    fn tile(&mut self, index: &[u64]) -> Option<()> {
        let operator = self.timer.operator;
        // The loops further out copy first, as the program does: its queue holds back what comes behind.
        let mut inputs: Vec<usize> = (0..operator.operands.len())
            .filter(|at| operator.operands[*at].role == OperandRole::Input && self.turns(*at, index, false))
            .collect();
        inputs.sort_by_key(|at| self.depth(*at));
        for at in inputs {
            self.load(at, index);
        }
        let out = operator.output();
        if self.turns(out, index, false) {
            self.turn[out] += 1;
        }
        let there = (0..operator.operands.len())
            .filter(|at| operator.operands[*at].role == OperandRole::Input)
            .map(|at| self.slot(at).there)
            .fold(0.0, f64::max);
        let lengths: Vec<u64> = (0..self.counts.len()).map(|dim| self.length(dim, index)).collect();
        match operator.unit {
            Unit::Matrix => self.products(&lengths, there)?,
            Unit::Vector => self.instructions(&lengths, there),
        }
        if self.turns(out, index, true) {
            for at in 0..operator.operands.len() {
                if operator.operands[at].role == OperandRole::Late {
                    self.load(at, index);
                }
            }
            self.epilogue(&lengths);
            let ready = self.slot(out).there;
            let (cycles, latency) = self.copy(out, index);
            let (engine, outstanding) = (self.hop(out).engine, self.hop(out).outstanding);
            let done = self.core.run_shared(engine, ready, cycles, latency, outstanding);
            self.slot(out).read = done;
        }
        Some(())
    }

    /// Functions on a complete tile of a product, where a vector unit beside the matrix unit has them.
    fn epilogue(&mut self, lengths: &[u64]) {
        let (operator, machine) = (self.timer.operator, self.timer.machine);
        let Some(unit) = machine.softmax.as_ref().filter(|_| operator.unit == Unit::Matrix) else { return };
        if operator.kind == OperatorKind::Attention {
            return;
        }
        let out = operator.output();
        let late: Vec<usize> =
            (0..operator.operands.len()).filter(|at| operator.operands[*at].role == OperandRole::Late).collect();
        let axes = operator.operands[out].axes.iter();
        let elements: u64 = axes.map(|axis| axis.as_plain().map_or(axis.extent, |dim| lengths[dim])).product();
        let steps = elements.div_ceil((unit.width * 8 / operator.accumulates.bits().max(1)).max(1));
        let cycles = steps.div_ceil(unit.repeats).max(1) as f64 * unit.startup + steps as f64 * unit.pace;
        for at in late.iter().map(|at| Some(*at)).chain(operator.epilogue.iter().map(|_| None)) {
            let ready = at.map_or(0.0, |at| self.slot(at).there).max(self.slot(out).there);
            let done = self.core.run(unit.engine, ready, cycles, 0.0, 1);
            self.slot(out).there = done;
            if let Some(at) = at {
                self.slot(at).read = done;
            }
        }
    }

    fn slot(&mut self, operand: usize) -> &mut Slot {
        let many = self.slots[operand].len() as u64;
        let at = usize::try_from(self.turn[operand] % many).unwrap_or(0);
        &mut self.slots[operand][at]
    }

    fn load(&mut self, operand: usize, index: &[u64]) {
        self.turn[operand] += 1;
        let (cycles, latency) = self.copy(operand, index);
        let (engine, outstanding) = (self.hop(operand).engine, self.hop(operand).outstanding);
        let ready = self.slot(operand).read;
        let there = self.core.run_shared(engine, ready, cycles, latency, outstanding);
        self.slot(operand).there = there;
    }

    /// When the reader of the input slots is done.
    fn read_until(&mut self, time: f64) {
        for at in 0..self.slots.len() {
            if self.timer.operator.operands[at].role == OperandRole::Input {
                let slot = self.slot(at);
                slot.read = slot.read.max(time);
            }
        }
    }

    fn products(&mut self, lengths: &[u64], there: f64) -> Option<()> {
        let timer = self.timer;
        let feeder = timer.feeder?;
        let machine = timer.machine;
        let out = timer.operator.output();
        let feed = feeder.feed(products(timer.operator, timer.gemm, &self.found.tiles).first()?.0)?;
        let bits = [timer.operator.operands[0].element.bits(), timer.operator.operands[1].element.bits()];
        let mut there = there;
        for (number, (size, times)) in products(timer.operator, timer.gemm, lengths).into_iter().enumerate() {
            if let (1, Some(softmax)) =
                (number, machine.softmax.as_ref().filter(|_| timer.operator.kind == OperatorKind::Attention))
            {
                let scores = self.slot(out).there;
                there =
                    self.core.run(softmax.engine, there.max(scores), softmax.softmax_cycles(size[0] * size[1]), 0.0, 1);
            }
            for _ in 0..times {
                let fed = feed.slots[0] > 0;
                let step = if fed { feed.step } else { size };
                let counts = [size[0].div_ceil(step[0]), size[2].div_ceil(step[2]), size[1].div_ceil(step[1])];
                let part = |length: u64, step: u64, at: u64| step.min(length - at * step);
                for im in 0..counts[0] {
                    for inn in 0..counts[1] {
                        for ik in 0..counts[2] {
                            let [m, k, n] =
                                [part(size[0], step[0], im), part(size[1], step[1], ik), part(size[2], step[2], inn)];
                            let mut ready = there;
                            if fed {
                                let bytes = [m * k * bits[0] / 8, k * n * bits[1] / 8];
                                ready = self.feed(bytes, feed.slots, there);
                            }
                            let free = self.slot(out).read;
                            let cycles = machine.startup + 2.0 * feeder.padded([m, k, n]) / machine.rate;
                            let done = self.core.run(machine.unit, ready.max(free), cycles, 0.0, 1);
                            self.slot(out).there = done;
                            if fed {
                                let at = self.fed_turn;
                                for side in 0..2 {
                                    let many = usize::try_from(feed.slots[side]).unwrap_or(1).max(1);
                                    self.fed[side][at % many].read = done;
                                }
                                self.fed_turn += 1;
                            } else {
                                self.read_until(done);
                            }
                        }
                    }
                }
            }
        }
        Some(())
    }

    /// Copies of both sides of one step to the unit; when both are there.
    fn feed(&mut self, bytes: [u64; 2], slots: [u64; 2], there: f64) -> f64 {
        let machine = self.timer.machine;
        let mut ready = 0.0_f64;
        for side in 0..2 {
            let route = if side == 0 { &machine.left } else { &machine.right };
            let Some(hop) = route.hops.last() else { continue };
            let many = usize::try_from(slots[side]).unwrap_or(1).max(1);
            let at = self.fed_turn % many;
            let moved = super::nest::round_up(bytes[side], hop.granularity) as f64;
            let cycles = hop.startup + moved / hop.rate;
            let free = self.fed[side][at].read;
            let done = self.core.run(hop.engine, there.max(free), cycles, hop.latency[0], hop.outstanding);
            self.read_until(done);
            ready = ready.max(done);
        }
        ready
    }

    fn instructions(&mut self, lengths: &[u64], there: f64) {
        let timer = self.timer;
        let out = timer.operator.output();
        let mut ready = there.max(self.slot(out).read);
        let elements = |at: usize| -> u64 {
            let axes = timer.operator.operands[at].axes.iter();
            axes.map(|axis| match axis.as_plain() {
                Some(dim) => lengths[dim].min(axis.extent),
                None if axis.terms.is_empty() => axis.extent,
                None => {
                    let (first, end) = axis.touched(&|dim| (0, lengths[dim]));
                    end - first
                }
            })
            .product()
        };
        let taps: u64 = (0..lengths.len())
            .filter(|dim| timer.operator.dims[*dim].role == DimRole::Reduction)
            .map(|dim| lengths[dim])
            .product();
        let list: &[Instruction] = timer.instructions;
        for instruction in list {
            let (count, times) = match instruction.over {
                Over::Operand(at) => (elements(at), 1),
                Over::Points => (elements(out), taps),
            };
            let cycles = instruction_cycles(timer.operator, timer.machine, instruction, count);
            for _ in 0..times {
                ready = self.core.run(timer.machine.unit, ready, cycles, 0.0, 1);
            }
        }
        self.slot(out).there = ready;
        self.read_until(ready);
    }
}
