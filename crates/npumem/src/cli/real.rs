//! `--on`: the real memory that a command runs on.

use super::args::OnArg;
use npumem::backend::backend::SpaceInfo;
use npumem::backend::{BackendError, Compute, Cuda, Host, OpenCl};
use npumem::ir::Bytes;

/// A device with one space of so many bytes, and its name.
pub fn open(on: OnArg, bytes: Bytes) -> Result<(Box<dyn Compute>, String), String> {
    let failed = |error: BackendError| format!("--on {}: {error}", word(on));
    if on != OnArg::Cuda
        && let Some(free) = free_memory()
        && bytes > free
    {
        return Err(format!("--on {}: {bytes} are needed, and this machine has {free} free", word(on)));
    }
    device(on, bytes).map_err(failed)
}

/// The same without a look at what is free.
pub fn device(on: OnArg, bytes: Bytes) -> Result<(Box<dyn Compute>, String), BackendError> {
    match on {
        OnArg::Host => {
            let page = Bytes(if bytes.get() < 64 << 20 { 4096 } else { 2 << 20 });
            let capacity = Bytes(bytes.get().saturating_add(page.get()));
            let space = SpaceInfo { name: "hbm".to_owned(), capacity, page };
            Ok((Box::new(Host::new(vec![space])?), "host".to_owned()))
        }
        OnArg::Opencl => {
            let device = OpenCl::open(0, Some(bytes))?;
            let name = format!("OpenCL ({}, {})", device.about().name, device.about().platform);
            Ok((Box::new(device), name))
        }
        OnArg::Cuda => Ok((Box::new(Cuda::open(0, Some(bytes))?), "CUDA".to_owned())),
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
pub fn free_memory() -> Option<Bytes> {
    meminfo("MemAvailable:")
}

fn meminfo(key: &str) -> Option<Bytes> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

/// All memory of this machine, and who says so.
pub fn all_memory() -> Option<(Bytes, String)> {
    meminfo("MemTotal:").map(|bytes| (bytes, "MemTotal of /proc/meminfo: what the system manages".to_owned()))
}

/// The processor's name.
pub fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    let name = line.split_once(':')?.1.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Today, as `2026-11-30`, in universal time.
pub fn today() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    date(now.map_or(0, |since| since.as_secs()) / 86_400)
}

/// The date of a day counted from 1970-01-01: eras of 400 years from a March on.
fn date(days: u64) -> String {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, year) } else { (month - 9, year + 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year)
}

/// What the system says of the caches, in words, to lay beside what was measured.
pub fn system_caches() -> Option<String> {
    let mut caches = Vec::new();
    for index in 0..8 {
        let read = |what: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}");
            std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
        };
        let (Some(level), Some(kind), Some(size)) = (read("level"), read("type"), read("size")) else { continue };
        if kind != "Instruction" {
            caches.push(format!("L{level} {size}"));
        }
    }
    (!caches.is_empty()).then(|| format!("the system says: {}", caches.join(", ")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn days_are_dates() {
        let cases = [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_787, "2026-11-30"),
            (47_540, "2100-02-28"),
        ];
        for (days, wanted) in cases {
            assert_eq!(super::date(days), wanted);
        }
    }
}
