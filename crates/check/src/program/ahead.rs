//! What a program's text alone says, before it is run: where conditions are tested again, when buffers are done.

use npumem_ir::program::{Affine, Program, Root, ScalarKind, Step, Structure};
use npumem_ir::{BufferId, ScalarId, StepId};
use std::collections::{BTreeMap, BTreeSet};

/// Where unknown conditions are tested: one that is tested twice is decided once.
pub(super) struct Tests {
    /// Last step that tests the scalar, and whether it is tested more than once or in a loop.
    pub(super) last: BTreeMap<ScalarId, (usize, bool)>,
}

impl Tests {
    pub(super) fn new(program: &Program) -> Self {
        let mut last: BTreeMap<ScalarId, (usize, bool)> = BTreeMap::new();
        let mut other_use = BTreeSet::new();
        let mut loops: Vec<usize> = Vec::new();
        let mut ends = BTreeMap::new();
        for (at, step) in program.steps.iter().enumerate() {
            match step {
                Step::For { .. } | Step::Loop | Step::If(_) => loops.push(at),
                Step::End => {
                    if let Some(opener) = loops.pop() {
                        ends.insert(opener, at);
                    }
                }
                _ => {}
            }
        }
        let mut open: Vec<usize> = Vec::new();
        for (at, step) in program.steps.iter().enumerate() {
            let mut uses = |affine: &Affine| other_use.extend(affine.terms.iter().map(|term| term.0));
            match step {
                Step::If(value) | Step::Leave(value) => match value.as_scalar() {
                    Some(scalar) => {
                        let outer = open.iter().find(|at| !matches!(program.steps[**at], Step::If(_)));
                        let end = outer.map_or(at, |outer| ends[outer]);
                        let entry = last.entry(scalar).or_insert((end, outer.is_some()));
                        *entry = (entry.0.max(end), outer.is_some() || entry.0 != end || entry.1);
                    }
                    None => uses(value),
                },
                Step::For { start, stop, step, .. } => [start, stop, step].into_iter().for_each(uses),
                Step::Run(operation) => {
                    for access in operation.reads.iter().chain(&operation.writes) {
                        uses(&access.slot);
                        uses(&access.start);
                        access.extents.iter().for_each(|extent| uses(&extent.count));
                    }
                }
                _ => {}
            }
            match step {
                Step::For { .. } | Step::Loop | Step::If(_) => open.push(at),
                Step::End => {
                    open.pop();
                }
                _ => {}
            }
        }
        for scalar in &program.scalars {
            if let ScalarKind::Computed(compute) = &scalar.kind {
                other_use.extend(compute.operands.iter().flat_map(|o| o.terms.iter().map(|t| t.0)));
            }
        }
        // A test that is made once, outside of loops, needs no memory.
        last.retain(|scalar, (_, again)| {
            let fixed = match &program.scalar(*scalar).kind {
                // Only a truth may be assumed: an argument with another use may be any number.
                ScalarKind::Argument(_) | ScalarKind::Grid(_) => !other_use.contains(scalar),
                ScalarKind::Computed(_) => is_outside(program, *scalar),
                _ => false,
            };
            fixed && *again
        });
        Tests { last }
    }
}

/// Whether a scalar follows only from arguments and is a truth.
fn is_outside(program: &Program, scalar: ScalarId) -> bool {
    use npumem_ir::program::Op;
    let ScalarKind::Computed(compute) = &program.scalar(scalar).kind else { return false };
    if !matches!(compute.op, Op::Eq | Op::Ne | Op::Lt | Op::Le) {
        return false;
    }
    let mut pending: Vec<ScalarId> = compute.operands.iter().flat_map(|o| o.terms.iter().map(|t| t.0)).collect();
    let mut seen = BTreeSet::new();
    while let Some(next) = pending.pop() {
        match &program.scalar(next).kind {
            ScalarKind::Argument(_) | ScalarKind::Grid(_) => {}
            ScalarKind::Computed(compute) if compute.op != Op::Opaque => {
                if seen.insert(next) {
                    pending.extend(compute.operands.iter().flat_map(|o| o.terms.iter().map(|t| t.0)));
                }
            }
            _ => return false,
        }
    }
    true
}

/// For each buffer the last step that may touch it; for each step the buffers that are done after it.
pub(super) fn last_touch(program: &Program, structure: &Structure) -> BTreeMap<usize, Vec<BufferId>> {
    let mut last: Vec<Option<usize>> = vec![None; program.buffers.len()];
    let mut through_handles: BTreeSet<BufferId> = BTreeSet::new();
    for step in &program.steps {
        if let Step::Assign(assign) = step {
            for (_, root, _) in &assign.handles {
                if let Root::Buffer(id) = root {
                    through_handles.insert(program.owner(*id).0);
                }
            }
        }
    }
    for (at, step) in program.steps.iter().enumerate() {
        let Step::Run(operation) = step else { continue };
        // In a loop it may be touched again until the outermost loop ends.
        let mut end = at;
        let mut parent = structure.parent(StepId::new(at));
        while let Some(opener) = parent {
            if !matches!(program.steps[opener.index()], Step::If(_)) {
                end = structure.partner(opener).index();
            }
            parent = structure.parent(opener);
        }
        for access in operation.reads.iter().chain(&operation.writes) {
            if let Root::Buffer(id) = access.root {
                let place = &mut last[program.owner(id).0.index()];
                *place = Some(place.map_or(end, |before| before.max(end)));
            }
        }
    }
    let mut out: BTreeMap<usize, Vec<BufferId>> = BTreeMap::new();
    for (index, at) in last.iter().enumerate() {
        let id = BufferId::new(index);
        if let Some(at) = at
            && !through_handles.contains(&id)
        {
            out.entry(*at).or_default().push(id);
        }
    }
    out
}
