//! An operator of a matrix unit as the product that the unit sees, and the copies between the stage and the unit.
//!
//! ```text
//!   dims of left and result  -> rows (M)        conv: n p q -> M,   k -> N,   c r s -> K,   g -> one product each
//!   dims of right and result -> columns (N)
//!   dims of left and right   -> depth (K)       dims of all three -> one product each (batch)
//! ```

use super::machine::{Hop, Machine};
use super::operator::{DimRole, Operator, Side};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Which dims are rows, columns, depth, batch of the product.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gemm {
    /// Rows.
    pub rows: Vec<usize>,
    /// Columns.
    pub columns: Vec<usize>,
    /// Depth.
    pub depth: Vec<usize>,
    /// One product for each value.
    pub batch: Vec<usize>,
}

impl Gemm {
    /// Sorts the dims of an operator.
    #[must_use]
    pub fn of(operator: &Operator) -> Gemm {
        let mut gemm = Gemm::default();
        let touched = |side: Side, dim: usize| {
            operator.operands.iter().any(|operand| operand.side == side && operand.touches(dim))
        };
        for (dim, about) in operator.dims.iter().enumerate() {
            let (left, right) = (touched(Side::Left, dim), touched(Side::Right, dim));
            match (about.role, left, right) {
                (DimRole::Reduction, ..) => gemm.depth.push(dim),
                (_, true, true) => gemm.batch.push(dim),
                (_, true, false) => gemm.rows.push(dim),
                (_, false, _) => gemm.columns.push(dim),
            }
        }
        gemm
    }

    /// Rows, depth, columns and number of products of a tile.
    #[must_use]
    pub fn size(&self, tiles: &[u64]) -> [u64; 4] {
        let of = |dims: &[usize]| dims.iter().fold(1_u64, |product, dim| product.saturating_mul(tiles[*dim]));
        [of(&self.rows), of(&self.depth), of(&self.columns), of(&self.batch)]
    }
}

/// How a tile in the stage is fed to the unit: steps of the unit, their tile, and the time that they take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Feed {
    /// Rows, depth and columns of one step.
    pub step: [u64; 3],
    /// Slots of the left and of the right buffer near the unit.
    pub slots: [u64; 2],
    /// Bytes of one slot of each.
    pub bytes: [u64; 2],
    /// Steps for one tile.
    pub steps: u64,
    /// Cycles of the unit for one tile.
    pub unit: f64,
    /// Cycles of the copies for one tile, left and right.
    pub copies: [f64; 2],
    /// Bytes copied for one tile.
    pub moved: [u64; 2],
    /// Cycles for one tile, copies and unit together, once it goes on.
    pub together: f64,
    /// Cycles before the unit begins: the first copies.
    pub fill: f64,
}

/// Finds and remembers feeds.
#[derive(Debug)]
pub struct Feeder<'a> {
    machine: &'a Machine,
    bits: [u64; 2],
    near_is_stage: [bool; 2],
    known: RefCell<BTreeMap<[u64; 3], Option<Feed>>>,
}

impl<'a> Feeder<'a> {
    /// For operands of these bits an element, left and right.
    #[must_use]
    pub fn new(machine: &'a Machine, bits: [u64; 2]) -> Self {
        let near_is_stage = [machine.left.stage.is_none(), machine.right.stage.is_none()];
        Feeder { machine, bits, near_is_stage, known: RefCell::default() }
    }

    /// The padded multiply-accumulates of a product.
    #[must_use]
    pub fn padded(&self, [m, k, n]: [u64; 3]) -> f64 {
        let up = |size: u64, unit: u64| size.div_ceil(unit.max(1)) as f64 * unit.max(1) as f64;
        let [fm, fk, fn_] = self.machine.fractal;
        up(m, fm) * up(k, fk) * up(n, fn_)
    }

    /// The fastest way to feed one product of a tile; `None` when its smallest step does not fit.
    pub fn feed(&self, size: [u64; 3]) -> Option<Feed> {
        if let Some(known) = self.known.borrow().get(&size) {
            return *known;
        }
        let found = self.find(size);
        self.known.borrow_mut().insert(size, found);
        found
    }

