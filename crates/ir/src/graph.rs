//! The graph: tensors, operators, the order they run in, and dimensions that may be symbols.

use crate::ids::{OperatorId, SymbolId, TensorId};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

mod validate;

pub use validate::GraphError;

/// What is computed: operators over tensors, in execution order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// The model's name.
    pub name: String,
    /// The symbolic dimensions, by [`SymbolId`].
    #[serde(default)]
    pub symbols: Vec<Symbol>,
    /// The tensors, by [`TensorId`].
    pub tensors: Vec<Tensor>,
    /// The operators, by [`OperatorId`], in execution order: every input is made before it is used.
    pub operators: Vec<Operator>,
    /// What the caller gives.
    pub inputs: Vec<TensorId>,
    /// What the caller gets.
    pub outputs: Vec<TensorId>,
}

/// A dimension that the file leaves open, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Symbol {
    /// Its name, as the file spells it (`batch`, `seq_len`) or as the reader made it up.
    pub name: String,
    /// The least and the most that it can be, both included, where a range was given.
    #[serde(default)]
    pub range: Option<(u64, u64)>,
}

/// A value that flows between operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// Its name, unique in its graph.
    pub name: String,
    /// What its elements are.
    pub element: ElementType,
    /// Its dimensions.
    pub shape: Shape,
    /// Where it comes from.
    pub kind: TensorKind,
}

/// Where a tensor comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TensorKind {
    /// The caller gives it.
    Input,
    /// The file carries it, and only its size matters.
    Weight,
    /// It is known before the run: folded, or made by an operator without inputs.
    Constant,
    /// An operator of this graph makes it.
    Computed,
    /// A body uses this tensor of the graph around it.
    Captured(TensorId),
}

/// A tensor's dimensions, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// The rank is known; each dimension is a number or an expression of symbols.
    Ranked(Vec<Dim>),
    /// Nothing is known, not even the rank.
    Unknown,
    /// Not a tensor: a sequence, an optional, a string table. Lives outside planned memory.
    Opaque,
}

/// One dimension.
///
/// In JSON it is a number, or a string in the grammar of `docs/formats/graph.md`: `"s0"`, `"(s0+3)"`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dim {
    /// A number.
    Known(u64),
    /// A symbol as it stands.
    Symbol(SymbolId),
    /// Computed from others.
    Expr(Box<DimExpr>),
}

/// A computed dimension. Built only through [`Dim`]'s arithmetic, which bounds its depth.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DimExpr {
    /// `a + b`
    Add(Dim, Dim),
    /// `a - b`, held at zero
    Sub(Dim, Dim),
    /// `a * b`
    Mul(Dim, Dim),
    /// `a / b`, rounded down; zero when `b` is zero
    FloorDiv(Dim, Dim),
    /// `a / b`, rounded up; zero when `b` is zero
    CeilDiv(Dim, Dim),
    /// the larger one
    Max(Dim, Dim),
    /// the smaller one
    Min(Dim, Dim),
    /// `a mod b`; zero when `b` is zero
    Mod(Dim, Dim),
}

/// An operator: one step of the execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operator {
    /// Its name in the file, or one made from its kind and position.
    pub name: String,
    /// What it does: `Conv`, `MatMul`, ...
    pub kind: String,
    /// Whose operator set it is from; empty for the standard one.
    #[serde(default)]
    pub domain: String,
    /// What it reads; `None` where an optional input is left out.
    pub inputs: Vec<Option<TensorId>>,
    /// What it makes; `None` where an optional output is left out.
    pub outputs: Vec<Option<TensorId>>,
    /// Its attributes, small ones only.
    #[serde(default)]
    pub attributes: BTreeMap<String, Attribute>,
    /// Values of inputs that are small integer constants (axes, pads, a target shape), by input position.
    #[serde(default)]
    pub constants: BTreeMap<usize, Vec<i64>>,
    /// Bodies of control flow (`If`, `Loop`, `Scan`), by attribute name.
    #[serde(default)]
    pub bodies: Vec<Body>,
}

