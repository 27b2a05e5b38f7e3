//! Which members of each section still wait: a set that gives an item up and takes it back in constant time a section.
//!
//! ```text
//!   items[t]:  7  2  9 | 4  1        the first count[t] wait, the others are placed;
//!              waiting   placed      the last one placed is the first behind the bar
//! ```

use super::super::sections::Sections;

/// Waiting members of the sections; items come back in the reverse of the order in which they went.
pub(super) struct Live {
    items: Vec<Vec<u32>>,
    /// Which of its sections this is to the item in that position.
    which: Vec<Vec<u32>>,
    /// Position of an item in each of its sections.
    at: Vec<Vec<u32>>,
    count: Vec<u32>,
}

impl Live {
    /// Everything waits.
    pub fn new(sections: &Sections) -> Live {
        let mut at: Vec<Vec<u32>> = sections.of.iter().map(|of| Vec::with_capacity(of.len())).collect();
        let mut which = Vec::with_capacity(sections.members.len());
        // `of` lists the sections of an item in this order.
        for members in &sections.members {
            which.push(members.iter().map(|&i| at[i as usize].len() as u32).collect());
            for (position, &i) in members.iter().enumerate() {
                at[i as usize].push(position as u32);
            }
        }
        let count = sections.members.iter().map(|m| m.len() as u32).collect();
        Live { items: sections.members.clone(), which, at, count }
    }

    /// Waiting members of a section, in no particular order.
    pub fn members(&self, t: usize) -> &[u32] {
        &self.items[t][..self.count[t] as usize]
    }

    /// An item is placed.
    pub fn remove(&mut self, i: usize, of: &[u32]) {
        for (k, &t) in of.iter().enumerate() {
            let t = t as usize;
            let last = self.count[t] - 1;
            let (here, end) = (self.at[i][k] as usize, last as usize);
            let other = self.items[t][end] as usize;
            let other_which = self.which[t][end] as usize;
            self.items[t].swap(here, end);
            self.which[t].swap(here, end);
            self.at[other][other_which] = here as u32;
            self.at[i][k] = last;
            self.count[t] = last;
        }
    }

    /// The item that was placed last waits again.
    pub fn restore(&mut self, of: &[u32]) {
        for &t in of {
            self.count[t as usize] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_removed_comes_back() {
        let sections = Sections {
            members: vec![vec![0, 1, 2], vec![1, 2, 3], vec![3]],
            of: vec![vec![0], vec![0, 1], vec![0, 1], vec![1, 2]],
            first_in: vec![],
            conflicts: vec![],
            work: 0,
        };
        let mut live = Live::new(&sections);
        let sorted = |live: &Live, t: usize| {
            let mut m = live.members(t).to_vec();
            m.sort_unstable();
            m
        };
        for order in [[1, 3, 0, 2], [2, 0, 3, 1], [0, 1, 2, 3]] {
            for (gone, &i) in order.iter().enumerate() {
                live.remove(i, &sections.of[i]);
                for t in 0..3 {
                    let mut expected = sections.members[t].clone();
                    expected.retain(|j| !order[..=gone].contains(&(*j as usize)));
                    assert_eq!(sorted(&live, t), expected);
                }
            }
            for &i in order.iter().rev() {
                live.restore(&sections.of[i]);
            }
            assert_eq!((sorted(&live, 0), sorted(&live, 1)), (vec![0, 1, 2], vec![1, 2, 3]));
        }
    }
}
