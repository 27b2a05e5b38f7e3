//! npumem's chores, one command each: `cargo xtask test`, `bench`, `soak`, `tidy`, `setup`.
#![allow(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod bench;
mod models;
mod setup;
mod shell;
mod soak;
mod test;
mod tidy;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// npumem's chores, one command each
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Chores {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Everything that must hold: installs what tests need, then fmt, clippy, tidy, tests (a browser's and Python's among them), docs
    Test(test::Options),
    /// Measures, with today's best tools beside us in the same run, and records a line under bench/
    Bench(bench::Options),
    /// What takes longer than a test may: long fuzzing, a billion operations
    Soak(soak::Options),
    /// The rules of style that are tests: crate directions, module docs, file sizes, dead links
    Tidy,
    /// Writes the example models that ship with the repository
    Models,
    /// Installs what the tests need, or says what to install
    Setup,
}

fn main() -> ExitCode {
    let outcome = match Chores::parse().chore {
        Chore::Test(options) => test::run(&options),
        Chore::Bench(options) => bench::run(&options),
        Chore::Soak(options) => soak::run(&options),
        Chore::Tidy => tidy::run(),
        Chore::Models => models::run(),
        Chore::Setup => {
            setup::Tools::install().print();
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}
