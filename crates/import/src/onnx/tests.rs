//! Whole models, and what is wrong with broken ones.

use super::write::{Weights, Writer, node};
use super::*;
use npumem_ir::ElementType::{F16, F32};
use npumem_ir::{Graph, Shape};
use std::fs::File;
use std::io::Cursor;

fn options(dims: &[&str]) -> Options {
    let mut options = Options::default();
    for dim in dims {
        options.bind(dim).unwrap();
    }
    options
}

/// Every tensor, those of bodies included, has a shape of numbers, or is none.
fn assert_settled(graph: &Graph, name: &str) {
    for tensor in &graph.tensors {
        let settled = match &tensor.shape {
            Shape::Ranked(dims) => dims.iter().all(|dim| dim.known().is_some()),
            Shape::Opaque => true,
            Shape::Unknown => false,
        };
        assert!(settled, "{name}: {} is {:?}", tensor.name, tensor.shape);
    }
    for operator in &graph.operators {
        for body in &operator.bodies {
            assert_settled(&body.graph, name);
        }
    }
}

/// What a caller must say of the models that leave dimensions open.
fn dims_of(file: &str) -> &'static [&'static str] {
    match file {
        "ppocr_v4_rec_light.onnx" => &["p2o.DynamicDimension.0=1", "x[2]=48", "p2o.DynamicDimension.1=320"],
        "ch_PP-OCRv4_det_infer.onnx" => {
            &["p2o.DynamicDimension.0=1", "p2o.DynamicDimension.1=640", "p2o.DynamicDimension.2=640"]
        }
        "ch_ppocr_mobile_v2.0_cls_infer.onnx" => &["x[0]=1", "x[2]=48", "x[3]=192"],
        "magika_standard_v3_3.onnx" => &["unk__214=1"],
        "silero_vad.onnx" => &["input[0]=1", "input[1]=576", "state[1]=1"],
        "silero_vad_16k_op15.onnx" => &["batch=1", "sequence=576"],
        "silero_vad_16k_sequence.onnx" => &["sequence_length=4"],
        _ => &[],
    }
}

#[test]
fn every_model_comes_out_with_all_shapes_known() {
    let Some(folder) = npumem_testing::shared("data/models") else { return };
    let files = npumem_testing::files_under(&folder, ".onnx");
    assert!(files.len() >= 27, "{} models", files.len());
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let model = read(File::open(&path).unwrap(), &options(dims_of(&name)))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_settled(&model.graph, &name);
        // The Silero model is two models, one for each sample rate; 576 samples fit one of them.
        assert_eq!(model.notes.len(), usize::from(name == "silero_vad.onnx"), "{name}: {:?}", model.notes);
        assert!(!model.graph.operators.is_empty() && !model.graph.outputs.is_empty(), "{name}");
    }
}

#[test]
fn the_models_we_write_come_out_as_they_were_meant() {
    let cnn = read(Cursor::new(write::models::small_cnn()), &Options::default()).unwrap().graph;
    assert_settled(&cnn, "cnn");
    assert_eq!(cnn.tensor(cnn.outputs[0]).shape, Shape::known(&[1, 10]));

    let bytes = write::models::decoder(write::models::Decoder::SMALL);
    let known = read(Cursor::new(&bytes), &options(&["batch=1", "sequence=8", "past=0"])).unwrap().graph;
    assert_settled(&known, "decoder");
    assert_eq!(known.tensor(known.outputs[0]).shape, Shape::known(&[1, 2, 8, 64]));
    // With ranges every shape is an expression of the two open names.
    let ranged = read(Cursor::new(&bytes), &options(&["batch=1", "sequence=1..4096", "past=0..4096"])).unwrap().graph;
    assert_eq!(ranged.symbols.iter().map(|symbol| symbol.name.as_str()).collect::<Vec<_>>(), ["sequence", "past"]);
    for (a, b) in known.tensors.iter().zip(&ranged.tensors) {
        let value = |symbol: npumem_ir::SymbolId| Some([8, 0][symbol.index()]);
        let at = |shape: &Shape| shape.dims().unwrap().iter().map(|dim| dim.eval(&value)).collect::<Vec<_>>();
        if a.name == b.name {
            assert_eq!(at(&a.shape), at(&b.shape), "{}", a.name);
        }
    }
    let open = read(Cursor::new(&bytes), &Options::default()).unwrap_err();
    assert_eq!(open.kind, ErrorKind::NeedsAnswer);
    for flag in ["--dim batch=1", "--dim sequence=1", "--dim past=1"] {
        assert!(open.to_string().contains(flag), "{open}");
    }
    let unknown = read(Cursor::new(&bytes), &options(&["batch=1", "sequence=8", "past=0", "heads=4"])).unwrap_err();
    assert!(unknown.kind == ErrorKind::Unknown && unknown.to_string().contains("'heads'"), "{unknown}");
}

