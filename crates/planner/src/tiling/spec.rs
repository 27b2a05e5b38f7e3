//! The text form of an operator: a family, then `key=value` pairs.
//!
//! ```text
//! matmul m=4096 n=4096 k=4096 a=f16 b=f16 c=f32
//! conv c=64 size=56x56 k=64 kernel=3x3 pad=1 in=i8 weight=i8 out=i8
//! ```
//!
//! The same keys come from a TOML table or from an ONNX node; [`build`] makes the operator from any of them.

use super::family;
use super::operator::{Operator, OperatorError};
use npumem_ir::ElementType;
use std::cell::RefCell;
use std::collections::BTreeSet;
use thiserror::Error;

/// What is wrong with a spec.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpecError {
    /// The text is not `family key=value ...`.
    #[error("operator spec, column {column}: {problem}")]
    Syntax {
        /// From 1.
        column: usize,
        /// What was found and what was expected.
        problem: String,
    },
    /// A key that is needed is missing.
    #[error("operator spec: {family} needs '{key}' ({meaning}); for example: {example}")]
    Missing {
        /// The family.
        family: String,
        /// The key.
        key: String,
        /// What it is.
        meaning: String,
        /// A whole spec.
        example: String,
    },
    /// The operator is impossible.
    #[error("{0}")]
    Operator(#[from] OperatorError),
}

/// One `key=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The key, in lower case.
    pub key: String,
    /// The value.
    pub value: String,
    /// Where the value starts, from 1.
    pub column: usize,
}

/// The pairs of one operator; remembers which keys were asked for.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// The family.
    pub family: String,
    /// The pairs.
    pub fields: Vec<Field>,
    asked: RefCell<BTreeSet<String>>,
}

/// The longest spec that is read.
pub const MAX_SPEC: usize = 16 * 1024;

/// Reads a spec.
///
/// # Errors
/// The first mistake, with its column, or what makes the operator impossible.
pub fn parse(text: &str) -> Result<Operator, SpecError> {
    let fields = Fields::parse(text)?;
    build(&fields)
}

/// Makes the operator that fields describe.
///
/// # Errors
/// The first mistake.
pub fn build(fields: &Fields) -> Result<Operator, SpecError> {
    let operator = family::build(fields)?;
    fields.all_known()?;
    Ok(operator.validated()?)
}

impl Fields {
    /// Pairs from elsewhere: a TOML table, an ONNX node.
    #[must_use]
    pub fn new(family: &str, pairs: Vec<(String, String)>) -> Fields {
        let fields = pairs.into_iter().map(|(key, value)| Field { key, value, column: 0 }).collect();
        Fields { family: family.to_owned(), fields, asked: RefCell::default() }
    }

    /// Splits a spec into its pairs.
    ///
    /// # Errors
    /// The first word that is no pair.
    pub fn parse(text: &str) -> Result<Fields, SpecError> {
        let syntax = |column: usize, problem: String| SpecError::Syntax { column, problem };
        if text.len() > MAX_SPEC {
            return Err(syntax(1, format!("{} bytes; a spec has at most {MAX_SPEC}", text.len())));
        }
        let mut fields = Fields::default();
        let mut column = 1;
        for (at, word) in words(text) {
            column = at;
            if fields.family.is_empty() {
                fields.family = word.to_lowercase();
                continue;
            }
            let Some((key, value)) = word.split_once('=') else {
                return Err(syntax(at, format!("'{word}' is no pair; expected key=value, for example m=4096")));
            };
            if key.is_empty() || value.is_empty() {
                return Err(syntax(at, format!("'{word}': a pair has a key, '=' and a value, without spaces")));
            }
            let key = key.to_lowercase();
            if fields.fields.iter().any(|field| field.key == key) {
                return Err(syntax(at, format!("'{key}' is given twice")));
            }
            let start = at + word.chars().take_while(|c| *c != '=').count() + 1;
            fields.fields.push(Field { key, value: value.to_owned(), column: start });
        }
        if fields.family.is_empty() {
            return Err(syntax(column, format!("expected an operator: {}", family::FAMILIES.join(", "))));
        }
        Ok(fields)
    }

    /// The pair of a key.
    pub fn get(&self, key: &str) -> Option<&Field> {
        self.asked.borrow_mut().insert(key.to_owned());
        self.fields.iter().find(|field| field.key == key)
    }

    /// A number of at least 1 that must be there.
    ///
    /// # Errors
    /// When it is missing, no number, zero or beyond the limit.
    pub fn dim(&self, key: &str, meaning: &str, example: &str) -> Result<u64, SpecError> {
        match self.get(key) {
            Some(field) => self.positive(field),
            None => Err(SpecError::Missing {
                family: self.family.clone(),
                key: key.to_owned(),
                meaning: meaning.to_owned(),
                example: example.to_owned(),
            }),
        }
    }

