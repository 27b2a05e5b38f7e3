//! Signal processing: Fourier transforms and windows.

use super::super::fact::{Fact, Scalar};
use super::reduction::with_axis;
use super::{Call, Facts, Trouble};
use npumem_ir::{Dim, ElementType};

pub(super) fn infer(call: &mut Call<'_>) -> Facts {
    match call.kind {
        "DFT" => dft(call),
        "STFT" => stft(call),
        "BlackmanWindow" | "HammingWindow" | "HannWindow" => {
            let element = call.element_attribute("output_datatype")?.unwrap_or(ElementType::F32);
            let size = scalar(call, 0);
            Ok(vec![Fact::tensor(Some(element), vec![size])])
        }
        "MelWeightMatrix" => {
            let element = call.element_attribute("output_datatype")?.unwrap_or(ElementType::F32);
            let (bins, length) = (scalar(call, 0), scalar(call, 1));
            let spectrum = one_sided(call, &length);
            Ok(vec![Fact::tensor(Some(element), vec![spectrum, bins])])
        }
        _ => Err(Trouble::UnknownOperator),
    }
}

/// The length that a small input holds.
fn scalar(call: &mut Call<'_>, index: usize) -> Dim {
    let known = call.given(index).and_then(|fact| fact.value.as_ref()).and_then(|value| value.first());
    known.and_then(Scalar::dim).unwrap_or_else(|| call.fresh(0, 0, None))
}

fn one_sided(call: &mut Call<'_>, length: &Dim) -> Dim {
    let half = call.symbols.floor_div(length, 2);
    call.symbols.offset(&half, 1)
}

fn dft(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let axis = match call.list("axis_not_listed", 2) {
        Ok(Some(axis)) => axis.first().copied().unwrap_or(-2),
        _ if call.version >= 20 => -2,
        _ => call.int_or("axis", 1),
    };
    let axis = call.axis(axis, dims.len())?;
    let one = call.int_or("onesided", 0) != 0;
    let inverse = call.int_or("inverse", 0) != 0;
    let mut out = dims.to_vec();
    if call.given(1).is_some() {
        out[axis] = scalar(call, 1);
    } else if one && inverse {
        // The whole from its half: 2 (n - 1).
        let half = call.symbols.offset(&dims[axis], -1);
        out[axis] = call.symbols.mul(&half, &Dim::Known(2));
    }
    if one && !inverse {
        out[axis] = one_sided(call, &out[axis].clone());
    }
    let last = out.len() - 1;
    let parts = Dim::Known(if one && inverse { 1 } else { 2 });
    Ok(vec![Fact::tensor(call.element(0), with_axis(&out, last, parts))])
}

fn stft(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let [batch, signal, ..] = dims else {
        return Err(Trouble::Bad("a signal of one dimension".into()));
    };
    let step = scalar(call, 1);
    let frame = match (call.given(3), call.given(2).and_then(|window| window.shape.dims())) {
        (Some(_), _) => scalar(call, 3),
        (None, Some([window])) => window.clone(),
        _ => return Err(Trouble::Bad("neither a window nor a frame length".into())),
    };
    let bins = if call.int_or("onesided", 1) != 0 { one_sided(call, &frame) } else { frame.clone() };
    let span = call.symbols.sub(signal, &frame);
    let frames = match step.known() {
        Some(step) if step > 0 => call.symbols.floor_div(&span, step),
        _ => call.symbols.quotient(&[span], &[step]),
    };
    let frames = call.symbols.offset(&frames, 1);
    Ok(vec![Fact::tensor(call.element(0), vec![batch.clone(), frames, bins, Dim::Known(2)])])
}
