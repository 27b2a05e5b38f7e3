//! Which elements a statement combines, index by index: what its name alone does not say.
//!
//! ```text
//!   set points = "p q r s: out[p, q] += in1[2*p + r - 1 < 56, 2*q + s - 1 < 56] * in2[r, s]"
//!                          |            | an index of 56 and above, or below 0, is padding: the term is left out
//!                          | the result so far is added to
//!   with 0, 28, 0, 28, 1, 1, 2, 1,  0, 28, 0, 28,  0, 56, 0, 56,  0, 3, 0, 3
//!        | first value and count of p, q, r, s
//!                                   | first index and count along each axis of each part: which elements a tile has
//! ```
//!
//! `in0` is the first operand that the statement reads. A tile's elements lie one after another, its last axis innermost;
//! `(p q)` is one axis for both dims, q innermost, counted from 0.

use std::fmt;
use std::str::FromStr;

/// Attribute of a statement that combines elements by index: its [`Points`].
pub const POINTS: &str = "points";
/// Attribute of such a statement: functions that are applied to the result, with commas between.
pub const THEN: &str = "then";

/// Most dims, axes of a part, and parts.
const MOST: usize = 16;

/// How terms become the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// `=`: one term for each element; 0 where it lies in the padding.
    Set,
    /// `=+`: their sum.
    Sum,
    /// `+=`: added to what is there.
    Add,
    /// `=max`: the largest.
    Max,
    /// `max=`: the largest, of what is there too.
    AddMax,
    /// `=min`: the smallest.
    Min,
    /// `min=`: the smallest, of what is there too.
    AddMin,
    /// `=*`: their product.
    Product,
    /// `*=`: what is there times them.
    AddProduct,
    /// `mean=`: what is there over the number of terms that are not padding.
    Mean,
}

const HOWS: [(How, &str); 10] = [
    (How::Set, "="),
    (How::Sum, "=+"),
    (How::Add, "+="),
    (How::Max, "=max"),
    (How::AddMax, "max="),
    (How::Min, "=min"),
    (How::AddMin, "min="),
    (How::Product, "=*"),
    (How::AddProduct, "*="),
    (How::Mean, "mean="),
];

/// How a term is made of several operands, from left to right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// `*`.
    Mul,
    /// `+`.
    Add,
    /// `-`.
    Sub,
    /// `/`.
    Div,
    /// `max`.
    Max,
    /// `min`.
    Min,
}

const JOINS: [(Join, &str); 6] =
    [(Join::Mul, "*"), (Join::Add, "+"), (Join::Sub, "-"), (Join::Div, "/"), (Join::Max, "max"), (Join::Min, "min")];

impl Join {
    /// The join of a word (`add`, `mul`, ...).
    #[must_use]
    pub fn of(word: &str) -> Option<Join> {
        Some(match word {
            "add" => Join::Add,
            "sub" => Join::Sub,
            "mul" => Join::Mul,
            "div" => Join::Div,
            "max" => Join::Max,
            "min" => Join::Min,
            _ => return None,
        })
    }
}

/// An index along one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Index {
    /// `(offset + sum of factor x dim) / divide`; padding where the division leaves a rest, below 0, and from the
    /// extent on.
    Sum {
        /// Dims and factors.
        terms: Vec<(usize, i64)>,
        /// Added.
        offset: i64,
        /// Divided by.
        divide: u64,
        /// The end of the data.
        extent: Option<u64>,
    },
    /// Several dims as one axis, the last innermost.
    Flat(Vec<usize>),
}

/// The result or an operand: an index for each axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which operand that is read; `None` for the result.
    pub operand: Option<usize>,
    /// Its axes.
    pub axes: Vec<Index>,
}

/// What a statement combines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Points {
    /// Names of the dims.
    pub dims: Vec<String>,
    /// The result.
    pub result: Part,
    /// How.
    pub how: How,
    /// The first operand of a term; its join says nothing.
    pub terms: Vec<(Join, Part)>,
}

impl Points {
    /// How many scalar operands such a statement has: two for each dim, two for each axis.
    #[must_use]
    pub fn numbers(&self) -> usize {
        2 * (self.dims.len() + self.result.axes.len())
            + self.terms.iter().map(|(_, part)| 2 * part.axes.len()).sum::<usize>()
    }
}

