//! Handles for the simple allocators: a table of blocks with generations.

use crate::block::{AllocateError, Block, Handle, HandleError, LiveBlock};
use crate::statistics::Statistics;
use npumem_ir::{Bytes, Offset};
use std::num::NonZeroU32;

#[derive(Clone, Copy, Debug)]
struct Entry {
    generation: u32,
    /// `granted` is zero when the entry is not in use.
    granted: u64,
    offset: u64,
    requested: u64,
}

/// The blocks of an allocator, their handles and the counts over them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    spare: Vec<u32>,
    live: u64,
    peak_live: u64,
    granted: u64,
    allocations: u64,
    frees: u64,
    failures: u64,
}

/// The most blocks a table holds.
const ENTRIES: usize = u32::MAX as usize;

impl Table {
    /// Enters a block.
    pub(crate) fn enter(&mut self, offset: u64, requested: u64, granted: u64) -> Result<Block, Box<AllocateError>> {
        let index = match self.spare.pop() {
            Some(index) => index,
            None if self.entries.len() < ENTRIES => {
                self.entries.push(Entry { generation: 0, granted: 0, offset: 0, requested: 0 });
                (self.entries.len() - 1) as u32
            }
            None => return Err(self.refuse(AllocateError::TooManyBlocks { limit: ENTRIES as u64 })),
        };
        let entry = &mut self.entries[index as usize];
        entry.generation += 1;
        (entry.offset, entry.requested, entry.granted) = (offset, requested, granted);
        let generation = NonZeroU32::MIN.saturating_add(entry.generation - 1);
        self.live += requested;
        self.granted += granted;
        self.peak_live = self.peak_live.max(self.live);
        self.allocations += 1;
        Ok(Block { handle: Handle { index, generation }, offset: Offset(offset) })
    }

    /// Takes a block out.
    pub(crate) fn leave(&mut self, handle: Handle) -> Result<LiveBlock, HandleError> {
        let block = match self.find(handle) {
            Ok(block) => block,
            Err(error) => {
                self.failures += 1;
                return Err(error);
            }
        };
        let entry = &mut self.entries[handle.index as usize];
        entry.granted = 0;
        // An entry whose generations are used up stays out: its last handle can never name another block.
        if entry.generation < u32::MAX {
            self.spare.push(handle.index);
        }
        self.live -= block.requested.get();
        self.granted -= block.granted.get();
        self.frees += 1;
        Ok(block)
    }

    pub(crate) fn find(&self, handle: Handle) -> Result<LiveBlock, HandleError> {
        match self.entries.get(handle.index as usize) {
            Some(entry) if entry.granted > 0 && entry.generation == handle.generation.get() => Ok(LiveBlock {
                handle,
                offset: Offset(entry.offset),
                requested: Bytes(entry.requested),
                granted: Bytes(entry.granted),
            }),
            Some(entry) => Err(HandleError::Stale { handle, current: entry.generation }),
            None => Err(HandleError::Foreign { handle, entries: self.entries.len() as u64 }),
        }
    }

    pub(crate) fn refuse(&mut self, error: AllocateError) -> Box<AllocateError> {
        self.failures += 1;
        Box::new(error)
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.allocations - self.frees
    }

    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(LiveBlock)) {
        for (index, entry) in self.entries.iter().enumerate() {
            if entry.granted > 0 {
                visit(LiveBlock {
                    handle: Handle {
                        index: index as u32,
                        generation: NonZeroU32::MIN.saturating_add(entry.generation - 1),
                    },
                    offset: Offset(entry.offset),
                    requested: Bytes(entry.requested),
                    granted: Bytes(entry.granted),
                });
            }
        }
    }

    /// The counts, for an allocator that has `reserved` bytes from the start.
    pub(crate) fn statistics(&self, reserved: u64, largest_free: u64) -> Statistics {
        Statistics {
            live: Bytes(self.live),
            peak_live: Bytes(self.peak_live),
            granted: Bytes(self.granted),
            reserved: Bytes(reserved),
            peak_reserved: Bytes(reserved),
            largest_free: Bytes(largest_free),
            blocks: self.blocks(),
            allocations: self.allocations,
            frees: self.frees,
            failures: self.failures,
        }
    }

    /// Checks the counts and that no two blocks overlap.
    pub(crate) fn verify(&self) -> Result<(), String> {
        let mut blocks = Vec::new();
        self.for_each(&mut |block| blocks.push(block));
        blocks.sort_by_key(|block| block.offset);
        for pair in blocks.windows(2) {
            if pair[0].offset.get() + pair[0].granted.get() > pair[1].offset.get() {
                return Err(format!("{} and {} overlap", pair[0].handle, pair[1].handle));
            }
        }
        let live: u64 = blocks.iter().map(|block| block.requested.get()).sum();
        let granted: u64 = blocks.iter().map(|block| block.granted.get()).sum();
        if (live, granted, blocks.len() as u64) == (self.live, self.granted, self.blocks()) {
            Ok(())
        } else {
            Err(format!("{live} live and {granted} granted bytes, the books say {} and {}", self.live, self.granted))
        }
    }

    #[cfg(test)]
    pub(crate) fn exhaust_generation(&mut self, index: u32) {
        self.entries[index as usize].generation = u32::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_whose_generations_are_used_up_is_not_handed_out_again() {
        let mut table = Table::default();
        table.enter(0, 1, 1).unwrap();
        table.exhaust_generation(0);
        let last = Handle { index: 0, generation: NonZeroU32::MAX };
        table.leave(last).unwrap();
        let next = table.enter(0, 1, 1).unwrap();
        assert_eq!(next.handle.index, 1);
        assert!(table.find(last).is_err());
    }
}
