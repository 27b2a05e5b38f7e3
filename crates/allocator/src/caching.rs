//! PyTorch's caching allocator, rule by rule: best fit over segments that are taken from the device and kept.
//!
//! ```text
//!   segment   |## a ##|.. free ..|# b #|..|        large: 20 MiB, or a multiple of 2 MiB
//!   segment   |a|.|b|c|......|                     small: 2 MiB, for blocks up to 1 MiB
//! ```
//! Free blocks are kept in order of (stream, size, age of the segment); the first that fits is taken.
//! What the original does in an out-of-memory (garbage collection, release of unsplit blocks, retry) is done here too,
//! and each step is an [`Event`] like those of its memory snapshots.
//!
//! It is the conformance model of the original (see `tests/oracle.rs`), made for replay: every call is `O(log n)`.

use crate::allocator::Allocator;
use crate::block::{AllocateError, Allocated, Block, Handle, HandleError, LiveBlock, Request, Shortage};
use crate::statistics::Statistics;
use npumem_ir::{Bytes, Offset};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;

mod device;
mod expandable;
mod release;
mod settings;

pub use device::{DeviceModel, SegmentSource};
pub use settings::{SettingError, Settings};

/// Blocks up to this size live in small segments.
const SMALL: u64 = 1 << 20;
const SMALL_SEGMENT: u64 = 2 << 20;
/// Requests from this size on get a segment of their own size.
const OWN_SEGMENT: u64 = 10 << 20;
const SEGMENT_STEP: u64 = 2 << 20;
const SMALLEST: u64 = 512;

/// What happened, with the names that PyTorch's snapshots use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Action {
    Alloc,
    FreeRequested,
    FreeCompleted,
    SegmentAlloc,
    SegmentFree,
    SegmentMap,
    SegmentUnmap,
    /// The address is the device's free bytes.
    OutOfMemory,
}

impl Action {
    /// The name in a snapshot.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::FreeRequested => "free_requested",
            Self::FreeCompleted => "free_completed",
            Self::SegmentAlloc => "segment_alloc",
            Self::SegmentFree => "segment_free",
            Self::SegmentMap => "segment_map",
            Self::SegmentUnmap => "segment_unmap",
            Self::OutOfMemory => "oom",
        }
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// What happened.
    pub action: Action,
    /// Where.
    pub address: u64,
    /// How much: requested bytes for blocks.
    pub bytes: u64,
    /// On which stream.
    pub stream: u32,
}

type Id = u32;
/// Stream, size, age of the segment (or zero), address, block.
type FreeKey = (u32, u64, u64, u64, Id);

#[derive(Clone, Debug)]
struct Piece {
    generation: u32,
    address: u64,
    size: u64,
    requested: u64,
    stream: u32,
    large: bool,
    allocated: bool,
    mapped: bool,
    /// The base of the expandable reservation it lies in.
    reservation: Option<u64>,
    previous: Option<Id>,
    next: Option<Id>,
    /// When its segment was taken.
    age: u64,
    /// The pool's count of searches when it was last put back.
    searches: u64,
    /// Other streams that use it.
    streams: BTreeSet<u32>,
    /// Events of other streams that must pass before it is free.
    pending: u32,
}

#[derive(Clone, Debug, Default)]
struct Pool {
    free: BTreeSet<FreeKey>,
    /// Addresses without memory in expandable segments: stream, address, block.
    unmapped: BTreeSet<(u32, u64, Id)>,
    searches: u64,
}

/// Counts that PyTorch reports beside the [`Statistics`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachingCounts {
    /// Peak of the bytes of allocated blocks, padding and unsplit rest included.
    pub allocated_peak: u64,
    /// The same with blocks whose free waits for a stream.
    pub active_peak: u64,
    /// Allocations that were tried again after everything unused was given back.
    pub retries: u64,
    /// Allocations that failed.
    pub ooms: u64,
    /// Segments taken and given back, pages mapped and unmapped.
    pub device_calls: u64,
}

/// The allocator; see the module.
pub struct Caching<S> {
    settings: Settings,
    source: S,
    /// The share of the device that may be used, where one was set.
    allowed: Option<u64>,
    pieces: Vec<Piece>,
    spare: Vec<Id>,
    small: Pool,
    large: Pool,
    /// Allocated blocks and blocks whose free waits, for the walk over what lives.
    live_ids: BTreeSet<Id>,
    /// Free blocks that wait, by the stream whose event they wait for.
    waiting: BTreeMap<u32, VecDeque<Id>>,
    events_ready: bool,
    next_age: u64,
    reserved: u64,
    peak_reserved: u64,
    allocated: u64,
    active: u64,
    live: u64,
    peak_live: u64,
    allocations: u64,
    frees: u64,
    failures: u64,
    counts: CachingCounts,
    record: Option<Vec<Event>>,
}

