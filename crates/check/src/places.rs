//! Rules about one place at a time: capacity, reserved ranges, alignment, spaces, pins, and where a base puts a buffer.

use crate::{Found, Violation};
use npumem_ir::{Alignment, BufferId, Bytes, Plan, Problem, Residency, SpaceId};

/// Whether every id exists and the lists are in their order; without that nothing else can be asked.
pub(crate) fn ids_are_known(problem: &Problem, plan: &Plan, found: &mut Found<'_>) -> bool {
    let before = found.violations.len();
    let mut malformed = |what: String| found.push(Violation::Malformed { what });
    let buffers = problem.buffers.len();
    let spaces = problem.spaces.len();
    for (index, residency) in plan.residencies.iter().enumerate() {
        if residency.buffer.index() >= buffers {
            malformed(format!("residency {index} is of buffer {}, and the problem has {buffers}", residency.buffer));
        }
        if residency.space.index() >= spaces {
            malformed(format!("residency {index} is in {}, and the problem has {spaces} spaces", residency.space));
        }
        if residency.steps.is_empty() {
            malformed(format!("residency {index} has the empty or reversed range {}", residency.steps));
        }
    }
    for (index, moved) in plan.moves.iter().enumerate() {
        if moved.buffer.index() >= buffers {
            malformed(format!("move {index} is of buffer {}, and the problem has {buffers}", moved.buffer));
        }
        if moved.from.space.index() >= spaces || moved.to.space.index() >= spaces {
            malformed(format!("move {index} names a space past the problem's {spaces}"));
        }
        if moved.steps.is_empty() {
            malformed(format!("move {index} has the empty or reversed range {}", moved.steps));
        }
    }
    for id in &plan.pooled {
        if id.index() >= buffers {
            malformed(format!("the pool holds buffer {id}, and the problem has {buffers}"));
        }
    }
    for (index, pair) in plan.residencies.windows(2).enumerate() {
        if (pair[0].buffer, pair[0].steps.start) > (pair[1].buffer, pair[1].steps.start) {
            malformed(format!("residencies {index} and {} are not sorted by buffer and start", index + 1));
        }
    }
    if !plan.spaces.is_empty() && plan.spaces.len() != spaces {
        malformed(format!("the plan sums up {} spaces, and the problem has {spaces}", plan.spaces.len()));
    }
    found.violations.len() == before
}

pub(crate) fn check(problem: &Problem, plan: &Plan, found: &mut Found<'_>) {
    for residency in &plan.residencies {
        one_place(problem, residency, found);
    }
    for id in &plan.pooled {
        if !plan.residencies_of(*id).is_empty() {
            found.push(Violation::PooledAndPlaced { buffer: found.name(*id) });
        }
    }
    colocations(problem, plan, found);
    separations(problem, plan, found);
    sums(problem, plan, found);
}

fn one_place(problem: &Problem, residency: &Residency, found: &mut Found<'_>) {
    let buffer = &problem.buffers[residency.buffer.index()];
    let space = &problem.spaces[residency.space.index()];
    let named = |found: &Found<'_>| (found.name(residency.buffer), space.name.clone());
    if !buffer.spaces.contains(&residency.space) {
        let (name, space) = named(found);
        let allowed = buffer.spaces.iter().map(|id| found.space(*id)).collect();
        found.push(Violation::WrongSpace { buffer: name, space, allowed });
    }
    if let Some(pin) = buffer.pin
        && pin != residency.location()
    {
        let (buffer, at) = named(found);
        let pin = (found.space(pin.space), pin.offset);
        found.push(Violation::PinMoved { buffer, pin, found: (at, residency.offset) });
    }
    let mut aligned = |alignment: Alignment, by_space: bool| {
        if !alignment.divides(residency.offset) {
            let (buffer, space) = named(found);
            found.push(Violation::Misaligned { buffer, space, offset: residency.offset, alignment, by_space });
        }
    };
    aligned(buffer.alignment, false);
    aligned(space.alignment, true);
    let Some(bytes) = residency.bytes(buffer.size) else {
        let (name, space) = named(found);
        found.push(Violation::PastAddressSpace { buffer: name, space, offset: residency.offset, size: buffer.size });
        return;
    };
    if let Some(capacity) = space.capacity
        && bytes.end.0 > capacity.0
    {
        let (buffer, space) = named(found);
        found.push(Violation::OutsideCapacity { buffer, space, bytes, capacity });
    }
    for reserved in &space.reserved {
        if reserved.overlaps(&bytes) {
            let (buffer, space) = named(found);
            found.push(Violation::Reserved { buffer, space, bytes, reserved: *reserved });
        }
    }
}

