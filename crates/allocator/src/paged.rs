//! The default allocator: one reserved range of addresses, device memory mapped into it page by page.
//!
//! ```text
//!   addresses |pg|pg|pg|pg|..|..|pg|pg|pg|..........................|
//!             |small|  large    hole  large |   hole (never mapped)
//! ```
//! Three ideas:
//!
//! 1. **Freed blocks wait a moment.** A free block is first held for the next request of exactly its size,
//!    a few for each size. Programs that run in steps ask for the same sizes again and again,
//!    so most calls are a push or a pop and touch one bin.
//! 2. **A hole is not lost.** When no free block fits, the whole pages of free blocks are unmapped where they
//!    are and mapped where they are needed. Addresses fragment, memory does not: what stays lost is
//!    the part of a page beside a live block.
//! 3. **Small blocks live apart.** Blocks up to 1 MiB have pages of their own, which are not taken away,
//!    else slivers between small blocks would keep whole pages.
//!
//! Every path is `O(1)` but those that talk to the device. The allocator commands a [`PageSource`],
//! which knows which physical page lies where; it is asked only when no free block fits.

use crate::allocator::Allocator;
use crate::arena::{Arena, bin_of};
use crate::block::{AllocateError, Allocated, Block, Handle, HandleError, LiveBlock, Request};
use crate::nodes::{BINS, ENTRIES, HEADS, Nodes, SET, USED, head_of};
use crate::statistics::Statistics;
use npumem_ir::{Alignment, Bytes, Offset};
use std::num::NonZeroU32;

mod growth;

/// Bytes of a unit: every block starts at a multiple of it.
pub const UNIT: u64 = 1 << UNIT_BITS;
const UNIT_BITS: u32 = 9;
/// The largest request is 1 TiB.
const LARGEST_BITS: u32 = 40;
/// Bytes of a page: the smallest piece that the drivers of today map.
pub const PAGE: u64 = 2 << 20;

const PAGE_UNITS: u32 = (PAGE / UNIT) as u32;
/// The bin of a page.
const PAGE_BIN: u32 = bin_of(PAGE_UNITS);
/// The largest small block in units: 512 KiB.
const SMALL_UNITS: u32 = ((512 << 10) / UNIT) as u32;
/// Lists below this one hold tiny blocks, up to 16 KiB: each list one size. More of them may wait, and a miss does not
/// merge them: there are many of them, and together they are less than a page.
const TINY: u32 = bin_of(((16 << 10) / UNIT) as u32) + 1;
/// How many times as many tiny blocks may wait.
const TINY_HELD: u32 = 4;
/// Blocks of sizes up to this list's, 4 KiB, are cut from a free block several at a time.
const CUT_TOGETHER: u32 = bin_of(((4 << 10) / UNIT) as u32);
/// How many.
const TOGETHER: u32 = 4;
/// The sets of bins.
const SMALL: u32 = 0;
const LARGE: u32 = 1;
const HOLE: u32 = 2;

/// Commands to whoever holds the device's memory. Ranges are whole pages, in pages from the base of the range.
///
/// Calls that fail must change nothing.
pub trait PageSource {
    /// Puts memory behind `count` pages from page `first`, none of which has any.
    ///
    /// # Errors
    /// When the device has no more, in its own words.
    fn map(&mut self, first: u32, count: u32) -> Result<(), String>;

    /// Takes the memory from behind `count` pages from page `first`, all of which have some.
    /// It may be kept for the next `map`, or go back to the device.
    fn unmap(&mut self, first: u32, count: u32);
}

/// How a [`Paged`] allocator behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagedOptions {
    /// The most that may be mapped; `None` leaves it to the device.
    pub limit: Option<Bytes>,
    /// The range of addresses, at most 2 TiB. Several times the device's memory keeps addresses from running short.
    pub addresses: Bytes,
    /// Blocks of one size that may wait for a request of the same size. Zero merges every block at once.
    pub held: u32,
    /// How much more than the peak of the live bytes may be mapped before holes are taken apart, in 1/1024 of that peak.
    /// Zero takes holes apart before any growth.
    pub slack: u32,
}

impl Default for PagedOptions {
    fn default() -> Self {
        Self { limit: None, addresses: Bytes(2 << 40), held: 64, slack: 3 }
    }
}

