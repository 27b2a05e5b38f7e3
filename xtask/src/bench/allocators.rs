//! Run-time allocators on recorded traces, with peers in the same run: time, footprint, instructions, smallest device.
//!
//! The replay itself is `bench/allocators`, a package outside the workspace, so that the peers are no dependencies.

use npumem_testing::{shared, workspace_root};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROUNDS: &str = "11";

/// Measures and returns the line to record.
///
/// # Errors
/// When the package cannot be built or run, or the traces are not there.
pub fn run() -> Result<Value, String> {
    let target = workspace_root().join("target/bench-allocators");
    let manifest = workspace_root().join("bench/allocators/Cargo.toml");
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--quiet", "--manifest-path"]).arg(&manifest).arg("--target-dir").arg(&target);
    output(&mut build)?;
    let program = target.join("release/bench-allocators");
    let traces = traces(&target)?;
    let arguments: Vec<String> = traces.iter().map(|(name, path)| format!("{name}={}", path.display())).collect();

    let times = lines(&output(Command::new(&program).args(["time", ROUNDS]).args(&arguments))?)?;
    println!(
        "{:<20} {:<17} {:>8} {:>17} {:>24} {:>10}",
        "trace", "allocator", "mean ns", "p50/p99.9/max ns", "without driver call", "footprint"
    );
    for line in &times {
        let figures = |key: &str| {
            let part = &line[key];
            format!("{}/{}/{}", part["p50"], part["p99_9"], part["max"])
        };
        let footprint = line["footprint"].as_f64().map_or_else(String::new, |ratio| format!("{ratio:.4}"));
        println!(
            "{:<20} {:<17} {:>8.1} {:>17} {:>24} {:>10}",
            line["trace"].as_str().unwrap_or(""),
            line["allocator"].as_str().unwrap_or(""),
            line["mean_ns"].as_f64().unwrap_or(f64::NAN),
            figures("all"),
            figures("without_driver_call"),
            footprint
        );
    }
    let limited: Vec<&String> = arguments
        .iter()
        .filter(|one| ["serving", "pangu", "gpu-train-1024"].iter().any(|name| one.starts_with(name)))
        .collect();
    let capacities = lines(&output(Command::new(&program).arg("capacity").args(limited))?)?;
    for line in &capacities {
        println!(
            "smallest device, {}: {:.4} of peak live, {} map and {} unmap calls",
            line["trace"],
            line["smallest_over_live"].as_f64().unwrap_or(f64::NAN),
            line["map_calls"],
            line["unmap_calls"]
        );
    }
    let marked = marked_traces(&target)?;
    let planned = lines(&output(Command::new(&program).args(["hybrid", ROUNDS]).args(&marked))?)?;
    for line in &planned {
        println!("hybrid, {line}");
    }
    let threads = lines(&output(Command::new(&program).args(["threads", ROUNDS]).args(&arguments[..1]))?)?;
    for line in &threads {
        println!("two threads on one pool, {line}");
    }
    let instructions = instructions(&program, &traces);
    for (name, count) in &instructions {
        println!("instructions per call, harness included, {name}: {count:.1}");
    }
    Ok(json!({ "times": times, "capacities": capacities, "hybrid": planned, "threads": threads,
               "instructions": instructions.into_iter().map(|(name, count)| json!({ "trace": name, "per_call": count })).collect::<Vec<_>>() }))
}

/// The text traces by short name; compressed and foreign ones are written to the target folder first.
fn traces(target: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let folder = shared("data/allocation-traces").ok_or("the recorded traces are not there (NPUMEM_SHARED)")?;
    let mut traces = Vec::new();
    for name in ["gpu-train-1024", "npu-train", "gpu-inference-512", "gpu-forward-fp32"] {
        traces.push((name.to_owned(), folder.join(format!("{name}.trc"))));
    }
    for (name, file) in [("training", "gen_b_train_varlen"), ("serving", "gen_c_serve_mooncake")] {
        let path = target.join(format!("{name}.trc"));
        let text = output(Command::new("xz").arg("-dc").arg(folder.join(format!("{file}.trc.xz"))))?;
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        traces.push((name.to_owned(), path));
    }
    for (name, file) in [("pangu", "pangu_2.6B"), ("resnet50", "resnet50")] {
        if let Some(source) = shared(&format!("data/placement/large/{file}.csv")) {
            let path = target.join(format!("{name}.trc"));
            let text = std::fs::read_to_string(&source).map_err(|error| format!("{}: {error}", source.display()))?;
            std::fs::write(&path, calls_of_lifetimes(&text)?)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            traces.push((name.to_owned(), path));
        }
    }
    Ok(traces)
}

/// The training trace with a mark before each iteration, and a variant whose every iteration is the largest of them.
fn marked_traces(target: &Path) -> Result<Vec<String>, String> {
    let path = target.join("training.trc");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut arguments = Vec::new();
    for (name, text) in [("varying", marked(&text, false)?), ("fixed", marked(&text, true)?)] {
        let path = target.join(format!("training-{name}.trc"));
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        arguments.push(format!("{name}={}", path.display()));
    }
    Ok(arguments)
}

/// Blocks that live through this many calls belong to no iteration.
const LASTING: usize = 20_000;

