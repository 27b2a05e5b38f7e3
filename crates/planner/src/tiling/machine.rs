//! Where the operands of one unit live on a device, and what moves them there.
//!
//! ```text
//!   main memory --(cache)--> stage --> near --> unit          left and right operands; some devices have no stage
//!   main memory --(cache)--> near <--> unit                   a vector unit's operands
//!   unit --> accumulators --(cache)--> main memory            results
//! ```
//!
//! A route is found from the device's links alone: nothing here knows the name of a product. Names by which kernels mean a
//! space (`mat`, `left`, `right`, `acc`, `vec`) choose between spaces that would do.

use super::operator::{Side, Unit};
use npumem_ir::device::{EngineKind, MissingFigure, PeakError, Precision, Scope, SpaceKind};
use npumem_ir::{Device, EngineId, LinkId, SpaceId};
use std::collections::BTreeMap;
use thiserror::Error;

/// Why an operator cannot run on a device.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MachineError {
    /// A figure that the cost needs is not known.
    #[error(transparent)]
    Missing(#[from] MissingFigure),
    /// No unit computes the type.
    #[error(transparent)]
    Peak(#[from] PeakError),
    /// The device lacks a thing.
    #[error("device `{device}` has no {what}")]
    Lacks {
        /// The device.
        device: String,
        /// What it lacks.
        what: String,
    },
}

/// One hop of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct Hop {
    /// The link that is used when nothing is in the cache (or there is none).
    pub link: LinkId,
    /// The link that is used on a hit in the cache.
    pub hit: Option<LinkId>,
    /// The engine.
    pub engine: EngineId,
    /// Where from.
    pub from: SpaceId,
    /// Where to.
    pub to: SpaceId,
    /// Bytes per cycle on a miss.
    pub rate: f64,
    /// Bytes per cycle on a hit; the miss rate without a cache.
    pub hit_rate: f64,
    /// Cycles before the first byte.
    pub startup: f64,
    /// Cycles from the end of the transfer until its bytes are there, on a hit and on a miss.
    pub latency: [f64; 2],
    /// Runs are rounded out to this many bytes.
    pub granularity: u64,
    /// Runs that start at this multiple get the full rate.
    pub alignment: u64,
    /// The share of the rate that others get.
    pub unaligned_share: f64,
    /// The largest single transfer.
    pub largest: u64,
    /// Transfers of this size reach the full rate; 0 when unknown.
    pub best: u64,
    /// Transfers that may be under way at once; unlimited when the device file does not say.
    pub outstanding: u64,
}

/// Room in a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The space.
    pub space: SpaceId,
    /// Its name.
    pub name: String,
    /// Bytes that buffers may take: the longest range without reserved bytes.
    pub capacity: u64,
    /// Where that range starts.
    pub start: u64,
    /// What slots start at.
    pub alignment: u64,
    /// As `capacity`, of all who share the space: several sides of one unit may.
    pub whole: u64,
}

/// How an operand gets near the unit (or a result away from it).
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The space that the unit reaches.
    pub near: Room,
    /// The space on the way, when there is one.
    pub stage: Option<Room>,
    /// From main memory inwards (or from the unit outwards for a result).
    pub hops: Vec<Hop>,
}

/// A vector unit beside a matrix unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Beside {
    /// The unit.
    pub engine: EngineId,
    /// Cycles before one instruction's first result.
    pub startup: f64,
    /// Bytes that one step covers.
    pub width: u64,
    /// Cycles of one step in f32.
    pub pace: f64,
    /// Steps that one instruction repeats.
    pub repeats: u64,
}

impl Beside {
    /// Cycles of the passes of a softmax over so many scores in f32.
    #[must_use]
    pub fn softmax_cycles(&self, scores: u64) -> f64 {
        let steps = scores.div_ceil((self.width / 4).max(1));
        let starts = steps.div_ceil(self.repeats).max(1);
        SOFTMAX_PASSES * (starts as f64 * self.startup + steps as f64 * self.pace)
    }
}

