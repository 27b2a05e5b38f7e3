//! Passes over a few hundred items that each fill one range of bytes: one flat list, no blocks.
//!
//! ```text
//!   entries, by offset:  [low high start end id] [low high start end id] ...
//!   item:  raw = highest end so far of what conflicts;  a gap is where low - raw >= size
//! ```
//! The same answers as [`Board`](super::board::Board) gives, offset for offset, for a fraction of the time: an
//! entry costs two or three cycles, whether it conflicts or not. Items with gaps in their lives, and those kept apart
//! or never coexisting, conflict by a row of bits; the others by their times.

use super::board::Fit;
use super::instance::{Instance, Item, Rect};

/// Most items; their rows of bits then fit the second level of a processor's cache.
const MOST: usize = 1_024;

const WORD: usize = 64;

/// Eight bits as eight bytes.
const SPREAD: [[i8; 8]; 256] = {
    let mut out = [[0; 8]; 256];
    let mut k = 0;
    while k < 256 * 8 {
        out[k / 8][k % 8] = -((((k / 8) >> (k % 8)) & 1) as i8);
        k += 1;
    }
    out
};

/// Something placed.
#[derive(Clone, Copy)]
struct Entry {
    low: i64,
    high: i64,
    start: u16,
    end: u16,
    id: u32,
}

/// Entries between two looks at whether the ceiling is reached.
const STRETCH: usize = 32;

/// The conflicts of an instance, and room for one pass at a time.
pub(crate) struct Compact<'a> {
    instance: &'a Instance,
    /// Conflicts by item, `words` each; empty where times say all.
    rows: Vec<u64>,
    words: usize,
    /// The row of the item that is being placed, a byte each: all bits where it conflicts.
    spread: Vec<i8>,
    entries: Vec<Entry>,
}

impl<'a> Compact<'a> {
    /// `None` where the instance is too large or has items of several heights.
    pub fn new(instance: &'a Instance) -> Option<Compact<'a>> {
        let count = instance.items.len();
        let simple = |i: &Item| {
            i.is_flat()
                && i.in_turn
                && !i.rects.is_empty()
                && (i.members.len() == 1 && i.members[0].size == i.height
                    || i.is_rectangle() && i.apart.is_empty() && i.exclusive.is_empty())
        };
        if count > MOST || instance.slots() >= usize::from(u16::MAX) || !instance.items.iter().all(simple) {
            return None;
        }
        let words = (count + 1).div_ceil(WORD);
        let rows = if instance.plain { Vec::new() } else { conflicts(instance, words)? };
        let spread = vec![0; if rows.is_empty() { 0 } else { words * WORD }];
        Some(Compact { instance, rows, words, spread, entries: Vec::with_capacity(count + instance.reserved.len()) })
    }

    /// Places items in the given order; the first that finds no room below the ceiling ends the pass, or the one after
    /// which more than `limit` entries have been looked at. With it goes how many that were.
    pub fn pass(&mut self, order: &[u32], fit: Fit, ceiling: i64, limit: u64) -> (Result<Vec<i64>, u32>, u64) {
        let instance = self.instance;
        let mut work = 0;
        self.entries.clear();
        for &(low, high) in &instance.reserved {
            self.entries.push(Entry { low, high, start: 0, end: u16::MAX, id: instance.items.len() as u32 });
        }
        let mut offsets = vec![0; instance.items.len()];
        for &i in order {
            let item = &instance.items[i as usize];
            let found = if instance.plain {
                let (start, end) = (i64::from(item.start), i64::from(item.end));
                // Both differences are negative.
                let overlap = |e: &Entry| ((i64::from(e.start) - end) & (start - i64::from(e.end))) >> (WORD - 1);
                find(&self.entries, item, fit, ceiling, &mut work, overlap)
            } else {
                let row = &self.rows[i as usize * self.words..][..self.words];
                let bytes = row.iter().flat_map(|w| w.to_le_bytes());
                for (eight, byte) in self.spread.chunks_exact_mut(8).zip(bytes) {
                    eight.copy_from_slice(&SPREAD[usize::from(byte)]);
                }
                let spread = &self.spread;
                find(&self.entries, item, fit, ceiling, &mut work, |e| i64::from(spread[e.id as usize]))
            };
            let Some(at) = found.filter(|_| work <= limit) else { return (Err(i), work) };
            offsets[i as usize] = at;
            let place = self.entries.partition_point(|e| e.low <= at);
            let entry =
                Entry { low: at, high: at + item.height, start: item.start as u16, end: item.end as u16, id: i };
            self.entries.insert(place, entry);
        }
        (Ok(offsets), work)
    }
}

/// The offset that `fit` chooses for an item among `entries`. `conflicts` answers with all bits or none.
fn find(
    entries: &[Entry],
    item: &Item,
    fit: Fit,
    ceiling: i64,
    work: &mut u64,
    conflicts: impl Fn(&Entry) -> i64,
) -> Option<i64> {
    let (size, limit) = (item.height, ceiling - item.height);
    if let Some(pin) = item.pin {
        *work += entries.len() as u64;
        let free = !entries.iter().any(|e| conflicts(e) != 0 && e.low - size < pin && pin < e.high);
        return (pin <= limit && free).then_some(pin);
    }
    // Everything below is taken.
    let mut raw = 0;
    let mut best: Option<(i64, i64)> = None;
    'all: for stretch in entries.chunks(STRETCH) {
        *work += stretch.len() as u64;
        for e in stretch {
            // What does not conflict looks like a range below zero. A branch would be guessed wrong.
            let hits = conflicts(e);
            if (e.low | !hits) - raw >= size {
                let at = item.lowest_from(raw);
                let left = e.low - at - size;
                if left >= 0 {
                    if fit == Fit::First {
                        return (at <= limit).then_some(at);
                    }
                    if best.is_none_or(|b| left < b.0) && at <= limit {
                        best = Some((left, at));
                        if left == 0 {
                            break 'all;
                        }
                    }
                }
            }
            raw = raw.max(e.high & hits);
        }
        if raw > limit {
            break;
        }
    }
    let at = item.lowest_from(raw);
    best.map(|b| b.1).or((at <= limit).then_some(at))
}

