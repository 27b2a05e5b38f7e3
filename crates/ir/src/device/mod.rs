//! The description of a device: memory spaces, the links between them, and the engines that
//! move and compute.
//!
//! HBM, L2, L1, L0A, UB and registers are all just spaces. A space belongs to the whole device,
//! to a cluster of cores or to one core; a link says which engine moves bytes from one space to
//! another, how fast and in what grain; an engine that computes says what it reads and writes.
//!
//! ```text
//!   device scope   +----------------------------- hbm -----------------------------+
//!                  +------+---------------------------+---------------------+------+
//!                         | link hbm->l1              | link hbm->ub        ^ link ub->hbm
//!                         | engine mte2_aic           | engine mte2_aiv     | engine mte3_aiv
//!                 +- core aic, 24 of them -+   +- core aiv, 48 of them -----+---+
//!   core scope    | l1 -> l0a, l0b  -> l0c |   |             ub                |
//!                 |  engines mte1, cube    |   |       engine vector           |
//!                 +------------------------+   +-------------------------------+
//! ```
//!
//! Capacities: a space has `capacity` bytes; the buffers of a plan end at or below `usable`
//! (which is `capacity` unless the description says otherwise) and touch no `reserved` range:
//!
//! ```text
//!   0            reserved            usable        capacity
//!   |  buffers  |////////|  buffers  |   kept by   |
//!                                       a runtime
//! ```
//!
//! This module reads and writes text (TOML and JSON) and answers questions. It opens no file:
//! the built-in catalogue and the reading of files are the façade's.

mod error;
mod figure;
pub mod fuzzing;
mod node;
mod query;
mod read;
mod rows;
mod table;
mod validate;
mod write;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use crate::graph::ElementType;
use crate::ids::{EngineId, SpaceId};
use crate::interval::ByteRange;
use crate::units::{Alignment, Bytes, Cycles};

pub use error::{DeviceError, DeviceProblem, Position};
pub use figure::{Figure, MissingFigure, Origin, Rate};
pub use query::{Derived, PeakError};
pub use rows::{FigureRow, FigureValue};

/// The first line of every description: `format = "npumem-device"`.
pub const FORMAT: &str = "npumem-device";

/// The version of the description's format that this code reads and writes.
pub const VERSION: u64 = 1;

/// A described device.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The name used on the command line, for example `ascend-910b2`.
    pub name: String,
    /// The name for people.
    pub title: String,
    /// Who makes it.
    pub vendor: String,
    /// Other names that mean this device.
    pub aliases: Vec<String>,
    /// Remarks that a reader of figures should know.
    pub notes: Vec<String>,
    /// The clock that all cycles of this description count.
    pub clock_hz: Figure<f64>,
    /// The sources that figures refer to: key, and where to find it.
    pub sources: BTreeMap<String, String>,
    /// The kinds of cores.
    pub cores: Vec<Core>,
    /// The memory spaces, in the order of the description (large and far first).
    pub spaces: Vec<Space>,
    /// The engines, both DMA queues and compute units.
    pub engines: Vec<Engine>,
    /// The links between spaces.
    pub links: Vec<Link>,
}

/// A kind of core, by its place in [`Device::cores`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(pub u32);

impl CoreId {
    /// The position in its list.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A kind of core and how many the device has.
#[derive(Clone, Debug, PartialEq)]
pub struct Core {
    /// Its name, for example `aiv`.
    pub name: String,
    /// The name for people.
    pub title: String,
    /// How many of them the device has.
    pub count: Figure<u64>,
}

/// A memory space.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    /// Its name, for example `ub`.
    pub name: String,
    /// The name for people, for example `Unified Buffer`.
    pub title: String,
    /// What it is used for, in plain words.
    pub role: String,
    /// Names by which foreign formats mean this space, for example `vec`.
    pub aliases: Vec<String>,
    /// What it is made of and who decides what is in it.
    pub kind: SpaceKind,
    /// Who shares one instance of it.
    pub scope: Scope,
    /// Bytes in one instance.
    pub capacity: Figure<Bytes>,
    /// The offset at or below which the buffers of a plan end.
    pub usable: Figure<Bytes>,
    /// Ranges that no buffer may touch.
    pub reserved: Vec<Reserved>,
    /// Offsets are multiples of this many bytes.
    pub alignment: Figure<Alignment>,
    /// Cycles from a read's issue to its first byte.
    pub latency: Figure<Cycles>,
    /// Bytes that one instance delivers, all readers together.
    pub bandwidth: Figure<Rate>,
    /// How the space is split into parts that work at the same time.
    pub banks: Option<Banks>,
    /// What a DRAM model needs.
    pub dram: Option<Dram>,
}

