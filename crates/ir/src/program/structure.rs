//! Which step closes which: the shape of a flat program, and the rules that every program obeys.

use super::{Affine, Program, Role, Root, ScalarKind, Step, Sync};
use crate::{BufferId, ScalarId, StepId};

/// The most steps that a program may have.
pub const MAX_STEPS: usize = 4_000_000;
/// The deepest nesting of regions.
pub const MAX_DEPTH: usize = 256;
/// The most slots of one buffer.
pub const MAX_SLOTS: u32 = 65_536;

/// What a rule of [`Program::structure`] found wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("program '{program}', {place}: {problem}")]
pub struct ProgramError {
    /// The program.
    pub program: String,
    /// The step, buffer or scalar.
    pub place: String,
    /// What is wrong and what was expected.
    pub problem: String,
}

/// Partner of every step: for an opening step the one that closes it, and back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Structure {
    /// For `for`, `loop`, `if`: its `end`. For `else` and `end`: the step that opened the region.
    /// For `leave`: its `loop`. For others: itself.
    partner: Vec<StepId>,
    /// For an `if` with an `else`: that `else`; else the `end`.
    otherwise: Vec<StepId>,
    /// The innermost region that encloses the step, if any.
    parent: Vec<Option<StepId>>,
}

impl Structure {
    /// The step that closes (or opened) the region of this one.
    #[must_use]
    pub fn partner(&self, step: StepId) -> StepId {
        self.partner[step.index()]
    }

    /// Where an `if` goes when its condition is 0: its `else`, or its `end`.
    #[must_use]
    pub fn otherwise(&self, step: StepId) -> StepId {
        self.otherwise[step.index()]
    }

    /// The step that opened the innermost region around this one.
    #[must_use]
    pub fn parent(&self, step: StepId) -> Option<StepId> {
        self.parent[step.index()]
    }
}

