//! Values of a run: what goes in, what comes out.

use crate::npy::{self, Array, NpyError};
use npumem_ir::BufferId;
use npumem_ir::program::{Program, Role};
use npumem_ir::units::grouped;
use npumem_report::run_report::{ValueRow, ValuesReport};
use npumem_simulator::run::element_bytes;
use npumem_simulator::run::values::{Values, is_known, is_real, load_int, load_real};
use std::collections::BTreeMap;
use thiserror::Error;

/// What values need from outside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValuesRequest {
    /// The seed of what is not given.
    pub seed: u64,
    /// Contents of `.npy` files, by buffer.
    pub inputs: BTreeMap<String, Vec<u8>>,
    /// Real arguments, by name.
    pub reals: BTreeMap<String, f64>,
}

/// Why a value cannot be taken or given.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ValuesError {
    /// No such memory of the caller.
    #[error("the kernel has no memory of the caller named '{name}'; it has: {known}")]
    Unknown {
        /// What was named.
        name: String,
        /// What there is.
        known: String,
    },
    /// The file is no array that we take.
    #[error("the file for '{name}' {error}")]
    File {
        /// The buffer.
        name: String,
        /// Why.
        error: NpyError,
    },
    /// The array is of another type or size.
    #[error("'{name}' is {expected}; the file has {found}")]
    Other {
        /// The buffer.
        name: String,
        /// What the buffer is.
        expected: String,
        /// What the file has.
        found: String,
    },
}

/// The buffer of the caller of that name; a leading `%` may be left out.
///
/// # Errors
/// [`ValuesError::Unknown`].
pub fn external(program: &Program, name: &str) -> Result<BufferId, ValuesError> {
    let all = || program.buffers().filter(|(_, buffer)| buffer.role == Role::External);
    let found = all().find(|(_, buffer)| buffer.name == name || buffer.name.trim_start_matches('%') == name);
    found.map(|(id, _)| id).ok_or_else(|| ValuesError::Unknown {
        name: name.to_owned(),
        known: all().map(|(_, buffer)| buffer.name.as_str()).collect::<Vec<_>>().join(", "),
    })
}

/// Prepared values: every input in its buffer.
///
/// # Errors
/// [`ValuesError`].
pub fn prepare<'a>(program: &'a Program, request: &ValuesRequest) -> Result<Values<'a>, ValuesError> {
    let mut values = Values::new(program, request.seed, request.reals.clone());
    for (name, file) in &request.inputs {
        let id = external(program, name)?;
        let array = npy::read(file).map_err(|error| ValuesError::File { name: name.clone(), error })?;
        let buffer = program.buffer(id);
        // Types without a name in NumPy come as the integers of their bits.
        let same = array.element == buffer.element
            || (element_bytes(array.element) == element_bytes(buffer.element)
                && (!is_real(buffer.element) || npy::is_nameless(buffer.element))
                && !is_real(array.element));
        let fits = buffer.bytes.is_none_or(|bytes| bytes == array.bytes.len() as u64);
        if !same || !fits {
            let size = buffer.bytes.map_or("of any size".to_owned(), |bytes| format!("{} bytes", grouped(bytes)));
            return Err(ValuesError::Other {
                name: name.clone(),
                expected: format!("{}, {size}", buffer.element),
                found: format!("{}, {} bytes", array.element, grouped(array.bytes.len() as u64)),
            });
        }
        values.give(id, array.bytes);
    }
    Ok(values)
}

/// A buffer of the caller as a `.npy` file: in its own shape where that is known.
///
/// # Errors
/// [`ValuesError::Unknown`].
pub fn output(program: &Program, values: &Values<'_>, name: &str) -> Result<Vec<u8>, ValuesError> {
    let id = external(program, name)?;
    let buffer = program.buffer(id);
    let bytes = values.content(id).to_vec();
    let count = bytes.len() as u64 / element_bytes(buffer.element);
    let whole = buffer.shape.iter().product::<u64>() == count && !buffer.shape.is_empty();
    let shape = if whole { buffer.shape.clone() } else { vec![count] };
    Ok(npy::write(&Array { element: buffer.element, shape, bytes }))
}

/// What came of the values.
#[must_use]
pub fn report(program: &Program, values: &Values<'_>) -> ValuesReport {
    let mut rows = Vec::new();
    for (id, buffer) in program.buffers().filter(|(_, buffer)| buffer.role == Role::External) {
        let used = values.used(id);
        let role = match (used.read, used.written) {
            (true, true) => "both",
            (true, false) => "input",
            (false, true) => "output",
            (false, false) => continue,
        };
        let size = element_bytes(buffer.element) as usize;
        let (mut least, mut most, mut sum, mut count, mut nan) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0_u64, 0);
        if is_known(buffer.element) {
            for bytes in values.content(id).chunks_exact(size) {
                let value = if is_real(buffer.element) {
                    load_real(buffer.element, bytes)
                } else {
                    load_int(buffer.element, bytes) as f64
                };
                if value.is_nan() {
                    nan += 1;
                    continue;
                }
                (least, most, sum, count) = (least.min(value), most.max(value), sum + value, count + 1);
            }
        }
        let empty = count == 0;
        rows.push(ValueRow {
            name: buffer.name.clone(),
            element: buffer.element.to_string(),
            elements: values.content(id).len() as u64 / size as u64,
            role: role.to_owned(),
            origin: if used.given { "from a file".to_owned() } else { "random by the seed".to_owned() },
            least: if empty { 0.0 } else { least },
            most: if empty { 0.0 } else { most },
            mean: if empty { 0.0 } else { sum / count as f64 },
            not_numbers: nan,
        });
    }
    let skipped = values.skipped().iter().map(|(name, times)| (name.clone(), *times)).collect();
    ValuesReport { computed: values.computed(), skipped, buffers: rows }
}
