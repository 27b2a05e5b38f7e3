//! Placement: every buffer of a problem gets an offset in a space.
//!
//! One pure function, [`place`]: constraints in, layout out. It reads no clock, starts no thread
//! unless asked, and gives the same answer for the same input, options and seed.

mod arith;
mod board;
mod bounds;
mod byteless;
mod counters;
mod disjunction;
mod eject;
mod explain;
mod feasible;
mod greedy;
mod hints;
mod instance;
mod local;
mod options;
mod penalty;
mod portfolio;
mod race;
mod result;
mod sections;
mod spaces;
mod statement;
mod tiers;
mod valley;
mod windows;

pub use options::{Effort, PlacementOptions, Switches};
pub use result::{Cause, Conflict, Placement, PlacementError, SpaceAnswer, Traffic, Verdict};

use bounds::Reason;
use counters::Meter;
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
    statement::validate(problem)?;
    let root = statement::groups(problem);
    let allowed = statement::allowed_spaces(problem, &root)?;
    let mut meter = Meter::new(options.work_limit(), cancel);
    let spaces::Assignment { home, traffic } = spaces::assign(problem, &root, &allowed, options, &mut meter)?;
    let (home, byteless) = byteless::part(problem, &root, home);
    let byteless = byteless::place(problem, &byteless)?;
    let mut statements = statement::split(problem, &home);
    let mut solved = Vec::with_capacity(statements.len());
    for s in &mut statements {
        let instance = Instance::new(&s.raw).map_err(|c| statement::contradiction(problem, s, &c))?;
        // The instance says all of it, in less memory.
        let raw = std::mem::take(&mut s.raw);
        let raw = raw.buffers.iter().any(|b| b.size == 0).then_some(raw);
        let outcome = portfolio::solve(&instance, problem.goals(), options, &mut meter)
            .map_err(|item| pin_clash(problem, s, &instance, item))?;
        match raw {
            Some(raw) if !instance.keeps_ends(&outcome.offsets) => {
                solved.push(byteless::within(problem, s, raw, &outcome, options, &mut meter)?);
            }
            _ => solved.push((instance, outcome)),
        }
    }
    let mut placed = assemble(problem, options, &root, &statements, &solved, &mut meter);
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
            bound_reason: reason_text(problem, s, instance, outcome),
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
        Stop::Interrupted => 4,
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
    Conflict {
        space: s.space,
        buffers,
        steps: core.slots.iter().map(|&slot| slot_step(instance, slot)).collect(),
        needed: core.needed.map(|n| Bytes(n as u64 * instance.unit)),
        capacity: problem.space(s.space).capacity,
        irreducible: core.irreducible,
        cause: core.cause,
    }
}
