//! `scf`: loops and branches with carried values.

use super::Lowering;
use super::memory::handle_memory;
use crate::pto::PtoError;
use crate::pto::parse::{RawOp, Typed};
use crate::pto::scope::{Memory, Value};
use crate::pto::types::Type;
use npumem_ir::program::{Affine, Assign, Core, ScalarKind, Step};
use npumem_ir::{HandleId, ScalarId};

/// A value that crosses a region's edge.
#[derive(Clone, Debug)]
pub(super) enum Carried {
    Scalar(ScalarId),
    Handle(HandleId, Box<Memory>),
    /// A float, an event: what the program does not need.
    Same(Value),
}

impl Carried {
    fn value(&self) -> Value {
        match self {
            Carried::Scalar(id) => Value::Int(Affine::scalar(*id)),
            Carried::Handle(_, memory) => Value::Memory(memory.clone()),
            Carried::Same(value) => value.clone(),
        }
    }
}

/// How the region of an operation with results ends: every one must give them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    /// First byte of the operation.
    at: usize,
    /// The region being walked has given its values.
    yielded: bool,
    /// An `else` was met.
    otherwise: bool,
}

impl Ends {
    fn of(op: &RawOp<'_>) -> Self {
        Ends { at: op.start, yielded: false, otherwise: false }
    }
}

