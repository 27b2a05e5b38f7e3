//! Which kind of core runs each step, and to whom flags between cores count.

use npumem_ir::ScalarId;
use npumem_ir::program::{Affine, Core, Op, Program, ScalarKind, Step, Sync};
use std::collections::{BTreeMap, BTreeSet};

/// The matrix core, the vector core; 0 where a program has only one kind.
const CUBE: usize = 1;
const VECTOR: usize = 2;
/// A cube core tells its second vector core by flags that are higher by this.
const SECOND: i64 = 16;

/// Cores of a program's steps.
#[derive(Debug)]
pub(super) struct Cores {
    /// Both kinds run statements.
    pub both: bool,
    of: Vec<usize>,
    /// Flags that a core posts (`None`: any).
    posted: BTreeMap<usize, BTreeSet<Option<i64>>>,
}

/// The core that an engine's role belongs to, where only one kind has it.
fn role(engine: &str) -> Option<usize> {
    match engine {
        "m" | "mte1" | "fix" => Some(CUBE),
        "v" => Some(VECTOR),
        _ => None,
    }
}

impl Cores {
    pub fn of(program: &Program) -> Self {
        let stated: Vec<Option<usize>> = program.steps.iter().map(stated).collect();
        let runs = |core| program.steps.iter().zip(&stated).any(|(s, c)| matches!(s, Step::Run(_)) && *c == Some(core));
        if !(runs(CUBE) && runs(VECTOR)) {
            return Cores { both: false, of: vec![0; program.steps.len()], posted: BTreeMap::new() };
        }
        // A step that does not say belongs with what comes next in its region; what gives something, with what was
        // before.
        let mut of = vec![0; program.steps.len()];
        let mut next = None;
        for (at, step) in program.steps.iter().enumerate().rev() {
            if matches!(step, Step::End | Step::Else) {
                next = None;
            }
            next = stated[at].or(next);
            of[at] = next.unwrap_or(0);
        }
        let mut before = 0;
        for (at, step) in program.steps.iter().enumerate() {
            let gives = matches!(
                step,
                Step::Sync(Sync::SetFlag { .. } | Sync::Post { .. } | Sync::Release { .. } | Sync::Barrier(_))
            );
            match stated[at] {
                Some(core) => before = core,
                None if of[at] == 0 || gives && before != 0 => of[at] = before,
                None => {}
            }
        }
        let mut cores = Cores { both: true, of, posted: BTreeMap::new() };
        for (at, step) in program.steps.iter().enumerate() {
            if let Step::Sync(Sync::Post { flag, .. }) = step {
                cores.posted.entry(cores.of[at]).or_default().insert(flag.as_constant());
            }
        }
        cores
    }

    pub fn at(&self, step: usize) -> usize {
        self.of[step]
    }

    /// The core that a flag is for, its number there, and whether it is told (or waited for). `None`: it is not
    /// followed: the second vector core does as the first, and cores of one kind meet outside of the program.
    pub fn flag(&self, core: usize, flag: i64, post: bool) -> Option<(usize, i64, bool)> {
        if flag >= SECOND {
            return None;
        }
        let other = match core {
            CUBE => VECTOR,
            VECTOR => CUBE,
            _ => return None,
        };
        if post {
            return Some((other, flag, true));
        }
        let posts = |core: usize| {
            self.posted.get(&core).is_some_and(|flags| flags.contains(&Some(flag)) || flags.contains(&None))
        };
        (posts(other) || !posts(core)).then_some((core, flag, false))
    }
}

/// The core that a step names, or whose engines it names.
fn stated(step: &Step) -> Option<usize> {
    match step {
        Step::Run(operation) => match operation.core {
            Core::Cube => Some(CUBE),
            Core::Vector => Some(VECTOR),
            Core::Any => role(&operation.engine),
        },
        Step::Sync(Sync::SetFlag { from, to, .. } | Sync::WaitFlag { from, to, .. }) => role(from).or(role(to)),
        Step::Sync(
            Sync::Acquire { engine, .. }
            | Sync::Release { engine, .. }
            | Sync::Post { engine, .. }
            | Sync::Await { engine, .. }
            | Sync::Barrier(Some(engine)),
        ) => role(engine),
        _ => None,
    }
}

/// Steps whose condition or bound follows from an unknown value that another's follows from too: to decide each on its
/// own may decide what no run does.
pub(super) fn mutual(program: &Program) -> BTreeSet<usize> {
    let mut by_source: BTreeMap<ScalarId, BTreeSet<usize>> = BTreeMap::new();
    let looped = inside_loops(program);
    for (at, step) in program.steps.iter().enumerate() {
        let affines: Vec<&Affine> = match step {
            Step::If(value) | Step::Leave(value) => vec![value],
            Step::For { start, stop, step, .. } => vec![start, stop, step],
            _ => continue,
        };
        let mut pending: Vec<ScalarId> = affines.iter().flat_map(|a| a.terms.iter().map(|term| term.0)).collect();
        let mut seen = BTreeSet::new();
        while let Some(next) = pending.pop() {
            if !seen.insert(next) {
                continue;
            }
            match &program.scalar(next).kind {
                // Nobody knows it, and it is another value each time: of one place it decides nothing elsewhere.
                ScalarKind::Computed(compute) if compute.op == Op::Opaque => {
                    by_source.entry(next).or_default().insert(at);
                }
                ScalarKind::Computed(compute) => {
                    pending.extend(compute.operands.iter().flat_map(|o| o.terms.iter().map(|term| term.0)));
                }
                ScalarKind::Argument(Some(_)) | ScalarKind::Counter => {}
                ScalarKind::Argument(None) | ScalarKind::Grid(_) | ScalarKind::Variable => {
                    by_source.entry(next).or_default().insert(at);
                    // In a loop it is asked again.
                    if looped[at] {
                        by_source.entry(next).or_default().insert(usize::MAX);
                    }
                }
            }
        }
    }
    by_source.into_values().filter(|steps| steps.len() > 1).flatten().collect()
}

/// For each step, whether a loop is around it.
fn inside_loops(program: &Program) -> Vec<bool> {
    let (mut open, mut loops) = (Vec::new(), 0_usize);
    let mut out = Vec::with_capacity(program.steps.len());
    for step in &program.steps {
        out.push(loops > 0);
        match step {
            Step::For { .. } | Step::Loop => {
                open.push(true);
                loops += 1;
            }
            Step::If(_) => open.push(false),
            Step::End => loops -= usize::from(open.pop() == Some(true)),
            _ => {}
        }
    }
    out
}
