//! What a run came to: bounded totals, whatever the length of the run.

use super::banks::Conflict;
use npumem_ir::device::EngineKind;
use npumem_ir::{BufferId, StepId};
use serde::Serialize;
use std::collections::BTreeMap;

/// Why an engine stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case", tag = "cause")]
pub enum Cause {
    /// The data that its next statement reads is not there yet.
    Data {
        /// The buffer it reads.
        buffer: BufferId,
    },
    /// The buffer that its next statement writes is still read or written by another.
    InUse {
        /// The buffer it writes.
        buffer: BufferId,
    },
    /// A flag is not raised.
    Flag {
        /// The queue that raises it.
        from: u16,
        /// The event.
        event: i64,
    },
    /// Other engines have not come to the barrier.
    Barrier,
    /// A buffer token is held by another engine.
    Token,
    /// Another core has not told.
    OtherCore,
    /// Statements are issued in program order, and the queue of another engine is full.
    Order {
        /// The queue that is full.
        queue: u16,
    },
    /// As many transfers as the engine can have under way have not come back.
    Limit,
    /// The memory opened rows for what it waits for.
    RowMiss,
    /// The memory closed other rows of the same banks first.
    BankConflict,
    /// The memory was being refreshed.
    Refresh,
    /// It must end what it has under way before it may raise a flag or pass a barrier.
    Drain,
    /// Nothing has been issued to it yet.
    Start,
    /// It has nothing left to do.
    Done,
}

impl Cause {
    /// One word for tables and JSON.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Cause::Data { .. } => "data",
            Cause::InUse { .. } => "in-use",
            Cause::Flag { .. } => "flag",
            Cause::Barrier => "barrier",
            Cause::Token => "token",
            Cause::OtherCore => "other-core",
            Cause::Order { .. } => "order",
            Cause::Limit => "limit",
            Cause::RowMiss => "row-miss",
            Cause::BankConflict => "bank-conflict",
            Cause::Refresh => "refresh",
            Cause::Drain => "drain",
            Cause::Start => "start",
            Cause::Done => "done",
        }
    }
}

/// All engines of one name, over all cores.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EngineTotals {
    /// The device's name of it, or the program's where the device has no such engine.
    pub name: String,
    /// What kind of work it does.
    #[serde(serialize_with = "kind_text")]
    pub kind: Option<EngineKind>,
    /// How many of them ran.
    pub instances: u64,
    /// Statements that they ran.
    pub statements: u64,
    /// Cycles that they were busy, all together.
    pub busy: f64,
    /// Part of it for which they were slower than alone, because others used the same memory.
    pub slowed: f64,
    /// Part of it for which the rows of one step waited for the same banks; counted by [`super::Detail::Detailed`].
    pub conflicts: f64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Operations that they computed; a multiply-accumulate counts two.
    pub operations: u64,
    /// Cycles that they stood still, all together, by cause.
    #[serde(skip)]
    pub idle: BTreeMap<Cause, f64>,
    /// Part of their idle time in which a later statement of the same queue could have run.
    pub overtaken: f64,
}

fn kind_text<S: serde::Serializer>(kind: &Option<EngineKind>, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(kind.map_or("?", EngineKind::text))
}

impl EngineTotals {
    /// Cycles that they stood still, all together.
    #[must_use]
    pub fn idle_total(&self) -> f64 {
        self.idle.values().sum()
    }
}

/// One link, over all cores.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkTotals {
    /// The link's name.
    pub name: String,
    /// Bytes that went over it.
    pub bytes: u64,
    /// Transfers that went over it.
    pub transfers: u64,
}

/// One memory whose bandwidth the cores share.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SpaceTotals {
    /// The space's name.
    pub name: String,
    /// Bytes that were drawn from it or left in it, in its own grain.
    pub bytes: f64,
    /// Bytes that it delivers in a cycle.
    pub bytes_per_cycle: f64,
}

