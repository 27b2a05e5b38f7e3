//! Statements on their engines, in time.
//!
//! ```text
//!   core       issues statements in program order, each into the queue of its engine, until that queue is full
//!   queue      first in, first out; its head begins when what it depends on has ended and the engine is free
//!   engine     is busy, then free; the results are there a latency later
//! ```
//!
//! A statement depends on those before it that are still under way and share bytes with it, one of the two writing
//! them; or, where the program states its order, on its flags, tokens and barriers alone. What has ended is
//! forgotten, so memory follows what is in flight.

use super::cache::Cache;
use super::cost::{Cost, cost};
use super::engine::{Engine, Entry, Event, Late, Moment};
use super::error::RunError;
use super::flows::Flows;
use super::hbm::{Asked, Hbm};
use super::machine::{MAX_SHARED, Machine};
use super::outcome::{Cause, OrderUsed};
use super::region::Region;
use super::sink::{Beginning, Kept, Sink, Span};
use super::totals::Totals;
use super::touch::{NOWHERE, Places, Touch};
use super::walk::{Ground, Next, Walker};
use npumem_ir::program::{Affine, Number, Operation, Program, Step, Sync, Values};
use npumem_ir::{ScalarId, StepId};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// A statement that has been issued and has not ended.
#[derive(Debug)]
pub(super) struct Statement {
    number: u64,
    step: u32,
    core: u32,
    queue: u16,
    /// Statements that it still waits for.
    waits: u32,
    dependents: Vec<(u32, Cause)>,
    reads: Vec<Touch>,
    writes: Vec<Touch>,
    numbers: Vec<Option<i64>>,
    turns: Vec<(ScalarId, i64)>,
    issued: f64,
    /// The queue that kept the core from issuing it earlier.
    stalled_by: Option<u16>,
    /// When the last one that it depends on ended, and what that was about.
    ready: Option<(f64, Cause)>,
    /// For how much of that time the memory's commands kept it.
    ready_late: Option<Late>,
    /// What it waits for from the memory, when that is run command by command.
    asked: Option<Asked>,
    started: f64,
    freed: f64,
    cost: Cost,
    waited: Option<(Cause, f64)>,
}

/// One core at work.
#[derive(Debug)]
pub(super) struct Core {
    pub block: u64,
    pub walker: Walker,
    pub engines: Vec<Engine>,
    /// Accesses under way, by place.
    pending: Vec<Vec<(u32, bool, Region)>>,
    /// Events that are raised, by raiser, taker and number.
    flags: BTreeMap<(u16, u16, i64), u64>,
    /// Tokens that are held.
    tokens: BTreeMap<i64, u16>,
    /// Times that this core waited for each flag of other cores.
    awaited: BTreeMap<i64, u64>,
    /// The queue whose being full stops the core.
    pub stalled: Option<u16>,
    last_stall: Option<u16>,
    /// Queues that have come to the barrier.
    met: usize,
    /// Entries in queues and statements under way.
    live: usize,
    walked: bool,
    /// All of its blocks are over.
    pub over: bool,
}

/// What must be looked at before time goes on.
#[derive(Clone, Copy, Debug)]
enum Job {
    Pump(u32, u16),
    Walk(u32),
}

/// The run.
pub(super) struct Scheduler<'a, 's> {
    pub machine: &'a Machine<'a>,
    pub program: &'a Program,
    pub ground: Ground<'a>,
    pub places: Places,
    pub order: OrderUsed,
    pub depth: usize,
    /// The values that every block starts from, by its number.
    pub start: &'a dyn Fn(u64) -> Values,
    pub blocks: u64,
    pub next_block: u64,
    pub cores: Vec<Core>,
    statements: Vec<Statement>,
    unused: Vec<u32>,
    events: BinaryHeap<Event>,
    sequence: u64,
    flows: Flows,
    cache: Option<Cache>,
    /// The main memory, when it is run command by command.
    pub hbm: Option<Hbm>,
    posts: BTreeMap<i64, u64>,
    anybody_posts: bool,
    jobs: VecDeque<Job>,
    pub now: f64,
    issued: u64,
    live: usize,
    pub totals: Totals,
    pub out_of_steps: bool,
    sink: &'s mut dyn Sink,
    wants_beginnings: bool,
}

