//! Values: the bytes that a run leaves behind.
//!
//! It watches a run (it is a [`Sink`]) and computes each statement when it begins: all that it depends on has ended. An
//! operation whose values are not computed is named and counted, never passed over in silence.

mod compute;
mod eight;
mod erf;
mod memory;
mod narrow;
mod number;
mod pairs;
mod points;

pub use compute::{NotComputed, Operand, Scalar, Target, compute};
pub use memory::MAX_BYTES;
pub use number::{Data, is_known, is_real, load_int, load_real, rounded, store_real, to_int};

use super::region::Region;
use super::sink::{Beginning, Sink};
use super::touch::{NOWHERE, Places, Touch};
use memory::{Memory, Seed, end_of};
use npumem_ir::BufferId;
use npumem_ir::program::points::{How, Points};
use npumem_ir::program::{ATOMIC, Layout, Number, POINTS, Program, Role, THEN, UNWRITTEN};
use points::Bounds;
use std::collections::BTreeMap;

/// What happened to one buffer of the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Some statement read it.
    pub read: bool,
    /// Some statement wrote it.
    pub written: bool,
    /// Its content was given.
    pub given: bool,
}

/// The values of a run.
#[derive(Debug)]
pub struct Values<'a> {
    program: &'a Program,
    places: Places,
    memory: Memory,
    seed: Seed,
    /// Real arguments, by name.
    reals: BTreeMap<String, f64>,
    uses: Vec<Use>,
    computed: u64,
    skipped: BTreeMap<String, u64>,
}

impl<'a> Values<'a> {
    /// The values of a program that will run; what is not given is random by the seed.
    #[must_use]
    pub fn new(program: &'a Program, seed: u64, reals: BTreeMap<String, f64>) -> Self {
        Values {
            program,
            places: Places::new(program),
            memory: Memory::default(),
            seed: Seed(seed),
            reals,
            uses: vec![Use::default(); program.buffers.len()],
            computed: 0,
            skipped: BTreeMap::new(),
        }
    }

    /// Gives a buffer of the caller its content.
    pub fn give(&mut self, buffer: BufferId, bytes: Vec<u8>) {
        self.uses[buffer.index()].given = true;
        self.memory.shared.insert(self.places.of(buffer), bytes);
    }

    /// The content of a buffer of the caller, as far as it was touched or given.
    #[must_use]
    pub fn content(&self, buffer: BufferId) -> &[u8] {
        self.memory.shared.get(&self.places.of(buffer)).map_or(&[], Vec::as_slice)
    }

    /// What happened to a buffer.
    #[must_use]
    pub fn used(&self, buffer: BufferId) -> Use {
        self.uses[buffer.index()]
    }

    /// Statements whose values were computed.
    #[must_use]
    pub fn computed(&self) -> u64 {
        self.computed
    }

    /// Operations that were not computed, and how often they were met.
    #[must_use]
    pub fn skipped(&self) -> &BTreeMap<String, u64> {
        &self.skipped
    }

    fn skip(&mut self, what: String) {
        *self.skipped.entry(what).or_insert(0) += 1;
    }

    /// Makes the bytes of an operand be there.
    fn ready(&mut self, core: u64, touch: &Touch) -> bool {
        // Looked at before any walk over elements that a file merely claims.
        if touch.payload() > MAX_BYTES {
            return false;
        }
        let buffer = self.program.buffer(touch.owner);
        // What moves nothing may begin anywhere: a window that lies in the padding.
        let moves = touch.payload() > 0;
        let mut end = if moves { end_of(self.program, touch).max(touch.region.end()) } else { 0 };
        let external = self.places.external[touch.place as usize];
        if external && let Some(bytes) = buffer.bytes {
            end = end.max(bytes);
        }
        let random = external.then_some((self.seed, buffer.element)).filter(|(_, element)| is_known(*element));
        self.memory.grow(&self.places, core, touch.place, end, random)
    }

    fn operand(&mut self, core: u64, touch: &Touch) -> Option<Operand> {
        if touch.place == NOWHERE || !touch.certain || !is_known(touch.element) || !self.ready(core, touch) {
            return None;
        }
        self.uses[touch.owner.index()].read = true;
        let (rows, columns) = touch.shape.rows_and_columns();
        Some(Operand {
            data: self.memory.load(&self.places, self.program, core, touch),
            rows: usize::try_from(rows).ok()?,
            columns: usize::try_from(columns).ok()?,
            element: touch.element,
        })
    }

