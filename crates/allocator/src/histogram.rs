//! Latencies in constant memory: a histogram whose classes grow with the value.
//!
//! Nothing here reads a clock: whoever measures hands the numbers in.

/// Counts of numbers, exact below 16 and to one part in eight above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    largest: u64,
}

const CLASSES: usize = 16 + 60 * 8;

fn class_of(value: u64) -> usize {
    if value < 16 {
        return value as usize;
    }
    let exponent = value.ilog2();
    16 + (exponent as usize - 4) * 8 + (value >> (exponent - 3) & 7) as usize
}

/// The largest number of a class.
fn top_of(class: usize) -> u64 {
    if class < 16 {
        return class as u64;
    }
    let exponent = (class - 16) as u32 / 8 + 4;
    let part = (class - 16) as u64 % 8;
    (1 << exponent) + ((part + 1) << (exponent - 3)).wrapping_sub(1)
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; CLASSES], total: 0, largest: 0 }
    }
}

impl Histogram {
    /// Counts a number.
    pub fn add(&mut self, value: u64) {
        self.counts[class_of(value)] += 1;
        self.total += 1;
        self.largest = self.largest.max(value);
    }

    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Self) {
        for (own, more) in self.counts.iter_mut().zip(&other.counts) {
            *own += more;
        }
        self.total += other.total;
        self.largest = self.largest.max(other.largest);
    }

    /// How many numbers were counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The largest, exactly.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// A number that at least the share (0 to 1) of the counted ones do not exceed; at most an eighth too large.
    #[must_use]
    pub fn percentile(&self, share: f64) -> u64 {
        let wanted = (self.total as f64 * share.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        for (class, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && *count > 0 {
                return top_of(class).min(self.largest);
            }
        }
        self.largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_lies_in_its_class() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1 << shift) | (1 << shift) >> 1, u64::MAX >> shift] {
                let class = class_of(value);
                assert!(class < CLASSES && top_of(class) >= value, "{value}");
                assert!(class == 0 || top_of(class - 1) < value, "{value}");
                assert!(top_of(class) - value <= value / 8, "{value}");
            }
        }
    }

    #[test]
    fn percentiles_of_known_numbers() {
        let mut histogram = Histogram::default();
        for value in 1..=1000 {
            histogram.add(value);
        }
        let mut twice = histogram.clone();
        twice.merge(&histogram);
        assert_eq!((twice.total(), twice.largest(), twice.percentile(1.0)), (2000, 1000, 1000));
        let median = twice.percentile(0.5);
        assert!((500..=563).contains(&median), "{median}");
        assert_eq!(Histogram::default().percentile(0.9), 0);
    }
}