/// What a scheduler is made of.
pub(super) struct Setup<'a> {
    pub machine: &'a Machine<'a>,
    pub program: &'a Program,
    pub ground: Ground<'a>,
    pub order: OrderUsed,
    pub depth: usize,
    pub start: &'a dyn Fn(u64) -> Values,
    pub blocks: u64,
    pub cores: u64,
}

impl<'a, 's> Scheduler<'a, 's> {
    pub fn new(setup: Setup<'a>, sink: &'s mut dyn Sink) -> Result<Self, RunError> {
        let Setup { machine, program, ground, order, depth, start, blocks, cores } = setup;
        let mut capacity = [f64::INFINITY; MAX_SHARED];
        for (room, shared) in capacity.iter_mut().zip(&machine.shared) {
            *room = shared.bandwidth;
        }
        let cache = machine.cache.and_then(|id| {
            let space = machine.device.space(id);
            let sector = machine.main.and_then(|main| machine.device.links_between(main, id).next());
            let sector =
                sector.and_then(|(_, link)| link.granularity.known().copied()).map_or(128, |grain| grain.get());
            Some(Cache::new(space.capacity.known()?.get(), sector))
        });
        let anybody_posts = program.steps.iter().any(|step| matches!(step, Step::Sync(Sync::Post { .. })));
        let places = Places::new(program);
        let hbm = machine.detailed.then(|| Hbm::new(machine, program, &places)).transpose()?;
        let mut scheduler = Scheduler {
            machine,
            program,
            ground,
            order,
            depth,
            start,
            blocks,
            next_block: 0,
            cores: Vec::new(),
            statements: Vec::new(),
            unused: Vec::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            flows: Flows::new(capacity),
            cache,
            hbm,
            posts: BTreeMap::new(),
            anybody_posts,
            jobs: VecDeque::new(),
            now: 0.0,
            issued: 0,
            live: 0,
            totals: Totals::new(machine, program.steps.len()),
            out_of_steps: false,
            wants_beginnings: sink.wants_beginnings(),
            sink,
            places,
        };
        for core in 0..cores {
            let walker = Walker::new(program, Values::new(program));
            scheduler.cores.push(Core {
                block: 0,
                walker,
                engines: machine.queues.iter().map(|queue| Engine::new(queue.outstanding)).collect(),
                pending: vec![Vec::new(); scheduler.places.names.len()],
                flags: BTreeMap::new(),
                tokens: BTreeMap::new(),
                awaited: BTreeMap::new(),
                stalled: None,
                last_stall: None,
                met: 0,
                live: 0,
                walked: true,
                over: false,
            });
            scheduler.next_block_of(core as u32);
        }
        Ok(scheduler)
    }

    /// Runs until nothing goes on.
    pub fn run(&mut self) -> Result<(), RunError> {
        self.work()?;
        loop {
            let flow = self.flows.next();
            let event = self.events.peek().map(|event| event.time);
            let next = match (flow, event) {
                (Some((flow, _)), Some(event)) => Some(flow.min(event)),
                (flow, event) => flow.map(|(time, _)| time).or(event),
            };
            if let Some((statement, time, there)) = self.hbm.as_mut().and_then(|hbm| hbm.next_done(next)) {
                self.now = time.max(self.now);
                self.answered(statement, there);
                self.work()?;
                continue;
            }
            let flow_first = match (flow, event) {
                (None, None) => return Ok(()),
                (Some((flow, _)), Some(event)) => flow <= event,
                (flow, _) => flow.is_some(),
            };
            if flow_first {
                if let Some((time, statement)) = flow {
                    self.now = time.max(self.now);
                    self.flows.finish();
                    self.through(statement);
                }
            } else if let Some(event) = self.events.pop() {
                self.now = event.time.max(self.now);
                match event.moment {
                    Moment::Free(statement) => self.free(statement),
                    Moment::Complete(statement) => self.arrive(statement),
                }
            }
            self.work()?;
            if self.out_of_steps {
                return Ok(());
            }
        }
    }

