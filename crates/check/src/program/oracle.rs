//! The exhaustive oracle: small programs run with real bytes, once with separate and once with shared storage,
//! on every path, and every read compared. The checker must agree.
//!
//! The body ([`agree`]) is what `cargo xtask soak checker_agrees` runs a hundred times as long; `NPUMEM_ORACLE_SEED`
//! names the first program.

use super::{Kind, Options, Severity, Standing, check_program};
use npumem_ir::program::{
    Access, Affine, Alias, Assign, Buffer, Extent, InPlace, Op, Operation, Program, ProgramBuilder, Root, ScalarKind,
    Step, Structure, Values,
};
use npumem_ir::{BufferId, ElementType, StepId};
use npumem_testing::Random;
use std::collections::{BTreeMap, BTreeSet};

/// The most turns of a loop whose bound is unknown; where the checker shows a fault that needs more of them,
/// the oracle looks again with [`MORE_TURNS`].
const TURNS: u64 = 4;
/// See [`TURNS`].
const MORE_TURNS: u64 = 24;
/// Programs with more paths or steps than this are left out.
const MAX_PATHS: usize = 400;
/// Paths of the second look.
const MORE_PATHS: usize = 8000;

/// Steps of one run.
const MAX_WORK: usize = 2000;

/// A random program of a few buffers that share a few bytes.
fn generate(random: &mut Random) -> Program {
    let mut b = ProgramBuilder::new("generated");
    let count = 2 + random.below(4);
    let size_of_space = 12 + random.below(30);
    let mut buffers = Vec::new();
    for index in 0..count {
        let bytes = 2 + random.below(6);
        let slots = if random.one_in(4) { 2 + random.below(2) as u32 } else { 1 };
        let address = Some(Affine::constant(random.below(size_of_space) as i64));
        let buffer = Buffer { slots, address, ..Buffer::tile(format!("b{index}"), "ub", bytes) };
        buffers.push(b.buffer(buffer));
    }
    if random.one_in(5) {
        let of = *random.pick(&buffers);
        let owner = b.program().buffer(of).clone();
        let bytes = owner.bytes.unwrap();
        let delta = random.below(bytes);
        let alias = Buffer {
            slots: owner.slots,
            alias: Some(Alias { of, delta }),
            ..Buffer::tile("alias", "ub", 1 + random.below(bytes - delta))
        };
        buffers.push(b.buffer(alias));
    }
    // Bounds and thresholds that are asked for again and again, and arguments that only one step asks for.
    let numbers: Vec<Affine> = (0..2).map(|n| b.argument(format!("n{n}"), None).into()).collect();
    let truths: Vec<Affine> = (0..2).map(|n| b.argument(format!("c{n}"), None).into()).collect();
    let variable = b.variable("v");
    b.assign(variable, random.below(3) as i64);
    let handle = b.handle("h");
    let first = Root::Buffer(buffers[0]);
    b.step(Step::Assign(Assign { scalars: vec![], handles: vec![(handle, first, 0.into())] }));
    let mut counters: Vec<Affine> = Vec::new();
    let mut open: Vec<bool> = Vec::new();
    let steps = 4 + random.below(11);
    for _ in 0..steps {
        match random.below(12) {
            0 | 1 if open.len() < 3 && counters.len() < 2 => {
                let name = format!("i{}", b.program().scalars.len());
                let (start, by) = (random.below(2) as i64, 1 + random.below(2) as i64);
                let stop = match random.below(6) {
                    4 => random.pick(&numbers).clone(),
                    5 => random.pick(&numbers).times(-1).plus(&(random.below(3) as i64).into()),
                    0 => Affine::scalar(b.argument(format!("n{}", b.program().scalars.len()), None)),
                    1 => counters.last().cloned().unwrap_or(Affine::constant(3)),
                    _ => Affine::constant(start + random.below(5) as i64 * by),
                };
                counters.push(b.begin_for(name, start, stop, by).into());
                open.push(true);
            }
            2 | 3 if open.len() < 3 => {
                let condition = match (random.below(9), counters.last()) {
                    (5.., counter) => related(random, &mut b, &numbers, &truths, counter),
                    (0, _) => random.pick(&truths).clone(),
                    (1, Some(counter)) => {
                        let k = random.below(4) as i64;
                        let op = *random.pick(&[Op::Eq, Op::Lt, Op::Ne, Op::Le]);
                        b.value(op, vec![counter.clone(), k.into()])
                    }
                    (2, Some(counter)) => b.value(Op::Rem, vec![counter.clone(), 2.into()]),
                    (3, _) => Affine::scalar(variable),
                    _ => Affine::scalar(b.computed(Op::Opaque, vec![])),
                };
                b.begin_if(condition);
                open.push(false);
            }
            4 if open.last() == Some(&false) => {
                let last_if = b.program().structure_open_if();
                if last_if {
                    b.otherwise();
                }
            }
            5 | 6 if !open.is_empty() => {
                if open.pop() == Some(true) {
                    counters.pop();
                }
                b.end();
            }
            7 => {
                let value = match random.below(4) {
                    0 => Affine::constant(random.below(3) as i64),
                    1 => b.value(Op::Rem, vec![Affine::scalar(variable).plus(&1.into()), 3.into()]),
                    2 => counters.last().cloned().unwrap_or_default(),
                    _ => Affine::scalar(variable).times(-1).plus(&1.into()),
                };
                b.assign(variable, value);
            }
            8 => {
                let root = Root::Buffer(*random.pick(&buffers));
                let id = handle;
                b.step(Step::Assign(Assign { scalars: vec![], handles: vec![(id, root, 0.into())] }));
            }
            _ => {
                let reads =
                    (0..random.below(3)).map(|_| access(random, &b, &buffers, &counters, variable, handle)).collect();
                let writes = (0..random.below(2) + 1)
                    .map(|_| access(random, &b, &buffers, &counters, variable, handle))
                    .collect();
                b.run(Operation { reads, writes, in_place: InPlace::Always, ..Operation::new("op", "v") });
            }
        }
    }
    while open.pop().is_some() {
        b.end();
    }
    for id in &buffers {
        if random.one_in(2) {
            b.simple("use", "v", &[*id], &[]);
        }
    }
    b.finish().unwrap()
}

