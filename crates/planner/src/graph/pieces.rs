//! Pieces: contiguous slices and the parts of a concat lie inside the whole; what copies without moving a byte does not copy.
//!
//! ```text
//!   [3, 8] sliced to [1:2, 2:6]      rows of 8; one row is taken, so the 4 elements are contiguous:
//!    . . . . . . . .                 start = 1 * 8 + 2
//!    . . # # # # . .                 Contiguous exactly when every dimension of the piece before the last
//!    . . . . . . . .                 one that is cut is 1.
//! ```
//!
//! A piece must start at a multiple of the space's alignment (a kernel reads it as a tensor of its own), and must be all
//! of its class: a slice of something larger cannot also be a part of a concat.

use super::line::{Line, LineStep, Phase, ValueId};
use super::operators;
use super::size::Size;
use super::storage::{Reason, Storage};
use npumem_ir::Bytes;

/// `part` holds the bytes of `whole` from `delta` on.
struct Piece {
    part: ValueId,
    whole: ValueId,
    delta: Bytes,
}

pub(crate) fn share(line: &Line<'_>, storage: &mut Storage) {
    for step in line.steps.iter().filter(|step| step.phase == Phase::Whole) {
        for piece in of(line, step).unwrap_or_default() {
            let (class, inner) = storage.place(piece.part);
            let all_of_class = inner == Bytes::ZERO
                && storage.extent(line, piece.part) == storage.class_of(piece.part).size
                && class != storage.place(piece.whole).0;
            let empty = storage.extent(line, piece.part) == Size::Fixed(Bytes::ZERO);
            let aligned = piece.delta.0.is_multiple_of(storage.alignment().get());
            if all_of_class && aligned && !empty {
                storage.merge(line, piece.part, piece.whole, piece.delta, Reason::SameContent);
            }
        }
    }
}

/// The pieces of an operator; `None` where it has none or a shape is not known.
fn of(line: &Line<'_>, step: &LineStep<'_>) -> Option<Vec<Piece>> {
    match step.operator.kind.as_str() {
        "Slice" => slice(line, step),
        "Gather" => gather(line, step),
        "Split" => split(line, step),
        "Concat" => concat(line, step),
        "Transpose" if keeps_order(line, step)? => whole(line, step),
        "Expand" | "Tile" | "Upsample" => whole(line, step),
        _ => None,
    }
}

/// The output is the input, byte for byte.
fn whole(line: &Line<'_>, step: &LineStep<'_>) -> Option<Vec<Piece>> {
    let (from, to) = (operators::input(step, 0)?, operators::output(step, 0)?);
    let equal = line.value(from).size.fixed()? == line.value(to).size.fixed()?;
    equal.then(|| vec![Piece { part: to, whole: from, delta: Bytes::ZERO }])
}

/// Whether a transpose moves only dimensions of one.
fn keeps_order(line: &Line<'_>, step: &LineStep<'_>) -> Option<bool> {
    let dims = line.value(operators::input(step, 0)?).dims.as_ref()?;
    let order: Vec<usize> = match operators::ints(step, "perm") {
        Some(order) => order.iter().map(|axis| operators::axis(*axis, dims.len())).collect::<Option<_>>()?,
        None => (0..dims.len()).rev().collect(),
    };
    let long: Vec<usize> = order.into_iter().filter(|axis| dims[*axis] != 1).collect();
    Some(long.is_sorted())
}

/// Bytes of one index step along `axis`; `None` for elements that do not fill bytes.
fn stride(line: &Line<'_>, value: ValueId, dims: &[u64], axis: usize) -> Option<u64> {
    let bits = line.value(value).tensor.element.bits();
    let inner = dims.get(axis + 1..)?.iter().try_fold(1_u64, |product, dim| product.checked_mul(*dim))?;
    inner.checked_mul(bits.is_multiple_of(8).then_some(bits / 8)?)
}

