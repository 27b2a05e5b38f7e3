//! Operators that slide a window over an image, and those that sample one.

use super::super::fact::{Fact, Scalar};
use super::{Call, Facts, Trouble, layout, length};
use npumem_ir::{Dim, ElementType};

pub(super) fn infer(call: &mut Call<'_>) -> Facts {
    match call.kind {
        "Conv" => conv(call, 1, call.element(0)),
        "ConvInteger" => conv(call, 1, Some(ElementType::I32)),
        "QLinearConv" => conv(call, 3, call.element(7)),
        "DeformConv" => conv(call, 1, call.element(0)),
        "ConvTranspose" => conv_transpose(call),
        "AveragePool" | "LpPool" => pool(call, false),
        "MaxPool" => pool(call, true),
        "MaxUnpool" => max_unpool(call),
        "GlobalAveragePool" | "GlobalMaxPool" | "GlobalLpPool" => {
            let dims = call.dims(0)?;
            let dims = dims.iter().enumerate().map(|(axis, dim)| if axis < 2 { dim.clone() } else { Dim::Known(1) });
            Ok(vec![Fact::tensor(call.element(0), dims.collect())])
        }
        "Resize" => resize(call),
        "Upsample" => upsample(call),
        "GridSample" => {
            let (image, grid) = (call.dims(0)?, call.dims(1)?);
            let mut dims = image.get(..2).ok_or_else(|| Trouble::Bad("an image of one dimension".into()))?.to_vec();
            dims.extend(grid.iter().skip(1).take(grid.len().saturating_sub(2)).cloned());
            Ok(vec![Fact::tensor(call.element(0), dims)])
        }
        "AffineGrid" => affine_grid(call),
        "RoiAlign" => {
            let ([_, channels, _, _], [rois, _]) = (call.ranked::<4>(0)?, call.ranked::<2>(1)?);
            let side = |name| length(call.int_or(name, 1));
            Ok(vec![Fact::tensor(call.element(0), vec![rois, channels, side("output_height")?, side("output_width")?])])
        }
        "MaxRoiPool" => {
            let ([_, channels, _, _], [rois, _]) = (call.ranked::<4>(0)?, call.ranked::<2>(1)?);
            let &[height, width] = call.ints("pooled_shape").unwrap_or_default() else {
                return Err(Trouble::Bad("no pooled shape of two lengths".into()));
            };
            Ok(vec![Fact::tensor(call.element(0), vec![rois, channels, length(height)?, length(width)?])])
        }
        "Col2Im" => col2im(call),
        _ => Err(Trouble::UnknownOperator),
    }
}

/// Where the window's parameters come from: attributes, with what the standard takes when they are left out.
pub(super) struct Window {
    kernel: Vec<Dim>,
    strides: Vec<u64>,
    dilations: Vec<u64>,
    pads: Vec<i64>,
    /// `NOTSET`, `VALID`, `SAME_UPPER`, `SAME_LOWER`.
    auto_pad: String,
}

impl Window {
    pub(super) fn of(call: &Call<'_>, kernel: Vec<Dim>) -> Result<Window, Trouble> {
        let rank = kernel.len();
        let steps = |name: &str| -> Result<Vec<u64>, Trouble> {
            let given = call.ints(name).unwrap_or_default();
            if given.is_empty() {
                return Ok(vec![1; rank]);
            }
            let steps = given.iter().filter_map(|step| u64::try_from(*step).ok().filter(|step| *step > 0));
            let steps: Vec<u64> = steps.collect();
            if steps.len() != rank || given.len() != rank {
                return Err(Trouble::Bad(format!("{name} {given:?} for {rank} window dimensions")));
            }
            Ok(steps)
        };
        let (strides, dilations) = (steps("strides")?, steps("dilations")?);
        let auto_pad = call.text("auto_pad").unwrap_or("NOTSET").to_string();
        let given = call.ints("pads").unwrap_or_default();
        let pads = match given.len() {
            _ if auto_pad == "VALID" => vec![0; 2 * rank],
            0 => vec![0; 2 * rank],
            length if length == 2 * rank => given.to_vec(),
            _ => return Err(Trouble::Bad(format!("pads {given:?} for {rank} window dimensions"))),
        };
        Ok(Window { kernel, strides, dilations, pads, auto_pad })
    }

