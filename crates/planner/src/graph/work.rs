//! What a step moves and computes, from its kind and shapes.
//!
//! Operations are counted so: a multiply-accumulate is two; an elementwise function is one per output element, a
//! softmax five per element (largest, difference, exponential, sum, quotient), a normalisation seven (sum, mean's
//! difference, square, sum, root's product, scale, shift), a reduction one per input element, a pooling one per element
//! of a window. Moves and views compute nothing. Bytes are counted once: each input read once, each output written once,
//! whatever a kernel's tiling makes of that, so they are the least that can cross the memory's port.

use super::line::{Line, LineStep, Phase, ValueId};
use super::operators::{self, input, int, output};
use super::storage::Storage;
use npumem_ir::graph::Attribute;
use npumem_ir::problem::Access;
use npumem_ir::{Bytes, ElementType};
use std::collections::BTreeMap;

/// What a step computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// Operations of a matrix unit: two per multiply-accumulate.
    pub matrix: u64,
    /// Operations of a vector unit.
    pub vector: u64,
    /// The element type that it computes in.
    pub element: ElementType,
}

/// The bytes that a step moves, by value; one entry per value and direction.
pub(crate) fn traffic(line: &Line<'_>, storage: &Storage, index: u32) -> Vec<(ValueId, Access, u64)> {
    let step = &line.steps[index as usize];
    let kind = step.operator.kind.as_str();
    if matches!(kind, "Shape" | "Size") || (step.phase == Phase::Whole && is_free(line, storage, step)) {
        return Vec::new();
    }
    let size = |id: ValueId| storage.extent(line, id).at_most().unwrap_or_default().0;
    let out = output(step, 0);
    let there = already_there(line, storage, step);
    let mut moved = Vec::new();
    let mut kept = 0_u64;
    for (position, id) in step.inputs.iter().enumerate().filter_map(|(at, id)| Some((at, (*id)?))) {
        if there.get(position) == Some(&true) {
            kept = kept.saturating_add(size(id));
            continue;
        }
        let bytes = match (kind, position) {
            // Only the rows that are taken.
            ("Slice" | "Gather" | "GatherElements" | "GatherND", 0)
            | ("EmbedLayerNormalization", 2..=4)
            | ("Split", 0) => {
                size(id).min(step.outputs.iter().flatten().map(|to| size(*to)).fold(0, u64::saturating_add))
            }
            _ => size(id),
        };
        moved.push((id, Access::Read, bytes));
    }
    for id in step.outputs.iter().flatten() {
        let bytes = match (kind, step.phase) {
            ("Concat", _) if Some(*id) == out => size(*id).saturating_sub(kept),
            // Some branch still copies into it, or none does.
            (_, Phase::Leave) if !there.is_empty() && there.iter().all(|there| *there) => 0,
            _ => size(*id),
        };
        moved.push((*id, Access::Write, bytes));
    }
    moved.retain(|(_, _, bytes)| *bytes > 0);
    moved.sort_unstable_by_key(|(id, access, _)| (*id, *access));
    moved.dedup_by_key(|(id, access, _)| (*id, *access));
    moved
}

/// Of the inputs of a concat, and of what branches hand on: which already lie where the output has them.
fn already_there(line: &Line<'_>, storage: &Storage, step: &LineStep<'_>) -> Vec<bool> {
    if step.phase == Phase::Leave {
        let lies = |id: &Option<ValueId>| {
            id.is_some_and(|id| step.outputs.iter().flatten().any(|to| storage.place(id) == storage.place(*to)))
        };
        return step.inputs.iter().map(lies).collect();
    }
    let (true, Some(out)) = (step.operator.kind == "Concat", output(step, 0)) else { return Vec::new() };
    let (class, mut at) = storage.place(out);
    let mut there = Vec::with_capacity(step.inputs.len());
    for id in &step.inputs {
        let Some(id) = id else {
            there.push(false);
            continue;
        };
        there.push(storage.place(*id) == (class, at) && storage.same_content(*id, out));
        at = at.saturating_add(line.value(*id).size.at_most().unwrap_or(Bytes::MAX).0);
    }
    there
}

/// Whether a step moves no byte because its output lies where its input is.
pub(crate) fn is_free(line: &Line<'_>, storage: &Storage, step: &LineStep<'_>) -> bool {
    let kind = step.operator.kind.as_str();
    if kind == "Concat" {
        return already_there(line, storage, step).iter().all(|there| *there);
    }
    let moves = matches!(kind, "Expand" | "Gather" | "Slice" | "Split" | "Tile" | "Transpose" | "Upsample");
    let Some(data) = input(step, 0) else { return false };
    let shares = |id: &ValueId| storage.same_content(*id, data) && storage.place(*id).0 == storage.place(data).0;
    (moves || operators::view(line, step).is_some()) && step.outputs.iter().flatten().all(shares)
}

