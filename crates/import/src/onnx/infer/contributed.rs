//! ONNX Runtime's own operators (`com.microsoft`): what its optimiser fuses, quantises and re-lays.

use super::super::fact::{Fact, Scalar};
use super::{
    Call, Facts, Trouble, convolution, elementwise, fused_attention, indexing, layout, length, recurrent, reduction,
};
use npumem_ir::{Dim, ElementType};

pub(super) fn infer(call: &mut Call<'_>) -> Facts {
    if call.domain != "com.microsoft" {
        return laid_out(call);
    }
    match call.kind {
        "BiasGelu"
        | "BiasAdd"
        | "BiasSoftmax"
        | "FastGelu"
        | "Gelu"
        | "GroupNorm"
        | "Inverse"
        | "MoE"
        | "QMoE"
        | "QLinearLeakyRelu"
        | "QLinearSigmoid"
        | "QLinearSoftmax"
        | "QuickGelu"
        | "RotaryEmbedding"
        | "LongformerAttention"
        | "QOrderedGelu"
        | "QOrderedLayerNormalization"
        | "Trilu"
        | "ComplexMul"
        | "ComplexMulConj" => Ok(vec![call.like_first()?]),
        "SkipGroupNorm" => Ok(vec![call.like_first()?, call.like_first()?]),
        "BiasDropout" | "BitmaskDropout" | "BitmaskBiasDropout" => dropout(call),
        "BiasSplitGelu" => {
            let dims = call.dims(0)?;
            let axis = call.axis(-1, dims.len())?;
            let half = call.symbols.floor_div(&dims[axis], 2);
            Ok(vec![Fact::tensor(call.element(0), reduction::with_axis(dims, axis, half))])
        }
        "SkipLayerNormalization" | "SkipSimplifiedLayerNormalization" => {
            let sum = call.like_first()?;
            let mut facts = elementwise::layer_normalization(call, 2)?;
            facts.push(sum);
            Ok(facts)
        }
        "EmbedLayerNormalization" => embed(call),
        "FusedConv" => convolution::conv(call, 1, call.element(0)),
        "NhwcFusedConv" | "NhwcConv" => channels_last_conv(call, 1, call.element(0)),
        "QLinearConv" if call.int_or("channels_last", 0) != 0 => channels_last_conv(call, 3, call.element(7)),
        "QLinearConv" => convolution::conv(call, 3, call.element(7)),
        "NhwcMaxPool" => channels_last_pool(call),
        "QLinearAveragePool" if call.int_or("channels_last", 0) != 0 => channels_last_pool(call),
        "QLinearAveragePool" => convolution::pool(call, false),
        "MaxpoolWithMask" => convolution::pool(call, false),
        "QLinearGlobalAveragePool" => global_pool(call),
        "ConvTransposeWithDynamicPads" => dynamic_pads(call),
        "CropAndResize" => {
            let ([_, channels, _, _], [rois, _]) = (call.ranked::<4>(0)?, call.ranked::<2>(1)?);
            let mut size = layout::dims_from(call, 3)?;
            size.splice(0..0, [rois, channels]);
            Ok(vec![Fact::tensor(call.element(0), size)])
        }
        "FusedMatMul" | "TransposeMatMul" | "FusedMatMulActivation" => fused_matmul(call),
        "GemmFastGelu" | "SparseToDenseMatMul" => product(call, 1, call.element(0)),
        "DynamicQuantizeMatMul" => product(call, 1, Some(ElementType::F32)),
        "MatMulIntegerToFloat" => product(call, 1, call.element(2)),
        "MatMulInteger16" => product(call, 1, Some(ElementType::I32)),
        "FusedGemm" => reduction::gemm(call),
        "GemmFloat8" => {
            let element = call.element_attribute("dtype")?.or(call.element(0));
            let fact = reduction::gemm(call)?.remove(0);
            Ok(vec![Fact { element, ..fact }])
        }
        "QGemm" => q_gemm(call),
        "MatMulNBits" | "MatMulBnb4" | "MatMulFpQ4" => {
            let dims = call.dims(0)?;
            let axis = call.axis(-1, dims.len())?;
            let columns = match call.int("N") {
                Some(columns) => length(columns)?,
                None => layout::dims_from(call, 2)?.pop().unwrap_or(Dim::Known(1)),
            };
            Ok(vec![Fact::tensor(call.element(0), reduction::with_axis(dims, axis, columns))])
        }
        "GatherBlockQuantized" => gather_blocks(call),
        "QLinearAdd" | "QLinearMul" => {
            let dims = call.broadcast(&[call.dims(0)?, call.dims(3)?])?;
            Ok(vec![Fact::tensor(call.element(0), dims)])
        }
        "MulInteger" => {
            let other = if call.inputs.len() > 2 { 2 } else { 1 };
            let dims = call.broadcast(&[call.dims(0)?, call.dims(other)?])?;
            Ok(vec![Fact::tensor(Some(ElementType::I32), dims)])
        }
        "QLinearWhere" => {
            let dims = call.broadcast(&[call.dims(0)?, call.dims(1)?, call.dims(4)?])?;
            Ok(vec![Fact::tensor(call.element(1), dims)])
        }
        "QLinearConcat" => q_concat(call),
        "QLinearReduceMean" => reduction::reduce(call),
        "ReduceSumInteger" => {
            let fact = reduction::reduce(call)?.remove(0);
            Ok(vec![Fact { element: Some(ElementType::I32), ..fact }])
        }
        "DynamicQuantizeLSTM" => recurrent::layer(call, true),
        "GatherND" => indexing::gather_nd(call, 0),
        "CDist" => {
            let ([rows, _], [columns, _]) = (call.ranked::<2>(0)?, call.ranked::<2>(1)?);
            Ok(vec![Fact::tensor(call.element(0), vec![rows, columns])])
        }
        "ExpandDims" => {
            let dims = call.dims(0)?;
            let axis = call.list("axis", 1)?.and_then(|axis| axis.first().copied()).unwrap_or(0);
            let mut out = dims.to_vec();
            out.insert(call.axis(axis, dims.len() + 1)?, Dim::Known(1));
            Ok(vec![Fact::tensor(call.element(0), out)])
        }
        "Rfft" | "Irfft" => spectrum(call),
        "MurmurHash3" => {
            let element = if call.int_or("positive", 1) != 0 { ElementType::U32 } else { ElementType::I32 };
            Ok(vec![Fact { element: Some(element), ..call.like_first()? }])
        }
        "NGramRepeatBlock" => Ok(vec![Fact::tensor(call.element(1), call.dims(1)?.to_vec())]),
        "TorchEmbedding" => {
            let (weight, indices) = (call.dims(0)?, call.dims(1)?);
            let width = weight.last().cloned().unwrap_or(Dim::Known(1));
            Ok(vec![Fact::tensor(call.element(0), [indices, &[width]].concat())])
        }
        "UnfoldTensor" => unfold(call),
        "BeamSearch" | "WhisperBeamSearch" | "GreedySearch" | "Sampling" => search(call),
        "RemovePadding" | "RestorePadding" => padding(call),
        // (values, where each element went, counts): the standard has the first places before.
        "Unique" => {
            call.domain = "";
            let mut facts = super::standard(call)?;
            facts.remove(1);
            Ok(facts)
        }
        // The standard operator under another name.
        "Pad" | "Range" | "GridSample" | "QuantizeLinear" | "DequantizeLinear" => {
            call.version = 17;
            call.domain = "";
            super::standard(call)
        }
        _ => fused_attention::infer(call),
    }
}

