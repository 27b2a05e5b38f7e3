//! Reads the binary form, one chunk at a time.

use super::encode::tag;
use super::{BlockId, Frame, MAGIC, NameId, StackId, StreamId, TraceEvent, TraceHeader, VERSION, What, checksum};
use crate::ids::{EngineId, SpaceId};
use crate::units::{Bytes, Offset};
use std::io::{self, Read};

/// No chunk is longer; a longer length is damage.
const CHUNK_LIMIT: usize = 16 << 20;
/// All names and stacks of a trace together.
const DEFINITION_LIMIT: u64 = 1 << 30;

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The input says so.
    #[error("the trace cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It does not start like a trace.
    #[error("this is no npumem trace: it does not start with the magic `npumtrc`")]
    NoTrace,
    /// It was written by a later version.
    #[error("this trace is of version {found}; this build reads version {known}: use a newer npumem")]
    Version {
        /// What the file says.
        found: u16,
        /// What this build reads.
        known: u16,
    },
    /// A record in a chunk whose checksum is right makes no sense.
    #[error("the trace is wrong in the chunk at byte {chunk}, {at} bytes in: {problem}")]
    Record {
        /// Where the chunk starts in the file.
        chunk: u64,
        /// Where in the chunk.
        at: usize,
        /// What is wrong.
        problem: &'static str,
    },
}

/// How a trace ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With its last whole chunk.
    Whole,
    /// In the middle of a chunk or with a damaged one, as a crash leaves it. What came before was read.
    Broken {
        /// Where the broken chunk starts.
        at: u64,
    },
}

/// Reads a trace event by event; holds one chunk and the definitions.
pub struct TraceReader<R> {
    input: R,
    header: TraceHeader,
    names: Vec<String>,
    stacks: Vec<Vec<Frame>>,
    definitions: u64,
    chunk: Vec<u8>,
    /// Where in the chunk.
    at: usize,
    /// Where the chunk starts in the file, and where the next will.
    start: u64,
    next: u64,
    time: u64,
    block: u64,
    stream: u32,
    ending: Option<Ending>,
}

