//! OpenCL through the loader, on the CPU with PoCL where it is installed.
#![allow(clippy::unwrap_used)]
use npumem_backend::{Backend, BackendError, Memory, MemoryOptions, OpenCl, Place, conformance};
use npumem_ir::{Bytes, SpaceId};
use std::path::Path;

fn open(spaces: &[(&str, Option<Bytes>)]) -> Option<OpenCl> {
    match OpenCl::with_spaces(0, spaces) {
        Ok(device) => Some(device),
        Err(error) => {
            npumem_testing::skipped(&format!("OpenCL: {error}"));
            None
        }
    }
}

#[test]
fn opencl_conforms_and_computes() {
    let spaces = [("hbm", Some(Bytes(64 << 20))), ("sram", Some(Bytes(8 << 20)))];
    let Some(mut device) = open(&spaces) else { return };
    assert!(device.about().memory.get() > 0 && !device.about().name.is_empty(), "{:?}", device.about());
    conformance::check(&mut device).unwrap();
    conformance::check_compute(&mut device).unwrap();
}

#[test]
fn memory_runs_on_opencl() {
    let Some(device) = open(&[("hbm", Some(Bytes(96 << 20)))]) else { return };
    let memory = Memory::new(device, MemoryOptions::default()).unwrap();
    let mut buffer = memory.allocate(SpaceId(0), Bytes(70 << 20)).unwrap();
    buffer.write(69 << 20, b"tensor").unwrap();
    let mut found = [0; 6];
    buffer.read(69 << 20, &mut found).unwrap();
    assert_eq!(&found, b"tensor");
    let error = memory.allocate(SpaceId(0), Bytes(30 << 20)).unwrap_err().to_string();
    assert!(error.contains("space `hbm`"), "{error}");
    drop(buffer);
    assert!(memory.leaks().is_empty());
}

#[test]
fn a_region_keeps_what_it_holds_as_it_grows() {
    let Some(mut device) = open(&[("hbm", None)]) else { return };
    let page = device.spaces()[0].page.get();
    let region = device.reserve(SpaceId(0), Bytes(1 << 40)).unwrap();
    let at = |offset| Place { region, offset };
    device.commit(at(0), Bytes(page)).unwrap();
    device.write(at(10), b"first").unwrap();
    device.commit(at(100 * page), Bytes(page)).unwrap();
    let mut found = [0; 5];
    device.read(at(10), &mut found).unwrap();
    assert_eq!(&found, b"first");
    // Past the largest buffer the device refuses in its own words, and nothing has changed.
    match device.commit(at((1 << 40) - page), Bytes(page)) {
        Err(BackendError::System { call: "clCreateBuffer", reason }) => assert!(reason.contains("CL_"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(device.committed(SpaceId(0)), Bytes(2 * page));
    device.read(at(10), &mut found).unwrap();
    assert_eq!(&found, b"first");
}

#[test]
fn what_is_missing_is_said() {
    let missing = OpenCl::open_library(Path::new("/nowhere/libOpenCL.so"), 0, &[("hbm", None)]).err().unwrap();
    assert!(missing.to_string().contains("no OpenCL loader here"), "{missing}");
    if open(&[]).is_some() {
        let error = OpenCl::open(4000, None).err().unwrap().to_string();
        assert!(error.contains("there is no OpenCL device 4000"), "{error}");
    }
}

#[test]
fn threads_may_open_the_device_at_once() {
    let opened: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| open(&[("hbm", None)]).is_some())).collect();
        threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
    });
    assert!(opened == 0 || opened == 4, "{opened} of 4 threads");
}
