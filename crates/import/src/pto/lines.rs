//! Lines and columns of bytes, found without reading the text again.

/// Bytes between two kept counts of characters.
const STRIDE: usize = 1024;

/// Where the lines of a text begin, and how many characters come before each block of it.
#[derive(Debug)]
pub(super) struct Lines<'s> {
    source: &'s str,
    starts: Vec<usize>,
    /// Characters that begin before each multiple of [`STRIDE`].
    characters: Vec<usize>,
}

impl<'s> Lines<'s> {
    pub fn new(source: &'s str) -> Self {
        let ends = source.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        let mut characters = vec![0];
        let mut count = 0;
        for block in source.as_bytes().chunks(STRIDE) {
            count += begins(block);
            characters.push(count);
        }
        Lines { source, starts, characters }
    }

    /// The line of a byte, from 1.
    pub fn line(&self, byte: usize) -> u32 {
        u32::try_from(self.starts.partition_point(|start| *start <= byte.min(self.source.len()))).unwrap_or(u32::MAX)
    }

    /// Line and column, from 1, of a byte.
    pub fn position(&self, byte: usize) -> (u32, u32) {
        let mut byte = byte.min(self.source.len());
        while !self.source.is_char_boundary(byte) {
            byte -= 1;
        }
        let line = self.line(byte);
        let start = self.starts[line as usize - 1];
        // A byte order mark takes no column.
        let mark = usize::from(start == 0 && byte > 0 && self.source.starts_with('\u{feff}'));
        let column = self.before(byte) - self.before(start) + 1 - mark;
        (line, u32::try_from(column).unwrap_or(u32::MAX))
    }

    /// Characters that begin before a byte.
    fn before(&self, byte: usize) -> usize {
        let block = byte / STRIDE;
        self.characters[block] + begins(&self.source.as_bytes()[block * STRIDE..byte])
    }
}

/// Bytes that begin a character.
fn begins(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::super::position;
    use super::*;

    #[test]
    fn the_same_as_reading_from_the_start() {
        let long = "añ→𝄞b\r\n".repeat(100) + &"é".repeat(600) + "\n\nlast";
        for source in ["", "\n", "a", "a\nb", "é\n→", "\u{feff}a\nb", "\u{feff}", long.as_str()] {
            let lines = Lines::new(source);
            for byte in 0..=source.len() + 2 {
                assert_eq!(lines.position(byte), position(source, byte), "byte {byte}");
                assert_eq!(lines.line(byte), position(source, byte).0, "byte {byte}");
            }
        }
    }
}
