//! Measures a device's memory through its kernels: the steps of its hierarchy, and what each level delivers.
//!
//! ```text
//!   ns a load ^                                 ______ memory
//!             |                    ____________/
//!             |         __________/  L3                     a chain of dependent loads over a working set that grows:
//!             |  ______/  L2                                where the time steps up, a level is full
//!             +--L1----|----------|------------|----> bytes
//! ```
//! Each figure is the least of several short runs: other work on the machine only ever makes a run slower.

use crate::backend::{BackendError, Place, RegionId};
use crate::compute::{Access, Compute, Element, Kernel, Operand};
use crate::executor::{ExecuteError, Outcome, execute};
use npumem_ir::{Bytes, SpaceId};
use std::sync::atomic::{AtomicBool, Ordering};

pub mod clock;
mod levels;
pub mod tiles;

pub use levels::{Point, find_levels};

/// Bytes of a cache line: what one load of the chain touches.
pub const LINE: u64 = 64;

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeOptions {
    /// The largest working set.
    pub largest: Bytes,
    /// Working sets between two powers of two.
    pub per_octave: u32,
    /// Runs of each measurement.
    pub runs: u32,
    /// Loads of one run of the chain.
    pub loads: u64,
    /// Threads, or groups of work items, that read side by side.
    pub lanes: u32,
}

impl ProbeOptions {
    /// About ten seconds on a CPU.
    #[must_use]
    pub fn full(largest: Bytes, lanes: u32) -> Self {
        Self { largest, per_octave: 4, runs: 24, loads: 1 << 14, lanes }
    }

    /// About two seconds, coarser.
    #[must_use]
    pub fn quick(largest: Bytes, lanes: u32) -> Self {
        Self { largest, per_octave: 2, runs: 10, loads: 1 << 13, lanes }
    }
}

/// One level of the hierarchy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// The largest working set that it holds; of the last level: the largest that was tried.
    pub capacity: Bytes,
    /// Nanoseconds from one dependent load to the next.
    pub latency_ns: f64,
    /// Bytes a second, one thread reading in order.
    pub stream: f64,
    /// Bytes a second, all threads reading in order.
    pub stream_all: f64,
    /// Bytes a second that are used, one word of every fourth line.
    pub strided: f64,
    /// Bytes a second that are used, words at random.
    pub random: f64,
    /// Bytes a second that a copy within it reads.
    pub copy: f64,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Nanoseconds a load by working set.
    pub curve: Vec<Point>,
    /// The levels, the nearest first.
    pub levels: Vec<Level>,
    /// Bytes a second of a large copy on the copy queue.
    pub copy_rate: f64,
    /// Nanoseconds of the smallest copy.
    pub copy_startup_ns: f64,
    /// Floating-point operations a second of the matrix product.
    pub product_rate: f64,
    /// Floating-point operations a second of an element by element sum.
    pub add_rate: f64,
    /// A tiled product whose tiles are copied beside it.
    pub tiles: Outcome,
}

/// Why a probe has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The device refused.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The tiled product.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// The caller asked to stop.
    #[error("interrupted: nothing is written")]
    Interrupted,
    /// There is too little memory to see a step.
    #[error("{0} is too small a working set to find a level: at least 1 MiB is needed")]
    TooSmall(Bytes),
}

struct Bench<'a> {
    device: &'a mut dyn Compute,
    region: RegionId,
    options: ProbeOptions,
    cancel: &'a AtomicBool,
}

/// The device memory that a probe takes.
#[must_use]
pub fn memory(options: &ProbeOptions) -> Bytes {
    // The working set, a second one for copies of half its size, results, and the tiles with their staging.
    options.largest.saturating_add(64 << 20)
}

