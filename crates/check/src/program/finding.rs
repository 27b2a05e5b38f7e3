//! What a check found, and the verdict that follows.

use super::Options;
use super::handles::may_be_one;
use super::known::Guess;
use npumem_ir::program::Program;
use npumem_ir::{BufferId, ByteRange, Bytes, Offset, ScalarId, StepId};
use std::collections::BTreeMap;
use std::rc::Rc;

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The plan is wrong.
    Fault,
    /// Nobody can say from this input.
    Doubt,
    /// It works, and is probably not meant.
    Warning,
}

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Every read sees the write that the unplanned program gives it, on every path, in every turn.
    Sound,
    /// At least one fault.
    Unsound,
    /// No fault, at least one doubt.
    Undecided,
}

/// A moment of a run: a statement, the turn of each loop around it, and the branches taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// The statement.
    pub step: StepId,
    /// Turns of the loops around it, outermost first: counter and its value (`None`: unknown).
    pub turns: Vec<(ScalarId, Option<i64>)>,
    /// Turns of the loops without a counter around it, outermost first: the loop and its turn, the first being 0.
    pub rounds: Vec<(StepId, u64)>,
    /// Branches around it: the `if`, and whether its first side runs.
    pub branches: Vec<(StepId, bool)>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read of `reader` finds bytes that `other` wrote over them.
    Overwritten {
        /// The buffer whose bytes are gone.
        reader: BufferId,
        /// The buffer that took them.
        other: BufferId,
        /// The shared bytes that are read, as addresses of the space.
        bytes: ByteRange,
        /// Where the bytes were written that the read should see.
        written: Option<At>,
        /// Where they were overwritten.
        overwritten: At,
        /// Where they are read.
        read: At,
        /// Only part of what is read is wrong.
        partly: bool,
        /// Whose bytes lie there by then.
        latest: BufferId,
    },
    /// A read of `reader` finds bytes that it never wrote, and that `other` wrote before.
    Foreign {
        /// The buffer that is read.
        reader: BufferId,
        /// The buffer whose bytes lie there.
        other: BufferId,
        /// The bytes, as addresses of the space.
        bytes: ByteRange,
        /// Where they are read.
        read: At,
    },
    /// A read of bytes that nothing has written on some path.
    NeverWritten {
        /// The buffer.
        buffer: BufferId,
        /// Bytes of the buffer's slot.
        bytes: ByteRange,
        /// Where they are read.
        read: At,
    },
    /// A read whose bytes come from two writers, of which one wrote over part of the other's.
    Torn {
        /// The buffer.
        buffer: BufferId,
        /// Where the older bytes were written.
        first: StepId,
        /// Where the newer ones were.
        second: StepId,
        /// Where both are read.
        read: At,
    },
    /// A statement writes over bytes that it reads through another buffer.
    OwnInput {
        /// The buffer that is read.
        reader: BufferId,
        /// The buffer that is written.
        other: BufferId,
        /// The shared bytes, as addresses of the space.
        bytes: ByteRange,
        /// The statement.
        read: At,
    },
    /// A buffer ends past its space.
    Outside {
        /// The buffer.
        buffer: BufferId,
        /// The bytes that it takes.
        bytes: ByteRange,
        /// The end of the space.
        capacity: Bytes,
    },
    /// A buffer ends past what the toolchain leaves to kernels, within the space.
    PastUsable {
        /// The buffer.
        buffer: BufferId,
        /// The bytes that it takes.
        bytes: ByteRange,
        /// Where the usable part ends.
        usable: Bytes,
    },
    /// A buffer touches reserved bytes.
    Reserved {
        /// The buffer.
        buffer: BufferId,
        /// The bytes that it takes there.
        bytes: ByteRange,
        /// Who keeps them.
        why: String,
    },
    /// An address is not the multiple that the space or the buffer asks for.
    Misaligned {
        /// The buffer.
        buffer: BufferId,
        /// The address.
        address: Offset,
        /// What it must be a multiple of, in bytes.
        unit: u64,
        /// The statement, when an access and not the buffer's own address is meant.
        step: Option<StepId>,
    },
    /// Rows on the chip that do not start at block boundaries and are not one run of bytes.
    Rows {
        /// The buffer.
        buffer: BufferId,
        /// Bytes from row to row.
        pitch: i64,
        /// The block, in bytes.
        unit: u64,
        /// The statement.
        step: StepId,
    },
    /// An access leaves its buffer.
    PastBuffer {
        /// The buffer.
        buffer: BufferId,
        /// Bytes of the slot that are touched.
        bytes: ByteRange,
        /// Bytes of the slot.
        size: Bytes,
        /// The statement.
        at: At,
    },
    /// A name for bytes of another buffer lies elsewhere.
    AliasMoved {
        /// The name.
        buffer: BufferId,
        /// The buffer that owns the bytes.
        owner: BufferId,
        /// Where it should lie.
        expected: Offset,
        /// Where it lies.
        found: Offset,
    },
    /// The address is decided at run time.
    RunTimeAddress {
        /// The buffer.
        buffer: BufferId,
    },
    /// The device has no such space.
    UnknownSpace {
        /// The buffer.
        buffer: BufferId,
    },
    /// The engine of a statement cannot reach a space.
    Unreachable {
        /// The statement.
        step: StepId,
        /// The engine.
        engine: String,
        /// The space.
        space: String,
        /// Whether it reads there.
        reads: bool,
    },
    /// A product that adds to what it reads takes the sum from one place and leaves it at another.
    OtherSum {
        /// The statement.
        step: StepId,
        /// Where the sum is read.
        input: BufferId,
        /// Where it is written.
        output: BufferId,
    },
    /// No link of the device moves from one space to the other.
    NoLink {
        /// The statement.
        step: StepId,
        /// From.
        from: String,
        /// To.
        to: String,
    },
    /// A compute engine takes an operand straight from main memory.
    DirectOperand {
        /// The statement.
        step: StepId,
        /// The space.
        space: String,
        /// What the copies of a staged operand would cost, in cycles, when the device says.
        staged_cycles: Option<u64>,
    },
    /// Slots that no access ever uses.
    UnusedSlots {
        /// The buffer.
        buffer: BufferId,
        /// Slots that are used.
        used: Vec<u32>,
        /// Slots that there are.
        slots: u32,
    },
    /// Two statements touch the same bytes on two engines and nothing orders them.
    Race {
        /// The earlier one in the program.
        first: At,
        /// The later one.
        second: At,
        /// Buffers of the two.
        buffers: (BufferId, BufferId),
        /// The bytes, as addresses of the space.
        bytes: ByteRange,
    },
    /// A flag is waited for that nobody sets, or that is set only behind the wait.
    Deadlock {
        /// The wait.
        at: At,
        /// From, to and event.
        flag: (String, String, i64),
        /// Where it is set, if that comes after a wait which this one keeps from ending.
        behind: Option<At>,
    },
    /// Whether engines wait for each other here cannot be told.
    OrderUnknown {
        /// The statement, loop or flag.
        step: StepId,
        /// Why not, and what would decide it.
        why: String,
    },
    /// Whether a run decides two steps as a finding takes it cannot be told.
    Together {
        /// The first condition or loop.
        first: StepId,
        /// The second; the same one, where there were too many.
        second: StepId,
        /// Inputs that both follow from.
        inputs: Vec<ScalarId>,
    },
    /// Not every turn of a loop, or not every path, was looked at.
    Budget {
        /// The loop, or the step at which paths met.
        step: StepId,
        /// Why not.
        why: Unseen,
    },
}

