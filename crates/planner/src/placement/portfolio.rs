//! One space from statement to offsets: the methods in order of cost, each with what is left.

use super::board::Fit;
use super::bounds::{self, Bound, Reason};
use super::counters::Meter;
use super::goals::Measure;
use super::greedy::{self, Keys, Most, Order};
use super::instance::{Instance, UNLIMITED};
use super::options::{Effort, PlacementOptions};
use super::race::{self, Halt};
use super::sections::Sections;
use super::valley::{Found, Run, Search};
use super::{disjunction, hints, large, local, penalty, tiers};
use npumem_ir::SpaceId;
use npumem_ir::plan::Stop;
use npumem_ir::problem::Goal;

/// The answer for one space.
#[derive(Clone, Debug)]
pub(crate) struct SpaceOutcome {
    pub offsets: Vec<i64>,
    pub peak: i64,
    pub bound: Bound,
    pub method: String,
    pub stop: Stop,
    pub cost: u64,
    pub cost_bound: u64,
    /// Items that cannot all be placed at this capacity, when that is proven.
    pub infeasible: bool,
}

/// Solves one space for the goals; `Err` names a pinned item that clashes.
pub(crate) fn solve(
    instance: &Instance,
    goals: &[Goal],
    options: &PlacementOptions,
    meter: &mut Meter,
) -> Result<SpaceOutcome, u32> {
    let in_haste = options.effort == Effort::Fast && instance.items.len() > IN_HASTE;
    let bound = if in_haste { bounds::quick(instance) } else { bounds::lower_bound(instance) };
    // The first goal that says something here; without one any plan that fits will do.
    let only_fit = match goals.iter().find(|g| says_something(instance, **g)) {
        Some(goal) => matches!(goal, Goal::ReuseCost | Goal::KeepHints),
        None => instance.capacity < UNLIMITED,
    };
    let target = if only_fit { bound.value.max(instance.capacity) } else { bound.value };
    let refuted = bound.value > instance.capacity;
    // No plan fits, whatever the search finds: how far off the best one is may take a moment, but not the budget.
    let limit = meter.narrow(if refuted { WHEN_REFUTED } else { u64::MAX });
    let before = meter.spent();
    let keys = Keys::new(instance);
    let searching = options.effort > Effort::Fast;
    let most = if searching { Most::Work(1_000_000_000) } else { Most::Quick };
    let found = if instance.items.len() >= large::FEWEST {
        large::place(instance, &keys, target, meter)?
    } else {
        greedy::fan(instance, &keys, target, most, meter)?
    };
    meter.book("greedy", before);
    let mut out = SpaceOutcome {
        peak: found.peak,
        offsets: found.offsets,
        method: found.method.clone(),
        stop: Stop::Exhausted,
        cost: 0,
        cost_bound: instance.fixed_cost,
        infeasible: refuted,
        bound,
    };
    if searching && options.switches.local && instance.items.len() < large::FEWEST {
        squeeze(instance, &keys, target, options, meter, &mut out);
    }
    if searching
        && options.switches.local
        && (LOCAL_ITEMS + 1..large::FEWEST).contains(&instance.items.len())
        && out.peak > target
    {
        // Before the exact search, which would spend the whole budget at the first ceiling that it cannot decide.
        squeeze_large(instance, &keys, found.winner, target, meter, &mut out);
    }
    if searching && options.switches.local && !is_regular(instance) && instance.items.len() <= EXACT_ITEMS {
        // What the exact search decides soon needs no climbing.
        if options.switches.exact {
            let limit = meter.narrow(meter.left() / 20);
            exact(instance, target, only_fit && !refuted, options, meter, &mut out);
            meter.widen(limit);
        }
        climb(instance, &keys, found.winner, target, options, meter, &mut out);
    }
    if searching && options.switches.exact && instance.items.len() <= EXACT_ITEMS {
        exact(instance, target, only_fit && !refuted, options, meter, &mut out);
    }
    secondary(instance, goals, only_fit, options, meter, &mut out);
    meter.widen(limit);
    finish(instance, goals, only_fit, meter, &mut out);
    Ok(out)
}

