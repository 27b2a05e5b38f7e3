//! A graph as a placement problem, and what each strategy costs.
//!
//! ```text
//!   offset 0                     static_end
//!   | weights | constants | inputs | outputs |      activations and workspaces       |
//!   '----------- pinned, one after another --'----------- packed by placement -------'
//! ```

use super::bounds::{self, Bound, Footprint, LiveEntry, Workspaces};
use super::error::GraphError;
use super::line::{Line, Origin, Phase, ValueId};
use super::size::{Dims, Size};
use super::storage::{Actions, Over, Storage};
use super::work;
use npumem_ir::graph::Graph;
use npumem_ir::problem::{Buffer, BufferKind, Colocation, LiveRange, Location, Sizing, Space, Use};
use npumem_ir::{Alignment, BufferId, ByteRange, Bytes, Interval, Offset, Problem, SpaceId, Step, StepRange};
use std::collections::BTreeMap;

/// Who decides the offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strategy {
    /// Every buffer's offset comes from the plan; what depends on a range takes its largest size.
    Static,
    /// Every buffer is allocated at run time.
    Dynamic,
    /// What has a fixed size is in the plan, the rest comes from the pool.
    #[default]
    Hybrid,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Strategy; 3] = [Strategy::Static, Strategy::Dynamic, Strategy::Hybrid];

    /// The word for it, as an option takes it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Strategy::Static => "static",
            Strategy::Dynamic => "dynamic",
            Strategy::Hybrid => "hybrid",
        }
    }

    /// Reads the word back.
    #[must_use]
    pub fn parse(word: &str) -> Option<Strategy> {
        Strategy::ALL.into_iter().find(|strategy| strategy.word() == word)
    }

    fn pools(self, size: &Size) -> bool {
        match self {
            Strategy::Static => false,
            Strategy::Dynamic => true,
            Strategy::Hybrid => size.fixed().is_none(),
        }
    }
}

/// The space that holds a model's tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MainSpace {
    /// Its name on the device.
    pub name: String,
    /// The end of its usable offsets.
    pub capacity: Option<Bytes>,
    /// What every offset in it is a multiple of.
    pub alignment: Alignment,
    /// Bytes that no buffer may touch.
    pub reserved: Vec<ByteRange>,
}

/// What to make of a graph.
#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// Who decides the offsets.
    pub strategy: Strategy,
    /// Dimensions that are bound or ranged, by name.
    pub dims: Dims,
    /// Which ways of sharing bytes the plan uses.
    pub actions: Actions,
    /// Which input an in-place operator writes over.
    pub over: Over,
    /// Scratch bytes by operator name. The graph knows none: they belong to the kernels of a runtime.
    pub workspaces: BTreeMap<String, Bytes>,
}

impl Default for ModelOptions {
    fn default() -> Self {
        ModelOptions {
            strategy: Strategy::default(),
            dims: Dims::new(),
            actions: Actions::ALL,
            over: Over::default(),
            workspaces: BTreeMap::new(),
        }
    }
}

/// What a strategy costs, before placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategyCost {
    /// Which.
    pub strategy: Strategy,
    /// Why it cannot be used, where it cannot.
    pub refused: Option<String>,
    /// Bytes of weights, constants, inputs and outputs that the plan lays out.
    pub planned_static: Bytes,
    /// The largest live load of the activations that the plan lays out: the least its packed part takes.
    pub planned_load: Bytes,
    /// Buffers that the pool serves.
    pub pooled: usize,
    /// The most bytes that they need at once, were the pool perfect; `None` when nothing bounds one of them.
    pub pool_at_most: Option<Bytes>,
    /// Calls of the allocator in one run: one to take and one to give back each pooled activation, workspace, input and
    /// output. (Pooled weights and constants are taken once, when the model is loaded.)
    pub calls_per_run: u64,
    /// Of these, how many repeat with every turn of a loop.
    pub calls_per_turn: u64,
}

