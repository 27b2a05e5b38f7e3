//! Whole models, and what is wrong with broken ones.

use super::*;
use npumem_ir::{Graph, Shape};
use std::fs::File;

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
