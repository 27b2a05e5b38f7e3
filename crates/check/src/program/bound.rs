//! The bound of a loop where nobody knows it and other steps ask for it too: what each way out says of it.
//!
//! ```text
//!   for i = 0 to n       passed by: n <= 0      after one turn: n = 1      after more: n >= 2, and no more is said
//! ```

use super::conditions::Conditions;
use super::known::{Example, Guess, Known, Scene};
use npumem_ir::program::Affine;
use npumem_ir::{ScalarId, StepId};
use std::collections::BTreeSet;

/// Ways out that are told apart by their number of turns: none, one, more.
const TOLD_APART: usize = 2;
/// Turns in which what is known may begin to follow the counter before it is forgotten.
pub(super) const SETTLING_TURNS: usize = 4;

/// How far ahead a run is looked for that leaves.
const LATER_STRIDES: i64 = 3;

/// What a way knows, and whether it is a guess.
type Way = (Known, Option<Guess>);

/// The bound of one loop, entered from one path.
pub(super) struct Bound<'a> {
    pub id: StepId,
    pub stop: &'a Affine,
    pub group: ScalarId,
    /// What was known before the loop.
    entry: Known,
    /// What every way out after more than [`TOLD_APART`] turns knows of the bound.
    coarse: Option<Known>,
}

impl<'a> Bound<'a> {
    /// `None` where nothing else asks for what the bound follows from; `second` is the counter of the second turn.
    pub fn of(scene: Scene<'_>, known: &Known, id: StepId, stop: &'a Affine, second: i64) -> Option<Self> {
        let group = scene.conditions.group_of(scene.program, scene.values, stop)?;
        if !scene.conditions.is_asked_again(group) {
            return None;
        }
        let sides = known.decide_above(scene, &less(stop, second), id.index());
        Some(Bound { id, stop, group, entry: known.clone(), coarse: sides.yes.into_iter().next() })
    }

    /// What those know that take one more turn, and those that leave, each with whether that is a guess.
    pub fn ends(
        &self,
        scene: Scene<'_>,
        known: &Known,
        now: i64,
        (turn, forgetting): (usize, bool),
    ) -> (Vec<Way>, Vec<Way>) {
        let mut sides = known.decide_above(scene, &less(self.stop, now), self.id.index());
        if forgetting {
            sides.yes.iter_mut().for_each(|on| on.clone_from(known));
        }
        let with_guess = |known: Known| (known, sides.guess);
        let late = |known: Known| {
            let guess = match known.example(scene) {
                Example::Impossible => return None,
                Example::Found(_) => None,
                Example::Unclear => Some(self.guess()),
            };
            Some((self.late(scene, known), sides.guess.or(guess)))
        };
        let none = match turn >= TOLD_APART {
            true => sides.no.into_iter().filter_map(late).collect(),
            false => sides.no.into_iter().map(with_guess).collect(),
        };
        (sides.yes.into_iter().map(with_guess).collect(), none)
    }

    /// What those know that are in a turn with this counter after turns were passed over: their bound lies beyond.
    pub fn beyond(&self, scene: Scene<'_>, known: &Known, now: i64) -> Vec<Known> {
        known.decide_above(scene, &less(self.stop, now), self.id.index()).yes
    }

    /// What is remembered of leaving after some turn or other.
    fn late(&self, scene: Scene<'_>, mut known: Known) -> Known {
        known.back_to(scene, self.coarse.as_ref().unwrap_or(&self.entry), self.group, self.id.index());
        known
    }

    /// What those know that leave some strides later as one leaves now who knew `known` then. Where no run is found that
    /// does, that is a guess.
    pub fn leave_later(&self, scene: Scene<'_>, known: &Known, (now, stride): (i64, i64), by: i64) -> Way {
        let leaves_at = |strides: i64| {
            let on = stride.saturating_mul(strides);
            let at = now.saturating_add(on);
            let shown = |known: Known| matches!(known.example(scene), Example::Found(_));
            let leaving = |known: &Known| known.decide_above(scene, &less(self.stop, at), self.id.index()).no;
            // What is known of the bound may have moved along, or may hold for all turns.
            let known = [Some(known.clone()), known.moved(scene, self.stop, on)];
            let there = known.iter().flatten().flat_map(|known| self.beyond(scene, known, at.saturating_sub(by)));
            there.collect::<Vec<_>>().iter().flat_map(leaving).any(shown)
        };
        let shown = (1..=LATER_STRIDES).any(leaves_at);
        (self.late(scene, known.clone()), (!shown).then(|| self.guess()))
    }

    fn guess(&self) -> Guess {
        Guess { first: self.id.index(), second: self.id.index() }
    }
}

fn less(stop: &Affine, now: i64) -> Affine {
    stop.plus(&Affine::constant(now).times(-1))
}

/// Forgets what the loop at `id..end` decides of groups that it asks in every turn, but for those that turns must know.
pub(super) fn forget_decisions(
    scene: Scene<'_>,
    known: &mut Known,
    (id, end): (StepId, usize),
    kept: &BTreeSet<ScalarId>,
) {
    for group in scene.conditions.asked_in(id.index(), end) {
        if !kept.contains(&group) && scene.conditions.is_kept(group) {
            known.without(scene, group, id.index());
        }
    }
}

/// An unknown way out of a loop: whether a path may stay, may leave, and what it knows then. How often it stayed is not
/// remembered.
pub(super) fn leave(
    scene: Scene<'_>,
    conditions: &Conditions,
    known: &Known,
    condition: &Affine,
    at: usize,
) -> (bool, bool, Known, Option<Guess>) {
    let sides = known.decide(scene, condition, at);
    let (stays, leaves) = (!sides.yes.is_empty(), !sides.no.is_empty());
    let group = conditions.group_of(scene.program, scene.values, condition);
    // A loop that was gone round before asks of another moment: only what other steps forgot counts.
    let own = group.is_some_and(|group| known.blurred_at(group) == Some(at));
    let mut known = known.clone();
    if let Some(group) = group.filter(|group| stays && leaves && conditions.is_asked_again(*group)) {
        known.blur(scene, group, at);
    }
    (stays, leaves, known, sides.guess.filter(|_| !own))
}
