//! Tiling: from one operator to tile sizes, buffers and copies that keep the compute unit fed.
//!
//! ```text
//!   spec text --spec--> Operator --nest--> Nest (candidates, footprints) --search--> tiles, order, slots
//!                          |                                                            |
//!                          '--bounds--> least traffic, compute and bandwidth rooflines  |
//!   Device --machine--> Machine (where each operand lives, what moves it) --schedule----'--> Schedule
//! ```
//!
//! An operator is an iteration space and, for each operand, the part of it that a box of iterations touches. Everything
//! else follows from that one description: traffic, buffer sizes, the lengths of the runs that a DMA copies, the bounds.
//! The exact rules are in `docs/tiling.md`.

pub mod bounds;
mod choose;
pub mod emit;
pub mod explain;
pub mod family;
pub mod fit;
pub mod follow;
pub mod gemm;
pub mod instructions;
mod links;
pub mod machine;
pub mod nest;
pub mod objective;
pub mod operator;
pub mod schedule;
pub mod search;
mod shares;
pub mod spec;
pub mod transfer;
pub mod two_level;

#[cfg(test)]
mod tests;

pub use bounds::{IoBound, io_bound, io_bound_with};
pub use emit::{EmitError, program, unwritten_way};
pub use explain::{Explanation, Larger, explain};
pub use fit::{Fit, FitError, SpaceFit, fit, given_tile};
pub use nest::{Nest, NestOperand, Pool, Slots};
pub use objective::{CoreTime, Goal};
pub use operator::{Axis, Dim, DimRole, Operand, OperandRole, Operator, OperatorError, OperatorKind, Side, Unit};
pub use schedule::{LinkTraffic, PlacedBuffer, Request, Schedule, TileError, machine_for, schedule, schedule_as};
pub use search::{Found, Objective, SearchError, search};
pub use spec::{SpecError, parse};
pub use two_level::two_level;
