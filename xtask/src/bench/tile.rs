//! Tiling: traffic on the comparison machine beside the recorded figures of today's tools, the time of a search, and what
//! the cost model says beside what the simulator finds.

use crate::shell::run as shell_run;
use npumem::open;
use npumem::simulate::{Request, simulate};
use npumem::simulator::Detail;
use npumem::tile::model::tiles;
use npumem::tiling::{Goal, Slots, io_bound, parse, program, two_level};
use npumem::{catalogue, onnx};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The workloads by the name that the recorded figures have.
const WORKLOADS: [(&str, &str); 6] = [
    ("mm4096_fp16", "matmul m=4096 n=4096 k=4096 a=f16 b=f16 c=f16"),
    ("mm1024_int8", "matmul m=1024 n=1024 k=1024 a=i8 b=i8 c=i8"),
    ("c3x3_56_64_64", "conv c=64 size=56x56 k=64 kernel=3x3 pad=1 in=i8"),
    ("c1x1_56_64_256", "conv c=64 size=56x56 k=256 kernel=1x1 in=i8"),
    ("c7x7_224_3_64", "conv c=3 size=224x224 k=64 kernel=7x7 stride=2 pad=3 in=i8"),
    ("c3x3_14_256_256", "conv c=256 size=14x14 k=256 kernel=3x3 pad=1 in=i8"),
];

/// Models whose operators are simulated: file under the shared data, dimensions.
const MODELS: [(&str, &str, &[&str]); 4] = [
    ("resnet50", "data/models/onnx-exported-light/resnet50.onnx", &[]),
    ("mobilenet_v2", "data/models/onnx-exported-light/mobilenet_v2.onnx", &[]),
    ("vit_b_16", "data/models/onnx-exported-light/vit_b_16.onnx", &[]),
    ("bert_base_s128", "data/models/onnx-exported-light/bert_base_s128.onnx", &[]),
];

/// Measures and returns the line to record; in a release build, started again where this one is not.
///
/// # Errors
/// When a workload has no schedule.
pub fn run() -> Result<Value, String> {
    if cfg!(debug_assertions) {
        let mut again = Command::new("cargo");
        again.args(["run", "-q", "--release", "-p", "xtask", "--", "bench", "tile"]);
        shell_run(again)?;
        return Ok(Value::Null);
    }
    let known = npumem_testing::shared("data/tiling/comparison.csv").map(|path| recorded(&path)).transpose()?;
    let traffic = traffic(known.as_deref().unwrap_or_default())?;
    let devices = devices()?;
    let models = models()?;
    Ok(json!({"set": "tile", "peers": "recorded figures of the shared data, not run here", "traffic": traffic,
        "devices": devices, "models": models}))
}

/// Rows of the recorded figures: workload, KiB, then a number or nothing for each tool.
type Recorded = (String, u64, Vec<(String, u64)>);

fn recorded(path: &Path) -> Result<Vec<Recorded>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let rows = lines.map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        let kib = cells.get(1).and_then(|cell| cell.parse().ok()).unwrap_or(0);
        let figures =
            names.iter().zip(&cells).skip(2).filter_map(|(name, cell)| Some(((*name).to_owned(), cell.parse().ok()?)));
        (cells[0].to_owned(), kib, figures.collect())
    });
    Ok(rows.collect())
}

fn traffic(known: &[Recorded]) -> Result<Vec<Value>, String> {
    println!(
        "{:<16} {:>4} {:>14} {:>14} {:>14} {:>14} {:>8}  recorded: best of the tools of today",
        "workload", "KiB", "bound", "none", "inputs", "all", "ms"
    );
    let mut rows = Vec::new();
    for (name, spec) in WORKLOADS {
        for kib in [512_u64, 64] {
            let operator = parse(spec).map_err(|error| error.to_string())?;
            let bound = io_bound(&operator, kib << 10).bytes;
            let mut found = Vec::new();
            let mut slowest = 0.0_f64;
            for slots in [Slots::Single, Slots::Inputs, Slots::All] {
                let start = Instant::now();
                let best = two_level(&operator, kib << 10, slots).map_err(|error| format!("{spec}: {error}"))?;
                slowest = slowest.max(start.elapsed().as_secs_f64() * 1e3);
                found.push(u64::try_from(best.traffic()).unwrap_or(u64::MAX));
            }
            let figures = known
                .iter()
                .find(|(with, size, _)| with == name && *size == kib)
                .map(|row| row.2.clone())
                .unwrap_or_default();
            let tools = ["zigzag_lpf6", "accelforge_half", "deeploy_dma", "vela_u65_512", "vela_u85_2048"];
            let peer = figures.iter().filter(|(tool, _)| tools.contains(&tool.as_str())).map(|(_, bytes)| *bytes).min();
            println!(
                "{name:<16} {kib:>4} {bound:>14} {:>14} {:>14} {:>14} {slowest:>8.1}  {}",
                found[0],
                found[1],
                found[2],
                peer.map_or("-".to_owned(), |bytes| bytes.to_string())
            );
            rows.push(json!({"workload": name, "sram_kib": kib, "bound": u64::try_from(bound).ok(), "none": found[0], "inputs": found[1],
                "all": found[2], "slowest_ms": slowest, "recorded": figures.into_iter().collect::<std::collections::BTreeMap<_, _>>()}));
        }
    }
    Ok(rows)
}

