//! What a command changes: the bank, and the clocks before which the next commands may not come.

use super::bank::{CLOSED, Found};
use super::{Channel, Return};
use crate::dram::record::{Command, Kind, Observer};

impl Channel {
    pub(super) fn activate<O: Observer>(&mut self, now: u64, number: u32, observer: &mut O) {
        let timing = self.timing;
        let bit = 1 << number;
        let bank = &mut self.banks[number as usize];
        let Some(head) = bank.queue.first_mut() else { return };
        if head.found == Found::Hit {
            head.found = Found::Closed;
        }
        if !head.opened {
            head.opened = true;
            self.intake.opened(head.write);
        }
        let row = head.row;
        bank.held_by_rank = now > bank.act_ok;
        bank.open_row = row;
        bank.served = 0;
        bank.act_ok = now + u64::from(timing.rc);
        bank.read_ok = now + u64::from(timing.rcd);
        bank.write_ok = now + u64::from(timing.rcd_write);
        bank.pre_ok = bank.pre_ok.max(now + u64::from(timing.ras));
        bank.find_hits();
        self.column_at = self.column_at.min(bank.read_ok).min(bank.write_ok);
        self.groups[usize::from(bank.group)].act_ok = now + u64::from(timing.rrd_l);
        let rank = &mut self.ranks[usize::from(bank.rank)];
        rank.act_ok = now + u64::from(timing.rrd_s);
        rank.window[rank.oldest] = now + u64::from(timing.faw);
        rank.oldest = (rank.oldest + 1) % 4;
        self.row_free = now + u64::from(timing.act_command);
        self.want_activate &= !bit;
        let next = self.ranks.iter().map(super::Rank::activate_ok).min();
        self.activate_at = self.activate_at.max(next.unwrap_or(0));
        self.look_at_open(number);
        self.counts.activates += 1;
        observer.command(&Command { at: now, channel: self.number, kind: Kind::Activate { bank: number, row } });
    }

    pub(super) fn precharge<O: Observer>(&mut self, now: u64, number: u32, observer: &mut O) {
        let bank = &mut self.banks[number as usize];
        if let Some(head) = bank.queue.first_mut() {
            head.found = Found::OtherRow;
        }
        self.row_free = now + 1;
        self.close(now, number);
        self.counts.precharges += 1;
        observer.command(&Command { at: now, channel: self.number, kind: Kind::Precharge { bank: number } });
    }

    /// The bank is closed by a command at `now`.
    fn close(&mut self, now: u64, number: u32) {
        let bit = 1 << number;
        let bank = &mut self.banks[number as usize];
        bank.open_row = CLOSED;
        bank.served = 0;
        bank.act_ok = bank.act_ok.max(now + u64::from(self.timing.rp));
        (bank.first_read, bank.first_write) = (None, None);
        self.want_read &= !bit;
        self.want_write &= !bit;
        self.want_precharge &= !bit;
        if bank.queue.is_empty() {
            self.want_activate &= !bit;
        } else {
            self.want_activate |= bit;
            self.activate_at = self.activate_at.min(bank.act_ok);
        }
    }

    /// Issues the bank's column command that is ready.
    pub(super) fn column<O: Observer>(&mut self, now: u64, number: u32, observer: &mut O) {
        let Some(place) = self.column_entry(now, number) else { return };
        let bank = &mut self.banks[number as usize];
        let entry = bank.queue.remove(usize::from(place));
        self.full &= !(1 << number);
        if entry.write {
            bank.writes -= 1;
        }
        bank.served += 1;
        self.account(now, number, entry.write, entry.found);
        if entry.write {
            self.write_timing(now, number);
        } else {
            self.read_timing(now, number);
            self.returns.push_back(Return {
                at: now + self.timing.read_data(),
                accepted: entry.accepted,
                transfer: entry.transfer,
            });
        }
        self.intake.left_bank(entry.write, entry.opened);
        self.waiting -= 1;
        let bank = &mut self.banks[number as usize];
        bank.find_hits();
        self.look_at_open(number);
        if !self.controller.two_command_buses {
            self.row_free = now + 1;
        }
        let next = self.ranks.iter().map(|rank| rank.read_ok.min(rank.write_ok)).min();
        self.column_at = next.unwrap_or(0);
        let kind = if entry.write {
            Kind::Write { bank: number, row: entry.row, column: entry.column }
        } else {
            Kind::Read { bank: number, row: entry.row, column: entry.column }
        };
        observer.command(&Command { at: now, channel: self.number, kind });
    }

    #[inline]
    fn read_timing(&mut self, now: u64, number: u32) {
        let timing = self.timing;
        let bank = &mut self.banks[number as usize];
        bank.pre_ok = bank.pre_ok.max(now + u64::from(timing.rtp));
        let group = &mut self.groups[usize::from(bank.group)];
        group.read_ok = group.read_ok.max(now + u64::from(timing.burst.max(timing.ccd_l)));
        let own = usize::from(bank.rank);
        let rank = &mut self.ranks[own];
        rank.read_ok = rank.read_ok.max(now + u64::from(timing.burst.max(timing.ccd_s)));
        rank.write_ok = rank.write_ok.max(now + u64::from(timing.rtw));
        if self.ranks.len() > self.buses.len() {
            let switch = u64::from(timing.burst) + u64::from(timing.rank_switch);
            let to_write = (u64::from(timing.cl) + switch).saturating_sub(u64::from(timing.cwl)).max(1);
            self.other_ranks(own, now + switch, now + to_write);
        }
    }

