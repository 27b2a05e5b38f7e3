//! Is this plan sound for this problem? Written from the definitions, never from the planner.
//!
//! The checker knows the problem and the answer, not the algorithm. It returns every
//! violation it finds, each with the buffers, the bytes and the steps.
//!
//! What is absent: this crate cannot see the planner, does no I/O, and has no option that skips a rule.
#![forbid(unsafe_code)]

mod copies;
mod device;
mod overlap;
mod places;
pub mod program;
mod violation;

pub use device::check_on;
pub use violation::{BufferName, Violation};

use npumem_ir::{BufferId, Plan, Problem};

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Every violation, in a fixed order: places, then shared bytes, then copies.
    pub violations: Vec<Violation>,
    /// Whether the list stops at [`MAX_VIOLATIONS`] and more would follow.
    pub truncated: bool,
}

/// A plan with more violations than this is listed up to here: a plan that puts a million
/// buffers at offset zero breaks half a trillion pairs.
pub const MAX_VIOLATIONS: usize = 10_000;

impl Verdict {
    /// Whether the plan holds.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.violations.is_empty()
    }
}

/// Checks a plan against its problem.
///
/// `O((n + m) log n)` for a plan of `n` buffers and `m` live ranges whose live bytes are disjoint; every
/// broken or declared sharing costs a comparison with the other shared blocks that are live beside it.
#[must_use]
pub fn check(problem: &Problem, plan: &Plan) -> Verdict {
    let mut found = Found::new(problem);
    if places::ids_are_known(problem, plan, &mut found) {
        places::check(problem, plan, &mut found);
        overlap::check(problem, plan, &mut found);
        copies::check(problem, plan, &mut found);
    }
    Verdict { violations: found.violations, truncated: found.truncated }
}

/// The violations so far, with their limit.
struct Found<'a> {
    problem: &'a Problem,
    violations: Vec<Violation>,
    truncated: bool,
}

impl<'a> Found<'a> {
    fn new(problem: &'a Problem) -> Self {
        Found { problem, violations: Vec::new(), truncated: false }
    }

    fn push(&mut self, violation: Violation) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(violation);
        } else {
            self.truncated = true;
        }
    }

    fn is_full(&self) -> bool {
        self.truncated
    }

    fn name(&self, id: BufferId) -> BufferName {
        BufferName { id, name: self.problem.buffers[id.index()].name.clone() }
    }

    fn space(&self, id: npumem_ir::SpaceId) -> String {
        self.problem.spaces[id.index()].name.clone()
    }
}
