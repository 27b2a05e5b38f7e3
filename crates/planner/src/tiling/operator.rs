//! One operator as an iteration space and the parts of its operands that a box of iterations touches.
//!
//! ```text
//!   convolution 3x3, stride 1, padding 1:   dims  k p q | c r s        ( | separates the summed dims)
//!
//!   in   [ c ] [ p + r - 1 ] [ q + s - 1 ]        a tile of 4 x 4 outputs touches 6 x 6 inputs,
//!   w    [ k ] [ c ] [ r ] [ s ]                  fewer at the border: padding is never moved
//!   out  [ k ] [ p ] [ q ]
//! ```
//!
//! Axes are in the order of memory, the innermost last, so the length of the runs of a copy follows from the same
//! description as the traffic.

use npumem_ir::ElementType;
use std::fmt;
use thiserror::Error;

/// The largest dimension of an operator.
pub const MAX_DIM: u64 = 1 << 31;
/// The most iterations (multiply-accumulates, or element steps) of an operator.
pub const MAX_POINTS: u128 = 1 << 62;
/// Positions of an axis that are listed one by one.
const MAX_LISTED: u64 = 1 << 16;

/// What family an operator belongs to; it decides the bound that is printed and how the schedule is emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperatorKind {
    /// A matrix product, batched or not.
    Matmul,
    /// A convolution, transposed or not.
    Conv,
    /// A pooling.
    Pool,
    /// A chain of elementwise functions.
    Elementwise,
    /// A reduction.
    Reduce,
    /// A softmax over the last dimension.
    Softmax,
    /// A layer or RMS normalisation over the last dimension.
    Norm,
    /// Scores, softmax and their product with the values, in one.
    Attention,
    /// Rows taken from a table.
    Gather,
    /// Dimensions exchanged.
    Transpose,
}

impl OperatorKind {
    /// Its word in a spec.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            OperatorKind::Matmul => "matmul",
            OperatorKind::Conv => "conv",
            OperatorKind::Pool => "pool",
            OperatorKind::Elementwise => "elementwise",
            OperatorKind::Reduce => "reduce",
            OperatorKind::Softmax => "softmax",
            OperatorKind::Norm => "norm",
            OperatorKind::Attention => "attention",
            OperatorKind::Gather => "gather",
            OperatorKind::Transpose => "transpose",
        }
    }
}

/// What a dimension of the iteration space does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DimRole {
    /// Every value makes other outputs.
    Parallel,
    /// Its values are summed (or otherwise combined) into one output.
    Reduction,
}

/// A dimension of the iteration space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dim {
    /// Its name, as the spec and the output have it.
    pub name: String,
    /// How many values it takes.
    pub extent: u64,
    /// What it does.
    pub role: DimRole,
    /// A tile always has all of it.
    pub whole: bool,
}

/// One axis of an operand: which positions a box of iterations touches.
///
/// Position = floor((offset + sum of coefficient x dimension) / divide), held within `[0, extent)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Dimensions (by index) and their coefficients; empty: the whole axis, always.
    pub terms: Vec<(usize, i64)>,
    /// Added to the sum: minus the padding before the axis.
    pub offset: i64,
    /// What the sum is divided by, for transposed convolutions.
    pub divide: u64,
    /// Positions that exist.
    pub extent: u64,
    /// A tile may begin at any remainder of the division: it takes the most positions that one can.
    pub loose: bool,
}

impl Axis {
    /// An axis that is one dimension.
    #[must_use]
    pub fn plain(dim: usize, extent: u64) -> Self {
        Axis { terms: vec![(dim, 1)], offset: 0, divide: 1, extent, loose: false }
    }

    /// An axis of which every tile touches all.
    #[must_use]
    pub fn whole(extent: u64) -> Self {
        Axis { terms: Vec::new(), offset: 0, divide: 1, extent, loose: false }
    }