    fn at(&mut self, time: f64, moment: Moment) {
        self.sequence += 1;
        self.events.push(Event { time, sequence: self.sequence, moment });
    }

    /// All bytes are over the links: the engine is free, unless it stands still for the memory.
    fn through(&mut self, id: u32) {
        let now = self.now;
        let statement = &mut self.statements[id as usize];
        let latency = statement.cost.latency;
        let until = match &mut statement.asked {
            Some(asked) if asked.holds && asked.open > 0 => {
                asked.parked = true;
                return;
            }
            Some(asked) if asked.holds => asked.end,
            _ => now,
        };
        if until > now {
            self.at(until, Moment::Free(id));
        } else {
            self.free(id);
        }
        self.at(until.max(now) + latency, Moment::Complete(id));
    }

    /// A statement would be over, were it not for the memory.
    fn arrive(&mut self, id: u32) {
        let now = self.now;
        if let Some(asked) = &mut self.statements[id as usize].asked {
            asked.due.get_or_insert(now);
            if asked.open > 0 {
                asked.parked = true;
                return;
            }
            if asked.end > now {
                let end = asked.end;
                self.at(end, Moment::Complete(id));
                return;
            }
        }
        self.complete(id);
    }

    /// The memory has answered one transfer of a statement.
    fn answered(&mut self, id: u32, there: f64) {
        let now = self.now;
        let statement = &mut self.statements[id as usize];
        let Some(asked) = &mut statement.asked else { return };
        asked.open -= 1;
        asked.end = asked.end.max(there).max(now);
        if asked.open == 0 && std::mem::replace(&mut asked.parked, false) {
            let (end, latency) = (asked.end, statement.cost.latency);
            if asked.holds {
                self.at(end, Moment::Free(id));
                self.at(end + latency, Moment::Complete(id));
            } else {
                self.at(end, Moment::Complete(id));
            }
        }
    }

    fn work(&mut self) -> Result<(), RunError> {
        while let Some(job) = self.jobs.pop_front() {
            match job {
                Job::Pump(core, queue) => self.pump(core, queue)?,
                Job::Walk(core) => self.walk(core)?,
            }
            if self.out_of_steps {
                self.jobs.clear();
            }
        }
        Ok(())
    }

    /// The core takes its next block, or is over.
    fn next_block_of(&mut self, core: u32) {
        let place = &mut self.cores[core as usize];
        if self.next_block == self.blocks {
            place.over = true;
            return;
        }
        let block = self.next_block;
        self.next_block += 1;
        place.block = block;
        place.walker = Walker::new(self.program, (self.start)(block));
        place.flags.clear();
        place.tokens.clear();
        place.walked = false;
        place.last_stall = None;
        self.sink.block(u64::from(core), block);
        self.jobs.push_back(Job::Walk(core));
    }

    fn walk(&mut self, core: u32) -> Result<(), RunError> {
        loop {
            let place = &mut self.cores[core as usize];
            if place.walked || place.stalled.is_some() {
                return Ok(());
            }
            match place.walker.next(&mut self.ground)? {
                Next::Limit => {
                    self.out_of_steps = true;
                    return Ok(());
                }
                Next::Done => {
                    place.walked = true;
                    if place.live == 0 {
                        self.next_block_of(core);
                    }
                    return Ok(());
                }
                Next::Step(at) => {
                    let step = &self.program.steps[at];
                    let issued = match step {
                        Step::Run(operation) => self.issue(core, at, operation),
                        Step::Sync(sync) => self.issue_order(core, at, sync),
                        _ => true,
                    };
                    if !issued {
                        return Ok(());
                    }
                    self.cores[core as usize].walker.advance();
                }
            }
        }
    }

    /// Whether there is room in a queue; else the core stops until there is.
    fn has_room(&mut self, core: u32, queue: u16) -> bool {
        let place = &mut self.cores[core as usize];
        if place.engines[usize::from(queue)].waiting.len() < self.depth {
            return true;
        }
        place.stalled = Some(queue);
        place.last_stall = Some(queue);
        false
    }

