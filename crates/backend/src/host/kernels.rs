//! The kernels on the host's memory: rows at a time, so that the compiler makes vectors of them.
#![allow(unsafe_code)]

use crate::compute::reference::{self, fold, mix, pattern, scatter};
use crate::compute::{Access, ConvolutionShape, Element, Kernel, Operand};

/// Runs a kernel over addresses.
///
/// # Safety
/// Every operand lies in memory that nobody else touches, floats are aligned, and results lie apart from operands
/// (for `Add` and `Mix` they may be one of them).
pub(super) unsafe fn run(kernel: &Kernel<usize>) {
    // SAFETY: the caller's promise covers each operand with the size that `Kernel::touches` gives it.
    unsafe {
        match *kernel {
            Kernel::Copy { from, to, bytes } => {
                std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes as usize);
            }
            Kernel::Add { left, right, to, count, fold } => {
                add(left as *const f32, right as *const f32, to as *mut f32, count as usize, fold);
            }
            Kernel::Matmul { left, right, to, rows, columns, depth, fold } => {
                let [rows, columns, depth] = [rows as usize, columns as usize, depth as usize];
                let (left, right) = (floats(left, rows * depth), floats(right, depth * columns));
                matmul(left, right, floats_mut(to, rows * columns), [rows, columns, depth], fold);
            }
            Kernel::Convolution { input, weights, to, shape, fold } => {
                let [read, windows, written] = shape.counts().unwrap_or_default().map(|count| count as usize);
                convolution(floats(input, read), floats(weights, windows), floats_mut(to, written), &shape, fold);
            }
            Kernel::Chase { table, count, steps, to } => {
                let to = to as *mut u32;
                *to = reference::chase(words(table, count as usize), *to, steps);
            }
            Kernel::Read { from, words: count, access, accesses, lanes, to } => {
                let to = std::slice::from_raw_parts_mut(to as *mut u32, lanes as usize);
                read_all(words(from, count as usize), access, accesses, to);
            }
            Kernel::Mix { from, to, accumulate } => mix_all(&from, &to, accumulate),
            Kernel::Pattern { to, seed, first } => {
                for index in 0..to.count {
                    let value = pattern(seed, first.wrapping_add(index));
                    match to.element {
                        Element::Byte => put(&to, index, value as i32),
                        Element::F32 => put(&to, index, (value % 9) as i32 - 4),
                    }
                }
            }
        }
    }
}

unsafe fn words<'a>(address: usize, count: usize) -> &'a [u32] {
    // SAFETY: the caller's promise.
    if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(address as *const u32, count) } }
}

/// Each lane on a thread of its own, where there are several.
fn read_all(words: &[u32], access: Access, accesses: u64, to: &mut [u32]) {
    let lanes = to.len() as u64;
    if lanes == 1 {
        to[0] = read_lane(words, access, accesses, 0, 1);
        return;
    }
    std::thread::scope(|scope| {
        for (lane, sum) in to.iter_mut().enumerate() {
            scope.spawn(move || {
                super::processors::spread(lane);
                *sum = read_lane(words, access, accesses, lane as u64, lanes);
            });
        }
    });
}

/// What [`reference::read`] says, at the speed of the memory.
fn read_lane(words: &[u32], access: Access, accesses: u64, lane: u64, lanes: u64) -> u32 {
    let count = words.len() as u64;
    if count == 0 {
        return 0;
    }
    let (mut at, end) = (accesses * lane / lanes, accesses * (lane + 1) / lanes);
    let mut sum = 0_u32;
    match access {
        // Whole runs up to the end of the words, so that the inner loop is made of vectors.
        Access::Stream => {
            while at < end {
                let start = at % count;
                let run = (count - start).min(end - at);
                for word in &words[start as usize..(start + run) as usize] {
                    sum = sum.wrapping_add(*word);
                }
                at += run;
            }
        }
        Access::Strided => {
            let lap = (count / 64).max(1);
            while at < end {
                let run = (lap - at % lap).min(end - at);
                let first = at % lap * 64 + at / lap % 64;
                for step in 0..run {
                    let place = first + step * 64;
                    let place = if place < count { place } else { place % count };
                    sum = sum.wrapping_add(words[place as usize]);
                }
                at += run;
            }
        }
        Access::Random => {
            for index in at..end {
                sum = sum.wrapping_add(words[scatter(index, count) as usize]);
            }
        }
    }
    sum
}

unsafe fn floats<'a>(address: usize, count: usize) -> &'a [f32] {
    // SAFETY: the caller's promise.
    if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(address as *const f32, count) } }
}

unsafe fn floats_mut<'a>(address: usize, count: usize) -> &'a mut [f32] {
    // SAFETY: the caller's promise.
    if count == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(address as *mut f32, count) } }
}

unsafe fn add(left: *const f32, right: *const f32, to: *mut f32, count: usize, folded: bool) {
    for index in 0..count {
        // SAFETY: the index is within all three; the result may be one of the operands, which is why these are pointers.
        unsafe { *to.add(index) = *left.add(index) + *right.add(index) };
    }
    for index in 0..if folded { count } else { 0 } {
        // SAFETY: as above.
        unsafe { *to.add(index) = fold(*to.add(index)) };
    }
}

