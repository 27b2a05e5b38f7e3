//! Device memory behind a small safe API: buffers own their bytes and give them back when they are dropped.
//!
//! The two ways that a program can use it, as in every course on the subject. All memory once, at the start:
//!
//! ```
//! use npumem_backend::{Host, Memory, MemoryOptions};
//! use npumem_ir::{Bytes, SpaceId};
//!
//! let (hbm, sram) = (SpaceId(0), SpaceId(1));
//! let host = Host::with_two_spaces(Bytes(64 << 20), Bytes(256 << 10))?;
//! let memory = Memory::new(host, MemoryOptions::default())?;
//! let weights = memory.allocate(hbm, Bytes(1 << 20))?;
//! let mut tile = memory.allocate(sram, Bytes(64 << 10))?;
//! for call in 0..10_u64 {
//!     // The same two buffers serve every call.
//!     tile.copy_from(0, &weights, (call * (64 << 10)) % (1 << 20), Bytes(64 << 10))?;
//! }
//! # Ok::<(), npumem_backend::MemoryError>(())
//! ```
//!
//! Or by the size of each input: who allocates, frees, and at once when done (the end of the scope does it).
//!
//! ```
//! # use npumem_backend::{Host, Memory, MemoryOptions};
//! # use npumem_ir::{Bytes, SpaceId};
//! # let hbm = SpaceId(0);
//! # let host = Host::with_two_spaces(Bytes(64 << 20), Bytes(256 << 10))?;
//! # let memory = Memory::new(host, MemoryOptions::default())?;
//! for input in [vec![1_u8; 1000], vec![2; 70_000], vec![3; 5]] {
//!     let mut device = memory.allocate(hbm, Bytes(input.len() as u64))?;
//!     device.write(0, &input)?;
//! }
//! assert!(memory.leaks().is_empty());
//! # Ok::<(), npumem_backend::MemoryError>(())
//! ```

use crate::backend::{Backend, BackendError, Place, RegionId};
use npumem_allocator::{
    AllocateError, Allocator, Handle, HandleError, Hybrid, PageSource, Paged, PagedOptions, Request, Script,
    Statistics, Tlsf,
};
use npumem_ir::trace::{BlockId, StreamId, What};
use npumem_ir::{Alignment, Bytes, Offset, SpaceId, TraceEvent, TraceHeader, TraceSink, TraceWriter};
use std::collections::BTreeMap;
use std::io::Write;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

mod buffer;
mod stack;
mod tracking;

pub use buffer::{Buffer, Scope};
pub use tracking::{Damage, Growth, LateFree, Leak};
use tracking::{Record, Tracking};

/// Spaces below this size are committed whole at the start and managed without pages.
const WHOLE: u64 = 64 << 20;
const PAGE: u64 = npumem_allocator::paged::PAGE;

/// How a [`Memory`] behaves.
#[derive(Clone, Debug, Default)]
pub struct MemoryOptions {
    /// Bytes behind each block that are watched: a write past the end is found when the block is freed.
    pub guard: Bytes,
    /// What fresh and freed bytes are filled with, so that a use of either shows.
    pub fill: Option<(u8, u8)>,
    /// Whether each allocation is known by its whole stack, and not only by its caller and the open scopes. Looking a stack up
    /// costs tens of microseconds a call: for the hunt after a leak whose caller says too little.
    pub stacks: bool,
    /// Static plans by space: what comes as planned is served from them.
    pub plans: BTreeMap<SpaceId, Script>,
}

