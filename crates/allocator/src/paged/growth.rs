//! What happens when no free block fits: merge what waits, move pages, or map more.

use super::{
    HELD, HOLE, LARGE, PAGE, PAGE_BIN, PAGE_UNITS, PageSource, Paged, SMALL, SMALL_UNITS, TINY, UNIT, WAITING, slot_of,
};
use crate::allocator::Allocator;
use crate::arena::bin_of;
use crate::block::{AllocateError, Allocated, Request, Shortage};
use crate::nodes::{BINS, FREE, SET, USED, head_of};
use npumem_ir::Bytes;

/// How many holes a miss looks at.
const CANDIDATES: u32 = 64;
/// How many blocks that wait a call merges before it rather asks the device: what bounds its work.
const MERGED_AT_ONCE: u32 = 32;

impl<S: PageSource> Paged<S> {
    /// Makes a free block of at least `units` and says in which bin it is, as the newest.
    #[cold]
    #[inline(never)]
    pub(super) fn grow(&mut self, units: u32, bytes: u64) -> u32 {
        let set = if units > SMALL_UNITS { LARGE } else { SMALL };
        let pages = units.div_ceil(PAGE_UNITS);
        let soft = self.soft_limit(bytes);
        let tight = self.mapped + pages > soft;
        if tight && set == SMALL {
            // A part of a page beside a large block serves nobody but small ones.
            let bin = self.arena.find_bin(units, slot_of(units) + LARGE * BINS);
            if bin != 0 && bin < LARGE * BINS + PAGE_BIN {
                return bin;
            }
        }
        // For every cut below: two ends of a harvested block, the part of a hole that is mapped, the block itself.
        if !self.arena.nodes.has_room(4) {
            return self.full();
        }
        // What was free when a search through all of it found no page is still no page, unless more was freed since.
        let hopeful = tight && self.free_bytes() >= self.fruitless;
        if hopeful && (self.merge_held(SMALL, TINY, MERGED_AT_ONCE) | self.merge_held(LARGE, 0, MERGED_AT_ONCE)) {
            let bin = self.arena.find_bin(units, slot_of(units));
            if bin != 0 {
                return bin;
            }
        }
        if hopeful {
            // The device is asked now, so the rest may merge too: holes need fewer pages then.
            self.merge_held(SMALL, TINY, u32::MAX);
            self.merge_held(LARGE, 0, u32::MAX);
        }
        let extended = match self.extend(units, set, soft, tight, hopeful) {
            Err(None) if self.merge_held(SMALL, 0, u32::MAX) | self.merge_held(LARGE, 0, u32::MAX) => {
                self.extend(units, set, soft, true, true)
            }
            extended => extended,
        };
        match extended {
            Ok(bin) => bin,
            Err(reason) => self.last_resort(units, bytes, reason),
        }
    }

    /// Up to here growth maps new memory without a look at the holes.
    fn soft_limit(&self, bytes: u64) -> u32 {
        let peak = self.peak_live.max(self.live + bytes);
        let share = (peak >> 10) * u64::from(self.options.slack);
        // A small pool may have two pages where its share is less, but not before they are a small part of it.
        let least = if self.options.slack == 0 { 0 } else { (2 * PAGE).min(peak >> 6) };
        let soft = (peak + share.max(least)) / PAGE;
        self.limit.min(soft.min(u64::from(u32::MAX)) as u32)
    }

    /// Bytes that are mapped and that nobody asked for.
    fn free_bytes(&self) -> u64 {
        u64::from(self.mapped) * PAGE - self.live
    }

    /// Before it fails: everything that is held is merged, and a small block may come from any large one.
    fn last_resort(&mut self, units: u32, bytes: u64, reason: Option<String>) -> u32 {
        self.merge_held(SMALL, 0, u32::MAX);
        self.merge_held(LARGE, 0, u32::MAX);
        for set in [slot_of(units) / BINS, LARGE] {
            let bin = self.arena.find_bin(units, bin_of(units) + set * BINS);
            if bin != 0 {
                return bin;
            }
        }
        let error = match reason {
            Some(reason) => AllocateError::Device { bytes: Bytes(u64::from(units) * UNIT), reason },
            None => {
                let limit = self.options.limit.map(Bytes::get);
                AllocateError::OutOfMemory(Shortage::of(Request::new(bytes), &self.statistics(), limit))
            }
        };
        self.error = Some(Box::new(error));
        0
    }

