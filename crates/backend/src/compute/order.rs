//! Which operations of the other queue an operation must wait for.

use super::Touch;
use std::collections::VecDeque;

/// An operation under way.
pub(crate) struct Pending<E> {
    pub(crate) number: u64,
    pub(crate) event: E,
    pub(crate) touches: Vec<Touch>,
}

/// The operations of one queue that were not seen to be done, the oldest first.
pub(crate) struct Queue<E> {
    pub(crate) pending: VecDeque<Pending<E>>,
    /// Operations started so far.
    pub(crate) started: u64,
}

impl<E> Queue<E> {
    pub(crate) fn new() -> Self {
        Self { pending: VecDeque::new(), started: 0 }
    }

    /// The latest operation that touches bytes which `touches` change, or changes bytes which they touch.
    pub(crate) fn conflict(&self, touches: &[Touch]) -> Option<&Pending<E>> {
        self.pending.iter().rev().find(|earlier| {
            let clash = |touch: &Touch| {
                earlier.touches.iter().any(|other| (touch.write || other.write) && overlap(touch, other))
            };
            touches.iter().any(clash)
        })
    }

    pub(crate) fn push(&mut self, event: E, touches: Vec<Touch>) -> u64 {
        self.started += 1;
        self.pending.push_back(Pending { number: self.started, event, touches });
        self.started
    }
}

/// Whether two ranges share a byte.
pub(crate) fn overlap(first: &Touch, second: &Touch) -> bool {
    first.place.region == second.place.region
        && first.place.offset < second.place.offset.saturating_add(second.bytes)
        && second.place.offset < first.place.offset.saturating_add(first.bytes)
}
