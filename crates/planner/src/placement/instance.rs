//! One memory space as the solvers see it: small integers, no names.
//!
//! ```text
//!  offset
//!    ^      item 1 = base + part (one rigid shape of two rectangles)
//!    |        +--------+
//!    |        | part   |delta 4      Rect { item 1, delta 4, size 2, start 2, end 4 }
//!    |   +----+---+----+
//!    |   |  base  |                  Rect { item 1, delta 0, size 4, start 1, end 3 }
//!    |   +--------+
//!    +---0----1---2----3----4---> time (rank of a distinct start or end)
//! ```
//!
//! A [`SpaceProblem`] is the raw statement in bytes and steps. [`Instance::new`] joins buffers that
//! must share into one *item* that moves as a whole, divides every coordinate by the largest unit
//! that loses nothing, and ranks the times. Everything downstream works on the instance; an offset
//! of an item is the offset of its lowest member, in units.

use super::arith::{align_down, align_up, gcd, merge_congruence};

/// A live range of a buffer and the byte window of it that is live then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub start: u64,
    pub end: u64,
    pub low: u64,
    pub high: u64,
}

/// A buffer of a [`SpaceProblem`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceBuffer {
    pub size: u64,
    pub alignment: u64,
    pub live: Vec<Live>,
    pub pin: Option<u64>,
    pub hint: Option<u64>,
}

/// The raw placement problem of one space; buffers are named by their position.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpaceProblem {
    pub capacity: Option<u64>,
    pub reserved: Vec<(u64, u64)>,
    pub buffers: Vec<SpaceBuffer>,
    /// `(buffer, base, delta)`: offset of buffer = offset of base + delta.
    pub colocated: Vec<(u32, u32, i64)>,
    pub apart: Vec<(u32, u32)>,
    pub exclusive: Vec<(u32, u32)>,
    /// `(first, second, weight)`: paid when the two byte ranges overlap.
    pub penalties: Vec<(u32, u32, u64)>,
    /// Hints are part of the goal, so the unit must be able to express them.
    pub keep_hints: bool,
    /// Buffers of no bytes count for the heights, which is exact at the capacity. Otherwise only bytes do, which is
    /// exact for the peak.
    pub whole: bool,
}

/// Why no instance can be built: the statement contradicts itself. Buffers by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contradiction {
    /// Two chains of colocations give different distances, or a pin disagrees with one.
    Colocation { buffers: Vec<u32> },
    /// The pins of two buffers of one colocated group disagree.
    Pins { buffers: Vec<u32> },
    /// A pinned offset is not a multiple of the alignment, or no offset satisfies all alignments.
    Alignment { buffers: Vec<u32> },
    /// Two buffers of one group share bytes that must be kept apart, or a buffer is kept apart from itself.
    Separation { buffers: Vec<u32> },
    /// The sum of the sizes does not fit the arithmetic.
    TooLarge { buffers: Vec<u32> },
}

/// A rectangle in time and bytes, at a fixed distance from its item's offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rect {
    pub delta: i64,
    pub size: i64,
    pub start: i32,
    pub end: i32,
    /// Position of the buffer in the space problem.
    pub buffer: u32,
}

/// Where a buffer is inside its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub buffer: u32,
    pub delta: i64,
    pub size: i64,
}

/// One rigid shape that gets one offset.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub rects: Vec<Rect>,
    /// The rectangles follow each other in time, as those of one buffer do.
    pub in_turn: bool,
    pub members: Vec<Member>,
    /// Offset = residue modulo align.
    pub align: i64,
    pub residue: i64,
    pub height: i64,
    pub pin: Option<i64>,
    pub hint: Option<i64>,
    pub start: i32,
    pub end: i32,
    /// Separated members of other items: `(other item, forbidden open interval of other - own)`.
    pub apart: Vec<(u32, i64, i64)>,
    /// Members that never coexist: `(own buffer, other item, other buffer)`.
    pub exclusive: Vec<(u32, u32, u32)>,
}