/// A graph inside an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    /// The attribute that holds it: `then_branch`, `else_branch`, `body`.
    pub name: String,
    /// What it computes.
    pub graph: Graph,
}

/// An operator's attribute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attribute {
    /// One integer.
    Int(i64),
    /// One number.
    Float(#[serde(with = "crate::form::float")] f32),
    /// Text.
    Text(String),
    /// Several integers.
    Ints(Vec<i64>),
    /// Several numbers.
    Floats(#[serde(with = "crate::form::float::list")] Vec<f32>),
}

/// What the elements of a tensor are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum ElementType {
    F64,
    F32,
    F16,
    Bf16,
    F8e4m3,
    F8e5m2,
    F4e2m1,
    F8e8m0,
    F6e2m3,
    F6e3m2,
    I64,
    I32,
    I16,
    I8,
    I4,
    I2,
    U64,
    U32,
    U16,
    U8,
    U4,
    U2,
    Bool,
    C64,
    C128,
    /// Strings live outside planned memory.
    Text,
}

impl ElementType {
    /// How many bits one element takes; sub-byte elements are packed.
    #[must_use]
    pub const fn bits(self) -> u64 {
        use ElementType::*;
        match self {
            C128 => 128,
            F64 | I64 | U64 | C64 => 64,
            F32 | I32 | U32 => 32,
            F16 | Bf16 | I16 | U16 => 16,
            F8e4m3 | F8e5m2 | F8e8m0 | I8 | U8 | Bool => 8,
            F6e2m3 | F6e3m2 => 6,
            F4e2m1 | I4 | U4 => 4,
            I2 | U2 => 2,
            Text => 0,
        }
    }

    /// The bytes of `count` elements, the last byte filled up; `None` past 64 bits.
    #[must_use]
    pub const fn bytes(self, count: u64) -> Option<Bytes> {
        let bits = count as u128 * self.bits() as u128;
        let bytes = bits.div_ceil(8);
        if bytes > u64::MAX as u128 { None } else { Some(Bytes(bytes as u64)) }
    }

    /// The name in lower case: `f16`, `bf16`, `i8`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        use ElementType::*;
        match self {
            F64 => "f64",
            F32 => "f32",
            F16 => "f16",
            Bf16 => "bf16",
            F8e4m3 => "f8e4m3",
            F8e5m2 => "f8e5m2",
            F4e2m1 => "f4e2m1",
            F8e8m0 => "f8e8m0",
            F6e2m3 => "f6e2m3",
            F6e3m2 => "f6e3m2",
            I64 => "i64",
            I32 => "i32",
            I16 => "i16",
            I8 => "i8",
            I4 => "i4",
            I2 => "i2",
            U64 => "u64",
            U32 => "u32",
            U16 => "u16",
            U8 => "u8",
            U4 => "u4",
            U2 => "u2",
            Bool => "bool",
            C64 => "c64",
            C128 => "c128",
            Text => "text",
        }
    }

    /// The type of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<ElementType> {
        use ElementType::*;
        const ALL: [ElementType; 26] = [
            F64, F32, F16, Bf16, F8e4m3, F8e5m2, F4e2m1, F8e8m0, F6e2m3, F6e3m2, I64, I32, I16, I8, I4, I2, U64, U32,
            U16, U8, U4, U2, Bool, C64, C128, Text,
        ];
        ALL.into_iter().find(|element| element.name() == name)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An expression of more parts than this is given up for a fresh symbol by whoever builds it
/// (`x = x * x`, forty times over, would otherwise grow past any memory).
pub const MAX_DIM_PARTS: usize = 128;

impl Dim {
    fn parts(&self) -> usize {
        match self {
            Dim::Known(_) | Dim::Symbol(_) => 1,
            Dim::Expr(expr) => {
                let (a, b) = expr.operands();
                1 + a.parts() + b.parts()
            }
        }
    }