/// One channel of the main memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DramChannel {
    /// Bytes read over its data bus.
    pub read: u64,
    /// Bytes written over its data bus; writes that still wait in its queue at the end are not in it.
    pub written: u64,
}

/// The main memory, when it was run command by command.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DramTotals {
    /// What it is.
    pub part: String,
    /// Bursts whose row was open.
    pub row_hits: u64,
    /// Bursts whose bank had no open row.
    pub row_misses: u64,
    /// Bursts whose bank had another row open.
    pub row_conflicts: u64,
    /// Rows that were opened.
    pub activates: u64,
    /// Refresh commands.
    pub refreshes: u64,
    /// All data buses together.
    pub peak_bytes_per_second: f64,
    /// The channels.
    pub channels: Vec<DramChannel>,
    /// Clocks of the memory in which a data bus was idle, all channels together, by cause.
    pub idle: Vec<(&'static str, u64)>,
}

/// One statement of the program, over all its turns and all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepTotals {
    /// Times that it ran.
    pub runs: u64,
    /// Cycles that it kept its engine.
    pub busy: f64,
    /// Cycles that its engine stood still for it.
    pub waited: f64,
    /// Part of `busy` for which the rows of one step waited for the same banks, and what most of them are.
    pub conflicts: Option<(f64, Conflict)>,
    /// Its engine, by its place in [`Outcome::engines`].
    pub engine: u16,
}

/// How the order of statements on different engines was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderUsed {
    /// From the bytes that statements read and write.
    Ranges,
    /// From the program's own flags, tokens and barriers.
    Program,
}

/// What one engine waits for when nothing goes on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stuck {
    /// The block of the grid.
    pub block: u64,
    /// The engine.
    pub engine: String,
    /// The step at the head of its queue.
    pub step: StepId,
    /// Line of the source, 0 without one.
    pub line: u32,
    /// What it waits for, in words.
    pub waits_for: String,
}

/// How the run ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "end")]
pub enum End {
    /// Every statement ran.
    Complete,
    /// Engines wait for each other.
    Deadlock {
        /// Who waits for whom.
        waits: Vec<Stuck>,
    },
    /// The bound on steps was reached.
    Limit {
        /// Steps that were run.
        steps: u64,
    },
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The program's name.
    pub program: String,
    /// The device's name.
    pub device: String,
    /// The device's clock in hertz.
    pub clock_hz: f64,
    /// Cycles from the first issue to the last result.
    pub cycles: f64,
    /// Blocks of the grid that ran.
    pub blocks: u64,
    /// Cores that ran them.
    pub cores: u64,
    /// Statements that ran.
    pub statements: u64,
    /// How the order between engines was found.
    pub order: OrderUsed,
    /// How it ended.
    pub end: End,
    /// Engines, in the order in which the program first uses them.
    pub engines: Vec<EngineTotals>,
    /// Links that bytes went over, in the device's order.
    pub links: Vec<LinkTotals>,
    /// Shared memories.
    pub spaces: Vec<SpaceTotals>,
    /// The main memory, when it was run command by command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dram: Option<DramTotals>,
    /// By step of the program.
    #[serde(skip)]
    pub steps: Vec<StepTotals>,
    /// What was taken for granted where the source does not say.
    pub assumed: Vec<String>,
    /// The most statements that were under way or waiting at one moment, all cores together.
    pub most_in_flight: usize,
}

impl Outcome {
    /// The time in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.cycles / self.clock_hz
    }

    /// The engine of that name.
    #[must_use]
    pub fn engine(&self, name: &str) -> Option<&EngineTotals> {
        self.engines.iter().find(|engine| engine.name == name)
    }

    /// The share of the run that the engines of that name were busy, averaged over them.
    #[must_use]
    pub fn busy_share(&self, engine: &EngineTotals) -> f64 {
        if self.cycles > 0.0 && engine.instances > 0 {
            engine.busy / (self.cycles * engine.instances as f64)
        } else {
            0.0
        }
    }
}
