//! Quantities as types: a number of bytes is not an offset, an offset is not a step.
//!
//! Arithmetic that can leave 64 bits is checked (`checked_*`) or, where a bound was
//! established at the door, saturating; nothing wraps silently.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU64;

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Nothing of it.
            pub const ZERO: Self = Self(0);
            /// The most that 64 bits hold.
            pub const MAX: Self = Self(u64::MAX);

            /// The bare number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The sum, or `None` past 64 bits.
            #[must_use]
            pub const fn checked_add(self, other: u64) -> Option<Self> {
                match self.0.checked_add(other) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }

            /// The difference, or `None` below zero.
            #[must_use]
            pub const fn checked_sub(self, other: u64) -> Option<Self> {
                match self.0.checked_sub(other) {
                    Some(rest) => Some(Self(rest)),
                    None => None,
                }
            }

            /// The sum, held at the most that 64 bits hold.
            #[must_use]
            pub const fn saturating_add(self, other: u64) -> Self {
                Self(self.0.saturating_add(other))
            }

            /// The difference, held at zero.
            #[must_use]
            pub const fn saturating_sub(self, other: u64) -> Self {
                Self(self.0.saturating_sub(other))
            }
        }

        impl From<u64> for $name {
            fn from(number: u64) -> Self {
                Self(number)
            }
        }
    };
}

quantity! {
    /// A size: how many bytes.
    Bytes
}
quantity! {
    /// A place: bytes from the start of a memory space.
    Offset
}
quantity! {
    /// A position in the execution order; what it counts (statements, operators, events) is the problem's own.
    Step
}
quantity! {
    /// A duration in clock cycles of the engine that is named beside it.
    Cycles
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Cycles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", grouped(self.0))
    }
}

/// Exact bytes, then a binary unit: `1,048,576 B (1.00 MiB)`; below 1 KiB the bytes alone.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.binary() {
            Some(binary) => f.pad(&format!("{} B ({binary})", grouped(self.0))),
            None => f.pad(&format!("{} B", grouped(self.0))),
        }
    }
}

