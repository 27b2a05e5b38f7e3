//! `npumem tile` as its users meet it.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn tile(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_npumem"));
    command.arg("tile").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = tile(&[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The exit code and standard error.
fn refused(arguments: &[&str]) -> (i32, String) {
    let output = tile(arguments);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

const PRODUCT: &str = "matmul m=4096 n=4096 k=4096 a=f16 b=f16 c=f32";

#[test]
fn the_comparison_machine_reaches_the_best_known_traffic() {
    let spec = "matmul m=4096 n=4096 k=4096 a=f16 b=f16 c=f16";
    for (slots, traffic) in [("none", 603_979_776_u64), ("inputs", 603_979_776), ("all", 805_306_368)] {
        let plan = json(&[spec, "--sram", "512KiB", "--slots", slots]);
        assert_eq!(plan["traffic_bytes"], traffic);
        assert_eq!(plan["bound"]["bytes"], 535_822_336_u64);
        assert_eq!(plan["proven"], true);
    }
}

#[test]
fn a_product_on_a_device_keeps_every_space_and_comes_near_its_roofline() {
    for device in ["ascend-910b2", "ascend-950", "ascend-310p", "nvidia-h200", "generic-npu", "tpu-v5e"] {
        let plan = json(&[PRODUCT, "--device", device]);
        for space in plan["spaces"].as_array().unwrap() {
            assert!(space["used_bytes"].as_u64() <= space["capacity_bytes"].as_u64(), "{device}: {space}");
        }
        let ratio = plan["rooflines"]["ratio"].as_f64().unwrap();
        assert!((1.0..1.6).contains(&ratio), "{device}: {ratio} of the roofline");
        for link in plan["links"].as_array().unwrap().iter().filter(|link| !link["ratio"].is_null()) {
            assert!(link["ratio"].as_f64().unwrap() >= 1.0, "{device}: {link}");
        }
    }
}

#[test]
fn bad_input_says_what_and_where() {
    for (spec, code, part) in [
        ("matmul m=0 n=4 k=4", 2, "'m' is 0"),
        ("matmul m=4294967296 n=4 k=4", 2, "the largest dimension is 2147483648"),
        ("matmul m=99999999999999999999 n=4 k=4", 2, "the largest dimension"),
        ("matmul m=2147483648 n=2147483648 k=2147483648", 2, "2^62"),
        ("matmul m=4 n=4", 2, "needs 'k'"),
        ("matmul m=4 n=4 k=4 q=1", 2, "column 20: matmul has no 'q'"),
        ("matmul m=4 n=4 k=4 k=5", 2, "given twice"),
        ("matmul m=4 n=4 k=x", 2, "column 18: k: 'x' is no whole number"),
        ("matmul m=4 n=4 k=4 a=f17", 2, "no element type"),
        ("matmul m=4 n=4 k=4 a=i64 b=i64", 2, "no unit that computes i64"),
        ("matmul m=4 n=4 k=4 a=f64 b=f64", 2, "f64"),
        ("matmoul m=4", 2, "'matmoul' is no operator"),
        ("", 2, "expected an operator"),
        ("conv c=3 size=4x4 k=8 kernel=7x7", 2, "larger than the padded input"),
        ("conv c=3 size=4x4 k=8 kernel=1 groups=2", 2, "not divisible"),
        ("transpose shape=4x4 perm=0,0", 2, "each of 0 to 1 once"),
        ("attention q=64 d=1048576", 1, "no tile fits"),
    ] {
        let (found, text) = refused(&[spec]);
        assert_eq!(found, code, "{spec}: {text}");
        assert!(text.contains(part), "{spec}: {text}");
    }
    let (code, text) = refused(&["matmul m=64 n=64 k=64", "--sram", "2"]);
    assert_eq!(code, 1);
    assert!(text.contains("no tile fits: the smallest one needs 6 bytes in 'sram', which has 2"), "{text}");
}

#[test]
fn every_family_has_a_schedule() {
    for spec in [
        "matmul m=1 n=4096 k=4096 a=f16 b=f16 c=f16",
        "matmul batch=16 m=128 n=128 k=64 transpose=b bias=f32 act=gelu residual=f16",
        "matmul m=64 n=64 k=65536 split=8",
        "conv c=3 size=224x224 k=64 kernel=7x7 stride=2 pad=3 bias=f32 act=relu",
        "conv c=64 size=56x56 k=64 kernel=3x3 pad=1 groups=4 layout=nhwc",
        "conv c=16 size=100 k=32 kernel=5 pad=2",
        "conv c=16 size=8x16x16 k=32 kernel=3x3x3 pad=1",
        "conv c=64 size=14x14 k=32 kernel=4x4 stride=2 pad=1 transposed=true",
        "depthwise c=96 size=112x112 kernel=3x3 stride=2 pad=1",
        "pool c=64 size=112x112 kernel=3x3 stride=2 pad=1",
        "pool c=2048 size=7x7 global=true op=average",
        "elementwise shape=1024x4096 a=f16 b=f16 b-shape=1x4096 op=add,relu",
        "reduce shape=1024x4096 a=f16 c=f32",
        "softmax shape=4096x4096 a=f16",
        "softmax shape=8x1000000 a=f16",
        "layernorm shape=4096x4096 a=f16",
        "rmsnorm shape=4096x5120 a=bf16 residual=bf16",
        "embedding rows=32000 count=4096 d=4096",
        "transpose shape=1024x4096",
    ] {
        for device in ["ascend-910b2", "nvidia-h200", "generic-npu"] {
            let plan = json(&[spec, "--device", device]);
            assert!(plan["time"]["cycles"].as_f64().unwrap() > 0.0, "{spec} on {device}");
            for space in plan["spaces"].as_array().unwrap() {
                assert!(
                    space["used_bytes"].as_u64() <= space["capacity_bytes"].as_u64(),
                    "{spec} on {device}: {space}"
                );
            }
        }
    }
}
