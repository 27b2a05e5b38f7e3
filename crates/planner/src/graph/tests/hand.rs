//! Graphs small enough to work out by hand, and what is refused.

use super::build::{Build, space};
use crate::graph::bounds::Workspaces;
use crate::graph::*;
use crate::placement::{PlacementOptions, place};
use npumem_ir::graph::{Attribute, Dim, Shape, TensorKind};
use npumem_ir::problem::{BufferKind, Sizing};
use npumem_ir::{Bytes, ElementType, Offset, Step, StepRange, TensorId};

fn loads(graph: &npumem_ir::Graph) -> Vec<u64> {
    let line = Line::new(graph, &Dims::new()).unwrap();
    bounds::bounds(&line, space(64).alignment, &Workspaces::new()).iter().map(|bound| bound.bytes.0).collect()
}

/// x -> Conv a -> Relu b -> Reshape c -> Relu d -> (out) Gemm
fn chain() -> Build {
    let mut b = Build::new();
    let x = b.input("x", &[1, 16, 8]);
    let w = b.weight("w", &[16, 16]);
    let a = b.op("Conv", &[x, w], "a", &[1, 256]);
    let r = b.op("Relu", &[a], "b", &[1, 256]);
    let c = b.op("Reshape", &[r], "c", &[256]);
    let d = b.op("Relu", &[c], "d", &[256]);
    let y = b.op("Gemm", &[d, w], "y", &[10]);
    b.output(y);
    b
}

#[test]
fn each_action_takes_one_buffer_off_a_chain() {
    // 1,024 bytes each: two at every step; the view and both functions in place leave one.
    assert_eq!(loads(&chain().graph), [2048, 2048, 1024, 1024]);
}

#[test]
fn an_input_that_is_read_later_is_not_written_over() {
    let mut b = Build::new();
    let x = b.input("x", &[64]);
    let a = b.op("Conv", &[x], "a", &[64]);
    let r = b.op("Relu", &[a], "r", &[64]);
    let s = b.op("Add", &[r, a], "s", &[64]);
    let y = b.op("Conv", &[s], "y", &[1]);
    b.output(y);
    // a is read by Add: Relu needs its own bytes, Add may take either.
    assert_eq!(loads(&b.graph), [768, 768, 512, 512]);
}

#[test]
fn a_view_that_is_read_later_holds_its_base() {
    let mut b = Build::new();
    let x = b.input("x", &[64]);
    let a = b.op("Conv", &[x], "a", &[64]);
    let v = b.op("Reshape", &[a], "v", &[8, 8]);
    let r = b.op("Relu", &[a], "r", &[64]);
    let s = b.op("MatMul", &[v, r], "s", &[8]);
    b.output(s);
    assert_eq!(loads(&b.graph), [768, 512, 512, 512]);
}

#[test]
fn what_is_the_callers_is_never_written_over() {
    let mut b = Build::new();
    let x = b.input("x", &[64]);
    let r = b.op("Relu", &[x], "r", &[64]);
    let y = b.op("Relu", &[r], "y", &[64]);
    let z = b.op("Relu", &[y], "z", &[64]);
    let q = b.op("Conv", &[z], "q", &[64]);
    b.output(y);
    b.output(q);
    // r and z are ours, each alone; x and the outputs are not in the load.
    assert_eq!(loads(&b.graph), [256, 256, 256, 256]);
    let input = to_problem(&b.graph, &space(64), &ModelOptions::default()).unwrap();
    let kinds: Vec<BufferKind> = input.problem.buffers.iter().map(|buffer| buffer.kind).collect();
    use BufferKind::{Activation, Input, Output};
    assert_eq!(kinds, [Input, Output, Output, Activation, Activation]);
    assert!(input.problem.constraints.colocated.is_empty());
    assert_eq!(input.static_end, Offset(768));
}

