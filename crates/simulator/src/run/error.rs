//! Why a program cannot be run.

use crate::dram::{PartError, RequestError};
use npumem_ir::StepId;
use npumem_ir::device::MissingFigure;
use npumem_ir::program::ProgramError;
use thiserror::Error;

/// Why a program cannot be run on a device.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum RunError {
    /// The program breaks a rule of programs.
    #[error("{0}")]
    Program(#[from] ProgramError),
    /// The device does not say a figure that this program's time follows from.
    #[error("{0}")]
    Missing(#[from] MissingFigure),
    /// The device's description of its main memory makes no memory that can be run command by command.
    #[error("{0}")]
    Dram(#[from] PartError),
    /// The main memory refuses a transfer.
    #[error("main memory: {0}")]
    Request(#[from] RequestError),
    /// More bytes than can be run command by command.
    #[error("more than {most} bursts from and to the main memory: too many for --detail detailed; use --detail fast")]
    Traffic {
        /// The most bursts of a run.
        most: u64,
    },
    /// A buffer lies in a space that the device does not have.
    #[error("buffer '{buffer}' lies in '{space}'; device `{device}` has {known}")]
    UnknownSpace {
        /// The buffer.
        buffer: String,
        /// Its space.
        space: String,
        /// The device.
        device: String,
        /// The device's spaces.
        known: String,
    },
    /// Nothing on the device does what a statement asks.
    #[error("statement {step} ({operation}, line {line}): device `{device}` has {problem}")]
    NoEngine {
        /// The statement.
        step: StepId,
        /// What it does.
        operation: String,
        /// Line of the source, 0 without one.
        line: u32,
        /// The device.
        device: String,
        /// What is missing, in words.
        problem: String,
    },
    /// A loop bound or a branch follows from an argument that has no value.
    #[error("step {step} ({what}) follows from '{names}', without a value: give it with --dim {first}=VALUE")]
    Unbound {
        /// The statement.
        step: StepId,
        /// What the statement is.
        what: String,
        /// The arguments without a value.
        names: String,
        /// The first of them.
        first: String,
    },
    /// A grid that is too large to run.
    #[error("a grid of {blocks} blocks is more than the {most} that are run")]
    Grid {
        /// What was asked for.
        blocks: u64,
        /// The most.
        most: u64,
    },
}
