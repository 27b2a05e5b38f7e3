//! What the hybrid does when calls go as planned, and when they do not.

use super::*;
use crate::conformance::{Profile, check_calls, check_contract, random_bytes};
use crate::script::PlannedBlock;
use crate::tlsf::Tlsf;

const MIB: u64 = 1 << 20;

fn script(blocks: &[(u64, u64)], steps: Vec<Step>) -> Script {
    let blocks: Vec<_> =
        blocks.iter().map(|(offset, bytes)| PlannedBlock { offset: Offset(*offset), bytes: Bytes(*bytes) }).collect();
    let end = blocks.iter().map(|block| block.offset.get() + block.bytes.get()).max().unwrap_or(0);
    Script::new(blocks, steps, Bytes(end)).unwrap()
}

/// Two buffers one after the other in one place, and one beside them.
fn sample() -> Hybrid<Tlsf> {
    use Step::{Allocate, Free};
    let steps = vec![Allocate(0), Allocate(1), Free(0), Allocate(2), Free(1), Free(2)];
    Hybrid::new(script(&[(0, 1000), (1000, 500), (0, 900)], steps), Tlsf::new(Bytes(512), Bytes(4 * MIB)))
}

#[test]
fn iterations_that_go_as_planned_never_touch_the_pool() {
    let mut hybrid = sample();
    for _ in 0..3 {
        hybrid.begin_iteration();
        let first = hybrid.allocate(Request::new(1000)).unwrap();
        let second = hybrid.allocate(Request::new(500)).unwrap();
        hybrid.free(first.handle).unwrap();
        let third = hybrid.allocate(Request::new(900)).unwrap();
        assert_eq!([first.offset, second.offset, third.offset], [Offset(0), Offset(1000), Offset(0)]);
        hybrid.free(second.handle).unwrap();
        hybrid.free(third.handle).unwrap();
        assert!(hybrid.free(third.handle).is_err());
    }
    assert_eq!(hybrid.counts(), HybridCounts { hits: 9, iterations: 3, ..HybridCounts::default() });
    assert_eq!(hybrid.pool().statistics().allocations, 0);
    assert_eq!(hybrid.statistics().live, Bytes::ZERO);
}

#[test]
fn another_size_and_one_too_many_come_from_the_pool() {
    let mut hybrid = sample();
    let first = hybrid.allocate(Request::new(1000)).unwrap();
    let odd = hybrid.allocate(Request::new(777)).unwrap();
    assert_eq!(odd.offset, Offset(2 * MIB));
    // The plan goes on where it was.
    let second = hybrid.allocate(Request::new(500)).unwrap();
    assert_eq!(second.offset, Offset(1000));
    assert_eq!(hybrid.counts().misses, 1);
    for handle in [odd.handle, first.handle, second.handle] {
        hybrid.free(handle).unwrap();
    }
    hybrid.verify().unwrap();
}

#[test]
fn a_block_that_lives_longer_than_planned_is_not_overwritten() {
    let mut hybrid = sample();
    let first = hybrid.allocate(Request::new(1000)).unwrap();
    hybrid.allocate(Request::new(500)).unwrap();
    // Planned into the first one's place, which was not freed.
    let third = hybrid.allocate(Request::new(900)).unwrap();
    assert_eq!(third.offset, Offset(2 * MIB));
    assert_eq!(hybrid.counts(), HybridCounts { hits: 2, late: 1, ..HybridCounts::default() });
    hybrid.verify().unwrap();
    // In the next iteration it still lives: its own place is taken, the others are not.
    hybrid.begin_iteration();
    assert_eq!(hybrid.allocate(Request::new(1000)).unwrap().offset.get() >> 21, 1);
    hybrid.free(first.handle).unwrap();
    hybrid.verify().unwrap();
}

