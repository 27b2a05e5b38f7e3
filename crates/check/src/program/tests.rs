//! The program checker on programs written by hand: what is sound, what is not, what cannot be told.

use super::*;
use npumem_ir::program::{Access, Affine, Buffer, InPlace, Op, Operation, ProgramBuilder, Root};
use npumem_ir::{BufferId, ElementType, StepId};

fn at(b: &mut ProgramBuilder, name: &str, bytes: u64, address: i64) -> BufferId {
    b.buffer(Buffer { address: Some(address.into()), ..Buffer::tile(name, "ub", bytes) })
}

fn verdict(b: ProgramBuilder) -> (Program, ProgramVerdict) {
    let program = b.finish().unwrap();
    let verdict = check_program(&program, None, &Options::default()).unwrap();
    (program, verdict)
}

fn overwritten(verdict: &ProgramVerdict) -> (BufferId, BufferId, u64, &At, &At) {
    match &verdict.findings[0].kind {
        Kind::Overwritten { reader, other, bytes, overwritten, read, .. } => {
            (*reader, *other, bytes.size().0, overwritten, read)
        }
        other => panic!("{other:?}"),
    }
}

/// The JSON of a case, when the shared data is there.
fn case(name: &str) -> Option<serde_json::Value> {
    let path = npumem_testing::shared(&format!("data/cases/{name}"))?;
    Some(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
}

/// A case's program with its plan: `if`, `else` and loop markers, reads and writes by name.
fn program_of(case: &serde_json::Value) -> ProgramBuilder {
    let mut b = ProgramBuilder::new("case");
    let mut ids = std::collections::BTreeMap::new();
    for entry in case["plan"].as_array().unwrap() {
        let name = entry["id"].as_str().unwrap();
        let id = at(&mut b, name, entry["size"].as_u64().unwrap(), entry["addr"].as_i64().unwrap());
        ids.insert(name.to_owned(), id);
    }
    let condition = b.argument("condition", None);
    for step in case["program"].as_array().unwrap() {
        let list = |key: &str| -> Vec<BufferId> {
            step[key].as_array().into_iter().flatten().map(|name| ids[name.as_str().unwrap()]).collect()
        };
        match step["op"].as_str().unwrap() {
            "if.begin" => {
                b.begin_if(condition);
            }
            "else" => {
                b.otherwise();
            }
            "if.end" | "loop.end" => {
                b.end();
            }
            "loop.begin" => {
                b.begin_for("turn", 0, step["trip"].as_i64().unwrap(), 1);
            }
            name => {
                b.simple(name, "v", &list("reads"), &list("writes"));
            }
        }
    }
    b
}

#[test]
fn case_04_a_value_of_both_branches_is_live_after_them() {
    let Some(case) = case("04-phi-live-range.json") else { return };
    let (program, verdict) = verdict(program_of(&case));
    assert_eq!(verdict.standing, Standing::Unsound);
    let (reader, other, bytes, overwritten, read) = overwritten(&verdict);
    assert_eq!((program.buffer(reader).name.as_str(), program.buffer(other).name.as_str()), ("mi_phi", "beta2"));
    assert_eq!(bytes, case["expected"]["overlap_bytes"].as_u64().unwrap());
    assert_eq!(u64::from(overwritten.step.0), case["expected"]["first_bad_statement"].as_u64().unwrap());
    assert_eq!(read.step, StepId(8));
    assert_eq!(verdict.of(Severity::Fault).count(), 1);
    let message = verdict.findings[0].message(&program);
    assert!(message.starts_with("statement 8 'use' reads bytes [98496, 98752) (256 B) of 'mi_phi' in ub that 'beta2' has overwritten at statement 6"), "{message}");
}

#[test]
fn case_05_a_value_read_in_every_turn_is_live_around_the_loop() {
    let Some(case) = case("05-loop-backedge-live-range.json") else { return };
    let (program, verdict) = verdict(program_of(&case));
    assert_eq!(verdict.standing, Standing::Unsound);
    let (reader, other, bytes, overwritten, read) = overwritten(&verdict);
    assert_eq!((program.buffer(reader).name.as_str(), program.buffer(other).name.as_str()), ("index", "merged"));
    assert_eq!(bytes, 16_384);
    assert_eq!(overwritten.turns[0].1, Some(0));
    assert_eq!(read.turns[0].1, case["expected"]["first_iteration_wrong"].as_i64());
    assert_eq!(read.step, StepId(2));
}

#[test]
fn case_07_an_accumulator_updated_in_place_is_one_buffer() {
    // The update is a name for the seed's bytes: one storage of 131,072 bytes.
    let mut b = ProgramBuilder::new("accumulator");
    let seed = at(&mut b, "acc_seed", 131_072, 0);
    let update = b.buffer(Buffer {
        alias: Some(npumem_ir::program::Alias { of: seed, delta: 0 }),
        address: Some(0.into()),
        ..Buffer::tile("acc_update", "ub", 131_072)
    });
    b.simple("seed", "m", &[], &[seed]);
    b.simple("accumulate", "m", &[seed], &[update]);
    b.simple("store", "fix", &[update], &[]);
    let (mut program, good) = verdict(b);
    assert_eq!(good.standing, Standing::Sound, "{:?}", good.findings);
    program.buffers[1].address = Some(512.into());
    let moved = check_program(&program, None, &Options::default()).unwrap();
    assert_eq!(moved.standing, Standing::Unsound);
    assert_eq!(moved.findings[0].kind.word(), "alias-moved");
}

fn rotating(step: i64, by_iteration: bool) -> ProgramVerdict {
    let mut b = ProgramBuilder::new("rotation");
    let tile = b.buffer(Buffer { slots: 2, address: Some(0.into()), ..Buffer::tile("tile", "ub", 64) });
    let i = b.begin_for("i", 0, 8, step);
    let slot = if by_iteration { b.value(Op::Div, vec![i.into(), step.into()]) } else { i.into() };
    let access = Access::whole(Root::Buffer(tile), ElementType::U8).in_slot(slot);
    b.run(Operation { writes: vec![access.clone()], ..Operation::new("load", "mte2") });
    b.run(Operation { reads: vec![access], ..Operation::new("compute", "v") });
    b.end();
    verdict(b).1
}

#[test]
fn case_08_a_step_of_two_over_two_slots_never_leaves_slot_0() {
    let raw = rotating(2, false);
    assert_eq!(raw.standing, Standing::Sound, "it is slow, not wrong");
    assert_eq!(raw.findings[0].kind, Kind::UnusedSlots { buffer: BufferId(0), used: vec![0], slots: 2 });
    assert!(rotating(2, true).findings.is_empty());
    assert!(rotating(1, false).findings.is_empty());
}

#[test]
fn case_13_blocks_of_32_bytes() {
    let Some(case) = case("13-dma-32-byte-rules.json") else { return };
    let unit = case["unit"].as_u64().unwrap();
    for (offset, expected) in
        case["offsets"].as_array().unwrap().iter().zip(case["expected"]["offsets"].as_array().unwrap())
    {
        let byte = offset["element_bytes"].as_u64().unwrap() * offset["element_offset"].as_u64().unwrap();
        assert_eq!(Some(byte), expected["byte"].as_u64());
        let fine = rectangle(byte, 1, 64, 64, unit) != Rectangle::Misaligned;
        assert_eq!(Some(fine), expected["ok"].as_bool(), "{byte}");
    }
    for (rows, expected) in case["rows"].as_array().unwrap().iter().zip(case["expected"]["rows"].as_array().unwrap()) {
        let (pitch, count) = (rows["pitch"].as_u64().unwrap(), rows["rows"].as_u64().unwrap());
        let row = if rows["contiguous"].as_bool().unwrap() { pitch } else { pitch - 1 };
        let told = match rectangle(0, count, row, pitch, unit) {
            Rectangle::OneBlock(bytes) => format!("one block of {bytes} B"),
            Rectangle::Rows => "ok".to_owned(),
            Rectangle::Refused => "reject".to_owned(),
            Rectangle::Misaligned => "misaligned".to_owned(),
        };
        assert_eq!(Some(told.as_str()), expected.as_str(), "{rows}");
    }
}

#[test]
fn case_15_two_ends_of_one_space() {
    let Some(path) = npumem_testing::shared("data/cases/15-two-ended-clash.csv") else { return };
    let mut seen = 0;
    for line in std::fs::read_to_string(path).unwrap().lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let (low, region, over) =
            (fields[2].parse::<u64>(), fields[3].parse::<u64>().unwrap(), fields[6].parse::<u64>().unwrap());
        let Ok(low) = low else { continue };
        // The region is filled from 0 up; the buffer lies above it and is read after.
        let mut b = ProgramBuilder::new(fields[0]);
        let buffer = at(&mut b, "buffer", 2_000_000, low as i64);
        let circular = at(&mut b, "region", region, 0);
        b.simple("write", "v", &[], &[buffer]);
        b.simple("fill", "v", &[], &[circular]);
        b.simple("read", "v", &[buffer], &[]);
        let (_, found) = verdict(b);
        assert_eq!(found.standing, Standing::Unsound, "{line}");
        assert_eq!(overwritten(&found).2, over, "{line}");
        seen += 1;
    }
    assert_eq!(seen, 10);
}