/// Why something was not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// The work that one check may take ended.
    Work,
    /// What the turns of the loop touch follows its counter, and nobody knows where it ends.
    FollowsCounter,
    /// Conditions in the loop compare its counter with inputs in ways of which no turn stands for another.
    Conditions,
    /// The turns of the loop do not come to repeat, and nobody knows where it ends.
    NoRepeat,
    /// Too many paths met, on which handles name different buffers.
    Handles,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it weighs.
    pub severity: Severity,
    /// What it is.
    pub kind: Kind,
    /// How often the same was met again (other turns, other paths).
    pub again: u64,
    /// Values of unknown inputs with which it comes about, where it takes certain ones.
    pub example: Vec<(ScalarId, i64)>,
}

/// The answer to a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramVerdict {
    /// Sound, unsound or undecided.
    pub standing: Standing,
    /// Everything found: faults, doubts, warnings; in the order of the run within each.
    pub findings: Vec<Finding>,
    /// More findings than `MAX_FINDINGS` were made.
    pub truncated: bool,
    /// Statements that were run to reach the verdict.
    pub work: u64,
}

/// The most findings that a verdict lists.
pub const MAX_FINDINGS: usize = 1000;

impl ProgramVerdict {
    /// Findings of one severity.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.severity == severity)
    }
}

