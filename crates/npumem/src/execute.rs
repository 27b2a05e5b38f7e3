//! A plan on real memory: its problem or model as a task of loads, moves and kernels, run by `npumem_backend::executor`.
//!
//! A problem's buffers are filled when they start to live and read when they end; a model's operators run one by one:
//! `MatMul`, `Gemm`, `Conv` and `Add` on floats with their own kernels, all others with a stand-in that reads every input and
//! writes every output. Values are small integers, so results are compared bit for bit. It is no inference engine: it shows
//! that a plan's offsets hold every value that somebody still reads, and what the copies cost beside the kernels.

mod model;
mod problem;

pub use model::of_model;
pub use problem::of_problem;

use npumem_backend::executor::{ExecuteError, Outcome, Part, Task, Timing};
use npumem_ir::units::grouped;
use npumem_ir::{BufferId, Bytes, Plan, Step};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use thiserror::Error;

/// Why a plan cannot be executed.
#[derive(Debug, Error)]
pub enum PrepareError {
    /// A buffer that only a pool can serve.
    #[error(
        "buffer '{0}' has no size before the run: the executor runs what a plan holds; bind its dimension with --dim, or plan \
         with --strategy static"
    )]
    Pooled(String),
    /// A buffer that the plan leaves out at a step.
    #[error("the plan has no place for buffer '{buffer}' at step {step}")]
    NoPlace {
        /// The buffer.
        buffer: String,
        /// The step.
        step: u64,
    },
    /// Control flow.
    #[error("operator '{0}' has bodies (If, Loop, Scan): the executor runs straight lines of operators only")]
    ControlFlow(String),
    /// The plan is for another problem.
    #[error(
        "the plan was made for another statement of this model: the options or the device differ from those it was made with"
    )]
    OtherPlan,
    /// The model.
    #[error(transparent)]
    Model(#[from] crate::model::ModelError),
    /// Sizes past 64 bits.
    #[error("buffer '{0}' ends past 64 bits")]
    TooLarge(String),
}

/// A task, and what to say of it.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// The model's or the problem's name.
    pub name: String,
    /// What runs.
    pub task: Task,
    /// Operators that run with a kernel of their own, by kind.
    pub own: BTreeMap<String, u64>,
    /// Operators that run as stand-ins, by kind.
    pub stand_ins: BTreeMap<String, u64>,
    /// Operators that move nothing, as their output lies where their input is.
    pub free: u64,
    /// Remarks.
    pub notes: Vec<String>,
}

/// Runs a prepared plan.
///
/// # Errors
/// When the device refuses.
pub fn execute(backend: &mut dyn npumem_backend::Compute, prepared: &Prepared) -> Result<Outcome, ExecuteError> {
    npumem_backend::executor::execute(backend, &prepared.task)
}

/// Where a plan has a buffer at a step.
fn place(plan: &Plan, buffer: BufferId, step: Step) -> Option<(usize, u64)> {
    let at = plan.residencies_of(buffer).iter().rev().find(|one| one.steps.start <= step && step < one.steps.end)?;
    Some((at.space.index(), at.offset.get()))
}

/// The bytes that each space needs: the highest end of any residency.
fn spaces(plan: &Plan, sizes: impl Fn(BufferId) -> u64, count: usize) -> Option<Vec<Bytes>> {
    let mut spaces = vec![Bytes::ZERO; count];
    for one in &plan.residencies {
        let end = one.offset.get().checked_add(sizes(one.buffer))?;
        let space = spaces.get_mut(one.space.index())?;
        *space = Bytes(space.get().max(end));
    }
    Some(spaces)
}

fn part(value: usize, delta: u64, (space, offset): (usize, u64)) -> Part {
    Part { value, delta, space, offset }
}

