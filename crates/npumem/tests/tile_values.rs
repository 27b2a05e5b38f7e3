//! Schedules of every family, as programs that are run with values, against NumPy: edges, padding, strides, groups, types.
#![allow(clippy::unwrap_used)]

use npumem::catalogue;
use npumem::ir::program::Role;
use npumem::npy;
use npumem::simulate::{Request, ValuesRequest, simulate};
use npumem::tiling::{self, parse, program, schedule_as};
use npumem_testing::Random;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const DEVICES: [&str; 3] = ["generic-npu", "ascend-910b2", "nvidia-h200"];

/// By hand: what each family has, at sizes that divide nothing.
const SPECS: &[&str] = &[
    "conv c=5 size=13x11 k=7 kernel=3x3 pad=1 in=f32",
    "conv c=3 size=17x19 k=20 kernel=7x7 stride=2 pad=3",
    "conv n=2 c=12 size=9x10 k=18 kernel=3x2 stride=2x1 dilation=1x2 pad=2x0 pad-end=1x1 groups=3",
    "conv c=6 size=9x10 k=8 kernel=3x3 pad=1 layout=nhwc bias=f32 act=relu",
    "conv c=6 size=9x10 k=8 kernel=3x3 pad=1 groups=2 layout=nhwc residual=f16",
    "conv c=33 size=21 k=17 kernel=5 pad=2 out=f32",
    "conv c=4 size=5x6x7 k=9 kernel=3x2x3 pad=1x0x1",
    "conv c=40 size=14x15 k=33 kernel=1x1 bias=f32 residual=f16 act=gelu",
    "conv c=10 size=30x31 k=6 kernel=1x1 stride=2",
    "conv c=8 size=7x6 k=5 kernel=4x4 stride=2 pad=1 transposed=true",
    "conv c=6 size=5x4 k=4 kernel=3x3 stride=3x2 pad=1 output-pad=1 groups=2 transposed=true",
    "conv c=16 size=12x12 k=16 kernel=3x3 pad=1 in=i8 weight=i8 out=i32",
    "depthwise c=19 size=15x14 kernel=3x3 stride=2 pad=1 in=f32",
    "depthwise c=9 size=12x13 kernel=5x3 dilation=2x1 pad=4x1 bias=f32 in=f32",
    "pool c=7 size=15x13 kernel=3x3 stride=2 pad=1 type=f32",
    "pool c=5 size=12x11 kernel=3x2 stride=2x1 pad=1x0 op=average type=f32",
    "pool n=2 c=6 size=9x8 kernel=3x3 pad=1 layout=nhwc op=average",
    "pool c=37 size=7x7 global=true op=average",
    "pool c=4 size=10x11 kernel=2x2 stride=3 type=i8",
    "matmul m=37 n=29 k=45 a=f32 b=f32 c=f32 bias=f32 residual=f32 act=gelu",
    "matmul m=37 n=29 k=45 a=f16 b=f16 c=f16 bias=f32 act=relu",
    "matmul batch=3 m=17 n=33 k=20 transpose=b residual=f16 act=silu",
    "matmul m=45 n=29 k=37 a=i8 b=i8 c=i32 transpose=a",
    "matmul m=45 n=29 k=37 a=f32 b=f32 c=f32 transpose=ab",
    "matmul batch=2 m=100 n=24 k=70 a=i8 b=i8 c=i32 transpose=a bias=i32",
    "matmul m=20 n=33 k=300 c=f32 split=4",
    "matmul m=5 n=7 k=100 a=i8 b=i8 c=i32 split=8",
    "elementwise shape=5x6x7 a=f32 b=f32 b-shape=1x6x1 op=mul,tanh",
    "elementwise shape=5x6x7 a=f32 b=f32 a-shape=5x1x7 op=sub",
    "elementwise shape=23x31 a=f16 b=f16 op=add,gelu,sigmoid",
    "elementwise shape=9x40 a=f32 b=f32 c=f32 b-shape=9x1 c-shape=1x40 op=mul,add",
    "reduce shape=4x13x12 axes=0,2 op=sum a=f32",
    "reduce shape=4x13x12 axes=1 op=max a=f32",
    "reduce shape=21x35 op=mean a=f32",
    "reduce shape=21x35 axes=0 op=mean a=f32",
    "reduce shape=5x6x7 axes=0,2 op=mean a=f16 c=f32",
    "reduce shape=9x30 op=min a=i32",
    "reduce shape=6x5 op=prod a=f32",
    "softmax shape=13x77 a=f32",
    "softmax shape=3x5x50 a=f16",
    "layernorm shape=19x70 a=f32",
    "layernorm shape=9x100 a=f16 residual=f16",
    "rmsnorm shape=23x65 a=f32",
    "rmsnorm shape=11x96 a=bf16 residual=bf16",
    "transpose shape=5x7x6 perm=1,0,2 type=f32",
    "transpose shape=3x5x4x6 perm=0,2,3,1",
    "transpose shape=45x33 type=f16",
    "transpose shape=7x9 perm=0,1 type=f32",
];

