//! Who waits for whom when nothing goes on.

use super::engine::What;
use super::outcome::Stuck;
use super::schedule::Scheduler;
use npumem_ir::StepId;

/// Every engine of the first core that hangs, with what the head of its queue waits for.
pub(super) fn explain(scheduler: &Scheduler<'_, '_>) -> Vec<Stuck> {
    let Some(core) = scheduler.cores.iter().find(|core| !core.over) else { return Vec::new() };
    let name = |queue: u16| scheduler.machine.queues[usize::from(queue)].name.as_str();
    let mut list = Vec::new();
    for (index, engine) in core.engines.iter().enumerate() {
        let Some(entry) = engine.waiting.front() else { continue };
        let waits_for = match entry.what {
            What::Run(_) => "the statements before it that share bytes with it".to_owned(),
            What::Take { from, event } => {
                format!(
                    "event {event} from {}, which {}",
                    name(from),
                    still(scheduler, core, from, index as u16, event)
                )
            }
            What::Acquire(token) => format!("buffer token {token}, which another engine holds"),
            What::Await(flag) => format!("flag {flag} of another core, which nobody posts any more"),
            What::Meet => {
                let late: Vec<&str> = core
                    .engines
                    .iter()
                    .enumerate()
                    .filter(|(_, other)| !other.at_barrier)
                    .map(|(other, _)| name(other as u16))
                    .collect();
                format!("{} to come to the barrier", late.join(", "))
            }
            What::Raise { .. } | What::Release(_) | What::Drain | What::Post(_) => {
                "what it has under way to end".to_owned()
            }
        };
        let step = StepId(entry.step);
        list.push(Stuck {
            block: core.block,
            engine: name(index as u16).to_owned(),
            step,
            line: scheduler.program.line(step),
            waits_for,
        });
    }
    list
}

/// Whether the engine that should raise an event still has it in its queue.
fn still(scheduler: &Scheduler<'_, '_>, core: &super::schedule::Core, from: u16, to: u16, event: i64) -> String {
    let queued = core.engines[usize::from(from)]
        .waiting
        .iter()
        .find(|entry| matches!(entry.what, What::Raise { to: other, event: raised } if other == to && raised == event));
    match (queued, core.stalled) {
        (Some(entry), _) => format!("would raise it at step {}", entry.step),
        (None, Some(full)) => {
            format!("has not been issued it: the queue of {} is full", scheduler.machine.queues[usize::from(full)].name)
        }
        (None, None) => "never raises it again".to_owned(),
    }
}
