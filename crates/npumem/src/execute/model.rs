//! A model as a task: weights and inputs are loaded in the order of their first use, then operator after operator runs.
//!
//! Where an output shares bytes with an input (a view, a part of a concat) those bytes are not written again. What lies over an
//! input that dies there (in place) is written element by element, that input first.

use super::{PrepareError, Prepared, part, place, spaces};
use crate::model::{self, Laid, ModelRequest};
use npumem_backend::executor::{Operation, Part, Task, TaskValue, Work};
use npumem_backend::{ConvolutionShape, Element, Kernel, Operand};
use npumem_import::onnx::Model;
use npumem_ir::graph::Attribute;
use npumem_ir::{BufferId, Device, ElementType, Plan, Step};
use npumem_planner::graph::line::{Line, LineStep, Origin, Phase};
use npumem_planner::graph::{Storage, ValueId};

/// Sums of more products than this are not whole numbers of a float any more.
const MOST_DEPTH: u64 = 1 << 16;
/// Products of one operator that run one by one; more run as a stand-in.
const MOST_LAUNCHES: u64 = 4096;

/// Makes the task of a model and its plan; without a plan, of the one that `npumem plan` makes.
///
/// # Errors
/// Control flow, buffers that only a pool can serve, a plan for another problem.
pub fn of_model(
    model: &Model,
    device: &Device,
    request: &ModelRequest,
    plan: Option<Plan>,
) -> Result<Prepared, PrepareError> {
    let plan = match plan {
        Some(plan) => plan,
        None => model::plan_model(model, device, request, None)?.placement.plan,
    };
    model::lay_out(model, device, &request.model, request.capacity, |laid| prepare(&laid, &plan))?
}

struct Builder<'a, 'g> {
    line: &'a Line<'g>,
    storage: &'a Storage,
    buffers: Vec<Option<(BufferId, u64)>>,
    plan: &'a Plan,
    prepared: Prepared,
}

fn prepare(laid: &Laid<'_, '_>, plan: &Plan) -> Result<Prepared, PrepareError> {
    let problem = &laid.input.problem;
    if !plan.origin.digest.is_empty() && plan.origin.digest != problem.digest() {
        return Err(PrepareError::OtherPlan);
    }
    if let Some(pooled) = plan.pooled.first().filter(|id| id.index() < problem.buffers.len()) {
        return Err(PrepareError::Pooled(problem.buffer(*pooled).name.clone()));
    }
    if let Some(step) = laid.line.steps.iter().find(|step| step.phase != Phase::Whole) {
        return Err(PrepareError::ControlFlow(step.name.clone()));
    }
    let sizes = |id: BufferId| problem.buffers.get(id.index()).map_or(0, |buffer| buffer.size.get());
    let spaces = spaces(plan, sizes, problem.spaces.len());
    let spaces = spaces.ok_or_else(|| PrepareError::TooLarge(problem.name.clone()))?;
    let bytes = |id: ValueId| laid.storage.extent(laid.line, id).at_most().unwrap_or_default().get();
    let values = laid.line.values().map(|(id, value)| TaskValue { name: value.name.clone(), bytes: bytes(id) });
    let task = Task { spaces, values: values.collect(), ..Task::default() };
    let buffers = laid.input.places.iter().map(|place| place.buffer.map(|buffer| (buffer, place.delta.get())));
    let prepared = Prepared { name: problem.name.clone(), task, ..Prepared::default() };
    let mut builder = Builder { line: laid.line, storage: laid.storage, buffers: buffers.collect(), plan, prepared };
    builder.loads()?;
    for index in 0..laid.line.steps.len() {
        builder.step(index)?;
    }
    builder.outputs()?;
    Ok(builder.prepared)
}

