//! Operators that pick elements by index, and those whose result's length depends on the elements.

use super::super::fact::{FOLLOWED, Fact, Scalar};
use super::reduction::{count_of, with_axis};
use super::{Call, Facts, Trouble, length, values};
use npumem_ir::{Dim, ElementType};

pub(super) fn infer(call: &mut Call<'_>) -> Facts {
    match call.kind {
        "Gather" => gather(call),
        "GatherElements" => Ok(vec![Fact { element: call.element(0), ..Fact::tensor(None, call.dims(1)?.to_vec()) }]),
        "GatherND" => gather_nd(call, call.int_or("batch_dims", 0)),
        "OneHot" => one_hot(call),
        "TopK" => top_k(call),
        "NonZero" => non_zero(call),
        "NonMaxSuppression" => {
            let count = selected(call);
            Ok(vec![Fact::tensor(Some(ElementType::I64), vec![count, Dim::Known(3)])])
        }
        "Compress" => compress(call),
        "Unique" => unique(call),
        "Multinomial" => {
            let [batch, _] = call.ranked::<2>(0)?;
            let element = call.element_attribute("dtype")?.unwrap_or(ElementType::I32);
            let samples = length(call.int_or("sample_size", 1))?;
            Ok(vec![Fact::tensor(Some(element), vec![batch, samples])])
        }
        "TfIdfVectorizer" => {
            let dims = call.dims(0)?;
            let most = call.ints("ngram_indexes").and_then(|indexes| indexes.iter().max()).copied();
            let columns = match most.and_then(|most| most.checked_add(1)) {
                Some(columns) => length(columns)?,
                None => call.fresh(0, dims.len().saturating_sub(1), None),
            };
            let mut out = dims[..dims.len().saturating_sub(1)].to_vec();
            out.push(columns);
            Ok(vec![Fact::tensor(Some(ElementType::F32), out)])
        }
        "StringSplit" => {
            let dims = call.dims(0)?.to_vec();
            let mut parts = dims.clone();
            parts.push(call.fresh(0, dims.len(), None));
            Ok(vec![Fact::tensor(Some(ElementType::Text), parts), Fact::tensor(Some(ElementType::I64), dims)])
        }
        "ImageDecoder" => {
            let channels = if call.text("pixel_format") == Some("Grayscale") { 1 } else { 3 };
            let dims = vec![call.fresh(0, 0, None), call.fresh(0, 1, None), Dim::Known(channels)];
            Ok(vec![Fact::tensor(Some(ElementType::U8), dims)])
        }
        _ => Err(Trouble::UnknownOperator),
    }
}

fn gather(call: &mut Call<'_>) -> Facts {
    let (dims, indices) = (call.dims(0)?, call.dims(1)?);
    let axis = call.axis(call.int_or("axis", 0), dims.len())?;
    let out = [&dims[..axis], indices, &dims[axis + 1..]].concat();
    let input = call.input(0)?;
    let value = match (&input.value, call.input(1)?.ints()) {
        (Some(value), Some(indices)) => picked(value, dims, axis, &indices)?,
        _ => None,
    };
    Ok(vec![Fact::tensor(input.element, out).with_value(value)])
}

/// The elements at `indices` along `axis`.
fn picked(value: &[Scalar], dims: &[Dim], axis: usize, indices: &[i64]) -> Result<Option<Vec<Scalar>>, Trouble> {
    let Some(lengths) = values::numbers(dims) else { return Ok(None) };
    let (rows, count): (i64, i64) = (lengths[..axis].iter().product(), lengths[axis]);
    let width: i64 = lengths[axis + 1..].iter().product();
    if rows.saturating_mul(width).saturating_mul(indices.len() as i64) > FOLLOWED as i64 {
        return Ok(None);
    }
    let mut out = Vec::new();
    for row in 0..rows {
        for index in indices {
            let at = if *index < 0 { index.saturating_add(count) } else { *index };
            if !(0..count).contains(&at) {
                return Err(Trouble::Bad(format!("index {index} outside of 0..{count}")));
            }
            let start = ((row * count + at) * width) as usize;
            let Some(part) = value.get(start..start + width as usize) else { return Ok(None) };
            out.extend_from_slice(part);
        }
    }
    Ok(Some(out))
}

pub(super) fn gather_nd(call: &mut Call<'_>, batch: i64) -> Facts {
    let (dims, indices) = (call.dims(0)?, call.dims(1)?);
    let bad = || Trouble::Bad(format!("indices of {} dimensions into {}", indices.len(), dims.len()));
    let (last, front) = indices.split_last().ok_or_else(bad)?;
    let depth = last.known().ok_or(Trouble::Open("how many dimensions an index spans is not known"))?;
    let from = usize::try_from(batch).ok().and_then(|batch| batch.checked_add(usize::try_from(depth).ok()?));
    let rest = dims.get(from.ok_or_else(bad)?..).ok_or_else(bad)?;
    Ok(vec![Fact::tensor(call.element(0), [front, rest].concat())])
}

