//! Allocators around an allocator: each adds one thing, and they compose.

use crate::allocator::Allocator;
use crate::block::{AllocateError, Allocated, Block, Handle, HandleError, LiveBlock, Request, Shortage};
use crate::statistics::Statistics;
use npumem_ir::{Bytes, Offset};

/// Everything but `allocate` and `free` as the inner allocator has it.
macro_rules! forward {
    () => {
        fn block(&self, handle: Handle) -> Result<LiveBlock, HandleError> {
            self.inner.block(handle)
        }
        fn for_each_live(&self, visit: &mut dyn FnMut(LiveBlock)) {
            self.inner.for_each_live(visit);
        }
        fn trim(&mut self, keep: Bytes) -> Bytes {
            self.inner.trim(keep)
        }
        fn verify(&self) -> Result<(), String> {
            self.inner.verify()
        }
    };
}

/// Refuses what would raise the live bytes past a limit.
pub struct Limit<A> {
    inner: A,
    limit: u64,
    refused: u64,
}

impl<A: Allocator> Limit<A> {
    /// At most so many live bytes, as asked for.
    pub fn new(inner: A, limit: Bytes) -> Self {
        Self { inner, limit: limit.get(), refused: 0 }
    }
}

impl<A: Allocator> Allocator for Limit<A> {
    fn name(&self) -> &'static str {
        "limit"
    }
    fn allocate(&mut self, request: Request) -> Allocated {
        let state = self.inner.statistics();
        if request.bytes != Bytes::ZERO
            && request.alignment.get().is_power_of_two()
            && state.live.get().saturating_add(request.bytes.get()) > self.limit
        {
            self.refused += 1;
            return Err(Box::new(AllocateError::OutOfMemory(Shortage::of(request, &state, Some(self.limit)))));
        }
        self.inner.allocate(request)
    }
    fn free(&mut self, handle: Handle) -> Result<Bytes, HandleError> {
        self.inner.free(handle)
    }
    fn statistics(&self) -> Statistics {
        let state = self.inner.statistics();
        Statistics { failures: state.failures + self.refused, ..state }
    }
    forward!();
}

/// Fails every n-th allocation, to test what comes after.
pub struct FailEvery<A> {
    inner: A,
    every: u64,
    calls: u64,
    refused: u64,
}

impl<A: Allocator> FailEvery<A> {
    /// The `every`-th, twice-`every`-th ... allocation fails; zero fails none.
    pub fn new(inner: A, every: u64) -> Self {
        Self { inner, every, calls: 0, refused: 0 }
    }
}

impl<A: Allocator> Allocator for FailEvery<A> {
    fn name(&self) -> &'static str {
        "fail-every"
    }
    fn allocate(&mut self, request: Request) -> Allocated {
        self.calls += 1;
        if self.every > 0 && self.calls.is_multiple_of(self.every) {
            self.refused += 1;
            let shortage = Shortage::of(request, &self.inner.statistics(), None);
            return Err(Box::new(AllocateError::OutOfMemory(shortage)));
        }
        self.inner.allocate(request)
    }
    fn free(&mut self, handle: Handle) -> Result<Bytes, HandleError> {
        self.inner.free(handle)
    }
    fn statistics(&self) -> Statistics {
        let state = self.inner.statistics();
        Statistics { failures: state.failures + self.refused, ..state }
    }
    forward!();
}

/// What a [`Log`] tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// An allocation.
    Allocated(Request, Block),
    /// A refusal.
    Refused(Request, AllocateError),
    /// A free.
    Freed(Handle, Bytes),
    /// A free that was refused.
    BadFree(HandleError),
}

/// Tells a callback every call.
pub struct Log<A, F> {
    inner: A,
    tell: F,
}

impl<A: Allocator, F: FnMut(Line)> Log<A, F> {
    /// `tell` runs after each call.
    pub fn new(inner: A, tell: F) -> Self {
        Self { inner, tell }
    }
}

impl<A: Allocator, F: FnMut(Line)> Allocator for Log<A, F> {
    fn name(&self) -> &'static str {
        "log"
    }
    fn allocate(&mut self, request: Request) -> Allocated {
        let outcome = self.inner.allocate(request);
        match &outcome {
            Ok(block) => (self.tell)(Line::Allocated(request, *block)),
            Err(error) => (self.tell)(Line::Refused(request, (**error).clone())),
        }
        outcome
    }
    fn free(&mut self, handle: Handle) -> Result<Bytes, HandleError> {
        let outcome = self.inner.free(handle);
        match &outcome {
            Ok(bytes) => (self.tell)(Line::Freed(handle, *bytes)),
            Err(error) => (self.tell)(Line::BadFree(*error)),
        }
        outcome
    }
    fn statistics(&self) -> Statistics {
        self.inner.statistics()
    }
    forward!();
}

