//! Scratch that no operand names, and handles that only the program before planning tells apart.

#![allow(clippy::unwrap_used)]

use npumem::check_program::{Kind, Severity, Standing};
use npumem::ir::program::{Program, Role};
use npumem::ir::{Device, Offset};
use npumem::kernel;
use npumem::plan::Fit;
use npumem::{PlacementOptions, catalogue};
use npumem_testing::Scratch;
use std::collections::BTreeMap;
use std::process::{Command, Output};

const ROWS: &str = "!pto.tile_buf<loc=vec, dtype=f32, rows=64, cols=64, v_row=64, v_col=64, blayout=row_major, slayout=none_box, fractal=512, pad=0>";
const COLUMN: &str = "!pto.tile_buf<loc=vec, dtype=f32, rows=64, cols=1, v_row=64, v_col=1, blayout=col_major, slayout=none_box, fractal=512, pad=0>";
const BLOCKS: &str = "!pto.tile_buf<loc=vec, dtype=f32, rows=64, cols=8, v_row=64, v_col=8, blayout=row_major, slayout=none_box, fractal=512, pad=0>";

/// `out = x * column`, with or without a scratch operand; `kept` is loaded before and stored after.
fn scaled(architecture: &str, factor: &str, scratch: bool, addresses: Option<[i64; 3]>) -> String {
    let at = |index: usize| addresses.map_or(String::new(), |a| format!(" addr = %a{}", a[index]));
    let constants = addresses
        .map_or(String::new(), |a| a.iter().map(|n| format!("    %a{n} = arith.constant {n} : i64\n")).collect());
    let (operand, operand_type) = if scratch { (", %tmp", format!(", {ROWS}")) } else { ("", String::new()) };
    let tmp = if scratch { format!("    %tmp = pto.alloc_tile : {ROWS}\n") } else { String::new() };
    format!(
        "module attributes {{pto.target_arch = \"{architecture}\"}} {{\n  func.func @scaled(%src: memref<64x64xf32, #pto.address_space<gm>>, %dst: memref<64x64xf32, #pto.address_space<gm>>) {{\n\
         {constants}    %kept = pto.alloc_tile{} : {ROWS}\n    %x = pto.alloc_tile{} : {ROWS}\n    %column = pto.alloc_tile{} : {factor}\n{tmp}\
         \x20   pto.tload ins(%src : memref<64x64xf32, #pto.address_space<gm>>) outs(%kept : {ROWS})\n\
         \x20   pto.tload ins(%src : memref<64x64xf32, #pto.address_space<gm>>) outs(%x : {ROWS})\n\
         \x20   pto.tload ins(%src : memref<64x64xf32, #pto.address_space<gm>>) outs(%column : {factor})\n\
         \x20   pto.trowexpandmul ins(%x, %column{operand} : {ROWS}, {factor}{operand_type}) outs(%x : {ROWS})\n\
         \x20   pto.tstore ins(%x : {ROWS}) outs(%dst : memref<64x64xf32, #pto.address_space<gm>>)\n\
         \x20   pto.tstore ins(%kept : {ROWS}) outs(%dst : memref<64x64xf32, #pto.address_space<gm>>)\n    return\n  }}\n}}\n",
        at(0),
        at(1),
        at(2)
    )
}

fn program(source: &str) -> Program {
    kernel::read(source, &BTreeMap::new()).unwrap_or_else(|error| panic!("{error}\n{source}")).kernels[0]
        .program
        .clone()
}

fn hidden(program: &Program) -> Vec<(u64, u64)> {
    let fixed = program.buffers.iter().filter(|buffer| buffer.fixed);
    fixed.map(|b| (b.address.as_ref().unwrap().as_constant().unwrap() as u64, b.bytes.unwrap())).collect()
}

fn device(name: &str) -> Device {
    catalogue::device(name).unwrap()
}

/// 64 rows are eight groups of eight, each 256 bytes, in the last 8 KiB of the unified buffer.
#[test]
fn spreading_a_column_takes_hidden_bytes_on_a3_alone() {
    assert_eq!(hidden(&program(&scaled("a3", COLUMN, false, None))), [(188_416, 2048)]);
    assert_eq!(hidden(&program(&scaled("a3", COLUMN, true, None))), [], "a scratch operand takes its place");
    assert_eq!(hidden(&program(&scaled("a3", BLOCKS, false, None))), [], "blocks are spread already");
    assert_eq!(hidden(&program(&scaled("a5", COLUMN, false, None))), [], "the hardware spreads");
}

