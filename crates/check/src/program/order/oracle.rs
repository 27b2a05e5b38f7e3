//! The order checker against a graph: every turn unrolled, one node per piece of work, an edge for each thing that
//! must come first. Two touches race when neither reaches the other; a wait without a raise, or a circle, is a deadlock.

use super::super::{Kind, Options, check_program};
use npumem_ir::program::{
    Access, Affine, Buffer, Op, Operation, Program, ProgramBuilder, Role, Root, Step, Structure, Sync, Values,
};
use npumem_ir::{BufferId, ElementType, StepId};
use npumem_testing::Random;
use std::collections::{BTreeMap, BTreeSet};

const ENGINES: [&str; 4] = ["mte2", "v", "mte3", "s"];

fn flag(b: &mut ProgramBuilder, raise: bool, from: &str, to: &str, event: Affine) {
    let (from, to) = (from.to_owned(), to.to_owned());
    b.sync(if raise { Sync::SetFlag { from, to, event } } else { Sync::WaitFlag { from, to, event } });
}

/// Some bytes of the caller's memory, in a loop others in each turn.
fn window(random: &mut Random, of: BufferId, counters: &[Affine]) -> Access {
    let turn = counters.last().filter(|_| random.one_in(2)).cloned().unwrap_or_default();
    let start = turn.times(random.below(4) as i64).plus(&(random.below(8) as i64).into());
    Access::bytes(Root::Buffer(of), start, 1 + random.below(6))
}

fn touch(b: &mut ProgramBuilder, random: &mut Random, buffers: &[BufferId], counters: &[Affine]) {
    let engine = ENGINES[if random.one_in(12) { 3 } else { random.below(3) as usize }];
    let id = *random.pick(buffers);
    let external = b.program().buffer(id).role == Role::External;
    let slot = counters.last().filter(|_| random.one_in(2)).cloned().unwrap_or_default();
    let access = match random.below(3) {
        _ if external => window(random, id, counters),
        0 => Access::bytes(Root::Buffer(id), (random.below(4) as i64).into(), 1 + random.below(4)),
        _ => Access::whole(Root::Buffer(id), ElementType::U8),
    };
    let access = vec![access.in_slot(slot)];
    let operation = Operation::new("touch", engine);
    let operation = if random.one_in(2) {
        Operation { reads: access, ..operation }
    } else {
        Operation { writes: access, ..operation }
    };
    b.run(operation);
}

/// Random steps: rarely right.
fn wild(b: &mut ProgramBuilder, random: &mut Random, buffers: &[BufferId]) {
    let (mut counters, mut open): (Vec<Affine>, usize) = (Vec::new(), 0);
    for _ in 0..4 + random.below(14) {
        let event = |b: &mut ProgramBuilder, random: &mut Random, counters: &[Affine]| match counters.last() {
            Some(counter) if random.one_in(2) => b.value(Op::Rem, vec![counter.clone(), 2.into()]),
            _ => Affine::constant(random.below(2) as i64),
        };
        match random.below(12) {
            0 if open < 2 => {
                let stop = random.below(14) as i64;
                counters.push(b.begin_for(format!("i{}", b.program().scalars.len()), 0, stop, 1).into());
                open += 1;
            }
            1 if open > 0 => {
                b.end();
                counters.pop();
                open -= 1;
            }
            2..=5 => {
                let (from, to) = (*random.pick(&ENGINES[..3]), *random.pick(&ENGINES));
                let event = event(b, random, &counters);
                if from != to {
                    let both = random.below(4);
                    if both != 0 {
                        flag(b, true, from, to, event.clone());
                    }
                    if both != 1 {
                        flag(b, false, from, to, event);
                    }
                }
            }
            6 if random.one_in(2) => {
                b.sync(Sync::Barrier(None));
            }
            7 if random.one_in(2) => {
                let engine = (*random.pick(&ENGINES[..3])).to_owned();
                let token = event(b, random, &counters);
                b.sync(Sync::Acquire { engine: engine.clone(), token: token.clone() });
                touch(b, random, buffers, &counters);
                b.sync(Sync::Release { engine, token });
            }
            _ => touch(b, random, buffers, &counters),
        }
    }
    for _ in 0..open {
        b.end();
    }
}