impl Item {
    /// One rectangle that fills the whole item, with no gap in its live range.
    pub fn is_rectangle(&self) -> bool {
        self.rects.len() == 1 && self.rects[0].delta == 0 && self.rects[0].size == self.height
    }

    /// All rectangles span the item's whole height, so only times differ.
    pub fn is_flat(&self) -> bool {
        self.rects.iter().all(|r| r.delta == 0 && r.size == self.height)
    }

    /// Rectangles that may be live in `[start, end)`: exactly those where they follow each other, else all.
    pub fn live_during(&self, start: i32, end: i32) -> &[Rect] {
        if !self.in_turn {
            return &self.rects;
        }
        let from = self.rects.partition_point(|r| r.end <= start);
        let to = self.rects.partition_point(|r| r.start < end);
        &self.rects[from..to.max(from)]
    }

    /// Joins rectangles of members that no other item tells apart; those that stay apart keep the order of their members.
    pub fn join_rects(&mut self) {
        if self.exclusive.is_empty() && self.rects.len() > 1 && !self.in_turn {
            merge_rects(&mut self.rects);
            self.in_turn = self.rects.windows(2).all(|w| w[0].end <= w[1].start);
        }
    }

    /// The highest end of a member, counted from the item's offset; those of no bytes count too.
    pub fn end_of_members(&self) -> i64 {
        self.members.iter().map(|m| m.delta + m.size).max().unwrap_or(0)
    }

    /// Lowest offset not below `low` that the alignment allows.
    pub fn lowest_from(&self, low: i64) -> i64 {
        align_up(low, self.align, self.residue)
    }

    /// Highest offset not above `high` that the alignment allows.
    pub fn highest_to(&self, high: i64) -> i64 {
        align_down(high, self.align, self.residue)
    }

    /// Do a buffer of this item and one of another never coexist?
    pub fn excludes(&self, own: u32, other_item: u32, other: u32) -> bool {
        !self.exclusive.is_empty() && self.exclusive.binary_search(&(own, other_item, other)).is_ok()
    }

    /// Total of bytes times steps, the usual measure of how much room it takes.
    pub fn area(&self) -> i128 {
        self.rects.iter().map(|r| i128::from(r.size) * i128::from(r.end - r.start)).sum()
    }
}

/// A penalty between two items: paid when `other - own` is inside the open interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Penalty {
    pub first: u32,
    pub second: u32,
    pub low: i64,
    pub high: i64,
    pub weight: u64,
}

/// One space, normalised.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub items: Vec<Item>,
    /// Bytes per unit.
    pub unit: u64,
    /// Distinct starts and ends; times of rectangles are ranks into it.
    pub times: Vec<u64>,
    /// In units; `i64::MAX / 4` when unlimited.
    pub capacity: i64,
    /// In units, sorted and disjoint.
    pub reserved: Vec<(i64, i64)>,
    pub penalties: Vec<Penalty>,
    /// Penalties that no placement avoids (both buffers in one item).
    pub fixed_cost: u64,
    /// Every item is a rectangle, nothing is kept apart or exclusive.
    pub plain: bool,
    /// Every item is flat.
    pub flat: bool,
}

/// No offset or capacity exceeds this, so sums of two stay far from overflow.
pub(crate) const UNLIMITED: i64 = i64::MAX / 4;

struct Groups {
    /// Root of each buffer and its distance from the root.
    root: Vec<u32>,
    delta: Vec<i128>,
}

