//! Static plan and pool together: what comes as planned goes where it was planned, everything else comes from a pool.
//!
//! ```text
//!   offset 0          plan.capacity
//!     |## planned ##|..|#####|        pool ...
//!     served by a comparison          any allocator, its offsets moved up
//! ```
//! The plan says the calls of one iteration in order. A call that is the expected one needs no search.
//! When calls differ from the plan, nothing breaks:
//!
//! - a request of another size, or one too many, comes from the pool (a *miss*); with [`Hybrid::with_smaller`]
//!   a smaller one is served from the plan;
//! - a block that lives longer than planned keeps its place; whoever was planned into it goes to the pool (*late*);
//! - a planned allocation that never comes is skipped.

use crate::allocator::Allocator;
use crate::block::{AllocateError, Allocated, Block, Handle, HandleError, LiveBlock, Request, Shortage};
use crate::script::{Script, Step};
use crate::statistics::Statistics;
use npumem_ir::{Alignment, Bytes, Offset};
use std::num::NonZeroU32;

/// Marks the handles of planned blocks.
const PLANNED: u32 = 1 << 31;
/// How many planned calls ahead a request is looked for.
const WINDOW: usize = 16;
/// No position in the plan.
const NOWHERE: usize = usize::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    generation: u32,
    live: bool,
    /// What was asked for: as planned, or less.
    bytes: u64,
}

/// How the plan served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HybridCounts {
    /// Allocations from the plan.
    pub hits: u64,
    /// Allocations that the plan did not expect.
    pub misses: u64,
    /// Allocations whose planned place was still taken.
    pub late: u64,
    /// Planned allocations that never came.
    pub skipped: u64,
    /// Iterations begun.
    pub iterations: u64,
}

impl HybridCounts {
    /// The share of the allocations that the plan served.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        let all = self.hits + self.misses + self.late;
        if all == 0 { 0.0 } else { self.hits as f64 / all as f64 }
    }
}

/// A plan in front of a pool; see the module.
pub struct Hybrid<P> {
    script: Script,
    slots: Vec<Slot>,
    /// The next expected call.
    cursor: usize,
    /// Where the cursor stood before it last jumped ahead: what made it jump may have been a request too many.
    left: usize,
    /// Every planned block is where and when the plan has it, so no two can meet.
    exact: bool,
    /// A request that is smaller than planned is served too.
    smaller: bool,
    planned_live: u64,
    planned_bytes: u64,
    pool: P,
    live: u64,
    peak_live: u64,
    allocations: u64,
    frees: u64,
    failures: u64,
    counts: HybridCounts,
}

impl<P: Allocator> Hybrid<P> {
    /// A verified plan and a pool for the rest. The pool's offsets start at the plan's capacity,
    /// rounded up to a multiple of 2 MiB so that it keeps alignments.
    pub fn new(script: Script, pool: P) -> Self {
        Self {
            slots: vec![Slot::default(); script.blocks.len()],
            script,
            cursor: 0,
            left: NOWHERE,
            exact: true,
            smaller: false,
            planned_live: 0,
            planned_bytes: 0,
            pool,
            live: 0,
            peak_live: 0,
            allocations: 0,
            frees: 0,
            failures: 0,
            counts: HybridCounts::default(),
        }
    }

    /// Also serves requests that are smaller than planned: for a plan of the longest sequence, or the longest of a bucket.
    /// What such a request leaves of its place is padding.
    #[must_use]
    pub fn with_smaller(mut self) -> Self {
        self.smaller = true;
        self
    }

    /// Whether a planned place serves a request.
    #[inline]
    fn serves(&self, planned: u64, bytes: u64) -> bool {
        planned == bytes || (self.smaller && bytes < planned && bytes > 0)
    }

    /// Says that the planned sequence begins again.
    pub fn begin_iteration(&mut self) {
        self.cursor = 0;
        self.left = NOWHERE;
        self.exact = self.planned_live == 0;
        self.counts.iterations += 1;
    }

    /// How the plan served so far.
    pub fn counts(&self) -> HybridCounts {
        self.counts
    }

    /// The pool.
    pub fn pool(&self) -> &P {
        &self.pool
    }

    fn pool_base(&self) -> u64 {
        self.script.capacity.next_multiple_of(2 << 20)
    }

    /// The planned block that a request is, if the plan has it next or soon.
    #[inline]
    fn expected(&mut self, bytes: u64) -> Option<u32> {
        if let Some(Step::Allocate(block)) = self.script.steps.get(self.cursor)
            && self.serves(self.script.blocks[*block as usize].bytes.get(), bytes)
        {
            let block = *block;
            self.cursor += 1;
            return Some(block);
        }
        self.look_ahead(bytes)
    }

