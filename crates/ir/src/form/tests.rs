//! Both forms hold everything, both ways; and no text makes a reader panic.

use crate::graph::{Attribute, Body, Dim, DimExpr, ElementType, Graph, Operator, Shape, Symbol, Tensor, TensorKind};
use crate::interval::{Interval, StepRange};
use crate::plan::{Move, Origin, Plan, Residency, SpaceUse, Stop};
use crate::problem::{
    Access, Buffer, BufferKind, Colocation, Goal, LiveRange, Location, Problem, ReusePenalty, Separation, Sizing,
    Space, Use,
};
use crate::{Alignment, BufferId, Bytes, LinkId, Offset, SpaceId, Step, SymbolId, TensorId};
use npumem_testing::Random;

/// Names that need care: quotes, blanks, marks of the forms themselves, other alphabets.
const NAMES: [&str; 16] = [
    "a",
    "0",
    "conv_1",
    "/model/layers.0/MatMul",
    "onnx::Add_3",
    "",
    " ",
    "a b",
    "say \"hi\"",
    "#3",
    "-",
    "back\\slash",
    "line\nfeed\r\t\u{1}\u{2028}",
    "变量",
    "a=b,c[d)",
    "# no comment",
];

fn name(random: &mut Random) -> String {
    random.pick(&NAMES).to_string()
}

fn range(random: &mut Random, below: u64) -> (u64, u64) {
    let start = random.below(below);
    (start, start + 1 + random.below(below))
}

fn some<T>(random: &mut Random, make: impl FnOnce(&mut Random) -> T) -> Option<T> {
    random.one_in(3).then(|| make(random))
}

fn live(random: &mut Random, size: u64) -> Vec<LiveRange> {
    let mut at = 0;
    (0..1 + random.below(3))
        .map(|_| {
            let start = at + random.below(5);
            let end = start + 1 + random.below(9);
            at = end;
            let window = some(random, |random| {
                let low = random.below(size);
                Interval { start: Offset(low), end: Offset(low + 1 + random.below(size - low)) }
            });
            LiveRange { steps: StepRange::steps(start, end), window }
        })
        .collect()
}

fn buffer(random: &mut Random, spaces: u64) -> Buffer {
    let size = 1 + random.below(1 << 20);
    let all: Vec<SpaceId> = (0..spaces as u32).map(SpaceId).collect();
    let first = random.below(spaces) as usize;
    let allowed = all[first..first + 1 + random.below(spaces - first as u64) as usize].to_vec();
    let place =
        |random: &mut Random| Location { space: *random.pick(&allowed), offset: Offset(random.next_u64() >> 9) };
    let live = live(random, size);
    let lifetime = (live[0].steps.start.0, live[live.len() - 1].steps.end.0);
    Buffer {
        name: name(random),
        size: Bytes(size),
        sizing: *random.pick(&[Sizing::Fixed, Sizing::Fixed, Sizing::Ranged]),
        alignment: Alignment::new(1 + random.below(3) * 31).unwrap(),
        pin: some(random, place),
        hint: some(random, place),
        kind: *random.pick(&[BufferKind::Activation, BufferKind::Weight, BufferKind::Workspace]),
        producer: some(random, name),
        uses: (0..random.below(3))
            .map(|_| Use {
                step: Step(lifetime.0 + random.below(lifetime.1 - lifetime.0)),
                access: *random.pick(&[Access::Read, Access::Write]),
                bytes: Bytes(random.next_u64()),
            })
            .collect(),
        live,
        spaces: allowed,
    }
}

