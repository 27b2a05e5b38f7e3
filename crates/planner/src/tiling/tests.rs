//! Tests of the tiler: figures of the field, brute force, specs.

mod figures;
mod objectives;
mod oracle;
