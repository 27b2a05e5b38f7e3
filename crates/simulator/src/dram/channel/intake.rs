//! The queues of a channel: what is taken in, and what moves on to the banks.

use super::bank::{CLOSED, Entry, Found};
use super::{Channel, Return};
use crate::dram::mapping::Place;
use std::collections::VecDeque;

/// A request that waits in the channel's queue.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    entry: Entry,
    bank: u32,
}

/// Requests of one direction, oldest first, and how many are for each bank.
#[derive(Clone, Debug)]
struct Queue {
    requests: VecDeque<Waiting>,
    per_bank: [u16; 64],
    banks: u64,
}

impl Queue {
    fn new() -> Self {
        Queue { requests: VecDeque::new(), per_bank: [0; 64], banks: 0 }
    }

    #[inline]
    fn push(&mut self, one: Waiting) {
        self.per_bank[one.bank as usize] += 1;
        self.banks |= 1 << one.bank;
        self.requests.push_back(one);
    }

    /// Takes the oldest request to a bank outside `full`.
    #[inline]
    fn take(&mut self, full: u64) -> Option<Waiting> {
        let free = |one: &Waiting| full >> one.bank & 1 == 0;
        let one = if self.requests.front().is_some_and(free) {
            self.requests.pop_front()
        } else {
            let place = self.requests.iter().position(free)?;
            self.requests.remove(place)
        }?;
        let left = &mut self.per_bank[one.bank as usize];
        *left -= 1;
        if *left == 0 {
            self.banks &= !(1 << one.bank);
        }
        Some(one)
    }

    fn holds(&self, place: Place) -> bool {
        self.banks >> place.bank & 1 == 1
            && self
                .requests
                .iter()
                .any(|one| one.bank == place.bank && one.entry.row == place.row && one.entry.column == place.column)
    }
}

/// The queues in front of the banks.
#[derive(Clone, Debug)]
pub(super) struct Intake {
    reads: Queue,
    writes: Queue,
    /// Writes that still go before reads.
    draining: u32,
    age: u32,
    /// Requests that moved on so far.
    pub taken: u64,
    /// Reads and writes at the banks.
    pub reads_at_banks: u32,
    pub writes_at_banks: u32,
    /// Those of them whose row is open for them: they hold no place in the pool.
    opened: [u32; 2],
    /// With one pool: requests that left it so far, and at the last look.
    left_pool: u64,
    seen_left: u64,
}

impl Intake {
    pub fn new() -> Self {
        Intake {
            reads: Queue::new(),
            writes: Queue::new(),
            draining: 0,
            age: 0,
            taken: 0,
            reads_at_banks: 0,
            writes_at_banks: 0,
            opened: [0; 2],
            left_pool: 0,
            seen_left: 0,
        }
    }

    #[inline]
    pub fn is_draining(&self) -> bool {
        self.draining > 0 || (self.writes_at_banks > 0 && self.reads_at_banks == 0)
    }

    /// A row was opened for a request.
    pub fn opened(&mut self, write: bool) {
        self.opened[usize::from(write)] += 1;
        self.left_pool += 1;
    }

    /// A command left its bank's queue.
    #[inline]
    pub fn left_bank(&mut self, write: bool, opened: bool) {
        let count = if write { &mut self.writes_at_banks } else { &mut self.reads_at_banks };
        *count -= 1;
        if opened {
            self.opened[usize::from(write)] -= 1;
        } else {
            self.left_pool += 1;
        }
    }
}

impl Channel {
    /// Whether the channel would take a request of this direction now.
    #[inline]
    pub(in crate::dram) fn accepts(&self, write: bool) -> bool {
        let queue = if write { &self.intake.writes } else { &self.intake.reads };
        let mut held = queue.requests.len() as u32;
        if self.controller.one_pool {
            held += if write { self.intake.writes_at_banks } else { self.intake.reads_at_banks };
            held -= self.intake.opened[usize::from(write)];
        }
        held < self.controller.transactions
    }

