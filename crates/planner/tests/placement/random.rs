//! Every answer on generated problems passes the checker; every claim of the answer holds.

use crate::generate::{Features, Random, problem};
use crate::oracle;
use npumem_ir::Problem;
use npumem_planner::placement::{Placement, PlacementError, PlacementOptions, place};

/// The checker's violations other than a capacity that is honestly exceeded.
pub fn assert_sound(p: &Problem, placed: &Placement) {
    let found = npumem_check::check(p, &placed.plan);
    let wrong: Vec<_> =
        found.violations.iter().filter(|v| placed.plan.fits() || v.kind() != "outside-capacity").collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{p:#?}");
}

/// Offsets that the oracle tries.
const ROOM: u64 = 14;

#[test]
fn every_plan_is_sound_and_every_bound_holds() {
    let mut random = Random(1);
    let (mut solved, mut refused) = (0, 0);
    for _ in 0..3000 {
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
    assert!(solved > 1500 && refused > 50, "{solved} solved, {refused} refused");
}
