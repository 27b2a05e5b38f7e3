//! Kernels on the simulator, end to end: ours, the public samples, the command line.
#![allow(clippy::unwrap_used)]

use npumem::catalogue;
use npumem::ir::Device;
use npumem::kernel::{self, KernelFile};
use npumem::simulate::{Request, SimulateError, simulate};
use npumem::simulator::{End, RunError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn ours() -> Vec<PathBuf> {
    let folder = npumem_testing::workspace_root().join("testdata/kernels");
    let mut all = npumem_testing::files_under(&folder, ".pto");
    all.extend(npumem_testing::files_under(&folder, ".npumem"));
    all
}

fn device_of(file: &KernelFile) -> Device {
    let named = file.target.as_deref().and_then(kernel::target_device);
    named.unwrap_or_else(|| catalogue::device("ascend-910b2").unwrap())
}

fn npumem(arguments: &[&str]) -> Output {
    let root = npumem_testing::workspace_root();
    Command::new(env!("CARGO_BIN_EXE_npumem")).current_dir(root).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs every kernel of a file, giving each argument that is asked for the value 1.
fn run_file(path: &Path) -> Option<Vec<npumem::simulate::Simulated>> {
    let source = std::fs::read_to_string(path).unwrap();
    let mut dims = BTreeMap::new();
    'again: for _ in 0..16 {
        let file = kernel::read(&source, &dims).ok()?;
        let device = device_of(&file);
        let mut done = Vec::new();
        for one in &file.kernels {
            match simulate(&one.program, &device, &Request::default(), &[]) {
                Ok(simulated) => done.push(simulated),
                Err(SimulateError::Run(RunError::Unbound { first, .. })) => {
                    dims.insert(first, 1);
                    continue 'again;
                }
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
        return Some(done);
    }
    panic!("{}: asks for ever more arguments", path.display());
}

#[test]
fn our_kernels_run_to_their_end() {
    let mut count = 0;
    for path in ours() {
        for done in run_file(&path).unwrap() {
            assert_eq!(done.outcome.end, End::Complete, "{}", path.display());
            assert!(done.outcome.cycles > 0.0);
            assert!(done.report.bound.cycles <= done.outcome.cycles * (1.0 + 1e-9), "{}", path.display());
            count += 1;
        }
    }
    assert_eq!(count, 6);
}

#[test]
fn the_public_samples_run() {
    let Some(folder) = std::env::var_os("NPUMEM_PTOAS") else {
        npumem_testing::skipped("the public samples: NPUMEM_PTOAS is not set");
        return;
    };
    let (mut ran, mut refused) = (0, 0);
    for path in npumem_testing::files_under(Path::new(&folder), ".pto") {
        match run_file(&path) {
            Some(list) => {
                ran += 1;
                for done in list {
                    assert!(done.outcome.statements < 100_000, "{}: runs for long", path.display());
                    assert_ne!(done.report.end, "limit", "{}", path.display());
                }
            }
            // Tests of the tool chain that are wrong on purpose.
            None => refused += 1,
        }
    }
    assert!(ran >= 210 && refused <= 12, "{ran} ran, {refused} refused");
}

/// The whole of a 4096 x 4096 x 4096 product on 24 cores: what must move moves, and the matrix unit is the bound.
#[test]
fn a_large_product_on_all_cores() {
    let path = npumem_testing::workspace_root().join("testdata/kernels/matmul_4096.npumem");
    let done = run_file(&path).unwrap().remove(0);
    let outcome = done.outcome;
    assert_eq!((outcome.blocks, outcome.cores), (24, 24));
    let link = |name: &str| outcome.links.iter().find(|link| link.name == name).unwrap().bytes;
    // Each operand comes from HBM once; L1 is fed (4096 / 256 + 4096 / 128) times 32 MiB; the result leaves once.
    assert_eq!(link("hbm->l2"), 2 * 4096 * 4096 * 2);
    assert_eq!(link("hbm->l1") + link("l2->l1"), (16 + 32) * 4096 * 4096 * 2);
    assert_eq!(link("l0c->l2"), 4096 * 4096 * 2);
    let cube = outcome.engine("cube").unwrap();
    assert_eq!(cube.operations, 2 * 4096 * 4096 * 4096);
    assert_eq!(done.report.bound.by, "cube");
    let share = outcome.busy_share(cube);
    assert!((0.85..0.95).contains(&share), "{share}");
    // Memory follows what is in flight, not the 115,200 statements.
    assert!(outcome.most_in_flight < 24 * 4 * 34, "{}", outcome.most_in_flight);
}

#[test]
fn the_command_line_tells_and_answers() {
    let output = npumem(&["run", "testdata/kernels/softmax.pto"]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for expected in ["6,804 cycles: softmax on ascend-910b2", "'rows' is still in use", "hbm->ub  65,536"] {
        assert!(told.contains(expected), "{expected} is not in\n{told}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&npumem(&["run", "testdata/kernels/softmax.pto", "--json"]).stdout).unwrap();
    assert_eq!((json["format"].as_str(), json["cycles"].as_f64()), (Some("npumem-run"), Some(6804.0)));
    assert_eq!(json["engines"][0]["idle"][0]["buffer"], "rows");

    let asks = npumem(&["run", "testdata/kernels/if_result.pto"]);
    assert_eq!(asks.status.code(), Some(2));
    assert!(text(&asks.stderr).contains("--dim mode=VALUE"));
    assert_eq!(npumem(&["run", "testdata/kernels/if_result.pto", "--dim", "mode=1"]).status.code(), Some(0));
    let other = npumem(&["run", "testdata/kernels/softmax.pto", "--device", "arm-ethos-u65"]);
    assert_eq!(other.status.code(), Some(2));
    assert_eq!(npumem(&["run", "README.md"]).status.code(), Some(2));
    let none = npumem(&["run", "testdata/kernels/softmax.pto", "--kernel", "hardmax"]);
    assert!(text(&none.stderr).contains("it has softmax"));
}

#[test]
fn deadlocks_and_endless_loops_have_their_exit_codes() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("runs");
    std::fs::create_dir_all(&folder).unwrap();
    let head =
        "npumem-program 1\nprogram p\nexternal x in gm bytes 1024 : f32\nbuffer t in vec bytes 1024 : f32\nsteps\n";
    let write = |name: &str, steps: &str| {
        let path = folder.join(name);
        std::fs::write(&path, format!("{head}{steps}")).unwrap();
        path.to_string_lossy().into_owned()
    };
    let stuck = write(
        "stuck.npumem",
        "tload @mte2 reads x[0]:f32 writes t[0]:f32\nwait-flag v mte2 3\ntload @mte2 reads x[0]:f32 writes t[0]:f32\n",
    );
    let output = npumem(&["run", &stuck]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stdout);
    assert!(told.contains("DEADLOCK") && told.contains("event 3 from v, which never raises it again"), "{told}");
    let endless = write("endless.npumem", "loop\ntadds @v reads t[0]:f32 writes t[0]:f32\nend\n");
    let output = npumem(&["run", &endless, "--max-steps", "5000"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stdout).contains("stopped after 5000 steps"));
}

/// The advice of a run is a run: the rewritten program takes exactly what the advice says.
#[test]
fn advice_is_tried_not_guessed() {
    let output = npumem(&["run", "testdata/kernels/softmax.pto", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let advice = json["advice"].as_array().unwrap();
    assert_eq!(advice[0]["change"], "a second slot for 'rows'");
    assert_eq!((advice[0]["cycles_after"].as_f64(), advice[0]["helps"].as_bool()), (Some(4516.0), Some(true)));
    let room = advice[0]["room"].as_str().unwrap();
    assert!(room.starts_with("it fits: all buffers of ub then take 96.62 KiB"), "{room}");
    // A counter of steps of 16: the rotation is by turn, so the second slot is used.
    let source =
        std::fs::read_to_string(npumem_testing::workspace_root().join("testdata/kernels/softmax.pto")).unwrap();
    let mut program = kernel::read(&source, &BTreeMap::new()).unwrap().kernels.remove(0).program;
    let rows = program.find_buffer("rows").unwrap();
    let counter = npumem::ir::ScalarId::new(program.scalars.iter().position(|s| s.name == "r").unwrap());
    program.rotate(rows, 2, counter).unwrap();
    let device = catalogue::device("ascend-910b2").unwrap();
    let done = simulate(&program, &device, &Request::default(), &[]).unwrap();
    assert_eq!(done.outcome.cycles, 4516.0);
}

#[test]
fn pictures_hold_every_statement_and_nothing_from_outside() {
    let scratch = npumem_testing::Scratch::new("pictures");
    let (page, trace) = (scratch.path("run.html"), scratch.path("run.json"));
    let output = npumem(&[
        "run",
        "testdata/kernels/flash_attention.pto",
        "--report",
        page.to_str().unwrap(),
        "--perfetto",
        trace.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let trace: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert_eq!(events.iter().filter(|event| event["ph"] == "X").count(), 115);
    assert!(events.iter().any(|event| event["ph"] == "C" && event["name"] == "acc bytes"));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="));
    let data = page.split("application/json\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["slices"].as_array().unwrap().len(), 115);
    assert!(data["occupancy"].as_array().unwrap().len() >= 4);
}

/// Sizes that a file merely claims cost nothing: no hang, no allocation, no panic, in any mode.
#[test]
fn sizes_past_all_memory_are_survived() {
    let scratch = npumem_testing::Scratch::new("huge");
    let path = scratch.file(
        "huge.npumem",
        "npumem-program 1\nprogram huge\nscalar i = counter\nexternal x in gm bytes 4611686018427387904 : f32\nexternal z in gm : f32\n\
         buffer t in vec bytes 1152921504606846976 : f32 shape 1x288230376151711744\nsteps\n\
         for i = 0 to 9223372036854775807 step 4611686018427387904\n\
         tload @mte2 vector reads x[0]:f32 writes t[0]:f32\ntadds @v reads t[0]:f32 writes t[0]:f32 with 1\n\
         tload @mte2 vector reads z[9223372036854775800*i; 1000000 by 4]:f32 writes t[0; 9223372036854775807 by 9223372036854775807]:f32\n\
         tstore @mte3 reads t[0]:f32 shape(3, 4, 5, 6, 7, 8, 9) writes z[-5; 3 by -7; 0 by 9]:f32\nend\n",
    );
    let path = path.to_str().unwrap();
    for device in ["generic-npu", "ascend-910b2"] {
        assert_eq!(npumem(&["run", path, "--device", device]).status.code(), Some(0));
        assert_eq!(npumem(&["run", path, "--device", device, "--values", "--sanitize"]).status.code(), Some(1));
    }
}
