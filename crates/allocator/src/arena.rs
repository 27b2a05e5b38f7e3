//! Blocks side by side over one range of offsets, and the free ones sorted into bins by size.
//!
//! ```text
//!   offsets   |  used  | free |cached|   used   |  free  | unmapped ...
//!             previous <--- each block knows its neighbours ---> next
//!   bins      32 to a power of two; a bitmap says which are not empty
//! ```
//! Everything here counts in units (the allocator that uses it says how many bytes a unit has),
//! knows no statistics and never fails: callers ask for room in the table first.
//! Finding, splitting and merging are `O(1)`: two bitmap words and the block's own neighbours.
//!
//! A *set* is a family of bins. Only free blocks of one set merge, so sets keep kinds of block apart
//! (small from large, mapped from unmapped) though all lie in one range.

use crate::nodes::{BINS, END, FREE, HEADS, Nodes, SET, SETS, USED, bin_of_head, head_of};

const WORDS: usize = (HEADS / 64) as usize;
const WORDS_OF_SET: u32 = BINS / 64;

/// See the module.
pub(crate) struct Arena {
    pub(crate) nodes: Nodes,
    /// One bit a bin: it holds a block.
    occupied: [u64; WORDS],
    /// One bit a word of `occupied`.
    summary: u64,
}

/// The bin of a size: 32 to a power of two, exact below 64 units.
///
/// With `k` the position of the highest bit, `size >> (k - 5)` is its six leading bits (32 to 63),
/// and each power of two adds 32.
#[inline(always)]
pub(crate) const fn bin_of(size: u32) -> u32 {
    let shift = 26 - (size | 32).leading_zeros();
    (size >> shift) + (shift << 5)
}

impl Arena {
    pub(crate) fn new() -> Self {
        Self { nodes: Nodes::new(), occupied: [0; WORDS], summary: 0 }
    }

    /// The block at the lowest offset, 0 when there is none.
    pub(crate) fn first(&self) -> u32 {
        self.nodes.next(0)
    }

    /// Puts the first block of the range: free, in a set.
    pub(crate) fn open(&mut self, offset: u32, size: u32, set: u32) -> u32 {
        let node = self.nodes.take();
        self.nodes.set_offset(node, offset);
        self.nodes.set_size(node, size);
        self.nodes.set_previous(node, 0);
        self.nodes.set_next(node, 0);
        self.nodes.set_next(0, node);
        self.insert(node, set);
        node
    }

    /// Sorts a block into the bin of its size.
    #[inline(always)]
    pub(crate) fn insert(&mut self, node: u32, set: u32) {
        let bin = bin_of(self.nodes.size(node)) + set * BINS;
        self.insert_into(node, bin, set);
    }

    #[inline(always)]
    fn insert_into(&mut self, node: u32, bin: u32, set: u32) {
        let nodes = &mut self.nodes;
        let head = head_of(bin);
        let after = nodes.after(head);
        nodes.set_state(node, FREE | set);
        nodes.set_before(node, head);
        nodes.set_after(node, after);
        nodes.set_before(after, node);
        nodes.set_after(head, node);
        let word = bin >> 6;
        self.occupied[word as usize % WORDS] |= 1 << (bin & 63);
        self.summary |= 1 << (word & 63);
    }

    /// Takes a free block out of its bin.
    #[inline(always)]
    pub(crate) fn unlink(&mut self, node: u32) {
        let before = self.nodes.before(node);
        let after = self.nodes.after(node);
        self.nodes.set_after(before, after);
        self.nodes.set_before(after, before);
        if before == after {
            // Both are the head: the bin is empty now.
            let bin = bin_of_head(before);
            let word = (bin >> 6) as usize % WORDS;
            self.occupied[word] &= !(1 << (bin & 63));
            if self.occupied[word] == 0 {
                self.summary &= !(1 << word);
            }
        }
    }

    /// The newest block of a bin, 0 for an empty one.
    #[inline(always)]
    pub(crate) fn newest(&self, bin: u32) -> u32 {
        self.nodes.after(head_of(bin))
    }

    /// The first bin, from that of the size on, whose newest block holds `size`; 0 when there is none.
    /// `bin` is the bin of the size within all sets.
    ///
    /// The newest block of the size's own bin is tried first; every block of any later bin fits.
    #[inline(always)]
    pub(crate) fn find_bin(&self, size: u32, bin: u32) -> u32 {
        // The head of an empty bin is its own newest and has size zero.
        if self.nodes.size(self.newest(bin)) >= size { bin } else { self.next_bin(bin) }
    }

