//! The timing rules of a part, written from their definitions and held against a stream of commands.
//!
//! It knows the part and the commands, and nothing of how the model chooses them: tests watch every
//! run with it, and it can watch a command stream from anywhere. Slow and obvious is fine here.

use super::part::Part;
use super::record::{Command, Kind, Observer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A rule that a command breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule, by its JEDEC name in lower case, or a word for the rules that have none.
    pub rule: &'static str,
    /// The command.
    pub command: Command,
    /// The first clock at which it would be legal by this rule; `None` when waiting does not help.
    pub legal_at: Option<u64>,
}

/// What happened last where.
#[derive(Clone, Debug, Default)]
struct Last {
    activate: Option<u64>,
    precharge: Option<u64>,
    read: Option<u64>,
    write: Option<u64>,
}

/// One rank of a channel.
#[derive(Clone, Debug)]
struct RankHistory {
    all: Last,
    groups: Vec<Last>,
    banks: Vec<Last>,
    open: Vec<Option<u32>>,
    activates: VecDeque<u64>,
    refresh: Option<u64>,
    refreshes: u64,
}

/// Data on a bus: from, until, rank.
type Data = (u64, u64, usize);

#[derive(Clone, Debug)]
struct ChannelHistory {
    ranks: Vec<RankHistory>,
    data: Vec<Option<Data>>,
    row_command: Option<(u64, bool)>,
    column_command: Option<u64>,
}

/// Holds commands against the rules; commands of one channel come in order of time.
#[derive(Clone, Debug)]
pub struct Rules {
    part: Part,
    channels: Vec<ChannelHistory>,
    violations: Vec<Violation>,
    slack: BTreeMap<&'static str, u64>,
    seen: u64,
}

impl Rules {
    /// A watcher of a part that starts with every row closed.
    #[must_use]
    pub fn new(part: &Part) -> Self {
        let groups = part.bank_groups as usize;
        let banks = groups * part.banks_per_group as usize;
        let rank = RankHistory {
            all: Last::default(),
            groups: vec![Last::default(); groups],
            banks: vec![Last::default(); banks],
            open: vec![None; banks],
            activates: VecDeque::new(),
            refresh: None,
            refreshes: 0,
        };
        let channel = ChannelHistory {
            ranks: vec![rank; (part.pseudo_channels * part.ranks) as usize],
            data: vec![None; part.pseudo_channels as usize],
            row_command: None,
            column_command: None,
        };
        Rules {
            part: part.clone(),
            channels: vec![channel; part.channels as usize],
            violations: Vec::new(),
            slack: BTreeMap::new(),
            seen: 0,
        }
    }

