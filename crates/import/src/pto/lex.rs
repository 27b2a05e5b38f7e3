//! Words of the `.pto` text: MLIR's lexical rules, as far as the dialect uses them.

use super::PtoError;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `%name`, `%name#1`.
    Value,
    /// `@name`.
    Symbol,
    /// `!pto.tile_buf`.
    Type,
    /// `#pto.pipe`.
    Attribute,
    /// `^bb0`.
    Label,
    /// `pto.tload`, `iter_args`, `f32`.
    Word,
    /// `16`, `0x10`, `1.5e-3`, `16x16xf32`.
    Number,
    /// `"text"`.
    Text,
    /// One of `( ) [ ] { } < > , : = ? + - *` or `->`, by its first byte.
    Punct(u8),
    /// Nothing follows.
    End,
}

/// A token: bytes `start..end` of the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
}

/// Splits a whole file.
pub(super) fn lex(source: &str) -> Result<Vec<Token>, PtoError> {
    let bytes = source.as_bytes();
    let mut tokens = Vec::with_capacity(source.len() / 5 + 1);
    // A byte order mark says how the text is stored, and is none of it.
    let mut at = if source.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    while at < bytes.len() {
        let byte = bytes[at];
        if byte.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        if bytes[at..].starts_with(b"//") {
            at = bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |end| at + end);
            continue;
        }
        let start = at;
        let kind = match byte {
            b'%' | b'@' | b'!' | b'#' | b'^' => {
                at = name_end(bytes, at + 1, byte == b'%');
                if byte == b'@' && bytes.get(at) == Some(&b'"') {
                    at = text_end(source, at)?;
                }
                if at == start + 1 {
                    return Err(PtoError::at(source, start, format!("expected a name after '{}'", byte as char)));
                }
                match byte {
                    b'%' => Kind::Value,
                    b'@' => Kind::Symbol,
                    b'!' => Kind::Type,
                    b'#' => Kind::Attribute,
                    _ => Kind::Label,
                }
            }
            b'"' => {
                at = text_end(source, at)?;
                Kind::Text
            }
            b'0'..=b'9' => {
                at = number_end(bytes, at);
                Kind::Number
            }
            b'-' if bytes.get(at + 1) == Some(&b'>') => {
                at += 2;
                Kind::Punct(b'-')
            }
            b'-' if bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => {
                at = number_end(bytes, at + 1);
                Kind::Number
            }
            b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'<' | b'>' | b',' | b':' | b'=' | b'?' | b'+' | b'*' => {
                at += 1;
                Kind::Punct(byte)
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                at = name_end(bytes, at, false);
                Kind::Word
            }
            _ => {
                let found = source[start..].chars().next().unwrap_or('?');
                if found == '\u{fffd}' {
                    return Err(PtoError::at(source, start, "these bytes are not UTF-8 text"));
                }
                return Err(PtoError::at(source, start, format!("'{}' begins no word", found.escape_default())));
            }
        };
        tokens.push(Token { kind, start, end: at });
    }
    tokens.push(Token { kind: Kind::End, start: bytes.len(), end: bytes.len() });
    Ok(tokens)
}

fn name_end(bytes: &[u8], mut at: usize, numbered: bool) -> usize {
    while bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'$')) {
        at += 1;
    }
    if numbered && bytes.get(at) == Some(&b'#') && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
        at += 1;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
    }
    at
}

/// A number, a float, or a shape such as `16x16xf32` (one word, as MLIR reads it inside a type).
fn number_end(bytes: &[u8], mut at: usize) -> usize {
    let start = at;
    while bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'.') {
        let exponent =
            matches!(bytes[at], b'e' | b'E') && bytes[start..at].iter().all(|b| b.is_ascii_digit() || *b == b'.');
        at += 1;
        if exponent && matches!(bytes.get(at), Some(b'+' | b'-')) {
            at += 1;
        }
    }
    at
}

fn text_end(source: &str, start: usize) -> Result<usize, PtoError> {
    let bytes = source.as_bytes();
    let mut at = start + 1;
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at += 2,
            Some(b'\n') | None => return Err(PtoError::at(source, start, "the quote is never closed")),
            Some(_) => at += 1,
        }
    }
}