    /// Cuts `size` units off the front of a free block of `bin` and says which block they are; they are in no bin.
    /// The rest stays free. 0, and nothing happened, when the table is full.
    #[inline(always)]
    pub(crate) fn carve(&mut self, node: u32, size: u32, bin: u32) -> u32 {
        let nodes = &mut self.nodes;
        let rest = nodes.size(node) - size;
        if rest == 0 {
            self.unlink(node);
            return node;
        }
        let front = nodes.take();
        if front == 0 {
            return 0;
        }
        let offset = nodes.offset(node);
        let previous = nodes.previous(node);
        nodes.set_offset(front, offset);
        nodes.set_size(front, size);
        nodes.set_previous(front, previous);
        nodes.set_next(front, node);
        nodes.set_next(previous, front);
        nodes.set_offset(node, offset + size);
        nodes.set_size(node, rest);
        nodes.set_previous(node, front);
        // A rest of the same bin stays where it is.
        let rest_bin = bin_of(rest) + (bin & !(BINS - 1));
        if rest_bin != bin {
            self.unlink(node);
            self.insert_into(node, rest_bin, bin / BINS);
        }
        front
    }

    /// Cuts up to `count` blocks of `size` units off the front of a free block of `bin` that is larger than all of them together,
    /// and says which is the first, and how many they are: fewer when the table is full. They are marked as used.
    pub(crate) fn carve_run(&mut self, node: u32, size: u32, count: u32, bin: u32) -> (u32, u32) {
        let nodes = &mut self.nodes;
        let before = nodes.previous(node);
        let mut offset = nodes.offset(node);
        let mut previous = before;
        let mut made = 0;
        while made < count {
            let front = nodes.take();
            if front == 0 {
                break;
            }
            nodes.set_offset(front, offset);
            nodes.set_size(front, size);
            nodes.set_previous(front, previous);
            nodes.set_next(previous, front);
            nodes.set_state(front, USED | (bin / BINS));
            offset += size;
            previous = front;
            made += 1;
        }
        if made == 0 {
            return (0, 0);
        }
        let rest = nodes.size(node) - made * size;
        nodes.set_next(previous, node);
        nodes.set_offset(node, offset);
        nodes.set_size(node, rest);
        nodes.set_previous(node, previous);
        let first = nodes.next(before);
        let rest_bin = bin_of(rest) + (bin & !(BINS - 1));
        if rest_bin != bin {
            self.unlink(node);
            self.insert_into(node, rest_bin, bin / BINS);
        }
        (first, made)
    }

    /// The first bin with a block after `bin`, in its set; 0 when there is none.
    #[inline(always)]
    pub(crate) fn next_bin(&self, bin: u32) -> u32 {
        let word = bin >> 6;
        let bits = self.occupied[word as usize % WORDS] & (!1 << (bin & 63));
        if bits != 0 {
            return (bin & !63) + bits.trailing_zeros();
        }
        let words = self.summary & (!1 << (word & 63));
        if words == 0 {
            return 0;
        }
        let next = words.trailing_zeros();
        if (next ^ word) >= WORDS_OF_SET {
            return 0;
        }
        (next << 6) + self.occupied[next as usize % WORDS].trailing_zeros()
    }

    /// The last bin of the set with a block; 0 when the set is empty.
    pub(crate) fn last_bin(&self, set: u32) -> u32 {
        let words = (self.summary >> (set * WORDS_OF_SET)) as u32 & ((1 << WORDS_OF_SET) - 1);
        if words == 0 {
            return 0;
        }
        self.last_bit(set * WORDS_OF_SET + (31 - words.leading_zeros()))
    }

    /// The last bin of the set with a block before `bin`; 0 when there is none.
    pub(crate) fn bin_before(&self, bin: u32) -> u32 {
        let word = bin >> 6;
        let bits = self.occupied[word as usize % WORDS] & ((1 << (bin & 63)) - 1);
        if bits != 0 {
            return (word << 6) + 63 - bits.leading_zeros();
        }
        let floor = word / WORDS_OF_SET * WORDS_OF_SET;
        let words = self.summary & ((1 << word) - 1) & (!0 << floor);
        if words == 0 { 0 } else { self.last_bit(63 - words.leading_zeros()) }
    }

    fn last_bit(&self, word: u32) -> u32 {
        (word << 6) + 63 - self.occupied[word as usize % WORDS].leading_zeros()
    }

    /// Cuts a block that is in no bin: it keeps `size`, and the rest is a new block behind it, in no bin yet.
    #[inline(always)]
    pub(crate) fn split(&mut self, node: u32, size: u32) -> u32 {
        let nodes = &mut self.nodes;
        let rest = nodes.take();
        let whole = nodes.size(node);
        let next = nodes.next(node);
        nodes.set_offset(rest, nodes.offset(node) + size);
        nodes.set_size(rest, whole - size);
        nodes.set_previous(rest, node);
        nodes.set_next(rest, next);
        nodes.set_size(node, size);
        nodes.set_next(node, rest);
        // At the end of the range this writes to entry 0, whose `previous` nobody reads.
        nodes.set_previous(next, rest);
        rest
    }

