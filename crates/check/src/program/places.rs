//! Rules of single places: capacity, reserved bytes, alignment, and what engines can reach.

use super::finding::{Findings, Kind, Severity};
use npumem_ir::device::{EngineKind, SpaceKind};
use npumem_ir::program::{Access, Operation, Program, Role, Root, Step};
use npumem_ir::{BufferId, ByteRange, Bytes, Device, Offset, SpaceId, StepId};
use std::collections::BTreeSet;

/// How a copy of some rows can be expressed, on the side of the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rectangle {
    /// All rows are one run of this many bytes.
    OneBlock(u64),
    /// Row by row, each from a block boundary.
    Rows,
    /// Rows start between block boundaries and are not one run: no engine copies that.
    Refused,
    /// The first byte is not at a block boundary.
    Misaligned,
}

/// How `rows` rows of `row` bytes, `pitch` bytes apart from address `start`, can be copied by an engine that
/// works in blocks of `unit` bytes.
#[must_use]
pub fn rectangle(start: u64, rows: u64, row: u64, pitch: u64, unit: u64) -> Rectangle {
    let unit = unit.max(1);
    if !start.is_multiple_of(unit) {
        Rectangle::Misaligned
    } else if rows <= 1 || row == pitch {
        Rectangle::OneBlock(row.saturating_mul(rows.max(1)))
    } else if pitch.is_multiple_of(unit) {
        Rectangle::Rows
    } else {
        Rectangle::Refused
    }
}

pub(super) fn check(program: &Program, device: Option<&Device>, findings: &mut Findings) {
    aliases(program, findings);
    for (id, buffer) in program.buffers() {
        if buffer.role == Role::External || buffer.alias.is_some() {
            continue;
        }
        let space = device.and_then(|device| device.space_named(&buffer.space).map(|space| (device, space)));
        if device.is_some() && space.is_none() {
            findings.push(Severity::Fault, Kind::UnknownSpace { buffer: id });
        }
        let address = buffer.address.as_ref().and_then(|address| u64::try_from(address.as_constant()?).ok());
        let (Some(address), Some(size)) = (address, buffer.total_bytes()) else { continue };
        let Some(bytes) = ByteRange::at(Offset(address), Bytes(size)) else {
            let whole = ByteRange { start: Offset(address), end: Offset::MAX };
            findings.push(Severity::Fault, Kind::Outside { buffer: id, bytes: whole, capacity: Bytes::MAX });
            continue;
        };
        let mut unit = buffer.alignment;
        if let Some((device, space)) = space {
            bounds(device, space, (id, buffer.fixed), bytes, findings);
            if let Some(asked) = device.space(space).alignment.known() {
                unit = unit.and(*asked).unwrap_or(unit);
            }
        }
        if !unit.divides(Offset(address)) {
            let kind = Kind::Misaligned { buffer: id, address: Offset(address), unit: unit.get(), step: None };
            findings.push(Severity::Fault, kind);
        }
    }
    for (at, step) in program.steps.iter().enumerate() {
        if let Step::Run(operation) = step {
            let id = StepId::new(at);
            blocks(program, device, id, operation, findings);
            sums(program, device, id, operation, findings);
            if let Some(device) = device {
                reach(program, device, id, operation, findings);
            }
        }
    }
}

/// A product that goes on with a sum adds to what lies at its output (on the 910B; elsewhere nobody says): the sum
/// that it reads must lie there.
fn sums(program: &Program, device: Option<&Device>, step: StepId, operation: &Operation, findings: &mut Findings) {
    let goes_on =
        operation.name.ends_with(".acc") && ["tmatmul", "tgemv"].iter().any(|n| operation.name.starts_with(n));
    let Some(write) = operation.writes.first().filter(|_| goes_on) else { return };
    let Some((output, to)) = spot(program, write) else { return };
    let space = |id: BufferId| program.buffer(id).space.as_str();
    let mut elsewhere = None;
    for read in &operation.reads {
        let Root::Buffer(id) = read.root else { return };
        if space(id) != space(output) {
            continue;
        }
        // What cannot be compared is not judged.
        let Some((input, from)) = spot(program, read) else { return };
        if from == to {
            return;
        }
        elsewhere = elsewhere.or(Some(input));
    }
    let Some(input) = elsewhere else { return };
    let told = device.is_some_and(|device| device.name.starts_with("ascend-910b")) && !operation.name.contains(".mx");
    let severity = if told { Severity::Fault } else { Severity::Doubt };
    findings.push(severity, Kind::OtherSum { step, input, output });
}

/// The buffer of an access and the address of its first byte, where both are plain.
fn spot(program: &Program, access: &Access) -> Option<(BufferId, i64)> {
    let Root::Buffer(id) = access.root else { return None };
    let (owner, delta) = program.owner(id);
    let owner = program.buffer(owner);
    let base = owner.address.as_ref().filter(|_| owner.slots == 1)?.as_constant()?;
    let start = access.start.as_constant()?;
    Some((id, base.checked_add(i64::try_from(delta).ok()?)?.checked_add(start)?))
}

