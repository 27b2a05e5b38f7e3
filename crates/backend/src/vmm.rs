//! Devices with virtual memory management: the part that all of them share.
//!
//! A [`Driver`] says how a device does one step; [`Vmm`] keeps the regions, the pages and the copies.

#![allow(unsafe_code)]

use crate::backend::{Backend, BackendError, Place, RegionId, SpaceInfo, Ticket};
use crate::compute::order::{Pending, Queue};
use crate::compute::{Compute, Kernel, Launch, Span, Spans, Touch, check_kernel};
use npumem_ir::{Bytes, SpaceId};
use std::ffi::c_void;
use std::path::Path;

/// A device address.
pub(crate) type Address = u64;
/// An event of the device.
pub(crate) type Event = *mut c_void;

/// The steps of one device. Calls that fail change nothing.
pub(crate) trait Driver: Send {
    /// The backend's name.
    const NAME: &'static str;
    /// See [`Backend::maps_pages`].
    const MAPS_PAGES: bool = true;
    /// Makes the device current on this thread.
    fn enter(&self) -> Result<(), BackendError>;
    fn reserve(&self, bytes: u64) -> Result<Address, BackendError>;
    fn unreserve(&self, address: Address, bytes: u64);
    /// Creates memory and maps it; gives its handle.
    fn map(&self, address: Address, bytes: u64) -> Result<u64, BackendError>;
    /// Unmaps memory and gives it back.
    fn unmap(&self, address: Address, bytes: u64, handle: u64);
    /// Makes a mapped range usable and fills it with zeros.
    fn open(&self, address: Address, bytes: u64) -> Result<(), BackendError>;
    fn write(&self, to: Address, bytes: &[u8]) -> Result<(), BackendError>;
    fn read(&self, from: Address, bytes: &mut [u8]) -> Result<(), BackendError>;
    /// Starts a copy on the copy stream after an event of the other one; its own event passes when it is done.
    fn copy(&self, to: Address, from: Address, bytes: u64, after: Option<Event>) -> Result<Event, BackendError>;
    /// Starts a kernel on the compute stream after an event of the other one.
    fn launch(&self, _kernel: &Kernel<Address>, _after: Option<Event>) -> Result<Event, BackendError> {
        Err(BackendError::NoKernels { backend: Self::NAME })
    }
    /// When the operation of an event ran, where the device says so. The event has passed.
    fn span(&self, _event: Event) -> Option<Span> {
        None
    }
    /// What went wrong with the operation of an event that has passed.
    fn failure(&self, _event: Event) -> Option<BackendError> {
        None
    }
    fn is_done(&self, event: Event) -> bool;
    fn wait(&self, event: Event);
    fn drop_event(&self, event: Event);
    /// Waits for both streams.
    fn drain(&self);
}

struct Region {
    space: usize,
    base: Address,
    bytes: u64,
    /// The handle behind each page.
    handles: Vec<Option<u64>>,
}

/// Times kept for a caller that may never ask for them.
const MOST_SPANS: usize = 1 << 20;
/// Operations of a queue that may be unseen before the finished ones among them are looked for.
const MANY: usize = 64;
const COPIES: usize = 0;
const KERNELS: usize = 1;

/// A device over its driver. Its spaces are parts of one memory, with capacities of their own.
pub(crate) struct Vmm<D: Driver> {
    driver: D,
    spaces: Vec<SpaceInfo>,
    page: u64,
    committed: Vec<u64>,
    regions: Vec<Option<Region>>,
    queues: [Queue<Event>; 2],
    spans: Spans,
    /// The first operation that failed after it had been started.
    failure: Option<BackendError>,
}

// SAFETY: events name objects of the driver, which any thread may use; `enter` makes the device current first.
unsafe impl<D: Driver> Send for Vmm<D> {}

