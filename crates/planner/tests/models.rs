//! Real models, from the file to the plan, against figures that were measured with onnxruntime 1.32.
//!
//! The graphs that onnxruntime optimises are made by `ort_graphs.py` beside this file: from `NPUMEM_ORT_GRAPHS`, a folder
//! where they lie, or else with the interpreter `NPUMEM_PYTHON` (which `cargo xtask test` sets) into `target/ort-graphs`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use npumem_import::onnx::{self, Options};
use npumem_ir::{Alignment, Bytes, Graph};
use npumem_planner::graph::{MainSpace, ModelOptions, ModelPlan, Strategy, plan_model};
use npumem_planner::placement::PlacementOptions;
use npumem_testing::{files_under, shared, skipped, workspace_root};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Dimensions that a file leaves open, by file name.
const DIMS: &[(&str, &[&str])] = &[
    (
        "ch_PP-OCRv4_det_infer",
        &["p2o.DynamicDimension.0=1", "p2o.DynamicDimension.1=640", "p2o.DynamicDimension.2=640"],
    ),
    ("ch_ppocr_mobile_v2.0_cls_infer", &["x[0]=1", "x[2]=48", "x[3]=192"]),
    ("magika_standard_v3_3", &["unk__214=1"]),
    ("ppocr_v4_rec_light", &["p2o.DynamicDimension.0=1", "x[2]=48", "p2o.DynamicDimension.1=320"]),
    ("silero_vad", &["input[0]=1", "input[1]=576", "state[1]=1"]),
    ("silero_vad_16k_op15", &["batch=1", "sequence=576"]),
    ("silero_vad_16k_sequence", &["sequence_length=4"]),
];

/// Models of the same measurement that the table leaves out: file, largest live load, block.
const EXTRA: &[(&str, Option<u64>, u64)] = &[
    ("light_bvlc_alexnet", Some(2_239_488), 2_239_488),
    ("light_inception_v1", Some(4_646_400), 4_646_400),
    ("light_shufflenet", None, 2_910_208),
    ("light_vgg19", Some(25_690_112), 25_690_112),
    ("light_zfnet512", None, 9_124_864),
    ("magika_standard_v3_3", None, 3_121_920),
    ("ppocr_v4_rec_light", Some(2_949_120), 2_949_120),
];

/// A file that onnxruntime runs as another graph: it moves the transposed copies of the keys into the products and runs
/// what makes the values later. In the file's own order both are whole at once.
const OTHER_GRAPH: &str = "llama4l_decode512";

/// The file of each row of the reference table, where it is called otherwise.
const FILES: &[(&str, &str)] = &[
    ("squeezenet_light", "light_squeezenet"),
    ("nasnetalarge_331", "nasnetalarge"),
    ("ppocr_det_640", "ch_PP-OCRv4_det_infer"),
];

fn name(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap()
}

fn read(path: &Path) -> Graph {
    let mut options = Options::default();
    for (_, dims) in DIMS.iter().filter(|(file, _)| *file == name(path)) {
        for dim in *dims {
            options.bind(dim).unwrap();
        }
    }
    let model = onnx::read(File::open(path).unwrap(), &options);
    model.unwrap_or_else(|error| panic!("{}: {error}", path.display())).graph
}

fn plan(graph: &Graph) -> ModelPlan {
    let space =
        MainSpace { name: "HBM".to_owned(), capacity: None, alignment: Alignment::new(64).unwrap(), reserved: vec![] };
    let plan = plan_model(graph, &space, &ModelOptions::default(), &PlacementOptions::fast(), None).unwrap();
    assert_eq!(plan.input.problem.validate(), [], "{}", graph.name);
    let verdict = npumem_check::check(&plan.input.problem, &plan.placement.plan);
    assert!(verdict.is_sound(), "{}: {:?}", graph.name, verdict.violations);
    plan
}

/// The optimised graphs, by model name; `None` where nothing here can make them.
fn ort_graphs(models: &[PathBuf]) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("NPUMEM_ORT_GRAPHS") {
        return Some(PathBuf::from(folder));
    }
    let Some(python) = std::env::var_os("NPUMEM_PYTHON") else {
        skipped("no NPUMEM_PYTHON (with onnxruntime) and no NPUMEM_ORT_GRAPHS");
        return None;
    };
    let out = workspace_root().join("target/ort-graphs");
    let missing: Vec<&PathBuf> = models.iter().filter(|model| !out.join(model.file_name().unwrap()).exists()).collect();
    if !missing.is_empty() {
        let script = workspace_root().join("crates/planner/tests/ort_graphs.py");
        let status = Command::new(python).arg(script).arg(&out).args(missing).status();
        assert!(status.is_ok_and(|status| status.success()), "ort_graphs.py failed");
    }
    Some(out)
}

