//! Models that npumem writes itself: the examples it ships with, and the ones it is measured on.

use super::{Value, Weights, Writer};
use npumem_ir::ElementType::{F16, F32, I64};

/// The shape of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoder {
    /// How many layers.
    pub layers: u64,
    /// The width of the stream between them.
    pub hidden: u64,
    /// Heads of the queries.
    pub heads: u64,
    /// Heads of the keys and values.
    pub pairs: u64,
    /// The width inside of the feed-forward part.
    pub inner: u64,
    /// How many words there are.
    pub words: u64,
}

impl Decoder {
    /// One small block, to be looked at.
    pub const SMALL: Decoder = Decoder { layers: 1, hidden: 256, heads: 4, pairs: 2, inner: 704, words: 1024 };
    /// Thirty-two layers as 7-billion-parameter models have them.
    pub const LARGE: Decoder = Decoder { layers: 32, hidden: 4096, heads: 32, pairs: 8, inner: 14_336, words: 32_000 };
}

/// Convolutions over an image of three channels, 64 by 64: a residual block, pooling, a classifier.
#[must_use]
pub fn small_cnn() -> Vec<u8> {
    let mut model = Writer::new("small cnn", 17);
    model.input("image", F32, &["1", "3", "64", "64"]);
    conv(&mut model, "stem", "image", [3, 16, 3], 2, Weights::Elsewhere);
    model.node("Relu", &["stem"], &["stem_relu"]);
    conv(&mut model, "left", "stem_relu", [16, 16, 3], 1, Weights::Elsewhere);
    model.node("Relu", &["left"], &["left_relu"]);
    conv(&mut model, "right", "left_relu", [16, 16, 3], 1, Weights::Elsewhere);
    model.node("Add", &["right", "stem_relu"], &["sum"]);
    model.node("Relu", &["sum"], &["block"]);
    conv(&mut model, "down", "block", [16, 32, 3], 2, Weights::Elsewhere);
    model.node("Relu", &["down"], &["down_relu"]);
    classifier(&mut model, "down_relu", 32, 10, Weights::Elsewhere);
    model.into_bytes()
}

/// ResNet-50 for one image of 224 by 224, 25.5 million weights of 32 bits.
#[must_use]
pub fn resnet50(weights: Weights) -> Vec<u8> {
    let mut model = Writer::new("resnet50", 17);
    model.input("image", F32, &["1", "3", "224", "224"]);
    conv(&mut model, "stem", "image", [3, 64, 7], 2, weights);
    model.node("Relu", &["stem"], &["stem_relu"]);
    let window = [
        ("kernel_shape", Value::Ints(&[3, 3])),
        ("strides", Value::Ints(&[2, 2])),
        ("pads", Value::Ints(&[1, 1, 1, 1])),
    ];
    model.node_with("MaxPool", &["stem_relu"], &["pool"], &window);
    let mut last = ("pool".to_string(), 64);
    for (stage, (blocks, inner)) in [(3, 64), (4, 128), (6, 256), (3, 512)].into_iter().enumerate() {
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let name = format!("stage{stage}_block{block}");
            last = bottleneck(&mut model, &name, &last, inner, stride, weights);
        }
    }
    classifier(&mut model, &last.0, last.1, 1000, weights);
    model.into_bytes()
}

/// Three convolutions around a shortcut; gives the name and the channels of what comes out.
fn bottleneck(
    model: &mut Writer,
    name: &str,
    (input, channels): &(String, u64),
    inner: u64,
    stride: i64,
    weights: Weights,
) -> (String, u64) {
    let at = |part: &str| format!("{name}_{part}");
    let outer = 4 * inner;
    conv(model, &at("a"), input, [*channels, inner, 1], 1, weights);
    model.node("Relu", &[&at("a")], &[&at("a_relu")]);
    conv(model, &at("b"), &at("a_relu"), [inner, inner, 3], stride, weights);
    model.node("Relu", &[&at("b")], &[&at("b_relu")]);
    conv(model, &at("c"), &at("b_relu"), [inner, outer, 1], 1, weights);
    let shortcut = if *channels == outer {
        input.clone()
    } else {
        conv(model, &at("shortcut"), input, [*channels, outer, 1], stride, weights);
        at("shortcut")
    };
    model.node("Add", &[&at("c"), &shortcut], &[&at("sum")]);
    model.node("Relu", &[&at("sum")], &[&at("out")]);
    (at("out"), outer)
}

