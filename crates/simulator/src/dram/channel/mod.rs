//! One channel: its banks, its queues, and the controller that chooses the next command.
//!
//! A channel does nothing between events: [`Channel::tick`] runs one clock and says when the next
//! one with something to do comes. In one clock, in this order: a refresh falls due; at most one
//! command on each command bus; one request moves from the channel's queue to its bank's.
//!
//! ```text
//!   accept -> reads  (wait) --.                 +-> bank 0: commands -+
//!   accept -> writes (wait) ---+-- one a clock -+-> bank 1: commands -+--> one row, one column command a clock
//!                                               +-> ...              -+
//! ```

mod bank;
mod choose;
mod intake;
mod issue;

use super::counts::{ChannelCounts, IdleCauses};
use super::part::{Controller, Part, Timing};
use super::record::Observer;
use bank::Bank;
use intake::Intake;
use std::collections::VecDeque;

/// A clock that never comes.
pub(super) const NEVER: u64 = u64::MAX;

/// A rank of a pseudo-channel: what is refreshed as a whole and limited in its activates.
#[derive(Clone, Debug)]
struct Rank {
    pseudo_channel: u8,
    /// The rank's banks.
    banks: u64,
    act_ok: u64,
    read_ok: u64,
    write_ok: u64,
    /// When each of the last four activates leaves the window of tFAW, as a ring.
    window: [u64; 4],
    oldest: usize,
    /// The end of the last refresh.
    refreshed: u64,
}

impl Rank {
    /// The first clock at which the rank's activate limits let one more through.
    #[inline]
    fn activate_ok(&self) -> u64 {
        self.act_ok.max(self.window[self.oldest])
    }
}

/// A bank group.
#[derive(Clone, Debug, Default)]
struct Group {
    act_ok: u64,
    read_ok: u64,
    write_ok: u64,
}

/// A data bus, for the account of its idle clocks.
#[derive(Clone, Debug, Default)]
struct Bus {
    end: u64,
    wrote: bool,
}

/// A burst that is done at a clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Return {
    pub at: u64,
    pub accepted: u64,
    pub transfer: u32,
}

/// One channel of a part.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    number: u32,
    timing: Timing,
    controller: Controller,
    banks: Vec<Bank>,
    groups: Vec<Group>,
    ranks: Vec<Rank>,
    buses: Vec<Bus>,
    intake: Intake,
    /// Banks that are closed and have a command.
    want_activate: u64,
    /// Banks whose oldest command is for another row, and may close the open one.
    want_precharge: u64,
    /// Banks with a read, a write of the open row.
    want_read: u64,
    want_write: u64,
    /// Banks whose queue is full.
    full: u64,
    /// Banks of ranks that are being refreshed.
    blocked: u64,
    /// Lower bounds for the next command of each kind.
    activate_at: u64,
    precharge_at: u64,
    column_at: u64,
    /// Whether reads and whether writes were looked at for `column_at`.
    went: (bool, bool),
    /// When the row command bus (or the only one) is free.
    row_free: u64,
    /// The bank that had the last turn.
    turn: u32,
    refresh_at: u64,
    refresh_interval: u64,
    /// Ranks that wait for a refresh, the current one first.
    refreshes: VecDeque<u8>,
    next_rank: u8,
    /// The last clock at which a request came to an empty channel.
    busy_since: u64,
    /// Requests accepted and not yet issued.
    waiting: u32,
    returns: VecDeque<Return>,
    acknowledged: VecDeque<Return>,
    pub counts: ChannelCounts,
    pub idle: IdleCauses,
}

