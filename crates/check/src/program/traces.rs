//! What a fault needs: every input without whose value it would not come about.
//!
//! A path remembers of inputs only what it asks for again. What a fault's own turns and branches ask for is read off
//! its moments; inputs that decide elsewhere whether its bytes are written are found by runs with numbers: one that
//! shows the fault, and others that do not.

use super::conditions::{Conditions, asked_at, sources};
use super::finding::{Findings, Kind};
use super::known::{Example, Known, Scene};
use super::spans::Relation;
use super::{Options, order, run};
use npumem_ir::program::{Access, Affine, Op, Program, Root, ScalarKind, Step, Structure, Values};
use npumem_ir::{BufferId, ScalarId, StepId};
use std::collections::BTreeSet;

/// Faults whose inputs are looked for.
const MAX_FAULTS: usize = 8;
/// Inputs beside those of its moments that one fault may need; where more may, those of the moments alone are told.
const MAX_INPUTS: usize = 6;
/// Runs may take so many times the work of the first look, and this much.
const MAX_TIMES: u64 = 8;
const LEAST_WORK: u64 = 20_000;

/// Values of inputs.
type Given = Vec<(ScalarId, i64)>;

/// Completes the inputs of the first faults.
pub(super) fn complete(program: &Program, structure: &Structure, options: &Options, findings: &mut Findings) {
    let faults = findings.faults(MAX_FAULTS);
    if faults.is_empty() {
        return;
    }
    let most = findings.work.saturating_mul(MAX_TIMES).max(LEAST_WORK);
    let mut trace = Trace {
        program,
        structure,
        options,
        conditions: Conditions::new(program, structure),
        truths: truths(program),
        work: 0,
        most,
    };
    for index in faults {
        let Some(found) = findings.get(index).cloned() else { continue };
        if found.kind.moments().is_empty() {
            continue;
        }
        if let Some((kind, example)) = trace.complete(&found.kind, &found.example) {
            findings.show(index, kind, example);
        }
    }
    findings.work += trace.work;
}

struct Trace<'a> {
    program: &'a Program,
    structure: &'a Structure,
    options: &'a Options,
    conditions: Conditions,
    truths: BTreeSet<ScalarId>,
    work: u64,
    most: u64,
}

impl Trace<'_> {
    /// The fault as a run shows it, with the inputs that it needs.
    fn complete(&mut self, kind: &Kind, example: &Given) -> Option<(Kind, Given)> {
        let own = with_more(example, self.asked_by(kind, example));
        let rest: Vec<ScalarId> =
            self.deciding(kind).into_iter().filter(|id| own.iter().all(|(known, _)| known != id)).collect();
        if rest.is_empty() || rest.len() > MAX_INPUTS {
            return (!own.is_empty()).then(|| self.shown(kind, own)).flatten();
        }
        let numbers = self.numbers();
        for value in &numbers {
            let all: Given = rest.iter().map(|id| (*id, self.fit(*id, *value))).collect();
            if let Some((kind, all)) = self.shown(kind, with_more(&own, all)) {
                let needed = |id: &ScalarId| own.iter().any(|(known, _)| known == id);
                let mut kept = all.clone();
                for id in rest.iter().filter(|id| !needed(id)) {
                    if !self.depends(&kind, &all, *id, &numbers) {
                        kept.retain(|(known, _)| known != id);
                    }
                }
                return Some((kind, kept));
            }
        }
        (!own.is_empty()).then(|| self.shown(kind, own)).flatten()
    }

    /// The fault in a run with these values, and with what it asks for beside them.
    fn shown(&mut self, kind: &Kind, mut values: Given) -> Option<(Kind, Given)> {
        loop {
            let found = self.run(kind, &values)?;
            let more = with_more(&found.1, self.asked_by(&found.0, &values));
            let all = with_more(&values, more);
            if all.len() == values.len() {
                return Some((found.0, values));
            }
            values = all;
        }
    }

    /// Whether there is a value of the input with which the fault does not come about.
    fn depends(&mut self, kind: &Kind, all: &Given, id: ScalarId, numbers: &[i64]) -> bool {
        let others: BTreeSet<i64> = numbers.iter().map(|number| self.fit(id, *number)).collect();
        others.into_iter().any(|other| {
            let values: Given =
                all.iter().map(|(known, value)| (*known, if *known == id { other } else { *value })).collect();
            self.run(kind, &values).is_none()
        })
    }

    fn run(&mut self, kind: &Kind, values: &Given) -> Option<(Kind, Given)> {
        if self.work > self.most {
            return None;
        }
        let mut shown = Findings::default();
        run::check(self.program, self.structure, self.options, values, &mut shown);
        order::check(self.program, self.structure, self.options, values, &mut shown);
        self.work += shown.work;
        shown.fault_like(kind).map(|found| (found.kind.clone(), found.example.clone()))
    }

    fn fit(&self, id: ScalarId, value: i64) -> i64 {
        if self.truths.contains(&id) {
            return value.clamp(0, 1);
        }
        let (low, high) = Values::new(self.program).range(self.program, &Affine::scalar(id));
        let value = high.map_or(value, |high| value.min(high));
        low.map_or(value, |low| value.max(low))
    }

    fn numbers(&self) -> Vec<i64> {
        let named = self.conditions.numbers(self.program);
        let near = named.into_iter().flat_map(|number| [number, number.saturating_add(1), number.saturating_sub(1)]);
        let mut all = vec![0, 1, 2, 3];
        near.for_each(|number| {
            if !all.contains(&number) {
                all.push(number);
            }
        });
        all
    }

    /// Values of the inputs that the turns and branches of a finding ask for, where some are given.
    fn asked_by(&self, kind: &Kind, given: &[(ScalarId, i64)]) -> Given {
        let (program, conditions) = (self.program, &self.conditions);
        let mut start = Values::new(program);
        given.iter().for_each(|(scalar, value)| start.set(*scalar, Some(*value)));
        let mut known = Known::default();
        for at in kind.moments() {
            let mut values = start.clone();
            at.turns.iter().for_each(|(counter, value)| values.set(*counter, *value));
            let scene = Scene { program, conditions, values: &values };
            let around = std::iter::successors(self.structure.parent(at.step), |step| self.structure.parent(*step));
            for step in around {
                let ways = match &program.steps[step.index()] {
                    Step::If(condition) => {
                        let taken = at.branches.iter().find(|(branch, _)| *branch == step);
                        taken.and_then(|(_, taken)| conditions.ways(program, &values, condition, *taken))
                    }
                    Step::For { counter, stop, .. } => values.stored(*counter).and_then(|turn| {
                        conditions.compare(program, &values, &stop.plus(&(-turn).into()), Relation::Above)
                    }),
                    _ => None,
                };
                known = known.assuming(scene, ways);
            }
        }
        match known.example(Scene { program, conditions, values: &start }) {
            Example::Found(values) => values,
            _ => Vec::new(),
        }
    }

    /// Open inputs that decide whether bytes of the finding's buffers are written, or how often.
    fn deciding(&self, kind: &Kind) -> BTreeSet<ScalarId> {
        let buffers: BTreeSet<BufferId> = kind.buffers().iter().map(|id| self.program.owner(*id).0).collect();
        let touches = |access: &Access| match access.root {
            Root::Buffer(id) => buffers.contains(&self.program.owner(id).0),
            Root::Handle(_) => true,
        };
        let (order, mut asking) = (matches!(kind, Kind::Race { .. } | Kind::Deadlock { .. }), BTreeSet::new());
        for (at, step) in self.program.steps.iter().enumerate() {
            let counts = match step {
                Step::Run(operation) => operation.writes.iter().any(touches),
                Step::Assign(_) => true,
                Step::Sync(_) => order,
                _ => false,
            };
            if counts {
                let around =
                    std::iter::successors(self.structure.parent(StepId::new(at)), |step| self.structure.parent(*step));
                asking.extend(around.map(StepId::index));
            }
        }
        let mut inputs = BTreeSet::new();
        for at in asking {
            let end = self.structure.partner(StepId::new(at)).index();
            let leaves = (at..end).filter(|step| *step == at || matches!(self.program.steps[*step], Step::Leave(_)));
            for (scalar, _) in leaves.flat_map(|step| asked_at(self.program, step)).flat_map(|sum| &sum.terms) {
                inputs.extend(sources(self.program, *scalar).into_iter().flatten());
            }
        }
        let open =
            |id: &ScalarId| matches!(self.program.scalar(*id).kind, ScalarKind::Argument(None) | ScalarKind::Grid(_));
        inputs.retain(open);
        inputs
    }
}

