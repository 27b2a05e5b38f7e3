//! Where a tile lies in main memory, and what of it is in the cache.
//!
//! ```text
//!   start        + stride       + 2 strides
//!   [ run ]......[ run ]........[ run ]...        runs that touch are one
//! ```

use super::super::machine::Hop;
use super::super::operator::{Axis, Operand, OperandRole};
use std::collections::{HashMap, VecDeque};

/// Axes that are told apart.
const AXES: usize = 6;
/// Runs that are looked at one by one.
const MOST_RUNS: u64 = 4096;
/// Words of 64 sectors that are kept for an operand; beyond, everything is brought anew.
const MOST_WORDS: u64 = 1 << 20;
/// A tile of more bytes is brought anew: no walk over it.
const MOST_BYTES: u64 = 1 << 30;

/// The bytes of a tile in main memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Reach {
    pub start: u64,
    pub run: u64,
    /// Count and stride, the innermost first.
    dims: [(u64, u64); AXES],
    rank: usize,
    /// Bytes that the statement asks for.
    pub bytes: u64,
}

impl Reach {
    /// Of positions `(first, count)` along every axis of an operand.
    pub fn new(operand: &Operand, touched: impl Fn(&Axis) -> (u64, u64)) -> Reach {
        let bits = operand.element.bits();
        let bytes = |elements: u64| elements.saturating_mul(bits).div_ceil(8);
        let mut reach = Reach { run: bytes(1), ..Reach::default() };
        let (mut pitch, mut elements) = (1_u64, 1_u64);
        for axis in operand.axes.iter().rev() {
            let (first, count) = touched(axis);
            reach.start = reach.start.saturating_add(bytes(pitch).saturating_mul(first));
            elements = elements.saturating_mul(count);
            if count > 1 {
                reach.repeat(count, bytes(pitch));
            }
            pitch = pitch.saturating_mul(axis.extent);
        }
        reach.bytes = bytes(elements);
        if elements == 0 {
            reach.run = 0;
        }
        reach
    }

    fn repeat(&mut self, count: u64, stride: u64) {
        if self.rank == 0 && stride <= self.run {
            self.run += (count - 1) * stride;
            return;
        }
        if let Some(last) = self.rank.checked_sub(1).map(|at| &mut self.dims[at])
            && last.0.saturating_mul(last.1) == stride
        {
            last.0 *= count;
            return;
        }
        if self.rank < AXES {
            self.dims[self.rank] = (count, stride);
            self.rank += 1;
        }
    }

    pub fn runs(&self) -> u64 {
        self.dims[..self.rank].iter().fold(1, |runs, (count, _)| runs.saturating_mul(*count))
    }

    fn each(&self, most: u64, mut each: impl FnMut(u64)) {
        let mut index = [0_u64; AXES];
        let mut at = self.start;
        for _ in 0..self.runs().min(most) {
            each(at);
            for (place, (count, stride)) in index.iter_mut().zip(&self.dims[..self.rank]) {
                *place += 1;
                at = at.saturating_add(*stride);
                if *place < *count {
                    break;
                }
                at = at.saturating_sub(count.saturating_mul(*stride));
                *place = 0;
            }
        }
    }

    /// Whether all runs lie alike.
    fn even(&self, grain: u64, align: u64) -> bool {
        self.dims[..self.rank].iter().all(|(_, stride)| stride % grain == 0 && stride % align == 0)
    }

    /// Whether it has all of every sector that it touches.
    fn fills(&self, sector: u64) -> bool {
        self.start.is_multiple_of(sector) && self.run.is_multiple_of(sector) && self.even(sector, sector)
    }

    /// The same with runs joined where no sector lies between them: it touches the same sectors.
    fn joined(&self, sector: u64) -> Reach {
        let mut joined = *self;
        while joined.rank > 0 {
            let (count, stride) = joined.dims[0];
            if stride.saturating_sub(joined.run) >= sector {
                break;
            }
            joined.run = joined.run.saturating_add((count - 1).saturating_mul(stride));
            joined.dims.copy_within(1.., 0);
            joined.rank -= 1;
        }
        joined
    }

    /// Bytes with every run rounded out to the grain, and the share of the runs that start off the alignment.
    fn rounded(&self, grain: u64, align: u64) -> (f64, f64) {
        if self.run == 0 {
            return (0.0, 0.0);
        }
        let out = |start: u64| {
            let end = start.saturating_add(self.run).div_ceil(grain).saturating_mul(grain);
            (end - start / grain * grain) as f64
        };
        let most = if self.even(grain, align) { 1 } else { MOST_RUNS };
        let (mut moved, mut off, mut seen) = (0.0, 0_u64, 0_u64);
        self.each(most, |start| {
            moved += out(start);
            off += u64::from(!start.is_multiple_of(align));
            seen += 1;
        });
        let seen = seen.max(1) as f64;
        (moved * self.runs() as f64 / seen, off as f64 / seen)
    }
}

