//! NVIDIA devices through the driver API, loaded at run time: nothing is linked, and without a driver `open` says so.
//!
//! ```text
//!   reserve    cuMemAddressReserve
//!   commit     cuMemCreate + cuMemMap for each page, then cuMemSetAccess and zeros over the range
//!   decommit   cuMemUnmap + cuMemRelease for each page
//!   copy       cuMemcpyDtoDAsync on one stream, with an event for each ticket
//! ```
//! Written against the documented interface. The tests run it on a stand-in library that they compile,
//! and on a real device where there is one.
#![allow(unsafe_code)]

use crate::backend::{Backend, BackendError, Place, RegionId, SpaceInfo, Ticket};
use npumem_ir::{Bytes, SpaceId};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::null_mut;

type Status = c_int;
type Address = u64;

const NOT_READY: Status = 600;
const PINNED: c_int = 1;
const ON_DEVICE: c_int = 1;
const READ_WRITE: c_int = 3;

#[repr(C)]
struct Location {
    kind: c_int,
    id: c_int,
}

/// `CUmemAllocationProp`.
#[repr(C)]
struct AllocationProperties {
    kind: c_int,
    handle_types: c_int,
    location: Location,
    windows: *mut c_void,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[repr(C)]
struct Access {
    location: Location,
    flags: c_int,
}

macro_rules! driver {
    ($($field:ident: $symbol:literal fn($($argument:ty),*);)*) => {
        /// The functions of the driver that are used here.
        struct Driver {
            $($field: unsafe extern "C" fn($($argument),*) -> Status,)*
        }

        impl Driver {
            /// # Safety
            /// The library must be a CUDA driver: its functions have the documented types.
            unsafe fn load(library: *mut c_void) -> Result<Self, BackendError> {
                Ok(Self {
                    $($field: {
                        let name = concat!($symbol, "\0");
                        // SAFETY: the library is open and the name ends in a zero.
                        let found = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
                        if found.is_null() {
                            return Err(BackendError::System {
                                call: "dlsym",
                                reason: concat!("the driver has no ", $symbol, ": it is older than CUDA 11").to_owned(),
                            });
                        }
                        // SAFETY: the caller says that this symbol has this type.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> Status>(found) }
                    },)*
                })
            }
        }
    };
}

driver! {
    init: "cuInit" fn(c_uint);
    device_get: "cuDeviceGet" fn(*mut c_int, c_int);
    context_retain: "cuDevicePrimaryCtxRetain" fn(*mut *mut c_void, c_int);
    context_release: "cuDevicePrimaryCtxRelease_v2" fn(c_int);
    context_set: "cuCtxSetCurrent" fn(*mut c_void);
    memory_info: "cuMemGetInfo_v2" fn(*mut usize, *mut usize);
    granularity: "cuMemGetAllocationGranularity" fn(*mut usize, *const AllocationProperties, c_int);
    reserve: "cuMemAddressReserve" fn(*mut Address, usize, usize, Address, u64);
    unreserve: "cuMemAddressFree" fn(Address, usize);
    create: "cuMemCreate" fn(*mut u64, usize, *const AllocationProperties, u64);
    release: "cuMemRelease" fn(u64);
    map: "cuMemMap" fn(Address, usize, usize, u64, u64);
    unmap: "cuMemUnmap" fn(Address, usize);
    set_access: "cuMemSetAccess" fn(Address, usize, *const Access, usize);
    fill: "cuMemsetD8_v2" fn(Address, u8, usize);
    write: "cuMemcpyHtoD_v2" fn(Address, *const c_void, usize);
    read: "cuMemcpyDtoH_v2" fn(*mut c_void, Address, usize);
    copy: "cuMemcpyDtoDAsync_v2" fn(Address, Address, usize, *mut c_void);
    stream_create: "cuStreamCreate" fn(*mut *mut c_void, c_uint);
    stream_wait: "cuStreamSynchronize" fn(*mut c_void);
    stream_destroy: "cuStreamDestroy_v2" fn(*mut c_void);
    event_create: "cuEventCreate" fn(*mut *mut c_void, c_uint);
    event_record: "cuEventRecord" fn(*mut c_void, *mut c_void);
    event_query: "cuEventQuery" fn(*mut c_void);
    event_wait: "cuEventSynchronize" fn(*mut c_void);
    event_destroy: "cuEventDestroy_v2" fn(*mut c_void);
    error_string: "cuGetErrorString" fn(Status, *mut *const c_char);
}

struct Region {
    base: Address,
    bytes: u64,
    /// The handle behind each page.
    handles: Vec<Option<u64>>,
}

/// One NVIDIA device with one space, `hbm`.
pub struct Cuda {
    driver: Driver,
    library: *mut c_void,
    device: c_int,
    context: *mut c_void,
    stream: *mut c_void,
    space: Vec<SpaceInfo>,
    page: u64,
    committed: u64,
    regions: Vec<Option<Region>>,
    /// Events of copies that were not seen to be done, by ticket; the oldest first.
    pending: Vec<(u64, *mut c_void)>,
    started: u64,
}

// The raw pointers name driver objects, which any thread may use; `enter` makes the context current first.
unsafe impl Send for Cuda {}

impl Cuda {
    /// The device of a number, with at most `limit` bytes.
    ///
    /// # Errors
    /// When there is no driver or no such device.
    pub fn open(device: u32, limit: Option<Bytes>) -> Result<Self, BackendError> {
        Self::open_library(Path::new("libcuda.so.1"), device, limit)
    }

