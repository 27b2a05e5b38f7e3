//! `arith`: integers exactly, floats only as constants.

use super::Lowering;
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
                // Widths are not tracked: a value that a narrower type would cut is not met in the dialect.
                let values = op.values();
                let (name, at) =
                    values.first().copied().ok_or_else(|| self.error(op.start, "an operand is missing"))?;
                let value = self.get(name, at)?;
                let narrow = |ty: Option<&&str>| ty.is_some_and(|ty| ty.trim() == "i1");
                match (short, value) {
                    // One bit: all ones, or the lowest of many.
                    ("extsi", Value::Int(value)) if narrow(op.types().first()) => Value::Int(value.times(-1)),
                    ("trunci", Value::Int(value)) if narrow(op.types().last()) => {
                        Value::Int(self.builder.value(Op::Rem, vec![value, Affine::constant(2)]))
                    }
                    (_, value) => value,
                }
            }
            _ => self.compute(op, short)?,
        };
        self.set_results(&op.results, vec![value]);
        Ok(())
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
        let b = &mut self.builder;
        let value = match (short, two(&operands)) {
            ("addi" | "add", Some((x, y))) => x.plus(&y),
            ("subi" | "sub", Some((x, y))) => x.minus(&y),
            ("muli" | "mul", Some(_)) => b.value(Op::Mul, operands),
            ("divsi" | "divui" | "floordivsi" | "divs" | "divu", Some(_)) => b.value(Op::Div, operands),
            ("ceildivsi" | "ceildivui", Some((x, y))) => {
                // ceil(x / y) = -floor(-x / y)
                b.value(Op::Div, vec![x.times(-1), y]).times(-1)
            }
            ("remsi" | "remui" | "rems" | "remu", Some(_)) => b.value(Op::Rem, operands),
            ("minsi" | "minui", Some(_)) => b.value(Op::Min, operands),
            ("maxsi" | "maxui", Some(_)) => b.value(Op::Max, operands),
            ("andi", Some(_)) => b.value(Op::And, operands),
            ("ori", Some(_)) => b.value(Op::Or, operands),
            ("xori", Some(_)) => b.value(Op::Xor, operands),
            ("shli", Some((x, y))) => match y.as_constant() {
                Some(by) if (0..62).contains(&by) => x.times(1 << by),
                _ => return Ok(Value::Int(self.opaque())),
            },
            ("cmpi" | "cmp", Some((x, y))) => match predicate {
                Some("eq") => b.value(Op::Eq, vec![x, y]),
                Some("ne") => b.value(Op::Ne, vec![x, y]),
                Some("slt" | "ult") => b.value(Op::Lt, vec![x, y]),
                Some("sle" | "ule") => b.value(Op::Le, vec![x, y]),
                Some("sgt" | "ugt") => b.value(Op::Lt, vec![y, x]),
                Some("sge" | "uge") => b.value(Op::Le, vec![y, x]),
                _ => return Err(self.error(op.start, "expected a predicate such as eq or slt")),
            },
            ("select", None) if operands.len() == 3 => b.value(Op::Select, operands),
            _ => self.opaque(),
        };
        Ok(Value::Int(value))
    }
}
