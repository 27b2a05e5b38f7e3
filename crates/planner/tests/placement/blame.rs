//! A conflict is a set of buffers that alone cannot be placed, and can without any one of them: by exhaustive search.

use crate::generate::Random;
use crate::{oracle, sequences};
use npumem_ir::problem::Goal;
use npumem_ir::{BufferId, Problem};
use npumem_planner::placement::{Cause, Conflict, Effort, PlacementOptions, Verdict, place};

/// The problem with some buffers only, and the constraints among them.
fn cut(p: &Problem, kept: &[BufferId]) -> Problem {
    let place = |id: BufferId| kept.iter().position(|k| *k == id).map(BufferId::new);
    let mut q =
        Problem { buffers: kept.iter().map(|id| p.buffer(*id).clone()).collect(), goals: vec![Goal::Fit], ..p.clone() };
    q.constraints = Default::default();
    for mut c in p.constraints.colocated.iter().copied() {
        if let (Some(buffer), Some(base)) = (place(c.buffer), place(c.base)) {
            (c.buffer, c.base) = (buffer, base);
            q.constraints.colocated.push(c);
        }
    }
    for mut s in p.constraints.separated.iter().cloned() {
        if let (Some(first), Some(second)) = (place(s.first), place(s.second)) {
            (s.first, s.second) = (first, second);
            q.constraints.separated.push(s);
        }
    }
    for (first, second) in &p.constraints.never_coexist {
        q.constraints.never_coexist.extend(place(*first).zip(place(*second)));
    }
    q
}

/// What is wrong with a conflict, if something is.
pub fn wrong(p: &Problem, conflict: &Conflict) -> Option<String> {
    let fits = |kept: &[BufferId]| oracle::sequence(&cut(p, kept), sequences::ROOM).is_some();
    if fits(&conflict.buffers) {
        return Some(format!("these buffers fit: {conflict}"));
    }
    let spare = conflict.buffers.iter().find(|one| {
        let rest: Vec<BufferId> = conflict.buffers.iter().copied().filter(|id| id != *one).collect();
        !fits(&rest)
    });
    if let Some(spare) = spare.filter(|_| conflict.irreducible) {
        return Some(format!("not irreducible, {spare} can go: {conflict}"));
    }
    let live = |id: &BufferId| conflict.steps.iter().all(|s| p.buffer(*id).live.iter().any(|l| l.steps.contains(*s)));
    (!conflict.buffers.iter().all(live)).then(|| format!("not all live at its steps: {conflict}"))
}

#[test]
fn fast_names_a_conflict_of_buffers_too() {
    let (mut infeasible, mut irreducible) = (0, 0);
    for seed in 0..1_500 {
        let p = sequences::drawn(&mut Random(seed));
        let Ok(placed) = place(&p, &PlacementOptions::fast(), None) else { continue };
        let Verdict::Infeasible(conflict) = &placed.verdict else { continue };
        assert_eq!(wrong(&p, conflict), None, "seed {seed}\n{}", p.to_text());
        infeasible += 1;
        irreducible += u32::from(conflict.irreducible);
    }
    assert!(infeasible > 300 && irreducible * 10 > infeasible * 9, "{irreducible} of {infeasible}");
}

/// A buffer that moves with one that is bound to a small space is in its way only together with that one.
#[test]
fn a_narrowed_space_is_blamed_on_both() {
    let text = "npumem-problem 1\nname m\nspace S0 capacity=8\nspace S1 capacity=3\n\
                buffer a size=1 live=[0,2) in=S1\nbuffer b size=5 live=[1,3) in=S0,S1\ncolocated b a delta=0\n";
    let p = Problem::from_text(text).unwrap();
    for effort in [Effort::Fast, Effort::Normal, Effort::Thorough] {
        let placed = place(&p, &PlacementOptions { effort, ..PlacementOptions::default() }, None).unwrap();
        let Verdict::Infeasible(conflict) = placed.verdict else { panic!("it fits") };
        assert_eq!(conflict.buffers, [BufferId::new(0), BufferId::new(1)]);
        assert_eq!((conflict.cause, conflict.irreducible), (Cause::TooLarge, true));
    }
}
