//! Buffers of no bytes: nothing clashes with them, so no search, cut or bound sees them.
//!
//! A colocated group in which no buffer has bytes gets an address of its own: its pin, or the lowest that its
//! alignments allow. In a group with bytes a buffer of none still fixes the alignment and, as its address may not
//! pass the capacity, the ceiling; only where a plan passes it is the space solved again with such ends counted.

use super::counters::Meter;
use super::instance::{Instance, SpaceProblem};
use super::options::PlacementOptions;
use super::portfolio::{self, SpaceOutcome};
use super::result::{Cause, Conflict, Placement, PlacementError, Verdict};
use super::statement::{self, Statement};
use npumem_ir::plan::{Residency, Stop};
use npumem_ir::{BufferId, Bytes, Offset, Problem, SpaceId};

/// Where each placed buffer lives, without the groups that have no bytes, and of those groups alone.
pub(crate) fn part(
    problem: &Problem,
    root: &[u32],
    mut home: Vec<Option<SpaceId>>,
) -> (Vec<Option<SpaceId>>, Vec<Option<SpaceId>>) {
    let mut bytes = vec![false; root.len()];
    for (id, b) in problem.buffers() {
        bytes[root[id.index()] as usize] |= b.size.get() > 0;
    }
    let mut byteless = vec![None; home.len()];
    for (k, &r) in root.iter().enumerate() {
        if !bytes[r as usize] {
            byteless[k] = home[k].take();
        }
    }
    (home, byteless)
}

/// The addresses of groups without bytes.
pub(crate) struct Byteless {
    residencies: Vec<Residency>,
    /// The first group that reaches past the capacity.
    pub outside: Option<Conflict>,
}

/// Gives them addresses.
pub(crate) fn place(problem: &Problem, home: &[Option<SpaceId>]) -> Result<Byteless, PlacementError> {
    let mut out = Byteless { residencies: Vec::new(), outside: None };
    if home.iter().all(Option::is_none) {
        return Ok(out);
    }
    for mut s in statement::split(problem, home) {
        s.raw.whole = true;
        let instance = Instance::new(&s.raw).map_err(|c| statement::contradiction(problem, &s, &c))?;
        for item in &instance.items {
            let at = item.pin.unwrap_or_else(|| item.lowest_from(0));
            let ids = || item.members.iter().map(|m| s.ids[m.buffer as usize]);
            let mates = ids().find_map(|id| problem.buffer(id).lifetime());
            for m in &item.members {
                let buffer = s.ids[m.buffer as usize];
                let offset = Offset((at + m.delta) as u64 * instance.unit);
                if let Some(steps) = problem.buffer(buffer).lifetime().or(mates) {
                    out.residencies.push(Residency { buffer, space: s.space, offset, steps });
                }
            }
            let end = Bytes((at + item.height) as u64 * instance.unit);
            let capacity = problem.space(s.space).capacity;
            if capacity.is_some_and(|c| end > c) && out.outside.is_none() {
                let mut buffers: Vec<BufferId> = ids().collect();
                buffers.sort_unstable();
                out.outside = Some(Conflict {
                    space: s.space,
                    irreducible: buffers.len() == 1,
                    buffers,
                    steps: vec![],
                    needed: Some(end),
                    capacity,
                    cause: if item.pin.is_some() { Cause::Pins } else { Cause::TooLarge },
                });
            }
        }
    }
    Ok(out)
}

impl Byteless {
    /// Adds them to a plan of the rest.
    pub fn join(self, placed: &mut Placement) {
        placed.plan.residencies.extend(self.residencies);
        placed.plan.residencies.sort_unstable();
        if let Some(conflict) = self.outside
            && !matches!(placed.verdict, Verdict::Infeasible(_))
        {
            placed.verdict = Verdict::Infeasible(conflict);
        }
    }
}

/// Solves a space again with the ends of buffers without bytes counted; bounds stay those of `free`, without them.
pub(crate) fn within(
    problem: &Problem,
    s: &Statement,
    mut raw: SpaceProblem,
    free: &SpaceOutcome,
    options: &PlacementOptions,
    meter: &mut Meter,
) -> Result<(Instance, SpaceOutcome), PlacementError> {
    raw.whole = true;
    let instance = Instance::new(&raw).map_err(|c| statement::contradiction(problem, s, &c))?;
    let mut out = portfolio::solve(&instance, problem.goals(), options, meter)
        .map_err(|item| super::pin_clash(problem, s, &instance, item))?;
    out.infeasible |= out.bound.value > instance.capacity;
    out.bound = free.bound.clone();
    out.cost_bound = free.cost_bound;
    let bytes = |i: &super::instance::Item| i.members.iter().filter(|m| m.size > 0).map(|m| m.delta + m.size).max();
    let ends = instance.items.iter().zip(&out.offsets).map(|(i, &o)| o + bytes(i).unwrap_or(0));
    out.peak = ends.max().unwrap_or(0);
    if out.stop == Stop::Optimal && (out.peak > out.bound.value || out.cost > out.cost_bound) {
        out.stop = Stop::Exhausted;
    }
    Ok((instance, out))
}
