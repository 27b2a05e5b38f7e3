//! The fast DRAM model against the detailed one.
#![allow(clippy::unwrap_used)]

use npumem_simulator::dram::drive::Pattern;
use npumem_simulator::dram::{
    Completion, Detailed, Direction, Doubt, Fast, Mapping, Part, Requester, RequesterId, Runs, Transfer, described,
};

fn part(mapping: &str) -> Part {
    Part { mapping: Mapping::parse(mapping).unwrap(), ..described::hbm2_8gb_x128() }
}

/// The clock at which the last of the transfers is done, detailed and fast, and the doubts of the fast one.
fn both(part: &Part, limits: Requester, direction: Direction, runs: &[Runs]) -> (u64, u64, Vec<Doubt>) {
    let mut detailed = Detailed::new(part).unwrap();
    let mut fast = Fast::new(part).unwrap();
    let requester = detailed.add_requester(limits).unwrap();
    assert_eq!(fast.add_requester(limits).unwrap(), requester);
    for runs in runs {
        let transfer = Transfer { requester, direction, runs: *runs };
        detailed.submit(0, transfer).unwrap();
        fast.submit(0, transfer).unwrap();
    }
    let last = |mut next: Box<dyn FnMut() -> Option<Completion> + '_>| {
        let (mut last, mut count) = (0, 0);
        while let Some(done) = next() {
            assert!(done.at >= last, "completions come in order of time");
            (last, count) = (done.at, count + 1);
        }
        assert_eq!(count, runs.len());
        last
    };
    (last(Box::new(|| detailed.run_until(u64::MAX))), last(Box::new(|| fast.run_until(u64::MAX))), fast.doubts())
}

