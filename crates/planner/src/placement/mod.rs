//! Placement: every buffer of a problem gets an offset in a space.
//!
//! One pure function, [`place`]: constraints in, layout out. It reads no clock, starts no thread
//! unless asked, and gives the same answer for the same input, options and seed.

mod arith;
mod blame;
mod board;
mod bounds;
mod byteless;
mod clique;
mod compact;
mod counters;
mod disjunction;
mod eject;
mod exhaustive;
mod explain;
mod feasible;
mod floor;
mod goals;
mod greedy;
mod hints;
mod instance;
mod large;
mod local;
mod options;
mod penalty;
mod piece;
mod portfolio;
mod race;
mod result;
mod ruled_out;
mod sections;
mod spaces;
mod statement;
mod sweep;
mod tiers;
mod timeline;
mod touch;
mod valley;
mod windows;

pub use options::{Effort, PlacementOptions, Switches};
pub use result::{Cause, Conflict, Placement, PlacementError, SpaceAnswer, Traffic, Verdict};

use bounds::Reason;
use counters::Meter;
use exhaustive::{Outcome, Question};
use goals::Measure;
use instance::Instance;
use npumem_ir::plan::{Origin, Residency, SpaceUse, Stop};
use npumem_ir::problem::Goal;
use npumem_ir::{BufferId, Bytes, Offset, Plan, Problem, Step};
use portfolio::SpaceOutcome;
use statement::Statement;
use std::sync::atomic::AtomicBool;

/// Places every buffer of `problem`.
///
/// Setting `cancel` ends the search soon; the best plan so far is returned, with
/// [`Stop::Interrupted`] as its stop reason.
///
/// # Errors
/// A problem that names things that do not exist, or whose constraints contradict each other
/// whatever the capacities. A capacity that cannot be met is no error but a [`Verdict`].
pub fn place(
    problem: &Problem,
    options: &PlacementOptions,
    cancel: Option<&AtomicBool>,
) -> Result<Placement, PlacementError> {
    let mut placed = answer(problem, options, cancel)?;
    if let Verdict::Infeasible(conflict) = placed.verdict {
        let (conflict, work) = blame::in_buffers(problem, options, conflict, cancel);
        placed.verdict = Verdict::Infeasible(conflict);
        placed.plan.origin.stop = Stop::Infeasible;
        if work > 0 {
            *placed.plan.origin.work.entry("explain".to_owned()).or_default() += work;
        }
    }
    Ok(placed)
}

/// As [`place`], a conflict told in the items of one space.
fn answer(
    problem: &Problem,
    options: &PlacementOptions,
    cancel: Option<&AtomicBool>,
) -> Result<Placement, PlacementError> {
    statement::validate(problem)?;
    let root = statement::groups(problem);
    let allowed = statement::allowed_spaces(problem, &root)?;
    let mut meter = Meter::new(options.work_limit(), cancel);
    let (home, groups) = spaces::choices(problem, &root, &allowed);
    let measures = goals::measures(problem, !groups.is_empty());
    let question = Question { problem, root: &root, home: &home, groups: &groups, options };
    let mut ruled_out = false;
    let mut exact = None;
    match exhaustively(&question, &measures, &mut meter) {
        Some(Outcome::Chosen(chosen)) => {
            let placed = from_chosen(&question, &measures, &chosen, &mut meter)?;
            if chosen.proven {
                return Ok(placed);
            }
            exact = Some(placed);
        }
        Some(Outcome::Impossible) => ruled_out = !groups.is_empty(),
        Some(Outcome::Unknown) | None => {}
    }
    let mut placed = by_portfolio(&question, &measures, &mut meter)?;
    if !groups.is_empty() && !matches!(placed.verdict, Verdict::Fits) {
        let proof = if ruled_out {
            Some(ruled_out::by_trial(&question, &mut meter))
        } else {
            ruled_out::at_once(problem, &root, &home, &groups, options, &mut meter)
        };
        placed.verdict = proof.map_or(Verdict::Undecided, Verdict::Infeasible);
    }
    Ok(match exact {
        Some(exact) if value(&exact, &measures) <= value(&placed, &measures) => exact,
        _ => placed,
    })
}

/// Most placed buffers that are searched exhaustively.
const EXHAUSTIVE: usize = 32;

