//! First fit by size over any number of plain items: what a very large problem is held against.
//!
//! ```text
//!   level 1  |        bucket       |        bucket       |     An item is listed in the buckets that its life meets, of
//!   level 0  | b | b | b | b | b | b | b | b | b | b | b |     the level whose buckets are a few times shorter than it.
//!            +-------------------------------------------> t
//! ```
//! A look-up goes through the buckets that an item's life meets, on every level, each list by offset and no further than
//! the offset that is tried. It costs what is live around the item, not what stands elsewhere. With a ceiling just
//! below a plan that is known, the pass ends where first fit breaks it: then first fit is no better, which is a proof.
//! What lives at one step depends on few others (`part_at`), so a proof is looked for around the hottest steps first.

use super::instance::{Instance, Item};

/// Buckets that a life spans on its level, at most about.
const SPAN: i32 = 4;

/// Something placed.
#[derive(Clone, Copy)]
struct Entry {
    low: i64,
    high: i64,
    start: i32,
    end: i32,
}

impl Entry {
    fn overlaps(&self, item: &Item) -> bool {
        self.start < item.end && item.start < self.end
    }
}

/// What stands, by time.
struct Shelves {
    /// Of each level: the length of its buckets in slots, and the buckets.
    levels: Vec<(i32, Vec<Vec<Entry>>)>,
    work: u64,
}

/// What came of a pass.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Offsets of all, below the ceiling.
    Placed(Vec<i64>),
    /// The first fit reaches the ceiling.
    Reaches,
    /// The limit of work came first.
    Unknown,
}

/// Can it be told whether first fit keeps a ceiling? Only of rectangles that times alone keep apart.
pub(crate) fn can_tell(instance: &Instance) -> bool {
    instance.plain
}

/// First fit in the given order, in which pinned items come first, below `ceiling` and within `limit` looks.
pub(crate) fn first_fit(instance: &Instance, order: &[u32], ceiling: i64, limit: u64) -> (Pass, u64) {
    let mut shelves = Shelves::new(instance);
    let mut offsets = vec![0; instance.items.len()];
    for &i in order {
        let item = &instance.items[i as usize];
        let at = item.pin.unwrap_or_else(|| shelves.lowest(item, &instance.reserved, ceiling));
        if at + item.height > ceiling {
            return (Pass::Reaches, shelves.work);
        }
        if shelves.work > limit {
            return (Pass::Unknown, shelves.work);
        }
        shelves.put(item, at);
        offsets[i as usize] = at;
    }
    (Pass::Placed(offsets), shelves.work)
}

/// Part of an order that first fit decides alone: what lives at `slot`, and whatever comes before something in the part
/// and lives with it, time after time. First fit over the part gives these items the offsets that they have in all of it.
///
/// The part is read from the end of the order, so that one stretch of time that only grows holds all of it so far.
pub(crate) fn part_at(instance: &Instance, order: &[u32], slot: i32) -> Vec<u32> {
    let (mut from, mut to) = (slot, slot + 1);
    let mut part = Vec::new();
    for &i in order.iter().rev() {
        let item = &instance.items[i as usize];
        if item.start < to && from < item.end {
            (from, to) = (from.min(item.start), to.max(item.end));
            part.push(i);
        }
    }
    part.reverse();
    part
}

impl Shelves {
    fn new(instance: &Instance) -> Shelves {
        let slots = instance.slots().max(1) as i32;
        let lives: i64 = instance.items.iter().map(|i| i64::from(i.end - i.start)).sum();
        let mean = lives / instance.items.len().max(1) as i64;
        let mut width = (mean / i64::from(SPAN)).clamp(1, i64::from(slots)) as i32;
        let mut levels = Vec::new();
        loop {
            levels.push((width, vec![Vec::new(); (slots / width) as usize + 1]));
            if width > slots / SPAN {
                break;
            }
            width *= SPAN;
        }
        Shelves { levels, work: 0 }
    }

    /// The lowest offset that is free for an item's life, or one past the ceiling where that is not below it.
    fn lowest(&mut self, item: &Item, reserved: &[(i64, i64)], ceiling: i64) -> i64 {
        // The buckets that it meets, each with how far it is read.
        let mut lists: Vec<(&[Entry], usize)> = Vec::new();
        for (width, buckets) in &self.levels {
            let met = &buckets[(item.start / width) as usize..=((item.end - 1) / width) as usize];
            lists.extend(met.iter().filter(|b| !b.is_empty()).map(|b| (b.as_slice(), 0)));
        }
        let mut at = item.lowest_from(0);
        // Whoever lies below what is tried has been read; until one round raises nothing.
        loop {
            let before = at;
            for &(low, high) in reserved {
                if low < at + item.height && at < high {
                    at = item.lowest_from(high);
                }
            }
            for (list, next) in &mut lists {
                let from = *next;
                while let Some(e) = list.get(*next)
                    && e.low < at + item.height
                {
                    if e.high > at && e.overlaps(item) {
                        at = item.lowest_from(e.high);
                    }
                    *next += 1;
                }
                self.work += (*next - from) as u64 + 1;
            }
            if at == before || at + item.height > ceiling {
                return at;
            }
        }
    }

