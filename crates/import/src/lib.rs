//! Foreign formats stop here: each reader turns one of them into npumem's own nouns, or into an [`ImportError`].
//!
//! A reader gets bytes, never a path; it trusts no length and no count that a file claims.
#![forbid(unsafe_code)]

pub mod dsa;
pub mod error;
pub mod minimalloc;
pub mod pto;
mod sniff;

pub mod onnx;

pub use error::{ErrorKind, ImportError, Position};
pub use sniff::{Format, sniff};
