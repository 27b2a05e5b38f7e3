//! The points that every course on accelerator memory makes, on real memory: who allocates when, pools against system calls,
//! a leak, tiles against caches, copies beside kernels. Each row names its baseline first.

use crate::backend::executor::{self, ExecuteError};
use crate::backend::probe::tiles;
use crate::backend::{BackendError, Compute, Memory, MemoryError, MemoryOptions, Place, loops};
use npumem_allocator::{Script, ScriptError};
use npumem_ir::problem::{Buffer, Problem, Space};
use npumem_ir::{Bytes, SpaceId, StepRange};
use npumem_planner::placement::{PlacementError, PlacementOptions};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Instant;
use thiserror::Error;

/// Why the lecture stops.
#[derive(Debug, Error)]
pub enum LectureError {
    /// The device refused.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The memory refused.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The executor.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// The plan.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The plan as a script.
    #[error(transparent)]
    Script(#[from] ScriptError),
}

/// One measured row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What was done.
    pub what: String,
    /// What it took, in `unit`.
    pub value: f64,
    /// The unit.
    pub unit: &'static str,
    /// How many times less than the baseline, the section's first row.
    pub ratio: f64,
    /// Anything else to say.
    pub note: String,
}

/// One point.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// A short key.
    pub key: &'static str,
    /// What it shows.
    pub title: String,
    /// The rows; the first is the baseline.
    pub rows: Vec<Row>,
    /// What follows.
    pub notes: Vec<String>,
}

/// Opens the device anew, with one space of so many bytes.
pub type Open<'a> = &'a dyn Fn(Bytes) -> Result<Box<dyn Compute>, BackendError>;

/// Opens a memory on the device anew.
pub type OpenMemory<'a> = &'a dyn Fn(Bytes, MemoryOptions) -> Result<Memory, MemoryError>;

/// How long it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LectureOptions {
    /// Iterations of the step whose buffers are allocated.
    pub iterations: u32,
    /// Side of the matrices.
    pub side: usize,
    /// Channels and side of the convolution.
    pub image: (u32, u32),
    /// Runs of each loop.
    pub runs: u32,
}

impl LectureOptions {
    /// About twenty seconds.
    #[must_use]
    pub fn full() -> Self {
        Self { iterations: 400, side: 768, image: (64, 96), runs: 3 }
    }

    /// About two seconds.
    #[must_use]
    pub fn quick() -> Self {
        Self { iterations: 40, side: 320, image: (16, 48), runs: 2 }
    }
}

const CAPACITY: Bytes = Bytes(192 << 20);

/// Gives the lecture.
///
/// # Errors
/// When the device refuses.
pub fn lecture(
    open: Open<'_>,
    open_memory: OpenMemory<'_>,
    options: &LectureOptions,
) -> Result<Vec<Section>, LectureError> {
    Ok(vec![
        allocation(open, open_memory, options.iterations)?,
        leak(open_memory)?,
        tiling("product", options),
        tiling("convolution", options),
        overlap(open)?,
    ])
}

/// One buffer of the step: its size may vary from iteration to iteration.
struct Step {
    buffers: Vec<(Bytes, StepRange, bool)>,
}

/// A step of 24 layers, as a decoder has it: in each a few activations, one of which depends on the input's length.
fn step() -> Step {
    let mut buffers = Vec::new();
    for layer in 0..24_u64 {
        let at = layer * 8;
        let mut add = |parts: u64, from: u64, to: u64, varies: bool| {
            buffers.push((Bytes(parts << 14), StepRange::steps(at + from, at + to), varies));
        };
        // In parts of 16 KiB: the residual stream, queries, keys and values, scores (as long as the input), the context, the wide layer.
        add(256, 0, 9, false);
        add(768, 1, 4, false);
        add(512, 2, 4, true);
        add(256, 3, 5, false);
        add(1024, 5, 7, false);
        add(1024, 6, 8, false);
    }
    Step { buffers }
}

