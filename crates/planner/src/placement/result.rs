//! What a placement answers, and what it refuses.

use npumem_ir::{BufferId, Bytes, Plan, SpaceId, Step};
use std::fmt;

/// The answer of [`super::place`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The best plan found. Where a capacity is not met it is the plan that comes closest.
    pub plan: Plan,
    /// Whether every space keeps its capacity.
    pub verdict: Verdict,
    /// Per space, in the order of the problem's spaces.
    pub spaces: Vec<SpaceAnswer>,
    /// Total of the reuse penalties that the plan pays.
    pub reuse_cost: u64,
    /// No plan within the capacities that does as well by the goals before it pays less.
    pub reuse_cost_bound: u64,
    /// Bytes of buffers that left their hint.
    pub moved: Bytes,
    /// Traffic to slower spaces, where buffers had a choice: the plan's and a lower bound of it.
    pub traffic: Option<Traffic>,
}

/// Bytes that accesses move to and from slower spaces than the fastest each buffer may live in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// By the plan.
    pub bytes: Bytes,
    /// No plan that keeps the capacities and does as well by the goals before it has less.
    pub bound: Bytes,
}

/// What a space came to, besides what the plan itself says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceAnswer {
    /// The peak is the smallest possible.
    pub proven: bool,
    /// The method that found the offsets.
    pub method: String,
    /// Largest number of bytes live at a step.
    pub largest_load: Bytes,
}

/// Whether the capacities are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every space's peak is within its capacity.
    Fits,
    /// No plan keeps the capacity; why.
    Infeasible(Conflict),
    /// No plan was found that keeps the capacity and none was ruled out.
    Undecided,
}

/// Buffers that cannot all be placed; without any one of them the rest can, where `irreducible`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The space.
    pub space: SpaceId,
    /// The buffers, sorted.
    pub buffers: Vec<BufferId>,
    /// Steps at which they are live together, sorted; empty when time plays no part.
    pub steps: Vec<Step>,
    /// What they need at least, where one number says it.
    pub needed: Option<Bytes>,
    /// What there is.
    pub capacity: Option<Bytes>,
    /// No buffer of the list can be left out.
    pub irreducible: bool,
    /// Why they clash.
    pub cause: Cause,
}

/// Why buffers cannot all be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// More bytes are live at a step than there are.
    Load,
    /// The bytes would do, but no arrangement of the buffers fits.
    Arrangement,
    /// One buffer alone is larger than the room for it.
    TooLarge,
    /// Pinned offsets overlap each other or a reserved range, or leave no room.
    Pins,
    /// Colocations or pins give one buffer two different offsets.
    Colocation,
    /// No offset satisfies the alignments of buffers that move together.
    Alignment,
    /// Buffers must be kept apart and also share bytes.
    Separation,
    /// Buffers that must be in one space may not all live in the same one.
    Spaces,
    /// Whichever spaces the buffers get of those that they may live in, one of the spaces does not hold them.
    Choices,
}

/// A problem that cannot be read as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementError {
    /// An id is outside its list.
    UnknownBuffer {
        /// Where it stands.
        place: &'static str,
        /// The id.
        buffer: BufferId,
        /// Number of buffers.
        count: usize,
    },
    /// A buffer names a space that does not exist.
    UnknownSpace {
        /// The buffer.
        buffer: BufferId,
        /// Its name.
        name: String,
        /// The id.
        space: SpaceId,
        /// Number of spaces.
        count: usize,
    },
    /// A buffer may live nowhere.
    NoSpace {
        /// The buffer.
        buffer: BufferId,
        /// Its name.
        name: String,
    },
    /// A live range is empty, or its window reaches past the buffer.
    BadRange {
        /// The buffer.
        buffer: BufferId,
        /// Its name.
        name: String,
        /// Position of the live range.
        index: usize,
    },
    /// Sizes, alignments, pinned offsets and distances add up to more than the arithmetic holds.
    TooLarge {
        /// The buffer at which the sum breaks.
        buffer: BufferId,
        /// Its name.
        name: String,
        /// Its size.
        size: Bytes,
        /// Its alignment, together with the space's.
        alignment: u64,
    },
    /// A reserved range of a space ends beyond what the arithmetic holds.
    ReservedTooHigh {
        /// The space.
        space: SpaceId,
        /// Its name.
        name: String,
    },
    /// The constraints contradict each other, whatever the capacities.
    Contradiction(Conflict),
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlacementError::UnknownBuffer { place, buffer, count } => {
                write!(
                    f,
                    "{place} names buffer {buffer}, but there are {count} buffers (0 to {})",
                    count.saturating_sub(1)
                )
            }
            PlacementError::UnknownSpace { name, space, count, .. } => {
                write!(f, "buffer {name} names space {space}, but there are {count} spaces")
            }
            PlacementError::NoSpace { name, .. } => {
                write!(f, "buffer {name} may live in no space: list at least one space for it")
            }
            PlacementError::BadRange { name, index, .. } => {
                write!(f, "live range {index} of buffer {name} is empty, or its byte window reaches past the buffer")
            }
            PlacementError::TooLarge { name, size, alignment, .. } => write!(
                f,
                "buffer {name} (size {size}, alignment {alignment}): sizes, alignments and pinned offsets up to it add up to \
                 2^59 bytes or more, which no placement can hold; state smaller ones"
            ),
            PlacementError::ReservedTooHigh { name, .. } => {
                write!(f, "a reserved range of space {name} ends at 2^59 bytes or beyond; state a lower one")
            }
            PlacementError::Contradiction(conflict) => write!(f, "{conflict}"),
        }
    }
}

impl std::error::Error for PlacementError {}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.cause {
            Cause::Load => "more bytes are live at once than there are",
            Cause::Arrangement => "the bytes would do, but no arrangement of these buffers fits",
            Cause::TooLarge => "the buffer alone does not fit",
            Cause::Pins => "pinned offsets clash, or leave no room",
            Cause::Colocation => "colocations and pins give a buffer two different offsets",
            Cause::Alignment => "no offset satisfies the alignments of buffers that move together",
            Cause::Separation => "buffers that must be kept apart are made to share bytes",
            Cause::Spaces => "buffers that must share a space may not live in the same one",
            Cause::Choices => "no choice of spaces holds these buffers",
        };
        write!(f, "{what} (space {}): ", self.space)?;
        let shown = 8.min(self.buffers.len());
        write!(f, "{} ", if self.buffers.len() == 1 { "buffer" } else { "buffers" })?;
        for (k, b) in self.buffers.iter().take(shown).enumerate() {
            write!(f, "{}{b}", if k == 0 { "" } else { ", " })?;
        }
        if shown < self.buffers.len() {
            write!(f, " and {} more", self.buffers.len() - shown)?;
        }
        match self.steps.as_slice() {
            [] => {}
            [one] => write!(f, " at step {one}")?,
            [first, .., last] => write!(f, " at {} steps from {first} to {last}", self.steps.len())?,
        }
        if let Some(needed) = self.needed {
            write!(f, "; needs {needed}")?;
        }
        if let Some(capacity) = self.capacity {
            write!(f, "; capacity {capacity}")?;
        }
        Ok(())
    }
}
