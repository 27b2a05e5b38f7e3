//! Values: small ones by hand, all operations against NumPy, kernels from one end to the other.
#![allow(clippy::unwrap_used)]

use npumem::catalogue;
use npumem::ir::ElementType;
use npumem::ir::program::{Program, text};
use npumem::kernel;
use npumem::npy::{self, Array};
use npumem::simulate::{Request, Simulated, ValuesRequest, simulate};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

fn run(program: &Program, inputs: &[(&str, &Array)], outputs: &[&str]) -> Simulated {
    let inputs = inputs.iter().map(|(name, array)| ((*name).to_owned(), npy::write(array))).collect();
    let values = ValuesRequest { seed: 1, inputs, ..ValuesRequest::default() };
    let outputs = outputs.iter().map(|name| (*name).to_owned()).collect();
    let request = Request { values: Some(values), outputs, advice: Some(false), ..Request::default() };
    simulate(program, &catalogue::device("ascend-910b2").unwrap(), &request, &[]).unwrap()
}

/// A kernel that loads two tiles of 16 x 64, works on them, and stores a result.
fn one_operation(operation: &str, element: &str, reads: usize, out: (u64, u64), result: &str) -> Program {
    let bytes = |name: &str| match name {
        "f32" | "i32" => 4,
        "f16" | "bf16" | "i16" => 2,
        _ => 1,
    };
    let (size, wide) = (16 * 64 * bytes(element), out.0 * out.1 * bytes(result));
    let mut source = format!("npumem-program 1\nprogram {}\n", operation.split(' ').next().unwrap());
    for name in ["a", "b"] {
        let _ = writeln!(source, "external {name} in gm bytes {size} : {element} shape 16x64");
        let _ = writeln!(source, "buffer t{name} in vec bytes {size} : {element} shape 16x64");
    }
    let _ = writeln!(source, "external out in gm bytes {wide} : {result} shape {}x{}", out.0, out.1);
    let _ = writeln!(source, "buffer tout in vec bytes {wide} : {result} shape {}x{}\nsteps", out.0, out.1);
    for name in ["a", "b"] {
        let _ = writeln!(source, "tload @mte2 reads {name}[0]:{element} writes t{name}[0]:{element}");
    }
    let (name, rest) = operation.split_once(' ').unwrap_or((operation, ""));
    let list: Vec<String> = ["ta", "tb"].iter().take(reads).map(|t| format!("{t}[0]:{element}")).collect();
    let _ = writeln!(source, "{name} @v reads {} writes tout[0]:{result} {rest}", list.join(", "));
    let _ = writeln!(source, "tstore @mte3 reads tout[0]:{result} writes out[0]:{result}");
    text::parse(&source).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

fn element(name: &str) -> ElementType {
    one_operation("tmov", name, 1, (16, 64), name).buffers[0].element
}

/// Numbers that are kind to every function: positive for roots and logarithms, never 0 as a divisor.
fn array(name: &str, seed: u64) -> Array {
    let mut random = npumem_testing::Random(seed);
    let kind = element(name);
    let mut bytes = Vec::new();
    for _ in 0..16 * 64 {
        let whole = random.below(60) as i64 + 1;
        let value = if npumem::simulator::values::is_real(kind) {
            npumem::simulator::values::store_real(kind, (whole as f64 + random.below(1000) as f64 / 1000.0) / 16.0)
        } else {
            whole.to_le_bytes()
        };
        bytes.extend_from_slice(&value[..npumem::simulator::element_bytes(kind) as usize]);
    }
    Array { element: kind, shape: vec![16, 64], bytes }
}

#[test]
fn operations_agree_with_numpy() {
    let scratch = npumem_testing::Scratch::new("values");
    let mut cases = String::new();
    let mut add = |op: &str, kind: &str, name: &str, reads: usize, out: (u64, u64), result: &str| {
        let program = one_operation(op, name, reads, out, result);
        let (a, b) = (array(name, 3), array(name, 4));
        let done = run(&program, &[("a", &a), ("b", &b)], &["out"]);
        let skipped = &done.report.values.as_ref().unwrap().skipped;
        assert!(skipped.is_empty(), "{op} {name}: {skipped:?}");
        let short = op.split(' ').next().unwrap();
        let case = format!("{short}-{name}-{result}");
        for (file, bytes) in [("a", npy::write(&a)), ("b", npy::write(&b)), ("out", done.outputs["out"].clone())] {
            std::fs::write(scratch.path(&format!("{case}.{file}.npy")), bytes).unwrap();
        }
        let _ = writeln!(cases, "{case} {name} {kind} {short}");
    };
    let (whole, column, row) = ((16, 64), (16, 1), (1, 64));
    for name in ["f32", "f16", "bf16"] {
        for op in ["tadd", "tsub", "tmul", "tdiv", "tmax", "tmin", "trem", "tfmod"] {
            add(op, "binary", name, 2, whole, name);
        }
        for op in [
            "trowexpandsub",
            "trowexpandmul",
            "trowexpanddiv",
            "trowexpandmax",
            "tcolexpandadd",
            "tcolexpandmul",
            "trowexpandexpdif",
        ] {
            add(op, "binary", name, 2, whole, name);
        }
        for op in [
            "texp",
            "tlog",
            "tsqrt",
            "trsqrt",
            "trecip",
            "tabs",
            "tneg",
            "trelu",
            "tmov",
            "trowexpand",
            "tcolexpand",
            "tadds with 3",
            "tmuls with 3",
            "tmaxs with 3",
        ] {
            add(op, "unary", name, 1, whole, name);
        }
        add("ttrans", "unary", name, 1, (64, 16), name);
        for op in ["trowmax", "trowmin"] {
            add(op, "unary", name, 1, column, name);
        }
        for op in ["tcolmax", "tcolmin"] {
            add(op, "unary", name, 1, row, name);
        }
    }
    for (op, out) in [("trowsum", column), ("tcolsum", row)] {
        add(op, "unary", "f32", 1, out, "f32");
    }
    add("trowargmax", "unary", "f32", 1, column, "i32");
    add("tcolargmin", "unary", "f32", 1, row, "i32");
    add("tcvt", "convert", "f32", 1, whole, "i8");
    add("tquant", "binary", "f32", 2, whole, "i8");
    add("tpack", "unary", "i32", 1, whole, "i16");
    add("tpack", "unary", "i16", 1, whole, "i8");
    for name in ["i8", "i16", "i32", "u8"] {
        for op in ["tadd", "tsub", "tmul", "tmax", "tmin", "tand", "tor", "txor", "trem"] {
            add(op, "binary", name, 2, whole, name);
        }
        for op in ["tnot", "tmov", "tadds with 3", "tmuls with 3"] {
            add(op, "unary", name, 1, whole, name);
        }
    }
    // Kernels from one end to the other.
    for (kernel_name, kind, inputs, out, dims) in [
        ("softmax", "softmax", ["x", "x"], "y", [[64, 256], [64, 256], [64, 256]]),
        ("matmul_double", "matmul", ["a", "b"], "c", [[128, 512], [512, 128], [128, 128]]),
    ] {
        let path = npumem_testing::workspace_root().join(format!("testdata/kernels/{kernel_name}.pto"));
        let source = std::fs::read_to_string(path).unwrap();
        let program = kernel::read(&source, &BTreeMap::new()).unwrap().kernels.remove(0).program;
        let done = run(&program, &[], &[inputs[0], inputs[1], out]);
        assert!(done.report.values.as_ref().unwrap().skipped.is_empty());
        for ((file, name), shape) in ["a", "b", "out"].iter().zip([inputs[0], inputs[1], out]).zip(dims) {
            let mut array = npy::read(&done.outputs[name]).unwrap();
            array.shape = shape.to_vec();
            std::fs::write(scratch.path(&format!("{kernel_name}.{file}.npy")), npy::write(&array)).unwrap();
        }
        let _ = writeln!(cases, "{kernel_name} f32 {kind} {kind}");
    }
    let Some(python) = std::env::var_os("NPUMEM_PYTHON") else {
        npumem_testing::skipped("the comparison with NumPy: NPUMEM_PYTHON is not set");
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/values.py");
    let listed = scratch.file("cases.txt", &cases);
    let output = Command::new(python).arg(script).arg(listed.parent().unwrap()).output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A product of whole numbers is exact: through fractal layouts, parts of tiles and two blocks of the grid.
#[test]
fn a_product_through_every_layout_is_exact() {
    let source = "npumem-program 1\nprogram p\nscalar g = grid 2\nscalar k = counter\nscalar first = eq(k, 0)\n\
        external a in gm bytes 4096 : f16 shape 32x64\nexternal b in gm bytes 4096 : f16 shape 64x32\n\
        external c in gm bytes 4096 : f32 shape 32x32\n\
        buffer al1 in mat bytes 2048 : f16 shape 16x64 fractal(col, row, 512)\n\
        buffer bl1 in mat bytes 4096 : f16 shape 64x32 fractal(col, row, 512)\n\
        buffer al0 in left bytes 1024 slots 2 : f16 shape 16x32 fractal(row, row, 512)\n\
        buffer bl0 in right bytes 2048 slots 2 : f16 shape 32x32 fractal(row, col, 512)\n\
        buffer cl0 in acc bytes 2048 : f32 shape 16x32 fractal(col, row, 1024)\nsteps\n\
        tload @mte2 cube reads a[2048*g; 16 by 128; 64 by 2]:f16 writes al1[0]:f16 fractal(col, row, 512)\n\
        tload @mte2 cube reads b[0]:f16 writes bl1[0]:f16 fractal(col, row, 512)\n\
        for k = 0 to 2 step 1\n\
        tmov @mte1 cube reads al1[1024*k; 512 by 2]:f16 shape(16, 32) fractal(col, row, 512) writes al0{k}[0]:f16 fractal(row, row, 512)\n\
        tmov @mte1 cube reads bl1[1024*k; 2 by 2048; 512 by 2]:f16 shape(32, 32) fractal(col, row, 512) writes bl0{k}[0]:f16 fractal(row, col, 512)\n\
        if first\n\
        tmatmul @m cube in-place reads al0{k}[0]:f16 fractal(row, row, 512), bl0{k}[0]:f16 fractal(row, col, 512) writes cl0[0]:f32 fractal(col, row, 1024)\n\
        else\n\
        tmatmul.acc @m cube in-place reads cl0[0]:f32 fractal(col, row, 1024), al0{k}[0]:f16 fractal(row, row, 512), bl0{k}[0]:f16 fractal(row, col, 512) writes cl0[0]:f32 fractal(col, row, 1024)\n\
        end\nend\n\
        tstore @fix cube reads cl0[0]:f32 fractal(col, row, 1024) writes c[2048*g; 16 by 128; 32 by 4]:f32\n";
    let program = text::parse(source).unwrap();
    let f16 = |rows: usize, columns: usize, at: &dyn Fn(usize, usize) -> i64| {
        let all = (0..rows * columns).map(|i| at(i / columns, i % columns) as f64);
        let bytes =
            all.flat_map(|v| npumem::simulator::values::store_real(ElementType::F16, v)[..2].to_vec()).collect();
        Array { element: ElementType::F16, shape: vec![rows as u64, columns as u64], bytes }
    };
    let (x, y) =
        (|r: usize, c: usize| ((r * 7 + c * 3) % 11) as i64 - 5, |r: usize, c: usize| ((r * 5 + c) % 9) as i64 - 4);
    let done = run(&program, &[("a", &f16(32, 64, &x)), ("b", &f16(64, 32, &y))], &["c"]);
    assert!(done.report.values.as_ref().unwrap().skipped.is_empty(), "{:?}", done.report.values);
    let out = npy::read(&done.outputs["c"]).unwrap();
    let found: Vec<i64> = out.bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()) as i64).collect();
    for row in 0..32 {
        for column in 0..32 {
            let expected: i64 = (0..64).map(|k| x(row, k) * y(k, column)).sum();
            assert_eq!(found[row * 32 + column], expected, "row {row}, column {column}");
        }
    }
}

#[test]
fn what_is_not_computed_is_named_and_wrong_inputs_are_refused() {
    for (operation, element, result) in [("tdequant", "i8", "f32"), ("thistogram", "i16", "i32")] {
        let program = one_operation(operation, element, 2, (16, 64), result);
        let done = run(&program, &[], &[]);
        assert_eq!(done.report.values.unwrap().skipped, [(operation.to_owned(), 1)]);
    }
    let file = array("f16", 1);
    let request = |name: &str| Request {
        values: Some(ValuesRequest {
            inputs: BTreeMap::from([(name.to_owned(), npy::write(&file))]),
            ..ValuesRequest::default()
        }),
        ..Request::default()
    };
    let device = catalogue::device("ascend-910b2").unwrap();
    let program = one_operation("tadd", "f32", 2, (16, 64), "f32");
    let error = |name: &str| simulate(&program, &device, &request(name), &[]).unwrap_err().to_string();
    assert_eq!(error("a"), "'a' is f32, 4,096 bytes; the file has f16, 2,048 bytes");
    assert_eq!(error("z"), "the kernel has no memory of the caller named 'z'; it has: a, b, out");
}

/// The public samples: most of their operations are computed, and the rest is named.
#[test]
fn operations_of_the_public_samples() {
    let Some(folder) = std::env::var_os("NPUMEM_PTOAS") else {
        npumem_testing::skipped("the public samples: NPUMEM_PTOAS is not set");
        return;
    };
    let (mut computed, mut skipped) = (0, BTreeMap::<String, u64>::new());
    for path in npumem_testing::files_under(Path::new(&folder), ".pto") {
        let source = std::fs::read_to_string(&path).unwrap();
        let Ok(file) = kernel::read(&source, &BTreeMap::new()) else { continue };
        for one in &file.kernels {
            let device = file.target.as_deref().and_then(kernel::target_device);
            let device = device.unwrap_or_else(|| catalogue::device("ascend-910b2").unwrap());
            let options = npumem::simulator::Options { blocks: Some(1), ..Default::default() };
            let request =
                Request { values: Some(ValuesRequest::default()), options, advice: Some(false), ..Request::default() };
            let Ok(done) = simulate(&one.program, &device, &request, &[]) else { continue };
            let values = done.report.values.unwrap();
            computed += values.computed;
            for (name, times) in values.skipped {
                *skipped.entry(name).or_insert(0) += times;
            }
        }
    }
    let missed: u64 = skipped.values().sum();
    eprintln!("{computed} statements computed, {missed} not: {skipped:#?}");
    assert!(computed > 5 * missed);
}
