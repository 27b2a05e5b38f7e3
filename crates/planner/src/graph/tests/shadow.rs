//! A shadow memory: random graphs are run twice, once on values and once on the bytes that a plan gives them.
//!
//! Every read from memory must find what the value holds. An operator that does not run in place first spoils the bytes
//! of its outputs and reads then, so that an output over a live input shows; one that runs in place writes element by
//! element as it reads. What the plan says lies in place is not copied.

use super::build::{Build, space};
use crate::graph::line::{Line, Phase, ValueId};
use crate::graph::problem::{ModelInput, ModelOptions, from_line};
use crate::graph::size::Dims;
use crate::graph::storage::{Actions, Over, Storage};
use crate::graph::{bounds, bounds::Workspaces};
use crate::placement::{PlacementOptions, place};
use npumem_ir::graph::{Attribute, Graph, Operator, TensorKind};
use npumem_ir::problem::BufferKind;
use npumem_ir::{Plan, TensorId};
use npumem_testing::Random;

const CELL: u64 = 4;

fn mix(a: u64, b: u64) -> u64 {
    Random(a ^ b.rotate_left(17)).next_u64()
}

/// A graph of a few operators over f32 vectors `[1, n]`, some of them in the branches of an `If` or the body of a loop.
fn random_graph(random: &mut Random, depth: u32, outer: &[(TensorId, u64)]) -> Graph {
    let mut b = Build::new();
    let mut known: Vec<(TensorId, u64)> = Vec::new();
    if depth == 0 {
        for i in 0..1 + random.below(2) {
            let n = 2 * (1 + random.below(4));
            known.push((b.input(&format!("in{i}"), &[1, n]), n));
        }
        known.push((b.weight("w", &[1, 4]), 4));
    }
    for (index, (id, n)) in outer.iter().enumerate() {
        if random.one_in(2) || index == 0 {
            known.push((b.f32(&format!("cap{index}"), &[1, *n], TensorKind::Captured(*id)), *n));
        }
    }
    extend(&mut b, random, depth, &mut known);
    b.graph
}

fn extend(b: &mut Build, random: &mut Random, depth: u32, known: &mut Vec<(TensorId, u64)>) {
    let count = if depth == 0 { 4 + random.below(14) } else { 1 + random.below(4) };
    for i in 0..count {
        let (x, n) = *random.pick(known);
        let name = format!("t{depth}_{i}");
        let same: Vec<TensorId> = known.iter().filter(|(_, m)| *m == n || *m == 1).map(|(id, _)| *id).collect();
        match random.below(if depth < 2 { 13 } else { 11 }) {
            0 => known.push((b.op("Relu", &[x], &name, &[1, n]), n)),
            1 | 2 => known.push((b.op("Add", &[x, *random.pick(&same)], &name, &[1, n]), n)),
            3 => known.push((b.op("Reshape", &[x], &name, &[n, 1]), n)),
            4 => known.push((b.op("Softmax", &[x], &name, &[1, n]), n)),
            5 => {
                let m = 2 * (1 + random.below(5));
                known.push((b.op("Opaque", &[x, random.pick(known).0], &name, &[1, m]), m));
            }
            6 if n >= 2 => {
                let from = random.below(n);
                let length = 1 + random.below(n - from);
                known.push((b.op("Slice", &[x], &name, &[1, length]), length));
                b.attribute("starts", Attribute::Ints(vec![0, from as i64]));
                b.attribute("ends", Attribute::Ints(vec![1, (from + length) as i64]));
            }
            7 if n >= 2 => {
                let first = 1 + random.below(n - 1);
                let parts = [(format!("{name}a"), first), (format!("{name}b"), n - first)];
                let ids = parts.map(|(name, m)| (b.f32(&name, &[1, m], TensorKind::Computed), m));
                b.raw("Split", &[x], &[ids[0].0, ids[1].0]);
                b.attribute("axis", Attribute::Int(1));
                known.extend(ids);
            }
            8 | 9 if n < 40 => {
                let more: Vec<(TensorId, u64)> = (0..1 + random.below(2)).map(|_| *random.pick(known)).collect();
                let total = n + more.iter().map(|(_, m)| m).sum::<u64>();
                let parts: Vec<TensorId> = std::iter::once(x).chain(more.iter().map(|(id, _)| *id)).collect();
                known.push((b.op("Concat", &parts, &name, &[1, total]), total));
                b.attribute("axis", Attribute::Int(1));
            }
            10 => {
                known.push((b.op("Transpose", &[x], &name, &[n, 1]), n));
                b.attribute("perm", Attribute::Ints(vec![1, 0]));
            }
            11 => branch(b, random, depth, known, &name, (x, n)),
            12 => turn(b, random, depth, known, &name, (x, n)),
            _ => {}
        }
    }
    if depth == 0 {
        for _ in 0..1 + random.below(2) {
            let (id, _) = *random.pick(known);
            let computed = b.graph.tensors[id.index()].kind == TensorKind::Computed;
            if computed && !b.graph.outputs.contains(&id) {
                b.output(id);
            }
        }
    }
}

