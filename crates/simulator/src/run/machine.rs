//! The device as one program uses it: a queue for each engine, and for each statement the way it takes.

use super::banks::Banks;
use super::error::RunError;
use npumem_ir::device::{Engine, EngineKind, Link, MissingFigure, Precision, Rate, Scope, SpaceKind};
use npumem_ir::program::{Access, Core, Operation, Program, Role, Root, Step, Sync};
use npumem_ir::{Device, EngineId, LinkId, SpaceId, StepId};
use std::collections::{BTreeMap, BTreeSet};

/// Memories whose bandwidth several cores share.
pub(super) const MAX_SHARED: usize = 4;

/// What one queue is.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    /// The device's name of the engine, or the program's where the device has no such engine.
    pub name: String,
    pub kind: EngineKind,
    /// Statements that may be under way at once.
    pub outstanding: u64,
}

/// One link of a way.
#[derive(Clone, Debug)]
pub(super) struct Hop {
    pub link: LinkId,
    /// Bytes per cycle of one engine.
    pub rate: f64,
    pub startup: f64,
    pub granularity: u64,
    pub alignment: u64,
    pub unaligned_share: f64,
    pub largest: u64,
    /// Cycles from asking the space it starts in to the first byte.
    pub latency: f64,
}

/// The same transfer when the cache has its bytes.
#[derive(Clone, Debug)]
pub(super) struct Cached {
    /// The link from or to the cache.
    pub hop: Hop,
    /// The link between the main memory and the cache.
    pub fill: LinkId,
}

/// What a statement costs.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// Bytes over links.
    Move {
        hops: Vec<Hop>,
        cached: Option<Cached>,
        /// It reads the main memory, or else writes it; neither between memories of a core.
        reads_main: bool,
        writes_main: bool,
        /// Nothing of this program lies at the far end: the other core wrote it, or will read it.
        to_core: bool,
    },
    /// Bytes inside one space, at its own bandwidth.
    Copy { space: SpaceId, rate: f64, latency: f64 },
    /// A product.
    Matrix { engine: EngineId, startup: f64, far: Vec<Far> },
    /// Elements.
    Vector { engine: EngineId, startup: f64, passes: f64, banks: Option<Banks>, far: Vec<Far> },
    /// One scalar instruction.
    Scalar { startup: f64, far: Vec<Far> },
}

/// An operand that a compute unit takes from, or leaves in, a space that is not its own.
#[derive(Clone, Debug)]
pub(super) struct Far {
    pub write: bool,
    pub operand: usize,
    pub hop: Hop,
}

/// A statement's way through the device.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub queue: u16,
    pub work: Work,
}

/// A memory whose bandwidth is shared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    pub space: SpaceId,
    /// Bytes per cycle.
    pub bandwidth: f64,
}

/// The device as one program uses it.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    pub device: &'a Device,
    pub clock: f64,
    pub queues: Vec<Queue>,
    /// By step; `None` for steps that no engine runs.
    pub plans: Vec<Option<Plan>>,
    /// Queues of a role that flags and barriers name.
    roles: BTreeMap<String, Vec<u16>>,
    pub shared: Vec<Shared>,
    pub main: Option<SpaceId>,
    pub cache: Option<SpaceId>,
    /// The main memory is run command by command.
    pub detailed: bool,
    /// How many blocks run at once.
    pub cores: u64,
    /// Memories in banks whose conflicts nobody can count: some of their buffers have no addresses.
    pub unplaced: BTreeSet<SpaceId>,
}

