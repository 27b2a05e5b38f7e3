//! Order between engines: which pairs of accesses to the same bytes does nothing order, and who waits for ever?
//!
//! Engines run on their own, each in its own order. A program that states its order (flags, events, barriers,
//! tokens) is run on queues ([`queues`]) with a clock per engine: an access must have heard of every earlier
//! conflicting access of another engine.
//!
//! ```text
//!   mte2:  load x ---- set-flag mte2->v 0                 heard by v: mte2 = 1
//!   v:                      wait-flag mte2->v 0 ---- add x        x was written at mte2 = 1: ordered
//! ```
//!
//! Every turn of every loop counts: a loop is run until the state of the queues, up to a shift in time, is one that it
//! had before with the same slots and events to come ([`turns`]); from there on it repeats. An unknown branch is run
//! both ways, and never against what the path decided before ([`Known`]); where that is not remembered, what is found is
//! a doubt and not a fault.
//!
//! The two kinds of core are two programs that run side by side; flags between them count where both are in the
//! program. A program without any flag, token or full barrier leaves its order to the compiler, and nothing is said.

mod cores;
mod queues;
mod turning;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

use super::Options;
use super::ahead::Tests;
use super::bound::{Bound, SETTLING_TURNS, leave as way_out};
use super::conditions::Conditions;
use super::finding::{Context, Event, Findings, Kind, Place, Severity};
use super::known::{Example, Guess, Known, Scene};
use super::loops::MAX_MULTIPLES;
use super::memory::Slabs;
use super::moves::Moves;
use super::resolve::{Handles, global, resolve};
use super::turns::{Turns, relevant, turns};
use cores::Cores;
use npumem_ir::program::{Affine, Operation, Program, Role, Root, ScalarKind, Step, Structure, Sync, Values};
use npumem_ir::{BufferId, ScalarId, StepId};
use queues::{Engines, Queues, Shape, Touch, Work};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
pub(super) use turning::distances;
use turning::repeats_but_for_decisions;

/// Paths that are told apart; past this many the rest is not looked at, which is said.
const MAX_PATHS: usize = 48;
/// Turns of a loop without a known bound whose turns never provably repeat.
const MAX_OPEN_TURNS: usize = 64;
/// Work of one check: statements, and what is compared of states.
const MAX_WORK: u64 = 600_000;
/// States that are kept of a loop to compare with.
const MAX_HISTORY: usize = 64;

pub(super) fn check(
    program: &Program,
    structure: &Structure,
    options: &Options,
    given: &[(ScalarId, i64)],
    findings: &mut Findings,
) {
    let has = |wanted: fn(&Sync) -> bool| program.steps.iter().any(|s| matches!(s, Step::Sync(sync) if wanted(sync)));
    let states_order = has(|sync| {
        matches!(sync, Sync::SetFlag { .. } | Sync::WaitFlag { .. } | Sync::Acquire { .. } | Sync::Barrier(None))
    });
    let cores = Cores::of(program);
    let cores_meet = cores.both && has(|sync| matches!(sync, Sync::Await { .. }));
    if !(states_order || cores_meet) {
        return;
    }
    let (relevant, tests) = (relevant(program, true), Tests::new(program));
    let mut walk = Walk {
        program,
        structure,
        slabs: Slabs::new(program),
        engines: Engines { cores: 3, ..Engines::default() },
        index: BTreeMap::new(),
        cores,
        touches_count: states_order,
        relevant_list: tests.stored(program, &relevant),
        relevant,
        turns: BTreeMap::new(),
        tests,
        places: BTreeMap::new(),
        conditions: Conditions::new(program, structure),
        moves: BTreeMap::new(),
        guess: None,
        budget: options.budget.min(MAX_WORK),
        findings,
    };
    walk.name_engines();
    walk.find_reach();
    // Flags alone are a piece of a kernel: who raises them may stand elsewhere.
    let fragment = !program.steps.iter().any(|step| matches!(step, Step::Run(_)));
    let mut values = Values::new(program);
    given.iter().for_each(|(scalar, value)| values.set(*scalar, Some(*value)));
    let start = Path {
        values,
        handles: Rc::new(vec![None; program.handles.len()]),
        assumed: BTreeSet::new(),
        known: Known::default(),
        queues: Queues::new(&walk.engines),
        context: None,
        guessed: fragment,
    };
    for path in walk.block(0, program.steps.len(), vec![start]) {
        path.queues.stuck(&walk.engines, path.guessed, walk.findings);
    }
    // A guess on which nothing was found needs no run that shows it.
    if let Some((guess, values)) = walk.guess
        && walk.findings.doubts_order()
    {
        walk.findings.guessed(guess, values);
    }
}

