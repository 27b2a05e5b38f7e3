//! Operators that move, cut and join elements without computing on them.

use super::super::fact::{FOLLOWED, Fact, Scalar};
use super::{Call, Facts, Trouble, length, number_of, scalars, values};
use npumem_ir::{Dim, ElementType};

pub(super) fn infer(call: &mut Call<'_>) -> Facts {
    match call.kind {
        "Reshape" => reshape(call),
        "Flatten" => flatten(call),
        "Squeeze" => squeeze(call),
        "Unsqueeze" => unsqueeze(call),
        "Transpose" => transpose(call),
        "Concat" => concat(call),
        "Split" => split(call),
        "Slice" => slice(call),
        "Expand" => expand(call),
        "Tile" => tile(call),
        "Pad" => pad(call),
        "Shape" => shape(call),
        "Size" => size(call),
        "Constant" => Err(Trouble::Bad("a constant without a value".into())),
        "ConstantOfShape" => constant_of_shape(call),
        "Range" => range(call),
        "DepthToSpace" | "SpaceToDepth" => depth_space(call),
        "CenterCropPad" => center_crop_pad(call),
        "RandomNormal" | "RandomUniform" => {
            let dims = call.ints("shape").unwrap_or_default().iter().map(|dim| length(*dim));
            let element = call.element_attribute("dtype")?.unwrap_or(ElementType::F32);
            Ok(vec![Fact::tensor(Some(element), dims.collect::<Result<_, _>>()?)])
        }
        _ => Err(Trouble::UnknownOperator),
    }
}

/// Dimensions from the elements of input `index`; where an element is not known, a fresh one.
pub(super) fn dims_from(call: &mut Call<'_>, index: usize) -> Result<Vec<Dim>, Trouble> {
    let fact = call.input(index)?;
    if let Some(value) = &fact.value {
        let mut dims = Vec::with_capacity(value.len());
        for (axis, scalar) in value.iter().enumerate() {
            dims.push(match scalar {
                Scalar::Int(number) => length(*number)?,
                Scalar::Dim(dim) => dim.clone(),
                _ => call.fresh(0, axis, None),
            });
        }
        return Ok(dims);
    }
    // Not one element is known, but how many there are is the rank.
    match fact.shape.dims() {
        Some([Dim::Known(rank)]) if *rank <= 64 => {
            Ok((0..*rank as usize).map(|axis| call.fresh(0, axis, None)).collect())
        }
        _ => Err(Trouble::Open("a shape that is an input is not known before the run")),
    }
}

fn reshape(call: &mut Call<'_>) -> Facts {
    let input = call.input(0)?;
    let value = input.value.clone();
    let zero_copies = call.int_or("allowzero", 0) == 0;
    let target: Vec<Scalar> = match (call.ints("shape"), call.given(1).and_then(|fact| fact.value.as_ref())) {
        (Some(shape), _) => scalars(shape),
        (None, Some(value)) => value.clone(),
        (None, None) => {
            let dims = dims_from(call, 1)?;
            return Ok(vec![Fact::tensor(input.element, dims)]);
        }
    };
    let from = input.shape.dims();
    let mut dims = Vec::with_capacity(target.len());
    let mut inferred = None;
    for (axis, scalar) in target.iter().enumerate() {
        dims.push(match scalar {
            Scalar::Int(0) if zero_copies => match from {
                Some(from) => from
                    .get(axis)
                    .cloned()
                    .ok_or_else(|| Trouble::Bad(format!("a target that copies dimension {axis} of {}", from.len())))?,
                None => call.fresh(0, axis, None),
            },
            Scalar::Int(-1) => {
                if inferred.replace(axis).is_some() {
                    return Err(Trouble::Bad("two dimensions of -1".into()));
                }
                Dim::Known(1)
            }
            Scalar::Int(number) => length(*number)?,
            Scalar::Dim(dim) => dim.clone(),
            _ => call.fresh(0, axis, None),
        });
    }
    if let Some(from) = from {
        fit(call, from, &mut dims, inferred, &target)?;
    } else if let Some(axis) = inferred {
        dims[axis] = call.fresh(0, axis, None);
    }
    Ok(vec![Fact::tensor(input.element, dims).with_value(value)])
}

