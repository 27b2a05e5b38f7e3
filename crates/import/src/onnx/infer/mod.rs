//! What an operator makes of its inputs: element types, shapes, and the elements of small integer tensors.
//!
//! One function for each family of operators; [`infer`] finds it by name. A function never looks at other
//! operators, and never needs the elements of a big tensor.

mod attention;
mod contributed;
mod convolution;
mod elementwise;
mod fused_attention;
mod indexing;
mod layout;
mod learning;
mod recurrent;
mod reduction;
pub(super) mod sequence;
mod signal;
mod values;

use super::fact::{Fact, Scalar, element_of};
use super::proto::Attribute;
use super::symbols::Symbols;
use npumem_ir::{Dim, ElementType};

/// Why no fact came out.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Trouble {
    /// No operator of that name is known.
    UnknownOperator,
    /// The outputs depend on what is not known: a rank, the elements of an input.
    Open(&'static str),
    /// The node is not what the standard allows.
    Bad(String),
}

pub(super) type Facts = Result<Vec<Fact>, Trouble>;

/// One use of an operator: everything that its outputs can depend on.
pub(super) struct Call<'a> {
    pub kind: &'a str,
    pub domain: &'a str,
    /// The version of the operator's set.
    pub version: i64,
    pub attributes: &'a [(&'a str, &'a Attribute)],
    pub inputs: Vec<Option<&'a Fact>>,
    /// The names of the outputs, empty where one is left out.
    pub outputs: &'a [String],
    pub symbols: &'a mut Symbols,
}

/// The facts of the outputs, in order; there may be more or fewer than the node names.
pub(super) fn infer(call: &mut Call<'_>) -> Facts {
    match call.domain {
        "" => standard(call),
        "ai.onnx.ml" => learning::infer(call),
        "ai.onnx.preview" if call.kind == "FlexAttention" => attention::flex(call),
        "ai.onnx.preview.training" => learning::training(call),
        "com.microsoft" | "com.microsoft.nchwc" | "com.ms.internal.nhwc" => contributed::infer(call),
        _ => Err(Trouble::UnknownOperator),
    }
}

fn standard(call: &mut Call<'_>) -> Facts {
    let families = [
        elementwise::infer,
        layout::infer,
        convolution::infer,
        reduction::infer,
        indexing::infer,
        attention::infer,
        recurrent::infer,
        sequence::infer,
        signal::infer,
    ];
    for family in families {
        match family(call) {
            Err(Trouble::UnknownOperator) => {}
            facts => return facts,
        }
    }
    Err(Trouble::UnknownOperator)
}

