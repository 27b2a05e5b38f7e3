//! Is a planned program right: does every read see the write that the unplanned program gives it?
//!
//! ```text
//!            unplanned program                       planned program
//!   every buffer has bytes of its own        buffers share the bytes of a space
//!   read of b  sees  last write of b   =?=   read of b  sees  last write of anyone to those bytes
//! ```
//!
//! The checker runs the program on memory that holds, instead of values, one question per byte of each buffer:
//! *do these bytes still hold what this buffer last wrote?* Scalars are computed exactly where they are known;
//! an unknown branch goes both ways and the answers are united, which per byte loses nothing. A loop runs until
//! its next turns provably repeat earlier ones (`turns`), so the number of turns does not matter. Nothing here
//! knows how the plan was made, and nothing is shared with the planner's liveness.
//!
//! Beside that: places (capacity, reserved bytes, alignment), bytes never written, slots never used, engines
//! that cannot reach a space, and the order between engines (`order`).

mod ahead;
mod bound;
mod conditions;
mod examples;
mod finding;
mod handles;
mod known;
mod loops;
mod memory;
mod moves;
mod order;
mod places;
mod resolve;
mod run;
mod sentences;
mod spans;
mod traces;
mod turns;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

pub use finding::{At, Finding, Kind, ProgramVerdict, Severity, Standing, Unseen};
pub use places::{Rectangle, rectangle};

use npumem_ir::Device;
use npumem_ir::program::{Program, ProgramError};

/// What the caller knows beside the program.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The addresses come from a plan beside the program, so two buffers are two buffers. When they stand in
    /// the program itself, two handles at one address may be one buffer: what looks like an overwrite there
    /// can be undecided.
    pub plan_is_separate: bool,
    /// Statements that may be run in all before loops are cut short; more work, more certainty.
    pub budget: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { plan_is_separate: false, budget: 600_000 }
    }
}

/// The rules of single places alone (capacity, reserved bytes, alignment, what engines reach): no statement is run.
#[must_use]
pub fn check_places(program: &Program, device: &Device) -> Vec<Finding> {
    let mut findings = finding::Findings::default();
    places::check(program, Some(device), &mut findings);
    findings.into_verdict(program, &Options::default()).findings
}

/// Checks a program that carries its addresses, on a device when one is given.
///
/// # Errors
/// When the program breaks a rule of programs: that is no verdict about a plan.
pub fn check_program(
    program: &Program,
    device: Option<&Device>,
    options: &Options,
) -> Result<ProgramVerdict, ProgramError> {
    let structure = program.structure()?;
    let mut findings = finding::Findings::default();
    if !options.plan_is_separate {
        handles::unite(program, &mut findings);
    }
    places::check(program, device, &mut findings);
    run::check(program, &structure, options, &[], &mut findings);
    order::check(program, &structure, options, &[], &mut findings);
    examples::confirm(program, &structure, options, &mut findings);
    traces::complete(program, &structure, options, &mut findings);
    Ok(findings.into_verdict(program, options))
}
