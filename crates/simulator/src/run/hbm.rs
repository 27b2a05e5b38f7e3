//! The main memory command by command: what copies ask of it, and when it has answered.
//!
//! ```text
//!   copy ---- start-up ----> runs of bytes ---> one requester for each queue of each core ---> one shared memory
//!        \--- its time by links and bandwidth ---+--- whichever is later --- results are there
//! ```

use super::error::RunError;
use super::machine::Machine;
use super::outcome::{Cause, DramChannel, DramTotals};
use super::touch::Places;
use crate::dram::{
    ChannelCounts, Counts, Detailed, Direction, IdleCauses, Part, Requester, RequesterId, Runs, Transfer, TransferId,
    described,
};
use npumem_ir::device::MissingFigure;
use npumem_ir::program::Program;
use std::collections::BTreeMap;

/// Bursts of one run that are simulated: a minute or two.
const MAX_BURSTS: u64 = 1 << 28;
/// The share of its time above which a data bus counts as full.
const FULL: f64 = 0.85;
/// Buffers of the caller start at multiples of it.
const PAGE: u64 = 4096;
/// What a buffer of unknown size is given.
const UNKNOWN_SIZE: u64 = 1 << 30;
/// Runs of one access that are told apart; what is beyond them is taken behind the last.
pub(super) const MAX_PIECES: usize = 1 << 16;

/// Bytes that a statement takes from, or leaves in, the main memory.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    pub place: u32,
    pub write: bool,
    /// Cycles from the statement's start to the first request.
    pub after: f64,
    /// First byte in the place, and bytes.
    pub pieces: Vec<(u64, u64)>,
}

/// A statement whose bytes the memory is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// Transfers that are not done.
    pub open: u32,
    /// When the last one that is done was there.
    pub end: f64,
    /// The unit itself stands still until then.
    pub holds: bool,
    /// All but the memory is done.
    pub parked: bool,
    /// When it would have ended without the commands of the memory.
    pub due: Option<f64>,
    /// What the memory had counted before.
    since: (ChannelCounts, IdleCauses),
}

/// The memory.
pub(super) struct Hbm {
    memory: Detailed,
    part: Part,
    /// Clocks of the memory in a cycle of the device.
    clocks: f64,
    /// Cycles of the memory's stated latency that are not spent in the part itself.
    transit: f64,
    end: u64,
    bases: Vec<u64>,
    /// Where bytes without a place in the main memory pass through.
    passing: u64,
    requesters: BTreeMap<(u32, u16), RequesterId>,
    owners: BTreeMap<TransferId, (u32, bool)>,
    bursts: u64,
}

impl Hbm {
    pub fn new(machine: &Machine<'_>, program: &Program, places: &Places) -> Result<Self, RunError> {
        let device = machine.device;
        let main = machine.main.ok_or_else(|| MissingFigure::new(&device.name, "main memory"))?;
        let space = device.space(main);
        let dram =
            space.dram.as_ref().ok_or_else(|| MissingFigure::new(&device.name, &format!("{}.dram", space.name)))?;
        let part = described::from_device(&device.name, &space.name, dram)?;
        let clocks = part.clock_hz / machine.clock;
        let alone = f64::from(part.timing.rcd) + f64::from(part.timing.cl) + f64::from(part.timing.burst);
        let latency = device.latency(main)?.get() as f64;
        let mut sizes = vec![None; places.names.len()];
        for (id, buffer) in program.buffers() {
            if device.space_named(&buffer.space) == Some(main) {
                let bytes = buffer.total_bytes().unwrap_or(UNKNOWN_SIZE).max(1);
                let address = buffer.address.as_ref().and_then(|address| address.as_constant()).unwrap_or(0);
                let bytes = bytes.saturating_add(u64::try_from(address).unwrap_or(0));
                let size = &mut sizes[places.of(id) as usize];
                *size = Some(size.map_or(bytes, |size: u64| size.max(bytes)));
            }
        }
        let mut next = 0_u64;
        let mut bases = Vec::with_capacity(sizes.len());
        for size in sizes {
            bases.push(size.map_or(u64::MAX, |_| next));
            next = next.saturating_add(size.map_or(0, |size| size.div_ceil(PAGE).saturating_mul(PAGE)));
        }
        Ok(Hbm {
            memory: Detailed::new(&part)?,
            clocks,
            transit: (latency - alone / clocks).max(0.0),
            end: crate::dram::Placer::new(&part)?.end(),
            part,
            bases,
            passing: next,
            requesters: BTreeMap::new(),
            owners: BTreeMap::new(),
            bursts: 0,
        })
    }

    /// The requester of a queue of a core, paced as fast as its fastest link to the memory.
    fn requester(&mut self, machine: &Machine<'_>, core: u32, queue: u16) -> Result<RequesterId, RunError> {
        if let Some(id) = self.requesters.get(&(core, queue)) {
            return Ok(*id);
        }
        let device = machine.device;
        let engine = device.engine_named(&machine.queues[usize::from(queue)].name);
        let mut rate = 0.0_f64;
        for (id, link) in device.links() {
            if Some(link.engine) == engine && (Some(link.from) == machine.main || Some(link.to) == machine.main) {
                rate = rate.max(device.link_rate(id)?);
            }
        }
        let peak = self.part.peak_bytes_per_second() / self.part.clock_hz;
        let rate = if rate > 0.0 { (rate / self.clocks).min(peak) } else { peak };
        let timing = &self.part.timing;
        let latency = f64::from(timing.rp) + f64::from(timing.rcd) + f64::from(timing.cl) + f64::from(timing.burst);
        // Enough under way to hide the part's own latency twice.
        let outstanding = (2.0 * rate * latency / self.part.burst_bytes as f64).clamp(64.0, 4096.0) as u32;
        let mut limits = Requester::per_channel(outstanding);
        if rate < peak {
            limits = limits.with_bandwidth(rate, self.part.burst_bytes);
        }
        let id = self.memory.add_requester(limits)?;
        self.requesters.insert((core, queue), id);
        Ok(id)
    }

