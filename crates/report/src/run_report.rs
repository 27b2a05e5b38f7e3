//! What a simulated run came to, as one document: text for a terminal, JSON for programs.
//!
//! The document is filled by whoever ran the program; it holds names and numbers only, so that a picture, a table
//! and the JSON never disagree.

mod html;
mod text;

pub use html::page;
pub use text::render;

use serde::Serialize;

/// The first field of the JSON.
pub const FORMAT: &str = "npumem-run";

/// The version of the JSON.
pub const VERSION: u64 = 1;

/// A run of one program on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunReport {
    /// [`FORMAT`].
    pub format: &'static str,
    /// [`VERSION`].
    pub version: u64,
    /// The program.
    pub program: String,
    /// The device.
    pub device: String,
    /// `fast` or `detailed`.
    pub detail: String,
    /// The device's clock.
    pub clock_hz: f64,
    /// From the first issue to the last result.
    pub cycles: f64,
    /// The same in seconds.
    pub seconds: f64,
    /// Blocks of the grid.
    pub blocks: u64,
    /// Cores that ran them.
    pub cores: u64,
    /// Statements that ran.
    pub statements: u64,
    /// Where the order between engines came from, in words.
    pub order: String,
    /// `complete`, `deadlock` or `limit`.
    pub end: String,
    /// Who waits for whom, in a deadlock.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deadlock: Vec<Waits>,
    /// The engines.
    pub engines: Vec<EngineRow>,
    /// The links.
    pub links: Vec<LinkRow>,
    /// Memories whose bandwidth the cores share.
    pub memories: Vec<MemoryRow>,
    /// The main memory, when it was run command by command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dram: Option<DramReport>,
    /// What no schedule of these statements on this device can beat, and which resource says so.
    pub bound: Bound,
    /// Statements that engines waited for longest.
    pub statement_rows: Vec<StatementRow>,
    /// Changes that were tried, by rewriting the program and running it again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<Advice>,
    /// Faults of memory, when they were looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sanitizer: Option<Sanitizer>,
    /// The values that were computed, when they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<ValuesReport>,
    /// The most statements under way or waiting at one moment.
    pub most_in_flight: u64,
    /// What was taken for granted, and other remarks.
    pub notes: Vec<String>,
}

/// One engine that waits in a deadlock.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// The block of the grid.
    pub block: u64,
    /// The engine.
    pub engine: String,
    /// The step at the head of its queue.
    pub step: u32,
    /// Its line, 0 without one.
    pub line: u32,
    /// What it waits for.
    pub waits_for: String,
}

/// All engines of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EngineRow {
    /// Its name.
    pub name: String,
    /// `dma`, `matrix`, `vector` or `scalar`.
    pub kind: String,
    /// How many ran.
    pub instances: u64,
    /// Statements.
    pub statements: u64,
    /// Cycles busy, averaged over the instances.
    pub busy_cycles: f64,
    /// The share of the run.
    pub busy_share: f64,
    /// Cycles of it lost to others that used the same memory, averaged.
    pub slowed_cycles: f64,
    /// Cycles of it for which the rows of one step waited for the same banks, averaged; `detailed` counts them.
    pub bank_conflict_cycles: f64,
    /// Bytes moved by all instances.
    pub bytes: u64,
    /// Operations of all instances.
    pub operations: u64,
    /// Why they stood still, longest first.
    pub idle: Vec<IdleRow>,
    /// Cycles, averaged, in which a later statement of the same queue could have run.
    pub overtaken_cycles: f64,
}

/// One cause of standing still.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IdleRow {
    /// One word: `data`, `in-use`, `flag`, `order`, ...
    pub cause: String,
    /// The buffer it is about, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<String>,
    /// The other engine it is about, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// In words.
    pub text: String,
    /// Cycles, averaged over the instances.
    pub cycles: f64,
    /// The share of the run.
    pub share: f64,
}

/// One link.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkRow {
    /// Its name.
    pub name: String,
    /// Bytes over it.
    pub bytes: u64,
    /// Transfers over it.
    pub transfers: u64,
    /// Bytes per second, averaged over the run.
    pub bytes_per_second: f64,
}

