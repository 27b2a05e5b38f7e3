//! Touching fit: of all gaps, the place where an item leaves least of its edges bare.
//!
//! ```text
//!   ceiling ==================      An item [?] may rest on what is below a gap or hang from what is above it.
//!        |   |  hangs  |            What it touches for long will go, or came, at about the same time as
//!        | [?????] above            itself, so that the room of both becomes free in one piece.
//!        |         |   |
//!        |  rests  |   |            score = steps in touch / steps live - room left over / size
//!        +---------+---+--> time
//! ```
//! The floor and the ceiling touch an item all its life.

use super::board::{BITS, Board};
use super::instance::Item;

/// A gap, with the steps for which its lower and its upper edge are touched.
#[derive(Clone, Copy)]
struct Gap {
    low: i64,
    high: i64,
    below: i64,
    above: i64,
}

/// What the choice goes by, in thousandths of the life that an item touches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights {
    /// Of room left over, in sizes of the item.
    pub waste: i64,
    /// Of chance, by the seed.
    pub noise: u64,
    pub seed: u64,
}

impl Default for Weights {
    fn default() -> Self {
        Weights { waste: 1000, noise: 0, seed: 0 }
    }
}

impl Weights {
    /// A number below the noise that depends on the seed, the item and the place alone.
    fn chance(&self, item: &Item, at: i64) -> i64 {
        if self.noise == 0 {
            return 0;
        }
        let mut z = self.seed ^ (at as u64).rotate_left(32) ^ item.start as u64;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % self.noise) as i64
    }
}

/// The best place so far.
struct Choice {
    weights: Weights,
    best: Option<(i64, i64)>,
}

impl Choice {
    /// Considers both ends of a gap.
    fn consider(&mut self, item: &Item, life: i64, gap: Gap) {
        let size = item.height;
        let (rests, hangs) = (item.lowest_from(gap.low), item.highest_to(gap.high - size));
        if rests > hangs {
            return;
        }
        let left = gap.high - gap.low - size;
        let waste = (i128::from(left) * i128::from(self.weights.waste) / i128::from(size.max(1))).min(1 << 40) as i64;
        for at in [rests, hangs] {
            let touch = if at == gap.low { gap.below } else { 0 } + if at + size == gap.high { gap.above } else { 0 };
            let score = 1000 * touch / life - waste + self.weights.chance(item, at);
            if self.best.is_none_or(|b| score > b.0) {
                self.best = Some((score, at));
            }
        }
    }
}

impl Board<'_> {
    /// Where the item, a plain rectangle, has the best touch below `ceiling`.
    pub fn find_touching(&mut self, item: &Item, ceiling: i64) -> Option<i64> {
        let (start, end, size) = (item.rects[0].start, item.rects[0].end, item.height);
        let life = i64::from(end - start).max(1);
        let mut choice = Choice { weights: self.touch, best: None };
        // Everything below `at` is taken; `below` steps of that edge touch the item.
        let (mut at, mut below) = (0, life);
        // The gap whose upper edge may still gain steps.
        let mut open: Option<Gap> = None;
        let mut work = 0;
        'blocks: for block in self.blocks() {
            if block.last <= start || end <= block.first || block.highest < at {
                continue;
            }
            let count = block.low.len();
            work += count as u64;
            let mut from = 0;
            while from < count {
                let to = (from + BITS).min(count);
                let mut mask = block.live_among(from, to, start, end);
                while mask != 0 {
                    let k = from + mask.trailing_zeros() as usize;
                    mask &= mask - 1;
                    let steps = i64::from(block.end[k].min(end)) - i64::from(block.start[k].max(start));
                    let (low, high) = (block.low[k], block.high[k]);
                    if let Some(gap) = &mut open {
                        if gap.high == low {
                            gap.above += steps;
                        } else {
                            choice.consider(item, life, *gap);
                            open = None;
                        }
                    }
                    if open.is_none() && low - at >= size {
                        open = Some(Gap { low: at, high: low.min(ceiling), below, above: steps });
                    }
                    if high > at {
                        (at, below) = (high, steps);
                    } else if high == at {
                        below += steps;
                    }
                    if at > ceiling - size {
                        break 'blocks;
                    }
                }
                from = to;
            }
        }
        if let Some(gap) = open {
            choice.consider(item, life, gap);
        }
        if at <= ceiling - size {
            choice.consider(item, life, Gap { low: at, high: ceiling, below, above: life });
        }
        self.work += work;
        choice.best.map(|b| b.1)
    }
}
