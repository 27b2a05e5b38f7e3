//! A dsa-problem, written.

use super::{Document, EXCLUSIVE, Envelope, PoolExtra, TERMS, VERSION, canonical, wire};
use crate::error::{ErrorKind, ImportError};
use npumem_ir::problem::{Goal, Sizing};
use npumem_ir::{Alignment, Buffer, BufferId, Problem};
use std::collections::HashSet;

impl Document {
    /// A problem of npumem's own as a dsa-problem, of the profile `standard_dsa` where it is one, else `pypto_structured`.
    ///
    /// Hints, kinds, producers and uses are left out: no plan is wrong without them.
    ///
    /// # Errors
    /// What the schema has no words for: byte windows, colocations at a distance, sizes that are not fixed or zero,
    /// goals that it does not have, steps past 63 bits.
    pub fn new(problem: Problem) -> Result<Document, ImportError> {
        expressible(&problem)?;
        let mut envelope = Envelope {
            buffer_ids: (0..problem.buffers.len()).map(|index| BufferId::new(index).0).collect(),
            has_cost_model: !problem.constraints.reuse_penalties.is_empty(),
            ..Envelope::default()
        };
        for (id, space) in problem.spaces() {
            envelope.pools.push(PoolExtra { id: id.0, name: space.name.clone(), banks: None });
        }
        let profile = if is_standard(&problem) { "standard_dsa" } else { "pypto_structured" };
        let metadata = [("producer".to_owned(), "npumem".to_owned())].into();
        Ok(Document { problem, metadata, profile: profile.into(), envelope })
    }

    /// The document in its canonical form: keys sorted, two blanks a level, a line feed at the end.
    ///
    /// # Errors
    /// An alignment that is past 64 bits together with its space's.
    pub fn to_json(&self) -> Result<String, ImportError> {
        Ok(canonical(&self.to_wire()?))
    }

    /// The fingerprint that a dsa-solution names its problem by: 64-bit FNV-1a of the canonical form, in hex.
    ///
    /// # Errors
    /// As for [`Document::to_json`].
    pub fn fingerprint(&self) -> Result<String, ImportError> {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in self.to_json()?.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(format!("{hash:016x}"))
    }

    /// The foreign id of a buffer.
    pub(super) fn buffer_id(&self, id: BufferId) -> u32 {
        self.envelope.buffer_ids.get(id.index()).copied().unwrap_or(id.0)
    }

    fn to_wire(&self) -> Result<wire::Document, ImportError> {
        let problem = wire::Problem {
            buffers: self.buffers()?,
            constraints: self.constraints(),
            cost_model: self.envelope.has_cost_model.then(|| self.cost_model()),
            objective: objective(&self.problem),
            pools: self.pools(),
            pypto_structure: self.envelope.structure.clone(),
        };
        Ok(wire::Document {
            instance: self.problem.name.clone(),
            metadata: self.metadata.clone(),
            problem,
            profile: self.profile.clone(),
            relaxed_features: self.envelope.relaxed_features.clone(),
            relaxed_from: self.envelope.relaxed_from.clone(),
            schema_version: VERSION,
        })
    }

    fn pools(&self) -> Vec<wire::Pool> {
        let reserved = |range: &npumem_ir::ByteRange| wire::Reserved { begin: range.start.0, end: range.end.0 };
        let spaces = self.problem.spaces.iter().zip(&self.envelope.pools);
        spaces
            .map(|(space, extra)| wire::Pool {
                bank_geometry: extra.banks,
                capacity: space.capacity.map(|capacity| capacity.0),
                id: extra.id,
                name: extra.name.clone(),
                reserved_ranges: space.reserved.iter().map(reserved).collect(),
            })
            .collect()
    }

    fn buffers(&self) -> Result<Vec<wire::Buffer>, ImportError> {
        let mut names = HashSet::with_capacity(self.problem.buffers.len());
        let mut buffers = Vec::with_capacity(self.problem.buffers.len());
        for (id, buffer) in self.problem.buffers() {
            let foreign = self.buffer_id(id);
            // The schema's own validator refuses a name twice, but not an empty one.
            let fresh = buffer.name.is_empty() || names.insert(buffer.name.as_str());
            let interval = |steps: npumem_ir::StepRange| wire::LiveInterval {
                lower: i64::try_from(steps.start.0).unwrap_or(i64::MAX),
                upper: i64::try_from(steps.end.0).unwrap_or(i64::MAX),
            };
            buffers.push(wire::Buffer {
                alignment: self.alignment(buffer)?.get(),
                allowed_pools: buffer.spaces.iter().map(|space| self.envelope.pools[space.index()].id).collect(),
                id: foreign,
                live_intervals: buffer.live.iter().map(|range| interval(range.steps)).collect(),
                name: if fresh { buffer.name.clone() } else { format!("{}#{foreign}", buffer.name) },
                size: buffer.size.0,
            });
        }
        Ok(buffers)
    }

