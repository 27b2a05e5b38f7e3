//! What a path has decided of values that nobody knows, so that it never decides against itself.
//!
//! ```text
//!   if n < 4 { .. }        path 1: n <= 3            path 2: n >= 4
//!   if n >= 4 { .. }       path 1 does not enter     path 2 does not pass by
//! ```
//!
//! Where less is remembered than was decided (after many turns of a loop, of a value that each turn computes anew),
//! the group of conditions is *blurred*: to decide one of it again may decide what no run does. A path that did
//! is *guessed*, and what is found on it is no fault until a run with numbers shows it (`example`).

use super::conditions::{Conditions, Way, sources};
use super::spans::{Base, Relation, Span, base_of};
use npumem_ir::ScalarId;
use npumem_ir::program::{Affine, Program, ScalarKind, Values};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Rounds in which bounds are handed from sum to sum.
const MAX_ROUNDS: usize = 6;
/// Values of one source, and combinations of them, that are tried in search of an example.
const MAX_CANDIDATES: usize = 24;
const MAX_TRIED: usize = 1500;

/// Sums and blurred groups that are told apart at once: of more, less is remembered.
const MAX_SUMS: usize = 96;

/// The sums that were decided on, and the steps at which groups were blurred.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    spans: Rc<BTreeMap<Base, Span>>,
    blurred: Rc<BTreeMap<ScalarId, usize>>,
    /// Past too many blurred groups, all are.
    all_blurred: Option<usize>,
    /// Before this step nothing of it is done with: a lower bound, so that most steps need not look.
    until: usize,
}

impl Eq for Known {}

impl PartialEq for Known {
    fn eq(&self, other: &Known) -> bool {
        self.spans == other.spans && self.blurred == other.blurred && self.all_blurred == other.all_blurred
    }
}

/// Two steps that were decided on their own although they hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Guess {
    pub first: usize,
    pub second: usize,
}

/// What is known on each side of a condition; a side that no run takes is empty.
pub(super) struct Sides {
    pub yes: Vec<Known>,
    pub no: Vec<Known>,
    /// Both sides may be taken, and something that hangs together with it was forgotten.
    pub guess: Option<Guess>,
}

/// Is there a run that decides like this?
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Example {
    /// With these values.
    Found(Vec<(ScalarId, i64)>),
    /// None.
    Impossible,
    /// None was found.
    Unclear,
}

/// What the questions are asked of.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub program: &'a Program,
    pub conditions: &'a Conditions,
    pub values: &'a Values,
}

impl Known {
    /// Decides a condition (not 0, or 0) at a step.
    pub fn decide(&self, scene: Scene<'_>, condition: &Affine, at: usize) -> Sides {
        let ways = |wanted| scene.conditions.ways(scene.program, scene.values, condition, wanted);
        self.take(scene, (ways(true), ways(false)), condition, at)
    }

    /// Decides `sum > 0` or not.
    pub fn decide_above(&self, scene: Scene<'_>, sum: &Affine, at: usize) -> Sides {
        let ways = |relation| scene.conditions.compare(scene.program, scene.values, sum, relation);
        self.take(scene, (ways(Relation::Above), ways(Relation::BelowOrEqual)), sum, at)
    }

