//! OpenCL devices through the ICD loader, opened at run time: nothing is linked, and without a loader `open` says so.
//!
//! ```text
//!   reserve    books only              region  |page|page|    |page|        |
//!   commit     clCreateBuffer, zeros           [one buffer up to here]
//!   decommit   books; the buffer goes when the region's last page goes
//!   copy       clEnqueueCopyBuffer on one queue, kernels (built from source) on another, events between the two
//! ```
//! OpenCL 1.2 maps no pages: a region is one buffer that grows to its highest committed page (by a copy on the device),
//! and [`Backend::maps_pages`] says so. Blocks of the allocators are offsets in it.
#![allow(unsafe_code)]

use crate::backend::{Backend, BackendError, Place, RegionId, SpaceInfo, Ticket};
use crate::compute::{Kernel, Span};
use crate::vmm::{Address, Driver, Event, Library, Vmm, forward_backend, forward_compute};
use calls::{Calls, Object, check};
use npumem_ir::{Bytes, SpaceId};
use programs::Programs;
use std::cell::RefCell;
use std::ffi::c_uint;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, PoisonError};

mod calls;
mod programs;

/// Memory is counted in pages of this size.
const PAGE: u64 = 64 << 10;
/// Where the addresses of a region start: far enough from the next one's.
const REGION_BITS: u32 = 47;
const ALL_DEVICES: u64 = 0xffff_ffff;
const PROFILING: u64 = 1 << 1;

/// The memory of one region: a buffer for its pages up to the highest that was ever committed.
#[derive(Clone, Copy)]
struct Part {
    reserved: u64,
    buffer: Object,
    bytes: u64,
    pages: u64,
}

struct ClDriver {
    calls: Calls,
    device: Object,
    context: Object,
    copies: Object,
    kernels: Object,
    parts: RefCell<Vec<Option<Part>>>,
    programs: Programs,
}

// SAFETY: OpenCL's objects may be used by any thread; kernels' arguments are set through `&mut` of the backend only.
unsafe impl Send for ClDriver {}

/// One OpenCL device.
pub struct OpenCl {
    device: Vmm<ClDriver>,
    about: About,
}

/// What an OpenCL device says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Its name.
    pub name: String,
    /// The platform's name.
    pub platform: String,
    /// The version that it implements.
    pub version: String,
    /// All of its memory.
    pub memory: Bytes,
    /// The largest single buffer.
    pub largest_buffer: Bytes,
    /// Memory of one work group.
    pub local_memory: Bytes,
    /// The cache in front of its memory.
    pub cache: Bytes,
    /// Compute units.
    pub units: u32,
    /// Its highest clock.
    pub clock_mhz: u32,
}

impl OpenCl {
    /// The device of a number over all platforms, with one space of at most `limit` bytes, `hbm`.
    ///
    /// # Errors
    /// When there is no loader, no driver or no such device.
    pub fn open(device: u32, limit: Option<Bytes>) -> Result<Self, BackendError> {
        Self::open_library(Path::new("libOpenCL.so.1"), device, &[("hbm", limit)])
    }

    /// With spaces of these names and capacities: parts of the device's one memory. A capacity that is left out, or is larger,
    /// is the largest buffer of the device.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn with_spaces(device: u32, spaces: &[(&str, Option<Bytes>)]) -> Result<Self, BackendError> {
        Self::open_library(Path::new("libOpenCL.so.1"), device, spaces)
    }

    /// The same with a library of the caller's choice. It runs code as it loads: name one that you trust.
    ///
    /// # Errors
    /// When the library cannot be loaded or has no such device.
    pub fn open_library(path: &Path, device: u32, spaces: &[(&str, Option<Bytes>)]) -> Result<Self, BackendError> {
        let missing = "no OpenCL loader here (Debian: apt-get install ocl-icd-libopencl1, \
                       and a driver: pocl-opencl-icd runs OpenCL on the CPU)";
        let library = Library::open(path, missing)?;
        // SAFETY: the library is an OpenCL loader, as the caller says.
        let calls = unsafe { Calls::load(&library) }?;
        // Drivers start threads that outlive their objects: the loader stays.
        std::mem::forget(library);
        let (id, about) = {
            let _alone = DISCOVERY.lock().unwrap_or_else(PoisonError::into_inner);
            let (platform, id) = find(&calls, device)?;
            (id, about(&calls, platform, id))
        };
        let driver = ClDriver::start(calls, id)?;
        let largest = about.largest_buffer.get() / PAGE * PAGE;
        let capacity = |limit: &Option<Bytes>| Bytes(limit.map_or(largest, |limit| limit.get().min(largest)));
        let spaces = spaces.iter().map(|(name, limit)| ((*name).to_owned(), capacity(limit))).collect();
        Ok(Self { device: Vmm::with_spaces(driver, spaces, PAGE), about })
    }

    /// What the device says of itself.
    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }
}