impl<D: Driver> Vmm<D> {
    /// One space, `hbm`.
    pub(crate) fn new(driver: D, capacity: Bytes, page: u64) -> Self {
        Self::with_spaces(driver, vec![("hbm".to_owned(), capacity)], page)
    }

    pub(crate) fn with_spaces(driver: D, spaces: Vec<(String, Bytes)>, page: u64) -> Self {
        let page = page.max(1);
        let info = |(name, capacity)| SpaceInfo { name, capacity, page: Bytes(page) };
        let spaces: Vec<SpaceInfo> = spaces.into_iter().map(info).collect();
        let (spans, queues) = (Spans::default(), [Queue::new(), Queue::new()]);
        let committed = vec![0; spaces.len()];
        Self { driver, spaces, page, committed, regions: Vec::new(), queues, spans, failure: None }
    }

    /// Takes note of an operation that is done.
    fn retire(&mut self, queue: usize, done: Pending<Event>) {
        let spans = if queue == COPIES { &mut self.spans.copies } else { &mut self.spans.kernels };
        if spans.len() < MOST_SPANS {
            spans.extend(self.driver.span(done.event));
        }
        self.failure = self.failure.take().or_else(|| self.driver.failure(done.event));
        self.driver.drop_event(done.event);
    }

    /// Retires what is done at the front of both queues, when there is much.
    fn look(&mut self) {
        for queue in [COPIES, KERNELS] {
            while self.queues[queue].pending.len() > MANY
                && self.queues[queue].pending.front().is_some_and(|first| self.driver.is_done(first.event))
                && let Some(done) = self.queues[queue].pending.pop_front()
            {
                self.retire(queue, done);
            }
        }
    }

    fn region(&self, id: RegionId) -> Result<&Region, BackendError> {
        self.regions.get(id.0 as usize).and_then(Option::as_ref).ok_or(BackendError::NoRegion(id.0))
    }

    /// The address of a range whose pages are all committed as `wanted`.
    fn locate(&self, place: Place, bytes: u64, wanted: bool) -> Result<Address, BackendError> {
        let region = self.region(place.region)?;
        let fault = |problem| BackendError::BadRange {
            region: place.region.0,
            start: place.offset,
            end: place.offset.saturating_add(bytes),
            problem,
        };
        let end = place.offset.checked_add(bytes).filter(|end| *end <= region.bytes);
        let end = end.ok_or_else(|| fault("lie past the end of the region"))?;
        let pages = (place.offset / self.page) as usize..end.div_ceil(self.page) as usize;
        if region.handles[pages].iter().any(|handle| handle.is_some() != wanted) {
            return Err(fault(if wanted { "are not all committed" } else { "are committed in part" }));
        }
        Ok(region.base + place.offset)
    }

    fn locate_pages(&self, place: Place, bytes: u64, wanted: bool) -> Result<Address, BackendError> {
        let address = self.locate(place, bytes, wanted)?;
        if bytes == 0 || !place.offset.is_multiple_of(self.page) || !bytes.is_multiple_of(self.page) {
            return Err(BackendError::BadRange {
                region: place.region.0,
                start: place.offset,
                end: place.offset + bytes,
                problem: "are not whole pages",
            });
        }
        Ok(address)
    }

    /// Gives back the committed pages among some of a region's. Callers drain the stream first.
    fn drop_pages(&mut self, id: RegionId, pages: std::ops::Range<usize>) {
        let page = self.page;
        let Some(Some(region)) = self.regions.get_mut(id.0 as usize) else { return };
        for index in pages {
            if let Some(handle) = region.handles[index].take() {
                self.driver.unmap(region.base + index as u64 * page, page, handle);
                self.committed[region.space] -= page;
            }
        }
    }

    fn drain(&mut self) {
        self.driver.drain();
        for queue in [COPIES, KERNELS] {
            while let Some(done) = self.queues[queue].pending.pop_front() {
                self.retire(queue, done);
            }
        }
    }