fn with_more(values: &[(ScalarId, i64)], more: Given) -> Given {
    let mut all = values.to_vec();
    for (id, value) in more {
        if all.iter().all(|(known, _)| *known != id) {
            all.push((id, value));
        }
    }
    all.sort_unstable();
    all
}

/// Inputs that are nothing but truths: asked for as they are, negated, joined with others, compared with 0 and 1.
pub(super) fn truths(program: &Program) -> BTreeSet<ScalarId> {
    let (mut bare, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    let mut add = |sum: &Affine, truth: bool| {
        let alone = matches!(sum.terms.as_slice(), [(_, 1)] if sum.constant == 0)
            || matches!(sum.terms.as_slice(), [(_, -1)] if sum.constant == 1);
        let kind = if truth && alone { &mut bare } else { &mut numbers };
        kind.extend(sum.terms.iter().map(|term| term.0));
    };
    for step in &program.steps {
        match step {
            Step::If(sum) | Step::Leave(sum) => add(sum, true),
            Step::For { start, stop, step, .. } => [start, stop, step].into_iter().for_each(|sum| add(sum, false)),
            Step::Assign(assign) => assign.scalars.iter().for_each(|(_, sum)| add(sum, false)),
            Step::Run(operation) => operation.reads.iter().chain(&operation.writes).for_each(|access| {
                add(&access.slot, false);
                add(&access.start, false);
                access.extents.iter().for_each(|extent| add(&extent.count, false));
            }),
            Step::Sync(_) | Step::Loop | Step::Else | Step::End => {}
        }
    }
    for scalar in &program.scalars {
        let ScalarKind::Computed(compute) = &scalar.kind else { continue };
        for (index, sum) in compute.operands.iter().enumerate() {
            let with_truth = compute.operands.iter().any(|other| matches!(other.as_constant(), Some(0 | 1)));
            add(
                sum,
                match compute.op {
                    Op::And | Op::Or | Op::Xor => true,
                    Op::Eq | Op::Ne => with_truth,
                    Op::Select => index == 0,
                    _ => false,
                },
            );
        }
    }
    let open = |id: &ScalarId| matches!(program.scalar(*id).kind, ScalarKind::Argument(None));
    bare.difference(&numbers).copied().filter(open).collect()
}
