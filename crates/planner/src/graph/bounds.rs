//! The largest live load of a line under a set of actions, where it is reached, and what makes it up.
//!
//! The live load of a step is the sum, over the classes that are ours to place, of the bytes that a live member covers,
//! each member rounded up to the alignment. No placement of these classes at aligned offsets can have a peak below the
//! largest live load less the padding of one buffer.

use super::line::{Line, ValueId};
use super::storage::{Actions, Storage};
use npumem_ir::problem::BufferKind;
use npumem_ir::{Alignment, Bytes, Interval, Step, StepRange};
use std::collections::BTreeMap;

/// The largest live load under a set of actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What is allowed.
    pub actions: Actions,
    /// The largest live load.
    pub bytes: Bytes,
    /// The first step at which it is reached.
    pub step: Step,
    /// The operator of that step, and its kind.
    pub operator: String,
    /// Its kind.
    pub kind: String,
    /// Values whose size nothing bounds: they are not in the load.
    pub unbounded: usize,
}

/// A value that is live at a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveEntry {
    /// Its name.
    pub name: String,
    /// The bytes that it adds to the load: less than its size where it lies in another entry's bytes.
    pub bytes: Bytes,
    /// The operator that makes it.
    pub producer: Option<String>,
    /// From the first to after the last step at which its bytes are needed.
    pub steps: StepRange,
    /// Other values that live in the same bytes then.
    pub shares_with: Vec<String>,
}

/// What one operator alone needs: its inputs, outputs and workspace together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// The step.
    pub step: Step,
    /// The operator.
    pub operator: String,
    /// Its kind.
    pub kind: String,
    /// Bytes of the activations that it reads and writes, each byte once, rounded as in the load.
    pub activations: Bytes,
    /// Bytes of the weights and constants that it reads.
    pub weights: Bytes,
    /// Bytes of graph inputs that it reads and graph outputs that it writes.
    pub callers: Bytes,
    /// Scratch bytes, where a workspace was given for it.
    pub workspace: Bytes,
}

/// Workspaces: scratch bytes by step.
pub type Workspaces = BTreeMap<u32, Bytes>;

/// Bytes that a member of a class covers, in the class.
fn window(line: &Line<'_>, storage: &Storage, id: ValueId, alignment: Alignment) -> Option<(u64, u64)> {
    let (_, offset) = storage.place(id);
    let size = storage.extent(line, id).at_most()?.align_up(alignment).unwrap_or(Bytes::MAX);
    (size > Bytes::ZERO).then(|| (offset.0, offset.0.saturating_add(size.0)))
}

/// The live load of every step: activations and workspaces, of classes that `counts`.
#[must_use]
pub fn live_load(
    line: &Line<'_>,
    storage: &Storage,
    workspaces: &Workspaces,
    counts: impl Fn(usize) -> bool,
) -> Vec<u128> {
    let steps = line.all().end.0 as usize;
    let mut change = vec![0_i128; steps + 1];
    for (number, class) in storage.classes() {
        if class.kind != BufferKind::Activation || !counts(number) {
            continue;
        }
        for (range, bytes) in covered(line, storage, &class.members) {
            change[range.start.0 as usize] += i128::from(bytes);
            change[range.end.0 as usize] -= i128::from(bytes);
        }
    }
    for (step, bytes) in workspaces {
        let bytes = i128::from(bytes.align_up(storage.alignment()).unwrap_or(Bytes::MAX).0);
        change[*step as usize] += bytes;
        change[*step as usize + 1] -= bytes;
    }
    let mut load = 0_i128;
    change.pop();
    change
        .into_iter()
        .map(|by| {
            load += by;
            load.unsigned_abs()
        })
        .collect()
}

