//! What an allocator counts, and the fragmentation formulas over it.

use npumem_ir::Bytes;

/// The state of an allocator in numbers.
///
/// ```text
///   reserved  |##requested##|pad|....free....|##|pad|...largest free...|
///             granted = requested + padding       reserved = granted + free
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Live bytes as asked for.
    pub live: Bytes,
    /// The most that `live` has been.
    pub peak_live: Bytes,
    /// Live bytes with padding.
    pub granted: Bytes,
    /// Bytes taken from the device (or the fixed range that the allocator was given).
    pub reserved: Bytes,
    /// The most that `reserved` has been.
    pub peak_reserved: Bytes,
    /// The largest free block: the largest request that surely fits without growth.
    pub largest_free: Bytes,
    /// Live blocks.
    pub blocks: u64,
    /// Successful calls of `allocate`.
    pub allocations: u64,
    /// Successful calls of `free`.
    pub frees: u64,
    /// Refused calls of either.
    pub failures: u64,
}

impl Statistics {
    /// Reserved bytes that are not granted.
    #[must_use]
    pub fn free(&self) -> Bytes {
        self.reserved.saturating_sub(self.granted.get())
    }

    /// The share of the granted bytes that nobody asked for: `1 - live / granted`.
    #[must_use]
    pub fn internal_fragmentation(&self) -> f64 {
        share(self.granted.saturating_sub(self.live.get()), self.granted)
    }

    /// The share of the free bytes that the largest request cannot have: `1 - largest free / free`.
    #[must_use]
    pub fn external_fragmentation(&self) -> f64 {
        let free = self.free();
        share(free.saturating_sub(self.largest_free.get()), free)
    }

    /// Peak reserved over peak live: what the device had to give for what the program needed.
    #[must_use]
    pub fn footprint(&self) -> f64 {
        if self.peak_live == Bytes::ZERO { 1.0 } else { self.peak_reserved.get() as f64 / self.peak_live.get() as f64 }
    }
}

fn share(part: Bytes, whole: Bytes) -> f64 {
    if whole == Bytes::ZERO { 0.0 } else { part.get() as f64 / whole.get() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas() {
        let state = Statistics {
            live: Bytes(300),
            granted: Bytes(400),
            reserved: Bytes(1000),
            largest_free: Bytes(150),
            peak_live: Bytes(500),
            peak_reserved: Bytes(1000),
            ..Statistics::default()
        };
        assert_eq!(state.free(), Bytes(600));
        assert!((state.internal_fragmentation() - 0.25).abs() < 1e-12);
        assert!((state.external_fragmentation() - 0.75).abs() < 1e-12);
        assert!((state.footprint() - 2.0).abs() < 1e-12);
        assert_eq!(Statistics::default().external_fragmentation(), 0.0);
        assert_eq!(Statistics::default().footprint(), 1.0);
    }
}
