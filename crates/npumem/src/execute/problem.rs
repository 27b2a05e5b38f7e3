//! A placement problem as a task: each buffer is filled when it starts to live and read when it ends.
//!
//! Buffers that are placed by another one (colocated) hold their part of the other's pattern, so that what may share bytes agrees
//! on them. Reading adds into a sink of its own, which is compared at the end: every byte of every buffer counts.

use super::{PrepareError, Prepared, part, place, spaces};
use npumem_backend::executor::{Operation, Task, TaskValue, Work};
use npumem_backend::{Element, Kernel, Operand};
use npumem_ir::problem::LiveRange;
use npumem_ir::{BufferId, Bytes, Plan, Problem, Step};
use std::collections::BTreeSet;

/// What happens at a step, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A live range has ended.
    End(BufferId, usize),
    /// A move starts.
    Move(usize),
    /// A live range starts.
    Start(BufferId, usize),
}

/// Where a buffer lies in the pattern that it shares with those it is placed by.
#[derive(Clone, Copy)]
struct Root {
    value: usize,
    delta: u64,
}

/// Makes the task of a plan.
///
/// # Errors
/// A buffer without a size or a place.
pub fn of_problem(problem: &Problem, plan: &Plan) -> Result<Prepared, PrepareError> {
    if let Some(pooled) = plan.pooled.first().filter(|id| id.index() < problem.buffers.len()) {
        return Err(PrepareError::Pooled(problem.buffer(*pooled).name.clone()));
    }
    let roots = roots(problem)?;
    let sizes = |id: BufferId| problem.buffers.get(id.index()).map_or(0, |buffer| buffer.size.get());
    let too_large = || PrepareError::TooLarge(problem.name.clone());
    let mut spaces = spaces(plan, sizes, problem.spaces.len()).ok_or_else(too_large)?;
    let (sink_space, sink_value) = (spaces.len(), problem.buffers.len());
    let sink = problem.buffers.iter().map(|buffer| buffer.size.get()).max().unwrap_or(0);
    spaces.push(Bytes(sink));
    let value = |(name, bytes): (String, u64)| TaskValue { name, bytes };
    let ends = ends(problem, &roots)?;
    let named = problem.buffers.iter().zip(&ends).map(|(buffer, end)| (buffer.name.clone(), *end));
    let values: Vec<TaskValue> = named.chain([("what was read".to_owned(), sink)]).map(value).collect();
    let sink_at = part(sink_value, 0, (sink_space, 0));
    let mut task = Task { spaces, values, operations: Vec::new(), observed: vec![(sink_at, sink)] };
    let skipped = never_together(problem, plan);
    let whole = words(problem, plan, &roots);
    for (step, event) in events(problem, plan, &skipped) {
        let (id, range, start) = match event {
            Event::Move(index) => {
                task.operations.push(moved(problem, plan, &roots, index));
                continue;
            }
            Event::Start(id, range) => (id, range, true),
            Event::End(id, range) => (id, range, false),
        };
        let buffer = problem.buffer(id);
        let live = &buffer.live[range];
        let at = if start { step } else { Step(live.steps.end.0.saturating_sub(1)) };
        let no_place = || PrepareError::NoPlace { buffer: buffer.name.clone(), step: at.0 };
        let (space, offset) = place(plan, id, at).ok_or_else(no_place)?;
        let window = buffer.window(live);
        let (skip, bytes) = (window.start.get(), window.end.get().saturating_sub(window.start.get()));
        let root = roots[id.index()];
        let from = part(root.value, root.delta + skip, (space, offset + skip));
        let element = if whole[root.value] { Element::F32 } else { Element::Byte };
        let operand = |place| Operand { place, count: bytes / element.bytes(), element };
        let (verb, kernel) = if start {
            let first = (root.delta + skip) / element.bytes();
            ("fill", Kernel::Pattern { to: operand(from), seed: root.value as u32 + 1, first })
        } else {
            ("read", Kernel::Mix { from: operand(from), to: operand(sink_at), accumulate: true })
        };
        task.operations
            .push(Operation { name: format!("{verb} '{}' at step {step}", buffer.name), work: Work::Kernel(kernel) });
    }
    let mut notes = Vec::new();
    if !skipped.is_empty() {
        notes.push(format!(
            "{} buffers share bytes with one that they never coexist with, and are left out: one run cannot do both.",
            skipped.len()
        ));
    }
    Ok(Prepared { name: problem.name.clone(), task, notes, ..Prepared::default() })
}

