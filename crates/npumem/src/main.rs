//! The command line: arguments in, text or JSON out. The only place that prints.
#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
