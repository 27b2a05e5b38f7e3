//! One allocator for several threads, with a small cache in front for each.
//!
//! ```text
//!   thread 1   Front  ready blocks by size | freed handles  \
//!   thread 2   Front  ready blocks by size | freed handles  --> one lock, one allocator
//! ```
//! A front takes small blocks in batches, each with a handle of its own that was never handed out, and gives freed
//! handles back in batches. So the lock is taken once for some blocks, and a stale handle is still found:
//! at once while it waits in the same front, else when the batch reaches the allocator.

use crate::allocator::Allocator;
use crate::block::{AllocateError, Allocated, Block, Handle, HandleError, Request};
use crate::statistics::Statistics;
use npumem_ir::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Requests up to this size are served from the front.
pub const FRONT_LIMIT: u64 = 64 << 10;
const STEP: u64 = 512;
const CLASSES: usize = (FRONT_LIMIT / STEP) as usize;

/// An allocator behind a lock. Clones share it.
pub struct Shared<A> {
    inner: Arc<Mutex<A>>,
}

impl<A> Clone for Shared<A> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<A: Allocator> Shared<A> {
    /// Shares an allocator.
    pub fn new(inner: A) -> Self {
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// The allocator itself, while nobody else uses it.
    pub fn lock(&self) -> MutexGuard<'_, A> {
        // The allocator's calls do not panic half way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A cache for one thread, which takes and gives `batch` blocks at a time; one and less is no cache.
    pub fn front(&self, batch: usize) -> Front<A> {
        Front {
            shared: self.clone(),
            batch: batch.min(64),
            ready: (0..CLASSES).map(|_| Vec::new()).collect(),
            freed: Vec::new(),
        }
    }

    /// The numbers of the allocator. Blocks that wait in fronts count as live, rounded up to 512 bytes.
    pub fn statistics(&self) -> Statistics {
        self.lock().statistics()
    }
}

/// A thread's cache; see the module. Dropping it gives everything back.
pub struct Front<A: Allocator> {
    shared: Shared<A>,
    batch: usize,
    ready: Vec<Vec<Block>>,
    freed: Vec<Handle>,
}

impl<A: Allocator> Front<A> {
    /// Allocates.
    ///
    /// # Errors
    /// As [`Allocator::allocate`]; before it fails the front gives everything back and tries once more.
    pub fn allocate(&mut self, request: Request) -> Allocated {
        let bytes = request.bytes.get();
        if bytes == 0 || bytes > FRONT_LIMIT || request.alignment.get() > 1 || self.batch <= 1 {
            return self.allocate_directly(request);
        }
        let class = ((bytes - 1) / STEP) as usize;
        if let Some(block) = self.ready[class].pop() {
            return Ok(block);
        }
        let rounded = Request::new((class as u64 + 1) * STEP);
        {
            let mut inner = self.shared.lock();
            for _ in 0..self.batch {
                match inner.allocate(rounded) {
                    Ok(block) => self.ready[class].push(block),
                    Err(_) => break,
                }
            }
        }
        match self.ready[class].pop() {
            Some(block) => Ok(block),
            None => self.allocate_directly(request),
        }
    }

    fn allocate_directly(&mut self, request: Request) -> Allocated {
        let first = self.shared.lock().allocate(request);
        match first {
            Err(error) if matches!(*error, AllocateError::OutOfMemory(_)) && self.holds_something() => {
                self.flush();
                self.shared.lock().allocate(request)
            }
            other => other,
        }
    }

    /// Frees a block of any front of the same allocator.
    ///
    /// # Errors
    /// When the handle is stale or foreign; a handle that was freed through another front may be found only by
    /// [`Self::flush`], which counts it.
    pub fn free(&mut self, handle: Handle) -> Result<(), HandleError> {
        if self.batch <= 1 {
            return self.shared.lock().free(handle).map(|_| ());
        }
        if self.freed.contains(&handle) {
            return Err(HandleError::Stale { handle, current: handle.generation.get() });
        }
        self.freed.push(handle);
        if self.freed.len() >= self.batch { self.flush_freed() } else { Ok(()) }
    }

    fn flush_freed(&mut self) -> Result<(), HandleError> {
        let mut inner = self.shared.lock();
        let mut outcome = Ok(());
        for handle in self.freed.drain(..) {
            if let Err(error) = inner.free(handle) {
                outcome = Err(error);
            }
        }
        outcome
    }

    fn holds_something(&self) -> bool {
        !self.freed.is_empty() || self.ready.iter().any(|list| !list.is_empty())
    }

    /// Gives everything that waits back, and says how many handles were stale.
    pub fn flush(&mut self) -> usize {
        let mut inner = self.shared.lock();
        let mut stale = 0;
        for handle in self.freed.drain(..) {
            stale += usize::from(inner.free(handle).is_err());
        }
        for block in self.ready.iter_mut().flat_map(|list| list.drain(..)) {
            stale += usize::from(inner.free(block.handle).is_err());
        }
        stale
    }

    /// Live bytes of the allocator, as [`Shared::statistics`].
    pub fn live(&self) -> Bytes {
        self.shared.statistics().live
    }
}

impl<A: Allocator> Drop for Front<A> {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tlsf::Tlsf;
    use std::collections::BTreeMap;
    use std::sync::mpsc::channel;

