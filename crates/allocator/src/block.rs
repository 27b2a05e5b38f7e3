//! What is asked for, what is handed out, and how a refusal reads.

use crate::statistics::Statistics;
use npumem_ir::{Alignment, Bytes, Offset};
use std::fmt;
use std::num::NonZeroU32;

/// Names one allocation: which entry of the allocator's table, and which of the blocks that lived there.
///
/// The generation rises each time an entry is handed out, so a handle that was freed is found out
/// by one comparison: there are no pointers to dangle and no table to search.
/// An entry whose generations are used up is never handed out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    /// The entry.
    pub index: u32,
    /// Which of its blocks.
    pub generation: NonZeroU32,
}

impl Handle {
    /// The handle as one number, for C and for files.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation.get() as u64) << 32 | self.index as u64
    }

    /// The handle of [`Self::to_bits`]; `None` when the number names no generation.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        match NonZeroU32::new((bits >> 32) as u32) {
            Some(generation) => Some(Self { index: bits as u32, generation }),
            None => None,
        }
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}.{}", self.index, self.generation)
    }
}

/// What a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// How many bytes; at least one.
    pub bytes: Bytes,
    /// The offset must be a multiple of this power of two.
    pub alignment: Alignment,
}

impl Request {
    /// So many bytes, at the allocator's own alignment.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self { bytes: Bytes(bytes), alignment: Alignment::ONE }
    }

    /// The same, aligned.
    #[must_use]
    pub const fn aligned(self, alignment: Alignment) -> Self {
        Self { alignment, ..self }
    }
}

impl Request {
    /// Refuses what no allocator over `limit` bytes can serve.
    pub(crate) fn check(&self, limit: Bytes) -> Result<(), AllocateError> {
        if self.bytes == Bytes::ZERO {
            Err(AllocateError::ZeroSize)
        } else if !self.alignment.get().is_power_of_two() || self.alignment.get() > ALIGNMENT_LIMIT {
            Err(AllocateError::BadAlignment { alignment: self.alignment, limit: Bytes(ALIGNMENT_LIMIT) })
        } else if self.bytes > limit {
            Err(AllocateError::TooLarge { requested: self.bytes, limit })
        } else {
            Ok(())
        }
    }
}

/// The coarsest alignment that anyone keeps: 1 TiB.
pub(crate) const ALIGNMENT_LIMIT: u64 = 1 << 40;

/// A block as it is handed out.
///
/// ```text
///   offset             offset + requested      offset + granted
///     |####### requested ######|.... padding ....|
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Gives it back.
    pub handle: Handle,
    /// Where it starts in its memory space.
    pub offset: Offset,
}

/// A live block in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Gives it back.
    pub handle: Handle,
    /// Where it starts in its memory space.
    pub offset: Offset,
    /// What was asked for.
    pub requested: Bytes,
    /// What it occupies: `requested` and padding.
    pub granted: Bytes,
}

/// Why an allocation was refused. The allocator is as it was before the call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// Nothing was asked for.
    #[error("an allocation of zero bytes; ask for at least one, or skip the call")]
    ZeroSize,
    /// More than the allocator could ever address.
    #[error("{requested} asked for, but this allocator addresses only {limit}")]
    TooLarge {
        /// What was asked for.
        requested: Bytes,
        /// The most that it addresses.
        limit: Bytes,
    },
    /// An alignment that it cannot keep.
    #[error("alignment {alignment} is not a power of two up to {limit}")]
    BadAlignment {
        /// What was asked for.
        alignment: Alignment,
        /// The coarsest that it keeps.
        limit: Bytes,
    },
    /// No room.
    #[error("{0}")]
    OutOfMemory(Shortage),
    /// The table of blocks is full.
    #[error("{limit} blocks are in use, the most that this allocator tracks; free some, or use a second allocator")]
    TooManyBlocks {
        /// The most entries.
        limit: u64,
    },
    /// The device refused to give memory to grow by.
    #[error("the device refused to map {bytes}: {reason}")]
    Device {
        /// What was asked of it.
        bytes: Bytes,
        /// Its own words.
        reason: String,
    },
}

/// The numbers of an out-of-memory: enough to tell "full" from "in pieces".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// What was asked for.
    pub requested: Bytes,
    /// With which alignment.
    pub alignment: Alignment,
    /// Bytes that callers hold.
    pub live: Bytes,
    /// Taken from the device and not in use.
    pub free: Bytes,
    /// The largest piece of it.
    pub largest_free: Bytes,
    /// Taken from the device.
    pub reserved: Bytes,
    /// The most that may be taken; `None` when only the device bounds it.
    pub limit: Option<Bytes>,
}

impl Shortage {
    /// The numbers of a request that found no room.
    pub(crate) fn of(request: Request, state: &Statistics, limit: Option<u64>) -> Self {
        Self {
            requested: request.bytes,
            alignment: request.alignment,
            live: state.live,
            free: state.free(),
            largest_free: state.largest_free,
            reserved: state.reserved,
            limit: limit.map(Bytes),
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "out of memory: {} asked for (alignment {}), {} free in all, largest piece {}, {} live of {} reserved",
            self.requested, self.alignment, self.free, self.largest_free, self.live, self.reserved
        )?;
        if let Some(limit) = self.limit {
            write!(f, ", limit {limit}")?;
        }
        if self.free >= self.requested {
            write!(f, "; the free bytes are in pieces: free neighbours, or plan the large buffers at fixed offsets")
        } else {
            write!(f, "; free at least {} or raise the limit", self.requested.saturating_sub(self.free.get()))
        }
    }
}

/// Why a handle was refused. The allocator is as it was before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// It was freed before.
    #[error(
        "{handle} was freed before: the entry is at generation {current}; this is a double free or a use after free"
    )]
    Stale {
        /// The handle that came.
        handle: Handle,
        /// The generation that its entry is at.
        current: u32,
    },
    /// It never came from this allocator.
    #[error("{handle} is not from this allocator: it hands out entries below {entries}")]
    Foreign {
        /// The handle that came.
        handle: Handle,
        /// How many entries the allocator has.
        entries: u64,
    },
}

/// What [`crate::Allocator::allocate`] gives: the error is boxed so that the answer stays in registers.
pub type Allocated = Result<Block, Box<AllocateError>>;
