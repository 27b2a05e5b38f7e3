//! The time of a schedule, copy by copy: each engine in order, each buffer with its slots, all cores beside each other.
//!
//! ```text
//!   copies in   |A0|B0|A1|B1|     |A2|B2|         a copy begins when its engine is free, its slot is no longer read,
//!   feed           |a0|b0|a1|b1|  ...             and fewer copies are under way than the engine can have
//!   unit              |--0--|--1--|  ...          a product begins when both its sides are there and its sums are free
//!   copies out                    |C0|
//! ```
//!
//! What happens within a core follows from the ends of its copies alone, so only copies need a clock: they share main
//! memory and the cache (`sharing`), and which of them finds its bytes in the cache depends on who came first
//! (`reach`). Long schedules are followed for some tiles and continued at the pace of the last whole turns.
//! No code is shared with the simulator.

mod reach;
mod sharing;
mod statements;

use super::gemm::Feed;
use super::machine::Hop;
use super::objective::{Timer, products};
use super::operator::{OperandRole, OperatorKind};
use super::search::Found;
use npumem_ir::EngineId;
use reach::{Held, Reach, Rounded};
use sharing::Sharing;
use statements::{Block, Statement, Work};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// Statements that are followed one by one, all cores together: to tell schedules apart, and for the time that is said.
pub const FEW_STATEMENTS: u64 = 5_000;
/// As [`FEW_STATEMENTS`].
pub const MOST_STATEMENTS: u64 = 24_000;
/// The same for the one that is chosen, once: how the cache fills is seen to its end.
pub const CHOSEN_STATEMENTS: u64 = 150_000;
/// Tiles of one core that are followed at least.
const LEAST_TILES: u64 = 12;
/// Statements that wait in the queue of one engine.
const QUEUE: usize = 32;
/// Statements that are kept for the picture.
const SPANS: usize = 600;

/// What was followed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predicted {
    /// Cycles until the last core is done.
    pub total: f64,
    /// The first statements of the first core: engine, start and end.
    pub spans: Vec<(EngineId, f64, f64)>,
    /// All of it was followed.
    pub whole: bool,
}

/// A slot of an operand's buffer, or of the unit's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Tile(usize, usize),
    Fed(usize, usize),
}

/// What all cores have in common.
struct Plan<'a, 'b> {
    timer: &'a Timer<'b>,
    found: &'a Found,
    parts: &'a [u64],
    turned: &'a [usize],
    feed: Option<Feed>,
    /// Loops around the copy of each operand's tile.
    depths: Vec<usize>,
    /// Inputs in the order of their copies.
    inputs: Vec<usize>,
    /// Engines, and how many statements each can have under way.
    lines: Vec<(EngineId, usize)>,
}

impl<'a, 'b> Plan<'a, 'b> {
    fn new(timer: &'a Timer<'b>, found: &'a Found, parts: &'a [u64], turned: &'a [usize]) -> Self {
        let operator = timer.operator;
        let depth = |at: usize| {
            let last = found.order.iter().rposition(|dim| operator.operands[at].touches(*dim));
            last.map_or(0, |place| place + 1)
        };
        let depths: Vec<usize> = (0..operator.operands.len()).map(depth).collect();
        let role = |at: usize| operator.operands[at].role;
        let mut inputs: Vec<usize> =
            (0..operator.operands.len()).filter(|at| role(*at) == OperandRole::Input).collect();
        // The loops further out copy first, as the program does: its queue holds back what comes behind.
        inputs.sort_by_key(|at| depths[*at]);
        let feed = timer.feeder.and_then(|feeder| {
            products(operator, timer.gemm, &found.tiles).first().and_then(|(size, _)| feeder.feed(*size))
        });
        let feed = feed.filter(|_| operator.kind != OperatorKind::Attention);
        let machine = timer.machine;
        let mut lines: Vec<(EngineId, usize)> = vec![(machine.unit, 1)];
        lines.extend(machine.softmax.as_ref().map(|unit| (unit.engine, 1)));
        for hop in [&machine.left, &machine.right, &machine.out].into_iter().flat_map(|route| &route.hops) {
            if lines.iter().all(|(engine, _)| *engine != hop.engine) {
                lines.push((hop.engine, usize::try_from(hop.outstanding.clamp(1, 1024)).unwrap_or(1024)));
            }
        }
        Plan { timer, found, parts, turned, feed, depths, inputs, lines }
    }