    /// Everything that broke a rule so far.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// For every rule that a command was held against: the fewest clocks that one came later than it had to.
    #[must_use]
    pub fn slack(&self) -> &BTreeMap<&'static str, u64> {
        &self.slack
    }

    /// The rules that bound a command to the very clock.
    #[must_use]
    pub fn tight(&self) -> BTreeSet<&'static str> {
        self.slack.iter().filter(|(_, slack)| **slack == 0).map(|(rule, _)| *rule).collect()
    }

    /// Commands seen so far.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The fewest refreshes that any rank had.
    #[must_use]
    pub fn fewest_refreshes(&self) -> u64 {
        self.channels.iter().flat_map(|channel| &channel.ranks).map(|rank| rank.refreshes).min().unwrap_or(0)
    }

    /// Holds the next command of its channel against the rules.
    pub fn watch(&mut self, command: &Command) {
        self.seen += 1;
        self.command_bus(command);
        match command.kind {
            Kind::Activate { bank, row } => self.activate(command, bank, row),
            Kind::Precharge { bank } => {
                let (rank, bank) = self.split(bank);
                self.precharge(command, rank, bank);
            }
            Kind::PrechargeAll { rank } => {
                for bank in 0..self.channels[command.channel as usize].ranks[rank as usize].banks.len() {
                    if self.history(command, rank as usize).open[bank].is_some() {
                        self.precharge(command, rank as usize, bank);
                    }
                }
            }
            Kind::Read { bank, row, .. } => self.column(command, bank, row, false),
            Kind::Write { bank, row, .. } => self.column(command, bank, row, true),
            Kind::Refresh { rank } => self.refresh(command, rank as usize),
        }
    }

    fn history(&mut self, command: &Command, rank: usize) -> &mut RankHistory {
        &mut self.channels[command.channel as usize].ranks[rank]
    }

    /// Rank and bank in the rank.
    fn split(&self, bank: u32) -> (usize, usize) {
        let per_rank = self.part.bank_groups * self.part.banks_per_group;
        ((bank / per_rank) as usize, (bank % per_rank) as usize)
    }

    /// `command` comes at least `distance` clocks after `since`.
    fn after(&mut self, rule: &'static str, command: &Command, since: Option<u64>, distance: u32) {
        let Some(since) = since else { return };
        let legal = since + u64::from(distance);
        if command.at < legal {
            self.violations.push(Violation { rule, command: *command, legal_at: Some(legal) });
            return;
        }
        let slack = self.slack.entry(rule).or_insert(u64::MAX);
        *slack = (*slack).min(command.at - legal);
    }

    fn wrong(&mut self, rule: &'static str, command: &Command) {
        self.violations.push(Violation { rule, command: *command, legal_at: None });
    }

    fn command_bus(&mut self, command: &Command) {
        let two = self.part.controller.two_command_buses;
        let activate = matches!(command.kind, Kind::Activate { .. });
        let column = matches!(command.kind, Kind::Read { .. } | Kind::Write { .. });
        let channel = &self.channels[command.channel as usize];
        let (row_command, column_command) = (channel.row_command, channel.column_command);
        let held = |(at, was_activate)| (Some(at), if was_activate { self.part.timing.act_command } else { 1 });
        let (row_at, held) = row_command.map_or((None, 1), held);
        if !(two && column) {
            self.after("command bus", command, row_at, held);
        }
        if column || !two {
            self.after("command bus", command, column_command, 1);
        }
        let channel = &mut self.channels[command.channel as usize];
        if column {
            channel.column_command = Some(command.at);
        } else {
            channel.row_command = Some((command.at, activate));
        }
    }

    fn activate(&mut self, command: &Command, bank: u32, row: u32) {
        let timing = self.part.timing;
        let (rank, bank) = self.split(bank);
        let group = bank / self.part.banks_per_group as usize;
        let history = self.history(command, rank);
        let was_open = history.open[bank].is_some();
        let own = history.banks[bank].clone();
        let (in_group, in_rank) = (history.groups[group].activate, history.all.activate);
        let refresh = history.refresh;
        let fourth = if history.activates.len() == 4 { history.activates.front().copied() } else { None };
        if was_open {
            self.wrong("the bank is open", command);
        }
        self.after("rc", command, own.activate, timing.rc);
        self.after("rp", command, own.precharge, timing.rp);
        self.after("rrd_l", command, in_group, timing.rrd_l);
        self.after("rrd_s", command, in_rank, timing.rrd_s);
        self.after("faw", command, fourth, timing.faw);
        self.after("rfc", command, refresh, timing.rfc);
        let history = self.history(command, rank);
        history.open[bank] = Some(row);
        let at = Some(command.at);
        history.banks[bank].activate = at;
        history.groups[group].activate = at;
        history.all.activate = at;
        if history.activates.len() == 4 {
            history.activates.pop_front();
        }
        history.activates.push_back(command.at);
    }

    fn precharge(&mut self, command: &Command, rank: usize, bank: usize) {
        let timing = self.part.timing;
        let own = self.history(command, rank).banks[bank].clone();
        if self.history(command, rank).open[bank].is_none() {
            self.wrong("the bank is closed", command);
        }
        self.after("ras", command, own.activate, timing.ras);
        self.after("rtp", command, own.read, timing.rtp);
        self.after("wr", command, own.write, timing.cwl + timing.burst + timing.wr);
        let history = self.history(command, rank);
        history.open[bank] = None;
        history.banks[bank].precharge = Some(command.at);
    }

    fn column(&mut self, command: &Command, bank: u32, row: u32, write: bool) {
        let timing = self.part.timing;
        let (rank, bank) = self.split(bank);
        let group = bank / self.part.banks_per_group as usize;
        let history = self.history(command, rank);
        let open = history.open[bank];
        let opened = history.banks[bank].activate;
        let (in_group, in_rank) = (history.groups[group].clone(), history.all.clone());
        if open != Some(row) {
            self.wrong("the row is not open", command);
        }
        let data = timing.cwl + timing.burst;
        if write {
            self.after("rcd_write", command, opened, timing.rcd_write);
            self.after("ccd_l", command, in_group.write, timing.ccd_l);
            self.after("ccd_s", command, in_rank.write, timing.ccd_s);
            self.after("rtw", command, in_rank.read, timing.rtw);
        } else {
            self.after("rcd", command, opened, timing.rcd);
            self.after("ccd_l", command, in_group.read, timing.ccd_l);
            self.after("ccd_s", command, in_rank.read, timing.ccd_s);
            self.after("wtr_l", command, in_group.write, data + timing.wtr_l);
            self.after("wtr_s", command, in_rank.write, data + timing.wtr_s);
        }
        self.data_bus(command, rank, if write { timing.cwl } else { timing.cl });
        let at = Some(command.at);
        let history = self.history(command, rank);
        for last in [&mut history.banks[bank], &mut history.groups[group], &mut history.all] {
            *(if write { &mut last.write } else { &mut last.read }) = at;
        }
    }

    /// The data of a burst come when no other burst is on the bus, and after a pause when the rank changes.
    fn data_bus(&mut self, command: &Command, rank: usize, latency: u32) {
        let bus = rank / self.part.ranks as usize;
        let from = command.at + u64::from(latency);
        let until = from + u64::from(self.part.timing.burst);
        if let Some((_, end, owner)) = self.channels[command.channel as usize].data[bus] {
            let pause = if owner == rank { 0 } else { u64::from(self.part.timing.rank_switch) };
            let rule = if owner == rank { "burst" } else { "rank_switch" };
            let free = end + pause;
            if from < free {
                let legal_at = Some(command.at + (free - from));
                self.violations.push(Violation { rule, command: *command, legal_at });
            } else {
                let slack = self.slack.entry(rule).or_insert(u64::MAX);
                *slack = (*slack).min(from - free);
            }
        }
        self.channels[command.channel as usize].data[bus] = Some((from, until, rank));
    }

    fn refresh(&mut self, command: &Command, rank: usize) {
        let timing = self.part.timing;
        let history = self.history(command, rank).clone();
        if history.open.iter().any(Option::is_some) {
            self.wrong("a bank is open", command);
        }
        for bank in &history.banks {
            self.after("rp", command, bank.precharge, timing.rp);
            self.after("rc", command, bank.activate, timing.rc);
        }
        self.after("rfc", command, history.refresh, timing.rfc);
        let history = self.history(command, rank);
        history.refresh = Some(command.at);
        history.refreshes += 1;
    }
}