/// A spec at random.
fn any(random: &mut Random) -> String {
    let mut pick = |low: u64, high: u64| low + random.below(high - low + 1);
    let (high, wide) = (pick(3, 20), pick(3, 20));
    let (tall, broad) = (pick(1, 3), pick(1, 3));
    let stride = format!("{}x{}", pick(1, 3), pick(1, 2));
    let pad = format!("{}x{}", pick(0, tall / 2), pick(0, broad / 2));
    let kernel = format!("size={high}x{wide} kernel={tall}x{broad} stride={stride} pad={pad}");
    let layout = ["nchw", "nhwc"][pick(0, 1) as usize];
    let shape = format!("{}x{}x{}", pick(1, 9), pick(1, 12), pick(1, 40));
    match pick(0, 9) {
        0 | 1 => {
            let groups = pick(1, 3);
            let (c, k) = (groups * pick(1, 20), groups * pick(2, 20));
            let kind = ["f16", "f32"][pick(0, 1) as usize];
            format!("conv n={} c={c} k={k} groups={groups} {kernel} layout={layout} in={kind}", pick(1, 2))
        }
        2 => format!("conv c={} k={} {kernel} transposed=true in=f32", pick(1, 9), pick(2, 9)),
        3 => format!("depthwise c={} {kernel} in=f32", pick(2, 40)),
        4 => format!(
            "pool c={} {kernel} layout={layout} op={} type=f32",
            pick(1, 40),
            ["max", "average"][pick(0, 1) as usize]
        ),
        5 => {
            format!("reduce shape={shape} axes={} op={} a=f32", pick(0, 2), ["sum", "max", "mean"][pick(0, 2) as usize])
        }
        6 => format!("layernorm shape={shape} a=f32"),
        7 => format!(
            "transpose shape={shape} perm={} type=f32",
            ["0,2,1", "1,0,2", "2,0,1", "2,1,0"][pick(0, 3) as usize]
        ),
        8 => {
            let mut own = || pick(0, 1);
            let part: Vec<&str> = shape.split('x').map(|extent| if own() == 0 { "1" } else { extent }).collect();
            format!("elementwise shape={shape} a=f32 b=f32 b-shape={} op=sub,relu", part.join("x"))
        }
        _ => format!("softmax shape={shape} a=f32"),
    }
}

/// Runs a schedule with values and writes what is in the memory of the caller; what was not computed.
fn left_behind(
    spec: &str,
    device: &str,
    tiles: bool,
    random: &mut Random,
    name: &str,
    folder: &Path,
) -> Result<bool, String> {
    let device = catalogue::device(device).unwrap();
    let operator = parse(spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
    // A tile at random as well: more edges than the best one has.
    let tiles = tiles.then(|| {
        let dims = operator.dims.iter();
        dims.map(|dim| if dim.whole { dim.extent } else { 1 + random.below(dim.extent) }).collect()
    });
    let by_hand = tiles.is_some();
    let request = tiling::Request { tiles: tiles.clone(), ..tiling::Request::default() };
    let made = schedule_as(&operator, &device, &request).map_err(|error| error.to_string());
    let made = made.and_then(|schedule| program(&schedule, &device).map_err(|error| error.to_string()));
    let program = match made {
        Ok(program) => program,
        // A device without a unit for the type, a tile that does not fit.
        Err(error) if by_hand || error.contains("has no matrix unit") => return Ok(false),
        Err(error) => return Err(error),
    };
    let outside = program.buffers.iter().filter(|buffer| buffer.role == Role::External);
    let outputs: Vec<String> = outside.map(|buffer| buffer.name.clone()).collect();
    let mut inputs = std::collections::BTreeMap::new();
    if operator.split > 1 {
        // The parts are added to what is there.
        let out = &operator.operands[operator.output()];
        let (element, bytes) = (out.element, vec![0; usize::try_from(out.bytes()).unwrap()]);
        let shape = out.axes.iter().map(|axis| axis.extent).collect();
        inputs.insert("c_gm".to_owned(), npy::write(&npy::Array { element, shape, bytes }));
    }
    let values = Some(ValuesRequest { seed: 7, inputs, ..ValuesRequest::default() });
    let request =
        Request { values, outputs: outputs.clone(), advice: Some(false), sanitize: true, ..Request::default() };
    let done = simulate(&program, &device, &request, &[]).map_err(|error| error.to_string())?;
    let skipped = &done.report.values.as_ref().unwrap().skipped;
    if !skipped.is_empty() {
        return Err(format!("not computed: {skipped:?}"));
    }
    let faults = &done.report.sanitizer.as_ref().unwrap().findings;
    if let Some(fault) = faults.first() {
        return Err(format!("tile {tiles:?}: {fault:?}"));
    }
    for output in outputs {
        let bytes = &done.outputs[&output];
        npy::read(bytes).unwrap();
        std::fs::write(folder.join(format!("{name}.{}.npy", output.trim_end_matches("_gm"))), bytes).unwrap();
    }
    Ok(true)
}

#[test]
fn schedules_of_every_family_compute_what_numpy_does() {
    let scratch = npumem_testing::Scratch::new("tile-values");
    let mut random = Random(17);
    let mut cases: Vec<(String, bool)> =
        SPECS.iter().flat_map(|spec| [false, true].map(|by| ((*spec).to_owned(), by))).collect();
    cases.extend((0..40).map(|at| (any(&mut random), at % 2 == 1)));
    let (mut list, mut problems) = (String::new(), Vec::new());
    let folder = scratch.file("cases.txt", "").parent().unwrap().to_owned();
    for (at, (spec, by_hand)) in cases.iter().enumerate() {
        if parse(spec).is_err() {
            continue;
        }
        for device in DEVICES {
            let name = format!("{at}-{device}");
            match left_behind(spec, device, *by_hand, &mut random, &name, &folder) {
                Ok(true) => {
                    let _ = writeln!(list, "{name} {spec}");
                }
                Ok(false) => {}
                Err(error) => problems.push(format!("{spec} on {device}: {error}")),
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(list.lines().count() > 2 * SPECS.len(), "{} cases", list.lines().count());
    let Some(python) = std::env::var_os("NPUMEM_PYTHON") else {
        npumem_testing::skipped("the comparison with NumPy: NPUMEM_PYTHON is not set");
        return;
    };
    std::fs::write(folder.join("cases.txt"), &list).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tile_values.py");
    let output = Command::new(python).arg(script).arg(&folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
