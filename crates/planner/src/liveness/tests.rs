//! Liveness of small programs, by hand.

use super::*;
use npumem_ir::program::{Affine, Op, ProgramBuilder};

fn tile(b: &mut ProgramBuilder, name: &str) -> BufferId {
    b.buffer(npumem_ir::program::Buffer::tile(name, "ub", 256))
}

fn of(program: &Program, name: &str) -> Vec<(u64, u64)> {
    let ranges = live_ranges(program).unwrap();
    let id = program.find_buffer(name).unwrap();
    ranges[id.index()].iter().map(|range| (range.start.0, range.end.0)).collect()
}

#[test]
fn a_value_read_after_a_branch_lives_through_it() {
    // Case 04: the same statements and the same expected ranges.
    let mut b = ProgramBuilder::new("phi");
    let [init, phi, beta] = ["mi_init", "mi_phi", "beta2"].map(|name| tile(&mut b, name));
    let c = b.argument("c", None);
    b.simple("def", "v", &[], &[init]);
    b.begin_if(c);
    b.simple("yield", "v", &[init], &[phi]);
    b.otherwise();
    b.simple("yield", "v", &[init], &[phi]);
    b.end();
    b.simple("compute", "v", &[], &[beta]);
    b.simple("use", "v", &[beta], &[]);
    b.simple("use", "v", &[phi], &[]);
    let program = b.finish().unwrap();
    assert_eq!(of(&program, "mi_phi"), [(2, 9)]);
    assert_eq!(of(&program, "beta2"), [(6, 8)]);
    assert_eq!(of(&program, "mi_init"), [(0, 5)]);
}

#[test]
fn a_value_read_in_every_turn_lives_through_the_loop() {
    // Case 05.
    let mut b = ProgramBuilder::new("backedge");
    let [index, mask, merged] = ["index", "mask", "merged"].map(|name| tile(&mut b, name));
    b.simple("init", "v", &[], &[index]);
    b.begin_for("i", 0, 4, 1);
    b.simple("compare", "v", &[index], &[mask]);
    b.simple("use", "v", &[mask], &[]);
    b.simple("merge", "v", &[], &[merged]);
    b.simple("use", "v", &[merged], &[]);
    b.end();
    let program = b.finish().unwrap();
    assert_eq!(of(&program, "index"), [(0, 7)]);
    assert_eq!(of(&program, "mask"), [(2, 4)]);
    assert_eq!(of(&program, "merged"), [(4, 6)]);
}

#[test]
fn an_accumulator_and_exposed_reads() {
    let mut b = ProgramBuilder::new("acc");
    let [acc, x, loose] = ["acc", "x", "loose"].map(|name| tile(&mut b, name));
    let n = b.argument("n", None);
    b.simple("zero", "v", &[], &[acc]);
    let i = b.begin_for("i", 0, n, 1);
    b.simple("load", "mte2", &[], &[x]);
    b.simple("add", "v", &[acc, x], &[acc]);
    let first = b.value(Op::Eq, vec![i.into(), 0.into()]);
    b.begin_if(first);
    b.simple("write", "v", &[], &[loose]);
    b.end();
    b.end();
    b.simple("store", "mte3", &[acc], &[]);
    b.simple("store", "mte3", &[loose], &[]);
    let program = b.finish().unwrap();
    assert_eq!(of(&program, "acc"), [(0, 9)]);
    assert_eq!(of(&program, "x"), [(2, 4)]);
    assert_eq!(of(&program, "loose"), [(0, 10)], "the loop may run no time: nobody else may use these bytes");
}

#[test]
fn rotating_slots_and_handles_are_followed() {
    let mut b = ProgramBuilder::new("slots");
    let t = tile(&mut b, "t");
    b.program_mut().buffers[0].slots = 2;
    let [a, c] = ["a", "c"].map(|name| tile(&mut b, name));
    let h = b.handle("h");
    let i = b.begin_for("i", 0, 8, 1);
    let access = Access::whole(Root::Buffer(t), npumem_ir::ElementType::U8).in_slot(Affine::scalar(i));
    b.run(npumem_ir::program::Operation {
        writes: vec![access.clone()],
        ..npumem_ir::program::Operation::new("load", "mte2")
    });
    b.run(npumem_ir::program::Operation { reads: vec![access], ..npumem_ir::program::Operation::new("use", "v") });
    b.end();
    b.simple("a", "v", &[], &[a]);
    b.step(Step::Assign(npumem_ir::program::Assign { scalars: vec![], handles: vec![(h, Root::Buffer(a), 0.into())] }));
    b.simple("c", "v", &[], &[c]);
    b.simple("use", "v", &[c], &[]);
    let read = Access::whole(Root::Handle(h), npumem_ir::ElementType::U8);
    b.run(npumem_ir::program::Operation { reads: vec![read], ..npumem_ir::program::Operation::new("use", "v") });
    let program = b.finish().unwrap();
    assert_eq!(of(&program, "t"), [(0, 4)], "a slot may be read in a later turn: it keeps its place through the loop");
    assert_eq!(of(&program, "c"), [(6, 8)]);
    assert_eq!(of(&program, "a"), [(4, 9)], "read through the handle");
}
