//! The command line as its users meet it: exit codes, both outputs, files that come back, and errors that say where.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn npumem(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_npumem")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("killed: {output:?}"))
}

/// A folder of this test's own, emptied.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn write(folder: &Path, name: &str, content: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path.to_string_lossy().into_owned()
}

const THREE: &str = "id,lower,upper,size\nx,0,4,64\ny,2,6,64\nz,4,8,64\n";

#[test]
fn a_problem_is_planned_written_checked_and_damaged() {
    let folder = folder("round");
    let (problem, planned) = (write(&folder, "p.csv", THREE), folder.join("planned.csv"));
    let planned = planned.to_string_lossy().into_owned();
    let output = npumem(&["plan", &problem, "--capacity", "128", "-o", &planned, "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["spaces"][0]["peak"], 128);
    assert_eq!(report["spaces"][0]["lower_bound"], 128);
    assert_eq!(report["fits"], true);

    assert_eq!(code(&npumem(&["check", &planned])), 0);
    let output = npumem(&["check", &problem, &planned, "--capacity", "128"]);
    assert_eq!(code(&output), 0);
    assert!(stdout(&output).starts_with("SOUND: 3 buffers"), "{}", stdout(&output));

    // By hand: y is moved onto whatever lies at 0.
    let rows = std::fs::read_to_string(&planned).unwrap();
    let damaged: String = rows
        .lines()
        .map(|row| if row.starts_with("y,") { "y,2,6,64,32\n".to_owned() } else { format!("{row}\n") })
        .collect();
    let damaged = write(&folder, "damaged.csv", &damaged);
    let output = npumem(&["check", &problem, &damaged]);
    assert_eq!(code(&output), 1);
    let text = stdout(&output);
    assert!(text.starts_with("UNSOUND: 2 violations"), "{text}");
    assert!(text.contains("'x' (#0)") && text.contains("'y' (#1)") && text.contains("'z' (#2)"), "{text}");
    let json: Value = serde_json::from_str(&stdout(&npumem(&["check", &problem, &damaged, "--json"]))).unwrap();
    assert_eq!(json["verdict"], "unsound");
    assert_eq!(json["violations"][0]["detail"]["kind"], "overlap");
}

#[test]
fn every_form_of_a_plan_checks() {
    let folder = folder("forms");
    let problem = write(&folder, "p.csv", THREE);
    for name in ["plan.csv", "plan.json", "plan.txt"] {
        let path = folder.join(name).to_string_lossy().into_owned();
        assert_eq!(code(&npumem(&["plan", &problem, "-o", &path])), 0, "{name}");
        let output = npumem(&["check", &problem, &path]);
        assert_eq!(code(&output), 0, "{name}: {}{}", stdout(&output), stderr(&output));
    }
    let output = npumem(&["plan", &problem, "-o", "-"]);
    assert_eq!(code(&output), 0);
    assert!(stdout(&output).starts_with("id,lower,upper,size,offset\n"), "{}", stdout(&output));
    let output = npumem(&["plan", &problem, "-o", &folder.join("plan.xyz").to_string_lossy()]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("the ending says the format"), "{}", stderr(&output));
}

#[test]
fn what_cannot_fit_says_why_and_exits_with_1() {
    let folder = folder("small");
    let (problem, planned) = (write(&folder, "p.csv", THREE), folder.join("planned.csv"));
    let output = npumem(&["plan", &problem, "--capacity", "127"]);
    assert_eq!(code(&output), 1);
    let text = stdout(&output);
    assert!(text.starts_with("p does not fit"), "{text}");
    assert!(text.contains("128 B") && text.contains("127 B"), "{text}");
    let output = npumem(&["plan", &problem, "--capacity", "127", "-o", &planned.to_string_lossy()]);
    assert_eq!(code(&output), 1);
    assert!(stdout(&output).contains("Why it cannot fit"), "{}", stdout(&output));
    assert!(stderr(&output).contains("not written"), "{}", stderr(&output));
    assert!(!planned.exists(), "a plan that does not fit is not written");
    // 110 bytes are needed though only 100 are live at once: the bound is a proof, not a doubt.
    let gaps = "id,lower,upper,size,gaps\na,0,10,100,2-5@10:20 6-8\nb,2,5,90,\nc,6,8,50,\n";
    let gaps = write(&folder, "gaps.csv", gaps);
    for effort in ["fast", "normal"] {
        let fits = npumem(&["plan", &gaps, "--capacity", "110", "--effort", effort]);
        assert_eq!(code(&fits), 0, "{effort}: {}", stdout(&fits));
    }
    assert_eq!(code(&npumem(&["plan", &gaps, "--capacity", "109"])), 1);
}

#[test]
fn a_full_disk_is_an_error_and_a_device_is_written_to_rather_than_replaced() {
    let folder = folder("full");
    let problem = write(&folder, "p.csv", THREE);
    let run = |redirect: &str| {
        let script = format!("{} plan {problem} {redirect}", env!("CARGO_BIN_EXE_npumem"));
        Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap()
    };
    if Path::new("/dev/full").exists() {
        let output = run("> /dev/full");
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains("standard output"), "{}", stderr(&output));
    }
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let output = run(&format!("--report {0} > /dev/null & cat {0}", pipe.display()));
    assert!(stdout(&output).contains("<html"), "the pipe's reader gets the page");
    let link = folder.join("link.csv");
    let target = write(&folder, "target.csv", "");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert_eq!(code(&run(&format!("-o {}", link.display()))), 0);
    assert!(std::fs::read_to_string(&target).unwrap().starts_with("id,"), "the link's file is written");
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn bad_inputs_say_where_and_exit_with_2() {
    let folder = folder("bad");
    let cases: &[(&str, &str, &[&str])] = &[
        ("reversed.csv", "id,lower,upper,size\nx,4,2,64\n", &["line 2", "upper"]),
        ("negative.csv", "id,lower,upper,size\nx,0,2,-64\n", &["line 2", "size", "'-64'"]),
        ("empty-range.csv", "id,lower,upper,size\nx,2,2,64\n", &["line 2"]),
        ("twice.csv", "id,lower,upper,size\nx,0,2,64\nx,3,4,64\n", &["line 3", "'x'"]),
        ("huge.csv", "id,lower,upper,size\nx,0,2,18446744073709551616\n", &["line 2", "size"]),
        ("short.csv", "id,lower,upper,size\nx,0,2\n", &["line 2"]),
        ("claims.json", "{\"format\": \"npumem-problem\", \"version\": 1", &["line 1"]),
        ("nothing.csv", "", &["nothing.csv"]),
        ("cut.onnx", "\u{8}\u{7}\u{3a}\u{7f}abc", &["byte"]),
    ];
    for (name, content, wanted) in cases {
        let path = write(&folder, name, content);
        let output = npumem(&["plan", &path]);
        assert_eq!(code(&output), 2, "{name}: {}", stdout(&output));
        let text = stderr(&output);
        assert!(text.starts_with("npumem: ") && text.contains(name), "{name}: {text}");
        for word in *wanted {
            assert!(text.contains(word), "{name}: no {word:?} in {text}");
        }
    }
    let problem = write(&folder, "good.csv", THREE);
    let calls: &[(&[&str], &str)] = &[
        (&["plan", "nowhere.csv"], "nowhere.csv: cannot be read"),
        (&["plan", &problem, "--device", "ascend-910b9"], "no device"),
        (&["plan", &problem, "--capacity", "12 XB"], "not a size"),
        (&["plan", &problem, "--capacity", "ub=12"], "no such space"),
        (&["plan", &problem, "--dim", "a=1"], "--dim is for models"),
        (&["plan", &problem, "--threads", "0"], "--threads"),
        (&["plan", &problem, "--without", "luck"], "no such part"),
        (&["plan", &problem, "--report", "no/such/folder.html"], "there is no folder"),
        (&["check", &problem], "offset"),
        (&["plan", "--dim", "nonsense"], "--dim"),
        (&["plan", "--shape", "x=1xA"], "--shape"),
        (&["devices", "nothing-like-it"], "no device"),
    ];
    for (arguments, wanted) in calls {
        let output = npumem(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", stdout(&output));
        assert!(stderr(&output).contains(wanted), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn the_example_is_planned_without_an_input() {
    let output = npumem(&["plan"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("example-cnn fits ascend-910b2"), "{text}");
    for part in ["peak", "lower bound", "gap", "Live at the peak of hbm", "given order", "hybrid", "bounds the whole"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn the_same_input_gives_the_same_bytes_on_any_number_of_threads() {
    let one = npumem(&["plan", "--json", "--threads", "1"]);
    let two = npumem(&["plan", "--json", "--threads", "2"]);
    assert_eq!(code(&one), 0);
    assert_eq!(one.stdout, two.stdout);
    assert_eq!(one.stdout, npumem(&["plan", "--json"]).stdout);
}

#[test]
fn the_report_page_is_one_file_with_the_reports_numbers() {
    let folder = folder("page");
    let page = folder.join("out.html");
    let output = npumem(&["plan", "--report", &page.to_string_lossy(), "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let html = std::fs::read_to_string(&page).unwrap();
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(html.contains(&report["spaces"][0]["peak"].to_string()));
    assert!(!html.contains("http://") && !html.contains("https://"), "the page names no other site");
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["out.html"], "no part file is left");
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let script = format!("{} plan --json | head -c 1", env!("CARGO_BIN_EXE_npumem"));
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.stdout, b"{");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn devices_are_listed_and_shown() {
    let output = npumem(&["devices"]);
    assert_eq!(code(&output), 0);
    let text = stdout(&output);
    for name in ["ascend-310p", "ascend-910b2", "nvidia-h200", "generic-npu", "arm-ethos-u85", "tenstorrent-wormhole"] {
        assert!(text.contains(name), "no {name} in {text}");
    }
    let output = npumem(&["devices", "ascend-910b2", "--json"]);
    let device: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(device["name"], "ascend-910b2");
    assert!(stdout(&npumem(&["devices", "ascend-910b2"])).contains("estimated"));
}

#[test]
fn ctrl_c_gives_the_best_plan_so_far_and_says_so() {
    let Some(hard) = npumem_testing::shared("data/placement/minimalloc/J.1048576.csv") else { return };
    let started = Command::new(env!("CARGO_BIN_EXE_npumem"))
        .args(["plan", &hard.to_string_lossy(), "--effort", "thorough", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let sent = Command::new("kill").args(["-INT", &started.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = started.wait_with_output().unwrap();
    assert_eq!(code(&output), 0);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["origin"]["stop"], "interrupted");
    assert!(report["spaces"][0]["peak"].as_u64().unwrap() >= 989_184);
}

#[test]
fn what_contradicts_itself_does_not_fit_and_names_its_buffers() {
    let folder = folder("contradiction");
    let head = "npumem-problem 1\nname p\nspace S capacity=64\n";
    let cases = [
        ("buffer a size=8 live=[0,4) pin=S+0\nbuffer b size=8 live=[2,4) pin=S+4\n", "pinned offsets clash"),
        (
            "buffer a size=8 live=[0,4) pin=S+0\nbuffer b size=8 live=[5,6) pin=S+0\nseparated a b\n",
            "pinned offsets clash",
        ),
    ];
    for (index, (body, why)) in cases.into_iter().enumerate() {
        let path = write(&folder, &format!("{index}.txt"), &format!("{head}{body}"));
        let output = npumem(&["plan", &path]);
        let text = stdout(&output);
        assert_eq!(code(&output), 1, "{text}{}", stderr(&output));
        assert!(text.contains("does not fit") && text.contains(why), "{text}");
        assert!(text.contains('a') && text.contains('b'), "{text}");
        let json: Value = serde_json::from_str(&stdout(&npumem(&["plan", &path, "--json"]))).unwrap();
        assert_eq!(json["fits"], false);
    }
    // What cannot be read stays an error.
    let path = write(&folder, "odd.txt", &format!("{head}buffer a size=8 live=[4,0)\n"));
    assert_eq!(code(&npumem(&["plan", &path])), 2);
}

#[test]
fn a_capacity_below_one_buffer_names_that_buffer_alone() {
    let folder = folder("nothing");
    let problem = write(&folder, "p.csv", THREE);
    for capacity in ["0", "1", "63"] {
        let output = npumem(&["plan", &problem, "--capacity", capacity, "--json"]);
        assert_eq!(code(&output), 1, "{}", stderr(&output));
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(report["infeasible"]["conflicts"][0]["buffers"].as_array().unwrap().len(), 1);
        assert!(
            report["infeasible"]["reason"].as_str().unwrap().starts_with("one buffer alone needs 64 B"),
            "{report}"
        );
    }
}

#[test]
fn a_file_without_buffers_says_so() {
    let folder = folder("empty");
    let output = npumem(&["plan", &write(&folder, "p.csv", "id,lower,upper,size\n")]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("holds no buffers"), "{}", stdout(&output));
}

#[test]
fn a_plan_for_a_capacity_checks_without_a_note_when_the_capacity_is_left_out() {
    let folder = folder("digest");
    let problem = write(&folder, "p.csv", THREE);
    let path = folder.join("plan.json").to_string_lossy().into_owned();
    assert_eq!(code(&npumem(&["plan", &problem, "--capacity", "128", "--goal", "fit", "-o", &path])), 0);
    let output = npumem(&["check", &problem, &path]);
    assert_eq!(code(&output), 0);
    assert!(!stdout(&output).contains("digest"), "{}", stdout(&output));
    let other = write(&folder, "other.csv", &THREE.replace("z,4,8,64", "z,4,8,60"));
    assert!(stdout(&npumem(&["check", &other, &path])).contains("digest"));
}

#[test]
fn one_file_is_not_taken_for_two_purposes() {
    let folder = folder("two-purposes");
    let input = folder.join("in.csv");
    std::fs::write(&input, "id,lower,upper,size\na,0,2,8\nb,1,3,8\n").unwrap();
    let (input, link) = (input.to_string_lossy().into_owned(), folder.join("link.csv"));
    let before = std::fs::read_to_string(&input).unwrap();
    let out = folder.join("out.csv").to_string_lossy().into_owned();
    let beside = format!("{}/./out.csv", folder.display());
    for arguments in [["--report", &input, "-o", &out], ["-o", &out, "--report", &beside]] {
        let output = npumem(&[&["plan", input.as_str()][..], &arguments[..]].concat());
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains("name two files"), "{}", stderr(&output));
        assert_eq!(std::fs::read_to_string(&input).unwrap(), before);
        assert!(!Path::new(&out).exists());
    }
    // The same rows come back with offsets: MiniMalloc's CSV may be completed where it lies.
    assert_eq!(code(&npumem(&["plan", &input, "-o", &input])), 0);
    assert!(std::fs::read_to_string(&input).unwrap().contains("offset"));

    // A link is followed, to a file that is not there yet too; a write-protected file stays as it is.
    std::os::unix::fs::symlink("new.csv", &link).unwrap();
    assert_eq!(code(&npumem(&["plan", &input, "-o", &link.to_string_lossy()])), 0);
    assert!(link.is_symlink() && folder.join("new.csv").is_file());
    let locked = folder.join("locked.csv");
    std::fs::write(&locked, "mine").unwrap();
    std::fs::set_permissions(&locked, std::os::unix::fs::PermissionsExt::from_mode(0o444)).unwrap();
    let output = npumem(&["plan", &input, "-o", &locked.to_string_lossy()]);
    assert_eq!((code(&output), std::fs::read_to_string(&locked).unwrap().as_str()), (2, "mine"));
    assert!(stderr(&output).contains("write-protected"), "{}", stderr(&output));

    let output = npumem(&["plan", &input, "--capacity", "100", "--capacity", "10"]);
    assert!(code(&output) == 2 && stderr(&output).contains("give it once"), "{}", stderr(&output));
}

#[test]
fn what_was_reached_of_each_goal_is_told() {
    let folder = folder("reached");
    let input = folder.join("in.problem");
    // Two buffers that share bytes in every plan that fits, at a cost of 42; one is where it was yesterday.
    let text = "npumem-problem 1\nname goals\ngoal reuse-cost\ngoal keep-hints\nspace UB capacity=8\n\
                buffer a size=6 live=[0,1) in=UB hint=UB+0\nbuffer b size=6 live=[2,3) in=UB\nreuse-penalty a b cost=42\n";
    std::fs::write(&input, text).unwrap();
    let input = input.to_string_lossy().into_owned();
    let output = npumem(&["plan", &input]);
    assert!(
        stdout(&output).contains("reuse cost 42 (bound 42); bytes away from their hints 0 B"),
        "{}",
        stdout(&output)
    );
    assert!(stdout(&output).starts_with("goals fits 8 B\n"), "{}", stdout(&output));
    let report: serde_json::Value = serde_json::from_str(&stdout(&npumem(&["plan", &input, "--json"]))).unwrap();
    let expected = serde_json::json!([
        {"goal": "reuse-cost", "value": 42, "bound": 42}, {"goal": "keep-hints", "value": 0, "bound": null}
    ]);
    assert_eq!(report["goals"], expected);
    let report = stdout(&npumem(&["plan", &input, "--json", "--capacity", "5"]));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["origin"]["stop"], "infeasible");
    assert_eq!(report["infeasible"]["reason"], "one buffer alone needs 6 B, and UB has 5 B");
}