/// Asks a callback to free something when an allocation fails, and tries again as long as it did.
pub struct Retry<A, F> {
    inner: A,
    reclaim: F,
    retried: u64,
}

/// The most tries for one request.
const TRIES: u32 = 16;

impl<A: Allocator, F: FnMut(&mut A, Request) -> bool> Retry<A, F> {
    /// `reclaim` gets the allocator, to free in it, and says whether it freed something.
    pub fn new(inner: A, reclaim: F) -> Self {
        Self { inner, reclaim, retried: 0 }
    }
}

impl<A: Allocator, F: FnMut(&mut A, Request) -> bool> Allocator for Retry<A, F> {
    fn name(&self) -> &'static str {
        "retry"
    }
    fn allocate(&mut self, request: Request) -> Allocated {
        let mut outcome = self.inner.allocate(request);
        for _ in 0..TRIES {
            match &outcome {
                Err(error) if matches!(**error, AllocateError::OutOfMemory(_) | AllocateError::Device { .. }) => {}
                _ => break,
            }
            if !(self.reclaim)(&mut self.inner, request) {
                break;
            }
            self.retried += 1;
            outcome = self.inner.allocate(request);
        }
        outcome
    }
    fn free(&mut self, handle: Handle) -> Result<Bytes, HandleError> {
        self.inner.free(handle)
    }
    fn statistics(&self) -> Statistics {
        let state = self.inner.statistics();
        // A failure that a retry made good is none.
        Statistics { failures: state.failures.saturating_sub(self.retried), ..state }
    }
    forward!();
}

/// Marks the handles of spilled blocks.
const SPILLED: u32 = 1 << 31;

/// Takes what the first allocator has no room for from a second, whose offsets start at `base`.
///
/// For host memory behind device memory: the offset says which side a block is on.
pub struct Spill<A, B> {
    first: A,
    second: B,
    base: u64,
    peak_live: u64,
    failures: u64,
}

impl<A: Allocator, B: Allocator> Spill<A, B> {
    /// `base` must lie past every offset of the first allocator. Both use handles below 2^31.
    pub fn new(first: A, second: B, base: Offset) -> Self {
        Self { first, second, base: base.get(), peak_live: 0, failures: 0 }
    }

    /// Bytes that live in the second allocator.
    pub fn spilled(&self) -> Bytes {
        self.second.statistics().live
    }

    fn moved(&self, block: LiveBlock) -> LiveBlock {
        let handle = Handle { index: block.handle.index | SPILLED, ..block.handle };
        LiveBlock { handle, offset: Offset(block.offset.get().saturating_add(self.base)), ..block }
    }
}

