//! `npumem lecture` on the host as it is built for release, and on OpenCL where there is one.

use crate::shell::{cargo, run as shell_run};
use npumem_testing::workspace_root;
use serde_json::{Value, json};
use std::process::Command;

/// Measures and returns the line to record.
///
/// # Errors
/// When the program cannot be built, or says what cannot be read.
pub fn run() -> Result<Value, String> {
    shell_run(cargo(&["build", "--release", "--quiet", "-p", "npumem"]))?;
    let program = workspace_root().join("target/release/npumem");
    let mut parts = Vec::new();
    for on in ["host", "opencl"] {
        let told = Command::new(&program).args(["lecture", "--json", "--on", on]).env("POCL_AFFINITY", "1").output();
        let told = told.map_err(|error| format!("{}: {error}", program.display()))?;
        if !told.status.success() {
            println!("{on}: not measured: {}", String::from_utf8_lossy(&told.stderr).trim());
            continue;
        }
        let part: Value = serde_json::from_slice(&told.stdout).map_err(|error| format!("{on}: {error}"))?;
        println!("on {}", part["on"].as_str().unwrap_or(on));
        for section in part["sections"].as_array().into_iter().flatten() {
            println!("  {}", section["title"].as_str().unwrap_or(""));
            for row in section["rows"].as_array().into_iter().flatten() {
                println!(
                    "  {:>14.3} {:<9} {:>8.2} x  {}",
                    row["value"].as_f64().unwrap_or(f64::NAN),
                    row["unit"].as_str().unwrap_or(""),
                    row["ratio"].as_f64().unwrap_or(f64::NAN),
                    row["what"].as_str().unwrap_or("")
                );
            }
        }
        parts.push(part);
    }
    Ok(json!({"set": "lecture", "parts": parts}))
}
