//! A kill at any instant loses no event that was flushed.
#![allow(clippy::unwrap_used)]
use npumem_backend::{Host, Memory, MemoryOptions};
use npumem_ir::{Bytes, SpaceId, Trace};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const CHILD: &str = "NPUMEM_TEST_CRASH_TRACE";

/// In the child: records for ever, and notes beside the trace how many events were flushed.
fn record(path: &str) {
    let memory = Memory::new(Host::with_two_spaces(Bytes(64 << 20), Bytes(1 << 20)).unwrap(), MemoryOptions::default());
    let memory = memory.unwrap();
    memory.record_to(Box::new(std::fs::File::create(path).unwrap())).unwrap();
    let mut flushed = std::fs::File::create(format!("{path}.flushed")).unwrap();
    let mut events = 0_u64;
    loop {
        for size in 1..500 {
            drop(memory.allocate(SpaceId(0), Bytes(size)).unwrap());
            events += 2;
        }
        memory.flush_trace().unwrap();
        flushed.write_all(&events.to_le_bytes()).unwrap();
    }
}

#[test]
fn a_killed_process_leaves_a_readable_trace() {
    if let Ok(path) = std::env::var(CHILD) {
        record(&path);
    }
    for (round, wait) in [60_u64, 110, 230].into_iter().enumerate() {
        let path: PathBuf = std::env::temp_dir().join(format!("npumem-crash-{}-{round}", std::process::id()));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_killed_process_leaves_a_readable_trace"])
            .env(CHILD, &path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let notes = path.with_extension("flushed");
        let notes = if notes.exists() { notes } else { PathBuf::from(format!("{}.flushed", path.display())) };
        while std::fs::metadata(&notes).map_or(0, |meta| meta.len()) < 8 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        std::thread::sleep(std::time::Duration::from_millis(wait));
        child.kill().unwrap();
        child.wait().unwrap();
        let (trace, ending) = Trace::read(std::fs::File::open(&path).unwrap()).unwrap();
        let noted = std::fs::read(&notes).unwrap();
        let last = noted.len() / 8 * 8;
        let flushed = u64::from_le_bytes(noted[last - 8..last].try_into().unwrap());
        assert!(
            trace.events.len() as u64 >= flushed,
            "{} events, {flushed} were flushed ({ending:?})",
            trace.events.len()
        );
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&notes).unwrap();
    }
}
