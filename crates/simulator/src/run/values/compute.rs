//! What each operation computes, apart from where its operands lie.

use super::narrow::{gather, pack, quantize};
use super::number::{Data, is_real, rounded, to_int};
use super::pairs::{merge_sort, sort32};
use npumem_ir::ElementType;

/// One operand that is read.
#[derive(Clone, Debug)]
pub struct Operand {
    /// Its elements, row by row.
    pub data: Data,
    /// Rows: the product of all but the last dimension.
    pub rows: usize,
    /// Columns: the last dimension.
    pub columns: usize,
    /// Its type.
    pub element: ElementType,
}

/// Where a result goes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Its type.
    pub element: ElementType,
}

/// A scalar operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// An integer.
    Int(i64),
    /// A real number.
    Real(f64),
}

impl Scalar {
    fn real(self) -> f64 {
        match self {
            Scalar::Int(value) => value as f64,
            Scalar::Real(value) => value,
        }
    }
}

/// The operation is not computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotComputed;

/// The result of an operation, for its first target. `attribute` looks an attribute up.
///
/// # Errors
/// [`NotComputed`] when the operation, or this form of it, is not known here.
pub fn compute(
    name: &str,
    reads: &[Operand],
    scalars: &[Scalar],
    target: Target,
    attribute: &dyn Fn(&str) -> Option<String>,
) -> Result<Data, NotComputed> {
    let name = name.trim_start_matches("pto.");
    let name = name.strip_prefix('t').unwrap_or(name);
    let first = reads.first();
    match name {
        "load" | "store" | "mov" | "prefetch" => convert(first.ok_or(NotComputed)?, target, ""),
        "cvt" => {
            let mode = attribute("rmode").unwrap_or_default();
            let word = ["FLOOR", "CEIL", "TRUNC", "ROUND"].into_iter().find(|word| mode.contains(word));
            convert(first.ok_or(NotComputed)?, target, word.unwrap_or("RINT"))
        }
        "matmul" | "gemv" | "matmul.acc" | "gemv.acc" | "matmul.bias" | "gemv.bias" => product(name, reads, target),
        "trans" => transpose(first.ok_or(NotComputed)?, target),
        "expands" => fill(scalars, target),
        "ci" => Ok(count(scalars, attribute, target)),
        "tri" => triangle(scalars, attribute, target),
        "rowexpand" | "colexpand" => spread(first.ok_or(NotComputed)?, name == "rowexpand", target),
        "sel" => select(reads, target),
        "sels" => selects(reads, scalars, target),
        "cmp" | "cmps" => compare(name, reads, scalars, target, attribute),
        "concat" => concatenate(reads, target),
        "fillpad" | "fillpad_expand" | "fillpad_inplace" => pad(first.ok_or(NotComputed)?, target, attribute),
        "extract" => extract(first.ok_or(NotComputed)?, scalars, target),
        "partadd" => partial(reads, target, |a, b| a + b),
        "partmul" => partial(reads, target, |a, b| a * b),
        "partmax" => partial(reads, target, f64::max),
        "partmin" => partial(reads, target, f64::min),
        "gather" => gather(reads, target, attribute),
        "quant" => quantize(reads, target),
        "pack" => pack(first.ok_or(NotComputed)?, target),
        "sort32" => sort32(reads, target),
        "mrgsort" => {
            let block = match scalars.first() {
                None => None,
                Some(Scalar::Int(block)) => Some(*block),
                Some(Scalar::Real(_)) => return Err(NotComputed),
            };
            merge_sort(reads, block, attribute("exhausted").is_some_and(|value| value.contains("true")), target)
        }
        "axpy" => {
            // The old result is not among the operands.
            Err(NotComputed)
        }
        _ => {
            if let Some(rest) = name.strip_prefix("rowexpand") {
                return broadcast(rest, reads, true, target);
            }
            if let Some(rest) = name.strip_prefix("colexpand") {
                return broadcast(rest, reads, false, target);
            }
            if let Some(word) = name.strip_suffix(".acc") {
                let (by_row, rest) = (word.starts_with("row"), word.get(3..).unwrap_or(""));
                if is_reduction(rest) && (by_row || word.starts_with("col")) {
                    return reduce_more(rest, reads, by_row, target);
                }
            }
            if let Some(rest) = name.strip_prefix("row").filter(|rest| is_reduction(rest)) {
                return reduce(rest, first.ok_or(NotComputed)?, true, target);
            }
            if let Some(rest) = name.strip_prefix("col").filter(|rest| is_reduction(rest)) {
                return reduce(rest, first.ok_or(NotComputed)?, false, target);
            }
            elementwise(name, reads, scalars, target)
        }
    }
}