impl<'g> Builder<'_, 'g> {
    fn bytes(&self, id: ValueId) -> u64 {
        self.prepared.task.values[id.index()].bytes
    }

    fn element(&self, id: ValueId) -> Element {
        let value = self.line.value(id);
        if value.tensor.element == ElementType::F32 && self.bytes(id).is_multiple_of(4) {
            Element::F32
        } else {
            Element::Byte
        }
    }

    /// Where a value is at a step; nothing for what takes no bytes.
    fn part(&self, id: ValueId, step: Step) -> Result<Option<Part>, PrepareError> {
        let Some((buffer, delta)) = self.buffers[id.index()].filter(|_| self.bytes(id) > 0) else { return Ok(None) };
        let no_place = || PrepareError::NoPlace { buffer: self.line.value(id).name.clone(), step: step.0 };
        let (space, offset) = place(self.plan, buffer, step).ok_or_else(no_place)?;
        Ok(Some(part(id.index(), 0, (space, offset + delta))))
    }

    /// Whether an operand shares a byte with a result.
    fn meet(&self, input: ValueId, from: &Part, id: ValueId, to: &Part) -> bool {
        from.space == to.space
            && from.offset < to.offset + self.bytes(id)
            && to.offset < from.offset + self.bytes(input)
    }

    fn push(&mut self, name: &str, work: Work) {
        self.prepared.task.operations.push(Operation { name: name.to_owned(), work });
    }

    /// Weights, constants and inputs, those first that are needed first.
    fn loads(&mut self) -> Result<(), PrepareError> {
        let mut first = vec![usize::MAX; self.line.values.len()];
        for (index, step) in self.line.steps.iter().enumerate() {
            for id in step.inputs.iter().flatten() {
                first[id.index()] = first[id.index()].min(index);
            }
        }
        let given = |(_, value): &(ValueId, &npumem_planner::graph::Value<'_>)| {
            matches!(value.origin, Origin::Weight | Origin::Constant | Origin::Input)
        };
        let mut ids: Vec<ValueId> = self.line.values().filter(given).map(|(id, _)| id).collect();
        ids.sort_by_key(|id| (first[id.index()], *id));
        for id in ids {
            if let Some(to) = self.part(id, Step(0))? {
                let (bytes, element, seed) = (self.bytes(id), self.element(id), id.0 + 1);
                let name = format!("load '{}'", self.line.value(id).name);
                self.push(&name, Work::Load { to, bytes, element, seed });
            }
        }
        Ok(())
    }

    fn outputs(&mut self) -> Result<(), PrepareError> {
        let last = Step(self.line.all().end.0.saturating_sub(1));
        let outputs: Vec<ValueId> = self.line.values().filter(|(_, value)| value.is_output).map(|(id, _)| id).collect();
        for id in outputs {
            if let Some(at) = self.part(id, last)? {
                self.prepared.task.observed.push((at, self.bytes(id)));
            }
        }
        Ok(())
    }

    fn step(&mut self, index: usize) -> Result<(), PrepareError> {
        let (line, at) = (self.line, Step(index as u64));
        let step = &line.steps[index];
        let mut inputs: Vec<(ValueId, Part)> = Vec::new();
        for id in step.inputs.iter().flatten() {
            if let Some(part) = self.part(*id, at)?
                && inputs.iter().all(|(known, _)| known != id)
            {
                inputs.push((*id, part));
            }
        }
        let mut outputs = Vec::new();
        for id in step.outputs.iter().flatten() {
            if let Some(part) = self.part(*id, at)? {
                outputs.push((*id, part));
            }
        }
        // What is written over an input goes last: the other outputs still read that input.
        let over = |(id, to): &(ValueId, Part)| inputs.iter().any(|(input, from)| self.meet(*input, from, *id, to));
        outputs.sort_by_key(|output| over(output));
        let (mut moved, mut own) = (false, false);
        for (id, to) in outputs {
            let missing = self.shared(step, &inputs, id, to);
            let bytes = self.bytes(id);
            moved |= !missing.is_empty();
            if missing == [(0, bytes)]
                && let Some(kernels) = self.kernels(step, &inputs, id, to)
            {
                own = true;
                self.kernel(step, &inputs, id, to, kernels);
            } else {
                for range in missing {
                    self.stand_in(step, &inputs, (id, to), range);
                }
            }
        }
        let kind = &step.operator.kind;
        match (moved, own) {
            (false, _) => self.prepared.free += 1,
            (true, true) => *self.prepared.own.entry(kind.clone()).or_default() += 1,
            (true, false) => *self.prepared.stand_ins.entry(kind.clone()).or_default() += 1,
        }
        Ok(())
    }

    /// Notes the bytes of an output that already are those of an input, and gives the ranges that are left to write.
    fn shared(&mut self, step: &LineStep<'g>, inputs: &[(ValueId, Part)], id: ValueId, to: Part) -> Vec<(u64, u64)> {
        let bytes = self.bytes(id);
        let mut there: Vec<(u64, u64)> = Vec::new();
        for (input, from) in inputs {
            let same =
                self.storage.same_content(*input, id) && self.storage.place(*input).0 == self.storage.place(id).0;
            let start = from.offset.max(to.offset);
            let end = (from.offset + self.bytes(*input)).min(to.offset + bytes);
            if !same || from.space != to.space || start >= end {
                continue;
            }
            let at = |part: &Part| Part { delta: start - part.offset, offset: start, ..*part };
            self.push(&step.name, Work::Same { from: at(from), to: at(&to), bytes: end - start });
            there.push((start - to.offset, end - to.offset));
        }
        there.sort_unstable();
        let (mut missing, mut next) = (Vec::new(), 0);
        for (start, end) in there {
            if start > next {
                missing.push((next, start));
            }
            next = next.max(end);
        }
        if next < bytes {
            missing.push((next, bytes));
        }
        missing
    }

    /// Inputs in the order in which they are mixed in: one that lies under the output first, and only one such.
    fn order(&self, inputs: &[(ValueId, Part)], id: ValueId, to: &Part) -> Vec<(ValueId, Part)> {
        let same = |input: ValueId| {
            self.storage.same_content(input, id) && self.storage.place(input).0 == self.storage.place(id).0
        };
        let under = |input: ValueId, from: &Part| self.meet(input, from, id, to);
        let mut order: Vec<(ValueId, Part)> = Vec::new();
        for pass in [true, false] {
            for (input, from) in inputs.iter().filter(|(input, from)| under(*input, from) == pass && !same(*input)) {
                if !(pass && order.iter().any(|(_, known)| known.offset == from.offset)) {
                    order.push((*input, *from));
                }
            }
        }
        order
    }

    /// Writes a range of an output so that it depends on every input.
    fn stand_in(
        &mut self,
        step: &LineStep<'g>,
        inputs: &[(ValueId, Part)],
        (id, to): (ValueId, Part),
        (start, end): (u64, u64),
    ) {
        let whole = start.is_multiple_of(4) && end.is_multiple_of(4) && to.offset.is_multiple_of(4);
        let element = if whole { self.element(id) } else { Element::Byte };
        let place = Part { delta: start, offset: to.offset + start, ..to };
        let target = Operand { place, count: (end - start) / element.bytes(), element };
        let order = self.order(inputs, id, &to);
        if order.is_empty() {
            self.push(&step.name, Work::Kernel(Kernel::Pattern { to: target, seed: id.0 + 1, first: 0 }));
        }
        for (position, (input, from)) in order.into_iter().enumerate() {
            let from = self.operand(input, from);
            self.push(&step.name, Work::Kernel(Kernel::Mix { from, to: target, accumulate: position > 0 }));
        }
    }

    fn operand(&self, id: ValueId, place: Part) -> Operand<Part> {
        let element = if place.offset.is_multiple_of(4) { self.element(id) } else { Element::Byte };
        Operand { place, count: self.bytes(id) / element.bytes(), element }
    }

    /// Runs an operator's own kernels, then mixes in what they do not read (a bias).
    fn kernel(
        &mut self,
        step: &LineStep<'g>,
        inputs: &[(ValueId, Part)],
        id: ValueId,
        to: Part,
        kernels: Vec<Kernel<Part>>,
    ) {
        for kernel in kernels {
            self.push(&step.name, Work::Kernel(kernel));
        }
        let target = self.operand(id, to);
        let read = [input(step, 0), input(step, 1)];
        for (extra, from) in inputs.iter().filter(|(input, _)| !read.contains(&Some(*input))) {
            let from = self.operand(*extra, *from);
            self.push(&step.name, Work::Kernel(Kernel::Mix { from, to: target, accumulate: true }));
        }
    }

    /// The kernels of an operator on floats whose result lies apart from its operands.
    fn kernels(
        &self,
        step: &LineStep<'g>,
        inputs: &[(ValueId, Part)],
        id: ValueId,
        to: Part,
    ) -> Option<Vec<Kernel<Part>>> {
        let (a, b) = (input(step, 0)?, input(step, 1)?);
        let part = |wanted: ValueId| inputs.iter().find(|(id, _)| *id == wanted).map(|(_, part)| *part);
        let (left, right) = (part(a)?, part(b)?);
        let floats = |id: ValueId, part: &Part| self.element(id) == Element::F32 && part.offset.is_multiple_of(4);
        if !(floats(a, &left) && floats(b, &right) && floats(id, &to)) {
            return None;
        }
        let kind = step.operator.kind.as_str();
        if kind == "Add" {
            let same = self.bytes(a) == self.bytes(id) && self.bytes(b) == self.bytes(id);
            let count = self.bytes(id) / 4;
            return same.then(|| vec![Kernel::Add { left, right, to, count, fold: true }]);
        }
        let apart = inputs.iter().all(|(input, from)| !self.meet(*input, from, id, &to));
        let dims = |id: ValueId| self.line.value(id).dims.as_deref();
        match kind {
            _ if !apart => None,
            "MatMul" | "Gemm" | "FusedMatMul" | "FusedGemm" => products(dims(a)?, dims(b)?, dims(id)?, left, right, to),
            "Conv" | "FusedConv" => {
                let shape = convolution(step, dims(a)?, dims(b)?, dims(id)?)?;
                let counts = shape.counts()?;
                let fits = [(a, counts[0]), (b, counts[1]), (id, counts[2])];
                let fits = fits.iter().all(|(id, count)| self.bytes(*id) == 4 * count);
                let exact = shape.depth() <= MOST_DEPTH;
                (fits && exact)
                    .then(|| vec![Kernel::Convolution { input: left, weights: right, to, shape, fold: true }])
            }
            _ => None,
        }
    }
}

