//! How many bytes a tensor needs, when some of its dimensions are ranges or open.

use super::error::GraphError;
use npumem_ir::graph::{Dim, DimExpr, Graph, Shape, Tensor};
use npumem_ir::{Bytes, SymbolId};
use std::collections::BTreeMap;

/// What a dimension is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DimBinding {
    /// One number.
    Fixed(u64),
    /// Anything from the first to the second, both included.
    Range(u64, u64),
}

/// Bindings of symbolic dimensions, by name. They go before the ranges that the graph itself carries.
pub type Dims = BTreeMap<String, DimBinding>;

/// How many bytes a value needs, as far as that is known before the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Size {
    /// Exactly so many.
    Fixed(Bytes),
    /// At most so many: a dimension is a range.
    Ranged(Bytes),
    /// Nothing bounds it: the name of an open dimension, or `None` when not even the rank is known.
    Unbounded(Option<String>),
}

impl Size {
    /// The most that it can be; `None` when nothing bounds it.
    #[must_use]
    pub fn at_most(&self) -> Option<Bytes> {
        match self {
            Size::Fixed(bytes) | Size::Ranged(bytes) => Some(*bytes),
            Size::Unbounded(_) => None,
        }
    }

    /// The exact number, where it is known.
    #[must_use]
    pub fn fixed(&self) -> Option<Bytes> {
        match self {
            Size::Fixed(bytes) => Some(*bytes),
            _ => None,
        }
    }

    /// Of two sizes that are known to be equal, the one that says more.
    pub(crate) fn sharper(&self, other: &Size) -> Size {
        match (self, other) {
            (Size::Fixed(_), _) => self.clone(),
            (_, Size::Fixed(_)) => other.clone(),
            (Size::Ranged(a), Size::Ranged(b)) => Size::Ranged(*a.min(b)),
            (Size::Ranged(_), _) => self.clone(),
            _ => other.clone(),
        }
    }
}

/// The values that a graph's symbols can take.
pub(crate) struct Ranges {
    of: Vec<Option<(u64, u64)>>,
    names: Vec<String>,
}

impl Ranges {
    /// # Errors
    /// A reversed range.
    pub(crate) fn new(graph: &Graph, dims: &Dims) -> Result<Ranges, GraphError> {
        let mut of = Vec::with_capacity(graph.symbols.len());
        for symbol in &graph.symbols {
            let range = match dims.get(&symbol.name) {
                Some(DimBinding::Fixed(value)) => Some((*value, *value)),
                Some(DimBinding::Range(low, high)) => Some((*low, *high)),
                None => symbol.range,
            };
            if let Some((low, high)) = range
                && low > high
            {
                return Err(GraphError::ReversedRange { symbol: symbol.name.clone(), low, high });
            }
            of.push(range);
        }
        Ok(Ranges { of, names: graph.symbols.iter().map(|symbol| symbol.name.clone()).collect() })
    }

    /// The least and the most that a dimension can be.
    fn range(&self, dim: &Dim) -> Ranged {
        match dim {
            Dim::Known(number) => Ranged::Within(*number, *number),
            Dim::Symbol(SymbolId(id)) => match self.of.get(*id as usize).copied().flatten() {
                Some((low, high)) => Ranged::Within(low, high),
                None => Ranged::Open(self.names.get(*id as usize).cloned().unwrap_or_default()),
            },
            Dim::Expr(expr) => {
                // The depth is at most `MAX_DIM_PARTS`.
                let (a, b) = expr.operands();
                match (self.range(a), self.range(b)) {
                    (Ranged::Within(al, ah), Ranged::Within(bl, bh)) => combine(expr, (al, ah), (bl, bh)),
                    (Ranged::TooLarge, _) | (_, Ranged::TooLarge) => Ranged::TooLarge,
                    (open @ Ranged::Open(_), _) | (_, open) => open,
                }
            }
        }
    }

    /// The number that a dimension is, where it can be only one.
    pub(crate) fn exact(&self, dim: &Dim) -> Option<u64> {
        match self.range(dim) {
            Ranged::Within(low, high) if low == high => Some(low),
            _ => None,
        }
    }

    /// The dimensions as numbers, where each can be only one.
    pub(crate) fn dims(&self, tensor: &Tensor) -> Option<Vec<u64>> {
        tensor.shape.dims()?.iter().map(|dim| self.exact(dim)).collect()
    }

    /// How many bytes a tensor needs.
    ///
    /// # Errors
    /// Past 64 bits.
    pub(crate) fn size(&self, tensor: &Tensor) -> Result<Size, GraphError> {
        let too_large = || GraphError::TooLarge { tensor: tensor.name.clone() };
        let dims = match &tensor.shape {
            Shape::Ranked(dims) => dims,
            Shape::Unknown => return Ok(Size::Unbounded(None)),
            Shape::Opaque => return Ok(Size::Fixed(Bytes::ZERO)),
        };
        let ranges: Vec<Ranged> = dims.iter().map(|dim| self.range(dim)).collect();
        // A dimension that is surely zero makes the tensor empty, whatever the others are.
        if ranges.iter().any(|range| matches!(range, Ranged::Within(_, 0))) {
            return Ok(Size::Fixed(Bytes::ZERO));
        }
        let (mut most, mut exact) = (1_u64, true);
        let mut open = None;
        for range in ranges {
            match range {
                Ranged::Within(low, high) => {
                    most = most.checked_mul(high).ok_or_else(too_large)?;
                    exact &= low == high;
                }
                Ranged::TooLarge => return Err(too_large()),
                Ranged::Open(name) => open = open.or(Some(name)),
            }
        }
        if let Some(name) = open {
            return Ok(Size::Unbounded(Some(name)));
        }
        let bytes = tensor.element.bytes(most).ok_or_else(too_large)?;
        Ok(if exact { Size::Fixed(bytes) } else { Size::Ranged(bytes) })
    }
}

enum Ranged {
    Within(u64, u64),
    Open(String),
    TooLarge,
}

/// Interval arithmetic: sound for any values within, though not always tight.
fn combine(expr: &DimExpr, (al, ah): (u64, u64), (bl, bh): (u64, u64)) -> Ranged {
    let within = |low: u64, high: Option<u64>| high.map_or(Ranged::TooLarge, |high| Ranged::Within(low, high));
    match expr {
        DimExpr::Add(..) => within(al.saturating_add(bl), ah.checked_add(bh)),
        DimExpr::Sub(..) => Ranged::Within(al.saturating_sub(bh), ah.saturating_sub(bl)),
        DimExpr::Mul(..) => within(al.saturating_mul(bl), ah.checked_mul(bh)),
        DimExpr::FloorDiv(..) => {
            let low = if bl == 0 { 0 } else { al / bh };
            Ranged::Within(low, if bh == 0 { 0 } else { ah / bl.max(1) })
        }
        DimExpr::CeilDiv(..) => {
            let low = if bl == 0 { 0 } else { al.div_ceil(bh) };
            Ranged::Within(low, if bh == 0 { 0 } else { ah.div_ceil(bl.max(1)) })
        }
        DimExpr::Max(..) => Ranged::Within(al.max(bl), ah.max(bh)),
        DimExpr::Min(..) => Ranged::Within(al.min(bl), ah.min(bh)),
        DimExpr::Mod(..) if al == ah && bl == bh => {
            let value = al.checked_rem(bl).unwrap_or(0);
            Ranged::Within(value, value)
        }
        DimExpr::Mod(..) => Ranged::Within(0, ah.min(bh.saturating_sub(1))),
    }
}
