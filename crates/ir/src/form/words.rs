//! The words of the text forms: names, numbers, ranges and references, read from one line at a time.

use super::FormError;
use crate::interval::{ByteRange, Interval, StepRange};
use crate::units::{Offset, Step};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;

/// Whether a character may stand in a name without quotes.
fn is_bare(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '.' | '/' | ':' | '-' | '$' | '%' | '~')
}

/// Appends a name: bare where it can be, else in quotes.
pub(super) fn push_name(text: &mut String, name: &str) {
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(is_bare) {
        text.push_str(name);
    } else {
        push_quoted(text, name);
    }
}

/// Appends a string in quotes, in one line.
pub(super) fn push_quoted(text: &mut String, string: &str) {
    text.push('"');
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            other if other.is_control() || matches!(other, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                let _ = write!(text, "\\u{{{:x}}}", u32::from(other));
            }
            other => text.push(other),
        }
    }
    text.push('"');
}

/// A reference to a declared item.
pub(super) enum Reference<'a> {
    /// `#3`: by position.
    Index(usize),
    /// By name.
    Name(Cow<'a, str>),
}

/// The names of a list of items, to refer to them: by name where it is unique, else by position.
#[derive(Default)]
pub(super) struct Names {
    /// The item of a name, or `None` where several have it.
    by_name: HashMap<String, Option<usize>>,
    count: usize,
}

impl Names {
    pub(super) fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut all = Names::default();
        names.for_each(|name| all.declare(name));
        all
    }

    pub(super) fn declare(&mut self, name: &str) {
        let index = self.count;
        self.by_name.entry(name.to_owned()).and_modify(|found| *found = None).or_insert(Some(index));
        self.count += 1;
    }

    /// Appends the shortest way to say `index`.
    pub(super) fn push(&self, text: &mut String, index: usize, name: Option<&str>) {
        match name.filter(|name| self.by_name.get(*name) == Some(&Some(index))) {
            Some(name) => push_name(text, name),
            None => {
                let _ = write!(text, "#{index}");
            }
        }
    }

    /// The item that a reference means.
    pub(super) fn resolve(&self, line: &Line<'_>, what: &str, at: usize, reference: &Reference<'_>) -> Read<usize> {
        match reference {
            Reference::Index(index) if *index < self.count => Ok(*index),
            Reference::Index(index) => Err(line.fault_at(
                at,
                format!("{what} #{index}"),
                format!("one of the {} declared above, counted from #0", self.count),
            )),
            Reference::Name(name) => match self.by_name.get(name.as_ref()) {
                Some(Some(index)) => Ok(*index),
                Some(None) => {
                    Err(line.fault_at(at, format!("'{name}', which several have"), "its position, such as #3"))
                }
                None => Err(line.fault_at(at, format!("'{name}'"), format!("a {what} that is declared above"))),
            },
        }
    }
}

pub(super) type Read<T> = Result<T, FormError>;

/// One line and how far it is read.
pub(super) struct Line<'a> {
    pub(super) text: &'a str,
    pub(super) number: u64,
    pub(super) at: usize,
}

impl<'a> Line<'a> {
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn fault(&self, found: impl Into<Box<str>>, expected: impl Into<Box<str>>) -> FormError {
        self.fault_at(self.at, found, expected)
    }

    pub(super) fn fault_at(&self, at: usize, found: impl Into<Box<str>>, expected: impl Into<Box<str>>) -> FormError {
        let column = self.text[..at].chars().count() as u64 + 1;
        FormError::new(self.number, column, found, expected)
    }

    /// What stands here does not belong.
    pub(super) fn unexpected(&self, expected: impl Into<Box<str>>) -> FormError {
        let word: String = self.rest().chars().take_while(|c| !c.is_whitespace()).take(40).collect();
        if word.is_empty() {
            self.fault("the end of the line", expected)
        } else {
            self.fault(format!("'{word}'"), expected)
        }
    }

    pub(super) fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Whether only blanks or a comment are left; skips blanks.
    pub(super) fn is_done(&mut self) -> bool {
        self.skip_blanks();
        let rest = self.rest();
        rest.is_empty() || rest == "#" || rest.starts_with("# ")
    }

    pub(super) fn eat(&mut self, literal: &str) -> bool {
        let found = self.rest().starts_with(literal);
        if found {
            self.at += literal.len();
        }
        found
    }

    pub(super) fn expect(&mut self, literal: &str) -> Read<()> {
        if self.eat(literal) { Ok(()) } else { Err(self.unexpected(format!("'{literal}'"))) }
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !keep(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// A word of letters, digits, `-`, `_` and `.`: an item's or a key's name.
    pub(super) fn word(&mut self, expected: &str) -> Read<&'a str> {
        self.skip_blanks();
        let at = self.at;
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        if word.is_empty() {
            self.at = at;
            return Err(self.unexpected(expected));
        }
        Ok(word)
    }

    pub(super) fn number(&mut self) -> Read<u64> {
        let at = self.at;
        let digits = self.take_while(|c| c.is_ascii_digit());
        if digits.is_empty() {
            return Err(self.unexpected("a whole number"));
        }
        digits
            .parse()
            .map_err(|_| self.fault_at(at, format!("'{digits}'"), format!("a number of 64 bits, at most {}", u64::MAX)))
    }

    pub(super) fn signed(&mut self) -> Read<i64> {
        let at = self.at;
        self.eat("-");
        self.take_while(|c| c.is_ascii_digit());
        let digits = &self.text[at..self.at];
        digits.parse().map_err(|_| self.fault_at(at, format!("'{digits}'"), "a signed number of 64 bits"))
    }

    /// The characters of a number, sign, point and exponent included, or of `NaN` and `inf`.
    pub(super) fn numeral(&mut self) -> &'a str {
        self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    }

