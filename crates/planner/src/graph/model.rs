//! A graph's plan: the problems that the ways of sharing bytes make, each placed, the best kept.
//!
//! More sharing never raises the live load, but it makes rigid shapes of several rectangles that pack less well. So the
//! few useful combinations are placed one after another until one reaches its bound.

use super::error::GraphError;
use super::line::Line;
use super::problem::{self, MainSpace, ModelInput, ModelOptions, Strategy};
use super::storage::{Actions, Over};
use crate::placement::{Placement, PlacementError, PlacementOptions, place};
use npumem_ir::graph::Graph;
use npumem_ir::plan::SpaceUse;
use npumem_ir::{Bytes, Plan};
use std::sync::atomic::AtomicBool;

/// The best plan of a graph.
#[derive(Clone, Debug)]
pub struct ModelPlan {
    /// The problem that the plan is for, and what the reports say of the graph.
    pub input: ModelInput,
    /// The plan.
    pub placement: Placement,
    /// What each combination came to: the actions, which input is written over, and the peak. The kept one is the
    /// first of the smallest.
    pub tried: Vec<(Actions, Over, Bytes)>,
}

/// Why a graph has no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The graph is at fault.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The problem is: reserved ranges or alignments that nothing satisfies.
    #[error(transparent)]
    Placement(#[from] PlacementError),
}

/// Plans a graph: `options.actions` is the most that may be shared, and combinations of less are tried too.
///
/// # Errors
/// A graph that is none, an open dimension under a static strategy, constraints that contradict each other.
pub fn plan_model(
    graph: &Graph,
    space: &MainSpace,
    options: &ModelOptions,
    placement: &PlacementOptions,
    cancel: Option<&AtomicBool>,
) -> Result<ModelPlan, ModelError> {
    let line = Line::new(graph, &options.dims)?;
    let mut best: Option<ModelPlan> = None;
    let mut tried = Vec::new();
    for (actions, over) in combinations(options) {
        let own = ModelOptions { actions, over, ..options.clone() };
        let input = problem::from_line(&graph.name, &line, space, &own)?;
        if best.as_ref().is_some_and(|best| best.input.problem == input.problem) {
            continue;
        }
        let mut placement = place(&input.problem, placement, cancel)?;
        sharpen(&mut placement.plan, &input, space, options.strategy);
        let main = placement.plan.spaces.first();
        let peak = main.map_or(Bytes::ZERO, |main| main.peak);
        tried.push((actions, over, peak));
        let kept = best.as_ref().and_then(|best| best.placement.plan.spaces.first()).map(|main| main.peak);
        // Rounding of the highest buffer is all that a bound can be short of.
        let reached = main.is_none_or(|main| main.peak.0 - main.lower_bound.0 < space.alignment.get().max(2));
        if kept.is_none_or(|kept| peak < kept) {
            best = Some(ModelPlan { input, placement, tried: Vec::new() });
        }
        if reached {
            break;
        }
    }
    match best {
        Some(best) => Ok(ModelPlan { tried, ..best }),
        None => unreachable!("there is at least one combination"),
    }
}

/// The ways of sharing bytes that pack best, found with greedy orders alone: the same whatever the effort of the plan
/// that follows, so that a plan can be checked against the problem that it was made for. With it, whether those orders
/// came so close to the bound that only the rounding of one buffer is left to search for.
///
/// # Errors
/// As [`plan_model`].
pub fn choose(graph: &Graph, space: &MainSpace, options: &ModelOptions) -> Result<(ModelOptions, bool), ModelError> {
    let planned = plan_model(graph, space, options, &PlacementOptions::fast(), None)?;
    let close = |main: &SpaceUse| main.peak.0 - main.lower_bound.0 < space.alignment.get().max(2);
    let close = planned.placement.plan.spaces.first().is_none_or(close);
    let least = planned.tried.iter().map(|tried| tried.2).min();
    let chosen = planned.tried.into_iter().find(|tried| Some(tried.2) == least);
    let chosen = chosen.map(|(actions, over, _)| ModelOptions { actions, over, ..options.clone() });
    Ok((chosen.unwrap_or_else(|| options.clone()), close))
}

impl ModelPlan {
    /// Peak and lower bound of the part that placement packs, behind what is there for the whole run.
    #[must_use]
    pub fn packed(&self) -> (Bytes, Bytes) {
        let behind = |bytes: Bytes| bytes.saturating_sub(self.input.static_end.0);
        let main = self.placement.plan.spaces.first();
        main.map_or((Bytes::ZERO, Bytes::ZERO), |main| (behind(main.peak), behind(main.lower_bound)))
    }
}

/// No plan packs the activations and workspaces into less than this, behind the pinned part.
///
/// Every offset is aligned, so each buffer keeps its last unit of the alignment for itself, except the highest. That
/// holds as long as nothing can lie before the end of the pinned part, where only padding is: without reserved ranges.
#[must_use]
pub fn packed_bound(input: &ModelInput, space: &MainSpace, strategy: Strategy) -> Bytes {
    let cost = input.strategies.iter().find(|cost| cost.strategy == strategy).filter(|_| space.reserved.is_empty());
    cost.map_or(Bytes::ZERO, |cost| cost.planned_load.saturating_sub(space.alignment.get() - 1))
}

/// Raises a plan's bound of the main space to what the pinned part and the live load come to with their padding.
fn sharpen(plan: &mut Plan, input: &ModelInput, space: &MainSpace, strategy: Strategy) {
    let (load, Some(main)) = (packed_bound(input, space, strategy), plan.spaces.first_mut()) else { return };
    let bound = load.saturating_add(input.static_end.0).min(main.peak);
    if load > Bytes::ZERO && bound > main.lower_bound {
        main.lower_bound = bound;
        main.bound_reason = format!("largest live load, each buffer rounded up to {} B", space.alignment);
    }
}

/// The combinations worth placing, the most promising first, each once.
fn combinations(options: &ModelOptions) -> Vec<(Actions, Over)> {
    let most = options.actions;
    let other = if options.over == Over::Youngest { Over::Oldest } else { Over::Youngest };
    let without_pieces = Actions { pieces: false, ..most };
    let mut all = vec![(most, options.over), (most, other), (without_pieces, options.over), (without_pieces, other)];
    let mut seen = Vec::new();
    all.retain(|(actions, over)| {
        let key = (*actions, if actions.in_place { *over } else { Over::default() });
        let new = !seen.contains(&key);
        seen.push(key);
        new
    });
    all
}
