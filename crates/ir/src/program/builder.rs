//! Building a program step by step.

use super::{
    Access, Affine, Assign, Buffer, Compute, Handle, Op, Operation, Program, ProgramError, Root, Scalar, ScalarKind,
    Step, Sync, evaluate::apply,
};
use crate::{BufferId, HandleId, ScalarId, StepId};
use std::collections::BTreeMap;

/// Builds a [`Program`]; [`ProgramBuilder::finish`] checks its rules.
///
/// ```
/// use npumem_ir::program::{Access, Affine, Buffer, Operation, ProgramBuilder, Root};
/// let mut b = ProgramBuilder::new("scale");
/// let tile = b.buffer(Buffer { slots: 2, ..Buffer::tile("tile", "UB", 1024) });
/// let i = b.begin_for("i", 0, 8, 1);
/// let access = Access::bytes(Root::Buffer(tile), Affine::constant(0), 1024).in_slot(i.into());
/// b.run(Operation { writes: vec![access], ..Operation::new("load", "mte2") });
/// b.end();
/// assert_eq!(b.finish().unwrap().steps.len(), 3);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ProgramBuilder {
    program: Program,
    /// Equal computations share one scalar, so that one condition tested twice is one value.
    shared: BTreeMap<Compute, ScalarId>,
}

impl ProgramBuilder {
    /// An empty program.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        ProgramBuilder { program: Program { name: name.into(), ..Program::default() }, shared: BTreeMap::new() }
    }

    /// What was built so far.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What was built so far, to change.
    pub fn program_mut(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Adds a buffer.
    pub fn buffer(&mut self, buffer: Buffer) -> BufferId {
        self.program.buffers.push(buffer);
        BufferId::new(self.program.buffers.len() - 1)
    }

    /// Adds a handle.
    pub fn handle(&mut self, name: impl Into<String>) -> HandleId {
        self.program.handles.push(Handle { name: name.into() });
        HandleId::new(self.program.handles.len() - 1)
    }

    /// Adds a scalar of any kind.
    pub fn scalar(&mut self, name: impl Into<String>, kind: ScalarKind) -> ScalarId {
        self.program.scalars.push(Scalar { name: name.into(), kind });
        ScalarId::new(self.program.scalars.len() - 1)
    }

    /// Adds an argument, bound or not.
    pub fn argument(&mut self, name: impl Into<String>, value: Option<i64>) -> ScalarId {
        self.scalar(name, ScalarKind::Argument(value))
    }

    /// Adds a variable.
    pub fn variable(&mut self, name: impl Into<String>) -> ScalarId {
        self.scalar(name, ScalarKind::Variable)
    }

    /// A computed scalar; the same one when the same was asked for before.
    pub fn computed(&mut self, op: Op, operands: Vec<Affine>) -> ScalarId {
        let compute = Compute { op, operands };
        if op != Op::Opaque
            && let Some(known) = self.shared.get(&compute)
        {
            return *known;
        }
        let id = self.scalar(format!("v{}", self.program.scalars.len()), ScalarKind::Computed(compute.clone()));
        self.shared.insert(compute, id);
        id
    }

    /// The value of an operation: a number or a sum where that is enough, else a computed scalar.
    pub fn value(&mut self, op: Op, operands: Vec<Affine>) -> Affine {
        let constants: Vec<Option<i64>> = operands.iter().map(Affine::as_constant).collect();
        if let Some(number) = apply(op, &constants) {
            return Affine::constant(number);
        }
        match (op, operands.as_slice(), constants.as_slice()) {
            (Op::Mul, [a, _], [_, Some(factor)]) => a.times(*factor),
            (Op::Mul, [_, b], [Some(factor), _]) => b.times(*factor),
            (Op::Div | Op::DivToZero, [a, _], [_, Some(1)]) => a.clone(),
            (Op::Rem | Op::RemToZero, [_, _], [_, Some(1)]) => Affine::constant(0),
            (Op::Select, [_, then, _], [Some(c), ..]) if *c != 0 => then.clone(),
            (Op::Select, [_, _, otherwise], [Some(0), ..]) => otherwise.clone(),
            _ => Affine::scalar(self.computed(op, operands)),
        }
    }

    /// Adds a step.
    pub fn step(&mut self, step: Step) -> StepId {
        self.program.steps.push(step);
        StepId::new(self.program.steps.len() - 1)
    }

    /// Adds a statement.
    pub fn run(&mut self, operation: Operation) -> StepId {
        self.step(Step::Run(operation))
    }

    /// Adds a statement that reads and writes whole slots 0 of buffers.
    pub fn simple(&mut self, name: &str, engine: &str, reads: &[BufferId], writes: &[BufferId]) -> StepId {
        let whole = |id: &BufferId| Access::whole(Root::Buffer(*id), self.program.buffer(*id).element);
        let (reads, writes) = (reads.iter().map(whole).collect(), writes.iter().map(whole).collect());
        self.run(Operation { reads, writes, ..Operation::new(name, engine) })
    }

    /// Adds an order between engines.
    pub fn sync(&mut self, sync: Sync) -> StepId {
        self.step(Step::Sync(sync))
    }

    /// Sets one variable.
    pub fn assign(&mut self, target: ScalarId, value: impl Into<Affine>) -> StepId {
        self.step(Step::Assign(Assign { scalars: vec![(target, value.into())], handles: Vec::new() }))
    }

    /// Opens a counted region.
    pub fn begin_for(
        &mut self,
        name: impl Into<String>,
        start: impl Into<Affine>,
        stop: impl Into<Affine>,
        step: impl Into<Affine>,
    ) -> ScalarId {
        let counter = self.scalar(name, ScalarKind::Counter);
        self.step(Step::For { counter, start: start.into(), stop: stop.into(), step: step.into() });
        counter
    }

    /// Opens a region that runs when the value is not 0.
    pub fn begin_if(&mut self, condition: impl Into<Affine>) -> StepId {
        self.step(Step::If(condition.into()))
    }

    /// Starts the other branch.
    pub fn otherwise(&mut self) -> StepId {
        self.step(Step::Else)
    }

    /// Closes the innermost region.
    pub fn end(&mut self) -> StepId {
        self.step(Step::End)
    }

    /// The program, once its rules hold.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn finish(self) -> Result<Program, ProgramError> {
        self.program.structure()?;
        Ok(self.program)
    }
}