/// The answer in words.
#[must_use]
pub fn to_text(prepared: &Prepared, outcome: &Outcome, on: &str, colour: bool) -> String {
    let mut text = String::new();
    let good = !outcome.differs;
    let word = npumem_report::text::verdict_word(if good { "HOLDS" } else { "WRONG" }, good, colour);
    let peak: Bytes = prepared.task.spaces.iter().copied().sum();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{word} on {on}: {}, {} values in {peak}: {} compared with the reference, {}",
        prepared.name,
        grouped(prepared.task.values.len() as u64),
        Bytes(outcome.compared),
        if good { "equal in every bit" } else { "NOT equal" }
    );
    match &outcome.mismatch {
        Some(wrong) => {
            let verb = if wrong.reads { "reads" } else { "leaves" };
            let _ = write!(
                text,
                "  {} (operation {}) {verb} byte {} of '{}' as {}, not {}",
                wrong.name, wrong.operation, wrong.byte, wrong.value, wrong.found, wrong.wanted
            );
            let writer = wrong.writer.as_ref().map(|writer| format!("; {writer} wrote there last"));
            let _ = writeln!(text, "{}", writer.unwrap_or_default());
        }
        None if outcome.differs => {
            let _ = writeln!(
                text,
                "  step by step every value is right: the device lost an operation or ran it before what it needs"
            );
        }
        None => {}
    }
    let (overlapped, serial) = (&outcome.overlapped, &outcome.serial);
    let rate = |amount: u64, ns: u64| if ns == 0 { 0.0 } else { amount as f64 / ns as f64 };
    let _ = writeln!(
        text,
        "  copies   {:>8}  {:>12}  busy {}  {:.2} GB/s",
        grouped(outcome.copies.0),
        Bytes(outcome.copies.1).to_string(),
        milliseconds(serial.copying_ns),
        rate(outcome.copies.1, serial.copying_ns)
    );
    let _ = writeln!(
        text,
        "  kernels  {:>8}  {:>12}  busy {}  {:.2} Gop/s",
        grouped(outcome.kernels),
        Bytes(outcome.kernel_bytes).to_string(),
        milliseconds(serial.computing_ns),
        rate(outcome.operations, serial.computing_ns)
    );
    let _ = writeln!(
        text,
        "  time     one after the other {}; copies beside kernels {} ({:.2} times as fast)",
        milliseconds(serial.wall_ns),
        milliseconds(overlapped.wall_ns),
        serial.wall_ns as f64 / overlapped.wall_ns.max(1) as f64
    );
    if let Some(share) = overlapped.overlap() {
        let _ = writeln!(
            text,
            "  overlap  {} with both queues busy: {:.0} % of the shorter one's work ran beside the other",
            milliseconds(overlapped.both_ns),
            100.0 * share
        );
    }
    for (what, kinds) in [("own kernels", &prepared.own), ("stand-ins", &prepared.stand_ins)] {
        if !kinds.is_empty() {
            let list: Vec<String> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            let _ = writeln!(text, "  {what}: {}", list.join(", "));
        }
    }
    if prepared.free > 0 {
        let _ = writeln!(text, "  {} operators move nothing: their output lies where their input is", prepared.free);
    }
    for note in &prepared.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn milliseconds(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

/// The answer as JSON.
#[must_use]
pub fn to_json(prepared: &Prepared, outcome: &Outcome, on: &str) -> Value {
    let timing = |timing: &Timing| {
        json!({
            "wall_ns": timing.wall_ns,
            "copying_ns": timing.copying_ns,
            "computing_ns": timing.computing_ns,
            "both_ns": timing.both_ns,
            "overlap": timing.overlap(),
        })
    };
    json!({
        "format": "npumem-execution",
        "version": 1,
        "name": prepared.name,
        "on": on,
        "verdict": if outcome.differs { "wrong" } else { "holds" },
        "spaces_bytes": prepared.task.spaces,
        "values": prepared.task.values.len(),
        "compared_bytes": outcome.compared,
        "mismatch": outcome.mismatch.as_ref().map(|wrong| json!({
            "operation": wrong.operation,
            "name": wrong.name,
            "reads": wrong.reads,
            "value": wrong.value,
            "byte": wrong.byte,
            "found": wrong.found,
            "wanted": wrong.wanted,
            "writer": wrong.writer,
        })),
        "copies": {"count": outcome.copies.0, "bytes": outcome.copies.1},
        "kernels": {"count": outcome.kernels, "bytes": outcome.kernel_bytes, "operations": outcome.operations},
        "one_after_the_other": timing(&outcome.serial),
        "overlapped": timing(&outcome.overlapped),
        "own_kernels": prepared.own,
        "stand_ins": prepared.stand_ins,
        "free_operators": prepared.free,
        "notes": prepared.notes,
    })
}
