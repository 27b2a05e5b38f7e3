//! Every kind of contradiction fires, and the digest sees every field.

use super::*;
use crate::units::Alignment;

fn two_spaces() -> Problem {
    let (ub, l1) = (SpaceId(0), SpaceId(1));
    Problem {
        name: "p".into(),
        spaces: vec![Space::unbounded("UB"), Space::unbounded("L1")],
        buffers: vec![
            Buffer::new("a", Bytes(64), StepRange::steps(0, 4), ub),
            Buffer::new("b", Bytes(32), StepRange::steps(2, 6), ub),
            Buffer::new("c", Bytes(32), StepRange::steps(4, 8), l1),
        ],
        ..Problem::default()
    }
}

fn errors_of(change: impl FnOnce(&mut Problem)) -> Vec<String> {
    let mut problem = two_spaces();
    change(&mut problem);
    problem.validate().iter().map(ToString::to_string).collect()
}

#[test]
fn a_sound_problem_has_no_error() {
    assert_eq!(errors_of(|_| {}), Vec::<String>::new());
}

fn colocate(problem: &mut Problem, buffer: u32, base: u32, delta: u64) {
    let entry = Colocation { buffer: BufferId(buffer), base: BufferId(base), delta: Bytes(delta) };
    problem.constraints.colocated.push(entry);
}

#[test]
fn every_contradiction_is_named() {
    type Change = fn(&mut Problem);
    let cases: &[(Change, &str)] = &[
        (|p| p.spaces[1].name = "UB".into(), "space1 'UB': space0 already has this name"),
        (
            |p| p.spaces[0].reserved.push(Interval { start: Offset(8), end: Offset(8) }),
            "space0 'UB': reserved range [8, 8) holds no byte",
        ),
        (|p| p.buffers[0].live.clear(), "buffer #0 'a': has no live range"),
        (|p| p.buffers[0].live[0].steps = Interval { start: Step(4), end: Step(1) }, "live range [4, 1) holds no step"),
        (
            |p| {
                let range = LiveRange { steps: StepRange::steps(3, 5), window: None };
                p.buffers[0].live.push(range);
            },
            "live range [3, 5) follows [0, 4)",
        ),
        (
            |p| p.buffers[0].live[0].window = Some(Interval { start: Offset(60), end: Offset(65) }),
            "window [60, 65) must hold a byte and lie within [0, 64)",
        ),
        (|p| p.buffers[0].spaces.clear(), "has no space"),
        (|p| p.buffers[0].spaces = vec![SpaceId(1), SpaceId(0)], "sorted, each once"),
        (|p| p.buffers[0].spaces = vec![SpaceId(7)], "space7 does not exist"),
        (
            |p| p.buffers[0].pin = Some(Location { space: SpaceId(1), offset: Offset(0) }),
            "is pinned in space1, where it may not live",
        ),
        (
            |p| p.buffers[0].hint = Some(Location { space: SpaceId(0), offset: Offset(u64::MAX) }),
            "64 B at offset 18446744073709551615 end past 64 bits",
        ),
        (|p| p.buffers[0].sizing = Sizing::Unbounded, "is unbounded and states a size of 64 B"),
        (
            |p| p.buffers[0].uses.push(Use { step: Step(4), access: Access::Read, bytes: Bytes(64) }),
            "is used at step 4, when it is not live",
        ),
        (|p| colocate(p, 0, 9, 0), "colocated[0]: buffer #9 does not exist"),
        (|p| p.constraints.never_coexist.push((BufferId(1), BufferId(1))), "never_coexist[0]: names buffer #1 twice"),
        (
            |p| {
                colocate(p, 1, 0, 32);
                colocate(p, 0, 1, 0);
            },
            "colocated[1]: puts buffer #0 0 bytes after #1, but the colocations before it put it -32 after",
        ),
        (|p| colocate(p, 2, 0, 0), "buffers #0 and #2 must share a space"),
        (
            |p| {
                colocate(p, 1, 0, 32);
                p.buffers[0].pin = Some(Location { space: SpaceId(0), offset: Offset(64) });
                p.buffers[1].pin = Some(Location { space: SpaceId(0), offset: Offset(64) });
            },
            "buffers #0 and #1 are colocated, and their pins do not agree",
        ),
        (
            |p| {
                colocate(p, 1, 0, 63);
                let (first, second) = (BufferId(0), BufferId(1));
                p.constraints.separated.push(Separation { first, second, reasons: vec![] });
            },
            "separated[0]: buffers #0 and #1 must share no byte",
        ),
        (|p| p.buffers[0].size = Bytes(u64::MAX), "problem: the sizes of the buffers add up past 64 bits"),
    ];
    for (change, expected) in cases {
        let errors = errors_of(change);
        assert_eq!(errors.len(), 1, "{expected}: {errors:?}");
        assert!(errors[0].contains(expected), "{errors:?} lacks {expected:?}");
    }
}

