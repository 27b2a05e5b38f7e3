//! What an access touches at one moment: its buffer, slot and runs of bytes.

use super::memory::{SlabId, Slabs};
use super::turns::on_chip;
use npumem_ir::program::{Access, Assign, Program, Role, Root, ScalarKind, Values};
use npumem_ir::{BufferId, ScalarId};
use std::rc::Rc;

/// Buffer and first byte that each handle names; shared until it changes.
pub(super) type Handles = Rc<Vec<Option<(BufferId, Option<i64>)>>>;

/// Runs of one access that are looked at one by one; more are taken as the whole span.
const MAX_RUNS: u64 = 4096;

/// An access with everything evaluated: runs of bytes of one slab.
pub(super) struct Resolved {
    pub buffer: BufferId,
    /// The slot; `None` when it is not known, and the slab is that of slot 0.
    pub slot: Option<u32>,
    pub slab: SlabId,
    /// First byte and the byte past the last, ascending, apart.
    pub runs: Vec<(u64, u64)>,
    pub certain: bool,
}

/// The access at this moment; `None` for memory of the caller and for handles that name nothing known.
pub(super) fn resolve(
    program: &Program,
    slabs: &Slabs,
    values: &Values,
    handles: &Handles,
    access: &Access,
) -> Option<Resolved> {
    if !on_chip(program, access.root) {
        return None;
    }
    let (buffer, base, named) = match access.root {
        Root::Buffer(id) => {
            let (owner, delta) = program.owner(id);
            (owner, i64::try_from(delta).ok(), id)
        }
        Root::Handle(id) => match handles[id.index()] {
            Some((buffer, start)) => (buffer, start, buffer),
            None => return None,
        },
    };
    let info = program.buffer(buffer);
    if info.role == Role::External {
        return None;
    }
    let slot = if info.slots == 1 { Some(0) } else { values.affine(program, &access.slot) };
    let slot = slot.and_then(|slot| u32::try_from(slot.rem_euclid(i64::from(info.slots))).ok());
    let slab = slabs.of(buffer, slot.unwrap_or(0))?;
    let bytes = slabs.get(slab).bytes;
    let mut certain = access.certain && slot.is_some();
    let whole = if access.extents.is_empty() { program.buffer(named).bytes.unwrap_or(bytes) } else { bytes };
    let start = values.affine(program, &access.start);
    let start = base.zip(start).and_then(|(a, b)| a.checked_add(b));
    let found = match (start, access.extents.is_empty()) {
        (Some(start), true) => u64::try_from(start).ok().map(|start| {
            // The whole of what it names, from its first byte on.
            let end = if matches!(access.root, Root::Handle(_)) { bytes } else { start.saturating_add(whole) };
            vec![(start, end)]
        }),
        (Some(start), false) => runs(program, values, access, start),
        (None, _) => None,
    };
    let runs = found.unwrap_or_else(|| {
        certain = false;
        vec![(0, bytes)]
    });
    Some(Resolved { buffer, slot, slab, runs, certain })
}

/// Bytes of the caller's memory: whose, what of the first byte nobody knows, and the runs from there on. `None` where
/// they cannot be told exactly.
pub(super) type Global = (BufferId, Vec<(ScalarId, i64)>, Vec<(u64, u64)>);