    fn put(&mut self, item: &Item, at: i64) {
        let life = item.end - item.start;
        let level = self.levels.iter().position(|(width, _)| life <= SPAN * width).unwrap_or(self.levels.len() - 1);
        let (width, buckets) = &mut self.levels[level];
        let entry = Entry { low: at, high: at + item.height, start: item.start, end: item.end };
        for bucket in &mut buckets[(item.start / *width) as usize..=((item.end - 1) / *width) as usize] {
            let place = bucket.partition_point(|e| e.low <= at);
            self.work += 1 + (bucket.len() - place) as u64 / 8;
            bucket.insert(place, entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::board::Fit;
    use crate::placement::counters::Meter;
    use crate::placement::greedy::{self, Keys, Order};
    use crate::placement::instance::{Live, SpaceBuffer, SpaceProblem, UNLIMITED};
    use npumem_testing::Random;

    fn instance(random: &mut Random, count: u64) -> Instance {
        let mut pinned = 0;
        let odd = random.one_in(2);
        let buffers = (0..count).map(|_| {
            let (wide, long) = (1 + random.below(12), 1 + random.below(11));
            let size = 1 + random.below(1 << wide);
            let start = random.below(2 * count);
            let end = start + 1 + random.below(1 << long);
            let pin = (odd && random.one_in(40)).then_some(pinned);
            pinned += if pin.is_some() { 64 * size } else { 0 };
            let alignment = if odd { 1 << random.below(7) } else { 1 };
            SpaceBuffer { size, alignment, live: vec![Live { start, end, low: 0, high: size }], pin, hint: None }
        });
        let mut raw = SpaceProblem { buffers: buffers.collect(), ..SpaceProblem::default() };
        if odd {
            raw.buffers.iter_mut().filter(|b| b.pin.is_some()).for_each(|b| b.alignment = 1);
            raw.reserved = vec![(100, 260), (1_000, 1_001)].into_iter().skip(random.below(2) as usize).collect();
            raw.buffers.iter_mut().filter_map(|b| b.pin.as_mut()).for_each(|p| *p += 2_000);
        }
        Instance::new(&raw).unwrap()
    }

    #[test]
    fn it_is_first_fit_by_size() {
        let mut random = Random(17);
        for count in [1, 2, 40, 400, 3_000] {
            for _ in 0..(4_000 / count).min(60) {
                let instance = instance(&mut random, count);
                let order = Keys::new(&instance).sorted(&instance, Order::Size);
                let mut meter = Meter::new(u64::MAX, None);
                let expected = greedy::pass(&instance, &order, Fit::First, UNLIMITED, &mut meter).unwrap();
                let peak = instance.peak(&expected);
                assert_eq!(first_fit(&instance, &order, peak, u64::MAX).0, Pass::Placed(expected));
                assert_eq!(first_fit(&instance, &order, peak - 1, u64::MAX).0, Pass::Reaches);
            }
        }
    }

    #[test]
    fn a_part_gets_the_offsets_that_it_has_in_all() {
        let mut random = Random(20);
        let mut smaller = 0;
        for _ in 0..40 {
            // Few are live at once, so that one leads to few others.
            let buffers = (0..2_000).map(|_| {
                let (start, size) = (random.below(4_000), 1 + random.below(100));
                let live = vec![Live { start, end: start + 1 + random.below(10), low: 0, high: size }];
                SpaceBuffer { size, alignment: 1, live, pin: None, hint: None }
            });
            let instance =
                Instance::new(&SpaceProblem { buffers: buffers.collect(), ..SpaceProblem::default() }).unwrap();
            let order = Keys::new(&instance).sorted(&instance, Order::Size);
            let Pass::Placed(all) = first_fit(&instance, &order, UNLIMITED, u64::MAX).0 else { panic!("no ceiling") };
            let slot = random.below(instance.slots() as u64) as i32;
            let part = part_at(&instance, &order, slot);
            let Pass::Placed(some) = first_fit(&instance, &part, UNLIMITED, u64::MAX).0 else { panic!("no ceiling") };
            assert!(part.iter().all(|&i| all[i as usize] == some[i as usize]));
            let live = |i: &u32| instance.items[*i as usize].start <= slot && slot < instance.items[*i as usize].end;
            assert_eq!(part.iter().filter(|i| live(i)).count(), order.iter().filter(|i| live(i)).count());
            smaller += u32::from(part.len() < order.len() / 2);
        }
        assert!(smaller > 10, "{smaller} parts of 40 are less than half");
    }

    #[test]
    fn the_limit_ends_it() {
        let instance = instance(&mut Random(18), 3_000);
        let order = Keys::new(&instance).sorted(&instance, Order::Size);
        let (pass, work) = first_fit(&instance, &order, UNLIMITED, 10_000);
        assert_eq!(pass, Pass::Unknown);
        assert!((10_000..50_000).contains(&work), "{work}");
    }
}
