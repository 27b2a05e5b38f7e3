//! Statements that combine elements by index: the points of a box, one after another, straight from the definition.
//!
//! ```text
//!   for every value of every dim (a flat axis: every number of it that the tile has)
//!     where is each part's element in its tile? one in the padding: no term
//!     result[where] = result[where] combined with the term
//! ```

use super::number::{Data, is_real, to_int};
use npumem_ir::ElementType;
use npumem_ir::program::points::{How, Index, Join, Part, Points};

/// Most points that one statement goes through.
const MOST_POINTS: u64 = 1 << 36;

/// The box and the tiles of one statement, from its scalar operands.
pub(super) struct Bounds<'a> {
    points: &'a Points,
    numbers: &'a [i64],
}

impl<'a> Bounds<'a> {
    /// `None` when there are not as many numbers as the points need, or one of them is no number of elements.
    pub fn new(points: &'a Points, numbers: &'a [i64]) -> Option<Self> {
        let counts = numbers.iter().skip(1).step_by(2).all(|count| (0..=1 << 40).contains(count));
        (numbers.len() == points.numbers() && counts).then_some(Bounds { points, numbers })
    }

    fn range(&self, dim: usize) -> (i64, u64) {
        (self.numbers[2 * dim], self.numbers[2 * dim + 1].unsigned_abs())
    }

    /// First index and count along each axis of a part: 0 for the result, then the terms.
    fn tile(&self, part: usize) -> &'a [i64] {
        let result = if part == 0 { 0 } else { self.points.result.axes.len() };
        let terms = self.points.terms.iter().take(part.saturating_sub(1));
        let before = result + terms.map(|(_, part)| part.axes.len()).sum::<usize>();
        let own = if part == 0 { &self.points.result } else { &self.points.terms[part - 1].1 };
        let start = 2 * (self.points.dims.len() + before);
        &self.numbers[start..start + 2 * own.axes.len()]
    }

    /// Elements of a part's tile.
    pub fn elements(&self, part: usize) -> u64 {
        self.tile(part).iter().skip(1).step_by(2).fold(1, |all, count| all.saturating_mul(count.unsigned_abs()))
    }
}

/// A loop over the values of one dim, or over the numbers of a flat axis.
struct Loop {
    dims: Vec<usize>,
    from: u64,
    count: u64,
}

/// An axis of a part, ready to be asked.
enum Line {
    Sum { terms: Vec<(usize, i64)>, offset: i64, divide: i64, extent: i64 },
    Flat(usize),
}

struct Place {
    lines: Vec<(Line, i64, i64)>,
}

impl Place {
    /// Where the element of a point is in the tile; `None` for padding and for what the tile does not have.
    fn of(&self, values: &[i64], flats: &[u64]) -> Option<usize> {
        let mut at = 0_i64;
        for (line, first, count) in &self.lines {
            let index = match line {
                Line::Flat(with) => flats[*with] as i64,
                Line::Sum { terms, offset, divide, extent } => {
                    let sum = terms.iter().fold(*offset, |sum, (dim, factor)| sum + values[*dim] * factor);
                    let index = if *divide == 1 { sum } else { sum.div_euclid(*divide) };
                    if index < 0 || index >= *extent || index * divide != sum {
                        return None;
                    }
                    index
                }
            } - first;
            if index < 0 || index >= *count {
                return None;
            }
            at = at * count + index;
        }
        usize::try_from(at).ok()
    }
}

/// The loops of a box; `None` where a flat axis is in two tiles that do not agree.
fn loops(bounds: &Bounds<'_>) -> Option<Vec<Loop>> {
    let points = bounds.points;
    let mut list: Vec<Loop> = Vec::new();
    let parts = std::iter::once(&points.result).chain(points.terms.iter().map(|(_, part)| part));
    for (at, part) in parts.enumerate() {
        for (index, tile) in part.axes.iter().zip(bounds.tile(at).chunks(2)) {
            let Index::Flat(dims) = index else { continue };
            let (from, count) = (u64::try_from(tile[0]).ok()?, tile[1].unsigned_abs());
            match list.iter().find(|one| one.dims == *dims) {
                Some(one) if (one.from, one.count) != (from, count) => return None,
                Some(_) => {}
                None if list.iter().any(|one| one.dims.iter().any(|dim| dims.contains(dim))) => return None,
                None => list.push(Loop { dims: dims.clone(), from, count }),
            }
        }
    }
    for dim in 0..points.dims.len() {
        if list.iter().all(|one| !one.dims.contains(&dim)) {
            list.push(Loop { dims: vec![dim], from: 0, count: bounds.range(dim).1 });
        }
    }
    let all = list.iter().fold(1_u64, |all, one| all.saturating_mul(one.count));
    (all <= MOST_POINTS).then_some(list)
}

