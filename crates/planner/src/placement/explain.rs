//! Why a capacity cannot be met: as few buffers as possible that already cannot be placed.

use super::bounds::{self, Reason};
use super::counters::Meter;
use super::feasible::{self, Answer};
use super::instance::Instance;
use super::options::PlacementOptions;
use super::result::Cause;

/// Items that cannot all be placed below the capacity.
pub(crate) struct Core {
    pub items: Vec<u32>,
    /// Slots at which all of them are live, if any.
    pub slots: Vec<usize>,
    pub cause: Cause,
    pub needed: Option<i64>,
    pub irreducible: bool,
}

/// Reduces an infeasible instance to a core.
pub(crate) fn core(instance: &Instance, options: &PlacementOptions, meter: &mut Meter) -> Core {
    if let Some(alone) = too_large(instance) {
        return alone;
    }
    let before = meter.spent();
    let bound = bounds::lower_bound(instance);
    let mut items: Vec<u32> = (0..instance.items.len() as u32).collect();
    let mut cause = Cause::Arrangement;
    if bound.value > instance.capacity {
        match bound.reason {
            Reason::Load { slot } | Reason::Padded { slot } => {
                let live = |i: &u32| {
                    instance.items[*i as usize].rects.iter().any(|r| r.start as usize <= slot && slot < r.end as usize)
                };
                items.retain(live);
                cause = Cause::Load;
            }
            Reason::Item { item } => {
                items = vec![item as u32];
                cause = if instance.items[item].pin.is_some() { Cause::Pins } else { Cause::TooLarge };
            }
            Reason::Empty | Reason::Clique | Reason::Search => {}
        }
    }
    // Smallest first, so that the large ones remain.
    items.sort_by_key(|&i| (instance.items[i as usize].height, i));
    let stacked = cause == Cause::Load
        && instance.plain
        && instance.reserved.is_empty()
        && items.iter().all(|&i| instance.items[i as usize].align == 1 && instance.items[i as usize].pin.is_none());
    let irreducible = if stacked {
        stack(instance, &mut items);
        true
    } else if items.len() <= 2_000 {
        reduce(instance, &mut items, options, meter)
    } else {
        false
    };
    items.sort_unstable();
    let core = subset(instance, &items);
    let value = bounds::lower_bound(&core).value;
    if value <= instance.capacity && cause == Cause::Load {
        cause = Cause::Arrangement;
    }
    if value > instance.capacity && cause == Cause::Arrangement {
        cause = Cause::Load;
    }
    meter.book("explain", before);
    Core {
        slots: common_slots(instance, &items),
        needed: (value > instance.capacity).then_some(value),
        items,
        cause,
        irreducible,
    }
}

/// The largest item that ends past the capacity with nothing else there, if one does: no search says more.
fn too_large(instance: &Instance) -> Option<Core> {
    let end = |i: usize| {
        let item = &instance.items[i];
        item.pin.unwrap_or_else(|| bounds::lowest_alone(instance, i)) + item.height
    };
    let alone = (0..instance.items.len()).filter(|&i| instance.items[i].height > 0 && end(i) > instance.capacity);
    let item = alone.max_by_key(|&i| (instance.items[i].height, std::cmp::Reverse(i)))?;
    let items = vec![item as u32];
    Some(Core {
        slots: common_slots(instance, &items),
        needed: Some(end(item)),
        cause: if instance.items[item].pin.is_some() { Cause::Pins } else { Cause::TooLarge },
        items,
        irreducible: true,
    })
}

/// Items that are all live at one step simply add up: leave out as many as the excess allows.
fn stack(instance: &Instance, items: &mut Vec<u32>) {
    let height = |i: u32| instance.items[i as usize].height;
    let mut total: i64 = items.iter().map(|&i| height(i)).sum();
    items.retain(|&i| {
        let needed = total - height(i) <= instance.capacity;
        if !needed {
            total -= height(i);
        }
        needed
    });
}

