//! Attention and its position embeddings, as the standard defines them from version 23 on.

use super::super::fact::Fact;
use super::{Call, Facts, Trouble, length};
use npumem_ir::Dim;

pub(super) fn infer(call: &mut Call<'_>) -> Facts {
    match call.kind {
        "Attention" => attention(call),
        "RotaryEmbedding" => Ok(vec![call.like_first()?]),
        "LinearAttention" => linear(call),
        "CausalConvWithState" => causal_conv(call),
        _ => Err(Trouble::UnknownOperator),
    }
}

/// An input as (batch, heads, sequence, head size), whether packed in three dimensions or not.
fn heads(call: &mut Call<'_>, index: usize, count: &str) -> Result<[Dim; 4], Trouble> {
    match call.dims(index)? {
        [batch, sequence, hidden] => {
            let count = call.int(count).ok_or_else(|| Trouble::Bad(format!("no attribute '{count}'")))?;
            let count = u64::try_from(count).ok().filter(|count| *count > 0);
            let count = count.ok_or_else(|| Trouble::Bad("a number of heads below one".into()))?;
            let size = call.symbols.floor_div(hidden, count);
            Ok([batch.clone(), Dim::Known(count), sequence.clone(), size])
        }
        [batch, heads, sequence, size] => Ok([batch.clone(), heads.clone(), sequence.clone(), size.clone()]),
        other => Err(Trouble::Bad(format!("input {index} with {} dimensions instead of 3 or 4", other.len()))),
    }
}

fn attention(call: &mut Call<'_>) -> Facts {
    let packed = call.dims(0)?.len() == 3;
    let [batch, query_heads, sequence, _] = heads(call, 0, "q_num_heads")?;
    let [_, key_heads, new_keys, key_size] = heads(call, 1, "kv_num_heads")?;
    let [_, value_heads, _, value_size] = heads(call, 2, "kv_num_heads")?;
    let past = match call.given(4) {
        Some(_) => call.ranked::<4>(4)?[2].clone(),
        None => Dim::Known(0),
    };
    let total = call.symbols.add(&past, &new_keys);
    let output = if packed {
        let hidden = call.symbols.mul(&query_heads, &value_size);
        vec![batch.clone(), sequence.clone(), hidden]
    } else {
        vec![batch.clone(), query_heads.clone(), sequence.clone(), value_size.clone()]
    };
    let element = call.element(0);
    Ok(vec![
        Fact::tensor(element, output),
        Fact::tensor(call.element(1), vec![batch.clone(), key_heads, total.clone(), key_size]),
        Fact::tensor(call.element(2), vec![batch.clone(), value_heads, total.clone(), value_size]),
        Fact::tensor(element, vec![batch, query_heads, sequence, total]),
    ])
}

/// `FlexAttention`: queries and values in four dimensions.
pub(super) fn flex(call: &mut Call<'_>) -> Facts {
    let ([batch, heads, sequence, _], [.., size]) = (call.ranked::<4>(0)?, call.ranked::<4>(2)?);
    Ok(vec![Fact::tensor(call.element(0), vec![batch, heads, sequence, size])])
}

fn linear(call: &mut Call<'_>) -> Facts {
    let ([batch, sequence, queries], [_, _, keys], [_, _, values]) =
        (call.ranked::<3>(0)?, call.ranked::<3>(1)?, call.ranked::<3>(2)?);
    let query_heads = length(call.int_or("q_num_heads", 0))?;
    let heads = length(call.int_or("kv_num_heads", 0))?;
    let (Some(count), Some(_)) =
        (heads.known().filter(|count| *count > 0), query_heads.known().filter(|count| *count > 0))
    else {
        return Err(Trouble::Bad("a number of heads below one".into()));
    };
    let _ = queries;
    let (key_size, value_size) = (call.symbols.floor_div(&keys, count), call.symbols.floor_div(&values, count));
    let hidden = call.symbols.mul(&query_heads, &value_size);
    let state = vec![batch.clone(), heads, key_size, value_size];
    let state_type = call.element(3).or(call.element(0));
    Ok(vec![Fact::tensor(call.element(0), vec![batch, sequence, hidden]), Fact::tensor(state_type, state)])
}

fn causal_conv(call: &mut Call<'_>) -> Facts {
    let ([batch, channels, _], [.., kernel]) = (call.ranked::<3>(0)?, call.ranked::<3>(1)?);
    let kept = call.symbols.offset(&kernel, -1);
    Ok(vec![call.like_first()?, Fact::tensor(call.element(0), vec![batch, channels, kept])])
}
