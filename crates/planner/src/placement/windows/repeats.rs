//! Windows that repeat: a layer that is unrolled many times is packed once.
//!
//! ```text
//!   | A | B | A | B | A |     every second window first, all alike: packed once, copied
//!       | B | A | B |         then those between, with the same walls on both sides: packed once, copied
//! ```
//! Packed from one end to the other, each window would meet other walls than the one before, and be a new problem.

use crate::placement::instance::{Instance, Item};
use crate::placement::piece::Piece;
use std::collections::HashMap;

/// Sizes, times and alignments of a window and its walls, relative to its start.
type Likeness = Vec<i64>;

/// Which windows look alike, and what was found for them.
pub(super) struct Repeats {
    /// Windows with the same buffers, the same ones beside them and the same turn share a class.
    class: Vec<usize>,
    /// Of each class: windows not yet packed, and packings that had to be searched.
    open: Vec<(usize, usize)>,
    /// Searches that are still to be expected.
    expected: usize,
    repeating: bool,
    packed: HashMap<Likeness, Vec<i64>>,
}

impl Repeats {
    pub fn new(instance: &Instance, live: &[Vec<u32>]) -> Repeats {
        let prints: Vec<u64> = live.iter().map(|items| print(instance, items)).collect();
        let beside = |w: usize, by: usize| w.checked_sub(1).and_then(|v| prints.get(v + by)).copied().unwrap_or(0);
        let mut known: HashMap<(u64, u64, u64, usize), usize> = HashMap::new();
        let mut class = Vec::with_capacity(live.len());
        let mut open: Vec<(usize, usize)> = Vec::new();
        for (w, &own) in prints.iter().enumerate() {
            let next = known.len();
            let of = *known.entry((beside(w, 0), own, beside(w, 2), w % 2)).or_insert(next);
            if of == open.len() {
                open.push((0, 0));
            }
            open[of].0 += 1;
            class.push(of);
        }
        let repeating = 2 * open.len() <= live.len();
        Repeats { expected: open.len(), class, open, repeating, packed: HashMap::new() }
    }

    /// Whether the window waits until those beside it stand.
    pub fn waits(&self, window: usize) -> bool {
        self.repeating && window % 2 == 1
    }

    /// Searches that are still to be expected when it is this window's turn.
    pub fn expected(&self, window: usize) -> usize {
        // One that comes after its class was packed is searched only if the walls differ; so may the others be.
        let (left, searched) = self.open[self.class[window]];
        self.expected + if searched == 1 { left } else { 0 }
    }

    /// The offsets of a window: those of an equal one, else what `search` finds.
    pub fn pack(&mut self, window: usize, piece: &Piece, own: usize, search: impl FnOnce() -> Vec<i64>) -> Vec<i64> {
        let class = &mut self.open[self.class[window]];
        class.0 -= 1;
        // A window that nothing is like is not worth remembering.
        let likeness = (class.0 > 0 || class.1 > 0).then(|| likeness(&piece.instance, own));
        if let Some(found) = likeness.as_ref().and_then(|l| self.packed.get(l)) {
            self.expected -= usize::from(class.1 > 1);
            return found.clone();
        }
        class.1 += 1;
        match class.1 {
            1 => self.expected -= 1,
            // The walls differ after all: each of the class is a search.
            2 => self.expected += class.0,
            _ => self.expected -= 1,
        }
        let found = search();
        if let Some(likeness) = likeness {
            self.packed.insert(likeness, found.clone());
        }
        found
    }
}

/// A number that equal windows share; different ones may share it too.
fn print(instance: &Instance, items: &[u32]) -> u64 {
    let from = items.iter().map(|&i| instance.items[i as usize].start).min().unwrap_or(0);
    let mut sum = items.len() as u64;
    for &i in items {
        let item = &instance.items[i as usize];
        for part in [i64::from(item.start - from), i64::from(item.end - from), item.height] {
            sum = (sum ^ part as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
    }
    sum
}

/// All that decides whether offsets of one window are sound for another.
fn likeness(piece: &Instance, own: usize) -> Likeness {
    let mut out = vec![own as i64];
    let mut put = |item: &Item| {
        out.extend([item.align, item.residue, item.height, item.rects.len() as i64]);
        for r in &item.rects {
            out.extend([r.delta, r.size, i64::from(r.start), i64::from(r.end)]);
        }
        for m in &item.members {
            out.extend([m.delta, m.size]);
        }
    };
    piece.items[..own].iter().for_each(&mut put);
    let mut walls: Vec<&Item> = piece.items[own..].iter().collect();
    walls.sort_by_key(|w| (w.pin, w.height, w.start, w.end));
    for wall in walls {
        out.extend([wall.pin.unwrap_or(0), wall.height, i64::from(wall.start), i64::from(wall.end)]);
    }
    out
}