/// Passes over the scores that one turn of an online softmax takes: largest, difference and exponential, sum.
pub const SOFTMAX_PASSES: f64 = 3.0;

/// How operators run on a unit of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The device's name.
    pub device: String,
    /// The unit.
    pub unit: EngineId,
    /// How many cores have one.
    pub cores: u64,
    /// Cycles of the clock in a second.
    pub clock: f64,
    /// Operations of one core's unit in a cycle.
    pub rate: f64,
    /// Rows, depth and columns of the smallest product; 1 for a vector unit.
    pub fractal: [u64; 3],
    /// Cycles before one instruction's first result.
    pub startup: f64,
    /// Bytes that one vector step covers; 0 for a matrix unit.
    pub vector_width: u64,
    /// Operations of one core's unit in a cycle, by type.
    pub rates: BTreeMap<Precision, f64>,
    /// Steps that one vector instruction repeats.
    pub repeats: u64,
    /// For a matrix unit: the vector unit of the same core, when it has one that shares its accumulators' space.
    pub softmax: Option<Beside>,
    /// Main memory.
    pub main: SpaceId,
    /// Bytes per cycle of main memory, all cores together.
    pub main_rate: f64,
    /// The cache in front of it: its capacity and bytes per cycle.
    pub cache: Option<(SpaceId, u64, f64)>,
    /// Bytes that the cache takes at once.
    pub sector: u64,
    /// Ways in for the left, the right and the vector side.
    pub left: Route,
    /// As `left`.
    pub right: Route,
    /// The way out.
    pub out: Route,
}

impl Machine {
    /// How operators of a unit kind run on a device.
    ///
    /// # Errors
    /// When the device has no such unit for the type, no way to it, or a figure is unknown.
    pub fn new(device: &Device, unit: Unit, computes: Precision) -> Result<Machine, MachineError> {
        let kind = match unit {
            Unit::Matrix => EngineKind::Matrix,
            Unit::Vector => EngineKind::Vector,
        };
        let lacks = |what: String| MachineError::Lacks { device: device.name.clone(), what };
        device.peak_operations(kind, computes)?;
        let (id, engine, compute) = device
            .engines()
            .filter(|(_, engine)| engine.kind == kind)
            .filter_map(|(id, engine)| Some((id, engine, engine.compute.as_ref()?)))
            .find(|(_, _, compute)| compute.operations_per_cycle.contains_key(&computes))
            .ok_or_else(|| lacks(format!("{kind} unit for {computes}")))?;
        let main = device.main_memory().ok_or_else(|| lacks("main memory".into()))?;
        let cores = engine.core.map_or(Ok(1), |core| device.core_count(core))?;
        let each = engine
            .count
            .as_ref()
            .map_or(Ok(1), |count| count.require(&device.name, &format!("{}.count", engine.name)).copied())?;
        let per_cycle = compute.operations_per_cycle.get(&computes).and_then(|figure| figure.known().copied());
        let rate = per_cycle.unwrap_or(1.0) * each as f64;
        let fractal = match unit {
            Unit::Matrix => compute.fractal.get(&computes).and_then(|figure| figure.known().copied()).unwrap_or([1; 3]),
            Unit::Vector => [1; 3],
        };
        let cache = cache_of(device, main)?;
        let finder = Finder { device, main, cache: cache.map(|(id, ..)| id), core: engine.core };
        let reads = |space: SpaceId| compute.reads.contains(&space);
        let writes = |space: SpaceId| compute.writes.contains(&space);
        let (mut left, mut right, mut out) = match unit {
            Unit::Matrix => {
                (finder.way_in(&reads, "left")?, finder.way_in(&reads, "right")?, finder.way_out(&writes, "acc")?)
            }
            Unit::Vector => {
                let near = finder.way_in(&reads, "vec")?;
                (near.clone(), near, finder.way_out(&writes, "vec")?)
            }
        };
        share_near([&mut left, &mut right, &mut out]);
        let main_rate = match device.bandwidth(main) {
            Ok(rate) => rate.value / device.clock()?,
            // A description without it: what the links of all cores carry together.
            Err(_) => left.hops.first().map_or(1.0, |hop| hop.rate) * cores as f64,
        };
        Ok(Machine {
            device: device.name.clone(),
            unit: id,
            cores: cores.max(1),
            clock: device.clock()?,
            rate,
            fractal,
            startup: engine.startup.known().map_or(0.0, |cycles| cycles.0 as f64),
            vector_width: compute.vector_width.known().map_or(0, |bytes| bytes.0),
            rates: compute
                .operations_per_cycle
                .iter()
                .filter_map(|(precision, figure)| Some((*precision, figure.known()? * each as f64)))
                .collect(),
            repeats: compute.repeats.known().copied().unwrap_or(u64::MAX).max(1),
            softmax: beside(device, engine.core, out.near.space),
            main,
            main_rate,
            cache,
            sector: cache.map_or(1, |(id, ..)| sector(device, main, id)),
            left,
            right,
            out,
        })
    }

