//! Which conditions of a loop move along with its counter, and which stay where they are.
//!
//! ```text
//!   for i = 0 to m { if i == n { .. }                     moves: the turn with n = 3 is the turn with n = 2, one later
//!                    if n == 40 { .. } }                  stays: of these two, only turn 40 may take both
//! ```
//!
//! A turn repeats an earlier one whatever `n` is only if all that is asked of `n` moves along with the counter, or is
//! decided already. Where it is asked in ways that move at different paces, no turn stands for another.

use super::conditions::{Conditions, asked_at, is_known, is_truth, sources};
use super::known::{Known, Scene};
use super::spans::{Base, Relation, base_of};
use super::turns::{MAX_PERIOD, lcm};
use npumem_ir::program::{Affine, Op, Program, ScalarKind, Step, Structure};
use npumem_ir::{ScalarId, StepId};
use std::collections::{BTreeMap, BTreeSet};

/// How far a condition is followed to the comparisons it is made of.
const MAX_DEPTH: u32 = 16;
/// Turns after which inner loops and computed values that follow from the same inputs are taken to have shown all that
/// they do (their own turns repeat sooner), by the number of loops around.
const LATE_TURNS: [usize; 4] = [8, 4, 2, 1];

/// What a loop's conditions say of turns that may stand for each other.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Turns apart that may be compared; `None`: none stands for another.
    period: Option<u64>,
    /// Groups that the loop asks together with its counter.
    pub with_counter: BTreeSet<ScalarId>,
    /// Groups of which a turn must know what was decided.
    pub kept: BTreeSet<ScalarId>,
    /// Comparisons that do not move: they must be decided.
    fixed: Vec<(Affine, Relation)>,
    /// Turns before which none stands for another.
    late: usize,
    /// The loop's own bound.
    stop: Affine,
}

/// One comparison of a sum with 0 that a step makes.
struct Leaf {
    sum: Affine,
    relation: Relation,
    /// It is made in every turn of a loop of its own.
    turns: bool,
}

/// What a comparison asks for, and by how much that must move for each step of the counter (a fraction).
struct Asked {
    key: Base,
    pace: Option<(i128, i128)>,
    leaf: Leaf,
}

impl Moves {
    /// Of the loop opened at `opener`.
    pub fn of(program: &Program, structure: &Structure, conditions: &Conditions, opener: StepId) -> Moves {
        let mut found = Moves { period: Some(1), ..Moves::default() };
        let Step::For { counter, stop, .. } = &program.steps[opener.index()] else { return found };
        let mut period = 1;
        let body = opener.index() + 1..structure.partner(opener).index();
        found.with_counter = conditions.asked_with(program, *counter, (opener.index(), body.end));
        let leaves = body.flat_map(|at| leaves(program, at));
        let mut asked: Vec<Asked> = leaves.filter_map(|leaf| ask(program, leaf, *counter, &mut period)).collect();
        if asked.iter().all(|asked| asked.pace.is_none()) {
            return found;
        }
        let own = Leaf { sum: stop.minus(&Affine::scalar(*counter)), relation: Relation::Above, turns: true };
        asked.extend(ask(program, own, *counter, &mut period));
        let Some(moving) = Moving::of(program, &asked) else { return Moves { period: None, ..found } };
        let mut late = moving.hang_together;
        for Asked { key, leaf, .. } in asked.into_iter().filter(|asked| asked.pace.is_none()) {
            let plainly = key.iter().any(|term| moving.scalars.contains(&term.0));
            if plainly && !leaf.turns {
                found.kept.insert(conditions.group(&key));
                found.fixed.push((leaf.sum, leaf.relation));
            } else if plainly || key.iter().any(|term| moving.follows(program, term.0)) {
                late = true;
            }
        }
        if late {
            let around = std::iter::successors(structure.parent(opener), |at| structure.parent(*at));
            let depth = around.filter(|at| matches!(program.steps[at.index()], Step::For { .. })).count();
            found.late = LATE_TURNS[depth.min(LATE_TURNS.len() - 1)];
        }
        Moves { period: Some(period), stop: stop.clone(), ..found }
    }

    /// Turns after which a state of the loop may come back, `period` being that of what it touches.
    pub fn period(&self, period: Option<u64>) -> Option<usize> {
        let both = lcm(period?, self.period?);
        usize::try_from(both).ok().filter(|_| both <= MAX_PERIOD)
    }

    /// Whether some of its conditions do not move along.
    pub fn stay(&self) -> bool {
        self.period.is_none() || !self.fixed.is_empty()
    }

    /// Whether a turn that begins with `now` may stand for all later ones, as it did what the one with `earlier` did.
    pub fn stands(&self, scene: Scene<'_>, (earlier, now): (&Known, &Known), turn: usize) -> bool {
        turn >= self.late
            && (self.fixed.is_empty() || !now.is_bounded(scene, &self.stop))
            && self.fixed.iter().all(|(sum, relation)| {
                let settled = now.settles(scene, sum, *relation);
                settled.is_some() && earlier.settles(scene, sum, *relation) == settled
            })
    }
}

/// What moves along with the counter.
struct Moving {
    scalars: BTreeSet<ScalarId>,
    sources: BTreeSet<ScalarId>,
    /// Two of them follow from one value.
    hang_together: bool,
}