    /// The same with a driver library of the caller's choice. The library runs code as it loads: name one that you trust.
    ///
    /// # Errors
    /// When the library cannot be loaded or has no such device.
    pub fn open_library(path: &Path, device: u32, limit: Option<Bytes>) -> Result<Self, BackendError> {
        let system = |call, reason: String| BackendError::System { call, reason };
        let name = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| system("dlopen", "the path has a zero byte".to_owned()))?;
        // SAFETY: the name ends in a zero; what the library does on loading is the caller's choice.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(system("dlopen", format!("{} cannot be loaded: no CUDA driver here", path.display())));
        }
        // SAFETY: the library is a CUDA driver, as the caller says.
        let driver = match unsafe { Driver::load(library) } {
            Ok(driver) => driver,
            Err(error) => {
                // SAFETY: nothing of the library is kept.
                unsafe { libc::dlclose(library) };
                return Err(error);
            }
        };
        let mut cuda = Self {
            driver,
            library,
            device: 0,
            context: null_mut(),
            stream: null_mut(),
            space: Vec::new(),
            page: 0,
            committed: 0,
            regions: Vec::new(),
            pending: Vec::new(),
            started: 0,
        };
        cuda.start(device, limit)?;
        Ok(cuda)
    }

    fn start(&mut self, device: u32, limit: Option<Bytes>) -> Result<(), BackendError> {
        let (mut free, mut total, mut page) = (0, 0, 0);
        // SAFETY: every pointer is to a live value of the type that the call fills.
        unsafe {
            self.check("cuInit", (self.driver.init)(0))?;
            let status = (self.driver.device_get)(&mut self.device, device as c_int);
            self.check("cuDeviceGet", status)?;
            let status = (self.driver.context_retain)(&mut self.context, self.device);
            self.check("cuDevicePrimaryCtxRetain", status)?;
            self.enter()?;
            self.check("cuMemGetInfo", (self.driver.memory_info)(&mut free, &mut total))?;
            let properties = self.properties();
            self.check("cuMemGetAllocationGranularity", (self.driver.granularity)(&mut page, &properties, 0))?;
            let status = (self.driver.stream_create)(&mut self.stream, 1);
            self.check("cuStreamCreate", status)?;
        }
        self.page = (page as u64).max(1);
        let capacity = limit.map_or(free as u64, |limit| limit.get().min(total as u64));
        self.space = vec![SpaceInfo { name: "hbm".to_owned(), capacity: Bytes(capacity), page: Bytes(self.page) }];
        Ok(())
    }

    fn properties(&self) -> AllocationProperties {
        AllocationProperties {
            kind: PINNED,
            handle_types: 0,
            location: Location { kind: ON_DEVICE, id: self.device },
            windows: null_mut(),
            flags: [0; 8],
        }
    }

    fn check(&self, call: &'static str, status: Status) -> Result<(), BackendError> {
        if status == 0 {
            return Ok(());
        }
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the call fills a pointer to a text that lives as long as the driver.
        let known = unsafe { (self.driver.error_string)(status, &mut text) } == 0 && !text.is_null();
        let words = if known {
            // SAFETY: the driver's texts end in a zero.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        } else {
            "unknown error".to_owned()
        };
        Err(BackendError::System { call, reason: format!("{words} (error {status})") })
    }

    /// Makes the device's context current on this thread.
    fn enter(&self) -> Result<(), BackendError> {
        // SAFETY: the context is retained while `self` lives.
        self.check("cuCtxSetCurrent", unsafe { (self.driver.context_set)(self.context) })
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

    /// Unmaps and releases the committed pages among some of a region's.
    fn drop_pages(&mut self, id: RegionId, pages: std::ops::Range<usize>) {
        let page = self.page;
        let Some(Some(region)) = self.regions.get_mut(id.0 as usize) else { return };
        for index in pages {
            if let Some(handle) = region.handles[index].take() {
                // SAFETY: the page was mapped by `commit` with this handle, and nothing on the device uses it:
                // callers drain the stream first.
                unsafe {
                    (self.driver.unmap)(region.base + index as u64 * page, page as usize);
                    (self.driver.release)(handle);
                }
                self.committed -= page;
            }
        }
    }

    fn drain(&mut self) {
        // SAFETY: the stream lives as long as `self`; a failure shows at the next call.
        unsafe { (self.driver.stream_wait)(self.stream) };
        for (_, event) in self.pending.drain(..) {
            // SAFETY: the event was created for this ticket and is named nowhere else.
            unsafe { (self.driver.event_destroy)(event) };
        }
    }

    /// Creates, maps and opens pages one after the other; what it did stays in the region for the caller to undo.
    fn map_pages(&mut self, id: RegionId, pages: std::ops::Range<usize>) -> Result<(), BackendError> {
        let properties = self.properties();
        for index in pages {
            let address = self.region(id)?.base + index as u64 * self.page;
            let mut handle = 0;
            // SAFETY: the pointers are to live values; the page lies in the reservation and has no memory.
            unsafe {
                self.check("cuMemCreate", (self.driver.create)(&mut handle, self.page as usize, &properties, 0))?;
                if let Err(error) = self.check("cuMemMap", (self.driver.map)(address, self.page as usize, 0, handle, 0))
                {
                    (self.driver.release)(handle);
                    return Err(error);
                }
            }
            if let Some(Some(region)) = self.regions.get_mut(id.0 as usize) {
                region.handles[index] = Some(handle);
            }
            self.committed += self.page;
        }
        Ok(())
    }
}

