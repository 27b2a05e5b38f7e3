//! Exhaustive search over offsets, straight from the definitions: for problems of a few buffers and bytes.

use npumem_ir::problem::{Buffer, Goal};
use npumem_ir::{BufferId, Problem, SpaceId};

/// The best that any placement in one space of `room` bytes reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Best {
    pub peak: u64,
    /// Least penalty among placements within `room`.
    pub cost: u64,
}

/// Tries every offset of every buffer below `room`; `None` when nothing is valid.
pub fn best(p: &Problem, room: u64) -> Option<Best> {
    let mut at = vec![0u64; p.buffers.len()];
    let mut best: Option<Best> = None;
    descend(p, room, &mut at, 0, &mut best);
    best
}

fn descend(p: &Problem, room: u64, at: &mut Vec<u64>, k: usize, best: &mut Option<Best>) {
    if k == p.buffers.len() {
        let peak = p
            .buffers
            .iter()
            .zip(at.iter())
            .filter(|(b, _)| b.size.get() > 0)
            .map(|(b, &o)| o + b.size.get())
            .max()
            .unwrap_or(0);
        let cost = cost(p, at);
        *best = Some(match *best {
            None => Best { peak, cost },
            Some(b) => Best { peak: b.peak.min(peak), cost: b.cost.min(cost) },
        });
        return;
    }
    let b = &p.buffers[k];
    for offset in 0..=room {
        if offset + b.size.get() > room {
            break;
        }
        at[k] = offset;
        if alone(p, k, SpaceId::new(0), offset) && (0..k).all(|other| pair(p, at, other, k)) {
            descend(p, room, at, k + 1, best);
        }
    }
}

fn alone(p: &Problem, k: usize, space: SpaceId, offset: u64) -> bool {
    let b = &p.buffers[k];
    let pinned_elsewhere = b.pin.is_some_and(|pin| pin.space != space);
    let space = p.space(space);
    if pinned_elsewhere {
        return false;
    }
    b.alignment.divides(npumem_ir::Offset(offset))
        && space.alignment.divides(npumem_ir::Offset(offset))
        && b.pin.is_none_or(|pin| pin.offset.get() == offset)
        && space
            .reserved
            .iter()
            .all(|r| b.size.get() == 0 || offset + b.size.get() <= r.start.get() || r.end.get() <= offset)
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < a.1 && b.0 < b.1 && a.0 < b.1 && b.0 < a.1
}

fn grouped(p: &Problem, a: usize, b: usize) -> bool {
    let mut reached = vec![false; p.buffers.len()];
    reached[a] = true;
    for _ in 0..p.buffers.len() {
        for c in &p.constraints.colocated {
            let (x, y) = (c.buffer.index(), c.base.index());
            if reached[x] || reached[y] {
                (reached[x], reached[y]) = (true, true);
            }
        }
    }
    reached[b]
}

fn pair(p: &Problem, at: &[u64], i: usize, j: usize) -> bool {
    let (x, y) = (&p.buffers[i], &p.buffers[j]);
    let is = |a: BufferId, b: BufferId| (a.index(), b.index()) == (i, j) || (a.index(), b.index()) == (j, i);
    let c = &p.constraints;
    let moved = |c: &npumem_ir::problem::Colocation| at[c.base.index()] + c.delta.get() == at[c.buffer.index()];
    if c.colocated.iter().any(|c| is(c.buffer, c.base) && !moved(c)) {
        return false;
    }
    let whole = overlap((at[i], at[i] + x.size.get()), (at[j], at[j] + y.size.get()));
    if whole && c.separated.iter().any(|s| is(s.first, s.second)) {
        return false;
    }
    if c.never_coexist.iter().any(|&(a, b)| is(a, b)) || grouped(p, i, j) {
        return true;
    }
    !x.live.iter().any(|l| {
        y.live.iter().any(|m| {
            let (v, w) = (x.window(l), y.window(m));
            l.steps.overlaps(&m.steps)
                && overlap((at[i] + v.start.get(), at[i] + v.end.get()), (at[j] + w.start.get(), at[j] + w.end.get()))
        })
    })
}

/// Total of the penalties paid.
pub fn cost(p: &Problem, at: &[u64]) -> u64 {
    let bytes = |b: BufferId| (at[b.index()], at[b.index()] + p.buffer(b).size.get());
    p.constraints.reuse_penalties.iter().filter(|r| overlap(bytes(r.first), bytes(r.second))).map(|r| r.cost).sum()
}

