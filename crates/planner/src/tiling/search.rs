//! The exhaustive search over tile sizes and loop orders of one boundary, with pruning that loses nothing.
//!
//! A depth-first walk picks a candidate for one dim after another. A branch is left when the tiles picked so far take more
//! room than there is even with the smallest candidates for the rest, or when its least traffic even with the best
//! candidates for the rest is no better than what was found. Ties go to fewer copies, then to fewer bytes near the unit.

use super::nest::{Nest, Part, Slots};
use super::operator::OperandRole;
use thiserror::Error;

/// What a schedule is worth: compared in order, smaller is better.
pub type Score = [u128; 3];

/// What a complete pick of tiles and an order come to.
#[derive(Debug)]
pub struct Leaf<'a> {
    /// The nest.
    pub nest: &'a Nest,
    /// The candidate of each dim.
    pub picks: &'a [usize],
    /// The loops, outermost first.
    pub order: &'a [usize],
    /// Tile size of each dim.
    pub tiles: &'a [u64],
    /// How often each operand's tiles come again.
    pub turns: &'a [u64],
    /// Bytes read over the boundary, by operand.
    pub read: &'a [u64],
    /// Bytes written over the boundary, by operand.
    pub written: &'a [u64],
    /// Bytes taken in all pools together.
    pub taken: u64,
}

impl Leaf<'_> {
    /// Bytes over the boundary, both ways.
    #[must_use]
    pub fn traffic(&self) -> u128 {
        self.read.iter().chain(self.written).map(|bytes| u128::from(*bytes)).sum()
    }

    /// How many tiles are copied in or out.
    #[must_use]
    pub fn copies(&self) -> u128 {
        let of = |(part, turns): (&Part, &u64)| {
            let tiles = self.picks.iter().enumerate().filter(|(dim, _)| part.touches & (1 << dim) != 0);
            let tiles: u128 = tiles.map(|(dim, pick)| u128::from(self.nest.choices[dim][*pick].count)).product();
            tiles.saturating_mul(u128::from(*turns))
        };
        let moved = self.nest.parts.iter().zip(self.turns).filter(|(part, _)| part.moved);
        moved.map(of).fold(0, u128::saturating_add)
    }
}

/// What is minimised.
pub trait Objective {
    /// What a complete pick is worth.
    fn score(&self, leaf: &Leaf<'_>) -> Score;
    /// The least first number of any score in a branch whose operands read and write at least so much.
    fn least(&self, read: &[u64], written: &[u64]) -> u128;
    /// Whether a larger tile of a dim that no window holds is never worse, the others being the same.
    fn larger_is_better(&self) -> bool {
        true
    }
}

/// The least traffic; then the fewest copies, then the fewest bytes near the unit.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastTraffic;

impl Objective for LeastTraffic {
    fn score(&self, leaf: &Leaf<'_>) -> Score {
        [leaf.traffic(), leaf.copies(), u128::from(leaf.taken)]
    }

    fn least(&self, read: &[u64], written: &[u64]) -> u128 {
        read.iter().chain(written).map(|bytes| u128::from(*bytes)).sum()
    }
}

/// The best schedule of a boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Tile size of each dim.
    pub tiles: Vec<u64>,
    /// Loops with more than one turn, outermost first.
    pub order: Vec<usize>,
    /// Bytes read over the boundary, by operand.
    pub read: Vec<u64>,
    /// Bytes written over the boundary, by operand.
    pub written: Vec<u64>,
    /// Bytes of one slot, by operand.
    pub slot_bytes: Vec<u64>,
    /// Slots, by operand.
    pub slots: Vec<u64>,
    /// Bytes taken, by pool.
    pub taken: Vec<u64>,
    /// What it is worth.
    pub score: Score,
    /// Nodes of the search that were visited.
    pub work: u64,
    /// Nothing better exists among the rectangular schedules of this boundary.
    pub proven: bool,
}

impl Found {
    /// Bytes over the boundary, both ways.
    #[must_use]
    pub fn traffic(&self) -> u128 {
        self.read.iter().chain(&self.written).map(|bytes| u128::from(*bytes)).sum()
    }
}

/// Why there is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SearchError {
    /// Even the smallest tiles do not fit.
    #[error("no tile fits: the smallest one needs {needed} bytes in '{pool}', which has {capacity}")]
    TooSmall {
        /// The pool.
        pool: String,
        /// The least that it takes.
        needed: u64,
        /// What there is.
        capacity: u64,
    },
}

/// Nodes that one search may visit.
pub const BUDGET: u64 = 4_000_000;

/// A score, the candidate of each dim, and the order.
type Pick = (Score, Vec<usize>, usize);