/// Settles the dimension of `-1`, or the only unknown one, and holds the number of elements against the input's.
fn fit(
    call: &mut Call<'_>,
    from: &[Dim],
    dims: &mut [Dim],
    inferred: Option<usize>,
    target: &[Scalar],
) -> Result<(), Trouble> {
    let unknown: Vec<usize> = (0..dims.len()).filter(|axis| target[*axis] == Scalar::Unknown).collect();
    let open = match (inferred, unknown.as_slice()) {
        (Some(axis), []) => Some(axis),
        (None, [axis]) => Some(*axis),
        (Some(axis), _) => {
            dims[axis] = call.fresh(0, axis, None);
            None
        }
        _ => None,
    };
    if let Some(axis) = open {
        dims[axis] = Dim::Known(1);
        let total = call.symbols.product(from);
        dims[axis] = match call.symbols.product(dims) {
            Dim::Known(0) if total == Dim::Known(0) => Dim::Known(0),
            Dim::Known(0) => return Err(Trouble::Bad("-1 beside a dimension of zero".into())),
            Dim::Known(rest) if total.known().is_some_and(|total| total % rest != 0) => {
                let total = total.known().unwrap_or(0);
                return Err(Trouble::Bad(format!("{total} elements, which {rest} does not divide")));
            }
            _ => call.symbols.quotient(from, dims),
        };
    }
    let (before, after) = (call.symbols.product(from), call.symbols.product(dims));
    match (before.known(), after.known()) {
        (Some(before), Some(after)) if before != after => {
            Err(Trouble::Bad(format!("a target of {after} elements for an input of {before}")))
        }
        _ => Ok(()),
    }
}

fn flatten(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let axis = call.edge(call.int_or("axis", 1), dims.len())?;
    let (front, back) = (call.symbols.product(&dims[..axis]), call.symbols.product(&dims[axis..]));
    let input = call.input(0)?;
    Ok(vec![Fact::tensor(input.element, vec![front, back]).with_value(input.value.clone())])
}

fn squeeze(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let input = call.input(0)?;
    let axes = match call.list("axes", 1)? {
        Some(axes) => call.axes(&axes, dims.len())?,
        // Every dimension of one; an open one is taken to be longer.
        None => (0..dims.len()).filter(|axis| dims[*axis] == Dim::Known(1)).collect(),
    };
    for axis in &axes {
        if let Some(number) = dims[*axis].known()
            && number != 1
        {
            return Err(Trouble::Bad(format!("dimension {axis} of length {number} squeezed")));
        }
    }
    let kept = dims.iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, dim)| dim.clone()).collect();
    Ok(vec![Fact::tensor(input.element, kept).with_value(input.value.clone())])
}

fn unsqueeze(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let input = call.input(0)?;
    let axes = call.list("axes", 1)?.ok_or_else(|| Trouble::Bad("no axes".into()))?;
    let rank = dims.len() + axes.len();
    let axes = call.axes(&axes, rank)?;
    let mut rest = dims.iter();
    let mut out = Vec::with_capacity(rank);
    for axis in 0..rank {
        match axes.iter().filter(|other| **other == axis).count() {
            0 => out.extend(rest.next().cloned()),
            1 => out.push(Dim::Known(1)),
            _ => return Err(Trouble::Bad(format!("axis {axis} twice"))),
        }
    }
    Ok(vec![Fact::tensor(input.element, out).with_value(input.value.clone())])
}

fn transpose(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let input = call.input(0)?;
    let order = match call.ints("perm") {
        Some(order) => call.axes(order, dims.len())?,
        None => (0..dims.len()).rev().collect(),
    };
    if order.len() != dims.len() || (0..dims.len()).any(|axis| !order.contains(&axis)) {
        return Err(Trouble::Bad(format!("a permutation {order:?} of {} dimensions", dims.len())));
    }
    let value = input.value.as_ref().zip(values::numbers(dims)).and_then(|(value, lengths)| {
        let strides = values::strides(&lengths);
        let turned = |list: &[i64]| order.iter().map(|axis| list[*axis]).collect::<Vec<_>>();
        values::rearranged(value, 0, &turned(&strides), &turned(&lengths))
    });
    let dims = order.iter().map(|axis| dims[*axis].clone()).collect();
    Ok(vec![Fact::tensor(input.element, dims).with_value(value)])
}

