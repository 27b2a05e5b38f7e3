//! `arith`: integers exactly (see `integers`), floats only as constants.

use super::Lowering;
use super::integers::width;
use crate::pto::PtoError;
use crate::pto::parse::{Clause, RawOp};
use crate::pto::scope::Value;
use crate::pto::types::Type;
use npumem_ir::program::{Affine, Op};

/// An integer literal: decimal, hexadecimal, `true`, `false`.
pub(super) fn literal(text: &str) -> Option<i64> {
    match text {
        "true" => Some(1),
        "false" => Some(0),
        _ => {
            let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
            let number = match digits.strip_prefix("0x") {
                Some(hex) => i128::from_str_radix(hex, 16).ok()?,
                None => digits.parse::<i128>().ok()?,
            };
            i64::try_from(if negative { -number } else { number }).ok()
        }
    }
}

impl<'s> Lowering<'s, '_> {
    pub(super) fn arith(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let short = op.name.split_once('.').map_or(op.name, |(_, short)| short);
        let value = match short {
            "constant" => self.constant(op)?,
            "index_cast" | "index_castui" | "extsi" | "extui" | "trunci" | "castu" | "casts" => {
                let values = op.values();
                let (name, at) =
                    values.first().copied().ok_or_else(|| self.error(op.start, "an operand is missing"))?;
                match self.get(name, at)? {
                    Value::Int(value) => Value::Int(self.cast(op, short, value)),
                    other => other,
                }
            }
            "select" => match self.select_memory(op)? {
                Some(chosen) => chosen,
                None => self.compute(op, short)?,
            },
            _ => self.compute(op, short)?,
        };
        self.set_results(&op.results, vec![value]);
        Ok(())
    }

    /// From one width to another: with its sign, without, or only the lowest bits.
    fn cast(&mut self, op: &RawOp<'s>, short: &str, value: Affine) -> Affine {
        // `: i32 to i8`, or `: (i32) -> i8`.
        let mut words = op.clauses.iter().skip_while(|clause| !matches!(clause, Clause::Word("to"))).skip(1);
        let to = words.find_map(|clause| match clause {
            Clause::Word(ty) => Some(*ty),
            Clause::Types(list) | Clause::Arrow(list) => list.first().copied(),
            _ => None,
        });
        let from = op.types().first().copied().unwrap_or("");
        let (before, after) = (width(from), to.or(op.arrow().first().copied()).and_then(width));
        if let Some(after) = after.filter(|after| before.is_none_or(|before| *after < before)) {
            return self.truncated(value, after);
        }
        match short {
            // One bit with its sign: all ones.
            "extsi" | "index_cast" if before == Some(1) => value.times(-1),
            "extui" | "index_castui" => self.without_sign(value, before),
            _ => value,
        }
    }

    fn constant(&mut self, op: &RawOp<'s>) -> Result<Value, PtoError> {
        let literals = op.clauses.iter().find_map(|clause| match clause {
            Clause::Literal(text, at) => Some((*text, *at)),
            Clause::Word(text) => Some((*text, op.start)),
            Clause::Attributes(list) => {
                list.iter().find(|(key, _)| *key == "value").map(|(_, value)| (*value, op.start))
            }
            _ => None,
        });
        let Some((text, at)) = literals else { return Err(self.error(op.start, "arith.constant needs a value")) };
        let ty = match op.types().first() {
            Some(text) => self.ty(text, at)?,
            None => Type::Int,
        };
        match ty {
            Type::Int => literal(text)
                // One bit, of which -1 is all.
                .map(|number| if op.types().first().is_some_and(|ty| ty.trim() == "i1") { number & 1 } else { number })
                .map(|number| Value::Int(Affine::constant(number)))
                .ok_or_else(|| self.error(at, format!("'{text}' is not an integer that fits 64 bits"))),
            Type::Real => {
                let number = if text.starts_with("0x") { None } else { text.parse::<f64>().ok() };
                Ok(number.map_or_else(|| Value::NamedReal(text.to_owned()), Value::Real))
            }
            _ => Ok(Value::Other),
        }
    }

    fn compute(&mut self, op: &RawOp<'s>, short: &str) -> Result<Value, PtoError> {
        let mut operands = Vec::new();
        let mut whole = true;
        for (name, at) in op.values() {
            match self.get(name, at)? {
                Value::Int(affine) => operands.push(affine),
                _ => whole = false,
            }
        }
        if !whole {
            let float = op.types().first().is_some_and(|ty| ty.starts_with('f') || *ty == "bf16");
            let name = op.results.first().map_or("", |(name, _)| name.trim_start_matches('%'));
            return Ok(if float && !short.starts_with("cmp") {
                Value::NamedReal(name.to_owned())
            } else {
                Value::Int(self.opaque())
            });
        }
        if matches!(short, "andi" | "ori" | "xori") && op.types().first().is_some_and(|ty| ty.trim() == "i1") {
            operands = operands.into_iter().map(|value| self.truth(value)).collect();
        }
        let predicate = op.clauses.iter().find_map(|clause| match clause {
            Clause::Word(word) => Some(*word),
            _ => None,
        });
        let two = |operands: &[Affine]| match operands {
            [a, b] => Some((a.clone(), b.clone())),
            _ => None,
        };
        let bits = op.types().first().and_then(|ty| width(ty));
        let value = match (short, two(&operands)) {
            ("addi" | "add", Some((x, y))) => self.held(x.plus(&y), bits),
            ("subi" | "sub", Some((x, y))) => self.held(x.minus(&y), bits),
            ("muli" | "mul", Some(_)) => {
                let product = self.builder.value(Op::Mul, operands);
                self.held(product, bits)
            }
            ("divsi" | "divs", Some((x, y))) => self.signed_division(x, y, false),
            ("remsi" | "rems", Some((x, y))) => self.signed_division(x, y, true),
            ("divui" | "divu", Some((x, y))) => self.unsigned_division(x, y, false),
            ("remui" | "remu", Some((x, y))) => self.unsigned_division(x, y, true),
            ("floordivsi", Some((x, y))) => self.floor_division(x, y),
            // ceil(x / y) = -floor(-x / y)
            ("ceildivsi", Some((x, y))) => self.floor_division(x.times(-1), y).times(-1),
            ("ceildivui", Some((x, y))) => {
                let above = x.plus(&y).minus(&Affine::constant(1));
                self.unsigned_division(above, y, false)
            }
            ("minsi", Some(_)) => self.builder.value(Op::Min, operands),
            ("maxsi", Some(_)) => self.builder.value(Op::Max, operands),
            ("minui", Some((x, y))) => self.unsigned_least(x, y, false),
            ("maxui", Some((x, y))) => self.unsigned_least(x, y, true),
            ("andi", Some(_)) => self.builder.value(Op::And, operands),
            ("ori", Some(_)) => self.builder.value(Op::Or, operands),
            ("xori", Some(_)) => self.builder.value(Op::Xor, operands),
            ("shrsi", Some((x, y))) => self.shift_right(x, &y, true),
            ("shrui", Some((x, y))) => self.shift_right(x, &y, false),
            ("shli", Some((x, y))) => match y.as_constant() {
                Some(by) if (0..62).contains(&by) => self.held(x.times(1 << by), bits),
                _ => return Ok(Value::Int(self.opaque())),
            },
            ("cmpi" | "cmp", Some((x, y))) => match predicate {
                Some("eq") => self.builder.value(Op::Eq, vec![x, y]),
                Some("ne") => self.builder.value(Op::Ne, vec![x, y]),
                // One bit with its sign: 1 is -1, below 0.
                Some("slt" | "sgt" | "sle" | "sge") if bits == Some(1) => {
                    let (x, y) = (self.truth(x), self.truth(y));
                    match predicate {
                        Some("slt") => self.builder.value(Op::Lt, vec![y, x]),
                        Some("sgt") => self.builder.value(Op::Lt, vec![x, y]),
                        Some("sle") => self.builder.value(Op::Le, vec![y, x]),
                        _ => self.builder.value(Op::Le, vec![x, y]),
                    }
                }
                Some("slt") => self.builder.value(Op::Lt, vec![x, y]),
                Some("sle") => self.builder.value(Op::Le, vec![x, y]),
                Some("sgt") => self.builder.value(Op::Lt, vec![y, x]),
                Some("sge") => self.builder.value(Op::Le, vec![y, x]),
                Some("ult") => self.unsigned_compare(Op::Lt, x, y),
                Some("ule") => self.unsigned_compare(Op::Le, x, y),
                Some("ugt") => self.unsigned_compare(Op::Lt, y, x),
                Some("uge") => self.unsigned_compare(Op::Le, y, x),
                _ => return Err(self.error(op.start, "expected a predicate such as eq or slt")),
            },
            ("select", None) if operands.len() == 3 => self.builder.value(Op::Select, operands),
            _ => self.opaque(),
        };
        Ok(Value::Int(value))
    }

    /// A known value past its type wraps around.
    fn held(&mut self, value: Affine, bits: Option<u32>) -> Affine {
        match (value.as_constant(), bits) {
            (Some(_), Some(bits)) => self.truncated(value, bits),
            _ => value,
        }
    }
}
