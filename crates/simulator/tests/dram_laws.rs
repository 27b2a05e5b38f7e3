//! Laws of the DRAM model: timing rules on random streams, conservation, determinism, more is never slower.
#![allow(clippy::unwrap_used)]

use npumem_simulator::dram::drive::{Pattern, drive};
use npumem_simulator::dram::fuzzing;
use npumem_simulator::dram::{Direction, Mapping, Part, Requester, Timing, described};
use npumem_testing::Random;
use std::collections::BTreeSet;

/// Random parts, transfers and requesters: no rule broken, every rule met to the very clock by some case.
#[test]
fn random_streams_keep_every_rule_and_reach_it() {
    let mut random = Random(5);
    let mut tight = BTreeSet::new();
    let mut commands = 0;
    for case in 0..150 {
        let data: Vec<u8> = (0..2400).map(|_| random.next_u64() as u8).collect();
        let outcome = fuzzing::check(&data).unwrap_or_else(|why| panic!("case {case}: {why}"));
        commands += outcome.rules.seen();
        tight.extend(outcome.rules.tight());
    }
    let rules = [
        "rc",
        "rp",
        "rrd_l",
        "rrd_s",
        "faw",
        "rfc",
        "ras",
        "rtp",
        "wr",
        "rcd",
        "rcd_write",
        "ccd_l",
        "ccd_s",
        "rtw",
        "wtr_l",
        "wtr_s",
        "burst",
        "rank_switch",
        "command bus",
    ];
    assert_eq!(tight, BTreeSet::from(rules), "{commands} commands");
    assert!(commands > 50_000, "{commands} commands");
}

/// The clocks that `count` bursts of a pattern take.
fn clocks(part: &Part, requester: Requester, pattern: Pattern, count: u64) -> u64 {
    drive(part, requester, Direction::Read, pattern.runs(8 << 30, 64, 1), count).unwrap().clocks
}

/// A change by name.
type Change<T> = (&'static str, fn(&mut T));

const PATTERNS: [Pattern; 4] = [
    Pattern::Stream,
    Pattern::Random { block: 64 },
    Pattern::Stride { bytes: 8192 },
    Pattern::Tile { rows: 16, bytes: 256, pitch: 8192 },
];

fn changed(change: impl Fn(&mut Part)) -> Part {
    let mut part = described::hbm2_8gb_x128();
    // No refresh within the run: its phase, not its length, would decide a close comparison.
    part.timing.refi = 1 << 24;
    change(&mut part);
    part
}

/// One burst under way after the other: every timing rule that is a clock longer makes nothing faster.
#[test]
fn shorter_timing_is_never_slower_burst_after_burst() {
    let changes: [Change<Timing>; 8] = [
        ("cl", |timing| timing.cl += 1),
        ("rcd", |timing| timing.rcd += 1),
        ("rp", |timing| timing.rp += 1),
        ("ras", |timing| timing.ras += 1),
        ("rc", |timing| timing.rc += 7),
        ("faw", |timing| timing.faw += 20),
        ("rtp", |timing| timing.rtp += 3),
        ("burst", |timing| (timing.burst, timing.rtw) = (timing.burst + 1, timing.rtw + 1)),
    ];
    for pattern in PATTERNS {
        let base = clocks(&changed(|_| ()), Requester::in_order(1), pattern, 3000);
        for (name, change) in changes {
            let slower = clocks(&changed(|part| change(&mut part.timing)), Requester::in_order(1), pattern, 3000);
            assert!(slower >= base, "{name} longer, {pattern:?}: {slower} clocks against {base}");
        }
    }
}

/// More outstanding bursts, channels, banks or queue places do not slow a pattern down. A controller that takes
/// what is ready first is no monotone machine: an orderly stream may lose nothing, tiles and strides a hundredth,
/// and random bursts, whose run ends with the queue of the unluckiest bank, five.
#[test]
fn more_is_never_slower() {
    let mapped = |text: &str, change: fn(&mut Part)| {
        changed(|part| {
            part.mapping = Mapping::parse(text).unwrap();
            change(part);
        })
    };
    for text in ["rorabgbachco", "rorabacobgch"] {
        for pattern in PATTERNS {
            let slack = match pattern {
                Pattern::Stream => 0,
                Pattern::Random { .. } => 5,
                _ => 1,
            };
            let limit = |clocks: u64| clocks + clocks * slack / 100;
            let base = mapped(text, |_| ());
            let at = |part: &Part| clocks(part, Requester::per_channel(512), pattern, 20_000);
            let base_clocks = at(&base);
            let more: [Change<Part>; 4] = [
                ("channels", |part| part.channels *= 2),
                ("banks", |part| part.banks_per_group *= 2),
                ("queue of a bank", |part| part.controller.bank_queue *= 2),
                ("queue of a channel", |part| {
                    part.controller.transactions *= 2;
                    part.controller.write_high *= 2;
                }),
            ];
            for (name, change) in more {
                let clocks = at(&mapped(text, change));
                assert!(clocks <= limit(base_clocks), "{name}, {text}, {pattern:?}: {clocks} against {base_clocks}");
            }
            let mut before = u64::MAX;
            for outstanding in [1, 4, 16, 64, 256, 1024] {
                let clocks = clocks(&base, Requester::in_order(outstanding), pattern, 20_000);
                assert!(
                    clocks <= limit(before.min(1 << 40)),
                    "{outstanding}, {text}, {pattern:?}: {clocks} against {before}"
                );
                before = clocks;
            }
        }
    }
}

/// No pattern goes above the data buses, reading, writing or both.
#[test]
fn no_bandwidth_above_the_peak() {
    let part = described::hbm2_8gb_x128();
    for pattern in PATTERNS {
        for direction in [Direction::Read, Direction::Write] {
            let runs = pattern.runs(8 << 30, 64, 1);
            let measured = drive(&part, Requester::per_channel(2048), direction, runs, 30_000).unwrap();
            let peak = part.peak_bytes_per_clock();
            assert!(measured.bytes_per_clock <= peak, "{pattern:?} {direction:?}: {}", measured.bytes_per_clock);
            let bytes: u64 = measured.counts.bytes_per_channel().iter().sum();
            let in_queue = measured.counts.total().answered_in_queue * 64;
            // The last writes may still wait in the queues: 64 at most a channel, and 8 a bank.
            let waiting = if direction == Direction::Write { 8 * (32 + 16 * 8) * 64 } else { 0 };
            let asked = 30_000 * 64;
            assert!(
                bytes + in_queue <= asked && bytes + in_queue + waiting >= asked,
                "{pattern:?} {direction:?}: {bytes}"
            );
        }
    }
}
