//! The host as a device: address ranges from `mmap`, memory behind them page by page, a thread for copies and one for kernels.
//!
//! ```text
//!   reserve    mmap(PROT_NONE)          addresses only
//!   commit     mprotect(READ|WRITE)     counted against the capacity of the space
//!   decommit   mmap(PROT_NONE, FIXED)   the memory goes back to the system at once
//! ```
//! Spaces have names and capacities of their own ("hbm", "sram"), so that programs for two levels of memory run
//! on any machine. Every access is checked against the pages that are committed: a bad one is an error, not a fault.
#![allow(unsafe_code)]

use crate::backend::{Backend, BackendError, Place, RegionId, SpaceInfo, Ticket};
use crate::compute::order::Queue;
use crate::compute::{Compute, Kernel, Launch, Spans, Touch, check_kernel};
use npumem_ir::{Bytes, SpaceId};
use queue::{Progress, Work, Worker};
use std::sync::Arc;

mod kernels;
mod processors;
mod queue;

const COPIES: usize = 0;
const KERNELS: usize = 1;

/// The page that spaces have when nothing else is asked for: as large as that of today's devices.
pub const DEFAULT_PAGE: Bytes = Bytes(2 << 20);

struct Region {
    space: usize,
    /// Start of the mapping.
    base: *mut u8,
    bytes: u64,
    /// One bit a page: it has memory.
    committed: Vec<u64>,
}

// The mapping belongs to the region alone; it is reached only through `Host`, or by the copy thread while
// `Host` keeps it mapped.
unsafe impl Send for Region {}

/// The host's memory; see the module.
pub struct Host {
    spaces: Vec<SpaceInfo>,
    committed: Vec<u64>,
    regions: Vec<Option<Region>>,
    queues: [Queue<()>; 2],
    workers: [Worker; 2],
    progress: Arc<Progress>,
}

impl Host {
    /// With these spaces. Pages are rounded up to a power of two of at least 4 KiB.
    ///
    /// # Errors
    /// When the copy thread cannot be started.
    pub fn new(spaces: Vec<SpaceInfo>) -> Result<Self, BackendError> {
        let spaces: Vec<SpaceInfo> = spaces
            .into_iter()
            .map(|space| SpaceInfo { page: Bytes(space.page.get().clamp(4096, 1 << 40).next_power_of_two()), ..space })
            .collect();
        let progress = Arc::new(Progress::new());
        let workers =
            [Worker::start(COPIES, "npumem-copy", &progress)?, Worker::start(KERNELS, "npumem-compute", &progress)?];
        Ok(Self {
            committed: vec![0; spaces.len()],
            spaces,
            regions: Vec::new(),
            queues: [Queue::new(), Queue::new()],
            workers,
            progress,
        })
    }

    /// Two spaces: `hbm` and `sram`, with capacities.
    ///
    /// # Errors
    /// When the copy thread cannot be started.
    pub fn with_two_spaces(hbm: Bytes, sram: Bytes) -> Result<Self, BackendError> {
        let space = |name: &str, capacity, page| SpaceInfo { name: name.to_owned(), capacity, page };
        Self::new(vec![space("hbm", hbm, DEFAULT_PAGE), space("sram", sram, Bytes(4096))])
    }

    fn region(&self, id: RegionId) -> Result<&Region, BackendError> {
        self.regions.get(id.0 as usize).and_then(Option::as_ref).ok_or(BackendError::NoRegion(id.0))
    }

    /// Checks that a range lies in its region and, page by page, whether it is committed as `wanted`.
    fn check(&self, place: Place, bytes: u64, wanted: bool) -> Result<&Region, BackendError> {
        let region = self.region(place.region)?;
        let end = place.offset.checked_add(bytes).filter(|end| *end <= region.bytes);
        let fault = |problem| BackendError::BadRange {
            region: place.region.0,
            start: place.offset,
            end: place.offset.saturating_add(bytes),
            problem,
        };
        let Some(end) = end else { return Err(fault("lie past the end of the region")) };
        let page = self.spaces[region.space].page.get();
        for index in place.offset / page..end.div_ceil(page) {
            if region.is_committed(index) != wanted {
                return Err(fault(if wanted { "are not all committed" } else { "are committed in part" }));
            }
        }
        Ok(region)
    }

