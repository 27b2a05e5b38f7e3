//! Conditions that nobody knows: what they compare, which of them hang together, and where they are asked last.
//!
//! ```text
//!   if n < 4        n <= 3    \
//!   if n >= 4       n >= 4     >  one group: each is asked of `n`
//!   for i = 0 to n  n >= 1 .. /
//!   if m == 2       m == 2       a group of its own, asked once: nothing need be remembered of it
//! ```
//!
//! A condition is followed through negations and truths down to comparisons of sums with numbers. What a sum's
//! terms are computed from in ways that are not sums (a remainder, a product) stays a term of its own.

use super::known::Scene;
use super::spans::{Base, Relation, Span, span_of};
use npumem_ir::program::{Affine, Op, Program, ScalarKind, Step, Structure, Values};
use npumem_ir::{ScalarId, StepId};
use std::collections::{BTreeMap, BTreeSet};

/// Ways in which one condition may hold; more are not told apart.
const MAX_WAYS: usize = 8;
/// How far a condition is followed to what it is made of.
const MAX_DEPTH: u32 = 16;
/// Scalars that one term is computed from, looked at in search of its sources.
const MAX_SOURCES: usize = 128;

/// Numbers of conditions that are tried.
const MAX_NUMBERS: usize = 8;

/// What one way of a condition says: all of it at once.
pub(super) type Way = Vec<(Base, Span)>;

/// What variables are set to.
type Assigned<'p> = BTreeMap<ScalarId, Vec<&'p Affine>>;
/// First value and step of counters of which they are not plain numbers.
type CounterBounds<'p> = BTreeMap<ScalarId, [&'p Affine; 2]>;

/// Conditions that follow from the same unknown values.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// The step after which none of them is asked again.
    last: usize,
    /// How often one is asked; in a loop that counts as more than once.
    asked: usize,
    /// Some of what is asked for is not a new value in each turn.
    kept: bool,
}

/// All conditions of a program.
pub(super) struct Conditions {
    /// The scalar that stands for the group of each.
    group_of: BTreeMap<ScalarId, ScalarId>,
    groups: BTreeMap<ScalarId, Group>,
    /// The group of every scalar, once all are united.
    settled: Vec<ScalarId>,
    /// Steps that ask, with one of the scalars that they ask for.
    asks: Vec<(usize, ScalarId)>,
    /// First and last step that asks for an opaque value which is a new one every time.
    fresh: BTreeMap<ScalarId, (usize, usize)>,
}

impl Conditions {
    pub fn new(program: &Program, structure: &Structure) -> Self {
        let mut found = Conditions {
            group_of: BTreeMap::new(),
            groups: BTreeMap::new(),
            settled: Vec::new(),
            asks: Vec::new(),
            fresh: BTreeMap::new(),
        };
        let mut assigned = Assigned::new();
        let mut bounds = CounterBounds::new();
        for step in &program.steps {
            match step {
                Step::Assign(assign) => {
                    for (target, value) in &assign.scalars {
                        assigned.entry(*target).or_default().push(value);
                    }
                }
                // A counter is known where its first value and its step are.
                Step::For { counter, start, step, .. }
                    if start.as_constant().is_none() || step.as_constant().is_none() =>
                {
                    bounds.insert(*counter, [start, step]);
                }
                _ => {}
            }
        }
        let mut seen = BTreeSet::new();
        let mut narrow = BTreeSet::new();
        let asks: Vec<(usize, ScalarId)> = asked(program)
            .filter_map(|(at, affines)| {
                let mut first = None;
                for affine in affines {
                    if !has_both_sides(program, affine) {
                        narrow.insert(at);
                    }
                    for (scalar, _) in &affine.terms {
                        found.follow(program, *scalar, (&assigned, &bounds), &mut seen);
                        if !is_known(program, *scalar) {
                            let one = *first.get_or_insert(*scalar);
                            found.unite(one, *scalar);
                        }
                    }
                }
                first.map(|scalar| (at, scalar))
            })
            .collect();
        for (at, scalar) in &asks {
            let (end, looped) = outermost_end(program, structure, *at);
            // A new value in every turn: what it was need not be kept to the next.
            let new = is_new_each_turn(program, structure, *at);
            let (end, looped) = if new { (*at, false) } else { (end, looped) };
            let group = found.groups.entry(found.root(*scalar)).or_default();
            group.last = group.last.max(end);
            // A condition that may have one side only is remembered, to see whether a run takes the one that was taken.
            group.asked += 1 + usize::from(looped) + usize::from(narrow.contains(at));
            group.kept |= !new;
        }
        found.asks = asks;
        found.settled = (0..program.scalars.len()).map(|index| found.root(ScalarId::new(index))).collect();
        found.find_fresh(program);
        found
    }

