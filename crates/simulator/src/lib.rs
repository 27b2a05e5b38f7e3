//! Runs a tile program on a described device: time per engine, traffic per link, values, and memory errors.
//!
//! [`dram`] is the memory part as it is, with its commands and timings; [`run`] executes a program.

pub mod dram;
pub mod run;
