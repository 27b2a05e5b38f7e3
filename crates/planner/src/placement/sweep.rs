//! Sweeps: from the peak outward in time, near-linear while few are live at once.
//!
//! ```text
//!   load ^           peak
//!        |    ____----|--__       What is live at the peak is stacked first, those that live on longest on both sides at
//!        | __-  <--   |    --__   the floor and at the ceiling: nothing is lost there, whatever the order. Then both
//!        |-   <--     |   -->   - sides are swept in the order in which the sweep meets the items, by touching fit.
//!        +------------+---------> t
//! ```
//! On the way from the peak the room that becomes free lies in one piece (`touch`), and the load falls, so that there is
//! ever more of it. Far from the peak a sweep loses a few percent, which matters only where the load rises again. Where
//! an item finds no room there, the sweep goes back a few hundred or thousand items and runs up to it another way, in
//! batches of another size that choose their own order and with other weights, until one run gets through.

mod hills;
mod mend;

use super::board::{Block, Board, Fit, UNPLACED};
use super::bounds;
use super::counters::Meter;
use super::eject;
use super::instance::{Instance, Item, UNLIMITED};
use super::piece::{Piece, hull};
use super::timeline::Timeline;
use super::touch::Weights;
use std::collections::VecDeque;

/// Counted work of an item besides the look-up.
const PER_ITEM: u64 = 64;

/// Items between two places to which a sweep can go back, at least; and how many such places are kept.
const LEG: usize = 256;
const KEPT: usize = 8;

/// How many legs a sweep goes back to try again, of the trials one after the other.
const BACK: [usize; 24] = [1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 8, 8];

/// Work of all trials of a sweep together: where the first way fails everywhere, so do the others.
const TRIALS: u64 = 300_000_000;

/// How a stretch is swept; a trial differs from the one before it in all of this.
#[derive(Clone, Copy, Debug)]
struct Taste {
    /// Items that choose their own order.
    batch: usize,
    large_first: bool,
    touch: Weights,
}

impl Taste {
    fn of(trial: usize) -> Taste {
        let waste = [1000, 3000, 300, 1000][trial % 4];
        let touch = Weights { waste, noise: if trial == 0 { 0 } else { 100 }, seed: trial as u64 };
        Taste { batch: [16, 8, 24, 12, 4, 32, 1][trial % 7], large_first: trial % 3 != 1, touch }
    }
}

/// Where a sweep can go back to.
struct Mark {
    blocks: Vec<Block>,
    left: usize,
}

/// What stays the same from sweep to sweep.
pub(crate) struct Ground<'a> {
    instance: &'a Instance,
    timeline: Timeline,
    /// By slot.
    loads: Vec<i64>,
    /// Largest load that each item meets.
    urgency: &'a [i64],
    /// What is left over may be mended by a sweep of its own.
    mends_by_sweeps: bool,
}

/// What a sweep gave.
pub(crate) struct Swept {
    pub offsets: Vec<i64>,
    pub peak: i64,
    /// Items that found no room below the ceiling and lie above it.
    pub left: usize,
}

/// Which way a sweep goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
}

/// A sweep under way.
struct Sweep<'g, 'a> {
    ground: &'g Ground<'a>,
    board: Board<'a>,
    ceiling: i64,
    /// The stretch of time that is swept.
    range: (i32, i32),
    /// What stands in it before it is swept, and what is live at its peak.
    standing: Vec<u32>,
    /// Items without room.
    left: Vec<u32>,
    /// More of them than this end it.
    most_left: usize,
    stop_at: u64,
    /// Work that trials may still do.
    trials: u64,
}

impl<'a> Ground<'a> {
    /// `urgency` is the largest load that each item meets.
    pub fn new(instance: &'a Instance, urgency: &'a [i64]) -> Ground<'a> {
        let (timeline, loads) = (Timeline::new(instance), bounds::loads(instance));
        Ground { instance, timeline, loads, urgency, mends_by_sweeps: true }
    }

    /// Places all items, as many as it can below `ceiling`: `None` when those are too few or the limit is reached. `Err`
    /// names a pinned item that clashes.
    pub fn sweep(&self, ceiling: i64, limit: u64, meter: &mut Meter) -> Result<Option<Swept>, u32> {
        let mut sweep = Sweep {
            ground: self,
            board: Board::new(self.instance),
            ceiling,
            range: (0, 0),
            standing: Vec::new(),
            left: Vec::new(),
            most_left: 64 + self.instance.items.len() / 1_000,
            stop_at: meter.spent().saturating_add(limit),
            trials: TRIALS,
        };
        for (i, item) in self.instance.items.iter().enumerate() {
            if item.pin.is_some() {
                let at = sweep.board.find(i, Fit::First, UNLIMITED).ok_or(i as u32)?;
                sweep.board.put(i, at);
            }
        }
        sweep.climb(meter);
        if sweep.is_over(meter) {
            return Ok(None);
        }
        Ok(Some(sweep.finish(meter)))
    }
}

impl Sweep<'_, '_> {
    fn item(&self, i: u32) -> &Item {
        &self.ground.instance.items[i as usize]
    }

