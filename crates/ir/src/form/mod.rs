//! How the nouns are written: a text form made to be read in a diff, and versioned JSON. Both are read back.
//!
//! ```text
//!   npumem-problem 1
//!   name example
//!   space UB capacity=1024 align=32
//!   buffer x size=512 live=[0,4)
//!   buffer y size=512 live=[2,6) pin=UB+512
//! ```
//! The pages in `docs/formats/` describe every item; each noun has `to_text`, `from_text`, `to_json` and `from_json`.
//! Whatever a reader returns is sound: ids are in range, ranges are not reversed.

mod dim;
mod graph_text;
mod json;
mod plan_text;
mod problem_text;
mod words;

use std::fmt;

pub(crate) use dim::float;
pub use graph_text::MAX_BODY_DEPTH;

#[cfg(test)]
mod schema_tests;
#[cfg(test)]
mod tests;

/// The version that the writers write, and the only one that the readers read.
pub const VERSION: u64 = 1;
/// The word in front of a problem, in both forms.
pub const PROBLEM: &str = "npumem-problem";
/// The word in front of a plan, in both forms.
pub const PLAN: &str = "npumem-plan";
/// The word in front of a graph, in both forms.
pub const GRAPH: &str = "npumem-graph";

/// Why an input is not what it claims to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormError {
    /// The line, from 1; 0 when the fault has no single line.
    pub line: u64,
    /// The character in the line, from 1; 0 for the line as a whole.
    pub column: u64,
    /// What stands there, or what is wrong.
    pub found: Box<str>,
    /// What should stand there; may be empty.
    pub expected: Box<str>,
}

impl FormError {
    fn new(line: u64, column: u64, found: impl Into<Box<str>>, expected: impl Into<Box<str>>) -> Self {
        FormError { line, column, found: found.into(), expected: expected.into() }
    }

    /// A fault of the whole.
    fn whole(found: impl Into<Box<str>>) -> Self {
        FormError::new(0, 0, found, "")
    }
}

impl fmt::Display for FormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, _) => {}
            (line, 0) => write!(f, "line {line}: ")?,
            (line, column) => write!(f, "line {line}, character {column}: ")?,
        }
        match (self.found.is_empty(), self.expected.is_empty()) {
            (true, _) => write!(f, "expected {}", self.expected),
            (false, true) => f.write_str(&self.found),
            (false, false) => write!(f, "found {}, expected {}", self.found, self.expected),
        }
    }
}

impl std::error::Error for FormError {}
