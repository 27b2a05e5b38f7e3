//! Hills: where the load is high only now and then, each high stretch is swept from its own peak, apart from the others.
//!
//! ```text
//!   load ^      peak                 peak
//!        |   _--|--_              _--|--__
//!        | <-   |   -->    |   <-    |    -->      Between two hills lies a valley: what lives across it is placed
//!        |-     |       -__|__-      |             last, where the load is far below the ceiling.
//!        +------+----------+---------+-------> t
//! ```
//! One sweep over all of it would reach the second peak by the way up, on which it loses a few percent.

use super::*;
use crate::placement::tiers;

/// A stretch of time without its edges, and its hottest slot.
struct Hill {
    start: i32,
    end: i32,
    peak: i32,
    load: i64,
}

/// A stretch that is hotter than this share of the largest load, in thousandths, is a hill of its own if a slot
/// cooler than [`COOL`] divides it from the next.
const HOT: i64 = 930;
const COOL: i64 = 500;

/// Peaks nearer than so many slots for each item that is live on average share a hill: a slope needs a few lives to come
/// down, and what lives across a valley is less than what stands beside it.
const FAR: i64 = 16;

/// Hills that are few: where they are many a sweep that takes long comes to nothing.
const FEW: usize = 8;

/// Work of tiers for what lives across one valley.
const ACROSS: u64 = 20_000_000;

/// Hills in the order of time, their peaks at least `far` slots apart; one that spans all where nothing divides them.
fn hills(loads: &[i64], far: i64) -> Vec<Hill> {
    let largest = loads.iter().copied().max().unwrap_or(0);
    let share = |thousandths: i64| (i128::from(largest) * i128::from(thousandths) / 1000) as i64;
    let (hot, cool) = (share(HOT), share(COOL));
    let slots = loads.len() as i32;
    let mut hills: Vec<Hill> = Vec::new();
    // The coolest slot since the last hot one.
    let mut valley: Option<i32> = None;
    let mut start = 0;
    let mut peak: Option<i32> = None;
    for t in 0..slots {
        let load = loads[t as usize];
        if load >= hot {
            if let (Some(p), Some(v)) = (peak, valley)
                && loads[v as usize] <= cool
                && i64::from(t - p) >= far
            {
                hills.push(Hill { start, end: v, peak: p, load: loads[p as usize] });
                (start, peak) = (v, None);
            }
            valley = None;
            if peak.is_none_or(|p| load > loads[p as usize]) {
                peak = Some(t);
            }
        } else if valley.is_none_or(|v| load < loads[v as usize]) {
            valley = Some(t);
        }
    }
    if let Some(peak) = peak {
        hills.push(Hill { start, end: slots, peak, load: loads[peak as usize] });
    }
    hills
}

impl Ground<'_> {
    /// Do valleys divide it into a few hills?
    pub fn has_hills(&self) -> bool {
        (2..=FEW).contains(&hills(&self.loads, self.far()).len())
    }

    /// Slots between two peaks at least.
    fn far(&self) -> i64 {
        let lives: i64 = self.instance.items.iter().map(|i| i64::from(i.end - i.start)).sum();
        FAR * (lives / self.loads.len().max(1) as i64)
    }
}

impl Sweep<'_, '_> {
    /// Sweeps the hills, the hottest first, then fills the valleys between them.
    pub(super) fn climb(&mut self, meter: &mut Meter) {
        let ground = self.ground;
        let mut hills = hills(&ground.loads, ground.far());
        let mut cuts: Vec<i32> = hills.iter().skip(1).map(|h| h.start).collect();
        hills.sort_by_key(|h| (-h.load, h.start));
        for hill in &hills {
            self.range = (hill.start, hill.end);
            // What is stacked at the peak may live on beyond the hill.
            let mut stacked = ground.timeline.live(ground.instance, hill.peak, hill.peak + 1);
            stacked.retain(|&i| !self.is_placed(i));
            let (start, end) = hull(ground.instance, &stacked);
            let mut standing = ground.timeline.live(ground.instance, start.min(hill.start), end.max(hill.end));
            standing.retain(|&i| self.is_placed(i));
            self.pay(standing.len(), meter);
            self.standing = standing;
            self.stack(hill.peak, meter);
            for way in [Way::Forward, Way::Backward] {
                if self.is_over(meter) {
                    return;
                }
                self.go(hill.peak, way, meter);
            }
        }
        cuts.sort_by_key(|&cut| (-ground.loads[cut as usize], cut));
        for cut in cuts {
            if self.is_over(meter) {
                return;
            }
            self.cross(cut, meter);
        }
    }