    fn issue(&mut self, core: u32, at: usize, operation: &'a Operation) -> bool {
        let Some(plan) = &self.machine.plans[at] else { return true };
        let queue = plan.queue;
        if !self.has_room(core, queue) {
            return false;
        }
        let place = &self.cores[core as usize];
        let (values, handles) = (&place.walker.values, &place.walker.handles);
        let touch =
            |access| self.places.touch(self.program, values, handles, access).unwrap_or_else(|| Touch::nowhere(access));
        let reads: Vec<Touch> = operation.reads.iter().map(touch).collect();
        let writes: Vec<Touch> = operation.writes.iter().map(touch).collect();
        let (mut numbers, mut turns) = (Vec::new(), Vec::new());
        if self.wants_beginnings {
            numbers.extend(operation.scalars.iter().map(|number| match number {
                Number::Int(affine) => values.affine(self.program, affine),
                Number::Real(_) | Number::Named(_) => None,
            }));
            turns.extend(place.walker.turns.iter().filter_map(|turn| Some((turn.counter?, turn.now))));
        }
        let stalled_by = place.last_stall;
        let statement = Statement {
            number: self.issued,
            step: at as u32,
            core,
            queue,
            waits: 0,
            dependents: Vec::new(),
            reads,
            writes,
            numbers,
            turns,
            issued: self.now,
            stalled_by,
            ready: None,
            ready_late: None,
            asked: None,
            started: 0.0,
            freed: 0.0,
            cost: Cost::default(),
            waited: None,
        };
        self.issued += 1;
        let id = match self.unused.pop() {
            Some(id) => {
                self.statements[id as usize] = statement;
                id
            }
            None => {
                self.statements.push(statement);
                (self.statements.len() - 1) as u32
            }
        };
        if self.order == OrderUsed::Ranges {
            self.depend(core, id);
        }
        self.enter(core, queue, Entry { step: at as u32, issued: self.now, what: super::engine::What::Run(id) });
        true
    }

    fn enter(&mut self, core: u32, queue: u16, entry: Entry) {
        let place = &mut self.cores[core as usize];
        place.engines[usize::from(queue)].waiting.push_back(entry);
        place.live += 1;
        self.live += 1;
        self.totals.most_in_flight = self.totals.most_in_flight.max(self.live);
        self.jobs.push_back(Job::Pump(core, queue));
    }

    /// Finds the statements under way that this one must wait for, and takes its place among them.
    fn depend(&mut self, core: u32, id: u32) {
        let place = &mut self.cores[core as usize];
        let queue = self.statements[id as usize].queue;
        let alone = place.engines[usize::from(queue)].outstanding == 1;
        let mut edges: Vec<(u32, Cause)> = Vec::new();
        let mine = &self.statements[id as usize];
        for (write, list) in [(false, &mine.reads), (true, &mine.writes)] {
            for touch in list.iter().filter(|touch| touch.place != NOWHERE) {
                for (other, wrote, region) in &place.pending[touch.place as usize] {
                    if (write || *wrote) && !(alone && self.statements[*other as usize].queue == queue) {
                        // What an engine does one by one is in order anyway.
                        if region.overlaps(&touch.region) {
                            let buffer = touch.owner;
                            edges.push((*other, if write { Cause::InUse { buffer } } else { Cause::Data { buffer } }));
                        }
                    }
                }
            }
        }
        for (write, list) in [(false, &mine.reads), (true, &mine.writes)] {
            for touch in list.iter().filter(|touch| touch.place != NOWHERE) {
                place.pending[touch.place as usize].push((id, write, touch.region));
            }
        }
        self.statements[id as usize].waits = edges.len() as u32;
        for (other, cause) in edges {
            self.statements[other as usize].dependents.push((id, cause));
        }
    }

