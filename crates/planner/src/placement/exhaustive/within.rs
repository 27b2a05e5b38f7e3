//! One space, exactly: the smallest of each aim in turn, with what the aims before it came to as a limit.

use crate::placement::board::Fit;
use crate::placement::bounds;
use crate::placement::counters::Meter;
use crate::placement::disjunction::{self, Ask};
use crate::placement::feasible::{self, Answer};
use crate::placement::greedy::{self, Keys, ORDERS};
use crate::placement::instance::{Instance, SpaceProblem};
use crate::placement::options::PlacementOptions;

/// What is made small within a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    Peak,
    Cost,
    Moved,
}

/// What a placement comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Values {
    /// In units.
    pub peak: i64,
    pub cost: u64,
    /// Bytes that left a hint in this space.
    pub moved: u64,
}

/// A placement, and whether none is better.
#[derive(Clone, Debug)]
pub(crate) struct Best {
    pub offsets: Vec<i64>,
    pub values: Values,
    pub proven: bool,
}

/// What is known about a space and the buffers in it.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    Best(Best),
    Impossible,
    Unknown,
}

/// A space with its hints, ready to be searched.
pub(crate) struct Within<'a> {
    instance: &'a Instance,
    hints: Vec<Vec<(i64, u64)>>,
    ceiling: i64,
    options: &'a PlacementOptions,
    /// Work that one decision may take.
    share: u64,
}