    fn scalars(&mut self, at: &Beginning<'_>) -> Option<Vec<Scalar>> {
        let mut list = Vec::new();
        for (number, value) in at.operation.scalars.iter().zip(at.numbers) {
            list.push(match number {
                Number::Int(_) => Scalar::Int((*value)?),
                Number::Real(value) => Scalar::Real(*value),
                Number::Named(name) => Scalar::Real(*self.reals.get(name.trim_start_matches('%'))?),
            });
        }
        Some(list)
    }

    fn run(&mut self, at: &Beginning<'_>) -> Result<(), String> {
        let name = at.operation.name.as_str();
        let short = name.trim_start_matches("pto.");
        if matches!(short, "tprint" | "print" | "tprefetch") {
            return Ok(());
        }
        if let Some(why) = at.operation.attributes.get(UNWRITTEN) {
            return Err(format!("{name} {why}"));
        }
        if let Some(text) = at.operation.attributes.get(POINTS) {
            return self.points(at, text);
        }
        let Some(target) = at.writes.first() else {
            return if at.reads.is_empty() { Ok(()) } else { Err(format!("{name} without a result")) };
        };
        if at.reads.is_empty() && self.program.buffer(target.owner).role == Role::Queue {
            return Err(format!("{name}: a tile of the other core"));
        }
        let Some(scalars) = self.scalars(at) else {
            return Err(format!("{name} with a scalar of unknown value"));
        };
        if short == "tinsert" {
            return self.insert(at, &scalars);
        }
        if target.place == NOWHERE || !target.certain || !is_known(target.element) {
            return Err(format!("{name} into {} at a place that is not known", target.element));
        }
        let mut reads = Vec::new();
        for touch in at.reads {
            let Some(operand) = self.operand(at.core, touch) else {
                return Err(format!("{name} of {} at a place that is not known", touch.element));
            };
            reads.push(operand);
        }
        let (rows, columns) = target.shape.rows_and_columns();
        let (Ok(rows), Ok(columns)) = (usize::try_from(rows), usize::try_from(columns)) else {
            return Err(format!("{name} of a size past this machine"));
        };
        let shape = Target { rows, columns, element: target.element };
        if short == "taxpy" {
            // The result is read, too, although the source does not say so.
            let before = self.operand(at.core, target).ok_or_else(|| name.to_owned())?;
            reads.push(before);
            return self.axpy(at, &reads, &scalars);
        }
        let attribute = |key: &str| at.operation.attributes.get(key).cloned();
        let mut result = compute(name, &reads, &scalars, shape, &attribute).map_err(|NotComputed| name.to_owned())?;
        match attribute(ATOMIC).as_deref() {
            None => {}
            Some("add") => {
                let before = self.operand(at.core, target).ok_or_else(|| name.to_owned())?;
                let sum = Operand { data: result, rows, columns, element: target.element };
                result =
                    compute("tadd", &[before, sum], &[], shape, &attribute).map_err(|NotComputed| name.to_owned())?;
            }
            Some(how) => return Err(format!("{name} with the memory's own '{how}'")),
        }
        self.leave(at.core, target, &result).map_err(|()| format!("{name} past the {MAX_BYTES} bytes of a run"))
    }

    fn leave(&mut self, core: u64, target: &Touch, result: &Data) -> Result<(), ()> {
        if !self.ready(core, target) {
            return Err(());
        }
        self.uses[target.owner.index()].written = true;
        self.memory.store(&self.places, self.program, core, target, result);
        Ok(())
    }