    fn issue_order(&mut self, core: u32, at: usize, sync: &Sync) -> bool {
        use super::engine::What;
        let program = self.program;
        let queue_of = |machine: &Machine<'_>, role: &str| machine.queues_of(role).first().copied().unwrap_or(0);
        let value = |scheduler: &Self, affine: &Affine| {
            // An event that nobody can know is one of its own.
            scheduler.cores[core as usize].walker.values.affine(program, affine).unwrap_or(i64::MIN)
        };
        let by_ranges = self.order == OrderUsed::Ranges;
        let (queue, what) = match sync {
            Sync::SetFlag { .. } | Sync::WaitFlag { .. } | Sync::Acquire { .. } | Sync::Release { .. } if by_ranges => {
                return true;
            }
            Sync::SetFlag { from, to, event } => {
                let (from, to) = (queue_of(self.machine, from), queue_of(self.machine, to));
                (from, What::Raise { to, event: value(self, event) })
            }
            Sync::WaitFlag { from, to, event } => {
                let (from, to) = (queue_of(self.machine, from), queue_of(self.machine, to));
                (to, What::Take { from, event: value(self, event) })
            }
            Sync::Acquire { engine, token } => (queue_of(self.machine, engine), What::Acquire(value(self, token))),
            Sync::Release { engine, token } => (queue_of(self.machine, engine), What::Release(value(self, token))),
            Sync::Post { engine, flag } => (queue_of(self.machine, engine), What::Post(value(self, flag))),
            Sync::Await { engine, flag } => (queue_of(self.machine, engine), What::Await(value(self, flag))),
            Sync::Barrier(Some(engine)) => (queue_of(self.machine, engine), What::Drain),
            Sync::Barrier(None) => {
                for queue in 0..self.machine.queues.len() as u16 {
                    self.enter(core, queue, Entry { step: at as u32, issued: self.now, what: What::Meet });
                }
                return true;
            }
        };
        if self.machine.queues.is_empty() {
            return true;
        }
        if !self.has_room(core, queue) {
            return false;
        }
        self.enter(core, queue, Entry { step: at as u32, issued: self.now, what });
        true
    }

    /// Begins what can begin at the head of a queue.
    fn pump(&mut self, core: u32, queue: u16) -> Result<(), RunError> {
        use super::engine::What;
        loop {
            let now = self.now;
            let place = &mut self.cores[core as usize];
            let engine = &mut place.engines[usize::from(queue)];
            let Some(entry) = engine.waiting.front().copied() else { return Ok(()) };
            let idle = engine.running == 0;
            match entry.what {
                What::Run(id) => {
                    let full = engine.busy || engine.running >= engine.outstanding;
                    if full || self.statements[id as usize].waits > 0 {
                        return Ok(());
                    }
                    self.taken(core, queue);
                    self.begin(core, queue, id)?;
                }
                What::Raise { to, event } if idle => {
                    engine.pause(now, entry.issued, Cause::Drain);
                    *place.flags.entry((queue, to, event)).or_insert(0) += 1;
                    self.sink.kept(u64::from(core), Kept::Raised { from: queue, to, event });
                    self.taken(core, queue);
                    self.jobs.push_back(Job::Pump(core, to));
                }
                What::Take { from, event } => {
                    let raised = place.flags.get_mut(&(from, queue, event)).filter(|count| **count > 0);
                    let Some(raised) = raised else { return Ok(()) };
                    *raised -= 1;
                    engine.pause(now, entry.issued, Cause::Flag { from, event });
                    self.sink.kept(u64::from(core), Kept::Taken { from, to: queue, event });
                    self.taken(core, queue);
                }
                What::Acquire(token) => {
                    if place.tokens.contains_key(&token) {
                        return Ok(());
                    }
                    place.tokens.insert(token, queue);
                    engine.pause(now, entry.issued, Cause::Token);
                    self.sink.kept(u64::from(core), Kept::Acquired { queue, token });
                    self.taken(core, queue);
                }
                What::Release(token) if idle => {
                    place.tokens.remove(&token);
                    engine.pause(now, entry.issued, Cause::Drain);
                    self.sink.kept(u64::from(core), Kept::Released { queue, token });
                    self.taken(core, queue);
                    let all = self.machine.queues.len() as u16;
                    self.jobs.extend((0..all).map(|queue| Job::Pump(core, queue)));
                }
                What::Drain if idle => {
                    engine.pause(now, entry.issued, Cause::Drain);
                    self.taken(core, queue);
                }
                What::Post(flag) if idle => {
                    engine.pause(now, entry.issued, Cause::Drain);
                    *self.posts.entry(flag).or_insert(0) += 1;
                    self.taken(core, queue);
                    let all = self.machine.queues.len() as u16;
                    let cores = self.cores.len() as u32;
                    self.jobs.extend((0..cores).flat_map(|core| (0..all).map(move |queue| Job::Pump(core, queue))));
                }
                What::Await(flag) => {
                    let heard = place.awaited.get(&flag).copied().unwrap_or(0);
                    // Nobody here tells: the one who does is not part of this run.
                    if self.anybody_posts && self.posts.get(&flag).copied().unwrap_or(0) <= heard {
                        return Ok(());
                    }
                    place.awaited.insert(flag, heard + 1);
                    engine.pause(now, entry.issued, Cause::OtherCore);
                    self.taken(core, queue);
                }
                What::Meet if idle => {
                    if std::mem::replace(&mut engine.at_barrier, true) {
                        return Ok(());
                    }
                    place.met += 1;
                    if place.met < place.engines.len() {
                        return Ok(());
                    }
                    place.met = 0;
                    self.sink.kept(u64::from(core), Kept::Met);
                    for other in 0..self.machine.queues.len() as u16 {
                        let engine = &mut self.cores[core as usize].engines[usize::from(other)];
                        engine.at_barrier = false;
                        engine.pause(now, entry.issued, Cause::Barrier);
                        self.taken(core, other);
                        self.jobs.push_back(Job::Pump(core, other));
                    }
                    return Ok(());
                }
                What::Raise { .. } | What::Release(_) | What::Drain | What::Post(_) | What::Meet => return Ok(()),
            }
        }
    }

