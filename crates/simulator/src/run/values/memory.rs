//! Real bytes: those of the caller, and those of every core; and where an operand's elements lie in them.

use super::number::{Data, is_real, load_int, load_real, store_real};
use crate::run::touch::{Places, Shape, Touch, element_bytes};
use npumem_ir::ElementType;
use npumem_ir::program::{Layout, Program};
use std::collections::BTreeMap;

/// The most bytes that a run may hold: a typed refusal, not a full machine.
pub const MAX_BYTES: u64 = 4 << 30;

/// Bytes of places.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// Memory of the caller, by place.
    pub shared: BTreeMap<u32, Vec<u8>>,
    /// Memory of cores, by core and place.
    own: BTreeMap<(u64, u32), Vec<u8>>,
    total: u64,
}

/// Random content of memory that nobody gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed(pub u64);

impl Seed {
    /// The bytes of element `index` of a buffer: reals in [-1, 1), integers in [0, 8).
    fn element(self, element: ElementType, place: u32, index: u64) -> [u8; 8] {
        let mut z = self.0 ^ (u64::from(place) << 48) ^ index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        if is_real(element) {
            // 11 bits: exact in every type, so that sums of them are the same in any order of single precision.
            store_real(element, f64::from((z >> 53) as u32) / 1024.0 - 1.0)
        } else {
            (z >> 61).to_le_bytes()
        }
    }
}

impl Memory {
    /// Makes sure that the place has so many bytes; `false` when that is more than a run may hold.
    pub fn grow(
        &mut self,
        places: &Places,
        core: u64,
        place: u32,
        end: u64,
        fill: Option<(Seed, ElementType)>,
    ) -> bool {
        let bytes = if places.external[place as usize] {
            self.shared.entry(place).or_default()
        } else {
            self.own.entry((core, place)).or_default()
        };
        let before = bytes.len() as u64;
        if end <= before {
            return true;
        }
        self.total = self.total.saturating_add(end - before);
        let Some(end) = usize::try_from(end).ok().filter(|_| self.total <= MAX_BYTES) else { return false };
        match fill {
            Some((seed, element)) => {
                let size = element_bytes(element);
                for index in before / size..(end as u64).div_ceil(size) {
                    let value = seed.element(element, place, index);
                    bytes.extend_from_slice(&value[..size as usize]);
                }
            }
            None => bytes.resize(end, 0),
        }
        true
    }

    fn bytes(&self, places: &Places, core: u64, place: u32) -> &[u8] {
        let found =
            if places.external[place as usize] { self.shared.get(&place) } else { self.own.get(&(core, place)) };
        found.map_or(&[], Vec::as_slice)
    }

    fn bytes_mut(&mut self, places: &Places, core: u64, place: u32) -> Option<&mut Vec<u8>> {
        if places.external[place as usize] { self.shared.get_mut(&place) } else { self.own.get_mut(&(core, place)) }
    }

    /// Forgets what a core holds.
    pub fn clear(&mut self, core: u64) {
        for ((of, _), bytes) in &mut self.own {
            if *of == core {
                bytes.fill(0);
            }
        }
    }

    /// The elements of an operand, in the order of its shape.
    pub fn load(&self, places: &Places, program: &Program, core: u64, touch: &Touch) -> Data {
        let bytes = self.bytes(places, core, touch.place);
        let size = element_bytes(touch.element) as usize;
        let at = |address: u64| {
            let start = usize::try_from(address).unwrap_or(usize::MAX);
            bytes.get(start..start.saturating_add(size)).unwrap_or(&[])
        };
        let mut list = if is_real(touch.element) { Data::Real(Vec::new()) } else { Data::Int(Vec::new()) };
        addresses(program, touch, |address| match &mut list {
            Data::Real(list) => list.push(load_real(touch.element, at(address))),
            Data::Int(list) => list.push(load_int(touch.element, at(address))),
        });
        list
    }

    /// Puts elements where an operand lies; what is too many is left out.
    pub fn store(&mut self, places: &Places, program: &Program, core: u64, touch: &Touch, data: &Data) {
        let size = element_bytes(touch.element) as usize;
        let mut list = Vec::new();
        addresses(program, touch, |address| list.push(address));
        let Some(bytes) = self.bytes_mut(places, core, touch.place) else { return };
        for (index, address) in list.into_iter().enumerate().take(data.len()) {
            let value = match data {
                Data::Real(values) if is_real(touch.element) => store_real(touch.element, values[index]),
                Data::Real(values) => super::number::to_int(touch.element, values[index], "").to_le_bytes(),
                Data::Int(values) if is_real(touch.element) => store_real(touch.element, values[index] as f64),
                Data::Int(values) => values[index].to_le_bytes(),
            };
            let start = usize::try_from(address).unwrap_or(usize::MAX);
            if let Some(place) = bytes.get_mut(start..start.saturating_add(size)) {
                place.copy_from_slice(&value[..size]);
            }
        }
    }
}

/// The byte past the last that an operand's elements reach.
pub(super) fn end_of(program: &Program, touch: &Touch) -> u64 {
    let mut end = 0;
    let size = element_bytes(touch.element);
    addresses(program, touch, |address| end = end.max(address.saturating_add(size)));
    end
}