fn moved(problem: &Problem, plan: &Plan, roots: &[Root], index: usize) -> Operation {
    let one = &plan.moves[index];
    let (buffer, root) = (problem.buffer(one.buffer), roots[one.buffer.index()]);
    let at = |location: npumem_ir::problem::Location| {
        part(root.value, root.delta, (location.space.index(), location.offset.get()))
    };
    Operation {
        name: format!("move '{}' at step {}", buffer.name, one.steps.start),
        work: Work::Move { from: at(one.from), to: at(one.to), bytes: buffer.size.get() },
    }
}

/// Everything that happens, in order.
fn events(problem: &Problem, plan: &Plan, skipped: &BTreeSet<BufferId>) -> Vec<(Step, Event)> {
    let mut events = Vec::new();
    for (id, buffer) in problem.buffers().filter(|(id, buffer)| !skipped.contains(id) && buffer.size > Bytes::ZERO) {
        let whole = |range: &LiveRange| !range.steps.is_empty() && !buffer.window(range).is_empty();
        for (index, range) in buffer.live.iter().enumerate().filter(|(_, range)| whole(range)) {
            events.push((range.steps.start, Event::Start(id, index)));
            events.push((range.steps.end, Event::End(id, index)));
        }
    }
    let kept =
        |one: &npumem_ir::plan::Move| !skipped.contains(&one.buffer) && one.buffer.index() < problem.buffers.len();
    let moves = plan.moves.iter().enumerate().filter(|(_, one)| kept(one));
    events.extend(moves.map(|(index, one)| (one.steps.start, Event::Move(index))));
    events.sort_unstable();
    events
}

/// The buffer that each one is placed by in the end, and how far into it.
fn roots(problem: &Problem) -> Result<Vec<Root>, PrepareError> {
    let mut base = vec![None; problem.buffers.len()];
    for one in &problem.constraints.colocated {
        if one.buffer.index() < base.len() && one.base.index() < base.len() && base[one.buffer.index()].is_none() {
            base[one.buffer.index()] = Some((one.base.index(), one.delta.get()));
        }
    }
    let mut roots: Vec<Root> = (0..base.len()).map(|value| Root { value, delta: 0 }).collect();
    for (index, root) in roots.iter_mut().enumerate() {
        // A chain is at most as long as there are buffers; a ring ends there too.
        for _ in 0..base.len() {
            let Some((next, delta)) = base[root.value].filter(|(next, _)| *next != index) else { break };
            let too_large = || PrepareError::TooLarge(problem.buffers[index].name.clone());
            *root = Root { value: next, delta: root.delta.checked_add(delta).ok_or_else(too_large)? };
        }
    }
    Ok(roots)
}

/// The bytes that each buffer's pattern needs: its own and those of what is placed by it.
fn ends(problem: &Problem, roots: &[Root]) -> Result<Vec<u64>, PrepareError> {
    let mut ends = vec![0; problem.buffers.len()];
    for (buffer, root) in problem.buffers.iter().zip(roots) {
        let end = root.delta.checked_add(buffer.size.get());
        let end = end.ok_or_else(|| PrepareError::TooLarge(buffer.name.clone()))?;
        ends[root.value] = end.max(ends[root.value]);
    }
    Ok(ends)
}

/// Of each root: whether everything placed by it starts and ends at whole words, so that its pattern is made of floats.
fn words(problem: &Problem, plan: &Plan, roots: &[Root]) -> Vec<bool> {
    let mut whole = vec![true; problem.buffers.len()];
    let of_four = |value: u64| value.is_multiple_of(4);
    for (buffer, root) in problem.buffers.iter().zip(roots) {
        let windows = buffer.live.iter().all(|range| {
            let window = buffer.window(range);
            of_four(window.start.get()) && of_four(window.end.get())
        });
        whole[root.value] &= windows && of_four(buffer.size.get()) && of_four(root.delta);
    }
    for one in &plan.residencies {
        if let Some(root) = roots.get(one.buffer.index()) {
            whole[root.value] &= of_four(one.offset.get());
        }
    }
    whole
}

/// The second of each pair that never coexists, where the plan makes use of that.
fn never_together(problem: &Problem, plan: &Plan) -> BTreeSet<BufferId> {
    let shares = |first: BufferId, second: BufferId| {
        plan.residencies_of(first).iter().any(|a| {
            plan.residencies_of(second).iter().any(|b| {
                let size = |id: BufferId| problem.buffer(id).size.get();
                a.space == b.space
                    && a.offset.get() < b.offset.get().saturating_add(size(second))
                    && b.offset.get() < a.offset.get().saturating_add(size(first))
            })
        })
    };
    let known = |id: &BufferId| id.index() < problem.buffers.len();
    let pairs = problem.constraints.never_coexist.iter().filter(|(first, second)| known(first) && known(second));
    pairs.filter(|(first, second)| shares(*first, *second)).map(|(first, second)| *first.max(second)).collect()
}