    /// Maps pages at the front of a hole so that they, with the free block before it, hold `units`.
    /// `Err(None)` when the limit or the addresses do not allow it.
    fn extend(&mut self, units: u32, set: u32, soft: u32, tight: bool, hopeful: bool) -> Result<u32, Option<String>> {
        let pages = units.div_ceil(PAGE_UNITS);
        let mut hole = if tight { self.best_hole(units, set) } else { self.first_hole(pages) };
        if hole == 0 {
            return Err(None);
        }
        let before = self.arena.nodes.previous(hole);
        let joined = self.arena.nodes.state(before) == FREE | set;
        let lent = if joined { self.arena.nodes.size(before).min(units - 1) } else { 0 };
        let wanted = (units - lent).div_ceil(PAGE_UNITS);
        if self.mapped + wanted > soft {
            let short = (self.mapped + wanted - soft).min(wanted);
            let mapped = self.mapped;
            hole = self.harvest_beside(hole, if joined { before } else { 0 }, short, hopeful);
            if hopeful {
                let all = mapped - self.mapped == short;
                self.fruitless = if all {
                    0
                } else {
                    self.free_bytes() + u64::from(wanted * PAGE_UNITS) * UNIT - u64::from(units) * UNIT
                };
            }
        }
        if self.mapped + wanted > self.limit {
            return Err(None);
        }
        self.source.map(self.arena.nodes.offset(hole) / PAGE_UNITS, wanted).map_err(Some)?;
        self.counts.maps += 1;
        self.counts.pages_mapped += u64::from(wanted);
        self.mapped += wanted;
        self.peak_mapped = self.peak_mapped.max(self.mapped);
        let bin = bin_of(self.arena.nodes.size(hole)) + HOLE * BINS;
        let mapped = self.arena.carve(hole, wanted * PAGE_UNITS, bin);
        let node = self.arena.release(mapped, set);
        Ok(bin_of(self.arena.nodes.size(node)) + set * BINS)
    }

    /// Harvests `wanted` pages, but not of the hole's neighbour `lender`, and says which block the hole is now: it may have grown.
    fn harvest_beside(&mut self, hole: u32, lender: u32, wanted: u32, hopeful: bool) -> u32 {
        // Out of their bins, and marked so that nothing merges with them.
        self.arena.unlink(hole);
        self.arena.nodes.set_state(hole, USED | HOLE);
        let set = self.arena.nodes.state(lender) & SET;
        if lender != 0 {
            self.arena.unlink(lender);
            self.arena.nodes.set_state(lender, USED | set);
        }
        let mut taken = self.harvest(LARGE, wanted);
        if taken < wanted && hopeful && (self.merge_held(SMALL, TINY, u32::MAX) | self.merge_held(LARGE, 0, u32::MAX)) {
            taken += self.harvest(LARGE, wanted - taken);
        }
        if taken < wanted {
            self.harvest(SMALL, wanted - taken);
        }
        // The hole first, while the lender does not look free: so the hole cannot move before it.
        let hole = self.arena.release(hole, HOLE);
        if lender != 0 {
            self.arena.release(lender, set);
        }
        hole
    }

