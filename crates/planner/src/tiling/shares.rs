//! The buffers and the traffic of a schedule: what cores copy, hand over and stage, and the bound that they share.

use super::bounds::{IoBound, io_bound_with};
use super::machine::Machine;
use super::operator::{Axis, DimRole, Operand, OperandRole, Operator, OperatorKind, bytes_of};
use super::search::Found;
use npumem_ir::{LinkId, SpaceId};

/// A buffer of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedBuffer {
    /// Its name: the operand's, with the space when it has several.
    pub name: String,
    /// The operand.
    pub operand: usize,
    /// The space.
    pub space: SpaceId,
    /// The space's name.
    pub space_name: String,
    /// Bytes of one slot.
    pub bytes: u64,
    /// Bytes from one slot to the next.
    pub pitch: u64,
    /// Slots.
    pub slots: u64,
    /// Where slot 0 starts.
    pub offset: u64,
}

/// Bytes over one link, all cores together, and the least that they could be.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkTraffic {
    /// From and to, for people: `hbm->l2`.
    pub name: String,
    /// The link of the device, when it is one.
    pub link: Option<LinkId>,
    /// Bytes.
    pub bytes: u128,
    /// The bound.
    pub bound: Option<IoBound>,
}

/// Copies of an operand's tiles for one core's block.
pub(super) fn copies(block: &Operator, operator: &Operator, at: usize, found: &Found) -> f64 {
    let operand = &operator.operands[at];
    let count = |dim: usize| block.dims[dim].extent.div_ceil(found.tiles[dim]) as f64;
    let tiles: f64 = (0..block.dims.len()).filter(|dim| operand.touches(*dim)).map(count).product();
    let (mut pending, mut turns) = (1.0, 1.0);
    for dim in &found.order {
        if operand.touches(*dim) {
            turns *= pending;
            pending = 1.0;
        } else if !(operand.role == OperandRole::Late && operator.dims[*dim].role == DimRole::Reduction) {
            pending *= count(*dim);
        }
    }
    tiles * turns
}

/// Ranges of one axis that are looked at one by one.
const MAX_RANGES: usize = 1 << 16;

/// Elements of an operand when every tile of every core is moved once.
pub(super) fn once(operator: &Operator, operand: &Operand, parts: &[u64], block: &[u64], tiles: &[u64]) -> u128 {
    operand.axes.iter().map(|axis| touched_by_all(operator, axis, parts, block, tiles)).product()
}

/// Positions of an axis that all tiles of all cores touch, each tile for itself.
fn touched_by_all(operator: &Operator, axis: &Axis, parts: &[u64], block: &[u64], tiles: &[u64]) -> u128 {
    if axis.terms.is_empty() {
        return u128::from(axis.extent);
    }
    if let Some(dim) = axis.as_plain() {
        return u128::from(operator.dims[dim].extent.min(axis.extent));
    }
    let tiles_of = |dim: usize| parts[dim].saturating_mul(block[dim].div_ceil(tiles[dim]));
    let total = axis.terms.iter().fold(1_u64, |total, (dim, _)| total.saturating_mul(tiles_of(*dim)));
    if total > MAX_RANGES as u64 {
        // Never less than the truth: every tile as one that no padding shortens.
        let inner = axis.anywhere(&|dim| tiles[dim]);
        let (first, end) = inner.touched(&|dim| (0, tiles[dim]));
        return u128::from(total) * u128::from(end - first);
    }
    // Every tile of every core along each dim of the axis.
    let ranges = |dim: usize| -> Vec<(u64, u64)> {
        let extent = operator.dims[dim].extent;
        let mut list = Vec::new();
        for part in 0..parts[dim] {
            let end = ((part + 1) * block[dim]).min(extent);
            let mut low = part * block[dim];
            while low < end {
                let high = (low + tiles[dim]).min(end);
                list.push((low, high));
                low = high;
            }
        }
        list
    };
    let lists: Vec<(usize, Vec<(u64, u64)>)> = axis.terms.iter().map(|(dim, _)| (*dim, ranges(*dim))).collect();
    let count: usize = lists.iter().map(|(_, list)| list.len()).product();
    let mut sum = 0_u128;
    for place in 0..count {
        let range = |dim: usize| {
            let mut rest = place;
            for (with, list) in &lists {
                if *with == dim {
                    return list[rest % list.len()];
                }
                rest /= list.len();
            }
            (0, 1)
        };
        let (first, end) = axis.touched(&range);
        sum += u128::from(end - first);
    }
    sum
}

