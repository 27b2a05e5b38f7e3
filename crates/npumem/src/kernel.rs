//! Kernels: from a `.pto` file or a program text to a plan that is written back, or to a verdict.

mod against;
mod alike;
mod given;

pub use against::with_addresses_of;
pub use given::with_plan;

use crate::catalogue;
use crate::plan::{Fit, PlanError, Planned, plan_problem};
use npumem_check::program::{
    Finding, Kind as CheckKind, Options as CheckOptions, ProgramVerdict, Severity, Standing, check_program,
};
use npumem_import::pto::{self, Kernel, PtoError};
use npumem_ir::problem::{Colocation, Separation};
use npumem_ir::program::{Program, ProgramError, RewriteError, Role, Root, Step, text};
use npumem_ir::{BufferId, Bytes, Device, Offset, Problem, Step as Time};
use npumem_planner::liveness::{self, LivenessError};
use npumem_planner::placement::PlacementOptions;
use npumem_report::plan_report::{Extras, Infeasible, Note, StepName};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use thiserror::Error;

/// Why a kernel gives no answer.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The `.pto` text has a mistake in it.
    #[error("{0}")]
    Pto(#[from] PtoError),
    /// The program text has a mistake in it.
    #[error("{0}")]
    Text(#[from] text::TextError),
    /// A dimension that the kernel does not have.
    #[error("{0}")]
    Rewrite(#[from] RewriteError),
    /// A program breaks a rule.
    #[error("{0}")]
    Program(#[from] ProgramError),
    /// It has no placement problem on this device.
    #[error("{0}")]
    Liveness(#[from] LivenessError),
    /// It cannot be planned.
    #[error("{0}")]
    Plan(#[from] PlanError),
    /// The plan cannot be written back.
    #[error("{0}")]
    Write(#[from] pto::WriteError),
    /// The plan file is for something else.
    #[error("the plan does not belong to this kernel: {0}")]
    OtherPlan(String),
    /// The program before planning is another one.
    #[error("the program before planning is not that of the planned file: {0}")]
    OtherProgram(String),
    /// The kernel asks for what no plan can give it.
    #[error("{kernel} cannot be planned: {reason}")]
    Refused {
        /// The kernel.
        kernel: String,
        /// Why.
        reason: String,
    },
    /// Our own plan does not pass the program checker.
    #[error(
        "this is a bug in npumem: its plan of '{kernel}' does not pass its own checker, and is not printed\n  {finding}\n  please report it with the input"
    )]
    Unsound {
        /// The kernel.
        kernel: String,
        /// The first finding.
        finding: String,
    },
}

/// A file with kernels.
#[derive(Clone, Debug)]
pub struct KernelFile {
    /// The text that was read.
    pub source: String,
    /// Its programs.
    pub kernels: Vec<Kernel>,
    /// The architecture that it names.
    pub target: Option<String>,
    /// Operations that are not known, and other remarks.
    pub notes: Vec<String>,
    /// Whether it is `.pto`; else it is npumem's own program text.
    pub is_pto: bool,
    /// What `--dim` can bind: arguments, and numbers of the grid.
    pub dims: BTreeSet<String>,
}

/// Whether a text is npumem's own program form.
#[must_use]
pub fn is_program_text(source: &str) -> bool {
    let source = source.strip_prefix('\u{feff}').unwrap_or(source);
    let first = source.lines().map(str::trim_start).find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| line.starts_with("npumem-program"))
}

/// Reads a file with kernels; `dims` binds arguments by name.
///
/// # Errors
/// The first mistake, with line and column; a name in `dims` that no kernel of the file has.
pub fn read(source: &str, dims: &BTreeMap<String, i64>) -> Result<KernelFile, KernelError> {
    let file = read_some(source, dims)?;
    known_dims(dims, &file.dims)?;
    Ok(file)
}

/// The first name of `dims` that is not among those `found`.
///
/// # Errors
/// With the names that there are.
pub fn known_dims(dims: &BTreeMap<String, i64>, found: &BTreeSet<String>) -> Result<(), RewriteError> {
    match dims.keys().find(|name| !found.contains(*name)) {
        None => Ok(()),
        Some(name) => {
            let known = found.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            Err(RewriteError::UnknownArgument { name: name.clone(), known })
        }
    }
}

/// [`read`], where other files may have the names in `dims` that this one has not: see [`known_dims`].
///
/// # Errors
/// The first mistake, with line and column.
pub fn read_some(source: &str, dims: &BTreeMap<String, i64>) -> Result<KernelFile, KernelError> {
    if is_program_text(source) {
        let mut program = text::parse(source)?;
        let names: BTreeSet<String> = program.dimensions().map(str::to_owned).collect();
        for (name, value) in dims.iter().filter(|(name, _)| names.contains(*name)) {
            program.bind(name, *value)?;
        }
        let target = program.target.clone();
        let kernels = vec![Kernel { program, sites: Vec::new() }];
        let (source, notes) = (source.to_owned(), Vec::new());
        return Ok(KernelFile { source, kernels, target, notes, is_pto: false, dims: names });
    }
    let architecture = run_line_target(source);
    let module = pto::read(source, &pto::Options { dims: dims.clone(), architecture: architecture.clone() })?;
    let mut notes: Vec<String> = module
        .unknown
        .iter()
        .map(|u| {
            format!(
                "line {}, column {}: '{}' is not known; it is taken to read all its inputs and to write its outputs, perhaps in part",
                u.line, u.column, u.name
            )
        })
        .collect();
    notes.extend(module.notes);
    let target = module.target.or(architecture);
    let (source, dims) = (source.to_owned(), module.dims);
    Ok(KernelFile { source, kernels: module.programs, target, notes, is_pto: true, dims })
}

/// The architecture in a test's `RUN:` comment, where the module itself names none.
fn run_line_target(source: &str) -> Option<String> {
    let line =
        source.lines().filter(|line| line.trim_start().starts_with("//")).find(|line| line.contains("--pto-arch"))?;
    let rest = line.split("--pto-arch").nth(1)?.trim_start_matches(['=', ' ']);
    Some(rest.split_whitespace().next()?.to_owned())
}

/// The device that a kernel's own target means: an alias of the catalogue, `a3` or `a5`.
#[must_use]
pub fn target_device(target: &str) -> Option<Device> {
    catalogue::device(&target_name(target)).ok()
}

/// The name of the device that a kernel's own target means: `a3` is `ascend-910b2`, `a5` is `ascend-950`.
#[must_use]
pub fn target_name(target: &str) -> String {
    match target.to_ascii_lowercase().as_str() {
        "a2" | "a3" => "ascend-910b2".to_owned(),
        "a5" => "ascend-950".to_owned(),
        name if name.starts_with("ascend950") => "ascend-950".to_owned(),
        name if name.starts_with("ascend910b") => "ascend-910b2".to_owned(),
        name => name.to_owned(),
    }
}

/// The program as the device runs it: scratch that another architecture's library takes is left out.
fn on_device<'p>(program: &'p Program, device: &Device) -> Cow<'p, Program> {
    if device.name.starts_with("ascend-910b") || !program.buffers.iter().any(|buffer| buffer.fixed) {
        return Cow::Borrowed(program);
    }
    let mut program = program.clone();
    let fixed: Vec<bool> = program.buffers.iter().map(|buffer| buffer.fixed).collect();
    for step in &mut program.steps {
        if let Step::Run(operation) = step {
            operation.writes.retain(|access| !matches!(access.root, Root::Buffer(id) if fixed[id.index()]));
        }
    }
    for buffer in program.buffers.iter_mut().filter(|buffer| buffer.fixed) {
        (buffer.fixed, buffer.role, buffer.address) = (false, Role::External, None);
    }
    Cow::Owned(program)
}

/// One kernel, planned.
#[derive(Clone, Debug)]
pub struct KernelPlan {
    /// The placement and its report; steps are the program's.
    pub planned: Planned,
    /// Address of each buffer of the program.
    pub addresses: BTreeMap<BufferId, Offset>,
    /// The program with its addresses.
    pub program: Program,
    /// Faults that the kernel has wherever its buffers lie: races that no flag orders, waits that never end, accesses
    /// past a buffer. No placement mends them; `check` tells all of them.
    pub own_faults: Vec<String>,
}

impl KernelPlan {
    /// The plan, with what is wrong with the kernel itself in its report.
    fn told(
        mut planned: Planned,
        addresses: BTreeMap<BufferId, Offset>,
        program: Program,
        faults: Vec<String>,
    ) -> Self {
        if let Some(text) = own_faults_text(&faults) {
            planned.report.notes.push(Note::warning(text));
        }
        KernelPlan { planned, addresses, program, own_faults: faults }
    }
}

/// What a user is told of a kernel's own faults.
#[must_use]
pub fn own_faults_text(faults: &[String]) -> Option<String> {
    let first = faults.first()?;
    let count = if faults.len() == 1 { "a fault".to_owned() } else { format!("{} faults", faults.len()) };
    Some(format!("the kernel itself has {count} that no placement mends: {first}; 'npumem check' tells all"))
}

/// Plans one kernel; the plan has passed both checkers.
///
/// # Errors
/// [`KernelError`]; "does not fit" is an answer, not an error.
pub fn plan(
    program: &Program,
    device: &Device,
    options: &PlacementOptions,
    notes: &[String],
    cancel: Option<&AtomicBool>,
) -> Result<KernelPlan, KernelError> {
    // A plan that is in the text is left aside, save queues that both cores agreed on.
    let mut unplanned = on_device(program, device).into_owned();
    for buffer in unplanned.buffers.iter_mut().filter(|buffer| buffer.role != Role::Queue && !buffer.fixed) {
        buffer.address = None;
    }
    let found = liveness::problem(&unplanned, device)?;
    let mut extras = Extras { step_names: step_names(&unplanned), ..Extras::default() };
    extras.notes.extend(notes.iter().map(|note| Note::info(note.clone())));
    extras.infeasible = too_large(&unplanned, device);
    let never = extras.infeasible.is_some();
    let asked = Asked { device, options, extras, cancel };
    let (mut problem, mut in_place) = (found.problem, found.in_place);
    let mut rounds = 0;
    loop {
        let mut planned = asked.best(&problem, &in_place)?;
        if never {
            planned.fit = Fit::No;
        }
        let mut addresses = BTreeMap::new();
        for residency in &planned.placement.plan.residencies {
            addresses.insert(found.buffers[residency.buffer.index()], residency.offset);
        }
        place_untouched(&unplanned, &mut addresses);
        let placed = unplanned.placed(&addresses);
        let options = CheckOptions { plan_is_separate: true, ..CheckOptions::default() };
        if planned.fit != Fit::Yes {
            let faults = own_faults(&unplanned, &check_program(&unplanned, Some(device), &options)?);
            return Ok(KernelPlan::told(planned, addresses, placed, faults));
        }
        let verdict = check_program(&placed, Some(device), &options)?;
        let wrong = |kind: &CheckKind| matches!(kind, CheckKind::Overwritten { .. } | CheckKind::OwnInput { .. });
        let fault = verdict.findings.iter().find(|finding| wrong(&finding.kind));
        let racing = racing(&verdict, &found.buffers);
        let other_sum = |f: &&Finding| f.severity == Severity::Fault && matches!(f.kind, CheckKind::OtherSum { .. });
        if let Some(found) = verdict.findings.iter().find(other_sum) {
            let reason = format!("{}; here they cannot share one", found.message(&placed));
            return Err(KernelError::Refused { kernel: program.name.clone(), reason });
        }
        if let Some(fault) = fault.filter(|fault| fault.severity == Severity::Fault) {
            return Err(KernelError::Unsound { kernel: program.name.clone(), finding: fault.message(&placed) });
        }
        if racing.is_empty() || rounds == MAX_ROUNDS {
            let faults = own_faults(&placed, &verdict);
            return Ok(KernelPlan::told(planned, addresses, placed, faults));
        }
        // The program states its order, and it does not order these two: they share nothing.
        rounds += 1;
        in_place.retain(|rule| !racing.contains(&(rule.base.min(rule.buffer), rule.base.max(rule.buffer))));
        let reasons = vec!["no flag of the kernel orders the two engines that would share these bytes".to_owned()];
        problem.constraints.separated.extend(racing.into_iter().map(|(first, second)| Separation {
            first,
            second,
            reasons: reasons.clone(),
        }));
    }
}

/// The faults of a verdict that do not come from where buffers lie.
fn own_faults(program: &Program, verdict: &ProgramVerdict) -> Vec<String> {
    let own = |kind: &CheckKind| match kind {
        CheckKind::Race { buffers: (first, second), .. } => first == second,
        CheckKind::Deadlock { .. }
        | CheckKind::PastBuffer { .. }
        | CheckKind::NoLink { .. }
        | CheckKind::Unreachable { .. }
        | CheckKind::UnknownSpace { .. } => true,
        _ => false,
    };
    verdict.of(Severity::Fault).filter(|finding| own(&finding.kind)).map(|finding| finding.message(program)).collect()
}

/// A buffer that alone ends past the whole of its space: one that no statement touches, so that no plan places it,
/// or one that a library keeps where it is.
fn too_large(program: &Program, device: &Device) -> Option<Infeasible> {
    program.buffers().find_map(|(_, buffer)| {
        if buffer.role == Role::External || buffer.alias.is_some() {
            return None;
        }
        let space = device.space(device.space_named(&buffer.space)?);
        let capacity = *space.capacity.known()?;
        let fixed = buffer.address.as_ref().filter(|_| buffer.fixed);
        let start = fixed.and_then(|a| u64::try_from(a.as_constant()?).ok()).unwrap_or(0);
        let needed = Bytes(start.saturating_add(buffer.total_bytes()?));
        (needed > capacity).then(|| Infeasible {
            reason: format!("'{}' alone ends at {needed} of {}, which has {capacity}", buffer.name, space.name),
            space: space.name.clone(),
            capacity: Some(capacity),
            needed,
            conflicts: Vec::new(),
            advice: Vec::new(),
        })
    })
}

/// Rounds of planning until a kernel's own flags order all sharing.
const MAX_ROUNDS: usize = 32;

/// Buffers of the problem that share bytes although nothing orders two statements that touch them.
fn racing(verdict: &ProgramVerdict, buffers: &[BufferId]) -> BTreeSet<(BufferId, BufferId)> {
    let index = |id: BufferId| buffers.binary_search(&id).ok().map(BufferId::new);
    let pairs = verdict.findings.iter().filter_map(|finding| match &finding.kind {
        CheckKind::Race { buffers: (a, b), .. } if a != b => index(*a).zip(index(*b)),
        _ => None,
    });
    pairs.map(|(a, b)| (a.min(b), a.max(b))).collect()
}

/// What all attempts at one kernel share.
struct Asked<'a> {
    device: &'a Device,
    options: &'a PlacementOptions,
    extras: Extras,
    cancel: Option<&'a AtomicBool>,
}

