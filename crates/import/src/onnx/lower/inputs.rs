//! What a graph starts with and ends in: weights, inputs, outputs.

use super::{Fact, Lower, ScopeId, SlotId, check_size};
use crate::error::quoted;
use crate::onnx::fact::{carried, declared};
use crate::onnx::proto::{self, Graph, SparseTensor, Type};
use crate::onnx::symbols::Symbols;
use crate::{ErrorKind, ImportError};
use npumem_ir::graph::TensorKind;
use npumem_ir::{Dim, Shape};
use std::collections::HashSet;

impl<'m> Lower<'m> {
    /// Keeps what the file says of the values of a graph.
    pub(super) fn declare(&mut self, scope: ScopeId, graph: &'m Graph) {
        let said = graph.value_info.iter().chain(&graph.output);
        let said = said.filter_map(|value| Some((value.name.as_str(), value.r#type.as_ref()?)));
        self.scopes[scope].declared.extend(said);
    }

    /// The weights of a graph.
    pub(super) fn weights(&mut self, scope: ScopeId, graph: &'m Graph) -> Result<(), ImportError> {
        for tensor in &graph.initializer {
            let fact = carried(tensor).map_err(|what| {
                ImportError::new(ErrorKind::Value, format!("weight {}", quoted(&tensor.name)))
                    .found(what)
                    .expected("dimensions and a type that hold its elements")
            })?;
            self.start_value(scope, &tensor.name, fact, TensorKind::Weight)?;
        }
        for sparse in &graph.sparse_initializer {
            let name = sparse.values.as_ref().map_or("", |values| values.name.as_str());
            let fact = sparse_fact(sparse).map_err(|what| {
                ImportError::new(ErrorKind::Value, format!("sparse weight {}", quoted(name)))
                    .found(what)
                    .expected("dimensions and a type that hold its elements")
            })?;
            self.start_value(scope, name, fact, TensorKind::Weight)?;
        }
        Ok(())
    }

    /// A value that is there before any node runs.
    pub(super) fn start_value(
        &mut self,
        scope: ScopeId,
        name: &'m str,
        fact: Fact,
        kind: TensorKind,
    ) -> Result<SlotId, ImportError> {
        let label = if kind == TensorKind::Weight { "weight" } else { "input" };
        check_size(&fact, label, name)?;
        let frame = self.scopes[scope].frame;
        let full = format!("{}{name}", self.scopes[scope].prefix);
        let slot = self.push_slot(full, fact, kind, frame);
        if self.scopes[scope].names.insert(name, Some(slot)).is_some() {
            return Err(ImportError::new(ErrorKind::Duplicate, format!("{label} {}", quoted(name)))
                .found("another input or weight of that name")
                .expected("a name of its own for each value"));
        }
        Ok(slot)
    }

    /// The inputs of the whole model; open dimensions are asked for all at once.
    pub(super) fn model_inputs(&mut self, scope: ScopeId, graph: &'m Graph) -> Result<(), ImportError> {
        let weights: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
        let mut open: Vec<(String, String)> = Vec::new();
        for input in graph.input.iter().filter(|input| !weights.contains(input.name.as_str())) {
            let mut fact = match &input.r#type {
                Some(r#type) => declared_fact(r#type, &input.name, &mut self.symbols)?,
                None => Fact::unknown(),
            };
            if let Some(given) = self.options.shapes.get(&input.name) {
                fact.element = given.element.or(fact.element);
                fact.shape = Shape::known(&given.dims);
                self.given.push(input.name.clone());
            }
            if fact.shape == Shape::Unknown || fact.element.is_none() && fact.shape != Shape::Opaque {
                return Err(ImportError::new(ErrorKind::NeedsAnswer, format!("input {}", quoted(&input.name)))
                    .found("no shape or no element type in the file")
                    .expected("both")
                    .hint(format!("give them: --shape {}=1x2x3:f32", input.name)));
            }
            for symbol in fact.shape.dims().unwrap_or_default().iter().flat_map(Dim::symbols) {
                if self.symbols.is_open(symbol) && open.iter().all(|(name, _)| name != self.symbols.name(symbol)) {
                    open.push((self.symbols.name(symbol).to_string(), input.name.clone()));
                }
            }
            let slot = self.start_value(scope, &input.name, fact, TensorKind::Input)?;
            let id = self.tensor_in(0, slot);
            self.frames[0].graph.inputs.push(id);
        }
        if !open.is_empty() && !self.options.keep_open {
            return Err(missing_dims(&open));
        }
        Ok(())
    }

    pub(super) fn graph_outputs(&mut self, scope: ScopeId, graph: &'m Graph) -> Result<Vec<Fact>, ImportError> {
        let frame = self.scopes[scope].frame;
        let mut facts = Vec::with_capacity(graph.output.len());
        for output in &graph.output {
            let Some(slot) = self.look_up(scope, &output.name).flatten() else {
                return Err(ImportError::new(ErrorKind::Missing, format!("output {}", quoted(&output.name)))
                    .found("no node that makes it")
                    .expected("an output of a node, an input or a weight of the graph"));
            };
            facts.push(self.slots[slot].fact.clone());
            let id = self.tensor_in(frame, slot);
            self.frames[frame].graph.outputs.push(id);
        }
        Ok(facts)
    }
}

fn missing_dims(open: &[(String, String)]) -> ImportError {
    let list: Vec<String> = open
        .iter()
        .take(8)
        .map(|(name, input)| format!("dimension {} of input {}", quoted(name), quoted(input)))
        .collect();
    let flags: Vec<String> = open.iter().take(8).map(|(name, _)| flag(name)).collect();
    let more = if open.len() > 8 { format!(" and {} more", open.len() - 8) } else { String::new() };
    ImportError::new(ErrorKind::NeedsAnswer, "the model")
        .found(format!("open: {}{more}", list.join(", ")))
        .expected("a number or a range for each")
        .hint(format!("bind each: {} (or a range: =1..8)", flags.join(" ")))
}

/// The flag as a shell takes it.
fn flag(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-/:".contains(c));
    if plain { format!("--dim {name}=1") } else { format!("--dim '{name}=1'") }
}

/// What the file says of a value, an unknown element type being an error.
pub(super) fn declared_fact(r#type: &Type, name: &str, symbols: &mut Symbols) -> Result<Fact, ImportError> {
    declared(r#type, name, symbols).map_err(|number| {
        ImportError::new(ErrorKind::Unknown, format!("value {}", quoted(name)))
            .found(format!("element type {number}"))
            .expected("one of the standard's 28")
    })
}

/// A sparse tensor takes the room of the elements that it stores.
pub(super) fn sparse_fact(sparse: &SparseTensor) -> Result<Fact, String> {
    let values = sparse.values.as_ref().ok_or("no values")?;
    let whole = proto::Tensor { dims: sparse.dims.clone(), data_type: values.data_type, ..proto::Tensor::default() };
    let fact = carried(&whole)?;
    Ok(Fact { value: None, ..fact })
}