impl Program {
    /// Checks the rules of a program and returns which step closes which.
    ///
    /// # Errors
    /// The first rule that is broken, with the step or the item.
    pub fn structure(&self) -> Result<Structure, ProgramError> {
        let fail = |place: String, problem: String| ProgramError { program: self.name.clone(), place, problem };
        self.check_items(&fail)?;
        if self.steps.len() > MAX_STEPS {
            return Err(fail("steps".into(), format!("{} steps are more than {MAX_STEPS}", self.steps.len())));
        }
        let count = self.steps.len();
        let itself = || (0..count).map(StepId::new).collect::<Vec<_>>();
        let mut structure = Structure { partner: itself(), otherwise: itself(), parent: vec![None; count] };
        let mut open: Vec<StepId> = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let id = StepId::new(index);
            let place = || format!("step {index}");
            structure.parent[index] = open.last().copied();
            self.check_step(step).map_err(|problem| fail(place(), problem))?;
            match step {
                Step::For { .. } | Step::Loop | Step::If(_) => {
                    if open.len() == MAX_DEPTH {
                        return Err(fail(place(), format!("regions nest deeper than {MAX_DEPTH}")));
                    }
                    open.push(id);
                }
                Step::Else => {
                    let opener = open.last().copied().filter(|top| matches!(self.steps[top.index()], Step::If(_)));
                    let Some(opener) = opener else { return Err(fail(place(), "'else' outside of an 'if'".into())) };
                    if structure.otherwise[opener.index()] != opener {
                        return Err(fail(place(), "a second 'else' of the same 'if'".into()));
                    }
                    structure.otherwise[opener.index()] = id;
                    structure.partner[index] = opener;
                }
                Step::End => {
                    let Some(opener) = open.pop() else { return Err(fail(place(), "'end' of nothing".into())) };
                    structure.partner[opener.index()] = id;
                    structure.partner[index] = opener;
                    structure.parent[index] = open.last().copied();
                    if structure.otherwise[opener.index()] == opener {
                        structure.otherwise[opener.index()] = id;
                    }
                }
                Step::Leave(_) => {
                    // Only directly inside its loop: so a run never jumps out of an `if` or a `for`.
                    let opener = open.last().copied().filter(|top| matches!(self.steps[top.index()], Step::Loop));
                    let Some(opener) = opener else {
                        return Err(fail(place(), "'leave' must stand directly in a 'loop'".into()));
                    };
                    structure.partner[index] = opener;
                }
                Step::Run(_) | Step::Sync(_) | Step::Assign(_) => {}
            }
        }
        match open.pop() {
            Some(opener) => Err(fail(format!("step {opener}"), "the region is never closed by 'end'".into())),
            None => Ok(structure),
        }
    }

    fn check_items(&self, fail: &dyn Fn(String, String) -> ProgramError) -> Result<(), ProgramError> {
        for (index, buffer) in self.buffers.iter().enumerate() {
            let place = || format!("buffer '{}'", buffer.name);
            if buffer.slots == 0 || buffer.slots > MAX_SLOTS {
                return Err(fail(place(), format!("{} slots; expected 1 to {MAX_SLOTS}", buffer.slots)));
            }
            if buffer.bytes.is_none() && buffer.role != Role::External {
                return Err(fail(place(), "its size is unknown; only external memory may have no size".into()));
            }
            if buffer.bytes.is_some() && buffer.total_bytes().is_none_or(|total| i64::try_from(total).is_err()) {
                return Err(fail(place(), "its slots take more than 63 bits of bytes".into()));
            }
            if let Some(alias) = buffer.alias {
                let owner = self.buffers.get(alias.of.index()).filter(|owner| owner.alias.is_none());
                let Some(owner) = owner.filter(|_| alias.of.index() != index) else {
                    return Err(fail(place(), "an alias must name a buffer that is not itself an alias".into()));
                };
                let end = alias.delta.checked_add(buffer.bytes.unwrap_or(0));
                if owner.bytes.is_some_and(|bytes| end.is_none_or(|end| end > bytes)) || owner.slots != buffer.slots {
                    return Err(fail(place(), format!("does not lie within a slot of '{}'", owner.name)));
                }
            }
            if let Some(address) = &buffer.address {
                self.check_affine(address).map_err(|problem| fail(place(), problem))?;
            }
        }
        for (index, scalar) in self.scalars.iter().enumerate() {
            if let ScalarKind::Computed(compute) = &scalar.kind {
                let place = || format!("scalar '{}'", scalar.name);
                for term in compute.operands.iter().flat_map(|operand| &operand.terms) {
                    if term.0.index() >= index {
                        return Err(fail(place(), "follows from a scalar that is defined after it".into()));
                    }
                }
            }
        }
        Ok(())
    }

    fn check_step(&self, step: &Step) -> Result<(), String> {
        match step {
            Step::Run(operation) => {
                for access in operation.reads.iter().chain(&operation.writes) {
                    self.check_root(access.root)?;
                    self.check_affine(&access.slot)?;
                    self.check_affine(&access.start)?;
                    for extent in &access.extents {
                        self.check_affine(&extent.count)?;
                    }
                }
                check_points(operation)
            }
            Step::Sync(sync) => match sync {
                Sync::SetFlag { event: value, .. }
                | Sync::WaitFlag { event: value, .. }
                | Sync::Acquire { token: value, .. }
                | Sync::Release { token: value, .. }
                | Sync::Post { flag: value, .. }
                | Sync::Await { flag: value, .. } => self.check_affine(value),
                Sync::Barrier(_) => Ok(()),
            },
            Step::Assign(assign) => {
                for (target, value) in &assign.scalars {
                    self.check_kind(*target, &ScalarKind::Variable, "is set but is not a variable")?;
                    self.check_affine(value)?;
                }
                for (target, root, delta) in &assign.handles {
                    self.check_root(Root::Handle(*target))?;
                    self.check_root(*root)?;
                    self.check_affine(delta)?;
                }
                Ok(())
            }
            Step::For { counter, start, stop, step } => {
                self.check_kind(*counter, &ScalarKind::Counter, "counts a 'for' but is not a counter")?;
                [start, stop, step].into_iter().try_for_each(|affine| self.check_affine(affine))?;
                match step.as_constant() {
                    Some(number) if number <= 0 => Err(format!("a step of {number}; expected a positive one")),
                    _ => Ok(()),
                }
            }
            Step::Leave(value) | Step::If(value) => self.check_affine(value),
            Step::Loop | Step::Else | Step::End => Ok(()),
        }
    }

    fn check_kind(&self, scalar: ScalarId, kind: &ScalarKind, problem: &str) -> Result<(), String> {
        match self.scalars.get(scalar.index()) {
            Some(found) if std::mem::discriminant(&found.kind) == std::mem::discriminant(kind) => Ok(()),
            Some(found) => Err(format!("'{}' {problem}", found.name)),
            None => Err(format!("no scalar {scalar}")),
        }
    }

    fn check_root(&self, root: Root) -> Result<(), String> {
        let known = match root {
            Root::Buffer(BufferId(id)) => (id as usize) < self.buffers.len(),
            Root::Handle(id) => id.index() < self.handles.len(),
        };
        if known { Ok(()) } else { Err(format!("{root:?} does not exist")) }
    }

    fn check_affine(&self, affine: &Affine) -> Result<(), String> {
        match affine.terms.iter().find(|term| term.0.index() >= self.scalars.len()) {
            Some((scalar, _)) => Err(format!("no scalar {scalar}")),
            None => Ok(()),
        }
    }
}

/// A statement that combines by index has an operand for each term and a scalar for each end.
fn check_points(operation: &super::Operation) -> Result<(), String> {
    let Some(text) = operation.attributes.get(super::POINTS) else { return Ok(()) };
    let points: super::points::Points = text.parse().map_err(|problem| format!("{}: {problem}", super::POINTS))?;
    let operands = points.terms.iter().filter_map(|(_, part)| part.operand);
    let (most, given) = (operands.max().map_or(0, |most| most + 1), operation.reads.len());
    if points.how != super::points::How::Mean && most > given {
        return Err(format!("{}: it reads {given} operands, 'in{}' is not one of them", super::POINTS, most - 1));
    }
    let (needed, given) = (points.numbers(), operation.scalars.len());
    if needed != given {
        return Err(format!(
            "{}: {needed} numbers are needed (two a dim, two an axis), {given} are given",
            super::POINTS
        ));
    }
    Ok(())
}