/// One thread at a time looks for devices. PoCL 3.1 shows a device to a second thread before the first has filled it in, and
/// crashes when that one asks for its name: four threads of a plain C program that call `clGetDeviceIDs` and `clGetDeviceInfo` at
/// once die 14 times in 15, none under a lock.
static DISCOVERY: Mutex<()> = Mutex::new(());

forward_backend!(OpenCl, device);
forward_compute!(OpenCl, device);

/// The device of a number, counted over the platforms in the loader's order, and its platform.
fn find(calls: &Calls, wanted: u32) -> Result<(Object, Object), BackendError> {
    let mut platforms = [null_mut(); 16];
    let mut count: c_uint = 0;
    // SAFETY: the arrays hold as many objects as the calls are told.
    check("clGetPlatformIDs", unsafe { (calls.platforms)(16, platforms.as_mut_ptr(), &mut count) })?;
    let mut seen = 0;
    for platform in platforms.into_iter().take(count as usize) {
        let mut devices = [null_mut(); 64];
        let mut count: c_uint = 0;
        // SAFETY: as above.
        let status = unsafe { (calls.devices)(platform, ALL_DEVICES, 64, devices.as_mut_ptr(), &mut count) };
        let count = if status == 0 { count.min(64) } else { 0 };
        if wanted - seen < count {
            return Ok((platform, devices[(wanted - seen) as usize]));
        }
        seen += count;
    }
    let reason = format!("there is no OpenCL device {wanted}; {seen} found");
    Err(BackendError::System { call: "clGetDeviceIDs", reason })
}

fn about(calls: &Calls, platform: Object, device: Object) -> About {
    let text = |from: Object, of_platform: bool, what: c_uint| {
        let mut bytes = [0_u8; 512];
        let mut length = 0;
        let call = if of_platform { calls.platform_info } else { calls.device_info };
        // SAFETY: the call writes at most the bytes that it is told are there.
        let status = unsafe { call(from, what, bytes.len(), bytes.as_mut_ptr().cast(), &mut length) };
        let length = if status == 0 { length.min(bytes.len()) } else { 0 };
        String::from_utf8_lossy(&bytes[..length]).trim_end_matches('\0').trim().to_owned()
    };
    let number = |what: c_uint, bytes: usize| {
        let mut value = 0_u64;
        // SAFETY: the value has at least `bytes` bytes; this machine is little-endian where it matters.
        let status = unsafe { (calls.device_info)(device, what, bytes, (&raw mut value).cast(), null_mut()) };
        if status == 0 { u64::from_le(value) } else { 0 }
    };
    About {
        name: text(device, false, 0x102b),
        platform: text(platform, true, 0x0902),
        version: text(device, false, 0x102f),
        memory: Bytes(number(0x101f, 8)),
        largest_buffer: Bytes(number(0x1010, 8)),
        local_memory: Bytes(number(0x1023, 8)),
        cache: Bytes(number(0x101e, 8)),
        units: number(0x1002, 4) as u32,
        clock_mhz: number(0x100c, 4) as u32,
    }
}

impl ClDriver {
    fn start(calls: Calls, device: Object) -> Result<Self, BackendError> {
        let null = null_mut;
        let (parts, programs) = (RefCell::new(Vec::new()), Programs::default());
        let mut driver = Self { calls, device, context: null(), copies: null(), kernels: null(), parts, programs };
        let mut status = 0;
        // SAFETY: the device is live; what was made so far is released when the driver is dropped.
        unsafe {
            driver.context = (driver.calls.create_context)(std::ptr::null(), 1, &device, null(), null(), &mut status);
            check("clCreateContext", status)?;
            driver.copies = (driver.calls.create_queue)(driver.context, device, PROFILING, &mut status);
            check("clCreateCommandQueue", status)?;
            driver.kernels = (driver.calls.create_queue)(driver.context, device, PROFILING, &mut status);
            check("clCreateCommandQueue", status)?;
        }
        Ok(driver)
    }

    fn part(&self, address: Address) -> Result<Part, BackendError> {
        let index = (address >> REGION_BITS) as usize;
        let part = index.checked_sub(1).and_then(|index| self.parts.borrow().get(index).copied().flatten());
        part.ok_or(BackendError::System { call: "opencl", reason: "an address of no region".to_owned() })
    }