struct Walk<'a, O: Objective + ?Sized> {
    nest: &'a Nest,
    objective: &'a O,
    /// Dims in the order in which they are picked.
    dims: Vec<usize>,
    picks: Vec<usize>,
    /// The best so far, at most `many`, each with other tiles.
    best: Vec<Pick>,
    many: usize,
    ceiling: u128,
    work: u64,
    budget: u64,
    read: Vec<u64>,
    written: Vec<u64>,
    /// Dims of each factor of each part, a bit each.
    masks: Vec<Vec<u32>>,
    /// What each part moves when each of its tiles is moved once.
    once: Vec<u128>,
    /// Tiles along each dim; 1 where none is picked.
    counts: Vec<u64>,
    tiles: Vec<u64>,
    /// Turns of each part in the orders that were looked at, one list after another: orders that differ in loops of one turn
    /// are alike.
    turns: Vec<u64>,
}

/// The best tiles and order of a boundary.
///
/// # Errors
/// When even the smallest tiles do not fit.
pub fn search<O: Objective + ?Sized>(nest: &Nest, objective: &O, budget: u64) -> Result<Found, SearchError> {
    let mut found = search_some(nest, objective, budget, u128::MAX, 1)?;
    Ok(found.swap_remove(0))
}

/// As [`search`], for the best few; nothing at or above a ceiling is of use.
///
/// # Errors
/// As [`search`].
pub fn search_some<O: Objective + ?Sized>(
    nest: &Nest,
    objective: &O,
    budget: u64,
    ceiling: u128,
    many: usize,
) -> Result<Vec<Found>, SearchError> {
    let dims = pick_order(nest);
    let mut walk = Walk {
        nest,
        objective,
        picks: vec![0; nest.choices.len()],
        dims,
        best: Vec::new(),
        many: many.max(1),
        ceiling,
        work: 0,
        budget,
        read: vec![0; nest.parts.len()],
        written: vec![0; nest.parts.len()],
        masks: nest.parts.iter().map(|part| part.factors.iter().map(super::nest::Factor::mask).collect()).collect(),
        once: vec![0; nest.parts.len()],
        counts: vec![1; nest.choices.len()],
        tiles: vec![1; nest.choices.len()],
        turns: Vec::new(),
    };
    smallest_fits(nest)?;
    walk.greedy();
    walk.go(0);
    let proven = walk.work < budget && !nest.thinned;
    let work = walk.work;
    if walk.best.is_empty() {
        return Err(too_small(nest));
    }
    let found = |(score, picks, order): &Pick| found(nest, picks, &nest.orders[*order], *score, work, proven);
    Ok(walk.best.iter().map(found).collect())
}

/// What a complete pick comes to, as a result.
pub(crate) fn found(nest: &Nest, picks: &[usize], order: &[usize], score: Score, work: u64, proven: bool) -> Found {
    let traffic =
        nest.parts.iter().map(|part| Nest::traffic(part, nest.once(part, picks), nest.reloads(part, picks, order)));
    let (read, written) = traffic.unzip();
    let mut taken = vec![0_u64; nest.pools.len()];
    for part in &nest.parts {
        if let Some(pool) = part.pool {
            taken[pool] = taken[pool].saturating_add(nest.bytes_taken(part, picks, order));
        }
    }
    let slot_bytes =
        nest.parts.iter().map(|part| super::operator::bytes_of(u128::from(nest.room(part, picks)), part.near_bits));
    Found {
        tiles: nest.tiles(picks),
        order: order.iter().copied().filter(|dim| nest.choices[*dim][picks[*dim]].count > 1).collect(),
        read,
        written,
        slot_bytes: slot_bytes.collect(),
        slots: nest.parts.iter().map(|part| nest.slots_of(part, picks, order)).collect(),
        taken,
        score,
        work,
        proven,
    }
}

/// Dims that most operands touch and that have many candidates first; the ones that no window holds last.
fn pick_order(nest: &Nest) -> Vec<usize> {
    let mut dims: Vec<usize> = (0..nest.choices.len()).collect();
    // What is summed goes last: its tile size changes little but the room.
    dims.sort_by_key(|dim| {
        (nest.monotone[*dim] && nest.reduction & (1 << dim) != 0, nest.choices[*dim].len() == 1, *dim)
    });
    if let Some(last) = dims.iter().rposition(|dim| nest.monotone[*dim] && nest.choices[*dim].len() > 1) {
        let dim = dims.remove(last);
        dims.push(dim);
    }
    dims
}

