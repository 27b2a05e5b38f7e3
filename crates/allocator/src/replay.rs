//! Replaying recorded calls through any allocator: what would have happened.

use crate::allocator::Allocator;
use crate::block::{AllocateError, Handle, Request};
use crate::statistics::Statistics;
use npumem_ir::trace::{TraceEvent, What};
use npumem_ir::{Bytes, SpaceId};
use std::collections::HashMap;

/// One call. Blocks are numbered so that a number is used again only after its block was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `slot` gets a block of so many bytes.
    Allocate {
        /// The number of the block.
        slot: u32,
        /// How many bytes.
        bytes: u64,
    },
    /// The block of `slot` is freed.
    Free {
        /// The number of the block.
        slot: u32,
    },
    /// An iteration begins.
    Mark,
}

/// Calls, and how many numbers they use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// In order.
    pub calls: Vec<Call>,
    /// One more than the largest number.
    pub slots: u32,
}

/// Why a recording cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct CallsError {
    /// The line, or the number of the event, from one.
    pub line: usize,
    /// What is wrong with it.
    pub problem: String,
}

/// Numbers blocks by their foreign ids.
#[derive(Default)]
struct Numbers {
    calls: Calls,
    live: HashMap<u64, u32>,
    spare: Vec<u32>,
}

impl Numbers {
    fn allocate(&mut self, id: u64, bytes: u64) -> Result<(), String> {
        let slot = self.spare.pop().unwrap_or(self.calls.slots);
        if self.live.insert(id, slot).is_some() {
            return Err(format!("block {id} is allocated while it is live"));
        }
        self.calls.slots = self.calls.slots.max(slot + 1);
        self.calls.calls.push(Call::Allocate { slot, bytes });
        Ok(())
    }

    fn free(&mut self, id: u64) -> Result<(), String> {
        let slot = self.live.remove(&id).ok_or_else(|| format!("block {id} is freed but not live"))?;
        self.spare.push(slot);
        self.calls.calls.push(Call::Free { slot });
        Ok(())
    }
}

impl Calls {
    /// Reads the text form: `a ID BYTES` allocates, `f ID` frees, `m` begins an iteration; `#` starts a comment.
    ///
    /// # Errors
    /// The first line that is none of these, or that does not fit what came before.
    pub fn parse(text: &str) -> Result<Self, CallsError> {
        let mut numbers = Numbers::default();
        for (index, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or("");
            let mut words = content.split_ascii_whitespace();
            let outcome = match (words.next(), words.next(), words.next(), words.next()) {
                (None, ..) => Ok(()),
                (Some("m"), None, ..) => {
                    numbers.calls.calls.push(Call::Mark);
                    Ok(())
                }
                (Some("a"), Some(id), Some(bytes), None) => match (id.parse(), bytes.parse()) {
                    (Ok(id), Ok(bytes)) => numbers.allocate(id, bytes),
                    _ => Err(format!("`{content}` does not have two numbers")),
                },
                (Some("f"), Some(id), None, _) => match id.parse() {
                    Ok(id) => numbers.free(id),
                    Err(_) => Err(format!("`{content}` does not have a number")),
                },
                _ => Err(format!("`{content}` is neither `a ID BYTES` nor `f ID` nor `m`")),
            };
            outcome.map_err(|problem| CallsError { line: index + 1, problem })?;
        }
        Ok(numbers.calls)
    }

    /// Takes the allocations and frees of one space from a trace; every mark begins an iteration.
    /// Frees of blocks that were live before the recording are skipped.
    ///
    /// # Errors
    /// When a block is allocated while it is live.
    pub fn from_events(events: impl IntoIterator<Item = TraceEvent>, space: SpaceId) -> Result<Self, CallsError> {
        let mut numbers = Numbers::default();
        for (index, event) in events.into_iter().enumerate() {
            match event.what {
                What::Allocate { block, space: found, requested, .. } if found == space => numbers
                    .allocate(block.0, requested.get())
                    .map_err(|problem| CallsError { line: index + 1, problem })?,
                What::Free { block } if numbers.live.contains_key(&block.0) => {
                    numbers.free(block.0).map_err(|problem| CallsError { line: index + 1, problem })?;
                }
                What::Mark { .. } => numbers.calls.calls.push(Call::Mark),
                _ => {}
            }
        }
        Ok(numbers.calls)
    }