/// Everything at once, where the problem is small and asks for more than each space's own peak.
fn exhaustively(question: &Question, measures: &[Measure], meter: &mut Meter) -> Option<Outcome> {
    let choosing = !question.groups.is_empty();
    let placed = question.home.iter().flatten().count();
    if question.options.effort == Effort::Fast
        || !question.options.switches.exact
        || placed > EXHAUSTIVE
        || question.groups.len() > spaces::EXACT_GROUPS
        || (!choosing && goals::are_plain(measures))
    {
        return None;
    }
    let share = meter.left() / if choosing { 2 } else { 8 };
    Some(exhaustive::run(question, measures, share, meter))
}

/// The answer that an exhaustive search gave.
fn from_chosen(
    question: &Question,
    measures: &[Measure],
    chosen: &exhaustive::Chosen,
    meter: &mut Meter,
) -> Result<Placement, PlacementError> {
    let Question { problem, root, groups, options, .. } = *question;
    let (home, byteless) = byteless::part(problem, root, chosen.home.clone());
    let byteless = byteless::place(problem, &byteless)?;
    let statements = statement::split(problem, &home);
    let mut solved = Vec::with_capacity(statements.len());
    for (s, offsets) in statements.iter().zip(&chosen.offsets) {
        let instance = Instance::new(&s.raw).map_err(|c| statement::contradiction(problem, s, &c))?;
        let outcome = portfolio::stated(&instance, offsets.clone(), chosen.proven, measures, s.space, meter);
        solved.push((instance, outcome));
    }
    let mut placed = assemble(problem, options, root, &statements, &solved, meter);
    byteless.join(&mut placed);
    if !groups.is_empty() {
        let bytes = Bytes(spaces::traffic(groups, &chosen.home));
        placed.traffic = Some(Traffic { bytes, bound: if chosen.proven { bytes } else { Bytes(0) } });
    }
    Ok(placed)
}

/// The value of a plan by the measures, the most important first; one that does not fit is worse than any that does.
fn value(placed: &Placement, measures: &[Measure]) -> (bool, Vec<u64>) {
    let peaks = || placed.plan.spaces.iter().map(|s| s.peak.get());
    let of = |m: &Measure| match m {
        Measure::Peak(s) => placed.plan.spaces[s.index()].peak.get(),
        Measure::TotalPeak => peaks().fold(0, u64::saturating_add),
        Measure::MaxPeak => peaks().max().unwrap_or(0),
        Measure::Cost => placed.reuse_cost,
        Measure::Moved => placed.moved.get(),
        Measure::Traffic => placed.traffic.map_or(0, |t| t.bytes.get()),
    };
    (placed.verdict != Verdict::Fits, measures.iter().map(of).collect())
}

/// An assignment by traffic, then each space for itself.
fn by_portfolio(question: &Question, measures: &[Measure], meter: &mut Meter) -> Result<Placement, PlacementError> {
    let Question { problem, root, groups, options, .. } = *question;
    let _ = measures;
    let spaces::Assignment { home, traffic } = spaces::assign(problem, question.home.to_vec(), groups, options, meter);
    let (home, byteless) = byteless::part(problem, root, home);
    let byteless = byteless::place(problem, &byteless)?;
    let mut statements = statement::split(problem, &home);
    let mut solved = Vec::with_capacity(statements.len());
    for s in &mut statements {
        let instance = Instance::new(&s.raw).map_err(|c| statement::contradiction(problem, s, &c))?;
        // The instance says all of it, in less memory.
        let raw = std::mem::take(&mut s.raw);
        let raw = raw.buffers.iter().any(|b| b.size == 0).then_some(raw);
        let outcome = portfolio::solve(&instance, problem.goals(), options, meter)
            .map_err(|item| pin_clash(problem, s, &instance, item))?;
        match raw {
            Some(raw) if !instance.keeps_ends(&outcome.offsets) => {
                solved.push(byteless::within(problem, s, raw, &outcome, options, meter)?);
            }
            _ => solved.push((instance, outcome)),
        }
    }
    let mut placed = assemble(problem, options, root, &statements, &solved, meter);
    byteless.join(&mut placed);
    placed.traffic = traffic;
    let stop = &mut placed.plan.origin.stop;
    if *stop == Stop::Optimal && !all_goals_proven(problem, &solved, traffic, placed.moved) {
        placed.plan.origin.stop = Stop::Exhausted;
    }
    Ok(placed)
}

