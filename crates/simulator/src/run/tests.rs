//! Small programs whose times are computed by hand on the textbook machine.
//!
//! HBM to SRAM: 20 cycles to start, 256 bytes a cycle, 300 cycles of latency, 8 transfers at once. Matrix unit: 64
//! to start, 8192 multiply-accumulates a cycle in f16. Vector unit: 8 to start, 128 bytes a cycle.

use super::*;
use npumem_ir::program::{Access, Affine, Buffer, Operation, ProgramBuilder, Role, Root};
use npumem_ir::{ElementType, StepId};
use npumem_testing::Random;

pub(super) fn device_text(name: &str) -> String {
    let path = npumem_testing::workspace_root().join(format!("devices/{name}.toml"));
    std::fs::read_to_string(path).unwrap()
}

pub(super) fn generic() -> Device {
    Device::from_toml(&device_text("generic-npu")).unwrap()
}

fn changed(pairs: &[(&str, &str)]) -> Device {
    let mut text = device_text("generic-npu");
    for (from, to) in pairs {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    Device::from_toml(&text).unwrap()
}

fn go(program: &Program, device: &Device) -> Outcome {
    run(program, device, &Options::default(), &mut Nothing).unwrap()
}

/// One operand: `bytes` bytes of a buffer as f32.
fn part(buffer: npumem_ir::BufferId, start: impl Into<Affine>, bytes: u64) -> Access {
    let count = i64::try_from(bytes / 4).unwrap();
    Access {
        start: start.into(),
        extents: vec![npumem_ir::program::Extent { count: count.into(), stride: 4 }],
        ..Access::whole(Root::Buffer(buffer), ElementType::F32)
    }
}

/// `turns` times: load 64 KiB, work on it, store it; the tile has so many slots.
fn pipeline(turns: i64, slots: u32) -> Program {
    let mut b = ProgramBuilder::new("pipeline");
    let x = b.buffer(Buffer::external("x", "gm", Some(65_536 * turns as u64)));
    let y = b.buffer(Buffer::external("y", "gm", Some(65_536 * turns as u64)));
    let t = b.buffer(Buffer { slots, ..Buffer::tile("t", "vec", 65_536) });
    let i = b.begin_for("i", 0, turns, 1);
    let tile = part(t, 0, 65_536).in_slot(i.into());
    let at = Affine::scalar(i).times(65_536);
    b.run(Operation {
        reads: vec![part(x, at.clone(), 65_536)],
        writes: vec![tile.clone()],
        ..Operation::new("tload", "mte2")
    });
    b.run(Operation { reads: vec![tile.clone()], writes: vec![tile.clone()], ..Operation::new("tadds", "v") });
    b.run(Operation { reads: vec![tile], writes: vec![part(y, at, 65_536)], ..Operation::new("tstore", "mte3") });
    b.end();
    b.finish().unwrap()
}

#[test]
fn one_turn_is_the_sum_of_its_parts() {
    let done = go(&pipeline(1, 1), &generic());
    // Load 20 + 256 + 300; vector: 512 steps in 2 instructions of 256: 16 + 512; store 20 + 256 and 10 of SRAM's latency.
    assert_eq!(done.cycles, 576.0 + 528.0 + 286.0);
    assert_eq!(done.end, End::Complete);
    let bytes: Vec<(&str, u64)> = done.links.iter().map(|link| (link.name.as_str(), link.bytes)).collect();
    assert_eq!(bytes, [("hbm->sram", 65_536), ("sram->hbm", 65_536)]);
    assert_eq!(done.engine("vector").unwrap().busy, 528.0);
}

#[test]
fn a_second_slot_overlaps_and_the_wait_is_named() {
    let one = go(&pipeline(16, 1), &generic());
    let two = go(&pipeline(16, 2), &generic());
    assert_eq!(one.cycles, 16.0 * (576.0 + 528.0 + 286.0));
    assert!(two.cycles < 0.6 * one.cycles, "{} {}", two.cycles, one.cycles);
    let load = one.engine("dma_in").unwrap();
    let buffer = npumem_ir::BufferId(2);
    // Every load but the first waits for the store of the turn before: latency 300, vector 528, store 286.
    assert_eq!(load.idle[&Cause::InUse { buffer }], 15.0 * (300.0 + 528.0 + 286.0));
    let vector = one.engine("vector").unwrap();
    assert_eq!(vector.idle[&Cause::Data { buffer }], 16.0 * 576.0 + 15.0 * 286.0);
    // Every cycle of every engine is accounted for.
    for engine in one.engines.iter().chain(&two.engines) {
        let total = if engine.name.is_empty() { 0.0 } else { engine.busy + engine.idle_total() };
        let run = if one.engines.contains(engine) { one.cycles } else { two.cycles };
        assert!((total - run).abs() < 1e-6, "{}: {total} of {run}", engine.name);
    }
}

#[test]
fn latency_is_hidden_up_to_the_transfers_under_way() {
    let mut b = ProgramBuilder::new("loads");
    let x = b.buffer(Buffer::external("x", "gm", Some(1 << 20)));
    let t = b.buffer(Buffer { slots: 16, ..Buffer::tile("t", "vec", 2560) });
    let i = b.begin_for("i", 0, 16, 1);
    b.run(Operation {
        reads: vec![part(x, Affine::scalar(i).times(2560), 2560)],
        writes: vec![part(t, 0, 2560).in_slot(i.into())],
        ..Operation::new("tload", "mte2")
    });
    b.end();
    let program = b.finish().unwrap();
    // 20 + 10 cycles each; with 8 under way the ninth waits for the first to come back at 330.
    let done = go(&program, &generic());
    assert_eq!(done.cycles, 330.0 + 8.0 * 30.0 + 300.0);
    assert_eq!(done.engine("dma_in").unwrap().idle[&Cause::Limit], 330.0 - 8.0 * 30.0);
    let alone = go(&program, &changed(&[("outstanding = 8", "outstanding = 1")]));
    assert_eq!(alone.cycles, 16.0 * 330.0);
    let many = go(&program, &changed(&[("outstanding = 8", "outstanding = 32")]));
    assert_eq!(many.cycles, 16.0 * 30.0 + 300.0);
}

#[test]
fn cores_share_the_bandwidth_of_main_memory() {
    let mut b = ProgramBuilder::new("grid");
    let g = b.scalar("g", ScalarKind::Grid(Some(2)));
    let x = b.buffer(Buffer::external("x", "gm", Some(1 << 20)));
    let t = b.buffer(Buffer::tile("t", "vec", 65_536));
    b.run(Operation {
        reads: vec![part(x, Affine::scalar(g).times(65_536), 65_536)],
        writes: vec![part(t, 0, 65_536)],
        ..Operation::new("tload", "mte2")
    });
    let program = b.finish().unwrap();
    let two = changed(&[("title = \"The only core\"\ncount = 1", "title = \"cores\"\ncount = 2")]);
    let done = go(&program, &two);
    assert_eq!((done.blocks, done.cores), (2, 2));
    assert_eq!(done.cycles, 131_072.0 / 256.0 + 300.0);
    assert_eq!(done.engine("dma_in").unwrap().slowed, 2.0 * (512.0 - 276.0));
    // On one core the two blocks follow each other.
    assert_eq!(go(&program, &generic()).cycles, 2.0 * 576.0);
}

#[test]
fn grains_and_matrix_padding_cost() {
    let mut b = ProgramBuilder::new("grains");
    let x = b.buffer(Buffer::external("x", "gm", Some(1 << 20)));
    let t = b.buffer(Buffer::tile("t", "vec", 65_536));
    // 64 rows of 4 bytes, 1000 bytes apart: each draws one or two grains of 64.
    let rows = Access {
        extents: vec![
            npumem_ir::program::Extent { count: 64.into(), stride: 1000 },
            npumem_ir::program::Extent { count: 1.into(), stride: 4 },
        ],
        ..Access::whole(Root::Buffer(x), ElementType::F32)
    };
    b.run(Operation { reads: vec![rows], writes: vec![part(t, 0, 256)], ..Operation::new("tload", "mte2") });
    let done = go(&b.finish().unwrap(), &generic());
    assert_eq!(done.cycles, 20.0 + 64.0 * 64.0 / 256.0 + 300.0);
    assert_eq!(done.links[0].bytes, 256, "what was asked for, not what was drawn");

    let mut b = ProgramBuilder::new("product");
    let tile = |name: &str, rows: u64, columns: u64, element, bytes| Buffer {
        shape: vec![rows, columns],
        element,
        ..Buffer::tile(name, "vec", rows * columns * bytes)
    };
    let a = b.buffer(tile("a", 17, 40, ElementType::F16, 2));
    let w = b.buffer(tile("b", 40, 16, ElementType::F16, 2));
    let c = b.buffer(tile("c", 17, 16, ElementType::F32, 4));
    b.simple("tmatmul", "m", &[a, w], &[c]);
    let done = go(&b.finish().unwrap(), &generic());
    // 32 x 48 x 16 after padding to 16 x 16 x 16.
    assert_eq!(done.cycles, 64.0 + 2.0 * 32.0 * 48.0 * 16.0 / 16_384.0);
    assert_eq!(done.engine("matrix").unwrap().operations, 2 * 17 * 40 * 16);
}

/// Load, add, store with flags; `broken` leaves one flag out.
fn flagged(broken: bool) -> Program {
    let mut b = ProgramBuilder::new("flags");
    let x = b.buffer(Buffer::external("x", "gm", Some(65_536)));
    let t = b.buffer(Buffer::tile("t", "vec", 65_536));
    let set = |from: &str, to: &str| Sync::SetFlag { from: from.into(), to: to.into(), event: 0.into() };
    let wait = |from: &str, to: &str| Sync::WaitFlag { from: from.into(), to: to.into(), event: 0.into() };
    b.run(Operation {
        reads: vec![part(x, 0, 65_536)],
        writes: vec![part(t, 0, 65_536)],
        ..Operation::new("tload", "mte2")
    });
    if !broken {
        b.sync(set("mte2", "v"));
    }
    b.sync(wait("mte2", "v"));
    b.run(Operation {
        reads: vec![part(t, 0, 65_536)],
        writes: vec![part(t, 0, 65_536)],
        ..Operation::new("tadds", "v")
    });
    b.sync(set("v", "mte3"));
    b.sync(wait("v", "mte3"));
    b.run(Operation {
        reads: vec![part(t, 0, 65_536)],
        writes: vec![part(x, 0, 65_536)],
        ..Operation::new("tstore", "mte3")
    });
    b.finish().unwrap()
}

#[test]
fn flags_order_and_a_missing_one_is_a_deadlock_with_its_reason() {
    let done = go(&flagged(false), &generic());
    assert_eq!(done.order, OrderUsed::Program);
    assert_eq!(done.cycles, 576.0 + 528.0 + 286.0);
    let from = 0;
    assert_eq!(done.engines[1].idle[&Cause::Flag { from, event: 0 }], 576.0);

    let stuck = go(&flagged(true), &generic());
    let End::Deadlock { waits } = &stuck.end else { panic!("{:?}", stuck.end) };
    assert_eq!(waits.len(), 2);
    assert_eq!((waits[0].engine.as_str(), waits[0].step), ("vector", StepId(1)));
    assert_eq!(waits[0].waits_for, "event 0 from dma_in, which never raises it again");
    assert_eq!(waits[1].waits_for, "event 0 from vector, which would raise it at step 3");
}

#[test]
fn endless_loops_stop_at_the_bound() {
    let mut b = ProgramBuilder::new("endless");
    let t = b.buffer(Buffer::tile("t", "vec", 256));
    b.step(Step::Loop);
    b.simple("tadds", "v", &[t], &[t]);
    b.end();
    let program = b.finish().unwrap();
    let options = Options { max_steps: 10_000, ..Options::default() };
    let done = run(&program, &generic(), &options, &mut Nothing).unwrap();
    assert_eq!(done.end, End::Limit { steps: 10_000 });
    assert!(done.most_in_flight <= 34);

    let mut b = ProgramBuilder::new("nothing in it");
    b.step(Step::Loop);
    b.end();
    let done = run(&b.finish().unwrap(), &generic(), &options, &mut Nothing).unwrap();
    assert_eq!(done.end, End::Limit { steps: 10_000 });
}

#[test]
fn what_cannot_be_known_is_refused_by_name_or_told() {
    let error =
        |program: &Program, device: &Device| run(program, device, &Options::default(), &mut Nothing).unwrap_err();
    let without = changed(&[("latency_cycles = 300", "latency_cycles = \"?\"")]);
    assert!(error(&pipeline(1, 1), &without).to_string().contains("`hbm.latency`"));
    let without = changed(&[("bandwidth_bytes_per_cycle = 256", "bandwidth_bytes_per_cycle = \"?\"")]);
    assert!(error(&pipeline(1, 1), &without).to_string().contains("`hbm.bandwidth`"));
    let without = changed(&[("outstanding = 8", "outstanding = \"?\"")]);
    assert!(error(&pipeline(1, 1), &without).to_string().contains("`dma_in.outstanding`"));

    let mut b = ProgramBuilder::new("open");
    let n = b.argument("n", None);
    let hidden = b.computed(npumem_ir::program::Op::Opaque, Vec::new());
    let t = b.buffer(Buffer::tile("t", "vec", 256));
    b.begin_if(Affine::scalar(hidden));
    b.simple("tadds", "v", &[t], &[t]);
    b.end();
    let closed = b.clone().finish().unwrap();
    let done = go(&closed, &generic());
    assert_eq!((done.statements, done.assumed.len()), (1, 1), "{:?}", done.assumed);
    b.begin_for("i", 0, Affine::scalar(n), 1);
    b.end();
    let told = error(&b.finish().unwrap(), &generic()).to_string();
    assert!(told.contains("'n'") && told.contains("--dim n=VALUE"), "{told}");
    let lost = {
        let mut b = ProgramBuilder::new("lost");
        b.buffer(Buffer::tile("t", "nowhere", 256));
        b.finish().unwrap()
    };
    assert!(error(&lost, &generic()).to_string().contains("'nowhere'"));
}

/// A program of random loads, work and stores over a few tiles, in two nested loops.
pub(super) fn random_program(random: &mut Random, cores: u64) -> Program {
    let mut b = ProgramBuilder::new("random");
    let g = b.scalar("g", ScalarKind::Grid(Some(cores)));
    let x = b.buffer(Buffer::external("x", "gm", Some(1 << 24)));
    let tiles: Vec<(npumem_ir::BufferId, u64)> = (0..2 + random.below(4))
        .map(|index| {
            let bytes = 256 << random.below(8);
            let slots = 1 + random.below(3) as u32;
            let role = Role::Tile;
            (b.buffer(Buffer { slots, role, ..Buffer::tile(format!("t{index}"), "vec", bytes) }), bytes)
        })
        .collect();
    let i = b.begin_for("i", 0, 1 + random.below(6) as i64, 1);
    let j = b.begin_for("j", 0, 1 + random.below(4) as i64, 1);
    for _ in 0..1 + random.below(8) {
        let (tile, bytes) = *random.pick(&tiles);
        let slot = match random.below(3) {
            0 => Affine::constant(0),
            1 => i.into(),
            _ => Affine::scalar(i).plus(&j.into()),
        };
        let near = part(tile, 0, bytes).in_slot(slot.clone());
        let at = Affine::scalar(i).times(8192).plus(&Affine::scalar(g).times(1 << 18));
        let far = part(x, at.plus(&Affine::constant(random.below(64) as i64 * 4)), bytes);
        match random.below(4) {
            0 | 1 => b.run(Operation { reads: vec![far], writes: vec![near], ..Operation::new("tload", "mte2") }),
            2 => b.run(Operation { reads: vec![near], writes: vec![far], ..Operation::new("tstore", "mte3") }),
            _ => {
                let (other, size) = *random.pick(&tiles);
                let least = bytes.min(size);
                let reads = vec![part(other, 0, least).in_slot(slot)];
                let write = Access { extents: reads[0].extents.clone(), ..near };
                b.run(Operation { reads, writes: vec![write], ..Operation::new("tadds", "v") })
            }
        };
    }
    b.end();
    b.end();
    b.finish().unwrap()
}

#[test]
fn laws_of_a_fixed_program() {
    let base = generic();
    // Figures for the better; where the memory is shared by one core alone, its order is fixed and nothing is slower.
    let better: Vec<(&str, Device)> = vec![
        ("bandwidth", changed(&[("bandwidth_bytes_per_cycle = 256", "bandwidth_bytes_per_cycle = 512")])),
        (
            "link",
            changed(&[("bytes_per_cycle = 256\nstartup_cycles = 20", "bytes_per_cycle = 512\nstartup_cycles = 20")]),
        ),
        ("latency", changed(&[("latency_cycles = 300", "latency_cycles = 200")])),
        ("startup", changed(&[("startup_cycles = 20", "startup_cycles = 10")])),
        ("outstanding", changed(&[("outstanding = 8", "outstanding = 9")])),
        ("vector", changed(&[("f32 = 64\nf16 = 128", "f32 = 128\nf16 = 128")])),
    ];
    let mut random = Random(11);
    for round in 0..150 {
        let program = random_program(&mut random, 1);
        let mut spans = Spans::default();
        let done = run(&program, &base, &Options::default(), &mut spans).unwrap();
        assert_eq!(done.end, End::Complete);
        let again = go(&program, &base);
        assert_eq!(done, again, "the same twice");
        // Total time is at least that of every engine, and of the bytes through main memory.
        for engine in &done.engines {
            assert!(engine.busy <= done.cycles + 1e-6);
            assert!((engine.busy + engine.idle_total() - done.cycles).abs() < 1e-6);
            assert!(engine.idle.values().all(|cycles| *cycles >= 0.0));
        }
        for space in &done.spaces {
            assert!(space.bytes / space.bytes_per_cycle <= done.cycles + 1e-6);
        }
        let moved: u64 = done.links.iter().map(|link| link.bytes).sum();
        assert_eq!(moved, spans.bytes, "links carry what statements move");
        assert_eq!(spans.count, done.statements);
        for (name, device) in &better {
            let faster = go(&program, device);
            assert!(
                faster.cycles <= done.cycles + 1e-6,
                "round {round}: better {name}: {} > {}",
                faster.cycles,
                done.cycles
            );
        }
        let deeper = Options { queue_depth: 33, ..Options::default() };
        let shallow = Options { queue_depth: 2, ..Options::default() };
        let (deeper, shallow) = (
            run(&program, &base, &deeper, &mut Nothing).unwrap().cycles,
            run(&program, &base, &shallow, &mut Nothing).unwrap().cycles,
        );
        assert!(deeper <= done.cycles + 1e-6 && done.cycles <= shallow + 1e-6, "round {round}: queue depth");
    }
}

/// Adds up what passes, and checks each event on the way.
#[derive(Default)]
struct Spans {
    bytes: u64,
    count: u64,
    last: f64,
}

impl Sink for Spans {
    fn span(&mut self, span: &Span<'_>) {
        assert!(span.issued <= span.started && span.started <= span.freed && span.freed <= span.ended);
        assert!(self.last <= span.ended, "events come in order of time");
        self.last = span.ended;
        self.bytes += span.bytes;
        self.count += 1;
    }
}
