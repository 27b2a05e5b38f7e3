//! Ascend NPUs through AscendCL, loaded at run time: nothing is linked, and without CANN `open` says so.
//!
//! ```text
//!   reserve    aclrtReserveMemAddress
//!   commit     aclrtMallocPhysical + aclrtMapMem for each page (whole handles at offset 0), then zeros over the range
//!   decommit   aclrtUnmapMem + aclrtFreePhysical for each page
//!   copy       aclrtMemcpyAsync on one stream, with an event for each ticket
//! ```
//! Written against the documented interface and tested on a stand-in library that the tests compile.
//! **It has not met real hardware yet.**
#![allow(unsafe_code)]

use crate::backend::{Backend, BackendError, Place, RegionId, SpaceInfo, Ticket};
use crate::vmm::{Address, Driver, Event, Library, Vmm, forward_backend, forward_compute, functions};
use npumem_ir::{Bytes, SpaceId};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

type Status = c_int;

/// `aclInit` was called before in this process: not an error for us.
const REPEATED_START: Status = 100_002;
/// `ACL_HBM_MEM`, for the free bytes.
const HBM: c_int = 1;
/// `ACL_HBM_MEM_HUGE`: memory in pages of 2 MiB.
const HBM_HUGE: c_int = 4;
const ON_DEVICE: c_int = 1;
const HOST_TO_DEVICE: c_int = 1;
const DEVICE_TO_HOST: c_int = 2;
const DEVICE_TO_DEVICE: c_int = 3;
const COMPLETE: c_int = 1;

/// `aclrtPhysicalMemProp`.
#[repr(C)]
struct PhysicalProperties {
    handle_type: c_int,
    allocation_type: c_int,
    attribute: c_int,
    device: u32,
    location: c_int,
    reserved: u64,
}

functions! {
    init: "aclInit" fn(*const c_char);
    set_device: "aclrtSetDevice" fn(i32);
    reset_device: "aclrtResetDevice" fn(i32);
    memory_info: "aclrtGetMemInfo" fn(c_int, *mut usize, *mut usize);
    granularity: "aclrtMemGetAllocationGranularity" fn(*mut PhysicalProperties, c_int, *mut usize);
    reserve: "aclrtReserveMemAddress" fn(*mut *mut c_void, usize, usize, *mut c_void, u64);
    unreserve: "aclrtReleaseMemAddress" fn(*mut c_void);
    create: "aclrtMallocPhysical" fn(*mut *mut c_void, usize, *const PhysicalProperties, u64);
    release: "aclrtFreePhysical" fn(*mut c_void);
    map: "aclrtMapMem" fn(*mut c_void, usize, usize, *mut c_void, u64);
    unmap: "aclrtUnmapMem" fn(*mut c_void);
    fill: "aclrtMemset" fn(*mut c_void, usize, i32, usize);
    copy: "aclrtMemcpy" fn(*mut c_void, usize, *const c_void, usize, c_int);
    copy_async: "aclrtMemcpyAsync" fn(*mut c_void, usize, *const c_void, usize, c_int, *mut c_void);
    stream_create: "aclrtCreateStream" fn(*mut *mut c_void);
    stream_wait: "aclrtSynchronizeStream" fn(*mut c_void);
    stream_destroy: "aclrtDestroyStream" fn(*mut c_void);
    event_create: "aclrtCreateEvent" fn(*mut *mut c_void);
    event_record: "aclrtRecordEvent" fn(*mut c_void, *mut c_void);
    event_query: "aclrtQueryEventStatus" fn(*mut c_void, *mut c_int);
    event_wait: "aclrtSynchronizeEvent" fn(*mut c_void);
    event_destroy: "aclrtDestroyEvent" fn(*mut c_void);
}

struct AscendDriver {
    calls: Functions,
    /// `aclGetRecentErrMsg`, which gives a text and no status.
    message: unsafe extern "C" fn() -> *const c_char,
    device: i32,
    stream: *mut c_void,
    _library: Library,
}

// SAFETY: the stream names an object of the driver, which any thread may use once `enter` has set the device.
unsafe impl Send for AscendDriver {}

/// One Ascend device with one space, `hbm`.
pub struct Ascend {
    device: Vmm<AscendDriver>,
}

impl Ascend {
    /// The device of a number, with at most `limit` bytes.
    ///
    /// # Errors
    /// When CANN is not installed or there is no such device.
    pub fn open(device: u32, limit: Option<Bytes>) -> Result<Self, BackendError> {
        Self::open_library(Path::new("libascendcl.so"), device, limit)
    }

    /// The same with a library of the caller's choice. The library runs code as it loads: name one that you trust.
    ///
    /// # Errors
    /// When the library cannot be loaded or has no such device.
    pub fn open_library(path: &Path, device: u32, limit: Option<Bytes>) -> Result<Self, BackendError> {
        let library = Library::open(path, "no AscendCL (CANN) here")?;
        // SAFETY: the library is AscendCL, as the caller says.
        let calls = unsafe { Functions::load(&library) }?;
        let found = library.find("aclGetRecentErrMsg\0")?;
        // SAFETY: as above; this function takes nothing and gives a text.
        let message = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(found) };
        let mut driver = AscendDriver { calls, message, device: device as i32, stream: null_mut(), _library: library };
        let (free, total, page) = driver.start()?;
        let capacity = limit.map_or(free, |limit| limit.get().min(total));
        Ok(Self { device: Vmm::new(driver, Bytes(capacity), page) })
    }
}

forward_backend!(Ascend, device);
forward_compute!(Ascend, device);

fn pointer(address: Address) -> *mut c_void {
    address as *mut c_void
}

