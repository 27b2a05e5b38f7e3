//! The arguments of `npumem tile`, as they are written.

use super::args::DeviceArgs;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `npumem tile`
#[derive(Debug, Args)]
pub struct TileArgs {
    /// The operator: a family and its dimensions, for example "matmul m=4096 n=4096 k=4096 a=f16 b=f16 c=f32"; `-` reads
    /// it from standard input (docs/tiling.md has every family and key)
    #[arg(value_name = "OPERATOR")]
    pub operator: Option<String>,
    /// A TOML file with the operator: operator = "matmul", then its keys
    #[arg(long, value_name = "FILE.toml", conflicts_with = "operator")]
    pub file: Option<PathBuf>,
    /// A model; with --node, the operator is one of its nodes
    #[arg(long, value_name = "MODEL.onnx", conflicts_with_all = ["operator", "file"], requires = "node")]
    pub onnx: Option<PathBuf>,
    /// The node of the model, by name
    #[arg(long, value_name = "NAME", requires = "onnx")]
    pub node: Option<String>,
    /// With --onnx: a dimension that the model leaves open
    #[arg(long, value_name = "NAME=N", requires = "onnx")]
    pub dim: Vec<String>,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// In place of a device, the plain machine of comparisons: unbounded DRAM, one SRAM of BYTES, an array with accumulators
    #[arg(long, value_name = "BYTES", conflicts_with = "device")]
    pub sram: Option<String>,
    /// Which buffers get a second slot; without it `inputs` with --sram and --fit, else what is fastest
    #[arg(long, value_enum)]
    pub slots: Option<SlotsArg>,
    /// What is best; ties go to the next of time, traffic, memory. With --sram it is traffic
    #[arg(long, value_enum, default_value_t)]
    pub objective: ObjectiveArg,
    /// Does a tile fit: every buffer in bytes, by how much it misses, the nearest that fits, the largest along each
    /// dimension; --device may name several, with commas
    #[arg(long, conflicts_with_all = ["sram", "output", "explain"])]
    pub fit: bool,
    /// A tile by hand, for example "m=128 n=256 k=64"; what is not given is as in the best schedule
    #[arg(long, value_name = "DIM=SIZE ...", conflicts_with = "sram")]
    pub tile: Vec<String>,
    /// Say why this tile: what limits it, what the next larger would cost, what second slots buy
    #[arg(long, conflicts_with = "sram")]
    pub explain: bool,
    /// Draw it: tiles on the tensors, buffers in each space, the pipeline in time
    #[arg(long, conflicts_with_all = ["sram", "fit"])]
    pub picture: bool,
    /// Write the schedule: .json, .h (C constants), .npumem (a tile program, for `check` and `run`), .pto (the same in the
    /// dialect of PTOAS), or a folder for the first three; may be given several times
    #[arg(long, short, value_name = "FILE|FOLDER")]
    pub output: Vec<PathBuf>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SlotsArg {
    /// None: copies and compute take turns
    None,
    /// Inputs that change in the innermost loop
    Streamed,
    /// Inputs whose tile changes
    Inputs,
    /// Everything whose tile changes, the output too
    All,
}
