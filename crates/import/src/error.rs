//! What is wrong with a foreign file: one error type for every reader.
//!
//! ```text
//!   line 3, column 'upper': found '-4', expected a whole number from 0 to 18446744073709551615
//!     hint: ranges are [lower, upper) and start at step 0
//! ```
//! The readers never see a file's name; whoever opened the file puts it in front.

use std::fmt;

/// Where in the input: as exact as the format allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Position {
    /// The input as a whole.
    #[default]
    Whole,
    /// A line of text, and a character in it; both count from 1, and 0 means the line as a whole.
    Line {
        /// The line.
        line: u64,
        /// The character in it.
        column: u64,
    },
    /// A byte of a binary file, from 0.
    Byte(u64),
}

/// What sort of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The bytes are not the format that they are read as: broken JSON, a truncated message, a ragged row.
    Syntax,
    /// Something that must be there is not: a column, a field, a tensor that a node reads.
    Missing,
    /// A name that the format does not have: a column, a field, a version, an operator.
    Unknown,
    /// The same name or id twice.
    Duplicate,
    /// A value outside of what it may be: negative, reversed, empty, past 64 bits.
    Value,
    /// Two parts that do not agree: an id that nothing has, a cycle, a shape that its operator cannot have.
    Inconsistent,
    /// Fine in the format, but npumem has no word for it.
    Unsupported,
    /// More than a limit that npumem sets, so that no input takes the machine down.
    Limit,
    /// Only the caller can know it: the size of an open dimension, the shape of an unknown operator's output.
    NeedsAnswer,
}

/// Why an input was refused: where, which item, what was found, what was expected, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    /// What sort of thing went wrong.
    pub kind: ErrorKind,
    /// Where.
    pub position: Position,
    /// Which item: `column 'upper'`, `node 'conv_3'`, `problem.buffers[3].size`; may be empty.
    pub item: Box<str>,
    /// What stands there; may be empty where something is missing.
    pub found: Box<str>,
    /// What should stand there.
    pub expected: Box<str>,
    /// What the user can do; may be empty.
    pub hint: Box<str>,
}

/// A foreign value is shown up to this many characters.
const SHOWN: usize = 80;

/// A foreign value as it may be shown: one line, bounded, in quotes, no control characters.
#[must_use]
pub fn quoted(value: &str) -> String {
    let mut text = String::from("'");
    for (index, character) in value.chars().enumerate() {
        if index == SHOWN {
            text.push_str("...");
            break;
        }
        if character.is_control() {
            text.extend(character.escape_default());
        } else {
            text.push(character);
        }
    }
    text.push('\'');
    text
}

impl ImportError {
    /// An error about `item`; the rest is added by the methods below.
    #[must_use]
    pub fn new(kind: ErrorKind, item: impl Into<Box<str>>) -> Self {
        ImportError {
            kind,
            position: Position::Whole,
            item: item.into(),
            found: "".into(),
            expected: "".into(),
            hint: "".into(),
        }
    }

    /// In this line, counted from 1.
    #[must_use]
    pub fn at_line(self, line: u64) -> Self {
        self.at(Position::Line { line, column: 0 })
    }

    /// At this byte, counted from 0.
    #[must_use]
    pub fn at_byte(self, offset: u64) -> Self {
        self.at(Position::Byte(offset))
    }

    /// At this place.
    #[must_use]
    pub fn at(mut self, position: Position) -> Self {
        self.position = position;
        self
    }

    /// A value of the input that is wrong: shown in quotes, in one line, cut where it is long.
    #[must_use]
    pub fn found_value(self, value: &str) -> Self {
        let text = quoted(value);
        self.found(text)
    }

    /// What stands there, in our words.
    #[must_use]
    pub fn found(mut self, found: impl Into<Box<str>>) -> Self {
        self.found = found.into();
        self
    }

    /// What should stand there.
    #[must_use]
    pub fn expected(mut self, expected: impl Into<Box<str>>) -> Self {
        self.expected = expected.into();
        self
    }

    /// What the user can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Box<str>>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl From<npumem_ir::FormError> for ImportError {
    fn from(error: npumem_ir::FormError) -> Self {
        let at = match error.line {
            0 => Position::Whole,
            line => Position::Line { line, column: error.column },
        };
        ImportError::new(ErrorKind::Syntax, "").at(at).found(error.found).expected(error.expected)
    }
}

/// serde_json's error, its place as a [`Position`].
pub(crate) fn from_json(error: &serde_json::Error) -> ImportError {
    let (line, column) = (error.line() as u64, error.column() as u64);
    let message = error.to_string();
    let place = format!(" at line {line} column {column}");
    let kind = if error.is_data() { ErrorKind::Value } else { ErrorKind::Syntax };
    ImportError::new(kind, "")
        .at(Position::Line { line, column })
        .found(message.strip_suffix(&place).unwrap_or(&message))
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Whole => Ok(()),
            Position::Line { line, column: 0 } => write!(f, "line {line}"),
            Position::Line { line, column } => write!(f, "line {line}, character {column}"),
            Position::Byte(offset) => write!(f, "byte {offset}"),
        }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lead = self.position.to_string();
        if !self.item.is_empty() {
            if !lead.is_empty() {
                lead.push_str(", ");
            }
            lead.push_str(&self.item);
        }
        if !lead.is_empty() {
            write!(f, "{lead}: ")?;
        }
        match (self.found.is_empty(), self.expected.is_empty()) {
            (false, false) => write!(f, "found {}, expected {}", self.found, self.expected)?,
            (false, true) => write!(f, "found {}", self.found)?,
            (true, false) => write!(f, "expected {}", self.expected)?,
            (true, true) => f.write_str("cannot be read")?,
        }
        if !self.hint.is_empty() {
            write!(f, "\n  hint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for ImportError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_where_what_and_what_to_do() {
        let error = ImportError::new(ErrorKind::Value, "column 'upper'")
            .at_line(3)
            .found_value("-4")
            .expected("a whole number of at least 0")
            .hint("ranges are [lower, upper)");
        assert_eq!(
            error.to_string(),
            "line 3, column 'upper': found '-4', expected a whole number of at least 0\n  hint: ranges are [lower, upper)"
        );
        let error = ImportError::new(ErrorKind::Syntax, "").at_byte(17).expected("a field number");
        assert_eq!(error.to_string(), "byte 17: expected a field number");
    }

    #[test]
    fn a_foreign_value_stays_in_its_line_and_bounds() {
        assert_eq!(quoted("a\n\u{1b}[31mb"), r"'a\n\u{1b}[31mb'");
        assert_eq!(quoted(&"x".repeat(1000)).len(), SHOWN + 5);
    }

    #[test]
    fn errors_are_small_to_return() {
        assert!(std::mem::size_of::<ImportError>() < 128);
    }
}