impl<'a> Machine<'a> {
    pub fn new(program: &Program, device: &'a Device) -> Result<Self, RunError> {
        let cache = device.spaces().find(|(_, space)| space.kind == SpaceKind::Cache && space.scope == Scope::Device);
        let mut machine = Machine {
            device,
            clock: device.clock()?,
            queues: Vec::new(),
            plans: Vec::with_capacity(program.steps.len()),
            roles: BTreeMap::new(),
            shared: Vec::new(),
            main: device.main_memory(),
            cache: cache.map(|(id, _)| id),
            detailed: false,
            cores: 1,
            unplaced: BTreeSet::new(),
        };
        let spaces = Spaces::new(program, device)?;
        let mut uses = Uses::default();
        for (at, step) in program.steps.iter().enumerate() {
            let plan = match step {
                Step::Run(operation) => Some(machine.plan(StepId::new(at), operation, &spaces, &mut uses)?),
                _ => None,
            };
            if let (Some(plan), Step::Run(operation)) = (&plan, step) {
                let queues = machine.roles.entry(operation.engine.clone()).or_default();
                if !queues.contains(&plan.queue) {
                    queues.push(plan.queue);
                }
            }
            machine.plans.push(plan);
        }
        for step in &program.steps {
            if let Step::Sync(sync) = step {
                for role in sync_roles(sync) {
                    machine.role(role);
                }
            }
        }
        machine.cores = machine.count_cores(&uses)?;
        Ok(machine)
    }

    /// The queues of a role; one without work when no statement runs on it.
    pub fn role(&mut self, role: &str) -> Vec<u16> {
        if let Some(queues) = self.roles.get(role) {
            return queues.clone();
        }
        let kind = match role {
            "m" => EngineKind::Matrix,
            "v" => EngineKind::Vector,
            "s" => EngineKind::Scalar,
            _ => EngineKind::Dma,
        };
        let queue = self.queue(role, kind, 1);
        self.roles.insert(role.to_owned(), vec![queue]);
        vec![queue]
    }

    /// The queues of a role that is known.
    pub fn queues_of(&self, role: &str) -> &[u16] {
        self.roles.get(role).map_or(&[], Vec::as_slice)
    }

    fn queue(&mut self, name: &str, kind: EngineKind, outstanding: u64) -> u16 {
        if let Some(index) = self.queues.iter().position(|queue| queue.name == name) {
            return index as u16;
        }
        self.queues.push(Queue { name: name.to_owned(), kind, outstanding });
        (self.queues.len() - 1) as u16
    }

    fn engine_queue(&mut self, id: EngineId) -> Result<u16, MissingFigure> {
        let engine = self.device.engine(id);
        let path = format!("{}.outstanding", engine.name);
        let outstanding = *engine.outstanding.require(&self.device.name, &path)?;
        Ok(self.queue(&engine.name, engine.kind, outstanding.max(1)))
    }

    fn no_engine(&self, step: StepId, operation: &Operation, problem: String) -> RunError {
        RunError::NoEngine {
            step,
            operation: operation.name.clone(),
            line: operation.line,
            device: self.device.name.clone(),
            problem,
        }
    }

    fn plan(
        &mut self,
        step: StepId,
        operation: &Operation,
        spaces: &Spaces,
        uses: &mut Uses,
    ) -> Result<Plan, RunError> {
        let kind = match operation.engine.as_str() {
            "m" => Some(EngineKind::Matrix),
            "v" => Some(EngineKind::Vector),
            "s" => Some(EngineKind::Scalar),
            name => self.device.engine_named(name).map(|id| self.device.engine(id).kind),
        };
        let from = operation.reads.first().and_then(|access| spaces.of(access));
        let to = operation.writes.first().and_then(|access| spaces.of(access));
        let plan = match kind {
            Some(kind @ (EngineKind::Matrix | EngineKind::Vector | EngineKind::Scalar)) => {
                self.compute(step, operation, kind, spaces)?
            }
            _ => self.transfer(step, operation, from, to)?,
        };
        if let Some(engine) = self.device.engine_named(&self.queues[usize::from(plan.queue)].name) {
            let engine = self.device.engine(engine);
            if let Some(core) = engine.core {
                uses.cores.insert(core, ());
            }
        }
        Ok(plan)
    }

