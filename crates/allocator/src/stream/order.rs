//! Finds reuse of memory that no event orders: written from the definition of happens-before, with vector clocks.
//!
//! Each stream runs its work in order. An event that stream 1 records and stream 2 waits for orders what stream 1 did
//! before it before what stream 2 does after it. Memory that a block used may be handed to another block only if
//! every use of the first is ordered before the allocation of the second.

use super::Stream;
use npumem_ir::trace::BlockId;
use std::collections::BTreeMap;

type Clock = BTreeMap<Stream, u64>;

/// Two blocks in one place without an order between their uses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "block {} takes bytes [{start}, {end}) on stream {stream} while the work of stream {user} on block {} may still run: \
     record an event on stream {user} and wait for it on stream {stream}, or free the block after it", new.0, old.0
)]
pub struct Unordered {
    /// The block that was there.
    pub old: BlockId,
    /// Who may still use it.
    pub user: Stream,
    /// The block that comes.
    pub new: BlockId,
    /// On which stream.
    pub stream: Stream,
    /// The shared bytes.
    pub start: u64,
    /// Their end.
    pub end: u64,
}

#[derive(Clone, Debug)]
struct Used {
    end: u64,
    block: BlockId,
    /// For each stream that used it, when it last did, on that stream's own clock.
    uses: Clock,
}

/// Takes what happens on all streams, in the order of the calls; see the module.
#[derive(Clone, Debug, Default)]
pub struct OrderChecker {
    clocks: BTreeMap<Stream, Clock>,
    events: BTreeMap<u64, Clock>,
    next_event: u64,
    live: BTreeMap<BlockId, (u64, Used)>,
    /// Memory that was used, by start; disjoint.
    freed: BTreeMap<u64, Used>,
}

impl OrderChecker {
    fn tick(&mut self, stream: Stream) -> u64 {
        let clock = self.clocks.entry(stream).or_default();
        let own = clock.entry(stream).or_default();
        *own += 1;
        *own
    }

    /// Records an event on a stream.
    pub fn record(&mut self, stream: Stream) -> u64 {
        self.tick(stream);
        let clock = self.clocks.get(&stream).cloned().unwrap_or_default();
        self.next_event += 1;
        self.events.insert(self.next_event, clock);
        self.next_event
    }

    /// Makes a stream wait for an event; one that was never recorded orders nothing.
    pub fn wait(&mut self, stream: Stream, event: u64) {
        if let Some(seen) = self.events.get(&event) {
            let clock = self.clocks.entry(stream).or_default();
            for (other, count) in seen {
                let known = clock.entry(*other).or_default();
                *known = (*known).max(*count);
            }
        }
        self.tick(stream);
    }

    /// A block is handed out for work on a stream. Gives every reuse that is not ordered.
    pub fn allocate(&mut self, block: BlockId, start: u64, bytes: u64, stream: Stream) -> Vec<Unordered> {
        let own = self.tick(stream);
        let end = start.saturating_add(bytes);
        let clock = self.clocks.get(&stream).cloned().unwrap_or_default();
        let mut found = Vec::new();
        let first = self.freed.range(..=start).next_back().map_or(start, |(first, _)| *first);
        let touched: Vec<u64> = self.freed.range(first..end).map(|(first, _)| *first).collect();
        for from in touched {
            let Some(used) = self.freed.get(&from).filter(|used| used.end > start) else { continue };
            for (user, when) in &used.uses {
                if *user != stream && clock.get(user).is_none_or(|known| known < when) {
                    found.push(Unordered {
                        old: used.block,
                        user: *user,
                        new: block,
                        stream,
                        start: start.max(from),
                        end: end.min(used.end),
                    });
                }
            }
            // What the new block does not cover stays as it was.
            let used = used.clone();
            self.freed.remove(&from);
            if from < start {
                self.freed.insert(from, Used { end: start, ..used.clone() });
            }
            if used.end > end {
                self.freed.insert(end, used);
            }
        }
        self.live.insert(block, (start, Used { end, block, uses: Clock::from([(stream, own)]) }));
        found
    }

    /// A stream uses a block. One that is not live is ignored.
    pub fn use_block(&mut self, block: BlockId, stream: Stream) {
        let now = self.tick(stream);
        if let Some((_, used)) = self.live.get_mut(&block) {
            used.uses.insert(stream, now);
        }
    }

    /// A block is given back. One that is not live is ignored.
    pub fn free(&mut self, block: BlockId) {
        if let Some((start, used)) = self.live.remove(&block)
            && used.end > start
        {
            self.freed.insert(start, used);
        }
    }
}