    /// Makes a block and its next neighbour one; neither is in a bin. The neighbour's entry is given back.
    #[inline(always)]
    pub(crate) fn absorb_next(&mut self, node: u32) {
        let nodes = &mut self.nodes;
        let gone = nodes.next(node);
        let next = nodes.next(gone);
        nodes.set_size(node, nodes.size(node) + nodes.size(gone));
        nodes.set_next(node, next);
        nodes.set_previous(next, node);
        nodes.give(gone);
    }

    /// Gives a block that is in no bin another entry, because the generations of its own are used up,
    /// and says which. The old entry is never used again. Without a spare entry the block keeps its own.
    #[cold]
    #[inline(never)]
    pub(crate) fn renew(&mut self, node: u32) -> u32 {
        let nodes = &mut self.nodes;
        let new = nodes.take();
        if new == 0 {
            return node;
        }
        let (previous, next) = (nodes.previous(node), nodes.next(node));
        nodes.set_offset(new, nodes.offset(node));
        nodes.set_size(new, nodes.size(node));
        nodes.set_state(new, nodes.state(node));
        nodes.set_first_note(new, nodes.first_note(node));
        nodes.set_second_note(new, nodes.second_note(node));
        nodes.set_previous(new, previous);
        nodes.set_next(new, next);
        nodes.set_next(previous, new);
        nodes.set_previous(next, new);
        nodes.abandon(node);
        new
    }

    /// Merges a block that is in no bin with its free neighbours of the set, bins the whole, and says which it is.
    #[inline(always)]
    pub(crate) fn release(&mut self, mut node: u32, set: u32) -> u32 {
        let next = self.nodes.next(node);
        if self.nodes.state(next) == FREE | set {
            self.unlink(next);
            self.absorb_next(node);
        }
        let previous = self.nodes.previous(node);
        if self.nodes.state(previous) == FREE | set {
            self.unlink(previous);
            self.absorb_next(previous);
            node = previous;
        }
        self.insert(node, set);
        node
    }

    /// The largest free block of the set in units; walks one bin.
    pub(crate) fn largest(&self, set: u32) -> u32 {
        let bin = self.last_bin(set);
        let mut largest = 0;
        let mut node = self.newest(bin);
        while bin != 0 && node != head_of(bin) {
            largest = largest.max(self.nodes.size(node));
            node = self.nodes.after(node);
        }
        largest
    }

    /// Checks the lists against each other.
    pub(crate) fn verify(&self) -> Result<(), String> {
        let nodes = &self.nodes;
        let in_use = u64::from(nodes.in_use());
        let mut free = 0_u64;
        let mut count = 0_u64;
        let (mut node, mut previous) = (self.first(), 0);
        while node != 0 {
            count += 1;
            if nodes.previous(node) != previous {
                return Err(format!("block {node} says its previous is {}, it is {previous}", nodes.previous(node)));
            }
            if previous != 0 {
                if nodes.offset(previous) + nodes.size(previous) != nodes.offset(node) {
                    return Err(format!("block {node} does not start where {previous} ends"));
                }
                if nodes.state(node) & !SET == FREE && nodes.state(node) == nodes.state(previous) {
                    return Err(format!("free blocks {previous} and {node} were not merged"));
                }
            }
            if nodes.size(node) == 0 || nodes.state(node) == END {
                return Err(format!("block {node} has size {} and state {}", nodes.size(node), nodes.state(node)));
            }
            free += u64::from(nodes.state(node) & !SET == FREE);
            if count > in_use {
                return Err("the blocks in address order run in a circle".to_owned());
            }
            (previous, node) = (node, nodes.next(node));
        }
        if count != in_use {
            return Err(format!("{count} blocks in address order, {in_use} entries in use"));
        }
        let binned = self.verify_bins(in_use)?;
        if binned == free { Ok(()) } else { Err(format!("{free} free blocks, {binned} in bins")) }
    }

    fn verify_bins(&self, in_use: u64) -> Result<u64, String> {
        let nodes = &self.nodes;
        let mut binned = 0_u64;
        for bin in 0..BINS * SETS - 1 {
            let head = head_of(bin);
            let (mut before, mut node) = (head, nodes.after(head));
            let bit = self.occupied[(bin >> 6) as usize] >> (bin & 63) & 1 == 1;
            if bit != (node != head) {
                return Err(format!("bin {bin}: the bitmap says {bit}"));
            }
            while node != head {
                binned += 1;
                if nodes.before(node) != before || nodes.state(node) != FREE | (bin / BINS) {
                    return Err(format!("block {node} in bin {bin} is linked or marked wrong"));
                }
                if bin_of(nodes.size(node)) != bin % BINS || binned > in_use {
                    return Err(format!("block {node} of size {} is in bin {bin}", nodes.size(node)));
                }
                (before, node) = (node, nodes.after(node));
            }
        }
        for word in 0..WORDS {
            if (self.summary >> word & 1 == 1) != (self.occupied[word] != 0) {
                return Err(format!("the summary of word {word} is wrong"));
            }
        }
        Ok(binned)
    }
}