/// A sound problem with a bit of everything.
pub(super) fn problem(random: &mut Random) -> Problem {
    let space_count = 1 + random.below(3);
    let spaces: Vec<Space> = (0..space_count)
        .map(|index| Space {
            name: format!("{}{index}", name(random)),
            capacity: some(random, |random| Bytes(random.next_u64())),
            alignment: Alignment::new(1 + random.below(64)).unwrap(),
            reserved: (0..random.below(3))
                .map(|_| range(random, 1000))
                .map(|(start, end)| Interval { start: Offset(start), end: Offset(end) })
                .collect(),
        })
        .collect();
    let buffers: Vec<Buffer> = (0..random.below(12)).map(|_| buffer(random, space_count)).collect();
    let mut problem = Problem { name: name(random), spaces, buffers, ..Problem::default() };
    let count = problem.buffers.len() as u64;
    for _ in 0..if count > 1 { random.below(6) } else { 0 } {
        let first = random.below(count - 1) as u32;
        let (first, second) =
            (BufferId(first), BufferId(first + 1 + random.below(count - 1 - u64::from(first)) as u32));
        let lists = &mut problem.constraints;
        match random.below(4) {
            0 => lists.colocated.push(Colocation { buffer: second, base: first, delta: Bytes(random.below(999)) }),
            1 => {
                let reasons = (0..random.below(3)).map(|_| name(random)).collect();
                lists.separated.push(Separation { first, second, reasons });
            }
            2 => lists.never_coexist.push((first, second)),
            _ => {
                let (cost, reason) = (random.next_u64(), name(random));
                lists.reuse_penalties.push(ReusePenalty { first, second, cost, reason });
            }
        }
    }
    problem.goals =
        (0..random.below(3)).map(|_| *random.pick(&[Goal::Fit, Goal::ReuseCost, Goal::TotalPeak])).collect();
    if !problem.validate().is_empty() {
        // Colocations at random may clash with each other, with pins and with separations.
        problem.constraints.colocated.clear();
    }
    assert_eq!(problem.validate(), vec![]);
    problem
}

pub(super) fn plan(random: &mut Random) -> Plan {
    let spaces: Vec<SpaceUse> = (0..1 + random.below(3))
        .map(|_| SpaceUse {
            space: name(random),
            peak: Bytes(random.next_u64()),
            lower_bound: Bytes(random.below(9)),
            bound_reason: name(random),
            capacity: some(random, |random| Bytes(random.next_u64())),
        })
        .collect();
    let place =
        |random: &mut Random| Location { space: SpaceId(random.below(4) as u32), offset: Offset(random.next_u64()) };
    let steps = |random: &mut Random| range(random, 1 << 40);
    let mut residencies: Vec<Residency> = (0..random.below(9))
        .map(|_| {
            let (Location { space, offset }, (start, end)) = (place(random), steps(random));
            Residency { buffer: BufferId(random.below(20) as u32), space, offset, steps: StepRange::steps(start, end) }
        })
        .collect();
    residencies.sort_by_key(|residency| (residency.buffer, residency.steps.start));
    let mut moves: Vec<Move> = (0..random.below(4))
        .map(|_| {
            let (start, end) = steps(random);
            Move {
                steps: StepRange::steps(start, end),
                buffer: BufferId(random.next_u64() as u32),
                from: place(random),
                to: place(random),
                link: some(random, |random| LinkId(random.next_u64() as u32)),
            }
        })
        .collect();
    moves.sort_by_key(|copy| copy.steps.start);
    Plan {
        problem: name(random),
        device: some(random, name),
        residencies,
        moves,
        pooled: (0..random.below(3) as u32).map(BufferId).collect(),
        spaces,
        origin: Origin {
            tool: name(random),
            goals: vec![Goal::KeepHints],
            stop: *random.pick(&[Stop::Optimal, Stop::Exhausted, Stop::Interrupted]),
            method: name(random),
            seed: random.below(3),
            options: (0..random.below(3)).map(|_| (name(random), name(random))).collect(),
            work: (0..random.below(3)).map(|_| (name(random), random.next_u64())).collect(),
            digest: name(random),
        },
    }
}

fn dim(random: &mut Random, depth: u32) -> Dim {
    match random.below(if depth > 3 { 2 } else { 10 }) {
        0 => Dim::Known(random.next_u64()),
        1 => Dim::Symbol(SymbolId(random.below(4) as u32)),
        operation => {
            let (a, b) = (dim(random, depth + 1), dim(random, depth + 1));
            let make = [
                DimExpr::Add,
                DimExpr::Sub,
                DimExpr::Mul,
                DimExpr::FloorDiv,
                DimExpr::CeilDiv,
                DimExpr::Max,
                DimExpr::Min,
                DimExpr::Mod,
            ][operation as usize - 2];
            Dim::Expr(Box::new(make(a, b)))
        }
    }
}