fn bounds(
    device: &Device,
    space: SpaceId,
    (buffer, fixed): (BufferId, bool),
    bytes: ByteRange,
    findings: &mut Findings,
) {
    let info = device.space(space);
    if let Some(capacity) = info.capacity.known()
        && bytes.end.0 > capacity.0
    {
        findings.push(Severity::Fault, Kind::Outside { buffer, bytes, capacity: *capacity });
    } else if let Some(usable) = info.usable.known()
        && bytes.end.0 > usable.0
        && !fixed
    {
        findings.push(Severity::Warning, Kind::PastUsable { buffer, bytes, usable: *usable });
    }
    for reserved in &info.reserved {
        if let Some(shared) = reserved.range.intersection(&bytes) {
            findings.push(Severity::Fault, Kind::Reserved { buffer, bytes: shared, why: reserved.why.clone() });
        }
    }
}

fn aliases(program: &Program, findings: &mut Findings) {
    for (id, buffer) in program.buffers() {
        let Some(alias) = buffer.alias else { continue };
        let address = |id: BufferId| {
            let address = program.buffer(id).address.as_ref()?;
            u64::try_from(address.as_constant()?).ok()
        };
        if let (Some(found), Some(owner)) = (address(id), address(alias.of)) {
            let expected = owner.saturating_add(alias.delta);
            if found != expected {
                let kind =
                    Kind::AliasMoved { buffer: id, owner: alias.of, expected: Offset(expected), found: Offset(found) };
                findings.push(Severity::Fault, kind);
            }
        }
    }
}

/// On-chip accesses start at block boundaries, and so do the rows of a strided copy.
fn blocks(program: &Program, device: Option<&Device>, id: StepId, operation: &Operation, findings: &mut Findings) {
    for access in operation.reads.iter().chain(&operation.writes) {
        let Root::Buffer(buffer) = access.root else { continue };
        let (owner, delta) = program.owner(buffer);
        let info = program.buffer(owner);
        if info.role == Role::External || access.extents.is_empty() || !access.certain {
            continue;
        }
        let unit = device
            .and_then(|device| device.space(device.space_named(&info.space)?).alignment.known().map(|a| a.get()))
            .unwrap_or(1)
            // A block of the on-chip memories; spaces of the matrix unit ask for more of whole tiles only.
            .min(32);
        let Some(start) = access.start.as_constant().and_then(|start| u64::try_from(start).ok()) else { continue };
        let base = info.address.as_ref().and_then(|address| u64::try_from(address.as_constant()?).ok()).unwrap_or(0);
        let first = base.saturating_add(delta).saturating_add(start);
        if !first.is_multiple_of(unit) && is_dma(&operation.engine) {
            let kind = Kind::Misaligned { buffer: owner, address: Offset(first), unit, step: Some(id) };
            findings.push(Severity::Fault, kind);
            continue;
        }
        if let Some((rows, row, pitch)) = rows(access)
            && is_dma(&operation.engine)
            && rectangle(first, rows, row, pitch, unit) == Rectangle::Refused
        {
            let pitch = i64::try_from(pitch).unwrap_or(i64::MAX);
            findings.push(Severity::Fault, Kind::Rows { buffer: owner, pitch, unit, step: id });
        }
    }
}

/// A box of two levels as rows: how many, bytes of one, bytes apart.
fn rows(access: &Access) -> Option<(u64, u64, u64)> {
    let element = (access.element.bits() / 8).max(1);
    let mut row = element;
    let mut outer = None;
    for extent in access.extents.iter().rev() {
        let count = u64::try_from(extent.count.as_constant()?).ok()?;
        let stride = u64::try_from(extent.stride).ok()?;
        match outer {
            None if stride == row || count <= 1 => row = if stride == row { row.checked_mul(count)? } else { row },
            None => outer = Some((count, stride)),
            Some(_) if count <= 1 => {}
            Some(_) => return None,
        }
    }
    outer.map(|(count, stride)| (count, row, stride))
}

fn is_dma(engine: &str) -> bool {
    engine.starts_with("mte") || engine.starts_with("fix") || engine.contains("dma")
}

/// The kind of engine that a role of a program means.
fn kind_of(device: &Device, engine: &str) -> Option<EngineKind> {
    match engine {
        "m" => Some(EngineKind::Matrix),
        "v" => Some(EngineKind::Vector),
        "s" => Some(EngineKind::Scalar),
        _ if is_dma(engine) => Some(EngineKind::Dma),
        _ => device.engine_named(engine).map(|id| device.engine(id).kind),
    }
}

