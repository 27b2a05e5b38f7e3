//! A dsa-solution, both ways: where each buffer of a dsa-problem lies.

use super::{Document, VERSION, canonical, parse, wire};
use crate::error::{ErrorKind, ImportError, quoted};
use npumem_ir::plan::{Origin, SpaceUse};
use npumem_ir::{BufferId, Bytes, Offset, Plan, Residency, SpaceId};
use std::collections::HashMap;

/// A solution, read as a plan of its problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    /// The plan.
    pub plan: Plan,
    /// Facts beside it: the solver, its status.
    pub metadata: std::collections::BTreeMap<String, String>,
    /// Whether the solution names this very problem; where it does not, a field of the problem changed since.
    pub fingerprint_matches: bool,
}

impl Document {
    /// Reads a solution of this problem.
    ///
    /// # Errors
    /// What is not as the schema has it; another instance; a buffer or pool that the problem does not have; a buffer
    /// placed twice. A buffer that is placed nowhere is the checker's to find.
    pub fn read_solution(&self, bytes: &[u8]) -> Result<Solution, ImportError> {
        let solution = parse::<wire::Solution>(bytes, |solution| solution.schema_version)?;
        if solution.instance != self.problem.name {
            return Err(ImportError::new(ErrorKind::Inconsistent, "instance")
                .found_value(&solution.instance)
                .expected(format!("{}, as in the problem", quoted(&self.problem.name)))
                .hint("give the solution together with the problem that it solves"));
        }
        let mut residencies = self.residencies(&solution.placements)?;
        residencies.sort_unstable_by_key(|residency| residency.buffer);
        let mut spaces: Vec<SpaceUse> = self.problem.spaces.iter().map(unused).collect();
        for residency in &residencies {
            let end = residency.offset.saturating_add(self.problem.buffer(residency.buffer).size.0).0;
            let peak = &mut spaces[residency.space.index()].peak;
            *peak = (*peak).max(Bytes(end));
        }
        let tool = solution.metadata.get("solver").map_or("dsa-solution", String::as_str);
        let origin = Origin {
            tool: tool.to_owned(),
            goals: self.problem.goals.clone(),
            digest: self.problem.digest(),
            ..Origin::default()
        };
        Ok(Solution {
            plan: Plan { problem: self.problem.name.clone(), residencies, spaces, origin, ..Plan::default() },
            metadata: solution.metadata,
            fingerprint_matches: solution.problem_fingerprint == self.fingerprint()?,
        })
    }

    fn residencies(&self, placements: &[wire::Placement]) -> Result<Vec<Residency>, ImportError> {
        let buffers: HashMap<u32, BufferId> = self.problem.buffers().map(|(id, _)| (self.buffer_id(id), id)).collect();
        let pools: HashMap<u32, SpaceId> =
            self.envelope.pools.iter().enumerate().map(|(index, pool)| (pool.id, SpaceId::new(index))).collect();
        let mut placed = vec![false; self.problem.buffers.len()];
        let mut residencies = Vec::with_capacity(placements.len().min(placed.len()));
        for (index, entry) in placements.iter().enumerate() {
            let wrong = |field: &str, found: String, expected: &str| {
                ImportError::new(ErrorKind::Inconsistent, format!("placements[{index}].{field}"))
                    .found(found)
                    .expected(expected)
            };
            let Some(buffer) = buffers.get(&entry.buffer).copied() else {
                return Err(wrong("buffer", entry.buffer.to_string(), "the id of a buffer of the problem"));
            };
            let Some(space) = pools.get(&entry.pool).copied() else {
                return Err(wrong("pool", entry.pool.to_string(), "the id of a pool of the problem"));
            };
            if std::mem::replace(&mut placed[buffer.index()], true) {
                return Err(wrong("buffer", format!("{} a second time", entry.buffer), "each buffer once"));
            }
            let Some(steps) = self.problem.buffer(buffer).lifetime() else { continue };
            residencies.push(Residency { buffer, space, offset: Offset(entry.offset), steps });
        }
        Ok(residencies)
    }

    /// A plan of this problem as a dsa-solution, in canonical form.
    ///
    /// # Errors
    /// A buffer with no place or several, which the schema has no words for.
    pub fn write_solution(&self, plan: &Plan) -> Result<String, ImportError> {
        let mut placements = Vec::with_capacity(self.problem.buffers.len());
        for (id, buffer) in self.problem.buffers() {
            let [one] = plan.residencies_of(id) else {
                let count = plan.residencies_of(id).len();
                return Err(ImportError::new(ErrorKind::Unsupported, format!("buffer {id} '{}'", buffer.name))
                    .found(format!("{count} places in the plan"))
                    .expected("one: a dsa-solution has one place for a buffer")
                    .hint("write the plan as npumem's own JSON"));
            };
            let pool = self.envelope.pools.get(one.space.index()).map(|pool| pool.id).ok_or_else(|| {
                ImportError::new(ErrorKind::Inconsistent, format!("buffer {id} '{}'", buffer.name))
                    .found(one.space.to_string())
                    .expected("a space of the problem")
            })?;
            placements.push(wire::Placement { buffer: self.buffer_id(id), offset: one.offset.0, pool });
        }
        placements.sort_unstable_by_key(|placement| placement.buffer);
        Ok(canonical(&wire::Solution {
            instance: self.problem.name.clone(),
            metadata: [
                ("solver".to_owned(), plan.origin.tool.clone()),
                ("method".to_owned(), plan.origin.method.clone()),
            ]
            .into(),
            placements,
            problem_fingerprint: self.fingerprint()?,
            profile: self.profile.clone(),
            schema_version: VERSION,
        }))
    }
}

fn unused(space: &npumem_ir::Space) -> SpaceUse {
    SpaceUse {
        space: space.name.clone(),
        peak: Bytes::ZERO,
        lower_bound: Bytes::ZERO,
        bound_reason: "none: read from a file".into(),
        capacity: space.capacity,
    }
}
