//! Goals one after the other, and the choice of spaces, against exhaustive search: the space and the offset of every buffer.

use crate::generate::{Features, Random, problem};
use crate::{blame, oracle};
use npumem_ir::problem::{Goal, Location};
use npumem_ir::{Bytes, Offset, Problem, SpaceId};
use npumem_planner::placement::{Placement, PlacementError, PlacementOptions, Verdict, place};

/// Where a space without a capacity ends for the oracle: far enough to keep everything apart.
pub const ROOM: u64 = 13;

const GOALS: [Goal; 7] =
    [Goal::Peak, Goal::TotalPeak, Goal::MaxPeak, Goal::Fit, Goal::ReuseCost, Goal::KeepHints, Goal::Traffic];

#[derive(Debug, Default)]
struct Counts {
    solved: u64,
    infeasible: u64,
    irreducible: u64,
    /// Plans that are better than all that the oracle saw, and past its room.
    past_room: u64,
    refused: u64,
    choosing: u64,
}

/// One to four goals, each at most once.
fn goals(random: &mut Random) -> Vec<Goal> {
    let mut all = GOALS.to_vec();
    (0..1 + random.below(4)).map(|_| all.swap_remove(random.below(all.len() as u64) as usize)).collect()
}

/// A problem with some of all features.
pub fn drawn(random: &mut Random) -> Problem {
    let mut f = Features::drawn(random);
    f.spaces = 1 + random.below(3);
    f.byteless = random.chance(15);
    f.penalties = random.chance(60);
    let buffers = if f.spaces == 1 { 5 } else { 4 };
    let capacity = 2 + random.below(5);
    let mut p = problem(random, f, buffers, 3, 5, Some(capacity));
    for s in &mut p.spaces {
        s.capacity = Some(Bytes((capacity + random.below(3)).saturating_sub(random.below(4))));
    }
    if f.spaces > 1
        && random.chance(20)
        && let Some(last) = p.spaces.last_mut()
    {
        last.capacity = None;
    }
    if random.chance(50) {
        for b in &mut p.buffers {
            if random.chance(60) {
                let space = b.spaces[random.below(b.spaces.len() as u64) as usize];
                b.hint = Some(Location { space, offset: Offset(random.below(6)) });
            }
        }
    }
    p.goals = goals(random);
    p
}

/// What a plan comes to, from its residencies alone.
fn reached(p: &Problem, placed: &Placement) -> Vec<u64> {
    let at =
        |k: usize| placed.plan.residencies.iter().find(|r| r.buffer.index() == k).map(|r| (r.space, r.offset.get()));
    let places: Vec<(SpaceId, u64)> = (0..p.buffers.len()).filter_map(at).collect();
    assert_eq!(places.len(), p.buffers.len(), "{p:#?}");
    oracle::by_goals(p, &places)
}

fn agree(seed: u64, counts: &mut Counts) -> Result<(), String> {
    let mut random = Random(seed);
    let p = drawn(&mut random);
    let mut options = PlacementOptions { seed, threads: 1 + (seed % 2) as usize, ..PlacementOptions::default() };
    for (name, _) in options.switches.list().into_iter().take(9) {
        options.switches.set(name, !random.chance(15));
    }
    let best = oracle::sequence(&p, ROOM);
    let wrong = |what: String| Err(format!("seed {seed}: {what}, best {best:?}\n{}", p.to_text()));
    let placed = match place(&p, &options, None) {
        Ok(placed) => placed,
        Err(PlacementError::Contradiction(_)) if best.is_none() => {
            counts.refused += 1;
            return Ok(());
        }
        Err(e) => return wrong(e.to_string()),
    };
    let found = npumem_check::check(&p, &placed.plan).violations;
    let beyond = |kind: &str| kind != "outside-capacity" || placed.verdict == Verdict::Fits;
    if let Some(v) = found.iter().find(|v| beyond(v.kind())) {
        return wrong(v.to_string());
    }
    counts.choosing += u64::from(placed.traffic.is_some());
    let reached = reached(&p, &placed);
    // The oracle does not look past its room: a plan that goes there may be better than all that it saw.
    let past = p.spaces.iter().zip(&placed.plan.spaces).any(|(s, u)| s.capacity.is_none() && u.peak.get() > ROOM);
    if past && placed.verdict == Verdict::Fits && best.as_ref().is_none_or(|best| reached < *best) {
        counts.past_room += 1;
        return Ok(());
    }
    match (&placed.verdict, &best) {
        (Verdict::Fits, Some(best)) => {
            counts.solved += 1;
            if reached != *best {
                wrong(format!("reached {reached:?} by {}", placed.plan.origin.method))
            } else {
                Ok(())
            }
        }
        (Verdict::Infeasible(conflict), None) if !conflict.buffers.is_empty() => {
            counts.infeasible += 1;
            counts.irreducible += u64::from(conflict.irreducible);
            blame::wrong(&p, conflict).map_or(Ok(()), wrong)
        }
        (verdict, _) => wrong(format!("{verdict:?}")),
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// `cargo xtask soak placement_sequences` runs many times as many; `NPUMEM_PLACEMENT_SEED` shifts the seeds.
#[test]
fn placement_sequences_soak() {
    let factor = number("NPUMEM_SOAK", 1);
    let first = number("NPUMEM_PLACEMENT_SEED", 5_000);
    let mut counts = Counts::default();
    let mut wrong = Vec::new();
    for seed in first..first + 1_500 * factor {
        wrong.extend(agree(seed, &mut counts).err());
    }
    assert!(
        wrong.is_empty(),
        "{} wrong, the first:\n{}",
        wrong.len(),
        wrong.join("\n").chars().take(6_000).collect::<String>()
    );
    println!("{counts:?} of {} seeds from {first}", 1_500 * factor);
    let decided = counts.solved + counts.infeasible;
    assert!(decided > 1_000 * factor && counts.infeasible * 3 >= decided, "{counts:?}");
    assert!(counts.irreducible * 100 >= counts.infeasible * 99, "{counts:?}");
    assert!(counts.past_room <= 2 * factor, "{counts:?}");
    assert!(counts.choosing > 300 * factor && counts.refused > 0, "{counts:?}");
}
