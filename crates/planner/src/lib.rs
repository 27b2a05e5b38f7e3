//! Liveness, placement, tiling and their lower bounds, as pure functions

pub mod placement;