    fn check_pages(&self, place: Place, bytes: u64, wanted: bool) -> Result<usize, BackendError> {
        let space = self.check(place, bytes, wanted)?.space;
        let page = self.spaces[space].page.get();
        if bytes == 0 || !place.offset.is_multiple_of(page) || !bytes.is_multiple_of(page) {
            return Err(BackendError::BadRange {
                region: place.region.0,
                start: place.offset,
                end: place.offset + bytes,
                problem: "are not whole pages",
            });
        }
        Ok(space)
    }

    /// Waits for everything that was started: after it nobody but the caller touches any region.
    fn drain(&mut self) {
        for (index, queue) in self.queues.iter_mut().enumerate() {
            self.progress.wait(index, queue.started);
            queue.pending.clear();
        }
    }

    /// Starts an operation after those of the other queue that touch the same bytes.
    fn start(&mut self, queue: usize, work: Work, touches: Vec<Touch>) -> Result<u64, BackendError> {
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let done = self.progress.done(index);
            while queue.pending.front().is_some_and(|first| first.number <= done) {
                queue.pending.pop_front();
            }
        }
        let after = self.queues[1 - queue].conflict(&touches).map_or(0, |earlier| earlier.number);
        self.workers[queue].send(work, after)?;
        Ok(self.queues[queue].push((), touches))
    }

    fn address_of(&self, touch: &Touch) -> Result<usize, BackendError> {
        Ok(self.check(touch.place, touch.bytes, true)?.at(touch.place.offset) as usize)
    }

    fn mark(&mut self, place: Place, bytes: u64, committed: bool) {
        if let Some(Some(region)) = self.regions.get_mut(place.region.0 as usize) {
            let page = self.spaces[region.space].page.get();
            for index in place.offset / page..(place.offset + bytes) / page {
                let bit = 1 << (index % 64);
                let word = &mut region.committed[(index / 64) as usize];
                *word = if committed { *word | bit } else { *word & !bit };
            }
        }
    }
}

impl Region {
    fn is_committed(&self, page: u64) -> bool {
        self.committed[(page / 64) as usize] >> (page % 64) & 1 == 1
    }

    fn at(&self, offset: u64) -> *mut u8 {
        // Callers have checked that the offset lies in the region, so the sum stays in the mapping.
        self.base.wrapping_add(offset as usize)
    }
}

fn system(call: &'static str) -> BackendError {
    BackendError::System { call, reason: std::io::Error::last_os_error().to_string() }
}

