//! Recurrent layers.

use super::super::fact::Fact;
use super::{Call, Facts, Trouble, length};
use npumem_ir::Dim;

pub(super) fn infer(call: &mut Call<'_>) -> Facts {
    match call.kind {
        "RNN" | "GRU" => layer(call, false),
        "LSTM" => layer(call, true),
        _ => Err(Trouble::UnknownOperator),
    }
}

/// Output (sequence, directions, batch, hidden), then the last hidden state, for an LSTM also the last cell.
pub(super) fn layer(call: &mut Call<'_>, cell: bool) -> Facts {
    let [first, second, _] = call.ranked::<3>(0)?;
    let hidden = match call.int("hidden_size") {
        Some(hidden) => length(hidden)?,
        // The recurrence weight: (directions, gates x hidden, hidden).
        None => call.ranked::<3>(2)?[2].clone(),
    };
    let directions = Dim::Known(if call.text("direction") == Some("bidirectional") { 2 } else { 1 });
    let element = call.element(0);
    let (all, last) = if call.int_or("layout", 0) == 0 {
        let (sequence, batch) = (first, second);
        (vec![sequence, directions.clone(), batch.clone(), hidden.clone()], vec![directions, batch, hidden])
    } else {
        let (batch, sequence) = (first, second);
        (vec![batch.clone(), sequence, directions.clone(), hidden.clone()], vec![batch, directions, hidden])
    };
    let last = Fact::tensor(element, last);
    let mut facts = vec![Fact::tensor(element, all), last.clone()];
    if cell {
        facts.push(last);
    }
    Ok(facts)
}