/// Where a run is: a list from the innermost region outwards.
pub(super) type Context = Option<Rc<Place>>;

/// One region of a [`Context`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    Turn(ScalarId, Option<i64>, Context),
    Round(StepId, u64, Context),
    Branch(StepId, bool, Context),
}

impl Place {
    /// The branch or the loop, where it has a step of its own.
    pub fn step(&self) -> usize {
        match self {
            Place::Branch(step, ..) | Place::Round(step, ..) => step.index(),
            Place::Turn(..) => 0,
        }
    }
}

/// A statement in a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub step: StepId,
    pub context: Context,
}

impl Event {
    pub fn at(&self) -> At {
        let mut at = At { step: self.step, turns: Vec::new(), rounds: Vec::new(), branches: Vec::new() };
        let mut next = &self.context;
        while let Some(place) = next {
            next = match &**place {
                Place::Turn(counter, value, outer) => {
                    at.turns.push((*counter, *value));
                    outer
                }
                Place::Round(step, turn, outer) => {
                    at.rounds.push((*step, *turn));
                    outer
                }
                Place::Branch(step, taken, outer) => {
                    at.branches.push((*step, *taken));
                    outer
                }
            };
        }
        at.turns.reverse();
        at.rounds.reverse();
        at.branches.reverse();
        at
    }
}

/// Findings so far; the same one met again is counted.
#[derive(Debug, Default)]
pub(super) struct Findings {
    list: Vec<Finding>,
    seen: BTreeMap<(&'static str, u64, u32, u32), usize>,
    /// Buffers that may be one, because one was read where only the other had written.
    one: BTreeMap<BufferId, BufferId>,
    truncated: bool,
    pub work: u64,
    /// Why findings are doubts that may be faults, and values that may show it.
    guesses: Vec<(Guess, Vec<(ScalarId, i64)>)>,
}

/// Guesses that are kept to look for an example.
const MAX_GUESSES: usize = 16;

impl Findings {
    pub fn push(&mut self, severity: Severity, kind: Kind) {
        self.push_with(severity, kind, Vec::new());
    }

    /// Whether the same was found before as a fault; counted if so.
    pub fn is_fault(&mut self, kind: &Kind) -> bool {
        let Some(index) = self.seen.get(&kind.key()).copied() else { return false };
        let fault = self.list[index].severity == Severity::Fault;
        self.list[index].again += u64::from(fault);
        fault
    }

    /// A path of which nobody can say that a run takes it has led to a finding.
    pub fn guessed(&mut self, guess: Guess, values: Vec<(ScalarId, i64)>) {
        let known = self.guesses.iter().any(|(other, list)| *other == guess && *list == values);
        if !known && self.guesses.len() < MAX_GUESSES {
            self.guesses.push((guess, values));
        }
    }

    pub fn guesses(&self) -> &[(Guess, Vec<(ScalarId, i64)>)] {
        &self.guesses
    }

    pub fn has_fault(&self) -> bool {
        self.list.iter().any(|finding| finding.severity == Severity::Fault)
    }

    /// Whether a race or a deadlock was found on a path of which it is not certain that a run takes it.
    pub fn doubts_order(&self) -> bool {
        self.list.iter().any(|finding| {
            finding.severity == Severity::Doubt && matches!(finding.kind, Kind::Race { .. } | Kind::Deadlock { .. })
        })
    }

    /// The first faults, by number.
    pub fn faults(&self, most: usize) -> Vec<usize> {
        let faults = self.list.iter().enumerate().filter(|(_, finding)| finding.severity == Severity::Fault);
        faults.map(|(index, _)| index).take(most).collect()
    }

    pub fn get(&self, index: usize) -> Option<&Finding> {
        self.list.get(index)
    }

    /// The fault that is the same as this one.
    pub fn fault_like(&self, kind: &Kind) -> Option<&Finding> {
        let found = self.seen.get(&kind.key()).and_then(|index| self.list.get(*index));
        found.filter(|finding| finding.severity == Severity::Fault)
    }

