//! The command line as it is written; what it means is resolved elsewhere.

use super::output::Color;
use super::tile_args::TileArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// The memory tool for people who write, compile and run code for NPUs and GPUs
///
/// Exit codes: 0 yes / sound / fits, 1 no, 2 an error in the input or the call, 3 undecided.
#[derive(Debug, Parser)]
#[command(name = "npumem", version, arg_required_else_help = true)]
pub struct Cli {
    /// When to colour the text
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// The verb
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Where does each buffer live, and when; does it fit; what fills memory at the peak; what bounds the speed
    Plan(Box<PlanArgs>),
    /// Is this plan sound? If not: both buffers, the shared bytes, the steps
    Check(CheckArgs),
    /// Run a kernel on the simulator: how long it takes on a device, which engine is busy, what each waits for. With
    /// --on: run a plan on real memory, every result compared with a plain reference
    Run(Box<RunArgs>),
    /// The tile sizes, buffers and copies of one operator: least time or traffic, against its lower bound
    Tile(Box<TileArgs>),
    /// Measure this machine's memory: levels, latency, bandwidth, copies beside kernels; write its device file
    Probe(ProbeArgs),
    /// The points of a lecture on accelerator memory, measured on real memory
    Lecture(LectureArgs),
    /// The catalogue of devices, or one of them: spaces, links and engines, every figure with its source
    Devices(DevicesArgs),
}

/// Which device.
#[derive(Debug, Args)]
pub struct DeviceArgs {
    /// A device of the catalogue, or a file that describes one; without it, the target that a kernel itself names,
    /// then ascend-910b2
    #[arg(long, value_name = "NAME|FILE")]
    pub device: Option<String>,
    /// More device files: a file or a folder of them
    #[arg(long, value_name = "PATH")]
    pub devices: Vec<PathBuf>,
}

/// `npumem plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// A model (.onnx), a kernel (.pto), a placement problem (.csv of MiniMalloc, .json of dsa-problem, npumem's own
    /// text or JSON); `-` reads standard input; without it, the example that ships with npumem
    pub input: Option<PathBuf>,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Capacity of the memory to plan for: BYTES, or SPACE=BYTES (4096, 64 KiB, 32 GB); otherwise the input's or the device's own
    #[arg(long, value_name = "[SPACE=]BYTES")]
    pub capacity: Vec<String>,
    /// A dimension that the model leaves open: a number, or a range whose buffers then stay in the pool
    #[arg(long, value_name = "NAME=N|LO..HI")]
    pub dim: Vec<String>,
    /// A tensor's shape, where the file does not say and no rule is known: TENSOR=2x3x4, or TENSOR=2x3x4:f16
    #[arg(long, value_name = "TENSOR=SHAPE")]
    pub shape: Vec<String>,
    /// Who gives each buffer its bytes: the plan, a pool at run time, or both
    #[arg(long, value_enum, default_value_t)]
    pub strategy: StrategyArg,
    /// How hard to search for a smaller peak
    #[arg(long, value_enum, default_value_t)]
    pub effort: EffortArg,
    /// Counted work that the search may spend, in place of the effort's own
    #[arg(long, value_name = "WORK")]
    pub budget: Option<u64>,
    /// The seed of everything random in the search
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Threads to search with; the answer is the same with any number
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Turn a part of the search off (see docs/placement.md)
    #[arg(long = "without", value_name = "PART")]
    pub without: Vec<String>,
    /// What a good plan is, most important first, in place of the input's own goals
    #[arg(long, value_enum, value_delimiter = ',')]
    pub goal: Vec<GoalArg>,
    /// Print the plan report as JSON
    #[arg(long)]
    pub json: bool,
    /// Write a self-contained page with pictures
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Write the plan: .pto (the kernel with `addr =`), .csv (MiniMalloc, with offsets), .json (npumem's plan, or dsa-solution for a dsa-problem), .txt
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// In place of a memory plan, the tiles of every operator of a model, as `npumem tile` finds them; -o writes them as
    /// .json or .txt
    #[arg(long)]
    pub tiles: bool,
    /// Rows of the table of the peak; 0 shows all
    #[arg(long, default_value_t = 12, value_name = "ROWS")]
    pub top: usize,
}

