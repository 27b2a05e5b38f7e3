//! Writes the binary form.
//!
//! ```text
//!   magic | version u16 | chunk | chunk | ...
//!   chunk = length u32 | checksum u32 | records
//!   record = tag u8 | fields, each a variable-length number (7 bits a byte, lowest first)
//! ```
//! All fixed numbers are little-endian. The first chunk holds the header as JSON. Times and block numbers are
//! written as differences, which start anew with each chunk: a chunk reads alone, given the definitions before it.
//! A chunk reaches the output in one write, so a crash leaves at most one broken chunk, at the end.

use super::{Frame, MAGIC, NameId, StackId, TraceEvent, TraceHeader, TraceSink, VERSION, What, checksum};
use std::collections::HashMap;
use std::io::{self, Write};

/// A chunk is written when it has this many bytes.
const CHUNK: usize = 64 << 10;

/// The tags of the records. A number never changes its meaning.
pub(super) mod tag {
    pub const ALLOCATE: u8 = 1;
    pub const FREE: u8 = 2;
    pub const FREED: u8 = 3;
    pub const READ: u8 = 4;
    pub const WRITE: u8 = 5;
    pub const COPY: u8 = 6;
    pub const RUN: u8 = 7;
    pub const SEGMENT_TAKEN: u8 = 8;
    pub const SEGMENT_RETURNED: u8 = 9;
    pub const OUT_OF_MEMORY: u8 = 10;
    pub const MARK: u8 = 11;
    pub const NAME: u8 = 32;
    pub const STACK: u8 = 33;
    pub const HEADER: u8 = 34;
    /// The stream of the following events.
    pub const STREAM: u8 = 35;
    /// With this bit an event carries a stack.
    pub const HAS_STACK: u8 = 64;
}

/// Writes a trace. An error of the output is kept and given by the next [`Self::flush`] or [`Self::finish`];
/// events after it are dropped.
pub struct TraceWriter<W: Write> {
    output: W,
    chunk: Vec<u8>,
    names: HashMap<String, u32>,
    stacks: HashMap<Vec<Frame>, u32>,
    time: u64,
    /// The time of the last event, whatever the chunk.
    latest: u64,
    block: u64,
    stream: u32,
    error: Option<io::Error>,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the header at once, so that even an empty trace opens.
    ///
    /// # Errors
    /// What the output says.
    pub fn new(mut output: W, header: &TraceHeader) -> io::Result<Self> {
        let mut start = MAGIC.to_vec();
        start.extend_from_slice(&VERSION.to_le_bytes());
        output.write_all(&start)?;
        let mut writer = Self {
            output,
            chunk: Vec::with_capacity(CHUNK + 256),
            names: HashMap::new(),
            stacks: HashMap::new(),
            time: 0,
            latest: 0,
            block: 0,
            stream: 0,
            error: None,
        };
        let json = serde_json::to_vec(header).map_err(io::Error::other)?;
        writer.chunk.push(tag::HEADER);
        writer.bytes(&json);
        writer.flush()?;
        Ok(writer)
    }

    /// Hands everything so far to the output. What was flushed survives a crash of the process.
    ///
    /// # Errors
    /// What the output said, now or earlier.
    pub fn flush(&mut self) -> io::Result<()> {
        self.end_chunk();
        match self.error.take() {
            Some(error) => Err(error),
            None => self.output.flush(),
        }
    }

    /// Flushes for the last time.
    ///
    /// # Errors
    /// What the output said.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()
    }

    fn end_chunk(&mut self) {
        if self.chunk.is_empty() {
            return;
        }
        let mut head = [0; 8];
        head[..4].copy_from_slice(&(self.chunk.len() as u32).to_le_bytes());
        head[4..].copy_from_slice(&checksum(&self.chunk).to_le_bytes());
        if self.error.is_none() {
            let mut whole = Vec::with_capacity(8 + self.chunk.len());
            whole.extend_from_slice(&head);
            whole.extend_from_slice(&self.chunk);
            self.error = self.output.write_all(&whole).err();
        }
        self.chunk.clear();
        (self.time, self.block, self.stream) = (0, 0, 0);
    }

    #[inline]
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.chunk.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.chunk.push(number as u8);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.chunk.extend_from_slice(bytes);
    }

    /// The difference to the last block, small either way.
    #[inline]
    fn block(&mut self, block: super::BlockId) {
        let difference = block.0.wrapping_sub(self.block) as i64;
        self.number((difference << 1 ^ difference >> 63) as u64);
        self.block = block.0;
    }
}

