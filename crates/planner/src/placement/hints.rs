//! Start from yesterday's plan and move little.
//!
//! Hinted items are fixed where they were, largest first, as long as they do not clash; the others are placed
//! around them. Who is in the way of an item that finds no room gives up its hint, and the round is repeated.

use super::board::{Board, Fit};
use super::counters::Meter;
use super::greedy::{Keys, Order};
use super::instance::Instance;

/// Bytes (in units) of items that are not at their hint.
pub(crate) fn moved(instance: &Instance, offsets: &[i64]) -> i64 {
    instance.items.iter().zip(offsets).filter(|(i, o)| i.hint.is_some_and(|h| h != **o)).map(|(i, _)| i.height).sum()
}

/// Offsets below the ceiling that move fewer bytes than `start` does, if any are found in so many rounds of each order.
pub(crate) fn keep(
    instance: &Instance,
    ceiling: i64,
    start: &[i64],
    rounds: usize,
    meter: &mut Meter,
) -> Option<Vec<i64>> {
    let before = meter.spent();
    let mut best = moved(instance, start);
    let mut found = None;
    let keys = Keys::new(instance);
    let mut dropped = vec![false; instance.items.len()];
    for order in [Order::Size, Order::Urgency] {
        let sorted = keys.sorted(instance, order);
        for _ in 0..rounds {
            if best == 0 || meter.is_interrupted() {
                break;
            }
            match around(instance, &sorted, &dropped, ceiling, meter) {
                Ok(offsets) => {
                    let bytes = moved(instance, &offsets);
                    if bytes < best {
                        best = bytes;
                        found = Some(offsets);
                    }
                    break;
                }
                Err(blocked) => {
                    // The hinted neighbours of the blocked item give way, smallest first.
                    let item = &instance.items[blocked as usize];
                    let mut near: Vec<usize> = (0..instance.items.len())
                        .filter(|&k| {
                            let other = &instance.items[k];
                            k != blocked as usize
                                && other.hint.is_some()
                                && other.pin.is_none()
                                && !dropped[k]
                                && item.start < other.end
                                && other.start < item.end
                        })
                        .collect();
                    near.sort_by_key(|&k| (instance.items[k].height, k));
                    let Some(&k) = near.first() else { break };
                    dropped[k] = true;
                }
            }
        }
    }
    meter.book("hints", before);
    found
}

/// Pins and kept hints first, then the rest by best fit; `Err` is who found no room.
fn around(
    instance: &Instance,
    order: &[u32],
    dropped: &[bool],
    ceiling: i64,
    meter: &mut Meter,
) -> Result<Vec<i64>, u32> {
    let mut board = Board::new(instance);
    let mut rest = Vec::new();
    for &i in order {
        let item = &instance.items[i as usize];
        let hint = item.hint.filter(|&h| item.pin.is_none() && !dropped[i as usize] && item.lowest_from(h) == h);
        match (item.pin, hint) {
            (None, Some(h)) if h + item.height <= ceiling && board.is_free(i as usize, h) => board.put(i as usize, h),
            (None, _) => rest.push(i),
            (Some(_), _) => match board.find(i as usize, Fit::First, ceiling) {
                Some(at) => board.put(i as usize, at),
                None => return Err(i),
            },
        }
    }
    for i in rest {
        match board.find(i as usize, Fit::Best, ceiling) {
            Some(at) => board.put(i as usize, at),
            None => {
                meter.spend(board.work);
                return Err(i);
            }
        }
    }
    meter.spend(board.work);
    Ok(board.into_offsets())
}