/// `npumem check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Kernels (.pto files and folders of them, npumem's program text), or one problem as for `plan` (a .csv with an
    /// `offset` column is a problem and its plan); then, after one kernel or problem, its plan: .csv with offsets,
    /// npumem's plan (JSON or text), dsa-solution JSON
    #[arg(required = true, value_name = "INPUT [PLAN]")]
    pub inputs: Vec<PathBuf>,
    /// The kernel before planning, beside one planned kernel: it says which handles are one buffer, so that what the
    /// planned file alone leaves undecided is decided
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// As for `plan`
    #[arg(long, value_name = "[SPACE=]BYTES")]
    pub capacity: Vec<String>,
    /// As for `plan`
    #[arg(long, value_name = "NAME=N|LO..HI")]
    pub dim: Vec<String>,
    /// As for `plan`
    #[arg(long, value_name = "TENSOR=SHAPE")]
    pub shape: Vec<String>,
    /// As for `plan`
    #[arg(long, value_enum, default_value_t)]
    pub strategy: StrategyArg,
    /// Print the verdict as JSON
    #[arg(long)]
    pub json: bool,
    /// Print what was found in kernels as SARIF 2.1.0
    #[arg(long, conflicts_with = "json")]
    pub sarif: bool,
    /// Also print a line per finding that GitHub shows beside the source; on by itself on its runners
    #[arg(long)]
    pub annotations: bool,
    /// Violations to print as text; 0 prints all
    #[arg(long, default_value_t = 20, value_name = "ROWS")]
    pub top: usize,
}

/// `npumem run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// A kernel for the simulator: .pto, or npumem's program text; with --on, a model or a placement problem as for
    /// `plan`
    pub input: PathBuf,
    #[command(flatten)]
    pub real: RealArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// The kernel of that name, when the file has several; without it, each in turn
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
    /// The value of an argument
    #[arg(long, value_name = "NAME=N")]
    pub dim: Vec<String>,
    /// Blocks of the grid, for a kernel that asks for its index in it; without it, the kernel's own extent, or one
    /// for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: Option<u64>,
    /// Cores that run them; without it, all that the device has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub cores: Option<u64>,
    /// Where the order between engines comes from
    #[arg(long, value_enum, default_value_t)]
    pub order: OrderArg,
    /// How closely the main memory is simulated
    #[arg(long, value_enum, default_value_t)]
    pub detail: DetailArg,
    /// Statements that the queue of an engine holds before the core must wait
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub queue: u32,
    /// Watch memory byte by byte: reads of unwritten or foreign bytes, accesses outside, races; exit code 1 when there
    /// is one
    #[arg(long)]
    pub sanitize: bool,
    /// Compute the values: what the kernel leaves in the caller's memory
    #[arg(long)]
    pub values: bool,
    /// With values: the content of a buffer of the caller; others are random by the seed
    #[arg(long = "input", value_name = "NAME=FILE.npy")]
    pub input_file: Vec<String>,
    /// With values: write a buffer of the caller after the run
    #[arg(long, value_name = "NAME=FILE.npy")]
    pub output: Vec<String>,
    /// With values: a real argument
    #[arg(long = "real", value_name = "NAME=X")]
    pub real_value: Vec<String>,
    /// With values: the seed of what is random
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Write a self-contained page: engines over time, memories, the way of one tile
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Write the whole timeline as a trace that the Perfetto viewer (ui.perfetto.dev) opens
    #[arg(long, value_name = "FILE.json")]
    pub perfetto: Option<PathBuf>,
    /// Try one more slot for the buffers that engines wait for, in long runs too
    #[arg(long)]
    pub advice: bool,
    /// Steps after which an endless loop is given up
    #[arg(long, value_name = "N", default_value_t = 200_000_000)]
    pub max_steps: u64,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
    /// Rows of each table; 0 shows all
    #[arg(long, default_value_t = 12, value_name = "ROWS")]
    pub top: usize,
}

