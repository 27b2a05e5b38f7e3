//! Memory on the host: contents, tracking, guards, plans, faults, traces.

use super::*;
use crate::{Faults, Faulty, Host};
use npumem_allocator::{AllocateError, PlannedBlock, Step};
use npumem_ir::Trace;
use npumem_ir::trace::Ending;

const HBM: SpaceId = SpaceId(0);
const SRAM: SpaceId = SpaceId(1);

fn host() -> Host {
    Host::with_two_spaces(Bytes(256 << 20), Bytes(1 << 20)).unwrap()
}

fn memory(options: MemoryOptions) -> Memory {
    Memory::new(host(), options).unwrap()
}

/// A file in memory that the test can look into.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_buffer_holds_its_bytes_and_gives_them_back() {
    let memory = memory(MemoryOptions::default());
    let mut buffer = memory.allocate(HBM, Bytes(3 << 20)).unwrap();
    let mut tile = memory.allocate(SRAM, Bytes(4096)).unwrap();
    let pattern: Vec<u8> = (0..4096).map(|index| (index * 13) as u8).collect();
    buffer.write((2 << 20) - 1000, &pattern).unwrap();
    tile.copy_from(0, &buffer, (2 << 20) - 1000, Bytes(4096)).unwrap();
    let mut found = vec![0; 4096];
    tile.read(0, &mut found).unwrap();
    assert_eq!(found, pattern);
    assert!(matches!(buffer.write((3 << 20) - 1, &[0, 0]), Err(MemoryError::OutOfBounds { .. })));
    assert!(matches!(tile.copy_from(4000, &buffer, 0, Bytes(97)), Err(MemoryError::OutOfBounds { .. })));
    assert_eq!(memory.statistics(HBM).unwrap().live, Bytes(3 << 20));
    drop((buffer, tile));
    assert_eq!(memory.statistics(HBM).unwrap().live, Bytes::ZERO);
    assert_eq!(memory.trim(HBM).unwrap(), Bytes(4 << 20));
}

#[test]
fn a_double_free_through_handles_is_an_error() {
    let memory = memory(MemoryOptions::default());
    let handle = memory.allocate(HBM, Bytes(100)).unwrap().into_handle();
    memory.free(HBM, handle).unwrap();
    assert!(matches!(memory.free(HBM, handle), Err(MemoryError::Handle(HandleError::Stale { .. }))));
    assert!(matches!(memory.free(SpaceId(9), handle), Err(MemoryError::NoSpace(9))));
}

#[test]
fn an_out_of_memory_names_the_holders() {
    let memory = memory(MemoryOptions::default());
    let scope = memory.scope("kv cache");
    let _cache = memory.allocate(HBM, Bytes(200 << 20)).unwrap();
    drop(scope);
    let error = memory.allocate(HBM, Bytes(100 << 20)).unwrap_err().to_string();
    for part in ["space `hbm`", "104,857,600 B", "memory/tests.rs", "in kv cache (200.00 MiB in 1 blocks)"] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
    assert!(memory.allocate(HBM, Bytes::ZERO).unwrap_err().to_string().contains("zero bytes"));
}

#[test]
fn leaks_are_grouped_by_who_allocated() {
    let memory = memory(MemoryOptions::default());
    for _ in 0..3 {
        let _ = memory.allocate(HBM, Bytes(1000)).unwrap().into_handle();
    }
    let _kept = memory.allocate(HBM, Bytes(500)).unwrap();
    drop(memory.allocate(HBM, Bytes(9000)).unwrap());
    let leaks = memory.leaks();
    let found: Vec<_> = leaks.iter().map(|leak| (leak.bytes.get(), leak.count, leak.age)).collect();
    assert_eq!(found, [(3000, 3, 5), (500, 1, 2)]);
    assert!(leaks[0].frames[0].file.ends_with("memory/tests.rs"));
}

#[inline(never)]
fn make(memory: &Memory, bytes: u64) -> Buffer {
    memory.allocate(HBM, Bytes(bytes)).unwrap()
}

#[inline(never)]
fn first_owner(memory: &Memory) -> Buffer {
    std::hint::black_box(make(memory, 1000))
}

#[inline(never)]
fn second_owner(memory: &Memory) -> Buffer {
    std::hint::black_box(make(memory, 500))
}

#[test]
fn whole_stacks_tell_owners_apart_that_share_a_caller() {
    for stacks in [false, true] {
        let memory = memory(MemoryOptions { stacks, ..MemoryOptions::default() });
        let _scope = memory.scope("load");
        let kept = (first_owner(&memory), second_owner(&memory), first_owner(&memory));
        let leaks = memory.leaks();
        let found: Vec<_> = leaks.iter().map(|leak| (leak.bytes.get(), leak.count)).collect();
        if !stacks {
            assert_eq!(found, [(2500, 3)]);
            continue;
        }
        assert_eq!(found, [(2000, 2), (500, 1)], "{leaks:?}");
        let names: Vec<&str> = leaks[1].frames.iter().map(|frame| frame.function.as_str()).collect();
        assert!(names[0].ends_with("make") && names[1].ends_with("second_owner"), "{names:?}");
        assert_eq!(names.last(), Some(&"load"));
        assert!(leaks[1].frames[1].file.ends_with("memory/tests.rs") && leaks[1].frames[1].line > 0);
        drop(kept);
        assert!(memory.leaks().is_empty());
    }
}

