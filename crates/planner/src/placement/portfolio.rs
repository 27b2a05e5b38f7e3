//! One space from statement to offsets: the methods in order of cost, each with what is left.

use super::bounds::{self, Bound, Reason};
use super::counters::Meter;
use super::greedy::{self, Keys};
use super::instance::Instance;
use super::options::PlacementOptions;
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
    let _ = options;
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
    finish(instance, only_fit, meter, &mut out);
    Ok(out)
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