#[test]
fn a_handle_at_another_s_address_is_undecided_without_a_declared_alias() {
    let build = || {
        let mut b = ProgramBuilder::new("handles");
        let first = at(&mut b, "row", 64, 0);
        let second = at(&mut b, "column", 64, 0);
        let third = at(&mut b, "other", 64, 64);
        b.simple("write", "v", &[], &[first]);
        b.simple("read", "v", &[second], &[third]);
        b.simple("write", "v", &[], &[second]);
        b.simple("read", "v", &[first], &[]);
        b.finish().unwrap()
    };
    let alone = check_program(&build(), None, &Options::default()).unwrap();
    assert_eq!(alone.standing, Standing::Undecided, "{:?}", alone.findings);
    assert_eq!(alone.findings[0].kind.word(), "foreign-bytes");
    let with_plan = check_program(&build(), None, &Options { plan_is_separate: true, ..Options::default() }).unwrap();
    assert_eq!(with_plan.standing, Standing::Unsound, "a plan beside the program says that they are two buffers");
}

#[test]
fn one_condition_tested_twice_is_one_value() {
    let mut b = ProgramBuilder::new("twice");
    let (x, y) = (at(&mut b, "x", 64, 0), at(&mut b, "y", 64, 32));
    let c = b.argument("c", None);
    for name in ["write", "read"] {
        b.begin_if(c);
        if name == "write" {
            b.simple(name, "v", &[], &[x])
        } else {
            b.simple(name, "v", &[x], &[])
        };
        b.otherwise();
        if name == "write" {
            b.simple(name, "v", &[], &[y])
        } else {
            b.simple(name, "v", &[y], &[])
        };
        b.end();
    }
    let (_, found) = verdict(b);
    assert_eq!(found.standing, Standing::Sound, "{:?}", found.findings);
}

