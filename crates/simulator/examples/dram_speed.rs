//! How many requests a second of one core the detailed DRAM model simulates: one JSON line a pattern.
//!
//! `cargo run --release -p npumem-simulator --example dram_speed COUNT [PATTERN ...]`; `cargo xtask bench dram` runs it.
#![allow(clippy::print_stdout)]

use npumem_simulator::dram::drive::Pattern;
use npumem_simulator::dram::{Detailed, Direction, Mapping, Part, Requester, Runs, Transfer, described};
use std::error::Error;

const PATTERNS: [(&str, Pattern); 5] = [
    ("stream", Pattern::Stream),
    ("rand:64", Pattern::Random { block: 64 }),
    ("rand:1024", Pattern::Random { block: 1024 }),
    ("stride:65536", Pattern::Stride { bytes: 65536 }),
    ("tile:128:512:8192", Pattern::Tile { rows: 128, bytes: 512, pitch: 8192 }),
];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = arguments.first().map_or(Ok(1_000_000), |count| count.parse())?;
    let wanted = arguments.get(1..).unwrap_or_default();
    for (name, pattern) in PATTERNS {
        if !wanted.is_empty() && !wanted.iter().any(|one| one == name) {
            continue;
        }
        for mapping in ["rorabgbachco", "rorabacobgch"] {
            let part = Part { mapping: Mapping::parse(mapping)?, ..described::hbm2_8gb_x128() };
            let started = cpu_seconds()?;
            let clocks = run(&part, pattern, count)?;
            let seconds = cpu_seconds()? - started;
            println!(
                "{{\"pattern\":\"{name}\",\"mapping\":\"{mapping}\",\"requests\":{count},\"clocks\":{clocks},\
                 \"cpu_seconds\":{seconds:.3},\"requests_per_second\":{:.0}}}",
                count as f64 / seconds.max(0.01)
            );
        }
    }
    Ok(())
}

/// User time of this process, in steps of a hundredth of a second: other load on the machine does not count.
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = text.rsplit(')').next().unwrap_or("");
    let ticks: u64 = after_name.split_whitespace().nth(11).ok_or("/proc/self/stat has no user time")?.parse()?;
    Ok(ticks as f64 / 100.0)
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
    let mut submit = |memory: &mut Detailed| -> Result<(), Box<dyn Error>> {
        if let Some(runs) = runs.next() {
            memory.submit(memory.now(), Transfer { requester, direction: Direction::Read, runs })?;
        }
        Ok(())
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