#[derive(Clone, Debug)]
struct Path {
    values: Values,
    handles: Handles,
    /// Truths that a branch assumed and a later one tests again.
    assumed: BTreeSet<ScalarId>,
    /// What it decided of values that nobody knows.
    known: Known,
    queues: Queues,
    context: Context,
    /// It took a side, or a number of turns, that other sides may contradict.
    guessed: bool,
}

/// What of a path decides how it goes on.
#[derive(PartialEq, Eq)]
struct Mark {
    values: Vec<Option<i64>>,
    handles: Handles,
    shape: Shape,
    known: Known,
}

struct Walk<'a> {
    program: &'a Program,
    structure: &'a Structure,
    slabs: Slabs,
    engines: Engines,
    index: BTreeMap<(usize, String), usize>,
    cores: Cores,
    /// Whether order within a core is stated at all.
    touches_count: bool,
    relevant: Vec<bool>,
    relevant_list: Vec<ScalarId>,
    turns: BTreeMap<usize, Rc<Turns>>,
    tests: Tests,
    conditions: Conditions,
    /// For each loop, what of its conditions moves along with its counter.
    moves: BTreeMap<usize, Rc<Moves>>,
    /// The first decision that was guessed, and values with which it comes about.
    guess: Option<(Guess, Vec<(ScalarId, i64)>)>,
    /// Numbers of the caller's memory: whose, and what of the first byte is open.
    places: BTreeMap<(BufferId, Vec<(ScalarId, i64)>), u32>,
    budget: u64,
    findings: &'a mut Findings,
}