fn input(step: &LineStep<'_>, position: usize) -> Option<ValueId> {
    step.inputs.get(position).copied().flatten()
}

/// A product of matrices, or one for each of a batch. Transposed operands are read as they lie: as many bytes, as many products.
fn products(a: &[u64], b: &[u64], out: &[u64], left: Part, right: Part, to: Part) -> Option<Vec<Kernel<Part>>> {
    let columns = *out.last()?;
    let all = |dims: &[u64]| dims.iter().try_fold(1_u64, |all, dim| all.checked_mul(*dim));
    let (elements, weights) = (all(out)?, all(b)?);
    if columns == 0 || elements == 0 || weights == 0 {
        return None;
    }
    // One right matrix for all rows, or one for each of a batch.
    let batch = if b.len() <= 2 { 1 } else { all(&out[..out.len().checked_sub(2)?])? };
    let rows = elements / columns / batch;
    let depth = all(a)? / batch / rows.max(1);
    let exact = batch * rows * depth == all(a)? && batch * depth * columns == weights;
    if !exact || depth == 0 || depth > MOST_DEPTH || batch > MOST_LAUNCHES {
        return None;
    }
    let [small_rows, small_columns, small_depth] =
        [rows, columns, depth].map(|part| u32::try_from(part).unwrap_or(u32::MAX));
    let at = |part: Part, elements: u64| Part { delta: elements * 4, offset: part.offset + elements * 4, ..part };
    let one = |index: u64| Kernel::Matmul {
        left: at(left, index * rows * depth),
        right: at(right, index * depth * columns),
        to: at(to, index * rows * columns),
        rows: small_rows,
        columns: small_columns,
        depth: small_depth,
        fold: true,
    };
    (small_rows < u32::MAX && small_columns < u32::MAX).then(|| (0..batch).map(one).collect())
}

