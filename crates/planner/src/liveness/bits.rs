//! Rows of bits, one row a step, one bit a buffer.

/// A table of bits.
pub(super) struct Rows {
    words: usize,
    bits: Vec<u64>,
}

impl Rows {
    pub fn new(rows: usize, columns: usize) -> Self {
        let words = columns.div_ceil(64);
        Rows { words, bits: vec![0; rows * words] }
    }

    pub fn words(&self) -> usize {
        self.words
    }

    pub fn row(&self, row: usize) -> &[u64] {
        &self.bits[row * self.words..(row + 1) * self.words]
    }

    /// Replaces a row; whether it changed.
    pub fn replace(&mut self, row: usize, with: &[u64]) -> bool {
        let place = &mut self.bits[row * self.words..(row + 1) * self.words];
        let changed = place != with;
        place.copy_from_slice(with);
        changed
    }
}

/// `into |= from`.
pub(super) fn unite(into: &mut [u64], from: &[u64]) {
    for (into, from) in into.iter_mut().zip(from) {
        *into |= from;
    }
}

pub(super) fn set(row: &mut [u64], bit: usize) {
    row[bit / 64] |= 1 << (bit % 64);
}

pub(super) fn clear(row: &mut [u64], bit: usize) {
    row[bit / 64] &= !(1 << (bit % 64));
}

/// The bits that are set, ascending.
pub(super) fn ones(row: &[u64]) -> impl Iterator<Item = usize> + '_ {
    row.iter().enumerate().flat_map(|(index, word)| {
        let mut rest = *word;
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let bit = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            Some(index * 64 + bit)
        })
    })
}

/// A row from flags.
pub(super) fn row_of(flags: &[bool]) -> Vec<u64> {
    let mut row = vec![0; flags.len().div_ceil(64)];
    for (index, flag) in flags.iter().enumerate() {
        if *flag {
            set(&mut row, index);
        }
    }
    row
}