    /// The head of a queue has left it.
    fn taken(&mut self, core: u32, queue: u16) {
        let place = &mut self.cores[core as usize];
        let entry = place.engines[usize::from(queue)].waiting.pop_front();
        if !entry.is_some_and(|entry| matches!(entry.what, super::engine::What::Run(_))) {
            self.ended(core);
        }
        let place = &mut self.cores[core as usize];
        if place.stalled == Some(queue) {
            place.stalled = None;
            self.jobs.push_back(Job::Walk(core));
        }
    }

    /// One entry or statement less.
    fn ended(&mut self, core: u32) {
        self.live -= 1;
        let place = &mut self.cores[core as usize];
        place.live -= 1;
        if place.live == 0 && place.walked && !place.over {
            self.next_block_of(core);
        }
    }

    fn begin(&mut self, core: u32, queue: u16, id: u32) -> Result<(), RunError> {
        let now = self.now;
        let statement = &self.statements[id as usize];
        let step = statement.step as usize;
        let Step::Run(operation) = &self.program.steps[step] else { return Ok(()) };
        let Some(plan) = &self.machine.plans[step] else { return Ok(()) };
        if self.wants_beginnings {
            self.sink.begin(&Beginning {
                number: statement.number,
                block: self.cores[core as usize].block,
                core: u64::from(core),
                engine: queue,
                step: StepId::new(step),
                operation,
                numbers: &statement.numbers,
                turns: &statement.turns,
                now,
                reads: &statement.reads,
                writes: &statement.writes,
            });
        }
        let cost =
            cost(self.machine, &plan.work, &operation.name, &statement.reads, &statement.writes, &mut self.cache)?;
        let asked = match &mut self.hbm {
            Some(hbm) if !cost.main.is_empty() => {
                hbm.ask(self.machine, (core, queue, id), now, &cost.main, cost.holds)?
            }
            _ => None,
        };
        let behind = self.could_overtake(core, queue);
        let statement = &mut self.statements[id as usize];
        let engine = &mut self.cores[core as usize].engines[usize::from(queue)];
        let issue = statement.stalled_by.map_or(Cause::Start, |queue| Cause::Order { queue });
        let ready = (statement.ready, statement.ready_late);
        statement.waited = engine.resume(now, statement.issued, issue, ready, behind);
        let asks = asked.is_some();
        statement.asked = asked;
        engine.busy = true;
        engine.running += 1;
        statement.started = now;
        let (cycles, latency) = (cost.cycles, cost.latency);
        let shared = cost.shared;
        statement.cost = cost;
        if asks || shared.iter().any(|bytes| *bytes > 0.0) {
            self.flows.start(now, id, cycles, shared);
        } else {
            self.at(now + cycles, Moment::Free(id));
            self.at(now + cycles + latency, Moment::Complete(id));
        }
        Ok(())
    }