#[test]
fn a_leaking_loop_is_found_and_named() {
    let memory = memory(MemoryOptions::default());
    let mut cache = Vec::new();
    for step in 0..10 {
        let _activation = memory.allocate(HBM, Bytes(1 << 20)).unwrap();
        let _scope = memory.scope("history");
        cache.push(memory.allocate(HBM, Bytes(4096)).unwrap());
        if step == 5 {
            assert_eq!(memory.growth().len(), 1);
        }
        memory.mark_step("step");
    }
    let growth = memory.growth();
    assert_eq!(growth.len(), 1, "{growth:?}");
    assert_eq!(growth[0].frames[1].function, "history");
    assert!((growth[0].bytes_per_step - 4096.0).abs() < 1e-9);
    assert!(growth[0].steps_to_full > 50_000.0 && growth[0].steps_to_full < 65_536.0, "{growth:?}");
}

#[test]
fn late_frees_are_bytes_times_calls() {
    let memory = memory(MemoryOptions::default());
    let mut early = memory.allocate(HBM, Bytes(1000)).unwrap();
    early.write(0, &[1]).unwrap();
    drop(early);
    assert!(memory.late_frees().is_empty());
    let mut late = memory.allocate(HBM, Bytes(1000)).unwrap();
    late.write(0, &[1]).unwrap();
    for _ in 0..5 {
        drop(memory.allocate(HBM, Bytes(10)).unwrap());
    }
    drop(late);
    let found = memory.late_frees();
    assert_eq!((found[0].byte_events, found[0].count), (10_000, 1));
}

#[test]
fn guard_bytes_find_a_write_past_the_end_once() {
    let memory = memory(MemoryOptions { guard: Bytes(64), ..MemoryOptions::default() });
    let mut buffer = memory.allocate(HBM, Bytes(1000)).unwrap();
    buffer.write(0, &[7; 1000]).unwrap();
    assert!(memory.damage().is_empty());
    // A kernel that writes past the end, as nothing in safe Rust could.
    {
        let state = lock(&memory.state);
        let place = Place { region: state.spaces[0].region, offset: buffer.offset().get() + 1005 };
        lock(&state.backend).write(place, &[9]).unwrap();
    }
    assert_eq!(memory.damage().len(), 1);
    drop(buffer);
    let damage = memory.damage();
    assert_eq!(damage.len(), 1);
    assert_eq!((damage[0].bytes, damage[0].past_end), (Bytes(1000), 5));
}

#[test]
fn fill_patterns_show_fresh_and_freed_bytes() {
    let memory = memory(MemoryOptions { fill: Some((0xa5, 0xdd)), ..MemoryOptions::default() });
    let buffer = memory.allocate(SRAM, Bytes(32)).unwrap();
    let mut byte = [0];
    buffer.read(31, &mut byte).unwrap();
    assert_eq!(byte, [0xa5]);
    let offset = buffer.offset().get();
    drop(buffer);
    let state = lock(&memory.state);
    lock(&state.backend).read(Place { region: state.spaces[1].region, offset }, &mut byte).unwrap();
    assert_eq!(byte, [0xdd]);
}

#[test]
fn a_backend_whose_pages_are_too_coarse_is_refused() {
    let space = crate::SpaceInfo { name: "hbm".to_owned(), capacity: Bytes(1 << 30), page: Bytes(16 << 20) };
    let refused = Memory::new(Host::new(vec![space]).unwrap(), MemoryOptions::default()).err().unwrap();
    assert!(refused.to_string().contains("16.00 MiB"), "{refused}");
}

#[test]
fn planned_buffers_come_from_the_plan() {
    let blocks = vec![
        PlannedBlock { offset: Offset(0), bytes: Bytes(3 << 20) },
        PlannedBlock { offset: Offset(3 << 20), bytes: Bytes(1 << 20) },
    ];
    let steps = vec![Step::Allocate(0), Step::Allocate(1), Step::Free(1), Step::Free(0)];
    let script = Script::new(blocks, steps, Bytes(4 << 20)).unwrap();
    let memory = memory(MemoryOptions { plans: BTreeMap::from([(HBM, script)]), ..MemoryOptions::default() });
    for _ in 0..3 {
        memory.mark_step("step");
        let mut first = memory.allocate(HBM, Bytes(3 << 20)).unwrap();
        let second = memory.allocate(HBM, Bytes(1 << 20)).unwrap();
        assert_eq!([first.offset(), second.offset()], [Offset(0), Offset(3 << 20)]);
        first.write(0, b"planned").unwrap();
        // What the plan does not have lies behind it, and is real memory too.
        let mut other = memory.allocate(HBM, Bytes(777)).unwrap();
        assert!(other.offset().get() >= 4 << 20);
        other.write(0, &[1; 777]).unwrap();
    }
}

