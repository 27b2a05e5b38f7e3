//! Exhaustive search over offsets, straight from the definitions: for problems of a few buffers and bytes.

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
        if alone(p, k, offset) && (0..k).all(|other| pair(p, at, other, k)) {
            descend(p, room, at, k + 1, best);
        }
    }
}

fn alone(p: &Problem, k: usize, offset: u64) -> bool {
    let b = &p.buffers[k];
    let space = p.space(SpaceId::new(0));
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
