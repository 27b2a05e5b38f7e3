//! Lower bounds of the peak of one space.
//!
//! The largest live load, sharpened twice: by the common alignment of what is live (every buffer
//! but the highest drags its padding along), and by reserved ranges (bytes that carry no load).
//! Buffers of one item share bytes, so an item counts the union of its live windows; of two buffers
//! that never coexist only one counts.

use super::arith::gcd;
use super::clique;
use super::instance::Instance;

/// A bound and why it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// In units of the instance.
    pub value: i64,
    pub reason: Reason,
}

/// What a bound rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Nothing is live.
    Empty,
    /// The load in the slot of that rank.
    Load { slot: usize },
    /// The load with alignment padding in that slot.
    Padded { slot: usize },
    /// One item alone reaches that high.
    Item { item: usize },
    /// Items that pairwise exclude each other, though no step has them all.
    Clique,
    /// A search ruled out everything below.
    Search,
}

/// Live bytes by slot: of an item, the union of its rectangles.
pub(crate) fn loads(instance: &Instance) -> Vec<i64> {
    let mut change = vec![0i64; instance.slots() + 1];
    for item in &instance.items {
        if item.rects.len() == 1 {
            let r = item.rects[0];
            change[r.start as usize] += r.size;
            change[r.end as usize] -= r.size;
        } else {
            union_by_slot(instance, item, &mut |start, end, bytes| {
                change[start] += bytes;
                change[end] -= bytes;
            });
        }
    }
    let mut live = 0;
    change.pop();
    for c in &mut change {
        live += *c;
        *c = live;
    }
    change
}

/// Calls `add(start, end, bytes)` for the stretches of time in which the union is constant.
fn union_by_slot(_instance: &Instance, item: &super::instance::Item, add: &mut dyn FnMut(usize, usize, i64)) {
    if item.in_turn {
        for r in &item.rects {
            add(r.start as usize, r.end as usize, r.size);
        }
        return;
    }
    let mut times: Vec<i32> = item.rects.iter().flat_map(|r| [r.start, r.end]).collect();
    times.sort_unstable();
    times.dedup();
    let mut live: Vec<(i64, i64)> = Vec::new();
    let mut waiting: Vec<&super::instance::Rect> = item.rects.iter().collect();
    waiting.sort_unstable_by_key(|r| std::cmp::Reverse(r.start));
    let mut running: Vec<&super::instance::Rect> = Vec::new();
    for w in times.windows(2) {
        running.retain(|r| r.end > w[0]);
        while let Some(r) = waiting.pop_if(|r| r.start <= w[0]) {
            running.push(r);
        }
        live.clear();
        live.extend(running.iter().map(|r| (r.delta, r.delta + r.size)));
        live.sort_unstable();
        let (mut bytes, mut top) = (0, i64::MIN);
        for &(low, high) in &live {
            bytes += (high - low.max(top)).max(0);
            top = top.max(high);
        }
        if bytes > 0 {
            add(w[0] as usize, w[1] as usize, bytes);
        }
    }
}

/// The strongest of the cheap bounds.
pub(crate) fn lower_bound(instance: &Instance) -> Bound {
    strongest(instance, true)
}

/// The strongest of those that take no longer than a first fit: without the search for sets that exclude each other.
pub(crate) fn quick(instance: &Instance) -> Bound {
    strongest(instance, false)
}

fn strongest(instance: &Instance, cliques: bool) -> Bound {
    let mut best = Bound { value: 0, reason: Reason::Empty };
    let mut raise = |value: i64, reason: Reason| {
        if value > best.value {
            best = Bound { value, reason };
        }
    };
    let has_exclusions = instance.items.iter().any(|i| !i.exclusive.is_empty());
    if has_exclusions {
        if let Some((slot, load)) = exclusive_loads(instance) {
            raise(above_reserved(instance, load), Reason::Load { slot });
        }
        if let Some((load, members)) = cliques.then(|| clique::heaviest(instance)).flatten() {
            let reason = common_slot(instance, &members).map_or(Reason::Clique, |slot| Reason::Load { slot });
            raise(above_reserved(instance, load), reason);
        }
    } else {
        let loads = loads(instance);
        if let Some((slot, load)) = arg_max(&loads) {
            raise(above_reserved(instance, load), Reason::Load { slot });
        }
        if let Some((slot, load)) = padded_load(instance) {
            raise(load, Reason::Padded { slot });
        }
    }
    for (index, item) in instance.items.iter().enumerate() {
        let low = item.pin.unwrap_or_else(|| lowest_alone(instance, index));
        raise(low + item.height, Reason::Item { item: index });
    }
    best
}

/// A slot in which all of them are live.
fn common_slot(instance: &Instance, members: &[u32]) -> Option<usize> {
    let items = || members.iter().map(|&i| &instance.items[i as usize]);
    let last = items().map(|i| i.start).max()?;
    let live = |i: &super::instance::Item| i.rects.iter().any(|r| r.start <= last && last < r.end);
    items().all(live).then_some(last as usize)
}