/// How closely the main memory is simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DetailArg {
    /// By bandwidth and latency
    #[default]
    Fast,
    /// Command by command: channels, banks, open rows, refresh; slower, and the device must describe its DRAM
    Detailed,
}

/// Where the order between engines comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OrderArg {
    /// From the kernel's own flags, tokens and barriers when it has them, else from the bytes
    #[default]
    Auto,
    /// From the bytes that statements read and write
    Ranges,
    /// From the kernel's own flags, tokens and barriers alone
    Program,
}

/// `npumem run --on`: real memory.
#[derive(Debug, Args)]
pub struct RealArgs {
    /// With --on: the plan of the input; without it, the plan that `npumem plan` makes (or the input carries)
    pub plan: Option<PathBuf>,
    /// Run on real memory: a model's operators, or a problem's buffers, where the plan puts them
    #[arg(long, value_enum, value_name = "DEVICE")]
    pub on: Option<OnArg>,
    /// With --on: a tensor's shape, as for `plan`
    #[arg(long, value_name = "TENSOR=SHAPE")]
    pub shape: Vec<String>,
    /// With --on: as for `plan`
    #[arg(long, value_name = "[SPACE=]BYTES")]
    pub capacity: Vec<String>,
}

/// `npumem probe`
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// What to measure
    #[arg(long, value_enum, value_name = "DEVICE", default_value = "host")]
    pub on: OnArg,
    /// Write the device file, which --device takes; `-` is standard output
    #[arg(long, short, value_name = "FILE.toml")]
    pub output: Option<PathBuf>,
    /// The name in the device file
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Two seconds instead of ten, coarser
    #[arg(long)]
    pub quick: bool,
    /// The largest working set; without it, 256 MiB, or 64 MiB with --quick
    #[arg(long, value_name = "BYTES")]
    pub largest: Option<String>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// `npumem lecture`
#[derive(Debug, Args)]
pub struct LectureArgs {
    /// Where
    #[arg(long, value_enum, value_name = "DEVICE", default_value = "host")]
    pub on: OnArg,
    /// Two seconds instead of twenty, smaller
    #[arg(long)]
    pub quick: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Real memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnArg {
    /// This machine's memory; a thread copies, a thread computes
    Host,
    /// The first OpenCL device, through the loader of this machine
    Opencl,
    /// The first CUDA device
    Cuda,
}

/// `npumem devices`
#[derive(Debug, Args)]
pub struct DevicesArgs {
    /// A device of the catalogue, or a file that describes one
    pub name: Option<String>,
    /// More device files: a file or a folder of them
    #[arg(long, value_name = "PATH")]
    pub devices: Vec<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Who gives each buffer its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum StrategyArg {
    /// Every offset comes from the plan
    Static,
    /// Every buffer is allocated at run time
    Dynamic,
    /// The plan holds what has a fixed size and a known lifetime, a pool the rest
    #[default]
    Hybrid,
}

/// How hard to search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum EffortArg {
    /// Greedy orders only
    Fast,
    /// Exact and local search within a budget of counted work: most inputs end in a second, hard ones in half a minute
    #[default]
    Normal,
    /// The same with sixty times the budget: up to half an hour; Ctrl-C takes the best so far
    Thorough,
}

/// What a good plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GoalArg {
    /// The smallest peak of each space
    Peak,
    /// The smallest sum of the spaces' peaks
    TotalPeak,
    /// The smallest largest peak
    MaxPeak,
    /// Within the capacities
    Fit,
    /// The least total of reuse penalties
    ReuseCost,
    /// The fewest bytes of buffers that left their hint
    KeepHints,
    /// The least traffic to slower spaces
    Traffic,
}
