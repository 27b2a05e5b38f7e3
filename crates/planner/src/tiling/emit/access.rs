//! Which bytes a tile is, in main memory and near the unit.

use super::points::{Place, Said};
use super::{Writer, number, signed};
use crate::tiling::operator::{Axis, OperandRole, OperatorKind, Side, Unit};
use npumem_ir::program::points::{How, Join};
use npumem_ir::program::{ATOMIC, Access, Affine, Extent, Layout, Op, Operation, Root, THEN};

/// How the right side of a product lies next to the matrix unit: blocks along rows, elements down columns (the PTO
/// dialect's `right` tile, `blayout=row_major, slayout=col_major`).
pub(super) const RIGHT: Layout = Layout::Fractal { outer_col: false, inner_col: true, bytes: 512 };

impl Writer<'_> {
    /// First position of an axis that the tile touches, and how many.
    pub(super) fn touched(&mut self, axis: &Axis) -> (Affine, Affine) {
        if axis.terms.is_empty() {
            return (number(0), number(axis.extent));
        }
        if let Some(dim) = axis.as_plain() {
            return (self.start[dim].clone(), self.length[dim].clone());
        }
        let (mut least, mut most) = (Affine::constant(axis.offset), Affine::constant(axis.offset));
        for (dim, factor) in &axis.terms {
            let low = self.start[*dim].times(*factor);
            let high = self.start[*dim].plus(&self.length[*dim]).minus(&number(1)).times(*factor);
            let (low, high) = if *factor >= 0 { (low, high) } else { (high, low) };
            least = least.plus(&low);
            most = most.plus(&high);
        }
        if axis.divide > 1 {
            least = self.builder.value(Op::Div, vec![least, number(axis.divide)]);
            most = self.builder.value(Op::Div, vec![most, number(axis.divide)]);
        }
        let first = self.builder.value(Op::Max, vec![least, number(0)]);
        let end = self.builder.value(Op::Min, vec![most.plus(&number(1)), number(axis.extent)]);
        let count = self.builder.value(Op::Max, vec![end.minus(&first), number(0)]);
        (first, count)
    }

    /// The tile of an operand in main memory.
    pub(super) fn far(&mut self, operand: usize) -> Option<Access> {
        let about = &self.operator.operands[operand];
        let outside = self.outside[operand]?;
        let bits = about.element.bits();
        let mut pitch: Vec<u64> = vec![1; about.axes.len()];
        for at in (0..about.axes.len().saturating_sub(1)).rev() {
            pitch[at] = pitch[at + 1].saturating_mul(about.axes[at + 1].extent);
        }
        let bytes = |elements: u64| signed((elements.saturating_mul(bits)).div_ceil(8));
        let (mut start, mut extents, mut shape) = (number(0), Vec::new(), Vec::new());
        for (at, (axis, pitch)) in about.axes.clone().iter().zip(pitch).enumerate() {
            let (first, count) = self.touched(axis);
            start = start.plus(&first.times(bytes(pitch)));
            // The rows and columns of a product are there even where they are one.
            let of_product = self.operator.kind == OperatorKind::Matmul && at + 2 >= about.axes.len();
            if axis.extent > 1 || of_product {
                extents.push(Extent { count: count.clone(), stride: bytes(pitch) });
            }
            shape.push(count);
        }
        self.one_product(&mut shape);
        if self.is_turned(operand) {
            // Seen with rows and columns exchanged, as the product takes it.
            shape.reverse();
            let plain = about.axes.iter().rev().take(2).all(|axis| axis.extent > 1);
            if let (true, Some(last)) = (plain, extents.len().checked_sub(1)) {
                extents.swap(last - 1, last);
            }
        }
        if extents.is_empty() {
            extents.push(Extent { count: number(1), stride: bytes(1) });
        }
        Some(Access { start, extents, shape, ..Access::whole(Root::Buffer(outside), about.element) })
    }

    /// The slot of an operand's buffer in this turn, as the operation sees it.
    pub(super) fn near(&mut self, operand: usize) -> Option<Access> {
        let (at, buffer) = self.buffer(operand)?;
        let placed = &self.schedule.buffers[at];
        let element = super::near_element(self.schedule, placed);
        let slot = if placed.slots > 1 { self.turn(self.depth_of(operand)) } else { number(0) };
        let axes = self.operator.operands[operand].axes.clone();
        let mut shape: Vec<Affine> = axes.iter().map(|axis| self.touched(axis).1).collect();
        self.one_product(&mut shape);
        if self.is_turned(operand) {
            shape.reverse();
        }
        let layout = self.near_layout(operand);
        Some(Access { slot, shape, layout, ..Access::whole(Root::Buffer(buffer), element) })
    }

    /// A tile of a product is rows and columns: several of a batch are more rows, one after the other.
    fn one_product(&mut self, shape: &mut Vec<Affine>) {
        if self.operator.kind != OperatorKind::Matmul || shape.len() <= 2 {
            return;
        }
        for batch in shape.drain(..shape.len() - 2).collect::<Vec<_>>() {
            shape[0] = match (batch.as_constant(), shape[0].as_constant()) {
                (Some(1), _) => continue,
                (Some(times), _) => shape[0].times(times),
                (None, Some(times)) => batch.times(times),
                (None, None) => self.builder.value(Op::Mul, vec![batch, shape[0].clone()]),
            };
        }
    }

    /// How a tile lies near the unit: in the blocks of the matrix unit where it has buffers of its own.
    pub(super) fn near_layout(&self, operand: usize) -> Layout {
        let fed = self.is_fed() && self.operator.kind == OperatorKind::Matmul;
        let turned = self.is_turned(operand);
        if operand < 2 && self.by_index(operand) {
            return Layout::RowMajor;
        }
        match self.operator.operands[operand].side {
            Side::Left | Side::Right if fed && turned => RIGHT,
            // Only elements of two bytes fill blocks of 16 rows by 16 columns: others lie as the unit takes them.
            Side::Right if fed && self.schedule.machine.fractal[1] != 16 => RIGHT,
            Side::Left | Side::Right if fed => Layout::Fractal { outer_col: true, inner_col: false, bytes: 512 },
            Side::Accumulator if fed => Layout::Fractal { outer_col: true, inner_col: false, bytes: 1024 },
            Side::Left | Side::Right if turned => Layout::ColMajor,
            _ => Layout::RowMajor,
        }
    }

    /// An access seen as rows and columns.
    pub(super) fn seen_as(access: &Access, rows: Affine, columns: Affine, layout: Layout) -> Access {
        Access { shape: vec![rows, columns], layout, ..access.clone() }
    }

    pub(super) fn engine_name(&self, engine: npumem_ir::EngineId) -> String {
        self.device.engine(engine).name.clone()
    }

    pub(super) fn load(&mut self, operand: usize) {
        let (Some(from), Some(to)) = (self.far(operand), self.near(operand)) else { return };
        let about = &self.operator.operands[operand];
        let hop = &self.schedule.machine.route(about.side).hops[0];
        // What is added at the end comes the way of the other inputs, wherever it is used.
        let hop = if about.role == OperandRole::Late { &self.schedule.machine.left.hops[0] } else { hop };
        let engine = self.engine_name(hop.engine);
        let mut load = Operation { reads: vec![from], writes: vec![to], ..Operation::new("tload", engine) };
        // Read once, while others come back to what they read: it leaves the cache first.
        let once = self.schedule.found.order.iter().all(|dim| about.touches(*dim));
        if !self.schedule.back_and_forth.is_empty() && once {
            load.attributes.insert("cache".into(), "first-out".into());
        }
        self.builder.run(load);
    }

    pub(super) fn store(&mut self) {
        let out = self.operator.output();
        let (Some(mut from), Some(to)) = (self.near(out), self.far(out)) else { return };
        let engine = self.engine_name(self.schedule.machine.out.hops[0].engine);
        let product = self.operator.unit == Unit::Matrix && !self.is_attention();
        // The unit that stores applies them, where no vector unit of the core reaches the sums.
        let late: Vec<usize> = if product && self.finisher().is_none() { self.late() } else { Vec::new() };
        let functions = product && self.finisher().is_none() && !self.operator.epilogue.is_empty();
        let turned = self.operator.kind == OperatorKind::Conv && self.is_fed();
        let gemm = self.schedule.gemm.clone();
        let mut said = None;
        if turned || !late.is_empty() || functions {
            let mut sums = self.places(out);
            if self.is_fed() {
                let (rows, columns) = (self.product_of(&gemm.rows), self.product_of(&gemm.columns));
                if turned {
                    let layout = Layout::Fractal { outer_col: true, inner_col: false, bytes: 1024 };
                    from = Self::seen_as(&from, rows.clone(), columns.clone(), layout);
                }
                sums = vec![Place::flat(&gemm.rows, number(0), rows), Place::flat(&gemm.columns, number(0), columns)];
            }
            let mut terms = vec![(Join::Add, 0, sums)];
            terms.extend(late.iter().enumerate().map(|(place, at)| (Join::Add, place + 1, self.places(*at))));
            said = Some(Said { how: How::Set, result: self.places(out), terms });
        }
        let reads = std::iter::once(from).chain(late.iter().filter_map(|at| self.near(*at))).collect();
        let mut store = Operation { reads, writes: vec![to], ..Operation::new("tstore", engine) };
        if self.operator.split > 1 {
            // Each core has a part of the sum.
            store.attributes.insert(ATOMIC.into(), "add".into());
        }
        if let Some(said) = said {
            self.say(&mut store, &said, &[]);
        }
        if functions {
            store.attributes.insert(THEN.into(), self.operator.epilogue.join(","));
        }
        self.builder.run(store);
    }

    /// What is added to results that are complete.
    pub(super) fn late(&self) -> Vec<usize> {
        let operands = &self.operator.operands;
        (0..operands.len()).filter(|at| operands[*at].role == OperandRole::Late).collect()
    }
}
