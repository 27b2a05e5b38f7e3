//! `cargo xtask bench`: figures with today's best tools beside ours, in one run.
//!
//! Each set prints a table and appends one JSON line to `bench/SET.jsonl`.

mod plan;

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
    /// The main job as a whole process: time and memory
    Plan,
}

/// Runs the sets asked for.
///
/// # Errors
/// When a set cannot run.
pub fn run(options: &Options) -> Result<(), String> {
    for set in Set::value_variants() {
        if options.set.is_none_or(|only| only == *set) {
            let line = match set {
                Set::Plan => plan::run()?,
            };
            if !options.dry {
                record(set, &line)?;
            }
        }
    }
    Ok(())
}

fn record(set: &Set, line: &serde_json::Value) -> Result<(), String> {
    let name = set.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let path = workspace_root().join(format!("bench/{name}.jsonl"));
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    writeln!(file, "{line}").map_err(|error| format!("{}: {error}", path.display()))?;
    println!("recorded in bench/{name}.jsonl");
    Ok(())
}