fn arg_max(values: &[i64]) -> Option<(usize, i64)> {
    let mut best: Option<(usize, i64)> = None;
    for (k, &v) in values.iter().enumerate() {
        if best.is_none_or(|b| v > b.1) {
            best = Some((k, v));
        }
    }
    best
}

/// Lowest offset at which an item is clear of the reserved ranges.
pub(crate) fn lowest_alone(instance: &Instance, index: usize) -> i64 {
    let item = &instance.items[index];
    if instance.reserved.is_empty() {
        return item.lowest_from(0);
    }
    let mut forbidden: Vec<(i64, i64)> = Vec::new();
    for &(low, high) in &instance.reserved {
        for m in item.members.iter().filter(|m| m.size > 0) {
            forbidden.push((low - m.delta - m.size, high - m.delta));
        }
    }
    forbidden.sort_unstable();
    super::board::choose(item, &forbidden, super::board::Fit::First, i64::MAX / 2).unwrap_or(0)
}

/// The lowest end of a region from zero with `load` bytes outside the reserved ranges.
fn above_reserved(instance: &Instance, load: i64) -> i64 {
    if load == 0 {
        return 0;
    }
    let (mut free, mut from) = (0, 0);
    for &(low, high) in &instance.reserved {
        if free + (low - from) >= load {
            break;
        }
        free += low - from;
        from = high;
    }
    from + (load - free)
}

/// Load with every item but the one of largest padding rounded up to the common alignment.
///
/// Offsets are all multiples of the common alignment `g`, so from one item's offset to the next
/// there are at least its size rounded up to `g`; only the highest keeps its own end. A pinned item
/// cannot be the highest where the rest of the load alone reaches past every pinned end.
fn padded_load(instance: &Instance) -> Option<(usize, i64)> {
    let mut g = 0u64;
    for item in &instance.items {
        if !item.is_flat() || item.residue % item.align != 0 {
            return None;
        }
        g = gcd(g, item.align as u64);
    }
    let g = g as i64;
    if g <= 1 || !instance.reserved.is_empty() {
        return None;
    }
    let slots = instance.slots();
    let mut change = vec![0i64; slots + 1];
    let pad = |size: i64| (g - size % g) % g;
    if instance.items.len() > 100_000 {
        return None;
    }
    // The largest padding live in a slot: a running multiset by time, pinned items after free ones.
    let mut events: Vec<(usize, bool, (bool, i64))> = Vec::new();
    let mut highest_pin = 0;
    for item in &instance.items {
        if let Some(pin) = item.pin {
            highest_pin = highest_pin.max(pin + item.height);
        }
        // Members of an item that are live together share their bytes: each slot counts them once.
        union_by_slot(instance, item, &mut |start, end, size| {
            let key = (item.pin.is_some(), pad(size));
            change[start] += size + pad(size);
            change[end] -= size + pad(size);
            events.push((start, true, key));
            events.push((end, false, key));
        });
    }
    events.sort_unstable();
    let mut live: std::collections::BTreeMap<(bool, i64), u32> = std::collections::BTreeMap::new();
    let (mut load, mut next, mut best) = (0, 0, None);
    for (slot, c) in change.iter().enumerate().take(slots) {
        load += c;
        while next < events.len() && events[next].0 == slot {
            let (_, starts, p) = events[next];
            if starts {
                *live.entry(p).or_insert(0) += 1;
            } else if let Some(count) = live.get_mut(&p) {
                *count -= 1;
                if *count == 0 {
                    live.remove(&p);
                }
            }
            next += 1;
        }
        let largest = |end: (bool, i64)| live.range(..end).next_back().map_or(0, |(&(_, pad), _)| pad);
        let free = largest((true, 0));
        let any = free.max(live.range((true, 0)..).next_back().map_or(0, |(&(_, pad), _)| pad));
        let top = if highest_pin < load - any { free } else { any };
        if best.is_none_or(|b: (usize, i64)| load - top > b.1) {
            best = Some((slot, load - top));
        }
    }
    best
}

/// With never-coexisting pairs: at each slot a set of items, largest first, no two exclusive.
fn exclusive_loads(instance: &Instance) -> Option<(usize, i64)> {
    let mut order: Vec<usize> = (0..instance.items.len()).collect();
    order.sort_by_key(|&i| (-instance.items[i].height, i));
    let mut kept = vec![false; instance.items.len()];
    let mut change = vec![0i64; instance.slots() + 1];
    for i in order {
        let item = &instance.items[i];
        if item.exclusive.iter().any(|&(_, other, _)| kept[other as usize]) {
            continue;
        }
        kept[i] = true;
        union_by_slot(instance, item, &mut |start, end, bytes| {
            change[start] += bytes;
            change[end] -= bytes;
        });
    }
    let mut load = 0;
    let loads: Vec<i64> = change
        .iter()
        .take(instance.slots())
        .map(|c| {
            load += c;
            load
        })
        .collect();
    arg_max(&loads)
}
