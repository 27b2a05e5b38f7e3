//! Local search over the orders of a greedy pass.
//!
//! *Squeaky wheels* ([`squeeze`]): whoever finds no room goes to the front of the next round.
//! A greedy pass below a ceiling leaves some items over. They are placed first in the next pass, the
//! rest in the old order. That repairs the few conflicts at the peak that separate the best fixed order
//! from the bound, on traces of any size, and works with every constraint.
//!
//! *Climbing* ([`climb`]): whoever sets the peak, or somebody who lives beside it, goes somewhere earlier in the order;
//! the change stays if the peak is no higher. That finds what fixed orders miss where alignments and gaps keep the
//! exact search from pruning.

use super::board::{Board, Fit};
use super::counters::Meter;
use super::greedy::Passes;
use super::instance::Instance;

/// Places what fits below the ceiling; returns the offsets and the items left over.
fn round(
    instance: &Instance,
    order: &[u32],
    fit: Fit,
    ceiling: i64,
    most: usize,
    meter: &mut Meter,
) -> (Vec<i64>, Vec<u32>) {
    let mut board = Board::new(instance);
    let mut left = Vec::new();
    for (done, &i) in order.iter().enumerate() {
        match board.find(i as usize, fit, ceiling) {
            Some(at) => board.put(i as usize, at),
            None => left.push(i),
        }
        if left.len() >= most || (done % 1024 == 1023 && meter.is_interrupted()) {
            left.push(i);
            break;
        }
    }
    meter.spend(board.work);
    (board.into_offsets(), left)
}

/// Rounds below `ceiling` until everything fits (then also the order that did it), `rounds` are over or the work is spent.
pub(crate) fn squeeze(
    instance: &Instance,
    start: &[u32],
    fit: Fit,
    ceiling: i64,
    rounds: u32,
    limit: u64,
    meter: &mut Meter,
) -> Option<(Vec<i64>, Vec<u32>)> {
    let mut order = start.to_vec();
    let begun = meter.spent();
    let mut front = vec![0u32; instance.items.len()];
    for turn in 0..rounds {
        let (offsets, left) = round(instance, &order, fit, ceiling, 64.max(instance.items.len() / 50), meter);
        if left.is_empty() {
            return Some((offsets, order));
        }
        if meter.spent() - begun > limit || meter.is_interrupted() {
            return None;
        }
        for &i in &left {
            front[i as usize] = turn + 1;
        }
        let mut moved: Vec<u32> = left;
        moved.sort_by_key(|&i| (std::cmp::Reverse(instance.items[i as usize].height), i));
        moved.dedup();
        moved.extend(order.iter().copied().filter(|&i| front[i as usize] != turn + 1));
        order = moved;
        order.sort_by_key(|&i| instance.items[i as usize].pin.is_none());
    }
    None
}

/// Changes of the order by chance, first fit after each, until the peak is at most `target` or the work is spent. The
/// placement at the end, when its peak is below that of `start`.
pub(crate) fn climb(
    instance: &Instance,
    start: &[u32],
    target: i64,
    limit: u64,
    seed: u64,
    meter: &mut Meter,
) -> Option<Vec<i64>> {
    let pinned = start.iter().filter(|&&i| instance.items[i as usize].pin.is_some()).count();
    let mut chance = Chance(seed);
    let mut passes = Passes::new(instance);
    let begun = meter.spent();
    let mut order = start.to_vec();
    let mut offsets = passes.run(&order, Fit::First, i64::MAX / 2, u64::MAX, meter).ok()?;
    let first = instance.peak(&offsets);
    let mut peak = first;
    while peak > target && meter.spent() - begun < limit && !meter.is_interrupted() {
        meter.spend(order.len() as u64);
        let place = to_move(instance, &order, &offsets, peak, &mut chance);
        if place <= pinned {
            continue;
        }
        let to = pinned + chance.below(place - pinned);
        order[to..=place].rotate_right(1);
        match passes.run(&order, Fit::First, peak, u64::MAX, meter) {
            Ok(found) => {
                peak = instance.peak(&found);
                offsets = found;
            }
            Err(_) => order[to..=place].rotate_left(1),
        }
    }
    (peak < first).then_some(offsets)
}

/// The place in the order of one that reaches the peak, or of another that is live with it one time in three.
fn to_move(instance: &Instance, order: &[u32], offsets: &[i64], peak: i64, chance: &mut Chance) -> usize {
    let item = |place: usize| &instance.items[order[place] as usize];
    let top = (0..order.len()).find(|&p| offsets[order[p] as usize] + item(p).height == peak).unwrap_or(0);
    if chance.below(3) > 0 {
        return top;
    }
    // Somebody further on in a circle, from anywhere: each neighbour has its turn.
    let from = chance.below(order.len());
    let beside = |p: &usize| *p != top && item(*p).start < item(top).end && item(top).start < item(*p).end;
    (from..order.len()).chain(0..from).find(beside).unwrap_or(top)
}

/// Splitmix64 (Steele, Lea and Flood, 2014).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::instance::{Live, SpaceBuffer, SpaceProblem};

    /// Buffers of ten bytes and of thirty that are all live at once: by size they waste what alignment asks for.
    fn aligned() -> SpaceProblem {
        let buffer = |size, alignment| SpaceBuffer {
            size,
            alignment,
            live: vec![Live { start: 0, end: 1, low: 0, high: size }],
            pin: None,
            hint: None,
        };
        let buffers = [(30, 1), (20, 32), (12, 1), (44, 64), (20, 32), (30, 1)].map(|(s, a)| buffer(s, a));
        SpaceProblem { buffers: buffers.to_vec(), ..SpaceProblem::default() }
    }

    #[test]
    fn climbing_finds_the_order_that_wastes_nothing_it_need_not() {
        let instance = Instance::new(&aligned()).unwrap();
        let start: Vec<u32> = (0..6).collect();
        let mut meter = Meter::new(u64::MAX, None);
        let begin = Passes::new(&instance).run(&start, Fit::First, i64::MAX / 2, u64::MAX, &mut meter).unwrap();
        let found = climb(&instance, &start, 0, 100_000, 1, &mut meter).unwrap();
        assert!(instance.peak(&found) < instance.peak(&begin));
        // The best of all 720 orders.
        let best = orders(6).into_iter().map(|order| {
            let placed = Passes::new(&instance).run(&order, Fit::First, i64::MAX / 2, u64::MAX, &mut meter);
            instance.peak(&placed.unwrap())
        });
        assert_eq!(instance.peak(&found), best.min().unwrap());
        let again = climb(&instance, &start, 0, 100_000, 1, &mut Meter::new(u64::MAX, None)).unwrap();
        assert_eq!(found, again);
    }

    fn orders(count: u32) -> Vec<Vec<u32>> {
        let Some(last) = count.checked_sub(1) else { return vec![Vec::new()] };
        let put = |at: usize, mut order: Vec<u32>| {
            order.insert(at, last);
            order
        };
        orders(last).into_iter().flat_map(|order| (0..count as usize).map(move |at| put(at, order.clone()))).collect()
    }
}