    /// The planned block that a request is which is not the next one.
    ///
    /// ```text
    ///   plan       1000   500   1000   700          a request for 1000 too many comes after the first
    ///   requests   1000  (1000)  500  1000  700     it takes the third place; the request for 500 shows that
    ///                                               nothing was left out, and the plan goes on where it was
    /// ```
    #[cold]
    fn look_ahead(&mut self, bytes: u64) -> Option<u32> {
        if let Some(block) = self.look_back(bytes) {
            return Some(block);
        }
        let end = self.script.steps.len().min(self.cursor.saturating_add(WINDOW));
        let mut skipped = 0;
        for index in self.cursor..end {
            match self.script.steps[index] {
                Step::Allocate(block) if self.serves(self.script.blocks[block as usize].bytes.get(), bytes) => {
                    for step in &self.script.steps[self.cursor..index] {
                        if let Step::Free(block) = step
                            && self.slots[*block as usize].live
                        {
                            // It outlives its planned end.
                            self.exact = false;
                        }
                    }
                    self.counts.skipped += skipped;
                    self.left = if skipped > 0 { self.cursor } else { NOWHERE };
                    self.cursor = index + 1;
                    return Some(block);
                }
                Step::Allocate(_) => skipped += 1,
                Step::Free(_) => {}
            }
        }
        None
    }

    /// The planned call that the last jump left, if a request is that one after all: then the plan goes on from there.
    fn look_back(&mut self, bytes: u64) -> Option<u32> {
        let left = std::mem::replace(&mut self.left, NOWHERE);
        if left == NOWHERE || self.cursor - left > WINDOW {
            return None;
        }
        let (index, block) = (left..self.cursor).find_map(|index| match self.script.steps[index] {
            Step::Allocate(block) => Some((index, block)),
            Step::Free(_) => None,
        })?;
        if !self.serves(self.script.blocks[block as usize].bytes.get(), bytes) {
            return None;
        }
        let again =
            self.script.steps[index..self.cursor].iter().filter(|step| matches!(step, Step::Allocate(_))).count();
        // The last of them was served; the others counted as skipped.
        self.counts.skipped = self.counts.skipped.saturating_sub(again as u64 - 1);
        self.cursor = index + 1;
        // What was served ahead of its time may lie in the place of what comes before it.
        self.exact = false;
        Some(block)
    }

    /// Whether nothing live shares bytes with a planned block.
    fn has_place(&self, block: u32) -> bool {
        let slot = self.slots[block as usize];
        !slot.live
            && slot.generation < u32::MAX
            && (self.exact || self.script.rivals[block as usize].iter().all(|rival| !self.slots[*rival as usize].live))
    }

    fn take_from_pool(&mut self, request: Request) -> Allocated {
        let base = self.pool_base();
        match self.pool.allocate(request) {
            Ok(block) => {
                self.count(request.bytes.get());
                Ok(Block { offset: Offset(base.saturating_add(block.offset.get())), ..block })
            }
            Err(mut error) => {
                self.failures += 1;
                if let AllocateError::OutOfMemory(shortage) = &*error {
                    let limit = shortage.limit.map(|limit| limit.get().saturating_add(self.script.capacity));
                    *error = AllocateError::OutOfMemory(Shortage::of(request, &self.statistics(), limit));
                }
                Err(error)
            }
        }
    }

    #[inline]
    fn count(&mut self, bytes: u64) {
        self.live += bytes;
        self.peak_live = self.peak_live.max(self.live);
        self.allocations += 1;
    }

    fn planned(&self, handle: Handle) -> Result<u32, HandleError> {
        let index = handle.index & !PLANNED;
        match self.slots.get(index as usize) {
            Some(slot) if slot.live && slot.generation == handle.generation.get() => Ok(index),
            Some(slot) => Err(HandleError::Stale { handle, current: slot.generation }),
            None => Err(HandleError::Foreign { handle, entries: self.slots.len() as u64 }),
        }
    }

    fn planned_block(&self, index: u32) -> LiveBlock {
        let planned = self.script.blocks[index as usize];
        let generation = NonZeroU32::MIN.saturating_add(self.slots[index as usize].generation.max(1) - 1);
        LiveBlock {
            handle: Handle { index: index | PLANNED, generation },
            offset: planned.offset,
            requested: Bytes(self.slots[index as usize].bytes),
            granted: planned.bytes,
        }
    }
}

