//! npumem's vocabulary: the nouns that every other crate speaks.
//!
//! A [`Graph`] says what is computed, a [`Problem`] which buffers need bytes and when,
//! a [`Plan`] where each of them lives. None of these types does I/O or knows an algorithm;
//! each prints as text made for a diff and as versioned JSON, and reads both back.
#![forbid(unsafe_code)]

pub mod device;
pub mod form;
pub mod graph;
pub mod ids;
pub mod interval;
pub mod plan;
pub mod problem;
pub mod program;
pub mod trace;
pub mod units;

pub use device::Device;
pub use form::FormError;
pub use graph::{Dim, ElementType, Graph, Operator, Shape, Tensor};
pub use ids::{BufferId, EngineId, HandleId, LinkId, OperatorId, ScalarId, SpaceId, StepId, SymbolId, TensorId};
pub use interval::{ByteRange, Interval, StepRange};
pub use plan::{Move, Plan, Residency};
pub use problem::{Buffer, Problem, ProblemError, Space};
pub use program::Program;
pub use trace::{Trace, TraceEvent, TraceHeader, TraceReader, TraceSink, TraceWriter};
pub use units::{Alignment, Bytes, Cycles, Offset, Step};
