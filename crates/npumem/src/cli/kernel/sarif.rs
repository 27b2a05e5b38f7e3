//! Findings for other tools: SARIF 2.1.0, and the annotation lines of GitHub's runners.

use super::check::{Checked, finding_json, severity};
use npumem::check_program::{Finding, Severity};
use npumem::ir::program::Program;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Line of the source that a finding points at; the buffer's own when it has no statement.
fn line(program: &Program, finding: &Finding) -> u32 {
    let of_step = finding.kind.step().map_or(0, |step| program.line(step));
    if of_step != 0 {
        return of_step;
    }
    finding.kind.buffers().first().map_or(0, |id| program.buffer(*id).line)
}

/// The SARIF document of a check.
pub fn document(checked: &[Checked], errors: &[(PathBuf, String)]) -> Value {
    let mut rules = BTreeSet::new();
    let mut results = Vec::new();
    for one in checked {
        for finding in &one.verdict.findings {
            rules.insert(finding.kind.word());
            let level = match finding.severity {
                Severity::Fault => "error",
                Severity::Doubt => "warning",
                Severity::Warning => "note",
            };
            results.push(json!({
                "ruleId": finding.kind.word(),
                "level": level,
                "message": {"text": format!("{}: {}", one.program.name, finding.message(&one.program))},
                "locations": [location(&one.path, line(&one.program, finding), 1)],
                "properties": finding_json(&one.program, finding),
            }));
        }
    }
    for (path, error) in errors {
        rules.insert("unreadable");
        let (line, column) = place(path, error);
        results.push(json!({
            "ruleId": "unreadable",
            "level": "error",
            "message": {"text": error},
            "locations": [location(path, line, column)],
        }));
    }
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "npumem",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": "https://github.com/npumem/npumem",
                "rules": rules.into_iter().map(|rule| json!({"id": rule})).collect::<Vec<_>>(),
            }},
            "results": results,
        }],
    })
}

fn location(path: &Path, line: u32, column: u32) -> Value {
    let uri = path.display().to_string().replace('\\', "/");
    json!({"physicalLocation": {
        "artifactLocation": {"uri": uri},
        "region": {"startLine": line.max(1), "startColumn": column.max(1)},
    }})
}

/// Line and column of an error that says `path:line:column: ...`.
fn place(path: &Path, error: &str) -> (u32, u32) {
    let rest = error.strip_prefix(&path.display().to_string()).and_then(|rest| rest.strip_prefix(':'));
    let mut parts = rest.unwrap_or("").splitn(3, ':');
    let mut number = || parts.next().and_then(|part| part.trim().parse().ok()).unwrap_or(1);
    (number(), number())
}

/// `::error file=...,line=...::message`, one line a finding.
pub fn annotations(checked: &[Checked], errors: &[(PathBuf, String)]) -> String {
    let mut out = String::new();
    let data = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    for one in checked {
        for finding in &one.verdict.findings {
            let level = match severity(finding.severity) {
                "fault" => "error",
                "doubt" => "warning",
                _ => "notice",
            };
            let _ = writeln!(
                out,
                "::{level} file={},line={},title={}::{}",
                property(&one.path.display().to_string()),
                line(&one.program, finding).max(1),
                property(finding.kind.word()),
                data(&finding.message(&one.program))
            );
        }
    }
    for (path, error) in errors {
        let (line, column) = place(path, error);
        let file = property(&path.display().to_string());
        let _ = writeln!(out, "::error file={file},line={line},col={column}::{}", data(error));
    }
    out
}
