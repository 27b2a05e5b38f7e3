//! The buffers and the traffic of a schedule: what cores copy, hand over and stage, and the bound that they share.

use super::bounds::{IoBound, io_bound_with};
use super::machine::Machine;
use super::operator::{DimRole, OperandRole, Operator, OperatorKind};
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

/// Bytes that attention hands between matrix and vector cores, where those share no nearer memory than the cache: scores
/// there, weights back, each written and read.
pub(super) fn exchange(operator: &Operator, machine: &Machine) -> u64 {
    if operator.kind != OperatorKind::Attention || machine.softmax.is_some() {
        return 0;
    }
    let bits = 2 * (operator.accumulates.bits() + operator.operands[0].element.bits());
    super::operator::bytes_of(operator.points, bits)
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