#[test]
fn in_place_rules() {
    let run = |in_place: InPlace, address: i64| {
        let mut b = ProgramBuilder::new("in place");
        let (x, y) = (at(&mut b, "x", 64, 64), at(&mut b, "y", 64, address));
        b.simple("load", "mte2", &[], &[x]);
        let access = |id| Access::whole(Root::Buffer(id), ElementType::F32);
        b.run(Operation { reads: vec![access(x)], writes: vec![access(y)], in_place, ..Operation::new("op", "v") });
        b.simple("store", "mte3", &[y], &[]);
        verdict(b).1.standing
    };
    assert_eq!(run(InPlace::Elementwise, 64), Standing::Sound);
    assert_eq!(run(InPlace::Elementwise, 96), Standing::Unsound);
    assert_eq!(run(InPlace::Never, 32), Standing::Unsound);
    assert_eq!(run(InPlace::Never, 64), Standing::Undecided);
    assert_eq!(run(InPlace::Always, 96), Standing::Sound);
    assert_eq!(run(InPlace::Never, 128), Standing::Sound);
}

/// Loops of any length cost a few turns; ten thousand statements are quick.
#[test]
fn long_loops_and_long_programs_are_quick() {
    let mut b = ProgramBuilder::new("long");
    let (x, y) = (at(&mut b, "x", 64, 0), at(&mut b, "y", 64, 64));
    let n = b.argument("n", None);
    for _ in 0..3 {
        b.begin_for("i", 0, 1_000_000_000, 1);
    }
    let j = b.begin_for("j", 0, n, 1);
    let first = b.value(Op::Eq, vec![j.into(), 12_345.into()]);
    b.begin_if(first);
    b.simple("write", "v", &[], &[x]);
    b.end();
    b.simple("add", "v", &[x], &[y]);
    for _ in 0..5 {
        b.end();
    }
    b.program_mut().steps.pop();
    let (_, found) = verdict(b);
    assert_eq!(found.standing, Standing::Sound);
    assert_eq!(found.findings[0].kind.word(), "never-written");
    assert!(found.work < 5_000, "{} statements were run", found.work);

    let mut b = ProgramBuilder::new("many");
    let mut last = None;
    for index in 0..10_000 {
        let tile = at(&mut b, &format!("t{index}"), 1024, (index % 24) * 1024);
        b.simple("op", "v", &last.into_iter().collect::<Vec<_>>(), &[tile]);
        last = Some(tile);
    }
    let program = b.finish().unwrap();
    let found = check_program(&program, None, &Options { plan_is_separate: true, ..Options::default() }).unwrap();
    assert_eq!(found.standing, Standing::Sound);
    assert_eq!(found.work, 10_000);
}