impl Step {
    /// The calls of one iteration: frees before allocations, then by buffer, as a plan's script has them.
    fn calls(&self) -> Vec<(u64, bool, usize)> {
        let mut calls: Vec<(u64, bool, usize)> = Vec::new();
        for (index, (_, steps, _)) in self.buffers.iter().enumerate() {
            calls.push((steps.start.0, true, index));
            calls.push((steps.end.0, false, index));
        }
        calls.sort_unstable();
        calls
    }

    /// The plan of all buffers, or of those whose size is fixed.
    fn script(&self, with_varying: bool) -> Result<(Script, Bytes), LectureError> {
        let mut problem =
            Problem { name: "step".to_owned(), spaces: vec![Space::unbounded("hbm")], ..Problem::default() };
        for (index, (size, steps, _)) in self.buffers.iter().enumerate().filter(|(_, one)| with_varying || !one.2) {
            problem.buffers.push(Buffer::new(index.to_string(), *size, *steps, SpaceId(0)));
        }
        let plan = crate::place(&problem, &PlacementOptions::fast())?.plan;
        let peak = plan.spaces.first().map_or(Bytes::ZERO, |space| space.peak);
        Ok((Script::from_plan(&problem, &plan, SpaceId(0))?, peak))
    }

    /// The size of a buffer in an iteration: what varies is between a quarter and all of its most.
    fn size(&self, index: usize, iteration: u32) -> Bytes {
        let (most, _, varies) = self.buffers[index];
        // Never the size of a planned buffer: a plan knows its buffers by their sizes.
        if varies { Bytes(most.get() / 64 * u64::from(16 + iteration * 29 % 49) - 4096) } else { most }
    }
}

/// Nanoseconds a call of a whole run through a memory, and what it reserved at most.
fn through(
    memory: &Memory,
    step: &Step,
    iterations: u32,
    size: impl Fn(usize, u32) -> Bytes,
) -> Result<(f64, f64, Bytes), LectureError> {
    let calls = step.calls();
    let mut least = u128::MAX;
    for iteration in 0..iterations.max(2) {
        let mut live = Vec::new();
        live.resize_with(step.buffers.len(), || None);
        memory.mark_step("step");
        let start = Instant::now();
        for (_, starts, index) in &calls {
            // A buffer frees itself where it is dropped.
            live[*index] = if *starts { Some(memory.allocate(SpaceId(0), size(*index, iteration))?) } else { None };
        }
        least = least.min(start.elapsed().as_nanos());
    }
    let statistics = memory.statistics(SpaceId(0))?;
    Ok((least as f64 / calls.len() as f64, statistics.footprint(), statistics.peak_reserved))
}

fn allocation(open: Open<'_>, open_memory: OpenMemory<'_>, iterations: u32) -> Result<Section, LectureError> {
    let step = step();
    let calls = step.calls().len();
    let system = system_calls(open, &step)?;
    let row = |what: &str, ns: f64, note: String| Row {
        what: what.to_owned(),
        value: ns,
        unit: "ns a call",
        ratio: system / ns.max(1e-9),
        note,
    };
    let mut rows = vec![row("the system, for every buffer", system, "reserve and commit, release".to_owned())];
    let told =
        |footprint: f64, reserved: Bytes| format!("reserved at most {reserved}, {footprint:.3} times the live peak");
    let dynamic = open_memory(CAPACITY, MemoryOptions::default())?;
    let (ns, footprint, reserved) = through(&dynamic, &step, iterations, |index, turn| step.size(index, turn))?;
    rows.push(row("dynamic: every buffer from the pool", ns, told(footprint, reserved)));
    let recorded = open_memory(CAPACITY, MemoryOptions::default())?;
    recorded.record_to(Box::new(std::io::sink()))?;
    let (with, _, _) = through(&recorded, &step, iterations, |index, turn| step.size(index, turn))?;
    rows.push(row(
        "dynamic, with every call recorded",
        with,
        format!("into a binary trace that is thrown away: {:.0} ns an event more", (with - ns).max(0.0)),
    ));
    let (script, planned) = step.script(false)?;
    let hybrid = open_memory(CAPACITY, with_plan(script))?;
    let (ns, footprint, reserved) = through(&hybrid, &step, iterations, |index, turn| step.size(index, turn))?;
    rows.push(row(
        "hybrid: fixed sizes from the plan, the rest from the pool",
        ns,
        format!("{}; the plan is {planned}", told(footprint, reserved)),
    ));
    let (script, planned) = step.script(true)?;
    let fixed = open_memory(CAPACITY, with_plan(script))?;
    let (ns, footprint, reserved) = through(&fixed, &step, iterations, |index, _| step.buffers[index].0)?;
    rows.push(row(
        "static: every buffer from the plan, at its largest size",
        ns,
        format!("{}; the plan is {planned}", told(footprint, reserved)),
    ));
    let mut notes = vec![
        "a static plan needs no search at run time and reserves its peak, whatever comes; a pool follows the sizes that come; \
         the hybrid does each where it can"
            .to_owned(),
    ];
    if !open(Bytes(1 << 20))?.maps_pages() {
        notes.push(
            "this device maps no pages: its memory is taken whole at the start, so what is reserved says nothing"
                .to_owned(),
        );
    }
    Ok(Section {
        key: "allocation",
        title: format!("who gives a buffer its bytes: {calls} calls of one step of a 24-layer model, with tracking on"),
        rows,
        notes,
    })
}