fn concat(call: &mut Call<'_>) -> Facts {
    let rank = call.dims(0)?.len();
    let axis = call.axis(call.int_or("axis", if call.version < 4 { 1 } else { 0 }), rank)?;
    let mut dims = call.dims(0)?.to_vec();
    for index in 1..call.inputs.len() {
        let next = call.dims(index)?;
        if next.len() != rank {
            return Err(Trouble::Bad(format!("inputs of {rank} and {} dimensions", next.len())));
        }
        for (at, dim) in next.iter().enumerate() {
            if at == axis {
                dims[at] = call.symbols.add(&dims[at], dim);
            } else {
                dims[at] = same(call, &dims[at], dim)?;
            }
        }
    }
    let value = joined(call, &dims, axis);
    let element = call.inputs.iter().flatten().find_map(|fact| fact.element);
    Ok(vec![Fact::tensor(element, dims).with_value(value)])
}

/// The elements of all inputs, side by side along `axis`; those of an input that is not followed are unknown.
fn joined(call: &Call<'_>, dims: &[Dim], axis: usize) -> Option<Vec<Scalar>> {
    let rows = dims[..axis].iter().try_fold(1_u64, |product, dim| product.checked_mul(dim.known()?))?;
    let whole = dims.iter().try_fold(1_u64, |product, dim| product.checked_mul(dim.known()?))?;
    if whole > FOLLOWED as u64 || rows == 0 {
        return None;
    }
    let mut parts = Vec::with_capacity(call.inputs.len());
    for fact in call.inputs.iter().flatten() {
        let count = usize::try_from(fact.count()?).ok()?;
        let value = fact.value.clone().unwrap_or_else(|| vec![Scalar::Unknown; count]);
        parts.push((count / rows as usize, value));
    }
    let mut joined = Vec::with_capacity(whole as usize);
    for row in 0..rows as usize {
        for (width, value) in &parts {
            joined.extend_from_slice(value.get(row * width..(row + 1) * width)?);
        }
    }
    Some(joined)
}

/// One dimension of two that must be equal: the one that says more.
pub(super) fn same(call: &mut Call<'_>, a: &Dim, b: &Dim) -> Result<Dim, Trouble> {
    match (a, b) {
        (Dim::Known(a), Dim::Known(b)) if a != b => {
            Err(Trouble::Bad(format!("lengths {a} and {b}, which must be equal")))
        }
        (Dim::Known(_), _) => Ok(a.clone()),
        (_, Dim::Known(_)) => Ok(b.clone()),
        _ if call.symbols.is_made_up(a) => Ok(b.clone()),
        _ => Ok(a.clone()),
    }
}

fn split(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let input = call.input(0)?;
    let axis = call.axis(call.int_or("axis", 0), dims.len())?;
    let count = call.outputs.len();
    let sizes = match call.list("split", 1) {
        Ok(Some(sizes)) => sizes.iter().map(|size| length(*size)).collect::<Result<Vec<_>, _>>()?,
        Ok(None) => equal_parts(call, &dims[axis], count)?,
        Err(_) => dims_from(call, 1)?,
    };
    if sizes.len() < count {
        return Err(Trouble::Bad(format!("{} sizes for {count} outputs", sizes.len())));
    }
    if let (Some(total), Some(whole)) =
        (sizes.iter().try_fold(0_u64, |sum, size| sum.checked_add(size.known()?)), dims[axis].known())
        && total != whole
    {
        return Err(Trouble::Bad(format!("sizes that add up to {total}, for a dimension of {whole}")));
    }
    let lengths = values::numbers(dims);
    let mut at = 0_u64;
    let mut facts = Vec::with_capacity(sizes.len());
    for size in sizes {
        let mut part = dims.to_vec();
        part[axis] = size.clone();
        let value = lengths.as_ref().zip(input.value.as_ref()).and_then(|(lengths, value)| {
            let strides = values::strides(lengths);
            let start = i64::try_from(at).ok()?.checked_mul(strides[axis])?;
            values::rearranged(value, start, &strides, &values::numbers(&part)?)
        });
        // Past an open size nothing is known of where a part starts.
        at = at.saturating_add(size.known().unwrap_or(u64::MAX));
        facts.push(Fact::tensor(input.element, part).with_value(value));
    }
    Ok(facts)
}

