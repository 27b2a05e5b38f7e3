//! Tests of the graph analysis: hand-built graphs with numbers worked out by hand, and a shadow memory over random ones.

mod build;
mod hand;
mod roof;
mod shadow;