pub(super) fn graph(random: &mut Random, depth: u32, around: u32) -> Graph {
    let symbols = ["batch", "seq len", "#1", "max"]
        .map(|name| Symbol { name: name.into(), range: some(random, |random| (1, 1 + random.below(99))) })
        .to_vec();
    let tensors: Vec<Tensor> = (0..6)
        .map(|index| Tensor {
            name: format!("{}{index}", name(random)),
            element: *random.pick(&[ElementType::F32, ElementType::I4, ElementType::Text]),
            shape: match random.below(5) {
                0 => Shape::Unknown,
                1 => Shape::Opaque,
                rank => Shape::Ranked((2..rank).map(|_| dim(random, 0)).collect()),
            },
            kind: match index {
                0 if around > 0 => TensorKind::Captured(TensorId(random.below(u64::from(around)) as u32)),
                0 | 1 => TensorKind::Input,
                2 => TensorKind::Weight,
                3 => TensorKind::Constant,
                _ => TensorKind::Computed,
            },
        })
        .collect();
    let operators = (4..6)
        .map(|made| Operator {
            name: name(random),
            kind: name(random),
            domain: name(random),
            inputs: (0..made).map(|read| random.one_in(2).then_some(TensorId(read))).collect(),
            outputs: vec![None, Some(TensorId(made))],
            attributes: [
                ("i".to_owned(), Attribute::Int(-3)),
                (name(random), Attribute::Float(*random.pick(&[0.1, 1.0, -1e-30, 3e38, f32::INFINITY]))),
                ("t".to_owned(), Attribute::Text(name(random))),
                ("is".to_owned(), Attribute::Ints(vec![i64::MIN, 0, i64::MAX])),
                ("fs".to_owned(), Attribute::Floats(vec![0.5, f32::NEG_INFINITY])),
                ("none".to_owned(), Attribute::Floats(vec![])),
                ("empty".to_owned(), Attribute::Ints(vec![])),
            ]
            .into(),
            constants: [(1, vec![-1, 2]), (7, vec![])].into(),
            bodies: (0..if depth < 2 { random.below(2) } else { 0 })
                .map(|_| Body { name: name(random), graph: graph(random, depth + 1, 6) })
                .collect(),
        })
        .collect();
    let (inputs, outputs) = (vec![TensorId(1)], vec![TensorId(5), TensorId(1)]);
    Graph { name: name(random), symbols, tensors, operators, inputs, outputs }
}

#[test]
fn problems_go_through_text_and_json() {
    let mut random = Random(1);
    for _ in 0..400 {
        let problem = problem(&mut random);
        let text = problem.to_text();
        assert_eq!(Problem::from_text(&text).as_ref(), Ok(&problem), "{text}");
        let json = problem.to_json();
        assert_eq!(Problem::from_json(&json).as_ref(), Ok(&problem), "{json}");
        let windows = text.replace('\n', "\r\n");
        assert_eq!(Problem::from_text(&format!("\u{feff}{windows}")).unwrap().digest(), problem.digest());
    }
}

#[test]
fn plans_go_through_text_and_json() {
    let mut random = Random(2);
    for _ in 0..400 {
        let plan = plan(&mut random);
        let text = plan.to_text();
        assert_eq!(Plan::from_text(&text).as_ref(), Ok(&plan), "{text}");
        assert_eq!(Plan::from_text(&plan.to_text_with(&problem(&mut random))).as_ref(), Ok(&plan));
        let json = plan.to_json();
        assert_eq!(Plan::from_json(&json).as_ref(), Ok(&plan), "{json}");
    }
}

#[test]
fn graphs_go_through_text_and_json() {
    let mut random = Random(3);
    for _ in 0..200 {
        let graph = graph(&mut random, 0, 0);
        let text = graph.to_text();
        assert_eq!(Graph::from_text(&text).as_ref(), Ok(&graph), "{text}");
        let json = graph.to_json();
        assert_eq!(Graph::from_json(&json).as_ref(), Ok(&graph), "{json}");
    }
}

