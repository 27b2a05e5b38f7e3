//! Wherever a buffer is needed, some place holds its current bytes.
//!
//! A value is born where the buffer lies when a span of its live steps begins, and spreads only by moves:
//!
//! ```text
//!   HBM  |=======x========|            born here at step 0
//!               \ move [4, 6)
//!   UB           |====x====|           holds x from step 6 on, not before
//! ```

use crate::{Found, Violation};
use npumem_ir::problem::{Access, Location};
use npumem_ir::{Buffer, BufferId, Interval, Move, Offset, Plan, Problem, Residency, Step, StepRange};

pub(crate) fn check(problem: &Problem, plan: &Plan, found: &mut Found<'_>) {
    let mut moves: Vec<&Move> = plan.moves.iter().collect();
    moves.sort_by_key(|moved| (moved.buffer, moved.steps.end, moved.steps.start));
    let mut pooled = plan.pooled.clone();
    pooled.sort_unstable();
    for (id, buffer) in problem.buffers() {
        let places = plan.residencies_of(id);
        let first = moves.partition_point(|moved| moved.buffer < id);
        let own: Vec<&Move> = moves[first..].iter().copied().take_while(|moved| moved.buffer == id).collect();
        if places.is_empty() && pooled.binary_search(&id).is_ok() {
            continue;
        }
        // A buffer of no bytes has nothing to hold.
        if buffer.size.0 == 0 && places.is_empty() {
            continue;
        }
        endpoints(id, places, &own, found);
        for span in spans(buffer) {
            one_span(id, buffer, span, places, &own, found);
        }
    }
}

/// Live ranges that touch are one value; a gap between two ends it.
fn spans(buffer: &Buffer) -> Vec<StepRange> {
    let mut spans: Vec<StepRange> = Vec::new();
    for live in &buffer.live {
        match spans.last_mut() {
            Some(last) if live.steps.start <= last.end => last.end = last.end.max(live.steps.end),
            _ => spans.push(live.steps),
        }
    }
    spans
}

fn at(places: &[Residency], location: Location, steps: &StepRange) -> Option<usize> {
    places.iter().position(|place| place.location() == location && place.steps.covers(steps))
}

fn endpoints(id: BufferId, places: &[Residency], moves: &[&Move], found: &mut Found<'_>) {
    for moved in moves {
        for (location, source) in [(moved.from, true), (moved.to, false)] {
            if at(places, location, &moved.steps).is_none() {
                let place = (found.space(location.space), location.offset);
                found.push(Violation::MoveOffPlace { buffer: found.name(id), steps: moved.steps, place, source });
            }
        }
    }
}

/// Follows one value from its birth through its moves, in the order of steps.
fn one_span(
    id: BufferId,
    buffer: &Buffer,
    span: StepRange,
    places: &[Residency],
    moves: &[&Move],
    found: &mut Found<'_>,
) {
    let named = |found: &Found<'_>, place: &Residency| -> (String, Offset) { (found.space(place.space), place.offset) };
    let filled = |place: &Residency| {
        moves.iter().any(|moved| {
            moved.to == place.location() && place.steps.covers(&moved.steps) && span.contains(moved.steps.start)
        })
    };
    // From which step on each place holds the value; `None` where it never does.
    let mut valid: Vec<Option<Step>> = vec![None; places.len()];
    let mut born: Option<usize> = None;
    for (index, place) in places.iter().enumerate() {
        if place.steps.overlaps(&span) && !filled(place) {
            match born {
                None if place.steps.start <= span.start => {
                    born = Some(index);
                    valid[index] = Some(span.start);
                }
                None => {}
                Some(other) => {
                    let (place_at, other_at) = (named(found, place), named(found, &places[other]));
                    let steps = place.steps;
                    let buffer = found.name(id);
                    found.push(Violation::CopyWithoutMove { buffer, place: place_at, steps, other: other_at });
                }
            }
        }
    }
    for moved in moves.iter().filter(|moved| span.contains(moved.steps.start)) {
        let (Some(from), Some(to)) = (at(places, moved.from, &moved.steps), at(places, moved.to, &moved.steps)) else {
            continue;
        };
        match valid[from] {
            Some(since) if since <= moved.steps.start => {
                valid[to] = Some(valid[to].map_or(moved.steps.end, |since| since.min(moved.steps.end)));
            }
            _ => {
                let place = named(found, &places[from]);
                found.push(Violation::MoveOfStale { buffer: found.name(id), steps: moved.steps, place });
            }
        }
    }
    let held = |step: Step| {
        places
            .iter()
            .zip(&valid)
            .filter(move |(place, since)| place.steps.contains(step) && since.is_some_and(|since| since <= step))
            .map(|(place, _)| place)
    };
    uses(id, buffer, span, places, &valid, found);
    for write in buffer.uses.iter().filter(|one| one.access == Access::Write && span.contains(one.step)) {
        let mut holders = held(write.step);
        if let (Some(first), Some(second)) = (holders.next(), holders.next()) {
            let (first, second) = (named(found, first), named(found, second));
            let steps = Interval { start: write.step, end: Step(write.step.0.saturating_add(1)) };
            found.push(Violation::WrittenTwice { buffer: found.name(id), steps, first, second });
        }
    }
}

/// Every live step of the span is held; with uses listed, every used one.
fn uses(
    id: BufferId,
    buffer: &Buffer,
    span: StepRange,
    places: &[Residency],
    valid: &[Option<Step>],
    found: &mut Found<'_>,
) {
    let mut held: Vec<StepRange> = places
        .iter()
        .zip(valid)
        .filter_map(|(place, since)| {
            since.and_then(|since| Interval::new(place.steps.start.max(since), place.steps.end))
        })
        .collect();
    held.sort_unstable();
    // The steps of the span that no place holds.
    let mut missing: Vec<StepRange> = Vec::new();
    let mut next = span.start;
    for range in held {
        if range.start > next && next < span.end {
            missing.push(Interval { start: next, end: range.start.min(span.end) });
        }
        next = next.max(range.end);
    }
    if next < span.end {
        missing.push(Interval { start: next, end: span.end });
    }
    for steps in missing {
        let used = buffer.uses.is_empty() || buffer.uses.iter().any(|one| steps.contains(one.step));
        if used {
            found.push(Violation::NoValidCopy { buffer: found.name(id), steps });
        }
    }
}
