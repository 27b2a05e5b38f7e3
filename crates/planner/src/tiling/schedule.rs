//! From an operator and a device to a schedule over the whole hierarchy.
//!
//! ```text
//!   1. cores       the parallel dims are cut into one block per core; every way to cut them is a candidate
//!   2. tiles       for a block, the exhaustive search of one boundary: main memory (or its cache) to the core
//!   3. feed        for a tile, the steps of the matrix unit and the copies from the stage to it
//!   4. time        closed form, the least of all candidates; ties go to traffic, then to bytes near the unit
//! ```

use super::choose::{Candidate, best_schedule};
use super::gemm::{Feed, Feeder, Gemm};
use super::instructions::{Instruction, instructions};
use super::machine::{Machine, MachineError, Room};
use super::nest::{NestOperand, NestSetup, Pool, Slots, round_up};
use super::objective::{CoreTime, Goal, Timer, products};
use super::operator::{DimRole, OperandRole, Operator, OperatorKind, Unit, bytes_of};
use super::search::{Found, SearchError};
pub use super::shares::{LinkTraffic, PlacedBuffer};
use super::shares::{exchange, staging};
use npumem_ir::device::Precision;
use npumem_ir::{Device, EngineId, SpaceId};
use std::collections::BTreeMap;
use thiserror::Error;

/// Why an operator has no schedule on a device.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TileError {
    /// The device cannot run it, or lacks a figure.
    #[error("{0}")]
    Machine(#[from] MachineError),
    /// No unit for the type.
    #[error("`{device}` has no unit that computes {element}")]
    Element {
        /// The device.
        device: String,
        /// The type.
        element: String,
    },
    /// No tile fits.
    #[error("{operator} on `{device}`: {why}{hint}")]
    DoesNotFit {
        /// The operator.
        operator: String,
        /// The device.
        device: String,
        /// The pool and the bytes.
        why: SearchError,
        /// Which buffers take them.
        hint: String,
    },
}

/// A schedule of one operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The operator.
    pub operator: Operator,
    /// How it runs on the device.
    pub machine: Machine,
    /// What was best.
    pub goal: Goal,
    /// Cores along each dim.
    pub parts: Vec<u64>,
    /// Extents of one core's block.
    pub block: Vec<u64>,
    /// Cores at work.
    pub cores: u64,
    /// The tiles of a block: sizes, order, traffic of one core.
    pub found: Found,
    /// Slots.
    pub slots: Slots,
    /// Dims whose loop runs backwards in every other turn of the loop outside: what was read last is still in the cache.
    pub back_and_forth: Vec<usize>,
    /// The feed of the matrix unit.
    pub feed: Option<Feed>,
    /// The product that the unit sees.
    pub gemm: Gemm,
    /// Buffers with their places.
    pub buffers: Vec<PlacedBuffer>,
    /// Spaces that buffers are in.
    pub rooms: Vec<Room>,
    /// Traffic by link.
    pub links: Vec<LinkTraffic>,
    /// Time.
    pub time: CoreTime,
    /// Cycles, copy by copy.
    pub cycles: f64,
    /// The first statements of one core: engine, start and end.
    pub spans: Vec<(EngineId, f64, f64)>,
    /// The compute roofline and the bandwidth roofline, in cycles.
    pub roofs: [f64; 2],
    /// Nodes of all searches.
    pub work: u64,
    /// Partitions that were searched, of how many.
    pub partitions: (usize, usize),
    /// Remarks.
    pub notes: Vec<String>,
}

impl Schedule {
    /// Seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.cycles / self.machine.clock
    }

    /// No schedule takes fewer cycles: the larger roofline.
    #[must_use]
    pub fn least_cycles(&self) -> f64 {
        self.roofs[0].max(self.roofs[1])
    }
}

/// Largest kernel that is never cut on a device.
const WHOLE_KERNEL: u64 = 64;

/// What the search of one device and operator shares.
pub(crate) struct Bench<'a> {
    pub operator: &'a Operator,
    pub machine: &'a Machine,
    pub gemm: Gemm,
    pub granules: Vec<u64>,
    /// What blocks of cores are cut at: finer than tiles where that leaves fewer cores idle.
    pub cuts: Vec<u64>,
    pub pools: Vec<Pool>,
    pub rooms: Vec<Room>,
    pub operands: Vec<NestOperand>,
    pub instructions: Vec<Instruction>,
    pub largest: Vec<u64>,
    pub exact: Option<Vec<u64>>,
}

