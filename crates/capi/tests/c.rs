//! The C example, compiled by the system's compiler against the header and run; and the header against the source.
#![allow(clippy::unwrap_used)]
use npumem_ir::Trace;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where this build's libraries are: two levels above the test program.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().to_path_buf()
}

/// A C program of this package, compiled against the header and the shared library; `None`, and said, where that cannot be.
#[allow(clippy::print_stdout)] // A skipped test says so.
fn compile(source: &str) -> Option<(PathBuf, PathBuf)> {
    if Command::new("cc").arg("--version").output().is_err() {
        println!("skipped: no C compiler");
        return None;
    }
    let library = libraries().join("libnpumem_c.so");
    let library = if library.exists() { library } else { libraries().join("deps/libnpumem_c.so") };
    if !library.exists() {
        println!("skipped: {} was not built", library.display());
        return None;
    }
    let name = Path::new(source).file_stem().unwrap().to_string_lossy().into_owned();
    let program = std::env::temp_dir().join(format!("npumem-c-{name}-{}", std::process::id()));
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here().join("include"))
        .arg(here().join(source))
        .arg(&library)
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Some((program, library.parent().unwrap().to_path_buf()))
}

#[test]
fn bad_input_from_c_is_an_error_with_a_text_and_changes_nothing() {
    let Some((program, library)) = compile("tests/bad_input.c") else { return };
    let ran = Command::new(&program).env("LD_LIBRARY_PATH", library).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{:?} {text}{}", ran.status, String::from_utf8_lossy(&ran.stderr));
    for part in [
        "the memory is NULL",
        "the block is NULL",
        "an allocation of zero bytes",
        "alignment 3",
        "addresses only",
        "out of memory",
        "there is no memory space 7",
        "was freed before",
        "not from this allocator",
        "filled 3 times alike",
    ] {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    std::fs::remove_file(&program).unwrap();
}

#[test]
fn the_c_example_compiles_runs_and_says_what_it_should() {
    let Some((program, library)) = compile("examples/memory.c") else { return };
    let trace = program.with_extension("trace");
    let ran = Command::new(&program).arg(&trace).env("LD_LIBRARY_PATH", library).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{text}{}", String::from_utf8_lossy(&ran.stderr));
    for part in [
        "this is a double free or a use after free",
        "too much: space `hbm`",
        "live 8388608 in 1 blocks, 5 allocations",
        "8,388,608 B (8.00 MiB) in 1 blocks",
        "weights",
    ] {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    let (recorded, _) = Trace::read(std::fs::File::open(&trace).unwrap()).unwrap();
    // Six allocations in all, four of them freed, and a mark a step.
    assert_eq!(recorded.events.len(), 6 + 4 + 4);
    std::fs::remove_file(&program).unwrap();
    std::fs::remove_file(&trace).unwrap();
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let names = |text: &str, marker: &str| -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for (index, _) in text.match_indices(marker) {
            let rest = &text[index + marker.len() - "npumem_".len()..];
            let end = rest.find(|character: char| !character.is_ascii_alphanumeric() && character != '_').unwrap();
            if rest[end..].starts_with('(') {
                names.insert(rest[..end].to_owned());
            }
        }
        names
    };
    let header = std::fs::read_to_string(here().join("include/npumem.h")).unwrap();
    let code: String = header.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let declared: BTreeSet<String> = names(&code, " npumem_").into_iter().chain(names(&code, "*npumem_")).collect();
    let mut exported = BTreeSet::new();
    for file in ["src/lib.rs", "src/pluggable.rs"] {
        exported.extend(names(&std::fs::read_to_string(here().join(file)).unwrap(), "extern \"C\" fn npumem_"));
    }
    assert_eq!(declared, exported);
    assert!(declared.len() >= 13, "{declared:?}");
}
