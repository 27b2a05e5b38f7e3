//! Problems, plans and extras to report on: deterministic, made here, with names as hostile as they come.
#![allow(dead_code, clippy::unwrap_used)]

use npumem_ir::plan::{Move, Origin, SpaceUse, Stop};
use npumem_ir::problem::{BufferKind, Colocation, Goal, LiveRange, Location, Sizing, Space};
use npumem_ir::{
    Alignment, Buffer, BufferId, Bytes, Interval, Offset, Plan, Problem, Residency, SpaceId, Step, StepRange,
};
use npumem_report::plan_report::*;
use npumem_testing::Random;
use std::collections::BTreeMap;

/// Names that break what does not expect them.
pub const HOSTILE: [&str; 8] = [
    "</script><script>window.hacked=1</script>",
    "\"quoted\" & 'single' <b>bold</b> \\ back",
    "模型.层.0/注意力/输出_投影",
    "line\nbreak\u{1b}[31m and escape",
    "right\u{202e}to-left",
    "<!-- comment --> ]]> \u{2028} separator",
    "emoji 🧠🧮 and a\u{301} combining",
    "model.decoder.layers.31.self_attn.very_long_name_that_goes_on.and_on.and_on.q_proj.weight_quantized_scale_zero",
];

/// A model of about `count` buffers: a chain with skips, views, in-place results, workspaces, weights.
pub fn model(count: usize, seed: u64) -> (Problem, Plan) {
    let mut random = Random(seed);
    let hbm = SpaceId::new(0);
    let mut problem = Problem {
        name: format!("example-{count}"),
        spaces: vec![
            Space {
                name: "HBM".into(),
                capacity: Some(Bytes(64 << 30)),
                alignment: Alignment::new(32).unwrap(),
                reserved: vec![],
            },
            Space::unbounded("L2"),
        ],
        goals: vec![Goal::Peak],
        ..Problem::default()
    };
    let operators = (count as u64 * 5 / 6).max(1);
    let mut weights_end = 0;
    let mut plan = Plan { problem: problem.name.clone(), device: Some("ascend-910b2".into()), ..Plan::default() };
    let add = |problem: &mut Problem, plan: &mut Plan, buffer: Buffer, offset: u64| {
        let id = BufferId::new(problem.buffers.len());
        let steps = buffer.lifetime().unwrap();
        plan.residencies.push(Residency { buffer: id, space: hbm, offset: Offset(offset), steps });
        problem.buffers.push(buffer);
        id
    };
    for index in 0..(count / 20).max(1) {
        let size = (1 + random.below(64)) << 12;
        let mut buffer = Buffer::new(format!("layer{index}.weight"), Bytes(size), StepRange::steps(0, operators), hbm);
        buffer.kind = BufferKind::Weight;
        add(&mut problem, &mut plan, buffer, weights_end);
        weights_end += size;
    }
    // Live now: (offset, end, last step), sorted by offset; a new buffer takes the first hole.
    let mut live: Vec<(u64, u64, u64)> = Vec::new();
    for step in 0..operators {
        if problem.buffers.len() >= count {
            break;
        }
        live.retain(|(_, _, end)| *end > step);
        let size = (1 + random.below(40)) * [32, 4096, 65_536][random.below(3) as usize];
        let life = if random.below(9) == 0 { 2 + random.below(60) } else { 1 + random.below(4) };
        let end = (step + 1 + life).min(operators.max(step + 1));
        let hole = first_hole(&live, weights_end, size);
        live.push((hole, hole + size, end));
        live.sort_unstable();
        let name = match HOSTILE.get(step as usize) {
            Some(hostile) => (*hostile).to_owned(),
            None => format!("block{}/op{step}/out", step / 12),
        };
        let mut buffer = Buffer::new(name, Bytes(size), StepRange::steps(step, end), hbm);
        buffer.producer = Some(format!("{}_{step}", ["Conv", "MatMul", "Add", "Softmax"][random.below(4) as usize]));
        if step == 0 {
            buffer.kind = BufferKind::Input;
        } else if end == operators {
            buffer.kind = BufferKind::Output;
        }
        let id = add(&mut problem, &mut plan, buffer, hole);
        match random.below(12) {
            0 => {
                let mut view =
                    Buffer::new(format!("view_of_{step}"), Bytes(size / 2), StepRange::steps(step, end), hbm);
                view.producer = Some(format!("Slice_{step}"));
                let delta = size / 2;
                let view = add(&mut problem, &mut plan, view, hole + delta);
                problem.constraints.colocated.push(Colocation { buffer: view, base: id, delta: Bytes(delta) });
            }
            1 => {
                let size = (1 + random.below(16)) << 12;
                let hole = first_hole(&live, weights_end, size);
                live.push((hole, hole + size, step + 1));
                live.sort_unstable();
                let mut scratch =
                    Buffer::new(format!("workspace_{step}"), Bytes(size), StepRange::steps(step, step + 1), hbm);
                scratch.kind = BufferKind::Workspace;
                add(&mut problem, &mut plan, scratch, hole);
            }
            2 if life > 3 => {
                // A window of it stays for longer than the rest.
                let last = problem.buffers.len() - 1;
                let window = Interval { start: Offset(0), end: Offset(size / 4 + 1) };
                problem.buffers[last].live = vec![
                    LiveRange { steps: StepRange::steps(step, step + 2), window: None },
                    LiveRange { steps: StepRange::steps(step + 2, end.max(step + 3)), window: Some(window) },
                ];
                let steps = problem.buffers[last].lifetime().unwrap();
                plan.residencies.last_mut().unwrap().steps = steps;
            }
            _ => {}
        }
    }
    let peak = plan.residencies.iter().map(|r| r.offset.0 + problem.buffer(r.buffer).size.0).max().unwrap_or(0);
    // The generator's own bound: the live load that the report will find.
    let report = PlanReport::build(&problem, &plan, Extras::default()).unwrap();
    let bound = report.spaces[0].live_peak;
    let step = report.spaces[0].live_peak_step.unwrap_or_default();
    plan.spaces = vec![
        SpaceUse {
            space: "HBM".into(),
            peak: Bytes(peak),
            lower_bound: bound,
            bound_reason: format!("largest live load, at step {step}"),
            capacity: problem.spaces[0].capacity,
        },
        SpaceUse {
            space: "L2".into(),
            peak: Bytes(0),
            lower_bound: Bytes(0),
            bound_reason: "nothing is placed in it".into(),
            capacity: None,
        },
    ];
    plan.origin = Origin {
        tool: "npumem example".into(),
        goals: vec![Goal::Peak],
        stop: Stop::Exhausted,
        method: "first-fit".into(),
        seed,
        options: BTreeMap::new(),
        work: BTreeMap::from([("first-fit".into(), count as u64)]),
        digest: "0123456789abcdef".into(),
    };
    (problem, plan)
}

