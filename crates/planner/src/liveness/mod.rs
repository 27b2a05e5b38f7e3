//! Liveness: from a program to a placement problem.
//!
//! ```text
//!   program --live_ranges--> steps in which each buffer must keep its bytes --problem--> ir::Problem
//!
//!   0 load   a             a   [0, 4)      read in the loop, so kept around its back-edge
//!   1 for i                t   [2, 4)
//!   2   add  t <- a
//!   3   use  t
//!   4 end
//! ```
//!
//! A buffer occupies its place at a step when it is read or written there, or when its bytes were perhaps
//! written before and are perhaps read after without being written in full between. Time is the step number;
//! what a statement reads and what it writes are both occupied while it runs, so source and target of one
//! statement share no bytes, save where the result may lie on an operand (`in_place`). A buffer that some path reads before writing it keeps its place from the start:
//! nobody else's bytes can be taken for its own.

mod bits;
mod defined;
mod flow;
mod in_place;

use bits::Rows;
use npumem_ir::device::MissingFigure;
use npumem_ir::problem::{
    Access as UseKind, Buffer, BufferKind, Colocation, Goal, LiveRange, Location, Problem, ReusePenalty, Use,
};
use npumem_ir::program::{Access, Program, ProgramError, Role, Root, Step, Structure};
use npumem_ir::{BufferId, ByteRange, Bytes, Device, HandleId, Offset, SpaceId, Step as Time, StepRange};
use std::collections::BTreeMap;

/// A program's placement problem.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// The problem; its steps are the program's.
    pub problem: Problem,
    /// For each buffer of the problem, the buffer of the program, ascending. Buffers that no statement touches need
    /// no bytes and are left out: any place is right for them.
    pub buffers: Vec<BufferId>,
    /// Results that may take the place of an operand that dies at the same statement: colocations to try. They are not
    /// in the problem, as a plan without them may be the better one.
    pub in_place: Vec<Colocation>,
}

/// Why a program has no placement problem.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LivenessError {
    /// The program breaks a rule.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The device has no such space.
    #[error("buffer '{buffer}' lies in '{space}', a space that {device} does not have; it has: {known}")]
    UnknownSpace {
        /// The buffer.
        buffer: String,
        /// The space that the program names.
        space: String,
        /// The device.
        device: String,
        /// Its spaces.
        known: String,
    },
    /// The device does not say how large the space is.
    #[error(transparent)]
    Figure(#[from] MissingFigure),
    /// Steps times buffers is more than the analysis keeps.
    #[error("{steps} steps with {buffers} buffers are more than liveness can hold; split the program")]
    TooLarge {
        /// How many steps.
        steps: usize,
        /// How many buffers.
        buffers: usize,
    },
}

/// Pairs of buffers that get a reuse penalty are compared up to this many buffers of a space.
const MAX_PENALTY_BUFFERS: usize = 256;

/// Buffers that an access may touch: one, or all that its handle may name.
pub(crate) struct Targets {
    handles: Vec<Vec<BufferId>>,
}

impl Targets {
    /// Everything that every handle may name anywhere in the program.
    fn new(program: &Program) -> Self {
        let mut handles = vec![Vec::<BufferId>::new(); program.handles.len()];
        loop {
            let mut changed = false;
            for step in &program.steps {
                let Step::Assign(assign) = step else { continue };
                for (target, root, _) in &assign.handles {
                    let found: Vec<BufferId> = match root {
                        Root::Buffer(id) => vec![program.owner(*id).0],
                        Root::Handle(id) => handles[id.index()].clone(),
                    };
                    for id in found {
                        let place: &mut Vec<BufferId> = &mut handles[target.index()];
                        if let Err(at) = place.binary_search(&id) {
                            place.insert(at, id);
                            changed = true;
                        }
                    }
                }
            }
            if !changed {
                return Targets { handles };
            }
        }
    }

    /// The owners of the bytes that an access may touch.
    pub(crate) fn of(&self, program: &Program, access: &Access) -> Vec<BufferId> {
        match access.root {
            Root::Buffer(id) => vec![program.owner(id).0],
            Root::Handle(HandleId(id)) => self.handles[id as usize].clone(),
        }
    }
}

