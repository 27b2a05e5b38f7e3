//! What makes a problem meaningless: every contradiction in its statement, found before anyone plans it.
//!
//! A problem that is fine here may still have no plan; that is an answer, not an error.

use super::{Buffer, Problem, Sizing};
use crate::ids::{BufferId, SpaceId};
use crate::interval::{ByteRange, Interval, StepRange};
use crate::units::{Bytes, Offset};
use std::collections::HashSet;
use std::fmt;

/// One thing wrong with a problem's statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemError {
    /// The item that is wrong.
    pub item: Item,
    /// What is wrong with it.
    pub kind: ProblemErrorKind,
}

/// An item of a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The problem as a whole.
    Problem,
    /// A space, with its name.
    Space(SpaceId, String),
    /// A buffer, with its name.
    Buffer(BufferId, String),
    /// An entry of a constraint list: which list, and the position in it.
    Constraint(&'static str, usize),
}

/// What is wrong with an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProblemErrorKind {
    /// More items than an id can count.
    TooMany(usize),
    /// Another space before it has the same name.
    DuplicateSpaceName(SpaceId),
    /// A reserved range that is reversed or empty.
    EmptyReserved(ByteRange),
    /// A buffer that is never live.
    NeverLive,
    /// A live range that is reversed or empty.
    EmptyRange(StepRange),
    /// Live ranges that overlap or are not sorted.
    UnsortedRanges(StepRange, StepRange),
    /// A byte window that is empty or leaves the buffer.
    BadWindow(ByteRange, Bytes),
    /// A buffer without a space to live in.
    NoSpace,
    /// Spaces that are not sorted or repeat.
    UnsortedSpaces,
    /// A space that the problem does not have.
    UnknownSpace(SpaceId),
    /// A buffer that the problem does not have.
    UnknownBuffer(BufferId),
    /// A pin in a space that the buffer may not live in.
    PinOutsideSpaces(SpaceId),
    /// A pin or hint whose last byte is past 64 bits.
    LocationPast64Bits(Offset, Bytes),
    /// An unbounded buffer that states a size.
    UnboundedWithSize(Bytes),
    /// A use outside of the buffer's lifetime.
    UseOutsideLifetime(u64),
    /// A pair of one buffer with itself.
    SamePair(BufferId),
    /// Colocations that ask for two distances between the same two buffers.
    ClashingDeltas {
        /// The buffer that is placed by two others.
        buffer: BufferId,
        /// The buffer that it is placed by.
        base: BufferId,
        /// The distance that the colocations before this one come to.
        implied: i128,
        /// The distance that this one asks for.
        stated: i128,
    },
    /// Colocated buffers that share no space.
    NoCommonSpace(BufferId, BufferId),
    /// Colocated buffers whose pins do not agree.
    ClashingPins(BufferId, BufferId),
    /// Buffers that must share no byte and are colocated so that they do.
    SeparatedButColocated(BufferId, BufferId),
    /// Sizes whose total is past 64 bits.
    TotalPast64Bits,
}

impl ProblemErrorKind {
    /// The statement can be read, but no plan can satisfy it.
    #[must_use]
    pub fn is_contradiction(&self) -> bool {
        use ProblemErrorKind::*;
        matches!(self, ClashingDeltas { .. } | NoCommonSpace(..) | ClashingPins(..) | SeparatedButColocated(..))
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::Problem => f.write_str("problem"),
            Item::Space(id, name) => write!(f, "{id} '{name}'"),
            Item::Buffer(id, name) => write!(f, "buffer {id} '{name}'"),
            Item::Constraint(list, index) => write!(f, "{list}[{index}]"),
        }
    }
}

impl fmt::Display for ProblemErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ProblemErrorKind::*;
        match self {
            TooMany(count) => write!(f, "{count} items, but ids count up to {}", u32::MAX),
            DuplicateSpaceName(first) => write!(f, "{first} already has this name"),
            EmptyReserved(range) => write!(f, "reserved range {range} holds no byte; its end must be past its start"),
            NeverLive => f.write_str("has no live range; give it one or leave it out"),
            EmptyRange(range) => write!(f, "live range {range} holds no step; its end must be past its start"),
            UnsortedRanges(first, second) => {
                write!(f, "live range {second} follows {first}; live ranges must be sorted and disjoint")
            }
            BadWindow(window, size) => write!(f, "window {window} must hold a byte and lie within [0, {})", size.0),
            NoSpace => f.write_str("has no space to live in"),
            UnsortedSpaces => f.write_str("its spaces must be sorted, each once"),
            UnknownSpace(space) => write!(f, "{space} does not exist"),
            UnknownBuffer(buffer) => write!(f, "buffer {buffer} does not exist"),
            PinOutsideSpaces(space) => write!(f, "is pinned in {space}, where it may not live"),
            LocationPast64Bits(offset, size) => write!(f, "{size} at offset {offset} end past 64 bits"),
            UnboundedWithSize(size) => write!(f, "is unbounded and states a size of {size}; its size must be 0"),
            UseOutsideLifetime(step) => write!(f, "is used at step {step}, when it is not live"),
            SamePair(buffer) => write!(f, "names buffer {buffer} twice"),
            ClashingDeltas { buffer, base, implied, stated } => write!(
                f,
                "puts buffer {buffer} {stated} bytes after {base}, but the colocations before it put it {implied} after"
            ),
            NoCommonSpace(a, b) => write!(f, "buffers {a} and {b} must share a space, and none suits both"),
            ClashingPins(a, b) => write!(f, "buffers {a} and {b} are colocated, and their pins do not agree"),
            SeparatedButColocated(a, b) => {
                write!(f, "buffers {a} and {b} must share no byte, and their colocation makes them share some")
            }
            TotalPast64Bits => f.write_str("the sizes of the buffers add up past 64 bits"),
        }
    }
}