/// Does every goal meet a bound that holds for all plans? Each space alone met its own, which says nothing about
/// another choice of spaces, nor about goals that the search took in another order.
fn all_goals_proven(
    problem: &Problem,
    solved: &[(Instance, SpaceOutcome)],
    traffic: Option<Traffic>,
    moved: Bytes,
) -> bool {
    let (chosen, used) = (traffic.is_some(), solved.iter().filter(|(i, _)| !i.items.is_empty()).count());
    problem.goals().iter().enumerate().all(|(k, goal)| match goal {
        Goal::Fit => true,
        Goal::Peak | Goal::TotalPeak | Goal::MaxPeak => !chosen && solved.iter().all(|(_, o)| o.peak <= o.bound.value),
        Goal::ReuseCost => {
            let free = solved.iter().all(|(_, o)| o.cost == 0);
            free || !chosen && (k == 0 || used < 2) && solved.iter().all(|(_, o)| o.cost <= o.cost_bound)
        }
        Goal::KeepHints => moved == Bytes(0),
        Goal::Traffic => traffic.is_none_or(|t| t.bytes == t.bound),
    })
}

/// A pinned item found no room even without a ceiling: the others it clashes with are pinned too.
fn pin_clash(problem: &Problem, s: &Statement, instance: &Instance, item: u32) -> PlacementError {
    let pinned = |item: &instance::Item| -> Vec<BufferId> {
        let ids = item.members.iter().map(|m| s.ids[m.buffer as usize]);
        ids.filter(|&id| problem.buffer(id).pin.is_some()).collect()
    };
    let own = &instance.items[item as usize];
    let mut buffers = pinned(own);
    let clashing = instance.items.iter().enumerate().find(|(index, other)| match (own.pin, other.pin) {
        (Some(a), Some(b)) => *index != item as usize && instance.clash(item as usize, a, *index, b),
        _ => false,
    });
    if let Some((_, other)) = clashing {
        buffers.extend(pinned(other));
    }
    buffers.sort_unstable();
    PlacementError::Contradiction(Conflict {
        space: s.space,
        buffers,
        steps: vec![],
        needed: None,
        capacity: None,
        irreducible: true,
        cause: Cause::Pins,
    })
}

/// A bound of what was put in a space says nothing about other choices of spaces.
const CHOSEN: &str = ", for the buffers that were put here";

/// Puts the answers of the spaces together.
fn assemble(
    problem: &Problem,
    options: &PlacementOptions,
    root: &[u32],
    statements: &[Statement],
    solved: &[(Instance, SpaceOutcome)],
    meter: &mut Meter,
) -> Placement {
    let mut residencies = Vec::with_capacity(problem.buffers.len());
    let mut space_uses = Vec::new();
    let mut answers = Vec::new();
    let (mut cost, mut cost_bound, mut moved) = (0u64, 0u64, 0u64);
    let mut verdict = Verdict::Fits;
    let choosing = problem.buffers.iter().any(|b| b.spaces.len() > 1 && b.pin.is_none());
    for (s, (instance, outcome)) in statements.iter().zip(solved) {
        let mut peak = 0;
        for (index, item) in instance.items.iter().enumerate() {
            for m in &item.members {
                let id = s.ids[m.buffer as usize];
                let offset = (outcome.offsets[index] + m.delta) as u64 * instance.unit;
                let b = problem.buffer(id);
                if b.hint.is_some_and(|h| h.space != s.space || h.offset.get() != offset) {
                    moved = moved.saturating_add(b.size.get());
                }
                // A member that is never live goes along with the others of its item.
                let mates = || item.members.iter().find_map(|m| problem.buffer(s.ids[m.buffer as usize]).lifetime());
                if let Some(steps) = b.lifetime().or_else(mates) {
                    residencies.push(Residency { buffer: id, space: s.space, offset: Offset(offset), steps });
                    if b.size.get() > 0 {
                        peak = peak.max(offset + b.size.get());
                    }
                }
            }
        }
        let space = problem.space(s.space);
        let peak = Bytes(peak);
        let lower_bound = Bytes((outcome.bound.value as u64 * instance.unit).min(peak.get()));
        space_uses.push(SpaceUse {
            space: space.name.clone(),
            peak,
            lower_bound,
            bound_reason: reason_text(problem, s, instance, outcome) + if choosing { CHOSEN } else { "" },
            capacity: space.capacity,
        });
        let load = bounds::loads(instance).into_iter().max().unwrap_or(0);
        answers.push(SpaceAnswer {
            proven: outcome.peak <= outcome.bound.value,
            method: outcome.method.clone(),
            largest_load: Bytes(load as u64 * instance.unit),
        });
        cost = cost.saturating_add(outcome.cost);
        cost_bound = cost_bound.saturating_add(outcome.cost_bound);
        let outside = outcome.infeasible || !instance.keeps_ends(&outcome.offsets);
        if space.capacity.is_some_and(|c| peak > c || outside) && !matches!(verdict, Verdict::Infeasible(_)) {
            // A bound above the capacity is a proof, whichever goal the search had.
            let proven = outcome.infeasible || space.capacity.is_some_and(|c| lower_bound > c);
            verdict = if proven {
                Verdict::Infeasible(conflict(problem, s, instance, options, meter))
            } else {
                Verdict::Undecided
            };
        }
    }
    residencies.sort_unstable();
    let placed = statement::placed_groups(problem, root);
    let pooled =
        problem.buffers().map(|(id, _)| id).filter(|id| placed[root[id.index()] as usize] == Some(false)).collect();
    Placement {
        plan: Plan {
            problem: problem.name.clone(),
            device: None,
            residencies,
            moves: Vec::new(),
            pooled,
            spaces: space_uses,
            origin: origin(problem, options, solved, meter),
        },
        verdict,
        spaces: answers,
        reuse_cost: cost,
        reuse_cost_bound: cost_bound,
        moved: Bytes(moved),
        traffic: None,
    }
}