    /// Unites a scalar with all that it follows from.
    fn follow(
        &mut self,
        program: &Program,
        scalar: ScalarId,
        (assigned, bounds): (&Assigned<'_>, &CounterBounds<'_>),
        seen: &mut BTreeSet<ScalarId>,
    ) {
        let mut pending = vec![scalar];
        while let Some(next) = pending.pop() {
            if !seen.insert(next) || is_known(program, next) {
                continue;
            }
            let from: Vec<&Affine> = match &program.scalar(next).kind {
                ScalarKind::Computed(compute) if compute.op == Op::Opaque => Vec::new(),
                ScalarKind::Computed(compute) => compute.operands.iter().collect(),
                ScalarKind::Variable => assigned.get(&next).into_iter().flatten().copied().collect(),
                ScalarKind::Counter => bounds.get(&next).into_iter().flatten().copied().collect(),
                _ => Vec::new(),
            };
            for (source, _) in from.iter().flat_map(|affine| &affine.terms) {
                if !is_known(program, *source) && (bounds.contains_key(source) || !is_counter(program, *source)) {
                    self.unite(next, *source);
                }
                pending.push(*source);
            }
        }
    }

    fn find_fresh(&mut self, program: &Program) {
        let mut fresh: BTreeMap<ScalarId, (usize, usize)> = BTreeMap::new();
        for (at, affines) in asked(program) {
            let mut pending: Vec<ScalarId> = affines.iter().flat_map(|a| a.terms.iter().map(|term| term.0)).collect();
            let mut seen = BTreeSet::new();
            while let Some(next) = pending.pop() {
                if !seen.insert(next) || seen.len() > MAX_SOURCES {
                    continue;
                }
                if let ScalarKind::Computed(compute) = &program.scalar(next).kind {
                    if compute.op == Op::Opaque && compute.operands.is_empty() {
                        let place = fresh.entry(next).or_insert((at, at));
                        *place = (place.0.min(at), place.1.max(at));
                    }
                    pending.extend(compute.operands.iter().flat_map(|o| o.terms.iter().map(|term| term.0)));
                }
            }
        }
        self.fresh = fresh;
    }

    fn root(&self, mut scalar: ScalarId) -> ScalarId {
        if let Some(group) = self.settled.get(scalar.index()) {
            return *group;
        }
        while let Some(next) = self.group_of.get(&scalar).filter(|next| **next != scalar) {
            scalar = *next;
        }
        scalar
    }

    fn unite(&mut self, a: ScalarId, b: ScalarId) {
        let (a, b) = (self.root(a), self.root(b));
        if a != b {
            // The smaller stands for both; paths are short as chains are followed from the top.
            let (low, high) = (a.min(b), a.max(b));
            self.group_of.insert(high, low);
        }
    }

    /// The group of a base's scalars.
    pub fn group(&self, base: &Base) -> ScalarId {
        base.first().map_or(ScalarId(u32::MAX), |term| self.root(term.0))
    }

