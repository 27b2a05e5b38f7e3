//! From arguments to exit codes: 0 yes / sound / fits, 1 no, 2 an error in the input or the call, 3 undecided.

mod args;
mod check;
mod devices;
mod execute;
mod interrupt;
mod kernel;
mod lecture;
mod output;
mod plan;
mod probe;
mod real;
mod resolve;
mod run;
mod tile;
mod tile_args;

use args::{Cli, Verb};
use clap::Parser;
use std::process::ExitCode;

/// What a verb came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Yes, sound, fits.
    Yes,
    /// No.
    No,
    /// Neither could be shown.
    Undecided,
}

/// A verb's outcome; the error is one text for standard error.
type Outcome = Result<Answer, String>;

/// Runs the command line.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.verb {
        Verb::Plan(args) => plan::run(args, cli.color),
        Verb::Check(args) => check::run(args, cli.color),
        Verb::Run(args) => run::run(args, cli.color),
        Verb::Tile(args) => tile::run(args, cli.color),
        Verb::Probe(args) => probe::run(args),
        Verb::Lecture(args) => lecture::run(args),
        Verb::Devices(args) => devices::run(args, cli.color),
    };
    match outcome {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Undecided) => ExitCode::from(3),
        Err(why) => {
            output::complain(&format!("npumem: {why}"));
            ExitCode::from(2)
        }
    }
}