/// Where a buffer is: the space and the offset in it.
type Place = (SpaceId, u64);

/// What any plan within the capacities comes to by the goals, one after the other: every space and every offset tried.
/// A space without a capacity ends at `room`. `None` when nothing is valid.
pub fn sequence(p: &Problem, room: u64) -> Option<Vec<u64>> {
    let mut places: Vec<Place> = Vec::new();
    let mut best: Option<Vec<u64>> = None;
    assign(p, room, &mut places, &mut best);
    best
}

fn assign(p: &Problem, room: u64, places: &mut Vec<Place>, best: &mut Option<Vec<u64>>) {
    let k = places.len();
    if k == p.buffers.len() {
        let value = by_goals(p, places);
        if best.as_ref().is_none_or(|b| value < *b) {
            *best = Some(value);
        }
        return;
    }
    let b = &p.buffers[k];
    for &space in &b.spaces {
        let end = p.space(space).capacity.map_or(room, |c| c.get());
        for offset in 0..=end {
            if offset + b.size.get() > end {
                break;
            }
            places.push((space, offset));
            let at: Vec<u64> = places.iter().map(|p| p.1).collect();
            let clear = |other: usize| {
                if places[other].0 == space { pair(p, &at, other, k) } else { !colocated(p, other, k) }
            };
            if alone(p, k, space, offset) && (0..k).all(clear) {
                assign(p, room, places, best);
            }
            places.pop();
        }
    }
}

fn colocated(p: &Problem, a: usize, b: usize) -> bool {
    let is = |x: BufferId, y: BufferId| (x.index(), y.index()) == (a, b) || (x.index(), y.index()) == (b, a);
    p.constraints.colocated.iter().any(|c| is(c.buffer, c.base))
}

/// The goals' values of one plan, by their definitions.
pub fn by_goals(p: &Problem, places: &[Place]) -> Vec<u64> {
    let peak = |s: SpaceId| {
        let ends = p.buffers.iter().zip(places).filter(|(b, at)| b.size.get() > 0 && at.0 == s);
        ends.map(|(b, at)| at.1 + b.size.get()).max().unwrap_or(0)
    };
    let peaks: Vec<u64> = p.spaces().map(|(s, _)| peak(s)).collect();
    let mut out = Vec::new();
    for goal in p.goals() {
        match goal {
            Goal::Peak => out.extend(&peaks),
            Goal::TotalPeak => out.push(peaks.iter().sum()),
            Goal::MaxPeak => out.push(peaks.iter().copied().max().unwrap_or(0)),
            Goal::Fit => {}
            Goal::ReuseCost => out.push(paid(p, places)),
            Goal::KeepHints => {
                let left = |b: &Buffer, at: &Place| b.hint.is_some_and(|h| (h.space, h.offset.get()) != *at);
                out.push(p.buffers.iter().zip(places).filter(|(b, at)| left(b, at)).map(|(b, _)| b.size.get()).sum());
            }
            Goal::Traffic => out.push(p.buffers.iter().zip(places).map(|(b, at)| traffic(p, b, at.0)).sum()),
        }
    }
    out
}

fn paid(p: &Problem, places: &[Place]) -> u64 {
    let bytes = |b: BufferId| (places[b.index()].1, places[b.index()].1 + p.buffer(b).size.get());
    let shared = |a: BufferId, b: BufferId| places[a.index()].0 == places[b.index()].0 && overlap(bytes(a), bytes(b));
    p.constraints.reuse_penalties.iter().filter(|r| shared(r.first, r.second)).map(|r| r.cost).sum()
}

/// A buffer's size once per live range, unless it is in the first space that it and what it is colocated with may share.
fn traffic(p: &Problem, b: &Buffer, space: SpaceId) -> u64 {
    let own = p.buffers.iter().position(|x| std::ptr::eq(x, b)).unwrap_or(0);
    let mates = (0..p.buffers.len()).filter(|&k| grouped(p, own, k));
    let allowed = |s: &SpaceId| {
        mates.clone().all(|k| p.buffers[k].spaces.contains(s) && p.buffers[k].pin.is_none_or(|pin| pin.space == *s))
    };
    let first = b.spaces.iter().copied().find(allowed);
    if first == Some(space) { 0 } else { b.size.get() * b.live.len() as u64 }
}
