//! Optimality, against a walk over every tile size and every loop order that knows nothing of tables or formulas.

use crate::tiling::{OperandRole, Operator, Slots, parse, two_level};
use npumem_testing::Random;
use std::collections::BTreeSet;

/// One tile of an operand: first and past-the-last position on each axis.
type Tile = Vec<(u64, u64)>;

/// Bytes over the boundary of one nest, by walking it: an operand's tile is copied whenever it changes.
fn walk(operator: &Operator, tiles: &[u64], order: &[usize]) -> (u128, Vec<u64>, Vec<bool>) {
    let counts: Vec<u64> = operator.dims.iter().zip(tiles).map(|(dim, tile)| dim.extent.div_ceil(*tile)).collect();
    let mut held: Vec<Option<Tile>> = vec![None; operator.operands.len()];
    let mut seen: Vec<BTreeSet<Tile>> = vec![BTreeSet::new(); operator.operands.len()];
    let mut largest = vec![0_u64; operator.operands.len()];
    let mut changes = vec![false; operator.operands.len()];
    let mut traffic = 0_u128;
    let total: u64 = counts.iter().product();
    for step in 0..total {
        let mut index = vec![0_u64; counts.len()];
        let mut rest = step;
        for dim in order.iter().rev() {
            index[*dim] = rest % counts[*dim];
            rest /= counts[*dim];
        }
        for (at, operand) in operator.operands.iter().enumerate() {
            let range =
                |dim: usize| (index[dim] * tiles[dim], ((index[dim] + 1) * tiles[dim]).min(operator.dims[dim].extent));
            let tile: Tile = operand.axes.iter().map(|axis| axis.touched(&range)).collect();
            let elements: u64 = tile.iter().map(|(first, end)| end - first).product();
            let bytes = u128::from((elements * operand.element.bits()).div_ceil(8));
            // An empty tile is a change too: the loop went elsewhere.
            let key: Tile = tile
                .iter()
                .copied()
                .chain(
                    operand.axes.iter().flat_map(|axis| axis.terms.iter().map(|(dim, _)| (index[*dim], *dim as u64))),
                )
                .collect();
            if held[at].as_ref() != Some(&key) {
                changes[at] |= held[at].is_some();
                match operand.role {
                    // Written once for each stay, read back when it was there before.
                    OperandRole::Output => traffic += bytes + if seen[at].insert(key.clone()) { 0 } else { bytes },
                    _ => traffic += bytes,
                }
                held[at] = Some(key);
            }
            largest[at] = largest[at].max(elements);
        }
    }
    (traffic, largest, changes)
}

fn permutations(count: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    for at in 0..count {
        all = all
            .iter()
            .flat_map(|list| {
                (0..=at).map(move |place| {
                    let mut next = list.clone();
                    next.insert(place, at);
                    next
                })
            })
            .collect();
    }
    all
}

/// Whether an operand changes in the innermost loop that has more than one turn.
fn streamed(operator: &Operator, tiles: &[u64], order: &[usize], operand: &crate::tiling::Operand) -> bool {
    let turns = |dim: &&usize| operator.dims[**dim].extent > tiles[**dim];
    order.iter().rev().find(turns).is_some_and(|dim| operand.touches(*dim))
}

fn brute_force(operator: &Operator, capacity: u64, slots: Slots) -> Option<u128> {
    let mut tiles = vec![1_u64; operator.dims.len()];
    let orders = permutations(operator.dims.len());
    let mut best: Option<u128> = None;
    'all: loop {
        for order in &orders {
            let (traffic, largest, changes) = walk(operator, &tiles, order);
            let taken: u64 = operator
                .operands
                .iter()
                .enumerate()
                .map(|(at, operand)| {
                    let double = match operand.role {
                        OperandRole::Input | OperandRole::Late if slots == Slots::Streamed => {
                            streamed(operator, &tiles, order, operand)
                        }
                        OperandRole::Input | OperandRole::Late => slots != Slots::Single,
                        OperandRole::Output => slots == Slots::All,
                        OperandRole::Temporary => false,
                    };
                    (largest[at] * operand.element.bits()).div_ceil(8) * if double && changes[at] { 2 } else { 1 }
                })
                .sum();
            if taken <= capacity && best.is_none_or(|best| traffic < best) {
                best = Some(traffic);
            }
        }
        for (tile, dim) in tiles.iter_mut().zip(&operator.dims) {
            *tile += 1;
            if *tile <= dim.extent {
                continue 'all;
            }
            *tile = 1;
        }
        return best;
    }
}

fn spec(random: &mut Random) -> String {
    let element = |random: &mut Random| ["i8", "f16", "f32"][random.below(3) as usize];
    let (a, b, c) = (element(random), element(random), element(random));
    let mut small = |most: u64| 1 + random.below(most);
    match small(4) {
        1 | 2 => format!("matmul m={} n={} k={} a={a} b={b} c={c}", small(6), small(6), small(6)),
        3 => {
            let (kernel, stride) = (small(3), small(2));
            let pad = small(kernel) - 1;
            format!(
                "conv c={} size={} k={} kernel={kernel} stride={stride} pad={pad} dilation={} in={a} weight={b} out={c}",
                small(3),
                kernel + 3 + small(5),
                small(3),
                small(2)
            )
        }
        _ => format!(
            "conv c=2 groups=2 size={}x{} k=2 kernel=2x1 transposed=true stride={} in={a} weight={b} out={c}",
            small(3),
            small(2),
            small(2)
        ),
    }
}

#[test]
fn the_search_finds_the_optimum_of_a_thousand_small_problems() {
    let mut random = Random(7);
    let (mut compared, mut refused) = (0, 0);
    while compared < 1000 {
        let text = spec(&mut random);
        let operator = match parse(&text) {
            Ok(operator) => operator,
            Err(error) => panic!("{text}: {error}"),
        };
        let capacity = 4 + random.below(160);
        let slots = [Slots::Single, Slots::Streamed, Slots::Inputs, Slots::All][random.below(4) as usize];
        match (two_level(&operator, capacity, slots), brute_force(&operator, capacity, slots)) {
            (Ok(found), Some(best)) => {
                assert_eq!(found.traffic(), best, "{text} in {capacity} bytes, slots {}: {found:?}", slots.word());
                assert!(found.proven);
                let (walked, ..) = walk(&operator, &found.tiles, &whole(&found.order, operator.dims.len()));
                assert_eq!(walked, best, "{text}: the schedule does not move what it says");
            }
            (Err(_), None) => refused += 1,
            (found, best) => {
                panic!("{text} in {capacity} bytes, slots {}: found {found:?}, brute force {best:?}", slots.word())
            }
        }
        compared += 1;
    }
    assert!(refused < 500, "{refused} of 1000 had no schedule: too few comparisons");
}

/// The order with the loops of one turn put anywhere.
fn whole(order: &[usize], dims: usize) -> Vec<usize> {
    let mut all = order.to_vec();
    all.extend((0..dims).filter(|dim| !order.contains(dim)));
    all
}