/// Leaves out what is not needed; true when every item that stays was shown to be needed.
fn reduce(instance: &Instance, items: &mut Vec<u32>, options: &PlacementOptions, meter: &mut Meter) -> bool {
    let mut chunk = (items.len() / 4).max(1);
    let end = meter.spent() + 300_000_000;
    loop {
        let mut at = 0;
        let mut certain = true;
        while at < items.len() {
            if meter.spent() > end || meter.is_interrupted() {
                return false;
            }
            let mut rest = items.clone();
            rest.drain(at..(at + chunk).min(items.len()));
            let part = subset(instance, &rest);
            let fails = bounds::lower_bound(&part).value > instance.capacity || {
                match feasible::quick(&part, instance.capacity, meter) {
                    Some(_) => false,
                    None => match feasible::decide(&part, instance.capacity, options, 3_000_000, meter) {
                        Answer::Fails => true,
                        Answer::Fits(_) => false,
                        Answer::Unknown => {
                            certain = false;
                            false
                        }
                    },
                }
            };
            if fails {
                *items = rest;
            } else {
                at += chunk;
            }
        }
        if chunk == 1 {
            return certain;
        }
        chunk /= 2;
    }
}

/// The instance with some of its items only.
pub(crate) fn subset(instance: &Instance, items: &[u32]) -> Instance {
    let mut place = vec![u32::MAX; instance.items.len()];
    for (k, &i) in items.iter().enumerate() {
        place[i as usize] = k as u32;
    }
    let kept = items
        .iter()
        .map(|&i| {
            let mut item = instance.items[i as usize].clone();
            item.apart.retain(|a| place[a.0 as usize] != u32::MAX);
            for a in &mut item.apart {
                a.0 = place[a.0 as usize];
            }
            item.exclusive.retain(|e| place[e.1 as usize] != u32::MAX);
            for e in &mut item.exclusive {
                e.1 = place[e.1 as usize];
            }
            item.apart.sort_unstable();
            item.exclusive.sort_unstable();
            // Bounds and sections count an item once where nothing tells its members apart.
            item.join_rects();
            item
        })
        .collect();
    Instance {
        items: kept,
        unit: instance.unit,
        times: instance.times.clone(),
        capacity: instance.capacity,
        reserved: instance.reserved.clone(),
        penalties: Vec::new(),
        fixed_cost: 0,
        plain: instance.plain,
        flat: instance.flat,
    }
}

/// Slots in which every one of the items is live.
fn common_slots(instance: &Instance, items: &[u32]) -> Vec<usize> {
    if items.len() > 1_000 {
        return Vec::new();
    }
    let mut count = vec![0usize; instance.slots()];
    for &i in items {
        let mut seen = vec![false; instance.slots()];
        for r in &instance.items[i as usize].rects {
            for t in r.start as usize..r.end as usize {
                if !seen[t] {
                    seen[t] = true;
                    count[t] += 1;
                }
            }
        }
    }
    (0..count.len()).filter(|&t| count[t] == items.len()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::instance::{Live, SpaceBuffer, SpaceProblem};
    use crate::placement::sections::Sections;

    /// Two buffers at one place that live together, one of which never coexists with a third: without the third they
    /// are one rectangle again, as if there had never been one.
    #[test]
    fn members_that_nobody_tells_apart_any_more_count_once() {
        let buffer = |start: u64, end: u64| {
            let live = vec![Live { start, end, low: 0, high: 3 }];
            SpaceBuffer { size: 3, alignment: 2, live, pin: None, hint: None }
        };
        let mut raw =
            SpaceProblem { buffers: vec![buffer(3, 4), buffer(4, 5), buffer(1, 5)], ..SpaceProblem::default() };
        raw.colocated = vec![(0, 2, 0)];
        raw.exclusive = vec![(1, 2)];
        let whole = Instance::new(&raw).unwrap();
        let item = (0..whole.items.len()).find(|&i| whole.items[i].members.len() == 2).unwrap() as u32;
        let part = subset(&whole, &[item]);
        assert_eq!((part.items[0].rects.len(), part.items[0].in_turn), (1, true));
        assert_eq!(bounds::lower_bound(&part).value, 3);
        let sections = Sections::new(&part, false);
        assert!(sections.members.iter().all(|set| set.len() == 1), "{:?}", sections.members);
    }
}
