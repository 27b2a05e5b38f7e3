//! Which schedule: candidates of every way to cut, by the closed form; the best of them, copy by copy.
//!
//! ```text
//!   time      the fastest of the followed, then its neighbours while one is faster
//!   traffic   the least bytes to the cores, counted; of equal ones the fastest
//!   memory    within 5 % of the fastest the fewest bytes near the unit, then smaller neighbours while one is in time
//! ```

use super::follow::{CHOSEN_STATEMENTS, FEW_STATEMENTS, MOST_STATEMENTS, Predicted, follow};
use super::gemm::Feeder;
use super::machine::Machine;
use super::nest::{Nest, NestSetup, Slots};
use super::objective::{CoreTime, Goal, Timer, products};
use super::operator::{Operator, Unit};
use super::schedule::{Bench, Request, Schedule, TileError, sides};
use super::search::{Found, Score, SearchError, search, search_some};
use super::shares::copies;
use npumem_ir::EngineId;

/// Ways to cut that are searched in full.
const MAX_PARTITIONS: usize = 24;
/// Nodes of the search of one block, and of all blocks of one operator.
const BLOCK_BUDGET: u64 = 20_000;
const OPERATOR_BUDGET: u64 = 150_000;
/// The same for the objective of time, where few sizes will do.
const FEW_BUDGETS: (u64, u64) = (12_000, 100_000);
/// Candidates that the closed form puts further than one part in so many behind the best are not looked for.
const NEAR: u128 = 10;
/// The same once all are found, for those that are followed copy by copy.
const FAR: u128 = 6;
/// Schedules that are followed copy by copy, the best by the closed form, and those that are followed for longer.
const FOLLOWED: usize = 14;
const FOLLOWED_LONGER: usize = 2;
/// Neighbours of the best that are followed.
const CLIMBED: usize = 24;
/// Smaller neighbours that are followed.
const SHRUNK: usize = 48;
/// The share of the best time that the fewest bytes may take.
const IN_TIME: f64 = 1.05;
/// All kinds of slots.
const ALL_SLOTS: [Slots; 4] = [Slots::All, Slots::Inputs, Slots::Streamed, Slots::Single];

/// A schedule as the search leaves it.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) score: Score,
    pub(crate) parts: Vec<u64>,
    pub(crate) slots: Slots,
    pub(crate) found: Found,
    pub(crate) time: CoreTime,
    pub(crate) cycles: f64,
    pub(crate) spans: Vec<(EngineId, f64, f64)>,
    /// The cycles are those of all of it, none taken from the pace of a part.
    pub(crate) whole: bool,
}

/// The search of one operator on one machine.
struct Search<'a> {
    bench: &'a Bench<'a>,
    feeder: Option<&'a Feeder<'a>>,
    asked: Option<Slots>,
    by_hand: bool,
    partitions: Vec<(Vec<u64>, f64)>,
    work: u64,
    searched: usize,
    refused: Option<SearchError>,
}

/// The best schedule of an operator on a machine.
pub(super) fn best_schedule(operator: &Operator, machine: &Machine, request: &Request) -> Result<Schedule, TileError> {
    let mut bench = Bench::new(operator, machine);
    bench.exact.clone_from(&request.tiles);
    let bench = bench;
    let feeder = (operator.unit == Unit::Matrix).then(|| Feeder::new(machine, sides(operator)));
    let mut partitions = bench.partitions(feeder.as_ref());
    let many = partitions.len();
    if let Some(tiles) = &request.tiles {
        // A tile by hand is not cut: the block of a core holds it.
        partitions.retain(|(parts, _)| bench.block_of(parts).iter().zip(tiles).all(|(block, tile)| block >= tile));
    }
    partitions.truncate(MAX_PARTITIONS);
    let mut search = Search {
        bench: &bench,
        feeder: feeder.as_ref(),
        asked: request.slots,
        by_hand: request.tiles.is_some(),
        partitions,
        work: 0,
        searched: 0,
        refused: None,
    };
    let best = match request.goal {
        Goal::Time => search.fastest(),
        Goal::Traffic => search.least_traffic(),
        Goal::Memory => search.smallest(),
    };
    let (work, searched, refused) = (search.work, search.searched, search.refused.take());
    match (best, refused) {
        (Some(mut one), _) => {
            if !one.whole {
                search.follow(&mut one, CHOSEN_STATEMENTS, f64::INFINITY);
            }
            let mut schedule = bench.finish(one, request.goal, feeder.as_ref());
            schedule.work = work;
            schedule.partitions = (searched, many);
            Ok(schedule)
        }
        (None, Some(why)) => Err(bench.does_not_fit(why)),
        (None, None) => {
            let pool = &bench.pools[0];
            let why = SearchError::TooSmall { pool: pool.name.clone(), needed: pool.capacity, capacity: pool.capacity };
            Err(bench.does_not_fit(why))
        }
    }
}

