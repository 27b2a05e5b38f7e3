//! The heaviest set of items of which no two may share bytes: they stack, so together they are a lower bound.
//!
//! Where pairs never coexist, the load of a step counts bytes that may be shared; what must stack is a clique of
//! the graph of conflicts. Branch and bound: the waiting items are coloured so that no colour holds a conflict, and of
//! each colour at most its heaviest item can still join.

use super::instance::Instance;

/// Most items for which it is looked for.
const MOST_ITEMS: usize = 512;

/// Words of the bit sets that may be read.
const WORK: u64 = 4_000_000;

/// One level of the search: what may still join, worst bound first.
struct Level {
    open: Vec<u64>,
    /// Items of `open` with a bound of what they and those before them can add.
    order: Vec<(u32, i64)>,
    weight: i64,
}

/// The heaviest clique found and its members, for flat items; any clique is a valid bound, so the search may end early.
pub(crate) fn heaviest(instance: &Instance) -> Option<(i64, Vec<u32>)> {
    let n = instance.items.len();
    if n == 0 || n > MOST_ITEMS || !instance.flat {
        return None;
    }
    let graph = conflicts(instance);
    let weights: Vec<i64> = instance.items.iter().map(|i| i.height).collect();
    let words = n.div_ceil(64);
    let mut work = (n * n) as u64;
    let mut all = vec![0u64; words];
    (0..n).for_each(|i| all[i / 64] |= 1 << (i % 64));
    let mut best: (i64, Vec<u32>) = (0, Vec::new());
    let mut members: Vec<u32> = Vec::new();
    let order = coloured(&all, &graph, &weights, &mut work);
    let mut levels = vec![Level { open: all, order, weight: 0 }];
    loop {
        members.truncate(levels.len().saturating_sub(1));
        let Some(level) = levels.last_mut() else { break };
        let next = level.order.pop().filter(|&(_, bound)| level.weight + bound > best.0);
        let Some((i, _)) = next.filter(|_| work < WORK) else {
            levels.pop();
            continue;
        };
        level.open[i as usize / 64] &= !(1 << (i % 64));
        let open: Vec<u64> = level.open.iter().zip(&graph[i as usize]).map(|(a, b)| a & b).collect();
        let weight = level.weight + weights[i as usize];
        members.push(i);
        if weight > best.0 {
            best = (weight, members.clone());
        }
        let order = coloured(&open, &graph, &weights, &mut work);
        levels.push(Level { open, order, weight });
    }
    Some(best)
}

/// Who may share no bytes with whom.
fn conflicts(instance: &Instance) -> Vec<Vec<u64>> {
    let n = instance.items.len();
    let mut graph = vec![vec![0u64; n.div_ceil(64)]; n];
    let mut connect = |a: usize, b: usize| {
        graph[a][b / 64] |= 1 << (b % 64);
        graph[b][a / 64] |= 1 << (a % 64);
    };
    for a in 0..n {
        let x = &instance.items[a];
        // Flat items of one height range: apart at any distance that overlaps, as for live ones.
        for &(b, low, high) in &x.apart {
            if low == -instance.items[b as usize].height && high == x.height {
                connect(a, b as usize);
            }
        }
        for b in a + 1..n {
            let y = &instance.items[b];
            if x.start < y.end && y.start < x.end && x.height > 0 && y.height > 0 && instance.clash(a, 0, b, 0) {
                connect(a, b);
            }
        }
    }
    graph
}

/// The items of a set, colour by colour, each with the sum of the heaviest of its colour and of those before.
fn coloured(open: &[u64], graph: &[Vec<u64>], weights: &[i64], work: &mut u64) -> Vec<(u32, i64)> {
    let mut waiting: Vec<u32> = Vec::new();
    for (w, &word) in open.iter().enumerate() {
        let mut word = word;
        while word != 0 {
            waiting.push(64 * w as u32 + word.trailing_zeros());
            word &= word - 1;
        }
    }
    waiting.sort_by_key(|&i| (std::cmp::Reverse(weights[i as usize]), i));
    let mut out = Vec::with_capacity(waiting.len());
    let mut bound = 0;
    while let Some(&heaviest) = waiting.first() {
        bound += weights[heaviest as usize];
        let mut colour: Vec<u32> = Vec::new();
        waiting.retain(|&i| {
            *work += 1 + colour.len() as u64;
            let clear = colour.iter().all(|&c| graph[i as usize][c as usize / 64] & (1 << (c % 64)) == 0);
            if clear {
                colour.push(i);
                out.push((i, bound));
            }
            !clear
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::instance::{Live, SpaceBuffer, SpaceProblem};
    use npumem_testing::Random;

    #[test]
    fn it_is_the_heaviest_of_all_subsets() {
        let mut random = Random(5);
        for _ in 0..300 {
            let n = 1 + random.below(11) as u32;
            let buffers = (0..n).map(|_| {
                let (size, start) = (1 + random.below(9), random.below(6));
                let live = vec![Live { start, end: start + 1 + random.below(5), low: 0, high: size }];
                SpaceBuffer { size, alignment: 1, live, pin: None, hint: None }
            });
            let mut raw = SpaceProblem { buffers: buffers.collect(), ..SpaceProblem::default() };
            for a in 0..n {
                for b in 0..a {
                    if random.one_in(4) {
                        raw.exclusive.push((a, b));
                    } else if random.one_in(6) {
                        raw.apart.push((a, b));
                    }
                }
            }
            let instance = Instance::new(&raw).unwrap();
            let must_stack = |a: usize, b: usize| instance.clash(a, 0, b, 0);
            let mut expected = 0;
            for set in 0u32..1 << n {
                let members: Vec<usize> = (0..n as usize).filter(|&i| set & (1 << i) != 0).collect();
                if members.iter().all(|&a| members.iter().all(|&b| a == b || must_stack(a, b))) {
                    expected = expected.max(members.iter().map(|&i| instance.items[i].height).sum());
                }
            }
            let (weight, members) = heaviest(&instance).unwrap();
            assert_eq!(weight, expected);
            assert_eq!(weight, members.iter().map(|&i| instance.items[i as usize].height).sum::<i64>());
        }
    }
}