    /// Among the first holes that hold the block, the one that needs the fewest pages and leaves the least beside it.
    fn best_hole(&self, units: u32, set: u32) -> u32 {
        let nodes = &self.arena.nodes;
        let least = 1;
        let mut bin = bin_of(PAGE_UNITS * least) + HOLE * BINS;
        let mut budget = CANDIDATES;
        let (mut best, mut best_cost) = (0, (u32::MAX, u32::MAX));
        loop {
            let mut node = self.arena.newest(bin);
            while node != head_of(bin) && budget > 0 {
                budget -= 1;
                let before = nodes.previous(node);
                let lent = if nodes.state(before) == FREE | set { nodes.size(before).min(units - 1) } else { 0 };
                let wanted = (units - lent).div_ceil(PAGE_UNITS);
                let size = nodes.size(node);
                if size >= wanted * PAGE_UNITS {
                    let mut over = lent + wanted * PAGE_UNITS - units;
                    if size == wanted * PAGE_UNITS && nodes.state(nodes.next(node)) == FREE | set {
                        over = 0;
                    }
                    let cost = (wanted, over);
                    if cost < best_cost {
                        best_cost = cost;
                        best = node;
                    }
                }
                node = nodes.after(node);
            }
            bin = self.arena.next_bin(bin);
            if bin == 0 || budget == 0 {
                break;
            }
        }
        if best == 0 { self.first_hole(units.div_ceil(PAGE_UNITS)) } else { best }
    }

    /// Some hole of at least so many pages, 0 when there is none.
    fn first_hole(&self, pages: u32) -> u32 {
        let size = pages * PAGE_UNITS;
        self.arena.newest(self.arena.find_bin(size, bin_of(size) + HOLE * BINS))
    }

    /// Unmaps up to `wanted` whole pages of free blocks of the set, largest block first, and says how many.
    pub(super) fn harvest(&mut self, set: u32, wanted: u32) -> u32 {
        let mut taken = 0;
        let mut bin = self.arena.last_bin(set);
        while taken < wanted && bin != 0 && bin % BINS >= bin_of(PAGE_UNITS) {
            let mut node = self.arena.newest(bin);
            while node != head_of(bin) && taken < wanted {
                let after = self.arena.nodes.after(node);
                if !self.arena.nodes.has_room(2) {
                    return taken;
                }
                taken += self.harvest_block(node, set, wanted - taken);
                node = after;
            }
            bin = self.arena.bin_before(bin);
        }
        taken
    }

    /// Unmaps up to `wanted` whole pages of one free block.
    ///
    /// ```text
    ///   page      |        |        |        |
    ///   block          |=====================|===|
    ///   becomes        |===|..... hole ......|===|
    /// ```
    fn harvest_block(&mut self, node: u32, set: u32, wanted: u32) -> u32 {
        let start = self.arena.nodes.offset(node);
        let end = start + self.arena.nodes.size(node);
        let first = start.div_ceil(PAGE_UNITS);
        let pages = (end / PAGE_UNITS).saturating_sub(first).min(wanted);
        if pages == 0 {
            return 0;
        }
        self.arena.unlink(node);
        let mut hole = node;
        if first * PAGE_UNITS > start {
            hole = self.arena.split(node, first * PAGE_UNITS - start);
            self.arena.insert(node, set);
        }
        if end > (first + pages) * PAGE_UNITS {
            let rest = self.arena.split(hole, pages * PAGE_UNITS);
            self.arena.insert(rest, set);
        }
        self.arena.release(hole, HOLE);
        self.source.unmap(first, pages);
        self.mapped -= pages;
        self.counts.unmaps += 1;
        self.counts.pages_unmapped += u64::from(pages);
        pages
    }

    /// Merges blocks that are held for sizes of the set, from list `from` of the set on, at most `budget`, and says whether there was one.
    pub(super) fn merge_held(&mut self, set: u32, from: u32, budget: u32) -> bool {
        const WORDS: u32 = BINS / 64;
        let of_set = ((1 << WORDS) - 1) << (set * WORDS);
        let mut words = self.waiting_words & of_set;
        let mut left = budget;
        while words != 0 && left > 0 {
            let word = words.trailing_zeros();
            words &= words - 1;
            let all = self.waiting[word as usize % WAITING];
            let mut bits = if word.is_multiple_of(WORDS) { all & (!0 << from) } else { all };
            let kept = all & !bits;
            while bits != 0 && left > 0 {
                let slot = (word * 64 + bits.trailing_zeros()) as usize;
                let mut node = self.held[slot % HELD];
                while node != 0 && left > 0 {
                    let after = self.arena.nodes.after(node);
                    let set = self.arena.nodes.state(node) & SET;
                    self.arena.release(node, set);
                    node = after;
                    left -= 1;
                }
                self.held[slot % HELD] = node;
                if node == 0 {
                    bits &= bits - 1;
                }
            }
            self.waiting[word as usize % WAITING] = bits | kept;
            if bits | kept == 0 {
                self.waiting_words &= !(1 << word);
            }
        }
        let any = left < budget;
        self.counts.merges += u64::from(any);
        any
    }

