//! One operator: from its spec to a schedule, as text and JSON.

pub mod device;
pub mod fit;
pub mod header;
pub mod model;
pub mod node;
pub mod picture;
pub mod toml_file;
mod two_level;

pub use two_level::{TwoLevel, plan_two_level};

/// `1.13x`: how far a traffic is from its bound.
fn over(bytes: u128, bound: u128) -> String {
    if bound == 0 { "-".to_owned() } else { format!("{:.3}x", bytes as f64 / bound as f64) }
}

/// Bytes of 128 bits with their binary unit; beyond 64 bits the bare number.
fn bytes(bytes: u128) -> String {
    u64::try_from(bytes).map_or_else(|_| format!("{bytes} B"), |bytes| npumem_ir::Bytes(bytes).to_string())
}
