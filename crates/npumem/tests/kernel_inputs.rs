//! What a stranger gives the command line in place of a clean kernel: names it does not have, other encodings, folders,
//! kernels that are wrong in themselves.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_npumem"));
    command.current_dir(npumem_testing::workspace_root()).env_remove("GITHUB_ACTIONS");
    command.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("npumem-kernel-inputs-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A file, as the command line takes it.
fn file(folder: &std::path::Path, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

const TILE: &str = "!pto.tile_buf<loc=vec, dtype=f32, rows=32, cols=32>";

/// Two tiles of 4 KiB that are live together: at 0 and at `%n`.
fn at_an_argument() -> String {
    format!(
        "func.func @k(%n: i64, %p: memref<32x32xf32>) {{\n  %z = arith.constant 0 : i64\n  \
         %a = pto.alloc_tile addr = %z : {TILE}\n  %b = pto.alloc_tile addr = %n : {TILE}\n  \
         pto.tload ins(%p : memref<32x32xf32>) outs(%a : {TILE})\n  pto.tload ins(%p : memref<32x32xf32>) outs(%b : {TILE})\n  \
         pto.tadd ins(%a, %b : {TILE}, {TILE}) outs(%b : {TILE})\n  \
         pto.tstore ins(%b : {TILE}) outs(%p : memref<32x32xf32>)\n  return\n}}\n"
    )
}

#[test]
fn dims_reach_addresses_and_unknown_names_are_refused() {
    let folder = folder("dims");
    let kernel = file(&folder, "k.pto", at_an_argument());
    let code = |arguments: &[&str]| run(arguments).status.code().unwrap();
    assert_eq!(code(&["check", &kernel]), 3);
    assert_eq!(code(&["check", &kernel, "--dim", "n=4096"]), 0);
    assert_eq!(code(&["check", &kernel, "--dim", "%n=4096"]), 0);
    assert_eq!(code(&["check", &kernel, "--dim", "n=2048"]), 1);
    let wrong = |arguments: &[&str], expected: &str| {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {}", text(&output.stderr));
    };
    wrong(&["check", &kernel, "--dim", "n=-32"], "k.pto:4:3: the address of 'b' comes to -32, which is negative");
    wrong(&["check", &kernel, "--dim", "m=4096"], "there is no dimension 'm'; known: n");
    wrong(&["plan", &kernel, "--dim", "m=4096"], "there is no dimension 'm'; known: n");
    wrong(&["run", &kernel, "--dim", "m=4096"], "there is no dimension 'm'; known: n");
    wrong(&["check", &kernel, "--dim", "n=1", "--dim", "n=2"], "--dim n: given twice");
    wrong(&["check", "testdata/kernels/softmax.pto", "--dim", "n=1"], "there is no dimension 'n'");
    // Of several files, one has it.
    let other = file(&folder, "other.pto", "func.func @k() {\n  return\n}\n");
    assert_eq!(code(&["check", &kernel, &other, "--dim", "n=4096"]), 0);
    assert_eq!(code(&["check", &folder.display().to_string(), "--dim", "n=4096"]), 0);
    wrong(&["check", &kernel, &other, "--dim", "m=4096"], "there is no dimension 'm'; known: n");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn marks_line_ends_and_wide_text() {
    let folder = folder("encodings");
    let plain = std::fs::read_to_string(npumem_testing::workspace_root().join("testdata/kernels/softmax.pto")).unwrap();
    let planned = |name: &str, content: &[u8]| {
        let (input, output) = (file(&folder, name, content), folder.join("planned.pto").display().to_string());
        assert_eq!(run(&["plan", &input, "-o", &output]).status.code(), Some(0), "{name}");
        assert_eq!(run(&["check", &output]).status.code(), Some(0), "{name}");
        std::fs::read_to_string(&output).unwrap()
    };
    let expected = planned("plain.pto", plain.as_bytes());
    assert_eq!(planned("mark.pto", format!("\u{feff}{plain}").as_bytes()), format!("\u{feff}{expected}"));
    assert_eq!(planned("windows.pto", plain.replace('\n', "\r\n").as_bytes()), expected.replace('\n', "\r\n"));
    // Planned again: nothing is left of the first plan.
    assert_eq!(planned("again.pto", expected.as_bytes()), expected);
    for (name, wide) in [
        (
            "little.pto",
            [0xff, 0xfe].into_iter().chain(plain.encode_utf16().flat_map(u16::to_le_bytes)).collect::<Vec<u8>>(),
        ),
        ("big.pto", plain.encode_utf16().flat_map(u16::to_be_bytes).collect()),
    ] {
        let path = file(&folder, name, &wide);
        for verb in ["plan", "check", "run"] {
            let output = run(&[verb, &path]);
            assert_eq!(output.status.code(), Some(2), "{name}");
            assert!(text(&output.stderr).contains("UTF-16"), "{verb} {name}: {}", text(&output.stderr));
            assert!(text(&output.stderr).contains("save the file as UTF-8"), "{}", text(&output.stderr));
        }
    }
    let path = file(&folder, "latin.pto", b"func.func @k() {\n  \xe9\n  return\n}\n");
    let output = run(&["check", &path]);
    assert!(text(&output.stderr).contains("latin.pto:2:3: these bytes are not UTF-8 text"), "{}", text(&output.stderr));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn folders_are_for_check() {
    let folder = folder("folders");
    let empty = folder.display().to_string();
    let output = run(&["plan", &empty]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is a folder; name one file"), "{}", text(&output.stderr));
    let output = run(&["check", &empty]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("there is no file with a kernel (.pto, .npumem) in it"),
        "{}",
        text(&output.stderr)
    );
    std::fs::remove_dir_all(folder).unwrap();
}

/// A plan of a kernel that is wrong in itself says so, beside the plan: the answer to "does it fit" stays yes.
#[test]
fn a_plan_tells_what_no_placement_mends() {
    let folder = folder("own");
    let body = |steps: &str| {
        format!(
            "func.func @k(%p: memref<32x32xf32>) {{\n  %a = pto.alloc_tile : {TILE}\n  \
             pto.tload ins(%p : memref<32x32xf32>) outs(%a : {TILE})\n{steps}  return\n}}\n"
        )
    };
    let add = format!("  pto.tadd ins(%a, %a : {TILE}, {TILE}) outs(%a : {TILE})\n");
    let set = "  pto.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]\n";
    let wait = "  pto.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]\n";
    let never = "  pto.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID1>]\n";
    for (name, steps, faults) in [
        ("right", format!("{set}{wait}{add}"), None),
        ("race", format!("{add}{set}{wait}"), Some("a fault that no placement mends")),
        ("both", format!("{add}{set}{wait}{never}{add}"), Some("2 faults that no placement mends")),
    ] {
        let kernel = file(&folder, &format!("{name}.pto"), body(&steps));
        let output = run(&["plan", &kernel]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
        let check = run(&["check", &kernel]);
        assert_eq!(check.status.code(), Some(i32::from(faults.is_some())), "{name}: {}", text(&check.stdout));
        let json = text(&run(&["plan", &kernel, "--json"]).stdout);
        match faults {
            None => {
                assert!(output.stderr.is_empty(), "{name}: {}", text(&output.stderr));
                assert!(!json.contains("no placement mends"));
            }
            Some(faults) => {
                assert!(text(&output.stderr).contains(faults), "{name}: {}", text(&output.stderr));
                assert!(text(&output.stderr).contains("npumem check"), "{name}: {}", text(&output.stderr));
                assert!(text(&output.stdout).contains("no placement mends"), "{name}");
                assert!(json.contains(faults), "{name}: {json}");
            }
        }
    }
    // A slice past its tile.
    let past = format!(
        "  %c = arith.constant 16 : index\n  %h = arith.constant 32 : index\n  \
         %s = pto.subset %a[%c, %c] sizes [32, 32] : {TILE}\n  pto.tadd ins(%s, %s : {TILE}, {TILE}) outs(%s : {TILE})\n"
    );
    let kernel = file(&folder, "past.pto", body(&past));
    let output = run(&["plan", &kernel]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no placement mends"), "{}", text(&output.stderr));
    std::fs::remove_dir_all(folder).unwrap();
}

/// A plan is of one kernel, one text of it, one device.
#[test]
fn a_plan_of_something_else_is_refused_or_said() {
    let folder = folder("other-plans");
    let kernel = file(&folder, "k.pto", at_an_argument().replace("addr = %n ", "").replace("addr = %z ", ""));
    let plan = folder.join("k.json").display().to_string();
    assert_eq!(run(&["plan", &kernel, "-o", &plan]).status.code(), Some(0));
    let good = run(&["check", &kernel, &plan]);
    assert_eq!((good.status.code(), text(&good.stdout).contains("note:")), (Some(0), false), "{}", text(&good.stdout));
    let written = std::fs::read_to_string(&plan).unwrap();
    let other = |name: &str, from: &str, to: &str| {
        assert!(written.contains(from), "{from}: {written}");
        let other = file(&folder, name, written.replace(from, to));
        run(&["check", &kernel, &other])
    };
    let named = other("name.json", "\"problem\": \"k\"", "\"problem\": \"softmax\"");
    assert_eq!(named.status.code(), Some(2));
    assert!(text(&named.stderr).contains("it is of 'softmax', and this kernel is 'k'"), "{}", text(&named.stderr));
    let device = other("device.json", "\"ascend-910b2\"", "\"ascend-950\"");
    assert_eq!(device.status.code(), Some(0));
    let said = "note: the plan was made for ascend-950 and is checked for ascend-910b2";
    assert!(text(&device.stdout).contains(said), "{}", text(&device.stdout));
    // A statement more before the others: the places are for other steps.
    let longer = at_an_argument().replace("addr = %n ", "").replace("addr = %z ", "").replacen(
        "  return",
        &format!("  pto.tstore ins(%a : {TILE}) outs(%p : memref<32x32xf32>)\n  return"),
        1,
    );
    let longer = file(&folder, "longer.pto", longer);
    let refused = run(&["check", &longer, &plan]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stdout));
    assert!(text(&refused.stderr).contains("the kernel needs it in steps"), "{}", text(&refused.stderr));
    let mut value: serde_json::Value = serde_json::from_str(&written).unwrap();
    value["origin"]["digest"] = "0000000000000000".into();
    let digest = file(&folder, "digest.json", value.to_string());
    let said = run(&["check", &kernel, &digest]);
    assert_eq!(said.status.code(), Some(0));
    assert!(text(&said.stdout).contains("note: the digest of the plan is none that"), "{}", text(&said.stdout));
}

#[test]
fn a_plan_is_written_in_the_form_that_its_name_asks_for() {
    let folder = folder("forms");
    let kernel = file(&folder, "k.pto", at_an_argument().replace("addr = %n ", "").replace("addr = %z ", ""));
    for name in ["x.csv", "x.npumem", "x.txt"] {
        let path = folder.join(name);
        let output = run(&["plan", &kernel, "-o", &path.display().to_string()]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        let error = text(&output.stderr);
        assert!(error.contains("name it .json (the plan), or .pto (the kernel with its addresses)"), "{error}");
        assert!(!path.exists());
    }
    for (name, first) in [("x.json", "{"), ("x.pto", "func.func"), ("x.MLIR", "func.func"), ("x", "func.func")] {
        let path = folder.join(name);
        assert_eq!(run(&["plan", &kernel, "-o", &path.display().to_string()]).status.code(), Some(0), "{name}");
        assert!(std::fs::read_to_string(&path).unwrap().starts_with(first), "{name}");
    }
}

#[test]
fn an_empty_file_is_an_error_with_a_place() {
    let folder = folder("empty");
    let kernel = file(&folder, "empty.pto", "");
    for verb in ["check", "plan"] {
        let output = run(&[verb, &kernel]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("empty.pto:1:1: "), "{}", text(&output.stderr));
    }
}
