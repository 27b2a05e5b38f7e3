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
use crate::vmm::{Address, Driver, Event, Library, Vmm, forward_backend, forward_compute, functions};
use npumem_ir::{Bytes, SpaceId};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::null_mut;

type Status = c_int;

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

functions! {
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

struct CudaDriver {
    // Before the library: dropped first.
    calls: Functions,
    device: c_int,
    context: *mut c_void,
    stream: *mut c_void,
    _library: Library,
}

// SAFETY: the pointers name objects of the driver, which any thread may use; `enter` makes the context current first.
unsafe impl Send for CudaDriver {}

/// One NVIDIA device with one space, `hbm`.
pub struct Cuda {
    device: Vmm<CudaDriver>,
}

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
        let library = Library::open(path, "no CUDA driver here")?;
        // SAFETY: the library is a CUDA driver, as the caller says.
        let calls = unsafe { Functions::load(&library) }?;
        let mut driver = CudaDriver { calls, device: 0, context: null_mut(), stream: null_mut(), _library: library };
        let (free, total, page) = driver.start(device)?;
        let capacity = limit.map_or(free, |limit| limit.get().min(total));
        Ok(Self { device: Vmm::new(driver, Bytes(capacity), page) })
    }
}

forward_backend!(Cuda, device);
forward_compute!(Cuda, device);

impl CudaDriver {
    fn start(&mut self, device: u32) -> Result<(u64, u64, u64), BackendError> {
        let (mut free, mut total, mut page) = (0, 0, 0);
        // SAFETY: every pointer is to a live value of the type that the call fills.
        unsafe {
            self.check("cuInit", (self.calls.init)(0))?;
            let status = (self.calls.device_get)(&mut self.device, device as c_int);
            self.check("cuDeviceGet", status)?;
            let status = (self.calls.context_retain)(&mut self.context, self.device);
            self.check("cuDevicePrimaryCtxRetain", status)?;
            self.enter()?;
            self.check("cuMemGetInfo", (self.calls.memory_info)(&mut free, &mut total))?;
            let properties = self.properties();
            self.check("cuMemGetAllocationGranularity", (self.calls.granularity)(&mut page, &properties, 0))?;
            let status = (self.calls.stream_create)(&mut self.stream, 1);
            self.check("cuStreamCreate", status)?;
        }
        Ok((free as u64, total as u64, page as u64))
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
        let known = unsafe { (self.calls.error_string)(status, &mut text) } == 0 && !text.is_null();
        let words = if known {
            // SAFETY: the driver's texts end in a zero.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        } else {
            "unknown error".to_owned()
        };
        Err(BackendError::System { call, reason: format!("{words} (error {status})") })
    }
}

impl Driver for CudaDriver {
    const NAME: &'static str = "cuda";

    fn enter(&self) -> Result<(), BackendError> {
        // SAFETY: the context is retained while `self` lives.
        self.check("cuCtxSetCurrent", unsafe { (self.calls.context_set)(self.context) })
    }

    fn reserve(&self, bytes: u64) -> Result<Address, BackendError> {
        let mut base = 0;
        // SAFETY: the pointer is to a live value.
        self.check("cuMemAddressReserve", unsafe { (self.calls.reserve)(&mut base, bytes as usize, 0, 0, 0) })?;
        Ok(base)
    }

    fn unreserve(&self, address: Address, bytes: u64) {
        // SAFETY: the range was reserved and has no memory any more.
        unsafe { (self.calls.unreserve)(address, bytes as usize) };
    }

    fn map(&self, address: Address, bytes: u64) -> Result<u64, BackendError> {
        let mut handle = 0;
        let properties = self.properties();
        // SAFETY: the pointers are to live values; the page lies in a reservation and has no memory.
        unsafe {
            self.check("cuMemCreate", (self.calls.create)(&mut handle, bytes as usize, &properties, 0))?;
            if let Err(error) = self.check("cuMemMap", (self.calls.map)(address, bytes as usize, 0, handle, 0)) {
                (self.calls.release)(handle);
                return Err(error);
            }
        }
        Ok(handle)
    }

    fn unmap(&self, address: Address, bytes: u64, handle: u64) {
        // SAFETY: the page was mapped with this handle, and nothing on the device uses it.
        unsafe {
            (self.calls.unmap)(address, bytes as usize);
            (self.calls.release)(handle);
        }
    }

    fn open(&self, address: Address, bytes: u64) -> Result<(), BackendError> {
        let access = Access { location: Location { kind: ON_DEVICE, id: self.device }, flags: READ_WRITE };
        // SAFETY: the whole range is mapped; the descriptor is a live value.
        unsafe {
            self.check("cuMemSetAccess", (self.calls.set_access)(address, bytes as usize, &access, 1))?;
            self.check("cuMemsetD8", (self.calls.fill)(address, 0, bytes as usize))
        }
    }

    fn write(&self, to: Address, bytes: &[u8]) -> Result<(), BackendError> {
        // SAFETY: the range is mapped, and the slice is live for the call, which returns when it is done with it.
        self.check("cuMemcpyHtoD", unsafe { (self.calls.write)(to, bytes.as_ptr().cast(), bytes.len()) })
    }

    fn read(&self, from: Address, bytes: &mut [u8]) -> Result<(), BackendError> {
        // SAFETY: as in `write`.
        self.check("cuMemcpyDtoH", unsafe { (self.calls.read)(bytes.as_mut_ptr().cast(), from, bytes.len()) })
    }

    fn copy(&self, to: Address, from: Address, bytes: u64, _after: Option<Event>) -> Result<Event, BackendError> {
        let mut event = null_mut();
        // SAFETY: both ranges are mapped and stay so until the stream is drained; the event is fresh.
        unsafe {
            self.check("cuEventCreate", (self.calls.event_create)(&mut event, 2))?;
            let mut status = (self.calls.copy)(to, from, bytes as usize, self.stream);
            if status == 0 {
                status = (self.calls.event_record)(event, self.stream);
            }
            if let Err(error) = self.check("cuMemcpyDtoDAsync", status) {
                (self.calls.event_destroy)(event);
                return Err(error);
            }
        }
        Ok(event)
    }

    fn is_done(&self, event: Event) -> bool {
        // SAFETY: the event is live.
        unsafe { (self.calls.event_query)(event) != NOT_READY }
    }

    fn wait(&self, event: Event) {
        // SAFETY: the event is live. A failure shows at the next call.
        unsafe { (self.calls.event_wait)(event) };
    }

    fn drop_event(&self, event: Event) {
        // SAFETY: the event has passed and is named nowhere else.
        unsafe { (self.calls.event_destroy)(event) };
    }

    fn drain(&self) {
        // SAFETY: the stream lives as long as `self`. A failure shows at the next call.
        unsafe { (self.calls.stream_wait)(self.stream) };
    }
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        if self.context.is_null() || self.enter().is_err() {
            return;
        }
        // SAFETY: nothing uses the stream or the context after this.
        unsafe {
            if !self.stream.is_null() {
                (self.calls.stream_destroy)(self.stream);
            }
            (self.calls.context_release)(self.device);
        }
    }
}
