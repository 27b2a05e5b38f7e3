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