/// A pipeline of load, compute, store over slots with flags both ways, of which some are left out.
fn pipeline(b: &mut ProgramBuilder, random: &mut Random) {
    let slots = 1 + random.below(3) as u32;
    let tile = |b: &mut ProgramBuilder, name: &str, at: i64| {
        b.buffer(Buffer { slots, address: Some(at.into()), ..Buffer::tile(name, "ub", 8) })
    };
    let (x, y) = (tile(b, "x", 0), tile(b, "y", 64));
    let pairs = [("v", "mte2"), ("mte3", "v")];
    let forgets = if random.one_in(3) { random.below(9) } else { 99 };
    let events = 1 + random.below(u64::from(slots)) as i64;
    for (index, (from, to)) in pairs.iter().enumerate() {
        for event in 0..events {
            if forgets != index as u64 {
                flag(b, true, from, to, event.into());
            }
        }
    }
    let caller = b.buffer(Buffer::external("caller", "gm", Some(256)));
    let i = b.begin_for("i", 0, random.below(30) as i64, 1);
    let (from, to) = (window(random, caller, &[i.into()]), window(random, caller, &[i.into()]));
    let event = b.value(Op::Rem, vec![i.into(), events.into()]);
    let whole = |id| vec![Access::whole(Root::Buffer(id), ElementType::U8).in_slot(Affine::scalar(i))];
    let step = |b: &mut ProgramBuilder, number: u64, raise, from: &str, to: &str| {
        if forgets != number {
            flag(b, raise, from, to, event.clone());
        }
    };
    step(b, 2, false, "v", "mte2");
    b.run(Operation { reads: vec![from], writes: whole(x), ..Operation::new("load", "mte2") });
    step(b, 3, true, "mte2", "v");
    step(b, 4, false, "mte2", "v");
    step(b, 5, false, "mte3", "v");
    b.run(Operation { reads: whole(x), writes: whole(y), ..Operation::new("compute", "v") });
    step(b, 6, true, "v", "mte2");
    step(b, 7, true, "v", "mte3");
    step(b, 7, false, "v", "mte3");
    b.run(Operation { reads: whole(y), writes: vec![to], ..Operation::new("store", "mte3") });
    step(b, 8, true, "mte3", "v");
    b.end();
    // Somebody takes what was stored last.
    if random.one_in(3) {
        let access = window(random, caller, &[]);
        b.run(Operation { reads: vec![access], ..Operation::new("again", "mte2") });
    }
}

fn generate(random: &mut Random) -> Program {
    let mut b = ProgramBuilder::new("generated");
    // So that order is stated, whatever follows.
    b.sync(Sync::Barrier(None));
    if random.one_in(2) {
        pipeline(&mut b, random);
    } else {
        let mut buffers: Vec<BufferId> = (0..1 + random.below(3))
            .map(|index| {
                let slots = 1 + random.below(2) as u32;
                let address = Some(Affine::constant(random.below(12) as i64));
                b.buffer(Buffer { slots, address, ..Buffer::tile(format!("b{index}"), "ub", 8) })
            })
            .collect();
        if random.one_in(2) {
            buffers.push(b.buffer(Buffer::external("caller", "gm", Some(256))));
        }
        wild(&mut b, random, &buffers);
    }
    b.finish().unwrap()
}

/// Where the caller's memory begins among all bytes.
const CALLER: u64 = 1 << 20;

/// A node: its step, engine, and the bytes that it touches.
struct Node {
    step: StepId,
    bytes: Vec<(u64, bool)>,
}

/// Pairs of steps that race.
type Races = BTreeSet<(StepId, StepId)>;