fn is_reduction(word: &str) -> bool {
    matches!(word, "sum" | "max" | "min" | "prod" | "argmax" | "argmin")
}

/// The same elements in another type.
fn convert(from: &Operand, target: Target, rounding: &str) -> Result<Data, NotComputed> {
    Ok(match (&from.data, is_real(target.element)) {
        (Data::Real(list), true) => Data::Real(list.clone()),
        (Data::Int(list), false) => Data::Int(list.clone()),
        (Data::Int(list), true) => Data::Real(list.iter().map(|value| *value as f64).collect()),
        (Data::Real(list), false) => {
            Data::Int(list.iter().map(|value| to_int(target.element, *value, rounding)).collect())
        }
    })
}

fn fill(scalars: &[Scalar], target: Target) -> Result<Data, NotComputed> {
    let value = *scalars.first().ok_or(NotComputed)?;
    let count = target.rows * target.columns;
    Ok(match value {
        Scalar::Int(value) if !is_real(target.element) => Data::Int(vec![value; count]),
        value => Data::Real(vec![value.real(); count]),
    })
}

/// start, start + 1, ...; or downwards.
fn count(scalars: &[Scalar], attribute: &dyn Fn(&str) -> Option<String>, target: Target) -> Data {
    let start = match scalars.first() {
        Some(Scalar::Int(value)) => *value,
        Some(Scalar::Real(value)) => *value as i64,
        None => 0,
    };
    let down = attribute("descending").is_some_and(|value| value.contains("true") || value == "1");
    let list = (0..(target.rows * target.columns) as i64).map(|at| if down { start - at } else { start + at });
    Data::Int(list.collect())
}

/// Ones on one side of a diagonal, zeros on the other.
fn triangle(
    scalars: &[Scalar],
    attribute: &dyn Fn(&str) -> Option<String>,
    target: Target,
) -> Result<Data, NotComputed> {
    let diagonal = scalars.first().map_or(0.0, |value| value.real()) as i64;
    let upper = attribute("upperOrLower").is_some_and(|value| value.trim_start().starts_with('1'));
    let mut list = Vec::with_capacity(target.rows * target.columns);
    for row in 0..target.rows as i64 {
        for column in 0..target.columns as i64 {
            let inside = if upper { column >= row + diagonal } else { column <= row + diagonal };
            list.push(f64::from(u8::from(inside)));
        }
    }
    Ok(Data::Real(list))
}