fn reach(program: &Program, device: &Device, id: StepId, operation: &Operation, findings: &mut Findings) {
    let spaces = |list: &[Access]| -> BTreeSet<SpaceId> {
        let named = list.iter().filter_map(|access| match access.root {
            Root::Buffer(buffer) => device.space_named(&program.buffer(buffer).space),
            Root::Handle(_) => None,
        });
        named.collect()
    };
    if !operation.known {
        return;
    }
    let (from, to) = (spaces(&operation.reads), spaces(&operation.writes));
    let Some(kind) = kind_of(device, &operation.engine) else { return };
    let name = |space: SpaceId| device.space(space).name.clone();
    match kind {
        EngineKind::Dma => {
            // A parameter (a scale, an index) may come from elsewhere: the first operand is what moves.
            let first = operation.reads.first().map(|access| spaces(std::slice::from_ref(access)));
            if let (Some(from), Some(to)) = (first.as_ref().and_then(BTreeSet::first), to.first())
                && from != to
                && !linked(device, *from, *to)
            {
                findings.push(Severity::Fault, Kind::NoLink { step: id, from: name(*from), to: name(*to) });
            }
        }
        EngineKind::Matrix | EngineKind::Vector => {
            let units: Vec<_> =
                device.engines().filter(|(_, engine)| engine.kind == kind && engine.compute.is_some()).collect();
            if units.is_empty() {
                return;
            }
            for (list, reads) in [(&from, true), (&to, false)] {
                for space in list {
                    // Scales of narrow formats lie beside the operands; descriptions name one space for all of them.
                    if device.space(*space).aliases.iter().any(|alias| alias == "scaling") {
                        continue;
                    }
                    let reached = units.iter().any(|(engine, _)| {
                        if reads { device.reads(*engine, *space) } else { device.writes(*engine, *space) }
                    });
                    let main = device.main_memory() == Some(*space) || device.space(*space).kind == SpaceKind::Dram;
                    let moves = only_moves(&operation.name) && moved(device, &from, &to);
                    if !(reached || moves) {
                        let engine = if kind == EngineKind::Matrix { "matrix" } else { "vector" };
                        let kind = Kind::Unreachable { step: id, engine: engine.into(), space: name(*space), reads };
                        findings.push(Severity::Fault, kind);
                    } else if reached && reads && main && staged(device, *space) {
                        let cycles = staged_cycles(program, device, operation, *space, kind);
                        let kind = Kind::DirectOperand { step: id, space: name(*space), staged_cycles: cycles };
                        findings.push(Severity::Warning, kind);
                    }
                }
            }
        }
        EngineKind::Scalar => {}
    }
}

/// Whether a statement's name says that it moves and does not compute.
fn only_moves(name: &str) -> bool {
    ["mov", "load", "store", "copy", "insert", "extract", "push", "pop"].iter().any(|word| name.contains(word))
}

/// A compute engine that only moves is fine where a link of the device does the same.
fn moved(device: &Device, from: &BTreeSet<SpaceId>, to: &BTreeSet<SpaceId>) -> bool {
    matches!((from.first(), to.first()), (Some(a), Some(b)) if from.len() == 1 && to.len() == 1 && a != b && linked(device, *a, *b))
}

/// A link; from or to main memory, also two with a cache between. (Two cores that both reach a cache do not move
/// to each other: that takes a store by one and a load by the other.)
fn linked(device: &Device, from: SpaceId, to: SpaceId) -> bool {
    let main = |space: SpaceId| device.main_memory() == Some(space) || device.space(space).kind == SpaceKind::Dram;
    device.links_between(from, to).next().is_some()
        || (main(from) || main(to))
            && device.spaces().any(|(middle, space)| {
                space.kind == SpaceKind::Cache
                    && device.links_between(from, middle).next().is_some()
                    && device.links_between(middle, to).next().is_some()
            })
}

/// Whether a copy into some on-chip space is possible.
fn staged(device: &Device, space: SpaceId) -> bool {
    device.spaces().any(|(other, info)| info.kind == SpaceKind::Scratchpad && linked(device, space, other))
}

/// Cycles to copy the operands once over the fastest link to where the engine can read them.
fn staged_cycles(
    program: &Program,
    device: &Device,
    operation: &Operation,
    space: SpaceId,
    kind: EngineKind,
) -> Option<u64> {
    let mut bytes = 0_f64;
    for access in &operation.reads {
        let Root::Buffer(id) = access.root else { continue };
        if device.space_named(&program.buffer(id).space) != Some(space) {
            continue;
        }
        let mut size = (access.element.bits() / 8).max(1) as f64;
        if access.extents.is_empty() {
            size = program.buffer(id).bytes? as f64;
        }
        for extent in &access.extents {
            size *= extent.count.as_constant()? as f64;
        }
        bytes += size;
    }
    let near = |to: SpaceId| device.engines().any(|(id, engine)| engine.kind == kind && device.reads(id, to));
    let rates = device
        .links()
        .filter(|(_, link)| link.from == space && device.space(link.to).kind == SpaceKind::Scratchpad && near(link.to));
    let best = rates.filter_map(|(id, _)| device.link_rate(id).ok()).fold(0_f64, f64::max);
    (best > 0.0).then(|| (bytes / best).ceil() as u64)
}
