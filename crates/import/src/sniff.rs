//! Which format an input is in: by what stands in it; its name only where that does not tell.

use crate::error::{ErrorKind, ImportError, quoted};
use npumem_ir::form::{GRAPH, PLAN, PROBLEM};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// A format that some reader of npumem takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// An ONNX model.
    Onnx,
    /// MiniMalloc's CSV.
    MinimallocCsv,
    /// A dsa-problem, JSON.
    DsaProblem,
    /// A dsa-solution, JSON.
    DsaSolution,
    /// npumem's problem, JSON.
    ProblemJson,
    /// npumem's problem, text.
    ProblemText,
    /// npumem's plan, JSON.
    PlanJson,
    /// npumem's plan, text.
    PlanText,
    /// npumem's graph, JSON.
    GraphJson,
    /// npumem's graph, text.
    GraphText,
    /// npumem's program, text.
    ProgramText,
    /// A PTO kernel.
    Pto,
}

impl Format {
    /// What a message calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Format::Onnx => "ONNX model",
            Format::MinimallocCsv => "MiniMalloc CSV",
            Format::DsaProblem => "dsa-problem JSON",
            Format::DsaSolution => "dsa-solution JSON",
            Format::ProblemJson => "npumem problem (JSON)",
            Format::ProblemText => "npumem problem (text)",
            Format::PlanJson => "npumem plan (JSON)",
            Format::PlanText => "npumem plan (text)",
            Format::GraphJson => "npumem graph (JSON)",
            Format::GraphText => "npumem graph (text)",
            Format::ProgramText => "npumem program (text)",
            Format::Pto => "PTO kernel",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The start of a text that is looked at.
const LOOK: usize = 64 * 1024;

/// Says which format the bytes are in.
///
/// # Errors
/// Bytes that look like none of them, with what was seen.
pub fn sniff(bytes: &[u8], file_name: &str) -> Result<Format, ImportError> {
    if is_wide(bytes) {
        let error = unknown("UTF-16 or UTF-32 text");
        return Err(error.expected("UTF-8").hint("save the file as UTF-8"));
    }
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let by_name = by_ending(file_name);
    if text.is_empty() {
        return by_name.ok_or_else(|| unknown("an empty file"));
    }
    if text[0] == b'{' {
        return by_keys(text);
    }
    let start = String::from_utf8_lossy(&text[..text.len().min(LOOK)]);
    let first_line = start.lines().next().unwrap_or("");
    // Program texts may begin with remarks.
    let said = start.lines().map(str::trim_start).find(|line| !line.is_empty() && !line.starts_with('#'));
    if said.is_some_and(|line| line.starts_with("npumem-program")) {
        return Ok(Format::ProgramText);
    }
    match first_line.split_whitespace().next().unwrap_or("") {
        PROBLEM => return Ok(Format::ProblemText),
        PLAN => return Ok(Format::PlanText),
        GRAPH => return Ok(Format::GraphText),
        _ => {}
    }
    if crate::minimalloc::is_header(first_line) {
        return Ok(Format::MinimallocCsv);
    }
    let is_text = !start.contains('\0') && !start.contains('\u{fffd}');
    if is_text && is_pto(&start) {
        return Ok(Format::Pto);
    }
    if let Some(format) = by_name {
        return Ok(format);
    }
    // A model's first field is `ir_version`, a small number: tag 8, then a byte below 128.
    if bytes.len() > 2 && bytes[0] == 8 && bytes[1] < 128 {
        return Ok(Format::Onnx);
    }
    Err(unknown(if is_text { format!("a text that starts with {}", quoted(first_line)) } else { "binary data".into() }))
}

/// Text of two or four bytes a character: its mark, or every second one of the first bytes is 0.
fn is_wide(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(64)];
    let zeros = |from: usize| head.len() >= 8 && head.iter().skip(from).step_by(2).all(|byte| *byte == 0);
    let visible = |from: usize| {
        head.iter().skip(from).step_by(2).all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
    };
    bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") || zeros(1) && visible(0) || zeros(0) && visible(1)
}

fn by_ending(file_name: &str) -> Option<Format> {
    let (_, ending) = file_name.rsplit_once('.')?;
    match ending.to_ascii_lowercase().as_str() {
        "onnx" => Some(Format::Onnx),
        "csv" => Some(Format::MinimallocCsv),
        "pto" => Some(Format::Pto),
        _ => None,
    }
}

