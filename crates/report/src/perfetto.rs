//! A run as a trace that the Perfetto viewer opens: a process for each core, a track for each engine, a counter for
//! each memory.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One statement of the timeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slice {
    /// The core.
    pub core: u64,
    /// The engine, by its place in [`Timeline::engines`].
    pub engine: u16,
    /// What it does.
    pub name: String,
    /// The step of the program, and its line (0 without one).
    pub step: u32,
    /// Line of the source.
    pub line: u32,
    /// When the engine began it, in cycles.
    pub start: f64,
    /// When the engine was free again.
    pub freed: f64,
    /// When its results were there.
    pub end: f64,
    /// Bytes that it moved.
    pub bytes: u64,
    /// Why the engine stood still before it, in words; empty when it did not.
    pub waited: String,
    /// Cycles that it stood still.
    pub waited_cycles: f64,
    /// What it reads and writes: the buffer, its slot, its space, bytes of the slot.
    pub reads: Vec<Part>,
    /// What it writes.
    pub writes: Vec<Part>,
}

/// One slot of a buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// The buffer.
    pub buffer: String,
    /// Its slot.
    pub slot: u32,
    /// The space it lies in.
    pub space: String,
    /// Bytes of the slot.
    pub bytes: u64,
}

/// Everything that happened, in the order in which it ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// The program and the device.
    pub title: String,
    /// The clock.
    pub clock_hz: f64,
    /// Engines by number.
    pub engines: Vec<String>,
    /// Statements.
    pub slices: Vec<Slice>,
    /// Statements that came after the most that are kept.
    pub dropped: u64,
}

impl Timeline {
    /// Bytes of each space of each core that hold something that is still read, as steps `(cycle, bytes)`.
    ///
    /// A slot is taken from the start of a write to the end of the last read before the next such write.
    #[must_use]
    pub fn occupancy(&self) -> BTreeMap<(u64, String), Vec<(f64, u64)>> {
        let mut order: Vec<&Slice> = self.slices.iter().collect();
        order.sort_by(|a, b| a.start.total_cmp(&b.start));
        // First write and last use of what each slot holds now.
        let mut held: BTreeMap<(u64, &Part), (f64, f64)> = BTreeMap::new();
        let mut changes: BTreeMap<(u64, String), Vec<(f64, i64)>> = BTreeMap::new();
        let mut close = |core: u64, part: &Part, (from, to): (f64, f64)| {
            let list = changes.entry((core, part.space.clone())).or_default();
            list.push((from, part.bytes as i64));
            list.push((to, -(part.bytes as i64)));
        };
        for slice in order {
            for part in &slice.reads {
                if let Some(held) = held.get_mut(&(slice.core, part)) {
                    held.1 = held.1.max(slice.end);
                }
            }
            for part in &slice.writes {
                let updates = slice.reads.contains(part);
                match held.get_mut(&(slice.core, part)) {
                    Some(held) if updates || slice.start < held.1 => held.1 = held.1.max(slice.end),
                    Some(before) => {
                        close(slice.core, part, *before);
                        *before = (slice.start, slice.end);
                    }
                    None => {
                        held.insert((slice.core, part), (slice.start, slice.end));
                    }
                }
            }
        }
        for ((core, part), span) in held {
            close(core, part, span);
        }
        let steps = |mut list: Vec<(f64, i64)>| {
            list.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (mut now, mut out) = (0_i64, Vec::<(f64, u64)>::new());
            for (time, change) in list {
                now += change;
                let bytes = now.max(0) as u64;
                match out.last_mut() {
                    Some(last) if last.0 == time => last.1 = bytes,
                    _ => out.push((time, bytes)),
                }
            }
            out
        };
        changes.into_iter().map(|(key, list)| (key, steps(list))).collect()
    }

    /// The trace, in the JSON form of trace events.
    #[must_use]
    pub fn to_perfetto(&self) -> String {
        let micros = |cycles: f64| cycles / self.clock_hz * 1e6;
        let mut out = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
        let mut first = true;
        let mut put = |event: Value| {
            let comma = if std::mem::replace(&mut first, false) { "" } else { ",\n" };
            let _ = write!(out, "{comma}{event}");
        };
        let cores: std::collections::BTreeSet<u64> = self.slices.iter().map(|slice| slice.core).collect();
        for core in &cores {
            put(
                json!({"ph": "M", "pid": core, "name": "process_name", "args": {"name": format!("core {core}: {}", self.title)}}),
            );
            for (engine, name) in self.engines.iter().enumerate() {
                put(json!({"ph": "M", "pid": core, "tid": engine, "name": "thread_name", "args": {"name": name}}));
                put(
                    json!({"ph": "M", "pid": core, "tid": engine, "name": "thread_sort_index", "args": {"sort_index": engine}}),
                );
            }
        }
        for slice in &self.slices {
            let list = |parts: &[Part]| {
                parts.iter().map(|part| format!("{}[{}]", part.buffer, part.slot)).collect::<Vec<_>>().join(", ")
            };
            put(json!({
                "ph": "X", "pid": slice.core, "tid": slice.engine, "name": slice.name, "cat": "statement",
                "ts": micros(slice.start), "dur": micros(slice.freed - slice.start),
                "args": {
                    "step": slice.step, "line": slice.line, "cycles": slice.freed - slice.start,
                    "results at cycle": slice.end, "bytes": slice.bytes, "reads": list(&slice.reads),
                    "writes": list(&slice.writes), "waited for": slice.waited, "waited cycles": slice.waited_cycles,
                },
            }));
        }
        for ((core, space), steps) in self.occupancy() {
            for (time, bytes) in steps {
                put(
                    json!({"ph": "C", "pid": core, "name": format!("{space} bytes"), "ts": micros(time), "args": {"bytes": bytes}}),
                );
            }
        }
        out.push_str("\n]}\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occupancy_is_from_the_write_to_the_last_read() {
        let part = Part { buffer: "t".into(), slot: 0, space: "ub".into(), bytes: 64 };
        let slice = |start: f64, end: f64, reads: bool| Slice {
            start,
            freed: end,
            end,
            reads: if reads { vec![part.clone()] } else { Vec::new() },
            writes: if reads { Vec::new() } else { vec![part.clone()] },
            ..Slice::default()
        };
        let timeline = Timeline {
            clock_hz: 1e9,
            engines: vec!["dma".into()],
            slices: vec![
                slice(0.0, 10.0, false),
                slice(10.0, 25.0, true),
                slice(30.0, 40.0, false),
                slice(41.0, 50.0, true),
            ],
            ..Timeline::default()
        };
        let steps = &timeline.occupancy()[&(0, "ub".to_owned())];
        assert_eq!(steps, &[(0.0, 64), (25.0, 0), (30.0, 64), (50.0, 0)]);
        let trace: Value = serde_json::from_str(&timeline.to_perfetto()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!((slices.len(), slices[1]["ts"].as_f64(), slices[1]["dur"].as_f64()), (4, Some(0.01), Some(0.015)));
        assert_eq!(events.iter().filter(|event| event["ph"] == "C").count(), 4);
    }
}
