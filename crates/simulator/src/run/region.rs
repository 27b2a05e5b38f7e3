//! The bytes of one access: equal runs at regular distances.
//!
//! ```text
//!   start            + stride           + 2 * stride
//!   |<-- run -->|    |<-- run -->|      |<-- run -->|       one dimension of three
//! ```

/// The most dimensions that are told apart; an access with more is taken as its whole span.
pub const MAX_DIMS: usize = 6;

/// Runs that are looked at one by one before the whole span is taken instead.
const MAX_RUNS: u64 = 4096;

/// Runs of bytes at `start + sum(index * stride)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first byte.
    pub start: u64,
    /// Bytes of one run.
    pub run: u64,
    /// Count and stride of each dimension, smallest stride first; no two neighbours make one run.
    dims: [(u64, u64); MAX_DIMS],
    rank: u8,
}

impl Region {
    /// One run.
    #[must_use]
    pub fn flat(start: u64, run: u64) -> Self {
        Region { start, run, dims: [(1, 0); MAX_DIMS], rank: 0 }
    }

    /// Elements of `element` bytes at `start + sum(index * stride)`; `None` when bytes would lie below 0 or past
    /// 63 bits. Counts of 0 make an empty region.
    #[must_use]
    pub fn new(start: i64, element: u64, extents: &[(u64, i64)]) -> Option<Self> {
        let mut first = i128::from(start);
        let mut last = i128::from(start);
        let mut dims: [(u64, u64); MAX_DIMS] = [(1, 0); MAX_DIMS];
        let mut rank = 0;
        for &(count, stride) in extents {
            if count == 0 {
                return Some(Region::flat(u64::try_from(start).unwrap_or(0), 0));
            }
            let reach = i128::from(count - 1) * i128::from(stride);
            if reach < 0 {
                first += reach;
            } else {
                last += reach;
            }
            if count > 1 && stride != 0 {
                if rank == MAX_DIMS {
                    // Too many to tell apart: one run over everything, below.
                    rank += 1;
                    break;
                }
                dims[rank] = (count, stride.unsigned_abs());
                rank += 1;
            }
        }
        let end = last + i128::from(element);
        let (start, end) = (u64::try_from(first).ok()?, u64::try_from(end).ok()?);
        if i64::try_from(end).is_err() {
            return None;
        }
        if rank > MAX_DIMS {
            return Some(Region::flat(start, end - start));
        }
        dims[..rank].sort_unstable_by_key(|&(count, stride)| (stride, count));
        let mut merged = Region::flat(start, element);
        for &(count, stride) in &dims[..rank] {
            merged.widen(count, stride);
        }
        Some(merged)
    }

    /// Repeats what is there `count` times, `stride` bytes apart.
    fn widen(&mut self, count: u64, stride: u64) {
        let reach = (count - 1) * stride;
        if self.rank == 0 && stride <= self.run {
            self.run += reach;
            return;
        }
        let rank = usize::from(self.rank);
        if rank > 0 {
            let (inner, by) = self.dims[rank - 1];
            if inner.checked_mul(by) == Some(stride) {
                self.dims[rank - 1].0 = inner * count;
                return;
            }
        }
        self.dims[rank] = (count, stride);
        self.rank += 1;
    }

    /// Count and stride of each dimension outside of the runs, smallest stride first.
    #[must_use]
    pub fn dims(&self) -> &[(u64, u64)] {
        &self.dims[..usize::from(self.rank)]
    }

