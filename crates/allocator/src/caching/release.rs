//! Giving memory back: on request, by age, and in the steps before an out-of-memory.

use super::{Action, Caching, Id, SegmentSource};

impl<S: SegmentSource> Caching<S> {
    /// Gives back every unsplit free segment and every whole free page (`empty_cache`).
    pub fn release_all(&mut self) {
        self.finish_events();
        self.release_pool(true);
        self.release_pool(false);
    }

    fn release_pool(&mut self, large: bool) {
        let ids: Vec<Id> = self.pool(large).free.iter().map(|key| key.4).collect();
        let mut expandable = Vec::new();
        for id in ids {
            if self.is_expandable(id) {
                expandable.push(id);
            } else if !self.is_split(id) {
                self.release_segment(id);
            }
        }
        for id in expandable {
            self.unmap_piece(id);
        }
    }

    fn is_split(&self, id: Id) -> bool {
        let piece = &self.pieces[id as usize];
        piece.previous.is_some() || piece.next.is_some()
    }

    /// Gives a free segment back.
    fn release_segment(&mut self, id: Id) {
        self.remove_from_pool(id);
        let piece = &self.pieces[id as usize];
        let (address, size, stream) = (piece.address, piece.size, piece.stream);
        self.source.give(address, size);
        self.reserved -= size;
        self.counts.device_calls += 1;
        self.note(Action::SegmentFree, address, size, stream);
        self.drop_piece(id);
    }

    /// With a largest size to split: gives back oversize segments of the stream until `size` bytes are free.
    pub(super) fn release_available(&mut self, size: u64, large: bool, stream: u32) -> bool {
        let limit = self.settings.max_split_size;
        if limit == u64::MAX {
            return false;
        }
        let wanted = size.max(limit);
        let pool = if large { &self.large } else { &self.small };
        let found = pool.free.range((stream, wanted, 0, 0, 0)..).next().copied();
        if let Some(key) = found
            && key.0 == stream
            && !self.is_expandable(key.4)
        {
            self.release_segment(key.4);
            return true;
        }
        // No one is large enough: several, the largest first.
        let below: Vec<_> = match found {
            Some(key) => pool.free.range(..key).rev().copied().collect(),
            None => pool.free.iter().rev().copied().collect(),
        };
        let mut released = 0;
        for key in below {
            if released >= wanted || key.1 < limit || key.0 != stream {
                break;
            }
            if !self.is_expandable(key.4) {
                released += key.1;
                self.release_segment(key.4);
            }
        }
        released >= wanted
    }

    /// Gives back unsplit large segments of at least average age, until the threshold is kept.
    pub(super) fn collect_garbage(&mut self) {
        let Some(allowed) = self.allowed else { return };
        let share = self.settings.garbage_collection_threshold;
        if share <= 0.0 {
            return;
        }
        let threshold = (share * allowed as f64) as u64;
        if self.reserved <= threshold {
            return;
        }
        let target = self.reserved - threshold;
        let searches = self.large.searches;
        let age = |caching: &Self, id: Id| searches - caching.pieces[id as usize].searches;
        let (mut total_age, mut count) = (0, 0_u64);
        for key in &self.large.free {
            if !self.is_split(key.4) {
                total_age += age(self, key.4);
                count += 1;
            }
        }
        let (mut reclaimed, mut progress) = (0, true);
        while reclaimed < target && progress && count > 0 {
            let bar = total_age / count;
            progress = false;
            let ids: Vec<Id> = self.large.free.iter().map(|key| key.4).collect();
            for id in ids {
                let own = age(self, id);
                if !self.is_split(id) && !self.is_expandable(id) && own >= bar {
                    progress = true;
                    reclaimed += self.pieces[id as usize].size;
                    total_age -= own;
                    count -= 1;
                    self.release_segment(id);
                }
            }
        }
    }
}
