//! Least reuse penalty below a capacity.
//!
//! Upper bound: first every penalty is kept as if it were a separation (cost zero); where that does
//! not fit, items are placed one by one where they pay least, in orders that are perturbed and kept when
//! they do not get worse. Lower bound: implicit hitting sets. Each *core* is a set of penalties that
//! cannot all be avoided; disjoint cores add up, and the cheapest set that hits all cores is the
//! next thing to give up. When what remains can be placed, that set is optimal.

use super::board::{Board, UNPLACED};
use super::counters::Meter;
use super::feasible::{Answer, decide, greedy_only, quick};
use super::greedy::{Keys, ORDERS};
use super::instance::{Instance, Penalty};
use super::options::PlacementOptions;

/// The cheapest placement found, what it costs, and what no placement costs less than.
pub(crate) struct Cheapest {
    pub offsets: Vec<i64>,
    pub cost: u64,
    pub bound: u64,
}

/// Minimises the penalties below `ceiling`, starting from a placement that keeps it.
pub(crate) fn minimise(
    instance: &Instance,
    ceiling: i64,
    start: Vec<i64>,
    options: &PlacementOptions,
    meter: &mut Meter,
) -> Cheapest {
    let mut best = Cheapest { cost: instance.cost(&start), offsets: start, bound: instance.fixed_cost };
    if best.cost == best.bound {
        return best;
    }
    let before = meter.spent();
    let penalties = by_item(instance);
    let share = meter.left() / 4;
    // All kept: every penalty a separation.
    let every: Vec<u32> = (0..instance.penalties.len() as u32).collect();
    let kept = keeping(instance, &every);
    let oracle = Oracle { instance, ceiling, options };
    let all = quick(&kept, ceiling, meter).map(Answer::Fits).unwrap_or_else(|| oracle.decide(&kept, share / 4, meter));
    match all {
        Answer::Fits(offsets) => {
            best.cost = instance.cost(&offsets);
            best.offsets = offsets;
        }
        Answer::Fails | Answer::Unknown => {
            descend(instance, ceiling, &penalties, options, meter.left() / 100, &mut best, meter);
            if matches!(all, Answer::Fails) && options.switches.exact {
                cores(&oracle, &every, meter.left() / 66, &mut best, meter);
            }
        }
    }
    meter.book("penalties", before);
    best
}

/// Orders that [`keep_all`] tries.
const FAST_ORDERS: usize = 2;

/// A placement below `ceiling` that pays nothing, if one of a few greedy orders finds it at once: what the fastest
/// effort does about penalties.
pub(crate) fn keep_all(instance: &Instance, ceiling: i64, start: &[i64], meter: &mut Meter) -> Option<Vec<i64>> {
    if instance.cost(start) == instance.fixed_cost {
        return None;
    }
    let before = meter.spent();
    let every: Vec<u32> = (0..instance.penalties.len() as u32).collect();
    let found = greedy_only(&keeping(instance, &every), ceiling, FAST_ORDERS, meter);
    meter.book("penalties", before);
    found
}

/// Penalties of each item.
fn by_item(instance: &Instance) -> Vec<Vec<Penalty>> {
    let mut out = vec![Vec::new(); instance.items.len()];
    for p in &instance.penalties {
        out[p.first as usize].push(*p);
        out[p.second as usize].push(*p);
    }
    out
}

/// The instance with the listed penalties turned into separations.
fn keeping(instance: &Instance, listed: &[u32]) -> Instance {
    let mut out = instance.clone();
    for &k in listed {
        let p = instance.penalties[k as usize];
        out.items[p.first as usize].apart.push((p.second, p.low, p.high));
        out.items[p.second as usize].apart.push((p.first, -p.high, -p.low));
    }
    for item in &mut out.items {
        item.apart.sort_unstable();
        item.apart.dedup();
    }
    out.penalties.clear();
    out.fixed_cost = 0;
    out.plain = out.plain && listed.is_empty();
    out
}

