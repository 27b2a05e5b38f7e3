//! Mending: what a sweep left over is fitted in by packing the time around it again.
//!
//! ```text
//!   load ^          _---_  <- left over here, where the sweep arrived on its way up
//!        |    __---       --__
//!        |----|             |----     Between two walls, which stay, everything is taken off and placed anew.
//!        +----+-------------+---> t
//! ```
//! Three ways, from the cheapest up: the few take the place of others, which find another one (`eject`); tiers; and a
//! sweep from the peak of this stretch, which loses nothing there and arrives at the walls, where there is room. What that
//! one leaves over is mended in its turn, without a further sweep.

use super::*;
use crate::placement::{greedy, tiers};

/// Most places with items left over that are mended.
const MOST_PLACES: usize = 16;

/// Most items that may move for one place.
const MOST_MOVED: usize = 8_000;

/// Work of one mending by ejection, by tiers, and by a sweep.
const WORK: [u64; 3] = [10_000_000, 20_000_000, 80_000_000];

/// Work of all mending after a sweep: where one place stays as it is, so does the peak.
const ALL: u64 = 600_000_000;

/// How far around what is left over time is packed again, in lives of what is live there.
const REACH: [usize; 2] = [1, 2];

impl Sweep<'_, '_> {
    /// Mends places, the hottest first; what is still left over.
    pub(super) fn mend_all(&mut self, left: Vec<u32>, meter: &mut Meter) -> Vec<u32> {
        let mut places = self.places(left);
        if places.len() > MOST_PLACES {
            return places.concat();
        }
        places.sort_by_cached_key(|p| -p.iter().map(|&i| self.ground.urgency[i as usize]).max().unwrap_or(0));
        let stop_at = self.stop_at.min(meter.spent().saturating_add(ALL));
        let mut above = Vec::new();
        for place in places {
            // Once a place is given up the others matter less, and are worth the cheapest way only.
            let ways = if above.is_empty() { WORK.len() } else { 1 };
            let reach = if above.is_empty() { REACH.len() } else { 1 };
            if !REACH[..reach].iter().any(|&r| meter.spent() < stop_at && self.mend(&place, r, ways, meter)) {
                above.extend(place);
            }
        }
        above
    }

    /// Items left over, those that live together in one place.
    fn places(&self, mut left: Vec<u32>) -> Vec<Vec<u32>> {
        left.sort_by_key(|&i| (self.item(i).start, i));
        let mut places: Vec<Vec<u32>> = Vec::new();
        let mut end = i32::MIN;
        for i in left {
            match places.last_mut() {
                Some(place) if self.item(i).start < end => place.push(i),
                _ => places.push(vec![i]),
            }
            end = end.max(self.item(i).end);
        }
        places
    }

    /// Puts the items of a place in by moving those that live near it.
    fn mend(&mut self, place: &[u32], reach: usize, ways: usize, meter: &mut Meter) -> bool {
        let (instance, timeline) = (self.ground.instance, &self.ground.timeline);
        let moves = |i: u32| {
            let item = &instance.items[i as usize];
            item.pin.is_none() && item.apart.is_empty() && item.exclusive.is_empty()
        };
        let (mut start, mut end) = hull(instance, place);
        for _ in 0..reach {
            (start, end) = hull(instance, &timeline.live(instance, start, end));
        }
        let (mut own, mut around) = (place.to_vec(), Vec::new());
        for other in timeline.live(instance, start, end) {
            let item = self.item(other);
            if self.is_placed(other) {
                let inside = start <= item.start && item.end <= end;
                if moves(other) && inside { own.push(other) } else { around.push(other) }
            }
        }
        if !place.iter().all(|&i| moves(i)) || own.len() > MOST_MOVED {
            return false;
        }
        meter.spend(PER_ITEM * (own.len() + around.len()) as u64);
        let piece = Piece::new(instance, self.ground.urgency, &own, &around, self.board.offsets());
        let mut found = self.by_ejection(&piece, place.len(), &own, meter);
        if found.is_none() && ways > 1 {
            let largest = piece.keys.urgency().iter().copied().max().unwrap_or(0);
            let tiers = (tiers::FINE, largest);
            found = tiers::place(&piece.instance, &piece.keys, tiers, self.ceiling, WORK[1], meter);
        }
        if found.is_none() && ways > 2 && self.ground.mends_by_sweeps {
            found = self.by_sweep(&piece, meter);
        }
        let Some(found) = found else { return false };
        for (&i, at) in own.iter().zip(found) {
            self.board.move_to(i as usize, at);
        }
        true
    }

