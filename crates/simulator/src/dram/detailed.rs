//! The memory command by command, shared by requesters.
//!
//! Time goes from event to event. At a clock, in this order: bursts come back; channels with
//! something to do issue commands; requesters with room offer new bursts.

use super::channel::{Channel, NEVER, Return};
use super::counts::{Counts, RequesterCounts};
use super::error::{PartError, RequestError};
use super::mapping::{Place, Placer};
use super::part::Part;
use super::record::{Observer, Served, Unobserved};
use super::transfer::{Completion, Cursor, Direction, Requester, RequesterId, Routing, Transfer, TransferId, bursts};
use std::collections::VecDeque;

/// A memory simulated command by command.
///
/// Submit transfers in order of time, then run up to the caller's own next event:
///
/// ```
/// use npumem_simulator::dram::{Detailed, Direction, Requester, Runs, Transfer, described};
/// let mut memory = Detailed::new(&described::hbm2_8gb_x128())?;
/// let queue = memory.add_requester(Requester::in_order(64))?;
/// let runs = Runs { start: 0, bytes: 512, pitch: 8192, count: 16 };
/// memory.submit(100, Transfer { requester: queue, direction: Direction::Read, runs })?;
/// assert_eq!(memory.run_until(50), None);
/// let done = memory.run_until(u64::MAX).ok_or("nothing came back")?;
/// assert!(done.at > 100);
/// assert_eq!(memory.counts().total().reads, 16 * 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Memory use grows with the transfers that are submitted and not done, not with their length.
#[derive(Clone, Debug)]
pub struct Detailed<O: Observer = Unobserved> {
    placer: Placer,
    burst_bytes: u64,
    channels: Vec<Channel>,
    /// The next clock at which each channel issues something or gives something back.
    wake: Vec<Wake>,
    requesters: Vec<Source>,
    /// The requester that offers first in the next clock.
    first: usize,
    transfers: Slab<Open>,
    now: u64,
    submitted: u64,
    finished: VecDeque<Completion>,
    observer: O,
}

/// When a channel has something to do.
#[derive(Clone, Copy, Debug)]
struct Wake {
    /// Commands, or a request that moves.
    tick: u64,
    /// A burst that comes back.
    back: u64,
}

/// A transfer of which bursts have not come back.
#[derive(Clone, Copy, Debug)]
struct Open {
    id: u64,
    requester: u32,
    left: u64,
}

/// Things by number; a number is used again when its thing is gone.
#[derive(Clone, Debug)]
struct Slab<T> {
    things: Vec<T>,
    free: Vec<u32>,
}

impl<T: Copy> Slab<T> {
    fn new() -> Self {
        Slab { things: Vec::new(), free: Vec::new() }
    }

    fn add(&mut self, thing: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.things[number as usize] = thing;
            return number;
        }
        self.things.push(thing);
        self.things.len() as u32 - 1
    }

    fn take(&mut self, number: u32) -> T {
        self.free.push(number);
        self.things[number as usize]
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.things.len()
    }
}

/// A transfer whose bursts are not all issued.
#[derive(Clone, Debug)]
struct Pending {
    transfer: u32,
    at: u64,
    write: bool,
    cursor: Cursor,
}

/// Why a requester that has something to ask for does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// It does, or has nothing.
    No,
    Window,
    Queue,
}

/// A burst that waits for its channel.
#[derive(Clone, Copy, Debug)]
struct Routed {
    place: Place,
    transfer: u32,
    write: bool,
}

#[derive(Clone, Debug)]
struct Source {
    limits: Requester,
    /// Oldest first.
    pending: VecDeque<Pending>,
    outstanding: u32,
    /// In order: the next burst, placed once.
    head: Option<Routed>,
    /// Per channel: bursts that wait for it.
    routed: Vec<VecDeque<Routed>>,
    waiting: u32,
    /// Channels that hold up this requester.
    blocked_by: Vec<bool>,
    any_blocked: bool,
    /// The next clock at which it may offer, in 1/65536 of a clock.
    pace: u64,
    wake: u64,
    waits: Waits,
    waits_since: u64,
    counts: RequesterCounts,
}

