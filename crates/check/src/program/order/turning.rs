//! Turns of loops: who takes one more, who leaves, and from when on they repeat.

use super::super::bound::{Bound, forget_decisions};
use super::super::known::Guess;
use super::super::loops::MAX_MULTIPLES;
use super::super::moves::Moves;
use super::{Mark, Path, Walk, scene};
use npumem_ir::program::{Affine, Values};
use npumem_ir::{ScalarId, StepId};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Of too many paths, those that are kept apart when the rest is united.
const KEPT_PATHS: usize = 8;

impl Walk<'_> {
    /// A way out of a loop after turns that nobody can count.
    pub(super) fn uncounted_end(&mut self, path: Path, free: bool, id: StepId) -> Path {
        if free {
            return path;
        }
        if self.guess.is_none() {
            self.guess = Some((Guess { first: id.index(), second: id.index() }, Vec::new()));
        }
        Path { guessed: true, ..path }
    }

    /// The paths that take one more turn, those that leave, and those as they were before.
    pub(super) fn ends(
        &mut self,
        open: &Bound<'_>,
        heads: Vec<Path>,
        now: i64,
        turn: (usize, bool),
    ) -> (Vec<Path>, Vec<Path>, Vec<Path>) {
        let (mut on, mut ends, mut leaving) = (Vec::new(), Vec::new(), Vec::new());
        for path in heads {
            let scene = scene(self.program, &self.conditions, &path.values);
            let (more, none) = open.ends(scene, &path.known, now, turn);
            let at = open.id.index();
            on.extend(more.into_iter().filter_map(|(known, guess)| self.decided(&path, known, guess, at)));
            let before = ends.len();
            ends.extend(none.into_iter().filter_map(|(known, guess)| self.decided(&path, known, guess, at)));
            if ends.len() > before {
                leaving.push(path);
            }
        }
        (on, ends, leaving)
    }

    /// Turns up to `now` are passed over: those who are there have a bound beyond.
    pub(super) fn put_off(&self, open: &Bound<'_>, heads: Vec<Path>, now: i64) -> Vec<Path> {
        let mut out = Vec::new();
        for path in heads {
            let known = open.beyond(scene(self.program, &self.conditions, &path.values), &path.known, now);
            out.extend(known.into_iter().map(|known| Path { known, ..path.clone() }));
        }
        out
    }

    pub(super) fn forget_decisions(&self, range: (StepId, usize), kept: &BTreeSet<ScalarId>, heads: &mut [Path]) {
        for path in heads {
            forget_decisions(scene(self.program, &self.conditions, &path.values), &mut path.known, range, kept);
        }
    }

    /// Paths in one state are one, whatever they decided: the first ones stay, so that what is found on them is certain.
    pub(super) fn widen(&mut self, paths: Vec<(Path, Mark)>, at: usize) -> Vec<Path> {
        let mut out: Vec<(Path, Mark)> = Vec::new();
        for (path, mark) in paths {
            let same = out.iter_mut().skip(KEPT_PATHS).find(|(_, other)| other.alike(&mark));
            match same {
                Some((kept, _)) => {
                    let scene = scene(self.program, &self.conditions, &path.values);
                    kept.known.widen(scene, &path.known, at);
                    kept.guessed = true;
                    self.guess.get_or_insert_with(|| (Guess { first: at, second: at }, Vec::new()));
                }
                None => out.push((path, mark)),
            }
        }
        out.into_iter().map(|(path, _)| path).collect()
    }

    pub(super) fn moves_of(&mut self, id: StepId) -> Rc<Moves> {
        let found = || Rc::new(Moves::of(self.program, self.structure, &self.conditions, id));
        Rc::clone(self.moves.entry(id.index()).or_insert_with(found))
    }

    /// The distance in turns at which the last state repeats an earlier one, nothing changing between.
    pub(super) fn repeats(
        &self,
        history: &[(i64, Vec<Mark>)],
        period: usize,
        changes: &[i64],
        (moves, turn, stop): (&Moves, usize, Option<&Affine>),
        values: &Values,
    ) -> Option<usize> {
        let (now, heads) = history.last()?;
        let scene = scene(self.program, &self.conditions, values);
        distances(history, period, changes).find(|distance| {
            let (then, earlier) = &history[history.len() - 1 - distance];
            let stop = stop.map(|stop| (stop, now.saturating_sub(*then)));
            earlier.len() == heads.len()
                && earlier.iter().zip(heads).all(|(a, b)| {
                    a.alike(b)
                        && b.known.within(scene, &a.known, &moves.with_counter, stop)
                        && moves.stands(scene, (&a.known, &b.known), turn)
                })
        })
    }
}

impl Mark {
    /// The same, whatever was decided on the way.
    pub(super) fn alike(&self, other: &Mark) -> bool {
        self.values == other.values && self.handles == other.handles && self.shape == other.shape
    }
}

/// Whether the states of the last turn are all among those of an earlier one and the other way round, whatever was
/// decided on the way.
pub(super) fn repeats_but_for_decisions(history: &[(i64, Vec<Mark>)], period: usize, changes: &[i64]) -> bool {
    let Some((_, heads)) = history.last() else { return false };
    distances(history, period, changes).any(|distance| {
        let (_, earlier) = &history[history.len() - 1 - distance];
        let among = |a: &[Mark], b: &[Mark]| a.iter().all(|one| b.iter().any(|other| one.alike(other)));
        among(earlier, heads) && among(heads, earlier)
    })
}

/// Distances, in turns, at which a state may repeat: whole periods without a change between.
pub(in super::super) fn distances<'h, T>(
    history: &'h [(i64, T)],
    period: usize,
    changes: &'h [i64],
) -> impl Iterator<Item = usize> + 'h {
    let now = history.last().map_or(0, |last| last.0);
    (1..=MAX_MULTIPLES).map(move |multiple| multiple * period).take_while(|distance| *distance < history.len()).filter(
        move |distance| {
            let then = history[history.len() - 1 - distance].0;
            !changes.iter().any(|change| *change > then && *change <= now)
        },
    )
}
