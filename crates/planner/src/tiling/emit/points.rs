//! Statements that combine elements by index (`npumem_ir::program::points`): which of the operator's dims, from where, and
//! which elements of each operand a tile holds.

use super::{Writer, number};
use crate::tiling::operator::DimRole;
use npumem_ir::program::points::{How, Index, Join, Part, Points};
use npumem_ir::program::{Affine, Number, Op, Operation, POINTS};

/// One axis of a part: its index over the dims of the operator, and the elements along it that the tile has.
#[derive(Clone, Debug)]
pub(super) struct Place {
    index: Index,
    first: Affine,
    count: Affine,
}

impl Place {
    /// Several dims as one axis of a tile.
    pub fn flat(dims: &[usize], first: Affine, count: Affine) -> Place {
        Place { index: Index::Flat(dims.to_vec()), first, count }
    }
}

/// What a statement combines.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub how: How,
    pub result: Vec<Place>,
    /// How each term joins those before it, the operand of the statement, and its axes.
    pub terms: Vec<(Join, usize, Vec<Place>)>,
}

impl Writer<'_> {
    /// The axes of an operand's tile.
    pub(super) fn places(&mut self, operand: usize) -> Vec<Place> {
        let axes = self.operator.operands[operand].axes.clone();
        axes.iter()
            .map(|axis| {
                let (first, count) = self.touched(axis);
                // A window may lie in the padding; a dim by itself never does.
                let extent = (!axis.terms.is_empty() && axis.as_plain().is_none()).then_some(axis.extent);
                let terms = axis.terms.clone();
                Place { index: Index::Sum { terms, offset: axis.offset, divide: axis.divide, extent }, first, count }
            })
            .collect()
    }

    /// The axes of an operand, all of it.
    pub(super) fn whole_places(&mut self, operand: usize) -> Vec<Place> {
        let extents: Vec<u64> = self.operator.operands[operand].axes.iter().map(|axis| axis.extent).collect();
        let places = self.places(operand).into_iter().zip(extents);
        places.map(|(place, extent)| Place { first: number(0), count: number(extent), ..place }).collect()
    }

    /// Puts what a statement combines into it. `ranges` are the first value and the count of dims that are not as the tile is.
    pub(super) fn say(&mut self, operation: &mut Operation, said: &Said, ranges: &[(usize, Affine, Affine)]) {
        let parts = || std::iter::once(&said.result).chain(said.terms.iter().map(|(_, _, places)| places));
        let mut used: Vec<usize> = parts()
            .flatten()
            .flat_map(|place| match &place.index {
                Index::Flat(dims) => dims.clone(),
                Index::Sum { terms, .. } => terms.iter().map(|(dim, _)| *dim).collect(),
            })
            .collect();
        used.sort_unstable();
        used.dedup();
        let renamed = |dim: usize| used.iter().position(|with| *with == dim).unwrap_or(0);
        let index = |place: &Place| match &place.index {
            Index::Flat(dims) => Index::Flat(dims.iter().map(|dim| renamed(*dim)).collect()),
            Index::Sum { terms, offset, divide, extent } => Index::Sum {
                terms: terms.iter().map(|(dim, factor)| (renamed(*dim), *factor)).collect(),
                offset: *offset,
                divide: *divide,
                extent: *extent,
            },
        };
        let part = |operand, places: &[Place]| Part { operand, axes: places.iter().map(index).collect() };
        let points = Points {
            dims: used.iter().map(|dim| self.operator.dims[*dim].name.clone()).collect(),
            result: part(None, &said.result),
            how: said.how,
            terms: said.terms.iter().map(|(join, at, places)| (*join, part(Some(*at), places))).collect(),
        };
        let mut numbers = Vec::with_capacity(points.numbers());
        for dim in &used {
            let own = ranges.iter().find(|(with, ..)| with == dim);
            let (start, length) =
                own.map_or((&self.start[*dim], &self.length[*dim]), |(_, start, length)| (start, length));
            numbers.extend([Number::Int(start.clone()), Number::Int(length.clone())]);
        }
        for place in parts().flatten() {
            numbers.extend([Number::Int(place.first.clone()), Number::Int(place.count.clone())]);
        }
        operation.attributes.insert(POINTS.to_owned(), points.to_string());
        operation.scalars = numbers;
    }

    /// Every dim that is summed over, with all of its values.
    pub(super) fn all_summed(&self) -> Vec<(usize, Affine, Affine)> {
        let dims = self.operator.dims.iter().enumerate().filter(|(_, dim)| dim.role == DimRole::Reduction);
        dims.map(|(at, dim)| (at, number(0), number(dim.extent))).collect()
    }

    /// Products of both sides, summed, and added to what is there: `=+ in0 * in1`, `+= in1 * in2`.
    pub(super) fn said_products(&mut self) -> [Said; 2] {
        let (left, right) = (self.places(0), self.places(1));
        let result = self.places(self.operator.output());
        [(How::Sum, 0), (How::Add, 1)].map(|(how, first)| Said {
            how,
            result: result.clone(),
            terms: vec![(Join::Mul, first, left.clone()), (Join::Mul, first + 1, right.clone())],
        })
    }

    /// Product of the lengths of some dims.
    pub(super) fn product_of(&mut self, dims: &[usize]) -> Affine {
        let mut product = number(1);
        for dim in dims {
            let length = self.length[*dim].clone();
            product = self.builder.value(Op::Mul, vec![product, length]);
        }
        product
    }
}
