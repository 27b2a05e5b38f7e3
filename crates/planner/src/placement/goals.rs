//! What plans are compared by, most important first.
//!
//! Capacities come before every goal: a plan that passes one is no plan. [`Goal::Fit`] asks for nothing besides.
//! Where buffers may choose their space, the least traffic breaks what ties are left at the end.

use npumem_ir::problem::Goal;
use npumem_ir::{Problem, SpaceId};

/// One number of a plan that a goal makes small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// The peak of one space.
    Peak(SpaceId),
    /// The sum of the peaks.
    TotalPeak,
    /// The largest of the peaks.
    MaxPeak,
    /// The reuse penalties that are paid.
    Cost,
    /// Bytes that left their hint.
    Moved,
    /// Bytes moved to and from slower spaces.
    Traffic,
}

/// The measures that the goals come to; those that are the same for every plan are left out.
pub(crate) fn measures(problem: &Problem, choosing: bool) -> Vec<Measure> {
    let used = |s: SpaceId| problem.buffers.iter().any(|b| b.spaces.contains(&s));
    let mut out: Vec<Measure> = Vec::new();
    let mut add = |m: Measure| {
        if !out.contains(&m) {
            out.push(m);
        }
    };
    for goal in problem.goals() {
        match goal {
            Goal::Fit => {}
            Goal::Peak => problem.spaces().map(|(s, _)| s).filter(|&s| used(s)).for_each(|s| add(Measure::Peak(s))),
            Goal::TotalPeak => add(Measure::TotalPeak),
            Goal::MaxPeak => add(Measure::MaxPeak),
            Goal::ReuseCost if !problem.constraints.reuse_penalties.is_empty() => add(Measure::Cost),
            Goal::KeepHints if problem.buffers.iter().any(|b| b.hint.is_some()) => add(Measure::Moved),
            Goal::Traffic if choosing => add(Measure::Traffic),
            Goal::ReuseCost | Goal::KeepHints | Goal::Traffic => {}
        }
    }
    if choosing {
        add(Measure::Traffic);
    }
    out
}

/// Are these reached by making each space's peak small, or by any plan that fits? Then the spaces are solved one by one.
pub(crate) fn are_plain(measures: &[Measure]) -> bool {
    measures.iter().all(|m| matches!(m, Measure::Peak(_) | Measure::TotalPeak | Measure::MaxPeak))
}
