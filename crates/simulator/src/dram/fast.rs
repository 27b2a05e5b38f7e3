//! The memory as bandwidth and latency, with the efficiency of each shape of transfer.
//!
//! The first transfer of a shape (bytes and pitch of its runs, direction, who asks) runs a sample
//! through the detailed model; all others of that shape take its rate. Sample and closed form:
//!
//! ```text
//!   time = bursts / rate + latency        rate = the sample's, over whole refresh intervals
//! ```
//!
//! Several transfers at once share the memory: each has at most its own rate, and the shares of the
//! memory's time (own rate over the rate that the memory could give to the shape) add up to one at most.
//! A sample sees its own shape only: rows that other requesters close, and queues that they fill, are
//! not seen, and neither is where the addresses of two transfers lie to each other. See
//! [`Fast::doubts`].

use super::detailed::Detailed;
use super::drive::Pattern;
use super::error::{PartError, RequestError};
use super::mapping::Placer;
use super::part::Part;
use super::transfer::{Completion, Direction, Requester, RequesterId, Routing, Runs, Transfer, TransferId, bursts};
use std::collections::{BTreeMap, VecDeque};

/// Bursts that a sample measures at least.
const LEAST: u64 = 4096;

/// Transfers at irregular starts that a sample measures at least, up to [`MOST`] bursts.
const IRREGULAR: u64 = 64;
const MOST: u64 = 96 * 1024;

/// Refresh intervals that a sample goes on for at most.
const LONGEST: u64 = 64;

/// Bursts of one transfer that a sample takes at most.
const LARGEST: u64 = 16 * 1024;

/// The rate and latency of one shape of transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Bursts in a clock, the requester alone, transfers of the shape back to back.
    pub bursts_per_clock: f64,
    /// Bursts in a clock that the memory could give to the shape.
    pub memory_bursts_per_clock: f64,
    /// Clocks that one burst takes on its own.
    pub latency: u64,
}

/// A reason why a run may be more than a tenth off the detailed model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// Transfers of several requesters were under way at once and not all were streams: rows that they close
    /// for each other are not seen.
    SharedRows,
    /// Requesters with different limits wanted more than the memory gives: how queues share it is not seen.
    UnequalShares,
    /// Reads and writes were under way at once: the turns of the data bus are not seen.
    Turnaround,
    /// A transfer of few bursts: where they lie decides, and the sample only knows the mean.
    ShortTransfers,
}

/// The shape of a transfer: what decides its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    write: bool,
    bytes: u64,
    pitch: u64,
    count: u64,
    start_in_burst: u64,
    /// Bytes from the start of one transfer to the start of the next, when they come regularly.
    step: Option<u64>,
    /// The requester's limits; `None`: whatever the memory gives.
    limits: Option<(u32, u32, u64, bool)>,
}

#[derive(Clone, Debug)]
struct Pending {
    id: u64,
    at: u64,
    bursts: u64,
    write: bool,
    stream: bool,
    estimate: Estimate,
}

#[derive(Clone, Debug)]
struct Source {
    limits: Requester,
    pending: VecDeque<Pending>,
    /// The last transfer's start, and the step to it.
    last_start: Option<u64>,
    last_step: Option<u64>,
    /// Bursts of the first pending transfer that are left.
    left: f64,
    /// Bursts in a clock that it has now.
    rate: f64,
    bursts: u64,
}

/// A memory of bandwidth and latency with the interface of [`Detailed`].
#[derive(Clone, Debug)]
pub struct Fast {
    part: Part,
    placer: Placer,
    rates: BTreeMap<Shape, f64>,
    sources: Vec<Source>,
    /// By clock and transfer.
    finished: BTreeMap<(u64, u64), u32>,
    /// How far the shares have run.
    clock: f64,
    now: u64,
    submitted: u64,
    doubts: [bool; 4],
}