/// Why a call failed. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The allocation failed, with who holds most.
    #[error("space `{space}`: {error}{holders}")]
    Allocate {
        /// The space.
        space: String,
        /// Why.
        error: Box<AllocateError>,
        /// The largest holders in words; empty when nobody holds anything.
        holders: String,
    },
    /// A handle that is stale or foreign.
    #[error(transparent)]
    Handle(#[from] HandleError),
    /// The backend refused.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// Bytes past the end of a buffer.
    #[error("bytes [{start}, {end}) lie past the end of a buffer of {size}")]
    OutOfBounds {
        /// From.
        start: u64,
        /// To.
        end: u64,
        /// The buffer's size.
        size: Bytes,
    },
    /// A space that the backend does not have.
    #[error("there is no memory space {0}")]
    NoSpace(u32),
    /// The trace cannot be written.
    #[error("the trace cannot be written: {0}")]
    Trace(#[from] std::io::Error),
}

type SharedBackend = Arc<Mutex<Box<dyn Backend>>>;

/// Maps the pages of a pool: they start at `first` pages of the region.
struct Pages {
    backend: SharedBackend,
    region: RegionId,
    first: u64,
}

impl Pages {
    fn place(&self, page: u32) -> Place {
        Place { region: self.region, offset: (self.first + u64::from(page)) * PAGE }
    }
}

impl PageSource for Pages {
    fn map(&mut self, first: u32, count: u32) -> Result<(), String> {
        let place = self.place(first);
        lock(&self.backend).commit(place, Bytes(u64::from(count) * PAGE)).map_err(|error| error.to_string())
    }

    fn unmap(&mut self, first: u32, count: u32) {
        let place = self.place(first);
        // The pages were committed by `map`; giving them back cannot be refused.
        let _ = lock(&self.backend).decommit(place, Bytes(u64::from(count) * PAGE));
    }
}

enum Pool {
    Paged(Box<Hybrid<Paged<Pages>>>),
    Whole(Box<Hybrid<Tlsf>>),
}

impl Pool {
    fn allocator(&mut self) -> &mut dyn Allocator {
        match self {
            Self::Paged(pool) => pool.as_mut(),
            Self::Whole(pool) => pool.as_mut(),
        }
    }

    fn statistics(&self) -> Statistics {
        match self {
            Self::Paged(pool) => pool.statistics(),
            Self::Whole(pool) => pool.statistics(),
        }
    }

    fn begin_iteration(&mut self) {
        match self {
            Self::Paged(pool) => pool.begin_iteration(),
            Self::Whole(pool) => pool.begin_iteration(),
        }
    }
}

struct Space {
    name: String,
    capacity: u64,
    region: RegionId,
    pool: Pool,
}

struct State {
    backend: SharedBackend,
    spaces: Vec<Space>,
    options: MemoryOptions,
    tracking: Tracking,
    recorder: Option<TraceWriter<Box<dyn Write + Send>>>,
}

/// Device memory; see the module. Clones share it.
#[derive(Clone)]
pub struct Memory {
    state: Arc<Mutex<State>>,
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code under these locks panics half way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    /// Reserves addresses in every space of the backend.
    ///
    /// # Errors
    /// When the backend refuses, or a plan needs more than its space has.
    pub fn new(backend: impl Backend + 'static, options: MemoryOptions) -> Result<Self, MemoryError> {
        let infos = backend.spaces().to_vec();
        let maps_pages = backend.maps_pages();
        let backend: SharedBackend = Arc::new(Mutex::new(Box::new(backend)));
        let mut spaces = Vec::new();
        for (index, info) in infos.into_iter().enumerate() {
            let id = SpaceId::new(index);
            let script = options.plans.get(&id).cloned().unwrap_or_default();
            let capacity = info.capacity.get();
            let planned = script.capacity().get().next_multiple_of(info.page.get());
            let (region, pool) = if capacity < WHOLE || !maps_pages {
                whole(&backend, id, capacity, info.page.get(), planned, script)?
            } else {
                if !PAGE.is_multiple_of(info.page.get()) {
                    let reason = format!("pages of {} do not divide the allocator's {}", info.page, Bytes(PAGE));
                    return Err(BackendError::System { call: "reserve", reason }.into());
                }
                paged(&backend, id, capacity, planned, script)?
            };
            spaces.push(Space { name: info.name, capacity, region, pool });
        }
        let state = State { backend, spaces, options, tracking: Tracking::default(), recorder: None };
        Ok(Self { state: Arc::new(Mutex::new(state)) })
    }

    /// A buffer of so many bytes.
    ///
    /// # Errors
    /// When there is no room; the message says who holds most.
    #[track_caller]
    pub fn allocate(&self, space: SpaceId, bytes: Bytes) -> Result<Buffer, MemoryError> {
        self.allocate_aligned(space, bytes, Alignment::ONE)
    }

    /// The same, aligned.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    #[track_caller]
    pub fn allocate_aligned(&self, space: SpaceId, bytes: Bytes, alignment: Alignment) -> Result<Buffer, MemoryError> {
        let caller = Location::caller();
        let (handle, offset) = lock(&self.state).allocate(space, bytes, alignment, caller)?;
        Ok(Buffer::new(self.clone(), space, handle, bytes, offset))
    }

    /// Frees by handle, for callers that cannot own a [`Buffer`]: C, or a framework's allocator.
    ///
    /// # Errors
    /// When the handle is stale or foreign: a double free is found here.
    pub fn free(&self, space: SpaceId, handle: Handle) -> Result<(), MemoryError> {
        lock(&self.state).free(space, handle)
    }

    /// Opens a scope: allocations until it is dropped carry its name in their stack.
    pub fn scope(&self, name: &str) -> Scope {
        lock(&self.state).tracking.enter(name);
        Scope::new(self.clone())
    }

    /// Marks the end of a step: for the growth detector, the trace and the plans, which start over.
    pub fn mark_step(&self, name: &str) {
        let mut state = lock(&self.state);
        state.tracking.mark();
        for space in &mut state.spaces {
            space.pool.begin_iteration();
        }
        if let Some(recorder) = &mut state.recorder {
            let name = recorder.name(name);
            let what = What::Mark { name };
            let time = state.tracking.clock;
            if let Some(recorder) = &mut state.recorder {
                recorder.event(TraceEvent { time, stream: StreamId(0), stack: None, what });
            }
        }
    }

    /// Everything that is live, by who allocated it: the largest holder first. At the end of a program: its leaks.
    #[must_use]
    pub fn leaks(&self) -> Vec<Leak> {
        lock(&self.state).tracking.leaks()
    }

    /// Whose live bytes grow from step to step, the fastest first, and when that fills the space it grows in.
    #[must_use]
    pub fn growth(&self) -> Vec<Growth> {
        let state = lock(&self.state);
        let free: Vec<u64> = state
            .spaces
            .iter()
            .map(|space| space.capacity.saturating_sub(space.pool.statistics().live.get()))
            .collect();
        state.tracking.growth(&free)
    }

    /// How long blocks were held after their last use, in bytes times events, the worst first.
    #[must_use]
    pub fn late_frees(&self) -> Vec<LateFree> {
        lock(&self.state).tracking.late_frees()
    }

    /// Writes past the end of a block that the guard bytes found so far. Live blocks are looked at now.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        let mut state = lock(&self.state);
        let live: Vec<(SpaceId, Handle, Record)> = state.tracking.live();
        for (space, handle, record) in live {
            state.look_at_guard(space, handle, &record);
        }
        state.tracking.damage.clone()
    }

    /// The numbers of a space.
    ///
    /// # Errors
    /// When there is no such space.
    pub fn statistics(&self, space: SpaceId) -> Result<Statistics, MemoryError> {
        let state = lock(&self.state);
        state.space(space).map(|space| space.pool.statistics())
    }

    /// Gives unused memory of a space back to the device.
    ///
    /// # Errors
    /// When there is no such space.
    pub fn trim(&self, space: SpaceId) -> Result<Bytes, MemoryError> {
        let mut state = lock(&self.state);
        let index = state.index(space)?;
        Ok(state.spaces[index].pool.allocator().trim(Bytes::ZERO))
    }

    /// Records every call from now on. What was flushed survives a crash; see [`Self::flush_trace`].
    ///
    /// # Errors
    /// What the output says to the header.
    pub fn record_to(&self, output: Box<dyn Write + Send>) -> Result<(), MemoryError> {
        let mut state = lock(&self.state);
        let header = TraceHeader {
            origin: format!("npumem {}", env!("CARGO_PKG_VERSION")),
            device: Some(lock(&state.backend).name().to_owned()),
            spaces: state.spaces.iter().map(|space| space.name.clone()).collect(),
            ..TraceHeader::default()
        };
        state.recorder = Some(TraceWriter::new(output, &header)?);
        state.tracking.forget_trace_stacks();
        Ok(())
    }

    /// Hands what was recorded to the system.
    ///
    /// # Errors
    /// What the output said, now or since the last flush.
    pub fn flush_trace(&self) -> Result<(), MemoryError> {
        match &mut lock(&self.state).recorder {
            Some(recorder) => recorder.flush().map_err(MemoryError::from),
            None => Ok(()),
        }
    }
}

