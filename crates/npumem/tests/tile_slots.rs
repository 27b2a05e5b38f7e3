//! Tiles at the border of the data and of a core's block: every one fits its slot, and no bound is above what is moved.

#![allow(clippy::unwrap_used)]

use npumem::tiling::{Goal, OperandRole, Schedule, parse, program, schedule};
use npumem_testing::Random;

/// Most bytes that one tile of an operand has, over every tile of every core.
fn largest(schedule: &Schedule, operand: usize, bits: u64) -> u64 {
    let operator = &schedule.operator;
    let ranges = |dim: usize| -> Vec<(u64, u64)> {
        let (extent, block, tile) = (operator.dims[dim].extent, schedule.block[dim], schedule.found.tiles[dim]);
        let mut list = Vec::new();
        for part in 0..schedule.parts[dim] {
            let end = ((part + 1) * block).min(extent);
            let mut low = part * block;
            while low < end {
                list.push((low, (low + tile).min(end)));
                low += tile;
            }
        }
        list
    };
    let elements: u64 = operator.operands[operand]
        .axes
        .iter()
        .map(|axis| {
            let mut lists: Vec<Vec<(usize, (u64, u64))>> = vec![Vec::new()];
            for (dim, _) in &axis.terms {
                let all = ranges(*dim);
                lists = lists
                    .into_iter()
                    .flat_map(|list| all.iter().map(move |range| [list.clone(), vec![(*dim, *range)]].concat()))
                    .collect();
            }
            let size = |list: &Vec<(usize, (u64, u64))>| {
                let of = |dim: usize| list.iter().find(|(with, _)| *with == dim).map_or((0, 1), |(_, range)| *range);
                let (first, end) = axis.touched(&of);
                end - first
            };
            lists.iter().map(size).max().unwrap_or(1)
        })
        .product();
    (elements * bits).div_ceil(8)
}

fn window(random: &mut Random) -> String {
    let mut pick = |low: u64, high: u64| low + random.below(high - low + 1);
    let (high, wide) = (pick(4, 60), pick(4, 60));
    let kernel = pick(1, 4);
    let pad = pick(0, kernel.min(2));
    let stride = pick(1, 3);
    match pick(0, 4) {
        0 => format!(
            "pool c={} size={high}x{wide} kernel={kernel} stride={stride} pad={}",
            pick(1, 64),
            pad.min(kernel / 2)
        ),
        1 => format!(
            "conv c={} size={high}x{wide} k={} kernel={kernel} pad={} stride={stride} transposed=true",
            pick(1, 64),
            pick(1, 64),
            pad.min(kernel - 1)
        ),
        2 => format!("depthwise c={} size={high}x{wide} kernel={kernel} stride={stride} pad={pad}", pick(2, 64)),
        _ => format!(
            "conv n={} c={} size={high}x{wide} k={} kernel={kernel} pad={pad} stride={stride}",
            pick(1, 2),
            pick(1, 64),
            pick(1, 64)
        ),
    }
}

#[test]
fn every_tile_of_every_core_fits_its_slot_and_no_bound_is_above_the_traffic() {
    let mut random = Random(11);
    let mut specs: Vec<String> = (0..40).map(|_| window(&mut random)).collect();
    // Each of these had a slot that was too small, or traffic below its own bound.
    specs.extend(
        [
            "conv c=64 size=56x56 k=64 kernel=3x3 pad=1",
            "conv c=256 size=14x14 k=256 kernel=3x3 pad=1",
            "pool c=8 size=21x28 kernel=2 stride=2 pad=1",
            "conv c=64 size=22x16 k=5 kernel=1x1 pad=2 n=2",
            "conv c=16 size=11x12 k=16 kernel=4 pad=1 stride=2 transposed=true",
            "conv c=256 size=56x56 k=512 kernel=1x1 stride=2",
            "conv c=8 size=100x100 k=8 kernel=1x1 stride=10",
            "conv c=8 size=10x10 k=8 kernel=3x3 dilation=4",
            "pool c=64 size=100x100 kernel=1x1 stride=10",
        ]
        .map(str::to_owned),
    );
    let mut looked_at = 0;
    for name in ["generic-npu", "ascend-910b2"] {
        let device = npumem::catalogue::device(name).unwrap();
        for (spec, goal) in specs.iter().flat_map(|spec| [(spec, Goal::Time), (spec, Goal::Traffic)]) {
            let Ok(operator) = parse(spec) else { continue };
            let Ok(found) = schedule(&operator, &device, goal) else { continue };
            for (at, operand) in operator.operands.iter().enumerate() {
                let Some(buffer) = found.buffers.iter().find(|buffer| buffer.operand == at) else { continue };
                if operand.role == OperandRole::Temporary {
                    continue;
                }
                // Sums may be wider near the unit, and rounded up to its blocks: never less than the elements.
                let most = largest(&found, at, operand.element.bits());
                assert!(
                    buffer.bytes >= most,
                    "{spec} on {name}: '{}' has {} B, a tile {most}",
                    buffer.name,
                    buffer.bytes
                );
            }
            for link in &found.links {
                if let Some(bound) = &link.bound {
                    let (bytes, least) = (link.bytes, bound.bytes);
                    assert!(bytes >= least, "{spec} on {name}, {}: {bytes} B moved, bound {least}", link.name);
                }
            }
            looked_at += usize::from(program(&found, &device).is_ok());
        }
    }
    assert!(looked_at > 100, "{looked_at}");
}

