//! One memory boundary of an operator as tables: candidate tile sizes, what each moves, what each takes.
//!
//! ```text
//!   for m in tiles of m                A is read once for each (m, k)     n is inside: A's tile stays
//!     for k in tiles of k              B is read once for each (m, k, n)
//!       for n in tiles of n            C is written and read back for each k, since k is outside n
//!         [ one tile of A, B, C near ]
//! ```
//!
//! Traffic of an operand = (sum of its tile sizes over all its tiles) x (turns of the loops that it does not depend on and
//! that stand outside of the innermost loop that it does depend on). Where a loop has one turn it does not count.
//! The sums are products over axes, so they are tabulated per axis and candidate once.

use super::operator::{Axis, DimRole, OperandRole, Operator, bytes_of};

/// How many slots the buffers get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slots {
    /// One each: copies and compute take turns.
    Single,
    /// Two for every input that changes in the innermost loop.
    Streamed,
    /// Two for every input whose tile changes: the next one is copied while this one is used.
    #[default]
    Inputs,
    /// Two for everything whose tile changes, the output too.
    All,
}

impl Slots {
    /// Its word on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Slots::Single => "none",
            Slots::Streamed => "streamed",
            Slots::Inputs => "inputs",
            Slots::All => "all",
        }
    }
}

/// Memory near the unit that tiles share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Bytes that buffers may take, reserved ranges taken off.
    pub capacity: u64,
    /// Every slot starts at a multiple of this.
    pub alignment: u64,
}

/// How an operand takes part in a nest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestOperand {
    /// The pool that its tile lies in; `None`: it does not take room at this boundary.
    pub pool: Option<usize>,
    /// Bits of an element in the pool (a sum that is not complete may be wider than the result).
    pub near_bits: u64,
    /// The innermost axis of a tile takes a multiple of this many elements in the pool.
    pub row_unit: u64,
    /// It does not cross this boundary (a temporary, or an output that stays for the level outside).
    pub moved: bool,
}

/// What a nest is made from, beside the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestSetup {
    /// The pools.
    pub pools: Vec<Pool>,
    /// One for each operand of the operator.
    pub operands: Vec<NestOperand>,
    /// For each dim: tiles are multiples of this, or all of the dim.
    pub granules: Vec<u64>,
    /// For each dim: tiles are at most this.
    pub largest: Vec<u64>,
    /// How many slots.
    pub slots: Slots,
    /// Whether a sum that is not complete may leave the pool and come back.
    pub spill: bool,
    /// These tiles and no others.
    pub exact: Option<Vec<u64>>,
    /// Whether a few sizes of each dim will do: all with few tiles, all that divide, and steps of an eighth beyond.
    pub coarse: bool,
}

/// One factor of an operand's tile: an axis group over one or two dims, tabulated by candidate.
#[derive(Clone, Debug)]
pub(crate) struct Factor {
    pub(crate) dims: Vec<usize>,
    /// By candidate of the first dim, then of the second: sum over all tiles, and the largest tile's extent.
    pub(crate) table: Vec<Vec<(u64, u64)>>,
    /// The least sum, and the least extent, over the table.
    pub(crate) least: (u64, u64),
    /// Whether this is the operand's innermost axis.
    pub(crate) innermost: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) role: OperandRole,
    pub(crate) pool: Option<usize>,
    pub(crate) moved: bool,
    pub(crate) far_bits: u64,
    pub(crate) near_bits: u64,
    /// Product of the axes that every tile has whole: all of them, and as room in the pool.
    pub(crate) fixed: u64,
    pub(crate) fixed_room: u64,
    pub(crate) factors: Vec<Factor>,
    /// Bit per dim.
    pub(crate) touches: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) tile: u64,
    pub(crate) count: u64,
}

/// One boundary of an operator, tabulated.
#[derive(Clone, Debug)]
pub struct Nest {
    pub(crate) pools: Vec<Pool>,
    pub(crate) parts: Vec<Part>,
    pub(crate) choices: Vec<Vec<Choice>>,
    pub(crate) reduction: u32,
    pub(crate) slots: Slots,
    pub(crate) spill: bool,
    /// Orders of the dims, outermost first, that need to be looked at: dims that the same operands touch are neighbours.
    pub(crate) orders: Vec<Vec<usize>>,
    /// For each dim: whether a larger candidate never moves more (it is in no window).
    pub(crate) monotone: Vec<bool>,
    /// Candidates were left out because there are too many.
    pub thinned: bool,
}

