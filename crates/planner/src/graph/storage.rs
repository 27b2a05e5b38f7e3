//! Which values share bytes: classes of values, each at an offset within its class.
//!
//! ```text
//!   class   [................................)   extent: the size of its largest member
//!   x       [==================)                  offset 0; first part of y
//!   y       [================================)   a concat of x and z
//!   z                           [============)   offset 72
//!   r       [================================)   written in place over y, after y's last use
//! ```
//!
//! Two values may overlap in bytes and time only when they hold the same content there (a view, a part), or at the one
//! step at which an operator writes onto the input that dies there. `Storage::merge` keeps that rule for every pair.

use super::line::{Line, Origin, Value, ValueId};
use super::size::Size;
use super::{inplace, pieces, views};
use npumem_ir::problem::BufferKind;
use npumem_ir::{Alignment, Bytes, Step, StepRange};

/// Which ways of sharing bytes are allowed. Each bound is for one such set; [`Actions::LADDER`] is the usual row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actions {
    /// Operators that change only the shape, or nothing, share their input's bytes.
    pub views: bool,
    /// Operators that can write onto an input that dies there do.
    pub in_place: bool,
    /// Contiguous slices and parts of a concat lie inside the whole; copies that move no byte are not made.
    pub pieces: bool,
}

impl Actions {
    /// Every tensor has bytes of its own.
    pub const NONE: Actions = Actions { views: false, in_place: false, pieces: false };
    /// Everything that is allowed.
    pub const ALL: Actions = Actions { views: true, in_place: true, pieces: true };
    /// From nothing to everything, one action more each time.
    pub const LADDER: [Actions; 4] = [
        Actions::NONE,
        Actions { views: true, in_place: false, pieces: false },
        Actions { views: true, in_place: true, pieces: false },
        Actions::ALL,
    ];

    /// How the set is called in a table: what it adds to the given order.
    #[must_use]
    pub fn name(self) -> String {
        let mut name = String::from("given order");
        for (on, what) in [(self.views, "views"), (self.in_place, "in-place"), (self.pieces, "pieces")] {
            if on {
                name.push_str(" + ");
                name.push_str(what);
            }
        }
        name
    }
}

/// Which input an in-place operator writes over, where it may choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// The one whose bytes have been in use for the shortest time: classes stay short.
    #[default]
    Youngest,
    /// The one whose bytes have been in use for the longest time: a residual stream stays where it is.
    Oldest,
}

/// Values that share bytes.
#[derive(Clone, Debug)]
pub struct Class {
    /// The values in it; the first one that is as large as the class is its base.
    pub members: Vec<ValueId>,
    /// What its bytes are for.
    pub kind: BufferKind,
    /// How many bytes it needs.
    pub size: Size,
    /// From its first live step to after its last.
    pub(crate) span: StepRange,
}

/// The classes of a line's values under a set of actions.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The class of each value, and the offset in it.
    place: Vec<(u32, Bytes)>,
    /// Values of one number hold the same content where they overlap.
    content: Vec<u32>,
    /// The values of each content.
    same: Vec<Vec<ValueId>>,
    classes: Vec<Class>,
    alignment: Alignment,
}

/// Pairs of values that one merge looks at, at most; a merge that needs more is not made.
const MAX_PAIRS: usize = 1 << 22;

/// Why two classes become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The two values hold the same bytes where they overlap.
    SameContent,
    /// The two values hold the same bytes and are equally large, also where their sizes are not numbers.
    View,
    /// The one is written over the other at this step.
    Overwrite(Step),
    /// The one, of a branch, is handed on as the other at this step; the other branch hands on something else.
    HandedOn(Step),
}

impl Storage {
    /// The classes under `actions`; parts lie at multiples of `alignment`.
    #[must_use]
    pub fn new(line: &Line<'_>, actions: Actions, alignment: Alignment) -> Storage {
        Storage::with(line, actions, alignment, Over::default())
    }

    /// The classes under `actions`, with a say in which input an in-place operator writes over.
    #[must_use]
    pub fn with(line: &Line<'_>, actions: Actions, alignment: Alignment, over: Over) -> Storage {
        let mut storage = Storage::apart(line, alignment);
        if actions.views {
            views::share(line, &mut storage);
        }
        if actions.in_place {
            inplace::share(line, &mut storage, over);
        }
        if actions.pieces {
            pieces::share(line, &mut storage);
        }
        storage
    }

    fn apart(line: &Line<'_>, alignment: Alignment) -> Storage {
        let classes = line
            .values()
            .map(|(id, value)| Class {
                members: vec![id],
                kind: kind_of(value),
                size: value.size.clone(),
                span: value.span,
            })
            .collect::<Vec<_>>();
        let count = classes.len() as u32;
        Storage {
            place: (0..count).map(|id| (id, Bytes::ZERO)).collect(),
            content: (0..count).collect(),
            same: (0..count).map(|id| vec![ValueId(id)]).collect(),
            classes,
            alignment,
        }
    }

