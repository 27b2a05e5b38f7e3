//! Tiers: what lives at the highest loads is placed first, and each tier below it takes its own order.
//!
//! ```text
//!   load ^        ____
//!        |    ___|    |__       tier 0: buffers live where the load is at least 95 % of the largest
//!        |  _|           |_     tier 1: of the others, those that meet 90 % of it
//!        | |               |__  ...    : and so on down to all that remain
//!        +--------------------> time
//! ```
//! At the peak there is no room to lose, elsewhere there is: so the few buffers that meet the peak are
//! packed below the ceiling by trying many orders on them alone, which costs little, and the rest is
//! filled in around them. A buffer that then finds no room belongs to a higher tier than its load says
//! (it needs a hole that the tiers above have spoilt): it moves up one, and the search resumes there. In the
//! top tier the buffers that are left over move forward in their order, in half of the trials to the very
//! front, in the others half the way, which keeps more of what the order had right.

use super::board::{Board, Fit};
use super::counters::Meter;
use super::greedy::{Keys, Order};
use super::instance::Instance;

/// Lowest share of the largest load that a buffer of the tier meets, in percent.
const SHARES: [i64; 8] = [95, 90, 80, 70, 60, 50, 40, 0];

/// Orders that are tried in each tier, those that win most often first.
const ORDERS: [Order; 15] = [
    Order::Start,
    Order::End,
    Order::Duration,
    Order::Urgency,
    Order::SizeClassDuration,
    Order::DurationClassSize,
    Order::DurationClassStart,
    Order::SizeClassStart,
    Order::SizeClassEnd,
    Order::SizeEnd,
    Order::Size,
    Order::SizeStart,
    Order::Area,
    Order::UrgencySize,
    Order::Pressure,
];

/// Rounds in which the top tier learns from what it left over.
const ROUNDS: u32 = 24;

/// Tiers that are tried in all, counting each return to a higher one.
const MOST_TRIES: u32 = 64;

/// Counted work of an item besides the look-up: sorting, copying.
const PER_ITEM: u64 = 64;

/// A trial of the top tier: an order that changes from round to round.
struct Trial {
    order: Vec<u32>,
    fit: Fit,
    /// Left-over items move half the way to the front, not all of it.
    halfway: bool,
    /// Fewest left over so far, and their bytes.
    fewest: (usize, i128),
}

/// What a pass over a tier gave.
struct Pass<'a> {
    board: Board<'a>,
    left: Vec<u32>,
    bytes: i128,
}

/// Work that may be done, and the ceiling.
struct Limits {
    ceiling: i64,
    /// The meter's count at which to stop.
    stop_at: u64,
}

impl Limits {
    fn are_reached(&self, meter: &Meter) -> bool {
        meter.spent() >= self.stop_at || meter.is_interrupted()
    }
}

/// Places everything below `ceiling` within about `limit` counted work, or says that it found no way.
pub(crate) fn place(instance: &Instance, keys: &Keys, ceiling: i64, limit: u64, meter: &mut Meter) -> Option<Vec<i64>> {
    let limits = Limits { ceiling, stop_at: meter.spent().saturating_add(limit) };
    let mut tier = tiers(instance, keys);
    // `done[k]` holds everything above tier k.
    let mut done = vec![Board::new(instance)];
    for _ in 0..MOST_TRIES {
        let level = done.len() - 1;
        if level == SHARES.len() {
            return done.pop().map(Board::into_offsets);
        }
        if limits.are_reached(meter) {
            return None;
        }
        let items: Vec<u32> = (0..tier.len() as u32).filter(|&i| usize::from(tier[i as usize]) == level).collect();
        let found = if level == 0 {
            learn(&done[0], keys, &items, &limits, meter)
        } else {
            try_orders(&done[level], keys, &items, &limits, meter)
        };
        match found {
            Ok(board) => done.push(board),
            Err(left) => {
                // Back to the tier that the left-over items move to.
                if level == 0 || left.is_empty() {
                    return None;
                }
                for i in left {
                    tier[i as usize] -= 1;
                }
                done.truncate(level);
            }
        }
    }
    None
}

/// The tier of each item; pinned ones belong to the top.
fn tiers(instance: &Instance, keys: &Keys) -> Vec<u8> {
    let largest = i128::from(keys.urgency().iter().copied().max().unwrap_or(0));
    let of = |urgency: i64| {
        let meets = |share: &i64| 100 * i128::from(urgency) >= i128::from(*share) * largest;
        SHARES.iter().position(meets).unwrap_or(SHARES.len() - 1) as u8
    };
    instance.items.iter().zip(keys.urgency()).map(|(i, &u)| if i.pin.is_some() { 0 } else { of(u) }).collect()
}

