//! `npumem check` on kernels: one or many, files and folders, as text, JSON, SARIF or annotations.

use super::{dims, sarif};
use crate::cli::args::{CheckArgs, DeviceArgs};
use crate::cli::output::{self, Color};
use crate::cli::{Answer, Outcome, resolve};
use npumem::check_program::{At, Finding, ProgramVerdict, Severity, Standing};
use npumem::ir::program::Program;
use npumem::ir::{Device, Plan};
use npumem::{kernel, report};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Deepest folder that is looked into.
const MAX_DEPTH: usize = 64;

/// What one kernel of one file came to.
pub struct Checked {
    /// The file.
    pub path: PathBuf,
    /// The program that was checked.
    pub program: Program,
    /// The device.
    pub device: String,
    /// The verdict.
    pub verdict: ProgramVerdict,
    /// What is to be said of the plan beside it.
    pub notes: Vec<String>,
}

/// Whether `check` was called on kernels: folders, `.pto` files, program texts.
pub fn is_kernel_call(inputs: &[PathBuf]) -> bool {
    inputs.first().is_some_and(|first| first.is_dir() || is_kernel(first))
}

fn is_kernel(path: &Path) -> bool {
    if path.extension().is_some_and(|ending| ending == "pto" || ending == "npumem") {
        return true;
    }
    // Our own text form, or the dialect under another name.
    let opened = path.is_file().then(|| npumem::open::open(path).ok()).flatten();
    opened.is_some_and(|opened| opened.format == npumem::Format::Pto || kernel::is_program_text(&opened.text()))
}

/// The device that was named; without a name, the kernel's own target, then the default.
pub fn device(args: &DeviceArgs, target: Option<&str>) -> Result<Device, String> {
    if args.device.is_none()
        && let Some(target) = target
    {
        // Devices of the caller's own come first, under the name that the kernel itself uses or under ours.
        let known = resolve::catalogue(args)?;
        for name in [target.to_owned(), kernel::target_name(target)] {
            if let Ok(device) = known.resolve(&name) {
                return Ok(device);
            }
        }
    }
    resolve::device(args)
}

/// Checks every kernel that the arguments name.
pub fn run(args: &CheckArgs, color: Color) -> Outcome {
    // What a kernel has no use for is refused: a gate that drops a limit would let pass what breaks it.
    if !args.capacity.is_empty() {
        return Err("--capacity: a kernel's capacities are the device's; name another --device".into());
    }
    if !args.shape.is_empty() {
        return Err("--shape: a kernel has no tensors of a model; its arguments are bound with --dim NAME=N".into());
    }
    let (files, plan) = inputs(&args.inputs)?;
    let dims = dims(&args.dim)?;
    let (mut checked, mut errors) = (Vec::new(), Vec::new());
    if args.against.is_some() && (files.len() != 1 || plan.is_some()) {
        return Err("--against: expected one planned kernel, and no plan beside it".into());
    }
    let mut names = BTreeSet::new();
    for path in &files {
        match check_file(args, path, plan.as_deref(), &dims, &mut checked) {
            Ok(found) => names.extend(found),
            Err(error) => errors.push((path.clone(), error)),
        }
    }
    if files.is_empty() {
        let named: Vec<String> = args.inputs.iter().map(|path| path.display().to_string()).collect();
        return Err(format!("{}: there is no file with a kernel (.pto, .npumem) in it", named.join(", ")));
    }
    if errors.is_empty() {
        kernel::known_dims(&dims, &names).map_err(|error| format!("--dim: {error}"))?;
    }
    let standing = checked.iter().fold(Standing::Sound, |worst, one| kernel::worse(worst, one.verdict.standing));
    if args.sarif {
        output::print(&format!("{:#}\n", sarif::document(&checked, &errors)));
    } else if args.json {
        output::print(&format!("{:#}\n", document(&files, &checked, &errors, standing)));
    } else {
        output::print(&told(args, &files, &checked, &errors, color));
    }
    if args.annotations || std::env::var_os("GITHUB_ACTIONS").is_some() {
        // On standard output, where the service reads them; beside JSON they would spoil it.
        if !(args.json || args.sarif) {
            output::print(&sarif::annotations(&checked, &errors));
        }
    }
    match (errors.is_empty(), standing) {
        (false, _) => {
            let list: Vec<String> = errors.iter().map(|(_, error)| error.clone()).collect();
            Err(list.join("\nnpumem: "))
        }
        (true, Standing::Unsound) => Ok(Answer::No),
        (true, Standing::Undecided) => Ok(Answer::Undecided),
        (true, Standing::Sound) => Ok(Answer::Yes),
    }
}

