//! Every assignment of buffers to spaces and every goal, exactly: for small problems.
//!
//! All measures but the largest peak are sums over the spaces. So in each space, whatever is in it, the placement
//! is best that makes the measures small one after the other, and the best assignment is the one whose sums are;
//! a subset of the buffers of a space never has a larger value than all of them, which bounds what is not assigned yet.
//!
//! ```text
//!   groups      g0      g1      g2 ...
//!   assigned  S0      S1      S0            value = sum over spaces of best(space, its groups)
//!             |-- partly assigned: a bound ----------->
//! ```
//! The largest peak is found last among the measures up to it, and is a ceiling of every space from then on.

mod within;

pub(crate) use within::{Aim, Known};

use super::byteless;
use super::counters::Meter;
use super::goals::Measure;
use super::instance::{Instance, UNLIMITED};
use super::options::PlacementOptions;
use super::spaces::Group;
use super::statement;
use npumem_ir::{Problem, SpaceId};
use std::collections::BTreeMap;
use within::Within;

/// The best plan: who lives where, and the offsets of the items of each space.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub home: Vec<Option<SpaceId>>,
    pub offsets: Vec<Vec<i64>>,
    /// No plan is better by the measures.
    pub proven: bool,
}

/// How it ended.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Chosen(Chosen),
    /// Every assignment is ruled out.
    Impossible,
    Unknown,
}

/// What is asked, apart from the measures.
pub(crate) struct Question<'a> {
    pub problem: &'a Problem,
    pub root: &'a [u32],
    /// Where everybody lives who has no choice; members of `groups` may be anywhere.
    pub home: &'a [Option<SpaceId>],
    pub groups: &'a [Group],
    pub options: &'a PlacementOptions,
}

/// The value of each measure, most important first.
type Value = Vec<u128>;

/// The best plan by the measures, within about `limit` counted work.
pub(crate) fn run(question: &Question, measures: &[Measure], limit: u64, meter: &mut Meter) -> Outcome {
    let before = meter.spent();
    let outer = meter.narrow(limit);
    let outcome = in_turn(question, measures, meter);
    meter.widen(outer);
    meter.book("exhaustive", before);
    outcome
}

fn in_turn(question: &Question, measures: &[Measure], meter: &mut Meter) -> Outcome {
    let Some(at) = measures.iter().position(|m| *m == Measure::MaxPeak) else {
        return Search::new(question, measures, None, meter).run(meter);
    };
    let first = Search::new(question, &measures[..=at], None, meter).run(meter);
    let Outcome::Chosen(first) = first else { return first };
    if at + 1 == measures.len() {
        return Outcome::Chosen(first);
    }
    let ceiling = peaks(question, &first).into_iter().max().unwrap_or(0);
    let rest: Vec<Measure> = measures.iter().copied().filter(|m| *m != Measure::MaxPeak).collect();
    match Search::new(question, &rest, Some(ceiling), meter).run(meter) {
        Outcome::Chosen(second) => Outcome::Chosen(Chosen { proven: first.proven && second.proven, ..second }),
        // Only the work can have run out: the first answer keeps the ceiling.
        Outcome::Impossible | Outcome::Unknown => Outcome::Chosen(Chosen { proven: false, ..first }),
    }
}

/// The peak of each space, in bytes.
fn peaks(question: &Question, chosen: &Chosen) -> Vec<u64> {
    let (home, _) = byteless::part(question.problem, question.root, chosen.home.clone());
    let statements = statement::split(question.problem, &home);
    let peak = |(s, offsets): (&statement::Statement, &Vec<i64>)| {
        Instance::new(&s.raw).map_or(0, |i| i.peak(offsets) as u64 * i.unit)
    };
    statements.iter().zip(&chosen.offsets).map(peak).collect()
}

/// A space and some groups in it: what is known, and the value of that by the measures.
struct Entry {
    known: Known,
    value: Value,
}

