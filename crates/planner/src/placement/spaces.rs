//! Which space each buffer lives in, where it has a choice.
//!
//! Spaces are listed fastest first. A buffer that does not live in the fastest space it may live in
//! costs the traffic of its accesses: the bytes of its uses, or its size once per live range where
//! none are given. Buffers that move together choose together.
//!
//! Up to [`EXACT_GROUPS`] groups with a choice every assignment is considered, cheapest first by branch
//! and bound, and judged by the placement itself. Beyond, groups with the most traffic per byte and step enter
//! the fast space as long as its load allows, and leave it again, least value first, until it fits.

use super::byteless;
use super::counters::Meter;
use super::feasible::{self, Answer};
use super::instance::Instance;
use super::options::{Effort, PlacementOptions};
use super::result::Traffic;
use super::statement;
use npumem_ir::{Bytes, Problem, SpaceId};
use std::collections::BTreeMap;

/// Groups with a choice up to which the assignment is exact.
pub(crate) const EXACT_GROUPS: usize = 14;

/// Buffers that live in one space together, and where they may.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub root: u32,
    pub members: Vec<u32>,
    pub allowed: Vec<SpaceId>,
    traffic: u64,
    /// Bytes times steps.
    area: u128,
}

/// An assignment and what is known about it.
pub(crate) struct Assignment {
    pub home: Vec<Option<SpaceId>>,
    pub traffic: Option<Traffic>,
}

/// The first space of every placed buffer, and the groups that have a choice.
pub(crate) fn choices(problem: &Problem, root: &[u32], allowed: &[Vec<SpaceId>]) -> (Vec<Option<SpaceId>>, Vec<Group>) {
    let placed = statement::placed_groups(problem, root);
    let mut home: Vec<Option<SpaceId>> = vec![None; root.len()];
    let mut choosing: BTreeMap<u32, Group> = BTreeMap::new();
    for (id, b) in problem.buffers() {
        let r = root[id.index()];
        if placed[r as usize] != Some(true) {
            continue;
        }
        let choices = &allowed[r as usize];
        home[id.index()] = choices.first().copied();
        if choices.len() < 2 {
            continue;
        }
        let group = choosing.entry(r).or_insert_with(|| Group {
            root: r,
            members: Vec::new(),
            allowed: choices.clone(),
            traffic: 0,
            area: 0,
        });
        group.members.push(id.0);
        let uses: u64 = b.uses.iter().map(|u| u.bytes.get()).fold(0, u64::saturating_add);
        let own = if b.uses.is_empty() { b.size.get().saturating_mul(b.live.len() as u64) } else { uses };
        group.traffic = group.traffic.saturating_add(own);
        let steps: u128 = b.live.iter().map(|l| u128::from(l.steps.len())).sum();
        group.area = group.area.saturating_add(u128::from(b.size.get()).saturating_mul(steps));
    }
    (home, choosing.into_values().collect())
}

/// Gives every placed buffer a space, for the least traffic.
pub(crate) fn assign(
    problem: &Problem,
    mut home: Vec<Option<SpaceId>>,
    groups: &[Group],
    options: &PlacementOptions,
    meter: &mut Meter,
) -> Assignment {
    if groups.is_empty() {
        return Assignment { home, traffic: None };
    }
    let before = meter.spent();
    let traffic = if groups.len() <= EXACT_GROUPS && options.switches.exact && options.effort > Effort::Fast {
        exact(problem, groups, &mut home, options, meter)
    } else {
        filling(problem, groups, &mut home, options, meter)
    };
    meter.book("spaces", before);
    Assignment { home, traffic: Some(traffic) }
}

/// The traffic of an assignment.
pub(crate) fn traffic(groups: &[Group], home: &[Option<SpaceId>]) -> u64 {
    let of = |g: &Group| g.members.first().and_then(|&m| home[m as usize]).map_or(0, |s| cost(g, s));
    groups.iter().map(of).fold(0, u64::saturating_add)
}

fn put(home: &mut [Option<SpaceId>], group: &Group, space: SpaceId) {
    for &m in &group.members {
        home[m as usize] = Some(space);
    }
}

/// What a group costs in a space.
pub(crate) fn cost(group: &Group, space: SpaceId) -> u64 {
    if group.allowed.first() == Some(&space) { 0 } else { group.traffic }
}

/// Does everything assigned to a space fit in it? `None` when that could not be decided.
fn fits(
    problem: &Problem,
    home: &[Option<SpaceId>],
    space: SpaceId,
    options: &PlacementOptions,
    limit: u64,
    meter: &mut Meter,
) -> Option<bool> {
    if problem.space(space).capacity.is_none() {
        return Some(true);
    }
    let only: Vec<Option<SpaceId>> = home.iter().map(|h| h.filter(|&h| h == space)).collect();
    let root = statement::groups(problem);
    let (only, byteless) = byteless::part(problem, &root, only);
    if byteless::place(problem, &byteless).is_ok_and(|b| b.outside.is_some()) {
        return Some(false);
    }
    let mut statements = statement::split(problem, &only);
    let raw = &mut statements[space.index()].raw;
    raw.whole = true;
    let Ok(instance) = Instance::new(raw) else { return Some(false) };
    if super::bounds::lower_bound(&instance).value > instance.capacity {
        meter.spend(instance.items.len() as u64);
        return Some(false);
    }
    if options.effort == Effort::Fast {
        // First fit and best fit by size: what they do not place moves out.
        return feasible::greedy_only(&instance, instance.capacity, 1, meter).map(|_| true);
    }
    if feasible::quick(&instance, instance.capacity, meter).is_some() {
        return Some(true);
    }
    match feasible::decide(&instance, instance.capacity, options, limit, meter) {
        Answer::Fits(_) => Some(true),
        Answer::Fails => Some(false),
        Answer::Unknown => None,
    }
}

