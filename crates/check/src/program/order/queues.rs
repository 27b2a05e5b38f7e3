//! Engines as queues: what each has done, what it has heard of the others, and what it waits for.
//!
//! A core's scalar unit gives every engine its work in program order; an engine does it in order and stops at a wait
//! until the flag is raised. The n-th wait for an event takes its n-th raise, so which statements are ordered does not
//! depend on how fast anything runs, and one run in any order that respects the waits shows it for all.

use super::super::finding::{Event, Findings, Kind, Severity};
use npumem_ir::{BufferId, ByteRange, Offset};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// What an engine has heard of each: the number of the last statement.
pub(super) type Row = Vec<u64>;
/// Bytes from first to past the last, ascending, apart.
pub(super) type Runs = Rc<[(u64, u64)]>;

/// Entries that may wait before one engine or core. Hardware queues are far shorter: whoever gives the flag behind so
/// many is never reached.
pub(super) const MAX_WAITING: usize = 512;
/// Raises of one event that nobody has taken yet; hardware counts to fewer.
pub(super) const MAX_RAISED: usize = 256;

/// Bytes that a statement touches, as addresses of a space (or of a buffer that has none).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Touch {
    pub space: u32,
    pub runs: Runs,
    pub write: bool,
    /// All of these bytes, for sure.
    pub certain: bool,
    pub buffer: BufferId,
}

/// A past touch.
#[derive(Clone, Debug)]
struct Past {
    touch: Touch,
    engine: usize,
    time: u64,
    event: Event,
}

/// From, to, event.
pub(super) type Flag = (usize, usize, i64);

/// What an engine is given to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    Run(Vec<Touch>),
    Raise(Flag),
    Wait(Flag),
    /// Waits until so many releases of the token are done.
    Acquire(i64, u64),
    Release(i64),
    /// Tells the other core; to whom it counts.
    Post(usize, i64),
    /// Waits for a post that counts for this core.
    Await(usize, i64),
    /// Waits for all engines of the core.
    Barrier,
}

#[derive(Clone, Debug)]
struct Entry {
    engine: usize,
    work: Work,
    event: Event,
    guessed: bool,
    /// What the scalar unit had waited for when it gave this out.
    gate: Option<Rc<Row>>,
}

#[derive(Clone, Debug, Default)]
struct Token {
    given: u64,
    released: u64,
    row: Row,
}

/// All engines of a program at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues {
    rows: Vec<Row>,
    raised: BTreeMap<Flag, VecDeque<Row>>,
    tokens: BTreeMap<i64, Token>,
    posts: BTreeMap<(usize, i64), VecDeque<Row>>,
    past: BTreeMap<u32, Vec<Past>>,
    /// What the scalar unit of each core has waited for: all that it gives out comes after that. (Its own reads and
    /// writes are not in it: they may still be under way.)
    gates: Vec<Rc<Row>>,
    /// Work behind a wait, by engine.
    blocked: Vec<VecDeque<Entry>>,
    /// Work that a core's scalar unit has not given out yet.
    held: Vec<VecDeque<Entry>>,
    waiting: usize,
    /// An event was raised far more often than it was waited for.
    pub flooded: bool,
}

/// What stays the same of the engines.
#[derive(Debug, Default)]
pub(super) struct Engines {
    /// Core of each.
    pub core: Vec<usize>,
    /// Whether it is the scalar unit, which gives the others their work.
    pub scalar: Vec<bool>,
    pub names: Vec<String>,
    pub cores: usize,
}

/// Rows that flags carry, as ranks.
type Ranks = Vec<Vec<usize>>;
/// Engine, work, step and gate of an entry that waits.
type Waiting = (usize, Work, u32, Vec<usize>);

/// A state up to a shift in time: two of the same shape go on alike.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shape {
    rows: Vec<Vec<usize>>,
    raised: Vec<(Flag, Ranks)>,
    tokens: Vec<(i64, u64, Vec<usize>)>,
    posts: Vec<((usize, i64), Ranks)>,
    past: Vec<(Touch, usize, usize, u32)>,
    waiting: Vec<Vec<Waiting>>,
    gates: Vec<Vec<usize>>,
}

