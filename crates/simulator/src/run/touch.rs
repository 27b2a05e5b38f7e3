//! One access of one statement, with every scalar in it evaluated.

use super::region::{MAX_DIMS, Region};
use npumem_ir::program::{Access, Layout, Program, Role, Root, Values};
use npumem_ir::{BufferId, ElementType};

/// A short list of numbers that needs no allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    dims: [u64; MAX_DIMS],
    rank: u8,
}

impl Shape {
    /// The dimensions, outermost first.
    #[must_use]
    pub fn dims(&self) -> &[u64] {
        &self.dims[..usize::from(self.rank)]
    }

    /// The product of all dimensions.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.dims().iter().fold(1, |product, dim| product.saturating_mul(*dim))
    }

    /// The product of all but the last dimension, and the last one.
    #[must_use]
    pub fn rows_and_columns(&self) -> (u64, u64) {
        match self.dims() {
            [] => (1, 1),
            [rows @ .., columns] => (rows.iter().fold(1, |product, dim| product.saturating_mul(*dim)), *columns),
        }
    }

    fn push(&mut self, dim: u64) {
        if usize::from(self.rank) < MAX_DIMS {
            self.dims[usize::from(self.rank)] = dim;
            self.rank += 1;
        } else {
            // More dimensions than are told apart: the last one takes them.
            self.dims[MAX_DIMS - 1] = self.dims[MAX_DIMS - 1].saturating_mul(dim);
        }
    }
}

impl FromIterator<u64> for Shape {
    fn from_iter<I: IntoIterator<Item = u64>>(dims: I) -> Self {
        let mut shape = Shape::default();
        dims.into_iter().for_each(|dim| shape.push(dim));
        shape
    }
}

/// An access with its numbers.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// The buffer that the statement names.
    pub named: BufferId,
    /// The buffer that owns the bytes.
    pub owner: BufferId,
    /// The slot of it.
    pub slot: u32,
    /// Which memory the region's bytes are counted in: see [`Places`].
    pub place: u32,
    /// The bytes, from the start of the place.
    pub region: Region,
    /// Where the slot starts in the place.
    pub slot_start: u64,
    /// First byte of the element of index 0, from the start of the place.
    pub first: u64,
    /// Count and stride of each dimension, outermost first; empty: the whole slot.
    pub extents: [(u64, i64); MAX_DIMS],
    /// How many of `extents` there are.
    pub extent_rank: u8,
    /// The shape that the operation sees.
    pub shape: Shape,
    /// The element that lies there.
    pub element: ElementType,
    /// How the elements lie.
    pub layout: Layout,
    /// False: some of these bytes, nobody can say which.
    pub certain: bool,
}

/// The place of an access that no memory has: below 0, past 63 bits, or through a handle that names nothing.
pub const NOWHERE: u32 = u32::MAX;

impl Touch {
    /// An access that no memory has.
    #[must_use]
    pub fn nowhere(access: &Access) -> Self {
        let named = match access.root {
            Root::Buffer(id) => id,
            Root::Handle(_) => BufferId(u32::MAX),
        };
        Touch {
            named,
            owner: named,
            slot: 0,
            place: NOWHERE,
            region: Region::flat(0, 0),
            slot_start: 0,
            first: 0,
            extents: [(1, 0); MAX_DIMS],
            extent_rank: 0,
            shape: Shape::default(),
            element: access.element,
            layout: access.layout,
            certain: false,
        }
    }

    /// Bytes of the elements that the operation sees.
    #[must_use]
    pub fn payload(&self) -> u64 {
        bytes_of(self.element, self.shape.elements())
    }

    /// Count and stride of each dimension, outermost first.
    #[must_use]
    pub fn extents(&self) -> &[(u64, i64)] {
        &self.extents[..usize::from(self.extent_rank)]
    }
}

/// Bytes of that many elements side by side.
#[must_use]
pub fn bytes_of(element: ElementType, count: u64) -> u64 {
    count.saturating_mul(element.bits()).div_ceil(8)
}

/// Bytes of one element, at least one.
#[must_use]
pub fn element_bytes(element: ElementType) -> u64 {
    (element.bits() / 8).max(1)
}

/// Which memory each buffer's bytes are counted in.
///
/// A buffer with an address shares its place with all buffers of its space; another has a place of its own. So
/// two accesses share a byte exactly when their places are equal and their regions overlap.
#[derive(Clone, Debug)]
pub struct Places {
    of: Vec<u32>,
    /// Bytes of one slot with its padding, by buffer.
    pitch: Vec<u64>,
    /// What each place is called.
    pub names: Vec<String>,
    /// Whether a place is memory of the caller.
    pub external: Vec<bool>,
}