fn slice(line: &Line<'_>, step: &LineStep<'_>) -> Option<Vec<Piece>> {
    let (from, to) = (operators::input(step, 0)?, operators::output(step, 0)?);
    let (dims, kept) = (line.value(from).dims.as_deref()?, line.value(to).dims.as_deref()?);
    let starts = operators::ints_or_constant(step, "starts", 1)?;
    let has = |position: usize| operators::input(step, position).is_some();
    let axes = match operators::ints_or_constant(step, "axes", 3) {
        Some(axes) => axes.to_vec(),
        None if has(3) => return None,
        None => (0..starts.len() as i64).collect(),
    };
    let steps = match step.operator.constants.get(&4) {
        Some(steps) => steps.clone(),
        None if has(4) => return None,
        None => vec![1; starts.len()],
    };
    if axes.len() != starts.len() || steps.len() != starts.len() || dims.len() != kept.len() {
        return None;
    }
    let mut first = vec![0_u64; dims.len()];
    for ((axis, start), by) in axes.iter().zip(starts).zip(&steps) {
        let axis = operators::axis(*axis, dims.len())?;
        // Of a dimension cut to one element any step is as good.
        if *by != 1 && kept[axis] != 1 {
            return None;
        }
        let length = i64::try_from(dims[axis]).ok()?;
        let start = if *start < 0 { start.saturating_add(length) } else { *start };
        first[axis] = u64::try_from(start.clamp(0, if *by < 0 { length - 1 } else { length })).ok()?;
        if first[axis].checked_add(kept[axis])? > dims[axis] {
            return None;
        }
    }
    contiguous(line, from, to, dims, kept, &first)
}

/// The piece `kept` of `dims` from `first` on, if its elements lie together.
fn contiguous(
    line: &Line<'_>,
    from: ValueId,
    to: ValueId,
    dims: &[u64],
    kept: &[u64],
    first: &[u64],
) -> Option<Vec<Piece>> {
    let last_cut = (0..dims.len()).rev().find(|axis| dims[*axis] != kept[*axis]);
    if last_cut.is_some_and(|cut| kept[..cut].iter().any(|dim| *dim != 1)) {
        return None;
    }
    let mut delta = 0_u64;
    for (axis, index) in first.iter().enumerate() {
        delta = delta.checked_add(stride(line, from, dims, axis)?.checked_mul(*index)?)?;
    }
    Some(vec![Piece { part: to, whole: from, delta: Bytes(delta) }])
}

/// One index along an axis before which all dimensions are one.
fn gather(line: &Line<'_>, step: &LineStep<'_>) -> Option<Vec<Piece>> {
    let (from, to) = (operators::input(step, 0)?, operators::output(step, 0)?);
    let dims = line.value(from).dims.as_deref()?;
    let axis = operators::axis(operators::int(step, "axis").unwrap_or(0), dims.len())?;
    let [index] = step.operator.constants.get(&1)?.as_slice() else { return None };
    let index = operators::axis(*index, usize::try_from(dims[axis]).ok()?)? as u64;
    let stride = stride(line, from, dims, axis)?;
    let outermost = dims[..axis].iter().all(|dim| *dim == 1);
    let one = line.value(to).size.fixed() == Some(Bytes(stride));
    (outermost && one).then_some(vec![Piece { part: to, whole: from, delta: Bytes(index.checked_mul(stride)?) }])
}

fn split(line: &Line<'_>, step: &LineStep<'_>) -> Option<Vec<Piece>> {
    let from = operators::input(step, 0)?;
    let dims = line.value(from).dims.as_deref()?;
    let axis = operators::axis(operators::int(step, "axis").unwrap_or(0), dims.len())?;
    if dims[..axis].iter().any(|dim| *dim != 1) {
        return None;
    }
    in_a_row(line, step.outputs.iter().copied(), from)
}

fn concat(line: &Line<'_>, step: &LineStep<'_>) -> Option<Vec<Piece>> {
    let to = operators::output(step, 0)?;
    let dims = line.value(to).dims.as_deref()?;
    let axis = operators::axis(operators::int(step, "axis")?, dims.len())?;
    if dims[..axis].iter().any(|dim| *dim != 1) {
        return None;
    }
    in_a_row(line, step.inputs.iter().copied(), to)
}

/// Parts one after another; a part whose size is not known ends the row.
fn in_a_row(line: &Line<'_>, parts: impl Iterator<Item = Option<ValueId>>, whole: ValueId) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut delta = Bytes::ZERO;
    let sub_byte = !line.value(whole).tensor.element.bits().is_multiple_of(8);
    for part in parts {
        let Some(part) = part.filter(|_| !sub_byte) else { break };
        let Some(size) = line.value(part).size.fixed() else { break };
        pieces.push(Piece { part, whole, delta });
        delta = delta.checked_add(size.0)?;
    }
    Some(pieces)
}
