//! What a DMA takes for a tile: start-up, runs rounded out to its grain, the share of the rate that unaligned runs get.
//!
//! ```text
//!   main memory   |....[ run ]......|....[ run ]......|....[ run ]......|      run: neighbours in memory
//!                      ^ offset          ^ offset + pitch
//! ```
//!
//! The innermost axes that a tile has whole make one run; the next axis out sets the pitch. Starts are spread evenly over
//! the multiples of gcd(offset step, pitch), so a grain of `G` costs `G - gcd` bytes a run on average and `gcd / A` of
//! the runs start at a multiple of `A`.

use super::machine::Hop;
use super::operator::{Operand, Operator};

/// How a tile of an operand lies in main memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Bytes of one run.
    pub run: f64,
    /// Runs of a tile.
    pub runs: f64,
    /// Bytes that all starts are multiples of.
    pub step: u64,
}

fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Shape {
    /// The runs of a tile of an operand, as large as the largest.
    #[must_use]
    pub fn of(operator: &Operator, operand: &Operand, tiles: &[u64]) -> Shape {
        let range = |dim: usize| {
            // A tile from the middle touches as much as any.
            let (tile, extent) = (tiles[dim], operator.dims[dim].extent);
            let at = extent.div_ceil(tile) / 2;
            (at * tile, ((at + 1) * tile).min(extent).max(at * tile + 1))
        };
        let bits = operand.element.bits().max(1);
        let (mut run, mut runs, mut pitch, mut step) = (1_u64, 1_u64, 1_u64, 0_u64);
        let mut whole = true;
        for axis in operand.axes.iter().rev() {
            let extent = if axis.as_plain().is_some_and(|dim| tiles[dim] >= operator.dims[dim].extent) {
                axis.extent
            } else if let Some(dim) = axis.as_plain() {
                tiles[dim].min(axis.extent)
            } else {
                let (first, end) = axis.touched(&range);
                (end - first).max(1)
            };
            // Starts of tiles along this axis, and of runs, are multiples of these.
            let moves = axis.terms.iter().filter(|(dim, _)| tiles[*dim] < operator.dims[*dim].extent);
            for (dim, factor) in moves {
                step = gcd(step, pitch.saturating_mul(tiles[*dim]).saturating_mul(factor.unsigned_abs().max(1)));
            }
            if whole {
                run = run.saturating_mul(extent);
            } else {
                runs = runs.saturating_mul(extent);
                step = gcd(step, pitch);
            }
            whole &= extent == axis.extent;
            pitch = pitch.saturating_mul(axis.extent);
        }
        let bytes = |elements: u64| elements as f64 * bits as f64 / 8.0;
        Shape { run: bytes(run), runs: runs as f64, step: (step.saturating_mul(bits) / 8).max(u64::from(step != 0)) }
    }

    fn spread(&self, unit: u64) -> u64 {
        if self.step == 0 { unit } else { gcd(self.step, unit) }
    }

    /// Bytes that the engine moves for one byte of the tile: runs rounded out to its grain.
    #[must_use]
    pub fn rounding(&self, hop: &Hop) -> f64 {
        let grain = hop.granularity.max(1);
        let even = self.spread(grain) as f64;
        ((self.run / even).ceil() * even + (grain as f64 - even)) / self.run
    }

    /// As [`Shape::rounding`], over the share of the rate that unaligned runs get.
    #[must_use]
    pub fn inflation(&self, hop: &Hop) -> f64 {
        let aligned = self.spread(hop.alignment.max(1)) as f64 / hop.alignment.max(1) as f64;
        self.rounding(hop) / (1.0 - (1.0 - aligned) * (1.0 - hop.unaligned_share))
    }
}
