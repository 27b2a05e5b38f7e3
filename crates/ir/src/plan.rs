//! The plan: where every buffer lives, when, and how it moves; with its bound, its effort and its origin.
//!
//! ```text
//!   HBM  |#### weights ####|== x ==|          residency of x in HBM
//!                             | move over link hbm->ub, steps [4, 6)
//!   UB                |== x ==|               residency of x in UB from the move's first step
//!   step  0        4      6      9
//! ```
//! Most plans hold one residency per buffer and no moves.

use crate::ids::{BufferId, LinkId, SpaceId};
use crate::interval::{ByteRange, StepRange};
use crate::problem::{Goal, Location};
use crate::units::{Bytes, Offset};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where every buffer of a problem lives and how it moves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The name of the problem it answers.
    pub problem: String,
    /// The device it was made for, where one was given.
    #[serde(default)]
    pub device: Option<String>,
    /// Who lives where, when; sorted by buffer, then by start.
    pub residencies: Vec<Residency>,
    /// Copies from one residency of a buffer to another; sorted by start.
    #[serde(default)]
    pub moves: Vec<Move>,
    /// Buffers that the plan leaves to a run-time pool, sorted.
    #[serde(default)]
    pub pooled: Vec<BufferId>,
    /// What each space comes to, in the order of the problem's spaces.
    pub spaces: Vec<SpaceUse>,
    /// How the plan was made.
    pub origin: Origin,
}

/// A buffer's bytes at one place for some steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Residency {
    /// The buffer.
    pub buffer: BufferId,
    /// The space that holds it.
    pub space: SpaceId,
    /// Where in that space.
    pub offset: Offset,
    /// For how long: the place is the buffer's own in all its live steps within.
    pub steps: StepRange,
}

/// A copy of a whole buffer from one of its residencies to another.
///
/// The source residency covers all steps of the move, the destination residency too;
/// the destination holds valid bytes from `steps.end` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// When the copy runs.
    pub steps: StepRange,
    /// The buffer.
    pub buffer: BufferId,
    /// From where.
    pub from: Location,
    /// To where.
    pub to: Location,
    /// The device's link that carries it, where a device was given.
    #[serde(default)]
    pub link: Option<LinkId>,
}

/// What a plan needs of one space, and the least that any plan needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpaceUse {
    /// The space's name.
    pub space: String,
    /// The highest end of any residency in it: the memory that must be there.
    pub peak: Bytes,
    /// No plan of the same problem that has the same buffers in this space needs less; where no buffer has a choice, no plan.
    pub lower_bound: Bytes,
    /// Why that is a bound, in words: "largest live load at step 12".
    pub bound_reason: String,
    /// The end of the usable offsets; `None` when nothing bounds it.
    pub capacity: Option<Bytes>,
}

/// How a plan was made: enough to make it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// The tool and its version, or the foreign file a plan was read from.
    pub tool: String,
    /// The goals it was made for, most important first.
    #[serde(default)]
    pub goals: Vec<Goal>,
    /// Why the search stopped.
    #[serde(default)]
    pub stop: Stop,
    /// The method whose answer this is.
    #[serde(default)]
    pub method: String,
    /// The seed of everything random.
    #[serde(default)]
    pub seed: u64,
    /// The options that differ from their defaults.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// Counted work by method.
    #[serde(default)]
    pub work: BTreeMap<String, u64>,
    /// A digest of the problem ([`crate::Problem::digest`]).
    #[serde(default)]
    pub digest: String,
}

/// Why a search stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// The answer equals its bound, or every other was ruled out.
    Optimal,
    /// The goal asked only for a plan that fits, and this one does.
    Satisfied,
    /// Every method that the effort allows has ended.
    #[default]
    Exhausted,
    /// The budget of counted work was spent.
    Budget,
    /// Someone asked it to stop: the best so far.
    Interrupted,
    /// It was proven that no plan keeps the capacities.
    Infeasible,
}

impl SpaceUse {
    /// `peak / lower bound - 1`; zero when both are zero.
    #[must_use]
    pub fn gap(&self) -> f64 {
        if self.lower_bound.0 == 0 {
            if self.peak.0 == 0 { 0.0 } else { f64::INFINITY }
        } else {
            self.peak.0 as f64 / self.lower_bound.0 as f64 - 1.0
        }
    }

    /// Whether the peak lies within the capacity.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.capacity.is_none_or(|capacity| self.peak <= capacity)
    }
}

impl Residency {
    /// Its bytes in its space, given the buffer's size; `None` past 64 bits.
    #[must_use]
    pub fn bytes(&self, size: Bytes) -> Option<ByteRange> {
        ByteRange::at(self.offset, size)
    }

    /// Its place.
    #[must_use]
    pub fn location(&self) -> Location {
        Location { space: self.space, offset: self.offset }
    }
}

impl Plan {
    /// The residencies of one buffer, by start. `O(log n)`, for a plan that is sorted as it says.
    #[must_use]
    pub fn residencies_of(&self, buffer: BufferId) -> &[Residency] {
        let start = self.residencies.partition_point(|residency| residency.buffer < buffer);
        let end = self.residencies.partition_point(|residency| residency.buffer <= buffer);
        &self.residencies[start..end]
    }

    /// Whether every space's peak lies within its capacity.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.spaces.iter().all(SpaceUse::fits)
    }
}
