//! The clock of this CPU, from a chain of operations that take a cycle each.

use std::hint::black_box;
use std::time::Instant;

/// Steps of one run: about half a millisecond.
const STEPS: u64 = 200_000;
/// A shift and an exclusive or, three times, each needing the one before.
const CYCLES_A_STEP: f64 = 6.0;

/// Cycles a second: the most that any of so many short runs reached.
#[must_use]
pub fn chain_hz(runs: u32) -> f64 {
    let mut most = 0_f64;
    let mut state = black_box(0x2545_f491_4f6c_dd1d_u64);
    for _ in 0..runs.max(1) * 4 {
        let start = Instant::now();
        for _ in 0..STEPS {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        let seconds = start.elapsed().as_secs_f64();
        state = black_box(state);
        most = most.max(STEPS as f64 * CYCLES_A_STEP / seconds.max(1e-9));
    }
    most
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_the_clock_of_some_computer() {
        let hz = super::chain_hz(3);
        assert!((2e8..1e10).contains(&hz), "{hz}");
    }
}