impl Detailed {
    /// A memory at clock zero with every row closed.
    ///
    /// # Errors
    /// A figure or a mapping that the model cannot work with.
    pub fn new(part: &Part) -> Result<Self, PartError> {
        Detailed::observed(part, Unobserved)
    }
}

impl<O: Observer> Detailed<O> {
    /// As [`Detailed::new`], with an observer of every command and burst.
    ///
    /// # Errors
    /// A figure or a mapping that the model cannot work with.
    pub fn observed(part: &Part, observer: O) -> Result<Self, PartError> {
        part.check()?;
        let channels: Vec<Channel> = (0..part.channels).map(|number| Channel::new(part, number)).collect();
        Ok(Detailed {
            placer: Placer::new(part)?,
            burst_bytes: part.burst_bytes,
            wake: channels.iter().map(|channel| Wake { tick: channel.next_event(0), back: NEVER }).collect(),
            channels,
            requesters: Vec::new(),
            first: 0,
            transfers: Slab::new(),
            now: 0,
            submitted: 0,
            finished: VecDeque::new(),
            observer,
        })
    }

    /// The observer, with what it saw.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// The clock up to which everything has happened.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Adds a requester: a DMA queue, a core.
    ///
    /// # Errors
    /// For one that could never issue anything.
    pub fn add_requester(&mut self, limits: Requester) -> Result<RequesterId, RequestError> {
        limits.check()?;
        let channels = self.channels.len();
        let per_channel = limits.routing == Routing::PerChannel;
        self.requesters.push(Source {
            limits,
            pending: VecDeque::new(),
            outstanding: 0,
            head: None,
            routed: if per_channel { vec![VecDeque::new(); channels] } else { Vec::new() },
            waiting: 0,
            blocked_by: vec![false; channels],
            any_blocked: false,
            pace: 0,
            wake: NEVER,
            waits: Waits::No,
            waits_since: 0,
            counts: RequesterCounts::default(),
        });
        Ok(RequesterId(self.requesters.len() as u32 - 1))
    }

    /// Asks for a transfer at the clock `at`; a requester's transfers are issued in the order of submission.
    ///
    /// # Errors
    /// An unknown requester, a clock that is past, addresses that the mapping cannot place.
    pub fn submit(&mut self, at: u64, transfer: Transfer) -> Result<TransferId, RequestError> {
        let RequesterId(requester) = transfer.requester;
        let count = self.requesters.len() as u32;
        let Some(source) = self.requesters.get_mut(requester as usize) else {
            return Err(RequestError::NoRequester { requester, count });
        };
        if at < self.now {
            return Err(RequestError::Past { at, now: self.now });
        }
        let most = self.placer.end();
        let end = transfer.runs.end().unwrap_or(u64::MAX);
        if end > most || end == u64::MAX {
            return Err(RequestError::Address { end, most });
        }
        let left = bursts(&transfer.runs, &self.placer);
        let id = self.submitted;
        self.submitted += 1;
        let number = self.transfers.add(Open { id, requester, left });
        source.pending.push_back(Pending {
            transfer: number,
            at,
            write: transfer.direction == Direction::Write,
            cursor: Cursor::new(transfer.runs, &self.placer),
        });
        if source.pending.len() == 1 {
            source.wake = source.wake.min(at);
        }
        Ok(TransferId(id))
    }