/// What a step computes; `None` where its kind or a shape that counts is not known.
pub(crate) fn work(line: &Line<'_>, step: &LineStep<'_>) -> Option<Work> {
    let element = computes_in(line, step);
    let of = |matrix: u64, vector: u64| Some(Work { matrix, vector, element });
    if step.phase != Phase::Whole {
        return of(0, 0);
    }
    let shape = |position: usize| line.value(input(step, position)?).dims.as_deref();
    let count = |position: usize| product(shape(position)?);
    let out = || product(line.value(output(step, 0)?).dims.as_deref()?);
    let twice = |macs: u64| macs.saturating_mul(2);
    let kind = step.operator.kind.as_str();
    match kind {
        "Conv" | "FusedConv" | "NhwcConv" | "NhwcFusedConv" | "ConvInteger" | "QLinearConv" => {
            let kernel = product(shape(if kind == "QLinearConv" { 3 } else { 1 })?.get(1..)?)?;
            let extra = u64::from(input(step, 2).is_some()) + u64::from(kind.contains("Fused"));
            of(twice(out()?.checked_mul(kernel)?), out()?.checked_mul(extra)?)
        }
        "ConvTranspose" => of(twice(count(0)?.checked_mul(product(shape(1)?.get(1..)?)?)?), 0),
        "MatMul" | "FusedMatMul" | "MatMulInteger" | "QLinearMatMul" | "MatMulIntegerToFloat" => {
            let dims = shape(0)?;
            let from_end = if int(step, "transA") == Some(1) { 2 } else { 1 };
            of(twice(out()?.checked_mul(*dims.get(dims.len().checked_sub(from_end)?)?)?), 0)
        }
        "MatMulNBits" => of(twice(out()?.checked_mul(u64::try_from(int(step, "K")?).ok()?)?), 0),
        "Gemm" | "FusedGemm" => {
            let depth = *shape(0)?.get(usize::from(int(step, "transA") != Some(1)))?;
            let extra = u64::from(input(step, 2).is_some()) + u64::from(kind == "FusedGemm");
            of(twice(out()?.checked_mul(depth)?), out()?.checked_mul(extra)?)
        }
        "Einsum" => of(twice(einsum(line, step)?), 0),
        "LSTM" | "GRU" | "RNN" => {
            let [turns, batch, ..] = shape(0)? else { return None };
            let weights = count(1)?.checked_add(count(2)?)?;
            let turns = turns.checked_mul(*batch)?;
            // Gates, state and output: one function each per row of a gate.
            let rows = product(shape(1)?.get(..2)?)?;
            of(twice(turns.checked_mul(weights)?), turns.checked_mul(rows)?.checked_mul(3)?)
        }
        "Attention" | "MultiHeadAttention" | "GroupQueryAttention" => attention(line, step, of),
        // Elementwise, by what was listed as in place too.
        _ if operators::in_place(kind) == operators::InPlace::Elementwise => {
            let operands = step.inputs.iter().flatten().count().max(2) as u64 - 1;
            of(0, out()?.checked_mul(if matches!(kind, "Sum" | "Max" | "Min" | "Mean") { operands } else { 1 })?)
        }
        "QuantizeLinear"
        | "DequantizeLinear"
        | "DynamicQuantizeLinear"
        | "IsNaN"
        | "IsInf"
        | "CumSum"
        | "Range"
        | "RotaryEmbedding"
        | "GatherND"
        | "Trilu"
        | "Multinomial"
        | "Bernoulli"
        | "RandomNormalLike"
        | "OneHot" => of(0, out()?),
        "Softmax" | "LogSoftmax" | "BiasSoftmax" | "Hardmax" => of(0, out()?.checked_mul(5)?),
        "BatchNormalization" => of(0, out()?.checked_mul(2)?),
        "LayerNormalization"
        | "InstanceNormalization"
        | "GroupNormalization"
        | "RMSNormalization"
        | "GroupNorm"
        | "SimplifiedLayerNormalization"
        | "LpNormalization"
        | "MeanVarianceNormalization" => of(0, out()?.checked_mul(7)?),
        "SkipLayerNormalization" | "SkipSimplifiedLayerNormalization" => of(0, out()?.checked_mul(8)?),
        "EmbedLayerNormalization" => of(0, out()?.checked_mul(9)?),
        "LRN" => of(0, out()?.checked_mul(u64::try_from(int(step, "size")?).ok()?.checked_add(3)?)?),
        "MaxPool" | "AveragePool" | "LpPool" => {
            let kernel = operators::ints(step, "kernel_shape")?.iter().map(|dim| u64::try_from(*dim).ok());
            let kernel: Vec<u64> = kernel.collect::<Option<_>>()?;
            of(0, out()?.checked_mul(product(&kernel)?)?)
        }
        "GlobalAveragePool" | "GlobalMaxPool" | "GlobalLpPool" | "ArgMax" | "ArgMin" | "TopK" => of(0, count(0)?),
        _ if kind.starts_with("Reduce") => of(0, count(0)?),
        "Resize" | "Upsample" => {
            // Per output element: nothing for the nearest, an interpolation per dimension that grows otherwise.
            let nearest =
                !matches!(step.operator.attributes.get("mode"), Some(Attribute::Text(mode)) if mode != "nearest");
            of(0, if nearest { 0 } else { out()?.checked_mul(8)? })
        }
        _ if moves_only(kind) => of(0, 0),
        _ => None,
    }
}