impl Search<'_> {
    /// Candidates for a goal by the closed form, the best first; with [`Goal::Memory`] those within a limit of time.
    fn candidates(&mut self, goal: Goal, limit: Option<u128>, many_of_block: usize) -> Vec<Candidate> {
        let (bench, feeder) = (self.bench, self.feeder);
        let budgets = if goal == Goal::Traffic { (BLOCK_BUDGET, OPERATOR_BUDGET) } else { FEW_BUDGETS };
        let mut partitions = self.partitions.clone();
        if goal == Goal::Traffic {
            // A little less traffic is not worth idle cores.
            let least = partitions.iter().map(|(_, least)| *least).reduce(f64::min).unwrap_or(0.0);
            partitions.retain(|(_, one)| *one <= least * 1.25);
        }
        let mut all: Vec<Candidate> = Vec::new();
        let (mut best, before) = (u128::MAX, self.work);
        self.searched = 0;
        for (parts, least) in &partitions {
            let block = bench.block_operator(parts);
            let ceiling = if goal == Goal::Time { best.saturating_add(best / NEAR) } else { u128::MAX };
            if goal == Goal::Time && bench.floor(&block, parts, *least) >= ceiling {
                continue;
            }
            if self.work - before > budgets.1 && !all.is_empty() {
                break;
            }
            self.searched += 1;
            let setup = NestSetup { coarse: goal != Goal::Traffic, ..bench.setup(Slots::All) };
            let mut nest = Nest::new(&block, &setup);
            for slots in ALL_SLOTS {
                if self.asked.is_some_and(|asked| asked != slots) {
                    continue;
                }
                nest.slots = slots;
                let timer = Timer { goal, limit, least_unit: *least, ..bench.timer(&block, parts, slots, feeder) };
                let found = match search_some(&nest, &timer, budgets.0, ceiling, many_of_block) {
                    Ok(found) => found,
                    Err(why) => {
                        self.refused = Some(why);
                        continue;
                    }
                };
                self.work += found.first().map_or(0, |one| one.work);
                for found in found.into_iter().filter(|found| found.score[0] < u128::MAX) {
                    let copies = |at: usize| copies(&block, bench.operator, at, &found);
                    let time =
                        timer.time(&found.tiles, &copies, &found.read, &found.written, slots).unwrap_or_default();
                    best = best.min(found.score[0]);
                    let (score, parts) = (found.score, parts.clone());
                    let (cycles, spans) = (f64::INFINITY, Vec::new());
                    all.push(Candidate { score, parts, slots, found, time, cycles, spans, whole: false });
                }
            }
        }
        all.sort_by(|a, b| (a.score, &a.parts, a.slots).cmp(&(b.score, &b.parts, b.slots)));
        // The same tiles with slots that come to the same are one schedule.
        all.dedup_by(|a, b| {
            a.parts == b.parts
                && a.found.tiles == b.found.tiles
                && a.found.order == b.found.order
                && a.found.slots == b.found.slots
        });
        all
    }

    /// The fastest, copy by copy.
    fn fastest(&mut self) -> Option<Candidate> {
        // Fewer of each block where there are many blocks.
        let mut all = self.candidates(Goal::Time, None, if self.partitions.len() < 4 { 12 } else { 3 });
        // What the closed form puts far behind is not worth the time of following it.
        let least = all.first().map_or(0, |one| one.score[0]);
        all.retain(|one| one.score[0] <= least.saturating_add(least / FAR));
        // The best of each way to cut and kind of slots before the second best of any.
        let mut seen: Vec<(Vec<u64>, Slots)> = Vec::new();
        all.sort_by_cached_key(|one| {
            let key = (one.parts.clone(), one.slots);
            let again = seen.iter().filter(|with| **with == key).count();
            seen.push(key);
            again
        });
        all.truncate(FOLLOWED);
        self.follow_all(&mut all);
        // The first of the fastest: ties keep the order of the scores.
        let mut best = all.into_iter().reduce(|best, one| if one.cycles < best.cycles { one } else { best })?;
        if !self.by_hand {
            self.climb(&mut best);
        }
        Some(best)
    }

    /// The least traffic between main memory (or its cache) and the cores; of equal ones the fastest.
    fn least_traffic(&mut self) -> Option<Candidate> {
        let fastest = self.fastest();
        let mut all = self.candidates(Goal::Traffic, None, 4);
        all.extend(fastest);
        let bytes = |one: &Candidate| {
            let block = self.bench.block_of(&one.parts);
            self.bench.core_traffic(&one.parts, &block, &one.found)
        };
        let least = all.iter().map(bytes).min()?;
        all.retain(|one| bytes(one) == least);
        all.sort_by(|a, b| a.time.total.total_cmp(&b.time.total));
        all.truncate(FOLLOWED_LONGER);
        let mut best: Option<Candidate> = None;
        for mut one in all {
            if one.cycles.is_infinite() {
                let ceiling = best.as_ref().map_or(f64::INFINITY, |best| best.cycles);
                self.follow(&mut one, MOST_STATEMENTS, ceiling);
            }
            if best.as_ref().is_none_or(|best| one.cycles < best.cycles) {
                best = Some(one);
            }
        }
        best
    }

    /// The fewest bytes near the unit that are in time.
    fn smallest(&mut self) -> Option<Candidate> {
        let mut best = self.fastest()?;
        let limit = best.cycles * IN_TIME;
        // The closed form may be off by more than what is allowed.
        let near = best.cycles.max(best.time.total) * IN_TIME;
        let mut all = self.candidates(Goal::Memory, Some((near * 1000.0) as u128), 3);
        all.sort_by_cached_key(|one| (self.bytes(one), one.score));
        for mut one in all.into_iter().take(FOLLOWED) {
            if self.bytes(&one) >= self.bytes(&best) {
                break;
            }
            self.follow(&mut one, MOST_STATEMENTS, limit);
            if one.cycles <= limit {
                best = one;
                break;
            }
        }
        if !self.by_hand {
            self.shrink(&mut best, limit);
        }
        Some(best)
    }

    /// Bytes of all slots of all buffers.
    fn bytes(&self, one: &Candidate) -> u64 {
        let sizes = products(self.bench.operator, &self.bench.gemm, &one.found.tiles);
        let feed = self.feeder.and_then(|feeder| feeder.feed(sizes.first()?.0));
        let buffers = self.bench.buffers(&one.found, feed.as_ref());
        buffers.iter().map(|buffer| buffer.pitch.saturating_mul(buffer.slots)).fold(0, u64::saturating_add)
    }

    /// Tiles a size larger or smaller along one dim, and the other kinds of slots.
    fn around(&self, best: &Candidate, larger: &[bool]) -> Vec<(Vec<u64>, Slots)> {
        let block = self.bench.block_of(&best.parts);
        let mut around: Vec<(Vec<u64>, Slots)> = Vec::new();
        for slots in ALL_SLOTS {
            around.push((best.found.tiles.clone(), slots));
        }
        for larger in larger {
            for dim in 0..block.len() {
                if let Some(next) = self.bench.next_size(block[dim], dim, best.found.tiles[dim], *larger) {
                    let mut tiles = best.found.tiles.clone();
                    tiles[dim] = next;
                    around.push((tiles, best.slots));
                }
            }
        }
        around.retain(|one| self.asked.is_none_or(|asked| asked == one.1));
        around
    }

    /// Goes on to the fastest of the neighbours, as long as one is faster, copy by copy.
    fn climb(&self, best: &mut Candidate) {
        let mut left = CLIMBED;
        let mut known: Vec<(Vec<u64>, Slots)> = vec![(best.found.tiles.clone(), best.slots)];
        loop {
            let before = best.cycles;
            for (tiles, slots) in self.around(best, &[true, false]) {
                if known.iter().any(|with| *with == (tiles.clone(), slots)) {
                    continue;
                }
                let one = self.bench.exactly(&best.parts, &tiles, slots, self.feeder);
                known.push((tiles, slots));
                let Some(mut one) = one else { continue };
                if left == 0 {
                    return;
                }
                left -= 1;
                self.follow(&mut one, MOST_STATEMENTS, best.cycles);
                if one.cycles < best.cycles {
                    *best = one;
                }
            }
            if best.cycles >= before {
                return;
            }
        }
    }

    /// Goes on to the smallest of the neighbours that is in time, as long as one takes fewer bytes.
    fn shrink(&self, best: &mut Candidate, limit: f64) {
        let mut left = SHRUNK;
        loop {
            let bytes = self.bytes(best);
            let around = self.around(best, &[false]).into_iter();
            let mut smaller: Vec<Candidate> = around
                .filter_map(|(tiles, slots)| self.bench.exactly(&best.parts, &tiles, slots, self.feeder))
                .filter(|one| self.bytes(one) < bytes)
                .collect();
            smaller.sort_by_cached_key(|one| (self.bytes(one), one.score));
            let mut found = None;
            for mut one in smaller {
                if left == 0 {
                    return;
                }
                left -= 1;
                self.follow(&mut one, MOST_STATEMENTS, limit);
                if one.cycles <= limit {
                    found = Some(one);
                    break;
                }
            }
            match found {
                Some(one) => *best = one,
                None => return,
            }
        }
    }

    /// Takes down the cycles of all candidates: of the few that look fastest for as long as is said at all, of others as
    /// much as it takes to see that they are none of those.
    fn follow_all(&self, all: &mut [Candidate]) {
        let mut whole = vec![false; all.len()];
        let mut fastest: Vec<f64> = Vec::new();
        for (one, whole) in all.iter_mut().zip(&mut whole) {
            let ceiling = fastest.get(FOLLOWED_LONGER - 1).copied().unwrap_or(f64::INFINITY);
            *whole = self.follow(one, FEW_STATEMENTS, ceiling);
            let place = fastest.partition_point(|with| *with <= one.cycles);
            fastest.insert(place, one.cycles);
        }
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by(|a, b| all[*a].cycles.total_cmp(&all[*b].cycles));
        let mut least = f64::INFINITY;
        for (place, at) in order.into_iter().enumerate() {
            if place >= FOLLOWED_LONGER {
                all[at].cycles = f64::MAX;
                continue;
            }
            if !whole[at] {
                self.follow(&mut all[at], MOST_STATEMENTS, least);
            }
            least = least.min(all[at].cycles);
        }
    }

    /// Takes down the cycles of one; whether all of it was followed.
    fn follow(&self, one: &mut Candidate, statements: u64, ceiling: f64) -> bool {
        let followed = self.bench.follow(one, self.feeder, statements, ceiling);
        (one.cycles, one.spans, one.whole) = (followed.total, followed.spans, followed.whole);
        followed.whole
    }
}