struct Oracle<'a> {
    instance: &'a Instance,
    ceiling: i64,
    options: &'a PlacementOptions,
}

impl Oracle<'_> {
    /// Does the instance fit below the ceiling?
    fn decide(&self, kept: &Instance, limit: u64, meter: &mut Meter) -> Answer {
        // Cloning and sorting the separations is work as well.
        meter.spend(8 * kept.items.iter().map(|i| 4 + i.apart.len() as u64).sum::<u64>());
        decide(kept, self.ceiling, self.options, limit, meter)
    }
}

/// Randomised order search with placements that pay least.
fn descend(
    instance: &Instance,
    ceiling: i64,
    penalties: &[Vec<Penalty>],
    options: &PlacementOptions,
    limit: u64,
    best: &mut Cheapest,
    meter: &mut Meter,
) {
    if !options.switches.local {
        return;
    }
    let begun = meter.spent();
    let keys = Keys::new(instance);
    let mut random = options.seed ^ 0x9e37_79b9_7f4a_7c15;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut candidates: Vec<(u64, Vec<u32>)> = Vec::new();
    for order in ORDERS {
        let sorted = keys.sorted(instance, order);
        let cost = match cheap_pass(instance, &sorted, ceiling, penalties, meter) {
            Ok(offsets) => take(instance, offsets, best),
            Err(_) => u64::MAX,
        };
        candidates.push((cost, sorted));
    }
    candidates.sort_by_key(|c| c.0);
    for (mut current, mut order) in candidates.into_iter().take(3) {
        let round_limit = limit / 3;
        let round_begun = meter.spent();
        let mut stale = 0u32;
        while meter.spent() - round_begun < round_limit && meter.spent() - begun < limit && stale < 3_000 {
            if best.cost <= best.bound || meter.is_interrupted() {
                return;
            }
            let n = order.len();
            if n < 2 {
                return;
            }
            let mut trial = order.clone();
            for _ in 0..1 + next() % 3 {
                let (from, to) = (next() as usize % n, next() as usize % n);
                if next() % 2 == 0 {
                    trial.swap(from, to);
                } else {
                    let moved = trial.remove(from);
                    trial.insert(to, moved);
                }
            }
            trial.sort_by_key(|&i| instance.items[i as usize].pin.is_none());
            let cost = match cheap_pass(instance, &trial, ceiling, penalties, meter) {
                Ok(offsets) => take(instance, offsets, best),
                Err(blocked) => {
                    // Whoever found no room goes first next time.
                    if current == u64::MAX {
                        order.retain(|&i| i != blocked);
                        order.insert(0, blocked);
                    }
                    stale += 1;
                    continue;
                }
            };
            stale = if cost < current { 0 } else { stale + 1 };
            if cost <= current {
                current = cost;
                order = trial;
            }
        }
    }
}

fn take(instance: &Instance, offsets: Vec<i64>, best: &mut Cheapest) -> u64 {
    let cost = instance.cost(&offsets);
    if cost < best.cost {
        best.cost = cost;
        best.offsets = offsets;
    }
    cost
}

