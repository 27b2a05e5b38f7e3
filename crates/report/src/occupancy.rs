//! How many bytes of a space are in use at each step, each byte counted once.
//!
//! ```text
//!   bytes
//!   8  +-----+                 rectangles may share bytes at a step (views, in-place results,
//!      |  b  +-----+           buffers that never coexist), so the live load is the measure of
//!   4  +--+--+     |           their union, not the sum of their sizes:
//!      |  a  |  c  |
//!   0  +-----+-----+           curve: [0, 8], [2, 6], [4, 0]
//!      0     2     4  step
//! ```
//! A sweep over the steps keeps a segment tree over the distinct byte positions: `O(n log n)`.

use npumem_ir::{ByteRange, Bytes, Step, StepRange};

/// Bytes that are in use for some steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rectangle {
    /// When.
    pub steps: StepRange,
    /// Where.
    pub bytes: ByteRange,
}

/// The live bytes as a step function: each entry holds from its step to the next one's; neighbours differ.
#[must_use]
pub fn live_curve(rectangles: &[Rectangle]) -> Vec<(Step, Bytes)> {
    let solid = rectangles.iter().filter(|r| !r.steps.is_empty() && !r.bytes.is_empty());
    let mut edges: Vec<u64> = solid.clone().flat_map(|r| [r.bytes.start.0, r.bytes.end.0]).collect();
    edges.sort_unstable();
    edges.dedup();
    let position = |byte: u64| edges.partition_point(|edge| *edge < byte);
    let mut events: Vec<(Step, bool, usize, usize)> = solid
        .flat_map(|r| {
            let (low, high) = (position(r.bytes.start.0), position(r.bytes.end.0));
            [(r.steps.start, true, low, high), (r.steps.end, false, low, high)]
        })
        .collect();
    events.sort_unstable();

    let mut covered = Cover::new(&edges);
    let mut curve: Vec<(Step, Bytes)> = Vec::new();
    for (index, &(step, starts, low, high)) in events.iter().enumerate() {
        covered.change(low, high, starts);
        let last_of_step = events.get(index + 1).is_none_or(|next| next.0 != step);
        if last_of_step && curve.last().is_none_or(|(_, live)| *live != covered.total()) {
            curve.push((step, covered.total()));
        }
    }
    curve
}

/// The first step of the largest load, and that load.
#[must_use]
pub fn largest(curve: &[(Step, Bytes)]) -> Option<(Step, Bytes)> {
    curve.iter().copied().reduce(|best, next| if next.1 > best.1 { next } else { best })
}

/// How many bytes of some ranges there are, each counted once.
#[must_use]
pub fn union(ranges: impl IntoIterator<Item = ByteRange>) -> Bytes {
    let mut ranges: Vec<ByteRange> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
    ranges.sort_unstable();
    let mut total = Bytes::ZERO;
    let mut reached = 0;
    for range in ranges {
        let start = range.start.0.max(reached);
        total = total.saturating_add(range.end.0.saturating_sub(start));
        reached = reached.max(range.end.0);
    }
    total
}

/// A segment tree: how often each elementary byte range is covered, and how many bytes are at all.
struct Cover {
    /// The number of leaves, a power of two.
    leaves: usize,
    /// By node (1 is the root): the covers that span all of it and not all of its parent.
    count: Vec<u32>,
    /// By node: its bytes.
    width: Vec<u64>,
    /// By node: those of its bytes that are covered within it.
    live: Vec<u64>,
}

impl Cover {
    fn new(edges: &[u64]) -> Self {
        let leaves = edges.len().saturating_sub(1).next_power_of_two();
        let mut width = vec![0; 2 * leaves];
        for (leaf, pair) in edges.windows(2).enumerate() {
            width[leaves + leaf] = pair[1] - pair[0];
        }
        for node in (1..leaves).rev() {
            width[node] = width[2 * node] + width[2 * node + 1];
        }
        Cover { leaves, count: vec![0; 2 * leaves], live: vec![0; 2 * leaves], width }
    }

    fn total(&self) -> Bytes {
        Bytes(self.live[1])
    }

    /// Covers the leaves `[low, high)` once more, or once less.
    fn change(&mut self, low: usize, high: usize, more: bool) {
        let (first, last) = (low + self.leaves, high - 1 + self.leaves);
        let (mut left, mut right) = (first, last + 1);
        while left < right {
            if left & 1 == 1 {
                self.bump(left, more);
                left += 1;
            }
            if right & 1 == 1 {
                right -= 1;
                self.bump(right, more);
            }
            left >>= 1;
            right >>= 1;
        }
        for mut node in [first, last] {
            while node > 1 {
                node >>= 1;
                self.settle(node);
            }
        }
    }

    fn bump(&mut self, node: usize, more: bool) {
        // A cover is taken away only after it was put there: an event's end follows its start.
        self.count[node] = if more { self.count[node] + 1 } else { self.count[node].saturating_sub(1) };
        self.settle(node);
    }

    fn settle(&mut self, node: usize) {
        self.live[node] = if self.count[node] > 0 {
            self.width[node]
        } else if node >= self.leaves {
            0
        } else {
            self.live[2 * node] + self.live[2 * node + 1]
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use npumem_ir::{Interval, Offset};

    fn rectangle(start: u64, end: u64, low: u64, high: u64) -> Rectangle {
        Rectangle { steps: StepRange::steps(start, end), bytes: Interval { start: Offset(low), end: Offset(high) } }
    }

    #[test]
    fn shared_bytes_count_once() {
        let curve = live_curve(&[rectangle(0, 2, 0, 4), rectangle(0, 2, 4, 8), rectangle(1, 4, 0, 6)]);
        assert_eq!(curve, [(Step(0), Bytes(8)), (Step(2), Bytes(6)), (Step(4), Bytes(0))]);
        assert_eq!(largest(&curve), Some((Step(0), Bytes(8))));
    }

    #[test]
    fn nothing_has_no_curve_and_no_peak() {
        assert!(live_curve(&[]).is_empty());
        assert!(live_curve(&[rectangle(3, 3, 0, 8), rectangle(3, 5, 8, 8)]).is_empty());
        assert_eq!(largest(&[]), None);
    }

    #[test]
    fn the_whole_of_64_bits_fits() {
        let curve = live_curve(&[rectangle(0, u64::MAX, 0, u64::MAX), rectangle(1, 2, 7, 9)]);
        assert_eq!(curve, [(Step(0), Bytes::MAX), (Step::MAX, Bytes(0))]);
    }

    /// Against counting every byte of every step, on rectangles from a fixed generator.
    #[test]
    fn agrees_with_counting_bytes() {
        let mut state = 7_u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        for _ in 0..300 {
            let rectangles: Vec<Rectangle> = (0..below(12))
                .map(|_| {
                    let (start, low) = (below(10), below(20));
                    rectangle(start, start + below(6), low, low + below(9))
                })
                .collect();
            let curve = live_curve(&rectangles);
            for step in 0..20 {
                let live = rectangles.iter().filter(|r| r.steps.contains(Step(step)));
                let naive = (0..40).filter(|byte| live.clone().any(|r| r.bytes.contains(Offset(*byte)))).count() as u64;
                let told = curve.iter().rev().find(|(from, _)| from.0 <= step).map_or(0, |(_, live)| live.0);
                assert_eq!(told, naive, "step {step} of {rectangles:?}");
                assert_eq!(union(live.map(|r| r.bytes)), Bytes(naive));
            }
        }
    }
}
