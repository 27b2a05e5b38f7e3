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