/// Races on the chip and races anywhere, by steps, and whether somebody waits for ever.
fn graph(program: &Program, structure: &Structure) -> (Races, Races, bool) {
    let mut nodes: Vec<Node> = Vec::new();
    let mut before: Vec<Vec<usize>> = Vec::new();
    // Given out before, and over before, are two things: a wait of the scalar unit lets what comes later see what it
    // waited for, not the scalar unit's own reads and writes.
    let mut seen: Vec<Vec<usize>> = Vec::new();
    let mut gates: Vec<usize> = Vec::new();
    let mut gates_before: Vec<usize> = Vec::new();
    let mut lets: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut last: BTreeMap<String, usize> = BTreeMap::new();
    let (mut raised, mut waits): (BTreeMap<_, Vec<usize>>, BTreeMap<_, Vec<usize>>) = Default::default();
    let mut released: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    // Whatever comes after this was given out after it: a barrier, a wait of the scalar unit.
    let mut gate: Option<usize> = None;
    for (step, values) in trace(program, structure) {
        let value = |affine: &Affine| values.affine(program, affine).unwrap();
        let node = nodes.len();
        let (engine, mut edges, bytes) = match &program.steps[step.index()] {
            Step::Run(operation) => {
                let mut bytes = Vec::new();
                for (list, write) in [(&operation.reads, false), (&operation.writes, true)] {
                    for access in list {
                        let Root::Buffer(id) = access.root else { unreachable!() };
                        let buffer = program.buffer(id);
                        let slot = value(&access.slot).rem_euclid(i64::from(buffer.slots)) as u64;
                        let base = match &buffer.address {
                            Some(address) => address.as_constant().unwrap() as u64,
                            None => CALLER,
                        };
                        let count = access.extents.first().map_or(buffer.bytes.unwrap(), |e| value(&e.count) as u64);
                        let first = base + slot * buffer.pitch().unwrap() + value(&access.start) as u64;
                        bytes.extend((first..first + count).map(|byte| (byte, write)));
                    }
                }
                (operation.engine.clone(), vec![], bytes)
            }
            Step::Sync(Sync::SetFlag { from, to, event }) => {
                raised.entry((from, to, value(event))).or_default().push(node);
                (from.clone(), vec![], vec![])
            }
            Step::Sync(Sync::WaitFlag { from, to, event }) => {
                waits.entry((from, to, value(event))).or_default().push(node);
                (to.clone(), vec![], vec![])
            }
            Step::Sync(Sync::Acquire { engine, token }) => {
                (engine.clone(), released.get(&value(token)).cloned().unwrap_or_default(), vec![])
            }
            Step::Sync(Sync::Release { engine, token }) => {
                released.entry(value(token)).or_default().push(node);
                (engine.clone(), vec![], vec![])
            }
            Step::Sync(Sync::Barrier(None)) => ("s".to_owned(), (0..node).collect(), vec![]),
            other => panic!("{other:?}"),
        };
        edges.extend(last.get(&engine).copied());
        seen.push(edges.clone());
        gates_before.push(gates.len());
        edges.extend(gate);
        match &program.steps[step.index()] {
            Step::Sync(Sync::Barrier(None)) => {
                gate = Some(node);
                gates.push(node);
                lets.insert(node, vec![node]);
            }
            Step::Sync(Sync::WaitFlag { .. }) if engine == "s" => {
                gate = Some(node);
                gates.push(node);
            }
            _ => {}
        }
        last.insert(engine, node);
        nodes.push(Node { step, bytes });
        before.push(edges);
    }
    let mut unmatched = false;
    for (key, list) in &waits {
        let sets = raised.get(key).cloned().unwrap_or_default();
        for (index, wait) in list.iter().enumerate() {
            match sets.get(index) {
                Some(set) => {
                    before[*wait].push(*set);
                    seen[*wait].push(*set);
                    lets.entry(*wait).or_default().push(*set);
                }
                None => unmatched = true,
            }
        }
    }
    for (node, count) in gates_before.iter().enumerate() {
        gates[..*count].iter().for_each(|gate| seen[node].extend(lets.get(gate).into_iter().flatten()));
    }
    match (closure(&before), closure(&seen)) {
        (Some(_), Some(reach)) if !unmatched => (races(&nodes, &reach, CALLER), races(&nodes, &reach, u64::MAX), false),
        _ => (Races::new(), Races::new(), true),
    }
}

/// For each node a bit per node that comes before it; `None` when there is a circle.
fn closure(before: &[Vec<usize>]) -> Option<Vec<Vec<u64>>> {
    let words = before.len().div_ceil(64);
    let mut reach: Vec<Option<Vec<u64>>> = vec![None; before.len()];
    let mut done = 0;
    while done < before.len() {
        let progress = done;
        for node in 0..before.len() {
            if reach[node].is_some() || before[node].iter().any(|edge| reach[*edge].is_none()) {
                continue;
            }
            let mut all = vec![0_u64; words];
            for edge in &before[node] {
                all[edge / 64] |= 1 << (edge % 64);
                all.iter_mut().zip(reach[*edge].iter().flatten()).for_each(|(mine, other)| *mine |= other);
            }
            reach[node] = Some(all);
            done += 1;
        }
        if progress == done {
            return None;
        }
    }
    reach.into_iter().collect()
}

