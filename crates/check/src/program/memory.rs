//! Memory that holds, per byte of each buffer's slot, whether it is still what the buffer last wrote.
//!
//! ```text
//!   slab of slot 0 of 'a'   [ valid ........ | clobbered by 'b' ]     bytes of the slot
//!   at address               4096             4224
//! ```

use super::finding::Event;
use npumem_ir::BufferId;
use npumem_ir::program::{Program, Role};
use std::collections::BTreeMap;
use std::rc::Rc;

/// One slot of one buffer.
pub(super) type SlabId = u32;

/// What is fixed about a slab.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slab {
    pub buffer: BufferId,
    /// Space by number, first address; `None` where it has none that is known.
    pub place: Option<(u32, u64)>,
    pub bytes: u64,
}

/// All slots of all buffers that own bytes on the chip.
#[derive(Debug)]
pub(super) struct Slabs {
    pub slabs: Vec<Slab>,
    /// First slab of each buffer; `None` for external memory and aliases.
    first: Vec<Option<SlabId>>,
    /// Slabs by space and address.
    pub by_place: Vec<Vec<(u64, SlabId)>>,
    /// Bytes of the largest slab of each space: how far back an overlap may begin.
    pub largest: Vec<u64>,
}

impl Slabs {
    pub fn new(program: &Program) -> Self {
        let mut spaces: BTreeMap<&str, u32> = BTreeMap::new();
        let mut out = Slabs {
            slabs: Vec::new(),
            first: vec![None; program.buffers.len()],
            by_place: Vec::new(),
            largest: Vec::new(),
        };
        for (id, buffer) in program.buffers() {
            if buffer.role == Role::External || buffer.alias.is_some() {
                continue;
            }
            let count = spaces.len() as u32;
            let space = *spaces.entry(buffer.space.as_str()).or_insert(count);
            if out.by_place.len() <= space as usize {
                out.by_place.push(Vec::new());
                out.largest.push(0);
            }
            out.first[id.index()] = Some(out.slabs.len() as SlabId);
            let bytes = buffer.bytes.unwrap_or(0);
            let base = buffer.address.as_ref().and_then(|address| u64::try_from(address.as_constant()?).ok());
            let pitch = buffer.pitch().unwrap_or(bytes);
            for slot in 0..u64::from(buffer.slots) {
                let address = base.and_then(|base| base.checked_add(pitch.checked_mul(slot)?));
                let address = address.filter(|address| address.checked_add(bytes).is_some());
                if let Some(address) = address {
                    out.by_place[space as usize].push((address, out.slabs.len() as SlabId));
                    let largest = &mut out.largest[space as usize];
                    *largest = (*largest).max(bytes);
                }
                out.slabs.push(Slab { buffer: id, place: address.map(|address| (space, address)), bytes });
            }
        }
        for list in &mut out.by_place {
            list.sort_unstable();
        }
        out
    }

    /// The slab of a slot, if the buffer owns bytes on the chip.
    pub fn of(&self, buffer: BufferId, slot: u32) -> Option<SlabId> {
        self.first[buffer.index()].map(|first| first + slot)
    }

    pub fn get(&self, id: SlabId) -> &Slab {
        &self.slabs[id as usize]
    }
}

/// What may be true of a run of bytes: one bit a possibility.
pub(super) type Flags = u8;
/// Nothing was written there by this buffer.
pub(super) const UNWRITTEN: Flags = 1;
/// They are what this buffer wrote last.
pub(super) const VALID: Flags = 2;
/// Another buffer wrote over them after that.
pub(super) const CLOBBERED: Flags = 4;
/// Another buffer may have written over some of them, or this one may have repaired some.
pub(super) const UNSURE: Flags = 8;

/// A run of bytes with one history.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub start: u64,
    pub end: u64,
    pub flags: Flags,
    /// The last write of this buffer to the bytes, and the bytes that it wrote in all.
    pub writer: Option<(Event, u64, u64)>,
    /// The write that took them, and whose it is.
    pub taker: Option<(Event, BufferId)>,
    /// The last write of another buffer since, and whose it is.
    pub latest: Option<(Event, BufferId)>,
}

