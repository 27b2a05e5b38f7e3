//! What one statement takes on its engine, alone, and how many bytes it draws from the memories that are shared.

use super::banks::{Conflict, Steps};
use super::cache::{Cache, pieces};
use super::error::RunError;
use super::hbm::Drawn;
use super::machine::{Far, Hop, MAX_SHARED, Machine, Work};
use super::region::Region;
use super::touch::{Touch, element_bytes};
use npumem_ir::device::{MissingFigure, Precision};
use npumem_ir::{EngineId, LinkId, SpaceId};

/// Runs of one transfer whose first bytes are looked at one by one.
const MAX_RUNS: u64 = 4096;

/// What a statement takes.
#[derive(Clone, Debug, Default)]
pub(super) struct Cost {
    /// Cycles that the engine is taken, alone.
    pub cycles: f64,
    /// Cycles from then until its results are there.
    pub latency: f64,
    /// Bytes that it draws from each shared memory.
    pub shared: [f64; MAX_SHARED],
    /// Bytes over links.
    pub links: Vec<(LinkId, u64)>,
    /// What the main memory is asked for, when it is run command by command.
    pub main: Vec<Drawn>,
    /// The unit stands still until it has that.
    pub holds: bool,
    /// Operations of a compute unit; a multiply-accumulate counts two.
    pub operations: u64,
    /// Cycles among `cycles` for which rows of one step wait for the same banks, and what they have in common.
    pub conflicts: Option<(f64, Conflict)>,
}

/// The cost of a statement.
pub(super) fn cost(
    machine: &Machine<'_>,
    work: &Work,
    name: &str,
    reads: &[Touch],
    writes: &[Touch],
    cache: &mut Option<Cache>,
) -> Result<Cost, RunError> {
    let mut cost = Cost::default();
    match work {
        Work::Move { hops, cached, reads_main, writes_main, to_core } => {
            let far = match (reads_main, writes_main) {
                (true, _) => reads.first().or_else(|| writes.first()),
                (_, true) => writes.first().or_else(|| reads.first()),
                _ => reads.first().or_else(|| writes.first()),
            };
            let Some(touch) = far else { return Ok(cost) };
            let region = moved_region(touch);
            match (cached, cache) {
                (Some(cached), Some(cache)) => {
                    through_cache(
                        machine,
                        &mut cost,
                        (&hops[0], cached),
                        (touch, &region),
                        cache,
                        *reads_main,
                        *to_core,
                    );
                }
                _ => {
                    for (index, hop) in hops.iter().enumerate() {
                        let bytes = over(&mut cost, hop, &region, touch.payload(), index == 0);
                        draw_ends(machine, &mut cost, hop.link, bytes);
                        ask_ends(machine, &mut cost, hop, touch, &region);
                    }
                }
            }
        }
        Work::Copy { space, rate, latency } => {
            let bytes = reads.first().or_else(|| writes.first()).map_or(0, Touch::payload);
            cost.cycles = bytes as f64 / rate;
            cost.latency = *latency;
            draw(machine, &mut cost, *space, 2 * bytes);
            for (write, touch) in [(false, reads.first()), (true, writes.first())] {
                let Some(touch) = touch.filter(|_| Some(*space) == machine.main) else { continue };
                ask(machine, &mut cost, touch, write, 0.0, &moved_region(touch));
            }
        }
        Work::Matrix { engine, startup, far } => {
            product(machine, &mut cost, *engine, *startup, name, reads, writes)?;
            far_operands(machine, &mut cost, far, reads, writes);
        }
        Work::Vector { engine, startup, passes, banks, far } => {
            let steps = elements(machine, &mut cost, *engine, (*startup, *passes), reads, writes)?;
            if let (true, Some(banks), Some((steps, pace))) = (machine.detailed, banks, steps) {
                cost.conflicts = banks.lost(steps, pace, reads, writes).map(|(lost, why)| (passes * lost, why));
                cost.cycles += cost.conflicts.map_or(0.0, |(cycles, _)| cycles);
            }
            far_operands(machine, &mut cost, far, reads, writes);
        }
        Work::Scalar { startup, far } => {
            cost.cycles = *startup;
            far_operands(machine, &mut cost, far, reads, writes);
        }
    }
    Ok(cost)
}

