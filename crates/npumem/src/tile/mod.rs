//! One operator: from its spec to a schedule, as text and JSON.

pub mod device;
pub mod fit;
pub mod header;
pub mod model;
pub mod node;
pub mod picture;
pub mod toml_file;
mod two_level;

use npumem_check::program::{Options, Severity, check_program};
use npumem_import::pto;
use npumem_ir::Device;
use npumem_ir::program::Program;
use npumem_planner::tiling::Schedule;
use npumem_report::text::printable;

pub use two_level::{TwoLevel, plan_two_level};

/// The program of a schedule, checked: one that is unsound on its own device is not handed out.
///
/// # Errors
/// When the schedule has no program, or the check finds a fault in it.
pub fn proven_program(schedule: &Schedule, device: &Device) -> Result<Program, String> {
    let program = npumem_planner::tiling::program(schedule, device).map_err(|error| error.to_string())?;
    let verdict = check_program(&program, Some(device), &Options::default()).map_err(|error| error.to_string())?;
    let fault = verdict.of(Severity::Fault).next().map(|fault| fault.message(&program));
    match fault {
        Some(fault) => Err(format!(
            "{}: its program would not be sound on {}: {fault}; its sizes and offsets are in the JSON and the header",
            printable(&schedule.operator.name),
            device.name
        )),
        None => Ok(program),
    }
}

/// The program of a schedule as `.pto` text, read back and checked.
///
/// # Errors
/// As [`proven_program`]; when the dialect does not say something of it.
pub fn pto_text(schedule: &Schedule, device: &Device) -> Result<String, String> {
    let program = proven_program(schedule, device)?;
    let text = pto::print(&program, device).map_err(|error| error.to_string())?;
    let wrong =
        |what: String| format!("{}: its .pto text would not be sound: {what}", printable(&schedule.operator.name));
    let module = pto::read(&text, &pto::Options::default()).map_err(|error| wrong(error.to_string()))?;
    for kernel in &module.programs {
        let verdict = crate::kernel::check(&kernel.program, device, false).map_err(|error| wrong(error.to_string()))?;
        if let Some(fault) = verdict.of(Severity::Fault).next() {
            return Err(wrong(fault.message(&kernel.program)));
        }
    }
    Ok(text)
}

/// `1.13x`: how far a traffic is from its bound.
fn over(bytes: u128, bound: u128) -> String {
    if bound == 0 { "-".to_owned() } else { format!("{:.3}x", bytes as f64 / bound as f64) }
}

/// Bytes of 128 bits with their binary unit; beyond 64 bits the bare number.
fn bytes(bytes: u128) -> String {
    u64::try_from(bytes).map_or_else(|_| format!("{bytes} B"), |bytes| npumem_ir::Bytes(bytes).to_string())
}