/// Equal parts, the last one smaller where it does not divide.
fn equal_parts(call: &mut Call<'_>, dim: &Dim, outputs: usize) -> Result<Vec<Dim>, Trouble> {
    let count = match call.int("num_outputs") {
        Some(count) => u64::try_from(count).map_err(|_| Trouble::Bad(format!("{count} outputs")))?,
        None => outputs as u64,
    };
    if count == 0 || count > 1 << 20 {
        return Err(Trouble::Bad(format!("{count} outputs")));
    }
    let part = call.symbols.ceil_div(dim, count);
    let mut parts = vec![part.clone(); count as usize];
    if let Some(whole) = dim.known()
        && let Some(part) = part.known()
    {
        let last = whole.saturating_sub(part.saturating_mul(count - 1));
        parts[count as usize - 1] = Dim::Known(last);
    }
    Ok(parts)
}

fn slice(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let input = call.input(0)?;
    let starts = bounds(call, "starts", 1);
    let ends = bounds(call, "ends", 2);
    let count = starts.as_ref().or(ends.as_ref()).map(Vec::len);
    let axes = match call.list("axes", 3) {
        Ok(Some(axes)) => call.axes(&axes, dims.len())?,
        Ok(None) => (0..count.unwrap_or(dims.len()).min(dims.len())).collect(),
        // Any of the dimensions may be cut.
        Err(_) => {
            let cut = dims.iter().enumerate().map(|(axis, dim)| call.fresh(0, axis, dim.known().map(|most| (0, most))));
            return Ok(vec![Fact::tensor(input.element, cut.collect())]);
        }
    };
    let steps = match call.given(4) {
        None => Some(vec![1; axes.len()]),
        Some(fact) => fact.ints(),
    };
    let mut out = dims.to_vec();
    let mut windows: Option<Vec<(usize, i64, i64)>> = Some(Vec::new());
    for (index, axis) in axes.iter().enumerate() {
        let at = |list: &Option<Vec<Scalar>>| list.as_ref().and_then(|list| list.get(index).cloned());
        let step = steps.as_ref().and_then(|steps| steps.get(index).copied());
        let (start, end) = (at(&starts).unwrap_or(Scalar::Unknown), at(&ends).unwrap_or(Scalar::Unknown));
        if step == Some(0) {
            return Err(Trouble::Bad("a step of zero".into()));
        }
        let cut = cut(call, &dims[*axis], &start, &end, step);
        out[*axis] = match cut {
            Some((first, dim)) => {
                let window = first.zip(step).map(|(first, step)| (*axis, first, step));
                windows = windows.zip(window).map(|(mut windows, window)| {
                    windows.push(window);
                    windows
                });
                dim
            }
            None => {
                let most = dims[*axis].known().map(|most| (0, most));
                call.fresh(0, *axis, most)
            }
        };
    }
    let value = windows.zip(values::numbers(dims)).and_then(|(windows, lengths)| {
        let mut strides = values::strides(&lengths);
        let mut start = 0_i64;
        for (axis, first, step) in windows {
            start = start.checked_add(first.checked_mul(strides[axis])?)?;
            strides[axis] = strides[axis].checked_mul(step)?;
        }
        values::rearranged(input.value.as_ref()?, start, &strides, &values::numbers(&out)?)
    });
    Ok(vec![Fact::tensor(input.element, out).with_value(value)])
}

fn bounds(call: &Call<'_>, attribute: &str, input: usize) -> Option<Vec<Scalar>> {
    call.ints(attribute).map(scalars).or_else(|| call.given(input)?.value.clone())
}