    /// The class of a value.
    #[must_use]
    pub fn class_of(&self, id: ValueId) -> &Class {
        &self.classes[self.place[id.index()].0 as usize]
    }

    /// The class of that number.
    #[must_use]
    pub fn class(&self, number: usize) -> &Class {
        &self.classes[number]
    }

    /// The number of a value's class, and the value's offset in it.
    #[must_use]
    pub fn place(&self, id: ValueId) -> (usize, Bytes) {
        let (class, offset) = self.place[id.index()];
        (class as usize, offset)
    }

    /// Every class that holds a value, with its number.
    pub fn classes(&self) -> impl Iterator<Item = (usize, &Class)> {
        self.classes.iter().enumerate().filter(|(_, class)| !class.members.is_empty())
    }

    /// The alignment that parts and rounded sizes keep.
    #[must_use]
    pub fn alignment(&self) -> Alignment {
        self.alignment
    }

    /// Whether two values hold the same content where they overlap.
    #[must_use]
    pub fn same_content(&self, a: ValueId, b: ValueId) -> bool {
        self.content[a.index()] == self.content[b.index()]
    }

    /// The number of a value's content: equal for values that hold the same bytes where they overlap.
    pub(crate) fn content(&self, id: ValueId) -> u32 {
        self.content[id.index()]
    }

    /// How many bytes a value takes: its own size, or its class's where only that is a number.
    #[must_use]
    pub fn extent(&self, line: &Line<'_>, id: ValueId) -> Size {
        match &line.value(id).size {
            Size::Fixed(bytes) => Size::Fixed(*bytes),
            open => open.sharper(&self.class_of(id).size),
        }
    }

    /// Whether two values surely take the same number of bytes.
    pub(crate) fn same_size(&self, line: &Line<'_>, a: ValueId, b: ValueId) -> bool {
        match (self.extent(line, a), self.extent(line, b)) {
            (Size::Fixed(a), Size::Fixed(b)) => a == b,
            _ => same_size(line.value(a), line.value(b)),
        }
    }

    /// Puts the class of `part` into the class of `whole`, so that `part` starts `delta` bytes into `whole`.
    /// Says whether it did: it does not where that could change what any operator reads.
    pub(crate) fn merge(
        &mut self,
        line: &Line<'_>,
        part: ValueId,
        whole: ValueId,
        delta: Bytes,
        reason: Reason,
    ) -> bool {
        let ((from, inner), (to, outer)) = (self.place(part), self.place(whole));
        if from == to {
            return outer.checked_add(delta.0) == Some(inner);
        }
        let Some(kind) = self.joint_kind(from, to, delta, reason) else { return false };
        // The part's class keeps its own offsets: only its start moves.
        let Some(shift) = outer.checked_add(delta.0).and_then(|at| at.checked_sub(inner.0)) else { return false };
        let (a, b) = (&self.classes[from], &self.classes[to]);
        let fits = match (&a.size, &b.size) {
            (Size::Fixed(a), Size::Fixed(b)) if reason == Reason::View => a == b,
            (Size::Fixed(a), Size::Fixed(b)) => shift.checked_add(a.0).is_some_and(|end| end <= *b),
            // Sizes that are not numbers: only the whole in the whole.
            _ => {
                shift == Bytes::ZERO
                    && (reason != Reason::SameContent || same_size(line.value(part), line.value(whole)))
            }
        };
        if !fits || !self.compatible(line, (from, part, shift), (to, whole), reason) {
            return false;
        }
        if matches!(reason, Reason::SameContent | Reason::View) {
            self.unite_content(part, whole);
        }
        let size = match self.classes[to].size {
            Size::Fixed(_) => self.classes[to].size.clone(),
            _ => self.classes[from].size.sharper(&self.classes[to].size),
        };
        let span = self.classes[from].span.hull(&self.classes[to].span);
        // Equal extents: relabel the smaller list, so that a long chain costs n log n.
        let swap = shift == Bytes::ZERO
            && self.classes[from].size == self.classes[to].size
            && self.classes[from].members.len() > self.classes[to].members.len();
        let (source, target) = if swap { (to, from) } else { (from, to) };
        let moved = std::mem::take(&mut self.classes[source].members);
        for id in &moved {
            let (class, offset) = &mut self.place[id.index()];
            *class = target as u32;
            offset.0 += if swap { 0 } else { shift.0 };
        }
        let class = &mut self.classes[target];
        class.members.extend(moved);
        (class.kind, class.size, class.span) = (kind, size, span);
        true
    }

