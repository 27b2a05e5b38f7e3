//! Sums of scalars times constants: the form in which ranges, slots and bounds are kept.

use crate::ScalarId;
use serde::{Deserialize, Serialize};

/// `constant + sum(factor * scalar)`, with scalars ascending and no factor of 0.
///
/// Arithmetic saturates instead of wrapping; a saturated range leaves every space and is reported there.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Affine {
    /// The part that is the same always.
    pub constant: i64,
    /// The other parts, by scalar.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terms: Vec<(ScalarId, i64)>,
}

impl From<i64> for Affine {
    fn from(constant: i64) -> Self {
        Affine::constant(constant)
    }
}

impl From<ScalarId> for Affine {
    fn from(scalar: ScalarId) -> Self {
        Affine::scalar(scalar)
    }
}

impl Affine {
    /// A plain number.
    #[must_use]
    pub const fn constant(constant: i64) -> Self {
        Affine { constant, terms: Vec::new() }
    }

    /// One scalar.
    #[must_use]
    pub fn scalar(scalar: ScalarId) -> Self {
        Affine { constant: 0, terms: vec![(scalar, 1)] }
    }

    /// The number, when no scalar is in it.
    #[must_use]
    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The scalar, when it is nothing else.
    #[must_use]
    pub fn as_scalar(&self) -> Option<ScalarId> {
        match (self.constant, self.terms.as_slice()) {
            (0, [(scalar, 1)]) => Some(*scalar),
            _ => None,
        }
    }

    /// The factor of a scalar; 0 when it is not in it.
    #[must_use]
    pub fn factor(&self, scalar: ScalarId) -> i64 {
        self.terms.binary_search_by_key(&scalar, |term| term.0).map_or(0, |at| self.terms[at].1)
    }

    /// The sum.
    #[must_use]
    pub fn plus(&self, other: &Affine) -> Affine {
        let mut terms = Vec::with_capacity(self.terms.len() + other.terms.len());
        let (mut left, mut right) = (self.terms.iter().peekable(), other.terms.iter().peekable());
        loop {
            let term = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) if a.0 == b.0 => {
                    let term = (a.0, a.1.saturating_add(b.1));
                    left.next();
                    right.next();
                    term
                }
                (Some(a), Some(b)) if a.0 < b.0 => {
                    let term = **a;
                    left.next();
                    term
                }
                (Some(a), None) => {
                    let term = **a;
                    left.next();
                    term
                }
                (_, Some(b)) => {
                    let term = **b;
                    right.next();
                    term
                }
                (None, None) => break,
            };
            if term.1 != 0 {
                terms.push(term);
            }
        }
        Affine { constant: self.constant.saturating_add(other.constant), terms }
    }

    /// The difference.
    #[must_use]
    pub fn minus(&self, other: &Affine) -> Affine {
        self.plus(&other.times(-1))
    }

    /// The product with a number.
    #[must_use]
    pub fn times(&self, factor: i64) -> Affine {
        if factor == 0 {
            return Affine::constant(0);
        }
        Affine {
            constant: self.constant.saturating_mul(factor),
            terms: self.terms.iter().map(|(scalar, by)| (*scalar, by.saturating_mul(factor))).collect(),
        }
    }

    /// The value, given those of its scalars; `None` when one is unknown or the sum leaves 64 bits.
    #[must_use]
    pub fn eval(&self, value_of: &mut dyn FnMut(ScalarId) -> Option<i64>) -> Option<i64> {
        let mut sum = i128::from(self.constant);
        for (scalar, factor) in &self.terms {
            sum = sum.checked_add(i128::from(value_of(*scalar)?) * i128::from(*factor))?;
        }
        i64::try_from(sum).ok()
    }

    /// The same sum with another in the place of a scalar.
    #[must_use]
    pub fn substitute(&self, scalar: ScalarId, value: &Affine) -> Affine {
        let factor = self.factor(scalar);
        if factor == 0 {
            return self.clone();
        }
        let rest = Affine {
            constant: self.constant,
            terms: self.terms.iter().filter(|term| term.0 != scalar).copied().collect(),
        };
        rest.plus(&value.times(factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_stay_in_normal_form() {
        let (i, j) = (ScalarId(0), ScalarId(1));
        let sum = Affine::scalar(j).times(4).plus(&Affine::scalar(i)).plus(&7.into());
        assert_eq!(sum.terms, [(i, 1), (j, 4)]);
        assert_eq!(sum.minus(&sum), Affine::constant(0));
        assert_eq!(sum.substitute(j, &Affine::scalar(i).plus(&2.into())).terms, [(i, 5)]);
        assert_eq!(sum.substitute(j, &Affine::scalar(i).plus(&2.into())).constant, 15);
        assert_eq!(sum.eval(&mut |id| Some(i64::from(id.0) * 10)), Some(47));
        assert_eq!(Affine::scalar(i).times(i64::MAX).eval(&mut |_| Some(3)), None, "past 64 bits is unknown");
    }
}
