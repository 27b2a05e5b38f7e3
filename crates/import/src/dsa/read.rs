//! A dsa-problem, read.

use super::{Document, EXCLUSIVE, Envelope, PoolExtra, TERMS, parse, wire};
use crate::error::{ErrorKind, ImportError, quoted};
use npumem_ir::interval::Interval;
use npumem_ir::problem::{Colocation, Constraints, Goal, LiveRange, Location, ReusePenalty, Separation};
use npumem_ir::{Alignment, Buffer, BufferId, Bytes, Offset, Problem, Space, SpaceId, StepRange};
use std::collections::{HashMap, HashSet};

/// A pin that nothing else may touch becomes one separation from every other buffer: at most this many in all.
const MAX_EXCLUSIVE_PAIRS: usize = 1_000_000;

/// Reads a problem.
///
/// # Errors
/// What is not as the schema has it, with line and character; ids that nothing has; a contradiction, with its path.
pub fn read(bytes: &[u8]) -> Result<Document, ImportError> {
    let document = parse::<wire::Document>(bytes, |document| document.schema_version)?;
    let foreign = document.problem;
    let ids = Ids::new(&foreign)?;
    let mut problem = Problem { name: document.instance, ..Problem::default() };
    let mut seen = HashSet::new();
    for (index, pool) in foreign.pools.iter().enumerate() {
        problem.spaces.push(space(index, pool, &mut seen)?);
    }
    for (index, entry) in foreign.buffers.iter().enumerate() {
        problem.buffers.push(buffer(index, entry, &ids)?);
    }
    problem.goals = goals(&foreign.objective)?;
    problem.constraints = constraints(&foreign, &ids)?;
    let exclusive = pins(&foreign.constraints.pinned_allocations, &ids, &mut problem)?;
    // What can be read but not satisfied is for the planner to answer.
    if let Some(error) = problem.validate().iter().find(|error| !error.kind.is_contradiction()) {
        let found = format!("a contradiction: {}", error.kind);
        return Err(ImportError::new(ErrorKind::Inconsistent, error.item.to_string()).found(found));
    }
    let envelope = Envelope {
        relaxed_from: document.relaxed_from,
        relaxed_features: document.relaxed_features,
        pools: foreign
            .pools
            .into_iter()
            .map(|pool| PoolExtra { id: pool.id, name: pool.name, banks: pool.bank_geometry })
            .collect(),
        buffer_ids: foreign.buffers.iter().map(|buffer| buffer.id).collect(),
        exclusive,
        has_cost_model: foreign.cost_model.is_some(),
        structure: foreign.pypto_structure,
    };
    Ok(Document { problem, metadata: document.metadata, profile: document.profile, envelope })
}

/// Foreign ids by value.
struct Ids {
    pools: HashMap<u32, SpaceId>,
    buffers: HashMap<u32, BufferId>,
}

impl Ids {
    fn new(foreign: &wire::Problem) -> Result<Ids, ImportError> {
        let mut ids = Ids { pools: HashMap::new(), buffers: HashMap::new() };
        let duplicate = |path: String, id: u32| {
            ImportError::new(ErrorKind::Duplicate, path)
                .found(format!("{id} a second time"))
                .expected("an id that nothing before it has")
        };
        for (index, pool) in foreign.pools.iter().enumerate() {
            if ids.pools.insert(pool.id, SpaceId::new(index)).is_some() {
                return Err(duplicate(format!("problem.pools[{index}].id"), pool.id));
            }
        }
        for (index, buffer) in foreign.buffers.iter().enumerate() {
            if ids.buffers.insert(buffer.id, BufferId::new(index)).is_some() {
                return Err(duplicate(format!("problem.buffers[{index}].id"), buffer.id));
            }
        }
        Ok(ids)
    }

    fn pool(&self, path: impl Fn() -> String, id: u32) -> Result<SpaceId, ImportError> {
        self.pools.get(&id).copied().ok_or_else(|| {
            ImportError::new(ErrorKind::Inconsistent, path())
                .found(format!("pool {id}"))
                .expected("the id of an entry of problem.pools")
        })
    }