#[test]
fn parts_of_a_concat_lie_in_it_where_they_may() {
    let mut b = Build::new();
    let x = b.input("x", &[1, 16]);
    let p = b.op("Conv", &[x], "p", &[1, 16]);
    let q = b.op("Conv", &[p], "q", &[1, 24]);
    let c = b.op("Concat", &[p, q], "c", &[1, 40]);
    b.attribute("axis", Attribute::Int(-1));
    let y = b.op("Conv", &[c], "y", &[1]);
    b.output(y);
    // 64 + 96 (rounded to 128) + 160 (192); as parts only 64 + 96, in one buffer of 160.
    assert_eq!(loads(&b.graph), [384, 384, 384, 192]);
    let input = to_problem(&b.graph, &space(64), &ModelOptions::default()).unwrap();
    let rules: Vec<(String, String, u64)> = input
        .problem
        .constraints
        .colocated
        .iter()
        .map(|rule| {
            let name = |id: npumem_ir::BufferId| input.problem.buffer(id).name.clone();
            (name(rule.buffer), name(rule.base), rule.delta.0)
        })
        .collect();
    assert_eq!(rules, [("p".into(), "c".into(), 0), ("q".into(), "c".into(), 64)]);
    // At an alignment of 128 the second part would start in the middle: it is copied.
    let line = Line::new(&b.graph, &Dims::new()).unwrap();
    let bound = bounds::bounds(&line, space(128).alignment, &Workspaces::new())[3].bytes;
    assert_eq!(bound, Bytes(384));
}

#[test]
fn a_concat_along_an_inner_axis_copies() {
    let mut b = Build::new();
    let x = b.input("x", &[2, 32]);
    let p = b.op("Conv", &[x], "p", &[2, 32]);
    let c = b.op("Concat", &[p, p], "c", &[2, 64]);
    b.attribute("axis", Attribute::Int(1));
    let y = b.op("Conv", &[c], "y", &[1]);
    b.output(y);
    assert_eq!(loads(&b.graph), [768, 768, 768, 768]);
}

#[test]
fn slices_count_only_while_their_bytes_are_needed() {
    let mut b = Build::new();
    let x = b.input("x", &[1]);
    let a = b.op("Conv", &[x], "a", &[4, 64]);
    let s = b.op("Slice", &[a], "s", &[1, 32]);
    b.attribute("starts", Attribute::Ints(vec![-1, 16]));
    b.attribute("ends", Attribute::Ints(vec![i64::MAX, 48]));
    b.attribute("axes", Attribute::Ints(vec![0, 1]));
    let t = b.op("Conv", &[s], "t", &[1, 64]);
    let u = b.op("MatMul", &[t, s], "u", &[1, 8]);
    let y = b.op("Conv", &[u], "y", &[1]);
    b.output(y);
    assert_eq!(loads(&b.graph), [1152, 1152, 1152, 1024]);
    let input = to_problem(&b.graph, &space(64), &ModelOptions::default()).unwrap();
    let rule = input.problem.constraints.colocated[0];
    // Row 3, element 16 of rows of 64 floats.
    assert_eq!(rule.delta, Bytes((3 * 64 + 16) * 4));
    // The slice alone outlives the rest.
    let live = |name: &str| {
        let buffer = input.problem.buffers.iter().find(|buffer| buffer.name == name).unwrap();
        buffer.live[0].steps
    };
    assert_eq!((live("a"), live("s")), (StepRange::steps(0, 2), StepRange::steps(1, 4)));
}

#[test]
fn branches_follow_each_other_and_never_coexist() {
    let mut b = Build::new();
    let x = b.input("x", &[16]);
    let a = b.op("Conv", &[x], "a", &[16]);
    let body = |kind: &str, n: u64| {
        let mut inner = Build::new();
        let cap = inner.f32("a", &[16], TensorKind::Captured(a));
        let big = inner.op(kind, &[cap], "big", &[n]);
        let out = inner.op("Conv", &[big], "out", &[16]);
        inner.output(out);
        inner.graph
    };
    let y = b.op("If", &[x], "y", &[16]);
    b.body("then_branch", body("Conv", 160));
    b.body("else_branch", body("Conv", 320));
    let z = b.op("Conv", &[y], "z", &[1]);
    b.output(z);
    let line = Line::new(&b.graph, &Dims::new()).unwrap();
    let names: Vec<&str> = line.steps.iter().map(|step| step.name.as_str()).collect();
    let then = ["If_1/then_branch/Conv_0", "If_1/then_branch/Conv_1"];
    let other = ["If_1/else_branch/Conv_0", "If_1/else_branch/Conv_1"];
    assert_eq!(names, [&["Conv_0", "If_1"][..], &then, &other, &["If_1", "Conv_2"]].concat());
    let live = |name: &str| {
        let (_, value) = line.values().find(|(_, value)| value.name == name).unwrap();
        value.live().collect::<Vec<_>>()
    };
    assert_eq!(live("a"), [StepRange::steps(0, 5)]);
    assert_eq!(live("If_1/then_branch/out"), [StepRange::steps(3, 4), StepRange::steps(6, 7)]);
    assert_eq!(live("If_1/else_branch/out"), [StepRange::steps(5, 7)]);
    // else: a 64 (captured by its first operator), big 1,280; then its own output beside big. The then branch adds nothing.
    assert_eq!(loads(&b.graph)[1..], [1344, 1344, 1344]);
}

