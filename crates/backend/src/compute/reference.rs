//! The kernels in their plainest form, on slices: what every device's results are compared with.

use super::{Access, ConvolutionShape, Element};

/// The integer of [-16, 16] that stands for a whole number held in a float: its remainder by 17.
#[must_use]
pub fn fold(value: f32) -> f32 {
    (value as i32 % 17) as f32
}

fn finish(value: f32, folded: bool) -> f32 {
    if folded { fold(value) } else { value }
}

/// `left + right`.
#[must_use]
pub fn add(left: &[f32], right: &[f32], folded: bool) -> Vec<f32> {
    left.iter().zip(right).map(|(left, right)| finish(left + right, folded)).collect()
}

/// `left * right`, row-major.
#[must_use]
pub fn matmul(left: &[f32], right: &[f32], rows: usize, columns: usize, depth: usize, folded: bool) -> Vec<f32> {
    let mut product = vec![0.0; rows * columns];
    for row in 0..rows {
        let out = &mut product[row * columns..][..columns];
        for inner in 0..depth {
            let factor = left[row * depth + inner];
            for (sum, value) in out.iter_mut().zip(&right[inner * columns..][..columns]) {
                *sum += factor * value;
            }
        }
        out.iter_mut().for_each(|value| *value = finish(*value, folded));
    }
    product
}

/// A convolution from its definition: every result, every tap.
#[must_use]
pub fn convolution(input: &[f32], weights: &[f32], shape: &ConvolutionShape, folded: bool) -> Vec<f32> {
    let size = |part: u32| part as usize;
    let [channels, high, wide] = shape.input.map(size);
    let [out_channels, out_high, out_wide] = shape.output.map(size);
    let [window_high, window_wide] = shape.window.map(size);
    let (inner, per_group) = (channels / size(shape.groups), out_channels / size(shape.groups));
    let mut result = Vec::with_capacity(size(shape.batch) * out_channels * out_high * out_wide);
    for image in 0..size(shape.batch) {
        for out in 0..out_channels {
            for (y, x) in (0..out_high).flat_map(|y| (0..out_wide).map(move |x| (y, x))) {
                let mut sum = 0.0;
                for channel in 0..inner {
                    let plane = (image * channels + out / per_group * inner + channel) * high;
                    for (tap_y, tap_x) in (0..window_high).flat_map(|y| (0..window_wide).map(move |x| (y, x))) {
                        let row = (y * size(shape.strides[0]) + tap_y * size(shape.dilations[0]))
                            .checked_sub(size(shape.padding[0]));
                        let column = (x * size(shape.strides[1]) + tap_x * size(shape.dilations[1]))
                            .checked_sub(size(shape.padding[1]));
                        if let (Some(row), Some(column)) = (row, column)
                            && row < high
                            && column < wide
                        {
                            let weight = ((out * inner + channel) * window_high + tap_y) * window_wide + tap_x;
                            sum += input[(plane + row) * wide + column] * weights[weight];
                        }
                    }
                }
                result.push(finish(sum, folded));
            }
        }
    }
    result
}

/// The word, of so many, that access number `index` of a random read touches.
#[must_use]
pub fn scatter(index: u64, words: u64) -> u64 {
    let mixed = (index as u32).wrapping_mul(0x9e37_79b1) ^ (index >> 32) as u32;
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x2c1b_3c6d);
    u64::from(mixed ^ mixed >> 13) % words.max(1)
}

/// The word, of so many, that access number `index` of a strided read touches: each lap starts a word later.
#[must_use]
pub fn stride(index: u64, words: u64) -> u64 {
    let lap = (words / 64).max(1);
    (index % lap * 64 + index / lap % 64) % words.max(1)
}

/// The sum that a lane of a read leaves.
#[must_use]
pub fn read(words: &[u32], access: Access, accesses: u64, lane: u64, lanes: u64) -> u32 {
    let count = words.len() as u64;
    let (start, end) = (accesses * lane / lanes, accesses * (lane + 1) / lanes);
    let at = |index: u64| match access {
        Access::Stream => index % count.max(1),
        Access::Strided => stride(index, count),
        Access::Random => scatter(index, count),
    };
    (start..end).filter_map(|index| words.get(at(index) as usize)).fold(0, |sum, word| sum.wrapping_add(*word))
}

/// Where a chain of so many loads ends.
#[must_use]
pub fn chase(table: &[u32], start: u32, steps: u64) -> u32 {
    let mut at = start;
    for _ in 0..steps {
        match table.get(at as usize) {
            Some(next) => at = *next,
            None => break,
        }
    }
    at
}

/// The value of element `index` of a pattern.
#[must_use]
pub fn pattern(seed: u32, index: u64) -> u32 {
    let mixed = (index as u32 ^ (index >> 32) as u32).wrapping_mul(0x9e37_79b1) ^ seed.wrapping_mul(0x85eb_ca77);
    (mixed ^ mixed >> 15).wrapping_mul(0x2c1b_3c6d) >> 16
}

/// A pattern's float.
#[must_use]
pub fn pattern_float(seed: u32, index: u64) -> f32 {
    (pattern(seed, index) % 9) as f32 - 4.0
}

/// One element of a mix as a whole number: of `read`, the old value and the position.
#[must_use]
pub fn mix(read: i32, old: i32, index: u64) -> i32 {
    read.wrapping_mul(5).wrapping_add(old.wrapping_mul(3)).wrapping_add((index % 13) as i32)
}

fn element(bytes: &[u8], element: Element, index: u64) -> i32 {
    match element {
        Element::Byte => bytes.get(index as usize).map_or(0, |byte| i32::from(*byte)),
        Element::F32 => {
            let at = index as usize * 4;
            let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
            f32::from_le_bytes(word.unwrap_or_default()) as i32
        }
    }
}

/// A mix over bytes: `from` may be the old content of `to`.
pub fn mix_into(from: (&[u8], Element, u64), to: (&mut [u8], Element, u64), accumulate: bool) {
    let (source, source_kind, source_count) = from;
    let (target, kind, count) = to;
    for index in 0..count {
        let old = if accumulate { element(target, kind, index) } else { 0 };
        let read = if source_count == 0 { 0 } else { element(source, source_kind, index % source_count) };
        put(target, kind, index, mix(read, old, index));
    }
}

/// A pattern into bytes.
pub fn pattern_into(to: &mut [u8], kind: Element, count: u64, seed: u32, first: u64) {
    for index in 0..count {
        let value = pattern(seed, first.wrapping_add(index));
        match kind {
            Element::Byte => put(to, kind, index, value as i32),
            Element::F32 => put(to, kind, index, (value % 9) as i32 - 4),
        }
    }
}

fn put(to: &mut [u8], kind: Element, index: u64, value: i32) {
    match kind {
        Element::Byte => {
            if let Some(byte) = to.get_mut(index as usize) {
                *byte = value as u8;
            }
        }
        Element::F32 => {
            let at = index as usize * 4;
            if let Some(word) = to.get_mut(at..at + 4) {
                word.copy_from_slice(&((value % 17) as f32).to_le_bytes());
            }
        }
    }
}