/// One pass over a tier on top of what is placed; ends early when more than `most` are left over.
fn pass<'a>(base: &Board<'a>, order: &[u32], fit: Fit, most: usize, limits: &Limits, meter: &mut Meter) -> Pass<'a> {
    let mut board = base.clone();
    board.work = PER_ITEM * order.len() as u64;
    let (mut left, mut bytes) = (Vec::new(), 0);
    for (count, &i) in order.iter().enumerate() {
        match board.find(i as usize, fit, limits.ceiling) {
            Some(at) => board.put(i as usize, at),
            None => {
                left.push(i);
                bytes += i128::from(board.instance().items[i as usize].height);
            }
        }
        if left.len() > most || (count % 1024 == 1023 && meter.is_interrupted()) {
            break;
        }
    }
    meter.spend(std::mem::take(&mut board.work));
    Pass { board, left, bytes }
}

/// A tier below the top: the first order that places all of it, else what the best one leaves over.
fn try_orders<'a>(
    base: &Board<'a>,
    keys: &Keys,
    items: &[u32],
    limits: &Limits,
    meter: &mut Meter,
) -> Result<Board<'a>, Vec<u32>> {
    let mut best: Option<(usize, Vec<u32>)> = None;
    for order in ORDERS {
        let sorted = keys.sorted_among(base.instance(), order, items);
        for fit in [Fit::First, Fit::Best] {
            let most = best.as_ref().map_or(usize::MAX, |b| b.0 - 1);
            let pass = pass(base, &sorted, fit, most, limits, meter);
            if meter.is_interrupted() {
                return Err(Vec::new());
            }
            if pass.left.is_empty() {
                return Ok(pass.board);
            }
            if pass.left.len() <= most {
                best = Some((pass.left.len(), pass.left));
            }
            if limits.are_reached(meter) {
                return Err(Vec::new());
            }
        }
    }
    Err(best.map_or_else(Vec::new, |b| b.1))
}

/// The top tier: rounds in which each order learns, the more hopeless half dropping out now and then.
fn learn<'a>(
    base: &Board<'a>,
    keys: &Keys,
    items: &[u32],
    limits: &Limits,
    meter: &mut Meter,
) -> Result<Board<'a>, Vec<u32>> {
    let mut trials = Vec::new();
    for order in ORDERS {
        let sorted = keys.sorted_among(base.instance(), order, items);
        for fit in [Fit::First, Fit::Best] {
            trials.push(Trial { order: sorted.clone(), fit, halfway: false, fewest: (usize::MAX, 0) });
        }
    }
    let most = 64.max(items.len() / 50);
    for round in 0..ROUNDS {
        let mut fresh = Vec::new();
        for trial in &mut trials {
            let pass = pass(base, &trial.order, trial.fit, most, limits, meter);
            if meter.is_interrupted() {
                return Err(Vec::new());
            }
            if pass.left.is_empty() {
                return Ok(pass.board);
            }
            if limits.are_reached(meter) {
                return Err(Vec::new());
            }
            trial.fewest = trial.fewest.min((pass.left.len(), pass.bytes));
            if round == 0 {
                let order = forward(&trial.order, &pass.left, base.instance(), true);
                fresh.push(Trial { order, halfway: true, ..*trial });
            }
            trial.order = forward(&trial.order, &pass.left, base.instance(), trial.halfway);
        }
        trials.append(&mut fresh);
        if matches!(round, 0 | 1 | 3 | 6 | 10) {
            trials.sort_by_key(|t| t.fewest);
            let keep = if round == 0 { 24 } else { (trials.len() / 2).max(4) };
            trials.truncate(keep);
        }
    }
    Err(Vec::new())
}