    /// When a later statement of the queue became able to run, if one is.
    fn could_overtake(&self, core: u32, queue: u16) -> Option<f64> {
        let engine = &self.cores[core as usize].engines[usize::from(queue)];
        let ready = engine.waiting.iter().take(4).filter_map(|entry| match entry.what {
            super::engine::What::Run(id) => {
                let other = &self.statements[id as usize];
                (other.waits == 0).then(|| other.ready.map_or(other.issued, |(time, _)| time.max(other.issued)))
            }
            _ => None,
        });
        ready.reduce(f64::min)
    }

    /// The engine is free for the next.
    fn free(&mut self, id: u32) {
        let now = self.now;
        let statement = &mut self.statements[id as usize];
        statement.freed = now;
        let (core, queue) = (statement.core, statement.queue);
        let engine = &mut self.cores[core as usize].engines[usize::from(queue)];
        engine.busy = false;
        engine.idle_since = now;
        let waited = statement.waited.map_or(0.0, |(_, since)| statement.started - since);
        self.totals.freed(statement.step, queue, now - statement.started, &statement.cost, waited);
        self.jobs.push_back(Job::Pump(core, queue));
    }

    /// The results are there.
    fn complete(&mut self, id: u32) {
        let now = self.now;
        let statement = &mut self.statements[id as usize];
        let (core, queue) = (statement.core, statement.queue);
        let dependents = std::mem::take(&mut statement.dependents);
        let started = statement.started;
        let late = statement.asked.as_ref().and_then(|asked| {
            let due = asked.due.filter(|due| *due < now)?;
            Some((due, now, self.hbm.as_ref()?.cause(asked, now - started)?))
        });
        let touches = statement.reads.iter().chain(&statement.writes).map(|touch| touch.place);
        if self.order == OrderUsed::Ranges {
            for place in touches.filter(|place| *place != NOWHERE) {
                self.cores[core as usize].pending[place as usize].retain(|(other, ..)| *other != id);
            }
        }
        let statement = &self.statements[id as usize];
        if let Step::Run(operation) = &self.program.steps[statement.step as usize] {
            self.sink.span(&Span {
                number: statement.number,
                block: self.cores[core as usize].block,
                core: u64::from(core),
                engine: queue,
                step: StepId::new(statement.step as usize),
                operation,
                issued: statement.issued,
                started: statement.started,
                freed: statement.freed,
                ended: now,
                bytes: self.totals.own_bytes(queue, &statement.cost),
                waited: statement.waited,
                reads: &statement.reads,
                writes: &statement.writes,
            });
        }
        let engine = &mut self.cores[core as usize].engines[usize::from(queue)];
        engine.running -= 1;
        engine.came_back = now;
        engine.late = late;
        self.jobs.push_back(Job::Pump(core, queue));
        for (other, cause) in dependents {
            let statement = &mut self.statements[other as usize];
            statement.waits -= 1;
            // Who waits both for data and for room in the same bytes waits for the data.
            if !matches!(statement.ready, Some((time, Cause::Data { .. })) if time == now) {
                statement.ready = Some((now, cause));
                statement.ready_late = late;
            }
            if statement.waits == 0 {
                let job = Job::Pump(statement.core, statement.queue);
                self.jobs.push_back(job);
            }
        }
        self.unused.push(id);
        self.ended(core);
    }
}
