//! Which command goes next: ready row hits first, then the oldest, banks in turn or by age.

use super::bank::{CLOSED, Entry};
use super::{Channel, NEVER};
use crate::dram::part::Arbitration;
use crate::dram::record::Observer;

/// The banks with a command that is ready, by kind.
#[derive(Clone, Copy, Default)]
struct Ready {
    activate: u64,
    precharge: u64,
    column: u64,
}

impl Channel {
    /// Issues what the command buses carry in the clock `now`; `row_used` when a refresh took the row bus.
    #[inline]
    pub(super) fn choose<O: Observer>(&mut self, now: u64, row_used: bool, observer: &mut O) {
        let two = self.controller.two_command_buses;
        if row_used && !two {
            return;
        }
        let mut ready = Ready::default();
        if now >= self.row_free && !row_used {
            ready.precharge = self.ready_precharges(now);
            ready.activate = self.ready_activates(now);
        }
        if two || now >= self.row_free {
            ready.column = self.ready_columns(now, ready.precharge);
        }
        if ready.activate | ready.precharge | ready.column == 0 {
            return;
        }
        match self.controller.arbitration {
            Arbitration::RoundRobin => self.by_turn(now, ready, observer),
            Arbitration::Oldest => self.by_age(now, ready, observer),
        }
    }

    /// The first ready bank in turn goes; with two buses the next one too, if it needs the other bus.
    ///
    /// The turn passes on from a bank that was looked at and did not go, as in the reference.
    #[inline]
    fn by_turn<O: Observer>(&mut self, now: u64, ready: Ready, observer: &mut O) {
        let row = ready.activate | ready.precharge;
        let first = self.next_in_turn(row | ready.column);
        self.turn = first;
        let bit = 1 << first;
        let same_rank = self.ranks[usize::from(self.banks[first as usize].rank)].banks;
        let column_went = ready.column & bit != 0;
        let mut left = ready;
        if column_went {
            self.column(now, first, observer);
            left.column &= !same_rank;
        } else {
            self.row_command(now, first, ready, observer);
            if ready.activate & bit != 0 {
                left.activate &= !same_rank;
            }
        }
        let second = (left.activate | left.precharge | left.column) & !bit;
        if second == 0 || !self.controller.two_command_buses {
            return;
        }
        self.turn = self.next_in_turn(second);
        if column_went && row >> self.turn & 1 == 1 {
            self.row_command(now, self.turn, ready, observer);
        } else if !column_went && ready.column >> self.turn & 1 == 1 {
            self.column(now, self.turn, observer);
        }
    }

    fn by_age<O: Observer>(&mut self, now: u64, ready: Ready, observer: &mut O) {
        let column = self.oldest(ready.column, |channel, bank| channel.column_entry(now, bank));
        if let Some(bank) = column {
            self.column(now, bank, observer);
            if !self.controller.two_command_buses {
                return;
            }
        }
        let row = (ready.activate | ready.precharge) & !column.map_or(0, |bank| 1 << bank);
        if let Some(bank) = self.oldest(row, |_, _| Some(0)) {
            self.row_command(now, bank, ready, observer);
        }
    }

    fn row_command<O: Observer>(&mut self, now: u64, bank: u32, ready: Ready, observer: &mut O) {
        if ready.precharge >> bank & 1 == 1 {
            self.precharge(now, bank, observer);
        } else {
            self.activate(now, bank, observer);
        }
    }

    /// The first bank of the set after the one that had the last turn.
    #[inline]
    fn next_in_turn(&self, banks: u64) -> u32 {
        let after = banks & (!1u64).checked_shl(self.turn).unwrap_or(0);
        (if after != 0 { after } else { banks }).trailing_zeros()
    }

    /// The bank of the set whose chosen command came first.
    fn oldest(&self, mut banks: u64, entry: impl Fn(&Self, u32) -> Option<u16>) -> Option<u32> {
        let mut best: Option<(u32, &Entry)> = None;
        while banks != 0 {
            let bank = banks.trailing_zeros();
            banks &= banks - 1;
            let Some(place) = entry(self, bank) else { continue };
            let entry = &self.banks[bank as usize].queue[usize::from(place)];
            if best.is_none_or(|(_, oldest)| entry.goes_before(oldest)) {
                best = Some((bank, entry));
            }
        }
        best.map(|(bank, _)| bank)
    }

    /// The place of the column command that the bank would issue now.
    #[inline]
    pub(super) fn column_entry(&self, now: u64, bank: u32) -> Option<u16> {
        let one = &self.banks[bank as usize];
        let read = one.first_read.filter(|_| self.reads_go() && self.read_time(bank) <= now);
        let write = one.first_write.filter(|_| self.writes_go() && self.write_time(bank) <= now);
        match (read, write) {
            (Some(read), Some(write)) => Some(read.min(write)),
            (read, write) => read.or(write),
        }
    }

    /// By age, one direction has the bus as long as it has a row hit.
    #[inline]
    fn reads_go(&self) -> bool {
        self.controller.arbitration == Arbitration::RoundRobin || !self.intake.is_draining() || self.want_write == 0
    }

    #[inline]
    fn writes_go(&self) -> bool {
        self.controller.arbitration == Arbitration::RoundRobin || self.intake.is_draining() || self.want_read == 0
    }

