//! The greedy fan: a handful of orders, each placed with first fit and with best fit.
//!
//! No order wins everywhere: traces of training runs like urgency, kernels like size, forward
//! passes like the order of time. A pass is given the best peak so far as its ceiling and ends at
//! the first buffer that would break it, so most passes after the first cost a fraction of it.

use super::board::{Board, Fit};
use super::bounds;
use super::compact::Compact;
use super::counters::Meter;
use super::instance::{Instance, UNLIMITED};

/// What decides who is placed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    /// Large before small, then long before short.
    Size,
    /// Bytes times steps.
    Area,
    /// Long before short.
    Duration,
    /// Largest load that is met while live, then long before short.
    Urgency,
    /// Largest load that is met while live, then large before small, then long before short.
    UrgencySize,
    /// Large before small, then in order of time: equal sizes then stack without holes.
    SizeStart,
    /// Largest load that is met while live, times size.
    Pressure,
    /// Number of buffers that are live at the same time.
    Conflicts,
    /// Order of time.
    Start,
    /// Those that live on longest first: the order of time backwards.
    End,
    /// Large before small, then backwards in time.
    SizeEnd,
    /// Powers of two of the size, then long before short.
    SizeClassDuration,
    /// Powers of two of the size, then in order of time.
    SizeClassStart,
    /// Powers of two of the size, then backwards in time.
    SizeClassEnd,
    /// Powers of two of the duration, then large before small.
    DurationClassSize,
    /// Powers of two of the duration, then in order of time.
    DurationClassStart,
}

pub(crate) const ORDERS: [Order; 8] = [
    Order::Size,
    Order::Area,
    Order::Urgency,
    Order::UrgencySize,
    Order::Pressure,
    Order::Conflicts,
    Order::Start,
    Order::Duration,
];

/// Keys of all orders, computed once.
pub(crate) struct Keys {
    urgency: Vec<i64>,
    conflicts: Vec<i64>,
}

impl Keys {
    pub fn new(instance: &Instance) -> Keys {
        Keys { urgency: urgency(instance), conflicts: conflicts(instance) }
    }

    /// Keys of a part of a problem whose loads are known from the whole; nothing is counted as a conflict.
    pub fn of_urgency(urgency: Vec<i64>) -> Keys {
        Keys { conflicts: vec![0; urgency.len()], urgency }
    }

    /// Largest load that each item meets.
    pub fn urgency(&self) -> &[i64] {
        &self.urgency
    }

    /// Items sorted by an order, pinned ones first.
    pub fn sorted(&self, instance: &Instance, order: Order) -> Vec<u32> {
        let all: Vec<u32> = (0..instance.items.len() as u32).collect();
        self.sorted_among(instance, order, &all)
    }

    /// The same for some of the items.
    pub fn sorted_among(&self, instance: &Instance, order: Order, items: &[u32]) -> Vec<u32> {
        // Areas that do not fit are compared without their last bits.
        let wide = |i: &u32| {
            let i = *i as usize;
            let item = &instance.items[i];
            match order {
                Order::Area => item.area(),
                Order::Pressure => i128::from(self.urgency[i]) * i128::from(item.height),
                _ => 0,
            }
        };
        let largest = items.iter().map(wide).max().unwrap_or(0).max(1);
        let shift = largest.ilog2().saturating_sub(61);
        let mut keyed: Vec<([i64; 3], u32)> = items
            .iter()
            .map(|id| {
                let i = *id as usize;
                let item = &instance.items[i];
                let size = -item.height;
                let life: i64 = item.rects.iter().map(|r| i64::from(r.end - r.start)).sum();
                let (size_class, life_class) =
                    (-i64::from(item.height.max(1).ilog2()), -i64::from(life.max(1).ilog2()));
                let life = -life;
                let (start, end) = (i64::from(item.start), -i64::from(item.end));
                let key = match order {
                    Order::Size => [size, life, 0],
                    Order::Area | Order::Pressure => {
                        [-((wide(id) >> shift) as i64), if order == Order::Area { size } else { life }, 0]
                    }
                    Order::Duration => [life, size, 0],
                    Order::Urgency => [-self.urgency[i], life, size],
                    Order::UrgencySize => [-self.urgency[i], size, life],
                    Order::SizeStart => [size, start, life],
                    Order::Conflicts => [-self.conflicts[i], size, life],
                    Order::Start => [start, size, life],
                    Order::End => [end, size, life],
                    Order::SizeEnd => [size, end, life],
                    Order::SizeClassDuration => [size_class, life, size],
                    Order::SizeClassStart => [size_class, start, size],
                    Order::SizeClassEnd => [size_class, end, size],
                    Order::DurationClassSize => [life_class, size, life],
                    Order::DurationClassStart => [life_class, start, size],
                };
                (key, *id)
            })
            .collect();
        keyed.sort_unstable();
        let mut order: Vec<u32> = keyed.into_iter().map(|k| k.1).collect();
        order.sort_by_key(|&i| instance.items[i as usize].pin.is_none());
        order
    }
}

