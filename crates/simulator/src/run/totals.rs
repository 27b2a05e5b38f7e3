//! Sums over the whole run, kept while it goes on.

use super::cost::Cost;
use super::machine::{MAX_SHARED, Machine};
use super::outcome::{Cause, EngineTotals, LinkTotals, SpaceTotals, StepTotals};
use super::schedule::Core;

/// The sums.
#[derive(Clone, Debug)]
pub(super) struct Totals {
    pub engines: Vec<EngineTotals>,
    links: Vec<(u64, u64)>,
    /// The queue that works each link, where one of ours does.
    workers: Vec<Option<u16>>,
    shared: [f64; MAX_SHARED],
    pub steps: Vec<StepTotals>,
    pub statements: u64,
    pub most_in_flight: usize,
}

impl Totals {
    pub fn new(machine: &Machine<'_>, steps: usize) -> Self {
        let engines = machine.queues.iter().map(|queue| EngineTotals {
            name: queue.name.clone(),
            kind: Some(queue.kind),
            ..EngineTotals::default()
        });
        let worker = |link: &npumem_ir::device::Link| {
            let name = &machine.device.engine(link.engine).name;
            machine.queues.iter().position(|queue| queue.name == *name).map(|index| index as u16)
        };
        Totals {
            workers: machine.device.links.iter().map(worker).collect(),
            engines: engines.collect(),
            links: vec![(0, 0); machine.device.links.len()],
            shared: [0.0; MAX_SHARED],
            steps: vec![StepTotals::default(); steps],
            statements: 0,
            most_in_flight: 0,
        }
    }

    /// A statement gave its engine free after `busy` cycles.
    pub fn freed(&mut self, step: u32, queue: u16, busy: f64, cost: &Cost, waited: f64) {
        let engine = &mut self.engines[usize::from(queue)];
        engine.statements += 1;
        engine.busy += busy;
        engine.slowed += (busy - cost.cycles).max(0.0);
        engine.operations = engine.operations.saturating_add(cost.operations);
        self.statements += 1;
        for (link, bytes) in &cost.links {
            let total = &mut self.links[link.index()];
            total.0 = total.0.saturating_add(*bytes);
            total.1 += u64::from(*bytes > 0);
            // What the cache fills by itself is not this engine's.
            if self.workers[link.index()] == Some(queue) {
                engine.bytes = engine.bytes.saturating_add(*bytes);
            }
        }
        for (sum, bytes) in self.shared.iter_mut().zip(cost.shared) {
            *sum += bytes;
        }
        let step = &mut self.steps[step as usize];
        step.runs += 1;
        step.busy += busy;
        step.waited += waited;
        if let Some((cycles, why)) = cost.conflicts {
            self.engines[usize::from(queue)].conflicts += cycles;
            let (before, first) = step.conflicts.unwrap_or((0.0, why));
            step.conflicts = Some((before + cycles, first));
        }
        step.engine = queue;
    }

    /// Bytes that the engine itself moved: not those that a cache brought for it.
    pub fn own_bytes(&self, queue: u16, cost: &Cost) -> u64 {
        let own = cost.links.iter().filter(|(link, _)| self.workers[link.index()] == Some(queue));
        own.map(|(_, bytes)| bytes).sum()
    }

    /// Adds what the engines of all cores stood still, to the end of the run.
    pub fn settle(&mut self, cores: &mut [Core], end: f64) {
        for core in cores {
            for (engine, totals) in core.engines.iter_mut().zip(&mut self.engines) {
                if !engine.busy && end > engine.idle_since {
                    *engine.idle.entry(Cause::Done).or_insert(0.0) += end - engine.idle_since;
                }
                totals.instances += 1;
                totals.overtaken += engine.overtaken;
                for (cause, cycles) in &engine.idle {
                    *totals.idle.entry(*cause).or_insert(0.0) += cycles;
                }
            }
        }
    }

    pub fn links(&self, machine: &Machine<'_>) -> Vec<LinkTotals> {
        let all = machine.device.links.iter().zip(&self.links);
        all.filter(|(_, (bytes, transfers))| *bytes > 0 || *transfers > 0)
            .map(|(link, (bytes, transfers))| LinkTotals {
                name: link.name.clone(),
                bytes: *bytes,
                transfers: *transfers,
            })
            .collect()
    }

    pub fn spaces(&self, machine: &Machine<'_>) -> Vec<SpaceTotals> {
        let all = machine.shared.iter().zip(self.shared);
        all.map(|(shared, bytes)| SpaceTotals {
            name: machine.device.space(shared.space).name.clone(),
            bytes,
            bytes_per_cycle: shared.bandwidth,
        })
        .collect()
    }
}
