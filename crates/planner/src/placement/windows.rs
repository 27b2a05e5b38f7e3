//! Very large problems: near-linear by windows of time.
//!
//! ```text
//!   |-- long: lives across two boundaries or more, placed first, all together --|
//!   |  3rd  |  1st  |  2nd  |  4th  |     windows, those with the highest load first
//! ```
//! A scan over everything placed costs the square of the number of items. Boundaries are put where few
//! items are live. A window takes all items that are live in it and not placed yet, and packs them by
//! tiers around what is placed: long items, and those of its neighbours that cross the boundary. The hottest
//! window goes first and finds out how far above the bound the ceiling must be; the others, which have
//! more room, keep below the same ceiling.

mod repeats;

use self::repeats::Repeats;
use super::board::{Board, Fit};
use super::counters::Meter;
use super::greedy::{FanResult, Keys, Order};
use super::instance::{Instance, UNLIMITED};
use super::piece::{Piece, hull};
use super::tiers;

/// Work that all windows may do together.
const MOST_WORK: u64 = 4_000_000_000;

/// Fewest and most items that begin in a window, about; in between twice as many as are live at once.
const WIDTH: (usize, usize) = (2_000, 8_000);

/// How far above the bound a window may go, in 1024ths of the bound, before any height is taken.
const STEPS: [i64; 4] = [8, 16, 32, 64];

/// Places by windows; `Err` names a pinned item that clashes.
pub(crate) fn place(instance: &Instance, keys: &Keys, target: i64, meter: &mut Meter) -> Result<FanResult, u32> {
    let cuts = boundaries(instance);
    let count = cuts.len() + 1;
    let window_of = |t: i32| cuts.partition_point(|&c| c <= t);
    let mut long = Vec::new();
    // What is live in a window, but for the long ones.
    let mut live: Vec<Vec<u32>> = vec![Vec::new(); count];
    let mut heat = vec![0; count];
    for (i, item) in instance.items.iter().enumerate() {
        let (first, last) = (window_of(item.start), window_of((item.end - 1).max(item.start)));
        let alone = item.pin.is_some() || !item.apart.is_empty() || !item.exclusive.is_empty();
        if last > first + 1 || alone {
            long.push(i as u32);
        } else {
            live[first].push(i as u32);
            if last > first {
                live[last].push(i as u32);
            }
        }
        // An item that crosses counts for the hotter side as well: heat only says who goes first.
        heat[first] = heat[first].max(keys.urgency()[i]);
    }
    let begun = meter.spent();
    let mut offsets = first_layer(instance, keys, &long, target, meter)?;
    let peak_of = |i: u32, at: i64| at + instance.items[i as usize].height;
    let mut peak = long.iter().map(|&i| peak_of(i, offsets[i as usize])).max().unwrap_or(0);
    let largest = keys.urgency().iter().copied().max().unwrap_or(0).max(1);
    let mut order: Vec<usize> = (0..count).collect();
    let mut repeats = Repeats::new(instance, &live);
    order.sort_by_key(|&w| (-(i128::from(heat[w]) * 64 / i128::from(largest)), repeats.waits(w), w));
    let mut seen = vec![usize::MAX; instance.items.len()];
    for &w in &order {
        let own: Vec<u32> = live[w].iter().copied().filter(|&i| offsets[i as usize] < 0).collect();
        if own.is_empty() {
            continue;
        }
        let around = around(instance, (&live, &long), w, &own, &offsets, &mut seen);
        let left = MOST_WORK.saturating_sub(meter.spent() - begun);
        // Cool windows need little, so the hot ones at the front may take more than their share.
        // A quarter at most, for windows that look alike may turn out to have other walls.
        let searches = (repeats.expected(w) as u64).max(4);
        let kept = searches * MOST_WORK / (2 * count as u64);
        let share = (left.saturating_sub(kept) / 8).max(left / searches);
        let piece = Piece::new(instance, keys.urgency(), &own, &around, &offsets);
        let found = repeats
            .pack(w, &piece, own.len(), || piece.pack(own.len(), (target, peak.max(target)), largest, share, meter));
        for (&i, at) in own.iter().zip(found) {
            offsets[i as usize] = at;
            peak = peak.max(peak_of(i, at));
        }
    }
    Ok(FanResult { peak, offsets, method: "windows".to_owned(), winner: (Order::Urgency, Fit::First), passes: 1 })
}

/// Placed items that are live during the hull of `own`, each once.
fn around(
    instance: &Instance,
    (live, long): (&[Vec<u32>], &[u32]),
    window: usize,
    own: &[u32],
    offsets: &[i64],
    seen: &mut [usize],
) -> Vec<u32> {
    let (start, end) = hull(instance, own);
    let mut out = Vec::new();
    let near = live[window.saturating_sub(1)..(window + 2).min(live.len())].iter().map(Vec::as_slice);
    for list in near.chain([long]) {
        for &i in list {
            let item = &instance.items[i as usize];
            if offsets[i as usize] >= 0 && item.start < end && start < item.end && seen[i as usize] != window {
                seen[i as usize] = window;
                out.push(i);
            }
        }
    }
    out
}

