//! The main job as a whole process: `npumem plan` on a model, wall time, CPU time and peak memory.

use crate::shell::{cargo, run as shell_run};
use npumem_import::onnx::write::Weights;
use npumem_import::onnx::write::models::{Decoder, decoder, resnet50};
use npumem_testing::workspace_root;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;

const RUNS: usize = 7;

/// What a model may take, as the targets of the main job say.
struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    /// The file without its weights: what the memory target counts in.
    slim: usize,
    dims: &'static [&'static str],
    most_ms: f64,
}

fn cases() -> Vec<Case> {
    let slim = resnet50(Weights::Elsewhere);
    let layers = decoder(Decoder::LARGE);
    let dims: &[&str] = &["--dim", "batch=1", "--dim", "sequence=1", "--dim", "past=2047"];
    vec![
        Case { name: "resnet50", slim: slim.len(), bytes: slim.clone(), dims: &[], most_ms: 150.0 },
        Case {
            name: "resnet50-with-weights",
            slim: slim.len(),
            bytes: resnet50(Weights::Random),
            dims: &[],
            most_ms: 150.0,
        },
        Case { name: "decoder-32-layers", slim: layers.len(), bytes: layers, dims, most_ms: 500.0 },
    ]
}

/// Measures and returns the line to record.
///
/// # Errors
/// When the program cannot be built or run.
pub fn run() -> Result<Value, String> {
    shell_run(cargo(&["build", "-q", "--release", "-p", "npumem"]))?;
    let folder = workspace_root().join("target/bench-models");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    println!(
        "{:<24} {:>12} {:>9} {:>9} {:>9} {:>11} {:>11}",
        "model", "file", "wall", "target", "cpu", "memory", "target"
    );
    let mut rows = Vec::new();
    for case in cases() {
        let path = folder.join(format!("{}.onnx", case.name));
        std::fs::write(&path, &case.bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        let (wall, cpu, memory) = measure(&path, case.dims)?;
        let most_memory = (32 << 20) + 3 * case.slim as u64;
        println!(
            "{:<24} {:>12} {:>6.1} ms {:>6.0} ms {:>6.1} ms {:>7.1} MiB {:>7.1} MiB",
            case.name,
            case.bytes.len(),
            wall,
            case.most_ms,
            cpu,
            memory as f64 / 1_048_576.0,
            most_memory as f64 / 1_048_576.0
        );
        rows.push(json!({
            "model": case.name, "file_bytes": case.bytes.len(), "wall_ms": wall, "cpu_ms": cpu, "peak_bytes": memory,
            "target_ms": case.most_ms, "target_bytes": most_memory, "met": wall <= case.most_ms && memory <= most_memory,
        }));
    }
    Ok(json!({"set": "plan", "runs": RUNS, "figure": "median of whole processes", "rows": rows}))
}

/// Runs a process and says how long it took and how much memory it had, through Python's `resource`.
pub(super) const MEASURE: &str = "import resource,subprocess,sys,time
start=time.perf_counter();code=subprocess.call(sys.argv[1:],stdout=subprocess.DEVNULL);wall=time.perf_counter()-start
use=resource.getrusage(resource.RUSAGE_CHILDREN);print(code,wall*1000,(use.ru_utime+use.ru_stime)*1000,use.ru_maxrss*1024)";

/// The medians of wall milliseconds, CPU milliseconds and peak bytes.
fn measure(model: &PathBuf, dims: &[&str]) -> Result<(f64, f64, u64), String> {
    let binary = workspace_root().join("target/release/npumem");
    let mut runs: Vec<[f64; 3]> = Vec::new();
    for _ in 0..RUNS {
        let mut command = Command::new("python3");
        command.arg("-c").arg(MEASURE).arg(&binary).arg("plan").arg(model).args(dims);
        let output = command.output().map_err(|error| format!("python3 did not start: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [0.0, wall, cpu, memory] => runs.push([wall, cpu, memory]),
            _ => return Err(format!("{}: {text}{}", model.display(), String::from_utf8_lossy(&output.stderr))),
        }
    }
    let median = |column: usize| {
        let mut values: Vec<f64> = runs.iter().map(|run| run[column]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Ok((median(0), median(1), median(2) as u64))
}
