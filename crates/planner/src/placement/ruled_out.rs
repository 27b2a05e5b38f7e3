//! Why no choice of spaces lets everything fit.
//!
//! One assignment that does not fit proves nothing about the others. What does: buffers without a choice that
//! do not fit where they must be, a buffer that no space of its list can hold, more bytes live at a step than all
//! spaces have together, or, on small problems, every assignment tried.

use super::byteless;
use super::counters::Meter;
use super::exhaustive::{self, Outcome, Question};
use super::instance::Instance;
use super::options::PlacementOptions;
use super::result::{Cause, Conflict};
use super::spaces::Group;
use super::{bounds, statement};
use npumem_ir::problem::Sizing;
use npumem_ir::{BufferId, Bytes, Problem, SpaceId, Step};

/// Work for each question of [`by_trial`].
const TRIAL: u64 = 20_000_000;

/// Every assignment was ruled out: as few buffers as possible for which that holds.
pub(crate) fn by_trial(question: &Question, meter: &mut Meter) -> Conflict {
    let problem = question.problem;
    let is_placed = |k: &usize| question.home[*k].is_some();
    let mut kept: Vec<u32> = (0..problem.buffers.len()).filter(is_placed).map(|k| question.root[k]).collect();
    kept.sort_unstable();
    kept.dedup();
    let bytes = |r: u32| -> u64 {
        let own = problem.buffers.iter().zip(question.root).filter(|(_, root)| **root == r);
        own.map(|(b, _)| b.size.get()).fold(0, u64::saturating_add)
    };
    // Smallest first, so that the large ones remain.
    let mut order = kept.clone();
    order.sort_by_key(|&r| (bytes(r), r));
    let mut irreducible = true;
    for r in order {
        let rest: Vec<u32> = kept.iter().copied().filter(|&k| k != r).collect();
        let inside = |k: usize| rest.binary_search(&question.root[k]).is_ok();
        let home: Vec<Option<SpaceId>> =
            question.home.iter().enumerate().map(|(k, h)| h.filter(|_| inside(k))).collect();
        let groups: Vec<Group> =
            question.groups.iter().filter(|g| rest.binary_search(&g.root).is_ok()).cloned().collect();
        let part = Question { home: &home, groups: &groups, ..*question };
        match exhaustive::run(&part, &[], TRIAL, meter) {
            Outcome::Impossible => kept = rest,
            Outcome::Chosen(_) => {}
            Outcome::Unknown => irreducible = false,
        }
    }
    let members = |r: &u32| question.root.iter().filter(|root| *root == r).count();
    irreducible &= kept.iter().all(|r| members(r) == 1);
    let inside = |k: &usize| kept.binary_search(&question.root[*k]).is_ok() && is_placed(k);
    let buffers: Vec<BufferId> = (0..problem.buffers.len()).filter(inside).map(BufferId::new).collect();
    conflict(problem, buffers, irreducible)
}

/// The same on problems of any size, where a proof is at hand.
pub(crate) fn at_once(
    problem: &Problem,
    root: &[u32],
    home: &[Option<SpaceId>],
    groups: &[Group],
    options: &PlacementOptions,
    meter: &mut Meter,
) -> Option<Conflict> {
    let mut fixed = home.to_vec();
    for &m in groups.iter().flat_map(|g| &g.members) {
        fixed[m as usize] = None;
    }
    let (fixed, _) = byteless::part(problem, root, fixed);
    for s in statement::split(problem, &fixed) {
        let Ok(instance) = Instance::new(&s.raw) else { continue };
        meter.spend(instance.items.len() as u64);
        if bounds::lower_bound(&instance).value > instance.capacity {
            return Some(super::conflict(problem, &s, &instance, options, meter));
        }
    }
    groups.iter().find_map(|g| fits_nowhere(problem, g)).or_else(|| overloaded(problem, root, home))
}