/// The access at this moment, when it is to memory of the caller and all of its bytes are known up to values that are
/// the same for the whole run.
pub(super) fn global(program: &Program, values: &Values, handles: &Handles, access: &Access) -> Option<Global> {
    let (buffer, base) = match access.root {
        Root::Buffer(id) => (id, 0),
        Root::Handle(id) => match handles[id.index()] {
            Some((buffer, Some(start))) => (buffer, start),
            _ => return None,
        },
    };
    let info = program.buffer(buffer);
    if info.role != Role::External || info.alias.is_some() || !access.certain {
        return None;
    }
    if access.extents.is_empty() {
        // All of it, where its size is known.
        let all =
            info.bytes.filter(|_| matches!(access.root, Root::Buffer(_)) && access.start.as_constant() == Some(0));
        return all.map(|bytes| (buffer, Vec::new(), vec![(0, bytes)]));
    }
    let mut start = access.start.constant.checked_add(base)?;
    let mut open = Vec::new();
    for (scalar, factor) in &access.start.terms {
        match values.scalar(program, *scalar) {
            Some(value) => start = start.checked_add(value.checked_mul(*factor)?)?,
            None if matches!(program.scalar(*scalar).kind, ScalarKind::Argument(_) | ScalarKind::Grid(_)) => {
                open.push((*scalar, *factor));
            }
            None => return None,
        }
    }
    let mut pieces = 1_u64;
    for extent in &access.extents {
        pieces = pieces.checked_mul(u64::try_from(values.affine(program, &extent.count)?).ok()?)?;
        if extent.stride < 0 {
            return None;
        }
    }
    if pieces == 0 || start < 0 {
        return None;
    }
    let found = runs(program, values, access, start)?;
    // A span in place of its pieces would touch what the access does not.
    let bytes: u64 = found.iter().map(|(start, end)| end - start).sum();
    (bytes <= pieces.checked_mul((access.element.bits() / 8).max(1))?).then_some((buffer, open, found))
}

/// The runs of bytes of a strided box.
fn runs(program: &Program, values: &Values, access: &Access, start: i64) -> Option<Vec<(u64, u64)>> {
    let mut low = i128::from(start);
    let mut run = i128::from((access.element.bits() / 8).max(1));
    let mut outer: Vec<(i128, i128)> = Vec::new();
    for extent in access.extents.iter().rev() {
        let count = i128::from(values.affine(program, &extent.count)?);
        if count <= 0 {
            return Some(Vec::new());
        }
        let stride = i128::from(extent.stride);
        if count == 1 || stride == 0 {
            continue;
        }
        if stride < 0 {
            low += stride * (count - 1);
        }
        let stride = stride.abs();
        if outer.is_empty() && stride <= run {
            run += stride * (count - 1);
        } else {
            outer.push((count, stride));
        }
    }
    let total = outer.iter().try_fold(1_u64, |n, (count, _)| n.checked_mul(u64::try_from(*count).ok()?));
    let mut starts = vec![low];
    if total.is_none_or(|total| total > MAX_RUNS) {
        // Too many pieces to keep apart: the span from the first to the last byte.
        let span: i128 = outer.iter().map(|(count, stride)| stride * (count - 1)).sum();
        run += span;
    } else {
        for (count, stride) in &outer {
            starts = (0..*count).flat_map(|k| starts.iter().map(move |s| s + k * stride).collect::<Vec<_>>()).collect();
        }
    }
    starts.sort_unstable();
    let mut runs: Vec<(u64, u64)> = Vec::with_capacity(starts.len());
    for first in starts {
        let (first, last) = (u64::try_from(first.max(0)).ok()?, u64::try_from((first + run).max(0)).ok()?);
        match runs.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            _ => runs.push((first, last)),
        }
    }
    Some(runs)
}

/// Variables and handles set at once, all right-hand sides read first. Scalars that decide nothing stay unknown.
pub(super) fn assign(
    program: &Program,
    relevant: &[bool],
    values: &mut Values,
    handles: &mut Handles,
    assign: &Assign,
) {
    let scalars: Vec<(ScalarId, Option<i64>)> = assign
        .scalars
        .iter()
        .map(|(target, value)| (*target, values.affine(program, value).filter(|_| relevant[target.index()])))
        .collect();
    let named: Vec<_> = assign
        .handles
        .iter()
        .map(|(target, root, delta)| {
            let delta = values.affine(program, delta);
            let named = match root {
                Root::Buffer(id) => {
                    let (owner, base) = program.owner(*id);
                    Some((owner, i64::try_from(base).ok()))
                }
                Root::Handle(id) => handles[id.index()],
            };
            let moved = named.map(|(buffer, start)| (buffer, start.zip(delta).and_then(|(a, b)| a.checked_add(b))));
            (*target, moved)
        })
        .collect();
    for (target, value) in scalars {
        values.set(target, value);
    }
    if !named.is_empty() {
        let handles = Rc::make_mut(handles);
        for (target, value) in named {
            handles[target.index()] = value;
        }
    }
}