/// The machine of an operator on a device.
///
/// # Errors
/// When the device has no unit for it, or lacks a figure.
pub fn machine_for(operator: &Operator, device: &Device) -> Result<Machine, TileError> {
    let precision = Precision::of(operator.computes).ok_or_else(|| TileError::Element {
        device: device.name.clone(),
        element: operator.computes.name().to_owned(),
    })?;
    match Machine::new(device, operator.unit, precision) {
        Ok(machine) => Ok(machine),
        // A vector unit without a figure for the type computes it in f32.
        Err(MachineError::Peak(_)) if operator.unit == Unit::Vector => {
            Ok(Machine::new(device, operator.unit, Precision::F32)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// What is asked of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// What is best.
    pub goal: Goal,
    /// These tiles and no others.
    pub tiles: Option<Vec<u64>>,
    /// These slots and no others.
    pub slots: Option<Slots>,
}

/// The best schedule of an operator on a device.
///
/// # Errors
/// When it cannot run there, or no tile fits.
pub fn schedule(operator: &Operator, device: &Device, goal: Goal) -> Result<Schedule, TileError> {
    schedule_as(operator, device, &Request { goal, ..Request::default() })
}

/// As [`schedule`], with some of it given.
///
/// # Errors
/// When it cannot run there, or no tile fits.
pub fn schedule_as(operator: &Operator, device: &Device, request: &Request) -> Result<Schedule, TileError> {
    let mut found = best_as(operator, device, request)?;
    let known = Precision::of(operator.computes).is_some_and(|type_| found.machine.rates.contains_key(&type_));
    if operator.unit == Unit::Vector && !known {
        let unit = &device.engine(found.machine.unit).name;
        let note = format!("`{unit}` has no figure for {}: it is timed as f32", operator.computes.name());
        found.notes.push(note);
    }
    if let Some(way) = super::emit::unwritten_way(&found, device) {
        found.notes.push(format!("{way} is not in the time, and the schedule has no program"));
    }
    Ok(found)
}

fn best_as(operator: &Operator, device: &Device, request: &Request) -> Result<Schedule, TileError> {
    let machine = machine_for(operator, device)?;
    let whole = whole_kernels(operator);
    let operator = &whole;
    if operator.kind == OperatorKind::Reduce && request.tiles.is_none() {
        // A sum in one go, where it fits: each part is rounded, and `.pto` has no statement that goes on with one.
        let mut at_once = operator.clone();
        at_once.dims.iter_mut().filter(|dim| dim.role == DimRole::Reduction).for_each(|dim| dim.whole = true);
        if let Ok(mut found) = best_schedule(&at_once, &machine, request) {
            found.operator = operator.clone();
            return Ok(found);
        }
    }
    match best_schedule(operator, &machine, request) {
        // Rows that do not fit whole are read twice.
        Err(TileError::DoesNotFit { .. }) if matches!(operator.kind, OperatorKind::Softmax | OperatorKind::Norm) => {
            let mut twice = operator.clone();
            twice.dims.iter_mut().for_each(|dim| dim.whole = false);
            twice.passes = 2;
            let mut found = best_schedule(&twice, &machine, request)?;
            found.notes.push(
                "a row does not fit near the unit: every input is read twice (statistics first, then the result)"
                    .into(),
            );
            Ok(found)
        }
        other => other,
    }
}

/// The same with the dims of small kernels never cut: a part of a window is worth nothing while the whole fits.
pub(crate) fn whole_kernels(operator: &Operator) -> Operator {
    let mut whole = operator.clone();
    for axis in operator.operands.iter().flat_map(|operand| &operand.axes) {
        if let [_, (kernel, _)] = axis.terms.as_slice()
            && operator.dims[*kernel].extent <= WHOLE_KERNEL
        {
            whole.dims[*kernel].whole = true;
        }
    }
    whole
}

/// Bits of the elements of the left and the right operand.
pub(super) fn sides(operator: &Operator) -> [u64; 2] {
    let of = |at: usize| operator.operands.get(at).map_or(16, |operand| operand.element.bits());
    [of(0), of(1)]
}

impl<'a> Bench<'a> {
    pub(crate) fn new(operator: &'a Operator, machine: &'a Machine) -> Self {
        let gemm = Gemm::of(operator);
        let mut granules = vec![1; operator.dims.len()];
        if operator.unit == Unit::Matrix {
            let [fm, fk, fn_] = machine.fractal;
            // One dim alone is cut at the fractal; of several, the last that no window holds.
            for (dims, unit) in [(&gemm.rows, fm), (&gemm.columns, fn_), (&gemm.depth, fk)] {
                let plain = |dim: &&usize| {
                    !operator
                        .operands
                        .iter()
                        .flat_map(|o| &o.axes)
                        .any(|axis| axis.as_plain().is_none() && axis.terms.iter().any(|(at, _)| at == *dim))
                };
                if let Some(dim) = dims.iter().rev().find(plain) {
                    granules[*dim] = unit;
                }
            }
        } else {
            // Whole steps of the vector unit along the innermost axis of the result.
            let out = &operator.operands[operator.output()];
            let bits = out.element.bits().max(1);
            if let Some(dim) = out.axes.last().and_then(super::operator::Axis::as_plain)
                && !operator.dims[dim].whole
            {
                let unit = (machine.left.near.alignment.max(machine.left.hops[0].granularity) * 8 / bits).max(1);
                granules[dim] = unit.min(operator.dims[dim].extent);
            }
        }
        let mut cuts = granules.clone();
        if operator.unit == Unit::Matrix && operator.kind == OperatorKind::Conv {
            // The last rows of a block are filled up to the fractal anyway; only runs should start evenly.
            for dim in gemm.rows.iter().filter(|dim| granules[**dim] > 1) {
                let even = machine.left.hops[0].granularity * 8 / operator.operands[0].element.bits().max(1);
                cuts[*dim] = even.clamp(1, granules[*dim]);
            }
        }
        let mut rooms: Vec<Room> = Vec::new();
        let mut pools: Vec<Pool> = Vec::new();
        let mut pool_of = |room: &Room| match rooms.iter().position(|with| with.space == room.space) {
            Some(at) => at,
            None => {
                rooms.push(room.clone());
                pools.push(Pool { name: room.name.clone(), capacity: room.capacity, alignment: room.alignment });
                rooms.len() - 1
            }
        };
        let operands = operator
            .operands
            .iter()
            .map(|operand| {
                let route = machine.route(operand.side);
                let sums = operand.side == super::operator::Side::Accumulator;
                let room = if sums { &route.near } else { route.stage.as_ref().unwrap_or(&route.near) };
                let row_unit = if operator.unit == Unit::Vector {
                    (room.alignment * 8 / operand.element.bits().max(1)).max(1)
                } else {
                    1
                };
                NestOperand {
                    pool: Some(pool_of(room)),
                    near_bits: if sums { operator.accumulates.bits() } else { operand.element.bits() },
                    row_unit,
                    moved: operand.role != OperandRole::Temporary,
                }
            })
            .collect();
        // Results that leave over another space need a part of it.
        if let Some(stage) = &machine.out.stage {
            let at = pool_of(stage);
            pools[at].capacity -= staging(stage.capacity, stage.alignment);
        }
        // One product at a time: a tile holds one value of the dims that all three sides depend on.
        let batch = |dim: usize| operator.kind == OperatorKind::Matmul && operator.dims[dim].name == "batch";
        let one = |dim: usize| operator.unit == Unit::Matrix && (gemm.batch.contains(&dim) || batch(dim));
        let largest = operator.dims.iter().enumerate().map(|(dim, about)| if one(dim) { 1 } else { about.extent });
        let largest = largest.collect();
        let instructions = if operator.unit == Unit::Vector { instructions(operator) } else { Vec::new() };
        Bench { operator, machine, gemm, granules, cuts, pools, rooms, operands, instructions, largest, exact: None }
    }

    /// Every way to cut the parallel dims into blocks for the cores, the least time first.
    pub(super) fn partitions(&self, feeder: Option<&Feeder<'_>>) -> Vec<(Vec<u64>, f64)> {
        let cores = self.machine.cores;
        let dims: Vec<usize> = (0..self.operator.dims.len())
            .filter(|dim| self.operator.dims[*dim].role == DimRole::Parallel && !self.operator.dims[*dim].whole)
            .collect();
        let mut all: Vec<Vec<u64>> = vec![vec![1; self.operator.dims.len()]];
        for dim in dims {
            let units = self.operator.dims[dim].extent.div_ceil(self.cuts[dim]);
            let mut longer = Vec::new();
            for parts in &all {
                let used: u64 = parts.iter().product();
                let mut last = 0;
                for count in 1..=(cores / used).min(units) {
                    // Only counts that leave no core without work.
                    let real = units.div_ceil(units.div_ceil(count));
                    if real != last {
                        let mut next = parts.clone();
                        next[dim] = real;
                        longer.push(next);
                        last = real;
                    }
                }
            }
            if longer.len() > 20_000 {
                longer.truncate(20_000);
            }
            all = longer;
        }
        let summed = self.operator.dims.iter().position(|dim| dim.role == DimRole::Reduction);
        if let Some(dim) = summed.filter(|_| self.operator.split > 1) {
            // Parts of whole granules, each with some of the sum.
            let units = self.operator.dims[dim].extent.div_ceil(self.cuts[dim]);
            let split = units.div_ceil(units.div_ceil(self.operator.split));
            all.retain(|parts| parts.iter().product::<u64>() * split <= cores.max(split));
            all.iter_mut().for_each(|parts| parts[dim] = split);
        }
        let mut scored: Vec<(Vec<u64>, f64, f64)> = all
            .into_iter()
            .map(|parts| {
                let block = self.block_of(&parts);
                let least = self.least_unit(&block, feeder);
                let bytes: f64 = self
                    .operator
                    .operands
                    .iter()
                    .filter(|operand| operand.role != OperandRole::Temporary)
                    .map(|operand| {
                        let elements: f64 = operand
                            .axes
                            .iter()
                            .map(|axis| {
                                let (first, end) = axis.touched(&|dim| (0, block[dim]));
                                (end - first) as f64
                            })
                            .product();
                        elements * operand.element.bits() as f64 / 8.0
                    })
                    .sum();
                (parts, least, bytes)
            })
            .collect();
        let rate = self.machine.left.hops[0].hit_rate;
        scored.sort_by(|a, b| {
            let key = |one: &(Vec<u64>, f64, f64)| one.1.max(one.2 / rate);
            key(a).total_cmp(&key(b)).then(a.2.total_cmp(&b.2)).then(a.0.cmp(&b.0))
        });
        scored
            .into_iter()
            .map(|(parts, least, bytes)| {
                let floor = least.max(bytes / rate / 2.0);
                (parts, if self.operator.unit == Unit::Matrix { least } else { floor.min(least) })
            })
            .collect()
    }

    pub(super) fn block_of(&self, parts: &[u64]) -> Vec<u64> {
        parts
            .iter()
            .enumerate()
            .map(|(dim, count)| {
                let extent = self.operator.dims[dim].extent;
                let unit = self.cuts[dim];
                (extent.div_ceil(unit).div_ceil(*count) * unit).min(extent)
            })
            .collect()
    }

    /// Cycles that the unit needs at least for a block.
    fn least_unit(&self, block: &[u64], feeder: Option<&Feeder<'_>>) -> f64 {
        let share: f64 =
            self.operator.points as f64 / self.operator.dims.iter().map(|dim| dim.extent as f64).product::<f64>();
        let points: f64 = block.iter().map(|extent| *extent as f64).product::<f64>() * share;
        match feeder {
            Some(_) => points * self.operator.matrix_per_point as f64 / self.machine.rate,
            None => {
                let out = &self.operator.operands[self.operator.output()];
                let elements: f64 =
                    out.axes.iter().map(|axis| axis.as_plain().map_or(axis.extent, |dim| block[dim]) as f64).product();
                (elements * self.operator.vector_per_output as f64 + points * self.operator.vector_per_point as f64)
                    / self.machine.rate
            }
        }
    }

    pub(crate) fn setup(&self, slots: Slots) -> NestSetup {
        NestSetup {
            pools: self.pools.clone(),
            operands: self.operands.clone(),
            granules: self.granules.clone(),
            largest: self.largest.clone(),
            slots,
            spill: false,
            exact: self.exact.clone(),
            coarse: false,
        }
    }

    /// The operator with the extents of one core's block, wherever that lies: its windows reach no padding.
    pub(crate) fn block_operator(&self, parts: &[u64]) -> Operator {
        let mut block = self.operator.clone();
        let extents = self.block_of(parts);
        for axis in block.operands.iter_mut().flat_map(|operand| &mut operand.axes) {
            if axis.as_plain().is_none() && axis.terms.iter().any(|(dim, _)| parts[*dim] > 1) {
                *axis = axis.anywhere(&|dim| extents[dim]);
            }
        }
        for (dim, extent) in block.dims.iter_mut().zip(extents) {
            dim.extent = extent;
        }
        block
    }

    pub(crate) fn timer<'b>(
        &'b self,
        block: &'b Operator,
        parts: &[u64],
        slots: Slots,
        feeder: Option<&'b Feeder<'b>>,
    ) -> Timer<'b> {
        Timer {
            operator: self.operator,
            block,
            machine: self.machine,
            feeder,
            gemm: &self.gemm,
            cores: parts.iter().product(),
            slots,
            granules: &self.granules,
            goal: Goal::Time,
            limit: None,
            least_unit: 0.0,
            instructions: &self.instructions,
            standing: std::cell::RefCell::default(),
            moved: self.operator.operands.iter().map(|operand| self.operator.moved_bytes(operand) as f64).collect(),
        }
    }

    /// Thousandths of cycles that a block needs at least: everything it touches comes once.
    pub(super) fn floor(&self, block: &Operator, parts: &[u64], least: f64) -> u128 {
        let timer = Timer { least_unit: least, ..self.timer(block, parts, Slots::All, None) };
        let (mut read, mut written) = (Vec::new(), Vec::new());
        for operand in &self.operator.operands {
            let bytes = block.moved_bytes(operand);
            let output = operand.role == OperandRole::Output;
            read.push(if output { 0 } else { bytes });
            written.push(if output { bytes } else { 0 });
        }
        (timer.least_cycles(&read, &written).max(0.0) * 1000.0) as u128
    }

    pub(super) fn finish(&self, one: Candidate, goal: Goal, feeder: Option<&Feeder<'_>>) -> Schedule {
        let Candidate { parts, slots, found, time, cycles, spans, .. } = one;
        let operator = self.operator;
        let cores: u64 = parts.iter().product();
        let feed = feeder.and_then(|feeder| {
            products(operator, &self.gemm, &found.tiles).first().and_then(|(size, _)| feeder.feed(*size))
        });
        let block = self.block_of(&parts);
        let buffers = self.buffers(&found, feed.as_ref());
        let mut back_and_forth = Vec::new();
        let links = self.links(&parts, &block, &found, feed.as_ref(), &mut back_and_forth);
        let machine = self.machine;
        let all = machine.rate * machine.cores as f64;
        let operations =
            if operator.unit == Unit::Matrix { operator.matrix_operations() } else { operator.vector_operations() };
        let roofs = [operations / all, operator.compulsory_bytes() as f64 / machine.main_rate];
        let mut notes = Vec::new();
        if operator.unit == Unit::Matrix && operator.vector_per_output > 0 {
            notes.push("the functions after the product are taken to run on the way out of the accumulators; their time is not counted".into());
        }
        if exchange(operator, machine) > 0 {
            notes.push("matrix and vector cores share no memory nearer than the cache: scores and weights cross it, and their time and the softmax's are not counted".into());
        }
        if operator.split > 1 {
            let summed = operator.dims.iter().position(|dim| dim.role == DimRole::Reduction);
            notes.push(format!(
                "split-K: the memory adds {} partial results in {} to what is there (0 before): their order is not said, and reading what is there is not in the time",
                summed.map_or(1, |dim| parts[dim]),
                operator.accumulates.name()
            ));
        }
        Schedule {
            operator: operator.clone(),
            machine: machine.clone(),
            goal,
            parts,
            block,
            cores,
            found,
            slots,
            back_and_forth,
            feed,
            gemm: self.gemm.clone(),
            buffers,
            rooms: self.rooms.clone(),
            links,
            cycles,
            spans,
            time,
            roofs,
            work: 0,
            partitions: (0, 0),
            notes,
        }
    }

    /// Every buffer with its place: one after another in each space.
    pub(crate) fn buffers(&self, found: &Found, feed: Option<&Feed>) -> Vec<PlacedBuffer> {
        let mut next: BTreeMap<SpaceId, u64> = BTreeMap::new();
        let mut buffers = Vec::new();
        let mut place = |name: String, operand: usize, room: &Room, bytes: u64, slots: u64| {
            let at = next.entry(room.space).or_insert(room.start);
            let pitch = round_up(bytes, room.alignment);
            let offset = round_up(*at, room.alignment);
            *at = offset.saturating_add(pitch.saturating_mul(slots));
            buffers.push(PlacedBuffer {
                name,
                operand,
                space: room.space,
                space_name: room.name.clone(),
                bytes,
                pitch,
                slots,
                offset,
            });
        };
        for (at, operand) in self.operator.operands.iter().enumerate() {
            let Some(pool) = self.operands[at].pool else { continue };
            let bytes = if self.operator.unit == Unit::Matrix && operand.role == OperandRole::Output {
                // Rows of several dims are rounded up together.
                found.slot_bytes[at].max(self.sum_bytes(found, at))
            } else {
                found.slot_bytes[at]
            };
            place(operand.name.clone(), at, &self.rooms[pool], bytes, found.slots[at]);
        }
        if let Some(feed) = feed {
            for (side, route) in [&self.machine.left, &self.machine.right].into_iter().enumerate() {
                if route.stage.is_some() && feed.slots[side] > 0 {
                    let name = format!("{}_{}", self.operator.operands[side].name, route.near.name);
                    place(name, side, &route.near, feed.bytes[side], feed.slots[side]);
                }
            }
        }
        if let Some(stage) = &self.machine.out.stage {
            let out = self.operator.output();
            let name = format!("{}_{}", self.operator.operands[out].name, stage.name);
            place(
                name,
                out,
                stage,
                staging(stage.capacity, stage.alignment) / 2 / stage.alignment * stage.alignment,
                2,
            );
        }
        buffers
    }

    fn sum_bytes(&self, found: &Found, operand: usize) -> u64 {
        if self.operator.kind == OperatorKind::Attention {
            return 0;
        }
        let [m, _, n, batch] = self.gemm.size(&found.tiles);
        let [fm, _, fn_] = self.machine.fractal;
        round_up(m, fm) * round_up(n, fn_) * batch * self.operands[operand].near_bits / 8
    }

    pub(super) fn does_not_fit(&self, why: SearchError) -> TileError {
        let smallest: Vec<String> = self
            .operator
            .operands
            .iter()
            .enumerate()
            .filter_map(|(at, operand)| {
                let pool = self.operands[at].pool?;
                let SearchError::TooSmall { pool: full, .. } = &why;
                if self.pools[pool].name != *full {
                    return None;
                }
                let elements: u128 = operand
                    .axes
                    .iter()
                    .map(|axis| {
                        u128::from(match axis.as_plain() {
                            Some(dim) if !self.operator.dims[dim].whole => self.granules[dim],
                            Some(dim) => self.operator.dims[dim].extent,
                            None if axis.terms.is_empty() => axis.extent,
                            None => {
                                let (first, end) = axis.touched(&|dim| {
                                    (0, if self.operator.dims[dim].whole { self.operator.dims[dim].extent } else { 1 })
                                });
                                end - first
                            }
                        })
                    })
                    .product();
                Some(format!("'{}' {} B", operand.name, bytes_of(elements, self.operands[at].near_bits)))
            })
            .collect();
        TileError::DoesNotFit {
            operator: self.operator.name.clone(),
            device: self.machine.device.clone(),
            why,
            hint: format!(" (its smallest buffers: {})", smallest.join(", ")),
        }
    }
}
