//! Numbers and names as text: widths in terminal columns, shortened names, times, rates, shares.

use std::borrow::Cow;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Terminal columns of a text (a CJK character takes two).
#[must_use]
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// A foreign name, safe to print: control characters and those that reorder a line are shown escaped.
#[must_use]
pub fn printable(name: &str) -> Cow<'_, str> {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    if !name.contains(hidden) {
        return Cow::Borrowed(name);
    }
    let mut safe = String::with_capacity(name.len());
    for c in name.chars() {
        if hidden(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    Cow::Owned(safe)
}

/// The text in at most `room` columns, the middle left out where it is longer: `model.layers…v_proj`.
#[must_use]
pub fn shorten(text: &str, room: usize) -> Cow<'_, str> {
    if width(text) <= room {
        return Cow::Borrowed(text);
    }
    let (Some(rest), true) = (room.checked_sub(1), room > 2) else {
        return Cow::Owned("…".repeat(room.min(1)));
    };
    // The end of a name tells more than its beginning: it gets the odd column.
    let front = take(text.chars(), rest / 2);
    let back: String = take(text.chars().rev(), rest - rest / 2).chars().rev().collect();
    Cow::Owned(format!("{front}…{back}"))
}

fn take(chars: impl Iterator<Item = char>, room: usize) -> String {
    let (mut text, mut used) = (String::new(), 0);
    for c in chars {
        used += c.width().unwrap_or(0);
        if used > room {
            break;
        }
        text.push(c);
    }
    text
}

/// The text in lines of at most `room` columns, broken between words; a longer word is broken anywhere.
#[must_use]
pub fn wrap(text: &str, room: usize) -> Vec<String> {
    let room = room.max(8);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word = word;
        let last = lines.len() - 1;
        let gap = usize::from(!lines[last].is_empty());
        if width(&lines[last]) + gap + width(word) <= room {
            lines[last].push_str(if gap == 1 { " " } else { "" });
            lines[last].push_str(word);
            continue;
        }
        if gap == 1 {
            lines.push(String::new());
        }
        while width(word) > room {
            let piece = take(word.chars(), room);
            word = &word[piece.len()..];
            let last = lines.len() - 1;
            lines[last] = piece;
            lines.push(String::new());
        }
        let last = lines.len() - 1;
        lines[last].push_str(word);
    }
    lines
}

/// A time: `12.3 µs`.
#[must_use]
pub fn seconds(seconds: f64) -> String {
    let scaled = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")];
    let (unit, name) = scaled.into_iter().find(|(unit, _)| seconds >= *unit).unwrap_or((1e-9, "ns"));
    if seconds == 0.0 { "0 s".to_owned() } else { format!("{} {name}", three_digits(seconds / unit)) }
}

/// A rate or a count in its unit, 1000-based: `1.60 TB/s`, `354 Top/s`.
#[must_use]
pub fn rate(value: f64, unit: &str) -> String {
    let scaled = [(1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match scaled.into_iter().find(|(scale, _)| value >= *scale) {
        Some((scale, prefix)) => format!("{} {prefix}{unit}", three_digits(value / scale)),
        None if value.fract() == 0.0 => format!("{value} {unit}"),
        None => format!("{} {unit}", three_digits(value)),
    }
}

fn three_digits(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A part of a whole in percent, never rounded to 0 or 100 when it is neither.
#[must_use]
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 || part == 0 {
        return "0 %".to_owned();
    }
    let percent = part as f64 / whole as f64 * 100.0;
    match percent {
        _ if part == whole => "100 %".to_owned(),
        p if p < 0.1 => "< 0.1 %".to_owned(),
        p if p > 99.9 && part < whole => "> 99.9 %".to_owned(),
        p => format!("{p:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shortened_in_the_middle_by_columns() {
        assert_eq!(shorten("model.layers.31.v_proj", 22), "model.layers.31.v_proj");
        assert_eq!(shorten("model.layers.31.v_proj", 13), "model.…v_proj");
        assert_eq!(shorten("权重张量零号", 7), "权…零号".replace("零号", "号"));
        assert_eq!(width(&shorten("权重张量零号", 7)), 5);
        assert_eq!(shorten("abcdef", 2), "…");
        assert_eq!(shorten("abcdef", 0), "");
    }

    #[test]
    fn hostile_names_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mred\n"), "a\\u{1b}[31mred\\n");
        assert_eq!(printable("abc\u{202e}fed"), "abc\\u{202e}fed");
        assert_eq!(printable("层.0/注意力"), "层.0/注意力");
    }

    #[test]
    fn long_text_is_wrapped_and_long_words_are_broken() {
        assert_eq!(wrap("one two three four", 9), ["one two", "three", "four"]);
        assert_eq!(wrap("abcdefghijkl mn", 8), ["abcdefgh", "ijkl mn"]);
        assert_eq!(wrap("", 10), [""]);
    }

    #[test]
    fn times_rates_and_shares() {
        assert_eq!(seconds(0.001_234), "1.23 ms");
        assert_eq!(seconds(3.2e-10), "0.32 ns");
        assert_eq!(rate(1.6e12, "B/s"), "1.60 TB/s");
        assert_eq!(rate(700.0, "cycles"), "700 cycles");
        assert_eq!(share(1, 3), "33.3 %");
        assert_eq!(share(1, 100_000), "< 0.1 %");
        assert_eq!(share(99_999, 100_000), "> 99.9 %");
        assert_eq!(share(5, 5), "100 %");
    }
}
