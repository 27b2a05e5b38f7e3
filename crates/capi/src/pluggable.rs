//! The two functions that a framework's pluggable allocator names: addresses in, addresses out.

use crate::keep_error;
use npumem_allocator::Handle;
use npumem_backend::{Host, Memory, MemoryOptions};
use npumem_ir::{Bytes, SpaceId};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Host memory that one device's pool may use.
const CAPACITY: Bytes = Bytes(1 << 40);

#[derive(Default)]
struct Pools {
    memories: HashMap<c_int, Memory>,
    /// Address to handle: frameworks free by address.
    live: HashMap<(c_int, usize), Handle>,
}

fn pools() -> &'static Mutex<Pools> {
    static POOLS: OnceLock<Mutex<Pools>> = OnceLock::new();
    POOLS.get_or_init(Mutex::default)
}

impl Pools {
    fn allocate(&mut self, bytes: u64, device: c_int) -> Result<usize, Box<dyn std::error::Error>> {
        let memory = match self.memories.get(&device) {
            Some(memory) => memory.clone(),
            None => {
                let host = Host::with_two_spaces(CAPACITY, Bytes(1 << 20))?;
                let memory = Memory::new(host, MemoryOptions::default())?;
                self.memories.insert(device, memory.clone());
                memory
            }
        };
        let buffer = memory.allocate(SpaceId(0), Bytes(bytes))?;
        let address = buffer.address()? as usize;
        self.live.insert((device, address), buffer.into_handle());
        Ok(address)
    }

    fn free(&mut self, address: usize, device: c_int) -> Result<(), Box<dyn std::error::Error>> {
        let handle = self.live.remove(&(device, address));
        let handle = handle.ok_or_else(|| format!("address {address:#x} of device {device} is not live"))?;
        let memory = self.memories.get(&device).ok_or("the device has no pool")?;
        Ok(memory.free(SpaceId(0), handle)?)
    }
}

/// See `npumem.h`.
#[unsafe(no_mangle)]
pub extern "C" fn npumem_malloc(size: isize, device: c_int, _stream: *mut c_void) -> *mut c_void {
    let outcome = match u64::try_from(size) {
        // Frameworks ask for nothing now and then, and expect nothing.
        Ok(0) => return std::ptr::null_mut(),
        Ok(bytes) => pools().lock().unwrap_or_else(PoisonError::into_inner).allocate(bytes, device),
        Err(_) => Err(format!("{size} bytes").into()),
    };
    match outcome {
        Ok(address) => address as *mut c_void,
        Err(error) => {
            keep_error(&error);
            std::ptr::null_mut()
        }
    }
}

/// See `npumem.h`. An address that is not live is kept as the last error and nothing is done.
#[unsafe(no_mangle)]
pub extern "C" fn npumem_free(pointer: *mut c_void, _size: isize, device: c_int, _stream: *mut c_void) {
    if pointer.is_null() {
        return;
    }
    let outcome = pools().lock().unwrap_or_else(PoisonError::into_inner).free(pointer as usize, device);
    if let Err(error) = outcome {
        keep_error(&error);
    }
}