/// Measures a device.
///
/// # Errors
/// When the device refuses, or `cancel` is set.
pub fn probe(device: &mut dyn Compute, options: &ProbeOptions, cancel: &AtomicBool) -> Result<Measured, ProbeError> {
    if options.largest.get() < 1 << 20 {
        return Err(ProbeError::TooSmall(options.largest));
    }
    let page = device.spaces().first().map_or(1, |space| space.page.get());
    let bytes = Bytes((options.largest.get() + RESULTS).next_multiple_of(page));
    let region = device.reserve(SpaceId(0), bytes)?;
    let outcome = device.commit(Place { region, offset: 0 }, bytes).map_err(ProbeError::from).and_then(|()| {
        let mut bench = Bench { device, region, options: *options, cancel };
        bench.measure()
    });
    device.release(region)?;
    let mut measured = outcome?;
    measured.tiles = execute(device, &tiles::product(8, [1024, 256, 16]))?;
    Ok(measured)
}

/// Room behind the working set for what kernels leave.
const RESULTS: u64 = 64 << 10;

impl Bench<'_> {
    fn at(&self, offset: u64) -> Place {
        Place { region: self.region, offset }
    }

    fn results(&self) -> Place {
        self.at(self.options.largest.get().next_multiple_of(LINE))
    }

    /// The least time of a kernel in nanoseconds.
    fn time(&mut self, kernel: &Kernel) -> Result<f64, ProbeError> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(ProbeError::Interrupted);
        }
        self.device.take_spans()?;
        let runs = self.options.runs.max(1) + 1;
        for _ in 0..runs {
            self.device.launch(kernel)?;
        }
        let spans = self.device.take_spans()?;
        let least = spans.kernels.iter().map(|span| span.end.saturating_sub(span.start)).min();
        Ok(least.unwrap_or(0).max(1) as f64)
    }

    fn measure(&mut self) -> Result<Measured, ProbeError> {
        let mut curve = Vec::new();
        for bytes in working_sets(self.options.largest.get(), self.options.per_octave) {
            curve.push(Point { bytes: Bytes(bytes), ns: self.chase(bytes)? });
        }
        let mut levels = Vec::new();
        let found = find_levels(&curve);
        for (index, (capacity, latency_ns)) in found.iter().enumerate() {
            let last = index + 1 == found.len();
            // Well within the level; of the last one all that there is.
            let set = if last { self.options.largest.get() } else { capacity.get() / 2 };
            levels.push(self.level(*capacity, *latency_ns, set.max(4096) / LINE * LINE)?);
        }
        let copy_rate = self.copy_queue(self.options.largest.get() / 2)?;
        let (small, bytes) = (64.0, 64);
        let copy_startup_ns = small / self.copy_queue(bytes)? * 1e9;
        let (product_rate, add_rate) = self.computing()?;
        let tiles = Outcome::default();
        Ok(Measured { curve, levels, copy_rate, copy_startup_ns, product_rate, add_rate, tiles })
    }

    /// Nanoseconds from one load to the next in a random cycle over all lines of a working set.
    fn chase(&mut self, bytes: u64) -> Result<f64, ProbeError> {
        let table = cycle(bytes);
        self.device.write(self.at(0), &table)?;
        self.device.write(self.results(), &[0; 4])?;
        let steps = self.options.loads;
        let count = (bytes / 4) as u32;
        let mut kernel = Kernel::Chase { table: self.at(0), count, steps, to: self.results() };
        // One lap first, where a run is none: the set is in its caches then.
        if let Kernel::Chase { steps: first, .. } = &mut kernel {
            *first = (bytes / LINE).min(1 << 20);
        }
        self.device.launch(&kernel)?;
        if let Kernel::Chase { steps: all, .. } = &mut kernel {
            *all = steps;
        }
        Ok(self.time(&kernel)? / steps as f64)
    }

    fn level(&mut self, capacity: Bytes, latency_ns: f64, set: u64) -> Result<Level, ProbeError> {
        // Each run reads at least 4 MiB, or the whole set.
        let (words, lanes_of) = (set / 4, self.options.lanes);
        let laps = ((4 << 20) / set).max(1);
        let mut read = |access, accesses: u64, lanes| -> Result<f64, ProbeError> {
            let kernel = Kernel::Read { from: self.at(0), words, access, accesses, lanes, to: self.results() };
            let ns = self.time(&kernel)?;
            Ok(accesses as f64 * 4.0 / ns * 1e9)
        };
        let lanes = lanes_of;
        let stream = read(Access::Stream, words * laps, 1)?;
        let stream_all = if lanes > 1 { read(Access::Stream, words * laps, lanes)? } else { stream };
        let strided = read(Access::Strided, (words * laps / 64).max(1 << 12), 1)?;
        let random = read(Access::Random, (words * laps / 64).clamp(1 << 12, 1 << 18), 1)?;
        let half = set / 2 / LINE * LINE;
        let copy = Kernel::Copy { from: self.at(0), to: self.at(half), bytes: half };
        let copy = half as f64 / self.time(&copy)? * 1e9;
        Ok(Level { capacity, latency_ns, stream, stream_all: stream_all.max(stream), strided, random, copy })
    }

    /// Bytes a second of copies on the copy queue.
    fn copy_queue(&mut self, bytes: u64) -> Result<f64, ProbeError> {
        self.device.take_spans()?;
        let half = self.options.largest.get() / 2 / LINE * LINE;
        let bytes = bytes.min(half);
        for _ in 0..=self.options.runs {
            self.device.copy(self.at(0), self.at(half), Bytes(bytes))?;
        }
        let spans = self.device.take_spans()?;
        let least = spans.copies.iter().map(|span| span.end.saturating_sub(span.start)).min();
        Ok(bytes as f64 / least.unwrap_or(0).max(1) as f64 * 1e9)
    }

    /// Operations a second of a product and of a sum.
    fn computing(&mut self) -> Result<(f64, f64), ProbeError> {
        const SIDE: u32 = 128;
        let matrix = u64::from(SIDE) * u64::from(SIDE) * 4;
        let all = Operand { place: self.at(0), count: matrix * 2 / 4, element: Element::F32 };
        self.device.launch(&Kernel::Pattern { to: all, seed: 1, first: 0 })?;
        let (left, right, to) = (self.at(0), self.at(matrix), self.at(2 * matrix));
        let kernel = Kernel::Matmul { left, right, to, rows: SIDE, columns: SIDE, depth: SIDE, fold: false };
        let product = kernel.operations() as f64 / self.time(&kernel)? * 1e9;
        let sum = Kernel::Add { left, right, to, count: matrix / 4, fold: false };
        Ok((product, sum.operations() as f64 / self.time(&sum)? * 1e9))
    }
}

