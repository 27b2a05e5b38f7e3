//! Where to branch: the section with the fewest ways to go on.

use super::state::Run;

impl Run<'_, '_> {
    /// Candidates of a section; false when they should be flush and one is not.
    pub(super) fn candidates(&mut self, t: usize, out: &mut Vec<u32>, check: bool) -> bool {
        out.clear();
        let floor = self.state.floor(t);
        let sections = self.search.sections;
        self.search.work += self.live.members(t).len() as u64 / 4;
        for &i in self.live.members(t) {
            if self.state.limit(i as usize) != floor {
                continue;
            }
            if check {
                let of = &sections.of[i as usize];
                let other = of.iter().position(|&u| self.state.floor(u as usize) != floor);
                self.search.work += other.map_or(of.len(), |k| k + 1) as u64;
                if other.is_some() {
                    return false;
                }
            }
            out.push(i);
        }
        true
    }

    /// Does the slack of a section allow that nothing starts at its floor?
    pub(super) fn may_gap(&mut self, t: usize, scratch: &mut Vec<u32>) -> bool {
        let floor = self.state.floor(t);
        let latest = self.capacity - *self.state.rest(t);
        if latest <= floor {
            return false;
        }
        // What allowed it last time mostly still does.
        if let Some((i, j)) = self.witness[t]
            && self.state.limit(i as usize) == floor
            && self.state.limit(j as usize) + self.search.sizes[j as usize] <= latest
        {
            return true;
        }
        let members = self.live.members(t);
        self.search.work += members.len() as u64 / 4;
        let limits = &self.state.cells[..self.state.n];
        if members.iter().any(|&i| floor < limits[i as usize] && limits[i as usize] <= latest) {
            return true;
        }
        self.candidates(t, scratch, false);
        self.next_start(t, scratch, latest) <= latest
    }

    /// Weight of a section's failures; every second group of restarts does without, for where they mislead.
    fn weight(&self, t: usize) -> f64 {
        if (self.restart / 4).is_multiple_of(2) { self.weights[t] } else { 1.0 }
    }

    /// How little a section asks for: few branches, often failed, a tie broken by the restart's taste.
    pub(super) fn score(&mut self, t: usize, ready: i64, gap: bool) -> f64 {
        let cap = self.capacity as f64;
        let tie = match [0, 6, 2, 5][(self.restart / 4) as usize % 4] {
            0 => 0.0,
            2 => 1.0 - self.state.floor(t) as f64 / cap,
            5 => 1.0 - *self.state.rest(t) as f64 / cap,
            _ => self.placed.last().map_or(0.0, |&i| {
                let of = &self.search.sections.of[i as usize];
                let (a, b) = (i64::from(of[0]), i64::from(of[of.len() - 1]));
                ((a - t as i64).max(t as i64 - b).max(0)) as f64 / self.state.s as f64
            }),
        };
        (ready as f64 + if gap { 0.5 } else { 0.0 } - 0.999 + 0.1 * tie) / self.weight(t)
    }

    /// The section to branch on, with its candidates, and whether all of them may start higher.
    pub(super) fn choose(&mut self, out: &mut Vec<u32>) -> Option<(usize, bool)> {
        let mut best = f64::INFINITY;
        let mut chosen = None;
        let mut scratch = std::mem::take(&mut self.scratch);
        let own = std::mem::take(&mut self.parts[self.part].sections);
        self.search.work += own.len() as u64 / 4;
        let timed = self.search.instance.plain;
        let mut k = 0;
        while k < own.len() {
            let floor = self.state.floor(own[k] as usize);
            // A run of neighbours with this floor; in a timed instance it must be a valley.
            let mut end = k + 1;
            if timed {
                while end < own.len() && own[end] == own[end - 1] + 1 && self.state.floor(own[end] as usize) == floor {
                    end += 1;
                }
                let lower = |x: usize, y: u32| own[x] == y && self.state.floor(y as usize) < floor;
                if (k > 0 && lower(k - 1, own[k] - 1)) || (end < own.len() && lower(end, own[end - 1] + 1)) {
                    k = end;
                    continue;
                }
            }
            for &t in &own[k..end] {
                let t = t as usize;
                let ready = *self.state.ready(t);
                if ready == 0 || (ready as f64 - 0.999) / self.weight(t) >= best {
                    continue;
                }
                if !timed && !self.candidates(t, &mut scratch, true) {
                    continue;
                }
                let gap = self.may_gap(t, &mut scratch);
                let score = self.score(t, ready, gap);
                if score < best {
                    best = score;
                    chosen = Some((t, gap));
                }
            }
            k = end;
        }
        self.parts[self.part].sections = own;
        self.scratch = scratch;
        if let Some((t, _)) = chosen {
            self.candidates(t, out, false);
        }
        chosen
    }
}
