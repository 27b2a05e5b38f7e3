//! Exact search for small problems with every feature: which of two lies above the other?
//!
//! Any two items that must not share bytes give open intervals of forbidden distance; each is a
//! choice, "below" or "above", that becomes a difference constraint on the two offsets. Bounds of the
//! offsets are propagated through the choices made, alignment and reserved ranges included. When
//! all choices are made, every item at its lower bound is a placement. A reuse penalty is the same
//! kind of choice with a third way out, paying for it; a hint is one between staying there and paying.
//!
//! No canonical form is assumed, so rigid shapes of several rectangles are no special case.

use super::counters::Meter;
use super::instance::{Instance, UNLIMITED};

/// How a search ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Offsets of all items.
    Placed(Vec<i64>),
    /// No placement does what is asked.
    Impossible,
    /// The work ran out, or someone asked to stop.
    Unknown,
}

/// What a placement may come to at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    /// The end of the highest byte.
    pub peak: i64,
    /// The end of any member, with bytes or without.
    pub end: i64,
    /// Penalties paid; all that there are when `None`.
    pub cost: Option<u64>,
    /// Bytes that left their hint; all that there are when `None`.
    pub moved: Option<u64>,
    /// Hinted offsets of each item, and the bytes that stay when it is there.
    pub hints: &'a [Vec<(i64, u64)>],
}

impl Ask<'_> {
    /// Everything below a ceiling, whatever it costs.
    pub fn below(ceiling: i64) -> Ask<'static> {
        Ask { peak: ceiling, end: i64::MAX, cost: None, moved: None, hints: &[] }
    }
}

/// What a third way out is paid in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pays {
    /// There is no third way.
    Never,
    /// A reuse penalty.
    Cost(u64),
    /// Bytes that move; the choice is one item's: at `low`, or not.
    Moved(u64),
}

/// `offset[b] - offset[a]` must not lie in the open interval `(low, high)`, or something is paid.
#[derive(Clone, Copy, Debug)]
struct Choice {
    a: u32,
    b: u32,
    low: i64,
    high: i64,
    pays: Pays,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    Open,
    Below,
    Above,
    Paid,
    Kept,
}

struct Node {
    choice: usize,
    next: u8,
    bounds: Vec<(i64, i64)>,
    made: Vec<Made>,
    paid: [u64; 2],
}

/// Number of choices from which on the search is not worth starting.
const MOST_CHOICES: usize = 20_000;
/// Pairs of rectangles that may be looked at to find the choices.
const MOST_PAIRS: u64 = 4_000_000;

struct Solver<'a> {
    instance: &'a Instance,
    choices: Vec<Choice>,
    of: Vec<Vec<u32>>,
    reserved: Vec<Vec<(i64, i64)>>,
    bounds: Vec<(i64, i64)>,
    made: Vec<Made>,
    /// Penalties, and bytes that moved.
    paid: [u64; 2],
    most: [u64; 2],
    queue: Vec<u32>,
    queued: Vec<bool>,
    work: u64,
    /// Where the work ends, also amid a propagation.
    limit: u64,
    stopped: bool,
}

/// Finds a placement that does what is asked.
pub(crate) fn search(instance: &Instance, ask: &Ask, limit: u64, meter: &mut Meter) -> Outcome {
    let Some(mut solver) = Solver::new(instance, ask) else { return Outcome::Unknown };
    solver.limit = limit;
    let outcome = match solver.root() {
        true => solver.walk(limit, meter),
        false if solver.stopped => Outcome::Unknown,
        false => Outcome::Impossible,
    };
    meter.spend(solver.work);
    outcome
}