/// A condition that hangs together with others: of the same few inputs, and of their negations and remainders.
fn related(
    random: &mut Random,
    b: &mut ProgramBuilder,
    numbers: &[Affine],
    truths: &[Affine],
    counter: Option<&Affine>,
) -> Affine {
    let number = random.pick(numbers).clone();
    let k: Affine = (random.below(4) as i64).into();
    let ops = [Op::Eq, Op::Lt, Op::Ne, Op::Le];
    let op = *random.pick(&ops);
    match (random.below(9), counter) {
        (0, _) => b.value(op, vec![k, number]),
        (1, Some(counter)) => b.value(op, vec![counter.clone(), number]),
        (2, Some(counter)) => b.value(op, vec![counter.plus(&1.into()), number]),
        (3, _) => {
            let rest = b.value(Op::Rem, vec![number, 2.into()]);
            b.value(op, vec![rest, (random.below(2) as i64).into()])
        }
        (4, _) => {
            let truth = random.pick(truths).clone();
            b.value(Op::Eq, vec![truth, 0.into()])
        }
        (5, _) => {
            let (first, second) = (b.value(op, vec![number, k]), random.pick(truths).clone());
            let second = b.value(Op::Ne, vec![second, 0.into()]);
            b.value(*random.pick(&[Op::And, Op::Or, Op::Xor]), vec![first, second])
        }
        (6, _) => {
            let truth = b.value(op, vec![number, k]);
            b.value(Op::Select, vec![truth, 0.into(), 1.into()])
        }
        (7, _) => b.value(op, vec![numbers[0].clone(), numbers[1].clone()]),
        _ => b.value(op, vec![number, k]),
    }
}