impl Queues {
    pub fn new(engines: &Engines) -> Self {
        let count = engines.core.len();
        Queues {
            rows: vec![vec![0; count]; count],
            blocked: vec![VecDeque::new(); count],
            held: vec![VecDeque::new(); engines.cores],
            gates: (0..engines.cores).map(|_| Rc::new(vec![0; count])).collect(),
            ..Queues::default()
        }
    }

    /// A token is taken: how many of its releases came before in the program.
    pub fn given(&mut self, token: i64) -> u64 {
        self.tokens.get(&token).map_or(0, |token| token.given)
    }

    /// The scalar unit of a core comes to this work. False: too much waits for the run to go on.
    pub fn give(
        &mut self,
        engines: &Engines,
        engine: usize,
        work: Work,
        (event, guessed): (Event, bool),
        findings: &mut Findings,
    ) -> bool {
        if let Work::Release(token) = &work {
            self.tokens.entry(*token).or_default().given += 1;
        }
        let core = engines.core[engine];
        let mut entry = Entry { engine, work, event, guessed, gate: None };
        if self.waiting == 0 {
            entry.gate = Some(Rc::clone(&self.gates[core]));
            if let Some(entry) = self.attempt(engines, entry, findings) {
                self.queue(engines, entry);
            }
            return true;
        }
        self.held[core].push_back(entry);
        self.waiting += 1;
        self.pump(engines, findings);
        self.waiting < MAX_WAITING
    }

    fn queue(&mut self, engines: &Engines, entry: Entry) {
        self.waiting += 1;
        if entry.work == Work::Barrier {
            self.held[engines.core[entry.engine]].push_front(entry);
        } else {
            self.blocked[entry.engine].push_back(entry);
        }
    }

    /// Does what can be done until nothing more can.
    fn pump(&mut self, engines: &Engines, findings: &mut Findings) {
        loop {
            let before = self.waiting;
            let mut moved = false;
            for engine in 0..self.blocked.len() {
                while let Some(entry) = self.blocked[engine].pop_front() {
                    self.waiting -= 1;
                    match self.attempt(engines, entry, findings) {
                        None => moved = true,
                        Some(entry) => {
                            self.blocked[engine].push_front(entry);
                            self.waiting += 1;
                            break;
                        }
                    }
                }
            }
            for core in 0..self.held.len() {
                moved |= self.give_out(engines, core, findings);
            }
            if !moved && self.waiting == before {
                return;
            }
        }
    }

    /// The scalar unit of a core goes on with what it holds.
    fn give_out(&mut self, engines: &Engines, core: usize, findings: &mut Findings) -> bool {
        let mut moved = false;
        while let Some(entry) = self.held[core].front() {
            let own = |engine: &usize| engines.core[*engine] == core;
            let stopped = (0..self.blocked.len()).filter(own).any(|engine| {
                // Nothing is given out while the scalar unit itself waits; a barrier waits for everybody.
                !self.blocked[engine].is_empty() && (engines.scalar[engine] || entry.work == Work::Barrier)
            });
            if stopped {
                return moved;
            }
            let Some(mut entry) = self.held[core].pop_front() else { return moved };
            entry.gate = Some(Rc::clone(&self.gates[core]));
            self.waiting -= 1;
            moved = true;
            if self.blocked[entry.engine].is_empty() {
                if let Some(entry) = self.attempt(engines, entry, findings) {
                    self.queue(engines, entry);
                }
            } else {
                self.waiting += 1;
                self.blocked[entry.engine].push_back(entry);
            }
        }
        moved
    }