    fn line(&self, engine: EngineId) -> usize {
        self.lines.iter().position(|(with, _)| *with == engine).unwrap_or(0)
    }

    fn hop(&self, operand: usize) -> &'a Hop {
        let machine = self.timer.machine;
        let about = &self.timer.operator.operands[operand];
        match about.role {
            OperandRole::Output => &machine.out.hops[0],
            OperandRole::Late => &machine.left.hops[0],
            _ => &machine.route(about.side).hops[0],
        }
    }
}

/// An engine of a core.
#[derive(Clone, Debug, Default)]
struct Line {
    free: f64,
    /// A copy of it is under way (or about to be).
    taken: bool,
    /// When what it began is done, of those that may not be.
    under_way: Vec<f64>,
    waiting: VecDeque<(Statement, f64)>,
    /// When the last statements began.
    began: VecDeque<f64>,
}

struct Core<'a, 'b> {
    block: Block<'a, 'b>,
    lines: Vec<Line>,
    /// When each statement is done; not a number while that is not known.
    done: Vec<f64>,
    issued: f64,
}

/// A copy that begins at a time; of equal times the first core's first.
#[derive(Clone, Copy, Debug)]
struct Begin {
    time: f64,
    number: u64,
    core: usize,
    statement: Statement,
}

impl PartialEq for Begin {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Begin {}

impl PartialOrd for Begin {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Begin {
    fn cmp(&self, other: &Self) -> Ordering {
        other.time.total_cmp(&self.time).then(other.number.cmp(&self.number))
    }
}

/// What a copy under way is.
#[derive(Clone, Copy, Debug)]
struct Going {
    core: usize,
    line: usize,
    statement: u32,
    start: f64,
    latency: f64,
}

struct Walk<'a, 'b> {
    plan: &'a Plan<'a, 'b>,
    cores: Vec<Core<'a, 'b>>,
    sharing: Sharing,
    held: Option<Held>,
    rounded: Rounded,
    begins: BinaryHeap<Begin>,
    going: Vec<Going>,
    unused: Vec<usize>,
    number: u64,
    /// Tiles of each core that are followed.
    most: u64,
    spans: Vec<(EngineId, f64, f64)>,
    end: f64,
}

/// Follows all cores, for about so many statements; long schedules go on at the pace of the last of them. Where it takes
/// more than the ceiling, that is all that is found out: the total is without end.
#[must_use]
pub fn follow(
    timer: &Timer<'_>,
    found: &Found,
    parts: &[u64],
    turned: &[usize],
    statements: u64,
    ceiling: f64,
) -> Predicted {
    let plan = Plan::new(timer, found, parts, turned);
    let cores = parts.iter().product::<u64>().max(1);
    let operator = timer.operator;
    let counts: Vec<u64> =
        (0..operator.dims.len()).map(|dim| timer.block.dims[dim].extent.div_ceil(found.tiles[dim])).collect();
    let all: u64 = found.order.iter().map(|dim| counts[*dim]).fold(1, u64::saturating_mul);
    let taps = if timer.instructions.iter().any(|one| one.over == super::instructions::Over::Points) {
        let summed = (0..counts.len()).filter(|dim| operator.dims[*dim].role == super::operator::DimRole::Reduction);
        summed.map(|dim| found.tiles[dim]).product::<u64>().max(1)
    } else {
        1
    };
    let steps = plan.feed.map_or(taps * timer.instructions.len().max(1) as u64, |feed| feed.steps.max(1) * 3) + 3;
    let most = (statements / cores / steps).max(LEAST_TILES);
    // Whole turns of as many inner loops as the budget has room for.
    let mut turn = 1_u64;
    for dim in found.order.iter().rev() {
        match turn.checked_mul(counts[*dim]) {
            Some(longer) if longer <= most / 3 => turn = longer,
            _ => break,
        }
    }
    let followed = if all <= most { all } else { (most / turn).max(2) * turn };
    let held =
        timer.machine.cache.map(|(_, capacity, _)| Held::new(&operator.operands, capacity, timer.machine.sector));
    let cache_rate = timer.machine.cache.map_or(f64::INFINITY, |(_, _, rate)| rate);
    let mut walk = Walk {
        plan: &plan,
        cores: (0..cores)
            .map(|core| Core {
                block: Block::new(&plan, core),
                lines: vec![Line::default(); plan.lines.len()],
                done: Vec::new(),
                issued: 0.0,
            })
            .collect(),
        sharing: Sharing::new([timer.machine.main_rate, cache_rate]),
        held,
        rounded: Rounded::default(),
        begins: BinaryHeap::new(),
        going: Vec::new(),
        unused: Vec::new(),
        number: 0,
        most: followed,
        spans: Vec::new(),
        end: 0.0,
    };
    if !walk.run(ceiling) {
        return Predicted { total: f64::INFINITY, spans: walk.spans, whole: false };
    }
    let mut total = walk.end;
    if followed < all {
        let half = (followed / 2).div_ceil(turn).max(1) * turn;
        let pace = |core: &Core<'_, '_>| {
            let end = |tile: u64| {
                let at = usize::try_from(tile.saturating_sub(1)).ok()?;
                core.done.get(*core.block.ends.get(at)? as usize).copied()
            };
            let tiles = followed.saturating_sub(half).max(1) as f64;
            Some((end(followed)? - end(half)?) / tiles)
        };
        let pace = walk.cores.iter().filter_map(pace).fold(0.0, f64::max);
        total += pace * (all - followed) as f64;
    }
    Predicted { total, spans: walk.spans, whole: followed == all }
}

impl Walk<'_, '_> {
    /// Whether all was followed before a ceiling.
    fn run(&mut self, ceiling: f64) -> bool {
        for core in 0..self.cores.len() {
            self.go_on(core);
        }
        let mut over = Vec::new();
        loop {
            let (copy, begin) = (self.sharing.next(), self.begins.peek().map(|begin| begin.time));
            let time = match (copy, begin) {
                (Some(copy), Some(begin)) => copy.min(begin),
                (Some(time), None) | (None, Some(time)) => time,
                (None, None) => return true,
            };
            if time > ceiling {
                return false;
            }
            self.sharing.advance(time);
            over.clear();
            self.sharing.ended(&mut over);
            for going in &over {
                self.ended(*going, time);
            }
            while let Some(begin) = self.begins.peek().copied().filter(|begin| begin.time <= time) {
                self.begins.pop();
                self.begin(begin);
            }
        }
    }