    /// The group of the first scalar of a condition that is not known.
    pub fn group_of(&self, program: &Program, values: &Values, condition: &Affine) -> Option<ScalarId> {
        condition.terms.iter().find(|term| values.scalar(program, term.0).is_none()).map(|term| self.root(term.0))
    }

    /// The group of a scalar.
    pub fn of(&self, scalar: ScalarId) -> ScalarId {
        self.root(scalar)
    }

    /// Whether some condition follows from the scalar.
    pub fn asks_for(&self, scalar: ScalarId) -> bool {
        self.groups.contains_key(&self.root(scalar))
    }

    /// Whether some of the group is the same from turn to turn.
    pub fn is_kept(&self, group: ScalarId) -> bool {
        self.groups.get(&group).is_some_and(|group| group.kept)
    }

    /// Whether a condition of the group is asked more than once in a run.
    pub fn is_asked_again(&self, group: ScalarId) -> bool {
        self.groups.get(&group).is_some_and(|group| group.asked > 1)
    }

    /// The first step that asks for one of the group.
    pub fn first(&self, group: ScalarId) -> usize {
        self.asks.iter().find(|ask| self.root(ask.1) == group).map_or(0, |ask| ask.0)
    }

    /// The step after which none of the group is asked.
    pub fn last(&self, group: ScalarId) -> usize {
        self.groups.get(&group).map_or(0, |group| group.last)
    }

    /// The numbers that conditions name, smallest first; a few of them.
    pub fn numbers(&self, program: &Program) -> BTreeSet<i64> {
        let (mut out, mut seen) = (BTreeSet::new(), BTreeSet::new());
        for (at, _) in &self.asks {
            let mut pending: Vec<&Affine> = asked_at(program, *at);
            while let Some(affine) = pending.pop() {
                out.insert(affine.constant);
                for (scalar, _) in &affine.terms {
                    if let (ScalarKind::Computed(compute), true) = (&program.scalar(*scalar).kind, seen.insert(*scalar))
                    {
                        pending.extend(&compute.operands);
                    }
                }
            }
            if out.len() >= MAX_NUMBERS {
                break;
            }
        }
        out
    }

    /// The groups that are asked between two steps.
    pub fn asked_in(&self, from: usize, to: usize) -> BTreeSet<ScalarId> {
        let first = self.asks.partition_point(|ask| ask.0 < from);
        self.asks[first..].iter().take_while(|ask| ask.0 < to).map(|ask| self.root(ask.1)).collect()
    }

    /// Whether a value is another one in each turn of the loop from `from` to `to`, which counts `counter`.
    pub fn turns_with(
        &self,
        program: &Program,
        scalar: ScalarId,
        counter: Option<ScalarId>,
        (from, to): (usize, usize),
    ) -> bool {
        sources(program, scalar).is_none_or(|sources| {
            sources.iter().any(|source| {
                Some(*source) == counter
                    || self.fresh.get(source).is_some_and(|(first, last)| *first < to && *last > from)
            })
        })
    }

    /// The groups that the loop at `from..to` asks together with its counter.
    pub fn asked_with(&self, program: &Program, counter: ScalarId, (from, to): (usize, usize)) -> BTreeSet<ScalarId> {
        let first = self.asks.partition_point(|ask| ask.0 <= from);
        let with = |at: usize| {
            let mut terms = asked_at(program, at).into_iter().flat_map(|affine| &affine.terms);
            terms.any(|term| sources(program, term.0).is_none_or(|sources| sources.contains(&counter)))
        };
        self.asks[first..]
            .iter()
            .take_while(|ask| ask.0 < to)
            .filter(|ask| with(ask.0))
            .map(|ask| self.root(ask.1))
            .collect()
    }

    /// The terms of a sum that are not known.
    pub fn open_part(&self, scene: Scene<'_>, sum: &Affine) -> Affine {
        let open = sum.terms.iter().filter(|term| scene.values.scalar(scene.program, term.0).is_none());
        Affine { constant: 0, terms: open.copied().collect() }
    }

