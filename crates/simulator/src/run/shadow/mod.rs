//! Shadow memory: every byte knows whether it was written, by which statement, and for which buffer.
//!
//! ```text
//!   bytes    |  never written  |  step 4 wrote them for 'a'  |  step 9 for 'b'  |
//!   a read of 'a' over all three: unwritten, fine, overwritten by step 9
//! ```
//!
//! It watches a run (it is a [`Sink`]) and goes on after every fault. Beside the bytes it looks at places (outside of the
//! buffer, the space, or in reserved bytes; off the block boundary) and at order: what an engine has heard of the
//! others through flags, tokens and barriers, as a row of clocks. Two accesses to a byte, one of them a write, on
//! engines of which the later has not heard of the earlier, race.

mod cells;
mod fault;
mod order;

pub use fault::{Earlier, Fault, FaultKind};

use super::sink::{Beginning, Kept, Sink};
use super::touch::{NOWHERE, Places, Touch, element_bytes};
use cells::{ANYBODY, Cells, Writers};
use npumem_ir::program::{ATOMIC, InPlace, Operation, Program, Role, Root, Step, Sync};
use npumem_ir::{BufferId, Device, ScalarId, StepId};
use order::Orders;
use std::collections::BTreeMap;

/// Faults that are told apart.
const MAX_FAULTS: usize = 1000;
/// Writers that are kept without looking which of them are still named.
const MANY_WRITERS: usize = 1 << 16;
/// Runs of one access that are looked at one by one; the rest of it is not looked at.
const MAX_RUNS: u64 = 1 << 16;

/// A statement that wrote bytes.
#[derive(Clone, Debug)]
struct Writer {
    step: StepId,
    owner: BufferId,
    block: u64,
    turns: Vec<(ScalarId, i64)>,
    /// The memory adds what it writes to what is there.
    adds: bool,
}

/// Whether the memory adds what the statement writes to what is there.
fn adds(at: &Beginning<'_>) -> bool {
    at.operation.attributes.get(ATOMIC).is_some_and(|how| how == "add")
}

/// What a buffer may touch.
#[derive(Clone, Debug, Default)]
struct Limits {
    /// Bytes of one slot.
    bytes: Option<u64>,
    /// Past the last byte of the space, for planned buffers.
    capacity: Option<u64>,
    /// Ranges that no buffer may touch.
    reserved: Vec<(u64, u64, String)>,
    /// On-chip addresses of transfers are multiples of this.
    block: u64,
    external: bool,
    /// Its content is given from outside.
    given: bool,
    /// Space, address and bytes, where it has them.
    spot: Option<(String, i64, u64)>,
    /// Some statement reads it; some statement writes it.
    read: bool,
    written: bool,
}

/// The shadow of a run.
#[derive(Debug)]
pub struct Shadow<'a> {
    program: &'a Program,
    places: Places,
    limits: Vec<Limits>,
    /// Memory of the caller.
    shared: Vec<Cells>,
    /// Memory of each core.
    cores: BTreeMap<u64, Vec<Cells>>,
    writers: Writers,
    /// Writers at which those that no byte names any more are dropped.
    compact_at: usize,
    orders: BTreeMap<u64, Orders>,
    states_order: bool,
    two_are_two: bool,
    /// Some core tells another: what they do to shared memory may be in order.
    cores_tell: bool,
    faults: Vec<Fault>,
    known: BTreeMap<(FaultKind, u32, u32, u32), usize>,
    total: u64,
    accesses: u64,
}

impl<'a> Shadow<'a> {
    /// The shadow of a program that will run on a device.
    #[must_use]
    pub fn new(program: &'a Program, device: &Device) -> Self {
        let places = Places::new(program);
        let limits = limits(program, device);
        let shared = vec![Cells::default(); places.names.len()];
        Shadow {
            program,
            limits,
            shared,
            cores: BTreeMap::new(),
            writers: Writers::default(),
            compact_at: MANY_WRITERS,
            orders: BTreeMap::new(),
            states_order: super::states_order(program),
            two_are_two: false,
            cores_tell: program.steps.iter().any(|step| matches!(step, Step::Sync(Sync::Post { .. }))),
            faults: Vec::new(),
            known: BTreeMap::new(),
            total: 0,
            accesses: 0,
            places,
        }
    }

    /// The addresses come from a plan beside the program: no two of its buffers are handles of one.
    #[must_use]
    pub fn of_separate_plan(self) -> Self {
        Shadow { two_are_two: true, ..self }
    }

