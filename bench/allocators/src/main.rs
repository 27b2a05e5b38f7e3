//! Replays recorded traces through our allocators and today's peers, side by side in each round.
//!
//! `bench-allocators time ROUNDS NAME=FILE...` prints one JSON line per trace and allocator;
//! `bench-allocators count NAME=FILE` replays the default once, for an instruction counter;
//! `bench-allocators capacity NAME=FILE...` searches the smallest device; `bench-allocators hybrid ROUNDS NAME=FILE...` the planned iterations;
//! `bench-allocators threads ROUNDS NAME=FILE...` one and two threads on one pool.
mod hybrid;
mod peers;

use npumem_allocator::{Allocator, Call, Calls, Front, Handle, PageSource, Paged, PagedOptions, Request, Shared};
use npumem_ir::Bytes;
use serde_json::json;
use std::hint::black_box;
use std::time::Instant;

/// A device whose driver calls cost nothing and are counted by the allocator.
struct Free;

impl PageSource for Free {
    fn map(&mut self, _: u32, _: u32) -> Result<(), String> {
        Ok(())
    }
    fn unmap(&mut self, _: u32, _: u32) {}
}

/// What is measured: one allocation and its key.
pub trait Subject {
    fn allocate(&mut self, bytes: u64) -> u64;
    fn free(&mut self, key: u64);
    /// Peak reserved bytes, where the allocator grows or its highest end is known.
    fn reserved(&self) -> Option<u64> {
        None
    }
    fn driver_calls(&self) -> u64 {
        0
    }
}

impl Subject for Paged<Free> {
    #[inline]
    fn allocate(&mut self, bytes: u64) -> u64 {
        match Allocator::allocate(self, Request::new(bytes)) {
            Ok(block) => block.handle.to_bits(),
            Err(error) => panic!("{error}"),
        }
    }
    #[inline]
    fn free(&mut self, key: u64) {
        if let Some(handle) = Handle::from_bits(key) {
            assert!(Allocator::free(self, handle).is_ok(), "stale handle");
        }
    }
    fn reserved(&self) -> Option<u64> {
        Some(self.statistics().peak_reserved.get())
    }
    fn driver_calls(&self) -> u64 {
        self.page_counts().maps + self.page_counts().unmaps
    }
}

/// The empty harness.
struct Nothing;

impl Subject for Nothing {
    #[inline]
    fn allocate(&mut self, bytes: u64) -> u64 {
        black_box(bytes)
    }
    #[inline]
    fn free(&mut self, key: u64) {
        black_box(key);
    }
}

#[inline(never)]
fn replay<S: Subject>(subject: &mut S, calls: &[Call], keys: &mut [u64]) {
    for call in calls {
        match *call {
            Call::Allocate { slot, bytes } => keys[slot as usize] = subject.allocate(bytes),
            Call::Free { slot } => subject.free(keys[slot as usize]),
            Call::Mark => {}
        }
    }
}

fn thread_nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live value of the type that the call fills.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

struct Series<'a> {
    name: &'static str,
    make: Box<dyn Fn() -> Box<dyn Run> + 'a>,
    best_total: u64,
    best: Vec<u32>,
    driver: Vec<bool>,
    reserved: Option<u64>,
}

/// A subject behind one virtual call per replay, so that calls inside are static.
trait Run {
    fn whole(&mut self, calls: &[Call], keys: &mut [u64]);
    fn each(&mut self, calls: &[Call], keys: &mut [u64], best: &mut [u32], driver: &mut [bool]);
    fn reserved(&self) -> Option<u64>;
}

impl<S: Subject> Run for S {
    fn whole(&mut self, calls: &[Call], keys: &mut [u64]) {
        replay(self, calls, keys);
    }

    fn each(&mut self, calls: &[Call], keys: &mut [u64], best: &mut [u32], driver: &mut [bool]) {
        let mut before = 0;
        for (index, call) in calls.iter().enumerate() {
            let start = Instant::now();
            match *call {
                Call::Allocate { slot, bytes } => keys[slot as usize] = self.allocate(bytes),
                Call::Free { slot } => self.free(keys[slot as usize]),
                Call::Mark => {}
            }
            let took = start.elapsed().as_nanos() as u32;
            best[index] = best[index].min(took);
            let after = self.driver_calls();
            driver[index] |= after != before;
            before = after;
        }
    }

