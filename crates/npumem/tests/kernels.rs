//! Kernels end to end: planned, written back, proven, damaged, and told to other tools.

#![allow(clippy::unwrap_used)]

use npumem::check_program::{Severity, Standing};
use npumem::ir::program::{Program, Role};
use npumem::ir::{Device, Offset};
use npumem::kernel::{self, KernelFile};
use npumem::{PlacementOptions, catalogue};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn kernels() -> Vec<PathBuf> {
    npumem_testing::files_under(&npumem_testing::workspace_root().join("testdata/kernels"), ".pto")
}

/// Our kernels, and the public samples when `NPUMEM_PTOAS` names a checkout.
fn all_kernels() -> Vec<PathBuf> {
    let mut all = kernels();
    match std::env::var_os("NPUMEM_PTOAS") {
        Some(folder) => all.extend(npumem_testing::files_under(Path::new(&folder), ".pto")),
        None => npumem_testing::skipped("the public samples: NPUMEM_PTOAS is not set"),
    }
    all
}

fn read(path: &Path) -> Option<KernelFile> {
    let text = std::fs::read_to_string(path).unwrap();
    kernel::read(&text, &BTreeMap::new()).ok()
}

fn device_of(file: &KernelFile) -> Device {
    let named = file.target.as_deref().and_then(kernel::target_device);
    named.unwrap_or_else(|| catalogue::device("ascend-910b2").unwrap())
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_npumem")).args(arguments).env_remove("GITHUB_ACTIONS").output().unwrap()
}