/// Counts of what the device was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Calls of `map`.
    pub maps: u64,
    /// Calls of `unmap`.
    pub unmaps: u64,
    /// Pages mapped.
    pub pages_mapped: u64,
    /// Pages unmapped.
    pub pages_unmapped: u64,
    /// Misses that first merged the held blocks.
    pub merges: u64,
}

/// The allocator; see the module.
pub struct Paged<S> {
    arena: Arena,
    /// For each bin of the small and large set: blocks that wait, linked by `after`, with their depth in `before`.
    held: Box<[u32; HELD]>,
    live: u64,
    peak_live: u64,
    allocations: u64,
    frees: u64,
    failures: u64,
    /// Pages that have memory.
    mapped: u32,
    peak_mapped: u32,
    /// The free bytes when a search through all of them last found less than the pages it needed; else 0.
    fruitless: u64,
    limit: u32,
    options: PagedOptions,
    counts: PageCounts,
    /// Why the last request failed, on its way to the caller.
    error: Option<Box<AllocateError>>,
    /// For each list of `held`: it may hold a block.
    waiting: [u64; WAITING],
    /// For each word of `waiting`: it may have a bit.
    waiting_words: u32,
    source: S,
}

const HELD: usize = 2 * BINS as usize;
const WAITING: usize = HELD / 64;

impl<S: PageSource> Paged<S> {
    /// An empty allocator: nothing is mapped.
    pub fn new(options: PagedOptions, source: S) -> Self {
        let mut arena = Arena::new();
        let pages = (options.addresses.get() / PAGE).clamp(1, u64::from(u32::MAX / PAGE_UNITS)) as u32;
        arena.open(0, pages * PAGE_UNITS, HOLE);
        let limit = options.limit.map_or(pages, |limit| (limit.get() / PAGE).min(u64::from(pages)) as u32);
        Self {
            arena,
            held: Box::new([0; HELD]),
            live: 0,
            peak_live: 0,
            allocations: 0,
            frees: 0,
            failures: 0,
            mapped: 0,
            peak_mapped: 0,
            fruitless: 0,
            limit,
            options,
            counts: PageCounts::default(),
            error: None,
            waiting: [0; WAITING],
            waiting_words: 0,
            source,
        }
    }

    /// What the device was asked for so far.
    pub fn page_counts(&self) -> PageCounts {
        self.counts
    }

    /// Entries of the block table that were ever used: what its memory grows with.
    pub fn entries(&self) -> u64 {
        u64::from(self.arena.nodes.ever_taken())
    }

    /// The source of pages.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Sets another limit. Below what is mapped it only stops growth; see [`Allocator::trim`].
    pub fn set_limit(&mut self, limit: Option<Bytes>) {
        self.limit = limit.map_or(u32::MAX / PAGE_UNITS, |limit| (limit.get() / PAGE).min(1 << 20) as u32);
        self.options.limit = limit;
    }

    /// The part of `allocate` that most calls run: a held block of the size, else a free block, else growth.
    #[inline(always)]
    fn place(&mut self, bytes: u64) -> Allocated {
        let units = ((bytes - 1) >> UNIT_BITS) as u32 + 1;
        let slot = slot_of(units);
        let mut node = self.held[slot as usize % HELD];
        if self.arena.nodes.size(node) == units {
            self.held[slot as usize % HELD] = self.arena.nodes.after(node);
            self.arena.nodes.set_second_note(node, slot);
        } else {
            node = self.place_from_bins(units, bytes, slot);
            if node == 0 {
                return Err(self.take_error());
            }
        }
        Ok(self.hand_out(node, units, bytes))
    }

    /// A block from the bins, or 0 and an error kept in `error`.
    #[inline(never)]
    fn place_from_bins(&mut self, units: u32, bytes: u64, slot: u32) -> u32 {
        let mut bin = self.arena.find_bin(units, slot);
        if bin == 0 {
            bin = self.grow(units, bytes);
            if bin == 0 {
                return 0;
            }
        }
        let mut node = self.arena.newest(bin);
        if slot <= CUT_TOGETHER
            && bin < BINS
            && self.arena.nodes.size(node) > units * TOGETHER
            && self.options.held >= TOGETHER
        {
            node = self.cut_together(node, units, bin);
            if node == 0 {
                return self.full();
            }
            self.arena.nodes.set_second_note(node, slot);
            return node;
        }
        node = self.arena.carve(node, units, bin);
        if node == 0 {
            return self.full();
        }
        self.arena.nodes.set_state(node, USED | (bin / BINS));
        self.arena.nodes.set_second_note(node, slot);
        node
    }