    /// How the condition may hold (`wanted`), or may not; `None` when it is too involved to say.
    pub fn ways(&self, program: &Program, values: &Values, condition: &Affine, wanted: bool) -> Option<Vec<Way>> {
        let asked = Asked { program, values };
        asked.compare(condition, if wanted { Relation::Other } else { Relation::Equal }, MAX_DEPTH)
    }

    /// How `sum relation 0` may hold.
    pub fn compare(&self, program: &Program, values: &Values, sum: &Affine, relation: Relation) -> Option<Vec<Way>> {
        Asked { program, values }.compare(sum, relation, MAX_DEPTH)
    }
}

/// Steps that ask for something, with what they ask for.
fn asked(program: &Program) -> impl Iterator<Item = (usize, Vec<&Affine>)> {
    (0..program.steps.len()).map(|at| (at, asked_at(program, at))).filter(|(_, affines)| !affines.is_empty())
}

pub(super) fn asked_at(program: &Program, at: usize) -> Vec<&Affine> {
    match &program.steps[at] {
        Step::If(value) | Step::Leave(value) => vec![value],
        Step::For { start, stop, step, .. } => vec![start, stop, step],
        _ => Vec::new(),
    }
}

pub(super) fn is_known(program: &Program, scalar: ScalarId) -> bool {
    matches!(program.scalar(scalar).kind, ScalarKind::Argument(Some(_)))
}

fn is_counter(program: &Program, scalar: ScalarId) -> bool {
    matches!(program.scalar(scalar).kind, ScalarKind::Counter)
}

/// What a scalar is computed from in the end, itself if from nothing; `None` where that is too much.
pub(super) fn sources(program: &Program, scalar: ScalarId) -> Option<BTreeSet<ScalarId>> {
    let (mut out, mut seen, mut pending) = (BTreeSet::new(), BTreeSet::new(), vec![scalar]);
    while let Some(next) = pending.pop() {
        if !seen.insert(next) {
            continue;
        }
        if seen.len() > MAX_SOURCES {
            return None;
        }
        match &program.scalar(next).kind {
            ScalarKind::Computed(compute) => {
                if compute.op == Op::Opaque {
                    out.insert(next);
                }
                pending.extend(compute.operands.iter().flat_map(|o| o.terms.iter().map(|term| term.0)));
            }
            _ => {
                out.insert(next);
            }
        }
    }
    Some(out)
}

/// Whether what a step asks for is a new value in each turn of the loop around it, and of nothing else.
fn is_new_each_turn(program: &Program, structure: &Structure, at: usize) -> bool {
    let mut parent = structure.parent(StepId::new(at));
    while let Some(opener) = parent.filter(|opener| matches!(program.steps[opener.index()], Step::If(_))) {
        parent = structure.parent(opener);
    }
    let counter = parent.and_then(|opener| match &program.steps[opener.index()] {
        Step::For { counter, .. } => Some(*counter),
        _ => None,
    });
    if matches!(program.steps[at], Step::For { .. }) {
        // A loop asks again in every turn of its own.
        return false;
    }
    let new = |scalar: ScalarId| match &program.scalar(scalar).kind {
        ScalarKind::Counter | ScalarKind::Argument(Some(_)) => true,
        ScalarKind::Computed(compute) => {
            compute.operands.is_empty()
                || counter.is_some_and(|counter| compute.operands.iter().any(|o| o.factor(counter) != 0))
        }
        _ => false,
    };
    asked_at(program, at)
        .into_iter()
        .flat_map(|affine| &affine.terms)
        .all(|term| sources(program, term.0).is_some_and(|sources| sources.into_iter().all(new)))
}