/// The steps in which each buffer keeps its place, by buffer of the program, sorted and apart.
/// External memory and aliases have none of their own.
///
/// # Errors
/// When the program breaks a rule, or is too large.
pub fn live_ranges(program: &Program) -> Result<Vec<Vec<StepRange>>, LivenessError> {
    let structure = program.structure()?;
    let (steps, buffers) = (program.steps.len(), program.buffers.len());
    let words = buffers.div_ceil(64);
    // Three rows of bits per step; half a gibibyte in all.
    if steps.checked_mul(words).is_none_or(|total| total > (1 << 29) / (8 * 3)) {
        return Err(LivenessError::TooLarge { steps, buffers });
    }
    let targets = Targets::new(program);
    let live = flow::live(program, &structure, &targets);
    let written = flow::written(program, &structure, &targets);
    let exposed = defined::exposed(program, &structure, &targets);
    Ok(ranges(program, &structure, &targets, &live, &written, &exposed))
}

/// Steps at which a buffer is touched, or lives between a write and a read.
fn ranges(
    program: &Program,
    structure: &Structure,
    targets: &Targets,
    live: &Rows,
    written: &Rows,
    exposed: &[bool],
) -> Vec<Vec<StepRange>> {
    let mut out: Vec<Vec<StepRange>> = vec![Vec::new(); program.buffers.len()];
    let mut occupied = vec![0_u64; live.words()];
    let exposed_row = bits::row_of(exposed);
    for at in 0..program.steps.len() {
        // `live` and `written` hold what is true before the step; after it, ask the next ones.
        occupied.fill(0);
        let mut add = |row: &[u64], defined: &[u64]| {
            for (word, slot) in occupied.iter_mut().enumerate() {
                *slot |= row[word] & (defined[word] | exposed_row[word]);
            }
        };
        add(live.row(at), written.row(at));
        // Nothing runs at an `else`: what lives on both sides of it has no gap there.
        let beside = matches!(program.steps[at], Step::Else).then_some(at + 1);
        for next in flow::successors(program, structure, at).chain(beside) {
            if next < program.steps.len() {
                add(live.row(next), written.row(next));
            }
        }
        if let Step::Run(operation) = &program.steps[at] {
            for access in operation.reads.iter().chain(&operation.writes) {
                for id in targets.of(program, access) {
                    bits::set(&mut occupied, id.index());
                }
            }
        }
        for index in bits::ones(&occupied) {
            let time = at as u64;
            match out[index].last_mut() {
                Some(last) if last.end.0 == time => last.end = Time(time + 1),
                _ => out[index].push(StepRange::steps(time, time + 1)),
            }
        }
    }
    let whole = StepRange::steps(0, program.steps.len().max(1) as u64);
    for (index, buffer) in program.buffers.iter().enumerate() {
        match buffer.role {
            Role::External => out[index].clear(),
            // The other core writes whenever it likes.
            Role::Queue => out[index] = vec![whole],
            // Nobody else is given what a library takes whenever it likes.
            _ if buffer.fixed && !out[index].is_empty() => out[index] = vec![whole],
            Role::Tile | Role::Workspace => {}
        }
        if buffer.alias.is_some() {
            out[index].clear();
        }
    }
    out
}

/// The placement problem of a program on a device.
///
/// The goals are: fit, then no sharing that makes one engine wait for another, then the smallest peaks.
///
/// # Errors
/// When the program breaks a rule, or the device lacks a space or a figure.
pub fn problem(program: &Program, device: &Device) -> Result<Liveness, LivenessError> {
    let ranges = live_ranges(program)?;
    let targets = Targets::new(program);
    let mut liveness = Liveness {
        problem: Problem { name: program.name.clone(), ..Problem::default() },
        buffers: Vec::new(),
        in_place: Vec::new(),
    };
    let mut spaces: BTreeMap<SpaceId, SpaceId> = BTreeMap::new();
    let mut index_of = vec![None; program.buffers.len()];
    for (id, buffer) in program.buffers() {
        if buffer.role == Role::External || buffer.alias.is_some() || ranges[id.index()].is_empty() {
            continue;
        }
        let of_device = device.space_named(&buffer.space).ok_or_else(|| unknown_space(program, device, id))?;
        let space = match spaces.get(&of_device) {
            Some(space) => *space,
            None => {
                let space = SpaceId::new(liveness.problem.spaces.len());
                liveness.problem.spaces.push(device.problem_space(of_device)?);
                spaces.insert(of_device, space);
                space
            }
        };
        let steps = ranges[id.index()].clone();
        let size = Bytes(buffer.total_bytes().unwrap_or(0));
        let mut entry = Buffer::new(buffer.name.clone(), size, steps[0], space);
        entry.live = steps
            .iter()
            .filter(|range| !range.is_empty())
            .map(|range| LiveRange { steps: *range, window: None })
            .collect();
        entry.alignment = buffer.alignment;
        entry.kind = if buffer.role == Role::Workspace { BufferKind::Workspace } else { BufferKind::Activation };
        if buffer.role == Role::Queue || buffer.fixed {
            let fixed = buffer.address.as_ref().and_then(|a| u64::try_from(a.as_constant()?).ok());
            entry.pin = fixed.map(|offset| Location { space, offset: Offset(offset) });
            let whole = device.space(of_device).capacity.known().copied().unwrap_or(Bytes::MAX);
            // One past the whole space fits nowhere: it opens what the space has, and no more.
            if let Some(offset) = fixed.filter(|offset| buffer.fixed && *offset < whole.0) {
                reach(&mut liveness.problem.spaces[space.index()], offset, size.min(Bytes(whole.0 - offset)));
            }
        }
        index_of[id.index()] = Some(BufferId::new(liveness.buffers.len()));
        liveness.buffers.push(id);
        liveness.problem.buffers.push(entry);
    }
    let sums = in_place::sums(program, &index_of, &liveness.problem);
    liveness.in_place = in_place::colocations(program, &targets, &index_of, &liveness.problem, &sums);
    liveness.problem.constraints.colocated.extend(sums);
    add_uses(program, &targets, &index_of, &mut liveness.problem);
    add_penalties(program, &targets, &mut liveness);
    Ok(liveness)
}