    /// A run with these values shows the finding, in these moments.
    pub fn show(&mut self, index: usize, kind: Kind, example: Vec<(ScalarId, i64)>) {
        if let Some(finding) = self.list.get_mut(index) {
            (finding.kind, finding.example) = (kind, example);
        }
    }

    /// Faults of a run with certain values: real ones.
    pub fn adopt(&mut self, shown: Findings, values: &[(ScalarId, i64)]) {
        self.work += shown.work;
        for finding in shown.list.into_iter().filter(|finding| finding.severity == Severity::Fault) {
            self.push_with(Severity::Fault, finding.kind, values.to_vec());
        }
    }

    pub fn push_with(&mut self, severity: Severity, kind: Kind, example: Vec<(ScalarId, i64)>) {
        let key = kind.key();
        if let Some(index) = self.seen.get(&key) {
            let known = &mut self.list[*index];
            known.again += 1;
            // What is certain on one path is certain.
            if severity == Severity::Fault && known.severity != Severity::Fault {
                (known.severity, known.kind, known.example) = (severity, kind, example);
            }
            return;
        }
        if self.list.len() == MAX_FINDINGS {
            self.truncated = true;
            return;
        }
        self.seen.insert(key, self.list.len());
        self.list.push(Finding { severity, kind, again: 0, example });
    }

    fn root(&self, mut id: BufferId) -> BufferId {
        while let Some(next) = self.one.get(&id) {
            id = *next;
        }
        id
    }

    /// Whether another handle may be the same buffer.
    fn is_united(&self, id: BufferId) -> bool {
        self.one.contains_key(&id) || self.one.values().any(|other| *other == id)
    }

    /// The two may be one buffer.
    pub fn unite(&mut self, a: BufferId, b: BufferId) {
        let (a, b) = (self.root(a), self.root(b));
        if a != b {
            self.one.insert(a.max(b), a.min(b));
        }
    }

