//! The statements of the unit: products with their feed, and chains of vector functions.

use super::points::{Place, Said};
use super::{Writer, number, signed};
use crate::tiling::instructions::{Instruction, Meaning, Over, instructions};
use crate::tiling::operator::{Axis, DimRole, Operator, OperatorKind, Unit};
use npumem_ir::program::points::{How, Join};
use npumem_ir::program::{Access, Affine, Extent, InPlace, Layout, Number, Op, Operation, UNWRITTEN};
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
            return self.finish_vector();
        }
        let out = operator.output();
        let Some(engine) = self.finisher() else { return };
        let name = self.engine_name(engine);
        for (at, operand) in operator.operands.iter().enumerate() {
            if operand.role != crate::tiling::operator::OperandRole::Late {
                continue;
            }
            if let (Some(sum), Some(with)) = (self.near(out), self.near(at)) {
                let repeated = operand.axes.len() < operator.operands[out].axes.len();
                let word = if repeated { "tcolexpandadd" } else { "tadd" };
                let mut add = Self::elementwise(word, &name, vec![sum.clone(), with], sum);
                if repeated && operator.kind == OperatorKind::Conv {
                    let (whole, part) = (self.places(out), self.places(at));
                    let terms = vec![(Join::Add, 0, whole.clone()), (Join::Add, 1, part)];
                    self.say(&mut add, &Said { how: How::Set, result: whole, terms }, &[]);
                }
                self.builder.run(add);
            }
        }
        for function in operator.epilogue.clone() {
            if let Some(sum) = self.near(out) {
                let function = Self::elementwise(&format!("t{function}"), &name, vec![sum.clone()], sum);
                self.builder.run(function);
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

    fn elementwise(word: &str, engine: &str, reads: Vec<Access>, write: Access) -> Operation {
        Operation { reads, writes: vec![write], in_place: InPlace::Elementwise, ..Operation::new(word, engine) }
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
        let said = (self.operator.kind == OperatorKind::Conv).then(|| self.said_products());
        self.accumulate(first, &engine, [a, b, c], said);
    }

    /// Whether a side of a product is loaded with its rows and columns exchanged.
    pub(super) fn is_turned(&self, side: usize) -> bool {
        self.lies_turned(side) && !self.by_index(side)
    }

    /// Whether a side of a product lies in memory with its rows and columns exchanged.
    pub(super) fn lies_turned(&self, side: usize) -> bool {
        if side > 1 {
            return false;
        }
        let last = self.operator.operands[side].axes.last().and_then(Axis::as_plain);
        let inner = if side == 0 { &self.schedule.gemm.depth } else { &self.schedule.gemm.columns };
        self.operator.kind == OperatorKind::Matmul && last.is_some_and(|dim| !inner.contains(&dim))
    }

    /// `c = a b` in the first turn of the sum, `c += a b` in the others.
    fn accumulate(&mut self, first: Affine, engine: &str, [a, b, c]: [Access; 3], said: Option<[Said; 2]>) {
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
        let mut start = Operation {
            reads: vec![a.clone(), b.clone()],
            writes: vec![c.clone()],
            in_place,
            attributes: attributes.clone(),
            ..Operation::new(begin, engine)
        };
        let mut add = Operation {
            reads: vec![c.clone(), a, b],
            writes: vec![c],
            in_place,
            attributes,
            ..Operation::new(go_on, engine)
        };
        if let Some([first, more]) = said {
            self.say(&mut start, &first, &[]);
            self.say(&mut add, &more, &[]);
        }
        self.begin_or_go_on(first, start, add);
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
        let by_index = [self.by_index(0), self.by_index(1)];
        let wide = |bits: u64| 512 * 8 / BLOCK_ROWS / bits;
        let right_layout = super::access::RIGHT;
        (a_part.layout, b_part.layout) = (a.layout, b.layout);
        if !by_index[0] {
            if a.layout == right_layout {
                self.blocks(&mut a_part, [&depth, &rows], wide(bits[0]), bits[0], false);
            } else {
                self.blocks(&mut a_part, [&rows, &depth], wide(bits[0]), bits[0], true);
            }
        }
        if !by_index[1] {
            if b.layout == right_layout {
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
        let feed = |word, read, write: &Access, engine| Operation {
            reads: vec![read],
            writes: vec![write.clone()],
            ..Operation::new(word, engine)
        };
        let mut feeds = [feed(word, a_part, &l0a, left_engine), feed("tmov", b_part, &l0b, right_engine)];
        let along = |dims: &[usize], step: &Along, length: &Affine| {
            Place::flat(dims, step.index.times(signed(step.step)), length.clone())
        };
        let (rows, depth, columns) =
            (along(&gemm.rows, &rows, &lm), along(&gemm.depth, &depth, &lk), along(&gemm.columns, &columns, &ln));
        for (side, result) in [vec![rows, depth.clone()], vec![depth, columns]].into_iter().enumerate() {
            if by_index[side] {
                let terms = vec![(Join::Mul, 0, self.places(side))];
                self.say(&mut feeds[side], &Said { how: How::Set, result, terms }, &[]);
            }
        }
        feeds.into_iter().for_each(|feed| {
            self.builder.run(feed);
        });
        let first = self.first_turn(Some(ik));
        let engine = self.engine_name(self.schedule.machine.unit);
        self.accumulate(first, &engine, [l0a, l0b, c_part], None);
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
        for instruction in instructions(self.operator).iter().filter(|one| !one.once) {
            if instruction.over == Over::Points {
                self.window(instruction);
            } else if let Some([operation, again]) = self.instruction(instruction) {
                let sums = instruction.accumulates.then(|| self.first_turn(None));
                self.begin_or_go_on(sums.unwrap_or_else(|| number(1)), operation, again);
            }
        }
    }

    /// What is done to a tile of results that is complete.
    fn finish_vector(&mut self) {
        for instruction in instructions(self.operator).iter().filter(|one| one.once) {
            if let Some([operation, _]) = self.instruction(instruction) {
                self.builder.run(operation);
            }
        }
    }

    /// An instruction as it begins a sum, and as it goes on with one.
    fn instruction(&mut self, instruction: &Instruction) -> Option<[Operation; 2]> {
        let engine = self.engine_name(self.schedule.machine.unit);
        let reads: Vec<Access> = instruction.reads.iter().filter_map(|at| self.near(*at)).collect();
        let mut write = self.near(instruction.writes)?;
        if self.operator.kind == OperatorKind::Reduce && !instruction.once {
            // A column of results, or a row of them.
            let along = write.shape.len();
            let at = if instruction.name.starts_with("trow") { along } else { along.saturating_sub(1) };
            write.shape.insert(at, number(1));
        }
        let mut operation = Operation {
            reads,
            writes: vec![write.clone()],
            in_place: instruction.in_place,
            attributes: unwritten(self.operator),
            scalars: instruction.scalar.map(Number::Real).into_iter().collect(),
            ..Operation::new(instruction.name.clone(), engine)
        };
        let mut again = operation.clone();
        again.reads.push(write);
        again.name = format!("{}.acc", instruction.name);
        if let Some(meaning) = &instruction.meaning {
            let said = self.said(instruction, meaning);
            let summed = if said.how == How::Mean { self.all_summed() } else { Vec::new() };
            self.say(&mut operation, &said, &summed);
            self.say(&mut again, &Said { how: more(said.how), ..said }, &summed);
        }
        Some([operation, again])
    }

    /// What an instruction combines, over the axes of its operands.
    fn said(&mut self, instruction: &Instruction, meaning: &Meaning) -> Said {
        let result = self.places(instruction.writes);
        let terms = meaning.terms.iter().map(|(join, operand)| {
            let at = instruction.reads.iter().position(|read| read == operand).unwrap_or(0);
            let places = if meaning.how == How::Mean { self.whole_places(*operand) } else { self.places(*operand) };
            (*join, at, places)
        });
        Said { how: meaning.how, terms: terms.collect(), result }
    }

    /// The first statement in the first turn of a sum, the second in the others.
    fn begin_or_go_on(&mut self, first: Affine, begin: Operation, go_on: Operation) {
        match first.as_constant() {
            Some(0) => {
                self.builder.run(go_on);
            }
            Some(_) => {
                self.builder.run(begin);
            }
            None => {
                self.builder.begin_if(first);
                self.builder.run(begin);
                self.builder.otherwise();
                self.builder.run(go_on);
                self.builder.end();
            }
        }
    }

    /// One statement for each position of a window: the first writes, the others take the result so far as well.
    fn window(&mut self, instruction: &Instruction) {
        let engine = self.engine_name(self.schedule.machine.unit);
        let reads: Vec<Access> = instruction.reads.iter().filter_map(|at| self.near(*at)).collect();
        let (Some(write), Some(meaning)) = (self.near(instruction.writes), &instruction.meaning) else { return };
        let mut said = self.said(instruction, meaning);
        let mut taps: Vec<(usize, Affine)> = Vec::new();
        for dim in 0..self.operator.dims.len() {
            let about = &self.operator.dims[dim];
            if about.role == DimRole::Reduction && about.extent > 1 {
                let length = self.length[dim].clone();
                let tap = Affine::scalar(self.builder.begin_for(format!("{}_tap", about.name), 0, length, 1));
                taps.push((dim, tap));
            }
        }
        let outside = self.first_turn(None);
        let sum = taps.iter().fold(number(0), |sum, (_, tap)| sum.plus(tap));
        let first = self.builder.value(Op::Eq, vec![sum, number(0)]);
        let first = self.builder.value(Op::Mul, vec![first, outside]);
        let ranges: Vec<(usize, Affine, Affine)> =
            taps.iter().map(|(dim, tap)| (*dim, self.start[*dim].plus(tap), number(1))).collect();
        // The window's elements for one tap are as many as the result's.
        let seen = |access: &Access| Access { shape: write.shape.clone(), certain: false, ..access.clone() };
        let reads: Vec<Access> = reads.iter().take(1).map(seen).chain(reads.iter().skip(1).cloned()).collect();
        let name = if taps.is_empty() { instruction.name.as_str() } else { "tmov" };
        let mut begin =
            Operation { reads: reads.clone(), writes: vec![write.clone()], ..Operation::new(name, engine.clone()) };
        let mut again = Operation {
            reads: reads.into_iter().chain([write.clone()]).collect(),
            writes: vec![write],
            ..Operation::new(instruction.name.clone(), engine)
        };
        self.say(&mut begin, &said, &ranges);
        said.how = more(said.how);
        self.say(&mut again, &said, &ranges);
        self.begin_or_go_on(first, begin, again);
        for _ in taps {
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
        self.accumulate(first, &unit, [p2, v2, o2], None);
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

/// The same, with what is there.
fn more(how: How) -> How {
    match how {
        How::Sum => How::Add,
        How::Max => How::AddMax,
        How::Min => How::AddMin,
        How::Product => How::AddProduct,
        other => other,
    }
}

/// The mark of a statement that takes the time of what it stands for but does not say it: its values are not computed.
fn unwritten(operator: &Operator) -> BTreeMap<String, String> {
    let why = (operator.kind == OperatorKind::Gather).then_some("of the rows that the index names");
    why.map(|why| (UNWRITTEN.to_owned(), why.to_owned())).into_iter().collect()
}
