//! Loops of the run: every turn until turns repeat, and what each way out says of the bound.

use super::bound::{Bound, SETTLING_TURNS, forget_decisions, leave};
use super::finding::{Kind, Place, Severity, Unseen};
use super::known::{Guess, Known};
use super::moves::Moves;
use super::order::distances;
use super::run::{Path, Runner, scene};
use super::turns::MAX_PERIOD;
use npumem_ir::program::{Affine, Step};
use npumem_ir::{ScalarId, StepId};
use std::collections::BTreeSet;
use std::rc::Rc;

/// A state may come back after so many periods (a carried value turns at its own pace).
pub(super) const MAX_MULTIPLES: usize = 8;
/// Turns of a loop without a known bound whose turns never provably repeat.
const MAX_OPEN_TURNS: usize = 64;
/// Turns of a loop without a counter before differences become unknown.
const MAX_WHILE_TURNS: usize = 512;

impl Runner<'_> {
    /// A counted loop from one path.
    pub fn counted(
        &mut self,
        id: StepId,
        (counter, start, stop_sum, by): (ScalarId, &Affine, &Affine, &Affine),
        end: usize,
        path: Path,
    ) -> Vec<Path> {
        let outer = path.context.clone();
        let before = path.values.stored(counter);
        let value = |affine: &Affine| path.values.affine(self.program, affine);
        // How often it turns at least and at most, where the number itself is not known.
        let (least, most_turns) = path.values.range(self.program, stop_sum);
        let (start_at, stop, by) = (value(start), value(stop_sum), value(by));
        // Steps are positive: where only one fits, it does not matter how long it is.
        let one = by.is_none() && stop.zip(start_at).is_some_and(|(stop, start)| stop.saturating_sub(start) <= 1);
        let by = if one { Some(1) } else { by.filter(|by| *by > 0) };
        let turns = self.turns_of(id);
        let (Some(mut now), Some(by)) = (start_at, by) else {
            return self.any_turns(id, (counter, &stop_sum.minus(start)), end, path, before);
        };
        let open = match stop {
            Some(_) => None,
            None => {
                let scene = scene(self.program, &self.conditions, &path.values);
                Bound::of(scene, &path.known, id, stop_sum, now.saturating_add(by))
            }
        };
        // What is decided in a turn is no longer remembered in the next.
        let mut forgetting = false;
        let mut after: Vec<Path> = Vec::new();
        let mut heads = vec![path];
        let moves = self.moves_of(id);
        let changes = turns.changes(|rest| heads[0].values.affine(self.program, rest));
        let period = moves.period(turns.period);
        let mut history: Vec<(i64, Vec<Path>)> = Vec::new();
        // Who may leave in a later turn as in this one.
        let mut leaving: Vec<(i64, Vec<Path>)> = Vec::new();
        let mut turn = 0_usize;
        loop {
            if stop.or(most_turns).is_some_and(|stop| now >= stop) {
                after.extend(heads);
                break;
            }
            if stop.is_none() {
                let may_end = least.is_none_or(|least| now >= least);
                let ends = match &open {
                    Some(open) => {
                        let forgets = forgetting && !moves.kept.contains(&open.group);
                        let (on, ends) = self.ends(open, &heads, now, (turn, forgets));
                        // Where no condition follows the counter, it does not matter in which turn one leaves.
                        leaving.push(match moves.with_counter.contains(&open.group) {
                            true => (now, ends.iter().map(|(from, _)| heads[*from].clone()).collect()),
                            false => (now, on.clone()),
                        });
                        heads = on;
                        ends.into_iter().map(|(_, path)| path).collect()
                    }
                    None => heads.clone(),
                };
                if leaving.len() > MAX_PERIOD as usize {
                    leaving.remove(0);
                }
                if may_end {
                    after.extend(ends);
                    after = self.unite(after, end);
                }
                if heads.is_empty() {
                    break;
                }
            }
            if let Some(period) = period {
                history.push((now, heads.clone()));
                if history.len() > period * MAX_MULTIPLES + 1 {
                    history.remove(0);
                }
                if let Some(distance) = self.repeats(&history, period, &changes, (&moves, turn, open.as_ref())) {
                    // Every turn before the next change repeats one of the last `distance`.
                    let next = changes.iter().copied().find(|change| *change > now);
                    let limit = match (next, stop) {
                        (Some(next), Some(stop)) => next.min(stop),
                        (Some(limit), None) | (None, Some(limit)) => limit,
                        (None, None) => {
                            if least.is_some_and(|least| now < least) {
                                // It ends later, in one of the states that come again and again.
                                after.extend(history.iter().flat_map(|(_, paths)| paths.iter().cloned()));
                            }
                            if let Some(open) = &open {
                                let stride = by.saturating_mul(i64::try_from(distance).unwrap_or(i64::MAX));
                                for (then, paths) in leaving.iter().rev().take(distance) {
                                    after.extend(paths.iter().map(|path| self.later(open, path, (*then, stride), by)));
                                }
                            }
                            break;
                        }
                    };
                    let stride = i64::try_from(distance).unwrap_or(i64::MAX).saturating_mul(by);
                    let jump = limit.saturating_sub(now) / stride.max(1);
                    if jump > 0 {
                        if let Some(open) = &open {
                            heads = self.put_off(open, heads, now.saturating_add(jump.saturating_mul(stride)));
                        }
                        now += jump * stride;
                        history.clear();
                        continue;
                    }
                } else if !forgetting
                    && turn >= SETTLING_TURNS
                    && self.repeats_but_for_decisions(&history, period, &changes)
                {
                    // Only what is known grows: from here on it is forgotten with every turn.
                    forgetting = true;
                    history.clear();
                    self.forget_decisions((id, end), &moves.kept, &mut heads);
                    heads = self.unite(heads, id.index());
                }
            }
            turn += 1;
            self.budget = self.budget.saturating_sub(1);
            let most = MAX_OPEN_TURNS.max(period.unwrap_or(1).saturating_mul(2 * MAX_MULTIPLES));
            if self.budget == 0 || stop.or(most_turns).is_none() && turn > most {
                let why = match (self.budget, turns.period, moves.stay()) {
                    (0, ..) => Unseen::Work,
                    (_, None, _) => Unseen::FollowsCounter,
                    (_, _, true) => Unseen::Conditions,
                    _ => Unseen::NoRepeat,
                };
                self.findings.push(Severity::Doubt, Kind::Budget { step: id, why });
                after.extend(heads);
                break;
            }
            let context = Some(Rc::new(Place::Turn(counter, Some(now), outer.clone())));
            for path in &mut heads {
                path.values.set(counter, Some(now));
                path.context.clone_from(&context);
                self.turn(path, Some(counter), (id.index(), end));
            }
            heads = self.block(id.index() + 1, end, heads);
            if forgetting {
                self.forget_decisions((id, end), &moves.kept, &mut heads);
            }
            heads = self.unite(heads, id.index());
            match now.checked_add(by) {
                Some(next) => now = next,
                None => {
                    after.extend(heads);
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

    /// The paths that take one more turn, and those that leave, each with the number of the one that it was.
    fn ends(&self, open: &Bound<'_>, heads: &[Path], now: i64, turn: (usize, bool)) -> (Vec<Path>, Vec<(usize, Path)>) {
        let (mut on, mut ends) = (Vec::new(), Vec::new());
        for (index, path) in heads.iter().enumerate() {
            let scene = scene(self.program, &self.conditions, &path.values);
            let (more, none) = open.ends(scene, &path.known, now, turn);
            let with = |(known, guess): (Known, Option<Guess>)| Path {
                known,
                guessed: path.guessed.or(guess),
                ..path.clone()
            };
            on.extend(more.into_iter().map(with));
            ends.extend(none.into_iter().map(|way| (index, with(way))));
        }
        (on, ends)
    }

    /// Turns up to `now` are passed over: those who are there have a bound beyond.
    fn put_off(&self, open: &Bound<'_>, heads: Vec<Path>, now: i64) -> Vec<Path> {
        let mut out = Vec::new();
        for path in heads {
            let known = open.beyond(scene(self.program, &self.conditions, &path.values), &path.known, now);
            out.extend(known.into_iter().map(|known| Path { known, ..path.clone() }));
        }
        out
    }

    /// A path that leaves some strides later.
    fn later(&self, open: &Bound<'_>, path: &Path, at: (i64, i64), by: i64) -> Path {
        let (known, guess) = open.leave_later(scene(self.program, &self.conditions, &path.values), &path.known, at, by);
        Path { known, guessed: path.guessed.or(guess), ..path.clone() }
    }

    /// A new turn: what follows from its counter is another value.
    fn turn(&self, path: &mut Path, counter: Option<ScalarId>, range: (usize, usize)) {
        if !path.known.is_empty() {
            path.known.turn(scene(self.program, &self.conditions, &path.values), counter, range);
        }
    }

    /// Forgets what the loop at `id..end` decides of groups that it asks in every turn.
    fn forget_decisions(&self, range: (StepId, usize), kept: &BTreeSet<ScalarId>, heads: &mut [Path]) {
        for path in heads {
            forget_decisions(scene(self.program, &self.conditions, &path.values), &mut path.known, range, kept);
        }
    }

    /// The distance in turns at which the last state repeats an earlier one, nothing changing between.
    fn repeats(
        &self,
        history: &[(i64, Vec<Path>)],
        period: usize,
        changes: &[i64],
        (moves, turn, open): (&Moves, usize, Option<&Bound<'_>>),
    ) -> Option<usize> {
        let (now, heads) = history.last()?;
        distances(history, period, changes).find(|distance| {
            let (then, earlier) = &history[history.len() - 1 - distance];
            let stop = open.map(|open| (open.stop, now.saturating_sub(*then)));
            heads.iter().all(|now| {
                let scene = scene(self.program, &self.conditions, &now.values);
                earlier.iter().any(|then| {
                    self.alike(then, now)
                        && now.known.within(scene, &then.known, &moves.with_counter, stop)
                        && moves.stands(scene, (&then.known, &now.known), turn)
                })
            })
        })
    }

    /// Whether the states of the last turn are all among those of an earlier one and the other way round, whatever was
    /// decided on the way.
    fn repeats_but_for_decisions(&self, history: &[(i64, Vec<Path>)], period: usize, changes: &[i64]) -> bool {
        let Some((_, heads)) = history.last() else { return false };
        distances(history, period, changes).any(|distance| {
            let (_, earlier) = &history[history.len() - 1 - distance];
            let among = |a: &[Path], b: &[Path]| a.iter().all(|one| b.iter().any(|other| self.alike(one, other)));
            among(earlier, heads) && among(heads, earlier)
        })
    }

    /// The same paths, whatever their histories.
    fn same(&self, a: &[Path], b: &[Path]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.alike(a, b) && a.known == b.known)
    }

    /// A loop whose first value or step is unknown: any number of turns with an unknown counter. `length` is what lies
    /// between its bounds.
    fn any_turns(
        &mut self,
        id: StepId,
        (counter, length): (ScalarId, &Affine),
        end: usize,
        path: Path,
        before: Option<i64>,
    ) -> Vec<Path> {
        let outer = path.context.clone();
        let (heads, none) = self.any_or_none(id, length, path);
        let context = Some(Rc::new(Place::Turn(counter, None, outer.clone())));
        let mut all: Vec<Path> = Vec::new();
        let mut heads = heads;
        while !heads.is_empty() {
            for path in &mut heads {
                path.values.set(counter, None);
                path.context.clone_from(&context);
                self.turn(path, Some(counter), (id.index(), end));
            }
            heads = self.block(id.index() + 1, end, heads);
            for path in &mut heads {
                path.context.clone_from(&outer);
                path.values.set(counter, before);
            }
            self.forget_decisions((id, end), &BTreeSet::new(), &mut heads);
            self.budget = self.budget.saturating_sub(1);
            let mut joined = all.clone();
            joined.extend(heads.iter().cloned());
            let joined = self.unite(joined, id.index());
            if self.budget == 0 {
                self.findings.push(Severity::Doubt, Kind::Budget { step: id, why: Unseen::Work });
            }
            let done = self.same(&joined, &all) || self.budget == 0;
            all = joined;
            if done {
                break;
            }
            heads.clone_from(&all);
        }
        all.extend(none);
        self.unite(all, end)
    }

    /// The paths that enter a loop of this length, and those that pass it by.
    fn any_or_none(&self, id: StepId, length: &Affine, path: Path) -> (Vec<Path>, Vec<Path>) {
        match path.values.affine(self.program, length) {
            Some(length) if length > 0 => (vec![path], Vec::new()),
            Some(_) => (Vec::new(), vec![path]),
            None => {
                let sides =
                    path.known.decide_above(scene(self.program, &self.conditions, &path.values), length, id.index());
                let side = |known| Path { known, guessed: path.guessed.or(sides.guess), ..path.clone() };
                (sides.yes.into_iter().map(side).collect(), sides.no.into_iter().map(side).collect())
            }
        }
    }

    /// A loop that leaves by a condition.
    pub fn uncounted(&mut self, id: StepId, end: usize, paths: Vec<Path>) -> Vec<Path> {
        let outer = paths.first().and_then(|path| path.context.clone());
        let leaves: Vec<usize> = (id.index() + 1..end)
            .filter(|at| {
                matches!(self.program.steps[*at], Step::Leave(_)) && self.structure.parent(StepId::new(*at)) == Some(id)
            })
            .collect();
        let mut after: Vec<Path> = Vec::new();
        let mut all: Vec<Path> = Vec::new();
        let mut heads = paths;
        let mut turn = 0;
        while !heads.is_empty() {
            let mut joined = all.clone();
            joined.extend(heads.iter().cloned());
            let mut joined = self.unite(joined, id.index());
            if turn >= MAX_WHILE_TURNS && joined.len() > 1 {
                joined = vec![self.widen(joined, id.index())];
                heads.clone_from(&joined);
            }
            if self.same(&joined, &all) {
                break;
            }
            all = joined;
            self.budget = self.budget.saturating_sub(1);
            if self.budget == 0 {
                self.findings.push(Severity::Doubt, Kind::Budget { step: id, why: Unseen::Work });
                after.extend(heads);
                break;
            }
            let context = Some(Rc::new(Place::Round(id, turn as u64, outer.clone())));
            for path in &mut heads {
                path.context.clone_from(&context);
                self.turn(path, None, (id.index(), end));
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
                        None => self.leave(*leave, condition, path, &mut stay, &mut after),
                    }
                }
                heads = stay;
                from = leave + 1;
            }
            heads = self.block(from, end, heads);
            if turn > 0 {
                self.forget_decisions((id, end), &BTreeSet::new(), &mut heads);
            }
            heads = self.unite(heads, id.index());
            turn += 1;
        }
        for path in &mut after {
            path.context.clone_from(&outer);
        }
        self.unite(after, end)
    }

    /// An unknown way out: a path may take it unless it has decided otherwise. How often it stayed is not remembered.
    fn leave(&self, at: usize, condition: &Affine, path: Path, stay: &mut Vec<Path>, after: &mut Vec<Path>) {
        let scene = scene(self.program, &self.conditions, &path.values);
        let (yes, no, known, guess) = leave(scene, &self.conditions, &path.known, condition, at);
        let path = Path { known, guessed: path.guessed.or(guess), ..path };
        match (yes, no) {
            (true, true) => {
                after.push(path.clone());
                stay.push(path);
            }
            (true, false) => stay.push(path),
            (false, true) => after.push(path),
            (false, false) => {}
        }
    }
}
