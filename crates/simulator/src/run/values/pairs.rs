//! Sorted lists of values with their numbers: `tsort32` makes them, `tmrgsort` merges them.
//!
//! A pair takes eight bytes: the value (`f16` with two bytes of padding behind it) and a 32-bit number. Lists fall from
//! the largest value; equal values keep their order. In a tile of `f32` a pair is two elements, in one of `f16` four:
//!
//! ```text
//!   f32 | value | number |        f16 | value | 0 | number, low half | number, high half |
//! ```

use super::compute::{NotComputed, Operand, Target};
use super::number::Data;
use half::f16;
use npumem_ir::ElementType;

/// A value and its number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pair {
    value: f64,
    number: u32,
}

/// Elements of a tile that one pair takes.
fn elements(element: ElementType) -> Option<usize> {
    match element {
        ElementType::F32 => Some(2),
        ElementType::F16 => Some(4),
        _ => None,
    }
}

/// The elements of pairs.
fn written(pairs: &[Pair], element: ElementType) -> Result<Data, NotComputed> {
    let mut list = Vec::with_capacity(pairs.len() * 4);
    for pair in pairs {
        list.push(pair.value);
        if element == ElementType::F32 {
            let number = f32::from_bits(pair.number);
            // The bits of a number of this size would be those of a NaN, which do not survive.
            if number.is_nan() {
                return Err(NotComputed);
            }
            list.push(f64::from(number));
            continue;
        }
        list.push(0.0);
        for half in [pair.number as u16, (pair.number >> 16) as u16] {
            let half = f16::from_bits(half);
            if half.is_nan() {
                return Err(NotComputed);
            }
            list.push(f64::from(half));
        }
    }
    Ok(Data::Real(list))
}

/// The pairs of elements.
fn read(list: &[f64], element: ElementType) -> Result<Vec<Pair>, NotComputed> {
    let width = elements(element).ok_or(NotComputed)?;
    let number = |chunk: &[f64]| match chunk {
        [_, number] => (*number as f32).to_bits(),
        [_, _, low, high] => {
            let bits = |half: f64| u32::from(f16::from_f64(half).to_bits());
            bits(*low) | bits(*high) << 16
        }
        _ => 0,
    };
    Ok(list.chunks_exact(width).map(|chunk| Pair { value: chunk[0], number: number(chunk) }).collect())
}

/// Each 32 values of a row with their numbers, the largest first.
pub(super) fn sort32(reads: &[Operand], target: Target) -> Result<Data, NotComputed> {
    let [values, numbers, ..] = reads else { return Err(NotComputed) };
    let width = elements(target.element).ok_or(NotComputed)?;
    let pairs_of_row = target.columns / width;
    if values.element != target.element || pairs_of_row < values.columns || values.columns % 32 != 0 {
        return Err(NotComputed);
    }
    let (list, numbers) = (values.data.clone().real(), numbers.data.clone().int());
    let mut out = Vec::with_capacity(target.rows * target.columns);
    for row in 0..target.rows.min(values.rows) {
        let line = row * values.columns..(row + 1) * values.columns;
        let mut pairs: Vec<Pair> = line
            .map(|at| Some(Pair { value: *list.get(at)?, number: *numbers.get(at)? as u32 }))
            .collect::<Option<_>>()
            .ok_or(NotComputed)?;
        for block in pairs.chunks_mut(32) {
            block.sort_by(|a, b| b.value.total_cmp(&a.value));
        }
        out.extend(written(&pairs, target.element)?.real());
        out.resize((row + 1) * target.columns, 0.0);
    }
    Ok(Data::Real(out))
}

/// Up to four lists in one: of equal values that of the first list goes first.
fn merge(lists: &[&[Pair]]) -> Vec<Pair> {
    let mut heads = vec![0; lists.len()];
    let mut out = Vec::with_capacity(lists.iter().map(|list| list.len()).sum());
    loop {
        let mut best: Option<(usize, Pair)> = None;
        for (which, (list, head)) in lists.iter().zip(&heads).enumerate() {
            if let Some(pair) = list.get(*head)
                && best.is_none_or(|(_, held)| pair.value > held.value)
            {
                best = Some((which, *pair));
            }
        }
        let Some((which, pair)) = best else { return out };
        heads[which] += 1;
        out.push(pair);
    }
}