    /// A block whose offset is a multiple of more than a unit: a larger one, cut to measure at both ends.
    pub(super) fn place_aligned(&mut self, request: Request) -> Allocated {
        let bytes = request.bytes.get();
        let units = bytes.div_ceil(UNIT) as u32;
        let step = request.alignment.get() / UNIT;
        let padded = u64::from(units) + step - 1;
        let limit = u64::from(u32::MAX / PAGE_UNITS * PAGE_UNITS);
        if padded > limit {
            return Err(self.refuse(AllocateError::TooLarge { requested: request.bytes, limit: Bytes(limit * UNIT) }));
        }
        if !self.arena.nodes.has_room(6) {
            self.full();
            return Err(self.take_error());
        }
        let padded = padded as u32;
        let mut bin = self.arena.find_bin(padded, slot_of(padded));
        if bin == 0 {
            bin = self.grow(padded, bytes);
            if bin == 0 {
                return Err(self.take_error());
            }
        }
        let set = bin / BINS;
        let mut node = self.arena.carve(self.arena.newest(bin), padded, bin);
        self.arena.nodes.set_state(node, USED | set);
        let start = u64::from(self.arena.nodes.offset(node));
        let lead = (start.next_multiple_of(step) - start) as u32;
        if lead > 0 {
            let rest = self.arena.split(node, lead);
            self.arena.nodes.set_state(rest, USED | set);
            self.arena.release(node, set);
            node = rest;
        }
        if self.arena.nodes.size(node) > units {
            let rest = self.arena.split(node, units);
            self.arena.release(rest, set);
        }
        self.arena.nodes.set_second_note(node, slot_of(units));
        Ok(self.hand_out(node, units, bytes))
    }

    pub(super) fn verify_books(&self) -> Result<(), String> {
        let nodes = &self.arena.nodes;
        let (mut live, mut mapped, mut blocks, mut waiting) = (0_u64, 0_u64, 0_u64, 0_u64);
        let mut node = self.arena.first();
        while node != 0 {
            let (state, size) = (nodes.state(node), u64::from(nodes.size(node)));
            if state & SET == HOLE {
                if state != FREE | HOLE
                    || !nodes.offset(node).is_multiple_of(PAGE_UNITS)
                    || size % u64::from(PAGE_UNITS) != 0
                {
                    return Err(format!("hole {node} is not made of whole pages"));
                }
            } else {
                mapped += size;
            }
            if self.is_live(node) {
                live += size * UNIT - u64::from(nodes.first_note(node));
                blocks += 1;
                let slot = nodes.second_note(node);
                if slot != slot_of(nodes.size(node)) {
                    return Err(format!("live block {node} would be held in list {slot}"));
                }
            } else {
                waiting += u64::from(state & !SET == USED);
            }
            node = nodes.next(node);
        }
        if live != self.live || blocks != self.allocations - self.frees {
            return Err(format!("{live} live bytes in {blocks} blocks, the books say {}", self.live));
        }
        if mapped != u64::from(self.mapped) * u64::from(PAGE_UNITS) {
            return Err(format!("{mapped} units mapped, the books say {} pages", self.mapped));
        }
        for slot in 0..HELD {
            let mut node = self.held[slot];
            while node != 0 {
                if nodes.state(node) & !SET != USED || nodes.generation(node) & 1 == 1 || waiting == 0 {
                    return Err(format!("block {node} waits but is marked {}", nodes.state(node)));
                }
                waiting -= 1;
                node = nodes.after(node);
            }
        }
        if waiting == 0 { Ok(()) } else { Err(format!("{waiting} waiting blocks are in no list")) }
    }
}
