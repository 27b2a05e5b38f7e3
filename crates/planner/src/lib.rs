//! Liveness, placement, tiling and their lower bounds, as pure functions

pub mod graph;
pub mod liveness;
pub mod placement;
pub mod tiling;
