//! Kernels as whole processes: `npumem check` on ten thousand statements, on every public sample and on our plans of
//! them. `NPUMEM_PTOAS` names a checkout of the public repository; without it only the first is measured.

use crate::shell::{cargo, run as shell_run};
use npumem_testing::{files_under, workspace_root};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What the check of ten thousand statements, and of one sample, may take.
const MOST_MANY_MS: f64 = 200.0;
const MOST_SAMPLE_MS: f64 = 100.0;
const RUNS: usize = 7;

/// Measures and returns the line to record.
///
/// # Errors
/// When the program cannot be built or run.
pub fn run() -> Result<Value, String> {
    shell_run(cargo(&["build", "-q", "--release", "-p", "npumem"]))?;
    let program = workspace_root().join("target/release/npumem");
    let folder = workspace_root().join("target/bench-kernels");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut rows = Vec::new();
    let shapes = [
        ("straight", straight()),
        ("loops", loops()),
        ("buffers", buffers()),
        ("flags", flags()),
        ("nests", nests()),
        ("branches", branches()),
        ("exchanges", exchanges()),
    ];
    for (name, text) in shapes {
        let path = folder.join(format!("{name}.npumem"));
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut times = Vec::new();
        for _ in 0..RUNS {
            times.push(cpu(&program, &path)?);
        }
        let middle = |of: fn(&(f64, f64)) -> f64| {
            let mut values: Vec<f64> = times.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[RUNS / 2]
        };
        let (wall, cpu) = (middle(|time| time.0), middle(|time| time.1));
        println!(
            "10,000 statements, {name:<9}  {wall:>7.1} ms, {cpu:>6.1} ms of CPU time   (at most {MOST_MANY_MS} ms)"
        );
        rows.push(json!({
            "statements": 10_000, "shape": name, "wall_ms": wall, "cpu_ms": cpu, "target_ms": MOST_MANY_MS,
            "met": cpu <= MOST_MANY_MS,
        }));
    }
    let samples = match std::env::var_os("NPUMEM_PTOAS") {
        Some(checkout) => samples(&program, Path::new(&checkout), &folder)?,
        None => {
            println!("the public samples are left out: NPUMEM_PTOAS is not set");
            Value::Null
        }
    };
    Ok(json!({"set": "kernels", "runs": RUNS, "figure": "median of whole processes", "rows": rows, "samples": samples}))
}

