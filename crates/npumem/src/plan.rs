//! The main job: a problem is placed, its plan checked, and both told as one report.

use npumem_check::Violation;
use npumem_ir::plan::SpaceUse;
use npumem_ir::problem::Goal;
use npumem_ir::{Bytes, Plan, Problem, Space, StepRange};
use npumem_planner::placement::{self, Cause, Conflict, Placement, PlacementError, PlacementOptions, Verdict};
use npumem_report::plan_report::{self, ConflictBuffer, Extras, GoalValue, Infeasible, Note, PlanReport};
use std::sync::atomic::AtomicBool;
use thiserror::Error;

/// Why there is no report.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The problem's statement contradicts itself.
    #[error("{0}")]
    Problem(#[from] npumem_ir::problem::ProblemError),
    /// The placement refuses the problem.
    #[error("{0}")]
    Placement(#[from] PlacementError),
    /// Constraints that contradict each other, the buffers by name.
    #[error("{0}")]
    Contradiction(String),
    /// Our own plan does not pass the checker. It is not printed.
    #[error(
        "this is a bug in npumem: its plan does not pass its own checker, and is not printed\n  {}\n  please report it with the input",
        .0.first().map_or_else(String::new, Violation::to_string)
    )]
    Unsound(Vec<Violation>),
    /// The report does not fit its plan.
    #[error("this is a bug in npumem: {0}")]
    Report(#[from] plan_report::BuildError),
}

/// Whether the buffers fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The plan keeps every capacity.
    Yes,
    /// No plan keeps them all.
    No,
    /// No plan was found that keeps them all, and none was ruled out.
    Undecided,
}

/// A problem with its plan and the report of both.
#[derive(Clone, Debug)]
pub struct Planned {
    /// What was asked.
    pub problem: Problem,
    /// What the placement answered; where a capacity is not met, the plan that comes closest.
    pub placement: Placement,
    /// Both, told.
    pub report: PlanReport,
    /// Whether it fits.
    pub fit: Fit,
}

impl PlanError {
    /// The problem is well-formed, but what it asks for contradicts itself: no plan exists, whatever the capacities.
    #[must_use]
    pub fn is_infeasible(&self) -> bool {
        match self {
            PlanError::Contradiction(_) => true,
            PlanError::Problem(error) => error.kind.is_contradiction(),
            PlanError::Placement(_) | PlanError::Unsound(_) | PlanError::Report(_) => false,
        }
    }
}

/// Plans a problem; the answer has passed the checker.
///
/// # Errors
/// [`PlanError`]; "does not fit" is an answer, not an error.
pub fn plan_problem(
    problem: Problem,
    device: Option<&str>,
    options: &PlacementOptions,
    mut extras: Extras,
    cancel: Option<&AtomicBool>,
) -> Result<Planned, PlanError> {
    if let Some(error) = problem.validate().into_iter().next() {
        return Err(error.into());
    }
    let mut placement = placement::place(&problem, options, cancel).map_err(|error| match error {
        PlacementError::Contradiction(conflict) => PlanError::Contradiction(named(&problem, &conflict)),
        other => PlanError::Placement(other),
    })?;
    placement.plan.device = device.map(str::to_owned);
    placement.plan.origin.digest = problem.digest();
    let fit = match &placement.verdict {
        Verdict::Fits => Fit::Yes,
        Verdict::Infeasible(_) => Fit::No,
        Verdict::Undecided => Fit::Undecided,
    };
    prove(&problem, &placement.plan, fit)?;
    match &placement.verdict {
        Verdict::Fits => {}
        Verdict::Infeasible(conflict) => extras.infeasible = Some(explain(&problem, conflict)),
        Verdict::Undecided => extras.notes.push(Note::warning(
            "No plan within the capacity was found, and none was ruled out: try --effort thorough. \
             The plan shown is the one that comes closest.",
        )),
    }
    extras.goals = reached(&problem, &placement);
    let report = PlanReport::build(&problem, &placement.plan, extras)?;
    Ok(Planned { problem, placement, report, fit })
}