impl Observer for Rules {
    fn command(&mut self, command: &Command) {
        self.watch(command);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dram::described;

    const A: Kind = Kind::Activate { bank: 0, row: 7 };
    const READ: Kind = Kind::Read { bank: 0, row: 7, column: 0 };
    const WRITE: Kind = Kind::Write { bank: 0, row: 7, column: 1 };
    const CLOSE: Kind = Kind::Precharge { bank: 0 };

    fn part() -> Part {
        let mut part = described::hbm2_8gb_x128();
        part.ranks = 2;
        part.channels = 1;
        // Each limit is the binding one of its case.
        part.timing.rc = 50;
        part.timing.ccd_s = 3;
        part.timing.ccd_l = 5;
        part
    }

    /// The rules that the last command breaks when the commands come at these clocks.
    fn broken(commands: &[(u64, Kind)]) -> Vec<&'static str> {
        let mut rules = Rules::new(&part());
        for (at, kind) in commands {
            let before = rules.violations.len();
            rules.watch(&Command { at: *at, channel: 0, kind: *kind });
            if (*at, *kind) != commands[commands.len() - 1] {
                assert_eq!(rules.violations.len(), before, "{:?}", rules.violations);
            }
        }
        rules.violations.iter().map(|one| one.rule).collect()
    }

