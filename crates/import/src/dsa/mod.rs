//! The dsa-problem and dsa-solution JSON of tonibohnlein/dsa-solver, schema version 1, both ways.
//! `docs/formats/dsa.md` says how each field maps.

mod export;
mod read;
mod solution;
mod wire;

#[cfg(test)]
mod tests;

pub use read::read;
pub use solution::Solution;

use crate::error::{self, ErrorKind, ImportError, quoted};
use npumem_ir::{BufferId, Problem};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// The schema version that is read and written.
const VERSION: u64 = 1;

/// A dsa-problem: what npumem plans, and what it keeps for the way back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The problem.
    pub problem: Problem,
    /// Facts beside the problem, by key.
    pub metadata: BTreeMap<String, String>,
    /// Which fields the producer may use; it changes no answer.
    pub profile: String,
    envelope: Envelope,
}

/// What has no place in a [`Problem`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Envelope {
    relaxed_from: Option<String>,
    relaxed_features: Vec<String>,
    /// Foreign id, name and banks, in the order of the spaces.
    pools: Vec<PoolExtra>,
    /// Foreign ids, in the order of the buffers.
    buffer_ids: Vec<u32>,
    /// Pinned buffers whose bytes nothing else may touch at any time.
    exclusive: Vec<BufferId>,
    has_cost_model: bool,
    structure: Option<wire::PyptoStructure>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PoolExtra {
    id: u32,
    name: String,
    banks: Option<wire::BankGeometry>,
}

/// The reason of separations that stand for a pin's `exclusive_for_all_time`.
const EXCLUSIVE: &str = "exclusive_for_all_time";

/// The goals and the terms that mean them.
const TERMS: [(npumem_ir::problem::Goal, &str); 4] = [
    (npumem_ir::problem::Goal::TotalPeak, "total_peak"),
    (npumem_ir::problem::Goal::MaxPeak, "max_peak"),
    (npumem_ir::problem::Goal::Fit, "capacity_overflow"),
    (npumem_ir::problem::Goal::ReuseCost, "reuse_cost"),
];

/// A document of the schema's version, whose version is looked at before its fields are.
fn parse<T: DeserializeOwned>(bytes: &[u8], version_of: impl Fn(&T) -> u64) -> Result<T, ImportError> {
    #[derive(serde::Deserialize)]
    struct VersionOnly {
        schema_version: serde_json::Value,
    }
    let refuse = |version: String| {
        ImportError::new(ErrorKind::Unknown, "schema_version").found(version).expected(VERSION.to_string())
    };
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    // serde would take an array for the fields in order.
    if let Some(first) = bytes.trim_ascii_start().first().filter(|byte| **byte != b'{') {
        return Err(ImportError::new(ErrorKind::Syntax, "")
            .at_byte((bytes.len() - bytes.trim_ascii_start().len()) as u64)
            .found_value(&char::from(*first).to_string())
            .expected("a JSON object"));
    }
    match serde_json::from_slice::<T>(bytes) {
        Ok(document) if version_of(&document) == VERSION => Ok(document),
        Ok(document) => Err(refuse(version_of(&document).to_string())),
        Err(error) => match serde_json::from_slice::<VersionOnly>(bytes) {
            Ok(head) if head.schema_version != serde_json::json!(VERSION) => {
                Err(refuse(quoted(&head.schema_version.to_string())))
            }
            _ => Err(error::from_json(&error)),
        },
    }
}

/// Canonical JSON: two blanks a level, keys sorted, a line feed at the end.
fn canonical<T: serde::Serialize>(document: &T) -> String {
    // The wire types hold only strings, integers and lists of them, so there is nothing to fail.
    let mut text = serde_json::to_string_pretty(document).unwrap_or_default();
    text.push('\n');
    text
}