/// The bytes of one slab, in order, without gaps.
type Bytes = Rc<Vec<Cell>>;

/// The state of the chip at one moment of one path.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// Slabs that were written; the others are unwritten throughout.
    slabs: BTreeMap<SlabId, Bytes>,
    /// The written slabs by space and address.
    places: BTreeMap<(u32, u64, SlabId), ()>,
}

impl Memory {
    /// Equal in what may be true, whatever the histories.
    pub fn same(&self, other: &Memory) -> bool {
        self.slabs.len() == other.slabs.len()
            && self.slabs.iter().zip(&other.slabs).all(|((a, left), (b, right))| {
                a == b
                    && (Rc::ptr_eq(left, right) || {
                        left.len() == right.len()
                            && left
                                .iter()
                                .zip(right.iter())
                                .all(|(x, y)| (x.start, x.end, x.flags) == (y.start, y.end, y.flags))
                    })
            })
    }

    /// Forgets a slab that nothing touches any more.
    pub fn forget(&mut self, slabs: &Slabs, id: SlabId) {
        if self.slabs.remove(&id).is_some()
            && let Some((space, address)) = slabs.get(id).place
        {
            self.places.remove(&(space, address, id));
        }
    }

    fn cells(&mut self, slabs: &Slabs, id: SlabId) -> &mut Vec<Cell> {
        let slab = slabs.get(id);
        let place = slab.place;
        let bytes = slab.bytes;
        let places = &mut self.places;
        let entry = self.slabs.entry(id).or_insert_with(|| {
            if let Some((space, address)) = place {
                places.insert((space, address, id), ());
            }
            Rc::new(vec![Cell { start: 0, end: bytes, flags: UNWRITTEN, writer: None, taker: None, latest: None }])
        });
        Rc::make_mut(entry)
    }

    /// The runs of `start..end` of a slab.
    pub fn read(&self, slabs: &Slabs, id: SlabId, start: u64, end: u64, mut each: impl FnMut(&Cell, u64, u64)) {
        match self.slabs.get(&id) {
            Some(cells) => {
                let from = cells.partition_point(|cell| cell.end <= start);
                for cell in cells[from..].iter().take_while(|cell| cell.start < end) {
                    each(cell, cell.start.max(start), cell.end.min(end));
                }
            }
            None => {
                let whole = Cell {
                    start: 0,
                    end: slabs.get(id).bytes,
                    flags: UNWRITTEN,
                    writer: None,
                    taker: None,
                    latest: None,
                };
                if start < end {
                    each(&whole, start, end);
                }
            }
        }
    }

    /// A write of a slab's own buffer.
    pub fn write(&mut self, slabs: &Slabs, id: SlabId, start: u64, end: u64, certain: bool, event: &Event) {
        if start >= end {
            return;
        }
        change(self.cells(slabs, id), start, end, |cell| {
            if certain {
                cell.flags = VALID;
                (cell.taker, cell.latest) = (None, None);
            } else if cell.flags & (CLOBBERED | UNSURE) != 0 {
                cell.flags = VALID | UNSURE;
            } else {
                cell.flags = VALID;
            }
            cell.writer = Some((event.clone(), start, end));
        });
    }