/// The bytes that a transfer moves: where they lie when that is known, else that many in one run.
fn moved_region(touch: &Touch) -> Region {
    if touch.certain && touch.region.bytes() == touch.payload() {
        touch.region
    } else {
        Region::flat(touch.region.start, touch.payload())
    }
}

/// Adds one link's time; returns the bytes it moved.
fn over(cost: &mut Cost, hop: &Hop, region: &Region, payload: u64, first: bool) -> u64 {
    let (moved, unaligned) = grains(region, hop);
    let share = 1.0 - unaligned * (1.0 - hop.unaligned_share);
    let startups = payload.div_ceil(hop.largest).max(1) as f64;
    let cycles = startups * hop.startup + moved as f64 / (hop.rate * share);
    if first {
        cost.cycles += cycles;
        cost.latency += hop.latency;
    } else {
        // The second link of a way works on what the first one brought, behind it.
        cost.latency += cycles + hop.latency;
    }
    cost.links.push((hop.link, payload));
    moved
}

/// Bytes rounded out to the link's grain, run by run, and the share of runs that start off its alignment.
fn grains(region: &Region, hop: &Hop) -> (u64, f64) {
    let (grain, align) = (hop.granularity, hop.alignment);
    let rounded = |start: u64| {
        let end = start.saturating_add(region.run);
        end.div_ceil(grain).saturating_mul(grain).saturating_sub(start / grain * grain)
    };
    let runs = region.runs();
    let regular = region.dims().iter().all(|(_, stride)| stride % grain == 0 && stride % align == 0);
    if regular || region.run == 0 {
        let off = if region.start.is_multiple_of(align) { 0.0 } else { 1.0 };
        let moved = if region.run == 0 { 0 } else { rounded(region.start) };
        return (runs.saturating_mul(moved), off);
    }
    let (mut moved, mut off, mut seen) = (0_u64, 0_u64, 0_u64);
    region.each_run(MAX_RUNS, |start| {
        moved = moved.saturating_add(rounded(start));
        off += u64::from(!start.is_multiple_of(align));
        seen += 1;
    });
    let scale = runs as f64 / seen.max(1) as f64;
    ((moved as f64 * scale) as u64, off as f64 / seen.max(1) as f64)
}

fn through_cache(
    machine: &Machine<'_>,
    cost: &mut Cost,
    (far, cached): (&Hop, &super::machine::Cached),
    (touch, region): (&Touch, &Region),
    cache: &mut Cache,
    reads: bool,
    to_core: bool,
) {
    let payload = touch.payload();
    let mut brought = Vec::new();
    let found = if to_core {
        // What one core hands to another is in the cache: it has just been written, or is read at once.
        super::cache::Found { hit: payload, missed: 0 }
    } else {
        cache.touch(touch.place, region, machine.detailed.then_some(&mut brought))
    };
    let all = (found.hit + found.missed).max(1);
    let missed = (payload as f64 * found.missed as f64 / all as f64).round() as u64;
    let hop = &cached.hop;
    if reads {
        let (near_bytes, unaligned) = grains(region, hop);
        let share = |hop: &Hop| 1.0 - unaligned * (1.0 - hop.unaligned_share);
        let miss_part = found.missed as f64 / all as f64;
        let near = near_bytes as f64 * (1.0 - miss_part) / (hop.rate * share(hop));
        let miss = near_bytes as f64 * miss_part / (far.rate * share(far));
        let startups = payload.div_ceil(hop.largest).max(1) as f64;
        cost.cycles += startups * hop.startup.max(far.startup) + near + miss;
        cost.latency += if missed > 0 { far.latency } else { hop.latency };
        cost.links.push((far.link, missed));
        cost.links.push((hop.link, payload - missed.min(payload)));
        if missed > 0 {
            cost.links.push((cached.fill, found.missed));
        }
        draw(machine, cost, machine.device.link(far.link).from, found.missed);
        draw(machine, cost, machine.device.link(hop.link).from, near_bytes);
        if !brought.is_empty() {
            let after = hop.startup.max(far.startup);
            cost.main.push(Drawn { place: touch.place, write: false, after, pieces: brought });
        }
    } else {
        // Written into the cache, and from there to the main memory at the cache's own pace.
        let bytes = over(cost, hop, region, payload, true);
        draw(machine, cost, machine.device.link(hop.link).to, bytes);
        if !to_core {
            cost.links.push((cached.fill, bytes));
            draw(machine, cost, machine.device.link(far.link).to, bytes);
            ask(machine, cost, touch, true, hop.startup, region);
        }
    }
}