fn one_hot(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let axis = call.edge(call.int_or("axis", -1), dims.len() + 1)?;
    let depth = call.input(1)?.value.as_ref().and_then(|value| value.first().cloned());
    let depth = match depth.as_ref().map(|scalar| (scalar.dim(), scalar.float())) {
        Some((Some(dim), _)) => dim,
        Some((None, Some(number))) if (0.0..1e15).contains(&number) => Dim::Known(number as u64),
        _ => call.fresh(0, axis, None),
    };
    let axis = axis.min(dims.len());
    let mut out = dims.to_vec();
    out.insert(axis, depth);
    Ok(vec![Fact::tensor(call.element(2), out)])
}

fn top_k(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let axis = call.axis(call.int_or("axis", -1), dims.len())?;
    let count = match count_of(call, "k", 1)? {
        Some(count) => count,
        None => call.fresh(0, axis, dims[axis].known().map(|most| (0, most))),
    };
    let out = with_axis(dims, axis, count);
    Ok(vec![Fact::tensor(call.element(0), out.clone()), Fact::tensor(Some(ElementType::I64), out)])
}

fn non_zero(call: &mut Call<'_>) -> Facts {
    let input = call.input(0)?;
    let dims = call.dims(0)?;
    let fact = |count: Dim| Fact::tensor(Some(ElementType::I64), vec![Dim::Known(dims.len() as u64), count]);
    if let (1, Some(value)) = (dims.len(), input.floats()) {
        let places = value.iter().enumerate().filter(|(_, number)| **number != 0.0);
        let places: Vec<Scalar> = places.map(|(index, _)| Scalar::Int(index as i64)).collect();
        return Ok(vec![fact(Dim::Known(places.len() as u64)).with_value(Some(places))]);
    }
    let most = input.count().map(|most| (0, most));
    let count = call.fresh(0, 1, most);
    Ok(vec![fact(count)])
}

/// How many boxes a suppression keeps: at most so many for each batch and class.
fn selected(call: &mut Call<'_>) -> Dim {
    let most = call.given(2).and_then(Fact::ints).and_then(|value| value.first().copied());
    let bound = match (call.ranked::<3>(0), call.ranked::<3>(1), most) {
        (Ok(boxes), Ok(scores), Some(most)) => {
            let per_class = u64::try_from(most).ok().zip(boxes[1].known()).map(|(most, boxes)| most.min(boxes));
            let classes = scores[0].known().zip(scores[1].known()).and_then(|(batch, class)| batch.checked_mul(class));
            per_class.zip(classes).and_then(|(most, classes)| most.checked_mul(classes))
        }
        // The limit is 0 when left out: nothing is selected, but runtimes read it as "no limit".
        (Ok(boxes), Ok(scores), None) => scores[0]
            .known()
            .zip(scores[1].known())
            .zip(boxes[1].known())
            .and_then(|((batch, class), boxes)| batch.checked_mul(class)?.checked_mul(boxes)),
        _ => None,
    };
    call.fresh(0, 0, bound.map(|bound| (0, bound)))
}

fn compress(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let kept = call.input(1)?.ints().map(|picks| Dim::Known(picks.iter().filter(|pick| **pick != 0).count() as u64));
    match call.int("axis") {
        Some(axis) => {
            let axis = call.axis(axis, dims.len())?;
            let kept = kept.unwrap_or_else(|| call.fresh(0, axis, dims[axis].known().map(|most| (0, most))));
            Ok(vec![Fact::tensor(call.element(0), with_axis(dims, axis, kept))])
        }
        None => {
            let most = call.input(0)?.count().map(|most| (0, most));
            let kept = kept.unwrap_or_else(|| call.fresh(0, 0, most));
            Ok(vec![Fact::tensor(call.element(0), vec![kept])])
        }
    }
}

fn unique(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let (axis, whole) = match call.int("axis") {
        Some(axis) => {
            let axis = call.axis(axis, dims.len())?;
            (Some(axis), dims[axis].clone())
        }
        None => (None, call.symbols.product(dims)),
    };
    let count = call.fresh(0, axis.unwrap_or(0), whole.known().map(|most| (most.min(1), most)));
    let values = axis.map_or(vec![count.clone()], |axis| with_axis(dims, axis, count.clone()));
    let list = |dim: Dim| Fact::tensor(Some(ElementType::I64), vec![dim]);
    Ok(vec![Fact::tensor(call.element(0), values), list(count.clone()), list(whole), list(count)])
}
