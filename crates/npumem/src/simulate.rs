//! Running a kernel on the simulator, and the document that says what came of it.

mod advice;
mod document;
mod timeline;
mod values;

pub use document::document;
pub use values::{ValuesError, ValuesRequest, external, output};

use npumem_ir::Device;
use npumem_ir::program::Program;
use npumem_report::RunReport;
use npumem_report::perfetto::Timeline;
use npumem_simulator::run::shadow::Shadow;
use npumem_simulator::run::{self, Detail, End, Nothing, Options, Outcome, RunError, Several, Sink};
use std::collections::BTreeMap;
use thiserror::Error;

/// What to run, and what to find out about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// How to run.
    pub options: Options,
    /// Whether changes are tried: `None` when the program is short enough that it costs nothing.
    pub advice: Option<bool>,
    /// Whether memory is watched byte by byte.
    pub sanitize: bool,
    /// Whether values are computed, and from what.
    pub values: Option<ValuesRequest>,
    /// Buffers of the caller that are wanted as `.npy` after the run.
    pub outputs: Vec<String>,
    /// Whether the whole timeline is kept.
    pub timeline: bool,
}

/// Statements up to which changes are tried without being asked for.
const SHORT: u64 = 30_000;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SimulateError {
    /// It cannot be run.
    #[error("{0}")]
    Run(#[from] RunError),
    /// A value cannot be taken or given.
    #[error("{0}")]
    Values(#[from] ValuesError),
}

/// A run and its document.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// Totals.
    pub outcome: Outcome,
    /// The document.
    pub report: RunReport,
    /// The `.npy` files that were asked for, by buffer.
    pub outputs: BTreeMap<String, Vec<u8>>,
    /// The whole timeline, when it was asked for.
    pub timeline: Option<Timeline>,
}

/// Runs a program.
///
/// # Errors
/// [`SimulateError`]; a deadlock or a bound that was reached is an answer, not an error.
pub fn simulate(
    program: &Program,
    device: &Device,
    request: &Request,
    notes: &[String],
) -> Result<Simulated, SimulateError> {
    let mut shadow = request.sanitize.then(|| Shadow::new(program, device));
    let mut computed = request.values.as_ref().map(|request| values::prepare(program, request)).transpose()?;
    let mut collector = request.timeline.then(|| timeline::Collector::new(program));
    let mut sinks: Vec<&mut dyn Sink> = Vec::new();
    if let Some(collector) = &mut collector {
        sinks.push(collector);
    }
    if let Some(shadow) = &mut shadow {
        sinks.push(shadow);
    }
    if let Some(values) = &mut computed {
        sinks.push(values);
    }
    let outcome = if sinks.is_empty() {
        with_sink(program, device, request, &mut Nothing)?
    } else {
        with_sink(program, device, request, &mut Several(sinks))?
    };
    let mut report = document(program, &outcome, notes);
    if request.options.detail == Detail::Fast {
        report.notes.extend(document::left_out(device, &report));
    }
    report.sanitizer = shadow.as_ref().map(|shadow| document::sanitizer(program, shadow));
    let mut outputs = BTreeMap::new();
    if let Some(values) = &computed {
        report.values = Some(values::report(program, values));
        for name in &request.outputs {
            outputs.insert(name.clone(), values::output(program, values, name)?);
        }
    }
    if outcome.end == End::Complete && request.advice.unwrap_or(outcome.statements <= SHORT) {
        report.advice = advice::advice(program, device, request, &outcome)?;
    }
    let timeline = collector.map(|collector| collector.finish(&outcome));
    if let Some(dropped) = timeline.as_ref().map(|timeline| timeline.dropped).filter(|dropped| *dropped > 0) {
        report.notes.push(format!("the timeline ends {dropped} statements before the run does"));
    }
    Ok(Simulated { outcome, report, outputs, timeline })
}

/// Runs a program; events go to the sink.
///
/// # Errors
/// [`RunError`].
pub fn with_sink(
    program: &Program,
    device: &Device,
    request: &Request,
    sink: &mut dyn Sink,
) -> Result<Outcome, RunError> {
    run::run(program, device, &request.options, sink)
}
