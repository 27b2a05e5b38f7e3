//! What can be wrong with a plan, each with its buffers, bytes and steps.

use npumem_ir::units::grouped;
use npumem_ir::{Alignment, BufferId, ByteRange, Bytes, Offset, StepRange};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A buffer by id and name: names need not be unique, ids mean little to a reader.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BufferName {
    /// Its position in the problem.
    pub id: BufferId,
    /// Its name there.
    pub name: String,
}

impl fmt::Display for BufferName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' ({})", self.name, self.id)
    }
}

/// One thing that is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Violation {
    /// Two buffers share bytes while both are live, and nothing in the problem allows it.
    Overlap {
        /// The one at the lower offset.
        first: BufferName,
        /// The other; the same buffer when two of its own copies share bytes.
        second: BufferName,
        /// Where.
        space: String,
        /// The shared bytes.
        bytes: ByteRange,
        /// The steps in which both are live.
        steps: StepRange,
    },
    /// Two buffers that must be kept apart share bytes.
    SeparationBroken {
        /// One.
        first: BufferName,
        /// The other.
        second: BufferName,
        /// Where.
        space: String,
        /// The shared bytes.
        bytes: ByteRange,
        /// Why they must be kept apart.
        reasons: Vec<String>,
    },
    /// A buffer is not where its base and delta put it.
    ColocationBroken {
        /// The buffer.
        buffer: BufferName,
        /// What it is a place in.
        base: BufferName,
        /// How far from the base's start it belongs.
        delta: Bytes,
        /// Where it is: space and offset; `None` when it is not placed.
        found: Option<(String, Offset)>,
        /// Where its base is.
        base_found: Option<(String, Offset)>,
    },
    /// A buffer reaches past the end of its space.
    OutsideCapacity {
        /// The buffer.
        buffer: BufferName,
        /// Where.
        space: String,
        /// Its bytes.
        bytes: ByteRange,
        /// The end of the space.
        capacity: Bytes,
    },
    /// A buffer's end is past 64 bits.
    PastAddressSpace {
        /// The buffer.
        buffer: BufferName,
        /// Where.
        space: String,
        /// Its offset.
        offset: Offset,
        /// Its size.
        size: Bytes,
    },
    /// A buffer touches bytes that the space keeps for itself.
    Reserved {
        /// The buffer.
        buffer: BufferName,
        /// Where.
        space: String,
        /// Its bytes.
        bytes: ByteRange,
        /// The reserved bytes.
        reserved: ByteRange,
    },
    /// An offset is no multiple of what it must be a multiple of.
    Misaligned {
        /// The buffer.
        buffer: BufferName,
        /// Where.
        space: String,
        /// Its offset.
        offset: Offset,
        /// The alignment asked for.
        alignment: Alignment,
        /// Whether the space asks for it rather than the buffer.
        by_space: bool,
    },
    /// A buffer lives in a space that it may not live in.
    WrongSpace {
        /// The buffer.
        buffer: BufferName,
        /// Where it is.
        space: String,
        /// Where it may be.
        allowed: Vec<String>,
    },
    /// A pinned buffer is elsewhere.
    PinMoved {
        /// The buffer.
        buffer: BufferName,
        /// Where it must be.
        pin: (String, Offset),
        /// Where it is.
        found: (String, Offset),
    },
    /// A buffer is live, or used, in steps in which no place holds its current bytes.
    NoValidCopy {
        /// The buffer.
        buffer: BufferName,
        /// The steps.
        steps: StepRange,
    },
    /// Two places claim a buffer's bytes and no move brought them there.
    CopyWithoutMove {
        /// The buffer.
        buffer: BufferName,
        /// The place that appears without a move.
        place: (String, Offset),
        /// Its steps.
        steps: StepRange,
        /// The place that holds the bytes.
        other: (String, Offset),
    },
    /// A buffer is written while two places hold it, so that one of them turns stale.
    WrittenTwice {
        /// The buffer.
        buffer: BufferName,
        /// When.
        steps: StepRange,
        /// One place.
        first: (String, Offset),
        /// The other.
        second: (String, Offset),
    },
    /// A move starts from, or goes to, a place where the buffer does not live for all of the move's steps.
    MoveOffPlace {
        /// The buffer.
        buffer: BufferName,
        /// The steps of the move.
        steps: StepRange,
        /// The place.
        place: (String, Offset),
        /// Whether it is the source.
        source: bool,
    },
    /// A move copies bytes that are not valid when it runs.
    MoveOfStale {
        /// The buffer.
        buffer: BufferName,
        /// The steps of the move.
        steps: StepRange,
        /// Its source.
        place: (String, Offset),
    },
    /// No link of the device carries a move.
    NoLink {
        /// The buffer.
        buffer: BufferName,
        /// The steps of the move.
        steps: StepRange,
        /// From which space.
        from: String,
        /// To which.
        to: String,
        /// The device.
        device: String,
        /// The link that the plan names, where it names one that leads elsewhere.
        named: Option<String>,
    },
    /// A buffer is left to the pool and placed as well.
    PooledAndPlaced {
        /// The buffer.
        buffer: BufferName,
    },
    /// The plan names a buffer or space that the problem does not have, or lists them out of order.
    Malformed {
        /// What is wrong, as a sentence.
        what: String,
    },
    /// The peak that the plan states is not the one that its places come to.
    WrongPeak {
        /// Where.
        space: String,
        /// What the plan says.
        stated: Bytes,
        /// The highest end of any place in it.
        actual: Bytes,
    },
    /// The lower bound that the plan states is above its own peak.
    FalseBound {
        /// Where.
        space: String,
        /// The stated bound.
        lower_bound: Bytes,
        /// The peak.
        peak: Bytes,
    },
}