/// Places in order, each item where it pays least below the ceiling, lowest first.
fn cheap_pass(
    instance: &Instance,
    order: &[u32],
    ceiling: i64,
    penalties: &[Vec<Penalty>],
    meter: &mut Meter,
) -> Result<Vec<i64>, u32> {
    let mut board = Board::new(instance);
    let mut forbidden: Vec<(i64, i64)> = Vec::new();
    let mut soft: Vec<(i64, i64, u64)> = Vec::new();
    let mut spots: Vec<i64> = Vec::new();
    for &i in order {
        let item = &instance.items[i as usize];
        board.forbidden(i as usize, &mut forbidden);
        soft.clear();
        for p in &penalties[i as usize] {
            let own_first = p.first == i;
            let at = board.offsets()[if own_first { p.second } else { p.first } as usize];
            if at != UNPLACED {
                // second - first in (low, high)
                soft.push(if own_first {
                    (at - p.high, at - p.low, p.weight)
                } else {
                    (at + p.low, at + p.high, p.weight)
                });
            }
        }
        let limit = ceiling - item.height;
        spots.clear();
        match item.pin {
            Some(pin) => spots.push(pin),
            None => {
                spots.push(item.lowest_from(0));
                spots.extend(
                    forbidden.iter().map(|f| f.1).chain(soft.iter().map(|s| s.1)).map(|at| item.lowest_from(at.max(0))),
                );
                spots.sort_unstable();
                spots.dedup();
            }
        }
        board.work += (spots.len() * (forbidden.len() + soft.len()) / 4) as u64;
        let mut chosen: Option<(u64, i64)> = None;
        for &at in &spots {
            if at > limit || forbidden.iter().any(|f| f.0 < at && at < f.1) {
                continue;
            }
            let cost: u64 = soft.iter().filter(|s| s.0 < at && at < s.1).map(|s| s.2).sum();
            if chosen.is_none_or(|c| cost < c.0) {
                chosen = Some((cost, at));
                if cost == 0 {
                    break;
                }
            }
        }
        match chosen {
            Some((_, at)) => board.put(i as usize, at),
            None => {
                meter.spend(board.work);
                return Err(i);
            }
        }
    }
    meter.spend(board.work);
    Ok(board.into_offsets())
}

/// Lower bound by cores; proves the best cost or finds a better one where it can.
fn cores(oracle: &Oracle, every: &[u32], limit: u64, best: &mut Cheapest, meter: &mut Meter) {
    let begun = meter.spent();
    let instance = oracle.instance;
    let fixed = instance.fixed_cost;
    let mut found: Vec<Vec<u32>> = Vec::new();
    let mut disjoint: Vec<u32> = Vec::new();
    // First disjoint cores, then the hitting set of all of them.
    loop {
        if meter.spent() - begun > limit || meter.is_interrupted() || best.cost <= best.bound {
            return;
        }
        let given_up =
            if found.is_empty() { Vec::new() } else { hit(&found, &instance.penalties, &mut best.bound, fixed, meter) };
        if best.cost <= best.bound {
            return;
        }
        let free = |k: u32| given_up.contains(&k) || disjoint.contains(&k);
        let listed: Vec<u32> = every.iter().copied().filter(|&k| !free(k)).collect();
        let kept = keeping(instance, &listed);
        match oracle.decide(&kept, limit / 8, meter) {
            Answer::Fits(offsets) => {
                take(instance, offsets, best);
                if disjoint.is_empty() {
                    return; // the hitting set itself is a solution: its cost is the bound
                }
                disjoint.clear();
                if found.len() > 400 {
                    return;
                }
                // From now on without the disjoint ones, so that only the hitting set is given up.
                let again: Vec<u32> = every.iter().copied().filter(|k| !given_up.contains(k)).collect();
                if again.len() == listed.len() {
                    return;
                }
            }
            Answer::Unknown => return,
            Answer::Fails => {
                let Some(core) = shrink(oracle, listed, limit / 40, begun + limit, meter) else { return };
                if core.is_empty() {
                    return;
                }
                if disjoint.len() < usize::MAX && found.len() < 400 {
                    disjoint.extend_from_slice(&core);
                    found.push(core);
                } else {
                    return;
                }
            }
        }
    }
}

/// Leaves out penalties as long as the rest still cannot all be avoided.
fn shrink(oracle: &Oracle, mut core: Vec<u32>, limit: u64, end: u64, meter: &mut Meter) -> Option<Vec<u32>> {
    let mut chunk = core.len().div_ceil(2);
    while chunk >= 1 {
        let mut at = 0;
        while at < core.len() {
            if meter.spent() > end || meter.is_interrupted() {
                return Some(core);
            }
            let mut rest = core.clone();
            rest.drain(at..(at + chunk).min(core.len()));
            let kept = keeping(oracle.instance, &rest);
            match oracle.decide(&kept, limit, meter) {
                Answer::Fails => core = rest,
                Answer::Fits(_) | Answer::Unknown => at += chunk,
            }
        }
        if chunk == 1 {
            break;
        }
        chunk = chunk.div_ceil(2);
    }
    Some(core)
}