struct Search<'a> {
    question: &'a Question<'a>,
    measures: &'a [Measure],
    ceiling: Option<u64>,
    /// Groups in the order in which they are assigned.
    order: Vec<usize>,
    /// By space and set of groups.
    known: BTreeMap<(u32, u32), Entry>,
    /// Work of one decision within a space.
    share: u64,
    proven: bool,
}

impl<'a> Search<'a> {
    fn new(question: &'a Question<'a>, measures: &'a [Measure], ceiling: Option<u64>, meter: &Meter) -> Search<'a> {
        let groups = question.groups;
        let mut order: Vec<usize> = (0..groups.len()).collect();
        let bytes = |g: usize| -> u64 {
            let size = |&m: &u32| question.problem.buffers[m as usize].size.get();
            groups[g].members.iter().map(size).fold(0, u64::saturating_add)
        };
        order.sort_by_key(|&g| (std::cmp::Reverse(bytes(g)), groups[g].root));
        let share = (meter.left() / 100).max(1_000_000);
        Search { question, measures, ceiling, order, known: BTreeMap::new(), share, proven: true }
    }

    /// Depth first, the choice of the smallest value first; what is no better than the best plan is left.
    fn run(mut self, meter: &mut Meter) -> Outcome {
        let mut best: Option<(Value, Vec<SpaceId>)> = None;
        let mut chosen: Vec<SpaceId> = Vec::new();
        let mut open: Vec<Vec<(Value, SpaceId)>> = Vec::new();
        let mut next = self.assigned(&chosen, meter);
        loop {
            if let Some(value) = next.take()
                && best.as_ref().is_none_or(|b| value < b.0)
            {
                if chosen.len() < self.order.len() {
                    open.push(self.choices(&chosen, meter));
                } else if self.is_complete(&chosen) {
                    best = Some((value, chosen.clone()));
                }
            }
            chosen.truncate(open.len().saturating_sub(1));
            let Some(choices) = open.last_mut() else { break };
            if meter.left() == 0 || meter.is_interrupted() {
                self.proven = false;
                break;
            }
            match choices.pop() {
                Some((value, space)) => {
                    chosen.push(space);
                    next = Some(value);
                }
                None => {
                    open.pop();
                }
            }
        }
        match best {
            Some((_, chosen)) => Outcome::Chosen(self.plan(&chosen)),
            None if self.proven => Outcome::Impossible,
            None => Outcome::Unknown,
        }
    }

    /// The spaces that the next group may have, the best last.
    fn choices(&mut self, chosen: &[SpaceId], meter: &mut Meter) -> Vec<(Value, SpaceId)> {
        let mut out = Vec::new();
        let mut trial = chosen.to_vec();
        let question = self.question;
        for &space in &question.groups[self.order[chosen.len()]].allowed {
            trial.push(space);
            if let Some(value) = self.assigned(&trial, meter) {
                out.push((value, space));
            }
            trial.pop();
        }
        out.sort();
        out.reverse();
        out
    }

    /// The groups in each space when the first ones have these.
    fn masks(&self, chosen: &[SpaceId]) -> Vec<u32> {
        let mut masks = vec![0; self.question.problem.spaces.len()];
        for (&g, space) in self.order.iter().zip(chosen) {
            masks[space.index()] |= 1 << g;
        }
        masks
    }

    /// The least that any plan comes to in which the first groups have these spaces; `None` when there is none.
    fn assigned(&mut self, chosen: &[SpaceId], meter: &mut Meter) -> Option<Value> {
        let mut total = vec![0; self.measures.len()];
        for (space, mask) in (0u32..).zip(self.masks(chosen)) {
            if !self.known.contains_key(&(space, mask)) {
                let entry = self.look(SpaceId(space), mask, meter);
                self.proven &= match &entry.known {
                    Known::Best(best) => best.proven,
                    Known::Impossible => true,
                    Known::Unknown => false,
                };
                self.known.insert((space, mask), entry);
            }
            meter.spend(4);
            let entry = self.known.get(&(space, mask))?;
            if matches!(entry.known, Known::Impossible) {
                return None;
            }
            for ((sum, value), measure) in total.iter_mut().zip(&entry.value).zip(self.measures) {
                *sum = if *measure == Measure::MaxPeak { (*sum).max(*value) } else { *sum + value };
            }
        }
        Some(total)
    }

    /// Is there a placement for each space? Only what was given up has none.
    fn is_complete(&self, chosen: &[SpaceId]) -> bool {
        let found = |key: (u32, u32)| self.known.get(&key).is_some_and(|e| matches!(e.known, Known::Best(_)));
        (0u32..).zip(self.masks(chosen)).all(found)
    }

    fn plan(&self, chosen: &[SpaceId]) -> Chosen {
        let mut home = self.question.home.to_vec();
        for (&g, &space) in self.order.iter().zip(chosen) {
            for &m in &self.question.groups[g].members {
                home[m as usize] = Some(space);
            }
        }
        let offsets = (0u32..).zip(self.masks(chosen)).map(|key| match self.known.get(&key).map(|e| &e.known) {
            Some(Known::Best(best)) => best.offsets.clone(),
            _ => Vec::new(),
        });
        Chosen { home, offsets: offsets.collect(), proven: self.proven }
    }

    /// Solves one space with a set of groups in it.
    fn look(&self, space: SpaceId, mask: u32, meter: &mut Meter) -> Entry {
        let Question { problem, root, home, groups, options } = self.question;
        let zero = vec![0; self.measures.len()];
        if meter.left() == 0 || meter.is_interrupted() {
            return Entry { known: Known::Unknown, value: zero };
        }
        let mut inside: Vec<Option<SpaceId>> = home.iter().map(|h| h.filter(|&h| h == space)).collect();
        let mut traffic = 0u128;
        for (g, group) in groups.iter().enumerate() {
            let here = mask & (1 << g) != 0;
            for &m in &group.members {
                inside[m as usize] = here.then_some(space);
            }
            if here {
                traffic += u128::from(super::spaces::cost(group, space));
            }
        }
        let (inside, byteless) = byteless::part(problem, root, inside);
        let impossible = Entry { known: Known::Impossible, value: zero };
        if !byteless::place(problem, &byteless).is_ok_and(|b| b.outside.is_none()) {
            return impossible;
        }
        let raw = statement::split(problem, &inside).swap_remove(space.index()).raw;
        let Ok(instance) = Instance::new(&raw) else { return impossible };
        let ceiling = self.ceiling.map_or(UNLIMITED, |c| ((c / instance.unit) as i64).min(UNLIMITED));
        let within = Within::new(&instance, &raw, ceiling, options, self.share);
        let known = within.best(&self.aims(space), meter);
        let value = match &known {
            Known::Best(best) => {
                let hinted = (problem.buffers.iter().zip(&inside))
                    .filter(|(b, home)| home.is_some() && b.hint.is_some())
                    .map(|(b, _)| u128::from(b.size.get()));
                let away = hinted.sum::<u128>() - u128::from(within.hinted());
                let peak = best.values.peak as u128 * u128::from(instance.unit);
                let of = |m: &Measure| match m {
                    Measure::Peak(s) if *s != space => 0,
                    Measure::Peak(_) | Measure::TotalPeak | Measure::MaxPeak => peak,
                    Measure::Cost => u128::from(best.values.cost),
                    Measure::Moved => away + u128::from(best.values.moved),
                    Measure::Traffic => traffic,
                };
                self.measures.iter().map(of).collect()
            }
            Known::Impossible | Known::Unknown => vec![0; self.measures.len()],
        };
        Entry { known, value }
    }

    /// What the measures make small in a space, each once.
    fn aims(&self, space: SpaceId) -> Vec<Aim> {
        let mut out = Vec::new();
        for m in self.measures {
            let aim = match m {
                Measure::Peak(s) if *s != space => continue,
                Measure::Peak(_) | Measure::TotalPeak | Measure::MaxPeak => Aim::Peak,
                Measure::Cost => Aim::Cost,
                Measure::Moved => Aim::Moved,
                Measure::Traffic => continue,
            };
            if !out.contains(&aim) {
                out.push(aim);
            }
        }
        out
    }
}