impl Fast {
    /// A memory at clock zero.
    ///
    /// # Errors
    /// A figure or a mapping that the model cannot work with.
    pub fn new(part: &Part) -> Result<Self, PartError> {
        part.check()?;
        Ok(Fast {
            part: part.clone(),
            placer: Placer::new(part)?,
            rates: BTreeMap::new(),
            sources: Vec::new(),
            finished: BTreeMap::new(),
            clock: 0.0,
            now: 0,
            submitted: 0,
            doubts: [false; 4],
        })
    }

    /// As [`Detailed::add_requester`].
    ///
    /// # Errors
    /// For one that could never issue anything.
    pub fn add_requester(&mut self, limits: Requester) -> Result<RequesterId, RequestError> {
        limits.check()?;
        self.sources.push(Source {
            limits,
            pending: VecDeque::new(),
            last_start: None,
            last_step: None,
            left: 0.0,
            rate: 0.0,
            bursts: 0,
        });
        Ok(RequesterId(self.sources.len() as u32 - 1))
    }

    /// The clock up to which everything has happened.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Bursts that each requester moved so far, those under way included.
    #[must_use]
    pub fn bursts(&self) -> Vec<u64> {
        self.sources.iter().map(|source| source.bursts).collect()
    }

    /// Why this run may be more than a tenth off the detailed model; nothing for streams and tiles of one
    /// requester, which the tests hold to that.
    #[must_use]
    pub fn doubts(&self) -> Vec<Doubt> {
        let all = [Doubt::SharedRows, Doubt::UnequalShares, Doubt::Turnaround, Doubt::ShortTransfers];
        all.into_iter().zip(self.doubts).filter(|(_, seen)| *seen).map(|(doubt, _)| doubt).collect()
    }

    /// The rate and latency of a transfer's shape, as the next of its requester's.
    ///
    /// # Errors
    /// As [`Detailed::submit`].
    pub fn estimate(&mut self, transfer: &Transfer) -> Result<Estimate, RequestError> {
        let source = self.source(transfer.requester)?;
        let limits = source.limits;
        let step = source.last_start.map(|last| transfer.runs.start.wrapping_sub(last));
        let regular = step.filter(|step| source.last_step == Some(*step));
        let shape = Shape { step: regular, ..self.shape(transfer, limits) };
        let own = self.rate(shape, limits)?;
        let free = Requester::per_channel(64 * self.part.channels * self.part.pseudo_channels);
        let memory = self.rate(Shape { limits: None, ..shape }, free)?.max(own);
        let timing = &self.part.timing;
        let latency = if shape.write { 2 } else { 2 + u64::from(timing.rcd) + timing.read_data() };
        Ok(Estimate { bursts_per_clock: own, memory_bursts_per_clock: memory, latency })
    }

    /// As [`Detailed::submit`].
    ///
    /// # Errors
    /// An unknown requester, a clock that is past, addresses that the mapping cannot place.
    pub fn submit(&mut self, at: u64, transfer: Transfer) -> Result<TransferId, RequestError> {
        self.source(transfer.requester)?;
        if at < self.now {
            return Err(RequestError::Past { at, now: self.now });
        }
        let most = self.placer.end();
        let end = transfer.runs.end().unwrap_or(u64::MAX);
        if end > most || end == u64::MAX {
            return Err(RequestError::Address { end, most });
        }
        let count = bursts(&transfer.runs, &self.placer);
        let estimate = if count == 0 {
            Estimate { bursts_per_clock: 1.0, memory_bursts_per_clock: 1.0, latency: 0 }
        } else {
            self.estimate(&transfer)?
        };
        if count > 0 && count < 64 {
            self.doubts[3] = true;
        }
        let id = self.submitted;
        self.submitted += 1;
        let source = &mut self.sources[transfer.requester.0 as usize];
        source.bursts += count;
        source.last_step = source.last_start.map(|last| transfer.runs.start.wrapping_sub(last));
        source.last_start = Some(transfer.runs.start);
        let stream = transfer.runs.count == 1 || transfer.runs.pitch <= transfer.runs.bytes;
        let write = transfer.direction == Direction::Write;
        source.pending.push_back(Pending { id, at, bursts: count, write, stream, estimate });
        if source.pending.len() == 1 {
            source.left = count as f64;
        }
        Ok(TransferId(id))
    }