    /// The length that a window of `kernel` elements spans, dilated.
    fn span(&self, call: &mut Call<'_>, axis: usize) -> Dim {
        let gaps = call.symbols.offset(&self.kernel[axis], -1);
        let gaps = call.symbols.mul(&gaps, &Dim::Known(self.dilations[axis]));
        call.symbols.offset(&gaps, 1)
    }

    /// How many windows fit along `axis` of an image dimension.
    fn slide(&self, call: &mut Call<'_>, dim: &Dim, axis: usize, round_up: bool) -> Result<Dim, Trouble> {
        let stride = self.strides[axis];
        if self.auto_pad.starts_with("SAME") {
            return Ok(call.symbols.ceil_div(dim, stride));
        }
        let rank = self.kernel.len();
        let (before, after) = (self.pads[axis], self.pads[rank + axis]);
        let span = self.span(call, axis);
        let pads = before.checked_add(after).ok_or_else(|| Trouble::Bad(format!("pads {before} and {after}")))?;
        let padded = call.symbols.offset(dim, pads);
        if let (Some(padded), Some(span)) = (padded.known(), span.known())
            && padded < span
        {
            // A zero-length image keeps its length; anything else does not hold one window.
            if dim.known() == Some(0) {
                return Ok(Dim::Known(0));
            }
            return Err(Trouble::Bad(format!("a window of {span} over {padded} elements")));
        }
        let free = call.symbols.sub(&padded, &span);
        let steps = if round_up { call.symbols.ceil_div(&free, stride) } else { call.symbols.floor_div(&free, stride) };
        // Rounded up, the last window must still start inside the image or the padding before it.
        let steps = match (round_up, steps.known(), dim.known(), u64::try_from(before)) {
            (true, Some(steps), Some(length), Ok(before)) if steps.saturating_mul(stride) >= length + before => {
                Dim::Known(steps.saturating_sub(1))
            }
            _ => steps,
        };
        Ok(call.symbols.offset(&steps, 1))
    }

    /// The image dimensions that come out.
    pub(super) fn slide_all(&self, call: &mut Call<'_>, image: &[Dim], round_up: bool) -> Result<Vec<Dim>, Trouble> {
        if image.len() != self.kernel.len() {
            let (image, kernel) = (image.len(), self.kernel.len());
            return Err(Trouble::Bad(format!("a window of {kernel} dimensions over an image of {image}")));
        }
        image.iter().enumerate().map(|(axis, dim)| self.slide(call, dim, axis, round_up)).collect()
    }
}

/// The window's lengths: the attribute, or the weight's last dimensions.
pub(super) fn kernel(call: &Call<'_>, weight: Option<&[Dim]>) -> Result<Vec<Dim>, Trouble> {
    match (call.ints("kernel_shape"), weight) {
        (Some(kernel), _) => kernel.iter().map(|side| length((*side).max(0))).collect(),
        (None, Some(weight)) => Ok(weight.to_vec()),
        (None, None) => Err(Trouble::Bad("no kernel shape".into())),
    }
}

/// A convolution of input 0 with the weight at `weight`.
pub(super) fn conv(call: &mut Call<'_>, weight: usize, element: Option<ElementType>) -> Facts {
    let (image, weight) = (call.dims(0)?, call.dims(weight)?);
    if image.len() < 3 || weight.len() != image.len() {
        let (image, weight) = (image.len(), weight.len());
        return Err(Trouble::Bad(format!("an image of {image} dimensions and a weight of {weight}")));
    }
    if let (Some(channels), Some(taken)) = (image[1].known(), weight[1].known()) {
        let group = u64::try_from(call.int_or("group", 1)).unwrap_or(1);
        if taken.checked_mul(group) != Some(channels) {
            return Err(Trouble::Bad(format!("{channels} channels for a weight of {taken} in {group} groups")));
        }
    }
    let kernel = kernel(call, Some(&weight[2..]))?;
    let window = Window::of(call, kernel)?;
    let mut dims = vec![image[0].clone(), weight[0].clone()];
    dims.extend(window.slide_all(call, &image[2..], false)?);
    Ok(vec![Fact::tensor(element, dims)])
}