    pub fn into_verdict(mut self, program: &Program, options: &Options) -> ProgramVerdict {
        if !options.plan_is_separate {
            for index in 0..self.list.len() {
                // What a buffer of several handles should hold, its other handles may have written.
                let open = match self.list[index].kind {
                    Kind::Overwritten { reader, latest, .. } => {
                        self.is_united(reader) && may_be_one(program, reader, latest)
                    }
                    Kind::OwnInput { reader, other, .. } => self.root(reader) == self.root(other),
                    _ => false,
                };
                if open && self.list[index].severity == Severity::Fault {
                    self.list[index].severity = Severity::Doubt;
                }
            }
        }
        let mut findings = self.list;
        findings.sort_by_key(|finding| finding.severity);
        let worst = findings.first().map(|finding| finding.severity);
        let standing = match worst {
            Some(Severity::Fault) => Standing::Unsound,
            Some(Severity::Doubt) => Standing::Undecided,
            _ => Standing::Sound,
        };
        ProgramVerdict { standing, findings, truncated: self.truncated, work: self.work }
    }
}

impl Kind {
    /// A word for the kind, stable over versions.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Kind::Overwritten { .. } => "overwritten",
            Kind::Foreign { .. } => "foreign-bytes",
            Kind::NeverWritten { .. } => "never-written",
            Kind::Torn { .. } => "torn-read",
            Kind::OwnInput { .. } => "own-input",
            Kind::Outside { .. } => "outside-space",
            Kind::PastUsable { .. } => "past-usable",
            Kind::Reserved { .. } => "reserved-bytes",
            Kind::Misaligned { .. } => "misaligned",
            Kind::Rows { .. } => "unaligned-rows",
            Kind::PastBuffer { .. } => "past-buffer",
            Kind::AliasMoved { .. } => "alias-moved",
            Kind::RunTimeAddress { .. } => "run-time-address",
            Kind::UnknownSpace { .. } => "unknown-space",
            Kind::Unreachable { .. } => "unreachable-space",
            Kind::OtherSum { .. } => "other-sum",
            Kind::NoLink { .. } => "no-link",
            Kind::DirectOperand { .. } => "direct-operand",
            Kind::UnusedSlots { .. } => "unused-slots",
            Kind::Race { .. } => "race",
            Kind::Deadlock { .. } => "deadlock",
            Kind::OrderUnknown { .. } => "order-unknown",
            Kind::Together { .. } => "decided-together",
            Kind::Budget { .. } => "budget",
        }
    }

    /// The statement that a reader should look at first.
    #[must_use]
    pub fn step(&self) -> Option<StepId> {
        match self {
            Kind::Overwritten { read, .. }
            | Kind::Foreign { read, .. }
            | Kind::NeverWritten { read, .. }
            | Kind::Torn { read, .. }
            | Kind::OwnInput { read, .. } => Some(read.step),
            Kind::PastBuffer { at, .. } | Kind::Deadlock { at, .. } => Some(at.step),
            Kind::Race { second, .. } => Some(second.step),
            Kind::Rows { step, .. }
            | Kind::Unreachable { step, .. }
            | Kind::NoLink { step, .. }
            | Kind::OtherSum { step, .. }
            | Kind::DirectOperand { step, .. }
            | Kind::OrderUnknown { step, .. }
            | Kind::Together { second: step, .. }
            | Kind::Budget { step, .. } => Some(*step),
            Kind::Misaligned { step, .. } => *step,
            _ => None,
        }
    }

    /// The moments that lead to it, in the order of the run.
    #[must_use]
    pub fn moments(&self) -> Vec<&At> {
        match self {
            Kind::Overwritten { written, overwritten, read, .. } => written.iter().chain([overwritten, read]).collect(),
            Kind::Foreign { read, .. }
            | Kind::NeverWritten { read, .. }
            | Kind::Torn { read, .. }
            | Kind::OwnInput { read, .. } => vec![read],
            Kind::PastBuffer { at, .. } => vec![at],
            Kind::Race { first, second, .. } => vec![first, second],
            Kind::Deadlock { at, behind, .. } => std::iter::once(at).chain(behind).collect(),
            _ => Vec::new(),
        }
    }

    /// The buffers that it is about.
    #[must_use]
    pub fn buffers(&self) -> Vec<BufferId> {
        match self {
            Kind::Overwritten { reader, other, .. }
            | Kind::Foreign { reader, other, .. }
            | Kind::OwnInput { reader, other, .. } => vec![*reader, *other],
            Kind::Race { buffers: (a, b), .. } => vec![*a, *b],
            Kind::AliasMoved { buffer, owner, .. } => vec![*buffer, *owner],
            Kind::OtherSum { input, output, .. } => vec![*input, *output],
            Kind::NeverWritten { buffer, .. }
            | Kind::Torn { buffer, .. }
            | Kind::Outside { buffer, .. }
            | Kind::PastUsable { buffer, .. }
            | Kind::Reserved { buffer, .. }
            | Kind::Misaligned { buffer, .. }
            | Kind::Rows { buffer, .. }
            | Kind::PastBuffer { buffer, .. }
            | Kind::RunTimeAddress { buffer }
            | Kind::UnknownSpace { buffer }
            | Kind::UnusedSlots { buffer, .. } => vec![*buffer],
            _ => Vec::new(),
        }
    }

    /// The bytes that it is about, when it is about bytes.
    #[must_use]
    pub fn bytes(&self) -> Option<ByteRange> {
        match self {
            Kind::Overwritten { bytes, .. }
            | Kind::Foreign { bytes, .. }
            | Kind::NeverWritten { bytes, .. }
            | Kind::OwnInput { bytes, .. }
            | Kind::Outside { bytes, .. }
            | Kind::PastUsable { bytes, .. }
            | Kind::Reserved { bytes, .. }
            | Kind::PastBuffer { bytes, .. }
            | Kind::Race { bytes, .. } => Some(*bytes),
            _ => None,
        }
    }

    /// What makes two findings the same one: kind, statement, buffers.
    fn key(&self) -> (&'static str, u64, u32, u32) {
        let buffers = self.buffers();
        let id = |at: usize| buffers.get(at).map_or(u32::MAX, |id| id.0);
        let step = match self {
            // One pair of statements is one race, whichever turn shows it.
            Kind::Together { first, second, .. } => (u64::from(second.0) << 32) | u64::from(first.0),
            Kind::Race { first, second, .. } => (u64::from(second.step.0) << 32) | u64::from(first.step.0),
            _ => self.step().map_or(u64::MAX, |step| u64::from(step.0)),
        };
        (self.word(), step, id(0), id(1))
    }
}
