//! Two-level segregated fit over a fixed range: `O(1)` in the worst case, with little fragmentation.
//!
//! ```text
//!   |### a ###|..|## b ##|.........|# c #|.....|      free blocks merge at once
//!   bins      32 to each power of two, found by two bitmap words
//! ```
//! The usual allocator for a scratchpad or for a range whose size is known. Where the device maps memory
//! on demand, [`crate::Paged`] needs less of it.

use crate::allocator::Allocator;
use crate::arena::{Arena, bin_of};
use crate::block::{AllocateError, Allocated, Block, Handle, HandleError, LiveBlock, Request, Shortage};
use crate::nodes::{ENTRIES, HEADS, Nodes, USED, head_of};
use crate::statistics::Statistics;
use npumem_ir::{Alignment, Bytes, Offset};
use std::num::NonZeroU32;

/// The only set of bins.
const ONLY: u32 = 0;

/// Two-level segregated fit.
pub struct Tlsf {
    arena: Arena,
    /// Bytes of a unit as a power of two.
    bits: u32,
    units: u32,
    live: u64,
    peak_live: u64,
    granted_units: u64,
    allocations: u64,
    frees: u64,
    failures: u64,
}

impl Tlsf {
    /// Over `capacity` bytes, every block at a multiple of `granule` (rounded up to a power of two).
    /// A capacity of 2^32 granules or more doubles the granule until it fits; bytes beyond the last whole granule are not used.
    #[must_use]
    pub fn new(granule: Bytes, capacity: Bytes) -> Self {
        let mut bits = granule.get().clamp(1, 1 << 30).next_power_of_two().trailing_zeros();
        while capacity.get() >> bits >= u64::from(u32::MAX) {
            bits += 1;
        }
        let units = (capacity.get() >> bits) as u32;
        let mut arena = Arena::new();
        if units > 0 {
            arena.open(0, units, ONLY);
        }
        Self { arena, bits, units, live: 0, peak_live: 0, granted_units: 0, allocations: 0, frees: 0, failures: 0 }
    }

    #[cold]
    fn refuse(&mut self, error: AllocateError) -> Box<AllocateError> {
        self.failures += 1;
        Box::new(error)
    }

    #[cold]
    fn shortage(&mut self, request: Request) -> Box<AllocateError> {
        let limit = u64::from(self.units) << self.bits;
        let error = AllocateError::OutOfMemory(Shortage::of(request, &self.statistics(), Some(limit)));
        self.refuse(error)
    }

    #[inline(always)]
    fn hand_out(&mut self, node: u32, units: u32, bytes: u64) -> Block {
        let nodes = &mut self.arena.nodes;
        nodes.set_state(node, USED | ONLY);
        // The bytes asked for, in two halves.
        nodes.set_first_note(node, bytes as u32);
        nodes.set_second_note(node, (bytes >> 32) as u32);
        let generation = nodes.generation(node) | 1;
        nodes.set_generation(node, generation);
        let offset = u64::from(nodes.offset(node)) << self.bits;
        self.live += bytes;
        self.peak_live = self.peak_live.max(self.live);
        self.granted_units += u64::from(units);
        self.allocations += 1;
        Block { handle: Handle { index: node, generation: NonZeroU32::MIN | generation }, offset: Offset(offset) }
    }

    fn allocate_aligned(&mut self, request: Request, units: u32) -> Allocated {
        let step = (request.alignment.get() >> self.bits).max(1);
        let padded = u64::from(units) + step - 1;
        let bin =
            if padded > u64::from(self.units) { 0 } else { self.arena.find_bin(padded as u32, bin_of(padded as u32)) };
        if bin == 0 {
            return Err(self.shortage(request));
        }
        if !self.arena.nodes.has_room(2) {
            return Err(self.refuse(AllocateError::TooManyBlocks { limit: (ENTRIES as u32 - HEADS).into() }));
        }
        let mut node = self.arena.newest(bin);
        self.arena.unlink(node);
        self.arena.nodes.set_state(node, USED | ONLY);
        let start = u64::from(self.arena.nodes.offset(node));
        let lead = (start.next_multiple_of(step) - start) as u32;
        if lead > 0 {
            let rest = self.arena.split(node, lead);
            self.arena.insert(node, ONLY);
            node = rest;
        }
        if self.arena.nodes.size(node) > units {
            let rest = self.arena.split(node, units);
            self.arena.insert(rest, ONLY);
        }
        Ok(self.hand_out(node, units, request.bytes.get()))
    }