fn product(call: &mut Call<'_>, other: usize, element: Option<ElementType>) -> Facts {
    let dims = reduction::matmul(call, call.dims(0)?, call.dims(other)?)?;
    Ok(vec![Fact::tensor(element, dims)])
}

fn dropout(call: &mut Call<'_>) -> Facts {
    let output = call.like_first()?;
    let mask = if call.kind == "BiasDropout" {
        Fact { element: Some(ElementType::Bool), ..output.clone() }
    } else {
        let total = call.symbols.product(call.dims(0)?);
        Fact::tensor(Some(ElementType::U32), vec![call.symbols.ceil_div(&total, 32)])
    };
    Ok(vec![output, mask])
}

fn embed(call: &mut Call<'_>) -> Facts {
    let ids = call.dims(0)?;
    let [_, width] = call.ranked::<2>(2)?;
    let batch = ids.first().cloned().unwrap_or(Dim::Known(1));
    let output = Fact::tensor(call.element(2), [ids, &[width]].concat());
    Ok(vec![output.clone(), Fact::tensor(Some(ElementType::I32), vec![batch]), output])
}

/// Channels last turned to channels second.
fn channels_second(dims: &[Dim]) -> Result<Vec<Dim>, Trouble> {
    match dims {
        [batch, image @ .., channels] if !image.is_empty() => Ok([&[batch.clone(), channels.clone()], image].concat()),
        _ => Err(Trouble::Bad(format!("an image of {} dimensions", dims.len()))),
    }
}