/// A square convolution with a bias; `sides` are input channels, output channels and the kernel's side.
fn conv(model: &mut Writer, name: &str, input: &str, [from, to, side]: [u64; 3], stride: i64, weights: Weights) {
    let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
    model.weight(&weight, F32, &[to, from, side, side], weights);
    model.weight(&bias, F32, &[to], weights);
    let pad = side.cast_signed() / 2;
    let attributes = [("strides", Value::Ints(&[stride; 2])), ("pads", Value::Ints(&[pad; 4]))];
    model.node_with("Conv", &[input, &weight, &bias], &[name], &attributes);
}

fn classifier(model: &mut Writer, input: &str, channels: u64, classes: u64, weights: Weights) {
    model.node("GlobalAveragePool", &[input], &["pooled"]);
    model.node("Flatten", &["pooled"], &["features"]);
    model.weight("classifier.weight", F32, &[classes, channels], weights);
    model.weight("classifier.bias", F32, &[classes], weights);
    let inputs = ["features", "classifier.weight", "classifier.bias"];
    model.node_with("Gemm", &inputs, &["scores"], &[("transB", Value::Int(1))]);
    model.node("Softmax", &["scores"], &["probabilities"]);
    model.output("probabilities");
}

/// A decoder of a language model as an exporter writes it, node by node: `words` in, scores and new keys and values
/// out; open dimensions `batch`, `sequence` and `past`. Weights are 16-bit and lie elsewhere.
#[must_use]
pub fn decoder(shape: Decoder) -> Vec<u8> {
    let mut model = Writer::new("decoder", 17);
    let weights = Weights::Elsewhere;
    model.input("words", I64, &["batch", "sequence"]);
    model.weight("embedding", F16, &[shape.words, shape.hidden], weights);
    model.node("Gather", &["embedding", "words"], &["stream"]);
    let size = shape.hidden / shape.heads;
    model.weight("scale", F16, &[1], weights);
    model.weight("epsilon", F32, &[1], weights);
    model.weight("cosine_table", F16, &[8192, size], weights);
    model.weight("sine_table", F16, &[8192, size], weights);
    positions(&mut model);
    let mut stream = "stream".to_string();
    for layer in 0..shape.layers {
        stream = decoder_layer(&mut model, shape, layer, &stream);
    }
    norm(&mut model, "final", &stream, shape.hidden);
    model.weight("head", F16, &[shape.hidden, shape.words], weights);
    model.node("MatMul", &["final_norm", "head"], &["scores"]);
    model.output("scores");
    model.into_bytes()
}

/// Rows of the position tables for this step: `past .. past + sequence`.
fn positions(model: &mut Writer) {
    model.node_with("Shape", &["words"], &["sequence_length"], &[("start", Value::Int(1)), ("end", Value::Int(2))]);
    model.node_with("Shape", &["past_key_0"], &["past_length"], &[("start", Value::Int(2)), ("end", Value::Int(3))]);
    model.node("Add", &["past_length", "sequence_length"], &["total_length"]);
    model.constant("rows", &[0], false);
    for table in ["cosine", "sine"] {
        model.node("Slice", &[&format!("{table}_table"), "past_length", "total_length", "rows"], &[table]);
    }
}