/// Bytes by what they are for, each tensor once, not rounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Parameters from the file.
    pub weights: Bytes,
    /// Constants.
    pub constants: Bytes,
    /// Given by the caller.
    pub inputs: Bytes,
    /// Given to the caller.
    pub outputs: Bytes,
    /// All activations, as if none shared a byte.
    pub activations: Bytes,
    /// How many activations.
    pub activation_count: usize,
    /// Values that are not in planned memory: sequences, optionals, strings.
    pub outside: usize,
}

/// Where a value's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValuePlace {
    /// The value.
    pub value: ValueId,
    /// The buffer that holds it; `None` for what takes no bytes or lives outside.
    pub buffer: Option<BufferId>,
    /// From the start of the buffer.
    pub delta: Bytes,
}

/// A buffer of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooled {
    /// The buffer.
    pub buffer: BufferId,
    /// The most it needs, where something bounds it.
    pub at_most: Option<Bytes>,
}

/// A graph, ready to be placed, with what the reports say of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInput {
    /// The problem. A buffer of the pool is in it without a size ([`Sizing::Unbounded`]); its most is in `pooled`.
    pub problem: Problem,
    /// What the pool serves, sorted.
    pub pooled: Vec<Pooled>,
    /// Where each value is, by [`ValueId`].
    pub places: Vec<ValuePlace>,
    /// The end of the pinned part: what placement packs lies behind it.
    pub static_end: Offset,
    /// Bytes by what they are for.
    pub totals: Totals,
    /// The largest live load of the activations per action set, one more action each time.
    pub bounds: Vec<Bound>,
    /// What is live where the largest live load under the plan's own actions is reached.
    pub peak: Vec<LiveEntry>,
    /// What each operator alone needs.
    pub footprints: Vec<Footprint>,
    /// What each strategy costs.
    pub strategies: Vec<StrategyCost>,
}

/// Makes the problem of a graph.
///
/// # Errors
/// A graph that is none, a size past 64 bits; under [`Strategy::Static`] also an open dimension.
pub fn to_problem(graph: &Graph, space: &MainSpace, options: &ModelOptions) -> Result<ModelInput, GraphError> {
    let line = Line::new(graph, &options.dims)?;
    from_line(&graph.name, &line, space, options)
}

/// Makes the problem of a line that was laid out before.
///
/// # Errors
/// As [`to_problem`].
pub fn from_line(
    name: &str,
    line: &Line<'_>,
    space: &MainSpace,
    options: &ModelOptions,
) -> Result<ModelInput, GraphError> {
    let storage = Storage::with(line, options.actions, space.alignment, options.over);
    let workspaces = workspaces(line, &options.workspaces)?;
    let strategies = Strategy::ALL.map(|strategy| cost(line, &storage, &workspaces, strategy)).to_vec();
    if options.strategy == Strategy::Static {
        refuse_open(line, &storage)?;
    }
    let own = bounds::bound(line, &storage, options.actions, &workspaces);
    let mut maker = Maker::new(name, line, &storage, space, options.strategy);
    maker.pinned()?;
    maker.activations();
    maker.workspaces(&workspaces);
    maker.uses();
    Ok(ModelInput {
        problem: maker.problem,
        pooled: maker.pooled,
        places: maker.places,
        static_end: maker.static_end,
        totals: totals(line),
        bounds: bounds::bounds(line, space.alignment, &workspaces),
        peak: bounds::live_at(line, &storage, &workspaces, own.step),
        footprints: bounds::footprints(line, &storage, &workspaces),
        strategies,
    })
}

/// Scratch bytes by step, from scratch bytes by operator.
fn workspaces(line: &Line<'_>, given: &BTreeMap<String, Bytes>) -> Result<Workspaces, GraphError> {
    let mut by_step = Workspaces::new();
    let mut found = BTreeMap::new();
    for (index, step) in line.steps.iter().enumerate().filter(|(_, step)| step.phase != Phase::Leave) {
        if let Some(bytes) = given.get(&step.name) {
            by_step.insert(index as u32, *bytes);
            found.insert(step.name.as_str(), ());
        }
    }
    match given.keys().find(|name| !found.contains_key(name.as_str())) {
        Some(missing) => Err(GraphError::UnknownOperator { operator: missing.clone() }),
        None => Ok(by_step),
    }
}