unsafe fn read(operand: &Operand<usize>, index: u64) -> i32 {
    // SAFETY: the index is below the count.
    unsafe {
        match operand.element {
            Element::Byte => i32::from(*(operand.place as *const u8).add(index as usize)),
            Element::F32 => *(operand.place as *const f32).add(index as usize) as i32,
        }
    }
}

unsafe fn put(operand: &Operand<usize>, index: u64, value: i32) {
    // SAFETY: the index is below the count.
    unsafe {
        match operand.element {
            Element::Byte => *(operand.place as *mut u8).add(index as usize) = value as u8,
            Element::F32 => *(operand.place as *mut f32).add(index as usize) = (value % 17) as f32,
        }
    }
}

unsafe fn mix_all(from: &Operand<usize>, to: &Operand<usize>, accumulate: bool) {
    let mut next = 0;
    for index in 0..to.count {
        // SAFETY: both indices are below their counts.
        unsafe {
            let old = if accumulate { read(to, index) } else { 0 };
            let value = if from.count == 0 { 0 } else { read(from, next) };
            put(to, index, mix(value, old, index));
        }
        next = if next + 1 >= from.count { 0 } else { next + 1 };
    }
}

/// `to = left * right`: four rows at a time over a band of columns that stays in the first cache.
fn matmul(left: &[f32], right: &[f32], to: &mut [f32], [rows, columns, depth]: [usize; 3], folded: bool) {
    const BAND: usize = 256;
    to.fill(0.0);
    for from in (0..columns).step_by(BAND) {
        let wide = BAND.min(columns - from);
        for first in (0..rows).step_by(4) {
            let high = 4.min(rows - first);
            let mut out = to[first * columns..(first + high) * columns].chunks_mut(columns.max(1));
            let mut out: [&mut [f32]; 4] =
                std::array::from_fn(|_| out.next().map_or(&mut [][..], |row| &mut row[from..from + wide]));
            for inner in 0..depth {
                let values = &right[inner * columns + from..][..wide];
                let factor = |row: usize| if row < high { left[(first + row) * depth + inner] } else { 0.0 };
                let factors = [factor(0), factor(1), factor(2), factor(3)];
                for (row, factor) in out.iter_mut().zip(factors) {
                    for (sum, value) in row.iter_mut().zip(values) {
                        *sum += factor * value;
                    }
                }
            }
        }
    }
    if folded {
        to.iter_mut().for_each(|value| *value = fold(*value));
    }
}

/// A convolution row by row: one tap of the window over a whole row of results at a time.
fn convolution(input: &[f32], weights: &[f32], to: &mut [f32], shape: &ConvolutionShape, folded: bool) {
    let size = |part: u32| part as usize;
    let [channels, high, wide] = shape.input.map(size);
    let [out_channels, out_high, out_wide] = shape.output.map(size);
    let [window_high, window_wide] = shape.window.map(size);
    let (inner, per_group) = (channels / size(shape.groups), out_channels / size(shape.groups));
    let (step, padding) = (size(shape.strides[1]), size(shape.padding[1]));
    let pointwise = shape.window == [1, 1] && shape.strides == [1, 1] && shape.padding == [0, 0] && shape.groups == 1;
    if pointwise && shape.input[1..] == shape.output[1..] {
        // A product of the weights with each image, whose pixels are its columns.
        for (image, out) in input.chunks(channels * high * wide).zip(to.chunks_mut(out_channels * high * wide)) {
            matmul(weights, image, out, [out_channels, high * wide, channels], folded);
        }
        return;
    }
    to.fill(0.0);
    for (line, sums) in to.chunks_mut(out_wide).enumerate() {
        let (y, plane) = (line % out_high, line / out_high);
        let (out, image) = (plane % out_channels, plane / out_channels);
        for channel in 0..inner {
            let source = (image * channels + out / per_group * inner + channel) * high;
            for tap_y in 0..window_high {
                let row =
                    (y * size(shape.strides[0]) + tap_y * size(shape.dilations[0])).checked_sub(size(shape.padding[0]));
                let Some(row) = row.filter(|row| *row < high) else { continue };
                let values = &input[(source + row) * wide..][..wide];
                for tap_x in 0..window_wide {
                    let weight = weights[((out * inner + channel) * window_high + tap_y) * window_wide + tap_x];
                    let shift = tap_x * size(shape.dilations[1]);
                    // Results whose tap lies in the row: 0 <= x * step + shift - padding < wide.
                    let first = padding.saturating_sub(shift).div_ceil(step);
                    let last = (wide + padding).saturating_sub(shift).div_ceil(step).min(out_wide);
                    if first >= last {
                        continue;
                    }
                    let start = first * step + shift - padding;
                    if step == 1 {
                        for (sum, value) in sums[first..last].iter_mut().zip(&values[start..]) {
                            *sum += weight * value;
                        }
                    } else {
                        for (sum, value) in sums[first..last].iter_mut().zip(values[start..].iter().step_by(step)) {
                            *sum += weight * value;
                        }
                    }
                }
            }
        }
        if folded {
            sums.iter_mut().for_each(|value| *value = fold(*value));
        }
    }
}