/// For how long how many bytes of a class are covered by live members.
fn covered(line: &Line<'_>, storage: &Storage, members: &[ValueId]) -> Vec<(StepRange, u64)> {
    let mut events: Vec<(u64, bool, (u64, u64))> = Vec::new();
    for id in members {
        let Some(window) = window(line, storage, *id, storage.alignment()) else { continue };
        for range in line.value(*id).live() {
            events.push((range.start.0, true, window));
            events.push((range.end.0, false, window));
        }
    }
    events.sort_unstable();
    let mut edges: Vec<u64> = events.iter().flat_map(|(_, _, (low, high))| [*low, *high]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut cover = Cover::new(edges);
    let mut pieces = Vec::new();
    let mut since = 0;
    let mut at = 0;
    while let Some(&(time, ..)) = events.get(at) {
        if cover.total() > 0 && since < time {
            pieces.push((StepRange::steps(since, time), cover.total()));
        }
        since = time;
        while let Some(&(same, starts, window)) = events.get(at)
            && same == time
        {
            cover.add(window, if starts { 1 } else { -1 });
            at += 1;
        }
    }
    pieces
}

/// How much of a line of bytes is covered by at least one window: a tree over the windows' edges.
///
/// Node `i` has children `2i` and `2i + 1`; a window adds to the fewest nodes that make it up.
struct Cover {
    edges: Vec<u64>,
    leaves: usize,
    count: Vec<i32>,
    length: Vec<u64>,
}

impl Cover {
    fn new(edges: Vec<u64>) -> Cover {
        let leaves = edges.len().saturating_sub(1).next_power_of_two().max(1);
        Cover { edges, leaves, count: vec![0; 2 * leaves], length: vec![0; 2 * leaves] }
    }

    fn total(&self) -> u64 {
        self.length[1]
    }

    /// The bytes under a node.
    fn width(&self, node: usize) -> u64 {
        let level = node.ilog2();
        let span = self.leaves >> level;
        let first = (node - (1 << level)) * span;
        let edge = |index: usize| self.edges.get(index).or(self.edges.last()).copied().unwrap_or(0);
        edge(first + span) - edge(first)
    }

    fn add(&mut self, (low, high): (u64, u64), by: i32) {
        let index = |edge: u64| self.edges.partition_point(|other| *other < edge);
        let (mut left, mut right) = (index(low) + self.leaves, index(high) + self.leaves);
        let (first, last) = (left, right - 1);
        while left < right {
            if left & 1 == 1 {
                self.change(left, by);
                left += 1;
            }
            if right & 1 == 1 {
                right -= 1;
                self.change(right, by);
            }
            (left, right) = (left >> 1, right >> 1);
        }
        for mut node in [first, last] {
            while node > 1 {
                node >>= 1;
                self.change(node, 0);
            }
        }
    }

    fn change(&mut self, node: usize, by: i32) {
        self.count[node] += by;
        self.length[node] = match node {
            _ if self.count[node] > 0 => self.width(node),
            _ if node >= self.leaves => 0,
            _ => self.length[2 * node] + self.length[2 * node + 1],
        };
    }
}

/// The bound under a set of actions.
#[must_use]
pub fn bound(line: &Line<'_>, storage: &Storage, actions: Actions, workspaces: &Workspaces) -> Bound {
    let load = live_load(line, storage, workspaces, |_| true);
    let (mut step, mut most) = (0, 0);
    for (index, bytes) in load.iter().enumerate() {
        if *bytes > most {
            (step, most) = (index, *bytes);
        }
    }
    let unbounded = storage
        .classes()
        .filter(|(_, class)| class.kind == BufferKind::Activation && class.size.at_most().is_none())
        .count();
    let (operator, kind) =
        line.steps.get(step).map_or_else(Default::default, |at| (at.name.clone(), at.operator.kind.clone()));
    Bound {
        actions,
        bytes: Bytes(u64::try_from(most).unwrap_or(u64::MAX)),
        step: Step(step as u64),
        operator,
        kind,
        unbounded,
    }
}

/// The bounds of every set in [`Actions::LADDER`].
#[must_use]
pub fn bounds(line: &Line<'_>, alignment: Alignment, workspaces: &Workspaces) -> Vec<Bound> {
    let ladder = Actions::LADDER.into_iter();
    ladder.map(|actions| bound(line, &Storage::new(line, actions, alignment), actions, workspaces)).collect()
}

/// What is live at a step, largest first: one entry per value that adds bytes of its own. The entries of activations and
/// workspaces add up to the live load.
#[must_use]
pub fn live_at(line: &Line<'_>, storage: &Storage, workspaces: &Workspaces, step: Step) -> Vec<LiveEntry> {
    let mut entries = Vec::new();
    for (_, class) in storage.classes().filter(|(_, class)| class.kind == BufferKind::Activation) {
        let mut live: Vec<(ValueId, (u64, u64))> = class
            .members
            .iter()
            .filter(|id| line.value(**id).live().any(|range| range.contains(step)))
            .filter_map(|id| Some((*id, window(line, storage, *id, storage.alignment())?)))
            .collect();
        // The largest first; what lies within an earlier one adds nothing.
        live.sort_unstable_by_key(|(id, (low, high))| (std::cmp::Reverse(high - low), *id));
        let mut owned: Vec<(usize, (u64, u64))> = Vec::new();
        for (id, (low, high)) in live {
            let value = line.value(id);
            if let Some((owner, _)) = owned.iter().find(|(_, (from, to))| *from <= low && high <= *to) {
                let owner: &mut LiveEntry = &mut entries[*owner];
                owner.shares_with.push(value.name.clone());
                owner.steps = owner.steps.hull(&value.span);
                continue;
            }
            owned.push((entries.len(), (low, high)));
            entries.push(LiveEntry {
                name: value.name.clone(),
                bytes: Bytes(high - low),
                producer: value.producer.and_then(|at| line.steps.get(at as usize)).map(|at| at.name.clone()),
                steps: value.span,
                shares_with: Vec::new(),
            });
        }
    }
    if let (Some(bytes), Some(at)) = (workspaces.get(&(step.0 as u32)), line.steps.get(step.0 as usize)) {
        entries.push(LiveEntry {
            name: format!("{} (workspace)", at.name),
            bytes: bytes.align_up(storage.alignment()).unwrap_or(Bytes::MAX),
            producer: Some(at.name.clone()),
            steps: Interval { start: step, end: step.saturating_add(1) },
            shares_with: Vec::new(),
        });
    }
    entries.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.steps.start.cmp(&b.steps.start)));
    entries
}

