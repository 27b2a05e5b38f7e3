//! A schedule as a tile-level program: what the checker, the simulator and other tools read.
//!
//! ```text
//!   for each core:  part of every dim from the grid index
//!     for m, for n ...                         loops of the schedule, outermost first
//!       load a {slot}   when its innermost loop turns
//!       for k
//!         load b {slot}
//!         feed and multiply                    the first turn of the sum writes, the others add
//!       store c                                when the sum is complete
//! ```
//!
//! Tiles need not divide: the last ones are shorter, by computed scalars. Positions of windows are held within the data.

mod access;
mod compute;
mod points;

use super::operator::{DimRole, OperandRole, Operator, OperatorKind, Unit};
use super::schedule::{PlacedBuffer, Schedule};
use npumem_ir::program::{Affine, Buffer, Layout, Op, Program, ProgramBuilder, ProgramError, ScalarKind};
use npumem_ir::{Alignment, BufferId, Device, ElementType};
use thiserror::Error;

/// Why a schedule has no program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EmitError {
    /// Something that programs do not express yet.
    #[error(
        "{operator}: {what} cannot be written as a program yet; its sizes and offsets are in the JSON and the header"
    )]
    NotYet {
        /// The operator.
        operator: String,
        /// What.
        what: String,
    },
    /// The program breaks a rule: a bug.
    #[error("{0}")]
    Program(#[from] ProgramError),
}

/// What is built up.
pub(super) struct Writer<'a> {
    pub schedule: &'a Schedule,
    pub operator: &'a Operator,
    pub device: &'a Device,
    pub builder: ProgramBuilder,
    /// Where a tile of each dim starts, and how long it is.
    pub start: Vec<Affine>,
    pub length: Vec<Affine>,
    /// The loop index of each dim, when it has a loop.
    pub index: Vec<Option<Affine>>,
    /// Memory of the caller, by operand.
    pub outside: Vec<Option<BufferId>>,
    /// Buffers of the schedule, in its order.
    pub inside: Vec<BufferId>,
}

/// The program of a schedule, with every buffer at its offset.
///
/// # Errors
/// When the operator has something that programs do not express.
pub fn program(schedule: &Schedule, device: &Device) -> Result<Program, EmitError> {
    let operator = &schedule.operator;
    let not_yet = |what: &str| EmitError::NotYet { operator: operator.name.clone(), what: what.to_owned() };
    if operator.passes > 1 {
        return Err(not_yet("a row that is read twice"));
    }
    let out = &operator.operands[operator.output()];
    if operator.split > 1 && (out.element != operator.accumulates || operator.vector_per_output > 0) {
        let sums = operator.accumulates.name();
        return Err(not_yet(&format!(
            "a split whose parts are not added in memory as they are (give c={sums}, and no bias, residual or act)"
        )));
    }
    if operator.kind == OperatorKind::Attention && schedule.machine.softmax.is_none() {
        return Err(not_yet("attention on a device whose vector units are in other cores"));
    }
    if let Some(dim) = schedule.gemm.batch.iter().find(|dim| schedule.found.tiles[**dim] > 1) {
        let name = &operator.dims[*dim].name;
        return Err(not_yet(&format!("a tile of several products ({name} = {})", schedule.found.tiles[*dim])));
    }
    if let Some(lack) = unwritten_way(schedule, device) {
        return Err(not_yet(&lack));
    }
    let mut writer = Writer::new(schedule, device);
    writer.cut();
    writer.walk(0);
    Ok(writer.builder.finish()?)
}

/// A way of the schedule that programs do not express: operands or results that pass a space on which the unit does not work.
#[must_use]
pub fn unwritten_way(schedule: &Schedule, device: &Device) -> Option<String> {
    let machine = &schedule.machine;
    let name = |space: npumem_ir::SpaceId| device.space(space).name.clone();
    let unit = &device.engine(machine.unit).name;
    if let Some(stage) = &machine.out.stage {
        return Some(format!("the way of results from {} over {} to main memory", machine.out.near.name, stage.name));
    }
    let near = machine.left.near.space;
    if !device.reads(machine.unit, near) {
        return Some(format!("the way from {} to what `{unit}` reads", name(near)));
    }
    (!device.writes(machine.unit, machine.out.near.space))
        .then(|| format!("the way from what `{unit}` writes to {}", machine.out.near.name))
}

