//! What an observer of a detailed run sees: every command, every burst.

use super::transfer::{RequesterId, TransferId};

/// A command on a channel's command bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The clock of the memory.
    pub at: u64,
    /// The channel.
    pub channel: u32,
    /// What it does.
    pub kind: Kind,
}

/// What a command does. Banks and ranks are numbered within the channel, see [`super::Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Opens a row.
    Activate {
        /// The bank.
        bank: u32,
        /// The row.
        row: u32,
    },
    /// Closes the open row of a bank.
    Precharge {
        /// The bank.
        bank: u32,
    },
    /// Closes the open rows of all banks of a rank.
    PrechargeAll {
        /// The rank (pseudo-channel and rank in one number).
        rank: u32,
    },
    /// Reads a burst of the open row.
    Read {
        /// The bank.
        bank: u32,
        /// The row that must be open.
        row: u32,
        /// The burst in the row.
        column: u32,
    },
    /// Writes a burst of the open row.
    Write {
        /// The bank.
        bank: u32,
        /// The row that must be open.
        row: u32,
        /// The burst in the row.
        column: u32,
    },
    /// Refreshes a rank; its banks are closed.
    Refresh {
        /// The rank (pseudo-channel and rank in one number).
        rank: u32,
    },
}

/// A burst that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The transfer that it is part of.
    pub transfer: TransferId,
    /// Who asked.
    pub requester: RequesterId,
    /// The clock at which its channel took it in.
    pub accepted: u64,
    /// The clock at which it came back (a write: at which it was taken in).
    pub done: u64,
}

/// Sees a detailed run. Both calls come in order of time within a channel.
pub trait Observer {
    /// A command is issued.
    fn command(&mut self, command: &Command) {
        let _ = command;
    }

    /// A burst came back.
    fn served(&mut self, served: &Served) {
        let _ = served;
    }
}

/// Sees nothing and costs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}
