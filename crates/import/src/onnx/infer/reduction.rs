//! Operators that sum over dimensions: reductions, matrix products, losses.

use super::super::fact::{Fact, Scalar};
use super::{Call, Facts, Trouble, layout, length, values};
use npumem_ir::{Dim, ElementType};

pub(super) fn infer(call: &mut Call<'_>) -> Facts {
    match call.kind {
        "ReduceL1" | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceMax" | "ReduceMean" | "ReduceMin"
        | "ReduceProd" | "ReduceSum" | "ReduceSumSquare" => reduce(call),
        "ArgMax" | "ArgMin" => arg(call),
        "MatMul" => {
            let dims = matmul(call, call.dims(0)?, call.dims(1)?)?;
            Ok(vec![Fact::tensor(call.element(0), dims)])
        }
        "MatMulInteger" => {
            let dims = matmul(call, call.dims(0)?, call.dims(1)?)?;
            Ok(vec![Fact::tensor(Some(ElementType::I32), dims)])
        }
        "QLinearMatMul" => {
            let dims = matmul(call, call.dims(0)?, call.dims(3)?)?;
            Ok(vec![Fact::tensor(call.element(7).or(call.element(0)), dims)])
        }
        "Gemm" => gemm(call),
        "Einsum" => einsum(call),
        "Det" => {
            let dims = call.dims(0)?;
            let kept = dims.len().checked_sub(2).ok_or_else(|| Trouble::Bad("a matrix of one dimension".into()))?;
            Ok(vec![Fact::tensor(call.element(0), dims[..kept].to_vec())])
        }
        "NegativeLogLikelihoodLoss" | "SoftmaxCrossEntropyLoss" => {
            let reduced = call.text("reduction").unwrap_or("mean") != "none";
            let loss = if reduced { Vec::new() } else { call.dims(1)?.to_vec() };
            Ok(vec![Fact::tensor(call.element(0), loss), call.like_first()?])
        }
        _ => Err(Trouble::UnknownOperator),
    }
}

pub(super) fn reduce(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let input = call.input(0)?;
    let keep = call.int_or("keepdims", 1) != 0;
    let listed = match call.list("axes", 1) {
        Ok(listed) => listed,
        Err(trouble) if !keep => return Err(trouble),
        // Which dimensions become one is not known, but all of them stay.
        Err(_) => {
            let open = dims
                .iter()
                .enumerate()
                .map(|(axis, dim)| call.fresh(0, axis, dim.known().map(|most| (1, most.max(1)))));
            return Ok(vec![Fact::tensor(input.element, open.collect())]);
        }
    };
    let axes = match listed {
        Some(axes) if !axes.is_empty() => call.axes(&axes, dims.len())?,
        _ if call.int_or("noop_with_empty_axes", 0) != 0 => return Ok(vec![call.like_first()?]),
        _ => (0..dims.len()).collect(),
    };
    let value = folded(call, axes.len() == dims.len());
    let fact = Fact::tensor(input.element, without(dims, &axes, keep));
    Ok(vec![fact.with_value(value)])
}

/// The dimensions with some of them reduced to one, or left out.
fn without(dims: &[Dim], axes: &[usize], keep: bool) -> Vec<Dim> {
    let kept = dims.iter().enumerate().filter_map(|(axis, dim)| match (axes.contains(&axis), keep) {
        (false, _) => Some(dim.clone()),
        (true, true) => Some(Dim::Known(1)),
        (true, false) => None,
    });
    kept.collect()
}

/// The one element that is left of a small tensor.
fn folded(call: &mut Call<'_>, all: bool) -> Option<Vec<Scalar>> {
    let input = call.given(0)?;
    let kind = match call.kind {
        "ReduceProd" => "Mul",
        "ReduceSum" => "Add",
        "ReduceMax" => "Max",
        "ReduceMin" => "Min",
        _ => return None,
    };
    let integer = input.element.is_none_or(values::is_integer);
    let value = input.value.as_ref().filter(|value| all && !value.is_empty())?;
    let mut total = value[0].clone();
    for next in &value[1..] {
        total = values::apply(kind, integer, &total, next, call.symbols);
    }
    Some(vec![total])
}

fn arg(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let axis = call.axis(call.int_or("axis", 0), dims.len())?;
    let keep = call.int_or("keepdims", 1) != 0;
    Ok(vec![Fact::tensor(Some(ElementType::I64), without(dims, &[axis], keep))])
}