fn draw(machine: &Machine<'_>, cost: &mut Cost, space: SpaceId, bytes: u64) {
    if let Some(index) = machine.shared_index(space) {
        cost.shared[index] += bytes as f64;
    }
}

fn draw_ends(machine: &Machine<'_>, cost: &mut Cost, link: LinkId, bytes: u64) {
    let link = machine.device.link(link);
    draw(machine, cost, link.from, bytes);
    draw(machine, cost, link.to, bytes);
}

/// What a hop that starts or ends in the main memory asks of it.
fn ask_ends(machine: &Machine<'_>, cost: &mut Cost, hop: &Hop, touch: &Touch, region: &Region) {
    let link = machine.device.link(hop.link);
    for (write, space) in [(false, link.from), (true, link.to)] {
        if Some(space) == machine.main {
            ask(machine, cost, touch, write, hop.startup, region);
        }
    }
}

fn ask(machine: &Machine<'_>, cost: &mut Cost, touch: &Touch, write: bool, after: f64, region: &Region) {
    if machine.detailed {
        let mut list = Vec::new();
        pieces(region, &mut list);
        cost.main.push(Drawn { place: touch.place, write, after, pieces: list });
    }
}

/// Operands that the unit fetches by itself: it waits for every one of them.
fn far_operands(machine: &Machine<'_>, cost: &mut Cost, far: &[Far], reads: &[Touch], writes: &[Touch]) {
    for operand in far {
        let list = if operand.write { writes } else { reads };
        let Some(touch) = list.get(operand.operand) else { continue };
        let region = moved_region(touch);
        let (before, latency) = (cost.cycles, cost.latency);
        let bytes = over(cost, &operand.hop, &region, touch.payload(), true);
        if !operand.write {
            // Nothing overlaps the way there: the unit stands still until the first byte comes.
            cost.cycles += cost.latency - latency;
        }
        cost.latency = latency;
        debug_assert!(cost.cycles >= before);
        draw_ends(machine, cost, operand.hop.link, bytes);
        ask_ends(machine, cost, &operand.hop, touch, &region);
        cost.holds = true;
    }
}

/// The operands of a product among what the statement reads: left, right.
pub(super) fn product_operands(name: &str, reads: usize) -> (usize, usize) {
    let accumulates = name.contains(".acc");
    let scaled = name.contains(".mx");
    let left = usize::from(accumulates);
    let right = left + if scaled && reads >= left + 4 { 2 } else { 1 };
    (left.min(reads.saturating_sub(1)), right.min(reads.saturating_sub(1)))
}

fn product(
    machine: &Machine<'_>,
    cost: &mut Cost,
    engine: EngineId,
    startup: f64,
    name: &str,
    reads: &[Touch],
    writes: &[Touch],
) -> Result<(), RunError> {
    let (left, right) = product_operands(name, reads.len());
    let (Some(a), Some(b), Some(c)) = (reads.get(left), reads.get(right), writes.first()) else {
        cost.cycles = startup;
        return Ok(());
    };
    let (m, _) = c.shape.rows_and_columns();
    let n = b.shape.rows_and_columns().1;
    let k = a.shape.rows_and_columns().1;
    let precision = Precision::of(a.element).ok_or_else(|| missing(machine, engine, "operations.i64"))?;
    let rate = machine.operations(engine, precision)?;
    let unit = machine.device.engine(engine).compute.as_ref();
    let fractal = unit.and_then(|unit| unit.fractal.get(&precision)).and_then(|figure| figure.known());
    let [fm, fk, fn_] = *fractal.ok_or_else(|| missing(machine, engine, &format!("fractal.{precision}")))?;
    let up = |size: u64, unit: u64| size.div_ceil(unit.max(1)).saturating_mul(unit.max(1));
    let padded = 2.0 * up(m, fm) as f64 * up(k, fk) as f64 * up(n, fn_) as f64;
    cost.cycles = startup + padded / rate;
    cost.operations = 2_u64.saturating_mul(m).saturating_mul(n).saturating_mul(k);
    Ok(())
}

