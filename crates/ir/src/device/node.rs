//! One tree for both syntaxes: TOML and JSON are turned into it, the reader sees only this.
//!
//! A node keeps the byte offset it came from, so that an error found long after parsing can
//! still point at its line and column. JSON nodes have no offset.

use super::error::{DeviceError, DeviceProblem, Position};

/// Longest text that is looked at: descriptions have a few kilobytes.
pub const MAX_TEXT: usize = 1 << 20;

/// Deepest nesting: document, list, space, subtable, figure, list.
const MAX_DEPTH: usize = 8;

/// A value and where it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Byte offset in the text.
    pub at: Option<usize>,
    /// The value.
    pub value: Value,
}

/// The values of TOML and JSON that a description may use.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A whole number.
    Whole(i128),
    /// A number with a point, an exponent, `inf` or `nan`.
    Real(f64),
    /// `true` or `false`.
    Truth(bool),
    /// A list.
    List(Vec<Node>),
    /// A table, in the order of the text.
    Table(Vec<Entry>),
    /// Something else, in words (a date, `null`, a number beyond 127 bits).
    Other(String),
}

/// A key of a table, and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Byte offset of the key.
    pub at: Option<usize>,
    /// The value.
    pub node: Node,
}

impl Node {
    /// A node that comes from no text.
    pub fn new(value: Value) -> Self {
        Node { at: None, value }
    }

    /// The text of a key of a table.
    pub fn text_at(&self, key: &str) -> Option<&str> {
        let Value::Table(entries) = &self.value else { return None };
        match &entries.iter().find(|entry| entry.key == key)?.node.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value in a few words, for an error.
    pub fn shown(&self) -> String {
        match &self.value {
            Value::Text(text) => {
                let short: String = text.chars().take(40).collect();
                let dots = if short.len() < text.len() { "..." } else { "" };
                format!("\"{short}{dots}\"")
            }
            Value::Whole(number) => number.to_string(),
            Value::Real(number) => number.to_string(),
            Value::Truth(truth) => truth.to_string(),
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
            Value::Other(what) => what.clone(),
        }
    }
}

/// The tree of a TOML text.
pub fn from_toml(text: &str) -> Result<Node, DeviceError> {
    check_length(text)?;
    let document = toml::de::DeTable::parse(text).map_err(|error| DeviceError {
        position: error.span().map(|span| Position::of(text, span.start)),
        path: String::new(),
        problem: DeviceProblem::Syntax(error.message().replace('\n', ", ")),
    })?;
    let node = toml_table(document.get_ref(), Some(0), 0);
    node.map_err(|at| too_deep(text, at))
}

fn toml_table(table: &toml::de::DeTable<'_>, at: Option<usize>, depth: usize) -> Result<Node, Option<usize>> {
    let mut entries = Vec::with_capacity(table.len());
    for (key, value) in table {
        entries.push(Entry {
            key: key.get_ref().to_string(),
            at: Some(key.span().start),
            node: toml_value(value.get_ref(), Some(value.span().start), depth + 1)?,
        });
    }
    entries.sort_by_key(|entry| entry.at);
    Ok(Node { at, value: Value::Table(entries) })
}

fn toml_value(value: &toml::de::DeValue<'_>, at: Option<usize>, depth: usize) -> Result<Node, Option<usize>> {
    use toml::de::DeValue;
    if depth > MAX_DEPTH {
        return Err(at);
    }
    let value = match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(whole) => Value::Whole(whole),
            Err(_) => Value::Other("a number beyond 127 bits".to_owned()),
        },
        DeValue::Float(number) => match number.as_str().parse() {
            Ok(real) => Value::Real(real),
            Err(_) => Value::Other("a number that cannot be read".to_owned()),
        },
        DeValue::Boolean(truth) => Value::Truth(*truth),
        DeValue::Datetime(_) => Value::Other("a date".to_owned()),
        DeValue::Array(list) => {
            let nodes: Result<Vec<Node>, _> =
                list.iter().map(|item| toml_value(item.get_ref(), Some(item.span().start), depth + 1)).collect();
            Value::List(nodes?)
        }
        DeValue::Table(table) => return toml_table(table, at, depth),
    };
    Ok(Node { at, value })
}

/// The tree of a JSON text.
pub fn from_json(text: &str) -> Result<Node, DeviceError> {
    check_length(text)?;
    let document: serde_json::Value = serde_json::from_str(text).map_err(|error| DeviceError {
        position: Some(Position { line: error.line().max(1), column: error.column().max(1) }),
        path: String::new(),
        problem: DeviceProblem::Syntax(json_message(&error)),
    })?;
    json_value(&document, 0).map_err(|()| too_deep(text, None))
}

/// serde_json ends its messages with the position, which the error already carries.
fn json_message(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let end = message.rfind(" at line ").unwrap_or(message.len());
    message[..end].to_owned()
}

fn json_value(value: &serde_json::Value, depth: usize) -> Result<Node, ()> {
    use serde_json::Value as Json;
    if depth > MAX_DEPTH {
        return Err(());
    }
    let value = match value {
        Json::Null => Value::Other("null".to_owned()),
        Json::Bool(truth) => Value::Truth(*truth),
        Json::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(whole), _, _) => Value::Whole(i128::from(whole)),
            (_, Some(whole), _) => Value::Whole(i128::from(whole)),
            (_, _, Some(real)) => Value::Real(real),
            _ => Value::Other("a number that cannot be read".to_owned()),
        },
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(list) => {
            let nodes: Result<Vec<Node>, ()> = list.iter().map(|item| json_value(item, depth + 1)).collect();
            Value::List(nodes?)
        }
        Json::Object(table) => {
            let mut entries = Vec::with_capacity(table.len());
            for (key, value) in table {
                let node = json_value(value, depth + 1)?;
                entries.push(Entry { key: key.clone(), at: None, node });
            }
            Value::Table(entries)
        }
    };
    Ok(Node::new(value))
}

fn check_length(text: &str) -> Result<(), DeviceError> {
    if text.len() <= MAX_TEXT {
        return Ok(());
    }
    Err(DeviceError {
        position: None,
        path: String::new(),
        problem: DeviceProblem::TooLong { found: text.len(), limit: MAX_TEXT },
    })
}

fn too_deep(text: &str, at: Option<usize>) -> DeviceError {
    DeviceError {
        position: at.map(|at| Position::of(text, at)),
        path: String::new(),
        problem: DeviceProblem::TooMany { what: "levels of nesting", limit: MAX_DEPTH },
    }
}