#[test]
fn a_planned_call_that_never_comes_is_skipped() {
    let mut hybrid = sample();
    let second = hybrid.allocate(Request::new(500)).unwrap();
    let third = hybrid.allocate(Request::new(900)).unwrap();
    assert_eq!([second.offset, third.offset], [Offset(1000), Offset(0)]);
    assert_eq!(hybrid.counts(), HybridCounts { hits: 2, skipped: 1, ..HybridCounts::default() });
}

#[test]
fn a_static_plan_alone_refuses_the_rest() {
    let steps = vec![Step::Allocate(0), Step::Free(0)];
    let mut plan = StaticPlan::new(script(&[(0, 64)], steps), NoPool::default());
    let block = plan.allocate(Request::new(64)).unwrap();
    assert!(matches!(*plan.allocate(Request::new(64)).unwrap_err(), AllocateError::OutOfMemory(_)));
    assert!(matches!(*plan.allocate(Request::new(0)).unwrap_err(), AllocateError::ZeroSize));
    plan.free(block.handle).unwrap();
    assert_eq!(plan.statistics().reserved, Bytes(64));
}

#[test]
fn the_conformance_suite_with_and_without_a_plan() {
    let capacity = 5 * MIB;
    let empty =
        || -> Box<dyn Allocator> { Box::new(Hybrid::new(Script::default(), Tlsf::new(Bytes(32), Bytes(capacity)))) };
    let profile = Profile { capacity: Some(capacity), largest: capacity, alignment: 1 << 18, recovers: true };
    check_contract(&mut { empty }, profile).unwrap();
    // Sizes that the suite's random calls ask for often, so that some are served from the plan.
    let sizes = [512, 1024, 1536, 2048, 1, 2, 4, 8];
    let mut blocks = Vec::new();
    let mut steps = Vec::new();
    for index in 0..4000_u32 {
        blocks.push((u64::from(index % 100) * 2048, sizes[index as usize % sizes.len()]));
        if index >= 100 {
            steps.push(Step::Free(index - 100));
        }
        steps.push(Step::Allocate(index));
    }
    let planned = script(&blocks, steps);
    let profile = Profile { capacity: Some(capacity + 2 * MIB), ..profile };
    let mut hits = 0;
    for seed in 0..30 {
        let mut hybrid = Hybrid::new(planned.clone(), Tlsf::new(Bytes(32), Bytes(capacity)));
        if let Err(flaw) = check_calls(&mut hybrid, profile, &random_bytes(seed, 12_000)) {
            panic!("seed {seed}: {flaw}");
        }
        hits += hybrid.counts().hits;
    }
    assert!(hits > 1_000, "{hits} calls were served from the plan");
}

#[test]
fn a_plan_for_the_longest_serves_shorter_iterations_when_told_to() {
    let mut hybrid = sample().with_smaller();
    for share in [1, 2, 10] {
        hybrid.begin_iteration();
        let first = hybrid.allocate(Request::new(1000 / share)).unwrap();
        let second = hybrid.allocate(Request::new(500 / share)).unwrap();
        let found = hybrid.block(first.handle).unwrap();
        assert_eq!((found.requested, found.granted), (Bytes(1000 / share), Bytes(1000)));
        assert_eq!(hybrid.statistics().live, Bytes(1500 / share));
        assert_eq!(hybrid.free(first.handle).unwrap(), Bytes(1000 / share));
        let third = hybrid.allocate(Request::new(900 / share)).unwrap();
        assert_eq!([first.offset, second.offset, third.offset], [Offset(0), Offset(1000), Offset(0)]);
        hybrid.verify().unwrap();
        hybrid.free(second.handle).unwrap();
        hybrid.free(third.handle).unwrap();
    }
    assert_eq!(hybrid.counts(), HybridCounts { hits: 9, iterations: 3, ..HybridCounts::default() });
    assert_eq!((hybrid.statistics().live, hybrid.pool().statistics().allocations), (Bytes::ZERO, 0));
    // More than planned, and nothing, are not smaller.
    hybrid.begin_iteration();
    assert!(hybrid.allocate(Request::new(0)).is_err());
    assert_eq!(hybrid.allocate(Request::new(1001)).unwrap().offset, Offset(2 * MIB));
    hybrid.verify().unwrap();
}