/// The answer for one space whose offsets another search found. Proven is that no plan is better by the measures.
pub(crate) fn stated(
    instance: &Instance,
    offsets: Vec<i64>,
    proven: bool,
    measures: &[Measure],
    space: SpaceId,
    meter: &Meter,
) -> SpaceOutcome {
    let peak = instance.peak(&offsets);
    let mut bound = bounds::lower_bound(instance);
    // The first measure of this space is as small as it can be with these buffers in it.
    let is_first = |m: &Measure| match m {
        Measure::Peak(s) => *s == space,
        Measure::TotalPeak => true,
        Measure::MaxPeak | Measure::Cost | Measure::Moved | Measure::Traffic => false,
    };
    let of_space = |m: &&Measure| !matches!(m, Measure::Peak(s) if *s != space) && !matches!(m, Measure::Traffic);
    if proven && measures.iter().find(of_space).is_some_and(is_first) && peak > bound.value {
        bound = Bound { value: peak, reason: Reason::Search };
    }
    if instance.items.is_empty() {
        bound.reason = Reason::Empty;
    }
    let cost = instance.cost(&offsets);
    let stop = match proven {
        true => Stop::Optimal,
        false if meter.is_interrupted() => Stop::Interrupted,
        false => Stop::Budget,
    };
    SpaceOutcome {
        offsets,
        peak,
        bound,
        method: "exhaustive".to_owned(),
        stop,
        cost,
        cost_bound: if proven && measures.contains(&Measure::Cost) { cost } else { instance.fixed_cost },
        infeasible: false,
    }
}

/// Does a goal tell two placements of one space apart?
fn says_something(instance: &Instance, goal: Goal) -> bool {
    match goal {
        Goal::Peak | Goal::TotalPeak | Goal::MaxPeak => true,
        Goal::ReuseCost => !instance.penalties.is_empty(),
        Goal::KeepHints => instance.items.iter().any(|i| i.hint.is_some()),
        Goal::Fit | Goal::Traffic => false,
    }
}

/// Items beyond which `fast` does without the bound by sets that exclude each other.
const IN_HASTE: usize = 100;

/// Work for the smallest peak where the bound alone says that no plan fits.
const WHEN_REFUTED: u64 = 50_000_000;

/// Up to so many items the local search is short and comes before the exact one.
const LOCAL_ITEMS: usize = 600;

/// A short local search at the target; what it finds spares the exact search.
fn squeeze(
    instance: &Instance,
    keys: &Keys,
    target: i64,
    options: &PlacementOptions,
    meter: &mut Meter,
    out: &mut SpaceOutcome,
) {
    if out.peak <= target
        || out.bound.value > target
        || instance.items.len() > LOCAL_ITEMS
        || options.effort == Effort::Fast
    {
        return;
    }
    let before = meter.spent();
    let limit = (40 * instance.items.len() as u64 * instance.items.len() as u64 / 10).min(meter.left() / 100);
    for order in [Order::Urgency, Order::Size] {
        let sorted = keys.sorted(instance, order);
        if let Some((offsets, _)) = local::squeeze(instance, &sorted, Fit::Best, target, 12, limit, meter) {
            take(instance, offsets, "squeeze", out);
            break;
        }
    }
    meter.book("squeeze", before);
}

/// One interval each and no alignment that tells offsets apart: the exact search prunes well there.
fn is_regular(instance: &Instance) -> bool {
    instance.plain && instance.items.iter().all(|i| i.align == 1)
}

/// Passes of climbing for each item, where a pass looks at every pair.
const CLIMBS: u64 = 50_000;

