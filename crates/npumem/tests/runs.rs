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
    is_a_trace_event_file(&trace);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="));
    let data = page.split("application/json\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["slices"].as_array().unwrap().len(), 115);
    assert!(data["occupancy"].as_array().unwrap().len() >= 4);
}

/// The Trace Event Format, as far as the file uses it: complete events (X) that share a track without overlap, counters
/// (C), and the metadata (M) that names every process and track.
fn is_a_trace_event_file(trace: &serde_json::Value) {
    let whole = |event: &serde_json::Value, key: &str| event[key].as_u64().unwrap_or_else(|| panic!("{key}: {event}"));
    let time = |event: &serde_json::Value, key: &str| {
        let value = event[key].as_f64().unwrap_or_else(|| panic!("{key}: {event}"));
        assert!(value.is_finite() && value >= 0.0, "{event}");
        value
    };
    assert!(matches!(trace["displayTimeUnit"].as_str(), Some("ms" | "ns")));
    let (mut tracks, mut counters) = (BTreeMap::<_, Vec<(f64, f64)>>::new(), BTreeMap::<_, f64>::new());
    let mut named = std::collections::BTreeSet::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let (process, name) = (whole(event, "pid"), event["name"].as_str().unwrap());
        assert!(event["args"].is_object(), "{event}");
        match event["ph"].as_str().unwrap() {
            "M" if name == "process_name" => {
                assert!(event["args"]["name"].is_string() && named.insert((process, None)))
            }
            "M" if name == "thread_name" => {
                assert!(event["args"]["name"].is_string() && named.insert((process, Some(whole(event, "tid")))));
            }
            "M" => assert!(name == "thread_sort_index" && event["args"]["sort_index"].is_u64(), "{event}"),
            "X" => {
                let span = (time(event, "ts"), time(event, "dur"));
                tracks.entry((process, whole(event, "tid"))).or_default().push(span);
            }
            "C" => {
                assert!(event["args"].as_object().unwrap().values().all(serde_json::Value::is_number), "{event}");
                let at = time(event, "ts");
                let before = counters.insert((process, name.to_owned()), at);
                assert!(before.is_none_or(|before| before <= at), "a counter goes back in time: {event}");
            }
            other => panic!("an event of kind {other}"),
        }
    }
    for ((process, track), mut spans) in tracks {
        assert!(named.contains(&(process, None)) && named.contains(&(process, Some(track))), "{process} {track}");
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        // To a thousandth of a cycle: microseconds are written in decimals.
        assert!(spans.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0 + 1e-6), "track {track} overlaps");
    }
}

/// Where `fast` is not within a tenth of `detailed`, the run says so.
#[test]
fn what_fast_leaves_out_is_said() {
    let said = |name: &str, more: &[&str]| {
        let path = format!("examples/lecture/{name}.npumem");
        let output = npumem(&[&["run", &path, "--device", "generic-npu"], more].concat());
        text(&output.stdout).contains("'fast' leaves the rows and the refresh of hbm out")
    };
    assert!(said("stream_hbm", &[]));
    assert!(!said("stream_hbm", &["--detail", "detailed"]));
    assert!(!said("chase_hbm", &[]), "latency bounds it");
    assert!(!said("one_tile", &[]));
}

/// A device file with every figure of some keys changed.
fn changed(name: &str, keys: &[&str], change: impl Fn(u64) -> u64) -> Device {
    let path = npumem_testing::workspace_root().join(format!("devices/{name}.toml"));
    let mut lines = Vec::new();
    let mut count = 0;
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let found = keys.iter().find_map(|key| {
            let rest = line.strip_prefix(key)?.strip_prefix(" = ")?;
            let number = rest.strip_prefix("{ value = ").unwrap_or(rest);
            let digits = number.len() - number.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
            let value: u64 = number[..digits].parse().ok()?;
            Some(format!("{key} = {}{}{}", &rest[..rest.len() - number.len()], change(value), &number[digits..]))
        });
        count += u32::from(found.is_some());
        lines.push(found.unwrap_or_else(|| line.to_owned()));
    }
    assert!(count > 0, "{keys:?}");
    Device::from_toml(&lines.join("\n")).unwrap()
}

/// Our kernels and the lecture's on one core: better figures, and one more place in a queue, are never slower;
/// nothing is faster than its bound.
#[test]
fn laws_of_real_programs() {
    let mut files = ours();
    files.extend(npumem_testing::files_under(&npumem_testing::workspace_root().join("examples/lecture"), ".npumem"));
    // A hundred thousand statements say nothing more.
    files.retain(|path| {
        !["matmul_4096", "random_hbm"].iter().any(|long| path.file_stem().is_some_and(|stem| stem == *long))
    });
    let one_core = |queue_depth| npumem::simulator::Options {
        blocks: Some(1),
        cores: Some(1),
        queue_depth,
        ..npumem::simulator::Options::default()
    };
    let mut compared = 0;
    for device in ["generic-npu", "ascend-910b2"] {
        let base = catalogue::device(device).unwrap();
        let better = [
            ("bandwidth", changed(device, &["bandwidth_bytes_per_cycle", "bytes_per_cycle"], |rate| rate * 2)),
            ("latency", changed(device, &["latency_cycles"], |cycles| cycles / 2)),
            ("start-up", changed(device, &["startup_cycles"], |cycles| cycles / 2)),
        ];
        for path in &files {
            let source = std::fs::read_to_string(path).unwrap();
            for one in kernel::read(&source, &BTreeMap::new()).unwrap().kernels {
                let go = |device: &Device, queue: usize| {
                    let request = Request { options: one_core(queue), advice: Some(false), ..Request::default() };
                    simulate(&one.program, device, &request, &[]).ok()
                };
                // The spaces of a kernel need not be those of the device.
                let Some(done) = go(&base, 8) else { continue };
                assert!(done.report.bound.cycles <= done.outcome.cycles * (1.0 + 1e-9), "{}", path.display());
                for (what, device) in &better {
                    let faster = go(device, 8).unwrap().outcome.cycles;
                    assert!(
                        faster <= done.outcome.cycles * (1.0 + 1e-9),
                        "{}: better {what}: {faster} > {}",
                        path.display(),
                        done.outcome.cycles
                    );
                    compared += 1;
                }
                let deeper = go(&base, 9).unwrap().outcome.cycles;
                assert!(deeper <= done.outcome.cycles * (1.0 + 1e-9), "{}: one more place", path.display());
            }
        }
    }
    assert!(compared >= 60, "{compared}");
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