    /// The way of an operand of this side.
    #[must_use]
    pub fn route(&self, side: Side) -> &Route {
        match side {
            Side::Left | Side::Vector => &self.left,
            Side::Right => &self.right,
            Side::Accumulator => &self.out,
        }
    }
}

/// Sides that are fed from a stage into one space, or that the sums are in too, get a part of it each.
fn share_near(mut routes: [&mut Route; 3]) {
    let fed: Vec<SpaceId> =
        routes[..2].iter().filter(|route| route.stage.is_some()).map(|route| route.near.space).collect();
    let spaces: Vec<SpaceId> = routes.iter().map(|route| route.near.space).collect();
    for route in &mut routes {
        let sharing = spaces.iter().filter(|space| **space == route.near.space).count() as u64;
        if sharing > 1 && fed.contains(&route.near.space) {
            let alignment = route.near.alignment.max(1);
            route.near.capacity = route.near.capacity / sharing / alignment * alignment;
        }
    }
}

/// The cache that hardware fills from main memory.
fn cache_of(device: &Device, main: SpaceId) -> Result<Option<(SpaceId, u64, f64)>, MissingFigure> {
    let Some((id, space)) = device.spaces().find(|(id, space)| {
        space.kind == SpaceKind::Cache
            && space.scope == Scope::Device
            && device.links_between(main, *id).next().is_some()
    }) else {
        return Ok(None);
    };
    let Some(capacity) = space.capacity.known() else { return Ok(None) };
    let rate = device.bandwidth(id).map(|rate| rate.value).unwrap_or(f64::MAX) / device.clock()?;
    Ok(Some((id, capacity.0, rate)))
}

/// Bytes that a cache takes from main memory at once.
fn sector(device: &Device, main: SpaceId, cache: SpaceId) -> u64 {
    let link = device.links_between(main, cache).next();
    link.and_then(|(_, link)| link.granularity.known().copied()).map_or(128, |bytes| bytes.0.max(1))
}

/// The vector unit of a core that reads and writes a space.
fn beside(device: &Device, core: Option<npumem_ir::device::CoreId>, space: SpaceId) -> Option<Beside> {
    let (id, engine) = device.engines().find(|(id, engine)| {
        engine.kind == EngineKind::Vector
            && engine.core == core
            && device.reads(*id, space)
            && device.writes(*id, space)
    })?;
    let unit = engine.compute.as_ref()?;
    let width = unit.vector_width.known()?.0;
    let rate = *unit.operations_per_cycle.get(&Precision::F32)?.known()?;
    Some(Beside {
        engine: id,
        startup: engine.startup.known().map_or(0.0, |cycles| cycles.0 as f64),
        width,
        pace: ((width / 4).max(1) as f64 / rate).max(1.0),
        repeats: unit.repeats.known().copied().unwrap_or(u64::MAX).max(1),
    })
}

struct Finder<'a> {
    device: &'a Device,
    main: SpaceId,
    cache: Option<SpaceId>,
    core: Option<npumem_ir::device::CoreId>,
}