/// A cheap hitting set of the cores; raises `bound` to what any hitting set costs at least.
fn hit(cores: &[Vec<u32>], penalties: &[Penalty], bound: &mut u64, fixed: u64, meter: &mut Meter) -> Vec<u32> {
    // Lower bound: disjoint cores, smallest first.
    let mut order: Vec<usize> = (0..cores.len()).collect();
    order.sort_by_key(|&k| (cores[k].len(), k));
    let mut used: Vec<u32> = Vec::new();
    let mut total = fixed;
    for &k in &order {
        if cores[k].iter().all(|p| !used.contains(p)) {
            used.extend_from_slice(&cores[k]);
            total += cores[k].iter().map(|&p| penalties[p as usize].weight).min().unwrap_or(0);
        }
    }
    *bound = (*bound).max(total);
    let (exact, set) = minimum(cores, penalties, meter);
    if exact {
        *bound = (*bound).max(fixed + set.iter().map(|&p| penalties[p as usize].weight).sum::<u64>());
    }
    set
}

/// Minimum hitting set by branch and bound on the smallest core not yet hit; `false` when cut short.
fn minimum(cores: &[Vec<u32>], penalties: &[Penalty], meter: &mut Meter) -> (bool, Vec<u32>) {
    let weight = |p: u32| penalties[p as usize].weight;
    // Greedy start: the penalty in the most cores per weight.
    let mut greedy: Vec<u32> = Vec::new();
    let mut open: Vec<&Vec<u32>> = cores.iter().collect();
    while !open.is_empty() {
        let mut all: Vec<u32> = open.iter().flat_map(|c| c.iter().copied()).collect();
        all.sort_unstable();
        let mut best: Option<(u64, u32)> = None;
        let mut at = 0;
        while at < all.len() {
            let p = all[at];
            let count = all[at..].iter().take_while(|&&x| x == p).count();
            let score = (count as u64 * 1_000_000) / weight(p).max(1);
            if best.is_none_or(|b| score > b.0) {
                best = Some((score, p));
            }
            at += count;
        }
        let Some((_, p)) = best else { break };
        greedy.push(p);
        open.retain(|c| !c.contains(&p));
    }
    let mut best_cost: u64 = greedy.iter().map(|&p| weight(p)).sum();
    let mut best = greedy;
    let mut chosen: Vec<u32> = Vec::new();
    let mut stack: Vec<(usize, usize)> = Vec::new();
    let mut work = 0u64;
    let total: u64 = cores.iter().map(|c| c.len() as u64).sum();
    let first_open = |chosen: &[u32]| {
        (0..cores.len()).filter(|&k| cores[k].iter().all(|p| !chosen.contains(p))).min_by_key(|&k| cores[k].len())
    };
    let mut forward = true;
    loop {
        work += 1 + total;
        if work > 1_000_000 {
            meter.spend(work);
            return (false, best);
        }
        if forward {
            let cost: u64 = chosen.iter().map(|&p| weight(p)).sum();
            match first_open(&chosen) {
                None => {
                    if cost < best_cost {
                        best_cost = cost;
                        best = chosen.clone();
                    }
                }
                Some(_) if cost + 1 > best_cost => {}
                Some(k) => stack.push((k, 0)),
            }
        }
        let Some((k, way)) = stack.last_mut() else {
            meter.spend(work);
            return (true, best);
        };
        if *way > 0 {
            chosen.pop();
        }
        if *way < cores[*k].len() {
            chosen.push(cores[*k][*way]);
            *way += 1;
            forward = true;
        } else {
            stack.pop();
            forward = false;
        }
    }
}
