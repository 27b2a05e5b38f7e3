//! The messages of `onnx.proto` that npumem reads and writes, field for field as far as it needs them.
//!
//! Written by hand from the public field numbers, so no protobuf compiler is needed to build.
//! Documentation strings and metadata are left out: `slim` drops them before anything is decoded.

use prost::{Message, Oneof};

/// A file: one graph, the functions that it may call, the versions of the operator sets.
#[derive(Clone, PartialEq, Message)]
pub struct Model {
    /// The version of the file format itself.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// The tool that wrote the file.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// What the model computes.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<Graph>,
    /// The operator sets that the nodes are read with.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSet>,
    /// Operators that the file defines from others.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<Function>,
}

/// An operator set and its version.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSet {
    /// Empty for the standard one.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// The version.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// Nodes, the weights that they read, and what goes in and out.
#[derive(Clone, PartialEq, Message)]
pub struct Graph {
    /// The operators, in an order that the standard wants to be an execution order.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<Node>,
    /// The name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The weights.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<Tensor>,
    /// The inputs; before version 4 of the format the weights are listed here as well.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfo>,
    /// The outputs.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfo>,
    /// What the file says of the values between.
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfo>,
    /// The weights that are stored sparse.
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SparseTensor>,
}

/// One use of an operator.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    /// What it reads; an empty name is an input left out.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// What it makes; an empty name is an output left out.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// Its name; may be empty.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The operator.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// The attributes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<Attribute>,
    /// The operator's set; empty for the standard one.
    #[prost(string, tag = "7")]
    pub domain: String,
    /// Which overload of a function is called.
    #[prost(string, tag = "8")]
    pub overload: String,
}

/// A named value that is fixed when the model is written.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// A number.
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    /// An integer.
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    /// Text, or any bytes.
    #[prost(bytes = "vec", optional, tag = "4")]
    pub s: Option<Vec<u8>>,
    /// A tensor.
    #[prost(message, optional, tag = "5")]
    pub t: Option<Tensor>,
    /// A body.
    #[prost(message, optional, tag = "6")]
    pub g: Option<Graph>,
    /// Numbers.
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    /// Integers.
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    /// Texts.
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub strings: Vec<Vec<u8>>,
    /// Bodies.
    #[prost(message, repeated, tag = "11")]
    pub graphs: Vec<Graph>,
    /// A type, for operators that make an optional or a sequence.
    #[prost(message, optional, tag = "14")]
    pub tp: Option<Type>,
    /// Which of the fields holds the value, by the standard's numbering; 0 in old files.
    #[prost(int32, tag = "20")]
    pub r#type: i32,
    /// In a function's body: the attribute of the call that gives the value.
    #[prost(string, tag = "21")]
    pub ref_attr_name: String,
    /// A sparse tensor.
    #[prost(message, optional, tag = "22")]
    pub sparse_tensor: Option<SparseTensor>,
}

/// A tensor that the file carries, or points to in another file.
#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    /// The dimensions.
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    /// What the elements are, by the standard's numbering.
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    /// The elements of a small `f32` (or complex) tensor, when not in `raw_data`.
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// The elements of a small tensor of a narrow type, when not in `raw_data`.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// The elements of a small `i64` tensor, when not in `raw_data`.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// The name.
    #[prost(string, tag = "8")]
    pub name: String,
    /// The elements, little-endian.
    #[prost(bytes = "vec", tag = "9")]
    pub raw_data: Vec<u8>,
    /// The elements of a small `f64` tensor, when not in `raw_data`.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// The elements of a small `u64` or `u32` tensor, when not in `raw_data`.
    #[prost(uint64, repeated, tag = "11")]
    pub uint64_data: Vec<u64>,
    /// 1 when the elements lie in another file.
    #[prost(int32, tag = "14")]
    pub data_location: i32,
    /// Where they lie then (`location`, `offset`, `length`).
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<Entry>,
}

