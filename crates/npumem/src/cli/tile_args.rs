//! The arguments of `npumem tile`, as they are written.

use super::args::DeviceArgs;
use clap::{Args, ValueEnum};

/// `npumem tile`
#[derive(Debug, Args)]
pub struct TileArgs {
    /// The operator: a family and its dimensions, for example "matmul m=4096 n=4096 k=4096 a=f16 b=f16 c=f32"; `-` reads
    /// it from standard input (docs/tiling.md has every family and key)
    #[arg(value_name = "OPERATOR")]
    pub operator: Option<String>,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// In place of a device, the plain machine of comparisons: unbounded DRAM, one SRAM of BYTES, an array with accumulators
    #[arg(long, value_name = "BYTES", conflicts_with = "device")]
    pub sram: Option<String>,
    /// With --sram: which buffers get a second slot
    #[arg(long, value_enum, default_value_t, requires = "sram")]
    pub slots: SlotsArg,
    /// What is best; ties go to the next of time, traffic, memory. With --sram it is traffic
    #[arg(long, value_enum, default_value_t)]
    pub objective: ObjectiveArg,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// What is best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ObjectiveArg {
    /// The least time by the cost model
    #[default]
    Time,
    /// The least traffic between main memory (or its cache) and the cores
    Traffic,
    /// The fewest bytes near the unit within 5 % of the best time
    Memory,
}

/// Which buffers get a second slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SlotsArg {
    /// None: copies and compute take turns
    None,
    /// Inputs whose tile changes
    #[default]
    Inputs,
    /// Everything whose tile changes, the output too
    All,
}
