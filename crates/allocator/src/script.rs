//! A static plan as the sequence of calls that it was made for, verified at the start.

use npumem_ir::{Bytes, Offset, Plan, Problem, SpaceId};
use std::collections::BTreeMap;

/// One planned block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedBlock {
    /// Where it lies.
    pub offset: Offset,
    /// How large it is; requests of exactly this size are served.
    pub bytes: Bytes,
}

/// One expected call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The planned block of this number is allocated.
    Allocate(u32),
    /// The planned block of this number is freed.
    Free(u32),
}

/// Why a plan cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// A step names a block that is not there, or in the wrong order.
    #[error("step {step}: planned block {block} {problem}")]
    Step {
        /// Which step.
        step: usize,
        /// Which block.
        block: u32,
        /// What is wrong.
        problem: &'static str,
    },
    /// A block that does not lie within the plan's bytes.
    #[error("planned block {block} at {offset} with {bytes} ends past the capacity {capacity}")]
    OutOfRange {
        /// Which block.
        block: u32,
        /// Where it starts.
        offset: Offset,
        /// How large it is.
        bytes: Bytes,
        /// The bytes of the plan.
        capacity: Bytes,
    },
    /// Two blocks in one place at one time.
    #[error("step {step}: planned block {block} overlaps planned block {other}, which is live")]
    Overlap {
        /// Which step.
        step: usize,
        /// The block that comes.
        block: u32,
        /// The block that is there.
        other: u32,
    },
    /// A residency of a buffer that the problem does not have.
    #[error("the plan places buffer {0}, which the problem does not have")]
    UnknownBuffer(u32),
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    pub(crate) blocks: Vec<PlannedBlock>,
    pub(crate) steps: Vec<Step>,
    pub(crate) capacity: u64,
    /// For each block: those that share bytes with it.
    pub(crate) rivals: Vec<Vec<u32>>,
}

impl Script {
    /// Checks that each block is allocated at most once, before it is freed, inside `capacity`,
    /// and that no two live blocks share a byte.
    ///
    /// # Errors
    /// The first step that breaks one of these rules.
    pub fn new(blocks: Vec<PlannedBlock>, steps: Vec<Step>, capacity: Bytes) -> Result<Self, ScriptError> {
        for (index, block) in blocks.iter().enumerate() {
            let end = block.offset.get().checked_add(block.bytes.get());
            if end.is_none_or(|end| end > capacity.get()) || block.bytes == Bytes::ZERO {
                let (offset, bytes) = (block.offset, block.bytes);
                return Err(ScriptError::OutOfRange { block: index as u32, offset, bytes, capacity });
            }
        }
        let mut live: BTreeMap<u64, u32> = BTreeMap::new();
        let mut state = vec![0_u8; blocks.len()];
        for (step, call) in steps.iter().enumerate() {
            let (Step::Allocate(block) | Step::Free(block)) = *call;
            let fault = |problem| ScriptError::Step { step, block, problem };
            let (Some(planned), Some(state)) = (blocks.get(block as usize), state.get_mut(block as usize)) else {
                return Err(fault("does not exist"));
            };
            match (call, *state) {
                (Step::Allocate(_), 0) => {
                    let end = planned.offset.get() + planned.bytes.get();
                    let below = live.range(..end).next_back();
                    if let Some((start, other)) = below
                        && start + blocks[*other as usize].bytes.get() > planned.offset.get()
                    {
                        return Err(ScriptError::Overlap { step, block, other: *other });
                    }
                    live.insert(planned.offset.get(), block);
                    *state = 1;
                }
                (Step::Free(_), 1) => {
                    live.remove(&planned.offset.get());
                    *state = 2;
                }
                (Step::Allocate(_), _) => return Err(fault("is allocated a second time")),
                (Step::Free(_), _) => return Err(fault("is freed but not live")),
            }
        }
        let rivals = rivals_of(&blocks);
        Ok(Self { blocks, steps, capacity: capacity.get(), rivals })
    }