fn with_plan(script: Script) -> MemoryOptions {
    MemoryOptions { plans: std::iter::once((SpaceId(0), script)).collect(), ..MemoryOptions::default() }
}

/// Nanoseconds a call when each buffer is a reservation of its own.
fn system_calls(open: Open<'_>, step: &Step) -> Result<f64, LectureError> {
    let mut device = open(CAPACITY)?;
    let page = device.spaces().first().map_or(1, |space| space.page.get());
    let calls = step.calls();
    let mut least = u128::MAX;
    for iteration in 0..5 {
        let mut live = vec![None; step.buffers.len()];
        let start = Instant::now();
        for (_, starts, index) in &calls {
            if *starts {
                let bytes = Bytes(step.size(*index, iteration).get().next_multiple_of(page));
                let region = device.reserve(SpaceId(0), bytes)?;
                device.commit(Place { region, offset: 0 }, bytes)?;
                live[*index] = Some(region);
            } else if let Some(region) = live[*index].take() {
                device.release(region)?;
            }
        }
        least = least.min(start.elapsed().as_nanos());
    }
    Ok(least as f64 / calls.len() as f64)
}

/// A loop that keeps one buffer of each step.
fn leak(open_memory: OpenMemory<'_>) -> Result<Section, LectureError> {
    const KEPT: u64 = 96 << 10;
    let memory = open_memory(CAPACITY, MemoryOptions::default())?;
    let mut cache = Vec::new();
    let steps = 12;
    for turn in 0..steps {
        let _decode = memory.scope("decode");
        let _activation = memory.allocate(SpaceId(0), Bytes(512 << 10))?;
        {
            let _append = memory.scope("append to cache");
            cache.push(memory.allocate(SpaceId(0), Bytes(KEPT))?);
        }
        drop(_decode);
        memory.mark_step(&format!("token {turn}"));
    }
    let growth = memory.growth();
    let named = growth.first().map(|one| {
        let frames: Vec<String> = one
            .frames
            .iter()
            .map(|frame| {
                let at = if frame.file.is_empty() { String::new() } else { format!("{}:{}", frame.file, frame.line) };
                if frame.function.is_empty() { at } else { frame.function.clone() }
            })
            .collect();
        (frames.join(" in "), one.bytes_per_step, one.steps_to_full)
    });
    let (who, rate, full) = named.unwrap_or_else(|| ("nobody".to_owned(), 0.0, f64::INFINITY));
    let row = |what: String, value: f64, note: String| Row { what, value, unit: "B a step", ratio: 1.0, note };
    Ok(Section {
        key: "leak",
        title: format!("a loop that keeps {} of every step, found after {steps} steps and named", Bytes(KEPT)),
        rows: vec![
            row("what the loop keeps".to_owned(), KEPT as f64, "known here, as we wrote it".to_owned()),
            row(format!("what the growth detector says: {who}"), rate, format!("full after {full:.0} more steps")),
        ],
        notes: Vec::new(),
    })
}

