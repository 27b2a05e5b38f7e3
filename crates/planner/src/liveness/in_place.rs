//! Results that may lie on an operand: the operand's last use is the statement that writes the result.
//!
//! ```text
//!   3  add   reads a, b   writes c        a   [0, 4)
//!                                         c   [3, 6)      both live at step 3 alone, and 'add' goes element by element
//! ```
//!
//! Both are needed at that one step, so a problem without this keeps them apart. Where the statement goes element by
//! element and both sides start and step alike, the result may take the operand's place: a colocation.

use super::Targets;
use npumem_ir::problem::{Colocation, Problem};
use npumem_ir::program::{Access, InPlace, Operation, Program, Role, Root, Step};
use npumem_ir::{BufferId, Bytes};

/// Pairs of buffers that are compared to put one more into a group; a longer chain goes on in a second group.
const MAX_PAIRS: usize = 1024;

/// Sums that a product goes on with: it adds to what lies at its output, so input and output are one place wherever
/// the input's use ends there.
pub(super) fn sums(program: &Program, index_of: &[Option<BufferId>], problem: &Problem) -> Vec<Colocation> {
    let mut groups = Groups::new(problem);
    let mut out = Vec::new();
    for (at, step) in program.steps.iter().enumerate() {
        let Step::Run(operation) = step else { continue };
        let goes_on =
            operation.name.ends_with(".acc") && ["tmatmul", "tgemv"].iter().any(|n| operation.name.starts_with(n));
        let Some(write) = operation.writes.first().filter(|_| goes_on) else { continue };
        let Some(target) = plain(program, write) else { continue };
        for read in &operation.reads {
            let Some(source) = plain(program, read).filter(|source| *source != target) else { continue };
            if program.buffer(source).space != program.buffer(target).space || read.start != write.start {
                continue;
            }
            let (Some(base), Some(buffer)) = (index_of[source.index()], index_of[target.index()]) else { continue };
            if groups.meet_only_at(problem, (base, buffer), at as u64) {
                groups.unite(base.index(), buffer.index());
                out.push(Colocation { buffer, base, delta: Bytes(0) });
            }
        }
    }
    out
}

/// Colocations that put results on operands; whether they make a better plan is for a placement to find out.
pub(super) fn colocations(
    program: &Program,
    targets: &Targets,
    index_of: &[Option<BufferId>],
    problem: &Problem,
    sums: &[Colocation],
) -> Vec<Colocation> {
    let mut groups = Groups::new(problem);
    for sum in sums {
        groups.unite(sum.base.index(), sum.buffer.index());
    }
    let mut out = Vec::new();
    for (at, step) in program.steps.iter().enumerate() {
        let Step::Run(operation) = step else { continue };
        if operation.in_place == InPlace::Never || !operation.known {
            continue;
        }
        // Scratch is written beside what is read, never in its place.
        let results = operation.writes.len()
            - usize::from(operation.attributes.contains_key("scratch")).min(operation.writes.len());
        let [write] = &operation.writes[..results] else { continue };
        let Some(target) = plain(program, write) else { continue };
        for read in &operation.reads {
            let Some(source) = plain(program, read).filter(|source| *source != target) else { continue };
            if !alike(program, (source, read), (target, write)) || !only_so(program, targets, operation, source, read) {
                continue;
            }
            let (Some(base), Some(buffer)) = (index_of[source.index()], index_of[target.index()]) else { continue };
            if groups.meet_only_at(problem, (base, buffer), at as u64) {
                groups.unite(base.index(), buffer.index());
                out.push(Colocation { buffer, base, delta: Bytes(0) });
                break;
            }
        }
    }
    out
}

/// A tile of one slot that is named itself.
fn plain(program: &Program, access: &Access) -> Option<BufferId> {
    let Root::Buffer(id) = access.root else { return None };
    let buffer = program.buffer(id);
    let own = buffer.alias.is_none() && buffer.role == Role::Tile && !buffer.fixed && buffer.slots == 1;
    (own && access.certain).then_some(id)
}

/// Same space, size and element, and the same bytes of it touched in the same order.
fn alike(program: &Program, (source, read): (BufferId, &Access), (target, write): (BufferId, &Access)) -> bool {
    let (a, b) = (program.buffer(source), program.buffer(target));
    a.space == b.space
        && a.bytes == b.bytes
        && a.alignment == b.alignment
        && a.layout == b.layout
        && a.shape == b.shape
        && read.element.bits() == write.element.bits()
        && read.start == write.start
        && read.extents == write.extents
        && read.layout == write.layout
        && read.shape == write.shape
}

/// Every other operand of the statement is another buffer, or the same one read alike.
fn only_so(program: &Program, targets: &Targets, operation: &Operation, source: BufferId, read: &Access) -> bool {
    operation.reads.iter().all(|other| !targets.of(program, other).contains(&source) || other == read)
}

/// Buffers that share a place already.
struct Groups {
    of: Vec<usize>,
    members: Vec<Vec<usize>>,
}

impl Groups {
    /// Every buffer alone.
    fn new(problem: &Problem) -> Self {
        let count = problem.buffers.len();
        Groups { of: (0..count).collect(), members: (0..count).map(|index| vec![index]).collect() }
    }

    /// Whether the two groups are live together at that step alone, and there only as these two.
    fn meet_only_at(&self, problem: &Problem, (base, buffer): (BufferId, BufferId), at: u64) -> bool {
        let (first, second) = (self.of[base.index()], self.of[buffer.index()]);
        let (members, others) = (self.members[first].len(), self.members[second].len());
        if first == second || members * others > MAX_PAIRS {
            return false;
        }
        // The operand's use ends here, and the result begins here.
        let around = |id: BufferId| {
            problem.buffers[id.index()].live.iter().find(|l| l.steps.start.0 <= at && at < l.steps.end.0)
        };
        let ends = around(base).is_some_and(|live| live.steps.end.0 == at + 1);
        if !ends || around(buffer).is_none_or(|live| live.steps.start.0 != at) {
            return false;
        }
        self.members[first].iter().all(|a| {
            self.members[second].iter().all(|b| {
                let meant = *a == base.index() && *b == buffer.index();
                let shared = shared(problem, *a, *b);
                if meant { shared == Some((at, at + 1)) } else { shared.is_none() }
            })
        })
    }

    fn unite(&mut self, a: usize, b: usize) {
        let (a, b) = (self.of[a], self.of[b]);
        let moved = std::mem::take(&mut self.members[b]);
        for index in &moved {
            self.of[*index] = a;
        }
        self.members[a].extend(moved);
    }
}

/// From the first to past the last step at which both live; `None` when there is none.
fn shared(problem: &Problem, a: usize, b: usize) -> Option<(u64, u64)> {
    let mut out: Option<(u64, u64)> = None;
    let (first, second) = (&problem.buffers[a].live, &problem.buffers[b].live);
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (first.get(i), second.get(j)) {
        let (low, high) = (x.steps.start.0.max(y.steps.start.0), x.steps.end.0.min(y.steps.end.0));
        if low < high {
            out = Some(out.map_or((low, high), |(from, _)| (from, high)));
        }
        if x.steps.end <= y.steps.end {
            i += 1;
        } else {
            j += 1;
        }
    }
    out
}