fn smallest_fits(nest: &Nest) -> Result<(), SearchError> {
    let picks = vec![0; nest.choices.len()];
    let mut taken = vec![0_u64; nest.pools.len()];
    for part in &nest.parts {
        if let Some(pool) = part.pool {
            let one = super::operator::bytes_of(u128::from(nest.room(part, &picks)), part.near_bits);
            taken[pool] = taken[pool].saturating_add(super::nest::round_up(one, nest.pools[pool].alignment));
        }
    }
    match taken.iter().zip(&nest.pools).find(|(taken, pool)| **taken > pool.capacity) {
        Some((taken, pool)) => {
            Err(SearchError::TooSmall { pool: pool.name.clone(), needed: *taken, capacity: pool.capacity })
        }
        None => Ok(()),
    }
}

fn too_small(nest: &Nest) -> SearchError {
    let picks = vec![0; nest.choices.len()];
    let mut worst = (0_u64, 0_usize);
    for (at, pool) in nest.pools.iter().enumerate() {
        let of = |part: &Part| if part.pool == Some(at) { nest.bytes_taken(part, &picks, &nest.orders[0]) } else { 0 };
        let taken = nest.parts.iter().map(of).fold(0, u64::saturating_add);
        if taken > pool.capacity && taken > worst.0 {
            worst = (taken, at);
        }
    }
    let pool = &nest.pools[worst.1.min(nest.pools.len().saturating_sub(1))];
    SearchError::TooSmall { pool: pool.name.clone(), needed: worst.0.max(pool.capacity), capacity: pool.capacity }
}

