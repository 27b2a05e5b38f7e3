//! `cargo xtask soak`: what takes longer than a test may.
//!
//! Tests that are ready for it read `NPUMEM_SOAK` (a factor on their number of cases) and are run alone, in release.

use crate::shell::{cargo, run as shell_run};
use clap::Args;

/// What to soak.
#[derive(Args)]
pub struct Options {
    /// Only the tests whose name contains this
    filter: Option<String>,
    /// How many times the cases of a plain test run
    #[arg(long, default_value_t = 100)]
    factor: u64,
}

/// Runs the tests whose name contains `soak`, or the filter, with many times the cases.
///
/// # Errors
/// When one failed.
pub fn run(options: &Options) -> Result<(), String> {
    let filter = options.filter.as_deref().unwrap_or("soak");
    let mut tests = cargo(&["test", "--release", "--workspace", filter, "--", "--nocapture"]);
    tests.env("NPUMEM_SOAK", options.factor.to_string());
    shell_run(tests)
}
