//! Elements in memory and in hand: real numbers as `f64`, integers as `i64`, rounded as the element's type does.

use super::eight::{E4M3, E5M2};
use half::{bf16, f16};
use npumem_ir::ElementType;

/// The elements of one operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Of a floating type.
    Real(Vec<f64>),
    /// Of an integer type.
    Int(Vec<i64>),
}

impl Data {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Data::Real(list) => list.len(),
            Data::Int(list) => list.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As real numbers.
    #[must_use]
    pub fn real(self) -> Vec<f64> {
        match self {
            Data::Real(list) => list,
            Data::Int(list) => list.into_iter().map(|value| value as f64).collect(),
        }
    }

    /// As integers; a real number is cut towards zero.
    #[must_use]
    pub fn int(self) -> Vec<i64> {
        match self {
            Data::Real(list) => list.into_iter().map(|value| value as i64).collect(),
            Data::Int(list) => list,
        }
    }
}

/// Whether the values of a type are computed.
#[must_use]
pub fn is_known(element: ElementType) -> bool {
    is_real(element) || is_int(element)
}

/// Whether it is a floating type that is computed.
#[must_use]
pub fn is_real(element: ElementType) -> bool {
    use ElementType::*;
    matches!(element, F64 | F32 | F16 | Bf16 | F8e4m3 | F8e5m2)
}

fn is_int(element: ElementType) -> bool {
    use ElementType::*;
    matches!(element, I64 | I32 | I16 | I8 | U64 | U32 | U16 | U8 | Bool)
}

/// The element whose bytes these are.
#[must_use]
pub fn load_real(element: ElementType, bytes: &[u8]) -> f64 {
    match (element, bytes) {
        (ElementType::F32, [a, b, c, d]) => f64::from(f32::from_le_bytes([*a, *b, *c, *d])),
        (ElementType::F16, [a, b]) => f64::from(f16::from_le_bytes([*a, *b])),
        (ElementType::Bf16, [a, b]) => f64::from(bf16::from_le_bytes([*a, *b])),
        (ElementType::F8e4m3, [byte]) => E4M3.load(*byte),
        (ElementType::F8e5m2, [byte]) => E5M2.load(*byte),
        (ElementType::F64, bytes) => bytes.try_into().map_or(0.0, f64::from_le_bytes),
        _ => 0.0,
    }
}

/// The integer whose bytes these are.
#[must_use]
pub fn load_int(element: ElementType, bytes: &[u8]) -> i64 {
    let mut wide = [0_u8; 8];
    wide[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    let value = u64::from_le_bytes(wide);
    match element {
        ElementType::I8 => i64::from(value as u8 as i8),
        ElementType::I16 => i64::from(value as u16 as i16),
        ElementType::I32 => i64::from(value as u32 as i32),
        _ => value as i64,
    }
}

/// The bytes of a real number, rounded to the nearest, ties to even; the first `element` bytes count.
///
/// Half precision is rounded from single precision, as processors and NumPy do.
#[must_use]
pub fn store_real(element: ElementType, value: f64) -> [u8; 8] {
    let mut out = [0_u8; 8];
    match element {
        ElementType::F32 => out[..4].copy_from_slice(&(value as f32).to_le_bytes()),
        ElementType::F16 => out[..2].copy_from_slice(&f16::from_f32(value as f32).to_le_bytes()),
        ElementType::Bf16 => out[..2].copy_from_slice(&bf16::from_f32(value as f32).to_le_bytes()),
        ElementType::F8e4m3 => out[0] = E4M3.store(f64::from(value as f32)),
        ElementType::F8e5m2 => out[0] = E5M2.store(f64::from(value as f32)),
        _ => out = value.to_le_bytes(),
    }
    out
}

/// The value as its type holds it.
#[must_use]
pub fn rounded(element: ElementType, value: f64) -> f64 {
    match element {
        ElementType::F32 => f64::from(value as f32),
        ElementType::F16 => f64::from(f16::from_f32(value as f32)),
        ElementType::Bf16 => f64::from(bf16::from_f32(value as f32)),
        ElementType::F8e4m3 => E4M3.load(E4M3.store(f64::from(value as f32))),
        ElementType::F8e5m2 => E5M2.load(E5M2.store(f64::from(value as f32))),
        _ => value,
    }
}

/// The range of an integer type.
fn range(element: ElementType) -> (f64, f64) {
    use ElementType::*;
    match element {
        I8 => (f64::from(i8::MIN), f64::from(i8::MAX)),
        I16 => (f64::from(i16::MIN), f64::from(i16::MAX)),
        I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        U8 => (0.0, f64::from(u8::MAX)),
        U16 => (0.0, f64::from(u16::MAX)),
        U32 => (0.0, f64::from(u32::MAX)),
        Bool => (0.0, 1.0),
        _ => (i64::MIN as f64, i64::MAX as f64),
    }
}

/// A real number as an integer of a type: rounded as asked, held at the ends of the range, NaN is 0.
#[must_use]
pub fn to_int(element: ElementType, value: f64, rounding: &str) -> i64 {
    let whole = match rounding {
        "FLOOR" => value.floor(),
        "CEIL" => value.ceil(),
        "TRUNC" => value.trunc(),
        "ROUND" => value.round(),
        _ => value.round_ties_even(),
    };
    let (least, most) = range(element);
    whole.clamp(least, most) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_to_even_and_overflow_to_infinity() {
        let through = |element, value| load_real(element, &store_real(element, value)[..2]);
        assert_eq!(through(ElementType::F16, 2049.0), 2048.0);
        assert_eq!(through(ElementType::F16, 2051.0), 2052.0);
        assert_eq!(through(ElementType::F16, 65_520.0), f64::INFINITY);
        assert_eq!(through(ElementType::F16, 6e-8), 5.960_464_477_539_063e-8, "the smallest");
        assert_eq!(through(ElementType::Bf16, 257.0), 256.0);
        assert_eq!(through(ElementType::Bf16, 259.0), 260.0);
        assert!(through(ElementType::Bf16, f64::NAN).is_nan());
        assert_eq!(to_int(ElementType::I8, 300.5, "RINT"), 127);
        assert_eq!(to_int(ElementType::U8, -3.0, "RINT"), 0);
        assert_eq!((to_int(ElementType::I32, 2.5, "RINT"), to_int(ElementType::I32, 2.5, "ROUND")), (2, 3));
        assert_eq!(load_int(ElementType::I8, &[0xff]), -1);
        assert_eq!(load_int(ElementType::U8, &[0xff]), 255);
    }
}
