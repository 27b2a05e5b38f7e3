//! Runs a task on a device: loads and moves on the copy queue, kernels on the compute queue, results held against a reference.
//!
//! ```text
//!   staging   |weights, inputs|         every region is one reservation of the device
//!      load \      copy queue           |w1|w2|   |w3|
//!   space 0   |==|====|  |===|          compute queue   |conv 1|conv 2|
//!      move \
//!   space 1   |===|
//! ```
//! A [`Task`] says of every operand which value it is (for the reference, where each value has memory of its own) and where a
//! plan put it (for the device, where values share). When both come to the same bytes, the plan holds on real memory.
//! All values are small integers or bytes, so "the same" means every bit, on every device.

use crate::backend::{BackendError, Place, RegionId};
use crate::compute::{Compute, Element, Kernel, Operand, Span};
use npumem_ir::{Bytes, SpaceId};
use std::time::Instant;

mod compare;

pub use compare::Mismatch;

/// An operand: which value, and where its bytes are on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The value, by its place in [`Task::values`].
    pub value: usize,
    /// Bytes from the value's start.
    pub delta: u64,
    /// The space, by its place in [`Task::spaces`].
    pub space: usize,
    /// Where the part starts in it.
    pub offset: u64,
}

/// A value of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskValue {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The value comes from the staging memory, where it is the pattern of `seed`: a weight, an input.
    Load {
        /// Where to.
        to: Part,
        /// How much.
        bytes: u64,
        /// What its elements are.
        element: Element,
        /// The seed of its content.
        seed: u32,
    },
    /// The value goes from one place to another.
    Move {
        /// From.
        from: Part,
        /// To.
        to: Part,
        /// How much.
        bytes: u64,
    },
    /// A kernel runs.
    Kernel(Kernel<Part>),
    /// Nothing runs: the bytes of `to` already are those of `from`, as the two share them.
    Same {
        /// The value that was there.
        from: Part,
        /// The value that shares its bytes.
        to: Part,
        /// How much.
        bytes: u64,
    },
}

/// One operation and its name for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The step it belongs to: an operator, a buffer's start or end.
    pub name: String,
    /// What it does.
    pub work: Work,
}

/// What runs, in order, and what is looked at when it has run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// The bytes that each space needs.
    pub spaces: Vec<Bytes>,
    /// The values.
    pub values: Vec<TaskValue>,
    /// The operations.
    pub operations: Vec<Operation>,
    /// Operands that are compared at the end, with their sizes: outputs.
    pub observed: Vec<(Part, u64)>,
}

/// Why a task cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecuteError {
    /// The device refused.
    #[error("{operation}: {error}")]
    Backend {
        /// What was being done.
        operation: String,
        /// What it said.
        error: BackendError,
    },
    /// The task names what it does not have: a bug of whoever made it.
    #[error("operation {operation} ('{name}') lies outside of its value or its space")]
    BadTask {
        /// Which.
        operation: usize,
        /// Its name.
        name: String,
    },
    /// More than 64 bits of bytes.
    #[error("the task's bytes are past 64 bits")]
    TooLarge,
}

/// What a run took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// From the first operation's start to the last one's end.
    pub wall_ns: u64,
    /// Time in which the copy queue was busy.
    pub copying_ns: u64,
    /// Time in which the compute queue was busy.
    pub computing_ns: u64,
    /// Time in which both were.
    pub both_ns: u64,
}

impl Timing {
    /// The share of the smaller of the two busy times that ran beside the other one; nothing when one queue had no work.
    #[must_use]
    pub fn overlap(&self) -> Option<f64> {
        let least = self.copying_ns.min(self.computing_ns);
        (least > 0).then(|| self.both_ns as f64 / least as f64)
    }
}

/// What came of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// With copies beside kernels.
    pub overlapped: Timing,
    /// One operation after the other.
    pub serial: Timing,
    /// Copies: how many, and their bytes.
    pub copies: (u64, u64),
    /// Kernels: how many.
    pub kernels: u64,
    /// Bytes that kernels read and write, each operand once.
    pub kernel_bytes: u64,
    /// Floating-point operations of kernels.
    pub operations: u64,
    /// Bytes that were compared with the reference.
    pub compared: u64,
    /// Whether what was observed is not the reference's.
    pub differs: bool,
    /// Then: the first operation whose bytes are not the reference's when the task runs step by step; `None` when all are right
    /// then, so that the fault lies in how operations ran beside each other.
    pub mismatch: Option<Mismatch>,
}

impl Task {
    /// The device memory that a run needs: its spaces and a staging area for what is loaded.
    ///
    /// # Errors
    /// When it is past 64 bits.
    pub fn memory(&self) -> Result<Bytes, ExecuteError> {
        let spaces = self.spaces.iter().map(|space| space.get());
        let all = spaces.chain([self.staging()?]).try_fold(0_u64, |sum, next| {
            // Each region is rounded up to pages of at most 2 MiB.
            sum.checked_add(next)?.checked_add(2 << 20)
        });
        all.map(Bytes).ok_or(ExecuteError::TooLarge)
    }