    fn compute(
        &mut self,
        step: StepId,
        operation: &Operation,
        kind: EngineKind,
        spaces: &Spaces,
    ) -> Result<Plan, RunError> {
        let id = self.unit(operation, kind).ok_or_else(|| {
            self.no_engine(step, operation, format!("no {kind} unit for the engine '{}'", operation.engine))
        })?;
        let device = self.device;
        let engine = device.engine(id);
        let startup = engine.startup.require(&device.name, &format!("{}.startup", engine.name))?.get() as f64;
        let mut far = Vec::new();
        for (write, list) in [(false, &operation.reads), (true, &operation.writes)] {
            for (operand, access) in list.iter().enumerate() {
                let Some(space) = spaces.of(access) else { continue };
                let reached = if write { device.writes(id, space) } else { device.reads(id, space) };
                if reached {
                    continue;
                }
                if let Some(hop) = self.far_hop(engine, space, write)? {
                    far.push(Far { write, operand, hop });
                }
            }
        }
        let queue = self.engine_queue(id)?;
        let work = match kind {
            EngineKind::Matrix => Work::Matrix { engine: id, startup, far },
            EngineKind::Vector => {
                let banks = self.banks(operation, spaces);
                Work::Vector { engine: id, startup, passes: super::cost::passes(&operation.name), banks, far }
            }
            _ => Work::Scalar { startup, far },
        };
        Ok(Plan { queue, work })
    }

    /// The banks of the memory that a vector statement works on; none while its buffers have no addresses.
    fn banks(&mut self, operation: &Operation, spaces: &Spaces) -> Option<Banks> {
        let used = operation.reads.iter().chain(&operation.writes).filter_map(|access| spaces.of(access));
        let (space, banks) = used.filter_map(|space| Some((space, Banks::of(self.device.space(space))?))).next()?;
        if spaces.unplaced.contains(&space) {
            self.unplaced.insert(space);
            return None;
        }
        Some(banks)
    }

    /// The compute unit of a kind: of the core that the statement asks for, where there are several.
    fn unit(&self, operation: &Operation, kind: EngineKind) -> Option<EngineId> {
        if let Some(id) = self.device.engine_named(&operation.engine) {
            return Some(id);
        }
        let of_core = |engine: &Engine| {
            let Some(core) = engine.core else { return operation.core == Core::Any };
            let has = |kind| self.device.engines.iter().any(|other| other.core == Some(core) && other.kind == kind);
            match operation.core {
                Core::Any => true,
                Core::Cube => has(EngineKind::Matrix),
                Core::Vector => has(EngineKind::Vector),
            }
        };
        let all: Vec<_> = self.device.engines().filter(|(_, engine)| engine.kind == kind).collect();
        all.iter().find(|(_, engine)| of_core(engine)).or(all.first()).map(|(id, _)| *id)
    }

    /// How a unit reaches an operand that is not in its own memory: over a link to or from memory of its core.
    fn far_hop(&self, engine: &Engine, space: SpaceId, write: bool) -> Result<Option<Hop>, MissingFigure> {
        let own = |link: &Link| self.device.engine(link.engine).core == engine.core;
        let found = self.device.links().find(|(_, link)| own(link) && if write { link.to } else { link.from } == space);
        // No link either: the unit reaches it in a way that the description does not say; its time is not counted.
        found.map(|(id, _)| self.hop(id)).transpose()
    }

    fn transfer(
        &mut self,
        step: StepId,
        operation: &Operation,
        from: Option<SpaceId>,
        to: Option<SpaceId>,
    ) -> Result<Plan, RunError> {
        // A tile of the other core comes through, or leaves for, the main memory.
        let to_core = from.is_none() || to.is_none();
        let (from, to) = match (from.or(self.main), to.or(self.main)) {
            (Some(from), Some(to)) => (from, to),
            _ => return Err(self.no_engine(step, operation, "no main memory".to_owned())),
        };
        if from == to {
            let space = self.device.space(from);
            let bandwidth = *space.bandwidth.require(&self.device.name, &format!("{}.bandwidth", space.name))?;
            let latency = self.device.latency(from)?.get() as f64;
            let queue = match self.device.engine_named(&operation.engine) {
                Some(id) => self.engine_queue(id)?,
                None => self.queue(&operation.engine, EngineKind::Dma, 1),
            };
            // Every byte is read and written.
            let rate = bandwidth.per_cycle(self.clock) / 2.0;
            return Ok(Plan { queue, work: Work::Copy { space: from, rate, latency } });
        }
        let Some(links) = self.way(operation, from, to) else {
            let (from, to) = (&self.device.space(from).name, &self.device.space(to).name);
            return Err(self.no_engine(step, operation, format!("no link from {from} to {to}")));
        };
        let hops = links.iter().map(|id| self.hop(*id)).collect::<Result<Vec<Hop>, MissingFigure>>()?;
        let first = self.device.link(links[0]);
        let queue = self.engine_queue(first.engine)?;
        let last = self.device.link(links[links.len() - 1]);
        let (reads_main, writes_main) = (Some(first.from) == self.main, Some(last.to) == self.main);
        let cached = if links.len() == 1 { self.cached(links[0])? } else { None };
        for space in [from, to].into_iter().chain(cached.as_ref().and(self.cache)) {
            self.share(space)?;
        }
        Ok(Plan { queue, work: Work::Move { hops, cached, reads_main, writes_main, to_core } })
    }

