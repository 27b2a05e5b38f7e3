//! `cargo xtask test`: everything that must hold, counted, with what was skipped named.

use crate::setup::Tools;
use crate::shell::{cargo, each_line, run as shell_run};
use crate::tidy;
use clap::Args;
use std::time::Instant;

/// What to run.
#[derive(Args)]
pub struct Options {
    /// Install nothing: tests whose tools are missing are counted as skipped
    #[arg(long)]
    no_install: bool,
}

/// Totals over all steps.
#[derive(Default)]
struct Count {
    passed: u64,
    failed: u64,
    skipped: Vec<String>,
    failures: Vec<String>,
}

impl Count {
    /// Runs one step that either holds or not.
    fn step(&mut self, name: &str, outcome: impl FnOnce() -> Result<(), String>) {
        println!("== {name}");
        let start = Instant::now();
        match outcome() {
            Ok(()) => self.passed += 1,
            Err(why) => {
                self.failed += 1;
                self.failures.push(format!("{name}: {why}"));
            }
        }
        println!("   {:.1} s", start.elapsed().as_secs_f64());
    }

    /// Reads a line of a Rust test binary's output.
    fn read(&mut self, line: &str) {
        if let Some(why) = line.trim_start().strip_prefix("skipped: ") {
            self.skipped.push(why.to_owned());
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let number_before = |word: &str| {
            result.split([';', '.']).find_map(|part| part.trim().strip_suffix(word)?.trim().parse::<u64>().ok())
        };
        self.passed += number_before(" passed").unwrap_or(0);
        self.failed += number_before(" failed").unwrap_or(0);
    }
}

/// Runs every step, however many fail.
///
/// # Errors
/// When one failed.
pub fn run(options: &Options) -> Result<(), String> {
    let mut count = Count::default();
    let tools = (!options.no_install).then(Tools::install);
    if let Some(tools) = &tools {
        tools.print();
    }
    count.step("format", || shell_run(cargo(&["fmt", "--all", "--check"])));
    count
        .step("clippy", || shell_run(cargo(&["clippy", "-q", "--workspace", "--all-targets", "--", "-D", "warnings"])));
    count.step("tidy", tidy::run);
    rust_tests(&mut count, tools.as_ref());
    count.step("documentation", || {
        let mut doc = cargo(&["doc", "-q", "--workspace", "--no-deps"]);
        doc.env("RUSTDOCFLAGS", "-D warnings");
        shell_run(doc)
    });
    count.step("the README's first command", || {
        let mut plan = cargo(&["run", "-q", "--release", "--", "plan"]);
        plan.stdout(std::process::Stdio::null());
        shell_run(plan)
    });
    finish(&count)
}

/// All Rust tests and documentation examples; the tools that were found are named in the environment.
fn rust_tests(count: &mut Count, tools: Option<&Tools>) {
    println!("== tests");
    let start = Instant::now();
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast", "--", "--show-output"]);
    if let Some(Ok(python)) = tools.map(|tools| &tools.python) {
        tests.env("NPUMEM_PYTHON", python);
    }
    let mut failing = false;
    let outcome = each_line(tests, |line| {
        count.read(line);
        // What a failing test printed is worth its lines; what a passing one printed is not.
        failing = (failing || line == "failures:" || line.contains("... FAILED")) && !line.starts_with("test result:");
        if failing || line.starts_with("test result: FAILED") {
            println!("{line}");
        }
    });
    if let Err(why) = outcome {
        count.failures.push(format!("tests: {why}"));
        count.failed = count.failed.max(1);
    }
    println!("   {:.1} s", start.elapsed().as_secs_f64());
}

fn finish(count: &Count) -> Result<(), String> {
    println!();
    for why in &count.skipped {
        println!("skipped: {why}");
    }
    for why in &count.failures {
        println!("FAILED: {why}");
    }
    println!("{} passed, {} failed, {} skipped", count.passed, count.failed, count.skipped.len());
    if count.failed == 0 && count.failures.is_empty() { Ok(()) } else { Err("not everything holds".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_counted() {
        let mut count = Count::default();
        count.read("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.00s");
        count.read("test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s");
        count.read("skipped: no GPU here");
        count.read("unrelated");
        assert_eq!((count.passed, count.failed, count.skipped.len()), (14, 3, 1));
    }
}
