//! The statements of the unit: products with their feed, and chains of vector functions.

use super::{Writer, number, signed};
use crate::tiling::instructions::{Instruction, Over, instructions, unsaid};
use crate::tiling::operator::{Axis, DimRole, Operator, OperatorKind, Unit};
use npumem_ir::program::{Access, Affine, Extent, InPlace, Layout, Op, Operation, UNWRITTEN};
use std::collections::BTreeMap;

impl Writer<'_> {
    /// What the unit does with the tiles that are near.
    pub(super) fn compute(&mut self) {
        match self.operator.unit {
            _ if self.is_attention() => self.attention(),
            Unit::Matrix if self.is_fed() => self.fed_product(),
            Unit::Matrix => self.product(),
            Unit::Vector => self.vector(),
        }
    }

    /// Functions that are applied to a complete tile of a product.
    pub(super) fn finish_tile(&mut self) {
        let operator = self.operator;
        if operator.unit != Unit::Matrix {
            return;
        }
        let out = operator.output();
        let Some(engine) = self.finisher() else { return };
        let name = self.engine_name(engine);
        for (at, operand) in operator.operands.iter().enumerate() {
            if operand.role != crate::tiling::operator::OperandRole::Late {
                continue;
            }
            if let (Some(sum), Some(with)) = (self.near(out), self.near(at)) {
                let word =
                    if operand.axes.len() < operator.operands[out].axes.len() { "tcolexpandadd" } else { "tadd" };
                self.elementwise(word, &name, vec![sum.clone(), with], sum);
            }
        }
        for function in operator.epilogue.clone() {
            if let Some(sum) = self.near(out) {
                self.elementwise(&format!("t{function}"), &name, vec![sum.clone()], sum);
            }
        }
    }

    /// The vector unit that reaches complete sums; without one the unit that stores applies the functions on the way out.
    pub(super) fn finisher(&self) -> Option<npumem_ir::EngineId> {
        let sums = self.schedule.machine.out.near.space;
        let found = self.device.engines().find(|(id, engine)| {
            engine.kind == npumem_ir::device::EngineKind::Vector
                && engine.core == self.device.engine(self.schedule.machine.unit).core
                && self.device.reads(*id, sums)
                && self.device.writes(*id, sums)
        });
        found.map(|(id, _)| id)
    }

    fn elementwise(&mut self, word: &str, engine: &str, reads: Vec<Access>, write: Access) {
        let in_place = InPlace::Elementwise;
        self.builder.run(Operation { reads, writes: vec![write], in_place, ..Operation::new(word, engine) });
    }

    /// Product of the lengths of some dims.
    fn product_of(&mut self, dims: &[usize]) -> Affine {
        let mut product = number(1);
        for dim in dims {
            let length = self.length[*dim].clone();
            product = self.builder.value(Op::Mul, vec![product, length]);
        }
        product
    }

    /// One product of the tiles as they lie near the unit.
    fn product(&mut self) {
        let gemm = self.schedule.gemm.clone();
        let (m, k, n) = (self.product_of(&gemm.rows), self.product_of(&gemm.depth), self.product_of(&gemm.columns));
        let (Some(a), Some(b), Some(c)) = (self.near(0), self.near(1), self.near(self.operator.output())) else {
            return;
        };
        let (left, right) = (self.near_layout(0), self.near_layout(1));
        let (a, b, c) = (
            Self::seen_as(&a, m.clone(), k.clone(), left),
            Self::seen_as(&b, k, n.clone(), right),
            Self::seen_as(&c, m, n, Layout::RowMajor),
        );
        let engine = self.engine_name(self.schedule.machine.unit);
        let first = self.first_turn(None);
        self.accumulate(first, &engine, a, b, c);
    }

    /// Whether a side of a product lies in memory with its rows and columns exchanged.
    pub(super) fn is_turned(&self, side: usize) -> bool {
        if side > 1 {
            return false;
        }
        let last = self.operator.operands[side].axes.last().and_then(Axis::as_plain);
        let inner = if side == 0 { &self.schedule.gemm.depth } else { &self.schedule.gemm.columns };
        self.operator.kind == OperatorKind::Matmul && last.is_some_and(|dim| !inner.contains(&dim))
    }

    /// `c = a b` in the first turn of the sum, `c += a b` in the others.
    fn accumulate(&mut self, first: Affine, engine: &str, a: Access, b: Access, c: Access) {
        let known = first.as_constant();
        let word = |acc: &str| {
            if self.operator.kind == OperatorKind::Conv && !self.is_fed() {
                format!("tconv{acc}")
            } else {
                format!("tmatmul{acc}")
            }
        };
        let (begin, go_on) = (word(""), word(".acc"));
        let in_place = InPlace::Always;
        let out = &self.operator.operands[self.operator.output()];
        let last = out.axes.last().and_then(Axis::as_plain);
        let mut columns = self.schedule.gemm.columns.iter();
        let batches = columns.any(|dim| Some(*dim) != last && self.schedule.found.tiles[*dim] > 1);
        let several = (batches && self.operator.kind == OperatorKind::Matmul)
            .then(|| (UNWRITTEN.to_owned(), "of several products that share their left side".to_owned()));
        let attributes: BTreeMap<String, String> = several.into_iter().collect();
        let start = Operation {
            reads: vec![a.clone(), b.clone()],
            writes: vec![c.clone()],
            in_place,
            attributes: attributes.clone(),
            ..Operation::new(begin, engine)
        };
        let add = Operation {
            reads: vec![c.clone(), a, b],
            writes: vec![c],
            in_place,
            attributes,
            ..Operation::new(go_on, engine)
        };
        match known {
            Some(0) => {
                self.builder.run(add);
            }
            Some(_) => {
                self.builder.run(start);
            }
            None => {
                self.builder.begin_if(first);
                self.builder.run(start);
                self.builder.otherwise();
                self.builder.run(add);
                self.builder.end();
            }
        }
    }

    /// Steps of the unit over a tile in the stage, each fed by a copy of its two sides.
    fn fed_product(&mut self) {
        let Some(feed) = self.schedule.feed else { return };
        let gemm = self.schedule.gemm.clone();
        let (m, k, n) = (self.product_of(&gemm.rows), self.product_of(&gemm.depth), self.product_of(&gemm.columns));
        let out = self.operator.output();
        let (Some(a), Some(b), Some(c)) = (self.near(0), self.near(1), self.near(out)) else { return };
        let [fm, fk, fn_] = self.schedule.machine.fractal;
        let [sm, sk, sn] = feed.step;
        let [tm, tk, tn, _] = gemm.size(&self.schedule.found.tiles);
        let up = |size: u64, unit: u64| size.div_ceil(unit) * unit;
        let (counts_m, counts_n, counts_k) = (tm.div_ceil(sm), tn.div_ceil(sn), tk.div_ceil(sk));
        let (im, lm) = self.inner("row", &m, sm, counts_m);
        let (inn, ln) = self.inner("column", &n, sn, counts_n);
        let (ik, lk) = self.inner("depth", &k, sk, counts_k);
        let fractal = |bytes: u64| Layout::Fractal { outer_col: true, inner_col: false, bytes };
        let bits = [self.operator.operands[0].element.bits(), self.operator.operands[1].element.bits()];
        let sum_bits = self.operator.accumulates.bits();
        let (left, right) = (self.fed_buffer(0), self.fed_buffer(1));
        let (Some((left, left_slots)), Some((right, right_slots))) = (left, right) else { return };
        let turn = im.times(signed(counts_n)).plus(&inn).times(signed(counts_k)).plus(&ik);
        let conv = self.operator.kind != OperatorKind::Matmul;
        let (wm, wk, wn) = (up(tm, fm), up(tk, fk), up(tn, fn_));
        let (um, uk, un) = (up(sm, fm).min(wm), up(sk, fk).min(wk), up(sn, fn_).min(wn));
        let rows = Along { index: im.clone(), length: lm.clone(), step: um, whole: wm };
        let depth = Along { index: ik.clone(), length: lk.clone(), step: uk, whole: wk };
        let columns = Along { index: inn.clone(), length: ln.clone(), step: un, whole: wn };
        let seen = |access: &Access, rows: &Affine, columns: &Affine, bytes: u64| Access {
            shape: vec![rows.clone(), columns.clone()],
            layout: fractal(bytes),
            ..access.clone()
        };
        let (mut a_part, mut b_part) = (seen(&a, &lm, &lk, 512), seen(&b, &lk, &ln, 512));
        // The rows of a window are gathered from all over the tile.
        if !conv {
            let wide = |bits: u64| 512 * 8 / BLOCK_ROWS / bits;
            let right = super::access::RIGHT;
            (a_part.layout, b_part.layout) = (a.layout, b.layout);
            if a.layout == right {
                self.blocks(&mut a_part, [&depth, &rows], wide(bits[0]), bits[0], false);
            } else {
                self.blocks(&mut a_part, [&rows, &depth], wide(bits[0]), bits[0], true);
            }
            if b.layout == right {
                self.blocks(&mut b_part, [&columns, &depth], wide(bits[1]), bits[1], true);
            } else {
                self.blocks(&mut b_part, [&depth, &columns], wide(bits[1]), bits[1], false);
            }
        }
        let mut c_part = seen(&c, &lm, &ln, 1024);
        self.blocks(&mut c_part, [&rows, &columns], fn_, sum_bits, false);
        let whole = |writer: &Self, id, side: usize, slots: u64, rows: &Affine, columns: &Affine| Access {
            slot: if slots > 1 { turn.clone() } else { number(0) },
            shape: vec![rows.clone(), columns.clone()],
            layout: fractal(512),
            ..Access::whole(npumem_ir::program::Root::Buffer(id), writer.operator.operands[side].element)
        };
        let l0a = whole(self, left, 0, left_slots, &lm, &lk);
        let l0b = Access { layout: super::access::RIGHT, ..whole(self, right, 1, right_slots, &lk, &ln) };
        let feeder = |route: &crate::tiling::machine::Route| route.hops.last().map(|hop| hop.engine);
        let (Some(left_engine), Some(right_engine)) =
            (feeder(&self.schedule.machine.left), feeder(&self.schedule.machine.right))
        else {
            return;
        };
        let (left_engine, right_engine) = (self.engine_name(left_engine), self.engine_name(right_engine));
        let word = if conv { "timg2col" } else { "tmov" };
        self.builder.run(Operation {
            reads: vec![a_part],
            writes: vec![l0a.clone()],
            ..Operation::new(word, left_engine)
        });
        self.builder.run(Operation {
            reads: vec![b_part],
            writes: vec![l0b.clone()],
            ..Operation::new("tmov", right_engine)
        });
        let first = self.first_turn(Some(ik));
        let engine = self.engine_name(self.schedule.machine.unit);
        self.accumulate(first, &engine, l0a, l0b, c_part);
        for count in [counts_k, counts_n, counts_m] {
            if count > 1 {
                self.builder.end();
            }
        }
    }

    /// A loop of the feed, when it has more than one turn: its index and the length of its step.
    fn inner(&mut self, name: &str, length: &Affine, step: u64, turns: u64) -> (Affine, Affine) {
        if turns <= 1 {
            return (number(0), length.clone());
        }
        let count = self.builder.value(Op::Div, vec![length.plus(&number(step - 1)), number(step)]);
        let index = Affine::scalar(self.builder.begin_for(format!("{name}_step"), 0, count, 1));
        let rest = length.minus(&index.times(signed(step)));
        let whole = length.as_constant().is_some_and(|length| length % signed(step) == 0);
        let length = if whole { number(step) } else { self.builder.value(Op::Min, vec![rest, number(step)]) };
        (index, length)
    }

    /// The buffer next to the unit of a side, and its slots.
    fn fed_buffer(&self, side: usize) -> Option<(npumem_ir::BufferId, u64)> {
        let route = if side == 0 { &self.schedule.machine.left } else { &self.schedule.machine.right };
        let near = route.near.space;
        let at = self.schedule.buffers.iter().position(|placed| placed.operand == side && placed.space == near)?;
        Some((self.inside[at], self.schedule.buffers[at].slots))
    }

    /// The chain of vector functions of one tile.
    fn vector(&mut self) {
        let engine = self.engine_name(self.schedule.machine.unit);
        for instruction in instructions(self.operator) {
            let reads: Vec<Access> = instruction.reads.iter().filter_map(|at| self.near(*at)).collect();
            let Some(mut write) = self.near(instruction.writes) else { continue };
            if self.operator.kind == OperatorKind::Reduce {
                // A column of results, or a row of them.
                let along = write.shape.len();
                let at = if instruction.name.starts_with("trow") { along } else { along.saturating_sub(1) };
                write.shape.insert(at, number(1));
            }
            if instruction.over == Over::Points {
                self.window(&instruction.name, &engine, reads, write);
                continue;
            }
            let sums = instruction.accumulates.then(|| self.first_turn(None));
            let operation = Operation {
                reads,
                writes: vec![write.clone()],
                in_place: instruction.in_place,
                attributes: unwritten(self.operator, &instruction),
                ..Operation::new(instruction.name.clone(), engine.clone())
            };
            match sums {
                Some(first) if first.as_constant().is_none() => {
                    let mut again = operation.clone();
                    again.reads.push(write);
                    again.name = format!("{}.acc", instruction.name);
                    self.builder.begin_if(first);
                    self.builder.run(operation);
                    self.builder.otherwise();
                    self.builder.run(again);
                    self.builder.end();
                }
                _ => {
                    self.builder.run(operation);
                }
            }
        }
    }

    /// One statement for each position of a window: the first writes, the others take the result so far as well.
    fn window(&mut self, word: &str, engine: &str, reads: Vec<Access>, write: Access) {
        let mut taps: Vec<Affine> = Vec::new();
        let mut opened = 0;
        for dim in 0..self.operator.dims.len() {
            let about = &self.operator.dims[dim];
            if about.role == DimRole::Reduction && about.extent > 1 {
                let length = self.length[dim].clone();
                taps.push(Affine::scalar(self.builder.begin_for(format!("{}_tap", about.name), 0, length, 1)));
                opened += 1;
            }
        }
        let outside = self.first_turn(None);
        let sum = taps.iter().fold(number(0), |sum, tap| sum.plus(tap));
        let first = self.builder.value(Op::Eq, vec![sum, number(0)]);
        let first = self.builder.value(Op::Mul, vec![first, outside]);
        // The window's elements for one tap are as many as the result's; which of them is not written out.
        let seen = |access: &Access| Access { shape: write.shape.clone(), certain: false, ..access.clone() };
        let reads: Vec<Access> = reads.iter().take(1).map(seen).chain(reads.iter().skip(1).cloned()).collect();
        let begin = Operation {
            reads: reads.clone(),
            writes: vec![write.clone()],
            ..Operation::new(if opened == 0 { word } else { "tmov" }, engine)
        };
        let again = Operation {
            reads: reads.into_iter().chain([write.clone()]).collect(),
            writes: vec![write],
            ..Operation::new(word, engine)
        };
        match first.as_constant() {
            Some(0) => {
                self.builder.run(again);
            }
            Some(_) => {
                self.builder.run(begin);
            }
            None => {
                self.builder.begin_if(first);
                self.builder.run(begin);
                self.builder.otherwise();
                self.builder.run(again);
                self.builder.end();
            }
        }
        for _ in 0..opened {
            self.builder.end();
        }
    }

    /// Scores, their softmax so far, and the product with the values.
    fn attention(&mut self) {
        let operator = self.operator;
        let out = operator.output();
        let named = |name: &str| operator.operands.iter().position(|operand| operand.name == name);
        let (Some(scores), Some(weights)) = (named("scores"), named("weights")) else { return };
        let rows_of = |operator: &crate::tiling::operator::Operator, at: usize| {
            operator.operands[at].axes.last().map_or(1, |axis| axis.extent)
        };
        let (Some(q), Some(k), Some(v), Some(o)) = (self.near(0), self.near(1), self.near(2), self.near(out)) else {
            return;
        };
        let (Some(s), Some(p)) = (self.near(scores), self.near(weights)) else { return };
        let gemm = self.schedule.gemm.clone();
        let (m, n) = (self.product_of(&gemm.rows), self.product_of(&gemm.depth));
        let (width, value_width) = (number(rows_of(operator, 1)), number(rows_of(operator, 2)));
        let unit = self.engine_name(self.schedule.machine.unit);
        let Some(softmax) = &self.schedule.machine.softmax else { return };
        let vector = self.engine_name(softmax.engine);
        let flat = Layout::RowMajor;
        let in_place = InPlace::Always;
        let q2 = Self::seen_as(&q, m.clone(), width.clone(), flat);
        let k2 = Self::seen_as(&k, width, n.clone(), flat);
        let s2 = Self::seen_as(&s, m.clone(), n.clone(), flat);
        self.builder.run(Operation {
            reads: vec![q2, k2],
            writes: vec![s2.clone()],
            in_place,
            ..Operation::new("tmatmul", unit.clone())
        });
        let p2 = Self::seen_as(&p, m.clone(), n.clone(), flat);
        let o2 = Self::seen_as(&o, m.clone(), value_width.clone(), flat);
        let first = self.first_turn(None);
        // Row maxima and sums so far are part of the sums' buffer; the five passes over the scores are one statement.
        self.builder.run(Operation {
            reads: vec![s2],
            writes: vec![p2.clone()],
            ..Operation::new("trowexpandexpdif", vector)
        });
        let v2 = Self::seen_as(&v, n, value_width, flat);
        self.accumulate(first, &unit, p2, v2, o2);
    }
}