    /// The positions `[first, end)` that iterations `[low, high)` of each term touch, held within the axis.
    #[must_use]
    pub fn touched(&self, ranges: &dyn Fn(usize) -> (u64, u64)) -> (u64, u64) {
        if self.terms.is_empty() {
            return (0, self.extent);
        }
        if let Some(found) = self.touched_small(ranges) {
            return found;
        }
        let (mut least, mut most) = (i128::from(self.offset), i128::from(self.offset));
        for (dim, factor) in &self.terms {
            let (low, high) = ranges(*dim);
            let ends = [i128::from(low) * i128::from(*factor), (i128::from(high) - 1) * i128::from(*factor)];
            least += ends[0].min(ends[1]);
            most += ends[0].max(ends[1]);
        }
        let divide = i128::from(self.divide.max(1));
        let first = least.div_euclid(divide).max(0);
        let last = if self.loose { first + (most - least + divide - 1) / divide } else { most.div_euclid(divide) };
        let end = (last + 1).min(i128::from(self.extent));
        if end <= first {
            return (0, 0);
        }
        (u64::try_from(first).unwrap_or(0), u64::try_from(end).unwrap_or(self.extent))
    }

    /// As [`Axis::touched`] where nothing passes 64 bits.
    fn touched_small(&self, ranges: &dyn Fn(usize) -> (u64, u64)) -> Option<(u64, u64)> {
        let (mut least, mut most) = (self.offset, self.offset);
        for (dim, factor) in &self.terms {
            let (low, high) = ranges(*dim);
            let low = i64::try_from(low).ok()?.checked_mul(*factor)?;
            let high = i64::try_from(high).ok()?.checked_sub(1)?.checked_mul(*factor)?;
            least = least.checked_add(low.min(high))?;
            most = most.checked_add(low.max(high))?;
        }
        let (extent, divide) = (i64::try_from(self.extent).ok()?, i64::try_from(self.divide.max(1)).ok()?);
        let reach = most.checked_sub(least)?;
        if divide > 1 {
            (least, most) = (least.div_euclid(divide), most.div_euclid(divide));
        }
        let first = least.max(0);
        if self.loose {
            most = first.checked_add(reach.checked_add(divide - 1)? / divide)?;
        }
        let end = most.checked_add(1)?.min(extent);
        Some(if end <= first { (0, 0) } else { (first.unsigned_abs(), end.unsigned_abs()) })
    }

    /// How many positions within the axis are needed at all when every dimension takes all of its values: a window that
    /// steps past its own length leaves holes. Never more than the truth.
    #[must_use]
    pub fn needed(&self, extent: &dyn Fn(usize) -> u64) -> u64 {
        let (first, end) = self.touched(&|dim| (0, extent(dim)));
        let span = end - first;
        if self.divide > 1 || span == 0 {
            return span;
        }
        // Runs of the finer term, one for each value of the coarser one.
        let mut terms: Vec<(u64, u64)> =
            self.terms.iter().map(|(dim, factor)| (factor.unsigned_abs(), extent(*dim))).collect();
        terms.sort_unstable();
        match terms.as_slice() {
            [(step, count)] => span.min(span.div_ceil((*step).max(1)).min(*count)),
            [(1, run), (step, _)] if step <= run => span,
            [(fine, run), (coarse, count)] if run.saturating_mul(*count) <= MAX_LISTED => {
                let held = i128::from(first)..i128::from(end);
                let low: i128 = self
                    .terms
                    .iter()
                    .map(|(dim, factor)| i128::from((*factor).min(0)) * i128::from(extent(*dim).saturating_sub(1)))
                    .sum();
                let mut all: Vec<i128> = (0..*run)
                    .flat_map(|x| (0..*count).map(move |y| (x, y)))
                    .map(|(x, y)| {
                        i128::from(self.offset) + low + i128::from(x * fine) + i128::from(y) * i128::from(*coarse)
                    })
                    .filter(|position| held.contains(position))
                    .collect();
                all.sort_unstable();
                all.dedup();
                all.len() as u64
            }
            // One run, or one position of every run: whichever is more, less what may lie in the padding.
            [(fine, run), (coarse, count)] => {
                let outside = self.offset.unsigned_abs().saturating_mul(2);
                let inside = |step: &u64, count: &u64| count.saturating_sub(outside.div_ceil((*step).max(1)));
                inside(fine, run).max(inside(coarse, count)).clamp(1, span)
            }
            _ => span,
        }
    }

    /// The same axis for a block that lies anywhere along it: no padding shortens it.
    #[must_use]
    pub fn anywhere(&self, extent: &dyn Fn(usize) -> u64) -> Self {
        let below: i64 = self
            .terms
            .iter()
            .map(|(dim, factor)| {
                let last = i64::try_from(extent(*dim).saturating_sub(1)).unwrap_or(i64::MAX);
                factor.min(&0).saturating_mul(last).saturating_neg()
            })
            .fold(0, i64::saturating_add);
        Axis { offset: below, loose: true, ..self.clone() }
    }