/// A small space, or one of a device that cannot map pages: all of it is committed now.
fn whole(
    backend: &SharedBackend,
    space: SpaceId,
    capacity: u64,
    page: u64,
    planned: u64,
    script: Script,
) -> Result<(RegionId, Pool), MemoryError> {
    let capacity = capacity / page * page;
    // The pool of a hybrid starts at a multiple of 2 MiB: with a plan a small space has only the plan.
    let first = planned.next_multiple_of(PAGE);
    let pool_bytes = if planned > 0 { capacity.saturating_sub(first) / page * page } else { capacity };
    let bytes = if pool_bytes > 0 { first + pool_bytes } else { planned };
    let mut device = lock(backend);
    let region = device.reserve(space, Bytes(bytes.max(page)))?;
    if bytes > 0
        && let Err(error) = device.commit(Place { region, offset: 0 }, Bytes(bytes))
    {
        let _ = device.release(region);
        return Err(error.into());
    }
    Ok((region, Pool::Whole(Box::new(Hybrid::new(script, Tlsf::new(Bytes(32), Bytes(pool_bytes)))))))
}

/// A large space: addresses for many times its size, memory as it is needed.
fn paged(
    backend: &SharedBackend,
    space: SpaceId,
    capacity: u64,
    planned: u64,
    script: Script,
) -> Result<(RegionId, Pool), MemoryError> {
    let addresses = capacity.saturating_mul(8).clamp(1 << 30, 2 << 40);
    let first = planned.div_ceil(PAGE);
    let mut device = lock(backend);
    let region = device.reserve(space, Bytes(first * PAGE + addresses))?;
    if planned > 0
        && let Err(error) = device.commit(Place { region, offset: 0 }, Bytes(planned))
    {
        let _ = device.release(region);
        return Err(error.into());
    }
    let limit = Some(Bytes(capacity.saturating_sub(planned)));
    let options = PagedOptions { limit, addresses: Bytes(addresses), ..PagedOptions::default() };
    let pages = Pages { backend: Arc::clone(backend), region, first };
    Ok((region, Pool::Paged(Box::new(Hybrid::new(script, Paged::new(options, pages))))))
}

