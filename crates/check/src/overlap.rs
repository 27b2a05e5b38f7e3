//! No two live buffers share bytes: a sweep over the steps of each space.
//!
//! ```text
//!  bytes   |  aaaa  bb        at each step the live pieces are kept by their first byte;
//!          |  cc  dddd        a piece that starts asks only those it meets.
//!          +-----------> step
//! ```
//! Pieces that share bytes with another (by declared colocation, or wrongly) leave the ordered
//! set for a plain list, so that the set stays disjoint and a look at the neighbours is complete.

use crate::{Found, Violation};
use npumem_ir::{BufferId, ByteRange, Plan, Problem, SpaceId, StepRange};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of one space that a buffer holds for some steps.
#[derive(Clone, Copy)]
struct Piece {
    buffer: BufferId,
    bytes: ByteRange,
    steps: StepRange,
}

pub(crate) fn check(problem: &Problem, plan: &Plan, found: &mut Found<'_>) {
    let mut by_space: Vec<Vec<Piece>> = vec![Vec::new(); problem.spaces.len()];
    for residency in &plan.residencies {
        let buffer = &problem.buffers[residency.buffer.index()];
        for live in &buffer.live {
            let window = buffer.window(live);
            let start = residency.offset.checked_add(window.start.0);
            let end = residency.offset.checked_add(window.end.0);
            let (Some(start), Some(end), Some(steps)) = (start, end, live.steps.intersection(&residency.steps)) else {
                continue;
            };
            let bytes = ByteRange { start, end };
            if !bytes.is_empty() {
                by_space[residency.space.index()].push(Piece { buffer: residency.buffer, bytes, steps });
            }
        }
    }
    let allowed = Allowed::new(problem);
    for (index, pieces) in by_space.iter_mut().enumerate() {
        sweep(SpaceId::new(index), pieces, &allowed, found);
    }
}

/// One space: pieces in the order of their first step; what has ended leaves first.
fn sweep(space: SpaceId, pieces: &mut [Piece], allowed: &Allowed, found: &mut Found<'_>) {
    pieces.sort_by_key(|piece| (piece.steps.start, piece.bytes.start, piece.buffer));
    let mut ends: BTreeSet<(u64, usize)> = BTreeSet::new();
    let mut disjoint: BTreeMap<u64, usize> = BTreeMap::new();
    let mut shared: BTreeSet<usize> = BTreeSet::new();
    for (index, piece) in pieces.iter().enumerate() {
        if found.is_full() {
            return;
        }
        while let Some(&(end, gone)) = ends.first()
            && end <= piece.steps.start.0
        {
            ends.pop_first();
            if !shared.remove(&gone) {
                disjoint.remove(&pieces[gone].bytes.start.0);
            }
        }
        let below = disjoint.range(..piece.bytes.start.0).next_back().map(|(_, other)| *other);
        let within = disjoint.range(piece.bytes.start.0..piece.bytes.end.0).map(|(_, other)| *other);
        let met: Vec<usize> =
            below.into_iter().chain(within).filter(|other| pieces[*other].bytes.overlaps(&piece.bytes)).collect();
        for other in met.iter().copied().chain(shared.iter().copied()) {
            pair(space, &pieces[other], piece, allowed, found);
        }
        ends.insert((piece.steps.end.0, index));
        if met.is_empty() {
            disjoint.insert(piece.bytes.start.0, index);
        } else {
            shared.insert(index);
        }
    }
}

fn pair(space: SpaceId, a: &Piece, b: &Piece, allowed: &Allowed, found: &mut Found<'_>) {
    let (Some(bytes), Some(steps)) = (a.bytes.intersection(&b.bytes), a.steps.intersection(&b.steps)) else { return };
    if allowed.may_share(a.buffer, b.buffer) {
        return;
    }
    let (low, high) = if (a.bytes.start, a.buffer) <= (b.bytes.start, b.buffer) { (a, b) } else { (b, a) };
    found.push(Violation::Overlap {
        first: found.name(low.buffer),
        second: found.name(high.buffer),
        space: found.space(space),
        bytes,
        steps,
    });
}

/// Which pairs the problem allows to share bytes while both are live.
struct Allowed {
    /// The representative of each buffer's set of colocated buffers.
    group: Vec<usize>,
    never_coexist: BTreeSet<(BufferId, BufferId)>,
}

impl Allowed {
    fn new(problem: &Problem) -> Self {
        let mut group: Vec<usize> = (0..problem.buffers.len()).collect();
        let root = |group: &mut Vec<usize>, mut index: usize| {
            while group[index] != index {
                group[index] = group[group[index]];
                index = group[index];
            }
            index
        };
        for rule in &problem.constraints.colocated {
            let known = rule.buffer.index() < group.len() && rule.base.index() < group.len();
            if known {
                let (a, b) = (root(&mut group, rule.buffer.index()), root(&mut group, rule.base.index()));
                group[a.max(b)] = a.min(b);
            }
        }
        for index in 0..group.len() {
            group[index] = root(&mut group, index);
        }
        let ordered = |a: BufferId, b: BufferId| (a.min(b), a.max(b));
        let never_coexist = problem.constraints.never_coexist.iter().map(|(a, b)| ordered(*a, *b)).collect();
        Allowed { group, never_coexist }
    }

    fn may_share(&self, a: BufferId, b: BufferId) -> bool {
        a != b && (self.group[a.index()] == self.group[b.index()] || self.never_coexist.contains(&(a.min(b), a.max(b))))
    }
}