/// Candidates of one dim that are never thinned out, and numbers of tiles of which every one is a candidate.
const FEW: usize = 12;
const FEW_TILES: u64 = 8;
/// Candidates of one dim that are looked at.
const MAX_CHOICES: usize = 320;
/// Largest extent of a windowed dim of which every tile size is a candidate.
const MAX_WINDOW: u64 = 512;
/// Tiles of an axis that are summed one by one.
const MAX_SUMMED: u64 = 1 << 11;

impl Nest {
    /// Tabulates a boundary.
    #[must_use]
    pub fn new(operator: &Operator, setup: &NestSetup) -> Nest {
        let count = operator.dims.len();
        let mut thinned = false;
        let windowed: Vec<bool> = (0..count).map(|dim| in_window(operator, dim)).collect();
        let mut tiles: Vec<Vec<u64>> = Vec::with_capacity(count);
        for (dim, about) in operator.dims.iter().enumerate() {
            let largest = setup.largest[dim].min(about.extent).max(1);
            let granule = setup.granules[dim].clamp(1, about.extent.max(1));
            let all = if let Some(exact) = &setup.exact {
                vec![exact[dim].clamp(1, about.extent.max(1))]
            } else if about.whole {
                vec![about.extent]
            } else if windowed[dim] {
                window_tiles(about.extent, granule, largest, &mut thinned)
            } else {
                tile_sizes(about.extent, granule, largest, &mut thinned)
            };
            let mut all = all;
            if setup.coarse && all.len() > FEW {
                coarsen(&mut all, about.extent, granule);
                thinned = true;
            }
            tiles.push(all);
        }
        for dim in (0..count).filter(|dim| windowed[*dim] && !operator.dims[*dim].whole) {
            drop_dominated(operator, dim, &mut tiles);
        }
        let parts = operator
            .operands
            .iter()
            .zip(&setup.operands)
            .map(|(operand, how)| {
                let mut part = Part {
                    role: operand.role,
                    pool: how.pool,
                    moved: how.moved && operand.role != OperandRole::Temporary,
                    far_bits: operand.element.bits(),
                    near_bits: how.near_bits,
                    fixed: 1,
                    fixed_room: 1,
                    factors: Vec::new(),
                    touches: 0,
                };
                let last = operand.axes.len().saturating_sub(1);
                for (at, axis) in operand.axes.iter().enumerate() {
                    let unit = if at == last { how.row_unit.max(1) } else { 1 };
                    if axis.terms.is_empty() {
                        part.fixed = part.fixed.saturating_mul(axis.extent);
                        part.fixed_room = part.fixed_room.saturating_mul(round_up(axis.extent, unit));
                        continue;
                    }
                    let mut factor = factor(operator, axis, &tiles, &setup.granules, unit);
                    factor.innermost = at == last;
                    for dim in &factor.dims {
                        part.touches |= 1 << dim;
                    }
                    part.factors.push(factor);
                }
                part
            })
            .collect::<Vec<_>>();
        let choices = tiles
            .iter()
            .zip(&operator.dims)
            .map(|(tiles, dim)| {
                tiles.iter().map(|tile| Choice { tile: *tile, count: dim.extent.div_ceil(*tile) }).collect()
            })
            .collect();
        let reduction = (0..count).filter(|d| operator.dims[*d].role == DimRole::Reduction).fold(0, |m, d| m | 1 << d);
        let orders = class_orders(&parts, count);
        let monotone = windowed.iter().map(|windowed| !windowed).collect();
        Nest {
            pools: setup.pools.clone(),
            parts,
            choices,
            reduction,
            slots: setup.slots,
            spill: setup.spill,
            orders,
            monotone,
            thinned,
        }
    }

    /// The tile of each dim that choices mean.
    #[must_use]
    pub fn tiles(&self, picks: &[usize]) -> Vec<u64> {
        picks.iter().enumerate().map(|(dim, pick)| self.choices[dim][*pick].tile).collect()
    }

    /// Turns of the loops that `part` does not depend on but that make its tile come again, given the order.
    pub(crate) fn reloads(&self, part: &Part, picks: &[usize], order: &[usize]) -> u64 {
        let counts: Vec<u64> = picks.iter().zip(&self.choices).map(|(pick, list)| list[*pick].count).collect();
        self.turns(part, &counts, order)
    }