impl fmt::Display for ProblemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.item, self.kind)
    }
}

impl std::error::Error for ProblemError {}

/// Stops at this many: past it a list is noise, and its memory the reader's to choose.
const MAX_ERRORS: usize = 1000;

impl Problem {
    /// Everything that makes the statement meaningless, up to 1000 entries; empty when it is sound.
    ///
    /// Near-linear time (sorting aside, `O(n)` and inverse-Ackermann for colocations).
    #[must_use]
    pub fn validate(&self) -> Vec<ProblemError> {
        let mut found = Found { errors: Vec::new() };
        for count in [self.spaces.len(), self.buffers.len()] {
            if count > u32::MAX as usize {
                found.add(Item::Problem, ProblemErrorKind::TooMany(count));
                return found.errors;
            }
        }
        self.validate_spaces(&mut found);
        let mut total = 0_u64;
        let mut total_fits = true;
        for (id, buffer) in self.buffers() {
            self.validate_buffer(id, buffer, &mut found);
            match total.checked_add(buffer.size.0) {
                Some(sum) => total = sum,
                None => total_fits = false,
            }
        }
        if !total_fits {
            found.add(Item::Problem, ProblemErrorKind::TotalPast64Bits);
        }
        self.validate_pairs(&mut found);
        if found.errors.is_empty() {
            self.validate_groups(&mut found);
        }
        found.errors
    }

    fn validate_spaces(&self, found: &mut Found) {
        let mut names: std::collections::BTreeMap<&str, SpaceId> = std::collections::BTreeMap::new();
        for (id, space) in self.spaces() {
            let item = || Item::Space(id, space.name.clone());
            match names.get(space.name.as_str()) {
                Some(first) => found.add(item(), ProblemErrorKind::DuplicateSpaceName(*first)),
                None => {
                    names.insert(&space.name, id);
                }
            }
            for range in &space.reserved {
                if range.is_empty() {
                    found.add(item(), ProblemErrorKind::EmptyReserved(*range));
                }
            }
        }
    }

    fn validate_buffer(&self, id: BufferId, buffer: &Buffer, found: &mut Found) {
        use ProblemErrorKind::*;
        let mut add = |kind| found.add(Item::Buffer(id, buffer.name.clone()), kind);
        if buffer.live.is_empty() {
            add(NeverLive);
        }
        let mut previous: Option<StepRange> = None;
        for range in &buffer.live {
            if range.steps.is_empty() {
                add(EmptyRange(range.steps));
            }
            if let Some(previous) = previous.filter(|previous| previous.end > range.steps.start) {
                add(UnsortedRanges(previous, range.steps));
            }
            previous = Some(range.steps);
            if let Some(window) = range.window
                && (window.is_empty() || window.end.0 > buffer.size.0)
            {
                add(BadWindow(window, buffer.size));
            }
        }
        if buffer.spaces.is_empty() {
            add(NoSpace);
        }
        if buffer.spaces.windows(2).any(|pair| pair[0] >= pair[1]) {
            add(UnsortedSpaces);
        }
        for space in buffer.spaces.iter().filter(|space| space.index() >= self.spaces.len()) {
            add(UnknownSpace(*space));
        }
        if let Some(pin) = buffer.pin
            && !buffer.spaces.contains(&pin.space)
        {
            add(PinOutsideSpaces(pin.space));
        }
        for place in [buffer.pin, buffer.hint].into_iter().flatten() {
            if place.space.index() >= self.spaces.len() {
                add(UnknownSpace(place.space));
            }
            if place.offset.checked_add(buffer.size.0).is_none() {
                add(LocationPast64Bits(place.offset, buffer.size));
            }
        }
        if buffer.sizing == Sizing::Unbounded && buffer.size != Bytes::ZERO {
            add(UnboundedWithSize(buffer.size));
        }
        if let Some(lifetime) = buffer.lifetime() {
            for access in &buffer.uses {
                if !lifetime.contains(access.step) {
                    add(UseOutsideLifetime(access.step.0));
                }
            }
        }
    }