impl Moving {
    /// `None` where one value would have to move at two paces.
    fn of(program: &Program, asked: &[Asked]) -> Option<Moving> {
        let mut paces: BTreeMap<&Base, (i128, i128)> = BTreeMap::new();
        let (mut of_scalar, mut of_source) = (BTreeMap::<ScalarId, &Base>::new(), BTreeMap::<ScalarId, &Base>::new());
        let mut hang_together = false;
        for (key, pace) in asked.iter().filter_map(|asked| Some((&asked.key, asked.pace?))) {
            if *paces.entry(key).or_insert(pace) != pace {
                return None;
            }
            for (scalar, _) in key.iter() {
                if *of_scalar.entry(*scalar).or_insert(key) != key {
                    return None;
                }
                for source in sources(program, *scalar)? {
                    hang_together |= *of_source.entry(source).or_insert(key) != key;
                }
            }
        }
        let (scalars, sources) = (of_scalar.into_keys().collect(), of_source.into_keys().collect());
        Some(Moving { scalars, sources, hang_together })
    }

    fn follows(&self, program: &Program, scalar: ScalarId) -> bool {
        sources(program, scalar).is_none_or(|sources| !sources.is_disjoint(&self.sources))
    }
}

/// The comparisons that a step makes.
fn leaves(program: &Program, at: usize) -> Vec<Leaf> {
    match &program.steps[at] {
        Step::For { start, stop, .. } => {
            vec![Leaf { sum: stop.minus(start), relation: Relation::Above, turns: true }]
        }
        _ => {
            let mut out = Vec::new();
            asked_at(program, at)
                .into_iter()
                .for_each(|sum| follow(program, sum, Relation::Other, MAX_DEPTH, &mut out));
            out
        }
    }
}

// Depth is bounded, not by the input.
fn follow(program: &Program, sum: &Affine, relation: Relation, depth: u32, out: &mut Vec<Leaf>) {
    if let (Some(next), [(scalar, _)]) = (depth.checked_sub(1), sum.terms.as_slice())
        && is_truth(program, *scalar, next)
        && let ScalarKind::Computed(compute) = &program.scalar(*scalar).kind
    {
        let compared = |relation| (compute.operands[0].minus(&compute.operands[1]), relation);
        let (difference, relation) = match compute.op {
            Op::Eq => compared(Relation::Equal),
            Op::Ne => compared(Relation::Other),
            Op::Lt => compared(Relation::Below),
            Op::Le => compared(Relation::BelowOrEqual),
            _ => return compute.operands.iter().for_each(|part| follow(program, part, Relation::Other, next, out)),
        };
        return follow(program, &difference, relation, next, out);
    }
    out.push(Leaf { sum: sum.clone(), relation, turns: false });
}

/// What a comparison asks for beside counters; `None` where that is nothing, or new in every turn, or moves with a
/// period, which `period` then has.
fn ask(program: &Program, mut leaf: Leaf, counter: ScalarId, period: &mut u64) -> Option<Asked> {
    let (by, mut open) = (leaf.sum.factor(counter), Affine::constant(0));
    for (scalar, factor) in &leaf.sum.terms {
        let from = sources(program, *scalar);
        let only = |wanted: fn(&ScalarKind) -> bool| {
            from.as_ref().is_some_and(|from| from.iter().all(|source| wanted(&program.scalar(*source).kind)))
        };
        if is_known(program, *scalar) {
            continue;
        }
        if only(|kind| matches!(kind, ScalarKind::Counter)) {
            // Asked in the turns of an inner loop.
            leaf.turns |= *scalar != counter;
            continue;
        }
        if only(|kind| matches!(kind, ScalarKind::Computed(compute) if compute.operands.is_empty())) {
            return None;
        }
        open = open.plus(&Affine::scalar(*scalar).times(*factor));
    }
    // The counter moves on by 1: what must the rest move by?
    let (mut key, factor) = base_of(&open)?;
    let (mut up, mut down) = (-i128::from(by), i128::from(factor));
    while let [(scalar, _)] = *key
        && let Some((inner, times, modulus, whole)) = quotient(program, scalar)
    {
        if whole {
            (up, down) = (up.checked_mul(i128::from(modulus))?, down.checked_mul(i128::from(times))?);
            key = Base::from([(inner, 1)]);
        } else if by == 0 {
            *period = lcm(*period, modulus.unsigned_abs());
            return None;
        } else {
            break;
        }
    }
    let pace = (by != 0).then(|| reduced(up, down));
    Some(Asked { key, pace, leaf })
}

/// `times * inner + constant` over or modulo a number: inner, times, the number, and whether it is the quotient.
fn quotient(program: &Program, scalar: ScalarId) -> Option<(ScalarId, i64, i64, bool)> {
    let ScalarKind::Computed(compute) = &program.scalar(scalar).kind else { return None };
    let whole = match compute.op {
        Op::Div | Op::DivToZero => true,
        Op::Rem | Op::RemToZero => false,
        _ => return None,
    };
    let [sum, modulus] = compute.operands.as_slice() else { return None };
    let [(inner, times)] = sum.terms.as_slice() else { return None };
    let modulus = modulus.as_constant().filter(|modulus| *modulus > 0)?;
    Some((*inner, *times, modulus, whole))
}

fn reduced(up: i128, down: i128) -> (i128, i128) {
    let (mut a, mut b) = (up.abs(), down.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    let divisor = if down < 0 { -a.max(1) } else { a.max(1) };
    (up / divisor, down / divisor)
}