impl<S: SegmentSource> Caching<S> {
    /// An empty allocator over a device.
    pub fn new(settings: Settings, source: S) -> Self {
        Self {
            settings,
            source,
            allowed: None,
            pieces: Vec::new(),
            spare: Vec::new(),
            small: Pool::default(),
            large: Pool::default(),
            live_ids: BTreeSet::new(),
            waiting: BTreeMap::new(),
            events_ready: true,
            next_age: 0,
            reserved: 0,
            peak_reserved: 0,
            allocated: 0,
            active: 0,
            live: 0,
            peak_live: 0,
            allocations: 0,
            frees: 0,
            failures: 0,
            counts: CachingCounts::default(),
            record: None,
        }
    }

    /// Sets the memory that this process may take (`set_per_process_memory_fraction`).
    pub fn set_allowed(&mut self, bytes: Option<Bytes>) {
        self.allowed = bytes.map(Bytes::get);
    }

    /// Keeps every event from now on, for [`Self::take_events`].
    pub fn record_events(&mut self) {
        self.record.get_or_insert_default();
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.record.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether events on other streams have passed by the time they are looked at.
    pub fn set_events_ready(&mut self, ready: bool) {
        self.events_ready = ready;
    }

    /// PyTorch's own counts.
    pub fn counts(&self) -> CachingCounts {
        self.counts
    }

    /// Allocates on a stream.
    ///
    /// # Errors
    /// As [`Allocator::allocate`].
    pub fn allocate_on(&mut self, request: Request, stream: u32) -> Allocated {
        let checked = request.check(Bytes(1 << 60)).and_then(|()| {
            if request.alignment.get() > SMALLEST {
                Err(AllocateError::BadAlignment { alignment: request.alignment, limit: Bytes(SMALLEST) })
            } else {
                let limit = Bytes(1 << 60);
                self.settings
                    .round(request.bytes.get())
                    .ok_or(AllocateError::TooLarge { requested: request.bytes, limit })
            }
        });
        let size = match checked {
            Ok(size) => size,
            Err(error) => {
                self.failures += 1;
                return Err(Box::new(error));
            }
        };
        self.process_events();
        let large = size > SMALL;
        let Some(id) = self.find_or_take(size, large, stream) else {
            self.note(Action::OutOfMemory, self.source.free_bytes(), size, stream);
            self.counts.ooms += 1;
            self.failures += 1;
            let limit = self.source.capacity();
            return Err(Box::new(AllocateError::OutOfMemory(Shortage::of(request, &self.statistics(), limit))));
        };
        Ok(self.hand_out(id, size, request.bytes.get()))
    }

    /// Says that another stream uses the block too: its free waits for that stream.
    ///
    /// # Errors
    /// When the handle is stale or foreign.
    pub fn record_use(&mut self, handle: Handle, stream: u32) -> Result<(), HandleError> {
        let id = self.find_live(handle)?;
        let piece = &mut self.pieces[id as usize];
        if piece.stream != stream {
            piece.streams.insert(stream);
        }
        Ok(())
    }

    fn find_or_take(&mut self, size: u64, large: bool, stream: u32) -> Option<Id> {
        if let Some(id) = self.find_free(size, large, stream) {
            return Some(id);
        }
        self.collect_garbage();
        if let Some(id) = self.take_segment(size, large, stream) {
            return Some(id);
        }
        if self.release_available(size, large, stream)
            && let Some(id) = self.take_segment(size, large, stream)
        {
            return Some(id);
        }
        self.release_all();
        self.counts.retries += 1;
        self.take_segment(size, large, stream)
    }

    /// The first free block of the stream that fits, out of its pool.
    fn find_free(&mut self, size: u64, large: bool, stream: u32) -> Option<Id> {
        if self.allowed.is_some() && self.settings.garbage_collection_threshold > 0.0 {
            self.pool(large).searches += 1;
        }
        let pool = if large { &self.large } else { &self.small };
        let mut keys = pool.free.range((stream, size, 0, 0, 0)..).take_while(|key| key.0 == stream).peekable();
        let mut best = *keys.next()?;
        if self.is_expandable(best.4) {
            if self.settings.expandable_segments {
                // What counts is the size that a block can grow to.
                while self.is_expandable(best.4)
                    && let Some(next) = keys.next()
                    && self.size_when_grown(next.4) < self.size_when_grown(best.4)
                {
                    best = *next;
                }
            } else {
                best = *keys.find(|key| !self.is_expandable(key.4))?;
            }
        }
        let limit = self.settings.max_split_size;
        if size < limit && best.1 >= limit {
            return None;
        }
        if size >= limit && best.1 >= size.saturating_add(self.settings.max_non_split_rounding) {
            return None;
        }
        self.pool(large).free.remove(&best);
        Some(best.4)
    }

    fn is_expandable(&self, id: Id) -> bool {
        self.pieces[id as usize].reservation.is_some()
    }

    fn size_when_grown(&self, id: Id) -> u64 {
        let piece = &self.pieces[id as usize];
        let next = piece.next.map(|next| &self.pieces[next as usize]);
        piece.size + next.filter(|next| !next.mapped).map_or(0, |next| next.size)
    }

    fn segment_size(&self, size: u64) -> u64 {
        if size <= SMALL {
            SMALL_SEGMENT
        } else if size < OWN_SEGMENT {
            self.settings.large_segment_size
        } else {
            size.next_multiple_of(SEGMENT_STEP)
        }
    }

    /// Takes memory from the device for a request.
    fn take_segment(&mut self, size: u64, large: bool, stream: u32) -> Option<Id> {
        let bytes = self.segment_size(size);
        if self.allowed.is_some_and(|allowed| self.reserved + bytes > allowed) {
            return None;
        }
        if self.settings.expandable_segments {
            return self.take_expandable(size, large, stream);
        }
        let address = self.source.take(bytes)?;
        self.grow_reserved(bytes);
        self.next_age += 1;
        let id = self.new_piece(Piece {
            generation: 0,
            address,
            size: bytes,
            requested: 0,
            stream,
            large,
            allocated: false,
            mapped: true,
            reservation: None,
            previous: None,
            next: None,
            age: self.next_age,
            searches: 0,
            streams: BTreeSet::new(),
            pending: 0,
        });
        self.note(Action::SegmentAlloc, address, bytes, stream);
        Some(id)
    }

    fn hand_out(&mut self, id: Id, size: u64, requested: u64) -> Block {
        let piece = &self.pieces[id as usize];
        let rest = piece.size - size;
        let split = if !piece.large || self.settings.expandable_segments {
            rest >= SMALLEST
        } else {
            size < self.settings.max_split_size && rest > SMALL
        };
        let id = if split { self.split_front(id, size) } else { id };
        let piece = &mut self.pieces[id as usize];
        piece.allocated = true;
        piece.requested = requested;
        piece.generation += 1;
        let (address, size, stream) = (piece.address, piece.size, piece.stream);
        let generation = NonZeroU32::MIN.saturating_add(piece.generation - 1);
        self.live_ids.insert(id);
        self.allocated += size;
        self.active += size;
        self.live += requested;
        self.peak_live = self.peak_live.max(self.live);
        self.counts.allocated_peak = self.counts.allocated_peak.max(self.allocated);
        self.counts.active_peak = self.counts.active_peak.max(self.active);
        self.allocations += 1;
        self.note(Action::Alloc, address, requested, stream);
        Block { handle: Handle { index: id, generation }, offset: Offset(address) }
    }

    /// Cuts `size` bytes off the front of a block that is in no pool; the rest goes back to the pool.
    fn split_front(&mut self, id: Id, size: u64) -> Id {
        let mut front = self.pieces[id as usize].clone();
        front.size = size;
        front.next = Some(id);
        let previous = front.previous;
        let front = self.new_piece(front);
        if let Some(previous) = previous {
            self.pieces[previous as usize].next = Some(front);
        }
        let rest = &mut self.pieces[id as usize];
        rest.previous = Some(front);
        rest.address += size;
        rest.size -= size;
        self.put_back(id);
        front
    }

    fn free_piece(&mut self, id: Id) {
        let piece = &self.pieces[id as usize];
        let (address, requested, stream, size) = (piece.address, piece.requested, piece.stream, piece.size);
        self.note(Action::FreeCompleted, address, requested, stream);
        self.live_ids.remove(&id);
        self.active -= size;
        for neighbour in [self.pieces[id as usize].previous, self.pieces[id as usize].next] {
            self.merge(id, neighbour);
        }
        self.put_back(id);
    }

    /// Merges a neighbour into a block, where both are free and both have memory or both have none.
    fn merge(&mut self, id: Id, neighbour: Option<Id>) {
        let Some(other) = neighbour else { return };
        let source = &self.pieces[other as usize];
        if source.allocated
            || source.pending > 0
            || !source.streams.is_empty()
            || source.mapped != self.pieces[id as usize].mapped
        {
            return;
        }
        self.remove_from_pool(other);
        let source = self.pieces[other as usize].clone();
        let target = &mut self.pieces[id as usize];
        target.size += source.size;
        if target.previous == Some(other) {
            target.address = source.address;
            target.previous = source.previous;
            if let Some(previous) = source.previous {
                self.pieces[previous as usize].next = Some(id);
            }
        } else {
            target.next = source.next;
            if let Some(next) = source.next {
                self.pieces[next as usize].previous = Some(id);
            }
        }
        self.drop_piece(other);
    }

    /// Frees what waited for events that have passed.
    fn process_events(&mut self) {
        if self.events_ready {
            self.finish_events();
        }
    }

    fn finish_events(&mut self) {
        for (_, queue) in std::mem::take(&mut self.waiting) {
            for id in queue {
                self.pieces[id as usize].pending -= 1;
                if self.pieces[id as usize].pending == 0 {
                    self.free_piece(id);
                }
            }
        }
    }

    fn pool(&mut self, large: bool) -> &mut Pool {
        if large { &mut self.large } else { &mut self.small }
    }

    fn free_key(&self, id: Id) -> FreeKey {
        let piece = &self.pieces[id as usize];
        let age = if self.settings.ties_by_age { piece.age } else { 0 };
        (piece.stream, piece.size, age, piece.address, id)
    }

    fn put_back(&mut self, id: Id) {
        let key = self.free_key(id);
        let large = self.pieces[id as usize].large;
        self.pieces[id as usize].searches = self.pool(large).searches;
        self.pool(large).free.insert(key);
    }

    fn remove_from_pool(&mut self, id: Id) {
        let piece = &self.pieces[id as usize];
        let (large, mapped, stream, address) = (piece.large, piece.mapped, piece.stream, piece.address);
        if mapped {
            let key = self.free_key(id);
            self.pool(large).free.remove(&key);
        } else {
            self.pool(large).unmapped.remove(&(stream, address, id));
        }
    }

    fn new_piece(&mut self, piece: Piece) -> Id {
        match self.spare.pop() {
            Some(id) => {
                let generation = self.pieces[id as usize].generation;
                self.pieces[id as usize] = Piece { generation, ..piece };
                id
            }
            None => {
                self.pieces.push(Piece { generation: 0, ..piece });
                (self.pieces.len() - 1) as Id
            }
        }
    }

    fn drop_piece(&mut self, id: Id) {
        let piece = &mut self.pieces[id as usize];
        piece.allocated = false;
        piece.mapped = false;
        piece.size = 0;
        // An entry whose generations are used up is never used again.
        if piece.generation < u32::MAX - 1 {
            self.spare.push(id);
        }
    }

    fn grow_reserved(&mut self, bytes: u64) {
        self.reserved += bytes;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
        self.counts.device_calls += 1;
    }

    fn note(&mut self, action: Action, address: u64, bytes: u64, stream: u32) {
        if let Some(record) = &mut self.record {
            record.push(Event { action, address, bytes, stream });
        }
    }

    fn find_live(&self, handle: Handle) -> Result<Id, HandleError> {
        match self.pieces.get(handle.index as usize) {
            Some(piece) if piece.allocated && piece.generation == handle.generation.get() => Ok(handle.index),
            Some(piece) => Err(HandleError::Stale { handle, current: piece.generation }),
            None => Err(HandleError::Foreign { handle, entries: self.pieces.len() as u64 }),
        }
    }

    fn live_block(&self, id: Id) -> LiveBlock {
        let piece = &self.pieces[id as usize];
        LiveBlock {
            handle: Handle { index: id, generation: NonZeroU32::MIN.saturating_add(piece.generation.max(1) - 1) },
            offset: Offset(piece.address),
            requested: Bytes(piece.requested),
            granted: Bytes(piece.size),
        }
    }

    /// The segments as a snapshot lists them: address, bytes, stream, large, expandable, and their blocks by address
    /// (bytes, requested, allocated, active).
    pub fn segments(&self) -> Vec<Segment> {
        let mut segments = Vec::new();
        for (id, piece) in self.pieces.iter().enumerate() {
            let starts = piece.size > 0
                && piece.mapped
                && piece.previous.is_none_or(|previous| !self.pieces[previous as usize].mapped);
            if !starts {
                continue;
            }
            let mut segment = Segment {
                address: piece.address,
                bytes: 0,
                stream: piece.stream,
                large: piece.large,
                expandable: piece.reservation.is_some(),
                blocks: Vec::new(),
            };
            let mut next = Some(id as Id);
            while let Some(id) = next {
                let piece = &self.pieces[id as usize];
                if !piece.mapped {
                    break;
                }
                segment.bytes += piece.size;
                let active = piece.allocated || piece.pending > 0 || !piece.streams.is_empty();
                segment.blocks.push((piece.size, piece.requested, piece.allocated, active));
                next = piece.next;
            }
            segments.push(segment);
        }
        segments.sort_by_key(|segment| segment.address);
        segments
    }
}

/// A segment of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it starts.
    pub address: u64,
    /// How long it is.
    pub bytes: u64,
    /// Whose it is.
    pub stream: u32,
    /// Whether it holds blocks of more than 1 MiB.
    pub large: bool,
    /// Whether it lies in an expandable reservation.
    pub expandable: bool,
    /// Its blocks by address: bytes, requested bytes, allocated, active.
    pub blocks: Vec<(u64, u64, bool, bool)>,
}

