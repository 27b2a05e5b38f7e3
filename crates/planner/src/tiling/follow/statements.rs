//! The statements of one core's block, tile by tile, in the order in which the program has them.
//!
//! ```text
//!   load a {slot}, load b {slot}          where the innermost loop that the operand depends on turns
//!   feed, feed, product                   for each step of the unit
//!   store c                               where the sum is complete
//! ```
//!
//! A statement waits for the last one that wrote what it reads, and for all that still read what it writes.

use super::super::instructions::{Instruction, Over};
use super::super::machine::Hop;
use super::super::nest::round_up;
use super::super::objective::{Timer, instruction_cycles, products};
use super::super::operator::{Axis, DimRole, OperandRole, OperatorKind, Unit};
use super::super::search::Found;
use super::reach::Reach;
use super::{Place, Plan};
use crate::tiling::gemm::Feed;
use npumem_ir::EngineId;
use std::collections::VecDeque;

/// Statements that one waits for at most.
const MOST_DEPS: usize = 12;

/// What a statement does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// A tile over the ways to and from main memory.
    Copy { operand: usize, reach: Reach },
    /// Within the core: cycles, and cycles from then until the result is there.
    Near { cycles: f64, latency: f64 },
}

/// One statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statement {
    pub number: u32,
    pub line: usize,
    pub work: Work,
    deps: [u32; MOST_DEPS],
    count: usize,
}

impl Statement {
    pub fn deps(&self) -> &[u32] {
        &self.deps[..self.count]
    }
}

/// A slot of a buffer: who wrote it, and the last reader on each engine.
#[derive(Clone, Debug, Default)]
struct Slot {
    writer: Option<u32>,
    readers: Vec<(usize, u32)>,
}

/// One core at its block.
pub(super) struct Block<'a, 'b> {
    plan: &'a Plan<'a, 'b>,
    timer: &'a Timer<'b>,
    found: &'a Found,
    /// Where the block starts and how long it is, by dim.
    origin: Vec<(u64, u64)>,
    counts: Vec<u64>,
    index: Vec<u64>,
    pub over: bool,
    /// Tiles that were written out.
    pub tiles: u64,
    slots: Vec<Vec<Slot>>,
    fed: [Vec<Slot>; 2],
    next: u32,
    pub ready: VecDeque<Statement>,
    /// The last statement of each tile.
    pub ends: Vec<u32>,
}

impl<'a, 'b> Block<'a, 'b> {
    pub fn new(plan: &'a Plan<'a, 'b>, core: u64) -> Self {
        let (timer, found) = (plan.timer, plan.found);
        let dims = timer.operator.dims.len();
        let mut origin = vec![(0, 0); dims];
        let mut stride = 1_u64;
        for dim in (0..dims).rev() {
            let (extent, block) = (timer.operator.dims[dim].extent, timer.block.dims[dim].extent);
            let start = (core / stride % plan.parts[dim]).saturating_mul(block).min(extent.saturating_sub(1));
            origin[dim] = (start, block.min(extent - start));
            stride *= plan.parts[dim];
        }
        let counts = (0..dims).map(|dim| origin[dim].1.div_ceil(found.tiles[dim])).collect();
        let many = |count: u64| vec![Slot::default(); usize::try_from(count).unwrap_or(1).clamp(1, 64)];
        let fed = plan.feed.map_or([0, 0], |feed| feed.slots);
        Block {
            plan,
            timer,
            found,
            origin,
            counts,
            index: vec![0; dims],
            over: false,
            tiles: 0,
            slots: found.slots.iter().map(|count| many(*count)).collect(),
            fed: fed.map(many),
            next: 0,
            ready: VecDeque::new(),
            ends: Vec::new(),
        }
    }

