//! What a program's text alone says, before it is run: where conditions are tested again, when buffers are done.

use npumem_ir::program::{Affine, Program, Root, ScalarKind, Step, Structure, Values};
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

    /// Scalars that may hold a value of their own, and so tell two moments apart: counters, variables, and what a
    /// branch may assume. What is computed follows from them.
    pub(super) fn stored(&self, program: &Program, relevant: &[bool]) -> Vec<ScalarId> {
        let holds = |id: &ScalarId| {
            matches!(program.scalar(*id).kind, ScalarKind::Counter | ScalarKind::Variable) || self.last.contains_key(id)
        };
        (0..program.scalars.len()).filter(|index| relevant[*index]).map(ScalarId::new).filter(holds).collect()
    }

    /// Drops what was assumed of scalars that nobody tests after this step.
    pub(super) fn forget(&self, assumed: &mut BTreeSet<ScalarId>, values: &mut Values, at: usize) {
        assumed.retain(|scalar| {
            let again = self.last.get(scalar).is_some_and(|(last, _)| *last > at);
            if !again {
                values.set(*scalar, None);
            }
            again
        });
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
    let mut of_handle: Vec<Option<usize>> = vec![None; program.handles.len()];
    let later = |place: &mut Option<usize>, end: usize| *place = Some(place.map_or(end, |before| before.max(end)));
    for (at, step) in program.steps.iter().enumerate() {
        let Step::Run(operation) = step else { continue };
        let end = outermost_end(program, structure, at);
        for access in operation.reads.iter().chain(&operation.writes) {
            match access.root {
                Root::Buffer(id) => later(&mut last[program.owner(id).0.index()], end),
                Root::Handle(id) => later(&mut of_handle[id.index()], end),
            }
        }
    }
    let lost = through_handles(program, &mut of_handle, &mut last);
    let mut out: BTreeMap<usize, Vec<BufferId>> = BTreeMap::new();
    for (index, at) in last.iter().enumerate().filter(|(index, _)| !lost.contains(&BufferId::new(*index))) {
        if let Some(at) = at {
            out.entry(*at).or_default().push(BufferId::new(index));
        }
    }
    out
}

/// Where the outermost loop around a step ends: until then it may come again.
fn outermost_end(program: &Program, structure: &Structure, at: usize) -> usize {
    let mut end = at;
    let mut parent = structure.parent(StepId::new(at));
    while let Some(opener) = parent {
        if !matches!(program.steps[opener.index()], Step::If(_)) {
            end = structure.partner(opener).index();
        }
        parent = structure.parent(opener);
    }
    end
}

/// Rounds in which last touches are handed from handle to handle; longer circles are given up.
const MAX_ROUNDS: usize = 8;

/// A buffer is touched for as long as a handle that may name it is; the buffers for which that was not found out.
fn through_handles(
    program: &Program,
    of_handle: &mut [Option<usize>],
    last: &mut [Option<usize>],
) -> BTreeSet<BufferId> {
    let mut named: Vec<(Root, usize)> = Vec::new();
    for step in &program.steps {
        if let Step::Assign(assign) = step {
            named.extend(assign.handles.iter().map(|(target, root, _)| (*root, target.index())));
        }
    }
    let mut settled = false;
    for _ in 0..MAX_ROUNDS {
        settled = true;
        // What is named last hands on first: a chain takes one round.
        for (root, target) in named.iter().rev() {
            if let Root::Handle(from) = root
                && of_handle[*target] > of_handle[from.index()]
            {
                of_handle[from.index()] = of_handle[*target];
                settled = false;
            }
        }
        if settled {
            break;
        }
    }
    let mut lost = BTreeSet::new();
    for (root, target) in named {
        if let Root::Buffer(id) = root {
            let owner = program.owner(id).0;
            last[owner.index()] = last[owner.index()].max(of_handle[target]);
            if !settled {
                lost.insert(owner);
            }
        }
    }
    lost
}
