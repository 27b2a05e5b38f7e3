//! Running a kernel on the simulator, and the document that says what came of it.

mod advice;
mod document;

pub use document::document;

use npumem_ir::Device;
use npumem_ir::program::Program;
use npumem_report::RunReport;
use npumem_simulator::run::shadow::Shadow;
use npumem_simulator::run::{self, End, Nothing, Options, Outcome, RunError, Sink};

/// What to run, and what to find out about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// How to run.
    pub options: Options,
    /// Whether changes are tried: `None` when the program is short enough that it costs nothing.
    pub advice: Option<bool>,
    /// Whether memory is watched byte by byte.
    pub sanitize: bool,
}

/// Statements up to which changes are tried without being asked for.
const SHORT: u64 = 30_000;

/// A run and its document.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// Totals.
    pub outcome: Outcome,
    /// The document.
    pub report: RunReport,
}

/// Runs a program.
///
/// # Errors
/// [`RunError`]; a deadlock or a bound that was reached is an answer, not an error.
pub fn simulate(
    program: &Program,
    device: &Device,
    request: &Request,
    notes: &[String],
) -> Result<Simulated, RunError> {
    let mut shadow = request.sanitize.then(|| Shadow::new(program, device));
    let outcome = match &mut shadow {
        Some(shadow) => with_sink(program, device, request, shadow)?,
        None => with_sink(program, device, request, &mut Nothing)?,
    };
    let mut report = document(program, &outcome, notes);
    report.sanitizer = shadow.as_ref().map(|shadow| document::sanitizer(program, shadow));
    if outcome.end == End::Complete && request.advice.unwrap_or(outcome.statements <= SHORT) {
        report.advice = advice::advice(program, device, request, &outcome)?;
    }
    Ok(Simulated { outcome, report })
}

/// Runs a program; events go to the sink.
///
/// # Errors
/// As [`simulate`].
pub fn with_sink(
    program: &Program,
    device: &Device,
    request: &Request,
    sink: &mut dyn Sink,
) -> Result<Outcome, RunError> {
    run::run(program, device, &request.options, sink)
}
