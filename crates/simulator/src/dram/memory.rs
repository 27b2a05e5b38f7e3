//! One memory at either level of detail.

use super::detailed::Detailed;
use super::error::{PartError, RequestError};
use super::fast::Fast;
use super::part::Part;
use super::transfer::{Completion, Requester, RequesterId, Transfer, TransferId};

/// How closely a memory is simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Bandwidth and latency by shape of transfer, see [`Fast`].
    #[default]
    Fast,
    /// Command by command, see [`Detailed`].
    Detailed,
}

/// A memory at either level of detail, with one interface; what only one level knows is asked of it by matching.
#[derive(Clone, Debug)]
pub enum Memory {
    /// Bandwidth and latency.
    Fast(Box<Fast>),
    /// Command by command.
    Detailed(Box<Detailed>),
}

impl Memory {
    /// A memory at clock zero.
    ///
    /// # Errors
    /// A figure or a mapping that the model cannot work with.
    pub fn new(part: &Part, detail: Detail) -> Result<Self, PartError> {
        Ok(match detail {
            Detail::Fast => Memory::Fast(Box::new(Fast::new(part)?)),
            Detail::Detailed => Memory::Detailed(Box::new(Detailed::new(part)?)),
        })
    }

    /// See [`Detailed::add_requester`].
    ///
    /// # Errors
    /// For one that could never issue anything.
    pub fn add_requester(&mut self, limits: Requester) -> Result<RequesterId, RequestError> {
        match self {
            Memory::Fast(memory) => memory.add_requester(limits),
            Memory::Detailed(memory) => memory.add_requester(limits),
        }
    }

    /// See [`Detailed::submit`].
    ///
    /// # Errors
    /// An unknown requester, a clock that is past, addresses that the mapping cannot place.
    pub fn submit(&mut self, at: u64, transfer: Transfer) -> Result<TransferId, RequestError> {
        match self {
            Memory::Fast(memory) => memory.submit(at, transfer),
            Memory::Detailed(memory) => memory.submit(at, transfer),
        }
    }

    /// See [`Detailed::run_until`].
    pub fn run_until(&mut self, until: u64) -> Option<Completion> {
        match self {
            Memory::Fast(memory) => memory.run_until(until),
            Memory::Detailed(memory) => memory.run_until(until),
        }
    }

    /// The clock up to which everything has happened.
    #[must_use]
    pub fn now(&self) -> u64 {
        match self {
            Memory::Fast(memory) => memory.now(),
            Memory::Detailed(memory) => memory.now(),
        }
    }

    /// No transfer is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        match self {
            Memory::Fast(memory) => memory.is_idle(),
            Memory::Detailed(memory) => memory.is_idle(),
        }
    }
}