/// Both branches end in an output of `n`; sometimes that is a captured value itself.
fn branch(
    b: &mut Build,
    random: &mut Random,
    depth: u32,
    known: &mut Vec<(TensorId, u64)>,
    name: &str,
    (x, n): (TensorId, u64),
) {
    let bodies = ["then_branch", "else_branch"].map(|body| {
        let mut inner = Build { graph: random_graph(random, depth + 1, known) };
        let fit: Vec<TensorId> = inner
            .graph
            .tensors()
            .filter(|(_, tensor)| tensor.shape.elements().and_then(|all| all.known()) == Some(n))
            .map(|(id, _)| id)
            .collect();
        let out = match fit.last() {
            Some(id) => *id,
            None => {
                let any = TensorId(0);
                inner.op("Opaque", &[any], "fit", &[1, n])
            }
        };
        inner.output(out);
        (body, inner.graph)
    });
    let out = b.op("If", &[x], name, &[1, n]);
    for (body, graph) in bodies {
        b.body(body, graph);
    }
    known.push((out, n));
}

/// A loop that carries one value of `n`.
fn turn(
    b: &mut Build,
    random: &mut Random,
    depth: u32,
    known: &mut Vec<(TensorId, u64)>,
    name: &str,
    (x, n): (TensorId, u64),
) {
    let mut inner = Build::new();
    let carried = inner.input("carried", &[1, n]);
    let mut inside = vec![(carried, n)];
    for (index, (id, m)) in known.iter().enumerate().take(2) {
        inside.push((inner.f32(&format!("cap{index}"), &[1, *m], TensorKind::Captured(*id)), *m));
    }
    extend(&mut inner, random, depth + 1, &mut inside);
    let last = inside.iter().rev().find(|(_, m)| *m == n).map_or(carried, |(id, _)| *id);
    inner.output(last);
    let out = b.op("Loop", &[x], name, &[1, n]);
    b.body("body", inner.graph);
    known.push((out, n));
}

struct Run<'a, 'g> {
    line: &'a Line<'g>,
    input: &'a ModelInput,
    plan: &'a Plan,
    memory: Vec<u64>,
    values: Vec<Vec<u64>>,
    /// Which branch the next `If` takes, and how often loops turn.
    choices: Random,
    context: String,
}

impl Run<'_, '_> {
    fn cells(&self, id: ValueId) -> std::ops::Range<usize> {
        let place = self.input.places[id.index()];
        let Some(buffer) = place.buffer else { return 0..0 };
        let offset = self.plan.residencies_of(buffer)[0].offset.0 + place.delta.0;
        assert_eq!(offset % CELL, 0);
        let start = (offset / CELL) as usize;
        let count = self.line.value(id).size.fixed().unwrap().0 / CELL;
        start..start + count as usize
    }

    fn read(&self, id: ValueId, at: &str) {
        let found = &self.memory[self.cells(id)];
        let expected = &self.values[id.index()];
        assert_eq!(found, expected, "{}: {at} reads '{}'", self.context, self.line.value(id).name);
    }

    fn write(&mut self, id: ValueId, content: Vec<u64>) {
        let cells = self.cells(id);
        self.memory[cells].copy_from_slice(&content);
        self.values[id.index()] = content;
    }

    /// Steps `[from, to)`, one operator after another.
    fn steps(&mut self, mut from: usize, to: usize) {
        while from < to {
            let step = &self.line.steps[from];
            match step.phase {
                Phase::Whole => {
                    self.whole(from);
                    from += 1;
                }
                Phase::Enter if step.operator.kind == "If" => from = self.branches(from),
                Phase::Enter => from = self.turns(from),
                Phase::Leave => unreachable!(),
            }
        }
    }

    fn branches(&mut self, enter: usize) -> usize {
        let operator = self.line.steps[enter].operator;
        for id in self.line.steps[enter].inputs.iter().flatten() {
            self.read(*id, "If");
        }
        let first = length(&operator.bodies[0].graph);
        let leave = enter + 1 + first + length(&operator.bodies[1].graph);
        let taken = self.choices.below(2) as usize;
        let from = enter + 1 + if taken == 0 { 0 } else { first };
        self.steps(from, if taken == 0 { from + first } else { leave });
        let step = &self.line.steps[leave];
        let (inner, outer) = (step.inputs[taken].unwrap(), step.outputs[0].unwrap());
        self.read(inner, "If's end");
        self.write(outer, self.values[inner.index()].clone());
        leave + 1
    }