/// The reference table: model, then column to number.
fn reference(folder: &Path) -> Vec<(String, BTreeMap<String, u64>)> {
    let text = std::fs::read_to_string(folder.join("reference-bytes.csv")).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    lines
        .map(|row| {
            let cells = head.iter().zip(&row).skip(1);
            let known = cells.filter_map(|(column, cell)| Some((column.to_string(), cell.parse().ok()?)));
            (row[0].to_owned(), known.collect())
        })
        .collect()
}

#[test]
fn live_loads_are_those_of_onnxruntimes_own_graphs_to_the_byte() {
    let Some(folder) = shared("data/models") else { return };
    let models = files_under(&folder, ".onnx");
    let rows = reference(&folder);
    let file =
        |row: &str| FILES.iter().find(|(from, _)| *from == row).map_or(row.to_owned(), |(_, to)| (*to).to_owned());
    let extra = EXTRA.iter().map(|(file, live, block)| {
        let columns = [("ort_live", *live), ("ort_pattern", Some(*block))];
        let known = columns.into_iter().filter_map(|(column, number)| Some((column.to_owned(), number?)));
        ((*file).to_owned(), known.collect())
    });
    let rows: Vec<(String, BTreeMap<String, u64>)> = rows.into_iter().chain(extra).collect();
    let wanted: Vec<PathBuf> = rows
        .iter()
        .map(|(row, _)| models.iter().find(|model| name(model) == file(row) || name(model) == *row))
        .map(|found| found.expect("a file for each row").clone())
        .collect();
    let Some(graphs) = ort_graphs(&wanted) else { return };
    let mut wrong = Vec::new();
    for ((row, columns), model) in rows.iter().zip(&wanted) {
        let plan = plan(&read(&graphs.join(model.file_name().unwrap())));
        let (Bytes(peak), Bytes(bound)) = plan.packed();
        let [_, views, in_place, _] = &plan.input.bounds[..] else { panic!() };
        let block = columns["ort_pattern"];
        let agrees = |column: &str, found: Bytes| columns.get(column).is_none_or(|expected| *expected == found.0);
        println!(
            "{row:22} live {} / {:?}, in place {} / {:?}; peak {peak}, bound {bound}, onnxruntime's block {block}",
            views.bytes.0,
            columns.get("ort_live"),
            in_place.bytes.0,
            columns.get("ort_live_inplace"),
        );
        let agree = agrees("ort_live", views.bytes) && agrees("ort_live_inplace", in_place.bytes);
        if !agree || peak > block || peak as f64 > bound as f64 * 1.02 {
            wrong.push(row);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn every_model_is_planned_at_its_lower_bound_or_close() {
    let Some(folder) = shared("data/models") else { return };
    let rows = reference(&folder);
    let mut wrong = Vec::new();
    for path in files_under(&folder, ".onnx") {
        let graph = read(&path);
        let plan = plan(&graph);
        let (Bytes(peak), Bytes(bound)) = plan.packed();
        let gap = if bound == 0 { 0.0 } else { peak as f64 / bound as f64 - 1.0 };
        let bounds: Vec<u64> = plan.input.bounds.iter().map(|bound| bound.bytes.0).collect();
        let hybrid = plan.input.strategies.iter().find(|cost| cost.strategy == Strategy::Hybrid).unwrap();
        println!(
            "{:32} {:5} steps, loads {bounds:?}, peak {peak}, gap {:.3} %, pooled {}",
            name(&path),
            graph.operators.len(),
            gap * 100.0,
            hybrid.pooled
        );
        let block = rows.iter().find(|(row, _)| row == name(&path)).map_or(u64::MAX, |(_, row)| row["ort_pattern"]);
        if gap >= 0.02 || (peak > block && name(&path) != OTHER_GRAPH) {
            wrong.push(format!("{}: peak {peak}, bound {bound}, block {block}", name(&path)));
        }
        let entries: u64 = plan.input.peak.iter().map(|entry| entry.bytes.0).sum();
        assert!(entries >= plan.input.bounds[3].bytes.0, "{}", path.display());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
