//! Cases from public reports, and rules of places, on programs for devices of the catalogue.

#![allow(clippy::unwrap_used)]

use npumem::check_program::{Kind, ProgramVerdict, Severity, Standing};
use npumem::ir::program::{Program, text};
use npumem::ir::{Bytes, Device, Offset};
use npumem::kernel::{self, KernelPlan};
use npumem::plan::Fit;
use npumem::report::text::{TextOptions, render};
use npumem::{PlacementOptions, catalogue};
use npumem_testing::Scratch;
use serde_json::Value;
use std::fmt::Write;
use std::process::{Command, Output};

/// The JSON of a case, when the shared data is there.
fn case(name: &str) -> Option<Value> {
    let path = npumem_testing::shared(&format!("data/cases/{name}"))?;
    Some(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// A program of these buffers (`NAME in SPACE bytes ...`) and steps, one a line.
fn program(buffers: &str, steps: &str) -> Program {
    let mut source = String::from("npumem-program 1\nprogram case\n");
    for line in buffers.lines().map(str::trim).filter(|line| !line.is_empty()) {
        // Scalars and external memory name themselves.
        let kind = if line.starts_with("scalar ") || line.starts_with("external ") { "" } else { "buffer " };
        writeln!(source, "{kind}{line} {}", if line.starts_with("scalar ") { "" } else { ": u8" }).unwrap();
    }
    writeln!(source, "steps\n{steps}").unwrap();
    text::parse(&source).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

fn device() -> Device {
    catalogue::device("ascend-910b2").unwrap()
}

/// The default device with its description changed.
fn device_with(name: &str, changes: &[(&str, &str)]) -> Device {
    let mut source =
        std::fs::read_to_string(npumem_testing::workspace_root().join("devices/ascend-910b2.toml")).unwrap();
    for (from, to) in changes {
        assert!(source.contains(from), "{from}");
        source = source.replace(from, to);
    }
    let scratch = Scratch::new(&format!("device-{name}"));
    catalogue::device(scratch.file("device.toml", &source).to_str().unwrap()).unwrap()
}

/// The Unified Buffer with another size.
fn unified_buffer_of(bytes: u64) -> Device {
    let size = format!("capacity_bytes = {{ value = {bytes}, source = \"ini\" }}");
    let changes = [
        ("capacity_bytes = { value = 196_608, source = \"ini\" }", size.as_str()),
        ("usable_bytes = { value = 188_416, source = \"pypto\" }\n", ""),
        ("[space.banks]\nsource = \"banks\"\ncount = 48\ngroups = 16\nsize_bytes = \"4 KiB\"\nwidth_bytes = 32\n", ""),
    ];
    device_with(&format!("ub-{bytes}"), &changes)
}

fn planned(program: &Program, device: &Device, options: &PlacementOptions) -> KernelPlan {
    kernel::plan(program, device, options, &[], None).unwrap()
}

fn peak(plan: &KernelPlan, space: &str) -> u64 {
    let places = plan.addresses.iter().filter(|(id, _)| plan.program.buffer(**id).space == space);
    places.map(|(id, offset)| offset.0 + plan.program.buffer(*id).total_bytes().unwrap()).max().unwrap()
}

fn verdict(program: &Program, device: &Device) -> ProgramVerdict {
    kernel::check(program, device, true).unwrap()
}

/// Two matrix products whose operands have these sizes, loaded by a queue of their own.
fn two_stages(k: [u64; 2], q: [u64; 2]) -> Program {
    let (mut buffers, mut steps) = (String::new(), String::new());
    for stage in 0..2 {
        writeln!(buffers, "k{stage} in l1 bytes {} align 512\nq{stage} in l1 bytes {} align 512", k[stage], q[stage])
            .unwrap();
        writeln!(
            steps,
            "load @mte2 cube reads gm_k[0]:u8 writes k{stage}[0]:u8\nload @mte2 cube reads gm_q[0]:u8 writes q{stage}[0]:u8\n\
             matmul @m cube reads k{stage}[0]:u8, q{stage}[0]:u8 writes acc[0]:u8\nstore @fix cube reads acc[0]:u8 writes gm_o[0]:u8"
        )
        .unwrap();
    }
    buffers.push_str("acc in l0c bytes 1024 align 512\n");
    for name in ["gm_k", "gm_q", "gm_o"] {
        writeln!(buffers, "external {name} in gm bytes 1024").unwrap();
    }
    program(&buffers, &steps)
}

#[test]
fn case_06_loads_of_two_stages_share_no_bytes_while_there_is_room() {
    let Some(case) = case("06-reuse-injects-war.json") else { return };
    let size = |index: usize| number(&case["buffers"][index]["size"]);
    let program = two_stages([size(0), size(2)], [size(1), size(3)]);
    for options in [PlacementOptions::fast(), PlacementOptions::default()] {
        let plan = planned(&program, &device(), &options);
        assert_eq!(plan.planned.fit, Fit::Yes);
        assert_eq!(peak(&plan, "l1"), number(&case["expected"]["right_peak"]));
        assert_eq!(plan.planned.placement.reuse_cost, 0);
    }
    // Twice 262,656 bytes are more than L1 has: there it does share, and says what that costs.
    let large = two_stages([258_560; 2], [4096; 2]);
    let plan = planned(&large, &device(), &PlacementOptions::default());
    assert_eq!(plan.planned.fit, Fit::Yes);
    assert!(plan.planned.placement.reuse_cost > 0 && peak(&plan, "l1") <= number(&case["space"]["capacity"]));
}

#[test]
fn case_07_an_update_in_place_fits_and_a_second_accumulator_does_not() {
    let Some(case) = case("07-must-alias-accumulator.json") else { return };
    let size = number(&case["buffers"][0]["size"]);
    let steps = "seed @m cube writes acc_seed[0]:u8\naccumulate @m cube in-place reads acc_seed[0]:u8 writes acc_update[0]:u8\n\
                 check @m cube reads acc_seed[0]:u8 writes acc_update[0]:u8\nstore @fix cube reads acc_update[0]:u8 writes out[0]:u8";
    let buffers = |alias: &str| {
        format!(
            "acc_seed in l0c bytes {size} align 512\nacc_update in l0c bytes {size} align 512{alias}\nexternal out in gm bytes {size}"
        )
    };
    let plan = planned(&program(&buffers(" alias acc_seed 0"), steps), &device(), &PlacementOptions::fast());
    assert_eq!((plan.planned.fit, peak(&plan, "l0c")), (Fit::Yes, number(&case["expected"]["with_alias_peak"])));
    let apart = planned(&program(&buffers(""), steps), &device(), &PlacementOptions::fast());
    assert_eq!(apart.planned.fit, Fit::No);
    let names: Vec<String> = conflict(&apart);
    assert_eq!(names, ["acc_seed", "acc_update"]);
    let needed = number(&case["expected"]["without_alias_peak"]);
    let bound = &apart.planned.placement.plan.spaces.iter().find(|space| space.space == "l0c").unwrap().lower_bound;
    assert_eq!(*bound, Bytes(needed));
}

/// Buffers of the first conflict, by name.
fn conflict(plan: &KernelPlan) -> Vec<String> {
    let found = plan.planned.report.infeasible.as_ref().unwrap();
    found.conflicts[0].buffers.iter().map(|buffer| buffer.name.clone()).collect()
}

#[test]
fn case_08_slots_that_a_rotation_uses() {
    let Some(case) = case("08-slot-rotation-nonunit-step.json") else { return };
    let of = |key: &str| number(&case["loop"][key]);
    let (start, stop, step, slots) = (of("start"), of("stop"), of("step"), number(&case["slots"]));
    let rotate = |slot: &str| {
        let buffers = format!(
            "scalar i = counter\nscalar turn = div(i, {step})\ntile in vec bytes 64 slots {slots} align 32 at 0\nexternal src in gm bytes 64\nexternal dst in gm bytes 64"
        );
        let steps = format!(
            "for i = {start} to {stop} step {step}\nload @mte2 vector reads src[0]:u8 writes tile{{{slot}}}[0]:u8\n\
             store @mte3 vector reads tile{{{slot}}}[0]:u8 writes dst[0]:u8\nend"
        );
        verdict(&program(&buffers, &steps), &device())
    };
    let raw = rotate("i");
    assert_eq!(raw.standing, Standing::Sound, "it is slow, not wrong");
    let used = raw.findings.iter().find_map(|finding| match &finding.kind {
        Kind::UnusedSlots { used, slots, .. } => Some((used.clone(), u64::from(*slots))),
        _ => None,
    });
    let mut expected: Vec<u32> =
        case["expected"]["raw_index_slots"].as_array().unwrap().iter().map(|slot| number(slot) as u32).collect();
    expected.dedup();
    assert_eq!(used, Some((expected, slots)), "{:?}", raw.findings);
    assert!(rotate("turn").findings.is_empty(), "{:?}", rotate("turn").findings);
}

#[test]
fn case_11_hidden_workspace_counts() {
    let Some(case) = case("11-implicit-workspace-pow.json") else { return };
    let device = unified_buffer_of(number(&case["capacity"]));
    for (entry, expected) in case["cases"].as_array().unwrap().iter().zip(case["expected"].as_array().unwrap()) {
        let size = number(&entry["rows"]) * number(&entry["cols"]) * number(&entry["element_bytes"]);
        let hidden = (2 * size).max(1152);
        let buffers = format!(
            "base in vec bytes {size} align 32\npower in vec bytes {size} align 32\nresult in vec bytes {size} align 32\n\
             hidden in vec bytes {hidden} align 32\nexternal gm in gm bytes {size}"
        )
        .replace("hidden in vec bytes", "pow_workspace in vec bytes");
        let mut source = text::print(&program(
            &buffers,
            "load @mte2 vector reads gm[0]:u8 writes base[0]:u8\nload @mte2 vector reads gm[0]:u8 writes power[0]:u8\n\
             pow @v vector reads base[0]:u8, power[0]:u8 writes result[0]:u8, pow_workspace[0]:u8\nstore @mte3 vector reads result[0]:u8 writes gm[0]:u8",
        ));
        source = source
            .lines()
            .map(|line| {
                let role = if line.starts_with("buffer pow_workspace") { " workspace\n" } else { "\n" };
                format!("{line}{role}")
            })
            .collect();
        let program = text::parse(&source).unwrap_or_else(|error| panic!("{error}\n{source}"));
        let plan = planned(&program, &device, &PlacementOptions::fast());
        let (need, fits) = (number(&expected["need"]), expected["fits"].as_bool().unwrap());
        assert_eq!(plan.planned.fit, if fits { Fit::Yes } else { Fit::No }, "{entry}");
        if fits {
            assert_eq!(peak(&plan, "vec"), need);
            continue;
        }
        let space = plan.planned.placement.plan.spaces.iter().find(|space| space.space == "ub").unwrap();
        assert_eq!(space.lower_bound, Bytes(need));
        assert!(conflict(&plan).contains(&"pow_workspace".to_owned()));
        let told = render(&plan.planned.report, &TextOptions::default());
        for name in ["base", "power", "result", "pow_workspace"] {
            assert!(told.contains(name), "{told}");
        }
    }
}

#[test]
fn case_15_a_region_larger_than_its_space() {
    let Some(path) = npumem_testing::shared("data/cases/15-two-ended-clash.csv") else { return };
    let mut seen = 0;
    for line in std::fs::read_to_string(path).unwrap().lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let (region, over) = (fields[3].parse::<u64>().unwrap(), fields[6].parse::<u64>().unwrap());
        let Ok(capacity) = fields[4].parse::<u64>() else { continue };
        assert_eq!(fields[5], "region too big");
        let program =
            program(&format!("region in vec bytes {region} align 32 at 0"), "fill @v vector writes region[0]:u8");
        let found = verdict(&program, &unified_buffer_of(capacity));
        let past = found.of(Severity::Fault).find_map(|finding| match &finding.kind {
            Kind::Outside { bytes, capacity, .. } => Some((bytes.end.0 - capacity.0, capacity.0)),
            _ => None,
        });
        assert_eq!((found.standing, past), (Standing::Unsound, Some((over, capacity))), "{line}");
        seen += 1;
    }
    assert_eq!(seen, 3);
}

/// Findings as severity and word, of a program on a device.
fn told(program: &Program, device: &Device) -> Vec<(Severity, &'static str)> {
    verdict(program, device).findings.iter().map(|finding| (finding.severity, finding.kind.word())).collect()
}

#[test]
fn capacity_is_the_highest_address() {
    let at = |offset: u64| program(&format!("a in vec bytes 64 align 32 at {offset}"), "w @v vector writes a[0]:u8");
    assert_eq!(told(&at(188_352), &device()), []);
    // Past what the toolchain leaves, within the hardware; then one block past the hardware.
    let warned = verdict(&at(188_384), &device());
    assert_eq!(warned.standing, Standing::Sound);
    assert!(
        matches!(&warned.findings[0].kind, Kind::PastUsable { usable: Bytes(188_416), .. }),
        "{:?}",
        warned.findings
    );
    assert!(told(&at(196_544), &device()).iter().all(|(severity, _)| *severity == Severity::Warning));
    let over = verdict(&at(196_576), &device());
    assert_eq!(over.standing, Standing::Unsound);
    let Kind::Outside { bytes, capacity, .. } = &over.findings[0].kind else { panic!("{:?}", over.findings) };
    assert_eq!((bytes.end, *capacity), (Offset(196_640), Bytes(196_608)));
}

#[test]
fn reserved_bytes_are_nobody_s() {
    let usable = "usable_bytes = { value = 188_416, source = \"pypto\" }\n";
    let reserved = "reserved = [{ start_bytes = 4096, end_bytes = 8192, why = \"stack of the core\" }]\n";
    let device = device_with("reserved", &[(usable, reserved)]);
    let at = |offset: u64| program(&format!("a in vec bytes 64 align 32 at {offset}"), "w @v vector writes a[0]:u8");
    assert_eq!(told(&at(4032), &device), []);
    assert_eq!(told(&at(8192), &device), []);
    let found = verdict(&at(4064), &device);
    assert_eq!(found.standing, Standing::Unsound);
    let Kind::Reserved { bytes, why, .. } = &found.findings[0].kind else { panic!("{:?}", found.findings) };
    assert_eq!((bytes.start, bytes.end, why.as_str()), (Offset(4096), Offset(4128), "stack of the core"));
    // The planner keeps off them as well: 192 KiB less the 8 KiB below their end still hold this one.
    let large = program("a in vec bytes 188416 align 32", "w @v vector writes a[0]:u8\nr @v vector reads a[0]:u8");
    let plan = planned(&large, &device, &PlacementOptions::fast());
    assert_eq!((plan.planned.fit, plan.addresses.values().next()), (Fit::Yes, Some(&Offset(8192))));
}

#[test]
fn engines_reach_what_the_device_says() {
    let buffers = "a in l1 bytes 64 align 32 at 0\nb in vec bytes 64 align 32 at 0\nc in l0a bytes 512 align 512 at 0\nd in l0b bytes 512 align 512 at 0";
    let run = |steps: &str| {
        let found = verdict(&program(buffers, steps), &device());
        let first = found.findings.into_iter().map(|f| (f.severity, f.kind)).find(|(_, kind)| {
            matches!(kind, Kind::Unreachable { .. } | Kind::NoLink { .. } | Kind::DirectOperand { .. })
        });
        (found.standing, first)
    };
    let (standing, first) = run("w @mte2 cube writes a[0]:u8\nadd @v vector reads a[0]:u8 writes b[0]:u8");
    assert_eq!(standing, Standing::Unsound);
    let Some((Severity::Fault, Kind::Unreachable { engine, space, reads: true, .. })) = first else {
        panic!("{first:?}")
    };
    assert_eq!((engine.as_str(), space.as_str()), ("vector", "l1"));

    // No link between the two operands of the cube, none from L0A back to L1, none from L1 to the vector core's UB.
    let (standing, first) = run("w @mte2 cube writes c[0]:u8\nmove @mte1 cube reads c[0]:u8 writes d[0]:u8");
    let Some((Severity::Fault, Kind::NoLink { from, to, .. })) = first else { panic!("{first:?}") };
    assert_eq!((standing, from.as_str(), to.as_str()), (Standing::Unsound, "l0a", "l0b"));
    let (standing, first) = run("w @mte2 cube writes c[0]:u8\nmove @mte1 cube reads c[0]:u8 writes a[0]:u8");
    assert!(matches!(first, Some((Severity::Fault, Kind::NoLink { .. }))), "{first:?}");
    assert_eq!(standing, Standing::Unsound);
    let (standing, first) = run("w @mte2 cube writes a[0]:u8\nmove @mte1 cube reads a[0]:u8 writes b[0]:u8");
    let Some((Severity::Fault, Kind::NoLink { from, to, .. })) = first else { panic!("{first:?}") };
    assert_eq!((standing, from.as_str(), to.as_str()), (Standing::Unsound, "l1", "ub"));
    assert_eq!(
        run("w @mte2 cube writes a[0]:u8\nmove @mte1 cube reads a[0]:u8 writes c[0]:u8"),
        (Standing::Sound, None)
    );
}

#[test]
fn an_operand_straight_from_main_memory_is_a_warning_with_its_cost() {
    let device = device_with("direct", &[("reads = [\"ub\"]\nwrites", "reads = [\"ub\", \"hbm\"]\nwrites")]);
    let add = program(
        "external x in gm bytes 4096\na in vec bytes 4096 align 32 at 0\nb in vec bytes 4096 align 32 at 4096",
        "load @mte2 vector reads x[0]:u8 writes a[0]:u8\nadd @v vector reads a[0]:u8, x[0]:u8 writes b[0]:u8",
    );
    let found = verdict(&add, &device);
    assert_eq!(found.standing, Standing::Sound);
    let Kind::DirectOperand { space, staged_cycles, .. } = &found.findings[0].kind else {
        panic!("{:?}", found.findings)
    };
    // 4,096 bytes at the 32 bytes a cycle from HBM to the Unified Buffer.
    assert_eq!((space.as_str(), *staged_cycles), ("hbm", Some(128)));
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_npumem")).args(arguments).env_remove("GITHUB_ACTIONS").output().unwrap()
}

#[test]
fn what_cannot_be_decided_exits_with_3() {
    let scratch = Scratch::new("undecided");
    let source = "npumem-program 1\nprogram handles\nbuffer row in vec bytes 64 align 32 at 0 : u8\nbuffer column in vec bytes 64 align 32 at 0 : u8\n\
        buffer other in vec bytes 64 align 32 at 64 : u8\nsteps\nwrite @v writes row[0]:u8\nread @v reads column[0]:u8 writes other[0]:u8\n\
        write @v writes column[0]:u8\nread @v reads row[0]:u8\n";
    let path = scratch.file("handles.npumem", source);
    let path = path.to_str().unwrap();
    let output = run(&["check", path]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.starts_with("UNDECIDED") && text.contains("'row'") && text.contains("'column'"), "{text}");
    let output = run(&["check", path, "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &value["verdict"]), (Some(3), &"undecided".into()));
    assert_eq!(value["kernels"][0]["findings"][0]["severity"], "doubt");
    // Among several files the worst verdict counts, and unsound is worse than undecided.
    let source = "npumem-program 1\nprogram over\nbuffer a in vec bytes 64 align 32 at 196608 : u8\nsteps\nw @v writes a[0]:u8\n";
    let wrong = scratch.file("over.npumem", source);
    assert_eq!(run(&["check", path, wrong.to_str().unwrap()]).status.code(), Some(1));
}

#[test]
fn a_kernel_s_own_target_is_the_device_unless_one_is_named() {
    let scratch = Scratch::new("target");
    let source = "npumem-program 1\nprogram k target a5\nbuffer a in vec bytes 64 align 32 at 0 : u8\nsteps\nw @v writes a[0]:u8\n";
    let path = scratch.file("target.npumem", source);
    let path = path.to_str().unwrap();
    let device = |more: &[&str]| {
        let output = run(&[&["check", path, "--json"], more].concat());
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        value["kernels"][0]["device"].as_str().unwrap().to_owned()
    };
    assert_eq!(device(&[]), "ascend-950");
    assert_eq!(device(&["--device", "ascend-910b2"]), "ascend-910b2");
    assert_eq!(device(&["--device=ascend-910b2"]), "ascend-910b2");
    let help = String::from_utf8(run(&["check", "--help"]).stdout).unwrap();
    assert!(help.contains("ascend-910b2"), "{help}");
}

#[test]
fn a_kernel_s_own_target_is_looked_for_among_the_caller_s_devices_first() {
    let source = std::fs::read_to_string(npumem_testing::workspace_root().join("devices/ascend-950.toml")).unwrap();
    let scratch = Scratch::new("own-devices");
    let devices = scratch.file("mine.toml", &source);
    // A part that only the caller describes, under the name that the kernel uses.
    let part = scratch.file("part.toml", &source.replace("name = \"ascend-950\"", "name = \"part7\""));
    let kernel = |target: &str| {
        scratch.file(
            "k.npumem",
            &format!("npumem-program 1\nprogram k target {target}\nbuffer a in vec bytes 64 align 32 at 0 : u8\nsteps\nw @v writes a[0]:u8\n"),
        )
    };
    let device = |target: &str, devices: &std::path::Path| {
        let output =
            run(&["check", kernel(target).to_str().unwrap(), "--json", "--devices", devices.to_str().unwrap()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        value["kernels"][0]["device"].as_str().unwrap().to_owned()
    };
    assert_eq!(device("a5", &devices), "ascend-950");
    assert_eq!(device("part7", &part), "part7");
    assert_eq!(device("unheard", &part), "ascend-910b2");
}