    fn buffer(&self, path: impl Fn() -> String, id: u32) -> Result<BufferId, ImportError> {
        self.buffers.get(&id).copied().ok_or_else(|| {
            ImportError::new(ErrorKind::Inconsistent, path())
                .found(format!("buffer {id}"))
                .expected("the id of an entry of problem.buffers")
        })
    }

    fn pair(&self, list: &str, index: usize, first: u32, second: u32) -> Result<(BufferId, BufferId), ImportError> {
        let path = || format!("problem.{list}[{index}]");
        Ok((self.buffer(path, first)?, self.buffer(path, second)?))
    }
}

fn space(index: usize, pool: &wire::Pool, seen: &mut HashSet<String>) -> Result<Space, ImportError> {
    let mut name = pool.name.clone();
    if !seen.insert(name.clone()) {
        // Pools are told apart by their ids, spaces by their names.
        name = format!("{name}#{}", pool.id);
        seen.insert(name.clone());
    }
    let mut space = Space::unbounded(name);
    space.capacity = pool.capacity.map(Bytes);
    for (position, range) in pool.reserved_ranges.iter().enumerate() {
        if range.begin >= range.end {
            let path = format!("problem.pools[{index}].reserved_ranges[{position}]");
            return Err(ImportError::new(ErrorKind::Value, path)
                .found(format!("[{}, {})", range.begin, range.end))
                .expected("an end past the beginning"));
        }
        space.reserved.push(Interval { start: Offset(range.begin), end: Offset(range.end) });
    }
    Ok(space)
}

fn buffer(index: usize, entry: &wire::Buffer, ids: &Ids) -> Result<Buffer, ImportError> {
    let path = |field: &str| format!("problem.buffers[{index}].{field}");
    let mut buffer = Buffer::new(entry.name.as_str(), Bytes(entry.size), StepRange::steps(0, 0), SpaceId(0));
    buffer.alignment = Alignment::new(entry.alignment)
        .ok_or_else(|| ImportError::new(ErrorKind::Value, path("alignment")).found("0").expected("at least 1"))?;
    buffer.spaces =
        entry.allowed_pools.iter().map(|id| ids.pool(|| path("allowed_pools"), *id)).collect::<Result<_, _>>()?;
    buffer.spaces.sort_unstable();
    let mut ranges = Vec::with_capacity(entry.live_intervals.len());
    for (position, interval) in entry.live_intervals.iter().enumerate() {
        ranges.push(
            live_range(interval)
                .map_err(|error| ImportError { item: path(&format!("live_intervals[{position}]")).into(), ..error })?,
        );
    }
    ranges.sort_unstable();
    buffer.live = merged(ranges);
    Ok(buffer)
}

fn live_range(interval: &wire::LiveInterval) -> Result<StepRange, ImportError> {
    let found = format!("[{}, {})", interval.lower, interval.upper);
    match (u64::try_from(interval.lower), u64::try_from(interval.upper)) {
        (Ok(start), Ok(end)) if start < end => Ok(StepRange::steps(start, end)),
        (Ok(_), _) => Err(ImportError::new(ErrorKind::Value, "")
            .found(found)
            .expected("an upper past the lower: intervals are [lower, upper)")),
        (Err(_), _) => Err(ImportError::new(ErrorKind::Value, "")
            .found(found)
            .expected("steps of at least 0")
            .hint("add the same number to every interval of the file")),
    }
}

/// The schema lets the intervals of one buffer overlap; npumem's live ranges do not.
fn merged(ranges: Vec<StepRange>) -> Vec<LiveRange> {
    let mut live: Vec<LiveRange> = Vec::with_capacity(ranges.len());
    for steps in ranges {
        match live.last_mut() {
            Some(last) if last.steps.end > steps.start => last.steps = last.steps.hull(&steps),
            _ => live.push(LiveRange { steps, window: None }),
        }
    }
    live
}