    /// As [`Detailed::run_until`].
    pub fn run_until(&mut self, until: u64) -> Option<Completion> {
        loop {
            let done = self.finished.first_key_value().map(|((at, id), requester)| (*at, *id, *requester));
            self.share();
            let event = self.next_event();
            match (done, event) {
                (Some((at, id, requester)), event) if at <= until && event.is_none_or(|event| at as f64 <= event) => {
                    self.finished.remove(&(at, id));
                    self.now = self.now.max(at);
                    return Some(Completion { transfer: TransferId(id), requester: RequesterId(requester), at });
                }
                (_, Some(event)) if event <= until as f64 => self.advance(event),
                _ => {
                    if until != u64::MAX {
                        self.advance(until as f64);
                        self.now = self.now.max(until);
                    }
                    return None;
                }
            }
        }
    }

    /// No transfer is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.finished.is_empty() && self.sources.iter().all(|source| source.pending.is_empty())
    }

    fn source(&self, requester: RequesterId) -> Result<&Source, RequestError> {
        let count = self.sources.len() as u32;
        self.sources.get(requester.0 as usize).ok_or(RequestError::NoRequester { requester: requester.0, count })
    }

    fn shape(&self, transfer: &Transfer, limits: Requester) -> Shape {
        let runs = &transfer.runs;
        let burst = self.part.burst_bytes;
        // Long runs and tall tiles are sampled by their beginning.
        let bytes = runs.bytes.min(LARGEST * burst);
        let per_run = bytes.div_ceil(burst).max(1);
        Shape {
            write: transfer.direction == Direction::Write,
            bytes,
            pitch: if runs.count > 1 { runs.pitch } else { 0 },
            count: runs.count.min(LARGEST.div_ceil(per_run)),
            start_in_burst: runs.start % burst,
            step: None,
            limits: Some((
                limits.outstanding,
                limits.offers_per_clock,
                limits.interval,
                limits.routing == Routing::InOrder,
            )),
        }
    }

    /// Bursts in a clock of a shape, from a sample of the detailed model.
    fn rate(&mut self, shape: Shape, limits: Requester) -> Result<f64, RequestError> {
        if let Some(rate) = self.rates.get(&shape) {
            return Ok(*rate);
        }
        let rate = sample(&self.part, &self.placer, shape, limits)?;
        self.rates.insert(shape, rate);
        Ok(rate)
    }

    /// Shares the memory's time among the transfers under way.
    fn share(&mut self) {
        let clock = self.clock;
        let active = |source: &Source| source.pending.front().is_some_and(|one| one.at as f64 <= clock);
        let (mut time, mut open) = (1.0, 0u32);
        for source in &mut self.sources {
            source.rate = 0.0;
            open += u32::from(active(source));
        }
        if open > 1 {
            let heads = || self.sources.iter().filter(|source| active(source)).filter_map(|one| one.pending.front());
            self.doubts[0] |= heads().any(|one| !one.stream);
            self.doubts[2] |= heads().any(|one| one.write) && heads().any(|one| !one.write);
        }
        // Those that need less than an equal share leave the rest to the others.
        let mut rest: Vec<usize> = (0..self.sources.len()).filter(|at| active(&self.sources[*at])).collect();
        let need = |source: &Source| {
            source
                .pending
                .front()
                .map_or(0.0, |one| one.estimate.bursts_per_clock / one.estimate.memory_bursts_per_clock)
        };
        rest.sort_by(|a, b| need(&self.sources[*a]).total_cmp(&need(&self.sources[*b])));
        let full: f64 = rest.iter().map(|at| need(&self.sources[*at])).sum();
        let first = rest.first().map(|at| self.sources[*at].limits);
        self.doubts[1] |= full > 1.0 && rest.iter().any(|at| Some(self.sources[*at].limits) != first);
        for at in rest {
            let part = need(&self.sources[at]).min(time / f64::from(open));
            time -= part;
            open -= 1;
            let memory = self.sources[at].pending.front().map_or(0.0, |one| one.estimate.memory_bursts_per_clock);
            self.sources[at].rate = part * memory;
        }
    }

    /// The next clock at which a transfer starts or has issued its last burst.
    fn next_event(&self) -> Option<f64> {
        self.sources
            .iter()
            .filter_map(|source| {
                let first = source.pending.front()?;
                if first.at as f64 > self.clock {
                    return Some(first.at as f64);
                }
                Some(self.clock + if source.left > 0.0 { source.left / source.rate } else { 0.0 })
            })
            .min_by(f64::total_cmp)
    }

    /// Moves the transfers on to a clock that is no later than the next event.
    fn advance(&mut self, to: f64) {
        let passed = (to - self.clock).max(0.0);
        self.clock = self.clock.max(to);
        for (number, source) in self.sources.iter_mut().enumerate() {
            let Some(first) = source.pending.front() else { continue };
            if first.at as f64 > self.clock {
                continue;
            }
            source.left -= source.rate * passed;
            // A millionth of a burst is the noise of the division.
            if source.left > 1e-6 {
                continue;
            }
            // The last burst was issued a burst's time ago.
            let pipeline = first.estimate.latency.saturating_sub(u64::from(first.bursts > 1));
            let at = (self.clock.ceil() as u64).saturating_add(pipeline);
            self.finished.insert((at, first.id), number as u32);
            source.pending.pop_front();
            source.left = source.pending.front().map_or(0.0, |next| next.bursts as f64);
        }
    }
}

