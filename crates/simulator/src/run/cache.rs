//! Which sectors of the caller's memory lie in the cache that the device fills by itself.
//!
//! First come, first out, in groups of 64 sectors: what the cores share while they work side by side is kept, and
//! what was last used a whole capacity ago is not. The state is at most the cache's own size in sectors.

use super::hbm::MAX_PIECES;
use super::region::Region;
use std::collections::{BTreeMap, VecDeque};

/// Runs of one access that are looked at one by one; an access with more misses with the rest.
const MAX_RUNS: u64 = 1 << 16;

/// Groups of 64 sectors of one place that are kept track of: 128 GiB in sectors of 128 bytes.
const MAX_GROUPS: u64 = 1 << 24;

/// The sectors that are in.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    sector: u64,
    most: u64,
    held: u64,
    /// 64 sectors each, by place and number.
    groups: BTreeMap<u32, Vec<u64>>,
    /// Groups in the order in which they came.
    order: VecDeque<(u32, u32)>,
}

/// What an access found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Bytes of sectors that were in.
    pub hit: u64,
    /// Bytes of sectors that had to be brought.
    pub missed: u64,
}

impl Cache {
    pub fn new(capacity: u64, sector: u64) -> Self {
        let sector = sector.max(1);
        Cache { sector, most: (capacity / sector).max(64), held: 0, groups: BTreeMap::new(), order: VecDeque::new() }
    }

    /// Touches a region: what was in, what is brought in.
    ///
    /// `brought` takes the bytes that are brought in: first byte and count, neighbours as one.
    pub fn touch(&mut self, place: u32, region: &Region, mut brought: Option<&mut Vec<(u64, u64)>>) -> Found {
        let mut found = Found::default();
        if region.run == 0 {
            return found;
        }
        let sector = self.sector;
        if region.end() / sector / 64 >= MAX_GROUPS {
            // Further away than is kept track of: always a miss, and no walk over what a file merely claims.
            if let Some(brought) = brought {
                pieces(region, brought);
            }
            return Found { hit: 0, missed: region.bytes() };
        }
        let groups = self.groups.entry(place).or_default();
        let mut fresh = 0_u64;
        let mut last = u64::MAX;
        let runs = region.runs();
        let order = &mut self.order;
        region.each_run(MAX_RUNS, |start| {
            let (first, end) = (start / sector, (start + region.run - 1) / sector);
            // Two runs in one sector bring it once.
            let first = if first == last { first + 1 } else { first };
            last = end;
            let mut at = first;
            while at <= end {
                let (group, bit) = (at / 64, at % 64);
                let count = (64 - bit).min(end - at + 1);
                let mask = if count == 64 { u64::MAX } else { ((1 << count) - 1) << bit };
                let index = group as usize;
                if groups.len() <= index {
                    groups.resize(index + 1, 0);
                }
                let word = &mut groups[index];
                if *word == 0 {
                    order.push_back((place, index as u32));
                }
                let hits = u64::from((*word & mask).count_ones());
                found.hit += hits * sector;
                found.missed += (count - hits) * sector;
                fresh += count - hits;
                if let Some(brought) = brought.as_deref_mut() {
                    each_gap(!*word & mask, |first, count| add(brought, (group * 64 + first) * sector, count * sector));
                }
                *word |= mask;
                at += count;
            }
        });
        let rest = runs.saturating_sub(MAX_RUNS).saturating_mul(region.run);
        found.missed = found.missed.saturating_add(rest);
        if let Some(brought) = brought.filter(|_| rest > 0) {
            behind(brought, region.start, rest);
        }
        self.held += fresh;
        while self.held > self.most {
            let Some((place, index)) = self.order.pop_front() else { break };
            if let Some(word) = self.groups.get_mut(&place).and_then(|groups| groups.get_mut(index as usize)) {
                self.held -= u64::from(word.count_ones());
                *word = 0;
            }
        }
        found
    }
}

/// Runs of ones of a word: the first bit and how many.
fn each_gap(mut word: u64, mut each: impl FnMut(u64, u64)) {
    let mut at = 0_u64;
    while word != 0 {
        let zeros = word.trailing_zeros();
        word >>= zeros;
        at += u64::from(zeros);
        let ones = word.trailing_ones();
        each(at, u64::from(ones));
        word = word.checked_shr(ones).unwrap_or(0);
        at += u64::from(ones);
    }
}

/// Adds bytes to a list of pieces; past the most that are told apart, behind the last.
fn add(list: &mut Vec<(u64, u64)>, start: u64, bytes: u64) {
    let full = list.len() >= MAX_PIECES;
    match list.last_mut() {
        Some(last) if full || last.0.saturating_add(last.1) == start => last.1 = last.1.saturating_add(bytes),
        _ => list.push((start, bytes)),
    }
}

fn behind(list: &mut Vec<(u64, u64)>, start: u64, bytes: u64) {
    match list.last_mut() {
        Some(last) => last.1 = last.1.saturating_add(bytes),
        None => list.push((start, bytes)),
    }
}

/// The runs of a region as pieces.
pub(super) fn pieces(region: &Region, list: &mut Vec<(u64, u64)>) {
    region.each_run(MAX_PIECES as u64, |start| list.push((start, region.run)));
    let rest = region.runs().saturating_sub(MAX_PIECES as u64).saturating_mul(region.run);
    if rest > 0 {
        behind(list, region.start, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_touch_hits_until_others_pushed_it_out() {
        let mut cache = Cache::new(16 << 10, 128);
        let tile = Region::new(0, 1, &[(4, 4096), (256, 1)]).unwrap();
        assert_eq!(cache.touch(0, &tile, None), Found { hit: 0, missed: 1024 });
        assert_eq!(cache.touch(0, &tile, None), Found { hit: 1024, missed: 0 });
        assert_eq!(cache.touch(0, &Region::flat(100, 60), None), Found { hit: 256, missed: 0 }, "whole sectors");
        assert_eq!(cache.touch(1, &Region::flat(0, 16 << 10), None), Found { hit: 0, missed: 16 << 10 });
        assert_eq!(cache.touch(0, &tile, None).hit, 0);
        let far = Region::flat(1 << 60, 1 << 61);
        assert_eq!(cache.touch(0, &far, None), Found { hit: 0, missed: 1 << 61 });
    }
}
