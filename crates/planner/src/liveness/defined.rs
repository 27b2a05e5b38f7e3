//! Which buffers some path may read before it has written the bytes.
//!
//! A forward walk keeps, per buffer and slot expression, the bytes that every path to here has written. A
//! branch keeps what both sides wrote; a loop keeps what held before it, since it may run no time. Slot
//! expressions that follow a counter or a variable mean another slot in the next turn, so they are dropped
//! where a region begins or ends. What cannot be followed counts as exposed: that costs bytes, never soundness.

use super::Targets;
use npumem_ir::program::{Access, Affine, Program, Role, Root, Step, Structure};
use npumem_ir::{BufferId, StepId};
use std::collections::BTreeMap;

/// Bytes that every path has written, by buffer and slot.
type Known = BTreeMap<(BufferId, Affine), Vec<(u64, u64)>>;

/// First byte and the byte past the last of an access whose bytes are one known run.
pub(super) fn span(access: &Access) -> Option<(u64, u64)> {
    let start = u64::try_from(access.start.as_constant()?).ok()?;
    let mut run = (access.element.bits() / 8).max(1);
    for extent in access.extents.iter().rev() {
        let count = u64::try_from(extent.count.as_constant()?).ok()?;
        if count == 1 {
            continue;
        }
        if u64::try_from(extent.stride).ok()? > run {
            return None;
        }
        run = u64::try_from(extent.stride).ok()?.checked_mul(count - 1)?.checked_add(run)?;
    }
    Some((start, start.checked_add(run)?))
}

/// The bytes of an access in its owner: exact when it is one known run, else `None`.
fn bytes(program: &Program, access: &Access) -> Option<(BufferId, u64, u64)> {
    let Root::Buffer(id) = access.root else { return None };
    let (owner, delta) = program.owner(id);
    let (start, end) = if access.extents.is_empty() { (0, program.buffer(id).bytes?) } else { span(access)? };
    Some((owner, delta.checked_add(start)?, delta.checked_add(end)?))
}

fn covers(runs: &[(u64, u64)], start: u64, end: u64) -> bool {
    runs.iter().any(|run| run.0 <= start && end <= run.1)
}

fn add(runs: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    runs.push((start, end));
    runs.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(runs.len());
    for run in runs.drain(..) {
        match merged.last_mut() {
            Some(last) if run.0 <= last.1 => last.1 = last.1.max(run.1),
            _ => merged.push(run),
        }
    }
    *runs = merged;
}

fn meet(a: &Known, b: &Known) -> Known {
    let mut out = Known::new();
    for (key, runs) in a {
        let Some(others) = b.get(key) else { continue };
        let mut both = Vec::new();
        for run in runs {
            for other in others {
                let (start, end) = (run.0.max(other.0), run.1.min(other.1));
                if start < end {
                    both.push((start, end));
                }
            }
        }
        if !both.is_empty() {
            out.insert(key.clone(), both);
        }
    }
    out
}

/// Slots that a region may turn: gone.
fn fixed(known: &mut Known) {
    known.retain(|(_, slot), _| slot.as_constant().is_some());
}

/// Buffers with a read that some path may reach before their bytes are written.
pub(super) fn exposed(program: &Program, structure: &Structure, targets: &Targets) -> Vec<bool> {
    let mut exposed = vec![false; program.buffers.len()];
    let mut known = Known::new();
    // What held where the region began, and at the end of the first branch of an `if`.
    let mut open: Vec<(Known, Option<Known>)> = Vec::new();
    for (at, step) in program.steps.iter().enumerate() {
        match step {
            Step::For { .. } | Step::Loop | Step::If(_) => {
                fixed(&mut known);
                open.push((known.clone(), None));
            }
            Step::Else => {
                if let Some((before, first)) = open.last_mut() {
                    *first = Some(std::mem::replace(&mut known, before.clone()));
                }
            }
            Step::End => {
                let opener = structure.partner(StepId::new(at));
                if let Some((before, first)) = open.pop() {
                    known = match &program.steps[opener.index()] {
                        Step::For { start, stop, .. } => match (start.as_constant(), stop.as_constant()) {
                            // It runs at least once: what its body wrote in slots that do not turn stays.
                            (Some(start), Some(stop)) if start < stop => known,
                            _ => before,
                        },
                        Step::If(_) => meet(&known, first.as_ref().unwrap_or(&before)),
                        _ => before,
                    };
                }
                fixed(&mut known);
            }
            Step::Assign(_) => fixed(&mut known),
            Step::Sync(_) | Step::Leave(_) => {}
            Step::Run(operation) => {
                for access in &operation.reads {
                    let held = bytes(program, access).is_some_and(|(owner, start, end)| {
                        let key = (owner, slot(program, owner, access));
                        known.get(&key).is_some_and(|runs| covers(runs, start, end))
                    });
                    if !held {
                        for id in targets.of(program, access) {
                            exposed[id.index()] = true;
                        }
                    }
                }
                for access in operation.writes.iter().filter(|access| access.certain) {
                    if let Some((owner, start, end)) = bytes(program, access) {
                        add(known.entry((owner, slot(program, owner, access))).or_default(), start, end);
                    }
                }
            }
        }
    }
    for (index, buffer) in program.buffers.iter().enumerate() {
        if buffer.role == Role::External {
            exposed[index] = false;
        }
    }
    exposed
}

fn slot(program: &Program, owner: BufferId, access: &Access) -> Affine {
    if program.buffer(owner).slots == 1 { Affine::constant(0) } else { access.slot.clone() }
}