/// Every place of `buffer` is `delta` bytes into a place of `base`; a buffer without a place has a base without one.
fn colocations(problem: &Problem, plan: &Plan, found: &mut Found<'_>) {
    for rule in &problem.constraints.colocated {
        if rule.buffer.index() >= problem.buffers.len() || rule.base.index() >= problem.buffers.len() {
            found.push(Violation::Malformed {
                what: format!("a colocation names {} or {}, past the problem's buffers", rule.buffer, rule.base),
            });
            continue;
        }
        let (own, base) = (plan.residencies_of(rule.buffer), plan.residencies_of(rule.base));
        let at = |place: &Residency, found: &Found<'_>| (found.space(place.space), place.offset);
        let broken = own.iter().find(|place| {
            !base
                .iter()
                .any(|other| other.space == place.space && other.offset.checked_add(rule.delta.0) == Some(place.offset))
        });
        let missing = own.is_empty() != base.is_empty();
        if let Some(place) = broken.or_else(|| own.first().filter(|_| missing)) {
            let base_found = base.first().map(|other| at(other, found));
            push_colocation(rule, Some(at(place, found)), base_found, found);
        } else if missing {
            let base_found = base.first().map(|other| at(other, found));
            push_colocation(rule, None, base_found, found);
        }
    }
}

fn push_colocation(
    rule: &npumem_ir::problem::Colocation,
    own: Option<(String, npumem_ir::Offset)>,
    base: Option<(String, npumem_ir::Offset)>,
    found: &mut Found<'_>,
) {
    let (buffer, base_name) = (found.name(rule.buffer), found.name(rule.base));
    found.push(Violation::ColocationBroken {
        buffer,
        base: base_name,
        delta: rule.delta,
        found: own,
        base_found: base,
    });
}

/// Separated buffers share no byte of a space, whenever they live.
fn separations(problem: &Problem, plan: &Plan, found: &mut Found<'_>) {
    for rule in &problem.constraints.separated {
        if rule.first.index() >= problem.buffers.len() || rule.second.index() >= problem.buffers.len() {
            found.push(Violation::Malformed {
                what: format!("a separation names {} or {}, past the problem's buffers", rule.first, rule.second),
            });
            continue;
        }
        let size = |id: BufferId| problem.buffers[id.index()].size;
        for a in plan.residencies_of(rule.first) {
            for b in plan.residencies_of(rule.second) {
                let (Some(x), Some(y)) = (a.bytes(size(rule.first)), b.bytes(size(rule.second))) else { continue };
                if a.space == b.space
                    && let Some(bytes) = x.intersection(&y)
                {
                    found.push(Violation::SeparationBroken {
                        first: found.name(rule.first),
                        second: found.name(rule.second),
                        space: found.space(a.space),
                        bytes,
                        reasons: rule.reasons.clone(),
                    });
                }
            }
        }
    }
}

/// The plan's own sums are true.
fn sums(problem: &Problem, plan: &Plan, found: &mut Found<'_>) {
    let mut actual = vec![Bytes::ZERO; problem.spaces.len()];
    for residency in &plan.residencies {
        let size = problem.buffers[residency.buffer.index()].size;
        let end = residency.offset.saturating_add(size.0).0;
        let peak = &mut actual[residency.space.index()];
        // A buffer of no bytes has no end to reach.
        if size.0 > 0 {
            *peak = (*peak).max(Bytes(end));
        }
    }
    for (index, stated) in plan.spaces.iter().enumerate() {
        let space = found.space(SpaceId::new(index));
        if stated.peak != actual[index] {
            found.push(Violation::WrongPeak { space, stated: stated.peak, actual: actual[index] });
        } else if stated.lower_bound > stated.peak {
            found.push(Violation::FalseBound { space, lower_bound: stated.lower_bound, peak: stated.peak });
        }
    }
}