/// The first value, in order, that a static plan cannot hold.
fn refuse_open(line: &Line<'_>, storage: &Storage) -> Result<(), GraphError> {
    for (id, value) in line.values() {
        match &storage.class_of(id).size {
            Size::Fixed(_) | Size::Ranged(_) => {}
            Size::Unbounded(None) => return Err(GraphError::NoShapeInStatic { tensor: value.name.clone() }),
            Size::Unbounded(Some(symbol)) => {
                return Err(GraphError::OpenInStatic {
                    tensor: value.name.clone(),
                    open: format!("dimension '{symbol}' is open"),
                    symbol: symbol.clone(),
                });
            }
        }
    }
    Ok(())
}

fn totals(line: &Line<'_>) -> Totals {
    let mut totals = Totals::default();
    for value in &line.values {
        let bytes = value.size.at_most().unwrap_or_default();
        let sum = match value.origin {
            Origin::Weight => &mut totals.weights,
            Origin::Constant => &mut totals.constants,
            Origin::Input => &mut totals.inputs,
            Origin::Computed if value.is_output => &mut totals.outputs,
            Origin::Computed => {
                totals.activation_count += 1;
                &mut totals.activations
            }
            Origin::Outside => {
                totals.outside += 1;
                continue;
            }
        };
        *sum = sum.saturating_add(bytes.0);
    }
    totals
}

/// What one strategy costs.
fn cost(line: &Line<'_>, storage: &Storage, workspaces: &Workspaces, strategy: Strategy) -> StrategyCost {
    let pools = |number: usize| strategy.pools(&storage.class(number).size);
    let none = Workspaces::new();
    let (planned_scratch, pooled_scratch) =
        if strategy == Strategy::Dynamic { (&none, workspaces) } else { (workspaces, &none) };
    let most = |load: Vec<u128>| load.into_iter().max().unwrap_or_default();
    let clamp = |bytes: u128| Bytes(u64::try_from(bytes).unwrap_or(u64::MAX));
    let planned_load = most(bounds::live_load(line, storage, planned_scratch, |number| !pools(number)));
    let mut pool = most(bounds::live_load(line, storage, pooled_scratch, pools));
    let (mut planned_static, mut pooled, mut bounded) = (0_u128, pooled_scratch.len(), true);
    let (mut calls, mut turns) = (2 * pooled_scratch.len() as u64, 0);
    for (number, class) in storage.classes() {
        let outside = class.members.iter().all(|id| line.value(*id).origin == Origin::Outside);
        if outside || class.size == Size::Fixed(Bytes::ZERO) {
            continue;
        }
        let fixed = class.kind != BufferKind::Activation;
        let rounded = class.size.at_most().and_then(|size| size.align_up(storage.alignment()));
        if !pools(number) {
            planned_static += u128::from(rounded.filter(|_| fixed).unwrap_or_default().0);
            continue;
        }
        pooled += 1;
        bounded &= rounded.is_some();
        if fixed {
            pool += u128::from(rounded.unwrap_or_default().0);
        }
        if !matches!(class.kind, BufferKind::Weight | BufferKind::Constant) {
            calls += 2;
            let repeats = |id: &ValueId| {
                let value = line.value(*id);
                let step = value.producer.and_then(|step| line.steps.get(step as usize));
                !value.carried && step.is_some_and(|step| step.repeats)
            };
            turns += if class.members.iter().all(repeats) { 2 } else { 0 };
        }
    }
    let refused = if strategy == Strategy::Static { refuse_open(line, storage).err() } else { None };
    StrategyCost {
        strategy,
        refused: refused.map(|error| error.to_string()),
        planned_static: clamp(planned_static),
        planned_load: clamp(planned_load),
        pooled,
        pool_at_most: bounded.then(|| clamp(pool)),
        calls_per_run: calls,
        calls_per_turn: turns,
    }
}

const MAIN: SpaceId = SpaceId(0);

