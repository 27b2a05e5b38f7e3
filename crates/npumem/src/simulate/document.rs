//! From the totals of a run to its document.

use npumem_ir::program::{Program, Step};
use npumem_ir::{Device, EngineId, ScalarId, StepId};
use npumem_report::run_report::{
    Bound, ChannelRow, DramIdleRow, DramReport, EngineRow, FORMAT, Fault, IdleRow, LinkRow, MemoryRow, RunReport,
    Sanitizer, StatementRow, VERSION, Waits,
};
use npumem_simulator::run::shadow::{self, Shadow};
use npumem_simulator::run::{Cause, Conflict, End, EngineTotals, OrderUsed, Outcome};

/// Statements that are listed at most.
const MAX_ROWS: usize = 100;

/// The document of a run.
#[must_use]
pub fn document(program: &Program, outcome: &Outcome, notes: &[String]) -> RunReport {
    let order = match outcome.order {
        OrderUsed::Ranges => "engines wait for each other by the bytes that they share",
        OrderUsed::Program => "engines wait for each other by the program's own flags and barriers",
    };
    let (end, deadlock) = match &outcome.end {
        End::Complete => ("complete", Vec::new()),
        End::Deadlock { waits } => {
            let rows = waits.iter().map(|stuck| Waits {
                block: stuck.block,
                engine: stuck.engine.clone(),
                step: stuck.step.0,
                line: stuck.line,
                waits_for: stuck.waits_for.clone(),
            });
            ("deadlock", rows.collect())
        }
        End::Limit { .. } => ("limit", Vec::new()),
    };
    let mut all_notes: Vec<String> = notes.to_vec();
    all_notes.extend(outcome.assumed.iter().map(|text| format!("taken for granted: {text}")));
    all_notes.extend(bank_conflicts(program, outcome));
    if let End::Limit { steps } = &outcome.end {
        all_notes.push(format!("stopped after {steps} steps: a loop may be endless; --max-steps raises the bound"));
    }
    RunReport {
        format: FORMAT,
        version: VERSION,
        program: outcome.program.clone(),
        device: outcome.device.clone(),
        detail: if outcome.dram.is_some() { "detailed" } else { "fast" }.to_owned(),
        clock_hz: outcome.clock_hz,
        cycles: outcome.cycles,
        seconds: outcome.seconds(),
        blocks: outcome.blocks,
        cores: outcome.cores,
        statements: outcome.statements,
        order: order.to_owned(),
        end: end.to_owned(),
        deadlock,
        engines: outcome.engines.iter().map(|engine| engine_row(program, outcome, engine)).collect(),
        links: links(outcome),
        memories: memories(outcome),
        dram: dram(outcome),
        bound: bound(outcome),
        statement_rows: statements(program, outcome),
        most_in_flight: outcome.most_in_flight as u64,
        notes: all_notes,
        ..RunReport::default()
    }
}

/// The statement of each engine that waits longest for banks, and what would mend it.
fn bank_conflicts(program: &Program, outcome: &Outcome) -> Vec<String> {
    let note = |(at, engine): (usize, &EngineTotals)| {
        let here = outcome.steps.iter().zip(&program.steps).enumerate();
        let of_engine = here.filter(|(_, (totals, _))| usize::from(totals.engine) == at);
        let found = of_engine.filter_map(|(step, (totals, what))| Some((step, totals.conflicts?, what)));
        let (step, (cycles, why), what) = found.max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
        let Step::Run(operation) = what else { return None };
        let line = if operation.line == 0 { String::new() } else { format!(", line {}", operation.line) };
        let mend = match why {
            Conflict::Rows => {
                "the rows of one operand lie in one bank group: another distance from row to row spreads them"
            }
            Conflict::Reads => {
                "two operands that it reads lie in the same bank groups: half a row of groups between their starts parts them"
            }
            Conflict::ReadWrite => {
                "what it reads and what it writes lie in the same banks: another bank for one of them parts them"
            }
        };
        Some(format!(
            "{}: {:.0} % of its busy cycles wait for banks, {:.0} % of that in step {step} ({}{line}): {mend}",
            engine.name,
            engine.conflicts / engine.busy * 100.0,
            cycles / engine.conflicts * 100.0,
            operation.name,
        ))
    };
    let engines = outcome.engines.iter().enumerate();
    engines.filter(|(_, engine)| engine.conflicts >= 0.005 * engine.busy).filter_map(note).collect()
}