/// A library's own bytes may lie past what it leaves to kernels: the space reaches there, and what lies between
/// stays nobody's.
fn reach(space: &mut npumem_ir::problem::Space, offset: u64, size: Bytes) {
    let end = offset.saturating_add(size.0);
    if let Some(usable) = space.capacity.filter(|usable| usable.0 < end) {
        space.capacity = Some(Bytes(end));
        if usable.0 < offset {
            space.reserved.push(ByteRange { start: Offset(usable.0), end: Offset(offset) });
        }
    }
}

fn unknown_space(program: &Program, device: &Device, id: BufferId) -> LivenessError {
    let buffer = program.buffer(id);
    LivenessError::UnknownSpace {
        buffer: buffer.name.clone(),
        space: buffer.space.clone(),
        device: device.name.clone(),
        known: device.spaces().map(|(_, space)| space.name.as_str()).collect::<Vec<_>>().join(", "),
    }
}

fn add_uses(program: &Program, targets: &Targets, index_of: &[Option<BufferId>], problem: &mut Problem) {
    for (at, step) in program.steps.iter().enumerate() {
        let Step::Run(operation) = step else { continue };
        for (list, kind) in [(&operation.reads, UseKind::Read), (&operation.writes, UseKind::Write)] {
            for access in list {
                for id in targets.of(program, access) {
                    let Some(index) = index_of[id.index()] else { continue };
                    let bytes = Bytes(program.buffer(id).bytes.unwrap_or(0));
                    problem.buffers[index.index()].uses.push(Use { step: Time(at as u64), access: kind, bytes });
                }
            }
        }
    }
}

/// Two buffers that a DMA queue fills at different times: sharing bytes makes the later load wait for
/// whoever still reads the earlier one, so they share only where the space is too small otherwise.
fn add_penalties(program: &Program, targets: &Targets, liveness: &mut Liveness) {
    let mut loaded = vec![false; program.buffers.len()];
    for step in &program.steps {
        let Step::Run(operation) = step else { continue };
        if operation.engine.starts_with("mte2") {
            for access in &operation.writes {
                for id in targets.of(program, access) {
                    loaded[id.index()] = true;
                }
            }
        }
    }
    let mut penalties = Vec::new();
    for space in 0..liveness.problem.spaces.len() {
        let here: Vec<usize> = (0..liveness.buffers.len())
            .filter(|index| liveness.problem.buffers[*index].spaces.contains(&SpaceId::new(space)))
            .collect();
        if here.len() > MAX_PENALTY_BUFFERS {
            continue;
        }
        for (position, first) in here.iter().enumerate() {
            for second in &here[position + 1..] {
                if loaded[liveness.buffers[*first].index()] && loaded[liveness.buffers[*second].index()] {
                    penalties.push(ReusePenalty {
                        first: BufferId::new(*first),
                        second: BufferId::new(*second),
                        cost: 1,
                        reason: "the later load would wait for the reader of the earlier one".into(),
                    });
                }
            }
        }
    }
    liveness.problem.goals =
        if penalties.is_empty() { vec![Goal::Fit, Goal::Peak] } else { vec![Goal::Fit, Goal::ReuseCost, Goal::Peak] };
    liveness.problem.constraints.reuse_penalties = penalties;
}

#[cfg(test)]
mod tests;