impl Channel {
    pub(super) fn new(part: &Part, number: u32) -> Self {
        let controller = part.controller;
        let ranks = part.pseudo_channels * part.ranks;
        let per_rank = part.bank_groups * part.banks_per_group;
        let depth = if controller.one_pool { 2 * controller.transactions + 64 } else { controller.bank_queue };
        let banks = (0..ranks * per_rank)
            .map(|bank| Bank::new((bank / part.banks_per_group) as u8, (bank / per_rank) as u8, depth as usize))
            .collect();
        let share = if controller.refresh_together { 1 } else { ranks };
        let interval = u64::from(part.timing.refi) / u64::from(share);
        Channel {
            number,
            timing: part.timing,
            controller,
            banks,
            groups: vec![Group::default(); (ranks * part.bank_groups) as usize],
            ranks: (0..ranks)
                .map(|rank| Rank {
                    pseudo_channel: (rank / part.ranks) as u8,
                    banks: (u64::MAX >> (64 - per_rank)) << (rank * per_rank),
                    act_ok: 0,
                    read_ok: 0,
                    write_ok: 0,
                    window: [0; 4],
                    oldest: 0,
                    refreshed: 0,
                })
                .collect(),
            buses: vec![Bus::default(); part.pseudo_channels as usize],
            intake: Intake::new(),
            want_activate: 0,
            want_precharge: 0,
            want_read: 0,
            want_write: 0,
            full: 0,
            blocked: 0,
            activate_at: NEVER,
            precharge_at: NEVER,
            column_at: NEVER,
            went: (true, true),
            row_free: 0,
            turn: 0,
            refresh_at: interval,
            refresh_interval: interval,
            refreshes: VecDeque::new(),
            next_rank: 0,
            busy_since: 0,
            waiting: 0,
            returns: VecDeque::new(),
            acknowledged: VecDeque::new(),
            counts: ChannelCounts::default(),
            idle: IdleCauses::default(),
        }
    }

    /// When the next burst comes back.
    #[inline]
    pub(super) fn next_return(&self) -> u64 {
        let first = |queue: &VecDeque<Return>| queue.front().map_or(NEVER, |one| one.at);
        first(&self.returns).min(first(&self.acknowledged))
    }

    /// Takes a burst that has come back by `now`.
    #[inline]
    pub(super) fn take_return(&mut self, now: u64) -> Option<Return> {
        if self.returns.front().is_some_and(|one| one.at <= now) {
            return self.returns.pop_front();
        }
        if self.acknowledged.front().is_some_and(|one| one.at <= now) {
            return self.acknowledged.pop_front();
        }
        None
    }

    /// Runs the clock `now`; whether room was made in a queue of the channel.
    #[inline]
    pub(super) fn tick<O: Observer>(&mut self, now: u64, observer: &mut O) -> bool {
        let before = self.intake.taken;
        if now >= self.refresh_at {
            self.refresh_due();
        }
        let row_used = !self.refreshes.is_empty() && self.refresh_step(now, observer);
        self.choose(now, row_used, observer);
        self.move_on(now);
        self.look_at_directions(now);
        self.intake.taken != before || self.pool_changed()
    }

    /// The next clock, after `now`, at which this channel has something to do.
    #[inline]
    pub(super) fn next_event(&self, now: u64) -> u64 {
        let row = self.activate_at.min(self.precharge_at).max(self.row_free);
        let column = if self.controller.two_command_buses { self.column_at } else { self.column_at.max(self.row_free) };
        let mut next = row.min(column).min(self.refresh_at);
        if !self.refreshes.is_empty() {
            next = next.min(self.refresh_ready());
        }
        if self.can_move() {
            next = now + 1;
        }
        next.max(now + 1)
    }

    fn refresh_due(&mut self) {
        self.refresh_at += self.refresh_interval;
        let due = if self.controller.refresh_together { self.ranks.len() } else { 1 };
        for _ in 0..due {
            self.refreshes.push_back(self.next_rank);
            self.next_rank = (self.next_rank + 1) % self.ranks.len() as u8;
        }
        self.block();
    }

    /// Holds the banks of the ranks that are to be refreshed.
    fn block(&mut self) {
        self.blocked = self.refreshes.iter().fold(0, |banks, rank| banks | self.ranks[usize::from(*rank)].banks);
    }
}
