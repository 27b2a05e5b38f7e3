//! `npumem run --on`: a plan on real memory.

use super::args::{EffortArg, OnArg, RunArgs, StrategyArg};
use super::output::{self, Color};
use super::resolve::{self, Capacities};
use super::{Answer, Outcome, interrupt, plan, real};
use npumem::execute::{self, Prepared};
use npumem::ir::Bytes;
use npumem::model::ModelRequest;
use npumem::open::{self, Opened};
use npumem::plan::Fit;
use npumem::report::plan_report::Extras;

/// Runs it where `on` says.
pub fn on_real_memory(args: &RunArgs, on: OnArg, color: Color) -> Outcome {
    let mut input = open::open(&args.input).map_err(|error| error.to_string())?;
    let text = input.text();
    if input.format == npumem::Format::Pto || npumem::kernel::is_program_text(&text) {
        return Err(format!(
            "{}: is a kernel; --on runs models and placement problems (a kernel runs on the simulator: npumem run without --on)",
            args.input.display()
        ));
    }
    drop(text);
    let progress = interrupt::Progress::start("running");
    let prepared = if input.is_graph() { of_graph(&mut input, args)? } else { of_buffers(&input, args)? };
    let needed = prepared.task.memory().map_err(|error| error.to_string())?;
    let (mut device, name) = real::open(on, needed)?;
    if on != OnArg::Cuda {
        check_reference(&prepared, needed)?;
    }
    let outcome = execute::execute(device.as_mut(), &prepared)
        .map_err(|error| format!("{}: --on {}: {error}", args.input.display(), real::word(on)))?;
    drop(progress);
    if args.json {
        output::print(&format!("{:#}\n", execute::to_json(&prepared, &outcome, &name)));
    } else {
        output::print(&execute::to_text(&prepared, &outcome, &name, color.on_stdout()));
    }
    Ok(if outcome.differs { Answer::No } else { Answer::Yes })
}

/// The most operations that a run may have: about a minute on one core, three times.
const MOST_WORK: u64 = 200_000_000_000;

fn check_reference(prepared: &Prepared, needed: Bytes) -> Result<(), String> {
    let work = prepared.task.work();
    if work > MOST_WORK {
        return Err(format!(
            "{}: {:.0} Gop would take minutes on this CPU, where each run is done three times and compared with a plain \
             reference (at most {:.0} Gop): bind smaller dimensions with --dim",
            prepared.name,
            work as f64 / 1e9,
            MOST_WORK as f64 / 1e9
        ));
    }
    let _ = needed;
    Ok(())
}

fn of_graph(input: &mut Opened, args: &RunArgs) -> Result<Prepared, String> {
    let device = resolve::device(&args.device)?;
    let (onnx_options, model_options) = plan::model_options(&args.dim, &args.real.shape, StrategyArg::Static)?;
    let mut model = input.graph(&onnx_options).map_err(|error| error.to_string())?;
    model.graph.name = input.name();
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", args.input.display());
    let request = ModelRequest {
        model: model_options,
        placement: resolve::placement(EffortArg::Normal, None, 0, 2, &[])?,
        goals: Vec::new(),
        capacity: Capacities::parse(&args.real.capacity)?.for_main(&device)?,
    };
    let plan = match &args.real.plan {
        Some(path) => {
            let problem = npumem::model::problem_of(&model, &device, &request.model, request.capacity);
            let problem = problem.map_err(|error| failed(&error))?;
            let plan = open::open(path).and_then(|opened| opened.plan(input, &problem));
            Some(plan.map_err(|error| error.to_string())?)
        }
        None => None,
    };
    execute::of_model(&model, &device, &request, plan).map_err(|error| failed(&error))
}

fn of_buffers(input: &Opened, args: &RunArgs) -> Result<Prepared, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", args.input.display());
    if input.is_plan() {
        return Err(failed(&"is a plan; give its problem or model first: npumem run INPUT PLAN --on host"));
    }
    let capacities = Capacities::parse(&args.real.capacity)?;
    let (problem, plan) = match &args.real.plan {
        Some(path) => {
            let mut problem = input.problem_without_offsets().map_err(|error| error.to_string())?;
            capacities.apply(&mut problem)?;
            let plan = open::open(path).and_then(|opened| opened.plan(input, &problem));
            (problem, plan.map_err(|error| error.to_string())?)
        }
        None => match input.problem_and_plan() {
            Ok(both) => both,
            // A problem alone: it is planned first.
            Err(_) => {
                let mut problem = input.problem().map_err(|error| error.to_string())?;
                capacities.apply(&mut problem)?;
                let placement = resolve::placement(EffortArg::Normal, None, 0, 2, &[])?;
                let cancel = Some(interrupt::flag());
                let planned = npumem::plan::plan_problem(problem, None, &placement, Extras::default(), cancel);
                let planned = planned.map_err(|error| failed(&error))?;
                if planned.fit != Fit::Yes {
                    return Err(failed(&"no plan within the capacity: see npumem plan"));
                }
                (planned.problem, planned.placement.plan)
            }
        },
    };
    if let Some(error) = problem.validate().first() {
        return Err(failed(error));
    }
    execute::of_problem(&problem, &plan).map_err(|error| failed(&error))
}
