//! One suite that every allocator passes: the contract of [`Allocator`], and a shadow model.
//!
//! The shadow model decodes random bytes into calls, keeps its own map of what must be live,
//! and disagrees loudly. A fuzz target only hands over the bytes; the tests run the same body.

use crate::allocator::Allocator;
use crate::block::{AllocateError, Block, Handle, HandleError, LiveBlock, Request};
use npumem_ir::{Alignment, Bytes};
use std::collections::BTreeMap;

/// What an allocator under test can do.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The most bytes that it holds when empty; `None` when nothing bounds it.
    pub capacity: Option<u64>,
    /// The largest request that it takes when empty.
    pub largest: u64,
    /// The coarsest alignment that it keeps.
    pub alignment: u64,
    /// Whether freeing everything brings all memory back, whatever came before.
    pub recovers: bool,
}

/// Numbers from bytes; zeros when they run out.
struct Source<'a> {
    bytes: &'a [u8],
}

impl Source<'_> {
    fn byte(&mut self) -> u64 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                u64::from(*first)
            }
            None => 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.byte() << 16 | self.byte() << 8 | self.byte()
    }
}

/// What must be live, as the calls so far say.
#[derive(Default)]
struct Shadow {
    /// By start: end, handle, bytes asked for.
    live: BTreeMap<u64, (u64, Handle, u64)>,
    freed: Vec<Handle>,
    bytes: u64,
    peak: u64,
    allocations: u64,
    frees: u64,
}

impl Shadow {
    fn enter(&mut self, request: Request, block: Block, capacity: Option<u64>) -> Result<(), String> {
        let start = block.offset.get();
        let end = start + request.bytes.get();
        if !start.is_multiple_of(request.alignment.get()) {
            return Err(format!("{} at {start} is not aligned to {}", block.handle, request.alignment));
        }
        if capacity.is_some_and(|capacity| end > capacity) {
            return Err(format!("{} ends at {end}, past the capacity", block.handle));
        }
        let below = self.live.range(..end).next_back();
        if let Some((other, (other_end, handle, _))) = below
            && *other_end > start
        {
            return Err(format!("{} [{start}, {end}) overlaps {handle} [{other}, {other_end})", block.handle));
        }
        if self.freed.contains(&block.handle) || self.live.values().any(|(_, handle, _)| *handle == block.handle) {
            return Err(format!("{} was handed out before", block.handle));
        }
        self.live.insert(start, (end, block.handle, request.bytes.get()));
        self.bytes += request.bytes.get();
        self.peak = self.peak.max(self.bytes);
        self.allocations += 1;
        Ok(())
    }

    fn agree(&self, allocator: &dyn Allocator) -> Result<(), String> {
        allocator.verify()?;
        let state = allocator.statistics();
        let counts = [
            ("live", self.bytes, state.live.get()),
            ("peak live", self.peak, state.peak_live.get()),
            ("blocks", self.live.len() as u64, state.blocks),
            ("allocations", self.allocations, state.allocations),
            ("frees", self.frees, state.frees),
        ];
        for (name, expected, found) in counts {
            if expected != found {
                return Err(format!("{name}: {expected} expected, the statistics say {found}"));
            }
        }
        if state.granted < state.live || state.reserved < state.granted || state.largest_free > state.free() {
            return Err(format!("the statistics contradict themselves: {state:?}"));
        }
        let mut seen = 0;
        let mut flaw = None;
        allocator.for_each_live(&mut |block| {
            seen += 1;
            let expected = self.live.get(&block.offset.get());
            if expected.is_none_or(|(_, handle, bytes)| *handle != block.handle || *bytes != block.requested.get())
                || block.granted < block.requested
            {
                flaw = Some(format!("{block:?} is not what was handed out"));
            }
        });
        if seen != self.live.len() {
            flaw = Some(format!("{} blocks are live, {seen} were visited", self.live.len()));
        }
        flaw.map_or(Ok(()), Err)
    }
}