    /// Takes a request in after the clock `now`; the caller has asked [`Channel::accepts`].
    ///
    /// A read of a burst that waits to be written is answered from the queue, and a write to such a burst joins it.
    #[inline]
    pub(in crate::dram) fn accept(&mut self, now: u64, place: Place, write: bool, transfer: u32) {
        let queued = self.write_waits(place);
        if write || queued {
            self.acknowledged.push_back(Return { at: now + 2, accepted: now, transfer });
        }
        if queued {
            self.counts.answered_in_queue += 1;
            return;
        }
        if self.waiting == 0 {
            self.busy_since = now;
        }
        self.waiting += 1;
        let entry = Entry {
            row: place.row,
            column: place.column,
            transfer,
            age: self.intake.age,
            accepted: now,
            write,
            opened: false,
            found: Found::Hit,
        };
        self.intake.age = self.intake.age.wrapping_add(1);
        let one = Waiting { entry, bank: place.bank };
        if write { self.intake.writes.push(one) } else { self.intake.reads.push(one) }
    }

    #[inline]
    fn write_waits(&self, place: Place) -> bool {
        let bank = &self.banks[place.bank as usize];
        self.intake.writes.holds(place)
            || (bank.writes > 0
                && bank.queue.iter().any(|one| one.write && one.row == place.row && one.column == place.column))
    }

    /// With one pool, room comes when a command leaves the banks.
    #[inline]
    pub(super) fn pool_changed(&mut self) -> bool {
        let changed = self.controller.one_pool && self.intake.left_pool != self.intake.seen_left;
        self.intake.seen_left = self.intake.left_pool;
        changed
    }

    /// Whether a request could move to its bank in the next clock.
    #[inline]
    pub(super) fn can_move(&self) -> bool {
        let intake = &self.intake;
        if intake.draining > 0 {
            return intake.writes.banks & !self.full != 0;
        }
        (intake.reads.banks & !self.full != 0) || self.starts_draining()
    }

    #[inline]
    fn starts_draining(&self) -> bool {
        let intake = &self.intake;
        let waiting = intake.writes.requests.len() as u32;
        intake.draining == 0
            && waiting > 0
            && (waiting >= self.controller.write_high
                || (intake.reads.requests.is_empty() && intake.reads_at_banks + intake.writes_at_banks == 0))
    }

    /// Moves one request to its bank (with one pool, all that can).
    #[inline]
    pub(super) fn move_on(&mut self, now: u64) {
        loop {
            if self.starts_draining() {
                let waiting = self.intake.writes.requests.len() as u32;
                self.intake.draining =
                    if waiting >= self.controller.write_high { waiting - self.controller.write_low } else { waiting };
            }
            let mut draining = self.intake.draining > 0;
            let mut one = if draining { self.intake.writes.take(self.full) } else { None };
            if let Some(write) = one {
                // A write does not overtake a read of the same burst: reads go on until that one has left.
                let entry = write.entry;
                let place = Place { channel: 0, bank: write.bank, row: entry.row, column: entry.column };
                if self.intake.reads.holds(place) {
                    self.intake.writes.push_front(write);
                    self.intake.draining = 0;
                    draining = false;
                    one = None;
                } else {
                    self.intake.draining -= 1;
                }
            }
            if !draining && self.intake.reads.banks & !self.full != 0 {
                one = self.intake.reads.take(self.full);
            }
            let Some(one) = one else { return };
            self.intake.taken += 1;
            self.enter_bank(now, one);
            if !self.controller.one_pool {
                return;
            }
        }
    }

    #[inline]
    fn enter_bank(&mut self, now: u64, one: Waiting) {
        let Waiting { entry, bank: number } = one;
        let bit = 1 << number;
        let bank = &mut self.banks[number as usize];
        if entry.write {
            bank.writes += 1;
            self.intake.writes_at_banks += 1;
        } else {
            self.intake.reads_at_banks += 1;
        }
        bank.queue.push(entry);
        if bank.is_full() {
            self.full |= bit;
        }
        if bank.open_row == CLOSED {
            self.want_activate |= bit;
            self.activate_at = self.activate_at.min(now + 1);
            return;
        }
        if bank.open_row == entry.row {
            let place = Some(bank.queue.len() as u16 - 1);
            if !entry.write {
                bank.first_read = bank.first_read.or(place);
            } else if bank.first_write.is_none() {
                bank.find_hits();
            }
        }
        self.look_at_open(number);
        self.column_at = self.column_at.min(now + 1);
    }
}

impl Queue {
    fn push_front(&mut self, one: Waiting) {
        self.per_bank[one.bank as usize] += 1;
        self.banks |= 1 << one.bank;
        self.requests.push_front(one);
    }
}