/// `x / sqrt(mean(x²) + epsilon) · gain`, in 32 bits, node by node.
fn norm(model: &mut Writer, name: &str, input: &str, hidden: u64) {
    let at = |part: &str| format!("{name}_{part}");
    model.weight(&at("gain"), F16, &[hidden], Weights::Elsewhere);
    // 1 and 10 are the standard's numbers for 32-bit and 16-bit floats.
    model.node_with("Cast", &[input], &[&at("wide")], &[("to", Value::Int(1))]);
    model.node("Mul", &[&at("wide"), &at("wide")], &[&at("square")]);
    model.node_with("ReduceMean", &[&at("square")], &[&at("mean")], &[("axes", Value::Ints(&[-1]))]);
    model.node("Add", &[&at("mean"), "epsilon"], &[&at("moved")]);
    model.node("Sqrt", &[&at("moved")], &[&at("root")]);
    model.node("Div", &[&at("wide"), &at("root")], &[&at("scaled")]);
    model.node_with("Cast", &[&at("scaled")], &[&at("narrow")], &[("to", Value::Int(10))]);
    model.node("Mul", &[&at("narrow"), &at("gain")], &[&at("norm")]);
}

fn linear(model: &mut Writer, name: &str, input: &str, from: u64, to: u64) {
    let weight = format!("{name}.weight");
    model.weight(&weight, F16, &[from, to], Weights::Elsewhere);
    model.node("MatMul", &[input, &weight], &[name]);
}

fn decoder_layer(model: &mut Writer, shape: Decoder, layer: u64, stream: &str) -> String {
    let at = |part: &str| format!("layer{layer}_{part}");
    let size = shape.hidden / shape.heads;
    norm(model, &at("attention"), stream, shape.hidden);
    let normed = at("attention_norm");
    for (part, heads) in [("query", shape.heads), ("key", shape.pairs), ("value", shape.pairs)] {
        linear(model, &at(part), &normed, shape.hidden, heads * size);
        let target = at(&format!("{part}_target"));
        model.constant(&target, &[0, 0, -1, size.cast_signed()], false);
        model.node("Reshape", &[&at(part), &target], &[&at(&format!("{part}_split"))]);
        let order = [("perm", Value::Ints(&[0, 2, 1, 3]))];
        model.node_with("Transpose", &[&at(&format!("{part}_split"))], &[&at(&format!("{part}_heads"))], &order);
    }
    for part in ["query", "key"] {
        rotate(model, &at(part), size);
    }
    for (part, new) in [("key", at("key_rotated")), ("value", at("value_heads"))] {
        let past = format!("past_{part}_{layer}");
        model.input(&past, F16, &["batch", &shape.pairs.to_string(), "past", &size.to_string()]);
        model.node_with("Concat", &[&past, &new], &[&at(&format!("{part}_all"))], &[("axis", Value::Int(2))]);
        model.output(&at(&format!("{part}_all")));
        repeat(model, &at(part), shape.heads / shape.pairs);
    }
    let order = [("perm", Value::Ints(&[0, 1, 3, 2]))];
    model.node_with("Transpose", &[&at("key_repeated")], &[&at("key_columns")], &order);
    model.node("MatMul", &[&at("query_rotated"), &at("key_columns")], &[&at("products")]);
    model.node("Mul", &[&at("products"), "scale"], &[&at("weighted")]);
    model.node_with("Softmax", &[&at("weighted")], &[&at("shares")], &[("axis", Value::Int(-1))]);
    model.node("MatMul", &[&at("shares"), &at("value_repeated")], &[&at("mixed")]);
    model.node_with("Transpose", &[&at("mixed")], &[&at("mixed_rows")], &[("perm", Value::Ints(&[0, 2, 1, 3]))]);
    model.constant(&at("packed"), &[0, 0, shape.hidden.cast_signed()], false);
    model.node("Reshape", &[&at("mixed_rows"), &at("packed")], &[&at("mixed_packed")]);
    linear(model, &at("project"), &at("mixed_packed"), shape.hidden, shape.hidden);
    model.node("Add", &[stream, &at("project")], &[&at("between")]);
    norm(model, &at("feed"), &at("between"), shape.hidden);
    linear(model, &at("gate"), &at("feed_norm"), shape.hidden, shape.inner);
    linear(model, &at("up"), &at("feed_norm"), shape.hidden, shape.inner);
    model.node("Sigmoid", &[&at("gate")], &[&at("gate_sigmoid")]);
    model.node("Mul", &[&at("gate"), &at("gate_sigmoid")], &[&at("gated")]);
    model.node("Mul", &[&at("gated"), &at("up")], &[&at("inner")]);
    linear(model, &at("down"), &at("inner"), shape.inner, shape.hidden);
    model.node("Add", &[&at("between"), &at("down")], &[&at("out")]);
    at("out")
}

