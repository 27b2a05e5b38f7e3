//! Classical machine learning (`ai.onnx.ml`), and the optimisers of the training preview.

use super::super::fact::Fact;
use super::{Call, Facts, Trouble, length};
use npumem_ir::{Dim, ElementType};

pub(super) fn infer(call: &mut Call<'_>) -> Facts {
    match call.kind {
        "Binarizer" | "Imputer" => Ok(vec![call.like_first()?]),
        "Normalizer" | "Scaler" => Ok(vec![Fact { element: Some(ElementType::F32), ..call.like_first()? }]),
        "LabelEncoder" | "CategoryMapper" => {
            let element = mapped(call);
            Ok(vec![Fact { element, ..call.like_first()? }])
        }
        "ArrayFeatureExtractor" => {
            let (dims, picks) = (call.dims(0)?, call.dims(1)?);
            let count = call.symbols.product(picks);
            let mut out = dims.to_vec();
            match out.last_mut() {
                Some(last) if dims.len() > 1 => *last = count,
                _ => out = vec![Dim::Known(1), count],
            }
            Ok(vec![Fact::tensor(call.element(0), out)])
        }
        "OneHotEncoder" => {
            let mut dims = call.dims(0)?.to_vec();
            let count = categories(call, &["cats_int64s", "cats_strings"]);
            dims.push(match count {
                Some(count) => Dim::Known(count),
                None => call.fresh(0, dims.len(), None),
            });
            Ok(vec![Fact::tensor(Some(ElementType::F32), dims)])
        }
        "FeatureVectorizer" => {
            let batch = rows(call)?;
            let sizes = call.ints("inputdimensions").unwrap_or_default();
            let total = sizes.iter().try_fold(0_i64, |sum, size| sum.checked_add(*size));
            let total = length(total.unwrap_or(-1))?;
            Ok(vec![Fact::tensor(Some(ElementType::F32), vec![batch, total])])
        }
        "LinearRegressor" => {
            let batch = rows(call)?;
            let targets = length(call.int_or("targets", 1))?;
            Ok(vec![Fact::tensor(Some(ElementType::F32), vec![batch, targets])])
        }
        "SVMRegressor" => {
            let batch = rows(call)?;
            Ok(vec![Fact::tensor(Some(ElementType::F32), vec![batch, Dim::Known(1)])])
        }
        "TreeEnsembleRegressor" | "TreeEnsemble" => {
            let batch = rows(call)?;
            let targets = length(call.int_or("n_targets", 1))?;
            let element = if call.kind == "TreeEnsemble" { call.element(0) } else { Some(ElementType::F32) };
            Ok(vec![Fact::tensor(element, vec![batch, targets])])
        }
        "LinearClassifier" | "SVMClassifier" | "TreeEnsembleClassifier" => {
            let batch = rows(call)?;
            let texts = ["classlabels_strings", "classlabels_strings_"].iter().find_map(|name| call.attribute(name));
            let texts = texts.filter(|labels| !labels.strings.is_empty());
            let label = if texts.is_some() { ElementType::Text } else { ElementType::I64 };
            let names = ["classlabels_strings", "classlabels_ints", "classlabels_int64s"];
            let scores = match categories(call, &names) {
                Some(count) => Dim::Known(count),
                None => call.fresh(1, 1, None),
            };
            let labels = Fact::tensor(Some(label), vec![batch.clone()]);
            Ok(vec![labels, Fact::tensor(Some(ElementType::F32), vec![batch, scores])])
        }
        // Maps: nothing that is planned.
        "ZipMap" => Ok(vec![Fact::holder(None)]),
        "CastMap" | "DictVectorizer" => {
            let name = if call.kind == "CastMap" { ["max_map", ""] } else { ["string_vocabulary", "int64_vocabulary"] };
            let count = match call.int("max_map") {
                Some(most) if call.text("map_form") == Some("SPARSE") => u64::try_from(most).ok(),
                _ => categories(call, &name),
            };
            let columns = match count {
                Some(count) => Dim::Known(count),
                None => call.fresh(0, 1, None),
            };
            Ok(vec![Fact::tensor(Some(ElementType::F32), vec![Dim::Known(1), columns])])
        }
        _ => Err(Trouble::UnknownOperator),
    }
}

/// How many rows of features come in; a single row has one dimension.
fn rows(call: &Call<'_>) -> Result<Dim, Trouble> {
    Ok(match call.dims(0)? {
        [] | [_] => Dim::Known(1),
        [batch, ..] => batch.clone(),
    })
}

/// The length of the first list that is there; `None` when none is, or it was too long to be kept.
fn categories(call: &Call<'_>, names: &[&str]) -> Option<u64> {
    let lists = names.iter().filter_map(|name| call.attribute(name));
    lists.map(|list| list.ints.len().max(list.strings.len()) as u64).find(|count| *count > 0)
}

/// The element type that a table of keys and values maps to.
fn mapped(call: &Call<'_>) -> Option<ElementType> {
    if call.kind == "CategoryMapper" {
        return Some(if call.element(0) == Some(ElementType::Text) { ElementType::I64 } else { ElementType::Text });
    }
    for (name, element) in [
        ("values_strings", ElementType::Text),
        ("values_int64s", ElementType::I64),
        ("values_floats", ElementType::F32),
    ] {
        if call.attribute(name).is_some() {
            return Some(element);
        }
    }
    if let Some(tensor) = call.attribute("values_tensor").and_then(|attribute| attribute.t.as_ref()) {
        return super::element_of(tensor.data_type).ok().flatten();
    }
    // Version 1: `classes_strings`, from text to numbers or back.
    Some(if call.element(0) == Some(ElementType::Text) { ElementType::I64 } else { ElementType::Text })
}

/// Optimisers: new values like the old ones, after the rate and the step count.
pub(super) fn training(call: &mut Call<'_>) -> Facts {
    let parts = match call.kind {
        "Adagrad" | "Momentum" => 3,
        "Adam" => 4,
        _ => return Err(Trouble::UnknownOperator),
    };
    let count = call.inputs.len().saturating_sub(2) / parts;
    let mut facts = Vec::new();
    for part in (0..parts).filter(|part| *part != 1) {
        for index in 0..count {
            facts.push(Fact { value: None, constant: false, ..call.input(2 + part * count + index)?.clone() });
        }
    }
    Ok(facts)
}