/// Calls `each` with the places of every point of the box: the result's, then those of the terms.
fn walk(bounds: &Bounds<'_>, mut each: impl FnMut(Option<usize>, &[Option<usize>])) -> Option<()> {
    let points = bounds.points;
    let loops = loops(bounds)?;
    if loops.iter().any(|one| one.count == 0) {
        return Some(());
    }
    let place = |at: usize, part: &Part| Place {
        lines: (part.axes.iter().zip(bounds.tile(at).chunks(2)))
            .map(|(index, tile)| {
                let line = match index {
                    Index::Flat(dims) => Line::Flat(loops.iter().position(|one| one.dims == *dims).unwrap_or(0)),
                    Index::Sum { terms, offset, divide, extent } => Line::Sum {
                        terms: terms.clone(),
                        offset: *offset,
                        divide: i64::try_from(*divide).unwrap_or(i64::MAX),
                        extent: extent.map_or(i64::MAX, |extent| i64::try_from(extent).unwrap_or(i64::MAX)),
                    },
                };
                (line, tile[0], tile[1])
            })
            .collect(),
    };
    let result = place(0, &points.result);
    let terms: Vec<Place> = points.terms.iter().enumerate().map(|(at, (_, part))| place(at + 1, part)).collect();
    let mut values: Vec<i64> = (0..points.dims.len()).map(|dim| bounds.range(dim).0).collect();
    let mut flats: Vec<u64> = loops.iter().map(|one| one.from).collect();
    let set = |values: &mut [i64], one: &Loop, number: u64| {
        let mut rest = number;
        for (at, dim) in one.dims.iter().enumerate().rev() {
            let (start, count) = bounds.range(*dim);
            // The outermost takes what is left.
            let digit = if at == 0 { rest } else { rest % count.max(1) };
            values[*dim] = start + digit as i64;
            rest /= count.max(1);
        }
    };
    for one in &loops {
        set(&mut values, one, one.from);
    }
    let mut places = vec![None; terms.len()];
    loop {
        for (place, term) in places.iter_mut().zip(&terms) {
            *place = term.of(&values, &flats);
        }
        each(result.of(&values, &flats), &places);
        let mut at = loops.len();
        loop {
            if at == 0 {
                return Some(());
            }
            at -= 1;
            let one = &loops[at];
            flats[at] += 1;
            let over = flats[at] >= one.from + one.count;
            if over {
                flats[at] = one.from;
            }
            set(&mut values, one, flats[at]);
            if !over {
                break;
            }
        }
    }
}

/// What numbers of a kind do.
trait Value: Copy {
    fn join(self, join: Join, other: Self) -> Self;
    fn one() -> Self;
    fn zero() -> Self;
    fn over(self, count: i64) -> Self;
}

impl Value for f64 {
    fn join(self, join: Join, other: Self) -> Self {
        let value = match join {
            Join::Mul => self * other,
            Join::Add => self + other,
            Join::Sub => self - other,
            Join::Div => self / other,
            Join::Max => self.max(other),
            Join::Min => self.min(other),
        };
        f64::from(value as f32)
    }
    fn one() -> Self {
        1.0
    }
    fn zero() -> Self {
        0.0
    }
    fn over(self, count: i64) -> Self {
        self.join(Join::Div, count as f64)
    }
}

impl Value for i64 {
    fn join(self, join: Join, other: Self) -> Self {
        match join {
            Join::Mul => self.wrapping_mul(other),
            Join::Add => self.wrapping_add(other),
            Join::Sub => self.wrapping_sub(other),
            // Towards zero; by zero is 0, so that nothing stops.
            Join::Div => self.checked_div(other).unwrap_or(0),
            Join::Max => self.max(other),
            Join::Min => self.min(other),
        }
    }
    fn one() -> Self {
        1
    }
    fn zero() -> Self {
        0
    }
    fn over(self, count: i64) -> Self {
        self.join(Join::Div, count)
    }
}

fn run<V: Value>(bounds: &Bounds<'_>, operands: &[Vec<V>], mut out: Vec<V>) -> Option<Vec<V>> {
    let points = bounds.points;
    if points.how == How::Mean {
        let mut counts = vec![0_i64; out.len()];
        walk(bounds, |result, places| {
            if let (Some(at), true) = (result, places.iter().all(Option::is_some)) {
                counts[at] += 1;
            }
        })?;
        return Some(out.iter().zip(counts).map(|(value, count)| value.over(count)).collect());
    }
    let gather = match points.how {
        How::Set | How::Mean => None,
        How::Sum | How::Add => Some(Join::Add),
        How::Max | How::AddMax => Some(Join::Max),
        How::Min | How::AddMin => Some(Join::Min),
        How::Product | How::AddProduct => Some(Join::Mul),
    };
    walk(bounds, |result, places| {
        let Some(at) = result else { return };
        let mut term: Option<V> = None;
        for ((join, _), (place, list)) in points.terms.iter().zip(places.iter().zip(operands)) {
            let Some(value) = place.and_then(|place| list.get(place)) else { return };
            term = Some(term.map_or(*value, |so_far| so_far.join(*join, *value)));
        }
        if let (Some(term), Some(place)) = (term, out.get_mut(at)) {
            *place = gather.map_or(term, |join| place.join(join, term));
        }
    })?;
    Some(out)
}

