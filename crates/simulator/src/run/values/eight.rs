//! Floating numbers of eight bits, as the Open Compute Project defines them (OFP8, 2023).
//!
//! ```text
//!            sign  exponent  fraction   largest   infinities   NaN
//!   e4m3        1         4         3       448   none         S.1111.111
//!   e5m2        1         5         2    57,344   S.11111.00   S.11111.01 to .11
//! ```

/// How the bits of a type are divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    exponent_bits: u32,
    fraction_bits: u32,
    has_infinities: bool,
}

pub(super) const E4M3: Format = Format { exponent_bits: 4, fraction_bits: 3, has_infinities: false };
pub(super) const E5M2: Format = Format { exponent_bits: 5, fraction_bits: 2, has_infinities: true };

impl Format {
    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// The magnitude with the largest finite value.
    fn largest(self) -> u8 {
        if self.has_infinities { 0x7b } else { 0x7e }
    }

    /// The number that a byte stands for.
    pub fn load(self, byte: u8) -> f64 {
        let magnitude = byte & 0x7f;
        let fraction = f64::from(magnitude & ((1 << self.fraction_bits) - 1)) / f64::from(1 << self.fraction_bits);
        let exponent = i32::from(magnitude >> self.fraction_bits);
        let value = if magnitude > self.largest() {
            if self.has_infinities && fraction == 0.0 { f64::INFINITY } else { f64::NAN }
        } else if exponent == 0 {
            fraction * f64::from(1 - self.bias()).exp2()
        } else {
            (1.0 + fraction) * f64::from(exponent - self.bias()).exp2()
        };
        if byte & 0x80 == 0 { value } else { -value }
    }

    /// The byte of the nearest number, ties to even; past the largest it is the largest (the saturating mode).
    pub fn store(self, value: f64) -> u8 {
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        if value.is_nan() {
            return sign | 0x7f;
        }
        if value.is_infinite() && self.has_infinities {
            return sign | (self.largest() + 1);
        }
        let size = value.abs();
        // Bytes of one sign are in the order of their values: the nearest lies beside the last that is not above.
        let (mut low, mut high) = (0, self.largest());
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.load(middle) <= size { low = middle } else { high = middle - 1 }
        }
        if low == self.largest() {
            return sign | low;
        }
        let (below, above) = (size - self.load(low), self.load(low + 1) - size);
        let up = above < below || (above == below && low % 2 == 1);
        sign | (low + u8::from(up))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that the definition lists.
    #[test]
    fn the_ends_of_the_range_are_those_of_the_definition() {
        assert_eq!(E4M3.load(0x7e), 448.0);
        assert_eq!(E4M3.load(0x08), 1.0 / 64.0, "the smallest normal number");
        assert_eq!(E4M3.load(0x01), 1.0 / 512.0, "the smallest");
        assert!(E4M3.load(0x7f).is_nan() && E4M3.load(0xff).is_nan());
        assert_eq!(E5M2.load(0x7b), 57_344.0);
        assert_eq!(E5M2.load(0x04), 1.0 / 16_384.0);
        assert_eq!(E5M2.load(0x01), 1.0 / 65_536.0);
        assert_eq!(E5M2.load(0xfc), f64::NEG_INFINITY);
        assert!(E5M2.load(0x7d).is_nan());
    }

    #[test]
    fn every_byte_comes_back_and_ties_go_to_even() {
        for format in [E4M3, E5M2] {
            for byte in 0..=255_u8 {
                let value = format.load(byte);
                if value.is_nan() {
                    assert!(format.load(format.store(value)).is_nan(), "{byte:#x}");
                } else {
                    assert_eq!(format.store(value), byte, "{value}");
                }
            }
        }
        // 1.125 and 1.25 are e4m3 numbers, 1.1875 lies between: the even fraction is that of 1.25.
        assert_eq!(E4M3.load(E4M3.store(1.1875)), 1.25);
        assert_eq!(E4M3.load(E4M3.store(1.0625)), 1.0);
        assert_eq!(E4M3.load(E4M3.store(-1e9)), -448.0);
        assert_eq!(E4M3.load(E4M3.store(f64::INFINITY)), 448.0);
        assert_eq!(E5M2.load(E5M2.store(1e9)), 57_344.0);
        assert_eq!(E5M2.store(1e-9), 0);
    }
}