impl<P: Allocator> Allocator for Hybrid<P> {
    fn name(&self) -> &'static str {
        "hybrid"
    }

    #[inline]
    fn allocate(&mut self, request: Request) -> Allocated {
        let bytes = request.bytes.get();
        match self.expected(bytes) {
            Some(block) if self.has_place(block) => {
                let planned = self.script.blocks[block as usize];
                if request.alignment != Alignment::ONE
                    && (!request.alignment.get().is_power_of_two() || !request.alignment.divides(planned.offset))
                {
                    self.counts.misses += 1;
                    return self.take_from_pool(request);
                }
                let slot = &mut self.slots[block as usize];
                slot.live = true;
                slot.bytes = bytes;
                slot.generation += 1;
                let generation = NonZeroU32::MIN.saturating_add(slot.generation - 1);
                self.counts.hits += 1;
                self.planned_live += 1;
                self.planned_bytes += planned.bytes.get();
                self.count(bytes);
                Ok(Block { handle: Handle { index: block | PLANNED, generation }, offset: planned.offset })
            }
            Some(_) => {
                self.counts.late += 1;
                self.take_from_pool(request)
            }
            None => {
                self.counts.misses += 1;
                self.take_from_pool(request)
            }
        }
    }

    #[inline]
    fn free(&mut self, handle: Handle) -> Result<Bytes, HandleError> {
        let freed = if handle.index & PLANNED == 0 {
            self.pool.free(handle)
        } else {
            self.planned(handle).map(|index| {
                self.slots[index as usize].live = false;
                if self.script.steps.get(self.cursor) == Some(&Step::Free(index)) {
                    self.cursor += 1;
                }
                self.planned_live -= 1;
                self.planned_bytes -= self.script.blocks[index as usize].bytes.get();
                Bytes(self.slots[index as usize].bytes)
            })
        };
        match freed {
            Ok(bytes) => {
                self.live -= bytes.get();
                self.frees += 1;
                Ok(bytes)
            }
            Err(error) => {
                self.failures += 1;
                Err(error)
            }
        }
    }

    fn block(&self, handle: Handle) -> Result<LiveBlock, HandleError> {
        if handle.index & PLANNED == 0 {
            let block = self.pool.block(handle)?;
            return Ok(LiveBlock { offset: Offset(self.pool_base().saturating_add(block.offset.get())), ..block });
        }
        self.planned(handle).map(|index| self.planned_block(index))
    }

    fn statistics(&self) -> Statistics {
        let pool = self.pool.statistics();
        Statistics {
            live: Bytes(self.live),
            peak_live: Bytes(self.peak_live),
            granted: Bytes(self.planned_bytes + pool.granted.get()),
            reserved: Bytes(self.script.capacity + pool.reserved.get()),
            peak_reserved: Bytes(self.script.capacity + pool.peak_reserved.get()),
            largest_free: pool.largest_free,
            blocks: self.allocations - self.frees,
            allocations: self.allocations,
            frees: self.frees,
            failures: self.failures,
        }
    }

    fn for_each_live(&self, visit: &mut dyn FnMut(LiveBlock)) {
        for (index, slot) in self.slots.iter().enumerate() {
            if slot.live {
                visit(self.planned_block(index as u32));
            }
        }
        let base = self.pool_base();
        self.pool.for_each_live(&mut |block| {
            visit(LiveBlock { offset: Offset(base.saturating_add(block.offset.get())), ..block });
        });
    }

    fn trim(&mut self, keep: Bytes) -> Bytes {
        self.pool.trim(keep.saturating_sub(self.script.capacity))
    }

    fn verify(&self) -> Result<(), String> {
        let mut live: Vec<LiveBlock> = Vec::new();
        let mut bytes = 0;
        for (index, slot) in self.slots.iter().enumerate() {
            if slot.live {
                live.push(self.planned_block(index as u32));
                bytes += self.script.blocks[index].bytes.get();
            }
        }
        live.sort_by_key(|block| block.offset);
        for pair in live.windows(2) {
            if pair[0].offset.get() + pair[0].granted.get() > pair[1].offset.get() {
                return Err(format!("planned {} and {} overlap", pair[0].handle, pair[1].handle));
            }
        }
        if live.len() as u64 != self.planned_live || bytes != self.planned_bytes {
            return Err(format!("{} planned blocks live, the books say {}", live.len(), self.planned_live));
        }
        self.pool.verify()
    }
}

/// A pool of nothing: with it a [`Hybrid`] is a pure static plan, and what the plan does not have is refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPool {
    failures: u64,
}

impl Allocator for NoPool {
    fn name(&self) -> &'static str {
        "none"
    }

    fn allocate(&mut self, request: Request) -> Allocated {
        self.failures += 1;
        Err(Box::new(
            request
                .check(Bytes::MAX)
                .err()
                .unwrap_or_else(|| AllocateError::OutOfMemory(Shortage::of(request, &Statistics::default(), Some(0)))),
        ))
    }

    fn free(&mut self, handle: Handle) -> Result<Bytes, HandleError> {
        self.failures += 1;
        Err(HandleError::Foreign { handle, entries: 0 })
    }

    fn block(&self, handle: Handle) -> Result<LiveBlock, HandleError> {
        Err(HandleError::Foreign { handle, entries: 0 })
    }

    fn statistics(&self) -> Statistics {
        Statistics { failures: self.failures, ..Statistics::default() }
    }

    fn for_each_live(&self, _visit: &mut dyn FnMut(LiveBlock)) {}

    fn verify(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A static plan alone.
pub type StaticPlan = Hybrid<NoPool>;

#[cfg(test)]
mod tests;