/// The result's elements. `operands` are those of the terms, one for each; `before` is what was there.
/// `None` when the box, or a form of it, is not computed.
pub(super) fn combine(
    bounds: &Bounds<'_>,
    operands: Vec<Data>,
    before: Option<Data>,
    element: ElementType,
) -> Option<Data> {
    let count = usize::try_from(bounds.elements(0)).ok()?;
    let real = is_real(element) || operands.iter().chain(&before).any(|data| matches!(data, Data::Real(_)));
    if real {
        let start = match bounds.points.how {
            How::Max => f64::NEG_INFINITY,
            How::Min => f64::INFINITY,
            How::Product => f64::one(),
            _ => f64::zero(),
        };
        let out = before.map_or_else(|| vec![start; count], Data::real);
        return run(bounds, &operands.into_iter().map(Data::real).collect::<Vec<_>>(), out).map(Data::Real);
    }
    let start = match bounds.points.how {
        How::Max => to_int(element, f64::NEG_INFINITY, ""),
        How::Min => to_int(element, f64::INFINITY, ""),
        How::Product => i64::one(),
        _ => i64::zero(),
    };
    let out = before.map_or_else(|| vec![start; count], Data::int);
    run(bounds, &operands.into_iter().map(Data::int).collect::<Vec<_>>(), out).map(Data::Int)
}

/// Whether what is there counts.
pub(super) fn goes_on(how: How) -> bool {
    matches!(how, How::Add | How::AddMax | How::AddMin | How::AddProduct | How::Mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reals(list: &[f64]) -> Data {
        Data::Real(list.to_vec())
    }

    fn combined(text: &str, numbers: &[i64], operands: &[Data], before: Option<Data>) -> Vec<f64> {
        let points: Points = text.parse().unwrap();
        let bounds = Bounds::new(&points, numbers).unwrap();
        combine(&bounds, operands.to_vec(), before, ElementType::F32).unwrap().real()
    }

    #[test]
    fn a_window_with_padding_is_summed_and_averaged() {
        let text = "p r: out[p] =+ in0[2*p + r - 1 < 4] * in1[r]";
        // out = 1 * x[-1] + 10 * x[0] + 100 * x[1], and the same at 1, 2, 3.
        let numbers = [0, 2, 0, 3, 0, 2, 0, 4, 0, 3];
        let (x, w) = (reals(&[1.0, 2.0, 3.0, 4.0]), reals(&[1.0, 10.0, 100.0]));
        assert_eq!(combined(text, &numbers, &[x.clone(), w], None), [210.0, 432.0]);
        let sums = Some(reals(&[3.0, 9.0]));
        let mean = "p r: out[p] mean= in0[2*p + r - 1 < 4]";
        assert_eq!(combined(mean, &numbers[..8], std::slice::from_ref(&x), sums), [1.5, 3.0]);
        let most = "p r: out[p] =max in0[2*p + r - 1 < 4]";
        assert_eq!(combined(most, &numbers[..8], &[x], None), [2.0, 4.0]);
    }

    #[test]
    fn a_flat_axis_counts_from_where_its_tile_begins() {
        // Rows 1 and 2 of (p q) with q of two values: (0, 1), (1, 0).
        let text = "p q c: out[(p q), c] = in0[c, p, q]";
        let x: Vec<f64> = (0..8).map(f64::from).collect();
        let numbers = [0, 2, 0, 2, 0, 2, 1, 2, 0, 2, 0, 2, 0, 2, 0, 2];
        assert_eq!(combined(text, &numbers, &[reals(&x)], None), [1.0, 5.0, 2.0, 6.0]);
    }

    #[test]
    fn what_does_not_divide_is_padding() {
        let text = "p r: out[p] =+ in0[p - r / 2 < 2] * in1[r]";
        let numbers = [0, 4, 0, 2, 0, 4, 0, 2, 0, 2];
        // Each input spread two apart, a kernel of 1 and 10 laid over it.
        assert_eq!(combined(text, &numbers, &[reals(&[3.0, 5.0]), reals(&[1.0, 10.0])], None), [3.0, 30.0, 5.0, 50.0]);
    }

    #[test]
    fn numbers_that_are_missing_are_no_box() {
        let points: Points = "p: out[p] = in0[p]".parse().unwrap();
        assert!(Bounds::new(&points, &[0, 1, 0, 1]).is_none());
        assert!(Bounds::new(&points, &[0, 1, 0, -1, 0, 1]).is_none());
    }
}
