//! Patterns of access and a closed-loop driver: how fast a part serves one pattern.

use super::counts::Counts;
use super::detailed::Detailed;
use super::error::{PartError, RequestError};
use super::part::Part;
use super::record::{Observer, Served};
use super::transfer::{Direction, Requester, Runs, Transfer};
use thiserror::Error;

/// A pattern of reads or writes, burst by burst without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Address after address.
    Stream,
    /// Blocks of so many bytes at random multiples of that size, each read in order.
    Random {
        /// Bytes of a block.
        block: u64,
    },
    /// One burst at every multiple of a number of bytes; at the end of the memory it starts again a burst further on.
    Stride {
        /// Bytes from one burst to the next.
        bytes: u64,
    },
    /// Tiles of `rows` runs of `bytes` at `pitch`, each from a random multiple of 4 KiB in the lower half.
    Tile {
        /// Runs of a tile.
        rows: u64,
        /// Bytes of a run.
        bytes: u64,
        /// Bytes from run to run.
        pitch: u64,
    },
}

/// The runs of a pattern in order.
#[derive(Clone, Debug)]
pub struct PatternRuns {
    pattern: Pattern,
    capacity: u64,
    step: u64,
    next: u64,
    offset: u64,
    random: Mersenne,
}

impl Pattern {
    /// The pattern's runs over a memory of `capacity` bytes, from a seed; `step` bytes are taken at a stride.
    #[must_use]
    pub fn runs(self, capacity: u64, step: u64, seed: u64) -> PatternRuns {
        PatternRuns { pattern: self, capacity: capacity.max(1), step, next: 0, offset: 0, random: Mersenne::new(seed) }
    }
}

impl Iterator for PatternRuns {
    type Item = Runs;

    fn next(&mut self) -> Option<Runs> {
        Some(match self.pattern {
            Pattern::Stream => {
                let run = Runs::one(self.next % self.capacity, self.step);
                self.next += self.step;
                run
            }
            Pattern::Random { block } => {
                let block = block.max(1);
                Runs::one(self.random.next_u64() % (self.capacity / block).max(1) * block, block)
            }
            Pattern::Stride { bytes } => {
                if self.next >= self.capacity {
                    self.offset = (self.offset + self.step) % self.capacity;
                    self.next = self.offset;
                }
                let run = Runs::one(self.next, self.step);
                self.next = self.next.saturating_add(bytes);
                run
            }
            Pattern::Tile { rows, bytes, pitch } => {
                let start = self.random.next_u64() % (self.capacity / 2 / 4096).max(1) * 4096;
                Runs { start, bytes, pitch, count: rows }
            }
        })
    }
}

/// What a driven run measured. Times are clocks of the memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Bytes a clock over the last nine tenths of the bursts.
    pub bytes_per_clock: f64,
    /// The mean clocks from a channel's taking a burst in to its coming back.
    pub latency_mean: f64,
    /// The median of those.
    pub latency_median: u64,
    /// What nearly all stay below (99 %).
    pub latency_p99: u64,
    /// The clock at which the last burst came back.
    pub clocks: u64,
    /// What the memory counted.
    pub counts: Counts,
}

/// A driver that cannot run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DriveError {
    /// The part is not one.
    #[error(transparent)]
    Part(#[from] PartError),
    /// A request is refused.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Fewer than ten bursts say nothing.
    #[error("{0} bursts are too few to measure: ten at least")]
    Few(u64),
}

/// Collects when bursts come back.
#[derive(Clone, Debug, Default)]
struct Returns {
    done: Vec<u64>,
    latency: Vec<u32>,
}

impl Observer for Returns {
    fn served(&mut self, served: &Served) {
        self.done.push(served.done);
        self.latency.push(u32::try_from(served.done - served.accepted).unwrap_or(u32::MAX));
    }
}