/// Where the outermost loop around a step ends, and whether there is one.
fn outermost_end(program: &Program, structure: &Structure, at: usize) -> (usize, bool) {
    // A loop asks for its bound until it ends.
    let own = matches!(program.steps[at], Step::For { .. }).then(|| structure.partner(StepId::new(at)).index());
    let (mut end, mut looped) = (own.unwrap_or(at), false);
    let mut parent = structure.parent(StepId::new(at));
    while let Some(opener) = parent {
        if !matches!(program.steps[opener.index()], Step::If(_)) {
            (end, looped) = (structure.partner(opener).index(), true);
        }
        parent = structure.parent(opener);
    }
    (end, looped)
}

/// Whether a scalar is 0 or 1 and follows from comparisons.
pub(super) fn is_truth(program: &Program, scalar: ScalarId, depth: u32) -> bool {
    let ScalarKind::Computed(compute) = &program.scalar(scalar).kind else { return false };
    let truth = |operand: &Affine| match (operand.as_constant(), operand.as_scalar()) {
        (Some(number), _) => matches!(number, 0 | 1),
        (_, Some(scalar)) => depth > 0 && is_truth(program, scalar, depth - 1),
        _ => match operand.terms.as_slice() {
            // Not, as a difference.
            [(scalar, -1)] if operand.constant == 1 => depth > 0 && is_truth(program, *scalar, depth - 1),
            _ => false,
        },
    };
    match (compute.op, compute.operands.as_slice()) {
        (Op::Eq | Op::Ne | Op::Lt | Op::Le, [_, _]) => true,
        (Op::And | Op::Or | Op::Xor | Op::Min | Op::Max | Op::Mul, [a, b]) | (Op::Select, [_, a, b]) => {
            truth(a) && truth(b)
        }
        _ => false,
    }
}

struct Asked<'a> {
    program: &'a Program,
    values: &'a Values,
}

impl Asked<'_> {
    /// The sum with what is known put in.
    fn known(&self, sum: &Affine) -> Option<Affine> {
        let (mut constant, mut terms) = (i128::from(sum.constant), Vec::new());
        for (scalar, factor) in &sum.terms {
            match self.values.scalar(self.program, *scalar) {
                Some(value) => constant += i128::from(value) * i128::from(*factor),
                None => terms.push((*scalar, *factor)),
            }
        }
        Some(Affine { constant: i64::try_from(constant).ok()?, terms })
    }

    // Depth is bounded, not by the input.
    fn compare(&self, sum: &Affine, relation: Relation, depth: u32) -> Option<Vec<Way>> {
        let sum = self.known(sum)?;
        if let [(scalar, factor)] = sum.terms.as_slice()
            && depth > 0
            && is_truth(self.program, *scalar, depth - 1)
        {
            let holds = |truth: i64| relation.holds(sum.constant.saturating_add(factor.saturating_mul(truth)));
            return match (holds(0), holds(1)) {
                (true, true) => Some(vec![Vec::new()]),
                (false, false) => Some(Vec::new()),
                (otherwise, _) => self.truth(*scalar, !otherwise, depth - 1),
            };
        }
        Some(match span_of(&sum, relation) {
            Ok((base, span)) => {
                let (low, high) = match &*base {
                    [(scalar, 1)] => self.values.range(self.program, &Affine::scalar(*scalar)),
                    _ => (None, None),
                };
                let all = Span { low, high, ..Span::default() };
                span.and(&all).map(|span| vec![(base, span)]).into_iter().collect()
            }
            Err(true) => vec![Vec::new()],
            Err(false) => Vec::new(),
        })
    }

    fn truth(&self, scalar: ScalarId, wanted: bool, depth: u32) -> Option<Vec<Way>> {
        if depth == 0 {
            return None;
        }
        let ScalarKind::Computed(compute) = &self.program.scalar(scalar).kind else { return None };
        let is = |operand: &Affine, wanted: bool| {
            self.compare(operand, if wanted { Relation::Other } else { Relation::Equal }, depth - 1)
        };
        let compared = |a: &Affine, b: &Affine, relation: Relation| {
            let relation = if wanted { relation } else { relation.opposite() };
            self.compare(&a.minus(b), relation, depth - 1)
        };
        match (compute.op, compute.operands.as_slice()) {
            (Op::Eq, [a, b]) => compared(a, b, Relation::Equal),
            (Op::Ne, [a, b]) => compared(a, b, Relation::Other),
            (Op::Lt, [a, b]) => compared(a, b, Relation::Below),
            (Op::Le, [a, b]) => compared(a, b, Relation::BelowOrEqual),
            (Op::And | Op::Min | Op::Mul, [a, b]) if wanted => both(is(a, true)?, is(b, true)?),
            (Op::And | Op::Min | Op::Mul, [a, b]) => either(is(a, false)?, both(is(a, true)?, is(b, false)?)?),
            (Op::Or | Op::Max, [a, b]) if wanted => either(is(a, true)?, both(is(a, false)?, is(b, true)?)?),
            (Op::Or | Op::Max, [a, b]) => both(is(a, false)?, is(b, false)?),
            (Op::Xor, [a, b]) => either(both(is(a, true)?, is(b, !wanted)?)?, both(is(a, false)?, is(b, wanted)?)?),
            (Op::Select, [c, a, b]) => {
                either(both(is(c, true)?, is(a, wanted)?)?, both(is(c, false)?, is(b, wanted)?)?)
            }
            _ => None,
        }
    }
}

