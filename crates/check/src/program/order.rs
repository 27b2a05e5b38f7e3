//! Order between engines: which pairs of accesses to the same bytes does nothing order?
//!
//! Engines run on their own, each in its own order. A program that states its order (flags, events, barriers,
//! tokens) is run once with a clock per engine: an access must have heard of every earlier conflicting access of
//! another engine. What an engine has heard is a row of numbers, one per engine; a flag carries the row of the
//! engine that sets it to the engine that waits, a barrier gives everybody the same row.
//!
//! ```text
//!   mte2:  load x ---- set-flag mte2->v 0                 heard by v: mte2 = 1
//!   v:                      wait-flag mte2->v 0 ---- add x        x was written at mte2 = 1: ordered
//! ```
//!
//! A program without any such step leaves its order to the compiler or the hardware, and nothing is said. Loops
//! run their first turns, unknown branches take one side per run: what is found is real on that path.

use super::Options;
use super::finding::{At, Findings, Kind, Severity};
use npumem_ir::program::{Access, Program, Role, Root, Step, Structure, Sync, Values};
use npumem_ir::{BufferId, ByteRange, Offset, ScalarId, StepId};
use std::collections::{BTreeMap, VecDeque};

/// Turns of each loop that are looked at.
const MAX_TURNS: i64 = 4;
/// Statements that one run may take.
const MAX_WORK: usize = 200_000;

pub(super) fn check(program: &Program, structure: &Structure, _options: &Options, findings: &mut Findings) {
    let syncs = program.steps.iter().filter(|step| matches!(step, Step::Sync(_))).count();
    if syncs == 0 {
        return;
    }
    let states_order = program.steps.iter().any(|step| {
        matches!(
            step,
            Step::Sync(Sync::SetFlag { .. } | Sync::WaitFlag { .. } | Sync::Acquire { .. } | Sync::Barrier(None))
        )
    });
    if !states_order {
        return;
    }
    for first_side in [true, false] {
        let mut run = Run {
            program,
            structure,
            values: Values::new(program),
            engines: BTreeMap::new(),
            clocks: Vec::new(),
            flags: BTreeMap::new(),
            tokens: BTreeMap::new(),
            accesses: BTreeMap::new(),
            turns: Vec::new(),
            first_side,
            work: 0,
        };
        // All engines from the start: a barrier is heard by those that have not run yet, too.
        for step in &program.steps {
            match step {
                Step::Run(operation) => {
                    run.engine(&operation.engine);
                }
                Step::Sync(Sync::SetFlag { from, to, .. } | Sync::WaitFlag { from, to, .. }) => {
                    run.engine(from);
                    run.engine(to);
                }
                Step::Sync(Sync::Acquire { engine, .. } | Sync::Release { engine, .. }) => {
                    run.engine(engine);
                }
                _ => {}
            }
        }
        run.go(findings);
    }
}

/// What one engine has heard of each.
type Row = Vec<u64>;

/// A past access to some bytes.
#[derive(Clone, Debug)]
struct Past {
    start: u64,
    end: u64,
    write: bool,
    engine: usize,
    time: u64,
    at: At,
    buffer: BufferId,
}

struct Run<'a> {
    program: &'a Program,
    structure: &'a Structure,
    values: Values,
    engines: BTreeMap<String, usize>,
    clocks: Vec<Row>,
    /// Raised events: from, to, event -> what the setter had heard.
    flags: BTreeMap<(String, String, i64), VecDeque<Row>>,
    tokens: BTreeMap<i64, Row>,
    accesses: BTreeMap<String, Vec<Past>>,
    turns: Vec<(ScalarId, i64, i64, usize)>,
    first_side: bool,
    work: usize,
}