    /// Whether it is one dimension and nothing else.
    #[must_use]
    pub fn as_plain(&self) -> Option<usize> {
        match (self.terms.as_slice(), self.offset, self.divide) {
            ([(dim, 1)], 0, 1) => Some(*dim),
            _ => None,
        }
    }
}

/// What an operand is to the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperandRole {
    /// Read.
    Input,
    /// Read once for each tile of the output, after the sum is complete: a bias, a residual.
    Late,
    /// Written.
    Output,
    /// Made and used within one step of the schedule; it never leaves the core.
    Temporary,
}

/// Which side of a compute unit takes an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The left operand of a matrix unit.
    Left,
    /// The right operand of a matrix unit.
    Right,
    /// The accumulators of a matrix unit.
    Accumulator,
    /// An operand or result of a vector unit.
    Vector,
}

/// An operand of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Its name.
    pub name: String,
    /// What its elements are in main memory.
    pub element: ElementType,
    /// What it is to the operator.
    pub role: OperandRole,
    /// Which side of the unit takes it.
    pub side: Side,
    /// Its axes in the order of memory, the innermost last.
    pub axes: Vec<Axis>,
}

impl Operand {
    /// How many elements it has; `None` past 64 bits.
    #[must_use]
    pub fn elements(&self) -> Option<u64> {
        self.axes.iter().try_fold(1_u64, |product, axis| product.checked_mul(axis.extent))
    }

    /// How many bytes it has in main memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        bytes_of(u128::from(self.elements().unwrap_or(u64::MAX)), self.element.bits())
    }

    /// The dimensions that choose which part of it is touched.
    #[must_use]
    pub fn touches(&self, dim: usize) -> bool {
        self.axes.iter().any(|axis| axis.terms.iter().any(|(at, _)| *at == dim))
    }
}

/// Bytes of so many elements of so many bits, held at the most that 64 bits hold.
#[must_use]
pub fn bytes_of(elements: u128, bits: u64) -> u64 {
    u64::try_from(elements.saturating_mul(u128::from(bits)).div_ceil(8)).unwrap_or(u64::MAX)
}

/// Which kind of unit computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// A matrix unit.
    Matrix,
    /// A vector unit.
    Vector,
}

/// One operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Its family.
    pub kind: OperatorKind,
    /// What it is called in messages: the spec, or the node's name.
    pub name: String,
    /// The iteration space.
    pub dims: Vec<Dim>,
    /// Inputs in operand order, then the output, then temporaries.
    pub operands: Vec<Operand>,
    /// The unit that computes it.
    pub unit: Unit,
    /// The type that the unit multiplies, or computes in.
    pub computes: ElementType,
    /// The type of sums that are not complete.
    pub accumulates: ElementType,
    /// Operations of the matrix unit for each iteration; a multiply-accumulate is two.
    pub matrix_per_point: u64,
    /// Operations of the vector unit for each element of the output.
    pub vector_per_output: u64,
    /// Operations of the vector unit for each iteration.
    pub vector_per_point: u64,
    /// Functions applied to the output before it is stored, in order.
    pub epilogue: Vec<String>,
    /// How many parts the sum is split into over cores; they are added at the end.
    pub split: u64,
    /// Reads of every input when a row of the last dimension does not stay in the core (2 for a softmax).
    pub passes: u64,
    /// Iterations that are computed: fewer than the box of the dims where a stride skips some.
    pub points: u128,
}

/// What is wrong with an operator.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OperatorError {
    /// A dimension of zero.
    #[error("'{name}' is 0: an operator with an empty dimension computes nothing; give a number from 1 to 2147483648")]
    Empty {
        /// The dimension.
        name: String,
    },
    /// A dimension beyond the limit.
    #[error("'{name}' is {value}: the largest dimension is 2147483648 (2^31)")]
    TooLarge {
        /// The dimension.
        name: String,
        /// What was given.
        value: u64,
    },
    /// Too many iterations in all.
    #[error("{name}: more than 2^62 steps of work ({dims}); split it, or give smaller dimensions")]
    TooMuch {
        /// The operator.
        name: String,
        /// Its dimensions.
        dims: String,
    },
    /// A window that leaves the data.
    #[error(
        "{name}: a kernel of {kernel} (dilation {dilation}) is larger than the padded input of {input}, so there is no output"
    )]
    NoOutput {
        /// The axis.
        name: String,
        /// Kernel extent.
        kernel: u64,
        /// Dilation.
        dilation: u64,
        /// Input extent with padding.
        input: u64,
    },
    /// Two numbers that must divide.
    #[error("{what} {value} is not divisible by {by} {divisor}")]
    NotDivisible {
        /// What.
        what: String,
        /// Its value.
        value: u64,
        /// By what.
        by: String,
        /// Its value.
        divisor: u64,
    },
    /// A type that no operand may have.
    #[error("'{name}' is {element}: {why}")]
    Element {
        /// The operand.
        name: String,
        /// Its type.
        element: ElementType,
        /// Why not.
        why: String,
    },
}