/// Bursts in a clock of transfers of the shape back to back, over whole refresh intervals after the first.
fn sample(part: &Part, placer: &Placer, shape: Shape, limits: Requester) -> Result<f64, RequestError> {
    // The figures were checked when the model was made.
    let Ok(mut memory) = Detailed::new(part) else { return Ok(1.0) };
    let requester = memory.add_requester(limits)?;
    let direction = if shape.write { Direction::Write } else { Direction::Read };
    let runs = Runs { start: 0, bytes: shape.bytes, pitch: shape.pitch, count: shape.count };
    let span = runs.end().unwrap_or(u64::MAX).max(1);
    let room = placer.end().min(1 << 40).saturating_sub(span).max(4096);
    let single = bursts(&runs, placer).max(1);
    let mut random = Pattern::Random { block: 4096 }.runs(room, 64, 1);
    // A memory of very many channels is looked at for a shorter while: a million bursts lie ready at most.
    let peak = (part.peak_bytes_per_clock() / part.burst_bytes as f64).ceil().max(1.0) as u64;
    let interval = u64::from(part.timing.refi).min(8192).min((1 << 20) / peak).max(64);
    let ahead = peak * interval + u64::from(limits.outstanding).min(1 << 20);
    // At irregular starts chance decides which channels and banks work: many bursts are needed for the mean.
    let wanted = if shape.step.is_none() && runs.count > 1 { (single * IRREGULAR).clamp(LEAST, MOST) } else { LEAST };
    let (mut submitted, mut first) = (0, 0);
    for round in 1..=LONGEST {
        let served = memory.counts().requesters[0].bursts;
        while submitted * single < served + ahead {
            let start = match shape.step {
                Some(step) => step.wrapping_mul(submitted) % room,
                None => random.next().map_or(0, |at| at.start),
            };
            let runs = Runs { start: start + shape.start_in_burst, ..runs };
            memory.submit(memory.now(), Transfer { requester, direction, runs })?;
            submitted += 1;
        }
        while memory.run_until(round * interval).is_some() {}
        let served = memory.counts().requesters[0].bursts;
        if round == 1 {
            first = served;
        } else if (round >= 3 && served - first >= wanted) || round == LONGEST {
            return Ok((served - first).max(1) as f64 / ((round - 1) * interval) as f64);
        }
    }
    Ok(1.0)
}