    /// Every rule: legal at t, illegal at t - 1, and by that rule alone.
    #[test]
    fn every_rule_is_tight() {
        let bank = |bank| Kind::Activate { bank, row: 7 };
        let read = |bank| Kind::Read { bank, row: 7, column: 0 };
        let write = |bank| Kind::Write { bank, row: 7, column: 0 };
        // Banks 0 and 1 share a group; 4 and 8 are in others; 16 is in the other rank.
        let far = 1000;
        type Case = (&'static str, Vec<(u64, Kind)>, u64, Kind);
        let cases: Vec<Case> = vec![
            ("rcd", vec![(0, A)], 14, READ),
            ("rcd_write", vec![(0, A)], 14, WRITE),
            ("ras", vec![(0, A)], 34, CLOSE),
            ("rp", vec![(0, A), (60, CLOSE)], 74, A),
            ("rc", vec![(0, A), (34, CLOSE)], 50, A),
            ("rtp", vec![(0, A), (far, READ)], far + 5, CLOSE),
            ("wr", vec![(0, A), (far, WRITE)], far + 4 + 2 + 16, CLOSE),
            ("rrd_l", vec![(0, A)], 6, bank(1)),
            ("rrd_s", vec![(0, A)], 4, bank(4)),
            ("faw", vec![(0, A), (6, bank(4)), (12, bank(8)), (18, bank(12))], 30, bank(1)),
            ("rfc", vec![(0, Kind::Refresh { rank: 0 })], 260, A),
            ("rfc", vec![(0, Kind::Refresh { rank: 0 })], 260, Kind::Refresh { rank: 0 }),
            ("rp", vec![(0, A), (60, CLOSE)], 74, Kind::Refresh { rank: 0 }),
            ("rc", vec![(0, A), (34, CLOSE)], 50, Kind::Refresh { rank: 0 }),
            ("ccd_l", vec![(0, A), (6, bank(1)), (far, READ)], far + 5, read(1)),
            ("ccd_s", vec![(0, A), (6, bank(4)), (far, READ)], far + 3, read(4)),
            ("ccd_l", vec![(0, A), (6, bank(1)), (far, WRITE)], far + 5, write(1)),
            ("ccd_s", vec![(0, A), (6, bank(4)), (far, WRITE)], far + 3, write(4)),
            ("rtw", vec![(0, A), (6, bank(4)), (far, READ)], far + 14, write(4)),
            ("wtr_l", vec![(0, A), (6, bank(1)), (far, WRITE)], far + 4 + 2 + 8, read(1)),
            ("wtr_s", vec![(0, A), (6, bank(4)), (far, WRITE)], far + 4 + 2 + 6, read(4)),
            ("rank_switch", vec![(0, A), (6, bank(16)), (far, READ)], far + 2 + 2, read(16)),
            ("rank_switch", vec![(0, A), (6, bank(16)), (far, READ)], far + 14 + 2 + 2 - 4, write(16)),
            ("command bus", vec![(far, A)], far + 1, bank(16)),
        ];
        for (rule, before, at, last) in cases {
            let with = |at: u64| {
                let mut commands = before.clone();
                commands.push((at, last));
                broken(&commands)
            };
            assert_eq!(with(at), [""; 0], "{rule} at {at}");
            assert_eq!(with(at - 1), [rule], "{rule} at {}", at - 1);
        }
    }

    #[test]
    fn commands_to_a_bank_in_the_wrong_state_are_found() {
        assert_eq!(broken(&[(0, READ)]), ["the row is not open"]);
        assert_eq!(broken(&[(0, CLOSE)]), ["the bank is closed"]);
        assert_eq!(broken(&[(0, A), (99, A)]), ["the bank is open"]);
        assert_eq!(broken(&[(0, A), (99, Kind::Refresh { rank: 0 })]), ["a bank is open"]);
        assert_eq!(broken(&[(0, A), (99, Kind::Read { bank: 0, row: 8, column: 0 })]), ["the row is not open"]);
        assert_eq!(broken(&[(0, A), (99, Kind::PrechargeAll { rank: 0 }), (120, READ)]), ["the row is not open"]);
    }
}
