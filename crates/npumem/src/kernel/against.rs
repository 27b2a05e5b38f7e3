//! A planned file beside the program before planning: whose bytes lie where.
//!
//! ```text
//!   before planning                     planned
//!   acc = alloc                         a = alloc addr 0      b = alloc addr 0      one buffer, or two?
//!   tmatmul    writes acc   <------->   tmatmul   writes a    acc lies at 0
//!   tmatmul    reads  acc   <------->   tmatmul   reads  b    and here too: a and b are both acc
//! ```
//!
//! The two files run the same statements in the same order, so each access of the one is an access of the other.
//! That gives every buffer of the program its address, and what was undeclared in the planned file is decided.

use super::{KernelError, alike};
use npumem_ir::program::{Access, Affine, Operation, Program, Role, Root, Step};
use npumem_ir::{BufferId, Offset, StepId};
use std::collections::BTreeMap;

/// The program before planning, with the addresses that the planned one gives its buffers.
///
/// # Errors
/// When the two do not run the same statements, or a buffer would lie at two addresses or at none.
pub fn with_addresses_of(unplanned: &Program, planned: &Program) -> Result<Program, KernelError> {
    let (own, theirs) = (statements(unplanned), statements(planned));
    let mut found: BTreeMap<BufferId, (u64, StepId)> = BTreeMap::new();
    for (index, ((at, operation), (other_at, other))) in own.iter().zip(&theirs).enumerate() {
        let same = operation.name == other.name
            && operation.reads.len() == other.reads.len()
            && operation.writes.len() == other.writes.len();
        if !same {
            return Err(KernelError::OtherProgram(format!(
                "statement {index} of those that touch memory is {} before planning and {} in the planned file",
                name(unplanned, *at, operation),
                name(planned, *other_at, other)
            )));
        }
        let accesses = operation.reads.iter().chain(&operation.writes);
        for (access, with) in accesses.zip(other.reads.iter().chain(&other.writes)) {
            let Some((buffer, address)) = address_of(unplanned, access, planned, with) else { continue };
            match found.get(&buffer) {
                Some((before, first)) if *before != address => {
                    return Err(KernelError::OtherProgram(format!(
                        "'{}' lies at {before} where {} touches it and at {address} where {} does; a buffer has one place",
                        unplanned.buffer(buffer).name,
                        place(unplanned, *first),
                        place(unplanned, *at)
                    )));
                }
                Some(_) => {}
                None => {
                    found.insert(buffer, (address, *at));
                }
            }
        }
    }
    if own.len() != theirs.len() {
        return Err(KernelError::OtherProgram(format!(
            "{} statements touch memory before planning, {} in the planned file",
            own.len(),
            theirs.len()
        )));
    }
    if let Some((at, with, how)) = alike::difference(unplanned, planned) {
        return Err(KernelError::OtherProgram(format!(
            "the two take another way: {how} ({} before planning, {} in the planned file)",
            place(unplanned, at),
            place(planned, with)
        )));
    }
    let mut addresses: BTreeMap<BufferId, Offset> = found.iter().map(|(id, (at, _))| (*id, Offset(*at))).collect();
    by_name(unplanned, planned, &mut addresses);
    if let Some(missing) = unplaced(unplanned, &addresses) {
        return Err(KernelError::OtherProgram(format!(
            "nothing in the planned file shows where '{}' lies",
            unplanned.buffer(missing).name
        )));
    }
    super::place_untouched(unplanned, &mut addresses);
    Ok(unplanned.unplaced().placed(&addresses))
}

/// What only handles touch is found by its name.
fn by_name(unplanned: &Program, planned: &Program, addresses: &mut BTreeMap<BufferId, Offset>) {
    let named: BTreeMap<&str, u64> = planned
        .buffers()
        .filter_map(|(_, buffer)| {
            let address = buffer.address.as_ref()?.as_constant()?;
            Some((buffer.name.as_str(), u64::try_from(address).ok()?))
        })
        .collect();
    for (id, buffer) in unplanned.buffers() {
        if buffer.role != Role::External
            && buffer.alias.is_none()
            && let Some(address) = named.get(buffer.name.as_str())
        {
            addresses.entry(id).or_insert(Offset(*address));
        }
    }
}

/// A buffer that something touches and that has no address.
fn unplaced(unplanned: &Program, addresses: &BTreeMap<BufferId, Offset>) -> Option<BufferId> {
    let mut touched = vec![false; unplanned.buffers.len()];
    for step in &unplanned.steps {
        match step {
            Step::Run(operation) => {
                for access in operation.reads.iter().chain(&operation.writes) {
                    if let Root::Buffer(id) = access.root {
                        touched[unplanned.owner(id).0.index()] = true;
                    }
                }
            }
            Step::Assign(assign) => {
                for (_, root, _) in &assign.handles {
                    if let Root::Buffer(id) = root {
                        touched[unplanned.owner(*id).0.index()] = true;
                    }
                }
            }
            _ => {}
        }
    }
    let own = unplanned.buffers().filter(|(id, buffer)| {
        touched[id.index()] && buffer.role != Role::External && !buffer.fixed && buffer.alias.is_none()
    });
    own.map(|(id, _)| id).find(|id| !addresses.contains_key(id))
}

fn statements(program: &Program) -> Vec<(StepId, &Operation)> {
    let all = program.steps.iter().enumerate();
    all.filter_map(|(at, step)| match step {
        Step::Run(operation) => Some((StepId::new(at), operation)),
        _ => None,
    })
    .collect()
}

fn place(program: &Program, at: StepId) -> String {
    match program.line(at) {
        0 => format!("statement {at}"),
        line => format!("statement {at} (line {line})"),
    }
}

fn name(program: &Program, at: StepId, operation: &Operation) -> String {
    format!("'{}' at {}", operation.name, place(program, at))
}

/// The owner of the bytes of one access, and the address that the other program's access gives it.
fn address_of(unplanned: &Program, access: &Access, planned: &Program, with: &Access) -> Option<(BufferId, u64)> {
    let (Root::Buffer(own), Root::Buffer(other)) = (access.root, with.root) else { return None };
    let (own, delta) = unplanned.owner(own);
    let (other, other_delta) = planned.owner(other);
    let (buffer, lies) = (unplanned.buffer(own), planned.buffer(other));
    if buffer.role == Role::External || lies.role == Role::External || buffer.fixed {
        return None;
    }
    let base = lies.address.as_ref().and_then(Affine::as_constant)?;
    let apart = with.start.minus(&access.start).as_constant()?;
    let address = i128::from(base) + i128::from(other_delta) + i128::from(apart) - i128::from(delta);
    u64::try_from(address).ok().map(|address| (own, address))
}