    /// The first `waiting` items of the piece eject others.
    fn by_ejection(&self, piece: &Piece, waiting: usize, own: &[u32], meter: &mut Meter) -> Option<Vec<i64>> {
        let mut board = Board::new(&piece.instance);
        for (k, item) in piece.instance.items.iter().enumerate().skip(waiting) {
            board.put(k, item.pin.unwrap_or_else(|| self.board.offsets()[own[k] as usize]));
        }
        let waiting: Vec<u32> = (0..waiting as u32).collect();
        eject::repair(board, &waiting, self.ceiling, WORK[0], meter).map(Board::into_offsets)
    }

    /// All of the piece from its own peak.
    fn by_sweep(&self, piece: &Piece, meter: &mut Meter) -> Option<Vec<i64>> {
        let urgency = greedy::urgency(&piece.instance);
        let ground = Ground { mends_by_sweeps: false, ..Ground::new(&piece.instance, &urgency) };
        let swept = ground.sweep(self.ceiling, WORK[2], meter).ok().flatten()?;
        (swept.left == 0).then_some(swept.offsets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::instance::{Live, SpaceBuffer, SpaceProblem};
    use npumem_testing::Random;

    /// Evenly drawn starts, lives and sizes, whose load has several peaks of nearly the same height.
    fn instance(seed: u64) -> Instance {
        let mut random = Random(seed);
        let buffers = (0..20_000).map(|_| {
            let (start, size) = (random.below(20_000), 8 * (1 + random.below(512)));
            let live = vec![Live { start, end: start + 1 + random.below(200), low: 0, high: size }];
            SpaceBuffer { size, alignment: 8, live, pin: None, hint: None }
        });
        Instance::new(&SpaceProblem { buffers: buffers.collect(), ..SpaceProblem::default() }).unwrap()
    }

    #[test]
    fn what_is_packed_again_fits_between_its_walls() {
        let mut fewer = 0;
        for seed in [0, 3] {
            let instance = instance(seed);
            let target = bounds::lower_bound(&instance).value;
            let urgency = greedy::urgency(&instance);
            let swept = |mends_by_sweeps: bool| {
                let ground = Ground { mends_by_sweeps, ..Ground::new(&instance, &urgency) };
                let mut meter = Meter::new(u64::MAX, None);
                ground.sweep(target + target / 100, 1_500_000_000, &mut meter).unwrap().unwrap()
            };
            let (without, with) = (swept(false), swept(true));
            assert_eq!(with.peak, instance.peak(&with.offsets));
            assert!(with.left <= without.left, "{} > {} by seed {seed}", with.left, without.left);
            fewer += u32::from(with.left < without.left);
            let mut order: Vec<usize> = (0..instance.items.len()).collect();
            order.sort_by_key(|&i| instance.items[i].start);
            for (k, &a) in order.iter().enumerate() {
                let later = order[k + 1..].iter().take_while(|&&b| instance.items[b].start < instance.items[a].end);
                for &b in later {
                    assert!(
                        !instance.clash(a, with.offsets[a], b, with.offsets[b]),
                        "items {a} and {b} by seed {seed}"
                    );
                }
            }
        }
        assert_eq!(fewer, 2);
    }
}
