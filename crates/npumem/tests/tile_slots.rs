//! Tiles at the border of the data and of a core's block: every one fits its slot, and no bound is above what is moved.

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