    /// Runs until a transfer is done or the clock `until` is over, whichever comes first.
    ///
    /// After `None`, everything up to `until` has happened and no transfer was done by then. With
    /// `u64::MAX` it runs until a transfer is done, and `None` says that there is none left.
    pub fn run_until(&mut self, until: u64) -> Option<Completion> {
        loop {
            if let Some(done) = self.finished.pop_front() {
                return Some(done);
            }
            let next = self.next_event();
            if next > until || (until == NEVER && self.is_idle()) {
                if until != NEVER {
                    self.now = self.now.max(until);
                }
                return None;
            }
            self.now = next;
            self.step();
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            channels: self.channels.iter().map(|channel| channel.counts).collect(),
            idle: self.channels.iter().map(|channel| channel.idle).collect(),
            requesters: self.requesters.iter().map(|source| source.counts).collect(),
            burst_bytes: self.burst_bytes,
        }
    }

    /// No transfer is open. Posted writes may still be on their way to the banks.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.finished.is_empty() && self.transfers.is_empty()
    }

    fn next_event(&self) -> u64 {
        let channels = self.wake.iter().map(|wake| wake.tick.min(wake.back)).min().unwrap_or(NEVER);
        let sources = self.requesters.iter().map(|source| source.wake).min().unwrap_or(NEVER);
        channels.min(sources).max(self.now)
    }

    fn step(&mut self) {
        let now = self.now;
        for number in 0..self.channels.len() {
            if self.wake[number].back <= now {
                while let Some(back) = self.channels[number].take_return(now) {
                    self.came_back(back);
                }
                self.wake[number].back = self.channels[number].next_return();
            }
        }
        for (number, (channel, wake)) in self.channels.iter_mut().zip(&mut self.wake).enumerate() {
            if wake.tick <= now {
                if channel.tick(now, &mut self.observer) {
                    wake_blocked(&mut self.requesters, number, now);
                }
                *wake = Wake { tick: channel.next_event(now), back: channel.next_return() };
            }
        }
        let count = self.requesters.len();
        for turn in 0..count {
            let number = if self.first + turn < count { self.first + turn } else { self.first + turn - count };
            if self.requesters[number].wake <= now {
                self.offer(number);
            }
        }
        if count > 1 {
            self.first = (self.first + 1) % count;
        }
    }

    fn came_back(&mut self, burst: Return) {
        let now = self.now;
        let open = &mut self.transfers.things[burst.transfer as usize];
        open.left -= 1;
        let Open { id, requester, left } = *open;
        let (transfer, requester) = (TransferId(id), RequesterId(requester));
        self.observer.served(&Served { transfer, requester, accepted: burst.accepted, done: now });
        let source = &mut self.requesters[requester.0 as usize];
        source.outstanding -= 1;
        source.counts.bursts += 1;
        source.wake = source.wake.min(now);
        if left == 0 {
            self.transfers.take(burst.transfer);
            self.finished.push_back(Completion { transfer, requester, at: now });
        }
    }

    fn offer(&mut self, number: usize) {
        let source = &mut self.requesters[number];
        source.wake = NEVER;
        if source.waits != Waits::No {
            let lost = self.now - source.waits_since;
            match source.waits {
                Waits::Queue => source.counts.queue_full += lost,
                _ => source.counts.window_full += lost,
            }
            source.waits = Waits::No;
        }
        match source.limits.routing {
            Routing::InOrder => self.offer_in_order(number),
            Routing::PerChannel => self.offer_per_channel(number),
        }
    }

    fn offer_in_order(&mut self, number: usize) {
        let now = self.now;
        let source = &mut self.requesters[number];
        for _ in 0..source.limits.offers_per_clock {
            if source.outstanding >= source.limits.outstanding {
                if source.has_more(now) {
                    source.hold(Waits::Window, now);
                }
                return;
            }
            if source.head.is_none() {
                source.head = source.next_burst(now, &self.placer, &mut self.transfers, &mut self.finished);
            }
            let Some(head) = source.head else { return };
            if source.pace >> 16 > now {
                source.wake = source.pace >> 16;
                return;
            }
            let channel = head.place.channel as usize;
            if !self.channels[channel].accepts(head.write) {
                source.blocked_by[channel] = true;
                source.any_blocked = true;
                source.hold(Waits::Queue, now);
                return;
            }
            source.head = None;
            source.send(now);
            self.channels[channel].accept(now, head.place, head.write, head.transfer);
            self.wake[channel] =
                Wake { tick: self.wake[channel].tick.min(now + 1), back: self.channels[channel].next_return() };
        }
        if source.head.is_some() || source.has_more(now) {
            source.wake = now + 1;
        }
    }

    fn offer_per_channel(&mut self, number: usize) {
        let now = self.now;
        let source = &mut self.requesters[number];
        while source.outstanding + source.waiting < source.limits.outstanding {
            let Some(burst) = source.next_burst(now, &self.placer, &mut self.transfers, &mut self.finished) else {
                break;
            };
            source.routed[burst.place.channel as usize].push_back(burst);
            source.waiting += 1;
        }
        let mut offers = source.limits.offers_per_clock;
        let mut full = false;
        for channel in 0..self.channels.len() {
            for _ in 0..2 {
                let Some(burst) = source.routed[channel].front().copied() else { break };
                if source.pace >> 16 > now {
                    source.wake = source.wake.min(source.pace >> 16);
                    break;
                }
                if offers == 0 {
                    source.wake = now + 1;
                    break;
                }
                if !self.channels[channel].accepts(burst.write) {
                    source.blocked_by[channel] = true;
                    source.any_blocked = true;
                    full = true;
                    break;
                }
                offers -= 1;
                source.routed[channel].pop_front();
                source.waiting -= 1;
                source.send(now);
                self.channels[channel].accept(now, burst.place, burst.write, burst.transfer);
                self.wake[channel] =
                    Wake { tick: self.wake[channel].tick.min(now + 1), back: self.channels[channel].next_return() };
            }
            if !source.routed[channel].is_empty() && !source.blocked_by[channel] {
                source.wake = source.wake.min(now + 1);
            }
        }
        if source.wake == NEVER {
            if full {
                source.hold(Waits::Queue, now);
            } else if source.has_more(now) {
                source.hold(Waits::Window, now);
            }
        }
    }
}

