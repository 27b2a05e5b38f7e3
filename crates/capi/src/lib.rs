//! npumem's run-time memory for C: `include/npumem.h`, as a shared and a static library.
//!
//! Everything behind a pointer here comes from a caller that the compiler cannot check; each function checks
//! what it can (null, text, numbers) and hands the rest to the safe API of `npumem-backend`.
#![allow(unsafe_code)]

use npumem_allocator::Handle;
use npumem_backend::{Host, Memory, MemoryOptions};
use npumem_ir::{Alignment, Bytes, SpaceId};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Mutex;

mod pluggable;

pub use pluggable::{npumem_free, npumem_malloc};

/// Device memory as C sees it.
pub struct CMemory {
    memory: Memory,
    scopes: Mutex<Vec<npumem_backend::memory::Scope>>,
}

/// A block as C sees it.
#[repr(C)]
pub struct CBlock {
    handle: u64,
    offset: u64,
    address: *mut c_void,
}

/// The numbers of a space as C sees them.
#[repr(C)]
pub struct CStatistics {
    live: u64,
    peak_live: u64,
    reserved: u64,
    peak_reserved: u64,
    largest_free: u64,
    blocks: u64,
    allocations: u64,
    frees: u64,
    failures: u64,
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

fn keep_error(error: &dyn std::fmt::Display) {
    let text = error.to_string().replace('\0', " ");
    LAST_ERROR.with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
}

/// Runs a call and turns its outcome into what C expects.
fn status(call: impl FnOnce() -> Result<(), Box<dyn std::error::Error>>) -> c_int {
    match call() {
        Ok(()) => 0,
        Err(error) => {
            keep_error(&error);
            1
        }
    }
}

/// # Safety
/// `memory` is null or came from `npumem_memory_host` and was not destroyed.
unsafe fn given<'a>(memory: *mut CMemory) -> Result<&'a CMemory, Box<dyn std::error::Error>> {
    // SAFETY: the caller's promise; null is told apart.
    unsafe { memory.as_ref() }.ok_or_else(|| "the memory is NULL".into())
}

/// # Safety
/// `text` is null or points to a text that ends in a zero byte.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Box<dyn std::error::Error>> {
    if text.is_null() {
        return Err("the text is NULL".into());
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_str()?)
}

/// See `npumem.h`.
#[unsafe(no_mangle)]
pub extern "C" fn npumem_memory_host(hbm_bytes: u64, sram_bytes: u64) -> *mut CMemory {
    let host = match Host::with_two_spaces(Bytes(hbm_bytes), Bytes(sram_bytes)) {
        Ok(host) => host,
        Err(error) => {
            keep_error(&error);
            return std::ptr::null_mut();
        }
    };
    match Memory::new(host, MemoryOptions::default()) {
        Ok(memory) => Box::into_raw(Box::new(CMemory { memory, scopes: Mutex::default() })),
        Err(error) => {
            keep_error(&error);
            std::ptr::null_mut()
        }
    }
}

/// See `npumem.h`.
///
/// # Safety
/// `memory` is null or came from `npumem_memory_host` and was not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn npumem_memory_destroy(memory: *mut CMemory) {
    if !memory.is_null() {
        // SAFETY: the pointer came from `Box::into_raw` and is given up here.
        let memory = unsafe { Box::from_raw(memory) };
        if let Ok(mut scopes) = memory.scopes.lock() {
            scopes.clear();
        }
    }
}

/// See `npumem.h`.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn npumem_memory_allocate(
    memory: *mut CMemory,
    space: u32,
    bytes: u64,
    alignment: u64,
    block: *mut CBlock,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let memory = unsafe { given(memory) }?;
        // SAFETY: the caller's promise; null is told apart.
        let out = unsafe { block.as_mut() }.ok_or("the block is NULL")?;
        let alignment = Alignment::new(alignment.max(1)).unwrap_or_default();
        let buffer = memory.memory.allocate_aligned(SpaceId(space), Bytes(bytes), alignment)?;
        let (offset, address) = (buffer.offset().get(), buffer.address()?);
        *out = CBlock { handle: buffer.into_handle().to_bits(), offset, address: address as *mut c_void };
        Ok(())
    })
}

