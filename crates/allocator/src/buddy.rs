//! A buddy allocator: blocks of powers of two, each with one buddy that it merges with.
//!
//! ```text
//!   order 2   |               |               |
//!   order 1   |   a   |       |       |   c   |
//!   order 0   |   |   | b |   |   |   |   |   |
//! ```
//! The tree of orders lies in one array: node `n` has the children `2n` and `2n + 1` and keeps the largest
//! order that is free below it, plus one. Finding and freeing walk one path: `O(log capacity)`, at most 40 steps.

use crate::allocator::Allocator;
use crate::block::{AllocateError, Allocated, Handle, HandleError, LiveBlock, Request, Shortage};
use crate::statistics::Statistics;
use crate::table::Table;
use npumem_ir::Bytes;

/// Blocks of powers of two.
#[derive(Clone, Debug)]
pub struct Buddy {
    /// Bytes of the smallest block: a power of two.
    leaf: u64,
    leaves: u64,
    /// Levels of the tree: the root's order.
    height: u32,
    /// One plus the largest free order below each node; zero when nothing is.
    tree: Vec<u8>,
    table: Table,
}

/// At most 2^26 smallest blocks: the tree takes two bytes for each.
const LEAVES: u64 = 1 << 26;

impl Buddy {
    /// Over `capacity` bytes with smallest blocks of `leaf` bytes, rounded up to a power of two.
    /// A capacity of more than 2^26 smallest blocks doubles their size until it fits.
    #[must_use]
    pub fn new(leaf: Bytes, capacity: Bytes) -> Self {
        let mut leaf = leaf.get().clamp(1, 1 << 40).next_power_of_two();
        while capacity.get() / leaf > LEAVES {
            leaf *= 2;
        }
        let leaves = capacity.get() / leaf;
        let height = leaves.max(1).next_power_of_two().trailing_zeros();
        let width = 1_usize << height;
        let mut tree = vec![0; 2 * width];
        tree[width..width + leaves as usize].fill(1);
        let mut buddy = Self { leaf, leaves, height, tree, table: Table::default() };
        for node in (1..width).rev() {
            buddy.tree[node] = buddy.joined(node);
        }
        buddy
    }

    /// What a node keeps, given its children.
    fn joined(&self, node: usize) -> u8 {
        let order = self.height - node.ilog2();
        let (left, right) = (self.tree[2 * node], self.tree[2 * node + 1]);
        let whole = order as u8;
        if left == whole && right == whole { whole + 1 } else { left.max(right) }
    }

    fn update_above(&mut self, mut node: usize) {
        while node > 1 {
            node /= 2;
            self.tree[node] = self.joined(node);
        }
    }

    fn order_of(&self, bytes: u64) -> u32 {
        bytes.div_ceil(self.leaf).next_power_of_two().trailing_zeros()
    }
}

impl Allocator for Buddy {
    fn name(&self) -> &'static str {
        "buddy"
    }

    fn allocate(&mut self, request: Request) -> Allocated {
        if let Err(error) = request.check(Bytes(self.leaves * self.leaf)) {
            return Err(self.table.refuse(error));
        }
        // A block is aligned to its own size.
        let order = self.order_of(request.bytes.get().max(request.alignment.get()));
        if u32::from(self.tree[1]) <= order {
            let limit = self.leaves * self.leaf;
            let error = AllocateError::OutOfMemory(Shortage::of(request, &self.statistics(), Some(limit)));
            return Err(self.table.refuse(error));
        }
        let mut node = 1;
        for _ in order..self.height {
            let (left, right) = (u32::from(self.tree[2 * node]), u32::from(self.tree[2 * node + 1]));
            // The child whose largest free block is smaller keeps the other whole.
            let take_right = right > order && (left <= order || right < left);
            node = 2 * node + usize::from(take_right);
        }
        let offset = ((node as u64) << order) - (1 << self.height);
        let block = self.table.enter(offset * self.leaf, request.bytes.get(), self.leaf << order)?;
        self.tree[node] = 0;
        self.update_above(node);
        Ok(block)
    }

    fn free(&mut self, handle: Handle) -> Result<Bytes, HandleError> {
        let block = self.table.leave(handle)?;
        let order = self.order_of(block.granted.get());
        let node = ((block.offset.get() / self.leaf + (1 << self.height)) >> order) as usize;
        self.tree[node] = order as u8 + 1;
        self.update_above(node);
        Ok(block.requested)
    }

    fn block(&self, handle: Handle) -> Result<LiveBlock, HandleError> {
        self.table.find(handle)
    }

    fn statistics(&self) -> Statistics {
        let largest = if self.tree[1] == 0 { 0 } else { self.leaf << (self.tree[1] - 1) };
        self.table.statistics(self.leaves * self.leaf, largest)
    }

    fn for_each_live(&self, visit: &mut dyn FnMut(LiveBlock)) {
        self.table.for_each(visit);
    }

    fn verify(&self) -> Result<(), String> {
        let mut taken = vec![false; self.tree.len()];
        let mut flaw = None;
        self.table.for_each(&mut |block| {
            let order = self.order_of(block.granted.get());
            let node = ((block.offset.get() / self.leaf + (1 << self.height)) >> order) as usize;
            if !(block.offset.get()).is_multiple_of(block.granted.get()) || self.tree[node] != 0 {
                flaw = Some(format!("{} is not marked in the tree", block.handle));
            }
            taken[node] = true;
        });
        for node in 1..self.tree.len() / 2 {
            if taken[node] {
                continue;
            }
            let below_taken = taken[node / 2];
            if !below_taken
                && self.tree[node] != self.joined(node)
                && self.tree[node] != self.height as u8 - node.ilog2() as u8 + 1
            {
                return Err(format!("node {node} keeps {}, its children say {}", self.tree[node], self.joined(node)));
            }
        }
        match flaw {
            Some(flaw) => Err(flaw),
            None => self.table.verify(),
        }
    }
}