    /// One link, or two over a space between.
    fn way(&self, operation: &Operation, from: SpaceId, to: SpaceId) -> Option<Vec<LinkId>> {
        let named = |link: &Link| {
            let engine = &self.device.engine(link.engine).name;
            engine.to_ascii_lowercase().starts_with(&operation.engine.to_ascii_lowercase())
        };
        let direct = |from, to| {
            let links = || self.device.links_between(from, to);
            links().find(|(_, link)| named(link)).or_else(|| links().next()).map(|(id, _)| id)
        };
        if let Some(link) = direct(from, to) {
            return Some(vec![link]);
        }
        let between = self.device.spaces().filter(|(_, space)| space.kind != SpaceKind::Cache);
        between
            .filter_map(|(middle, _)| Some(vec![direct(from, middle)?, direct(middle, to)?]))
            .next()
            .or_else(|| Some(vec![direct(from, self.main?)?, direct(self.main?, to)?]))
    }

    fn cached(&self, link: LinkId) -> Result<Option<Cached>, MissingFigure> {
        let (Some(cache), Some(main)) = (self.cache, self.main) else { return Ok(None) };
        let link = self.device.link(link);
        let (from, to, fill) = if link.from == main {
            (cache, link.to, (main, cache))
        } else if link.to == main {
            (link.from, cache, (cache, main))
        } else {
            return Ok(None);
        };
        let same = |(_, other): &(LinkId, &Link)| other.engine == link.engine;
        let hop = self.device.links_between(from, to).find(same).map(|(id, _)| id);
        let fill = self.device.links_between(fill.0, fill.1).next().map(|(id, _)| id);
        match (hop, fill) {
            (Some(hop), Some(fill)) => Ok(Some(Cached { hop: self.hop(hop)?, fill })),
            _ => Ok(None),
        }
    }

    fn hop(&self, id: LinkId) -> Result<Hop, MissingFigure> {
        let device = self.device;
        let link = device.link(id);
        let engine = device.engine(link.engine);
        let startup = link.startup.known().or_else(|| engine.startup.known());
        let startup = startup.ok_or_else(|| MissingFigure::new(&device.name, &format!("{}.startup", link.name)))?;
        Ok(Hop {
            link: id,
            rate: device.link_rate(id)?,
            startup: startup.get() as f64,
            // Figures that only some links have: without them a transfer is of any size, anywhere.
            granularity: link.granularity.known().map_or(1, |bytes| bytes.get()).max(1),
            alignment: link.alignment.known().map_or(1, |bytes| bytes.get()).max(1),
            unaligned_share: link.unaligned_share.known().copied().unwrap_or(1.0),
            largest: link.largest_transfer.known().map_or(u64::MAX, |bytes| bytes.get()).max(1),
            latency: device.latency(link.from)?.get() as f64,
        })
    }

    /// A memory of the whole device (or of a group of cores) is shared by its bandwidth.
    fn share(&mut self, id: SpaceId) -> Result<(), MissingFigure> {
        let space = self.device.space(id);
        if matches!(space.scope, Scope::Core(_)) || self.shared.iter().any(|shared| shared.space == id) {
            return Ok(());
        }
        let bandwidth = *space.bandwidth.require(&self.device.name, &format!("{}.bandwidth", space.name))?;
        if self.shared.len() < MAX_SHARED {
            let bandwidth = match bandwidth {
                Rate::BytesPerCycle(bytes) => bytes,
                rate => rate.per_cycle(self.clock),
            };
            self.shared.push(Shared { space: id, bandwidth });
        }
        Ok(())
    }