impl Violation {
    /// The kind in a word, as in the JSON.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Violation::Overlap { .. } => "overlap",
            Violation::SeparationBroken { .. } => "separation-broken",
            Violation::ColocationBroken { .. } => "colocation-broken",
            Violation::OutsideCapacity { .. } => "outside-capacity",
            Violation::PastAddressSpace { .. } => "past-address-space",
            Violation::Reserved { .. } => "reserved",
            Violation::Misaligned { .. } => "misaligned",
            Violation::WrongSpace { .. } => "wrong-space",
            Violation::PinMoved { .. } => "pin-moved",
            Violation::NoValidCopy { .. } => "no-valid-copy",
            Violation::CopyWithoutMove { .. } => "copy-without-move",
            Violation::WrittenTwice { .. } => "written-twice",
            Violation::MoveOffPlace { .. } => "move-off-place",
            Violation::MoveOfStale { .. } => "move-of-stale",
            Violation::NoLink { .. } => "no-link",
            Violation::PooledAndPlaced { .. } => "pooled-and-placed",
            Violation::Malformed { .. } => "malformed",
            Violation::WrongPeak { .. } => "wrong-peak",
            Violation::FalseBound { .. } => "false-bound",
        }
    }
}

fn place((space, offset): &(String, Offset)) -> String {
    format!("{space}+{offset}")
}

fn place_or_none(found: Option<&(String, Offset)>) -> String {
    found.map_or_else(|| "nowhere".to_owned(), place)
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Overlap { first, second, space, bytes, steps } => {
                let size = grouped(bytes.size().0);
                write!(
                    f,
                    "{first} and {second} share {size} bytes {bytes} of {space} while both are live in steps {steps}"
                )
            }
            Violation::SeparationBroken { first, second, space, bytes, reasons } => {
                let size = grouped(bytes.size().0);
                write!(f, "{first} and {second} must be kept apart and share {size} bytes {bytes} of {space}")?;
                if reasons.is_empty() { Ok(()) } else { write!(f, " ({})", reasons.join(", ")) }
            }
            Violation::ColocationBroken { buffer, base, delta, found, base_found } => write!(
                f,
                "{buffer} belongs {} bytes into {base}, but it is at {} and its base at {}",
                grouped(delta.0),
                place_or_none(found.as_ref()),
                place_or_none(base_found.as_ref()),
            ),
            Violation::OutsideCapacity { buffer, space, bytes, capacity } => write!(
                f,
                "{buffer} at {bytes} ends {} bytes past the end of {space}, which has {capacity}",
                grouped(bytes.end.0.saturating_sub(capacity.0)),
            ),
            Violation::PastAddressSpace { buffer, space, offset, size } => {
                write!(f, "{buffer} at {space}+{offset} with {size} ends past 64 bits")
            }
            Violation::Reserved { buffer, space, bytes, reserved } => {
                write!(f, "{buffer} at {bytes} touches the reserved bytes {reserved} of {space}")
            }
            Violation::Misaligned { buffer, space, offset, alignment, by_space } => write!(
                f,
                "{buffer} at {space}+{offset} is {} bytes past a multiple of {alignment}, which {} asks for",
                offset.0 % alignment.get(),
                if *by_space { "the space" } else { "the buffer" },
            ),
            Violation::WrongSpace { buffer, space, allowed } => {
                write!(f, "{buffer} is in {space}, and may be in {} only", allowed.join(", "))
            }
            Violation::PinMoved { buffer, pin, found } => {
                write!(f, "{buffer} is pinned to {} and placed at {}", place(pin), place(found))
            }
            Violation::NoValidCopy { buffer, steps } => {
                write!(f, "{buffer} is needed in steps {steps}, where no place holds its bytes")
            }
            Violation::CopyWithoutMove { buffer, place: at, steps, other } => write!(
                f,
                "{buffer} is at {} in steps {steps} while its bytes are at {}, and no move brings them over",
                place(at),
                place(other),
            ),
            Violation::WrittenTwice { buffer, steps, first, second } => write!(
                f,
                "{buffer} is written in steps {steps} while both {} and {} hold it: one of them turns stale",
                place(first),
                place(second),
            ),
            Violation::MoveOffPlace { buffer, steps, place: at, source } => write!(
                f,
                "the move of {buffer} in steps {steps} {} {}, where it does not live for all of these steps",
                if *source { "starts from" } else { "goes to" },
                place(at),
            ),
            Violation::MoveOfStale { buffer, steps, place: at } => {
                write!(
                    f,
                    "the move of {buffer} in steps {steps} copies from {}, which does not hold its bytes then",
                    place(at)
                )
            }
            Violation::NoLink { buffer, steps, from, to, device, named: Some(link) } => {
                write!(
                    f,
                    "the move of {buffer} in steps {steps} from {from} to {to} names the link {link} of {device}, which leads elsewhere"
                )
            }
            Violation::NoLink { buffer, steps, from, to, device, named: None } => {
                write!(f, "the move of {buffer} in steps {steps}: {device} has no link from {from} to {to}")
            }
            Violation::PooledAndPlaced { buffer } => write!(f, "{buffer} is left to the pool and placed as well"),
            Violation::Malformed { what } => f.write_str(what),
            Violation::WrongPeak { space, stated, actual } => {
                write!(f, "the plan states a peak of {stated} for {space}; its places come to {actual}")
            }
            Violation::FalseBound { space, lower_bound, peak } => {
                write!(f, "the plan states a lower bound of {lower_bound} for {space} and itself needs {peak}")
            }
        }
    }
}
