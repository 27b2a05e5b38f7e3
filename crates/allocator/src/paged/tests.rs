//! What the conformance suite cannot reach: used-up generations, a full table, limits.

use super::*;

struct Unbounded;

impl PageSource for Unbounded {
    fn map(&mut self, _: u32, _: u32) -> Result<(), String> {
        Ok(())
    }
    fn unmap(&mut self, _: u32, _: u32) {}
}

fn paged(options: PagedOptions) -> Paged<Unbounded> {
    Paged::new(options, Unbounded)
}

#[test]
fn an_entry_whose_generations_are_used_up_is_never_handed_out_again() {
    for held in [0, 8] {
        let mut paged = paged(PagedOptions { held, ..PagedOptions::default() });
        let first = paged.allocate(Request::new(5000)).unwrap();
        let neighbour = paged.allocate(Request::new(700)).unwrap();
        // As after two thousand million uses.
        paged.arena.nodes.set_generation(first.handle.index, u32::MAX);
        let last = Handle { generation: NonZeroU32::MAX, ..first.handle };
        assert_eq!(paged.free(last).unwrap(), Bytes(5000));
        paged.verify().unwrap();
        assert!(paged.free(last).is_err() && paged.block(last).is_err());
        for _ in 0..100 {
            let next = paged.allocate(Request::new(5000)).unwrap();
            assert_ne!(next.handle.index, first.handle.index);
            assert_eq!(next.offset, first.offset);
            paged.free(next.handle).unwrap();
        }
        paged.free(neighbour.handle).unwrap();
        paged.verify().unwrap();
    }
}

#[test]
fn a_full_table_is_an_error_and_frees_make_room() {
    let mut paged = paged(PagedOptions::default());
    let mut handles = Vec::new();
    let error = loop {
        match paged.allocate(Request::new(512)) {
            Ok(block) => handles.push(block.handle),
            Err(error) => break *error,
        }
    };
    assert!(matches!(error, AllocateError::TooManyBlocks { limit } if limit > handles.len() as u64), "{error}");
    assert!(handles.len() > 1_000_000, "{}", handles.len());
    paged.verify().unwrap();
    let state = paged.statistics();
    assert_eq!((state.blocks, state.failures), (handles.len() as u64, 1));
    for handle in handles.split_off(handles.len() - 2000) {
        paged.free(handle).unwrap();
    }
    let large = paged.allocate(Request::new(700 << 10)).unwrap();
    assert_eq!(large.offset.get() % UNIT, 0);
    paged.verify().unwrap();
}

#[test]
fn a_limit_holds_and_can_be_raised_and_memory_goes_back_on_demand() {
    let mut paged = paged(PagedOptions { limit: Some(Bytes(8 << 20)), ..PagedOptions::default() });
    let block = paged.allocate(Request::new(7 << 20)).unwrap();
    let error = *paged.allocate(Request::new(3 << 20)).unwrap_err();
    let AllocateError::OutOfMemory(shortage) = &error else { panic!("{error}") };
    assert_eq!(
        (shortage.live, shortage.reserved, shortage.limit),
        (Bytes(7 << 20), Bytes(8 << 20), Some(Bytes(8 << 20)))
    );
    assert!(error.to_string().contains("free at least"), "{error}");
    paged.set_limit(Some(Bytes(12 << 20)));
    let second = paged.allocate(Request::new(3 << 20)).unwrap();
    paged.free(block.handle).unwrap();
    paged.free(second.handle).unwrap();
    assert_eq!(paged.trim(Bytes(4 << 20)).get() + paged.statistics().reserved.get(), 10 << 20);
    paged.trim(Bytes::ZERO);
    assert_eq!(paged.statistics().reserved, Bytes::ZERO);
    paged.verify().unwrap();
}

#[test]
fn pages_of_holes_are_moved_before_the_limit_is_an_error() {
    // Holes of three pages each between live blocks: no hole holds ten, together they do.
    let mut paged = paged(PagedOptions { limit: Some(Bytes(64 << 20)), ..PagedOptions::default() });
    let blocks: Vec<_> = (0..8).map(|_| paged.allocate(Request::new(8 << 20)).unwrap()).collect();
    for block in blocks.iter().step_by(2) {
        paged.free(block.handle).unwrap();
    }
    let large = paged.allocate(Request::new(32 << 20)).unwrap();
    assert!(large.offset.get() >= 64 << 20);
    assert_eq!(paged.statistics().reserved, Bytes(64 << 20));
    assert_eq!(paged.page_counts().pages_unmapped, 16);
    paged.verify().unwrap();
}

/// The most table accesses of a call that neither asks the device nor is refused, while an adversary with `blocks`
/// blocks fills the waiting lists with sizes of every bin, breaks memory into pieces, and asks for what fits none.
fn worst_call(blocks: usize, slack: u32) -> u64 {
    let mut paged = paged(PagedOptions { slack, ..PagedOptions::default() });
    let mut state = 99_u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut live: Vec<Handle> = Vec::new();
    let mut worst = 0;
    for round in 0..12 {
        let phase = round % 4;
        for step in 0..blocks {
            let before = (paged.arena.nodes.accesses.get(), paged.page_counts());
            let refused = if phase < 2 && (live.len() < blocks || phase == 1) {
                // Every size once, then in a crooked order, then what no waiting block has; aligned now and then.
                let bytes = if phase == 0 { (step as u64 % 1500 + 1) * 512 } else { (next(8192) + 1) << next(13) };
                let alignment = if step % 61 == 0 { 1 << (9 + next(14)) } else { 1 };
                let request = Request::new(bytes).aligned(Alignment::new(alignment).unwrap());
                paged.allocate(request).map(|block| live.push(block.handle)).is_err()
            } else if live.is_empty() {
                continue;
            } else {
                // Every second block first, so that nothing merges; then in a crooked order.
                let index = if phase == 2 { step * 2 % live.len() } else { next(live.len() as u64) as usize };
                paged.free(live.swap_remove(index)).is_err()
            };
            let after = (paged.arena.nodes.accesses.get(), paged.page_counts());
            let asked = (before.1.maps, before.1.unmaps) != (after.1.maps, after.1.unmaps);
            if !refused && !asked {
                worst = worst.max(after.0 - before.0);
            }
        }
        paged.verify().unwrap();
    }
    worst
}

#[test]
fn the_work_of_a_call_that_does_not_ask_the_device_has_a_bound_whatever_an_adversary_does() {
    // 2 x 32 waiting blocks merged, at most 28 accesses each, 64 holes looked at, and the path itself.
    const BOUND: u64 = 64 * 28 + 64 * 8 + 200;
    let worst: Vec<u64> = [(2_000, 3), (2_000, 0), (4_000, 3), (8_000, 0)]
        .iter()
        .map(|(blocks, slack)| worst_call(*blocks, *slack))
        .collect();
    assert!(worst.iter().any(|work| *work > BOUND / 4), "the adversary is harmless: {worst:?}");
    assert!(worst.iter().all(|work| *work <= BOUND), "{worst:?} accesses, bound {BOUND}");
}
