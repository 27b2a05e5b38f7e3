//! What a device must be able to do: reserve addresses, put memory behind them, move bytes.

use npumem_ir::{Bytes, SpaceId};

/// A memory space of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceInfo {
    /// Its name: `hbm`, `sram`.
    pub name: String,
    /// The memory that may be committed in it.
    pub capacity: Bytes,
    /// Memory is committed in multiples of this.
    pub page: Bytes,
}

/// A reserved range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u32);

/// Bytes of a region from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The region.
    pub region: RegionId,
    /// Bytes from its start.
    pub offset: u64,
}

/// Names a copy that was started. Copies of one backend finish in the order in which they were started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Why a backend refused. It is as it was before the call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// A space that it does not have.
    #[error("this backend has no memory space {0}")]
    NoSpace(u32),
    /// A region that was released or never reserved.
    #[error("region {0} is not reserved")]
    NoRegion(u32),
    /// A range past the end of its region, or not made of whole pages.
    #[error("bytes [{start}, {end}) of region {region}: {problem}")]
    BadRange {
        /// The region.
        region: u32,
        /// From.
        start: u64,
        /// To.
        end: u64,
        /// What is wrong.
        problem: &'static str,
    },
    /// The space is full.
    #[error("space `{space}` is full: {requested} asked for, {committed} of {capacity} committed")]
    Full {
        /// The space.
        space: String,
        /// What was asked for.
        requested: Bytes,
        /// What is committed.
        committed: Bytes,
        /// The most that may be.
        capacity: Bytes,
    },
    /// The system refused.
    #[error("{call} failed: {reason}")]
    System {
        /// Which call.
        call: &'static str,
        /// The system's words.
        reason: String,
    },
    /// A backend that moves bytes and computes nothing.
    #[error("the {backend} backend has no kernels yet: it allocates and copies")]
    NoKernels {
        /// Its name.
        backend: &'static str,
    },
    /// Made to fail, by [`crate::Faulty`].
    #[error("call {call} was made to fail")]
    Injected {
        /// Which call, from one.
        call: u64,
    },
}

/// A device's memory.
///
/// Every implementation passes [`crate::conformance`].
pub trait Backend: Send {
    /// A short name.
    fn name(&self) -> &'static str;

    /// Its memory spaces, by [`SpaceId`].
    fn spaces(&self) -> &[SpaceInfo];

    /// Whether memory goes back to the device page by page. Where it does not, a region takes memory up to its highest
    /// committed page, and gives it back when its last page goes.
    fn maps_pages(&self) -> bool {
        true
    }

    /// Reserves addresses, whole pages, without memory.
    ///
    /// # Errors
    /// When the space does not exist or the system refuses.
    fn reserve(&mut self, space: SpaceId, bytes: Bytes) -> Result<RegionId, BackendError>;

    /// Gives a region back with all memory in it.
    ///
    /// # Errors
    /// When it is not reserved.
    fn release(&mut self, region: RegionId) -> Result<(), BackendError>;

    /// Puts memory behind whole pages, none of which has any. It reads as zeros.
    ///
    /// # Errors
    /// When the range is bad, or the space or the system is out of memory.
    fn commit(&mut self, place: Place, bytes: Bytes) -> Result<(), BackendError>;

    /// Takes the memory from behind whole pages, all of which have some.
    ///
    /// # Errors
    /// When the range is bad.
    fn decommit(&mut self, place: Place, bytes: Bytes) -> Result<(), BackendError>;

    /// Writes bytes, after every copy that was started before.
    ///
    /// # Errors
    /// When the range is not committed.
    fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), BackendError>;

    /// Reads bytes, after every copy that was started before.
    ///
    /// # Errors
    /// When the range is not committed.
    fn read(&mut self, from: Place, bytes: &mut [u8]) -> Result<(), BackendError>;

    /// Starts a copy on the copy queue. The ranges may lie in different spaces and must not overlap.
    ///
    /// # Errors
    /// When a range is not committed or they overlap.
    fn copy(&mut self, from: Place, to: Place, bytes: Bytes) -> Result<Ticket, BackendError>;

    /// Whether a copy is done.
    fn is_done(&self, ticket: Ticket) -> bool;

    /// Waits for a copy.
    fn wait(&mut self, ticket: Ticket);

    /// The memory committed in a space.
    fn committed(&self, space: SpaceId) -> Bytes;

    /// The address of a region's first byte, for kernels.
    ///
    /// # Errors
    /// When it is not reserved.
    fn address(&self, region: RegionId) -> Result<u64, BackendError>;
}
