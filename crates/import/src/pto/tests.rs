//! The reader of `.pto` against texts and their meaning.

use super::*;
use std::cell::Cell;
use std::path::Path;

thread_local! {
    /// Bytes of the text that were read again to name a line.
    pub(super) static REREAD: Cell<usize> = const { Cell::new(0) };
}

/// Files that the dialect's own tests expect to be refused, whatever the flags, for a reason this reader shares.
const REFUSED: [&str; 7] = [
    "pto_entry_recursive_rejected.pto",
    "resolve_reserved_buffers_reject_incomplete_peer_group_a5.pto",
    "resolve_reserved_buffers_reject_non_peer_init_a5.pto",
    "tassign_level3_missing_alloc_addr.pto",
    "tcvt_verify_invalid.pto",
    "tget_scale_addr_verify_invalid.pto",
    "tinsert_verify_a5_invalid_loc.pto",
];

/// Point `NPUMEM_PTOAS` at a checkout of the public repository.
#[test]
fn reads_the_public_samples() {
    let Some(folder) = std::env::var_os("NPUMEM_PTOAS") else {
        npumem_testing::skipped("NPUMEM_PTOAS is not set");
        return;
    };
    let files = npumem_testing::files_under(Path::new(&folder), ".pto");
    assert!(files.len() >= 200, "{} files", files.len());
    let mut unknown = BTreeMap::<String, usize>::new();
    let mut wrong = Vec::new();
    for path in &files {
        let text = std::fs::read_to_string(path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match (read(&text, &Options::default()), REFUSED.contains(&name.as_str())) {
            (Ok(module), false) => {
                for operation in module.unknown {
                    *unknown.entry(operation.name).or_default() += 1;
                }
            }
            (Ok(_), true) => wrong.push(format!("{name}: accepted")),
            (Err(error), refused) => {
                if !refused {
                    wrong.push(format!("{name}: {error}"));
                } else {
                    eprintln!("{name}: {error}");
                }
            }
        }
    }
    eprintln!("{} files, unknown operations: {unknown:?}", files.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn kernels() -> Vec<(String, String)> {
    let folder = npumem_testing::workspace_root().join("testdata/kernels");
    npumem_testing::files_under(&folder, ".pto")
        .iter()
        .map(|path| (path.display().to_string(), std::fs::read_to_string(path).unwrap()))
        .collect()
}

#[test]
fn our_kernels_are_read_and_come_back_as_text() {
    let kernels = kernels();
    assert_eq!(kernels.len(), 5);
    for (path, text) in kernels {
        let module = read(&text, &Options::default()).unwrap_or_else(|error| panic!("{path}:{error}"));
        assert!(module.unknown.is_empty(), "{path}: {:?}", module.unknown);
        let [kernel] = module.programs.as_slice() else { panic!("{path}: one program") };
        assert!(!kernel.program.is_planned());
        let printed = npumem_ir::program::text::print(&kernel.program);
        let back =
            npumem_ir::program::text::parse(&printed).unwrap_or_else(|error| panic!("{path}: {error}\n{printed}"));
        assert_eq!(back, kernel.program, "{path}");
    }
}

#[test]
fn a_plan_is_written_back_and_read_again() {
    for (path, text) in kernels() {
        let module = read(&text, &Options::default()).unwrap();
        let mut plan = BTreeMap::new();
        for (index, site) in module.programs[0].sites.iter().enumerate() {
            plan.insert(site.buffer, npumem_ir::Offset(index as u64 * 4096));
        }
        let planned = write_plan(&text, &module.programs, &[plan.clone()]).unwrap();
        let again = read(&planned, &Options::default()).unwrap_or_else(|error| panic!("{path}:{error}\n{planned}"));
        for (id, offset) in &plan {
            let buffer = again.programs[0].program.buffer(*id);
            assert_eq!(buffer.address.as_ref().and_then(|a| a.as_constant()), Some(offset.0 as i64), "{path}");
        }
        // Planning a planned text replaces the addresses.
        let moved: BTreeMap<_, _> = plan.iter().map(|(id, at)| (*id, npumem_ir::Offset(at.0 + 32))).collect();
        let second = write_plan(&planned, &again.programs, &[moved]).unwrap();
        let third = read(&second, &Options::default()).unwrap();
        let first = again.programs[0].sites[0].buffer;
        assert_eq!(third.programs[0].program.buffer(first).address, Some(32.into()), "{path}");
    }
}

#[test]
fn errors_say_where_and_what_was_expected() {
    let wrong = |body: &str| {
        let text = format!("module {{\n  func.func @k(%n: index) {{\n{body}\n    return\n  }}\n}}\n");
        read(&text, &Options::default()).map(|_| ()).unwrap_err().to_string()
    };
    let tile = "!pto.tile_buf<loc=vec, dtype=f32, rows=8, cols=8, v_row=8, v_col=8, blayout=row_major, slayout=none_box, fractal=512, pad=0>";
    assert_eq!(wrong("    %a = pto.alloc_tile"), "line 3, column 24: expected ': !pto.tile_buf<...>' after alloc_tile");
    assert_eq!(
        wrong("    %a = pto.alloc_tile : !pto.tile_buf<loc=ub, dtype=f32, rows=8, cols=8>"),
        "line 3, column 27: loc=ub: expected vec, mat, left, right, acc, bias or scaling"
    );
    assert_eq!(
        wrong("    pto.tload ins(%x : index) outs(%y : index)"),
        "line 3, column 19: '%x' is used before it is defined"
    );
    assert_eq!(wrong("    pto.tload ins(%x : index outs(%y : index)"), "line 3, column 30: expected ')', found 'outs'");
    assert_eq!(
        wrong(&format!("    %z = arith.constant -32 : i64\n    %a = pto.alloc_tile addr = %z : {tile}")),
        "line 4, column 32: address -32 is negative"
    );
    assert_eq!(
        wrong("    %z = arith.constant 99999999999999999999 : i64"),
        "line 3, column 25: '99999999999999999999' is not an integer that fits 64 bits"
    );
    assert_eq!(
        wrong("    %a = memref.alloc(%n) : memref<?x4xf32, #pto.address_space<vec>>"),
        "line 3, column 5: the size of this buffer is not known: give it with --dim n=VALUE"
    );
    assert_eq!(
        wrong("    scf.for %i = %n until %n step %n {\n    }"),
        "line 3, column 21: expected 'to', found 'until'"
    );
    assert_eq!(
        read("module {\n  func.func @k() {\n", &Options::default()).unwrap_err().to_string(),
        "line 3, column 1: expected '}' before the end of the file"
    );
    assert_eq!(
        read("module {\n  $\n}", &Options::default()).unwrap_err().to_string(),
        "line 2, column 3: '$' begins no word"
    );
}

#[test]
fn a_dimension_is_bound_and_an_unknown_operation_is_conservative() {
    let text = "func.func @k(%n: index, %p: memref<64xf32>) {\n  %a = memref.alloc(%n) : memref<?x4xf32, #pto.address_space<vec>>\n  pto.tload ins(%p : memref<64xf32>) outs(%a : memref<?x4xf32, #pto.address_space<vec>>)\n  pto.tmagic ins(%p : memref<64xf32>) outs(%a : memref<?x4xf32, #pto.address_space<vec>>)\n  other.thing %a : memref<?x4xf32, #pto.address_space<vec>>\n  return\n}";
    let module = read(text, &Options { dims: [("n".to_owned(), 16)].into(), ..Options::default() }).unwrap();
    assert_eq!(module.programs[0].program.buffers[1].bytes, Some(256));
    let names: Vec<_> = module.unknown.iter().map(|u| (u.name.as_str(), u.line, u.column)).collect();
    assert_eq!(names, [("pto.tmagic", 4, 3), ("other.thing", 5, 3)]);
    let npumem_ir::program::Step::Run(unknown) = &module.programs[0].program.steps[2] else { panic!("a statement") };
    assert!(!unknown.known && unknown.reads.len() == 1 && unknown.writes.len() == 1);
}

/// The fuzz body: any text is an error that stands in the text, or programs whose rules hold and that come back from
/// their own text form as they were; in bounded memory, never a panic. Whether it was read.
pub(crate) fn fuzz(text: &str) -> bool {
    match read(text, &Options::default()) {
        Ok(module) => {
            for kernel in &module.programs {
                kernel.program.structure().unwrap();
                let printed = npumem_ir::program::text::print(&kernel.program);
                let back =
                    npumem_ir::program::text::parse(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}\n{text}"));
                assert_eq!(back, kernel.program, "{text}");
                for site in &kernel.sites {
                    assert!(site.start < site.end && text.get(site.start..site.end).is_some(), "{site:?}\n{text}");
                }
            }
            true
        }
        Err(error) => {
            let lines: Vec<&str> = text.split('\n').collect();
            let line = lines.get(error.line as usize - 1).unwrap_or_else(|| panic!("{error}\n{text}"));
            assert!((1..=line.chars().count() as u32 + 1).contains(&error.column), "{error}\n{text}");
            assert!(!error.problem.is_empty());
            false
        }
    }
}

/// Words of our kernels dropped, doubled, exchanged with others, and numbers made of any size.
#[test]
fn kernels_of_damaged_words_are_refused_where_they_stand_or_read() {
    let mut random = npumem_testing::Random(11);
    let (mut accepted, mut refused) = (0, 0);
    let numbers = [
        "-1",
        "0",
        "1",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551616",
        "4294967296",
        "0x7fffffffffffffff",
    ];
    for (_, text) in kernels() {
        let words: Vec<lex::Token> = lex::lex(&text).unwrap();
        let word = |at: usize| &text[words[at].start..words[at].end];
        for _ in 0..160 {
            // What stands in the place of some words, by number.
            let mut edits: BTreeMap<usize, String> = BTreeMap::new();
            for _ in 0..1 + random.below(3) {
                let at = random.below(words.len() as u64 - 1) as usize;
                let other = random.below(words.len() as u64 - 1) as usize;
                match random.below(6) {
                    0 => drop(edits.insert(at, String::new())),
                    1 => drop(edits.insert(at, format!("{0} {0}", word(at)))),
                    2 => {
                        edits.insert(at, word(other).to_owned());
                        edits.insert(other, word(at).to_owned());
                    }
                    3 => drop(edits.insert(at, word(other).to_owned())),
                    _ => {
                        // A number, wherever the next one stands.
                        let next = (at..words.len()).find(|at| words[*at].kind == lex::Kind::Number);
                        let number = *random.pick(&numbers);
                        next.map(|next| edits.insert(next, number.to_owned()));
                    }
                }
            }
            let (mut damaged, mut from) = (String::with_capacity(text.len()), 0);
            for (at, edit) in &edits {
                damaged.push_str(&text[from..words[*at].start]);
                damaged.push_str(edit);
                from = words[*at].end;
            }
            damaged.push_str(&text[from..]);
            match fuzz(&damaged) {
                true => accepted += 1,
                false => refused += 1,
            }
        }
    }
    eprintln!("{accepted} read, {refused} refused");
    assert!(accepted > 50 && refused > 200, "{accepted} read, {refused} refused");
}

#[test]
fn damaged_kernels_never_panic() {
    let mut random = npumem_testing::Random(7);
    for (_, text) in kernels() {
        let bytes = text.as_bytes();
        let words: [&[u8]; 12] = [
            b"}",
            b"{",
            b"(",
            b"<",
            b"%x",
            b" = ",
            b"scf.if %c {",
            b"\"",
            b"-1",
            b": ",
            b"func.func @k() {",
            b"99999999999999999999",
        ];
        for _ in 0..120 {
            let mut damaged = bytes.to_vec();
            for _ in 0..1 + random.below(3) {
                let at = random.below(damaged.len() as u64) as usize;
                match random.below(4) {
                    0 => damaged.truncate(at),
                    1 => damaged[at] = random.below(128) as u8,
                    2 => {
                        let word = words[random.below(words.len() as u64) as usize];
                        damaged.splice(at..at, word.iter().copied());
                    }
                    _ => {
                        let end = (at + random.below(200) as usize).min(damaged.len());
                        damaged.drain(at..end);
                    }
                }
                if damaged.is_empty() {
                    break;
                }
            }
            if let Ok(text) = std::str::from_utf8(&damaged) {
                fuzz(text);
            }
        }
    }
    // Deep nesting of every kind that the text can ask for.
    fuzz(&"(".repeat(100_000));
    fuzz(&format!("func.func @k(%a: {}", "<".repeat(100_000)));
    fuzz(&format!("func.func @k() {{ {}", "scf.if %c {".repeat(100_000)));
    fuzz(&format!("func.func @k(%a: {} index) {{ return }}", "() -> ".repeat(100_000)));
}

/// The work of a statement does not follow the length of the file: no text is read again to name its line.
#[test]
fn a_long_kernel_is_read_once() {
    let tile = "!pto.tile_buf<loc=vec, dtype=f32, rows=8, cols=8, v_row=8, v_col=8, blayout=row_major, \
                slayout=none_box, fractal=512, pad=0>";
    for statements in [1_000, 8_000] {
        let mut text = format!("module {{\nfunc.func @k() {{\n%a = pto.alloc_tile : {tile}\n");
        for _ in 0..statements {
            text += &format!("pto.tadd ins(%a, %a : {tile}, {tile}) outs(%a : {tile})\n");
            text += &format!("pto.odd_one ins(%a : {tile})\n");
        }
        text += "return\n}\n}\n";
        REREAD.with(|count| count.set(0));
        let module = read(&text, &Options::default()).unwrap();
        assert_eq!(REREAD.with(Cell::get), 0, "{statements} statements");
        assert_eq!(module.unknown.len(), statements);
        let last = &module.unknown[statements - 1];
        assert_eq!((last.line, last.column), (3 + 2 * statements as u32, 1));
    }
}

/// Two calls a level: refused by counting, before anything is inlined.
#[test]
fn calls_that_double_are_counted_first() {
    let mut text = String::from("module {\n");
    for level in 0..60 {
        let call = format!("func.call @f{}() : () -> ()\n", level + 1);
        text += &format!("func.func @f{level}() {{\n{call}{call}return\n}}\n");
    }
    let small = text.replace("func.call", "// func.call");
    let leaf = "func.func @f60() {\npto.barrier <PIPE_ALL>\nreturn\n}\n}\n";
    let error = read(&(text + leaf), &Options::default()).unwrap_err();
    assert!(error.problem.contains("'@f0' comes to") && error.problem.contains("once calls are inlined"), "{error}");
    assert_eq!(error.line, 2);
    assert!(read(&(small + leaf), &Options::default()).is_ok());
}

/// A name is defined once where it is seen, as MLIR has it; a name of a region that has closed may come again.
#[test]
fn a_name_is_defined_once_where_it_is_seen() {
    let read_body = |body: &str| {
        read(
            &format!("func.func @k(%n: index) {{\n  %c = arith.constant 1 : index\n{body}\n  return\n}}\n"),
            &Options::default(),
        )
    };
    let wrong = |body: &str| read_body(body).map(|_| ()).unwrap_err().to_string();
    let second = |line: u32, column: u32, name: &str, first: (u32, u32)| {
        format!(
            "line {line}, column {column}: '{name}' is defined a second time; it was first defined at line {}, column {}",
            first.0, first.1
        )
    };
    assert_eq!(wrong("  %c = arith.constant 2 : index"), second(3, 3, "%c", (2, 3)));
    assert_eq!(wrong("  %n = arith.constant 2 : index"), second(3, 3, "%n", (1, 14)));
    // A region sees what is around it.
    assert_eq!(wrong("  scf.for %c = %n to %n step %n {\n  }"), second(3, 11, "%c", (2, 3)));
    assert_eq!(
        wrong("  scf.for %i = %n to %n step %c {\n    %n = arith.constant 2 : index\n  }"),
        second(4, 5, "%n", (1, 14))
    );
    assert_eq!(
        wrong("  %r = scf.for %i = %n to %n step %c iter_args(%i = %c) -> (index) {\n    scf.yield %i : index\n  }"),
        second(3, 48, "%i", (3, 16))
    );
    assert_eq!(
        wrong(
            "  %a, %a = scf.if %n -> (index, index) {\n    scf.yield %n, %n : index, index\n  } else {\n    scf.yield %n, %n : index, index\n  }"
        ),
        second(3, 7, "%a", (3, 3))
    );
    // Regions side by side, and after one has closed: also the results of the operation itself.
    let legal = "  %r = scf.if %n -> (index) {\n    %t = arith.addi %n, %c : index\n    %r = arith.addi %t, %c : index\n    \
                 scf.yield %r : index\n  } else {\n    %t = arith.constant 2 : index\n    scf.yield %t : index\n  }\n  \
                 scf.for %i = %n to %n step %c {\n  }\n  scf.for %i = %n to %n step %c {\n  }\n  %i = arith.addi %r, %c : index\n  \
                 %t:2 = scf.while (%x = %n, %y = %c) : (index, index) -> (index, index) {\n    scf.condition(%n) %x, %y : index, index\n  \
                 } do {\n  ^bb0(%x: index, %y: index):\n    scf.yield %x, %y : index, index\n  }";
    read_body(legal).unwrap();
    assert!(wrong(&format!("{legal}\n  %t = arith.constant 3 : index")).contains("'%t' is defined a second time"));
    // Functions see nothing of each other.
    let two = "func.func @a(%n: index) {\n  %c = arith.constant 1 : index\n  return\n}\n";
    read(&format!("{two}{}", two.replace("@a", "@b")), &Options::default()).unwrap();
    // The same of attributes and of types.
    assert!(wrong("  pto.thing {a = 1, b, a = 2}").ends_with("line 3, column 24: 'a' is given twice"));
}

#[test]
fn types_may_have_names() {
    let text = "!t = !pto.tile_buf<loc=vec, dtype=f32, rows=8, cols=8>\n!u = !t\nfunc.func @k() {\n  %a = pto.alloc_tile : !u\n  return\n}\n";
    let module = read(text, &Options::default()).unwrap();
    assert_eq!(module.programs[0].program.buffers[0].bytes, Some(256));
    let wrong = |text: &str| read(text, &Options::default()).unwrap_err().to_string();
    assert_eq!(wrong(&text.replace("!u = !t", "!t = !t")), "line 2, column 1: the type '!t' is defined a second time");
    assert_eq!(
        wrong(&text.replace("!u = !t\n", "")),
        "line 3, column 25: the type '!u' is not defined: expected '!u = ...' at the top of the file"
    );
    // Where a named type is wrong it is shown, not where it is used.
    assert_eq!(wrong(&text.replace("loc=vec", "loc=cev")).split(':').next(), Some("line 1, column 6"));
}

#[test]
fn addresses_from_arguments_are_bound() {
    let tile = "!pto.tile_buf<loc=vec, dtype=f32, rows=8, cols=8>";
    let text = format!(
        "func.func @k(%n: i64) {{\n  %c = arith.constant 256 : i64\n  %m = arith.muli %n, %n : i64\n  %s = arith.addi %m, %c : i64\n  \
         %a = pto.alloc_tile addr = %n : {tile}\n  %b = pto.alloc_tile addr = %s : {tile}\n  return\n}}\n"
    );
    let bound = |value: i64| read(&text, &Options { dims: [("n".to_owned(), value)].into(), ..Options::default() });
    let addresses = |module: Module| -> Vec<Option<i64>> {
        module.programs[0].program.buffers.iter().map(|b| b.address.as_ref().and_then(|a| a.as_constant())).collect()
    };
    assert_eq!(addresses(bound(32).unwrap()), [Some(32), Some(1280)]);
    let free = read(&text, &Options::default()).unwrap();
    assert_eq!(free.dims.iter().collect::<Vec<_>>(), ["n"]);
    assert_eq!(addresses(free), [None, None]);
    assert_eq!(
        bound(-32).unwrap_err().to_string(),
        "line 5, column 3: the address of 'a' comes to -32, which is negative"
    );
}

/// What is written back has the line ends of the text, its mark, and each constant once, however often it is planned.
#[test]
fn writing_back_keeps_line_ends_and_constants() {
    let tile = "!pto.tile_buf<loc=vec, dtype=f32, rows=8, cols=8>";
    let plain =
        format!("func.func @k() {{\n  %a = pto.alloc_tile : {tile}\n  %b = pto.alloc_tile : {tile}\n  return\n}}\n");
    let write = |text: &str, at: [u64; 2]| {
        let module = read(text, &Options::default()).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let ids = module.programs[0].sites.iter().map(|site| site.buffer);
        let plan: BTreeMap<_, _> = ids.zip(at.map(npumem_ir::Offset)).collect();
        write_plan(text, &module.programs, &[plan]).unwrap()
    };
    for text in [plain.clone(), plain.replace('\n', "\r\n"), format!("\u{feff}{plain}")] {
        let first = write(&text, [0, 256]);
        assert_eq!(first.replace("\r\n", "").contains('\n'), !text.contains('\r'));
        assert_eq!(first.matches("arith.constant").count(), 2);
        assert_eq!(first.starts_with('\u{feff}'), text.starts_with('\u{feff}'));
        // Planned again, to the same and to other places.
        assert_eq!(write(&first, [0, 256]), first);
        let second = write(&first, [512, 0]);
        assert_eq!(second.matches("arith.constant").count(), 2);
        assert_eq!(write(&second, [0, 256]), first);
    }
    // Mixed: as around the place. A constant that something else names stays.
    let mixed = plain.replacen('\n', "\r\n", 1);
    assert_eq!(write(&mixed, [0, 256]).matches("\r\n").count(), 3);
    let named = write(&plain, [0, 256])
        .replace("  return", "  %x = arith.addi %npumem_addr_256, %npumem_addr_256 : i64\n  return");
    assert_eq!(write(&named, [0, 512]).matches("arith.constant").count(), 3);
}

/// What MLIR itself refuses: regions that do not give their values, types that nobody defines or that contradict the
/// value, events that do not exist.
#[test]
fn what_the_language_refuses_is_refused() {
    let tile = "!pto.tile_buf<loc=vec, dtype=f32, rows=16, cols=64>";
    let half = "!pto.tile_buf<loc=vec, dtype=f32, rows=8, cols=64>";
    let view = "!pto.partition_tensor_view<16x64xf32>";
    let wrong = |body: &str| {
        let text = format!(
            "func.func @k(%c: i1, %p: memref<16x64xf32>) {{\n  %z = arith.constant 0 : index\n  %a = pto.alloc_tile : {tile}\n{body}\n  return\n}}\n"
        );
        read(&text, &Options::default()).map(|_| ()).unwrap_err().to_string()
    };
    let result = |rest: &str| format!("  %r = scf.if %c -> ({tile}) {{\n    scf.yield %a : {tile}\n  }}{rest}");
    assert_eq!(
        wrong(&result(" else {\n  }")),
        "line 4, column 3: the 'else' region of this operation must end with an scf.yield of 1 values"
    );
    assert_eq!(
        wrong(&result("")),
        "line 4, column 3: an scf.if with 1 results needs an 'else' region that yields them"
    );
    assert_eq!(
        wrong(&format!("  %r = scf.for %i = %z to %z step %z iter_args(%t = %a) -> ({tile}) {{\n  }}")),
        "line 4, column 35: the step of a loop must be positive"
    );
    let one = "  %o = arith.constant 1 : index\n";
    assert_eq!(
        wrong(&format!("{one}  %r = scf.for %i = %z to %o step %o iter_args(%t = %a) -> ({tile}) {{\n  }}")),
        "line 5, column 3: the region of this operation must end with an scf.yield of 1 values"
    );
    let load = |ty: &str| format!("  pto.tload ins(%p : memref<16x64xf32>) outs(%a : {ty})");
    assert_eq!(
        wrong(&load("!nope")),
        "line 4, column 51: the type '!nope' is not defined: expected '!nope = ...' at the top of the file"
    );
    assert_eq!(wrong(&load(view)), format!("line 4, column 46: '%a' is a tile on the chip, not '{view}'"));
    assert_eq!(wrong(&load(half)), format!("line 4, column 46: '%a' is a tile of 4096 bytes, not '{half}'"));
    assert_eq!(
        wrong("  pto.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID99>]"),
        "line 4, column 39: 'EVENT_ID99' is not an event: there are EVENT_ID0 to EVENT_ID7"
    );
}

/// The two ways to write a view of a tile name the same bytes.
#[test]
fn a_view_in_brackets_is_the_view() {
    let tile = "!pto.tile_buf<loc=vec, dtype=f32, rows=16, cols=64>";
    let half = "!pto.tile_buf<loc=vec, dtype=f32, rows=8, cols=64>";
    let written = |view: &str| {
        let text = format!(
            "func.func @k(%p: memref<8x64xf32>) {{\n  %c0 = arith.constant 0 : index\n  %c8 = arith.constant 8 : index\n  %a = pto.alloc_tile : {tile}\n  {view} : {tile} -> {half}\n  pto.tload ins(%p : memref<8x64xf32>) outs(%s : {half})\n  return\n}}\n"
        );
        let module = read(&text, &Options::default()).unwrap_or_else(|error| panic!("{view}: {error}"));
        let steps = &module.programs[0].program.steps;
        let npumem_ir::program::Step::Run(operation) = &steps[0] else { panic!("{steps:?}") };
        operation.writes[0].clone()
    };
    let keyword = written("%s = pto.subview %a, offsets = [%c8, %c0], sizes = [8, 64]");
    assert_eq!(keyword.start.as_constant(), Some(8 * 64 * 4));
    let counts: Vec<_> = keyword.extents.iter().map(|extent| (extent.count.as_constant(), extent.stride)).collect();
    assert_eq!(counts, [(Some(8), 256), (Some(64), 4)]);
    assert_eq!(written("%s = pto.subview %a[%c8, %c0] sizes [8, 64]"), keyword);
}