    /// The most bytes that were live at once.
    #[must_use]
    pub fn peak_live(&self) -> Bytes {
        let mut sizes = vec![0; self.slots as usize];
        let (mut live, mut peak) = (0_u64, 0);
        for call in &self.calls {
            match *call {
                Call::Allocate { slot, bytes } => {
                    sizes[slot as usize] = bytes;
                    live = live.saturating_add(bytes);
                    peak = peak.max(live);
                }
                Call::Free { slot } => live -= sizes[slot as usize],
                Call::Mark => {}
            }
        }
        Bytes(peak)
    }
}

/// What a replay came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// The allocator's state at the end.
    pub statistics: Statistics,
    /// Allocations that failed; their frees are skipped.
    pub failed: u64,
    /// The first failure, with the number of its call from one.
    pub first_failure: Option<(usize, AllocateError)>,
}

/// Replays calls through an allocator; `mark` is told of each iteration.
pub fn replay<A: Allocator + ?Sized>(allocator: &mut A, calls: &Calls, mut mark: impl FnMut(&mut A)) -> Replay {
    let mut handles: Vec<Option<Handle>> = vec![None; calls.slots as usize];
    let mut failed = 0;
    let mut first_failure = None;
    for (index, call) in calls.calls.iter().enumerate() {
        match *call {
            Call::Allocate { slot, bytes } => match allocator.allocate(Request::new(bytes)) {
                Ok(block) => handles[slot as usize] = Some(block.handle),
                Err(error) => {
                    failed += 1;
                    first_failure.get_or_insert((index + 1, *error));
                }
            },
            Call::Free { slot } => {
                if let Some(handle) = handles[slot as usize].take() {
                    // The handle came from this allocator and is freed once.
                    let freed = allocator.free(handle);
                    debug_assert!(freed.is_ok(), "{freed:?}");
                }
            }
            Call::Mark => mark(allocator),
        }
    }
    Replay { statistics: allocator.statistics(), failed, first_failure }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bump, Tlsf};

    #[test]
    fn reads_the_text_form_and_says_which_line_is_wrong() {
        let calls = Calls::parse("a 7 100\nm\n\na 9 50 # a comment\nf 7\na 7 1\n").unwrap();
        assert_eq!(
            calls.calls,
            [
                Call::Allocate { slot: 0, bytes: 100 },
                Call::Mark,
                Call::Allocate { slot: 1, bytes: 50 },
                Call::Free { slot: 0 },
                Call::Allocate { slot: 0, bytes: 1 },
            ]
        );
        assert_eq!(calls.peak_live(), Bytes(150));
        for (text, line) in [("a 1 2\na 1 2", 2), ("f 1", 1), ("\n\nx", 3), ("a 1", 1), ("a 1 -5", 1), ("f 1 2", 1)] {
            assert_eq!(Calls::parse(text).unwrap_err().line, line, "{text}");
        }
    }

    #[test]
    fn failures_are_counted_and_the_replay_goes_on() {
        let calls = Calls::parse("a 1 600\na 2 600\nf 2\na 3 100\nf 1\nf 3").unwrap();
        let replayed = replay(&mut Tlsf::new(Bytes(1), Bytes(1000)), &calls, |_| {});
        assert_eq!((replayed.failed, replayed.statistics.blocks), (1, 0));
        assert_eq!(replayed.first_failure.unwrap().0, 2);
        let all = replay(&mut Bump::new(Bytes(2000)), &calls, |_| {});
        assert_eq!((all.failed, all.statistics.peak_live), (0, Bytes(1200)));
    }
}
