//! A tile-level program: buffers in spaces, and the statements that engines run over them.
//!
//! ```text
//!   buffers   name  space  bytes of one slot  slots  [address]     (an alias shares the bytes of another)
//!   scalars   arguments, grid index, loop counters, variables, computed values
//!   steps     one flat list in program order; `for`, `loop`, `if` open a region, `end` closes it
//!
//!   0  for i = 0 to 8 step 1
//!   1      load   @mte2  reads a[...]      writes t{i}[...]      <- slot i mod 2 of t
//!   2      add    @v     reads t{i}[...]   writes s[...]
//!   3  end
//! ```
//!
//! Every step is named by its position in [`Program::steps`] (a [`StepId`]); that number is what messages,
//! live ranges and traces use. The list is flat so that no reader of it needs recursion, however deep the
//! source nests. Importers and the tiler produce a `Program`; liveness, the checker and the simulator read it.
//! The text form (see [`mod@text`]) is made to be read in a diff; JSON comes from `serde`.

mod affine;
mod builder;
mod evaluate;
pub mod points;
mod range;
mod rewrite;
mod structure;
pub mod text;

pub use affine::Affine;
pub use builder::ProgramBuilder;
pub use evaluate::Values;
pub use points::{POINTS, THEN};
pub use rewrite::RewriteError;
pub use structure::{MAX_DEPTH, MAX_STEPS, ProgramError, Structure};

use crate::{Alignment, BufferId, ElementType, HandleId, ScalarId, StepId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A tile-level program; see the module page for the picture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// What messages call it: the function of the source.
    pub name: String,
    /// The architecture that the source was written for, as the source names it (`a3`, `Ascend910B1`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Integer values that ranges, slots, bounds and conditions mention.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scalars: Vec<Scalar>,
    /// The memory that statements touch.
    pub buffers: Vec<Buffer>,
    /// Variables that name a buffer: results of branches and loops that yield a tile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handles: Vec<Handle>,
    /// The statements, in program order, with regions opened and closed in place.
    pub steps: Vec<Step>,
    /// Line of the source of each [`Step::Sync`], from 1, where there is one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sync_lines: BTreeMap<StepId, u32>,
}

/// One integer value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scalar {
    /// Its name in the source.
    pub name: String,
    /// Where its value comes from.
    pub kind: ScalarKind,
}

/// Where a scalar's value comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScalarKind {
    /// Given from outside, the same for the whole run; unknown until bound.
    Argument(Option<i64>),
    /// The index of this core in the grid; the extent when it is known.
    Grid(Option<u64>),
    /// The counter of a `for`.
    Counter,
    /// Set by [`Step::Assign`].
    Variable,
    /// A pure function of scalars with smaller ids.
    Computed(Compute),
}

/// One operation on integers. Truth is 1 and 0.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Compute {
    /// The operation.
    pub op: Op,
    /// Its operands: two, or three for [`Op::Select`], any number for [`Op::Opaque`].
    pub operands: Vec<Affine>,
}

/// Operations that an [`Affine`] sum cannot express.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// The product.
    Mul,
    /// Division that rounds down.
    Div,
    /// The remainder of [`Op::Div`]: never negative for a positive divisor.
    Rem,
    /// Division that rounds towards 0.
    DivToZero,
    /// The remainder of [`Op::DivToZero`]: of the sign of the dividend.
    RemToZero,
    /// The smaller.
    Min,
    /// The larger.
    Max,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// 1 when equal.
    Eq,
    /// 1 when different.
    Ne,
    /// 1 when the first is smaller.
    Lt,
    /// 1 when the first is not larger.
    Le,
    /// The second when the first is not 0, else the third.
    Select,
    /// A value nobody can know from the source (read from memory, an unknown operation).
    Opaque,
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A tile that the source declares.
    #[default]
    Tile,
    /// Hidden scratch of one operation.
    Workspace,
    /// Memory of the caller: never placed, its content is given.
    External,
    /// Slots of a queue between cores: placed, written from outside.
    Queue,
}