fn word_of<T: PartialEq + Copy>(list: &[(T, &'static str)], one: T) -> &'static str {
    list.iter().find(|(with, _)| *with == one).map_or("", |(_, word)| *word)
}

impl fmt::Display for Points {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: ", self.dims.join(" "))?;
        self.part(to, &self.result)?;
        write!(to, " {} ", word_of(&HOWS, self.how))?;
        for (at, (join, part)) in self.terms.iter().enumerate() {
            if at > 0 {
                write!(to, " {} ", word_of(&JOINS, *join))?;
            }
            self.part(to, part)?;
        }
        Ok(())
    }
}

impl Points {
    fn part(&self, to: &mut fmt::Formatter<'_>, part: &Part) -> fmt::Result {
        match part.operand {
            None => write!(to, "out[")?,
            Some(at) => write!(to, "in{at}[")?,
        }
        for (at, index) in part.axes.iter().enumerate() {
            write!(to, "{}", if at > 0 { ", " } else { "" })?;
            match index {
                Index::Flat(dims) => {
                    let names: Vec<&str> = dims.iter().map(|dim| self.dims[*dim].as_str()).collect();
                    write!(to, "({})", names.join(" "))?;
                }
                Index::Sum { terms, offset, divide, extent } => {
                    self.sum(to, terms, *offset)?;
                    if *divide > 1 {
                        write!(to, " / {divide}")?;
                    }
                    if let Some(extent) = extent {
                        write!(to, " < {extent}")?;
                    }
                }
            }
        }
        write!(to, "]")
    }

    fn sum(&self, to: &mut fmt::Formatter<'_>, terms: &[(usize, i64)], offset: i64) -> fmt::Result {
        for (at, (dim, factor)) in terms.iter().enumerate() {
            let sign = match (at, *factor < 0) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            };
            let name = &self.dims[*dim];
            match factor.unsigned_abs() {
                1 => write!(to, "{sign}{name}")?,
                times => write!(to, "{sign}{times}*{name}")?,
            }
        }
        match offset {
            _ if terms.is_empty() => write!(to, "{offset}"),
            0 => Ok(()),
            _ if offset < 0 => write!(to, " - {}", offset.unsigned_abs()),
            _ => write!(to, " + {offset}"),
        }
    }
}

impl FromStr for Points {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (names, rest) = text.split_once(':').ok_or("expected the dims, then ':'")?;
        let dims: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
        if dims.len() > MOST {
            return Err(format!("{} dims; at most {MOST}", dims.len()));
        }
        let (result, rest) = part(&dims, rest)?;
        if result.operand.is_some() {
            return Err("expected the result, 'out[...]', first".into());
        }
        let mut rest = rest.trim_start();
        let end = rest.find(char::is_whitespace).ok_or("expected '=', '+=' or the like after the result")?;
        let how = HOWS.iter().find(|(_, word)| *word == &rest[..end]);
        let how = how.ok_or_else(|| format!("'{}' is not '=', '=+', '+=', '=max' or the like", &rest[..end]))?.0;
        rest = &rest[end..];
        let mut terms = Vec::new();
        let mut join = Join::Mul;
        loop {
            let (one, after) = part(&dims, rest)?;
            if one.operand.is_none() || terms.len() == MOST {
                return Err(format!("expected at most {MOST} operands, 'in0[...]' and so on"));
            }
            terms.push((join, one));
            let after = after.trim();
            if after.is_empty() {
                return Ok(Points { dims, result, how, terms });
            }
            let end = after.find(char::is_whitespace).unwrap_or(after.len());
            let with = JOINS.iter().find(|(_, word)| *word == &after[..end]);
            join = with.ok_or_else(|| format!("'{}' does not join two operands", &after[..end]))?.0;
            rest = &after[end..];
        }
    }
}