    /// What a statement combines index by index.
    fn points(&mut self, at: &Beginning<'_>, text: &str) -> Result<(), String> {
        let fail = |why: &str| format!("{}: {why}", at.operation.name);
        let points: Points = text.parse().map_err(|why: String| fail(&why))?;
        let numbers: Option<Vec<i64>> = at.numbers.iter().copied().collect();
        let numbers = numbers.ok_or_else(|| fail("an index of unknown value"))?;
        let bounds = Bounds::new(&points, &numbers).ok_or_else(|| fail("its indices are not all given"))?;
        let target = at.writes.first().ok_or_else(|| fail("no result"))?;
        let target = packed(target, bounds.elements(0));
        let unknown =
            |touch: &Touch| format!("{} of {} at a place that is not known", at.operation.name, touch.element);
        let mut operands = Vec::new();
        // A mean counts its terms and reads none.
        let terms = points.terms.iter().enumerate().filter(|_| points.how != How::Mean);
        for (term, (_, part)) in terms {
            let touch =
                part.operand.and_then(|operand| at.reads.get(operand)).ok_or_else(|| fail("no such operand"))?;
            let touch = packed(touch, bounds.elements(term + 1));
            operands.push(self.operand(at.core, &touch).ok_or_else(|| unknown(&touch))?.data);
        }
        let before = if points::goes_on(points.how) {
            Some(self.operand(at.core, &target).ok_or_else(|| unknown(&target))?.data)
        } else {
            None
        };
        if target.place == NOWHERE || !is_known(target.element) {
            return Err(unknown(&target));
        }
        let result = points::combine(&bounds, operands, before, target.element);
        let mut result = result.ok_or_else(|| fail("more than is computed"))?;
        for word in
            at.operation.attributes.get(THEN).map_or("", String::as_str).split(',').filter(|word| !word.is_empty())
        {
            result = compute::function(word, result).map_err(|NotComputed| fail(&format!("the function '{word}'")))?;
        }
        self.leave(at.core, &target, &result)
            .map_err(|()| format!("{} past the {MAX_BYTES} bytes of a run", at.operation.name))
    }

    /// `result += scalar * source`.
    fn axpy(&mut self, at: &Beginning<'_>, reads: &[Operand], scalars: &[Scalar]) -> Result<(), String> {
        let fail = || at.operation.name.clone();
        let (Some(Scalar::Real(factor)), [source, before]) = (scalars.first(), reads) else { return Err(fail()) };
        let target = &at.writes[0];
        let pairs = source.data.clone().real().into_iter().zip(before.data.clone().real());
        let list = pairs.map(|(x, y)| rounded(target.element, f64::from((y + factor * x) as f32)));
        self.leave(at.core, target, &Data::Real(list.collect())).map_err(|()| fail())
    }

    /// A tile into a larger one from (row, column) on.
    fn insert(&mut self, at: &Beginning<'_>, scalars: &[Scalar]) -> Result<(), String> {
        let fail = || at.operation.name.clone();
        let place = |index: usize| match scalars.get(index) {
            Some(Scalar::Int(value)) => usize::try_from(*value).ok(),
            _ => None,
        };
        let (Some(top), Some(left)) = (place(0), place(1)) else { return Err(fail()) };
        let whole = Touch { certain: true, ..at.writes[0] };
        let source = at.reads.first().and_then(|touch| self.operand(at.core, touch)).ok_or_else(fail)?;
        let mut all = self.operand(at.core, &whole).ok_or_else(fail)?;
        let from = source.data.real();
        let mut to = all.data.real();
        for row in 0..source.rows.min(all.rows.saturating_sub(top)) {
            for column in 0..source.columns.min(all.columns.saturating_sub(left)) {
                to[(top + row) * all.columns + left + column] = from[row * source.columns + column];
            }
        }
        all.data = Data::Real(to);
        self.leave(at.core, &whole, &all.data).map_err(|()| fail())
    }
}

/// A tile that is said by nothing but its start: so many elements, one after another.
fn packed(touch: &Touch, elements: u64) -> Touch {
    if touch.place == NOWHERE || touch.layout != Layout::RowMajor || !touch.extents().is_empty() {
        return *touch;
    }
    let bytes = elements.saturating_mul(touch.element.bits()).div_ceil(8);
    Touch {
        shape: [elements].into_iter().collect(),
        region: Region::flat(touch.slot_start, bytes),
        certain: true,
        ..*touch
    }
}

impl Sink for Values<'_> {
    fn wants_beginnings(&self) -> bool {
        true
    }

    fn block(&mut self, core: u64, _block: u64) {
        self.memory.clear(core);
    }

    fn begin(&mut self, at: &Beginning<'_>) {
        match self.run(at) {
            Ok(()) => self.computed += 1,
            Err(what) => self.skip(what),
        }
    }
}
