//! The kernels: built from source for the device at the first launch.
#![allow(unsafe_code)]

use super::calls::{Calls, Object, check};
use crate::backend::BackendError;
use crate::compute::{Access, Element, Kernel, Operand};
use std::cell::RefCell;
use std::ffi::CStr;
use std::ptr::null_mut;

const SOURCE: &str = include_str!("kernels.cl");
const NAMES: [&CStr; 8] =
    [c"copy_bytes", c"add", c"matmul", c"convolution", c"mix_elements", c"pattern", c"chase", c"read_words"];

struct Built {
    program: Object,
    kernels: [Object; NAMES.len()],
}

/// The program, once it is built.
#[derive(Default)]
pub(super) struct Programs(RefCell<Option<Built>>);

/// A place: the buffer, and the offset in it.
type Spot = (Object, usize);

/// One kernel's arguments, set one after the other.
struct Arguments<'a> {
    calls: &'a Calls,
    kernel: Object,
    next: u32,
    outcome: Result<(), BackendError>,
}

impl Arguments<'_> {
    fn put<T: Copy>(mut self, value: T) -> Self {
        if self.outcome.is_ok() {
            // SAFETY: the value is live for the call, which copies it; the source declares an argument of this type here.
            let status =
                unsafe { (self.calls.set_argument)(self.kernel, self.next, size_of::<T>(), (&raw const value).cast()) };
            self.outcome = check("clSetKernelArg", status);
            self.next += 1;
        }
        self
    }

    fn spot(self, spot: Spot) -> Self {
        self.put(spot.0).put(spot.1 as u64)
    }
}

fn is_float(operand: &Operand<Spot>) -> i32 {
    i32::from(operand.element == Element::F32)
}

impl Programs {
    /// Sets a kernel's arguments and gives it with its global size; `None` when there is nothing to do.
    pub(super) fn prepare(
        &self,
        calls: &Calls,
        context: Object,
        device: Object,
        kernel: &Kernel<Spot>,
    ) -> Result<Option<(Object, [usize; 2])>, BackendError> {
        let mut built = self.0.borrow_mut();
        let built = match &mut *built {
            Some(built) => built,
            empty => empty.insert(build(calls, context, device)?),
        };
        let start = |index: usize| Arguments { calls, kernel: built.kernels[index], next: 0, outcome: Ok(()) };
        let (set, size) = match *kernel {
            Kernel::Copy { from, to, bytes } => (start(0).spot(from).spot(to).put(bytes), [bytes.div_ceil(16), 1]),
            Kernel::Add { left, right, to, count, fold } => {
                (start(1).spot(left).spot(right).spot(to).put(count).put(i32::from(fold)), [count, 1])
            }
            Kernel::Matmul { left, right, to, rows, columns, depth, fold } => {
                let set = start(2).spot(left).spot(right).spot(to).put(rows).put(columns).put(depth);
                (set.put(i32::from(fold)), [u64::from(columns.div_ceil(8)), u64::from(rows.div_ceil(4))])
            }
            Kernel::Convolution { input, weights, to, shape, fold } => {
                let [channels, high, wide] = shape.input;
                let [out, out_high, out_wide] = shape.output;
                let sizes: [u32; 8] = [channels, high, wide, out, out_high, out_wide, 0, 0];
                let [(w0, w1), (s0, s1), (p0, p1), (d0, d1)] =
                    [shape.window, shape.strides, shape.padding, shape.dilations].map(|[high, wide]| (high, wide));
                let steps: [u32; 8] = [w0, w1, s0, s1, p0, p1, d0, d1];
                let lines = u64::from(shape.batch) * u64::from(out) * u64::from(out_high);
                let set = start(3).spot(input).spot(weights).spot(to).put(sizes).put(steps);
                (set.put(shape.groups).put(lines).put(i32::from(fold)), [u64::from(out_wide.div_ceil(8)), lines])
            }
            Kernel::Chase { table, count, steps, to } => (start(6).spot(table).put(count).put(steps).spot(to), [1, 1]),
            Kernel::Read { from, words, access, accesses, lanes, to } => {
                let access: i32 = match access {
                    Access::Stream => 0,
                    Access::Strided => 1,
                    Access::Random => 2,
                };
                let set = start(7).spot(from).put(words).put(access).put(accesses).put(lanes).spot(to);
                (set, [u64::from(lanes), 1])
            }
            Kernel::Mix { from, to, accumulate } => {
                let set = start(4).spot(from.place).put(from.count).put(is_float(&from));
                let set = set.spot(to.place).put(to.count).put(is_float(&to)).put(i32::from(accumulate));
                (set, [to.count, 1])
            }
            Kernel::Pattern { to, seed, first } => {
                (start(5).spot(to.place).put(to.count).put(is_float(&to)).put(seed).put(first), [to.count, 1])
            }
        };
        set.outcome?;
        let [wide, high] = size;
        Ok((wide > 0 && high > 0).then_some((set.kernel, [wide as usize, high as usize])))
    }

    pub(super) fn release(&self, calls: &Calls) {
        if let Some(built) = self.0.borrow_mut().take() {
            // SAFETY: made by `build`, released once; no queue runs any more.
            unsafe {
                for kernel in built.kernels.into_iter().filter(|kernel| !kernel.is_null()) {
                    (calls.release_kernel)(kernel);
                }
                (calls.release_program)(built.program);
            }
        }
    }
}

fn build(calls: &Calls, context: Object, device: Object) -> Result<Built, BackendError> {
    let (text, length) = (SOURCE.as_ptr().cast(), SOURCE.len());
    let mut status = 0;
    // SAFETY: the source and its length are live for the calls; the log's buffer has the size that the call is told.
    unsafe {
        let program = (calls.create_program)(context, 1, &text, &length, &mut status);
        check("clCreateProgramWithSource", status)?;
        let mut built = Built { program, kernels: [null_mut(); NAMES.len()] };
        let status = (calls.build_program)(program, 1, &device, c"-cl-std=CL1.2".as_ptr(), null_mut(), null_mut());
        if status != 0 {
            let mut log = vec![0_u8; 4096];
            let mut length = 0;
            (calls.build_info)(program, device, 0x1183, log.len(), log.as_mut_ptr().cast(), &mut length);
            let log = String::from_utf8_lossy(&log[..length.min(4096)]).trim_end_matches('\0').to_owned();
            Programs(RefCell::new(Some(built))).release(calls);
            return Err(BackendError::System { call: "clBuildProgram", reason: format!("error {status}: {log}") });
        }
        let mut status = 0;
        for (kernel, name) in built.kernels.iter_mut().zip(NAMES) {
            *kernel = (calls.create_kernel)(program, name.as_ptr(), &mut status);
            if let Err(error) = check("clCreateKernel", status) {
                Programs(RefCell::new(Some(built))).release(calls);
                return Err(error);
            }
        }
        Ok(built)
    }
}