impl Within<'_> {
    /// `ceiling` is for the bytes, in units; the capacity is for everything.
    pub fn new<'a>(
        instance: &'a Instance,
        raw: &SpaceProblem,
        ceiling: i64,
        options: &'a PlacementOptions,
        share: u64,
    ) -> Within<'a> {
        let hints = instance.items.iter().map(|item| {
            let mut out: Vec<(i64, u64)> = Vec::new();
            for m in &item.members {
                let b = &raw.buffers[m.buffer as usize];
                let at = b.hint.filter(|h| b.size > 0 && h % instance.unit == 0).map(|h| h / instance.unit);
                let Some(at) = at.and_then(|at| i64::try_from(at).ok()) else { continue };
                match out.iter_mut().find(|o| o.0 == at - m.delta) {
                    Some(same) => same.1 = same.1.saturating_add(b.size),
                    None => out.push((at - m.delta, b.size)),
                }
            }
            out
        });
        Within { hints: hints.collect(), instance, ceiling: ceiling.min(instance.capacity), options, share }
    }

    /// Bytes of all hints that a placement here could keep.
    pub fn hinted(&self) -> u64 {
        self.hints.iter().flatten().map(|h| h.1).sum()
    }

    fn values(&self, offsets: &[i64]) -> Values {
        let moved = |(hints, o): (&Vec<(i64, u64)>, &i64)| hints.iter().filter(|h| h.0 != *o).map(|h| h.1).sum::<u64>();
        Values {
            peak: self.instance.peak(offsets),
            cost: self.instance.cost(offsets),
            moved: self.hints.iter().zip(offsets).map(moved).sum(),
        }
    }

    /// The smallest of each aim in turn.
    pub fn best(&self, aims: &[Aim], meter: &mut Meter) -> Known {
        let lowest = bounds::lower_bound(self.instance).value;
        meter.spend(16 * self.instance.items.len() as u64);
        if lowest > self.ceiling {
            return Known::Impossible;
        }
        let mut best = match self.first(aims, lowest, meter) {
            Known::Best(best) => best,
            other => return other,
        };
        for k in 0..aims.len() {
            self.lower(aims, k, lowest, &mut best, meter);
        }
        Known::Best(best)
    }

    /// Any placement; by greedy orders, of those the best by the first aims, else by search.
    fn first(&self, aims: &[Aim], lowest: i64, meter: &mut Meter) -> Known {
        let keys = Keys::new(self.instance);
        let mut best: Option<Best> = None;
        for order in ORDERS {
            let sorted = keys.sorted(self.instance, order);
            let Ok(offsets) = greedy::pass(self.instance, &sorted, Fit::Best, self.ceiling, meter) else { continue };
            if !self.instance.keeps_ends(&offsets) {
                continue;
            }
            let values = self.values(&offsets);
            if best.as_ref().is_none_or(|b| key(aims, &values) < key(aims, &b.values)) {
                best = Some(Best { offsets, values, proven: true });
            }
            let ideal = Values { peak: lowest, cost: self.instance.fixed_cost, moved: 0 };
            if best.as_ref().is_some_and(|b| key(aims, &b.values) == key(aims, &ideal)) {
                break;
            }
        }
        match best {
            Some(best) => Known::Best(best),
            None => self.decide(Ask { peak: self.ceiling, ..Ask::below(self.ceiling) }, meter),
        }
    }

    /// Is there a placement that does what is asked? The capacity is kept whatever is asked.
    fn decide(&self, ask: Ask, meter: &mut Meter) -> Known {
        let ask = Ask { end: self.instance.capacity, hints: &self.hints, ..ask };
        let byteless = self.instance.items.iter().any(|i| i.end_of_members() > i.height);
        let outcome = if ask.cost.is_none() && ask.moved.is_none() && self.instance.flat && !byteless {
            match feasible::decide(self.instance, ask.peak, self.options, self.share, meter) {
                Answer::Fits(offsets) => disjunction::Outcome::Placed(offsets),
                Answer::Fails => disjunction::Outcome::Impossible,
                Answer::Unknown => disjunction::Outcome::Unknown,
            }
        } else {
            disjunction::search(self.instance, &ask, self.share, meter)
        };
        match outcome {
            disjunction::Outcome::Placed(offsets) => {
                let values = self.values(&offsets);
                Known::Best(Best { offsets, values, proven: true })
            }
            disjunction::Outcome::Impossible => Known::Impossible,
            disjunction::Outcome::Unknown => Known::Unknown,
        }
    }

    /// Makes the aim in place `k` as small as it can be while the aims before it stay as small as they are.
    fn lower(&self, aims: &[Aim], k: usize, lowest: i64, best: &mut Best, meter: &mut Meter) {
        let Some(&aim) = aims.get(k) else { return };
        let mut bound = match aim {
            Aim::Peak => lowest as u64,
            Aim::Cost => self.instance.fixed_cost,
            Aim::Moved => 0,
        };
        let mut ask = Ask { peak: self.ceiling, ..Ask::below(self.ceiling) };
        for before in &aims[..k] {
            limit(&mut ask, *before, get(*before, &best.values));
        }
        let mut first = true;
        while get(aim, &best.values) > bound {
            let now = get(aim, &best.values);
            // The bound itself first, where most end; then halves for bytes, and for costs the next lower one.
            let at = if first {
                bound
            } else if aim == Aim::Peak {
                bound + (now - 1 - bound) / 2
            } else {
                now - 1
            };
            first = false;
            let mut trial = ask;
            limit(&mut trial, aim, at);
            match self.decide(trial, meter) {
                Known::Best(found) => *best = Best { proven: best.proven, ..found },
                Known::Impossible => bound = at + 1,
                Known::Unknown => {
                    best.proven = false;
                    return;
                }
            }
        }
    }
}

fn get(aim: Aim, values: &Values) -> u64 {
    match aim {
        Aim::Peak => values.peak as u64,
        Aim::Cost => values.cost,
        Aim::Moved => values.moved,
    }
}

fn limit(ask: &mut Ask, aim: Aim, most: u64) {
    match aim {
        Aim::Peak => ask.peak = ask.peak.min(most as i64),
        Aim::Cost => ask.cost = Some(most),
        Aim::Moved => ask.moved = Some(most),
    }
}

fn key(aims: &[Aim], values: &Values) -> Vec<u64> {
    aims.iter().map(|a| get(*a, values)).collect()
}
