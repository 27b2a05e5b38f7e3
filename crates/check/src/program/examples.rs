//! Runs with numbers: where a fault lies on a path of which nobody can say that a run takes it, some runs are tried.
//!
//! A fault that a run with numbers shows is a fault, and the numbers are told. One that none of them shows stays a
//! doubt: which conditions would have to hang together how is told instead.

use super::conditions::Conditions;
use super::finding::{Findings, Kind, Severity};
use super::traces::truths;
use super::{Options, order, run};
use npumem_ir::program::{Affine, Program, ScalarKind, Structure, Values};
use npumem_ir::{ScalarId, StepId};

/// Runs that are tried.
const MAX_RUNS: usize = 48;
/// They may take so many times the work of the first look, and this much.
const MAX_TIMES: u64 = 4;
const LEAST_WORK: u64 = 4000;

/// Looks for runs that show what was found on guessed paths.
pub(super) fn confirm(program: &Program, structure: &Structure, options: &Options, findings: &mut Findings) {
    if findings.has_fault() || findings.guesses().is_empty() {
        return;
    }
    let most = findings.work.saturating_mul(MAX_TIMES).max(LEAST_WORK);
    for values in candidates(program, structure, findings) {
        let mut shown = Findings::default();
        run::check(program, structure, options, &values, &mut shown);
        order::check(program, structure, options, &values, &mut shown);
        let found = shown.has_fault();
        findings.adopt(shown, &values);
        if found || findings.work > most {
            break;
        }
    }
    if findings.has_fault() {
        return;
    }
    // Why, once for each pair of decisions.
    for (guess, _) in findings.guesses().to_vec() {
        let inputs = inputs(program, structure, [guess.first, guess.second]);
        let (first, second) = (StepId::new(guess.first), StepId::new(guess.second));
        findings.push(Severity::Doubt, Kind::Together { first, second, inputs });
    }
}

/// Values of all open inputs, likely ones first.
fn candidates(program: &Program, structure: &Structure, findings: &Findings) -> Vec<Vec<(ScalarId, i64)>> {
    let conditions = Conditions::new(program, structure);
    let values = Values::new(program);
    let open: Vec<ScalarId> = (0..program.scalars.len())
        .map(ScalarId::new)
        .filter(|id| matches!(program.scalar(*id).kind, ScalarKind::Argument(None) | ScalarKind::Grid(_)))
        .filter(|id| conditions.asks_for(*id))
        .collect();
    if open.is_empty() {
        return Vec::new();
    }
    let truths = truths(program);
    let fits = |id: ScalarId, value: i64| {
        let (low, high) = match truths.contains(&id) {
            true => (Some(0), Some(1)),
            false => values.range(program, &Affine::scalar(id)),
        };
        let value = high.map_or(value, |high| value.min(high));
        low.map_or(value, |low| value.max(low))
    };
    let mut out: Vec<Vec<(ScalarId, i64)>> = Vec::new();
    let mut offer = |list: Vec<(ScalarId, i64)>| {
        if !out.contains(&list) && out.len() < MAX_RUNS {
            out.push(list);
        }
    };
    // What the guessed paths decided, the rest small.
    for rest in [2, 1, 3] {
        for (_, known) in findings.guesses().iter().take(3) {
            let value = |id: &ScalarId| known.iter().find(|(other, _)| other == id).map_or(rest, |(_, value)| *value);
            offer(open.iter().map(|id| (*id, fits(*id, value(id)))).collect());
        }
    }
    // Numbers that conditions name, and their neighbours.
    let named = conditions.numbers(program);
    let near = named.iter().flat_map(|number| [*number, number.saturating_add(1), number.saturating_sub(1)]);
    for value in [2, 1, 3, 4, 0].into_iter().chain(near).chain([5, 8, 16]) {
        offer(open.iter().map(|id| (*id, fits(*id, value))).collect());
    }
    // One input at a number, the others just past it, the largest number first.
    for (number, one) in named.iter().rev().flat_map(|number| open.iter().map(move |one| (*number, *one))) {
        let value = |id: ScalarId| if id == one { number } else { number.saturating_add(2) };
        offer(open.iter().map(|id| (*id, fits(*id, value(*id)))).collect());
    }
    out
}

/// Names of what the conditions at these steps follow from and `--dim` can give.
fn inputs(program: &Program, structure: &Structure, steps: [usize; 2]) -> Vec<ScalarId> {
    let conditions = Conditions::new(program, structure);
    let groups: Vec<ScalarId> = steps.iter().flat_map(|at| conditions.asked_in(*at, at + 1)).collect();
    (0..program.scalars.len())
        .map(ScalarId::new)
        .filter(|id| matches!(program.scalar(*id).kind, ScalarKind::Argument(None)))
        .filter(|id| conditions.asks_for(*id) && (groups.is_empty() || groups.contains(&conditions.of(*id))))
        .collect()
}