    /// Floating-point operations of all kernels.
    #[must_use]
    pub fn work(&self) -> u64 {
        let of = |operation: &Operation| match &operation.work {
            Work::Kernel(kernel) => kernel.operations(),
            _ => 0,
        };
        self.operations.iter().map(of).fold(0, u64::saturating_add)
    }

    fn staging(&self) -> Result<u64, ExecuteError> {
        let loads = self.operations.iter().filter_map(|operation| match operation.work {
            Work::Load { bytes, .. } => Some(bytes),
            _ => None,
        });
        let sum = loads.into_iter().try_fold(0_u64, |sum, bytes| sum.checked_add(bytes.checked_next_multiple_of(64)?));
        sum.ok_or(ExecuteError::TooLarge)
    }

    /// Every operand lies within its value and its space.
    fn check(&self) -> Result<(), ExecuteError> {
        for (index, operation) in self.operations.iter().enumerate() {
            let touches = operation.work.touches();
            let fits = |part: &Part, bytes: u64| {
                let within = |start: u64, limit: Option<u64>| {
                    limit.is_some_and(|limit| start.checked_add(bytes).is_some_and(|end| end <= limit))
                };
                within(part.delta, self.values.get(part.value).map(|value| value.bytes))
                    && within(part.offset, self.spaces.get(part.space).map(|space| space.get()))
            };
            if !touches.is_some_and(|touches| touches.iter().all(|(part, bytes, _)| fits(part, *bytes))) {
                return Err(ExecuteError::BadTask { operation: index, name: operation.name.clone() });
            }
        }
        Ok(())
    }
}

impl Work {
    /// The operands: each part, its bytes, whether they change.
    fn touches(&self) -> Option<Vec<(Part, u64, bool)>> {
        Some(match self {
            Self::Load { to, bytes, .. } => vec![(*to, *bytes, true)],
            Self::Move { from, to, bytes } | Self::Same { from, to, bytes } => {
                vec![(*from, *bytes, false), (*to, *bytes, true)]
            }
            Self::Kernel(kernel) => {
                kernel.touches()?.into_iter().map(|touch| (touch.place, touch.bytes, touch.write)).collect()
            }
        })
    }
}

/// The regions of a run.
struct Regions {
    spaces: Vec<RegionId>,
    staging: RegionId,
}

impl Regions {
    fn place(&self, part: &Part) -> Place {
        Place { region: self.spaces[part.space], offset: part.offset }
    }
}

/// Runs a task in two ways (copies beside kernels, and one after the other) and compares what it observes with a reference.
/// Where that differs, it runs a third time, step by step, and names the first operation that reads or leaves wrong bytes.
///
/// # Errors
/// When the device refuses, or the task is none.
pub fn execute(backend: &mut dyn Compute, task: &Task) -> Result<Outcome, ExecuteError> {
    task.check()?;
    let mut regions = Vec::new();
    let outcome = reserve(backend, task, &mut regions).and_then(|named| run(backend, task, &named));
    for region in regions {
        let _ = backend.release(region);
    }
    outcome
}

fn reserve(backend: &mut dyn Compute, task: &Task, regions: &mut Vec<RegionId>) -> Result<Regions, ExecuteError> {
    let failed = |error| ExecuteError::Backend { operation: "reserving memory".to_owned(), error };
    let page = backend.spaces().first().map_or(1, |space| space.page.get());
    let sizes = task.spaces.iter().map(|space| space.get()).chain([task.staging()?]);
    for bytes in sizes.collect::<Vec<_>>() {
        let bytes = bytes.max(1).checked_next_multiple_of(page).ok_or(ExecuteError::TooLarge)?;
        let region = backend.reserve(SpaceId(0), Bytes(bytes)).map_err(failed)?;
        regions.push(region);
        backend.commit(Place { region, offset: 0 }, Bytes(bytes)).map_err(failed)?;
    }
    let (staging, spaces) = (regions[regions.len() - 1], regions[..regions.len() - 1].to_vec());
    Ok(Regions { spaces, staging })
}

fn run(backend: &mut dyn Compute, task: &Task, regions: &Regions) -> Result<Outcome, ExecuteError> {
    stage(backend, task, regions)?;
    // Once without a clock: memory is touched, kernels are built, and the results are compared.
    timed(backend, task, regions, false)?;
    let (compared, wrong) = compare::observed(backend, task, regions)?;
    let mut outcome = Outcome { compared, differs: wrong, ..count(task) };
    if wrong {
        outcome.mismatch = compare::first_wrong(backend, task, regions)?;
    }
    outcome.serial = best(backend, task, regions, true)?;
    outcome.overlapped = best(backend, task, regions, false)?;
    Ok(outcome)
}

/// Runs on the clock of one kind, at most, and how long all of them may take: short tasks are disturbed most.
const RUNS: u32 = 7;
const RUNS_NS: u64 = 300_000_000;