/// Rows of one block of a tile that the matrix unit reads.
const BLOCK_ROWS: u64 = 16;

/// A step along rows or columns of a tile, in elements: multiples of the unit's block.
struct Along {
    index: Affine,
    /// Elements of this step that are there: fewer than the step in the last tile.
    length: Affine,
    step: u64,
    whole: u64,
}

impl Writer<'_> {
    /// Narrows an access to one step: blocks of `block` columns lie one after another, each with all rows. The view counts
    /// blocks along the depth first where it can: how deep a step is depends on counters alone, how many rows it has may
    /// depend on the core, and what reads the program should not have to know that.
    fn blocks(&mut self, access: &mut Access, [rows, columns]: [&Along; 2], block: u64, bits: u64, by_columns: bool) {
        if rows.step >= rows.whole && columns.step >= columns.whole {
            return;
        }
        let bytes = |elements: u64| signed(elements * bits / 8);
        let start =
            rows.index.times(bytes(rows.step * block)).plus(&columns.index.times(bytes(columns.step * rows.whole)));
        access.start = start;
        if let (true, Layout::Fractal { outer_col, inner_col, bytes: size }) = (by_columns, access.layout) {
            access.layout = Layout::Fractal { outer_col: !outer_col, inner_col, bytes: size };
            let across = self.blocks_left(rows, BLOCK_ROWS);
            let up = columns.length.plus(&number(block - 1));
            let deep = self.builder.value(Op::Div, vec![up, number(block)]);
            access.extents = vec![
                Extent { count: across, stride: bytes(BLOCK_ROWS * block) },
                Extent { count: deep, stride: bytes(rows.whole * block) },
                Extent { count: number(BLOCK_ROWS * block), stride: bytes(1) },
            ];
            return;
        }
        let count = self.blocks_left(columns, block);
        // Blocks of rows that are there: what the view counts by, however many the tile has room for.
        let up = rows.length.plus(&number(BLOCK_ROWS - 1));
        let blocks = self.builder.value(Op::Div, vec![up, number(BLOCK_ROWS)]);
        let length = blocks.times(signed(BLOCK_ROWS * block));
        access.extents =
            vec![Extent { count, stride: bytes(rows.whole * block) }, Extent { count: length, stride: bytes(1) }];
    }

    /// Blocks of a step, fewer at the end where steps do not divide the tile.
    fn blocks_left(&mut self, along: &Along, block: u64) -> Affine {
        let all = along.step.div_ceil(block);
        match self.left_over(along) {
            None => number(all),
            Some(rest) => {
                let blocks = self.builder.value(Op::Div, vec![rest.plus(&number(block - 1)), number(block)]);
                self.builder.value(Op::Min, vec![blocks, number(all)])
            }
        }
    }

    /// Elements from the step to the end, where steps do not divide the tile.
    fn left_over(&self, along: &Along) -> Option<Affine> {
        let rest = number(along.whole).minus(&along.index.times(signed(along.step)));
        (!along.whole.is_multiple_of(along.step)).then_some(rest)
    }
}

/// The mark of a statement that takes the time of what it stands for but does not say it: its values are not computed.
fn unwritten(operator: &Operator, instruction: &Instruction) -> BTreeMap<String, String> {
    unsaid(operator, instruction).map(|why| (UNWRITTEN.to_owned(), why.to_owned())).into_iter().collect()
}