fn tiling(which: &'static str, options: &LectureOptions) -> Section {
    let (tiling, title) = if which == "product" {
        let side = options.side;
        (loops::product(side, options.runs), format!("tiles and caches: a {side} x {side} matrix product, one core"))
    } else {
        let (channels, side) = options.image;
        let title = format!("tiles and caches: a 3x3 convolution, {channels} channels of {side} x {side}, one core");
        (loops::convolution(channels, side, options.runs), title)
    };
    let row = |what: &str, ns: u64| Row {
        what: what.to_owned(),
        value: ns as f64 / 1e6,
        unit: "ms",
        ratio: tiling.untiled_ns as f64 / ns as f64,
        note: format!("{:.2} Gop/s", tiling.operations as f64 / ns as f64),
    };
    let equal = if tiling.equal { "both give the same numbers" } else { "THE TWO DIFFER" };
    Section {
        key: which,
        title,
        rows: vec![
            row("untiled: one result after the other", tiling.untiled_ns),
            row("tiled: what is read once is used for all of a tile", tiling.tiled_ns),
        ],
        notes: vec![equal.to_owned()],
    }
}

fn overlap(open: Open<'_>) -> Result<Section, LectureError> {
    let task = tiles::product(16, [1024, 256, 16]);
    let mut device = open(task.memory()?)?;
    let outcome = executor::execute(device.as_mut(), &task)?;
    let row = |what: &str, ns: u64, note: String| Row {
        what: what.to_owned(),
        value: ns as f64 / 1e6,
        unit: "ms",
        ratio: outcome.serial.wall_ns as f64 / ns.max(1) as f64,
        note,
    };
    let copying = outcome.serial.copying_ns as f64 / 1e6;
    let share = 100.0 * outcome.overlapped.overlap().unwrap_or(0.0);
    Ok(Section {
        key: "overlap",
        title: "two slots: 16 tiles of 1024 x 256 floats (1 MiB), each copied in and multiplied by 256 x 16".to_owned(),
        rows: vec![
            row("one after the other", outcome.serial.wall_ns, format!("copies take {copying:.3} ms of it")),
            row(
                "the next tile is copied beside the product",
                outcome.overlapped.wall_ns,
                format!("{share:.0} % of the copying is hidden"),
            ),
        ],
        notes: vec![
            if outcome.differs { "THE RESULTS DIFFER from the reference" } else { "results equal the reference" }
                .to_owned(),
        ],
    })
}

/// The lecture as text.
#[must_use]
pub fn to_text(on: &str, sections: &[Section]) -> String {
    let mut text = format!("on {on}\n");
    for (number, section) in sections.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{}. {}", number + 1, section.title);
        for (index, row) in section.rows.iter().enumerate() {
            let baseline = if index == 0 { "baseline".to_owned() } else { format!("{:.2} x", row.ratio) };
            let _ = writeln!(text, "   {:>12.3} {:<10} {baseline:>9}  {}", row.value, row.unit, row.what);
            if !row.note.is_empty() {
                let _ = writeln!(text, "   {:>34}{}", "", row.note);
            }
        }
        for note in &section.notes {
            let _ = writeln!(text, "   {note}");
        }
    }
    text
}

/// The lecture as JSON.
#[must_use]
pub fn to_json(on: &str, sections: &[Section]) -> Value {
    let sections: Vec<Value> = sections
        .iter()
        .map(|section| {
            let rows: Vec<Value> = section
                .rows
                .iter()
                .map(|row| {
                    json!({"what": row.what, "value": row.value, "unit": row.unit, "ratio": row.ratio, "note": row.note})
                })
                .collect();
            json!({"key": section.key, "title": section.title, "rows": rows, "notes": section.notes})
        })
        .collect();
    json!({"format": "npumem-lecture", "version": 1, "on": on, "sections": sections})
}