/// One shared memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemoryRow {
    /// Its name.
    pub name: String,
    /// Bytes drawn from it and left in it, in its own grain.
    pub bytes: f64,
    /// Its bandwidth.
    pub bytes_per_second: f64,
    /// The share of the bandwidth that was used, averaged over the run.
    pub share: f64,
}

/// The main memory, run command by command.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DramReport {
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
    /// The share of that which was used, averaged over the run.
    pub share: f64,
    /// The channels.
    pub channels: Vec<ChannelRow>,
    /// Why data buses were idle.
    pub idle: Vec<DramIdleRow>,
}

/// One channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChannelRow {
    /// Bytes read over its data bus.
    pub read_bytes: u64,
    /// Bytes written over its data bus.
    pub written_bytes: u64,
}

/// One cause for which data buses were idle.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DramIdleRow {
    /// The cause.
    pub cause: String,
    /// Clocks of the memory, all channels together.
    pub clocks: u64,
}

/// A lower bound of the time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Bound {
    /// Cycles.
    pub cycles: f64,
    /// The engine or memory that says so.
    pub by: String,
}

/// One statement of the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StatementRow {
    /// Its step.
    pub step: u32,
    /// Its line, 0 without one.
    pub line: u32,
    /// What it does.
    pub name: String,
    /// Its engine.
    pub engine: String,
    /// Times that it ran.
    pub runs: u64,
    /// Cycles of one run, averaged.
    pub busy_cycles: f64,
    /// Cycles that its engine stood still for one run, averaged.
    pub waited_cycles: f64,
    /// The share of all busy cycles of its engine.
    pub share: f64,
}

/// A change that was tried.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Advice {
    /// The change, in words.
    pub change: String,
    /// The engine that waits for the buffer most.
    pub engine: String,
    /// The share of the run that it stands still now.
    pub waits_before: f64,
    /// The same after the change.
    pub waits_after: f64,
    /// Cycles of the run after the change.
    pub cycles_after: f64,
    /// Cycles now divided by cycles after.
    pub speedup: f64,
    /// Whether the device has room for it, and how much.
    pub room: String,
    /// Whether it is worth doing.
    pub helps: bool,
}

/// Faults of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sanitizer {
    /// Faults, all of them counted.
    pub faults: u64,
    /// Accesses that were looked at.
    pub accesses: u64,
    /// The faults that are told apart, in the order in which they were met.
    pub findings: Vec<Fault>,
}

/// One fault, and how often it was met.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fault {
    /// One word.
    pub kind: String,
    /// In words.
    pub message: String,
    /// The statement.
    pub step: u32,
    /// Its line, 0 without one.
    pub line: u32,
    /// The block of the grid.
    pub block: u64,
    /// The counters of the loops around it, `i = 3`.
    pub turns: String,
    /// The buffer.
    pub buffer: String,
    /// The first byte, in the buffer's slot or the space.
    pub start: u64,
    /// The byte past the last.
    pub end: u64,
    /// The statement that wrote the bytes before, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier_step: Option<u32>,
    /// Further times.
    pub again: u64,
}

/// Values that were computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ValuesReport {
    /// Statements whose values were computed.
    pub computed: u64,
    /// Operations whose values are not computed, and how often they were met.
    pub skipped: Vec<(String, u64)>,
    /// Memory of the caller after the run.
    pub buffers: Vec<ValueRow>,
}

/// One buffer of the caller.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ValueRow {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub element: String,
    /// Elements that it has.
    pub elements: u64,
    /// `input`, `output`, `both` or `untouched`.
    pub role: String,
    /// Where the values came from or went, in words.
    pub origin: String,
    /// The smallest value.
    pub least: f64,
    /// The largest value.
    pub most: f64,
    /// The mean.
    pub mean: f64,
    /// Values that are not numbers.
    pub not_numbers: u64,
}

impl RunReport {
    /// The document as JSON.
    ///
    /// # Errors
    /// When a number has no JSON form; none of ours is without one.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}
