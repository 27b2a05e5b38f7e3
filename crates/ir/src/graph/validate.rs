//! What makes a graph meaningless: ids that nothing has, two makers of one tensor, a use before the making.

use super::{Graph, Shape, TensorKind};
use crate::ids::{SymbolId, TensorId};
use std::collections::HashSet;

/// One thing wrong with a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// An id past the end of the tensors.
    #[error("{place} names tensor {tensor}, and the graph has {count}")]
    UnknownTensor {
        /// Who names it.
        place: String,
        /// The id.
        tensor: TensorId,
        /// How many there are.
        count: usize,
    },
    /// An id past the end of the symbols.
    #[error("tensor '{tensor}' has a dimension of symbol {symbol}, and the graph has {count} symbols")]
    UnknownSymbol {
        /// The tensor.
        tensor: String,
        /// The id.
        symbol: SymbolId,
        /// How many there are.
        count: usize,
    },
    /// Two tensors of one name.
    #[error("two tensors are called '{0}'")]
    DuplicateTensor(String),
    /// A range whose least is past its most.
    #[error("symbol '{0}' ranges from {1} to {2}")]
    ReversedRange(String, u64, u64),
    /// Two operators make one tensor.
    #[error("tensor '{0}' is made twice, the second time by operator '{1}'")]
    MadeTwice(String, String),
    /// An operator reads a computed tensor that no operator before it makes.
    #[error("operator '{1}' reads tensor '{0}' before it is made; operators stand in execution order")]
    UsedBeforeMade(String, String),
}

impl Graph {
    /// What makes the graph meaningless: the first fault of each graph in it, bodies included; empty when it is sound.
    #[must_use]
    pub fn validate(&self) -> Vec<GraphError> {
        let mut errors = Vec::new();
        let mut todo: Vec<(&Graph, Option<&Graph>)> = vec![(self, None)];
        while let Some((graph, around)) = todo.pop() {
            if let Err(error) = graph.tensors_are_sound(around).and_then(|()| graph.order_is_sound()) {
                errors.push(error);
            }
            for operator in graph.operators.iter().rev() {
                todo.extend(operator.bodies.iter().rev().map(|body| (&body.graph, Some(graph))));
            }
        }
        errors
    }

    fn known(&self, place: impl Fn() -> String, tensor: TensorId) -> Result<TensorId, GraphError> {
        let count = self.tensors.len();
        if tensor.index() < count {
            return Ok(tensor);
        }
        Err(GraphError::UnknownTensor { place: place(), tensor, count })
    }

    fn tensors_are_sound(&self, around: Option<&Graph>) -> Result<(), GraphError> {
        for symbol in &self.symbols {
            if let Some((least, most)) = symbol.range.filter(|(least, most)| least > most) {
                return Err(GraphError::ReversedRange(symbol.name.clone(), least, most));
            }
        }
        let mut names = HashSet::new();
        for tensor in &self.tensors {
            if !names.insert(tensor.name.as_str()) {
                return Err(GraphError::DuplicateTensor(tensor.name.clone()));
            }
            if let Shape::Ranked(dims) = &tensor.shape {
                let count = self.symbols.len();
                if let Some(symbol) = dims.iter().flat_map(super::Dim::symbols).find(|symbol| symbol.index() >= count) {
                    return Err(GraphError::UnknownSymbol { tensor: tensor.name.clone(), symbol, count });
                }
            }
            if let TensorKind::Captured(outer) = tensor.kind {
                let count = around.map_or(0, |graph| graph.tensors.len());
                if outer.index() >= count {
                    let place = format!("captured tensor '{}'", tensor.name);
                    return Err(GraphError::UnknownTensor { place, tensor: outer, count });
                }
            }
        }
        Ok(())
    }

    fn order_is_sound(&self) -> Result<(), GraphError> {
        let mut made = vec![false; self.tensors.len()];
        for input in &self.inputs {
            self.known(|| "the list of inputs".into(), *input)?;
        }
        for operator in &self.operators {
            let place = || format!("operator '{}'", operator.name);
            for input in operator.inputs.iter().flatten() {
                let input = self.known(place, *input)?;
                let tensor = self.tensor(input);
                if tensor.kind == TensorKind::Computed && !made[input.index()] {
                    return Err(GraphError::UsedBeforeMade(tensor.name.clone(), operator.name.clone()));
                }
            }
            for output in operator.outputs.iter().flatten() {
                let output = self.known(place, *output)?;
                if std::mem::replace(&mut made[output.index()], true) {
                    return Err(GraphError::MadeTwice(self.tensor(output).name.clone(), operator.name.clone()));
                }
            }
        }
        for output in &self.outputs {
            self.known(|| "the list of outputs".into(), *output)?;
        }
        Ok(())
    }
}