/// Files to check, and the plan when the second of two inputs is one.
fn inputs(named: &[PathBuf]) -> Result<(Vec<PathBuf>, Option<PathBuf>), String> {
    let (mut files, mut plan) = (Vec::new(), None);
    for path in named {
        if path.is_dir() {
            folder(path, &mut files)?;
        } else if is_kernel(path) {
            files.push(path.clone());
        } else if !path.exists() {
            return Err(format!("{}: there is no such file or folder", path.display()));
        } else if plan.is_none() && named.len() == 2 {
            plan = Some(path.clone());
        } else {
            return Err(format!("{}: is not a kernel; a plan may follow one kernel", path.display()));
        }
    }
    Ok((files, plan))
}

fn folder(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let mut pending = vec![(path.to_path_buf(), 0)];
    let first = files.len();
    while let Some((folder, depth)) = pending.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for entry in entries {
            let entry = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
            // A link to a folder may lead in a circle.
            if entry.is_dir() && !entry.is_symlink() && depth < MAX_DEPTH {
                pending.push((entry, depth + 1));
            } else if entry.extension().is_some_and(|ending| ending == "pto" || ending == "npumem") {
                files.push(entry);
            }
        }
    }
    files[first..].sort();
    Ok(())
}

/// An error with the file, and line and column where it has them.
fn placed(path: &Path, error: &kernel::KernelError) -> String {
    match error {
        kernel::KernelError::Pto(e) => format!("{}:{}:{}: {}", path.display(), e.line, e.column, e.problem),
        kernel::KernelError::Text(e) => format!("{}:{}:{}: {}", path.display(), e.line, e.column, e.problem),
        _ => format!("{}: {error}", path.display()),
    }
}

/// A `.pto` kernel that names no target and moves from the accumulator to the vector core's memory, as only the later
/// family does, is one of the later family.
fn with_links(file: &kernel::KernelFile, default: Device) -> Device {
    let mut later = false;
    for one in file.kernels.iter().filter(|_| file.is_pto) {
        match kernel::moves_past_links(&one.program, &default) {
            Some(moves) => later |= moves,
            None => return default,
        }
    }
    kernel::target_device("a5").filter(|_| later).unwrap_or(default)
}

/// The kernel before planning that goes with this planned one: the only one, or the one of its name.
fn before_planning<'f>(
    file: &'f kernel::KernelFile,
    path: &Path,
    planned: &Program,
    alone: bool,
) -> Result<&'f Program, String> {
    let of_name = file.kernels.iter().find(|kernel| kernel.program.name == planned.name);
    let only = file.kernels.first().filter(|_| alone && file.kernels.len() == 1);
    let found = of_name.or(only).map(|kernel| &kernel.program);
    found.ok_or_else(|| format!("{}: there is no kernel '{}' in it", path.display(), planned.name))
}