/// The first index (when it is a number) and the length of `start..end` by `step` in a dimension.
fn cut(call: &mut Call<'_>, dim: &Dim, start: &Scalar, end: &Scalar, step: Option<i64>) -> Option<(Option<i64>, Dim)> {
    if let (Some(whole), Some(start), Some(end), Some(step)) = (number_of(dim), start.int(), end.int(), step) {
        let from_end = |at: i64| if at < 0 { at.saturating_add(whole) } else { at };
        let (start, end) = (from_end(start), from_end(end));
        let (start, end) = if step > 0 {
            (start.clamp(0, whole), end.clamp(0, whole))
        } else {
            (start.clamp(-1, whole - 1), end.clamp(-1, whole - 1))
        };
        let span = if step > 0 { end - start } else { start - end };
        let count = if span <= 0 { 0 } else { (span as u64).div_ceil(step.unsigned_abs()) };
        return Some((Some(start), Dim::Known(count)));
    }
    // A length that depends on a symbol: a part is assumed to lie within the whole.
    let step = u64::try_from(step?).ok()?;
    let most = i64::from(i32::MAX);
    let place = |call: &mut Call<'_>, at: &Scalar| match at {
        Scalar::Int(number) if *number >= most => Some(dim.clone()),
        Scalar::Int(number) if *number < 0 => Some(call.symbols.offset(dim, *number)),
        other => other.dim(),
    };
    let (first, last) = (place(call, start)?, place(call, end)?);
    let within = last == *dim || end.int().is_some_and(|end| end < 0);
    let last = if within { last } else { call.symbols.min(dim, &last) };
    let span = call.symbols.sub(&last, &first);
    Some((number_of(&first), call.symbols.ceil_div(&span, step)))
}

fn expand(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let input = call.input(0)?;
    let target = dims_from(call, 1)?;
    let out = call.broadcast(&[dims, &target])?;
    let value = values::spread(input, &out);
    Ok(vec![Fact::tensor(input.element, out).with_value(value)])
}

fn tile(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let input = call.input(0)?;
    let repeats = dims_from(call, 1)?;
    if repeats.len() != dims.len() {
        return Err(Trouble::Bad(format!("{} repeats for {} dimensions", repeats.len(), dims.len())));
    }
    let out: Vec<Dim> = dims.iter().zip(&repeats).map(|(dim, times)| call.symbols.mul(dim, times)).collect();
    let value = match (&input.value, dims.len(), repeats.first().and_then(Dim::known)) {
        (Some(value), 1, Some(times)) if times.saturating_mul(value.len() as u64) <= FOLLOWED as u64 => {
            Some(value.iter().cycle().take(value.len() * times as usize).cloned().collect())
        }
        _ => None,
    };
    Ok(vec![Fact::tensor(input.element, out).with_value(value)])
}

fn pad(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let input = call.input(0)?;
    let pads: Vec<Scalar> = match call.ints("pads") {
        Some(pads) => scalars(pads),
        None => match &call.input(1)?.value {
            Some(pads) => pads.clone(),
            None => vec![Scalar::Unknown; 2 * dims.len()],
        },
    };
    let axes = match call.given(3) {
        Some(fact) => match fact.ints() {
            Some(axes) => call.axes(&axes, dims.len())?,
            None => return Err(Trouble::Open("the axes to pad are not known before the run")),
        },
        None => (0..dims.len()).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(Trouble::Bad(format!("{} pads for {} dimensions", pads.len(), axes.len())));
    }
    let mut out = dims.to_vec();
    for (index, axis) in axes.iter().enumerate() {
        for side in [&pads[index], &pads[axes.len() + index]] {
            out[*axis] = match side {
                Scalar::Int(number) => call.symbols.offset(&out[*axis], *number),
                Scalar::Dim(dim) => call.symbols.add(&out[*axis], dim),
                _ => call.fresh(0, *axis, None),
            };
        }
    }
    Ok(vec![Fact::tensor(input.element, out)])
}

fn shape(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let rank = dims.len() as i64;
    let place = |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize;
    let (start, end) = (place(call.int_or("start", 0)), place(call.int_or("end", rank)));
    let value: Vec<Scalar> = dims[start..end.max(start)].iter().map(Scalar::of).collect();
    let fact = Fact::tensor(Some(ElementType::I64), vec![Dim::Known(value.len() as u64)]);
    Ok(vec![fact.with_value(Some(value))])
}

fn size(call: &mut Call<'_>) -> Facts {
    let total = call.symbols.product(call.dims(0)?);
    let fact = Fact::tensor(Some(ElementType::I64), Vec::new());
    Ok(vec![fact.with_value(Some(vec![Scalar::of(&total)]))])
}