/// Wall and CPU milliseconds of one check; the second does not follow what else the machine does.
fn cpu(program: &Path, file: &Path) -> Result<(f64, f64), String> {
    let mut command = Command::new("python3");
    command.arg("-c").arg(super::plan::MEASURE).arg(program).arg("check").arg(file).env_remove("GITHUB_ACTIONS");
    let output = command.output().map_err(|error| format!("python3 did not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [0.0, wall, cpu, _] => Ok((wall, cpu)),
        _ => Err(format!("{}: {text}", file.display())),
    }
}

fn timed(program: &Path, arguments: &[PathBuf]) -> Result<(i32, f64), String> {
    let started = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .env_remove("GITHUB_ACTIONS")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    Ok((status.code().unwrap_or(-1), started.elapsed().as_secs_f64() * 1000.0))
}

/// Every sample checked, planned, and the plan of it checked.
fn samples(program: &Path, checkout: &Path, folder: &Path) -> Result<Value, String> {
    let files = files_under(checkout, ".pto");
    // By exit code: sound, unsound, refused, undecided.
    let (mut verdicts, mut plans) = ([0_u32; 4], [0_u32; 4]);
    let (mut slowest, mut total, mut unfit) = (0.0_f64, 0.0, 0_u32);
    let place = |code: i32| usize::try_from(code).ok().filter(|code| *code < 4).ok_or(format!("exit code {code}"));
    for file in &files {
        let (code, ms) = timed(program, &["check".into(), file.clone()])?;
        verdicts[place(code)?] += 1;
        slowest = slowest.max(ms);
        total += ms;
        let planned = folder.join("planned.pto");
        let arguments = ["plan".into(), file.clone(), "-o".into(), planned.clone(), "--effort".into(), "fast".into()];
        match timed(program, &arguments)? {
            (0, _) => plans[place(timed(program, &["check".into(), planned])?.0)?] += 1,
            _ => unfit += 1,
        }
    }
    println!(
        "{} samples: {} sound, {} unsound, {} undecided, {} refused; slowest {slowest:.1} ms (at most {MOST_SAMPLE_MS} ms), mean {:.1} ms",
        files.len(),
        verdicts[0],
        verdicts[1],
        verdicts[3],
        verdicts[2],
        total / files.len().max(1) as f64
    );
    println!(
        "plans of ours: {} sound, {} unsound, {} undecided, {} refused; {unfit} files not planned (refused, no kernel, or too large)",
        plans[0], plans[1], plans[3], plans[2]
    );
    Ok(json!({
        "files": files.len(), "sound": verdicts[0], "unsound": verdicts[1], "undecided": verdicts[3], "refused": verdicts[2],
        "slowest_ms": slowest, "target_ms": MOST_SAMPLE_MS, "met": slowest <= MOST_SAMPLE_MS,
        "plans": {"sound": plans[0], "unsound": plans[1], "undecided": plans[3], "refused": plans[2], "not_planned": unfit},
    }))
}

/// Ten thousand statements over as many tiles, in a row.
fn straight() -> String {
    let mut text = String::from("npumem-program 1\nprogram straight\n");
    for index in 0..10_000 {
        text.push_str(&format!("buffer t{index} in vec bytes 1024 align 32 at {} : u8\n", index % 24 * 1024));
    }
    text.push_str("steps\n");
    for index in 0..10_000 {
        let reads = if index == 0 { String::new() } else { format!(" reads t{}[0]:u8", index - 1) };
        text.push_str(&format!("op @v vector{reads} writes t{index}[0]:u8\n"));
    }
    text
}

/// As many in a thousand loops of two slots, with flags both ways.
fn loops() -> String {
    let mut head = String::from("npumem-program 1\nprogram loops\n");
    let mut steps = String::from("steps\nset-flag v mte2 0\nset-flag v mte2 1\n");
    for index in 0..1000 {
        head.push_str(&format!("scalar i{index} = counter\nscalar e{index} = rem(i{index}, 2)\n"));
        head.push_str(&format!("buffer x{index} in vec bytes 256 slots 2 align 32 at 0 : u8\n"));
        steps.push_str(&format!(
            "for i{index} = 0 to 100 step 1\nwait-flag v mte2 e{index}\nload @mte2 vector writes x{index}{{i{index}}}[0]:u8\n\
             set-flag mte2 v e{index}\nwait-flag mte2 v e{index}\n\
             use @v vector reads x{index}{{i{index}}}[0]:u8\nuse @v vector reads x{index}{{i{index}}}[0]:u8\nset-flag v mte2 e{index}\nend\n"
        ));
    }
    // Tokens have one name whatever the buffer: counters first, then the buffers that name them.
    let (scalars, buffers): (Vec<&str>, Vec<&str>) = head.lines().skip(2).partition(|line| line.starts_with("scalar"));
    format!("npumem-program 1\nprogram loops\n{}\n{}\n{steps}", scalars.join("\n"), buffers.join("\n"))
}

/// Five thousand buffers without addresses, each loaded and used behind a flag.
fn buffers() -> String {
    let mut text = String::from("npumem-program 1\nprogram buffers\n");
    for index in 0..5000 {
        text.push_str(&format!("buffer t{index} in vec bytes 256 align 32 : u8\n"));
    }
    text.push_str("steps\n");
    for index in 0..5000_usize {
        text.push_str(&format!("load @mte2 vector writes t{index}[0]:u8\nset-flag mte2 v 0\nwait-flag mte2 v 0\n"));
        text.push_str(&format!(
            "use @v vector elementwise reads t{index}[0]:u8, t{}[0]:u8 writes t{index}[0]:u8\n",
            index.saturating_sub(1)
        ));
    }
    text
}

/// Eight tiles in turn, a flag of its own each way for every statement.
fn flags() -> String {
    let mut text = String::from("npumem-program 1\nprogram flags\n");
    for index in 0..8 {
        text.push_str(&format!("buffer t{index} in vec bytes 256 align 32 at {} : u8\n", index * 256));
    }
    text.push_str("steps\n");
    for event in 0..8 {
        text.push_str(&format!("set-flag v mte2 {event}\n"));
    }
    for index in 0..5000 {
        let at = index % 8;
        text.push_str(&format!("wait-flag v mte2 {at}\nload @mte2 vector writes t{at}[0]:u8\nset-flag mte2 v {at}\n"));
        text.push_str(&format!("wait-flag mte2 v {at}\nuse @v vector reads t{at}[0]:u8\nset-flag v mte2 {at}\n"));
    }
    text
}

/// Nests of six loops, a load on the way in and a use on the way out of each.
fn nests() -> String {
    const DEEP: usize = 6;
    let count = 10_000 / (2 * DEEP);
    let mut head = String::from("npumem-program 1\nprogram nests\n");
    let mut steps = String::from("steps\n");
    for nest in 0..count {
        for level in 0..DEEP {
            head.push_str(&format!("scalar i{nest}_{level} = counter\n"));
            steps
                .push_str(&format!("for i{nest}_{level} = 0 to 9 step 1\nload @mte2 vector writes x[0]:u8\nbarrier\n"));
        }
        for _ in 0..DEEP {
            steps.push_str("use @v vector reads x[0]:u8\nbarrier\nend\n");
        }
    }
    format!("{head}buffer x in vec bytes 256 align 32 at 0 : u8\n{steps}")
}

/// Branches that nobody knows, each with a condition of its own, between barriers.
fn branches() -> String {
    let mut head = String::from("npumem-program 1\nprogram branches\nscalar n = argument\n");
    let mut steps = String::from("steps\n");
    for index in 0..3333 {
        head.push_str(&format!("scalar c{index} = lt({index}, n)\n"));
        steps.push_str(&format!(
            "if c{index}\nload @mte2 vector writes a[0]:u8\nelse\nload @mte2 vector writes b[0]:u8\nend\n"
        ));
        steps.push_str("barrier\nuse @v vector reads a[0]:u8, b[0]:u8\nbarrier\n");
    }
    format!(
        "{head}buffer a in vec bytes 256 align 32 at 0 : u8\nbuffer b in vec bytes 256 align 32 at 256 : u8\n{steps}"
    )
}

/// A thousand loops that exchange two tiles of their own.
fn exchanges() -> String {
    let mut head = (String::new(), String::new(), String::new());
    let mut steps = String::from("steps\n");
    for index in 0..1000 {
        head.0.push_str(&format!("scalar i{index} = counter\n"));
        for name in ["a", "b"] {
            head.1.push_str(&format!("buffer {name}{index} in vec bytes 256 align 32 : u8\n"));
            head.2.push_str(&format!("handle {name}h{index}\n"));
            steps.push_str(&format!("load @mte2 vector writes {name}{index}[0]:u8\n"));
        }
        steps.push_str(&format!(
            "assign &ah{index} = a{index}[0], &bh{index} = b{index}[0]\nfor i{index} = 0 to 100 step 1\n"
        ));
        for _ in 0..4 {
            steps.push_str(&format!(
                "use @v vector reads &ah{index}[0]:u8\nload @mte2 vector writes &bh{index}[0]:u8\n"
            ));
        }
        steps.push_str(&format!("assign &ah{index} = &bh{index}[0], &bh{index} = &ah{index}[0]\nend\n"));
    }
    format!("npumem-program 1\nprogram exchanges\n{}{}{}{steps}", head.0, head.1, head.2)
}
