//! ONNX models: `.onnx` to [`ir::Graph`](npumem_ir::Graph).
//!
//! ```text
//!   file --slim--> small message --decode--> proto --lower (order, functions, bodies)--> Graph
//!                                                     `-- infer: types, shapes, small values
//! ```
//! Weights are never read: a 100 MB file costs what its nodes cost. The file's own descriptions of values are used
//! first, then what the operators say; what neither tells is asked for by name (`--dim`, `--shape`).
//! A tensor that is known before the run (made of weights and constants only) is a constant, and the operators that
//! make it do not appear in the graph.

mod fact;
mod infer;
mod lower;
mod order;
pub mod proto;
mod slim;
mod symbols;
pub mod write;

use crate::{ErrorKind, ImportError};
use npumem_ir::{ElementType, Graph};
use prost::Message as _;
use std::collections::BTreeMap;
use std::io::{Read, Seek};

pub use fact::element_number;

/// What the caller knows and the file does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Open dimensions by name: those of the file, or those that a message of ours names (`boxes[0]`).
    pub dims: BTreeMap<String, Binding>,
    /// Shapes of tensors by name: of unknown operators' outputs, or instead of what the file says.
    pub shapes: BTreeMap<String, GivenShape>,
    /// Whether dimensions of the inputs may stay without a number and without a range.
    pub keep_open: bool,
}

/// What a dimension is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// One number: the dimension is as good as written in the file.
    Number(u64),
    /// The least and the most that it can be, both included: it stays a symbol.
    Range(u64, u64),
}

/// A tensor's shape as the caller gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenShape {
    /// The dimensions.
    pub dims: Vec<u64>,
    /// The element type; what the file says, or that of the operator's first input, when left out.
    pub element: Option<ElementType>,
}

/// A model as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// What it computes.
    pub graph: Graph,
    /// How many operators were known before the run and are left out.
    pub folded: usize,
    /// What the file says that is not so, a sentence each: shapes that its operators contradict.
    pub notes: Vec<String>,
}

impl Options {
    /// Takes `name=4` or `name=1..4096` (both ends included).
    ///
    /// # Errors
    /// What was found and what was expected.
    pub fn bind(&mut self, text: &str) -> Result<(), ImportError> {
        let bad = || {
            ImportError::new(ErrorKind::Value, "--dim")
                .found_value(text)
                .expected("a name and a number or a range, such as batch=4 or s=1..4096")
        };
        let (name, value) = text.rsplit_once('=').ok_or_else(bad)?;
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| bad());
        let binding = match value.split_once("..") {
            Some((low, high)) => {
                let (low, high) = (number(low)?, number(high.trim_start_matches('='))?);
                match low.cmp(&high) {
                    std::cmp::Ordering::Less => Binding::Range(low, high),
                    std::cmp::Ordering::Equal => Binding::Number(low),
                    std::cmp::Ordering::Greater => return Err(bad().hint("the lower end comes first")),
                }
            }
            None => Binding::Number(number(value)?),
        };
        if name.is_empty() {
            return Err(bad());
        }
        if self.dims.insert(name.to_string(), binding).is_some_and(|before| before != binding) {
            return Err(ImportError::new(ErrorKind::Duplicate, "--dim").found_value(name).expected("one value for it"));
        }
        Ok(())
    }

    /// Takes `tensor=1x2x3`, `tensor=1x2x3:f16`; `tensor=scalar` for no dimensions.
    ///
    /// # Errors
    /// What was found and what was expected.
    pub fn give_shape(&mut self, text: &str) -> Result<(), ImportError> {
        let bad = || {
            ImportError::new(ErrorKind::Value, "--shape")
                .found_value(text)
                .expected("a tensor and its dimensions, such as boxes=1x100x4 or boxes=1x100x4:f16")
        };
        let (name, value) = text.rsplit_once('=').ok_or_else(bad)?;
        let (dims, element) = match value.split_once(':') {
            Some((dims, element)) => (dims, Some(ElementType::from_name(element.trim()).ok_or_else(bad)?)),
            None => (value, None),
        };
        let dims = match dims.trim() {
            "scalar" => Vec::new(),
            dims => dims.split('x').map(|dim| dim.trim().parse()).collect::<Result<_, _>>().map_err(|_| bad())?,
        };
        if name.is_empty() {
            return Err(bad());
        }
        let given = GivenShape { dims, element };
        if self.shapes.insert(name.to_string(), given.clone()).is_some_and(|before| before != given) {
            return Err(ImportError::new(ErrorKind::Duplicate, "--shape")
                .found_value(name)
                .expected("one shape for it"));
        }
        Ok(())
    }
}

/// Reads a model: every shape that can be known is known, operators stand in execution order.
///
/// # Errors
/// A file that is not ONNX, contradicts itself, or leaves open what only the caller can know; see [`ErrorKind`].
pub fn read<R: Read + Seek>(source: R, options: &Options) -> Result<Model, ImportError> {
    let model = decode(source)?;
    lower::lower(&model, options)
}

/// The file's message without its weights: big payloads are left out, everything else is as it stands there.
///
/// # Errors
/// A file that is no well-formed ONNX message.
pub fn decode<R: Read + Seek>(source: R) -> Result<proto::Model, ImportError> {
    let slim = slim::slim(source)?;
    proto::Model::decode(slim.as_slice()).map_err(|error| {
        ImportError::new(ErrorKind::Syntax, "the model").found(error.to_string()).expected("an ONNX message")
    })
}

#[cfg(test)]
mod tests;
