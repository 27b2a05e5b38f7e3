//! Changes of a program that keep its meaning, or place it.

use super::{Affine, Program, Role, ScalarKind, Step};
use crate::{Alignment, BufferId, Offset, ScalarId, StepId};
use std::collections::BTreeMap;

/// Why a rewrite was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// No such argument.
    #[error("there is no dimension '{name}'; {}", if known.is_empty() { "the kernel has none".to_owned() } else { format!("known: {known}") })]
    UnknownArgument {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The slots of an alias are those of its owner.
    #[error("'{name}' is a name for bytes of another buffer; change the slots of '{owner}'")]
    Alias {
        /// The alias.
        name: String,
        /// The buffer that owns the bytes.
        owner: String,
    },
    /// The step is not there, or not what the rewrite needs.
    #[error("step {step}: {problem}")]
    Step {
        /// The step.
        step: StepId,
        /// What was expected.
        problem: String,
    },
}

/// Whether a run is given this from outside.
fn binds(kind: &ScalarKind) -> bool {
    matches!(kind, ScalarKind::Argument(_) | ScalarKind::Grid(_))
}

impl Program {
    /// Binds an argument to a value (`--dim n=64`).
    ///
    /// # Errors
    /// When there is no argument of that name.
    pub fn bind(&mut self, name: &str, value: i64) -> Result<(), RewriteError> {
        match self.scalars.iter_mut().find(|scalar| scalar.name == name && binds(&scalar.kind)) {
            Some(scalar) => {
                scalar.kind = ScalarKind::Argument(Some(value));
                self.settle_addresses();
                Ok(())
            }
            None => {
                let known = self.dimensions().collect::<Vec<_>>().join(", ");
                Err(RewriteError::UnknownArgument { name: name.to_owned(), known })
            }
        }
    }

    /// What [`Program::bind`] can bind, in order: arguments, and places in the grid.
    pub fn dimensions(&self) -> impl Iterator<Item = &str> {
        self.scalars.iter().filter(|scalar| binds(&scalar.kind)).map(|scalar| scalar.name.as_str())
    }

    /// What must be bound for a value to be known, by name; empty when no binding makes it known.
    #[must_use]
    pub fn unbound(&self, value: &Affine) -> Vec<String> {
        let mut pending: Vec<ScalarId> = value.terms.iter().map(|term| term.0).collect();
        let (mut seen, mut names) = (std::collections::BTreeSet::new(), Vec::new());
        while let Some(next) = pending.pop() {
            if !seen.insert(next) {
                continue;
            }
            let scalar = self.scalar(next);
            match &scalar.kind {
                ScalarKind::Argument(Some(_)) => {}
                ScalarKind::Argument(None) | ScalarKind::Grid(_) => names.push(scalar.name.clone()),
                ScalarKind::Computed(compute) if compute.op != super::Op::Opaque => {
                    pending.extend(compute.operands.iter().flat_map(|operand| operand.terms.iter().map(|term| term.0)));
                }
                ScalarKind::Computed(_) | ScalarKind::Counter | ScalarKind::Variable => return Vec::new(),
            }
        }
        names.sort_unstable();
        names
    }

    /// Addresses that follow from bound arguments become numbers.
    pub fn settle_addresses(&mut self) {
        if self.buffers.iter().all(|buffer| buffer.address.as_ref().is_none_or(|a| a.as_constant().is_some())) {
            return;
        }
        let values = super::Values::new(self);
        for index in 0..self.buffers.len() {
            let known = self.buffers[index].address.as_ref().and_then(|address| values.affine(self, address));
            if let Some(known) = known {
                self.buffers[index].address = Some(Affine::constant(known));
            }
        }
    }