/// How the elements of a tile lie in its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Rows one after another.
    #[default]
    RowMajor,
    /// Columns one after another.
    ColMajor,
    /// Fractal blocks of `bytes`: how blocks follow each other, and elements inside one.
    Fractal {
        /// Blocks follow each other down the columns.
        outer_col: bool,
        /// Elements of a block follow each other down the columns.
        inner_col: bool,
        /// Bytes of one block.
        bytes: u64,
    },
}

/// Memory that statements touch: `slots` equal parts in one space.
///
/// ```text
///   address              address + pitch
///   |<---- bytes ---->|  |<---- bytes ---->|       slots = 2
///   [     slot 0      ]  [     slot 1      ]
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    /// Its name in the source, unique in the program.
    pub name: String,
    /// The space, by the name that the source uses (`vec`) or the device's (`UB`); the device resolves both.
    pub space: String,
    /// Bytes of one slot; `None` for memory of the caller whose size the source does not say.
    pub bytes: Option<u64>,
    /// How many slots; at least one.
    pub slots: u32,
    /// What its address must be a multiple of.
    #[serde(default)]
    pub alignment: Alignment,
    /// The element type that the source declares.
    pub element: ElementType,
    /// The declared shape; empty when it has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<u64>,
    /// How its elements lie.
    #[serde(default)]
    pub layout: Layout,
    /// What it is for.
    #[serde(default)]
    pub role: Role,
    /// Where slot 0 starts, when the program is planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Affine>,
    /// The address is no plan's to choose: a kernel library that the source does not show uses these bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fixed: bool,
    /// It is a name for bytes of another buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<Alias>,
    /// Line of the source, from 1; 0 when there is none.
    #[serde(default)]
    pub line: u32,
}

/// A declared sharing: byte `b` of this buffer is byte `delta + b` of the other, slot by slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alias {
    /// The buffer that owns the bytes; not itself an alias.
    pub of: BufferId,
    /// Where this one starts in it.
    pub delta: u64,
}

/// A variable that names a buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handle {
    /// Its name in the source.
    pub name: String,
}

/// What an access goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Root {
    /// A buffer, or an alias of one.
    Buffer(BufferId),
    /// Whatever buffer the handle names at that moment.
    Handle(HandleId),
}

/// `count` times a step of `stride` bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// How many; a value that cannot be known makes the access cover the whole slot, uncertainly.
    pub count: Affine,
    /// Bytes from one to the next.
    pub stride: i64,
}

/// Bytes that a statement reads or writes: elements at `start + sum(index * stride)` of one slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// The buffer or handle.
    pub root: Root,
    /// Which slot; taken modulo the number of slots.
    #[serde(default)]
    pub slot: Affine,
    /// First byte in the slot.
    #[serde(default)]
    pub start: Affine,
    /// The element that lies there.
    pub element: ElementType,
    /// Outermost first. Empty: the whole slot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extents: Vec<Extent>,
    /// The shape that the operation sees, outermost first (the valid part of a tile); empty when the buffer's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<Affine>,
    /// How the elements lie, for the values.
    #[serde(default)]
    pub layout: Layout,
    /// False: it touches some of these bytes, nobody can say which.
    pub certain: bool,
}

/// Which kind of core runs a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Core {
    /// The program does not say.
    #[default]
    Any,
    /// The matrix core.
    Cube,
    /// The vector core.
    Vector,
}

/// May the bytes that a statement writes be bytes that it reads?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InPlace {
    /// No: a byte may be written before it is read.
    #[default]
    Never,
    /// Element by element: yes when both start at the same byte and step alike.
    Elementwise,
    /// Yes: everything is read before anything is written.
    Always,
}

/// Attribute of a statement that has the time and the bytes of what it stands for, but does not say what is computed: why.
/// Its values are not computed.
pub const UNWRITTEN: &str = "unwritten";

