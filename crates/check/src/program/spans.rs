//! What is known of a sum of unknown values: between which bounds it lies, and which values it is not.

use npumem_ir::ScalarId;
use npumem_ir::program::Affine;
use std::collections::BTreeSet;
use std::rc::Rc;

/// A sum of unknown scalars without its constant: no common divisor, the first factor positive.
/// (Counted: what a path knows is copied with every branch.)
pub(super) type Base = Rc<[(ScalarId, i64)]>;

/// Values that are left out one by one; more are forgotten, which only widens.
const MAX_LEFT_OUT: usize = 64;

/// The values that a sum may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    /// The least, where there is one.
    pub low: Option<i64>,
    /// The greatest, where there is one.
    pub high: Option<i64>,
    /// Values between that it does not have.
    pub not: BTreeSet<i64>,
}

/// How a sum compares with 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    Other,
    Below,
    BelowOrEqual,
    Above,
    AboveOrEqual,
}

impl Relation {
    pub fn holds(self, value: i64) -> bool {
        match self {
            Relation::Equal => value == 0,
            Relation::Other => value != 0,
            Relation::Below => value < 0,
            Relation::BelowOrEqual => value <= 0,
            Relation::Above => value > 0,
            Relation::AboveOrEqual => value >= 0,
        }
    }

    pub fn opposite(self) -> Self {
        match self {
            Relation::Equal => Relation::Other,
            Relation::Other => Relation::Equal,
            Relation::Below => Relation::AboveOrEqual,
            Relation::BelowOrEqual => Relation::Above,
            Relation::Above => Relation::BelowOrEqual,
            Relation::AboveOrEqual => Relation::Below,
        }
    }

    fn mirrored(self) -> Self {
        match self {
            Relation::Below => Relation::Above,
            Relation::BelowOrEqual => Relation::AboveOrEqual,
            Relation::Above => Relation::Below,
            Relation::AboveOrEqual => Relation::BelowOrEqual,
            same => same,
        }
    }
}

/// The base of a sum of unknown scalars, and what the base is multiplied with: `sum = constant + factor * base`.
pub(super) fn base_of(sum: &Affine) -> Option<(Base, i64)> {
    let divisor = sum.terms.iter().fold(0_u64, |all, term| gcd(all, term.1.unsigned_abs()));
    let divisor = i64::try_from(divisor).ok().filter(|divisor| *divisor > 0)?;
    let factor = if sum.terms.first()?.1 < 0 { -divisor } else { divisor };
    Some((sum.terms.iter().map(|(scalar, by)| (*scalar, by / factor)).collect(), factor))
}

/// `sum relation 0` as a span of its base; `Err` with the answer where it is one whatever the base is.
pub(super) fn span_of(sum: &Affine, relation: Relation) -> Result<(Base, Span), bool> {
    let Some((base, factor)) = base_of(sum) else { return Err(relation.holds(sum.constant)) };
    // factor * base + constant R 0, the factor made positive.
    let relation = if factor < 0 { relation.mirrored() } else { relation };
    let (divisor, constant) = (i128::from(factor).abs(), i128::from(sum.constant) * i128::from(factor.signum()));
    let (down, exact) = ((-constant).div_euclid(divisor), (-constant).rem_euclid(divisor) == 0);
    let narrow = |value: i128| i64::try_from(value).ok();
    let up = if exact { down } else { down + 1 };
    let mut span = Span::default();
    match relation {
        Relation::Equal if !exact => return Err(false),
        Relation::Other if !exact => return Err(true),
        Relation::Equal => (span.low, span.high) = (narrow(down), narrow(down)),
        Relation::Other => span.not.extend(narrow(down)),
        Relation::Below => span.high = narrow(if exact { down - 1 } else { down }),
        Relation::BelowOrEqual => span.high = narrow(down),
        Relation::Above => span.low = narrow(if exact { up + 1 } else { up }),
        Relation::AboveOrEqual => span.low = narrow(up),
    }
    Ok((base, span))
}

impl Span {
    /// Both at once; `None` when nothing is left.
    pub fn and(&self, other: &Span) -> Option<Span> {
        let tighter = |a: Option<i64>, b: Option<i64>, pick: fn(i64, i64) -> i64| match (a, b) {
            (Some(a), Some(b)) => Some(pick(a, b)),
            (one, other) => one.or(other),
        };
        let mut both = Span {
            low: tighter(self.low, other.low, i64::max),
            high: tighter(self.high, other.high, i64::min),
            not: self.not.union(&other.not).copied().collect(),
        };
        while let Some(low) = both.low.filter(|low| both.not.contains(low)) {
            both.low = low.checked_add(1);
        }
        while let Some(high) = both.high.filter(|high| both.not.contains(high)) {
            both.high = high.checked_sub(1);
        }
        if let (Some(low), Some(high)) = (both.low, both.high)
            && low > high
        {
            return None;
        }
        both.not.retain(|value| both.low.is_none_or(|low| *value > low) && both.high.is_none_or(|high| *value < high));
        while both.not.len() > MAX_LEFT_OUT {
            both.not.pop_last();
        }
        Some(both)
    }

