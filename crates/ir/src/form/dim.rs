//! How a dimension is written: `12`, `batch`, `(s+3)`, `ceil(n/2)`, `max(a,b)`.
//!
//! One grammar serves both forms; JSON says symbols by position (`s0`), text by name.

use super::words::{Line, Read, push_quoted};
use crate::graph::{Dim, DimExpr, MAX_DIM_PARTS};
use crate::ids::SymbolId;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt::Write;

/// Appends a dimension, its symbols said by `symbol`.
pub(super) fn push_dim(text: &mut String, dim: &Dim, symbol: &dyn Fn(&mut String, SymbolId)) {
    let expr = match dim {
        Dim::Known(number) => {
            let _ = write!(text, "{number}");
            return;
        }
        Dim::Symbol(id) => return symbol(text, *id),
        Dim::Expr(expr) => &**expr,
    };
    let (open, between) = match expr {
        DimExpr::Add(..) => ("(", "+"),
        DimExpr::Sub(..) => ("(", "-"),
        DimExpr::Mul(..) => ("(", "*"),
        DimExpr::Mod(..) => ("(", "%"),
        DimExpr::FloorDiv(..) => ("floor(", "/"),
        DimExpr::CeilDiv(..) => ("ceil(", "/"),
        DimExpr::Max(..) => ("max(", ","),
        DimExpr::Min(..) => ("min(", ","),
    };
    let (a, b) = expr.operands();
    text.push_str(open);
    push_dim(text, a, symbol);
    text.push_str(between);
    push_dim(text, b, symbol);
    text.push(')');
}

/// Appends a symbol's name as the grammar of dimensions can read it.
pub(super) fn push_symbol(text: &mut String, name: &str) {
    let bare = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    if name.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_') && name.chars().all(bare) {
        text.push_str(name);
    } else {
        push_quoted(text, name);
    }
}

/// What a symbol's spelling means.
pub(super) type Symbols<'a> = &'a dyn Fn(&str) -> Option<SymbolId>;

/// Reads a dimension.
pub(super) fn read_dim(line: &mut Line<'_>, symbols: Symbols<'_>) -> Read<Dim> {
    let mut parts = 0;
    part(line, symbols, &mut parts)
}

/// Recursion goes no deeper than [`MAX_DIM_PARTS`], which `parts` counts.
fn part(line: &mut Line<'_>, symbols: Symbols<'_>, parts: &mut usize) -> Read<Dim> {
    *parts += 1;
    if *parts > MAX_DIM_PARTS {
        return Err(line.fault("a longer expression", format!("at most {MAX_DIM_PARTS} parts")));
    }
    line.skip_blanks();
    if line.rest().starts_with(|c: char| c.is_ascii_digit()) {
        return line.number().map(Dim::Known);
    }
    if line.eat("(") {
        let a = part(line, symbols, parts)?;
        let make = match () {
            () if line.eat("+") => DimExpr::Add,
            () if line.eat("-") => DimExpr::Sub,
            () if line.eat("*") => DimExpr::Mul,
            () if line.eat("%") => DimExpr::Mod,
            () => return Err(line.unexpected("+, -, * or %")),
        };
        return second(line, symbols, parts, a, make);
    }
    for (open, between, make) in [
        ("floor(", "/", DimExpr::FloorDiv as fn(Dim, Dim) -> DimExpr),
        ("ceil(", "/", DimExpr::CeilDiv),
        ("max(", ",", DimExpr::Max),
        ("min(", ",", DimExpr::Min),
    ] {
        if line.eat(open) {
            let a = part(line, symbols, parts)?;
            line.expect(between)?;
            return second(line, symbols, parts, a, make);
        }
    }
    let at = line.at;
    let name = line.symbol()?;
    symbols(&name)
        .map(Dim::Symbol)
        .ok_or_else(|| line.fault_at(at, format!("'{name}'"), "a number, or a symbol that is declared above"))
}

fn second(
    line: &mut Line<'_>,
    symbols: Symbols<'_>,
    parts: &mut usize,
    a: Dim,
    make: fn(Dim, Dim) -> DimExpr,
) -> Read<Dim> {
    let b = part(line, symbols, parts)?;
    line.expect(")")?;
    Ok(Dim::Expr(Box::new(make(a, b))))
}

impl Serialize for Dim {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Dim::Known(number) = self {
            return serializer.serialize_u64(*number);
        }
        let mut text = String::new();
        push_dim(&mut text, self, &|text, id| {
            let _ = write!(text, "s{}", id.0);
        });
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Dim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Dim;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a dimension: a number, or an expression of symbols such as \"(s0+3)\"")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Dim, E> {
                Ok(Dim::Known(number))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Dim, E> {
                let mut line = Line { text, number: 0, at: 0 };
                let by_position = |name: &str| name.strip_prefix('s')?.parse().ok().map(SymbolId);
                read_dim(&mut line, &by_position)
                    .and_then(|dim| line.finish().map(|()| dim))
                    .map_err(|error| E::custom(format!("dimension '{text}': {error}")))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Numbers of 32 bits in JSON, which has no word for `NaN` and infinity: those are strings.
pub(crate) mod float {
    use super::{Deserialize, Deserializer, Serialize, Serializer, de};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Wire {
        Number(f32),
        Word(String),
    }

    fn to_wire(value: f32) -> Wire {
        if value.is_finite() { Wire::Number(value) } else { Wire::Word(value.to_string()) }
    }

    fn from_wire<E: de::Error>(wire: Wire) -> Result<f32, E> {
        match wire {
            Wire::Number(number) => Ok(number),
            Wire::Word(word) => match word.as_str() {
                "NaN" => Ok(f32::NAN),
                "inf" => Ok(f32::INFINITY),
                "-inf" => Ok(f32::NEG_INFINITY),
                _ => Err(E::custom(format!("found '{word}', expected a number, NaN, inf or -inf"))),
            },
        }
    }

    pub(crate) fn serialize<S: Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
        to_wire(*value).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
        from_wire(Wire::deserialize(deserializer)?)
    }

    /// The same for a list.
    pub(crate) mod list {
        use super::{Deserialize, Deserializer, Serializer, Wire, from_wire, to_wire};

        pub(crate) fn serialize<S: Serializer>(values: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_seq(values.iter().map(|value| to_wire(*value)))
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
            Vec::<Wire>::deserialize(deserializer)?.into_iter().map(from_wire).collect()
        }
    }
}
