//! From a problem and its plan to the document.

use super::headline::headline;
use super::{
    AtPeak, BufferReport, Extras, FORMAT, KindTotal, LivePiece, PeakRow, Place, PlanReport, Pooled, SpaceReport,
    VERSION,
};
use crate::occupancy::{Rectangle, largest, live_curve, union};
use npumem_ir::plan::SpaceUse;
use npumem_ir::problem::Sizing;
use npumem_ir::{
    Buffer, BufferId, ByteRange, Bytes, Interval, Offset, Plan, Problem, Residency, SpaceId, Step, StepRange,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use thiserror::Error;

/// A plan that speaks of things that its problem does not have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BuildError {
    /// A residency or a pool entry of no buffer.
    #[error(
        "the plan names buffer {buffer}, and the problem has {count} buffers: check the plan against its problem first"
    )]
    UnknownBuffer {
        /// What the plan names.
        buffer: BufferId,
        /// How many the problem has.
        count: usize,
    },
    /// A residency in no space.
    #[error(
        "the plan places buffer {buffer} in {space}, and the problem has {count} spaces: check the plan against its problem first"
    )]
    UnknownSpace {
        /// Whose residency.
        buffer: BufferId,
        /// What the plan names.
        space: SpaceId,
        /// How many the problem has.
        count: usize,
    },
}

/// Some live bytes of a buffer at a place.
struct Piece {
    buffer: BufferId,
    offset: Offset,
    rectangle: Rectangle,
}

impl PlanReport {
    /// The document of a plan. Pure: the same arguments give the same document.
    ///
    /// # Errors
    /// When the plan names a buffer or a space that the problem does not have.
    pub fn build(problem: &Problem, plan: &Plan, mut extras: Extras) -> Result<PlanReport, BuildError> {
        check_ids(problem, plan)?;
        let mut residencies = plan.residencies.clone();
        residencies.sort_unstable();
        let bases: BTreeMap<BufferId, BufferId> =
            problem.constraints.colocated.iter().map(|place| (place.buffer, place.base)).collect();
        let mut buffers: Vec<BufferReport> =
            problem.buffers().map(|(id, buffer)| describe(buffer, bases.get(&id).copied())).collect();
        for residency in &residencies {
            let place = Place { space: residency.space, offset: residency.offset, steps: residency.steps };
            buffers[residency.buffer.index()].places.push(place);
        }
        let pooled = pool(problem, plan, &mut buffers);
        let spaces: Vec<SpaceReport> = (0..problem.spaces.len())
            .map(|index| space(problem, plan, SpaceId::new(index), &residencies, &bases))
            .collect();
        let unplaced: Vec<BufferId> = (buffers.iter().enumerate())
            .filter(|(_, buffer)| buffer.places.is_empty() && !buffer.pooled)
            .filter(|(_, buffer)| buffer.size > Bytes::ZERO && !buffer.live.is_empty())
            .map(|(index, _)| BufferId::new(index))
            .collect();
        extras.step_names.sort_unstable();
        extras.step_names.dedup_by_key(|named| named.step);
        let mut report = PlanReport {
            format: FORMAT.to_owned(),
            version: VERSION,
            problem: problem.name.clone(),
            device: plan.device.clone(),
            fits: unplaced.is_empty() && extras.infeasible.is_none() && spaces.iter().all(|space| space.fits),
            headline: String::new(),
            steps: hull(problem),
            spaces,
            buffers,
            moves: plan.moves.clone(),
            pooled,
            unplaced,
            origin: plan.origin.clone(),
            step_names: extras.step_names,
            totals: extras.totals,
            bounds: extras.bounds,
            strategies: extras.strategies,
            roofline: extras.roofline,
            hierarchy: extras.hierarchy,
            infeasible: extras.infeasible,
            goals: extras.goals,
            notes: extras.notes,
        };
        report.headline = headline(&report);
        Ok(report)
    }
}

fn check_ids(problem: &Problem, plan: &Plan) -> Result<(), BuildError> {
    let count = problem.buffers.len();
    let named = plan.residencies.iter().map(|residency| residency.buffer);
    let named = named.chain(plan.pooled.iter().copied()).chain(plan.moves.iter().map(|step| step.buffer));
    if let Some(buffer) = named.into_iter().find(|buffer| buffer.index() >= count) {
        return Err(BuildError::UnknownBuffer { buffer, count });
    }
    let count = problem.spaces.len();
    match plan.residencies.iter().find(|residency| residency.space.index() >= count) {
        Some(bad) => Err(BuildError::UnknownSpace { buffer: bad.buffer, space: bad.space, count }),
        None => Ok(()),
    }
}

fn describe(buffer: &Buffer, base: Option<BufferId>) -> BufferReport {
    BufferReport {
        name: buffer.name.clone(),
        size: buffer.size,
        sizing: buffer.sizing,
        kind: buffer.kind,
        producer: buffer.producer.clone(),
        live: buffer.live.iter().map(|range| LivePiece { steps: range.steps, window: range.window }).collect(),
        places: Vec::new(),
        base,
        pinned: buffer.pin.is_some(),
        pooled: false,
    }
}

fn hull(problem: &Problem) -> StepRange {
    let lifetimes = problem.buffers.iter().filter_map(Buffer::lifetime);
    lifetimes.reduce(|all, next| all.hull(&next)).unwrap_or(Interval { start: Step(0), end: Step(0) })
}