/// A group that passes the capacity of every space that it may live in.
fn fits_nowhere(problem: &Problem, group: &Group) -> Option<Conflict> {
    let alone = |space: SpaceId| {
        let mut home = vec![None; problem.buffers.len()];
        for &m in &group.members {
            home[m as usize] = Some(space);
        }
        let raw = statement::split(problem, &home).swap_remove(space.index()).raw;
        Instance::new(&raw).is_ok_and(|i| bounds::lower_bound(&i).value > i.capacity)
    };
    // Most groups are small: only one with a member past the smallest of its capacities is worth a look.
    let size = |m: &u32| problem.buffers[*m as usize].size;
    let least = group.allowed.iter().map(|&s| problem.space(s).capacity.unwrap_or(Bytes::MAX)).min()?;
    let total = group.members.iter().map(|m| u128::from(size(m).get())).sum::<u128>();
    if total <= u128::from(least.get()) && group.members.len() < 2 || !group.allowed.iter().all(|&s| alone(s)) {
        return None;
    }
    let mut buffers: Vec<BufferId> = group.members.iter().map(|&m| BufferId::new(m as usize)).collect();
    buffers.sort_unstable();
    let irreducible = buffers.len() == 1;
    Some(conflict(problem, buffers, irreducible))
}

/// A step at which more bytes are live than the spaces have together.
fn overloaded(problem: &Problem, root: &[u32], home: &[Option<SpaceId>]) -> Option<Conflict> {
    let capacities = problem.spaces.iter().filter_map(|s| s.capacity).map(|c| u128::from(c.get()));
    let capacity: u128 = capacities.sum();
    if !problem.constraints.never_coexist.is_empty() {
        return None;
    }
    // Buffers that move together may share bytes: they do not add up.
    let mut members = vec![0u32; root.len()];
    root.iter().for_each(|&r| members[r as usize] += 1);
    let counts = |k: usize| {
        let b = &problem.buffers[k];
        let bounded = b.spaces.iter().all(|&s| problem.space(s).capacity.is_some());
        home[k].is_some() && b.sizing != Sizing::Unbounded && members[root[k] as usize] == 1 && bounded
    };
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (k, b) in problem.buffers.iter().enumerate().filter(|(k, _)| counts(*k)) {
        for l in b.live.iter().filter(|l| l.window.is_none()) {
            events.push((l.steps.start.get(), true, k));
            events.push((l.steps.end.get(), false, k));
        }
    }
    events.sort_unstable();
    let (mut load, mut at) = (0u128, None);
    for &(step, starts, k) in &events {
        let size = u128::from(problem.buffers[k].size.get());
        load = if starts { load + size } else { load - size };
        if load > capacity {
            at = Some(step);
            break;
        }
    }
    let step = at?;
    let live = |k: &usize| problem.buffers[*k].live.iter().any(|l| l.window.is_none() && l.steps.contains(Step(step)));
    let mut kept: Vec<usize> = (0..root.len()).filter(|&k| counts(k)).filter(live).collect();
    kept.sort_by_key(|&k| (problem.buffers[k].size, k));
    let mut total: u128 = kept.iter().map(|&k| u128::from(problem.buffers[k].size.get())).sum();
    kept.retain(|&k| {
        let size = u128::from(problem.buffers[k].size.get());
        let needed = total - size <= capacity;
        total -= if needed { 0 } else { size };
        needed
    });
    kept.sort_unstable();
    let buffers: Vec<BufferId> = kept.into_iter().map(BufferId::new).collect();
    let mut conflict = conflict(problem, buffers, false);
    conflict.steps = vec![Step(step)];
    Some(conflict)
}

fn conflict(problem: &Problem, buffers: Vec<BufferId>, irreducible: bool) -> Conflict {
    let space = buffers.first().and_then(|&b| problem.buffer(b).spaces.first().copied()).unwrap_or(SpaceId::new(0));
    Conflict { space, buffers, steps: vec![], needed: None, capacity: None, irreducible, cause: Cause::Choices }
}
