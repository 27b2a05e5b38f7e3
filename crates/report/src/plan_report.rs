//! The document that a plan becomes: what `npumem plan --json` prints and every picture draws from.
//!
//! ```text
//!   Problem + Plan --build--> PlanReport { spaces, buffers, pooled, origin }
//!   Extras (what only the façade knows) --> { totals, bounds, strategies, roofline, hierarchy, notes }
//! ```
//! `docs/formats/plan-report.md` describes the JSON form field by field.

mod build;
pub mod extras;
mod headline;

pub use build::BuildError;
pub use extras::{
    ActionBound, Conflict, ConflictBuffer, Extras, Figure, GoalValue, Held, Hierarchy, Infeasible, Level, LevelLink,
    Note, Roofline, RooflineRow, Severity, StepName, StrategyRow, Total, Totals,
};

use npumem_ir::plan::{Move, Origin};
use npumem_ir::problem::{BufferKind, Sizing};
use npumem_ir::{Alignment, BufferId, ByteRange, Bytes, Offset, SpaceId, Step, StepRange};
use serde::{Deserialize, Serialize};

/// The value of `format` in every document.
pub const FORMAT: &str = "npumem-plan-report";
/// The version that this code writes.
pub const VERSION: u32 = 1;

/// A plan with everything that a reader asks of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanReport {
    /// Always [`FORMAT`].
    pub format: String,
    /// Always [`VERSION`].
    pub version: u32,
    /// What was planned.
    pub problem: String,
    /// For which device.
    pub device: Option<String>,
    /// Whether every buffer has a place and every space holds its peak.
    pub fits: bool,
    /// The verdict as a sentence.
    pub headline: String,
    /// The first live step and the one after the last.
    pub steps: StepRange,
    /// Each memory space, in the problem's order.
    pub spaces: Vec<SpaceReport>,
    /// Each buffer, in the problem's order.
    pub buffers: Vec<BufferReport>,
    /// The copies between residencies, sorted by start.
    pub moves: Vec<Move>,
    /// What is left to a run-time pool.
    pub pooled: Pooled,
    /// Buffers that have neither a residency nor a place in the pool, though they need bytes: no plan was found for them.
    pub unplaced: Vec<BufferId>,
    /// How the plan was made.
    pub origin: Origin,
    /// Names of steps (operators, statements), where known; sorted by step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub step_names: Vec<StepName>,
    /// What the graph holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<Totals>,
    /// The lower bound that each set of actions has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<ActionBound>,
    /// What each strategy costs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strategies: Vec<StrategyRow>,
    /// What bounds the speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roofline: Option<Roofline>,
    /// The device's levels and what is in each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hierarchy: Option<Hierarchy>,
    /// Why there is no plan that fits, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infeasible: Option<Infeasible>,
    /// What the plan reached of each goal but the peaks, most important first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<GoalValue>,
    /// What a reader should know besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
}

/// One memory space: what it must hold, what it can hold.
///
/// ```text
///   address
///      ^ - - - - - - - - - - - - - - - - - - capacity  \
///      |                                                > headroom
///      | - - - - - - +------+- - - - - - - - peak      /
///      |  +----------+      |                          > peak - lower_bound: the gap
///      |==|##########|######|====- - - - - - lower_bound (>= live_peak in one space)
///      |  |##########|######|####|
///      +--+----------+------+----+--> step
///                    ^ live_peak_step
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpaceReport {
    /// Its name.
    pub name: String,
    /// The end of its usable offsets; `None` when nothing bounds it.
    pub capacity: Option<Bytes>,
    /// What every offset in it is a multiple of.
    pub alignment: Alignment,
    /// Bytes that no buffer may touch.
    pub reserved: Vec<ByteRange>,
    /// How many they are below the capacity, each byte counted once.
    pub reserved_bytes: Bytes,
    /// How many buffers have a residency in it.
    pub buffers: u64,
    /// The sum of their sizes: what it would take without any reuse.
    pub total: Bytes,
    /// The most bytes that are live at one step, each byte counted once.
    pub live_peak: Bytes,
    /// The first step at which that many are live.
    pub live_peak_step: Option<Step>,
    /// The highest end of any residency: the memory that must be there.
    pub peak: Bytes,
    /// The buffer whose end that is.
    pub peak_buffer: Option<BufferId>,
    /// No plan of the same problem needs less.
    pub lower_bound: Bytes,
    /// Why.
    pub bound_reason: String,
    /// `peak / lower_bound - 1`; `None` when the bound is zero and the peak is not.
    pub gap: Option<f64>,
    /// Whether the peak lies within the capacity.
    pub fits: bool,
    /// How far the peak is above the capacity; zero when it fits.
    pub over: Bytes,
    /// How far the peak is below the capacity; `None` when nothing bounds it or it does not fit.
    pub headroom: Option<Bytes>,
    /// Live bytes over time: `[step, bytes]`, valid from that step to the next entry's.
    pub curve: Vec<(Step, Bytes)>,
    /// What is live at `live_peak_step`.
    pub at_peak: AtPeak,
}