/// Rows of bits: which items may not share bytes. `None` where separations say more than that.
fn conflicts(instance: &Instance, words: usize) -> Option<Vec<u64>> {
    let count = instance.items.len();
    let (starts, ends) = (by_slot(instance, |r| r.start), by_slot(instance, |r| r.end));
    let mut live = vec![0u64; words];
    let mut rows = vec![0u64; words * words * WORD];
    for slot in 0..instance.times.len() {
        for &i in ends.at(slot) {
            live[i as usize / WORD] &= !(1 << (i as usize % WORD));
        }
        for &i in starts.at(slot) {
            for (to, from) in rows[i as usize * words..][..words].iter_mut().zip(&live) {
                *to |= from;
            }
            live[i as usize / WORD] |= 1 << (i as usize % WORD);
        }
    }
    mirror(&mut rows, words);
    for (i, item) in instance.items.iter().enumerate() {
        // Reserved ranges, the item after the last, conflict with all.
        rows[i * words + count / WORD] |= 1 << (count % WORD);
        for &(_, other, _) in &item.exclusive {
            rows[i * words + other as usize / WORD] &= !(1 << (other as usize % WORD));
        }
        for &(other, low, high) in &item.apart {
            // The whole of both, not a part that sticks out.
            if (low, high) != (-instance.items[other as usize].height, item.height) {
                return None;
            }
            rows[i * words + other as usize / WORD] |= 1 << (other as usize % WORD);
        }
    }
    Some(rows)
}

/// Items by a slot of their rectangles, those of one slot in a row.
struct BySlot {
    from: Vec<u32>,
    items: Vec<u32>,
}

impl BySlot {
    fn at(&self, slot: usize) -> &[u32] {
        &self.items[self.from[slot] as usize..self.from[slot + 1] as usize]
    }
}

fn by_slot(instance: &Instance, slot: impl Fn(&Rect) -> i32) -> BySlot {
    let all = || instance.items.iter().enumerate().flat_map(|(i, item)| item.rects.iter().map(move |r| (i, r)));
    let mut next = vec![0u32; instance.times.len() + 2];
    all().for_each(|(_, r)| next[slot(r) as usize + 2] += 1);
    for k in 2..next.len() {
        next[k] += next[k - 1];
    }
    let mut items = vec![0; next[next.len() - 1] as usize];
    for (i, r) in all() {
        let to = &mut next[slot(r) as usize + 1];
        items[*to as usize] = i as u32;
        *to += 1;
    }
    BySlot { from: next, items }
}

/// Makes a square of bits symmetric, 64 by 64 at a time.
fn mirror(rows: &mut [u64], words: usize) {
    let take = |rows: &[u64], a: usize, b: usize| std::array::from_fn(|k| rows[(a * WORD + k) * words + b]);
    for a in 0..words {
        for b in 0..=a {
            let (mut one, mut two): ([u64; WORD], [u64; WORD]) = (take(rows, a, b), take(rows, b, a));
            transpose(&mut one);
            transpose(&mut two);
            for k in 0..WORD {
                rows[(b * WORD + k) * words + a] |= one[k];
                rows[(a * WORD + k) * words + b] |= two[k];
            }
        }
    }
}