/// Drives one requester through a pattern: `count` bursts, as many under way as it may have.
///
/// # Errors
/// For a part, a requester or addresses that the model refuses.
pub fn drive(
    part: &Part,
    requester: Requester,
    direction: Direction,
    runs: impl IntoIterator<Item = Runs>,
    count: u64,
) -> Result<Measured, DriveError> {
    if count < 10 {
        return Err(DriveError::Few(count));
    }
    let mut memory = Detailed::observed(part, Returns::default())?;
    let requester = memory.add_requester(requester)?;
    let mut runs = runs.into_iter();
    let mut left = count;
    // Enough transfers lie ready that the requester never waits for one.
    let ahead = 2 * 1024;
    let mut open = 0;
    loop {
        while left > 0 && open < ahead {
            let Some(mut next) = runs.next() else {
                left = 0;
                break;
            };
            next = cut(next, left.saturating_mul(part.burst_bytes));
            left -= next.total_bytes().div_ceil(part.burst_bytes).min(left);
            memory.submit(memory.now(), Transfer { requester, direction, runs: next })?;
            open += 1;
        }
        if memory.run_until(u64::MAX).is_none() {
            break;
        }
        open -= 1;
    }
    let counts = memory.counts();
    let Returns { done, mut latency } = memory.observer().clone();
    latency.sort_unstable();
    let bursts = done.len();
    if bursts < 10 {
        return Err(DriveError::Few(bursts as u64));
    }
    let (first, last) = (bursts / 10, bursts - 1);
    let sum: u64 = latency.iter().map(|one| u64::from(*one)).sum();
    Ok(Measured {
        bytes_per_clock: ((bursts - first) as u64 * part.burst_bytes) as f64 / (done[last] - done[first]).max(1) as f64,
        latency_mean: sum as f64 / bursts as f64,
        latency_median: u64::from(latency[bursts / 2]),
        latency_p99: u64::from(latency[bursts * 99 / 100]),
        clocks: done[last],
        counts,
    })
}

/// The runs, no longer than so many bytes; a cut falls between runs where there are several.
fn cut(runs: Runs, bytes: u64) -> Runs {
    if runs.total_bytes() <= bytes {
        return runs;
    }
    if bytes < runs.bytes {
        return Runs { bytes, count: 1, ..runs };
    }
    Runs { count: bytes / runs.bytes, ..runs }
}

/// The 64-bit Mersenne Twister (Matsumoto and Nishimura, MT19937-64).
#[derive(Clone, Debug)]
struct Mersenne {
    state: [u64; 312],
    at: usize,
}

impl Mersenne {
    fn new(seed: u64) -> Self {
        let mut state = [seed; 312];
        for at in 1..312 {
            let before: u64 = state[at - 1];
            state[at] = 6_364_136_223_846_793_005u64.wrapping_mul(before ^ before >> 62).wrapping_add(at as u64);
        }
        Mersenne { state, at: 312 }
    }

    fn next_u64(&mut self) -> u64 {
        if self.at == 312 {
            for at in 0..312 {
                let upper = self.state[at] & 0xFFFF_FFFF_8000_0000;
                let lower = self.state[(at + 1) % 312] & 0x7FFF_FFFF;
                let word = upper | lower;
                let twist = if word & 1 == 1 { 0xB502_6F5A_A966_19E9 } else { 0 };
                self.state[at] = self.state[(at + 156) % 312] ^ word >> 1 ^ twist;
            }
            self.at = 0;
        }
        let mut word = self.state[self.at];
        self.at += 1;
        word ^= word >> 29 & 0x5555_5555_5555_5555;
        word ^= word << 17 & 0x71D6_7FFF_EDA6_0000;
        word ^= word << 37 & 0xFFF7_EEE0_0000_0000;
        word ^ word >> 43
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first and the 10,000th number that the C++ standard states for `mt19937_64` with seed 5489.
    #[test]
    fn the_twister_is_the_standards() {
        let mut random = Mersenne::new(5489);
        assert_eq!(random.next_u64(), 14_514_284_786_278_117_030);
        let last = (1..10_000).map(|_| random.next_u64()).last();
        assert_eq!(last, Some(9_981_545_732_273_789_042));
    }

    #[test]
    fn patterns_are_the_stated_addresses() {
        let starts =
            |pattern: Pattern| -> Vec<u64> { pattern.runs(1 << 20, 64, 1).take(4).map(|runs| runs.start).collect() };
        assert_eq!(starts(Pattern::Stream), [0, 64, 128, 192]);
        assert_eq!(starts(Pattern::Stride { bytes: 1 << 19 }), [0, 1 << 19, 64, 64 + (1 << 19)]);
        assert!(starts(Pattern::Random { block: 1024 }).iter().all(|start| start % 1024 == 0 && *start < 1 << 20));
        let tile = Pattern::Tile { rows: 8, bytes: 256, pitch: 8192 };
        assert!(starts(tile).iter().all(|start| start % 4096 == 0 && *start < 1 << 19));
    }
}