    /// Either, when that is one span exactly.
    pub fn or(&self, other: &Span) -> Option<Span> {
        // All but one value, and that value.
        for (a, b) in [(self, other), (other, self)] {
            if a.covers(b) {
                return Some(a.clone());
            }
            if let (Some(low), Some(high)) = (b.low, b.high)
                && low == high
                && a.not.contains(&low)
            {
                let mut not = a.not.clone();
                not.remove(&low);
                return Some(Span { not, ..a.clone() });
            }
        }
        if !(self.not.is_empty() && other.not.is_empty()) {
            return None;
        }
        let (first, second) = if self.low <= other.low { (self, other) } else { (other, self) };
        let meets = match (first.high, second.low) {
            (Some(high), Some(low)) => high.checked_add(1).is_none_or(|next| low <= next),
            _ => true,
        };
        let high = first.high.zip(second.high).map(|(a, b)| a.max(b));
        meets.then_some(Span { low: first.low, high, not: BTreeSet::new() })
    }

    /// Whether every value of the other is one of these.
    pub fn covers(&self, other: &Span) -> bool {
        let low = self.low.is_none_or(|low| other.low.is_some_and(|other| other >= low));
        let high = self.high.is_none_or(|high| other.high.is_some_and(|other| other <= high));
        let has = |value: &i64| {
            other.low.is_none_or(|low| *value >= low)
                && other.high.is_none_or(|high| *value <= high)
                && !other.not.contains(value)
        };
        low && high && !self.not.iter().any(has)
    }

    /// The same span further on.
    pub fn moved(&self, by: i64) -> Span {
        let shift = |value: i64| value.saturating_add(by);
        Span {
            low: self.low.map(shift),
            high: self.high.map(shift),
            not: self.not.iter().map(|value| shift(*value)).collect(),
        }
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use npumem_testing::Random;

    const RELATIONS: [Relation; 6] = [
        Relation::Equal,
        Relation::Other,
        Relation::Below,
        Relation::BelowOrEqual,
        Relation::Above,
        Relation::AboveOrEqual,
    ];

    fn has(span: &Span, value: i64) -> bool {
        span.low.is_none_or(|low| value >= low)
            && span.high.is_none_or(|high| value <= high)
            && !span.not.contains(&value)
    }

    /// Spans against the comparison itself, value by value.
    #[test]
    fn spans_say_what_comparisons_say() {
        let mut random = Random(7);
        let x = ScalarId(3);
        for _ in 0..20_000 {
            let mut pick = || {
                let factor = [-4, -3, -2, -1, 1, 2, 3, 4][random.below(8) as usize];
                let sum = Affine { constant: random.below(25) as i64 - 12, terms: vec![(x, factor)] };
                (sum, *random.pick(&RELATIONS))
            };
            let (a, b) = (pick(), pick());
            let truth = |(sum, relation): &(Affine, Relation), value: i64| {
                relation.holds(sum.constant + sum.terms[0].1 * value)
            };
            let spans: Vec<Option<Span>> = [&a, &b]
                .into_iter()
                .map(|(sum, relation)| match span_of(sum, *relation) {
                    Ok((base, span)) => {
                        assert_eq!(*base, [(x, 1)]);
                        Some(span)
                    }
                    Err(always) => {
                        assert!((-40..40).all(|value| truth(&(sum.clone(), *relation), value) == always));
                        None
                    }
                })
                .collect();
            let [Some(first), Some(second)] = spans.as_slice() else { continue };
            let (and, or) = (first.and(second), first.or(second));
            for value in -40..40 {
                let (p, q) = (truth(&a, value), truth(&b, value));
                assert_eq!(has(first, value), p, "{a:?} {value}");
                assert_eq!(and.as_ref().is_some_and(|span| has(span, value)), p && q, "{a:?} {b:?} {value}");
                if let Some(or) = &or {
                    assert_eq!(has(or, value), p || q, "{a:?} {b:?} {value}");
                }
                if first.covers(second) {
                    assert!(!q || p, "{a:?} {b:?} {value}");
                }
                let near = has(&first.moved(3), value);
                assert_eq!(near, truth(&a, value - 3));
            }
        }
    }
}