impl Groups {
    /// Walks the colocation graph once from every unvisited buffer.
    fn new(problem: &SpaceProblem) -> Result<Groups, Contradiction> {
        let n = problem.buffers.len();
        let mut root = vec![u32::MAX; n];
        let mut delta = vec![0i128; n];
        if problem.colocated.is_empty() {
            for (b, r) in root.iter_mut().enumerate() {
                *r = b as u32;
            }
            return Ok(Groups { root, delta });
        }
        let mut edges: Vec<(u32, u32, i128)> = Vec::with_capacity(problem.colocated.len() * 2);
        for &(buffer, base, d) in &problem.colocated {
            edges.push((base, buffer, i128::from(d)));
            edges.push((buffer, base, -i128::from(d)));
        }
        edges.sort_unstable();
        let first: Vec<usize> = (0..=n as u32).map(|b| edges.partition_point(|e| e.0 < b)).collect();
        let mut stack = Vec::new();
        for b in 0..n {
            if root[b] != u32::MAX {
                continue;
            }
            root[b] = b as u32;
            stack.push(b);
            while let Some(at) = stack.pop() {
                for &(_, to, d) in &edges[first[at]..first[at + 1]] {
                    let to = to as usize;
                    let expected = delta[at] + d;
                    if root[to] == u32::MAX {
                        root[to] = b as u32;
                        delta[to] = expected;
                        stack.push(to);
                    } else if delta[to] != expected {
                        return Err(Contradiction::Colocation { buffers: vec![at as u32, to as u32] });
                    }
                }
            }
        }
        Ok(Groups { root, delta })
    }
}

/// The buffers of groups whose alignments contradict each other; none where the colocations already do.
pub(crate) fn misaligned(problem: &SpaceProblem) -> Vec<u32> {
    let Ok(groups) = Groups::new(problem) else { return Vec::new() };
    let mut known = vec![Some((1, 0)); problem.buffers.len()];
    for (b, buffer) in problem.buffers.iter().enumerate() {
        let root = groups.root[b] as usize;
        let modulus = i64::try_from(buffer.alignment.max(1)).ok();
        known[root] = known[root].zip(modulus).and_then(|(before, modulus)| {
            let residue = i64::try_from((-groups.delta[b]).rem_euclid(i128::from(modulus))).ok()?;
            merge_congruence(before, (modulus, residue))
        });
    }
    (0..problem.buffers.len() as u32).filter(|&b| known[groups.root[b as usize] as usize].is_none()).collect()
}

impl Instance {
    /// Joins, scales and ranks. `problem` must have valid indices and non-empty ranges.
    pub fn new(problem: &SpaceProblem) -> Result<Instance, Contradiction> {
        check_magnitude(problem)?;
        let groups = Groups::new(problem)?;
        let unit = unit_of(problem, &groups);
        let times = ranks(problem);
        let rank = |t: u64| times.partition_point(|&x| x < t) as i32;
        let g = unit as i128;
        let n = problem.buffers.len();

        let mut item_of = vec![u32::MAX; n];
        let mut lowest: Vec<i128> = Vec::new();
        for b in 0..n {
            let r = groups.root[b] as usize;
            if item_of[r] == u32::MAX {
                item_of[r] = lowest.len() as u32;
                lowest.push(i128::MAX);
            }
            item_of[b] = item_of[r];
            let low = &mut lowest[item_of[b] as usize];
            *low = (*low).min(groups.delta[b]);
        }
        let mut items: Vec<Item> = (0..lowest.len()).map(|_| empty_item()).collect();
        let mut delta = vec![0i64; n];
        for (b, buffer) in problem.buffers.iter().enumerate() {
            let index = item_of[b] as usize;
            let above = groups.delta[b] - lowest[index];
            // Most buffers move alone; a long division for each of them would show.
            let d = if above == 0 { 0 } else { (above / g) as i64 };
            delta[b] = d;
            add_member(&mut items[index], b as u32, buffer, d, unit, &rank)?;
            if buffer.size > 0 || problem.whole {
                items[index].height = items[index].height.max(d + (buffer.size / unit) as i64);
            }
        }
        for item in &mut items {
            finish_item(item, problem)?;
        }
        relate(problem, &mut items, &item_of, &delta, unit)?;
        // Members that never coexist with each other alone: nothing outside asks which of them a rectangle is.
        items.iter_mut().for_each(Item::join_rects);
        let (penalties, fixed_cost) = penalties_of(problem, &item_of, &delta, unit);
        let plain = items.iter().all(|i| i.is_rectangle() && i.apart.is_empty() && i.exclusive.is_empty());
        let flat = items.iter().all(Item::is_flat);
        let capacity = problem.capacity.map_or(UNLIMITED, |c| ((c / unit) as i64).min(UNLIMITED));
        Ok(Instance {
            reserved: reserved_units(problem, unit),
            items,
            unit,
            times,
            capacity,
            penalties,
            fixed_cost,
            plain,
            flat,
        })
    }