/// What fills a space at its largest live load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtPeak {
    /// The buffers, largest first.
    pub rows: Vec<PeakRow>,
    /// The sum of the rows' bytes.
    pub sum: Bytes,
    /// Bytes of that sum which are counted twice or more, because views and in-place results share them.
    pub shared: Bytes,
    /// The rows by kind, largest first.
    pub by_kind: Vec<KindTotal>,
}

/// One buffer that is live at the peak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeakRow {
    /// The buffer.
    pub buffer: BufferId,
    /// Its name.
    pub name: String,
    /// How many of its bytes are live at that step.
    pub bytes: Bytes,
    /// Its offset in the space.
    pub offset: Offset,
    /// What it is for.
    pub kind: BufferKind,
    /// Who writes it first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer: Option<String>,
    /// The buffer whose bytes it shares, for a view or an in-place result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<BufferId>,
}

/// Buffers of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindTotal {
    /// The kind.
    pub kind: BufferKind,
    /// How many.
    pub count: u64,
    /// The sum of their bytes.
    pub bytes: Bytes,
}

/// One buffer: its rectangles on the memory map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferReport {
    /// Its name.
    pub name: String,
    /// How many bytes it needs, at most.
    pub size: Bytes,
    /// Whether that number is exact.
    #[serde(default, skip_serializing_if = "is_fixed")]
    pub sizing: Sizing,
    /// What it is for.
    pub kind: BufferKind,
    /// Who writes it first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer: Option<String>,
    /// When its bytes are needed.
    pub live: Vec<LivePiece>,
    /// Where it lives; empty for what is pooled or unplaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
    /// The buffer that it is a place in, for a view or an in-place result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<BufferId>,
    /// Whether the problem fixes its offset.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pinned: bool,
    /// Whether it is left to the run-time pool.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pooled: bool,
}

/// A residency: the space by its index, the offset in it, and the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The space.
    pub space: SpaceId,
    /// Where in it.
    pub offset: Offset,
    /// For how long.
    pub steps: StepRange,
}

/// A live range. In JSON `[start, end]`, or `[start, end, first byte, byte after the last]` where only a window is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct LivePiece {
    /// When.
    pub steps: StepRange,
    /// Which bytes of the buffer; `None` for all of them.
    pub window: Option<ByteRange>,
}

/// What is left to a run-time pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pooled {
    /// The buffers.
    pub buffers: Vec<BufferId>,
    /// The sum of their sizes at most; `None` when one of them is unbounded.
    pub total: Option<Bytes>,
    /// The most of them that are live at one step; `None` when one of them is unbounded.
    pub live_peak: Option<Bytes>,
}

fn is_fixed(sizing: &Sizing) -> bool {
    *sizing == Sizing::Fixed
}

fn is_false(value: &bool) -> bool {
    !*value
}

impl From<LivePiece> for Vec<u64> {
    fn from(piece: LivePiece) -> Self {
        let mut numbers = vec![piece.steps.start.0, piece.steps.end.0];
        numbers.extend(piece.window.iter().flat_map(|window| [window.start.0, window.end.0]));
        numbers
    }
}

impl TryFrom<Vec<u64>> for LivePiece {
    type Error = String;

    fn try_from(numbers: Vec<u64>) -> Result<Self, String> {
        let (steps, window) = match *numbers.as_slice() {
            [start, end] => ((start, end), None),
            [start, end, first, after] => ((start, end), Some((first, after))),
            _ => return Err(format!("a live range has 2 or 4 numbers, not {}", numbers.len())),
        };
        let reversed = |(start, end): (u64, u64)| format!("reversed range [{start}, {end})");
        let steps = StepRange::new(Step(steps.0), Step(steps.1)).ok_or_else(|| reversed(steps))?;
        let window = match window {
            Some(pair) => Some(ByteRange::new(Offset(pair.0), Offset(pair.1)).ok_or_else(|| reversed(pair))?),
            None => None,
        };
        Ok(LivePiece { steps, window })
    }
}

impl PlanReport {
    /// The document as JSON, one line.
    ///
    /// # Errors
    /// Never for a document that [`PlanReport::build`] made; the serializer's own words otherwise.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// The document from JSON.
    ///
    /// # Errors
    /// Line, column and cause; another format or version is one.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        let report: PlanReport = serde_json::from_str(text)?;
        if report.format != FORMAT || report.version != VERSION {
            return Err(serde::de::Error::custom(format!(
                "expected format \"{FORMAT}\", version {VERSION}; found \"{}\", version {}",
                report.format, report.version
            )));
        }
        Ok(report)
    }

    /// The buffer of that id.
    #[must_use]
    pub fn buffer(&self, id: BufferId) -> Option<&BufferReport> {
        self.buffers.get(id.index())
    }

    /// The name of a step, where known.
    #[must_use]
    pub fn step_name(&self, step: Step) -> Option<&str> {
        let index = self.step_names.binary_search_by_key(&step, |named| named.step).ok()?;
        Some(&self.step_names[index].name)
    }
}