/// What `fast` leaves out and this run would feel: it is near its bound, and that is the traffic of a memory whose rows
/// and refresh the device describes.
#[must_use]
pub fn left_out(device: &Device, report: &RunReport) -> Option<String> {
    let by = report.bound.by.as_str();
    let space = device.spaces().find_map(|(id, space)| {
        space.dram.as_ref()?;
        let moves = |engine: EngineId| device.engine(engine).name == by;
        let feeds = device.links().any(|(_, link)| (link.from == id || link.to == id) && moves(link.engine));
        (feeds || by.strip_prefix("the bandwidth of ") == Some(&space.name)).then_some(space)
    })?;
    (report.bound.cycles >= 0.75 * report.cycles).then(|| {
        format!(
            "'fast' leaves the rows and the refresh of {} out, which can add a tenth or two to a run that it bounds; --detail detailed counts them",
            space.name
        )
    })
}

/// What shadow memory found.
#[must_use]
pub fn sanitizer(program: &Program, shadow: &Shadow<'_>) -> Sanitizer {
    let one = |fault: &shadow::Fault| Fault {
        kind: fault.kind.word().to_owned(),
        message: fault.message(program),
        step: fault.step.0,
        line: fault.line,
        block: fault.block,
        turns: turns(program, &fault.turns),
        buffer: program.buffer(fault.buffer).name.clone(),
        start: fault.start,
        end: fault.end,
        earlier_step: fault.earlier.as_ref().map(|earlier| earlier.step.0),
        again: fault.again,
    };
    Sanitizer {
        faults: shadow.total(),
        accesses: shadow.accesses(),
        findings: shadow.faults().iter().map(one).collect(),
    }
}

fn turns(program: &Program, turns: &[(ScalarId, i64)]) -> String {
    let list = turns.iter().map(|(counter, value)| format!("{} = {value}", program.scalar(*counter).name));
    list.collect::<Vec<_>>().join(", ")
}

fn engine_row(program: &Program, outcome: &Outcome, engine: &EngineTotals) -> EngineRow {
    let each = |cycles: f64| cycles / engine.instances.max(1) as f64;
    let mut idle: Vec<IdleRow> = engine
        .idle
        .iter()
        .map(|(cause, cycles)| {
            let (buffer, other) = match cause {
                Cause::Data { buffer } | Cause::InUse { buffer } => (program.buffers.get(buffer.index()), None),
                Cause::Flag { from, .. } => (None, outcome.engines.get(usize::from(*from))),
                Cause::Order { queue } => (None, outcome.engines.get(usize::from(*queue))),
                _ => (None, None),
            };
            IdleRow {
                cause: cause.word().to_owned(),
                buffer: buffer.map(|buffer| buffer.name.clone()),
                engine: other.map(|engine| engine.name.clone()),
                text: cause_text(cause, buffer.map(|b| b.name.as_str()), other.map(|e| e.name.as_str())),
                cycles: each(*cycles),
                share: if outcome.cycles > 0.0 { each(*cycles) / outcome.cycles } else { 0.0 },
            }
        })
        .collect();
    idle.sort_by(|a, b| b.cycles.total_cmp(&a.cycles).then_with(|| a.text.cmp(&b.text)));
    EngineRow {
        name: engine.name.clone(),
        kind: engine.kind.map_or("?", |kind| kind.text()).to_owned(),
        instances: engine.instances,
        statements: engine.statements,
        busy_cycles: each(engine.busy),
        busy_share: outcome.busy_share(engine),
        slowed_cycles: each(engine.slowed),
        bank_conflict_cycles: each(engine.conflicts),
        bytes: engine.bytes,
        operations: engine.operations,
        idle,
        overtaken_cycles: each(engine.overtaken),
    }
}

/// A cause in words.
#[must_use]
pub fn cause_text(cause: &Cause, buffer: Option<&str>, engine: Option<&str>) -> String {
    let buffer = buffer.unwrap_or("a buffer");
    let engine = engine.unwrap_or("another engine");
    match cause {
        Cause::Data { .. } => format!("the data of '{buffer}' is not there yet"),
        Cause::InUse { .. } => format!("'{buffer}' is still in use: it has too few slots for this order"),
        Cause::Flag { event, .. } => format!("event {event} of {engine} is not raised yet"),
        Cause::Barrier => "a barrier: other engines are not there yet".to_owned(),
        Cause::Token => "a buffer token that another engine holds".to_owned(),
        Cause::OtherCore => "a flag of another core".to_owned(),
        Cause::Order { .. } => format!("the core cannot issue further: the queue of {engine} is full"),
        Cause::Limit => "no more transfers may be under way: the memory's latency".to_owned(),
        Cause::RowMiss => "the main memory opened rows for it".to_owned(),
        Cause::BankConflict => "the main memory closed other rows of the same banks first".to_owned(),
        Cause::Refresh => "the main memory was being refreshed".to_owned(),
        Cause::Drain => "a flag or barrier after what it has under way".to_owned(),
        Cause::Start => "nothing was issued to it yet".to_owned(),
        Cause::Done => "it has nothing left to do".to_owned(),
    }
}