    /// The faults that were found, in the order in which they were met.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// How many faults there were, repetitions counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Accesses that were looked at.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    fn report(&mut self, fault: Fault) {
        self.total += 1;
        let earlier = fault.earlier.as_ref().map_or(u32::MAX, |earlier| earlier.step.0);
        let key = (fault.kind, fault.step.0, fault.buffer.0, earlier);
        if let Some(index) = self.known.get(&key) {
            self.faults[*index].again += 1;
        } else if self.faults.len() < MAX_FAULTS {
            self.known.insert(key, self.faults.len());
            self.faults.push(fault);
        }
    }

    fn fault(&self, kind: FaultKind, at: &Beginning<'_>, buffer: BufferId, bytes: (u64, u64)) -> Fault {
        Fault {
            kind,
            step: at.step,
            line: at.operation.line,
            block: at.block,
            turns: at.turns.to_vec(),
            buffer,
            start: bytes.0,
            end: bytes.1,
            earlier: None,
            detail: String::new(),
            again: 0,
        }
    }

    fn earlier(&self, writer: u32) -> Earlier {
        let writer = self.writers.get(writer);
        Earlier { step: writer.step, buffer: writer.owner, block: writer.block, turns: writer.turns.clone() }
    }

    /// Outside of the buffer, the space, in reserved bytes, or off the boundary.
    fn place(&mut self, at: &Beginning<'_>, touch: &Touch, write: bool) -> bool {
        let limits = &self.limits[touch.owner.index()];
        let region = touch.region;
        if region.run == 0 {
            return true;
        }
        let mut faults = Vec::new();
        let (low, high) = (region.start, region.end());
        let slot_end = limits.bytes.map(|bytes| touch.slot_start.saturating_add(bytes));
        let word = if write { "writes" } else { "reads" };
        if touch.certain && (low < touch.slot_start || slot_end.is_some_and(|end| high > end)) {
            let mut fault = self.fault(FaultKind::PastBuffer, at, touch.owner, (low, high));
            let bytes = limits.bytes.unwrap_or(0);
            let (from, to) = (low as i128 - i128::from(touch.slot_start), high - touch.slot_start.min(high));
            fault.detail = format!("{word} bytes {from} to {to} of a slot of {bytes}");
            faults.push(fault);
        }
        if let Some(capacity) = limits.capacity.filter(|capacity| high > *capacity) {
            let mut fault = self.fault(FaultKind::OutsideSpace, at, touch.owner, (low, high));
            fault.detail = format!("{word} up to {high}, and the space ends at {capacity}");
            faults.push(fault);
        }
        for (start, end, why) in &limits.reserved {
            if region.meets(*start, *end) {
                let mut fault = self.fault(FaultKind::Reserved, at, touch.owner, (low.max(*start), high.min(*end)));
                fault.detail = format!("{word} bytes that are kept for {why}");
                faults.push(fault);
            }
        }
        let moves = !matches!(at.operation.engine.as_str(), "v" | "m" | "s");
        if moves && !limits.external && touch.certain && !touch.first.is_multiple_of(limits.block) {
            let mut fault = self.fault(FaultKind::Misaligned, at, touch.owner, (low, high));
            fault.detail = format!("a transfer starts at {}, which is no multiple of {}", touch.first, limits.block);
            faults.push(fault);
        }
        let fine = faults.iter().all(|fault| fault.kind == FaultKind::Misaligned);
        faults.into_iter().for_each(|fault| self.report(fault));
        fine
    }

    /// Whether what a writer wrote for its buffer is what a reader of another may want.
    fn same_data(&self, reader: BufferId, writer: BufferId) -> bool {
        if reader == writer {
            return true;
        }
        let (a, b) = (&self.limits[reader.index()], &self.limits[writer.index()]);
        // Two handles of one tile: one is only read, or the other is only written.
        !self.two_are_two && a.spot.is_some() && a.spot == b.spot && (!b.read || !a.written)
    }

    fn read(&mut self, at: &Beginning<'_>, touch: &Touch) {
        let limits = &self.limits[touch.owner.index()];
        let given = limits.given;
        let cells = if self.places.external[touch.place as usize] {
            &self.shared[touch.place as usize]
        } else {
            match self.cores.get(&at.core) {
                Some(cells) => &cells[touch.place as usize],
                None => return,
            }
        };
        let (mut unwritten, mut foreign, mut valid) = (None::<(u64, u64)>, None::<(u64, u64, u32)>, 0_u64);
        let mut racing = None::<(u64, u64, u32)>;
        touch.region.each_run(MAX_RUNS, |start| {
            cells.each(start, start + touch.region.run, |from, to, writer| match writer {
                None if given => valid += to - from,
                Some(ANYBODY) => valid += to - from,
                None => unwritten = Some(unwritten.map_or((from, to), |(low, high)| (low.min(from), high.max(to)))),
                Some(id) => {
                    let writer = self.writers.get(id);
                    if self.same_data(touch.owner, writer.owner) {
                        valid += to - from;
                        if given && writer.block != at.block {
                            racing = Some((from, to, id));
                        }
                    } else {
                        foreign = Some(match foreign {
                            Some((low, high, first)) => (low.min(from), high.max(to), first),
                            None => (from, to, id),
                        });
                    }
                }
            });
        });
        if !touch.certain && valid > 0 {
            return;
        }
        let partly = if valid > 0 { FaultKind::Torn } else { FaultKind::Overwritten };
        if let Some((low, high)) = unwritten {
            let mut fault = self.fault(FaultKind::Unwritten, at, touch.owner, (low, high));
            fault.detail = if valid > 0 { "only part of what it reads was written".into() } else { String::new() };
            self.report(fault);
        }
        if let Some((low, high, writer)) = foreign {
            let mut fault = self.fault(partly, at, touch.owner, (low, high));
            fault.earlier = Some(self.earlier(writer));
            self.report(fault);
        }
        if let Some((low, high, writer)) = racing.filter(|_| !self.cores_tell) {
            let mut fault = self.fault(FaultKind::CoreRace, at, touch.owner, (low, high));
            fault.earlier = Some(self.earlier(writer));
            self.report(fault);
        }
    }

    fn write(&mut self, at: &Beginning<'_>, touch: &Touch, writer: u32) {
        let external = self.places.external[touch.place as usize];
        let cells = if external {
            &mut self.shared[touch.place as usize]
        } else {
            match self.cores.get_mut(&at.core) {
                Some(cells) => &mut cells[touch.place as usize],
                None => return,
            }
        };
        let mut racing = None::<(u64, u64, u32)>;
        let adds = adds(at);
        touch.region.each_run(MAX_RUNS, |start| {
            let end = start + touch.region.run;
            if external {
                cells.each(start, end, |from, to, before| {
                    if let Some(before) = before.filter(|before| *before != ANYBODY)
                        && self.writers.get(before).block != at.block
                        // Sums that the memory itself makes may come in any order.
                        && !(adds && self.writers.get(before).adds)
                        && racing.is_none()
                    {
                        racing = Some((from, to, before));
                    }
                });
            }
            if touch.certain {
                cells.write(start, end, writer);
            } else {
                let writers = &self.writers;
                cells.write_some(start, end, writer, |before| writers.get(before).owner == touch.owner);
            }
        });
        if let Some((low, high, before)) = racing.filter(|_| !self.cores_tell && touch.certain) {
            let mut fault = self.fault(FaultKind::CoreRace, at, touch.owner, (low, high));
            fault.earlier = Some(self.earlier(before));
            self.report(fault);
        }
    }

    /// A statement that writes over what it reads, where it must not.
    fn own_input(&mut self, at: &Beginning<'_>) {
        let rule = at.operation.in_place;
        if rule == InPlace::Always {
            return;
        }
        let mut faults = Vec::new();
        for read in at.reads.iter().filter(|touch| touch.place != NOWHERE && touch.certain) {
            for write in at.writes.iter().filter(|touch| touch.place == read.place && touch.certain) {
                if !read.region.overlaps(&write.region) {
                    continue;
                }
                // Element by element nothing is lost where both step alike, or the result is narrower and so never
                // ahead of what is read.
                let (wide, narrow) = (element_bytes(read.element), element_bytes(write.element));
                let alike = read.first == write.first
                    && match wide.cmp(&narrow) {
                        std::cmp::Ordering::Equal => read.extents() == write.extents() || read.region == write.region,
                        std::cmp::Ordering::Greater => read.region.runs() == 1 && write.region.runs() == 1,
                        std::cmp::Ordering::Less => false,
                    };
                // Through one name, on one spot: the program's own wish.
                let wished = read.owner == write.owner && read.first == write.first;
                if wished || (rule == InPlace::Elementwise && alike) {
                    continue;
                }
                let bytes = (read.region.start.max(write.region.start), read.region.end().min(write.region.end()));
                let mut fault = self.fault(FaultKind::OwnInput, at, read.owner, bytes);
                fault.detail = format!("through '{}'", self.program.buffer(write.owner).name);
                faults.push(fault);
            }
        }
        faults.into_iter().for_each(|fault| self.report(fault));
    }

    /// Engines that have not heard of each other.
    fn races(&mut self, at: &Beginning<'_>) {
        if !self.states_order {
            return;
        }
        let orders = self.orders.entry(at.core).or_default();
        let time = orders.tick(at.engine);
        let mut found = Vec::new();
        for (write, list) in [(false, at.reads), (true, at.writes)] {
            for touch in list.iter().filter(|touch| touch.place != NOWHERE && touch.certain) {
                if self.places.external[touch.place as usize] {
                    continue;
                }
                for past in orders.unheard(at.engine, touch, write) {
                    let bytes = (
                        past.region.start.max(touch.region.start),
                        past.region.end().min(touch.region.end()).max(touch.region.start),
                    );
                    found.push((touch.owner, bytes, past.step, past.owner));
                }
                orders.add(at.engine, time, touch, write, at.step);
            }
        }
        for (owner, bytes, step, buffer) in found {
            let mut fault = self.fault(FaultKind::Race, at, owner, bytes);
            fault.earlier = Some(Earlier { step, buffer, block: at.block, turns: Vec::new() });
            self.report(fault);
        }
    }
}