/// Climbing from the best order, with a tenth of the work that is left at most.
fn climb(
    instance: &Instance,
    keys: &Keys,
    winner: (Order, Fit),
    target: i64,
    options: &PlacementOptions,
    meter: &mut Meter,
    out: &mut SpaceOutcome,
) {
    if out.peak <= target.max(out.bound.value) || out.infeasible {
        return;
    }
    let before = meter.spent();
    let limit = (CLIMBS * (instance.items.len() as u64).pow(2)).min(meter.left() / 10);
    let order = keys.sorted(instance, winner.0);
    if let Some(offsets) = local::climb(instance, &order, target, limit, options.seed, meter) {
        take(instance, offsets, "climb", out);
    }
    meter.book("climb", before);
}

/// Local search for traces too large for the exact one: at the bound, then ever further above it.
fn squeeze_large(
    instance: &Instance,
    keys: &Keys,
    winner: (Order, Fit),
    target: i64,
    meter: &mut Meter,
    out: &mut SpaceOutcome,
) {
    if out.bound.value > target {
        return;
    }
    if instance.items.len() < large::FEWEST {
        tiered(instance, keys, target, meter, out);
    }
    let before = meter.spent();
    let other = if winner.1 == Fit::First { Fit::Best } else { Fit::First };
    let starts = [winner, (winner.0, other), (Order::Urgency, Fit::Best), (Order::Pressure, Fit::Best)];
    // Rounds are cheap where the exact search still follows; a large trace has nothing else to spend on.
    let (most, rounds) = match instance.items.len() {
        n if n <= EXACT_ITEMS => (400_000_000, 240),
        n if n < large::FEWEST => (1_000_000_000, 24),
        _ => (300_000_000, 12),
    };
    let limit = meter.left().min(most);
    for (order, fit) in starts {
        let mut order = keys.sorted(instance, order);
        let mut eighths = 4;
        // Half the gap, three quarters of it, seven eighths: then another start.
        while eighths < 8 && out.peak > target {
            let spent = meter.spent() - before;
            if spent >= limit || meter.is_interrupted() {
                break;
            }
            let gap = out.peak - target;
            let ceiling = target + (i128::from(gap) * eighths / 8) as i64;
            let found = local::squeeze(instance, &order, fit, ceiling, rounds, (limit - spent) / 3, meter);
            match found {
                Some((offsets, by)) => {
                    take(instance, offsets, "squeeze", out);
                    order = by;
                    eighths = 4;
                }
                None => eighths = if eighths == 4 { 6 } else { eighths + 1 },
            }
        }
    }
    meter.book("squeeze", before);
}

/// Tiers at the bound; where that fails, the ceilings above it are bisected.
fn tiered(instance: &Instance, keys: &Keys, target: i64, meter: &mut Meter, out: &mut SpaceOutcome) {
    let before = meter.spent();
    let limit = meter.left().min(1_500_000_000);
    let largest = keys.urgency().iter().copied().max().unwrap_or(0);
    let (mut low, mut ceiling) = (target, target);
    while low < out.peak {
        let share = (limit - (meter.spent() - before).min(limit)).min(2 * limit / 3);
        if share == 0 || meter.is_interrupted() {
            break;
        }
        match tiers::place(instance, keys, (tiers::COARSE, largest), ceiling, share, meter) {
            Some(offsets) => take(instance, offsets, "tiers", out),
            None => low = ceiling + 1,
        }
        // The exact search follows on small problems, with better means for the ceilings in between.
        if instance.items.len() <= EXACT_ITEMS || out.peak - low <= target / 4096 {
            break;
        }
        ceiling = low + (out.peak - low) / 2;
    }
    meter.book("tiers", before);
}

fn take(instance: &Instance, offsets: Vec<i64>, method: &str, out: &mut SpaceOutcome) {
    let peak = instance.peak(&offsets);
    if peak < out.peak {
        out.peak = peak;
        out.offsets = offsets;
        method.clone_into(&mut out.method);
    }
}

