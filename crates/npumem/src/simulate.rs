//! Running a kernel on the simulator, and the document that says what came of it.

mod document;

pub use document::document;

use npumem_ir::Device;
use npumem_ir::program::Program;
use npumem_report::RunReport;
use npumem_simulator::run::{self, Nothing, Options, Outcome, RunError, Sink};

/// What to run, and what to find out about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// How to run.
    pub options: Options,
}

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
    let outcome = with_sink(program, device, request, &mut Nothing)?;
    let report = document(program, &outcome, notes);
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