/// Largest load over each item's live range, by a sparse table over the slots.
pub(crate) fn urgency(instance: &Instance) -> Vec<i64> {
    let loads = bounds::loads(instance);
    let table = MaxTable::new(loads);
    instance
        .items
        .iter()
        .map(|i| i.rects.iter().map(|r| table.max(r.start as usize, r.end as usize)).max().unwrap_or(0))
        .collect()
}

/// How many items are live at some step of each item's hull.
fn conflicts(instance: &Instance) -> Vec<i64> {
    let slots = instance.slots() + 1;
    let (mut begun, mut ended) = (vec![0i64; slots + 1], vec![0i64; slots + 1]);
    for i in &instance.items {
        if i.start < i.end {
            begun[i.start as usize + 1] += 1;
            ended[i.end as usize] += 1;
        }
    }
    for k in 1..=slots {
        begun[k] += begun[k - 1];
        ended[k] += ended[k - 1];
    }
    instance
        .items
        .iter()
        .map(|i| if i.start < i.end { begun[i.end as usize] - ended[i.start as usize] } else { 0 })
        .collect()
}

/// Range maximum in constant time after `n log n` preparation.
pub(crate) struct MaxTable {
    rows: Vec<Vec<i64>>,
}

impl MaxTable {
    pub fn new(values: Vec<i64>) -> MaxTable {
        let mut rows = vec![values];
        let mut width = 1;
        while 2 * width <= rows[0].len() {
            let last = &rows[rows.len() - 1];
            let next = (0..last.len() - width).map(|k| last[k].max(last[k + width])).collect();
            rows.push(next);
            width *= 2;
        }
        MaxTable { rows }
    }

    /// Maximum over `[start, end)`, which is not empty.
    pub fn max_of(&self, start: usize, end: usize) -> i64 {
        let row = (end - start).ilog2() as usize;
        self.rows[row][start].max(self.rows[row][end - (1 << row)])
    }

    /// Maximum over `[start, end)`; zero when empty.
    pub fn max(&self, start: usize, end: usize) -> i64 {
        if start >= end {
            return 0;
        }
        self.max_of(start, end)
    }
}

/// Places items in the given order; the first that finds no room below the ceiling ends the pass.
pub(crate) fn pass(
    instance: &Instance,
    order: &[u32],
    fit: Fit,
    ceiling: i64,
    meter: &mut Meter,
) -> Result<Vec<i64>, u32> {
    Passes::new(instance).run(order, fit, ceiling, u64::MAX, meter)
}

/// Passes over one instance, the way that suits it.
pub(crate) struct Passes<'a> {
    instance: &'a Instance,
    compact: Option<Compact<'a>>,
}