impl Run<'_> {
    fn engine(&mut self, name: &str) -> usize {
        if let Some(index) = self.engines.get(name) {
            return *index;
        }
        let index = self.clocks.len();
        self.engines.insert(name.to_owned(), index);
        self.clocks.push(vec![0; index]);
        for row in &mut self.clocks {
            row.resize(index + 1, 0);
        }
        index
    }

    fn at(&self, step: StepId) -> At {
        let turns = self.turns.iter().map(|(counter, now, ..)| (*counter, Some(*now))).collect();
        At { step, turns, branches: Vec::new() }
    }

    fn go(&mut self, findings: &mut Findings) {
        let program = self.program;
        let mut at = 0;
        while at < program.steps.len() && self.work < MAX_WORK {
            self.work += 1;
            let id = StepId::new(at);
            match &program.steps[at] {
                Step::Run(operation) => self.statement(id, operation, findings),
                Step::Sync(sync) => {
                    if !self.sync(id, sync, findings) {
                        return;
                    }
                }
                Step::Assign(assign) => {
                    let values: Vec<_> = assign
                        .scalars
                        .iter()
                        .map(|(target, value)| (*target, self.values.affine(program, value)))
                        .collect();
                    for (target, value) in values {
                        self.values.set(target, value);
                    }
                }
                Step::If(condition) => {
                    let taken = self.values.affine(program, condition).map_or(self.first_side, |value| value != 0);
                    if !taken {
                        at = self.structure.otherwise(id).index();
                    }
                }
                Step::Else => at = self.structure.partner(self.structure.partner(id)).index(),
                Step::For { counter, start, stop, .. } => {
                    let start = self.values.affine(program, start).unwrap_or(0);
                    let stop = self.values.affine(program, stop).unwrap_or(start.saturating_add(2));
                    if start < stop {
                        self.values.set(*counter, Some(start));
                        self.turns.push((*counter, start, stop, 0));
                    } else {
                        at = self.structure.partner(id).index();
                    }
                }
                Step::Loop => self.turns.push((ScalarId(0), 0, i64::MAX, 0)),
                Step::Leave(condition) => {
                    let turn = self.turns.last().map_or(0, |turn| turn.3);
                    let stay = self.values.affine(program, condition).map_or(turn < 2, |value| value != 0);
                    if !stay {
                        self.turns.pop();
                        at = self.structure.partner(self.structure.partner(id)).index();
                    }
                }
                Step::End => at = self.end(at, id),
            }
            at += 1;
        }
    }

    /// Back to the head of a loop, or on.
    fn end(&mut self, at: usize, id: StepId) -> usize {
        let opener = self.structure.partner(id);
        let by = match &self.program.steps[opener.index()] {
            Step::For { step, .. } => self.values.affine(self.program, step).unwrap_or(1).max(1),
            Step::Loop => 1,
            _ => return at,
        };
        let Some(turn) = self.turns.last_mut() else { return at };
        turn.1 = turn.1.saturating_add(by);
        turn.3 += 1;
        // Flags of the last turn may be taken after the loop, so a long loop runs its last turn too.
        if turn.3 as i64 >= MAX_TURNS && turn.2 != i64::MAX {
            let left = (turn.2 - turn.1 + by - 1) / by;
            if left > 1 {
                turn.1 += (left - 1) * by;
            }
        }
        let (counter, now, stop, count) = *turn;
        let again = now < stop && (stop != i64::MAX || count < 64);
        if !again {
            self.turns.pop();
            return at;
        }
        if matches!(self.program.steps[opener.index()], Step::For { .. }) {
            self.values.set(counter, Some(now));
        }
        opener.index()
    }

    /// Whether the run goes on.
    fn sync(&mut self, id: StepId, sync: &Sync, findings: &mut Findings) -> bool {
        match sync {
            Sync::SetFlag { from, to, event } => {
                let engine = self.engine(from);
                let row = self.clocks[engine].clone();
                // An event that cannot be known may be any: nothing is said of waits for that pair.
                if let Some(event) = self.values.affine(self.program, event) {
                    self.flags.entry((from.clone(), to.clone(), event)).or_default().push_back(row);
                } else {
                    self.flags.entry((from.clone(), to.clone(), i64::MIN)).or_default().push_back(row);
                }
            }
            Sync::WaitFlag { from, to, event } => {
                let engine = self.engine(to);
                let event = self.values.affine(self.program, event);
                let key = |event: i64| (from.clone(), to.clone(), event);
                let exact = event.and_then(|event| self.flags.get_mut(&key(event))).and_then(VecDeque::pop_front);
                let row = exact.or_else(|| {
                    let unknown = self.flags.get(&key(i64::MIN)).and_then(|rows| rows.back().cloned());
                    if event.is_none() {
                        let same = self.flags.iter().filter(|((f, t, _), _)| f == from && t == to);
                        return unknown.or_else(|| same.filter_map(|(_, rows)| rows.back().cloned()).next_back());
                    }
                    unknown
                });
                match (row, event) {
                    (Some(row), _) => self.hear(engine, &row),
                    (None, Some(event)) => {
                        let kind = Kind::Deadlock { at: self.at(id), flag: (from.clone(), to.clone(), event) };
                        findings.push(Severity::Fault, kind);
                        return false;
                    }
                    (None, None) => {}
                }
            }
            Sync::Barrier(None) => {
                let all = self.clocks.clone();
                for engine in 0..self.clocks.len() {
                    for row in &all {
                        self.hear(engine, row);
                    }
                }
            }
            // One engine in its own order: nothing new for the others.
            Sync::Barrier(Some(_)) | Sync::Post { .. } | Sync::Await { .. } => {}
            Sync::Acquire { engine, token } => {
                let engine = self.engine(engine);
                if let Some(token) = self.values.affine(self.program, token)
                    && let Some(row) = self.tokens.get(&token).cloned()
                {
                    self.hear(engine, &row);
                }
            }
            Sync::Release { engine, token } => {
                let engine = self.engine(engine);
                if let Some(token) = self.values.affine(self.program, token) {
                    let row = self.clocks[engine].clone();
                    self.tokens.insert(token, row);
                }
            }
        }
        true
    }

    fn hear(&mut self, engine: usize, row: &Row) {
        for (mine, other) in self.clocks[engine].iter_mut().zip(row) {
            *mine = (*mine).max(*other);
        }
    }

    fn statement(&mut self, id: StepId, operation: &npumem_ir::program::Operation, findings: &mut Findings) {
        let engine = self.engine(&operation.engine);
        self.clocks[engine][engine] += 1;
        let time = self.clocks[engine][engine];
        let at = self.at(id);
        for (list, write) in [(&operation.reads, false), (&operation.writes, true)] {
            for access in list {
                let Some((space, buffer, start, end)) = self.bytes(access) else { continue };
                let row = self.clocks[engine].clone();
                let past = self.accesses.entry(space).or_default();
                for earlier in past.iter().filter(|p| p.start < end && start < p.end && (p.write || write)) {
                    if earlier.engine != engine && row.get(earlier.engine).copied().unwrap_or(0) < earlier.time {
                        let bytes =
                            ByteRange { start: Offset(start.max(earlier.start)), end: Offset(end.min(earlier.end)) };
                        let kind = Kind::Race {
                            first: earlier.at.clone(),
                            second: at.clone(),
                            buffers: (earlier.buffer, buffer),
                            bytes,
                        };
                        findings.push(Severity::Fault, kind);
                    }
                }
                if write {
                    // Whoever is ordered with this write is ordered with all that it replaces.
                    past.retain(|p| !(start <= p.start && p.end <= end));
                } else {
                    past.retain(|p| p.write || p.engine != engine || !(start <= p.start && p.end <= end));
                }
                past.push(Past { start, end, write, engine, time, at: at.clone(), buffer });
            }
        }
    }

    /// Bytes of an on-chip access: addresses of the space, or of the buffer alone when it has none.
    fn bytes(&self, access: &Access) -> Option<(String, BufferId, u64, u64)> {
        let Root::Buffer(named) = access.root else { return None };
        let (id, delta) = self.program.owner(named);
        let buffer = self.program.buffer(id);
        if buffer.role == Role::External || !access.certain {
            return None;
        }
        let size = buffer.bytes?;
        let slot = self.values.affine(self.program, &access.slot)?.rem_euclid(i64::from(buffer.slots.max(1)));
        let slot = u64::try_from(slot).ok()?.checked_mul(buffer.pitch()?)?;
        let address = buffer.address.as_ref().and_then(|address| u64::try_from(address.as_constant()?).ok());
        let (space, base) = match address {
            Some(address) => (buffer.space.clone(), address.checked_add(slot)?),
            None => (format!("{id}"), slot),
        };
        if access.extents.is_empty() {
            let whole = self.program.buffer(named).bytes.unwrap_or(size);
            return Some((space, id, base + delta, base + delta + whole));
        }
        let start = u64::try_from(self.values.affine(self.program, &access.start)?).ok()?;
        let mut span = (access.element.bits() / 8).max(1);
        for extent in &access.extents {
            let count = u64::try_from(self.values.affine(self.program, &extent.count)?).ok()?;
            if count == 0 {
                return None;
            }
            span = span.checked_add((count - 1).checked_mul(u64::try_from(extent.stride).ok()?)?)?;
        }
        let start = base.checked_add(delta)?.checked_add(start)?;
        Some((space, id, start, start.checked_add(span)?))
    }
}