/// Goals beyond the first: penalties, then hints, below the ceiling that the first one left.
fn secondary(
    instance: &Instance,
    goals: &[Goal],
    only_fit: bool,
    options: &PlacementOptions,
    meter: &mut Meter,
    out: &mut SpaceOutcome,
) {
    let ceiling = if only_fit { instance.capacity } else { out.peak };
    if out.peak > ceiling {
        return;
    }
    let rounds = if options.effort == Effort::Fast { 1 } else { 32 };
    for goal in goals {
        match goal {
            Goal::ReuseCost if options.effort == Effort::Fast => {
                // Room enough to keep every pair apart is the common case, and costs one more first fit.
                if let Some(offsets) = penalty::keep_all(instance, ceiling, &out.offsets, meter) {
                    out.method = "penalties".to_owned();
                    out.peak = instance.peak(&offsets);
                    out.offsets = offsets;
                }
            }
            Goal::ReuseCost => {
                let cheap = penalty::minimise(instance, ceiling, out.offsets.clone(), options, meter);
                out.cost_bound = cheap.bound;
                if cheap.cost < instance.cost(&out.offsets) {
                    out.method = "penalties".to_owned();
                    out.peak = instance.peak(&cheap.offsets);
                    out.offsets = cheap.offsets;
                }
            }
            Goal::KeepHints if !goals.contains(&Goal::ReuseCost) => {
                if let Some(offsets) = hints::keep(instance, ceiling, &out.offsets, rounds, meter) {
                    out.method = "hints".to_owned();
                    out.peak = instance.peak(&offsets);
                    out.offsets = offsets;
                }
            }
            _ => {}
        }
    }
}

/// Most items that the exact search is tried on as a whole.
const EXACT_ITEMS: usize = 3_000;

/// Closes the gap between the bound and the best peak as far as the budget goes.
fn exact(
    instance: &Instance,
    target: i64,
    only_fit: bool,
    options: &PlacementOptions,
    meter: &mut Meter,
    out: &mut SpaceOutcome,
) {
    if out.peak <= target || out.bound.value > target || !instance.can_be_searched() {
        return;
    }
    let before = meter.spent();
    // Sections that are cliques of a graph of conflicts prune little: what is not proven soon is not proven late.
    let has_exclusions = instance.items.iter().any(|i| !i.exclusive.is_empty());
    let limit = meter.narrow(if has_exclusions { meter.left() / 4 } else { u64::MAX });
    search_exactly(instance, target, only_fit, options, meter, out);
    meter.widen(limit);
    meter.book(if instance.flat { "valley" } else { "disjunction" }, before);
}

/// The search that suits the instance, within the meter's limit.
fn search_exactly(
    instance: &Instance,
    target: i64,
    only_fit: bool,
    options: &PlacementOptions,
    meter: &mut Meter,
    out: &mut SpaceOutcome,
) {
    if !instance.flat {
        exact_shapes(instance, options, target, only_fit, meter, out);
        return;
    }
    let sections = Sections::new(instance, options.switches.dominate);
    meter.spend(sections.work);
    let mut lanes = [0, 1].map(|_| Search::new(instance, &sections, options.switches));
    if only_fit {
        fit(instance, target, &mut lanes, options, meter, out);
    } else {
        let [first, second] = &mut lanes;
        let attempt = |search: &mut Search, ceiling: i64, limit: u64, seed: u64, halt: Halt| {
            let start = search.work;
            (search.run(ceiling, limit, seed, halt), search.work - start)
        };
        let mut lanes = Lanes {
            first: &mut |ceiling, limit, round, halt| {
                attempt(first, ceiling, limit, options.seed.wrapping_add(round), halt)
            },
            second: &mut |ceiling, limit, round, halt| {
                attempt(second, ceiling, limit, options.seed.wrapping_add(round), halt)
            },
        };
        ladder(instance, "valley", options.threads, &mut lanes, meter, out);
    }
}