/// Marks the pooled buffers, and adds up what they can come to.
fn pool(problem: &Problem, plan: &Plan, buffers: &mut [BufferReport]) -> Pooled {
    let mut ids = plan.pooled.clone();
    ids.sort_unstable();
    ids.dedup();
    let mut events: Vec<(Step, bool, Bytes)> = Vec::new();
    for id in &ids {
        buffers[id.index()].pooled = true;
        let buffer = problem.buffer(*id);
        for range in &buffer.live {
            events.extend([(range.steps.start, true, buffer.size), (range.steps.end, false, buffer.size)]);
        }
    }
    // Ends sort before starts at the same step: `false < true`.
    events.sort_unstable();
    let (mut live, mut live_peak) = (0_u128, 0_u128);
    for (_, starts, size) in events {
        live = if starts { live + u128::from(size.0) } else { live.saturating_sub(u128::from(size.0)) };
        live_peak = live_peak.max(live);
    }
    let bounded = ids.iter().all(|id| problem.buffer(*id).sizing != Sizing::Unbounded);
    let total: Bytes = ids.iter().map(|id| problem.buffer(*id).size).sum();
    Pooled {
        buffers: ids,
        total: bounded.then_some(total),
        live_peak: bounded.then_some(Bytes(u64::try_from(live_peak).unwrap_or(u64::MAX))),
    }
}

fn space(
    problem: &Problem,
    plan: &Plan,
    id: SpaceId,
    residencies: &[Residency],
    bases: &BTreeMap<BufferId, BufferId>,
) -> SpaceReport {
    let here: Vec<&Residency> = residencies.iter().filter(|residency| residency.space == id).collect();
    let pieces: Vec<Piece> = here.iter().flat_map(|residency| pieces(problem, residency)).collect();
    let rectangles: Vec<Rectangle> = pieces.iter().map(|piece| piece.rectangle).collect();
    let curve = live_curve(&rectangles);
    let peak = largest(&curve);
    let mut members: Vec<BufferId> = here.iter().map(|residency| residency.buffer).collect();
    members.dedup();

    let description = problem.space(id);
    let end = |residency: &Residency| residency.offset.saturating_add(problem.buffer(residency.buffer).size.0);
    let highest = here.iter().copied().max_by_key(|residency| (end(residency), Reverse(residency.buffer)));
    let used = plan.spaces.get(id.index()).cloned().unwrap_or_else(|| SpaceUse {
        space: description.name.clone(),
        peak: highest.map_or(Bytes::ZERO, |residency| Bytes(end(residency).0)),
        lower_bound: Bytes::ZERO,
        bound_reason: "the plan states none".to_owned(),
        capacity: description.capacity,
    });
    let capacity = used.capacity.or(description.capacity);
    let limit = capacity.unwrap_or(Bytes::MAX).0;
    let within = |range: &ByteRange| Interval { start: range.start, end: range.end.min(Offset(limit)) };
    SpaceReport {
        name: description.name.clone(),
        capacity,
        alignment: description.alignment,
        reserved: description.reserved.clone(),
        reserved_bytes: union(description.reserved.iter().map(within)),
        buffers: members.len() as u64,
        total: members.iter().map(|buffer| problem.buffer(*buffer).size).sum(),
        live_peak: peak.map_or(Bytes::ZERO, |(_, live)| live),
        live_peak_step: peak.map(|(step, _)| step),
        peak: used.peak,
        peak_buffer: highest.map(|residency| residency.buffer),
        lower_bound: used.lower_bound,
        gap: Some(used.gap()).filter(|gap| gap.is_finite()),
        fits: used.peak.0 <= limit,
        over: used.peak.saturating_sub(limit),
        headroom: capacity.and_then(|capacity| capacity.checked_sub(used.peak.0)),
        bound_reason: used.bound_reason,
        at_peak: peak.map_or_else(AtPeak::default, |(step, live)| at_peak(problem, &pieces, step, live, bases)),
        curve,
    }
}

/// The live bytes of a buffer during one residency.
fn pieces<'a>(problem: &'a Problem, residency: &'a Residency) -> impl Iterator<Item = Piece> + 'a {
    let buffer = problem.buffer(residency.buffer);
    buffer.live.iter().filter_map(move |range| {
        let steps = range.steps.intersection(&residency.steps)?;
        let window = buffer.window(range);
        let at = |byte: Offset| residency.offset.saturating_add(byte.0);
        let bytes = Interval { start: at(window.start), end: at(window.end) };
        Some(Piece { buffer: residency.buffer, offset: residency.offset, rectangle: Rectangle { steps, bytes } })
    })
}

fn at_peak(
    problem: &Problem,
    pieces: &[Piece],
    step: Step,
    live: Bytes,
    bases: &BTreeMap<BufferId, BufferId>,
) -> AtPeak {
    let mut rows: Vec<PeakRow> = (pieces.iter())
        .filter(|piece| piece.rectangle.steps.contains(step) && !piece.rectangle.bytes.is_empty())
        .map(|piece| {
            let buffer = problem.buffer(piece.buffer);
            PeakRow {
                buffer: piece.buffer,
                name: buffer.name.clone(),
                bytes: piece.rectangle.bytes.size(),
                offset: piece.offset,
                kind: buffer.kind,
                producer: buffer.producer.clone(),
                base: bases.get(&piece.buffer).copied(),
            }
        })
        .collect();
    rows.sort_by_key(|row| (Reverse(row.bytes), row.offset, row.buffer));
    let sum: Bytes = rows.iter().map(|row| row.bytes).sum();
    let mut kinds = BTreeMap::new();
    for row in &rows {
        let total = kinds.entry(row.kind).or_insert(KindTotal { kind: row.kind, count: 0, bytes: Bytes::ZERO });
        total.count += 1;
        total.bytes = total.bytes.saturating_add(row.bytes.0);
    }
    let mut by_kind: Vec<KindTotal> = kinds.into_values().collect();
    by_kind.sort_by_key(|total| (Reverse(total.bytes), total.kind));
    AtPeak { sum, shared: sum.saturating_sub(live.0), rows, by_kind }
}
