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

/// Latest touches of the caller's memory that are kept of each statement. There are as many places as turns: which of
/// them an older turn touched is not asked.
const KEPT_GLOBAL: usize = 2;

/// Bytes that a statement touches, as addresses of a space (or of a buffer that has none, or of the caller's memory).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Touch {
    pub space: u32,
    pub runs: Runs,
    pub write: bool,
    /// All of these bytes, for sure.
    pub certain: bool,
    pub buffer: BufferId,
}

impl Touch {
    /// From the first byte to past the last.
    fn hull(&self) -> (u64, u64) {
        (self.runs.first().map_or(0, |run| run.0), self.runs.last().map_or(0, |run| run.1))
    }
}

/// A past touch.
#[derive(Clone, Debug)]
struct Past {
    touch: Touch,
    engine: usize,
    time: u64,
    event: Event,
}

/// A touch of the caller's memory: its key in its space, the engine and the time.
#[derive(Clone, Copy, Debug)]
struct Latest {
    key: (u64, u64),
    engine: usize,
    time: u64,
}

/// Past touches of one space by first byte, and in the order in which they came.
#[derive(Clone, Debug, Default)]
struct Kept {
    by_start: BTreeMap<(u64, u64), Past>,
    /// Bytes from first to past the last of the longest: how far back one that reaches here may begin.
    longest: u64,
    next: u64,
}

impl Kept {
    fn push(&mut self, past: Past) -> (u64, u64) {
        let (start, end) = past.touch.hull();
        let key = (start, self.next);
        self.longest = self.longest.max(end - start);
        self.by_start.insert(key, past);
        self.next += 1;
        key
    }

    /// Keys of touches whose hull shares bytes with this one.
    fn near(&self, touch: &Touch) -> Vec<(u64, u64)> {
        let (start, end) = touch.hull();
        let from = start.saturating_sub(self.longest);
        let found = self.by_start.range((from, 0)..(end, 0)).filter(|(_, past)| past.touch.hull().1 > start);
        found.map(|(key, _)| *key).collect()
    }
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
    past: BTreeMap<u32, Kept>,
    /// Latest touches of the caller's memory, by statement and space; they are in `past`, too.
    global: BTreeMap<(u32, u32), VecDeque<Latest>>,
    /// Past touches, at most; when they are so many it is looked which of them still count.
    kept: usize,
    sweep_at: usize,
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
    /// Engines that touch each space of a [`Touch`].
    pub reach: Vec<Rc<[usize]>>,
    /// Engines that touch the caller's memory.
    pub global: Vec<usize>,
    /// The spaces from this one on are the caller's memory.
    pub first_global: u32,
}

/// Rows that flags carry, as ranks.
type Ranks = Vec<Vec<usize>>;
/// Engine, work, step and gate of an entry that waits.
type Waiting = (usize, Work, u32, Vec<usize>);

/// Step, space, engine and times of the latest touches of the caller's memory.
type Touched = (u32, u32, usize, Vec<usize>);

