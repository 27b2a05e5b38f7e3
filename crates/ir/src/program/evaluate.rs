//! The values of scalars at one moment of a run.

use super::{Affine, Compute, Op, Program, ScalarKind};
use crate::ScalarId;
use std::sync::Arc;

/// Values of counters and variables at one moment; what is not set is unknown.
///
/// Computed scalars are never stored: they follow from the others. An unknown computed value may be *assumed*
/// (a branch on it was taken), which holds for as long as the assumption stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Values {
    /// Shared until one of the moments changes: a moment is copied far more often than it is changed.
    set: Arc<Vec<Option<i64>>>,
}

impl Values {
    /// Only what the program itself fixes: bound arguments.
    #[must_use]
    pub fn new(program: &Program) -> Self {
        let set = program.scalars.iter().map(|scalar| match scalar.kind {
            ScalarKind::Argument(value) => value,
            _ => None,
        });
        Values { set: Arc::new(set.collect()) }
    }

    /// Sets a scalar, or makes it unknown.
    pub fn set(&mut self, scalar: ScalarId, value: Option<i64>) {
        if self.set.get(scalar.index()).is_some_and(|before| *before != value)
            && let Some(place) = Arc::make_mut(&mut self.set).get_mut(scalar.index())
        {
            *place = value;
        }
    }

    /// What was set for a scalar, without computing anything.
    #[must_use]
    pub fn stored(&self, scalar: ScalarId) -> Option<i64> {
        self.set.get(scalar.index()).copied().flatten()
    }

    /// The value of a scalar, computed when need be; `None` when something it follows from is unknown.
    #[must_use]
    pub fn scalar(&self, program: &Program, scalar: ScalarId) -> Option<i64> {
        if let Some(value) = self.stored(scalar) {
            return Some(value);
        }
        match &program.scalar(scalar).kind {
            ScalarKind::Computed(compute) => self.compute(program, scalar, compute),
            _ => None,
        }
    }

    /// The value of a sum.
    #[must_use]
    pub fn affine(&self, program: &Program, affine: &Affine) -> Option<i64> {
        match affine.as_constant() {
            Some(constant) => Some(constant),
            None => affine.eval(&mut |scalar| self.scalar(program, scalar)),
        }
    }

    /// Whether two moments agree on these scalars.
    #[must_use]
    pub fn agree(&self, other: &Values, scalars: &[ScalarId]) -> bool {
        Arc::ptr_eq(&self.set, &other.set) || scalars.iter().all(|scalar| self.stored(*scalar) == other.stored(*scalar))
    }

    /// Keeps what both moments have set alike; the rest becomes unknown.
    pub fn keep_common(&mut self, other: &Values) {
        if !Arc::ptr_eq(&self.set, &other.set) && self.set != other.set {
            let mine = Arc::make_mut(&mut self.set).iter_mut();
            mine.zip(other.set.iter()).filter(|(mine, other)| mine != other).for_each(|(mine, _)| *mine = None);
        }
    }

    /// Post-order over what the value follows from, each computed once: chains and shared parts stay linear.
    fn compute(&self, program: &Program, scalar: ScalarId, compute: &Compute) -> Option<i64> {
        let mut known = |id: ScalarId| match (&program.scalar(id).kind, self.stored(id)) {
            (_, Some(value)) => Some(Some(value)),
            (ScalarKind::Computed(_), None) => None,
            _ => Some(None),
        };
        if let Some(value) = apply_with(compute, &mut known) {
            return value;
        }
        let mut memo = std::collections::BTreeMap::<ScalarId, Option<i64>>::new();
        let mut pending = vec![scalar];
        while let Some(&top) = pending.last() {
            let ScalarKind::Computed(compute) = &program.scalar(top).kind else {
                memo.insert(top, self.stored(top));
                pending.pop();
                continue;
            };
            if self.stored(top).is_some() {
                memo.insert(top, self.stored(top));
                pending.pop();
                continue;
            }
            let before = pending.len();
            let mut missing = Vec::new();
            let value = apply_with(compute, &mut |id| {
                let found = memo.get(&id).copied().or_else(|| match program.scalar(id).kind {
                    ScalarKind::Computed(_) => None,
                    _ => Some(self.stored(id)),
                });
                if found.is_none() {
                    missing.push(id);
                }
                found
            });
            pending.extend(missing);
            if let (Some(value), true) = (value, pending.len() == before) {
                memo.insert(top, value);
                pending.pop();
            } else if pending.len() == before {
                memo.insert(top, None);
                pending.pop();
            }
        }
        memo.get(&scalar).copied().flatten()
    }
}

