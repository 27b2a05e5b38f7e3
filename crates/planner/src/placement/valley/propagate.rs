//! What follows from a choice: limits rise, floors are lifted, holes are judged.

use super::super::instance::UNLIMITED;
use super::state::Run;

impl Run<'_, '_> {
    pub(super) fn mark(&mut self, t: usize) {
        if !self.is_dirty[t] {
            self.is_dirty[t] = true;
            self.dirty.push(t as u32);
        }
    }

    /// Raises the limit of a waiting item; `fresh` are sections that will be looked at anyway.
    pub(super) fn raise(&mut self, i: usize, to: i64, fresh: std::ops::Range<u32>) -> bool {
        let to = self.search.settle(i, to);
        let old = self.state.limit(i);
        if to <= old {
            return true;
        }
        self.state.cells[i] = to;
        if to + self.search.sizes[i] > self.capacity {
            self.blame(i);
            return false;
        }
        let sections = self.search.sections;
        let of = &sections.of[i];
        if self.search.instance.plain && !fresh.is_empty() {
            // Sections of an item are neighbours: take those on either side of the fresh ones.
            let (first, last) = (of[0], of[of.len() - 1] + 1);
            self.fewer_ready(first..last.min(fresh.start), old);
            self.fewer_ready(first.max(fresh.end)..last, old);
        } else {
            self.search.work += of.len() as u64;
            for &t in of {
                self.one_fewer_ready(t as usize, old);
            }
        }
        true
    }

    pub(super) fn fewer_ready(&mut self, range: std::ops::Range<u32>, old: i64) {
        self.search.work += range.len() as u64;
        for t in range {
            self.one_fewer_ready(t as usize, old);
        }
    }

    pub(super) fn one_fewer_ready(&mut self, t: usize, old: i64) {
        if self.state.floor(t) == old {
            *self.state.ready(t) -= 1;
            if *self.state.ready(t) == 0 {
                self.mark(t);
            }
        }
    }

    pub(super) fn blame(&mut self, i: usize) {
        if self.search.switches.weights {
            for &t in &self.search.sections.of[i] {
                self.weights[t as usize] += 1.0;
            }
        }
    }

    /// Lifts the floors of dirty sections; false when one no longer has room.
    pub(super) fn lift(&mut self) -> bool {
        while let Some(t) = self.dirty.pop() {
            let t = t as usize;
            self.is_dirty[t] = false;
            if !self.lift_one(t) {
                return false;
            }
        }
        true
    }

    pub(super) fn lift_one(&mut self, t: usize) -> bool {
        let members = self.live.members(t);
        self.search.work += members.len() as u64 / 4 + 1;
        // The limit of a placed item is UNLIMITED.
        let limits = &self.state.cells[..self.state.n];
        let (mut low, mut ready) = (UNLIMITED, 0);
        for &i in members {
            let limit = limits[i as usize];
            ready = if limit < low { 1 } else { ready + i64::from(limit == low) };
            low = low.min(limit);
        }
        if low == UNLIMITED {
            *self.state.ready(t) = 0;
            let floor = self.state.n + t;
            self.state.cells[floor] = UNLIMITED;
            return true;
        }
        let floor = self.state.n + t;
        self.state.cells[floor] = low;
        *self.state.ready(t) = ready;
        if self.search.has_blocks {
            *self.state.rest(t) = self.fixed_above(t, low);
        }
        if low + *self.state.rest(t) > self.capacity {
            if self.search.switches.weights {
                self.weights[t] += 1.0;
            }
            return false;
        }
        if self.search.switches.fill && low - self.state.top(t) >= self.search.smallest[t] {
            return self.holes_are_full(t, low);
        }
        true
    }

    /// Waiting sizes plus fixed bytes at or above `low`.
    pub(super) fn fixed_above(&self, t: usize, low: i64) -> i64 {
        let waiting: i64 = self.live.members(t).iter().map(|&i| self.search.sizes[i as usize]).sum();
        let fixed: i64 = self.search.blocks[t].iter().map(|b| (b.1.min(self.capacity) - b.0.max(low)).max(0)).sum();
        waiting + fixed
    }

    /// No waiting member of the section would fit between what is placed and the floors above.
    pub(super) fn holes_are_full(&mut self, t: usize, low: i64) -> bool {
        let sections = self.search.sections;
        let room = low - self.state.top(t);
        for &i in self.live.members(t) {
            let i = i as usize;
            let size = self.search.sizes[i];
            if size > room {
                continue;
            }
            let (mut base, mut roof) = (0, UNLIMITED);
            for &u in &sections.of[i] {
                self.search.work += 1;
                base = base.max(self.state.top(u as usize));
                roof = roof.min(self.state.floor(u as usize));
                if base + size > roof {
                    break;
                }
            }
            if self.search.settle(i, base) + size <= roof {
                return false;
            }
        }
        true
    }

