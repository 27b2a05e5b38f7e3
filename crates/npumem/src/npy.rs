//! NumPy's `.npy`: one array, its type and shape in a header of text.

use npumem_ir::ElementType;
use thiserror::Error;

/// Why a file is not an array that we take.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NpyError {
    /// Not the format.
    #[error("is not a .npy file: {0}")]
    Format(String),
    /// A type that we do not take.
    #[error("has elements of type '{0}'; f64, f32, f16, signed and unsigned integers of 8 to 64 bits are read")]
    Type(String),
    /// Columns first.
    #[error("is stored columns first (fortran_order); save numpy.ascontiguousarray of it")]
    Fortran,
    /// The bytes do not match the shape.
    #[error("has {found} bytes of elements; its shape {shape:?} asks for {expected}")]
    Size {
        /// What is there.
        found: u64,
        /// What the shape asks for.
        expected: u64,
        /// The shape.
        shape: Vec<u64>,
    },
}

/// An array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Its element type; brain floats are saved as 16-bit integers of their bits, as NumPy has no such type.
    pub element: ElementType,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its elements, row by row, little end first.
    pub bytes: Vec<u8>,
}

const TYPES: [(&str, ElementType); 12] = [
    ("<f8", ElementType::F64),
    ("<f4", ElementType::F32),
    ("<f2", ElementType::F16),
    ("<i8", ElementType::I64),
    ("<i4", ElementType::I32),
    ("<i2", ElementType::I16),
    ("|i1", ElementType::I8),
    ("<u8", ElementType::U64),
    ("<u4", ElementType::U32),
    ("<u2", ElementType::U16),
    ("|u1", ElementType::U8),
    ("|b1", ElementType::Bool),
];

/// Reads an array.
///
/// # Errors
/// [`NpyError`].
pub fn read(file: &[u8]) -> Result<Array, NpyError> {
    let format = |why: &str| NpyError::Format(why.to_owned());
    let rest = file.strip_prefix(b"\x93NUMPY").ok_or_else(|| format("its first bytes are others"))?;
    let (length, start): (usize, usize) = match rest {
        [1, _, a, b, ..] => (usize::from(u16::from_le_bytes([*a, *b])), 4),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 6),
        _ => return Err(format("its version is not 1, 2 or 3")),
    };
    let header = rest.get(start..start.saturating_add(length)).ok_or_else(|| format("its header is cut off"))?;
    let header = std::str::from_utf8(header).map_err(|_| format("its header is no text"))?;
    let bytes = &rest[start + length..];
    let value = |key: &str| {
        let at = header.find(&format!("'{key}'"))?;
        header[at..].split_once(':').map(|(_, value)| value.trim_start())
    };
    let word = value("descr").and_then(|text| text.strip_prefix('\'')?.split('\'').next());
    let word = word.ok_or_else(|| format("its header names no simple type"))?;
    let found = TYPES.iter().find(|(name, _)| *name == word || name.replace('<', "=") == word);
    let element = found.map(|(_, element)| *element).ok_or_else(|| NpyError::Type(word.to_owned()))?;
    if value("fortran_order").is_some_and(|text| text.starts_with("True")) {
        return Err(NpyError::Fortran);
    }
    let shape = value("shape").and_then(|text| text.strip_prefix('(')?.split(')').next());
    let shape = shape.ok_or_else(|| format("its header names no shape"))?;
    let dims = shape.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    let shape: Vec<u64> = dims.map(str::parse).collect::<Result<_, _>>().map_err(|_| format("its shape is no list"))?;
    let count = shape.iter().try_fold(1_u64, |product, dim| product.checked_mul(*dim));
    let expected = count.and_then(|count| element.bytes(count)).map_or(u64::MAX, |bytes| bytes.0);
    if expected != bytes.len() as u64 {
        return Err(NpyError::Size { found: bytes.len() as u64, expected, shape });
    }
    Ok(Array { element, shape, bytes: bytes.to_vec() })
}

/// Whether NumPy has no name for a floating type: its bits are written and read as unsigned integers.
#[must_use]
pub fn is_nameless(element: ElementType) -> bool {
    matches!(element, ElementType::Bf16 | ElementType::F8e4m3 | ElementType::F8e5m2)
}

/// Writes an array.
#[must_use]
pub fn write(array: &Array) -> Vec<u8> {
    let found = TYPES.iter().find(|(_, element)| *element == array.element);
    let word = match array.element {
        ElementType::Bf16 => "<u2",
        _ => found.map_or("|u1", |(word, _)| word),
    };
    let dims: Vec<String> = array.shape.iter().map(u64::to_string).collect();
    let comma = if dims.len() == 1 { "," } else { "" };
    let mut header = format!("{{'descr': '{word}', 'fortran_order': False, 'shape': ({}{comma}), }}", dims.join(", "));
    // Magic, version and length are 10 bytes; elements begin at a multiple of 64.
    while !(header.len() + 11).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend_from_slice(&(header.len() as u16).to_le_bytes());
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(&array.bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_come_back_and_bad_files_are_named() {
        let array = Array { element: ElementType::F16, shape: vec![2, 3], bytes: (0..12).collect() };
        let file = write(&array);
        assert_eq!(read(&file), Ok(array));
        assert_eq!((file.len() - 12) % 64, 0);
        let flat = Array { element: ElementType::I8, shape: vec![5], bytes: vec![1; 5] };
        assert_eq!(read(&write(&flat)), Ok(flat));
        assert!(matches!(read(b"PK"), Err(NpyError::Format(_))));
        assert!(matches!(read(&file[..file.len() - 1]), Err(NpyError::Size { found: 11, expected: 12, .. })));
        let change = |from: &str, to: &str| {
            let text = String::from_utf8_lossy(&file[10..]).replace(from, to);
            read(&[&file[..10], text.as_bytes()].concat())
        };
        assert!(matches!(change("<f2", "<c8"), Err(NpyError::Type(_))));
        assert!(matches!(change("False", "True "), Err(NpyError::Fortran)));
        assert!(matches!(
            change("(2, 3)", "(9999999999999999999, 3)"),
            Err(NpyError::Format(_) | NpyError::Size { .. })
        ));
        for end in 0..file.len() {
            let _ = read(&file[..end]);
        }
    }
}
