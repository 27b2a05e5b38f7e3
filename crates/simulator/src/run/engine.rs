//! One engine of one core: its queue, and why it stands still.

use super::outcome::Cause;
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

/// What stands in a queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// A statement.
    Run(u32),
    /// Raises an event when all before it has ended.
    Raise { to: u16, event: i64 },
    /// Stops the queue until the event is raised.
    Take { from: u16, event: i64 },
    /// Takes a token.
    Acquire(i64),
    /// Gives it back when all before it has ended.
    Release(i64),
    /// Stops until all before it on this queue has ended.
    Drain,
    /// Stops until all queues of the core are here.
    Meet,
    /// Tells other cores when all before it has ended.
    Post(i64),
    /// Stops until another core has told.
    Await(i64),
}

/// One entry of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub step: u32,
    pub issued: f64,
    pub what: What,
}

/// What happens at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    /// The engine of a statement is free for the next.
    Free(u32),
    /// The results of a statement are there.
    Complete(u32),
}

/// A moment and its time; of equal times the one that was made first comes first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub time: f64,
    pub sequence: u64,
    pub moment: Moment,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    /// The earliest is the largest: the heap gives the largest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.time.total_cmp(&self.time).then(other.sequence.cmp(&self.sequence))
    }
}

/// From when to when the memory's commands kept a statement, and which.
pub(super) type Late = (f64, f64, Cause);

/// One engine of one core.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    pub waiting: VecDeque<Entry>,
    pub outstanding: u64,
    /// Statements that have begun and not ended.
    pub running: u64,
    /// It cannot begin another.
    pub busy: bool,
    pub idle_since: f64,
    /// When a statement ended last.
    pub came_back: f64,
    /// The last cycles of that for which the memory's commands kept it, and which.
    pub late: Option<Late>,
    pub at_barrier: bool,
    pub idle: BTreeMap<Cause, f64>,
    pub overtaken: f64,
}

impl Engine {
    pub fn new(outstanding: u64) -> Self {
        Engine {
            waiting: VecDeque::new(),
            outstanding,
            running: 0,
            busy: false,
            idle_since: 0.0,
            came_back: 0.0,
            late: None,
            at_barrier: false,
            idle: BTreeMap::new(),
            overtaken: 0.0,
        }
    }

    fn stood(&mut self, from: f64, to: f64, cause: Cause) {
        if to > from {
            *self.idle.entry(cause).or_insert(0.0) += to - from;
        }
    }

    /// A step of order at the head of the queue has let go: the time until now was its.
    pub fn pause(&mut self, now: f64, issued: f64, cause: Cause) {
        if !self.busy && now > self.idle_since {
            let issued = issued.clamp(self.idle_since, now);
            self.stood(self.idle_since, issued, Cause::Start);
            self.stood(issued, now, cause);
            self.idle_since = now;
        }
    }

    /// A statement begins: the time since the last one goes to what kept it. Returns the cause and since when.
    pub fn resume(
        &mut self,
        now: f64,
        issued: f64,
        issue: Cause,
        (ready, ready_late): (Option<(f64, Cause)>, Option<Late>),
        behind: Option<f64>,
    ) -> Option<(Cause, f64)> {
        let since = self.idle_since;
        if now <= since {
            return None;
        }
        let issued = issued.clamp(since, now);
        self.stood(since, issued, issue);
        let (cause, late) = match ready {
            Some((time, cause)) if time >= self.came_back || self.running + 1 < self.outstanding => (cause, ready_late),
            _ => (Cause::Limit, self.late),
        };
        if let Some((from, to, why)) = late {
            let (from, to) = (from.clamp(issued, now), to.clamp(issued, now));
            self.stood(issued, from, cause);
            self.stood(from, to, why);
            self.stood(to, now, cause);
        } else {
            self.stood(issued, now, cause);
        }
        if let Some(behind) = behind {
            self.overtaken += (now - behind.max(issued)).max(0.0);
        }
        let main = if now - issued >= issued - since { cause } else { issue };
        Some((main, since))
    }
}