impl<S: SegmentSource> Allocator for Caching<S> {
    fn name(&self) -> &'static str {
        if self.settings.expandable_segments { "torch-expandable" } else { "torch" }
    }

    fn allocate(&mut self, request: Request) -> Allocated {
        self.allocate_on(request, 0)
    }

    fn free(&mut self, handle: Handle) -> Result<Bytes, HandleError> {
        let id = match self.find_live(handle) {
            Ok(id) => id,
            Err(error) => {
                self.failures += 1;
                return Err(error);
            }
        };
        let piece = &mut self.pieces[id as usize];
        piece.allocated = false;
        let streams = std::mem::take(&mut piece.streams);
        piece.pending = streams.len() as u32;
        let (address, requested, stream, size) = (piece.address, piece.requested, piece.stream, piece.size);
        self.allocated -= size;
        self.live -= requested;
        self.frees += 1;
        self.note(Action::FreeRequested, address, requested, stream);
        if streams.is_empty() {
            self.free_piece(id);
        } else {
            for stream in streams {
                self.waiting.entry(stream).or_default().push_back(id);
            }
        }
        Ok(Bytes(requested))
    }

    fn block(&self, handle: Handle) -> Result<LiveBlock, HandleError> {
        self.find_live(handle).map(|id| self.live_block(id))
    }

    fn statistics(&self) -> Statistics {
        let largest = [&self.small, &self.large]
            .into_iter()
            .flat_map(|pool| pool.free.iter().map(|key| key.1))
            .max()
            .unwrap_or(0);
        Statistics {
            live: Bytes(self.live),
            peak_live: Bytes(self.peak_live),
            granted: Bytes(self.active),
            reserved: Bytes(self.reserved),
            peak_reserved: Bytes(self.peak_reserved),
            largest_free: Bytes(largest),
            blocks: self.allocations - self.frees,
            allocations: self.allocations,
            frees: self.frees,
            failures: self.failures,
        }
    }

    fn for_each_live(&self, visit: &mut dyn FnMut(LiveBlock)) {
        for id in &self.live_ids {
            if self.pieces[*id as usize].allocated {
                visit(self.live_block(*id));
            }
        }
    }

    fn trim(&mut self, keep: Bytes) -> Bytes {
        let before = self.reserved;
        if before > keep.get() {
            self.release_all();
        }
        Bytes(before - self.reserved)
    }

    fn verify(&self) -> Result<(), String> {
        let mut bytes = 0;
        for (id, piece) in self.pieces.iter().enumerate() {
            if piece.size == 0 {
                continue;
            }
            if piece.mapped {
                bytes += piece.size;
            }
            if let Some(next) = piece.next {
                let next = &self.pieces[next as usize];
                if next.previous != Some(id as Id) || piece.address + piece.size != next.address {
                    return Err(format!("block {id} and its next do not join"));
                }
            }
            let free = !piece.allocated && piece.pending == 0;
            let pool = if piece.large { &self.large } else { &self.small };
            let listed = if piece.mapped {
                pool.free.contains(&self.free_key(id as Id))
            } else {
                pool.unmapped.contains(&(piece.stream, piece.address, id as Id))
            };
            if free != listed {
                return Err(format!("block {id}: free {free}, in a pool {listed}"));
            }
        }
        if bytes == self.reserved {
            Ok(())
        } else {
            Err(format!("{bytes} bytes in blocks with memory, the books say {}", self.reserved))
        }
    }
}