#[test]
fn slots_past_their_buffer_and_partial_overwrites() {
    let mut b = ProgramBuilder::new("partial");
    let x = at(&mut b, "x", 64, 0);
    let part = |start: i64, bytes| Access::bytes(Root::Buffer(x), Affine::constant(start), bytes);
    b.simple("fill", "v", &[], &[x]);
    b.run(Operation { writes: vec![part(32, 16)], ..Operation::new("patch", "v") });
    b.simple("read", "v", &[x], &[]);
    b.run(Operation { writes: vec![part(48, 32)], ..Operation::new("past", "v") });
    let (_, found) = verdict(b);
    let words: Vec<&str> = found.findings.iter().map(|finding| finding.kind.word()).collect();
    assert_eq!(words, ["past-buffer", "torn-read"]);
}

fn flags(with_wait: bool, wait_event: i64) -> ProgramVerdict {
    use npumem_ir::program::Sync;
    let mut b = ProgramBuilder::new("flags");
    let x = at(&mut b, "x", 64, 0);
    b.simple("load", "mte2", &[], &[x]);
    b.sync(Sync::SetFlag { from: "mte2".into(), to: "v".into(), event: 0.into() });
    if with_wait {
        b.sync(Sync::WaitFlag { from: "mte2".into(), to: "v".into(), event: wait_event.into() });
    }
    b.simple("use", "v", &[x], &[]);
    verdict(b).1
}

#[test]
fn races_and_deadlocks() {
    assert_eq!(flags(true, 0).standing, Standing::Sound);
    let race = flags(false, 0);
    assert_eq!(race.standing, Standing::Unsound);
    assert_eq!(race.findings[0].kind.word(), "race");
    let stuck = flags(true, 1);
    assert_eq!(stuck.standing, Standing::Unsound);
    assert_eq!(stuck.findings[0].kind.word(), "deadlock");
}

/// Two slots, flags for both directions: right. Without the flag back, the next load overtakes the use.
#[test]
fn double_buffering_needs_both_flags() {
    use npumem_ir::program::Sync;
    let build = |back: bool| {
        let mut b = ProgramBuilder::new("pipeline");
        let tile = b.buffer(Buffer { slots: 2, address: Some(0.into()), ..Buffer::tile("tile", "ub", 64) });
        let flag = |b: &mut ProgramBuilder, set: bool, from: &str, to: &str, event: Affine| {
            let (from, to) = (from.to_owned(), to.to_owned());
            b.sync(if set { Sync::SetFlag { from, to, event } } else { Sync::WaitFlag { from, to, event } });
        };
        if back {
            flag(&mut b, true, "v", "mte2", 0.into());
            flag(&mut b, true, "v", "mte2", 1.into());
        }
        let i = b.begin_for("i", 0, 100, 1);
        let slot = b.value(Op::Rem, vec![i.into(), 2.into()]);
        let access = Access::whole(Root::Buffer(tile), ElementType::U8).in_slot(i.into());
        if back {
            flag(&mut b, false, "v", "mte2", slot.clone());
        }
        b.run(Operation { writes: vec![access.clone()], ..Operation::new("load", "mte2") });
        flag(&mut b, true, "mte2", "v", slot.clone());
        flag(&mut b, false, "mte2", "v", slot.clone());
        b.run(Operation { reads: vec![access], ..Operation::new("use", "v") });
        if back {
            flag(&mut b, true, "v", "mte2", slot);
        }
        b.end();
        verdict(b).1
    };
    assert_eq!(build(true).standing, Standing::Sound, "{:?}", build(true).findings);
    let without = build(false);
    assert_eq!(without.standing, Standing::Unsound);
    let Kind::Race { first, second, .. } = &without.findings[0].kind else { panic!("{:?}", without.findings) };
    assert_eq!((first.turns[0].1, second.turns[0].1), (Some(0), Some(2)), "slot 0 is loaded again in turn 2");
}

