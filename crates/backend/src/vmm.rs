//! Devices with virtual memory management: the part that all of them share.
//!
//! A [`Driver`] says how a device does one step; [`Vmm`] keeps the regions, the pages and the copies.

#![allow(unsafe_code)]

use crate::backend::{Backend, BackendError, Place, RegionId, SpaceInfo, Ticket};
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
    /// Starts a copy on the stream; the event passes when it is done.
    fn copy(&self, to: Address, from: Address, bytes: u64) -> Result<Event, BackendError>;
    fn is_done(&self, event: Event) -> bool;
    fn wait(&self, event: Event);
    fn drop_event(&self, event: Event);
    /// Waits for the stream.
    fn drain(&self);
}

struct Region {
    base: Address,
    bytes: u64,
    /// The handle behind each page.
    handles: Vec<Option<u64>>,
}

/// A device over its driver, with one space.
pub(crate) struct Vmm<D: Driver> {
    driver: D,
    space: Vec<SpaceInfo>,
    page: u64,
    committed: u64,
    regions: Vec<Option<Region>>,
    /// Events of copies that were not seen to be done, by ticket; the oldest first.
    pending: Vec<(u64, Event)>,
    started: u64,
}

// SAFETY: events name objects of the driver, which any thread may use; `enter` makes the device current first.
unsafe impl<D: Driver> Send for Vmm<D> {}

impl<D: Driver> Vmm<D> {
    pub(crate) fn new(driver: D, capacity: Bytes, page: u64) -> Self {
        let page = page.max(1);
        let space = vec![SpaceInfo { name: "hbm".to_owned(), capacity, page: Bytes(page) }];
        Self { driver, space, page, committed: 0, regions: Vec::new(), pending: Vec::new(), started: 0 }
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
                self.committed -= page;
            }
        }
    }

    fn drain(&mut self) {
        self.driver.drain();
        for (_, event) in self.pending.drain(..) {
            self.driver.drop_event(event);
        }
    }

    /// Maps pages one after the other; what it did stays in the region for the caller to undo.
    fn map_pages(&mut self, id: RegionId, pages: std::ops::Range<usize>) -> Result<(), BackendError> {
        for index in pages {
            let address = self.region(id)?.base + index as u64 * self.page;
            let handle = self.driver.map(address, self.page)?;
            if let Some(Some(region)) = self.regions.get_mut(id.0 as usize) {
                region.handles[index] = Some(handle);
            }
            self.committed += self.page;
        }
        Ok(())
    }
}

impl<D: Driver> Backend for Vmm<D> {
    fn name(&self) -> &'static str {
        D::NAME
    }

    fn spaces(&self) -> &[SpaceInfo] {
        &self.space
    }

    fn reserve(&mut self, space: SpaceId, bytes: Bytes) -> Result<RegionId, BackendError> {
        if space.index() >= self.space.len() {
            return Err(BackendError::NoSpace(space.0));
        }
        let rounded = bytes.get().checked_next_multiple_of(self.page).filter(|bytes| *bytes > 0 && *bytes <= 1 << 46);
        let Some(length) = rounded else {
            let problem = "are none, or more than a device can address";
            return Err(BackendError::BadRange { region: u32::MAX, start: 0, end: bytes.get(), problem });
        };
        self.driver.enter()?;
        let base = self.driver.reserve(length)?;
        let region = Region { base, bytes: length, handles: vec![None; (length / self.page) as usize] };
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
        let info = &self.space[0];
        if self.committed + bytes.get() > info.capacity.get() {
            return Err(BackendError::Full {
                space: info.name.clone(),
                requested: bytes,
                committed: Bytes(self.committed),
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
        let event = self.driver.copy(target, source, bytes.get())?;
        self.started += 1;
        self.pending.push((self.started, event));
        Ok(Ticket(self.started))
    }

    fn is_done(&self, ticket: Ticket) -> bool {
        if self.driver.enter().is_err() {
            return false;
        }
        let found = self.pending.iter().find(|(number, _)| *number == ticket.0);
        found.is_none_or(|(_, event)| self.driver.is_done(*event))
    }

    fn wait(&mut self, ticket: Ticket) {
        if self.driver.enter().is_err() {
            return;
        }
        if let Some((_, event)) = self.pending.iter().find(|(number, _)| *number == ticket.0) {
            self.driver.wait(*event);
        }
        // Copies finish in order: what was started before is done too.
        let driver = &self.driver;
        self.pending.retain(|(number, event)| {
            let done = *number <= ticket.0;
            if done {
                driver.drop_event(*event);
            }
            !done
        });
    }

    fn committed(&self, space: SpaceId) -> Bytes {
        Bytes(if space.index() == 0 { self.committed } else { 0 })
    }

    fn address(&self, region: RegionId) -> Result<u64, BackendError> {
        self.region(region).map(|region| region.base)
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