    /// Whether reads go, and whether writes do.
    #[inline]
    fn directions(&self) -> (bool, bool) {
        (self.reads_go(), self.writes_go())
    }

    /// The bound of the next column command counted the directions that went; the others may go now.
    #[inline]
    pub(super) fn look_at_directions(&mut self, now: u64) {
        if self.went != self.directions() {
            self.column_at = self.column_at.min(now + 1);
        }
    }

    #[inline]
    fn read_time(&self, bank: u32) -> u64 {
        let one = &self.banks[bank as usize];
        one.read_ok.max(self.groups[usize::from(one.group)].read_ok).max(self.ranks[usize::from(one.rank)].read_ok)
    }

    #[inline]
    fn write_time(&self, bank: u32) -> u64 {
        let one = &self.banks[bank as usize];
        one.write_ok.max(self.groups[usize::from(one.group)].write_ok).max(self.ranks[usize::from(one.rank)].write_ok)
    }

    /// The banks with a column command that is ready, those to be closed left out; in turn, the first one only.
    fn ready_columns(&mut self, now: u64, closing: u64) -> u64 {
        if now < self.column_at {
            return 0;
        }
        self.went = self.directions();
        let reads = if self.went.0 { self.want_read & !self.blocked } else { 0 };
        let writes = if self.went.1 { self.want_write & !self.blocked } else { 0 };
        let soonest = |wanted: u64, ok: u64| if wanted == 0 { NEVER } else { ok };
        let rank_ok = self
            .ranks
            .iter()
            .map(|rank| soonest(reads & rank.banks, rank.read_ok).min(soonest(writes & rank.banks, rank.write_ok)))
            .min()
            .unwrap_or(NEVER);
        if rank_ok > now {
            self.column_at = rank_ok;
            return 0;
        }
        let in_turn = self.controller.arbitration == Arbitration::RoundRobin;
        let (mut ready, mut soonest) = (0, NEVER);
        for mut banks in self.turns((reads | writes) & !closing) {
            while banks != 0 {
                let bank = banks.trailing_zeros();
                let bit = 1 << bank;
                banks &= banks - 1;
                let mut at = NEVER;
                if reads & bit != 0 {
                    at = self.read_time(bank);
                }
                if writes & bit != 0 {
                    at = at.min(self.write_time(bank));
                }
                if at <= now {
                    ready |= bit;
                    if in_turn {
                        self.column_at = now;
                        return ready;
                    }
                }
                soonest = soonest.min(at);
            }
        }
        self.column_at = if (reads | writes) & closing != 0 { now } else { soonest };
        ready
    }

    /// The banks of a set in two parts: those after the bank that had the last turn, and the others.
    #[inline]
    fn turns(&self, banks: u64) -> [u64; 2] {
        let after = (!1u64).checked_shl(self.turn).unwrap_or(0);
        [banks & after, banks & !after]
    }

    /// The banks whose activate is ready; in turn, the first one only.
    fn ready_activates(&mut self, now: u64) -> u64 {
        if now < self.activate_at {
            return 0;
        }
        let in_turn = self.controller.arbitration == Arbitration::RoundRobin && self.ranks.len() == 1;
        let (mut ready, mut soonest) = (0, NEVER);
        for rank in &self.ranks {
            let wanted = self.want_activate & rank.banks & !self.blocked;
            let rank_ok = rank.activate_ok();
            if wanted != 0 && rank_ok > now {
                soonest = soonest.min(rank_ok);
                continue;
            }
            for mut banks in self.turns(wanted) {
                while banks != 0 {
                    let number = banks.trailing_zeros();
                    banks &= banks - 1;
                    let bank = &self.banks[number as usize];
                    let at = bank.act_ok.max(self.groups[usize::from(bank.group)].act_ok);
                    if at <= now {
                        ready |= 1 << number;
                        if in_turn {
                            self.activate_at = now;
                            return ready;
                        }
                    }
                    soonest = soonest.min(at.max(rank_ok));
                }
            }
        }
        self.activate_at = soonest;
        ready
    }

    fn ready_precharges(&mut self, now: u64) -> u64 {
        if now < self.precharge_at {
            return 0;
        }
        let (mut ready, mut soonest, mut banks) = (0, NEVER, self.want_precharge & !self.blocked);
        while banks != 0 {
            let number = banks.trailing_zeros();
            banks &= banks - 1;
            let at = self.banks[number as usize].pre_ok;
            if at <= now {
                ready |= 1 << number;
            }
            soonest = soonest.min(at);
        }
        self.precharge_at = soonest;
        ready
    }

    /// Sets what an open bank wants after its queue or its row changed.
    #[inline]
    pub(super) fn look_at_open(&mut self, number: u32) {
        let bank = &self.banks[number as usize];
        debug_assert_ne!(bank.open_row, CLOSED, "a closed bank wants to be opened");
        let set = |mask: &mut u64, on: bool| *mask = *mask & !(1 << number) | u64::from(on) << number;
        set(&mut self.want_read, bank.first_read.is_some());
        set(&mut self.want_write, bank.first_write.is_some());
        let close = bank.may_close(self.controller.row_hits);
        set(&mut self.want_precharge, close);
        if close {
            self.precharge_at = self.precharge_at.min(bank.pre_ok);
        }
    }
}