/// Moves the left-over items forward: to the front, or half the way.
fn forward(order: &[u32], left: &[u32], instance: &Instance, halfway: bool) -> Vec<u32> {
    // Positions in steps of two, so that an item can be put between two others.
    let mut place: Vec<(usize, usize, u32)> = Vec::with_capacity(order.len());
    let mut rank = vec![usize::MAX; instance.items.len()];
    for (k, &i) in left.iter().enumerate() {
        rank[i as usize] = k;
    }
    for (position, &i) in order.iter().enumerate() {
        let k = rank[i as usize];
        let pinned = instance.items[i as usize].pin.is_some();
        let to = if k == usize::MAX || pinned {
            2 * position + 2
        } else if halfway {
            2 * (position / 2) + 1
        } else {
            0
        };
        place.push((to, k, i));
    }
    place.sort_unstable();
    let mut moved: Vec<u32> = place.into_iter().map(|p| p.2).collect();
    moved.sort_by_key(|&i| instance.items[i as usize].pin.is_none());
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::bounds::lower_bound;
    use crate::placement::instance::{Live, SpaceBuffer, SpaceProblem};
    use npumem_testing::Random;

    /// Buffers of every kind: gaps in live ranges, windows of bytes, alignments, a pin, pairs kept apart or never together.
    fn raw(random: &mut Random) -> SpaceProblem {
        let count = 20 + random.below(60);
        let buffers = (0..count).map(|k| {
            let size = 4 * (1 + random.below(16));
            let start = random.below(60);
            let end = start + 1 + random.below(30);
            let mut live = vec![Live { start, end, low: 0, high: size }];
            if random.one_in(6) {
                live.push(Live { start: end + 2, end: end + 5, low: 0, high: size / 2 });
            }
            let pin = (k == 0).then_some(64);
            SpaceBuffer { size, alignment: 1 << random.below(4), live, pin, hint: None }
        });
        let mut raw = SpaceProblem { buffers: buffers.collect(), ..SpaceProblem::default() };
        for _ in 0..random.below(8) {
            let (a, b) = (1 + random.below(count - 1) as u32, 1 + random.below(count - 1) as u32);
            if a != b {
                if random.one_in(2) { raw.apart.push((a, b)) } else { raw.exclusive.push((a, b)) }
            }
        }
        raw
    }

    #[test]
    fn what_it_places_is_sound_and_below_the_ceiling() {
        let mut random = Random(11);
        let mut placed = 0;
        for _ in 0..300 {
            let instance = Instance::new(&raw(&mut random)).unwrap();
            let bound = lower_bound(&instance).value;
            let ceiling = bound + bound * random.below(20) as i64 / 100;
            let keys = Keys::new(&instance);
            let Some(offsets) = place(&instance, &keys, ceiling, 5_000_000, &mut Meter::new(u64::MAX, None)) else {
                continue;
            };
            placed += 1;
            assert!(instance.peak(&offsets) <= ceiling);
            for (a, item) in instance.items.iter().enumerate() {
                assert_eq!(item.lowest_from(offsets[a]), offsets[a]);
                assert!(item.pin.is_none_or(|p| p == offsets[a]));
                assert!((0..a).all(|b| !instance.clash(a, offsets[a], b, offsets[b])));
            }
        }
        assert!(placed > 100, "{placed} of 300");
    }

    #[test]
    fn a_tier_that_spoils_a_hole_is_placed_again() {
        // Three long buffers fill the peak; a tall one later needs their two long-lived ones to lie together.
        let buffer = |size: u64, start: u64, end: u64| SpaceBuffer {
            size,
            alignment: 1,
            live: vec![Live { start, end, low: 0, high: size }],
            pin: None,
            hint: None,
        };
        let raw = SpaceProblem {
            buffers: vec![buffer(30, 0, 100), buffer(40, 1, 50), buffer(30, 2, 100), buffer(40, 60, 61)],
            ..SpaceProblem::default()
        };
        let instance = Instance::new(&raw).unwrap();
        let keys = Keys::new(&instance);
        let offsets = place(&instance, &keys, lower_bound(&instance).value, 1_000_000, &mut Meter::new(u64::MAX, None));
        assert!(offsets.is_some_and(|o| instance.peak(&o) == lower_bound(&instance).value));
    }

    #[test]
    fn left_over_items_move_forward() {
        let raw = SpaceProblem {
            buffers: (0..6)
                .map(|_| SpaceBuffer {
                    size: 1,
                    alignment: 1,
                    live: vec![Live { start: 0, end: 1, low: 0, high: 1 }],
                    pin: None,
                    hint: None,
                })
                .collect(),
            ..SpaceProblem::default()
        };
        let instance = Instance::new(&raw).unwrap();
        let order = [0, 1, 2, 3, 4, 5];
        assert_eq!(forward(&order, &[4, 5], &instance, false), [4, 5, 0, 1, 2, 3]);
        assert_eq!(forward(&order, &[4, 5], &instance, true), [0, 1, 4, 5, 2, 3]);
    }

    #[test]
    fn the_limit_and_the_cancel_flag_end_it() {
        let instance = Instance::new(&raw(&mut Random(5))).unwrap();
        let keys = Keys::new(&instance);
        let mut meter = Meter::new(u64::MAX, None);
        assert_eq!(place(&instance, &keys, lower_bound(&instance).value - 1, 100_000, &mut meter), None);
        assert!(meter.spent() < 200_000, "{}", meter.spent());
        let flag = std::sync::atomic::AtomicBool::new(true);
        assert_eq!(place(&instance, &keys, i64::MAX / 4, 100_000, &mut Meter::new(u64::MAX, Some(&flag))), None);
    }
}
