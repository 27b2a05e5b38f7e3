//! From a curve of times to levels: where a chain of loads takes about as long over a doubling of its working set, there is a
//! level; its end is where the time has risen half way, on a logarithmic scale, to the next one's.

use npumem_ir::Bytes;

/// One measurement of the chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The working set.
    pub bytes: Bytes,
    /// Nanoseconds a load.
    pub ns: f64,
}

/// Times within this factor are those of one level.
const FLAT: f64 = 1.3;
/// A level is this much slower than the one before it.
const STEP: f64 = 1.6;

/// The levels of a curve, the nearest first: the working set that each holds, and its time.
#[must_use]
pub fn find_levels(curve: &[Point]) -> Vec<(Bytes, f64)> {
    let times = risen(curve);
    let mut plateaus: Vec<f64> = Vec::new();
    let mut start = 0;
    while start < times.len() {
        // The longest run from here whose times stay within the factor.
        let end = (start..times.len()).take_while(|at| times[*at] <= times[start] * FLAT).last().unwrap_or(start);
        let octaves = (curve[end].bytes.get() as f64 / curve[start].bytes.get() as f64).log2();
        let at_end = end + 1 == times.len();
        if octaves >= 1.0 || (at_end && octaves >= 0.5) {
            let middle = times[start + (end - start) / 3];
            match plateaus.last() {
                Some(last) if middle < last * STEP => {}
                _ => plateaus.push(middle),
            }
            start = end + 1;
        } else {
            start += 1;
        }
    }
    // A curve that still rises at its end has one more level, seen in part.
    if let (Some(last), Some(end)) = (plateaus.last().copied(), times.last())
        && *end >= last * STEP * STEP
    {
        plateaus.push(*end);
    }
    if plateaus.is_empty() {
        plateaus.extend(times.last());
    }
    let most = curve.last().map_or(Bytes::ZERO, |point| point.bytes);
    let ends = plateaus.iter().zip(plateaus.iter().skip(1).map(Some).chain([None])).map(|(time, next)| {
        let Some(next) = next else { return (most, *time) };
        let middle = (time * next).sqrt();
        let within = times.iter().zip(curve).take_while(|(time, _)| **time <= middle);
        (within.last().map_or(Bytes::ZERO, |(_, point)| point.bytes), *time)
    });
    ends.collect()
}

/// The curve without its noise: no time is above a later one. (Other work only ever makes a measurement slower.)
fn risen(curve: &[Point]) -> Vec<f64> {
    let mut times: Vec<f64> = curve.iter().map(|point| point.ns).collect();
    for at in (1..times.len()).rev() {
        times[at - 1] = times[at - 1].min(times[at]);
    }
    times
}