/// Every assignment, by branch and bound over the groups of most traffic first.
fn exact(
    problem: &Problem,
    groups: &[Group],
    home: &mut [Option<SpaceId>],
    options: &PlacementOptions,
    meter: &mut Meter,
) -> Traffic {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|&g| (std::cmp::Reverse(groups[g].traffic), groups[g].root));
    // Answers by (space, set of groups in it).
    let mut known: BTreeMap<(u32, u32), Option<bool>> = BTreeMap::new();
    let mut choice = vec![0usize; groups.len()];
    let mut best: Option<(u64, Vec<usize>)> = None;
    let mut certain = true;
    let limit = (meter.left() / 200).max(200_000);
    // An odometer over the choices, deepest group last; `depth` groups are assigned.
    let mut depth = 0;
    let mut spent = vec![0u64; groups.len() + 1];
    let fixed = home.to_vec();
    loop {
        if depth == groups.len() {
            if best.as_ref().is_none_or(|b| spent[depth] < b.0) {
                best = Some((spent[depth], choice.clone()));
            }
        } else if choice[depth] < groups[order[depth]].allowed.len() {
            let group = &groups[order[depth]];
            let space = group.allowed[choice[depth]];
            let total = spent[depth] + cost(group, space);
            let promising = best.as_ref().is_none_or(|b| total < b.0) && !meter.is_interrupted();
            if promising {
                let mut mask = 0u32;
                for (d, &g) in order.iter().enumerate().take(depth + 1) {
                    if groups[g].allowed[choice[d]] == space {
                        mask |= 1 << g;
                    }
                }
                let answer = *known.entry((space.0, mask)).or_insert_with(|| {
                    let mut trial = fixed.clone();
                    for (g, group) in groups.iter().enumerate() {
                        let inside = mask & (1 << g) != 0;
                        for &m in &group.members {
                            trial[m as usize] = inside.then_some(space);
                        }
                    }
                    fits(problem, &trial, space, options, limit, meter)
                });
                if answer.is_none() {
                    certain = false;
                }
                if answer == Some(true) {
                    depth += 1;
                    spent[depth] = total;
                    if depth < groups.len() {
                        choice[depth] = 0;
                    }
                    continue;
                }
            }
            choice[depth] += 1;
            continue;
        }
        if depth == 0 {
            break;
        }
        depth -= 1;
        choice[depth] += 1;
    }
    match best {
        Some((total, chosen)) => {
            for (d, &g) in order.iter().enumerate() {
                put(home, &groups[g], groups[g].allowed[chosen[d]]);
            }
            let bound = if certain && !meter.is_interrupted() { total } else { 0 };
            Traffic { bytes: Bytes(total), bound: Bytes(bound) }
        }
        None => filling(problem, groups, home, options, meter),
    }
}

/// Most traffic per byte and step first, while the load allows; then out again until it fits.
fn filling(
    problem: &Problem,
    groups: &[Group],
    home: &mut [Option<SpaceId>],
    options: &PlacementOptions,
    meter: &mut Meter,
) -> Traffic {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    let density = |g: usize| {
        // Traffic per area, in fixed point so that ties and order are exact.
        (u128::from(groups[g].traffic) << 40) / groups[g].area.max(1)
    };
    order.sort_by_key(|&g| (std::cmp::Reverse(density(g)), groups[g].root));
    // Everything with a choice starts in its last space and moves up where there is room.
    for group in groups {
        if let Some(&last) = group.allowed.last() {
            put(home, group, last);
        }
    }
    let mut loads = Loads::new(problem, home);
    for &g in &order {
        let group = &groups[g];
        let Some(&last) = group.allowed.last() else { continue };
        for &space in &group.allowed {
            if space == last {
                break;
            }
            loads.remove(problem, group, last);
            if loads.add_if_room(problem, group, space) {
                put(home, group, space);
                break;
            }
            loads.add(problem, group, last);
        }
    }
    let mut inside: Vec<usize> = order.clone();
    for (space, _) in problem.spaces() {
        // Least dense first out, a growing share at a time.
        let mut share = if options.effort == Effort::Fast { 1 + inside.len() / 16 } else { 1 };
        while fits(problem, home, space, options, 2_000_000, meter) != Some(true) {
            let mut out = 0;
            for &g in inside.iter().rev() {
                let group = &groups[g];
                let now = group.members.first().and_then(|&m| home[m as usize]);
                if now != Some(space) || out >= share {
                    continue;
                }
                if let Some(&next) = group.allowed.iter().find(|&&s| s > space) {
                    put(home, group, next);
                    out += 1;
                }
            }
            if out == 0 || meter.is_interrupted() {
                break;
            }
            share *= 2;
        }
        inside.retain(|&g| groups[g].members.first().is_some_and(|&m| home[m as usize] > Some(space)));
    }
    let total = traffic(groups, home);
    Traffic { bytes: Bytes(total), bound: Bytes(bound(problem, groups).min(total)) }
}