struct Maker<'a, 'g> {
    line: &'a Line<'g>,
    storage: &'a Storage,
    space: &'a MainSpace,
    strategy: Strategy,
    problem: Problem,
    pooled: Vec<Pooled>,
    places: Vec<ValuePlace>,
    static_end: Offset,
}

impl<'a, 'g> Maker<'a, 'g> {
    fn new(
        name: &str,
        line: &'a Line<'g>,
        storage: &'a Storage,
        space: &'a MainSpace,
        strategy: Strategy,
    ) -> Maker<'a, 'g> {
        let space_of = Space {
            name: space.name.clone(),
            capacity: space.capacity,
            alignment: space.alignment,
            reserved: space.reserved.clone(),
        };
        let places = line.values().map(|(value, _)| ValuePlace { value, buffer: None, delta: Bytes::ZERO }).collect();
        let problem = Problem { name: name.to_owned(), spaces: vec![space_of], ..Problem::default() };
        let (pooled, static_end) = (Vec::new(), Offset::ZERO);
        Maker { line, storage, space, strategy, problem, pooled, places, static_end }
    }

    /// Adds a buffer for a value of a class; its size, or a place in the pool.
    fn add(&mut self, id: ValueId, size: &Size, kind: BufferKind, live: Vec<StepRange>, pooled: bool) -> BufferId {
        let value = self.line.value(id);
        let buffer = BufferId::new(self.problem.buffers.len());
        let (bytes, sizing) = match size {
            _ if pooled => (Bytes::ZERO, Sizing::Unbounded),
            Size::Fixed(bytes) => (*bytes, Sizing::Fixed),
            Size::Ranged(bytes) => (*bytes, Sizing::Ranged),
            Size::Unbounded(_) => (Bytes::ZERO, Sizing::Unbounded),
        };
        if sizing == Sizing::Unbounded {
            self.pooled.push(Pooled { buffer, at_most: size.at_most() });
        }
        let producer = value.producer.and_then(|step| self.line.steps.get(step as usize));
        self.problem.buffers.push(Buffer {
            kind,
            sizing,
            producer: producer.map(|step| step.name.clone()),
            live: live.into_iter().map(|steps| LiveRange { steps, window: None }).collect(),
            ..Buffer::new(value.name.clone(), bytes, self.line.all(), MAIN)
        });
        buffer
    }

    /// What is there for the whole run: one buffer per class, one after another from offset 0 on.
    fn pinned(&mut self) -> Result<(), GraphError> {
        let order = [BufferKind::Weight, BufferKind::Constant, BufferKind::Input, BufferKind::Output];
        for kind in order {
            for (number, class) in self.storage.classes().filter(|(_, class)| class.kind == kind) {
                let Some(base) = self.storage.base(self.line, number) else { continue };
                if self.line.value(base).origin == Origin::Outside || class.size == Size::Fixed(Bytes::ZERO) {
                    continue;
                }
                let pooled = self.strategy.pools(&class.size);
                let buffer = self.add(base, &class.size, kind, vec![self.line.all()], pooled);
                for id in &class.members {
                    let (_, delta) = self.storage.place(*id);
                    self.places[id.index()] = ValuePlace { value: *id, buffer: Some(buffer), delta };
                }
                if let (false, Some(size)) = (pooled, class.size.at_most()) {
                    let offset = self.next_static(size)?;
                    self.problem.buffers[buffer.index()].pin = Some(Location { space: MAIN, offset });
                    self.static_end = Offset(offset.0 + size.0);
                }
            }
        }
        let aligned = self.static_end.align_up(self.space.alignment);
        self.static_end = aligned.ok_or(GraphError::StaticTooLarge { alignment: self.space.alignment })?;
        Ok(())
    }

    /// The first aligned offset behind the pinned part at which `size` bytes touch no reserved range.
    fn next_static(&self, size: Bytes) -> Result<Offset, GraphError> {
        let alignment = self.space.alignment;
        let too_large = || GraphError::StaticTooLarge { alignment };
        let mut at = self.static_end.align_up(alignment).ok_or_else(too_large)?;
        let mut reserved = self.space.reserved.clone();
        reserved.sort_unstable();
        for range in reserved {
            let own = ByteRange::at(at, size).ok_or_else(too_large)?;
            if own.overlaps(&range) {
                at = range.end.align_up(alignment).ok_or_else(too_large)?;
            }
        }
        ByteRange::at(at, size).map(|range| range.start).ok_or_else(too_large)
    }

