//! Why this tile: what limits it, what the next larger one would cost, what second slots buy.

use super::fit::fit;
use super::follow::{MOST_STATEMENTS, follow};
use super::gemm::Feeder;
use super::nest::{Nest, NestSetup, Slots};
use super::objective::Timer;
use super::operator::Unit;
use super::schedule::{Bench, Schedule, whole_kernels};
use super::search::search;
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
        let mut next = tiles.clone();
        // The next size that needs a tile less.
        let count = schedule.block[dim].div_ceil(tiles[dim]);
        let granule = around.granules[dim].max(1);
        let fewer = schedule.block[dim].div_ceil(count - 1);
        next[dim] = (fewer.div_ceil(granule) * granule).min(schedule.block[dim]);
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
    granules: Vec<u64>,
}

impl<'a> Around<'a> {
    fn new(schedule: &'a Schedule) -> Self {
        let operator = whole_kernels(&schedule.operator);
        let granules = Bench::new(&operator, &schedule.machine).granules;
        Around { schedule, operator, granules }
    }

    fn cycles(&self, tiles: &[u64], slots: Slots) -> Option<f64> {
        let bench = Bench::new(&self.operator, &self.schedule.machine);
        let bits =
            [self.operator.operands[0].element.bits(), self.operator.operands.get(1).map_or(8, |b| b.element.bits())];
        let feeder = (self.operator.unit == Unit::Matrix).then(|| Feeder::new(&self.schedule.machine, bits));
        let block = bench.block_operator(&self.schedule.parts);
        let setup = NestSetup { exact: Some(tiles.to_vec()), ..bench.setup(slots) };
        let nest = Nest::new(&block, &setup);
        let timer: Timer<'_> = bench.timer(&block, &self.schedule.parts, slots, feeder.as_ref());
        let found = search(&nest, &timer, 10_000).ok()?;
        (found.score[0] < u128::MAX)
            .then(|| follow(&timer, &found, &self.schedule.parts, &self.schedule.back_and_forth, MOST_STATEMENTS).total)
    }
}
