//! The reference: the same task with memory of its own for every value, and where the device's bytes first differ.

use super::{ExecuteError, Operation, Part, Regions, Task, Work, failure, start};
use crate::compute::{Compute, Kernel, Operand, reference};
use std::collections::VecDeque;

/// The first wrong bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The operation that reads or leaves them, by its place in the task.
    pub operation: usize,
    /// Its name.
    pub name: String,
    /// Whether they were wrong before it ran.
    pub reads: bool,
    /// The value.
    pub value: String,
    /// The byte of the value.
    pub byte: u64,
    /// What is there.
    pub found: u8,
    /// What should be.
    pub wanted: u8,
    /// Who wrote that byte of the device last: the operation's name.
    pub writer: Option<String>,
}

/// Every value's bytes, from the first operation that needs them to the last.
struct Values {
    bytes: Vec<Vec<u8>>,
    /// The last operation that needs each value.
    last: Vec<usize>,
    /// The values whose last operation each is.
    ends: Vec<Vec<usize>>,
}

impl Values {
    fn new(task: &Task) -> Self {
        let mut last = vec![0; task.values.len()];
        for (index, operation) in task.operations.iter().enumerate() {
            for (part, _, _) in operation.work.touches().unwrap_or_default() {
                last[part.value] = index;
            }
        }
        for (part, _) in &task.observed {
            last[part.value] = usize::MAX;
        }
        let mut ends = vec![Vec::new(); task.operations.len()];
        for (value, last) in last.iter().enumerate() {
            if let Some(ends) = ends.get_mut(*last) {
                ends.push(value);
            }
        }
        Self { bytes: vec![Vec::new(); task.values.len()], last, ends }
    }

    fn get(&mut self, task: &Task, value: usize) -> &mut [u8] {
        let bytes = &mut self.bytes[value];
        if bytes.is_empty() {
            bytes.resize(task.values[value].bytes as usize, 0);
        }
        bytes
    }

    fn part(&mut self, task: &Task, part: &Part, bytes: u64) -> &mut [u8] {
        let all = self.get(task, part.value);
        let start = (part.delta as usize).min(all.len());
        let end = (part.delta + bytes).min(all.len() as u64) as usize;
        &mut all[start..end]
    }

    fn floats(&mut self, task: &Task, part: &Part, count: u64) -> Vec<f32> {
        let bytes = self.part(task, part, count * 4);
        bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
    }

    fn words(&mut self, task: &Task, part: &Part, count: u64) -> Vec<u32> {
        let bytes = self.part(task, part, count * 4);
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
    }

    fn put(&mut self, task: &Task, part: &Part, values: &[f32]) {
        let to = self.part(task, part, values.len() as u64 * 4);
        for (word, value) in to.chunks_exact_mut(4).zip(values) {
            word.copy_from_slice(&value.to_le_bytes());
        }
    }

    fn copy(&mut self, task: &Task, from: &Part, to: &Part, bytes: u64) {
        let source = self.part(task, from, bytes).to_vec();
        self.part(task, to, bytes).copy_from_slice(&source);
    }

    /// Does what an operation does, on values that share nothing.
    fn step(&mut self, task: &Task, index: usize, operation: &Operation) {
        match operation.work {
            Work::Load { to, bytes, element, seed } => {
                let count = bytes / element.bytes();
                reference::pattern_into(self.part(task, &to, bytes), element, count, seed, 0);
            }
            Work::Move { .. } => {}
            Work::Same { from, to, bytes } => self.copy(task, &from, &to, bytes),
            Work::Kernel(kernel) => self.kernel(task, &kernel),
        }
        for value in std::mem::take(&mut self.ends[index]) {
            self.bytes[value] = Vec::new();
        }
    }

    fn kernel(&mut self, task: &Task, kernel: &Kernel<Part>) {
        match kernel {
            Kernel::Copy { from, to, bytes } => self.copy(task, from, to, *bytes),
            Kernel::Add { left, right, to, count, fold } => {
                let sum = reference::add(&self.floats(task, left, *count), &self.floats(task, right, *count), *fold);
                self.put(task, to, &sum);
            }
            Kernel::Matmul { left, right, to, rows, columns, depth, fold } => {
                let [rows, columns, depth] = [*rows, *columns, *depth].map(|part| part as usize);
                let a = self.floats(task, left, (rows * depth) as u64);
                let b = self.floats(task, right, (depth * columns) as u64);
                let product = reference::matmul(&a, &b, rows, columns, depth, *fold);
                self.put(task, to, &product);
            }
            Kernel::Convolution { input, weights, to, shape, fold } => {
                let [read, windows, _] = shape.counts().unwrap_or_default();
                let (input, weights) = (self.floats(task, input, read), self.floats(task, weights, windows));
                let result = reference::convolution(&input, &weights, shape, *fold);
                self.put(task, to, &result);
            }
            Kernel::Mix { from, to, accumulate } => {
                let bytes = |operand: &Operand<Part>| operand.count * operand.element.bytes();
                let source = self.part(task, &from.place, bytes(from)).to_vec();
                let target = self.part(task, &to.place, bytes(to));
                let source = (&source[..], from.element, from.count);
                reference::mix_into(source, (target, to.element, to.count), *accumulate);
            }
            Kernel::Chase { table, count, steps, to } => {
                let words = self.words(task, table, u64::from(*count));
                let start = self.words(task, to, 1).first().copied().unwrap_or(0);
                let end = reference::chase(&words, start, *steps);
                self.part(task, to, 4).copy_from_slice(&end.to_le_bytes());
            }
            Kernel::Read { from, words, access, accesses, lanes, to } => {
                let source = self.words(task, from, *words);
                let lanes = u64::from(*lanes);
                let sums = (0..lanes).map(|lane| reference::read(&source, *access, *accesses, lane, lanes));
                let sums: Vec<u8> = sums.flat_map(u32::to_le_bytes).collect();
                self.part(task, to, lanes * 4).copy_from_slice(&sums);
            }
            Kernel::Pattern { to, seed, first } => {
                let bytes = to.count * to.element.bytes();
                reference::pattern_into(self.part(task, &to.place, bytes), to.element, to.count, *seed, *first);
            }
        }
    }
}