    /// As [`Nest::reloads`], with so many tiles along each dim.
    pub(crate) fn turns(&self, part: &Part, counts: &[u64], order: &[usize]) -> u64 {
        let mut pending = 1_u64;
        let mut turns = 1_u64;
        for dim in order {
            let count = counts[*dim];
            if count == 1 {
                continue;
            }
            if part.touches & (1 << dim) != 0 {
                turns = turns.saturating_mul(pending);
                pending = 1;
            } else if !(part.role == OperandRole::Late && self.reduction & (1 << dim) != 0) {
                pending = pending.saturating_mul(count);
            }
        }
        turns
    }

    /// Whether the part's tile ever changes.
    pub(crate) fn changes(&self, part: &Part, picks: &[usize]) -> bool {
        picks.iter().enumerate().any(|(dim, pick)| part.touches & (1 << dim) != 0 && self.choices[dim][*pick].count > 1)
    }

    /// Slots of the part's buffer, when the loops stand in this order.
    pub(crate) fn slots_of(&self, part: &Part, picks: &[usize], order: &[usize]) -> u64 {
        let double = match (self.slots, part.role) {
            (Slots::Single, _) | (_, OperandRole::Temporary) => false,
            (Slots::Streamed, OperandRole::Input) => {
                let innermost = order.iter().rev().find(|dim| self.choices[**dim][picks[**dim]].count > 1);
                innermost.is_some_and(|dim| part.touches & (1 << dim) != 0)
            }
            (Slots::Streamed, _) => false,
            (_, OperandRole::Input | OperandRole::Late) => true,
            (slots, OperandRole::Output) => slots == Slots::All,
        };
        if double && self.changes(part, picks) { 2 } else { 1 }
    }

    /// Whether all buffers fit, when the loops stand in this order.
    pub(crate) fn fits(&self, picks: &[usize], order: &[usize]) -> bool {
        let mut taken = [0_u64; 8];
        for part in &self.parts {
            if let Some(pool) = part.pool {
                taken[pool] = taken[pool].saturating_add(self.bytes_taken(part, picks, order));
            }
        }
        self.pools.iter().zip(taken).all(|(pool, taken)| taken <= pool.capacity)
    }

    /// Elements of the part's largest tile, as room in the pool.
    pub(crate) fn room(&self, part: &Part, picks: &[usize]) -> u64 {
        part.factors.iter().fold(part.fixed_room, |product, factor| product.saturating_mul(factor.at(picks).1))
    }

    /// Elements that the part moves when each of its tiles is moved once.
    pub(crate) fn once(&self, part: &Part, picks: &[usize]) -> u128 {
        part.factors
            .iter()
            .fold(u128::from(part.fixed), |product, factor| product.saturating_mul(u128::from(factor.at(picks).0)))
    }

    /// Bytes that the part reads and writes over the boundary, given how often its tiles come again.
    pub(crate) fn traffic(part: &Part, once: u128, reloads: u64) -> (u64, u64) {
        if !part.moved {
            return (0, 0);
        }
        match part.role {
            OperandRole::Output => {
                let again = u128::from(reloads.saturating_sub(1));
                let partial = bytes_of(once.saturating_mul(again), part.near_bits);
                (partial, partial.saturating_add(bytes_of(once, part.far_bits)))
            }
            _ => (bytes_of(once.saturating_mul(u128::from(reloads)), part.far_bits), 0),
        }
    }

    /// Bytes that all slots of a part take.
    pub(crate) fn bytes_taken(&self, part: &Part, picks: &[usize], order: &[usize]) -> u64 {
        let Some(pool) = part.pool else { return 0 };
        let one = bytes_of(u128::from(self.room(part, picks)), part.near_bits);
        round_up(one, self.pools[pool].alignment).saturating_mul(self.slots_of(part, picks, order))
    }
}

impl Factor {
    /// Its dims, a bit each.
    pub(crate) fn mask(&self) -> u32 {
        self.dims.iter().fold(0, |mask, dim| mask | 1 << dim)
    }

    pub(crate) fn at(&self, picks: &[usize]) -> (u64, u64) {
        let row = &self.table[picks[self.dims[0]]];
        match self.dims.get(1) {
            Some(second) => row[picks[*second]],
            None => row[0],
        }
    }
}

/// The next multiple.
#[must_use]
pub(crate) fn round_up(value: u64, unit: u64) -> u64 {
    match value % unit.max(1) {
        0 => value,
        rest => value.saturating_add(unit - rest),
    }
}

/// Whether the dim is part of an axis that is more than the dim itself.
fn in_window(operator: &Operator, dim: usize) -> bool {
    let axes = operator.operands.iter().flat_map(|operand| &operand.axes);
    axes.into_iter().any(|axis| axis.as_plain().is_none() && axis.terms.iter().any(|(at, _)| *at == dim))
}