    /// The residencies of one space of a plan, in the order of their steps: frees before allocations, then by buffer.
    ///
    /// # Errors
    /// When the plan does not fit the problem or itself.
    pub fn from_plan(problem: &Problem, plan: &Plan, space: SpaceId) -> Result<Self, ScriptError> {
        let mut blocks = Vec::new();
        let mut calls = Vec::new();
        let mut capacity = 0;
        for residency in plan.residencies.iter().filter(|residency| residency.space == space) {
            let Some(buffer) = problem.buffers.get(residency.buffer.index()) else {
                return Err(ScriptError::UnknownBuffer(residency.buffer.0));
            };
            if buffer.size == Bytes::ZERO || residency.steps.is_empty() {
                continue;
            }
            let block = blocks.len() as u32;
            blocks.push(PlannedBlock { offset: residency.offset, bytes: buffer.size });
            capacity = capacity.max(residency.offset.get().saturating_add(buffer.size.get()));
            calls.push((residency.steps.start, true, block));
            calls.push((residency.steps.end, false, block));
        }
        calls.sort_unstable();
        let steps = calls
            .into_iter()
            .map(|(_, starts, block)| if starts { Step::Allocate(block) } else { Step::Free(block) })
            .collect();
        Self::new(blocks, steps, Bytes(capacity))
    }

    /// The bytes that the plan needs.
    #[must_use]
    pub fn capacity(&self) -> Bytes {
        Bytes(self.capacity)
    }
}

/// For each block those that share a byte with it, by a sweep over the offsets.
fn rivals_of(blocks: &[PlannedBlock]) -> Vec<Vec<u32>> {
    let mut order: Vec<u32> = (0..blocks.len() as u32).collect();
    order.sort_by_key(|block| blocks[*block as usize].offset);
    let mut rivals = vec![Vec::new(); blocks.len()];
    // Blocks that reach past the current offset, by their ends.
    let mut open: BTreeMap<(u64, u32), ()> = BTreeMap::new();
    for block in order {
        let planned = blocks[block as usize];
        while let Some(entry) = open.first_entry()
            && entry.key().0 <= planned.offset.get()
        {
            entry.remove();
        }
        for (_, other) in open.keys() {
            rivals[block as usize].push(*other);
            rivals[*other as usize].push(block);
        }
        open.insert((planned.offset.get() + planned.bytes.get(), block), ());
    }
    rivals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(offset: u64, bytes: u64) -> PlannedBlock {
        PlannedBlock { offset: Offset(offset), bytes: Bytes(bytes) }
    }

    #[test]
    fn a_sound_plan_is_taken_and_knows_its_rivals() {
        use Step::{Allocate, Free};
        let blocks = vec![block(0, 100), block(100, 50), block(50, 100)];
        let steps = vec![Allocate(0), Allocate(1), Free(0), Free(1), Allocate(2)];
        let script = Script::new(blocks, steps, Bytes(150)).unwrap();
        assert_eq!(script.rivals, [vec![2], vec![2], vec![0, 1]]);
        assert_eq!(script.capacity(), Bytes(150));
    }

    #[test]
    fn each_rule_is_checked() {
        use Step::{Allocate, Free};
        let two = vec![block(0, 100), block(99, 50)];
        let overlap = Script::new(two.clone(), vec![Allocate(0), Allocate(1)], Bytes(200)).unwrap_err();
        assert_eq!(overlap, ScriptError::Overlap { step: 1, block: 1, other: 0 });
        assert!(Script::new(two.clone(), vec![Allocate(0), Free(0), Allocate(1)], Bytes(200)).is_ok());
        for (steps, capacity) in [
            (vec![Allocate(2)], 200),
            (vec![Free(0)], 200),
            (vec![Allocate(0), Free(0), Allocate(0)], 200),
            (vec![], 148),
        ] {
            assert!(Script::new(two.clone(), steps, Bytes(capacity)).is_err());
        }
        assert!(Script::new(vec![block(0, 0)], vec![], Bytes(9)).is_err());
        assert!(Script::new(vec![block(u64::MAX, 2)], vec![], Bytes(9)).is_err());
    }
}
