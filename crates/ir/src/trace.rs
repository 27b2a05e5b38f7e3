//! The trace: what happened in memory, as a stream of events, recorded or simulated alike.
//!
//! ```text
//!   header   clock, origin, device, names of the spaces
//!   event    time  what                          stream  stack
//!            0     allocate  block 1  512 B       0       main.rs:10 < train.rs:4
//!            3     use       block 1  read        1
//!            5     free      block 1              0       main.rs:12
//! ```
//! An event goes into a [`TraceSink`] and comes out of a reader one at a time: nothing here holds a whole trace
//! unless the caller collects it. [`TraceWriter`] and [`TraceReader`] are the binary form:
//! versioned, about ten bytes an event, and readable up to the last flush after a crash at any instant.

use crate::ids::{EngineId, SpaceId};
use crate::units::{Bytes, Offset};
use serde::{Deserialize, Serialize};
use std::fmt;

mod decode;
mod encode;

pub use decode::{Ending, TraceError, TraceReader};
pub use encode::TraceWriter;

/// What the times of a trace count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// Cycles of the device's clock.
    Cycles,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
    /// The number of the event: an order, not a duration.
    #[default]
    Event,
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cycles => "cycles",
            Self::Microseconds => "microseconds",
            Self::Nanoseconds => "nanoseconds",
            Self::Event => "events",
        })
    }
}

/// What holds for a whole trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceHeader {
    /// What the times count.
    pub clock: Clock,
    /// Who recorded it: a tool and version, or the foreign file it was read from.
    pub origin: String,
    /// The device, where one is known.
    #[serde(default)]
    pub device: Option<String>,
    /// The names of the memory spaces, by [`SpaceId`].
    pub spaces: Vec<String>,
}

/// Names one allocation for the length of a trace. Numbers are not used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BlockId(pub u64);

/// A name that a trace defined: see [`TraceSink::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NameId(pub u32);

/// A call stack that a trace defined: see [`TraceSink::stack`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StackId(pub u32);

/// A queue of work whose parts run in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamId(pub u32);

/// One frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// The function.
    pub function: String,
    /// The source file; empty when not known.
    #[serde(default)]
    pub file: String,
    /// The line; zero when not known.
    #[serde(default)]
    pub line: u32,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceEvent {
    /// When, on the header's clock. Times never fall.
    pub time: u64,
    /// On which stream.
    #[serde(default)]
    pub stream: StreamId,
    /// From where it was called.
    #[serde(default)]
    pub stack: Option<StackId>,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum What {
    /// A block was handed out.
    Allocate {
        /// The block.
        block: BlockId,
        /// Where it lives.
        space: SpaceId,
        /// Its offset in the space, or its address where that is what is known.
        offset: Offset,
        /// The bytes asked for.
        requested: Bytes,
        /// The bytes it occupies.
        granted: Bytes,
    },
    /// Its owner gave it back.
    Free {
        /// The block.
        block: BlockId,
    },
    /// Its memory may be used again: all streams are done with it.
    Freed {
        /// The block.
        block: BlockId,
    },
    /// Something read or wrote it.
    Use {
        /// The block.
        block: BlockId,
        /// Whether it was written.
        write: bool,
    },
    /// Bytes were copied between two blocks.
    Copy {
        /// From.
        from: BlockId,
        /// To.
        to: BlockId,
        /// How many.
        bytes: Bytes,
        /// The engine that copied.
        engine: EngineId,
        /// When it was done.
        end: u64,
    },
    /// An engine ran something.
    Run {
        /// What.
        name: NameId,
        /// Which engine.
        engine: EngineId,
        /// When it was done.
        end: u64,
    },
    /// Memory was taken from the device.
    SegmentTaken {
        /// In which space.
        space: SpaceId,
        /// From where on.
        offset: Offset,
        /// How much.
        bytes: Bytes,
    },
    /// Memory was given back to the device.
    SegmentReturned {
        /// In which space.
        space: SpaceId,
        /// From where on.
        offset: Offset,
        /// How much.
        bytes: Bytes,
    },
    /// An allocation failed.
    OutOfMemory {
        /// In which space.
        space: SpaceId,
        /// The bytes asked for.
        requested: Bytes,
        /// The bytes that were free on the device.
        free: Bytes,
    },
    /// The user's mark: a step or a phase begins.
    Mark {
        /// Its name.
        name: NameId,
    },
}

/// Takes the events of a trace as they happen.
pub trait TraceSink {
    /// The id of a name; the same name gives the same id.
    fn name(&mut self, name: &str) -> NameId;
    /// The id of a stack, innermost frame first; the same frames give the same id.
    fn stack(&mut self, frames: &[Frame]) -> StackId;
    /// Takes one event.
    fn event(&mut self, event: TraceEvent);
}

/// A trace in memory, for tests and for what is small.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What holds for all of it.
    pub header: TraceHeader,
    /// By [`NameId`].
    pub names: Vec<String>,
    /// By [`StackId`], innermost frame first.
    pub stacks: Vec<Vec<Frame>>,
    /// In order.
    pub events: Vec<TraceEvent>,
}

impl TraceSink for Trace {
    fn name(&mut self, name: &str) -> NameId {
        let found = self.names.iter().position(|known| known == name);
        NameId(found.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        }) as u32)
    }

    fn stack(&mut self, frames: &[Frame]) -> StackId {
        let found = self.stacks.iter().position(|known| known == frames);
        StackId(found.unwrap_or_else(|| {
            self.stacks.push(frames.to_vec());
            self.stacks.len() - 1
        }) as u32)
    }

    fn event(&mut self, event: TraceEvent) {
        self.events.push(event);
    }
}

impl Trace {
    /// Reads a whole binary trace. What was recorded before a crash is there; [`Ending`] says whether something is missing.
    ///
    /// # Errors
    /// When the input is no trace, or a record in a whole chunk is wrong.
    pub fn read(input: impl std::io::Read) -> Result<(Self, Ending), TraceError> {
        let mut reader = TraceReader::new(input)?;
        let mut events = Vec::new();
        while let Some(event) = reader.next_event()? {
            events.push(event);
        }
        let (names, stacks) = reader.definitions();
        let trace = Self { header: reader.header().clone(), names: names.to_vec(), stacks: stacks.to_vec(), events };
        Ok((trace, reader.ending()))
    }

    /// Writes the binary form.
    ///
    /// # Errors
    /// What the output says.
    pub fn write(&self, output: impl std::io::Write) -> std::io::Result<()> {
        let mut writer = TraceWriter::new(output, &self.header)?;
        for name in &self.names {
            writer.name(name);
        }
        for stack in &self.stacks {
            writer.stack(stack);
        }
        for event in &self.events {
            writer.event(*event);
        }
        writer.finish()
    }
}

/// The start of a binary trace.
pub const MAGIC: [u8; 8] = *b"npumtrc\n";
/// The version of the form that is written; readers take this one.
pub const VERSION: u16 = 1;

/// Reflected CRC-32 (IEEE 802.3), as in gzip.
fn checksum(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |sum, byte| sum >> 8 ^ TABLE[((sum ^ u32::from(*byte)) & 255) as usize])
}

#[cfg(test)]
mod tests;
