//! Shadow memory against the program checker, which was written apart from it: on kernels as planned, on damaged plans,
//! on generated programs and on cases from public reports.
#![allow(clippy::unwrap_used)]

use npumem::check_program::{Severity, Standing};
use npumem::ir::program::{Program, Role, text};
use npumem::ir::{BufferId, Device};
use npumem::kernel::{self, KernelFile};
use npumem::simulator::shadow::{Fault, FaultKind, Shadow};
use npumem::simulator::{self, Options, RunError};
use npumem::{PlacementOptions, catalogue};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn device() -> Device {
    catalogue::device("ascend-910b2").unwrap()
}

fn device_of(file: &KernelFile) -> Device {
    file.target.as_deref().and_then(kernel::target_device).unwrap_or_else(device)
}

fn watch(program: &Program, device: &Device) -> Result<Vec<Fault>, RunError> {
    let mut shadow = Shadow::new(program, device).of_separate_plan();
    simulator::run(program, device, &Options { blocks: Some(1), ..Options::default() }, &mut shadow)?;
    Ok(shadow.faults().to_vec())
}

/// What a plan can do wrong to values.
fn clobbers(fault: &&Fault) -> bool {
    matches!(fault.kind, FaultKind::Overwritten | FaultKind::Torn | FaultKind::OwnInput)
}

fn kernels() -> Vec<PathBuf> {
    let mut all = npumem_testing::files_under(&npumem_testing::workspace_root().join("testdata/kernels"), ".pto");
    match std::env::var_os("NPUMEM_PTOAS") {
        Some(folder) => all.extend(npumem_testing::files_under(Path::new(&folder), ".pto")),
        None => npumem_testing::skipped("the public samples: NPUMEM_PTOAS is not set"),
    }
    all
}

/// The kernels of a file with every argument that decides something bound to 1.
fn bound(path: &Path) -> Option<KernelFile> {
    let source = std::fs::read_to_string(path).unwrap();
    let mut dims = BTreeMap::new();
    for _ in 0..16 {
        let file = kernel::read(&source, &dims).ok()?;
        let device = device_of(&file);
        let asked = file.kernels.iter().find_map(|one| match watch(&one.program, &device) {
            Err(RunError::Unbound { first, .. }) => Some(first),
            _ => None,
        });
        match asked {
            Some(name) => dims.insert(name, 1),
            None => return Some(file),
        };
    }
    None
}

#[test]
fn plans_and_damaged_plans_are_judged_as_the_checker_does() {
    let options = PlacementOptions::fast();
    let (mut sound, mut damaged, mut caught) = (0, 0, 0);
    for path in kernels() {
        let Some(file) = bound(&path) else { continue };
        let device = device_of(&file);
        for one in &file.kernels {
            let Ok(plan) = kernel::plan(&one.program, &device, &options, &[], None) else { continue };
            if plan.planned.fit != npumem::plan::Fit::Yes {
                continue;
            }
            let Ok(faults) = watch(&plan.program, &device) else { continue };
            let wrong: Vec<String> = faults.iter().filter(clobbers).map(|f| f.message(&plan.program)).collect();
            assert!(wrong.is_empty(), "{}: {wrong:#?}", path.display());
            sound += 1;
            if one.program.buffers.len() > 24 {
                continue;
            }
            for (moved, onto) in pairs(&plan.program) {
                let mut addresses = plan.addresses.clone();
                addresses.insert(moved, addresses[&onto]);
                let program = plan.program.placed(&addresses);
                let verdict = kernel::check(&program, &device, true).unwrap();
                let found = watch(&program, &device).unwrap();
                let faults: Vec<&Fault> = found.iter().filter(clobbers).collect();
                let told = |f: &&Fault| f.message(&program);
                damaged += 1;
                let fault = verdict.of(Severity::Fault).any(|f| matches!(f.kind.word(), "overwritten" | "own-input"));
                let here =
                    format!("{}: {} on {}", path.display(), program.buffer(moved).name, program.buffer(onto).name);
                if faults.is_empty() {
                    let decided = one.program.scalars.iter().all(|s| {
                        !matches!(&s.kind, npumem::ir::program::ScalarKind::Computed(c) if c.op == npumem::ir::program::Op::Opaque)
                    });
                    assert!(
                        !fault || !decided,
                        "{here}: the checker found {:#?}",
                        verdict.findings.first().map(|f| f.message(&program))
                    );
                } else {
                    caught += 1;
                    // Bytes that the reader's buffer never held are a warning there, and a foreign read here.
                    let warned = verdict.findings.iter().any(|f| f.kind.word() == "never-written");
                    assert!(verdict.standing != Standing::Sound || warned, "{here}: {:?}", faults.first().map(told));
                }
            }
        }
    }
    assert!(sound >= 5 && damaged > 30 && caught > 20, "{sound} sound, {damaged} damaged, {caught} caught");
}

