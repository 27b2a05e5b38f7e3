//! Answers that planners, checkers and rooflines need from a device.

use thiserror::Error;

use super::{
    CoreId, Device, Engine, EngineKind, Figure, FigureRow, Link, MissingFigure, Precision, Rate, Scope, Space,
    SpaceKind,
};
use crate::ids::{EngineId, LinkId, SpaceId};
use crate::problem;
use crate::units::{Alignment, Bytes, Cycles};

/// A number computed from figures, with the figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Derived {
    /// The number.
    pub value: f64,
    /// The figures it was computed from.
    pub from: Vec<FigureRow>,
}

impl Derived {
    /// Whether one of the figures is only an estimate.
    #[must_use]
    pub fn is_estimated(&self) -> bool {
        self.from.iter().any(|row| row.origin.as_ref().is_some_and(super::Origin::is_estimated))
    }
}

/// Why a device has no peak for a type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PeakError {
    /// No unit of that kind computes the type.
    #[error("device `{device}` has no {kind} unit for {precision}; its {kind} units compute {known}")]
    NoUnit {
        /// The device's name.
        device: String,
        /// The kind of unit.
        kind: EngineKind,
        /// The operand type.
        precision: Precision,
        /// The types they compute.
        known: String,
    },
    /// A figure is unknown.
    #[error(transparent)]
    Missing(#[from] MissingFigure),
}

impl Device {
    /// The space of that id.
    #[must_use]
    pub fn space(&self, id: SpaceId) -> &Space {
        &self.spaces[id.index()]
    }

    /// The engine of that id.
    #[must_use]
    pub fn engine(&self, id: EngineId) -> &Engine {
        &self.engines[id.index()]
    }