#[test]
fn traffic_is_what_a_run_moves() {
    for (spec, name) in [
        ("conv c=64 size=22x16 k=5 kernel=1x1 pad=2 n=2", "ascend-910b2"),
        ("pool c=8 size=21x28 kernel=2 stride=2 pad=1", "ascend-910b2"),
        ("matmul m=512 n=512 k=512", "ascend-910b2"),
        ("matmul m=100 n=90 k=130 c=f32", "ascend-910b2"),
        ("conv c=8 size=100x100 k=8 kernel=1x1 stride=10", "generic-npu"),
    ] {
        let device = npumem::catalogue::device(name).unwrap();
        let found = schedule(&parse(spec).unwrap(), &device, Goal::Traffic).unwrap();
        let program = program(&found, &device).unwrap();
        let done = npumem::simulate::simulate(&program, &device, &npumem::simulate::Request::default(), &[]).unwrap();
        let report: serde_json::Value = serde_json::from_str(&done.report.to_json().unwrap()).unwrap();
        // Links with one end in a core and the other outside of it.
        let outside = |space: &str| matches!(space, "hbm" | "l2");
        let moved: u64 = report["links"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|link| {
                let (from, to) = link["name"].as_str().unwrap().split_once("->").unwrap();
                outside(from) != outside(to)
            })
            .map(|link| link["bytes"].as_u64().unwrap())
            .sum();
        let said = found.links.iter().find(|link| link.name.contains("cores")).unwrap().bytes;
        assert_eq!(u128::from(moved), said, "{spec} on {name}");
    }
}

/// The values of a schedule's program: what is left in `result`, and what was not computed.
fn values(spec: &str, name: &str, inputs: &[(&str, Vec<f32>)], result: &str) -> (Vec<f32>, String) {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tile-values-{}", spec.len()));
    std::fs::create_dir_all(&folder).unwrap();
    let at = |file: &str| folder.join(format!("{name}-{file}")).to_string_lossy().into_owned();
    let run = |arguments: &[String]| {
        std::process::Command::new(env!("CARGO_BIN_EXE_npumem")).args(arguments).output().unwrap()
    };
    let program = at("tile.npumem");
    let tile: Vec<String> = ["tile", spec, "--device", name, "-o", &program].map(str::to_owned).to_vec();
    let made = run(&tile);
    assert!(made.status.success(), "{spec}: {}", String::from_utf8_lossy(&made.stderr));
    let mut arguments: Vec<String> =
        ["run", &program, "--device", name, "--values", "--sanitize"].map(str::to_owned).to_vec();
    for (input, list) in inputs {
        let file = at(&format!("{input}.npy"));
        let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", list.len());
        while (header.len() + 11) % 64 != 0 {
            header.push(' ');
        }
        header.push('\n');
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(list.iter().flat_map(|value| value.to_le_bytes()));
        std::fs::write(&file, bytes).unwrap();
        arguments.extend(["--input".into(), format!("{input}={file}")]);
    }
    let file = at("result.npy");
    arguments.extend(["--output".into(), format!("{result}={file}")]);
    let done = run(&arguments);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(done.status.code(), Some(0), "{spec}: {said}{}", String::from_utf8_lossy(&done.stderr));
    let bytes = std::fs::read(&file).unwrap();
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let list = bytes[10 + header..].chunks(4).map(|part| f32::from_le_bytes(part.try_into().unwrap())).collect();
    let left: Vec<&str> = said.lines().filter(|line| line.contains("not computed")).collect();
    (list, left.join(" "))
}

