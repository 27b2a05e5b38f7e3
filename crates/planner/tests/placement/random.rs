//! Every answer on generated problems passes the checker; every claim of the answer holds.

use crate::generate::{Features, Random, problem};
use crate::oracle;
use npumem_ir::problem::Goal;
use npumem_ir::{Bytes, Problem};
use npumem_planner::placement::{Placement, PlacementError, PlacementOptions, Verdict, place};

/// The checker's violations other than a capacity that is honestly exceeded.
pub fn assert_sound(p: &Problem, placed: &Placement) {
    let found = npumem_check::check(p, &placed.plan);
    let wrong: Vec<_> =
        found.violations.iter().filter(|v| placed.verdict == Verdict::Fits || v.kind() != "outside-capacity").collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{p:#?}");
}

/// Offsets that the oracle tries.
const ROOM: u64 = 12;

#[test]
fn every_plan_is_sound_and_every_bound_holds() {
    let mut random = Random(1);
    let (mut solved, mut refused) = (0, 0);
    for _ in 0..2000 {
        let f = Features::drawn(&mut random);
        let p = problem(&mut random, f, 4, 3, 5, None);
        let best = oracle::best(&p, ROOM);
        match place(&p, &PlacementOptions::fast(), None) {
            Ok(placed) => {
                assert_sound(&p, &placed);
                let space = &placed.plan.spaces[0];
                let Some(best) = best else {
                    assert!(space.peak.get() > ROOM, "{p:#?}");
                    continue;
                };
                let best = best.peak;
                assert!(space.lower_bound.get() <= best, "{} > {best}\n{p:#?}", space.lower_bound);
                assert!(space.peak.get() >= best);
                solved += 1;
            }
            Err(PlacementError::Contradiction(_)) => {
                assert_eq!(best, None, "{p:#?}");
                refused += 1;
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert!(solved > 1000 && refused > 30, "{solved} solved, {refused} refused");
}

/// Exact search: peaks equal the oracle's, at every third capacity infeasible.
#[test]
fn exact_peaks_equal_exhaustive_search() {
    let mut random = Random(2);
    let (mut optimal, mut infeasible, mut feasible) = (0, 0, 0);
    for _ in 0..1200 {
        let mut f = Features::drawn(&mut random);
        // Every third problem has rigid shapes.
        if random.below(3) > 0 {
            (f.windows, f.colocated) = (false, false);
        }
        let mut p = problem(&mut random, f, 5, 3, 6, None);
        let Some(best) = oracle::best(&p, ROOM) else { continue };
        let placed = place(&p, &PlacementOptions::default(), None).unwrap();
        assert_sound(&p, &placed);
        let space = &placed.plan.spaces[0];
        assert_eq!((space.peak.get(), space.lower_bound.get()), (best.peak, best.peak), "{p:#?}");
        optimal += 1;
        // One byte less than the best is infeasible, the best itself is not.
        for (capacity, fits) in [(best.peak, true), (best.peak - 1, false)] {
            p.spaces[0].capacity = Some(Bytes(capacity));
            p.goals = vec![Goal::Fit];
            let placed = place(&p, &PlacementOptions::default(), None).unwrap();
            assert_sound(&p, &placed);
            match placed.verdict {
                Verdict::Fits => assert!(fits, "{p:#?}"),
                Verdict::Infeasible(_) => assert!(!fits, "{p:#?}"),
                Verdict::Undecided => panic!("undecided: {p:#?}"),
            }
            *(if fits { &mut feasible } else { &mut infeasible }) += 1;
        }
    }
    assert!(optimal > 600 && infeasible == feasible);
}
