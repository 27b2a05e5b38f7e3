//! Buffers and scopes: what a caller holds.

use super::{Memory, MemoryError, lock};
use crate::backend::Place;
use npumem_allocator::Handle;
use npumem_ir::{Bytes, Offset, SpaceId};

/// Bytes on a device. Dropping it gives them back.
pub struct Buffer {
    memory: Memory,
    space: SpaceId,
    handle: Handle,
    bytes: Bytes,
    offset: Offset,
}

impl Buffer {
    pub(super) fn new(memory: Memory, space: SpaceId, handle: Handle, bytes: Bytes, offset: Offset) -> Self {
        Self { memory, space, handle, bytes, offset }
    }

    /// How many bytes.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// In which space.
    #[must_use]
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Where in its space.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// The device address, for kernels.
    ///
    /// # Errors
    /// When the backend has none.
    pub fn address(&self) -> Result<u64, MemoryError> {
        let state = lock(&self.memory.state);
        let base = lock(&state.backend).address(state.space(self.space)?.region)?;
        Ok(base + self.offset.get())
    }

    /// Gives up ownership for [`Memory::free`]: whoever has the handle must free it, and the leak report says so if not.
    #[must_use]
    pub fn into_handle(self) -> Handle {
        let handle = self.handle;
        std::mem::forget(self);
        handle
    }

    fn place(&self, start: u64, bytes: u64) -> Result<Place, MemoryError> {
        let end = start.checked_add(bytes).filter(|end| *end <= self.bytes.get());
        if end.is_none() {
            return Err(MemoryError::OutOfBounds { start, end: start.saturating_add(bytes), size: self.bytes });
        }
        let region = lock(&self.memory.state).space(self.space)?.region;
        Ok(Place { region, offset: self.offset.get() + start })
    }

    /// Writes bytes from `start` on.
    ///
    /// # Errors
    /// When they do not fit.
    pub fn write(&mut self, start: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let place = self.place(start, bytes.len() as u64)?;
        let mut state = lock(&self.memory.state);
        lock(&state.backend).write(place, bytes)?;
        state.note_use(self.space, self.handle, true);
        Ok(())
    }

    /// Reads bytes from `start` on.
    ///
    /// # Errors
    /// When the buffer has not so many.
    pub fn read(&self, start: u64, bytes: &mut [u8]) -> Result<(), MemoryError> {
        let place = self.place(start, bytes.len() as u64)?;
        let mut state = lock(&self.memory.state);
        lock(&state.backend).read(place, bytes)?;
        state.note_use(self.space, self.handle, false);
        Ok(())
    }

    /// Copies bytes from another buffer of the same memory, over the copy queue, and waits for them.
    ///
    /// # Errors
    /// When either buffer has not so many bytes, or the other belongs to another memory.
    pub fn copy_from(&mut self, start: u64, from: &Buffer, from_start: u64, bytes: Bytes) -> Result<(), MemoryError> {
        if !std::sync::Arc::ptr_eq(&self.memory.state, &from.memory.state) {
            return Err(MemoryError::Backend(crate::BackendError::NoRegion(u32::MAX)));
        }
        let to_place = self.place(start, bytes.get())?;
        let from_place = from.place(from_start, bytes.get())?;
        let mut state = lock(&self.memory.state);
        {
            let mut backend = lock(&state.backend);
            let ticket = backend.copy(from_place, to_place, bytes)?;
            backend.wait(ticket);
        }
        state.note_use(from.space, from.handle, false);
        state.note_use(self.space, self.handle, true);
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // The handle is live: only this buffer has it.
        let freed = self.memory.free(self.space, self.handle);
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} of {} at {} in {})", self.handle, self.bytes, self.offset, self.space)
    }
}

/// A named scope; see [`Memory::scope`].
#[must_use = "a scope ends when it is dropped"]
pub struct Scope {
    memory: Memory,
}

impl Scope {
    pub(super) fn new(memory: Memory) -> Self {
        Self { memory }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        lock(&self.memory.state).tracking.exit();
    }
}