/// A state up to a shift in time: two of the same shape go on alike.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shape {
    rows: Vec<Vec<usize>>,
    raised: Vec<(Flag, Ranks)>,
    tokens: Vec<(i64, u64, Vec<usize>)>,
    posts: Vec<((usize, i64), Ranks)>,
    past: Vec<(Touch, usize, usize, u32)>,
    global: Vec<Touched>,
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
            Work::Run(touches) => self.run(engines, touches, &entry, findings),
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

    fn run(&mut self, engines: &Engines, touches: &[Touch], entry: &Entry, findings: &mut Findings) {
        let engine = entry.engine;
        self.rows[engine][engine] += 1;
        let time = self.rows[engine][engine];
        for touch in touches {
            let now = Past { touch: touch.clone(), engine, time, event: entry.event.clone() };
            let kept = self.past.entry(touch.space).or_default();
            let mut near = kept.near(touch);
            near.sort_unstable_by_key(|key| key.1);
            let (heard, is_global) = (&self.rows[engine], touch.space >= engines.first_global);
            for key in near {
                let Some(earlier) = kept.by_start.get(&key) else { continue };
                // What the two kinds of core do to the caller's memory is not looked at.
                let apart = is_global && engines.core[earlier.engine] != engines.core[engine];
                if earlier.engine != engine && heard[earlier.engine] < earlier.time && !apart {
                    race(earlier, &now, entry.guessed, findings);
                }
                // Whoever is ordered with this one is ordered with all that it replaces.
                let replaced = if touch.certain {
                    (touch.write || !earlier.touch.write && earlier.engine == engine)
                        && covers(&touch.runs, &earlier.touch.runs)
                } else {
                    earlier.engine == engine && earlier.touch == *touch
                };
                if replaced && !apart {
                    kept.by_start.remove(&key);
                }
            }
            let key = kept.push(now);
            if is_global {
                let list = self.global.entry((entry.event.step.0, touch.space)).or_default();
                list.push_back(Latest { key, engine, time });
                if list.len() > KEPT_GLOBAL
                    && let Some(oldest) = list.pop_front()
                {
                    kept.by_start.remove(&oldest.key);
                }
            }
            self.kept += 1;
        }
        if self.kept > self.sweep_at.max(MIN_SWEEP) {
            self.sweep(engines);
        }
    }

    /// Turns of a loop are passed over: where its statements touched the caller's memory in the last of them is not
    /// known, when they did is.
    pub fn passed_over(&mut self, steps: std::ops::Range<u32>) {
        for ((_, space), list) in self.global.range((steps.start, 0)..(steps.end, 0)) {
            if let Some(kept) = self.past.get_mut(space) {
                list.iter().for_each(|latest| drop(kept.by_start.remove(&latest.key)));
            }
        }
    }

    /// Whether touches of the caller's memory are kept.
    pub fn has_global(&self) -> bool {
        !self.global.is_empty()
    }

    /// Drops what everybody has heard of: it is in no race any more.
    pub fn sweep(&mut self, engines: &Engines) {
        let rows = &self.rows;
        for (space, kept) in &mut self.past {
            kept.by_start.retain(|_, past| !all_heard(engines, rows, *space, past.engine, past.time));
        }
        self.past.retain(|_, kept| !kept.by_start.is_empty());
        self.global.retain(|(_, space), list| {
            list.retain(|latest| !all_heard(engines, rows, *space, latest.engine, latest.time));
            !list.is_empty()
        });
        self.kept = self.past.values().map(|kept| kept.by_start.len()).sum();
        self.sweep_at = 2 * self.kept;
    }

    /// At the end of the program: what still waits waits for ever.
    pub fn stuck(&self, engines: &Engines, guessed: bool, findings: &mut Findings) {
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
            let severity = if entry.guessed || guessed { Severity::Doubt } else { Severity::Fault };
            findings.push(severity, Kind::Deadlock { at: entry.event.at(), flag, behind });
        }
    }

    /// The state up to a shift in time: of what was heard only counts which of the kept touches it covers.
    pub fn shape(&self, engines: &Engines) -> Shape {
        let mut times: Vec<Vec<u64>> = vec![Vec::new(); self.rows.len()];
        let kept = || {
            let own = self.past.range(..engines.first_global).map(|(_, kept)| kept);
            own.flat_map(|kept| kept.by_start.values())
        };
        kept().for_each(|past| times[past.engine].push(past.time));
        self.global.values().flatten().for_each(|latest| times[latest.engine].push(latest.time));
        for list in &mut times {
            list.sort_unstable();
            list.dedup();
        }
        let rank = |engine: usize, time: u64| times[engine].partition_point(|t| *t <= time);
        let ranks = |row: &Row| row.iter().enumerate().map(|(engine, time)| rank(engine, *time)).collect::<Vec<_>>();
        let queue = |rows: &VecDeque<Row>| rows.iter().map(ranks).collect::<Vec<_>>();
        let mut past: Vec<(Touch, usize, usize, u32)> =
            kept().map(|p| (p.touch.clone(), p.engine, rank(p.engine, p.time), p.event.step.0)).collect();
        past.sort_unstable();
        let global = self.global.iter().filter_map(|((step, space), list)| {
            let engine = list.front()?.engine;
            Some((*step, *space, engine, list.iter().map(|latest| rank(latest.engine, latest.time)).collect()))
        });
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
            global: global.collect(),
            gates: self.gates.iter().map(|row| ranks(row)).collect(),
            waiting: self.blocked.iter().chain(&self.held).map(|list| list.iter().map(entry).collect()).collect(),
        }
    }

    /// Touches that are kept: what a comparison of shapes costs.
    pub fn size(&self) -> usize {
        let raised = self.raised.values().chain(self.posts.values()).map(VecDeque::len).sum::<usize>();
        self.past.values().map(|kept| kept.by_start.len()).sum::<usize>()
            + self.global.len()
            + self.waiting
            + raised
            + self.rows.len()
    }
}

/// Touches that are kept before it is looked which of them still count.
const MIN_SWEEP: usize = 256;

/// Whether every engine that touches this space has heard of what another did at that time: nothing races with it.
fn all_heard(engines: &Engines, rows: &[Row], space: u32, by: usize, time: u64) -> bool {
    let heard = |engine: &usize| *engine == by || rows[*engine][by] >= time;
    match engines.reach.get(space as usize) {
        Some(reach) => reach.iter().all(heard),
        None => engines.global.iter().filter(|engine| engines.core[**engine] == engines.core[by]).all(heard),
    }
}

/// Two touches of which neither engine has heard of the other's.
fn race(earlier: &Past, later: &Past, guessed: bool, findings: &mut Findings) {
    if !(earlier.touch.write || later.touch.write) {
        return;
    }
    let Some((start, end)) = shared(&earlier.touch.runs, &later.touch.runs) else { return };
    let kind = Kind::Race {
        first: earlier.event.at(),
        second: later.event.at(),
        buffers: (earlier.touch.buffer, later.touch.buffer),
        bytes: ByteRange { start: Offset(start), end: Offset(end) },
    };
    let sure = earlier.touch.certain && later.touch.certain && !guessed;
    findings.push(if sure { Severity::Fault } else { Severity::Doubt }, kind);
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
