//! Each objective is kept by its own measure: no other objective's schedule is better at it, and no neighbour is faster.

use super::super::{Goal, Larger, Schedule, explain, parse, schedule};
use npumem_ir::Device;
use npumem_testing::Random;

fn device(name: &str) -> Device {
    let text = match name {
        "ascend-910b2" => include_str!("../../../../../devices/ascend-910b2.toml"),
        "nvidia-h200" => include_str!("../../../../../devices/nvidia-h200.toml"),
        _ => include_str!("../../../../../devices/generic-npu.toml"),
    };
    Device::from_toml(text).unwrap()
}

fn spec(random: &mut Random) -> String {
    let mut small = |most: u64| 1 + random.below(most);
    match small(6) {
        1 | 2 => format!("matmul m={} n={} k={} a=f16 b=f16 c=f16", small(400), small(400), small(900)),
        3 => format!("conv c={} size={}x{} k={} kernel=3 pad=1", small(48), 4 + small(28), 4 + small(28), small(48)),
        4 => format!("reduce shape={}x{} a=f32", small(300), small(700)),
        5 => format!("softmax shape={}x{} a=f16", small(300), small(700)),
        _ => format!("elementwise shape={}x{} a=f16 b=f16 op=add", small(300), small(700)),
    }
}

/// Bytes between the cores and what lies behind them.
fn traffic(schedule: &Schedule) -> u128 {
    schedule.links.iter().find(|link| link.name.contains("cores")).map_or(0, |link| link.bytes)
}

fn near(schedule: &Schedule) -> u64 {
    schedule.buffers.iter().map(|buffer| buffer.pitch * buffer.slots).sum()
}

#[test]
fn no_objective_is_beaten_at_its_own_measure() {
    let mut random = Random(11);
    for turn in 0..36 {
        let text = spec(&mut random);
        let name = ["ascend-910b2", "nvidia-h200", "generic-npu"][turn % 3];
        let device = device(name);
        let operator = parse(&text).unwrap();
        let of = |goal: Goal| schedule(&operator, &device, goal).unwrap();
        let (time, least, memory) = (of(Goal::Time), of(Goal::Traffic), of(Goal::Memory));
        assert!(traffic(&least) <= traffic(&time).min(traffic(&memory)), "{text} on {name}: traffic");
        assert!(near(&memory) <= near(&time), "{text} on {name}: {} and {} bytes", near(&memory), near(&time));
        assert!(memory.cycles <= 1.05 * time.cycles, "{text} on {name}: {} and {}", memory.cycles, time.cycles);
        assert!(time.cycles <= 1.06 * least.cycles.min(memory.cycles), "{text} on {name}: time");
        let around = explain(&time, &device);
        for (dim, size, larger) in &around.larger {
            if let Larger::Takes(cycles) = larger {
                assert!(
                    *cycles >= time.cycles * 0.999,
                    "{text} on {name}: {dim}={size} takes {cycles}: {}",
                    time.cycles
                );
            }
        }
        if let Some(cycles) = around.single_slots {
            assert!(cycles >= time.cycles * 0.999, "{text} on {name}: single slots take {cycles}: {}", time.cycles);
        }
    }
}
