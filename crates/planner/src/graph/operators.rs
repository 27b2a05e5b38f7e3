//! What an operator's kind says about sharing bytes: what is a view, what can be written in place.
//!
//! A kind that is not listed shares nothing, which is always right.

use super::line::{Line, LineStep, ValueId};
use npumem_ir::graph::Attribute;

/// The position of the input of which output 0 is a view: the same bytes under another shape or name.
pub(crate) fn view(line: &Line<'_>, step: &LineStep<'_>) -> Option<usize> {
    match step.operator.kind.as_str() {
        "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" | "Identity" => Some(0),
        "Dropout" if !trains(step) => Some(0),
        "Cast" | "CastLike" => {
            let (from, to) = (input(step, 0)?, output(step, 0)?);
            (line.value(from).tensor.element == line.value(to).tensor.element).then_some(0)
        }
        _ => None,
    }
}

/// Whether a `Dropout` drops: its third input (from opset 12 on) is a constant false, or absent, in inference.
fn trains(step: &LineStep<'_>) -> bool {
    match step.operator.inputs.get(2) {
        None | Some(None) => false,
        Some(Some(_)) => step.operator.constants.get(&2).is_none_or(|values| values.iter().any(|value| *value != 0)),
    }
}

/// What an operator that may write over an input reads at the moment it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InPlace {
    /// It may not.
    No,
    /// Element `i` of the output needs element `i` of equally large inputs, and of smaller ones only what broadcast
    /// repeats: over any equally large input.
    Elementwise,
    /// Row by row, or block by block: over the inputs at these positions, provided no other input lies in their bytes.
    Over(&'static [usize]),
}

/// Whether, and over which inputs, an operator can write output 0 in place.
pub(crate) fn in_place(kind: &str) -> InPlace {
    match kind {
        // One input.
        "Abs" | "Acos" | "Acosh" | "Asin" | "Asinh" | "Atan" | "Atanh" | "BitwiseNot" | "Cast" | "Ceil" | "Celu"
        | "Clip" | "Cos" | "Cosh" | "Elu" | "Erf" | "Exp" | "FastGelu" | "Floor" | "Gelu" | "HardSigmoid"
        | "HardSwish" | "LeakyRelu" | "Log" | "Mish" | "Neg" | "Not" | "QuickGelu" | "Reciprocal" | "Relu"
        | "Round" | "Selu" | "Shrink" | "Sigmoid" | "Sign" | "Sin" | "Sinh" | "Softplus" | "Softsign" | "Sqrt"
        | "Swish" | "Tan" | "Tanh" | "ThresholdedRelu" => InPlace::Elementwise,
        // Several, with broadcast.
        "Add" | "And" | "BiasGelu" | "BitwiseAnd" | "BitwiseOr" | "BitwiseXor" | "Div" | "Equal" | "Greater"
        | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Max" | "Mean" | "Min" | "Mod" | "Mul" | "Or" | "PRelu"
        | "Pow" | "Sub" | "Sum" | "Where" | "Xor" => InPlace::Elementwise,
        // Statistics of a row first, then the row; parameters from elsewhere.
        "BatchNormalization"
        | "LayerNormalization"
        | "LogSoftmax"
        | "RMSNormalization"
        | "SimplifiedLayerNormalization"
        | "Softmax" => InPlace::Over(&[0]),
        "SkipLayerNormalization" | "SkipSimplifiedLayerNormalization" => InPlace::Over(&[0, 1]),
        // A copy of the data with some elements replaced.
        "ScatterElements" | "ScatterND" => InPlace::Over(&[0]),
        _ => InPlace::No,
    }
}

/// The value at an input position.
pub(crate) fn input(step: &LineStep<'_>, position: usize) -> Option<ValueId> {
    step.inputs.get(position).copied().flatten()
}

/// The value at an output position.
pub(crate) fn output(step: &LineStep<'_>, position: usize) -> Option<ValueId> {
    step.outputs.get(position).copied().flatten()
}

/// An integer attribute.
pub(crate) fn int(step: &LineStep<'_>, name: &str) -> Option<i64> {
    match step.operator.attributes.get(name)? {
        Attribute::Int(value) => Some(*value),
        Attribute::Float(_) | Attribute::Text(_) | Attribute::Ints(_) | Attribute::Floats(_) => None,
    }
}

/// An attribute that is a list of integers.
pub(crate) fn ints<'o>(step: &LineStep<'o>, name: &str) -> Option<&'o [i64]> {
    match step.operator.attributes.get(name)? {
        Attribute::Ints(values) => Some(values),
        Attribute::Int(_) | Attribute::Float(_) | Attribute::Text(_) | Attribute::Floats(_) => None,
    }
}

/// A list of integers that older operator sets have as an attribute and newer ones as a constant input.
pub(crate) fn ints_or_constant<'o>(step: &LineStep<'o>, name: &str, position: usize) -> Option<&'o [i64]> {
    ints(step, name).or_else(|| step.operator.constants.get(&position).map(Vec::as_slice))
}

/// An axis that may count from the end, as a position.
pub(crate) fn axis(axis: i64, rank: usize) -> Option<usize> {
    let rank_signed = i64::try_from(rank).ok()?;
    let axis = if axis < 0 { axis.checked_add(rank_signed)? } else { axis };
    usize::try_from(axis).ok().filter(|axis| *axis < rank)
}