/// What each operator alone needs, in step order. The largest is a bound for every order of the operators.
#[must_use]
pub fn footprints(line: &Line<'_>, storage: &Storage, workspaces: &Workspaces) -> Vec<Footprint> {
    let mut rows = Vec::with_capacity(line.steps.len());
    for (index, step) in line.steps.iter().enumerate() {
        let mut touched: Vec<ValueId> = step.inputs.iter().chain(&step.outputs).copied().flatten().collect();
        touched.sort_unstable();
        touched.dedup();
        let mut windows: Vec<(usize, (u64, u64))> = touched
            .iter()
            .filter_map(|id| Some((storage.place(*id).0, window(line, storage, *id, storage.alignment())?)))
            .collect();
        windows.sort_unstable();
        let mut row = Footprint {
            step: Step(index as u64),
            operator: step.name.clone(),
            kind: step.operator.kind.clone(),
            activations: Bytes::ZERO,
            weights: Bytes::ZERO,
            callers: Bytes::ZERO,
            workspace: workspaces.get(&(index as u32)).copied().unwrap_or_default(),
        };
        let mut reach = (usize::MAX, 0_u64);
        for (class, (low, high)) in windows {
            if reach.0 != class {
                reach = (class, 0);
            }
            let fresh = high.saturating_sub(low.max(reach.1));
            reach.1 = reach.1.max(high);
            let sum = match storage.class(class).kind {
                BufferKind::Activation | BufferKind::Workspace => &mut row.activations,
                BufferKind::Weight | BufferKind::Constant => &mut row.weights,
                BufferKind::Input | BufferKind::Output => &mut row.callers,
            };
            *sum = sum.saturating_add(fresh);
        }
        rows.push(row);
    }
    rows
}
