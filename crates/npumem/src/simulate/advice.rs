//! Would one more slot help? Tried, not guessed: the program is rewritten and run again.

use super::{Request, with_sink};
use npumem_ir::program::{Program, Role, Root, Step, Structure};
use npumem_ir::units::Bytes;
use npumem_ir::{BufferId, Device, ScalarId, StepId};
use npumem_report::run_report::Advice;
use npumem_simulator::run::{Cause, End, Nothing, Outcome, RunError};
use std::collections::BTreeMap;

/// Buffers that are tried.
const MAX_TRIED: usize = 4;
/// A wait that is a smaller share of the run is not worth a slot.
const LEAST_SHARE: f64 = 0.02;

/// For the buffers that engines wait longest to be free: what one more slot does.
///
/// # Errors
/// As for a run; a buffer whose accesses no loop turns over is passed over.
pub fn advice(
    program: &Program,
    device: &Device,
    request: &Request,
    outcome: &Outcome,
) -> Result<Vec<Advice>, RunError> {
    let structure = program.structure()?;
    let mut waits: BTreeMap<BufferId, (f64, usize)> = BTreeMap::new();
    for (index, engine) in outcome.engines.iter().enumerate() {
        for (cause, cycles) in &engine.idle {
            if let Cause::InUse { buffer } = cause {
                let share = cycles / (outcome.cycles * engine.instances.max(1) as f64);
                let worst = waits.entry(*buffer).or_insert((0.0, index));
                if share > worst.0 {
                    *worst = (share, index);
                }
            }
        }
    }
    let mut order: Vec<(BufferId, f64, usize)> =
        waits.into_iter().filter(|(_, (share, _))| *share >= LEAST_SHARE).map(|(id, (s, e))| (id, s, e)).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut list = Vec::new();
    for (buffer, _, engine) in order.into_iter().take(MAX_TRIED) {
        let Some(changed) = with_one_more_slot(program, &structure, buffer) else { continue };
        let after = with_sink(&changed, device, request, &mut Nothing)?;
        if after.end != End::Complete {
            continue;
        }
        let idle =
            |outcome: &Outcome| outcome.engines.get(engine).map_or(0.0, |totals| 1.0 - outcome.busy_share(totals));
        let slots = changed.buffer(buffer).slots;
        let speedup = outcome.cycles / after.cycles;
        list.push(Advice {
            change: format!("{} for '{}'", ordinal(slots), program.buffer(buffer).name),
            engine: outcome.engines[engine].name.clone(),
            waits_before: idle(outcome),
            waits_after: idle(&after),
            cycles_after: after.cycles,
            speedup,
            room: room(&changed, device, buffer),
            helps: speedup > 1.01,
        });
    }
    Ok(list)
}

fn ordinal(slots: u32) -> String {
    match slots {
        2 => "a second slot".to_owned(),
        3 => "a third slot".to_owned(),
        n => format!("{n} slots"),
    }
}

/// The program with one more slot for a buffer, turned over by the innermost loop around all its accesses.
fn with_one_more_slot(program: &Program, structure: &Structure, buffer: BufferId) -> Option<Program> {
    let owner = program.buffer(buffer);
    if owner.role != Role::Tile || owner.alias.is_some() {
        return None;
    }
    // Another size of one buffer makes any plan of the others void.
    let mut changed = program.unplaced();
    if owner.slots > 1 {
        changed.buffers[buffer.index()].slots += 1;
        for other in &mut changed.buffers {
            if other.alias.is_some_and(|alias| alias.of == buffer) {
                other.slots += 1;
            }
        }
        return Some(changed);
    }
    let counter = common_loop(program, structure, buffer)?;
    changed.rotate(buffer, 2, counter).ok()?;
    Some(changed)
}

/// The counter of the innermost `for` that holds every access to a buffer.
fn common_loop(program: &Program, structure: &Structure, buffer: BufferId) -> Option<ScalarId> {
    let mut common: Option<Vec<StepId>> = None;
    for (at, step) in program.steps.iter().enumerate() {
        match step {
            Step::Run(operation) => {
                let touches = operation.reads.iter().chain(&operation.writes).any(|access| match access.root {
                    Root::Buffer(id) => program.owner(id).0 == buffer,
                    Root::Handle(_) => false,
                });
                if !touches {
                    continue;
                }
                let mut around = Vec::new();
                let mut region = structure.parent(StepId::new(at));
                while let Some(id) = region {
                    around.push(id);
                    region = structure.parent(id);
                }
                around.reverse();
                common = Some(match common {
                    None => around,
                    Some(before) => before.iter().zip(&around).take_while(|(a, b)| a == b).map(|(id, _)| *id).collect(),
                });
            }
            // Through a handle nobody knows which slot is meant.
            Step::Assign(assign) => {
                let named = |root: &Root| matches!(root, Root::Buffer(id) if program.owner(*id).0 == buffer);
                if assign.handles.iter().any(|(_, root, _)| named(root)) {
                    return None;
                }
            }
            _ => {}
        }
    }
    common?.iter().rev().find_map(|id| match &program.steps[id.index()] {
        Step::For { counter, step, .. } if step.as_constant().is_some() => Some(*counter),
        _ => None,
    })
}

/// What all buffers of the space take beside each other, and what there is.
fn room(program: &Program, device: &Device, buffer: BufferId) -> String {
    let Some(space) = device.space_named(&program.buffer(buffer).space) else { return String::new() };
    let same = program.buffers.iter().filter(|other| {
        other.role != Role::External && other.alias.is_none() && device.space_named(&other.space) == Some(space)
    });
    let total: Bytes = same.map(|other| Bytes(other.total_bytes().unwrap_or(0))).sum();
    let name = &device.space(space).name;
    match device.usable(space) {
        Ok(usable) if total <= usable => {
            format!("it fits: all buffers of {name} then take {} of {}", total.short(), usable.short())
        }
        Ok(usable) => format!(
            "all buffers of {name} then take {} of {}: some must share bytes or shrink",
            total.short(),
            usable.short()
        ),
        Err(_) => format!("all buffers of {name} then take {}", total.short()),
    }
}