fn product(name: &str, reads: &[Operand], target: Target) -> Result<Data, NotComputed> {
    let accumulates = name.ends_with(".acc");
    let (left, right) = crate::run::cost::product_operands(name, reads.len());
    if reads.len() < 2 + usize::from(accumulates) {
        return Err(NotComputed);
    }
    let (a, b) = (&reads[left], &reads[right]);
    let (m, n) = (target.rows.min(a.rows), target.columns.min(b.columns));
    let k = a.columns.min(b.rows);
    let start = match (accumulates, name.ends_with(".bias")) {
        (true, _) => Some((&reads[0], reads[0].columns)),
        (_, true) => Some((reads.last().ok_or(NotComputed)?, 0)),
        _ => None,
    };
    match (&a.data, &b.data) {
        (Data::Real(x), Data::Real(y)) => {
            // The accumulators are of single precision, whatever the operands.
            let narrow = |list: &[f64]| list.iter().map(|value| *value as f32).collect::<Vec<f32>>();
            let (x, y) = (narrow(x), narrow(y));
            let mut out = vec![0.0_f32; target.rows * target.columns];
            for row in 0..m {
                let line = &mut out[row * target.columns..row * target.columns + n];
                if let Some((from, pitch)) = start {
                    let list = narrow(&from.data.clone().real());
                    for (place, value) in line.iter_mut().zip(list.iter().skip(row * pitch)) {
                        *place = *value;
                    }
                }
                for depth in 0..k {
                    let factor = x[row * a.columns + depth];
                    let other = &y[depth * b.columns..depth * b.columns + n];
                    for (place, value) in line.iter_mut().zip(other) {
                        *place += factor * *value;
                    }
                }
            }
            Ok(Data::Real(out.into_iter().map(f64::from).collect()))
        }
        (Data::Int(x), Data::Int(y)) => {
            let mut out = vec![0_i64; target.rows * target.columns];
            let before = start.map(|(from, pitch)| (from.data.clone().int(), pitch));
            for row in 0..m {
                for column in 0..n {
                    let held = before.as_ref().and_then(|(list, pitch)| list.get(row * pitch + column).copied());
                    let sum = (0..k).fold(held.unwrap_or(0) as i32, |sum, depth| {
                        let term =
                            (x[row * a.columns + depth] as i32).wrapping_mul(y[depth * b.columns + column] as i32);
                        sum.wrapping_add(term)
                    });
                    out[row * target.columns + column] = i64::from(sum);
                }
            }
            Ok(Data::Int(out))
        }
        _ => Err(NotComputed),
    }
}

fn transpose(from: &Operand, target: Target) -> Result<Data, NotComputed> {
    let place = |index: usize| {
        let (row, column) = (index / target.columns.max(1), index % target.columns.max(1));
        column * from.columns + row
    };
    let count = target.rows * target.columns;
    Ok(match &from.data {
        Data::Real(list) => Data::Real((0..count).map(|at| list.get(place(at)).copied().unwrap_or(0.0)).collect()),
        Data::Int(list) => Data::Int((0..count).map(|at| list.get(place(at)).copied().unwrap_or(0)).collect()),
    })
}

/// The element of an operand that stands for (row, column) when rows, or columns, are all alike.
fn alike(operand: &Operand, by_row: bool, row: usize, column: usize) -> usize {
    if by_row { row * operand.columns } else { column }.min(operand.data.len().saturating_sub(1))
}

fn spread(from: &Operand, by_row: bool, target: Target) -> Result<Data, NotComputed> {
    let mut real = Vec::new();
    let list = from.data.clone().real();
    for row in 0..target.rows {
        for column in 0..target.columns {
            real.push(list.get(alike(from, by_row, row, column)).copied().unwrap_or(0.0));
        }
    }
    Ok(narrowed(real, target))
}

/// Reals for a target of reals, else integers.
fn narrowed(list: Vec<f64>, target: Target) -> Data {
    if is_real(target.element) {
        Data::Real(list)
    } else {
        Data::Int(list.into_iter().map(|value| to_int(target.element, value, "TRUNC")).collect())
    }
}