/// Load of each space by step, in a tree of ranges.
struct Loads {
    steps: Vec<u64>,
    load: Vec<Vec<i128>>,
}

impl Loads {
    fn new(problem: &Problem, home: &[Option<SpaceId>]) -> Loads {
        let mut steps: Vec<u64> = problem
            .buffers
            .iter()
            .flat_map(|b| &b.live)
            .flat_map(|l| [l.steps.start.get(), l.steps.end.get()])
            .collect();
        steps.sort_unstable();
        steps.dedup();
        let slots = steps.len().max(1);
        let mut loads = Loads { steps, load: vec![vec![0; slots]; problem.spaces.len()] };
        for (k, h) in home.iter().enumerate() {
            if let Some(space) = h {
                loads.change(problem, k as u32, *space, 1);
            }
        }
        loads
    }

    fn change(&mut self, problem: &Problem, buffer: u32, space: SpaceId, sign: i128) {
        let b = &problem.buffers[buffer as usize];
        for l in &b.live {
            let from = self.steps.partition_point(|&s| s < l.steps.start.get());
            let to = self.steps.partition_point(|&s| s < l.steps.end.get());
            let bytes = sign * i128::from(b.window(l).size().get());
            for slot in &mut self.load[space.index()][from..to] {
                *slot += bytes;
            }
        }
    }

    fn add(&mut self, problem: &Problem, group: &Group, space: SpaceId) {
        for &m in &group.members {
            self.change(problem, m, space, 1);
        }
    }

    fn remove(&mut self, problem: &Problem, group: &Group, space: SpaceId) {
        for &m in &group.members {
            self.change(problem, m, space, -1);
        }
    }

    /// Adds the group when the load stays within the capacity.
    fn add_if_room(&mut self, problem: &Problem, group: &Group, space: SpaceId) -> bool {
        self.add(problem, group, space);
        let Some(capacity) = problem.space(space).capacity else { return true };
        let over = group.members.iter().any(|&m| {
            problem.buffers[m as usize].live.iter().any(|l| {
                let from = self.steps.partition_point(|&s| s < l.steps.start.get());
                let to = self.steps.partition_point(|&s| s < l.steps.end.get());
                self.load[space.index()][from..to].iter().any(|&x| x > i128::from(capacity.get()))
            })
        });
        if over {
            self.remove(problem, group, space);
        }
        !over
    }
}

/// At each step the groups live there cannot all be in the fast space: what leaves it costs at least its share.
///
/// Only groups of one buffer count: what moves together may share bytes.
fn bound(problem: &Problem, groups: &[Group]) -> u64 {
    let mut best = 0u64;
    for (space, s) in problem.spaces() {
        let Some(capacity) = s.capacity else { continue };
        let mut events: Vec<(u64, bool, usize)> = Vec::new();
        for (g, group) in groups.iter().enumerate() {
            if let ([m], Some(&first)) = (group.members.as_slice(), group.allowed.first())
                && first == space
                && problem.constraints.never_coexist.is_empty()
            {
                for l in &problem.buffers[*m as usize].live {
                    if l.window.is_none() {
                        events.push((l.steps.start.get(), true, g));
                        events.push((l.steps.end.get(), false, g));
                    }
                }
            }
        }
        events.sort_unstable();
        let mut live: BTreeMap<(u128, usize), ()> = BTreeMap::new();
        let size = |g: usize| problem.buffers[groups[g].members[0] as usize].size.get();
        // Cheapest traffic per byte first, in fixed point.
        let key = |g: usize| ((u128::from(groups[g].traffic) << 32) / u128::from(size(g).max(1)), g);
        let mut load = 0u128;
        for (k, &(at, starts, g)) in events.iter().enumerate() {
            if starts {
                live.insert(key(g), ());
                load += u128::from(size(g));
            } else {
                live.remove(&key(g));
                load -= u128::from(size(g));
            }
            let last_at_step = events.get(k + 1).is_none_or(|n| n.0 != at);
            if last_at_step && load > u128::from(capacity.get()) && live.len() <= 4_096 {
                let mut excess = load - u128::from(capacity.get());
                let mut total = 0u64;
                for &(_, g) in live.keys() {
                    let take = excess.min(u128::from(size(g)));
                    // Rounded down, so that it stays a bound.
                    total = total
                        .saturating_add((u128::from(groups[g].traffic) * take / u128::from(size(g).max(1))) as u64);
                    excess -= take;
                    if excess == 0 {
                        break;
                    }
                }
                best = best.max(total);
            }
        }
    }
    best
}