/// A region being walked.
#[derive(Debug)]
pub(super) enum Region<'s> {
    For {
        counter: ScalarId,
        carried: Vec<Carried>,
        results: Vec<(&'s str, usize)>,
        ends: Ends,
    },
    If {
        carried: Vec<Carried>,
        results: Vec<(&'s str, usize)>,
        ends: Ends,
    },
    /// The condition part: initial values, and the ones that leave.
    Before {
        carried: Vec<Carried>,
        leaving: Vec<Carried>,
        results: Vec<(&'s str, usize)>,
    },
    After {
        carried: Vec<Carried>,
        leaving: Vec<Carried>,
        results: Vec<(&'s str, usize)>,
    },
    /// `pto.section`: the core kind to go back to.
    Section(Core),
    /// A region of an operation that is not known: it runs or not, any number of times.
    Unknown,
}

impl<'s> Lowering<'s, '_> {
    pub(super) fn control(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        match op.name {
            "scf.for" => self.begin_for(op),
            "scf.if" => self.begin_if(op),
            "scf.while" => self.begin_while(op),
            "scf.yield" => self.give(op),
            "scf.condition" => self.condition(op),
            _ => {
                self.unknown.push((op.start, op.name));
                let condition = self.opaque();
                self.step(Step::Loop);
                self.step(Step::Leave(condition));
                self.frame().regions.push(Region::Unknown);
                self.frame().scope.enter();
                Ok(())
            }
        }
    }

    /// A variable or handle that starts with this value.
    fn carry(&mut self, name: &str, value: Value, assign: &mut Assign) -> Carried {
        match value {
            Value::Int(affine) => {
                let name = self.scalar_name(name);
                let id = self.builder.scalar(name, ScalarKind::Variable);
                assign.scalars.push((id, affine));
                Carried::Scalar(id)
            }
            Value::Memory(memory) => {
                let name = self.handle_name(name);
                let id = self.builder.handle(name);
                assign.handles.push((id, memory.root, memory.start.clone()));
                Carried::Handle(id, Box::new(handle_memory(id, &memory)))
            }
            other => Carried::Same(other),
        }
    }

    fn begin_for(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let header: Vec<(&str, usize)> = op.values();
        let [(counter, _), (start, start_at), (stop, stop_at), (by, by_at)] = header.as_slice() else {
            return Err(self.error(op.start, "expected '%i = %start to %stop step %step'"));
        };
        let (start, stop, by) = (self.int(start, *start_at)?, self.int(stop, *stop_at)?, self.int(by, *by_at)?);
        if by.as_constant().is_some_and(|by| by <= 0) {
            return Err(self.error(*by_at, "the step of a loop must be positive"));
        }
        let mut carried = Vec::new();
        let mut assign = Assign::default();
        let mut names = Vec::new();
        if let Some((items, _)) = op.group("iter_args") {
            for item in items {
                let value = self.get(item.text, item.at)?;
                let name = item.key.unwrap_or("%carried");
                names.push(name);
                let one = self.carry(name, value, &mut assign);
                carried.push(one);
            }
        }
        self.emit_assign(assign);
        let counter_name = self.scalar_name(counter);
        let from_zero = self.never_negative(&start);
        let id = self.builder.begin_for(counter_name, start, stop, by);
        if from_zero {
            self.counters_from_zero.insert(id);
        }
        self.frame().scope.enter();
        self.set(counter, Value::Int(Affine::scalar(id)));
        for (name, one) in names.iter().zip(&carried) {
            self.set(name, one.value());
        }
        self.frame().regions.push(Region::For {
            counter: id,
            carried,
            results: op.results.clone(),
            ends: Ends::of(op),
        });
        Ok(())
    }

    fn begin_if(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let values = op.values();
        let Some((condition, at)) = values.first() else {
            return Err(self.error(op.start, "scf.if needs a condition"));
        };
        let condition = self.int(condition, *at)?;
        let mut carried = Vec::new();
        let names: Vec<String> = op
            .results
            .iter()
            .flat_map(|(name, count)| (0..*count).map(move |index| format!("{name}.{index}")))
            .collect();
        for (index, text) in op.arrow().iter().enumerate() {
            let name = names.get(index).map_or("result", String::as_str);
            let one = match self.ty(text, op.start)? {
                Type::Int => {
                    let name = self.scalar_name(name);
                    Carried::Scalar(self.builder.variable(name))
                }
                Type::Real => Carried::Same(Value::NamedReal(name.to_owned())),
                Type::Other => Carried::Same(Value::Other),
                ty => {
                    let name = self.handle_name(name);
                    let id = self.builder.handle(name);
                    Carried::Handle(id, Box::new(super::memory::typed_memory(id, &ty)))
                }
            };
            carried.push(one);
        }
        self.builder.begin_if(condition);
        self.frame().scope.enter();
        self.frame().regions.push(Region::If { carried, results: op.results.clone(), ends: Ends::of(op) });
        Ok(())
    }

    /// `arith.select %c, %a, %b` of memory: a handle that names one of two, as an `scf.if` would give it.
    pub(super) fn select_memory(&mut self, op: &RawOp<'s>) -> Result<Option<Value>, PtoError> {
        let values = op.values();
        let [(condition, at), (first, first_at), (second, second_at)] = values.as_slice() else { return Ok(None) };
        let (Value::Memory(first), second) = (self.get(first, *first_at)?, self.get(second, *second_at)?) else {
            return Ok(None);
        };
        let condition = self.int(condition, *at)?;
        let name = op.results.first().map_or("%chosen", |(name, _)| *name);
        let mut assign = Assign::default();
        let carried = self.carry(name, second, &mut assign);
        self.emit_assign(assign);
        if let Carried::Handle(id, _) = &carried {
            self.builder.begin_if(condition);
            let handles = vec![(*id, first.root, first.start.clone())];
            self.emit_assign(Assign { handles, ..Assign::default() });
            self.step(Step::End);
        }
        Ok(Some(carried.value()))
    }

    fn begin_while(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let mut carried = Vec::new();
        let mut names = Vec::new();
        let mut assign = Assign::default();
        if let Some((items, _)) = op.group("") {
            for item in items {
                let value = self.get(item.text, item.at)?;
                let name = item.key.unwrap_or("%carried");
                names.push(name);
                let one = self.carry(name, value, &mut assign);
                carried.push(one);
            }
        }
        self.emit_assign(assign);
        self.step(Step::Loop);
        let note = format!(
            "line {}: a 'while' loop has no bound in the source; every number of turns is considered",
            self.line(op.start)
        );
        self.notes.push(note);
        self.frame().scope.enter();
        for (name, one) in names.iter().zip(&carried) {
            self.set(name, one.value());
        }
        self.frame().regions.push(Region::Before { carried, leaving: Vec::new(), results: op.results.clone() });
        Ok(())
    }

    /// `scf.condition(%c) %a, %b`: the values leave, or enter the body.
    fn condition(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let Some((items, _)) = op.group("") else {
            return Err(self.error(op.start, "expected 'scf.condition(%value)'"));
        };
        let Some(first) = items.first() else { return Err(self.error(op.start, "scf.condition needs a value")) };
        let condition = self.int(first.text, first.at)?;
        let mut leaving = Vec::new();
        let mut assign = Assign::default();
        for (name, at) in op.values() {
            let value = self.get(name, at)?;
            let one = self.carry(&format!("{name}.out"), value, &mut assign);
            leaving.push(one);
        }
        self.emit_assign(assign);
        match self.frame().regions.last_mut() {
            Some(Region::Before { leaving: place, .. }) => *place = leaving,
            _ => return Err(self.error(op.start, "scf.condition outside of the first part of scf.while")),
        }
        self.step(Step::Leave(condition));
        Ok(())
    }

    /// `scf.yield`: the carried values of the region get these.
    fn give(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let carried = match self.frame().regions.last() {
            Some(Region::For { carried, .. } | Region::If { carried, .. } | Region::After { carried, .. }) => {
                carried.clone()
            }
            _ => Vec::new(),
        };
        let values = op.values();
        if values.len() != carried.len() {
            let problem = format!("the region carries {} values, {} are yielded", carried.len(), values.len());
            return Err(self.error(op.start, problem));
        }
        let mut assign = Assign::default();
        for ((name, at), target) in values.into_iter().zip(&carried) {
            let value = self.get(name, at)?;
            match (target, value) {
                (Carried::Scalar(id), Value::Int(affine)) => assign.scalars.push((*id, affine)),
                (Carried::Scalar(id), _) => {
                    let unknown = self.opaque();
                    assign.scalars.push((*id, unknown));
                }
                (Carried::Handle(id, _), Value::Memory(memory)) => {
                    assign.handles.push((*id, memory.root, memory.start.clone()));
                }
                _ => {}
            }
        }
        self.emit_assign(assign);
        if let Some(Region::For { ends, .. } | Region::If { ends, .. }) = self.frame().regions.last_mut() {
            ends.yielded = true;
        }
        Ok(())
    }

    /// A region of an operation that carries values must have given them.
    fn gives_all(&self, carried: &[Carried], ends: Ends, whole: bool) -> Result<(), PtoError> {
        if carried.is_empty() {
            return Ok(());
        }
        let count = carried.len();
        if !ends.yielded {
            let region = if ends.otherwise { "the 'else' region" } else { "the region" };
            let problem = format!("{region} of this operation must end with an scf.yield of {count} values");
            return Err(self.error(ends.at, problem));
        }
        if !whole {
            let problem = format!("an scf.if with {count} results needs an 'else' region that yields them");
            return Err(self.error(ends.at, problem));
        }
        Ok(())
    }

    pub(super) fn emit_assign(&mut self, assign: Assign) {
        if !(assign.scalars.is_empty() && assign.handles.is_empty()) {
            self.step(Step::Assign(assign));
        }
    }

    /// `else`, `do`.
    pub(super) fn next_region(&mut self, word: &str) -> Result<(), PtoError> {
        match (word, self.frame().regions.pop()) {
            ("else", Some(Region::If { carried, results, ends })) => {
                self.gives_all(&carried, ends, true)?;
                self.step(Step::Else);
                let ends = Ends { yielded: false, otherwise: true, ..ends };
                self.frame().regions.push(Region::If { carried, results, ends });
            }
            ("do", Some(Region::Before { carried, leaving, results })) => {
                self.frame().regions.push(Region::After { carried, leaving, results });
            }
            _ => {
                let at = self.functions[self.frames.last().map_or(0, |f| f.function)].at;
                return Err(self.error(at, format!("'{word}' follows no operation that has such a region")));
            }
        }
        self.frame().scope.leave();
        self.frame().scope.enter();
        Ok(())
    }

    /// `^bb0(%a: index)`: only the body of a `while` has arguments.
    pub(super) fn label(&mut self, arguments: &[Typed<'s>]) -> Result<(), PtoError> {
        let leaving = match self.frame().regions.last() {
            Some(Region::After { leaving, .. }) => leaving.clone(),
            Some(Region::Before { carried, .. }) => carried.clone(),
            _ => Vec::new(),
        };
        if leaving.len() != arguments.len() {
            let at = arguments.first().map_or(0, |a| a.at);
            let problem = format!("{} block arguments where {} values arrive", arguments.len(), leaving.len());
            return Err(self.error(at, problem));
        }
        for (argument, one) in arguments.iter().zip(&leaving) {
            self.set(argument.value, one.value());
        }
        Ok(())
    }

    /// `}`.
    pub(super) fn close_region(&mut self, item: usize) -> Result<(), PtoError> {
        // `else` and `do` continue a region: nothing of it is closed yet.
        if matches!(self.items.get(item + 1), Some(crate::pto::parse::Item::Next(_))) {
            return Ok(());
        }
        let Some(region) = self.frame().regions.pop() else {
            let at = self.functions[self.frames.last().map_or(0, |f| f.function)].at;
            return Err(self.error(at, "a region ends that was never begun"));
        };
        self.frame().scope.leave();
        match region {
            Region::Section(core) => self.frame().core = core,
            Region::Unknown => self.step(Step::End),
            Region::For { carried, results, ends, .. } => {
                self.gives_all(&carried, ends, true)?;
                self.step(Step::End);
                self.set_results(&results, carried.iter().map(Carried::value).collect());
            }
            Region::If { carried, results, ends } => {
                self.gives_all(&carried, ends, ends.otherwise)?;
                self.step(Step::End);
                self.set_results(&results, carried.iter().map(Carried::value).collect());
            }
            Region::After { leaving, results, .. } => {
                self.step(Step::End);
                self.set_results(&results, leaving.iter().map(Carried::value).collect());
            }
            Region::Before { .. } => {
                let at = self.functions[self.frames.last().map_or(0, |f| f.function)].at;
                return Err(self.error(at, "an scf.while lacks its 'do' region"));
            }
        }
        Ok(())
    }
}
