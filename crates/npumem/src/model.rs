//! The main job for a model: graph and device in, a checked plan and its report out.

use crate::plan::{PlanError, Planned, plan_problem};
use npumem_import::onnx::Model;
use npumem_ir::device::{Derived, EngineKind, FigureRow, Precision};
use npumem_ir::problem::{Goal, Sizing};
use npumem_ir::units::grouped;
use npumem_ir::{Bytes, Device, ElementType, SpaceId, Step};
use npumem_planner::graph::problem::{ModelInput, StrategyCost};
use npumem_planner::graph::{self, Bound, Dims, GraphError, Line, MainSpace, ModelOptions, Rates, Storage, Strategy};
use npumem_planner::placement::{Effort, PlacementOptions};
use npumem_report::plan_report::{
    ActionBound, Extras, Figure, Held, Hierarchy, Note, Roofline, RooflineRow, StepName, StrategyRow, Total, Totals,
};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use thiserror::Error;

/// Why a model has no report.
#[derive(Debug, Error)]
pub enum ModelError {
    /// The graph contradicts itself, or leaves open what the strategy needs.
    #[error("{0}")]
    Graph(#[from] GraphError),
    /// The device does not say how much memory it has.
    #[error("{0}; give it with --capacity SPACE=BYTES, or describe it in a device file")]
    Missing(#[from] npumem_ir::device::MissingFigure),
    /// The device has no memory that a model could live in.
    #[error("device `{0}` has no memory that all of it shares: a model has no place to live")]
    NoMainMemory(String),
    /// The plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// What to do with a model.
#[derive(Clone, Debug, Default)]
pub struct ModelRequest {
    /// Strategy, dimensions, actions.
    pub model: ModelOptions,
    /// How to place.
    pub placement: PlacementOptions,
    /// Goals in place of the smallest peak.
    pub goals: Vec<Goal>,
    /// The main memory's capacity, in place of the device's own.
    pub capacity: Option<Bytes>,
}

/// Plans a model for a device.
///
/// # Errors
/// [`ModelError`]; "does not fit" is an answer, not an error.
pub fn plan_model(
    model: &Model,
    device: &Device,
    request: &ModelRequest,
    cancel: Option<&AtomicBool>,
) -> Result<Planned, ModelError> {
    let main = device.main_memory().ok_or_else(|| ModelError::NoMainMemory(device.name.clone()))?;
    let space = main_space(device, main, request.capacity)?;
    let (chosen, close) = choose(model, &space, &request.model)?;
    let mut request = ModelRequest { model: chosen, ..request.clone() };
    // What is left to search for is the rounding of one buffer: seconds of work for less than one alignment unit.
    let settled = close && request.placement.effort == Effort::Normal && request.goals.is_empty();
    if settled {
        request.placement.effort = Effort::Fast;
    }
    let request = &request;
    let line = Line::new(&model.graph, &request.model.dims)?;
    let mut input = graph::problem::from_line(&model.graph.name, &line, &space, &request.model)?;
    input.problem.goals.clone_from(&request.goals);
    let mut extras = extras(model, device, main, &line, &input, request);
    replay_strategies(&mut extras.strategies, &line, &input, &space, request);
    let (static_end, load) = (input.static_end, graph::model::packed_bound(&input, &space, request.model.strategy));
    // The problem leaves the sizes of pooled buffers open; what bounds them is known here.
    let total = input.pooled.iter().map(|pooled| pooled.at_most).sum::<Option<Bytes>>();
    let at_once = input.strategies.iter().find(|cost| cost.strategy == request.model.strategy);
    let at_once = at_once.and_then(|cost| cost.pool_at_most);
    let mut planned = plan_problem(input.problem, Some(&device.name), &request.placement, extras, cancel)?;
    (planned.report.pooled.total, planned.report.pooled.live_peak) = (total, at_once);
    if settled {
        planned.report.notes.push(Note::info(
            "The greedy orders came within one alignment unit of the bound, so no search followed (--effort thorough searches).",
        ));
    }
    raise_bound(&mut planned, static_end.saturating_add(load.0).0);
    tell_packed(&mut planned, static_end.0, load);
    Ok(planned)
}

/// The problem that [`plan_model`] places: what a plan of a model is checked against.
///
/// # Errors
/// As [`plan_model`].
pub fn problem_of(
    model: &Model,
    device: &Device,
    options: &ModelOptions,
    capacity: Option<Bytes>,
) -> Result<npumem_ir::Problem, ModelError> {
    let main = device.main_memory().ok_or_else(|| ModelError::NoMainMemory(device.name.clone()))?;
    let space = main_space(device, main, capacity)?;
    let (options, _) = choose(model, &space, options)?;
    let line = Line::new(&model.graph, &options.dims)?;
    Ok(graph::problem::from_line(&model.graph.name, &line, &space, &options)?.problem)
}

/// A model laid out as [`plan_model`] does: its steps and values, which of them share bytes, and its problem.
pub struct Laid<'a, 'g> {
    /// Steps and values.
    pub line: &'a Line<'g>,
    /// Which values share bytes.
    pub storage: &'a Storage,
    /// The problem, and where each value is in it.
    pub input: &'a ModelInput,
}

/// Lays a model out and hands it to `read`.
///
/// # Errors
/// As [`plan_model`].
pub fn lay_out<T>(
    model: &Model,
    device: &Device,
    options: &ModelOptions,
    capacity: Option<Bytes>,
    read: impl FnOnce(Laid<'_, '_>) -> T,
) -> Result<T, ModelError> {
    let main = device.main_memory().ok_or_else(|| ModelError::NoMainMemory(device.name.clone()))?;
    let space = main_space(device, main, capacity)?;
    let (options, _) = choose(model, &space, options)?;
    let line = Line::new(&model.graph, &options.dims)?;
    let storage = Storage::with(&line, options.actions, space.alignment, options.over);
    let input = graph::problem::from_line(&model.graph.name, &line, &space, &options)?;
    Ok(read(Laid { line: &line, storage: &storage, input: &input }))
}

/// The ways of sharing bytes that pack this graph best.
fn choose(model: &Model, space: &MainSpace, options: &ModelOptions) -> Result<(ModelOptions, bool), ModelError> {
    use npumem_planner::graph::model::ModelError as Chosen;
    graph::model::choose(&model.graph, space, options).map_err(|error| match error {
        Chosen::Graph(error) => ModelError::Graph(error),
        Chosen::Placement(error) => ModelError::Plan(PlanError::Placement(error)),
    })
}

fn main_space(device: &Device, main: SpaceId, capacity: Option<Bytes>) -> Result<MainSpace, ModelError> {
    let described = device.space(main);
    let capacity = match capacity {
        Some(capacity) => capacity,
        None => device.usable(main)?,
    };
    Ok(MainSpace {
        name: described.name.clone(),
        capacity: Some(capacity),
        alignment: described.alignment.known().copied().unwrap_or_default(),
        reserved: described.reserved.iter().map(|reserved| reserved.range).collect(),
    })
}

/// The model's own bound, where it says more than the placement's: the placement does not count the padding between
/// the pinned part and what is packed behind it. It goes into the plan and into the report alike.
fn raise_bound(planned: &mut Planned, bound: u64) {
    let (Some(space), Some(used)) = (planned.report.spaces.first_mut(), planned.placement.plan.spaces.first_mut())
    else {
        return;
    };
    let bound = Bytes(bound.min(used.peak.0));
    if bound > used.lower_bound {
        used.lower_bound = bound;
        used.bound_reason = format!("largest live load, each buffer rounded up to {} B", space.alignment);
        space.lower_bound = bound;
        space.bound_reason.clone_from(&used.bound_reason);
        space.gap = Some(used.gap()).filter(|gap| gap.is_finite());
    }
}

/// The packed part alone: with gigabytes of weights beside it, the gap of the whole space would say nothing.
fn tell_packed(planned: &mut Planned, static_end: u64, load: Bytes) {
    let (Some(space), Some(used)) = (planned.report.spaces.first(), planned.placement.plan.spaces.first()) else {
        return;
    };
    let packed = used.peak.saturating_sub(static_end);
    let bound = used.lower_bound.saturating_sub(static_end).max(load.min(packed));
    if packed.0 == 0 {
        return;
    }
    let gap = if bound.0 == 0 { 0.0 } else { 100.0 * (packed.0 as f64 / bound.0 as f64 - 1.0) };
    let name = &space.name;
    planned.report.notes.insert(
        0,
        Note::info(format!(
            "Activations and workspaces alone are packed into {packed} of {name}; their lower bound is {bound}: a gap of {gap:.2} %."
        )),
    );
}

fn extras(
    model: &Model,
    device: &Device,
    main: SpaceId,
    line: &Line<'_>,
    input: &ModelInput,
    request: &ModelRequest,
) -> Extras {
    let storage =
        Storage::new(line, request.model.actions, device.space(main).alignment.known().copied().unwrap_or_default());
    let roof = graph::roofline(line, &storage, &rates(device, main, line));
    let steps = line.steps.iter().enumerate();
    let step_names = steps.map(|(index, step)| StepName { step: Step(index as u64), name: step.name.clone() });
    let mut notes: Vec<Note> = model.notes.iter().map(Note::warning).collect();
    if model.folded > 0 {
        notes.push(Note::info(format!(
            "{} operators depend on weights and constants only: they run before the model does and take no step.",
            grouped(model.folded as u64)
        )));
    }
    if !roof.uncounted.is_empty() {
        let kinds: Vec<String> = roof.uncounted.iter().map(|(kind, count)| format!("{kind} ({count})")).collect();
        notes.push(Note::info(format!(
            "Operations of these kinds are not counted, only their bytes: {}.",
            kinds.join(", ")
        )));
    }
    if input.totals.outside > 0 {
        notes.push(Note::info(format!(
            "{} sequences, optionals or strings live outside of planned memory.",
            input.totals.outside
        )));
    }
    notes.push(Note::info(
        "Every tensor is in main memory: tiles are not yet assigned to SRAM. Workspaces of kernels are not in the file \
         and are counted as none.",
    ));
    Extras {
        goals: Vec::new(),
        step_names: step_names.collect(),
        totals: Some(totals(line, input)),
        bounds: input.bounds.iter().map(action_bound).collect(),
        strategies: input.strategies.iter().map(|cost| strategy_row(cost, request)).collect(),
        roofline: Some(roofline(device, main, &roof, line)),
        hierarchy: Some(hierarchy(device, main, input)),
        infeasible: None,
        notes,
    }
}

fn action_bound(bound: &Bound) -> ActionBound {
    ActionBound {
        actions: bound.actions.name(),
        bytes: bound.bytes,
        step: Some(bound.step),
        operator: (!bound.operator.is_empty()).then(|| format!("{} ({})", bound.operator, bound.kind)),
    }
}

fn strategy_row(cost: &StrategyCost, request: &ModelRequest) -> StrategyRow {
    StrategyRow {
        strategy: cost.strategy.word().to_owned(),
        planned: cost.planned_static.saturating_add(cost.planned_load.0),
        pool: cost.pool_at_most,
        allocator_calls: cost.calls_per_run,
        pool_live: None,
        pool_reserved: None,
        chosen: cost.strategy == request.model.strategy,
        note: cost.refused.clone().or_else(|| {
            let turns = cost.calls_per_turn;
            (turns > 0).then(|| format!("{turns} of the calls repeat with every turn of a loop"))
        }),
    }
}

/// Adds what npumem's own pool would reserve: two runs replayed under each strategy that has something in a pool.
fn replay_strategies(
    rows: &mut [StrategyRow],
    line: &Line<'_>,
    input: &ModelInput,
    space: &MainSpace,
    request: &ModelRequest,
) {
    // The static problem alone knows the size of every buffer.
    let sized = ModelOptions { strategy: Strategy::Static, ..request.model.clone() };
    let made;
    let problem = if request.model.strategy == Strategy::Static {
        &input.problem
    } else {
        match graph::problem::from_line(&input.problem.name, line, space, &sized) {
            Ok(input) => made = input,
            Err(_) => return,
        }
        &made.problem
    };
    for row in rows {
        let replayed = match Strategy::parse(&row.strategy) {
            Some(Strategy::Dynamic) => crate::strategy::replay_pool(problem, |_| true),
            Some(Strategy::Hybrid) => crate::strategy::replay_pool(problem, |buffer| buffer.sizing != Sizing::Fixed),
            _ => None,
        };
        (row.pool_live, row.pool_reserved) = (replayed.map(|one| one.live), replayed.map(|one| one.reserved));
    }
}

fn totals(line: &Line<'_>, input: &ModelInput) -> Totals {
    use npumem_planner::graph::line::Origin;
    let count = |origin: Origin, output: bool| {
        line.values.iter().filter(|value| value.origin == origin && value.is_output == output).count() as u64
    };
    let all = |origin: Origin| count(origin, false) + count(origin, true);
    Totals {
        operators: line.steps.len() as u64,
        inputs: Total { count: all(Origin::Input), bytes: input.totals.inputs },
        outputs: Total { count: count(Origin::Computed, true), bytes: input.totals.outputs },
        weights: Total { count: all(Origin::Weight), bytes: input.totals.weights },
        constants: Total { count: all(Origin::Constant), bytes: input.totals.constants },
        activations: Total { count: input.totals.activation_count as u64, bytes: input.totals.activations },
    }
}

/// The element types that a graph computes in.
fn element_types(line: &Line<'_>) -> Vec<ElementType> {
    let mut found: Vec<ElementType> = line.values.iter().map(|value| value.tensor.element).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn rates(device: &Device, main: SpaceId, line: &Line<'_>) -> Rates {
    let peak = |kind: EngineKind| -> BTreeMap<ElementType, f64> {
        let of = |element: ElementType| {
            let rate = device.peak_operations(kind, Precision::of(element)?).ok()?;
            Some((element, rate.value))
        };
        element_types(line).into_iter().filter_map(of).collect()
    };
    Rates {
        bandwidth: device.bandwidth(main).ok().map(|derived| derived.value),
        matrix: peak(EngineKind::Matrix),
        vector: peak(EngineKind::Vector),
    }
}

fn source_of(device: &Device, rows: &[FigureRow]) -> Option<String> {
    let mut sources: Vec<String> = Vec::new();
    for row in rows {
        match &row.origin {
            Some(origin) if !origin.is_estimated() => {
                let key = origin.to_string();
                let text = device.sources.get(&key).cloned().unwrap_or(key);
                if !sources.contains(&text) {
                    sources.push(text);
                }
            }
            // One estimate makes the whole an estimate.
            _ => return None,
        }
    }
    (!sources.is_empty()).then(|| sources.join("; "))
}

fn figure(device: &Device, derived: &Derived, unit: &str) -> Figure {
    Figure { value: derived.value, unit: unit.to_owned(), source: source_of(device, &derived.from) }
}

fn roofline(device: &Device, main: SpaceId, roof: &graph::Roofline, line: &Line<'_>) -> Roofline {
    use npumem_planner::graph::roofline::Bounding;
    let main_name = device.space(main).name.clone();
    let named = |engine: Bounding| match engine {
        Bounding::Memory => main_name.clone(),
        other => other.name().to_owned(),
    };
    let busiest = |kind: EngineKind| {
        // The type in which most of the operations are done stands for the row; times are summed type by type.
        let mut by_type: BTreeMap<ElementType, u128> = BTreeMap::new();
        for operator in &roof.operators {
            let work = if kind == EngineKind::Matrix { operator.matrix } else { operator.vector };
            *by_type.entry(operator.element).or_default() += u128::from(work);
        }
        let most = by_type.into_iter().filter(|(_, work)| *work > 0).max_by_key(|(_, work)| *work)?;
        device.peak_operations(kind, Precision::of(most.0)?).ok()
    };
    let row = |engine: &graph::roofline::EngineRoof| {
        let (unit, rate) = match engine.engine {
            Bounding::Memory => ("B", device.bandwidth(main).ok().map(|derived| figure(device, &derived, "B/s"))),
            Bounding::Matrix => ("op", busiest(EngineKind::Matrix).map(|derived| figure(device, &derived, "op/s"))),
            Bounding::Vector => ("op", busiest(EngineKind::Vector).map(|derived| figure(device, &derived, "op/s"))),
        };
        RooflineRow {
            engine: named(engine.engine),
            work: engine.amount,
            unit: unit.to_owned(),
            rate,
            seconds: engine.seconds,
        }
    };
    let mut missing = Vec::new();
    if let Err(error) = device.bandwidth(main) {
        missing.push(error.to_string());
    }
    let needed: std::collections::BTreeSet<&String> = roof.missing.iter().collect();
    for (kind, word) in [(EngineKind::Matrix, "matrix"), (EngineKind::Vector, "vector")] {
        for element in element_types(line) {
            if needed.contains(&format!("{word} {element}"))
                && let Some(precision) = Precision::of(element)
                && let Err(error) = device.peak_operations(kind, precision)
            {
                missing.push(error.to_string());
            }
        }
    }
    Roofline {
        rows: roof.engines.iter().map(row).collect(),
        bound_by: roof.bound.map(|(engine, _)| named(engine)),
        seconds: roof.bound.map(|(_, seconds)| seconds),
        missing,
    }
}

/// The device's levels, and what the plan puts into the main memory.
fn hierarchy(device: &Device, main: SpaceId, input: &ModelInput) -> Hierarchy {
    let mut hierarchy = npumem_report::device::hierarchy(device);
    let held = |what: &str, bytes: Bytes| (bytes.0 > 0).then(|| Held { what: what.to_owned(), bytes });
    let totals = &input.totals;
    let load = input.bounds.last().map_or(Bytes::ZERO, |bound| bound.bytes);
    let rows = [
        held("weights", totals.weights),
        held("constants", totals.constants),
        held("inputs", totals.inputs),
        held("outputs", totals.outputs),
        held("activations at the peak", load),
    ];
    let main = &device.space(main).name;
    for level in &mut hierarchy.levels {
        if level.name == *main {
            level.holds = rows.iter().flatten().cloned().collect();
        } else if level.note.is_none() {
            level.note = Some("not yet assigned to SRAM".to_owned());
        }
    }
    hierarchy
}

/// The dimensions that a report and a reader both know, from `--dim` as the importer keeps it.
#[must_use]
pub fn dims(options: &npumem_import::onnx::Options) -> Dims {
    use npumem_import::onnx::Binding;
    use npumem_planner::graph::DimBinding;
    options
        .dims
        .iter()
        .map(|(name, binding)| {
            let binding = match binding {
                Binding::Number(number) => DimBinding::Fixed(*number),
                Binding::Range(low, high) => DimBinding::Range(*low, *high),
            };
            (name.clone(), binding)
        })
        .collect()
}