    /// The buffer of an address and the offset in it.
    fn resolve(&self, address: Address) -> Result<(Object, usize), BackendError> {
        Ok((self.part(address)?.buffer, (address & ((1 << REGION_BITS) - 1)) as usize))
    }

    fn set(&self, address: Address, change: impl FnOnce(&mut Part)) {
        let index = (address >> REGION_BITS) as usize;
        let mut parts = self.parts.borrow_mut();
        if let Some(Some(part)) = index.checked_sub(1).and_then(|index| parts.get_mut(index)) {
            change(part);
        }
    }

    /// A buffer of the region that reaches `end`, with what the old one held.
    fn grow(&self, address: Address, end: u64) -> Result<(), BackendError> {
        let part = self.part(address)?;
        if part.bytes >= end {
            return Ok(());
        }
        let bytes = end.next_power_of_two().min(part.reserved).max(end);
        let mut status = 0;
        // SAFETY: the context is live; the old buffer is released after the copy out of it has passed.
        unsafe {
            let mut fresh = (self.calls.create_buffer)(self.context, 1, bytes as usize, null_mut(), &mut status);
            let mut bytes = bytes;
            if status != 0 && end < bytes {
                bytes = end;
                fresh = (self.calls.create_buffer)(self.context, 1, bytes as usize, null_mut(), &mut status);
            }
            check("clCreateBuffer", status)?;
            if !part.buffer.is_null() {
                let size = part.bytes as usize;
                let status = (self.calls.copy)(self.copies, part.buffer, fresh, 0, 0, size, 0, null(), null_mut());
                let status = if status == 0 { (self.calls.finish)(self.copies) } else { status };
                if let Err(error) = check("clEnqueueCopyBuffer", status) {
                    (self.calls.release_buffer)(fresh);
                    return Err(error);
                }
                (self.calls.release_buffer)(part.buffer);
            }
            self.set(address, |part| (part.buffer, part.bytes) = (fresh, bytes));
        }
        Ok(())
    }

    fn time(&self, event: Event, what: c_uint) -> Option<u64> {
        let mut value = 0_u64;
        // SAFETY: the event is live and has passed; the value has eight bytes.
        let status = unsafe { (self.calls.event_time)(event, what, 8, (&raw mut value).cast(), null_mut()) };
        (status == 0).then_some(value)
    }

    fn state(&self, event: Event) -> i32 {
        let mut state = 1_i32;
        // SAFETY: the event is live; the value has four bytes.
        unsafe { (self.calls.event_info)(event, 0x11d3, 4, (&raw mut state).cast(), null_mut()) };
        state
    }
}

/// A wait list of at most one event.
fn wait_list(after: &Option<Event>) -> (c_uint, *const Object) {
    match after {
        Some(event) => (1, event),
        None => (0, null()),
    }
}

impl Driver for ClDriver {
    const NAME: &'static str = "opencl";
    const MAPS_PAGES: bool = false;

    fn enter(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> Result<Address, BackendError> {
        let mut parts = self.parts.borrow_mut();
        let index = parts.iter().position(Option::is_none).unwrap_or_else(|| {
            parts.push(None);
            parts.len() - 1
        });
        if index >= 1 << 16 {
            return Err(BackendError::System { call: "reserve", reason: "65,536 regions are reserved".to_owned() });
        }
        parts[index] = Some(Part { reserved: bytes, buffer: null_mut(), bytes: 0, pages: 0 });
        Ok((index as u64 + 1) << REGION_BITS)
    }

    fn unreserve(&self, address: Address, _bytes: u64) {
        let index = (address >> REGION_BITS) as usize;
        let mut parts = self.parts.borrow_mut();
        let part = index.checked_sub(1).and_then(|index| parts.get_mut(index)).and_then(Option::take);
        if let Some(part) = part.filter(|part| !part.buffer.is_null()) {
            // SAFETY: the buffer is the region's own and both queues are drained.
            unsafe { (self.calls.release_buffer)(part.buffer) };
        }
    }

    fn map(&self, address: Address, bytes: u64) -> Result<u64, BackendError> {
        self.set(address, |part| part.pages += bytes / PAGE);
        Ok(0)
    }

    fn unmap(&self, address: Address, bytes: u64, _handle: u64) {
        self.set(address, |part| {
            part.pages -= bytes / PAGE;
            if part.pages == 0 && !part.buffer.is_null() {
                // SAFETY: the buffer is the region's own, both queues are drained, and no page of it is used.
                unsafe { (self.calls.release_buffer)(part.buffer) };
                (part.buffer, part.bytes) = (null_mut(), 0);
            }
        });
    }

    fn open(&self, address: Address, bytes: u64) -> Result<(), BackendError> {
        self.drain();
        self.grow(address, (address & ((1 << REGION_BITS) - 1)) + bytes)?;
        let (buffer, offset) = self.resolve(address)?;
        let zero = 0_u32;
        // SAFETY: the range lies in the buffer, and the pattern is copied by the call.
        unsafe {
            let pattern = (&raw const zero).cast();
            let status =
                (self.calls.fill)(self.copies, buffer, pattern, 4, offset, bytes as usize, 0, null(), null_mut());
            check("clEnqueueFillBuffer", status)?;
            check("clFinish", (self.calls.finish)(self.copies))
        }
    }

    fn write(&self, to: Address, bytes: &[u8]) -> Result<(), BackendError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (buffer, offset) = self.resolve(to)?;
        let from = bytes.as_ptr().cast();
        // SAFETY: the range lies in the buffer; the call returns when it is done with the slice.
        let status =
            unsafe { (self.calls.write)(self.copies, buffer, 1, offset, bytes.len(), from, 0, null(), null_mut()) };
        check("clEnqueueWriteBuffer", status)
    }