fn check_file(
    args: &CheckArgs,
    path: &Path,
    plan: Option<&Path>,
    dims: &std::collections::BTreeMap<String, i64>,
    checked: &mut Vec<Checked>,
) -> Result<BTreeSet<String>, String> {
    let opened = npumem::open::open(path).map_err(|error| error.to_string())?;
    let place = |error: kernel::KernelError| placed(path, &error);
    let mut file = kernel::read_some(&opened.text(), dims).map_err(place)?;
    let mut names = std::mem::take(&mut file.dims);
    if file.kernels.is_empty() {
        // An empty or cut-off file must not pass a gate.
        return Err(format!("{}:1:1: there is no function with a body in it", path.display()));
    }
    let mut device = device(&args.device, file.target.as_deref())?;
    if args.device.device.is_none() && file.target.is_none() && file.is_pto {
        device = with_links(&file, device);
    }
    let plans = plan.map(read_plans).transpose()?;
    if let Some(plans) = &plans
        && plans.len() != file.kernels.len()
    {
        return Err(format!("{}: {} kernels, but the plan has {}", path.display(), file.kernels.len(), plans.len()));
    }
    let before = match &args.against {
        Some(path) => {
            let opened = npumem::open::open(path).map_err(|error| error.to_string())?;
            let before = kernel::read_some(&opened.text(), dims).map_err(|error| placed(path, &error))?;
            names.extend(before.dims.iter().cloned());
            Some((path, before))
        }
        None => None,
    };
    for (index, one) in file.kernels.iter().enumerate() {
        let mut notes = file.notes.clone();
        let program = match (&plans, &before) {
            (Some(plans), _) => {
                let (program, said) = kernel::with_plan(&one.program, &plans[index], &device).map_err(place)?;
                notes.extend(said);
                program
            }
            (None, Some((path, before))) => {
                let unplanned = before_planning(before, path, &one.program, file.kernels.len() == 1)?;
                kernel::with_addresses_of(unplanned, &one.program).map_err(place)?
            }
            (None, None) => one.program.clone(),
        };
        let separate = plans.is_some() || before.is_some();
        let verdict = kernel::check(&program, &device, separate).map_err(place)?;
        checked.push(Checked { path: path.to_path_buf(), program, device: device.name.clone(), verdict, notes });
    }
    Ok(names)
}

/// A plan, or the list of plans that `plan -o plans.json` writes for several kernels.
fn read_plans(path: &Path) -> Result<Vec<Plan>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    let say = |error: String| format!("{}: {error}", path.display());
    if let Ok(Value::Object(map)) = serde_json::from_str::<Value>(&text)
        && map.get("format").and_then(Value::as_str) == Some("npumem-kernel-plans")
    {
        let list = map.get("plans").and_then(Value::as_array).cloned().unwrap_or_default();
        return list
            .iter()
            .map(|plan| Plan::from_json(&plan.to_string()).map_err(|error| say(error.to_string())))
            .collect();
    }
    if text.trim_start().starts_with('{') {
        return Plan::from_json(&text).map(|plan| vec![plan]).map_err(|error| say(error.to_string()));
    }
    Plan::from_text(&text).map(|plan| vec![plan]).map_err(|error| say(error.to_string()))
}

pub fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::Sound => "sound",
        Standing::Unsound => "unsound",
        Standing::Undecided => "undecided",
    }
}

pub fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Fault => "fault",
        Severity::Doubt => "doubt",
        Severity::Warning => "warning",
    }
}

fn told(
    args: &CheckArgs,
    files: &[PathBuf],
    checked: &[Checked],
    errors: &[(PathBuf, String)],
    color: Color,
) -> String {
    let mut out = String::new();
    for one in checked {
        let standing = one.verdict.standing;
        let good = standing == Standing::Sound;
        let word = report::text::verdict_word(&word(standing).to_uppercase(), good, color.on_stdout());
        let planned = if one.program.is_planned() { "" } else { ", not planned: every buffer has bytes of its own" };
        let _ = writeln!(out, "{word}: {}: {} (device {}{planned})", one.path.display(), one.program.name, one.device);
        let shown = if args.top == 0 { usize::MAX } else { args.top };
        for finding in one.verdict.findings.iter().take(shown) {
            let again = if finding.again == 0 { String::new() } else { format!(" (and {} times more)", finding.again) };
            let message = finding.message(&one.program);
            let message = report::text::printable(&message);
            let _ = writeln!(out, "  {} {}: {message}{again}", severity(finding.severity), finding.kind.word());
        }
        for note in &one.notes {
            let _ = writeln!(out, "  note: {note}");
        }
        if one.verdict.findings.len() > shown {
            let _ = writeln!(out, "  ... and {} more (--top 0 shows all)", one.verdict.findings.len() - shown);
        }
    }
    if files.len() > 1 {
        let count = |standing| checked.iter().filter(|one| one.verdict.standing == standing).count();
        let _ = writeln!(
            out,
            "{} files, {} kernels: {} sound, {} unsound, {} undecided, {} files with errors",
            files.len(),
            checked.len(),
            count(Standing::Sound),
            count(Standing::Unsound),
            count(Standing::Undecided),
            errors.len()
        );
    }
    out
}