    /// Whether `sum relation 0`, where that is decided.
    pub fn settles(&self, scene: Scene<'_>, sum: &Affine, relation: Relation) -> Option<bool> {
        let may = |relation| {
            let ways = scene.conditions.compare(scene.program, scene.values, sum, relation);
            ways.is_none_or(|ways| ways.iter().any(|way| self.with(scene, way).is_some()))
        };
        match (may(relation), may(relation.opposite())) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            _ => None,
        }
    }

    /// Whether what is not known of a sum lies between two bounds.
    pub fn is_bounded(&self, scene: Scene<'_>, sum: &Affine) -> bool {
        let span = base_of(&scene.conditions.open_part(scene, sum)).and_then(|(base, _)| self.spans.get(&base));
        span.is_some_and(|span| span.low.is_some() && span.high.is_some())
    }

    fn take(
        &self,
        scene: Scene<'_>,
        ways: (Option<Vec<Way>>, Option<Vec<Way>>),
        condition: &Affine,
        at: usize,
    ) -> Sides {
        let Some(group) = scene.conditions.group_of(scene.program, scene.values, condition) else {
            return Sides { yes: vec![self.clone()], no: vec![self.clone()], guess: None };
        };
        let again = scene.conditions.is_asked_again(group);
        let side = |ways: Option<Vec<Way>>| match ways {
            None => None,
            // Nobody asks again: it is enough that there is a way.
            Some(ways) if !again => Some(ways.into_iter().take(1).map(|_| self.clone()).collect()),
            Some(ways) => Some(ways.iter().filter_map(|way| self.with(scene, way)).collect::<Vec<_>>()),
        };
        let (Some(yes), Some(no)) = (side(ways.0), side(ways.1)) else {
            // Too involved: either, and nothing of it is remembered.
            let guess = self.guess(scene, group, at, again);
            let mut blurred = self.clone();
            if again {
                blurred.blur(scene, group, at);
            }
            return Sides { yes: vec![blurred.clone()], no: vec![blurred], guess };
        };
        let guess = if yes.is_empty() || no.is_empty() {
            None
        } else {
            self.blurred_at(group).map(|first| Guess { first, second: at })
        };
        Sides { yes, no, guess }
    }

    fn guess(&self, scene: Scene<'_>, group: ScalarId, at: usize, again: bool) -> Option<Guess> {
        let decided = self.spans.keys().any(|base| scene.conditions.group(base) == group);
        let first = self.blurred_at(group).or((again && decided).then_some(at));
        first.map(|first| Guess { first, second: at })
    }

    /// The step at which something of a group was first forgotten.
    pub fn blurred_at(&self, group: ScalarId) -> Option<usize> {
        self.blurred.get(&group).copied().or(self.all_blurred)
    }

    /// From here on less is remembered of a group than was decided.
    pub fn blur(&mut self, scene: Scene<'_>, group: ScalarId, at: usize) {
        if self.blurred_at(group).is_some() {
            return;
        }
        if self.blurred.len() >= MAX_SUMS {
            self.all_blurred = Some(at);
            self.blurred = Rc::default();
        } else {
            self.hold(scene, group);
            Rc::make_mut(&mut self.blurred).insert(group, at);
        }
    }

    /// Something of this group is known from here on.
    fn hold(&mut self, scene: Scene<'_>, group: ScalarId) {
        let last = scene.conditions.last(group);
        self.until = if self.is_blank() { last } else { self.until.min(last) };
    }

    fn is_blank(&self) -> bool {
        self.spans.is_empty() && self.blurred.is_empty()
    }

    /// With one way more; `None` when that contradicts what was decided.
    fn with(&self, scene: Scene<'_>, way: &Way) -> Option<Known> {
        let mut out = self.clone();
        let mut changed = false;
        for (base, span) in way {
            let known = out.spans.get(base);
            let both = known.map_or_else(|| Some(span.clone()), |known| known.and(span))?;
            if known != Some(&both) {
                out.hold(scene, scene.conditions.group(base));
                Rc::make_mut(&mut out.spans).insert(base.clone(), both);
                changed = true;
            }
        }
        if out.spans.len() > MAX_SUMS
            && let Some(base) = out.spans.keys().find(|base| way.iter().all(|(own, _)| own != *base)).cloned()
        {
            let group = scene.conditions.group(&base);
            out.without(scene, group, scene.conditions.first(group));
        }
        // Of single values the spans say all.
        let sums = changed && out.spans.keys().any(|base| base.len() > 1);
        (!sums || bounds(scene, &out.spans).is_some()).then_some(out)
    }

    /// With the first way that can be and that follows from inputs alone; as it was where there is none.
    pub fn assuming(self, scene: Scene<'_>, ways: Option<Vec<Way>>) -> Known {
        let input =
            |id: &ScalarId| matches!(scene.program.scalar(*id).kind, ScalarKind::Argument(_) | ScalarKind::Grid(_));
        let from_inputs =
            |base: &Base| base.iter().all(|term| sources(scene.program, term.0).is_some_and(|s| s.iter().all(input)));
        let plain = ways.into_iter().flatten().filter(|way| way.iter().all(|(base, _)| from_inputs(base)));
        plain.into_iter().find_map(|way| self.with(scene, &way)).unwrap_or(self)
    }

    /// Forgets what no step asks for after this one. Where it was not shown that a run decides so, the path is guessed
    /// from here on.
    pub fn forget(&mut self, scene: Scene<'_>, at: usize) -> Option<Guess> {
        let dropped = self.drop_asked(scene, at);
        let clear = dropped.is_empty() || matches!(example(scene, &dropped), Example::Found(_));
        (!clear).then_some(Guess { first: at, second: at })
    }

    /// Forgets what no step asks for after this one, and returns it.
    pub fn drop_asked(&mut self, scene: Scene<'_>, at: usize) -> BTreeMap<Base, Span> {
        if at < self.until || self.is_blank() {
            return BTreeMap::new();
        }
        let done = |group: ScalarId| scene.conditions.last(group) <= at;
        if self.blurred.keys().any(|group| done(*group)) {
            Rc::make_mut(&mut self.blurred).retain(|group, _| !done(*group));
        }
        let dropped: BTreeMap<Base, Span> = self
            .spans
            .iter()
            .filter(|(base, _)| done(scene.conditions.group(base)))
            .map(|(base, span)| (base.clone(), span.clone()))
            .collect();
        if !dropped.is_empty() {
            let spans = Rc::make_mut(&mut self.spans);
            dropped.keys().for_each(|base| drop(spans.remove(base)));
        }
        let groups = self.spans.keys().map(|base| scene.conditions.group(base)).chain(self.blurred.keys().copied());
        self.until = groups.map(|group| scene.conditions.last(group)).min().unwrap_or(0);
        dropped
    }

    /// A new turn of the loop at `from..to`: what follows from its counter is another value now.
    pub fn turn(&mut self, scene: Scene<'_>, counter: Option<ScalarId>, (from, to): (usize, usize)) {
        let other = |base: &Base| {
            base.iter().any(|term| scene.conditions.turns_with(scene.program, term.0, counter, (from, to)))
        };
        self.drop_where(scene, other, from);
    }

    /// A variable is set: what follows from it is another value now.
    pub fn set(&mut self, scene: Scene<'_>, target: ScalarId, at: usize) {
        let other = |base: &Base| {
            base.iter().any(|term| sources(scene.program, term.0).is_none_or(|sources| sources.contains(&target)))
        };
        self.drop_where(scene, other, at);
    }

    fn drop_where(&mut self, scene: Scene<'_>, other: impl Fn(&Base) -> bool, at: usize) {
        let dropped: Vec<Base> = self.spans.keys().filter(|base| other(base)).cloned().collect();
        if dropped.is_empty() {
            return;
        }
        for base in dropped {
            Rc::make_mut(&mut self.spans).remove(&base);
            if base.iter().any(|term| is_steady(scene.program, term.0)) {
                self.blur(scene, scene.conditions.group(&base), at);
            }
        }
    }

    /// Forgets all of one group but what was known of it earlier.
    pub fn back_to(&mut self, scene: Scene<'_>, earlier: &Known, group: ScalarId, at: usize) {
        let of = |base: &Base| scene.conditions.group(base) == group;
        let mut spans: BTreeMap<Base, Span> =
            self.spans.iter().filter(|(base, _)| !of(base)).map(|(b, s)| (b.clone(), s.clone())).collect();
        spans.extend(earlier.spans.iter().filter(|(base, _)| of(base)).map(|(b, s)| (b.clone(), s.clone())));
        self.spans = Rc::new(spans);
        self.hold(scene, group);
        self.blur(scene, group, at);
    }

    /// Forgets all of one group.
    pub fn without(&mut self, scene: Scene<'_>, group: ScalarId, at: usize) {
        self.back_to(scene, &Known::default(), group, at);
    }

    /// Whether what a turn that begins with this may do was done by the one that began with `earlier`, the counter lower.
    ///
    /// To know more is to do less. But what is known of groups that turns ask for with the counter must have moved along
    /// with it (`stop`, and by how much): of `n > i` that is so, of `n = 10` it is not, for `i = n - 1` comes true later.
    pub fn within(
        &self,
        scene: Scene<'_>,
        earlier: &Known,
        asked: &BTreeSet<ScalarId>,
        stop: Option<(&Affine, i64)>,
    ) -> bool {
        let bound = stop.and_then(|(stop, by)| {
            let (base, factor) = base_of(&scene.conditions.open_part(scene, stop))?;
            (by % factor == 0).then_some((base, by / factor))
        });
        let with_counter = |base: &Base| !asked.is_empty() && asked.contains(&scene.conditions.group(base));
        earlier.spans.iter().all(|(base, before)| {
            let Some(span) = self.spans.get(base) else { return false };
            match &bound {
                _ if !with_counter(base) => before.covers(span),
                Some((bound, by)) if bound == base => before.moved(*by) == *span,
                _ => false,
            }
        }) && self.spans.keys().all(|base| earlier.spans.contains_key(base) || !with_counter(base))
    }

    /// What is known of a sum moved on; `None` where nothing is, or it does not divide.
    pub fn moved(&self, scene: Scene<'_>, sum: &Affine, by: i64) -> Option<Known> {
        let (base, factor) = base_of(&scene.conditions.open_part(scene, sum))?;
        let moved = self.spans.get(&base).filter(|_| by % factor == 0)?.moved(by / factor);
        let mut out = self.clone();
        Rc::make_mut(&mut out.spans).insert(base, moved);
        Some(out)
    }

    /// As much is remembered of each group.
    pub fn remembers_like(&self, other: &Known) -> bool {
        self.all_blurred == other.all_blurred
            && (Rc::ptr_eq(&self.blurred, &other.blurred) || self.blurred == other.blurred)
    }

    /// Both as one, when that says no more and no less than either.
    pub fn or(&self, other: &Known) -> Option<Known> {
        let differ = self.differs(other)?;
        let mut out = self.clone();
        if let Some(base) = &differ {
            let all = Span::default();
            let union = self.spans.get(base).unwrap_or(&all).or(other.spans.get(base).unwrap_or(&all))?;
            let spans = Rc::make_mut(&mut out.spans);
            if union == all {
                spans.remove(base)
            } else {
                spans.insert(base.clone(), union)
            };
        }
        out.until = self.until.min(other.until);
        out.all_blurred = self.all_blurred.or(other.all_blurred);
        if !self.remembers_like(other) {
            let blurred = Rc::make_mut(&mut out.blurred);
            for (group, at) in other.blurred.iter() {
                blurred.entry(*group).or_insert(*at);
            }
        }
        Some(out)
    }

    /// The one sum of which they know different things, if any; `None` for more than one.
    fn differs(&self, other: &Known) -> Option<Option<Base>> {
        let (mut left, mut right) = (self.spans.iter().peekable(), other.spans.iter().peekable());
        let mut found: Option<Base> = None;
        loop {
            let base = match (left.peek(), right.peek()) {
                (None, None) => return Some(found),
                (Some((a, x)), Some((b, y))) if a == b && x == y => {
                    left.next();
                    right.next();
                    continue;
                }
                (Some((a, _)), Some((b, _))) if a == b => {
                    right.next();
                    left.next().map(|(base, _)| base)
                }
                (Some((a, _)), Some((b, _))) if a > b => right.next().map(|(base, _)| base),
                (None, _) => right.next().map(|(base, _)| base),
                _ => left.next().map(|(base, _)| base),
            };
            if found.is_some() {
                return None;
            }
            found = base.cloned();
        }
    }

    /// What both know.
    pub fn widen(&mut self, scene: Scene<'_>, other: &Known, at: usize) {
        if self == other {
            return;
        }
        let spans = std::mem::take(&mut self.spans);
        let (same, lost): (BTreeMap<_, _>, BTreeMap<_, _>) = spans
            .iter()
            .map(|(b, s)| (b.clone(), s.clone()))
            .partition(|(base, span)| other.spans.get(base) == Some(span));
        for base in lost.keys().chain(other.spans.keys().filter(|base| !same.contains_key(*base))) {
            self.blur(scene, scene.conditions.group(base), at);
        }
        self.all_blurred = self.all_blurred.or(other.all_blurred);
        if !Rc::ptr_eq(&self.blurred, &other.blurred) {
            for (group, first) in other.blurred.iter() {
                self.blur(scene, *group, *first);
            }
        }
        self.spans = Rc::new(same);
    }

    /// A run that decides like this.
    pub fn example(&self, scene: Scene<'_>) -> Example {
        let mut groups: BTreeMap<ScalarId, BTreeMap<Base, Span>> = BTreeMap::new();
        for (base, span) in self.spans.iter() {
            groups.entry(scene.conditions.group(base)).or_default().insert(base.clone(), span.clone());
        }
        let (mut all, mut clear) = (Vec::new(), true);
        for spans in groups.values() {
            match example(scene, spans) {
                Example::Found(values) => all.extend(values),
                Example::Impossible => return Example::Impossible,
                Example::Unclear => clear = false,
            }
        }
        if clear { Example::Found(all) } else { Example::Unclear }
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

/// Follows from something that stays the same for the whole run.
fn is_steady(program: &Program, scalar: ScalarId) -> bool {
    sources(program, scalar).is_none_or(|sources| {
        sources.iter().any(|source| match &program.scalar(*source).kind {
            ScalarKind::Computed(compute) => !compute.operands.is_empty(),
            ScalarKind::Counter => false,
            _ => true,
        })
    })
}

type Bounds = BTreeMap<ScalarId, (Option<i128>, Option<i128>)>;

/// Bounds of each scalar that follow from the spans; `None`: there is no value left for one.
fn bounds(scene: Scene<'_>, spans: &BTreeMap<Base, Span>) -> Option<Bounds> {
    let mut out = Bounds::new();
    for (scalar, _) in spans.keys().flat_map(|base| base.iter()) {
        out.entry(*scalar).or_insert_with(|| {
            let (low, high) = scene.values.range(scene.program, &Affine::scalar(*scalar));
            (low.map(i128::from), high.map(i128::from))
        });
    }
    for _ in 0..MAX_ROUNDS {
        let mut changed = false;
        for (base, span) in spans {
            for (index, (scalar, factor)) in base.iter().enumerate() {
                // factor * scalar lies in the span less what the other terms may be.
                let (mut low, mut high) = (span.low.map(i128::from), span.high.map(i128::from));
                for (_, (other, by)) in base.iter().enumerate().filter(|(other, _)| *other != index) {
                    let (least, most) = out.get(other).copied().unwrap_or((None, None));
                    let (least, most) = if *by > 0 { (least, most) } else { (most, least) };
                    let product = |value: Option<i128>| value.and_then(|value| value.checked_mul(i128::from(*by)));
                    low = low.zip(product(most)).and_then(|(low, most)| low.checked_sub(most));
                    high = high.zip(product(least)).and_then(|(high, least)| high.checked_sub(least));
                }
                let factor = i128::from(*factor);
                let (low, high) = if factor > 0 { (low, high) } else { (high.map(|v| -v), low.map(|v| -v)) };
                let (low, high) =
                    (low.map(|v| -((-v).div_euclid(factor.abs()))), high.map(|v| v.div_euclid(factor.abs())));
                let place = out.get_mut(scalar)?;
                if low > place.0 {
                    (place.0, changed) = (low, true);
                }
                if high.is_some() && place.1.is_none_or(|most| high < Some(most)) {
                    (place.1, changed) = (high, true);
                }
                if let (Some(low), Some(high)) = place
                    && low > high
                {
                    return None;
                }
            }
        }
        if !changed {
            break;
        }
    }
    Some(out)
}

/// Values with which all spans hold.
fn example(scene: Scene<'_>, spans: &BTreeMap<Base, Span>) -> Example {
    if let Some(values) = plain_example(scene, spans) {
        return Example::Found(values);
    }
    let Some(bounds) = bounds(scene, spans) else { return Example::Impossible };
    let mut roots = BTreeSet::new();
    for (scalar, _) in spans.keys().flat_map(|base| base.iter()) {
        match sources(scene.program, *scalar) {
            Some(found) => roots.extend(found),
            None => return Example::Unclear,
        }
    }
    roots.retain(|root| scene.values.scalar(scene.program, *root).is_none());
    let loose =
        |root: &ScalarId| matches!(scene.program.scalar(*root).kind, ScalarKind::Counter | ScalarKind::Variable);
    if roots.iter().any(loose) {
        return Example::Unclear;
    }
    let (mut complete, mut lists) = (true, Vec::new());
    for root in &roots {
        let (low, high) = bounds.get(root).copied().unwrap_or_else(|| {
            let (low, high) = scene.values.range(scene.program, &Affine::scalar(*root));
            (low.map(i128::from), high.map(i128::from))
        });
        let (list, all) = candidates(low, high);
        complete &= all;
        lists.push((*root, list));
    }
    let mut at = vec![0; lists.len()];
    let mut values = scene.values.clone();
    for _ in 0..MAX_TRIED {
        for ((root, list), index) in lists.iter().zip(&at) {
            values.set(*root, list.get(*index).copied());
        }
        if spans.iter().all(|(base, span)| holds(scene.program, &values, base, span)) {
            return Example::Found(lists.iter().zip(&at).map(|((root, list), index)| (*root, list[*index])).collect());
        }
        // The next combination, the last one counting fastest.
        let mut place = at.len();
        loop {
            if place == 0 {
                return if complete { Example::Impossible } else { Example::Unclear };
            }
            place -= 1;
            at[place] += 1;
            if at[place] < lists[place].1.len() {
                break;
            }
            at[place] = 0;
        }
    }
    Example::Unclear
}

/// One input alone, of which nothing but bounds is known: the value nearest to 1.
fn plain_example(scene: Scene<'_>, spans: &BTreeMap<Base, Span>) -> Option<Vec<(ScalarId, i64)>> {
    let (base, span) = spans.first_key_value().filter(|_| spans.len() == 1)?;
    let [(scalar, 1)] = **base else { return None };
    if !matches!(scene.program.scalar(scalar).kind, ScalarKind::Argument(_)) {
        return None;
    }
    let mut value = span.high.map_or(1, |high| high.min(1));
    value = span.low.map_or(value, |low| value.max(low));
    while span.not.contains(&value) {
        value = value.checked_add(1)?;
    }
    span.high.is_none_or(|high| value <= high).then(|| vec![(scalar, value)])
}

/// Values between two bounds that are worth trying, small ones first, and whether they are all there are.
fn candidates(low: Option<i128>, high: Option<i128>) -> (Vec<i64>, bool) {
    let inside = |value: &i128| low.is_none_or(|low| *value >= low) && high.is_none_or(|high| *value <= high);
    if let (Some(low), Some(high)) = (low, high)
        && high - low < MAX_CANDIDATES as i128
    {
        return ((low..=high).filter_map(|value| i64::try_from(value).ok()).collect(), true);
    }
    let mut list: Vec<i64> = Vec::new();
    let near = (0..4).flat_map(|k| [low.map(|low| low + k), high.map(|high| high - k)]).flatten();
    let all = (1..9).chain([0, -1, -2, 16, 32, 64, 128]).chain(near).filter(inside);
    for value in all.filter_map(|value| i64::try_from(value).ok()) {
        if !list.contains(&value) && list.len() < MAX_CANDIDATES {
            list.push(value);
        }
    }
    (list, false)
}

fn holds(program: &Program, values: &Values, base: &Base, span: &Span) -> bool {
    let sum = values.affine(program, &Affine { constant: 0, terms: base.to_vec() });
    sum.is_some_and(|sum| {
        span.low.is_none_or(|low| sum >= low) && span.high.is_none_or(|high| sum <= high) && !span.not.contains(&sum)
    })
}