impl Places {
    /// The places of a program.
    #[must_use]
    pub fn new(program: &Program) -> Self {
        let mut places = Places { of: Vec::new(), pitch: Vec::new(), names: Vec::new(), external: Vec::new() };
        let mut spaces: std::collections::BTreeMap<&str, u32> = std::collections::BTreeMap::new();
        for (id, buffer) in program.buffers() {
            places.pitch.push(buffer.pitch().unwrap_or(0));
            let planned = buffer.role != Role::External && buffer.address.is_some();
            let place = if planned {
                let next = places.names.len() as u32;
                let place = *spaces.entry(buffer.space.as_str()).or_insert(next);
                if place == next {
                    places.names.push(buffer.space.clone());
                    places.external.push(false);
                }
                place
            } else if let Some(alias) = buffer.alias.filter(|alias| alias.of < id) {
                places.of[alias.of.index()]
            } else {
                places.names.push(buffer.name.clone());
                places.external.push(buffer.role == Role::External);
                places.names.len() as u32 - 1
            };
            places.of.push(place);
        }
        places
    }

    /// The place of a buffer.
    #[must_use]
    pub fn of(&self, buffer: BufferId) -> u32 {
        self.of[buffer.index()]
    }

    /// Evaluates an access; `None` when it touches nothing, or bytes that no memory has.
    #[must_use]
    pub fn touch(
        &self,
        program: &Program,
        values: &Values,
        handles: &[Option<(BufferId, i64)>],
        access: &Access,
    ) -> Option<Touch> {
        let (named, shift) = match access.root {
            Root::Buffer(id) => (id, 0),
            Root::Handle(id) => handles.get(id.index()).copied().flatten()?,
        };
        let (owner, delta) = program.owner(named);
        let (buffer, seen) = (program.buffer(owner), program.buffer(named));
        let place = self.of(owner);
        let slot = match access.slot.as_constant() {
            Some(0) => 0,
            _ => values.affine(program, &access.slot).unwrap_or(0).rem_euclid(i64::from(buffer.slots.max(1))),
        };
        let base = match &buffer.address {
            Some(address) if buffer.role != Role::External => {
                u64::try_from(values.affine(program, address).unwrap_or(0)).ok()?
            }
            _ => 0,
        };
        let slot_start = base.checked_add(self.pitch[owner.index()].checked_mul(u64::try_from(slot).ok()?)?)?;
        let home = i64::try_from(slot_start.checked_add(delta)?).ok()?.checked_add(shift)?;
        let size = element_bytes(access.element);
        let mut extents = [(1, 0); MAX_DIMS];
        let (mut rank, mut certain) = (0, access.certain && access.extents.len() <= MAX_DIMS);
        for extent in access.extents.iter().take(MAX_DIMS) {
            match values.affine(program, &extent.count) {
                Some(count) => {
                    extents[rank] = (u64::try_from(count).unwrap_or(0), extent.stride);
                    rank += 1;
                }
                None => certain = false,
            }
        }
        let start = values.affine(program, &access.start);
        certain &= start.is_some();
        let shape = shape_of(program, values, access, seen, &extents[..rank]);
        let whole = seen.bytes.unwrap_or_else(|| {
            // Memory of the caller without a size: as far as this access can know.
            bytes_of(access.element, shape.elements())
        });
        let first = home.checked_add(start.unwrap_or(0))?;
        let region = if rank == 0 || !certain {
            Region::flat(u64::try_from(home).ok()?, whole)
        } else {
            Region::new(first, size, &extents[..rank])?
        };
        Some(Touch {
            named,
            owner,
            slot: u32::try_from(slot).ok()?,
            place,
            region,
            slot_start,
            first: u64::try_from(first).ok()?,
            extents,
            extent_rank: rank as u8,
            shape,
            element: access.element,
            layout: access.layout,
            certain,
        })
    }
}

/// The shape that the operation sees: the access's own, else the buffer's, else the counts, else the bytes.
fn shape_of(
    program: &Program,
    values: &Values,
    access: &Access,
    buffer: &npumem_ir::program::Buffer,
    extents: &[(u64, i64)],
) -> Shape {
    if !access.shape.is_empty() {
        let whole = |at: usize| buffer.shape.get(at).copied().unwrap_or(1);
        let dims = access.shape.iter().enumerate();
        return dims
            .map(|(at, dim)| values.affine(program, dim).map_or_else(|| whole(at), |dim| dim.max(0) as u64))
            .collect();
    }
    if !extents.is_empty() {
        return extents.iter().map(|extent| extent.0).collect();
    }
    if !buffer.shape.is_empty() {
        return buffer.shape.iter().copied().collect();
    }
    [buffer.bytes.unwrap_or(0) / element_bytes(access.element)].into_iter().collect()
}