impl<'a> Writer<'a> {
    fn new(schedule: &'a Schedule, device: &'a Device) -> Self {
        let operator = &schedule.operator;
        let mut builder = ProgramBuilder::new(operator.kind.word());
        builder.program_mut().target = Some(device.name.clone());
        let main = device.space(schedule.machine.main).name.clone();
        let outside = operator
            .operands
            .iter()
            .map(|operand| {
                (operand.role != OperandRole::Temporary).then(|| {
                    builder.buffer(Buffer {
                        element: operand.element,
                        shape: operand.axes.iter().map(|axis| axis.extent).collect(),
                        ..Buffer::external(format!("{}_gm", operand.name), main.clone(), Some(operand.bytes()))
                    })
                })
            })
            .collect();
        let inside = schedule
            .buffers
            .iter()
            .map(|placed| {
                let address = i64::try_from(placed.offset).unwrap_or(i64::MAX);
                let alignment = rooms(schedule, placed).unwrap_or(1);
                builder.buffer(Buffer {
                    slots: u32::try_from(placed.slots).unwrap_or(1).max(1),
                    alignment: Alignment::new(alignment).unwrap_or_default(),
                    element: near_element(schedule, placed),
                    layout: Layout::RowMajor,
                    address: Some(Affine::constant(address)),
                    ..Buffer::tile(placed.name.clone(), placed.space_name.clone(), placed.bytes)
                })
            })
            .collect();
        let dims = operator.dims.len();
        let mut writer = Writer {
            schedule,
            operator,
            device,
            builder,
            start: vec![Affine::constant(0); dims],
            length: vec![Affine::constant(0); dims],
            index: vec![None; dims],
            outside,
            inside,
        };
        writer.describe();
        writer
    }

    /// Whether the unit's rows are taken from all over the tile in the stage, which lies as it came: those of windows, and
    /// of a transposed side whose tiles do not fill its blocks.
    pub(super) fn by_index(&self, side: usize) -> bool {
        self.is_fed() && (self.operator.kind == OperatorKind::Conv || self.lies_turned(side) && !self.turns_whole(side))
    }

    /// Whether every tile of a transposed side is whole, or lies so that it need not be: elements of two bytes, and what
    /// the unit reads where it lies.
    fn turns_whole(&self, side: usize) -> bool {
        if side == 1 || !self.is_fed() || self.operator.operands[side].element.bits() == 16 {
            return true;
        }
        let [fm, fk, fn_] = self.schedule.machine.fractal;
        let unit = fm.max(fk).max(fn_);
        let whole = |dim: usize| self.divides(dim) && self.schedule.found.tiles[dim].is_multiple_of(unit);
        let touched = (0..self.operator.dims.len()).filter(|dim| self.operator.operands[side].touches(*dim));
        touched.filter(|dim| !self.schedule.gemm.batch.contains(dim)).all(whole)
    }

