//! What a value can be at most and at least, when it is not known: from minima, remainders and the extent of the grid.

use super::{Affine, Compute, Op, Program, ScalarKind, Values};
use crate::ScalarId;

/// The least and the greatest value, each where it is known.
pub type Range = (Option<i64>, Option<i64>);

/// Scalars that one question looks at: past that a value has no bounds.
const MAX_SCALARS: u32 = 256;
/// How far a value is followed to what it is computed from.
const MAX_DEPTH: u32 = 24;

impl Values {
    /// The bounds of a sum. Scalars in it count one by one, so the bounds may be wider than the truth, never narrower.
    #[must_use]
    pub fn range(&self, program: &Program, affine: &Affine) -> Range {
        Asked { values: self, program, left: MAX_SCALARS }.affine(affine, MAX_DEPTH)
    }
}

struct Asked<'a> {
    values: &'a Values,
    program: &'a Program,
    left: u32,
}

impl Asked<'_> {
    fn affine(&mut self, affine: &Affine, depth: u32) -> Range {
        let constant = Some(affine.constant);
        let (mut least, mut most) = (constant, constant);
        for (scalar, factor) in &affine.terms {
            let (low, high) = self.scalar(*scalar, depth);
            let (low, high) = if *factor < 0 { (high, low) } else { (low, high) };
            least = least.zip(low).and_then(|(sum, low)| sum.checked_add(low.checked_mul(*factor)?));
            most = most.zip(high).and_then(|(sum, high)| sum.checked_add(high.checked_mul(*factor)?));
        }
        (least, most)
    }

    fn scalar(&mut self, scalar: ScalarId, depth: u32) -> Range {
        if let Some(value) = self.values.stored(scalar) {
            return (Some(value), Some(value));
        }
        if self.left == 0 || depth == 0 {
            return (None, None);
        }
        self.left -= 1;
        let program = self.program;
        match &program.scalar(scalar).kind {
            ScalarKind::Grid(extent) => {
                let last = extent.map(|extent| i64::try_from(extent.saturating_sub(1)).unwrap_or(i64::MAX));
                (Some(0), last)
            }
            ScalarKind::Computed(compute) => self.compute(compute, depth - 1),
            _ => (None, None),
        }
    }

    // Bounded by the depth, not by the input.
    fn compute(&mut self, compute: &Compute, depth: u32) -> Range {
        let ranges: Vec<Range> = compute.operands.iter().take(3).map(|operand| self.affine(operand, depth)).collect();
        let both = |a: Option<i64>, b: Option<i64>, pick: fn(i64, i64) -> i64| a.zip(b).map(|(a, b)| pick(a, b));
        let either = |a: Option<i64>, b: Option<i64>, pick: fn(i64, i64) -> i64| match (a, b) {
            (Some(a), Some(b)) => Some(pick(a, b)),
            (one, other) => one.or(other),
        };
        match (compute.op, ranges.as_slice()) {
            (Op::Min, [a, b]) => (both(a.0, b.0, i64::min), either(a.1, b.1, i64::min)),
            (Op::Max, [a, b]) => (either(a.0, b.0, i64::max), both(a.1, b.1, i64::max)),
            (Op::Mul, _) if compute.operands.first() == compute.operands.get(1) => (Some(0), None),
            (Op::Mul, [(Some(a), _), (Some(b), _)]) if *a >= 0 && *b >= 0 => (a.checked_mul(*b), None),
            (Op::Div, [a, (Some(by), Some(same))]) if by == same && *by > 0 => {
                (a.0.map(|value| value.div_euclid(*by)), a.1.map(|value| value.div_euclid(*by)))
            }
            (Op::Rem, [_, (Some(by), Some(same))]) if by == same && *by > 0 => (Some(0), Some(by - 1)),
            (Op::DivToZero, [a, (Some(by), Some(same))]) if by == same && *by > 0 => {
                (a.0.map(|value| value / by), a.1.map(|value| value / by))
            }
            (Op::RemToZero, [a, (Some(by), Some(same))]) if by == same && *by > 0 => {
                let below = if a.0.is_some_and(|least| least >= 0) { 0 } else { 1 - by };
                let above = if a.1.is_some_and(|most| most <= 0) { 0 } else { by - 1 };
                (Some(below), Some(above))
            }
            (Op::Eq | Op::Ne | Op::Lt | Op::Le, _) => (Some(0), Some(1)),
            (Op::Select, [_, a, b]) => (both(a.0, b.0, i64::min), both(a.1, b.1, i64::max)),
            _ => (None, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{ProgramBuilder, ScalarKind};

    #[test]
    fn bounds_follow_minima_divisions_and_the_grid() {
        let mut builder = ProgramBuilder::new("bounds");
        let core = Affine::scalar(builder.scalar("core", ScalarKind::Grid(Some(24))));
        let free = Affine::scalar(builder.scalar("free", ScalarKind::Argument(None)));
        // The last block is shorter: 4000 - 170 x 23 = 90.
        let length =
            builder.value(Op::Min, vec![Affine::constant(4000).minus(&core.times(170)), Affine::constant(170)]);
        let turns = builder.value(Op::Div, vec![length.plus(&Affine::constant(15)), Affine::constant(16)]);
        let rest = builder.value(Op::Rem, vec![free.clone(), Affine::constant(8)]);
        let held = builder.value(Op::Max, vec![free.clone(), Affine::constant(3)]);
        let square = builder.value(Op::Mul, vec![free.clone(), free.clone()]);
        let product = builder.value(Op::Mul, vec![length.clone(), held.clone()]);
        let program = builder.finish().unwrap();
        let values = Values::new(&program);
        assert_eq!(values.range(&program, &square), (Some(0), None));
        assert_eq!(values.range(&program, &product), (Some(270), None));
        assert_eq!(values.range(&program, &length), (Some(90), Some(170)));
        assert_eq!(values.range(&program, &turns), (Some(6), Some(11)));
        assert_eq!(values.range(&program, &rest.times(-2)), (Some(-14), Some(0)));
        assert_eq!(values.range(&program, &held), (Some(3), None));
        assert_eq!(values.range(&program, &free), (None, None));
    }
}
