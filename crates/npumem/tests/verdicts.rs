//! Programs of `testdata/verdicts` against the verdict in their heads.

#![allow(clippy::unwrap_used)]

use npumem::catalogue;
use npumem::check_program::{Finding, Severity, Standing};
use npumem::ir::program::Program;
use npumem::kernel;
use std::collections::BTreeMap;

/// `severity kind buffers bytes statement`, as the heads write it.
fn told(program: &Program, finding: &Finding) -> String {
    let severity = match finding.severity {
        Severity::Fault => "fault",
        Severity::Doubt => "doubt",
        Severity::Warning => "warning",
    };
    let dash = || "-".to_owned();
    let names: Vec<&str> = finding.kind.buffers().iter().map(|id| program.buffer(*id).name.as_str()).collect();
    let names = if names.is_empty() { dash() } else { names.join(",") };
    let bytes = finding.kind.bytes().map_or_else(dash, |bytes| format!("{}-{}", bytes.start.0, bytes.end.0));
    let step = finding.kind.step().map_or_else(dash, |step| step.0.to_string());
    format!("{severity} {} {names} {bytes} {step}", finding.kind.word())
}

#[test]
fn every_verdict_is_the_one_derived_by_hand() {
    let folder = npumem_testing::workspace_root().join("testdata/verdicts");
    let device = catalogue::device("ascend-910b2").unwrap();
    let (mut wrong, mut seen) = (Vec::new(), BTreeMap::<String, usize>::new());
    let files = npumem_testing::files_under(&folder, ".npumem");
    assert!(files.len() >= 30, "{}", files.len());
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let head = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("# {key}: ")));
            line.unwrap_or_else(|| panic!("{}: no '# {key}:'", path.display())).to_owned()
        };
        let file = kernel::read(&text, &BTreeMap::new()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let program = &file.kernels[0].program;
        let verdict = kernel::check(program, &device, false).unwrap();
        let standing = match verdict.standing {
            Standing::Sound => "sound",
            Standing::Unsound => "unsound",
            Standing::Undecided => "undecided",
        };
        let first = verdict.findings.first().map_or_else(|| "-".to_owned(), |finding| told(program, finding));
        *seen.entry(standing.to_owned()).or_default() += 1;
        if (standing, first.as_str()) != (head("expect").as_str(), head("first").as_str()) {
            let all: Vec<String> = verdict.findings.iter().map(|f| f.message(program)).collect();
            wrong.push(format!("{}: {standing}, first: {first}\n  {}", path.display(), all.join("\n  ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen["sound"] >= 8 && seen["unsound"] >= 15, "{seen:?}");
}

/// Kernels as users write them; the head says the verdict and, unless it is sound, the first finding without its
/// statement.
#[test]
fn every_verdict_of_a_kernel_is_the_one_derived_by_hand() {
    let folder = npumem_testing::workspace_root().join("testdata/verdicts/pto");
    let device = catalogue::device("ascend-910b2").unwrap();
    let files = npumem_testing::files_under(&folder, ".pto");
    assert!(files.len() >= 46, "{}", files.len());
    let mut wrong = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let head =
            |key: &str| text.lines().find_map(|line| line.strip_prefix(&format!("// {key}: "))).map(str::to_owned);
        let dims = head("dim")
            .and_then(|dim| Some((dim.split_once('=')?.0.to_owned(), dim.split_once('=')?.1.parse().unwrap())));
        let file =
            kernel::read(&text, &dims.into_iter().collect()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let program = &file.kernels[0].program;
        let verdict = kernel::check(program, &device, false).unwrap();
        let standing = match verdict.standing {
            Standing::Sound => "sound",
            Standing::Unsound => "unsound",
            Standing::Undecided => "undecided",
        };
        let first = verdict.findings.first().map(|finding| told(program, finding));
        let first = first.and_then(|first| Some(first.rsplit_once(' ')?.0.to_owned()));
        let expected = (head("expect").unwrap(), head("first"));
        // Words of the first finding's message.
        let message = verdict.findings.first().map(|finding| finding.message(program)).unwrap_or_default();
        let mut words = text.lines().filter_map(|line| line.strip_prefix("// told: "));
        let all_told = words.all(|words| message.contains(words));
        if standing != expected.0 || expected.1.is_some() && first != expected.1 || !all_told {
            let all: Vec<String> = verdict.findings.iter().map(|f| f.message(program)).collect();
            wrong.push(format!("{}: {standing}, first: {first:?}\n  {}", path.display(), all.join("\n  ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