impl<'a> Passes<'a> {
    pub fn new(instance: &'a Instance) -> Passes<'a> {
        Passes { instance, compact: Compact::new(instance) }
    }

    /// One pass; the first item that finds no room below the ceiling ends it, and so does the one at which the work
    /// passes `limit`.
    pub fn run(
        &mut self,
        order: &[u32],
        fit: Fit,
        ceiling: i64,
        limit: u64,
        meter: &mut Meter,
    ) -> Result<Vec<i64>, u32> {
        match &mut self.compact {
            Some(compact) => {
                let (found, work) = compact.pass(order, fit, ceiling, limit);
                meter.spend(work);
                found
            }
            None => on_board(self.instance, order, fit, ceiling, limit, meter),
        }
    }
}

/// A pass over items of any shape and number.
fn on_board(
    instance: &Instance,
    order: &[u32],
    fit: Fit,
    ceiling: i64,
    limit: u64,
    meter: &mut Meter,
) -> Result<Vec<i64>, u32> {
    let mut board = Board::new(instance);
    for (done, &i) in order.iter().enumerate() {
        match board.find(i as usize, fit, ceiling) {
            Some(at) => board.put(i as usize, at),
            None => {
                meter.spend(board.work);
                return Err(i);
            }
        }
        if board.work > limit || done % 1024 == 1023 && meter.is_interrupted() {
            meter.spend(board.work);
            return Err(i);
        }
    }
    meter.spend(board.work);
    Ok(board.into_offsets())
}

/// Work that the fan may do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Most {
    /// A millisecond for 500 items, more with the cube of their number, and at most [`TIMES`] that of the first pass.
    Quick,
    /// So much counted work.
    Work(u64),
}

/// Most work of a quick fan, in first passes.
const TIMES: u64 = 20;

/// Work of a quick fan over 500 items after which no pass begins: three passes or four. Where conflicts are more than
/// times a pass is dearer, and dearer still where items have several heights.
const QUICK: (u64, u64, u64) = (250_000, 150_000, 60_000);

/// The passes that a quick fan goes through after the first, the most useful beside the ones before it first: over 300
/// problems of 400 to 520 items five passes end 2.39 % above the bound on average, all seventeen of the fan 2.36 %.
const QUICK_PASSES: [(Order, Fit); 7] = [
    (Order::Urgency, Fit::Best),
    (Order::SizeClassEnd, Fit::First),
    (Order::SizeClassStart, Fit::First),
    (Order::Pressure, Fit::First),
    (Order::Conflicts, Fit::Best),
    (Order::Duration, Fit::First),
    (Order::UrgencySize, Fit::Best),
];

/// What the fan found.
pub(crate) struct FanResult {
    pub offsets: Vec<i64>,
    pub peak: i64,
    /// The winner's name.
    pub method: String,
    /// What won.
    pub winner: (Order, Fit),
    /// Passes that were completed or cut off.
    pub passes: u32,
}

/// Runs the fan; `Err` names the pinned item that clashes with what was placed before it.
///
/// Ends as soon as a peak is at most `target`, or when its work exceeds `most`; the first
/// pass is first fit by size, whose peak is therefore never exceeded.
pub(crate) fn fan(
    instance: &Instance,
    keys: &Keys,
    target: i64,
    most: Most,
    meter: &mut Meter,
) -> Result<FanResult, u32> {
    let before = meter.spent();
    let mut passes = Passes::new(instance);
    let order = keys.sorted(instance, Order::Size);
    let offsets = passes.run(&order, Fit::First, UNLIMITED, u64::MAX, meter)?;
    let base = (meter.spent() - before).max(64);
    let mut best = FanResult {
        peak: instance.peak(&offsets),
        offsets,
        method: method_name((Order::Size, Fit::First)),
        winner: (Order::Size, Fit::First),
        passes: 1,
    };
    // First fit stops at the first gap, so those passes are the cheap ones.
    let all = [Fit::First, Fit::Best].into_iter().flat_map(|fit| {
        let orders = ORDERS.into_iter().chain([Order::SizeStart]);
        orders.map(move |order| (order, fit)).filter(|&p| p != (Order::Size, Fit::First))
    });
    // No pass begins past the first limit, and one that passes the second ends there.
    let (chosen, enough, limit): (Vec<_>, u64, u64) = match most {
        Most::Quick => {
            let chosen = QUICK_PASSES.into_iter().chain(all.filter(|p| !QUICK_PASSES.contains(p)));
            let size = instance.items.len() as u128;
            let unit = match instance {
                i if i.plain => QUICK.0,
                i if i.flat => QUICK.1,
                _ => QUICK.2,
            };
            let enough = u128::from(unit) * (size * size * size).max(125_000_000) / 125_000_000;
            (chosen.collect(), u64::try_from(enough).unwrap_or(u64::MAX), TIMES * base)
        }
        // What a quick fan would try belongs to it: nobody ends worse for having more time.
        Most::Work(work) => {
            let (first, best): (Vec<_>, Vec<_>) = all.partition(|pass| pass.1 == Fit::First);
            let known = |pass: &(Order, Fit)| first.contains(pass) || best.contains(pass);
            let more: Vec<_> = QUICK_PASSES.into_iter().filter(|pass| !known(pass)).collect();
            (first.into_iter().chain(more).chain(best).collect(), work, u64::MAX)
        }
    };
    for pass in chosen {
        let spent = meter.spent() - before;
        if best.peak <= target || meter.is_interrupted() || spent > enough.min(limit) {
            break;
        }
        let sorted = keys.sorted(instance, pass.0);
        best.passes += 1;
        if let Ok(offsets) = passes.run(&sorted, pass.1, best.peak - 1, limit - spent, meter) {
            best.peak = instance.peak(&offsets);
            best.offsets = offsets;
            best.method = method_name(pass);
            best.winner = pass;
        }
    }
    Ok(best)
}