fn channels_last_conv(call: &mut Call<'_>, weight: usize, element: Option<ElementType>) -> Facts {
    let image = channels_second(call.dims(0)?)?;
    let weight = call.dims(weight)?;
    if weight.len() != image.len() {
        return Err(Trouble::Bad(format!("an image of {} dimensions and a weight of {}", image.len(), weight.len())));
    }
    // The weight is (out, in / group, window...) or (out, window..., in / group): told apart by the channels.
    let taken = image[1].known().map(|channels| channels / u64::try_from(call.int_or("group", 1)).unwrap_or(1).max(1));
    let second = taken.is_some() && weight[1].known() == taken;
    let sides = if second { &weight[2..] } else { &weight[1..weight.len() - 1] };
    let window = convolution::Window::of(call, convolution::kernel(call, Some(sides))?)?;
    let mut dims = vec![image[0].clone()];
    dims.extend(window.slide_all(call, &image[2..], false)?);
    dims.push(weight[0].clone());
    Ok(vec![Fact::tensor(element, dims)])
}

fn channels_last_pool(call: &mut Call<'_>) -> Facts {
    let image = channels_second(call.dims(0)?)?;
    let window = convolution::Window::of(call, convolution::kernel(call, None)?)?;
    let mut dims = vec![image[0].clone()];
    dims.extend(window.slide_all(call, &image[2..], call.int_or("ceil_mode", 0) != 0)?);
    dims.push(image[1].clone());
    Ok(vec![Fact::tensor(call.element(0), dims)])
}

fn global_pool(call: &mut Call<'_>) -> Facts {
    let mut dims = call.dims(0)?.to_vec();
    let image = if call.int_or("channels_last", 0) != 0 {
        1..dims.len().saturating_sub(1).max(1)
    } else {
        2..dims.len().max(2)
    };
    if let Some(image) = dims.get_mut(image) {
        image.fill(Dim::Known(1));
    }
    Ok(vec![Fact::tensor(call.element(0), dims)])
}

fn dynamic_pads(call: &mut Call<'_>) -> Facts {
    let fact = convolution::conv_transpose(call)?.remove(0);
    let Some(dims) = fact.shape.dims() else { return Ok(vec![fact]) };
    let rank = dims.len() - 2;
    let mut dims = dims.to_vec();
    if call.given(2).is_some() {
        let pads = layout::dims_from(call, 2)?;
        for axis in 0..rank {
            for pad in [pads.get(axis), pads.get(rank + axis)].into_iter().flatten() {
                dims[axis + 2] = call.symbols.sub(&dims[axis + 2], pad);
            }
        }
    }
    Ok(vec![Fact::tensor(fact.element, dims)])
}