/// Bytes of an operand that all cores together read and write, blocks at the border counted as they are.
pub(super) fn all_cores(operator: &Operator, at: usize, parts: &[u64], block: &[u64], found: &Found) -> (u128, u128) {
    let operand = &operator.operands[at];
    if found.read[at] == 0 && found.written[at] == 0 {
        return (0, 0);
    }
    // Turns of the loops that bring the same tile again, and the cores that each bring it.
    let (mut turns, mut cores, mut waiting) = (1_u128, 1_u128, Vec::new());
    for dim in &found.order {
        let several = block[*dim].div_ceil(found.tiles[*dim]) > 1;
        if operand.touches(*dim) {
            if several {
                turns *=
                    waiting.drain(..).map(|dim| tiles_of_all(operator, dim, parts, block, found)).product::<u128>();
            }
            continue;
        }
        cores *= u128::from(parts[*dim]);
        if several && !(operand.role == OperandRole::Late && operator.dims[*dim].role == DimRole::Reduction) {
            waiting.push(*dim);
        } else {
            turns *= u128::from(parts[*dim]);
        }
    }
    turns *= waiting.iter().map(|dim| u128::from(parts[*dim])).product::<u128>();
    for dim in (0..parts.len()).filter(|dim| !found.order.contains(dim) && !operand.touches(*dim)) {
        cores *= u128::from(parts[dim]);
        turns *= u128::from(parts[dim]);
    }
    let once = once(operator, operand, parts, block, &found.tiles);
    let far = |times: u128| u128::from(bytes_of(once.saturating_mul(times), operand.element.bits()));
    if operand.role != OperandRole::Output {
        return (far(turns), 0);
    }
    let again = once.saturating_mul(turns.saturating_sub(cores));
    let partial = u128::from(bytes_of(again, operator.accumulates.bits()));
    (partial, partial + far(cores))
}

/// Tiles of a dim, those of all cores.
fn tiles_of_all(operator: &Operator, dim: usize, parts: &[u64], block: &[u64], found: &Found) -> u128 {
    let (extent, tile) = (operator.dims[dim].extent, found.tiles[dim]);
    let whole = extent / block[dim].max(1);
    let rest = extent % block[dim].max(1);
    let all = u128::from(whole) * u128::from(block[dim].div_ceil(tile)) + u128::from(rest.div_ceil(tile));
    // A dim that is summed may be cut evenly and counted by parts.
    if whole + u64::from(rest > 0) == parts[dim] { all } else { u128::from(parts[dim] * block[dim].div_ceil(tile)) }
}

/// Bytes that attention hands between matrix and vector cores, where those share no nearer memory than the cache: scores
/// there, weights back, each written and read.
pub(super) fn exchange(operator: &Operator, machine: &Machine) -> u64 {
    if operator.kind != OperatorKind::Attention || machine.softmax.is_some() {
        return 0;
    }
    let bits = 2 * (operator.accumulates.bits() + operator.operands[0].element.bits());
    bytes_of(operator.points, bits)
}

/// Bytes of a space through which results leave.
pub(super) fn staging(capacity: u64, alignment: u64) -> u64 {
    let part = capacity / 8 / alignment.max(1) * alignment.max(1);
    part.min(64 << 10).max(alignment.min(capacity))
}

/// The bound of a boundary that many cores share: each has its own room and may begin with it full.
pub(super) fn spread_bound(operator: &Operator, capacity: u64, cores: u64) -> IoBound {
    let mut bound = io_bound_with(operator, capacity, operator.accumulates.bits());
    if matches!(operator.kind, OperatorKind::Matmul | OperatorKind::Conv | OperatorKind::Attention) && cores > 1 {
        let slack = match operator.kind {
            OperatorKind::Attention => u128::from(capacity),
            _ => 2 * u128::from(capacity),
        };
        // io_bound took the slack of one core off; the others have theirs.
        bound.capacity_term = bound.capacity_term.saturating_sub(slack * u128::from(cores - 1));
        bound.bytes = bound.compulsory.max(bound.capacity_term);
        bound.formula = format!("{}; S on each of {cores} cores", bound.formula);
    }
    bound
}