#[test]
fn a_ring_of_colocations_that_agrees_is_sound() {
    let errors = errors_of(|p| {
        p.buffers[2].spaces = vec![SpaceId(0), SpaceId(1)];
        colocate(p, 1, 0, 32);
        colocate(p, 2, 1, 0);
        colocate(p, 2, 0, 32);
    });
    assert_eq!(errors, Vec::<String>::new());
}

#[test]
fn a_long_chain_of_colocations_is_no_deep_recursion() {
    let mut problem = Problem { spaces: vec![Space::unbounded("m")], ..Problem::default() };
    for index in 0..200_000_u32 {
        problem.buffers.push(Buffer::new("", Bytes(1), StepRange::steps(0, 1), SpaceId(0)));
        if index > 0 {
            colocate(&mut problem, index, index - 1, 1);
        }
    }
    assert_eq!(problem.validate(), vec![]);
    colocate(&mut problem, 199_999, 0, 5);
    let kind = &problem.validate()[0].kind;
    assert!(matches!(kind, ProblemErrorKind::ClashingDeltas { implied: 199_999, stated: 5, .. }), "{kind:?}");
}

#[test]
fn the_digest_sees_every_field_but_the_name() {
    let digest = two_spaces().digest();
    assert_eq!(digest.len(), DIGEST_SCHEME.len() + 33);
    let mut renamed = two_spaces();
    renamed.name = "another".into();
    assert_eq!(renamed.digest(), digest);
    type Change = fn(&mut Problem);
    let changes: &[Change] = &[
        |p| p.spaces[0].capacity = Some(Bytes(0)),
        |p| p.spaces[0].alignment = Alignment::new(2).unwrap(),
        |p| p.spaces[0].reserved.push(Interval { start: Offset(0), end: Offset(1) }),
        |p| p.buffers.swap(0, 1),
        |p| p.buffers[0].name.push(' '),
        |p| p.buffers[0].size = Bytes(65),
        |p| p.buffers[0].alignment = Alignment::new(3).unwrap(),
        |p| p.buffers[0].sizing = Sizing::Ranged,
        |p| p.buffers[0].kind = BufferKind::Weight,
        |p| p.buffers[0].live[0].window = Some(Interval { start: Offset(0), end: Offset(63) }),
        |p| p.buffers[0].spaces.push(SpaceId(1)),
        |p| p.buffers[0].pin = Some(Location { space: SpaceId(0), offset: Offset(0) }),
        |p| p.buffers[0].hint = Some(Location { space: SpaceId(0), offset: Offset(0) }),
        |p| p.buffers[0].producer = Some(String::new()),
        |p| p.buffers[0].uses.push(Use { step: Step(0), access: Access::Write, bytes: Bytes(64) }),
        |p| colocate(p, 1, 0, 0),
        |p| p.constraints.never_coexist.push((BufferId(0), BufferId(1))),
        |p| p.goals.push(Goal::Fit),
    ];
    let mut digests: Vec<String> = changes
        .iter()
        .map(|change| {
            let mut problem = two_spaces();
            change(&mut problem);
            problem.digest()
        })
        .collect();
    digests.push(digest);
    let count = digests.len();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), count);
}

#[test]
fn the_digest_is_the_same_on_every_machine() {
    assert_eq!(Problem::default().digest(), "p1-192b56ba3a948ac864948ad26fec80c3");
    assert_eq!(two_spaces().digest(), "p1-eae48f65341a5d208096e75e5c58b75f");
}
