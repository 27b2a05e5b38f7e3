//! From the public problem to one raw problem per space, given who lives where.

use super::instance::{Contradiction, Live, SpaceBuffer, SpaceProblem, misaligned};
use super::result::{Cause, Conflict, PlacementError};
use npumem_ir::problem::{Goal, Sizing};
use npumem_ir::{BufferId, Problem, SpaceId};

/// Checks ids and ranges; everything after may index freely.
pub(crate) fn validate(problem: &Problem) -> Result<(), PlacementError> {
    let count = problem.buffers.len();
    for (id, b) in problem.buffers() {
        if b.spaces.is_empty() {
            return Err(PlacementError::NoSpace { buffer: id, name: b.name.clone() });
        }
        let named = b.spaces.iter().copied().chain(b.pin.map(|p| p.space)).chain(b.hint.map(|h| h.space));
        for space in named {
            if space.index() >= problem.spaces.len() {
                return Err(PlacementError::UnknownSpace {
                    buffer: id,
                    name: b.name.clone(),
                    space,
                    count: problem.spaces.len(),
                });
            }
        }
        for (index, l) in b.live.iter().enumerate() {
            let window = b.window(l);
            if l.steps.start >= l.steps.end || window.start > window.end || window.end.get() > b.size.get() {
                return Err(PlacementError::BadRange { buffer: id, name: b.name.clone(), index });
            }
        }
    }
    let known = |place: &'static str, buffer: BufferId| {
        if buffer.index() < count { Ok(()) } else { Err(PlacementError::UnknownBuffer { place, buffer, count }) }
    };
    let c = &problem.constraints;
    for x in &c.colocated {
        known("a colocation", x.buffer)?;
        known("a colocation", x.base)?;
        if x.delta.get() > i64::MAX as u64 {
            return Err(too_large(problem, x.buffer));
        }
    }
    for x in &c.separated {
        known("a separation", x.first)?;
        known("a separation", x.second)?;
    }
    for x in &c.never_coexist {
        known("a never-coexisting pair", x.0)?;
        known("a never-coexisting pair", x.1)?;
    }
    for x in &c.reuse_penalties {
        known("a reuse penalty", x.first)?;
        known("a reuse penalty", x.second)?;
    }
    Ok(())
}

/// Of each group's root: `Some(true)` when the plan places it, `Some(false)` when a run-time pool serves it
/// (nothing bounds the size of a member), `None` when no member is ever live.
pub(crate) fn placed_groups(problem: &Problem, root: &[u32]) -> Vec<Option<bool>> {
    let mut placed = vec![None; root.len()];
    for (id, b) in problem.buffers() {
        let slot = &mut placed[root[id.index()] as usize];
        if b.sizing == Sizing::Unbounded {
            *slot = Some(false);
        } else if !b.live.is_empty() && slot.is_none() {
            *slot = Some(true);
        }
    }
    placed
}

/// Root of each buffer's colocated group.
pub(crate) fn groups(problem: &Problem) -> Vec<u32> {
    let mut parent: Vec<u32> = (0..problem.buffers.len() as u32).collect();
    fn find(parent: &mut [u32], mut x: u32) -> u32 {
        while parent[x as usize] != x {
            parent[x as usize] = parent[parent[x as usize] as usize];
            x = parent[x as usize];
        }
        x
    }
    for c in &problem.constraints.colocated {
        let (a, b) = (find(&mut parent, c.buffer.0), find(&mut parent, c.base.0));
        let (low, high) = (a.min(b), a.max(b));
        parent[high as usize] = low;
    }
    (0..parent.len() as u32).map(|b| find(&mut parent, b)).collect()
}

/// Spaces that each group may live in, by root; `Err` when a group has none.
pub(crate) fn allowed_spaces(problem: &Problem, root: &[u32]) -> Result<Vec<Vec<SpaceId>>, PlacementError> {
    let mut allowed: Vec<Option<Vec<SpaceId>>> = vec![None; root.len()];
    for (id, b) in problem.buffers() {
        let mut own = b.spaces.clone();
        if let Some(pin) = b.pin {
            own.retain(|&s| s == pin.space);
        }
        own.sort_unstable();
        own.dedup();
        let slot = &mut allowed[root[id.index()] as usize];
        match slot {
            None => *slot = Some(own),
            Some(before) => before.retain(|s| own.contains(s)),
        }
        if slot.as_ref().is_some_and(Vec::is_empty) {
            let r = root[id.index()];
            let buffers: Vec<BufferId> =
                (0..root.len()).filter(|&k| root[k] == r && k <= id.index()).map(BufferId::new).collect();
            return Err(PlacementError::Contradiction(Conflict {
                space: b.pin.map_or(b.spaces[0], |p| p.space),
                buffers,
                steps: vec![],
                needed: None,
                capacity: None,
                irreducible: false,
                cause: Cause::Spaces,
            }));
        }
    }
    let mut allowed: Vec<Vec<SpaceId>> = allowed.into_iter().map(Option::unwrap_or_default).collect();
    if !problem.constraints.colocated.is_empty() && allowed.iter().any(|spaces| spaces.len() > 1) {
        leave_misaligned(problem, root, &mut allowed);
    }
    Ok(allowed)
}