impl Piece {
    /// Offsets of the window's own items: below the lowest ceiling at which tiers place all of them.
    fn pack(&self, own: usize, (bound, reached): (i64, i64), largest: i64, share: u64, meter: &mut Meter) -> Vec<i64> {
        let above = |step: i64| bound + (i128::from(bound) * i128::from(step) / 1024) as i64;
        let mut below = |ceiling: i64, limit: u64| {
            tiers::place(&self.instance, &self.keys, (tiers::FINE, largest), ceiling, limit, meter)
        };
        let mut found = below(reached, if reached == bound { share / 16 } else { share / 2 });
        for step in STEPS {
            if found.is_some() {
                break;
            }
            if above(step) > reached {
                found = below(above(step), share / 4);
                let mut step = step / 2;
                while found.is_some() && step > 0 && above(step) > reached {
                    match below(above(step), share / 16) {
                        Some(better) => found = Some(better),
                        None => break,
                    }
                    step /= 2;
                }
            }
        }
        match found {
            Some(mut found) => {
                found.truncate(own);
                found
            }
            None => self.pile(own, meter),
        }
    }

    /// First fit by size without a ceiling.
    fn pile(&self, own: usize, meter: &mut Meter) -> Vec<i64> {
        let mut board = Board::new(&self.instance);
        for (i, item) in self.instance.items.iter().enumerate() {
            if let Some(pin) = item.pin {
                board.put(i, pin);
            }
        }
        let items: Vec<u32> = (0..own as u32).collect();
        for i in self.keys.sorted_among(&self.instance, Order::Size, &items) {
            // Without a ceiling there is always room.
            let at = board.find(i as usize, Fit::First, UNLIMITED).unwrap_or(board.peak);
            board.put(i as usize, at);
        }
        meter.spend(board.work);
        let mut offsets = board.into_offsets();
        offsets.truncate(own);
        offsets
    }
}

/// Boundaries between slots, each where the fewest items are live near its place in the count.
fn boundaries(instance: &Instance) -> Vec<i32> {
    let slots = instance.slots() + 1;
    let mut live = vec![0i32; slots + 1];
    let mut begun = vec![0u32; slots + 1];
    for item in &instance.items {
        if item.start < item.end {
            // Crossing the boundary before slot t: start < t < end.
            live[item.start as usize + 1] += 1;
            live[item.end as usize] -= 1;
            begun[item.start as usize] += 1;
        }
    }
    for t in 1..=slots {
        live[t] += live[t - 1];
    }
    let mut cuts = Vec::new();
    let (mut count, mut best, mut best_at) = (0usize, i32::MAX, 0usize);
    for t in 0..slots {
        let width = (2 * live[t].max(0) as usize).clamp(WIDTH.0, WIDTH.1);
        if count > width / 2 && live[t] < best {
            best = live[t];
            best_at = t;
        }
        count += begun[t] as usize;
        if count > width + width / 2 && best_at > 0 {
            cuts.push(best_at as i32);
            count = begun[best_at..=t].iter().map(|&b| b as usize).sum();
            best = i32::MAX;
            best_at = 0;
        }
    }
    cuts
}

