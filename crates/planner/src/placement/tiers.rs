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
use super::eject;
use super::greedy::{Keys, Order};
use super::instance::Instance;

/// Lowest share of the largest load that a buffer of the tier meets, in thousandths.
pub(crate) const COARSE: &[i64] = &[950, 900, 800, 700, 600, 500, 400, 0];

/// The same where the load is high nearly everywhere.
pub(crate) const FINE: &[i64] = &[985, 970, 950, 925, 900, 850, 800, 700, 600, 400, 0];

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

/// Most left-over items that are mended.
const MOST_LEFT: usize = 200;

/// Most work of mending one tier.
const MEND_WORK: u64 = 100_000_000;

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
    /// The ceiling is so far above the largest load that moving things about may help.
    has_room: bool,
}

impl Limits {
    fn are_reached(&self, meter: &Meter) -> bool {
        meter.spent() >= self.stop_at || meter.is_interrupted()
    }
}

/// Places everything below `ceiling` within about `limit` counted work, or says that it found no way.
///
/// `shares` are the tiers, and `largest` is the load that they refer to.
pub(crate) fn place(
    instance: &Instance,
    keys: &Keys,
    (shares, largest): (&[i64], i64),
    ceiling: i64,
    limit: u64,
    meter: &mut Meter,
) -> Option<Vec<i64>> {
    let has_room = i128::from(ceiling) * 512 > i128::from(largest) * 513;
    let limits = Limits { ceiling, stop_at: meter.spent().saturating_add(limit), has_room };
    let mut tier = tiers(instance, keys, shares, largest);
    // `done[k]` holds everything above tier k.
    let mut done = vec![pinned(instance, ceiling, meter)?];
    for _ in 0..MOST_TRIES {
        let level = done.len() - 1;
        if level == shares.len() {
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

/// The pinned items, which come before every tier.
fn pinned<'a>(instance: &'a Instance, ceiling: i64, meter: &mut Meter) -> Option<Board<'a>> {
    let mut board = Board::new(instance);
    for (index, item) in instance.items.iter().enumerate() {
        if item.pin.is_some() {
            let at = board.find(index, Fit::First, ceiling)?;
            board.put(index, at);
        }
    }
    meter.spend(std::mem::take(&mut board.work));
    Some(board)
}

/// The tier of each item; pinned ones belong to none.
fn tiers(instance: &Instance, keys: &Keys, shares: &[i64], largest: i64) -> Vec<u8> {
    let largest = i128::from(largest);
    let of = |urgency: i64| {
        let meets = |share: &i64| 1000 * i128::from(urgency) >= i128::from(*share) * largest;
        shares.iter().position(meets).unwrap_or(shares.len() - 1) as u8
    };
    instance.items.iter().zip(keys.urgency()).map(|(i, &u)| if i.pin.is_some() { u8::MAX } else { of(u) }).collect()
}

/// One pass over a tier on top of what is placed; ends early when more than `most` are left over.
fn pass<'a>(base: &Board<'a>, order: &[u32], fit: Fit, most: usize, limits: &Limits, meter: &mut Meter) -> Pass<'a> {
    let mut board = base.clone();
    board.work = PER_ITEM * order.len() as u64 + 8 * board.len() as u64;
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
    let mut best: Option<(usize, Pass)> = None;
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
                best = Some((pass.left.len(), pass));
            }
            if limits.are_reached(meter) {
                return Err(Vec::new());
            }
        }
    }
    let Some((_, best)) = best else { return Err(Vec::new()) };
    let left = best.left.clone();
    mend(best, limits, meter).ok_or(left)
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
    let mut best: Option<Pass> = None;
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
            let fewest = (pass.left.len(), pass.bytes);
            trial.fewest = trial.fewest.min(fewest);
            if round == 0 {
                let order = forward(&trial.order, &pass.left, base.instance(), true);
                fresh.push(Trial { order, halfway: true, ..*trial });
            }
            trial.order = forward(&trial.order, &pass.left, base.instance(), trial.halfway);
            if best.as_ref().is_none_or(|b| fewest < (b.left.len(), b.bytes)) {
                best = Some(pass);
            }
        }
        trials.append(&mut fresh);
        if matches!(round, 0 | 1 | 3 | 6 | 10) {
            trials.sort_by_key(|t| t.fewest);
            let keep = if round == 0 { 24 } else { (trials.len() / 2).max(4) };
            trials.truncate(keep);
        }
        if matches!(round, 0 | 3 | 23)
            && let Some(pass) = best.take()
            && let Some(board) = mend(pass, limits, meter)
        {
            return Ok(board);
        }
    }
    Err(Vec::new())
}

/// Puts what a pass left over in the place of others, which find another one.
fn mend<'a>(pass: Pass<'a>, limits: &Limits, meter: &mut Meter) -> Option<Board<'a>> {
    if pass.left.len() > MOST_LEFT || !limits.has_room {
        return None;
    }
    let limit = (limits.stop_at.saturating_sub(meter.spent()) / 4).min(MEND_WORK);
    eject::repair(pass.board, &pass.left, limits.ceiling, limit, meter)
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
        let to = if k == usize::MAX {
            2 * position + 2
        } else if halfway {
            2 * (position / 2) + 1
        } else {
            0
        };
        place.push((to, k, i));
    }
    place.sort_unstable();
    place.into_iter().map(|p| p.2).collect()
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

    fn largest(keys: &Keys) -> i64 {
        keys.urgency().iter().copied().max().unwrap_or(0)
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
            let Some(offsets) =
                place(&instance, &keys, (COARSE, largest(&keys)), ceiling, 5_000_000, &mut Meter::new(u64::MAX, None))
            else {
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
        let offsets = place(
            &instance,
            &keys,
            (COARSE, largest(&keys)),
            lower_bound(&instance).value,
            1_000_000,
            &mut Meter::new(u64::MAX, None),
        );
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
        assert_eq!(
            place(&instance, &keys, (COARSE, largest(&keys)), lower_bound(&instance).value - 1, 100_000, &mut meter),
            None
        );
        assert!(meter.spent() < 200_000, "{}", meter.spent());
        let flag = std::sync::atomic::AtomicBool::new(true);
        assert_eq!(
            place(
                &instance,
                &keys,
                (COARSE, largest(&keys)),
                i64::MAX / 4,
                100_000,
                &mut Meter::new(u64::MAX, Some(&flag))
            ),
            None
        );
    }
}