fn broadcast(word: &str, reads: &[Operand], by_row: bool, target: Target) -> Result<Data, NotComputed> {
    let [whole, part, ..] = reads else { return Err(NotComputed) };
    let element = whole.element;
    let operation: fn(f64, f64) -> f64 = match word {
        "mul" => |a, b| a * b,
        "div" => |a, b| a / b,
        "sub" => |a, b| a - b,
        "add" => |a, b| a + b,
        "max" => f64::max,
        "min" => f64::min,
        "expdif" => |a, b| (a - b).exp(),
        _ => return Err(NotComputed),
    };
    let (x, y) = (whole.data.clone().real(), part.data.clone().real());
    let mut out = Vec::with_capacity(target.rows * target.columns);
    for row in 0..target.rows {
        for column in 0..target.columns {
            let a = x.get(row * whole.columns + column).copied().unwrap_or(0.0);
            let b = y.get(alike(part, by_row, row, column)).copied().unwrap_or(0.0);
            let value = if word == "expdif" { single(a - b).exp() } else { operation(a, b) };
            out.push(rounded(element, single(value)));
        }
    }
    Ok(narrowed(out, target))
}

/// Rounded to single precision.
fn single(value: f64) -> f64 {
    f64::from(value as f32)
}

fn reduce(word: &str, from: &Operand, by_row: bool, target: Target) -> Result<Data, NotComputed> {
    let list = from.data.clone().real();
    let (outer, inner) = if by_row { (from.rows, from.columns) } else { (from.columns, from.rows) };
    let at = |one: usize, other: usize| if by_row { one * from.columns + other } else { other * from.columns + one };
    let mut out = Vec::with_capacity(outer);
    for one in 0..outer {
        let values = (0..inner).map(|other| list.get(at(one, other)).copied().unwrap_or(0.0));
        let value = match word {
            "sum" => pairwise(&values.collect::<Vec<f64>>()),
            "prod" => values.fold(1.0, |product, value| single(product * value)),
            "max" => values.fold(f64::NEG_INFINITY, f64::max),
            "min" => values.fold(f64::INFINITY, f64::min),
            _ => {
                let better = |a: f64, b: f64| if word == "argmax" { a > b } else { a < b };
                let mut best = (0, f64::NAN);
                for (index, value) in values.enumerate() {
                    if index == 0 || better(value, best.1) {
                        best = (index, value);
                    }
                }
                best.0 as f64
            }
        };
        out.push(value);
    }
    // One column or one row; a target that is wider keeps the value in its first.
    if by_row && target.columns > 1 {
        let mut wide = Vec::with_capacity(target.rows * target.columns);
        for value in out {
            wide.push(value);
            wide.resize(wide.len() + target.columns - 1, 0.0);
        }
        out = wide;
    }
    Ok(narrowed(out, target))
}

/// A reduction that goes on from the result of the parts before, which is the last operand.
fn reduce_more(word: &str, reads: &[Operand], by_row: bool, target: Target) -> Result<Data, NotComputed> {
    let (Some(from), Some(before)) = (reads.first(), reads.get(1)) else { return Err(NotComputed) };
    let join = match word {
        "sum" => |a: f64, b: f64| single(a + b),
        "prod" => |a: f64, b: f64| single(a * b),
        "max" => f64::max,
        "min" => f64::min,
        _ => return Err(NotComputed),
    };
    let part = reduce(word, from, by_row, target)?.real();
    let joined = before.data.clone().real().into_iter().zip(part).map(|(a, b)| join(a, b)).collect();
    Ok(narrowed(joined, target))
}

/// A sum in single precision by halves: close to what vector units and NumPy do, and better than one by one.
fn pairwise(list: &[f64]) -> f64 {
    let mut level: Vec<f64> = list.to_vec();
    while level.len() > 1 {
        level = level.chunks(2).map(|pair| single(pair.iter().sum())).collect();
    }
    level.first().copied().unwrap_or(0.0)
}

/// One bit an element, or one byte, as the mask's size says.
fn mask(operand: &Operand, count: usize) -> Vec<bool> {
    let bytes = operand.data.clone().int();
    if bytes.len() >= count {
        return bytes.iter().take(count).map(|value| *value != 0).collect();
    }
    let bits = if operand.element == ElementType::U8 || operand.element == ElementType::I8 { 8 } else { 16 };
    (0..count).map(|at| bytes.get(at / bits).is_some_and(|byte| byte >> (at % bits) & 1 == 1)).collect()
}

