//! Events as they happen: who wants them takes them, nothing is kept here.

use super::outcome::Cause;
use super::touch::Touch;
use npumem_ir::StepId;
use npumem_ir::program::Operation;

/// One statement that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// Its number in the order of issue, from 0.
    pub number: u64,
    /// The block of the grid.
    pub block: u64,
    /// The core that ran the block.
    pub core: u64,
    /// The engine, by its place in [`super::Outcome::engines`].
    pub engine: u16,
    /// The step of the program.
    pub step: StepId,
    /// The operation.
    pub operation: &'a Operation,
    /// When it entered its queue.
    pub issued: f64,
    /// When the engine began it.
    pub started: f64,
    /// When the engine was free for the next.
    pub freed: f64,
    /// When its results were there.
    pub ended: f64,
    /// Bytes that it moved.
    pub bytes: u64,
    /// Why the engine stood still before it, and since when.
    pub waited: Option<(Cause, f64)>,
    /// What it read.
    pub reads: &'a [Touch],
    /// What it wrote.
    pub writes: &'a [Touch],
}

/// A statement that begins: its operands are in place, as far as the program sees to that.
#[derive(Clone, Copy, Debug)]
pub struct Beginning<'a> {
    /// Its number in the order of issue, from 0.
    pub number: u64,
    /// The block of the grid.
    pub block: u64,
    /// The core that runs the block.
    pub core: u64,
    /// The engine, by its place in [`super::Outcome::engines`].
    pub engine: u16,
    /// The step of the program.
    pub step: StepId,
    /// The operation.
    pub operation: &'a Operation,
    /// Its scalar operands that are integers, evaluated; `None` for others and for unknown ones.
    pub numbers: &'a [Option<i64>],
    /// The counters of the loops around it, outermost first.
    pub turns: &'a [(npumem_ir::ScalarId, i64)],
    /// The time.
    pub now: f64,
    /// What it reads, operand by operand.
    pub reads: &'a [Touch],
    /// What it writes.
    pub writes: &'a [Touch],
}

/// An order between engines that has just been kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A queue raised an event for another, after all that it did before.
    Raised {
        /// Who raised it.
        from: u16,
        /// For whom.
        to: u16,
        /// Which.
        event: i64,
    },
    /// A queue took an event.
    Taken {
        /// Who raised it.
        from: u16,
        /// Who took it.
        to: u16,
        /// Which.
        event: i64,
    },
    /// All queues of the core met.
    Met,
    /// A queue took a token.
    Acquired {
        /// Who.
        queue: u16,
        /// Which.
        token: i64,
    },
    /// A queue gave a token back.
    Released {
        /// Who.
        queue: u16,
        /// Which.
        token: i64,
    },
}

/// Takes events.
pub trait Sink {
    /// Whether [`Sink::begin`] wants to be called: it costs time.
    fn wants_beginnings(&self) -> bool {
        false
    }

    /// A statement begins. Calls come in order of time; a statement begins after all that it depends on has ended.
    fn begin(&mut self, _beginning: &Beginning<'_>) {}

    /// An order between engines of a core was kept.
    fn kept(&mut self, _core: u64, _kept: Kept) {}

    /// A core begins a block: its own memory holds nothing any more.
    fn block(&mut self, _core: u64, _block: u64) {}

    /// A statement has ended.
    fn span(&mut self, _span: &Span<'_>) {}
}

/// Takes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Sink for Nothing {}

/// Gives every event to several sinks, in order.
pub struct Several<'a>(pub Vec<&'a mut dyn Sink>);

impl Sink for Several<'_> {
    fn wants_beginnings(&self) -> bool {
        self.0.iter().any(|sink| sink.wants_beginnings())
    }

    fn begin(&mut self, beginning: &Beginning<'_>) {
        self.0.iter_mut().for_each(|sink| sink.begin(beginning));
    }

    fn kept(&mut self, core: u64, kept: Kept) {
        self.0.iter_mut().for_each(|sink| sink.kept(core, kept));
    }

    fn block(&mut self, core: u64, block: u64) {
        self.0.iter_mut().for_each(|sink| sink.block(core, block));
    }

    fn span(&mut self, span: &Span<'_>) {
        self.0.iter_mut().for_each(|sink| sink.span(span));
    }
}
