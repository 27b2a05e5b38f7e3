//! `npumem run`: a kernel on the simulator.

use super::args::{DetailArg, OrderArg, RunArgs};
use super::output::{self, Color};
use super::{Answer, Outcome};
use npumem::kernel::{self, KernelError, KernelFile};
use npumem::report::text::TextOptions;
use npumem::report::{RunReport, run_report};
use npumem::simulate::{Request, ValuesRequest, simulate};
use npumem::simulator::{Detail, Options, Order};
use std::path::Path;

/// Runs it.
pub fn run(args: &RunArgs, color: Color) -> Outcome {
    if let Some(on) = args.real.on {
        return super::execute::on_real_memory(args, on, color);
    }
    let file = read(&args.input, &args.dim)?;
    let device = super::kernel::device(&args.device, file.target.as_deref())?;
    let chosen: Vec<_> =
        file.kernels.iter().filter(|one| args.kernel.as_ref().is_none_or(|name| one.program.name == *name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = file.kernels.iter().map(|one| one.program.name.as_str()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(format!("{}: there is no such kernel to run; it has {names}", args.input.display()));
    }
    if chosen.len() > 1
        && (args.values
            || args.perfetto.is_some()
            || args.report.is_some()
            || !args.input_file.is_empty()
            || !args.output.is_empty())
    {
        return Err(format!(
            "{}: has {} kernels; values and pictures are of one: --kernel NAME",
            args.input.display(),
            chosen.len()
        ));
    }
    check_files(args)?;
    let request = request(args)?;
    let mut reports = Vec::new();
    for one in chosen {
        let done = simulate(&one.program, &device, &request, &file.notes)
            .map_err(|error| format!("{}: {}: {error}", args.input.display(), one.program.name))?;
        if let (Some(path), Some(timeline)) = (&args.perfetto, &done.timeline) {
            output::write_whole(path, timeline.to_perfetto().as_bytes())?;
        }
        if let (Some(path), Some(timeline)) = (&args.report, &done.timeline) {
            output::write_whole(path, run_report::page(&done.report, timeline).as_bytes())?;
        }
        for (name, path) in pairs("--output", &args.output)? {
            if let Some(bytes) = done.outputs.get(&name) {
                output::write_whole(Path::new(&path), bytes)?;
            }
        }
        reports.push(done.report);
    }
    tell(args, &reports, color)?;
    Ok(answer(&reports))
}

/// No output takes the place of another file of the call.
fn check_files(args: &RunArgs) -> Result<(), String> {
    let (given, wanted) = (pairs("--input", &args.input_file)?, pairs("--output", &args.output)?);
    let mut read = vec![("the kernel", Some(args.input.as_path()))];
    read.extend(given.iter().map(|(_, path)| ("--input", Some(Path::new(path)))));
    let mut written = vec![("--perfetto", args.perfetto.as_deref()), ("--report", args.report.as_deref())];
    written.extend(wanted.iter().map(|(_, path)| ("--output", Some(Path::new(path)))));
    written.iter().try_for_each(|(_, path)| output::check_writable(*path))?;
    output::check_distinct(&read, &written)
}

fn read(path: &Path, dims: &[String]) -> Result<KernelFile, String> {
    let opened = npumem::open::open(path).map_err(|error| error.to_string())?;
    let text = opened.text();
    if opened.format != npumem::Format::Pto && !kernel::is_program_text(&text) {
        return Err(format!("{}: is not a kernel: expected .pto or npumem's program text", path.display()));
    }
    kernel::read(&text, &super::kernel::dims(dims)?).map_err(|error| match &error {
        KernelError::Pto(e) => format!("{}:{}:{}: {}", path.display(), e.line, e.column, e.problem),
        KernelError::Text(e) => format!("{}:{}:{}: {}", path.display(), e.line, e.column, e.problem),
        _ => format!("{}: {error}", path.display()),
    })
}

/// `NAME=VALUE`, once for each.
fn pairs(option: &str, arguments: &[String]) -> Result<Vec<(String, String)>, String> {
    let one = |argument: &String| {
        let (name, value) =
            argument.split_once('=').ok_or_else(|| format!("{option} {argument}: expected NAME=VALUE"))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    arguments.iter().map(one).collect()
}

/// What values are computed from, when they are asked for.
fn values(args: &RunArgs) -> Result<Option<ValuesRequest>, String> {
    if !args.values && args.input_file.is_empty() && args.output.is_empty() {
        return Ok(None);
    }
    let mut request = ValuesRequest { seed: args.seed, ..ValuesRequest::default() };
    for (name, path) in pairs("--input", &args.input_file)? {
        let file = std::fs::read(&path).map_err(|error| format!("--input {name}={path}: {error}"))?;
        request.inputs.insert(name, file);
    }
    for (name, value) in pairs("--real", &args.real_value)? {
        let number = value.parse().map_err(|_| format!("--real {name}={value}: expected a number"))?;
        request.reals.insert(name, number);
    }
    Ok(Some(request))
}

fn request(args: &RunArgs) -> Result<Request, String> {
    let order = match args.order {
        OrderArg::Auto => Order::Auto,
        OrderArg::Ranges => Order::Ranges,
        OrderArg::Program => Order::Program,
    };
    let options = Options {
        blocks: args.blocks,
        cores: args.cores,
        order,
        detail: match args.detail {
            DetailArg::Fast => Detail::Fast,
            DetailArg::Detailed => Detail::Detailed,
        },
        queue_depth: args.queue as usize,
        max_steps: args.max_steps,
    };
    let outputs = pairs("--output", &args.output)?.into_iter().map(|(name, _)| name).collect();
    let (advice, values) = (args.advice.then_some(true), values(args)?);
    Ok(Request {
        options,
        advice,
        sanitize: args.sanitize,
        values,
        outputs,
        timeline: args.perfetto.is_some() || args.report.is_some(),
    })
}

fn tell(args: &RunArgs, reports: &[RunReport], color: Color) -> Result<(), String> {
    if args.json {
        let one = |report: &RunReport| report.to_json().map_err(|error| error.to_string());
        let text = match reports {
            [report] => one(report)?,
            _ => {
                let list: Vec<String> = reports.iter().map(one).collect::<Result<_, String>>()?;
                format!("{{\"format\": \"npumem-runs\", \"version\": 1, \"runs\": [{}]}}", list.join(",\n"))
            }
        };
        output::print(&format!("{text}\n"));
        return Ok(());
    }
    let rows = if args.top == 0 { usize::MAX } else { args.top };
    let options = TextOptions { width: output::width(), colour: color.on_stdout(), rows };
    let texts: Vec<String> = reports.iter().map(|report| run_report::render(report, &options)).collect();
    output::print(&texts.join("\n"));
    Ok(())
}

fn answer(reports: &[RunReport]) -> Answer {
    let faults = |report: &RunReport| report.sanitizer.as_ref().is_some_and(|found| found.faults > 0);
    if reports.iter().any(|report| report.end == "deadlock" || faults(report)) {
        Answer::No
    } else if reports.iter().any(|report| report.end != "complete") {
        Answer::Undecided
    } else {
        Answer::Yes
    }
}
