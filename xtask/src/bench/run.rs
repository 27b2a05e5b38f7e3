//! `npumem run` as a whole process: a product of 4096 on all cores, and every public sample. `NPUMEM_PTOAS` names a
//! checkout of the public repository; without it the samples are left out.

use crate::shell::{cargo, run as shell_run};
use npumem_testing::{files_under, workspace_root};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

const RUNS: usize = 5;
/// What a sample, and the product, may take.
const MOST_SAMPLE_MS: f64 = 200.0;
const MOST_PRODUCT_MS: f64 = 1000.0;

/// Measures and returns the line to record.
///
/// # Errors
/// When the program cannot be built or run.
pub fn run() -> Result<Value, String> {
    shell_run(cargo(&["build", "-q", "--release", "-p", "npumem"]))?;
    let root = workspace_root();
    let product = root.join("testdata/kernels/matmul_4096.npumem");
    let mut rows = Vec::new();
    for (detail, most) in [("fast", Some(MOST_PRODUCT_MS)), ("detailed", None)] {
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            let (code, cpu, memory) = measure(&product, &["--detail", detail])?;
            if code != 0 {
                return Err(format!("{}: exit code {code}", product.display()));
            }
            runs.push((cpu, memory));
        }
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (cpu, memory) = runs[RUNS / 2];
        println!(
            "4096 x 4096 x 4096 on 24 cores, {detail:<8}  {cpu:>7.1} ms of CPU time, {:.0} MiB",
            memory / 1048576.0
        );
        rows.push(json!({
            "program": "matmul_4096", "detail": detail, "cpu_ms": cpu, "memory_bytes": memory, "target_ms": most,
            "met": most.map(|most| cpu <= most),
        }));
    }
    let samples = match std::env::var_os("NPUMEM_PTOAS") {
        Some(checkout) => samples(Path::new(&checkout))?,
        None => {
            println!("the public samples are left out: NPUMEM_PTOAS is not set");
            Value::Null
        }
    };
    Ok(
        json!({"set": "run", "runs": RUNS, "figure": "median CPU time of whole processes", "rows": rows, "samples": samples}),
    )
}

/// Exit code, CPU milliseconds and peak bytes of one run.
fn measure(file: &Path, more: &[&str]) -> Result<(i32, f64, f64), String> {
    let program = workspace_root().join("target/release/npumem");
    let mut command = Command::new("python3");
    command.arg("-c").arg(super::plan::MEASURE).arg(&program).arg("run").arg(file).args(more);
    let output = command.output().map_err(|error| format!("python3 did not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [code, _, cpu, memory] => Ok((code as i32, cpu, memory)),
        _ => Err(format!("{}: {text}", file.display())),
    }
}

/// Every sample once; those that ask for an argument, and those that are wrong on purpose, end with code 2.
fn samples(checkout: &Path) -> Result<Value, String> {
    let files = files_under(checkout, ".pto");
    let (mut codes, mut slowest, mut total) = ([0_u32; 4], (0.0_f64, String::new()), 0.0);
    for file in &files {
        let (code, cpu, _) = measure(file, &[])?;
        let place = usize::try_from(code).ok().filter(|code| *code < 4);
        codes[place.ok_or_else(|| format!("{}: exit code {code}", file.display()))?] += 1;
        if cpu > slowest.0 {
            slowest = (cpu, file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default());
        }
        total += cpu;
    }
    println!(
        "{} samples: {} ran, {} stood still, {} refused, {} met a bound; slowest {:.1} ms ({}; at most {MOST_SAMPLE_MS} ms), mean {:.1} ms",
        files.len(),
        codes[0],
        codes[1],
        codes[2],
        codes[3],
        slowest.0,
        slowest.1,
        total / files.len().max(1) as f64
    );
    Ok(json!({
        "files": files.len(), "ran": codes[0], "deadlocked": codes[1], "refused": codes[2], "bounded": codes[3],
        "slowest_ms": slowest.0, "slowest": slowest.1, "target_ms": MOST_SAMPLE_MS, "met": slowest.0 <= MOST_SAMPLE_MS,
    }))
}
