//! The placement problem: which buffers need bytes, how many, when, and under which constraints.
//!
//! ```text
//!   bytes
//!     ^          +--------+
//!     |  +-------+   b    |      a buffer is a rectangle: its live ranges wide, its size high;
//!     |  |   a   +--------+      to place it is to give its lower edge an offset in a space,
//!     |  +-------+   c    |      so that no two rectangles share a byte at a step
//!     +--+-------+--------+--> step
//!        0       3        7      a is live in [0, 3), b and c in [3, 7)
//! ```

use crate::ids::{BufferId, SpaceId};
use crate::interval::{ByteRange, Interval, StepRange};
use crate::units::{Alignment, Bytes, Offset, Step};
use serde::{Deserialize, Serialize};

mod digest;
mod validate;

pub use digest::SCHEME as DIGEST_SCHEME;
pub use validate::{Item, ProblemError, ProblemErrorKind};

/// Buffers, the spaces they may live in, and what binds them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// What the problem is about: a model's or a file's name.
    pub name: String,
    /// The spaces, by [`SpaceId`].
    pub spaces: Vec<Space>,
    /// The buffers, by [`BufferId`].
    pub buffers: Vec<Buffer>,
    /// What binds pairs of buffers.
    #[serde(default)]
    pub constraints: Constraints,
    /// What a good plan is, most important first; empty means [`Goal::Peak`].
    #[serde(default)]
    pub goals: Vec<Goal>,
}

/// One memory space as a problem sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// Its name, unique in the problem.
    pub name: String,
    /// The end of its usable offsets; `None` when nothing bounds it.
    pub capacity: Option<Bytes>,
    /// What every offset in it is a multiple of.
    #[serde(default)]
    pub alignment: Alignment,
    /// Bytes that no buffer may touch.
    #[serde(default)]
    pub reserved: Vec<ByteRange>,
}

/// A buffer: a number of bytes, live for some steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// Its name (a foreign id stays here as it was written).
    pub name: String,
    /// How many bytes it needs; for [`Sizing::Ranged`] the most it can need.
    pub size: Bytes,
    /// Whether that number is exact.
    #[serde(default)]
    pub sizing: Sizing,
    /// What its offset is a multiple of, besides the space's own alignment.
    #[serde(default)]
    pub alignment: Alignment,
    /// When its bytes are needed: sorted, disjoint, none empty.
    pub live: Vec<LiveRange>,
    /// The spaces it may live in, sorted, at least one.
    pub spaces: Vec<SpaceId>,
    /// Where it must be.
    #[serde(default)]
    pub pin: Option<Location>,
    /// Where yesterday's plan had it.
    #[serde(default)]
    pub hint: Option<Location>,
    /// What it is for.
    #[serde(default)]
    pub kind: BufferKind,
    /// Who writes it first, where known: an operator or a statement.
    #[serde(default)]
    pub producer: Option<String>,
    /// Its accesses, by step; where there are none, every live step counts as a use.
    #[serde(default)]
    pub uses: Vec<Use>,
}

/// Steps during which a buffer, or only a byte window of it, is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveRange {
    /// When.
    pub steps: StepRange,
    /// Which bytes of the buffer; `None` means all of them.
    #[serde(default)]
    pub window: Option<ByteRange>,
}

/// An offset in a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Location {
    /// The space.
    pub space: SpaceId,
    /// The offset in it.
    pub offset: Offset,
}

/// One access to a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Use {
    /// When.
    pub step: Step,
    /// Read or written.
    pub access: Access,
    /// How many bytes move (more than the size when it is read several times).
    pub bytes: Bytes,
}

/// What a use does to the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// The bytes are read.
    Read,
    /// The bytes are written.
    Write,
}

/// How sure a buffer's size is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sizing {
    /// `size` is exact and known before the run: what a static plan can hold.
    #[default]
    Fixed,
    /// `size` is the most it can be; it depends on a ranged dimension.
    Ranged,
    /// Nothing bounds it before the run: `size` is zero and only a pool can serve it.
    Unbounded,
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BufferKind {
    /// Computed and used up within the run.
    #[default]
    Activation,
    /// A parameter from the file: live for the whole run.
    Weight,
    /// A constant that the file computes or carries.
    Constant,
    /// Given by the caller.
    Input,
    /// Given to the caller.
    Output,
    /// Scratch memory of one operator.
    Workspace,
}

