//! Levels of made-up curves, the chain's table, and this machine's own hierarchy.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::Host;

fn curve(levels: &[(u64, f64)]) -> Vec<Point> {
    working_sets(256 << 20, 4)
        .into_iter()
        .map(|bytes| {
            // Past its end a level fades into the next within an octave.
            let mut ns = levels[0].1;
            for pair in levels.windows(2) {
                let over = (bytes as f64 / pair[0].0 as f64).log2().clamp(0.0, 1.0);
                ns += over * (pair[1].1 - pair[0].1);
            }
            Point { bytes: Bytes(bytes), ns }
        })
        .collect()
}

#[test]
fn the_levels_of_a_curve_are_found() {
    let found = find_levels(&curve(&[(32 << 10, 1.2), (512 << 10, 4.0), (32 << 20, 14.0), (1 << 40, 95.0)]));
    assert_eq!(found.len(), 4, "{found:?}");
    for ((bytes, ns), (wanted, time)) in found.iter().zip([(32 << 10, 1.2), (512 << 10, 4.0), (32 << 20, 14.0)]) {
        assert!((wanted..wanted * 7 / 4).contains(&bytes.get()), "{bytes} for {wanted}");
        assert!((ns / time - 1.0).abs() < 0.3, "{ns} for {time}");
    }
    assert!(found[3].1 > 80.0, "{found:?}");
    // A flat curve is one level, a noisy point none.
    let mut flat = curve(&[(1 << 40, 2.0)]);
    flat[17].ns = 40.0;
    assert_eq!(find_levels(&flat), [(Bytes(256 << 20), 2.0)]);
    assert!(find_levels(&[]).is_empty());
}

#[test]
fn the_chain_visits_every_line_once() {
    for bytes in [64, 128, 4096, 64 * 1000] {
        let table = cycle(bytes);
        let (mut at, mut seen) = (0, 0);
        loop {
            at = u32::from_le_bytes(table[at as usize * 4..][..4].try_into().unwrap());
            assert!(at.is_multiple_of(16) && u64::from(at) * 4 < bytes);
            seen += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(seen, bytes / 64);
    }
}

#[test]
fn this_machine_has_steps_and_a_stop_is_heard() {
    let options = ProbeOptions { loads: 1 << 13, runs: 2, ..ProbeOptions::quick(Bytes(4 << 20), 2) };
    let mut host = Host::with_two_spaces(memory(&options), Bytes(4096)).unwrap();
    let measured = probe(&mut host, &options, &AtomicBool::new(false)).unwrap();
    assert!(!measured.levels.is_empty() && measured.levels.len() <= 5, "{measured:?}");
    for level in &measured.levels {
        assert!(level.latency_ns > 0.2 && level.latency_ns < 2000.0, "{level:?}");
        // A stream reads more useful bytes than one word of every fourth line.
        assert!(level.stream > level.strided / 2.0 && level.stream_all >= level.stream, "{level:?}");
    }
    assert!(measured.levels.windows(2).all(|pair| pair[0].latency_ns < pair[1].latency_ns));
    assert!(!measured.tiles.differs && measured.product_rate > 1e8, "{measured:?}");
    assert_eq!(host.committed_all(), 0);
    let stopped = probe(&mut host, &options, &AtomicBool::new(true));
    assert!(matches!(stopped, Err(ProbeError::Interrupted)), "{stopped:?}");
    let small = ProbeOptions { largest: Bytes(1000), ..options };
    assert!(matches!(probe(&mut host, &small, &AtomicBool::new(false)), Err(ProbeError::TooSmall(_))));
}

impl Host {
    fn committed_all(&self) -> u64 {
        use crate::Backend;
        (0..self.spaces().len()).map(|space| self.committed(SpaceId::new(space)).get()).sum()
    }
}
