//! What can be wrong with a device description, said so that its author can mend it.

use std::fmt;

use thiserror::Error;

/// A device description that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct DeviceError {
    /// Where in the text; absent for JSON that is well-formed and for limits on the whole text.
    pub position: Option<Position>,
    /// The table and key, for example `space.ub.capacity_bytes`; empty for the document itself.
    pub path: String,
    /// What is wrong.
    pub problem: DeviceProblem,
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = self.position {
            write!(f, "{position}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "`{}`: ", self.path)?;
        }
        self.problem.fmt(f)
    }
}

/// A place in a text; both counts start at 1, columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

impl Position {
    /// The position of byte `offset` of `text`.
    pub fn of(text: &str, offset: usize) -> Self {
        let mut offset = offset.min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Position { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// The kinds of mistakes in a device description.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DeviceProblem {
    /// The text is not TOML (or not JSON).
    #[error("{0}")]
    Syntax(String),
    /// The text is longer than any description can be.
    #[error("the text has {found} bytes; a device description has at most {limit}")]
    TooLong {
        /// Its length.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// Tables are nested deeper, or lists are longer, than any description needs.
    #[error("more than {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A key that no description has.
    #[error("unknown key `{key}`; {hint}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The key that was probably meant, or all that are allowed.
        hint: String,
    },
    /// A quantity without its unit.
    #[error("`{found}` has no unit; expected {expected}")]
    MissingUnit {
        /// The key or the value found.
        found: String,
        /// How to write it.
        expected: String,
    },
    /// A key that must be there is not.
    #[error("`{key}` is missing; expected {expected}")]
    MissingKey {
        /// The key.
        key: String,
        /// What to write.
        expected: String,
    },
    /// A value of the wrong type or form.
    #[error("found {found}; expected {expected}")]
    WrongValue {
        /// The value found.
        found: String,
        /// What is allowed.
        expected: String,
    },
    /// A rate, size, count or clock that is zero, negative, infinite or not a number.
    #[error("found {found}; expected {expected}")]
    NotPositive {
        /// The value found.
        found: String,
        /// What is allowed.
        expected: String,
    },
    /// Two objects with one name.
    #[error("the name `{name}` is taken by {first}; names and aliases must differ")]
    DuplicateName {
        /// The name.
        name: String,
        /// The object that has it.
        first: String,
    },
    /// A reference to an object that does not exist.
    #[error("there is no {what} named `{name}`; {known}")]
    UnknownName {
        /// What was referred to.
        what: &'static str,
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A figure that does not say where it comes from.
    #[error(
        "the figure does not say where it comes from; expected `{{ value = {value}, source = \"KEY\" }}` \
         with KEY in [sources], `estimated = \"WHY\"` instead of the source, or `source = \"KEY\"` \
         for the whole table"
    )]
    NoOrigin {
        /// The value found.
        value: String,
    },
    /// Figures that contradict each other.
    #[error("{0}")]
    Contradiction(String),
}