/// See `npumem.h`.
///
/// # Safety
/// `memory` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn npumem_memory_release(memory: *mut CMemory, space: u32, handle: u64) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let memory = unsafe { given(memory) }?;
        let handle = Handle::from_bits(handle).ok_or("the handle is none that was handed out")?;
        Ok(memory.memory.free(SpaceId(space), handle)?)
    })
}

/// See `npumem.h`.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn npumem_memory_mark_step(memory: *mut CMemory, name: *const c_char) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (memory, name) = unsafe { (given(memory)?, text(name)?) };
        memory.memory.mark_step(name);
        Ok(())
    })
}

/// See `npumem.h`.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn npumem_memory_enter(memory: *mut CMemory, name: *const c_char) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (memory, name) = unsafe { (given(memory)?, text(name)?) };
        let scope = memory.memory.scope(name);
        memory.scopes.lock().map_err(|_| "a thread panicked")?.push(scope);
        Ok(())
    })
}

/// See `npumem.h`.
///
/// # Safety
/// `memory` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn npumem_memory_exit(memory: *mut CMemory) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let memory = unsafe { given(memory) }?;
        let scope = memory.scopes.lock().map_err(|_| "a thread panicked")?.pop();
        scope.map(drop).ok_or_else(|| "no scope is open".into())
    })
}

/// See `npumem.h`.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn npumem_memory_statistics(
    memory: *mut CMemory,
    space: u32,
    statistics: *mut CStatistics,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let memory = unsafe { given(memory) }?;
        // SAFETY: the caller's promise; null is told apart.
        let out = unsafe { statistics.as_mut() }.ok_or("the statistics are NULL")?;
        let state = memory.memory.statistics(SpaceId(space))?;
        *out = CStatistics {
            live: state.live.get(),
            peak_live: state.peak_live.get(),
            reserved: state.reserved.get(),
            peak_reserved: state.peak_reserved.get(),
            largest_free: state.largest_free.get(),
            blocks: state.blocks,
            allocations: state.allocations,
            frees: state.frees,
            failures: state.failures,
        };
        Ok(())
    })
}

/// See `npumem.h`.
///
/// # Safety
/// `memory` is null or valid; `text` is null or has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn npumem_memory_holders(memory: *mut CMemory, text: *mut c_char, size: usize) -> usize {
    // SAFETY: the caller's promise.
    let Ok(memory) = (unsafe { given(memory) }) else { return 0 };
    let mut report = String::new();
    for leak in memory.memory.leaks() {
        let scopes: Vec<&str> = leak.frames.iter().skip(1).map(|frame| frame.function.as_str()).collect();
        let place = if scopes.is_empty() { "outside of all scopes".to_owned() } else { scopes.join(" < ") };
        report += &format!("{} in {} blocks, the oldest {} calls ago: {place}\n", leak.bytes, leak.count, leak.age);
    }
    let report = report.replace('\0', " ");
    if !text.is_null() && size > 0 {
        let count = report.len().min(size - 1);
        // SAFETY: `text` has `size` bytes, and `count + 1` of them are written.
        unsafe {
            std::ptr::copy_nonoverlapping(report.as_ptr().cast(), text, count);
            *text.add(count) = 0;
        }
    }
    report.len() + 1
}

/// See `npumem.h`.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn npumem_memory_record(memory: *mut CMemory, path: *const c_char) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (memory, path) = unsafe { (given(memory)?, text(path)?) };
        let file = std::fs::File::create(path).map_err(|error| format!("{path}: {error}"))?;
        Ok(memory.memory.record_to(Box::new(file))?)
    })
}

/// See `npumem.h`.
///
/// # Safety
/// `memory` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn npumem_memory_flush(memory: *mut CMemory) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let memory = unsafe { given(memory) }?;
        Ok(memory.memory.flush_trace()?)
    })
}

/// See `npumem.h`.
#[unsafe(no_mangle)]
pub extern "C" fn npumem_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}