impl Asked<'_> {
    /// The better of two plans: results beside their operands, or in the place of operands that die.
    fn best(&self, problem: &Problem, in_place: &[Colocation]) -> Result<Planned, KernelError> {
        let apart = self.plan(problem.clone(), &[])?;
        if in_place.is_empty() {
            return Ok(apart);
        }
        let mut merged = problem.clone();
        merged.constraints.colocated.extend_from_slice(in_place);
        let shared: Vec<String> = in_place
            .iter()
            .map(|rule| format!("'{}' on '{}'", problem.buffer(rule.buffer).name, problem.buffer(rule.base).name))
            .collect();
        let text = format!("results in the place of an operand that dies there: {}", shared.join(", "));
        // What is kept apart elsewhere may contradict it: then there is only the plan without.
        let Ok(merged) = self.plan(merged, &[Note::info(text)]) else { return Ok(apart) };
        let worth = |planned: &Planned| {
            let fit = match planned.fit {
                Fit::Yes => 0,
                Fit::Undecided => 1,
                Fit::No => 2,
            };
            let plan = &planned.placement.plan;
            (fit, planned.placement.reuse_cost, plan.spaces.iter().map(|space| space.peak.0).sum::<u64>())
        };
        Ok(if worth(&merged) < worth(&apart) { merged } else { apart })
    }

    /// One plan; for all of a space where what the toolchain leaves to kernels is not enough.
    fn plan(&self, mut problem: Problem, notes: &[Note]) -> Result<Planned, KernelError> {
        let mut extras = self.extras.clone();
        extras.notes.extend_from_slice(notes);
        let name = Some(self.device.name.as_str());
        let planned = plan_problem(problem.clone(), name, self.options, extras.clone(), self.cancel)?;
        if planned.fit == Fit::Yes {
            return Ok(planned);
        }
        let mut raised = Vec::new();
        for space in &mut problem.spaces {
            let whole = self.device.space_named(&space.name);
            let whole = whole.and_then(|id| self.device.space(id).capacity.known().copied());
            if let Some(whole) = whole.filter(|whole| space.capacity.is_some_and(|usable| usable < *whole)) {
                space.capacity = Some(whole);
                raised.push(space.name.clone());
            }
        }
        if raised.is_empty() {
            return Ok(planned);
        }
        let text = format!(
            "it does not fit what the toolchain usually leaves to kernels in {}; planned for the whole of it",
            raised.join(", ")
        );
        extras.notes.push(Note::warning(text));
        let second = plan_problem(problem, name, self.options, extras, self.cancel)?;
        Ok(if second.fit == Fit::Yes { second } else { planned })
    }
}