/// Every plan of ours is sound: beside the program, and written back into the text.
#[test]
fn our_plans_are_sound_in_every_form() {
    let options = PlacementOptions::fast();
    let (mut planned, mut too_large) = (0, 0);
    for path in all_kernels() {
        let Some(file) = read(&path) else { continue };
        let device = device_of(&file);
        let mut plans = Vec::new();
        for one in &file.kernels {
            let plan = kernel::plan(&one.program, &device, &options, &[], None)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            if plan.planned.fit != npumem::plan::Fit::Yes {
                too_large += 1;
                continue;
            }
            let verdict = kernel::check(&plan.program, &device, true).unwrap();
            let faults: Vec<_> = verdict.of(Severity::Fault).filter(|f| f.kind.word() == "overwritten").collect();
            assert!(faults.is_empty(), "{}: {faults:#?}", path.display());
            plans.push(plan);
        }
        if plans.len() < file.kernels.len() {
            continue;
        }
        planned += plans.len();
        let Ok(text) = kernel::write_back(&file, &plans) else { continue };
        let again = kernel::read(&text, &BTreeMap::new()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for (one, before) in again.kernels.iter().zip(&plans) {
            let verdict = kernel::check(&one.program, &device, false).unwrap();
            let wrong: Vec<_> = verdict
                .findings
                .iter()
                .filter(|f| matches!(f.kind.word(), "overwritten" | "foreign-bytes" | "own-input"))
                .collect();
            assert!(wrong.is_empty(), "{}: {}: {wrong:#?}", path.display(), before.program.name);
        }
    }
    eprintln!("{planned} kernels planned, {too_large} do not fit their device");
    assert!(planned >= 5);
}

/// A plan damaged by one moved address, so that two live buffers overlap, is caught: every pair, both ways.
#[test]
fn every_damaged_plan_is_caught() {
    let options = PlacementOptions::fast();
    let (mut damaged, mut missed) = (0_u64, Vec::new());
    for path in all_kernels() {
        let Some(file) = read(&path) else { continue };
        let device = device_of(&file);
        for one in &file.kernels {
            let Ok(plan) = kernel::plan(&one.program, &device, &options, &[], None) else { continue };
            if plan.planned.fit != npumem::plan::Fit::Yes || one.program.buffers.len() > 40 {
                continue;
            }
            for (moved, onto) in pairs(&plan.program) {
                let mut addresses = plan.addresses.clone();
                let target = addresses[&onto];
                addresses.insert(moved, target);
                let program = plan.program.placed(&addresses);
                let verdict = kernel::check(&program, &device, true).unwrap();
                damaged += 1;
                if verdict.standing != Standing::Unsound {
                    let names = [moved, onto].map(|id| program.buffer(id).name.clone());
                    missed.push(format!("{}: {} {names:?}: {:?}", path.display(), program.name, verdict.standing));
                }
            }
        }
    }
    eprintln!("{damaged} damaged plans, {} not caught", missed.len());
    assert!(damaged > 20 && missed.is_empty(), "{}", missed.join("\n"));
}

/// Pairs of one space where, at some statement, both hold bytes that are still read: each was written before and is
/// read after without being replaced, by a plain walk over straight-line code; in loops by both ends of the walk.
fn pairs(program: &Program) -> Vec<(npumem::ir::BufferId, npumem::ir::BufferId)> {
    use npumem::ir::program::{Root, Step};
    // First write and last read by statement number: between them the bytes are needed, loops or not.
    let mut needed: BTreeMap<npumem::ir::BufferId, (usize, usize)> = BTreeMap::new();
    let mut first = BTreeMap::new();
    for (at, step) in program.steps.iter().enumerate() {
        let Step::Run(operation) = step else { continue };
        for access in &operation.reads {
            if let (Root::Buffer(id), true) = (access.root, access.certain)
                && let Some(written) = first.get(&id)
            {
                needed.insert(id, (*written, at));
            }
        }
        for access in &operation.writes {
            if let (Root::Buffer(id), true) = (access.root, access.certain && access.extents.is_empty()) {
                // A later write starts a new need: keep the pair of the last write before the last read.
                first.insert(id, at);
            }
        }
    }
    let paths = branches(program);
    let mut out = Vec::new();
    for (a, (write_a, read_a)) in &needed {
        for (b, (write_b, read_b)) in &needed {
            let (x, y) = (program.buffer(*a), program.buffer(*b));
            let placed = |role: Role| matches!(role, Role::Tile);
            if a == b || x.space != y.space || !placed(x.role) || !placed(y.role) || x.slots != 1 || y.slots != 1 {
                continue;
            }
            let moments = [*write_a, *read_a, *write_b, *read_b];
            let exclude = |a: usize, b: usize| {
                paths[a].iter().any(|(step, side)| paths[b].iter().any(|(other, of)| step == other && side != of))
            };
            if moments.iter().any(|a| moments.iter().any(|b| exclude(*a, *b))) {
                continue;
            }
            // One is written strictly within the need of the other.
            if (write_a < write_b && write_b < read_a && write_b < read_b)
                || (write_b < write_a && write_a < read_b && write_a < read_a)
            {
                out.push((*a, *b));
            }
        }
    }
    out
}

/// For each step the branches around it: the `if`, and which side.
fn branches(program: &Program) -> Vec<Vec<(usize, bool)>> {
    use npumem::ir::program::Step;
    let (mut open, mut out): (Vec<(usize, bool)>, Vec<_>) = (Vec::new(), Vec::new());
    for (at, step) in program.steps.iter().enumerate() {
        match step {
            Step::For { .. } | Step::Loop | Step::If(_) => open.push((at, true)),
            Step::Else => {
                if let Some(last) = open.last_mut() {
                    last.1 = false;
                }
            }
            Step::End => {
                open.pop();
            }
            _ => {}
        }
        out.push(open.clone());
    }
    out
}

#[test]
fn the_command_line_is_a_gate() {
    let softmax = npumem_testing::workspace_root().join("testdata/kernels/softmax.pto");
    let softmax = softmax.to_str().unwrap();
    let scratch = npumem_testing::Scratch::new("gate");
    let (planned, json) = (scratch.path("planned.pto"), scratch.path("plan.json"));
    let output = run(&["plan", softmax, "-o", planned.to_str().unwrap(), "--effort", "fast"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Buffers of softmax") && text.contains("scratch"), "{text}");
    assert_eq!(run(&["check", planned.to_str().unwrap()]).status.code(), Some(0));
    assert_eq!(run(&["plan", softmax, "-o", json.to_str().unwrap(), "--effort", "fast"]).status.code(), Some(0));
    assert_eq!(run(&["check", softmax, json.to_str().unwrap()]).status.code(), Some(0));

    // 'exps' is put on 'rows' while both are needed.
    let bad = "npumem-program 1\nprogram bad\nbuffer a in vec bytes 64 align 32 at 0 : u8\nbuffer b in vec bytes 64 align 32 at 32 : u8\nsteps\nw @v writes a[0]:u8 line 5\nx @v writes b[0]:u8 line 6\nr @v reads a[0]:u8 line 7\n";
    let wrong = scratch.file("wrong.npumem", bad);
    let output = run(&["check", wrong.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let finding = &value["kernels"][0]["findings"][0];
    assert_eq!((&value["verdict"], &finding["kind"]), (&"unsound".into(), &"overwritten".into()));
    assert_eq!(finding["buffers"], serde_json::json!(["a", "b"]));
    assert_eq!(finding["bytes"], serde_json::json!({"start": 32, "end": 64, "size": 32}));
    assert_eq!(
        (&finding["statement"], &finding["line"], &finding["overwritten"]["statement"]),
        (&2.into(), &7.into(), &1.into())
    );

    let output = run(&["check", wrong.to_str().unwrap(), "--sarif"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["version"], "2.1.0");
    let result = &value["runs"][0]["results"][0];
    assert_eq!((&result["ruleId"], &result["level"]), (&"overwritten".into(), &"error".into()));
    assert_eq!(result["locations"][0]["physicalLocation"]["region"]["startLine"], 7);
    let output = run(&["check", wrong.to_str().unwrap(), "--annotations"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("::error file="));

    let broken = scratch.file("broken.pto", "module {\n  func.func @k() {\n    pto.tload ins(%a : index)\n");
    let output = run(&["check", broken.to_str().unwrap(), softmax]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("broken.pto:4:1: expected '}'"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    // What would let a gate pass by mistake is refused: limits that are not used, files cut off to nothing.
    let empty = scratch.file("empty.pto", "");
    for arguments in [&["check", softmax, "--capacity", "UB=100"][..], &["check", empty.to_str().unwrap()]] {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
    let large = "npumem-program 1\nprogram large\nbuffer a in vec bytes 131072 align 32 : u8\nbuffer b in vec bytes 131072 align 32 : u8\nsteps\nw @v writes a[0]:u8\nx @v writes b[0]:u8\nr @v reads a[0]:u8, b[0]:u8\n";
    let (large, target) = (scratch.file("large.npumem", large), scratch.path("large.json"));
    let output = run(&["plan", large.to_str().unwrap(), "-o", target.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("large") && !target.exists());
    assert!(String::from_utf8_lossy(&output.stderr).contains("not written"));

    let folder = npumem_testing::workspace_root().join("testdata/kernels");
    let output = run(&["check", folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("6 files, 6 kernels: 6 sound, 0 unsound, 0 undecided, 0 files with errors"), "{text}");
}

/// A kernel that cannot fit is answered with the buffers that clash.
#[test]
fn a_kernel_that_does_not_fit_names_the_conflict() {
    let program = npumem::ir::program::text::parse(
        "npumem-program 1\nprogram large\nbuffer a in vec bytes 131072 align 32 : u8\nbuffer b in vec bytes 131072 align 32 : u8\nsteps\nw @v writes a[0]:u8\nx @v writes b[0]:u8\nr @v reads a[0]:u8, b[0]:u8\n",
    )
    .unwrap();
    let device = catalogue::device("ascend-910b2").unwrap();
    let plan = kernel::plan(&program, &device, &PlacementOptions::fast(), &[], None).unwrap();
    assert_eq!(plan.planned.fit, npumem::plan::Fit::No);
    let conflict = plan.planned.report.infeasible.unwrap();
    let names: Vec<&str> = conflict.conflicts[0].buffers.iter().map(|b| b.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let _ = Offset(0);
}

/// Ten thousand statements over ten thousand buffers: the time is printed, and is far below a second even unoptimised.
#[test]
fn ten_thousand_statements_are_checked_quickly() {
    let mut text = String::from("npumem-program 1\nprogram many\n");
    for index in 0..10_000 {
        text.push_str(&format!("buffer t{index} in vec bytes 1024 align 32 at {} : u8\n", index % 24 * 1024));
    }
    text.push_str("steps\n");
    for index in 0..10_000 {
        let reads = if index == 0 { String::new() } else { format!(" reads t{}[0]:u8", index - 1) };
        text.push_str(&format!("op @v{reads} writes t{index}[0]:u8\n"));
    }
    let program = npumem::ir::program::text::parse(&text).unwrap();
    let device = catalogue::device("ascend-910b2").unwrap();
    let started = std::time::Instant::now();
    let verdict = kernel::check(&program, &device, true).unwrap();
    let took = started.elapsed();
    eprintln!("10,000 statements: {took:?}");
    assert_eq!((verdict.standing, verdict.work), (Standing::Sound, 10_000));
    assert!(took.as_secs() < 5, "{took:?} even on a busy machine");
}

#[test]
fn a_plan_that_moves_a_tile_to_another_space_is_not_the_kernels() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/kernels/matmul_double.pto");
    let run =
        |arguments: &[&str]| std::process::Command::new(env!("CARGO_BIN_EXE_npumem")).args(arguments).output().unwrap();
    let whole = folder.join("spaces.json");
    let made = run(&["plan", kernel, "--device", "ascend-910b2", "-o", whole.to_str().unwrap()]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(run(&["check", kernel, whole.to_str().unwrap(), "--device", "ascend-910b2"]).status.code(), Some(0));
    let plan: serde_json::Value = serde_json::from_slice(&std::fs::read(&whole).unwrap()).unwrap();
    for (count, space) in [(usize::MAX, 0), (1, 0), (1, 1), (usize::MAX, 9)] {
        let mut damaged = plan.clone();
        let list = damaged["residencies"].as_array_mut().unwrap();
        list.iter_mut().rev().take(count).for_each(|residency| residency["space"] = space.into());
        if damaged == plan {
            continue;
        }
        let file = folder.join("spaces-damaged.json");
        std::fs::write(&file, damaged.to_string()).unwrap();
        let checked = run(&["check", kernel, file.to_str().unwrap(), "--device", "ascend-910b2"]);
        assert_eq!(checked.status.code(), Some(2), "{count} to {space}");
        assert!(String::from_utf8_lossy(&checked.stderr).contains("does not belong to this kernel"));
    }
}