impl Bench<'_> {
    /// The same tiles and slots in the order that is best by the closed form; `None` when they do not fit.
    pub(crate) fn exactly(
        &self,
        parts: &[u64],
        tiles: &[u64],
        slots: Slots,
        feeder: Option<&Feeder<'_>>,
    ) -> Option<Candidate> {
        let block = self.block_operator(parts);
        let nest = Nest::new(&block, &NestSetup { exact: Some(tiles.to_vec()), ..self.setup(slots) });
        let timer = self.timer(&block, parts, slots, feeder);
        let found = search(&nest, &timer, BLOCK_BUDGET).ok().filter(|found| found.score[0] < u128::MAX)?;
        let copies = |at: usize| copies(&block, self.operator, at, &found);
        let time = timer.time(&found.tiles, &copies, &found.read, &found.written, slots)?;
        let (score, parts) = (found.score, parts.to_vec());
        let (cycles, spans) = (f64::INFINITY, Vec::new());
        Some(Candidate { score, parts, slots, found, time, cycles, spans, whole: false })
    }

    /// The next size along a dim that needs a tile less, or one more.
    pub(crate) fn next_size(&self, extent: u64, dim: usize, tile: u64, larger: bool) -> Option<u64> {
        let (count, granule) = (extent.div_ceil(tile), self.granules[dim].max(1));
        if self.operator.dims[dim].whole || (larger && count == 1) {
            return None;
        }
        let next = extent.div_ceil(if larger { count - 1 } else { count + 1 });
        let next = (next.div_ceil(granule) * granule).min(extent).min(self.largest[dim].max(granule));
        (if larger { next > tile } else { next < tile }).then_some(next)
    }

    /// Cycles of a candidate, copy by copy; no more than that it is above a ceiling when it is.
    pub(crate) fn follow(
        &self,
        one: &Candidate,
        feeder: Option<&Feeder<'_>>,
        statements: u64,
        ceiling: f64,
    ) -> Predicted {
        let block = self.block_operator(&one.parts);
        let timer = self.timer(&block, &one.parts, one.slots, feeder);
        let mut turned = Vec::new();
        if let Some((_, capacity, _)) = self.machine.cache {
            self.main_traffic(&one.parts, &self.block_of(&one.parts), &one.found, capacity, &mut turned);
        }
        follow(&timer, &one.found, &one.parts, &turned, statements, ceiling)
    }
}