/// The shape of a convolution over one or two dimensions.
fn convolution(step: &LineStep<'_>, data: &[u64], weights: &[u64], out: &[u64]) -> Option<ConvolutionShape> {
    let small = |value: u64| u32::try_from(value).ok();
    let flat = match data.len() {
        3 => true,
        4 => false,
        _ => return None,
    };
    let spatial = |dims: &[u64]| -> Option<[u32; 2]> {
        match *dims {
            [wide] if flat => Some([1, small(wide)?]),
            [high, wide] => Some([small(high)?, small(wide)?]),
            _ => None,
        }
    };
    let attribute = |name: &str, position: usize, default: u32| -> Option<u32> {
        match step.operator.attributes.get(name) {
            Some(Attribute::Ints(values)) => {
                let position = if flat { position.checked_sub(1) } else { Some(position) };
                match position {
                    Some(position) => u32::try_from(*values.get(position)?).ok(),
                    None => Some(default),
                }
            }
            _ => Some(default),
        }
    };
    let pair = |name: &str, default: u32| Some([attribute(name, 0, default)?, attribute(name, 1, default)?]);
    let groups = match step.operator.attributes.get("group") {
        Some(Attribute::Int(groups)) => u32::try_from(*groups).ok()?,
        _ => 1,
    };
    let ([high, wide], [out_high, out_wide]) = (spatial(data.get(2..)?)?, spatial(out.get(2..)?)?);
    let channels = |dims: &[u64]| small(*dims.get(1)?);
    Some(ConvolutionShape {
        batch: small(*data.first()?)?,
        input: [channels(data)?, high, wide],
        output: [channels(out)?, out_high, out_wide],
        window: spatial(weights.get(2..)?)?,
        strides: pair("strides", 1)?,
        padding: pair("pads", 0)?,
        dilations: pair("dilations", 1)?,
        groups,
    })
}
