//! Very large problems: near-linear by windows of time.
//!
//! ```text
//!   |-- long: lives across a boundary, placed first, all together --|
//!   |  short  |  short  |  short  |  short  |     each window alone, around the long ones
//! ```
//! Those that live where the load is largest are placed first as well: the peak is decided there.
//! A scan over everything placed costs the square of the number of items. Boundaries are put where few
//! items are live; those that cross one are placed on one board, and each window then sees only the long
//! ones that reach into it and its own. Windows are independent, so each takes its own best order.

use super::board::{Board, Fit};
use super::counters::Meter;
use super::greedy::{FanResult, Keys, Order};
use super::instance::{Instance, UNLIMITED};

/// Number of items from which on windows are used.
pub(crate) const FEWEST: usize = 120_000;

/// Items that are placed first because the load is largest where they live.
const CRITICAL: usize = 30_000;

/// Work after which every window gets one pass.
const MOST_WORK: u64 = 1_200_000_000;

/// Items in a window, about.
const WIDTH: usize = 8_000;

/// Places by windows; `Err` names a pinned item that clashes.
pub(crate) fn place(instance: &Instance, keys: &Keys, target: i64, meter: &mut Meter) -> Result<FanResult, u32> {
    let cuts = boundaries(instance);
    let window_of = |t: i32| cuts.partition_point(|&c| c <= t);
    let critical = critical_from(keys);
    let mut long: Vec<bool> = vec![false; instance.items.len()];
    let mut windows: Vec<Vec<u32>> = vec![Vec::new(); cuts.len() + 1];
    for (i, item) in instance.items.iter().enumerate() {
        let (first, last) = (window_of(item.start), window_of((item.end - 1).max(item.start)));
        long[i] = first != last
            || keys.urgency()[i] >= critical
            || item.pin.is_some()
            || !item.apart.is_empty()
            || !item.exclusive.is_empty();
        if !long[i] {
            windows[first].push(i as u32);
        }
    }
    let global: Vec<u32> = (0..instance.items.len() as u32).filter(|&i| long[i as usize]).collect();
    let mut offsets = first_layer(instance, keys, &global, target, meter)?;
    // Long items of each window, for its board.
    let mut reach: Vec<Vec<u32>> = vec![Vec::new(); cuts.len() + 1];
    for &i in &global {
        let item = &instance.items[i as usize];
        for r in reach.iter_mut().take(window_of((item.end - 1).max(item.start)) + 1).skip(window_of(item.start)) {
            r.push(i);
        }
    }
    let mut peak = global.iter().map(|&i| offsets[i as usize] + instance.items[i as usize].height).max().unwrap_or(0);
    let mut board = Board::new(instance);
    for (own, long) in windows.iter().zip(&reach) {
        let best = window(&mut board, keys, (own, long), &offsets, target.max(peak), meter);
        for (&i, at) in own.iter().zip(best) {
            offsets[i as usize] = at;
            peak = peak.max(at + instance.items[i as usize].height);
        }
    }
    Ok(FanResult { peak, offsets, method: "windows".to_owned(), winner: (Order::Urgency, Fit::First), passes: 1 })
}

/// The urgency from which on an item belongs to the first layer: about [`CRITICAL`] items do.
fn critical_from(keys: &Keys) -> i64 {
    let mut urgency = keys.urgency().to_vec();
    urgency.sort_unstable();
    urgency.len().checked_sub(CRITICAL).and_then(|k| urgency.get(k).copied()).map_or(i64::MAX, |u| u.max(1))
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
        if count > WIDTH / 2 && live[t] < best {
            best = live[t];
            best_at = t;
        }
        count += begun[t] as usize;
        if count > WIDTH + WIDTH / 2 && best_at > 0 {
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
    for order in [Order::UrgencySize, Order::Size] {
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

/// One window around the long items; offsets in the order of `own`.
fn window(
    board: &mut Board,
    keys: &Keys,
    (own, long): (&[u32], &[u32]),
    offsets: &[i64],
    target: i64,
    meter: &mut Meter,
) -> Vec<i64> {
    let instance = board.instance();
    let mut best: Option<(i64, Vec<i64>)> = None;
    let passes = [
        (Order::Size, Fit::First),
        (Order::UrgencySize, Fit::First),
        (Order::Urgency, Fit::Best),
        (Order::Conflicts, Fit::Best),
        (Order::Area, Fit::First),
        (Order::Start, Fit::Best),
    ];
    for (order, fit) in passes {
        let enough = meter.is_interrupted() || meter.spent() > MOST_WORK;
        if best.as_ref().is_some_and(|b| b.0 <= target || enough) {
            break;
        }
        let ceiling = best.as_ref().map_or(UNLIMITED, |b| b.0 - 1);
        board.clear();
        for &i in long {
            board.put(i as usize, offsets[i as usize]);
        }
        board.peak = 0;
        let mut complete = true;
        for i in keys.sorted_among(instance, order, own) {
            match board.find(i as usize, fit, ceiling) {
                Some(at) => board.put(i as usize, at),
                None => {
                    complete = false;
                    break;
                }
            }
        }
        meter.spend(std::mem::take(&mut board.work));
        if complete {
            let peak = board.peak;
            best = Some((peak, own.iter().map(|&i| board.offsets()[i as usize]).collect()));
        }
    }
    best.map_or_else(Vec::new, |b| b.1)
}
