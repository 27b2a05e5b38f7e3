//! `cargo xtask bench`: figures with today's best tools beside ours, in one run.
//!
//! Each set prints a table and appends one JSON line to `bench/SET.jsonl`.

mod allocators;
mod dram;
mod kernels;
mod lecture;
mod placement;
mod plan;
mod run;
mod shapes;
mod tile;

use clap::{Args, ValueEnum};
use npumem_testing::workspace_root;
use std::io::Write as _;

/// What to measure.
#[derive(Args)]
pub struct Options {
    /// The set; all of them when none is named
    set: Option<Set>,
    /// Print the table and record nothing
    #[arg(long)]
    dry: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Set {
    /// Run-time allocators on recorded traces, with peers
    Allocators,
    /// The detailed DRAM model: requests a second, beside DRAMsim3
    Dram,
    /// The check of kernels as a whole process: ten thousand statements, and every public sample
    Kernels,
    /// The main job as a whole process: time and memory
    Plan,
    /// `npumem run` as a whole process: a product of 4096 on all cores, fast and detailed, and every public sample
    Run,
    /// The lecture on real memory: allocation with and without recording, tiles, overlap
    Lecture,
    /// Offsets: peak, bound and time on every stored problem, and on a million generated buffers
    Placement,
    /// Traffic of tiles beside recorded figures of peers, search time, the cost model beside the simulator
    Tile,
}

/// Runs the sets asked for.
///
/// # Errors
/// When a set cannot run.
pub fn run(options: &Options) -> Result<(), String> {
    for set in Set::value_variants() {
        if options.set.is_none_or(|only| only == *set) {
            let line = match set {
                Set::Allocators => allocators::run()?,
                Set::Dram => dram::run()?,
                Set::Kernels => kernels::run()?,
                Set::Lecture => lecture::run()?,
                Set::Plan => plan::run()?,
                Set::Run => run::run()?,
                Set::Placement => placement::run()?,
                Set::Tile => tile::run()?,
            };
            if !options.dry && !line.is_null() {
                record(set, &line)?;
            }
        }
    }
    Ok(())
}

fn record(set: &Set, line: &serde_json::Value) -> Result<(), String> {
    let name = set.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let folder = workspace_root().join("bench");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let path = folder.join(format!("{name}.jsonl"));
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    writeln!(file, "{line}").map_err(|error| format!("{}: {error}", path.display()))?;
    println!("recorded in bench/{name}.jsonl");
    Ok(())
}
