//! Runs the program on [`Memory`], on every path, until nothing new can happen.

use super::ahead::{Tests, last_touch};
use super::conditions::Conditions;
use super::finding::{Context, Event, Findings, Kind, Place, Severity, Unseen};
use super::handles::may_be_one;
use super::known::{Example, Guess, Known, Scene};
use super::memory::{CLOBBERED, Memory, SlabId, Slabs, UNSURE, UNWRITTEN};
use super::moves::Moves;
use super::resolve::{self, Handles, Resolved, resolve};
use super::turns::{Turns, relevant, turns};
use super::{Options, memory};
use npumem_ir::program::{Access, Affine, InPlace, Operation, Program, Role, ScalarKind, Step, Structure, Values};
use npumem_ir::{BufferId, ByteRange, Bytes, Offset, ScalarId, StepId};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Paths that are told apart; past this many they are united and what differs becomes unknown.
const MAX_PATHS: usize = 24;
/// Of so many paths, those that are kept apart when the rest is united.
const KEPT_PATHS: usize = 4;
/// Past this many, paths that hold the same bytes are told together.
const FEW_PATHS: usize = 6;

/// Runs the program on every path, with these values given beside those that the program fixes.
pub(super) fn check(
    program: &Program,
    structure: &Structure,
    options: &Options,
    given: &[(ScalarId, i64)],
    findings: &mut Findings,
) {
    let (relevant, tests) = (relevant(program, false), Tests::new(program));
    let mut runner = Runner {
        program,
        structure,
        slabs: Slabs::new(program),
        turns: BTreeMap::new(),
        moves: BTreeMap::new(),
        relevant_list: tests.stored(program, &relevant),
        relevant,
        tests,
        conditions: Conditions::new(program, structure),
        last_touch: last_touch(program, structure),
        dirt: BTreeMap::new(),
        used_slots: BTreeMap::new(),
        budget: options.budget,
        two_are_two: options.plan_is_separate,
        findings,
    };
    for (id, buffer) in program.buffers() {
        let run_time = buffer.address.as_ref().is_some_and(|address| address.as_constant().is_none());
        if run_time && buffer.role != Role::External {
            runner.findings.push(Severity::Doubt, Kind::RunTimeAddress { buffer: id });
        }
    }
    let mut values = Values::new(program);
    given.iter().for_each(|(scalar, value)| values.set(*scalar, Some(*value)));
    let start = Path {
        values,
        handles: Rc::new(vec![None; program.handles.len()]),
        assumed: BTreeSet::new(),
        known: Known::default(),
        memory: Memory::default(),
        context: None,
        guessed: None,
    };
    runner.block(0, program.steps.len(), vec![start]);
    runner.slots();
}

/// One path of the run, or several that agree on every scalar.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub values: Values,
    pub handles: Handles,
    /// Truths that a branch assumed and a later one tests again.
    pub assumed: BTreeSet<ScalarId>,
    /// What it decided of values that nobody knows.
    pub known: Known,
    pub memory: Memory,
    pub context: Context,
    /// Something was decided that other decisions may exclude: a fault found from here on may be of no real path.
    pub guessed: Option<Guess>,
}

pub(super) struct Runner<'a> {
    pub program: &'a Program,
    pub structure: &'a Structure,
    slabs: Slabs,
    turns: BTreeMap<usize, Rc<Turns>>,
    /// For each loop, what of its conditions moves along with its counter.
    moves: BTreeMap<usize, Rc<Moves>>,
    relevant: Vec<bool>,
    pub relevant_list: Vec<ScalarId>,
    tests: Tests,
    pub conditions: Conditions,
    last_touch: BTreeMap<usize, Vec<BufferId>>,
    /// Who wrote last to addresses, whatever the path: (space, start) -> (end, slab).
    dirt: BTreeMap<(u32, u64), (u64, SlabId)>,
    used_slots: BTreeMap<BufferId, BTreeSet<u32>>,
    pub budget: u64,
    /// The plan stands beside the program: no two of its buffers are one.
    two_are_two: bool,
    pub findings: &'a mut Findings,
}