/// What the simulator finds; nothing when the device lacks a figure for it.
fn cycles(program: &npumem::ir::Program, device: &npumem::ir::Device, detail: Detail) -> Option<f64> {
    let mut request = Request { advice: Some(false), ..Request::default() };
    request.options.detail = detail;
    let done = simulate(program, device, &request, &[]).ok()?;
    let report: Value = serde_json::from_str(&done.report.to_json().ok()?).ok()?;
    report["cycles"].as_f64()
}

/// One operator on devices: how long the search takes, and how far what it says is from what the simulator finds.
fn devices() -> Result<Vec<Value>, String> {
    println!(
        "\n{:<16} {:<14} {:>10} {:>10} {:>8} {:>8} {:>8}",
        "workload", "device", "us", "x roof", "ms", "to fast", "to detailed"
    );
    let mut rows = Vec::new();
    for (name, spec) in WORKLOADS {
        for device in ["ascend-910b2", "nvidia-h200", "generic-npu"] {
            // Not every device's matrix unit takes bytes.
            let spec = spec.replace("i8", "f16");
            let operator = parse(&spec).map_err(|error| error.to_string())?;
            let described = catalogue::device(device).map_err(|error| error.to_string())?;
            let start = Instant::now();
            let found = npumem::tiling::schedule(&operator, &described, Goal::Time)
                .map_err(|error| format!("{spec}: {error}"))?;
            let ms = start.elapsed().as_secs_f64() * 1e3;
            let ratio = found.cycles / found.least_cycles();
            let [fast, detailed] = [Detail::Fast, Detail::Detailed].map(|detail| {
                let program = program(&found, &described).ok().filter(|_| name != "mm4096_fp16")?;
                Some(found.cycles / cycles(&program, &described, detail)? - 1.0)
            });
            let percent = |error: Option<f64>| error.map_or("-".to_owned(), |error| format!("{:.1} %", error * 100.0));
            println!(
                "{name:<16} {device:<14} {:>10.2} {ratio:>10.3} {ms:>8.1} {:>8} {:>8}",
                found.seconds() * 1e6,
                percent(fast),
                percent(detailed)
            );
            rows.push(json!({"workload": name, "device": device, "us": found.seconds() * 1e6, "roofline_ratio": ratio, "search_ms": ms,
                "error_fast": fast, "error_detailed": detailed}));
        }
    }
    Ok(rows)
}

/// All operators of models: the search's time, and what is said beside what the simulator finds.
fn models() -> Result<Vec<Value>, String> {
    println!(
        "\n{:<16} {:<14} {:>6} {:>9} {:>8} {:>8} {:>8} {:>8} {:>10}",
        "model", "device", "ops", "search ms", "median", "p90", "max", "in 3 %", "sum ratio"
    );
    let mut rows = Vec::new();
    for (name, file, dims) in MODELS {
        let Some(path) = npumem_testing::shared(file) else { continue };
        let mut options = onnx::Options { keep_open: true, ..onnx::Options::default() };
        for dim in dims {
            options.bind(dim).map_err(|error| error.to_string())?;
        }
        let graph =
            open::open(&path).and_then(|mut input| input.graph(&options)).map_err(|error| error.to_string())?.graph;
        for device in ["generic-npu", "ascend-910b2"] {
            let described = catalogue::device(device).map_err(|error| error.to_string())?;
            let start = Instant::now();
            let all = tiles(name, &graph, &described, Goal::Time);
            let ms = start.elapsed().as_secs_f64() * 1e3;
            let mut known = std::collections::BTreeMap::new();
            let (mut errors, mut said, mut simulated) = (Vec::new(), 0.0, 0.0);
            for row in &all.rows {
                let Ok(schedule) = &row.schedule else { continue };
                let Ok(text) = program(schedule, &described) else { continue };
                let key = npumem::ir::program::text::print(&text);
                let cycles = match known.get(&key) {
                    Some(cycles) => *cycles,
                    None => {
                        let done = simulate(&text, &described, &Request::default(), &[])
                            .map_err(|error| format!("{name}, {}: {error}", row.name))?;
                        let report: Value = done
                            .report
                            .to_json()
                            .ok()
                            .and_then(|json| serde_json::from_str(&json).ok())
                            .unwrap_or_default();
                        let cycles = report["cycles"].as_f64().unwrap_or(f64::NAN);
                        known.insert(key, cycles);
                        cycles
                    }
                };
                errors.push((schedule.cycles / cycles - 1.0).abs());
                said += schedule.cycles;
                simulated += cycles;
            }
            errors.sort_by(f64::total_cmp);
            let at = |share: f64| {
                errors
                    .get(((errors.len() as f64 * share) as usize).min(errors.len().saturating_sub(1)))
                    .copied()
                    .unwrap_or(f64::NAN)
            };
            let within = errors.iter().filter(|error| **error <= 0.03).count() as f64 / errors.len().max(1) as f64;
            let ratio = said / simulated;
            println!(
                "{name:<16} {device:<14} {:>6} {ms:>9.0} {:>7.1}% {:>7.1}% {:>7.1}% {:>7.0}% {ratio:>10.3}",
                errors.len(),
                at(0.5) * 100.0,
                at(0.9) * 100.0,
                at(1.0) * 100.0,
                within * 100.0
            );
            rows.push(json!({"model": name, "device": device, "operators": errors.len(), "search_ms": ms, "error_median": at(0.5),
                "error_p90": at(0.9), "error_max": at(1.0), "within_3_percent": within, "sum_ratio": ratio}));
        }
    }
    Ok(rows)
}
