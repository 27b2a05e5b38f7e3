//! Each kind of violation fires on a plan with one thing wrong, and a sound plan has none.

use npumem_check::{Violation, check, check_on};
use npumem_ir::plan::SpaceUse;
use npumem_ir::problem::{Access, Colocation, LiveRange, Location, Separation, Use};
use npumem_ir::{
    Alignment, Buffer, BufferId, ByteRange, Bytes, Move, Offset, Plan, Problem, Residency, Space, SpaceId, Step,
    StepRange,
};

const HBM: SpaceId = SpaceId(0);
const UB: SpaceId = SpaceId(1);

/// Three buffers of 64 bytes in HBM: a in [0, 4), b in [2, 6), c in [4, 8); UB is open to a.
fn problem() -> Problem {
    let mut a = Buffer::new("a", Bytes(64), StepRange::steps(0, 4), HBM);
    a.spaces = vec![HBM, UB];
    let b = Buffer::new("b", Bytes(64), StepRange::steps(2, 6), HBM);
    let c = Buffer::new("c", Bytes(64), StepRange::steps(4, 8), HBM);
    let mut hbm = Space::unbounded("hbm");
    hbm.capacity = Some(Bytes(256));
    Problem {
        name: "three".into(),
        spaces: vec![hbm, Space::unbounded("ub")],
        buffers: vec![a, b, c],
        ..Problem::default()
    }
}

fn at(buffer: u32, space: SpaceId, offset: u64, start: u64, end: u64) -> Residency {
    Residency { buffer: BufferId(buffer), space, offset: Offset(offset), steps: StepRange::steps(start, end) }
}

fn plan(residencies: Vec<Residency>) -> Plan {
    Plan { problem: "three".into(), residencies, ..Plan::default() }
}

/// a and c share bytes [0, 64) one after the other, b is above them.
fn sound() -> Plan {
    plan(vec![at(0, HBM, 0, 0, 4), at(1, HBM, 64, 2, 6), at(2, HBM, 0, 4, 8)])
}

fn kinds(problem: &Problem, plan: &Plan) -> Vec<&'static str> {
    check(problem, plan).violations.iter().map(Violation::kind).collect()
}

#[test]
fn a_sound_plan_has_no_violation() {
    assert_eq!(check(&problem(), &sound()).violations, vec![]);
}

#[test]
fn overlap_names_both_buffers_the_bytes_and_the_steps() {
    let mut plan = sound();
    plan.residencies[1].offset = Offset(32);
    let violations = check(&problem(), &plan).violations;
    assert_eq!(violations.len(), 2);
    assert_eq!(
        violations[0].to_string(),
        "'a' (#0) and 'b' (#1) share 32 bytes [32, 64) of hbm while both are live in steps [2, 4)"
    );
    assert_eq!(
        violations[1].to_string(),
        "'c' (#2) and 'b' (#1) share 32 bytes [32, 64) of hbm while both are live in steps [4, 6)"
    );
}

#[test]
fn a_byte_window_frees_the_rest_of_the_buffer() {
    let mut problem = problem();
    let window = Some(ByteRange { start: Offset(0), end: Offset(16) });
    problem.buffers[1].live = vec![
        LiveRange { steps: StepRange::steps(2, 4), window: None },
        LiveRange { steps: StepRange::steps(4, 6), window },
    ];
    let places = vec![at(0, HBM, 64, 0, 4), at(1, HBM, 0, 2, 6), at(2, HBM, 16, 4, 8)];
    assert_eq!(kinds(&problem, &plan(places.clone())), Vec::<&str>::new());
    let mut low = places;
    low[2].offset = Offset(15);
    assert_eq!(kinds(&problem, &plan(low)), ["overlap"]);
}

#[test]
fn capacity_is_the_highest_address_and_not_the_sum() {
    let mut plan = sound();
    plan.residencies[1].offset = Offset(193);
    let violations = check(&problem(), &plan).violations;
    assert_eq!(violations[0].to_string(), "'b' (#1) at [193, 257) ends 1 bytes past the end of hbm, which has 256 B");
    plan.residencies[1].offset = Offset(192);
    assert!(check(&problem(), &plan).is_sound());
    plan.residencies[1].offset = Offset(u64::MAX - 10);
    assert_eq!(kinds(&problem(), &plan), ["past-address-space"]);
}

