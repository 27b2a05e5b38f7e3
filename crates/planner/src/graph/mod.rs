//! From a graph to a placement problem: which bytes exist, when they are needed, which of them may be shared.
//!
//! ```text
//!   Graph --line--> steps and values --storage--> classes of values that share bytes
//!                                                    |--> bounds, one per action set
//!                                                    |--> footprints, the table of the peak
//!                                                    '--> Problem (buffers, colocations), strategies
//! ```
//!
//! Everything here is a pure function of the graph and the options. The exact rules, and how they relate to what
//! onnxruntime does, are in `docs/planning.md`.

pub mod bounds;
pub mod error;
pub mod line;
pub mod model;
pub mod operators;
pub mod problem;
pub mod roofline;
pub mod size;
pub mod storage;

mod inplace;
mod pieces;
mod views;
mod work;

#[cfg(test)]
mod tests;

pub use bounds::{Bound, Footprint, LiveEntry};
pub use error::GraphError;
pub use line::{Line, Value, ValueId};
pub use model::{ModelPlan, plan_model};
pub use problem::{MainSpace, ModelInput, ModelOptions, Strategy, StrategyCost, to_problem};
pub use roofline::{Rates, Roofline, roofline};
pub use size::{DimBinding, Dims, Size};
pub use storage::{Actions, Over, Storage};