    pub(super) fn float(&mut self) -> Read<f32> {
        let at = self.at;
        let word = self.numeral();
        word.parse().map_err(|_| self.fault_at(at, format!("'{word}'"), "a number"))
    }

    /// A symbol in a dimension: a word, a quoted name, or `#3`.
    pub(super) fn symbol(&mut self) -> Read<Cow<'a, str>> {
        if self.rest().starts_with('"') {
            return self.quoted();
        }
        let at = self.at;
        let marked = self.eat("#");
        self.take_while(|c| c.is_alphanumeric() || (!marked && matches!(c, '_' | '.')));
        let name = &self.text[at..self.at];
        if name.is_empty() {
            return Err(self.unexpected("a number, a symbol, ( or max("));
        }
        Ok(Cow::Borrowed(name))
    }

    /// A bare or quoted name.
    pub(super) fn name(&mut self, expected: &str) -> Read<Cow<'a, str>> {
        self.skip_blanks();
        if self.rest().starts_with('"') {
            return self.quoted();
        }
        let at = self.at;
        let name = self.take_while(is_bare);
        if name.is_empty() || name.starts_with('-') {
            self.at = at;
            return Err(self.unexpected(expected));
        }
        Ok(Cow::Borrowed(name))
    }

    fn quoted(&mut self) -> Read<Cow<'a, str>> {
        let start = self.at;
        let body = &self.text[start + 1..];
        let mut value = String::new();
        let mut characters = body.char_indices();
        while let Some((index, character)) = characters.next() {
            match character {
                '"' => {
                    self.at = start + 1 + index + 1;
                    return Ok(Cow::Owned(value));
                }
                '\\' => {
                    let at = start + 1 + index;
                    let bad = |line: &Self| line.fault_at(at, "an unknown escape", r#"\" \\ \n \r \t or \u{hex}"#);
                    match characters.next() {
                        Some((_, 'n')) => value.push('\n'),
                        Some((_, 'r')) => value.push('\r'),
                        Some((_, 't')) => value.push('\t'),
                        Some((_, plain @ ('"' | '\\'))) => value.push(plain),
                        Some((_, 'u')) => {
                            let mut hex = String::new();
                            let opened = matches!(characters.next(), Some((_, '{')));
                            let closed = characters.by_ref().take(7).any(|(_, c)| {
                                hex.push(c);
                                c == '}'
                            });
                            hex.pop();
                            let code = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32);
                            match code.filter(|_| opened && closed) {
                                Some(code) => value.push(code),
                                None => return Err(bad(self)),
                            }
                        }
                        _ => return Err(bad(self)),
                    }
                }
                plain => value.push(plain),
            }
        }
        Err(self.fault_at(start, "a string without an end", "a closing quote in the same line"))
    }

    /// `#3` or a name.
    pub(super) fn reference(&mut self, expected: &str) -> Read<Reference<'a>> {
        self.skip_blanks();
        if self.eat("#") {
            let index = self.number()?;
            return Ok(Reference::Index(usize::try_from(index).unwrap_or(usize::MAX)));
        }
        self.name(expected).map(Reference::Name)
    }

    /// The item that a reference here means.
    pub(super) fn resolve(&mut self, what: &str, names: &Names) -> Read<usize> {
        self.skip_blanks();
        let at = self.at;
        let reference = self.reference(&format!("a {what}"))?;
        names.resolve(self, what, at, &reference)
    }

    fn bounds(&mut self) -> Read<(u64, u64)> {
        self.skip_blanks();
        let at = self.at;
        self.expect("[")?;
        let start = self.number()?;
        self.expect(",")?;
        self.skip_blanks();
        let end = self.number()?;
        self.expect(")")?;
        if start > end {
            return Err(self.fault_at(at, format!("[{start},{end})"), "a range whose end is not before its start"));
        }
        Ok((start, end))
    }

    pub(super) fn steps(&mut self) -> Read<StepRange> {
        self.bounds().map(|(start, end)| Interval { start: Step(start), end: Step(end) })
    }

    pub(super) fn bytes(&mut self) -> Read<ByteRange> {
        self.bounds().map(|(start, end)| Interval { start: Offset(start), end: Offset(end) })
    }

    /// Items between commas.
    pub(super) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// The next `key=`, or `None` at the line's end.
    pub(super) fn key(&mut self) -> Read<Option<(usize, &'a str)>> {
        let start = self.at;
        if self.is_done() {
            return Ok(None);
        }
        if start == self.at {
            return Err(self.unexpected("a blank before the next key"));
        }
        let at = self.at;
        let key = self.word("a key, such as size=4")?;
        self.expect("=")?;
        Ok(Some((at, key)))
    }

    pub(super) fn finish(&mut self) -> Read<()> {
        if self.is_done() { Ok(()) } else { Err(self.unexpected("the end of the line")) }
    }
}

/// The lines that hold something, after the head line `MAGIC 1` was checked.
pub(super) fn lines<'a>(text: &'a str, magic: &str) -> Read<impl Iterator<Item = Line<'a>>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate().filter_map(|(index, text)| {
        let mut line = Line { text, number: index as u64 + 1, at: 0 };
        (!line.is_done()).then_some(line)
    });
    let expected = format!("'{magic} {}' in the first line", super::VERSION);
    let Some(mut head) = lines.next() else { return Err(FormError::new(1, 1, "nothing", expected)) };
    if !head.eat(magic) {
        return Err(head.unexpected(expected));
    }
    head.skip_blanks();
    let at = head.at;
    let version = head.number()?;
    if version != super::VERSION {
        return Err(head.fault_at(at, format!("version {version}"), format!("version {}", super::VERSION)));
    }
    head.finish()?;
    Ok(lines)
}
