//! A slab: slots of one size.
//!
//! ```text
//!   |slot 0|slot 1|slot 2|slot 3|...|     one stack of free slots
//! ```

use crate::allocator::Allocator;
use crate::block::{AllocateError, Allocated, Handle, HandleError, LiveBlock, Request, Shortage};
use crate::statistics::Statistics;
use crate::table::Table;
use npumem_ir::{Bytes, Offset};

/// Slots of one size; no external fragmentation. `O(1)` a call.
#[derive(Clone, Debug)]
pub struct Slab {
    slot: u64,
    slots: u32,
    /// Slots that came back.
    free: Vec<u32>,
    /// The first slot that was never used.
    fresh: u32,
    table: Table,
}

impl Slab {
    /// As many slots of `slot` bytes as fit in `capacity` (at most 2^32 - 1). A slot of zero bytes counts as one byte.
    #[must_use]
    pub fn new(slot: Bytes, capacity: Bytes) -> Self {
        let slot = slot.get().max(1);
        let slots = (capacity.get() / slot).min(u64::from(u32::MAX)) as u32;
        Self { slot, slots, free: Vec::new(), fresh: 0, table: Table::default() }
    }
}

impl Allocator for Slab {
    fn name(&self) -> &'static str {
        "slab"
    }

    fn allocate(&mut self, request: Request) -> Allocated {
        if let Err(error) = request.check(Bytes(self.slot)) {
            return Err(self.table.refuse(error));
        }
        if !request.alignment.divides(Offset(self.slot)) {
            let alignment = request.alignment;
            let limit = Bytes(1 << self.slot.trailing_zeros());
            return Err(self.table.refuse(AllocateError::BadAlignment { alignment, limit }));
        }
        let slot = match self.free.last() {
            Some(slot) => *slot,
            None if self.fresh < self.slots => self.fresh,
            None => {
                let limit = u64::from(self.slots) * self.slot;
                let error = AllocateError::OutOfMemory(Shortage::of(request, &self.statistics(), Some(limit)));
                return Err(self.table.refuse(error));
            }
        };
        let block = self.table.enter(u64::from(slot) * self.slot, request.bytes.get(), self.slot)?;
        if self.free.pop().is_none() {
            self.fresh += 1;
        }
        Ok(block)
    }

    fn free(&mut self, handle: Handle) -> Result<Bytes, HandleError> {
        let block = self.table.leave(handle)?;
        self.free.push((block.offset.get() / self.slot) as u32);
        Ok(block.requested)
    }

    fn block(&self, handle: Handle) -> Result<LiveBlock, HandleError> {
        self.table.find(handle)
    }

    fn statistics(&self) -> Statistics {
        let full = self.table.blocks() == u64::from(self.slots);
        self.table.statistics(u64::from(self.slots) * self.slot, if full { 0 } else { self.slot })
    }

    fn for_each_live(&self, visit: &mut dyn FnMut(LiveBlock)) {
        self.table.for_each(visit);
    }

    fn verify(&self) -> Result<(), String> {
        let used = u64::from(self.fresh) - self.free.len() as u64;
        if used != self.table.blocks() {
            return Err(format!("{used} slots in use, {} blocks", self.table.blocks()));
        }
        self.table.verify()
    }
}
