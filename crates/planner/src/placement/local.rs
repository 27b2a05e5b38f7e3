//! Squeaky wheels: whoever finds no room goes to the front of the next round.
//!
//! A greedy pass below a ceiling leaves some items over. They are placed first in the next pass, the
//! rest in the old order. That repairs the few conflicts at the peak that separate the best fixed order
//! from the bound, on traces of any size, and works with every constraint.

use super::board::{Board, Fit};
use super::counters::Meter;
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
