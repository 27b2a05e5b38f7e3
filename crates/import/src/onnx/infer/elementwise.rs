//! Operators that keep a shape, and those that broadcast shapes against each other.

use super::super::fact::Fact;
use super::{Call, Facts, Trouble, values};
use npumem_ir::{Dim, ElementType};

pub(super) fn infer(call: &mut Call<'_>) -> Facts {
    match call.kind {
        "Abs" | "Ceil" | "Exp" | "Floor" | "Log" | "Neg" | "Not" | "Reciprocal" | "Relu" | "Round" | "Sign"
        | "Sqrt" => {
            let value = values::unary(call);
            Ok(vec![call.like_first()?.with_value(value)])
        }
        "Acos"
        | "Acosh"
        | "Asin"
        | "Asinh"
        | "Atan"
        | "Atanh"
        | "BitwiseNot"
        | "Celu"
        | "Clip"
        | "Cos"
        | "Cosh"
        | "CumProd"
        | "CumSum"
        | "Elu"
        | "Erf"
        | "Gelu"
        | "GroupNormalization"
        | "HardSigmoid"
        | "HardSwish"
        | "Hardmax"
        | "InstanceNormalization"
        | "LRN"
        | "LeakyRelu"
        | "LogSoftmax"
        | "LpNormalization"
        | "MeanVarianceNormalization"
        | "Mish"
        | "ReverseSequence"
        | "RMSNormalization"
        | "SimplifiedLayerNormalization"
        | "Scatter"
        | "ScatterElements"
        | "ScatterND"
        | "Selu"
        | "Shrink"
        | "Sigmoid"
        | "Sin"
        | "Sinh"
        | "Softmax"
        | "Softplus"
        | "Softsign"
        | "SwiGLU"
        | "Swish"
        | "Tan"
        | "Tanh"
        | "TensorScatter"
        | "ThresholdedRelu"
        | "Trilu"
        | "Affine"
        | "ImageScaler"
        | "ParametricSoftplus"
        | "ScaledTanh"
        | "Scale" => {
            if call.kind == "SimplifiedLayerNormalization" {
                return layer_normalization(call, 1);
            }
            Ok(vec![call.like_first()?])
        }
        "Identity" => Ok(vec![call.input(0)?.clone()]),
        "IsInf" | "IsNaN" => Ok(vec![Fact { element: Some(ElementType::Bool), ..call.like_first()? }]),
        "Cast" | "BitCast" => {
            let to = call.element_attribute("to")?.ok_or_else(|| Trouble::Bad("no attribute 'to'".into()))?;
            let value = match call.kind {
                "Cast" => call.input(0)?.value.as_deref().map(|value| values::cast(value, to)),
                _ => None,
            };
            Ok(vec![Fact { element: Some(to), ..call.like_first()? }.with_value(value)])
        }
        "CastLike" => {
            let to = call.element(1);
            let value = call.input(0)?.value.as_deref().zip(to).map(|(value, to)| values::cast(value, to));
            Ok(vec![Fact { element: to, ..call.like_first()? }.with_value(value)])
        }
        "Bernoulli" | "RandomNormalLike" | "RandomUniformLike" | "EyeLike" => {
            let element = call.element_attribute("dtype")?.or(call.element(0));
            Ok(vec![Fact { element, ..call.like_first()? }])
        }
        "Add" | "Sub" | "Mul" | "Div" | "Mod" | "Pow" | "BitShift" | "BitwiseAnd" | "BitwiseOr" | "BitwiseXor"
        | "PRelu" => broadcasting(call, None),
        "And" | "Or" | "Xor" | "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual" => {
            broadcasting(call, Some(ElementType::Bool))
        }
        "Max" | "Min" | "Mean" | "Sum" => {
            let dims = all_broadcast(call)?;
            let value = if call.kind == "Mean" { None } else { values::variadic(call, &dims) };
            Ok(vec![Fact::tensor(call.element(0), dims).with_value(value)])
        }
        "Where" => {
            let dims = all_broadcast(call)?;
            let value = values::select(call, &dims);
            Ok(vec![Fact::tensor(call.element(1).or(call.element(2)), dims).with_value(value)])
        }
        "Dropout" => {
            let mask_type = if call.version >= 10 { Some(ElementType::Bool) } else { call.element(0) };
            let output = Fact { value: call.input(0)?.value.clone(), ..call.like_first()? };
            Ok(vec![output.clone(), Fact { element: mask_type, value: None, ..output }])
        }
        "BatchNormalization" => batch_normalization(call),
        "LayerNormalization" => layer_normalization(call, 2),
        "QuantizeLinear" => {
            let element = match call.element_attribute("output_dtype")? {
                Some(element) => Some(element),
                None if call.given(2).is_some() => call.element(2),
                None => Some(ElementType::U8),
            };
            Ok(vec![Fact { element, ..call.like_first()? }])
        }
        "DequantizeLinear" => {
            let element = call.element_attribute("output_dtype")?.or(call.element(1));
            Ok(vec![Fact { element, ..call.like_first()? }])
        }
        "DynamicQuantizeLinear" => {
            let output = Fact { element: Some(ElementType::U8), ..call.like_first()? };
            let scale = Fact::tensor(Some(ElementType::F32), Vec::new());
            Ok(vec![output, scale, Fact::tensor(Some(ElementType::U8), Vec::new())])
        }
        "StringNormalizer" => {
            let mut dims = call.dims(0)?.to_vec();
            if call.attribute("stopwords").is_some()
                && let Some(last) = dims.last_mut()
            {
                let most = last.known().map(|number| (0, number));
                *last = call.fresh(0, 0, most);
            }
            Ok(vec![Fact::tensor(Some(ElementType::Text), dims)])
        }
        "StringConcat" => broadcasting(call, Some(ElementType::Text)),
        "RegexFullMatch" => Ok(vec![Fact { element: Some(ElementType::Bool), ..call.like_first()? }]),
        _ => Err(Trouble::UnknownOperator),
    }
}