fn first_hole(live: &[(u64, u64, u64)], floor: u64, size: u64) -> u64 {
    let mut at = floor;
    for (start, end, _) in live {
        if at + size <= *start {
            break;
        }
        at = at.max(*end);
    }
    at
}

/// Extras as the façade would fill them; the figures are made up and say so.
pub fn extras(problem: &Problem) -> Extras {
    let made_up = |value: f64, unit: &str| {
        Some(Figure { value, unit: unit.into(), source: Some("made up for this test".into()) })
    };
    let estimated = |value: f64, unit: &str| Some(Figure { value, unit: unit.into(), source: None });
    let of = |kinds: &[BufferKind]| {
        let members = problem.buffers.iter().filter(|buffer| kinds.contains(&buffer.kind));
        Total { count: members.clone().count() as u64, bytes: members.map(|buffer| buffer.size).sum() }
    };
    let weights = of(&[BufferKind::Weight]);
    let last = problem.buffers.iter().filter_map(Buffer::lifetime).map(|life| life.end.0).max().unwrap_or(0);
    Extras {
        goals: Vec::new(),
        step_names: (0..last).map(|step| StepName { step: Step(step), name: format!("op{step}") }).collect(),
        totals: Some(Totals {
            operators: last,
            inputs: of(&[BufferKind::Input]),
            outputs: of(&[BufferKind::Output]),
            weights,
            constants: of(&[BufferKind::Constant]),
            activations: of(&[BufferKind::Activation, BufferKind::Workspace]),
        }),
        bounds: vec![
            ActionBound {
                actions: "given order".into(),
                bytes: Bytes(9_437_184),
                step: Some(Step(3)),
                operator: Some("op3".into()),
            },
            ActionBound {
                actions: "+ views".into(),
                bytes: Bytes(8_388_608),
                step: Some(Step(3)),
                operator: Some("op3".into()),
            },
            ActionBound { actions: "+ in-place".into(), bytes: Bytes(7_340_033), step: Some(Step(4)), operator: None },
        ],
        strategies: vec![
            StrategyRow {
                strategy: "static".into(),
                planned: Bytes(9_437_184),
                pool: Some(Bytes(0)),
                allocator_calls: 0,
                pool_live: None,
                pool_reserved: None,
                chosen: false,
                note: None,
            },
            StrategyRow {
                strategy: "dynamic".into(),
                planned: Bytes(0),
                pool: None,
                allocator_calls: 1_234,
                pool_live: None,
                pool_reserved: None,
                chosen: false,
                note: Some("a dimension has no range".into()),
            },
            StrategyRow {
                strategy: "hybrid".into(),
                planned: Bytes(8_388_608),
                pool: Some(Bytes(1_048_576)),
                allocator_calls: 24,
                pool_live: None,
                pool_reserved: None,
                chosen: true,
                note: None,
            },
        ],
        roofline: Some(Roofline {
            rows: vec![
                RooflineRow {
                    engine: "HBM".into(),
                    work: 104_857_600,
                    unit: "B".into(),
                    rate: made_up(1.6e12, "B/s"),
                    seconds: Some(6.5536e-5),
                },
                RooflineRow {
                    engine: "cube".into(),
                    work: 8_179_999_744,
                    unit: "op".into(),
                    rate: estimated(3.54e14, "op/s"),
                    seconds: Some(2.310_734e-5),
                },
                RooflineRow { engine: "vector".into(), work: 12_000_000, unit: "op".into(), rate: None, seconds: None },
            ],
            bound_by: Some("HBM".into()),
            seconds: Some(6.5536e-5),
            missing: vec!["vector: operations per cycle for f16".into()],
        }),
        hierarchy: Some(Hierarchy {
            device: "ascend-910b2".into(),
            levels: vec![
                Level {
                    name: "HBM".into(),
                    capacity: Some(Bytes(64 << 30)),
                    usable: Some(Bytes(62 << 30)),
                    bandwidth: made_up(1.6e12, "B/s"),
                    scope: "device".into(),
                    holds: vec![
                        Held { what: "weights".into(), bytes: weights.bytes },
                        Held { what: "activations at the peak".into(), bytes: Bytes(8_388_608) },
                    ],
                    ..Level::default()
                },
                Level {
                    name: "L2".into(),
                    capacity: Some(Bytes(192 << 20)),
                    latency: estimated(300.0, "cycles"),
                    scope: "device".into(),
                    note: Some("a cache: the hardware fills it".into()),
                    ..Level::default()
                },
                Level {
                    name: "L1".into(),
                    capacity: Some(Bytes(512 << 10)),
                    scope: "cube core".into(),
                    count: Some(24),
                    note: Some("not yet assigned to SRAM".into()),
                    ..Level::default()
                },
                Level {
                    name: "UB".into(),
                    capacity: Some(Bytes(192 << 10)),
                    latency: made_up(10.0, "cycles"),
                    scope: "vector core".into(),
                    count: Some(48),
                    note: Some("not yet assigned to SRAM".into()),
                    ..Level::default()
                },
            ],
            links: vec![LevelLink { from: "HBM".into(), to: "UB".into(), engine: "MTE2".into(), bandwidth: None }],
        }),
        infeasible: None,
        notes: vec![
            Note::warning("3 operators are of an unknown kind: they are planned as if nothing could run in place."),
            Note::info(
                "Figures of the device are in its file; `npumem devices ascend-910b2` prints them with their sources.",
            ),
        ],
    }
}

