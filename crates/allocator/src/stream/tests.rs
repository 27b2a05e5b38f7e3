//! Reuse across streams, and the checker against what the allocator hands out.

use super::*;
use crate::tlsf::Tlsf;
use npumem_ir::trace::BlockId;

fn ordered() -> StreamOrdered<Tlsf> {
    StreamOrdered::new(Tlsf::new(Bytes(512), Bytes(1 << 20)))
}

#[test]
fn the_same_stream_reuses_at_once_and_another_after_it_has_passed() {
    let mut memory = ordered();
    let first = memory.allocate_on(Request::new(4096), 1).unwrap();
    let submitted = memory.submit(1);
    memory.free(first.handle).unwrap();
    assert!(memory.free(first.handle).is_err());
    let other = memory.allocate_on(Request::new(4096), 2).unwrap();
    assert_ne!(other.offset, first.offset);
    let same = memory.allocate_on(Request::new(4096), 1).unwrap();
    assert_eq!((same.offset, memory.reused()), (first.offset, 1));
    memory.free(same.handle).unwrap();
    assert_eq!(memory.promote(), 0);
    memory.complete(1, submitted);
    assert_eq!(memory.promote(), 1);
    assert_eq!(memory.inner().statistics().blocks, 1);
}

#[test]
fn a_recorded_use_of_another_stream_holds_the_block_even_from_its_own() {
    let mut memory = ordered();
    let block = memory.allocate_on(Request::new(4096), 1).unwrap();
    memory.record_use(block.handle, 2).unwrap();
    let copy = memory.submit(2);
    memory.free(block.handle).unwrap();
    let next = memory.allocate_on(Request::new(4096), 1).unwrap();
    assert_ne!(next.offset, block.offset);
    memory.complete(2, copy);
    assert_eq!(memory.allocate_on(Request::new(4096), 1).unwrap().offset, block.offset);
}

#[test]
fn before_it_fails_it_takes_back_what_has_passed() {
    let mut memory = ordered();
    let whole = memory.allocate_on(Request::new(1 << 20), 1).unwrap();
    let work = memory.submit(1);
    memory.free(whole.handle).unwrap();
    assert!(memory.allocate_on(Request::new(4096), 2).is_err());
    memory.complete(1, work);
    assert!(memory.allocate_on(Request::new(4096), 2).is_ok());
}

#[test]
fn the_checker_finds_exactly_the_reuse_that_nothing_orders() {
    let block = BlockId;
    let mut checker = OrderChecker::default();
    assert!(checker.allocate(block(1), 0, 100, 1).is_empty());
    checker.use_block(block(1), 2);
    checker.free(block(1));
    // The own stream is ordered with itself, but not with stream 2.
    let found = checker.clone().allocate(block(2), 50, 100, 1);
    assert_eq!(found, [Unordered { old: block(1), user: 2, new: block(2), stream: 1, start: 50, end: 100 }]);
    assert!(found[0].to_string().contains("record an event on stream 2"));
    let event = checker.record(2);
    checker.wait(1, event);
    assert!(checker.allocate(block(2), 50, 100, 1).is_empty());
    // The part that was left, on a stream that knows of nobody.
    assert_eq!(checker.allocate(block(3), 0, 50, 3).len(), 2);
    // An event recorded too early orders nothing that came later.
    let mut checker = OrderChecker::default();
    let early = checker.record(1);
    checker.allocate(block(1), 0, 10, 1);
    checker.free(block(1));
    checker.wait(2, early);
    assert_eq!(checker.allocate(block(2), 0, 10, 2).len(), 1);
}

#[test]
fn what_the_allocator_hands_out_is_always_ordered() {
    const HOST: Stream = 99;
    let bytes = crate::conformance::random_bytes(7, 60_000);
    let mut memory = ordered();
    let mut checker = OrderChecker::default();
    let mut live: Vec<(Handle, BlockId)> = Vec::new();
    let mut events: Vec<(Stream, u64, u64)> = Vec::new();
    let mut next = 0;
    for part in bytes.chunks_exact(3) {
        let stream = Stream::from(part[1] % 3);
        match part[0] % 8 {
            0..=2 => {
                if let Ok(block) = memory.allocate_on(Request::new(512 << (part[2] % 5)), stream) {
                    next += 1;
                    // What the host saw end is ordered before what it submits from now on.
                    let seen = checker.record(HOST);
                    checker.wait(stream, seen);
                    let found = checker.allocate(BlockId(next), block.offset.get(), 512 << (part[2] % 5), stream);
                    assert!(found.is_empty(), "{}", found[0]);
                    live.push((block.handle, BlockId(next)));
                }
            }
            3 if !live.is_empty() => {
                let (handle, block) = live[part[2] as usize % live.len()];
                memory.record_use(handle, stream).unwrap();
                checker.use_block(block, stream);
                let count = memory.submit(stream);
                events.push((stream, count, checker.record(stream)));
            }
            4 | 5 if !live.is_empty() => {
                let (handle, block) = live.swap_remove(part[2] as usize % live.len());
                // The work that used the block was submitted before the free.
                let owner = memory.entries[handle.index as usize].stream;
                let count = memory.submit(owner);
                events.push((owner, count, checker.record(owner)));
                memory.free(handle).unwrap();
                checker.free(block);
            }
            6 => {
                let done = memory.streams.get(&stream).map_or(0, |progress| progress.completed) + 1;
                memory.complete(stream, done);
                events.retain(|(from, count, event)| {
                    let ended = passed(&memory.streams, *from, *count);
                    if ended {
                        checker.wait(HOST, *event);
                    }
                    !ended
                });
            }
            7 => {
                memory.promote();
                memory.inner().verify().unwrap();
            }
            _ => {}
        }
    }
    assert!(next > 500 && memory.reused() > 20, "{next} allocations, {} reused", memory.reused());
}
