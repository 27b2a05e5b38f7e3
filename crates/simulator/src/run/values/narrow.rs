//! Tiles that become smaller: quantised, packed, or gathered by a mask.

use super::compute::{NotComputed, Operand, Target};
use super::number::{Data, is_real, to_int};
use npumem_ir::ElementType;

/// `source * factor [+ offset]` in single precision, rounded to the nearest even and held at the ends of the range.
/// Factor and offset are those of the row: the first of theirs.
pub(super) fn quantize(reads: &[Operand], target: Target) -> Result<Data, NotComputed> {
    let (source, factor, offset) = match (reads, target.element) {
        ([source, factor], ElementType::I8) => (source, factor, None),
        ([source, factor, offset], ElementType::U8) => (source, factor, Some(offset)),
        _ => return Err(NotComputed),
    };
    if source.element != ElementType::F32 || factor.rows < source.rows || offset.is_some_and(|o| o.rows < source.rows) {
        return Err(NotComputed);
    }
    let list = source.data.clone().real();
    let factors = factor.data.clone().real();
    let offsets = offset.map(|operand| (operand.data.clone().real(), operand.columns));
    let mut out = Vec::with_capacity(target.rows * target.columns);
    for row in 0..target.rows {
        let by = factors.get(row * factor.columns).copied().ok_or(NotComputed)? as f32;
        let add = offsets.as_ref().map(|(list, columns)| list.get(row * columns).copied().unwrap_or(0.0) as f32);
        for column in 0..target.columns {
            let value = list.get(row * source.columns + column).copied().ok_or(NotComputed)? as f32 * by;
            let value = add.map_or(value, |add| value + add);
            out.push(to_int(target.element, f64::from(value), "RINT"));
        }
    }
    Ok(Data::Int(out))
}

/// The low bits of each integer.
pub(super) fn pack(from: &Operand, target: Target) -> Result<Data, NotComputed> {
    match &from.data {
        Data::Int(list) if !is_real(target.element) => {
            let bits = target.element.bits();
            let low = |value: &i64| if bits >= 64 { *value } else { value & ((1 << bits) - 1) };
            // Stored by its low bytes, so the sign needs no care.
            Ok(Data::Int(list.iter().map(low).collect()))
        }
        _ => Err(NotComputed),
    }
}

/// Elements by their number, or those where a pattern of four has a one; the pattern's last digit is the first element.
pub(super) fn gather(
    reads: &[Operand],
    target: Target,
    attribute: &dyn Fn(&str) -> Option<String>,
) -> Result<Data, NotComputed> {
    if let (Some(pattern), [from]) = (attribute("maskPattern"), reads) {
        return by_mask(from, &pattern);
    }
    let [from, numbers, ..] = reads else { return Err(NotComputed) };
    if attribute("maskPattern").is_some() || !matches!(numbers.data, Data::Int(_)) {
        return Err(NotComputed);
    }
    let numbers = numbers.data.clone().int();
    let numbers = numbers.iter().take(target.rows * target.columns);
    Ok(match &from.data {
        Data::Real(list) => Data::Real(numbers.map(|at| picked(list, *at)).collect()),
        Data::Int(list) => Data::Int(numbers.map(|at| picked(list, *at)).collect()),
    })
}

fn picked<T: Copy + Default>(list: &[T], number: i64) -> T {
    usize::try_from(number).ok().and_then(|at| list.get(at)).copied().unwrap_or_default()
}

/// The elements go side by side; what lies behind them in the target stays as it is.
fn by_mask(from: &Operand, pattern: &str) -> Result<Data, NotComputed> {
    let digits = pattern.split('P').next_back().unwrap_or_default().trim_end_matches('>').trim();
    let digits: Vec<bool> = digits.chars().rev().map(|digit| digit == '1').collect();
    if digits.len() != 4 || !digits.contains(&true) {
        return Err(NotComputed);
    }
    let takes = |at: usize| digits[at % 4];
    Ok(match &from.data {
        Data::Real(list) => Data::Real(chosen(list, takes)),
        Data::Int(list) => Data::Int(chosen(list, takes)),
    })
}

fn chosen<T: Copy>(list: &[T], takes: impl Fn(usize) -> bool) -> Vec<T> {
    list.iter().enumerate().filter(|(at, _)| takes(*at)).map(|(_, value)| *value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(data: Data, columns: usize, element: ElementType) -> Operand {
        Operand { rows: data.len() / columns, columns, data, element }
    }

    #[test]
    fn rows_are_quantised_by_their_own_factor() {
        let source = tile(Data::Real(vec![0.5, -1.25, 100.0, 2.5, -3.0, f64::NAN]), 3, ElementType::F32);
        let factor = tile(Data::Real(vec![2.0, 1.0]), 1, ElementType::F32);
        let offset = tile(Data::Real(vec![128.0, 10.0]), 1, ElementType::F32);
        let target = |element| Target { rows: 2, columns: 3, element };
        // By hand: 1, -2.5 -> -2 (even), 200 -> 127; 2.5 -> 2 (even), -3, NaN -> 0.
        let signed = quantize(&[source.clone(), factor.clone()], target(ElementType::I8));
        assert_eq!(signed, Ok(Data::Int(vec![1, -2, 127, 2, -3, 0])));
        // 129, 125.5 -> 126, 328 -> 255; 12.5 -> 12, 7, 0.
        let unsigned = quantize(&[source.clone(), factor.clone(), offset], target(ElementType::U8));
        assert_eq!(unsigned, Ok(Data::Int(vec![129, 126, 255, 12, 7, 0])));
        assert_eq!(
            quantize(&[source, factor], target(ElementType::U8)),
            Err(NotComputed),
            "asymmetric needs an offset"
        );
    }

    #[test]
    fn a_mask_takes_from_its_last_digit_on() {
        let from = tile(Data::Int((0..8).collect()), 8, ElementType::I32);
        let target = Target { rows: 1, columns: 8, element: ElementType::I32 };
        let by = |pattern: &str| {
            let text = format!("#pto.mask_pattern<{pattern}>");
            gather(std::slice::from_ref(&from), target, &|key| (key == "maskPattern").then(|| text.clone()))
        };
        assert_eq!(by("P0101"), Ok(Data::Int(vec![0, 2, 4, 6])));
        assert_eq!(by("P1010"), Ok(Data::Int(vec![1, 3, 5, 7])));
        assert_eq!(by("P0010"), Ok(Data::Int(vec![1, 5])));
        assert_eq!(by("P1000"), Ok(Data::Int(vec![3, 7])));
        assert_eq!(by("P1111"), Ok(Data::Int((0..8).collect())));
        assert_eq!(by("P11"), Err(NotComputed));
    }

    #[test]
    fn packing_keeps_the_low_bits() {
        let from = tile(Data::Int(vec![0x1_2345, -1, 0x8000]), 3, ElementType::I32);
        let target = Target { rows: 1, columns: 3, element: ElementType::I16 };
        assert_eq!(pack(&from, target), Ok(Data::Int(vec![0x2345, 0xffff, 0x8000])));
    }
}