    /// Maps pages one after the other; what it did stays in the region for the caller to undo.
    fn map_pages(&mut self, id: RegionId, pages: std::ops::Range<usize>) -> Result<(), BackendError> {
        for index in pages {
            let address = self.region(id)?.base + index as u64 * self.page;
            let handle = self.driver.map(address, self.page)?;
            if let Some(Some(region)) = self.regions.get_mut(id.0 as usize) {
                region.handles[index] = Some(handle);
                self.committed[region.space] += self.page;
            }
        }
        Ok(())
    }
}

impl<D: Driver> Backend for Vmm<D> {
    fn name(&self) -> &'static str {
        D::NAME
    }

    fn spaces(&self) -> &[SpaceInfo] {
        &self.spaces
    }

    fn maps_pages(&self) -> bool {
        D::MAPS_PAGES
    }

    fn reserve(&mut self, space: SpaceId, bytes: Bytes) -> Result<RegionId, BackendError> {
        if space.index() >= self.spaces.len() {
            return Err(BackendError::NoSpace(space.0));
        }
        let rounded = bytes.get().checked_next_multiple_of(self.page).filter(|bytes| *bytes > 0 && *bytes <= 1 << 46);
        let Some(length) = rounded else {
            let problem = "are none, or more than a device can address";
            return Err(BackendError::BadRange { region: u32::MAX, start: 0, end: bytes.get(), problem });
        };
        self.driver.enter()?;
        let base = self.driver.reserve(length)?;
        let region =
            Region { space: space.index(), base, bytes: length, handles: vec![None; (length / self.page) as usize] };
        let id = self.regions.iter().position(Option::is_none).unwrap_or_else(|| {
            self.regions.push(None);
            self.regions.len() - 1
        });
        self.regions[id] = Some(region);
        Ok(RegionId(id as u32))
    }

    fn release(&mut self, id: RegionId) -> Result<(), BackendError> {
        let pages = self.region(id)?.handles.len();
        self.driver.enter()?;
        self.drain();
        self.drop_pages(id, 0..pages);
        if let Some(region) = self.regions[id.0 as usize].take() {
            self.driver.unreserve(region.base, region.bytes);
        }
        Ok(())
    }

    fn commit(&mut self, place: Place, bytes: Bytes) -> Result<(), BackendError> {
        let address = self.locate_pages(place, bytes.get(), false)?;
        let space = self.region(place.region)?.space;
        let (info, committed) = (&self.spaces[space], self.committed[space]);
        if committed + bytes.get() > info.capacity.get() {
            return Err(BackendError::Full {
                space: info.name.clone(),
                requested: bytes,
                committed: Bytes(committed),
                capacity: info.capacity,
            });
        }
        self.driver.enter()?;
        let pages = (place.offset / self.page) as usize..((place.offset + bytes.get()) / self.page) as usize;
        let outcome = self.map_pages(place.region, pages.clone()).and_then(|()| self.driver.open(address, bytes.get()));
        if outcome.is_err() {
            self.drop_pages(place.region, pages);
        }
        outcome
    }

    fn decommit(&mut self, place: Place, bytes: Bytes) -> Result<(), BackendError> {
        self.locate_pages(place, bytes.get(), true)?;
        self.driver.enter()?;
        self.drain();
        let pages = (place.offset / self.page) as usize..((place.offset + bytes.get()) / self.page) as usize;
        self.drop_pages(place.region, pages);
        Ok(())
    }

    fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), BackendError> {
        let address = self.locate(to, bytes.len() as u64, true)?;
        self.driver.enter()?;
        self.drain();
        self.driver.write(address, bytes)
    }

    fn read(&mut self, from: Place, bytes: &mut [u8]) -> Result<(), BackendError> {
        let address = self.locate(from, bytes.len() as u64, true)?;
        self.driver.enter()?;
        self.drain();
        self.driver.read(address, bytes)
    }

    fn copy(&mut self, from: Place, to: Place, bytes: Bytes) -> Result<Ticket, BackendError> {
        let source = self.locate(from, bytes.get(), true)?;
        let target = self.locate(to, bytes.get(), true)?;
        if from.region == to.region && from.offset.abs_diff(to.offset) < bytes.get() {
            return Err(BackendError::BadRange {
                region: to.region.0,
                start: to.offset,
                end: to.offset + bytes.get(),
                problem: "overlap the source of the copy",
            });
        }
        self.driver.enter()?;
        self.look();
        let touch = |place, write| Touch { place, bytes: bytes.get(), write };
        let touches = vec![touch(from, false), touch(to, true)];
        let after = self.queues[KERNELS].conflict(&touches).map(|earlier| earlier.event);
        let event = self.driver.copy(target, source, bytes.get(), after)?;
        Ok(Ticket(self.queues[COPIES].push(event, touches)))
    }

    fn is_done(&self, ticket: Ticket) -> bool {
        if self.driver.enter().is_err() {
            return false;
        }
        let found = self.queues[COPIES].pending.iter().find(|copy| copy.number == ticket.0);
        found.is_none_or(|copy| self.driver.is_done(copy.event))
    }

    fn wait(&mut self, ticket: Ticket) {
        if self.driver.enter().is_err() {
            return;
        }
        if let Some(copy) = self.queues[COPIES].pending.iter().find(|copy| copy.number == ticket.0) {
            self.driver.wait(copy.event);
        }
        // Copies finish in order: what was started before is done too.
        while self.queues[COPIES].pending.front().is_some_and(|first| first.number <= ticket.0)
            && let Some(done) = self.queues[COPIES].pending.pop_front()
        {
            self.retire(COPIES, done);
        }
    }

    fn committed(&self, space: SpaceId) -> Bytes {
        Bytes(self.committed.get(space.index()).copied().unwrap_or(0))
    }

    fn address(&self, region: RegionId) -> Result<u64, BackendError> {
        self.region(region).map(|region| region.base)
    }
}