    /// The shapes and layouts of tiles whose rows and columns are plain.
    fn describe(&mut self) {
        let conv = self.operator.kind == OperatorKind::Conv && self.is_fed();
        if self.operator.kind != OperatorKind::Matmul && !conv {
            return;
        }
        let [m, k, n, _] = self.schedule.gemm.size(&self.schedule.found.tiles);
        let [fm, fk, fn_] = self.schedule.machine.fractal;
        let up = |size: u64, unit: u64| size.div_ceil(unit) * unit;
        let step = self.schedule.feed.filter(|feed| feed.slots[0] > 0).map(|feed| feed.step);
        for at in 0..self.inside.len() {
            let operand = self.schedule.buffers[at].operand;
            let first = self.buffer(operand).is_some_and(|(with, _)| with == at);
            let [m, k, n] = if first { [m, k, n] } else { step.unwrap_or([m, k, n]) };
            if first && operand < 2 && self.by_index(operand) {
                continue;
            }
            let shape = match self.operator.operands[operand].side {
                super::operator::Side::Left => [up(m, fm), up(k, fk)],
                super::operator::Side::Right => [up(k, fk), up(n, fn_)],
                super::operator::Side::Accumulator => [up(m, fm), up(n, fn_)],
                super::operator::Side::Vector => continue,
            };
            let right = self.operator.operands[operand].side == super::operator::Side::Right;
            let layout = match (right && !first, conv) {
                (true, _) => access::RIGHT,
                (false, true) => {
                    Layout::Fractal { outer_col: true, inner_col: false, bytes: if first { 1024 } else { 512 } }
                }
                (false, false) => self.near_layout(operand),
            };
            let buffer = &mut self.builder.program_mut().buffers[self.inside[at].index()];
            buffer.shape = shape.to_vec();
            buffer.layout = layout;
        }
    }

    /// The block of this core: start and length along each dim, from the grid index.
    fn cut(&mut self) {
        let cores = self.schedule.cores;
        let grid = (cores > 1).then(|| Affine::scalar(self.builder.scalar("core", ScalarKind::Grid(Some(cores)))));
        let mut stride = 1_u64;
        for dim in (0..self.operator.dims.len()).rev() {
            let parts = self.schedule.parts[dim];
            let (extent, block) = (self.operator.dims[dim].extent, self.schedule.block[dim]);
            let (start, length) = match &grid {
                Some(grid) if parts > 1 => {
                    let over = self.builder.value(Op::Div, vec![grid.clone(), number(stride)]);
                    let part = if stride * parts == cores {
                        over
                    } else {
                        self.builder.value(Op::Rem, vec![over, number(parts)])
                    };
                    let start = part.times(signed(block));
                    let rest = number(extent).minus(&start);
                    let length = if parts * block == extent {
                        number(block)
                    } else {
                        self.builder.value(Op::Min, vec![rest, number(block)])
                    };
                    (start, length)
                }
                _ => (number(0), number(block.min(extent))),
            };
            stride *= parts;
            self.start[dim] = start;
            self.length[dim] = length;
        }
    }

    /// Opens the loops from `depth` inwards, with what happens at each.
    fn walk(&mut self, depth: usize) {
        // Bounded by the number of dims.
        let order = &self.schedule.found.order;
        self.load_at(depth);
        let Some(&dim) = order.get(depth) else {
            self.compute();
            self.store_at(depth);
            return;
        };
        let (start, length) = (self.start[dim].clone(), self.length[dim].clone());
        let tile = self.schedule.found.tiles[dim];
        let count = self.builder.value(Op::Div, vec![length.plus(&number(tile - 1)), number(tile)]);
        let name = format!("{}_tile", self.operator.dims[dim].name);
        let index = Affine::scalar(self.builder.begin_for(name, 0, count.clone(), 1));
        let place = self.back_and_forth(dim, depth, &index, &count);
        let offset = place.times(signed(tile));
        self.start[dim] = start.plus(&offset);
        self.length[dim] = if self.divides(dim) {
            number(tile)
        } else {
            let rest = length.minus(&offset);
            self.builder.value(Op::Min, vec![rest, number(tile)])
        };
        self.index[dim] = Some(index);
        self.walk(depth + 1);
        self.builder.end();
        self.start[dim] = start;
        self.length[dim] = length;
        self.index[dim] = None;
        self.store_at(depth);
    }

    /// Which tile a turn is at: from the end in every other turn of the loop outside, where the schedule goes back and forth.
    fn back_and_forth(&mut self, dim: usize, depth: usize, index: &Affine, count: &Affine) -> Affine {
        let outside = depth.checked_sub(1).and_then(|at| self.index[self.schedule.found.order[at]].clone());
        let (true, Some(outside)) = (self.schedule.back_and_forth.contains(&dim), outside) else {
            return index.clone();
        };
        let odd = self.builder.value(Op::Rem, vec![outside, number(2)]);
        let from_end = count.minus(index).minus(&number(1));
        self.builder.value(Op::Select, vec![odd, from_end, index.clone()])
    }

