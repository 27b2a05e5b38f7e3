//! Arithmetic on the elements of small tensors: the shape computations that exporters leave in a graph.

use super::super::fact::{FOLLOWED, Fact, Scalar};
use super::super::symbols::Symbols;
use super::Call;
use npumem_ir::{Dim, ElementType};

/// The elements of an elementwise operator of two inputs, broadcast; `None` when they are too many or not followed.
pub(super) fn binary(call: &mut Call<'_>, out: &[Dim]) -> Option<Vec<Scalar>> {
    let (a, b) = (call.given(0)?, call.given(1)?);
    let integer = a.element.is_none_or(is_integer);
    let (left, right) = (spread(a, out)?, spread(b, out)?);
    let kind = call.kind;
    Some(left.iter().zip(&right).map(|(a, b)| apply(kind, integer, a, b, call.symbols)).collect())
}

/// The elements of a sum, minimum or maximum of any number of inputs.
pub(super) fn variadic(call: &mut Call<'_>, out: &[Dim]) -> Option<Vec<Scalar>> {
    let kind = match call.kind {
        "Sum" => "Add",
        kind => kind,
    };
    let integer = call.element(0).is_none_or(is_integer);
    let mut total = spread(call.given(0)?, out)?;
    for index in 1..call.inputs.len() {
        let next = spread(call.given(index)?, out)?;
        total = total.iter().zip(&next).map(|(a, b)| apply(kind, integer, a, b, call.symbols)).collect();
    }
    Some(total)
}

/// `Where`: a known condition takes its side; where both sides agree it does not matter.
pub(super) fn select(call: &Call<'_>, out: &[Dim]) -> Option<Vec<Scalar>> {
    let condition = spread(call.given(0)?, out)?;
    let (yes, no) = (spread(call.given(1)?, out)?, spread(call.given(2)?, out)?);
    let pick = |(condition, (yes, no)): (&Scalar, (&Scalar, &Scalar))| match condition.int() {
        Some(0) => no.clone(),
        Some(_) => yes.clone(),
        None if yes == no => yes.clone(),
        None => Scalar::Unknown,
    };
    Some(condition.iter().zip(yes.iter().zip(&no)).map(pick).collect())
}

/// The elements of an elementwise operator of one input.
pub(super) fn unary(call: &Call<'_>) -> Option<Vec<Scalar>> {
    let input = call.given(0)?;
    let integer = input.element.is_none_or(is_integer);
    let kind = call.kind;
    Some(input.value.as_ref()?.iter().map(|scalar| one(kind, integer, scalar)).collect())
}

/// The elements after a change of type.
pub(super) fn cast(value: &[Scalar], to: ElementType) -> Vec<Scalar> {
    let convert = |scalar: &Scalar| match scalar {
        Scalar::Int(number) if to == ElementType::Bool => Scalar::Int(i64::from(*number != 0)),
        Scalar::Float(number) if to == ElementType::Bool => Scalar::Int(i64::from(*number != 0.0)),
        Scalar::Int(number) if is_integer(to) => narrow(*number, to),
        Scalar::Float(number) if is_integer(to) => whole(number.trunc()),
        Scalar::Int(number) => Scalar::Float(*number as f64),
        Scalar::Dim(_) if to == ElementType::Bool => Scalar::Unknown,
        other => other.clone(),
    };
    value.iter().map(convert).collect()
}

pub(super) fn is_integer(element: ElementType) -> bool {
    use ElementType::*;
    matches!(element, I64 | I32 | I16 | I8 | I4 | I2 | U64 | U32 | U16 | U8 | U4 | U2 | Bool)
}

fn narrow(number: i64, to: ElementType) -> Scalar {
    use ElementType::*;
    let fits = match to {
        I32 => i32::try_from(number).is_ok(),
        I16 => i16::try_from(number).is_ok(),
        I8 => i8::try_from(number).is_ok(),
        U64 => number >= 0,
        U32 => u32::try_from(number).is_ok(),
        U16 => u16::try_from(number).is_ok(),
        U8 => u8::try_from(number).is_ok(),
        I64 => true,
        _ => (0..2).contains(&number),
    };
    if fits { Scalar::Int(number) } else { Scalar::Unknown }
}