    /// Does the work, or gives it back because it has to wait.
    fn attempt(&mut self, engines: &Engines, entry: Entry, findings: &mut Findings) -> Option<Entry> {
        let engine = entry.engine;
        if let Some(gate) = &entry.gate {
            self.hear(engine, &Rc::clone(gate));
        }
        match &entry.work {
            Work::Run(touches) => self.run(engine, touches, &entry, findings),
            Work::Raise(flag) => {
                let row = self.rows[engine].clone();
                let raised = self.raised.entry(*flag).or_default();
                raised.push_back(row);
                self.flooded |= raised.len() > MAX_RAISED;
            }
            Work::Wait(flag) => match self.raised.get_mut(flag).and_then(VecDeque::pop_front) {
                Some(row) => {
                    if self.raised.get(flag).is_some_and(VecDeque::is_empty) {
                        self.raised.remove(flag);
                    }
                    self.heard(engines, engine, &row);
                }
                None => return Some(entry),
            },
            Work::Acquire(token, releases) => match self.tokens.get(token) {
                Some(state) if state.released >= *releases => {
                    let row = state.row.clone();
                    self.heard(engines, engine, &row);
                }
                None if *releases == 0 => {}
                _ => return Some(entry),
            },
            Work::Release(token) => {
                let row = self.rows[engine].clone();
                let state = self.tokens.entry(*token).or_default();
                state.released += 1;
                state.row.resize(row.len(), 0);
                state.row.iter_mut().zip(&row).for_each(|(mine, other)| *mine = (*mine).max(*other));
            }
            Work::Post(to, flag) => {
                let row = self.rows[engine].clone();
                let posts = self.posts.entry((*to, *flag)).or_default();
                posts.push_back(row);
                self.flooded |= posts.len() > MAX_RAISED;
            }
            Work::Await(core, flag) => match self.posts.get_mut(&(*core, *flag)).and_then(VecDeque::pop_front) {
                Some(row) => self.heard(engines, engine, &row),
                None => return Some(entry),
            },
            Work::Barrier => {
                let core = engines.core[engine];
                let own: Vec<usize> = (0..self.rows.len()).filter(|engine| engines.core[*engine] == core).collect();
                let all: Vec<Row> = own.iter().map(|engine| self.rows[*engine].clone()).collect();
                for engine in own {
                    all.iter().for_each(|row| self.hear(engine, row));
                }
            }
        }
        None
    }

    /// A wait ends.
    fn heard(&mut self, engines: &Engines, engine: usize, row: &Row) {
        self.hear(engine, row);
        if engines.scalar[engine] {
            let gate = Rc::make_mut(&mut self.gates[engines.core[engine]]);
            gate.iter_mut().zip(row).for_each(|(mine, other)| *mine = (*mine).max(*other));
        }
    }

    fn hear(&mut self, engine: usize, row: &Row) {
        for (mine, other) in self.rows[engine].iter_mut().zip(row) {
            *mine = (*mine).max(*other);
        }
    }

    fn run(&mut self, engine: usize, touches: &[Touch], entry: &Entry, findings: &mut Findings) {
        self.rows[engine][engine] += 1;
        let time = self.rows[engine][engine];
        let heard = &self.rows[engine];
        for touch in touches {
            let past = self.past.entry(touch.space).or_default();
            for earlier in past.iter().filter(|p| p.engine != engine && (p.touch.write || touch.write)) {
                if heard[earlier.engine] >= earlier.time {
                    continue;
                }
                let Some((start, end)) = shared(&earlier.touch.runs, &touch.runs) else { continue };
                let kind = Kind::Race {
                    first: earlier.event.at(),
                    second: entry.event.at(),
                    buffers: (earlier.touch.buffer, touch.buffer),
                    bytes: ByteRange { start: Offset(start), end: Offset(end) },
                };
                let sure = earlier.touch.certain && touch.certain && !entry.guessed;
                findings.push(if sure { Severity::Fault } else { Severity::Doubt }, kind);
            }
            // Whoever is ordered with this one is ordered with all that it replaces.
            if touch.certain {
                past.retain(|p| {
                    !((touch.write || !p.touch.write && p.engine == engine) && covers(&touch.runs, &p.touch.runs))
                });
            } else {
                past.retain(|p| !(p.engine == engine && p.touch == *touch));
            }
            past.push(Past { touch: touch.clone(), engine, time, event: entry.event.clone() });
        }
    }

