//! The table of blocks: one 32-byte entry a block, out of band, reached by index.
//!
//! ```text
//!   entry    offset | size | previous | next | before | after | generation | state
//!                            neighbours in    list of its bin
//!                            address order
//! ```
//! The first [`HEADS`] entries head the circular lists of the bins: an empty list points at its
//! own head, so linking and unlinking need no test for the ends. Entry 0 also stands for "none":
//! its size is zero and its state [`END`], so a walk that runs off either end stops by itself.
//!
//! A node is named by the position of its first word, eight times its entry's number: what is stored is
//! what addresses. The table has a fixed power-of-two length and every name is masked, so no access can panic
//! and none is checked. The memory comes zeroed from the system and is touched only as blocks come into use.

/// Entries of the table.
pub(crate) const ENTRIES: usize = 1 << 20;
const WORDS: usize = 8;
const MASK: u32 = (ENTRIES * WORDS) as u32 - WORDS as u32;
/// From an entry's number to the name of its node.
const SCALE: u32 = WORDS.trailing_zeros();
/// Blocks whose entries are touched at the start: 256 KiB.
const TOUCHED: u32 = 1 << 13;
/// Bins of one set.
pub(crate) const BINS: u32 = 1 << 10;
/// Sets of bins.
pub(crate) const SETS: u32 = 4;
/// Entries that head the lists of the bins.
pub(crate) const HEADS: u32 = BINS * SETS;

/// The state of what is no block: the ends of the address range, spare entries.
pub(crate) const END: u32 = 0;
/// In a bin. The low two bits of a state are the set.
pub(crate) const FREE: u32 = 0x10;
/// Handed out, or held back.
pub(crate) const USED: u32 = 0x20;
/// The bits of a state that name the set.
pub(crate) const SET: u32 = 3;

const OFFSET: usize = 0;
const SIZE: usize = 1;
const PREVIOUS: usize = 2;
const NEXT: usize = 3;
const BEFORE: usize = 4;
const AFTER: usize = 5;
const GENERATION: usize = 6;
const STATE: usize = 7;

/// See the module.
pub(crate) struct Nodes {
    words: Box<[u32; ENTRIES * WORDS]>,
    /// Entries that came back, linked by their `after`.
    spare: u32,
    /// The first entry that was never used.
    fresh: u32,
    /// Entries whose generations are used up.
    abandoned: u32,
    /// Reads and writes of the table: the work of a call, as the tests count it.
    #[cfg(test)]
    pub(crate) accesses: std::cell::Cell<u64>,
}

macro_rules! field {
    ($get:ident, $set:ident, $field:ident, $mask:expr) => {
        #[inline(always)]
        pub(crate) fn $get(&self, node: u32) -> u32 {
            #[cfg(test)]
            self.accesses.set(self.accesses.get() + 1);
            self.words[(node & MASK) as usize + $field] & $mask
        }
        #[inline(always)]
        pub(crate) fn $set(&mut self, node: u32, value: u32) {
            #[cfg(test)]
            self.accesses.set(self.accesses.get() + 1);
            self.words[(node & MASK) as usize + $field] = value;
        }
    };
}

/// The head of a bin.
#[inline(always)]
pub(crate) const fn head_of(bin: u32) -> u32 {
    bin << SCALE
}

/// The bin that a head is for.
#[inline(always)]
pub(crate) const fn bin_of_head(head: u32) -> u32 {
    head >> SCALE
}

impl Nodes {
    pub(crate) fn new() -> Self {
        let words: Result<Box<[u32; ENTRIES * WORDS]>, _> = vec![0; ENTRIES * WORDS].into_boxed_slice().try_into();
        let Ok(words) = words else { unreachable!("the slice was made with this length") };
        let mut nodes = Self {
            words,
            spare: 0,
            fresh: head_of(HEADS),
            abandoned: 0,
            #[cfg(test)]
            accesses: std::cell::Cell::new(0),
        };
        for head in (0..HEADS).map(head_of) {
            nodes.set_before(head, head);
            nodes.set_after(head, head);
        }
        // Touches the memory of the first blocks, so that no early call waits for the system to find it.
        for node in (HEADS..HEADS + TOUCHED).map(head_of) {
            nodes.set_generation(node, 2);
        }
        nodes
    }

    field!(offset, set_offset, OFFSET, u32::MAX);
    field!(size, set_size, SIZE, u32::MAX);
    field!(previous, set_previous, PREVIOUS, MASK);
    field!(next, set_next, NEXT, MASK);
    field!(before, set_before, BEFORE, MASK);
    field!(after, set_after, AFTER, MASK);
    field!(generation, set_generation, GENERATION, u32::MAX);
    field!(state, set_state, STATE, u32::MAX);
    // A block that is in no bin keeps two numbers in place of the links.
    field!(first_note, set_first_note, BEFORE, u32::MAX);
    field!(second_note, set_second_note, AFTER, u32::MAX);

    /// Whether a number names an entry of the table.
    #[inline(always)]
    pub(crate) fn is_name(node: u32) -> bool {
        node & !MASK == 0
    }

    /// Whether `count` more entries can be taken; walks at most that many spare ones.
    pub(crate) fn has_room(&self, count: u32) -> bool {
        let mut found = (ENTRIES as u32) - (self.fresh >> SCALE);
        let mut spare = self.spare;
        while found < count && spare != 0 {
            found += 1;
            spare = self.after(spare);
        }
        found >= count
    }

    /// The end of the names that were ever given out.
    pub(crate) fn ever_used(&self) -> u32 {
        self.fresh
    }

    /// Entries that were ever given out, the bins' heads included.
    pub(crate) fn ever_taken(&self) -> u32 {
        self.fresh >> SCALE
    }

    /// Entries in use as blocks of any state; walks the spare ones.
    pub(crate) fn in_use(&self) -> u32 {
        let mut count = (self.fresh >> SCALE) - HEADS - self.abandoned;
        let mut spare = self.spare;
        while spare != 0 && count > 0 {
            count -= 1;
            spare = self.after(spare);
        }
        count
    }

    /// Takes an entry; 0 when the table is full.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> u32 {
        let node = self.spare;
        if node != 0 {
            self.spare = self.after(node);
            return node;
        }
        let node = self.fresh;
        if node == (ENTRIES * WORDS) as u32 {
            return 0;
        }
        self.fresh = node + WORDS as u32;
        node
    }

    /// Marks an entry as one that is never used again.
    pub(crate) fn abandon(&mut self, node: u32) {
        self.set_state(node, END);
        self.abandoned += 1;
    }

    /// Gives an entry back.
    #[inline(always)]
    pub(crate) fn give(&mut self, node: u32) {
        self.set_state(node, END);
        self.set_after(node, self.spare);
        self.spare = node;
    }
}