impl<'a> Call<'a> {
    /// The input at `index`; an error when it is left out.
    pub(super) fn input(&self, index: usize) -> Result<&'a Fact, Trouble> {
        self.given(index).ok_or_else(|| Trouble::Bad(format!("no input {index}")))
    }

    /// The input at `index`, if it is given.
    pub(super) fn given(&self, index: usize) -> Option<&'a Fact> {
        self.inputs.get(index).copied().flatten()
    }

    /// The dimensions of an input.
    pub(super) fn dims(&self, index: usize) -> Result<&'a [Dim], Trouble> {
        self.input(index)?.shape.dims().ok_or(Trouble::Open("the rank of an input is not known"))
    }

    /// The dimensions of an input that must have `rank` of them.
    pub(super) fn ranked<const N: usize>(&self, index: usize) -> Result<[Dim; N], Trouble> {
        let dims = self.dims(index)?;
        <[Dim; N]>::try_from(dims.to_vec())
            .map_err(|dims| Trouble::Bad(format!("input {index} with {} dimensions instead of {N}", dims.len())))
    }

    pub(super) fn element(&self, index: usize) -> Option<ElementType> {
        self.given(index).and_then(|fact| fact.element)
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&'a Attribute> {
        self.attributes.iter().find(|(known, _)| *known == name).map(|(_, attribute)| *attribute)
    }

    pub(super) fn int(&self, name: &str) -> Option<i64> {
        self.attribute(name).and_then(|attribute| attribute.i)
    }

    pub(super) fn int_or(&self, name: &str, otherwise: i64) -> i64 {
        self.int(name).unwrap_or(otherwise)
    }

    pub(super) fn ints(&self, name: &str) -> Option<&'a [i64]> {
        self.attribute(name).map(|attribute| attribute.ints.as_slice())
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.attribute(name).and_then(|attribute| std::str::from_utf8(attribute.s.as_deref()?).ok())
    }

    /// The element type that an attribute names by its number.
    pub(super) fn element_attribute(&self, name: &str) -> Result<Option<ElementType>, Trouble> {
        let Some(number) = self.int(name) else { return Ok(None) };
        let number = i32::try_from(number).map_err(|_| Trouble::Bad(format!("attribute '{name}' {number}")))?;
        element_of(number).map_err(|number| Trouble::Bad(format!("attribute '{name}' {number}, no element type")))
    }

    /// A list that older versions give as an attribute and newer ones as a small input; `None` when left out.
    pub(super) fn list(&self, attribute: &str, input: usize) -> Result<Option<Vec<i64>>, Trouble> {
        if let Some(list) = self.ints(attribute) {
            return Ok(Some(list.to_vec()));
        }
        match self.given(input) {
            None => Ok(None),
            Some(fact) => {
                fact.ints().map(Some).ok_or(Trouble::Open("the elements of an input are not known before the run"))
            }
        }
    }

    /// A dimension that nothing tells, named after the output.
    pub(super) fn fresh(&mut self, output: usize, axis: usize, range: Option<(u64, u64)>) -> Dim {
        let name = self.outputs.get(output).map_or("computed", String::as_str);
        self.symbols.fresh(&format!("{name}[{axis}]"), range)
    }

    /// `axis`, counted from the end when negative, below `rank`.
    pub(super) fn axis(&self, axis: i64, rank: usize) -> Result<usize, Trouble> {
        let rank = rank as i64;
        if axis < -rank || axis >= rank {
            return Err(Trouble::Bad(format!("axis {axis} for {rank} dimensions")));
        }
        Ok((if axis < 0 { axis + rank } else { axis }) as usize)
    }

    /// Like [`Self::axis`], for a place between dimensions: `rank` itself is allowed.
    pub(super) fn edge(&self, axis: i64, rank: usize) -> Result<usize, Trouble> {
        if axis == rank as i64 { Ok(rank) } else { self.axis(axis, rank) }
    }

    pub(super) fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>, Trouble> {
        axes.iter().map(|axis| self.axis(*axis, rank)).collect()
    }

    /// One dimension of two that are broadcast against each other.
    pub(super) fn broadcast_dim(&mut self, a: &Dim, b: &Dim) -> Result<Dim, Trouble> {
        Ok(match (a, b) {
            _ if a == b => a.clone(),
            (Dim::Known(1), other) | (other, Dim::Known(1)) => other.clone(),
            (Dim::Known(a), Dim::Known(b)) => {
                return Err(Trouble::Bad(format!("lengths {a} and {b}, which do not broadcast")));
            }
            // An open length against a number above one is that number, or 1.
            (Dim::Known(number), _) | (_, Dim::Known(number)) => Dim::Known(*number),
            // A made-up length that meets a named one is taken to be it.
            _ if self.symbols.is_made_up(a) => b.clone(),
            _ if self.symbols.is_made_up(b) => a.clone(),
            _ => self.symbols.max(a, b),
        })
    }

    /// Shapes broadcast against each other.
    pub(super) fn broadcast(&mut self, shapes: &[&[Dim]]) -> Result<Vec<Dim>, Trouble> {
        let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
        let mut dims = vec![Dim::Known(1); rank];
        for shape in shapes {
            let lead = rank - shape.len();
            for (axis, dim) in shape.iter().enumerate() {
                dims[lead + axis] = self.broadcast_dim(&dims[lead + axis], dim)?;
            }
        }
        Ok(dims)
    }

    /// The first input's type and shape.
    pub(super) fn like_first(&self) -> Result<Fact, Trouble> {
        let first = self.input(0)?;
        Ok(Fact { value: None, constant: false, ..first.clone() })
    }
}

/// A non-negative number as a dimension.
fn length(number: i64) -> Result<Dim, Trouble> {
    u64::try_from(number).map(Dim::Known).map_err(|_| Trouble::Bad(format!("length {number}")))
}

/// The number under a symbol-free dimension as `i64`.
fn number_of(dim: &Dim) -> Option<i64> {
    dim.known().and_then(|number| i64::try_from(number).ok())
}

fn scalars(numbers: &[i64]) -> Vec<Scalar> {
    numbers.iter().copied().map(Scalar::Int).collect()
}
