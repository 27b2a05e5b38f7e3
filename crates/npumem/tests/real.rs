//! `npumem run --on`: plans on real memory, as their users meet them.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn npumem(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_npumem")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn model(name: &str) -> String {
    npumem_testing::workspace_root().join("testdata/models").join(name).to_string_lossy().into_owned()
}

fn file(name: &str, content: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).unwrap();
    path.to_string_lossy().into_owned()
}

/// Runs a model and checks what every run must say.
fn holds(on: &str, arguments: &[&str]) -> Option<Value> {
    let mut all = vec!["run", "--on", on, "--json"];
    all.extend_from_slice(arguments);
    let output = npumem(&all);
    let error = text(&output.stderr);
    if on == "opencl" && (error.contains("no OpenCL loader") || error.contains("no OpenCL driver")) {
        npumem_testing::skipped(error.trim());
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{error}{}", text(&output.stdout));
    let told: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert_eq!((&told["verdict"], &told["mismatch"]), (&"holds".into(), &Value::Null), "{told}");
    assert!(told["overlapped"]["wall_ns"].as_u64() > Some(0), "{told}");
    Some(told)
}

#[test]
fn the_example_models_hold_on_the_host() {
    let cnn = holds("host", &[&model("example-cnn.onnx")]).unwrap();
    // Conv 1x16x32x32 and so on: the operations of the roofline's matrix row, and the bias is no multiply.
    assert_eq!((&cnn["own_kernels"]["Conv"], &cnn["own_kernels"]["Gemm"]), (&4.into(), &1.into()), "{cnn}");
    assert_eq!(cnn["compared_bytes"], 40);
    let bound = ["--dim", "batch=1", "--dim", "sequence=5", "--dim", "past=7"];
    let decoder = model("example-decoder.onnx");
    let decoder = holds("host", &[&[decoder.as_str()], bound.as_slice()].concat()).unwrap();
    assert!(
        decoder["stand_ins"]["MatMul"].as_u64() > Some(0) && decoder["free_operators"].as_u64() > Some(0),
        "{decoder}"
    );
}

#[test]
fn the_example_model_holds_on_opencl() {
    holds("opencl", &[&model("example-cnn.onnx")]);
}

#[test]
fn a_problem_holds_and_a_damaged_plan_is_found_with_both_buffers() {
    let good = file("real-good.csv", "id,lower,upper,size\nx,0,4,64\ny,2,6,64\nz,4,8,66\n");
    let told = holds("host", &[&good]).unwrap();
    assert_eq!((&told["kernels"]["count"], &told["compared_bytes"]), (&6.into(), &66.into()), "{told}");
    let bad = file("real-bad.csv", "id,lower,upper,size,offset\nx,0,4,64,0\ny,2,6,64,32\nz,4,8,64,96\n");
    let output = npumem(&["run", &bad, "--on", "host"]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stdout);
    assert!(told.starts_with("WRONG on host") && told.contains("of 'x' as "), "{told}");
    assert!(told.contains("fill 'y' at step 2 wrote there last"), "{told}");
}

#[test]
fn a_plan_file_runs_and_another_inputs_plan_is_refused() {
    let problem = file("real-p.csv", "id,lower,upper,size\nx,0,4,64\ny,2,6,64\nz,4,8,64\n");
    let plan = file("real-p.json", "");
    assert_eq!(npumem(&["plan", &problem, "-o", &plan]).status.code(), Some(0));
    holds("host", &[&problem, &plan]);
    let output = npumem(&["run", &model("example-cnn.onnx"), &plan, "--on", "host"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
}

#[test]
fn what_cannot_run_says_why() {
    let kernel = npumem_testing::workspace_root().join("testdata/kernels/softmax.pto");
    let output = npumem(&["run", &kernel.to_string_lossy(), "--on", "host"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is a kernel"), "{}", text(&output.stderr));
    let huge = file("real-huge.csv", "id,lower,upper,size\nx,0,4,9000000000000000\n");
    let output = npumem(&["run", &huge, "--on", "host"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("are needed, and this machine has"), "{}", text(&output.stderr));
    let output = npumem(&["run", &model("example-cnn.onnx"), "--on", "cuda"]);
    if output.status.code() == Some(2) {
        let why = text(&output.stderr);
        assert!(why.contains("no CUDA driver here") || why.contains("no kernels yet"), "{why}");
        npumem_testing::skipped(why.trim());
    }
}

/// The caches of this machine as the system says, level by level; nothing where it does not.
fn system_caches() -> Vec<u64> {
    let mut sizes = Vec::new();
    for index in 0..8 {
        let read = |what: &str| {
            std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}")).ok()
        };
        let (Some(kind), Some(size)) = (read("type"), read("size")) else { continue };
        if kind.trim() != "Instruction"
            && let Some(kib) = size.trim().strip_suffix('K').and_then(|kib| kib.parse::<u64>().ok())
        {
            sizes.push(kib << 10);
        }
    }
    sizes
}

#[test]
fn a_probe_writes_a_device_that_plan_and_devices_take() {
    let written = Path::new(env!("CARGO_TARGET_TMPDIR")).join("probed.toml");
    let written = written.to_string_lossy().into_owned();
    let output = npumem(&["probe", "--quick", "--name", "this-one", "--json", "-o", &written]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let levels = told["levels"].as_array().unwrap();
    let caches = system_caches();
    if let (Some(first), true) = (caches.first(), levels.len() >= 2) {
        // The first cache is the one that no neighbour shares: within a factor of two and a half, or the first step seen is a later level's.
        let found = levels[0]["capacity_bytes"].as_u64().unwrap();
        let near = |wanted: u64| found <= wanted * 5 / 2 && found * 5 / 2 >= wanted;
        assert!(near(*first) || caches.iter().any(|size| near(*size)), "{found} B found, {caches:?} B are there");
    }
    let device = text(&npumem(&["devices", &written]).stdout);
    assert!(device.contains("this-one") && device.contains("by npumem probe"), "{device}");
    let planned = npumem(&["plan", &model("example-cnn.onnx"), "--device", &written, "--json"]);
    assert_eq!(planned.status.code(), Some(0), "{}", text(&planned.stderr));
    let report: Value = serde_json::from_str(&text(&planned.stdout)).unwrap();
    assert_eq!(report["spaces"][0]["name"], "dram");
    assert!(report["roofline"]["seconds"].as_f64() > Some(0.0), "{}", report["roofline"]);
    holds("host", &[&model("example-cnn.onnx"), "--device", &written]);
}

#[test]
fn a_probe_refuses_what_it_cannot_measure() {
    let cases: [(&[&str], &str); 4] = [
        (&["probe", "--name", "a/b"], "from 1 to 64 letters"),
        (&["probe", "--largest", "64 KiB"], "too small"),
        (&["probe", "--largest", "4 TiB"], "at most half of the free memory"),
        (&["probe", "--quick", "-o", "/nowhere/at/all.toml"], "there is no folder"),
    ];
    for (arguments, why) in cases {
        let output = npumem(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_probe_leaves_no_file() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interrupted");
    std::fs::create_dir_all(&folder).unwrap();
    let written = folder.join("device.toml");
    let mut child = Command::new(env!("CARGO_BIN_EXE_npumem"))
        .args(["probe", "-o"])
        .arg(&written)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn the_lecture_measures_its_five_points() {
    let output = npumem(&["lecture", "--quick", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let sections = told["sections"].as_array().unwrap();
    let keys: Vec<&str> = sections.iter().map(|section| section["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["allocation", "leak", "product", "convolution", "overlap"]);
    let ratio = |section: usize, row: usize| sections[section]["rows"][row]["ratio"].as_f64().unwrap();
    // A call of the system is dearer than any pool's.
    assert!((1..5).all(|row| ratio(0, row) > 2.0), "{}", sections[0]);
    let leak = &sections[1]["rows"][1];
    assert_eq!(leak["value"], 98_304.0, "{leak}");
    assert!(leak["what"].as_str().unwrap().contains("append to cache in decode"), "{leak}");
    let notes = |section: usize| sections[section]["notes"][0].as_str().unwrap();
    assert_eq!((notes(2), notes(3)), ("both give the same numbers", "both give the same numbers"));
    assert_eq!(notes(4), "results equal the reference");
}

#[test]
fn strategies_say_what_the_pool_reserves_for_them() {
    let decoder = model("example-decoder.onnx");
    let bound = ["--dim", "batch=1", "--dim", "sequence=1..64", "--dim", "past=64"];
    let output = npumem(&[&["plan", &decoder, "--json"], bound.as_slice()].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let of = |strategy: &str, key: &str| {
        let rows = report["strategies"].as_array().unwrap();
        rows.iter().find(|row| row["strategy"] == strategy).unwrap()[key].as_u64()
    };
    // The dynamic pool holds everything, the hybrid one only what depends on the range; a static plan has none.
    let (all, some) = (of("dynamic", "pool_live").unwrap(), of("hybrid", "pool_live").unwrap());
    assert!(all > some && some > 0, "{}", report["strategies"]);
    for (strategy, live) in [("dynamic", all), ("hybrid", some)] {
        let reserved = of(strategy, "pool_reserved").unwrap();
        assert!(reserved >= live && reserved < live + (8 << 20) && reserved % (2 << 20) == 0, "{strategy}: {reserved}");
        assert!(live <= of(strategy, "pool").unwrap(), "{}", report["strategies"]);
    }
    assert_eq!(of("static", "pool_reserved"), None);
    let told = text(&npumem(&[&["plan", &decoder], bound.as_slice()].concat()).stdout);
    assert!(told.contains("two runs replayed through npumem's pool reserve"), "{told}");
}