    /// A write of buffer `by` to addresses `start..end` of a space: everyone else who has bytes there loses them.
    pub fn clobber(
        &mut self,
        slabs: &Slabs,
        own: SlabId,
        (space, start, end): (u32, u64, u64),
        certain: bool,
        (event, by): (&Event, BufferId),
    ) {
        if start >= end {
            return;
        }
        let from = start.saturating_sub(slabs.largest[space as usize]);
        let hit: Vec<(u64, SlabId)> = self
            .places
            .range((space, from, 0)..(space, end, 0))
            .map(|((_, address, id), ())| (*address, *id))
            .filter(|(address, id)| *id != own && address + slabs.get(*id).bytes > start)
            .collect();
        for (address, id) in hit {
            let (low, high) = (start.max(address) - address, (end - address).min(slabs.get(id).bytes));
            let touched = |cell: &Cell| {
                cell.flags & VALID != 0
                    || cell.taker.is_some() && cell.latest.as_ref().is_none_or(|latest| latest.1 != by)
            };
            let Some(cells) = self.slabs.get(&id) else { continue };
            if !cells.iter().any(|cell| cell.start < high && cell.end > low && touched(cell)) {
                continue;
            }
            change(self.cells(slabs, id), low, high, |cell| {
                if cell.flags & VALID != 0 {
                    cell.flags = if certain { cell.flags & !VALID | CLOBBERED } else { cell.flags | UNSURE };
                    cell.taker = Some((event.clone(), by));
                }
                if cell.taker.is_some() {
                    cell.latest = Some((event.clone(), by));
                }
            });
        }
    }

    /// What may be true on either path.
    pub fn join(&mut self, slabs: &Slabs, other: &Memory) {
        let ids: Vec<SlabId> = self.slabs.keys().chain(other.slabs.keys()).copied().collect();
        for id in ids {
            match (self.slabs.get(&id), other.slabs.get(&id)) {
                (Some(left), Some(right)) if Rc::ptr_eq(left, right) => {}
                (_, Some(right)) => {
                    let right = Rc::clone(right);
                    let cells = self.cells(slabs, id);
                    for run in right.iter() {
                        unite(cells, run);
                    }
                    merge(cells);
                }
                (Some(_), None) => {
                    let bytes = slabs.get(id).bytes;
                    let cells = self.cells(slabs, id);
                    unite(
                        cells,
                        &Cell { start: 0, end: bytes, flags: UNWRITTEN, writer: None, taker: None, latest: None },
                    );
                }
                (None, None) => {}
            }
        }
    }
}

/// Splits the cells at both ends of `start..end` and changes those within; then joins equal neighbours.
fn change(cells: &mut Vec<Cell>, start: u64, end: u64, mut each: impl FnMut(&mut Cell)) {
    split(cells, start);
    split(cells, end);
    let from = cells.partition_point(|cell| cell.end <= start);
    for cell in cells[from..].iter_mut().take_while(|cell| cell.start < end) {
        each(cell);
    }
    merge(cells);
}

fn split(cells: &mut Vec<Cell>, at: u64) {
    let index = cells.partition_point(|cell| cell.end <= at);
    if let Some(cell) = cells.get_mut(index)
        && cell.start < at
    {
        let mut tail = cell.clone();
        tail.start = at;
        cell.end = at;
        cells.insert(index + 1, tail);
    }
}

fn unite(cells: &mut Vec<Cell>, run: &Cell) {
    split(cells, run.start);
    split(cells, run.end);
    for cell in cells.iter_mut().filter(|cell| cell.start >= run.start && cell.end <= run.end) {
        cell.flags |= run.flags;
        if cell.taker.is_none() && run.taker.is_some() {
            // Who took bytes took them from their last writer on that path.
            cell.taker.clone_from(&run.taker);
            cell.writer.clone_from(&run.writer);
            cell.latest.clone_from(&run.latest);
        }
        if cell.writer.is_none() {
            cell.writer.clone_from(&run.writer);
        }
    }
}

/// Joins neighbours with one history.
fn merge(cells: &mut Vec<Cell>) {
    cells.dedup_by(|next, last| {
        let same = next.flags == last.flags
            && next.start == last.end
            && next.writer.as_ref().map(|w| (w.0.step, w.1, w.2)) == last.writer.as_ref().map(|w| (w.0.step, w.1, w.2))
            && next.taker.as_ref().map(|t| (t.0.step, t.1)) == last.taker.as_ref().map(|t| (t.0.step, t.1))
            && next.latest.as_ref().map(|l| (l.0.step, l.1)) == last.latest.as_ref().map(|l| (l.0.step, l.1));
        if same {
            last.end = next.end;
        }
        same
    });
}