fn constant_of_shape(call: &mut Call<'_>) -> Facts {
    let dims = dims_from(call, 0)?;
    let tensor = call.attribute("value").and_then(|attribute| attribute.t.as_ref());
    let fill = tensor.map(super::super::fact::carried).transpose().map_err(Trouble::Bad)?;
    let (element, scalar) = match fill {
        Some(fill) => (fill.element, fill.value.and_then(|value| value.first().cloned())),
        None => (Some(ElementType::F32), Some(Scalar::Float(0.0))),
    };
    let fact = Fact::tensor(element, dims);
    let count = fact.count().filter(|count| *count <= FOLLOWED as u64);
    let value = scalar.zip(count).map(|(scalar, count)| vec![scalar; count as usize]);
    Ok(vec![fact.with_value(value)])
}

fn range(call: &mut Call<'_>) -> Facts {
    let element = call.element(0);
    let scalar =
        |index: usize| call.given(index).and_then(|fact| fact.value.as_ref()).and_then(|value| value.first()).cloned();
    let (start, limit, step) = (scalar(0), scalar(1), scalar(2).or((call.inputs.len() < 3).then_some(Scalar::Int(1))));
    if let (Some(start), Some(limit), Some(step)) = (
        start.as_ref().and_then(Scalar::int),
        limit.as_ref().and_then(Scalar::int),
        step.as_ref().and_then(Scalar::int),
    ) {
        if step == 0 {
            return Err(Trouble::Bad("a step of zero".into()));
        }
        let span = i128::from(limit) - i128::from(start);
        let count =
            if (span > 0) == (step > 0) { span.unsigned_abs().div_ceil(u128::from(step.unsigned_abs())) } else { 0 };
        let count = u64::try_from(count).map_err(|_| Trouble::Bad("a range past 64 bits".into()))?;
        let value = (count <= FOLLOWED as u64)
            .then(|| (0..count as i64).map(|index| Scalar::Int(start + index * step)).collect());
        return Ok(vec![Fact::tensor(element, vec![Dim::Known(count)]).with_value(value)]);
    }
    let real = |scalar: &Option<Scalar>| scalar.as_ref().and_then(Scalar::float);
    if let (Some(start), Some(limit), Some(step)) = (real(&start), real(&limit), real(&step)) {
        let count = ((limit - start) / step).ceil().max(0.0);
        if count.is_nan() || count >= 9_007_199_254_740_992.0 {
            return Err(Trouble::Bad(format!("a range from {start} to {limit} by {step}")));
        }
        return Ok(vec![Fact::tensor(element, vec![Dim::Known(count as u64)])]);
    }
    let dim = match (start.and_then(|scalar| scalar.dim()), limit.and_then(|scalar| scalar.dim()), step) {
        (Some(start), Some(limit), Some(Scalar::Int(step))) if step > 0 => {
            let span = call.symbols.sub(&limit, &start);
            call.symbols.ceil_div(&span, step.unsigned_abs())
        }
        _ => call.fresh(0, 0, None),
    };
    Ok(vec![Fact::tensor(element, vec![dim])])
}

fn depth_space(call: &mut Call<'_>) -> Facts {
    let [batch, channels, height, width] = call.ranked::<4>(0)?;
    let block = u64::try_from(call.int_or("blocksize", 0)).ok().filter(|block| (1..1 << 20).contains(block));
    let block = block.ok_or_else(|| Trouble::Bad("no block size".into()))?;
    let square = block * block;
    let dims = if call.kind == "DepthToSpace" {
        let (height, width) =
            (call.symbols.mul(&height, &Dim::Known(block)), call.symbols.mul(&width, &Dim::Known(block)));
        vec![batch, call.symbols.floor_div(&channels, square), height, width]
    } else {
        let (height, width) = (call.symbols.floor_div(&height, block), call.symbols.floor_div(&width, block));
        vec![batch, call.symbols.mul(&channels, &Dim::Known(square)), height, width]
    };
    Ok(vec![Fact::tensor(call.element(0), dims)])
}

fn center_crop_pad(call: &mut Call<'_>) -> Facts {
    let mut dims = call.dims(0)?.to_vec();
    let target = dims_from(call, 1)?;
    let axes = match call.ints("axes") {
        Some(axes) => call.axes(axes, dims.len())?,
        None => (0..dims.len()).collect(),
    };
    if axes.len() != target.len() {
        return Err(Trouble::Bad(format!("{} lengths for {} dimensions", target.len(), axes.len())));
    }
    for (axis, dim) in axes.into_iter().zip(target) {
        dims[axis] = dim;
    }
    Ok(vec![Fact::tensor(call.element(0), dims)])
}