/// Races in the bytes before this one.
fn races(nodes: &[Node], reach: &[Vec<u64>], end: u64) -> Races {
    let comes_before = |a: usize, b: usize| reach[b][a / 64] & (1 << (a % 64)) != 0;
    let mut out = BTreeSet::new();
    for (a, first) in nodes.iter().enumerate() {
        for (b, second) in nodes.iter().enumerate().skip(a + 1) {
            let pair = (first.step.min(second.step), first.step.max(second.step));
            if first.bytes.is_empty() || comes_before(a, b) || comes_before(b, a) || out.contains(&pair) {
                continue;
            }
            if first.bytes.iter().any(|(x, w)| *x < end && second.bytes.iter().any(|(y, v)| x == y && (*w || *v))) {
                out.insert(pair);
            }
        }
    }
    out
}

/// Every step that runs, with the counters at that moment.
fn trace(program: &Program, structure: &Structure) -> Vec<(StepId, Values)> {
    let (mut values, mut out, mut at) = (Values::new(program), Vec::new(), 0);
    while at < program.steps.len() {
        let id = StepId::new(at);
        match &program.steps[at] {
            Step::For { counter, start, stop, .. } => {
                if start.as_constant() < stop.as_constant() {
                    values.set(*counter, start.as_constant());
                } else {
                    at = structure.partner(id).index();
                }
            }
            Step::End => {
                let opener = structure.partner(id);
                let Step::For { counter, stop, .. } = &program.steps[opener.index()] else { unreachable!() };
                let next = values.stored(*counter).unwrap() + 1;
                if Some(next) < stop.as_constant() {
                    values.set(*counter, Some(next));
                    at = opener.index();
                }
            }
            _ => out.push((id, values.clone())),
        }
        at += 1;
    }
    out
}

/// `cargo xtask soak order_agrees` runs this a hundred times as long.
#[test]
fn order_agrees_with_the_graph_soak() {
    let seed = std::env::var("NPUMEM_ORACLE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1_u64);
    let factor = std::env::var("NPUMEM_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(1_u64);
    let (mut right, mut racy, mut stuck, mut callers) = (0, 0, 0, [0, 0]);
    for number in 0..1000 * factor {
        let mut random = Random(seed + number);
        let program = generate(&mut random);
        let structure = program.structure().unwrap();
        let (on_chip, expected, deadlock) = graph(&program, &structure);
        let verdict = check_program(&program, None, &Options { plan_is_separate: true, ..Options::default() }).unwrap();
        let mut found = BTreeSet::new();
        let (mut waits, mut unknown) = (false, false);
        for finding in &verdict.findings {
            match &finding.kind {
                Kind::Race { first, second, .. } => {
                    found.insert((first.step.min(second.step), first.step.max(second.step)));
                }
                Kind::Deadlock { .. } => waits = true,
                Kind::OrderUnknown { .. } => unknown = true,
                _ => {}
            }
        }
        let text = || format!("seed {}\n{}", seed + number, npumem_ir::program::text::print(&program));
        assert!(!unknown, "{}", text());
        assert_eq!(waits, deadlock, "deadlock? {}\n{:#?}", text(), verdict.findings);
        if !deadlock {
            assert!(found.is_subset(&expected), "{found:?} are not all of {expected:?}: {}", text());
            // Of the caller's memory only the latest touches of a statement are kept.
            assert!(on_chip.is_empty() || !found.is_empty(), "{on_chip:?}: {}", text());
            callers[0] += usize::from(on_chip.is_empty() && !expected.is_empty());
            callers[1] += usize::from(on_chip.is_empty() && !found.is_empty());
        }
        match (deadlock, expected.is_empty()) {
            (true, _) => stuck += 1,
            (_, true) => right += 1,
            _ => racy += 1,
        }
    }
    eprintln!("{right} in order, {racy} with races, {stuck} that wait for ever");
    eprintln!("races only in the caller's memory: {}, found {}", callers[0], callers[1]);
    assert!(callers[1] * 2 > callers[0]);
    assert!(right > 100 && racy > 100 && stuck > 100);
}
