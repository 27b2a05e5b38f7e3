//! What only the orchestration knows about a plan: plain values, filled by the façade, shown as they are.

use npumem_ir::problem::Goal;
use npumem_ir::{BufferId, Bytes, Step, StepRange};
use serde::{Deserialize, Serialize};

/// Everything that goes into a report besides the problem and its plan. All of it may be left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extras {
    /// Names of steps; sorted here.
    pub step_names: Vec<StepName>,
    /// What the graph holds.
    pub totals: Option<Totals>,
    /// The lower bound of each set of actions, weakest set first.
    pub bounds: Vec<ActionBound>,
    /// What each strategy costs.
    pub strategies: Vec<StrategyRow>,
    /// What bounds the speed.
    pub roofline: Option<Roofline>,
    /// The device's levels.
    pub hierarchy: Option<Hierarchy>,
    /// Why there is no plan that fits.
    pub infeasible: Option<Infeasible>,
    /// What the plan reached of each goal, most important first.
    pub goals: Vec<GoalValue>,
    /// What a reader should know besides.
    pub notes: Vec<Note>,
}

/// What a plan reached of one goal; the peak of each space stands with the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoalValue {
    /// The goal.
    pub goal: Goal,
    /// Bytes, or the cost of reuse.
    pub value: u64,
    /// No plan that is as good by the goals before it has less; `None` where no bound is known.
    pub bound: Option<u64>,
}

/// What a step is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepName {
    /// The step.
    pub step: Step,
    /// The operator or statement that runs in it.
    pub name: String,
}

/// What a graph holds, counted by tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    /// How many operators run.
    pub operators: u64,
    /// What the caller gives.
    pub inputs: Total,
    /// What the caller gets.
    pub outputs: Total,
    /// Parameters.
    pub weights: Total,
    /// Values known before the run.
    pub constants: Total,
    /// Everything that is computed and used up, views included.
    pub activations: Total,
}

/// A number of tensors and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Total {
    /// How many.
    pub count: u64,
    /// The sum of their sizes.
    pub bytes: Bytes,
}

/// The least that any plan needs when certain actions are allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionBound {
    /// The actions: `given order`, `+ views`, `+ in-place`.
    pub actions: String,
    /// The bound.
    pub bytes: Bytes,
    /// The step that sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// What runs there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
}

/// What one strategy costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StrategyRow {
    /// `static`, `dynamic` or `hybrid`.
    pub strategy: String,
    /// Bytes whose offsets come from the plan.
    pub planned: Bytes,
    /// Bytes that come from a pool, at most; `None` when nothing bounds them.
    pub pool: Option<Bytes>,
    /// How often the run-time allocator is called in one run (an allocation and its free are two).
    pub allocator_calls: u64,
    /// The most that two replayed runs had live in npumem's own pool; only where the pool serves something of known size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_live: Option<Bytes>,
    /// The most that the pool reserved for it, in whole pages of 2 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_reserved: Option<Bytes>,
    /// Whether this report's plan follows it.
    #[serde(default)]
    pub chosen: bool,
    /// Why it cannot be used here, or what it assumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The least time that each engine needs, and which one bounds the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roofline {
    /// One row an engine.
    pub rows: Vec<RooflineRow>,
    /// The engine of the largest time.
    pub bound_by: Option<String>,
    /// That time; the whole takes at least as long.
    pub seconds: Option<f64>,
    /// Figures that are missing, and so engines whose time is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// What one engine does and how fast it can.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RooflineRow {
    /// The engine, or the link: `cube`, `vector`, `HBM`.
    pub engine: String,
    /// How much there is to do.
    pub work: u64,
    /// In what: `B` or `op`.
    pub unit: String,
    /// How much it does in a second; `None` when the device file does not say.
    pub rate: Option<Figure>,
    /// `work / rate`.
    pub seconds: Option<f64>,
}

/// A number of the device, with where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The number.
    pub value: f64,
    /// Its unit: `B/s`, `op/s`, `cycles`, `ns`.
    pub unit: String,
    /// Where it is from; `None` when it is estimated.
    pub source: Option<String>,
}

/// The device's memory levels, from the largest to the nearest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hierarchy {
    /// The device's name.
    pub device: String,
    /// The levels, largest and slowest first.
    pub levels: Vec<Level>,
    /// What connects them.
    #[serde(default)]
    pub links: Vec<LevelLink>,
}

/// One memory level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Its name: `HBM`, `L2`, `UB`.
    pub name: String,
    /// How much there is in one of them.
    pub capacity: Option<Bytes>,
    /// How much of that a program may use.
    pub usable: Option<Bytes>,
    /// How long an access takes.
    pub latency: Option<Figure>,
    /// How fast it is read.
    pub bandwidth: Option<Figure>,
    /// Who shares one: `device`, `cluster`, `core`.
    pub scope: String,
    /// How many there are on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// What this plan puts into it.
    #[serde(default)]
    pub holds: Vec<Held>,
    /// What else there is to say: `not yet assigned to SRAM`, `managed by hardware`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Some bytes in a level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// What they are: `weights`, `activations (peak)`.
    pub what: String,
    /// How many.
    pub bytes: Bytes,
}

/// A path between two levels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelLink {
    /// From which level, by name.
    pub from: String,
    /// To which.
    pub to: String,
    /// Who moves the bytes: `MTE2`.
    pub engine: String,
    /// How fast.
    pub bandwidth: Option<Figure>,
}

/// Why no plan fits: the smallest explanation that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Infeasible {
    /// One sentence.
    pub reason: String,
    /// The space that is too small.
    pub space: String,
    /// How much it holds.
    pub capacity: Option<Bytes>,
    /// How much is needed at least.
    pub needed: Bytes,
    /// Sets of buffers that cannot all be served.
    pub conflicts: Vec<Conflict>,
    /// What the reader can do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
}

/// Buffers that cannot all be served at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conflict {
    /// When.
    pub steps: StepRange,
    /// Who.
    pub buffers: Vec<ConflictBuffer>,
}

/// A buffer of a conflict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConflictBuffer {
    /// The buffer.
    pub buffer: BufferId,
    /// Its name.
    pub name: String,
    /// Its size.
    pub size: Bytes,
    /// Its live range within the conflict, or its lifetime.
    pub steps: StepRange,
}

/// A sentence for the reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// How much it matters.
    pub severity: Severity,
    /// The sentence.
    pub text: String,
}

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The result may not be what the reader thinks.
    Warning,
    /// Good to know.
    Info,
}

impl Note {
    /// A note that is good to know.
    #[must_use]
    pub fn info(text: impl Into<String>) -> Self {
        Note { severity: Severity::Info, text: text.into() }
    }

    /// A note about a result that may not be what the reader thinks.
    #[must_use]
    pub fn warning(text: impl Into<String>) -> Self {
        Note { severity: Severity::Warning, text: text.into() }
    }
}