fn select(reads: &[Operand], target: Target) -> Result<Data, NotComputed> {
    let [which, yes, no, ..] = reads else { return Err(NotComputed) };
    let which = mask(which, target.rows * target.columns);
    let (yes, no) = (yes.data.clone().real(), no.data.clone().real());
    let list = which.iter().enumerate().map(|(at, which)| {
        let from = if *which { &yes } else { &no };
        from.get(at).copied().unwrap_or(0.0)
    });
    Ok(narrowed(list.collect(), target))
}

fn selects(reads: &[Operand], scalars: &[Scalar], target: Target) -> Result<Data, NotComputed> {
    // Two tiles and a scalar that says which.
    let [yes, no, ..] = reads else { return Err(NotComputed) };
    let first = scalars.first().is_some_and(|value| value.real() == 1.0);
    convert(if first { yes } else { no }, target, "")
}

fn compare(
    name: &str,
    reads: &[Operand],
    scalars: &[Scalar],
    target: Target,
    attribute: &dyn Fn(&str) -> Option<String>,
) -> Result<Data, NotComputed> {
    let left = reads.first().ok_or(NotComputed)?;
    let x = left.data.clone().real();
    let y = if name == "cmps" {
        vec![scalars.first().ok_or(NotComputed)?.real(); x.len()]
    } else {
        reads.get(1).ok_or(NotComputed)?.data.clone().real()
    };
    let mode = attribute("cmpMode").or_else(|| attribute("cmp_mode")).unwrap_or_else(|| "eq".to_owned());
    let mode = mode.to_ascii_lowercase();
    let word = ["ne", "lt", "le", "gt", "ge", "eq"].into_iter().find(|word| mode.contains(word)).unwrap_or("eq");
    let holds = |a: f64, b: f64| match word {
        "ne" => a != b,
        "lt" => a < b,
        "le" => a <= b,
        "gt" => a > b,
        "ge" => a >= b,
        _ => a == b,
    };
    let bits: Vec<bool> = x.iter().zip(&y).map(|(a, b)| holds(*a, *b)).collect();
    let room = target.rows * target.columns;
    if room >= bits.len() {
        return Ok(Data::Int(bits.into_iter().map(i64::from).collect()));
    }
    // A packed mask: eight elements a byte, the first in the lowest bit.
    let byte = |chunk: &[bool]| chunk.iter().enumerate().fold(0_i64, |byte, (at, bit)| byte | i64::from(*bit) << at);
    Ok(Data::Int(bits.chunks(8).map(byte).collect()))
}

/// Side by side, row by row.
fn concatenate(reads: &[Operand], target: Target) -> Result<Data, NotComputed> {
    let [a, b, ..] = reads else { return Err(NotComputed) };
    let (x, y) = (a.data.clone().real(), b.data.clone().real());
    let mut out = Vec::with_capacity(target.rows * target.columns);
    for row in 0..target.rows {
        for column in 0..target.columns {
            let value = match column.checked_sub(a.columns) {
                None => x.get(row * a.columns + column),
                Some(rest) => y.get(row * b.columns + rest),
            };
            out.push(value.copied().unwrap_or(0.0));
        }
    }
    Ok(narrowed(out, target))
}

/// The source, and the pad value around it.
fn pad(from: &Operand, target: Target, attribute: &dyn Fn(&str) -> Option<String>) -> Result<Data, NotComputed> {
    let word = attribute("pad").or_else(|| attribute("pad_value")).unwrap_or_default().to_ascii_lowercase();
    let value = if word.contains("max") {
        f64::INFINITY
    } else if word.contains("min") {
        f64::NEG_INFINITY
    } else {
        0.0
    };
    let list = from.data.clone().real();
    let mut out = Vec::with_capacity(target.rows * target.columns);
    for row in 0..target.rows {
        for column in 0..target.columns {
            let inside = row < from.rows && column < from.columns;
            out.push(if inside { list[row * from.columns + column] } else { value });
        }
    }
    Ok(narrowed(out, target))
}

