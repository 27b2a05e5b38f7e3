//! Independent parts: where nothing that waits connects two sets of sections, each is solved by itself.

use super::state::{NO_PART, Part, Run};

impl Run<'_, '_> {
    /// One part with every section.
    pub(super) fn open(&mut self) {
        self.parts.clear();
        self.parts.push(Part { sections: (0..self.state.s as u32).collect(), base: 0, next: NO_PART });
        self.part = 0;
    }

    /// Splits the part at hand where no waiting item connects; goes on to the next one when it is done.
    /// False when nothing is left.
    pub(super) fn advance(&mut self) -> bool {
        loop {
            if self.part == NO_PART {
                return false;
            }
            if !self.search.switches.split {
                return self.waiting > 0;
            }
            let groups = if self.search.instance.plain { self.stretches(self.part) } else { self.connected(self.part) };
            let next = self.parts[self.part].next;
            match groups.len() {
                0 => self.part = next,
                1 => return true,
                _ => {
                    let mut follow = next;
                    for sections in groups.into_iter().rev() {
                        self.parts.push(Part { sections, base: self.frames.len(), next: follow });
                        follow = self.parts.len() - 1;
                    }
                    self.part = follow;
                    return true;
                }
            }
        }
    }

    /// As [`Self::connected`] for a timed instance: cut where nothing waiting bridges two neighbours.
    pub(super) fn stretches(&mut self, part: usize) -> Vec<Vec<u32>> {
        let own = std::mem::take(&mut self.parts[part].sections);
        self.search.work += own.len() as u64 / 4;
        let mut cuts: Vec<(usize, usize)> = Vec::new();
        let mut k = 0;
        while k < own.len() {
            if *self.state.ready(own[k] as usize) == 0 {
                k += 1;
                continue;
            }
            let from = k;
            while k + 1 < own.len() && *self.state.bridges(own[k] as usize) > 0 {
                k += 1;
            }
            k += 1;
            cuts.push((from, k));
        }
        let mut groups: Vec<(f64, Vec<u32>)> = Vec::new();
        if cuts.len() == 1 && cuts[0].1 - cuts[0].0 == own.len() {
            groups.push((0.0, Vec::new()));
        } else {
            for (from, to) in cuts {
                let weight = own[from..to].iter().map(|&t| self.weights[t as usize]).fold(0.0, f64::max);
                groups.push((weight, own[from..to].to_vec()));
            }
        }
        self.parts[part].sections = own;
        groups.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.len().cmp(&b.1.len())).then_with(|| a.1.cmp(&b.1)));
        groups.into_iter().map(|g| g.1).collect()
    }

    /// Connected sections with waiting items, most often failing first.
    pub(super) fn connected(&mut self, part: usize) -> Vec<Vec<u32>> {
        let sections = self.search.sections;
        let mut groups: Vec<(f64, Vec<u32>)> = Vec::new();
        let own = std::mem::take(&mut self.parts[part].sections);
        for &t in &own {
            self.label[t as usize] = u32::MAX;
        }
        let mut stack: Vec<u32> = Vec::new();
        for &t in &own {
            if self.label[t as usize] != u32::MAX || *self.state.ready(t as usize) == 0 {
                continue;
            }
            let group = groups.len() as u32;
            let mut found = Vec::new();
            let mut weight = 0.0;
            self.label[t as usize] = group;
            stack.push(t);
            while let Some(u) = stack.pop() {
                found.push(u);
                weight = f64::max(weight, self.weights[u as usize]);
                self.search.work += self.live.members(u as usize).len() as u64 / 4;
                for &i in self.live.members(u as usize) {
                    if self.visited[i as usize] == self.stamp {
                        continue;
                    }
                    self.visited[i as usize] = self.stamp;
                    self.search.work += sections.of[i as usize].len() as u64;
                    for &v in &sections.of[i as usize] {
                        if self.label[v as usize] == u32::MAX {
                            self.label[v as usize] = group;
                            stack.push(v);
                        }
                    }
                }
            }
            found.sort_unstable();
            groups.push((weight, found));
        }
        self.stamp = self.stamp.wrapping_add(1);
        self.parts[part].sections = own;
        groups.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.len().cmp(&b.1.len())).then_with(|| a.1.cmp(&b.1)));
        groups.into_iter().map(|g| g.1).collect()
    }
}