/// Bytes and unaligned shares that were counted before: they repeat from tile to tile.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounded {
    known: HashMap<(Reach, u64, u64), (f64, f64)>,
}

impl Rounded {
    pub fn of(&mut self, reach: &Reach, hop: &Hop) -> (f64, f64) {
        let (grain, align) = (hop.granularity.max(1), hop.alignment.max(1));
        let period = if grain.is_multiple_of(align) { grain } else { grain.saturating_mul(align) };
        let period = if align.is_multiple_of(grain) { align } else { period };
        let key = Reach { start: reach.start % period, ..*reach };
        if key.even(grain, align) {
            // As quick to count as to look up.
            return key.rounded(grain, align);
        }
        *self.known.entry((key, grain, align)).or_insert_with(|| key.rounded(grain, align))
    }
}

/// What the cache in front of main memory holds: first in, first out, in words of 64 sectors.
#[derive(Clone, Debug)]
pub(super) struct Held {
    sector: u64,
    most: u64,
    held: u64,
    words: Vec<Vec<u64>>,
    order: VecDeque<(usize, usize)>,
    /// Words that were let go.
    gone: u64,
    /// Operands whose tiles share no element, where the cache holds all there is: a tile is there when it was brought before.
    apart: Vec<bool>,
    /// Tiles that were touched, by operand and start: the tile, its sectors, and the words that were gone by then.
    whole: HashMap<(usize, u64), (Reach, u64, u64)>,
}

impl Held {
    pub fn new(operands: &[Operand], capacity: u64, sector: u64) -> Self {
        let sector = sector.max(1);
        let most = (capacity / sector).max(64);
        let moved = operands.iter().filter(|operand| operand.role != OperandRole::Temporary);
        let all = moved.map(|operand| operand.bytes().div_ceil(sector) + 1).fold(0, u64::saturating_add);
        let apart = |operand: &Operand| all <= most && operand.axes.iter().all(|axis| axis.as_plain().is_some());
        Held {
            sector,
            most,
            apart: operands.iter().map(apart).collect(),
            held: 0,
            words: vec![Vec::new(); operands.len()],
            order: VecDeque::new(),
            gone: 0,
            whole: HashMap::new(),
        }
    }

    /// Touches a tile; bytes of its sectors that were there, and that were not.
    pub fn touch(&mut self, operand: usize, reach: &Reach) -> [f64; 2] {
        if reach.run == 0 {
            return [0.0, 0.0];
        }
        if reach.bytes > MOST_BYTES {
            return [0.0, reach.bytes as f64];
        }
        let sector = self.sector;
        // Another core's tile that was brought when all that is there now was.
        if let Some((with, sectors, gone)) = self.whole.get(&(operand, reach.start))
            && *gone == self.gone
            && with == reach
        {
            return [(sectors * sector) as f64, 0.0];
        }
        if self.apart[operand] && reach.fills(sector) {
            let bytes = reach.runs().saturating_mul(reach.run);
            self.whole.insert((operand, reach.start), (*reach, bytes / sector, self.gone));
            return [0.0, bytes as f64];
        }
        let asked = *reach;
        let (mut there, mut brought) = (0_u64, 0_u64);
        let (words, order) = (&mut self.words[operand], &mut self.order);
        let mut last = None;
        let reach = &reach.joined(sector);
        let mut kept = true;
        reach.each(u64::MAX, |start| {
            let mut at = start / sector;
            let end = (start + reach.run - 1) / sector;
            if last == Some(at) {
                at += 1;
            }
            last = Some(end);
            while at <= end {
                let (word, bit) = (at / 64, at % 64);
                let count = (64 - bit).min(end - at + 1);
                at += count;
                if word >= MOST_WORDS {
                    kept = false;
                    brought += count;
                    continue;
                }
                let mask = (u64::MAX >> (64 - count)) << bit;
                let index = word as usize;
                if words.len() <= index {
                    words.resize(index + 1, 0);
                }
                if words[index] == 0 {
                    order.push_back((operand, index));
                }
                let found = u64::from((words[index] & mask).count_ones());
                there += found;
                brought += count - found;
                words[index] |= mask;
            }
        });
        self.held += brought;
        while self.held > self.most {
            let Some((operand, index)) = self.order.pop_front() else { break };
            self.held -= u64::from(self.words[operand][index].count_ones()).min(self.held);
            self.words[operand][index] = 0;
            self.gone += 1;
        }
        if kept {
            self.whole.insert((operand, asked.start), (asked, there + brought, self.gone));
        }
        [(there * sector) as f64, (brought * sector) as f64]
    }
}
