//! The whole timeline of a run, kept only when it is asked for.

use super::document::cause_text;
use npumem_ir::program::{Program, Role};
use npumem_report::perfetto::{Part, Slice, Timeline};
use npumem_simulator::run::{Outcome, Sink, Span, Touch};

/// Statements that are kept; what comes after is counted.
const MOST: usize = 1_000_000;

/// Collects every statement.
pub(super) struct Collector<'a> {
    program: &'a Program,
    timeline: Timeline,
    causes: Vec<Option<npumem_simulator::run::Cause>>,
}

impl<'a> Collector<'a> {
    pub fn new(program: &'a Program) -> Self {
        Collector { program, timeline: Timeline::default(), causes: Vec::new() }
    }

    /// The timeline, with the names that only the end of the run knows.
    pub fn finish(mut self, outcome: &Outcome) -> Timeline {
        use npumem_simulator::run::Cause;
        self.timeline.title = format!("{} on {}", outcome.program, outcome.device);
        self.timeline.clock_hz = outcome.clock_hz;
        self.timeline.engines = outcome.engines.iter().map(|engine| engine.name.clone()).collect();
        for (slice, cause) in self.timeline.slices.iter_mut().zip(&self.causes) {
            let Some(cause) = cause else { continue };
            let (buffer, other) = match cause {
                Cause::Data { buffer } | Cause::InUse { buffer } => (self.program.buffers.get(buffer.index()), None),
                Cause::Flag { from, .. } => (None, outcome.engines.get(usize::from(*from))),
                Cause::Order { queue } => (None, outcome.engines.get(usize::from(*queue))),
                _ => (None, None),
            };
            slice.waited = cause_text(cause, buffer.map(|b| b.name.as_str()), other.map(|e| e.name.as_str()));
        }
        self.timeline
    }

    fn parts(&self, touches: &[Touch]) -> Vec<Part> {
        let own = touches.iter().filter_map(|touch| {
            let buffer = self.program.buffers.get(touch.owner.index())?;
            (buffer.role != Role::External).then(|| Part {
                buffer: buffer.name.clone(),
                slot: touch.slot,
                space: buffer.space.clone(),
                bytes: buffer.bytes.unwrap_or(0),
            })
        });
        own.collect()
    }
}

impl Sink for Collector<'_> {
    fn span(&mut self, span: &Span<'_>) {
        if self.timeline.slices.len() == MOST {
            self.timeline.dropped += 1;
            return;
        }
        self.causes.push(span.waited.map(|(cause, _)| cause));
        let slice = Slice {
            core: span.core,
            engine: span.engine,
            name: span.operation.name.clone(),
            step: span.step.0,
            line: span.operation.line,
            start: span.started,
            freed: span.freed,
            end: span.ended,
            bytes: span.bytes,
            waited: String::new(),
            waited_cycles: span.waited.map_or(0.0, |(_, since)| span.started - since),
            reads: self.parts(span.reads),
            writes: self.parts(span.writes),
        };
        self.timeline.slices.push(slice);
    }
}
