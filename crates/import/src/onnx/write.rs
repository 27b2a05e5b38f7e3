//! Writes ONNX files: enough to make models for examples, tests and benchmarks.
//!
//! ```
//! use npumem_import::onnx::{read, write::{Weights, Writer}, Options};
//! use npumem_ir::ElementType::F32;
//!
//! let mut model = Writer::new("one layer", 17);
//! model.input("x", F32, &["n", "64"]);
//! model.weight("w", F32, &[64, 10], Weights::Random);
//! model.node("MatMul", &["x", "w"], &["y"]);
//! model.output("y");
//! let bytes = model.into_bytes();
//!
//! let mut options = Options::default();
//! options.bind("n=4")?;
//! let graph = read(std::io::Cursor::new(bytes), &options)?.graph;
//! assert_eq!(graph.operators.len(), 1);
//! # Ok::<(), npumem_import::ImportError>(())
//! ```

pub mod models;

use super::element_number;
use super::proto::{
    Attribute, Dimension, DimensionValue, Function, Graph, Model, Node, OperatorSet, Shape, Tensor, TensorType, Type,
    TypeKind, ValueInfo,
};
use npumem_ir::ElementType;
use prost::Message as _;

/// What the elements of a weight are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// The dimensions alone, the elements in a file beside it that need not exist.
    Elsewhere,
    /// Pseudo-random bytes, the same on every run, in the file itself.
    Random,
}

/// A model that is being written.
#[derive(Clone, Debug)]
pub struct Writer {
    model: Model,
    graph: Graph,
    seed: u64,
}

