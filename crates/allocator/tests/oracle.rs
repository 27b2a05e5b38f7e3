//! The caching allocator against the recorded answers of PyTorch 2.15.0's own binary, event for event.
#![allow(clippy::unwrap_used)]
use npumem_allocator::caching::{Action, Event};
use npumem_allocator::{Allocator, Caching, Handle, Request, SegmentSource, Settings};
use npumem_ir::Bytes;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// The driver that the recordings assume: segments at rising addresses of 2 MiB steps,
/// reservations at rising addresses in another range, to the next full GiB and at least one byte apart.
struct Driver {
    total: u64,
    used: u64,
    segments: u64,
    reservations: u64,
}

impl SegmentSource for Driver {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        if self.used + bytes > self.total {
            return None;
        }
        self.used += bytes;
        let address = self.segments;
        self.segments += bytes.next_multiple_of(2 << 20);
        Some(address)
    }
    fn give(&mut self, _: u64, bytes: u64) {
        self.used -= bytes;
    }
    fn reserve(&mut self, bytes: u64) -> Option<u64> {
        let address = self.reservations;
        self.reservations += (bytes / (1 << 30) + 1) * (1 << 30);
        Some(address)
    }
    fn unreserve(&mut self, _: u64, _: u64) {}
    fn map(&mut self, _: u64, bytes: u64, page: u64) -> bool {
        assert_eq!(bytes % page, 0);
        if self.used + bytes > self.total {
            return false;
        }
        self.used += bytes;
        true
    }
    fn unmap(&mut self, _: u64, bytes: u64) {
        self.used -= bytes;
    }
    fn capacity(&self) -> Option<u64> {
        Some(self.total)
    }
    fn free_bytes(&self) -> u64 {
        self.total - self.used
    }
}

struct Recording {
    config: String,
    total: u64,
    fraction: f64,
    calls: Vec<Vec<String>>,
    answers: Vec<Vec<String>>,
}

fn read(path: &Path) -> Recording {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let (calls, answers) = text.split_once("--\n").unwrap();
    let mut lines = calls.lines();
    let config = lines.next().unwrap().strip_prefix("config").unwrap().trim().to_owned();
    let total = lines.next().unwrap().strip_prefix("total_bytes ").unwrap().parse().unwrap();
    let fraction = lines.next().unwrap().strip_prefix("fraction ").unwrap().parse().unwrap();
    let words = |line: &str| line.split_ascii_whitespace().map(str::to_owned).collect();
    Recording {
        config,
        total,
        fraction,
        calls: lines.map(words).collect(),
        answers: answers.lines().map(words).collect(),
    }
}

/// Within one batch the order of completed frees across streams is not part of the answer.
fn sort_completed(events: &mut [Event]) {
    for run in events.chunk_by_mut(|a, b| a.action == Action::FreeCompleted && b.action == Action::FreeCompleted) {
        run.sort();
    }
}