impl Finder<'_> {
    fn lacks(&self, what: String) -> MachineError {
        MachineError::Lacks { device: self.device.name.clone(), what }
    }

    fn has_alias(&self, space: SpaceId, name: &str) -> bool {
        self.device.space_named(name) == Some(space)
    }

    /// On-chip memory of this core, or of the whole device.
    fn local(&self, space: SpaceId) -> bool {
        let about = self.device.space(space);
        let mine = match &about.scope {
            Scope::Core(core) => Some(*core) == self.core,
            Scope::Device | Scope::Cluster(_) => true,
        };
        mine && space != self.main && matches!(about.kind, SpaceKind::Scratchpad | SpaceKind::Registers)
    }

    /// A hop from one space to another, through the cache where one side is main memory.
    fn hop(&self, from: SpaceId, to: SpaceId) -> Result<Option<Hop>, MissingFigure> {
        let direct = self.device.links_between(from, to).next().map(|(id, _)| id);
        let cached = self.cache.and_then(|cache| {
            let (a, b) = if from == self.main { (cache, to) } else { (from, cache) };
            (from == self.main || to == self.main)
                .then(|| self.device.links_between(a, b).next().map(|(id, _)| id))
                .flatten()
        });
        let Some(link_id) = direct.or(cached) else { return Ok(None) };
        let link = self.device.link(link_id);
        let rate = self.device.link_rate(link_id)?;
        let hit = cached;
        let hit_rate = hit.map_or(Ok(rate), |hit| self.device.link_rate(hit))?;
        let latency = |space: SpaceId| self.device.space(space).latency.known().map_or(0.0, |cycles| cycles.0 as f64);
        let engine = self.device.engine(link.engine);
        let (miss_latency, hit_latency) = match self.cache.filter(|_| hit.is_some()) {
            Some(cache) if from == self.main => (latency(from), latency(cache)),
            _ if to == self.main => (latency(from), latency(from)),
            Some(cache) => (latency(cache), latency(cache)),
            None => (latency(from), latency(from)),
        };
        let number = |figure: &npumem_ir::device::Figure<npumem_ir::Bytes>, missing: u64| {
            figure.known().map_or(missing, |bytes| bytes.0.max(1))
        };
        let startup = |id: LinkId| {
            let link = self.device.link(id);
            let figure = link.startup.known().or_else(|| self.device.engine(link.engine).startup.known());
            figure.map_or(0.0, |cycles| cycles.0 as f64)
        };
        // Runs and alignment are those of the link that a hit takes.
        let near = self.device.link(hit.unwrap_or(link_id));
        Ok(Some(Hop {
            link: link_id,
            hit,
            engine: link.engine,
            from,
            to,
            rate,
            hit_rate,
            startup: hit.map_or(0.0, startup).max(startup(link_id)),
            latency: [hit_latency, miss_latency],
            granularity: number(&near.granularity, 1),
            alignment: number(&near.alignment, 1),
            unaligned_share: near.unaligned_share.known().copied().unwrap_or(1.0),
            largest: number(&near.largest_transfer, u64::MAX),
            best: link.best_transfer.known().map_or(0, |bytes| bytes.0),
            outstanding: engine.outstanding.known().copied().unwrap_or(u64::MAX).max(1),
        }))
    }

    fn room(&self, space: SpaceId) -> Result<Room, MissingFigure> {
        let about = self.device.space(space);
        let usable = self.device.usable(space)?.0;
        // The longest range between reserved ones.
        let mut reserved: Vec<(u64, u64)> =
            about.reserved.iter().map(|reserved| (reserved.range.start.0, reserved.range.end.0)).collect();
        reserved.push((usable, u64::MAX));
        reserved.sort_unstable();
        let (mut start, mut best) = (0_u64, (0_u64, 0_u64));
        for (first, end) in reserved {
            let length = first.min(usable).saturating_sub(start);
            if length > best.1 {
                best = (start, length);
            }
            start = start.max(end);
        }
        let alignment = about.alignment.known().map_or(1, |alignment| alignment.get());
        // Cores that share one instance share its bytes.
        let cores = self.core.map_or(Ok(1), |core| self.device.core_count(core))?.max(1);
        let sharing = match &about.scope {
            Scope::Core(_) => 1,
            Scope::Device => cores,
            Scope::Cluster(count) => cores.div_ceil(count.known().copied().unwrap_or(1).max(1)),
        };
        let capacity = best.1 / sharing;
        Ok(Room { space, name: about.name.clone(), capacity, start: best.0, alignment, whole: capacity })
    }

    /// The spaces that a side may use, the one named for it first.
    fn choices(&self, allowed: &dyn Fn(SpaceId) -> bool, side: &str) -> Vec<SpaceId> {
        let mut spaces: Vec<SpaceId> =
            self.device.spaces().map(|(id, _)| id).filter(|id| allowed(*id) && self.local(*id)).collect();
        spaces.sort_by_key(|id| (!self.has_alias(*id, side), *id));
        spaces
    }

    fn way_in(&self, reads: &dyn Fn(SpaceId) -> bool, side: &str) -> Result<Route, MachineError> {
        // A unit that reads the staging memory itself needs no copy further in.
        let stage = self.device.space_named(if side == "vec" { "vec" } else { "mat" }).filter(|id| self.local(*id));
        if side == "vec" && stage.is_none_or(|stage| !reads(stage)) {
            // What the unit reads is filled from main memory where it can be.
            for near in self.choices(reads, side) {
                if let Some(hop) = self.hop(self.main, near)? {
                    return Ok(Route { near: self.room(near)?, stage: None, hops: vec![hop] });
                }
            }
        }
        if let Some(stage) = stage.filter(|id| reads(*id) || side == "vec")
            && let Some(hop) = self.hop(self.main, stage)?
        {
            return Ok(Route { near: self.room(stage)?, stage: None, hops: vec![hop] });
        }
        for near in self.choices(reads, side) {
            if let Some(stage) = stage.filter(|stage| *stage != near)
                && let (Some(first), Some(second)) = (self.hop(self.main, stage)?, self.hop(stage, near)?)
            {
                return Ok(Route { near: self.room(near)?, stage: Some(self.room(stage)?), hops: vec![first, second] });
            }
            if let Some(hop) = self.hop(self.main, near)? {
                return Ok(Route { near: self.room(near)?, stage: None, hops: vec![hop] });
            }
            let between = self.device.spaces().map(|(id, _)| id).filter(|id| self.local(*id) && *id != near);
            for stage in between.collect::<Vec<_>>() {
                if let (Some(first), Some(second)) = (self.hop(self.main, stage)?, self.hop(stage, near)?) {
                    let stage = Some(self.room(stage)?);
                    return Ok(Route { near: self.room(near)?, stage, hops: vec![first, second] });
                }
            }
        }
        Err(self.lacks(format!("way from {} to the {side} operand of its unit", self.device.space(self.main).name)))
    }

    fn way_out(&self, writes: &dyn Fn(SpaceId) -> bool, side: &str) -> Result<Route, MachineError> {
        let mut choices = self.choices(writes, side);
        if side == "vec"
            && let Some(vec) = self.device.space_named("vec").filter(|id| self.local(*id))
        {
            // Where the unit does not write it itself, after all that leave directly.
            let direct = |near: &SpaceId| matches!(self.hop(*near, self.main), Ok(Some(_)));
            let at = if writes(vec) { 0 } else { choices.iter().take_while(|near| direct(near)).count() };
            choices.insert(at, vec);
        }
        for near in choices {
            if let Some(hop) = self.hop(near, self.main)? {
                return Ok(Route { near: self.room(near)?, stage: None, hops: vec![hop] });
            }
            let between = self.device.spaces().map(|(id, _)| id).filter(|id| self.local(*id) && *id != near);
            for stage in between.collect::<Vec<_>>() {
                if let (Some(first), Some(second)) = (self.hop(near, stage)?, self.hop(stage, self.main)?) {
                    let stage = Some(self.room(stage)?);
                    return Ok(Route { near: self.room(near)?, stage, hops: vec![first, second] });
                }
            }
        }
        Err(self.lacks(format!("way from its unit's results to {}", self.device.space(self.main).name)))
    }
}
