//! The calls of OpenCL 1.2 that we use, looked up at run time.
#![allow(unsafe_code)]

use crate::backend::BackendError;
use crate::vmm::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};

pub(super) type Status = c_int;
/// A platform, device, context, queue, buffer, program, kernel or event.
pub(super) type Object = *mut c_void;
/// What a call waits for and gives: a count, events, and where its own event goes.
type Notify = *mut c_void;

macro_rules! calls {
    ($($field:ident: $symbol:literal fn($($argument:ty),*) -> $result:ty;)*) => {
        pub(super) struct Calls {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Calls {
            /// # Safety
            /// The library is an OpenCL loader or driver.
            pub(super) unsafe fn load(library: &Library) -> Result<Self, BackendError> {
                Ok(Self {
                    $($field: {
                        let found = library.find(concat!($symbol, "\0"))?;
                        // SAFETY: OpenCL's functions of these names have these types.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(found)
                        }
                    },)*
                })
            }
        }
    };
}

calls! {
    platforms: "clGetPlatformIDs" fn(c_uint, *mut Object, *mut c_uint) -> Status;
    devices: "clGetDeviceIDs" fn(Object, u64, c_uint, *mut Object, *mut c_uint) -> Status;
    platform_info: "clGetPlatformInfo" fn(Object, c_uint, usize, *mut c_void, *mut usize) -> Status;
    device_info: "clGetDeviceInfo" fn(Object, c_uint, usize, *mut c_void, *mut usize) -> Status;
    create_context: "clCreateContext" fn(*const isize, c_uint, *const Object, Notify, *mut c_void, *mut Status) -> Object;
    release_context: "clReleaseContext" fn(Object) -> Status;
    create_queue: "clCreateCommandQueue" fn(Object, Object, u64, *mut Status) -> Object;
    release_queue: "clReleaseCommandQueue" fn(Object) -> Status;
    create_buffer: "clCreateBuffer" fn(Object, u64, usize, *mut c_void, *mut Status) -> Object;
    release_buffer: "clReleaseMemObject" fn(Object) -> Status;
    create_program: "clCreateProgramWithSource" fn(Object, c_uint, *const *const c_char, *const usize, *mut Status) -> Object;
    build_program: "clBuildProgram" fn(Object, c_uint, *const Object, *const c_char, Notify, *mut c_void) -> Status;
    build_info: "clGetProgramBuildInfo" fn(Object, Object, c_uint, usize, *mut c_void, *mut usize) -> Status;
    release_program: "clReleaseProgram" fn(Object) -> Status;
    create_kernel: "clCreateKernel" fn(Object, *const c_char, *mut Status) -> Object;
    release_kernel: "clReleaseKernel" fn(Object) -> Status;
    set_argument: "clSetKernelArg" fn(Object, c_uint, usize, *const c_void) -> Status;
    launch: "clEnqueueNDRangeKernel" fn(Object, Object, c_uint, *const usize, *const usize, *const usize, c_uint, *const Object, *mut Object) -> Status;
    read: "clEnqueueReadBuffer" fn(Object, Object, c_uint, usize, usize, *mut c_void, c_uint, *const Object, *mut Object) -> Status;
    write: "clEnqueueWriteBuffer" fn(Object, Object, c_uint, usize, usize, *const c_void, c_uint, *const Object, *mut Object) -> Status;
    copy: "clEnqueueCopyBuffer" fn(Object, Object, Object, usize, usize, usize, c_uint, *const Object, *mut Object) -> Status;
    fill: "clEnqueueFillBuffer" fn(Object, Object, *const c_void, usize, usize, usize, c_uint, *const Object, *mut Object) -> Status;
    marker: "clEnqueueMarkerWithWaitList" fn(Object, c_uint, *const Object, *mut Object) -> Status;
    flush: "clFlush" fn(Object) -> Status;
    finish: "clFinish" fn(Object) -> Status;
    wait: "clWaitForEvents" fn(c_uint, *const Object) -> Status;
    event_info: "clGetEventInfo" fn(Object, c_uint, usize, *mut c_void, *mut usize) -> Status;
    event_time: "clGetEventProfilingInfo" fn(Object, c_uint, usize, *mut c_void, *mut usize) -> Status;
    release_event: "clReleaseEvent" fn(Object) -> Status;
}

/// A status in words: those that a user may meet have the specification's name.
pub(super) fn check(call: &'static str, status: Status) -> Result<(), BackendError> {
    let words = match status {
        0 => return Ok(()),
        -1 => "CL_DEVICE_NOT_FOUND",
        -2 => "CL_DEVICE_NOT_AVAILABLE",
        -4 => "CL_MEM_OBJECT_ALLOCATION_FAILURE: the device is out of memory",
        -5 => "CL_OUT_OF_RESOURCES",
        -6 => "CL_OUT_OF_HOST_MEMORY",
        -11 => "CL_BUILD_PROGRAM_FAILURE",
        -14 => "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
        -30 => "CL_INVALID_VALUE",
        -54 => "CL_INVALID_WORK_GROUP_SIZE",
        -61 => "CL_INVALID_BUFFER_SIZE: larger than the device's largest buffer",
        -1001 => "no OpenCL driver is installed (Debian: apt-get install pocl-opencl-icd runs OpenCL on the CPU)",
        _ => "see the specification for the number",
    };
    Err(BackendError::System { call, reason: format!("{words} (error {status})") })
}