    /// Gives a buffer more (or fewer) slots and rotates every access to it by a counter: iteration `k` of the
    /// counter's loop uses slot `k mod slots`. The start and step of that loop are taken out, so the rotation
    /// is by iteration and not by the counter's raw value.
    ///
    /// # Errors
    /// When the buffer is an alias, or the counter counts no loop.
    pub fn rotate(&mut self, buffer: BufferId, slots: u32, counter: ScalarId) -> Result<(), RewriteError> {
        if let Some(alias) = self.buffer(buffer).alias {
            let (name, owner) = (self.buffer(buffer).name.clone(), self.buffer(alias.of).name.clone());
            return Err(RewriteError::Alias { name, owner });
        }
        let header = self.steps.iter().find_map(|step| match step {
            Step::For { counter: of, start, step, .. } if *of == counter => Some((start.clone(), step.as_constant())),
            _ => None,
        });
        let (start, by) = match header {
            Some((start, Some(by))) => (start, by),
            _ => {
                let problem = format!("no 'for' with a constant step counts {counter}");
                return Err(RewriteError::Step { step: StepId(0), problem });
            }
        };
        let distance = Affine::scalar(counter).minus(&start);
        let iteration = if by == 1 {
            distance
        } else {
            let compute = super::Compute { op: super::Op::Div, operands: vec![distance, Affine::constant(by)] };
            let name = format!("iteration{}", self.scalars.len());
            self.scalars.push(super::Scalar { name, kind: ScalarKind::Computed(compute) });
            Affine::scalar(ScalarId::new(self.scalars.len() - 1))
        };
        self.buffers[buffer.index()].slots = slots;
        for other in &mut self.buffers {
            if other.alias.is_some_and(|alias| alias.of == buffer) {
                other.slots = slots;
            }
        }
        let touches = |root: super::Root, buffers: &[super::Buffer]| match root {
            super::Root::Buffer(id) => {
                id == buffer || buffers[id.index()].alias.is_some_and(|alias| alias.of == buffer)
            }
            super::Root::Handle(_) => false,
        };
        for step in &mut self.steps {
            if let Step::Run(operation) = step {
                for access in operation.reads.iter_mut().chain(&mut operation.writes) {
                    if touches(access.root, &self.buffers) {
                        access.slot = iteration.clone();
                    }
                }
            }
        }
        Ok(())
    }

    /// The program with an address for each buffer in the map; aliases follow their owner.
    #[must_use]
    pub fn placed(&self, addresses: &BTreeMap<BufferId, Offset>) -> Program {
        let mut placed = self.clone();
        let constant = |offset: u64| Affine::constant(i64::try_from(offset).unwrap_or(i64::MAX));
        for (id, buffer) in self.buffers() {
            let (owner, delta) = self.owner(id);
            if let Some(offset) = addresses.get(&owner).filter(|_| buffer.role != Role::External && !buffer.fixed) {
                placed.buffers[id.index()].address = Some(constant(offset.0.saturating_add(delta)));
            }
        }
        placed
    }

    /// The program without any address: what it was before planning, as far as one can tell.
    #[must_use]
    pub fn unplaced(&self) -> Program {
        let mut unplaced = self.clone();
        for buffer in &mut unplaced.buffers {
            if buffer.role != Role::External && !buffer.fixed {
                buffer.address = None;
            }
        }
        unplaced
    }

    /// Raises the alignment of every placed buffer of a space to at least this.
    pub fn align(&mut self, space: &str, alignment: Alignment) {
        for buffer in self.buffers.iter_mut().filter(|b| b.space == space && b.role != Role::External) {
            if let Some(both) = buffer.alignment.and(alignment) {
                buffer.alignment = both;
            }
        }
    }

    /// Exchanges two neighbouring statements. Whether they may be exchanged is for a checker to say.
    ///
    /// # Errors
    /// When one of the two is not a statement.
    pub fn swap_with_next(&mut self, step: StepId) -> Result<(), RewriteError> {
        let at = step.index();
        match (self.steps.get(at), self.steps.get(at + 1)) {
            (Some(Step::Run(_)), Some(Step::Run(_))) => {
                self.steps.swap(at, at + 1);
                Ok(())
            }
            _ => Err(RewriteError::Step { step, problem: "it and the next must both be statements".into() }),
        }
    }
}