impl Runner<'_> {
    /// Steps `from..to`, all of one region. Regions nest at most `MAX_DEPTH` deep, and so do these calls.
    pub fn block(&mut self, from: usize, to: usize, mut paths: Vec<Path>) -> Vec<Path> {
        let mut at = from;
        while at < to && !paths.is_empty() {
            let id = StepId::new(at);
            match &self.program.steps[at] {
                Step::Run(operation) => {
                    for path in &mut paths {
                        self.statement(path, id, operation);
                    }
                }
                Step::Assign(assign) => {
                    for path in &mut paths {
                        resolve::assign(self.program, &self.relevant, &mut path.values, &mut path.handles, assign);
                        if !path.known.is_empty() {
                            let scene = scene(self.program, &self.conditions, &path.values);
                            assign.scalars.iter().for_each(|(target, _)| path.known.set(scene, *target, at));
                        }
                    }
                    paths = self.unite(paths, at);
                }
                Step::If(condition) => {
                    let end = self.structure.partner(id).index();
                    paths = self.branch(id, condition, end, paths);
                    at = end;
                }
                Step::For { counter, start, stop, step } => {
                    let end = self.structure.partner(id).index();
                    let mut after = Vec::new();
                    for path in paths {
                        after.extend(self.counted(id, (*counter, start, stop, step), end, path));
                    }
                    paths = self.unite(after, end);
                    at = end;
                }
                Step::Loop => {
                    let end = self.structure.partner(id).index();
                    paths = self.uncounted(id, end, paths);
                    at = end;
                }
                Step::Sync(_) | Step::Leave(_) | Step::Else | Step::End => {}
            }
            if let Some(done) = self.last_touch.get(&at) {
                for buffer in done {
                    for slot in 0..self.program.buffer(*buffer).slots {
                        if let Some(slab) = self.slabs.of(*buffer, slot) {
                            paths.iter_mut().for_each(|path| path.memory.forget(&self.slabs, slab));
                        }
                    }
                }
            }
            at += 1;
        }
        paths
    }

    fn branch(&mut self, id: StepId, condition: &Affine, end: usize, paths: Vec<Path>) -> Vec<Path> {
        let otherwise = self.structure.otherwise(id).index();
        let sticky = condition.as_scalar().filter(|scalar| self.tests.last.contains_key(scalar));
        let (mut first, mut other) = (Vec::new(), Vec::new());
        for path in paths {
            match path.values.affine(self.program, condition) {
                Some(0) => other.push(path),
                Some(_) => first.push(path),
                None => {
                    let sides =
                        path.known.decide(scene(self.program, &self.conditions, &path.values), condition, id.index());
                    for (list, known, truth) in [(&mut first, sides.yes, 1), (&mut other, sides.no, 0)] {
                        for known in known {
                            let mut side = Path { known, guessed: path.guessed.or(sides.guess), ..path.clone() };
                            if let Some(scalar) = sticky {
                                side.values.set(scalar, Some(truth));
                                side.assumed.insert(scalar);
                            }
                            list.push(side);
                        }
                    }
                }
            }
        }
        let enter = |paths: Vec<Path>, taken: bool| -> (Vec<Path>, Context) {
            let outer = paths.first().and_then(|path| path.context.clone());
            let context = Some(Rc::new(Place::Branch(id, taken, outer.clone())));
            let paths = paths.into_iter().map(|path| Path { context: context.clone(), ..path });
            (paths.collect(), outer)
        };
        let (first, outer_first) = enter(first, true);
        let (other, outer_other) = enter(other, false);
        let outer = if first.is_empty() { outer_other } else { outer_first };
        let mut after = self.block(id.index() + 1, otherwise, first);
        after.extend(if otherwise < end { self.block(otherwise + 1, end, other) } else { other });
        for path in &mut after {
            path.context.clone_from(&outer);
        }
        self.unite(after, end)
    }

    /// Unites paths that agree on every scalar and handle; too many are united whatever they say.
    pub fn unite(&mut self, paths: Vec<Path>, at: usize) -> Vec<Path> {
        if paths.len() < 2 {
            return paths;
        }
        let mut out: Vec<Path> = Vec::new();
        for mut path in paths {
            // Nobody tests it any more: what was assumed of it need not be told apart.
            self.tests.forget(&mut path.assumed, &mut path.values, at);
            let guess = path.known.forget(scene(self.program, &self.conditions, &path.values), at);
            path.guessed = path.guessed.or(guess);
            let same = out.iter_mut().find(|other| {
                other.known == path.known
                    && other.guessed.is_some() == path.guessed.is_some()
                    && other.handles == path.handles
                    && other.values.agree(&path.values, &self.relevant_list)
            });
            match same {
                Some(other) => other.memory.join(&self.slabs, &path.memory),
                None => out.push(path),
            }
        }
        if out.len() > 1 {
            let many = out.len() > FEW_PATHS;
            out = self.gather(out, many);
        }
        if out.len() > MAX_PATHS {
            // Some stay as they are: what is found on them is of a real path.
            let rest = out.split_off(KEPT_PATHS);
            out.push(self.widen(rest, at));
        }
        out
    }

    /// Paths that differ only in what was decided are one where that can be said exactly: `n <= 3` and `n >= 4`.
    /// Those of which not as much is remembered only where there are `many`: what is certain of one would be lost.
    fn gather(&self, paths: Vec<Path>, many: bool) -> Vec<Path> {
        let mut out: Vec<Path> = Vec::new();
        for path in paths {
            let found = out.iter_mut().find_map(|other| {
                let alike = other.guessed.is_some() == path.guessed.is_some()
                    && (many || other.known.remembers_like(&path.known))
                    && other.handles == path.handles
                    && other.values.agree(&path.values, &self.relevant_list)
                    && other.memory.same(&path.memory);
                let both = alike.then(|| other.known.or(&path.known)).flatten()?;
                Some((other, both))
            });
            match found {
                Some((other, both)) => other.known = both,
                None => out.push(path),
            }
        }
        out
    }

    /// One path of all: what they disagree on is unknown.
    pub fn widen(&mut self, paths: Vec<Path>, at: usize) -> Path {
        let mut paths = paths.into_iter();
        let Some(mut all) = paths.next() else {
            return Path {
                values: Values::new(self.program),
                handles: Rc::default(),
                assumed: BTreeSet::new(),
                known: Known::default(),
                memory: Memory::default(),
                context: None,
                guessed: None,
            };
        };
        let mut lost = false;
        for path in paths {
            all.values.keep_common(&path.values);
            for (mine, other) in Rc::make_mut(&mut all.handles).iter_mut().zip(path.handles.iter()) {
                if mine != other {
                    // What goes through it from here on is not looked at.
                    *mine = None;
                    lost = true;
                }
            }
            all.assumed.extend(path.assumed);
            all.known.widen(scene(self.program, &self.conditions, &path.values), &path.known, at);
            all.memory.join(&self.slabs, &path.memory);
        }
        if lost {
            self.findings.push(Severity::Doubt, Kind::Budget { step: StepId::new(at), why: Unseen::Handles });
        }
        all.guessed = Some(Guess { first: at, second: at });
        all
    }

    /// Two paths in one state, whatever their histories and what they decided.
    pub fn alike(&self, a: &Path, b: &Path) -> bool {
        a.handles == b.handles
            && a.guessed.is_some() == b.guessed.is_some()
            && a.memory.same(&b.memory)
            && self.relevant_list.iter().all(|scalar| {
                matches!(self.program.scalar(*scalar).kind, ScalarKind::Counter)
                    || a.values.stored(*scalar) == b.values.stored(*scalar)
            })
    }

    /// How much a fault on this path weighs, and values with which it comes about; `None` when no run takes the path.
    fn blame(&mut self, path: &Path, certain: bool) -> Option<(Severity, Vec<(ScalarId, i64)>)> {
        if !certain {
            return Some((Severity::Doubt, Vec::new()));
        }
        if path.known.is_empty() && path.guessed.is_none() {
            return Some((Severity::Fault, Vec::new()));
        }
        let example = path.known.example(scene(self.program, &self.conditions, &path.values));
        match (example, path.guessed) {
            (Example::Impossible, _) => None,
            (Example::Found(mut values), None) => {
                let given = |id: ScalarId| {
                    matches!(self.program.scalar(id).kind, ScalarKind::Argument(_) | ScalarKind::Grid(_))
                };
                values.retain(|(id, _)| given(*id));
                Some((Severity::Fault, values))
            }
            (Example::Found(values), Some(guess)) => {
                self.findings.guessed(guess, values);
                Some((Severity::Doubt, Vec::new()))
            }
            (Example::Unclear, guess) => {
                let here = path.context.as_ref().map_or(0, |place| place.step());
                self.findings.guessed(guess.unwrap_or(Guess { first: here, second: here }), Vec::new());
                Some((Severity::Doubt, Vec::new()))
            }
        }
    }

    pub fn turns_of(&mut self, id: StepId) -> Rc<Turns> {
        if let Some(turns) = self.turns.get(&id.index()) {
            return Rc::clone(turns);
        }
        let found = Rc::new(turns(self.program, self.structure, &self.relevant, id, false));
        self.turns.insert(id.index(), Rc::clone(&found));
        found
    }

    pub fn moves_of(&mut self, id: StepId) -> Rc<Moves> {
        let found = || Rc::new(Moves::of(self.program, self.structure, &self.conditions, id));
        Rc::clone(self.moves.entry(id.index()).or_insert_with(found))
    }

    /// What an access touches: one slot, or perhaps each where nobody knows which.
    fn resolve(&mut self, path: &Path, access: &Access) -> Vec<Resolved> {
        let found = resolve(self.program, &self.slabs, &path.values, &path.handles, access);
        let Some(found) = found else { return Vec::new() };
        let used = self.used_slots.entry(found.buffer).or_default();
        if let Some(slot) = found.slot {
            used.insert(slot);
            return vec![found];
        }
        let slots = 0..self.program.buffer(found.buffer).slots;
        used.extend(slots.clone());
        slots.map(|slot| Resolved { slab: found.slab + slot, runs: found.runs.clone(), ..found }).collect()
    }

    fn statement(&mut self, path: &mut Path, id: StepId, operation: &Operation) {
        self.budget = self.budget.saturating_sub(1);
        self.findings.work += 1;
        let event = Event { step: id, context: path.context.clone() };
        let reads: Vec<Resolved> = operation.reads.iter().flat_map(|access| self.resolve(path, access)).collect();
        let writes: Vec<Resolved> = operation.writes.iter().flat_map(|access| self.resolve(path, access)).collect();
        for read in &reads {
            self.inside(path, read, &event);
            self.read(path, read, &event);
        }
        self.own_input(operation, &reads, &writes, &event, path);
        for write in &writes {
            self.inside(path, write, &event);
            let slab = *self.slabs.get(write.slab);
            for (start, end) in &write.runs {
                let end = (*end).min(slab.bytes);
                path.memory.write(&self.slabs, write.slab, *start, end, write.certain, &event);
                if let Some((space, address)) = slab.place
                    && *start < end
                {
                    let range = (space, address + start, address + end);
                    path.memory.clobber(&self.slabs, write.slab, range, write.certain, (&event, write.buffer));
                    self.soil(range, write.slab);
                }
            }
        }
    }

    /// Touches bytes past its slot?
    fn inside(&mut self, path: &Path, access: &Resolved, event: &Event) {
        let bytes = self.slabs.get(access.slab).bytes;
        if let Some((start, end)) = access.runs.iter().find(|(_, end)| *end > bytes)
            && access.certain
            && let Some((severity, example)) = self.blame(path, true)
        {
            let range = ByteRange { start: Offset(*start), end: Offset(*end) };
            let kind = Kind::PastBuffer { buffer: access.buffer, bytes: range, size: Bytes(bytes), at: event.at() };
            self.findings.push_with(severity, kind, example);
        }
    }

    fn soil(&mut self, (space, start, end): (u32, u64, u64), slab: SlabId) {
        // What begins before the range and reaches into it keeps its head and its tail.
        if let Some((&(s, low), &(high, owner))) = self.dirt.range(..=(space, start)).next_back()
            && s == space
            && high > start
        {
            self.dirt.insert((space, low), (start, owner));
            if low == start {
                self.dirt.remove(&(space, low));
            }
            if high > end {
                self.dirt.insert((space, end), (high, owner));
            }
        }
        while let Some((&(s, low), &(high, owner))) = self.dirt.range((space, start)..(space, end)).next() {
            self.dirt.remove(&(s, low));
            if high > end {
                self.dirt.insert((space, end), (high, owner));
            }
        }
        self.dirt.insert((space, start), (end, slab));
    }

    fn read(&mut self, path: &Path, read: &Resolved, event: &Event) {
        let slab = *self.slabs.get(read.slab);
        let mut wrong: Vec<memory::Cell> = Vec::new();
        let (mut unsure, mut unwritten, mut right) = (None, None, false);
        let mut writers: Vec<(StepId, u64, u64)> = Vec::new();
        for (start, end) in &read.runs {
            path.memory.read(&self.slabs, read.slab, *start, (*end).min(slab.bytes), |cell, low, high| {
                if cell.flags & CLOBBERED != 0 {
                    wrong.push(memory::Cell { start: low, end: high, ..cell.clone() });
                } else if cell.flags & UNSURE != 0 {
                    unsure = Some(memory::Cell { start: low, end: high, ..cell.clone() });
                }
                if cell.flags & UNWRITTEN != 0 {
                    unwritten = Some(unwritten.map_or((low, high), |(a, b): (u64, u64)| (a.min(low), b.max(high))));
                }
                right |= cell.flags & (CLOBBERED | UNSURE | UNWRITTEN) == 0;
                if let Some((writer, from, to)) = &cell.writer
                    && cell.flags & CLOBBERED == 0
                {
                    writers.push((writer.step, *from, *to));
                }
            });
        }
        let address = slab.place.map_or(0, |place| place.1);
        let shift = |low: u64, high: u64| ByteRange { start: Offset(address + low), end: Offset(address + high) };
        // What lies there cannot be the reader's own under another name: that is certain.
        let other_s = |cell: &&memory::Cell| {
            cell.latest.as_ref().is_some_and(|latest| !may_be_one(self.program, read.buffer, latest.1))
        };
        let certain = wrong.iter().find(other_s).filter(|_| !self.two_are_two);
        if let Some(first) = certain.or(wrong.first())
            && let (Some(taker), Some(latest)) = (&first.taker, &first.latest)
        {
            let (taker, other) = if certain.is_some() { latest } else { taker };
            let same = |cell: &&memory::Cell| {
                let by = if certain.is_some() { &cell.latest } else { &cell.taker };
                cell.start >= first.start && by.as_ref().is_some_and(|by| by.1 == *other)
            };
            let end = wrong.iter().skip_while(|cell| cell.start < first.start).take_while(same).last();
            let kind = Kind::Overwritten {
                reader: read.buffer,
                other: *other,
                bytes: shift(first.start, end.map_or(first.end, |cell| cell.end)),
                written: first.writer.as_ref().map(|writer| writer.0.at()),
                overwritten: taker.at(),
                read: event.at(),
                partly: right,
                latest: latest.1,
            };
            if !self.findings.is_fault(&kind)
                && let Some((severity, example)) = self.blame(path, read.certain)
            {
                self.findings.push_with(severity, kind, example);
            }
        } else if let Some(cell) = &unsure
            && let Some((taker, other)) = &cell.taker
        {
            let kind = Kind::Overwritten {
                reader: read.buffer,
                other: *other,
                bytes: shift(cell.start, cell.end),
                written: cell.writer.as_ref().map(|writer| writer.0.at()),
                overwritten: taker.at(),
                read: event.at(),
                partly: true,
                latest: cell.latest.as_ref().map_or(*other, |latest| latest.1),
            };
            self.findings.push(Severity::Doubt, kind);
        }
        if let Some((low, high)) = unwritten
            && read.slot.is_some()
            && self.program.buffer(read.buffer).role != Role::Queue
        {
            self.unwritten(read, slab, (low, high), event);
        }
        // Two writers where the later one covers only part of the earlier one's bytes.
        for pair in writers.windows(2) {
            let ((first, a, b), (second, c, d)) = (pair[0], pair[1]);
            if first != second && a.max(c) < b.min(d) {
                let (older, newer) = if (b - a) >= (d - c) { (first, second) } else { (second, first) };
                let kind = Kind::Torn { buffer: read.buffer, first: older, second: newer, read: event.at() };
                self.findings.push(Severity::Warning, kind);
                break;
            }
        }
    }

    fn unwritten(&mut self, read: &Resolved, slab: memory::Slab, (low, high): (u64, u64), event: &Event) {
        if let (Some((space, address)), false) = (slab.place, self.two_are_two) {
            let (start, end) = (address + low, address + high);
            let before =
                self.dirt.range(..=(space, start)).next_back().filter(|((s, _), (end, _))| *s == space && *end > start);
            let inside = self.dirt.range((space, start)..(space, end));
            let foreign = before.into_iter().chain(inside).find_map(|((_, from), (to, owner))| {
                let other = self.slabs.get(*owner).buffer;
                (other != read.buffer && may_be_one(self.program, read.buffer, other)).then_some((*from, *to, other))
            });
            if let Some((from, to, other)) = foreign {
                let bytes = ByteRange { start: Offset(from.max(start)), end: Offset(to.min(end)) };
                self.findings.unite(read.buffer, other);
                let kind = Kind::Foreign { reader: read.buffer, other, bytes, read: event.at() };
                self.findings.push(Severity::Doubt, kind);
                return;
            }
        }
        let bytes = ByteRange { start: Offset(low), end: Offset(high) };
        let kind = Kind::NeverWritten { buffer: read.buffer, bytes, read: event.at() };
        self.findings.push(Severity::Warning, kind);
    }

    /// Does a statement write over what it still has to read?
    fn own_input(
        &mut self,
        operation: &Operation,
        reads: &[Resolved],
        writes: &[Resolved],
        event: &Event,
        path: &Path,
    ) {
        if operation.in_place == InPlace::Always {
            return;
        }
        for write in writes {
            for read in reads.iter().filter(|read| read.slab != write.slab) {
                let (a, b) = (self.slabs.get(read.slab), self.slabs.get(write.slab));
                let (Some((space, from)), Some((other_space, to))) = (a.place, b.place) else { continue };
                if space != other_space {
                    continue;
                }
                let mut shared = None;
                for (start, end) in &read.runs {
                    for (s, e) in &write.runs {
                        let low = (from + start).max(to + s);
                        let high = (from + end).min(to + e);
                        if low < high && shared.is_none() {
                            shared = Some((low, high));
                        }
                    }
                }
                let Some((low, high)) = shared else { continue };
                let begin = |runs: &[(u64, u64)], base: u64| runs.first().map(|run| base + run.0);
                let together = begin(&read.runs, from) == begin(&write.runs, to);
                let alike = together && alike(&read.runs, from, &write.runs, to);
                if operation.in_place == InPlace::Elementwise && alike {
                    continue;
                }
                // Exactly on top: some engines read it all in time, and only their maker knows.
                let sure = !together && read.certain && write.certain && operation.known;
                let bytes = ByteRange { start: Offset(low), end: Offset(high) };
                let kind = Kind::OwnInput { reader: read.buffer, other: write.buffer, bytes, read: event.at() };
                if let Some((severity, example)) = self.blame(path, sure) {
                    self.findings.push_with(severity, kind, example);
                }
            }
        }
    }

    /// Slots that nobody used although the run was complete.
    fn slots(&mut self) {
        for (buffer, used) in std::mem::take(&mut self.used_slots) {
            let info = self.program.buffer(buffer);
            if info.slots > 1 && info.role != Role::Queue && used.len() < info.slots as usize {
                let kind = Kind::UnusedSlots { buffer, used: used.into_iter().collect(), slots: info.slots };
                self.findings.push(Severity::Warning, kind);
            }
        }
    }
}

pub(super) fn scene<'a>(program: &'a Program, conditions: &'a Conditions, values: &'a Values) -> Scene<'a> {
    Scene { program, conditions, values }
}

/// Whether what is written, in order, never reaches bytes that are read later: run by run it begins and ends no later
/// than what is read.
fn alike(read: &[(u64, u64)], from: u64, write: &[(u64, u64)], to: u64) -> bool {
    read.len() == write.len()
        && read.iter().zip(write).all(|(read, write)| to + write.0 <= from + read.0 && to + write.1 <= from + read.1)
}
