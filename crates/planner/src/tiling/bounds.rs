//! What no schedule can beat: the least traffic for a capacity, with its formula and source.

use super::operator::{OperandRole, Operator, OperatorKind, bytes_of};
use npumem_ir::device::SpaceKind;

/// The least bytes over a boundary, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct IoBound {
    /// Bytes.
    pub bytes: u128,
    /// Every input once, every output once.
    pub compulsory: u128,
    /// The term that depends on the capacity; 0 when none is known for the operator.
    pub capacity_term: u128,
    /// The formula, in words of the operator.
    pub formula: String,
    /// Where it is from.
    pub source: String,
}

/// The least traffic of an operator over a boundary with `capacity` bytes on the near side.
///
/// Elements of the widest moved operand are used for the capacity in elements, so that the bound holds for mixed types:
/// the near side then holds at most that many elements of any kind that is as wide or wider, and narrower inputs count with
/// their own bits.
#[must_use]
pub fn io_bound(operator: &Operator, capacity: u64) -> IoBound {
    io_bound_with(operator, capacity, operator.operands[operator.output()].element.bits())
}

/// As [`io_bound`], with sums of so many bits an element while they are not complete.
#[must_use]
pub fn io_bound_with(operator: &Operator, capacity: u64, sum_bits: u64) -> IoBound {
    let compulsory = operator.compulsory_bytes();
    let narrow = operator
        .operands
        .iter()
        .filter(|operand| operand.role != OperandRole::Temporary && operand.role != OperandRole::Late)
        .map(|operand| operand.element.bits())
        .min()
        .unwrap_or(8)
        .max(1);
    // The most elements that the near side can hold, each counted as the narrowest.
    let elements = capacity as f64 * 8.0 / narrow as f64;
    let (term, formula, source) = match operator.kind {
        OperatorKind::Matmul => {
            let macs = operator.points as f64;
            let term = 2.0 * macs / elements.sqrt() - 2.0 * elements;
            (
                term,
                "max(A + B + C, 2 m n k / sqrt(S) - 2 S), S = elements near".to_owned(),
                "Smith, Lowery, Langou, van de Geijn, arXiv:1702.02017 (order of Hong and Kung)".to_owned(),
            )
        }
        OperatorKind::Conv => {
            let reuse = window_reuse(operator);
            let macs = operator.points as f64;
            let term = 2.0 * macs / (reuse * elements).sqrt() - 2.0 * elements;
            let formula = format!(
                "max(I + W + O, 2 MACs / sqrt(R S) - 2 S), R = {reuse:.2} = kernel / stride, S = elements near"
            );
            (term, formula, "Chen, Han, Wang, HPCA 2020, arXiv:1911.05662; the -2 S by the segment argument".to_owned())
        }
        OperatorKind::Attention => {
            // Scores of one pair need a row of Q and O, and a row of K and V: see docs/tiling.md for the segment argument.
            let out = &operator.operands[operator.output()];
            let width = out.axes.last().map_or(1, |axis| axis.extent) as f64;
            let near = sum_bits as f64 / 8.0;
            let q = operator.operands[0].element.bits() as f64 / 8.0;
            let kv = operator.operands[1].element.bits() as f64 / 8.0;
            let per_row = (q + near) * width;
            let per_key = 2.0 * kv * width;
            let pairs = operator.points as f64;
            let bytes = (per_row * per_key * pairs / capacity as f64 - capacity as f64).max(0.0);
            let formula = "max(Q + K + V + O, N^2 q r / M - M), q = bytes of a row of Q and of its sums, r = bytes of a row of K and V, M = bytes near; no score leaves the core".to_owned();
            let source = "order N^2 d^2 / M: Dao et al., arXiv:2205.14135; Saha and Ye, arXiv:2402.07443; constants by the segment argument".to_owned();
            return finish(compulsory, bytes as u128, formula, source);
        }
        _ => (0.0, "every input once + every output once".to_owned(), "counted".to_owned()),
    };
    let bytes = bytes_of(term.max(0.0) as u128, narrow);
    finish(compulsory, u128::from(bytes), formula, source)
}

fn finish(compulsory: u128, capacity_term: u128, formula: String, source: String) -> IoBound {
    IoBound { bytes: compulsory.max(capacity_term), compulsory, capacity_term, formula, source }
}

/// How often a window uses one input position: kernel over stride, by axis, at least 1.
fn window_reuse(operator: &Operator) -> f64 {
    let input = &operator.operands[0];
    let mut reuse = 1.0;
    for axis in &input.axes {
        if let [(_, stride), (kernel, _)] = axis.terms.as_slice() {
            let step = stride.unsigned_abs().max(1) as f64 / axis.divide.max(1) as f64;
            reuse *= operator.dims[*kernel].extent as f64 / step;
        }
    }
    f64::max(reuse, 1.0)
}

/// Whether traffic into this kind of space is counted as traffic of the link that fills it.
#[must_use]
pub fn is_filled_by_hardware(kind: SpaceKind) -> bool {
    kind == SpaceKind::Cache
}

/// The least traffic of attention to cores whose sums have a space of their own: a row of sums stays there until it is
/// complete, so one reading of the keys and values serves at most as many rows as that space holds.
#[must_use]
pub fn attention_by_sums(operator: &Operator, sums: u64, near: u64) -> Option<(u128, String)> {
    if operator.kind != OperatorKind::Attention {
        return None;
    }
    let extent = |operand: usize| operator.operands[operand].axes.last().map_or(1, |axis| axis.extent);
    let out = operator.output();
    let row = extent(out).checked_mul(operator.accumulates.bits())? / 8;
    let rows = (sums / row.max(1)).max(1);
    // Keys that stay near from one set of rows to the next need not come again.
    let whole = u128::from(operator.operands[1].bytes()) + u128::from(operator.operands[2].bytes());
    let heads: u128 = operator.dims.iter().filter(|dim| dim.name == "h").map(|dim| u128::from(dim.extent)).product();
    let queries: u128 = operator.dims.iter().filter(|dim| dim.name == "q").map(|dim| u128::from(dim.extent)).product();
    let sets = queries / u128::from(rows);
    let again = (whole / heads.max(1)).saturating_sub(u128::from(near)) * sets * heads;
    let ends = u128::from(operator.operands[0].bytes()) + u128::from(operator.operands[out].bytes());
    let bytes = ends + again;
    let formula = format!(
        "Q + O + (K + V - M) x floor(rows / {rows}): the accumulators hold {rows} rows of sums, none leaves before it is complete"
    );
    Some((bytes, formula))
}
