//! A bump allocator (arena): the fastest there is for memory that is given back all at once.
//!
//! ```text
//!   |## a ##|## b ##|# c #|.............|
//!                         ^ top moves up; down when the newest block is freed, to zero when none is left
//! ```

use crate::allocator::Allocator;
use crate::block::{AllocateError, Allocated, Handle, HandleError, LiveBlock, Request, Shortage};
use crate::statistics::Statistics;
use crate::table::Table;
use npumem_ir::{Bytes, Offset};

/// Hands out the bytes after the last block. Freed memory comes back when the newest block is freed,
/// or when no block is left. `O(1)` a call.
#[derive(Clone, Debug)]
pub struct Bump {
    capacity: u64,
    top: u64,
    table: Table,
}

impl Bump {
    /// An arena of so many bytes.
    #[must_use]
    pub fn new(capacity: Bytes) -> Self {
        Self { capacity: capacity.get(), top: 0, table: Table::default() }
    }
}

impl Allocator for Bump {
    fn name(&self) -> &'static str {
        "bump"
    }

    fn allocate(&mut self, request: Request) -> Allocated {
        if let Err(error) = request.check(Bytes(self.capacity)) {
            return Err(self.table.refuse(error));
        }
        let bytes = request.bytes.get();
        let start = Offset(self.top).align_up(request.alignment).map_or(u64::MAX, Offset::get);
        match start.checked_add(bytes) {
            Some(end) if end <= self.capacity => {
                let block = self.table.enter(start, bytes, bytes)?;
                self.top = end;
                Ok(block)
            }
            _ => {
                let state = self.statistics();
                Err(self.table.refuse(AllocateError::OutOfMemory(Shortage::of(request, &state, Some(self.capacity)))))
            }
        }
    }

    fn free(&mut self, handle: Handle) -> Result<Bytes, HandleError> {
        let block = self.table.leave(handle)?;
        if block.offset.get() + block.granted.get() == self.top {
            self.top = block.offset.get();
        }
        if self.table.blocks() == 0 {
            self.top = 0;
        }
        Ok(block.requested)
    }

    fn block(&self, handle: Handle) -> Result<LiveBlock, HandleError> {
        self.table.find(handle)
    }

    fn statistics(&self) -> Statistics {
        self.table.statistics(self.capacity, self.capacity - self.top)
    }

    fn for_each_live(&self, visit: &mut dyn FnMut(LiveBlock)) {
        self.table.for_each(visit);
    }

    fn verify(&self) -> Result<(), String> {
        let mut end = 0;
        self.table.for_each(&mut |block| end = end.max(block.offset.get() + block.granted.get()));
        if end > self.top || self.top > self.capacity {
            return Err(format!("a block ends at {end}, the top is {} of {}", self.top, self.capacity));
        }
        self.table.verify()
    }
}