impl<'a> Solver<'a> {
    fn new(instance: &'a Instance, ask: &Ask) -> Option<Solver<'a>> {
        let n = instance.items.len();
        let mut choices = Vec::new();
        let mut pairs = 0_u64;
        for a in 0..n {
            let x = &instance.items[a];
            for &(b, low, high) in &x.apart {
                if a < b as usize {
                    choices.push(Choice { a: a as u32, b, low, high, pays: Pays::Never });
                }
            }
            for b in a + 1..n {
                let y = &instance.items[b];
                if x.end <= y.start || y.end <= x.start {
                    continue;
                }
                let (p, q) = (x.rects.len() as u64, y.rects.len() as u64);
                pairs += if y.in_turn { p + q } else { p * q };
                if pairs > MOST_PAIRS {
                    return None;
                }
                time_choices(instance, a, b, &mut choices);
                if choices.len() > MOST_CHOICES {
                    return None;
                }
            }
        }
        if ask.cost.is_some() {
            choices.extend(instance.penalties.iter().map(|p| Choice {
                a: p.first,
                b: p.second,
                low: p.low,
                high: p.high,
                pays: Pays::Cost(p.weight),
            }));
        }
        if ask.moved.is_some() {
            for (a, hints) in (0u32..).zip(ask.hints) {
                let at = |&(at, bytes): &(i64, u64)| Choice { a, b: a, low: at, high: at, pays: Pays::Moved(bytes) };
                choices.extend(hints.iter().map(at));
            }
        }
        let mut of = vec![Vec::new(); n];
        for (k, c) in choices.iter().enumerate() {
            of[c.a as usize].push(k as u32);
            if c.b != c.a {
                of[c.b as usize].push(k as u32);
            }
        }
        let reserved = instance
            .items
            .iter()
            .map(|item| {
                let mut out: Vec<(i64, i64)> = Vec::new();
                for &(low, high) in &instance.reserved {
                    out.extend(
                        item.members.iter().filter(|m| m.size > 0).map(|m| (low - m.delta - m.size, high - m.delta)),
                    );
                }
                out.sort_unstable();
                out
            })
            .collect();
        let (peak, end) = (ask.peak.min(UNLIMITED / 2), ask.end.min(UNLIMITED / 2));
        let highest = |i: &super::instance::Item| (peak - i.height).min(end - i.end_of_members());
        let bounds = instance
            .items
            .iter()
            .map(|i| match i.pin {
                Some(pin) if pin <= highest(i) => (pin, pin),
                Some(_) => (1, 0),
                None => (0, highest(i)),
            })
            .collect();
        Some(Solver {
            made: vec![Made::Open; choices.len()],
            instance,
            choices,
            of,
            reserved,
            bounds,
            paid: [instance.fixed_cost, 0],
            most: [ask.cost.unwrap_or(u64::MAX), ask.moved.unwrap_or(u64::MAX)],
            queue: Vec::new(),
            queued: vec![false; n],
            work: pairs,
            limit: u64::MAX,
            stopped: false,
        })
    }

    /// Settles the first bounds; false when they already leave nothing.
    fn root(&mut self) -> bool {
        (self.paid[0] <= self.most[0])
            && (0..self.bounds.len()).all(|i| self.tighten(i, self.bounds[i].0, self.bounds[i].1, true))
            && self.propagate()
    }

    /// Pays for a choice; false when that is more than may be paid.
    fn pay(&mut self, pays: Pays) -> bool {
        let (which, weight) = match pays {
            Pays::Never => return false,
            Pays::Cost(weight) => (0, weight),
            Pays::Moved(bytes) => (1, bytes),
        };
        self.paid[which] = self.paid[which].saturating_add(weight);
        self.paid[which] <= self.most[which]
    }

    /// Narrows the range of an offset, rounding to the alignment and out of reserved ranges.
    fn tighten(&mut self, i: usize, low: i64, high: i64, force: bool) -> bool {
        let (old_low, old_high) = self.bounds[i];
        let (mut low, mut high) = (low.max(old_low), high.min(old_high));
        if (low, high) == (old_low, old_high) && !force {
            return true;
        }
        let item = &self.instance.items[i];
        low = item.lowest_from(low);
        for &(from, to) in &self.reserved[i] {
            if from < low && low < to {
                low = item.lowest_from(to);
            }
        }
        high = super::arith::align_down(high, item.align, item.residue);
        for &(from, to) in self.reserved[i].iter().rev() {
            if from < high && high < to {
                high = super::arith::align_down(from, item.align, item.residue);
            }
        }
        if low > high {
            return false;
        }
        self.bounds[i] = (low, high);
        if !self.queued[i] {
            self.queued[i] = true;
            self.queue.push(i as u32);
        }
        true
    }

    /// Runs bounds through the choices until nothing changes.
    fn propagate(&mut self) -> bool {
        // So many bounds change when nothing is wrong; where far more do, a cycle may chase its own tail.
        let usual = 16 * self.bounds.len() as u64;
        let mut changes = 0;
        while let Some(i) = self.queue.pop() {
            self.queued[i as usize] = false;
            changes += 1;
            self.stopped |= self.work > self.limit;
            if self.stopped || (changes % usual == 0 && self.has_rising_cycle()) {
                self.forget_queue();
                return false;
            }
            for k in 0..self.of[i as usize].len() {
                let c = self.of[i as usize][k] as usize;
                self.work += 1;
                if !self.apply(c) {
                    self.forget_queue();
                    return false;
                }
            }
        }
        true
    }

    fn forget_queue(&mut self) {
        for &i in &self.queue {
            self.queued[i as usize] = false;
        }
        self.queue.clear();
    }

    /// Do choices that are made put an item above itself? Bounds would rise past every ceiling, one round at a time.
    fn has_rising_cycle(&mut self) -> bool {
        let mut lowest = vec![0i64; self.bounds.len()];
        let made: Vec<(usize, usize, i64)> = (self.choices.iter().zip(&self.made))
            .filter_map(|(c, made)| match made {
                // b <= a + low, so a >= b - low.
                Made::Below => Some((c.b as usize, c.a as usize, -c.low)),
                Made::Above => Some((c.a as usize, c.b as usize, c.high)),
                Made::Open | Made::Paid | Made::Kept => None,
            })
            .collect();
        self.work += (made.len() * lowest.len()) as u64 / 4;
        for _ in 0..=lowest.len() {
            let mut rises = false;
            for &(from, to, by) in &made {
                let at = lowest[from].saturating_add(by);
                if at > lowest[to] {
                    lowest[to] = at;
                    rises = true;
                }
            }
            if !rises {
                return false;
            }
        }
        true
    }

    /// Draws what follows from one choice.
    fn apply(&mut self, k: usize) -> bool {
        let c = self.choices[k];
        if matches!(c.pays, Pays::Moved(_)) {
            return self.apply_hint(k);
        }
        let (a, b) = (c.a as usize, c.b as usize);
        let ((la, ha), (lb, hb)) = (self.bounds[a], self.bounds[b]);
        let (nearest, farthest) = (lb - ha, hb - la);
        if self.made[k] == Made::Open {
            let (below, above) = (nearest <= c.low, farthest >= c.high);
            self.made[k] = match (below, above) {
                (true, true) => {
                    return true;
                }
                (true, false) if farthest <= c.low || c.pays == Pays::Never => Made::Below,
                (false, true) if nearest >= c.high || c.pays == Pays::Never => Made::Above,
                (false, false) if self.pay(c.pays) => Made::Paid,
                (false, false) => return false,
                // A penalty that one side can still avoid stays open.
                _ => return true,
            };
        }
        match self.made[k] {
            // b <= a + low
            Made::Below => {
                self.tighten(b, i64::MIN / 4, ha + c.low, false) && self.tighten(a, lb - c.low, i64::MAX / 4, false)
            }
            // b >= a + high
            Made::Above => {
                self.tighten(b, la + c.high, i64::MAX / 4, false) && self.tighten(a, i64::MIN / 4, hb - c.high, false)
            }
            Made::Open | Made::Paid | Made::Kept => true,
        }
    }

    /// The same for a hint: kept, paid, or still open.
    fn apply_hint(&mut self, k: usize) -> bool {
        let c = self.choices[k];
        let (i, at) = (c.a as usize, c.low);
        let (low, high) = self.bounds[i];
        let reachable = low <= at && at <= high && self.instance.items[i].lowest_from(at) == at;
        match self.made[k] {
            Made::Open if !reachable => {
                self.made[k] = Made::Paid;
                self.pay(c.pays)
            }
            Made::Open if low == high => {
                self.made[k] = Made::Kept;
                true
            }
            Made::Kept => self.tighten(i, at, at, false),
            _ => true,
        }
    }

    /// The open choice that leaves the least room: widest interval against the range of distances.
    fn pick(&mut self) -> Option<usize> {
        let mut best: Option<(i64, usize)> = None;
        self.work += self.choices.len() as u64 / 4;
        for (k, c) in self.choices.iter().enumerate() {
            if self.made[k] != Made::Open {
                continue;
            }
            let ((la, ha), (lb, hb)) = (self.bounds[c.a as usize], self.bounds[c.b as usize]);
            let room = (hb - la) - (lb - ha) - (c.high - c.low);
            let key = match c.pays {
                Pays::Never => room,
                Pays::Cost(_) => room + UNLIMITED / 2,
                // Hints first, the heaviest before the others: they fix an offset each.
                Pays::Moved(bytes) => -(bytes.min(UNLIMITED as u64) as i64) - 1,
            };
            if best.is_none_or(|b| key < b.0) {
                best = Some((key, k));
            }
        }
        best.map(|b| b.1)
    }

    fn walk(&mut self, limit: u64, meter: &Meter) -> Outcome {
        let mut stack: Vec<Node> = Vec::new();
        let mut alive = true;
        let mut rounds = 0u32;
        loop {
            if self.work >= limit || (rounds.is_multiple_of(64) && meter.is_interrupted()) {
                return Outcome::Unknown;
            }
            rounds = rounds.wrapping_add(1);
            if alive {
                match self.pick() {
                    None => return Outcome::Placed(self.bounds.iter().map(|b| b.0).collect()),
                    Some(choice) => {
                        self.work += (self.bounds.len() + self.made.len() / 8) as u64;
                        stack.push(Node {
                            choice,
                            next: 0,
                            bounds: self.bounds.clone(),
                            made: self.made.clone(),
                            paid: self.paid,
                        });
                    }
                }
            }
            let Some(node) = stack.last_mut() else { return Outcome::Impossible };
            let k = node.choice;
            let way = node.next;
            node.next += 1;
            self.bounds.copy_from_slice(&node.bounds);
            self.made.copy_from_slice(&node.made);
            self.paid = node.paid;
            let pays = self.choices[k].pays;
            let made = match (way, pays) {
                (0, Pays::Moved(_)) => Some(Made::Kept),
                (0, _) => Some(Made::Above),
                (1, Pays::Moved(_)) | (2, Pays::Cost(_)) => Some(Made::Paid),
                (1, _) => Some(Made::Below),
                _ => None,
            };
            let Some(made) = made else {
                stack.pop();
                alive = false;
                continue;
            };
            self.made[k] = made;
            alive = (made != Made::Paid || self.pay(pays)) && self.apply(k) && self.propagate();
            if self.stopped {
                return Outcome::Unknown;
            }
            if !alive {
                self.forget_queue();
            }
        }
    }
}

/// Forbidden distances of two items that are live at the same time, merged where they touch.
fn time_choices(instance: &Instance, a: usize, b: usize, out: &mut Vec<Choice>) {
    let (x, y) = (&instance.items[a], &instance.items[b]);
    let mut forbidden: Vec<(i64, i64)> = Vec::new();
    for p in &x.rects {
        for q in y.live_during(p.start, p.end) {
            if p.start < q.end && q.start < p.end && !x.excludes(p.buffer, b as u32, q.buffer) {
                // ob + dq < oa + dp + sp and oa + dp < ob + dq + sq
                forbidden.push((p.delta - q.delta - q.size, p.delta - q.delta + p.size));
            }
        }
    }
    forbidden.sort_unstable();
    let mut merged: Vec<(i64, i64)> = Vec::new();
    for (low, high) in forbidden {
        match merged.last_mut() {
            // Open intervals that merely touch leave their common end allowed.
            Some(l) if low < l.1 => l.1 = l.1.max(high),
            _ => merged.push((low, high)),
        }
    }
    out.extend(merged.into_iter().map(|(low, high)| Choice { a: a as u32, b: b as u32, low, high, pays: Pays::Never }));
}