#[test]
fn a_loop_keeps_what_it_carries_and_captures() {
    let mut b = Build::new();
    let x = b.input("x", &[16]);
    let first = b.op("Conv", &[x], "first", &[16]);
    let kept = b.op("Conv", &[x], "kept", &[32]);
    let mut inner = Build::new();
    let carried = inner.input("carried", &[16]);
    let cap = inner.f32("kept", &[32], TensorKind::Captured(kept));
    let t = inner.op("Conv", &[carried, cap], "t", &[64]);
    let next = inner.op("Conv", &[t], "next", &[16]);
    inner.output(next);
    let y = b.op("Loop", &[first], "y", &[16]);
    b.body("body", inner.graph);
    let z = b.op("Conv", &[y], "z", &[1]);
    b.output(z);
    let line = Line::new(&b.graph, &Dims::new()).unwrap();
    let span = |name: &str| line.values().find(|(_, value)| value.name == name).unwrap().1.span;
    // Steps: first, kept, Loop enters (2), t, next, Loop leaves (5), z.
    assert_eq!(span("kept"), StepRange::steps(1, 6));
    assert_eq!(span("Loop_2/body/carried"), StepRange::steps(2, 6));
    assert_eq!(span("first"), StepRange::steps(0, 3));
    assert_eq!(span("y"), StepRange::steps(2, 7));
    assert!(line.steps[3].repeats && !line.steps[5].repeats);
}

fn ranged(range: Option<(u64, u64)>) -> Build {
    let mut b = Build::new();
    let s = b.symbol("s", range);
    let shape = |dim: Dim| Shape::Ranked(vec![dim, Dim::Known(16)]);
    let x = b.tensor("x", ElementType::F32, shape(s.clone()), TensorKind::Input);
    b.graph.inputs.push(x);
    let twice = s.clone().times(Dim::Known(2)).unwrap();
    let a = b.tensor("a", ElementType::F32, shape(s), TensorKind::Computed);
    b.raw("Conv", &[x], &[a]);
    let c = b.tensor("c", ElementType::F32, shape(twice), TensorKind::Computed);
    b.raw("Conv", &[a], &[c]);
    let d = b.op("ReduceMax", &[c], "d", &[16]);
    let y = b.op("Conv", &[d], "y", &[4]);
    b.output(y);
    b
}

#[test]
fn strategies_say_what_each_costs() {
    let b = ranged(Some((1, 8)));
    let input = to_problem(&b.graph, &space(64), &ModelOptions::default()).unwrap();
    assert_eq!(input.problem.validate(), []);
    let [stat, dynamic, hybrid] = &input.strategies[..] else { panic!() };
    // x 512, y 16 in the static part; a 512 and c 1,024 at their largest, d 64.
    assert_eq!((stat.planned_static, stat.planned_load, stat.calls_per_run), (Bytes(576), Bytes(1536), 0));
    assert_eq!((dynamic.planned_load, dynamic.pool_at_most, dynamic.calls_per_run), (Bytes(0), Some(Bytes(2112)), 10));
    assert_eq!((hybrid.planned_static, hybrid.planned_load), (Bytes(64), Bytes(64)));
    assert_eq!((hybrid.pooled, hybrid.pool_at_most, hybrid.calls_per_run), (3, Some(Bytes(2048)), 6));
    // The plan leaves the pool's buffers out.
    let placed = place(&input.problem, &PlacementOptions::fast(), None).unwrap();
    assert_eq!(placed.plan.pooled, input.pooled.iter().map(|pooled| pooled.buffer).collect::<Vec<_>>());
    assert_eq!(placed.plan.spaces[0].peak, Bytes(128));
    assert!(npumem_check::check(&input.problem, &placed.plan).is_sound());
}