fn access(
    random: &mut Random,
    b: &ProgramBuilder,
    buffers: &[BufferId],
    counters: &[Affine],
    variable: npumem_ir::ScalarId,
    handle: npumem_ir::HandleId,
) -> Access {
    let id = *random.pick(buffers);
    let bytes = b.program().buffer(id).bytes.unwrap();
    let slot = match (random.below(4), counters.last()) {
        (0, Some(counter)) => counter.clone(),
        (1, Some(counter)) => counter.times(2).plus(&1.into()),
        (2, _) => Affine::scalar(variable),
        _ => Affine::constant(random.below(2) as i64),
    };
    let root = if random.one_in(8) { Root::Handle(handle) } else { Root::Buffer(id) };
    if random.one_in(3) || matches!(root, Root::Handle(_)) {
        return Access::whole(root, ElementType::U8).in_slot(slot);
    }
    let length = 1 + random.below(bytes);
    let start = random.below(bytes - length + 1) as i64;
    if random.one_in(4) && length >= 3 {
        // Every second byte.
        let count = length.div_ceil(2) as i64;
        let extents = vec![Extent { count: count.into(), stride: 2 }];
        return Access { start: start.into(), extents, ..Access::whole(root, ElementType::U8).in_slot(slot) };
    }
    Access::bytes(root, start.into(), length).in_slot(slot)
}

/// Whether an `if` is innermost and has no `else` yet.
trait OpenIf {
    fn structure_open_if(&self) -> bool;
}

impl OpenIf for Program {
    fn structure_open_if(&self) -> bool {
        let mut open: Vec<bool> = Vec::new();
        for step in &self.steps {
            match step {
                Step::If(_) => open.push(true),
                Step::For { .. } | Step::Loop => open.push(false),
                Step::Else => {
                    open.pop();
                    open.push(false);
                }
                Step::End => {
                    open.pop();
                }
                _ => {}
            }
        }
        open.last() == Some(&true)
    }
}

/// A byte of a slot of a buffer.
type Place = (BufferId, u32, u64);

/// One run: a list of choices, made in order; new ones are 0.
struct RunState<'a> {
    program: &'a Program,
    structure: &'a Structure,
    choices: Vec<(u64, u64)>,
    next: usize,
    values: Values,
    handles: Vec<BufferId>,
    separate: BTreeMap<Place, u64>,
    shared: BTreeMap<u64, (Place, u64)>,
    writes: u64,
    wrong: BTreeSet<(StepId, BufferId)>,
    work: usize,
}