/// Takes from each group with a choice the spaces whose alignment no offset of it satisfies. A group that has no other
/// keeps them all, and is refused for its alignments.
fn leave_misaligned(problem: &Problem, root: &[u32], allowed: &mut [Vec<SpaceId>]) {
    let mut holds: Vec<Vec<SpaceId>> = allowed.to_vec();
    for (space, _) in problem.spaces() {
        let choosing = |b: usize| allowed[root[b] as usize].len() > 1 && allowed[root[b] as usize].contains(&space);
        let home: Vec<_> = (0..root.len()).map(|b| choosing(b).then_some(space)).collect();
        let statement = &split(problem, &home)[space.index()];
        for b in misaligned(&statement.raw) {
            holds[root[statement.ids[b as usize].index()] as usize].retain(|&s| s != space);
        }
    }
    for (before, now) in allowed.iter_mut().zip(holds).filter(|(_, now)| !now.is_empty()) {
        *before = now;
    }
}

/// The raw problem of one space, and which buffer each of its positions is.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub space: SpaceId,
    pub raw: SpaceProblem,
    pub ids: Vec<BufferId>,
}

/// Splits the problem by space; `home[buffer]` is the space of each placed buffer.
pub(crate) fn split(problem: &Problem, home: &[Option<SpaceId>]) -> Vec<Statement> {
    let keep_hints = problem.goals.contains(&Goal::KeepHints);
    let mut out: Vec<Statement> = problem
        .spaces()
        .map(|(space, s)| Statement {
            space,
            raw: SpaceProblem {
                capacity: s.capacity.map(|c| c.get()),
                reserved: s.reserved.iter().map(|r| (r.start.get(), r.end.get())).collect(),
                keep_hints,
                ..SpaceProblem::default()
            },
            ids: Vec::new(),
        })
        .collect();
    let mut position = vec![u32::MAX; home.len()];
    for (id, b) in problem.buffers() {
        let Some(space) = home[id.index()] else { continue };
        let statement = &mut out[space.index()];
        position[id.index()] = statement.ids.len() as u32;
        statement.ids.push(id);
        let alignment = lcm(b.alignment.get(), problem.space(space).alignment.get());
        statement.raw.buffers.push(SpaceBuffer {
            size: b.size.get(),
            alignment,
            live: b
                .live
                .iter()
                .map(|l| {
                    let w = b.window(l);
                    Live { start: l.steps.start.get(), end: l.steps.end.get(), low: w.start.get(), high: w.end.get() }
                })
                .collect(),
            pin: b.pin.map(|p| p.offset.get()),
            hint: b.hint.filter(|h| h.space == space).map(|h| h.offset.get()),
        });
    }
    let shared = |a: BufferId, b: BufferId| match (home[a.index()], home[b.index()]) {
        (Some(x), Some(y)) if x == y => Some((x.index(), position[a.index()], position[b.index()])),
        _ => None,
    };
    let c = &problem.constraints;
    for x in &c.colocated {
        if let Some((s, a, b)) = shared(x.buffer, x.base) {
            out[s].raw.colocated.push((a, b, x.delta.get() as i64));
        }
    }
    for x in &c.separated {
        if let Some((s, a, b)) = shared(x.first, x.second) {
            out[s].raw.apart.push((a, b));
        }
    }
    for &(a, b) in &c.never_coexist {
        if let Some((s, a, b)) = shared(a, b) {
            out[s].raw.exclusive.push((a, b));
        }
    }
    for x in &c.reuse_penalties {
        if let Some((s, a, b)) = shared(x.first, x.second) {
            out[s].raw.penalties.push((a, b, x.cost));
        }
    }
    out
}

/// Least common multiple; past 64 bits an alignment that no size check lets through.
fn lcm(a: u64, b: u64) -> u64 {
    (a / super::arith::gcd(a, b)).saturating_mul(b)
}

/// The error for a buffer at which the arithmetic ends.
fn too_large(problem: &Problem, buffer: BufferId) -> PlacementError {
    let b = problem.buffer(buffer);
    let of_spaces = b.spaces.iter().map(|&s| problem.space(s).alignment.get());
    let alignment = of_spaces.fold(b.alignment.get(), lcm);
    PlacementError::TooLarge { buffer, name: b.name.clone(), size: b.size, alignment }
}

/// Puts names on a contradiction.
pub(crate) fn contradiction(problem: &Problem, statement: &Statement, found: &Contradiction) -> PlacementError {
    let (buffers, cause) = match found {
        Contradiction::Colocation { buffers } => (buffers, Cause::Colocation),
        Contradiction::Pins { buffers } => (buffers, Cause::Pins),
        Contradiction::Alignment { buffers } => (buffers, Cause::Alignment),
        Contradiction::Separation { buffers } => (buffers, Cause::Separation),
        Contradiction::TooLarge { buffers } => {
            let space = statement.space;
            return match buffers.first() {
                Some(&b) => too_large(problem, statement.ids[b as usize]),
                None => PlacementError::ReservedTooHigh { space, name: problem.space(space).name.clone() },
            };
        }
    };
    let mut buffers: Vec<BufferId> = buffers.iter().map(|&b| statement.ids[b as usize]).collect();
    buffers.sort_unstable();
    buffers.dedup();
    PlacementError::Contradiction(Conflict {
        space: statement.space,
        buffers,
        steps: vec![],
        needed: None,
        capacity: None,
        irreducible: false,
        cause,
    })
}
