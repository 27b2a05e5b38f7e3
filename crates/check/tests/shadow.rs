//! The sweep against a shadow model: byte by byte, step by step, on random plans.
#![allow(clippy::unwrap_used)]

use npumem_check::{Violation, check};
use npumem_ir::problem::{Colocation, LiveRange};
use npumem_ir::{
    Buffer, BufferId, ByteRange, Bytes, Interval, Offset, Plan, Problem, Residency, Space, SpaceId, StepRange,
};
use npumem_testing::Random;
use std::collections::{BTreeMap, BTreeSet};

const STEPS: u64 = 12;
const BYTES: u64 = 24;

fn random_case(random: &mut Random) -> (Problem, Plan) {
    let count = 1 + random.below(7);
    let mut problem = Problem { name: "random".into(), spaces: vec![Space::unbounded("m")], ..Problem::default() };
    let mut plan = Plan::default();
    for index in 0..count {
        let size = 1 + random.below(8);
        let start = random.below(STEPS - 2);
        let end = start + 1 + random.below(STEPS - start);
        let mut buffer = Buffer::new(format!("b{index}"), Bytes(size), StepRange::steps(start, end), SpaceId(0));
        if end - start > 2 && random.below(3) == 0 {
            let low = random.below(size);
            let window = ByteRange { start: Offset(low), end: Offset(low + 1 + random.below(size - low)) };
            let middle = start + 1;
            let window = (random.below(2) == 0).then_some(window);
            buffer.live = vec![LiveRange { steps: StepRange::steps(start, middle), window: None }];
            if window.is_some() {
                buffer.live.push(LiveRange { steps: StepRange::steps(middle, end - 1), window });
            }
            buffer.live.push(LiveRange { steps: StepRange::steps(end - 1, end), window: None });
        }
        let steps = buffer.lifetime().unwrap();
        problem.buffers.push(buffer);
        let id = BufferId(u32::try_from(index).unwrap());
        plan.residencies.push(Residency { buffer: id, space: SpaceId(0), offset: Offset(random.below(BYTES)), steps });
    }
    if count > 2 && random.below(2) == 0 {
        problem.constraints.never_coexist.push((BufferId(1), BufferId(0)));
        let delta = Bytes(random.below(4));
        problem.constraints.colocated.push(Colocation { buffer: BufferId(2), base: BufferId(0), delta });
        plan.residencies[2].offset = Offset(plan.residencies[0].offset.0 + delta.0);
    }
    (problem, plan)
}

/// Every pair that shares a byte at a step, and how many (byte, step) cells it shares.
fn by_cells(problem: &Problem, plan: &Plan) -> BTreeMap<(u32, u32), u64> {
    let free: BTreeSet<(u32, u32)> = problem
        .constraints
        .never_coexist
        .iter()
        .map(|(a, b)| (a.0.min(b.0), a.0.max(b.0)))
        .chain(problem.constraints.colocated.iter().map(|c| (c.buffer.0.min(c.base.0), c.buffer.0.max(c.base.0))))
        .collect();
    let mut cells: BTreeMap<(u64, u64), Vec<u32>> = BTreeMap::new();
    for place in &plan.residencies {
        let buffer = &problem.buffers[place.buffer.index()];
        for live in &buffer.live {
            let window = buffer.window(live);
            for step in live.steps.start.0..live.steps.end.0 {
                for byte in window.start.0..window.end.0 {
                    cells.entry((step, place.offset.0 + byte)).or_default().push(place.buffer.0);
                }
            }
        }
    }
    let mut pairs = BTreeMap::new();
    for holders in cells.values() {
        for (index, a) in holders.iter().enumerate() {
            for b in &holders[index + 1..] {
                let pair = (*a.min(b), *a.max(b));
                if !free.contains(&pair) {
                    *pairs.entry(pair).or_default() += 1;
                }
            }
        }
    }
    pairs
}

#[test]
fn the_sweep_finds_what_the_cells_show() {
    let mut random = Random(7);
    let (mut sound, mut unsound) = (0, 0);
    for _ in 0..20_000 {
        let (problem, plan) = random_case(&mut random);
        let verdict = check(&problem, &plan);
        let mut found: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for violation in &verdict.violations {
            let Violation::Overlap { first, second, bytes, steps, .. } = violation else {
                panic!("only overlaps can be wrong here, found {violation}");
            };
            let pair = (first.id.0.min(second.id.0), first.id.0.max(second.id.0));
            *found.entry(pair).or_default() += bytes.size().0 * Interval::len(steps);
        }
        let expected = by_cells(&problem, &plan);
        if expected.is_empty() {
            sound += 1
        } else {
            unsound += 1
        }
        assert_eq!(found, expected, "{problem:?}\n{plan:?}");
    }
    // The generator is worth something only when both answers come often.
    assert!(sound > 2_000 && unsound > 2_000, "{sound} sound, {unsound} unsound");
}