/// Puts marks into a training trace: an iteration ends where only the lasting blocks are live. With `fixed` every iteration is the one
/// that allocates the most bytes.
fn marked(text: &str, fixed: bool) -> Result<String, String> {
    let mut calls: Vec<(bool, &str, u64)> = Vec::new();
    let mut starts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut lasting: BTreeSet<&str> = BTreeSet::new();
    for (index, line) in text.lines().enumerate() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["a", id, bytes] => {
                starts.insert(id, index);
                lasting.insert(id);
                calls.push((true, id, bytes.parse().map_err(|error| format!("line {}: {error}", index + 1))?));
            }
            ["f", id] => {
                if starts.get(id).is_some_and(|start| index - start < LASTING) {
                    lasting.remove(id);
                }
                calls.push((false, id, 0));
            }
            _ => return Err(format!("line {}: {line}", index + 1)),
        }
    }
    let setup = calls.iter().take_while(|(allocates, id, _)| *allocates && lasting.contains(id)).count();
    let end = calls.iter().rposition(|(_, id, _)| !lasting.contains(id)).map_or(setup, |last| last + 1);
    let mut iterations: Vec<&[(bool, &str, u64)]> = Vec::new();
    let (mut live, mut start) = (0_usize, setup);
    for (index, (allocates, _, _)) in calls.iter().enumerate().take(end).skip(setup) {
        live = if *allocates { live + 1 } else { live.saturating_sub(1) };
        // A pause of one temporary is not the end of an iteration.
        if live == 0 && index + 1 - start > 1000 {
            iterations.push(&calls[start..=index]);
            start = index + 1;
        }
    }
    let bytes = |calls: &[(bool, &str, u64)]| calls.iter().map(|(_, _, bytes)| bytes).sum::<u64>();
    let largest = iterations.iter().copied().max_by_key(|calls| bytes(calls)).ok_or("the trace has no iterations")?;
    let mut marked = String::new();
    for (_, id, bytes) in &calls[..setup] {
        let _ = writeln!(marked, "a {id} {bytes}");
    }
    for iteration in &iterations {
        marked.push_str("m\n");
        for (allocates, id, bytes) in if fixed { largest } else { *iteration } {
            let _ = if *allocates { writeln!(marked, "a {id} {bytes}") } else { writeln!(marked, "f {id}") };
        }
    }
    Ok(marked)
}

/// Lifetimes (`id,lower,upper,size`) as calls: by step, frees before allocations.
fn calls_of_lifetimes(csv: &str) -> Result<String, String> {
    let mut calls = Vec::new();
    for (index, line) in csv.lines().skip(1).enumerate() {
        let fields: Option<Vec<u64>> = line.split(',').map(|field| field.trim().parse().ok()).collect();
        let Some([_, lower, upper, size]) = fields.as_deref() else {
            return Err(format!("line {}: {line}", index + 2));
        };
        calls.push((*lower, true, index, *size));
        calls.push((*upper, false, index, *size));
    }
    calls.sort_unstable();
    let mut text = String::new();
    for (_, starts, index, size) in calls {
        // Writing to a string cannot fail.
        let _ = if starts { writeln!(text, "a {index} {size}") } else { writeln!(text, "f {index}") };
    }
    Ok(text)
}

/// Instructions of one replay, counted by callgrind where it is installed.
fn instructions(program: &Path, traces: &[(String, PathBuf)]) -> Vec<(String, f64)> {
    let mut counts = Vec::new();
    for (name, path) in traces.iter().take(2) {
        let ran = Command::new("valgrind")
            .args(["--tool=callgrind", "--toggle-collect=bench_allocators::replay*", "--callgrind-out-file=/dev/null"])
            .arg(program)
            .args(["count", &format!("{name}={}", path.display())])
            .output();
        let Ok(ran) = ran else {
            println!("skipped: instructions, valgrind is not installed");
            return counts;
        };
        let collected = String::from_utf8_lossy(&ran.stderr)
            .lines()
            .find_map(|line| line.split_once("Collected : ").and_then(|(_, count)| count.trim().parse::<f64>().ok()));
        let calls = String::from_utf8_lossy(&ran.stdout).trim().parse::<f64>().ok();
        if let (Some(collected), Some(calls)) = (collected, calls) {
            counts.push((name.clone(), collected / calls));
        }
    }
    counts
}

fn output(command: &mut Command) -> Result<String, String> {
    let ran = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if ran.status.success() {
        String::from_utf8(ran.stdout).map_err(|error| error.to_string())
    } else {
        Err(format!("{command:?}: {}", String::from_utf8_lossy(&ran.stderr)))
    }
}

fn lines(text: &str) -> Result<Vec<Value>, String> {
    text.lines().map(|line| serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stand_where_only_lasting_blocks_are_live() {
        let mut text = String::from("a 0 4096\n");
        for round in 0..30 {
            for call in 0..600 {
                let id = 1 + round * 600 + call;
                let _ = writeln!(text, "a {id} {}", 512 + round % 7);
            }
            for call in 0..600 {
                let _ = writeln!(text, "f {}", 1 + round * 600 + call);
            }
        }
        let varying = marked(&text, false).unwrap();
        assert_eq!(varying.lines().filter(|line| *line == "m").count(), 30);
        assert_eq!(varying.lines().filter(|line| *line != "m").collect::<Vec<_>>(), text.lines().collect::<Vec<_>>());
        let fixed = marked(&text, true).unwrap();
        assert_eq!(fixed.lines().count(), varying.lines().count());
        assert!(fixed.lines().skip(2).filter(|line| line.starts_with('a')).all(|line| line.ends_with(" 518")));
        assert!(marked("a 0 1\n", true).is_err() && marked("x\n", true).is_err());
    }
}