fn missing(machine: &Machine<'_>, engine: EngineId, figure: &str) -> MissingFigure {
    MissingFigure::new(&machine.device.name, &format!("{}.{figure}", machine.device.engine(engine).name))
}

/// The time of the elements; returns the steps and the cycles of each.
fn elements(
    machine: &Machine<'_>,
    cost: &mut Cost,
    engine: EngineId,
    (startup, passes): (f64, f64),
    reads: &[Touch],
    writes: &[Touch],
) -> Result<Option<(Steps, f64)>, RunError> {
    let Some(largest) = reads.iter().chain(writes).max_by_key(|touch| touch.shape.elements()) else {
        cost.cycles = startup;
        return Ok(None);
    };
    let unit = machine.device.engine(engine).compute.clone().unwrap_or_default();
    let width = unit.vector_width.known().ok_or_else(|| missing(machine, engine, "vector_width"))?.get();
    // The widest element decides how many go in one step; the slowest of the types that have a figure, the pace.
    let widest = reads.iter().chain(writes).map(|touch| element_bytes(touch.element)).max().unwrap_or(1);
    let lanes = (width / widest).max(1);
    let mut pace: Option<f64> = None;
    for touch in reads.iter().chain(writes) {
        let rate = Precision::of(touch.element).and_then(|p| unit.operations_per_cycle.get(&p)?.known().copied());
        if let Some(rate) = rate {
            let cycles = (width / element_bytes(touch.element)).max(1) as f64 / rate;
            pace = Some(pace.map_or(cycles, |pace: f64| pace.max(cycles)));
        }
    }
    // Types without a figure go at the pace of whole steps: a vector width in the cycles of 16 bits.
    let pace = match pace {
        // At most one step begins in a cycle, whatever a fused operation counts.
        Some(pace) => pace.max(1.0),
        None => {
            let rate = machine.operations(engine, Precision::F16).or_else(|_| {
                let precision = Precision::of(largest.element).unwrap_or(Precision::I8);
                machine.operations(engine, precision)
            })?;
            (width / 2).max(1) as f64 / rate
        }
    };
    let (rows, columns) = largest.shape.rows_and_columns();
    // Rows that lie side by side are one run of steps; others each end in a step of their own.
    let together = largest.region.runs() == 1 || !largest.certain;
    let (rows, columns) = if together { (1, largest.shape.elements()) } else { (rows, columns) };
    let steps = rows.saturating_mul(columns.div_ceil(lanes));
    let repeats = unit.repeats.known().copied().unwrap_or(u64::MAX).max(1);
    let instructions = steps.div_ceil(repeats).max(1);
    cost.cycles = passes * (instructions as f64 * startup + steps as f64 * pace);
    cost.operations = largest.shape.elements();
    Ok(Some((Steps { count: steps, lanes, rows, columns }, pace)))
}

/// How often a vector operation goes over its elements: one for what the unit does in one instruction, more for
/// what is made of several. Estimates of ours, the same for all devices; `docs/simulator.md` lists them.
pub(super) fn passes(name: &str) -> f64 {
    let name = name.trim_start_matches("pto.");
    let name = name.strip_prefix('t').unwrap_or(name);
    // What a statement adds to is in what follows the point.
    match name.split('.').next().unwrap_or(name) {
        "exp" | "log" | "sqrt" | "rsqrt" | "recip" | "div" | "divs" | "rowexpanddiv" | "colexpanddiv" => 2.0,
        "pow" | "pows" | "rem" | "rems" | "fmod" | "fmods" => 8.0,
        "rowsum" | "rowmean" | "rowmax" | "rowmin" | "rowprod" | "rowargmax" | "rowargmin" => 2.0,
        "colsum" | "colmean" | "colmax" | "colmin" | "colprod" | "colargmax" | "colargmin" => 1.0,
        "rowexpandexpdif" | "colexpandexpdif" => 3.0,
        "trans" | "gather" | "gatherb" | "scatter" | "histogram" | "random" => 4.0,
        "sort32" | "mrgsort" => 8.0,
        // Functions that a schedule of `tile` names by one word.
        "sigmoid" => 3.0,
        "silu" | "tanh" => 4.0,
        "swiglu" => 5.0,
        "gelu" | "erf" => 8.0,
        "sel" | "sels" | "quant" | "dequant" => 2.0,
        _ => 1.0,
    }
}