    /// Whether every tile of a dim is whole, in every block.
    fn divides(&self, dim: usize) -> bool {
        let (extent, block) = (self.operator.dims[dim].extent, self.schedule.block[dim]);
        let tile = self.schedule.found.tiles[dim];
        block.is_multiple_of(tile) && (extent.is_multiple_of(block) || (extent % block).is_multiple_of(tile))
    }

    /// How many loops stand outside of, and including, the innermost one that an operand depends on.
    pub(super) fn depth_of(&self, operand: usize) -> usize {
        let operand = &self.operator.operands[operand];
        let last = self.schedule.found.order.iter().rposition(|dim| operand.touches(*dim));
        last.map_or(0, |at| at + 1)
    }

    /// The number of a copy, one more for each: it chooses the slot.
    pub(super) fn turn(&self, depth: usize) -> Affine {
        let mut turn = number(0);
        for dim in &self.schedule.found.order[..depth] {
            let count = self.schedule.block[*dim].div_ceil(self.schedule.found.tiles[*dim]);
            turn = turn.times(signed(count)).plus(&self.index[*dim].clone().unwrap_or_default());
        }
        turn
    }

    fn load_at(&mut self, depth: usize) {
        for at in 0..self.operator.operands.len() {
            if self.operator.operands[at].role == OperandRole::Input && self.depth_of(at) == depth {
                self.load(at);
            }
        }
    }

    /// Results leave, and what is added to them comes, at the end of the innermost loop that they depend on.
    fn store_at(&mut self, depth: usize) {
        let out = self.operator.output();
        if self.depth_of(out) != depth {
            return;
        }
        for at in 0..self.operator.operands.len() {
            if self.operator.operands[at].role == OperandRole::Late {
                self.load(at);
            }
        }
        self.finish_tile();
        self.store();
    }

    /// 1 in the first turn of all loops that are summed over.
    pub(super) fn first_turn(&mut self, more: Option<Affine>) -> Affine {
        let mut sum = more.unwrap_or_default();
        for dim in &self.schedule.found.order {
            if self.operator.dims[*dim].role == DimRole::Reduction {
                sum = sum.plus(&self.index[*dim].clone().unwrap_or_default());
            }
        }
        self.builder.value(Op::Eq, vec![sum, number(0)])
    }

    /// The buffer that a tile of an operand lies in, and its place in the schedule's list.
    pub(super) fn buffer(&self, operand: usize) -> Option<(usize, BufferId)> {
        let at = self.schedule.buffers.iter().position(|placed| placed.operand == operand)?;
        Some((at, self.inside[at]))
    }

    /// Whether the unit reads through buffers of its own (L0A, L0B).
    pub(super) fn is_fed(&self) -> bool {
        self.operator.unit == Unit::Matrix && self.schedule.feed.is_some_and(|feed| feed.slots[0] > 0)
    }

    pub(super) fn is_attention(&self) -> bool {
        self.operator.kind == OperatorKind::Attention
    }
}

/// The alignment of the space of a buffer.
fn rooms(schedule: &Schedule, placed: &PlacedBuffer) -> Option<u64> {
    let machine = &schedule.machine;
    [&machine.left, &machine.right, &machine.out]
        .into_iter()
        .flat_map(|route| route.stage.iter().chain([&route.near]))
        .find(|room| room.space == placed.space)
        .map(|room| room.alignment)
}

/// What the elements of a buffer are: sums that are not complete may be wider.
pub(super) fn near_element(schedule: &Schedule, placed: &PlacedBuffer) -> ElementType {
    let operand = &schedule.operator.operands[placed.operand];
    let sums = operand.side == super::operator::Side::Accumulator;
    let in_sums = placed.space == schedule.machine.out.near.space;
    if sums && in_sums { schedule.operator.accumulates } else { operand.element }
}

pub(super) fn number(value: u64) -> Affine {
    Affine::constant(signed(value))
}

pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
