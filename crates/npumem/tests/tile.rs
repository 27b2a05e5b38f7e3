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
    for device in ["ascend-910b2", "ascend-950", "nvidia-h200", "generic-npu"] {
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
    for (arguments, part) in [
        (&["matmul m=4 n=4 k=4", "--node", "x"][..], "Give it with --onnx"),
        (&["matmul m=4 n=4 k=4", "--dim", "x=4"][..], "--onnx"),
        (&["matmul m=4 n=4 k=4", "-o", "no-such-folder/x.json"][..], "there is no folder no-such-folder"),
        (&["--file", "/dev/zero"][..], "more than 1 MiB"),
    ] {
        let (code, text) = refused(arguments);
        assert_eq!(code, 2, "{arguments:?}: {text}");
        assert!(text.contains(part), "{arguments:?}: {text}");
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

/// What the simulator makes of it, in cycles, and what the schedule said.
fn simulated(spec: &str, device: &str, name: &str) -> (f64, f64) {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let file = file.to_str().unwrap();
    let plan = json(&[spec, "--device", device, "-o", file]);
    let run = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_npumem")).args(arguments).stdin(Stdio::null()).output().unwrap()
    };
    let output = run(&["check", file, "--device", device]);
    assert_eq!(output.status.code(), Some(0), "{spec} on {device}: {}", String::from_utf8_lossy(&output.stdout));
    let output = run(&["run", file, "--device", device, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{spec} on {device}: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    (report["cycles"].as_f64().unwrap(), plan["time"]["cycles"].as_f64().unwrap())
}

const PROGRAMS: [&str; 16] = [
    "matmul m=1000 n=1000 k=1000 a=f16 b=f16 c=f32",
    "matmul m=1 n=4096 k=4096 a=f16 b=f16 c=f16",
    "matmul batch=16 m=128 n=128 k=64 transpose=b",
    "matmul m=300 n=200 k=100 a=i8 b=i8 c=i32 bias=i32 act=relu",
    "conv c=3 size=224x224 k=64 kernel=7x7 stride=2 pad=3",
    "conv c=64 size=56x56 k=64 kernel=3x3 pad=1 groups=4 layout=nhwc",
    "conv c=16 size=8x16x16 k=32 kernel=3x3x3 pad=1",
    "conv c=64 size=14x14 k=32 kernel=4x4 stride=2 pad=1 transposed=true",
    "depthwise c=96 size=112x112 kernel=3x3 stride=2 pad=1",
    "pool c=64 size=112x112 kernel=3x3 stride=2 pad=1",
    "elementwise shape=1024x4096 a=f16 b=f16 b-shape=1x4096 op=add,relu",
    "reduce shape=1000x4096 a=f16 c=f32",
    "softmax shape=1024x4096 a=f16",
    "layernorm shape=1024x768 a=f16",
    "embedding rows=32000 count=512 d=4096",
    "transpose shape=1024x1024",
];

#[test]
fn every_program_is_sound_and_takes_the_time_that_was_said() {
    for (at, spec) in PROGRAMS.iter().enumerate() {
        for device in ["generic-npu", "ascend-910b2"] {
            let (simulated, said) = simulated(spec, device, &format!("tile-{at}-{device}.npumem"));
            let ratio = said / simulated;
            println!("{device} {spec}: said {said:.0}, simulated {simulated:.0}, ratio {ratio:.3}");
            assert!((0.97..1.03).contains(&ratio), "{spec} on {device}: said {said}, simulated {simulated}");
        }
    }
}

#[test]
fn the_header_is_c() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("tile.h");
    json(&[PRODUCT, "--device", "ascend-910b2", "-o", file.to_str().unwrap()]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("#define TILE_M_EXTENT 4096ull"), "{text}");
    assert!(text.contains("#define TILE_A_SPACE \"l1\""), "{text}");
    let source = "#include \"tile.h\"\n#if TILE_A_SLOTS < 1 || TILE_M_TILE * TILE_M_COUNT < TILE_M_BLOCK\n#error wrong\n#endif\nint main(void) { return 0; }\n";
    let main = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("tile.c");
    std::fs::write(&main, source).unwrap();
    match Command::new("cc").args(["-std=c99", "-Wall", "-Werror", "-fsyntax-only"]).arg(&main).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => npumem_testing::skipped(&format!("cc: {error}")),
    }
}

#[test]
fn a_tile_by_hand_that_does_not_fit_says_by_how_much_and_what_does() {
    let output =
        tile(&[PRODUCT, "--fit", "--tile", "m=256 n=256 k=512", "--device", "ascend-910b2,ascend-950", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let fit: Value = serde_json::from_slice(&output.stdout).unwrap();
    let devices = fit["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 2);
    // L1: 2 x (256 x 512 + 512 x 256) x 2 bytes = 1 MiB of 512 KiB; L0C: 256 x 256 x 4 bytes, of 128 and of 256 KiB.
    let missing = |device: &Value, space: &str| {
        let spaces = device["spaces"].as_array().unwrap().clone();
        spaces.into_iter().find(|one| one["name"] == space).unwrap()["missing_bytes"].as_u64().unwrap()
    };
    assert_eq!([missing(&devices[0], "l1"), missing(&devices[0], "l0c")], [524_288, 131_072]);
    assert_eq!([missing(&devices[1], "l1"), missing(&devices[1], "l0c")], [524_288, 0]);
    assert_eq!(devices[1]["nearest"]["k"], 256);
    assert_eq!(devices[1]["largest"]["k"], 256);
    for device in devices {
        // What is called nearest does fit, and one more block of any dim at its largest does not.
        let near = |name: &str| device["nearest"][name].as_u64().unwrap();
        let tiles = format!("m={} n={} k={}", near("m"), near("n"), near("k"));
        let name = device["device"].as_str().unwrap();
        let output = tile(&[PRODUCT, "--fit", "--tile", &tiles, "--device", name, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{tiles} on {name}");
        let fit: Value = serde_json::from_slice(&output.stdout).unwrap();
        let largest = fit["devices"][0]["largest"]["k"].as_u64().unwrap();
        let more = format!("m={} n={} k={}", near("m"), near("n"), largest + 16);
        assert_eq!(
            tile(&[PRODUCT, "--fit", "--tile", &more, "--device", name]).status.code(),
            Some(1),
            "{more} on {name}"
        );
    }
    for (pairs, part) in
        [("m=0", "from 1 to 4096"), ("m=4097", "from 1 to 4096"), ("q=1", "no such dimension"), ("m", "no pair")]
    {
        let (code, text) = refused(&[PRODUCT, "--fit", "--tile", pairs]);
        assert_eq!(code, 2);
        assert!(text.contains(part), "{pairs}: {text}");
    }
    let output = tile(&["attention q=64 d=1048576", "--fit"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("'query' 33554432 B"));
}

#[test]
fn an_explanation_has_the_numbers() {
    let plan = json(&[PRODUCT, "--device", "ascend-910b2", "--explain"]);
    let explanation = &plan["explanation"];
    let cycles = plan["time"]["cycles"].as_f64().unwrap();
    assert!(explanation["single_slot_cycles"].as_f64().unwrap() > 1.3 * cycles, "{explanation}");
    assert!(explanation["limit_share"].as_f64().unwrap() > 0.8);
    assert_eq!(explanation["larger"].as_array().unwrap().len(), 3);
    let text = tile(&[PRODUCT, "--explain"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("Why this tile. What limits it is"));
}

#[test]
fn operators_come_from_toml_and_from_nodes() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("op.toml");
    let file = file.to_str().unwrap();
    std::fs::write(file, "operator = \"conv\"\nc = 64\nsize = [56, 56]\nk = 64\nkernel = [3, 3]\npad = 1\n").unwrap();
    let of_file = json(&["--file", file, "--device", "generic-npu"]);
    let of_text = json(&["conv c=64 size=56x56 k=64 kernel=3x3 pad=1", "--device", "generic-npu"]);
    assert_eq!(of_file["dims"], of_text["dims"]);
    std::fs::write(file, "m = 4\n").unwrap();
    assert!(refused(&["--file", file]).1.contains("expected operator"));
    std::fs::write(file, "operator = \"matmul\"\nm = 4.5\nn = 1\nk = 1\n").unwrap();
    assert!(refused(&["--file", file]).1.contains("m: a float is no value here"));

    let model = npumem_testing::workspace_root().join("testdata/models/example-cnn.onnx");
    let model = model.to_str().unwrap();
    // 3x3, stride 2, padding 1, 16 to 32 channels of 32 x 32: 16 x 16 results.
    let plan = json(&["--onnx", model, "--node", "down", "--device", "generic-npu"]);
    let extents: Vec<u64> =
        plan["dims"].as_array().unwrap().iter().map(|dim| dim["extent"].as_u64().unwrap()).collect();
    assert_eq!(extents, [32, 16, 16, 16, 3, 3]);
    let (code, text) = refused(&["--onnx", model, "--node", "nothing"]);
    assert_eq!(code, 2);
    assert!(text.contains("there is no node 'nothing'; there are stem"), "{text}");

    let run = Command::new(env!("CARGO_BIN_EXE_npumem")).args(["plan", model, "--tiles", "--json"]).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", String::from_utf8_lossy(&run.stderr));
    let tiles: Value = serde_json::from_slice(&run.stdout).unwrap();
    let rows = tiles["operators"].as_array().unwrap();
    assert_eq!(rows.len(), 12);
    assert!(rows.iter().all(|row| row["schedule"]["time"]["cycles"].as_f64().unwrap() > 0.0));
}

#[test]
fn attention_is_near_the_bound_of_every_link() {
    for device in ["ascend-910b2", "nvidia-h200"] {
        let plan = json(&["attention q=131072 d=128", "--device", device, "--objective", "traffic"]);
        for link in plan["links"].as_array().unwrap().iter().filter(|link| !link["ratio"].is_null()) {
            let ratio = link["ratio"].as_f64().unwrap();
            assert!((1.0..=1.3).contains(&ratio), "{device}: {link}");
        }
    }
    let plan = json(&["attention q=4096 d=128", "--sram", "256KiB", "--slots", "streamed"]);
    let ratio = plan["traffic_bytes"].as_f64().unwrap() / plan["bound"]["bytes"].as_f64().unwrap();
    assert!((1.0..=1.3).contains(&ratio), "256 KiB: {ratio}");
}

/// The generic machine without latencies and start-ups, its links as fast as given.
fn balanced(link: u64) -> npumem::ir::Device {
    let path = npumem_testing::workspace_root().join("devices/generic-npu.toml");
    let text: String = std::fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(|line| match line.split(" = ").next() {
            Some(key @ ("latency_cycles" | "startup_cycles")) => format!("{key} = 0\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let text = text.replace("bytes_per_cycle = 256\nstartup", &format!("bytes_per_cycle = {link}\nstartup"));
    npumem::ir::Device::from_toml(&text).unwrap()
}

/// All work one after the other (the busy cycles of the engines summed: `n (load + compute + store)`), over the simulated
/// cycles with the slots that the schedule chooses. With one slot each, a store and the next load still overlap, so that
/// run is no baseline for three engines.
fn speed_up(spec: &str, tile: &[u64], device: &npumem::ir::Device) -> f64 {
    use npumem::tiling::{Request, parse, program, schedule_as};
    let operator = parse(spec).unwrap();
    let request = Request { tiles: Some(tile.to_vec()), ..Request::default() };
    let schedule = schedule_as(&operator, device, &request).unwrap();
    let program = program(&schedule, device).unwrap();
    let done = npumem::simulate::simulate(&program, device, &npumem::simulate::Request::default(), &[]).unwrap();
    let report: Value = serde_json::from_str(&done.report.to_json().unwrap()).unwrap();
    let engines = report["engines"].as_array().unwrap();
    let serial: f64 = engines.iter().map(|engine| engine["busy_cycles"].as_f64().unwrap()).sum();
    serial / report["cycles"].as_f64().unwrap()
}

#[test]
fn slots_overlap_balanced_copies_and_compute() {
    // 64 lanes of f16 a cycle are 128 bytes; a row sum goes over its rows twice.
    let two = speed_up("reduce shape=1024x4096 axes=1 a=f16 c=f16", &[16, 4096], &balanced(64));
    println!("two engines, 64 tiles: {two:.3} (limit {:.3})", 128.0 / 65.0);
    assert!(two >= 1.95, "{two}");
    let three = speed_up("elementwise shape=4194304 a=f16 op=relu", &[65536], &balanced(128));
    println!("three engines, 64 tiles: {three:.3} (limit {:.3})", 192.0 / 66.0);
    assert!(three >= 2.85, "{three}");
}

/// A `.npy` file of version 1.
fn npy(path: &str, kind: &str, shape: &[u64], bytes: &[u8]) {
    let shape: String = shape.iter().map(|extent| format!("{extent}, ")).collect();
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(bytes);
    std::fs::write(path, file).unwrap();
}

/// Runs a schedule with values; the bytes of its result.
fn computed(spec: &str, device: &str, inputs: &[(&str, &str, &[u64], Vec<u8>)], result: &str) -> Vec<u8> {
    // A folder of its own: tests run beside each other.
    let folder =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("values-{device}-{}", spec.replace(' ', "-")));
    std::fs::create_dir_all(&folder).unwrap();
    let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let program = at("tile.npumem");
    json(&[spec, "--device", device, "-o", &program]);
    let mut arguments =
        vec!["run".to_owned(), program, "--device".into(), device.into(), "--values".into(), "--sanitize".into()];
    for (name, kind, shape, bytes) in inputs {
        let file = at(&format!("{name}.npy"));
        npy(&file, kind, shape, bytes);
        arguments.extend(["--input".into(), format!("{name}={file}")]);
    }
    let file = at("result.npy");
    arguments.extend(["--output".into(), format!("{result}={file}")]);
    let output = Command::new(env!("CARGO_BIN_EXE_npumem")).args(&arguments).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{spec} on {device}: {said}");
    let bytes = std::fs::read(file).unwrap();
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[10 + header..].to_vec()
}

#[test]
fn schedules_compute_what_they_should() {
    let mut random = npumem_testing::Random(3);
    let mut whole = |count: u64| -> Vec<i64> { (0..count).map(|_| random.below(15) as i64 - 7).collect() };
    let floats = |list: &[i64]| -> Vec<u8> { list.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect() };
    let read = |bytes: &[u8]| -> Vec<f32> {
        bytes.chunks(4).map(|part| f32::from_le_bytes(part.try_into().unwrap())).collect()
    };
    for device in ["generic-npu", "ascend-910b2"] {
        // Tiles do not divide, and neither do the fractals.
        let (m, n, k) = (77, 53, 300);
        let (a, b) = (whole(m * k), whole(k * n));
        let bytes = |list: &[i64]| -> Vec<u8> { list.iter().map(|value| *value as u8).collect() };
        let inputs = [("a_gm", "|i1", &[m, k][..], bytes(&a)), ("b_gm", "|i1", &[k, n][..], bytes(&b))];
        let c = computed("matmul m=77 n=53 k=300 a=i8 b=i8 c=i32", device, &inputs, "c_gm");
        let c: Vec<i64> = c.chunks(4).map(|part| i64::from(i32::from_le_bytes(part.try_into().unwrap()))).collect();
        for (at, value) in c.iter().enumerate() {
            let (row, column) = (at as u64 / n, at as u64 % n);
            let sum: i64 = (0..k).map(|deep| a[(row * k + deep) as usize] * b[(deep * n + column) as usize]).sum();
            assert_eq!(*value, sum, "product on {device}, row {row}, column {column}");
        }
        let (rows, columns) = (37, 300);
        let (x, y) = (whole(rows * columns), whole(columns));
        let at = |row: u64, column: u64| x[(row * columns + column) as usize];
        let one = [("a_gm", "<f4", &[rows, columns][..], floats(&x))];
        let both = [one[0].clone(), ("b_gm", "<f4", &[1, columns][..], floats(&y))];
        let sum =
            read(&computed("elementwise shape=37x300 a=f32 b=f32 b-shape=1x300 op=add,relu", device, &both, "out_gm"));
        let total = read(&computed("reduce shape=37x300 a=f32 c=f32", device, &one, "c_gm"));
        let soft = read(&computed("softmax shape=37x300 a=f32", device, &one, "c_gm"));
        let from = [("in_gm", "<f4", &[rows, columns][..], floats(&x))];
        let turned = read(&computed("transpose shape=37x300 type=f32", device, &from, "out_gm"));
        for row in 0..rows {
            let exponentials: f64 = (0..columns).map(|column| (at(row, column) as f64).exp()).sum();
            assert_eq!(total[row as usize], (0..columns).map(|column| at(row, column)).sum::<i64>() as f32, "{device}");
            for column in 0..columns {
                let place = (row * columns + column) as usize;
                assert_eq!(sum[place], (at(row, column) + y[column as usize]).max(0) as f32, "{device}");
                assert_eq!(turned[(column * rows + row) as usize], at(row, column) as f32, "{device}");
                let expected = (at(row, column) as f64).exp() / exponentials;
                assert!(
                    (f64::from(soft[place]) - expected).abs() <= 1e-6 * expected.max(1e-3),
                    "{device}: {} {expected}",
                    soft[place]
                );
            }
        }
    }
}

#[test]
fn the_pto_text_is_sound_takes_as_long_and_computes_the_same() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("pto");
    std::fs::create_dir_all(&folder).unwrap();
    let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_npumem")).args(arguments).stdin(Stdio::null()).output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    };
    let blocks = |text: &str| -> String {
        let line = text.lines().find_map(|line| line.strip_prefix("// For a grid of "));
        line.map_or("1".to_owned(), |line| line.split(' ').next().unwrap().to_owned())
    };
    let (pto, program) = (at("tile.pto"), at("tile.npumem"));
    for spec in [
        "matmul m=200 n=300 k=500 a=f16 b=f16 c=f32",
        "matmul m=128 n=128 k=256 a=f32 b=f32 c=f32",
        "elementwise shape=1000x300 a=f16 b=f16 op=add,relu",
        "softmax shape=100x300 a=f16",
        "reduce shape=64x1000 a=f32 c=f32",
        "transpose shape=256x512 type=f16",
    ] {
        json(&[spec, "-o", &pto, "-o", &program]);
        run(&["check", &pto]);
        let count = blocks(&std::fs::read_to_string(&pto).unwrap());
        let cycles = |file: &str, blocks: &[&str]| -> f64 {
            let report: Value = serde_json::from_str(&run(&[&["run", file, "--json"], blocks].concat())).unwrap();
            report["cycles"].as_f64().unwrap()
        };
        assert_eq!(cycles(&pto, &["--blocks", &count]), cycles(&program, &[]), "{spec}");
    }
    // Steps of the unit take parts of a tile; the slots turn; the last tiles are short.
    let (m, n, k) = (200_u64, 100_u64, 2100_u64);
    let mut random = npumem_testing::Random(5);
    let mut whole = |count: u64| -> Vec<i64> { (0..count).map(|_| random.below(7) as i64 - 3).collect() };
    let (a, b) = (whole(m * k), whole(k * n));
    let halves = |list: &[i64]| -> Vec<u8> { list.iter().flat_map(|value| half(*value)).collect() };
    json(&["matmul m=200 n=100 k=2100 a=f16 b=f16 c=f32", "--tile", "m=32 n=48 k=512", "-o", &pto]);
    let text = std::fs::read_to_string(&pto).unwrap();
    assert!(text.contains("pto.textract") && text.contains("scf.yield"), "{text}");
    npy(&at("a.npy"), "<f2", &[m, k], &halves(&a));
    npy(&at("b.npy"), "<f2", &[k, n], &halves(&b));
    npy(&at("c.npy"), "<f4", &[m, n], &vec![0; (m * n * 4) as usize]);
    let given = [format!("a_gm={}", at("a.npy")), format!("b_gm={}", at("b.npy")), format!("c_gm={}", at("c.npy"))];
    let result = format!("c_gm={}", at("result.npy"));
    let inputs = ["--input", &given[0], "--input", &given[1], "--input", &given[2], "--output", &result];
    run(&[&["run", &pto, "--values", "--blocks", &blocks(&text)], &inputs[..]].concat());
    let bytes = std::fs::read(at("result.npy")).unwrap();
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    for (place, part) in bytes[10 + header..].chunks(4).take((m * n) as usize).enumerate() {
        let (row, column) = (place as u64 / n, place as u64 % n);
        let sum: i64 = (0..k).map(|deep| a[(row * k + deep) as usize] * b[(deep * n + column) as usize]).sum();
        assert_eq!(f32::from_le_bytes(part.try_into().unwrap()), sum as f32, "row {row}, column {column}");
    }
    let (code, text) = refused(&["conv c=16 size=20x20 k=16 kernel=3x3 pad=1", "-o", &pto]);
    assert_eq!(code, 2);
    assert!(text.contains("cannot be written as .pto"), "{text}");
}

#[test]
fn a_program_is_sound_on_its_device_or_what_the_device_lacks_is_named() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-device.npumem");
    let file = file.to_str().unwrap();
    let mut written = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../devices")).unwrap() {
        let name = entry.unwrap().path();
        let Some(device) = name.file_name().and_then(|name| name.to_str()?.strip_suffix(".toml")) else { continue };
        for spec in [
            "matmul m=256 n=256 k=256",
            "matmul m=256 n=256 k=256 a=i8",
            "elementwise shape=256x300 a=f16 b=f16 op=add",
            "elementwise shape=256x300 a=i8 b=i8 op=add",
            "softmax shape=100x256",
        ] {
            let output = tile(&[spec, "--device", device, "-o", file]);
            let said = String::from_utf8(output.stderr).unwrap();
            if output.status.code() != Some(0) {
                let named = ["cannot be written", "has no", "would not be sound", "has no figure"];
                assert!(named.iter().any(|part| said.contains(part)), "{spec} on {device}: {said}");
                continue;
            }
            *written.entry(device.to_owned()).or_insert(0) += 1;
            let checked = Command::new(env!("CARGO_BIN_EXE_npumem")).args(["check", file, "--device", device]).output();
            let checked = checked.unwrap();
            let text = String::from_utf8_lossy(&checked.stdout).into_owned();
            assert_eq!(checked.status.code(), Some(0), "{spec} on {device}: {text}");
        }
    }
    for device in ["ascend-910b2", "ascend-950", "nvidia-h200", "generic-npu"] {
        assert_eq!(written.get(device), Some(&5), "{device}");
    }
}

/// The bits of a small whole number in two bytes.
fn half(value: i64) -> [u8; 2] {
    if value == 0 {
        return [0, 0];
    }
    let magnitude = value.unsigned_abs() as u16;
    let exponent = magnitude.ilog2() as u16;
    let mantissa = (magnitude << (10 - exponent)) & 0x3ff;
    ((u16::from(value < 0) << 15) | ((exponent + 15) << 10) | mantissa).to_le_bytes()
}

/// Products of odd sizes, turned, in batches, of three types: what a random comparison with NumPy found wrong once, and
/// its neighbours.
#[test]
fn odd_products_compute_what_they_should() {
    let mut random = npumem_testing::Random(11);
    for (device, kind, turned, shared, [batch, m, n, k]) in [
        ("ascend-910b2", "i8", "b", "none", [1, 107, 69, 134]),
        ("ascend-910b2", "f16", "b", "none", [1, 87, 153, 80]),
        ("ascend-910b2", "f16", "a", "none", [1, 87, 132, 166]),
        ("ascend-910b2", "f16", "ab", "none", [2, 61, 44, 35]),
        ("ascend-910b2", "f32", "none", "a", [3, 58, 32, 91]),
        ("ascend-910b2", "f32", "none", "none", [3, 63, 191, 89]),
        ("generic-npu", "f16", "none", "b", [3, 27, 86, 125]),
        ("generic-npu", "i8", "a", "none", [1, 56, 126, 145]),
        ("generic-npu", "f16", "ab", "none", [3, 90, 57, 192]),
        ("generic-npu", "f32", "none", "a", [3, 86, 97, 59]),
    ] {
        let (shared_a, shared_b) = (shared == "a", shared == "b");
        let mut whole = |count: u64| -> Vec<i64> { (0..count).map(|_| random.below(15) as i64 - 7).collect() };
        let a = whole(if shared_a { 1 } else { batch } * m * k);
        let b = whole(if shared_b { 1 } else { batch } * k * n);
        let encode = |list: &[i64]| -> Vec<u8> {
            match kind {
                "i8" => list.iter().map(|value| *value as u8).collect(),
                "f16" => list.iter().flat_map(|value| half(*value)).collect(),
                _ => list.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect(),
            }
        };
        let shape = |alone: bool, rows: u64, columns: u64, swap: bool| {
            let mut shape = if batch > 1 && !alone { vec![batch] } else { Vec::new() };
            shape.extend(if swap { [columns, rows] } else { [rows, columns] });
            shape
        };
        let (a_turned, b_turned) = (["a", "ab"].contains(&turned), ["b", "ab"].contains(&turned));
        let (a_shape, b_shape) = (shape(shared_a, m, k, a_turned), shape(shared_b, k, n, b_turned));
        let code = match kind {
            "i8" => "|i1",
            "f16" => "<f2",
            _ => "<f4",
        };
        let sums = if kind == "i8" { "i32" } else { "f32" };
        let spec = format!(
            "matmul batch={batch} m={m} n={n} k={k} a={kind} b={kind} c={sums} transpose={turned} shared={shared}"
        );
        let inputs = [("a_gm", code, &a_shape[..], encode(&a)), ("b_gm", code, &b_shape[..], encode(&b))];
        let c = computed(&spec, device, &inputs, "c_gm");
        let value = |part: &[u8]| match kind {
            "i8" => i64::from(i32::from_le_bytes(part.try_into().unwrap())),
            _ => f32::from_le_bytes(part.try_into().unwrap()) as i64,
        };
        let c: Vec<i64> = c.chunks(4).map(value).collect();
        assert_eq!(c.len() as u64, batch * m * n, "{spec}");
        for (at, value) in c.iter().enumerate() {
            let (part, row, column) = (at as u64 / (m * n), at as u64 / n % m, at as u64 % n);
            let (of_a, of_b) = (if shared_a { 0 } else { part * m * k }, if shared_b { 0 } else { part * k * n });
            let left = |deep: u64| a[(of_a + if a_turned { deep * m + row } else { row * k + deep }) as usize];
            let right = |deep: u64| b[(of_b + if b_turned { column * k + deep } else { deep * n + column }) as usize];
            let sum: i64 = (0..k).map(|deep| left(deep) * right(deep)).sum();
            assert_eq!(*value, sum, "{spec} on {device}: product {part}, row {row}, column {column}");
        }
    }
}

/// Cycles of the simulator's fast mode.
fn fast(schedule: &npumem::tiling::Schedule, device: &npumem::ir::Device) -> Option<f64> {
    let program = npumem::tiling::program(schedule, device).ok()?;
    let done = npumem::simulate::simulate(
        &program,
        device,
        &npumem::simulate::Request { advice: Some(false), ..Default::default() },
        &[],
    );
    done.ok().map(|done| done.outcome.cycles)
}

/// The schedule that is chosen is the fastest in the simulator of all sizes that give another number of tiles, with all
/// kinds of slots, or within 2 %.
#[test]
fn the_fastest_of_all_in_the_simulator_is_chosen_or_one_within_two_percent() {
    use npumem::tiling::{Goal, Request, Slots, parse, schedule, schedule_as};
    for (device, spec) in [
        ("generic-npu", "matmul m=128 n=128 k=256"),
        ("generic-npu", "matmul m=100 n=333 k=65 a=f32 b=f32 c=f32"),
        ("generic-npu", "elementwise shape=256x512 a=f16 b=f16 op=add,relu"),
        ("generic-npu", "reduce shape=256x512 a=f16 c=f32"),
        ("ascend-910b2", "matmul m=1 n=512 k=512"),
        ("ascend-910b2", "softmax shape=256x512 a=f16"),
    ] {
        let described = npumem::catalogue::device(device).unwrap();
        let operator = parse(spec).unwrap();
        let chosen = schedule(&operator, &described, Goal::Time).unwrap();
        let cycles = fast(&chosen, &described).unwrap();
        let unit = if spec.starts_with("matmul") { 16 } else { 1 };
        let sizes = |extent: u64| -> Vec<u64> {
            let units = extent.div_ceil(unit);
            let mut sizes: Vec<u64> =
                (1..=units.min(16)).map(|count| (units.div_ceil(count) * unit).min(extent)).collect();
            sizes.dedup();
            sizes
        };
        let mut all: Vec<Vec<u64>> = vec![Vec::new()];
        for dim in &operator.dims {
            let of_dim = if dim.whole { vec![dim.extent] } else { sizes(dim.extent) };
            all = all.iter().flat_map(|tiles| of_dim.iter().map(|size| [&tiles[..], &[*size]].concat())).collect();
        }
        let (mut best, mut tried) = (f64::INFINITY, 0);
        for tiles in all {
            for slots in [Slots::All, Slots::Inputs, Slots::Streamed, Slots::Single] {
                let request = Request { tiles: Some(tiles.clone()), slots: Some(slots), ..Request::default() };
                let Ok(one) = schedule_as(&operator, &described, &request) else { continue };
                best = best.min(fast(&one, &described).unwrap_or(f64::INFINITY));
                tried += 1;
            }
        }
        println!("{device} {spec}: chosen {cycles:.0}, best of {tried} {best:.0}, {:.3}", cycles / best);
        assert!(cycles <= 1.02 * best, "{spec} on {device}: chosen {cycles}, best of {tried}: {best}");
    }
}
