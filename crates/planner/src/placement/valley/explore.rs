//! The walk over the tree: an explicit stack, a table of failed states, and the way back.

use super::super::instance::UNLIMITED;
use super::super::race::Halt;
use super::Found;
use super::state::{Frame, Run, TABLE, WAITING, mix};

impl Run<'_, '_> {
    /// Hash of what decides about the part at hand: limits of its waiting items, tops of its sections.
    pub(super) fn key(&mut self) -> u64 {
        let sections = self.search.sections;
        let own = std::mem::take(&mut self.parts[self.part].sections);
        let mut h = 0u64;
        for &t in &own {
            let t = t as usize;
            if self.state.floor(t) == UNLIMITED {
                continue;
            }
            h = h.wrapping_add(mix(self.search.salts[self.state.n + t] ^ self.state.top(t) as u64));
            // All sections of a waiting item lie in one part: it is met once, in its first.
            self.search.work += sections.first_in[t].len() as u64 + 1;
            for &i in &sections.first_in[t] {
                let i = i as usize;
                if self.offsets[i] == WAITING {
                    h = h.wrapping_add(mix(self.search.salts[i] ^ self.state.limit(i) as u64));
                }
            }
        }
        self.parts[self.part].sections = own;
        h
    }

    pub(super) fn undo_to(&mut self, placed: usize) {
        while self.placed.len() > placed {
            if let Some(i) = self.placed.pop() {
                self.offsets[i as usize] = WAITING;
                self.live.restore(&self.search.sections.of[i as usize]);
                self.waiting += 1;
            }
        }
        for &t in &self.dirty {
            self.is_dirty[t as usize] = false;
        }
        self.dirty.clear();
    }

    /// Goes down until success or a dead end; true on success.
    pub(super) fn descend(&mut self) -> Option<bool> {
        let mut options = Vec::new();
        loop {
            if !self.advance() {
                return Some(true);
            }
            let Some((t, gap)) = self.choose(&mut options) else { return Some(false) };
            options.retain(|&i| {
                let twin = self.search.twin[i as usize];
                twin == u32::MAX || self.offsets[twin as usize] != WAITING
            });
            if options.len() == 1 && !gap {
                if !self.place(options[0] as usize) {
                    return Some(false);
                }
                continue;
            }
            let key = if self.search.switches.table { self.key() } else { 0 };
            if self.search.switches.table && self.failed.contains(&key) {
                return Some(false);
            }
            let rank = &self.rank;
            options.sort_by(|&a, &b| rank[b as usize].total_cmp(&rank[a as usize]).then(a.cmp(&b)));
            let depth = self.frames.len();
            if self.saved.len() == depth {
                self.saved.push(self.state.cells.clone());
            } else {
                self.saved[depth].copy_from_slice(&self.state.cells);
            }
            self.search.work += self.state.cells.len() as u64 / 16;
            self.frames.push(Frame {
                placed: self.placed.len(),
                section: t,
                options: std::mem::take(&mut options),
                next: 0,
                gap,
                key,
                part: self.part,
                parts: self.parts.len(),
            });
            return None;
        }
    }

    /// Goes on from where it stands, with a new order whenever the patience is over, for at most `limit` work.
    pub(crate) fn go(&mut self, limit: u64, halt: Halt) -> Found {
        let end = self.search.work.saturating_add(limit);
        loop {
            if self.restarting {
                self.rank_items();
            }
            match self.explore(end, halt) {
                Found::Unknown if self.search.work < end && !halt.is_set() => self.again(),
                done => return done,
            }
        }
    }

    /// Depth-first over the frames until success, exhaustion or a limit.
    fn explore(&mut self, end: u64, halt: Halt) -> Found {
        let cut = if self.search.switches.restarts { self.cut } else { u64::MAX };
        let mut outcome = if std::mem::take(&mut self.restarting) { self.descend() } else { None };
        loop {
            if outcome == Some(true) {
                return Found::Placed(self.offsets.clone());
            }
            if outcome == Some(false) {
                self.fails += 1;
                // The part at hand failed: back to its own last choice, or to the one before it was split off.
                if self.frames.last().is_none_or(|f| f.part != self.part) {
                    let base = self.parts[self.part].base;
                    self.frames.truncate(base);
                }
            }
            if self.fails >= cut || self.search.work >= end {
                return Found::Unknown;
            }
            if self.search.nodes.is_multiple_of(256) && halt.is_set() {
                return Found::Unknown;
            }
            // Next branch of the deepest open frame.
            let Some(depth) = self.frames.len().checked_sub(1) else { return Found::Impossible };
            let f = &mut self.frames[depth];
            let (placed, next, part, parts) = (f.placed, f.next, f.part, f.parts);
            f.next += 1;
            let option = f.options.get(next).copied();
            let gap = next == f.options.len() && f.gap;
            let (section, key) = (f.section, f.key);
            self.undo_to(placed);
            self.state.cells.copy_from_slice(&self.saved[depth]);
            self.parts.truncate(parts);
            self.part = part;
            let fine = if let Some(i) = option {
                self.place(i as usize)
            } else if gap {
                let all = self.all_candidates(section);
                self.skip(section, &all)
            } else {
                self.frames.pop();
                if self.search.switches.table && self.failed.len() < TABLE {
                    self.failed.insert(key);
                }
                false
            };
            outcome = if fine { self.descend() } else { Some(false) };
        }
    }

    /// Candidates including the twins that have no branch of their own.
    pub(super) fn all_candidates(&self, t: usize) -> Vec<u32> {
        let floor = self.state.floor(t);
        self.live.members(t).iter().copied().filter(|&i| self.state.limit(i as usize) == floor).collect()
    }
}