    fn read(&self, from: Address, bytes: &mut [u8]) -> Result<(), BackendError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (buffer, offset) = self.resolve(from)?;
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: as in `write`.
        let status =
            unsafe { (self.calls.read)(self.copies, buffer, 1, offset, bytes.len(), to, 0, null(), null_mut()) };
        check("clEnqueueReadBuffer", status)
    }

    fn copy(&self, to: Address, from: Address, bytes: u64, after: Option<Event>) -> Result<Event, BackendError> {
        let ((source, from), (target, to)) = (self.resolve(from)?, self.resolve(to)?);
        let (waits, events) = wait_list(&after);
        let mut event = null_mut();
        // SAFETY: both ranges lie in their buffers, do not overlap, and stay until the queue is drained.
        unsafe {
            let status = if bytes == 0 {
                (self.calls.marker)(self.copies, waits, events, &mut event)
            } else {
                (self.calls.copy)(self.copies, source, target, from, to, bytes as usize, waits, events, &mut event)
            };
            check("clEnqueueCopyBuffer", status)?;
            (self.calls.flush)(self.copies);
        }
        Ok(event)
    }

    fn launch(&self, kernel: &Kernel<Address>, after: Option<Event>) -> Result<Event, BackendError> {
        let (waits, events) = wait_list(&after);
        let mut event = null_mut();
        let kernel = kernel.try_map(|address| self.resolve(address))?;
        let prepared = self.programs.prepare(&self.calls, self.context, self.device, &kernel)?;
        // SAFETY: the kernel's arguments are set, its operands lie in their buffers and stay until the queue is drained.
        unsafe {
            let status = match &prepared {
                None => (self.calls.marker)(self.kernels, waits, events, &mut event),
                Some((object, size)) => (self.calls.launch)(
                    self.kernels,
                    *object,
                    2,
                    null(),
                    size.as_ptr(),
                    null(),
                    waits,
                    events,
                    &mut event,
                ),
            };
            check("clEnqueueNDRangeKernel", status)?;
            (self.calls.flush)(self.kernels);
        }
        Ok(event)
    }

    fn is_done(&self, event: Event) -> bool {
        self.state(event) <= 0
    }

    fn wait(&self, event: Event) {
        // SAFETY: the event is live. A failure is found when the event is looked at.
        unsafe { (self.calls.wait)(1, &event) };
    }

    fn drop_event(&self, event: Event) {
        // SAFETY: the event is named nowhere else.
        unsafe { (self.calls.release_event)(event) };
    }

    fn drain(&self) {
        // SAFETY: the queues live as long as `self`. A failure is found when the events are looked at.
        unsafe {
            (self.calls.finish)(self.copies);
            (self.calls.finish)(self.kernels);
        }
    }

    fn span(&self, event: Event) -> Option<Span> {
        Some(Span { start: self.time(event, 0x1282)?, end: self.time(event, 0x1283)? })
    }

    fn failure(&self, event: Event) -> Option<BackendError> {
        check("an operation on the device", self.state(event).min(0)).err()
    }
}

impl Drop for ClDriver {
    fn drop(&mut self) {
        self.programs.release(&self.calls);
        let objects = [
            (self.copies, self.calls.release_queue),
            (self.kernels, self.calls.release_queue),
            (self.context, self.calls.release_context),
        ];
        for (object, release) in objects {
            if !object.is_null() {
                // SAFETY: made by this driver, released once, and nothing uses it after this.
                unsafe { release(object) };
            }
        }
    }
}
