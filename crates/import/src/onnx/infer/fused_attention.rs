//! The attention operators of ONNX Runtime, with and without a cache of keys and values.

use super::super::fact::{Fact, Scalar};
use super::{Call, Facts, Trouble, length};
use npumem_ir::{Dim, ElementType};

pub(super) fn infer(call: &mut Call<'_>) -> Facts {
    match call.kind {
        "Attention" => attention(call, 4, call.element(0)),
        "QAttention" => attention(call, 8, call.element(3)),
        "QOrderedAttention" => Ok(vec![call.like_first()?]),
        "MultiHeadAttention" => multi_head(call),
        "DecoderMaskedMultiHeadAttention" => masked_decoder(call),
        "DecoderMaskedSelfAttention" => attention(call, 4, call.element(0)),
        "GroupQueryAttention" => group_query(call),
        "SparseAttention" => {
            let output = query_like(call)?;
            let past =
                |index| -> Result<Fact, Trouble> { Ok(Fact::tensor(call.element(index), call.dims(index)?.to_vec())) };
            Ok(vec![output, past(3)?, past(4)?])
        }
        "PagedAttention" => {
            let output = query_like(call)?;
            let cache =
                |index| -> Result<Fact, Trouble> { Ok(Fact::tensor(call.element(index), call.dims(index)?.to_vec())) };
            Ok(vec![output, cache(3)?, cache(4)?])
        }
        "PackedAttention" => {
            let [tokens, _] = call.ranked::<2>(0)?;
            let hidden = value_width(call)?;
            Ok(vec![Fact::tensor(call.element(0), vec![tokens, hidden])])
        }
        "PackedMultiHeadAttention" => match call.dims(0)? {
            [tokens, heads, _, size] => {
                let width = call.symbols.mul(heads, size);
                Ok(vec![Fact::tensor(call.element(0), vec![tokens.clone(), width])])
            }
            [tokens, _] => {
                let width = call.ranked::<2>(2)?[1].clone();
                Ok(vec![Fact::tensor(call.element(0), vec![tokens.clone(), width])])
            }
            other => Err(Trouble::Bad(format!("a query of {} dimensions", other.len()))),
        },
        "DecoderAttention" => decoder(call),
        "RelativePositionBias" => {
            let [_, heads] = call.ranked::<2>(0)?;
            let (queries, keys) = (value(call, 1, 2), value(call, 2, 3));
            Ok(vec![Fact::tensor(call.element(0), vec![Dim::Known(1), heads, queries, keys])])
        }
        "GatedRelativePositionBias" => {
            let [batch, sequence, _] = call.ranked::<3>(0)?;
            let heads = length(call.int_or("num_heads", 0))?;
            Ok(vec![Fact::tensor(call.element(0), vec![batch, heads, sequence.clone(), sequence])])
        }
        "GemmaRotaryEmbedding" => {
            let like =
                |index| -> Result<Fact, Trouble> { Ok(Fact::tensor(call.element(index), call.dims(index)?.to_vec())) };
            Ok(vec![like(1)?, like(3)?])
        }
        _ => Err(Trouble::UnknownOperator),
    }
}

/// The length that a small input holds.
fn value(call: &mut Call<'_>, index: usize, axis: usize) -> Dim {
    let known = call.given(index).and_then(|fact| fact.value.as_ref()).and_then(|value| value.first());
    known.and_then(Scalar::dim).unwrap_or_else(|| call.fresh(0, axis, None))
}

/// The width of the values in a fused projection: said, or a third of the weight's columns.
fn value_width(call: &mut Call<'_>) -> Result<Dim, Trouble> {
    if let Some([_, _, width]) = call.ints("qkv_hidden_sizes") {
        return length(*width);
    }
    let columns = call.dims(1)?.last().cloned().ok_or_else(|| Trouble::Bad("a weight that is a scalar".into()))?;
    Ok(call.symbols.floor_div(&columns, 3))
}

fn heads_of(call: &Call<'_>, name: &str) -> Result<u64, Trouble> {
    let count = call.int(name).and_then(|count| u64::try_from(count).ok()).filter(|count| *count > 0);
    count.ok_or_else(|| Trouble::Bad(format!("no attribute '{name}' above zero")))
}

fn attention(call: &mut Call<'_>, past: usize, element: Option<ElementType>) -> Facts {
    let [batch, sequence, _] = call.ranked::<3>(0)?;
    let hidden = value_width(call)?;
    let output = Fact::tensor(element, vec![batch.clone(), sequence.clone(), hidden.clone()]);
    let count = heads_of(call, "num_heads")?;
    let size = call.symbols.floor_div(&hidden, count);
    let (earlier, shared) = match call.given(past) {
        Some(_) => (call.ranked::<5>(past)?[3].clone(), call.int_or("past_present_share_buffer", 0) != 0),
        None => (Dim::Known(0), false),
    };
    let total = if shared { earlier } else { call.symbols.add(&earlier, &sequence) };
    let present = vec![Dim::Known(2), batch, Dim::Known(count), total, size];
    Ok(vec![output, Fact::tensor(element, present)])
}