/// What the plan reached of each goal that no one space tells.
fn reached(problem: &Problem, placement: &Placement) -> Vec<GoalValue> {
    let spaces = &placement.plan.spaces;
    let choosing = placement.traffic.is_some();
    let sum = |of: fn(&SpaceUse) -> Bytes| spaces.iter().fold(0u64, |all, space| all.saturating_add(of(space).0));
    let most = |of: fn(&SpaceUse) -> Bytes| spaces.iter().map(|space| of(space).0).max().unwrap_or(0);
    let value = |goal: Goal| match goal {
        Goal::Fit | Goal::Peak => None,
        // What was put in a space bounds that space, not another choice of spaces.
        Goal::TotalPeak => Some((sum(|space| space.peak), (!choosing).then(|| sum(|space| space.lower_bound)))),
        Goal::MaxPeak => Some((most(|space| space.peak), (!choosing).then(|| most(|space| space.lower_bound)))),
        Goal::ReuseCost => Some((placement.reuse_cost, (!choosing).then_some(placement.reuse_cost_bound))),
        Goal::KeepHints => Some((placement.moved.0, None)),
        Goal::Traffic => placement.traffic.map(|traffic| (traffic.bytes.0, Some(traffic.bound.0))),
    };
    let asked = problem.goals().iter().copied();
    let traffic = (!problem.goals().contains(&Goal::Traffic)).then_some(Goal::Traffic);
    let values = asked.chain(traffic).filter_map(|goal| {
        let (value, bound) = value(goal)?;
        Some(GoalValue { goal, value, bound })
    });
    values.collect()
}

/// A plan that overflows is checked as if its spaces had no end: it is shown as the one that comes closest.
fn prove(problem: &Problem, plan: &Plan, fit: Fit) -> Result<(), PlanError> {
    let verdict = if fit == Fit::Yes {
        npumem_check::check(problem, plan)
    } else {
        let endless = |space: &Space| Space { capacity: None, ..space.clone() };
        let spaces = problem.spaces.iter().map(endless).collect();
        npumem_check::check(&Problem { spaces, ..problem.clone() }, plan)
    };
    if verdict.is_sound() { Ok(()) } else { Err(PlanError::Unsound(verdict.violations)) }
}

/// A conflict in words that a user can act on.
#[must_use]
pub fn explain(problem: &Problem, conflict: &Conflict) -> Infeasible {
    let space = problem.space(conflict.space);
    let all: Bytes = conflict.buffers.iter().map(|id| problem.buffer(*id).size).sum();
    let needed = conflict.needed.unwrap_or(all);
    let steps = match (conflict.steps.first(), conflict.steps.last()) {
        (Some(first), Some(last)) => StepRange::steps(first.0, last.0.saturating_add(1)),
        _ => {
            let lifetimes = conflict.buffers.iter().filter_map(|id| problem.buffer(*id).lifetime());
            lifetimes.reduce(|all, next| all.hull(&next)).unwrap_or(StepRange::steps(0, 0))
        }
    };
    let buffers = conflict.buffers.iter().map(|id| {
        let buffer = problem.buffer(*id);
        let lifetime = buffer.lifetime().unwrap_or(steps);
        ConflictBuffer { buffer: *id, name: buffer.name.clone(), size: buffer.size, steps: lifetime }
    });
    let conflicts = vec![plan_report::Conflict { steps, buffers: buffers.collect() }];
    let reason = reason(space, conflict, needed);
    let advice = advice(space, conflict, needed);
    if conflict.cause == Cause::Choices {
        // No one space is to blame: all that some of these buffers may live in are.
        let may = |s: &npumem_ir::SpaceId| conflict.buffers.iter().any(|id| problem.buffer(*id).spaces.contains(s));
        let spaces: Vec<&Space> = problem.spaces().filter(|(id, _)| may(id)).map(|(_, space)| space).collect();
        let capacity = spaces.iter().map(|s| s.capacity).sum::<Option<Bytes>>();
        let names: Vec<&str> = spaces.iter().map(|s| s.name.as_str()).collect();
        return Infeasible { reason, space: names.join(", "), capacity, needed, conflicts, advice };
    }
    Infeasible { reason, space: space.name.clone(), capacity: space.capacity, needed, conflicts, advice }
}