/// Pairs of tiles of one space.
fn pairs(program: &Program) -> Vec<(BufferId, BufferId)> {
    let tiles: Vec<BufferId> =
        program.buffers().filter(|(_, b)| b.role == Role::Tile && b.alias.is_none()).map(|(id, _)| id).collect();
    let mut out = Vec::new();
    for a in &tiles {
        for b in &tiles {
            if a != b && program.buffer(*a).space == program.buffer(*b).space {
                out.push((*a, *b));
            }
        }
    }
    out
}

/// Buffers at random, mostly overlapping addresses; statements that read and write them whole, in loops.
#[test]
fn generated_programs_are_judged_as_the_checker_does() {
    let device = device();
    let mut random = npumem_testing::Random(5);
    let (mut unsound, mut sound) = (0, 0);
    for round in 0..1500 {
        let mut source =
            String::from("npumem-program 1\nprogram p\nscalar i = counter\nexternal x in gm bytes 65536 : u8\n");
        let count = 2 + random.below(4);
        for b in 0..count {
            let bytes = 32 << random.below(3);
            let at = 32 * random.below(12);
            source += &format!("buffer b{b} in vec bytes {bytes} align 32 at {at} : u8\n");
        }
        source += "steps\n";
        let any = |random: &mut npumem_testing::Random| format!("b{}", random.below(count));
        let body = |random: &mut npumem_testing::Random, out: &mut String| {
            for _ in 0..1 + random.below(5) {
                let (to, from) = (any(random), any(random));
                *out += &match random.below(3) {
                    0 => format!("tload @mte2 reads x[0; 32 by 1]:u8 writes {to}[0]:u8\n"),
                    1 => format!("tstore @mte3 reads {from}[0]:u8 writes x[0; 32 by 1]:u8\n"),
                    _ => format!("tadds @v in-place reads {from}[0]:u8 writes {to}[0]:u8\n"),
                };
            }
        };
        for b in 0..count {
            source += &format!("tload @mte2 reads x[0; 32 by 1]:u8 writes b{b}[0]:u8\n");
        }
        body(&mut random, &mut source);
        source += &format!("for i = 0 to {} step 1\n", 1 + random.below(4));
        body(&mut random, &mut source);
        source += "end\n";
        body(&mut random, &mut source);
        let program = text::parse(&source).unwrap();
        let verdict = kernel::check(&program, &device, true).unwrap();
        let found = watch(&program, &device).unwrap();
        let faults: Vec<String> = found.iter().filter(clobbers).map(|f| f.message(&program)).collect();
        let checked: Vec<String> = verdict
            .findings
            .iter()
            .filter(|f| matches!(f.kind.word(), "overwritten" | "own-input"))
            .map(|f| f.message(&program))
            .collect();
        assert_eq!(faults.is_empty(), checked.is_empty(), "round {round}: {faults:#?} {checked:#?}\n{source}");
        if faults.is_empty() { sound += 1 } else { unsound += 1 }
    }
    assert!(sound > 200 && unsound > 200, "{sound} sound, {unsound} unsound");
}