fn multi_head(call: &mut Call<'_>) -> Facts {
    let count = heads_of(call, "num_heads")?;
    let heads = Dim::Known(count);
    let element = call.element(0);
    let query = call.dims(0)?;
    let (batch, sequence) = match query {
        [batch, sequence, _] | [batch, sequence, _, _, _] => (batch.clone(), sequence.clone()),
        other => return Err(Trouble::Bad(format!("a query of {} dimensions", other.len()))),
    };
    // Packed projections, then separate ones; keys of four dimensions come from cross attention.
    let (keys, key_size, value_size) = match (query, call.given(1).map(|_| call.dims(1)).transpose()?) {
        ([_, _, _, _, size], _) => (sequence.clone(), size.clone(), size.clone()),
        (_, Some([_, keys, _, _, size])) => (keys.clone(), size.clone(), size.clone()),
        (_, Some([_, _, keys, size])) => (keys.clone(), size.clone(), call.ranked::<4>(2)?[3].clone()),
        (_, Some([_, keys, width])) => {
            let values = call.ranked::<3>(2)?;
            let (size, value) = (call.symbols.floor_div(width, count), call.symbols.floor_div(&values[2], count));
            (keys.clone(), size, value)
        }
        _ => {
            let size = call.symbols.floor_div(&query[2], count);
            (sequence.clone(), size.clone(), size)
        }
    };
    let hidden = call.symbols.mul(&heads, &value_size);
    let past = match call.given(6) {
        Some(_) => call.ranked::<4>(6)?[2].clone(),
        None => Dim::Known(0),
    };
    let shared = call.int_or("past_present_share_buffer", 0) != 0;
    let total = if shared { past } else { call.symbols.add(&past, &keys) };
    let cache = |size: Dim| Fact::tensor(element, vec![batch.clone(), heads.clone(), total.clone(), size]);
    Ok(vec![
        Fact::tensor(element, vec![batch.clone(), sequence.clone(), hidden]),
        cache(key_size),
        cache(value_size),
        Fact::tensor(element, vec![batch.clone(), heads.clone(), sequence.clone(), total.clone()]),
    ])
}

fn masked_decoder(call: &mut Call<'_>) -> Facts {
    let [batch, sequence, width] = call.ranked::<3>(0)?;
    let width = match call.given(2).map(|_| call.dims(2)).transpose()? {
        Some([_, _, width]) => width.clone(),
        Some([_, heads, _, size]) => call.symbols.mul(heads, size),
        _ => width,
    };
    let mut facts = vec![Fact::tensor(call.element(0), vec![batch, sequence, width])];
    for index in [5, 6] {
        if call.given(index).is_some() {
            facts.push(Fact::tensor(call.element(index), call.dims(index)?.to_vec()));
        }
    }
    Ok(facts)
}

/// The output of a grouped attention: as wide as the queries, without keys and values packed beside them.
fn query_like(call: &mut Call<'_>) -> Result<Fact, Trouble> {
    let query = call.dims(0)?;
    let mut dims = query.to_vec();
    let last = dims.last_mut().ok_or_else(|| Trouble::Bad("a query that is a scalar".into()))?;
    if call.given(1).is_none() {
        let (heads, pairs) = (heads_of(call, "num_heads")?, heads_of(call, "kv_num_heads")?);
        let size = call.symbols.floor_div(last, heads.saturating_add(pairs.saturating_mul(2)));
        *last = call.symbols.mul(&Dim::Known(heads), &size);
    }
    Ok(Fact::tensor(call.element(0), dims))
}

fn group_query(call: &mut Call<'_>) -> Facts {
    let output = query_like(call)?;
    let [batch, sequence, hidden] = <[Dim; 3]>::try_from(output.shape.dims().unwrap_or_default().to_vec())
        .map_err(|dims| Trouble::Bad(format!("a query of {} dimensions", dims.len())))?;
    let (heads, pairs) = (heads_of(call, "num_heads")?, heads_of(call, "kv_num_heads")?);
    let size = call.symbols.floor_div(&hidden, heads);
    let total =
        call.given(6).and_then(|fact| fact.value.as_ref()).and_then(|value| value.first()).and_then(Scalar::dim);
    let (cached, size) = match call.given(3) {
        Some(_) => {
            let [_, _, past, size] = call.ranked::<4>(3)?;
            // The cache is a buffer of the longest sequence, or grows by this step.
            let cached = match (&total, &past) {
                (Some(Dim::Known(total)), Dim::Known(past)) => Dim::Known(*total.max(past)),
                _ => call.symbols.add(&past, &sequence),
            };
            (cached, size)
        }
        None => (total.unwrap_or(sequence), size),
    };
    let element = call.element(3).or(output.element);
    let present = Fact::tensor(element, vec![batch, Dim::Known(pairs), cached, size]);
    Ok(vec![output, present.clone(), present])
}

fn decoder(call: &mut Call<'_>) -> Facts {
    let [_, batch, hidden] = call.ranked::<3>(0)?;
    let [keys, ..] = call.ranked::<3>(1)?;
    let count = heads_of(call, "num_heads")?;
    let size = call.symbols.floor_div(&hidden, count);
    let cache = Fact::tensor(call.element(0), vec![batch, Dim::Known(count), keys, size]);
    Ok(vec![call.like_first()?, cache.clone(), cache])
}