/// The address of every element of an operand, in the order of its shape.
pub(super) fn addresses(program: &Program, touch: &Touch, mut each: impl FnMut(u64)) {
    let size = element_bytes(touch.element);
    let extents = touch.extents();
    let shape = touch.shape.dims();
    if let Layout::Fractal { .. } = touch.layout {
        // Extents say where the packed elements of this part lie; without them it is the corner of the whole tile.
        let full = if extents.is_empty() { full_shape(program, touch) } else { touch.shape.rows_and_columns() };
        let (rows, columns) = touch.shape.rows_and_columns();
        let base = if extents.is_empty() { touch.region.start } else { touch.first };
        for row in 0..rows {
            for column in 0..columns {
                let position = fractal_position(touch.layout, full, size, row, column);
                each(if extents.is_empty() {
                    base + position * size
                } else {
                    base.wrapping_add(spread(extents, position))
                });
            }
        }
        return;
    }
    if !extents.is_empty() {
        // Dimension by dimension where both have as many; else in the order of the extents.
        let same = extents.len() == shape.len();
        let counts: Vec<u64> = if same { shape.to_vec() } else { extents.iter().map(|extent| extent.0).collect() };
        walk(&counts, &extents.iter().map(|extent| extent.1).collect::<Vec<_>>(), touch.first, &mut each);
        return;
    }
    let full = full_dims(program, touch);
    let strides = strides(touch.layout, &full, size);
    if full.len() == shape.len() {
        walk(shape, &strides, touch.region.start, &mut each);
    } else {
        let count = touch.shape.elements();
        (0..count).for_each(|index| each(touch.region.start + index * size));
    }
}

/// The byte of the `position`-th element of some extents.
fn spread(extents: &[(u64, i64)], mut position: u64) -> u64 {
    let mut offset = 0_i64;
    for &(count, stride) in extents.iter().rev() {
        let count = count.max(1);
        offset = offset.wrapping_add((position % count) as i64 * stride);
        position /= count;
    }
    offset as u64
}

fn walk(counts: &[u64], strides: &[i64], first: u64, each: &mut impl FnMut(u64)) {
    if counts.contains(&0) {
        return;
    }
    let mut index = vec![0_u64; counts.len()];
    let mut at = first;
    loop {
        each(at);
        let mut dim = counts.len();
        loop {
            if dim == 0 {
                return;
            }
            dim -= 1;
            index[dim] += 1;
            at = at.wrapping_add(strides[dim] as u64);
            if index[dim] < counts[dim] {
                break;
            }
            at = at.wrapping_sub((strides[dim] as u64).wrapping_mul(counts[dim]));
            index[dim] = 0;
        }
    }
}

/// The shape that the bytes are laid out for: the buffer's own when the access sees it as it is.
fn full_dims(program: &Program, touch: &Touch) -> Vec<u64> {
    let named = program.buffer(touch.named);
    let alike = named.layout == touch.layout
        && element_bytes(named.element) == element_bytes(touch.element)
        && named.shape.len() == touch.shape.dims().len()
        && named.shape.iter().zip(touch.shape.dims()).all(|(full, seen)| seen <= full);
    if alike { named.shape.clone() } else { touch.shape.dims().to_vec() }
}

fn full_shape(program: &Program, touch: &Touch) -> (u64, u64) {
    full_dims(program, touch).into_iter().collect::<Shape>().rows_and_columns()
}

fn strides(layout: Layout, full: &[u64], size: u64) -> Vec<i64> {
    let mut strides = vec![0; full.len()];
    let mut stride = size as i64;
    let order: Vec<usize> =
        if layout == Layout::ColMajor { (0..full.len()).collect() } else { (0..full.len()).rev().collect() };
    for dim in order {
        strides[dim] = stride;
        stride = stride.saturating_mul(full[dim] as i64);
    }
    strides
}

/// Where element (row, column) stands among all elements of a fractal tile.
///
/// ```text
///   blocks of 16 rows x (bytes / 16) bytes when elements follow each other along rows, else turned
///   outer_col: blocks follow each other down the columns of blocks
/// ```
pub(super) fn fractal_position(layout: Layout, (rows, columns): (u64, u64), size: u64, row: u64, column: u64) -> u64 {
    let Layout::Fractal { outer_col, inner_col, bytes } = layout else { return row * columns + column };
    let long = (bytes / (16 * size)).max(1);
    let (high, wide) = if inner_col { (long, 16) } else { (16, long) };
    let (down, across) = (rows.div_ceil(high), columns.div_ceil(wide));
    let (block_row, block_column) = (row / high, column / wide);
    let block = if outer_col { block_column * down + block_row } else { block_row * across + block_column };
    let (r, c) = (row % high, column % wide);
    let inner = if inner_col { c * high + r } else { r * wide + c };
    block * high * wide + inner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractal_positions_are_a_permutation_and_known_at_corners() {
        let nz = Layout::Fractal { outer_col: true, inner_col: false, bytes: 512 };
        let zn = Layout::Fractal { outer_col: false, inner_col: true, bytes: 512 };
        // f16, 32 x 32: four blocks of 16 x 16.
        assert_eq!(fractal_position(nz, (32, 32), 2, 0, 15), 15);
        assert_eq!(fractal_position(nz, (32, 32), 2, 1, 0), 16);
        assert_eq!(fractal_position(nz, (32, 32), 2, 16, 0), 256, "the block below comes next");
        assert_eq!(fractal_position(nz, (32, 32), 2, 0, 16), 512);
        assert_eq!(fractal_position(zn, (32, 32), 2, 1, 0), 1);
        assert_eq!(fractal_position(zn, (32, 32), 2, 0, 16), 256);
        for layout in [nz, zn] {
            for size in [1, 2, 4] {
                let mut seen: Vec<u64> = (0..64)
                    .flat_map(|r| (0..96).map(move |c| fractal_position(layout, (64, 96), size, r, c)))
                    .collect();
                seen.sort_unstable();
                assert!(seen.iter().copied().eq(0..64 * 96), "{layout:?} {size}");
            }
        }
    }
}