/// `x` of (2, 3) through `nodes`, out as `y`.
fn small(nodes: Vec<proto::Node>) -> Writer {
    let mut model = Writer::new("small", 17);
    model.input("x", F32, &["2", "3"]);
    nodes.into_iter().for_each(|node| model.push(node));
    model.output("y");
    model
}

fn refused(model: Writer) -> ImportError {
    read(Cursor::new(model.into_bytes()), &Options::default()).unwrap_err()
}

#[test]
fn an_unknown_operator_is_named_and_its_shape_asked_for() {
    let mut odd = node("Frobnicate", &["x"], &["t"], &[]);
    odd.domain = "acme".into();
    let model = small(vec![odd, node("Relu", &["t"], &["y"], &[])]);
    let bytes = model.into_bytes();
    let error = read(Cursor::new(&bytes), &Options::default()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NeedsAnswer);
    let text = error.to_string();
    assert!(text.contains("Frobnicate") && text.contains("acme") && text.contains("--shape t=1x2x3"), "{text}");
    assert!(!text.contains("--shape y="), "only the cause is asked for: {text}");
    let mut options = Options::default();
    options.give_shape("t=4x5:f16").unwrap();
    let graph = read(Cursor::new(&bytes), &options).unwrap().graph;
    let y = graph.tensor(graph.outputs[0]);
    assert_eq!((&y.shape, y.element), (&Shape::known(&[4, 5]), F16));
    options.give_shape("z=1").unwrap();
    assert_eq!(read(Cursor::new(&bytes), &options).unwrap_err().kind, ErrorKind::Unknown);
}

#[test]
fn a_graph_that_contradicts_itself_is_refused_with_the_names() {
    let cycle = small(vec![
        node("Add", &["x", "b"], &["a"], &[]),
        node("Relu", &["a"], &["b"], &[]),
        node("Relu", &["b"], &["y"], &[]),
    ]);
    let error = refused(cycle);
    assert_eq!(error.kind, ErrorKind::Inconsistent);
    let text = error.to_string();
    assert!(text.contains("a cycle of 2 nodes") && text.contains("'a'") && text.contains("'b'"), "{text}");

    let twice = small(vec![node("Relu", &["x"], &["y"], &[]), node("Abs", &["x"], &["y"], &[])]);
    assert_eq!(refused(twice).kind, ErrorKind::Duplicate);
    let missing = refused(small(vec![node("Relu", &["nobody"], &["y"], &[])]));
    assert!(missing.kind == ErrorKind::Missing && missing.to_string().contains("'nobody'"), "{missing}");
    let mut shapes = small(vec![node("MatMul", &["x", "w"], &["y"], &[])]);
    shapes.weight("w", F32, &[4, 5], Weights::Elsewhere);
    let error = refused(shapes);
    assert!(error.kind == ErrorKind::Inconsistent && error.to_string().contains("inner lengths 3 and 4"), "{error}");
}

#[test]
fn nodes_in_any_order_come_out_in_execution_order() {
    let model = small(vec![
        node("Relu", &["b"], &["y"], &[]),
        node("Abs", &["a"], &["b"], &[]),
        node("Neg", &["x"], &["a"], &[]),
    ]);
    let graph = read(Cursor::new(model.into_bytes()), &Options::default()).unwrap().graph;
    let kinds: Vec<&str> = graph.operators.iter().map(|operator| operator.kind.as_str()).collect();
    assert_eq!(kinds, ["Neg", "Abs", "Relu"]);
}

#[test]
fn sizes_past_64_bits_are_refused() {
    let mut model = Writer::new("huge", 17);
    model.input("x", F32, &["4611686018427387904", "3"]);
    model.node("Relu", &["x"], &["y"]);
    model.output("y");
    let error = refused(model);
    assert!(error.kind == ErrorKind::Value && error.to_string().contains("past 64 bits"), "{error}");
}

