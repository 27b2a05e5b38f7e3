//! Random parts under random transfers, watched by [`Rules`]: the body of the fuzz target and of a test.

use super::counts::Counts;
use super::described;
use super::detailed::Detailed;
use super::mapping::{Mapping, Placer};
use super::part::{Arbitration, Controller, Part, Timing};
use super::record::Observer;
use super::rules::Rules;
use super::transfer::{Completion, Direction, Requester, RequesterId, Routing, Runs, Transfer, bursts};

/// Bytes read as numbers; past the end they are zero.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u32 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        u32::from(*first)
    }

    fn between(&mut self, least: u32, most: u32) -> u32 {
        least + (self.byte() | self.byte() << 8) % (most - least + 1)
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }
}

/// What a case did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The commands against the rules.
    pub rules: Rules,
    /// What the memory counted.
    pub counts: Counts,
    /// Transfers, all of them done.
    pub done: Vec<Completion>,
}

/// The part that the bytes choose.
fn part(choices: &mut Choices<'_>) -> Part {
    let mut controller = Controller {
        transactions: choices.between(1, 40),
        bank_queue: choices.between(1, 10),
        one_pool: choices.flag(),
        arbitration: if choices.flag() { Arbitration::Oldest } else { Arbitration::RoundRobin },
        row_hits: choices.between(0, 6),
        two_command_buses: choices.flag(),
        precharge_all: choices.flag(),
        refresh_together: choices.flag(),
        write_high: 1,
        write_low: 0,
    };
    controller.write_high = choices.between(1, controller.transactions);
    controller.write_low = choices.between(0, controller.write_high - 1);
    let (burst, cl, ccd_s, rrd_s, wtr_s) = (
        choices.between(1, 4),
        choices.between(1, 20),
        choices.between(1, 4),
        choices.between(1, 6),
        choices.between(1, 8),
    );
    let cwl = choices.between(1, 12);
    let (ras, rp) = (choices.between(1, 40), choices.between(1, 16));
    let timing = Timing {
        burst,
        cl,
        cwl,
        rcd: choices.between(1, 20),
        rcd_write: choices.between(1, 20),
        rp,
        ras,
        rc: choices.between(1, 70),
        ccd_s,
        ccd_l: ccd_s + choices.between(0, 4),
        rrd_s,
        rrd_l: rrd_s + choices.between(0, 4),
        faw: choices.between(1, 40),
        wr: choices.between(1, 20),
        wtr_s,
        wtr_l: wtr_s + choices.between(0, 5),
        rtp: choices.between(1, 12),
        rtw: (cl + burst).saturating_sub(cwl).max(1) + choices.between(0, 4),
        rank_switch: choices.between(0, 3),
        refi: choices.between(4000, 8000),
        rfc: choices.between(1, 300),
        act_command: choices.between(1, 2),
    };
    let mappings = ["rorabgbapcchco", "rorabacobgpcch", "rocobabgrachpcco1+xorro", "rocobabgrapcchco1+xorco"];
    let mapping = mappings[choices.between(0, 3) as usize];
    #[expect(clippy::expect_used, reason = "the texts above are well formed")]
    let mapping = Mapping::parse(mapping).expect("a literal of this file");
    Part {
        channels: 1 << choices.between(0, 2),
        pseudo_channels: 1 << choices.between(0, 1),
        ranks: 1 << choices.between(0, 1),
        bank_groups: 1 << choices.between(0, 2),
        banks_per_group: 1 << choices.between(0, 2),
        row_bytes: 256 << choices.between(0, 2),
        burst_bytes: 64,
        timing,
        mapping,
        controller,
        ..described::hbm2_8gb_x128()
    }
}

fn requester(choices: &mut Choices<'_>) -> Requester {
    Requester {
        outstanding: choices.between(1, 80),
        offers_per_clock: choices.between(1, 8),
        interval: if choices.flag() { 0 } else { u64::from(choices.between(1, 60_000)) * 4 },
        routing: if choices.flag() { Routing::PerChannel } else { Routing::InOrder },
    }
}