/// All inputs broadcast against each other.
pub(super) fn all_broadcast(call: &mut Call<'_>) -> Result<Vec<Dim>, Trouble> {
    let shapes = (0..call.inputs.len()).map(|index| call.dims(index)).collect::<Result<Vec<_>, _>>()?;
    call.broadcast(&shapes)
}

/// Two inputs broadcast against each other.
pub(super) fn broadcasting(call: &mut Call<'_>, element: Option<ElementType>) -> Facts {
    let shapes = [call.dims(0)?, call.dims(1)?];
    let dims = match call.kind {
        // The slope is stretched to the input, never the other way.
        "PRelu" => shapes[0].to_vec(),
        _ => call.broadcast(&shapes)?,
    };
    let value = values::binary(call, &dims);
    Ok(vec![Fact::tensor(element.or(call.element(0)), dims).with_value(value)])
}

fn batch_normalization(call: &mut Call<'_>) -> Facts {
    let output = call.like_first()?;
    let channel = Fact { value: None, constant: false, ..call.input(1)?.clone() };
    // Version 14 and later: running mean and variance; before: those, then the saved ones.
    Ok(vec![output, channel.clone(), channel.clone(), channel.clone(), channel])
}

/// The output, then `extra` statistics: the dimensions from `axis` on are one.
pub(super) fn layer_normalization(call: &mut Call<'_>, extra: usize) -> Facts {
    let output = call.like_first()?;
    let mut facts = vec![output];
    if let Ok(dims) = call.dims(0) {
        let axis = call.axis(call.int_or("axis", -1), dims.len())?;
        let reduced =
            dims.iter().enumerate().map(|(index, dim)| if index < axis { dim.clone() } else { Dim::Known(1) });
        let statistic = Fact::tensor(Some(ElementType::F32), reduced.collect());
        facts.extend(std::iter::repeat_n(statistic, extra));
    }
    Ok(facts)
}
