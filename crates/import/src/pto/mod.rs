//! The textual tile dialect of PTOAS: MLIR syntax with `func`, `scf`, `arith`, `memref` and `pto` operations.
//!
//! ```text
//!   text --lex--> words --parse--> operations --lower--> ir::Program (one per function that nothing calls)
//!                                       \--> sites: where each allocation stands, to write `addr =` back
//! ```
//!
//! The reader accepts the dialect's syntax, not all of its rules: what does not touch memory may pass, and
//! `docs/formats/pto.md` lists it. An operation it does not know reads all its inputs and writes all its
//! outputs, and is reported by name and line.

mod dialect;
mod lex;
mod lines;
mod lower;
mod names;
mod parse;
mod print;
mod scope;
mod types;
mod write;

pub use print::{PrintError, print};
pub use write::{WriteError, write_plan};

use npumem_ir::{BufferId, Program};
use std::collections::{BTreeMap, BTreeSet};

/// Why a `.pto` text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct PtoError {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What was expected, and what was found.
    pub problem: String,
}

impl PtoError {
    pub(crate) fn at(source: &str, byte: usize, problem: impl Into<String>) -> Self {
        let (line, column) = position(source, byte);
        PtoError { line, column, problem: problem.into() }
    }
}

/// Line and column, from 1, of a byte of the source. It reads all before the byte: for one error, not for every
/// statement (`lines`).
fn position(source: &str, byte: usize) -> (u32, u32) {
    let mut byte = byte.min(source.len());
    #[cfg(test)]
    tests::REREAD.with(|count| count.set(count.get() + byte));
    while !source.is_char_boundary(byte) {
        byte -= 1;
    }
    let before = &source[..byte];
    let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
    // A byte order mark takes no column.
    let column = before.rsplit('\n').next().unwrap_or("").trim_start_matches('\u{feff}').chars().count() + 1;
    (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
}

/// What the caller decides.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Values of function arguments and dynamic sizes, by name (`--dim n=64`).
    pub dims: BTreeMap<String, i64>,
    /// The architecture, where the file names none (`a3` when this is empty too, as in PTOAS).
    pub architecture: Option<String>,
}

/// A `.pto` file.
#[derive(Clone, Debug)]
pub struct Module {
    /// One program for each function that no other calls; calls are inlined.
    pub programs: Vec<Kernel>,
    /// The architecture that the file names.
    pub target: Option<String>,
    /// Operations that are not known, each place once.
    pub unknown: Vec<UnknownOperation>,
    /// Rules of the dialect that were read over and may matter to the reader (`while` loops without a bound ...).
    pub notes: Vec<String>,
    /// What [`Options::dims`] can bind: integer arguments of the kernels, and numbers of the grid that they ask for.
    pub dims: BTreeSet<String>,
}

/// One program of a file.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The program.
    pub program: Program,
    /// Where each placed buffer is allocated in the text.
    pub sites: Vec<Site>,
}

/// An allocation in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The buffer it makes.
    pub buffer: BufferId,
    /// What stands there.
    pub form: SiteForm,
    /// First byte of the operation (past its results), and the byte past its last.
    pub start: usize,
    /// Past its last byte.
    pub end: usize,
    /// Where constants for it may be put: the first byte inside the function's body.
    pub body: usize,
    /// The operand of `addr =`, when there is one: first byte and the byte past the last.
    pub address: Option<(usize, usize)>,
}

/// How a buffer is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteForm {
    /// `pto.alloc_tile`.
    Tile,
    /// `memref.alloc()`.
    Memref,
    /// `pto.pointer_cast(%address)`.
    PointerCast,
    /// `pto.reserve_buffer {...}`.
    Reserve,
}

/// An operation that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownOperation {
    /// Its full name.
    pub name: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// Reads a `.pto` text.
///
/// # Errors
/// The first syntax error or broken memory rule, with line and column and what was expected.
pub fn read(source: &str, options: &Options) -> Result<Module, PtoError> {
    lower::lower(source, options)
}

#[cfg(test)]
mod tests;
