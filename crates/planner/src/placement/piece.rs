//! A part of a problem, cut out: some items to place, and what stands around them as walls.

use super::greedy::Keys;
use super::instance::{Instance, Item, Rect, UNLIMITED};

/// First start and last end of some items.
pub(crate) fn hull(instance: &Instance, own: &[u32]) -> (i32, i32) {
    let items = own.iter().map(|&i| &instance.items[i as usize]);
    items.fold((i32::MAX, i32::MIN), |(s, e), i| (s.min(i.start), e.max(i.end)))
}

/// Some items as a problem of their own, and around them walls that are pinned.
pub(crate) struct Piece {
    pub instance: Instance,
    pub keys: Keys,
}

impl Piece {
    /// `urgency` is the largest load that each item of the whole meets, or nothing where none is wanted.
    pub fn new(instance: &Instance, urgency: &[i64], own: &[u32], around: &[u32], offsets: &[i64]) -> Piece {
        let (start, end) = hull(instance, own);
        let shift = |mut item: Item| {
            item.start -= start;
            item.end -= start;
            for r in &mut item.rects {
                r.start -= start;
                r.end -= start;
            }
            item
        };
        let mut items: Vec<Item> = own.iter().map(|&i| shift(instance.items[i as usize].clone())).collect();
        // What stands through the whole window is joined into few walls.
        let mut through: Vec<(i64, i64)> = Vec::new();
        for &i in around {
            for r in &instance.items[i as usize].rects {
                let low = offsets[i as usize] + r.delta;
                if r.start <= start && end <= r.end {
                    through.push((low, low + r.size));
                } else if r.start < end && start < r.end {
                    items.push(wall((low, low + r.size), (r.start.max(start) - start, r.end.min(end) - start)));
                }
            }
        }
        through.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::new();
        for (low, high) in through {
            match joined.last_mut() {
                Some(last) if low <= last.1 => last.1 = last.1.max(high),
                _ => joined.push((low, high)),
            }
        }
        items.extend(joined.into_iter().map(|bytes| wall(bytes, (0, end - start))));
        let mut urgency: Vec<i64> = own.iter().map(|&i| urgency.get(i as usize).copied().unwrap_or(0)).collect();
        urgency.resize(items.len(), 0);
        let plain = items.iter().all(Item::is_rectangle);
        let flat = items.iter().all(Item::is_flat);
        let piece = Instance {
            items,
            unit: 1,
            times: (0..=(end - start).max(0) as u64).collect(),
            capacity: UNLIMITED,
            reserved: instance.reserved.clone(),
            penalties: Vec::new(),
            fixed_cost: 0,
            plain,
            flat,
        };
        Piece { instance: piece, keys: Keys::of_urgency(urgency) }
    }
}

/// A pinned rectangle that belongs to no buffer.
fn wall((low, high): (i64, i64), (start, end): (i32, i32)) -> Item {
    let size = high - low;
    Item {
        rects: vec![Rect { delta: 0, size, start, end, buffer: u32::MAX }],
        members: Vec::new(),
        align: 1,
        residue: 0,
        height: size,
        pin: Some(low),
        hint: None,
        start,
        end,
        in_turn: true,
        apart: Vec::new(),
        exclusive: Vec::new(),
    }
}