/// The words for a pass of the fan.
pub(crate) fn method_name((order, fit): (Order, Fit)) -> String {
    let order = match order {
        Order::Size => "size",
        Order::Area => "area",
        Order::Duration => "duration",
        Order::Urgency => "urgency",
        Order::UrgencySize => "urgency-size",
        Order::SizeStart => "size-start",
        Order::Pressure => "pressure",
        Order::Conflicts => "conflicts",
        Order::Start => "start",
        Order::End => "end",
        Order::SizeEnd => "size-end",
        Order::SizeClassDuration => "size-class-duration",
        Order::SizeClassStart => "size-class-start",
        Order::SizeClassEnd => "size-class-end",
        Order::DurationClassSize => "duration-class-size",
        Order::DurationClassStart => "duration-class-start",
    };
    let fit = match fit {
        Fit::First => "first-fit",
        Fit::Best => "best-fit",
        Fit::Touch => "touching-fit",
    };
    format!("{order}-{fit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::instance::{Live, SpaceBuffer, SpaceProblem};
    use crate::placement::options::PlacementOptions;
    use crate::placement::portfolio;
    use npumem_ir::problem::Goal;

    /// Splitmix64.
    fn next(state: &mut u64, below: u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    /// Up to `most` buffers over as many steps; some with gaps, pins aside some with an alignment, some kept apart.
    fn raw(state: &mut u64, most: u64) -> SpaceProblem {
        let n = 1 + next(state, most);
        let long = 1 + next(state, n);
        let buffers = (0..n)
            .map(|_| {
                let size = 1 + next(state, 4096);
                let start = next(state, 2 * n);
                let end = start + 1 + next(state, long);
                let mut live = vec![Live { start, end, low: 0, high: size }];
                if next(state, 8) == 0 {
                    live.push(Live { start: end + 2, end: end + 3, low: 0, high: size });
                }
                let alignment = [1, 1, 1, 32, 64][next(state, 5) as usize];
                SpaceBuffer { size, alignment, live, pin: None, hint: None }
            })
            .collect();
        let apart = (0..next(state, n / 8 + 1)).map(|_| (next(state, n) as u32, next(state, n) as u32));
        let apart = apart.filter(|(a, b)| a != b).collect();
        SpaceProblem { buffers, apart, ..SpaceProblem::default() }
    }

    /// Peak and counted work of one first fit by size.
    fn first_fit(instance: &Instance) -> (i64, u64) {
        let mut meter = Meter::new(u64::MAX, None);
        let order = Keys::new(instance).sorted(instance, Order::Size);
        let offsets = pass(instance, &order, Fit::First, UNLIMITED, &mut meter).unwrap();
        (instance.peak(&offsets), meter.spent())
    }

    #[test]
    fn fast_is_never_worse_than_first_fit_and_does_at_most_twenty_times_its_work() {
        let mut state = 11;
        let (mut better, mut dearest) = (0, 0.0_f64);
        for round in 0..600 {
            let most = [8, 60, 500][round % 3];
            let instance = Instance::new(&raw(&mut state, most)).unwrap();
            let (peak, work) = first_fit(&instance);
            let mut meter = Meter::new(u64::MAX, None);
            let out = portfolio::solve(&instance, &[Goal::Peak], &PlacementOptions::fast(), &mut meter).unwrap();
            assert!(out.peak <= peak, "{} > {peak} with {} items", out.peak, instance.items.len());
            let times = meter.spent() as f64 / work.max(64) as f64;
            assert!(times <= 20.0, "{times} times the work with {} items", instance.items.len());
            better += u32::from(out.peak < peak);
            dearest = dearest.max(times);
        }
        assert!(better > 100, "better only {better} times");
        assert!(dearest > 5.0, "the fan hardly ran: {dearest}");
    }

    /// 500 buffers that each ask for something else: their starts lie in `span` steps, their lives last up to as long.
    fn kernel(state: &mut u64, span: u64, kind: usize) -> SpaceProblem {
        let mut raw = SpaceProblem::default();
        let mut pinned = 0;
        for k in 0..500 {
            let size =
                if k % 2 == 0 { (512 * (1 + next(state, 8))) << next(state, 10) } else { 1 + next(state, 100_000) };
            let (start, life) = (next(state, span), 1 + next(state, span));
            let gaps = [0, 0, 1, 9, 0, 0][kind];
            let at = |g: u64| Live { start: start + g * span, end: start + g * span + life, low: 0, high: size };
            let mut live: Vec<Live> = (0..=gaps).map(at).collect();
            live.dedup_by(|next, last| next.start <= last.end);
            let alignment = if kind == 1 { 1 << next(state, 8) } else { 1 };
            let pin = (kind == 4 && k % 10 == 0).then_some(pinned);
            pinned += if pin.is_some() { size } else { 0 };
            raw.buffers.push(SpaceBuffer { size, alignment, live, pin, hint: None });
        }
        if kind == 5 {
            raw.apart.extend((3..500).map(|k| (k, k - 3)));
            raw.exclusive.extend((1..500).map(|k| (k, k - 1)));
        }
        raw
    }

    /// A unit takes two nanoseconds or less, so 400,000 of them leave a fifth of the millisecond for the rest.
    #[test]
    fn fast_takes_at_most_four_hundred_thousand_units_for_five_hundred_buffers() {
        let mut state = 13;
        for span in [1, 4, 20, 100, 500, 5_000, 100_000] {
            for kind in 0..6 {
                let instance = Instance::new(&kernel(&mut state, span, kind)).unwrap();
                assert_eq!(instance.items.len(), 500);
                let (peak, work) = first_fit(&instance);
                let mut meter = Meter::new(u64::MAX, None);
                let out = portfolio::solve(&instance, &[Goal::Peak], &PlacementOptions::fast(), &mut meter).unwrap();
                assert!(out.peak <= peak, "{} > {peak} in {span} steps, kind {kind}", out.peak);
                assert!(meter.spent() <= 400_000, "{} units in {span} steps, kind {kind}", meter.spent());
                assert!(meter.spent() <= 20 * work, "{} for {work} in {span} steps, kind {kind}", meter.spent());
            }
        }
    }

    #[test]
    fn normal_is_never_worse_than_fast() {
        let mut state = 12;
        for _ in 0..60 {
            let instance = Instance::new(&raw(&mut state, 60)).unwrap();
            let peak = |options: &PlacementOptions| {
                let mut meter = Meter::new(options.work_limit(), None);
                portfolio::solve(&instance, &[Goal::Peak], options, &mut meter).unwrap().peak
            };
            let normal = PlacementOptions { budget: Some(5_000_000), ..PlacementOptions::default() };
            assert!(peak(&normal) <= peak(&PlacementOptions::fast()));
        }
    }
}