impl AscendDriver {
    fn start(&mut self) -> Result<(u64, u64, u64), BackendError> {
        let (mut free, mut total, mut page) = (0, 0, 0);
        // SAFETY: every pointer is to a live value of the type that the call fills; no configuration is allowed.
        unsafe {
            let status = (self.calls.init)(null());
            if status != REPEATED_START {
                self.check("aclInit", status)?;
            }
            self.enter()?;
            self.check("aclrtGetMemInfo", (self.calls.memory_info)(HBM, &mut free, &mut total))?;
            let mut properties = self.properties();
            let status = (self.calls.granularity)(&mut properties, 0, &mut page);
            self.check("aclrtMemGetAllocationGranularity", status)?;
            let status = (self.calls.stream_create)(&mut self.stream);
            self.check("aclrtCreateStream", status)?;
        }
        Ok((free as u64, total as u64, page as u64))
    }

    fn properties(&self) -> PhysicalProperties {
        PhysicalProperties {
            handle_type: 0,
            allocation_type: 0,
            attribute: HBM_HUGE,
            device: self.device as u32,
            location: ON_DEVICE,
            reserved: 0,
        }
    }

    fn check(&self, call: &'static str, status: Status) -> Result<(), BackendError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the text, where there is one, ends in a zero and lives until the next call.
        let words = unsafe {
            let text = (self.message)();
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        };
        Err(BackendError::System { call, reason: format!("error {status} {words}").trim_end().to_owned() })
    }
}

impl Driver for AscendDriver {
    const NAME: &'static str = "ascend";

    fn enter(&self) -> Result<(), BackendError> {
        // SAFETY: a plain number.
        self.check("aclrtSetDevice", unsafe { (self.calls.set_device)(self.device) })
    }

    fn reserve(&self, bytes: u64) -> Result<Address, BackendError> {
        let mut base = null_mut();
        // SAFETY: the pointer is to a live value. Flag 1 asks for huge pages, as the memory will have.
        let status = unsafe { (self.calls.reserve)(&mut base, bytes as usize, 0, null_mut(), 1) };
        self.check("aclrtReserveMemAddress", status)?;
        Ok(base as Address)
    }

    fn unreserve(&self, address: Address, _bytes: u64) {
        // SAFETY: the range was reserved and has no memory any more.
        unsafe { (self.calls.unreserve)(pointer(address)) };
    }

    fn map(&self, address: Address, bytes: u64) -> Result<u64, BackendError> {
        let mut handle = null_mut();
        let properties = self.properties();
        // SAFETY: the pointers are to live values; the page lies in a reservation and has no memory.
        unsafe {
            self.check("aclrtMallocPhysical", (self.calls.create)(&mut handle, bytes as usize, &properties, 0))?;
            let status = (self.calls.map)(pointer(address), bytes as usize, 0, handle, 0);
            if let Err(error) = self.check("aclrtMapMem", status) {
                (self.calls.release)(handle);
                return Err(error);
            }
        }
        Ok(handle as u64)
    }

    fn unmap(&self, address: Address, _bytes: u64, handle: u64) {
        // SAFETY: the page was mapped with this handle, and nothing on the device uses it.
        unsafe {
            (self.calls.unmap)(pointer(address));
            (self.calls.release)(pointer(handle));
        }
    }

    fn open(&self, address: Address, bytes: u64) -> Result<(), BackendError> {
        // SAFETY: the whole range is mapped.
        self.check("aclrtMemset", unsafe { (self.calls.fill)(pointer(address), bytes as usize, 0, bytes as usize) })
    }

    fn write(&self, to: Address, bytes: &[u8]) -> Result<(), BackendError> {
        let count = bytes.len();
        // SAFETY: the range is mapped, and the slice is live for the call, which returns when it is done with it.
        self.check("aclrtMemcpy", unsafe {
            (self.calls.copy)(pointer(to), count, bytes.as_ptr().cast(), count, HOST_TO_DEVICE)
        })
    }

    fn read(&self, from: Address, bytes: &mut [u8]) -> Result<(), BackendError> {
        let count = bytes.len();
        // SAFETY: as in `write`.
        self.check("aclrtMemcpy", unsafe {
            (self.calls.copy)(bytes.as_mut_ptr().cast(), count, pointer(from), count, DEVICE_TO_HOST)
        })
    }

    fn copy(&self, to: Address, from: Address, bytes: u64, _after: Option<Event>) -> Result<Event, BackendError> {
        let (count, mut event) = (bytes as usize, null_mut());
        // SAFETY: both ranges are mapped and stay so until the stream is drained; the event is fresh.
        unsafe {
            self.check("aclrtCreateEvent", (self.calls.event_create)(&mut event))?;
            let mut status = if count == 0 {
                0
            } else {
                (self.calls.copy_async)(pointer(to), count, pointer(from), count, DEVICE_TO_DEVICE, self.stream)
            };
            if status == 0 {
                status = (self.calls.event_record)(event, self.stream);
            }
            if let Err(error) = self.check("aclrtMemcpyAsync", status) {
                (self.calls.event_destroy)(event);
                return Err(error);
            }
        }
        Ok(event)
    }

    fn is_done(&self, event: Event) -> bool {
        let mut status = 0;
        // SAFETY: the event is live, the pointer is to a live value.
        let answer = unsafe { (self.calls.event_query)(event, &mut status) };
        // A device that cannot answer will not finish either: nobody should poll it for ever.
        answer != 0 || status == COMPLETE
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

impl Drop for AscendDriver {
    fn drop(&mut self) {
        if self.stream.is_null() || self.enter().is_err() {
            return;
        }
        // SAFETY: nothing uses the stream or the device after this.
        unsafe {
            (self.calls.stream_destroy)(self.stream);
            (self.calls.reset_device)(self.device);
        }
    }
}
