//! MiniMalloc's CSV, in all its spellings, both ways. `docs/formats/minimalloc.md` describes it.
//!
//! ```text
//!   id,lower,upper,size,gaps            id    a name, unique
//!   x,0,8,64,2-4 6-7@0:32               lower, upper   live in [lower, upper)
//!                                       gaps  during [2, 4) not live; during [6, 7) only bytes [0, 32) are
//! ```
//! Where the column is called `end` instead of `upper`, it and the gaps' ends are inclusive: one is added at the door.

mod read;
mod write;

pub use read::read;
pub use write::{add_offsets, write};

use crate::error::{ErrorKind, ImportError};
use npumem_ir::plan::{Origin, SpaceUse};
use npumem_ir::problem::Location;
use npumem_ir::{Bytes, Offset, Plan, Problem, Residency, SpaceId};

/// The name of the one space that a MiniMalloc problem has.
pub const SPACE: &str = "memory";

/// The columns, by what they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Column {
    Id,
    Lower,
    Upper,
    Size,
    Alignment,
    Hint,
    Gaps,
    Offset,
}

impl Column {
    const COUNT: usize = 8;

    /// The column of that name, and whether its ends are inclusive.
    fn of_name(name: &str) -> Option<(Column, bool)> {
        Some(match name {
            "id" | "buffer" | "buffer_id" => (Column::Id, false),
            "lower" | "begin" | "start" => (Column::Lower, false),
            "upper" => (Column::Upper, false),
            "end" => (Column::Upper, true),
            "size" => (Column::Size, false),
            "alignment" => (Column::Alignment, false),
            "hint" => (Column::Hint, false),
            "gaps" => (Column::Gaps, false),
            "offset" => (Column::Offset, false),
            _ => return None,
        })
    }
}

/// Whether a header has the columns that every MiniMalloc file has: what [`crate::sniff`] looks for.
pub(crate) fn is_header(line: &str) -> bool {
    let columns: Vec<Column> =
        line.split(',').filter_map(|name| Column::of_name(name.trim()).map(|(c, _)| c)).collect();
    [Column::Lower, Column::Upper, Column::Size].iter().filter(|column| columns.contains(column)).count() >= 2
}

/// A file as it stands: its problem, and the offsets that it states beside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The problem, without its offsets.
    pub problem: Problem,
    /// The `offset` cell of every buffer; empty when the file has no such column.
    pub offsets: Vec<Option<Offset>>,
}

impl Document {
    /// The problem in which a stated offset is a pin: what `plan` works on.
    #[must_use]
    pub fn into_problem(self) -> Problem {
        let mut problem = self.problem;
        for (buffer, offset) in problem.buffers.iter_mut().zip(self.offsets) {
            buffer.pin = offset.map(|offset| Location { space: SpaceId(0), offset });
        }
        problem
    }

    /// The problem, and the plan that the stated offsets are: what `check` works on.
    ///
    /// # Errors
    /// A buffer without an offset.
    pub fn into_plan(self) -> Result<(Problem, Plan), ImportError> {
        let (problem, offsets) = (self.problem, self.offsets);
        if offsets.is_empty() && !problem.buffers.is_empty() {
            return Err(ImportError::new(ErrorKind::Missing, "column 'offset'")
                .at_line(1)
                .expected("the offset of every buffer, since the file is to be checked as a plan")
                .hint("`npumem plan` writes this column; or give the plan as a second file"));
        }
        let mut residencies = Vec::with_capacity(offsets.len());
        let mut peak = 0;
        for ((id, buffer), offset) in problem.buffers().zip(&offsets) {
            let (Some(offset), Some(steps)) = (*offset, buffer.lifetime()) else {
                return Err(ImportError::new(ErrorKind::Missing, format!("buffer '{}', column 'offset'", buffer.name))
                    .expected("an offset, since the file is to be checked as a plan"));
            };
            peak = peak.max(offset.saturating_add(buffer.size.0).0);
            residencies.push(Residency { buffer: id, space: SpaceId(0), offset, steps });
        }
        let space = SpaceUse {
            space: SPACE.into(),
            peak: Bytes(peak),
            lower_bound: Bytes::ZERO,
            bound_reason: "none: read from a file".into(),
            capacity: problem.spaces[0].capacity,
        };
        let origin = Origin { tool: "MiniMalloc CSV".into(), digest: problem.digest(), ..Origin::default() };
        let plan = Plan { problem: problem.name.clone(), residencies, spaces: vec![space], origin, ..Plan::default() };
        Ok((problem, plan))
    }
}

#[cfg(test)]
mod tests;