const BINARY_UNITS: [(&str, u64); 6] =
    [("EiB", 1 << 60), ("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
const DECIMAL_UNITS: [(&str, u64); 6] = [
    ("EB", 1_000_000_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];

impl Bytes {
    /// The size in a binary unit with two decimals (`1.50 MiB`), or `None` below 1 KiB.
    #[must_use]
    pub fn binary(self) -> Option<String> {
        let (name, unit) = BINARY_UNITS.iter().find(|(_, unit)| self.0 >= *unit)?;
        // Two decimals of an exact ratio: 64-bit floats carry 15 digits, more than are shown.
        Some(format!("{:.2} {name}", self.0 as f64 / *unit as f64))
    }

    /// The size in the largest unit that keeps it readable, alone (`1.50 MiB`, `17 B`): for narrow columns.
    #[must_use]
    pub fn short(self) -> String {
        self.binary().unwrap_or_else(|| format!("{} B", self.0))
    }

    /// The smallest multiple of `alignment` that is at least this size, or `None` past 64 bits.
    #[must_use]
    pub const fn align_up(self, alignment: Alignment) -> Option<Bytes> {
        match align_up(self.0, alignment.get()) {
            Some(aligned) => Some(Bytes(aligned)),
            None => None,
        }
    }

    /// Reads `4096`, `64 KiB`, `1.5 GiB`, `32 GB`; `KiB MiB GiB TiB` are 1024-based, `kB KB MB GB TB` 1000-based.
    ///
    /// # Errors
    /// What was found and what was expected, as a sentence.
    pub fn parse(text: &str) -> Result<Bytes, String> {
        let text = text.trim();
        let digits_end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits_end);
        let number = number.replace('_', "");
        let unit = unit.trim();
        let expected = || format!("'{text}' is not a size: expected a number of bytes such as 4096, 64 KiB or 32 GB");
        let factor = match unit {
            "" | "B" => 1,
            "KB" => 1_000,
            _ => BINARY_UNITS
                .iter()
                .chain(DECIMAL_UNITS.iter())
                .find(|(name, _)| *name == unit)
                .map(|(_, factor)| *factor)
                .ok_or_else(expected)?,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return Err(expected());
        }
        let past = || format!("'{text}' is past 64 bits: the largest size is {} bytes", u64::MAX);
        let parse = |digits: &str| if digits.is_empty() { Ok(0) } else { digits.parse::<u128>().map_err(|_| past()) };
        if fraction.len() > 18 || fraction.contains('.') {
            return Err(expected());
        }
        let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(18));
        let scaled = parse(whole)?
            .checked_mul(scale)
            .and_then(|n| n.checked_add(parse(fraction).ok()?))
            .and_then(|n| n.checked_mul(u128::from(factor)))
            .ok_or_else(past)?;
        if scaled % scale != 0 {
            return Err(format!("'{text}' is not a whole number of bytes"));
        }
        u64::try_from(scaled / scale).map(Bytes).map_err(|_| past())
    }
}

impl std::iter::Sum for Bytes {
    /// Saturating: a total past 64 bits stays at the most that 64 bits hold.
    fn sum<I: Iterator<Item = Bytes>>(sizes: I) -> Bytes {
        sizes.fold(Bytes::ZERO, |total, size| total.saturating_add(size.0))
    }
}

/// The number with a comma between groups of three digits.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The smallest multiple of `alignment` that is at least `number`, or `None` past 64 bits.
const fn align_up(number: u64, alignment: u64) -> Option<u64> {
    match number % alignment {
        0 => Some(number),
        rest => number.checked_add(alignment - rest),
    }
}

/// What an offset must be a multiple of: any positive number of bytes (foreign problems carry 24 or 1000 as well).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Alignment(NonZeroU64);

impl Alignment {
    /// Every offset is a multiple of it.
    pub const ONE: Alignment = Alignment(NonZeroU64::MIN);

    /// `None` for zero.
    #[must_use]
    pub const fn new(bytes: u64) -> Option<Alignment> {
        match NonZeroU64::new(bytes) {
            Some(bytes) => Some(Alignment(bytes)),
            None => None,
        }
    }

    /// The alignment in bytes, at least one.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// Whether an offset is a multiple of it.
    #[must_use]
    pub const fn divides(self, offset: Offset) -> bool {
        offset.0.is_multiple_of(self.0.get())
    }

    /// The smallest alignment that both divide (their least common multiple), or `None` past 64 bits.
    #[must_use]
    pub fn and(self, other: Alignment) -> Option<Alignment> {
        let (mut a, mut b) = (self.get(), other.get());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        (self.get() / a).checked_mul(other.get()).and_then(Alignment::new)
    }
}

impl Default for Alignment {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Display for Alignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Offset {
    /// The first aligned offset at or after this one, or `None` past 64 bits.
    #[must_use]
    pub const fn align_up(self, alignment: Alignment) -> Option<Offset> {
        match align_up(self.0, alignment.get()) {
            Some(aligned) => Some(Offset(aligned)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_print_exact_then_binary() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(1023).to_string(), "1,023 B");
        assert_eq!(Bytes(1_048_576).to_string(), "1,048,576 B (1.00 MiB)");
        assert_eq!(Bytes(u64::MAX).to_string(), "18,446,744,073,709,551,615 B (16.00 EiB)");
    }

    #[test]
    fn bytes_read_both_families_of_units() {
        assert_eq!(Bytes::parse("4096"), Ok(Bytes(4096)));
        assert_eq!(Bytes::parse(" 64 KiB"), Ok(Bytes(65_536)));
        assert_eq!(Bytes::parse("1.5GiB"), Ok(Bytes(1_610_612_736)));
        assert_eq!(Bytes::parse("32 GB"), Ok(Bytes(32_000_000_000)));
        assert_eq!(Bytes::parse("1 kB"), Bytes::parse("1 KB"));
        assert_eq!(Bytes::parse("1_000"), Ok(Bytes(1000)));
        for bad in ["", "KiB", "1.2.3 MiB", "-4", "12 XB", "0.3 B", "99999999999 GiB", "1e9", "NaN"] {
            assert!(Bytes::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn alignments_need_not_be_powers_of_two() {
        let (a, b) = (Alignment::new(24).unwrap(), Alignment::new(32).unwrap());
        assert_eq!(a.and(b), Alignment::new(96));
        assert_eq!(Bytes(25).align_up(a), Some(Bytes(48)));
        assert_eq!(Offset(u64::MAX).align_up(b), None);
        assert_eq!(Alignment::new(0), None);
        assert_eq!(Alignment::new(u64::MAX).unwrap().and(b), None);
    }
}