    /// The link of that id.
    #[must_use]
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.index()]
    }

    /// All spaces with their ids.
    pub fn spaces(&self) -> impl Iterator<Item = (SpaceId, &Space)> {
        self.spaces.iter().enumerate().map(|(index, space)| (SpaceId::new(index), space))
    }

    /// All engines with their ids.
    pub fn engines(&self) -> impl Iterator<Item = (EngineId, &Engine)> {
        self.engines.iter().enumerate().map(|(index, engine)| (EngineId::new(index), engine))
    }

    /// All links with their ids.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        self.links.iter().enumerate().map(|(index, link)| (LinkId::new(index), link))
    }

    /// The space of that name or alias, in any case.
    #[must_use]
    pub fn space_named(&self, name: &str) -> Option<SpaceId> {
        self.spaces()
            .find(|(_, space)| {
                space.name.eq_ignore_ascii_case(name)
                    || space.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
            })
            .map(|(id, _)| id)
    }

    /// The engine of that name, in any case.
    #[must_use]
    pub fn engine_named(&self, name: &str) -> Option<EngineId> {
        self.engines().find(|(_, engine)| engine.name.eq_ignore_ascii_case(name)).map(|(id, _)| id)
    }

    /// The links from one space to another.
    pub fn links_between(&self, from: SpaceId, to: SpaceId) -> impl Iterator<Item = (LinkId, &Link)> {
        self.links().filter(move |(_, link)| link.from == from && link.to == to)
    }

    /// Whether the engine can read the space: as a compute operand, or at the start of one of its links.
    #[must_use]
    pub fn reads(&self, engine: EngineId, space: SpaceId) -> bool {
        let operand = self.engine(engine).compute.as_ref().is_some_and(|unit| unit.reads.contains(&space));
        operand || self.links.iter().any(|link| link.engine == engine && link.from == space)
    }

    /// Whether the engine can write the space: as a compute result, or at the end of one of its links.
    #[must_use]
    pub fn writes(&self, engine: EngineId, space: SpaceId) -> bool {
        let result = self.engine(engine).compute.as_ref().is_some_and(|unit| unit.writes.contains(&space));
        result || self.links.iter().any(|link| link.engine == engine && link.to == space)
    }

    /// The clock in hertz.
    ///
    /// # Errors
    /// When the clock is unknown.
    pub fn clock(&self) -> Result<f64, MissingFigure> {
        self.clock_hz.require(&self.name, "device.clock").copied()
    }

    /// How many cores of a kind there are.
    ///
    /// # Errors
    /// When the count is unknown.
    pub fn core_count(&self, core: CoreId) -> Result<u64, MissingFigure> {
        let core = &self.cores[core.index()];
        core.count.require(&self.name, &format!("{}.count", core.name)).copied()
    }

    /// How many instances of a space there are.
    ///
    /// # Errors
    /// When the count is unknown.
    pub fn instances(&self, id: SpaceId) -> Result<u64, MissingFigure> {
        let space = self.space(id);
        match &space.scope {
            Scope::Device => Ok(1),
            Scope::Core(core) => self.core_count(*core),
            Scope::Cluster(count) => count.require(&self.name, &format!("{}.count", space.name)).copied(),
        }
    }

    /// The bytes of one instance of a space.
    ///
    /// # Errors
    /// When the capacity is unknown.
    pub fn capacity(&self, id: SpaceId) -> Result<Bytes, MissingFigure> {
        let space = self.space(id);
        space.capacity.require(&self.name, &format!("{}.capacity", space.name)).copied()
    }

    /// The offset at or below which buffers end: the usable bytes, or the capacity.
    ///
    /// # Errors
    /// When both are unknown.
    pub fn usable(&self, id: SpaceId) -> Result<Bytes, MissingFigure> {
        match self.space(id).usable.known() {
            Some(usable) => Ok(*usable),
            None => self.capacity(id),
        }
    }

    /// What offsets in a space are multiples of.
    ///
    /// # Errors
    /// When the alignment is unknown.
    pub fn alignment(&self, id: SpaceId) -> Result<Alignment, MissingFigure> {
        let space = self.space(id);
        space.alignment.require(&self.name, &format!("{}.alignment", space.name)).copied()
    }

    /// Cycles from a read's issue to its first byte.
    ///
    /// # Errors
    /// When the latency is unknown.
    pub fn latency(&self, id: SpaceId) -> Result<Cycles, MissingFigure> {
        let space = self.space(id);
        space.latency.require(&self.name, &format!("{}.latency", space.name)).copied()
    }

    /// Bytes per second of one instance of a space.
    ///
    /// # Errors
    /// When the bandwidth is unknown, or is given per cycle and the clock is unknown.
    pub fn bandwidth(&self, id: SpaceId) -> Result<Derived, MissingFigure> {
        let space = self.space(id);
        self.per_second(&space.bandwidth, &format!("{}.bandwidth", space.name))
    }

    /// Bytes per second of one engine on a link.
    ///
    /// # Errors
    /// When the rate is unknown, or is given per cycle and the clock is unknown.
    pub fn link_bandwidth(&self, id: LinkId) -> Result<Derived, MissingFigure> {
        let link = self.link(id);
        self.per_second(&link.rate, &format!("{}.rate", link.name))
    }

    /// Bytes per cycle of one engine on a link.
    ///
    /// # Errors
    /// When the rate is unknown, or is given per second and the clock is unknown.
    pub fn link_rate(&self, id: LinkId) -> Result<f64, MissingFigure> {
        let link = self.link(id);
        match link.rate.require(&self.name, &format!("{}.rate", link.name))? {
            Rate::BytesPerCycle(bytes) => Ok(*bytes),
            rate => Ok(rate.per_cycle(self.clock()?)),
        }
    }

    fn per_second(&self, figure: &Figure<Rate>, path: &str) -> Result<Derived, MissingFigure> {
        let rate = *figure.require(&self.name, path)?;
        let mut from = vec![self.figure(path)?];
        let value = match rate {
            Rate::BytesPerSecond(bytes) => bytes,
            Rate::BytesPerCycle(_) => {
                from.push(self.figure("device.clock")?);
                rate.per_second(self.clock()?)
            }
        };
        Ok(Derived { value, from })
    }

    /// The main memory: the largest DRAM that the whole device shares; without one, the largest
    /// scratchpad that it shares. Spaces of unknown size count as smallest, ties go to the first.
    #[must_use]
    pub fn main_memory(&self) -> Option<SpaceId> {
        let largest = |kind: SpaceKind| {
            let mut best: Option<(Option<Bytes>, SpaceId)> = None;
            for (id, space) in self.spaces().filter(|(_, space)| space.kind == kind && space.scope == Scope::Device) {
                let size = space.capacity.known().copied();
                if best.is_none_or(|(most, _)| size > most) {
                    best = Some((size, id));
                }
            }
            best.map(|(_, id)| id)
        };
        largest(SpaceKind::Dram).or_else(|| largest(SpaceKind::Scratchpad))
    }

    /// Operations per second of all units of a kind together; a multiply-accumulate counts two.
    ///
    /// # Errors
    /// When no unit of the kind computes the type, or a figure is unknown.
    pub fn peak_operations(&self, kind: EngineKind, precision: Precision) -> Result<Derived, PeakError> {
        let mut total = None;
        for engine in self.engines.iter().filter(|engine| engine.kind == kind) {
            let Some(unit) = &engine.compute else { continue };
            let Some(operations) = unit.operations_per_cycle.get(&precision) else { continue };
            let path = format!("{}.operations.{precision}", engine.name);
            let operations = *operations.require(&self.name, &path)?;
            let (units, mut from) = self.units(engine)?;
            from.insert(0, self.figure(&path)?);
            from.push(self.figure("device.clock")?);
            let value = operations * units * self.clock()?;
            let sum = total.get_or_insert_with(|| Derived { value: 0.0, from: Vec::new() });
            sum.value += value;
            sum.from.extend(from);
        }
        total.ok_or_else(|| self.no_unit(kind, precision))
    }

    /// The faster of the matrix and the vector units for a type, and which it is.
    ///
    /// # Errors
    /// When neither computes the type, or a figure is unknown.
    pub fn peak(&self, precision: Precision) -> Result<(EngineKind, Derived), PeakError> {
        let matrix = self.peak_operations(EngineKind::Matrix, precision);
        let vector = self.peak_operations(EngineKind::Vector, precision);
        match (matrix, vector) {
            (Ok(matrix), Ok(vector)) if vector.value > matrix.value => Ok((EngineKind::Vector, vector)),
            (Ok(matrix), _) => Ok((EngineKind::Matrix, matrix)),
            (Err(PeakError::NoUnit { .. }), Ok(vector)) => Ok((EngineKind::Vector, vector)),
            (Err(error), _) => Err(error),
        }
    }

    /// How many units of an engine the whole device has, and the figures that say so.
    fn units(&self, engine: &Engine) -> Result<(f64, Vec<FigureRow>), MissingFigure> {
        let mut units = 1.0;
        let mut from = Vec::new();
        if let Some(count) = &engine.count {
            let path = format!("{}.count", engine.name);
            units *= *count.require(&self.name, &path)? as f64;
            from.push(self.figure(&path)?);
        }
        if let Some(core) = engine.core {
            units *= self.core_count(core)? as f64;
            from.push(self.figure(&format!("{}.count", self.cores[core.index()].name))?);
        }
        Ok((units, from))
    }

    fn no_unit(&self, kind: EngineKind, precision: Precision) -> PeakError {
        let mut known: Vec<&str> = self
            .engines
            .iter()
            .filter(|engine| engine.kind == kind)
            .filter_map(|engine| engine.compute.as_ref())
            .flat_map(|unit| unit.operations_per_cycle.keys().map(|precision| precision.text()))
            .collect();
        known.dedup();
        let known = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
        PeakError::NoUnit { device: self.name.clone(), kind, precision, known }
    }

    /// A space as a placement problem sees it: its usable bytes, alignment and reserved ranges.
    ///
    /// # Errors
    /// When the capacity is unknown; an unknown alignment counts as one byte.
    pub fn problem_space(&self, id: SpaceId) -> Result<problem::Space, MissingFigure> {
        let space = self.space(id);
        Ok(problem::Space {
            name: space.name.clone(),
            capacity: Some(self.usable(id)?),
            alignment: space.alignment.known().copied().unwrap_or_default(),
            reserved: space.reserved.iter().map(|reserved| reserved.range).collect(),
        })
    }
}