fn fused_matmul(call: &mut Call<'_>) -> Facts {
    let side = |call: &Call<'_>, index: usize, flip: &str, batch: &str| -> Result<Vec<Dim>, Trouble> {
        let mut dims = call.dims(index)?.to_vec();
        let rank = dims.len();
        // The first dimension moves to stand before the last one; then the last two are swapped.
        if call.int_or(batch, 0) != 0 && rank > 2 {
            dims[..rank - 1].rotate_left(1);
        }
        if call.int_or(flip, 0) != 0 && rank > 1 {
            dims.swap(rank - 1, rank - 2);
        }
        Ok(dims)
    };
    let (a, b) = (side(call, 0, "transA", "transBatchA")?, side(call, 1, "transB", "transBatchB")?);
    let dims = reduction::matmul(call, &a, &b)?;
    Ok(vec![Fact::tensor(call.element(0), dims)])
}

fn q_gemm(call: &mut Call<'_>) -> Facts {
    // (A, scale, zero point, B, ...): the second matrix stands where `Gemm` has none.
    let (a, b) = (call.ranked::<2>(0)?, call.ranked::<2>(3)?);
    let rows = &a[usize::from(call.int_or("transA", 0) != 0)];
    let columns = &b[usize::from(call.int_or("transB", 0) == 0)];
    let element = call.element(8).or(Some(ElementType::F32));
    Ok(vec![Fact::tensor(element, vec![rows.clone(), columns.clone()])])
}

fn gather_blocks(call: &mut Call<'_>) -> Facts {
    let (data, indices) = (call.dims(0)?, call.dims(1)?);
    let axis = call.axis(call.int_or("gather_axis", 0), data.len())?;
    let mut rest = data.to_vec();
    // Two four-bit elements in each byte, along the last dimension.
    if call.element(0) == Some(ElementType::U8)
        && call.int_or("bits", 4) == 4
        && let Some(last) = rest.last_mut()
    {
        *last = call.symbols.mul(&last.clone(), &Dim::Known(2));
    }
    Ok(vec![Fact::tensor(call.element(2), [&rest[..axis], indices, &rest[axis + 1..]].concat())])
}

fn q_concat(call: &mut Call<'_>) -> Facts {
    let mut dims = call.dims(2)?.to_vec();
    let axis = call.axis(call.int_or("axis", 0), dims.len())?;
    for index in (5..call.inputs.len()).step_by(3) {
        let next = call.dims(index)?;
        let next =
            next.get(axis).ok_or_else(|| Trouble::Bad(format!("input {index} with {} dimensions", next.len())))?;
        dims[axis] = call.symbols.add(&dims[axis], next);
    }
    Ok(vec![Fact::tensor(call.element(1), dims)])
}

fn spectrum(call: &mut Call<'_>) -> Facts {
    let mut dims = call.dims(0)?.to_vec();
    let one_sided = call.int_or("onesided", 0) != 0;
    if call.kind == "Rfft" {
        if let (true, Some(last)) = (one_sided, dims.last_mut()) {
            let half = call.symbols.floor_div(last, 2);
            *last = call.symbols.offset(&half, 1);
        }
        dims.push(Dim::Known(2));
    } else {
        dims.pop();
        if let (true, Some(last)) = (one_sided, dims.last_mut()) {
            let half = call.symbols.offset(last, -1);
            *last = call.symbols.mul(&half, &Dim::Known(2));
        }
    }
    Ok(vec![Fact::tensor(call.element(0), dims)])
}

fn unfold(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let axis = call.axis(call.int_or("dim", -1), dims.len())?;
    let (size, step) = (length(call.int_or("size", 1))?, call.int_or("step", 1).max(1).unsigned_abs());
    let span = call.symbols.sub(&dims[axis], &size);
    let steps = call.symbols.floor_div(&span, step);
    let count = call.symbols.offset(&steps, 1);
    let mut out = reduction::with_axis(dims, axis, count);
    out.push(size);
    Ok(vec![Fact::tensor(call.element(0), out)])
}