impl<A: Allocator, B: Allocator> Allocator for Spill<A, B> {
    fn name(&self) -> &'static str {
        "spill"
    }
    fn allocate(&mut self, request: Request) -> Allocated {
        let outcome = match self.first.allocate(request) {
            Err(error) if matches!(*error, AllocateError::OutOfMemory(_) | AllocateError::TooLarge { .. }) => {
                self.second.allocate(request).map(|block| Block {
                    handle: Handle { index: block.handle.index | SPILLED, ..block.handle },
                    offset: Offset(block.offset.get().saturating_add(self.base)),
                })
            }
            other => other,
        };
        match outcome {
            Ok(block) => {
                let live = self.first.statistics().live.get() + self.second.statistics().live.get();
                self.peak_live = self.peak_live.max(live);
                Ok(block)
            }
            Err(error) => {
                self.failures += 1;
                Err(error)
            }
        }
    }
    fn free(&mut self, handle: Handle) -> Result<Bytes, HandleError> {
        let freed = if handle.index & SPILLED == 0 {
            self.first.free(handle)
        } else {
            self.second.free(Handle { index: handle.index & !SPILLED, ..handle })
        };
        self.failures += u64::from(freed.is_err());
        freed
    }
    fn block(&self, handle: Handle) -> Result<LiveBlock, HandleError> {
        if handle.index & SPILLED == 0 {
            return self.first.block(handle);
        }
        self.second.block(Handle { index: handle.index & !SPILLED, ..handle }).map(|block| self.moved(block))
    }
    fn statistics(&self) -> Statistics {
        let (a, b) = (self.first.statistics(), self.second.statistics());
        Statistics {
            live: Bytes(a.live.get() + b.live.get()),
            peak_live: Bytes(self.peak_live),
            granted: Bytes(a.granted.get() + b.granted.get()),
            reserved: Bytes(a.reserved.get() + b.reserved.get()),
            peak_reserved: Bytes(a.peak_reserved.get() + b.peak_reserved.get()),
            largest_free: a.largest_free.max(b.largest_free),
            blocks: a.blocks + b.blocks,
            allocations: a.allocations + b.allocations,
            frees: a.frees + b.frees,
            failures: self.failures,
        }
    }
    fn for_each_live(&self, visit: &mut dyn FnMut(LiveBlock)) {
        self.first.for_each_live(visit);
        self.second.for_each_live(&mut |block| visit(self.moved(block)));
    }
    fn trim(&mut self, keep: Bytes) -> Bytes {
        let first = self.first.trim(keep);
        Bytes(first.get() + self.second.trim(Bytes::ZERO).get())
    }
    fn verify(&self) -> Result<(), String> {
        self.first.verify()?;
        self.second.verify()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Profile, check_calls, check_contract, random_bytes};
    use crate::tlsf::Tlsf;

    const SIZE: u64 = 1 << 20;

    fn tlsf() -> Tlsf {
        Tlsf::new(Bytes(32), Bytes(SIZE))
    }

    fn suite(profile: Profile, mut make: impl FnMut() -> Box<dyn Allocator>) {
        check_contract(&mut make, profile).unwrap();
        for seed in 0..8 {
            if let Err(flaw) = check_calls(make().as_mut(), profile, &random_bytes(seed, 6_000)) {
                panic!("seed {seed}: {flaw}");
            }
        }
    }

    #[test]
    fn all_of_them_keep_the_contract() {
        let profile = Profile { capacity: Some(SIZE), largest: SIZE, alignment: 1 << 14, recovers: true };
        suite(profile, || Box::new(Log::new(tlsf(), |_| {})));
        suite(profile, || Box::new(Retry::new(tlsf(), |_: &mut Tlsf, _| false)));
        suite(profile, || Box::new(FailEvery::new(tlsf(), 0)));
        suite(Profile { largest: SIZE / 2, ..profile }, || Box::new(Limit::new(tlsf(), Bytes(SIZE / 2))));
        suite(Profile { capacity: Some(3 * SIZE), ..profile }, || {
            Box::new(Spill::new(tlsf(), tlsf(), Offset(2 * SIZE)))
        });
        suite(Profile { largest: SIZE / 4, ..profile }, || {
            Box::new(Limit::new(Log::new(Retry::new(tlsf(), |_: &mut Tlsf, _| false), |_| {}), Bytes(SIZE / 4)))
        });
    }

    #[test]
    fn a_retry_frees_what_its_owner_can_spare() {
        let mut cache = Vec::new();
        let mut inner = tlsf();
        for _ in 0..4 {
            cache.push(inner.allocate(Request::new(SIZE / 4)).unwrap().handle);
        }
        let mut retry = Retry::new(inner, |inner: &mut Tlsf, _| match cache.pop() {
            Some(handle) => inner.free(handle).is_ok(),
            None => false,
        });
        assert!(retry.allocate(Request::new(SIZE / 2)).is_ok());
        assert_eq!(retry.statistics().failures, 0);
        assert!(retry.allocate(Request::new(SIZE)).is_err());
    }

    #[test]
    fn what_does_not_fit_is_spilled_and_says_so() {
        let mut spill = Spill::new(tlsf(), tlsf(), Offset(SIZE));
        let first = spill.allocate(Request::new(SIZE)).unwrap();
        let second = spill.allocate(Request::new(100)).unwrap();
        assert!(first.offset.get() < SIZE && second.offset.get() >= SIZE);
        assert_eq!(spill.spilled(), Bytes(100));
        spill.free(second.handle).unwrap();
        assert_eq!(spill.spilled(), Bytes::ZERO);
    }

    #[test]
    fn a_log_tells_everything_and_failures_come_when_they_should() {
        let mut lines = Vec::new();
        let mut log = Log::new(FailEvery::new(tlsf(), 2), |line| lines.push(line));
        let block = log.allocate(Request::new(10)).unwrap();
        assert!(log.allocate(Request::new(10)).is_err());
        log.free(block.handle).unwrap();
        assert!(log.free(block.handle).is_err());
        drop(log);
        assert!(matches!(
            lines[..],
            [
                Line::Allocated(..),
                Line::Refused(..),
                Line::Freed(_, Bytes(10)),
                Line::BadFree(HandleError::Stale { .. })
            ]
        ));
    }
}