    /// Cuts several tiny blocks off a free one: the first is the answer, the others wait for the next requests.
    /// No block of the size waits, as each of these lists has one size. 0 when the table is full.
    fn cut_together(&mut self, node: u32, units: u32, bin: u32) -> u32 {
        let (first, count) = self.arena.carve_run(node, units, TOGETHER, bin);
        if count > 1 {
            let nodes = &mut self.arena.nodes;
            let mut waiting = nodes.next(first);
            self.held[units as usize % HELD] = waiting;
            for depth in (1..count).rev() {
                let after = nodes.next(waiting);
                nodes.set_first_note(waiting, depth);
                nodes.set_after(waiting, if depth > 1 { after } else { 0 });
                waiting = after;
            }
            self.waiting[0] |= 1 << units;
            self.waiting_words |= 1;
        }
        first
    }

    #[inline(always)]
    fn hand_out(&mut self, node: u32, units: u32, bytes: u64) -> Block {
        let nodes = &mut self.arena.nodes;
        // The padding, at most a unit, is all that must be kept to know the bytes asked for.
        nodes.set_first_note(node, (units << UNIT_BITS).wrapping_sub(bytes as u32));
        let generation = nodes.generation(node) | 1;
        nodes.set_generation(node, generation);
        let offset = u64::from(nodes.offset(node)) * UNIT;
        self.live += bytes;
        if self.live > self.peak_live {
            self.peak_live = self.live;
        }
        self.allocations += 1;
        let generation = NonZeroU32::MIN | generation;
        Block { handle: Handle { index: node, generation }, offset: Offset(offset) }
    }

    /// Merges a freed block with its neighbours.
    #[inline(never)]
    fn release(&mut self, node: u32, bytes: u64) -> Result<Bytes, HandleError> {
        let set = self.arena.nodes.state(node) & SET;
        self.arena.release(node, set);
        Ok(Bytes(bytes))
    }

    #[cold]
    #[inline(never)]
    fn full(&mut self) -> u32 {
        self.error = Some(Box::new(AllocateError::TooManyBlocks { limit: (ENTRIES as u32 - HEADS).into() }));
        0
    }

    #[cold]
    #[inline(never)]
    fn take_error(&mut self) -> Box<AllocateError> {
        self.failures += 1;
        self.error.take().unwrap_or_else(|| Box::new(AllocateError::ZeroSize))
    }

    #[cold]
    #[inline(never)]
    fn refuse(&mut self, error: AllocateError) -> Box<AllocateError> {
        self.failures += 1;
        Box::new(error)
    }

    #[cold]
    #[inline(never)]
    fn odd_request(&mut self, request: Request) -> Allocated {
        if let Err(error) = request.check(Bytes(1 << LARGEST_BITS)) {
            return Err(self.refuse(error));
        }
        if request.alignment.get() <= UNIT { self.place(request.bytes.get()) } else { self.place_aligned(request) }
    }

    #[inline(always)]
    fn find_live(&self, handle: Handle) -> bool {
        // An odd generation is a live block's. A made-up even one equals none of those.
        Nodes::is_name(handle.index) && self.arena.nodes.generation(handle.index) == handle.generation.get() | 1
    }

    #[cold]
    #[inline(never)]
    fn bad_handle(&self, handle: Handle) -> HandleError {
        if !Nodes::is_name(handle.index)
            || handle.index < head_of(HEADS)
            || handle.index >= self.arena.nodes.ever_used()
        {
            HandleError::Foreign { handle, entries: u64::from(self.arena.nodes.ever_used()) }
        } else {
            HandleError::Stale { handle, current: self.arena.nodes.generation(handle.index) }
        }
    }
}

