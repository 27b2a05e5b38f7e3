//! The lecture's loops, untiled as a textbook writes them first and tiled for the caches: same products, same sums, other order.

use crate::compute::{ConvolutionShape, reference};
use std::hint::black_box;
use std::time::Instant;

/// Rows, depth and columns of a tile: three of them lie in the first cache, and a tile's rows are whole vectors.
const TILE: usize = 64;

/// `left * right` of square matrices, one result after the other: the right matrix is walked down its columns.
#[must_use]
pub fn untiled_product(left: &[f32], right: &[f32], side: usize) -> Vec<f32> {
    let mut product = vec![0.0; side * side];
    for row in 0..side {
        for column in 0..side {
            let mut sum = 0.0;
            for inner in 0..side {
                sum += left[row * side + inner] * right[inner * side + column];
            }
            product[row * side + column] = sum;
        }
    }
    product
}

/// The same tile by tile.
#[must_use]
pub fn tiled_product(left: &[f32], right: &[f32], side: usize) -> Vec<f32> {
    let mut product = vec![0.0; side * side];
    for rows in (0..side).step_by(TILE) {
        for inners in (0..side).step_by(TILE) {
            for columns in (0..side).step_by(TILE) {
                let wide = TILE.min(side - columns);
                for row in rows..(rows + TILE).min(side) {
                    let out = &mut product[row * side + columns..][..wide];
                    for inner in inners..(inners + TILE).min(side) {
                        let factor = left[row * side + inner];
                        for (sum, value) in out.iter_mut().zip(&right[inner * side + columns..][..wide]) {
                            *sum += factor * value;
                        }
                    }
                }
            }
        }
    }
    product
}

/// Output channels that a tile of the convolution makes together.
const CHANNELS: usize = 8;

/// A convolution with a window of 3x3, tiled: a row of eight output channels stays in the first cache while each input row is
/// read once for all of them.
#[must_use]
pub fn tiled_convolution(input: &[f32], weights: &[f32], shape: &ConvolutionShape) -> Vec<f32> {
    let size = |part: u32| part as usize;
    let [channels, high, wide] = shape.input.map(size);
    let [out_channels, out_high, out_wide] = shape.output.map(size);
    let [window_high, window_wide] = shape.window.map(size);
    let [pad_y, pad_x] = shape.padding.map(size);
    let mut result = vec![0.0; out_channels * out_high * out_wide];
    let mut tile = vec![0.0_f32; CHANNELS * out_wide];
    for y in 0..out_high {
        for first in (0..out_channels).step_by(CHANNELS) {
            let count = CHANNELS.min(out_channels - first);
            tile.fill(0.0);
            for channel in 0..channels {
                for tap_y in 0..window_high {
                    let Some(row) = (y + tap_y).checked_sub(pad_y).filter(|row| *row < high) else { continue };
                    let values = &input[(channel * high + row) * wide..][..wide];
                    for (lane, sums) in tile.chunks_mut(out_wide).enumerate().take(count) {
                        let window = ((first + lane) * channels + channel) * window_high + tap_y;
                        for tap_x in 0..window_wide {
                            let weight = weights[window * window_wide + tap_x];
                            let start = pad_x.saturating_sub(tap_x);
                            let end = (wide + pad_x).saturating_sub(tap_x).min(out_wide);
                            let from = start + tap_x - pad_x.min(start + tap_x);
                            for (sum, value) in sums[start..end].iter_mut().zip(&values[from..]) {
                                *sum += weight * value;
                            }
                        }
                    }
                }
            }
            for (lane, sums) in tile.chunks(out_wide).enumerate().take(count) {
                result[((first + lane) * out_high + y) * out_wide..][..out_wide].copy_from_slice(sums);
            }
        }
    }
    result
}

/// Two ways to compute one thing, on the clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tiling {
    /// Operations; a multiply-accumulate counts two.
    pub operations: u64,
    /// Nanoseconds untiled: the least of the runs.
    pub untiled_ns: u64,
    /// Nanoseconds tiled.
    pub tiled_ns: u64,
    /// Whether both gave the same numbers.
    pub equal: bool,
}

/// A product of square matrices both ways.
#[must_use]
pub fn product(side: usize, runs: u32) -> Tiling {
    let matrix =
        |seed| -> Vec<f32> { (0..(side * side) as u64).map(|at| reference::pattern_float(seed, at)).collect() };
    let (left, right) = (matrix(1), matrix(2));
    let (untiled_ns, a) = least(runs, || untiled_product(black_box(&left), black_box(&right), side));
    let (tiled_ns, b) = least(runs, || tiled_product(black_box(&left), black_box(&right), side));
    let operations = 2 * (side as u64).pow(3);
    Tiling { operations, untiled_ns, tiled_ns, equal: a == b }
}

/// A convolution of 3x3 both ways: as many channels out as in.
#[must_use]
pub fn convolution(channels: u32, side: u32, runs: u32) -> Tiling {
    let shape = ConvolutionShape {
        batch: 1,
        input: [channels, side, side],
        output: [channels, side, side],
        window: [3, 3],
        strides: [1, 1],
        padding: [1, 1],
        dilations: [1, 1],
        groups: 1,
    };
    let [read, windows, written] = shape.counts().unwrap_or_default();
    let values = |seed, count| -> Vec<f32> { (0..count).map(|at| reference::pattern_float(seed, at)).collect() };
    let (input, weights) = (values(3, read), values(4, windows));
    let (untiled_ns, a) = least(runs, || reference::convolution(black_box(&input), black_box(&weights), &shape, false));
    let (tiled_ns, b) = least(runs, || tiled_convolution(black_box(&input), black_box(&weights), &shape));
    Tiling { operations: 2 * written * shape.depth(), untiled_ns, tiled_ns, equal: a == b }
}

/// The least time of some runs, and the last result.
fn least<T>(runs: u32, mut run: impl FnMut() -> Vec<T>) -> (u64, Vec<T>) {
    let (mut least, mut result) = (u64::MAX, Vec::new());
    for _ in 0..runs.max(1) {
        let start = Instant::now();
        result = black_box(run());
        least = least.min(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    (least.max(1), result)
}

#[cfg(test)]
mod tests {
    #[test]
    fn both_ways_give_the_same_numbers() {
        for side in [1, 5, 64, 70, 130] {
            assert!(super::product(side, 1).equal, "{side}");
        }
        for (channels, side) in [(1, 1), (3, 5), (9, 17), (16, 2)] {
            let tiling = super::convolution(channels, side, 1);
            assert!(tiling.equal, "{channels} channels of {side}");
            assert_eq!(tiling.operations, 2 * 9 * u64::from(channels * channels * side * side));
        }
    }
}