/// Attribute of a statement that the memory joins with what is there, in any order of those that do: `add`.
pub const ATOMIC: &str = "atomic";

/// One statement that an engine runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// What it does, in the words of the source without its dialect (`tload`, `tmatmul.acc`).
    pub name: String,
    /// The engine that runs it, by role: `mte2` into the core, `mte1` to the matrix operands, `m`, `v`, `s`,
    /// `fix` out of the accumulator, `mte3` out of the core; or a name of the device.
    pub engine: String,
    /// The kind of core.
    #[serde(default)]
    pub core: Core,
    /// What it reads, in operand order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Access>,
    /// What it writes, in result order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<Access>,
    /// Whether it may write over what it reads.
    #[serde(default)]
    pub in_place: InPlace,
    /// Scalar operands, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scalars: Vec<Number>,
    /// Modes and options, as the source writes them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// False: the importer does not know the operation, so it reads all inputs and writes all outputs.
    pub known: bool,
    /// Line of the source, from 1; 0 when there is none.
    #[serde(default)]
    pub line: u32,
}

/// A scalar operand of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Number {
    /// An integer value.
    Int(Affine),
    /// A real constant.
    Real(f64),
    /// A real value from outside, by name.
    Named(String),
}

/// Order between engines that the source states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sync {
    /// `from` raises `event` for `to` once everything before it on `from` is done.
    SetFlag {
        /// The engine that raises.
        from: String,
        /// The engine that waits.
        to: String,
        /// Which of the pair's events.
        event: Affine,
    },
    /// `to` stops until `from` has raised `event`, and takes it.
    WaitFlag {
        /// The engine that raises.
        from: String,
        /// The engine that waits.
        to: String,
        /// Which of the pair's events.
        event: Affine,
    },
    /// Everything before it on the engine, or on all engines, is done before anything after it.
    Barrier(Option<String>),
    /// The engine takes a buffer token; stops until it is free.
    Acquire {
        /// The engine that takes it.
        engine: String,
        /// Which token.
        token: Affine,
    },
    /// The engine gives the token back once everything before it is done.
    Release {
        /// The engine that gives it.
        engine: String,
        /// Which token.
        token: Affine,
    },
    /// Another core is told, after everything before it on the engine.
    Post {
        /// The engine that tells.
        engine: String,
        /// Which flag.
        flag: Affine,
    },
    /// The engine stops until another core has told.
    Await {
        /// The engine that waits.
        engine: String,
        /// Which flag.
        flag: Affine,
    },
}

/// Several variables set at once, all right-hand sides read first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Assign {
    /// Integer variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scalars: Vec<(ScalarId, Affine)>,
    /// Handles: the buffer named from now on, and the byte where it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handles: Vec<(HandleId, Root, Affine)>,
}

/// One entry of the flat list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// A statement of an engine.
    Run(Operation),
    /// Order between engines.
    Sync(Sync),
    /// Variables.
    Assign(Assign),
    /// Opens a counted region: `counter` from `start` while below `stop`, by `step` (positive).
    For {
        /// The counter.
        counter: ScalarId,
        /// First value.
        start: Affine,
        /// Past the last value.
        stop: Affine,
        /// What is added each time.
        step: Affine,
    },
    /// Opens a region that repeats until a [`Step::Leave`] of it fires.
    Loop,
    /// Leaves the innermost [`Step::Loop`] when the value is 0.
    Leave(Affine),
    /// Opens a region that runs when the value is not 0.
    If(Affine),
    /// Starts the other branch of the innermost `if`.
    Else,
    /// Closes the innermost region.
    End,
}

impl Operation {
    /// A known operation with nothing read or written yet.
    #[must_use]
    pub fn new(name: impl Into<String>, engine: impl Into<String>) -> Self {
        Operation { name: name.into(), engine: engine.into(), known: true, ..Operation::default() }
    }
}