    fn reserved(&self) -> Option<u64> {
        Subject::reserved(self)
    }
}

fn percentile(sorted: &[u32], share: f64) -> u32 {
    if sorted.is_empty() { 0 } else { sorted[((sorted.len() - 1) as f64 * share) as usize] }
}

fn time(name: &str, calls: &Calls, rounds: u32) {
    let peak = calls.peak_live().get();
    let events = &calls.calls[..];
    let mut keys = vec![0; calls.slots as usize];
    let series = |name, make: Box<dyn Fn() -> Box<dyn Run>>| Series {
        name,
        make,
        best_total: u64::MAX,
        best: vec![u32::MAX; events.len()],
        driver: vec![false; events.len()],
        reserved: None,
    };
    let mut all = vec![
        series("harness", Box::new(|| Box::new(Nothing))),
        series("npumem", Box::new(|| Box::new(Paged::new(PagedOptions::default(), Free)))),
        series("offset-allocator", Box::new(move || Box::new(peers::OffsetAllocator::new(peak)))),
        series("buddy-frame", Box::new(move || Box::new(peers::BuddyFrames::new(peak)))),
        series("range-alloc", Box::new(move || Box::new(peers::RangeAlloc::new(peak)))),
    ];
    for _ in 0..rounds {
        for one in &mut all {
            let mut subject = (one.make)();
            let start = thread_nanoseconds();
            subject.whole(events, &mut keys);
            one.best_total = one.best_total.min(thread_nanoseconds() - start);
            one.reserved = subject.reserved();
            drop(subject);
            let mut subject = (one.make)();
            subject.each(events, &mut keys, &mut one.best, &mut one.driver);
        }
    }
    // What two looks at the clock cost, measured as the empty harness was.
    let mut empty = all[0].best.clone();
    empty.sort_unstable();
    let clock = percentile(&empty, 0.5);
    for one in &all {
        let split = |wanted: &dyn Fn(usize) -> bool| {
            let mut times: Vec<u32> =
                (0..events.len()).filter(|index| wanted(*index)).map(|index| one.best[index].saturating_sub(clock)).collect();
            times.sort_unstable();
            json!({ "calls": times.len(), "p50": percentile(&times, 0.5), "p99": percentile(&times, 0.99),
                    "p99_9": percentile(&times, 0.999), "max": percentile(&times, 1.0) })
        };
        println!(
            "{}",
            json!({
                "trace": name, "allocator": one.name, "events": events.len(),
                "mean_ns": one.best_total as f64 / events.len() as f64,
                "all": split(&|_| true),
                "without_driver_call": split(&|index| !one.driver[index]),
                "footprint": one.reserved.map(|reserved| reserved as f64 / peak as f64),
                "clock_ns": clock, "rounds": rounds,
            })
        );
    }
}

fn runs_within(calls: &Calls, pages: u64) -> Option<npumem_allocator::PageCounts> {
    let options = PagedOptions { limit: Some(Bytes(pages << 21)), ..PagedOptions::default() };
    let mut paged = Paged::new(options, Free);
    let replayed = npumem_allocator::replay(&mut paged, calls, |_| {});
    (replayed.failed == 0).then(|| paged.page_counts())
}

fn capacity(name: &str, calls: &Calls) {
    let peak = calls.peak_live().get();
    let (mut low, mut high) = (peak >> 21, (peak >> 21) * 2 + 8);
    while low < high {
        let middle = (low + high) / 2;
        if runs_within(calls, middle).is_some() { high = middle } else { low = middle + 1 }
    }
    let counts = runs_within(calls, low).unwrap_or_default();
    println!(
        "{}",
        json!({ "trace": name, "smallest_over_live": (low << 21) as f64 / peak as f64, "map_calls": counts.maps,
                "unmap_calls": counts.unmaps, "pages_mapped": counts.pages_mapped, "pages_unmapped": counts.pages_unmapped })
    );
}