    fn write_timing(&mut self, now: u64, number: u32) {
        let timing = self.timing;
        let bank = &mut self.banks[number as usize];
        let data = timing.write_data();
        bank.pre_ok = bank.pre_ok.max(now + data + u64::from(timing.wr));
        let group = &mut self.groups[usize::from(bank.group)];
        group.write_ok = group.write_ok.max(now + u64::from(timing.burst.max(timing.ccd_l)));
        group.read_ok = group.read_ok.max(now + data + u64::from(timing.wtr_l));
        let own = usize::from(bank.rank);
        let rank = &mut self.ranks[own];
        rank.write_ok = rank.write_ok.max(now + u64::from(timing.burst.max(timing.ccd_s)));
        rank.read_ok = rank.read_ok.max(now + data + u64::from(timing.wtr_s));
        if self.ranks.len() > self.buses.len() {
            let switch = u64::from(timing.burst) + u64::from(timing.rank_switch);
            let to_read = (u64::from(timing.cwl) + switch).saturating_sub(u64::from(timing.cl)).max(1);
            self.other_ranks(own, now + to_read, now + switch);
        }
    }

    /// The other ranks of the same data bus read and write no sooner than these clocks.
    fn other_ranks(&mut self, own: usize, read: u64, write: u64) {
        let bus = self.ranks[own].pseudo_channel;
        for (number, rank) in self.ranks.iter_mut().enumerate() {
            if number != own && rank.pseudo_channel == bus {
                rank.read_ok = rank.read_ok.max(read);
                rank.write_ok = rank.write_ok.max(write);
            }
        }
    }

    /// Counts the request and the idle clocks of the data bus before it.
    #[inline]
    fn account(&mut self, now: u64, number: u32, write: bool, found: Found) {
        let bank = &self.banks[number as usize];
        let rank = &self.ranks[usize::from(bank.rank)];
        let bus = &mut self.buses[usize::from(rank.pseudo_channel)];
        match found {
            Found::Hit => self.counts.row_hits += 1,
            Found::Closed => self.counts.row_misses += 1,
            Found::OtherRow => self.counts.row_conflicts += 1,
        }
        if write {
            self.counts.writes += 1;
        } else {
            self.counts.reads += 1;
        }
        let latency = u64::from(if write { self.timing.cwl } else { self.timing.cl });
        let start = now + latency;
        if start > bus.end {
            // A request takes two clocks through the queues before its command.
            let wanted = (self.busy_since + 2 + latency).clamp(bus.end, start);
            self.idle.no_request += wanted - bus.end;
            let lost = start - wanted;
            let cause = if rank.refreshed > bus.end {
                &mut self.idle.refresh
            } else if found == Found::Hit {
                if bus.wrote != write { &mut self.idle.turnaround } else { &mut self.idle.bank_group }
            } else if bank.held_by_rank {
                &mut self.idle.activate_rate
            } else if found == Found::Closed {
                &mut self.idle.row_miss
            } else {
                &mut self.idle.bank_conflict
            };
            *cause += lost;
        }
        bus.end = start + u64::from(self.timing.burst);
        bus.wrote = write;
        self.counts.last_data = self.counts.last_data.max(bus.end);
    }

    /// The first clock at which the pending refresh can issue its next command.
    pub(super) fn refresh_ready(&self) -> u64 {
        let Some(rank) = self.refreshes.front() else { return super::NEVER };
        let banks = self.rank_banks(*rank);
        let open = banks.clone().filter(|bank| bank.open_row != CLOSED).map(|bank| bank.pre_ok);
        let close = if self.controller.precharge_all { open.max() } else { open.min() };
        let ready = close.unwrap_or_else(|| banks.map(|bank| bank.act_ok).max().unwrap_or(0));
        ready.max(self.row_free)
    }

    fn rank_banks(&self, rank: u8) -> impl Iterator<Item = &super::Bank> + Clone {
        self.banks.iter().filter(move |bank| bank.rank == rank)
    }

    /// One command towards the pending refresh, if it is ready.
    pub(super) fn refresh_step<O: Observer>(&mut self, now: u64, observer: &mut O) -> bool {
        let Some(rank) = self.refreshes.front().copied() else { return false };
        if self.refresh_ready() > now {
            return false;
        }
        self.row_free = now + 1;
        let open: Vec<u32> = (0..self.banks.len() as u32)
            .filter(|number| {
                let bank = &self.banks[*number as usize];
                bank.rank == rank && bank.open_row != CLOSED && bank.pre_ok <= now
            })
            .collect();
        if let Some(first) = open.first() {
            self.counts.precharges += 1;
            let kind = if self.controller.precharge_all {
                open.iter().for_each(|number| self.close(now, *number));
                Kind::PrechargeAll { rank: u32::from(rank) }
            } else {
                self.close(now, *first);
                Kind::Precharge { bank: *first }
            };
            observer.command(&Command { at: now, channel: self.number, kind });
            return true;
        }
        let end = now + u64::from(self.timing.rfc);
        self.banks.iter_mut().filter(|bank| bank.rank == rank).for_each(|bank| bank.act_ok = end);
        self.ranks[usize::from(rank)].refreshed = end;
        self.refreshes.pop_front();
        self.block();
        // The banks were left out of the bounds while they were held.
        self.activate_at = self.activate_at.min(end);
        self.counts.refreshes += 1;
        observer.command(&Command { at: now, channel: self.number, kind: Kind::Refresh { rank: u32::from(rank) } });
        true
    }
}
