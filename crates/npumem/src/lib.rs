//! The memory tool for people who write, compile and run code for NPUs and GPUs

pub mod catalogue;
