//! A plan that is given beside a kernel: is it this kernel's, and what does it say of each buffer?

use super::{KernelError, on_device, place_untouched};
use npumem_ir::program::{Program, Step};
use npumem_ir::{BufferId, Device, Plan, StepRange};
use npumem_planner::liveness;
use std::collections::BTreeMap;

/// The program with the addresses of a plan that [`super::plan`] made for it, and what is to be said of the plan.
///
/// # Errors
/// When the plan is certainly another kernel's: of another name, of buffers that the program does not have, or with
/// places for other steps than those in which the kernel needs them.
pub fn with_plan(program: &Program, plan: &Plan, device: &Device) -> Result<(Program, Vec<String>), KernelError> {
    if !plan.problem.is_empty() && plan.problem != program.name {
        let problem = format!("it is of '{}', and this kernel is '{}'", plan.problem, program.name);
        return Err(KernelError::OtherPlan(problem));
    }
    let program = &*on_device(program, device);
    // The problem of a kernel lists the buffers that statements touch, in the program's order.
    let ranges = liveness::live_ranges(program)?;
    let placed: Vec<BufferId> =
        program.buffers().map(|(id, _)| id).filter(|id| !ranges[id.index()].is_empty()).collect();
    let mut addresses = BTreeMap::new();
    // Each space of the kernel is one of the plan's, and no two of them are the same.
    let (mut theirs, mut ours) = (BTreeMap::new(), BTreeMap::new());
    for residency in &plan.residencies {
        let id = placed.get(residency.buffer.index()).ok_or_else(|| {
            KernelError::OtherPlan(format!(
                "it places buffer {}, '{}' has {}",
                residency.buffer,
                program.name,
                placed.len()
            ))
        })?;
        let (name, space) = (&program.buffer(*id).name, &program.buffer(*id).space);
        let number = residency.space;
        if *theirs.entry(space).or_insert(number) != number || *ours.entry(number).or_insert(space) != space {
            return Err(KernelError::OtherPlan(format!(
                "it puts '{name}' in {number}, where '{space}' is another one"
            )));
        }
        if number.index() >= plan.spaces.len() {
            let count = plan.spaces.len();
            return Err(KernelError::OtherPlan(format!(
                "it puts '{name}' in {number}, one past the {count} that it lists"
            )));
        }
        if addresses.insert(*id, residency.offset).is_some_and(|before| before != residency.offset) {
            let name = &program.buffer(*id).name;
            return Err(KernelError::OtherPlan(format!("'{name}' has two places; a kernel's buffer has one")));
        }
    }
    if let Some(id) = placed.iter().find(|id| !addresses.contains_key(id)) {
        return Err(KernelError::OtherPlan(format!("it gives '{}' no place", program.buffer(*id).name)));
    }
    for id in &placed {
        covers(program, plan, *id, &ranges[id.index()], placed.binary_search(id).ok())?;
    }
    place_untouched(program, &mut addresses);
    Ok((program.unplaced().placed(&addresses), notes(program, plan, device)))
}

/// The place of a buffer must be its own in all steps in which the kernel needs it.
fn covers(
    program: &Program,
    plan: &Plan,
    id: BufferId,
    needed: &[StepRange],
    number: Option<usize>,
) -> Result<(), KernelError> {
    let given: Vec<StepRange> =
        plan.residencies.iter().filter(|r| Some(r.buffer.index()) == number).map(|r| r.steps).collect();
    // Between two ranges of the plan nothing is the buffer's: every step of a need must lie in one.
    let whole = |range: &StepRange| {
        let mut at = range.start;
        while at < range.end {
            let next = given.iter().filter(|steps| steps.start <= at && at < steps.end).map(|steps| steps.end).max();
            let Some(next) = next else { return false };
            at = next;
        }
        true
    };
    match needed.iter().find(|range| !whole(range)) {
        None => Ok(()),
        Some(range) => {
            let name = &program.buffer(id).name;
            let steps = given.first().map_or_else(String::new, |steps| format!("steps {steps} alone"));
            let problem = format!(
                "it keeps a place for '{name}' in {steps}, and the kernel needs it in steps {range}: it was made for another text of this kernel"
            );
            Err(KernelError::OtherPlan(problem))
        }
    }
}

/// What makes it doubtful that the plan was made for this kernel, on this device.
fn notes(program: &Program, plan: &Plan, device: &Device) -> Vec<String> {
    if let Some(other) = plan.device.as_ref().filter(|name| **name != device.name) {
        return vec![format!("the plan was made for {other} and is checked for {}", device.name)];
    }
    // Where the kernel states its order, planning adds what it may not share, and the digest is of that.
    let states_order = program.steps.iter().any(|step| matches!(step, Step::Sync(_)));
    if plan.origin.digest.is_empty() || states_order || digests(program, plan, device).contains(&plan.origin.digest) {
        return Vec::new();
    }
    vec![
        "the digest of the plan is none that planning this kernel on this device gives: it was made for other sizes (--dim), another text of the kernel, or by another version"
            .to_owned(),
    ]
}

/// Digests of the problems that planning this kernel may pose, at the capacities and for the goals that the plan names.
fn digests(program: &Program, plan: &Plan, device: &Device) -> Vec<String> {
    let mut unplanned = program.clone();
    for buffer in unplanned.buffers.iter_mut().filter(|b| b.role != npumem_ir::program::Role::Queue && !b.fixed) {
        buffer.address = None;
    }
    let Ok(found) = liveness::problem(&unplanned, device) else { return Vec::new() };
    let mut asked = found.problem;
    if plan.spaces.len() == asked.spaces.len() {
        for (space, used) in asked.spaces.iter_mut().zip(&plan.spaces) {
            space.capacity = used.capacity;
        }
    }
    asked.goals.clone_from(&plan.origin.goals);
    let apart = asked.digest();
    asked.constraints.colocated.extend_from_slice(&found.in_place);
    vec![apart, asked.digest()]
}
