//! Does this tile fit: every buffer in bytes, by how much it misses, and what is nearest.

use super::gemm::Feeder;
use super::machine::Room;
use super::nest::{Nest, NestSetup, Slots};
use super::objective::products;
use super::operator::{Operator, Unit};
use super::schedule::{Bench, PlacedBuffer, TileError, machine_for, whole_kernels};
use super::search::found;
use npumem_ir::Device;
use thiserror::Error;

/// A tile that the operator does not have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FitError {
    /// The device cannot run the operator.
    #[error("{0}")]
    Tile(#[from] TileError),
    /// No such dim.
    #[error("--tile {name}=...: {operator} has no such dimension; it has {known}")]
    NoDim {
        /// What was given.
        name: String,
        /// The operator's family.
        operator: String,
        /// Its dims.
        known: String,
    },
    /// A size out of range.
    #[error("--tile {name}={size}: from 1 to {extent}")]
    Size {
        /// The dim.
        name: String,
        /// What was given.
        size: u64,
        /// Its extent.
        extent: u64,
    },
}

/// One space: what buffers take, and what there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceFit {
    /// Its name.
    pub name: String,
    /// Bytes of all slots of all buffers.
    pub used: u64,
    /// Bytes that there are.
    pub capacity: u64,
}

impl SpaceFit {
    /// Bytes that are missing.
    #[must_use]
    pub fn over(&self) -> u64 {
        self.used.saturating_sub(self.capacity)
    }
}

/// Whether a tile fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The device.
    pub device: String,
    /// The tile.
    pub tiles: Vec<u64>,
    /// Every buffer.
    pub buffers: Vec<PlacedBuffer>,
    /// Every space.
    pub spaces: Vec<SpaceFit>,
    /// The steps of the matrix unit cannot be fed: not even one block of each side fits.
    pub no_feed: bool,
    /// When it does not fit: the tile that fits, is nowhere larger, and has the most iterations.
    pub nearest: Option<Vec<u64>>,
    /// For each dim, the largest tile with the others as given; 0 when there is none.
    pub largest: Vec<u64>,
}

impl Fit {
    /// Whether it fits.
    #[must_use]
    pub fn fits(&self) -> bool {
        !self.no_feed && self.spaces.iter().all(|space| space.over() == 0)
    }
}

/// The tile that `name=size` pairs mean; dims that are not given are taken whole where `default` has none.
///
/// # Errors
/// A dim that there is not, a size out of range.
pub fn given_tile(operator: &Operator, pairs: &[(String, u64)], default: Option<&[u64]>) -> Result<Vec<u64>, FitError> {
    let mut tiles: Vec<u64> = match default {
        Some(default) => default.to_vec(),
        None => operator.dims.iter().map(|dim| dim.extent).collect(),
    };
    for (name, size) in pairs {
        let Some(at) = operator.dims.iter().position(|dim| dim.name == *name) else {
            return Err(FitError::NoDim {
                name: name.clone(),
                operator: operator.kind.word().to_owned(),
                known: operator.dims_text(),
            });
        };
        let extent = operator.dims[at].extent;
        if *size == 0 || *size > extent {
            return Err(FitError::Size { name: name.clone(), size: *size, extent });
        }
        tiles[at] = *size;
    }
    Ok(tiles)
}

/// Whether a tile fits on a device.
///
/// # Errors
/// When the device cannot run the operator.
pub fn fit(operator: &Operator, device: &Device, tiles: &[u64], slots: Slots) -> Result<Fit, FitError> {
    let machine = machine_for(operator, device)?;
    let operator = whole_kernels(operator);
    let bench = Bench::new(&operator, &machine);
    let bits = [operator.operands[0].element.bits(), operator.operands.get(1).map_or(8, |b| b.element.bits())];
    let feeder = (operator.unit == Unit::Matrix).then(|| Feeder::new(&machine, bits));
    let measure = Measure { bench: &bench, feeder: feeder.as_ref(), slots };
    let (buffers, spaces, no_feed) = measure.of(tiles);
    let fits = |tiles: &[u64]| {
        let (_, spaces, no_feed) = measure.of(tiles);
        !no_feed && spaces.iter().all(|space| space.over() == 0)
    };
    let mut result = Fit {
        device: device.name.clone(),
        tiles: tiles.to_vec(),
        buffers,
        spaces,
        no_feed,
        nearest: None,
        largest: Vec::new(),
    };
    if !result.fits() {
        result.nearest = nearest(&bench, tiles, &fits);
    }
    result.largest = (0..operator.dims.len()).map(|dim| largest(&bench, tiles, dim, &fits)).collect();
    Ok(result)
}

struct Measure<'a> {
    bench: &'a Bench<'a>,
    feeder: Option<&'a Feeder<'a>>,
    slots: Slots,
}

