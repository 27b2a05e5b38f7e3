//! Memory on real devices behind one narrow trait, and [`Memory`] over it: pools, plans, tracking.
//!
//! ```text
//!   Memory      buffers that free themselves, who holds what, leaks, growth, guard bytes, traces
//!     pool      npumem-allocator: plan + pages, over offsets
//!   Backend     reserve, commit, copy: host (mmap), OpenCL, CUDA and AscendCL (loaded at run time), or one that fails on purpose
//! ```
//! Only the modules that call the system are `unsafe`; they are small and named: [`host`], [`opencl`], [`cuda`], [`ascend`].

pub mod ascend;
pub mod backend;
pub mod compute;
pub mod conformance;
pub mod cuda;
pub mod executor;
pub mod faulty;
pub mod host;
pub mod loops;
pub mod memory;
pub mod opencl;
pub mod probe;
mod vmm;

pub use ascend::Ascend;
pub use backend::{Backend, BackendError, Place, RegionId, SpaceInfo, Ticket};
pub use compute::{Access, Compute, ConvolutionShape, Element, Kernel, Launch, Operand, Span, Spans, Touch};
pub use cuda::Cuda;
pub use faulty::{Faults, Faulty};
pub use host::Host;
pub use memory::{Buffer, Memory, MemoryError, MemoryOptions};
pub use opencl::OpenCl;