impl Backend for Cuda {
    fn name(&self) -> &'static str {
        "cuda"
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
        self.enter()?;
        let mut base = 0;
        // SAFETY: the pointer is to a live value.
        let status = unsafe { (self.driver.reserve)(&mut base, length as usize, 0, 0, 0) };
        self.check("cuMemAddressReserve", status)?;
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
        self.enter()?;
        self.drain();
        self.drop_pages(id, 0..pages);
        if let Some(region) = self.regions[id.0 as usize].take() {
            // SAFETY: the reservation has no memory any more and is gone from the table.
            unsafe { (self.driver.unreserve)(region.base, region.bytes as usize) };
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
        self.enter()?;
        let pages = (place.offset / self.page) as usize..((place.offset + bytes.get()) / self.page) as usize;
        let access = Access { location: Location { kind: ON_DEVICE, id: self.device }, flags: READ_WRITE };
        let outcome = self.map_pages(place.region, pages.clone()).and_then(|()| {
            // SAFETY: the whole range is mapped now; the descriptor is a live value.
            unsafe {
                self.check("cuMemSetAccess", (self.driver.set_access)(address, bytes.get() as usize, &access, 1))?;
                self.check("cuMemsetD8", (self.driver.fill)(address, 0, bytes.get() as usize))
            }
        });
        if outcome.is_err() {
            self.drop_pages(place.region, pages);
        }
        outcome
    }