impl RunState<'_> {
    fn choose(&mut self, count: u64) -> u64 {
        if self.next == self.choices.len() {
            self.choices.push((0, count));
        }
        self.next += 1;
        self.choices[self.next - 1].0
    }

    fn value(&mut self, affine: &Affine) -> i64 {
        let program = self.program;
        self.values.affine(program, affine).unwrap_or_else(|| panic!("a value that no choice was made for: {affine:?}"))
    }

    fn places(&mut self, access: &Access) -> Vec<Place> {
        let (buffer, delta, bytes) = match access.root {
            Root::Buffer(id) => {
                let (owner, delta) = self.program.owner(id);
                (owner, delta, self.program.buffer(id).bytes.unwrap())
            }
            Root::Handle(id) => {
                let id = self.handles[id.index()];
                let (owner, delta) = self.program.owner(id);
                (owner, delta, self.program.buffer(owner).bytes.unwrap() - delta)
            }
        };
        let slots = i64::from(self.program.buffer(buffer).slots);
        let slot = self.value(&access.slot).rem_euclid(slots) as u32;
        let start = delta + self.value(&access.start) as u64;
        let offsets: Vec<u64> = match access.extents.as_slice() {
            [] => (0..bytes).collect(),
            [extent] => {
                let count = self.value(&extent.count);
                (0..count).map(|k| (k * extent.stride) as u64).collect()
            }
            _ => unreachable!("generated accesses have one extent"),
        };
        offsets.into_iter().map(|offset| (buffer, slot, start + offset)).collect()
    }

    fn address(&self, (buffer, slot, byte): Place) -> u64 {
        let info = self.program.buffer(buffer);
        let base = info.address.as_ref().unwrap().as_constant().unwrap() as u64;
        base + u64::from(slot) * info.pitch().unwrap() + byte
    }

    fn run(&mut self) {
        let mut at = 0;
        let mut loops: Vec<(usize, i64)> = Vec::new();
        while at < self.program.steps.len() && self.work < MAX_WORK {
            self.work += 1;
            let id = StepId::new(at);
            let program = self.program;
            match &program.steps[at] {
                Step::Run(operation) => {
                    for access in &operation.reads {
                        for place in self.places(access) {
                            let Some(expected) = self.separate.get(&place) else { continue };
                            if self.shared.get(&self.address(place)) != Some(&(place, *expected)) {
                                self.wrong.insert((id, place.0));
                            }
                        }
                    }
                    for access in &operation.writes {
                        self.writes += 1;
                        for place in self.places(access) {
                            self.separate.insert(place, self.writes);
                            self.shared.insert(self.address(place), (place, self.writes));
                        }
                    }
                }
                Step::Assign(assign) => {
                    let scalars: Vec<_> = assign.scalars.iter().map(|(t, v)| (*t, self.value(v))).collect();
                    for (target, value) in scalars {
                        self.values.set(target, Some(value));
                    }
                    for (target, root, _) in &assign.handles {
                        if let Root::Buffer(id) = root {
                            self.handles[target.index()] = *id;
                        }
                    }
                }
                Step::If(condition) => {
                    let known = self.values.affine(program, condition);
                    let taken = known.unwrap_or_else(|| self.choose(2) as i64);
                    if taken == 0 {
                        at = self.structure.otherwise(id).index();
                    }
                }
                Step::Else => at = self.structure.partner(self.structure.partner(id)).index(),
                Step::For { counter, start, stop, .. } => {
                    let start = self.value(start);
                    let stop = self.value(stop);
                    if start < stop {
                        self.values.set(*counter, Some(start));
                        loops.push((at, stop));
                    } else {
                        at = self.structure.partner(id).index();
                    }
                }
                Step::End => {
                    let opener = self.structure.partner(id).index();
                    if let Step::For { counter, step, .. } = &program.steps[opener] {
                        let (_, stop) = *loops.last().unwrap();
                        let next = self.values.stored(*counter).unwrap() + self.value(step);
                        if next < stop {
                            self.values.set(*counter, Some(next));
                            at = opener;
                        } else {
                            loops.pop();
                        }
                    }
                }
                _ => unreachable!("not generated"),
            }
            at += 1;
        }
    }
}

/// Scalars that some step follows from.
fn used(program: &Program) -> BTreeSet<npumem_ir::ScalarId> {
    let mut pending: Vec<npumem_ir::ScalarId> = Vec::new();
    let mut add = |affine: &Affine| pending.extend(affine.terms.iter().map(|term| term.0));
    for step in &program.steps {
        match step {
            Step::If(value) => add(value),
            Step::For { start, stop, step, .. } => [start, stop, step].into_iter().for_each(&mut add),
            Step::Assign(assign) => assign.scalars.iter().for_each(|(_, value)| add(value)),
            Step::Run(operation) => {
                operation.reads.iter().chain(&operation.writes).for_each(|access| add(&access.slot))
            }
            _ => {}
        }
    }
    let mut used = BTreeSet::new();
    while let Some(next) = pending.pop() {
        if used.insert(next)
            && let ScalarKind::Computed(compute) = &program.scalar(next).kind
        {
            pending.extend(compute.operands.iter().flat_map(|o| o.terms.iter().map(|term| term.0)));
        }
    }
    used
}

