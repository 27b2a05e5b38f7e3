//! Where segments come from, and a model of a device for replay.

/// Hands out segments and pages. The calls that fail must change nothing.
pub trait SegmentSource {
    /// A segment, or `None` when the device has no more.
    fn take(&mut self, bytes: u64) -> Option<u64>;
    /// Gives a segment back.
    fn give(&mut self, address: u64, bytes: u64);
    /// Addresses without memory, for an expandable segment.
    fn reserve(&mut self, bytes: u64) -> Option<u64>;
    /// Gives such addresses back.
    fn unreserve(&mut self, address: u64, bytes: u64);
    /// Puts memory behind reserved addresses; all or nothing.
    fn map(&mut self, address: u64, bytes: u64, page: u64) -> bool;
    /// Takes it away.
    fn unmap(&mut self, address: u64, bytes: u64);
    /// All memory of the device; `None` when nothing bounds it.
    fn capacity(&self) -> Option<u64>;
    /// What the device says is free.
    fn free_bytes(&self) -> u64;
}

/// A device that hands out rising addresses and has so many bytes.
#[derive(Clone, Debug)]
pub struct DeviceModel {
    total: Option<u64>,
    used: u64,
    next_segment: u64,
    next_reservation: u64,
}

impl DeviceModel {
    /// With so many bytes, or without bound. Segments and reservations start at the two bases.
    #[must_use]
    pub fn new(total: Option<u64>, segments: u64, reservations: u64) -> Self {
        Self { total, used: 0, next_segment: segments, next_reservation: reservations }
    }

    fn grow(&mut self, bytes: u64) -> bool {
        let Some(used) = self.used.checked_add(bytes) else { return false };
        if self.total.is_some_and(|total| used > total) {
            return false;
        }
        self.used = used;
        true
    }
}

impl Default for DeviceModel {
    fn default() -> Self {
        Self::new(None, 0, 1 << 50)
    }
}

impl SegmentSource for DeviceModel {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let end = self.next_segment.checked_add(bytes.checked_next_multiple_of(2 << 20)?)?;
        if !self.grow(bytes) {
            return None;
        }
        Some(std::mem::replace(&mut self.next_segment, end))
    }

    fn give(&mut self, _address: u64, bytes: u64) {
        self.used -= bytes;
    }

    fn reserve(&mut self, bytes: u64) -> Option<u64> {
        let end = self.next_reservation.checked_add(bytes.checked_next_multiple_of(2 << 20)?)?;
        Some(std::mem::replace(&mut self.next_reservation, end))
    }

    fn unreserve(&mut self, _address: u64, _bytes: u64) {}

    fn map(&mut self, _address: u64, bytes: u64, _page: u64) -> bool {
        self.grow(bytes)
    }

    fn unmap(&mut self, _address: u64, bytes: u64) {
        self.used -= bytes;
    }

    fn capacity(&self) -> Option<u64> {
        self.total
    }

    fn free_bytes(&self) -> u64 {
        self.total.unwrap_or(u64::MAX) - self.used
    }
}