/// For each number of tiles the smallest tile that gives it, ascending.
fn tile_sizes(extent: u64, granule: u64, largest: u64, thinned: &mut bool) -> Vec<u64> {
    let units = extent.div_ceil(granule);
    // All of the dim is a tile, whatever it is a multiple of.
    let cap = if largest >= extent { units } else { (largest / granule).max(1).min(units) };
    let mut sizes = Vec::new();
    let mut unit = units;
    let mut skipped = false;
    while unit >= 1 {
        let count = units.div_ceil(unit);
        let smallest = units.div_ceil(count);
        if smallest <= cap {
            sizes.push((smallest * granule).min(extent));
        }
        if smallest <= 1 {
            break;
        }
        unit = smallest - 1;
        // Past half of what is kept, go down by five percent at a time.
        if sizes.len() > MAX_CHOICES / 2 && unit > 20 {
            skipped = true;
            unit -= unit / 20;
        }
    }
    // The largest that is allowed need not be one of the sizes above.
    if sizes.first().is_none_or(|first| *first < cap * granule) && cap < units {
        sizes.insert(0, cap * granule);
    }
    *thinned |= skipped;
    sizes.reverse();
    sizes.dedup();
    sizes
}

/// Leaves the sizes with few tiles, those that divide, and beyond them steps of an eighth in the number of tiles.
fn coarsen(sizes: &mut Vec<u64>, extent: u64, granule: u64) {
    let mut kept: Vec<(u64, u64)> = Vec::new();
    for size in sizes.iter().rev() {
        let count = extent.div_ceil(*size);
        match kept.last_mut() {
            // Of sizes with as many tiles the smallest.
            Some((last, with)) if *last == count => *with = *size,
            Some((last, _)) => {
                let divides = extent.is_multiple_of(*size) && size.is_multiple_of(granule);
                if count <= FEW_TILES || divides || count >= *last + *last / 8 {
                    kept.push((count, *size));
                }
            }
            None => kept.push((count, *size)),
        }
    }
    *sizes = kept.into_iter().rev().map(|(_, size)| size).collect();
}

/// Tile sizes of a dim in a window: every one while there are not too many.
fn window_tiles(extent: u64, granule: u64, largest: u64, thinned: &mut bool) -> Vec<u64> {
    if extent > MAX_WINDOW {
        *thinned = true;
        return tile_sizes(extent, granule, largest, thinned);
    }
    let mut all: Vec<u64> = (1..=extent.div_ceil(granule)).map(|unit| (unit * granule).min(extent)).collect();
    all.retain(|tile| *tile <= largest.max(granule));
    all
}

/// Leaves out tile sizes that a smaller one matches in the number of tiles and in every window sum.
fn drop_dominated(operator: &Operator, dim: usize, tiles: &mut [Vec<u64>]) {
    let axes: Vec<&Axis> = operator
        .operands
        .iter()
        .flat_map(|operand| &operand.axes)
        .filter(|axis| axis.terms.iter().any(|(at, _)| *at == dim))
        .collect();
    let extent = operator.dims[dim].extent;
    let measure = |tile: u64| -> Vec<u64> {
        let mut costs = vec![extent.div_ceil(tile)];
        for axis in &axes {
            let other = axis.terms.iter().map(|(at, _)| *at).find(|at| *at != dim);
            match other {
                Some(other) => costs
                    .extend(tiles[other].iter().map(|with| axis_sum(operator, axis, &[(dim, tile), (other, *with)]).0)),
                None => costs.push(axis_sum(operator, axis, &[(dim, tile)]).0),
            }
        }
        costs
    };
    let mut kept: Vec<(u64, Vec<u64>)> = Vec::new();
    for tile in tiles[dim].clone() {
        let costs = measure(tile);
        let worse = |with: &Vec<u64>| with.iter().zip(&costs).all(|(a, b)| a <= b);
        if !kept.iter().any(|(_, with)| worse(with)) {
            kept.push((tile, costs));
        }
    }
    tiles[dim] = kept.into_iter().map(|(tile, _)| tile).collect();
}