    fn find(&self, size: [u64; 3]) -> Option<Feed> {
        let machine = self.machine;
        let unit_of = |macs: f64| machine.startup + 2.0 * macs / machine.rate;
        if self.near_is_stage[0] && self.near_is_stage[1] {
            let unit = unit_of(self.padded(size));
            return Some(Feed { step: size, slots: [0, 0], steps: 1, unit, together: unit, ..Feed::default() });
        }
        let [fm, fk, fn_] = machine.fractal;
        let mut best: Option<Feed> = None;
        for m in halvings(size[0], fm) {
            for n in halvings(size[2], fn_) {
                for double in [true, false] {
                    let slots = if double { 2 } else { 1 };
                    let room = |capacity: u64, alignment: u64| capacity / slots / alignment.max(1) * alignment.max(1);
                    let left = room(machine.left.near.capacity, machine.left.near.alignment);
                    let right = room(machine.right.near.capacity, machine.right.near.alignment);
                    let depth = |bytes: u64, across: u64, bits: u64| {
                        bytes.saturating_mul(8) / bits.max(1) / across.max(1) / fk * fk
                    };
                    let up = |size: u64, unit: u64| size.div_ceil(unit) * unit;
                    let most = depth(left, up(m, fm), self.bits[0]).min(depth(right, up(n, fn_), self.bits[1]));
                    if most == 0 {
                        continue;
                    }
                    let k = most.min(up(size[1], fk));
                    // Equal steps rather than a short last one.
                    let k = up(size[1].div_ceil(size[1].div_ceil(k)), fk);
                    let feed = self.of([m, k.min(size[1]), n], size, slots);
                    if best.is_none_or(|best| (feed.together, feed.fill) < (best.together, best.fill)) {
                        best = Some(feed);
                    }
                }
            }
        }
        best
    }

    fn of(&self, step: [u64; 3], size: [u64; 3], slots: u64) -> Feed {
        let machine = self.machine;
        let counts = [size[0].div_ceil(step[0]), size[1].div_ceil(step[1]), size[2].div_ceil(step[2])];
        let steps = counts.iter().product::<u64>();
        let [fm, fk, fn_] = machine.fractal;
        let up = |size: u64, unit: u64| size.div_ceil(unit) * unit;
        let unit = steps as f64 * machine.startup + 2.0 * self.padded(size) / machine.rate;
        let bytes = [
            (up(step[0], fm) * up(step[1], fk) * self.bits[0]).div_ceil(8),
            (up(step[1], fk) * up(step[2], fn_) * self.bits[1]).div_ceil(8),
        ];
        // Both sides are copied for each step.
        let again = [counts[2], counts[0]];
        let copies_of = [steps, steps];
        let whole = [(size[0] * size[1] * self.bits[0]).div_ceil(8), (size[1] * size[2] * self.bits[1]).div_ceil(8)];
        let moved = [whole[0] * again[0], whole[1] * again[1]];
        let hop = |route: &super::machine::Route| route.hops.last().cloned();
        let hops: [Option<Hop>; 2] = [hop(&machine.left), hop(&machine.right)];
        let mut copies = [0.0; 2];
        let mut first = [0.0; 2];
        for side in 0..2 {
            if let (Some(hop), false) = (&hops[side], self.near_is_stage[side]) {
                copies[side] = copies_of[side] as f64 * hop.startup + moved[side] as f64 / hop.rate;
                first[side] = hop.startup + bytes[side] as f64 / hop.rate + hop.latency[0];
            }
        }
        // Both sides come over one engine where the device has one.
        let shared = matches!((&hops[0], &hops[1]), (Some(a), Some(b)) if a.engine == b.engine);
        let copying = if shared { copies[0] + copies[1] } else { copies[0].max(copies[1]) };
        let fill = if shared { first[0] + first[1] } else { first[0].max(first[1]) };
        let together = if slots == 1 { copying + unit } else { copying.max(unit) };
        let slots_of = |side: usize| if self.near_is_stage[side] { 0 } else { slots };
        Feed { step, slots: [slots_of(0), slots_of(1)], bytes, steps, unit, copies, moved, together, fill }
    }
}

/// The size and its parts by 2, 3, 4 ... in multiples of the unit.
fn halvings(size: u64, unit: u64) -> Vec<u64> {
    let units = size.div_ceil(unit.max(1)).max(1);
    let mut list: Vec<u64> = [1, 2, 3, 4, 6, 8, 12, 16, 32]
        .iter()
        .filter(|parts| **parts <= units)
        .map(|parts| (units.div_ceil(*parts) * unit).min(size))
        .collect();
    list.dedup();
    list
}