#[test]
fn a_device_that_fails_at_any_call_leaves_a_sound_memory() {
    for call in 1..40 {
        let faulty = Faulty::new(host(), Faults { fail_at: Some(call), ..Faults::default() });
        let options = MemoryOptions { guard: Bytes(16), fill: Some((1, 2)), ..MemoryOptions::default() };
        let Ok(memory) = Memory::new(faulty, options) else { continue };
        let mut failures = 0;
        let mut kept = Vec::new();
        for index in 0..8_u64 {
            let (space, bytes) = if index.is_multiple_of(2) { (HBM, 5 << 20) } else { (SRAM, 100) };
            match memory.allocate(space, Bytes(bytes)) {
                Ok(buffer) => kept.push(buffer),
                Err(_) => failures += 1,
            }
        }
        assert!(failures <= 1, "call {call}");
        let live: u64 = [HBM, SRAM].iter().map(|space| memory.statistics(*space).unwrap().blocks).sum();
        assert_eq!(live, kept.len() as u64, "call {call}");
        assert_eq!(memory.leaks().iter().map(|leak| leak.count).sum::<u64>(), live);
        for buffer in kept {
            let (space, handle) = (buffer.space(), buffer.into_handle());
            // The fill of a freed block can be the call that fails: then the block is still there.
            if memory.free(space, handle).is_err() {
                memory.free(space, handle).unwrap();
            }
        }
        assert!(memory.leaks().is_empty(), "call {call}");
    }
}

#[test]
fn bad_requests_and_handles_are_typed_errors_that_change_nothing() {
    let memory = memory(MemoryOptions::default());
    let kept = memory.allocate(HBM, Bytes(5000)).unwrap();
    let gone = memory.allocate(HBM, Bytes(700)).unwrap().into_handle();
    memory.free(HBM, gone).unwrap();
    let before = memory.statistics(HBM).unwrap();
    let refused = |space, bytes, alignment| {
        memory.allocate_aligned(space, Bytes(bytes), Alignment::new(alignment).unwrap()).err().unwrap()
    };
    let cause = |bytes, alignment| match refused(HBM, bytes, alignment) {
        MemoryError::Allocate { error, .. } => *error,
        other => panic!("{other}"),
    };
    assert_eq!(cause(0, 1), AllocateError::ZeroSize);
    assert!(matches!(cause(1, 3), AllocateError::BadAlignment { .. }));
    assert!(matches!(cause(u64::MAX, 1), AllocateError::TooLarge { .. }));
    let AllocateError::OutOfMemory(shortage) = cause(1 << 38, 1) else { panic!() };
    assert_eq!((shortage.requested, shortage.live), (Bytes(1 << 38), Bytes(5000)));
    assert!(matches!(refused(SpaceId(9), 1, 1), MemoryError::NoSpace(9)));
    assert!(matches!(memory.statistics(SpaceId(9)), Err(MemoryError::NoSpace(9))));
    let made_up = Handle { index: u32::MAX - 1, ..gone };
    assert!(matches!(memory.free(HBM, gone), Err(MemoryError::Handle(HandleError::Stale { .. }))));
    assert!(matches!(memory.free(HBM, made_up), Err(MemoryError::Handle(HandleError::Foreign { .. }))));
    assert!(matches!(memory.free(SpaceId(9), gone), Err(MemoryError::NoSpace(9))));
    let after = memory.statistics(HBM).unwrap();
    assert_eq!((after.live, after.blocks, after.frees), (before.live, before.blocks, before.frees));
    assert_eq!((after.allocations, memory.leaks().len()), (before.allocations, 1));
    drop(kept);
    assert!(memory.leaks().is_empty());
}

#[test]
fn every_call_is_in_the_trace_with_its_stack() {
    let memory = memory(MemoryOptions::default());
    let output = Output::default();
    memory.record_to(Box::new(output.clone())).unwrap();
    let scope = memory.scope("layer 3");
    let mut buffer = memory.allocate(HBM, Bytes(1000)).unwrap();
    drop(scope);
    buffer.write(0, &[1]).unwrap();
    memory.mark_step("step");
    drop(buffer);
    memory.flush_trace().unwrap();
    let bytes = lock(&output.0).clone();
    let (trace, ending) = Trace::read(&bytes[..]).unwrap();
    assert_eq!(ending, Ending::Whole);
    assert_eq!(trace.header.spaces, ["hbm", "sram"]);
    let kinds: Vec<&str> = trace
        .events
        .iter()
        .map(|event| match event.what {
            What::Allocate { requested: Bytes(1000), .. } => "allocate",
            What::Use { write: true, .. } => "write",
            What::Mark { .. } => "mark",
            What::Free { .. } => "free",
            _ => "other",
        })
        .collect();
    assert_eq!(kinds, ["allocate", "write", "mark", "free"]);
    let stack = trace.events[0].stack.unwrap();
    assert_eq!(trace.stacks[stack.0 as usize][1].function, "layer 3");
}