    /// Number of elementary time slots.
    pub fn slots(&self) -> usize {
        self.times.len().saturating_sub(1)
    }

    /// Is it small enough for the exact search to hold its states? At the deepest there is one an item, each as large as
    /// the items and five times the sections, of which there are no more than rectangles.
    pub fn can_be_searched(&self) -> bool {
        let rects: usize = self.items.iter().map(|i| i.rects.len()).sum();
        self.items.len() * (self.items.len() + 5 * rects) <= 64_000_000
    }

    /// The highest byte (in units) used by a placement.
    pub fn peak(&self, offsets: &[i64]) -> i64 {
        self.items.iter().zip(offsets).map(|(i, &o)| o + i.height).max().unwrap_or(0)
    }

    /// Is every member within the capacity, those of no bytes too?
    pub fn keeps_ends(&self, offsets: &[i64]) -> bool {
        self.items.iter().zip(offsets).all(|(i, &o)| o + i.end_of_members() <= self.capacity)
    }

    /// Do two items clash when placed at these offsets?
    pub fn clash(&self, a: usize, at_a: i64, b: usize, at_b: i64) -> bool {
        let (x, y) = (&self.items[a], &self.items[b]);
        let d = at_b - at_a;
        if x.apart.iter().any(|&(other, low, high)| other as usize == b && low < d && d < high) {
            return true;
        }
        x.live_during(y.start, y.end).iter().any(|p| {
            y.live_during(p.start, p.end).iter().any(|q| {
                p.start < q.end
                    && q.start < p.end
                    && at_a + p.delta < at_b + q.delta + q.size
                    && at_b + q.delta < at_a + p.delta + p.size
                    && !x.excludes(p.buffer, b as u32, q.buffer)
            })
        })
    }

    /// Sum of the weights of penalties paid by a placement.
    pub fn cost(&self, offsets: &[i64]) -> u64 {
        self.penalties
            .iter()
            .filter(|p| p.is_paid(offsets))
            .map(|p| p.weight)
            .fold(self.fixed_cost, u64::saturating_add)
    }
}

impl Penalty {
    /// Do the two byte ranges overlap?
    pub fn is_paid(&self, offsets: &[i64]) -> bool {
        let d = offsets[self.second as usize] - offsets[self.first as usize];
        self.low < d && d < self.high
    }
}

fn empty_item() -> Item {
    Item {
        rects: Vec::new(),
        in_turn: true,
        members: Vec::new(),
        align: 1,
        residue: 0,
        height: 0,
        pin: None,
        hint: None,
        start: i32::MAX,
        end: 0,
        apart: Vec::new(),
        exclusive: Vec::new(),
    }
}

fn check_magnitude(problem: &SpaceProblem) -> Result<(), Contradiction> {
    let limit = (UNLIMITED / 4) as u128;
    let mut total = 0u128;
    for (b, buffer) in problem.buffers.iter().enumerate() {
        let pad = u128::from(buffer.alignment.max(1));
        let own = u128::from(buffer.size) + pad + u128::from(buffer.pin.unwrap_or(0));
        total += own;
        if own > limit || total > limit {
            return Err(Contradiction::TooLarge { buffers: vec![b as u32] });
        }
    }
    for &(buffer, base, d) in &problem.colocated {
        total += u128::from(d.unsigned_abs());
        if total > limit {
            return Err(Contradiction::TooLarge { buffers: vec![buffer, base] });
        }
    }
    for &(_, end) in &problem.reserved {
        if u128::from(end) > limit {
            return Err(Contradiction::TooLarge { buffers: vec![] });
        }
    }
    Ok(())
}

