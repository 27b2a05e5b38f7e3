//! Many calls through the default allocator: nothing grows, nothing breaks.
//! `cargo xtask soak` runs it with more calls: factor 1000 makes 1e9.
#![allow(clippy::unwrap_used, clippy::print_stdout)]
use npumem_allocator::{Allocator, Call, Calls, Handle, PageSource, Paged, PagedOptions, Request};

struct Counted(u64);

impl PageSource for Counted {
    fn map(&mut self, _: u32, count: u32) -> Result<(), String> {
        self.0 += u64::from(count);
        Ok(())
    }
    fn unmap(&mut self, _: u32, count: u32) {
        self.0 -= u64::from(count);
    }
}

/// Sizes of all magnitudes, a thousand live blocks, from a seed.
fn mixed(seed: u64, calls: usize) -> Calls {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut live = Vec::new();
    let mut free: Vec<u32> = (0..1000).collect();
    let mut list = Vec::new();
    for _ in 0..calls {
        if !free.is_empty() && (live.is_empty() || next() % 2 == 0) {
            let slot = free.pop().unwrap();
            live.push(slot);
            list.push(Call::Allocate { slot, bytes: (next() % 4096 + 1) << (next() % 14) });
        } else {
            let slot = live.swap_remove((next() % live.len() as u64) as usize);
            free.push(slot);
            list.push(Call::Free { slot });
        }
    }
    list.extend(live.into_iter().map(|slot| Call::Free { slot }));
    Calls { calls: list, slots: 1000 }
}

#[test]
fn soak() {
    let factor: u64 = std::env::var("NPUMEM_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let wanted = factor * 1_000_000;
    let mut traces = vec![mixed(1, 100_000), mixed(2, 30_000)];
    for name in ["gpu-train-1024", "npu-train", "gpu-inference-512"] {
        if let Some(path) = npumem_testing::shared(&format!("data/allocation-traces/{name}.trc")) {
            traces.push(Calls::parse(&std::fs::read_to_string(path).unwrap()).unwrap());
        }
    }
    let mut paged = Paged::new(PagedOptions::default(), Counted(0));
    let mut handles: Vec<Option<Handle>> = vec![None; traces.iter().map(|calls| calls.slots).max().unwrap() as usize];
    let (mut done, mut checked, mut round) = (0_u64, 0_u64, 0_u64);
    let mut entries = None;
    while done < wanted {
        let calls = &traces[(round % traces.len() as u64) as usize];
        for call in &calls.calls {
            match *call {
                Call::Allocate { slot, bytes } => {
                    handles[slot as usize] = Some(paged.allocate(Request::new(bytes)).unwrap().handle);
                }
                Call::Free { slot } => {
                    paged.free(handles[slot as usize].take().unwrap()).unwrap();
                }
                Call::Mark => {}
            }
        }
        for handle in handles.iter_mut().filter_map(Option::take) {
            paged.free(handle).unwrap();
        }
        done += calls.calls.len() as u64;
        round += 1;
        if done / 1_000_000 > checked {
            checked = done / 1_000_000;
            paged.verify().unwrap();
            let state = paged.statistics();
            assert_eq!((state.live.get(), state.blocks), (0, 0));
            assert_eq!(state.reserved.get(), paged.source().0 * (2 << 20));
        }
        // After every trace was seen some times the table must have found its size.
        if round == 8 * traces.len() as u64 {
            entries = Some(paged.entries());
        }
    }
    if let Some(before) = entries {
        assert!(paged.entries() <= before * 5 / 4, "the table grew from {before} to {}", paged.entries());
    }
    println!("{done} calls, {checked} checks, {} table entries, {:?}", paged.entries(), paged.page_counts());
}
