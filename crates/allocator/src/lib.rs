//! Run-time allocators over offsets: they keep books on host tables and touch no device memory.
//!
//! | allocator | for | a call costs |
//! |---|---|---|
//! | [`Paged`] | device memory with unknown lifetimes: the default | `O(1)`; maps pages when no block fits |
//! | [`Caching`] | what PyTorch's allocator would have done, event for event | `O(log n)` |
//! | [`Tlsf`] | a range of known size: a scratchpad, one segment | `O(1)` |
//! | [`Buddy`] | blocks that must be aligned to their size | `O(log capacity)` |
//! | [`Slab`] | many blocks of one size | `O(1)` |
//! | [`Bump`] | memory given back all at once | `O(1)` |
//!
//! [`StreamOrdered`] shares one between streams, [`Shared`] between threads; [`adaptor`] has wrappers that limit, log, fail, retry and spill.
//!
//! All of them hand out [`Handle`]s: an index and a generation, so that a double free or a use after free is an error
//! and never silent damage. All of them pass one suite, [`conformance`].
//!
//! What is absent: no pointers, no `unsafe`, no clock, no I/O, no memory of their own.
#![forbid(unsafe_code)]

pub mod adaptor;
pub mod allocator;
mod arena;
pub mod block;
pub mod buddy;
pub mod bump;
pub mod caching;
pub mod conformance;
pub mod histogram;
pub mod hybrid;
mod nodes;
pub mod paged;
pub mod replay;
pub mod script;
pub mod shared;
pub mod slab;
pub mod statistics;
pub mod stream;
mod table;
pub mod tlsf;

pub use allocator::Allocator;
pub use block::{AllocateError, Allocated, Block, Handle, HandleError, LiveBlock, Request, Shortage};
pub use buddy::Buddy;
pub use bump::Bump;
pub use caching::{Caching, DeviceModel, SegmentSource, Settings};
pub use histogram::Histogram;
pub use hybrid::{Hybrid, HybridCounts, NoPool, StaticPlan};
pub use paged::{PageCounts, PageSource, Paged, PagedOptions};
pub use replay::{Call, Calls, Replay, replay};
pub use script::{PlannedBlock, Script, ScriptError, Step};
pub use shared::{Front, Shared};
pub use slab::Slab;
pub use statistics::Statistics;
pub use stream::{OrderChecker, StreamOrdered};
pub use tlsf::Tlsf;