#[test]
fn reserved_alignment_space_and_pin() {
    let mut problem = problem();
    problem.spaces[0].reserved = vec![ByteRange { start: Offset(120), end: Offset(130) }];
    assert_eq!(kinds(&problem, &sound()), ["reserved"]);
    problem.spaces[0].reserved[0].start = Offset(128);
    assert_eq!(kinds(&problem, &sound()), Vec::<&str>::new());

    problem.spaces[0].alignment = Alignment::new(128).unwrap();
    problem.buffers[0].alignment = Alignment::new(3).unwrap();
    assert_eq!(kinds(&problem, &sound()), ["misaligned"]);
    problem.spaces[0].alignment = Alignment::ONE;

    problem.buffers[1].pin = Some(Location { space: HBM, offset: Offset(0) });
    problem.buffers[2].spaces = vec![UB];
    assert_eq!(kinds(&problem, &sound()), ["pin-moved", "wrong-space"]);
}

#[test]
fn colocation_lets_two_live_buffers_share_and_holds_them_to_their_delta() {
    let mut problem = problem();
    problem.constraints.colocated = vec![Colocation { buffer: BufferId(1), base: BufferId(0), delta: Bytes(32) }];
    assert_eq!(kinds(&problem, &sound()), ["colocation-broken"]);
    let inside = plan(vec![at(0, HBM, 0, 0, 4), at(1, HBM, 32, 2, 6), at(2, HBM, 96, 4, 8)]);
    assert_eq!(kinds(&problem, &inside), Vec::<&str>::new());
    let alone = plan(vec![at(0, HBM, 0, 0, 4), at(2, HBM, 96, 4, 8)]);
    assert_eq!(kinds(&problem, &alone), ["colocation-broken", "no-valid-copy"]);
}

#[test]
fn separation_holds_for_buffers_that_never_live_together() {
    let mut problem = problem();
    let rule = Separation { first: BufferId(0), second: BufferId(2), reasons: vec!["ping-pong".into()] };
    problem.constraints.separated = vec![rule];
    let violations = check(&problem, &sound()).violations;
    assert_eq!(
        violations[0].to_string(),
        "'a' (#0) and 'c' (#2) must be kept apart and share 64 bytes [0, 64) of hbm (ping-pong)"
    );
}

#[test]
fn pairs_that_never_coexist_may_share() {
    let mut problem = problem();
    problem.constraints.never_coexist = vec![(BufferId(1), BufferId(0))];
    let plan = plan(vec![at(0, HBM, 0, 0, 4), at(1, HBM, 0, 2, 6), at(2, HBM, 64, 4, 8)]);
    assert_eq!(kinds(&problem, &plan), Vec::<&str>::new());
}

#[test]
fn a_buffer_without_a_place_is_missing_unless_the_pool_has_it() {
    let mut plan = sound();
    plan.residencies.remove(1);
    assert_eq!(
        check(&problem(), &plan).violations[0].to_string(),
        "'b' (#1) is needed in steps [2, 6), where no place holds its bytes"
    );
    plan.pooled = vec![BufferId(1)];
    assert!(check(&problem(), &plan).is_sound());
    let mut both = sound();
    both.pooled = vec![BufferId(1)];
    assert_eq!(kinds(&problem(), &both), ["pooled-and-placed"]);
}

#[test]
fn a_place_that_ends_early_leaves_live_steps_uncovered() {
    let mut plan = sound();
    plan.residencies[0].steps = StepRange::steps(0, 3);
    let violations = check(&problem(), &plan).violations;
    assert!(matches!(&violations[..], [Violation::NoValidCopy { steps, .. }] if *steps == StepRange::steps(3, 4)));
}

/// a is copied to UB in steps [1, 2) and leaves HBM at 2.
fn moved() -> Plan {
    let mut plan = sound();
    plan.residencies = vec![at(0, HBM, 0, 0, 2), at(0, UB, 8, 1, 4), at(1, HBM, 64, 2, 6), at(2, HBM, 0, 4, 8)];
    plan.moves = vec![Move {
        buffer: BufferId(0),
        steps: StepRange::steps(1, 2),
        from: Location { space: HBM, offset: Offset(0) },
        to: Location { space: UB, offset: Offset(8) },
        link: None,
    }];
    plan
}

#[test]
fn a_move_brings_the_bytes_over() {
    assert_eq!(kinds(&problem(), &moved()), Vec::<&str>::new());
    // Without the move the second place appears from nowhere, and the steps after the first are bare.
    let mut unmoved = moved();
    unmoved.moves.clear();
    assert_eq!(kinds(&problem(), &unmoved), ["copy-without-move", "no-valid-copy"]);
    // One step late: nothing holds step 2.
    let mut late = moved();
    late.moves[0].steps = StepRange::steps(2, 3);
    assert_eq!(kinds(&problem(), &late), ["move-off-place", "no-valid-copy"]);
    // From a place where it never was.
    let mut off = moved();
    off.moves[0].from.offset = Offset(4);
    assert_eq!(kinds(&problem(), &off), ["move-off-place", "no-valid-copy"]);
}