/// Whether a run can take either side of a condition, as far as it alone says: it compares a sum in which one unknown
/// value counts once. (`n < 4` has both; `2 n == 3`, `n * n < 0` and `minui n, 3 < 0` do not.)
fn has_both_sides(program: &Program, condition: &Affine) -> bool {
    let counts_once = |sum: &Affine| {
        let free = |scalar: ScalarId| match &program.scalar(scalar).kind {
            ScalarKind::Computed(compute) => compute.op == Op::Opaque,
            ScalarKind::Argument(value) => value.is_none(),
            ScalarKind::Grid(_) => false,
            ScalarKind::Counter | ScalarKind::Variable => true,
        };
        sum.terms.iter().any(|(scalar, factor)| factor.abs() == 1 && free(*scalar))
            && sum.terms.iter().all(|(scalar, _)| free(*scalar) || is_known(program, *scalar))
    };
    let [(scalar, _)] = condition.terms.as_slice() else { return false };
    match &program.scalar(*scalar).kind {
        ScalarKind::Computed(compute) => match (compute.op, compute.operands.as_slice()) {
            (Op::Opaque, _) => true,
            (Op::Eq | Op::Ne | Op::Lt | Op::Le, [a, b]) => counts_once(&a.minus(b)),
            _ => false,
        },
        _ => counts_once(condition),
    }
}

/// One of the first and one of the second at once; what contradicts itself is left out.
fn both(first: Vec<Way>, second: Vec<Way>) -> Option<Vec<Way>> {
    let mut out = Vec::new();
    for a in &first {
        for b in &second {
            let mut way = a.clone();
            if b.iter().all(|(base, span)| add(&mut way, base, span)) {
                out.push(way);
            }
        }
    }
    (out.len() <= MAX_WAYS).then_some(out)
}

fn either(mut first: Vec<Way>, second: Vec<Way>) -> Option<Vec<Way>> {
    for way in second {
        if !first.contains(&way) {
            first.push(way);
        }
    }
    (first.len() <= MAX_WAYS).then_some(first)
}

fn add(way: &mut Way, base: &Base, span: &Span) -> bool {
    match way.iter_mut().find(|(known, _)| known == base) {
        Some((_, known)) => match known.and(span) {
            Some(both) => {
                *known = both;
                true
            }
            None => false,
        },
        None => {
            way.push((base.clone(), span.clone()));
            true
        }
    }
}
