//! Yesterday's plan as hints: what did not change stays, what did moves little, and the answer says how much.

#![allow(clippy::unwrap_used)]

use crate::generate::{Features, Random, problem};
use crate::random::assert_sound;
use npumem_ir::problem::{Goal, Location};
use npumem_ir::{Bytes, Problem};
use npumem_planner::placement::{Placement, PlacementOptions, Verdict, place};

/// A problem that was planned yesterday, with room to spare and the plan as hints.
fn yesterday(random: &mut Random) -> Problem {
    let mut f = Features::drawn(random);
    (f.windows, f.colocated, f.pins, f.penalties, f.reserved) = (false, false, false, false, false);
    let mut p = problem(random, f, 40, 60, 30, None);
    let plan = place(&p, &PlacementOptions::fast(), None).unwrap().plan;
    for r in &plan.residencies {
        p.buffers[r.buffer.index()].hint = Some(Location { space: r.space, offset: r.offset });
    }
    p.spaces[0].capacity = Some(Bytes(plan.spaces[0].peak.get() + plan.spaces[0].peak.get() / 8 + 8));
    p.goals = vec![Goal::Fit, Goal::KeepHints];
    p
}

/// Bytes that are not where they were, from the plan itself.
fn moved(p: &Problem, placed: &Placement) -> u64 {
    let at = |id: usize| placed.plan.residencies.iter().find(|r| r.buffer.index() == id).map(|r| r.offset);
    let left = p.buffers.iter().enumerate().filter(|(k, b)| b.hint.is_some_and(|h| Some(h.offset) != at(*k)));
    left.map(|(_, b)| b.size.get()).sum()
}

#[test]
fn an_unchanged_problem_keeps_yesterdays_plan() {
    let mut random = Random(21);
    for _ in 0..60 {
        let p = yesterday(&mut random);
        let placed = place(&p, &PlacementOptions::default(), None).unwrap();
        assert_sound(&p, &placed);
        assert_eq!((placed.moved, moved(&p, &placed)), (Bytes(0), 0), "{p:#?}");
    }
}

#[test]
fn a_changed_problem_moves_little() {
    let mut random = Random(22);
    let (mut all, mut left) = (0, 0);
    for _ in 0..60 {
        let mut p = yesterday(&mut random);
        // One buffer grows by a tenth and one is new.
        let grown = random.below(p.buffers.len() as u64) as usize;
        p.buffers[grown].size = Bytes(p.buffers[grown].size.get() + p.buffers[grown].size.get() / 10 + 1);
        let mut new = p.buffers[grown].clone();
        (new.name, new.hint, new.size) = ("new".to_owned(), None, Bytes(4));
        p.buffers.push(new);
        let placed = place(&p, &PlacementOptions::default(), None).unwrap();
        assert_sound(&p, &placed);
        if !matches!(placed.verdict, Verdict::Fits) {
            continue;
        }
        assert_eq!(placed.moved.get(), moved(&p, &placed), "{p:#?}");
        all += p.buffers.iter().map(|b| b.size.get()).sum::<u64>();
        left += placed.moved.get();
    }
    assert!(all > 10_000 && left * 10 < all, "{left} of {all} bytes moved");
}
