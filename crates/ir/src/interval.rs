//! Half-open intervals `[start, end)`, defined once.
//!
//! ```text
//!   step      3   4   5   6
//!   [3, 6)    ###########        holds 3, 4 and 5; its length is 3
//!   [6, 8)                ...    touches it and does not overlap it
//! ```

use crate::units::{Bytes, Offset, Step};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The positions from `start` up to and without `end`; empty when they are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval<T> {
    /// The first position inside.
    pub start: T,
    /// The first position after it.
    pub end: T,
}

/// When: a range of steps.
pub type StepRange = Interval<Step>;
/// Where: a range of bytes within a space or within a buffer.
pub type ByteRange = Interval<Offset>;

impl<T: Copy + Ord> Interval<T> {
    /// `[start, end)`, or `None` when it is reversed.
    #[must_use]
    pub fn new(start: T, end: T) -> Option<Self> {
        (start <= end).then_some(Interval { start, end })
    }

    /// Whether nothing lies inside.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Whether `position` lies inside.
    #[must_use]
    pub fn contains(&self, position: T) -> bool {
        self.start <= position && position < self.end
    }

    /// Whether all of `other` lies inside (an empty one always does).
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.is_empty() || (self.start <= other.start && other.end <= self.end)
    }

    /// Whether the two share a position; touching is not overlapping, and an empty one overlaps nothing.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.start.max(other.start) < self.end.min(other.end)
    }

    /// The positions in both, if any.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        self.overlaps(other).then(|| Interval { start: self.start.max(other.start), end: self.end.min(other.end) })
    }

    /// The smallest interval that covers both.
    #[must_use]
    pub fn hull(&self, other: &Self) -> Self {
        Interval { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

impl StepRange {
    /// `[start, end)` in steps.
    ///
    /// # Panics
    /// When it is reversed: for ranges that are right by construction.
    #[must_use]
    pub fn steps(start: u64, end: u64) -> Self {
        assert!(start <= end, "reversed range [{start}, {end})");
        Interval { start: Step(start), end: Step(end) }
    }

    /// How many steps lie inside.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }
}

impl ByteRange {
    /// The bytes of something `size` large at `offset`, or `None` past 64 bits.
    #[must_use]
    pub fn at(offset: Offset, size: Bytes) -> Option<Self> {
        Some(Interval { start: offset, end: offset.checked_add(size.0)? })
    }

    /// How many bytes lie inside.
    #[must_use]
    pub fn size(&self) -> Bytes {
        Bytes(self.end.0.saturating_sub(self.start.0))
    }
}

impl<T: fmt::Display> fmt::Display for Interval<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_is_not_overlapping() {
        let (a, b) = (StepRange::steps(3, 6), StepRange::steps(6, 8));
        assert!(!a.overlaps(&b) && !b.overlaps(&a));
        assert!(a.contains(Step(5)) && !a.contains(Step(6)));
        assert_eq!(a.hull(&b), StepRange::steps(3, 8));
    }

    #[test]
    fn an_empty_interval_overlaps_nothing_and_is_covered_by_all() {
        let (empty, a) = (StepRange::steps(4, 4), StepRange::steps(3, 6));
        assert!(!a.overlaps(&empty) && a.covers(&empty) && empty.is_empty());
        assert_eq!(Interval::new(Step(5), Step(4)), None);
    }

    #[test]
    fn bytes_past_64_bits_have_no_range() {
        assert_eq!(ByteRange::at(Offset(u64::MAX), Bytes(1)), None);
        assert_eq!(ByteRange::at(Offset(8), Bytes(4)).unwrap().size(), Bytes(4));
    }
}
