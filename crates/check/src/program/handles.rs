//! Handles of a planned file that may be one buffer: an update in place through a second handle.
//!
//! A planned file often carries an accumulator as two handles at one address: one that is read, and one that the
//! loop writes and nobody reads. Nothing declares it. It is recognised by its shape: the second handle is written
//! and never read, takes exactly the bytes of the first, and what is written follows from the first. A temporary
//! that merely reuses the bytes is read somewhere, or does not follow from them.

use super::finding::Findings;
use npumem_ir::BufferId;
use npumem_ir::program::{Access, Operation, Program, Role, Root, Step};
use std::collections::{BTreeMap, BTreeSet};

/// Space, address, bytes: what two handles must share to be one buffer.
type Spot<'a> = (&'a str, i64, u64);

/// Whether two handles may be one buffer, or one a part of the other: they begin at one address, or one holds the other.
/// What lies half on another is neither.
pub(super) fn may_be_one(program: &Program, a: BufferId, b: BufferId) -> bool {
    let place = |id: BufferId| {
        let buffer = program.buffer(id);
        let start = u64::try_from(buffer.address.as_ref()?.as_constant()?).ok()?;
        Some((start, start.checked_add(buffer.total_bytes()?)?))
    };
    let (Some(a), Some(b)) = (place(a), place(b)) else { return true };
    a.0 == b.0 || a.0 <= b.0 && b.1 <= a.1 || b.0 <= a.0 && a.1 <= b.1
}

pub(super) fn unite(program: &Program, findings: &mut Findings) {
    let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
    for step in &program.steps {
        match step {
            Step::Run(operation) => {
                let named = |root: Root| match root {
                    Root::Buffer(id) => Some(program.owner(id).0),
                    Root::Handle(_) => None,
                };
                read.extend(operation.reads.iter().filter_map(|access| named(access.root)));
                written.extend(results(operation).iter().filter_map(|access| named(access.root)));
            }
            // What a handle may name is read somewhere, as far as this rule needs to know.
            Step::Assign(assign) => {
                for (_, root, _) in &assign.handles {
                    if let Root::Buffer(id) = root {
                        read.insert(program.owner(*id).0);
                    }
                }
            }
            _ => {}
        }
    }
    let mut spots: BTreeMap<Spot<'_>, Vec<BufferId>> = BTreeMap::new();
    for (id, buffer) in program.buffers() {
        let address = buffer.address.as_ref().and_then(|address| address.as_constant());
        if let (Some(address), Some(bytes), None) = (address, buffer.total_bytes(), buffer.alias)
            && !matches!(buffer.role, Role::External | Role::Workspace)
        {
            spots.entry((buffer.space.as_str(), address, bytes)).or_default().push(id);
        }
    }
    for handles in spots.values().filter(|handles| handles.len() > 1) {
        let dead: Vec<BufferId> =
            handles.iter().copied().filter(|id| written.contains(id) && !read.contains(id)).collect();
        if dead.is_empty() {
            continue;
        }
        // Handles here that nobody writes show what others wrote: they carry the same data.
        let mut tainted: BTreeSet<BufferId> = handles.iter().copied().filter(|id| !written.contains(id)).collect();
        let others: Vec<BufferId> =
            handles.iter().copied().filter(|id| written.contains(id) && read.contains(id)).collect();
        tainted.extend(others.iter().copied());
        follow(program, &spots, &written, &mut tainted);
        for id in dead.iter().filter(|id| tainted.contains(id)) {
            for other in &others {
                findings.unite(*other, *id);
            }
        }
    }
}

/// What a statement writes for others: scratch holds nothing that could be another handle's data.
fn results(operation: &Operation) -> &[Access] {
    let scratch = usize::from(operation.attributes.contains_key("scratch"));
    &operation.writes[..operation.writes.len().saturating_sub(scratch)]
}

/// Everything that follows from the tainted buffers, whatever the order of statements.
fn follow(
    program: &Program,
    spots: &BTreeMap<Spot<'_>, Vec<BufferId>>,
    written: &BTreeSet<BufferId>,
    tainted: &mut BTreeSet<BufferId>,
) {
    let owner = |root: Root| match root {
        Root::Buffer(id) => Some(program.owner(id).0),
        Root::Handle(_) => None,
    };
    loop {
        let before = tainted.len();
        for step in &program.steps {
            let Step::Run(operation) = step else { continue };
            let follows =
                operation.reads.iter().filter_map(|access| owner(access.root)).any(|id| tainted.contains(&id));
            if follows {
                tainted.extend(
                    results(operation)
                        .iter()
                        .filter_map(|access| owner(access.root))
                        .filter(|id| program.buffer(*id).role != Role::External),
                );
            }
        }
        for handles in spots.values() {
            if handles.iter().any(|id| tainted.contains(id)) {
                tainted.extend(handles.iter().copied().filter(|id| !written.contains(id)));
            }
        }
        if tainted.len() == before {
            return;
        }
    }
}