/// Largest divisor of every coordinate for which rounding offsets to its multiples loses nothing.
fn unit_of(problem: &SpaceProblem, groups: &Groups) -> u64 {
    let mut g = 0u64;
    for b in &problem.buffers {
        g = gcd(g, b.size);
        for l in &b.live {
            g = gcd(gcd(g, l.low), l.high);
        }
        g = gcd(g, b.pin.unwrap_or(0));
        if problem.keep_hints {
            g = gcd(g, b.hint.unwrap_or(0));
        }
    }
    for &(low, high) in &problem.reserved {
        g = gcd(gcd(g, low), high);
    }
    for &d in &groups.delta {
        g = gcd(g, d.unsigned_abs() as u64);
    }
    let g0 = g.max(1);
    // An alignment that divides the unit is free; any other one must be a multiple of it.
    let mut g = g0;
    loop {
        let before = g;
        for b in &problem.buffers {
            let a = b.alignment.max(1);
            if !g.is_multiple_of(a) {
                g = gcd(g, a);
            }
        }
        if g == before {
            return g;
        }
    }
}

fn ranks(problem: &SpaceProblem) -> Vec<u64> {
    let mut times: Vec<u64> = Vec::new();
    for b in &problem.buffers {
        for l in &b.live {
            times.push(l.start);
            times.push(l.end);
        }
    }
    times.sort_unstable();
    times.dedup();
    times
}

fn add_member(
    item: &mut Item,
    index: u32,
    buffer: &SpaceBuffer,
    delta: i64,
    unit: u64,
    rank: &dyn Fn(u64) -> i32,
) -> Result<(), Contradiction> {
    let size = (buffer.size / unit) as i64;
    item.members.reserve_exact(1);
    item.rects.reserve_exact(buffer.live.len());
    item.members.push(Member { buffer: index, delta, size });
    let align = (buffer.alignment.max(1) / gcd(buffer.alignment.max(1), unit)) as i64;
    match merge_congruence((item.align, item.residue), (align, -delta)) {
        Some((a, r)) if a < UNLIMITED / 4 => (item.align, item.residue) = (a, r),
        _ => {
            return Err(Contradiction::Alignment { buffers: item.members.iter().map(|m| m.buffer).collect() });
        }
    }
    if let Some(pin) = buffer.pin {
        let pin = (pin / unit) as i64 - delta;
        if item.pin.is_some_and(|p| p != pin) || pin < 0 {
            return Err(Contradiction::Pins { buffers: item.members.iter().map(|m| m.buffer).collect() });
        }
        item.pin = Some(pin);
    }
    if let Some(hint) = buffer.hint
        && item.hint.is_none()
        && hint / unit < UNLIMITED as u64
    {
        let hint = (hint / unit) as i64 - delta;
        item.hint = (hint >= 0).then_some(hint);
    }
    for l in &buffer.live {
        item.rects.push(Rect {
            delta: delta + (l.low / unit) as i64,
            size: ((l.high - l.low) / unit) as i64,
            start: rank(l.start),
            end: rank(l.end),
            buffer: index,
        });
    }
    Ok(())
}

/// Checks the pin against the alignment and drops rectangles hidden behind others.
fn finish_item(item: &mut Item, problem: &SpaceProblem) -> Result<(), Contradiction> {
    if let Some(pin) = item.pin
        && align_up(pin, item.align, item.residue) != pin
    {
        return Err(Contradiction::Alignment { buffers: item.members.iter().map(|m| m.buffer).collect() });
    }
    item.rects.retain(|r| r.size > 0 && r.start < r.end);
    // With exclusions the owner of a rectangle matters, so none may be merged.
    if problem.exclusive.is_empty() && item.rects.len() > 1 {
        merge_rects(&mut item.rects);
    }
    item.in_turn = item.rects.windows(2).all(|w| w[0].end <= w[1].start);
    item.start = item.rects.iter().map(|r| r.start).min().unwrap_or(0);
    item.end = item.rects.iter().map(|r| r.end).max().unwrap_or(0);
    Ok(())
}

