//! Sequences and optionals: values that hold tensors, and live outside planned memory.

use super::super::fact::{Fact, Scalar};
use super::super::symbols::Symbols;
use super::{Call, Facts, Trouble};
use npumem_ir::{Dim, ElementType, Shape};

pub(super) fn infer(call: &mut Call<'_>) -> Facts {
    match call.kind {
        "SequenceConstruct" => {
            let mut held: Option<Fact> = None;
            for fact in call.inputs.clone().into_iter().flatten() {
                let fact = Fact { value: None, constant: false, ..fact.clone() };
                held = Some(match held {
                    None => fact,
                    Some(held) => either(call.symbols, "sequence", &held, &fact, true),
                });
            }
            Ok(vec![Fact::holder(held)])
        }
        "SequenceEmpty" => {
            let element = call.element_attribute("dtype")?.unwrap_or(ElementType::F32);
            Ok(vec![Fact::holder(Some(Fact { element: Some(element), ..Fact::unknown() }))])
        }
        "SequenceInsert" => {
            let item = Fact { value: None, constant: false, ..call.input(1)?.clone() };
            let held = match call.input(0)?.holds.as_deref() {
                // Into a sequence that nothing was put in yet.
                Some(held) if held.shape != Shape::Unknown => either(call.symbols, "sequence", held, &item, true),
                _ => item,
            };
            Ok(vec![Fact::holder(Some(held))])
        }
        "SequenceErase" => Ok(vec![call.like_first()?]),
        "SequenceAt" | "OptionalGetElement" => {
            let input = call.input(0)?;
            match &input.holds {
                Some(held) => Ok(vec![(**held).clone()]),
                None if call.kind == "OptionalGetElement" => Ok(vec![call.like_first()?]),
                None => Err(Trouble::Open("what the sequence holds is not known")),
            }
        }
        "SequenceLength" => Ok(vec![Fact::tensor(Some(ElementType::I64), Vec::new())]),
        "OptionalHasElement" => Ok(vec![Fact::tensor(Some(ElementType::Bool), Vec::new())]),
        "Optional" => {
            let held = call.given(0).map(|fact| Fact { value: None, constant: false, ..fact.clone() });
            let declared = call.attribute("type").and_then(|attribute| attribute.tp.as_ref());
            let held = match (held, declared) {
                (Some(held), _) => Some(held),
                (None, Some(declared)) => {
                    let name = call.outputs.first().map_or("optional", String::as_str);
                    super::super::fact::declared(declared, name, call.symbols).ok()
                }
                (None, None) => None,
            };
            Ok(vec![Fact::holder(held)])
        }
        "SplitToSequence" => split(call),
        "ConcatFromSequence" => concat(call),
        _ => Err(Trouble::UnknownOperator),
    }
}

/// One value that is `a` or `b`: what they agree on; a length that differs is open, between the two if `bounded`.
pub(in super::super) fn either(symbols: &mut Symbols, name: &str, a: &Fact, b: &Fact, bounded: bool) -> Fact {
    let shape = match (a.shape.dims(), b.shape.dims()) {
        (Some(left), Some(right)) if left.len() == right.len() => {
            let mut dims = Vec::with_capacity(left.len());
            for (axis, (left, right)) in left.iter().zip(right).enumerate() {
                // A length that was made up before covers any other.
                dims.push(if left == right || symbols.is_made_up(left) {
                    left.clone()
                } else {
                    let range = left.known().zip(right.known()).map(|(left, right)| (left.min(right), left.max(right)));
                    symbols.fresh(&format!("{name}[{axis}]"), range.filter(|_| bounded))
                });
            }
            Shape::Ranked(dims)
        }
        _ if a.shape == Shape::Opaque && b.shape == Shape::Opaque => Shape::Opaque,
        _ => Shape::Unknown,
    };
    let element = if a.element == b.element { a.element } else { a.element.or(b.element) };
    Fact { element, shape, value: None, constant: false, holds: a.holds.clone().or(b.holds.clone()) }
}

fn split(call: &mut Call<'_>) -> Facts {
    let mut dims = call.dims(0)?.to_vec();
    let axis = call.axis(call.int_or("axis", 0), dims.len())?;
    let whole = dims[axis].known();
    let size = match call.given(1) {
        None if call.int_or("keepdims", 1) == 0 => {
            dims.remove(axis);
            return Ok(vec![Fact::holder(Some(Fact::tensor(call.element(0), dims)))]);
        }
        None => Some(Dim::Known(1)),
        Some(fact) => match fact.value.as_deref() {
            Some([Scalar::Int(size)]) if whole.is_some_and(|whole| *size > 0 && whole % size.unsigned_abs() == 0) => {
                Some(Dim::Known(size.unsigned_abs()))
            }
            Some([first, rest @ ..]) if !rest.is_empty() && rest.iter().all(|size| size == first) => first.dim(),
            _ => None,
        },
    };
    dims[axis] = size.unwrap_or_else(|| call.fresh(0, axis, whole.map(|most| (0, most))));
    Ok(vec![Fact::holder(Some(Fact::tensor(call.element(0), dims)))])
}

fn concat(call: &mut Call<'_>) -> Facts {
    let held = call.input(0)?.holds.as_deref();
    let dims = held.and_then(|held| held.shape.dims()).ok_or(Trouble::Open("what the sequence holds is not known"))?;
    let mut dims = dims.to_vec();
    let stacked = call.int_or("new_axis", 0) != 0;
    let rank = dims.len() + usize::from(stacked);
    let axis = call.axis(call.int_or("axis", 0), rank)?;
    let open = call.fresh(0, axis, None);
    if stacked {
        dims.insert(axis, open);
    } else {
        dims[axis] = open;
    }
    Ok(vec![Fact::tensor(call.element(0), dims)])
}