impl State {
    fn index(&self, space: SpaceId) -> Result<usize, MemoryError> {
        if space.index() < self.spaces.len() { Ok(space.index()) } else { Err(MemoryError::NoSpace(space.0)) }
    }

    fn space(&self, space: SpaceId) -> Result<&Space, MemoryError> {
        self.spaces.get(space.index()).ok_or(MemoryError::NoSpace(space.0))
    }

    fn allocate(
        &mut self,
        space: SpaceId,
        bytes: Bytes,
        alignment: Alignment,
        caller: &'static Location<'static>,
    ) -> Result<(Handle, Offset), MemoryError> {
        let index = self.index(space)?;
        // Zero bytes stay zero: the allocator refuses them in its own words.
        let guard = if bytes == Bytes::ZERO { 0 } else { self.options.guard.get() };
        let wanted = Bytes(bytes.get().saturating_add(guard));
        let request = Request { bytes: wanted, alignment };
        let pool = self.spaces[index].pool.allocator();
        let block = match pool.allocate(request) {
            Ok(block) => block,
            Err(error) => {
                let holders = self.tracking.holders();
                return Err(MemoryError::Allocate { space: self.spaces[index].name.clone(), error, holders });
            }
        };
        let granted = pool.block(block.handle).map_or(wanted, |block| block.granted);
        let stack = if self.options.stacks { stack::capture(caller) } else { Vec::new() };
        let site = self.tracking.site(caller, stack);
        let record = self.tracking.enter_block(space, block.handle, bytes, site);
        self.note(
            &record,
            What::Allocate { block: record.block, space, offset: block.offset, requested: bytes, granted },
        );
        if let Err(error) = self.prepare(space, block.offset, bytes.get(), guard) {
            // The block is given back as if it had never been there.
            self.tracking.leave_block(space, block.handle);
            let _ = self.spaces[index].pool.allocator().free(block.handle);
            return Err(error);
        }
        Ok((block.handle, block.offset))
    }

