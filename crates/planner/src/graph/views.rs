//! Views: operators whose output is their input's bytes under another shape or name.

use super::line::{Line, LineStep, Origin, Phase, ValueId};
use super::operators;
use super::storage::{Reason, Storage};
use npumem_ir::{Bytes, Step};

/// Lets every view share its input's bytes, and the outputs of an `If`'s bodies those of the `If`.
pub(crate) fn share(line: &Line<'_>, storage: &mut Storage) {
    for (index, step) in line.steps.iter().enumerate() {
        match step.phase {
            Phase::Whole => {
                let Some(position) = operators::view(line, step) else { continue };
                if let (Some(from), Some(to)) = (operators::input(step, position), operators::output(step, 0)) {
                    storage.merge(line, to, from, Bytes::ZERO, Reason::View);
                }
            }
            Phase::Leave if step.operator.kind == "If" => branches(line, storage, step, Step(index as u64)),
            Phase::Enter | Phase::Leave => {}
        }
    }
}

/// Each branch computes its outputs where the `If` has them, so that leaving it copies nothing.
///
/// Only for what is the branch's own from the start: a captured value, or a view of one, holds other bytes in the
/// other branch. Of two outputs that are the same value, one.
fn branches(line: &Line<'_>, storage: &mut Storage, step: &LineStep<'_>, leave: Step) {
    let mut given = step.inputs.iter().copied();
    for body in &step.operator.bodies {
        let outputs: Vec<Option<ValueId>> = given.by_ref().take(body.graph.outputs.len()).collect();
        for (inner, outer) in outputs.iter().zip(&step.outputs) {
            let (Some(inner), Some(outer)) = (*inner, *outer) else { continue };
            let scope = line.value(outer).scope;
            let own = |id: &ValueId| line.value(*id).scope > scope && line.value(*id).origin == Origin::Computed;
            if storage.class_of(inner).members.iter().all(own) && storage.same_size(line, inner, outer) {
                storage.merge(line, inner, outer, Bytes::ZERO, Reason::HandedOn(leave));
            }
        }
    }
}