/// Kinds that compute nothing.
fn moves_only(kind: &str) -> bool {
    matches!(
        kind,
        "CastLike"
            | "Compress"
            | "Concat"
            | "Constant"
            | "ConstantOfShape"
            | "DepthToSpace"
            | "Dropout"
            | "Expand"
            | "Flatten"
            | "Gather"
            | "GatherElements"
            | "Identity"
            | "NonZero"
            | "Pad"
            | "ReorderInput"
            | "ReorderOutput"
            | "Reshape"
            | "ReverseSequence"
            | "Scatter"
            | "ScatterElements"
            | "ScatterND"
            | "Shape"
            | "Size"
            | "Slice"
            | "SpaceToDepth"
            | "Split"
            | "Squeeze"
            | "Tile"
            | "Transpose"
            | "Unsqueeze"
    )
}

/// The widest rate that counts: the type of the first input that is not an index or a flag, or of the output.
fn computes_in(line: &Line<'_>, step: &LineStep<'_>) -> ElementType {
    let first = step.inputs.iter().flatten().chain(step.outputs.iter().flatten());
    let types = first.map(|id| line.value(*id).tensor.element);
    let index = |element: &ElementType| matches!(element, ElementType::Bool | ElementType::I64 | ElementType::I32);
    types.clone().find(|element| !index(element)).or_else(|| types.clone().next()).unwrap_or(ElementType::F32)
}

/// Projections where the weights come along, then scores and their product with the values; a softmax between.
fn attention(line: &Line<'_>, step: &LineStep<'_>, of: impl Fn(u64, u64) -> Option<Work>) -> Option<Work> {
    let shape = |position: usize| line.value(input(step, position)?).dims.as_deref();
    let microsoft = step.operator.domain.starts_with("com.microsoft");
    if step.operator.kind == "Attention" && microsoft {
        let [batch, rows, width] = shape(0)? else { return None };
        let heads = u64::try_from(int(step, "num_heads")?).ok()?;
        let projected = *shape(1)?.get(1)?;
        let hidden = projected / 3;
        let tokens = batch.checked_mul(*rows)?;
        let project = tokens.checked_mul(*width)?.checked_mul(projected)?;
        let pairs = tokens.checked_mul(*rows)?;
        let scores = pairs.checked_mul(hidden)?.checked_mul(2)?;
        return of(project.checked_add(scores)?.checked_mul(2)?, pairs.checked_mul(heads)?.checked_mul(5)?);
    }
    let (query, key) = (shape(0)?, shape(1)?);
    let heads = int(step, "num_heads").or_else(|| int(step, "q_num_heads")).and_then(|heads| u64::try_from(heads).ok());
    let (tokens, width, heads) = match query {
        [batch, rows, width] => (batch.checked_mul(*rows)?, *width, heads?),
        [batch, heads, rows, width] => (batch.checked_mul(*rows)?, heads.checked_mul(*width)?, *heads),
        _ => return None,
    };
    let mut columns = *key.get(key.len().checked_sub(2)?)?;
    // A past that is given apart adds its columns.
    let past = match step.operator.kind.as_str() {
        "GroupQueryAttention" => 3,
        "Attention" => 4,
        _ => 6,
    };
    if let Some([_, _, earlier, _]) = shape(past) {
        columns = columns.checked_add(*earlier)?;
    }
    let pairs = tokens.checked_mul(columns)?;
    of(pairs.checked_mul(width)?.checked_mul(4)?, pairs.checked_mul(heads)?.checked_mul(5)?)
}

/// Multiply-accumulates of an einsum: the product of all its labels' dimensions.
fn einsum(line: &Line<'_>, step: &LineStep<'_>) -> Option<u64> {
    let Some(Attribute::Text(equation)) = step.operator.attributes.get("equation") else { return None };
    let inputs = equation.split("->").next()?;
    let mut labels: BTreeMap<char, u64> = BTreeMap::new();
    for (position, term) in inputs.split(',').enumerate() {
        let term: Vec<char> = term.chars().filter(|c| !c.is_whitespace()).collect();
        let dims = line.value(input(step, position)?).dims.as_deref()?;
        if term.len() != dims.len() || term.contains(&'.') {
            return None;
        }
        for (label, dim) in term.into_iter().zip(dims) {
            let known = labels.entry(label).or_insert(*dim);
            *known = (*known).max(*dim);
        }
    }
    labels.values().try_fold(1_u64, |product, dim| product.checked_mul(*dim))
}

fn product(dims: &[u64]) -> Option<u64> {
    dims.iter().try_fold(1_u64, |product, dim| product.checked_mul(*dim))
}