/// The same for rigid shapes, by the search over disjunctions.
fn exact_shapes(
    instance: &Instance,
    options: &PlacementOptions,
    target: i64,
    only_fit: bool,
    meter: &mut Meter,
    out: &mut SpaceOutcome,
) {
    let attempt = |ceiling: i64, limit: u64, halt: Halt| {
        let mut own = Meter::within(limit, halt);
        let found = match disjunction::search(instance, &disjunction::Ask::below(ceiling), limit, &mut own) {
            disjunction::Outcome::Placed(offsets) => Found::Placed(offsets),
            disjunction::Outcome::Impossible => Found::Impossible,
            disjunction::Outcome::Unknown => Found::Unknown,
        };
        (found, own.spent())
    };
    if only_fit {
        let (found, work) = attempt(target, meter.left(), meter.halt());
        meter.spend(work);
        settle(instance, target, found, "disjunction", out);
        return;
    }
    let mut lanes = Lanes {
        first: &mut |ceiling, limit, _, halt| attempt(ceiling, limit, halt),
        second: &mut |ceiling, limit, _, halt| attempt(ceiling, limit, halt),
    };
    ladder(instance, "disjunction", options.threads, &mut lanes, meter, out);
}

/// Takes the answer at the one ceiling that matters.
fn settle(instance: &Instance, ceiling: i64, found: Found, method: &str, out: &mut SpaceOutcome) {
    match found {
        Found::Placed(offsets) => take(instance, offsets, method, out),
        Found::Impossible => {
            out.bound = Bound { value: ceiling + 1, reason: Reason::Search };
            out.infeasible = true;
        }
        Found::Unknown => {}
    }
}

/// Work of the first stretch of a fit, which one search does alone, and by how many eighths the next ones are longer.
const FIRST_STRETCH: u64 = 40_000_000;

/// One ceiling: a second search with another order joins the first one when that has not made it quickly, and they
/// take turns of equal work. Who decides in an earlier turn, or first in one, has decided.
fn fit(
    instance: &Instance,
    ceiling: i64,
    lanes: &mut [Search; 2],
    options: &PlacementOptions,
    meter: &mut Meter,
    out: &mut SpaceOutcome,
) {
    let [first, second] = lanes;
    let mut stretch = FIRST_STRETCH;
    let mut nodes = 0;
    let found = 'found: {
        let Ok(mut one) = Run::start(first, ceiling, options.seed) else { break 'found Found::Impossible };
        let found = one.go(stretch.min(meter.left()), meter.halt());
        meter.spend(one.work());
        nodes = one.nodes();
        if found != Found::Unknown {
            break 'found found;
        }
        let Ok(mut two) = Run::start(second, ceiling, options.seed.wrapping_add(1 << 32)) else {
            break 'found Found::Impossible;
        };
        loop {
            let share = stretch.min(meter.left() / 2);
            if share == 0 || meter.is_interrupted() {
                break 'found Found::Unknown;
            }
            let before = (one.work(), two.work());
            let decides = |found: &Found| *found != Found::Unknown;
            let (a, b) = race::both(
                options.threads,
                meter.halt(),
                |halt| one.go(share, halt),
                |halt| two.go(share, halt),
                decides,
            );
            meter.spend(one.work() - before.0);
            nodes = one.nodes();
            match b {
                None => break 'found a,
                Some(b) => {
                    meter.spend(two.work() - before.1);
                    if b != Found::Unknown {
                        break 'found b;
                    }
                }
            }
            stretch += stretch / 2;
        }
    };
    meter.note("nodes", nodes);
    settle(instance, ceiling, found, "valley", out);
}

/// A search below a ceiling, with so much work, in that round: what came of it and what it took.
type Attempt<'a> = dyn FnMut(i64, u64, u64, Halt) -> (Found, u64) + Send + 'a;

