//! CUDA and AscendCL on stand-in libraries that are compiled here, and CUDA on a real device where there is one.
#![allow(clippy::unwrap_used)]
use npumem_backend::ascend::Ascend;
use npumem_backend::cuda::Cuda;
use npumem_backend::{Backend, BackendError, Memory, MemoryOptions, conformance};
use npumem_ir::{Bytes, SpaceId};
use std::path::{Path, PathBuf};
use std::process::Command;

fn stand_in(driver: &str, name: &str) -> Option<PathBuf> {
    let library = std::env::temp_dir().join(format!("npumem-{driver}-{name}-{}.so", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{driver}_stand_in.c"));
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .arg(&library)
        .arg(source)
        .output();
    match compiled {
        Ok(compiled) => {
            assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
            Some(library)
        }
        Err(_) => {
            npumem_testing::skipped("no C compiler for the stand-in drivers");
            None
        }
    }
}

#[test]
fn the_stand_in_conforms_and_memory_runs_on_it() {
    let Some(library) = stand_in("cuda", "suite") else { return };
    let limit = Some(Bytes(128 << 20));
    conformance::check(&mut Cuda::open_library(&library, 0, limit).unwrap()).unwrap();
    // Polling sees a copy that is not done, and then one that is.
    let mut cuda = Cuda::open_library(&library, 0, limit).unwrap();
    let region = cuda.reserve(SpaceId(0), Bytes(4 << 20)).unwrap();
    let at = |offset| npumem_backend::Place { region, offset };
    cuda.commit(at(0), Bytes(4 << 20)).unwrap();
    let ticket = cuda.copy(at(0), at(2 << 20), Bytes(100)).unwrap();
    assert!(!cuda.is_done(ticket) && !cuda.is_done(ticket) && cuda.is_done(ticket));
    drop(cuda);
    let memory = Memory::new(Cuda::open_library(&library, 0, limit).unwrap(), MemoryOptions::default()).unwrap();
    let mut buffer = memory.allocate(SpaceId(0), Bytes(5 << 20)).unwrap();
    buffer.write(4 << 20, b"tensor").unwrap();
    let mut found = [0; 6];
    buffer.read(4 << 20, &mut found).unwrap();
    assert_eq!(&found, b"tensor");
    let error = memory.allocate(SpaceId(0), Bytes(125 << 20)).unwrap_err().to_string();
    assert!(error.contains("space `hbm`"), "{error}");
    drop(buffer);
    drop(memory);
    std::fs::remove_file(library).unwrap();
}

#[test]
fn what_the_driver_refuses_comes_in_its_own_words_and_changes_nothing() {
    let Some(library) = stand_in("cuda", "refuse") else { return };
    // More than the driver has: the commit fails half way and is undone.
    let mut cuda = Cuda::open_library(&library, 0, Some(Bytes(256 << 20))).unwrap();
    let region = cuda.reserve(SpaceId(0), Bytes(1 << 30)).unwrap();
    let place = npumem_backend::Place { region, offset: 0 };
    let mut other = Cuda::open_library(&library, 0, None).unwrap();
    let taken = other.reserve(SpaceId(0), Bytes(200 << 20)).unwrap();
    other.commit(npumem_backend::Place { region: taken, offset: 0 }, Bytes(200 << 20)).unwrap();
    match cuda.commit(place, Bytes(100 << 20)) {
        Err(BackendError::System { call: "cuMemCreate", reason }) => {
            assert!(reason.contains("out of memory"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(cuda.committed(SpaceId(0)), Bytes::ZERO);
    drop(other);
    cuda.commit(place, Bytes(100 << 20)).unwrap();
    assert!(Cuda::open_library(&library, 7, None).is_err());
    let missing = Cuda::open_library(Path::new("/nowhere/libcuda.so"), 0, None).err().unwrap().to_string();
    assert!(missing.contains("no CUDA driver here"), "{missing}");
    drop(cuda);
    std::fs::remove_file(library).unwrap();
}

#[test]
fn a_real_device_conforms() {
    match Cuda::open(0, Some(Bytes(512 << 20))) {
        Ok(mut cuda) => conformance::check(&mut cuda).unwrap(),
        Err(error) => npumem_testing::skipped(&error.to_string()),
    }
}

#[test]
fn ascend_conforms_on_its_stand_in_and_memory_runs_on_it() {
    let Some(library) = stand_in("ascend", "suite") else { return };
    let limit = Some(Bytes(128 << 20));
    conformance::check(&mut Ascend::open_library(&library, 0, limit).unwrap()).unwrap();
    let memory = Memory::new(Ascend::open_library(&library, 0, limit).unwrap(), MemoryOptions::default()).unwrap();
    let mut buffer = memory.allocate(SpaceId(0), Bytes(5 << 20)).unwrap();
    buffer.write(4 << 20, b"tensor").unwrap();
    let mut found = [0; 6];
    buffer.read(4 << 20, &mut found).unwrap();
    assert_eq!(&found, b"tensor");
    drop(buffer);
    assert_eq!(memory.trim(SpaceId(0)).unwrap(), Bytes(6 << 20));
    // What the device refuses comes in its own words, and half a commit is undone.
    let mut ascend = Ascend::open_library(&library, 0, Some(Bytes(256 << 20))).unwrap();
    let mut other = Ascend::open_library(&library, 0, None).unwrap();
    for (device, bytes, fits) in [(&mut other, 200 << 20, true), (&mut ascend, 100 << 20, false)] {
        let region = device.reserve(SpaceId(0), Bytes(bytes)).unwrap();
        match device.commit(npumem_backend::Place { region, offset: 0 }, Bytes(bytes)) {
            Ok(()) => assert!(fits),
            Err(BackendError::System { call: "aclrtMallocPhysical", reason }) => {
                assert!(!fits && reason.contains("207001 device memory is used up"), "{reason}");
                assert_eq!(device.committed(SpaceId(0)), Bytes::ZERO);
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(Ascend::open_library(&library, 3, None).is_err());
    drop((ascend, other, memory));
    std::fs::remove_file(library).unwrap();
}

#[test]
fn without_cann_it_says_so() {
    match Ascend::open(0, None) {
        Ok(_) => {}
        Err(error) => npumem_testing::skipped(&error.to_string()),
    }
}