/// Sizes from 4 KiB on, so many to an octave, in whole lines.
fn working_sets(largest: u64, per_octave: u32) -> Vec<u64> {
    let mut sets = Vec::new();
    let mut octave = 4096_u64;
    while octave <= largest {
        for part in 0..u64::from(per_octave.max(1)) {
            let size = (octave + octave * part / u64::from(per_octave.max(1))) / LINE * LINE;
            if size <= largest && sets.last().is_none_or(|last| *last < size) {
                sets.push(size);
            }
        }
        octave *= 2;
    }
    sets
}

/// A table in which the first word of each line names that of the next line of one random cycle over all of them.
fn cycle(bytes: u64) -> Vec<u8> {
    let lines = (bytes / LINE).max(1) as u32;
    let mut order: Vec<u32> = (0..lines).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..lines).rev() {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        // Sattolo: an element changes places with one strictly before it, so that there is one cycle.
        let other = (((state >> 33) * u64::from(last)) >> 31) as u32;
        order.swap(last as usize, other as usize);
    }
    let mut table = vec![0; (u64::from(lines) * LINE) as usize];
    for (line, next) in order.iter().enumerate() {
        let word = next * (LINE / 4) as u32;
        table[line * LINE as usize..][..4].copy_from_slice(&word.to_le_bytes());
    }
    table
}

#[cfg(test)]
mod tests;