impl<D: Driver> Compute for Vmm<D> {
    fn launch(&mut self, kernel: &Kernel) -> Result<Launch, BackendError> {
        let touches = check_kernel(kernel)?;
        for touch in &touches {
            self.locate(touch.place, touch.bytes, true)?;
        }
        let kernel = kernel.try_map(|place| self.locate(place, 0, true))?;
        self.driver.enter()?;
        self.look();
        let after = self.queues[COPIES].conflict(&touches).map(|earlier| earlier.event);
        let event = self.driver.launch(&kernel, after)?;
        Ok(Launch(self.queues[KERNELS].push(event, touches)))
    }

    fn finish(&mut self) -> Result<(), BackendError> {
        self.driver.enter()?;
        self.drain();
        self.failure.take().map_or(Ok(()), Err)
    }

    fn take_spans(&mut self) -> Result<Spans, BackendError> {
        self.finish()?;
        Ok(std::mem::take(&mut self.spans))
    }
}

impl<D: Driver> Drop for Vmm<D> {
    fn drop(&mut self) {
        if self.driver.enter().is_ok() {
            self.drain();
            for index in 0..self.regions.len() {
                let _ = self.release(RegionId(index as u32));
            }
        }
    }
}

/// A library that was opened at run time.
pub(crate) struct Library(*mut c_void);

// SAFETY: a handle of the loader may be used by any thread.
unsafe impl Send for Library {}