impl<W: Write> TraceSink for TraceWriter<W> {
    fn name(&mut self, name: &str) -> NameId {
        if let Some(id) = self.names.get(name) {
            return NameId(*id);
        }
        let id = self.names.len() as u32;
        self.names.insert(name.to_owned(), id);
        self.chunk.push(tag::NAME);
        self.bytes(name.as_bytes());
        NameId(id)
    }

    fn stack(&mut self, frames: &[Frame]) -> StackId {
        if let Some(id) = self.stacks.get(frames) {
            return StackId(*id);
        }
        let id = self.stacks.len() as u32;
        self.stacks.insert(frames.to_vec(), id);
        self.chunk.push(tag::STACK);
        self.number(frames.len() as u64);
        for frame in frames {
            self.bytes(frame.function.as_bytes());
            self.bytes(frame.file.as_bytes());
            self.number(frame.line.into());
        }
        StackId(id)
    }

    #[inline]
    fn event(&mut self, event: TraceEvent) {
        if self.chunk.len() >= CHUNK {
            self.end_chunk();
        }
        if event.stream.0 != self.stream {
            self.chunk.push(tag::STREAM);
            self.number(event.stream.0.into());
            self.stream = event.stream.0;
        }
        let mark = if event.stack.is_some() { tag::HAS_STACK } else { 0 };
        let tag = match event.what {
            What::Allocate { .. } => tag::ALLOCATE,
            What::Free { .. } => tag::FREE,
            What::Freed { .. } => tag::FREED,
            What::Use { write: false, .. } => tag::READ,
            What::Use { write: true, .. } => tag::WRITE,
            What::Copy { .. } => tag::COPY,
            What::Run { .. } => tag::RUN,
            What::SegmentTaken { .. } => tag::SEGMENT_TAKEN,
            What::SegmentReturned { .. } => tag::SEGMENT_RETURNED,
            What::OutOfMemory { .. } => tag::OUT_OF_MEMORY,
            What::Mark { .. } => tag::MARK,
        };
        self.chunk.push(tag | mark);
        // A clock that steps back is held: times never fall.
        let time = event.time.max(self.latest);
        self.number(time - self.time);
        (self.time, self.latest) = (time, time);
        if let Some(stack) = event.stack {
            self.number(stack.0.into());
        }
        match event.what {
            What::Allocate { block, space, offset, requested, granted } => {
                self.block(block);
                self.number(space.0.into());
                self.number(offset.0);
                self.number(requested.0);
                self.number(granted.0.saturating_sub(requested.0));
            }
            What::Free { block } | What::Freed { block } | What::Use { block, .. } => self.block(block),
            What::Copy { from, to, bytes, engine, end } => {
                self.block(from);
                self.block(to);
                self.number(bytes.0);
                self.number(engine.0.into());
                self.number(end.saturating_sub(time));
            }
            What::Run { name, engine, end } => {
                self.number(name.0.into());
                self.number(engine.0.into());
                self.number(end.saturating_sub(time));
            }
            What::SegmentTaken { space, offset, bytes } | What::SegmentReturned { space, offset, bytes } => {
                self.number(space.0.into());
                self.number(offset.0);
                self.number(bytes.0);
            }
            What::OutOfMemory { space, requested, free } => {
                self.number(space.0.into());
                self.number(requested.0);
                self.number(free.0);
            }
            What::Mark { name } => self.number(name.0.into()),
        }
    }
}

impl<W: Write> Drop for TraceWriter<W> {
    /// The best that can be done for a trace that nobody finished.
    fn drop(&mut self) {
        let _ = self.flush();
    }
}