/// Turns sound text into text that is near it: cut, repeated, with other bytes and other lines.
fn damage(random: &mut Random, text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, *random.pick(b"\"#[](),=@+-*0 9\n\\{}s:")),
            2 if at < bytes.len() => bytes[at] = random.next_u64() as u8,
            3 => {
                let end = (at + random.below(40) as usize).min(bytes.len());
                bytes.extend_from_within(at..end);
            }
            _ => {
                let end = (at + random.below(9) as usize).min(bytes.len());
                bytes.drain(at..end);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whatever a reader accepts can be written and read again; whatever it refuses it says in one error.
fn readers_hold(text: &str) {
    if let Ok(problem) = Problem::from_text(text) {
        assert_eq!(Problem::from_text(&problem.to_text()), Ok(problem));
    }
    if let Ok(problem) = Problem::from_json(text) {
        assert_eq!(Problem::from_json(&problem.to_json()), Ok(problem));
    }
    if let Ok(plan) = Plan::from_text(text) {
        assert_eq!(Plan::from_text(&plan.to_text()), Ok(plan));
    }
    if let Ok(plan) = Plan::from_json(text) {
        assert_eq!(Plan::from_json(&plan.to_json()), Ok(plan));
    }
    // A damaged number may read as NaN, which equals nothing: texts are compared, not values.
    if let Ok(graph) = Graph::from_text(text) {
        assert_eq!(Graph::from_text(&graph.to_text()).map(|graph| graph.to_text()), Ok(graph.to_text()));
    }
    if let Ok(graph) = Graph::from_json(text) {
        assert_eq!(Graph::from_json(&graph.to_json()).map(|graph| graph.to_json()), Ok(graph.to_json()));
    }
}

#[test]
fn damaged_text_never_panics() {
    let mut random = Random(4);
    for _ in 0..150 {
        let sound = [
            problem(&mut random).to_text(),
            problem(&mut random).to_json(),
            plan(&mut random).to_text(),
            plan(&mut random).to_json(),
            graph(&mut random, 0, 0).to_text(),
            graph(&mut random, 1, 0).to_json(),
        ];
        for text in &sound {
            for _ in 0..8 {
                readers_hold(&damage(&mut random, text));
            }
        }
    }
}

fn problem_error(text: &str) -> String {
    Problem::from_text(text).expect_err(text).to_string()
}

#[test]
fn text_errors_say_line_and_character() {
    let cases = [
        ("", "line 1, character 1: found nothing, expected 'npumem-problem 1' in the first line"),
        ("npumem-plan 1\n", "line 1, character 1: found 'npumem-plan', expected 'npumem-problem 1' in the first line"),
        ("npumem-problem 2\n", "line 1, character 16: found version 2, expected version 1"),
        ("npumem-problem 1\n\nspac UB", "line 3, character 1: found 'spac', expected name, goal, space"),
        (
            "npumem-problem 1\nspace UB size=3",
            "line 2, character 10: found 'size', expected capacity, align or reserved",
        ),
        (
            "npumem-problem 1\nspace m\nbuffer b size=-4 live=[0,1)",
            "line 3, character 15: found '-4', expected a whole",
        ),
        (
            "npumem-problem 1\nspace m\nbuffer b size=99999999999999999999 live=[0,1)",
            "line 3, character 15: found '99999999999999999999', expected a number of 64 bits",
        ),
        (
            "npumem-problem 1\nspace m\nbuffer 变量 size=4 live=[2,1)",
            "line 3, character 23: found [2,1), expected a range",
        ),
        ("npumem-problem 1\nspace m\nbuffer b size=4", "line 3, character 16: expected live=[START,END)"),
        ("npumem-problem 1\nspace m\nbuffer b size=4 live=[1,1)", "buffer #0 'b': live range [1, 1) holds no step"),
        ("npumem-problem 1\nbuffer b size=4 live=[0,1)", "found 0 spaces and no choice among them, expected in=SPACE"),
        ("npumem-problem 1\nnever-coexist a b", "line 2, character 15: found 'a', expected a buffer that is declared"),
        ("npumem-problem 1\nname \"open", "line 2, character 6: found a string without an end"),
        ("npumem-problem 1\nname \"\\q\"", "found an unknown escape"),
        ("npumem-problem 1\nspace m align=0", "line 2, character 15: found 0, expected an alignment of at least 1"),
    ];
    for (text, expected) in cases {
        let error = problem_error(text);
        assert!(error.contains(expected), "{text:?}\n  {error:?}\n  lacks {expected:?}");
    }
}

#[test]
fn json_errors_say_the_cause_before_the_symptom() {
    let cases = [
        (
            r#"{"format":"npumem-plan","version":1}"#,
            r#"found "format": "npumem-plan", expected "format": "npumem-problem""#,
        ),
        (r#"{"format":"npumem-problem","version":2,"name":"","new":1}"#, r#"found "version": 2, expected"#),
        (r#"{"name":"","spaces":[],"buffers":[]}"#, r#"found no "format", expected"#),
        (
            r#"{"format":"npumem-problem","version":1,"name":"","spaces":[],"buffers":[],"size":3}"#,
            "unknown field `size`",
        ),
        (
            "{\n \"format\":\"npumem-problem\",\n \"version\":1,\n \"name\": 3}",
            "line 4, character 10: invalid type: integer `3`",
        ),
        ("[1, 2]", "found '[', expected an object"),
        ("{", "line 1, character 1: EOF"),
        (
            r#"{"format":"npumem-problem","version":1,"name":"","spaces":[],"buffers":[{"name":"a","size":1,
               "live":[{"steps":{"start":0,"end":1}}],"spaces":[3]}]}"#,
            "buffer #0 'a': space3 does not exist",
        ),
    ];
    for (text, expected) in cases {
        let error = Problem::from_json(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}\n  {error:?}\n  lacks {expected:?}");
    }
    let deep = "[".repeat(100_000);
    assert!(Problem::from_json(&deep).is_err() && Graph::from_json(&deep).is_err());
}