#[test]
fn a_tile_on_hidden_bytes_is_unsound() {
    // 'kept' reaches from 180,224 into the scratch at 188,416: its last 8 KiB, of which 2 KiB are overwritten.
    let on = program(&scaled("a3", COLUMN, false, Some([180_224, 0, 16_384])));
    let verdict = kernel::check(&on, &device("ascend-910b2"), false).unwrap();
    assert_eq!(verdict.standing, Standing::Unsound);
    let Kind::Overwritten { reader, other, bytes, overwritten, .. } = &verdict.findings[0].kind else {
        panic!("{:?}", verdict.findings)
    };
    assert_eq!(on.buffer(*reader).name, "kept");
    assert_eq!((on.buffer(*other).role, on.buffer(*other).fixed), (Role::Workspace, true));
    assert_eq!((bytes.start, bytes.end), (Offset(188_416), Offset(190_464)));
    assert_eq!(on.line(overwritten.step), 12);
    // The same addresses are right where the library needs no scratch.
    let other = program(&scaled("a5", COLUMN, false, Some([180_224, 0, 16_384])));
    assert_eq!(kernel::check(&other, &device("ascend-950"), false).unwrap().standing, Standing::Sound);
    assert_eq!(kernel::check(&on, &device("ascend-950"), false).unwrap().standing, Standing::Sound);
    // Below it, and beside it, there is room.
    let below = program(&scaled("a3", COLUMN, false, Some([172_032, 0, 16_384])));
    assert_eq!(kernel::check(&below, &device("ascend-910b2"), false).unwrap().standing, Standing::Sound);
}