/// Replays `bytes` as calls against an allocator and the shadow model. The allocator must be new.
///
/// # Errors
/// The first disagreement, in words.
pub fn check_calls(allocator: &mut dyn Allocator, profile: Profile, bytes: &[u8]) -> Result<(), String> {
    let mut source = Source { bytes };
    let mut shadow = Shadow::default();
    let mut calls = 0_u32;
    while !source.bytes.is_empty() && calls < 20_000 {
        calls += 1;
        match source.byte() % 16 {
            0..=7 => allocate(allocator, profile, &mut source, &mut shadow)?,
            8..=13 => free(allocator, &mut source, &mut shadow)?,
            14 => misuse(allocator, &mut source, &shadow)?,
            _ => {
                let reserved = allocator.statistics().reserved;
                let given = allocator.trim(Bytes(source.number() << 8));
                if allocator.statistics().reserved.get() + given.get() != reserved.get() {
                    return Err(format!("trim says {given} went, the books say otherwise"));
                }
            }
        }
        if calls.is_power_of_two() || calls.is_multiple_of(64) {
            shadow.agree(allocator).map_err(|flaw| format!("after call {calls}: {flaw}"))?;
        }
    }
    let handles: Vec<Handle> = shadow.live.values().map(|(_, handle, _)| *handle).collect();
    for handle in handles {
        allocator.free(handle).map_err(|error| format!("at the end: {error}"))?;
    }
    allocator.verify()?;
    if profile.recovers {
        allocator.trim(Bytes::ZERO);
        allocator.verify()?;
        let whole = Request::new(profile.largest);
        let block = allocator.allocate(whole).map_err(|error| format!("after everything was freed: {error}"))?;
        allocator.free(block.handle).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn allocate(
    allocator: &mut dyn Allocator,
    profile: Profile,
    source: &mut Source<'_>,
    shadow: &mut Shadow,
) -> Result<(), String> {
    let kind = source.byte();
    let number = source.number();
    // Sizes of all magnitudes, some repeated, some just around powers of two.
    let bytes = match kind % 8 {
        0 => 512 * (1 + number % 4),
        1 => number % 100 + 1,
        2 => (1 << (number % 24)) + (number >> 20) % 3,
        3 => profile.largest / (1 + number % 64),
        4 => profile.largest / (1 + number % 4) - number % 2,
        _ => (number % (profile.largest >> (number % 12)).max(1)) + 1,
    }
    .clamp(1, profile.largest);
    let alignment = if kind >= 200 { (1 << (number % 24)).min(profile.alignment) } else { 1 };
    let request = Request::new(bytes).aligned(Alignment::new(alignment).unwrap_or_default());
    let before = allocator.statistics();
    match allocator.allocate(request) {
        Ok(block) => {
            let found = allocator.block(block.handle).map_err(|error| error.to_string())?;
            if found.offset != block.offset || found.requested != request.bytes {
                return Err(format!("{request:?} gave {block:?}, which the allocator knows as {found:?}"));
            }
            shadow.enter(request, block, profile.capacity)
        }
        Err(error) => {
            let after = allocator.statistics();
            if (after.live, after.granted, after.blocks, after.failures)
                != (before.live, before.granted, before.blocks, before.failures + 1)
            {
                return Err(format!("the refusal `{error}` changed the books"));
            }
            match *error {
                AllocateError::OutOfMemory(shortage) if shortage.requested == request.bytes => Ok(()),
                AllocateError::Device { .. } => Ok(()),
                other => Err(format!("{request:?} was refused with `{other}`")),
            }
        }
    }
}

fn free(allocator: &mut dyn Allocator, source: &mut Source<'_>, shadow: &mut Shadow) -> Result<(), String> {
    let kind = source.byte();
    if shadow.live.is_empty() {
        return Ok(());
    }
    let position = source.number() as usize % shadow.live.len();
    // The newest offsets as often as any: stacks are the usual case.
    let start = match kind % 3 {
        0 => shadow.live.keys().next_back().copied(),
        _ => shadow.live.keys().nth(position).copied(),
    };
    let Some((start, (_, handle, bytes))) = start.and_then(|start| shadow.live.remove_entry(&start)) else {
        return Ok(());
    };
    let returned = allocator.free(handle).map_err(|error| format!("free of the block at {start}: {error}"))?;
    if returned != Bytes(bytes) {
        return Err(format!("{handle} held {bytes} bytes, free says {returned}"));
    }
    shadow.bytes -= bytes;
    shadow.frees += 1;
    shadow.freed.push(handle);
    if shadow.freed.len() > 64 {
        shadow.freed.remove(0);
    }
    Ok(())
}

fn misuse(allocator: &mut dyn Allocator, source: &mut Source<'_>, shadow: &Shadow) -> Result<(), String> {
    let number = source.number();
    let before = allocator.statistics();
    let handle = if number.is_multiple_of(2) && !shadow.freed.is_empty() {
        shadow.freed[number as usize / 2 % shadow.freed.len()]
    } else {
        let bits = number << 40 | number << 8 | source.byte();
        match Handle::from_bits(bits) {
            Some(handle) if !shadow.live.values().any(|(_, live, _)| *live == handle) => handle,
            _ => return Ok(()),
        }
    };
    if allocator.block(handle).is_ok() || allocator.free(handle).is_ok() {
        return Err(format!("{handle}, stale or made up, was accepted"));
    }
    let after = allocator.statistics();
    if (before.live, before.granted, before.blocks) == (after.live, after.granted, after.blocks) {
        Ok(())
    } else {
        Err(format!("the refused {handle} changed the books"))
    }
}

/// Checks the plain rules one by one on new allocators.
///
/// # Errors
/// The first rule that is broken, in words.
pub fn check_contract(make: &mut dyn FnMut() -> Box<dyn Allocator>, profile: Profile) -> Result<(), String> {
    bad_requests(make().as_mut(), profile)?;
    handles(make().as_mut())?;
    alignments(make().as_mut(), profile)?;
    refusals(make().as_mut(), profile)?;
    if profile.capacity.is_some() {
        exhaustion(make().as_mut(), profile)?;
    }
    Ok(())
}

fn bad_requests(allocator: &mut dyn Allocator, profile: Profile) -> Result<(), String> {
    match allocator.allocate(Request::new(0)).map_err(|error| *error) {
        Err(AllocateError::ZeroSize) => {}
        other => return Err(format!("zero bytes gave {other:?}")),
    }
    for bytes in [profile.largest + 1, u64::MAX / 2, u64::MAX] {
        match allocator.allocate(Request::new(bytes)).map_err(|error| *error) {
            Err(AllocateError::TooLarge { requested, limit }) if requested == Bytes(bytes) && limit < requested => {}
            Err(AllocateError::OutOfMemory(shortage)) if shortage.requested == Bytes(bytes) => {}
            other => return Err(format!("{bytes} bytes gave {other:?}")),
        }
    }
    for alignment in [3, 24, 1000, (1 << 63) + 1] {
        let request = Request::new(1).aligned(Alignment::new(alignment).unwrap_or_default());
        match allocator.allocate(request).map_err(|error| *error) {
            Err(AllocateError::BadAlignment { alignment: found, .. }) if found.get() == alignment => {}
            other => return Err(format!("alignment {alignment} gave {other:?}")),
        }
    }
    let state = allocator.statistics();
    if state.live == Bytes::ZERO && state.blocks == 0 && state.failures == 8 {
        allocator.verify()
    } else {
        Err(format!("eight refusals left {state:?}"))
    }
}

fn handles(allocator: &mut dyn Allocator) -> Result<(), String> {
    let first = allocator.allocate(Request::new(100)).map_err(|error| error.to_string())?;
    let returned = allocator.free(first.handle).map_err(|error| error.to_string())?;
    if returned != Bytes(100) {
        return Err(format!("100 bytes were asked for, free says {returned}"));
    }
    match allocator.free(first.handle) {
        Err(HandleError::Stale { handle, .. }) if handle == first.handle => {}
        other => return Err(format!("a double free gave {other:?}")),
    }
    // The same entry again: the old handle must not name the new block.
    let second = allocator.allocate(Request::new(100)).map_err(|error| error.to_string())?;
    if second.handle == first.handle {
        return Err(format!("{} was handed out twice", second.handle));
    }
    match allocator.block(first.handle) {
        Err(HandleError::Stale { .. }) => {}
        other => return Err(format!("a stale handle gave {other:?}")),
    }
    let foreign = Handle { index: u32::MAX - 1, ..second.handle };
    match allocator.free(foreign) {
        Err(HandleError::Foreign { .. }) => {}
        other => return Err(format!("a foreign handle gave {other:?}")),
    }
    allocator.free(second.handle).map_err(|error| error.to_string())?;
    allocator.verify()
}

/// After each of forty blocks every bad request and handle, and one block too large for what is left: nothing may be lost.
fn refusals(allocator: &mut dyn Allocator, profile: Profile) -> Result<(), String> {
    let mut blocks = Vec::new();
    let mut stale = None;
    for number in 1..=40_u64 {
        let bytes = number * 7919 % (profile.largest / 64).max(1) + 1;
        let block = allocator.allocate(Request::new(bytes)).map_err(|error| format!("block {number}: {error}"))?;
        blocks.push(block.handle);
        if number % 3 == 0 {
            let handle = blocks.swap_remove(0);
            allocator.free(handle).map_err(|error| error.to_string())?;
            stale = Some(handle);
        }
        let before = books(allocator);
        let odd = Request::new(1).aligned(Alignment::new(3).unwrap_or_default());
        for request in [Request::new(0), Request::new(profile.largest + 1), Request::new(u64::MAX), odd] {
            if allocator.allocate(request).is_ok() {
                return Err(format!("{request:?} was accepted after {number} blocks"));
            }
        }
        let made_up = Handle { index: u32::MAX - 1, ..block.handle };
        for handle in [stale, Some(made_up)].into_iter().flatten() {
            if allocator.free(handle).is_ok() || allocator.block(handle).is_ok() {
                return Err(format!("{handle} was accepted after {number} blocks"));
            }
        }
        // Where something is live, the largest block does not fit; only a slab has room for another of them.
        let mut given = 0;
        if let Ok(block) = allocator.allocate(Request::new(profile.largest)) {
            allocator.free(block.handle).map_err(|error| error.to_string())?;
            given = 1;
        }
        allocator.verify().map_err(|flaw| format!("after the refusals at block {number}: {flaw}"))?;
        let after = books(allocator);
        if (after.0, after.1 - given, after.2 - given, &after.3) != (before.0, before.1, before.2, &before.3) {
            return Err(format!("the refusals at block {number} changed {before:?} into {after:?}"));
        }
    }
    for handle in blocks {
        allocator.free(handle).map_err(|error| error.to_string())?;
    }
    allocator.verify()
}

/// What no refusal may change: live bytes, allocations, frees, and every live block.
fn books(allocator: &dyn Allocator) -> (Bytes, u64, u64, Vec<LiveBlock>) {
    let state = allocator.statistics();
    let mut blocks = Vec::new();
    allocator.for_each_live(&mut |block| blocks.push(block));
    blocks.sort_by_key(|block| block.offset);
    (state.live, state.allocations, state.frees, blocks)
}

fn alignments(allocator: &mut dyn Allocator, profile: Profile) -> Result<(), String> {
    let mut alignment = 1;
    while alignment <= profile.alignment {
        let odd = allocator.allocate(Request::new(1)).map_err(|error| error.to_string())?;
        let request = Request::new(3).aligned(Alignment::new(alignment).unwrap_or_default());
        let block = allocator.allocate(request).map_err(|error| format!("alignment {alignment}: {error}"))?;
        if !block.offset.get().is_multiple_of(alignment) {
            return Err(format!("alignment {alignment}: offset {}", block.offset));
        }
        allocator.free(block.handle).map_err(|error| error.to_string())?;
        allocator.free(odd.handle).map_err(|error| error.to_string())?;
        alignment *= 2;
    }
    allocator.verify()
}

fn exhaustion(allocator: &mut dyn Allocator, profile: Profile) -> Result<(), String> {
    let mut first_count = None;
    for round in 0..3 {
        let mut blocks = Vec::new();
        let error = loop {
            match allocator.allocate(Request::new((profile.largest / 40).max(1))) {
                Ok(block) => blocks.push(block.handle),
                Err(error) => break error,
            }
            if blocks.len() > 1_000_000 {
                return Err("a million blocks did not fill it".to_owned());
            }
        };
        if !matches!(*error, AllocateError::OutOfMemory(_)) {
            return Err(format!("a full allocator says `{error}`"));
        }
        if *first_count.get_or_insert(blocks.len()) != blocks.len() {
            return Err(format!("round {round} held {} blocks, the first {first_count:?}", blocks.len()));
        }
        // Odd ones first, so that merging has work to do.
        let (even, odd): (Vec<_>, Vec<_>) = blocks.iter().enumerate().partition(|(index, _)| index % 2 == 0);
        for (_, handle) in odd.into_iter().chain(even) {
            allocator.free(*handle).map_err(|error| error.to_string())?;
        }
        allocator.verify()?;
    }
    Ok(())
}

/// Random bytes from a seed (SplitMix64): the same on every machine.
#[must_use]
pub fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(word ^ word >> 31).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