#[test]
fn graph_faults_are_named() {
    let cases = [
        ("tensor a f32 [2] \ntensor a f32 [3]", "two tensors are called 'a'"),
        ("tensor a f32 [n]", "line 2, character 15: found 'n', expected a number, or a symbol that is declared above"),
        ("tensor a f33 [2]", "line 2, character 10: found 'f33', expected an element type"),
        ("tensor a f32 [2]\nop r Relu in=a", "operator 'r' reads tensor 'a' before it is made"),
        ("tensor a f32 [2] captured #0", "captured tensor 'a' names tensor %0, and the graph has 0"),
        ("tensor a f32 [2]\nop r R out=a\nop s S out=a", "tensor 'a' is made twice, the second time by operator 's'"),
        ("op r R in=b", "line 2, character 11: found 'b', expected a tensor that is declared above"),
        ("op r R\nbody b", "line 3: found the end of the text, expected 'end' of a body"),
        ("end", "line 2, character 1: found 'end' without a body"),
        ("body b", "found a body, expected an op in the line above"),
    ];
    for (items, expected) in cases {
        let error = Graph::from_text(&format!("npumem-graph 1\n{items}\n")).expect_err(items).to_string();
        assert!(error.contains(expected), "{items}\n  {error:?}\n  lacks {expected:?}");
    }
    let nested = format!("npumem-graph 1\n{}", "op o If\nbody b\n".repeat(200));
    let error = Graph::from_text(&nested).unwrap_err().to_string();
    assert!(error.contains("at most 32 levels"), "{error}");
    let long = format!("npumem-graph 1\ntensor a f32 [{}1", "(".repeat(100_000));
    assert!(Graph::from_text(&long).unwrap_err().to_string().contains("at most 128 parts"));
}

#[test]
fn the_text_form_reads_well() {
    let text = "\
npumem-problem 1
name example
goal total-peak
space HBM
space UB capacity=196608 align=32 reserved=[0,8192)
buffer x size=65536 live=[0,4) in=HBM,UB kind=input
buffer y size=65536 live=[2,6),[6,8)@[0,128) in=UB pin=UB+65536 producer=/layer.0/MatMul uses=write@2*65536,read@5*65536
buffer \"y z\" size=128 live=[8,9) in=HBM sizing=ranged
buffer z size=128 live=[8,9) in=UB align=64 hint=UB+8192
colocated z y delta=128
separated x y reasons=cross_pipe,\"my reason\"
never-coexist x \"y z\"
reuse-penalty x z cost=4 reason=cross_pipe
";
    assert_eq!(Problem::from_text(text).unwrap().to_text(), text);
    let text = "\
npumem-plan 1
problem example
device ascend-910b2
tool \"npumem 0.1.0\"
method valley
goal peak
stop optimal
work valley 120
space HBM peak=65536 lower-bound=65536 because=\"largest live load at step 3\"
space UB peak=65664 lower-bound=65536 capacity=196608
place #0 [0,4) HBM+0
place #0 [4,9) UB+128
move #0 [3,4) HBM+0 -> UB+128 link=#2
pooled #7
";
    assert_eq!(Plan::from_text(text).unwrap().to_text(), text);
    let text = "\
npumem-graph 1
name two
symbol batch 1..8
tensor x f32 [batch,3,(2*batch)] input
tensor w f32 [3,4] weight
tensor y f32 [batch,4]
tensor z f32 [ceil(batch/2),\"not bare\"]
input x
output y
op mm MatMul in=x,w out=y attr.alpha=1.0 attr.mode=\"fast\" attr.pads=[0,1]
op r Reshape in=y,- out=z const.1=[-1,4]
body then_branch
  tensor y f32 unknown captured #2
  output y
end
"
    .replace("symbol batch 1..8\n", "symbol batch 1..8\nsymbol \"not bare\"\n");
    assert_eq!(Graph::from_text(&text).unwrap().to_text(), text);
}