    /// How many runs there are.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.dims().iter().fold(1, |runs, (count, _)| runs.saturating_mul(*count))
    }

    /// Bytes of all runs together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.runs().saturating_mul(self.run)
    }

    /// The byte past the last.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.dims().iter().fold(self.start + self.run, |end, (count, stride)| end.saturating_add((count - 1) * stride))
    }

    /// Calls `each` with the first byte of every run, ascending in the inner dimension first; at most `most` times.
    pub fn each_run(&self, most: u64, mut each: impl FnMut(u64)) {
        let dims = self.dims();
        let mut index = [0_u64; MAX_DIMS];
        let mut at = self.start;
        for _ in 0..self.runs().min(most) {
            each(at);
            for (place, (count, stride)) in index.iter_mut().zip(dims) {
                *place += 1;
                at += stride;
                if *place < *count {
                    break;
                }
                at -= count * stride;
                *place = 0;
            }
        }
    }

    /// The first byte of the run of that number, counted as by [`Region::each_run`].
    #[must_use]
    pub fn start_of(&self, mut run: u64) -> u64 {
        let mut at = self.start;
        for (count, stride) in self.dims() {
            at += run % count * stride;
            run /= count;
        }
        at
    }

    /// Whether the two share a byte. Exact, save where both have thousands of runs of unlike strides: then `true`
    /// when their spans meet.
    #[must_use]
    pub fn overlaps(&self, other: &Region) -> bool {
        if self.run == 0 || other.run == 0 || self.start >= other.end() || other.start >= self.end() {
            return false;
        }
        match (self.dims(), other.dims()) {
            ([], []) => true,
            ([], _) => other.meets(self.start, self.end()),
            (_, []) => self.meets(other.start, other.end()),
            ([(rows, stride)], [(other_rows, other_stride)]) if stride == other_stride => {
                let (row, column) = (self.start / stride, self.start % stride);
                let (other_row, other_column) = (other.start / stride, other.start % stride);
                if column + self.run <= *stride && other_column + other.run <= *stride {
                    row < other_row + other_rows
                        && other_row < row + rows
                        && column < other_column + other.run
                        && other_column < column + self.run
                } else {
                    self.overlaps_by_runs(other)
                }
            }
            _ => self.overlaps_by_runs(other),
        }
    }

    fn overlaps_by_runs(&self, other: &Region) -> bool {
        let (few, many) = if self.runs() <= other.runs() { (self, other) } else { (other, self) };
        if few.runs() > MAX_RUNS {
            return true;
        }
        let mut found = false;
        few.each_run(MAX_RUNS, |start| found = found || many.meets(start, start + few.run));
        found
    }

    /// Whether a run meets `[low, high)`.
    #[must_use]
    pub fn meets(&self, low: u64, high: u64) -> bool {
        self.level_meets(usize::from(self.rank), i128::from(self.start), i128::from(low), i128::from(high))
    }

    /// The same for the dimensions below `level` only. At most two calls a level, so at most 2^6 in all.
    fn level_meets(&self, level: usize, start: i128, low: i128, high: i128) -> bool {
        if level == 0 {
            return start < high && low < start + i128::from(self.run);
        }
        let (count, stride) = (i128::from(self.dims[level - 1].0), i128::from(self.dims[level - 1].1));
        let inner = self.dims[..level - 1]
            .iter()
            .fold(i128::from(self.run), |reach, (count, stride)| reach + i128::from((count - 1) * stride));
        // Copies `first..=last` of what is inside have a span that meets the range.
        let first = (low - inner - start).div_euclid(stride) + 1;
        let last = (high - 1 - start).div_euclid(stride);
        let (first, last) = (first.max(0), last.min(count - 1));
        if first > last {
            return false;
        }
        // A copy that is neither the first nor the last lies in the range with its whole span.
        let whole = |at: i128| low <= start + at * stride && start + at * stride + inner <= high;
        if whole(first) || whole(last) || (last - first >= 2 && whole(first + 1)) {
            return true;
        }
        // Spans of copies may interleave (a stride below the span): then all of them are looked at, few as they are.
        if last - first >= 2 {
            return (first..=last.min(first + i128::from(MAX_RUNS)))
                .any(|at| self.level_meets(level - 1, start + at * stride, low, high));
        }
        self.level_meets(level - 1, start + first * stride, low, high)
            || (last > first && self.level_meets(level - 1, start + last * stride, low, high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn bytes(region: &Region) -> BTreeSet<u64> {
        let mut all = BTreeSet::new();
        region.each_run(u64::MAX, |start| all.extend(start..start + region.run));
        all
    }

    #[test]
    fn rows_that_touch_are_one_run() {
        let tile = Region::new(64, 2, &[(16, 32), (16, 2)]).unwrap();
        assert_eq!((tile.start, tile.run, tile.runs()), (64, 512, 1));
        let part = Region::new(0, 2, &[(4, 128), (16, 2)]).unwrap();
        assert_eq!((part.run, part.dims()), (32, &[(4, 128)][..]));
        assert_eq!(part.end(), 3 * 128 + 32);
        let backwards = Region::new(100, 4, &[(5, -20)]).unwrap();
        assert_eq!((backwards.start, backwards.end()), (20, 104));
        assert_eq!(Region::new(0, 4, &[(5, -20)]), None, "below the first byte");
        assert_eq!(Region::new(0, 4, &[(0, 20)]).unwrap().bytes(), 0);
        assert_eq!(Region::new(i64::MAX, 4, &[]), None);
    }

    #[test]
    fn overlap_is_the_same_as_with_sets_of_bytes() {
        let mut random = npumem_testing::Random(7);
        let mut met = [0_u32; 2];
        for _ in 0..4000 {
            let mut make = || {
                let rank = random.below(4) as usize;
                let extents: Vec<(u64, i64)> =
                    (0..rank).map(|_| (1 + random.below(5), random.below(40) as i64 - 8)).collect();
                Region::new(200 + random.below(120) as i64, 1 + random.below(9), &extents)
            };
            let (Some(a), Some(b)) = (make(), make()) else { continue };
            let (left, right) = (bytes(&a), bytes(&b));
            let expected = left.intersection(&right).next().is_some();
            assert_eq!(a.overlaps(&b), expected, "{a:?} {b:?}");
            assert_eq!(b.overlaps(&a), expected);
            assert_eq!((left.first().copied(), left.last().copied()), (Some(a.start), Some(a.end() - 1)));
            met[usize::from(expected)] += 1;
        }
        assert!(met[0] > 300 && met[1] > 300, "both answers are tested: {met:?}");
    }
}
