//! Why this tile: what limits it, what the next larger one would cost, what second slots buy.

use super::fit::fit;
use super::follow::CHOSEN_STATEMENTS;
use super::gemm::Feeder;
use super::nest::Slots;
use super::operator::Unit;
use super::schedule::{Bench, Schedule, sides, whole_kernels};
use npumem_ir::Device;

/// What a larger tile along one dim would come to.
#[derive(Clone, Debug, PartialEq)]
pub enum Larger {
    /// It takes more than there is.
    Overflows {
        /// The space.
        space: String,
        /// By how many bytes.
        over: u64,
    },
    /// It fits, and takes so many cycles.
    Takes(f64),
}

/// The numbers behind a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// What is busy longest, and the share of the time that it is.
    pub limit: (String, f64),
    /// Cycles with one slot for each buffer, same tiles; `None` when it has none to give up.
    pub single_slots: Option<f64>,
    /// The next larger tile along each dim that has one.
    pub larger: Vec<(String, u64, Larger)>,
}

/// Looks around a schedule.
#[must_use]
pub fn explain(schedule: &Schedule, device: &Device) -> Explanation {
    let time = &schedule.time;
    let parts = [
        ("the unit with its feed", time.unit),
        ("the copies in", time.loads),
        ("the copies out", time.stores),
        ("main memory", time.main),
        ("the cache", time.cache),
        ("the round of a slot: a copy, its latency, its use", time.rounds),
    ];
    let most = parts.iter().copied().fold(("nothing", 0.0_f64), |most, one| if one.1 > most.1 { one } else { most });
    let limit = (most.0.to_owned(), (most.1 / schedule.cycles.max(1.0)).min(1.0));
    let around = Around::new(schedule);
    let tiles = &schedule.found.tiles;
    let doubled = schedule.found.slots.iter().any(|slots| *slots > 1);
    let single_slots = doubled.then(|| around.cycles(tiles, Slots::Single)).flatten();
    let mut larger = Vec::new();
    for (dim, about) in around.operator.dims.iter().enumerate() {
        if about.whole || tiles[dim] >= schedule.block[dim] {
            continue;
        }
        let Some(size) = around.next(dim) else { continue };
        let mut next = tiles.clone();
        next[dim] = size;
        let verdict = match fit(&around.operator, device, &next, schedule.slots) {
            Ok(fit) => match fit.spaces.iter().find(|space| space.over() > 0) {
                Some(space) => Larger::Overflows { space: space.name.clone(), over: space.over() },
                None => match around.cycles(&next, schedule.slots) {
                    Some(cycles) => Larger::Takes(cycles),
                    None => continue,
                },
            },
            Err(_) => continue,
        };
        larger.push((about.name.clone(), next[dim], verdict));
    }
    Explanation { limit, single_slots, larger }
}

/// The same schedule with other tiles or slots.
struct Around<'a> {
    schedule: &'a Schedule,
    operator: super::operator::Operator,
}

impl<'a> Around<'a> {
    fn new(schedule: &'a Schedule) -> Self {
        Around { schedule, operator: whole_kernels(&schedule.operator) }
    }

    fn next(&self, dim: usize) -> Option<u64> {
        let bench = Bench::new(&self.operator, &self.schedule.machine);
        bench.next_size(self.schedule.block[dim], dim, self.schedule.found.tiles[dim], true)
    }

    /// As the search itself measures it.
    fn cycles(&self, tiles: &[u64], slots: Slots) -> Option<f64> {
        let bench = Bench::new(&self.operator, &self.schedule.machine);
        let feeder =
            (self.operator.unit == Unit::Matrix).then(|| Feeder::new(&self.schedule.machine, sides(&self.operator)));
        let one = bench.exactly(&self.schedule.parts, tiles, slots, feeder.as_ref())?;
        Some(bench.follow(&one, feeder.as_ref(), CHOSEN_STATEMENTS, f64::INFINITY).total)
    }
}
