//! Ejection: an item without room is put where it does least harm, and who was there looks for a new place.
//!
//! ```text
//!   ceiling ----------------------          The waiting item [?] has no free gap. Of all offsets below the
//!      | [a] |   [ b  ] | [c]  |            ceiling it takes the one whose items weigh least, here b's. Then
//!      +-----+--[??]----+------+--> time    b waits in its stead. Who waits often weighs ever more.
//! ```
//! Repairs the last few conflicts where there is a little room everywhere but not in one piece. Only items
//! that are plain rectangles are moved or put; all others, pins and reserved ranges stay where they are.

use super::board::Board;
use super::counters::Meter;
use super::instance::Item;

/// An item that stands: its bytes and its index; `None` when it must not move.
type Standing = (i64, i64, Option<u32>);

/// Weight of something that cannot be ejected: more than all others together.
const IMMOVABLE: u64 = 1 << 40;

/// A place for the waiting item.
struct Place {
    weight: u64,
    /// Room that stays free above it, when nothing is in the way.
    room: i64,
    offset: i64,
}

/// May the item be ejected and put elsewhere?
fn moves(item: &Item) -> bool {
    item.pin.is_none() && item.is_rectangle() && item.apart.is_empty() && item.exclusive.is_empty()
}

/// Puts all `waiting` items on the board below `ceiling`, moving others; `None` after `limit` counted work.
pub(crate) fn repair<'a>(
    mut board: Board<'a>,
    waiting: &[u32],
    ceiling: i64,
    limit: u64,
    meter: &mut Meter,
) -> Option<Board<'a>> {
    let instance = board.instance();
    if waiting.iter().any(|&i| !moves(&instance.items[i as usize])) {
        return None;
    }
    let mut waiting = waiting.to_vec();
    // The last one is next: large ones first.
    waiting.sort_by_key(|&i| (instance.items[i as usize].height, i));
    let mut failures = vec![1u32; instance.items.len()];
    let mut random = 0u64;
    let (mut standing, mut ends) = (Vec::new(), Vec::new());
    let stop_at = meter.spent().saturating_add(limit);
    while let Some(i) = waiting.pop() {
        if meter.spent() >= stop_at || meter.is_interrupted() {
            return None;
        }
        let item = &instance.items[i as usize];
        board.overlapping(item, &mut standing, &|other| moves(&instance.items[other as usize]));
        let weigh = |of: Option<u32>| match of {
            Some(j) => u64::from(failures[j as usize]) * (instance.items[j as usize].height.max(1) as u64).isqrt(),
            None => IMMOVABLE,
        };
        let place = lightest(item, &standing, ceiling - item.height, &weigh, &mut ends, &mut random)?;
        if place.weight >= IMMOVABLE {
            return None;
        }
        if place.weight > 0 {
            failures[i as usize] = failures[i as usize].saturating_add(1);
            for &(low, high, owner) in &standing {
                if low < place.offset + item.height
                    && place.offset < high
                    && let Some(j) = owner
                {
                    board.remove(j as usize);
                    waiting.push(j);
                }
            }
        }
        board.put(i as usize, place.offset);
        meter.spend(std::mem::take(&mut board.work) + 16 * standing.len() as u64 + 64);
    }
    Some(board)
}

/// The offset at which the least weight stands in the way; of free ones, the tightest.
fn lightest(
    item: &Item,
    standing: &[Standing],
    limit: i64,
    weigh: &dyn Fn(Option<u32>) -> u64,
    ends: &mut Vec<(i64, u64)>,
    random: &mut u64,
) -> Option<Place> {
    ends.clear();
    ends.extend(standing.iter().map(|s| (s.1, weigh(s.2))));
    ends.sort_unstable_by_key(|e| e.0);
    let mut best: Option<Place> = None;
    // Of those at the offset: who begins below its upper end, less who ends at or below it.
    let (mut weight, mut begun, mut ended, mut ties) = (0u64, 0, 0, 0u64);
    let mut at = item.lowest_from(0);
    while at <= limit {
        while begun < standing.len() && standing[begun].0 - item.height < at {
            weight += weigh(standing[begun].2);
            begun += 1;
        }
        while ended < ends.len() && ends[ended].0 <= at {
            weight -= ends[ended].1;
            ended += 1;
        }
        let next = standing.get(begun).map_or(limit, |s| (s.0 - item.height).min(limit));
        let place = Place { weight, room: next - at, offset: at };
        let better = match &best {
            None => true,
            Some(b) if weight != b.weight => weight < b.weight,
            Some(b) if weight == 0 => place.room < b.room,
            Some(_) => {
                ties += 1;
                step(random).is_multiple_of(ties + 1)
            }
        };
        if better {
            if best.as_ref().is_some_and(|b| weight < b.weight) {
                ties = 0;
            }
            best = Some(place);
        }
        match ends.get(ended) {
            Some(end) => at = item.lowest_from(end.0),
            None => break,
        }
    }
    // Half of the time at the upper end of the stretch that costs the same.
    if let Some(b) = &mut best
        && b.weight > 0
        && b.room > 0
        && step(random).is_multiple_of(2)
        && item.align == 1
    {
        b.offset += b.room;
    }
    best
}

/// The next number of a fixed sequence without visible order.
fn step(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::board::Fit;
    use crate::placement::instance::{Instance, Live, SpaceBuffer, SpaceProblem};
    use npumem_testing::Random;

    #[test]
    fn what_waits_gets_a_place_and_nothing_clashes() {
        let mut random = Random(21);
        let (mut mended, mut tried) = (0, 0);
        for _ in 0..200 {
            let buffers = (0..80u64).map(|k| {
                let (size, start) = (4 * (1 + random.below(16)), random.below(40));
                let live = vec![Live { start, end: start + 1 + random.below(20), low: 0, high: size }];
                SpaceBuffer { size, alignment: 1 << random.below(3), live, pin: (k == 0).then_some(80), hint: None }
            });
            let mut raw = SpaceProblem { buffers: buffers.collect(), ..SpaceProblem::default() };
            raw.reserved.push((200, 204));
            let instance = Instance::new(&raw).unwrap();
            let bound = crate::placement::bounds::lower_bound(&instance).value;
            let ceiling = bound + bound / 10;
            let mut board = Board::new(&instance);
            let mut waiting = Vec::new();
            for i in 0..80 {
                match board.find(i, Fit::First, ceiling) {
                    Some(at) => board.put(i, at),
                    None => waiting.push(i as u32),
                }
            }
            tried += usize::from(!waiting.is_empty());
            let Some(board) = repair(board, &waiting, ceiling, 2_000_000, &mut Meter::new(u64::MAX, None)) else {
                continue;
            };
            mended += usize::from(!waiting.is_empty());
            let offsets = board.into_offsets();
            assert!(instance.peak(&offsets) <= ceiling);
            let (low, high) = instance.reserved[0];
            for (a, item) in instance.items.iter().enumerate() {
                assert_eq!(item.lowest_from(offsets[a]), offsets[a]);
                assert!(item.pin.is_none_or(|p| p == offsets[a]));
                assert!(offsets[a] + item.height <= low || high <= offsets[a]);
                assert!((0..a).all(|b| !instance.clash(a, offsets[a], b, offsets[b])));
            }
        }
        assert!(tried > 100 && 2 * mended > tried, "{mended} of {tried}");
    }
}