impl Operator {
    /// Checks what every operator must satisfy.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn validated(self) -> Result<Self, OperatorError> {
        for dim in &self.dims {
            limit(&dim.name, dim.extent)?;
        }
        for axis in self.operands.iter().flat_map(|operand| operand.axes.iter().map(move |axis| (operand, axis))) {
            limit(&axis.0.name, axis.1.extent)?;
        }
        let sizes_fit = self.operands.iter().all(|operand| operand.elements().is_some_and(|n| n < 1 << 60));
        let space = self.dims.iter().try_fold(1_u128, |product, dim| product.checked_mul(u128::from(dim.extent)));
        if !sizes_fit || space.is_none_or(|points| points > MAX_POINTS) {
            return Err(OperatorError::TooMuch { name: self.name.clone(), dims: self.dims_text() });
        }
        for operand in &self.operands {
            if matches!(operand.element, ElementType::Text | ElementType::C64 | ElementType::C128) {
                let why = "the tiler knows integers and real numbers only".to_owned();
                return Err(OperatorError::Element { name: operand.name.clone(), element: operand.element, why });
            }
        }
        Ok(self)
    }

    /// `m=4096 n=4096 k=4096`.
    #[must_use]
    pub fn dims_text(&self) -> String {
        let list: Vec<String> = self.dims.iter().map(|dim| format!("{}={}", dim.name, dim.extent)).collect();
        list.join(" ")
    }

    /// The index of the output among the operands.
    #[must_use]
    pub fn output(&self) -> usize {
        self.operands.iter().position(|operand| operand.role == OperandRole::Output).unwrap_or(0)
    }

    /// Operations of the matrix unit, all together.
    #[must_use]
    pub fn matrix_operations(&self) -> f64 {
        self.points as f64 * self.matrix_per_point as f64
    }

    /// Operations of the vector unit, all together.
    #[must_use]
    pub fn vector_operations(&self) -> f64 {
        let out = self.operands[self.output()].elements().unwrap_or(u64::MAX);
        out as f64 * self.vector_per_output as f64 + self.points as f64 * self.vector_per_point as f64
    }

    /// The least bytes that must cross main memory's port: every input read once, every output written once.
    #[must_use]
    pub fn compulsory_bytes(&self) -> u128 {
        let moved = self.operands.iter().filter(|operand| operand.role != OperandRole::Temporary);
        moved.map(|operand| u128::from(self.needed_bytes(operand))).sum()
    }

    /// Bytes of an operand that are needed at all: a window that steps past its own length skips some.
    #[must_use]
    pub fn needed_bytes(&self, operand: &Operand) -> u64 {
        let needed = |axis: &Axis| u128::from(axis.needed(&|dim| self.dims[dim].extent));
        bytes_of(operand.axes.iter().map(needed).product(), operand.element.bits())
    }

    /// Bytes of an operand from the first that is touched to the last, along every axis.
    #[must_use]
    pub fn moved_bytes(&self, operand: &Operand) -> u64 {
        let all = |dim: usize| (0, self.dims[dim].extent);
        let elements: u128 = operand
            .axes
            .iter()
            .map(|axis| {
                let (first, end) = axis.touched(&all);
                u128::from(end - first)
            })
            .product();
        bytes_of(elements, operand.element.bits())
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A dimension from 1 to the limit.
pub(crate) fn limit(name: &str, value: u64) -> Result<(), OperatorError> {
    match value {
        0 => Err(OperatorError::Empty { name: name.to_owned() }),
        1..=MAX_DIM => Ok(()),
        _ => Err(OperatorError::TooLarge { name: name.to_owned(), value }),
    }
}