/// Rotary position embedding: `x · cos + swap(x) · sin`, the halves swapped and one of them negated.
fn rotate(model: &mut Writer, name: &str, size: u64) {
    let at = |part: &str| format!("{name}_{part}");
    let heads = at("heads");
    let half = (size / 2).cast_signed();
    for (part, start, end) in [("front", 0, half), ("back", half, i64::MAX)] {
        let ends =
            [("start", start), ("end", end), ("axis", 3)].map(|(end, value)| (at(&format!("{part}_{end}")), value));
        for (name, value) in &ends {
            model.constant(name, &[*value], false);
        }
        let [start, end, axis] = &ends;
        model.node("Slice", &[&heads, &start.0, &end.0, &axis.0], &[&at(part)]);
    }
    model.node("Neg", &[&at("back")], &[&at("negated")]);
    model.node_with("Concat", &[&at("negated"), &at("front")], &[&at("swapped")], &[("axis", Value::Int(-1))]);
    model.node("Mul", &[&heads, "cosine"], &[&at("by_cosine")]);
    model.node("Mul", &[&at("swapped"), "sine"], &[&at("by_sine")]);
    model.node("Add", &[&at("by_cosine"), &at("by_sine")], &[&at("rotated")]);
}

/// Every key and value head, once for each of its query heads; the target shape is computed as exporters do.
fn repeat(model: &mut Writer, name: &str, times: u64) {
    let at = |part: &str| format!("{name}_{part}");
    let all = at("all");
    model.constant(&at("times"), &[times.cast_signed()], false);
    model.constant(&at("wide_axis"), &[2], false);
    model.node("Unsqueeze", &[&all, &at("wide_axis")], &[&at("wide")]);
    let mut parts = Vec::new();
    for axis in 0..4 {
        parts.push(length(model, &at(&format!("length{axis}")), &all, axis));
    }
    let (times, heads) = (at("times"), at("heads_all"));
    let target = [&parts[0], &parts[1], &times, &parts[2], &parts[3]].map(String::as_str);
    model.node_with("Concat", &target, &[&at("expand_shape")], &[("axis", Value::Int(0))]);
    model.node("Expand", &[&at("wide"), &at("expand_shape")], &[&at("expanded")]);
    model.node("Mul", &[&parts[1], &times], &[&heads]);
    let target = [&parts[0], &heads, &parts[2], &parts[3]].map(String::as_str);
    model.node_with("Concat", &target, &[&at("merge_shape")], &[("axis", Value::Int(0))]);
    model.node("Reshape", &[&at("expanded"), &at("merge_shape")], &[&at("repeated")]);
}

/// One length of a shape as a list of one, in the five nodes that exporters write.
fn length(model: &mut Writer, name: &str, of: &str, axis: i64) -> String {
    let at = |part: &str| format!("{name}_{part}");
    model.node("Shape", &[of], &[&at("shape")]);
    model.constant(&at("axis"), &[axis], true);
    model.node("Gather", &[&at("shape"), &at("axis")], &[&at("scalar")]);
    model.constant(&at("place"), &[0], false);
    model.node("Unsqueeze", &[&at("scalar"), &at("place")], &[name]);
    name.to_string()
}