#[test]
fn a_request_too_many_costs_its_own_place_and_no_other() {
    use Step::{Allocate, Free};
    let steps = vec![Allocate(0), Allocate(1), Allocate(2), Allocate(3), Free(0), Free(1), Free(2), Free(3)];
    let planned = script(&[(0, 1000), (1000, 500), (2000, 1000), (3000, 700)], steps);
    let mut hybrid = Hybrid::new(planned, Tlsf::new(Bytes(512), Bytes(4 * MIB)));
    for _ in 0..2 {
        hybrid.begin_iteration();
        let handles: Vec<_> =
            [1000, 1000, 500, 1000, 700].iter().map(|bytes| hybrid.allocate(Request::new(*bytes)).unwrap()).collect();
        let offsets: Vec<u64> = handles.iter().map(|block| block.offset.get()).collect();
        assert_eq!(offsets, [0, 2000, 1000, 2 * MIB, 3000]);
        hybrid.verify().unwrap();
        for block in handles {
            hybrid.free(block.handle).unwrap();
        }
    }
    assert_eq!(hybrid.counts(), HybridCounts { hits: 8, late: 2, iterations: 2, ..HybridCounts::default() });
    // A request too many that is freed before its place is due leaves no trace.
    hybrid.begin_iteration();
    for (bytes, offset) in [(1000, 0), (1000, 2000)] {
        assert_eq!(hybrid.allocate(Request::new(bytes)).unwrap().offset, Offset(offset));
    }
    let extra = hybrid.planned_block(2);
    hybrid.free(extra.handle).unwrap();
    for (bytes, offset) in [(500, 1000), (1000, 2000), (700, 3000)] {
        assert_eq!(hybrid.allocate(Request::new(bytes)).unwrap().offset, Offset(offset));
    }
    hybrid.verify().unwrap();
}

/// Plans of few sizes, into which requests too many are put at random: what each of them costs.
#[test]
fn requests_too_many_cost_the_plan_little_and_never_a_byte() {
    use Step::{Allocate, Free};
    let (mut planned_calls, mut lost, mut extras) = (0_u64, 0_u64, 0_u64);
    for seed in 0..60_u64 {
        let mut state = seed + 1;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        // Every block lives through the next seven; places are used again and again.
        let sizes: Vec<u64> = (0..400).map(|_| 512 * (1 + next(6))).collect();
        let blocks: Vec<(u64, u64)> = (0..400).map(|index| ((index % 8) * 4096, sizes[index as usize])).collect();
        let steps: Vec<Step> = (0..400_u32)
            .flat_map(|index| [(index >= 8).then(|| Free(index - 8)), Some(Allocate(index))].into_iter().flatten())
            .collect();
        let mut hybrid = Hybrid::new(script(&blocks, steps), Tlsf::new(Bytes(512), Bytes(4 * MIB)));
        hybrid.begin_iteration();
        let mut live = std::collections::VecDeque::new();
        let mut odd = Vec::new();
        for (index, bytes) in sizes.iter().enumerate() {
            if index >= 8 {
                hybrid.free(live.pop_front().unwrap()).unwrap();
            }
            if next(40) == 0 {
                odd.push(hybrid.allocate(Request::new(512 * (1 + next(6)))).unwrap());
                extras += 1;
            }
            let block = hybrid.allocate(Request::new(*bytes)).unwrap();
            lost += u64::from(block.offset.get() >= 2 * MIB);
            planned_calls += 1;
            live.push_back(block.handle);
            if odd.len() > 3 {
                hybrid.free(odd.remove(0).handle).unwrap();
            }
            hybrid.verify().unwrap();
        }
    }
    assert!(extras > 400 && planned_calls == 24_000, "{extras} {planned_calls}");
    assert!(lost <= 3 * extras, "{lost} planned calls went to the pool for {extras} requests too many");
}