fn document(files: &[PathBuf], checked: &[Checked], errors: &[(PathBuf, String)], standing: Standing) -> Value {
    let verdict = if errors.is_empty() { word(standing) } else { "error" };
    json!({
        "format": "npumem-kernel-check",
        "version": 1,
        "verdict": verdict,
        "files": files.len(),
        "kernels": checked.iter().map(kernel_json).collect::<Vec<_>>(),
        "errors": errors.iter().map(|(path, error)| json!({"file": path.display().to_string(), "error": error})).collect::<Vec<_>>(),
    })
}

fn kernel_json(one: &Checked) -> Value {
    json!({
        "file": one.path.display().to_string(),
        "kernel": one.program.name,
        "device": one.device,
        "planned": one.program.is_planned(),
        "verdict": word(one.verdict.standing),
        "findings": one.verdict.findings.iter().map(|finding| finding_json(&one.program, finding)).collect::<Vec<_>>(),
        "truncated": one.verdict.truncated,
        "statements_run": one.verdict.work,
        "notes": one.notes,
    })
}

fn at_json(program: &Program, at: &At) -> Value {
    let turns =
        at.turns.iter().map(|(counter, value)| json!({"counter": program.scalar(*counter).name, "value": value}));
    let rounds = at.rounds.iter().map(|(step, turn)| json!({"statement": step.0, "turn": turn}));
    let branches = at.branches.iter().map(|(step, taken)| json!({"statement": step.0, "first": taken}));
    json!({
        "statement": at.step.0,
        "line": program.line(at.step),
        "turns": turns.collect::<Vec<_>>(),
        "rounds": rounds.collect::<Vec<_>>(),
        "branches": branches.collect::<Vec<_>>(),
    })
}

/// A finding with its buffers, bytes, statements and trace.
pub fn finding_json(program: &Program, finding: &Finding) -> Value {
    use npumem::check_program::Kind;
    let names: Vec<&str> = finding.kind.buffers().iter().map(|id| program.buffer(*id).name.as_str()).collect();
    let mut value = json!({
        "kind": finding.kind.word(),
        "severity": severity(finding.severity),
        "message": finding.message(program),
        "buffers": names,
        "again": finding.again,
    });
    if !finding.example.is_empty() {
        let named = finding.example.iter().map(|(id, number)| (program.scalar(*id).name.clone(), json!(number)));
        value["example"] = Value::Object(named.collect());
    }
    if let Some(bytes) = finding.kind.bytes() {
        value["bytes"] = json!({"start": bytes.start.0, "end": bytes.end.0, "size": bytes.size().0});
    }
    if let Some(step) = finding.kind.step() {
        value["statement"] = json!(step.0);
        value["line"] = json!(program.line(step));
    }
    match &finding.kind {
        Kind::Overwritten { written, overwritten, read, .. } => {
            value["written"] = written.as_ref().map_or(Value::Null, |at| at_json(program, at));
            value["overwritten"] = at_json(program, overwritten);
            value["read"] = at_json(program, read);
        }
        Kind::Foreign { read, .. }
        | Kind::NeverWritten { read, .. }
        | Kind::Torn { read, .. }
        | Kind::OwnInput { read, .. } => {
            value["read"] = at_json(program, read);
        }
        Kind::Race { first, second, .. } => {
            value["first"] = at_json(program, first);
            value["second"] = at_json(program, second);
        }
        Kind::Deadlock { at, .. } => value["at"] = at_json(program, at),
        _ => {}
    }
    value
}
