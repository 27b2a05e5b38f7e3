//! `--on`: the real memory that a command runs on.

use super::args::OnArg;
use npumem::backend::backend::SpaceInfo;
use npumem::backend::{Compute, Cuda, Host, OpenCl};
use npumem::ir::Bytes;

/// A device with one space of so many bytes, and its name.
pub fn open(on: OnArg, bytes: Bytes) -> Result<(Box<dyn Compute>, String), String> {
    let failed = |error: npumem::backend::BackendError| format!("--on {}: {error}", word(on));
    if on != OnArg::Cuda
        && let Some(free) = free_memory()
        && bytes > free
    {
        return Err(format!("--on {}: {bytes} are needed, and this machine has {free} free", word(on)));
    }
    match on {
        OnArg::Host => {
            let page = Bytes(if bytes.get() < 64 << 20 { 4096 } else { 2 << 20 });
            let space = SpaceInfo { name: "hbm".to_owned(), capacity: bytes, page };
            Ok((Box::new(Host::new(vec![space]).map_err(failed)?), "host".to_owned()))
        }
        OnArg::Opencl => {
            let device = OpenCl::open(0, Some(bytes)).map_err(failed)?;
            let name = format!("OpenCL ({}, {})", device.about().name, device.about().platform);
            Ok((Box::new(device), name))
        }
        OnArg::Cuda => Ok((Box::new(Cuda::open(0, Some(bytes)).map_err(failed)?), "CUDA".to_owned())),
    }
}

/// How the option spells it.
pub fn word(on: OnArg) -> &'static str {
    match on {
        OnArg::Host => "host",
        OnArg::Opencl => "opencl",
        OnArg::Cuda => "cuda",
    }
}

/// What this machine can still give, where it says so.
fn free_memory() -> Option<Bytes> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}
