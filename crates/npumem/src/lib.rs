//! npumem as a library: plan a problem, and prove the plan.
//!
//! ```
//! use npumem::ir::{Buffer, Bytes, Problem, Space, SpaceId, StepRange};
//!
//! let mut problem = Problem { name: "two".into(), spaces: vec![Space::unbounded("sram")], ..Problem::default() };
//! for (name, size, start, end) in [("a", 64, 0, 3), ("b", 32, 2, 5), ("c", 64, 3, 6)] {
//!     problem.buffers.push(Buffer::new(name, Bytes(size), StepRange::steps(start, end), SpaceId(0)));
//! }
//! let planned = npumem::place(&problem, &npumem::PlacementOptions::default()).unwrap();
//! assert_eq!(planned.plan.spaces[0].peak, Bytes(96)); // a and c share their bytes, one after the other
//! assert!(npumem::check(&problem, &planned.plan).is_sound());
//! ```
#![forbid(unsafe_code)]

pub mod catalogue;
pub mod example;
pub mod execute;
pub mod kernel;
pub mod lecture;
pub mod model;
pub mod npy;
pub mod open;
pub mod plan;
pub mod probe;
pub mod simulate;
pub mod strategy;
pub mod tile;

pub use npumem_backend as backend;
pub use npumem_check::program as check_program;
pub use npumem_check::{Verdict as CheckVerdict, Violation, check, check_on};
pub use npumem_import::{Format, ImportError, dsa, minimalloc, onnx};
pub use npumem_ir as ir;
pub use npumem_planner::graph::{ModelOptions, Strategy};
pub use npumem_planner::placement::{Effort, Placement, PlacementError, PlacementOptions, Switches, Verdict};
pub use npumem_planner::tiling;
pub use npumem_report as report;
pub use npumem_simulator::run as simulator;

use npumem_ir::Problem;

/// Places every buffer of a problem; [`npumem_planner::placement::place`] without a way to stop it early.
///
/// # Errors
/// A problem whose statement contradicts itself. A capacity that cannot be met is no error but a [`Verdict`].
pub fn place(problem: &Problem, options: &PlacementOptions) -> Result<Placement, PlacementError> {
    npumem_planner::placement::place(problem, options, None)
}

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