    /// A copy has all its bytes over.
    fn ended(&mut self, going: usize, time: f64) {
        let one = self.going[going];
        self.unused.push(going);
        let core = &mut self.cores[one.core];
        let line = &mut core.lines[one.line];
        let done = time + one.latency;
        line.free = time;
        line.taken = false;
        line.under_way.push(done);
        core.done[one.statement as usize] = done;
        self.end = self.end.max(done);
        if one.core == 0 && self.spans.len() < SPANS {
            self.spans.push((self.plan.lines[one.line].0, one.start, time));
        }
        self.go_on(one.core);
    }

    /// A copy begins: what it finds in the cache is known now.
    fn begin(&mut self, begin: Begin) {
        let Work::Copy { operand, reach } = begin.statement.work else { return };
        let (cycles, latency, bytes) = self.copy(operand, &reach);
        let going = Going {
            core: begin.core,
            line: begin.statement.line,
            statement: begin.statement.number,
            start: begin.time,
            latency,
        };
        let at = match self.unused.pop() {
            Some(at) => {
                self.going[at] = going;
                at
            }
            None => {
                self.going.push(going);
                self.going.len() - 1
            }
        };
        self.sharing.begin(at, cycles, bytes);
    }

    /// Cycles of a copy alone, its latency, and its bytes of main memory and of the cache.
    fn copy(&mut self, operand: usize, reach: &Reach) -> (f64, f64, [f64; 2]) {
        let hop = self.plan.hop(operand);
        let output = self.plan.timer.operator.operands[operand].role == OperandRole::Output;
        let (moved, unaligned) = self.rounded.of(reach, hop);
        let share = 1.0 - unaligned * (1.0 - hop.unaligned_share);
        let starts = reach.bytes.div_ceil(hop.largest).max(1) as f64 * hop.startup;
        let Some(held) = self.held.as_mut().filter(|_| hop.hit.is_some()) else {
            return (starts + moved / (hop.rate * share), hop.latency[0], [moved, 0.0]);
        };
        if output {
            held.touch(operand, reach);
            return (starts + moved / (hop.hit_rate * share), hop.latency[0], [moved, moved]);
        }
        let [there, brought] = held.touch(operand, reach);
        let miss = brought / (there + brought).max(1.0);
        let cycles = starts + moved / share * ((1.0 - miss) / hop.hit_rate + miss / hop.rate);
        let late = (reach.bytes as f64 * miss).round() > 0.0;
        (cycles, hop.latency[usize::from(late)], [brought, moved])
    }