impl Access {
    /// The whole of slot 0.
    #[must_use]
    pub fn whole(root: Root, element: ElementType) -> Self {
        Access {
            root,
            slot: Affine::constant(0),
            start: Affine::constant(0),
            element,
            extents: Vec::new(),
            shape: Vec::new(),
            layout: Layout::RowMajor,
            certain: true,
        }
    }

    /// `bytes` bytes from `start` of slot 0.
    #[must_use]
    pub fn bytes(root: Root, start: Affine, bytes: u64) -> Self {
        let count = Affine::constant(i64::try_from(bytes).unwrap_or(i64::MAX));
        Access { start, extents: vec![Extent { count, stride: 1 }], ..Access::whole(root, ElementType::U8) }
    }

    /// The same access in another slot.
    #[must_use]
    pub fn in_slot(self, slot: Affine) -> Self {
        Access { slot, ..self }
    }
}

impl Program {
    /// The buffer with this id.
    #[must_use]
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.index()]
    }

    /// The scalar with this id.
    #[must_use]
    pub fn scalar(&self, id: ScalarId) -> &Scalar {
        &self.scalars[id.index()]
    }

    /// All buffers with their ids.
    pub fn buffers(&self) -> impl Iterator<Item = (BufferId, &Buffer)> {
        self.buffers.iter().enumerate().map(|(index, buffer)| (BufferId::new(index), buffer))
    }

    /// The first buffer of that name.
    #[must_use]
    pub fn find_buffer(&self, name: &str) -> Option<BufferId> {
        self.buffers.iter().position(|buffer| buffer.name == name).map(BufferId::new)
    }

    /// The buffer that owns the bytes of this one, and where it starts in it.
    #[must_use]
    pub fn owner(&self, id: BufferId) -> (BufferId, u64) {
        match self.buffer(id).alias {
            Some(alias) => (alias.of, alias.delta),
            None => (id, 0),
        }
    }

    /// The line of the source of a step; 0 when there is none.
    #[must_use]
    pub fn line(&self, step: StepId) -> u32 {
        match self.steps.get(step.index()) {
            Some(Step::Run(operation)) => operation.line,
            Some(Step::Sync(_)) => self.sync_lines.get(&step).copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// Whether any placed buffer has an address: the program is planned.
    #[must_use]
    pub fn is_planned(&self) -> bool {
        self.buffers.iter().any(|buffer| buffer.role != Role::External && !buffer.fixed && buffer.address.is_some())
    }
}

impl Buffer {
    /// A tile of one slot with no address.
    #[must_use]
    pub fn tile(name: impl Into<String>, space: impl Into<String>, bytes: u64) -> Self {
        Buffer {
            name: name.into(),
            space: space.into(),
            bytes: Some(bytes),
            slots: 1,
            alignment: Alignment::ONE,
            element: ElementType::U8,
            shape: Vec::new(),
            layout: Layout::RowMajor,
            role: Role::Tile,
            address: None,
            fixed: false,
            alias: None,
            line: 0,
        }
    }

    /// Memory of the caller.
    #[must_use]
    pub fn external(name: impl Into<String>, space: impl Into<String>, bytes: Option<u64>) -> Self {
        Buffer { bytes, role: Role::External, ..Buffer::tile(name, space, 0) }
    }

    /// Bytes from one slot to the next: the slot's size rounded up to the alignment; `None` past 64 bits.
    #[must_use]
    pub fn pitch(&self) -> Option<u64> {
        crate::Bytes(self.bytes?).align_up(self.alignment).map(|bytes| bytes.0)
    }

    /// Bytes that all slots take; `None` when the size is unknown or past 64 bits.
    #[must_use]
    pub fn total_bytes(&self) -> Option<u64> {
        let last = self.bytes?;
        self.pitch()?.checked_mul(u64::from(self.slots.saturating_sub(1)))?.checked_add(last)
    }
}