impl Backend for Host {
    fn name(&self) -> &'static str {
        "host"
    }

    fn spaces(&self) -> &[SpaceInfo] {
        &self.spaces
    }

    fn reserve(&mut self, space: SpaceId, bytes: Bytes) -> Result<RegionId, BackendError> {
        let index = space.index();
        let Some(info) = self.spaces.get(index) else { return Err(BackendError::NoSpace(space.0)) };
        let page = info.page.get();
        let rounded = bytes.get().checked_next_multiple_of(page).filter(|bytes| *bytes > 0 && *bytes <= 1 << 46);
        let Some(length) = rounded else {
            let problem = "are none, or more than this machine can address";
            return Err(BackendError::BadRange { region: u32::MAX, start: 0, end: bytes.get(), problem });
        };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the system's choice touches nothing that exists.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), length as usize, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(system("mmap"));
        }
        if page >= DEFAULT_PAGE.get() {
            // Spaces of large pages ask for large pages; a system that has none goes on without.
            // SAFETY: advice on a mapping that was just made.
            unsafe { libc::madvise(base, length as usize, libc::MADV_HUGEPAGE) };
        }
        let pages = (length / page).div_ceil(64) as usize;
        let region = Region { space: index, base: base.cast(), bytes: length, committed: vec![0; pages] };
        let id = self.regions.iter().position(Option::is_none).unwrap_or_else(|| {
            self.regions.push(None);
            self.regions.len() - 1
        });
        self.regions[id] = Some(region);
        Ok(RegionId(id as u32))
    }

    fn release(&mut self, id: RegionId) -> Result<(), BackendError> {
        self.region(id)?;
        self.drain();
        if let Some(region) = self.regions[id.0 as usize].take() {
            let pages: u64 = region.committed.iter().map(|word| u64::from(word.count_ones())).sum();
            self.committed[region.space] -= pages * self.spaces[region.space].page.get();
            // SAFETY: the mapping is the region's own, no copy is under way, and the region is gone from the table.
            unsafe { libc::munmap(region.base.cast(), region.bytes as usize) };
        }
        Ok(())
    }

    fn commit(&mut self, place: Place, bytes: Bytes) -> Result<(), BackendError> {
        let space = self.check_pages(place, bytes.get(), false)?;
        let (info, committed) = (&self.spaces[space], self.committed[space]);
        if committed + bytes.get() > info.capacity.get() {
            return Err(BackendError::Full {
                space: info.name.clone(),
                requested: bytes,
                committed: Bytes(committed),
                capacity: info.capacity,
            });
        }
        let start = self.region(place.region)?.at(place.offset);
        // SAFETY: the range was checked to lie in the region's own mapping.
        let outcome = unsafe { libc::mprotect(start.cast(), bytes.get() as usize, libc::PROT_READ | libc::PROT_WRITE) };
        if outcome != 0 {
            return Err(system("mprotect"));
        }
        self.committed[space] += bytes.get();
        self.mark(place, bytes.get(), true);
        Ok(())
    }

    fn decommit(&mut self, place: Place, bytes: Bytes) -> Result<(), BackendError> {
        let space = self.check_pages(place, bytes.get(), true)?;
        self.drain();
        let start = self.region(place.region)?.at(place.offset);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the range was checked to lie in the region's own mapping, which is replaced there by an empty one.
        let fresh = unsafe { libc::mmap(start.cast(), bytes.get() as usize, libc::PROT_NONE, flags, -1, 0) };
        if fresh == libc::MAP_FAILED {
            return Err(system("mmap"));
        }
        self.committed[space] -= bytes.get();
        self.mark(place, bytes.get(), false);
        Ok(())
    }

    fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), BackendError> {
        self.check(to, bytes.len() as u64, true)?;
        self.drain();
        let target = self.region(to.region)?.at(to.offset);
        // SAFETY: the range is committed, no copy is under way, and `bytes` cannot lie in a region:
        // regions are never lent out as slices.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        Ok(())
    }

    fn read(&mut self, from: Place, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.check(from, bytes.len() as u64, true)?;
        self.drain();
        let source = self.region(from.region)?.at(from.offset);
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn copy(&mut self, from: Place, to: Place, bytes: Bytes) -> Result<Ticket, BackendError> {
        let source = self.check(from, bytes.get(), true)?.at(from.offset);
        let target = self.check(to, bytes.get(), true)?.at(to.offset);
        if from.region == to.region && from.offset.abs_diff(to.offset) < bytes.get() {
            return Err(BackendError::BadRange {
                region: to.region.0,
                start: to.offset,
                end: to.offset + bytes.get(),
                problem: "overlap the source of the copy",
            });
        }
        let touch = |place, write| Touch { place, bytes: bytes.get(), write };
        let work = Work::Copy { from: source as usize, to: target as usize, bytes: bytes.get() as usize };
        self.start(COPIES, work, vec![touch(from, false), touch(to, true)]).map(Ticket)
    }

    fn is_done(&self, ticket: Ticket) -> bool {
        self.progress.done(COPIES) >= ticket.0
    }

    fn wait(&mut self, ticket: Ticket) {
        self.progress.wait(COPIES, ticket.0.min(self.queues[COPIES].started));
    }

    fn committed(&self, space: SpaceId) -> Bytes {
        Bytes(self.committed.get(space.index()).copied().unwrap_or(0))
    }

    fn address(&self, region: RegionId) -> Result<u64, BackendError> {
        self.region(region).map(|region| region.base as u64)
    }
}

impl Compute for Host {
    fn launch(&mut self, kernel: &Kernel) -> Result<Launch, BackendError> {
        let touches = check_kernel(kernel)?;
        for touch in &touches {
            self.check(touch.place, touch.bytes, true)?;
        }
        let kernel = kernel.try_map(|place| self.address_of(&Touch { place, bytes: 0, write: false }))?;
        self.start(KERNELS, Work::Kernel(kernel), touches).map(Launch)
    }

    fn finish(&mut self) -> Result<(), BackendError> {
        self.drain();
        Ok(())
    }

    fn take_spans(&mut self) -> Result<Spans, BackendError> {
        self.drain();
        Ok(Spans { copies: self.progress.take_spans(COPIES), kernels: self.progress.take_spans(KERNELS) })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.drain();
        for index in 0..self.regions.len() {
            let _ = self.release(RegionId(index as u32));
        }
    }
}
