//! What can be wrong with a part, a requester or a transfer.

use npumem_ir::device::MissingFigure;
use thiserror::Error;

/// A description from which no memory can be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PartError {
    /// The device does not state a figure that the model needs.
    #[error(transparent)]
    Missing(#[from] MissingFigure),
    /// A figure that the model cannot work with.
    #[error("DRAM `{part}`: `{figure}` is {value}; it must be {must}")]
    Figure {
        /// The part.
        part: String,
        /// The figure's name.
        figure: &'static str,
        /// Its value.
        value: u64,
        /// What it must be.
        must: &'static str,
    },
    /// An address mapping that cannot be read.
    #[error("address mapping `{mapping}`: {why}; an example: `rorabgbachco`")]
    Mapping {
        /// The mapping as written.
        mapping: String,
        /// What is wrong with it.
        why: String,
    },
    /// A standard whose data rate this model does not know.
    #[error(
        "device `{device}`: `{path}` is `{standard}`, whose data rate is not known here; known: {known}",
        known = super::described::STANDARDS
    )]
    Standard {
        /// The device.
        device: String,
        /// The figure, as `space.dram.standard`.
        path: String,
        /// The standard as written.
        standard: String,
    },
}

/// A call that the memory refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// There is no such requester.
    #[error("requester {requester} does not exist: {count} were added")]
    NoRequester {
        /// The number given.
        requester: u32,
        /// How many there are.
        count: u32,
    },
    /// A requester that could never issue anything.
    #[error("a requester needs `{figure}` of at least 1")]
    Idle {
        /// The figure that is zero.
        figure: &'static str,
    },
    /// The memory's time is past the given clock.
    #[error("a transfer at clock {at} comes too late: the memory is at clock {now}; submit in order of time")]
    Past {
        /// The clock given.
        at: u64,
        /// The memory's time.
        now: u64,
    },
    /// Addresses past what the mapping can place.
    #[error("the transfer ends at address {end}, past the last address {most} that this memory can place")]
    Address {
        /// The first address after the transfer.
        end: u64,
        /// The most that there may be.
        most: u64,
    },
}
