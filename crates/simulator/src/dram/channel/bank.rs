//! A bank: its open row, the clocks before which it takes no command, and the commands that wait for it.

/// No row is open.
pub(super) const CLOSED: u32 = u32::MAX;

/// What a request found at its bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Its row was open.
    Hit,
    /// No row was open.
    Closed,
    /// Another row had to be closed first.
    OtherRow,
}

/// A request at its bank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub row: u32,
    pub column: u32,
    pub transfer: u32,
    /// The order of arrival at the channel.
    pub age: u32,
    pub accepted: u64,
    pub write: bool,
    /// Its row was opened for it.
    pub opened: bool,
    pub found: Found,
}

impl Entry {
    /// By age: a request whose row was opened for it first, then the older one.
    pub fn goes_before(&self, other: &Entry) -> bool {
        if self.opened != other.opened {
            return self.opened;
        }
        // Ages wrap: what is younger lies less than half the range ahead.
        (self.age.wrapping_sub(other.age) as i32) < 0
    }
}

#[derive(Clone, Debug)]
pub(super) struct Bank {
    pub act_ok: u64,
    pub pre_ok: u64,
    pub read_ok: u64,
    pub write_ok: u64,
    pub open_row: u32,
    /// Column commands since the row was opened.
    pub served: u32,
    pub group: u8,
    pub rank: u8,
    /// The activate that opened the row waited for the rank's limits, not for the bank.
    pub held_by_rank: bool,
    /// Places in `queue` of the oldest read and the oldest write of the open row.
    pub first_read: Option<u16>,
    pub first_write: Option<u16>,
    pub writes: u16,
    /// Oldest first.
    pub queue: Vec<Entry>,
    depth: usize,
}

impl Bank {
    pub fn new(group: u8, rank: u8, depth: usize) -> Self {
        Bank {
            act_ok: 0,
            pre_ok: 0,
            read_ok: 0,
            write_ok: 0,
            open_row: CLOSED,
            served: 0,
            group,
            rank,
            held_by_rank: false,
            first_read: None,
            first_write: None,
            writes: 0,
            queue: Vec::new(),
            depth,
        }
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.queue.len() >= self.depth
    }

    /// Looks for the oldest read and write of the open row again.
    #[inline]
    pub fn find_hits(&mut self) {
        (self.first_read, self.first_write) = (None, None);
        if self.open_row == CLOSED {
            return;
        }
        for (place, entry) in self.queue.iter().enumerate() {
            if entry.row != self.open_row {
                continue;
            }
            if !entry.write {
                if self.first_read.is_none() {
                    self.first_read = Some(place as u16);
                }
                if self.writes == 0 {
                    return;
                }
            } else if self.first_write.is_none() && !self.follows_read(place) {
                self.first_write = Some(place as u16);
            }
            if self.first_read.is_some() && self.first_write.is_some() {
                return;
            }
        }
    }

    /// Whether an older read of the same burst waits before the write at `place`.
    fn follows_read(&self, place: usize) -> bool {
        let write = &self.queue[place];
        self.queue[..place].iter().any(|entry| !entry.write && entry.row == write.row && entry.column == write.column)
    }

    /// Whether the oldest command is for another row than the open one and may close it.
    #[inline]
    pub fn may_close(&self, row_hits: u32) -> bool {
        self.open_row != CLOSED
            && self.queue.first().is_some_and(|head| head.row != self.open_row)
            && ((self.first_read.is_none() && self.first_write.is_none()) || self.served >= row_hits)
    }
}