    /// At the end of the program: what still waits waits for ever.
    pub fn stuck(&self, engines: &Engines, findings: &mut Findings) {
        let mut fronts: Vec<&Entry> = self.blocked.iter().filter_map(VecDeque::front).collect();
        fronts.sort_by_key(|entry| entry.event.step);
        for entry in fronts {
            let name = |engine: usize| engines.names[engine].clone();
            let flag = match &entry.work {
                Work::Wait((from, to, event)) => (name(*from), name(*to), *event),
                Work::Await(_, flag) => ("another core".to_owned(), name(entry.engine), *flag),
                Work::Acquire(token, _) => ("token".to_owned(), name(entry.engine), *token),
                _ => continue,
            };
            let given =
                self.blocked.iter().chain(&self.held).flatten().find(|other| match (&entry.work, &other.work) {
                    (Work::Wait(flag), Work::Raise(other)) => flag == other,
                    (Work::Await(core, flag), Work::Post(to, other)) => core == to && flag == other,
                    (Work::Acquire(token, _), Work::Release(other)) => token == other,
                    _ => false,
                });
            let behind = given.map(|other| other.event.at());
            let severity = if entry.guessed { Severity::Doubt } else { Severity::Fault };
            findings.push(severity, Kind::Deadlock { at: entry.event.at(), flag, behind });
        }
    }

    /// The state up to a shift in time: of what was heard only counts which of the kept touches it covers.
    pub fn shape(&self) -> Shape {
        let mut times: Vec<Vec<u64>> = vec![Vec::new(); self.rows.len()];
        for past in self.past.values().flatten() {
            times[past.engine].push(past.time);
        }
        for list in &mut times {
            list.sort_unstable();
            list.dedup();
        }
        let rank = |engine: usize, time: u64| times[engine].partition_point(|t| *t <= time);
        let ranks = |row: &Row| row.iter().enumerate().map(|(engine, time)| rank(engine, *time)).collect::<Vec<_>>();
        let queue = |rows: &VecDeque<Row>| rows.iter().map(ranks).collect::<Vec<_>>();
        let mut past: Vec<(Touch, usize, usize, u32)> = self
            .past
            .values()
            .flatten()
            .map(|p| (p.touch.clone(), p.engine, rank(p.engine, p.time), p.event.step.0))
            .collect();
        past.sort_unstable();
        let entry = |entry: &Entry| {
            let work = match &entry.work {
                // Counted from the releases that are done.
                Work::Acquire(token, releases) => {
                    let done = self.tokens.get(token).map_or(0, |token| token.released);
                    Work::Acquire(*token, releases.saturating_sub(done))
                }
                work => work.clone(),
            };
            let gate = entry.gate.as_ref().map_or_else(Vec::new, |row| ranks(row));
            (entry.engine, work, entry.event.step.0, gate)
        };
        Shape {
            rows: self.rows.iter().map(ranks).collect(),
            raised: self.raised.iter().filter(|(_, q)| !q.is_empty()).map(|(flag, q)| (*flag, queue(q))).collect(),
            tokens: self
                .tokens
                .iter()
                .map(|(token, t)| (*token, t.given - t.released.min(t.given), ranks(&t.row)))
                .collect(),
            posts: self.posts.iter().filter(|(_, q)| !q.is_empty()).map(|(flag, q)| (*flag, queue(q))).collect(),
            past,
            gates: self.gates.iter().map(|row| ranks(row)).collect(),
            waiting: self.blocked.iter().chain(&self.held).map(|list| list.iter().map(entry).collect()).collect(),
        }
    }

    /// Touches that are kept: what a comparison of shapes costs.
    pub fn size(&self) -> usize {
        let raised = self.raised.values().chain(self.posts.values()).map(VecDeque::len).sum::<usize>();
        self.past.values().map(Vec::len).sum::<usize>() + self.waiting + raised + self.rows.len()
    }
}

/// The first bytes that two lists of runs share.
fn shared(a: &Runs, b: &Runs) -> Option<(u64, u64)> {
    let (first, last) = (a.first()?, a.last()?);
    if b.last()?.1 <= first.0 || last.1 <= b.first()?.0 {
        return None;
    }
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let (low, high) = (x.0.max(y.0), x.1.min(y.1));
        if low < high {
            return Some((low, high));
        }
        if x.1 <= y.1 {
            i += 1;
        } else {
            j += 1;
        }
    }
    None
}

/// Whether every byte of `inner` is one of `outer`.
fn covers(outer: &Runs, inner: &Runs) -> bool {
    let mut at = 0;
    inner.iter().all(|run| {
        while outer.get(at).is_some_and(|o| o.1 < run.1) {
            at += 1;
        }
        outer.get(at).is_some_and(|o| o.0 <= run.0 && run.1 <= o.1)
    })
}