    fn validate_pairs(&self, found: &mut Found) {
        let lists = &self.constraints;
        let colocated = lists.colocated.iter().map(|entry| (entry.buffer, entry.base));
        let separated = lists.separated.iter().map(|entry| (entry.first, entry.second));
        let penalties = lists.reuse_penalties.iter().map(|entry| (entry.first, entry.second));
        self.validate_list("colocated", colocated, found);
        self.validate_list("separated", separated, found);
        self.validate_list("never_coexist", lists.never_coexist.iter().copied(), found);
        self.validate_list("reuse_penalties", penalties, found);
    }

    fn validate_list(&self, list: &'static str, pairs: impl Iterator<Item = (BufferId, BufferId)>, found: &mut Found) {
        for (index, (first, second)) in pairs.enumerate() {
            for buffer in [first, second] {
                if buffer.index() >= self.buffers.len() {
                    found.add(Item::Constraint(list, index), ProblemErrorKind::UnknownBuffer(buffer));
                }
            }
            if first == second {
                found.add(Item::Constraint(list, index), ProblemErrorKind::SamePair(first));
            }
        }
    }

    /// Colocated buffers form groups with one distance between any two; a group needs a space and at most one place.
    fn validate_groups(&self, found: &mut Found) {
        use ProblemErrorKind::*;
        if self.constraints.colocated.is_empty() {
            return;
        }
        let mut groups = Groups::new(self.buffers.len());
        for (index, entry) in self.constraints.colocated.iter().enumerate() {
            let stated = i128::from(entry.delta.0);
            if let Err(implied) = groups.join(entry.buffer, entry.base, stated) {
                let kind = ClashingDeltas { buffer: entry.buffer, base: entry.base, implied, stated };
                found.add(Item::Constraint("colocated", index), kind);
            }
        }
        let mut spaces: std::collections::BTreeMap<usize, (BufferId, Vec<SpaceId>)> = std::collections::BTreeMap::new();
        let mut pins: std::collections::BTreeMap<usize, (BufferId, SpaceId, i128)> = std::collections::BTreeMap::new();
        let grouped: HashSet<BufferId> =
            self.constraints.colocated.iter().flat_map(|entry| [entry.buffer, entry.base]).collect();
        for (id, buffer) in self.buffers().filter(|(id, _)| grouped.contains(id)) {
            let (root, distance) = groups.find(id);
            let item = || Item::Buffer(id, buffer.name.clone());
            let (first, common) = spaces.entry(root).or_insert_with(|| (id, buffer.spaces.clone()));
            common.retain(|space| buffer.spaces.contains(space));
            if common.is_empty() {
                found.add(item(), NoCommonSpace(*first, id));
                common.clone_from(&buffer.spaces);
            }
            if let Some(pin) = buffer.pin {
                let start = i128::from(pin.offset.0) - distance;
                let (first, space, group_start) = *pins.entry(root).or_insert((id, pin.space, start));
                if (space, group_start) != (pin.space, start) {
                    found.add(item(), ClashingPins(first, id));
                }
            }
        }
        for (index, entry) in self.constraints.separated.iter().enumerate() {
            let ((first, a), (second, b)) = (groups.find(entry.first), groups.find(entry.second));
            let reach = |start: i128, id: BufferId| Interval { start, end: start + i128::from(self.buffer(id).size.0) };
            if first == second && reach(a, entry.first).overlaps(&reach(b, entry.second)) {
                let kind = SeparatedButColocated(entry.first, entry.second);
                found.add(Item::Constraint("separated", index), kind);
            }
        }
    }
}

struct Found {
    errors: Vec<ProblemError>,
}

impl Found {
    fn add(&mut self, item: Item, kind: ProblemErrorKind) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(ProblemError { item, kind });
        }
    }
}

/// Union-find in which every member knows its distance in bytes from its root.
struct Groups {
    parent: Vec<usize>,
    /// Bytes from the parent's start to this one's; zero for a root.
    distance: Vec<i128>,
    members: Vec<u32>,
}

impl Groups {
    fn new(count: usize) -> Self {
        Groups { parent: (0..count).collect(), distance: vec![0; count], members: vec![1; count] }
    }

    /// The root of a buffer's group and the bytes from the root's start to its own.
    fn find(&mut self, id: BufferId) -> (usize, i128) {
        let mut path = Vec::new();
        let mut node = id.index();
        while self.parent[node] != node {
            path.push(node);
            node = self.parent[node];
        }
        let mut total = 0;
        for step in path.into_iter().rev() {
            total += self.distance[step];
            (self.parent[step], self.distance[step]) = (node, total);
        }
        (node, total)
    }

    /// States that `buffer` starts `delta` after `base`; the distance already known is the error when it is another.
    fn join(&mut self, buffer: BufferId, base: BufferId, delta: i128) -> Result<(), i128> {
        let ((root, here), (base_root, there)) = (self.find(buffer), self.find(base));
        if root == base_root {
            return if here - there == delta { Ok(()) } else { Err(here - there) };
        }
        let gap = there + delta - here;
        let (child, parent, gap) = if self.members[root] <= self.members[base_root] {
            (root, base_root, gap)
        } else {
            (base_root, root, -gap)
        };
        self.parent[child] = parent;
        self.distance[child] = gap;
        self.members[parent] += self.members[child];
        Ok(())
    }
}
