//! What each strategy's pool would reserve: a run's calls, replayed through npumem's own pool.

use npumem_allocator::replay::{Call, Calls, replay};
use npumem_allocator::{PageSource, Paged, PagedOptions};
use npumem_ir::problem::{Buffer, BufferKind};
use npumem_ir::{Bytes, Problem};

/// What a replay came to: the most that was live, and the most that was reserved for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Bytes asked for and not freed, at most.
    pub live: Bytes,
    /// Bytes of whole pages taken from the device, at most.
    pub reserved: Bytes,
}

/// Pages without a device: only their number counts.
struct Counted;

impl PageSource for Counted {
    fn map(&mut self, _first: u32, _count: u32) -> Result<(), String> {
        Ok(())
    }

    fn unmap(&mut self, _first: u32, _count: u32) {}
}

/// Replays two runs in which the buffers that `pooled` picks come from the pool: weights and constants once, the others when
/// they start to live. Buffers that lie within another one come with it. Nothing when one has no size or no memory is that large.
#[must_use]
pub fn replay_pool(problem: &Problem, pooled: impl Fn(&Buffer) -> bool) -> Option<Replayed> {
    let mut base = vec![None; problem.buffers.len()];
    for one in &problem.constraints.colocated {
        *base.get_mut(one.buffer.index())? = Some(one.base.index());
    }
    // The life of each buffer, with those of all that lie in it.
    let mut lives = vec![None; problem.buffers.len()];
    for (index, buffer) in problem.buffers.iter().enumerate() {
        let mut root = index;
        for _ in 0..base.len() {
            root = match base[root] {
                Some(next) if next != index => next,
                _ => break,
            };
        }
        if let Some(life) = buffer.lifetime() {
            let known: Option<npumem_ir::StepRange> = lives[root];
            lives[root] = Some(known.map_or(life, |known| known.hull(&life)));
        }
    }
    let mut events = Vec::new();
    let mut first = Vec::new();
    let (mut all, mut any) = (0_u64, false);
    for (index, buffer) in problem.buffers.iter().enumerate() {
        let Some(life) = lives[index].filter(|_| base[index].is_none() && pooled(buffer)) else { continue };
        any = true;
        let bytes = buffer.size.get();
        if bytes == 0 {
            continue;
        }
        all = all.checked_add(bytes.checked_next_multiple_of(2 << 20)?)?;
        let slot = index as u32;
        if matches!(buffer.kind, BufferKind::Weight | BufferKind::Constant) {
            first.push(Call::Allocate { slot, bytes });
        } else {
            events.push((life.start, 1, Call::Allocate { slot, bytes }));
            events.push((life.end, 0, Call::Free { slot }));
        }
    }
    if !any || all > 1 << 44 {
        return None;
    }
    events.sort_by_key(|(step, order, call)| (*step, *order, slot_of(call)));
    let one: Vec<Call> = events.into_iter().map(|(_, _, call)| call).collect();
    let calls: Vec<Call> = first.into_iter().chain(one.iter().copied()).chain(one.iter().copied()).collect();
    let calls = Calls { calls, slots: problem.buffers.len() as u32 };
    let addresses = Bytes(all.saturating_mul(4).max(1 << 30));
    let mut pool = Paged::new(PagedOptions { addresses, ..PagedOptions::default() }, Counted);
    let replayed = replay(&mut pool, &calls, |_| {});
    let statistics = replayed.statistics;
    (replayed.failed == 0).then_some(Replayed { live: statistics.peak_live, reserved: statistics.peak_reserved })
}

fn slot_of(call: &Call) -> u32 {
    match call {
        Call::Allocate { slot, .. } | Call::Free { slot } => *slot,
        Call::Mark => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    //! Small problems whose pages can be counted by hand.
    use super::*;
    use npumem_ir::problem::{Colocation, Space};
    use npumem_ir::{BufferId, SpaceId, StepRange};

    const MIB: u64 = 1 << 20;

    fn problem(buffers: &[(u64, u64, u64)]) -> Problem {
        let make = |(index, (mib, start, end)): (usize, &(u64, u64, u64))| {
            Buffer::new(index.to_string(), Bytes(mib * MIB), StepRange::steps(*start, *end), SpaceId(0))
        };
        let buffers = buffers.iter().enumerate().map(make).collect();
        Problem { buffers, spaces: vec![Space::unbounded("hbm")], ..Problem::default() }
    }

    #[test]
    fn a_run_reserves_whole_pages_of_what_is_live() {
        let mut two = problem(&[(4, 0, 2), (6, 1, 3), (4, 2, 4)]);
        let replayed = replay_pool(&two, |_| true);
        assert_eq!(replayed, Some(Replayed { live: Bytes(10 * MIB), reserved: Bytes(10 * MIB) }));
        // A weight is there in both runs.
        two.buffers[0].kind = BufferKind::Weight;
        assert_eq!(replay_pool(&two, |_| true).map(|one| one.live), Some(Bytes(14 * MIB)));
        assert_eq!(replay_pool(&two, |buffer| buffer.name == "1").map(|one| one.live), Some(Bytes(6 * MIB)));
        assert_eq!(replay_pool(&two, |_| false), None);
    }

    #[test]
    fn what_lies_in_another_buffer_lives_with_it() {
        let mut parts = problem(&[(8, 0, 2), (2, 3, 5), (8, 2, 4)]);
        let (buffer, base) = (BufferId(1), BufferId(0));
        parts.constraints.colocated.push(Colocation { buffer, base, delta: Bytes(0) });
        // Buffer 0 is held to the end of buffer 1, so it meets buffer 2.
        assert_eq!(replay_pool(&parts, |_| true).map(|one| one.live), Some(Bytes(16 * MIB)));
    }
}