fn replay(path: &Path) -> usize {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let recording = read(path);
    let first = |action: &str| {
        let found = recording.answers.iter().find(|words| words[0] == action);
        found.map_or(0, |words| words[1].parse().unwrap())
    };
    let driver = Driver {
        total: recording.total,
        used: 0,
        segments: first("segment_alloc"),
        reservations: first("segment_map"),
    };
    let mut caching = Caching::new(Settings::parse(&recording.config).unwrap(), driver);
    if recording.fraction < 1.0 {
        caching.set_allowed(Some(Bytes((recording.total as f64 * recording.fraction) as u64)));
    }
    caching.record_events();
    let mut handles: BTreeMap<&str, Handle> = BTreeMap::new();
    for (index, call) in recording.calls.iter().enumerate() {
        match call[0].as_str() {
            "A" => {
                let request = Request::new(call[2].parse().unwrap());
                if let Ok(block) = caching.allocate_on(request, call[3].parse().unwrap()) {
                    handles.insert(&call[1], block.handle);
                }
            }
            "F" => {
                if let Some(handle) = handles.remove(call[1].as_str()) {
                    caching.free(handle).unwrap();
                }
            }
            "R" => {
                if let Some(handle) = handles.get(call[1].as_str()) {
                    caching.record_use(*handle, call[2].parse().unwrap()).unwrap();
                }
            }
            "E" => caching.release_all(),
            "V" => caching.set_events_ready(call[1] == "1"),
            other => panic!("{name}: call {other}"),
        }
        if index % 97 == 0 {
            caching.verify().unwrap();
        }
    }
    let mut events = caching.take_events();
    let mut expected: Vec<Event> = recording
        .answers
        .iter()
        .filter_map(|words| {
            let action = match words[0].as_str() {
                "alloc" => Action::Alloc,
                "free_requested" => Action::FreeRequested,
                "free_completed" => Action::FreeCompleted,
                "segment_alloc" => Action::SegmentAlloc,
                "segment_free" => Action::SegmentFree,
                "segment_map" => Action::SegmentMap,
                "segment_unmap" => Action::SegmentUnmap,
                "oom" => Action::OutOfMemory,
                _ => return None,
            };
            let number = |index: usize| words[index].parse::<u64>().unwrap();
            Some(Event { action, address: number(1), bytes: number(2), stream: number(3) as u32 })
        })
        .collect();
    sort_completed(&mut events);
    sort_completed(&mut expected);
    for (index, (found, expected)) in events.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "{name} ({}): event {index} of {}", recording.config, events.len());
    }
    assert_eq!(events.len(), expected.len(), "{name}: number of events");
    final_state(&name, &recording, &caching);
    events.len()
}

fn final_state(name: &str, recording: &Recording, caching: &Caching<Driver>) {
    let mut lines = Vec::new();
    for segment in caching.segments() {
        let flag = |flag: bool| u8::from(flag).to_string();
        let head =
            ["SEG".to_owned(), segment.address.to_string(), segment.bytes.to_string(), segment.stream.to_string()];
        lines.push([&head[..], &[flag(segment.large), flag(segment.expandable)]].concat());
        for (bytes, requested, allocated, active) in segment.blocks {
            // A free block may keep a stale number of requested bytes: not part of the answer.
            let requested = if active { requested } else { 0 };
            lines.push(vec!["BLK".to_owned(), bytes.to_string(), requested.to_string(), flag(allocated), flag(active)]);
        }
    }
    let mut expected: Vec<Vec<String>> =
        recording.answers.iter().filter(|words| words[0] == "SEG" || words[0] == "BLK").cloned().collect();
    for words in &mut expected {
        if words[0] == "BLK" && words[4] == "0" {
            words[2] = "0".to_owned();
        }
    }
    assert_eq!(lines, expected, "{name}: final segments");
    let stat = recording.answers.iter().find(|words| words[0] == "STAT").unwrap();
    let number = |key: &str| {
        let index = stat.iter().position(|word| word == key).unwrap();
        stat[index + 1].parse::<u64>().unwrap()
    };
    let counts = caching.counts();
    let found = [
        ("reserved_peak", caching.statistics().peak_reserved.get()),
        ("alloc_peak", counts.allocated_peak),
        ("active_peak", counts.active_peak),
        ("retries", counts.retries),
        ("ooms", counts.ooms),
    ];
    for (key, found) in found {
        assert_eq!(found, number(key), "{name}: {key}");
    }
}

#[test]
fn forty_recordings_of_the_original_event_for_event() {
    let Some(folder) = npumem_testing::shared("data/snapshots/allocator-oracle") else { return };
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "gz"));
    paths.sort();
    assert_eq!(paths.len(), 40);
    let mut events = 0;
    let mut failed = Vec::new();
    for path in &paths {
        match std::panic::catch_unwind(|| replay(path)) {
            Ok(count) => events += count,
            Err(_) => failed.push(path.file_name().unwrap().to_string_lossy().into_owned()),
        }
    }
    assert!(failed.is_empty(), "{} of 40 failed: {failed:?}", failed.len());
    assert!(events > 100_000, "{events} events");
}
