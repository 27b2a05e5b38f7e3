//! What is known of one value while a model is read: its type, its shape, and its elements where they are few.

use super::proto;
use super::symbols::Symbols;
use npumem_ir::{Dim, ElementType, Shape};

/// Elements are followed through the graph up to this many.
pub(super) const FOLLOWED: usize = 512;

/// One element, as far as it is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Int(i64),
    /// A length that depends on a symbol.
    Dim(Dim),
    Float(f64),
    Unknown,
}

impl Scalar {
    pub(super) fn of(dim: &Dim) -> Scalar {
        match dim {
            Dim::Known(number) => i64::try_from(*number).map_or(Scalar::Unknown, Scalar::Int),
            dim => Scalar::Dim(dim.clone()),
        }
    }

    pub(super) fn int(&self) -> Option<i64> {
        match self {
            Scalar::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn float(&self) -> Option<f64> {
        match self {
            Scalar::Int(number) => Some(*number as f64),
            Scalar::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// As a length; a negative number is none.
    pub(super) fn dim(&self) -> Option<Dim> {
        match self {
            Scalar::Int(number) => u64::try_from(*number).ok().map(Dim::Known),
            Scalar::Dim(dim) => Some(dim.clone()),
            _ => None,
        }
    }

    fn is_known(&self) -> bool {
        matches!(self, Scalar::Int(_) | Scalar::Float(_))
    }
}

/// What is known of one value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fact {
    pub element: Option<ElementType>,
    pub shape: Shape,
    /// The elements in order, where they are few and something is known of them.
    pub value: Option<Vec<Scalar>>,
    /// Whether it is known before the run, elements and all, whether or not they are followed here.
    pub constant: bool,
    /// For a sequence or an optional: what it holds.
    pub holds: Option<Box<Fact>>,
}

impl Fact {
    pub(super) fn unknown() -> Fact {
        Fact { element: None, shape: Shape::Unknown, value: None, constant: false, holds: None }
    }

    pub(super) fn tensor(element: Option<ElementType>, dims: Vec<Dim>) -> Fact {
        Fact { element, shape: Shape::Ranked(dims), ..Fact::unknown() }
    }

    /// A sequence or an optional.
    pub(super) fn holder(holds: Option<Fact>) -> Fact {
        let element = holds.as_ref().and_then(|fact| fact.element);
        Fact { element, shape: Shape::Opaque, holds: holds.map(Box::new), ..Fact::unknown() }
    }

    pub(super) fn with_value(mut self, value: Option<Vec<Scalar>>) -> Fact {
        self.value = value.filter(|value| {
            value.len() <= FOLLOWED
                && (value.is_empty() || value.iter().any(|scalar| *scalar != Scalar::Unknown))
                && self.count().is_none_or(|count| count == value.len() as u64)
        });
        self
    }

    /// The number of elements, when it is a number.
    pub(super) fn count(&self) -> Option<u64> {
        self.shape.dims()?.iter().try_fold(1_u64, |product, dim| product.checked_mul(dim.known()?))
    }

    /// The elements as integers, when all are known.
    pub(super) fn ints(&self) -> Option<Vec<i64>> {
        self.value.as_ref()?.iter().map(Scalar::int).collect()
    }

    /// The elements as numbers, when all are known.
    pub(super) fn floats(&self) -> Option<Vec<f64>> {
        self.value.as_ref()?.iter().map(Scalar::float).collect()
    }

    pub(super) fn is_known(&self) -> bool {
        self.value.as_ref().is_some_and(|value| value.iter().all(Scalar::is_known))
    }
}

/// The element type of that number in the standard; `Ok(None)` for "undefined".
pub(super) fn element_of(number: i32) -> Result<Option<ElementType>, i32> {
    use ElementType::*;
    Ok(Some(match number {
        0 => return Ok(None),
        1 => F32,
        2 => U8,
        3 => I8,
        4 => U16,
        5 => I16,
        6 => I32,
        7 => I64,
        8 => Text,
        9 => Bool,
        10 => F16,
        11 => F64,
        12 => U32,
        13 => U64,
        14 => C64,
        15 => C128,
        16 => Bf16,
        17 | 18 => F8e4m3,
        19 | 20 => F8e5m2,
        21 => U4,
        22 => I4,
        23 => F4e2m1,
        24 => F8e8m0,
        25 => U2,
        26 => I2,
        27 => F6e2m3,
        28 => F6e3m2,
        other => return Err(other),
    }))
}

/// The standard's number of that element type.
#[must_use]
pub fn element_number(element: ElementType) -> i32 {
    (1..=28).find(|number| element_of(*number) == Ok(Some(element))).unwrap_or(0)
}

/// What the file says of a value's type. An unknown element type is `Err` with its number.
pub(super) fn declared(r#type: &proto::Type, name: &str, symbols: &mut Symbols) -> Result<Fact, i32> {
    let mut holders = Vec::new();
    let mut inner = r#type;
    // Sequences of sequences: the depth is bounded where the file is read.
    let fact = loop {
        match &inner.kind {
            Some(proto::TypeKind::Tensor(tensor) | proto::TypeKind::Sparse(tensor)) => {
                let element = element_of(tensor.elem_type)?;
                let shape = tensor.shape.as_ref().map_or(Shape::Unknown, |shape| declared_shape(shape, name, symbols));
                break Some(Fact { element, shape, ..Fact::unknown() });
            }
            Some(proto::TypeKind::Sequence(of) | proto::TypeKind::Optional(of)) => {
                holders.push(());
                match &of.elem_type {
                    Some(of) => inner = of,
                    None => break None,
                }
            }
            Some(proto::TypeKind::Map(_) | proto::TypeKind::Opaque(_)) => {
                holders.push(());
                break None;
            }
            None => break Some(Fact::unknown()),
        }
    };
    let mut fact = fact;
    for () in holders {
        fact = Some(Fact::holder(fact));
    }
    Ok(fact.unwrap_or_else(Fact::unknown))
}

fn declared_shape(shape: &proto::Shape, name: &str, symbols: &mut Symbols) -> Shape {
    let dims = shape.dim.iter().enumerate().map(|(axis, dim)| match &dim.value {
        Some(proto::DimensionValue::Number(number)) if *number >= 0 => Dim::Known(number.unsigned_abs()),
        // Exporters write these for "open"; two of them need not be equal.
        Some(proto::DimensionValue::Name(name)) if !matches!(name.as_str(), "" | "?" | "-1" | "None" | "*") => {
            symbols.named(name)
        }
        _ => symbols.named(&format!("{name}[{axis}]")),
    });
    Shape::Ranked(dims.collect())
}

/// The tensor's fact; `Err` says what is wrong with it.
pub(super) fn carried(tensor: &proto::Tensor) -> Result<Fact, String> {
    let element = element_of(tensor.data_type)
        .map_err(|number| format!("element type {number}"))?
        .ok_or("element type 0 (undefined)")?;
    let dims =
        tensor.dims.iter().map(|dim| u64::try_from(*dim).map(Dim::Known).map_err(|_| format!("dimension {dim}")));
    let fact = Fact { constant: true, ..Fact::tensor(Some(element), dims.collect::<Result<_, _>>()?) };
    if element == ElementType::Text {
        return Ok(fact);
    }
    let Some(bytes) = fact.count().and_then(|count| element.bytes(count)) else {
        return Err(format!("a shape of {:?}, past 64 bits of bytes", tensor.dims));
    };
    // What the file holds of it must not be less than its shape says, where it is held here and small.
    let raw = tensor.raw_data.len() as u64;
    if raw > 0 && raw != bytes.get() {
        return Err(format!("{raw} bytes for {} elements of {element}", fact.count().unwrap_or(0)));
    }
    let value = elements(tensor, element);
    Ok(fact.with_value(value))
}

fn elements(tensor: &proto::Tensor, element: ElementType) -> Option<Vec<Scalar>> {
    use ElementType::*;
    let raw = &tensor.raw_data;
    fn each<const N: usize>(raw: &[u8], read: impl Fn([u8; N]) -> Scalar) -> Vec<Scalar> {
        raw.chunks_exact(N).filter_map(|chunk| chunk.try_into().ok().map(&read)).collect()
    }
    if raw.len() > 8 * FOLLOWED {
        return None;
    }
    if !raw.is_empty() {
        return match element {
            F32 => Some(each(raw, |b| Scalar::Float(f64::from(f32::from_le_bytes(b))))),
            F64 => Some(each(raw, |b| Scalar::Float(f64::from_le_bytes(b)))),
            I64 => Some(each(raw, |b| Scalar::Int(i64::from_le_bytes(b)))),
            U64 => Some(each(raw, |b| i64::try_from(u64::from_le_bytes(b)).map_or(Scalar::Unknown, Scalar::Int))),
            I32 => Some(each(raw, |b| Scalar::Int(i64::from(i32::from_le_bytes(b))))),
            U32 => Some(each(raw, |b| Scalar::Int(i64::from(u32::from_le_bytes(b))))),
            I16 => Some(each(raw, |b| Scalar::Int(i64::from(i16::from_le_bytes(b))))),
            U16 => Some(each(raw, |b| Scalar::Int(i64::from(u16::from_le_bytes(b))))),
            I8 => Some(each(raw, |b: [u8; 1]| Scalar::Int(i64::from(b[0] as i8)))),
            U8 | Bool => Some(each(raw, |b: [u8; 1]| Scalar::Int(i64::from(b[0])))),
            _ => None,
        };
    }
    match element {
        F32 => Some(tensor.float_data.iter().map(|number| Scalar::Float(f64::from(*number))).collect()),
        F64 => Some(tensor.double_data.iter().map(|number| Scalar::Float(*number)).collect()),
        I64 => Some(tensor.int64_data.iter().map(|number| Scalar::Int(*number)).collect()),
        I32 | I16 | I8 | U16 | U8 | Bool => {
            Some(tensor.int32_data.iter().map(|number| Scalar::Int(i64::from(*number))).collect())
        }
        U32 | U64 => Some(
            tensor
                .uint64_data
                .iter()
                .map(|number| i64::try_from(*number).map_or(Scalar::Unknown, Scalar::Int))
                .collect(),
        ),
        _ => None,
    }
}