    fn is_placed(&self, i: u32) -> bool {
        self.board.offsets()[i as usize] != UNPLACED
    }

    fn is_over(&self, meter: &Meter) -> bool {
        self.left.len() > self.most_left || meter.spent() + self.board.work > self.stop_at || meter.is_interrupted()
    }

    fn pay(&mut self, items: usize, meter: &mut Meter) {
        meter.spend(std::mem::take(&mut self.board.work) + PER_ITEM * items as u64);
    }

    /// Stacks what is live at the peak.
    fn stack(&mut self, at: i32, meter: &mut Meter) {
        self.board.clear();
        for k in 0..self.standing.len() {
            self.board.stand(self.standing[k] as usize);
        }
        let mut items = self.ground.timeline.live(self.ground.instance, at, at + 1);
        items.retain(|i| !self.is_placed(*i) && !self.left.contains(i));
        items.sort_by_cached_key(|&i| {
            let item = self.item(i);
            (-i64::from((item.end - at).min(at - item.start)), -item.height, i)
        });
        for &i in &items {
            if self.is_over(meter) {
                break;
            }
            self.put(i);
            if self.is_placed(i) {
                self.standing.push(i);
            }
        }
        self.pay(items.len(), meter);
    }

    fn put(&mut self, i: u32) {
        match self.board.find(i as usize, Fit::Touch, self.ceiling) {
            Some(at) => self.board.put(i as usize, at),
            None => self.left.push(i),
        }
    }

    /// Sweeps one side of the peak, leg by leg; where an item finds no room the last legs are tried in other ways.
    fn go(&mut self, at: i32, way: Way, meter: &mut Meter) {
        let instance = self.ground.instance;
        let (start, end) = if way == Way::Forward { (at + 1, self.range.1) } else { (self.range.0, at) };
        let mut items = self.ground.timeline.within(instance, start, end);
        items.retain(|&i| !self.is_placed(i));
        items.sort_by_cached_key(|&i| {
            let item = self.item(i);
            (if way == Way::Forward { item.start } else { -item.end }, item.start - item.end, -item.height, i)
        });
        self.board.clear();
        for k in 0..self.standing.len() {
            let item = self.item(self.standing[k]);
            if item.start < end && start < item.end {
                self.board.stand(self.standing[k] as usize);
            }
        }
        let legs: Vec<&[u32]> = items.chunks(LEG.max(self.standing.len() / 2)).collect();
        let mut marks: VecDeque<Mark> = VecDeque::new();
        for next in 0..legs.len() {
            if self.is_over(meter) {
                return;
            }
            let before = self.left.len();
            self.run(&legs[next..=next], way, Taste::of(0), &mut marks, meter);
            let mut best = (self.left.len(), 0, 0);
            let tried = meter.spent();
            for (trial, &back) in (1..).zip(&BACK) {
                // Back to before that leg; what failed earlier was tried enough.
                let back = back.min(marks.len());
                if best.0 <= before || meter.spent() > self.stop_at.min(tried + self.trials) || meter.is_interrupted() {
                    break;
                }
                self.back_to(&legs[next + 1 - back..=next], back, &mut marks);
                self.run(&legs[next + 1 - back..=next], way, Taste::of(trial), &mut marks, meter);
                if self.left.len() < best.0 || self.left.len() <= before {
                    best = (self.left.len(), trial, back);
                }
            }
            if self.left.len() > best.0 {
                // The best of them once more.
                let (trial, back) = (best.1, best.2.max(1));
                self.back_to(&legs[next + 1 - back..=next], back, &mut marks);
                self.run(&legs[next + 1 - back..=next], way, Taste::of(trial), &mut marks, meter);
            }
            self.trials = self.trials.saturating_sub(meter.spent() - tried);
        }
    }

    /// Takes the last legs off again.
    fn back_to(&mut self, legs: &[&[u32]], back: usize, marks: &mut VecDeque<Mark>) {
        let mark = marks.drain(marks.len() - back..).next();
        if let Some(mark) = mark {
            self.left.truncate(mark.left);
            self.board.restore(mark.blocks);
        }
        for &i in legs.iter().copied().flatten() {
            self.board.forget(i as usize);
        }
    }

    /// Sweeps legs one way.
    fn run(&mut self, legs: &[&[u32]], way: Way, taste: Taste, marks: &mut VecDeque<Mark>, meter: &mut Meter) {
        self.board.touch = taste.touch;
        for leg in legs {
            let Some(&first) = leg.first() else { continue };
            let now = if way == Way::Forward { self.item(first).start } else { self.item(first).end };
            // Those that the sweep has left behind come off the board.
            self.board.retain(|start, end| if way == Way::Forward { end > now } else { start < now });
            marks.push_back(Mark { blocks: self.board.copy(), left: self.left.len() });
            if marks.len() > KEPT {
                marks.pop_front();
            }
            for batch in leg.chunks(taste.batch) {
                let mut batch = batch.to_vec();
                batch.sort_by_key(|&i| {
                    let item = self.item(i);
                    let (size, life) = (-item.height, i64::from(item.start - item.end));
                    if taste.large_first { (size, life, i) } else { (life, size, i) }
                });
                for i in batch {
                    self.put(i);
                }
            }
            self.pay(leg.len(), meter);
        }
    }