impl<R: Read> TraceReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When the input is no trace of a version that this build reads.
    pub fn new(mut input: R) -> Result<Self, TraceError> {
        let mut start = [0; 10];
        if read_full(&mut input, &mut start)? < start.len() || start[..8] != MAGIC {
            return Err(TraceError::NoTrace);
        }
        let found = u16::from_le_bytes([start[8], start[9]]);
        if found != VERSION {
            return Err(TraceError::Version { found, known: VERSION });
        }
        let mut reader = Self {
            input,
            header: TraceHeader::default(),
            names: Vec::new(),
            stacks: Vec::new(),
            definitions: 0,
            chunk: Vec::new(),
            at: 0,
            start: 0,
            next: start.len() as u64,
            time: 0,
            block: 0,
            stream: 0,
            ending: None,
        };
        if !reader.next_chunk()? {
            return Err(TraceError::NoTrace);
        }
        if reader.byte()? != tag::HEADER {
            return Err(reader.wrong("the first record is not the header"));
        }
        let json = reader.bytes()?;
        reader.header =
            serde_json::from_slice(&json).map_err(|_| reader.wrong("the header is not the JSON of this version"))?;
        Ok(reader)
    }

    /// What holds for the whole trace.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// The names and stacks defined so far, by id.
    pub fn definitions(&self) -> (&[String], &[Vec<Frame>]) {
        (&self.names, &self.stacks)
    }

    /// How the trace ends; [`Ending::Whole`] until the end was reached.
    pub fn ending(&self) -> Ending {
        self.ending.unwrap_or(Ending::Whole)
    }

    /// The next event; `None` at the end, whole or broken.
    ///
    /// # Errors
    /// When the input fails, or a record in a whole chunk is wrong.
    pub fn next_event(&mut self) -> Result<Option<TraceEvent>, TraceError> {
        loop {
            if self.at == self.chunk.len() {
                if self.ending.is_some() || !self.next_chunk()? {
                    return Ok(None);
                }
                continue;
            }
            match self.byte()? {
                tag::NAME => {
                    let name = self.text()?;
                    self.names.push(name);
                }
                tag::STACK => self.stack()?,
                tag::STREAM => self.stream = self.small("a stream past 32 bits")?,
                tag => return self.event(tag).map(Some),
            }
        }
    }

    fn stack(&mut self) -> Result<(), TraceError> {
        let count = self.number()?;
        // Each frame takes at least three bytes of this chunk.
        if count > (self.chunk.len() - self.at) as u64 / 3 {
            return Err(self.wrong("a stack with more frames than bytes"));
        }
        self.grow_definitions(count.saturating_mul(64))?;
        let mut frames = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let function = self.text()?;
            let file = self.text()?;
            let line = self.small("a line past 32 bits")?;
            frames.push(Frame { function, file, line });
        }
        self.stacks.push(frames);
        Ok(())
    }

    fn event(&mut self, tag: u8) -> Result<TraceEvent, TraceError> {
        let step = self.number()?;
        self.time = self.time.checked_add(step).ok_or_else(|| self.wrong("a time past 64 bits"))?;
        let time = self.time;
        let stack = if tag & tag::HAS_STACK == 0 {
            None
        } else {
            let id = self.small("a stack past 32 bits")?;
            if id as usize >= self.stacks.len() {
                return Err(self.wrong("a stack that was not defined"));
            }
            Some(StackId(id))
        };
        let what = match tag & !tag::HAS_STACK {
            tag::ALLOCATE => {
                let block = self.block()?;
                let space = SpaceId(self.small("a space past 32 bits")?);
                let offset = Offset(self.number()?);
                let requested = Bytes(self.number()?);
                let padding = self.number()?;
                let granted = requested.checked_add(padding).ok_or_else(|| self.wrong("a size past 64 bits"))?;
                What::Allocate { block, space, offset, requested, granted }
            }
            tag::FREE => What::Free { block: self.block()? },
            tag::FREED => What::Freed { block: self.block()? },
            tag::READ => What::Use { block: self.block()?, write: false },
            tag::WRITE => What::Use { block: self.block()?, write: true },
            tag::COPY => {
                let (from, to) = (self.block()?, self.block()?);
                let bytes = Bytes(self.number()?);
                let engine = EngineId(self.small("an engine past 32 bits")?);
                What::Copy { from, to, bytes, engine, end: self.end()? }
            }
            tag::RUN => {
                let name = self.defined_name()?;
                let engine = EngineId(self.small("an engine past 32 bits")?);
                What::Run { name, engine, end: self.end()? }
            }
            tag::SEGMENT_TAKEN => {
                let (space, offset, bytes) = self.place()?;
                What::SegmentTaken { space, offset, bytes }
            }
            tag::SEGMENT_RETURNED => {
                let (space, offset, bytes) = self.place()?;
                What::SegmentReturned { space, offset, bytes }
            }
            tag::OUT_OF_MEMORY => {
                let (space, requested, free) = self.place()?;
                What::OutOfMemory { space, requested: Bytes(requested.0), free }
            }
            tag::MARK => What::Mark { name: self.defined_name()? },
            _ => return Err(self.wrong("a record of a kind that this version does not know")),
        };
        Ok(TraceEvent { time, stream: StreamId(self.stream), stack, what })
    }

    fn place(&mut self) -> Result<(SpaceId, Offset, Bytes), TraceError> {
        Ok((SpaceId(self.small("a space past 32 bits")?), Offset(self.number()?), Bytes(self.number()?)))
    }

    fn end(&mut self) -> Result<u64, TraceError> {
        let duration = self.number()?;
        self.time.checked_add(duration).ok_or_else(|| self.wrong("a time past 64 bits"))
    }

    fn defined_name(&mut self) -> Result<NameId, TraceError> {
        let id = self.small("a name past 32 bits")?;
        if id as usize >= self.names.len() {
            return Err(self.wrong("a name that was not defined"));
        }
        Ok(NameId(id))
    }

    fn block(&mut self) -> Result<BlockId, TraceError> {
        let folded = self.number()?;
        let difference = (folded >> 1) as i64 ^ -((folded & 1) as i64);
        self.block = self.block.wrapping_add(difference as u64);
        Ok(BlockId(self.block))
    }

    fn small(&mut self, problem: &'static str) -> Result<u32, TraceError> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| self.wrong(problem))
    }

    fn byte(&mut self) -> Result<u8, TraceError> {
        match self.chunk.get(self.at) {
            Some(byte) => {
                self.at += 1;
                Ok(*byte)
            }
            None => Err(self.wrong("a record that runs past the end of its chunk")),
        }
    }

    fn number(&mut self) -> Result<u64, TraceError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.wrong("a number past 64 bits"))
    }

    fn bytes(&mut self) -> Result<Vec<u8>, TraceError> {
        let length = self.number()?;
        let rest = &self.chunk[self.at..];
        match usize::try_from(length).ok().and_then(|length| rest.get(..length)) {
            Some(bytes) => {
                let bytes = bytes.to_vec();
                self.at += bytes.len();
                self.grow_definitions(length)?;
                Ok(bytes)
            }
            None => Err(self.wrong("a text that runs past the end of its chunk")),
        }
    }

    fn text(&mut self) -> Result<String, TraceError> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes).map_err(|_| self.wrong("a text that is not UTF-8"))
    }

    fn grow_definitions(&mut self, bytes: u64) -> Result<(), TraceError> {
        self.definitions = self.definitions.saturating_add(bytes);
        if self.definitions > DEFINITION_LIMIT {
            return Err(self.wrong("names and stacks of more than 1 GiB"));
        }
        Ok(())
    }

    fn wrong(&self, problem: &'static str) -> TraceError {
        TraceError::Record { chunk: self.start, at: self.at, problem }
    }

    /// Reads the next chunk; `false` at the end.
    fn next_chunk(&mut self) -> Result<bool, TraceError> {
        self.start = self.next;
        let mut head = [0; 8];
        let got = read_full(&mut self.input, &mut head)?;
        if got == 0 {
            self.ending = Some(Ending::Whole);
            return Ok(false);
        }
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let sum = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        self.chunk.clear();
        self.at = 0;
        let whole = got == head.len() && length <= CHUNK_LIMIT && {
            // Grows with what is there, not with what the length claims.
            (&mut self.input).take(length as u64).read_to_end(&mut self.chunk)? == length
                && checksum(&self.chunk) == sum
        };
        if !whole {
            self.chunk.clear();
            self.ending = Some(Ending::Broken { at: self.start });
            return Ok(false);
        }
        self.next += (head.len() + length) as u64;
        (self.time, self.block, self.stream) = (0, 0, 0);
        Ok(true)
    }
}

/// Reads until the buffer is full or the input ends, and says how much came.
fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