impl Walk<'_> {
    fn engine(&mut self, core: usize, name: &str) -> usize {
        if let Some(index) = self.index.get(&(core, name.to_owned())) {
            return *index;
        }
        let index = self.engines.core.len();
        self.index.insert((core, name.to_owned()), index);
        self.engines.core.push(core);
        self.engines.scalar.push(name == "s");
        self.engines.names.push(name.to_owned());
        index
    }

    /// All engines from the start: a barrier is heard by those that have not run yet, too.
    fn name_engines(&mut self) {
        for (at, step) in self.program.steps.iter().enumerate() {
            let core = self.cores.at(at);
            match step {
                Step::Run(operation) => {
                    self.engine(core, &operation.engine);
                }
                Step::Sync(Sync::SetFlag { from, to, .. } | Sync::WaitFlag { from, to, .. }) => {
                    self.engine(core, from);
                    self.engine(core, to);
                }
                Step::Sync(
                    Sync::Acquire { engine, .. }
                    | Sync::Release { engine, .. }
                    | Sync::Post { engine, .. }
                    | Sync::Await { engine, .. },
                ) => {
                    self.engine(core, engine);
                }
                Step::Sync(Sync::Barrier(None)) => {
                    self.engine(core, "s");
                }
                _ => {}
            }
        }
    }

    /// Which engines touch what: a past touch counts until all of them have heard of it.
    fn find_reach(&mut self) {
        let mut of_buffer: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.program.buffers.len()];
        let mut anywhere = BTreeSet::new();
        for (at, step) in self.program.steps.iter().enumerate() {
            let Step::Run(operation) = step else { continue };
            let engine = self.engine(self.cores.at(at), &operation.engine);
            for access in operation.reads.iter().chain(&operation.writes) {
                match access.root {
                    Root::Buffer(id) => of_buffer[self.program.owner(id).0.index()].insert(engine),
                    Root::Handle(_) => anywhere.insert(engine),
                };
            }
        }
        let spaces = self.slabs.by_place.len();
        let mut reach: Vec<BTreeSet<usize>> = vec![anywhere.clone(); spaces];
        for slab in &self.slabs.slabs {
            if let Some((space, _)) = slab.place {
                reach[space as usize].extend(&of_buffer[slab.buffer.index()]);
            }
        }
        let own = self.slabs.slabs.iter().map(|slab| &of_buffer[slab.buffer.index()] | &anywhere).collect::<Vec<_>>();
        let list = |engines: BTreeSet<usize>| engines.into_iter().collect::<Vec<_>>().into();
        self.engines.reach = reach.into_iter().chain(own).map(list).collect();
        self.engines.first_global = self.engines.reach.len() as u32;
        let callers = self.program.buffers().filter(|(_, buffer)| buffer.role == Role::External);
        anywhere.extend(callers.flat_map(|(id, _)| of_buffer[id.index()].iter().copied()));
        self.engines.global = anywhere.into_iter().collect();
    }

    /// Steps `from..to`, all of one region. Regions nest at most `MAX_DEPTH` deep, and so do these calls.
    fn block(&mut self, from: usize, to: usize, mut paths: Vec<Path>) -> Vec<Path> {
        let mut at = from;
        while at < to && !paths.is_empty() {
            let id = StepId::new(at);
            match &self.program.steps[at] {
                Step::Run(operation) => paths.retain_mut(|path| self.statement(path, id, operation)),
                Step::Sync(sync) => paths.retain_mut(|path| self.sync(path, id, sync)),
                Step::Assign(assign) => {
                    for path in &mut paths {
                        super::resolve::assign(
                            self.program,
                            &self.relevant,
                            &mut path.values,
                            &mut path.handles,
                            assign,
                        );
                        let scene = scene(self.program, &self.conditions, &path.values);
                        assign.scalars.iter().for_each(|(target, _)| path.known.set(scene, *target, at));
                    }
                }
                Step::If(condition) => {
                    let end = self.structure.partner(id).index();
                    paths = self.branch(id, condition, end, paths);
                    at = end;
                }
                Step::For { counter, start, stop, step } => {
                    let end = self.structure.partner(id).index();
                    let mut after = Vec::new();
                    for path in paths {
                        after.extend(self.counted(id, (*counter, start, stop, step), end, path));
                    }
                    paths = self.distinct(after, end);
                    at = end;
                }
                Step::Loop => {
                    let end = self.structure.partner(id).index();
                    paths = self.uncounted(id, end, paths);
                    at = end;
                }
                Step::Leave(_) | Step::Else | Step::End => {}
            }
            at += 1;
        }
        paths
    }

    /// The path with what it now knows; `None` when no run goes on like that.
    fn decided(&mut self, path: &Path, known: Known, guess: Option<Guess>, at: usize) -> Option<Path> {
        let mut path = Path { known, ..path.clone() };
        let mut guess = guess;
        if !path.known.is_empty() || guess.is_some() {
            let example = path.known.example(scene(self.program, &self.conditions, &path.values));
            match example {
                Example::Impossible => return None,
                Example::Unclear => guess = guess.or(Some(Guess { first: at, second: at })),
                Example::Found(_) => {}
            }
            if let (Some(guess), None) = (guess, &self.guess) {
                let values = if let Example::Found(values) = example { values } else { Vec::new() };
                self.guess = Some((guess, values));
            }
        }
        path.guessed |= guess.is_some();
        Some(path)
    }

    fn branch(&mut self, id: StepId, condition: &Affine, end: usize, paths: Vec<Path>) -> Vec<Path> {
        let otherwise = self.structure.otherwise(id).index();
        let sticky = condition.as_scalar().filter(|scalar| self.tests.last.contains_key(scalar));
        let (mut first, mut other) = (Vec::new(), Vec::new());
        for path in paths {
            match path.values.affine(self.program, condition) {
                Some(0) => other.push(path),
                Some(_) => first.push(path),
                None => {
                    let scene = scene(self.program, &self.conditions, &path.values);
                    let sides = path.known.decide(scene, condition, id.index());
                    for (list, known, truth) in [(&mut first, sides.yes, 1), (&mut other, sides.no, 0)] {
                        for known in known {
                            let Some(mut side) = self.decided(&path, known, sides.guess, id.index()) else { continue };
                            if let Some(scalar) = sticky {
                                side.values.set(scalar, Some(truth));
                                side.assumed.insert(scalar);
                            }
                            list.push(side);
                        }
                    }
                }
            }
        }
        let outer = first.iter().chain(&other).next().and_then(|path| path.context.clone());
        let enter = |paths: &mut Vec<Path>, taken: bool| {
            for path in paths {
                path.context = Some(Rc::new(Place::Branch(id, taken, path.context.clone())));
            }
        };
        enter(&mut first, true);
        enter(&mut other, false);
        let mut after = self.block(id.index() + 1, otherwise, first);
        after.extend(if otherwise < end { self.block(otherwise + 1, end, other) } else { other });
        for path in &mut after {
            path.context.clone_from(&outer);
        }
        self.distinct(after, end)
    }

    /// Paths that go on differently; the first of those that go on alike.
    fn distinct(&mut self, paths: Vec<Path>, at: usize) -> Vec<Path> {
        if paths.len() < 2 {
            return paths;
        }
        let mut out: Vec<Path> = Vec::new();
        let mut marks: Vec<(Mark, bool)> = Vec::new();
        for mut path in paths {
            self.tests.forget(&mut path.assumed, &mut path.values, at);
            // That a run decides like this was shown when it was decided.
            path.known.drop_asked(scene(self.program, &self.conditions, &path.values), at);
            path.queues.sweep(&self.engines);
            let mark = self.mark(&path);
            let told = marks.iter().position(|(known, _)| *known == mark);
            // Paths that differ only in what was decided are one where that can be said exactly.
            let told = told.or_else(|| {
                marks.iter_mut().zip(&mut out).position(|((other, guessed), kept)| {
                    let alike =
                        *guessed == path.guessed && other.alike(&mark) && other.known.remembers_like(&mark.known);
                    match alike.then(|| other.known.or(&mark.known)).flatten() {
                        Some(both) => {
                            other.known = both.clone();
                            kept.known = both;
                            true
                        }
                        None => false,
                    }
                })
            });
            match told {
                // One that surely happens says more than one that perhaps does.
                Some(index) if marks[index].1 && !path.guessed => {
                    marks[index].1 = false;
                    out[index] = path;
                }
                Some(_) => {}
                None => {
                    marks.push((mark, path.guessed));
                    out.push(path);
                }
            }
        }
        if out.len() > MAX_PATHS {
            out = self.widen(out.into_iter().zip(marks.into_iter().map(|(mark, _)| mark)).collect(), at);
        }
        if out.len() > MAX_PATHS {
            out.truncate(MAX_PATHS);
            let why = "too many branches that nobody can know come together here: bind their inputs with --dim";
            self.findings.push(Severity::Doubt, Kind::OrderUnknown { step: StepId::new(at), why: why.into() });
        }
        out
    }

    fn mark(&self, path: &Path) -> Mark {
        let counts = |scalar: &&ScalarId| !matches!(self.program.scalar(**scalar).kind, ScalarKind::Counter);
        let values = self.relevant_list.iter().filter(counts).map(|scalar| path.values.stored(*scalar)).collect();
        Mark {
            values,
            handles: path.handles.clone(),
            shape: path.queues.shape(&self.engines),
            known: path.known.clone(),
        }
    }

    fn marks(&self, heads: &[Path]) -> Vec<Mark> {
        heads.iter().map(|path| self.mark(path)).collect()
    }

    fn turns_of(&mut self, id: StepId) -> Rc<Turns> {
        if let Some(turns) = self.turns.get(&id.index()) {
            return Rc::clone(turns);
        }
        let found = Rc::new(turns(self.program, self.structure, &self.relevant, id, true));
        self.turns.insert(id.index(), Rc::clone(&found));
        found
    }

    fn counted(
        &mut self,
        id: StepId,
        (counter, start_sum, stop_sum, by): (ScalarId, &Affine, &Affine, &Affine),
        end: usize,
        path: Path,
    ) -> Vec<Path> {
        let outer = path.context.clone();
        let before = path.values.stored(counter);
        let value = |affine: &Affine| path.values.affine(self.program, affine);
        let (start, stop, by) = (value(start_sum), value(stop_sum), value(by).filter(|by| *by > 0));
        // Turns that nobody can count: where other steps ask for what decides them, the number of them is a guess.
        let length = stop_sum.minus(start_sum);
        let group = self.conditions.group_of(self.program, &path.values, &length);
        let free = !group.is_some_and(|group| self.conditions.is_asked_again(group));
        let turns = self.turns_of(id);
        let changes = turns.changes(|rest| path.values.affine(self.program, rest));
        let moves = self.moves_of(id);
        let period = moves.period(turns.period);
        let counts = start.is_some() && by.is_some();
        let (mut now, by) = (start.unwrap_or(0), by.unwrap_or(1));
        let open = match (stop, counts) {
            (None, true) => {
                let scene = scene(self.program, &self.conditions, &path.values);
                Bound::of(scene, &path.known, id, stop_sum, now.saturating_add(by))
            }
            _ => None,
        };
        let mut forgetting = !counts;
        let (mut after, mut heads): (Vec<Path>, Vec<Path>) = (Vec::new(), vec![path]);
        let mut history: Vec<(i64, Vec<Mark>)> = Vec::new();
        // Who may leave in a later turn as in this one.
        let mut leaving: Vec<(i64, Vec<Path>)> = Vec::new();
        let mut turn = 0_usize;
        while !heads.is_empty() {
            if stop.is_some_and(|stop| counts && now >= stop) {
                after.append(&mut heads);
                break;
            }
            if stop.is_none() || !counts {
                match &open {
                    Some(open) => {
                        let forgets = forgetting && !moves.kept.contains(&open.group);
                        let (on, ends, left) = self.ends(open, std::mem::take(&mut heads), now, (turn, forgets));
                        leaving.push((now, if moves.with_counter.contains(&open.group) { left } else { on.clone() }));
                        if leaving.len() > MAX_HISTORY {
                            leaving.remove(0);
                        }
                        heads = on;
                        after.extend(ends);
                    }
                    None => after.extend(heads.iter().cloned().map(|path| self.uncounted_end(path, free, id))),
                }
                after = self.distinct(after, end);
                if heads.is_empty() {
                    break;
                }
            }
            if let Some(period) = period {
                heads.iter_mut().for_each(|path| path.queues.sweep(&self.engines));
                let size: usize = heads.iter().map(|path| path.queues.size()).sum();
                self.budget = self.budget.saturating_sub(size as u64 / 4);
                history.push((now, self.marks(&heads)));
                if history.len() > (period * MAX_MULTIPLES + 1).min(MAX_HISTORY.max(period + 1)) {
                    history.remove(0);
                }
                let by_bound = open.as_ref().map(|open| open.stop);
                if let Some(distance) =
                    self.repeats(&history, period, &changes, (&moves, turn, by_bound), &heads[0].values)
                {
                    let next = changes.iter().copied().find(|change| *change > now);
                    let limit = match (next, stop.filter(|_| counts)) {
                        (Some(next), Some(stop)) => next.min(stop),
                        (Some(limit), None) | (None, Some(limit)) => limit,
                        (None, None) => {
                            if let Some(open) = &open {
                                let stride = by.saturating_mul(i64::try_from(distance).unwrap_or(i64::MAX));
                                let of_turn = |(then, paths): &(i64, Vec<Path>)| -> Vec<(i64, Path)> {
                                    paths.iter().map(|path| (*then, path.clone())).collect()
                                };
                                for (then, path) in leaving.iter().rev().take(distance).flat_map(of_turn) {
                                    let scene = scene(self.program, &self.conditions, &path.values);
                                    let (known, guess) = open.leave_later(scene, &path.known, (then, stride), by);
                                    after.extend(self.decided(&path, known, guess, id.index()));
                                }
                                after = self.distinct(after, end);
                            }
                            break;
                        }
                    };
                    let stride = i64::try_from(distance).unwrap_or(i64::MAX).saturating_mul(by);
                    let mut jump = limit.saturating_sub(now) / stride.max(1);
                    if heads.iter().any(|path| path.queues.has_global()) {
                        // The last turns are run: what they touch of the caller's memory may be touched behind the loop.
                        jump -= jump.min(1);
                    }
                    if jump > 0 {
                        let body = id.0..StepId::new(end).0;
                        heads.iter_mut().for_each(|path| path.queues.passed_over(body.clone()));
                        now += jump * stride;
                        history.clear();
                        if let Some(open) = &open {
                            heads = self.put_off(open, heads, now);
                        }
                        continue;
                    }
                } else if !forgetting && turn >= SETTLING_TURNS && repeats_but_for_decisions(&history, period, &changes)
                {
                    forgetting = true;
                    history.clear();
                    self.forget_decisions((id, end), &moves.kept, &mut heads);
                    heads = self.distinct(heads, id.index());
                }
            }
            turn += 1;
            let most = MAX_OPEN_TURNS.max(period.unwrap_or(1).saturating_mul(2 * MAX_MULTIPLES));
            self.budget = self.budget.saturating_sub(1);
            if self.budget == 0 || (stop.is_none() || !counts) && turn > most {
                let why =
                    "its turns do not repeat and were not all looked at: bind the inputs of its bounds with --dim";
                self.findings.push(Severity::Doubt, Kind::OrderUnknown { step: id, why: why.into() });
                after.append(&mut heads);
                break;
            }
            let shown = counts.then_some(now);
            for path in &mut heads {
                path.values.set(counter, shown);
                path.context = Some(Rc::new(Place::Turn(counter, shown, outer.clone())));
                path.known.turn(scene(self.program, &self.conditions, &path.values), Some(counter), (id.index(), end));
            }
            heads = self.block(id.index() + 1, end, heads);
            if forgetting {
                self.forget_decisions((id, end), &moves.kept, &mut heads);
            }
            heads = self.distinct(heads, id.index());
            match now.checked_add(by) {
                Some(next) => now = next,
                None => {
                    after.append(&mut heads);
                    break;
                }
            }
        }
        for path in &mut after {
            path.context.clone_from(&outer);
            path.values.set(counter, before);
        }
        after
    }

    /// A loop that leaves by a condition.
    fn uncounted(&mut self, id: StepId, end: usize, paths: Vec<Path>) -> Vec<Path> {
        let outer = paths.first().and_then(|path| path.context.clone());
        let leaves: Vec<usize> = (id.index() + 1..end)
            .filter(|at| {
                matches!(self.program.steps[*at], Step::Leave(_)) && self.structure.parent(StepId::new(*at)) == Some(id)
            })
            .collect();
        let mut after: Vec<Path> = Vec::new();
        let mut seen: Vec<Mark> = Vec::new();
        let mut heads = paths;
        let mut turn = 0;
        while !heads.is_empty() {
            // Heads that were here before go on as they did.
            heads.iter_mut().for_each(|path| path.queues.sweep(&self.engines));
            heads.retain(|path| {
                let mark = self.mark(path);
                let new = !seen.contains(&mark);
                if new {
                    seen.push(mark);
                }
                new
            });
            turn += 1;
            self.budget = self.budget.saturating_sub(1);
            if self.budget == 0 || turn > MAX_OPEN_TURNS * MAX_MULTIPLES || seen.len() > MAX_PATHS * MAX_HISTORY {
                let why =
                    "its turns do not repeat and were not all looked at: bind the inputs of its condition with --dim";
                self.findings.push(Severity::Doubt, Kind::OrderUnknown { step: id, why: why.into() });
                after.append(&mut heads);
                break;
            }
            let context = Some(Rc::new(Place::Round(id, turn as u64 - 1, outer.clone())));
            for path in &mut heads {
                path.context.clone_from(&context);
                path.known.turn(scene(self.program, &self.conditions, &path.values), None, (id.index(), end));
            }
            let mut from = id.index() + 1;
            for leave in &leaves {
                heads = self.block(from, *leave, heads);
                let Step::Leave(condition) = &self.program.steps[*leave] else { continue };
                let mut stay = Vec::new();
                for path in heads {
                    match path.values.affine(self.program, condition) {
                        Some(0) => after.push(path),
                        Some(_) => stay.push(path),
                        None => {
                            let scene = scene(self.program, &self.conditions, &path.values);
                            let (stays, leaves, known, guess) =
                                way_out(scene, &self.conditions, &path.known, condition, *leave);
                            let Some(path) = self.decided(&path, known, guess, *leave) else { continue };
                            if leaves {
                                after.push(path.clone());
                            }
                            if stays {
                                stay.push(path);
                            }
                        }
                    }
                }
                heads = stay;
                from = leave + 1;
            }
            heads = self.block(from, end, heads);
            if turn > 1 {
                self.forget_decisions((id, end), &BTreeSet::new(), &mut heads);
            }
            heads = self.distinct(heads, id.index());
            after = self.distinct(after, end);
        }
        for path in &mut after {
            path.context.clone_from(&outer);
        }
        self.distinct(after, end)
    }

    /// Gives work to an engine. False: nothing behind it is ever reached.
    fn give(&mut self, path: &mut Path, id: StepId, engine: usize, work: Work) -> bool {
        self.budget = self.budget.saturating_sub(1);
        let event = Event { step: id, context: path.context.clone() };
        let on = path.queues.give(&self.engines, engine, work, (event, path.guessed), self.findings);
        if !on {
            path.queues.stuck(&self.engines, path.guessed, self.findings);
        }
        if path.queues.flooded {
            let why = "an event is raised hundreds of times before anybody waits for it";
            self.findings.push(Severity::Doubt, Kind::OrderUnknown { step: id, why: why.into() });
            return false;
        }
        if self.budget == 0 {
            let why = "the work that a check may take ends here; split the kernel";
            self.findings.push(Severity::Doubt, Kind::OrderUnknown { step: id, why: why.into() });
        }
        on && self.budget > 0
    }

    fn statement(&mut self, path: &mut Path, id: StepId, operation: &Operation) -> bool {
        let engine = self.engine(self.cores.at(id.index()), &operation.engine);
        let mut touches = Vec::new();
        // Sums that the memory itself makes may come in any order.
        let atomic = operation.attributes.keys().any(|key| key.contains("atomic"));
        if self.touches_count {
            for (list, write) in [(&operation.reads, false), (&operation.writes, true)] {
                for access in list {
                    if let Root::Handle(handle) = access.root
                        && path.handles[handle.index()].is_none()
                    {
                        let why = "it goes through a handle that names nothing known here";
                        self.findings.push(Severity::Doubt, Kind::OrderUnknown { step: id, why: why.into() });
                    }
                    let found = resolve(self.program, &self.slabs, &path.values, &path.handles, access);
                    if let Some(found) = found {
                        self.touch(&mut touches, found, write);
                    } else if !atomic
                        && let Some((buffer, open, runs)) = global(self.program, &path.values, &path.handles, access)
                    {
                        let first = self.engines.first_global;
                        let number = first.saturating_add(self.places.len() as u32);
                        let space = *self.places.entry((buffer, open)).or_insert(number);
                        touches.push(Touch { space, runs: runs.into(), write, certain: true, buffer });
                    }
                }
            }
        }
        self.give(path, id, engine, Work::Run(touches))
    }

    /// The bytes of an access: addresses of its space, or of its own slot where it has none.
    fn touch(&self, touches: &mut Vec<Touch>, found: super::resolve::Resolved, write: bool) {
        let slots = self.program.buffer(found.buffer).slots;
        // Any slot of them: all may be meant.
        let slabs =
            if found.slot.is_some() { vec![found.slab] } else { (0..slots).map(|slot| found.slab + slot).collect() };
        for id in slabs {
            let slab = self.slabs.get(id);
            let (space, base) = match slab.place {
                Some((space, address)) => (space, address),
                None => (self.slabs.by_place.len() as u32 + id, 0),
            };
            let runs = found.runs.iter().map(|(start, end)| (base + start, base + (*end).min(slab.bytes)));
            let runs: Vec<(u64, u64)> = runs.filter(|(start, end)| start < end).collect();
            if !runs.is_empty() {
                touches.push(Touch { space, runs: runs.into(), write, certain: found.certain, buffer: found.buffer });
            }
        }
    }

    fn unknown(&mut self, path: &mut Path, id: StepId, value: &Affine) -> Option<i64> {
        let known = path.values.affine(self.program, value);
        if known.is_none() {
            path.guessed = true;
            let why = "which event, token or flag it means is decided at run time: bind its inputs with --dim";
            self.findings.push(Severity::Doubt, Kind::OrderUnknown { step: id, why: why.into() });
        }
        known
    }

    fn sync(&mut self, path: &mut Path, id: StepId, sync: &Sync) -> bool {
        let core = self.cores.at(id.index());
        let (engine, work) = match sync {
            Sync::SetFlag { from, to, event } | Sync::WaitFlag { from, to, event } => {
                let (from, to) = (self.engine(core, from), self.engine(core, to));
                let Some(event) = self.unknown(path, id, event) else { return true };
                match sync {
                    Sync::SetFlag { .. } => (from, Work::Raise((from, to, event))),
                    _ => (to, Work::Wait((from, to, event))),
                }
            }
            Sync::Barrier(None) => (self.engine(core, "s"), Work::Barrier),
            // One engine in its own order: nothing new for the others.
            Sync::Barrier(Some(_)) => return true,
            Sync::Acquire { engine, token } | Sync::Release { engine, token } => {
                let engine = self.engine(core, engine);
                let Some(token) = self.unknown(path, id, token) else { return true };
                match sync {
                    Sync::Acquire { .. } => (engine, Work::Acquire(token, path.queues.given(token))),
                    _ => (engine, Work::Release(token)),
                }
            }
            Sync::Post { engine, flag } | Sync::Await { engine, flag } => {
                let engine = self.engine(core, engine);
                // In a program of one kind of core the other end is elsewhere: nothing is known of it.
                if !self.cores.both {
                    return true;
                }
                let Some(flag) = self.unknown(path, id, flag) else { return true };
                match self.cores.flag(core, flag, matches!(sync, Sync::Post { .. })) {
                    Some((to, flag, true)) => (engine, Work::Post(to, flag)),
                    Some((own, flag, false)) => (engine, Work::Await(own, flag)),
                    None => return true,
                }
            }
        };
        self.give(path, id, engine, work)
    }
}

fn scene<'a>(program: &'a Program, conditions: &'a Conditions, values: &'a Values) -> Scene<'a> {
    Scene { program, conditions, values }
}
