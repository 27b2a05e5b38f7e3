//! Integers as MLIR's `arith` has them: division towards 0, unsigned readings of negative values, one-bit truths.
//!
//! A width is that of the type. Sums and products of values that are not known are taken as if they did not overflow.

use super::Lowering;
use npumem_ir::program::{Affine, Op, ScalarKind, Values};

/// How far a value is followed to see that it is not negative.
const MAX_DEPTH: u32 = 16;

/// Bits of an integer type; `None` for `index`, which is as wide as our numbers.
pub(super) fn width(ty: &str) -> Option<u32> {
    let bits = ty.trim().trim_start_matches(['s', 'u']).strip_prefix('i')?.parse().ok()?;
    (1..64).contains(&bits).then_some(bits)
}

impl Lowering<'_, '_> {
    fn op(&mut self, op: Op, operands: [Affine; 2]) -> Affine {
        self.builder.value(op, operands.into())
    }

    fn choose(&mut self, condition: Affine, then: Affine, otherwise: Affine) -> Affine {
        self.builder.value(Op::Select, vec![condition, then, otherwise])
    }

    fn is_negative(&mut self, value: &Affine) -> Affine {
        self.op(Op::Lt, [value.clone(), Affine::constant(0)])
    }

    /// Whether a value cannot be negative, as far as that can be told from the source.
    pub(super) fn never_negative(&self, value: &Affine) -> bool {
        let parts = || value.terms.iter().all(|(scalar, factor)| *factor > 0 && self.counts_up(*scalar, MAX_DEPTH));
        value.constant >= 0 && parts()
            || Values::default().range(self.builder.program(), value).0.is_some_and(|least| least >= 0)
    }

    fn counts_up(&self, scalar: npumem_ir::ScalarId, depth: u32) -> bool {
        let program = self.builder.program();
        let scalar_of = program.scalar(scalar);
        let compute = match &scalar_of.kind {
            ScalarKind::Counter => return self.counters_from_zero.contains(&scalar),
            ScalarKind::Grid(_) => return true,
            ScalarKind::Argument(Some(value)) => return *value >= 0,
            ScalarKind::Argument(None) => return matches!(&*scalar_of.name, "get_block_num" | "get_subblock_num"),
            ScalarKind::Computed(compute) if depth > 0 => compute,
            _ => return false,
        };
        let each = |operand: &Affine| {
            operand.constant >= 0
                && operand.terms.iter().all(|(s, factor)| *factor > 0 && self.counts_up(*s, depth - 1))
        };
        match (compute.op, compute.operands.as_slice()) {
            (Op::Eq | Op::Ne | Op::Lt | Op::Le, _) => true,
            (Op::Rem, [_, by]) => by.as_constant().is_some_and(|by| by > 0),
            (Op::RemToZero, [value, _]) => each(value),
            (Op::Max, [a, b]) | (Op::And, [a, b]) => each(a) || each(b),
            (Op::Mul | Op::Div | Op::DivToZero | Op::Min | Op::Or | Op::Xor, [a, b]) | (Op::Select, [_, a, b]) => {
                each(a) && each(b)
            }
            _ => false,
        }
    }

    /// A result that only a value that is not negative has; nobody knows the other here.
    fn where_not_negative(&mut self, value: &Affine, result: Affine) -> Affine {
        if self.never_negative(value) {
            return result;
        }
        let (negative, unknown) = (self.is_negative(value), self.opaque());
        self.choose(negative, unknown, result)
    }

    /// `x / y` and `x mod y`, rounded towards 0.
    pub(super) fn signed_division(&mut self, x: Affine, y: Affine, remainder: bool) -> Affine {
        let plain = self.never_negative(&x) && y.as_constant().is_some_and(|by| by > 0);
        let op = match (plain, remainder) {
            (true, false) => Op::Div,
            (true, true) => Op::Rem,
            (false, false) => Op::DivToZero,
            (false, true) => Op::RemToZero,
        };
        self.op(op, [x, y])
    }

    /// The same of both read without a sign.
    pub(super) fn unsigned_division(&mut self, x: Affine, y: Affine, remainder: bool) -> Affine {
        let op = if remainder { Op::RemToZero } else { Op::DivToZero };
        let plain = y.as_constant().is_some_and(|by| by > 0);
        let op = match op {
            Op::DivToZero if plain => Op::Div,
            Op::RemToZero if plain => Op::Rem,
            other => other,
        };
        let result = self.op(op, [x.clone(), y.clone()]);
        let result = self.where_not_negative(&x, result);
        self.where_not_negative(&y, result)
    }

