//! Order between engines by hand: every turn, handles, both kinds of core, waits that never end.

use super::super::{Kind, Options, ProgramVerdict, Severity, Standing, check_program};
use npumem_ir::StepId;
use npumem_ir::program::{Program, text};

fn program(head: &str, steps: &str) -> Program {
    let source = format!("npumem-program 1\nprogram k\n{head}\nsteps\n{steps}\n");
    text::parse(&source).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

fn verdict(head: &str, steps: &str) -> ProgramVerdict {
    check_program(&program(head, steps), None, &Options { plan_is_separate: true, ..Options::default() }).unwrap()
}

fn words(verdict: &ProgramVerdict) -> Vec<(Severity, &'static str)> {
    let order = |word: &str| matches!(word, "race" | "deadlock" | "order-unknown");
    verdict.findings.iter().map(|f| (f.severity, f.kind.word())).filter(|(_, word)| order(word)).collect()
}

const SLOTS: &str = "scalar n = argument\nscalar i = counter\nscalar e = rem(i, 2)\nscalar late = eq(i, 70000)\nscalar c = opaque()\nbuffer x in ub bytes 64 slots 2 at 0 : u8";

/// Load into slot `i mod 2`, use it; flags both ways, with these steps before the wait of the load.
fn pipeline(stop: &str, back: &str) -> String {
    format!(
        "set-flag v mte2 0\nset-flag v mte2 1\nfor i = 0 to {stop} step 1\n{back}\nload @mte2 writes x{{i}}[0]:u8\n\
         set-flag mte2 v e\nwait-flag mte2 v e\nuse @v reads x{{i}}[0]:u8\nset-flag v mte2 e\nend\n\
         wait-flag v mte2 0\nwait-flag v mte2 1"
    )
}

#[test]
fn every_turn_of_a_long_loop_counts() {
    assert_eq!(words(&verdict(SLOTS, &pipeline("100000", "wait-flag v mte2 e"))), []);
    // One turn of a hundred thousand takes the other slot's event: the next one waits for ever.
    let other = verdict(SLOTS, &pipeline("100000", "if late\nwait-flag v mte2 1\nelse\nwait-flag v mte2 e\nend"));
    let Some(Kind::Deadlock { at, .. }) = other.findings.iter().map(|f| &f.kind).find(|k| k.word() == "deadlock")
    else {
        panic!("{:?}", other.findings)
    };
    assert_eq!(at.turns[0].1, Some(70_001), "{at:?}");
    // Or does not wait.
    let late = verdict(SLOTS, &pipeline("100000", "if late\nelse\nwait-flag v mte2 e\nend"));
    let Some(Kind::Race { second, .. }) = late.findings.iter().map(|f| &f.kind).find(|k| k.word() == "race") else {
        panic!("{:?}", late.findings)
    };
    assert_eq!(second.turns[0].1, Some(70_000), "{second:?}");
    // A bound that nobody knows: any number of turns, each right.
    let any = verdict(SLOTS, &pipeline("n", "wait-flag v mte2 e"));
    assert_eq!(words(&any), [], "{:?}", any.findings);
    assert!(any.work < 1000);
}

#[test]
fn a_branch_that_nobody_knows_is_run_both_ways() {
    let sometimes = |steps: &str| verdict(SLOTS, steps);
    let found =
        sometimes("load @mte2 writes x[0]:u8\nif c\nset-flag mte2 v 0\nwait-flag mte2 v 0\nend\nuse @v reads x[0]:u8");
    assert_eq!(words(&found), [(Severity::Fault, "race")]);
    // The same condition decides whether there is a flag and whether it is waited for.
    let together = "scalar c = argument\nbuffer x in ub bytes 64 at 0 : u8";
    let steps =
        "load @mte2 writes x[0]:u8\nif c\nset-flag mte2 v 0\nend\nif c\nwait-flag mte2 v 0\nuse @v reads x[0]:u8\nend";
    assert_eq!(words(&verdict(together, steps)), []);
    // Two loops of one unknown length: whether the flags match cannot be told from outside.
    let two = "scalar n = argument\nscalar i = counter\nscalar j = counter\nbuffer x in ub bytes 64 at 0 : u8";
    let steps = "for i = 0 to n step 1\nset-flag mte2 v 0\nend\nfor j = 0 to n step 1\nwait-flag mte2 v 0\nend\nuse @v reads x[0]:u8";
    let found = verdict(two, steps);
    assert!(words(&found).iter().all(|(severity, _)| *severity == Severity::Doubt), "{:?}", found.findings);
    assert!(!words(&found).is_empty());
    let mut bound = program(two, steps);
    bound.bind("n", 5).unwrap();
    assert_eq!(words(&check_program(&bound, None, &Options::default()).unwrap()), []);
}

#[test]
fn a_wait_may_come_before_its_flag_in_the_text() {
    let head = "buffer x in ub bytes 64 at 0 : u8\nbuffer y in ub bytes 64 at 64 : u8";
    // The vector unit waits while the load is given out: no circle.
    let steps = "wait-flag mte2 v 0\nuse @v reads x[0]:u8\nload @mte2 writes x[0]:u8\nset-flag mte2 v 0";
    assert_eq!(words(&verdict(head, steps)), []);
    // The scalar unit waits: nothing behind it is given out.
    let found = verdict(head, "wait-flag mte2 s 0\nload @mte2 writes x[0]:u8\nset-flag mte2 s 0");
    let Kind::Deadlock { behind: Some(behind), .. } = &found.of(Severity::Fault).next().unwrap().kind else {
        panic!("{:?}", found.findings)
    };
    assert_eq!(behind.step, StepId(2));
    // Each waits for the other's flag first.
    let circle = "wait-flag mte2 v 0\nset-flag v mte2 0\nwait-flag v mte2 0\nset-flag mte2 v 0\nuse @v reads x[0]:u8";
    let found = verdict(head, circle);
    assert_eq!(words(&found), [(Severity::Fault, "deadlock"); 2]);
    assert_eq!(found.standing, Standing::Unsound);
    // Raised once, waited for twice.
    let found = verdict(head, "set-flag mte2 v 0\nwait-flag mte2 v 0\nuse @v reads x[0]:u8\nwait-flag mte2 v 0 line 9");
    let Kind::Deadlock { at, behind: None, flag } = &found.of(Severity::Fault).next().unwrap().kind else {
        panic!("{:?}", found.findings)
    };
    assert_eq!((at.step, flag.2), (StepId(3), 0));
}

#[test]
fn handles_name_what_they_name_in_that_turn() {
    let head = "scalar i = counter\nbuffer a in ub bytes 64 at 0 : u8\nbuffer b in ub bytes 64 at 64 : u8\nhandle now\nhandle next";
    // Two tiles that a loop exchanges: the load fills the one that is not used.
    let exchange = |wait: &str| {
        format!(
            "assign &now = a[0], &next = b[0]\nload @mte2 writes a[0]:u8\nset-flag mte2 v 0\nset-flag v mte2 1\nfor i = 0 to 9 step 1\n\
             wait-flag mte2 v 0\n{wait}\nload @mte2 writes &next[0]:u8\nset-flag mte2 v 0\nuse @v reads &now[0]:u8\nset-flag v mte2 1\n\
             assign &now = &next[0], &next = &now[0]\nend\nwait-flag mte2 v 0"
        )
    };
    assert_eq!(words(&verdict(head, &exchange("wait-flag v mte2 1"))), []);
    let without = verdict(head, &exchange(""));
    let Some(Kind::Race { second, .. }) = without.findings.iter().map(|f| &f.kind).find(|k| k.word() == "race") else {
        panic!("{:?}", without.findings)
    };
    // The second turn's load fills the tile that the first turn still uses.
    assert_eq!(second.turns[0].1, Some(1));
}

/// The vector core takes what the cube core has stored, and gives the memory back.
fn two_cores(post: &str, back: &str) -> String {
    format!(
        "for i = 0 to 8 step 1\nif ready\nawait mte1 1\nend\nbarrier mte1\nbarrier\nproduct @m cube writes acc[0]:u8\nbarrier\nstore @fix cube reads acc[0]:u8 writes gm[0]:u8\n{post}\nend\n\
         for j = 0 to 8 step 1\nawait mte2 0\nload @mte2 vector reads gm[0]:u8 writes t[0]:u8\nbarrier\nuse @v vector reads t[0]:u8\n{back}\nbarrier\nend"
    )
}

const CORES: &str = "scalar i = counter\nscalar j = counter\nscalar ready = lt(0, i)\nbuffer acc in l0c bytes 64 at 0 : u8\nbuffer t in ub bytes 64 at 0 : u8\nexternal gm in gm bytes 64 : u8";

#[test]
fn flags_between_the_two_kinds_of_core() {
    assert_eq!(words(&verdict(CORES, &two_cores("post fix 0", "post v 1"))), []);
    // Never posted.
    let found = verdict(CORES, &two_cores("", "post v 1"));
    assert_eq!(words(&found), [(Severity::Fault, "deadlock"); 2], "{:?}", found.findings);
    let Some(Kind::Deadlock { behind: Some(_), .. }) =
        found.findings.iter().map(|f| &f.kind).find(|k| matches!(k, Kind::Deadlock { behind: Some(_), .. }))
    else {
        panic!("the cube core waits for a post that the vector core is kept from: {:?}", found.findings)
    };
    // Each core waits for the other before it does anything.
    let first = two_cores("post fix 0", "post v 1").replace("if ready\n", "if 1\n");
    assert_eq!(words(&verdict(CORES, &first)), [(Severity::Fault, "deadlock"); 2]);
    // A program of one kind alone: the other end is elsewhere.
    let alone = "buffer t in ub bytes 64 at 0 : u8\nexternal gm in gm bytes 64 : u8";
    assert_eq!(words(&verdict(alone, "await mte2 0\nload @mte2 vector reads gm[0]:u8 writes t[0]:u8")), []);
}

#[test]
fn flags_alone_are_a_piece_of_a_kernel() {
    let head = "buffer x in ub bytes 64 at 0 : u8";
    let flags = "set-flag mte2 mte3 1\nwait-flag mte2 mte3 2";
    assert_eq!(words(&verdict(head, flags)), [(Severity::Doubt, "deadlock")]);
    let whole = format!("{flags}\nstore @mte3 reads x[0]:u8");
    assert_eq!(words(&verdict(head, &whole)), [(Severity::Fault, "deadlock")]);
}

#[test]
fn what_is_not_known_is_said() {
    let head = "scalar e = argument\nbuffer x in ub bytes 64 at 0 : u8";
    let steps = "load @mte2 writes x[0]:u8\nset-flag mte2 v e line 4\nwait-flag mte2 v e line 5\nuse @v reads x[0]:u8";
    let found = verdict(head, steps);
    assert!(words(&found).contains(&(Severity::Doubt, "order-unknown")), "{:?}", found.findings);
    let message = found.findings[0].message(&program(head, steps));
    assert!(message.contains("--dim"), "{message}");
}

/// Loops that never repeat, flags that nobody takes, waits that pile up: an answer comes soon, whatever it is.
#[test]
fn endless_work_ends_soon() {
    let head = "scalar i = counter\nscalar j = counter\nbuffer x in ub bytes 64 at 0 : u8";
    let nested = "for i = 0 to 1000000000 step 1\nfor j = 0 to i step 1\nset-flag mte2 v i\nwait-flag mte2 v i\nw @v writes x[0]:u8\nend\nend";
    assert_eq!(words(&verdict(head, nested)), [(Severity::Doubt, "order-unknown")]);
    let flood = "for i = 0 to 1000000000 step 1\nset-flag mte2 v 0\nw @v writes x[0]:u8\nend";
    let found = verdict(head, flood);
    assert!(words(&found).iter().all(|(severity, _)| *severity == Severity::Doubt), "{:?}", found.findings);
    let pile = "for i = 0 to 1000000000 step 1\nwait-flag mte2 v 0\nw @v writes x[0]:u8\nend";
    assert_eq!(words(&verdict(head, pile)), [(Severity::Fault, "deadlock")]);
}

/// What one engine stores for another to load: the caller's memory, where its bytes are known.
#[test]
fn the_caller_s_memory_is_ordered_too() {
    let head = "scalar n = argument\nscalar core = grid\nscalar i = counter\nscalar j = counter\nscalar k = mul(i, n)\n\
                buffer x in ub bytes 64 at 0 : u8\nbuffer y in ub bytes 64 at 64 : u8\nexternal g in gm : u8\nexternal h in gm : u8";
    // An order that says nothing of the two.
    let stated =
        |steps: &str| verdict(head, &format!("use @v writes y[0]:u8\nset-flag v mte3 7\nwait-flag v mte3 7\n{steps}"));
    let store = |bytes: &str| format!("store @mte3 reads y[0]:u8 writes {bytes}:u8\n");
    let load = |bytes: &str| format!("load @mte2 reads {bytes}:u8 writes x[0]:u8\n");
    let flag = "set-flag mte3 mte2 0\nwait-flag mte3 mte2 0\n";
    let race = |steps: String| words(&stated(&steps)).contains(&(Severity::Fault, "race"));
    let quiet = |steps: String| {
        let found = stated(&steps);
        words(&found).is_empty() || {
            eprintln!("{steps}{:#?}", found.findings);
            false
        }
    };
    assert!(race(store("g[0; 64 by 1]") + &load("g[32; 64 by 1]")));
    assert!(quiet(store("g[0; 64 by 1]") + flag + &load("g[32; 64 by 1]")));
    assert!(quiet(store("g[0; 64 by 1]") + &load("g[64; 64 by 1]")));
    // Two that only read; other memory; rows that lie between each other.
    assert!(quiet(load("g[0; 64 by 1]") + "send @mte3 reads g[0; 64 by 1]:u8\n"));
    assert!(quiet(store("g[0; 64 by 1]") + &load("h[0; 64 by 1]")));
    assert!(quiet(store("g[0; 4 by 64; 16 by 1]") + &load("g[16; 4 by 64; 16 by 1]")));
    assert!(race(store("g[0; 4 by 64; 16 by 1]") + &load("g[8; 4 by 64; 16 by 1]")));
    // What nobody knows is the same for both, or it is not asked.
    assert!(race(store("g[64*core + n; 64 by 1]") + &load("g[64*core + n; 64 by 1]")));
    assert!(quiet(store("g[64*core; 64 by 1]") + &load("g[0; 64 by 1]")));
    assert!(quiet(store("g[0; n by 1]") + &load("g[0; 64 by 1]")));
    assert!(quiet(store("g[0]") + &load("g[0; 64 by 1]")));
    assert!(quiet(format!("for i = 1 to 9 step 1\n{}{}end\n", store("g[k; 64 by 1]"), load("g[k; 64 by 1]"))));
    // The memory adds: in any order.
    let add = "store @mte3 reads y[0]:u8 writes g[0; 64 by 1]:u8 set atomic = add\n";
    assert!(quiet(add.to_owned() + "store @mte2 writes g[0; 64 by 1]:u8 set atomic = add\n"));
    // Loops of many turns: the last of what one stored, the last of what the other loads.
    let loops = |between: &str| {
        format!(
            "for i = 0 to 1000 step 1\n{}end\n{between}for j = 0 to 1000 step 1\n{}end\n",
            store("g[64*i; 64 by 1]"),
            load("g[64*j; 64 by 1]")
        )
    };
    assert!(race(loops("")));
    assert!(quiet(loops(flag)));
    assert!(quiet(loops("").replace("g[64*j", "h[64*j")));
    // What the turn before stored, and what the next one will.
    let turn = |first: String, second: String| format!("for i = 1 to 1000 step 1\n{first}{second}end\n");
    assert!(race(turn(store("g[64*i; 64 by 1]"), load("g[64*i - 64; 64 by 1]"))));
    assert!(race(turn(load("g[64*i + 64; 64 by 1]"), store("g[64*i; 64 by 1]"))));
    assert!(quiet(turn(store("g[64*i; 64 by 1]") + flag, load("g[64*i - 64; 64 by 1]"))));
}
