//! The two directions: what is read later, and what was written before.

use super::Targets;
use super::bits::{Rows, clear, set, unite};
use npumem_ir::StepId;
use npumem_ir::program::{Access, Program, Root, Step, Structure};

/// Where a run may go after a step; past the last step is the end.
pub(super) fn successors(program: &Program, structure: &Structure, at: usize) -> impl Iterator<Item = usize> {
    let id = StepId::new(at);
    let partner = structure.partner(id).index();
    let (first, second) = match &program.steps[at] {
        Step::For { .. } => (at + 1, Some(partner + 1)),
        Step::If(_) => (at + 1, Some(structure.otherwise(id).index() + 1)),
        // Reached at the end of the first branch: the other is passed over.
        Step::Else => (structure.partner(structure.partner(id)).index(), None),
        Step::Leave(_) => (at + 1, Some(structure.partner(structure.partner(id)).index() + 1)),
        Step::End => match program.steps[partner] {
            Step::For { .. } | Step::Loop => (partner, None),
            _ => (at + 1, None),
        },
        Step::Run(_) | Step::Sync(_) | Step::Assign(_) | Step::Loop => (at + 1, None),
    };
    std::iter::once(first).chain(second)
}

/// Whether a write replaces all of a buffer, for certain.
fn replaces(program: &Program, access: &Access) -> bool {
    let Root::Buffer(id) = access.root else { return false };
    let (owner, delta) = program.owner(id);
    let buffer = program.buffer(owner);
    if !access.certain || buffer.slots != 1 || delta != 0 || access.start.as_constant() != Some(0) {
        return false;
    }
    access.extents.is_empty() && program.buffer(id).bytes == buffer.bytes
        || super::defined::span(access).is_some_and(|(start, end)| start == 0 && Some(end) == buffer.bytes)
}

/// Before each step: the buffers whose bytes may be read from there on before they are replaced.
pub(super) fn live(program: &Program, structure: &Structure, targets: &Targets) -> Rows {
    let count = program.steps.len();
    let mut rows = Rows::new(count, program.buffers.len());
    let mut row = vec![0; rows.words()];
    loop {
        let mut changed = false;
        for at in (0..count).rev() {
            row.fill(0);
            for next in successors(program, structure, at) {
                if next < count {
                    unite(&mut row, rows.row(next));
                }
            }
            if let Step::Run(operation) = &program.steps[at] {
                for access in operation.writes.iter().filter(|access| replaces(program, access)) {
                    for id in targets.of(program, access) {
                        clear(&mut row, id.index());
                    }
                }
                for access in &operation.reads {
                    for id in targets.of(program, access) {
                        set(&mut row, id.index());
                    }
                }
            }
            changed |= rows.replace(at, &row);
        }
        if !changed {
            return rows;
        }
    }
}

/// Before each step: the buffers that some path has written.
pub(super) fn written(program: &Program, structure: &Structure, targets: &Targets) -> Rows {
    let count = program.steps.len();
    let mut rows = Rows::new(count, program.buffers.len());
    let mut row = vec![0; rows.words()];
    loop {
        let mut changed = false;
        for at in 0..count {
            row.copy_from_slice(rows.row(at));
            if let Step::Run(operation) = &program.steps[at] {
                for access in &operation.writes {
                    for id in targets.of(program, access) {
                        set(&mut row, id.index());
                    }
                }
            }
            for next in successors(program, structure, at) {
                if next < count {
                    let mut joined = rows.row(next).to_vec();
                    unite(&mut joined, &row);
                    changed |= rows.replace(next, &joined);
                }
            }
        }
        if !changed {
            break;
        }
    }
    rows
}