pub(super) fn conv_transpose(call: &mut Call<'_>) -> Facts {
    let (image, weight) = (call.dims(0)?, call.dims(1)?);
    if image.len() < 3 || weight.len() != image.len() {
        let (image, weight) = (image.len(), weight.len());
        return Err(Trouble::Bad(format!("an image of {image} dimensions and a weight of {weight}")));
    }
    let window = Window::of(call, kernel(call, Some(&weight[2..]))?)?;
    let channels = call.symbols.mul(&weight[1], &length(call.int_or("group", 1))?);
    let mut dims = vec![image[0].clone(), channels];
    let rank = image.len() - 2;
    let output = call.ints("output_shape").unwrap_or_default();
    let extra = call.ints("output_padding").unwrap_or_default();
    for axis in 0..rank {
        // The image's dimensions only, or all of them.
        let given = output.get(if output.len() == rank + 2 { axis + 2 } else { axis });
        if let Some(given) = given {
            dims.push(length(*given)?);
            continue;
        }
        let stride = Dim::Known(window.strides[axis]);
        if window.auto_pad.starts_with("SAME") {
            dims.push(call.symbols.mul(&image[axis + 2], &stride));
            continue;
        }
        let steps = call.symbols.offset(&image[axis + 2], -1);
        let steps = call.symbols.mul(&steps, &stride);
        let span = window.span(call, axis);
        let whole = call.symbols.add(&steps, &span);
        let pads = window.pads[axis].saturating_add(window.pads[rank + axis]);
        let extra = extra.get(axis).copied().unwrap_or(0);
        dims.push(call.symbols.offset(&whole, extra.saturating_sub(pads)));
    }
    Ok(vec![Fact::tensor(call.element(0), dims)])
}

pub(super) fn pool(call: &mut Call<'_>, indices: bool) -> Facts {
    let image = call.dims(0)?;
    if image.len() < 3 {
        return Err(Trouble::Bad(format!("an image of {} dimensions", image.len())));
    }
    let window = Window::of(call, kernel(call, None)?)?;
    let mut dims = image[..2].to_vec();
    dims.extend(window.slide_all(call, &image[2..], call.int_or("ceil_mode", 0) != 0)?);
    let mut facts = vec![Fact::tensor(call.element(0), dims.clone())];
    if indices {
        facts.push(Fact::tensor(Some(ElementType::I64), dims));
    }
    Ok(facts)
}

fn max_unpool(call: &mut Call<'_>) -> Facts {
    let image = call.dims(0)?;
    if call.given(2).is_some() {
        let dims = layout::dims_from(call, 2)?;
        return Ok(vec![Fact::tensor(call.element(0), dims)]);
    }
    let window = Window::of(call, kernel(call, None)?)?;
    let rank = window.kernel.len();
    if image.len() != rank + 2 {
        return Err(Trouble::Bad(format!("a window of {rank} dimensions over an image of {}", image.len() - 2)));
    }
    let mut dims = image[..2].to_vec();
    for axis in 0..rank {
        let steps = call.symbols.offset(&image[axis + 2], -1);
        let steps = call.symbols.mul(&steps, &Dim::Known(window.strides[axis]));
        let whole = call.symbols.add(&steps, &window.kernel[axis]);
        let pads = window.pads[axis].saturating_add(window.pads[rank + axis]);
        dims.push(call.symbols.offset(&whole, pads.saturating_neg()));
    }
    Ok(vec![Fact::tensor(call.element(0), dims)])
}

/// A dimension scaled by a float factor, rounded down.
fn scaled(call: &mut Call<'_>, output_axis: usize, dim: &Dim, factor: f64) -> Result<Dim, Trouble> {
    if !(factor > 0.0 && factor < 1e9) {
        return Err(Trouble::Bad(format!("a scale of {factor}")));
    }
    Ok(match dim {
        // Scales are 32-bit floats; the product is rounded down as the runtimes do.
        Dim::Known(number) => Dim::Known((*number as f64 * factor) as u64),
        dim if factor.fract() == 0.0 => call.symbols.mul(dim, &Dim::Known(factor as u64)),
        dim if (1.0 / factor).fract() == 0.0 => call.symbols.floor_div(dim, (1.0 / factor) as u64),
        _ => call.fresh(0, output_axis, None),
    })
}