    /// Where the tile is along a dim: the first position and how many.
    fn place(&self, dim: usize) -> (u64, u64) {
        let (start, length) = self.origin[dim];
        let mut at = self.index[dim];
        if self.plan.turned.contains(&dim) {
            let depth = self.found.order.iter().position(|with| *with == dim);
            let outside = depth.and_then(|depth| depth.checked_sub(1)).map(|depth| self.found.order[depth]);
            if outside.is_some_and(|outside| self.index[outside] % 2 == 1) {
                at = self.counts[dim] - 1 - at;
            }
        }
        let tile = self.found.tiles[dim];
        let offset = at.saturating_mul(tile);
        (start + offset, tile.min(length.saturating_sub(offset)))
    }

    fn depth(&self, operand: usize) -> usize {
        self.plan.depths[operand]
    }

    /// Whether all loops from this depth inwards are in their first (or last) turn.
    fn turns(&self, depth: usize, last: bool) -> bool {
        let inner = self.found.order[depth..].iter();
        inner
            .into_iter()
            .all(|dim| if last { self.index[*dim] + 1 == self.counts[*dim] } else { self.index[*dim] == 0 })
    }

    /// Which slot an operand's tile is in: counted by the loops outside of it.
    fn slot(&self, operand: usize) -> Place {
        let many = self.slots[operand].len() as u64;
        let mut turn = 0_u64;
        for dim in &self.found.order[..self.depth(operand)] {
            let count = self.timer.block.dims[*dim].extent.div_ceil(self.found.tiles[*dim]);
            turn = turn.wrapping_mul(count).wrapping_add(self.index[*dim]);
        }
        Place::Tile(operand, usize::try_from(turn % many).unwrap_or(0))
    }

    fn at(&mut self, place: Place) -> &mut Slot {
        match place {
            Place::Tile(operand, slot) => &mut self.slots[operand][slot],
            Place::Fed(side, slot) => &mut self.fed[side][slot],
        }
    }

    fn say(&mut self, engine: EngineId, work: Work, reads: &[Place], writes: Option<Place>) {
        let line = self.plan.line(engine);
        let number = self.next;
        self.next += 1;
        let mut deps = [0; MOST_DEPS];
        let mut count = 0;
        let mut wait = |one: u32| {
            if count < MOST_DEPS && !deps[..count].contains(&one) {
                deps[count] = one;
                count += 1;
            }
        };
        for place in reads {
            let slot = self.at(*place);
            slot.writer.into_iter().for_each(&mut wait);
            match slot.readers.iter_mut().find(|(with, _)| *with == line) {
                Some((_, last)) => *last = number,
                None => slot.readers.push((line, number)),
            }
        }
        if let Some(place) = writes {
            let slot = self.at(place);
            slot.writer.into_iter().for_each(&mut wait);
            slot.readers.iter().map(|(_, reader)| *reader).filter(|reader| *reader != number).for_each(&mut wait);
            slot.readers.clear();
            slot.writer = Some(number);
        }
        self.ready.push_back(Statement { number, line, work, deps, count });
    }

    /// The statements of the next tile.
    pub fn tile(&mut self) {
        let operator = self.timer.operator;
        for at in &self.plan.inputs {
            if self.turns(self.depth(*at), false) {
                self.load(*at);
            }
        }
        let lengths: Vec<u64> = (0..self.counts.len()).map(|dim| self.place(dim).1).collect();
        match operator.unit {
            Unit::Matrix => self.products(&lengths),
            Unit::Vector => self.instructions(&lengths, false),
        }
        self.ends.push(self.next.saturating_sub(1));
        let out = operator.output();
        if self.turns(self.depth(out), true) {
            for at in 0..operator.operands.len() {
                if operator.operands[at].role == OperandRole::Late {
                    self.load(at);
                }
            }
            let mut places = vec![self.slot(out)];
            match operator.unit {
                Unit::Matrix if self.timer.machine.softmax.is_some() => self.epilogue(),
                // The unit that stores applies the functions, and reads what is added.
                Unit::Matrix if operator.kind != OperatorKind::Attention => {
                    let late =
                        (0..operator.operands.len()).filter(|at| operator.operands[*at].role == OperandRole::Late);
                    places.extend(late.map(|at| self.slot(at)));
                }
                Unit::Matrix => {}
                Unit::Vector => self.instructions(&lengths, true),
            }
            let reach = self.reach(out);
            self.say(self.hop(out).engine, Work::Copy { operand: out, reach }, &places, None);
        }
        self.tiles += 1;
        for dim in self.found.order.iter().rev() {
            self.index[*dim] += 1;
            if self.index[*dim] < self.counts[*dim] {
                return;
            }
            self.index[*dim] = 0;
        }
        self.over = true;
    }