/// What a space is made of, and who decides what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpaceKind {
    /// DRAM: HBM, GDDR, LPDDR or host memory; software places buffers in it.
    Dram,
    /// On-chip memory that software places buffers in.
    Scratchpad,
    /// On-chip memory that hardware fills; nothing is placed in it, but it feeds links.
    Cache,
    /// Registers.
    Registers,
}

/// Who shares one instance of a space.
#[derive(Clone, Debug, PartialEq)]
pub enum Scope {
    /// The whole device: there is one.
    Device,
    /// A group of cores; the figure says how many instances the device has.
    Cluster(Figure<u64>),
    /// One core of the given kind.
    Core(CoreId),
}

/// A byte range that no buffer may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The range, in offsets of the space.
    pub range: ByteRange,
    /// Who keeps it and for what.
    pub why: String,
}

/// Parts of one instance of a space that serve accesses at the same time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Banks {
    /// How many banks there are in all.
    pub count: Figure<u64>,
    /// How many groups they form.
    pub groups: Figure<u64>,
    /// Bytes in one bank.
    pub size: Figure<Bytes>,
    /// Bytes that one bank serves in a cycle.
    pub width: Figure<Bytes>,
}

/// The organisation and timing of a DRAM space.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dram {
    /// The standard, for example `HBM2e`; empty when unknown.
    pub standard: String,
    /// Order of the address fields, most significant first, for example `rorabgbachco`.
    pub mapping: String,
    /// Independent channels.
    pub channels: Figure<u64>,
    /// Data bits of one channel.
    pub channel_width_bits: Figure<u64>,
    /// Bank groups in one channel.
    pub bank_groups: Figure<u64>,
    /// Banks in one channel, all groups together.
    pub banks: Figure<u64>,
    /// Bytes of one open row in one channel.
    pub row: Figure<Bytes>,
    /// Bytes of one burst, the smallest transfer.
    pub burst: Figure<Bytes>,
    /// The memory's own clock.
    pub clock_hz: Figure<f64>,
    /// Timing rules in cycles of the memory's clock, by [`DRAM_TIMINGS`] name.
    pub timings: BTreeMap<String, Figure<u64>>,
}

/// The timing rules that a DRAM space may state, as JEDEC names them in lower case.
pub const DRAM_TIMINGS: [&str; 20] = [
    "ccd_l",
    "ccd_s",
    "cl",
    "cwl",
    "faw",
    "ras",
    "rc",
    "rcd",
    "rcd_write",
    "refi",
    "rfc",
    "rp",
    "rrd_l",
    "rrd_s",
    "rtp",
    "rtw",
    "wr",
    "wtr_l",
    "wtr_s",
    "xp",
];

/// A thing that works: a DMA queue or a compute unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Engine {
    /// Its name, for example `mte2_aiv`.
    pub name: String,
    /// The name for people.
    pub title: String,
    /// What kind of work it does.
    pub kind: EngineKind,
    /// The kind of core that has it; absent when the device shares it.
    pub core: Option<CoreId>,
    /// How many there are in one core (or in the device); absent means one.
    pub count: Option<Figure<u64>>,
    /// Transfers or instructions that may be under way at once.
    pub outstanding: Figure<u64>,
    /// Cycles before the first result of one instruction, or before a transfer starts.
    pub startup: Figure<Cycles>,
    /// What a compute engine computes, reads and writes.
    pub compute: Option<ComputeUnit>,
}

/// The kinds of engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EngineKind {
    /// Moves bytes.
    Dma,
    /// Multiplies matrices.
    Matrix,
    /// Works on vectors.
    Vector,
    /// Runs control flow and scalar arithmetic.
    Scalar,
}