/// The long ones: the better of a few orders.
fn first_layer(
    instance: &Instance,
    keys: &Keys,
    global: &[u32],
    target: i64,
    meter: &mut Meter,
) -> Result<Vec<i64>, u32> {
    let mut best: Option<(i64, Vec<i64>)> = None;
    for order in [Order::Duration, Order::UrgencySize, Order::Size] {
        let sorted = keys.sorted_among(instance, order, global);
        let ceiling = best.as_ref().map_or(UNLIMITED, |b| b.0 - 1);
        let mut board = Board::new(instance);
        let mut blocked = None;
        for &i in &sorted {
            match board.find(i as usize, Fit::First, ceiling) {
                Some(at) => board.put(i as usize, at),
                None => {
                    blocked = Some(i);
                    break;
                }
            }
        }
        meter.spend(board.work);
        match (blocked, &best) {
            (Some(i), None) => return Err(i),
            (Some(_), Some(_)) => {}
            (None, _) => best = Some((board.peak, board.into_offsets())),
        }
        if best.as_ref().is_some_and(|b| b.0 <= target) || meter.is_interrupted() || global.len() > 150_000 {
            break;
        }
    }
    Ok(best.map_or_else(|| vec![0; instance.items.len()], |b| b.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::bounds::lower_bound;
    use crate::placement::instance::{Live, SpaceBuffer, SpaceProblem};
    use npumem_testing::Random;

    /// Several windows, with everything that makes an item long or odd.
    fn raw(random: &mut Random, count: u64) -> SpaceProblem {
        let buffers = (0..count).map(|k| {
            let size = 8 * (1 + random.below(64));
            let life = if random.one_in(200) { random.below(count) } else { random.below(60) };
            let start = random.below(count);
            let end = start + 1 + life;
            let mut live = vec![Live { start, end, low: 0, high: size }];
            if random.one_in(50) {
                live.push(Live { start: end + 2, end: end + 5, low: 0, high: size / 2 });
            }
            let pin = (k % 1000 == 7).then_some(4096 * k);
            SpaceBuffer { size, alignment: 1 << random.below(5), live, pin, hint: None }
        });
        let mut raw = SpaceProblem { buffers: buffers.collect(), ..SpaceProblem::default() };
        for _ in 0..if count > 1_000 { 40 } else { 0 } {
            let (a, b) = (8 + random.below(900) as u32, 8 + random.below(900) as u32);
            if a != b {
                raw.apart.push((a, b));
            }
        }
        raw.reserved.push((64, 128));
        raw
    }

    #[test]
    fn windows_fit_together() {
        let mut random = Random(3);
        for count in [1, 500, 5_000, 9_000] {
            let instance = Instance::new(&raw(&mut random, count)).unwrap();
            let keys = Keys::new(&instance);
            let target = lower_bound(&instance).value;
            let found = place(&instance, &keys, target, &mut Meter::new(u64::MAX, None)).unwrap();
            assert_eq!(found.peak, instance.peak(&found.offsets));
            let (low, high) = instance.reserved[0];
            let mut by_start: Vec<usize> = (0..instance.items.len()).collect();
            by_start.sort_by_key(|&i| instance.items[i].start);
            for (k, &a) in by_start.iter().enumerate() {
                let (item, at) = (&instance.items[a], found.offsets[a]);
                assert_eq!(item.lowest_from(at), at);
                assert!(item.pin.is_none_or(|p| p == at));
                assert!(at + item.height <= low || high <= at, "item {a} at {at} is in the reserved range");
                for &b in by_start[k + 1..].iter().take_while(|&&b| instance.items[b].start < item.end) {
                    assert!(!instance.clash(a, at, b, found.offsets[b]), "items {a} and {b} of {count}");
                }
                assert!(item.apart.iter().all(|p| !instance.clash(a, at, p.0 as usize, found.offsets[p.0 as usize])));
            }
            let again = place(&instance, &keys, target, &mut Meter::new(u64::MAX, None)).unwrap();
            assert_eq!(again.offsets, found.offsets);
        }
    }

    #[test]
    fn layers_that_repeat_are_packed_once() {
        let mut random = Random(4);
        let layer: Vec<(u64, u64, u64)> = (0..250)
            .map(|_| (random.below(200), 1 + random.below(60), (512 * (1 + random.below(8))) << random.below(6)))
            .collect();
        let buffers = (0..40_000usize).map(|k| {
            let (at, life, size) = layer[k % 250];
            let start = 200 * (k / 250) as u64 + at;
            // A few of them differ, so some windows must be searched in the middle of equal ones.
            let end = start + life + u64::from(k / 250 == 77);
            SpaceBuffer {
                size,
                alignment: 512,
                live: vec![Live { start, end, low: 0, high: size }],
                pin: None,
                hint: None,
            }
        });
        let raw = SpaceProblem { buffers: buffers.collect(), ..SpaceProblem::default() };
        let instance = Instance::new(&raw).unwrap();
        let target = lower_bound(&instance).value;
        let mut meter = Meter::new(u64::MAX, None);
        let found = place(&instance, &Keys::new(&instance), target, &mut meter).unwrap();
        assert!(50 * found.peak <= 51 * target, "{} for {target}", found.peak);
        assert!(meter.spent() <= MOST_WORK, "{}", meter.spent());
        for a in 0..instance.items.len() {
            // Two layers on, nothing of this one is live.
            for b in a + 1..(a / 250 * 250 + 750).min(instance.items.len()) {
                assert!(!instance.clash(a, found.offsets[a], b, found.offsets[b]), "items {a} and {b}");
            }
        }
        let mut layers: Vec<&[i64]> = found.offsets.chunks(250).collect();
        layers.sort_unstable();
        layers.dedup();
        assert!(layers.len() <= 100, "{} of 160 layers differ", layers.len());
    }

    #[test]
    fn an_even_load_ends_within_three_percent() {
        let mut random = Random(9);
        let buffers = (0..20_000u64).map(|_| {
            let (start, size) = (random.below(20_000), 64 * (1 + random.below(512)));
            let live = vec![Live { start, end: start + 1 + random.below(100), low: 0, high: size }];
            SpaceBuffer { size, alignment: 64, live, pin: None, hint: None }
        });
        let raw = SpaceProblem { buffers: buffers.collect(), ..SpaceProblem::default() };
        let instance = Instance::new(&raw).unwrap();
        let target = lower_bound(&instance).value;
        let mut meter = Meter::new(u64::MAX, None);
        let found = place(&instance, &Keys::new(&instance), target, &mut meter).unwrap();
        assert!(100 * found.peak <= 103 * target, "{} for {target}", found.peak);
        assert!(meter.spent() <= 2 * MOST_WORK, "{}", meter.spent());
    }
}