    #[test]
    fn threads_never_share_a_byte_and_nothing_is_lost() {
        let shared = Shared::new(Tlsf::new(Bytes(512), Bytes(64 << 20)));
        // Blocks wander: what one thread allocates another frees.
        let (sender, receiver) = channel::<(u64, u64, Handle, bool)>();
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let (shared, sender) = (shared.clone(), sender.clone());
                scope.spawn(move || {
                    let mut front = shared.front(8);
                    let mut own = Vec::new();
                    for index in 0..4_000_u64 {
                        let bytes = (index * 7919 + thread * 104_729) % 90_000 + 1;
                        if let Ok(block) = front.allocate(Request::new(bytes)) {
                            // Told before the free, so that the checker sees each block's whole life.
                            sender.send((block.offset.get(), bytes, block.handle, true)).unwrap();
                            own.push((block, bytes));
                        }
                        if index % 3 != 0 && !own.is_empty() {
                            let (block, bytes) = own.swap_remove((index % own.len() as u64) as usize);
                            sender.send((block.offset.get(), bytes, block.handle, false)).unwrap();
                            front.free(block.handle).unwrap();
                        }
                    }
                    for (block, bytes) in own {
                        sender.send((block.offset.get(), bytes, block.handle, false)).unwrap();
                        front.free(block.handle).unwrap();
                    }
                });
            }
            drop(sender);
        });
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        for (offset, bytes, handle, starts) in receiver {
            if starts {
                let below = live.range(..offset + bytes).next_back();
                assert!(below.is_none_or(|(_, end)| *end <= offset), "{handle} overlaps a live block");
                live.insert(offset, offset + bytes);
            } else {
                live.remove(&offset);
            }
        }
        let state = shared.statistics();
        assert_eq!((state.live, state.blocks), (Bytes::ZERO, 0));
        shared.lock().verify().unwrap();
    }

    #[test]
    fn a_double_free_is_found_in_the_same_front_and_behind_it() {
        let shared = Shared::new(Tlsf::new(Bytes(512), Bytes(1 << 20)));
        let (mut one, mut two) = (shared.front(4), shared.front(4));
        let block = one.allocate(Request::new(100)).unwrap();
        one.free(block.handle).unwrap();
        assert!(one.free(block.handle).is_err());
        two.free(block.handle).unwrap();
        assert_eq!(one.flush() + two.flush(), 1);
    }

    #[test]
    fn before_it_fails_a_front_gives_back_what_it_holds() {
        let shared = Shared::new(Tlsf::new(Bytes(512), Bytes(64 << 10)));
        let mut front = shared.front(16);
        let block = front.allocate(Request::new(512)).unwrap();
        front.free(block.handle).unwrap();
        assert!(front.live() > Bytes(512));
        assert!(front.allocate(Request::new(64 << 10)).is_ok() || front.allocate(Request::new(63 << 10)).is_ok());
    }

    /// What one thread does next: allocate so many bytes, or free the k-th block that either thread allocated.
    #[derive(Clone, Copy)]
    enum Act {
        Take(u64),
        Give(usize),
    }

    /// Runs two threads' programs in one order, and checks bytes, books and stale handles after each step.
    fn run_in_order(programs: [&[Act]; 2], order: u32, length: usize) -> usize {
        let shared = Shared::new(Tlsf::new(Bytes(512), Bytes(16 << 10)));
        let mut fronts = [shared.front(2), shared.front(3)];
        let mut next = [0, 0];
        // Blocks in the order of their allocation; `None` when freed.
        let mut blocks: Vec<Option<(Block, u64)>> = Vec::new();
        let mut across = 0;
        let mut owners = Vec::new();
        for step in 0..length {
            let thread = (order >> step & 1) as usize;
            match programs[thread][next[thread]] {
                Act::Take(bytes) => {
                    if let Ok(block) = fronts[thread].allocate(Request::new(bytes)) {
                        for (other, size) in blocks.iter().flatten() {
                            let (start, end) = (block.offset.get(), block.offset.get() + bytes);
                            assert!(
                                end <= other.offset.get() || other.offset.get() + size <= start,
                                "order {order:b}: {} overlaps {}",
                                block.handle,
                                other.handle
                            );
                        }
                        blocks.push(Some((block, bytes)));
                        owners.push(thread);
                    }
                }
                Act::Give(index) => {
                    if let Some((block, _)) = blocks.get_mut(index).and_then(Option::take) {
                        fronts[thread].free(block.handle).unwrap();
                        across += usize::from(owners[index] != thread);
                    }
                }
            }
            next[thread] += 1;
            shared.lock().verify().unwrap();
        }
        for (block, _) in blocks.iter().flatten() {
            fronts[0].free(block.handle).unwrap();
        }
        assert_eq!(fronts[0].flush() + fronts[1].flush(), 0, "order {order:b}: a handle went stale");
        let state = shared.statistics();
        assert_eq!((state.live, state.blocks), (Bytes::ZERO, 0), "order {order:b}");
        across
    }

    /// A front is private to its thread, and what threads share changes only under the lock: so the orders of whole
    /// calls are all the orders there are, but for a call that fails, which takes the lock again after a flush.
    #[test]
    fn every_order_of_two_threads_calls_keeps_bytes_apart_and_loses_nothing() {
        use Act::{Give, Take};
        let one = [Take(500), Take(9000), Give(0), Take(500), Give(1), Take(700), Give(2)];
        let two = [Take(500), Give(0), Take(600), Give(3), Take(6000), Give(2), Take(500)];
        let length = one.len() + two.len();
        let (mut orders, mut across) = (0, 0);
        for order in 0_u32..1 << length {
            if order.count_ones() as usize == two.len() {
                across += run_in_order([&one, &two], order, length);
                orders += 1;
            }
        }
        assert_eq!(orders, 3432);
        assert!(across > 1000, "blocks wander between threads: {across}");
    }
}