fn one(buffers: &str, steps: &str) -> (Program, Vec<Fault>) {
    let program = text::parse(&format!("npumem-program 1\nprogram p\n{buffers}steps\n{steps}")).unwrap();
    let faults = watch(&program, &device()).unwrap();
    (program, faults)
}

#[test]
fn the_loop_of_case_05_is_wrong_from_its_second_turn() {
    let (program, faults) = one(
        "scalar i = counter\nexternal x in gm bytes 16384 : u8\nbuffer index in vec bytes 16384 at 0 : u8\n\
         buffer merged in vec bytes 16384 at 0 : u8\nbuffer mask in vec bytes 512 at 16384 : u8\n",
        "tload @mte2 reads x[0]:u8 writes index[0]:u8\nfor i = 0 to 4 step 1\n\
         tcmp @v reads index[0]:u8 writes mask[0]:u8\ntstore @mte3 reads mask[0]:u8 writes x[0; 512 by 1]:u8\n\
         tload @mte2 reads x[0]:u8 writes merged[0]:u8\ntstore @mte3 reads merged[0]:u8 writes x[0]:u8\nend\n",
    );
    assert_eq!(faults.len(), 1);
    let fault = &faults[0];
    assert_eq!(
        (fault.kind, fault.step.0, fault.start, fault.end, fault.again),
        (FaultKind::Overwritten, 2, 0, 16384, 2)
    );
    assert_eq!(
        fault.turns.iter().map(|turn| turn.1).collect::<Vec<_>>(),
        [1],
        "turn 0 is right, turn 1 is the first wrong one"
    );
    assert_eq!(
        fault.message(&program),
        "step 2 (tcmp) at i = 1 reads bytes [0, 16384) of 'index', but they hold what step 4 (tload) at i = 0 wrote for 'merged'"
    );
}

#[test]
fn the_result_of_case_04_is_overwritten() {
    let (_, faults) = one(
        "scalar c = argument 1\nexternal x in gm bytes 256 : u8\nbuffer init in vec bytes 256 at 98816 : u8\n\
         buffer phi in vec bytes 256 at 98496 : u8\nbuffer beta2 in vec bytes 256 at 98496 : u8\n",
        "tload @mte2 reads x[0]:u8 writes init[0]:u8\nif c\ntmov @v reads init[0]:u8 writes phi[0]:u8\nelse\n\
         tmov @v reads init[0]:u8 writes phi[0]:u8\nend\ntload @mte2 reads x[0]:u8 writes beta2[0]:u8\n\
         tstore @mte3 reads beta2[0]:u8 writes x[0]:u8\ntstore @mte3 reads phi[0]:u8 writes x[0]:u8\n",
    );
    let [fault] = faults.as_slice() else { panic!("{faults:?}") };
    assert_eq!((fault.kind, fault.step.0, fault.end - fault.start), (FaultKind::Overwritten, 8, 256));
    assert_eq!(fault.earlier.as_ref().unwrap().step.0, 6);
}