impl Measure<'_> {
    fn of(&self, tiles: &[u64]) -> (Vec<PlacedBuffer>, Vec<SpaceFit>, bool) {
        let operator = self.bench.operator;
        let setup = NestSetup { exact: Some(tiles.to_vec()), ..self.bench.setup(self.slots) };
        let nest = Nest::new(operator, &setup);
        let picks = vec![0; operator.dims.len()];
        let order: Vec<usize> = (0..operator.dims.len()).collect();
        let all = found(&nest, &picks, &order, [0; 3], 0, true);
        let feeds: Option<Vec<_>> = self
            .feeder
            .map(|feeder| {
                products(operator, &self.bench.gemm, tiles)
                    .iter()
                    .map(|(size, _)| feeder.feed(*size))
                    .collect::<Option<_>>()
            })
            .unwrap_or(Some(Vec::new()));
        let feed = feeds.as_ref().and_then(|feeds| feeds.first().copied());
        let buffers = self.bench.buffers(&all, feed.as_ref());
        let mut spaces: Vec<SpaceFit> = Vec::new();
        for buffer in &buffers {
            let bytes = buffer.pitch.saturating_mul(buffer.slots);
            match spaces.iter_mut().find(|space| space.name == buffer.space_name) {
                Some(space) => space.used = space.used.saturating_add(bytes),
                None => {
                    let capacity = self.room(buffer).map_or(0, |room| room.whole);
                    spaces.push(SpaceFit { name: buffer.space_name.clone(), used: bytes, capacity });
                }
            }
        }
        (buffers, spaces, feeds.is_none())
    }

    fn room(&self, buffer: &PlacedBuffer) -> Option<&Room> {
        let machine = self.bench.machine;
        let routes = [&machine.left, &machine.right, &machine.out];
        routes
            .into_iter()
            .flat_map(|route| route.stage.iter().chain([&route.near]))
            .find(|room| room.space == buffer.space)
    }
}

/// Sizes of a dim up to a limit: multiples of its granule, thinned to so many.
fn sizes(bench: &Bench<'_>, dim: usize, most: u64, many: u64) -> Vec<u64> {
    let granule = bench.granules[dim].max(1);
    if bench.operator.dims[dim].whole {
        return vec![most];
    }
    let units = most.div_ceil(granule).max(1);
    let mut list: Vec<u64> = if units <= many {
        (1..=units).map(|unit| (unit * granule).min(most)).collect()
    } else {
        (0..many).map(|at| (((at + 1) * units).div_ceil(many) * granule).min(most)).collect()
    };
    list.dedup();
    list
}

/// The tile that fits, is nowhere larger than the given one, and has the most iterations.
fn nearest(bench: &Bench<'_>, tiles: &[u64], fits: &dyn Fn(&[u64]) -> bool) -> Option<Vec<u64>> {
    let free = (0..tiles.len()).filter(|dim| !bench.operator.dims[*dim].whole && tiles[*dim] > 1).count();
    let many = match free {
        0..=2 => 64,
        3 => 24,
        4 => 10,
        _ => 5,
    };
    let choices: Vec<Vec<u64>> = (0..tiles.len()).map(|dim| sizes(bench, dim, tiles[dim], many)).collect();
    let mut best: Option<(u128, Vec<u64>)> = None;
    let mut picks = vec![0_usize; tiles.len()];
    'all: loop {
        let tile: Vec<u64> = picks.iter().enumerate().map(|(dim, pick)| choices[dim][*pick]).collect();
        let size: u128 = tile.iter().map(|size| u128::from(*size)).product();
        if best.as_ref().is_none_or(|(most, _)| size > *most) && fits(&tile) {
            best = Some((size, tile));
        }
        for (pick, list) in picks.iter_mut().zip(&choices) {
            *pick += 1;
            if *pick < list.len() {
                continue 'all;
            }
            *pick = 0;
        }
        break;
    }
    let mut best = best?.1;
    // Between the sizes that were tried: grow each dim as far as it goes.
    for dim in 0..best.len() {
        let grown = largest(bench, &best, dim, fits).min(tiles[dim]);
        best[dim] = grown.max(best[dim]);
    }
    Some(best)
}

/// The largest tile along a dim with the others as they are; 0 when even the smallest does not fit.
fn largest(bench: &Bench<'_>, tiles: &[u64], dim: usize, fits: &dyn Fn(&[u64]) -> bool) -> u64 {
    let (granule, extent) = (bench.granules[dim].max(1), bench.operator.dims[dim].extent);
    let size = |unit: u64| unit.saturating_mul(granule).min(extent);
    let with = |unit: u64| {
        let mut tile = tiles.to_vec();
        tile[dim] = size(unit);
        fits(&tile)
    };
    let units = extent.div_ceil(granule);
    if bench.operator.dims[dim].whole {
        return if with(units) { extent } else { 0 };
    }
    // A tile of the whole dim may need one slot where a smaller one needs two.
    if with(units) {
        return extent;
    }
    let (mut low, mut high) = (0, units);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if with(middle) { low = middle } else { high = middle }
    }
    if low == 0 { 0 } else { size(low) }
}