    /// Those that are left over are fitted in (`mend`); else they go on top, the largest first.
    fn finish(mut self, meter: &mut Meter) -> Swept {
        let left = std::mem::take(&mut self.left);
        let mut above = self.mend_all(left, meter);
        above.sort_by_key(|&i| (-self.item(i).height, i));
        for &i in &above {
            let (start, end) = (self.item(i).start, self.item(i).end);
            self.board.clear();
            for other in self.ground.timeline.live(self.ground.instance, start, end) {
                if self.is_placed(other) {
                    self.board.stand(other as usize);
                }
            }
            // Without a ceiling there is always room.
            let at = self.board.find(i as usize, Fit::First, UNLIMITED).unwrap_or(self.board.peak);
            self.board.put(i as usize, at);
        }
        self.pay(above.len(), meter);
        let offsets = self.board.into_offsets();
        Swept { peak: self.ground.instance.peak(&offsets), offsets, left: above.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::greedy;
    use crate::placement::instance::{Live, SpaceBuffer, SpaceProblem};
    use npumem_testing::Random;

    /// Evenly drawn starts, lives and sizes; with `odd` also gaps, alignments, pins and pairs kept apart.
    fn instance(random: &mut Random, count: u64, odd: bool) -> Instance {
        let buffers = (0..count).map(|k| {
            let (start, size) = (random.below(count), 8 * (1 + random.below(512)));
            let end = start + 1 + random.below(100);
            let mut live = vec![Live { start, end, low: 0, high: size }];
            if odd && random.one_in(50) {
                live.push(Live { start: end + 2, end: end + 5, low: 0, high: size / 2 });
            }
            let pin = (odd && k % 1000 == 7).then_some(4096 * k);
            let alignment = if odd { 1 << random.below(5) } else { 1 };
            SpaceBuffer { size, alignment, live, pin, hint: None }
        });
        let mut raw = SpaceProblem { buffers: buffers.collect(), ..SpaceProblem::default() };
        if odd {
            raw.reserved.push((64, 128));
            let pairs = if count > 200 { 40 } else { 0 };
            raw.apart.extend((0..pairs).map(|k| (8 + 3 * k, 9 + 3 * k)));
        }
        Instance::new(&raw).unwrap()
    }

    #[test]
    fn what_is_swept_is_sound() {
        let mut random = Random(3);
        for count in [1, 30, 2_000, 6_000] {
            for odd in [false, true] {
                let instance = instance(&mut random, count, odd);
                let target = bounds::lower_bound(&instance).value;
                for ceiling in [target, target + target / 50] {
                    let mut meter = Meter::new(u64::MAX, None);
                    let Some(found) = Ground::new(&instance, &greedy::urgency(&instance))
                        .sweep(ceiling, 200_000_000, &mut meter)
                        .unwrap()
                    else {
                        continue;
                    };
                    assert_eq!(found.peak, instance.peak(&found.offsets));
                    assert!(odd || (found.left == 0) == (found.peak <= ceiling));
                    for (a, item) in instance.items.iter().enumerate() {
                        let at = found.offsets[a];
                        assert_eq!(item.lowest_from(at), at);
                        assert!(item.pin.is_none_or(|p| p == at));
                        for (low, high) in &instance.reserved {
                            assert!(
                                at + item.height <= *low || *high <= at,
                                "item {a} at {at} is in the reserved range"
                            );
                        }
                        let clash = |&b: &usize| instance.clash(a, at, b, found.offsets[b]);
                        assert_eq!((0..a).find(clash), None, "item {a} of {count}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_even_load_is_swept_within_two_percent() {
        let instance = instance(&mut Random(9), 20_000, false);
        let target = bounds::lower_bound(&instance).value;
        let mut meter = Meter::new(u64::MAX, None);
        let found = Ground::new(&instance, &greedy::urgency(&instance))
            .sweep(target + target / 32, 400_000_000, &mut meter)
            .unwrap()
            .unwrap();
        assert_eq!(found.left, 0);
    }

    #[test]
    fn the_limit_and_the_cancel_flag_end_it() {
        let instance = instance(&mut Random(9), 20_000, false);
        let mut meter = Meter::new(u64::MAX, None);
        assert!(
            Ground::new(&instance, &greedy::urgency(&instance))
                .sweep(1 << 40, 1_000_000, &mut meter)
                .unwrap()
                .is_none()
        );
        assert!(meter.spent() < 2_000_000, "{}", meter.spent());
        let flag = std::sync::atomic::AtomicBool::new(true);
        let mut meter = Meter::new(u64::MAX, Some(&flag));
        assert!(
            Ground::new(&instance, &greedy::urgency(&instance)).sweep(1 << 40, u64::MAX, &mut meter).unwrap().is_none()
        );
    }
}