/// The part of a tile from (row, column) on.
fn extract(from: &Operand, scalars: &[Scalar], target: Target) -> Result<Data, NotComputed> {
    let at = |index: usize| scalars.get(index).map_or(0, |value| value.real().max(0.0) as usize);
    let (top, left) = (at(0), at(1));
    let list = from.data.clone().real();
    let mut out = Vec::with_capacity(target.rows * target.columns);
    for row in 0..target.rows {
        for column in 0..target.columns {
            let inside = top + row < from.rows && left + column < from.columns;
            let index = (top + row) * from.columns + left + column;
            out.push(if inside { list.get(index).copied().unwrap_or(0.0) } else { 0.0 });
        }
    }
    Ok(narrowed(out, target))
}

/// Two tiles of unlike valid parts: where only one has a value, it stands alone.
fn partial(reads: &[Operand], target: Target, operation: fn(f64, f64) -> f64) -> Result<Data, NotComputed> {
    let [a, b, ..] = reads else { return Err(NotComputed) };
    let (x, y) = (a.data.clone().real(), b.data.clone().real());
    let mut out = Vec::with_capacity(target.rows * target.columns);
    for row in 0..target.rows {
        for column in 0..target.columns {
            let of = |operand: &Operand, list: &[f64]| {
                (row < operand.rows && column < operand.columns).then(|| list[row * operand.columns + column])
            };
            out.push(match (of(a, &x), of(b, &y)) {
                (Some(a), Some(b)) => rounded(target.element, single(operation(a, b))),
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => 0.0,
            });
        }
    }
    Ok(narrowed(out, target))
}

/// One, two or three operands, element by element.
fn elementwise(name: &str, reads: &[Operand], scalars: &[Scalar], target: Target) -> Result<Data, NotComputed> {
    let first = reads.first().ok_or(NotComputed)?;
    let count = target.rows * target.columns;
    if let (Data::Int(x), false) = (&first.data, is_real(target.element)) {
        return integers(name, x, reads, scalars, count).map(Data::Int);
    }
    let x = first.data.clone().real();
    if let Some(unary) = unary(name) {
        let list = x.iter().take(count).map(|value| rounded(target.element, single(unary(single(*value)))));
        return Ok(Data::Real(list.collect()));
    }
    let (word, other) = match name.strip_suffix('s').filter(|word| binary(word).is_some() && *name != *"abs") {
        Some(word) if binary(name).is_none() => (word, vec![scalars.first().ok_or(NotComputed)?.real(); count]),
        _ => (name, reads.get(1).ok_or(NotComputed)?.data.clone().real()),
    };
    if matches!(name, "addc" | "subc") {
        let third = reads.get(2).ok_or(NotComputed)?.data.clone().real();
        let sign = if name == "addc" { 1.0 } else { -1.0 };
        let terms = x.iter().zip(&other).zip(&third).take(count);
        let step = |value: f64| rounded(target.element, single(value));
        return Ok(Data::Real(terms.map(|((a, b), c)| step(step(a + sign * b) + c)).collect()));
    }
    let operation = binary(word).ok_or(NotComputed)?;
    let pairs = x.iter().zip(&other).take(count);
    Ok(Data::Real(pairs.map(|(a, b)| rounded(target.element, single(operation(*a, *b)))).collect()))
}

fn unary(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "exp" => f64::exp,
        "log" => f64::ln,
        "sqrt" => f64::sqrt,
        "rsqrt" => |value| 1.0 / value.sqrt(),
        "recip" => |value| 1.0 / value,
        "neg" => |value| -value,
        "abs" => f64::abs,
        "relu" => |value| value.max(0.0),
        "sigmoid" => sigmoid,
        "silu" => |value| value * sigmoid(value),
        "tanh" => f64::tanh,
        "erf" => super::erf::erf,
        "gelu" => |value| 0.5 * value * (1.0 + super::erf::erf(value / std::f64::consts::SQRT_2)),
        _ => return None,
    })
}