    fn turns(&mut self, enter: usize) -> usize {
        let step = &self.line.steps[enter];
        let body = &step.operator.bodies[0].graph;
        let leave = enter + 1 + length(body);
        let initial = step.inputs[0].unwrap();
        let result = self.line.steps[leave].inputs[0].unwrap();
        let prefix = format!("{}/body/carried", step.name);
        let carried = self.line.values().find(|(_, value)| value.name == prefix).unwrap().0;
        self.read(initial, "Loop");
        self.write(carried, self.values[initial.index()].clone());
        for _ in 0..1 + self.choices.below(3) {
            self.steps(enter + 1, leave);
            self.read(result, "the end of a turn");
            self.write(carried, self.values[result.index()].clone());
        }
        self.write(self.line.steps[leave].outputs[0].unwrap(), self.values[carried.index()].clone());
        leave + 1
    }

    fn whole(&mut self, index: usize) {
        let line = self.line;
        let step = &line.steps[index];
        let inputs: Vec<ValueId> = step.inputs.iter().flatten().copied().collect();
        let outputs: Vec<ValueId> = step.outputs.iter().flatten().copied().collect();
        let kind = step.operator.kind.as_str();
        let at = step.name.as_str();
        let results = compute(line, index, &inputs, &outputs, &self.values);
        for id in &inputs {
            self.read(*id, at);
        }
        if matches!(kind, "Reshape" | "Slice" | "Split" | "Concat" | "Transpose") {
            // Copies: only where the bytes are not there already.
            for (id, content) in outputs.iter().zip(results) {
                let there = self.cells(*id);
                let own = |input: &ValueId| {
                    let cells = self.cells(*input);
                    cells.start < there.end && there.start < cells.end
                };
                if kind == "Concat" {
                    let mut part = there.start;
                    for input in &inputs {
                        let cells = self.cells(*input);
                        let (start, count) = (cells.start, cells.len());
                        if start != part {
                            let content = self.memory[cells].to_vec();
                            self.memory[part..part + count].copy_from_slice(&content);
                        }
                        part += count;
                    }
                } else if !inputs.iter().any(own) {
                    self.memory[there].copy_from_slice(&content);
                }
                self.values[id.index()] = content;
                self.read(*id, at);
            }
            return;
        }
        let (out, content) = (outputs[0], results.into_iter().next().unwrap());
        let there = self.cells(out);
        let over = inputs.iter().any(|input| self.cells(*input) == there) && matches!(kind, "Relu" | "Add" | "Softmax");
        if !over {
            self.memory[there.clone()].fill(0xDEAD);
            for id in &inputs {
                self.read(*id, at);
            }
        }
        if kind == "Softmax" {
            self.memory[there].copy_from_slice(&content);
        } else {
            for (i, cell) in content.iter().enumerate() {
                for input in &inputs {
                    let cells = self.cells(*input);
                    // Opaque operators do not run in place: they have read all of it.
                    let j = if cells.len() == content.len() { i } else { 0 };
                    let expected = self.values[input.index()].get(j);
                    assert!(kind == "Opaque" || self.memory.get(cells.start + j) == expected, "{}: {at}", self.context);
                }
                self.memory[there.start + i] = *cell;
            }
        }
        self.values[out.index()] = content;
    }
}

/// How many steps a body takes.
fn length(graph: &Graph) -> usize {
    let of = |operator: &Operator| match operator.bodies.as_slice() {
        [] => 1,
        bodies => 2 + bodies.iter().map(|body| length(&body.graph)).sum::<usize>(),
    };
    graph.operators.iter().map(of).sum()
}

fn compute(
    line: &Line<'_>,
    index: usize,
    inputs: &[ValueId],
    outputs: &[ValueId],
    values: &[Vec<u64>],
) -> Vec<Vec<u64>> {
    let step = &line.steps[index];
    let of = |id: ValueId| values[id.index()].as_slice();
    let first = of(inputs[0]);
    let count = |id: ValueId| (line.value(id).size.fixed().unwrap().0 / CELL) as usize;
    let tag = mix(index as u64, 77);
    match step.operator.kind.as_str() {
        "Reshape" | "Transpose" => vec![first.to_vec()],
        "Relu" => vec![first.iter().map(|x| mix(tag, *x)).collect()],
        "Softmax" => {
            let all = first.iter().fold(tag, |sum, x| mix(sum, *x));
            vec![first.iter().map(|x| mix(all, *x)).collect()]
        }
        "Add" => {
            let second = of(inputs[1]);
            let at = |i: usize| if second.len() == first.len() { second[i] } else { second[0] };
            vec![first.iter().enumerate().map(|(i, x)| mix(mix(tag, *x), at(i))).collect()]
        }
        "Slice" => {
            let Some(Attribute::Ints(starts)) = step.operator.attributes.get("starts") else { panic!() };
            let from = starts[1] as usize;
            vec![first[from..from + count(outputs[0])].to_vec()]
        }
        "Split" => {
            let (a, b) = first.split_at(count(outputs[0]));
            vec![a.to_vec(), b.to_vec()]
        }
        "Concat" => vec![inputs.iter().flat_map(|id| of(*id).iter().copied()).collect()],
        "Opaque" => {
            let all = inputs.iter().flat_map(|id| of(*id)).fold(tag, |sum, x| mix(sum, *x));
            vec![(0..count(outputs[0]) as u64).map(|i| mix(all, i)).collect()]
        }
        other => panic!("{other}"),
    }
}

