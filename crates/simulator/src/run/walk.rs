//! One core's way through the program: loops, branches and variables, up to the next statement.

use super::error::RunError;
use npumem_ir::program::{Affine, Program, Root, ScalarKind, Step, Structure, Values};
use npumem_ir::{BufferId, ScalarId, StepId};
use std::collections::BTreeSet;

/// A loop that is being run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// Where it opened.
    pub opener: usize,
    /// Its counter; a loop without one counts its turns itself.
    pub counter: Option<ScalarId>,
    pub now: i64,
    stop: i64,
    by: i64,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A statement or a step of order.
    Step(usize),
    /// The program is over.
    Done,
    /// No steps are left to be run.
    Limit,
}

/// What all cores share while they walk.
#[derive(Debug)]
pub(super) struct Ground<'a> {
    pub program: &'a Program,
    pub structure: Structure,
    /// Steps that may still be run, all cores together.
    pub budget: u64,
    /// What was taken for granted where nobody can know.
    pub assumed: BTreeSet<String>,
}

/// One core's place in the program.
#[derive(Clone, Debug)]
pub(super) struct Walker {
    at: usize,
    pub values: Values,
    pub handles: Vec<Option<(BufferId, i64)>>,
    pub turns: Vec<Turn>,
}

impl Walker {
    pub fn new(program: &Program, values: Values) -> Self {
        Walker { at: 0, values, handles: vec![None; program.handles.len()], turns: Vec::new() }
    }

    /// Walks to the next statement or step of order, and stays there.
    pub fn next(&mut self, ground: &mut Ground<'_>) -> Result<Next, RunError> {
        loop {
            let program = ground.program;
            let Some(step) = program.steps.get(self.at) else { return Ok(Next::Done) };
            if ground.budget == 0 {
                return Ok(Next::Limit);
            }
            ground.budget -= 1;
            let id = StepId::new(self.at);
            match step {
                Step::Run(_) | Step::Sync(_) => return Ok(Next::Step(self.at)),
                Step::Assign(assign) => {
                    self.assign(program, assign);
                    self.at += 1;
                }
                Step::If(condition) => {
                    let taken = match self.values.affine(program, condition) {
                        Some(value) => value != 0,
                        None => {
                            self.unknown(ground, id, "a branch", condition)?;
                            ground.assumed.insert(format!("step {id}: the first side of the branch is taken"));
                            true
                        }
                    };
                    self.at = if taken { self.at + 1 } else { ground.structure.otherwise(id).index() + 1 };
                }
                Step::Else => self.at = ground.structure.partner(ground.structure.partner(id)).index() + 1,
                Step::For { counter, start, stop, step } => {
                    let turn = self.enter(ground, id, (*counter, start, stop, step))?;
                    if turn.now < turn.stop {
                        self.values.set(*counter, Some(turn.now));
                        self.turns.push(turn);
                        self.at += 1;
                    } else {
                        self.at = ground.structure.partner(id).index() + 1;
                    }
                }
                Step::Loop => {
                    self.turns.push(Turn { opener: self.at, counter: None, now: 0, stop: i64::MAX, by: 1 });
                    self.at += 1;
                }
                Step::Leave(condition) => {
                    let stay = match self.values.affine(program, condition) {
                        Some(value) => value != 0,
                        None => {
                            self.unknown(ground, id, "the end of a loop", condition)?;
                            ground.assumed.insert(format!("step {id}: the loop is left after one turn"));
                            self.turns.last().is_some_and(|turn| turn.now == 0)
                        }
                    };
                    if stay {
                        self.at += 1;
                    } else {
                        self.turns.pop();
                        self.at = ground.structure.partner(ground.structure.partner(id)).index() + 1;
                    }
                }
                Step::End => self.end(ground, id),
            }
        }
    }

    /// Past the statement that [`Walker::next`] found.
    pub fn advance(&mut self) {
        self.at += 1;
    }

    fn end(&mut self, ground: &Ground<'_>, id: StepId) {
        let opener = ground.structure.partner(id).index();
        self.at += 1;
        let Some(turn) = self.turns.last_mut().filter(|turn| turn.opener == opener) else { return };
        turn.now = turn.now.saturating_add(turn.by);
        if turn.now < turn.stop {
            if let Some(counter) = turn.counter {
                self.values.set(counter, Some(turn.now));
            }
            self.at = opener + 1;
        } else {
            self.turns.pop();
        }
    }

    fn enter(
        &self,
        ground: &mut Ground<'_>,
        id: StepId,
        (counter, start, stop, step): (ScalarId, &Affine, &Affine, &Affine),
    ) -> Result<Turn, RunError> {
        let program = ground.program;
        let value = |affine: &Affine| self.values.affine(program, affine);
        let (first, last, by) = (value(start), value(stop), value(step).filter(|by| *by > 0));
        for (known, affine) in [(first, start), (last, stop), (by, step)] {
            if known.is_none() {
                self.unknown(ground, id, "a loop", affine)?;
                ground.assumed.insert(format!("step {id}: the loop is run for one turn"));
            }
        }
        let now = first.unwrap_or(0);
        let by = by.unwrap_or(1);
        let stop = match (first, last) {
            (Some(_), Some(stop)) => stop,
            _ => now.saturating_add(1),
        };
        Ok(Turn { opener: id.index(), counter: Some(counter), now, stop, by })
    }

    fn assign(&mut self, program: &Program, assign: &npumem_ir::program::Assign) {
        let scalars: Vec<_> =
            assign.scalars.iter().map(|(target, value)| (*target, self.values.affine(program, value))).collect();
        let handles: Vec<_> = assign
            .handles
            .iter()
            .map(|(target, root, delta)| {
                let named = match root {
                    Root::Buffer(id) => Some((*id, 0)),
                    Root::Handle(id) => self.handles[id.index()],
                };
                let delta = self.values.affine(program, delta);
                (*target, named.zip(delta).and_then(|((id, at), delta)| Some((id, at.checked_add(delta)?))))
            })
            .collect();
        scalars.into_iter().for_each(|(target, value)| self.values.set(target, value));
        handles.into_iter().for_each(|(target, named)| self.handles[target.index()] = named);
    }

    /// An error when an argument without a value is the cause; what the source itself cannot tell is no error.
    fn unknown(&self, ground: &Ground<'_>, step: StepId, what: &str, affine: &Affine) -> Result<(), RunError> {
        let names = unbound(ground.program, &self.values, affine);
        match names.first() {
            None => Ok(()),
            Some(first) => {
                Err(RunError::Unbound { step, what: what.to_owned(), first: first.clone(), names: names.join("', '") })
            }
        }
    }
}

/// The arguments without a value that a sum follows from.
fn unbound(program: &Program, values: &Values, affine: &Affine) -> Vec<String> {
    let mut names = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut pending: Vec<ScalarId> = affine.terms.iter().map(|term| term.0).collect();
    while let Some(scalar) = pending.pop() {
        if !seen.insert(scalar) || values.stored(scalar).is_some() {
            continue;
        }
        match &program.scalar(scalar).kind {
            ScalarKind::Argument(None) => {
                names.insert(program.scalar(scalar).name.clone());
            }
            ScalarKind::Computed(compute) => {
                pending.extend(compute.operands.iter().flat_map(|operand| operand.terms.iter().map(|term| term.0)));
            }
            _ => {}
        }
    }
    names.into_iter().collect()
}