/// Sequences as long as they may become: (batch, returned, longest), greedy ones (batch, longest).
fn search(call: &mut Call<'_>) -> Facts {
    let batch = call.dims(0)?.first().cloned().unwrap_or(Dim::Known(1));
    let value = |call: &mut Call<'_>, index: usize, axis: usize| {
        let known = call.given(index).and_then(|fact| fact.value.as_ref()).and_then(|value| value.first());
        known.and_then(Scalar::dim).unwrap_or_else(|| call.fresh(0, axis, None))
    };
    let longest = value(call, 1, 2);
    let dims =
        if call.kind.ends_with("BeamSearch") { vec![batch, value(call, 4, 1), longest] } else { vec![batch, longest] };
    Ok(vec![Fact::tensor(Some(ElementType::I32), dims)])
}

fn padding(call: &mut Call<'_>) -> Facts {
    if call.kind == "RestorePadding" {
        let ([_, width], [batch, sequence]) = (call.ranked::<2>(0)?, call.ranked::<2>(1)?);
        return Ok(vec![Fact::tensor(call.element(0), vec![batch, sequence, width])]);
    }
    let [batch, sequence, width] = call.ranked::<3>(0)?;
    let most = batch.known().zip(sequence.known()).and_then(|(batch, sequence)| batch.checked_mul(sequence));
    let tokens = call.fresh(0, 0, most.map(|most| (0, most)));
    let whole = |dims| Fact::tensor(Some(ElementType::I32), dims);
    let sums = call.symbols.offset(&batch, 1);
    let output = Fact::tensor(call.element(0), vec![tokens, width]);
    Ok(vec![output, whole(vec![batch, sequence]), whole(vec![sums]), whole(vec![Dim::Known(1)])])
}

/// Operators on layouts that only the runtime's own kernels use.
fn laid_out(call: &mut Call<'_>) -> Facts {
    if call.domain == "com.ms.internal.nhwc" {
        return match call.kind {
            "Conv" => channels_last_conv(call, 1, call.element(0)),
            "MaxPool" | "AveragePool" => channels_last_pool(call),
            _ => Err(Trouble::UnknownOperator),
        };
    }
    match call.kind {
        // Channels in blocks: the dimensions stay (batch, channels, image), channels padded to the block.
        "Conv" => {
            let (image, weight) = (call.dims(0)?, call.dims(1)?);
            if image.len() < 3 || weight.len() != image.len() {
                let (image, weight) = (image.len(), weight.len());
                return Err(Trouble::Bad(format!("an image of {image} dimensions and a weight of {weight}")));
            }
            let window = convolution::Window::of(call, convolution::kernel(call, Some(&weight[2..]))?)?;
            let mut dims = vec![image[0].clone(), weight[0].clone()];
            dims.extend(window.slide_all(call, &image[2..], false)?);
            Ok(vec![Fact::tensor(call.element(0), dims)])
        }
        "MaxPool" | "AveragePool" => convolution::pool(call, false),
        "GlobalMaxPool" | "GlobalAveragePool" | "Upsample" => {
            call.domain = "";
            super::standard(call)
        }
        "ReorderInput" => {
            let last = call.int_or("channels_last", 0) != 0;
            let mut dims = if last { channels_second(call.dims(0)?)? } else { call.dims(0)?.to_vec() };
            if let Some(channels) = dims.get_mut(1) {
                let blocks = call.symbols.ceil_div(channels, 8);
                *channels = call.symbols.mul(&blocks, &Dim::Known(8));
            }
            Ok(vec![Fact::tensor(call.element(0), dims)])
        }
        "ReorderOutput" => {
            let mut dims = call.dims(0)?.to_vec();
            if dims.len() > 1 {
                dims[1] = length(call.int_or("channels", 0))?;
                if call.int_or("channels_last", 0) != 0 {
                    dims[1..].rotate_left(1);
                }
            }
            Ok(vec![Fact::tensor(call.element(0), dims)])
        }
        _ => Err(Trouble::UnknownOperator),
    }
}
