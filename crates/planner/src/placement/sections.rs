//! Sections: sets of items that pairwise exclude each other's bytes, covering every conflict.
//!
//! Where conflicts come from time alone the sections are the maximal live sets, one per local
//! maximum of the sweep. With pairs that are kept apart (more conflicts) or never coexist (fewer),
//! they are cliques grown greedily until every conflicting pair lies in one. Either way the items of a
//! section stack: their sizes add up, which is all that the search and the bounds use.

use super::instance::Instance;

/// Sections of an instance of flat items, with the look-ups in both directions.
#[derive(Clone, Debug)]
pub(crate) struct Sections {
    /// Items of each section.
    pub members: Vec<Vec<u32>>,
    /// Sections of each item.
    pub of: Vec<Vec<u32>>,
    /// Items whose first section it is.
    pub first_in: Vec<Vec<u32>>,
    /// Conflicting items of each item, sorted.
    pub conflicts: Vec<Vec<u32>>,
    /// Counted work of building them.
    pub work: u64,
}

impl Sections {
    /// Builds the sections. `dominate` drops live sets that lie inside a neighbour.
    pub fn new(instance: &Instance, dominate: bool) -> Sections {
        let n = instance.items.len();
        let by_time = live_sets(instance, dominate);
        let plain = instance.items.iter().all(|i| i.apart.is_empty() && i.exclusive.is_empty());
        let mut work = 4 * n as u64;
        let mut members = if plain { by_time } else { cliques(instance, &mut work) };
        let mut seen = vec![false; n];
        for &i in members.iter().flatten() {
            seen[i as usize] = true;
        }
        members.extend((0..n as u32).filter(|&i| !seen[i as usize]).map(|i| vec![i]));
        let mut of = vec![Vec::new(); n];
        for (s, m) in members.iter().enumerate() {
            for &i in m {
                of[i as usize].push(s as u32);
            }
        }
        let mut first_in = vec![Vec::new(); members.len()];
        for (i, of) in of.iter().enumerate() {
            if let Some(&first) = of.first() {
                first_in[first as usize].push(i as u32);
            }
        }
        let conflicts = conflicts(&members, &of, &mut work);
        Sections { members, of, first_in, conflicts, work }
    }
}

/// Of each item, everything that it shares a section with: its sections' members as bits, or-ed.
fn conflicts(members: &[Vec<u32>], of: &[Vec<u32>], work: &mut u64) -> Vec<Vec<u32>> {
    let words = of.len().div_ceil(64);
    let mut bits = vec![0u64; words];
    let mut rows: Vec<Vec<u64>> = Vec::with_capacity(members.len());
    for m in members {
        let mut row = vec![0u64; words];
        for &i in m {
            row[i as usize / 64] |= 1 << (i % 64);
        }
        rows.push(row);
    }
    let mut out = Vec::with_capacity(of.len());
    for (i, of) in of.iter().enumerate() {
        bits.fill(0);
        for &s in of {
            for (b, r) in bits.iter_mut().zip(&rows[s as usize]) {
                *b |= r;
            }
        }
        *work += (of.len() * words) as u64 / 4;
        bits[i / 64] &= !(1 << (i % 64));
        let mut list = Vec::with_capacity(bits.iter().map(|b| b.count_ones() as usize).sum());
        for (w, &word) in bits.iter().enumerate() {
            let mut word = word;
            while word != 0 {
                list.push(64 * w as u32 + word.trailing_zeros());
                word &= word - 1;
            }
        }
        *work += list.len() as u64;
        out.push(list);
    }
    out
}

/// Live sets after a start that is followed by an end; all of them when `dominate` is off.
fn live_sets(instance: &Instance, dominate: bool) -> Vec<Vec<u32>> {
    let mut starts: Vec<(i32, u32)> = Vec::new();
    let mut ends: Vec<(i32, u32)> = Vec::new();
    for (i, item) in instance.items.iter().enumerate() {
        for r in &item.rects {
            starts.push((r.start, i as u32));
            ends.push((r.end, i as u32));
        }
    }
    starts.sort_unstable();
    ends.sort_unstable();
    let mut live: Vec<u32> = Vec::new();
    let mut sets = Vec::new();
    let (mut s, mut e) = (0, 0);
    let mut grown = false;
    while s < starts.len() {
        let at = starts[s].0;
        while e < ends.len() && ends[e].0 <= at {
            if grown {
                sets.push(live.clone());
                grown = false;
            }
            if let Some(k) = live.iter().position(|&x| x == ends[e].1) {
                live.remove(k);
            }
            e += 1;
        }
        while s < starts.len() && starts[s].0 == at {
            live.push(starts[s].1);
            s += 1;
        }
        grown = true;
        if !dominate {
            sets.push(live.clone());
        }
    }
    if grown {
        sets.push(live);
    }
    sets
}