    /// Places what lives across a valley, between the slopes that stand already.
    fn cross(&mut self, cut: i32, meter: &mut Meter) {
        let (instance, timeline) = (self.ground.instance, &self.ground.timeline);
        let mut own = timeline.live(instance, cut, cut + 1);
        own.retain(|&i| !self.is_placed(i) && self.item(i).start < cut && !self.left.contains(&i));
        if own.is_empty() {
            return;
        }
        let (start, end) = hull(instance, &own);
        let mut around = timeline.live(instance, start, end);
        around.retain(|&i| self.is_placed(i));
        self.pay(own.len() + around.len(), meter);
        let moves = |i: u32| self.item(i).apart.is_empty() && self.item(i).exclusive.is_empty();
        if own.iter().all(|&i| moves(i)) {
            let piece = Piece::new(instance, self.ground.urgency, &own, &around, self.board.offsets());
            let largest = own.iter().map(|&i| self.ground.urgency[i as usize]).max().unwrap_or(0);
            if let Some(found) =
                tiers::place(&piece.instance, &piece.keys, (tiers::FINE, largest), self.ceiling, ACROSS, meter)
            {
                for (&i, at) in own.iter().zip(found) {
                    self.board.move_to(i as usize, at);
                }
                return;
            }
        }
        self.board.clear();
        for &i in &around {
            self.board.stand(i as usize);
        }
        own.sort_by_cached_key(|&i| (-self.item(i).area(), i));
        for i in own {
            self.put(i);
        }
        self.pay(0, meter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::greedy;
    use crate::placement::instance::{Live, SpaceBuffer, SpaceProblem};
    use npumem_testing::Random;

    #[test]
    fn two_hills_are_swept_and_the_valley_between_them_is_filled() {
        let mut random = Random(21);
        // The sum of two draws leans to the middle of its half; some live across the valley.
        let buffers = (0..20_000).map(|k| {
            let half = if k % 2 == 0 { 0 } else { 10_400 };
            let (start, size) = (half + random.below(5_000) + random.below(5_000), 8 * (1 + random.below(512)));
            let live = vec![Live { start, end: start + 1 + random.below(400), low: 0, high: size }];
            SpaceBuffer { size, alignment: 8, live, pin: None, hint: None }
        });
        let raw = SpaceProblem { buffers: buffers.collect(), ..SpaceProblem::default() };
        let instance = Instance::new(&raw).unwrap();
        let target = bounds::lower_bound(&instance).value;
        let urgency = greedy::urgency(&instance);
        let ground = Ground::new(&instance, &urgency);
        assert!(ground.has_hills());
        let mut meter = Meter::new(u64::MAX, None);
        let found = ground.sweep(target + target / 32, 800_000_000, &mut meter).unwrap().unwrap();
        assert_eq!((found.left, found.peak), (0, instance.peak(&found.offsets)));
        assert!(found.peak <= target + target / 32);
        let mut order: Vec<usize> = (0..instance.items.len()).collect();
        order.sort_by_key(|&i| instance.items[i].start);
        for (k, &a) in order.iter().enumerate() {
            let later = order[k + 1..].iter().take_while(|&&b| instance.items[b].start < instance.items[a].end);
            for &b in later {
                assert!(!instance.clash(a, found.offsets[a], b, found.offsets[b]), "items {a} and {b}");
            }
        }
    }

    #[test]
    fn a_cool_slot_between_hot_ones_divides_two_hills() {
        let of = |loads: &[i64]| -> Vec<(i32, i32, i32)> {
            hills(loads, 2).iter().map(|h| (h.start, h.peak, h.end)).collect()
        };
        assert_eq!(of(&[100, 95, 60, 40, 65, 99, 96]), [(0, 0, 3), (3, 5, 7)]);
        // Not cool enough, and not hot enough on one side.
        assert_eq!(of(&[100, 60, 99]), [(0, 0, 3)]);
        assert_eq!(of(&[100, 40, 92, 10]), [(0, 0, 4)]);
        assert_eq!(of(&[5, 100, 5, 93, 5, 98]), [(0, 1, 2), (2, 3, 4), (4, 5, 6)]);
        assert_eq!(of(&[]), []);
    }
}
