//! The executor on small tasks: what is right, what is shared by mistake, what a device loses.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::{Faulty, Host};

const KIB: u64 = 1024;

fn host() -> Host {
    Host::with_two_spaces(Bytes(64 << 20), Bytes(1 << 20)).unwrap()
}

fn value(name: &str, bytes: u64) -> TaskValue {
    TaskValue { name: name.to_owned(), bytes }
}

fn at(value: usize, offset: u64) -> Part {
    Part { value, delta: 0, space: 0, offset }
}

fn operation(name: &str, work: Work) -> Operation {
    Operation { name: name.to_owned(), work }
}

fn floats(place: Part, count: u64) -> Operand<Part> {
    Operand { place, count, element: Element::F32 }
}

/// `a` is loaded, `b` made from it, `c` from both; `where_c` says where `c` lies.
fn three(where_c: u64) -> Task {
    let load = Work::Load { to: at(0, 0), bytes: 4 * KIB, element: Element::F32, seed: 5 };
    let mix =
        |from, to, accumulate| Work::Kernel(Kernel::Mix { from: floats(from, KIB), to: floats(to, KIB), accumulate });
    let c = at(2, where_c);
    Task {
        spaces: vec![Bytes(16 * KIB)],
        values: vec![value("a", 4 * KIB), value("b", 4 * KIB), value("c", 4 * KIB)],
        operations: vec![
            operation("load a", load),
            operation("make b", mix(at(0, 0), at(1, 4 * KIB), false)),
            operation("make c", mix(at(0, 0), c, false)),
            operation("finish c", mix(at(1, 4 * KIB), c, true)),
        ],
        observed: vec![(c, 4 * KIB)],
    }
}

#[test]
fn a_sound_task_comes_to_the_reference() {
    let outcome = execute(&mut host(), &three(8 * KIB)).unwrap();
    assert!(!outcome.differs && outcome.mismatch.is_none());
    assert_eq!((outcome.copies, outcome.kernels, outcome.compared), ((1, 4 * KIB), 3, 4 * KIB));
    assert!(outcome.overlapped.wall_ns > 0 && outcome.serial.wall_ns > 0);
    assert_eq!(outcome.serial.both_ns, 0);
}

#[test]
fn bytes_that_are_shared_by_mistake_are_found_and_their_writer_is_named() {
    // The first float of `c` lies over the last of `b`, which is read once more into `d`.
    let mut task = three(8 * KIB - 4);
    task.values.push(value("d", 4 * KIB));
    let d = at(3, 12 * KIB);
    let read_b = Kernel::Mix { from: floats(at(1, 4 * KIB), KIB), to: floats(d, KIB), accumulate: false };
    task.operations[3] = operation("read b", Work::Kernel(read_b));
    task.observed = vec![(d, 4 * KIB)];
    let outcome = execute(&mut host(), &task).unwrap();
    let mismatch = outcome.mismatch.unwrap();
    assert_eq!((mismatch.name.as_str(), mismatch.value.as_str(), mismatch.reads), ("read b", "b", true));
    assert!(outcome.differs && (4 * KIB - 4..4 * KIB).contains(&mismatch.byte), "{mismatch:?}");
    assert_eq!(mismatch.writer.as_deref(), Some("make c"));
    // A kernel whose result lies over its own operand is not started at all.
    let error = execute(&mut host(), &three(8 * KIB - 4)).unwrap_err().to_string();
    assert!(error.starts_with("finish c: ") && error.contains("lies over an operand"), "{error}");
}

#[test]
fn a_lost_copy_is_found() {
    let lost = crate::Faults { lose: Some(1), ..crate::Faults::default() };
    let outcome = execute(&mut Faulty::new(host(), lost), &three(8 * KIB)).unwrap();
    // Lost in the first run alone: the run step by step is right again, and the outcome says both.
    assert!(outcome.differs);
    assert_eq!(outcome.mismatch, None);
}

#[test]
fn moves_carry_values_between_spaces_and_views_share() {
    let mut task = three(8 * KIB);
    task.spaces.push(Bytes(8 * KIB));
    let moved = Part { space: 1, offset: KIB, ..at(0, 0) };
    task.operations[1].work = Work::Move { from: at(0, 0), to: moved, bytes: 4 * KIB };
    // `b` is the second half of `a`, where it was moved to.
    let view = Part { value: 1, delta: 0, space: 1, offset: 3 * KIB };
    let half = Part { delta: 2 * KIB, offset: 3 * KIB, ..moved };
    task.operations[3].work =
        Work::Kernel(Kernel::Mix { from: floats(view, KIB / 2), to: floats(at(2, 8 * KIB), KIB), accumulate: true });
    task.operations.insert(3, operation("view b", Work::Same { from: half, to: view, bytes: 2 * KIB }));
    let outcome = execute(&mut host(), &task).unwrap();
    assert_eq!((outcome.mismatch, outcome.copies.0), (None, 2));
}

#[test]
fn a_task_that_reaches_past_its_space_is_refused() {
    match execute(&mut host(), &three(13 * KIB)) {
        Err(ExecuteError::BadTask { operation: 2, name }) => assert_eq!(name, "make c"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_device_refuses_carries_the_operation() {
    let mut task = three(8 * KIB);
    task.spaces[0] = Bytes(1 << 40);
    let error = execute(&mut host(), &task).unwrap_err().to_string();
    assert!(error.contains("reserving memory") && error.contains("`hbm` is full"), "{error}");
}

#[test]
fn busy_times_are_unions_and_what_both_share() {
    let spans = |list: &[(u64, u64)]| list.iter().map(|(start, end)| Span { start: *start, end: *end }).collect();
    let left = union(spans(&[(5, 9), (0, 3), (2, 4), (9, 9)]));
    assert_eq!(left, spans(&[(0, 4), (5, 9)]) as Vec<Span>);
    assert_eq!(intersection(&left, &union(spans(&[(3, 6), (8, 20)]))), spans(&[(3, 4), (5, 6), (8, 9)]) as Vec<Span>);
}