#[test]
fn each_kind_of_fault_fires() {
    let words = |buffers: &str, steps: &str| {
        let (program, faults) = one(buffers, steps);
        faults.iter().for_each(|fault| assert!(!fault.message(&program).is_empty()));
        faults.iter().map(|fault| fault.kind.word()).collect::<Vec<_>>()
    };
    let x = "external x in gm bytes 1024 : u8\n";
    let t = format!("{x}buffer t in vec bytes 1024 : u8\n");
    assert_eq!(words(&t, "tstore @mte3 reads t[0]:u8 writes x[0]:u8\n"), ["unwritten"]);
    let half =
        "tload @mte2 reads x[0; 512 by 1]:u8 writes t[0; 512 by 1]:u8\ntstore @mte3 reads t[0]:u8 writes x[0]:u8\n";
    assert_eq!(words(&t, half), ["unwritten"]);
    assert_eq!(words(&t, "tload @mte2 reads x[0]:u8 writes t[512; 1024 by 1]:u8\n"), ["past-buffer"]);
    assert_eq!(words(&t, "tload @mte2 reads x[512; 1024 by 1]:u8 writes t[0]:u8\n"), ["past-buffer"]);
    assert_eq!(words(&t, "tload @mte2 reads x[-8; 1024 by 1]:u8 writes t[0]:u8\n"), ["past-buffer"]);
    assert_eq!(words(&t, "tload @mte2 reads x[0; 64 by 1]:u8 writes t[4; 64 by 1]:u8\n"), ["misaligned"]);
    let far = format!("{x}buffer t in vec bytes 1024 at 196096 : u8\n");
    assert_eq!(words(&far, "tload @mte2 reads x[0]:u8 writes t[0]:u8\n"), ["outside-space"]);
    let load = "tload @mte2 reads x[0]:u8 writes t[0]:u8\n";
    let shifted = format!("{load}tadds @v elementwise reads t[0; 512 by 1]:u8 writes t[32; 512 by 1]:u8\n");
    assert_eq!(words(&t, &shifted), ["own-input"]);
    let two = format!("{x}buffer t in vec bytes 1024 at 0 : u8\nbuffer s in vec bytes 1024 at 512 : u8\n");
    let torn = format!("{load}tload @mte2 reads x[0]:u8 writes s[0]:u8\ntstore @mte3 reads t[0]:u8 writes x[0]:u8\n");
    assert_eq!(words(&two, &torn), ["torn-read"]);
    let race = format!(
        "{load}set-flag mte2 mte3 0\nwait-flag mte2 mte3 0\ntadds @v elementwise reads t[0]:u8 writes t[0]:u8\n"
    );
    assert_eq!(words(&t, &race), ["race"], "the vector unit has heard of nobody");
    let ordered =
        format!("{load}set-flag mte2 v 0\nwait-flag mte2 v 0\ntadds @v elementwise reads t[0]:u8 writes t[0]:u8\n");
    assert!(words(&t, &ordered).is_empty());
    let cores = text::parse(&format!(
        "npumem-program 1\nprogram p\nscalar g = grid 2\n{t}steps\n{load}tstore @mte3 reads t[0]:u8 writes x[0]:u8\n"
    ))
    .unwrap();
    let mut shadow = Shadow::new(&cores, &device());
    simulator::run(&cores, &device(), &Options::default(), &mut shadow).unwrap();
    assert!(shadow.faults().iter().any(|fault| fault.kind == FaultKind::CoreRace));
}

#[test]
fn the_command_line_says_no_and_names_them() {
    let folder = npumem_testing::Scratch::new("sanitize");
    let path = folder.file("bad.npumem", "npumem-program 1\nprogram bad\nexternal x in gm bytes 1024 : u8\nbuffer t in vec bytes 1024 : u8\nsteps\ntstore @mte3 reads t[0]:u8 writes x[0]:u8\ntload @mte2 reads x[0]:u8 writes t[32; 1024 by 1]:u8\n");
    let go =
        |more: &[&str]| Command::new(env!("CARGO_BIN_EXE_npumem")).arg("run").arg(&path).args(more).output().unwrap();
    assert_eq!(go(&[]).status.code(), Some(0));
    let output = go(&["--sanitize"]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(
        told.contains("unwritten: step 0 (tstore) reads bytes [0, 1024) of 't', which nothing has written"),
        "{told}"
    );
    assert!(
        told.contains("past-buffer: step 1 (tload) leaves 't': writes bytes 32 to 1056 of a slot of 1024"),
        "{told}"
    );
    let json: serde_json::Value = serde_json::from_slice(&go(&["--sanitize", "--json"]).stdout).unwrap();
    assert_eq!(
        (json["sanitizer"]["faults"].as_u64(), json["sanitizer"]["findings"][0]["kind"].as_str()),
        (Some(2), Some("unwritten"))
    );
}