    /// What the two classes' bytes are for together; `None` where they must stay apart.
    fn joint_kind(&self, from: usize, to: usize, delta: Bytes, reason: Reason) -> Option<BufferKind> {
        use BufferKind::{Activation, Output, Workspace};
        let (a, b) = (self.classes[from].kind, self.classes[to].kind);
        match (a, b) {
            (Activation, Activation) => Some(Activation),
            (Workspace, _) | (_, Workspace) => None,
            _ if matches!(reason, Reason::Overwrite(_)) => None,
            // The whole value is the caller's: it is computed at its place. (A part of it stays apart: the caller may
            // hand out memory in which nothing else of ours is planned.)
            (Activation, Output) | (Output, Activation) if delta == Bytes::ZERO => {
                (reason != Reason::SameContent || self.classes[from].size == self.classes[to].size).then_some(Output)
            }
            (Output, _) | (_, Output) => None,
            // A view or a slice of something that is there anyway.
            (Activation, fixed) => Some(fixed),
            // Views are laid out forward, so the base comes first; the other way round would move a weight.
            _ => None,
        }
    }

    /// The rule of the module, for every pair of values across the two classes.
    fn compatible(
        &self,
        line: &Line<'_>,
        (from, part, shift): (usize, ValueId, Bytes),
        (to, whole): (usize, ValueId),
        reason: Reason,
    ) -> bool {
        let (a, b) = (&self.classes[from], &self.classes[to]);
        if let Reason::Overwrite(step) = reason {
            // `part` is written over `whole`: all of the one starts where all of the other ends.
            return b.span.end <= Step(step.0 + 1) && a.span.start >= step;
        }
        if !a.span.overlaps(&b.span) {
            return true;
        }
        let plain = |class: &Class, content: ValueId| class.members.iter().all(|id| self.same_content(*id, content));
        if !matches!(reason, Reason::HandedOn(_)) && plain(a, part) && plain(b, whole) {
            return true;
        }
        if a.members.len().saturating_mul(b.members.len()) > MAX_PAIRS {
            return false;
        }
        a.members.iter().all(|x| {
            let (value, (_, offset)) = (line.value(*x), self.place[x.index()]);
            let low = offset.0 + shift.0;
            let high = low.saturating_add(value.size.at_most().unwrap_or(Bytes::MAX).0);
            b.members.iter().all(|y| {
                let united = !matches!(reason, Reason::HandedOn(_));
                if united && self.same_content(*x, part) && self.same_content(*y, whole) {
                    return true;
                }
                let (other, (_, start)) = (line.value(*y), self.place[y.index()]);
                let end = start.0.saturating_add(other.size.at_most().unwrap_or(Bytes::MAX).0);
                let apart = high <= start.0 || end <= low;
                apart
                    || match reason {
                        Reason::HandedOn(step) => live_together_only_at(value, other, step),
                        _ => !live_together(value, other),
                    }
            })
        })
    }

    fn unite_content(&mut self, part: ValueId, whole: ValueId) {
        let (mut a, mut b) = (self.content[part.index()] as usize, self.content[whole.index()] as usize);
        if a == b {
            return;
        }
        if self.same[a].len() > self.same[b].len() {
            std::mem::swap(&mut a, &mut b);
        }
        let moved = std::mem::take(&mut self.same[a]);
        for id in &moved {
            self.content[id.index()] = b as u32;
        }
        self.same[b].extend(moved);
    }

    /// The member of a class that is as large as the class, and lies at its start: every other one is placed by it.
    #[must_use]
    pub fn base(&self, line: &Line<'_>, class: usize) -> Option<ValueId> {
        let class = &self.classes[class];
        let whole = |id: &ValueId| self.place[id.index()].1 == Bytes::ZERO && self.extent(line, *id) == class.size;
        class.members.iter().copied().filter(whole).min().or_else(|| class.members.iter().copied().min())
    }
}

/// Whether two values are live at the same step.
pub(crate) fn live_together(a: &Value<'_>, b: &Value<'_>) -> bool {
    a.span.overlaps(&b.span) && a.live().any(|x| b.live().any(|y| x.overlaps(&y)))
}

/// Whether two values are live together at no step but this one.
fn live_together_only_at(a: &Value<'_>, b: &Value<'_>, step: Step) -> bool {
    let common = |x: StepRange| b.live().filter_map(move |y| x.intersection(&y));
    a.live().flat_map(common).all(|both| both.start == step && both.len() == 1)
}

/// Whether two values surely need the same number of bytes, whatever open dimensions are.
pub(crate) fn same_size(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (&a.size, &b.size) {
        (Size::Fixed(a), Size::Fixed(b)) => a == b,
        (Size::Fixed(_), _) | (_, Size::Fixed(_)) => false,
        _ => {
            a.scope == b.scope
                && a.tensor.element.bits() == b.tensor.element.bits()
                && a.tensor.shape.dims().is_some()
                && a.tensor.shape.dims() == b.tensor.shape.dims()
        }
    }
}

fn kind_of(value: &Value<'_>) -> BufferKind {
    match value.origin {
        Origin::Input => BufferKind::Input,
        Origin::Weight => BufferKind::Weight,
        Origin::Constant => BufferKind::Constant,
        Origin::Computed | Origin::Outside if value.is_output => BufferKind::Output,
        Origin::Computed | Origin::Outside => BufferKind::Activation,
    }
}
