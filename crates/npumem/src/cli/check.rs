//! `npumem check`: is a plan sound?

use super::args::CheckArgs;
use super::output::{self, Color};
use super::plan::model_options;
use super::resolve::{self, Capacities};
use super::{Answer, Outcome};
use npumem::ir::{Plan, Problem};
use npumem::open::{self, Opened};
use npumem::{model, report};
use serde_json::json;
use std::fmt::Write as _;

/// Runs it.
pub fn run(args: &CheckArgs, color: Color) -> Outcome {
    if super::kernel::is_kernel_call(&args.inputs) {
        return super::kernel::check(args, color);
    }
    if args.sarif || args.annotations {
        return Err("--sarif and --annotations are for kernels".into());
    }
    let (problem, plan) = read(args)?;
    let verdict = npumem::check_on(&problem, &plan, &resolve::device(&args.device)?);
    let mut notes = Vec::new();
    if !plan.origin.digest.is_empty() && !made_for(&plan, &problem) {
        notes.push("the plan was made for another statement of this problem (its digest differs): another input, or other options of the model");
    }
    if args.json {
        let document = json!({
            "format": "npumem-check",
            "version": 1,
            "problem": problem.name,
            "device": resolve::device_name(&args.device),
            "verdict": if verdict.is_sound() { "sound" } else { "unsound" },
            "buffers": problem.buffers.len(),
            "residencies": plan.residencies.len(),
            "violations": verdict.violations.iter().map(|one| json!({"what": one.to_string(), "detail": one})).collect::<Vec<_>>(),
            "truncated": verdict.truncated,
            "notes": notes,
        });
        output::print(&format!("{document:#}\n"));
    } else {
        output::print(&told(&problem, &plan, &verdict, &notes, args, color));
    }
    Ok(if verdict.is_sound() { Answer::Yes } else { Answer::No })
}

/// Was the plan made for this problem, at the capacities and for the goals that the plan states? Those of the
/// problem are options of a call; the buffers, their lives and what binds them must be the same.
fn made_for(plan: &Plan, problem: &Problem) -> bool {
    let mut asked = problem.clone();
    if plan.spaces.len() == asked.spaces.len() {
        for (space, used) in asked.spaces.iter_mut().zip(&plan.spaces) {
            space.capacity = used.capacity;
        }
    }
    asked.goals.clone_from(&plan.origin.goals);
    [asked.digest(), problem.digest()].contains(&plan.origin.digest)
}

fn told(
    problem: &Problem,
    plan: &Plan,
    verdict: &npumem::CheckVerdict,
    notes: &[&str],
    args: &CheckArgs,
    color: Color,
) -> String {
    let mut text = String::new();
    let paint = |good: bool, word: &str| report::text::verdict_word(word, good, color.on_stdout());
    let count = verdict.violations.len();
    // Writing to a String cannot fail.
    let _ = if verdict.is_sound() {
        writeln!(
            text,
            "{}: {} buffers of {}, {} residencies, {} moves (device {})",
            paint(true, "SOUND"),
            problem.buffers.len(),
            problem.name,
            plan.residencies.len(),
            plan.moves.len(),
            resolve::device_name(&args.device),
        )
    } else {
        let more = if verdict.truncated { "more than " } else { "" };
        let noun = if count == 1 { "violation" } else { "violations" };
        writeln!(text, "{}: {more}{count} {noun} in the plan of {}", paint(false, "UNSOUND"), problem.name)
    };
    let shown = if args.top == 0 { count } else { args.top.min(count) };
    for violation in &verdict.violations[..shown] {
        let _ = writeln!(text, "  {}: {}", violation.kind(), report::text::printable(&violation.to_string()));
    }
    if shown < count {
        let _ = writeln!(text, "  ... and {} more (--top 0 shows all)", count - shown);
    }
    for note in notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// The problem and the plan that the arguments name.
fn read(args: &CheckArgs) -> Result<(Problem, Plan), String> {
    let (path, plan) = match args.inputs.as_slice() {
        [input] => (input, None),
        [input, plan] => (input, Some(plan)),
        _ => return Err("one problem, and one plan after it; several inputs are for kernels".into()),
    };
    let mut input = open::open(path).map_err(|error| error.to_string())?;
    let capacities = Capacities::parse(&args.capacity)?;
    let Some(plan) = plan else {
        if input.is_plan() {
            return Err(format!(
                "{}: is a plan; give its problem first: npumem check PROBLEM {}",
                path.display(),
                path.display()
            ));
        }
        let (mut problem, plan) = input.problem_and_plan().map_err(|error| error.to_string())?;
        capacities.apply(&mut problem)?;
        return Ok((problem, plan));
    };
    let problem = if input.is_graph() {
        graph_problem(&mut input, args, &capacities)?
    } else {
        let mut problem = input.problem_without_offsets().map_err(|error| error.to_string())?;
        capacities.apply(&mut problem)?;
        problem
    };
    // A plan for what contradicts itself breaks one of the constraints, and the checker says which.
    if let Some(error) = problem.validate().iter().find(|error| !error.kind.is_contradiction()) {
        return Err(format!("{}: {error}", path.display()));
    }
    let plan = open::open(plan).and_then(|opened| opened.plan(&input, &problem)).map_err(|error| error.to_string())?;
    Ok((problem, plan))
}

fn graph_problem(input: &mut Opened, args: &CheckArgs, capacities: &Capacities) -> Result<Problem, String> {
    let device = resolve::device(&args.device)?;
    let (onnx_options, options) = model_options(&args.dim, &args.shape, args.strategy)?;
    let mut read = input.graph(&onnx_options).map_err(|error| error.to_string())?;
    read.graph.name = input.name();
    model::problem_of(&read, &device, &options, capacities.for_main(&device)?)
        .map_err(|error| format!("{}: {error}", input.path.display()))
}
