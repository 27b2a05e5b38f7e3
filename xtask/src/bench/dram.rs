//! The detailed DRAM model: requests a second of one core, DRAMsim3 beside it where its sources are.
//!
//! `NPUMEM_DRAMSIM3` names a checkout of umd-memsys/DRAMsim3; it is built there with make.

use npumem_testing::workspace_root;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const PATTERNS: [&str; 5] = ["stream", "rand:64", "rand:1024", "stride:65536", "tile:128:512:8192"];

/// Measures and returns the line to record.
///
/// # Errors
/// When a program cannot be built or run.
pub fn run() -> Result<Value, String> {
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--quiet", "--package", "npumem-simulator", "--example", "dram_speed"]);
    output(build.current_dir(workspace_root()))?;
    let program = workspace_root().join("target/release/examples/dram_speed");
    let ours = lines(&output(Command::new(program).arg("2000000"))?)?;
    let theirs = match std::env::var_os("NPUMEM_DRAMSIM3") {
        Some(sources) => reference(Path::new(&sources))?,
        None => {
            println!("skipped: DRAMsim3 (set NPUMEM_DRAMSIM3 to a checkout of umd-memsys/DRAMsim3)");
            Vec::new()
        }
    };
    println!("{:<20} {:<14} {:>12} {:>12} {:>7}", "pattern", "mapping", "requests/s", "DRAMsim3", "ratio");
    for line in &ours {
        let text = |key: &str| line[key].as_str().unwrap_or("").to_owned();
        let same = |other: &&Value| other["pattern"] == line["pattern"] && other["mapping"] == line["mapping"];
        let speed = line["requests_per_second"].as_f64().unwrap_or(f64::NAN);
        let other = theirs.iter().find(same).and_then(|other| other["requests_per_second"].as_f64());
        println!(
            "{:<20} {:<14} {:>12.0} {:>12} {:>7}",
            text("pattern"),
            text("mapping"),
            speed,
            other.map_or_else(String::new, |other| format!("{other:.0}")),
            other.map_or_else(String::new, |other| format!("{:.1}", speed / other))
        );
    }
    Ok(json!({ "set": "dram", "figure": "user time of one core", "ours": ours, "dramsim3": theirs }))
}

/// DRAMsim3 on the same patterns, with the same configuration.
fn reference(sources: &Path) -> Result<Vec<Value>, String> {
    output(Command::new("make").arg("-C").arg(sources).arg("libdramsim3.so"))?;
    let folder = workspace_root().join("target/bench-dram");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let driver = folder.join("driver");
    let mut compile = Command::new("g++");
    compile.args(["-O3", "-std=c++11"]);
    for include in ["src", "ext/headers", "ext/fmt/include"] {
        compile.arg("-I").arg(sources.join(include));
    }
    compile.arg(workspace_root().join("bench/dram/driver.cc")).arg("-o").arg(&driver);
    compile.arg("-L").arg(sources).arg("-ldramsim3").arg(format!("-Wl,-rpath,{}", sources.display()));
    output(&mut compile)?;
    let shipped = sources.join("configs/HBM2_8Gb_x128.ini");
    let text = std::fs::read_to_string(&shipped).map_err(|error| format!("{}: {error}", shipped.display()))?;
    let mut found = Vec::new();
    for mapping in ["rorabgbachco", "rorabacobgch"] {
        let config: PathBuf = folder.join(format!("{mapping}.ini"));
        std::fs::write(&config, text.replace("rorabgbachco", mapping))
            .map_err(|error| format!("{}: {error}", config.display()))?;
        for pattern in PATTERNS {
            let count = if pattern == "stream" { "400000" } else { "100000" };
            let ran = output(Command::new(&driver).current_dir(&folder).arg(&config).args([pattern, "1024", count]))?;
            for mut line in lines(&ran)? {
                line["mapping"] = json!(mapping);
                found.push(line);
            }
        }
    }
    Ok(found)
}

fn lines(text: &str) -> Result<Vec<Value>, String> {
    text.lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).map_err(|error| format!("{line}: {error}")))
        .collect()
}

fn output(command: &mut Command) -> Result<String, String> {
    let ran = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if ran.status.success() {
        String::from_utf8(ran.stdout).map_err(|error| error.to_string())
    } else {
        Err(format!("{command:?}: {}", String::from_utf8_lossy(&ran.stderr)))
    }
}
