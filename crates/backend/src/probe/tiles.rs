//! Products whose operands come tile by tile, two slots each: the next tile is copied while this one is multiplied.

use crate::compute::{Element, Kernel};
use crate::executor::{Operation, Part, Task, TaskValue, Work};
use npumem_ir::Bytes;

/// `tiles` products of `rows x depth` by `depth x columns`; each left matrix is loaded into one of two slots, the right one stays.
#[must_use]
pub fn product(tiles: u32, [rows, depth, columns]: [u32; 3]) -> Task {
    let floats = |high: u32, wide: u32| u64::from(high) * u64::from(wide) * 4;
    let (tile, right, product) = (floats(rows, depth), floats(depth, columns), floats(rows, columns));
    let count = tiles as usize;
    let value = |name: String, bytes: u64| TaskValue { name, bytes };
    let mut values: Vec<TaskValue> = vec![value("weights".to_owned(), right)];
    values.extend((0..count).map(|index| value(format!("tile {index}"), tile)));
    values.extend((0..count).map(|index| value(format!("product {index}"), product)));
    // Space 0: two slots for tiles, the right matrix, then the products.
    let at = |value: usize, offset: u64| Part { value, delta: 0, space: 0, offset };
    let slot = |index: usize| at(index + 1, (index as u64 % 2) * tile);
    let load = |to: Part, bytes: u64| Operation {
        name: format!("load {}", to.value),
        work: Work::Load { to, bytes, element: Element::F32, seed: to.value as u32 + 1 },
    };
    let weights = at(0, 2 * tile);
    let mut operations = vec![load(weights, right)];
    let mut observed = Vec::new();
    // Loads run one tile ahead of the products: so are they written down.
    for index in 0..=count {
        if index < count {
            operations.push(load(slot(index), tile));
        }
        if let Some(index) = index.checked_sub(1) {
            let to = at(count + 1 + index, 2 * tile + right + index as u64 * product);
            let kernel = Kernel::Matmul { left: slot(index), right: weights, to, rows, columns, depth, fold: true };
            operations.push(Operation { name: format!("multiply {index}"), work: Work::Kernel(kernel) });
            observed.push((to, product));
        }
    }
    Task { spaces: vec![Bytes(2 * tile + right + count as u64 * product)], values, operations, observed }
}
