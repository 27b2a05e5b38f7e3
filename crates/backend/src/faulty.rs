//! A backend that fails on purpose: at the n-th call, by losing a write, or by being slow.

use crate::backend::{Backend, BackendError, Place, RegionId, SpaceInfo, Ticket};
use crate::compute::{Compute, Kernel, Launch, Spans};
use npumem_ir::{Bytes, SpaceId};
use std::cell::Cell;

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The call that fails, counted from one over everything that can fail.
    pub fail_at: Option<u64>,
    /// Every so many-th call fails.
    pub fail_every: Option<u64>,
    /// The write or copy, counted from one, that reports success and does nothing.
    pub lose: Option<u64>,
    /// A copy says so often that it is not done before it says that it is.
    pub delay: u32,
}

/// Another backend with faults.
pub struct Faulty<B> {
    inner: B,
    faults: Faults,
    calls: u64,
    moves: u64,
    delayed: Cell<u32>,
}

impl<B: Backend> Faulty<B> {
    /// Puts faults before a backend.
    pub fn new(inner: B, faults: Faults) -> Self {
        Self { inner, faults, calls: 0, moves: 0, delayed: Cell::new(0) }
    }

    /// Calls that could have failed so far.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    fn call(&mut self) -> Result<(), BackendError> {
        self.calls += 1;
        let every = self.faults.fail_every.is_some_and(|every| every > 0 && self.calls.is_multiple_of(every));
        if every || self.faults.fail_at == Some(self.calls) {
            return Err(BackendError::Injected { call: self.calls });
        }
        Ok(())
    }

    fn is_lost(&mut self) -> bool {
        self.moves += 1;
        self.faults.lose == Some(self.moves)
    }
}

impl<B: Backend> Backend for Faulty<B> {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn spaces(&self) -> &[SpaceInfo] {
        self.inner.spaces()
    }

    fn maps_pages(&self) -> bool {
        self.inner.maps_pages()
    }

    fn reserve(&mut self, space: SpaceId, bytes: Bytes) -> Result<RegionId, BackendError> {
        self.call()?;
        self.inner.reserve(space, bytes)
    }

    fn release(&mut self, region: RegionId) -> Result<(), BackendError> {
        // Giving back never fails on purpose: nobody could do anything about it.
        self.inner.release(region)
    }

    fn commit(&mut self, place: Place, bytes: Bytes) -> Result<(), BackendError> {
        self.call()?;
        self.inner.commit(place, bytes)
    }

    fn decommit(&mut self, place: Place, bytes: Bytes) -> Result<(), BackendError> {
        self.inner.decommit(place, bytes)
    }

    fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), BackendError> {
        self.call()?;
        if self.is_lost() { Ok(()) } else { self.inner.write(to, bytes) }
    }

    fn read(&mut self, from: Place, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.call()?;
        self.inner.read(from, bytes)
    }

    fn copy(&mut self, from: Place, to: Place, bytes: Bytes) -> Result<Ticket, BackendError> {
        self.call()?;
        self.delayed.set(0);
        if self.is_lost() {
            return self.inner.copy(from, to, Bytes::ZERO);
        }
        self.inner.copy(from, to, bytes)
    }

    fn is_done(&self, ticket: Ticket) -> bool {
        if self.delayed.get() < self.faults.delay {
            self.delayed.set(self.delayed.get() + 1);
            return false;
        }
        self.inner.is_done(ticket)
    }

    fn wait(&mut self, ticket: Ticket) {
        self.inner.wait(ticket);
        self.delayed.set(self.faults.delay);
    }

    fn committed(&self, space: SpaceId) -> Bytes {
        self.inner.committed(space)
    }

    fn address(&self, region: RegionId) -> Result<u64, BackendError> {
        self.inner.address(region)
    }
}

impl<B: Compute> Compute for Faulty<B> {
    fn launch(&mut self, kernel: &Kernel) -> Result<Launch, BackendError> {
        self.call()?;
        self.inner.launch(kernel)
    }

    fn finish(&mut self) -> Result<(), BackendError> {
        self.inner.finish()
    }

    fn take_spans(&mut self) -> Result<Spans, BackendError> {
        self.inner.take_spans()
    }
}
