//! What is asked of the memory: runs of bytes, read or written, by a requester.

use super::error::RequestError;
use super::mapping::Placer;

/// Runs of bytes at a fixed pitch: a row of a tile after the other.
///
/// ```text
///   start                start + pitch
///   |##########|.........|##########|.........|##########|     bytes = #, count = 3
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    /// Address of the first byte.
    pub start: u64,
    /// Bytes of one run.
    pub bytes: u64,
    /// Bytes from the start of one run to the start of the next.
    pub pitch: u64,
    /// Runs.
    pub count: u64,
}

impl Runs {
    /// One run of bytes.
    #[must_use]
    pub fn one(start: u64, bytes: u64) -> Self {
        Runs { start, bytes, pitch: bytes, count: 1 }
    }

    /// All bytes together, held at the most that 64 bits hold.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.bytes.saturating_mul(self.count)
    }

    /// The first address past every run; `None` past 64 bits.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        if self.total_bytes() == 0 {
            return Some(self.start);
        }
        self.start.checked_add(self.pitch.checked_mul(self.count - 1)?)?.checked_add(self.bytes)
    }
}

/// Whether bytes are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the memory.
    Read,
    /// Into the memory. A write is done when the controller has taken it in.
    Write,
}

/// Who asks: a DMA queue, a core, a driver. Returned by `add_requester`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequesterId(pub u32);

/// A transfer that was submitted. Numbers rise in the order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransferId(pub u64);

/// Something to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Who moves it.
    pub requester: RequesterId,
    /// Read or write.
    pub direction: Direction,
    /// The bytes.
    pub runs: Runs,
}

/// How a requester issues its bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Bursts that may be under way at once.
    pub outstanding: u32,
    /// Bursts offered to the channels in one clock at most.
    pub offers_per_clock: u32,
    /// Clocks between two bursts, in 1/65536 of a clock: the requester's own bandwidth. Zero: as fast as it goes.
    pub interval: u64,
    /// What a full channel holds up.
    pub routing: Routing,
}

/// What a channel that takes nothing more holds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Everything behind it: one queue for all channels.
    InOrder,
    /// The bursts of that channel only: a queue per channel, two of each offered in a clock at most.
    PerChannel,
}

impl Requester {
    /// A requester with `outstanding` bursts under way, issued in order, sixteen a clock at most.
    #[must_use]
    pub fn in_order(outstanding: u32) -> Self {
        Requester { outstanding, offers_per_clock: 16, interval: 0, routing: Routing::InOrder }
    }

    /// A requester with `outstanding` bursts under way, sorted by channel first.
    #[must_use]
    pub fn per_channel(outstanding: u32) -> Self {
        Requester { outstanding, offers_per_clock: u32::MAX, interval: 0, routing: Routing::PerChannel }
    }

    /// Whether it could ever issue anything.
    pub(super) fn check(&self) -> Result<(), RequestError> {
        for (figure, value) in [("outstanding", self.outstanding), ("offers_per_clock", self.offers_per_clock)] {
            if value == 0 {
                return Err(RequestError::Idle { figure });
            }
        }
        Ok(())
    }

    /// The same requester, held at so many bytes a clock of the memory.
    #[must_use]
    pub fn with_bandwidth(self, bytes_per_clock: f64, burst_bytes: u64) -> Self {
        let interval = burst_bytes as f64 / bytes_per_clock * 65536.0;
        Requester { interval: if interval.is_finite() { interval.max(0.0) as u64 } else { u64::MAX >> 16 }, ..self }
    }
}

/// A transfer that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which.
    pub transfer: TransferId,
    /// Who asked for it.
    pub requester: RequesterId,
    /// The clock of the memory at which the last burst came back, or the last write was taken in.
    pub at: u64,
}

/// Walks the bursts of runs.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    runs: Runs,
    run: u64,
    burst: u64,
    end: u64,
}

impl Cursor {
    pub(super) fn new(runs: Runs, placer: &Placer) -> Self {
        let mut cursor = Cursor { runs, run: 0, burst: 0, end: 0 };
        if runs.bytes == 0 {
            cursor.run = runs.count;
        }
        cursor.open(placer);
        cursor
    }

    #[inline]
    fn open(&mut self, placer: &Placer) {
        if self.run < self.runs.count {
            let start = self.runs.start + self.runs.pitch * self.run;
            self.burst = placer.burst(start);
            self.end = placer.burst(start + (self.runs.bytes - 1)) + 1;
        }
    }

    /// The burst at hand.
    #[inline]
    pub(super) fn peek(&self) -> Option<u64> {
        (self.run < self.runs.count).then_some(self.burst)
    }

    #[inline]
    pub(super) fn advance(&mut self, placer: &Placer) {
        if self.run >= self.runs.count {
            return;
        }
        self.burst += 1;
        if self.burst >= self.end {
            self.run += 1;
            self.open(placer);
        }
    }
}

/// Bursts that the runs touch, each run's counted for itself.
pub(super) fn bursts(runs: &Runs, placer: &Placer) -> u64 {
    if runs.bytes == 0 || runs.count == 0 {
        return 0;
    }
    let bursts_at = |start: u64| placer.burst(start + (runs.bytes - 1)) - placer.burst(start) + 1;
    let burst_bytes = 1u64 << placer.burst_shift();
    let first = bursts_at(runs.start);
    if runs.pitch.is_multiple_of(burst_bytes) {
        return first.saturating_mul(runs.count);
    }
    // The start within a burst repeats after at most `burst_bytes` runs.
    let period = burst_bytes.min(runs.count);
    let one: u64 = (0..period).map(|run| bursts_at(runs.start + runs.pitch * run)).sum();
    let rest: u64 = (0..runs.count % period).map(|run| bursts_at(runs.start + runs.pitch * run)).sum();
    one.saturating_mul(runs.count / period).saturating_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dram::described;

    fn walk(runs: Runs) -> Vec<u64> {
        let placer = Placer::new(&described::hbm2_8gb_x128()).unwrap();
        let mut cursor = Cursor::new(runs, &placer);
        let mut found = Vec::new();
        while let Some(burst) = cursor.peek() {
            found.push(burst);
            cursor.advance(&placer);
        }
        assert_eq!(found.len() as u64, bursts(&runs, &placer), "{runs:?}");
        found
    }

    #[test]
    fn runs_are_walked_burst_by_burst() {
        assert_eq!(walk(Runs::one(0, 128)), [0, 1]);
        assert_eq!(walk(Runs::one(63, 2)), [0, 1]);
        assert_eq!(walk(Runs { start: 64, bytes: 65, pitch: 4096, count: 2 }), [1, 2, 65, 66]);
        assert_eq!(walk(Runs { start: 0, bytes: 0, pitch: 64, count: 9 }), [0; 0]);
        assert_eq!(walk(Runs { start: 0, bytes: 64, pitch: 64, count: 0 }), [0; 0]);
        assert_eq!(walk(Runs { start: 0, bytes: 64, pitch: 0, count: 3 }), [0, 0, 0]);
        for pitch in [1, 7, 40, 64, 100] {
            walk(Runs { start: 5, bytes: 33, pitch, count: 777 });
        }
    }

    #[test]
    fn an_end_past_64_bits_is_none() {
        assert_eq!(Runs { start: 1, bytes: 2, pitch: u64::MAX, count: 3 }.end(), None);
        assert_eq!(Runs { start: 10, bytes: 4, pitch: 100, count: 3 }.end(), Some(214));
        assert_eq!(Runs { start: 10, bytes: 4, pitch: u64::MAX, count: 0 }.end(), Some(10));
    }
}