/// `out[...]` or `in0[...]`, and what follows it.
fn part<'a>(dims: &[String], text: &'a str) -> Result<(Part, &'a str), String> {
    let text = text.trim_start();
    let (name, rest) = text.split_once('[').ok_or_else(|| format!("expected 'out[' or 'in0[' at '{text}'"))?;
    let (inside, rest) = rest.split_once(']').ok_or("a '[' without its ']'")?;
    let operand = match name.strip_prefix("in") {
        None if name == "out" => None,
        Some(number) => Some(number.parse().map_err(|_| format!("'{name}' is no operand"))?),
        None => return Err(format!("'{name}' is neither 'out' nor 'in0'")),
    };
    let axes: Vec<Index> = match inside.trim() {
        "" => Vec::new(),
        inside => inside.split(',').map(|axis| index(dims, axis.trim())).collect::<Result<_, _>>()?,
    };
    if axes.len() > MOST {
        return Err(format!("'{name}' has {} axes; at most {MOST}", axes.len()));
    }
    Ok((Part { operand, axes }, rest))
}

fn index(dims: &[String], text: &str) -> Result<Index, String> {
    let dim =
        |name: &str| dims.iter().position(|with| with == name).ok_or_else(|| format!("'{name}' is not among the dims"));
    if let Some(inside) = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        return Ok(Index::Flat(inside.split_whitespace().map(dim).collect::<Result<_, _>>()?));
    }
    let whole = |text: &str| text.trim().parse::<u64>().map_err(|_| format!("'{}' is no whole number", text.trim()));
    let (text, extent) = match text.split_once('<') {
        Some((text, extent)) => (text, Some(whole(extent)?)),
        None => (text, None),
    };
    let (text, divide) = match text.split_once('/') {
        Some((text, divide)) => (text, whole(divide)?.max(1)),
        None => (text, 1),
    };
    let (mut terms, mut offset, mut sign) = (Vec::new(), 0_i64, 1);
    for word in text.replace('-', " - ").replace('+', " + ").split_whitespace() {
        match word {
            "-" => sign = -1,
            "+" => sign = 1,
            word => {
                let (factor, name) = match word.split_once('*') {
                    Some((factor, name)) => (whole(factor)?, Some(name)),
                    None => word.parse().map_or((1, Some(word)), |number| (number, None)),
                };
                let factor = i64::try_from(factor).map_err(|_| format!("'{word}' is past 63 bits"))? * sign;
                match name {
                    Some(name) => terms.push((dim(name)?, factor)),
                    None => offset = offset.checked_add(factor).ok_or("an offset past 63 bits")?,
                }
                sign = 1;
            }
        }
    }
    if terms.len() > MOST {
        return Err(format!("an index of {} dims; at most {MOST}", terms.len()));
    }
    Ok(Index::Sum { terms, offset, divide, extent })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_there_and_back() {
        for text in [
            "p q r s: out[p, q] += in1[2*p + r - 1 < 56, 2*q + s - 1 < 56] * in2[r, s]",
            "n k: out[(n k), 0] = in0[k, n] max in1[k]",
            "p r: out[p] =+ in0[p - 2*r + 3 / 2 < 14] * in1[r]",
            "x: out[x] mean= in0[-x + 7]",
            "x: out[] =max in0[()]",
        ] {
            assert_eq!(text.parse::<Points>().unwrap().to_string(), text);
        }
        let points: Points = "p q r s: out[p, q] += in1[2*p + r - 1 < 56, q] * in2[r, s]".parse().unwrap();
        assert_eq!(points.numbers(), 8 + 4 + 4 + 4);
        assert_eq!(
            points.terms[0].1.axes[0],
            Index::Sum { terms: vec![(0, 2), (2, 1)], offset: -1, divide: 1, extent: Some(56) }
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, part) in [
            ("out[x] = in0[x]", "then ':'"),
            ("x: in0[x] = in0[x]", "the result"),
            ("x: out[x] == in0[x]", "is not '='"),
            ("x: out[x] in0[x]", "after the result"),
            ("x: out[y] = in0[x]", "'y' is not among"),
            ("x: out[x] = in0[x] ? in1[x]", "does not join"),
            ("x: out[x] = out[x]", "'in0[...]'"),
            ("x: out[x = in0[x]", "no"),
            ("x: out[x] = inn[x]", "no operand"),
            ("x: out[99999999999999999999*x] = in0[x]", "no whole number"),
            ("x: out[x] =", "after the result"),
        ] {
            let error = text.parse::<Points>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