fn links(outcome: &Outcome) -> Vec<LinkRow> {
    let seconds = outcome.seconds();
    let row = |link: &npumem_simulator::run::LinkTotals| LinkRow {
        name: link.name.clone(),
        bytes: link.bytes,
        transfers: link.transfers,
        bytes_per_second: if seconds > 0.0 { link.bytes as f64 / seconds } else { 0.0 },
    };
    outcome.links.iter().map(row).collect()
}

fn memories(outcome: &Outcome) -> Vec<MemoryRow> {
    let row = |space: &npumem_simulator::run::SpaceTotals| MemoryRow {
        name: space.name.clone(),
        bytes: space.bytes,
        bytes_per_second: space.bytes_per_cycle * outcome.clock_hz,
        share: if outcome.cycles > 0.0 { space.bytes / (space.bytes_per_cycle * outcome.cycles) } else { 0.0 },
    };
    outcome.spaces.iter().map(row).collect()
}

fn dram(outcome: &Outcome) -> Option<DramReport> {
    let dram = outcome.dram.as_ref()?;
    let bytes: u64 = dram.channels.iter().map(|channel| channel.read + channel.written).sum();
    let most = dram.peak_bytes_per_second * outcome.seconds();
    Some(DramReport {
        part: dram.part.clone(),
        row_hits: dram.row_hits,
        row_misses: dram.row_misses,
        row_conflicts: dram.row_conflicts,
        activates: dram.activates,
        refreshes: dram.refreshes,
        peak_bytes_per_second: dram.peak_bytes_per_second,
        share: if most > 0.0 { bytes as f64 / most } else { 0.0 },
        channels: dram
            .channels
            .iter()
            .map(|channel| ChannelRow { read_bytes: channel.read, written_bytes: channel.written })
            .collect(),
        idle: dram
            .idle
            .iter()
            .map(|(cause, clocks)| DramIdleRow { cause: (*cause).to_owned(), clocks: *clocks })
            .collect(),
    })
}

/// No order of the same statements ends before its busiest engine, or before the bytes are through a shared memory.
fn bound(outcome: &Outcome) -> Bound {
    let mut best = Bound::default();
    for engine in &outcome.engines {
        let cycles = (engine.busy - engine.slowed) / engine.instances.max(1) as f64;
        if cycles > best.cycles {
            best = Bound { cycles, by: engine.name.clone() };
        }
    }
    for space in &outcome.spaces {
        let cycles = space.bytes / space.bytes_per_cycle;
        if cycles > best.cycles {
            best = Bound { cycles, by: format!("the bandwidth of {}", space.name) };
        }
    }
    best
}

fn statements(program: &Program, outcome: &Outcome) -> Vec<StatementRow> {
    let mut rows = Vec::new();
    for (at, (totals, step)) in outcome.steps.iter().zip(&program.steps).enumerate() {
        let Step::Run(operation) = step else { continue };
        if totals.runs == 0 {
            continue;
        }
        let engine = outcome.engines.get(usize::from(totals.engine));
        let whole = engine.map_or(0.0, |engine| engine.busy);
        rows.push(StatementRow {
            step: StepId::new(at).0,
            line: operation.line,
            name: operation.name.clone(),
            engine: engine.map_or("", |engine| engine.name.as_str()).to_owned(),
            runs: totals.runs,
            busy_cycles: totals.busy / totals.runs as f64,
            waited_cycles: totals.waited / totals.runs as f64,
            share: if whole > 0.0 { totals.busy / whole } else { 0.0 },
        });
    }
    rows.sort_by(|a, b| {
        let weight = |row: &StatementRow| (row.busy_cycles + row.waited_cycles) * row.runs as f64;
        weight(b).total_cmp(&weight(a)).then(a.step.cmp(&b.step))
    });
    rows.truncate(MAX_ROWS);
    rows
}
