//! Planned iterations: a training loop of fixed length, and one whose lengths vary, through plan and pool.
use crate::Free;
use npumem_allocator::{Allocator, Call, Calls, Handle, Hybrid, Paged, PagedOptions, PlannedBlock, Request, Script, Step};
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

/// Setup and iterations of a trace with marks, each iteration as sizes and steps of its own blocks.
fn iterations(calls: &Calls) -> (Vec<u64>, Vec<(Vec<u64>, Vec<Step>)>) {
    let mut setup = Vec::new();
    let mut all: Vec<(Vec<u64>, Vec<Step>)> = Vec::new();
    let mut blocks = vec![0_u32; calls.slots as usize];
    for call in &calls.calls {
        match (*call, all.last_mut()) {
            (Call::Mark, _) => all.push((Vec::new(), Vec::new())),
            (Call::Allocate { bytes, .. }, None) => setup.push(bytes),
            (Call::Allocate { slot, bytes }, Some((sizes, steps))) => {
                blocks[slot as usize] = sizes.len() as u32;
                steps.push(Step::Allocate(sizes.len() as u32));
                sizes.push(bytes);
            }
            (Call::Free { slot }, Some((_, steps))) => steps.push(Step::Free(blocks[slot as usize])),
            (Call::Free { .. }, None) => panic!("a free in the setup"),
        }
    }
    (setup, all)
}

fn planned(sizes: &[u64], steps: &[Step]) -> (Script, u64) {
    let (blocks, end) = place(sizes, steps);
    (Script::new(blocks, steps.to_vec(), Bytes(end)).expect("a sound plan"), end)
}

fn peak_of(sizes: &[u64], steps: &[Step]) -> u64 {
    let (mut live, mut peak) = (0, 0);
    for step in steps {
        match step {
            Step::Allocate(block) => live += sizes[*block as usize],
            Step::Free(block) => live -= sizes[*block as usize],
        }
        peak = peak.max(live);
    }
    peak
}

/// The setup comes from the pool, the first iteration is recorded, and the later ones run by the plan made of it.
fn fixed(calls: &Calls, rounds: u32) {
    let (setup, all) = iterations(calls);
    let (first_sizes, first_steps) = &all[0];
    let (script, plan_bytes) = planned(first_sizes, first_steps);
    let mut best = u64::MAX;
    let mut kept = None;
    for _ in 0..rounds {
        let mut hybrid = Hybrid::new(script.clone(), Paged::new(PagedOptions::default(), Free));
        let mut handles = vec![None; first_sizes.len()];
        for (sizes, steps) in &all[1..] {
            let start = Instant::now();
            once(&mut hybrid, sizes, steps, &mut handles);
            best = best.min(start.elapsed().as_nanos() as u64);
        }
        kept = Some(hybrid);
    }
    let hybrid = kept.expect("a round");
    let state = hybrid.statistics();
    println!(
        "{}",
        json!({ "case": "training, fixed length", "iterations": all.len(), "planned_calls": first_steps.len(),
                "ns_per_call": best as f64 / first_steps.len() as f64, "hit_rate": hybrid.counts().hit_rate(),
                "peak_reserved": state.peak_reserved.get(), "plan": plan_bytes, "peak_live": peak_of(first_sizes, first_steps),
                "lasting": setup.iter().sum::<u64>() })
    );
}

/// Lengths vary: one plan for the longest, or one for the longest of each of `buckets` shares of the iterations.
fn varying(calls: &Calls, buckets: usize, smaller: bool) {
    let (_, all) = iterations(calls);
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|index| all[*index].0.iter().sum::<u64>());
    let (mut reserved, mut plan, mut peak_live, mut hits, mut asked, mut longest) = (0, 0, 0, 0, 0, 0);
    for bucket in order.chunks(all.len().div_ceil(buckets)) {
        let (sizes, steps) = &all[*bucket.last().expect("a bucket is not empty")];
        let (script, plan_bytes) = planned(sizes, steps);
        let hybrid = Hybrid::new(script, Paged::new(PagedOptions::default(), Free));
        let mut hybrid = if smaller { hybrid.with_smaller() } else { hybrid };
        // In the order in which they ran.
        let mut members = bucket.to_vec();
        members.sort_unstable();
        for member in members {
            let (sizes, steps) = &all[member];
            longest = longest.max(sizes.len());
            once(&mut hybrid, sizes, steps, &mut vec![None; sizes.len()]);
        }
        let counts = hybrid.counts();
        hits += counts.hits;
        asked += counts.hits + counts.misses + counts.late;
        // One plan's memory at a time: buckets share it.
        reserved = reserved.max(hybrid.statistics().peak_reserved.get());
        plan = plan.max(plan_bytes);
        peak_live = peak_live.max(hybrid.statistics().peak_live.get());
    }
    println!(
        "{}",
        json!({ "case": "training, varying length", "plans": buckets, "serves_smaller": smaller, "iterations": all.len(),
                "hit_rate": hits as f64 / asked as f64, "peak_reserved": reserved, "plan": plan, "peak_live": peak_live })
    );
}

pub fn traces(arguments: &[String], rounds: u32) {
    for argument in arguments {
        let (name, calls) = crate::load(argument);
        if name == "fixed" {
            fixed(&calls, rounds);
        } else {
            for (buckets, smaller) in [(1, false), (1, true), (4, true)] {
                varying(&calls, buckets, smaller);
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
