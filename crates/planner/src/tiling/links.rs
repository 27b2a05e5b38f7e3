//! Bytes over each link, all cores together: main memory and its cache, the cores' copies, and the feed of the unit.

use super::bounds::{IoBound, attention_by_sums, io_bound};
use super::gemm::Feed;
use super::operator::{OperandRole, bytes_of};
use super::schedule::Bench;
use super::search::Found;
use super::shares::{LinkTraffic, all_cores, exchange, once, spread_bound};
use npumem_ir::SpaceId;

impl Bench<'_> {
    pub(super) fn links(
        &self,
        parts: &[u64],
        block: &[u64],
        found: &Found,
        feed: Option<&Feed>,
        turned: &mut Vec<usize>,
    ) -> Vec<LinkTraffic> {
        let (operator, machine) = (self.operator, self.machine);
        let cores = u128::from(parts.iter().product::<u64>());
        let name = |space: SpaceId| self.rooms.iter().find(|room| room.space == space).map(|room| room.name.clone());
        let near: u64 = self.rooms.iter().map(|room| room.capacity).sum();
        let bound = self.core_bound(near, u64::try_from(cores).unwrap_or(1));
        let mut links = Vec::new();
        let to_cores = self.core_traffic(parts, block, found);
        let inward = name(machine.left.hops[0].to).unwrap_or_default();
        if let Some((_, capacity, _)) = machine.cache {
            let (read, written) = self.main_traffic(parts, block, found, capacity, turned);
            links.push(LinkTraffic {
                name: "main memory<->cache".into(),
                link: None,
                bytes: read + written,
                bound: Some(io_bound(operator, capacity)),
            });
            links.push(LinkTraffic {
                name: format!("cache<->cores ({inward})"),
                link: machine.left.hops[0].hit,
                bytes: to_cores,
                bound: Some(bound),
            });
        } else {
            links.push(LinkTraffic {
                name: format!("main memory<->cores ({inward})"),
                link: Some(machine.left.hops[0].link),
                bytes: to_cores,
                bound: Some(bound),
            });
        }
        if let Some(feed) = feed {
            let tiles: u128 =
                found.tiles.iter().zip(block).map(|(tile, extent)| u128::from(extent.div_ceil(*tile))).product();
            for (side, route) in [&machine.left, &machine.right].into_iter().enumerate() {
                if let (Some(stage), Some(hop)) = (&route.stage, route.hops.last()) {
                    let bytes = u128::from(feed.moved[side]) * tiles * cores;
                    links.push(LinkTraffic {
                        name: format!("{}->{}", stage.name, route.near.name),
                        link: Some(hop.link),
                        bytes,
                        bound: None,
                    });
                }
            }
        }
        links
    }

    /// Bytes between main memory (or its cache) and all cores.
    pub(super) fn core_traffic(&self, parts: &[u64], block: &[u64], found: &Found) -> u128 {
        let operator = self.operator;
        let moved = (0..operator.operands.len()).map(|at| all_cores(operator, at, parts, block, found));
        let (mut reads, mut writes) = (0_u128, 0_u128);
        for (read, written) in moved {
            reads += read;
            writes += written;
        }
        reads * u128::from(operator.passes) + u128::from(exchange(operator, self.machine)) + writes
    }

    /// The least traffic to the cores.
    fn core_bound(&self, near: u64, cores: u64) -> IoBound {
        let mut bound = spread_bound(self.operator, near, cores);
        let sums = &self.machine.out.near;
        let own = self.machine.left.near.space != sums.space
            && self.machine.left.stage.as_ref().is_none_or(|stage| stage.space != sums.space);
        let by_sums =
            attention_by_sums(self.operator, sums.capacity, near.saturating_sub(sums.capacity)).filter(|_| own);
        if let Some((bytes, formula)) = by_sums.filter(|(bytes, _)| *bytes > bound.bytes) {
            bound.bytes = bytes;
            bound.formula = formula;
            bound.source = "counted; of all schedules that keep sums in the accumulators".into();
        }
        let exchange = u128::from(exchange(self.operator, self.machine));
        if exchange > 0 {
            bound.bytes += exchange;
            bound.formula.push_str("; and scores and weights between the cores, which share no nearer memory");
        }
        bound
    }

    /// Bytes between main memory and its cache: what comes again after more than the cache holds is read again.
    pub(super) fn main_traffic(
        &self,
        parts: &[u64],
        block: &[u64],
        found: &Found,
        capacity: u64,
        turned: &mut Vec<usize>,
    ) -> (u128, u128) {
        let operator = self.operator;
        let count = |dim: usize| block[dim].div_ceil(found.tiles[dim]);
        // Distinct bytes of an operand, all cores together, when the loops at `inner` run and the others stand.
        let distinct = |at: usize, inner: &dyn Fn(usize) -> bool| -> f64 {
            let operand = &operator.operands[at];
            let elements: f64 = operand
                .axes
                .iter()
                .map(|axis| {
                    let (first, end) = axis.touched(&|dim| {
                        let one = if inner(dim) { block[dim] } else { found.tiles[dim] };
                        (0, one.saturating_mul(parts[dim]).min(operator.dims[dim].extent))
                    });
                    (end - first) as f64
                })
                .product();
            elements * operand.element.bits() as f64 / 8.0
        };
        let mut read = 0_u128;
        for operand in &operator.operands {
            if !matches!(operand.role, OperandRole::Input | OperandRole::Late) {
                continue;
            }
            let mut times = operator.passes as f64;
            let inner_most = found.order.iter().rposition(|dim| operand.touches(*dim) && count(*dim) > 1);
            for (place, dim) in found.order.iter().enumerate() {
                if operand.touches(*dim) || inner_most.is_none_or(|last| place > last) {
                    continue;
                }
                // One turn of this loop touches everything that its inner loops touch.
                let inside = |with: usize| found.order.iter().position(|d| *d == with).is_none_or(|p| p > place);
                // What is used once leaves the cache first: a hint on its copies.
                let comes_again = |other: usize| {
                    let other = &operator.operands[other];
                    other.role == OperandRole::Input
                        && !found.order.iter().all(|dim| other.touches(*dim) || count(*dim) == 1)
                        && found.order[..=place].iter().any(|dim| !other.touches(*dim) && count(*dim) > 1)
                };
                let all: f64 = (0..operator.operands.len())
                    .filter(|other| comes_again(*other))
                    .map(|other| distinct(other, &inside))
                    .sum();
                if all <= capacity as f64 {
                    continue;
                }
                let again = (count(*dim) - 1) as f64;
                let inner: Vec<usize> = found.order[place + 1..]
                    .iter()
                    .copied()
                    .filter(|with| operand.touches(*with) && count(*with) > 1)
                    .collect();
                match inner.as_slice() {
                    // Back and forth: a cache's worth of what was touched last is still there.
                    [one] => {
                        times *= 1.0 + again * (1.0 - capacity as f64 / all);
                        if !turned.contains(one) {
                            turned.push(*one);
                        }
                    }
                    _ => times *= 1.0 + again,
                }
            }
            let touched = once(operator, operand, parts, block, &found.tiles);
            let bytes = operator.moved_bytes(operand).min(bytes_of(touched, operand.element.bits()));
            read += (bytes as f64 * times) as u128;
        }
        let out = operator.output();
        (read, u128::from(operator.moved_bytes(&operator.operands[out])))
    }
}