    /// Takes a core as far as what is known allows.
    fn go_on(&mut self, core: usize) {
        loop {
            let mut moved = self.issue(core);
            for line in 0..self.plan.lines.len() {
                while self.step(core, line) {
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Hands statements to the queues, until one is full.
    fn issue(&mut self, at: usize) -> bool {
        let core = &mut self.cores[at];
        let mut moved = false;
        loop {
            if core.block.ready.is_empty() && !core.block.over && core.block.tiles < self.most {
                core.block.tile();
            }
            let Some(next) = core.block.ready.front() else { return moved };
            let line = &mut core.lines[next.line];
            if line.waiting.len() >= QUEUE {
                return moved;
            }
            // It entered when the one that stood in its place began.
            if line.began.len() + line.waiting.len() >= QUEUE {
                let place = line.began.len() + line.waiting.len() - QUEUE;
                core.issued = core.issued.max(line.began[place]);
            }
            if let Some(next) = core.block.ready.pop_front() {
                core.done.push(f64::NAN);
                line.waiting.push_back((next, core.issued));
                moved = true;
            }
        }
    }

    /// Begins the first statement of a queue, when all that it waits for is known.
    fn step(&mut self, at: usize, number: usize) -> bool {
        let core = &mut self.cores[at];
        let line = &mut core.lines[number];
        if line.taken {
            return false;
        }
        let Some((statement, issued)) = line.waiting.front() else { return false };
        let mut start = line.free.max(*issued);
        for dep in statement.deps() {
            let done = core.done[*dep as usize];
            if done.is_nan() {
                return false;
            }
            start = start.max(done);
        }
        let many = self.plan.lines[number].1;
        line.under_way.retain(|done| *done > start);
        if line.under_way.len() >= many {
            line.under_way.sort_by(f64::total_cmp);
            start = line.under_way[line.under_way.len() - many];
            line.under_way.retain(|done| *done > start);
        }
        let Some((statement, _)) = line.waiting.pop_front() else { return false };
        line.began.push_back(start);
        if line.began.len() > QUEUE {
            line.began.pop_front();
        }
        match statement.work {
            Work::Near { cycles, latency } => {
                line.free = start + cycles;
                let done = line.free + latency;
                if many > 1 {
                    line.under_way.push(done);
                }
                core.done[statement.number as usize] = done;
                self.end = self.end.max(done);
                if at == 0 && self.spans.len() < SPANS {
                    self.spans.push((self.plan.lines[number].0, start, start + cycles));
                }
            }
            Work::Copy { .. } => {
                line.taken = true;
                self.number += 1;
                self.begins.push(Begin { time: start, number: self.number, core: at, statement });
            }
        }
        true
    }
}