/// A contradiction in one line: why, and which buffers, each with its pin.
fn named(problem: &Problem, conflict: &Conflict) -> String {
    let one = |id: &npumem_ir::BufferId| {
        let buffer = problem.buffer(*id);
        let pin = buffer.pin.map(|pin| format!(", pinned to {}+{}", problem.space(pin.space).name, pin.offset));
        format!("'{}' ({} at {id}{})", buffer.name, buffer.size, pin.unwrap_or_default())
    };
    let buffers: Vec<String> = conflict.buffers.iter().take(8).map(one).collect();
    let more = conflict.buffers.len() - buffers.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let needed = conflict.needed.unwrap_or_default();
    format!("{}: {}{more}", reason(problem.space(conflict.space), conflict, needed), buffers.join(", "))
}

fn reason(space: &Space, conflict: &Conflict, needed: Bytes) -> String {
    let count = conflict.buffers.len();
    let capacity = space.capacity.map_or_else(|| "no bound".to_owned(), |capacity| capacity.to_string());
    match conflict.cause {
        Cause::Load => {
            let which = match count {
                1 => "one buffer that is live".to_owned(),
                _ if conflict.steps.is_empty() => format!("these {count} buffers"),
                _ => format!("{count} buffers that are live together"),
            };
            let need = if count == 1 { "needs" } else { "need" };
            format!("{which} {need} {needed}, and {} has {capacity}", space.name)
        }
        Cause::Arrangement => {
            let which = if count == 1 { "this buffer".to_owned() } else { format!("these {count} buffers") };
            format!("no arrangement of {which} keeps within {capacity} of {}", space.name)
        }
        Cause::TooLarge if count > 1 => {
            format!("{count} buffers that move together need {needed}, and {} has {capacity}", space.name)
        }
        Cause::TooLarge => format!("one buffer alone needs {needed}, and {} has {capacity}", space.name),
        Cause::Pins => format!("pinned offsets clash in {}, or leave no room", space.name),
        Cause::Colocation => "colocations and pins give one buffer two different offsets".to_owned(),
        Cause::Alignment if count == 1 => "its pinned offset is no multiple of its alignment".to_owned(),
        Cause::Alignment => "no offset satisfies the alignments of buffers that move together".to_owned(),
        Cause::Separation => "buffers that must be kept apart are made to share bytes".to_owned(),
        Cause::Choices if count == 1 => "none of the spaces that this buffer may live in holds it".to_owned(),
        Cause::Choices => format!("no choice of spaces holds these {count} buffers"),
        Cause::Spaces => "buffers that must be in one space may not all live in the same one".to_owned(),
    }
}

fn advice(space: &Space, conflict: &Conflict, needed: Bytes) -> Vec<String> {
    let mut advice = Vec::new();
    let one_space = conflict.cause != Cause::Choices;
    let over = space.capacity.filter(|_| one_space).and_then(|capacity| needed.checked_sub(capacity.0));
    if let Some(over) = over.filter(|over| over.0 > 0) {
        advice.push(format!(
            "free at least {over}: shorten a live range, shrink or split a buffer, or move one elsewhere"
        ));
    }
    advice.push(match (conflict.irreducible, conflict.buffers.len()) {
        (true, 1) => "this buffer must change, whatever else stands in the way".to_owned(),
        (true, _) => "without any one of these buffers the others of this list fit: change one of them".to_owned(),
        (false, _) => {
            "not every buffer of this list may be needed for the conflict: it was not reduced to the end".to_owned()
        }
    });
    if conflict.cause == Cause::Pins {
        advice.push("move or remove one of the pins".to_owned());
    }
    advice
}
