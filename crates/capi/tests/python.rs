//! The pluggable allocator as PyTorch would load it: by ctypes from a Python interpreter, and by PyTorch itself where it is.
#![allow(clippy::unwrap_used)]
use std::path::PathBuf;
use std::process::Command;

const SCRIPT: &str = r#"
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.npumem_malloc.restype = ctypes.c_void_p
library.npumem_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
library.npumem_free.restype = None
library.npumem_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
library.npumem_last_error.restype = ctypes.c_char_p

# As a framework does: many sizes, two devices, every byte written and read back.
live = {}
for turn in range(300):
    size, device = (turn * 7919) % 300000 + 1, turn % 2
    address = library.npumem_malloc(size, device, None)
    assert address, library.npumem_last_error()
    ctypes.memset(address, turn % 251, size)
    live[(address, device)] = (size, turn % 251)
    if turn % 3 == 2:
        key = sorted(live)[turn % len(live)]
        size, value = live.pop(key)
        assert ctypes.string_at(key[0], size) == bytes([value]) * size
        library.npumem_free(key[0], size, key[1], None)
for (address, device), (size, value) in live.items():
    assert ctypes.string_at(address, size) == bytes([value]) * size
    library.npumem_free(address, size, device, None)

assert library.npumem_malloc(0, 0, None) is None
assert library.npumem_malloc(-1, 0, None) is None and b"-1 bytes" in library.npumem_last_error()
assert library.npumem_malloc(1 << 60, 0, None) is None and b"hbm" in library.npumem_last_error()
address = library.npumem_malloc(64, 0, None)
library.npumem_free(address, 64, 0, None)
library.npumem_free(address, 64, 0, None)
assert b"is not live" in library.npumem_last_error(), library.npumem_last_error()
print("ctypes: fine")

try:
    import torch
except ImportError:
    print("torch: not installed")
    sys.exit(0)
try:
    allocator = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "npumem_malloc", "npumem_free")
    print("torch: loaded", type(allocator.allocator()).__name__)
except (AttributeError, RuntimeError) as why:
    print("torch: built without CUDA:", why)
"#;

/// This build's shared library: beside the test program, or one level above.
fn library() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().parent().unwrap();
    [folder.join("libnpumem_c.so"), folder.join("deps/libnpumem_c.so")].into_iter().find(|path| path.exists())
}

#[test]
fn python_allocates_and_frees_through_the_two_functions_of_pytorch() {
    let python = std::env::var("NPUMEM_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let Some(library) = library() else {
        println!("skipped: libnpumem_c.so was not built");
        return;
    };
    let Ok(ran) = Command::new(&python).args(["-c", SCRIPT]).arg(&library).output() else {
        println!("skipped: no Python interpreter ({python})");
        return;
    };
    let told = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{told}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(told.contains("ctypes: fine"), "{told}");
    if !told.contains("torch: loaded") {
        println!("skipped: CUDAPluggableAllocator itself: {}", told.lines().last().unwrap_or_default());
    }
}