/// Joins rectangles with equal bytes that touch in time; drops those inside another one.
fn merge_rects(rects: &mut Vec<Rect>) {
    rects.sort_unstable_by_key(|r| (r.delta, r.size, r.start, r.end));
    let mut out: Vec<Rect> = Vec::with_capacity(rects.len());
    for &r in rects.iter() {
        match out.last_mut() {
            Some(l) if (l.delta, l.size) == (r.delta, r.size) && r.start <= l.end => {
                l.end = l.end.max(r.end);
            }
            _ => out.push(r),
        }
    }
    if out.len() > 1 && out.len() <= 256 {
        let all = out.clone();
        let inside = |r: &Rect, o: &Rect| {
            o.delta <= r.delta && r.delta + r.size <= o.delta + o.size && o.start <= r.start && r.end <= o.end
        };
        let mut index = 0;
        out.retain(|r| {
            let own = index;
            index += 1;
            !all.iter().enumerate().any(|(k, o)| k != own && inside(r, o) && (!inside(o, r) || k < own))
        });
    }
    *rects = out;
}

/// Turns buffer pairs into item pairs.
fn relate(
    problem: &SpaceProblem,
    items: &mut [Item],
    item_of: &[u32],
    delta: &[i64],
    unit: u64,
) -> Result<(), Contradiction> {
    let size = |b: u32| (problem.buffers[b as usize].size / unit) as i64;
    for &(a, b) in &problem.apart {
        for (x, y) in [(a, b), (b, a)] {
            let (ix, iy) = (item_of[x as usize], item_of[y as usize]);
            let (dx, dy) = (delta[x as usize], delta[y as usize]);
            if size(x) == 0 || size(y) == 0 {
                continue;
            }
            if ix == iy {
                if dx < dy + size(y) && dy < dx + size(x) {
                    return Err(Contradiction::Separation { buffers: vec![x, y] });
                }
                continue;
            }
            // oy + dy < ox + dx + sx and ox + dx < oy + dy + sy
            items[ix as usize].apart.push((iy, dx - dy - size(y), dx - dy + size(x)));
        }
    }
    for &(a, b) in &problem.exclusive {
        for (x, y) in [(a, b), (b, a)] {
            let (ix, iy) = (item_of[x as usize], item_of[y as usize]);
            if ix != iy {
                items[ix as usize].exclusive.push((x, iy, y));
            }
        }
    }
    for item in items {
        item.apart.sort_unstable();
        item.apart.dedup();
        item.exclusive.sort_unstable();
        item.exclusive.dedup();
    }
    Ok(())
}

fn penalties_of(problem: &SpaceProblem, item_of: &[u32], delta: &[i64], unit: u64) -> (Vec<Penalty>, u64) {
    let mut out = Vec::new();
    let mut fixed = 0u64;
    for &(a, b, weight) in &problem.penalties {
        let (first, second) = (item_of[a as usize], item_of[b as usize]);
        let (da, db) = (delta[a as usize], delta[b as usize]);
        let sa = (problem.buffers[a as usize].size / unit) as i64;
        let sb = (problem.buffers[b as usize].size / unit) as i64;
        let (low, high) = (da - db - sb, da - db + sa);
        if first == second {
            if sa > 0 && sb > 0 && low < 0 && 0 < high {
                fixed = fixed.saturating_add(weight);
            }
        } else if weight > 0 && sa > 0 && sb > 0 {
            out.push(Penalty { first, second, low, high, weight });
        }
    }
    (out, fixed)
}

fn reserved_units(problem: &SpaceProblem, unit: u64) -> Vec<(i64, i64)> {
    let mut all: Vec<(i64, i64)> =
        problem.reserved.iter().filter(|r| r.0 < r.1).map(|&(a, b)| ((a / unit) as i64, (b / unit) as i64)).collect();
    all.sort_unstable();
    let mut out: Vec<(i64, i64)> = Vec::new();
    for (a, b) in all {
        match out.last_mut() {
            Some(l) if a <= l.1 => l.1 = l.1.max(b),
            _ => out.push((a, b)),
        }
    }
    out
}