/// What binds pairs of buffers. A pair is unordered unless its fields say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constraints {
    /// Buffers that are places in another one.
    #[serde(default)]
    pub colocated: Vec<Colocation>,
    /// Buffers that must share no byte, whenever they live.
    #[serde(default)]
    pub separated: Vec<Separation>,
    /// Pairs that are never live at the same moment, though their ranges overlap: they may share bytes.
    #[serde(default)]
    pub never_coexist: Vec<(BufferId, BufferId)>,
    /// Pairs whose sharing of a byte costs something.
    #[serde(default)]
    pub reuse_penalties: Vec<ReusePenalty>,
}

/// `offset(buffer) = offset(base) + delta`, in the same space: the two may share bytes at the same step.
///
/// ```text
///   base    [................................]
///   buffer  ....delta...[==========]             a concat's part, a slice
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Colocation {
    /// The one that is placed by the other.
    pub buffer: BufferId,
    /// The one that it is placed by.
    pub base: BufferId,
    /// Bytes from the start of `base` to the start of `buffer`.
    pub delta: Bytes,
}

/// Two buffers that must share no byte.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Separation {
    /// One of them.
    pub first: BufferId,
    /// The other.
    pub second: BufferId,
    /// Why, in the words of whoever asks for it.
    #[serde(default)]
    pub reasons: Vec<String>,
}

/// What it costs when two buffers share a byte (a wait between two engines, say).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReusePenalty {
    /// One of them.
    pub first: BufferId,
    /// The other.
    pub second: BufferId,
    /// The cost, counted once if their byte ranges overlap.
    pub cost: u64,
    /// Why, in the words of whoever asks for it.
    #[serde(default)]
    pub reason: String,
}

/// What a good plan is. A list of them is lexicographic: the next counts among plans that tie on the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The smallest peak of each space (where there is one space, of that one). Spaces in order.
    Peak,
    /// The smallest sum of the spaces' peaks.
    TotalPeak,
    /// The smallest largest peak.
    MaxPeak,
    /// The least bytes past the capacities; a plan that overflows is no plan, only an answer of how far off it is.
    Fit,
    /// The least total of reuse penalties.
    ReuseCost,
    /// The fewest bytes of buffers that left their hint.
    KeepHints,
    /// The least traffic to the slower spaces that a buffer may live in.
    Traffic,
}

impl Space {
    /// A space without a bound, alignment or reserved range.
    #[must_use]
    pub fn unbounded(name: impl Into<String>) -> Self {
        Space { name: name.into(), capacity: None, alignment: Alignment::ONE, reserved: Vec::new() }
    }
}

impl Buffer {
    /// A plain buffer: live in one range, in the given space.
    #[must_use]
    pub fn new(name: impl Into<String>, size: Bytes, steps: StepRange, space: SpaceId) -> Self {
        Buffer {
            name: name.into(),
            size,
            sizing: Sizing::Fixed,
            alignment: Alignment::ONE,
            live: vec![LiveRange { steps, window: None }],
            spaces: vec![space],
            pin: None,
            hint: None,
            kind: BufferKind::Activation,
            producer: None,
            uses: Vec::new(),
        }
    }

    /// From the first live step to the last, gaps included; `None` when it is never live.
    #[must_use]
    pub fn lifetime(&self) -> Option<StepRange> {
        let (first, last) = (self.live.first()?, self.live.last()?);
        Some(Interval { start: first.steps.start, end: last.steps.end })
    }

    /// The bytes of the buffer, within itself, that `range` keeps.
    #[must_use]
    pub fn window(&self, range: &LiveRange) -> ByteRange {
        range.window.unwrap_or(Interval { start: Offset::ZERO, end: Offset(self.size.0) })
    }
}

impl Problem {
    /// The space of that id.
    #[must_use]
    pub fn space(&self, id: SpaceId) -> &Space {
        &self.spaces[id.index()]
    }

    /// The buffer of that id.
    #[must_use]
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.index()]
    }

    /// Every buffer with its id.
    pub fn buffers(&self) -> impl Iterator<Item = (BufferId, &Buffer)> {
        self.buffers.iter().enumerate().map(|(index, buffer)| (BufferId::new(index), buffer))
    }

    /// Every space with its id.
    pub fn spaces(&self) -> impl Iterator<Item = (SpaceId, &Space)> {
        self.spaces.iter().enumerate().map(|(index, space)| (SpaceId::new(index), space))
    }

    /// The goals, [`Goal::Peak`] where none is stated.
    #[must_use]
    pub fn goals(&self) -> &[Goal] {
        if self.goals.is_empty() { &[Goal::Peak] } else { &self.goals }
    }
}

#[cfg(test)]
mod tests;
