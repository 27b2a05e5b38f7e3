//! The JSON form: the noun's fields behind `"format"` and `"version"`.

use super::{FormError, GRAPH, PLAN, PROBLEM, VERSION, graph_text, plan_text, problem_text};
use crate::graph::{Graph, Operator, Symbol, Tensor};
use crate::ids::{BufferId, TensorId};
use crate::plan::{Move, Origin, Plan, Residency, SpaceUse};
use crate::problem::{Buffer, Constraints, Goal, Problem, Space};
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// What is written: the head, then the noun's own fields.
#[derive(Serialize)]
struct Written<'a, T> {
    format: &'static str,
    version: u64,
    #[serde(flatten)]
    noun: &'a T,
}

fn write<T: Serialize>(format: &'static str, noun: &T) -> String {
    // None of the nouns has a field that JSON cannot hold, so there is nothing to fail.
    let mut text = serde_json::to_string_pretty(&Written { format, version: VERSION, noun }).unwrap_or_default();
    text.push('\n');
    text
}

/// Each noun once more, with the head that its JSON has: serde refuses unknown keys only without flattening.
macro_rules! document {
    ($document:ident, $noun:ident { $($(#[$attribute:meta])* $field:ident: $type:ty),* $(,)? }) => {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $document {
            format: String,
            version: u64,
            $($(#[$attribute])* $field: $type,)*
        }

        impl From<$document> for $noun {
            fn from(document: $document) -> $noun {
                $noun { $($field: document.$field),* }
            }
        }

        impl Head for $document {
            fn head(&self) -> (&str, u64) {
                (&self.format, self.version)
            }
        }
    };
}

trait Head {
    fn head(&self) -> (&str, u64);
}

document! {
    ProblemDocument, Problem {
        name: String,
        spaces: Vec<Space>,
        buffers: Vec<Buffer>,
        #[serde(default)] constraints: Constraints,
        #[serde(default)] goals: Vec<Goal>,
    }
}
document! {
    PlanDocument, Plan {
        problem: String,
        #[serde(default)] device: Option<String>,
        residencies: Vec<Residency>,
        #[serde(default)] moves: Vec<Move>,
        #[serde(default)] pooled: Vec<BufferId>,
        spaces: Vec<SpaceUse>,
        origin: Origin,
    }
}
document! {
    GraphDocument, Graph {
        name: String,
        #[serde(default)] symbols: Vec<Symbol>,
        tensors: Vec<Tensor>,
        operators: Vec<Operator>,
        inputs: Vec<TensorId>,
        outputs: Vec<TensorId>,
    }
}

fn read<D: DeserializeOwned + Head>(text: &str, format: &'static str) -> Result<D, FormError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // serde would take an array for the fields in order.
    let start = text.trim_start();
    if let Some(first) = start.chars().next().filter(|first| *first != '{') {
        let line = 1 + text[..text.len() - start.len()].matches('\n').count() as u64;
        return Err(FormError::new(line, 0, format!("'{first}'"), "an object"));
    }
    match serde_json::from_str::<D>(text) {
        Ok(document) => check_head(Some(document.head().0), Some(document.head().1), format).map(|()| document),
        // A file of another format or version fails on its first unknown key: say the cause, not the symptom.
        Err(error) => Err(match serde_json::from_str::<HeadOnly>(text) {
            Ok(head) => {
                check_head(head.format.as_deref(), head.version, format).err().unwrap_or_else(|| from_serde(&error))
            }
            Err(_) => from_serde(&error),
        }),
    }
}

fn check_head(found: Option<&str>, version: Option<u64>, format: &str) -> Result<(), FormError> {
    let expected = format!("\"format\": \"{format}\", \"version\": {VERSION}");
    match (found, version) {
        (Some(found), Some(VERSION)) if found == format => Ok(()),
        (Some(found), Some(version)) if found == format => {
            Err(FormError::new(0, 0, format!("\"version\": {version}"), expected))
        }
        (Some(found), _) if found != format => {
            let shown: String = found.chars().take(80).collect();
            Err(FormError::new(0, 0, format!("\"format\": {shown:?}"), expected))
        }
        (Some(_), _) => Err(FormError::new(0, 0, "no \"version\"", expected)),
        (None, _) => Err(FormError::new(0, 0, "no \"format\"", expected)),
    }
}

/// serde_json's message without the place, which has its own fields.
fn from_serde(error: &serde_json::Error) -> FormError {
    let (line, column) = (error.line() as u64, error.column() as u64);
    let message = error.to_string();
    let place = format!(" at line {line} column {column}");
    FormError::new(line, column, message.strip_suffix(&place).unwrap_or(&message), "")
}

/// The head of any JSON object, the rest skipped.
struct HeadOnly {
    format: Option<String>,
    version: Option<u64>,
}

impl<'de> Deserialize<'de> for HeadOnly {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Heads;
        impl<'de> Visitor<'de> for Heads {
            type Value = HeadOnly;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HeadOnly, A::Error> {
                let mut head = HeadOnly { format: None, version: None };
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "format" => head.format = Some(map.next_value()?),
                        "version" => head.version = Some(map.next_value()?),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(head)
            }
        }
        deserializer.deserialize_map(Heads)
    }
}

impl Problem {
    /// The JSON form, with `"format": "npumem-problem"` and its version in front.
    #[must_use]
    pub fn to_json(&self) -> String {
        write(PROBLEM, self)
    }

    /// Reads the JSON form.
    ///
    /// # Errors
    /// Another format or version, an unknown key, a wrong type (with line and character), or the first
    /// [contradiction](Problem::validate) in the statement.
    pub fn from_json(text: &str) -> Result<Problem, FormError> {
        problem_text::sound(read::<ProblemDocument>(text, PROBLEM)?.into())
    }
}

impl Plan {
    /// The JSON form, with `"format": "npumem-plan"` and its version in front.
    #[must_use]
    pub fn to_json(&self) -> String {
        write(PLAN, self)
    }

    /// Reads the JSON form.
    ///
    /// # Errors
    /// Another format or version, an unknown key, a wrong type (with line and character), a reversed range.
    pub fn from_json(text: &str) -> Result<Plan, FormError> {
        plan_text::sound(read::<PlanDocument>(text, PLAN)?.into())
    }
}

impl Graph {
    /// The JSON form, with `"format": "npumem-graph"` and its version in front.
    #[must_use]
    pub fn to_json(&self) -> String {
        write(GRAPH, self)
    }

    /// Reads the JSON form.
    ///
    /// # Errors
    /// Another format or version, an unknown key, a wrong type (with line and character), or the first
    /// [contradiction](Graph::validate) in the graph.
    pub fn from_json(text: &str) -> Result<Graph, FormError> {
        graph_text::sound(read::<GraphDocument>(text, GRAPH)?.into())
    }
}