    /// Asks for what a statement draws.
    pub fn ask(
        &mut self,
        machine: &Machine<'_>,
        (core, queue, owner): (u32, u16, u32),
        now: f64,
        drawn: &[Drawn],
        holds: bool,
    ) -> Result<Option<Asked>, RunError> {
        let mut open = 0;
        let since = self.counted();
        for one in drawn {
            let requester = self.requester(machine, core, queue)?;
            let base = self.bases.get(one.place as usize).copied().filter(|base| *base != u64::MAX);
            let base = base.unwrap_or(self.passing);
            let at = ((now + one.after) * self.clocks).ceil() as u64;
            let direction = if one.write { Direction::Write } else { Direction::Read };
            for runs in grouped(&one.pieces) {
                let bursts = (runs.bytes / self.part.burst_bytes).saturating_add(2).saturating_mul(runs.count);
                self.bursts = self.bursts.saturating_add(bursts);
                if self.bursts > MAX_BURSTS {
                    return Err(RunError::Traffic { most: MAX_BURSTS });
                }
                // Within the bound, so within 64 bits; addresses past the last row start again at the first.
                let reach = runs.pitch.saturating_mul(runs.count).saturating_add(runs.bytes);
                let room = self.end.saturating_sub(reach).max(1);
                let runs = Runs { start: base.saturating_add(runs.start) % room, ..runs };
                let transfer = Transfer { requester, direction, runs };
                let id = self.memory.submit(at.max(self.memory.now()), transfer)?;
                self.owners.insert(id, (owner, one.write));
                open += 1;
            }
        }
        Ok((open > 0).then_some(Asked { open, end: now, holds, parked: false, due: None, since }))
    }

    /// Runs up to a moment (or to the end): the first transfer that is done by then, its statement, and when its bytes
    /// are there.
    pub fn next_done(&mut self, until: Option<f64>) -> Option<(u32, f64, f64)> {
        if self.memory.is_idle() {
            return None;
        }
        let until = until.map_or(u64::MAX, |time| (time * self.clocks).floor() as u64);
        let done = self.memory.run_until(until)?;
        let (owner, write) = self.owners.remove(&done.transfer)?;
        let time = done.at as f64 / self.clocks;
        Some((owner, time, if write { time } else { time + self.transit }))
    }

    fn counted(&self) -> (ChannelCounts, IdleCauses) {
        let counts = self.memory.counts();
        (counts.total(), counts.total_idle())
    }

    /// What kept the data buses idle most since a statement asked; `None` when they were full of data, or turned
    /// between reading and writing for longest.
    pub fn cause(&self, asked: &Asked, passed: f64) -> Option<Cause> {
        let (now, idle) = self.counted();
        let (before, was) = &asked.since;
        let bursts = (now.reads + now.writes).saturating_sub(before.reads + before.writes);
        let data = (bursts * u64::from(self.part.timing.burst)) as f64;
        if data > FULL * passed * self.clocks * f64::from(self.part.channels) {
            return None;
        }
        let since = |count: fn(&IdleCauses) -> u64| count(&idle).saturating_sub(count(was));
        let candidates = [
            (since(|idle| idle.row_miss + idle.activate_rate), Some(Cause::RowMiss)),
            (since(|idle| idle.bank_conflict), Some(Cause::BankConflict)),
            (since(|idle| idle.refresh), Some(Cause::Refresh)),
            (since(|idle| idle.turnaround), None),
        ];
        let mut best = (0, None);
        for candidate in candidates {
            if candidate.0 > best.0 {
                best = candidate;
            }
        }
        best.1
    }

    pub fn totals(&self) -> DramTotals {
        let counts: Counts = self.memory.counts();
        let total = counts.total();
        let bytes = |bursts: u64| bursts * counts.burst_bytes;
        let channel = |one: &ChannelCounts| DramChannel { read: bytes(one.reads), written: bytes(one.writes) };
        DramTotals {
            part: self.part.name.clone(),
            row_hits: total.row_hits,
            row_misses: total.row_misses,
            row_conflicts: total.row_conflicts,
            activates: total.activates,
            refreshes: total.refreshes,
            peak_bytes_per_second: self.part.peak_bytes_per_second(),
            channels: counts.channels.iter().map(channel).collect(),
            idle: counts.total_idle().named().to_vec(),
        }
    }
}

/// Pieces of equal size at equal distances as one.
fn grouped(pieces: &[(u64, u64)]) -> Vec<Runs> {
    let mut list: Vec<Runs> = Vec::new();
    for &(start, bytes) in pieces.iter().filter(|(_, bytes)| *bytes > 0) {
        if let Some(last) = list.last_mut().filter(|last| last.bytes == bytes && start > last.start) {
            if last.count == 1 {
                last.pitch = start - last.start;
            }
            if last.pitch.checked_mul(last.count) == Some(start - last.start) {
                last.count += 1;
                continue;
            }
        }
        list.push(Runs::one(start, bytes));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_at_equal_distances_are_one_transfer() {
        let runs = grouped(&[(0, 64), (256, 64), (512, 64), (1024, 64), (1088, 32), (0, 0)]);
        let expected = [Runs { start: 0, bytes: 64, pitch: 256, count: 3 }, Runs::one(1024, 64), Runs::one(1088, 32)];
        assert_eq!(runs, expected);
        assert_eq!(grouped(&[(128, 64), (0, 64)]), [Runs::one(128, 64), Runs::one(0, 64)], "backwards");
    }
}
