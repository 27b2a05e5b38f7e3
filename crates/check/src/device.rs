//! A plan against the device it was made for: moves need links, places stay in what the device leaves to programs.

use crate::{Found, Verdict, Violation};
use npumem_ir::{Device, Plan, Problem, SpaceId};

/// Checks a plan against its problem and a device.
///
/// Spaces of the problem and of the device are the same where a name or an alias of the device says so; a space that
/// the device does not have is the problem's own affair. Besides what [`crate::check`] finds: a move that no link of
/// the device carries, a move over a link that leads elsewhere, a place past what the device leaves to programs where
/// the problem itself states no capacity, and a place in a range that the device reserves.
#[must_use]
pub fn check_on(problem: &Problem, plan: &Plan, device: &Device) -> Verdict {
    let mut verdict = crate::check(problem, plan);
    if verdict.violations.iter().any(|one| matches!(one, Violation::Malformed { .. })) {
        return verdict;
    }
    let mut found = Found { problem, violations: verdict.violations, truncated: verdict.truncated };
    let known: Vec<Option<SpaceId>> = problem.spaces.iter().map(|space| device.space_named(&space.name)).collect();
    places(problem, plan, device, &known, &mut found);
    moves(plan, device, &known, &mut found);
    verdict.violations = found.violations;
    verdict.truncated = found.truncated;
    verdict
}

fn places(problem: &Problem, plan: &Plan, device: &Device, known: &[Option<SpaceId>], found: &mut Found<'_>) {
    for residency in &plan.residencies {
        let (Some(id), stated) = (known[residency.space.index()], &problem.spaces[residency.space.index()]) else {
            continue;
        };
        let Some(bytes) = residency.bytes(problem.buffers[residency.buffer.index()].size) else { continue };
        let usable = device.usable(id).ok().filter(|usable| stated.capacity.is_none() && bytes.end.0 > usable.0);
        if let Some(capacity) = usable {
            let (buffer, space) = (found.name(residency.buffer), stated.name.clone());
            found.push(Violation::OutsideCapacity { buffer, space, bytes, capacity });
        }
        for reserved in &device.space(id).reserved {
            // What the problem reserves as well was found with the problem.
            let again = stated.reserved.iter().any(|range| range.overlaps(&reserved.range) && range.overlaps(&bytes));
            if reserved.range.overlaps(&bytes) && !again {
                let (buffer, space) = (found.name(residency.buffer), stated.name.clone());
                found.push(Violation::Reserved { buffer, space, bytes, reserved: reserved.range });
            }
        }
    }
}

fn moves(plan: &Plan, device: &Device, known: &[Option<SpaceId>], found: &mut Found<'_>) {
    for moved in &plan.moves {
        let (Some(from), Some(to)) = (known[moved.from.space.index()], known[moved.to.space.index()]) else { continue };
        let named = match moved.link {
            Some(link) if link.index() >= device.links.len() => Some(format!("{link}, which it does not have")),
            Some(link) => {
                let link = device.link(link);
                (link.from != from || link.to != to).then(|| link.name.clone())
            }
            None => None,
        };
        let carried = from == to || device.links_between(from, to).next().is_some();
        if named.is_some() || !carried {
            let (buffer, device) = (found.name(moved.buffer), device.name.clone());
            let (from, to) = (found.space(moved.from.space), found.space(moved.to.space));
            found.push(Violation::NoLink { buffer, steps: moved.steps, from, to, device, named });
        }
    }
}