fn origin(problem: &Problem, options: &PlacementOptions, solved: &[(Instance, SpaceOutcome)], meter: &Meter) -> Origin {
    let rank = |s: Stop| match s {
        Stop::Optimal => 0,
        Stop::Satisfied => 1,
        Stop::Exhausted => 2,
        Stop::Budget => 3,
        Stop::Interrupted | Stop::Infeasible => 4,
    };
    let used: Vec<&SpaceOutcome> = solved.iter().filter(|(i, _)| !i.items.is_empty()).map(|(_, o)| o).collect();
    let mut methods: Vec<String> = used.iter().map(|o| o.method.clone()).collect();
    methods.dedup();
    let goals: Vec<Goal> = problem.goals().to_vec();
    Origin {
        tool: concat!("npumem ", env!("CARGO_PKG_VERSION")).to_owned(),
        goals,
        stop: used.iter().map(|o| o.stop).max_by_key(|&s| rank(s)).unwrap_or(Stop::Optimal),
        method: methods.join(", "),
        seed: options.seed,
        options: options.non_default(),
        work: meter.by_method().iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
        digest: String::new(),
    }
}

fn slot_step(instance: &Instance, slot: usize) -> Step {
    Step(instance.times[slot])
}

fn reason_text(problem: &Problem, s: &Statement, instance: &Instance, outcome: &SpaceOutcome) -> String {
    match outcome.bound.reason {
        Reason::Empty => "nothing is live".to_owned(),
        Reason::Load { slot } => format!("largest live load at step {}", slot_step(instance, slot)),
        Reason::Padded { slot } => format!("live load with alignment padding at step {}", slot_step(instance, slot)),
        Reason::Item { item } => {
            let m = instance.items[item].members.first();
            let name = m.map_or("", |m| problem.buffer(s.ids[m.buffer as usize]).name.as_str());
            format!("buffer {name} alone ends there")
        }
        Reason::Clique => "buffers of which no two may share bytes".to_owned(),
        Reason::Search => "search ruled out every lower peak".to_owned(),
    }
}

/// An irreducible set of buffers that proves that the capacity cannot be met.
fn conflict(
    problem: &Problem,
    s: &Statement,
    instance: &Instance,
    options: &PlacementOptions,
    meter: &mut Meter,
) -> Conflict {
    let core = explain::core(instance, options, meter);
    let members = core.items.iter().flat_map(|&i| instance.items[i as usize].members.iter());
    let mut buffers: Vec<BufferId> = members.map(|m| s.ids[m.buffer as usize]).collect();
    buffers.sort_unstable();
    let (mut needed, mut irreducible) = (core.needed.map(|n| Bytes(n as u64 * instance.unit)), core.irreducible);
    let capacity = problem.space(s.space).capacity;
    if core.items.len() == 1 && buffers.len() > 1 {
        // A group is as large as it is; where one member is too large by itself, the others are beside the point.
        let size = |id: &BufferId| problem.buffer(*id).size;
        match buffers.iter().copied().find(|id| capacity.is_some_and(|c| size(id) > c)) {
            Some(alone) => (buffers, needed) = (vec![alone], Some(size(&alone))),
            None => irreducible = false,
        }
    }
    Conflict {
        space: s.space,
        buffers,
        steps: core.slots.iter().map(|&slot| slot_step(instance, slot)).collect(),
        needed,
        capacity,
        irreducible,
        cause: core.cause,
    }
}