impl<S: PageSource> Allocator for Paged<S> {
    fn name(&self) -> &'static str {
        "paged"
    }

    #[inline]
    fn allocate(&mut self, request: Request) -> Allocated {
        // Zero wraps to the largest number, so one comparison finds both.
        if request.bytes.get().wrapping_sub(1) >> LARGEST_BITS != 0 || request.alignment != Alignment::ONE {
            return self.odd_request(request);
        }
        self.place(request.bytes.get())
    }

    #[inline]
    fn free(&mut self, handle: Handle) -> Result<Bytes, HandleError> {
        if !self.find_live(handle) {
            self.failures += 1;
            return Err(self.bad_handle(handle));
        }
        let mut node = handle.index;
        let nodes = &mut self.arena.nodes;
        let bytes = u64::from(nodes.size(node)) * UNIT - u64::from(nodes.first_note(node));
        let slot = nodes.second_note(node);
        self.live -= bytes;
        self.frees += 1;
        let generation = handle.generation.get().wrapping_add(1);
        nodes.set_generation(node, generation);
        if generation == 0 {
            node = self.arena.renew(node);
        }
        let nodes = &mut self.arena.nodes;
        let top = self.held[slot as usize % HELD];
        let depth = nodes.first_note(top) + 1;
        let most = if slot < TINY { self.options.held.saturating_mul(TINY_HELD) } else { self.options.held };
        if depth > most {
            return self.release(node, bytes);
        }
        nodes.set_first_note(node, depth);
        nodes.set_after(node, top);
        self.held[slot as usize % HELD] = node;
        if top == 0 {
            let word = slot >> 6;
            self.waiting[word as usize % WAITING] |= 1 << (slot & 63);
            self.waiting_words |= 1 << (word & 31);
        }
        Ok(Bytes(bytes))
    }

    fn block(&self, handle: Handle) -> Result<LiveBlock, HandleError> {
        if self.find_live(handle) { Ok(self.live_block(handle.index)) } else { Err(self.bad_handle(handle)) }
    }

    fn statistics(&self) -> Statistics {
        let mut granted = 0;
        self.for_each_live(&mut |block| granted += block.granted.get());
        let largest = self.arena.largest(LARGE).max(self.arena.largest(SMALL));
        Statistics {
            live: Bytes(self.live),
            peak_live: Bytes(self.peak_live),
            granted: Bytes(granted),
            reserved: Bytes(u64::from(self.mapped) * PAGE),
            peak_reserved: Bytes(u64::from(self.peak_mapped) * PAGE),
            largest_free: Bytes(u64::from(largest) * UNIT),
            blocks: self.allocations - self.frees,
            allocations: self.allocations,
            frees: self.frees,
            failures: self.failures,
        }
    }

    fn for_each_live(&self, visit: &mut dyn FnMut(LiveBlock)) {
        let mut node = self.arena.first();
        while node != 0 {
            if self.is_live(node) {
                visit(self.live_block(node));
            }
            node = self.arena.nodes.next(node);
        }
    }

    fn trim(&mut self, keep: Bytes) -> Bytes {
        self.merge_held(SMALL, 0, u32::MAX);
        self.merge_held(LARGE, 0, u32::MAX);
        let keep = keep.get().div_ceil(PAGE).min(u64::from(u32::MAX)) as u32;
        let wanted = self.mapped.saturating_sub(keep);
        let taken = self.harvest(LARGE, wanted);
        let taken = taken + self.harvest(SMALL, wanted - taken);
        Bytes(u64::from(taken) * PAGE)
    }

    fn verify(&self) -> Result<(), String> {
        self.arena.verify()?;
        self.verify_books()
    }
}

/// The list of held blocks, and the first bin to search, of a size.
#[inline(always)]
fn slot_of(units: u32) -> u32 {
    bin_of(units) + if units > SMALL_UNITS { LARGE * BINS } else { SMALL }
}

impl<S> Paged<S> {
    /// Whether a block is handed out: one that is held looks used to its neighbours, but its generation is even.
    fn is_live(&self, node: u32) -> bool {
        self.arena.nodes.state(node) & !SET == USED && self.arena.nodes.generation(node) & 1 == 1
    }

    fn live_block(&self, node: u32) -> LiveBlock {
        let nodes = &self.arena.nodes;
        let granted = u64::from(nodes.size(node)) * UNIT;
        LiveBlock {
            handle: Handle { index: node, generation: NonZeroU32::MIN | nodes.generation(node) },
            offset: Offset(u64::from(nodes.offset(node)) * UNIT),
            requested: Bytes(granted - u64::from(nodes.first_note(node))),
            granted: Bytes(granted),
        }
    }
}

#[cfg(test)]
mod tests;