fn whole(number: f64) -> Scalar {
    // Below 2^53 every whole number has a float of its own.
    if number.abs() <= 9_007_199_254_740_992.0 { Scalar::Int(number as i64) } else { Scalar::Unknown }
}

/// The elements of an input as they stand in the broadcast result.
pub(super) fn spread(fact: &Fact, out: &[Dim]) -> Option<Vec<Scalar>> {
    let value = fact.value.as_ref()?;
    let count = out.iter().try_fold(1_u64, |product, dim| product.checked_mul(dim.known()?))?;
    if count > FOLLOWED as u64 {
        return None;
    }
    let dims = fact.shape.dims()?;
    if value.len() as u64 == count {
        return Some(value.clone());
    }
    if value.len() == 1 {
        return Some(vec![value[0].clone(); count as usize]);
    }
    // Steps of the input in the result's axes, zero where it is stretched.
    let lead = out.len().checked_sub(dims.len())?;
    let lengths = numbers(dims)?;
    let mut step = strides(&lengths);
    for (step, length) in step.iter_mut().zip(&lengths) {
        if *length == 1 {
            *step = 0;
        }
    }
    step.splice(0..0, std::iter::repeat_n(0, lead));
    rearranged(value, 0, &step, &numbers(out)?)
}

/// The dimensions as numbers, all of them.
pub(super) fn numbers(dims: &[Dim]) -> Option<Vec<i64>> {
    dims.iter().map(|dim| i64::try_from(dim.known()?).ok()).collect()
}

/// How far apart neighbours along each dimension lie.
pub(super) fn strides(lengths: &[i64]) -> Vec<i64> {
    let mut strides = vec![1_i64; lengths.len()];
    for axis in (1..lengths.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(lengths[axis].max(1));
    }
    strides
}

/// The elements at `start + index · step`, for every index below `lengths`: a transposed, cut or stretched view.
pub(super) fn rearranged(value: &[Scalar], start: i64, step: &[i64], lengths: &[i64]) -> Option<Vec<Scalar>> {
    let count = lengths.iter().try_fold(1_i64, |product, length| product.checked_mul(*length))?;
    if !(0..=FOLLOWED as i64).contains(&count) {
        return None;
    }
    let mut out = Vec::with_capacity(count as usize);
    for flat in 0..count {
        let (mut rest, mut at) = (flat, start);
        for (length, step) in lengths.iter().zip(step).rev() {
            at = at.checked_add((rest % length).checked_mul(*step)?)?;
            rest /= length;
        }
        out.push(value.get(usize::try_from(at).ok()?)?.clone());
    }
    Some(out)
}

fn one(kind: &str, integer: bool, scalar: &Scalar) -> Scalar {
    match (kind, scalar) {
        ("Neg", Scalar::Int(number)) => number.checked_neg().map_or(Scalar::Unknown, Scalar::Int),
        ("Abs", Scalar::Int(number)) => number.checked_abs().map_or(Scalar::Unknown, Scalar::Int),
        ("Abs" | "Floor" | "Ceil" | "Round" | "Relu", Scalar::Dim(_)) => scalar.clone(),
        ("Not", Scalar::Int(number)) => Scalar::Int(i64::from(*number == 0)),
        ("Relu", Scalar::Int(number)) => Scalar::Int((*number).max(0)),
        ("Sign", Scalar::Int(number)) => Scalar::Int(number.signum()),
        ("Floor" | "Ceil" | "Round", Scalar::Int(_)) => scalar.clone(),
        (_, Scalar::Float(number)) if !integer => Scalar::Float(match kind {
            "Neg" => -number,
            "Abs" => number.abs(),
            "Floor" => number.floor(),
            "Ceil" => number.ceil(),
            "Round" => number.round_ties_even(),
            "Sqrt" => number.sqrt(),
            "Exp" => number.exp(),
            "Log" => number.ln(),
            "Reciprocal" => 1.0 / number,
            "Relu" => number.max(0.0),
            _ => return Scalar::Unknown,
        }),
        _ => Scalar::Unknown,
    }
}

