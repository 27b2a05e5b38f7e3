//! Expandable segments: reserved addresses that get memory page by page.

use super::{Action, Caching, Id, Piece, SMALL_SEGMENT, SegmentSource};
use std::collections::BTreeSet;

impl<S: SegmentSource> Caching<S> {
    pub(super) fn page(&self, large: bool) -> u64 {
        if large { self.settings.large_segment_size } else { SMALL_SEGMENT }
    }

    /// Maps memory until one free block holds `size`, and takes it out of its pool.
    pub(super) fn take_expandable(&mut self, size: u64, large: bool, stream: u32) -> Option<Id> {
        let mut id = self.find_room(size, large, stream)?;
        if !self.pieces[id as usize].mapped {
            let bytes = self.pieces[id as usize].size.min(size);
            if !self.map_piece(id, bytes) {
                return None;
            }
        }
        while self.pieces[id as usize].size < size {
            let rest = size - self.pieces[id as usize].size;
            let next = self.pieces[id as usize].next?;
            let bytes = rest.min(self.pieces[next as usize].size);
            if !self.map_piece(next, bytes) {
                return None;
            }
            id = next;
        }
        self.remove_from_pool(id);
        Some(id)
    }

    /// The first run of free and unmapped neighbours with room, by address; else a new reservation.
    fn find_room(&mut self, size: u64, large: bool, stream: u32) -> Option<Id> {
        let pool = if large { &self.large } else { &self.small };
        for (_, _, id) in pool.unmapped.range((stream, 0, 0)..).take_while(|key| key.0 == stream) {
            let mut start = *id;
            if let Some(previous) = self.pieces[start as usize].previous
                && self.is_free(previous)
            {
                start = previous;
            }
            let (mut bytes, mut next) = (0, Some(start));
            while bytes < size
                && let Some(id) = next
                && self.is_free(id)
            {
                bytes += self.pieces[id as usize].size;
                next = self.pieces[id as usize].next;
            }
            if bytes >= size {
                return Some(start);
            }
        }
        // Addresses for one and an eighth of the device.
        let page = self.page(large);
        let total = self.source.capacity().unwrap_or(1 << 40);
        let bytes = (total + total / 8).div_ceil(page).max(size.div_ceil(page)) * page;
        let address = self.source.reserve(bytes)?;
        self.next_age += 1;
        let id = self.new_piece(Piece {
            generation: 0,
            address,
            size: bytes,
            requested: 0,
            stream,
            large,
            allocated: false,
            mapped: false,
            reservation: Some(address),
            previous: None,
            next: None,
            age: self.next_age,
            searches: 0,
            streams: BTreeSet::new(),
            pending: 0,
        });
        self.pool(large).unmapped.insert((stream, address, id));
        Some(id)
    }

    fn is_free(&self, id: Id) -> bool {
        let piece = &self.pieces[id as usize];
        !piece.allocated && piece.pending == 0 && piece.streams.is_empty()
    }

    /// Maps whole pages at the front of an unmapped block; it becomes free, the rest stays unmapped.
    fn map_piece(&mut self, id: Id, bytes: u64) -> bool {
        let piece = &self.pieces[id as usize];
        let (large, stream, address, size) = (piece.large, piece.stream, piece.address, piece.size);
        let page = self.page(large);
        let mapped = bytes.next_multiple_of(page).min(size);
        if !self.source.map(address, mapped, page) {
            return false;
        }
        self.remove_from_pool(id);
        self.pieces[id as usize].mapped = true;
        if mapped < size {
            let mut rest = self.pieces[id as usize].clone();
            rest.mapped = false;
            rest.address += mapped;
            rest.size -= mapped;
            rest.requested = 0;
            rest.previous = Some(id);
            let next = rest.next;
            let rest = self.new_piece(rest);
            if let Some(next) = next {
                self.pieces[next as usize].previous = Some(rest);
            }
            self.pool(large).unmapped.insert((stream, address + mapped, rest));
            self.pieces[id as usize].next = Some(rest);
            self.pieces[id as usize].size = mapped;
        }
        for neighbour in [self.pieces[id as usize].previous, self.pieces[id as usize].next] {
            self.merge(id, neighbour);
        }
        self.put_back(id);
        self.grow_reserved(mapped);
        self.note(Action::SegmentMap, address, mapped, stream);
        true
    }

    /// Unmaps the whole pages of a free block; what is left over at its ends stays free.
    pub(super) fn unmap_piece(&mut self, id: Id) {
        let piece = &self.pieces[id as usize];
        let (large, stream, address, size) = (piece.large, piece.stream, piece.address, piece.size);
        let page = self.page(large);
        // Pages count from the base of the reservation.
        let base = self.base_of(id);
        let first = base + (address - base).next_multiple_of(page);
        let last = base + (address + size - base) / page * page;
        if first >= last {
            return;
        }
        self.remove_from_pool(id);
        if first > address {
            let mut front = self.pieces[id as usize].clone();
            front.size = first - address;
            front.requested = 0;
            front.next = Some(id);
            let previous = front.previous;
            let front = self.new_piece(front);
            if let Some(previous) = previous {
                self.pieces[previous as usize].next = Some(front);
            }
            self.pieces[id as usize].previous = Some(front);
            self.put_back(front);
        }
        if last < address + size {
            let mut back = self.pieces[id as usize].clone();
            back.address = last;
            back.size = address + size - last;
            back.requested = 0;
            back.previous = Some(id);
            let next = back.next;
            let back = self.new_piece(back);
            if let Some(next) = next {
                self.pieces[next as usize].previous = Some(back);
            }
            self.pieces[id as usize].next = Some(back);
            self.put_back(back);
        }
        let piece = &mut self.pieces[id as usize];
        (piece.address, piece.size, piece.mapped) = (first, last - first, false);
        self.source.unmap(first, last - first);
        for neighbour in [self.pieces[id as usize].previous, self.pieces[id as usize].next] {
            self.merge(id, neighbour);
        }
        let key = (stream, self.pieces[id as usize].address, id);
        self.pool(large).unmapped.insert(key);
        self.reserved -= last - first;
        self.counts.device_calls += 1;
        self.note(Action::SegmentUnmap, first, last - first, stream);
        let piece = &self.pieces[id as usize];
        if piece.previous.is_none() && piece.next.is_none() {
            // The whole reservation is without memory.
            let (address, size) = (piece.address, piece.size);
            self.remove_from_pool(id);
            self.source.unreserve(address, size);
            self.drop_piece(id);
        }
    }

    /// The base of the reservation that a block lies in.
    fn base_of(&self, id: Id) -> u64 {
        self.pieces[id as usize].reservation.unwrap_or(0)
    }
}
