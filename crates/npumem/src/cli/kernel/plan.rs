//! `npumem plan kernel.pto`.

use super::dims;
use crate::cli::args::PlanArgs;
use crate::cli::output::{self, Color};
use crate::cli::{Answer, Outcome, interrupt, resolve};
use npumem::ir::program::Role;
use npumem::kernel::{self, KernelPlan};
use npumem::plan::Fit;
use npumem::report::{html, text};
use serde_json::json;
use std::path::Path;

/// Plans every kernel of a file.
pub fn run(args: &PlanArgs, path: &Path, source: &str, color: Color) -> Outcome {
    let say = |error: kernel::KernelError| format!("{}: {error}", path.display());
    if !args.capacity.is_empty() {
        return Err("--capacity: a kernel's capacities are the device's; name another --device".into());
    }
    let file = kernel::read(source, &dims(&args.dim)?).map_err(say)?;
    let device = super::check::device(&args.device, file.target.as_deref())?;
    let placement = resolve::placement(args.effort, args.budget, args.seed, args.threads, &args.without)?;
    if file.kernels.is_empty() {
        return Err(format!("{}:1:1: there is no function with a body in it", path.display()));
    }
    if let Some(output) = &args.output {
        form_of(output, file.is_pto)?;
    }
    let mut plans = Vec::new();
    for one in &file.kernels {
        let cancel = Some(interrupt::flag());
        plans.push(kernel::plan(&one.program, &device, &placement, &file.notes, cancel).map_err(say)?);
    }
    let fits = plans.iter().all(|plan| plan.planned.fit == Fit::Yes);
    if let Some(output) = &args.output
        && fits
    {
        write_plans(output, source, &file, &plans).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if let Some(report) = &args.report {
        let [plan] = plans.as_slice() else {
            return Err(format!("--report: {} has {} kernels; a page shows one", path.display(), plans.len()));
        };
        let page = html::render(&plan.planned.report).map_err(|error| error.to_string())?;
        output::write_whole(report, page.as_bytes())?;
    }
    let quiet = fits && args.output.as_deref().is_some_and(|path| path.as_os_str() == "-");
    if args.json && !quiet {
        output::print(&format!("{}\n", reports_json(&plans)?));
    } else if !quiet {
        let rows = if args.top == 0 { usize::MAX } else { args.top };
        let options = text::TextOptions { width: output::width(), colour: color.on_stdout(), rows };
        for plan in &plans {
            output::print(&text::render(&plan.planned.report, &options));
            output::print(&buffers(plan));
        }
    }
    if let Some(output) = args.output.as_ref().filter(|_| !fits) {
        output::complain(&format!("npumem: {}: not written, as not every kernel fits", output.display()));
    }
    for plan in &plans {
        // Where no report is seen, too: what is written would not run right.
        if let Some(text) = kernel::own_faults_text(&plan.own_faults) {
            output::complain(&format!("npumem: {}: {}: {text}", path.display(), plan.program.name));
        }
    }
    let undecided = plans.iter().any(|plan| plan.planned.fit == Fit::Undecided);
    Ok(match (fits, plans.iter().any(|plan| plan.planned.fit == Fit::No), undecided) {
        (true, ..) => Answer::Yes,
        (_, true, _) => Answer::No,
        _ => Answer::Undecided,
    })
}

/// A form of a kernel's plan.
#[derive(PartialEq, Eq)]
enum Form {
    Json,
    /// The kernel's own text, with its addresses.
    Source,
}

/// The form that the ending of a file's name asks for; a name without one gets the kernel's own text.
fn form_of(output: &Path, is_pto: bool) -> Result<Form, String> {
    let ending = output.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    let source = if is_pto { ["pto", "mlir"] } else { ["npumem", "txt"] };
    match ending.as_deref() {
        Some("json") => Ok(Form::Json),
        None => Ok(Form::Source),
        Some(ending) if source.contains(&ending) => Ok(Form::Source),
        Some(ending) => Err(format!(
            "{}: a kernel's plan is not written as '.{ending}': name it .json (the plan), or .{} (the kernel with its addresses)",
            output.display(),
            source[0]
        )),
    }
}

/// The plans in the form that the file's name asks for.
fn write_plans(output: &Path, source: &str, file: &kernel::KernelFile, plans: &[KernelPlan]) -> Result<(), String> {
    let content = if form_of(output, file.is_pto)? == Form::Json {
        plans_json(plans)
    } else if source.contains('\u{fffd}') {
        // What is not UTF-8 was replaced on reading, and would not come back as it was.
        return Err("is not UTF-8 text, so its addresses cannot be written back; -o FILE.json writes the plan".into());
    } else {
        kernel::write_back(file, plans).map_err(|error| error.to_string())?
    };
    output::write_whole(output, content.as_bytes())
}

/// Every buffer, hidden ones too, by space and address.
fn buffers(plan: &KernelPlan) -> String {
    use std::fmt::Write as _;
    let mut rows: Vec<_> = plan
        .addresses
        .iter()
        .map(|(id, offset)| {
            let buffer = plan.program.buffer(*id);
            (buffer.space.clone(), offset.0, buffer)
        })
        .collect();
    rows.sort_by(|a, b| (&a.0, a.1, &a.2.name).cmp(&(&b.0, b.1, &b.2.name)));
    let mut out = format!("\nBuffers of {}\n", plan.program.name);
    for (space, offset, buffer) in rows {
        let size = buffer.total_bytes().unwrap_or(0);
        let slots = if buffer.slots == 1 { String::new() } else { format!("  {} slots", buffer.slots) };
        let kind = match (buffer.fixed, buffer.role) {
            (true, _) => "  hidden: bytes that the kernel library takes",
            (_, Role::Workspace) => "  workspace",
            (_, Role::Queue) => "  queue",
            _ => "",
        };
        let _ = writeln!(out, "  {space:<8} [{offset:>7}, {:>7})  {}{slots}{kind}", offset + size, buffer.name);
    }
    out
}

/// One plan as itself, several as a list by kernel.
fn plans_json(plans: &[KernelPlan]) -> String {
    match plans {
        [plan] => plan.planned.placement.plan.to_json(),
        _ => {
            let list: Vec<serde_json::Value> = plans
                .iter()
                .filter_map(|plan| serde_json::from_str(&plan.planned.placement.plan.to_json()).ok())
                .collect();
            format!("{:#}\n", json!({"format": "npumem-kernel-plans", "version": 1, "plans": list}))
        }
    }
}

fn reports_json(plans: &[KernelPlan]) -> Result<String, String> {
    let one = |plan: &KernelPlan| plan.planned.report.to_json().map_err(|error| error.to_string());
    match plans {
        [plan] => one(plan),
        _ => {
            let mut list = Vec::new();
            for plan in plans {
                let value: serde_json::Value = serde_json::from_str(&one(plan)?).map_err(|error| error.to_string())?;
                list.push(value);
            }
            Ok(format!("{:#}", json!({"format": "npumem-kernel-reports", "version": 1, "reports": list})))
        }
    }
}
