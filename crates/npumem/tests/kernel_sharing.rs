//! What a plan lets share bytes: results on operands that die, and nothing that the kernel's own flags leave unordered.

#![allow(clippy::unwrap_used)]

use npumem::check_program::{Severity, Standing};
use npumem::ir::program::{Program, text};
use npumem::kernel::{self, KernelPlan};
use npumem::plan::Fit;
use npumem::{PlacementOptions, catalogue};
use npumem_testing::Random;

fn program(buffers: &str, steps: &str) -> Program {
    let source = format!("npumem-program 1\nprogram k\n{buffers}\nsteps\n{steps}\n");
    text::parse(&source).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

fn tiles(names: &[&str], bytes: u64) -> String {
    names.iter().map(|name| format!("buffer {name} in vec bytes {bytes} align 32 : f32\n")).collect()
}

fn plan(program: &Program) -> KernelPlan {
    let device = catalogue::device("ascend-910b2").unwrap();
    let plan = kernel::plan(program, &device, &PlacementOptions::fast(), &[], None).unwrap();
    if plan.planned.fit == Fit::Yes {
        let verdict = kernel::check(&plan.program, &device, true).unwrap();
        assert!(verdict.of(Severity::Fault).next().is_none(), "{:?}\n{}", verdict.findings, text::print(&plan.program));
    }
    plan
}

fn peak(plan: &KernelPlan) -> u64 {
    plan.addresses.iter().map(|(id, at)| at.0 + plan.program.buffer(*id).total_bytes().unwrap()).max().unwrap()
}

fn at(plan: &KernelPlan, name: &str) -> u64 {
    plan.addresses[&plan.program.find_buffer(name).unwrap()].0
}

const CHAIN: &str = "load @mte2 vector writes x[0]:f32\nexp @v vector elementwise reads x[0]:f32 writes y[0]:f32\n\
    add @v vector elementwise reads y[0]:f32, y[0]:f32 writes z[0]:f32\nstore @mte3 vector reads z[0]:f32";

#[test]
fn a_chain_of_elementwise_statements_takes_the_bytes_of_one_tile() {
    let small = plan(&program(&tiles(&["x", "y", "z"], 65_536), CHAIN));
    assert_eq!((peak(&small), at(&small, "x"), at(&small, "y"), at(&small, "z")), (65_536, 0, 0, 0));
    // 120 KiB: two do not fit, one does.
    assert_eq!(plan(&program(&tiles(&["x", "y", "z"], 122_880), CHAIN)).planned.fit, Fit::Yes);
    let apart = CHAIN.replace(" elementwise", "");
    assert_eq!(peak(&plan(&program(&tiles(&["x", "y", "z"], 65_536), &apart))), 131_072);
    assert_eq!(plan(&program(&tiles(&["x", "y", "z"], 122_880), &apart)).planned.fit, Fit::No);
}

#[test]
fn an_operand_that_is_read_again_or_differently_keeps_its_bytes() {
    let again = CHAIN.to_owned() + "\nstore @mte3 vector reads x[0]:f32";
    assert_eq!(peak(&plan(&program(&tiles(&["x", "y", "z"], 65_536), &again))), 131_072);
    // 'y' has the size of 'x' and steps through it otherwise: row 1 is written before row 2 is read.
    let strided = "load @mte2 vector writes x[0; 64 by 4]:f32\nspread @v vector elementwise reads x[0; 64 by 4]:f32 writes y[0; 4 by 128; 16 by 4]:f32\n\
        store @mte3 vector reads y[0]:f32";
    let plan_ = plan(&program(&tiles(&["x", "y"], 512), strided));
    assert!(at(&plan_, "x").abs_diff(at(&plan_, "y")) >= 256, "{:?}", plan_.addresses);
    // Put together by hand, that is not told sound.
    let mut wrong = plan_.addresses.clone();
    wrong.values_mut().for_each(|offset| offset.0 = 0);
    let device = catalogue::device("ascend-910b2").unwrap();
    let verdict = kernel::check(&plan_.program.placed(&wrong), &device, true).unwrap();
    assert_eq!(verdict.standing, Standing::Undecided, "{:?}", verdict.findings);
    assert_eq!(verdict.findings[0].kind.word(), "own-input");
}

#[test]
fn a_loop_carries_its_accumulator_and_shares_the_rest() {
    let head = format!("scalar i = counter\n{}", tiles(&["acc", "x", "y", "t"], 49_152));
    let steps = "zero @v vector writes acc[0]:f32\nfor i = 0 to 9 step 1\nload @mte2 vector writes x[0]:f32\n\
        exp @v vector elementwise reads x[0]:f32 writes y[0]:f32\nadd @v vector elementwise reads acc[0]:f32, y[0]:f32 writes t[0]:f32\n\
        move @v vector elementwise reads t[0]:f32 writes acc[0]:f32\nend\nstore @mte3 vector reads acc[0]:f32";
    let found = plan(&program(&head, steps));
    // The accumulator and one tile: 'x', 'y' are one place; 't' takes the place of 'y' (the accumulator lives on).
    assert_eq!(peak(&found), 2 * 49_152);
}

#[test]
fn what_no_flag_orders_shares_no_bytes() {
    // The second load waits for nobody: not for the use of 'a', nor for the store of 'b'.
    let steps = |back: &str, again: &str| {
        format!(
            "load @mte2 vector writes a[0]:f32\nset-flag mte2 v 0\nwait-flag mte2 v 0\nuse @v vector reads a[0]:f32 writes b[0]:f32\n\
             set-flag v mte3 0\nwait-flag v mte3 0\nstore @mte3 vector reads b[0]:f32\n{back}\nload @mte2 vector writes c[0]:f32\n\
             set-flag mte2 v 0\nwait-flag mte2 v 0\n{again}use @v vector reads c[0]:f32 writes d[0]:f32\n\
             set-flag v mte3 0\nwait-flag v mte3 0\nstore @mte3 vector reads d[0]:f32"
        )
    };
    let names = ["a", "b", "c", "d"];
    let loose = plan(&program(&tiles(&names, 16_384), &steps("", "")));
    assert_eq!(loose.planned.fit, Fit::Yes);
    let apart = |x: &str, y: &str| at(&loose, x).abs_diff(at(&loose, y)) >= 16_384;
    assert!(apart("a", "c") && apart("b", "c") && apart("b", "d"), "{:?}", loose.addresses);
    // 90 KiB each: two fit at once, and only flags allow the second pair in the place of the first.
    assert_ne!(plan(&program(&tiles(&names, 92_160), &steps("", ""))).planned.fit, Fit::Yes);
    let ordered = steps("set-flag v mte2 1\nwait-flag v mte2 1", "set-flag mte3 v 1\nwait-flag mte3 v 1\n");
    assert_eq!(plan(&program(&tiles(&names, 92_160), &ordered)).planned.fit, Fit::Yes);
}

/// Random chains, branches and loops of statements that may work in place: every plan passes the checker.
#[test]
fn random_plans_in_place_are_sound() {
    let mut shared = 0;
    for seed in 1..=400_u64 {
        let mut random = Random(seed);
        let names: Vec<String> = (0..3 + random.below(5)).map(|n| format!("t{n}")).collect();
        let mut steps = String::new();
        let mut open: Vec<bool> = Vec::new();
        let mut counters = 0;
        for _ in 0..4 + random.below(14) {
            match random.below(9) {
                0 if open.len() < 2 => {
                    steps += &format!("for i{counters} = 0 to {} step 1\n", random.below(4));
                    counters += 1;
                    open.push(true);
                }
                1 if open.len() < 2 => {
                    steps += "if c\n";
                    open.push(false);
                }
                2 if !open.is_empty() => {
                    open.pop();
                    steps += "end\n";
                }
                3 => steps += &format!("store @mte3 vector reads {}[0]:f32\n", random.pick(&names)),
                4 => steps += &format!("load @mte2 vector writes {}[0]:f32\n", random.pick(&names)),
                _ => {
                    let reads: Vec<String> =
                        (0..1 + random.below(2)).map(|_| format!("{}[0]:f32", random.pick(&names))).collect();
                    let result = random.pick(&names);
                    steps += &format!("op @v vector elementwise reads {} writes {result}[0]:f32\n", reads.join(", "));
                }
            }
        }
        open.iter().for_each(|_| steps += "end\n");
        let mut head = String::from("scalar c = argument\n");
        (0..counters).for_each(|n| head += &format!("scalar i{n} = counter\n"));
        let refs: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = plan(&program(&(head + &tiles(&refs, 64)), &steps));
        assert_eq!(found.planned.fit, Fit::Yes);
        shared += usize::from(!found.planned.problem.constraints.colocated.is_empty());
    }
    assert!(shared > 40, "{shared} plans with a result on an operand");
}
