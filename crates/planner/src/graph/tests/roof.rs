//! Bytes, operations and times worked out by hand.

use super::build::{Build, space};
use crate::graph::roofline::{Bounding, Rates, Roofline, roofline};
use crate::graph::{Actions, Dims, Line, Storage};
use npumem_ir::graph::{Attribute, TensorKind};
use npumem_ir::{Bytes, ElementType};
use std::collections::BTreeMap;

fn roof(b: &Build, rates: &Rates) -> Roofline {
    let line = Line::new(&b.graph, &Dims::new()).unwrap();
    roofline(&line, &Storage::new(&line, Actions::ALL, space(64).alignment), rates)
}

fn rates(bandwidth: f64, matrix: f64, vector: f64) -> Rates {
    let of = |rate| BTreeMap::from([(ElementType::F32, rate)]);
    Rates { bandwidth: Some(bandwidth), matrix: of(matrix), vector: of(vector) }
}

/// The operations of one operator, from the shapes of its inputs and its output.
fn ops(kind: &str, inputs: &[&[u64]], out: &[u64], attributes: &[(&str, Attribute)]) -> (u64, u64) {
    let mut b = Build::new();
    let ids: Vec<_> = inputs.iter().enumerate().map(|(i, dims)| b.input(&format!("i{i}"), dims)).collect();
    let y = b.op(kind, &ids, "y", out);
    for (name, value) in attributes {
        b.attribute(name, value.clone());
    }
    b.output(y);
    let roof = roof(&b, &Rates::default());
    assert!(roof.uncounted.is_empty(), "{kind}: {:?}", roof.uncounted);
    (roof.operators[0].matrix, roof.operators[0].vector)
}

#[test]
fn operations_follow_the_shapes() {
    let int = Attribute::Int;
    // ResNet's first convolution: 112 * 112 * 64 outputs, 3 * 7 * 7 products each, a bias.
    let first = ops("Conv", &[&[1, 3, 224, 224], &[64, 3, 7, 7], &[64]], &[1, 64, 112, 112], &[]);
    assert_eq!(first, (2 * 112 * 112 * 64 * 147, 112 * 112 * 64));
    // Depthwise: one input channel per output channel.
    assert_eq!(ops("Conv", &[&[1, 32, 8, 8], &[32, 1, 3, 3]], &[1, 32, 8, 8], &[]), (2 * 32 * 64 * 9, 0));
    assert_eq!(ops("ConvTranspose", &[&[1, 8, 4, 4], &[8, 5, 2, 2]], &[1, 5, 8, 8], &[]), (2 * 128 * 20, 0));
    assert_eq!(ops("MatMul", &[&[2, 5, 7], &[7, 3]], &[2, 5, 3], &[]), (2 * 30 * 7, 0));
    assert_eq!(ops("FusedMatMul", &[&[7, 5], &[7, 3]], &[5, 3], &[("transA", int(1))]), (2 * 15 * 7, 0));
    assert_eq!(ops("Gemm", &[&[5, 7], &[3, 7], &[3]], &[5, 3], &[("transB", int(1))]), (2 * 15 * 7, 15));
    assert_eq!(
        ops("Einsum", &[&[2, 3, 4], &[2, 5, 4]], &[2, 3, 5], &[("equation", Attribute::Text("bij,bkj->bik".into()))]),
        (240, 0)
    );
    // 10 turns, batch 2, 4 gates of 6, input 3.
    assert_eq!(ops("LSTM", &[&[10, 2, 3], &[1, 24, 3], &[1, 24, 6]], &[10, 1, 2, 6], &[]), (2 * 20 * 216, 20 * 24 * 3));
    // Scores and their product with the values: 2 * 4 * 9 pairs of width 8, 2 heads.
    let heads = [("num_heads", int(2))];
    assert_eq!(
        ops("MultiHeadAttention", &[&[2, 4, 8], &[2, 9, 8], &[2, 9, 8]], &[2, 4, 8], &heads),
        (4 * 72 * 8, 72 * 10)
    );
    assert_eq!(ops("Softmax", &[&[4, 8]], &[4, 8], &[]), (0, 160));
    assert_eq!(ops("Add", &[&[4, 8], &[8]], &[4, 8], &[]), (0, 32));
    assert_eq!(ops("ReduceMean", &[&[4, 8]], &[4, 1], &[]), (0, 32));
    let window = [("kernel_shape", Attribute::Ints(vec![3, 3]))];
    assert_eq!(ops("MaxPool", &[&[1, 2, 8, 8]], &[1, 2, 4, 4], &window), (0, 32 * 9));
    assert_eq!(ops("Pad", &[&[4]], &[6], &[]), (0, 0));
}

#[test]
fn the_slowest_engine_bounds_the_whole() {
    let mut b = Build::new();
    let x = b.input("x", &[64, 64]);
    let w = b.weight("w", &[64, 64]);
    let a = b.op("MatMul", &[x, w], "a", &[64, 64]);
    let v = b.op("Reshape", &[a], "v", &[4096]);
    let r = b.op("Relu", &[v], "r", &[4096]);
    b.output(r);
    // 3 + 2 tensors of 16 KiB; the view moves nothing. 2 * 64^3 and 4,096 operations.
    let roof_at = |rates: &Rates| roof(&b, rates);
    let slow_memory = roof_at(&rates(1e3, 1e9, 1e9));
    assert_eq!(slow_memory.bound.unwrap(), (Bounding::Memory, 81.92));
    assert_eq!(slow_memory.operators[1].read, Bytes(0));
    let slow_matrix = roof_at(&rates(1e9, 1e3, 1e9));
    assert_eq!(slow_matrix.bound.unwrap(), (Bounding::Matrix, 524.288));
    let even = roof_at(&rates(81_920.0, 524_288.0, 4096.0));
    // Each engine needs a second; one after another: the product, then the larger of bytes (0.4) and vector (1).
    assert_eq!(even.bound.unwrap(), (Bounding::Memory, 1.0));
    assert_eq!(even.one_after_another, Some(2.0));
}

#[test]
fn what_is_not_known_is_said() {
    let mut b = Build::new();
    let x = b.input("x", &[8]);
    let y = b.op("Mystery", &[x], "y", &[8]);
    let z = b.op("MatMul", &[y, x], "z", &[1]);
    b.output(z);
    let roof = roof(&b, &Rates { bandwidth: Some(0.0), ..Rates::default() });
    assert_eq!(roof.missing, ["bandwidth", "matrix f32"]);
    assert_eq!(roof.uncounted, BTreeMap::from([("Mystery".to_owned(), 1)]));
    assert_eq!((roof.bound, roof.one_after_another), (None, None));
    assert_eq!(roof.engines[0].amount, 64 + 32 + 32 + 4);
}

#[test]
fn only_the_rows_that_are_gathered_are_read() {
    let mut b = Build::new();
    let table = b.weight("table", &[30_000, 16]);
    let index = b.tensor("index", ElementType::I64, npumem_ir::Shape::known(&[5]), TensorKind::Input);
    b.graph.inputs.push(index);
    let y = b.op("Gather", &[table, index], "y", &[5, 16]);
    b.output(y);
    let roof = roof(&b, &Rates::default());
    assert_eq!((roof.operators[0].read, roof.operators[0].written), (Bytes(5 * 64 + 40), Bytes(320)));
}