/// Covers every conflicting pair by greedily grown cliques.
fn cliques(instance: &Instance, work: &mut u64) -> Vec<Vec<u32>> {
    let n = instance.items.len();
    let words = n.div_ceil(64);
    let mut graph = vec![vec![0u64; words]; n];
    let mut connect = |a: usize, b: usize| {
        graph[a][b / 64] |= 1 << (b % 64);
        graph[b][a / 64] |= 1 << (a % 64);
    };
    for a in 0..n {
        for &(b, _, _) in &instance.items[a].apart {
            connect(a, b as usize);
        }
        for b in a + 1..n {
            if instance.items[a].end > instance.items[b].start
                && instance.items[b].end > instance.items[a].start
                && instance.clash(a, 0, b, 0)
            {
                connect(a, b);
            }
        }
    }
    *work += (n * n) as u64;
    let mut uncovered = graph.clone();
    let mut out = Vec::new();
    for a in 0..n {
        while let Some(b) = first_bit(&uncovered[a]) {
            // Grow {a, b}: prefer items whose pairs with a are not yet covered.
            let mut clique = vec![a as u32, b as u32];
            let mut common: Vec<u64> = graph[a].iter().zip(&graph[b]).map(|(x, y)| x & y).collect();
            loop {
                let fresh: Vec<u64> = common.iter().zip(&uncovered[a]).map(|(x, y)| x & y).collect();
                let Some(c) = first_bit(&fresh).or_else(|| first_bit(&common)) else { break };
                clique.push(c as u32);
                for (x, y) in common.iter_mut().zip(&graph[c]) {
                    *x &= y;
                }
            }
            *work += (clique.len() * (2 * words + clique.len())) as u64;
            for &x in &clique {
                for &y in &clique {
                    uncovered[x as usize][y as usize / 64] &= !(1 << (y % 64));
                }
            }
            out.push(clique);
        }
    }
    out
}

fn first_bit(words: &[u64]) -> Option<usize> {
    words.iter().position(|&w| w != 0).map(|k| 64 * k + words[k].trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::instance::{Live, SpaceBuffer, SpaceProblem};

    fn buffer(size: u64, ranges: &[(u64, u64)]) -> SpaceBuffer {
        let live = ranges.iter().map(|&(start, end)| Live { start, end, low: 0, high: size }).collect();
        SpaceBuffer { size, alignment: 1, live, pin: None, hint: None }
    }

    fn sections(raw: &SpaceProblem) -> Sections {
        Sections::new(&Instance::new(raw).unwrap(), true)
    }

    #[test]
    fn live_sets_are_local_maxima() {
        let raw = SpaceProblem {
            buffers: vec![buffer(1, &[(0, 4)]), buffer(1, &[(1, 3)]), buffer(1, &[(2, 6)]), buffer(1, &[(5, 7)])],
            ..SpaceProblem::default()
        };
        assert_eq!(sections(&raw).members, vec![vec![0, 1, 2], vec![2, 3]]);
    }

    #[test]
    fn separations_add_and_exclusions_remove_conflicts() {
        let mut raw = SpaceProblem {
            buffers: vec![buffer(1, &[(0, 2)]), buffer(1, &[(0, 2)]), buffer(1, &[(3, 4)])],
            apart: vec![(0, 2)],
            exclusive: vec![(0, 1)],
            ..SpaceProblem::default()
        };
        assert_eq!(sections(&raw).members, vec![vec![0, 2], vec![1]]);
        raw.apart.push((1, 2));
        raw.exclusive.clear();
        assert_eq!(sections(&raw).members, vec![vec![0, 1, 2]]);
    }
}
