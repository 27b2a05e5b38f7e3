//! What each engine of a core has heard of the others.
//!
//! ```text
//!   dma:    load x ---- raises 0 for v            v has heard: dma up to its first statement
//!   v:                     takes 0 ---- add x     so the two are in order
//! ```

use super::super::region::Region;
use super::super::sink::Kept;
use super::super::touch::Touch;
use npumem_ir::{BufferId, StepId};
use std::collections::{BTreeMap, VecDeque};

/// Accesses of one place that are remembered; the oldest go first.
const MAX_PAST: usize = 512;

/// An access that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    pub region: Region,
    pub step: StepId,
    pub owner: BufferId,
    write: bool,
    engine: u16,
    time: u64,
}

/// The clocks of one core's engines.
#[derive(Clone, Debug, Default)]
pub(super) struct Orders {
    heard: Vec<Vec<u64>>,
    raised: BTreeMap<(u16, u16, i64), VecDeque<Vec<u64>>>,
    given: BTreeMap<i64, Vec<u64>>,
    past: BTreeMap<u32, Vec<Past>>,
}

impl Orders {
    fn row(&mut self, engine: u16) -> &mut Vec<u64> {
        let index = usize::from(engine);
        if self.heard.len() <= index {
            self.heard.resize(index + 1, Vec::new());
        }
        let row = &mut self.heard[index];
        if row.len() <= index {
            row.resize(index + 1, 0);
        }
        row
    }

    /// The engine begins another statement: its own number.
    pub fn tick(&mut self, engine: u16) -> u64 {
        let row = self.row(engine);
        row[usize::from(engine)] += 1;
        row[usize::from(engine)]
    }

    fn hear(&mut self, engine: u16, other: &[u64]) {
        let row = self.row(engine);
        if row.len() < other.len() {
            row.resize(other.len(), 0);
        }
        for (mine, theirs) in row.iter_mut().zip(other) {
            *mine = (*mine).max(*theirs);
        }
    }

    pub fn kept(&mut self, kept: Kept) {
        match kept {
            Kept::Raised { from, to, event } => {
                let row = self.row(from).clone();
                self.raised.entry((from, to, event)).or_default().push_back(row);
            }
            Kept::Taken { from, to, event } => {
                if let Some(row) = self.raised.get_mut(&(from, to, event)).and_then(VecDeque::pop_front) {
                    self.hear(to, &row);
                }
            }
            Kept::Met => {
                let rows = self.heard.clone();
                for engine in 0..rows.len() as u16 {
                    rows.iter().for_each(|row| self.hear(engine, row));
                }
                // Whoever comes later has heard of all of this: nothing before can race.
                self.past.clear();
            }
            Kept::Acquired { queue, token } => {
                if let Some(row) = self.given.get(&token).cloned() {
                    self.hear(queue, &row);
                }
            }
            Kept::Released { queue, token } => {
                let row = self.row(queue).clone();
                self.given.insert(token, row);
            }
        }
    }

    /// Earlier accesses to the same bytes, one of the two a write, that the engine has not heard of.
    pub fn unheard(&mut self, engine: u16, touch: &Touch, write: bool) -> Vec<Past> {
        let row = self.row(engine).clone();
        let past = self.past.get(&touch.place).map_or(&[][..], Vec::as_slice);
        past.iter()
            .filter(|past| past.engine != engine && (past.write || write))
            .filter(|past| row.get(usize::from(past.engine)).copied().unwrap_or(0) < past.time)
            .filter(|past| past.region.overlaps(&touch.region))
            .copied()
            .collect()
    }

    pub fn add(&mut self, engine: u16, time: u64, touch: &Touch, write: bool, step: StepId) {
        let past = self.past.entry(touch.place).or_default();
        if write && touch.region.runs() == 1 {
            // Whoever is in order with this write is in order with what it replaces.
            let (low, high) = (touch.region.start, touch.region.end());
            past.retain(|old| !(low <= old.region.start && old.region.end() <= high));
        } else {
            past.retain(|old| !(old.region == touch.region && old.engine == engine && old.write == write));
        }
        if past.len() == MAX_PAST {
            past.remove(0);
        }
        past.push(Past { region: touch.region, step, owner: touch.owner, write, engine, time });
    }
}
