//! What a node of the search changes, and what one run of it holds.

use super::super::instance::UNLIMITED;
use super::Search;
use super::live::Live;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// Everything that a node changes, in one flat array so that saving it is one copy.
#[derive(Clone)]
pub(super) struct State {
    /// `limit[n] floor[s] top[s] ready[s] rest[s] bridges[s]`
    pub(super) cells: Vec<i64>,
    pub(super) n: usize,
    pub(super) s: usize,
}

impl State {
    pub(super) fn limit(&self, i: usize) -> i64 {
        self.cells[i]
    }
    pub(super) fn floor(&self, t: usize) -> i64 {
        self.cells[self.n + t]
    }
    /// Highest placed byte of a section.
    pub(super) fn top(&self, t: usize) -> i64 {
        self.cells[self.n + self.s + t]
    }
    /// Waiting members whose limit is the floor.
    pub(super) fn ready(&mut self, t: usize) -> &mut i64 {
        &mut self.cells[self.n + 2 * self.s + t]
    }
    /// Sizes of the waiting members, and fixed ranges above the floor.
    pub(super) fn rest(&mut self, t: usize) -> &mut i64 {
        &mut self.cells[self.n + 3 * self.s + t]
    }
    /// Waiting items in this section and the next one; kept for timed instances alone.
    pub(super) fn bridges(&mut self, t: usize) -> &mut i64 {
        &mut self.cells[self.n + 4 * self.s + t]
    }
}

pub(super) struct Frame {
    pub(super) placed: usize,
    pub(super) section: usize,
    pub(super) options: Vec<u32>,
    pub(super) next: usize,
    pub(super) gap: bool,
    pub(super) key: u64,
    /// Part that it branches in, and how many parts there were.
    pub(super) part: usize,
    pub(super) parts: usize,
}

/// A set of sections whose waiting items touch no other waiting item.
pub(super) struct Part {
    pub(super) sections: Vec<u32>,
    /// Frames there were when it was split off: where to go back to when it fails.
    pub(super) base: usize,
    /// What to solve after it.
    pub(super) next: usize,
}