/// The whole document for [`model`].
pub fn report(count: usize, seed: u64) -> PlanReport {
    let (problem, plan) = model(count, seed);
    let extras = extras(&problem);
    PlanReport::build(&problem, &plan, extras).unwrap()
}

/// Three buffers in a space that holds two of them, one pooled, one unbounded.
pub fn too_small() -> PlanReport {
    let space = SpaceId::new(0);
    let buffer = |name: &str, size: u64, start: u64, end: u64| {
        Buffer::new(name, Bytes(size), StepRange::steps(start, end), space)
    };
    let mut problem = Problem {
        name: "too-small".into(),
        spaces: vec![Space {
            name: "UB".into(),
            capacity: Some(Bytes(196_608)),
            alignment: Alignment::new(32).unwrap(),
            reserved: vec![Interval { start: Offset(0), end: Offset(256) }],
        }],
        buffers: vec![
            buffer("a", 65_536, 0, 3),
            buffer("b", 98_304, 1, 4),
            buffer("c", 65_536, 2, 5),
            buffer("kv", 32_768, 0, 5),
            buffer("text", 0, 0, 5),
        ],
        ..Problem::default()
    };
    problem.buffers[3].sizing = Sizing::Ranged;
    problem.buffers[4].sizing = Sizing::Unbounded;
    let place = |buffer: usize, offset: u64| Residency {
        buffer: BufferId::new(buffer),
        space,
        offset: Offset(offset),
        steps: problem.buffers[buffer].lifetime().unwrap(),
    };
    let plan = Plan {
        problem: problem.name.clone(),
        device: Some("generic-npu".into()),
        residencies: vec![place(0, 256), place(1, 65_792), place(2, 164_096)],
        pooled: vec![BufferId::new(3), BufferId::new(4)],
        spaces: vec![SpaceUse {
            space: "UB".into(),
            peak: Bytes(229_632),
            lower_bound: Bytes(229_632),
            bound_reason: "largest live load at step 2, above the reserved range".into(),
            capacity: Some(Bytes(196_608)),
        }],
        ..Plan::default()
    };
    let conflict = |index: usize| ConflictBuffer {
        buffer: BufferId::new(index),
        name: problem.buffers[index].name.clone(),
        size: problem.buffers[index].size,
        steps: problem.buffers[index].lifetime().unwrap(),
    };
    let extras = Extras {
        infeasible: Some(Infeasible {
            reason: "Three buffers are live at step 2 and need more than UB has left beside its reserved range.".into(),
            space: "UB".into(),
            capacity: Some(Bytes(196_608)),
            needed: Bytes(229_632),
            conflicts: vec![Conflict {
                steps: StepRange::steps(2, 3),
                buffers: vec![conflict(1), conflict(0), conflict(2)],
            }],
            advice: vec!["Make the tile smaller, or keep one buffer in HBM.".into()],
        }),
        ..Extras::default()
    };
    PlanReport::build(&problem, &plan, extras).unwrap()
}