/// One graph, under one set of actions: the plan is sound, the bound is the load, the run finds its values.
fn check(graph: &Graph, seed: u64, actions: Actions, over: Over, align: u64) {
    let context = format!("seed {seed} {} {over:?} align {align}", actions.name());
    let line = Line::new(graph, &Dims::new()).unwrap();
    let options = ModelOptions { actions, over, ..ModelOptions::default() };
    let input = from_line("test", &line, &space(align), &options).unwrap();
    assert_eq!(input.problem.validate(), [], "{context}");
    let placed = place(&input.problem, &PlacementOptions::fast(), None).unwrap();
    let verdict = npumem_check::check(&input.problem, &placed.plan);
    assert!(verdict.is_sound(), "{context}: {:?}", verdict.violations);
    loads_agree(&line, &input, actions, over, align, &context);
    for choice in 0..3 {
        let peak = placed.plan.spaces[0].peak.0.div_ceil(CELL) as usize;
        let mut run = Run {
            line: &line,
            input: &input,
            plan: &placed.plan,
            memory: vec![0; peak],
            values: vec![Vec::new(); line.values.len()],
            choices: Random(mix(seed, choice)),
            context: format!("{context} choice {choice}"),
        };
        let given: Vec<ValueId> =
            line.values().filter(|(_, value)| value.producer.is_none()).map(|(id, _)| id).collect();
        for id in &given {
            let content = run.cells(*id).map(|cell| mix(cell as u64, u64::from(id.0))).collect();
            run.write(*id, content);
        }
        run.steps(0, line.steps.len());
        for id in graph.outputs.iter().map(|id| ValueId(id.0)).chain(given) {
            run.read(id, "the caller");
        }
    }
}

/// The largest live load, from the problem's own buffers: per step and colocated group the union of live bytes.
fn loads_agree(line: &Line<'_>, input: &ModelInput, actions: Actions, over: Over, align: u64, context: &str) {
    let problem = &input.problem;
    let mut base: Vec<(usize, u64)> = (0..problem.buffers.len()).map(|index| (index, 0)).collect();
    for rule in &problem.constraints.colocated {
        base[rule.buffer.index()] = (rule.base.index(), rule.delta.0);
    }
    let steps = line.steps.len().max(1) as u64;
    let mut most = 0;
    for step in 0..steps {
        let mut bytes = std::collections::BTreeSet::new();
        for (index, buffer) in problem.buffers.iter().enumerate() {
            let live = buffer.live.iter().any(|range| range.steps.contains(npumem_ir::Step(step)));
            if buffer.kind == BufferKind::Activation && live {
                let (group, delta) = base[index];
                bytes.extend((delta..delta + buffer.size.0.next_multiple_of(align)).map(|byte| (group, byte)));
            }
        }
        most = most.max(bytes.len() as u64);
    }
    let storage = Storage::with(line, actions, space(align).alignment, over);
    let bound = bounds::bound(line, &storage, actions, &Workspaces::new());
    assert_eq!(bound.bytes.0, most, "{context}");
    let entries = bounds::live_at(line, &storage, &Workspaces::new(), bound.step);
    assert_eq!(entries.iter().map(|entry| entry.bytes.0).sum::<u64>(), most, "{context}: {entries:?}");
}

#[test]
fn every_read_finds_its_value_whatever_is_shared() {
    for seed in 0..400 {
        let graph = random_graph(&mut Random(seed), 0, &[]);
        for actions in Actions::LADDER {
            for over in [Over::Youngest, Over::Oldest] {
                check(&graph, seed, actions, over, 4);
            }
        }
        check(&graph, seed, Actions::ALL, Over::Youngest, 8);
        check(&graph, seed, Actions { views: false, ..Actions::ALL }, Over::Youngest, 4);
    }
}

#[test]
fn more_sharing_never_needs_more() {
    for seed in 400..900 {
        let graph = random_graph(&mut Random(seed), 0, &[]);
        let line = Line::new(&graph, &Dims::new()).unwrap();
        let bounds = bounds::bounds(&line, space(4).alignment, &Workspaces::new());
        assert!(bounds.windows(2).all(|pair| pair[0].bytes >= pair[1].bytes), "seed {seed}: {bounds:?}");
    }
}