impl<O: Objective + ?Sized> Walk<'_, O> {
    /// A first good answer: from the smallest tiles, grow the dim that helps most, for as long as one does.
    fn greedy(&mut self) {
        self.picks.iter_mut().for_each(|pick| *pick = 0);
        if !self.fits_whole() {
            return;
        }
        self.leaf();
        loop {
            let mut best: Option<(Score, usize, usize)> = None;
            for dim in 0..self.picks.len() {
                let now = self.picks[dim];
                for next in
                    [now + 1, now + 1 + (self.nest.choices[dim].len() - now) / 4, self.nest.choices[dim].len() - 1]
                {
                    if next <= now || next >= self.nest.choices[dim].len() {
                        continue;
                    }
                    self.picks[dim] = next;
                    if self.fits_whole() {
                        let score = self.leaf();
                        if best.as_ref().is_none_or(|(least, ..)| score < *least) {
                            best = Some((score, dim, next));
                        }
                    }
                    self.picks[dim] = now;
                }
            }
            match best {
                Some((_, dim, next)) => self.picks[dim] = next,
                None => return,
            }
        }
    }

    fn go(&mut self, depth: usize) {
        let Some(&dim) = self.dims.get(depth) else {
            self.leaf();
            return;
        };
        let last = depth + 1 == self.dims.len();
        for pick in (0..self.nest.choices[dim].len()).rev() {
            if self.work >= self.budget {
                return;
            }
            self.work += 1;
            self.picks[dim] = pick;
            if !self.may_fit(depth) {
                continue;
            }
            if self.may_win(depth) {
                self.go(depth + 1);
            }
            // The largest that fits moves no more than any smaller one.
            if last && self.objective.larger_is_better() && self.nest.monotone[dim] && self.fits_every_order() {
                break;
            }
        }
        self.picks[dim] = 0;
    }

    /// Slots follow the order in one case only.
    fn fits_every_order(&self) -> bool {
        self.nest.slots != Slots::Streamed || self.nest.orders.iter().all(|order| self.nest.fits(&self.picks, order))
    }

    /// Dims that are picked, a bit each.
    fn picked(&self, depth: usize) -> u32 {
        self.dims[..=depth].iter().fold(0, |known, dim| known | 1 << dim)
    }

    /// Room with the smallest candidates for what is not picked yet (which are the picks at 0).
    fn may_fit(&self, depth: usize) -> bool {
        if depth + 1 == self.dims.len() {
            return self.fits_whole();
        }
        let known = self.picked(depth);
        let mut taken = [0_u64; 8];
        for (part, masks) in self.nest.parts.iter().zip(&self.masks) {
            let Some(pool) = part.pool else { continue };
            let room = part.factors.iter().zip(masks).fold(part.fixed_room, |product, (factor, mask)| {
                let extent = if mask & !known == 0 { factor.at(&self.picks).1 } else { factor.least.1 };
                product.saturating_mul(extent)
            });
            let bytes = super::operator::bytes_of(u128::from(room), part.near_bits);
            taken[pool] = taken[pool].saturating_add(bytes);
        }
        self.nest.pools.iter().zip(taken).all(|(pool, taken)| taken <= pool.capacity)
    }

    /// Whether it fits in some order.
    fn fits_whole(&self) -> bool {
        // Slots follow the order in one case only.
        let orders = if self.nest.slots == Slots::Streamed { &self.nest.orders[..] } else { &self.nest.orders[..1] };
        orders.iter().any(|order| self.nest.fits(&self.picks, order))
    }

    /// Takes down what the picks of some dims come to, whatever the order.
    fn set(&mut self, known: u32) {
        let nest = self.nest;
        for (dim, pick) in self.picks.iter().enumerate() {
            self.counts[dim] = if known & (1 << dim) != 0 { nest.choices[dim][*pick].count } else { 1 };
        }
        for (at, (part, masks)) in nest.parts.iter().zip(&self.masks).enumerate() {
            self.once[at] = part.factors.iter().zip(masks).fold(u128::from(part.fixed), |product, (factor, mask)| {
                let sum = if mask & !known == 0 { factor.at(&self.picks).0 } else { factor.least.0 };
                product.saturating_mul(u128::from(sum))
            });
        }
        self.turns.clear();
    }

    /// What the parts move in this order; where the turns of an order before were the same, nothing. With it, whether a sum
    /// that is not complete leaves.
    fn moves(&mut self, order: &[usize]) -> Option<bool> {
        let nest = self.nest;
        let (many, start) = (nest.parts.len(), self.turns.len());
        for part in &nest.parts {
            self.turns.push(nest.turns(part, &self.counts, order));
        }
        let (before, now) = self.turns.split_at(start);
        if nest.slots != Slots::Streamed && before.chunks_exact(many).any(|with| with == now) {
            self.turns.truncate(start);
            return None;
        }
        let mut spilled = false;
        for (at, (part, turns)) in nest.parts.iter().zip(now).enumerate() {
            spilled |= part.role == OperandRole::Output && *turns > 1;
            (self.read[at], self.written[at]) = Nest::traffic(part, self.once[at], *turns);
        }
        Some(spilled)
    }

    /// Whether the least traffic of some order, with the best candidates for the rest, beats what was found.
    fn may_win(&mut self, depth: usize) -> bool {
        let best = self.bar();
        let nest = self.nest;
        let full = depth + 1 == self.dims.len();
        self.set(self.picked(depth));
        for order in &nest.orders {
            if self.moves(order).is_none() {
                continue;
            }
            let least = self.objective.least(&self.read, &self.written);
            if least < best || (full && least == best) {
                return true;
            }
        }
        false
    }

    /// What a pick must stay below, or reach, to be kept. Those that are a little worse than the best are wanted too where
    /// more than one is.
    fn bar(&self) -> u128 {
        let Some((best, ..)) = self.best.first() else { return u128::MAX };
        let bar = match self.best.get(self.many - 1) {
            Some((last, ..)) => last[0],
            None => u128::MAX,
        };
        let near = if self.many > 1 { best[0].saturating_add(best[0] / 16) } else { best[0] };
        bar.min(near).min(self.ceiling)
    }

    /// Keeps a pick when it is among the best.
    fn keep(&mut self, score: Score, order: usize) {
        if self.best.iter().any(|(_, picks, _)| *picks == self.picks) {
            return;
        }
        let at =
            self.best.partition_point(|(with, picks, place)| (*with, picks, *place) <= (score, &self.picks, order));
        if at < self.many {
            self.best.insert(at, (score, self.picks.clone(), order));
            self.best.truncate(self.many);
        }
    }

    /// Scores a complete pick in every order; keeps the best. Returns the best of this pick.
    fn leaf(&mut self) -> Score {
        let nest = self.nest;
        let mut least = ([u128::MAX; 3], 0);
        let bar = self.bar();
        self.set(u32::MAX);
        for (dim, pick) in self.picks.iter().enumerate() {
            self.tiles[dim] = nest.choices[dim][*pick].tile;
        }
        let streamed = nest.slots == Slots::Streamed;
        let taken = |order: &[usize], picks: &[usize]| {
            nest.parts.iter().map(|part| nest.bytes_taken(part, picks, order)).fold(0, u64::saturating_add)
        };
        let always = if streamed { 0 } else { taken(&nest.orders[0], &self.picks) };
        for (index, order) in nest.orders.iter().enumerate() {
            self.work += 1;
            let Some(spilled) = self.moves(order) else { continue };
            // It cannot be better than what there is.
            if bar < u128::MAX && self.objective.least(&self.read, &self.written) > bar {
                continue;
            }
            if (spilled && !nest.spill) || (streamed && !nest.fits(&self.picks, order)) {
                continue;
            }
            let turns = &self.turns[self.turns.len() - nest.parts.len()..];
            let leaf = Leaf {
                nest,
                picks: &self.picks,
                order,
                tiles: &self.tiles,
                turns,
                read: &self.read,
                written: &self.written,
                taken: if streamed { taken(order, &self.picks) } else { always },
            };
            least = least.min((self.objective.score(&leaf), index));
        }
        if least.0[0] < u128::MAX || self.best.is_empty() {
            self.keep(least.0, least.1);
        }
        least.0
    }
}