/// Lists of several tiles in one, or each four blocks of a tile; `block` counts elements of the tile.
///
/// A run that ends with the first list that is used up (`exhausted`) leaves a count that a kernel reads; it is not computed.
pub(super) fn merge_sort(
    reads: &[Operand],
    block: Option<i64>,
    exhausted: bool,
    target: Target,
) -> Result<Data, NotComputed> {
    if exhausted || reads.is_empty() {
        return Err(NotComputed);
    }
    let lists: Vec<Vec<Pair>> =
        reads.iter().map(|one| read(&one.data.clone().real(), one.element)).collect::<Result<_, _>>()?;
    let Some(block) = block else {
        let merged = merge(&lists.iter().map(Vec::as_slice).collect::<Vec<_>>());
        return written(&merged, target.element);
    };
    let width = elements(target.element).ok_or(NotComputed)?;
    let length = usize::try_from(block).ok().map(|block| block / width).filter(|length| *length > 0);
    let length = length.ok_or(NotComputed)?;
    let mut out = Vec::new();
    for group in lists[0].chunks_exact(length.saturating_mul(4)) {
        out.extend(merge(&group.chunks(length).collect::<Vec<_>>()));
    }
    written(&out, target.element)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(data: Data, element: ElementType) -> Operand {
        Operand { rows: 1, columns: data.len(), data, element }
    }

    fn values(seed: u64, count: usize) -> Vec<f64> {
        (0..count as u64).map(|at| ((at * 37 + seed * 11) % 29) as f64 / 4.0).collect()
    }

    /// What the list must be: all pairs, falling, equal values in the order of their numbers.
    fn expected(list: &[f64], numbers: &[u32]) -> Vec<Pair> {
        let mut all: Vec<Pair> =
            list.iter().zip(numbers).map(|(value, number)| Pair { value: *value, number: *number }).collect();
        all.sort_by(|a, b| b.value.total_cmp(&a.value).then(a.number.cmp(&b.number)));
        all
    }

    #[test]
    fn blocks_are_sorted_and_merged_with_their_numbers() {
        for element in [ElementType::F32, ElementType::F16] {
            let width = elements(element).unwrap();
            let list = values(1, 128);
            let numbers: Vec<u32> = (0..128).map(|at| at + 70_000).collect();
            let target = |columns| Target { rows: 1, columns, element };
            let reads = [
                tile(Data::Real(list.clone()), element),
                tile(Data::Int(numbers.iter().map(|at| i64::from(*at)).collect()), ElementType::U32),
            ];
            let sorted = sort32(&reads, target(128 * width)).unwrap();
            let pairs = read(&sorted.clone().real(), element).unwrap();
            for block in 0..4 {
                let part = block * 32..block * 32 + 32;
                assert_eq!(pairs[part.clone()], expected(&list[part.clone()], &numbers[part]), "{element:?}");
            }
            // One tile of four blocks, and the four blocks as tiles of their own, give the same list.
            let whole = merge_sort(&[tile(sorted, element)], Some(32 * width as i64), false, target(128 * width));
            assert_eq!(read(&whole.clone().unwrap().real(), element).unwrap(), expected(&list, &numbers));
            let four: Vec<Operand> =
                pairs.chunks(32).map(|block| tile(written(block, element).unwrap(), element)).collect();
            assert_eq!(merge_sort(&four, None, false, target(128 * width)), whole);
            assert_eq!(merge_sort(&four, None, true, target(128 * width)), Err(NotComputed));
        }
    }

    #[test]
    fn a_target_without_room_for_the_numbers_is_refused() {
        let reads =
            [tile(Data::Real(values(2, 32)), ElementType::F16), tile(Data::Int((0..32).collect()), ElementType::U32)];
        let target = Target { rows: 1, columns: 64, element: ElementType::F16 };
        assert_eq!(sort32(&reads, target), Err(NotComputed));
    }
}
