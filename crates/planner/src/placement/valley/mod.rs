//! Valley branching: exact search for a placement below a capacity.
//!
//! The state is a lower limit of the offset of every waiting item. The floor of a section is the
//! lowest limit among its waiting members: everything beneath is settled or wasted.
//!
//! ```text
//!   #### placed     .... wasted (lifted floor)         section 3 has one item that can start at
//!                                                       its floor and no slack for a gap: forced
//!   floor ->  ####          ####
//!             ####  ....    ####
//!             ####  ####    ####
//!   section    1      2  3    4
//! ```
//!
//! Pick a section and ask which item starts at its floor: one branch for each candidate, and one
//! for "none", which raises the limits of all candidates to their next possible support. A section
//! may be picked when its candidates are *flush*: they have this very floor in all their sections, so
//! nothing that is still to come could slip beneath them. The sections of lowest floor always qualify;
//! of those that do, the one with the fewest branches is taken. `floor + waiting sizes` of a section grows
//! only by waste, so where the slack is zero moves are forced and cascade.
//!
//! Only placements of least total offset are of interest (one exists whenever any does): in them
//! every item rests on another one or on the ground, and no hole could hold a waiting item.

mod branch;
mod explore;
mod live;
mod parts;
mod propagate;
mod state;

use super::instance::Instance;
use super::options::Switches;
use super::race::Halt;
use super::sections::Sections;
pub(crate) use state::Run;

/// How a search ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Offsets of all items.
    Placed(Vec<i64>),
    /// There is no placement below the capacity.
    Impossible,
    /// The work ran out, or someone asked to stop.
    Unknown,
}

/// The part of a problem that does not change between searches at different capacities.
pub(crate) struct Search<'a> {
    instance: &'a Instance,
    sections: &'a Sections,
    switches: Switches,
    sizes: Vec<i64>,
    /// Index of an equal item earlier in the list, if any.
    twin: Vec<u32>,
    /// Smallest size in each section.
    smallest: Vec<i64>,
    /// Fixed byte ranges by section: reserved ranges and pinned items, sorted.
    blocks: Vec<Vec<(i64, i64)>>,
    has_blocks: bool,
    aligned: bool,
    /// Values for the hash of a state.
    salts: Vec<u64>,
    pub work: u64,
    pub nodes: u64,
}
impl<'a> Search<'a> {
    /// Prepares; the instance must be flat.
    pub fn new(instance: &'a Instance, sections: &'a Sections, switches: Switches) -> Search<'a> {
        let n = instance.items.len();
        let sizes: Vec<i64> = instance.items.iter().map(|i| i.height).collect();
        let mut twin = vec![u32::MAX; n];
        if switches.twins {
            let mut order: Vec<u32> = (0..n as u32).collect();
            let key = |i: u32| {
                let item = &instance.items[i as usize];
                (item.height, item.align, item.residue, item.pin, &sections.of[i as usize])
            };
            order.sort_by(|&a, &b| key(a).cmp(&key(b)).then(a.cmp(&b)));
            for w in order.windows(2) {
                if key(w[0]) == key(w[1]) {
                    twin[w[1] as usize] = w[0];
                }
            }
        }
        let mut blocks = vec![Vec::new(); sections.members.len()];
        for (t, list) in blocks.iter_mut().enumerate() {
            list.extend_from_slice(&instance.reserved);
            for &i in &sections.members[t] {
                let item = &instance.items[i as usize];
                if let Some(pin) = item.pin
                    && item.height > 0
                {
                    list.push((pin, pin + item.height));
                }
            }
            list.sort_unstable();
        }
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let salts = (0..n + sections.members.len())
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed | 1
            })
            .collect();
        Search {
            has_blocks: blocks.iter().any(|b| !b.is_empty()),
            aligned: instance.items.iter().any(|i| i.align > 1),
            smallest: sections
                .members
                .iter()
                .map(|m| m.iter().map(|&i| sizes[i as usize]).min().unwrap_or(0))
                .collect(),
            instance,
            sections,
            switches,
            sizes,
            twin,
            blocks,
            salts,
            work: 0,
            nodes: 0,
        }
    }

    /// Searches for offsets with every item below `capacity`, spending at most `limit` work.
    pub fn run(&mut self, capacity: i64, limit: u64, seed: u64, halt: Halt) -> Found {
        match Run::start(self, capacity, seed) {
            Ok(mut run) => run.go(limit, halt),
            Err(()) => Found::Impossible,
        }
    }

    /// Lowest offset from `low` that the item's alignment and the fixed ranges allow.
    fn settle(&self, i: usize, low: i64) -> i64 {
        if !self.has_blocks && !self.aligned {
            return low;
        }
        let item = &self.instance.items[i];
        let mut at = item.lowest_from(low);
        if !self.has_blocks || self.sizes[i] == 0 {
            return at;
        }
        loop {
            let before = at;
            for &t in &self.sections.of[i] {
                for &(low, high) in &self.blocks[t as usize] {
                    if low < at + self.sizes[i] && at < high {
                        at = item.lowest_from(high);
                    }
                }
            }
            if at == before {
                return at;
            }
        }
    }
}