    fn combine(
        a: Dim,
        b: Dim,
        known: impl Fn(u64, u64) -> Option<u64>,
        expr: impl Fn(Dim, Dim) -> DimExpr,
    ) -> Option<Dim> {
        if let (Dim::Known(a), Dim::Known(b)) = (&a, &b) {
            return known(*a, *b).map(Dim::Known);
        }
        (a.parts() + b.parts() < MAX_DIM_PARTS).then(|| Dim::Expr(Box::new(expr(a, b))))
    }

    /// The number, where it is one.
    #[must_use]
    pub fn known(&self) -> Option<u64> {
        match self {
            Dim::Known(number) => Some(*number),
            _ => None,
        }
    }

    /// `self + other`; `None` past 64 bits or too large.
    #[must_use]
    pub fn plus(self, other: Dim) -> Option<Dim> {
        match (&self, &other) {
            (Dim::Known(0), _) => Some(other),
            (_, Dim::Known(0)) => Some(self),
            _ => Self::combine(self, other, u64::checked_add, DimExpr::Add),
        }
    }

    /// `self - other`, held at zero; `None` when too large.
    #[must_use]
    pub fn minus(self, other: Dim) -> Option<Dim> {
        if other == Dim::Known(0) {
            return Some(self);
        }
        Self::combine(self, other, |a, b| Some(a.saturating_sub(b)), DimExpr::Sub)
    }

    /// `self * other`; `None` past 64 bits or too large.
    #[must_use]
    pub fn times(self, other: Dim) -> Option<Dim> {
        match (&self, &other) {
            (Dim::Known(1), _) => Some(other),
            (_, Dim::Known(1)) => Some(self),
            (Dim::Known(0), _) | (_, Dim::Known(0)) => Some(Dim::Known(0)),
            _ => Self::combine(self, other, u64::checked_mul, DimExpr::Mul),
        }
    }

    /// `self / other` rounded down; `None` when too large.
    #[must_use]
    pub fn floor_div(self, other: Dim) -> Option<Dim> {
        if other == Dim::Known(1) {
            return Some(self);
        }
        Self::combine(self, other, |a, b| Some(a.checked_div(b).unwrap_or(0)), DimExpr::FloorDiv)
    }

    /// `self / other` rounded up; `None` when too large.
    #[must_use]
    pub fn ceil_div(self, other: Dim) -> Option<Dim> {
        if other == Dim::Known(1) {
            return Some(self);
        }
        Self::combine(self, other, |a, b| Some(if b == 0 { 0 } else { a.div_ceil(b) }), DimExpr::CeilDiv)
    }

    /// The larger one; `None` when too large.
    #[must_use]
    pub fn max(self, other: Dim) -> Option<Dim> {
        if self == other {
            return Some(self);
        }
        Self::combine(self, other, |a, b| Some(a.max(b)), DimExpr::Max)
    }

    /// The smaller one; `None` when too large.
    #[must_use]
    pub fn min(self, other: Dim) -> Option<Dim> {
        if self == other {
            return Some(self);
        }
        Self::combine(self, other, |a, b| Some(a.min(b)), DimExpr::Min)
    }

    /// The value under a binding of symbols; `None` when a symbol is unbound or the value is past 64 bits.
    #[must_use]
    pub fn eval(&self, value_of: &dyn Fn(SymbolId) -> Option<u64>) -> Option<u64> {
        match self {
            Dim::Known(number) => Some(*number),
            Dim::Symbol(symbol) => value_of(*symbol),
            Dim::Expr(expr) => {
                let (a, b) = expr.operands();
                let (a, b) = (a.eval(value_of)?, b.eval(value_of)?);
                match **expr {
                    DimExpr::Add(..) => a.checked_add(b),
                    DimExpr::Sub(..) => Some(a.saturating_sub(b)),
                    DimExpr::Mul(..) => a.checked_mul(b),
                    DimExpr::FloorDiv(..) => Some(a.checked_div(b).unwrap_or(0)),
                    DimExpr::CeilDiv(..) => Some(if b == 0 { 0 } else { a.div_ceil(b) }),
                    DimExpr::Max(..) => Some(a.max(b)),
                    DimExpr::Min(..) => Some(a.min(b)),
                    DimExpr::Mod(..) => Some(a.checked_rem(b).unwrap_or(0)),
                }
            }
        }
    }

