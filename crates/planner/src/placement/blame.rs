//! A proof that nothing fits, told in buffers: which of them, by themselves, cannot be placed.
//!
//! The searches prove in items (buffers that move together), each in the spaces that are left for all of its
//! members. A user acts on buffers, so the set must be one of buffers: the problem cut down to them, with the
//! constraints among them, has no plan, and has one without any of them (where it is `irreducible`).

use super::options::{Effort, PlacementOptions};
use super::result::{Conflict, PlacementError, Verdict};
use super::{answer, statement};
use npumem_ir::problem::{Colocation, Constraints, Goal, Separation};
use npumem_ir::{BufferId, Problem, Step};
use std::sync::atomic::AtomicBool;

/// The most buffers that are left out one by one.
const MOST: usize = 64;
/// Work for one question, and for all of them.
const QUESTION: u64 = 5_000_000;
const ALL: u64 = 300_000_000;
const ALL_FAST: u64 = 20_000_000;

/// A cut-down problem was looked at.
enum Found {
    Impossible(Conflict),
    Fits,
    Unknown,
}

/// The conflict as one of buffers, and the work that took.
pub(crate) fn in_buffers(
    problem: &Problem,
    options: &PlacementOptions,
    conflict: Conflict,
    cancel: Option<&AtomicBool>,
) -> (Conflict, u64) {
    let root = statement::groups(problem);
    let of = |id: &BufferId| root[id.index()];
    let mut items: Vec<u32> = conflict.buffers.iter().map(of).collect();
    items.sort_unstable();
    items.dedup();
    let whole: Vec<BufferId> =
        (0..root.len()).map(BufferId::new).filter(|id| items.binary_search(&of(id)).is_ok()).collect();
    let tied = whole.len() > items.len();
    let fast = options.effort == Effort::Fast;
    if !tied && (conflict.irreducible || fast) {
        return (conflict, 0);
    }
    let unreduced = Conflict { buffers: whole.clone(), irreducible: false, ..conflict };
    if whole.len() > MOST {
        return (unreduced, 0);
    }
    let mut ask = Ask { problem, options, cancel, left: if fast { ALL_FAST } else { ALL }, spent: 0 };
    let Found::Impossible(mut proof) = ask.is_possible(&whole) else { return (unreduced, ask.spent) };
    // Smallest first, so that the large ones remain.
    let mut order = whole.clone();
    order.sort_by_key(|id| (problem.buffer(*id).size, *id));
    let (mut kept, mut irreducible) = (whole, true);
    // Again after a pass that left one out: where that one bound two others to share bytes, more may be spare without it.
    let mut before = usize::MAX;
    while kept.len() < before {
        (before, irreducible) = (kept.len(), true);
        for one in order.iter().copied() {
            let rest: Vec<BufferId> = kept.iter().copied().filter(|id| *id != one).collect();
            if rest.len() == kept.len() {
                continue;
            }
            match ask.is_possible(&rest) {
                Found::Impossible(conflict) => (kept, proof) = (rest, conflict),
                Found::Fits => {}
                Found::Unknown => irreducible = false,
            }
        }
    }
    let live = |id: &BufferId, step: &Step| problem.buffer(*id).live.iter().any(|live| live.steps.contains(*step));
    let steps = proof.steps.into_iter().filter(|step| kept.iter().all(|id| live(id, step))).collect();
    (Conflict { steps, irreducible, buffers: kept, ..proof }, ask.spent)
}

struct Ask<'a> {
    problem: &'a Problem,
    options: &'a PlacementOptions,
    cancel: Option<&'a AtomicBool>,
    left: u64,
    spent: u64,
}

impl Ask<'_> {
    /// Whether the buffers alone have a plan.
    fn is_possible(&mut self, buffers: &[BufferId]) -> Found {
        if buffers.is_empty() {
            return Found::Fits;
        }
        let budget = QUESTION.min(self.left);
        if budget == 0 {
            return Found::Unknown;
        }
        let options = PlacementOptions {
            effort: Effort::Normal,
            budget: Some(budget),
            threads: 1,
            seed: self.options.seed,
            switches: self.options.switches,
        };
        match answer(&cut(self.problem, buffers), &options, self.cancel) {
            Ok(placed) => {
                let work: u64 = placed.plan.origin.work.values().sum();
                self.spent += work;
                self.left = self.left.saturating_sub(work.max(1));
                match placed.verdict {
                    Verdict::Fits => Found::Fits,
                    Verdict::Infeasible(conflict) => Found::Impossible(conflict),
                    Verdict::Undecided => Found::Unknown,
                }
            }
            Err(PlacementError::Contradiction(conflict)) => Found::Impossible(conflict),
            Err(_) => Found::Unknown,
        }
    }
}

/// The problem with some of its buffers (sorted) only, and what binds them; all that is asked is that they fit.
fn cut(problem: &Problem, buffers: &[BufferId]) -> Problem {
    let place = |id: BufferId| buffers.binary_search(&id).ok().map(BufferId::new);
    let both = |first: BufferId, second: BufferId| Some((place(first)?, place(second)?));
    let all = &problem.constraints;
    let colocated = all.colocated.iter().filter_map(|one| {
        let (buffer, base) = both(one.buffer, one.base)?;
        Some(Colocation { buffer, base, delta: one.delta })
    });
    let separated = all.separated.iter().filter_map(|one| {
        let (first, second) = both(one.first, one.second)?;
        Some(Separation { first, second, reasons: Vec::new() })
    });
    Problem {
        name: problem.name.clone(),
        spaces: problem.spaces.clone(),
        buffers: buffers.iter().map(|id| problem.buffer(*id).clone()).collect(),
        constraints: Constraints {
            colocated: colocated.collect(),
            separated: separated.collect(),
            never_coexist: all.never_coexist.iter().filter_map(|(first, second)| both(*first, *second)).collect(),
            reuse_penalties: Vec::new(),
        },
        goals: vec![Goal::Fit],
    }
}
