//! `npumem plan`: the main job.

use super::args::{PlanArgs, StrategyArg};
use super::output::{self, Color};
use super::resolve::{self, Capacities};
use super::{Answer, Outcome, interrupt};
use npumem::example;
use npumem::ir::{Device, Plan, Problem};
use npumem::model::{self, ModelRequest, plan_model};
use npumem::open::{self, Opened};
use npumem::plan::{Fit, PlanError, Planned, plan_problem};
use npumem::report::plan_report::{Extras, Note};
use npumem::report::{html, text};
use npumem::{Format, ModelOptions, Strategy, dsa, minimalloc, onnx};
use std::path::Path;

/// Runs it.
pub fn run(args: &PlanArgs, color: Color) -> Outcome {
    let device = resolve::device(&args.device)?;
    check_outputs(args)?;
    let mut input = match &args.input {
        Some(path) => open::open(path).map_err(|error| error.to_string())?,
        None => open::open_bytes(example::NAME, example::model()).map_err(|error| error.to_string())?,
    };
    let _progress = interrupt::Progress::start("planning");
    if input.format == Format::Pto || npumem::kernel::is_program_text(&input.text()) {
        return super::kernel::plan(args, &input.path, &input.text(), color);
    }
    if args.tiles {
        return tiles(&mut input, args, &device);
    }
    let planned = if input.is_graph() {
        plan_graph(&mut input, args, &device)?
    } else {
        match plan_buffers(&input, args, &device)? {
            Ok(planned) => planned,
            Err(contradiction) => return Ok(contradicted(&input, args, &contradiction)),
        }
    };
    drop(_progress);
    write_outputs(args, &input, &planned)?;
    let piped = args.output.as_deref().is_some_and(|path| path.as_os_str() == "-");
    let quiet = piped && planned.fit == Fit::Yes;
    if args.json && !quiet {
        let json =
            planned.report.to_json().map_err(|error| format!("the report cannot be written as JSON: {error}"))?;
        output::print(&format!("{json}\n"));
    } else if !quiet {
        let rows = if args.top == 0 { usize::MAX } else { args.top };
        let options = text::TextOptions { width: output::width(), colour: color.on_stdout(), rows };
        output::print(&text::render(&planned.report, &options));
    }
    Ok(match planned.fit {
        Fit::Yes => Answer::Yes,
        Fit::No => Answer::No,
        Fit::Undecided => Answer::Undecided,
    })
}

/// `--tiles`: a schedule for every operator.
fn tiles(input: &mut Opened, args: &PlanArgs, device: &Device) -> Result<Answer, String> {
    if !input.is_graph() {
        return Err(format!("--tiles is for models; {} is a {}", input.path.display(), input.format));
    }
    if args.report.is_some() {
        return Err("--report draws a memory plan; --tiles has none: leave one of them out".to_owned());
    }
    if let Some(path) = args.output.as_deref().filter(|path| path.as_os_str() != "-") {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        if !matches!(ending.as_deref(), Some("json" | "txt")) {
            return Err(format!("{}: tiles are written as .json or .txt", path.display()));
        }
    }
    let (onnx_options, _) = model_options(&args.dim, &args.shape, args.strategy)?;
    let model = input.graph(&onnx_options).map_err(|error| error.to_string())?;
    let all = npumem::tile::model::tiles(&input.name(), &model.graph, device, npumem::tiling::Goal::Time);
    if let Some(path) = &args.output {
        let text = if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("txt")) {
            all.text()
        } else {
            format!("{:#}\n", all.to_json())
        };
        output::write_whole(path, text.as_bytes())?;
    }
    if args.json {
        output::print(&format!("{:#}\n", all.to_json()));
    } else if args.output.as_deref().is_none_or(|path| path.as_os_str() != "-") {
        output::print(&all.text());
    }
    Ok(if all.rows.iter().any(|row| row.schedule.is_ok()) { Answer::Yes } else { Answer::No })
}

/// What would fail after minutes of search is refused before it.
fn check_outputs(args: &PlanArgs) -> Result<(), String> {
    let (input, report) = (args.input.as_deref(), args.report.as_deref());
    // The same rows, or statements, come back with their offsets: `-o` may name such an input.
    let comes_back = |path: &&Path| path.extension().is_some_and(|ending| ending == "csv" || ending == "pto");
    let unlike = input.filter(|path| !comes_back(path));
    output::check_distinct(&[("the input", unlike)], &[("-o", args.output.as_deref()), ("--report", report)])?;
    output::check_distinct(&[("the input", input)], &[("--report", report)])?;
    [&args.output, &args.report].into_iter().try_for_each(|path| output::check_writable(path.as_deref()))
}

/// The ONNX options and the model options that the arguments mean.
pub fn model_options(
    dims: &[String],
    shapes: &[String],
    strategy: StrategyArg,
) -> Result<(onnx::Options, ModelOptions), String> {
    let mut options = onnx::Options { keep_open: strategy != StrategyArg::Static, ..onnx::Options::default() };
    for dim in dims {
        options.bind(dim).map_err(|error| error.to_string())?;
    }
    for shape in shapes {
        options.give_shape(shape).map_err(|error| error.to_string())?;
    }
    // A dimension that nothing bounds is asked for by name, unless the caller wants no plan for it anyway.
    options.keep_open = strategy == StrategyArg::Dynamic;
    let strategy = match strategy {
        StrategyArg::Static => Strategy::Static,
        StrategyArg::Dynamic => Strategy::Dynamic,
        StrategyArg::Hybrid => Strategy::Hybrid,
    };
    let model = ModelOptions { strategy, dims: model::dims(&options), ..ModelOptions::default() };
    Ok((options, model))
}