/// An attribute's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// An integer.
    Int(i64),
    /// A number.
    Float(f32),
    /// Text.
    Text(&'a str),
    /// Integers.
    Ints(&'a [i64]),
    /// A body.
    Body(Graph),
}

impl Writer {
    /// An empty model that reads its nodes with this version of the standard operator set.
    #[must_use]
    pub fn new(name: &str, opset: i64) -> Self {
        let model = Model {
            ir_version: 8,
            producer_name: "npumem".into(),
            opset_import: vec![OperatorSet { domain: String::new(), version: opset }],
            ..Model::default()
        };
        Writer { model, graph: Graph { name: name.into(), ..Graph::default() }, seed: 1 }
    }

    /// Reads nodes of another operator set as well.
    pub fn operator_set(&mut self, domain: &str, version: i64) {
        self.model.opset_import.push(OperatorSet { domain: domain.into(), version });
    }

    /// Adds a function.
    pub fn function(&mut self, function: Function) {
        self.model.functions.push(function);
    }

    /// Adds an input; a dimension is a number or a name.
    pub fn input(&mut self, name: &str, element: ElementType, dims: &[&str]) {
        self.graph.input.push(value(name, element, dims));
    }

    /// States the type of a value between nodes.
    pub fn state(&mut self, name: &str, element: ElementType, dims: &[&str]) {
        self.graph.value_info.push(value(name, element, dims));
    }

    /// Makes a value an output; its type is left to the reader.
    pub fn output(&mut self, name: &str) {
        self.graph.output.push(ValueInfo { name: name.into(), r#type: None });
    }

    /// Adds a weight.
    pub fn weight(&mut self, name: &str, element: ElementType, dims: &[u64], weights: Weights) {
        let count = dims.iter().product::<u64>();
        let bytes = element.bytes(count).map_or(0, npumem_ir::Bytes::get);
        let mut tensor = tensor(name, element, dims);
        match weights {
            Weights::Elsewhere => tensor.data_location = 1,
            Weights::Random => {
                tensor.raw_data = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0) + 8);
                while (tensor.raw_data.len() as u64) < bytes {
                    tensor.raw_data.extend(self.random().to_le_bytes());
                }
                tensor.raw_data.truncate(usize::try_from(bytes).unwrap_or(0));
            }
        }
        self.graph.initializer.push(tensor);
    }

    /// Adds a small integer tensor with its elements, `i64`.
    pub fn integers(&mut self, name: &str, values: &[i64]) {
        let mut tensor = tensor(name, ElementType::I64, &[values.len() as u64]);
        tensor.raw_data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.graph.initializer.push(tensor);
    }

    /// Adds a node that makes integers, `i64`: a list of one dimension, or a scalar from a single one.
    pub fn constant(&mut self, name: &str, values: &[i64], scalar: bool) {
        let list = [values.len() as u64];
        let mut tensor = tensor("", ElementType::I64, if scalar { &[] } else { &list });
        tensor.raw_data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut node = node("Constant", &[], &[name], &[]);
        node.attribute.push(Attribute { name: "value".into(), t: Some(tensor), r#type: 4, ..Attribute::default() });
        self.graph.node.push(node);
    }

    /// Adds a node of the standard set without attributes.
    pub fn node(&mut self, kind: &str, inputs: &[&str], outputs: &[&str]) {
        self.node_with(kind, inputs, outputs, &[]);
    }

    /// Adds a node of the standard set; it is named after its first output.
    pub fn node_with(&mut self, kind: &str, inputs: &[&str], outputs: &[&str], attributes: &[(&str, Value<'_>)]) {
        self.graph.node.push(node(kind, inputs, outputs, attributes));
    }

    /// Adds any node.
    pub fn push(&mut self, node: Node) {
        self.graph.node.push(node);
    }

    /// The graph alone, to be a body of another one.
    #[must_use]
    pub fn into_graph(self) -> Graph {
        self.graph
    }

    /// The message.
    #[must_use]
    pub fn into_model(mut self) -> Model {
        self.model.graph = Some(self.graph);
        self.model
    }

    /// The file.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.into_model().encode_to_vec()
    }

    /// A step of a xorshift generator: weights need to be incompressible, not good.
    fn random(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }
}

/// A node of the standard set, named after its first output.
#[must_use]
pub fn node(kind: &str, inputs: &[&str], outputs: &[&str], attributes: &[(&str, Value<'_>)]) -> Node {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
    Node {
        input: owned(inputs),
        output: owned(outputs),
        name: outputs.first().map(|name| (*name).to_string()).unwrap_or_default(),
        op_type: kind.into(),
        attribute: attributes.iter().map(|(name, value)| attribute(name, value)).collect(),
        ..Node::default()
    }
}

fn attribute(name: &str, value: &Value<'_>) -> Attribute {
    let mut attribute = Attribute { name: name.into(), ..Attribute::default() };
    // The numbers are the standard's for which field holds the value.
    match value {
        Value::Float(number) => (attribute.f, attribute.r#type) = (Some(*number), 1),
        Value::Int(number) => (attribute.i, attribute.r#type) = (Some(*number), 2),
        Value::Text(text) => (attribute.s, attribute.r#type) = (Some(text.as_bytes().to_vec()), 3),
        Value::Body(graph) => (attribute.g, attribute.r#type) = (Some(graph.clone()), 5),
        Value::Ints(numbers) => (attribute.ints, attribute.r#type) = (numbers.to_vec(), 7),
    }
    attribute
}

fn tensor(name: &str, element: ElementType, dims: &[u64]) -> Tensor {
    Tensor {
        name: name.into(),
        dims: dims.iter().map(|dim| i64::try_from(*dim).unwrap_or(i64::MAX)).collect(),
        data_type: element_number(element),
        ..Tensor::default()
    }
}

fn value(name: &str, element: ElementType, dims: &[&str]) -> ValueInfo {
    let dimension = |dim: &&str| {
        let value = dim.parse().map_or_else(|_| DimensionValue::Name((*dim).to_string()), DimensionValue::Number);
        Dimension { value: Some(value) }
    };
    let shape = Shape { dim: dims.iter().map(dimension).collect() };
    let tensor = TensorType { elem_type: element_number(element), shape: Some(shape) };
    ValueInfo { name: name.into(), r#type: Some(Type { kind: Some(TypeKind::Tensor(tensor)) }) }
}