/// The fastest of several runs.
fn best(backend: &mut dyn Compute, task: &Task, regions: &Regions, serial: bool) -> Result<Timing, ExecuteError> {
    let mut best = timed(backend, task, regions, serial)?;
    let mut spent = best.wall_ns;
    for _ in 1..RUNS {
        if spent >= RUNS_NS {
            break;
        }
        let next = timed(backend, task, regions, serial)?;
        spent = spent.saturating_add(next.wall_ns);
        if next.wall_ns < best.wall_ns {
            best = next;
        }
    }
    Ok(best)
}

fn count(task: &Task) -> Outcome {
    let mut outcome = Outcome { operations: task.work(), ..Outcome::default() };
    for operation in &task.operations {
        match &operation.work {
            Work::Load { bytes, .. } | Work::Move { bytes, .. } => {
                outcome.copies.0 += 1;
                outcome.copies.1 = outcome.copies.1.saturating_add(*bytes);
            }
            Work::Kernel(kernel) => {
                outcome.kernels += 1;
                let bytes = kernel.touches().unwrap_or_default().iter().map(|touch| touch.bytes).sum();
                outcome.kernel_bytes = outcome.kernel_bytes.saturating_add(bytes);
            }
            Work::Same { .. } => {}
        }
    }
    outcome
}

fn stage(backend: &mut dyn Compute, task: &Task, regions: &Regions) -> Result<(), ExecuteError> {
    let mut offset = 0;
    for operation in &task.operations {
        if let Work::Load { bytes, element, seed, .. } = operation.work {
            let to =
                Operand { place: Place { region: regions.staging, offset }, count: bytes / element.bytes(), element };
            let kernel = Kernel::Pattern { to, seed, first: 0 };
            backend.launch(&kernel).map_err(|error| failure(&operation.name, error))?;
            offset += bytes.next_multiple_of(64);
        }
    }
    backend.finish().map_err(|error| failure("staging", error))
}

fn failure(operation: &str, error: BackendError) -> ExecuteError {
    ExecuteError::Backend { operation: operation.to_owned(), error }
}

/// Starts one operation; `staged` is the staging offset of the next load.
fn start(
    backend: &mut dyn Compute,
    operation: &Operation,
    regions: &Regions,
    staged: &mut u64,
) -> Result<(), ExecuteError> {
    let outcome = match &operation.work {
        Work::Load { to, bytes, .. } => {
            let from = Place { region: regions.staging, offset: *staged };
            *staged += bytes.next_multiple_of(64);
            backend.copy(from, regions.place(to), Bytes(*bytes)).map(|_| ())
        }
        Work::Move { from, to, bytes } => {
            backend.copy(regions.place(from), regions.place(to), Bytes(*bytes)).map(|_| ())
        }
        Work::Kernel(kernel) => {
            let placed: Result<Kernel, BackendError> = kernel.try_map(|part| Ok(regions.place(&part)));
            placed.and_then(|kernel| backend.launch(&kernel)).map(|_| ())
        }
        Work::Same { .. } => Ok(()),
    };
    outcome.map_err(|error| failure(&operation.name, error))
}

fn timed(backend: &mut dyn Compute, task: &Task, regions: &Regions, serial: bool) -> Result<Timing, ExecuteError> {
    let done = |error| failure("finishing", error);
    backend.take_spans().map_err(done)?;
    let clock = Instant::now();
    let mut staged = 0;
    for operation in &task.operations {
        start(backend, operation, regions, &mut staged)?;
        if serial {
            backend.finish().map_err(|error| failure(&operation.name, error))?;
        }
    }
    let spans = backend.take_spans().map_err(done)?;
    let wall = u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let (copies, kernels) = (union(spans.copies), union(spans.kernels));
    let busy = |spans: &[Span]| spans.iter().map(|span| span.end - span.start).sum();
    Ok(Timing {
        wall_ns: wall,
        copying_ns: busy(&copies),
        computing_ns: busy(&kernels),
        both_ns: busy(&intersection(&copies, &kernels)),
    })
}

/// Disjoint spans in order that cover the same time.
fn union(mut spans: Vec<Span>) -> Vec<Span> {
    spans.retain(|span| span.start < span.end);
    spans.sort_unstable();
    let mut joined: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => joined.push(span),
        }
    }
    joined
}

/// The time that two lists of disjoint, ordered spans share.
fn intersection(left: &[Span], right: &[Span]) -> Vec<Span> {
    let (mut first, mut second, mut shared) = (0, 0, Vec::new());
    while let (Some(a), Some(b)) = (left.get(first), right.get(second)) {
        let span = Span { start: a.start.max(b.start), end: a.end.min(b.end) };
        if span.start < span.end {
            shared.push(span);
        }
        if a.end <= b.end { first += 1 } else { second += 1 }
    }
    shared
}

#[cfg(test)]
mod tests;
