//! Stream order: a freed block is reused at once on its own stream, on another only after its work has passed.
//!
//! ```text
//!   stream 1   | a | work on a | free a | b in a's place ...     at once: the stream itself keeps the order
//!   stream 2            | c in a's place: not before stream 1 has passed the free |
//! ```
//! There is no event per free. Each stream counts what was submitted to it; a free remembers the count,
//! and the device (or the caller) says how far a stream has come. A reuse is one comparison.

use crate::allocator::Allocator;
use crate::block::{Allocated, Block, Handle, HandleError, LiveBlock, Request};
use npumem_ir::{Bytes, Offset};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

mod order;

pub use order::{OrderChecker, Unordered};

/// A stream by its number.
pub type Stream = u32;

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    submitted: u64,
    completed: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    generation: u32,
    live: bool,
    inner: Handle,
    offset: Offset,
    /// What the block below was asked for: a reuse serves requests of exactly this size.
    bytes: u64,
    stream: Stream,
    /// Other streams that use it.
    users: Vec<Stream>,
}

/// A freed block that other streams must wait for.
#[derive(Clone, Debug)]
struct Waiting {
    entry: u32,
    /// The streams and how far each must have come.
    after: Vec<(Stream, u64)>,
}

/// Any allocator, shared by streams.
pub struct StreamOrdered<A> {
    inner: A,
    streams: BTreeMap<Stream, Progress>,
    entries: Vec<Entry>,
    spare: Vec<u32>,
    /// Freed blocks that only their own stream may have yet, by stream and size; the newest last.
    waiting: BTreeMap<(Stream, u64), Vec<Waiting>>,
    reused: u64,
}

impl<A: Allocator> StreamOrdered<A> {
    /// Over an allocator that nobody else uses.
    pub fn new(inner: A) -> Self {
        Self {
            inner,
            streams: BTreeMap::new(),
            entries: Vec::new(),
            spare: Vec::new(),
            waiting: BTreeMap::new(),
            reused: 0,
        }
    }

    /// Says that work was submitted to a stream, and how much in all.
    pub fn submit(&mut self, stream: Stream) -> u64 {
        let progress = self.streams.entry(stream).or_default();
        progress.submitted += 1;
        progress.submitted
    }

    /// Says that a stream has passed its first `count` submissions. A count that is no progress changes nothing.
    pub fn complete(&mut self, stream: Stream, count: u64) {
        let progress = self.streams.entry(stream).or_default();
        progress.completed = progress.completed.max(count.min(progress.submitted));
    }

    /// Allocates for work on a stream.
    ///
    /// # Errors
    /// As [`Allocator::allocate`]; before it fails, everything whose streams have passed is given back.
    pub fn allocate_on(&mut self, request: Request, stream: Stream) -> Allocated {
        if request.alignment.get() == 1
            && let Some(list) = self.waiting.get_mut(&(stream, request.bytes.get()))
        {
            // Another stream's use of the block is not ordered with this stream: it must have passed.
            let streams = &self.streams;
            let ready = list.iter().rposition(|waiting| {
                waiting.after.iter().all(|(other, count)| *other == stream || passed(streams, *other, *count))
            });
            if let Some(index) = ready {
                let waiting = list.remove(index);
                self.reused += 1;
                return Ok(self.hand_out(waiting.entry, stream));
            }
        }
        let block = match self.inner.allocate(request) {
            Ok(block) => block,
            Err(error) => {
                if self.promote() == 0 {
                    return Err(error);
                }
                self.inner.allocate(request)?
            }
        };
        let entry = Entry {
            generation: 0,
            live: false,
            inner: block.handle,
            offset: block.offset,
            bytes: request.bytes.get(),
            stream,
            users: Vec::new(),
        };
        let index = match self.spare.pop() {
            Some(index) => {
                let generation = self.entries[index as usize].generation;
                self.entries[index as usize] = Entry { generation, ..entry };
                index
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        Ok(self.hand_out(index, stream))
    }

    fn hand_out(&mut self, index: u32, stream: Stream) -> Block {
        let entry = &mut self.entries[index as usize];
        entry.live = true;
        entry.stream = stream;
        entry.users.clear();
        entry.generation = entry.generation.saturating_add(1);
        let generation = NonZeroU32::MIN.saturating_add(entry.generation - 1);
        Block { handle: Handle { index, generation }, offset: entry.offset }
    }

    /// Says that another stream uses the block too.
    ///
    /// # Errors
    /// When the handle is stale or foreign.
    pub fn record_use(&mut self, handle: Handle, stream: Stream) -> Result<(), HandleError> {
        let index = self.find(handle)?;
        let entry = &mut self.entries[index as usize];
        if entry.stream != stream && !entry.users.contains(&stream) {
            entry.users.push(stream);
        }
        Ok(())
    }

    /// Frees a block: its own stream may have it at once, others when all work submitted so far to the streams
    /// that use it has passed.
    ///
    /// # Errors
    /// When the handle is stale or foreign.
    pub fn free(&mut self, handle: Handle) -> Result<Bytes, HandleError> {
        let index = self.find(handle)?;
        let entry = &mut self.entries[index as usize];
        entry.live = false;
        let (stream, bytes) = (entry.stream, entry.bytes);
        let mut after = Vec::with_capacity(1 + entry.users.len());
        for user in std::iter::once(stream).chain(entry.users.drain(..)) {
            let submitted = self.streams.get(&user).map_or(0, |progress| progress.submitted);
            after.push((user, submitted));
        }
        self.waiting.entry((stream, bytes)).or_default().push(Waiting { entry: index, after });
        Ok(Bytes(bytes))
    }

    /// Gives the freed blocks whose streams have passed back to the allocator below, and says how many.
    pub fn promote(&mut self) -> usize {
        let mut ready = Vec::new();
        let streams = &self.streams;
        self.waiting.retain(|_, list| {
            list.retain(|waiting| {
                let done = waiting.after.iter().all(|(stream, count)| passed(streams, *stream, *count));
                if done {
                    ready.push(waiting.entry);
                }
                !done
            });
            !list.is_empty()
        });
        for index in &ready {
            let entry = &self.entries[*index as usize];
            // The block is live below until now.
            let freed = self.inner.free(entry.inner);
            debug_assert!(freed.is_ok(), "{freed:?}");
            if entry.generation < u32::MAX {
                self.spare.push(*index);
            }
        }
        ready.len()
    }

    /// Allocations that were served by a block freed on the same stream.
    pub fn reused(&self) -> u64 {
        self.reused
    }

    /// The allocator below: blocks that wait are live in it.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    /// The live block of a handle.
    ///
    /// # Errors
    /// When the handle is stale or foreign.
    pub fn block(&self, handle: Handle) -> Result<LiveBlock, HandleError> {
        let index = self.find(handle)?;
        let block = self.inner.block(self.entries[index as usize].inner)?;
        Ok(LiveBlock { handle, ..block })
    }

    fn find(&self, handle: Handle) -> Result<u32, HandleError> {
        match self.entries.get(handle.index as usize) {
            Some(entry) if entry.live && entry.generation == handle.generation.get() => Ok(handle.index),
            Some(entry) => Err(HandleError::Stale { handle, current: entry.generation }),
            None => Err(HandleError::Foreign { handle, entries: self.entries.len() as u64 }),
        }
    }
}

fn passed(streams: &BTreeMap<Stream, Progress>, stream: Stream, count: u64) -> bool {
    count == 0 || streams.get(&stream).is_some_and(|progress| progress.completed >= count)
}

#[cfg(test)]
mod tests;