    /// Fills a fresh block and its guard.
    fn prepare(&mut self, space: SpaceId, offset: Offset, bytes: u64, guard: u64) -> Result<(), MemoryError> {
        let region = self.spaces[space.index()].region;
        if let Some((fresh, _)) = self.options.fill {
            fill(&self.backend, Place { region, offset: offset.get() }, bytes, fresh)?;
        }
        if guard > 0 {
            fill(&self.backend, Place { region, offset: offset.get() + bytes }, guard, GUARD)?;
        }
        Ok(())
    }

    fn free(&mut self, space: SpaceId, handle: Handle) -> Result<(), MemoryError> {
        let index = self.index(space)?;
        let block = self.spaces[index].pool.allocator().block(handle)?;
        if let Some(record) = self.tracking.find(space, handle) {
            self.look_at_guard(space, handle, &record);
            if let Some((_, freed)) = self.options.fill {
                let region = self.spaces[index].region;
                let place = Place { region, offset: block.offset.get() };
                fill(&self.backend, place, record.bytes.get(), freed)?;
            }
        }
        self.spaces[index].pool.allocator().free(handle)?;
        if let Some(record) = self.tracking.leave_block(space, handle) {
            self.note(&record, What::Free { block: record.block });
        }
        Ok(())
    }

    /// Reads the guard bytes of a live block and keeps what was written over them, once a block.
    fn look_at_guard(&mut self, space: SpaceId, handle: Handle, record: &Record) {
        let guard = self.options.guard.get();
        if guard == 0 {
            return;
        }
        let Ok(block) = self.spaces[space.index()].pool.allocator().block(handle) else { return };
        let region = self.spaces[space.index()].region;
        let start = block.offset.get() + record.bytes.get();
        let mut bytes = vec![0; guard as usize];
        if lock(&self.backend).read(Place { region, offset: start }, &mut bytes).is_err() {
            return;
        }
        if let Some(first) = bytes.iter().position(|byte| *byte != GUARD) {
            self.tracking.note_damage(record, first as u64);
        }
    }

    fn note(&mut self, record: &Record, what: What) {
        let Some(recorder) = &mut self.recorder else { return };
        let stack = Some(self.tracking.trace_stack(record.site, recorder));
        recorder.event(TraceEvent { time: self.tracking.clock, stream: StreamId(0), stack, what });
    }

    fn note_use(&mut self, space: SpaceId, handle: Handle, write: bool) {
        if let Some(record) = self.tracking.use_block(space, handle) {
            self.note(&record, What::Use { block: record.block, write });
        }
    }
}

/// What guard bytes hold.
const GUARD: u8 = 0xfd;

fn fill(backend: &SharedBackend, place: Place, bytes: u64, value: u8) -> Result<(), BackendError> {
    let piece = vec![value; bytes.min(1 << 20) as usize];
    let mut device = lock(backend);
    let mut done = 0;
    while done < bytes {
        let count = (bytes - done).min(piece.len() as u64);
        device.write(Place { offset: place.offset + done, ..place }, &piece[..count as usize])?;
        done += count;
    }
    Ok(())
}

/// Names a block in traces.
fn block_id(number: u64) -> BlockId {
    BlockId(number)
}

#[cfg(test)]
mod tests;