/// Two searches of one kind that share nothing.
struct Lanes<'a> {
    first: &'a mut Attempt<'a>,
    second: &'a mut Attempt<'a>,
}

/// Work of an attempt in the first round.
const FIRST_ROUND: u64 = 100_000_000;

/// Narrows the interval between the bound and the best peak, two ceilings at a time. Attempts have a limit that
/// grows from round to round, so that no single ceiling eats the budget.
///
/// ```text
///   bound        given up   first    second      peak
///     |------------|----------|---------|----------|      of what was not given up in this round,
///                  0         1/2       3/4         1      the middle and the middle above it
/// ```
///
/// The first round begins at the bound itself, which is where most problems end; what it rules out raises the bound.
fn ladder(
    instance: &Instance,
    method: &str,
    threads: usize,
    lanes: &mut Lanes,
    meter: &mut Meter,
    out: &mut SpaceOutcome,
) {
    let mut limit = FIRST_ROUND;
    for round in 0.. {
        // Everything up to here was ruled out, or given up in this round.
        let mut given_up = out.bound.value - 1;
        let mut step = 1;
        let mut climbing = round == 0;
        while given_up + 1 < out.peak {
            if meter.left() == 0 || meter.is_interrupted() {
                return;
            }
            let low = if climbing { (given_up + step).min(out.peak - 1) } else { middle(given_up, out.peak) };
            let high = middle(low, out.peak);
            let share = limit.min((meter.left() / 2).max(1));
            let before = meter.spent();
            let Lanes { first, second } = lanes;
            let ((a, work), other) = race::both(
                if high > low { threads } else { 1 },
                meter.halt(),
                |halt| first(low, share, round, halt),
                |halt| if high > low { second(high, share, round, halt) } else { (Found::Unknown, 0) },
                |a| matches!(a.0, Found::Placed(_)),
            );
            meter.spend(work);
            let decided = other.is_none();
            let (b, more) = other.unwrap_or((Found::Unknown, 0));
            meter.spend(more);
            if a == Found::Unknown && b == Found::Unknown && meter.spent() == before {
                // A search that gave up before it began gives up at every ceiling.
                return;
            }
            climbing &= a == Found::Impossible;
            step = if climbing { step * 2 } else { 1 };
            for (ceiling, found) in [(low, a), (high, b)] {
                match found {
                    Found::Placed(offsets) => take(instance, offsets, method, out),
                    Found::Impossible => {
                        out.bound = Bound { value: out.bound.value.max(ceiling + 1), reason: Reason::Search };
                        given_up = given_up.max(ceiling);
                    }
                    Found::Unknown if decided || ceiling >= out.peak => {}
                    Found::Unknown => given_up = given_up.max(ceiling),
                }
            }
        }
        if out.bound.value >= out.peak {
            return;
        }
        limit = limit.saturating_mul(4);
    }
}

/// A ceiling between one that is given up and the best peak.
fn middle(low: i64, peak: i64) -> i64 {
    low + ((peak - low) / 2).max(i64::from(low + 1 < peak))
}

fn finish(instance: &Instance, goals: &[Goal], only_fit: bool, meter: &Meter, out: &mut SpaceOutcome) {
    out.cost = instance.cost(&out.offsets);
    let about_cost = goals.contains(&Goal::ReuseCost);
    let cheapest = !about_cost || out.cost == out.cost_bound;
    out.stop = if out.peak <= out.bound.value && cheapest {
        Stop::Optimal
    } else if only_fit && out.peak <= instance.capacity && cheapest {
        if about_cost { Stop::Optimal } else { Stop::Satisfied }
    } else if meter.is_interrupted() {
        Stop::Interrupted
    } else if meter.left() == 0 {
        Stop::Budget
    } else {
        Stop::Exhausted
    };
    if instance.items.is_empty() {
        out.bound.reason = Reason::Empty;
    }
}