/// Swaps rows and columns by swapping ever smaller quarters.
fn transpose(square: &mut [u64; WORD]) {
    let mut width = WORD / 2;
    let mut mask = u64::MAX >> width;
    while width > 0 {
        for k in (0..WORD).filter(|k| k & width == 0) {
            let swapped = (square[k] >> width ^ square[k + width]) & mask;
            square[k] ^= swapped << width;
            square[k + width] ^= swapped;
        }
        width /= 2;
        mask ^= mask << width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::board::Board;
    use crate::placement::instance::{Live, SpaceBuffer, SpaceProblem};
    use npumem_testing::Random;

    /// Buffers of one range of bytes each, with everything else that there is.
    fn instance(random: &mut Random) -> Option<Instance> {
        let count = 1 + random.below(90);
        let odd = random.one_in(2);
        let buffers = (0..count).map(|_| {
            let size = 1 + random.below(64);
            let start = random.below(count);
            let end = start + 1 + random.below(1 + count / 2);
            let mut live = vec![Live { start, end, low: 0, high: size }];
            while odd && random.one_in(3) {
                let from = live[live.len() - 1].end + random.below(4);
                live.push(Live { start: from, end: from + 1 + random.below(9), low: 0, high: size });
            }
            let alignment = [1, 1, 8, 12, 32][random.below(5) as usize];
            let pin = random.one_in(30).then(|| alignment * random.below(40));
            SpaceBuffer { size, alignment, live, pin, hint: None }
        });
        let mut raw = SpaceProblem { buffers: buffers.collect(), ..SpaceProblem::default() };
        let pairs = |random: &mut Random| -> Vec<(u32, u32)> {
            let all = (0..random.below(count)).map(|_| (random.below(count) as u32, random.below(count) as u32));
            all.filter(|(a, b)| a != b).collect()
        };
        if odd {
            (raw.apart, raw.exclusive) = (pairs(random), pairs(random));
        }
        raw.reserved.extend((0..random.below(3)).map(|k| (100 * k, 100 * k + random.below(60))));
        Instance::new(&raw).ok()
    }

    #[test]
    fn a_compact_pass_is_a_pass_on_the_board() {
        let mut random = Random(31);
        let (mut whole, mut cut) = (0, 0);
        for _ in 0..600 {
            let Some(instance) = instance(&mut random) else { continue };
            let mut compact = Compact::new(&instance).unwrap();
            let mut order: Vec<u32> = (0..instance.items.len() as u32).collect();
            for round in 0..4 {
                for k in (1..order.len()).rev() {
                    order.swap(k, random.below(k as u64 + 1) as usize);
                }
                let fit = [Fit::First, Fit::Best][round % 2];
                let ceiling = 50 + random.below(1_500) as i64;
                let mut board = Board::new(&instance);
                let lost = order.iter().copied().find(|&i| match board.find(i as usize, fit, ceiling) {
                    Some(at) => {
                        board.put(i as usize, at);
                        false
                    }
                    None => true,
                });
                let expected = lost.map_or_else(|| Ok(board.offsets().to_vec()), Err);
                assert_eq!(compact.pass(&order, fit, ceiling, u64::MAX).0, expected);
                (whole, cut) = (whole + u32::from(lost.is_none()), cut + u32::from(lost.is_some()));
            }
        }
        assert!(whole > 300 && cut > 300, "{whole} passes ended, {cut} found no room");
    }

    #[test]
    fn the_limit_ends_a_pass() {
        let live = vec![Live { start: 0, end: 1, low: 0, high: 8 }];
        let buffer = SpaceBuffer { size: 8, alignment: 1, live, pin: None, hint: None };
        let raw = SpaceProblem { buffers: vec![buffer; 60], ..SpaceProblem::default() };
        let instance = Instance::new(&raw).unwrap();
        let order: Vec<u32> = (0..60).collect();
        let mut compact = Compact::new(&instance).unwrap();
        // All that stand are looked at for each: 0 + 1 + ... + 59; after 15 of them it is more than 100.
        assert_eq!(compact.pass(&order, Fit::Best, 1 << 40, u64::MAX).1, 1_770);
        assert_eq!(compact.pass(&order, Fit::Best, 1 << 40, 100), (Err(14), 105));
    }

    #[test]
    fn a_square_of_bits_is_mirrored() {
        let mut random = Random(33);
        let words = 3;
        let before: Vec<u64> = (0..words * words * WORD).map(|_| random.below(u64::MAX)).collect();
        let mut after = before.clone();
        mirror(&mut after, words);
        let bit = |rows: &[u64], a: usize, b: usize| rows[a * words + b / WORD] >> (b % WORD) & 1;
        for a in 0..words * WORD {
            for b in 0..words * WORD {
                assert_eq!(bit(&after, a, b), bit(&before, a, b) | bit(&before, b, a), "{a} {b}");
            }
        }
    }
}