#[test]
fn a_static_plan_takes_the_largest_size_of_a_range() {
    let options = ModelOptions { strategy: Strategy::Static, ..ModelOptions::default() };
    let input = to_problem(&ranged(Some((1, 8))).graph, &space(64), &options).unwrap();
    let c = input.problem.buffers.iter().find(|buffer| buffer.name == "c").unwrap();
    assert_eq!((c.size, c.sizing), (Bytes(1024), Sizing::Ranged));
    // A binding from the command line goes before the graph's own range.
    let dims = Dims::from([("s".to_owned(), DimBinding::Fixed(2))]);
    let input = to_problem(&ranged(Some((1, 8))).graph, &space(64), &ModelOptions { dims, ..options }).unwrap();
    let c = input.problem.buffers.iter().find(|buffer| buffer.name == "c").unwrap();
    assert_eq!((c.size, c.sizing), (Bytes(256), Sizing::Fixed));
}

#[test]
fn an_open_dimension_goes_to_the_pool_or_is_asked_for() {
    let b = ranged(None);
    let input = to_problem(&b.graph, &space(64), &ModelOptions::default()).unwrap();
    let hybrid = &input.strategies[2];
    assert_eq!((hybrid.pooled, hybrid.pool_at_most), (3, None));
    assert!(input.strategies[0].refused.as_ref().is_some_and(|why| why.contains("--dim s=")));
    let options = ModelOptions { strategy: Strategy::Static, ..ModelOptions::default() };
    let error = to_problem(&b.graph, &space(64), &options).unwrap_err();
    let text = "a static plan needs the size of 'x', and its dimension 's' is open: give `--dim s=N` or a range \
                `--dim s=LO..HI`, or use `--strategy hybrid`";
    assert_eq!(error.to_string(), text);
}

#[test]
fn under_dynamic_the_plan_places_nothing() {
    let options = ModelOptions { strategy: Strategy::Dynamic, ..ModelOptions::default() };
    let input = to_problem(&chain().graph, &space(64), &options).unwrap();
    let placed = place(&input.problem, &PlacementOptions::fast(), None).unwrap();
    assert_eq!((placed.plan.residencies.len(), placed.plan.spaces[0].peak), (0, Bytes(0)));
}

#[test]
fn a_workspace_is_live_at_its_own_step() {
    let workspaces = [("Conv_0".to_owned(), Bytes(5000))].into();
    let options = ModelOptions { workspaces, ..ModelOptions::default() };
    let input = to_problem(&chain().graph, &space(64), &options).unwrap();
    assert_eq!(input.bounds.iter().map(|bound| bound.bytes.0).collect::<Vec<_>>(), [6080; 4]);
    assert_eq!(input.peak[0].name, "Conv_0 (workspace)");
    let scratch = input.problem.buffers.last().unwrap();
    assert_eq!((scratch.kind, scratch.size), (BufferKind::Workspace, Bytes(5000)));
    let missing = ModelOptions { workspaces: [("nope".to_owned(), Bytes(1))].into(), ..ModelOptions::default() };
    let error = to_problem(&chain().graph, &space(64), &missing).unwrap_err();
    assert_eq!(error, GraphError::UnknownOperator { operator: "nope".to_owned() });
}

#[test]
fn the_static_part_leaves_reserved_ranges_out() {
    let mut main = space(64);
    main.reserved = vec![npumem_ir::ByteRange::at(Offset(100), Bytes(100)).unwrap()];
    let input = to_problem(&chain().graph, &main, &ModelOptions::default()).unwrap();
    // w is 1,024 bytes: it does not fit before the range.
    let w = input.problem.buffers.iter().find(|buffer| buffer.kind == BufferKind::Weight).unwrap();
    assert_eq!(w.pin.unwrap().offset, Offset(256));
    let placed = place(&input.problem, &PlacementOptions::fast(), None).unwrap();
    assert!(npumem_check::check(&input.problem, &placed.plan).is_sound());
}

#[test]
fn the_peak_is_said_by_name_size_and_producer() {
    let input = to_problem(&chain().graph, &space(64), &ModelOptions::default()).unwrap();
    let entry = &input.peak[0];
    assert_eq!((entry.name.as_str(), entry.bytes, entry.producer.as_deref()), ("a", Bytes(1024), Some("Conv_0")));
    let last = input.bounds.last().unwrap();
    assert_eq!((last.step, last.kind.as_str()), (Step(0), "Conv"));
    assert_eq!((input.totals.weights, input.totals.inputs, input.totals.outputs), (Bytes(1024), Bytes(512), Bytes(40)));
    assert_eq!(input.footprints[0].activations, Bytes(1024));
    assert_eq!(input.footprints[0].weights, Bytes(1024));
}

