//! One space from statement to offsets: the methods in order of cost, each with what is left.

use super::bounds::{self, Bound, Reason};
use super::counters::Meter;
use super::greedy::{self, Keys};
use super::instance::Instance;
use super::options::{Effort, PlacementOptions};
use super::sections::Sections;
use super::valley::{Found, Search};
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
    let bound = bounds::lower_bound(instance);
    let only_fit = goals.first().is_some_and(|g| matches!(g, Goal::Fit));
    let target = if only_fit { bound.value.max(instance.capacity) } else { bound.value };
    let keys = Keys::new(instance);
    let before = meter.spent();
    let ratio = if instance.items.len() > 5_000 { 40 } else { 20 };
    let found = greedy::fan(instance, &keys, target, ratio, meter)?;
    meter.book("greedy", before);
    let mut out = SpaceOutcome {
        peak: found.peak,
        offsets: found.offsets,
        method: greedy::method_name(found.method),
        stop: Stop::Exhausted,
        cost: 0,
        cost_bound: instance.fixed_cost,
        infeasible: bound.value > instance.capacity,
        bound,
    };
    if options.effort > Effort::Fast && options.switches.exact && instance.flat && instance.items.len() <= EXACT_ITEMS {
        exact(instance, target, only_fit, options, meter, &mut out);
    }
    finish(instance, only_fit, meter, &mut out);
    Ok(out)
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
    if out.peak <= target || out.bound.value > target {
        return;
    }
    let before = meter.spent();
    let sections = Sections::new(instance, options.switches.dominate);
    let mut search = Search::new(instance, &sections, options.switches);
    // Every peak below `low` is ruled out; those in [low, tried) were given up.
    let (mut low, mut tried, mut step) = (target, target, 1);
    while tried < out.peak && meter.left() > 0 && !meter.is_interrupted() {
        let start = search.work;
        let share = if only_fit { meter.left() } else { meter.left() / 4 };
        let found = search.run(tried, share, options.seed, meter.cancel());
        meter.spend(search.work - start);
        match found {
            Found::Placed(offsets) => {
                out.peak = instance.peak(&offsets);
                out.offsets = offsets;
                out.method = "valley".to_owned();
                if only_fit {
                    break;
                }
                tried = low.max(tried.min(low + (out.peak - low) / 2));
                step = 1;
            }
            Found::Impossible => {
                low = tried + 1;
                out.bound = Bound { value: low, reason: Reason::Search };
                if only_fit {
                    out.infeasible = true;
                    break;
                }
                tried = (low + step).min(out.peak - 1).max(low);
                step *= 2;
            }
            Found::Unknown => {
                if only_fit {
                    break;
                }
                tried += ((out.peak - tried) / 2).max(1);
            }
        }
    }
    meter.book("valley", before);
    meter.note("nodes", search.nodes);
}

fn finish(instance: &Instance, only_fit: bool, meter: &Meter, out: &mut SpaceOutcome) {
    out.cost = instance.cost(&out.offsets);
    out.stop = if out.peak <= out.bound.value && out.cost == out.cost_bound {
        Stop::Optimal
    } else if only_fit && out.peak <= instance.capacity && out.cost == out.cost_bound {
        Stop::Satisfied
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