#[test]
fn programs_compute_what_they_say_and_mark_what_they_do_not() {
    let mut random = Random(5);
    let mut list = |count: u64| -> Vec<f32> { (0..count).map(|_| random.below(9) as f32 - 4.0).collect() };
    for name in ["generic-npu", "ascend-910b2"] {
        // Several products of a batch in one tile, with one column, with one row, with one step of the sum.
        for (batch, m, n, k) in [(2_u64, 16_u64, 1_u64, 16_u64), (2, 16, 16, 1), (2, 1, 1, 16), (3, 16, 16, 16)] {
            let (a, b) = (list(batch * m * k), list(k * n));
            let spec = format!("matmul batch={batch} m={m} n={n} k={k} a=f32 b=f32 c=f32 shared=b");
            let (c, left) = values(&spec, name, &[("a_gm", a.clone()), ("b_gm", b.clone())], "c_gm");
            assert_eq!((c.len() as u64, left.as_str()), (batch * m * n, ""), "{spec} on {name}");
            for (at, value) in c.iter().enumerate() {
                let (row, column) = (at as u64 / n, at as u64 % n);
                let sum: f32 = (0..k).map(|deep| a[(row * k + deep) as usize] * b[(deep * n + column) as usize]).sum();
                assert_eq!(*value, sum, "{spec} on {name}, row {row}, column {column}");
            }
        }
        // The first operand is the one that is repeated.
        let (a, b) = (list(40), list(40 * 33));
        let spec = "elementwise shape=40x33 a=f32 b=f32 a-shape=40x1 op=add";
        let (out, left) = values(spec, name, &[("a_gm", a.clone()), ("b_gm", b.clone())], "out_gm");
        assert_eq!(left, "", "{name}");
        assert!(out.iter().enumerate().all(|(at, value)| *value == a[at / 33] + b[at]), "{name}");
        // A row that no tile holds is summed part by part.
        let a = list(2 * 400_000);
        let (c, left) = values("reduce shape=2x400000 axes=1 a=f32 c=f32", name, &[("a_gm", a.clone())], "c_gm");
        let expected: Vec<f32> = a.chunks(400_000).map(|row| row.iter().sum()).collect();
        assert_eq!((c, left.as_str()), (expected, ""), "{name}");
        // What is not said is marked, not wrong in silence.
        let (_, left) =
            values("embedding rows=9 count=9 d=32 table=f32", name, &[("table_gm", list(9 * 32))], "out_gm");
        assert!(left.contains("not computed"), "{name}: {left}");
    }
    // The unit that stores adds the bias and cuts off what is below 0.
    let (a, b, bias) = (list(256), list(256), list(16));
    let spec = "matmul m=16 n=16 k=16 a=f32 b=f32 c=f32 bias=f32 act=relu";
    let given = [("a_gm", a.clone()), ("b_gm", b.clone()), ("bias_gm", bias.clone())];
    let (c, left) = values(spec, "ascend-910b2", &given, "c_gm");
    assert_eq!(left, "");
    for (at, value) in c.iter().enumerate() {
        let sum: f32 = (0..16).map(|deep| a[at / 16 * 16 + deep] * b[deep * 16 + at % 16]).sum();
        assert_eq!(*value, (sum + bias[at % 16]).max(0.0), "row {}, column {}", at / 16, at % 16);
    }
}

#[test]
fn a_loop_that_turns_as_often_as_the_core_has_tiles_is_not_said_to_turn_more() {
    // Its inner loop was looked at for turns that no core has: "past-buffer", in a program that is right.
    for m in ["100000", "4000000", "20000000"] {
        let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("long-{m}.npumem"));
        let file = file.to_str().unwrap();
        let run = |arguments: &[&str]| {
            std::process::Command::new(env!("CARGO_BIN_EXE_npumem")).args(arguments).output().unwrap()
        };
        let made = run(&["tile", &format!("matmul m={m} n=1 k=1"), "--device", "ascend-910b2", "-o", file]);
        assert!(made.status.success());
        let checked = run(&["check", file, "--device", "ascend-910b2"]);
        let said = String::from_utf8_lossy(&checked.stdout);
        assert_eq!(checked.status.code(), Some(0), "m={m}: {said}");
        assert!(said.starts_with("SOUND"), "m={m}: {said}");
    }
}