/// One element of an operator of two inputs.
pub(super) fn apply(kind: &str, integer: bool, a: &Scalar, b: &Scalar, symbols: &mut Symbols) -> Scalar {
    match (a, b) {
        (Scalar::Int(a), Scalar::Int(b)) if integer => whole_numbers(kind, *a, *b),
        (Scalar::Dim(_), _) | (_, Scalar::Dim(_)) => lengths(kind, a, b, symbols),
        _ => match (a.float(), b.float()) {
            (Some(a), Some(b)) => reals(kind, a, b),
            _ => Scalar::Unknown,
        },
    }
}

fn whole_numbers(kind: &str, a: i64, b: i64) -> Scalar {
    let truth = |truth: bool| Some(i64::from(truth));
    let number = match kind {
        "Add" => a.checked_add(b),
        "Sub" => a.checked_sub(b),
        "Mul" => a.checked_mul(b),
        "Div" => a.checked_div(b),
        // The sign of the divisor, as in Python.
        "Mod" => a.checked_rem_euclid(b).map(|rest| if b < 0 && rest != 0 { rest + b } else { rest }),
        "Pow" => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
        "Min" => Some(a.min(b)),
        "Max" => Some(a.max(b)),
        "Equal" => truth(a == b),
        "Greater" => truth(a > b),
        "GreaterOrEqual" => truth(a >= b),
        "Less" => truth(a < b),
        "LessOrEqual" => truth(a <= b),
        "And" => truth(a != 0 && b != 0),
        "Or" => truth(a != 0 || b != 0),
        "Xor" => truth((a != 0) != (b != 0)),
        _ => None,
    };
    number.map_or(Scalar::Unknown, Scalar::Int)
}

fn reals(kind: &str, a: f64, b: f64) -> Scalar {
    let truth = |truth: bool| Scalar::Int(i64::from(truth));
    match kind {
        "Add" => Scalar::Float(a + b),
        "Sub" => Scalar::Float(a - b),
        "Mul" => Scalar::Float(a * b),
        "Div" => Scalar::Float(a / b),
        "Pow" => Scalar::Float(a.powf(b)),
        "Min" => Scalar::Float(a.min(b)),
        "Max" => Scalar::Float(a.max(b)),
        "Equal" => truth(a == b),
        "Greater" => truth(a > b),
        "GreaterOrEqual" => truth(a >= b),
        "Less" => truth(a < b),
        "LessOrEqual" => truth(a <= b),
        _ => Scalar::Unknown,
    }
}

/// Lengths that depend on a symbol: what stays a length is followed, the rest is given up.
fn lengths(kind: &str, a: &Scalar, b: &Scalar, symbols: &mut Symbols) -> Scalar {
    if let (Scalar::Dim(_), Scalar::Float(factor)) = (a, b) {
        // A whole factor of a float computation (`Cast`, `Mul`, `Cast`).
        let as_int = whole(*factor);
        if factor.fract() == 0.0 && as_int != Scalar::Unknown {
            return lengths(kind, a, &as_int, symbols);
        }
        return Scalar::Unknown;
    }
    if kind == "Equal" && a == b {
        return Scalar::Int(1);
    }
    // A length is never negative, and the rest of this needs both sides to be lengths.
    let negative = |scalar: &Scalar| scalar.int().is_some_and(|number| number < 0);
    if negative(a) || negative(b) {
        let number = a.int().or(b.int()).unwrap_or(0);
        return match (kind, if negative(a) { b } else { a }) {
            ("Add", Scalar::Dim(dim)) => Scalar::of(&symbols.offset(dim, number)),
            ("Sub", Scalar::Dim(dim)) if negative(b) => Scalar::of(&symbols.offset(dim, number.saturating_neg())),
            ("Equal", _) => Scalar::Int(0),
            ("Max", other) => other.clone(),
            _ => Scalar::Unknown,
        };
    }
    let (Some(a), Some(b)) = (a.dim(), b.dim()) else { return Scalar::Unknown };
    let result = match kind {
        "Add" => symbols.add(&a, &b),
        "Sub" => symbols.sub(&a, &b),
        "Mul" => symbols.mul(&a, &b),
        "Div" => match b.known() {
            Some(b) if b > 0 => symbols.floor_div(&a, b),
            _ => symbols.quotient(&[a], &[b]),
        },
        "Min" => symbols.min(&a, &b),
        "Max" => symbols.max(&a, &b),
        _ => return Scalar::Unknown,
    };
    Scalar::of(&result)
}