/// One thread's turns through the trace, through a front of the shared pool.
fn thread_turns(front: &mut Front<Paged<Free>>, calls: &[Call], slots: u32, turns: u32) {
    let mut keys: Vec<Option<Handle>> = vec![None; slots as usize];
    for _ in 0..turns {
        for call in calls {
            match *call {
                Call::Allocate { slot, bytes } => match front.allocate(Request::new(bytes)) {
                    Ok(block) => keys[slot as usize] = Some(block.handle),
                    Err(error) => panic!("{error}"),
                },
                Call::Free { slot } => {
                    if let Some(handle) = keys[slot as usize].take() {
                        assert!(front.free(handle).is_ok(), "stale handle");
                    }
                }
                Call::Mark => {}
            }
        }
        for handle in keys.iter_mut().filter_map(Option::take) {
            assert!(front.free(handle).is_ok(), "stale handle");
        }
    }
}

/// Calls a second of one and of two threads on one pool, by wall clock: the best of the rounds.
fn threads(name: &str, calls: &Calls, rounds: u32) {
    const TURNS: u32 = 64;
    for (kind, batch) in [("a lock", 1), ("a lock and fronts of 16", 16)] {
        let mut best = [u128::MAX; 2];
        for _ in 0..rounds {
            for (index, count) in [1, 2].into_iter().enumerate() {
                let shared = Shared::new(Paged::new(PagedOptions::default(), Free));
                let barrier = std::sync::Barrier::new(count);
                let took = std::thread::scope(|scope| {
                    let workers: Vec<_> = (0..count)
                        .map(|_| {
                            scope.spawn(|| {
                                let mut front = shared.front(batch);
                                barrier.wait();
                                let start = Instant::now();
                                thread_turns(&mut front, &calls.calls, calls.slots, TURNS);
                                (start, Instant::now())
                            })
                        })
                        .collect();
                    // From the first start to the last end: threads that run one after the other gain nothing.
                    let spans: Vec<_> = workers.into_iter().map(|worker| worker.join().expect("a worker")).collect();
                    let first = spans.iter().map(|span| span.0).min().expect("a worker");
                    spans.iter().map(|span| (span.1 - first).as_nanos()).max().unwrap_or(0)
                });
                best[index] = best[index].min(took);
            }
        }
        let total = f64::from(TURNS) * calls.calls.len() as f64;
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        println!(
            "{}",
            json!({ "trace": name, "pool": kind, "one_ns_per_call": best[0] as f64 / total,
                    "two_ns_per_call": best[1] as f64 / (2.0 * total), "ratio": 2.0 * best[0] as f64 / best[1] as f64,
                    "load_average": load.split(' ').next().and_then(|load| load.parse::<f64>().ok()) })
        );
    }
}

fn load(argument: &str) -> (String, Calls) {
    let (name, path) = argument.split_once('=').unwrap_or_else(|| panic!("{argument} is not NAME=FILE"));
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let calls = Calls::parse(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
    (name.to_owned(), calls)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("time") => {
            let rounds = arguments[1].parse().expect("a number of rounds");
            for argument in &arguments[2..] {
                let (name, calls) = load(argument);
                time(&name, &calls, rounds);
            }
        }
        Some("capacity") => {
            for argument in &arguments[1..] {
                let (name, calls) = load(argument);
                capacity(&name, &calls);
            }
        }
        Some("count") => {
            let (_, calls) = load(&arguments[1]);
            let mut keys = vec![0; calls.slots as usize];
            let mut paged = Paged::new(PagedOptions::default(), Free);
            replay(&mut paged, &calls.calls, &mut keys);
            println!("{}", calls.calls.len());
            let footprint = paged.statistics().peak_reserved.get() as f64 / calls.peak_live().get() as f64;
            eprintln!("footprint {footprint:.4} {:?}", paged.page_counts());
        }
        Some("threads") => {
            let rounds = arguments[1].parse().expect("a number of rounds");
            for argument in &arguments[2..] {
                let (name, calls) = load(argument);
                threads(&name, &calls, rounds);
            }
        }
        Some("hybrid") => {
            let rounds = arguments[1].parse().expect("a number of rounds");
            hybrid::run(rounds);
            hybrid::traces(&arguments[2..], rounds);
        }
        _ => panic!("time ROUNDS NAME=FILE... | capacity NAME=FILE... | count NAME=FILE | hybrid ROUNDS NAME=FILE... | threads ROUNDS NAME=FILE..."),
    }
}