/// Wakes the requesters that a channel held up.
fn wake_blocked(sources: &mut [Source], channel: usize, now: u64) {
    for source in sources {
        if source.any_blocked && source.blocked_by[channel] {
            source.blocked_by[channel] = false;
            source.any_blocked = source.limits.routing == Routing::PerChannel;
            source.wake = source.wake.min(now);
        }
    }
}

impl Source {
    /// Whether a burst could be asked for now.
    fn has_more(&mut self, now: u64) -> bool {
        match self.pending.front() {
            Some(next) if next.at <= now => true,
            Some(next) => {
                self.wake = self.wake.min(next.at);
                false
            }
            None => false,
        }
    }

    fn hold(&mut self, why: Waits, now: u64) {
        self.waits = why;
        self.waits_since = now;
    }

    /// One burst leaves.
    fn send(&mut self, now: u64) {
        self.outstanding += 1;
        if self.limits.interval > 0 {
            self.pace = self.pace.max(now << 16) + self.limits.interval;
        }
    }

    /// The next burst of the oldest transfer that still has one.
    fn next_burst(
        &mut self,
        now: u64,
        placer: &Placer,
        transfers: &mut Slab<Open>,
        finished: &mut VecDeque<Completion>,
    ) -> Option<Routed> {
        loop {
            if !self.has_more(now) {
                return None;
            }
            let next = self.pending.front_mut()?;
            let burst = next.cursor.peek();
            let routed =
                burst.map(|burst| Routed { place: placer.place(burst), transfer: next.transfer, write: next.write });
            next.cursor.advance(placer);
            if next.cursor.peek().is_none() {
                if routed.is_none() {
                    // Nothing to move: done as it starts.
                    let open = transfers.take(next.transfer);
                    let (transfer, requester) = (TransferId(open.id), RequesterId(open.requester));
                    finished.push_back(Completion { transfer, requester, at: now });
                }
                self.pending.pop_front();
            }
            if routed.is_some() {
                return routed;
            }
        }
    }
}