#[test]
fn a_graph_that_is_none_is_refused() {
    let check = |b: &Build| Line::new(&b.graph, &Dims::new()).unwrap_err();
    let mut b = chain();
    b.graph.operators.swap(0, 1);
    assert!(matches!(check(&b), GraphError::UsedBeforeMade { tensor, .. } if tensor == "a"));
    let mut b = chain();
    b.graph.operators[0].inputs[0] = Some(TensorId(99));
    assert!(matches!(check(&b), GraphError::UnknownTensor { id: TensorId(99), .. }));
    let mut b = chain();
    b.graph.outputs.push(TensorId(77));
    assert!(matches!(check(&b), GraphError::UnknownTensor { id: TensorId(77), .. }));
    let mut b = chain();
    b.graph.operators[1].outputs[0] = Some(TensorId(2));
    assert!(matches!(check(&b), GraphError::MadeTwice { tensor, .. } if tensor == "a"));
    let mut b = chain();
    b.graph.tensors[3].shape = Shape::known(&[u64::MAX, 2]);
    assert!(matches!(check(&b), GraphError::TooLarge { tensor } if tensor == "b"));
    let mut b = ranged(Some((9, 3)));
    assert!(matches!(check(&b), GraphError::ReversedRange { low: 9, high: 3, .. }));
    b.graph.tensors[1].kind = TensorKind::Captured(TensorId(0));
    b.graph.symbols[0].range = None;
    assert!(matches!(check(&b), GraphError::UnknownTensor { .. }));
    let empty = to_problem(&npumem_ir::Graph::default(), &space(64), &ModelOptions::default()).unwrap();
    assert!(empty.problem.buffers.is_empty());
}

#[test]
fn an_empty_tensor_takes_no_buffer() {
    let mut b = Build::new();
    let past = b.input("past", &[1, 0, 64]);
    let x = b.input("x", &[1, 1, 64]);
    let k = b.op("Conv", &[x], "k", &[1, 1, 64]);
    let c = b.op("Concat", &[past, k], "c", &[1, 1, 64]);
    b.attribute("axis", Attribute::Int(1));
    let y = b.op("Conv", &[c], "y", &[1]);
    b.output(y);
    assert_eq!(loads(&b.graph), [512, 512, 512, 256]);
    let input = to_problem(&b.graph, &space(64), &ModelOptions::default()).unwrap();
    assert_eq!(input.places[past.index()].buffer, None);
    assert_eq!(input.problem.validate(), []);
}

#[test]
fn a_range_bounds_whatever_the_expression() {
    // For every value in the range, every expression's value is within what interval arithmetic says.
    let (low, high) = (2, 9);
    let mut b = Build::new();
    let s = b.symbol("s", Some((low, high)));
    let of = |dim: &Dim, s: u64| dim.eval(&|_| Some(s)).unwrap();
    let known = |n| Dim::Known(n);
    let one = |d: &Dim| d.clone();
    let all: Vec<Dim> = vec![
        one(&s).plus(known(3)).unwrap(),
        known(7).minus(one(&s)).unwrap(),
        one(&s).minus(known(4)).unwrap(),
        one(&s).times(one(&s)).unwrap(),
        known(20).floor_div(one(&s)).unwrap(),
        known(20).ceil_div(one(&s)).unwrap(),
        one(&s).floor_div(known(4)).unwrap(),
        one(&s).max(known(5)).unwrap(),
        one(&s).min(known(5)).unwrap(),
        known(12).floor_div(one(&s).minus(known(3)).unwrap()).unwrap(),
        known(12).ceil_div(one(&s).minus(known(3)).unwrap()).unwrap(),
    ];
    for (index, dim) in all.iter().enumerate() {
        b.tensor(&format!("t{index}"), ElementType::U8, Shape::Ranked(vec![one(dim)]), TensorKind::Weight);
    }
    let line = Line::new(&b.graph, &Dims::new()).unwrap();
    for (dim, value) in all.iter().zip(&line.values) {
        let most = (low..=high).map(|s| of(dim, s)).max().unwrap();
        let bound = value.size.at_most().unwrap().0;
        assert!(most <= bound, "{dim:?}: {most} > {bound}");
        assert!(bound <= most.max(12) * 2, "{dim:?}: {bound} is far above {most}");
    }
}