    fn decommit(&mut self, place: Place, bytes: Bytes) -> Result<(), BackendError> {
        self.locate_pages(place, bytes.get(), true)?;
        self.enter()?;
        self.drain();
        let pages = (place.offset / self.page) as usize..((place.offset + bytes.get()) / self.page) as usize;
        self.drop_pages(place.region, pages);
        Ok(())
    }

    fn write(&mut self, to: Place, bytes: &[u8]) -> Result<(), BackendError> {
        let address = self.locate(to, bytes.len() as u64, true)?;
        self.enter()?;
        self.drain();
        // SAFETY: the range is mapped, and the slice is live for the call, which returns when it is done with it.
        self.check("cuMemcpyHtoD", unsafe { (self.driver.write)(address, bytes.as_ptr().cast(), bytes.len()) })
    }

    fn read(&mut self, from: Place, bytes: &mut [u8]) -> Result<(), BackendError> {
        let address = self.locate(from, bytes.len() as u64, true)?;
        self.enter()?;
        self.drain();
        // SAFETY: as in `write`.
        self.check("cuMemcpyDtoH", unsafe { (self.driver.read)(bytes.as_mut_ptr().cast(), address, bytes.len()) })
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
        self.enter()?;
        let mut event = null_mut();
        // SAFETY: both ranges are mapped and stay so until the stream is drained; the event is fresh.
        unsafe {
            self.check("cuEventCreate", (self.driver.event_create)(&mut event, 2))?;
            let mut status = (self.driver.copy)(target, source, bytes.get() as usize, self.stream);
            if status == 0 {
                status = (self.driver.event_record)(event, self.stream);
            }
            if let Err(error) = self.check("cuMemcpyDtoDAsync", status) {
                (self.driver.event_destroy)(event);
                return Err(error);
            }
        }
        self.started += 1;
        self.pending.push((self.started, event));
        Ok(Ticket(self.started))
    }

    fn is_done(&self, ticket: Ticket) -> bool {
        if self.enter().is_err() {
            return false;
        }
        let found = self.pending.iter().find(|(number, _)| *number == ticket.0);
        // SAFETY: the event is live while it is in the list.
        found.is_none_or(|(_, event)| unsafe { (self.driver.event_query)(*event) } != NOT_READY)
    }

    fn wait(&mut self, ticket: Ticket) {
        if self.enter().is_err() {
            return;
        }
        if let Some((_, event)) = self.pending.iter().find(|(number, _)| *number == ticket.0) {
            // SAFETY: the event is live while it is in the list.
            unsafe { (self.driver.event_wait)(*event) };
        }
        // Copies finish in order: what was started before is done too.
        let driver = &self.driver;
        self.pending.retain(|(number, event)| {
            let done = *number <= ticket.0;
            if done {
                // SAFETY: the event has passed and leaves the list.
                unsafe { (driver.event_destroy)(*event) };
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

impl Drop for Cuda {
    fn drop(&mut self) {
        if !self.context.is_null() && self.enter().is_ok() {
            if !self.stream.is_null() {
                self.drain();
            }
            for index in 0..self.regions.len() {
                let _ = self.release(RegionId(index as u32));
            }
            // SAFETY: nothing uses the stream or the context after this.
            unsafe {
                if !self.stream.is_null() {
                    (self.driver.stream_destroy)(self.stream);
                }
                (self.driver.context_release)(self.device);
            }
        }
        // SAFETY: no function of the library is called after this.
        unsafe { libc::dlclose(self.library) };
    }
}