/// What one compute engine can do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComputeUnit {
    /// Operations in one cycle of one unit, by operand type; a multiply-accumulate counts two.
    pub operations_per_cycle: BTreeMap<Precision, Figure<f64>>,
    /// Rows, depth and columns (m, k, n) of the smallest product, by operand type.
    pub fractal: BTreeMap<Precision, Figure<[u64; 3]>>,
    /// Bytes that one step of a vector instruction covers.
    pub vector_width: Figure<Bytes>,
    /// Bytes of the block that a mask or a stride counts in.
    pub block: Figure<Bytes>,
    /// Steps that one vector instruction may repeat.
    pub repeats: Figure<u64>,
    /// Spaces it takes operands from.
    pub reads: Vec<SpaceId>,
    /// Spaces it leaves results in.
    pub writes: Vec<SpaceId>,
}

/// The operand types that device figures are given for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Precision {
    /// 64-bit float.
    F64,
    /// 32-bit float.
    F32,
    /// 19-bit float of tensor cores.
    Tf32,
    /// 16-bit IEEE float.
    F16,
    /// 16-bit brain float.
    Bf16,
    /// 8-bit floats.
    F8,
    /// 4-bit floats.
    F4,
    /// 32-bit integers.
    I32,
    /// 16-bit integers.
    I16,
    /// 8-bit integers, signed or not.
    I8,
    /// 4-bit integers, signed or not.
    I4,
}

/// A way for bytes from one space to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name; `FROM->TO` unless the description names it.
    pub name: String,
    /// The space that is read.
    pub from: SpaceId,
    /// The space that is written.
    pub to: SpaceId,
    /// The engine that moves the bytes.
    pub engine: EngineId,
    /// How fast one engine moves them.
    pub rate: Figure<Rate>,
    /// Cycles before the first byte of one transfer.
    pub startup: Figure<Cycles>,
    /// Every transfer is rounded up to a multiple of this many bytes.
    pub granularity: Figure<Bytes>,
    /// Addresses at this multiple get the full rate.
    pub alignment: Figure<Bytes>,
    /// The share of the rate that other addresses get, above 0 and at most 1.
    pub unaligned_share: Figure<f64>,
    /// The smallest transfer that reaches the full rate.
    pub best_transfer: Figure<Bytes>,
    /// The largest single transfer.
    pub largest_transfer: Figure<Bytes>,
}

/// Gives an enum its spelling in device files, in both directions.
macro_rules! spelled {
    ($type:ident, $($variant:ident = $text:literal),+ $(,)?) => {
        impl $type {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [$type] = &[$($type::$variant),+];

            /// The spelling in device files.
            pub const fn text(self) -> &'static str {
                match self { $($type::$variant => $text),+ }
            }

            /// The value with this spelling.
            pub fn from_text(text: &str) -> Option<Self> {
                match text { $($text => Some($type::$variant),)+ _ => None }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.text())
            }
        }
    };
}

spelled!(SpaceKind, Dram = "dram", Scratchpad = "scratchpad", Cache = "cache", Registers = "registers");
spelled!(EngineKind, Dma = "dma", Matrix = "matrix", Vector = "vector", Scalar = "scalar");
spelled!(
    Precision,
    F64 = "f64",
    F32 = "f32",
    Tf32 = "tf32",
    F16 = "f16",
    Bf16 = "bf16",
    F8 = "f8",
    F4 = "f4",
    I32 = "i32",
    I16 = "i16",
    I8 = "i8",
    I4 = "i4",
);

impl Precision {
    /// The figure column that an element type is computed in; signedness makes no difference.
    #[must_use]
    pub const fn of(element: ElementType) -> Option<Precision> {
        match element {
            ElementType::F64 => Some(Precision::F64),
            ElementType::F32 => Some(Precision::F32),
            ElementType::F16 => Some(Precision::F16),
            ElementType::Bf16 => Some(Precision::Bf16),
            ElementType::F8e4m3 | ElementType::F8e5m2 | ElementType::F8e8m0 => Some(Precision::F8),
            // Six-bit floats run at the rate of eight-bit ones where they run at all.
            ElementType::F6e2m3 | ElementType::F6e3m2 => Some(Precision::F8),
            ElementType::F4e2m1 => Some(Precision::F4),
            ElementType::I32 | ElementType::U32 => Some(Precision::I32),
            ElementType::I16 | ElementType::U16 => Some(Precision::I16),
            ElementType::I8 | ElementType::U8 | ElementType::Bool => Some(Precision::I8),
            ElementType::I4 | ElementType::U4 | ElementType::I2 | ElementType::U2 => Some(Precision::I4),
            ElementType::I64 | ElementType::U64 | ElementType::C64 | ElementType::C128 | ElementType::Text => None,
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
