//! What can be wrong with a graph or with what was asked of it.

use npumem_ir::{Alignment, TensorId};

/// A graph that cannot become a problem, with the offending item and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// An operator or the graph names a tensor that does not exist.
    #[error("{user} names tensor {id}, and its graph has {tensors} tensors")]
    UnknownTensor {
        /// Who names it.
        user: String,
        /// The id it names.
        id: TensorId,
        /// How many tensors there are.
        tensors: usize,
    },
    /// A value is read before the operator that makes it has run.
    #[error("operator '{operator}' reads '{tensor}' before any operator makes it: sort the operators topologically")]
    UsedBeforeMade {
        /// The reader.
        operator: String,
        /// What it reads.
        tensor: String,
    },
    /// Two operators make the same value.
    #[error("operator '{operator}' makes '{tensor}', which already has a producer or is not a computed tensor")]
    MadeTwice {
        /// The second maker.
        operator: String,
        /// What it makes.
        tensor: String,
    },
    /// A size past 64 bits.
    #[error("tensor '{tensor}' needs more bytes than 64 bits can count: check its dimensions")]
    TooLarge {
        /// The tensor.
        tensor: String,
    },
    /// A static plan needs a number where a dimension is open.
    #[error(
        "a static plan needs the size of '{tensor}', and its {open}: give `--dim {symbol}=N` or a range `--dim {symbol}=LO..HI`, or use `--strategy hybrid`"
    )]
    OpenInStatic {
        /// The tensor.
        tensor: String,
        /// What is open about it.
        open: String,
        /// The symbol to bind.
        symbol: String,
    },
    /// A tensor about whose size nothing is known, not even a dimension to bind.
    #[error(
        "a static plan needs the shape of '{tensor}': give `--shape {tensor}=D0xD1x...`, or use `--strategy hybrid`"
    )]
    NoShapeInStatic {
        /// The tensor.
        tensor: String,
    },
    /// A range of a dimension that holds nothing.
    #[error("dimension '{symbol}' has the reversed range {low}..{high}: the first number is the least it can be")]
    ReversedRange {
        /// The dimension.
        symbol: String,
        /// The least.
        low: u64,
        /// The most.
        high: u64,
    },
    /// A workspace for an operator that is not there.
    #[error("a workspace is given for operator '{operator}', and the graph has no operator of that name")]
    UnknownOperator {
        /// The name that was given.
        operator: String,
    },
    /// The static region does not fit 64 bits.
    #[error(
        "weights, constants, inputs and outputs together, at alignment {alignment}, need more than 64 bits can count"
    )]
    StaticTooLarge {
        /// The alignment of each of them.
        alignment: Alignment,
    },
}