/// Applies the operation when every operand has been looked at: `None` when one must be computed first,
/// `Some(None)` when the value is unknown.
fn apply_with(compute: &Compute, look: &mut dyn FnMut(ScalarId) -> Option<Option<i64>>) -> Option<Option<i64>> {
    let mut operands = Vec::with_capacity(compute.operands.len());
    let mut waiting = false;
    for affine in &compute.operands {
        let mut unknown = false;
        let value = affine.eval(&mut |id| match look(id) {
            Some(Some(value)) => Some(value),
            Some(None) => {
                unknown = true;
                Some(0)
            }
            None => {
                waiting = true;
                Some(0)
            }
        });
        operands.push(if unknown { None } else { value });
    }
    if waiting { None } else { Some(apply(compute.op, &operands)) }
}

/// The result of one operation; an unknown operand may still leave it known (`0 * x`, a decided select).
pub(crate) fn apply(op: Op, operands: &[Option<i64>]) -> Option<i64> {
    let both = |f: fn(i64, i64) -> Option<i64>| match operands {
        [Some(a), Some(b)] => f(*a, *b),
        _ => None,
    };
    match op {
        Op::Mul => match operands {
            [Some(0), _] | [_, Some(0)] => Some(0),
            _ => both(i64::checked_mul),
        },
        Op::Div => both(|a, b| if b == 0 { None } else { a.checked_div_euclid(b) }),
        Op::Rem => both(|a, b| if b == 0 { None } else { a.checked_rem_euclid(b) }),
        Op::DivToZero => both(i64::checked_div),
        Op::RemToZero => both(i64::checked_rem),
        Op::Min => both(|a, b| Some(a.min(b))),
        Op::Max => both(|a, b| Some(a.max(b))),
        Op::And => match operands {
            [Some(0), _] | [_, Some(0)] => Some(0),
            _ => both(|a, b| Some(a & b)),
        },
        Op::Or => match operands {
            [Some(-1), _] | [_, Some(-1)] => Some(-1),
            _ => both(|a, b| Some(a | b)),
        },
        Op::Xor => both(|a, b| Some(a ^ b)),
        Op::Eq => both(|a, b| Some(i64::from(a == b))),
        Op::Ne => both(|a, b| Some(i64::from(a != b))),
        Op::Lt => both(|a, b| Some(i64::from(a < b))),
        Op::Le => both(|a, b| Some(i64::from(a <= b))),
        Op::Select => match operands {
            [Some(0), _, otherwise] => *otherwise,
            [Some(_), then, _] => *then,
            _ => None,
        },
        Op::Opaque => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::ProgramBuilder;

    #[test]
    fn a_long_shared_chain_is_linear_and_deep() {
        let mut builder = ProgramBuilder::new("chain");
        let mut last = builder.argument("x", Some(1));
        for _ in 0..50_000 {
            // Each uses the one before twice: 2^50000 paths, 50000 values.
            last = builder.computed(Op::Max, vec![Affine::scalar(last), Affine::scalar(last).plus(&1.into())]);
        }
        let program = builder.finish().unwrap();
        let values = Values::new(&program);
        assert_eq!(values.scalar(&program, last), Some(50_001));
        let unknown = Values::default();
        assert_eq!(unknown.scalar(&program, last), None);
    }

    #[test]
    fn a_known_operand_may_decide_alone() {
        assert_eq!(apply(Op::Mul, &[Some(0), None]), Some(0));
        assert_eq!(apply(Op::And, &[None, Some(0)]), Some(0));
        assert_eq!(apply(Op::Select, &[Some(1), Some(7), None]), Some(7));
        assert_eq!(apply(Op::Rem, &[Some(-1), Some(2)]), Some(1), "a slot is never negative");
        assert_eq!(apply(Op::Div, &[Some(1), Some(0)]), None);
        for (a, b, quotient, rest) in [(-7, 2, -3, -1), (7, -2, -3, 1), (-7, -2, 3, -1), (7, 2, 3, 1)] {
            assert_eq!(apply(Op::DivToZero, &[Some(a), Some(b)]), Some(quotient), "{a} {b}");
            assert_eq!(apply(Op::RemToZero, &[Some(a), Some(b)]), Some(rest), "{a} {b}");
        }
        assert_eq!(apply(Op::RemToZero, &[Some(1), Some(0)]), None);
        assert_eq!(apply(Op::DivToZero, &[Some(i64::MIN), Some(-1)]), None);
    }
}