/// Sum over all tiles of the positions touched, and the most that one tile touches.
pub(crate) fn axis_sum(operator: &Operator, axis: &Axis, tiles: &[(usize, u64)]) -> (u64, u64) {
    let extent = |dim: usize| operator.dims[dim].extent;
    if let (Some(_), [(dim, tile)]) = (axis.as_plain(), tiles) {
        return (extent(*dim).min(axis.extent), (*tile).min(axis.extent));
    }
    let counts: Vec<u64> = tiles.iter().map(|(dim, tile)| extent(*dim).div_ceil(*tile)).collect();
    let total = counts.iter().fold(1_u64, |product, count| product.saturating_mul(*count));
    let size = |index: &[u64]| {
        let (first, end) = axis.touched(&|dim| {
            let at = tiles.iter().position(|(with, _)| *with == dim).unwrap_or(0);
            let low = index[at] * tiles[at].1;
            (low, (low + tiles[at].1).min(extent(dim)))
        });
        end - first
    };
    let mut index = vec![0_u64; tiles.len()];
    if total > MAX_SUMMED {
        // Never less than the truth: every tile as the largest inner one.
        index.iter_mut().zip(&counts).for_each(|(at, count)| *at = count / 2);
        let one = size(&index);
        return (one.saturating_mul(total), one);
    }
    let (mut sum, mut most) = (0_u64, 0_u64);
    for _ in 0..total {
        let one = size(&index);
        sum = sum.saturating_add(one);
        most = most.max(one);
        for (at, count) in index.iter_mut().zip(&counts) {
            *at += 1;
            if *at < *count {
                break;
            }
            *at = 0;
        }
    }
    (sum, most)
}

fn factor(operator: &Operator, axis: &Axis, tiles: &[Vec<u64>], granules: &[u64], unit: u64) -> Factor {
    let dims: Vec<usize> = axis.terms.iter().map(|(dim, _)| *dim).collect();
    let first = dims[0];
    let plain = axis.as_plain().is_some();
    let room = |extent: u64| {
        let extent = if plain { round_up(extent, granules[first]) } else { extent };
        round_up(extent, unit)
    };
    let table: Vec<Vec<(u64, u64)>> = tiles[first]
        .iter()
        .map(|tile| {
            let cell = |with: &[(usize, u64)]| {
                let (sum, most) = axis_sum(operator, axis, with);
                (sum, room(most))
            };
            match dims.get(1) {
                Some(second) => tiles[*second].iter().map(|other| cell(&[(first, *tile), (*second, *other)])).collect(),
                None => vec![cell(&[(first, *tile)])],
            }
        })
        .collect();
    let cells = || table.iter().flatten();
    let least = (cells().map(|cell| cell.0).min().unwrap_or(1), cells().map(|cell| cell.1).min().unwrap_or(1));
    Factor { dims, table, least, innermost: false }
}

/// All orders of the classes of dims that the same operands touch. Moving the dims of a class inward, next to its innermost
/// one, never makes any operand come more often, so orders that mix classes need not be looked at.
fn class_orders(parts: &[Part], dims: usize) -> Vec<Vec<usize>> {
    let mut classes: Vec<(u64, Vec<usize>)> = Vec::new();
    for dim in 0..dims {
        let key = parts
            .iter()
            .enumerate()
            .filter(|(_, part)| part.touches & (1 << dim) != 0)
            .fold(0_u64, |k, (at, _)| k | 1 << at);
        match classes.iter_mut().find(|(with, _)| *with == key) {
            Some((_, list)) => list.push(dim),
            None => classes.push((key, vec![dim])),
        }
    }
    let mut orders: Vec<Vec<usize>> = vec![Vec::new()];
    for at in 0..classes.len() {
        let mut longer = Vec::new();
        for order in &orders {
            for place in 0..=at {
                let mut next = order.clone();
                next.insert(place, at);
                longer.push(next);
            }
        }
        orders = longer;
    }
    orders.sort();
    orders.into_iter().map(|order| order.into_iter().flat_map(|class| classes[class].1.clone()).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_dim_is_a_tile_though_no_granule_divides_it() {
        let mut thinned = false;
        assert_eq!(tile_sizes(100, 16, 100, &mut thinned), [16, 32, 48, 64, 100]);
        assert_eq!(tile_sizes(100, 16, 90, &mut thinned), [16, 32, 48, 64, 80], "the largest that is allowed");
        assert!(!thinned);
    }

    #[test]
    fn a_few_sizes_are_those_with_few_tiles_those_that_divide_and_steps_between() {
        let mut sizes: Vec<u64> = (1..=64).collect();
        coarsen(&mut sizes, 64, 1);
        let counts: Vec<u64> = sizes.iter().rev().map(|size| 64_u64.div_ceil(*size)).collect();
        assert_eq!(&counts[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(counts.contains(&16) && counts.contains(&32) && counts.contains(&64));
        assert!(counts.len() < 24, "{counts:?}");
    }
}
