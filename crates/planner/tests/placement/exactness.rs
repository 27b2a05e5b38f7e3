//! Verdicts, bounds and costs against exhaustive search, on many small problems with every feature.
//!
//! `cargo xtask soak placement_exactness` runs a hundred times as many; `NPUMEM_PLACEMENT_SEED` shifts the seeds.

use crate::generate::{Features, Random, problem};
use crate::oracle;
use crate::random::assert_sound;
use npumem_ir::problem::Goal;
use npumem_ir::{Bytes, Problem};
use npumem_planner::placement::{PlacementError, PlacementOptions, Verdict, place};

/// Offsets that the oracle tries.
const ROOM: u64 = 11;

/// What the cases came to.
#[derive(Debug, Default)]
struct Counts {
    fits: u64,
    infeasible: u64,
    refused: u64,
    /// Costs asked for, and proven.
    costs: u64,
    cheapest: u64,
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// One problem at a capacity of which half are too small, with any of the switches off.
fn agree(seed: u64, counts: &mut Counts) {
    let mut random = Random(seed);
    let mut f = Features::drawn(&mut random);
    if random.chance(50) {
        (f.windows, f.colocated) = (false, false);
    }
    f.byteless = random.chance(40);
    let mut p = problem(&mut random, f, 5, 3, 6, None);
    let mut options = PlacementOptions { seed, threads: 1 + (seed % 2) as usize, ..PlacementOptions::default() };
    for (name, _) in options.switches.list().into_iter().take(8) {
        options.switches.set(name, !random.chance(25));
    }
    let Some(best) = oracle::best(&p, ROOM) else {
        match place(&p, &options, None) {
            Ok(placed) => assert!(f.byteless || placed.plan.spaces[0].peak.get() > ROOM, "seed {seed}: {p:#?}"),
            Err(PlacementError::Contradiction(_)) => counts.refused += 1,
            Err(e) => panic!("seed {seed}: {e}"),
        }
        return;
    };
    let smallest = best.peak;
    let capacity =
        if random.chance(50) { smallest.saturating_sub(1 + random.below(2)) } else { smallest + random.below(3) };
    p.spaces[0].capacity = Some(Bytes(capacity));
    p.goals = if random.chance(50) { vec![Goal::Peak] } else { vec![Goal::Fit, Goal::ReuseCost] };
    // A buffer of no bytes has no part in the peak, but its address may not pass the capacity.
    let feasible = oracle::best(&p, capacity);
    let placed = place(&p, &options, None).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{p:#?}"));
    assert_sound(&p, &placed);
    match &placed.verdict {
        Verdict::Fits => {
            assert!(feasible.is_some(), "seed {seed}: {p:#?}");
            counts.fits += 1;
        }
        Verdict::Infeasible(conflict) => {
            assert!(feasible.is_none() && !conflict.buffers.is_empty(), "seed {seed}: {conflict} {p:#?}");
            counts.infeasible += 1;
        }
        Verdict::Undecided => panic!("seed {seed}: undecided {p:#?}"),
    }
    let space = &placed.plan.spaces[0];
    assert!(space.lower_bound.get() <= smallest && smallest <= space.peak.get(), "seed {seed}: {p:#?}");
    if f.byteless {
        let stop = placed.plan.origin.stop;
        let wrong = stop == npumem_ir::plan::Stop::Optimal && feasible.is_some_and(|b| b.peak < space.peak.get());
        assert!(p.goals != [Goal::Peak] || !wrong, "seed {seed}: {p:#?}");
    } else if p.goals == [Goal::Peak] {
        assert_eq!((space.peak.get(), space.lower_bound.get()), (smallest, smallest), "seed {seed}: {p:#?}");
    } else if capacity >= smallest {
        cost(&p, seed, capacity, &placed, counts);
    }
}

fn cost(p: &Problem, seed: u64, capacity: u64, placed: &npumem_planner::placement::Placement, counts: &mut Counts) {
    let Some(best) = oracle::best(p, capacity) else { return };
    let (paid, bound) = (placed.reuse_cost, placed.reuse_cost_bound);
    assert!(bound <= best.cost && best.cost <= paid, "seed {seed}: {bound} {} {paid} {p:#?}", best.cost);
    counts.costs += 1;
    counts.cheapest += u64::from(paid == bound);
}

#[test]
fn placement_exactness_soak() {
    let factor = number("NPUMEM_SOAK", 1);
    let first = number("NPUMEM_PLACEMENT_SEED", 1_000);
    let mut counts = Counts::default();
    for seed in first..first + 2_000 * factor {
        agree(seed, &mut counts);
    }
    println!("{counts:?} of {} seeds from {first}", 2_000 * factor);
    let decided = counts.fits + counts.infeasible;
    assert!(decided > 1_000 * factor && counts.infeasible * 3 >= decided, "{counts:?}");
    assert!(counts.refused > 0 && counts.cheapest * 100 >= counts.costs * 95, "{counts:?}");
}

fn named(text: &str) -> Problem {
    Problem::from_text(text).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn buffers_of_no_bytes_take_no_part_in_the_search() {
    let p = named(
        "npumem-problem 1\nname w\nspace S capacity=8 align=2 reserved=[6,7)\nbuffer a size=0 live=[2,5)\n\
         buffer b size=1 live=[3,5) align=3\nbuffer c size=1 live=[3,5),[7,10)\n",
    );
    let placed = place(&p, &PlacementOptions::default(), None).unwrap();
    assert_sound(&p, &placed);
    assert_eq!((&placed.verdict, placed.plan.spaces[0].peak), (&Verdict::Fits, Bytes(3)));
}

#[test]
fn a_buffer_of_no_bytes_past_the_capacity_is_infeasible() {
    for text in [
        "npumem-problem 1\nname z\nspace S capacity=7\nbuffer a size=0 live=[0,1) pin=S+8\n",
        "npumem-problem 1\nname z2\nspace S capacity=7\nbuffer a size=7 live=[0,1)\nbuffer b size=1 live=[2,3)\n\
         buffer d size=0 live=[0,1)\ncolocated d b delta=9\n",
    ] {
        let p = named(text);
        let placed = place(&p, &PlacementOptions::default(), None).unwrap();
        assert!(matches!(placed.verdict, Verdict::Infeasible(_)), "{:?}", placed.verdict);
    }
}

#[test]
fn optimal_is_claimed_only_when_every_goal_is_proven() {
    use npumem_ir::plan::Stop;
    let max_peak = "npumem-problem 1\nname mp\ngoal max-peak\nspace S0 capacity=8\nspace S1 capacity=8\n\
        buffer b0 size=3 live=[0,1) in=S0,S1\nbuffer b1 size=3 live=[0,1) in=S0,S1\n";
    let hints = "npumem-problem 1\nname h\ngoal keep-hints\ngoal reuse-cost\nspace S capacity=8\n\
        buffer a size=2 live=[0,1) hint=S+0\nbuffer b size=2 live=[2,3) hint=S+0\nreuse-penalty a b cost=1\n";
    for (text, without, peak) in [(max_peak, 6, 3), (hints, 4, 2)] {
        let placed = place(&named(text), &PlacementOptions::default(), None).unwrap();
        assert_eq!((placed.plan.origin.stop, placed.plan.spaces[0].peak), (Stop::Optimal, Bytes(peak)), "{text}");
        // Without the exact search it may be no better, and says so.
        let mut options = PlacementOptions::default();
        options.switches.set("exact", false);
        let placed = place(&named(text), &options, None).unwrap();
        assert!(placed.plan.spaces[0].peak <= Bytes(without) && placed.plan.origin.stop != Stop::Optimal, "{text}");
    }
    let text = "npumem-problem 1\nname k\ngoal reuse-cost\ngoal peak\nspace S capacity=10 align=3\n\
         buffer a size=2 live=[0,1) align=2\nbuffer b size=3 live=[0,1)\n";
    let placed = place(&named(text), &PlacementOptions::default(), None).unwrap();
    // Multiples of three and of six: b at 3, above a.
    assert_eq!((placed.plan.origin.stop, placed.plan.spaces[0].peak), (Stop::Optimal, Bytes(6)), "{text}");
}

/// Members of one group that never coexist with each other were counted once each where they live together.
#[test]
fn members_that_never_coexist_are_one_load() {
    let p = named(
        "npumem-problem 1\nname g\nspace S capacity=3\nbuffer b0 size=1 live=[1,3)\nbuffer b1 size=1 live=[0,2) align=4\n\
         buffer b3 size=1 live=[2,3)\ncolocated b0 b1 delta=0\ncolocated b1 b3 delta=0\nnever-coexist b1 b3\n",
    );
    let placed = place(&p, &PlacementOptions::default(), None).unwrap();
    assert_sound(&p, &placed);
    assert_eq!((&placed.verdict, placed.plan.spaces[0].lower_bound), (&Verdict::Fits, Bytes(1)));
}

/// A hundred buffers of which a third of the pairs never coexist took 40 seconds and ended far from their bound.
#[test]
fn pairs_that_never_coexist_are_counted_truly() {
    let mut random = Random(3);
    let mut text = "npumem-problem 1\nname nc\nspace S\n".to_owned();
    for i in 0..100 {
        let start = random.below(100);
        text +=
            &format!("buffer b{i} size={} live=[{start},{})\n", 1 + random.below(1_000), start + 1 + random.below(60));
    }
    for i in 0..100 {
        for j in 0..i {
            if random.chance(30) {
                text += &format!("never-coexist b{i} b{j}\n");
            }
        }
    }
    let p = named(&text);
    let options = PlacementOptions { budget: Some(200_000_000), ..PlacementOptions::default() };
    let placed = place(&p, &options, None).unwrap();
    assert_sound(&p, &placed);
    let space = &placed.plan.spaces[0];
    println!("{} {} {:?} {:?}", space.peak, space.lower_bound, placed.plan.origin.stop, placed.plan.origin.work);
    assert!(space.peak.get() * 10 <= space.lower_bound.get() * 14, "{} {}", space.peak, space.lower_bound);
}