fn step_names(program: &Program) -> Vec<StepName> {
    let named = program.steps.iter().enumerate().filter_map(|(at, step)| match step {
        Step::Run(operation) => {
            let line = if operation.line == 0 { String::new() } else { format!(" (line {})", operation.line) };
            Some(StepName { step: Time(at as u64), name: format!("{}{line}", operation.name) })
        }
        _ => None,
    });
    named.collect()
}

/// The file with the plans written back into it: `.pto` with `addr =`, or program text with `at`.
///
/// # Errors
/// When one allocation of the text got two addresses.
pub fn write_back(file: &KernelFile, plans: &[KernelPlan]) -> Result<String, KernelError> {
    if !file.is_pto {
        return Ok(plans.iter().map(|plan| text::print(&plan.program)).collect());
    }
    let maps: Vec<BTreeMap<BufferId, Offset>> = plans.iter().map(|plan| plan.addresses.clone()).collect();
    Ok(pto::write_plan(&file.source, &file.kernels, &maps)?)
}

/// What no statement touches lies at 0: any place is right for it.
fn place_untouched(program: &Program, addresses: &mut BTreeMap<BufferId, Offset>) {
    for (id, buffer) in program.buffers() {
        if buffer.role != Role::External && buffer.alias.is_none() {
            let own =
                buffer.address.as_ref().filter(|_| buffer.fixed).and_then(|a| u64::try_from(a.as_constant()?).ok());
            addresses.entry(id).or_insert(Offset(own.unwrap_or(0)));
        }
    }
}

