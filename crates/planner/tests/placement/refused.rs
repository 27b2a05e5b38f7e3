//! Input at and past the limits: what is refused names the buffer, what is large ends soon.

#![allow(clippy::unwrap_used)]

use npumem_ir::problem::{Buffer, Colocation, Goal, LiveRange, Location, Separation, Space};
use npumem_ir::{Alignment, BufferId, Bytes, Offset, Problem, SpaceId, StepRange};
use npumem_planner::placement::{PlacementOptions, Verdict, place};

fn one_space(buffers: Vec<Buffer>) -> Problem {
    let spaces = vec![Space::unbounded("ub")];
    Problem { name: "limits".to_owned(), goals: vec![Goal::Peak], spaces, buffers, ..Problem::default() }
}

fn buffer(name: &str, size: u64, start: u64, end: u64) -> Buffer {
    Buffer::new(name, Bytes(size), StepRange::steps(start, end), SpaceId::new(0))
}

fn refusal(p: &Problem) -> String {
    place(p, &PlacementOptions::default(), None).unwrap_err().to_string()
}

#[test]
fn what_is_refused_is_named() {
    let small = buffer("small", 64, 0, 2);
    let huge = one_space(vec![small.clone(), buffer("conv1.weight", 1 << 59, 0, 1)]);
    let said = refusal(&huge);
    assert!(said.starts_with("buffer conv1.weight (size ") && said.contains("2^59"), "{said}");

    let mut odd = one_space(vec![small.clone(), buffer("odd", 64, 0, 1)]);
    odd.buffers[1].alignment = Alignment::new((1 << 60) - 1).unwrap();
    let said = refusal(&odd);
    assert!(said.starts_with("buffer odd (") && said.contains("alignment 1152921504606846975"), "{said}");

    let mut pinned = one_space(vec![small.clone(), buffer("far", 64, 0, 1)]);
    pinned.buffers[1].pin = Some(Location { space: SpaceId::new(0), offset: Offset(1 << 62) });
    assert!(refusal(&pinned).starts_with("buffer far ("), "{}", refusal(&pinned));

    let mut nowhere = one_space(vec![small.clone(), buffer("lost", 64, 0, 1)]);
    nowhere.buffers[1].spaces.clear();
    assert_eq!(refusal(&nowhere), "buffer lost may live in no space: list at least one space for it");
    nowhere.buffers[1].spaces = vec![SpaceId::new(7)];
    assert_eq!(
        refusal(&nowhere),
        "buffer lost names space s7, but there are 1 spaces".replace("s7", &SpaceId::new(7).to_string())
    );

    let mut empty = one_space(vec![small, buffer("blink", 64, 3, 4)]);
    empty.buffers[1].live = vec![LiveRange { steps: StepRange::steps(3, 3), window: None }];
    assert!(refusal(&empty).starts_with("live range 0 of buffer blink is empty"), "{}", refusal(&empty));
}

/// Two buffers of 100,000 live ranges each would be 10^10 pairs, by any method that compares them all.
#[test]
fn a_space_whose_alignment_no_group_keeps_is_no_choice_for_it() {
    // y = x + 1 has no offset of two in B, so both live in A, which has 4 bytes and later 5.
    let mut problem = one_space(vec![buffer("x", 5, 0, 3), buffer("y", 1, 0, 3)]);
    problem.spaces.push(Space { alignment: Alignment::new(2).unwrap(), ..Space::unbounded("B") });
    problem.buffers.iter_mut().for_each(|b| b.spaces = vec![SpaceId::new(0), SpaceId::new(1)]);
    let moves = Colocation { buffer: BufferId::new(1), base: BufferId::new(0), delta: Bytes(1) };
    problem.constraints.colocated.push(moves);
    for (capacity, fits) in [(4, false), (5, true)] {
        problem.spaces[0].capacity = Some(Bytes(capacity));
        for options in [PlacementOptions::default(), PlacementOptions::fast()] {
            let placed = place(&problem, &options, None).unwrap();
            assert_eq!(matches!(placed.verdict, Verdict::Fits), fits, "{capacity}: {:?}", placed.verdict);
        }
    }
    // With no other space it is refused, whatever the capacity.
    problem.buffers.iter_mut().for_each(|b| b.spaces = vec![SpaceId::new(1)]);
    assert!(refusal(&problem).contains("alignments"), "{}", refusal(&problem));
}

#[test]
fn many_gaps_cost_no_square() {
    let ranges = |from: u64| {
        (0..100_000)
            .map(|k| LiveRange { steps: StepRange::steps(from + 4 * k, from + 4 * k + 1), window: None })
            .collect::<Vec<_>>()
    };
    let mut p = one_space(vec![buffer("even", 64, 0, 1), buffer("odd", 32, 0, 1), buffer("whole", 16, 0, 400_000)]);
    p.buffers[0].live = ranges(0);
    p.buffers[1].live = ranges(2);
    let placed = place(&p, &PlacementOptions::default(), None).unwrap();
    // Never live together, they share bytes.
    assert_eq!(placed.plan.spaces[0].peak, Bytes(80));
    p.buffers[1].live = ranges(0);
    p.constraints.separated.push(Separation { first: BufferId::new(0), second: BufferId::new(2), reasons: vec![] });
    let placed = place(&p, &PlacementOptions::default(), None).unwrap();
    assert_eq!(placed.plan.spaces[0].peak, Bytes(112));
}