/// Whether a text is a module with operations of the `pto` dialect.
fn is_pto(start: &str) -> bool {
    let mut lines = start.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("//"));
    let opens = |line: &str| {
        ["module", "builtin.module", "func.func", "#", "!", "\"builtin.module\""]
            .iter()
            .any(|word| line.starts_with(word))
    };
    lines.next().is_some_and(opens) && start.contains("pto.")
}

fn unknown(found: impl Into<Box<str>>) -> ImportError {
    ImportError::new(ErrorKind::Unknown, "format").found(found).expected(
        "an ONNX model, a PTO kernel, a MiniMalloc CSV (id,lower,upper,size), a dsa-problem or dsa-solution JSON, \
         or npumem's own problem, plan, graph or program",
    )
}

/// Decides by the keys at the top of a JSON object; reads no further than it must.
fn by_keys(text: &[u8]) -> Result<Format, ImportError> {
    let mut seen = Keys::default();
    let mut reader = serde_json::Deserializer::from_slice(text);
    let ended = KeysSeed(&mut seen).deserialize(&mut reader);
    if let Some(format) = seen.decided {
        return Ok(format);
    }
    if let Err(error) = ended {
        return Err(crate::error::from_json(&error));
    }
    if let Some(format) = seen.format {
        return Err(unknown(format!("\"format\": {}", quoted(&format))));
    }
    Err(unknown(format!("a JSON object with the keys {}", quoted(&seen.names.join(", ")))))
}

#[derive(Default)]
struct Keys {
    decided: Option<Format>,
    format: Option<String>,
    names: Vec<String>,
}

struct KeysSeed<'a>(&'a mut Keys);

impl<'de> DeserializeSeed<'de> for KeysSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for KeysSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "format" => {
                    let format = map.next_value::<String>()?;
                    self.0.decided = match format.as_str() {
                        PROBLEM => Some(Format::ProblemJson),
                        PLAN => Some(Format::PlanJson),
                        GRAPH => Some(Format::GraphJson),
                        _ => None,
                    };
                    self.0.format = Some(format);
                }
                "problem" => self.0.decided = Some(Format::DsaProblem),
                "placements" => self.0.decided = Some(Format::DsaSolution),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            if self.0.decided.is_some() {
                return Err(A::Error::custom("decided"));
            }
            if self.0.names.len() < 8 {
                self.0.names.push(key);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_decides_and_then_the_name() {
        let cases: &[(&[u8], &str, Format)] = &[
            (b"npumem-problem 1\n", "x.csv", Format::ProblemText),
            (b"\xef\xbb\xbf\nnpumem-plan 1", "", Format::PlanText),
            (b"npumem-graph 1", "", Format::GraphText),
            (b"npumem-program 1\n", "", Format::ProgramText),
            (b"{\"format\": \"npumem-plan\", broken", "", Format::PlanJson),
            (b" {\"format\":\"npumem-problem\"}", "", Format::ProblemJson),
            (b"{\"version\":1,\"format\":\"npumem-graph\"}", "", Format::GraphJson),
            (b"{\"schema_version\":1,\"metadata\":{\"a\":\"b\"},\"problem\":{", "", Format::DsaProblem),
            (b"{\"schema_version\":1,\"placements\":[]}", "", Format::DsaSolution),
            (b"size,end,start,buffer_id\n", "", Format::MinimallocCsv),
            (b"", "a.onnx", Format::Onnx),
            (b"\x08\x08\x12\x07pytorch", "", Format::Onnx),
            (b"\x12\x07pytorch\x08\x08", "model.ONNX", Format::Onnx),
            (b"// a kernel\nmodule attributes {} {\n pto.tload", "", Format::Pto),
            (b"anything", "kernel.pto", Format::Pto),
        ];
        for (bytes, name, format) in cases {
            assert_eq!(sniff(bytes, name), Ok(*format), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn what_is_not_known_is_said_with_what_was_seen() {
        for (bytes, found) in [
            (&b""[..], "an empty file"),
            (b"hello\nworld", "a text that starts with 'hello'"),
            (b"\xff\xd8\xff\xe0", "binary data"),
            (b"{\"a\":1,\"b\":[]}", "the keys 'a, b'"),
            (b"{\"format\":\"other\"}", "\"format\": 'other'"),
            (b"{\"a\":", "line 1, character 5: found EOF"),
        ] {
            let error = sniff(bytes, "file.bin").unwrap_err().to_string();
            assert!(error.contains(found), "{error}");
        }
    }
}
