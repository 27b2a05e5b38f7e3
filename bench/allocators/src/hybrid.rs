//! Planned iterations: a training loop of fixed length, and one whose lengths vary, through plan and pool.
use crate::Free;
use npumem_allocator::{Allocator, Handle, Hybrid, Paged, PagedOptions, PlannedBlock, Request, Script, Step};
use npumem_ir::{Bytes, Offset};
use serde_json::json;
use std::time::Instant;

const LAYERS: usize = 24;

/// The calls of one iteration of a language model: activations are kept forward and freed backward,
/// temporaries live for one operator. Sizes grow with the length of the sequence.
fn iteration(length: u64) -> (Vec<u64>, Vec<Step>) {
    let hidden = 2048 * 2 * length;
    let mut sizes = Vec::new();
    let mut steps = Vec::new();
    let mut saved: Vec<Vec<u32>> = Vec::new();
    let mut new = |bytes: u64, steps: &mut Vec<Step>| {
        let block = sizes.len() as u32;
        sizes.push(bytes);
        steps.push(Step::Allocate(block));
        block
    };
    for _ in 0..LAYERS {
        let mut kept = Vec::new();
        for (factor, keep) in [(1, true), (3, true), (2, false), (1, true), (1, false), (4, true), (4, false), (1, true)] {
            let block = new(hidden * factor, &mut steps);
            let small = new(length * 8, &mut steps);
            steps.push(Step::Free(small));
            if keep { kept.push(block) } else { steps.push(Step::Free(block)) }
        }
        saved.push(kept);
    }
    while let Some(kept) = saved.pop() {
        for block in kept.into_iter().rev() {
            let gradient = new(hidden * 2, &mut steps);
            let weight = new(2048 * 2048 * 2, &mut steps);
            steps.push(Step::Free(block));
            steps.push(Step::Free(gradient));
            steps.push(Step::Free(weight));
        }
    }
    (sizes, steps)
}

/// Offsets by size, largest first, each at the lowest offset that its lifetime leaves free.
fn place(sizes: &[u64], steps: &[Step]) -> (Vec<PlannedBlock>, u64) {
    let mut life = vec![(0, steps.len()); sizes.len()];
    for (index, step) in steps.iter().enumerate() {
        match step {
            Step::Allocate(block) => life[*block as usize].0 = index,
            Step::Free(block) => life[*block as usize].1 = index,
        }
    }
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|block| (std::cmp::Reverse(sizes[*block]), *block));
    let mut offsets = vec![0; sizes.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut end = 0;
    for block in order {
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|other| life[**other].0 < life[block].1 && life[block].0 < life[**other].1)
            .map(|other| (offsets[*other], offsets[*other] + sizes[*other].next_multiple_of(512)))
            .collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (start, stop) in taken {
            if offset + sizes[block] <= start {
                break;
            }
            offset = offset.max(stop);
        }
        offsets[block] = offset;
        end = end.max(offset + sizes[block]);
        placed.push(block);
    }
    let blocks = sizes.iter().zip(&offsets).map(|(size, offset)| PlannedBlock { offset: Offset(*offset), bytes: Bytes(*size) });
    (blocks.collect(), end)
}

#[inline(never)]
fn once(hybrid: &mut Hybrid<Paged<Free>>, sizes: &[u64], steps: &[Step], handles: &mut [Option<Handle>]) {
    hybrid.begin_iteration();
    for step in steps {
        match *step {
            Step::Allocate(block) => {
                handles[block as usize] = hybrid.allocate(Request::new(sizes[block as usize])).ok().map(|block| block.handle);
            }
            Step::Free(block) => {
                if let Some(handle) = handles[block as usize] {
                    assert!(hybrid.free(handle).is_ok());
                }
            }
        }
    }
}

pub fn run(rounds: u32) {
    let (sizes, steps) = iteration(1024);
    let (blocks, plan_bytes) = place(&sizes, &steps);
    let script = Script::new(blocks, steps.clone(), Bytes(plan_bytes)).expect("a sound plan");
    let mut hybrid = Hybrid::new(script.clone(), Paged::new(PagedOptions::default(), Free));
    let mut handles = vec![None; sizes.len()];
    let mut best = u64::MAX;
    for _ in 0..rounds.max(2) * 8 {
        let start = Instant::now();
        once(&mut hybrid, &sizes, &steps, &mut handles);
        best = best.min(start.elapsed().as_nanos() as u64);
    }
    let state = hybrid.statistics();
    println!(
        "{}",
        json!({ "case": "fixed length", "planned_calls": steps.len(), "ns_per_call": best as f64 / steps.len() as f64,
                "hit_rate": hybrid.counts().hit_rate(), "peak_reserved": state.peak_reserved.get(), "plan": plan_bytes })
    );
    // Lengths vary: the plan was made for the longest, shorter iterations differ in size and go to the pool.
    let mut hybrid = Hybrid::new(script, Paged::new(PagedOptions::default(), Free));
    for length in [1024, 1024, 768, 1024, 512, 1024, 1024, 896] {
        let (sizes, steps) = iteration(length);
        once(&mut hybrid, &sizes, &steps, &mut handles);
    }
    let state = hybrid.statistics();
    println!(
        "{}",
        json!({ "case": "varying length", "hit_rate": hybrid.counts().hit_rate(), "peak_reserved": state.peak_reserved.get(),
                "plan": plan_bytes, "peak_live": state.peak_live.get() })
    );
}