#[test]
fn zero_lengths_four_bit_elements_and_text_are_values_like_others() {
    let mut model = small(vec![node("Concat", &["past", "x"], &["y"], &[("axis", write::Value::Int(0))])]);
    model.input("past", F32, &["0", "3"]);
    model.input("label", npumem_ir::ElementType::Text, &["2"]);
    model.weight("packed", npumem_ir::ElementType::I4, &[3, 3], Weights::Elsewhere);
    model.node("Cast", &["packed"], &["wide"]);
    let graph = model.into_graph();
    let mut nodes = graph.node;
    nodes.retain(|node| node.op_type != "Cast");
    let graph = proto::Graph { node: nodes, ..graph };
    let opset_import = vec![proto::OperatorSet { domain: String::new(), version: 17 }];
    let model = proto::Model { graph: Some(graph), opset_import, ..proto::Model::default() };
    let graph = read(Cursor::new(model.encode_to_vec()), &Options::default()).unwrap().graph;
    assert_eq!(graph.tensor(graph.outputs[0]).shape, Shape::known(&[2, 3]));
    let label = graph.tensors.iter().find(|tensor| tensor.name == "label").unwrap();
    assert_eq!(label.shape, Shape::Opaque);
}

#[test]
fn a_function_is_put_in_place_of_its_call() {
    let mut call = node("Twice", &["x"], &["y"], &[("to", write::Value::Int(10))]);
    call.domain = "acme".into();
    call.name = "call".into();
    let mut cast = node("Cast", &["d"], &["out"], &[("to", write::Value::Int(0))]);
    cast.attribute[0].ref_attr_name = "to".into();
    let mut model = small(vec![call]);
    model.function(proto::Function {
        name: "Twice".into(),
        domain: "acme".into(),
        input: vec!["in".into()],
        output: vec!["out".into()],
        attribute: vec!["to".into()],
        node: vec![node("Add", &["in", "in"], &["d"], &[]), cast],
        ..proto::Function::default()
    });
    let graph = read(Cursor::new(model.into_bytes()), &Options::default()).unwrap().graph;
    let names: Vec<&str> = graph.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["x", "call/d", "y"]);
    assert_eq!(graph.tensor(graph.outputs[0]).element, F16);

    let mut endless = node("Self", &["in"], &["out"], &[]);
    endless.domain = "acme".into();
    let mut call = node("Self", &["x"], &["y"], &[]);
    call.domain = "acme".into();
    let mut model = small(vec![call]);
    model.function(proto::Function {
        name: "Self".into(),
        domain: "acme".into(),
        input: vec!["in".into()],
        output: vec!["out".into()],
        node: vec![endless],
        ..proto::Function::default()
    });
    assert_eq!(refused(model).kind, ErrorKind::Limit);
}

/// A body that adds the captured `x` to what it carries.
fn loop_model() -> Writer {
    let mut body = Writer::new("body", 17);
    for (name, element, dims) in [
        ("i", npumem_ir::ElementType::I64, &[][..]),
        ("go", npumem_ir::ElementType::Bool, &[]),
        ("v", F32, &["2", "3"]),
    ] {
        body.input(name, element, dims);
    }
    body.node("Identity", &["go"], &["go_on"]);
    body.node("Add", &["v", "x"], &["next"]);
    body.node("Relu", &["next"], &["seen"]);
    for name in ["go_on", "next", "seen"] {
        body.output(name);
    }
    let mut model = small(Vec::new());
    model.integers("times", &[5]);
    model.node("Identity", &["x"], &["start"]);
    model.node_with("Loop", &["times", "", "start"], &["y", "all"], &[("body", write::Value::Body(body.into_graph()))]);
    model.output("all");
    model
}

#[test]
fn a_loop_stacks_its_outputs_and_its_body_captures() {
    let graph = read(Cursor::new(loop_model().into_bytes()), &Options::default()).unwrap().graph;
    let shapes: Vec<_> = graph.outputs.iter().map(|id| graph.tensor(*id).shape.clone()).collect();
    assert_eq!(shapes, [Shape::known(&[2, 3]), Shape::known(&[5, 2, 3])]);
    let body = &graph.operators[1].bodies[0].graph;
    let captured = body.tensors.iter().find(|tensor| tensor.name == "x").unwrap();
    assert_eq!(captured.kind, npumem_ir::graph::TensorKind::Captured(graph.inputs[0]));
}

#[test]
fn weights_are_not_read_and_their_bytes_not_kept() {
    let mut model = small(vec![node("MatMul", &["x", "w"], &["y"], &[])]);
    model.weight("w", F32, &[3, 100_000], Weights::Random);
    let bytes = model.into_bytes();
    assert!(bytes.len() > 1_200_000);
    let slim = slim::slim(Cursor::new(&bytes)).unwrap();
    assert!(slim.len() < 512, "{} bytes", slim.len());
    let graph = read(Cursor::new(&bytes), &Options::default()).unwrap().graph;
    assert_eq!(graph.tensor(graph.outputs[0]).shape, Shape::known(&[2, 100_000]));
}