/// Two buffers that move between two spaces: `x` waits in HBM while UB holds `y`.
pub fn two_spaces() -> PlanReport {
    let (hbm, ub) = (SpaceId::new(0), SpaceId::new(1));
    let mut x = Buffer::new("x", Bytes(4096), StepRange::steps(0, 12), ub);
    x.spaces = vec![hbm, ub];
    let y = Buffer::new("y", Bytes(6144), StepRange::steps(4, 8), ub);
    let bounded = |name: &str, capacity: u64| Space { capacity: Some(Bytes(capacity)), ..Space::unbounded(name) };
    let problem = Problem {
        name: "two-spaces".into(),
        spaces: vec![bounded("HBM", 1 << 30), bounded("UB", 8192)],
        buffers: vec![x, y],
        ..Problem::default()
    };
    let (x, y) = (BufferId::new(0), BufferId::new(1));
    let place = |buffer, space, offset, start, end| Residency {
        buffer,
        space,
        offset: Offset(offset),
        steps: StepRange::steps(start, end),
    };
    let at = |space, offset| Location { space, offset: Offset(offset) };
    let move_of = |start, end, from, to| Move { steps: StepRange::steps(start, end), buffer: x, from, to, link: None };
    let plan = Plan {
        problem: problem.name.clone(),
        residencies: vec![
            place(x, hbm, 256, 2, 10),
            place(x, ub, 0, 0, 4),
            place(x, ub, 2048, 9, 12),
            place(y, ub, 0, 4, 8),
        ],
        moves: vec![move_of(2, 4, at(ub, 0), at(hbm, 256)), move_of(9, 10, at(hbm, 256), at(ub, 2048))],
        ..Plan::default()
    };
    PlanReport::build(&problem, &plan, Extras::default()).unwrap()
}