    pub fn hop(&self, operand: usize) -> &'a Hop {
        self.plan.hop(operand)
    }

    /// Positions of an operand's tile along an axis: the first and how many.
    fn touched(&self, axis: &Axis) -> (u64, u64) {
        match axis.as_plain() {
            Some(dim) => self.place(dim),
            None => {
                let (first, end) = axis.touched(&|dim| {
                    let (start, length) = self.place(dim);
                    (start, start + length)
                });
                (first, end - first)
            }
        }
    }

    fn reach(&self, operand: usize) -> Reach {
        Reach::new(&self.timer.operator.operands[operand], |axis| self.touched(axis))
    }

    fn load(&mut self, operand: usize) {
        let (place, reach) = (self.slot(operand), self.reach(operand));
        self.say(self.hop(operand).engine, Work::Copy { operand, reach }, &[], Some(place));
    }

    fn elements(&self, operand: usize) -> u64 {
        let axes = self.timer.operator.operands[operand].axes.iter();
        axes.fold(1, |product, axis| product.saturating_mul(self.touched(axis).1))
    }

    /// Functions on a complete tile of a product, where a vector unit beside the matrix unit has them.
    fn epilogue(&mut self) {
        let (operator, machine) = (self.timer.operator, self.timer.machine);
        let Some(unit) = machine.softmax.as_ref().filter(|_| operator.unit == Unit::Matrix) else { return };
        if operator.kind == OperatorKind::Attention {
            return;
        }
        let out = operator.output();
        let elements = self.elements(out);
        let steps = elements.div_ceil((unit.width * 8 / operator.accumulates.bits().max(1)).max(1));
        let cycles = steps.div_ceil(unit.repeats).max(1) as f64 * unit.startup + steps as f64 * unit.pace;
        let sums = self.slot(out);
        for at in 0..operator.operands.len() {
            if operator.operands[at].role == OperandRole::Late {
                let with = self.slot(at);
                self.say(unit.engine, Work::Near { cycles, latency: 0.0 }, &[sums, with], Some(sums));
            }
        }
        for function in &operator.epilogue {
            let cycles = cycles * super::super::instructions::passes(function);
            self.say(unit.engine, Work::Near { cycles, latency: 0.0 }, &[sums], Some(sums));
        }
    }

    fn products(&mut self, lengths: &[u64]) {
        let (timer, machine) = (self.timer, self.timer.machine);
        let Some(feeder) = timer.feeder else { return };
        let operator = timer.operator;
        let out = self.slot(operator.output());
        let sides = [self.slot(0), self.slot(1)];
        let unit = |[m, k, n]: [u64; 3]| Work::Near {
            cycles: machine.startup + 2.0 * feeder.padded([m, k, n]) / machine.rate,
            latency: 0.0,
        };
        let list = products(operator, timer.gemm, lengths);
        if let (OperatorKind::Attention, [(first, _), (second, _)], Some(softmax)) =
            (operator.kind, list.as_slice(), &machine.softmax)
        {
            let named = |name: &str| operator.operands.iter().position(|operand| operand.name == name);
            let (Some(scores), Some(weights)) = (named("scores"), named("weights")) else { return };
            let (scores, weights, values) = (self.slot(scores), self.slot(weights), self.slot(2));
            self.say(machine.unit, unit(*first), &sides, Some(scores));
            let cycles = softmax.softmax_cycles(first[0] * first[2]);
            self.say(softmax.engine, Work::Near { cycles, latency: 0.0 }, &[scores], Some(weights));
            self.say(machine.unit, unit(*second), &[weights, values], Some(out));
            return;
        }
        let Some((size, _)) = list.first().copied() else { return };
        let Some(feed) = self.plan.feed.filter(|feed| feed.slots[0] > 0) else {
            self.say(machine.unit, unit(size), &sides, Some(out));
            return;
        };
        self.fed(&feed, size, sides, out, &unit);
    }

    fn fed(&mut self, feed: &Feed, size: [u64; 3], sides: [Place; 2], out: Place, unit: &dyn Fn([u64; 3]) -> Work) {
        let (operator, machine) = (self.timer.operator, self.timer.machine);
        let [m, k, n, _] = self.timer.gemm.size(&self.found.tiles);
        let step = feed.step;
        // The slots are counted by the steps of a whole tile.
        let whole = [m.div_ceil(step[0]), n.div_ceil(step[2]), k.div_ceil(step[1])];
        let counts = [size[0].div_ceil(step[0]), size[2].div_ceil(step[2]), size[1].div_ceil(step[1])];
        let part = |length: u64, step: u64, at: u64| step.min(length - at * step);
        for im in 0..counts[0] {
            for inn in 0..counts[1] {
                for ik in 0..counts[2] {
                    let [m, k, n] =
                        [part(size[0], step[0], im), part(size[1], step[1], ik), part(size[2], step[2], inn)];
                    let turn = (im * whole[1] + inn) * whole[2] + ik;
                    let bytes = [m * k, k * n];
                    let mut places = [Place::Fed(0, 0), Place::Fed(1, 0)];
                    for side in 0..2 {
                        let route = if side == 0 { &machine.left } else { &machine.right };
                        let Some(hop) = route.hops.last() else { continue };
                        let many = self.fed[side].len() as u64;
                        places[side] = Place::Fed(side, usize::try_from(turn % many).unwrap_or(0));
                        let bytes = (bytes[side] * operator.operands[side].element.bits()).div_ceil(8);
                        let starts = bytes.div_ceil(hop.largest).max(1) as f64;
                        let cycles = starts * hop.startup + round_up(bytes, hop.granularity) as f64 / hop.rate;
                        let work = Work::Near { cycles, latency: hop.latency[0] };
                        self.say(hop.engine, work, &[sides[side]], Some(places[side]));
                    }
                    self.say(machine.unit, unit([m, k, n]), &places, Some(out));
                }
            }
        }
    }

    /// Those for every part of a sum, or those for a tile of results that is complete.
    fn instructions(&mut self, lengths: &[u64], once: bool) {
        let timer = self.timer;
        let (operator, unit) = (timer.operator, timer.machine.unit);
        let out = operator.output();
        let taps: u64 = (0..lengths.len())
            .filter(|dim| operator.dims[*dim].role == DimRole::Reduction)
            .map(|dim| lengths[dim])
            .product();
        let list: &[Instruction] = timer.instructions;
        for instruction in list.iter().filter(|one| one.once == once) {
            let (all, times) = match instruction.over {
                Over::Operand(_) => (&instruction.reads[..], 1),
                Over::Points => (&instruction.reads[1..], taps),
            };
            let count = all.iter().chain([&instruction.writes]).map(|at| self.elements(*at)).max().unwrap_or(0);
            let count = if instruction.over == Over::Points { count.max(self.elements(out)) } else { count };
            let cycles = instruction_cycles(operator, timer.machine, instruction, count);
            let places: Vec<Place> = instruction.reads.iter().map(|at| self.slot(*at)).collect();
            let into = self.slot(instruction.writes);
            for _ in 0..times {
                self.say(unit, Work::Near { cycles, latency: 0.0 }, &places, Some(into));
            }
        }
    }
}