    /// The buffer's alignment and those of all its spaces together: the schema's pools have none.
    fn alignment(&self, buffer: &Buffer) -> Result<Alignment, ImportError> {
        let mut alignment = buffer.alignment;
        for space in &buffer.spaces {
            alignment = alignment.and(self.problem.space(*space).alignment).ok_or_else(|| {
                ImportError::new(ErrorKind::Value, format!("buffer '{}'", buffer.name))
                    .found("an alignment of its own and of its spaces that are past 64 bits together")
            })?;
        }
        Ok(alignment)
    }

    fn constraints(&self) -> wire::Constraints {
        let lists = &self.problem.constraints;
        let pair = |first, second| wire::Pair { first: self.buffer_id(first), second: self.buffer_id(second) };
        let pinned = self.problem.buffers().filter_map(|(id, buffer)| Some((id, buffer.pin?)));
        let separated = lists.separated.iter().filter(|entry| entry.reasons != [EXCLUSIVE]);
        wire::Constraints {
            colocations: lists.colocated.iter().map(|entry| pair(entry.base, entry.buffer)).collect(),
            pinned_allocations: pinned
                .map(|(id, pin)| wire::Pin {
                    buffer: self.buffer_id(id),
                    exclusive_for_all_time: self.envelope.exclusive.contains(&id),
                    offset: pin.offset.0,
                    pool: self.envelope.pools[pin.space.index()].id,
                })
                .collect(),
            separations: separated
                .map(|entry| wire::Separation {
                    first: self.buffer_id(entry.first),
                    reasons: entry.reasons.clone(),
                    second: self.buffer_id(entry.second),
                })
                .collect(),
            temporal_exclusions: lists.never_coexist.iter().map(|(first, second)| pair(*first, *second)).collect(),
        }
    }

    fn cost_model(&self) -> wire::CostModel {
        let penalty = |entry: &npumem_ir::problem::ReusePenalty| wire::Penalty {
            cost: entry.cost,
            first: self.buffer_id(entry.first),
            reason: if entry.reason.is_empty() { "generic".into() } else { entry.reason.clone() },
            second: self.buffer_id(entry.second),
        };
        wire::CostModel { reuse_penalties: self.problem.constraints.reuse_penalties.iter().map(penalty).collect() }
    }
}

/// The goals as terms; npumem's default, the peak of each space, is the sum of the peaks and then the largest.
fn objective(problem: &Problem) -> wire::Objective {
    let mut terms: Vec<String> = Vec::new();
    for goal in problem.goals() {
        let found = TERMS.iter().find(|(candidate, _)| candidate == goal).map(|(_, term)| *term);
        for term in found.map_or(vec!["total_peak", "max_peak"], |term| vec![term]) {
            if !terms.iter().any(|known| known == term) {
                terms.push(term.into());
            }
        }
    }
    wire::Objective { aggregation: "lexicographic".into(), terms }
}

fn is_standard(problem: &Problem) -> bool {
    let plain = |buffer: &Buffer| buffer.live.len() == 1 && buffer.pin.is_none() && buffer.alignment == Alignment::ONE;
    problem.spaces.len() == 1
        && problem.spaces[0].reserved.is_empty()
        && problem.spaces[0].alignment == Alignment::ONE
        && problem.buffers.iter().all(plain)
        && problem.constraints == npumem_ir::problem::Constraints::default()
        && !problem.goals.contains(&Goal::ReuseCost)
}

fn expressible(problem: &Problem) -> Result<(), ImportError> {
    let refuse = |item: String, found: String| {
        Err(ImportError::new(ErrorKind::Unsupported, item)
            .found(found)
            .expected("what a dsa-problem has fields for")
            .hint("write the problem as npumem's own JSON"))
    };
    for (id, buffer) in problem.buffers() {
        let item = || format!("buffer {id} '{}'", buffer.name);
        if buffer.sizing != Sizing::Fixed || buffer.size.0 == 0 {
            return refuse(item(), "a size that is zero or not fixed".into());
        }
        if let Some(range) = buffer.live.iter().find(|range| range.window.is_some()) {
            return refuse(item(), format!("a byte window at steps {}", range.steps));
        }
        if buffer.lifetime().is_some_and(|lifetime| lifetime.end.0 > i64::MAX as u64) {
            return refuse(item(), "a step past 63 bits".into());
        }
    }
    if let Some((index, entry)) = problem.constraints.colocated.iter().enumerate().find(|(_, entry)| entry.delta.0 != 0)
    {
        return refuse(format!("colocated[{index}]"), format!("a distance of {} bytes", entry.delta.0));
    }
    match problem.goals.iter().find(|goal| matches!(goal, Goal::KeepHints | Goal::Traffic)) {
        Some(goal) => refuse("goals".into(), format!("{goal:?}")),
        None => Ok(()),
    }
}