/// The product of two stacks of matrices, as in numpy.
pub(super) fn matmul(call: &mut Call<'_>, a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, Trouble> {
    if a.is_empty() || b.is_empty() {
        return Err(Trouble::Bad("a matrix product of a scalar".into()));
    }
    let (row, column) = (a.len() == 1, b.len() == 1);
    let one = [Dim::Known(1)];
    let (a, b) = (
        if row { [&one[..], a].concat() } else { a.to_vec() },
        if column { [b, &one[..]].concat() } else { b.to_vec() },
    );
    let inner = (&a[a.len() - 1], &b[b.len() - 2]);
    if let (Some(left), Some(right)) = (inner.0.known(), inner.1.known())
        && left != right
    {
        return Err(Trouble::Bad(format!("inner lengths {left} and {right}")));
    }
    let mut dims = call.broadcast(&[&a[..a.len() - 2], &b[..b.len() - 2]])?;
    if !row {
        dims.push(a[a.len() - 2].clone());
    }
    if !column {
        dims.push(b[b.len() - 1].clone());
    }
    Ok(dims)
}

pub(super) fn gemm(call: &mut Call<'_>) -> Facts {
    let (a, b) = (call.ranked::<2>(0)?, call.ranked::<2>(1)?);
    let [rows, left] = if call.int_or("transA", 0) != 0 { [a[1].clone(), a[0].clone()] } else { a };
    let [right, columns] = if call.int_or("transB", 0) != 0 { [b[1].clone(), b[0].clone()] } else { b };
    if let (Some(left), Some(right)) = (left.known(), right.known())
        && left != right
    {
        return Err(Trouble::Bad(format!("inner lengths {left} and {right}")));
    }
    Ok(vec![Fact::tensor(call.element(0), vec![rows, columns])])
}

/// `ij,jk->ik`, with `...` for any dimensions.
fn einsum(call: &mut Call<'_>) -> Facts {
    let equation: String =
        call.text("equation").ok_or_else(|| Trouble::Bad("no equation".into()))?.split_whitespace().collect();
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (equation.as_str(), None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != call.inputs.len() {
        return Err(Trouble::Bad(format!("{} terms for {} inputs", terms.len(), call.inputs.len())));
    }
    let mut letters: Vec<(char, Dim, usize)> = Vec::new();
    let mut rest: Vec<Vec<Dim>> = Vec::new();
    for (index, term) in terms.iter().enumerate() {
        let dims = call.dims(index)?;
        let (head, tail) = term.split_once("...").unwrap_or((term, ""));
        let named = head.chars().count() + tail.chars().count();
        let dotted = dims.len().checked_sub(named).filter(|dotted| *dotted == 0 || term.contains("..."));
        let dotted = dotted.ok_or_else(|| Trouble::Bad(format!("term '{term}' for {} dimensions", dims.len())))?;
        let split = head.chars().count();
        rest.push(dims[split..split + dotted].to_vec());
        let named = dims[..split].iter().chain(&dims[split + dotted..]);
        for (letter, dim) in head.chars().chain(tail.chars()).zip(named) {
            match letters.iter().position(|(known, ..)| *known == letter) {
                Some(at) => {
                    letters[at].1 = call.broadcast_dim(&letters[at].1.clone(), dim)?;
                    letters[at].2 += 1;
                }
                None => letters.push((letter, dim.clone(), 1)),
            }
        }
    }
    let dotted: Vec<&[Dim]> = rest.iter().map(Vec::as_slice).collect();
    let dotted = call.broadcast(&dotted)?;
    let mut dims = Vec::new();
    match right {
        Some(right) => {
            let (head, tail) = right.split_once("...").unwrap_or((right, ""));
            let find = |letter: char| {
                let found = letters.iter().find(|(known, ..)| *known == letter);
                found.map(|(_, dim, _)| dim.clone()).ok_or_else(|| Trouble::Bad(format!("'{letter}' only after '->'")))
            };
            for letter in head.chars() {
                dims.push(find(letter)?);
            }
            if right.contains("...") {
                dims.extend(dotted);
            }
            for letter in tail.chars() {
                dims.push(find(letter)?);
            }
        }
        None => {
            dims.extend(dotted);
            letters.sort_by_key(|(letter, ..)| *letter);
            dims.extend(letters.into_iter().filter(|(.., uses)| *uses == 1).map(|(_, dim, _)| dim));
        }
    }
    Ok(vec![Fact::tensor(call.element(0), dims)])
}

/// Dimensions of which `axis` has another length.
pub(super) fn with_axis(dims: &[Dim], axis: usize, dim: Dim) -> Vec<Dim> {
    let mut dims = dims.to_vec();
    dims[axis] = dim;
    dims
}

/// The `k` of `TopK`: an attribute first, later an input.
pub(super) fn count_of(call: &mut Call<'_>, attribute: &str, input: usize) -> Result<Option<Dim>, Trouble> {
    match call.int(attribute) {
        Some(number) => length(number).map(Some),
        None if call.given(input).is_some() => {
            let dims = layout::dims_from(call, input);
            Ok(dims.ok().and_then(|dims| dims.into_iter().next()))
        }
        None => Ok(None),
    }
}