#[test]
fn a_plan_lists_hidden_bytes_and_keeps_off_them() {
    let source = scaled("a3", COLUMN, false, None);
    let scratch = Scratch::new("hidden");
    let (kernel, planned) = (scratch.file("scaled.pto", &source), scratch.path("planned.pto"));
    let (kernel, planned) = (kernel.to_str().unwrap(), planned.to_str().unwrap());
    let output = run(&["plan", kernel, "-o", planned, "--effort", "fast"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let line = text.lines().find(|line| line.contains("library scratch") && line.contains("hidden")).unwrap();
    assert!(line.contains("[ 188416,  190464)"), "{line}");
    assert_eq!(run(&["check", planned]).status.code(), Some(0));
    // A space with nothing but the scratch left over: eleven tiles of 16 KiB fit below it, a twelfth does not.
    let plan = |tiles: usize| {
        let mut text = npumem::ir::program::text::print(&program(&source));
        let buffers: String =
            (0..tiles).map(|n| format!("buffer more{n} in vec bytes 16384 align 32 : u8\n")).collect();
        let steps = |verb: &str| -> String { (0..tiles).map(|n| format!("x @v {verb} more{n}[0]:u8\n")).collect() };
        text = text.replace("steps\n", &format!("{buffers}steps\n{}", steps("writes"))) + &steps("reads");
        let program = npumem::ir::program::text::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        kernel::plan(&program, &device("ascend-910b2"), &PlacementOptions::fast(), &[], None).unwrap()
    };
    assert_eq!(plan(9).planned.fit, Fit::Yes);
    assert_eq!(plan(10).planned.fit, Fit::No);
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_npumem")).args(arguments).env_remove("GITHUB_ACTIONS").output().unwrap()
}

const ACC: &str = "!pto.tile_buf<loc=acc, dtype=f32, rows=16, cols=16, v_row=16, v_col=16, blayout=col_major, slayout=row_major, fractal=1024, pad=0>";
const LEFT: &str = "!pto.tile_buf<loc=left, dtype=f16, rows=16, cols=16, v_row=16, v_col=16, blayout=col_major, slayout=row_major, fractal=512, pad=0>";
const RIGHT: &str = "!pto.tile_buf<loc=right, dtype=f16, rows=16, cols=16, v_row=16, v_col=16, blayout=row_major, slayout=col_major, fractal=512, pad=0>";

/// An accumulator: the handle that the first product writes, and the handle that the loop adds to.
fn accumulator(first: &str, again: &str, rest: &str) -> String {
    format!(
        "module attributes {{pto.target_arch = \"a3\"}} {{\n  func.func @acc(%x: memref<16x16xf16, #pto.address_space<left>>, %y: memref<16x16xf16, #pto.address_space<right>>, %dst: memref<16x16xf32, #pto.address_space<gm>>) {{\n\
         \x20   %c0 = arith.constant 0 : index\n    %c1 = arith.constant 1 : index\n    %c4 = arith.constant 4 : index\n    %z = arith.constant 0 : i64\n    %k = arith.constant 1024 : i64\n{rest}\
         \x20   pto.tmatmul ins(%l, %r : {LEFT}, {RIGHT}) outs({first} : {ACC})\n\
         \x20   scf.for %i = %c0 to %c4 step %c1 {{\n\
         \x20     pto.tmatmul.acc ins({again}, %l, %r : {ACC}, {LEFT}, {RIGHT}) outs({again} : {ACC})\n    }}\n\
         \x20   pto.tstore ins({first} : {ACC}) outs(%dst : memref<16x16xf32, #pto.address_space<gm>>)\n    return\n  }}\n}}\n"
    )
}

#[test]
fn the_program_before_planning_decides_what_the_planned_file_cannot() {
    let operands = |at: &str| format!("    %l = pto.alloc_tile{at} : {LEFT}\n    %r = pto.alloc_tile{at} : {RIGHT}\n");
    let planned = format!(
        "{}    %a = pto.alloc_tile addr = %z : {ACC}\n    %b = pto.alloc_tile addr = %z : {ACC}\n",
        operands(" addr = %z")
    );
    let one = format!("{}    %acc = pto.alloc_tile : {ACC}\n", operands(""));
    let two = format!("{}    %p = pto.alloc_tile : {ACC}\n    %q = pto.alloc_tile : {ACC}\n", operands(""));
    let scratch = Scratch::new("against");
    let planned = scratch.file("planned.pto", &accumulator("%a", "%b", &planned));
    let one = scratch.file("one.pto", &accumulator("%acc", "%acc", &one));
    let two = scratch.file("two.pto", &accumulator("%p", "%q", &two));
    let planned = planned.to_str().unwrap();
    let check = |more: &[&str]| run(&[&["check", planned, "--top", "0"], more].concat());
    let alone = check(&[]);
    let text = String::from_utf8_lossy(&alone.stdout);
    assert_eq!(alone.status.code(), Some(3), "{text}");
    assert!(text.contains("reads bytes [0, 1024)") && text.contains("'a'") && text.contains("--against"), "{text}");
    let one = check(&["--against", one.to_str().unwrap()]);
    assert_eq!(one.status.code(), Some(0), "{}", String::from_utf8_lossy(&one.stdout));
    let two_answer = check(&["--against", two.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&two_answer.stdout);
    assert_eq!(two_answer.status.code(), Some(1), "{text}");
    assert!(text.contains("of 'p' in acc that 'q' has overwritten"), "{text}");
    // Another program is refused with the statement that differs, and so are two files at once.
    let other = accumulator(
        "%p",
        "%q",
        &format!("{}    %p = pto.alloc_tile : {ACC}\n    %q = pto.alloc_tile : {ACC}\n", operands("")),
    )
    .replace("pto.tmatmul ins", "pto.tgemv ins");
    let other = scratch.file("other.pto", &other);
    let output = check(&["--against", other.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("'tgemv' at statement 0 (line 12) before planning and 'tmatmul'"), "{text}");
    assert_eq!(check(&[planned, "--against", two.to_str().unwrap()]).status.code(), Some(2));
}

/// A tile on the accumulator of a whole kernel is a fault, though its scratch operand follows from the data.
#[test]
fn scratch_is_nobody_s_second_handle() {
    let source = "npumem-program 1\nprogram k\nbuffer acc in vec bytes 256 align 32 at 0 : u8\nbuffer tmp in vec bytes 256 align 32 at 0 : u8\nbuffer r in vec bytes 32 align 32 at 256 : u8\nsteps\n\
        w @v writes acc[0]:u8\nsum @v reads acc[0]:u8 writes r[0]:u8, tmp[0]:u8 set scratch = \"last write\"\nread @v reads acc[0]:u8\n";
    let program = npumem::ir::program::text::parse(source).unwrap();
    let verdict = kernel::check(&program, &device("ascend-910b2"), false).unwrap();
    assert_eq!(verdict.standing, Standing::Unsound, "{:?}", verdict.findings);
    assert!(verdict.of(Severity::Fault).any(|finding| matches!(finding.kind, Kind::Overwritten { .. })));
}