fn resize(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    // Version 10 has the scales as input 1; later ones (roi, scales, sizes).
    let (scales, sizes) = if call.version < 11 { (1, 9) } else { (2, 3) };
    let axes = match call.ints("axes") {
        Some(axes) => call.axes(axes, dims.len())?,
        None => (0..dims.len()).collect(),
    };
    let empty = |fact: &&Fact| fact.count() != Some(0);
    let mut out = dims.to_vec();
    if call.given(sizes).filter(empty).is_some() {
        let target = layout::dims_from(call, sizes)?;
        if target.len() != axes.len() {
            return Err(Trouble::Bad(format!("{} sizes for {} dimensions", target.len(), axes.len())));
        }
        keep_aspect(call, dims, &axes, &target, &mut out);
        return Ok(vec![Fact::tensor(call.element(0), out)]);
    }
    let factors = match call.given(scales).filter(empty) {
        None => return Err(Trouble::Bad("neither scales nor sizes".into())),
        Some(fact) => fact.value.clone().unwrap_or_else(|| vec![Scalar::Unknown; axes.len()]),
    };
    if factors.len() != axes.len() {
        return Err(Trouble::Bad(format!("{} scales for {} dimensions", factors.len(), axes.len())));
    }
    let cropped = call.text("coordinate_transformation_mode") == Some("tf_crop_and_resize");
    let region = call.given(1).filter(|_| cropped && scales == 2).and_then(|fact| fact.floats());
    for (index, (axis, factor)) in axes.iter().zip(factors).enumerate() {
        let part = region.as_ref().and_then(|region| Some(region.get(axes.len() + index)? - region.get(index)?));
        out[*axis] = match factor.float() {
            Some(factor) => scaled(call, *axis, &dims[*axis], factor * part.unwrap_or(1.0))?,
            None => call.fresh(0, *axis, None),
        };
    }
    Ok(vec![Fact::tensor(call.element(0), out)])
}

/// Sets the resized dimensions; under an aspect-ratio policy one scale is taken for all of them.
fn keep_aspect(call: &Call<'_>, dims: &[Dim], axes: &[usize], target: &[Dim], out: &mut [Dim]) {
    let policy = call.text("keep_aspect_ratio_policy").unwrap_or("stretch");
    let ratio = |index: usize| Some(target[index].known()? as f64 / dims[axes[index]].known()? as f64);
    let ratios: Option<Vec<f64>> = (0..axes.len()).map(ratio).collect();
    let scale = ratios.and_then(|ratios| match policy {
        "not_larger" => ratios.into_iter().reduce(f64::min),
        "not_smaller" => ratios.into_iter().reduce(f64::max),
        _ => None,
    });
    for (axis, target) in axes.iter().zip(target) {
        out[*axis] = match (scale, dims[*axis].known()) {
            (Some(scale), Some(dim)) => Dim::Known((scale * dim as f64).round() as u64),
            _ => target.clone(),
        };
    }
}

fn upsample(call: &mut Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    let factors: Option<Vec<f64>> = match call.attribute("scales") {
        Some(attribute) => Some(attribute.floats.iter().map(|factor| f64::from(*factor)).collect()),
        None => call.given(1).and_then(Fact::floats),
    };
    let mut out = Vec::with_capacity(dims.len());
    for (axis, dim) in dims.iter().enumerate() {
        out.push(match factors.as_ref().map(|factors| factors.get(axis)) {
            Some(Some(factor)) => scaled(call, axis, dim, *factor)?,
            Some(None) => return Err(Trouble::Bad(format!("no scale for dimension {axis}"))),
            None => call.fresh(0, axis, None),
        });
    }
    Ok(vec![Fact::tensor(call.element(0), out)])
}

fn affine_grid(call: &mut Call<'_>) -> Facts {
    let size = layout::dims_from(call, 1)?;
    // (N, C, H, W) or (N, C, D, H, W): the grid has no channels, and a coordinate for each image dimension.
    let mut dims: Vec<Dim> =
        size.iter().enumerate().filter(|(axis, _)| *axis != 1).map(|(_, dim)| dim.clone()).collect();
    dims.push(Dim::Known(size.len().saturating_sub(2) as u64));
    Ok(vec![Fact::tensor(call.element(0), dims)])
}

fn col2im(call: &mut Call<'_>) -> Facts {
    let [batch, columns, _] = call.ranked::<3>(0)?;
    let (image, block) = (layout::dims_from(call, 1)?, layout::dims_from(call, 2)?);
    let channels = call.symbols.quotient(&[columns], &block);
    let mut dims = vec![batch, channels];
    dims.extend(image);
    Ok(vec![Fact::tensor(call.element(0), dims)])
}