fn plan_graph(input: &mut Opened, args: &PlanArgs, device: &Device) -> Result<Planned, String> {
    let (onnx_options, model_options) = model_options(&args.dim, &args.shape, args.strategy)?;
    let mut model = input.graph(&onnx_options).map_err(|error| error.to_string())?;
    // The file's own name says more than an exporter's "main_graph".
    model.graph.name = input.name();
    let capacities = Capacities::parse(&args.capacity)?;
    let request = ModelRequest {
        model: model_options,
        placement: resolve::placement(args.effort, args.budget, args.seed, args.threads, &args.without)?,
        goals: resolve::goals(&args.goal),
        capacity: capacities.for_main(device)?,
    };
    plan_model(&model, device, &request, Some(interrupt::flag()))
        .map_err(|error| format!("{}: {error}", input.path.display()))
}

/// A problem that no capacity helps is answered like one that does not fit: no, and why.
fn contradicted(input: &Opened, args: &PlanArgs, why: &PlanError) -> Answer {
    let headline = format!("{} does not fit, whatever the capacity: {why}", input.name());
    if args.json {
        let document = serde_json::json!({
            "format": "npumem-plan-refusal", "version": 1, "problem": input.name(), "fits": false, "headline": headline,
        });
        output::print(&format!("{document}\n"));
    } else {
        output::print(&format!("{headline}\n"));
    }
    if let Some(path) = &args.output {
        output::complain(&format!("npumem: {}: not written, as there is no plan", path.display()));
    }
    Answer::No
}

/// Plans a file of buffers; the inner error is a statement that contradicts itself, which is an answer.
fn plan_buffers(input: &Opened, args: &PlanArgs, device: &Device) -> Result<Result<Planned, PlanError>, String> {
    for (given, option) in [(!args.dim.is_empty(), "--dim"), (!args.shape.is_empty(), "--shape")] {
        if given {
            return Err(format!("{option} is for models; {} is a {}", input.path.display(), input.format));
        }
    }
    let mut problem = input.problem().map_err(|error| error.to_string())?;
    let capacities = Capacities::parse(&args.capacity)?;
    capacities.apply(&mut problem)?;
    let count = problem.buffers.len();
    if !args.goal.is_empty() {
        problem.goals = resolve::goals(&args.goal);
    }
    let placement = resolve::placement(args.effort, args.budget, args.seed, args.threads, &args.without)?;
    let mut notes = Vec::new();
    if count == 0 {
        notes.push(Note::warning("The input holds no buffers: there is nothing to plan."));
    }
    if problem.spaces.iter().any(|space| space.capacity.is_none()) {
        notes.push(Note::info(format!(
            "The input states no capacity and the device ({}) is not asked for one: every plan fits. \
             --capacity BYTES asks whether it does.",
            device.name
        )));
    }
    let extras = Extras { notes, ..Extras::default() };
    // The file states its own spaces: no device bounds them.
    match plan_problem(problem, None, &placement, extras, Some(interrupt::flag())) {
        Ok(planned) => Ok(Ok(planned)),
        Err(error) if error.is_infeasible() => Ok(Err(error)),
        Err(error) => Err(format!("{}: {error}", input.path.display())),
    }
}

fn write_outputs(args: &PlanArgs, input: &Opened, planned: &Planned) -> Result<(), String> {
    if let Some(path) = &args.report {
        let page = html::render(&planned.report).map_err(|error| format!("{}: {error}", path.display()))?;
        output::write_whole(path, page.as_bytes())?;
    }
    if let Some(path) = &args.output {
        if planned.fit != Fit::Yes {
            output::complain(&format!(
                "npumem: {}: not written, as the plan does not keep the capacity ({})",
                path.display(),
                planned.report.headline
            ));
            return Ok(());
        }
        let content = plan_file(path, input, &planned.problem, &planned.placement.plan)?;
        output::write_whole(path, &content)?;
    }
    Ok(())
}

/// The plan in the format that the file's name asks for.
fn plan_file(path: &Path, input: &Opened, problem: &Problem, plan: &Plan) -> Result<Vec<u8>, String> {
    let import = |error: npumem::ImportError| format!("{}: {error}", path.display());
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    match (ending.as_deref(), input.format) {
        (Some("csv"), Format::MinimallocCsv) => minimalloc::add_offsets(input.bytes(), plan).map_err(import),
        (Some("csv"), _) => minimalloc::write(problem, Some(plan)).map_err(import),
        (None, Format::MinimallocCsv) if path.as_os_str() == "-" => {
            minimalloc::add_offsets(input.bytes(), plan).map_err(import)
        }
        (Some("txt" | "plan"), _) => Ok(plan.to_text_with(problem).into_bytes()),
        (Some("json"), Format::DsaProblem) => {
            let solution = dsa::read(input.bytes()).and_then(|document| document.write_solution(plan));
            Ok(solution.map_err(import)?.into_bytes())
        }
        (Some("json"), _) => Ok(plan.to_json().into_bytes()),
        (None, _) if path.as_os_str() == "-" => Ok(plan.to_json().into_bytes()),
        _ => Err(format!("{}: the ending says the format: .csv, .json or .txt", path.display())),
    }
}