    /// The number of the shared memory of a space.
    pub fn shared_index(&self, space: SpaceId) -> Option<usize> {
        self.shared.iter().position(|shared| shared.space == space)
    }

    /// Blocks that run at once: the scarcest kind of core that the program needs.
    fn count_cores(&self, uses: &Uses) -> Result<u64, MissingFigure> {
        let mut least = None;
        for core in uses.cores.keys() {
            let count = self.device.core_count(*core)?;
            least = Some(least.map_or(count, |least: u64| least.min(count)));
        }
        Ok(least.unwrap_or(1).max(1))
    }

    /// Operations per cycle of a unit for a type.
    pub fn operations(&self, engine: EngineId, precision: Precision) -> Result<f64, MissingFigure> {
        let engine = self.device.engine(engine);
        let path = format!("{}.operations.{precision}", engine.name);
        let known = engine.compute.as_ref().and_then(|unit| unit.operations_per_cycle.get(&precision));
        let one = known.and_then(|figure| figure.known()).copied();
        let one = one.ok_or_else(|| MissingFigure::new(&self.device.name, &path))?;
        // The units of a core share a statement.
        let count = engine.count.as_ref().and_then(|count| count.known().copied()).unwrap_or(1).max(1);
        Ok(one * count as f64)
    }
}

#[derive(Default)]
struct Uses {
    cores: BTreeMap<npumem_ir::device::CoreId, ()>,
}

/// The space of every buffer and handle.
struct Spaces {
    buffers: Vec<SpaceId>,
    /// Spaces with buffers that have no address.
    unplaced: BTreeSet<SpaceId>,
    handles: Vec<Option<SpaceId>>,
}

impl Spaces {
    fn new(program: &Program, device: &Device) -> Result<Self, RunError> {
        let mut buffers = Vec::new();
        let mut unplaced = BTreeSet::new();
        for buffer in &program.buffers {
            let space = device.space_named(&buffer.space).ok_or_else(|| RunError::UnknownSpace {
                buffer: buffer.name.clone(),
                space: buffer.space.clone(),
                device: device.name.clone(),
                known: device.spaces.iter().map(|space| space.name.as_str()).collect::<Vec<_>>().join(", "),
            })?;
            buffers.push(space);
            if buffer.address.is_none() && buffer.alias.is_none() && buffer.role != Role::External {
                unplaced.insert(space);
            }
        }
        let mut handles = vec![None; program.handles.len()];
        // A handle may be set from another: as many rounds as there are handles at most, mostly one.
        loop {
            let mut changed = false;
            for step in &program.steps {
                let Step::Assign(assign) = step else { continue };
                for (target, root, _) in &assign.handles {
                    let space = match root {
                        Root::Buffer(id) => Some(buffers[id.index()]),
                        Root::Handle(id) => handles[id.index()],
                    };
                    if handles[target.index()].is_none() && space.is_some() {
                        handles[target.index()] = space;
                        changed = true;
                    }
                }
            }
            if !changed {
                break;
            }
        }
        Ok(Spaces { buffers, unplaced, handles })
    }

    fn of(&self, access: &Access) -> Option<SpaceId> {
        match access.root {
            Root::Buffer(id) => Some(self.buffers[id.index()]),
            Root::Handle(id) => self.handles[id.index()],
        }
    }
}

/// The roles that a step of order names.
fn sync_roles(sync: &Sync) -> Vec<&str> {
    match sync {
        Sync::SetFlag { from, to, .. } | Sync::WaitFlag { from, to, .. } => vec![from, to],
        Sync::Acquire { engine, .. }
        | Sync::Release { engine, .. }
        | Sync::Post { engine, .. }
        | Sync::Await { engine, .. }
        | Sync::Barrier(Some(engine)) => vec![engine],
        Sync::Barrier(None) => Vec::new(),
    }
}
