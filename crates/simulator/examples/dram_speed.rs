//! How many requests a second of one core the detailed DRAM model simulates: one JSON line a pattern.
//!
//! `cargo run --release -p npumem-simulator --example dram_speed [PATTERN ...]`; `cargo xtask bench dram` runs it.
#![allow(clippy::print_stdout)]

use npumem_simulator::dram::drive::Pattern;
use npumem_simulator::dram::{Detailed, Direction, Mapping, Part, Requester, Runs, Transfer, described};
use std::error::Error;
use std::time::Instant;

const PATTERNS: [(&str, Pattern); 5] = [
    ("stream", Pattern::Stream),
    ("rand:64", Pattern::Random { block: 64 }),
    ("rand:1024", Pattern::Random { block: 1024 }),
    ("stride:65536", Pattern::Stride { bytes: 65536 }),
    ("tile:128:512:8192", Pattern::Tile { rows: 128, bytes: 512, pitch: 8192 }),
];

fn main() -> Result<(), Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    for (name, pattern) in PATTERNS {
        if !wanted.is_empty() && !wanted.iter().any(|one| one == name) {
            continue;
        }
        for mapping in ["rorabgbachco", "rorabacobgch"] {
            let count = std::env::var("COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
            let part = Part { mapping: Mapping::parse(mapping)?, ..described::hbm2_8gb_x128() };
            let started = Instant::now();
            let clocks = run(&part, pattern, count)?;
            let seconds = started.elapsed().as_secs_f64();
            println!(
                "{{\"pattern\":\"{name}\",\"mapping\":\"{mapping}\",\"requests\":{count},\"clocks\":{clocks},\"seconds\":{seconds:.3},\"requests_per_second\":{:.0}}}",
                count as f64 / seconds
            );
        }
    }
    Ok(())
}

/// Serves `count` bursts of a pattern with 1,024 under way; the clocks it took.
fn run(part: &Part, pattern: Pattern, count: u64) -> Result<u64, Box<dyn Error>> {
    let mut memory = Detailed::new(part)?;
    let requester = memory.add_requester(Requester::in_order(1024))?;
    if pattern == Pattern::Stream {
        let runs = Runs::one(0, count * part.burst_bytes);
        memory.submit(0, Transfer { requester, direction: Direction::Read, runs })?;
        return Ok(memory.run_until(u64::MAX).map_or(0, |done| done.at));
    }
    let mut left = count;
    let mut runs = pattern.runs(8 << 30, 64, 1).take_while(|runs| {
        let more = left > 0;
        left = left.saturating_sub(runs.total_bytes() / 64);
        more
    });
    let mut submit = |memory: &mut Detailed| -> Result<bool, Box<dyn Error>> {
        let Some(runs) = runs.next() else { return Ok(false) };
        memory.submit(memory.now(), Transfer { requester, direction: Direction::Read, runs })?;
        Ok(true)
    };
    for _ in 0..2048 {
        submit(&mut memory)?;
    }
    let mut last = 0;
    while let Some(done) = memory.run_until(u64::MAX) {
        last = done.at;
        submit(&mut memory)?;
    }
    Ok(last)
}