/// Every wrong read of every path: statement and buffer; `None` when there are too many paths.
fn truth(program: &Program, turns: u64, paths: usize) -> Option<BTreeSet<(StepId, BufferId)>> {
    let structure = program.structure().unwrap();
    let mut wrong = BTreeSet::new();
    let mut choices: Vec<(u64, u64)> = Vec::new();
    let used = used(program);
    let mut unbound: Vec<(npumem_ir::ScalarId, i64, u64)> = Vec::new();
    for (index, scalar) in program.scalars.iter().enumerate() {
        let id = npumem_ir::ScalarId::new(index);
        if matches!(scalar.kind, ScalarKind::Argument(None)) && used.contains(&id) {
            // One value for the whole run: a truth, or a number of turns and its neighbours.
            let (least, count) =
                if scalar.name.starts_with('c') { (0, 2) } else { (-(turns as i64) - 1, 2 * turns + 3) };
            unbound.push((id, least, count));
        }
    }
    for _ in 0..paths {
        let mut state = RunState {
            program,
            structure: &structure,
            choices,
            next: 0,
            values: Values::new(program),
            handles: vec![BufferId(0); program.handles.len()],
            separate: BTreeMap::new(),
            shared: BTreeMap::new(),
            writes: 0,
            wrong: BTreeSet::new(),
            work: 0,
        };
        for (scalar, least, count) in &unbound {
            let value = least + state.choose(*count) as i64;
            state.values.set(*scalar, Some(value));
        }
        state.run();
        if state.work >= MAX_WORK {
            return None;
        }
        wrong.extend(state.wrong);
        choices = state.choices;
        choices.truncate(state.next);
        // The next list of choices, the last one counting fastest.
        loop {
            match choices.pop() {
                None => return Some(wrong),
                Some((choice, count)) if choice + 1 < count => {
                    choices.push((choice + 1, count));
                    break;
                }
                Some(_) => {}
            }
        }
    }
    None
}

/// The body: does the checker agree with the oracle on the program of this seed? `None`: left out.
fn agree(seed: u64) -> Option<bool> {
    let program = generate(&mut Random(seed));
    let mut wrong = truth(&program, TURNS, MAX_PATHS)?;
    let options = Options { plan_is_separate: true, ..Options::default() };
    let verdict = check_program(&program, None, &options).unwrap();
    if verdict.findings.iter().any(|finding| matches!(finding.kind, Kind::Budget { .. })) {
        return None;
    }
    let text = || npumem_ir::program::text::print(&program);
    let faults: BTreeSet<(StepId, BufferId)> = verdict
        .of(Severity::Fault)
        .filter_map(|finding| match &finding.kind {
            Kind::Overwritten { reader, read, .. } => Some((read.step, *reader)),
            _ => None,
        })
        .collect();
    if !faults.is_subset(&wrong) {
        wrong = truth(&program, MORE_TURNS, MORE_PATHS)?;
    }
    if verdict.standing == Standing::Undecided {
        return None;
    }
    let unsound = verdict.standing == Standing::Unsound;
    assert!(
        unsound != wrong.is_empty(),
        "seed {seed}: the checker says {:?}, the oracle finds {wrong:?}\n{:#?}\n{}",
        verdict.standing,
        verdict.findings,
        text()
    );
    // Every fault that is reported is real: that statement reads wrong bytes of that buffer on some path.
    let mut found = BTreeSet::new();
    for finding in verdict.of(Severity::Fault) {
        let Kind::Overwritten { reader, read, .. } = &finding.kind else {
            panic!("seed {seed}: unexpected {finding:?}\n{}", text())
        };
        assert!(wrong.contains(&(read.step, *reader)), "seed {seed}: {finding:?} is not real\n{}", text());
        found.insert((read.step, *reader));
    }
    // And none is missed: where paths had to be united, it may be told as a doubt.
    for finding in verdict.of(Severity::Doubt) {
        if let Kind::Overwritten { reader, read, .. } = &finding.kind
            && wrong.contains(&(read.step, *reader))
        {
            found.insert((read.step, *reader));
        }
    }
    assert_eq!(found, wrong, "seed {seed}\n{}", text());
    Some(unsound)
}

#[test]
fn the_checker_agrees_with_the_oracle_soak() {
    let factor = std::env::var("NPUMEM_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(1_u64);
    let count = 3000 * factor;
    let first = std::env::var("NPUMEM_ORACLE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1_u64);
    let (mut sound, mut unsound, mut left_out) = (0_u64, 0_u64, 0_u64);
    for seed in first..first + count {
        match agree(seed) {
            Some(false) => sound += 1,
            Some(true) => unsound += 1,
            None => left_out += 1,
        }
    }
    eprintln!("{count} programs: {sound} sound, {unsound} unsound, {left_out} left out (too many paths, or undecided)");
    assert!(sound * 10 > count && unsound * 10 > count, "{sound} sound, {unsound} unsound, {left_out} left out");
}