/// Checks a kernel that carries its addresses.
///
/// # Errors
/// When the program breaks a rule.
pub fn check(program: &Program, device: &Device, plan_is_separate: bool) -> Result<ProgramVerdict, KernelError> {
    let options = CheckOptions { plan_is_separate, ..CheckOptions::default() };
    Ok(check_program(&on_device(program, device), Some(device), &options)?)
}

/// Whether a kernel makes sense only on a device of the later family: it moves from the accumulator to the vector
/// core's memory, for which this one has no link, and all its other moves have one.
#[must_use]
pub fn moves_past_links(program: &Program, device: &Device) -> Option<bool> {
    let mut later = false;
    for finding in npumem_check::program::check_places(&on_device(program, device), device) {
        match &finding.kind {
            CheckKind::NoLink { from, to, .. } if from == "l0c" && to == "ub" => later = true,
            CheckKind::NoLink { .. } => return None,
            _ => {}
        }
    }
    Some(later)
}

/// The worse of two verdicts, as exit codes count: unsound, then undecided, then sound.
#[must_use]
pub fn worse(a: Standing, b: Standing) -> Standing {
    match (a, b) {
        (Standing::Unsound, _) | (_, Standing::Unsound) => Standing::Unsound,
        (Standing::Undecided, _) | (_, Standing::Undecided) => Standing::Undecided,
        _ => Standing::Sound,
    }
}