impl Sink for Shadow<'_> {
    fn wants_beginnings(&self) -> bool {
        true
    }

    fn block(&mut self, core: u64, _block: u64) {
        let empty = || vec![Cells::default(); self.places.names.len()];
        self.cores.entry(core).or_insert_with(empty).iter_mut().for_each(Cells::clear);
        self.orders.insert(core, Orders::default());
    }

    fn kept(&mut self, core: u64, kept: Kept) {
        self.orders.entry(core).or_default().kept(kept);
    }

    fn begin(&mut self, at: &Beginning<'_>) {
        if self.writers.len() >= self.compact_at {
            // Memory follows the bytes that are written, not the statements that wrote them.
            let all = self.cores.values_mut().flatten().chain(&mut self.shared);
            self.writers.compact(all);
            self.compact_at = (2 * self.writers.len()).max(MANY_WRITERS);
        }
        self.own_input(at);
        self.races(at);
        for (index, touch) in at.reads.iter().enumerate() {
            self.accesses += 1;
            if touch.place == NOWHERE {
                self.nowhere(at, &at.operation.reads[index], "reads");
            } else if self.place(at, touch, false) {
                self.read(at, touch);
            }
        }
        for (index, touch) in at.writes.iter().enumerate() {
            self.accesses += 1;
            if touch.place == NOWHERE {
                self.nowhere(at, &at.operation.writes[index], "writes");
                continue;
            }
            self.place(at, touch, true);
            let owner = touch.owner;
            let writer = Writer { step: at.step, owner, block: at.block, turns: at.turns.to_vec(), adds: adds(at) };
            let writer = self.writers.add(writer);
            self.write(at, touch, writer);
        }
    }
}