impl Library {
    /// `missing` ends the message when it cannot be loaded.
    pub(crate) fn open(path: &Path, missing: &str) -> Result<Self, BackendError> {
        let system = |reason: String| BackendError::System { call: "dlopen", reason };
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| system("the path has a zero byte".to_owned()))?;
        // SAFETY: the name ends in a zero; what the library does on loading is the caller's choice.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(system(format!("{} cannot be loaded: {missing}", path.display())));
        }
        Ok(Self(library))
    }

    /// The address of a function; `name` ends in a zero.
    pub(crate) fn find(&self, name: &'static str) -> Result<*mut c_void, BackendError> {
        debug_assert!(name.ends_with('\0'), "{name}");
        // SAFETY: the library is open and the name ends in a zero.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr().cast()) };
        if found.is_null() {
            let reason = format!("the driver has no {}: it is too old", name.trim_end_matches('\0'));
            return Err(BackendError::System { call: "dlsym", reason });
        }
        Ok(found)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: whoever called functions of the library owned it, and is gone.
        unsafe { libc::dlclose(self.0) };
    }
}

/// A struct of functions that are looked up by name.
macro_rules! functions {
    ($($field:ident: $symbol:literal fn($($argument:ty),*);)*) => {
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) -> std::ffi::c_int,)*
        }

        impl Functions {
            /// # Safety
            /// The library's functions of these names must have these types.
            unsafe fn load(library: &$crate::vmm::Library) -> Result<Self, BackendError> {
                Ok(Self {
                    $($field: {
                        let found = library.find(concat!($symbol, "\0"))?;
                        // SAFETY: the caller says that this symbol has this type.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> std::ffi::c_int>(found)
                        }
                    },)*
                })
            }
        }
    };
}
pub(crate) use functions;

/// Hands every call of [`Backend`] to a field.
macro_rules! forward_backend {
    ($type:ty, $field:ident) => {
        impl Backend for $type {
            fn name(&self) -> &'static str {
                self.$field.name()
            }
            fn spaces(&self) -> &[SpaceInfo] {
                self.$field.spaces()
            }
            fn maps_pages(&self) -> bool {
                self.$field.maps_pages()
            }
            fn reserve(&mut self, space: SpaceId, bytes: Bytes) -> Result<RegionId, BackendError> {
                self.$field.reserve(space, bytes)
            }
            fn release(&mut self, region: RegionId) -> Result<(), BackendError> {
                self.$field.release(region)
            }
            fn commit(&mut self, place: Place, bytes: Bytes) -> Result<(), BackendError> {
                self.$field.commit(place, bytes)
            }
            fn decommit(&mut self, place: Place, bytes: Bytes) -> Result<(), BackendError> {
                self.$field.decommit(place, bytes)
            }
            fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), BackendError> {
                self.$field.write(to, bytes)
            }
            fn read(&mut self, from: Place, bytes: &mut [u8]) -> Result<(), BackendError> {
                self.$field.read(from, bytes)
            }
            fn copy(&mut self, from: Place, to: Place, bytes: Bytes) -> Result<Ticket, BackendError> {
                self.$field.copy(from, to, bytes)
            }
            fn is_done(&self, ticket: Ticket) -> bool {
                self.$field.is_done(ticket)
            }
            fn wait(&mut self, ticket: Ticket) {
                self.$field.wait(ticket);
            }
            fn committed(&self, space: SpaceId) -> Bytes {
                self.$field.committed(space)
            }
            fn address(&self, region: RegionId) -> Result<u64, BackendError> {
                self.$field.address(region)
            }
        }
    };
}
pub(crate) use forward_backend;

/// Hands every call of [`Compute`] to a field.
macro_rules! forward_compute {
    ($type:ty, $field:ident) => {
        impl $crate::compute::Compute for $type {
            fn launch(
                &mut self,
                kernel: &$crate::compute::Kernel,
            ) -> Result<$crate::compute::Launch, $crate::backend::BackendError> {
                self.$field.launch(kernel)
            }
            fn finish(&mut self) -> Result<(), $crate::backend::BackendError> {
                self.$field.finish()
            }
            fn take_spans(&mut self) -> Result<$crate::compute::Spans, $crate::backend::BackendError> {
                self.$field.take_spans()
            }
        }
    };
}
pub(crate) use forward_compute;
