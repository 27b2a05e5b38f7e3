//! The one trait.

use crate::block::{Allocated, Handle, HandleError, LiveBlock, Request};
use crate::statistics::Statistics;
use npumem_ir::Bytes;

/// An allocator over the offsets of one memory space.
///
/// It keeps books and touches no memory: its tables lie in host memory, off the device.
/// Offsets are relative to the base of the space; the caller adds the device address.
///
/// Every implementation passes [`crate::conformance`].
pub trait Allocator {
    /// A short name for tables.
    fn name(&self) -> &'static str;

    /// Hands out a block that overlaps no live block.
    ///
    /// # Errors
    /// [`crate::AllocateError`]; then the allocator is as before the call, the failure count apart.
    fn allocate(&mut self, request: Request) -> Allocated;

    /// Takes a block back and says how many bytes had been asked for.
    ///
    /// # Errors
    /// When the handle is stale or foreign; then nothing has changed, the failure count apart.
    fn free(&mut self, handle: Handle) -> Result<Bytes, HandleError>;

    /// The live block of a handle.
    ///
    /// # Errors
    /// When the handle is stale or foreign.
    fn block(&self, handle: Handle) -> Result<LiveBlock, HandleError>;

    /// The state in numbers. May walk the table.
    fn statistics(&self) -> Statistics;

    /// Visits the live blocks, in no promised order.
    fn for_each_live(&self, visit: &mut dyn FnMut(LiveBlock));

    /// Gives memory that no block uses back to the device, down to `keep` reserved bytes, and says how much went.
    fn trim(&mut self, keep: Bytes) -> Bytes {
        let _ = keep;
        Bytes::ZERO
    }

    /// Checks every internal invariant, slowly.
    ///
    /// # Errors
    /// The first one that does not hold, in words: a bug of the allocator.
    fn verify(&self) -> Result<(), String>;
}