/// Compares what a task observes after the device ran it: the bytes compared, and whether any is wrong.
pub(super) fn observed(backend: &mut dyn Compute, task: &Task, regions: &Regions) -> Result<(u64, bool), ExecuteError> {
    let mut values = Values::new(task);
    for (index, operation) in task.operations.iter().enumerate() {
        values.step(task, index, operation);
    }
    let (mut compared, mut wrong) = (0_u64, false);
    for (part, bytes) in &task.observed {
        let mut found = vec![0; *bytes as usize];
        let name = &task.values[part.value].name;
        backend.read(regions.place(part), &mut found).map_err(|error| failure(name, error))?;
        wrong |= found != values.part(task, part, *bytes);
        compared = compared.saturating_add(*bytes);
    }
    Ok((compared, wrong))
}

/// Runs the task step by step and finds the first bytes that are not the reference's.
pub(super) fn first_wrong(
    backend: &mut dyn Compute,
    task: &Task,
    regions: &Regions,
) -> Result<Option<Mismatch>, ExecuteError> {
    let (mut values, mut staged) = (Values::new(task), 0);
    // Who wrote where, the latest last; bounded, as only the writer's name depends on it.
    let mut written: VecDeque<(usize, Part, u64)> = VecDeque::new();
    for (index, operation) in task.operations.iter().enumerate() {
        let touches = operation.work.touches().unwrap_or_default();
        let accumulates = matches!(operation.work, Work::Kernel(Kernel::Mix { accumulate: true, .. }));
        for (part, bytes, write) in &touches {
            if !write || accumulates {
                let wrong = look(backend, task, regions, &mut values, part, *bytes)?;
                if let Some((byte, found, wanted)) = wrong {
                    return Ok(Some(tell(task, index, true, part, (byte, found, wanted), &written)));
                }
            }
        }
        start(backend, operation, regions, &mut staged)?;
        backend.finish().map_err(|error| failure(&operation.name, error))?;
        let kept: Vec<usize> = std::mem::take(&mut values.ends[index]);
        values.step(task, index, operation);
        for (part, bytes, write) in touches {
            if !write {
                continue;
            }
            if let Some(wrong) = look(backend, task, regions, &mut values, &part, bytes)? {
                return Ok(Some(tell(task, index, false, &part, wrong, &written)));
            }
            if !matches!(operation.work, Work::Same { .. }) {
                written.push_back((index, part, bytes));
                if written.len() > 1 << 20 {
                    written.pop_front();
                }
            }
        }
        for value in kept.into_iter().filter(|value| values.last[*value] == index) {
            values.bytes[value] = Vec::new();
        }
    }
    for (part, bytes) in &task.observed {
        if let Some(wrong) = look(backend, task, regions, &mut values, part, *bytes)? {
            let end = task.operations.len();
            return Ok(Some(tell(task, end, true, part, wrong, &written)));
        }
    }
    Ok(None)
}

/// The first byte of a part that differs: where, what is there, what should be.
fn look(
    backend: &mut dyn Compute,
    task: &Task,
    regions: &Regions,
    values: &mut Values,
    part: &Part,
    bytes: u64,
) -> Result<Option<(u64, u8, u8)>, ExecuteError> {
    let mut found = vec![0; bytes as usize];
    let name = &task.values[part.value].name;
    backend.read(regions.place(part), &mut found).map_err(|error| failure(name, error))?;
    let wanted = values.part(task, part, bytes);
    let differs = found.iter().zip(wanted.iter()).position(|(found, wanted)| found != wanted);
    Ok(differs.map(|at| (at as u64, found[at], wanted[at])))
}

fn tell(
    task: &Task,
    operation: usize,
    reads: bool,
    part: &Part,
    (at, found, wanted): (u64, u8, u8),
    written: &VecDeque<(usize, Part, u64)>,
) -> Mismatch {
    let byte = part.offset + at;
    let covers = |(_, other, bytes): &&(usize, Part, u64)| {
        other.space == part.space && (other.offset..other.offset + bytes).contains(&byte)
    };
    let name = |operation: usize| {
        task.operations.get(operation).map_or_else(|| "the end".to_owned(), |operation| operation.name.clone())
    };
    Mismatch {
        operation,
        name: name(operation),
        reads,
        value: task.values[part.value].name.clone(),
        byte: part.delta + at,
        found,
        wanted,
        writer: written.iter().rev().find(covers).map(|(writer, _, _)| name(*writer)),
    }
}