fn sigmoid(value: f64) -> f64 {
    1.0 / (1.0 + (-value).exp())
}

/// A function of one operand, element by element.
///
/// # Errors
/// [`NotComputed`] when the word is not known here.
pub(super) fn function(word: &str, data: Data) -> Result<Data, NotComputed> {
    match (word, data) {
        ("cast", data) => Ok(data),
        ("relu", Data::Int(list)) => Ok(Data::Int(list.into_iter().map(|value| value.max(0)).collect())),
        ("neg", Data::Int(list)) => Ok(Data::Int(list.into_iter().map(i64::wrapping_neg).collect())),
        ("abs", Data::Int(list)) => Ok(Data::Int(list.into_iter().map(i64::wrapping_abs).collect())),
        (word, data) => {
            let unary = unary(word).ok_or(NotComputed)?;
            Ok(Data::Real(data.real().into_iter().map(|value| single(unary(single(value)))).collect()))
        }
    }
}

fn binary(word: &str) -> Option<fn(f64, f64) -> f64> {
    Some(match word {
        "add" => |a, b| a + b,
        "sub" => |a, b| a - b,
        "mul" => |a, b| a * b,
        "div" => |a, b| a / b,
        "max" => f64::max,
        "min" => f64::min,
        // The sign of the divisor, as NumPy's remainder.
        "rem" => |a, b| a - b * (a / b).floor(),
        "fmod" => |a, b| a % b,
        "pow" => f64::powf,
        "prelu" | "lrelu" => |a, b| if a > 0.0 { a } else { a * b },
        _ => return None,
    })
}

fn integers(
    name: &str,
    x: &[i64],
    reads: &[Operand],
    scalars: &[Scalar],
    count: usize,
) -> Result<Vec<i64>, NotComputed> {
    let list = x.iter().take(count);
    match name {
        "neg" => return Ok(list.map(|value| value.wrapping_neg()).collect()),
        "abs" => return Ok(list.map(|value| value.wrapping_abs()).collect()),
        "not" => return Ok(list.map(|value| !value).collect()),
        "relu" => return Ok(list.map(|value| (*value).max(0)).collect()),
        _ => {}
    }
    let (word, other) = match integer(name) {
        Some(_) => (name, reads.get(1).ok_or(NotComputed)?.data.clone().int()),
        None => {
            let word = name.strip_suffix('s').ok_or(NotComputed)?;
            let value = match scalars.first().ok_or(NotComputed)? {
                Scalar::Int(value) => *value,
                Scalar::Real(value) => *value as i64,
            };
            (word, vec![value; count])
        }
    };
    let operation = integer(word).ok_or(NotComputed)?;
    Ok(list.zip(&other).map(|(a, b)| operation(*a, *b)).collect())
}

fn integer(word: &str) -> Option<fn(i64, i64) -> i64> {
    Some(match word {
        "add" => i64::wrapping_add,
        "sub" => i64::wrapping_sub,
        "mul" => i64::wrapping_mul,
        // Towards zero; by zero is 0, so that nothing stops.
        "div" => |a, b| a.checked_div(b).unwrap_or(0),
        "max" => |a, b| a.max(b),
        "min" => |a, b| a.min(b),
        "and" => |a, b| a & b,
        "or" => |a, b| a | b,
        "xor" => |a, b| a ^ b,
        "shl" => |a, b| u32::try_from(b).ok().and_then(|b| a.checked_shl(b)).unwrap_or(0),
        "shr" => |a, b| u32::try_from(b).ok().and_then(|b| a.checked_shr(b)).unwrap_or(0),
        "rem" => |a, b| if b == 0 { 0 } else { a.wrapping_sub(b.wrapping_mul((a as f64 / b as f64).floor() as i64)) },
        "fmod" => |a, b| a.checked_rem(b).unwrap_or(0),
        _ => return None,
    })
}
