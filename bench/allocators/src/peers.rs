//! Today's allocators over offsets, from the registry, at the unit that suits them (512 bytes).
use crate::Subject;

const UNIT: u64 = 512;

fn units(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT)
}

/// `offset-allocator` 0.2.0 over twice the peak.
pub struct OffsetAllocator {
    inner: offset_allocator::Allocator<u32>,
    live: Vec<offset_allocator::Allocation<u32>>,
    spare: Vec<u32>,
    end: u64,
}

impl OffsetAllocator {
    pub fn new(peak: u64) -> Self {
        let inner = offset_allocator::Allocator::with_max_allocs((units(peak) * 2) as u32, 128 << 10);
        Self { inner, live: Vec::new(), spare: Vec::new(), end: 0 }
    }
}

impl Subject for OffsetAllocator {
    #[inline]
    fn allocate(&mut self, bytes: u64) -> u64 {
        let size = units(bytes) as u32;
        let allocation = self.inner.allocate(size).expect("room");
        self.end = self.end.max((u64::from(allocation.offset) + u64::from(size)) * UNIT);
        match self.spare.pop() {
            Some(key) => {
                self.live[key as usize] = allocation;
                key.into()
            }
            None => {
                self.live.push(allocation);
                self.live.len() as u64 - 1
            }
        }
    }
    #[inline]
    fn free(&mut self, key: u64) {
        self.inner.free(self.live[key as usize]);
        self.spare.push(key as u32);
    }
    fn reserved(&self) -> Option<u64> {
        Some(self.end)
    }
}

/// `buddy_system_allocator` 0.13.0, the frame allocator, over four times the peak.
pub struct BuddyFrames {
    inner: buddy_system_allocator::FrameAllocator<33>,
    end: u64,
}

impl BuddyFrames {
    pub fn new(peak: u64) -> Self {
        let mut inner = buddy_system_allocator::FrameAllocator::new();
        inner.add_frame(0, (units(peak) * 4).next_power_of_two() as usize);
        Self { inner, end: 0 }
    }
}

impl Subject for BuddyFrames {
    #[inline]
    fn allocate(&mut self, bytes: u64) -> u64 {
        let count = units(bytes).next_power_of_two();
        let start = self.inner.alloc(count as usize).expect("room") as u64;
        self.end = self.end.max((start + count) * UNIT);
        start << 6 | u64::from(count.trailing_zeros())
    }
    #[inline]
    fn free(&mut self, key: u64) {
        self.inner.dealloc((key >> 6) as usize, 1 << (key & 63));
    }
    fn reserved(&self) -> Option<u64> {
        Some(self.end)
    }
}

/// `range-alloc` 0.1.5: exact best fit, linear.
pub struct RangeAlloc {
    inner: range_alloc::RangeAllocator<u64>,
    live: Vec<std::ops::Range<u64>>,
    spare: Vec<u32>,
    end: u64,
}

impl RangeAlloc {
    pub fn new(peak: u64) -> Self {
        let inner = range_alloc::RangeAllocator::new(0..units(peak) * 4);
        Self { inner, live: Vec::new(), spare: Vec::new(), end: 0 }
    }
}

impl Subject for RangeAlloc {
    #[inline]
    fn allocate(&mut self, bytes: u64) -> u64 {
        let range = self.inner.allocate_range(units(bytes)).expect("room");
        self.end = self.end.max(range.end * UNIT);
        match self.spare.pop() {
            Some(key) => {
                self.live[key as usize] = range;
                key.into()
            }
            None => {
                self.live.push(range);
                self.live.len() as u64 - 1
            }
        }
    }
    #[inline]
    fn free(&mut self, key: u64) {
        self.inner.free_range(self.live[key as usize].clone());
        self.spare.push(key as u32);
    }
    fn reserved(&self) -> Option<u64> {
        Some(self.end)
    }
}