#[test]
fn streams_and_tiles_are_within_a_tenth() {
    let tile = |rows, bytes| Pattern::Tile { rows, bytes, pitch: 8192 };
    let shapes: [(&str, Vec<Runs>); 9] = [
        ("stream, one transfer", vec![Runs::one(0, 8 << 20)]),
        ("stream, 64 KiB each", (0..128).map(|at| Runs::one(at << 16, 1 << 16)).collect()),
        ("stream, 4 KiB each", (0..1024).map(|at| Runs::one(at << 12, 1 << 12)).collect()),
        ("128 x 64", tile(128, 64).runs(8 << 30, 64, 9).take(400).collect()),
        ("128 x 256", tile(128, 256).runs(8 << 30, 64, 9).take(300).collect()),
        ("128 x 512", tile(128, 512).runs(8 << 30, 64, 9).take(200).collect()),
        ("128 x 1024", tile(128, 1024).runs(8 << 30, 64, 9).take(100).collect()),
        ("64 x 8192", tile(64, 8192).runs(8 << 30, 64, 9).take(20).collect()),
        ("16 x 256", tile(16, 256).runs(8 << 30, 64, 9).take(800).collect()),
    ];
    let mut wrong = Vec::new();
    for mapping in ["rorabgbachco", "rorabacobgch"] {
        for limits in [
            Requester::in_order(64),
            Requester::in_order(1024),
            Requester::per_channel(256),
            Requester::per_channel(2048),
        ] {
            let writes = limits.outstanding == 256 || limits.outstanding == 64;
            let directions: &[Direction] =
                if writes { &[Direction::Read, Direction::Write] } else { &[Direction::Read] };
            for direction in directions.iter().copied() {
                for (name, runs) in &shapes {
                    let (detailed, fast, doubts) = both(&part(mapping), limits, direction, runs);
                    let error = (fast as f64 - detailed as f64) / detailed as f64;
                    let line = format!(
                        "{mapping} {:?} {} {direction:?} {name}: fast {fast}, detailed {detailed}, {:+.1} % {doubts:?}",
                        limits.routing,
                        limits.outstanding,
                        100.0 * error
                    );
                    println!("{line}");
                    if error.abs() > 0.1 && doubts.is_empty() {
                        wrong.push(line);
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// When two requesters share, one limited by its own bandwidth, each gets what is left.
#[test]
fn two_streams_share_the_memory() {
    let part = part("rorabacobgch");
    for (first, second) in [(1e9, 1e9), (64.0, 1e9), (64.0, 64.0)] {
        let mut detailed = Detailed::new(&part).unwrap();
        let mut fast = Fast::new(&part).unwrap();
        let mut at = [[0; 2]; 2];
        for (number, bandwidth) in [first, second].into_iter().enumerate() {
            let limits = Requester::in_order(1024).with_bandwidth(bandwidth, 64);
            let requester = detailed.add_requester(limits).unwrap();
            fast.add_requester(limits).unwrap();
            let runs = Runs::one(number as u64 * (1 << 30), 4 << 20);
            let transfer = Transfer { requester, direction: Direction::Read, runs };
            detailed.submit(0, transfer).unwrap();
            fast.submit(0, transfer).unwrap();
        }
        for _ in 0..2 {
            let done = detailed.run_until(u64::MAX).unwrap();
            at[done.requester.0 as usize][0] = done.at;
            let done = fast.run_until(u64::MAX).unwrap();
            at[done.requester.0 as usize][1] = done.at;
        }
        let unequal = first != second;
        assert_eq!(fast.doubts(), if unequal { vec![Doubt::UnequalShares] } else { vec![] });
        for [detailed, fast] in at {
            // Doubted, and a fifth off.
            let limit = if unequal { 4 } else { 10 };
            assert!(detailed.abs_diff(fast) * limit <= detailed, "{first} {second}: {detailed} detailed, {fast} fast");
        }
    }
}

/// What the fast model does not see it says.
#[test]
fn doubts_are_named() {
    let part = part("rorabgbachco");
    let mut fast = Fast::new(&part).unwrap();
    let first = fast.add_requester(Requester::in_order(64)).unwrap();
    let second = fast.add_requester(Requester::in_order(64)).unwrap();
    let tile = Runs { start: 0, bytes: 256, pitch: 8192, count: 128 };
    fast.submit(0, Transfer { requester: first, direction: Direction::Read, runs: tile }).unwrap();
    fast.submit(0, Transfer { requester: second, direction: Direction::Write, runs: tile }).unwrap();
    fast.submit(0, Transfer { requester: second, direction: Direction::Write, runs: Runs::one(0, 64) }).unwrap();
    while fast.run_until(u64::MAX).is_some() {}
    assert_eq!(fast.doubts(), [Doubt::SharedRows, Doubt::Turnaround, Doubt::ShortTransfers]);
}

/// Nothing to move is done at once; a wrong call is refused with the numbers, and nothing stands still.
#[test]
fn odd_calls() {
    let part = part("rorabgbachco");
    let mut fast = Fast::new(&part).unwrap();
    let mut detailed = Detailed::new(&part).unwrap();
    assert!(fast.add_requester(Requester::in_order(0)).is_err());
    assert!(detailed.add_requester(Requester::in_order(0)).is_err());
    let nobody = Transfer { requester: RequesterId(0), direction: Direction::Read, runs: Runs::one(0, 64) };
    assert_eq!(fast.submit(0, nobody).unwrap_err().to_string(), "requester 0 does not exist: 0 were added");
    assert_eq!(detailed.submit(0, nobody).unwrap_err(), fast.submit(0, nobody).unwrap_err());
    let requester = detailed.add_requester(Requester::in_order(64)).unwrap();
    fast.add_requester(Requester::in_order(64)).unwrap();
    let nothing = Transfer { runs: Runs { start: 7, bytes: 0, pitch: 9, count: 1 << 60 }, ..nobody };
    assert_eq!(detailed.submit(10, nothing), fast.submit(10, nothing));
    assert_eq!(detailed.run_until(100).map(|done| (done.requester, done.at)), Some((requester, 10)));
    assert_eq!(fast.run_until(100).map(|done| done.at), Some(10));
    assert_eq!((detailed.run_until(100), fast.run_until(100)), (None, None));
    assert_eq!((detailed.now(), fast.now()), (100, 100));
    assert!(detailed.submit(99, nothing).unwrap_err().to_string().contains("clock 99 comes too late"));
    assert_eq!(detailed.submit(99, nothing), fast.submit(99, nothing));
    for runs in [
        Runs::one(u64::MAX - 3, 2),
        Runs { start: 0, bytes: 1, pitch: u64::MAX, count: 9 },
        Runs { start: 0, bytes: u64::MAX, pitch: 0, count: u64::MAX },
    ] {
        let error = detailed.submit(100, Transfer { runs, ..nobody }).unwrap_err();
        assert!(error.to_string().contains("past the last address"), "{error}");
        assert_eq!(fast.submit(100, Transfer { runs, ..nobody }).unwrap_err(), error);
    }
}

/// What is absurdly large costs no memory and no time of its own.
#[test]
fn huge_transfers_and_parts() {
    let runs = Runs { start: 3, bytes: 70, pitch: 0, count: 1 << 50 };
    let mut memory = Detailed::new(&part("rorabgbachco")).unwrap();
    let requester = memory.add_requester(Requester::in_order(64)).unwrap();
    memory.submit(0, Transfer { requester, direction: Direction::Read, runs }).unwrap();
    assert_eq!(memory.run_until(10_000), None);
    assert!(memory.counts().total().reads > 1000);
    let wide = Part { channels: 4096, ..part("rorabgbachco") };
    let mut fast = Fast::new(&wide).unwrap();
    let requester = fast.add_requester(Requester::in_order(u32::MAX)).unwrap();
    fast.submit(0, Transfer { requester, direction: Direction::Read, runs: Runs::one(0, 1 << 36) }).unwrap();
    let done = fast.run_until(u64::MAX).unwrap();
    assert!(done.at as f64 >= (1u64 << 36) as f64 / wide.peak_bytes_per_clock(), "{}", done.at);
}