/// Runs the case that `data` stands for and holds it against the rules and the laws.
///
/// # Errors
/// Says which rule or law broke.
pub fn check(data: &[u8]) -> Result<Outcome, String> {
    let mut choices = Choices(data);
    let part = part(&mut choices);
    let rules = Rules::new(&part);
    let first = run(&part, rules, &mut Choices(choices.0))?;
    let again = run(&part, super::record::Unobserved, &mut Choices(choices.0))?;
    if first.1 != again.1 || first.2 != again.2 {
        return Err("two runs of one case differ, or an observer changed the run".to_owned());
    }
    let (rules, counts, done) = first;
    if let Some(violation) = rules.violations().first() {
        return Err(format!("{violation:?} of {} in {part:?}", rules.violations().len()));
    }
    Ok(Outcome { rules, counts, done })
}

type Run<O> = (O, Counts, Vec<Completion>);

fn run<O: Observer + Clone>(part: &Part, observer: O, choices: &mut Choices<'_>) -> Result<Run<O>, String> {
    let text = |error: &dyn std::error::Error| format!("{error} for {part:?}");
    let placer = Placer::new(part).map_err(|error| text(&error))?;
    let mut memory = Detailed::observed(part, observer).map_err(|error| text(&error))?;
    let requesters = choices.between(1, 3);
    for _ in 0..requesters {
        memory.add_requester(requester(choices)).map_err(|error| text(&error))?;
    }
    let (mut at, mut expected, mut done) = (0, 0, Vec::new());
    let transfers = choices.between(1, 120);
    for _ in 0..transfers {
        at += u64::from(choices.between(0, 3)) * u64::from(choices.between(0, 200));
        while let Some(one) = memory.run_until(at) {
            done.push(one);
        }
        let runs = Runs {
            start: u64::from(choices.between(0, 60_000)) * u64::from(choices.between(1, 64)),
            bytes: u64::from(choices.between(0, 700)),
            pitch: u64::from(choices.between(0, 9000)),
            count: u64::from(choices.between(0, 9)),
        };
        let direction = if choices.flag() { Direction::Write } else { Direction::Read };
        let requester = RequesterId(choices.between(0, requesters - 1));
        expected += bursts(&runs, &placer);
        memory.submit(at, Transfer { requester, direction, runs }).map_err(|error| text(&error))?;
    }
    // Nothing in a case takes this long: a memory that stands still is found here.
    while let Some(one) = memory.run_until(at + 10_000_000) {
        done.push(one);
    }
    let end = memory.now();
    if !memory.is_idle() {
        return Err("no event is left, and transfers are open".to_owned());
    }
    // Posted writes reach the banks; nothing may come back any more.
    if memory.run_until(end + 100_000).is_some() {
        return Err("a transfer was done twice".to_owned());
    }
    let counts = memory.counts();
    laws(part, &counts, &done, u64::from(transfers), expected)?;
    Ok((memory.observer().clone(), counts, done))
}

fn laws(part: &Part, counts: &Counts, done: &[Completion], transfers: u64, expected: u64) -> Result<(), String> {
    let total = counts.total();
    let served: u64 = counts.requesters.iter().map(|one| one.bursts).sum();
    if done.len() as u64 != transfers || served != expected {
        return Err(format!("{} of {transfers} transfers and {served} of {expected} bursts came back", done.len()));
    }
    if total.reads + total.writes + total.answered_in_queue != expected {
        return Err(format!("{expected} bursts were asked for, and {total:?} moved"));
    }
    if total.row_hits + total.row_misses + total.row_conflicts != total.reads + total.writes {
        return Err(format!("hits, misses and conflicts do not add up: {total:?}"));
    }
    if let Some(pair) = done.windows(2).find(|pair| pair[0].at > pair[1].at) {
        return Err(format!("completions out of order: {pair:?}"));
    }
    for (channel, idle) in counts.channels.iter().zip(&counts.idle) {
        let moved = (channel.reads + channel.writes) * u64::from(part.timing.burst);
        let lost: u64 = idle.named().iter().map(|(_, clocks)| clocks).sum();
        let buses = u64::from(part.pseudo_channels);
        if moved + lost > channel.last_data * buses {
            return Err(format!("{moved} busy and {lost} idle clocks in {} of {buses} buses", channel.last_data));
        }
        if buses == 1 && moved + lost != channel.last_data {
            return Err(format!("{moved} busy and {lost} idle clocks are not {}", channel.last_data));
        }
    }
    Ok(())
}