    /// The symbols in it, each once, in order of appearance.
    #[must_use]
    pub fn symbols(&self) -> Vec<SymbolId> {
        let mut found = Vec::new();
        let mut todo = vec![self];
        while let Some(dim) = todo.pop() {
            match dim {
                Dim::Known(_) => {}
                Dim::Symbol(symbol) => {
                    if !found.contains(symbol) {
                        found.push(*symbol);
                    }
                }
                Dim::Expr(expr) => {
                    let (a, b) = expr.operands();
                    todo.extend([b, a]);
                }
            }
        }
        found
    }
}

impl DimExpr {
    /// Its two operands.
    #[must_use]
    pub fn operands(&self) -> (&Dim, &Dim) {
        use DimExpr::*;
        match self {
            Add(a, b) | Sub(a, b) | Mul(a, b) | FloorDiv(a, b) | CeilDiv(a, b) | Max(a, b) | Min(a, b) | Mod(a, b) => {
                (a, b)
            }
        }
    }
}

impl Shape {
    /// A shape of numbers.
    #[must_use]
    pub fn known(dims: &[u64]) -> Shape {
        Shape::Ranked(dims.iter().copied().map(Dim::Known).collect())
    }

    /// The dimensions, where the rank is known.
    #[must_use]
    pub fn dims(&self) -> Option<&[Dim]> {
        match self {
            Shape::Ranked(dims) => Some(dims),
            _ => None,
        }
    }

    /// How many elements, as one dimension (a product); `None` when the rank is unknown, past 64 bits, or too large.
    #[must_use]
    pub fn elements(&self) -> Option<Dim> {
        self.dims()?.iter().try_fold(Dim::Known(1), |product, dim| product.times(dim.clone()))
    }
}

impl Graph {
    /// The tensor of that id.
    #[must_use]
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.index()]
    }

    /// The operator of that id.
    #[must_use]
    pub fn operator(&self, id: OperatorId) -> &Operator {
        &self.operators[id.index()]
    }

    /// Every operator with its id, in execution order.
    pub fn operators(&self) -> impl Iterator<Item = (OperatorId, &Operator)> {
        self.operators.iter().enumerate().map(|(index, operator)| (OperatorId::new(index), operator))
    }

    /// Every tensor with its id.
    pub fn tensors(&self) -> impl Iterator<Item = (TensorId, &Tensor)> {
        self.tensors.iter().enumerate().map(|(index, tensor)| (TensorId::new(index), tensor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_byte_elements_are_packed() {
        assert_eq!(ElementType::I4.bytes(3), Some(Bytes(2)));
        assert_eq!(ElementType::F32.bytes(0), Some(Bytes(0)));
        assert_eq!(ElementType::F32.bytes(u64::MAX), None);
        for name in ["f16", "bf16", "i4", "text"] {
            assert_eq!(ElementType::from_name(name).unwrap().name(), name);
        }
    }

    #[test]
    fn dimensions_compute_with_symbols() {
        let s = Dim::Symbol(SymbolId(0));
        let total = s.clone().plus(Dim::Known(3)).unwrap().times(Dim::Known(4)).unwrap();
        assert_eq!(total.eval(&|_| Some(5)), Some(32));
        assert_eq!(total.eval(&|_| None), None);
        assert_eq!(total.symbols(), vec![SymbolId(0)]);
        assert_eq!(Dim::Known(7).ceil_div(Dim::Known(2)), Some(Dim::Known(4)));
        assert_eq!(Dim::Known(u64::MAX).times(Dim::Known(2)), None);
    }

    #[test]
    fn an_expression_too_large_is_given_up() {
        let mut dim = Dim::Symbol(SymbolId(0));
        let mut squarings = 0;
        while let Some(next) = dim.clone().times(dim.clone()) {
            dim = next;
            squarings += 1;
        }
        assert_eq!((squarings, dim.parts()), (6, 127));
    }
}
