//! Which kind of core runs each step, and to whom flags between cores count.

use npumem_ir::program::{Core, Program, Step, Sync};
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