    /// Puts an item at its limit and passes the consequences on.
    pub(super) fn place(&mut self, i: usize) -> bool {
        let at = self.state.limit(i);
        let size = self.search.sizes[i];
        let sections = self.search.sections;
        self.search.nodes += 1;
        if self.search.switches.support {
            let base = sections.of[i].iter().map(|&t| self.state.top(t as usize)).max().unwrap_or(0);
            if self.search.settle(i, base) < at {
                return false;
            }
        }
        self.offsets[i] = at;
        self.state.cells[i] = UNLIMITED;
        self.placed.push(i as u32);
        self.waiting -= 1;
        self.live.remove(i, &sections.of[i]);
        let top = at + size;
        let of = &sections.of[i];
        let fresh = if self.search.instance.plain { of[0]..of[of.len() - 1] + 1 } else { 0..0 };
        for &t in &sections.of[i] {
            let t = t as usize;
            *self.state.rest(t) -= size;
            if Some(&(t as u32)) != sections.of[i].last() {
                *self.state.bridges(t) -= 1;
            }
            let cell = self.state.n + self.state.s + t;
            self.state.cells[cell] = top;
            self.mark(t);
        }
        self.search.work += sections.conflicts[i].len() as u64;
        if !self.search.instance.plain {
            // Supports, tops and waiting members of all its sections, which may be a hundred cliques.
            self.search.work += 4 * of.len() as u64;
        }
        for &j in &sections.conflicts[i] {
            let j = j as usize;
            if self.state.limit(j) < top && !self.raise(j, top, fresh.clone()) {
                return false;
            }
        }
        self.lift()
    }

    /// If no candidate starts at the floor of `t`, where may the next member start at the earliest?
    ///
    /// The first item to start in `t` rests on something outside it (or has a higher limit already).
    /// Fills `self.outside` with each candidate's lowest support outside `t`.
    ///
    /// Ends with any start of at most `enough`; `outside` is complete only when nothing is enough.
    pub(super) fn next_start(&mut self, t: usize, candidates: &[u32], enough: i64) -> i64 {
        let sections = self.search.sections;
        let floor = self.state.floor(t);
        let mut first = UNLIMITED;
        for &i in self.live.members(t) {
            let i = i as usize;
            self.inside[i] = true;
            if self.state.limit(i) > floor {
                first = first.min(self.state.limit(i));
            }
        }
        self.outside.clear();
        self.search.work += self.live.members(t).len() as u64 / 2;
        for &i in candidates {
            if first <= enough {
                break;
            }
            let i = i as usize;
            let mut next = UNLIMITED;
            let conflicts = &sections.conflicts[i];
            let mut looked = conflicts.len();
            for (k, &j) in conflicts.iter().enumerate() {
                let end = self.search.sizes[j as usize] + self.state.limit(j as usize);
                if end < next && !self.inside[j as usize] {
                    next = end;
                    if end <= enough {
                        self.witness[t] = Some((i as u32, j));
                        looked = k;
                        break;
                    }
                }
            }
            self.search.work += looked as u64 / 2;
            if self.search.has_blocks {
                for &u in &sections.of[i] {
                    for &(_, high) in &self.search.blocks[u as usize] {
                        if high > floor {
                            next = next.min(high);
                        }
                    }
                }
            }
            self.outside.push(next);
            first = first.min(next);
        }
        for &i in self.live.members(t) {
            self.inside[i as usize] = false;
        }
        first
    }

    /// No candidate starts at the floor of `t`: each must find its next support, outside `t` or on a
    /// member that starts no lower than the first one.
    pub(super) fn skip(&mut self, t: usize, candidates: &[u32]) -> bool {
        let floor = self.state.floor(t);
        let first = self.next_start(t, candidates, i64::MIN);
        let smallest = self.live.members(t).iter().map(|&i| self.search.sizes[i as usize]).min().unwrap_or(0);
        for (k, &candidate) in candidates.iter().enumerate() {
            let next = self.outside[k].min(first.saturating_add(smallest)).min(UNLIMITED);
            if !self.raise(candidate as usize, next.max(floor + 1), 0..0) {
                return false;
            }
        }
        self.lift()
    }
}
