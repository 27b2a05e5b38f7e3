//! In-place operators: the output is written over an input that nobody needs afterwards.
//!
//! The operators are taken in execution order. Of an operator's inputs one that may be written over is: the one whose
//! bytes have been in use for the longest, or the shortest, as [`Over`] says (the load is the same, the shapes that
//! placement packs are not). An input may be written over when
//!
//! - this step is the last that reads it or anything that shares its bytes (so no later read sees the new content:
//!   the write-after-read hazard),
//! - it is ours: not a graph input, output, weight or constant, and the output is not the caller's either,
//! - output and input have as many elements of as many bits, and the operator reads each element of it before, and
//!   not after, it writes the element at the same place.

use super::line::{Line, LineStep, Phase, ValueId};
use super::operators::{self, InPlace};
use super::storage::{Over, Reason, Storage};
use npumem_ir::{Bytes, Step};

pub(crate) fn share(line: &Line<'_>, storage: &mut Storage, over: Over) {
    for (index, step) in line.steps.iter().enumerate() {
        if step.phase != Phase::Whole {
            continue;
        }
        let positions: Vec<usize> = match operators::in_place(&step.operator.kind) {
            InPlace::No => continue,
            InPlace::Elementwise => (0..step.inputs.len()).collect(),
            InPlace::Over(positions) => positions.to_vec(),
        };
        let Some(out) = operators::output(step, 0) else { continue };
        let mut candidates: Vec<(Step, usize, ValueId)> = positions
            .into_iter()
            .filter_map(|position| {
                let input = operators::input(step, position)?;
                Some((storage.class_of(input).span.start, position, input))
            })
            .collect();
        candidates.sort_unstable();
        if over == Over::Youngest {
            candidates.reverse();
        }
        for (_, position, input) in candidates {
            if may_overwrite(line, storage, step, position, input, out)
                && storage.merge(line, out, input, Bytes::ZERO, Reason::Overwrite(Step(index as u64)))
            {
                break;
            }
        }
    }
}

fn may_overwrite(
    line: &Line<'_>,
    storage: &Storage,
    step: &LineStep<'_>,
    position: usize,
    over: ValueId,
    out: ValueId,
) -> bool {
    let (from, to) = (line.value(over), line.value(out));
    if from.tensor.element.bits() != to.tensor.element.bits() || !storage.same_size(line, over, out) {
        return false;
    }
    let class = storage.place(over).0;
    let elementwise = operators::in_place(&step.operator.kind) == InPlace::Elementwise;
    // Whatever else it reads of the same bytes, it must read at the place it writes.
    step.inputs.iter().enumerate().filter_map(|(at, other)| Some((at, (*other)?))).all(|(at, other)| {
        at == position
            || storage.place(other).0 != class
            || (elementwise && storage.place(other) == storage.place(over) && storage.same_size(line, other, out))
    })
    // Other outputs of the operator (a kept sum, statistics) have bytes of their own: they are values of this step.
}