impl Shadow<'_> {
    /// An access below the first byte of its buffer, or past all numbers.
    fn nowhere(&mut self, at: &Beginning<'_>, access: &npumem_ir::program::Access, word: &str) {
        if let Root::Buffer(buffer) = access.root {
            let mut fault = self.fault(FaultKind::PastBuffer, at, self.program.owner(buffer).0, (0, 0));
            fault.detail = format!("{word} before the first byte of its memory");
            self.report(fault);
        }
    }
}

fn limits(program: &Program, device: &Device) -> Vec<Limits> {
    let mut all: Vec<Limits> = Vec::new();
    for buffer in &program.buffers {
        let space = device.space_named(&buffer.space).map(|id| device.space(id));
        let external = buffer.role == Role::External;
        let planned = !external && buffer.address.is_some();
        let on_chip = space.filter(|_| planned);
        let address = buffer.address.as_ref().and_then(|address| address.as_constant());
        let spot = address.zip(buffer.total_bytes()).filter(|_| planned && buffer.role != Role::Workspace);
        all.push(Limits {
            bytes: buffer.bytes,
            capacity: on_chip.and_then(|space| space.capacity.known()).map(|bytes| bytes.get()),
            reserved: on_chip.map_or_else(Vec::new, |space| {
                let all = space.reserved.iter();
                all.map(|kept| (kept.range.start.0, kept.range.end.0, kept.why.clone())).collect()
            }),
            // A block of on-chip memory; the matrix unit's spaces ask for more of whole tiles only.
            block: space.and_then(|space| space.alignment.known()).map_or(1, |unit| unit.get()).min(32),
            external,
            given: external || buffer.role == Role::Queue,
            spot: spot.map(|(address, bytes)| (buffer.space.clone(), address, bytes)),
            read: false,
            written: false,
        });
    }
    let named = |root: Root| match root {
        Root::Buffer(id) => Some(program.owner(id).0),
        Root::Handle(_) => None,
    };
    for step in &program.steps {
        match step {
            Step::Run(operation) => mark(operation, &named, &mut all),
            // What a handle may name is read and written somewhere.
            Step::Assign(assign) => {
                for id in assign.handles.iter().filter_map(|(_, root, _)| named(*root)) {
                    all[id.index()].read = true;
                    all[id.index()].written = true;
                }
            }
            _ => {}
        }
    }
    all
}

fn mark(operation: &Operation, named: &dyn Fn(Root) -> Option<BufferId>, all: &mut [Limits]) {
    for id in operation.reads.iter().filter_map(|access| named(access.root)) {
        all[id.index()].read = true;
    }
    for id in operation.writes.iter().filter_map(|access| named(access.root)) {
        all[id.index()].written = true;
    }
}