/// A key and a value.
#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    /// The key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A tensor of which only some elements are stored.
#[derive(Clone, PartialEq, Message)]
pub struct SparseTensor {
    /// The elements; its name is the tensor's name.
    #[prost(message, optional, tag = "1")]
    pub values: Option<Tensor>,
    /// Where they belong.
    #[prost(message, optional, tag = "2")]
    pub indices: Option<Tensor>,
    /// The dimensions of the whole.
    #[prost(int64, repeated, tag = "3")]
    pub dims: Vec<i64>,
}

/// A name and what is known of its value.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfo {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<Type>,
}

/// What a value is.
#[derive(Clone, PartialEq, Message)]
pub struct Type {
    /// One of the kinds.
    #[prost(oneof = "TypeKind", tags = "1, 4, 5, 7, 8, 9")]
    pub kind: Option<TypeKind>,
}

/// The kinds of values.
#[derive(Clone, PartialEq, Oneof)]
pub enum TypeKind {
    /// A tensor.
    #[prost(message, tag = "1")]
    Tensor(TensorType),
    /// A sequence of values of one type.
    #[prost(message, tag = "4")]
    Sequence(Box<ElementOf>),
    /// A map; what is in it does not matter here.
    #[prost(message, tag = "5")]
    Map(Anything),
    /// Something that only its owner knows.
    #[prost(message, tag = "7")]
    Opaque(Anything),
    /// A sparse tensor.
    #[prost(message, tag = "8")]
    Sparse(TensorType),
    /// A value that may be missing.
    #[prost(message, tag = "9")]
    Optional(Box<ElementOf>),
}

/// A tensor's elements and dimensions.
#[derive(Clone, PartialEq, Message)]
pub struct TensorType {
    /// What the elements are, by the standard's numbering.
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    /// The dimensions; missing when not even the rank is known.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<Shape>,
}

/// The type of what a sequence or an optional holds.
#[derive(Clone, PartialEq, Message)]
pub struct ElementOf {
    /// The type.
    #[prost(message, optional, tag = "1")]
    pub elem_type: Option<Type>,
}

/// A message of which nothing is read.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Anything {}

/// Dimensions.
#[derive(Clone, PartialEq, Message)]
pub struct Shape {
    /// The dimensions.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

/// One dimension.
#[derive(Clone, PartialEq, Message)]
pub struct Dimension {
    /// A number or a name; nothing when it is open.
    #[prost(oneof = "DimensionValue", tags = "1, 2")]
    pub value: Option<DimensionValue>,
}

/// A number or a name.
#[derive(Clone, PartialEq, Oneof)]
pub enum DimensionValue {
    /// A number.
    #[prost(int64, tag = "1")]
    Number(i64),
    /// A name.
    #[prost(string, tag = "2")]
    Name(String),
}

/// An operator that is made of others.
#[derive(Clone, PartialEq, Message)]
pub struct Function {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The names of the inputs.
    #[prost(string, repeated, tag = "4")]
    pub input: Vec<String>,
    /// The names of the outputs.
    #[prost(string, repeated, tag = "5")]
    pub output: Vec<String>,
    /// The names of the attributes that a call may give.
    #[prost(string, repeated, tag = "6")]
    pub attribute: Vec<String>,
    /// The nodes.
    #[prost(message, repeated, tag = "7")]
    pub node: Vec<Node>,
    /// The operator sets that the nodes are read with.
    #[prost(message, repeated, tag = "9")]
    pub opset_import: Vec<OperatorSet>,
    /// Whose operator it is.
    #[prost(string, tag = "10")]
    pub domain: String,
    /// Attributes with the value that they have when a call gives none.
    #[prost(message, repeated, tag = "11")]
    pub attribute_proto: Vec<Attribute>,
    /// What the file says of the values between.
    #[prost(message, repeated, tag = "12")]
    pub value_info: Vec<ValueInfo>,
    /// Which of several functions of one name.
    #[prost(string, tag = "13")]
    pub overload: String,
}