fn goals(objective: &wire::Objective) -> Result<Vec<Goal>, ImportError> {
    if objective.aggregation != "lexicographic" {
        return Err(ImportError::new(ErrorKind::Unknown, "problem.objective.aggregation")
            .found_value(&objective.aggregation)
            .expected("'lexicographic'"));
    }
    let goal = |(index, term): (usize, &String)| {
        let found = TERMS.iter().find(|(_, name)| name == term);
        found.map(|(goal, _)| *goal).ok_or_else(|| {
            let kind = if term == "bank_cost" { ErrorKind::Unsupported } else { ErrorKind::Unknown };
            ImportError::new(kind, format!("problem.objective.terms[{index}]"))
                .found_value(term)
                .expected("total_peak, max_peak, capacity_overflow or reuse_cost")
        })
    };
    objective.terms.iter().enumerate().map(goal).collect()
}

fn constraints(foreign: &wire::Problem, ids: &Ids) -> Result<Constraints, ImportError> {
    let lists = &foreign.constraints;
    let mut constraints = Constraints::default();
    for (index, pair) in lists.colocations.iter().enumerate() {
        let (base, buffer) = ids.pair("constraints.colocations", index, pair.first, pair.second)?;
        constraints.colocated.push(Colocation { buffer, base, delta: Bytes::ZERO });
    }
    for (index, entry) in lists.separations.iter().enumerate() {
        let (first, second) = ids.pair("constraints.separations", index, entry.first, entry.second)?;
        if entry.reasons.iter().any(|reason| reason == EXCLUSIVE) {
            return Err(ImportError::new(
                ErrorKind::Unknown,
                format!("problem.constraints.separations[{index}].reasons"),
            )
            .found_value(EXCLUSIVE)
            .expected("a reason of the schema")
            .hint("set exclusive_for_all_time in pinned_allocations"));
        }
        constraints.separated.push(Separation { first, second, reasons: entry.reasons.clone() });
    }
    for (index, pair) in lists.temporal_exclusions.iter().enumerate() {
        constraints.never_coexist.push(ids.pair("constraints.temporal_exclusions", index, pair.first, pair.second)?);
    }
    let penalties = foreign.cost_model.iter().flat_map(|model| &model.reuse_penalties);
    for (index, entry) in penalties.enumerate() {
        let (first, second) = ids.pair("cost_model.reuse_penalties", index, entry.first, entry.second)?;
        let reason = entry.reason.clone();
        constraints.reuse_penalties.push(ReusePenalty { first, second, cost: entry.cost, reason });
    }
    Ok(constraints)
}

/// Sets the pins; the buffers whose bytes nothing else may touch, which are separated from all that could.
fn pins(pins: &[wire::Pin], ids: &Ids, problem: &mut Problem) -> Result<Vec<BufferId>, ImportError> {
    let mut exclusive = Vec::new();
    for (index, entry) in pins.iter().enumerate() {
        let path = || format!("problem.constraints.pinned_allocations[{index}]");
        let (id, space) = (ids.buffer(path, entry.buffer)?, ids.pool(path, entry.pool)?);
        let pin = Location { space, offset: Offset(entry.offset) };
        let buffer = &mut problem.buffers[id.index()];
        if buffer.pin.replace(pin).is_some() {
            return Err(ImportError::new(ErrorKind::Duplicate, path())
                .found(format!("a second pin of buffer {} {}", entry.buffer, quoted(&buffer.name)))
                .expected("one pin a buffer"));
        }
        if entry.exclusive_for_all_time {
            exclusive.push(id);
        }
    }
    let pairs = exclusive.len().saturating_mul(problem.buffers.len());
    if pairs > MAX_EXCLUSIVE_PAIRS {
        return Err(ImportError::new(ErrorKind::Limit, "problem.constraints.pinned_allocations")
            .found(format!("{} pins exclusive for all time among {} buffers", exclusive.len(), problem.buffers.len()))
            .expected(format!("at most {MAX_EXCLUSIVE_PAIRS} pairs of such a pin and a buffer"))
            .hint("state their bytes as reserved_ranges of the pool instead"));
    }
    for id in &exclusive {
        let Some(pin) = problem.buffers[id.index()].pin else { continue };
        for (other, buffer) in problem.buffers.iter().enumerate() {
            if other != id.index() && buffer.spaces.contains(&pin.space) {
                let reasons = vec![EXCLUSIVE.to_owned()];
                let second = BufferId::new(other);
                problem.constraints.separated.push(Separation { first: *id, second, reasons });
            }
        }
    }
    Ok(exclusive)
}