#[test]
fn a_copy_of_bytes_that_have_not_arrived_is_stale() {
    let mut plan = moved();
    plan.residencies =
        vec![at(0, HBM, 0, 0, 2), at(0, UB, 8, 1, 4), at(0, UB, 128, 1, 4), at(1, HBM, 64, 2, 6), at(2, HBM, 0, 4, 8)];
    let ub = |offset| Location { space: UB, offset: Offset(offset) };
    plan.moves.push(Move { from: ub(8), to: ub(128), ..plan.moves[0] });
    assert_eq!(kinds(&problem(), &plan), ["move-of-stale"]);
    plan.moves[1].steps = StepRange::steps(2, 3);
    assert_eq!(kinds(&problem(), &plan), Vec::<&str>::new());
}

#[test]
fn a_write_while_two_places_hold_the_bytes_leaves_one_stale() {
    let mut problem = problem();
    let one = |step, access| Use { step: Step(step), access, bytes: Bytes(64) };
    problem.buffers[0].uses = vec![one(0, Access::Write), one(3, Access::Write)];
    let mut plan = moved();
    assert_eq!(kinds(&problem, &plan), Vec::<&str>::new());
    plan.residencies[0].steps = StepRange::steps(0, 4);
    assert_eq!(kinds(&problem, &plan), ["written-twice"]);
}

#[test]
fn listed_uses_need_the_bytes_only_then() {
    let mut problem = problem();
    let one = |step, access| Use { step: Step(step), access, bytes: Bytes(64) };
    problem.buffers[0].uses = vec![one(0, Access::Write), one(1, Access::Read)];
    let mut plan = sound();
    plan.residencies[0].steps = StepRange::steps(0, 2);
    assert!(check(&problem, &plan).is_sound());
    plan.residencies[0].steps = StepRange::steps(0, 1);
    assert_eq!(kinds(&problem, &plan), ["no-valid-copy"]);
}

#[test]
fn sums_and_ids_are_not_believed() {
    let mut plan = sound();
    let sum = |space: &str, peak, lower_bound| SpaceUse {
        space: space.into(),
        peak: Bytes(peak),
        lower_bound: Bytes(lower_bound),
        bound_reason: String::new(),
        capacity: None,
    };
    plan.spaces = vec![sum("hbm", 128, 128), sum("ub", 0, 0)];
    assert!(check(&problem(), &plan).is_sound());
    plan.spaces = vec![sum("hbm", 64, 64), sum("ub", 0, 1)];
    assert_eq!(kinds(&problem(), &plan), ["wrong-peak", "false-bound"]);

    let mut foreign = sound();
    foreign.residencies[2].buffer = BufferId(9);
    foreign.residencies[1].space = SpaceId(7);
    assert_eq!(kinds(&problem(), &foreign), ["malformed", "malformed"]);
    let mut unsorted = sound();
    unsorted.residencies.swap(0, 1);
    assert_eq!(kinds(&problem(), &unsorted), ["malformed"]);
}

#[test]
fn a_device_carries_moves_over_its_links_only() {
    let path = npumem_testing::workspace_root().join("devices/ascend-910b2.toml");
    let device = npumem_ir::Device::from_toml(&std::fs::read_to_string(path).unwrap()).unwrap();
    let kinds = |problem: &Problem, plan: &Plan| -> Vec<&'static str> {
        check_on(problem, plan, &device).violations.iter().map(Violation::kind).collect()
    };
    let mut problem = problem();
    let mut plan = moved();
    assert_eq!(kinds(&problem, &plan), Vec::<&str>::new(), "hbm to ub is a link");
    let id = |name: &str| device.links().find(|(_, link)| link.name == name).unwrap().0;
    plan.moves[0].link = Some(id("hbm->ub"));
    assert_eq!(kinds(&problem, &plan), Vec::<&str>::new());
    plan.moves[0].link = Some(id("hbm->l1"));
    assert_eq!(kinds(&problem, &plan), ["no-link"]);
    plan.moves[0].link = None;
    problem.spaces[1].name = "l0c".into();
    let violations = check_on(&problem, &plan, &device).violations;
    assert_eq!(
        violations[0].to_string(),
        "the move of 'a' (#0) in steps [1, 2): ascend-910b2 has no link from hbm to l0c"
    );
    // The device leaves 188,416 bytes of UB to programs; the problem says nothing of its own.
    problem.spaces[1].name = "ub".into();
    plan.residencies[1].offset = Offset(188_416 - 63);
    plan.moves[0].to.offset = Offset(188_416 - 63);
    assert_eq!(kinds(&problem, &plan), ["outside-capacity"]);
    plan.residencies[1].offset = Offset(188_416 - 64);
    plan.moves[0].to.offset = Offset(188_416 - 64);
    assert_eq!(kinds(&problem, &plan), Vec::<&str>::new());
}