pub(super) const NO_PART: usize = usize::MAX;
/// One run of the search at one capacity.
pub(crate) struct Run<'b, 'a> {
    pub(super) search: &'b mut Search<'a>,
    pub(super) capacity: i64,
    pub(super) state: State,
    pub(super) offsets: Vec<i64>,
    pub(super) placed: Vec<u32>,
    pub(super) waiting: usize,
    pub(super) live: Live,
    pub(super) dirty: Vec<u32>,
    pub(super) is_dirty: Vec<bool>,
    pub(super) weights: Vec<f64>,
    pub(super) saved: Vec<Vec<i64>>,
    pub(super) frames: Vec<Frame>,
    pub(super) parts: Vec<Part>,
    pub(super) part: usize,
    /// Scratch of the split: label by section.
    pub(super) label: Vec<u32>,
    pub(super) failed: HashSet<u64, BuildHasherDefault<Identity>>,
    pub(super) rank: Vec<f64>,
    /// Scratch: members of the section at hand.
    pub(super) inside: Vec<bool>,
    /// Scratch: lowest supports of the candidates at hand.
    pub(super) outside: Vec<i64>,
    pub(super) scratch: Vec<u32>,
    /// By section, a candidate and what it could rest on outside: a look there often answers for the gap.
    pub(super) witness: Vec<Option<(u32, u32)>>,
    pub(super) visited: Vec<u32>,
    pub(super) stamp: u32,
    pub(super) restart: u64,
    pub(super) seed: u64,
    /// The next step begins at the root.
    pub(super) restarting: bool,
    /// Dead ends at which to start again, and how many more they may be each time.
    pub(super) cut: u64,
    pub(super) patience: u64,
    /// Cells of the root.
    pub(super) root: Vec<i64>,
    /// Dead ends so far.
    pub(super) fails: u64,
}
/// Dead ends before the first restart.
const FIRST_RESTART: u64 = 100;
pub(super) const WAITING: i64 = -1;
/// Failed states remembered at most.
pub(super) const TABLE: usize = 4_000_000;
impl<'b, 'a> Run<'b, 'a> {
    /// The root: pinned items placed, limits settled, floors lifted. `Err` when that is impossible already.
    pub(crate) fn start(search: &'b mut Search<'a>, capacity: i64, seed: u64) -> Result<Run<'b, 'a>, ()> {
        let (n, s) = (search.sizes.len(), search.sections.members.len());
        let mut run = Run {
            capacity,
            state: State { cells: vec![0; n + 5 * s], n, s },
            offsets: vec![WAITING; n],
            placed: Vec::with_capacity(n),
            waiting: n,
            live: Live::new(search.sections),
            dirty: Vec::new(),
            is_dirty: vec![false; s],
            weights: vec![1.0; s],
            saved: Vec::new(),
            frames: Vec::new(),
            parts: Vec::new(),
            part: 0,
            label: vec![u32::MAX; s],
            failed: HashSet::default(),
            rank: vec![0.0; n],
            inside: vec![false; n],
            outside: Vec::new(),
            scratch: Vec::new(),
            witness: vec![None; s],
            visited: vec![0; n],
            stamp: 1,
            restart: 0,
            seed,
            restarting: true,
            cut: FIRST_RESTART,
            patience: FIRST_RESTART,
            root: Vec::new(),
            fails: 0,
            search,
        };
        for i in 0..n {
            if let Some(pin) = run.search.instance.items[i].pin {
                if pin + run.search.sizes[i] > capacity {
                    return Err(());
                }
                run.offsets[i] = pin;
                run.state.cells[i] = UNLIMITED;
                run.waiting -= 1;
                run.live.remove(i, &run.search.sections.of[i]);
            }
        }
        for i in 0..n {
            if run.offsets[i] == WAITING {
                let at = run.search.settle(i, 0);
                run.state.cells[i] = at;
                if at + run.search.sizes[i] > capacity {
                    return Err(());
                }
            }
        }
        for t in 0..s {
            let members = run.live.members(t);
            let rest: i64 = members.iter().map(|&i| run.search.sizes[i as usize]).sum();
            let fixed: i64 = run.search.blocks[t].iter().map(|b| (b.1.min(capacity) - b.0).max(0)).sum();
            *run.state.rest(t) = rest + fixed;
            let bridging = members.iter().filter(|&&i| run.search.sections.of[i as usize].last() != Some(&(t as u32)));
            let bridging = bridging.count() as i64;
            *run.state.bridges(t) = bridging;
            run.mark(t);
        }
        if !run.lift() {
            return Err(());
        }
        run.open();
        run.root = run.state.cells.clone();
        Ok(run)
    }

    /// Counted work of the search that this run belongs to.
    pub(crate) fn work(&self) -> u64 {
        self.search.work
    }

    /// Items placed so far, over all branches.
    pub(crate) fn nodes(&self) -> u64 {
        self.search.nodes
    }

    /// Back to the root with the next order; old failures of the sections count for less.
    pub(super) fn again(&mut self) {
        self.state.cells.copy_from_slice(&self.root);
        self.undo_to(0);
        self.frames.clear();
        self.open();
        self.restarting = true;
        self.restart += 1;
        self.patience += self.patience / 20;
        self.cut = self.fails + self.patience;
        for w in &mut self.weights {
            *w = 1.0 + (*w - 1.0) * 0.7;
        }
    }

    /// Order of trying candidates: a measure that changes with the restart, with some noise.
    pub(super) fn rank_items(&mut self) {
        let (restart, seed) = (self.restart, self.seed);
        let n = self.rank.len();
        let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (restart + 1).wrapping_mul(0xd1b5_4a32_d192_ed03);
        for i in 0..n {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let noise = if restart == 0 { 1.0 } else { 0.85 + 0.3 * ((x >> 11) as f64 / (1u64 << 53) as f64) };
            let size = self.search.sizes[i] as f64;
            let width = self.search.sections.of[i].len() as f64;
            // Widest first does best by far; every fourth restart tries another taste.
            let value =
                if restart.is_multiple_of(4) { size } else { width * 1e3 + size / (1.0 + self.capacity as f64) };
            self.rank[i] = value * noise;
        }
    }
}

pub(super) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Keys are mixed already.
#[derive(Default)]
pub(super) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(b);
        }
    }
    fn write_u64(&mut self, x: u64) {
        self.0 = x;
    }
}
