//! Each objective is kept by its own measure: no other objective's schedule is better at it, and no neighbour is faster.

use super::super::{Goal, Larger, Schedule, Slots, explain, parse, schedule, two_level};
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

/// The generic machine with another SRAM, of as many banks.
fn with_sram(bytes: u64) -> Device {
    let text = include_str!("../../../../../devices/generic-npu.toml");
    let (before, sram) = text.split_at(text.find("name = \"sram\"").unwrap());
    let sram = sram.replacen("capacity_bytes = \"8 MiB\"", &format!("capacity_bytes = {bytes}"), 1);
    let sram = sram.replacen("size_bytes = \"256 KiB\"", &format!("size_bytes = {}", bytes / 32), 1);
    Device::from_toml(&format!("{before}{sram}")).unwrap()
}

#[test]
fn more_sram_is_never_worse() {
    let mut random = Random(23);
    for _ in 0..60 {
        let text = spec(&mut random);
        let operator = parse(&text).unwrap();
        for slots in [Slots::Single, Slots::Streamed, Slots::Inputs, Slots::All] {
            let (mut capacity, mut least) = (256_u64, None);
            while capacity < 1 << 20 {
                let found = two_level(&operator, capacity, slots).ok().map(|found| found.traffic());
                let worse = least.is_some_and(|least| found.is_none_or(|found| found > least));
                assert!(
                    !worse,
                    "{text}, slots {}: {found:?} B in {capacity} B of SRAM, {least:?} in less",
                    slots.word()
                );
                least = found.or(least);
                capacity += 1 + capacity / 2 + random.below(capacity);
            }
        }
    }
    for _ in 0..12 {
        let text = spec(&mut random);
        let operator = parse(&text).unwrap();
        let mut least: Option<u128> = None;
        for kib in [24_u64, 32, 48, 80, 128, 256, 704, 2048] {
            let now = schedule(&operator, &with_sram(kib << 10), Goal::Traffic).ok().map(|found| traffic(&found));
            let worse = least.is_some_and(|least| now.is_none_or(|now| now > least));
            assert!(!worse, "{text}: {now:?} B in {kib} KiB, {least:?} B in less");
            least = now.or(least);
        }
    }
}