    /// The activations: one buffer for all values of a class that hold the same bytes, placed by the class's base.
    fn activations(&mut self) {
        for (number, class) in self.storage.classes().filter(|(_, class)| class.kind == BufferKind::Activation) {
            let Some(base) = self.storage.base(self.line, number) else { continue };
            if class.size == Size::Fixed(Bytes::ZERO) {
                continue;
            }
            let pooled = self.strategy.pools(&class.size);
            let mut base_buffer = None;
            let mut members = class.members.clone();
            // The base first: the others name it.
            members.sort_unstable_by_key(|id| (*id != base, *id));
            // Buffers of this class, by place, size and content.
            let mut made: BTreeMap<(Bytes, Option<Bytes>, u32), BufferId> = BTreeMap::new();
            for id in members {
                let size = self.storage.extent(self.line, id);
                if size == Size::Fixed(Bytes::ZERO) {
                    continue;
                }
                let (_, delta) = self.storage.place(id);
                let live: Vec<StepRange> = self.line.value(id).live().collect();
                let key = (delta, size.at_most(), self.storage.content(id));
                let buffer = if let Some(buffer) = made.get(&key).copied() {
                    join(&mut self.problem.buffers[buffer.index()].live, &live);
                    buffer
                } else {
                    let buffer = self.add(id, &size, BufferKind::Activation, live, pooled);
                    made.insert(key, buffer);
                    let base = *base_buffer.get_or_insert(buffer);
                    if buffer != base {
                        self.problem.constraints.colocated.push(Colocation { buffer, base, delta });
                    }
                    buffer
                };
                self.places[id.index()] = ValuePlace { value: id, buffer: Some(buffer), delta: Bytes::ZERO };
            }
        }
    }

    fn workspaces(&mut self, workspaces: &Workspaces) {
        for (step, bytes) in workspaces.iter().filter(|(_, bytes)| bytes.0 > 0) {
            let name = self.line.steps[*step as usize].name.clone();
            let buffer = BufferId::new(self.problem.buffers.len());
            let steps = StepRange::steps(u64::from(*step), u64::from(*step) + 1);
            let mut made = Buffer::new(format!("{name} (workspace)"), *bytes, steps, MAIN);
            made.kind = BufferKind::Workspace;
            made.producer = Some(name);
            if self.strategy == Strategy::Dynamic {
                (made.size, made.sizing) = (Bytes::ZERO, Sizing::Unbounded);
                self.pooled.push(Pooled { buffer, at_most: Some(*bytes) });
            }
            self.problem.buffers.push(made);
        }
    }

    /// Who reads and writes how much, when.
    fn uses(&mut self) {
        for index in 0..self.line.steps.len() as u32 {
            for (id, access, bytes) in work::traffic(self.line, self.storage, index) {
                let Some(buffer) = self.places[id.index()].buffer else { continue };
                let uses = &mut self.problem.buffers[buffer.index()].uses;
                let (step, bytes) = (Step(u64::from(index)), Bytes(bytes));
                match uses.iter_mut().rev().take(2).find(|one| one.step == step && one.access == access) {
                    Some(one) => one.bytes = one.bytes.saturating_add(bytes.0),
                    None => uses.push(Use { step, access, bytes }),
                }
            }
        }
    }
}

/// The union of two sorted lists of ranges, touching ones joined.
fn join(into: &mut Vec<LiveRange>, more: &[StepRange]) {
    let mut all: Vec<StepRange> = into.iter().map(|range| range.steps).chain(more.iter().copied()).collect();
    all.sort_unstable();
    into.clear();
    for range in all {
        match into.last_mut() {
            Some(last) if range.start <= last.steps.end => {
                last.steps = Interval { start: last.steps.start, end: last.steps.end.max(range.end) };
            }
            _ => into.push(LiveRange { steps: range, window: None }),
        }
    }
}
