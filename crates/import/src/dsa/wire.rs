//! The dsa-problem and dsa-solution schemas, version 1, field by field.
//!
//! Fields stand in the order of their names: that is the canonical form, over which the fingerprint is taken.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub instance: String,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    pub problem: Problem,
    pub profile: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relaxed_features: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relaxed_from: Option<String>,
    pub schema_version: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Problem {
    pub buffers: Vec<Buffer>,
    pub constraints: Constraints,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_model: Option<CostModel>,
    pub objective: Objective,
    pub pools: Vec<Pool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pypto_structure: Option<PyptoStructure>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Buffer {
    pub alignment: u64,
    pub allowed_pools: Vec<u32>,
    pub id: u32,
    pub live_intervals: Vec<LiveInterval>,
    pub name: String,
    pub size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LiveInterval {
    pub lower: i64,
    pub upper: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Constraints {
    pub colocations: Vec<Pair>,
    pub pinned_allocations: Vec<Pin>,
    pub separations: Vec<Separation>,
    pub temporal_exclusions: Vec<Pair>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pair {
    pub first: u32,
    pub second: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Separation {
    pub first: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    pub second: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pin {
    pub buffer: u32,
    pub exclusive_for_all_time: bool,
    pub offset: u64,
    pub pool: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CostModel {
    pub reuse_penalties: Vec<Penalty>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Penalty {
    pub cost: u64,
    pub first: u32,
    pub reason: String,
    pub second: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Objective {
    pub aggregation: String,
    pub terms: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pool {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bank_geometry: Option<BankGeometry>,
    /// May be null, and must be there.
    #[serde(deserialize_with = "nullable")]
    pub capacity: Option<u64>,
    pub id: u32,
    pub name: String,
    pub reserved_ranges: Vec<Reserved>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BankGeometry {
    pub bank_size: u64,
    pub num_banks: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reserved {
    pub begin: u64,
    pub end: u64,
}

/// Where a PyPTO problem comes from; it changes no answer, and is kept for the way back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PyptoStructure {
    pub alias_classes: Vec<AliasClass>,
    pub pipeline_groups: Vec<PipelineGroup>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AliasClass {
    pub buffer: u32,
    pub members: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PipelineGroup {
    pub depth: u32,
    pub effective_depth: u32,
    pub group: u32,
    pub members: Vec<PipelineMember>,
    pub pool: u32,
    pub slot_size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PipelineMember {
    pub buffer: u32,
    pub residue: u32,
    pub stage: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Solution {
    pub instance: String,
    pub metadata: BTreeMap<String, String>,
    pub placements: Vec<Placement>,
    pub problem_fingerprint: String,
    pub profile: String,
    pub schema_version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Placement {
    pub buffer: u32,
    pub offset: u64,
    pub pool: u32,
}

fn nullable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Option::deserialize(deserializer)
}
