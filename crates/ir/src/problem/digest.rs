//! A problem's digest: the same for the same content, on any machine and in any version that keeps [`SCHEME`].

use super::{Location, Problem};
use crate::interval::Interval;

/// Stands in front of every digest; changes when what is digested, or how, changes.
pub const SCHEME: &str = "p1";

impl Problem {
    /// A 128-bit digest of everything but the problem's own name, in hex behind [`SCHEME`]: `p1-0123...`.
    ///
    /// It tells two problems apart; it is no defence against someone who makes two alike on purpose.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut digest = Digest::new();
        digest.count(self.spaces.len());
        for space in &self.spaces {
            digest.text(&space.name);
            digest.option(space.capacity.map(|capacity| capacity.0));
            digest.word(space.alignment.get());
            digest.count(space.reserved.len());
            space.reserved.iter().for_each(|range| digest.range(range.start.0, range.end.0));
        }
        digest.count(self.buffers.len());
        for buffer in &self.buffers {
            digest.buffer(buffer);
        }
        digest.constraints(&self.constraints);
        digest.count(self.goals().len());
        self.goals().iter().for_each(|goal| digest.word(*goal as u64));
        digest.finish()
    }
}

/// Two multiply-and-fold lanes over 64-bit words.
struct Digest {
    lanes: [u64; 2],
}

/// Odd constants with about as many ones as zeros: the first digits of pi and e after the point.
const LANES: [u64; 2] = [0x243f_6a88_85a3_08d3, 0xb7e1_5162_8aed_2a6b];

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Digest {
    fn new() -> Self {
        Digest { lanes: LANES }
    }

    fn word(&mut self, word: u64) {
        let [a, b] = self.lanes;
        // Adding the rotated lane keeps a word that meets its own lane (a product of zero) from erasing the past.
        self.lanes = [
            fold(a ^ word, LANES[0]).wrapping_add(a.rotate_left(29)),
            fold(b.wrapping_add(word), LANES[1]).wrapping_add(b.rotate_left(31)) ^ word.rotate_left(17),
        ];
    }

    fn count(&mut self, count: usize) {
        self.word(count as u64);
    }

    fn option(&mut self, value: Option<u64>) {
        self.word(u64::from(value.is_some()));
        self.word(value.unwrap_or(0));
    }

    fn range(&mut self, start: u64, end: u64) {
        self.word(start);
        self.word(end);
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        for chunk in text.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn location(&mut self, location: Option<Location>) {
        self.option(location.map(|location| u64::from(location.space.0)));
        self.word(location.map_or(0, |location| location.offset.0));
    }

    fn buffer(&mut self, buffer: &super::Buffer) {
        self.text(&buffer.name);
        self.word(buffer.size.0);
        self.word(buffer.alignment.get());
        self.word(buffer.sizing as u64 | (buffer.kind as u64) << 8);
        self.count(buffer.live.len());
        for range in &buffer.live {
            self.range(range.steps.start.0, range.steps.end.0);
            let Interval { start, end } = buffer.window(range);
            self.range(start.0, end.0);
        }
        self.count(buffer.spaces.len());
        buffer.spaces.iter().for_each(|space| self.word(u64::from(space.0)));
        self.location(buffer.pin);
        self.location(buffer.hint);
        self.option(buffer.producer.as_ref().map(|name| name.len() as u64));
        self.text(buffer.producer.as_deref().unwrap_or(""));
        self.count(buffer.uses.len());
        for access in &buffer.uses {
            self.range(access.step.0, access.bytes.0);
            self.word(access.access as u64);
        }
    }

    fn constraints(&mut self, constraints: &super::Constraints) {
        self.count(constraints.colocated.len());
        for entry in &constraints.colocated {
            self.range(u64::from(entry.buffer.0), u64::from(entry.base.0));
            self.word(entry.delta.0);
        }
        self.count(constraints.separated.len());
        for entry in &constraints.separated {
            self.range(u64::from(entry.first.0), u64::from(entry.second.0));
            self.count(entry.reasons.len());
            entry.reasons.iter().for_each(|reason| self.text(reason));
        }
        self.count(constraints.never_coexist.len());
        for (first, second) in &constraints.never_coexist {
            self.range(u64::from(first.0), u64::from(second.0));
        }
        self.count(constraints.reuse_penalties.len());
        for entry in &constraints.reuse_penalties {
            self.range(u64::from(entry.first.0), u64::from(entry.second.0));
            self.word(entry.cost);
            self.text(&entry.reason);
        }
    }

    fn finish(mut self) -> String {
        for _ in 0..3 {
            let [a, b] = self.lanes;
            self.word(a.rotate_left(32) ^ b);
        }
        format!("{SCHEME}-{:016x}{:016x}", self.lanes[0], self.lanes[1])
    }
}