    #[inline(always)]
    fn is_live(&self, handle: Handle) -> bool {
        Nodes::is_name(handle.index) && self.arena.nodes.generation(handle.index) == handle.generation.get() | 1
    }

    fn bad_handle(&self, handle: Handle) -> HandleError {
        let entries = u64::from(self.arena.nodes.ever_used());
        if !Nodes::is_name(handle.index) || handle.index < head_of(HEADS) || u64::from(handle.index) >= entries {
            HandleError::Foreign { handle, entries }
        } else {
            HandleError::Stale { handle, current: self.arena.nodes.generation(handle.index) }
        }
    }

    fn live_block(&self, node: u32) -> LiveBlock {
        let nodes = &self.arena.nodes;
        let requested = u64::from(nodes.second_note(node)) << 32 | u64::from(nodes.first_note(node));
        LiveBlock {
            handle: Handle { index: node, generation: NonZeroU32::MIN | nodes.generation(node) },
            offset: Offset(u64::from(nodes.offset(node)) << self.bits),
            requested: Bytes(requested),
            granted: Bytes(u64::from(nodes.size(node)) << self.bits),
        }
    }
}

impl Allocator for Tlsf {
    fn name(&self) -> &'static str {
        "tlsf"
    }

    #[inline]
    fn allocate(&mut self, request: Request) -> Allocated {
        let bytes = request.bytes.get();
        if let Err(error) = request.check(Bytes(u64::from(self.units) << self.bits)) {
            return Err(self.refuse(error));
        }
        let units = (((bytes - 1) >> self.bits) + 1) as u32;
        if request.alignment != Alignment::ONE && request.alignment.get() >> self.bits > 1 {
            return self.allocate_aligned(request, units);
        }
        let bin = self.arena.find_bin(units, bin_of(units));
        if bin == 0 {
            return Err(self.shortage(request));
        }
        let node = self.arena.carve(self.arena.newest(bin), units, bin);
        if node == 0 {
            return Err(self.refuse(AllocateError::TooManyBlocks { limit: (ENTRIES as u32 - HEADS).into() }));
        }
        Ok(self.hand_out(node, units, bytes))
    }

    #[inline]
    fn free(&mut self, handle: Handle) -> Result<Bytes, HandleError> {
        if !self.is_live(handle) {
            self.failures += 1;
            return Err(self.bad_handle(handle));
        }
        let mut node = handle.index;
        let block = self.live_block(node);
        self.live -= block.requested.get();
        self.granted_units -= u64::from(self.arena.nodes.size(node));
        self.frees += 1;
        let generation = handle.generation.get().wrapping_add(1);
        self.arena.nodes.set_generation(node, generation);
        if generation == 0 {
            node = self.arena.renew(node);
        }
        self.arena.release(node, ONLY);
        Ok(block.requested)
    }

    fn block(&self, handle: Handle) -> Result<LiveBlock, HandleError> {
        if self.is_live(handle) { Ok(self.live_block(handle.index)) } else { Err(self.bad_handle(handle)) }
    }

    fn statistics(&self) -> Statistics {
        let reserved = Bytes(u64::from(self.units) << self.bits);
        Statistics {
            live: Bytes(self.live),
            peak_live: Bytes(self.peak_live),
            granted: Bytes(self.granted_units << self.bits),
            reserved,
            peak_reserved: reserved,
            largest_free: Bytes(u64::from(self.arena.largest(ONLY)) << self.bits),
            blocks: self.allocations - self.frees,
            allocations: self.allocations,
            frees: self.frees,
            failures: self.failures,
        }
    }

    fn for_each_live(&self, visit: &mut dyn FnMut(LiveBlock)) {
        let mut node = self.arena.first();
        while node != 0 {
            if self.arena.nodes.state(node) == USED | ONLY {
                visit(self.live_block(node));
            }
            node = self.arena.nodes.next(node);
        }
    }

    fn verify(&self) -> Result<(), String> {
        self.arena.verify()?;
        let (mut live, mut granted, mut blocks) = (0, 0, 0);
        self.for_each_live(&mut |block| {
            live += block.requested.get();
            granted += block.granted.get() >> self.bits;
            blocks += 1;
        });
        if (live, granted, blocks) == (self.live, self.granted_units, self.allocations - self.frees) {
            Ok(())
        } else {
            Err(format!("{live} live bytes in {blocks} blocks, the books say {}", self.live))
        }
    }
}