    /// A number of at least 1, or the default.
    ///
    /// # Errors
    /// As for [`Fields::dim`].
    pub fn dim_or(&self, key: &str, default: u64) -> Result<u64, SpecError> {
        self.get(key).map_or(Ok(default), |field| self.positive(field))
    }

    fn positive(&self, field: &Field) -> Result<u64, SpecError> {
        let value = self.number(field, &field.value)?;
        super::operator::limit(&field.key, value)?;
        Ok(value)
    }

    fn number(&self, field: &Field, text: &str) -> Result<u64, SpecError> {
        let digits = text.replace('_', "");
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(self.wrong(field, format!("'{text}' is no whole number")));
        }
        // Beyond 64 bits is beyond the limit of every key, too.
        Ok(digits.parse().unwrap_or(u64::MAX))
    }

    /// Numbers with `x` or `,` between: `3x3`, `1024x4096`.
    ///
    /// # Errors
    /// When one of them is no number.
    pub fn list(&self, key: &str) -> Result<Option<Vec<u64>>, SpecError> {
        let Some(field) = self.get(key) else { return Ok(None) };
        let parts = field.value.split(['x', 'X', ',']).map(|part| self.number(field, part));
        let list: Vec<u64> = parts.collect::<Result<_, _>>()?;
        if list.len() > 8 {
            return Err(self.wrong(field, format!("{} numbers; at most 8 dimensions", list.len())));
        }
        Ok(Some(list))
    }

    /// A list of exactly `rank` numbers; one number stands for all of them; missing: the default for each.
    ///
    /// # Errors
    /// When there is another number of them.
    pub fn list_of(&self, key: &str, rank: usize, default: u64) -> Result<Vec<u64>, SpecError> {
        match (self.list(key)?, self.get(key)) {
            (Some(list), _) if list.len() == rank => Ok(list),
            (Some(list), _) if list.len() == 1 => Ok(vec![list[0]; rank]),
            (Some(list), Some(field)) => {
                Err(self.wrong(field, format!("{} numbers; expected {rank}, or one for all", list.len())))
            }
            _ => Ok(vec![default; rank]),
        }
    }

    /// An element type, or the default.
    ///
    /// # Errors
    /// When it is no type.
    pub fn element(&self, key: &str, default: ElementType) -> Result<ElementType, SpecError> {
        let Some(field) = self.get(key) else { return Ok(default) };
        let name = match field.value.to_ascii_lowercase().as_str() {
            "fp16" | "float16" | "half" => "f16".to_owned(),
            "bfloat16" => "bf16".to_owned(),
            "fp32" | "float32" | "float" => "f32".to_owned(),
            "int8" => "i8".to_owned(),
            "uint8" => "u8".to_owned(),
            "int32" => "i32".to_owned(),
            "int4" => "i4".to_owned(),
            "fp8" | "f8" => "f8e4m3".to_owned(),
            "fp4" | "f4" => "f4e2m1".to_owned(),
            other => other.to_owned(),
        };
        ElementType::from_name(&name).ok_or_else(|| {
            self.wrong(field, format!("'{}' is no element type; there are f64 f32 f16 bf16 f8e4m3 f8e5m2 f4e2m1 i64 i32 i16 i8 i4 u32 u16 u8 bool", field.value))
        })
    }

    /// A word out of a list, or the default.
    ///
    /// # Errors
    /// When it is another word.
    pub fn word(&self, key: &str, allowed: &[&str], default: &str) -> Result<String, SpecError> {
        let Some(field) = self.get(key) else { return Ok(default.to_owned()) };
        let value = field.value.to_ascii_lowercase();
        if allowed.contains(&value.as_str()) {
            return Ok(value);
        }
        Err(self.wrong(field, format!("'{value}' is not known here; there are {}", allowed.join(", "))))
    }

    /// An error at a pair's value.
    #[must_use]
    pub fn wrong(&self, field: &Field, problem: String) -> SpecError {
        SpecError::Syntax { column: field.column, problem: format!("{}: {problem}", field.key) }
    }

    fn all_known(&self) -> Result<(), SpecError> {
        let asked = self.asked.borrow();
        match self.fields.iter().find(|field| !asked.contains(&field.key)) {
            Some(field) => {
                let known: Vec<&str> = asked.iter().map(String::as_str).collect();
                let problem = format!("{} has no '{}'; it has {}", self.family, field.key, known.join(", "));
                Err(SpecError::Syntax { column: field.column.saturating_sub(field.key.len() + 1).max(1), problem })
            }
            None => Ok(()),
        }
    }
}

/// Words with their columns, from 1.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut start = None;
    for (column, (at, c)) in text.char_indices().enumerate() {
        match (c.is_whitespace(), start) {
            (false, None) => start = Some((column + 1, at)),
            (true, Some((column, from))) => {
                found.push((column, &text[from..at]));
                start = None;
            }
            _ => {}
        }
    }
    if let Some((column, from)) = start {
        found.push((column, &text[from..]));
    }
    found
}
