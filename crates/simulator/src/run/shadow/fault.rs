//! What shadow memory finds, and how it is told.

use npumem_ir::program::{Program, Step};
use npumem_ir::{BufferId, ScalarId, StepId};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// Bytes are read that nothing wrote.
    Unwritten,
    /// Bytes are read that another buffer wrote.
    Overwritten,
    /// Part of what is read is the buffer's own, part was written by another.
    Torn,
    /// An access leaves its buffer.
    PastBuffer,
    /// An access leaves its space.
    OutsideSpace,
    /// An access touches reserved bytes.
    Reserved,
    /// A transfer on the chip starts off a block boundary.
    Misaligned,
    /// A statement writes over what it reads.
    OwnInput,
    /// Two engines touch a byte and nothing orders them.
    Race,
    /// Two blocks of the grid touch a byte of the caller and nothing orders them.
    CoreRace,
}

impl FaultKind {
    /// One word for tables and JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            FaultKind::Unwritten => "unwritten",
            FaultKind::Overwritten => "overwritten",
            FaultKind::Torn => "torn-read",
            FaultKind::PastBuffer => "past-buffer",
            FaultKind::OutsideSpace => "outside-space",
            FaultKind::Reserved => "reserved",
            FaultKind::Misaligned => "misaligned",
            FaultKind::OwnInput => "own-input",
            FaultKind::Race => "race",
            FaultKind::CoreRace => "core-race",
        }
    }
}

/// An earlier statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// The statement.
    pub step: StepId,
    /// The buffer it was about.
    pub buffer: BufferId,
    /// The block of the grid.
    pub block: u64,
    /// The counters of the loops around it.
    pub turns: Vec<(ScalarId, i64)>,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub kind: FaultKind,
    /// The statement.
    pub step: StepId,
    /// Its line, 0 without one.
    pub line: u32,
    /// The block of the grid.
    pub block: u64,
    /// The counters of the loops around it, outermost first.
    pub turns: Vec<(ScalarId, i64)>,
    /// The buffer.
    pub buffer: BufferId,
    /// The first byte: an address of the space for planned buffers, else of the buffer.
    pub start: u64,
    /// The byte past the last.
    pub end: u64,
    /// The statement that wrote there before, or the other side of a race.
    pub earlier: Option<Earlier>,
    /// More, in words.
    pub detail: String,
    /// How often it was met again at the same place.
    pub again: u64,
}

impl Fault {
    /// The fault as a sentence.
    #[must_use]
    pub fn message(&self, program: &Program) -> String {
        let at = place(program, self.step, &self.turns);
        let name = &program.buffer(self.buffer).name;
        let bytes = format!("bytes [{}, {})", self.start, self.end);
        let other = self.earlier.as_ref().map(|earlier| {
            let place = place(program, earlier.step, &earlier.turns);
            (place, program.buffer(earlier.buffer).name.clone(), earlier.block)
        });
        let (before, other_name, other_block) = other.unwrap_or_default();
        let detail = if self.detail.is_empty() { String::new() } else { format!(": {}", self.detail) };
        match self.kind {
            FaultKind::Unwritten => format!("{at} reads {bytes} of '{name}', which nothing has written{detail}"),
            FaultKind::Overwritten => {
                format!("{at} reads {bytes} of '{name}', but they hold what {before} wrote for '{other_name}'")
            }
            FaultKind::Torn => format!(
                "{at} reads '{name}', of which {bytes} hold what {before} wrote for '{other_name}' and the rest is its own"
            ),
            FaultKind::PastBuffer => format!("{at} leaves '{name}'{detail}"),
            FaultKind::OutsideSpace => format!("{at} leaves the space with '{name}'{detail}"),
            FaultKind::Reserved => format!("{at} touches reserved {bytes} with '{name}'{detail}"),
            FaultKind::Misaligned => format!("{at} is off the block boundary in '{name}'{detail}"),
            FaultKind::OwnInput => format!("{at} writes over {bytes} of its own input '{name}' {}", self.detail),
            FaultKind::Race => {
                format!("{at} touches {bytes} of '{name}' and nothing orders it after {before} ('{other_name}')")
            }
            FaultKind::CoreRace => format!(
                "{at} in block {} touches {bytes} of '{name}', which {before} in block {other_block} wrote: nothing orders the blocks",
                self.block
            ),
        }
    }
}

/// `step 7 (tadd, line 12) with i = 3`.
fn place(program: &Program, step: StepId, turns: &[(ScalarId, i64)]) -> String {
    let mut text = format!("step {step}");
    if let Some(Step::Run(operation)) = program.steps.get(step.index()) {
        text.push_str(&format!(" ({}", operation.name));
        if operation.line > 0 {
            text.push_str(&format!(", line {}", operation.line));
        }
        text.push(')');
    }
    let list: Vec<String> =
        turns.iter().map(|(counter, value)| format!("{} = {value}", program.scalar(*counter).name)).collect();
    if !list.is_empty() {
        text.push_str(&format!(" at {}", list.join(", ")));
    }
    text
}