/// An accumulator that a planned file carries as two handles is undecided; a temporary there is unsound.
#[test]
fn an_update_through_a_second_handle_is_undecided() {
    let build = |temporary_is_read: bool| {
        let mut b = ProgramBuilder::new("update");
        let (sum, next, x) = (at(&mut b, "sum", 64, 0), at(&mut b, "sum_next", 64, 0), at(&mut b, "x", 64, 64));
        b.simple("zero", "v", &[], &[sum]);
        b.begin_for("i", 0, 4, 1);
        b.simple("add", "v", &[sum], &[x]);
        b.simple("move", "v", &[x], &[next]);
        if temporary_is_read {
            b.simple("use", "v", &[next], &[]);
        }
        b.end();
        b.simple("store", "v", &[sum], &[]);
        verdict(b).1.standing
    };
    assert_eq!(build(false), Standing::Undecided);
    assert_eq!(build(true), Standing::Unsound);
}

/// Loops in loops, each with a bound of its own that nobody knows, a branch for all turns but the last, with and without
/// flags: the work grows with the depth, not with a power of it.
#[test]
fn nests_of_unknown_bounds_take_a_few_turns() {
    use npumem_ir::program::Sync;
    let nest = |depth: usize, flags: bool| {
        let mut b = ProgramBuilder::new("nest");
        let (x, y) = (at(&mut b, "x", 64, 0), at(&mut b, "y", 64, 64));
        b.simple("fill", "v", &[], &[y]);
        let flag = |b: &mut ProgramBuilder| {
            let (from, to) = ("mte2".to_owned(), "v".to_owned());
            b.sync(Sync::SetFlag { from: from.clone(), to: to.clone(), event: 0.into() });
            b.sync(Sync::WaitFlag { from, to, event: 0.into() });
        };
        for level in 0..depth {
            let n = b.argument(format!("n{level}"), None);
            let i = b.begin_for(format!("i{level}"), 0, n, 1);
            if flags {
                b.sync(Sync::Barrier(None));
            }
            b.simple("load", "mte2", &[], &[x]);
            if flags {
                flag(&mut b);
            }
            let more = b.value(Op::Lt, vec![Affine::scalar(i).plus(&1.into()), n.into()]);
            b.begin_if(more);
            b.simple("add", "v", &[x], &[y]);
            b.end();
        }
        for _ in 0..depth {
            b.simple("use", "v", &[y], &[]);
            b.end();
        }
        let (_, found) = verdict(b);
        assert_eq!(found.standing, Standing::Sound, "{depth}: {:?}", found.findings);
        found.work
    };
    for (depth, flags) in (2..=8).map(|depth| (depth, false)).chain((2..=5).map(|depth| (depth, true))) {
        let work = nest(depth, flags);
        assert!(work < 400 * depth as u64, "{depth} loops took {work} statements");
    }
}

/// Of a thousand inputs that are asked for twice each, a bounded number is told apart at once.
#[test]
fn a_thousand_inputs_take_a_few_paths() {
    let mut b = ProgramBuilder::new("inputs");
    let x = at(&mut b, "x", 64, 0);
    b.simple("fill", "v", &[], &[x]);
    let inputs: Vec<_> = (0..1000).map(|n| b.argument(format!("n{n}"), None)).collect();
    for _ in 0..2 {
        for input in &inputs {
            let truth = b.value(Op::Lt, vec![0.into(), (*input).into()]);
            b.begin_if(truth);
            b.simple("add", "v", &[x], &[x]);
            b.end();
        }
    }
    let (_, found) = verdict(b);
    assert_eq!(found.standing, Standing::Sound, "{:?}", found.findings);
    assert!(found.work < 40_000, "{} statements were run", found.work);
}