    /// `x / y` rounded down.
    pub(super) fn floor_division(&mut self, x: Affine, y: Affine) -> Affine {
        match y.as_constant() {
            Some(by) if by < 0 => self.op(Op::Div, [x.times(-1), y.times(-1)]),
            Some(_) => self.op(Op::Div, [x, y]),
            None => {
                let negative = self.is_negative(&y);
                let turned = self.op(Op::Div, [x.times(-1), y.times(-1)]);
                let plain = self.op(Op::Div, [x, y]);
                self.choose(negative, turned, plain)
            }
        }
    }

    /// `x < y`, or `x <= y`, of both read without a sign: a negative value is above every other.
    pub(super) fn unsigned_compare(&mut self, op: Op, x: Affine, y: Affine) -> Affine {
        let below = self.op(op, [x.clone(), y.clone()]);
        match (self.never_negative(&x), self.never_negative(&y)) {
            (true, true) => below,
            (false, true) => {
                let not_negative = self.op(Op::Le, [Affine::constant(0), x]);
                self.op(Op::And, [not_negative, below])
            }
            (true, false) => {
                let negative = self.is_negative(&y);
                self.op(Op::Or, [negative, below])
            }
            (false, false) => {
                let (first, second) = (self.is_negative(&x), self.is_negative(&y));
                let (both, either) =
                    (self.op(Op::And, [second.clone(), below.clone()]), self.op(Op::Or, [second, below]));
                self.choose(first, both, either)
            }
        }
    }

    /// The smaller, or the larger, of both read without a sign.
    pub(super) fn unsigned_least(&mut self, x: Affine, y: Affine, largest: bool) -> Affine {
        if self.never_negative(&x) && self.never_negative(&y) {
            return self.op(if largest { Op::Max } else { Op::Min }, [x, y]);
        }
        let below = self.unsigned_compare(Op::Lt, x.clone(), y.clone());
        // The smaller is neither below 0 nor above one that never is: said so, bounds follow.
        let most = [&x, &y].into_iter().find(|one| self.never_negative(one)).cloned();
        if let Some(most) = most.filter(|_| !largest) {
            let smaller = self.choose(below, x, y);
            let held = self.op(Op::Min, [smaller, most]);
            return self.op(Op::Max, [held, Affine::constant(0)]);
        }
        if largest { self.choose(below, y, x) } else { self.choose(below, x, y) }
    }

    /// `x >> by`: with the sign, or with zeros.
    pub(super) fn shift_right(&mut self, x: Affine, by: &Affine, signed: bool) -> Affine {
        let Some(by) = by.as_constant().filter(|by| (0..62).contains(by)) else { return self.opaque() };
        let result = self.op(Op::Div, [x.clone(), Affine::constant(1 << by)]);
        if signed { result } else { self.where_not_negative(&x, result) }
    }

    /// The lowest bits, the highest of them the sign (of one bit: 0 or 1).
    pub(super) fn truncated(&mut self, value: Affine, bits: u32) -> Affine {
        if bits == 1 {
            return self.op(Op::Rem, [value, Affine::constant(2)]);
        }
        let half = 1_i64 << (bits - 1);
        let (least, most) = Values::default().range(self.builder.program(), &value);
        if least.is_some_and(|least| least >= -half) && most.is_some_and(|most| most < half) {
            return value;
        }
        // A type of 32 bits or more holds what counts and addresses here; only what is known is cut.
        if bits >= 32 && value.as_constant().is_none() {
            return value;
        }
        if bits == 63 {
            return value;
        }
        let shifted = value.plus(&Affine::constant(half));
        self.op(Op::Rem, [shifted, Affine::constant(half * 2)]).minus(&Affine::constant(half))
    }

    /// A value of `bits` bits read without a sign.
    pub(super) fn without_sign(&mut self, value: Affine, bits: Option<u32>) -> Affine {
        let Some(bits) = bits.filter(|bits| *bits > 1 && *bits < 62) else { return value };
        if self.never_negative(&value) {
            return value;
        }
        let negative = self.is_negative(&value);
        let high = value.plus(&Affine::constant(1 << bits));
        self.choose(negative, high, value)
    }
}