#[test]
fn a_truncated_file_is_refused_at_every_length_with_the_byte() {
    let bytes = loop_model().into_bytes();
    for length in 1..bytes.len() {
        let error = read(Cursor::new(&bytes[..length]), &Options::default()).unwrap_err();
        assert!(
            error.kind != ErrorKind::Syntax
                || matches!(error.position, crate::Position::Byte(at) if at <= length as u64),
            "{length}: {error}"
        );
    }
    assert_eq!(read(Cursor::new(&bytes[..0]), &Options::default()).unwrap_err().kind, ErrorKind::Missing);
}

#[test]
fn claims_are_held_against_the_file_and_masses_of_nothing_refused() {
    // A graph of 2^60 bytes in a file of twelve.
    let huge = [0x3a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10, 0x0a, 0x00];
    let error = read(Cursor::new(huge), &Options::default()).unwrap_err();
    assert_eq!((error.kind, error.position), (ErrorKind::Syntax, crate::Position::Byte(0)));
    // A million empty nodes in two megabytes.
    let nodes = [0x0a, 0x00].repeat(1_000_000);
    let mut masses = vec![0x3a];
    prost::encoding::encode_varint(nodes.len() as u64, &mut masses);
    masses.extend(nodes);
    assert_eq!(read(Cursor::new(masses), &Options::default()).unwrap_err().kind, ErrorKind::Limit);
    // Bodies inside each other: node { attribute { g { ... } } }, a thousand times.
    let mut deep: Vec<u8> = Vec::new();
    for _ in 0..1000 {
        for tag in [0x32, 0x2a, 0x0a] {
            let mut outer = vec![tag];
            prost::encoding::encode_varint(deep.len() as u64, &mut outer);
            outer.extend(deep);
            deep = outer;
        }
    }
    let mut model = vec![0x3a];
    prost::encoding::encode_varint(deep.len() as u64, &mut model);
    model.extend(deep);
    assert_eq!(read(Cursor::new(model), &Options::default()).unwrap_err().kind, ErrorKind::Limit);
}

#[test]
fn the_flags_are_read_strictly() {
    let mut options = Options::default();
    for good in ["batch=4", "s=1..4096", "boxes[0]=7", "a=b=3", "n=2..2"] {
        options.bind(good).unwrap();
    }
    assert_eq!(options.dims["s"], Binding::Range(1, 4096));
    assert_eq!((options.dims["a=b"], options.dims["n"]), (Binding::Number(3), Binding::Number(2)));
    for bad in ["batch", "=3", "n=", "n=-1", "n=4..1", "n=1..", "n=x", "n=99999999999999999999", "s=5"] {
        assert!(options.bind(bad).is_err(), "{bad}");
    }
    for good in ["t=1x2x3", "a:0=4:f16", "k=scalar"] {
        options.give_shape(good).unwrap();
    }
    assert_eq!(options.shapes["a:0"], GivenShape { dims: vec![4], element: Some(F16) });
    for bad in ["t", "t=", "t=1,2", "t=1x-2", "t=1x2:f17", "=1"] {
        assert!(options.give_shape(bad).is_err(), "{bad}");
    }
}

/// Damages a model by the random numbers given and reads it: any result will do, a panic will not.
fn read_damaged(model: &[u8], random: &mut impl FnMut() -> u64) {
    let mut bytes = model.to_vec();
    for _ in 0..=random() % 8 {
        let at = (random() % bytes.len() as u64) as usize;
        match random() % 5 {
            0 => bytes[at] = random() as u8,
            1 => bytes[at] ^= 1 << (random() % 8),
            2 => {
                let end = (at + (random() % 16) as usize).min(bytes.len());
                bytes.drain(at..end);
            }
            3 => bytes.insert(at, random() as u8),
            _ => {
                let end = (at + (random() % 64) as usize).min(bytes.len());
                let part = bytes[at..end].to_vec();
                let to = (random() % bytes.len() as u64) as usize;
                bytes.splice(to..to, part);
            }
        }
        if bytes.is_empty() {
            return;
        }
    }
    let options = Options { keep_open: random().is_multiple_of(2), ..Options::default() };
    let _ = read(Cursor::new(bytes), &options);
}

#[test]
fn no_damage_makes_the_reader_panic() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let models =
        [loop_model().into_bytes(), write::models::small_cnn(), write::models::decoder(write::models::Decoder::SMALL)];
    for round in 0..2000 {
        read_damaged(&models[round % models.len()], &mut random);
    }
}
