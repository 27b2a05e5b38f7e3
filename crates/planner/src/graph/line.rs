//! The line of steps: every operator in its order, bodies of control flow flattened into it.
//!
//! ```text
//!   step   0      1       2     3     4     5      6
//!          Conv   If>     then  then  else  >If    Relu
//!   x      [--------------------------------)              captured by else: live through it
//!   t                           [---)       [---)          then's output: not during else, again at the end
//!   e                                 [---------)          else's output
//!   y                                       [----------)   If's output
//! ```
//!
//! An operator without bodies is one step. One with bodies is a step that enters (it reads the operator's inputs),
//! the steps of its bodies one after another, and a step that leaves (it reads the bodies' outputs, writes its own).
//! A loop body is laid out once: what it carries, and what it captures, is live for the whole loop.

use super::error::GraphError;
use super::size::{Dims, Ranges, Size};
use npumem_ir::graph::{Graph, Operator, Shape, Tensor, TensorKind};
use npumem_ir::{Bytes, Interval, Step, StepRange, TensorId};

/// A value of the line: a tensor of the graph or of one of its bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub u32);

impl ValueId {
    /// The position in [`Line::values`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The steps of a graph and the values that flow between them.
#[derive(Debug)]
pub struct Line<'g> {
    /// The steps, in execution order.
    pub steps: Vec<LineStep<'g>>,
    /// The values: the graph's own tensors first, by [`TensorId`], then those of the bodies.
    pub values: Vec<Value<'g>>,
}

/// Which part of an operator a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// All of it.
    Whole,
    /// An operator with bodies starts.
    Enter,
    /// An operator with bodies ends.
    Leave,
}

/// One step.
#[derive(Debug)]
pub struct LineStep<'g> {
    /// The operator's name, with the names of the operators and bodies around it.
    pub name: String,
    /// The operator.
    pub operator: &'g Operator,
    /// Which part of it.
    pub phase: Phase,
    /// What it reads, by position; at [`Phase::Leave`] the outputs of all bodies.
    pub inputs: Vec<Option<ValueId>>,
    /// What it writes, by position; nothing at [`Phase::Enter`].
    pub outputs: Vec<Option<ValueId>>,
    /// Whether it runs once for each turn of a loop.
    pub repeats: bool,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The caller gives it.
    Input,
    /// The file carries it.
    Weight,
    /// Known before the run.
    Constant,
    /// Made by a step, or given to a body by the loop around it.
    Computed,
    /// Not in planned memory: sequences, optionals, strings.
    Outside,
}

/// A value.
#[derive(Debug)]
pub struct Value<'g> {
    /// Its tensor's name, with the names of the operators and bodies around it.
    pub name: String,
    /// Its tensor.
    pub tensor: &'g Tensor,
    /// Where it comes from.
    pub origin: Origin,
    /// Whether the caller gets it.
    pub is_output: bool,
    /// How many bytes it needs.
    pub size: Size,
    /// Its dimensions, where all are numbers.
    pub dims: Option<Vec<u64>>,
    /// The step that makes it.
    pub producer: Option<u32>,
    /// From the step that makes it to after its last use; holds whatever [`Value::hole`] takes out.
    pub span: StepRange,
    /// Steps within `span` that cannot run when this value is needed (the other branch of an `If`).
    pub hole: Option<StepRange>,
    /// Which body it is of; zero is the graph itself.
    pub scope: u32,
    /// Whether a body of a loop hands it from one turn to the next.
    pub carried: bool,
}

impl Value<'_> {
    /// When its bytes are needed: one range, or two around the hole.
    pub fn live(&self) -> impl Iterator<Item = StepRange> {
        let (first, second) = match self.hole {
            None => (self.span, Interval { start: self.span.end, end: self.span.end }),
            Some(hole) => {
                (Interval { start: self.span.start, end: hole.start }, Interval { start: hole.end, end: self.span.end })
            }
        };
        [first, second].into_iter().filter(|range| !range.is_empty())
    }
}

impl<'g> Line<'g> {
    /// Lays a graph out in steps.
    ///
    /// # Errors
    /// Ids past the graph's tensors, an order that is none, sizes past 64 bits, a reversed range.
    pub fn new(graph: &'g Graph, dims: &Dims) -> Result<Line<'g>, GraphError> {
        let mut builder = Builder { line: Line { steps: Vec::new(), values: Vec::new() }, scopes: 0 };
        builder.lay_out(graph, dims)?;
        let Builder { mut line, .. } = builder;
        line.settle(graph);
        Ok(line)
    }

    /// The value of that id.
    #[must_use]
    pub fn value(&self, id: ValueId) -> &Value<'g> {
        &self.values[id.index()]
    }

    /// Every value with its id.
    pub fn values(&self) -> impl Iterator<Item = (ValueId, &Value<'g>)> {
        self.values.iter().enumerate().map(|(index, value)| (ValueId(index as u32), value))
    }

    /// All steps.
    #[must_use]
    pub fn all(&self) -> StepRange {
        StepRange::steps(0, self.steps.len().max(1) as u64)
    }

    /// Spans of what the line alone decides: graph outputs and what is there from the start.
    fn settle(&mut self, graph: &Graph) {
        let all = self.all();
        for id in &graph.outputs {
            let value = &mut self.values[id.index()];
            value.is_output = true;
            value.span.end = all.end;
            value.hole = None;
        }
        for value in &mut self.values {
            if matches!(value.origin, Origin::Input | Origin::Weight | Origin::Constant) {
                (value.span, value.hole) = (all, None);
            }
        }
    }
}

/// A graph that is being laid out: the whole one, or a body.
struct Frame<'g> {
    graph: &'g Graph,
    /// The value of each tensor.
    values: Vec<ValueId>,
    next: usize,
    path: String,
    scope: u32,
    repeats: bool,
    /// The operator whose bodies are being laid out, while they are.
    open: Option<Open<'g>>,
}

/// An operator with bodies, half laid out.
struct Open<'g> {
    operator: &'g Operator,
    enter: u32,
    next_body: usize,
    /// What the bodies laid out so far give: value, and the step after the body.
    given: Vec<(ValueId, u32)>,
    /// What the bodies capture.
    captured: Vec<ValueId>,
    /// What the loop hands to its body.
    carried: Vec<ValueId>,
}

struct Builder<'g> {
    line: Line<'g>,
    scopes: u32,
}

/// Whether an operator runs its body more than once.
fn is_loop(operator: &Operator) -> bool {
    operator.kind != "If"
}

impl<'g> Builder<'g> {
    fn lay_out(&mut self, graph: &'g Graph, dims: &Dims) -> Result<(), GraphError> {
        let root = self.frame(graph, dims, None, String::new(), false)?;
        let mut stack = vec![root];
        while let Some(frame) = stack.last_mut() {
            if let Some(open) = &mut frame.open {
                if let Some(body) = open.operator.bodies.get(open.next_body) {
                    let path = format!("{}{}/{}/", frame.path, open.operator.name, body.name);
                    let repeats = frame.repeats || is_loop(open.operator);
                    let inner = self.frame(&body.graph, dims, Some(&frame.values), path, repeats)?;
                    let Some(open) = &mut frame.open else { continue };
                    self.enter_body(open, &inner);
                    stack.push(inner);
                    continue;
                }
                self.leave(frame)?;
                continue;
            }
            if let Some(operator) = frame.graph.operators.get(frame.next) {
                frame.next += 1;
                self.operator(frame, operator)?;
                continue;
            }
            let Some(done) = stack.pop() else { break };
            match stack.last_mut().and_then(|outer| outer.open.as_mut()) {
                Some(open) => self.finish_body(open, &done)?,
                None => {
                    let last = (self.line.steps.len() as u32).saturating_sub(1);
                    for id in &graph.outputs {
                        self.read(done.values[id.index()], last, "the graph's outputs")?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives every tensor of a graph its value.
    fn frame(
        &mut self,
        graph: &'g Graph,
        dims: &Dims,
        outer: Option<&[ValueId]>,
        path: String,
        repeats: bool,
    ) -> Result<Frame<'g>, GraphError> {
        let ranges = Ranges::new(graph, dims)?;
        let scope = self.scopes;
        self.scopes += 1;
        let mut values = Vec::with_capacity(graph.tensors.len());
        for tensor in &graph.tensors {
            let origin = match tensor.kind {
                TensorKind::Captured(id) => {
                    let captured = outer.and_then(|outer| outer.get(id.index())).copied();
                    values.push(captured.ok_or_else(|| GraphError::UnknownTensor {
                        user: format!("captured tensor '{path}{}'", tensor.name),
                        id,
                        tensors: outer.map_or(0, <[ValueId]>::len),
                    })?);
                    continue;
                }
                TensorKind::Weight => Origin::Weight,
                TensorKind::Constant => Origin::Constant,
                TensorKind::Input if outer.is_none() => Origin::Input,
                TensorKind::Input | TensorKind::Computed => Origin::Computed,
            };
            let opaque = tensor.shape == Shape::Opaque || tensor.element.bits() == 0;
            let size = if opaque { Size::Fixed(Bytes::ZERO) } else { ranges.size(tensor)? };
            values.push(ValueId(self.line.values.len() as u32));
            self.line.values.push(Value {
                name: format!("{path}{}", tensor.name),
                tensor,
                origin: if opaque { Origin::Outside } else { origin },
                is_output: false,
                size,
                dims: ranges.dims(tensor),
                producer: None,
                span: StepRange::steps(0, 0),
                hole: None,
                scope,
                carried: false,
            });
        }
        let unknown = |id: TensorId| GraphError::UnknownTensor {
            user: if path.is_empty() { "the graph".to_owned() } else { format!("body '{path}'") },
            id,
            tensors: graph.tensors.len(),
        };
        for id in graph.inputs.iter().chain(&graph.outputs) {
            values.get(id.index()).ok_or_else(|| unknown(*id))?;
        }
        Ok(Frame { graph, values, next: 0, path, scope, repeats, open: None })
    }

    fn operator(&mut self, frame: &mut Frame<'g>, operator: &'g Operator) -> Result<(), GraphError> {
        let at = self.line.steps.len() as u32;
        let inputs = resolve(frame, operator, &operator.inputs)?;
        for value in inputs.iter().flatten() {
            self.read(*value, at, &operator.name)?;
        }
        let outputs = resolve(frame, operator, &operator.outputs)?;
        let (phase, written) =
            if operator.bodies.is_empty() { (Phase::Whole, outputs) } else { (Phase::Enter, vec![]) };
        for value in written.iter().flatten() {
            self.make(*value, at, at, &operator.name)?;
        }
        self.line.steps.push(LineStep {
            name: format!("{}{}", frame.path, operator.name),
            operator,
            phase,
            inputs,
            outputs: written,
            repeats: frame.repeats,
        });
        if phase == Phase::Enter {
            let (given, captured, carried) = (Vec::new(), Vec::new(), Vec::new());
            frame.open = Some(Open { operator, enter: at, next_body: 0, given, captured, carried });
        }
        Ok(())
    }

    /// A body's inputs are there from the step that enters.
    fn enter_body(&mut self, open: &mut Open<'g>, body: &Frame<'g>) {
        open.next_body += 1;
        for id in &body.graph.inputs {
            let id = body.values[id.index()];
            let value = &mut self.line.values[id.index()];
            if value.scope == body.scope && value.origin == Origin::Computed {
                value.producer = Some(open.enter);
                value.carried = true;
                value.span = StepRange::steps(u64::from(open.enter), u64::from(open.enter) + 1);
                open.carried.push(id);
            }
        }
        for (tensor, value) in body.graph.tensors.iter().zip(&body.values) {
            if matches!(tensor.kind, TensorKind::Captured(_)) {
                open.captured.push(*value);
            }
        }
    }

    fn finish_body(&mut self, open: &mut Open<'g>, body: &Frame<'g>) -> Result<(), GraphError> {
        let end = self.line.steps.len() as u32;
        for id in &body.graph.outputs {
            let value = body.values[id.index()];
            self.read(value, end.saturating_sub(1), &open.operator.name)?;
            open.given.push((value, end));
        }
        Ok(())
    }

    /// The bodies are laid out: the step that hands their outputs on.
    fn leave(&mut self, frame: &mut Frame<'g>) -> Result<(), GraphError> {
        let Some(open) = frame.open.take() else { return Ok(()) };
        let at = self.line.steps.len() as u32;
        let repeats = is_loop(open.operator);
        let kept = if repeats { [open.captured, open.carried].concat() } else { Vec::new() };
        for value in kept {
            let value = &mut self.line.values[value.index()];
            value.span.end = value.span.end.max(Step(u64::from(at) + 1));
        }
        for (id, body_end) in &open.given {
            let value = &mut self.line.values[id.index()];
            // A value of an earlier branch is not needed while a later one runs: only one of them does.
            let own = value.scope > frame.scope && value.origin == Origin::Computed;
            if own && !repeats && *body_end < at && value.span.end <= Step(u64::from(*body_end)) {
                value.hole = Some(StepRange::steps(u64::from(*body_end), u64::from(at)));
            }
            value.span.end = value.span.end.max(Step(u64::from(at) + 1));
        }
        let outputs = resolve(frame, open.operator, &open.operator.outputs)?;
        // What a loop gathers grows from its first turn on.
        let from = if repeats { open.enter } else { at };
        for value in outputs.iter().flatten() {
            self.make(*value, from, at, &open.operator.name)?;
        }
        self.line.steps.push(LineStep {
            name: format!("{}{}", frame.path, open.operator.name),
            operator: open.operator,
            phase: Phase::Leave,
            inputs: open.given.iter().map(|(value, _)| Some(*value)).collect(),
            outputs,
            repeats: frame.repeats,
        });
        Ok(())
    }

    fn read(&mut self, id: ValueId, at: u32, operator: &str) -> Result<(), GraphError> {
        let value = &mut self.line.values[id.index()];
        if value.origin == Origin::Computed && value.producer.is_none() {
            return Err(GraphError::UsedBeforeMade { operator: operator.to_owned(), tensor: value.name.clone() });
        }
        value.span.end = value.span.end.max(Step(u64::from(at) + 1));
        Ok(())
    }

    /// `from`: when its bytes must be there; `at`: the step that completes it.
    fn make(&mut self, id: ValueId, from: u32, at: u32, operator: &str) -> Result<(), GraphError> {
        let value = &mut self.line.values[id.index()];
        match value.origin {
            // A folded constant keeps its operator; nothing is to be made.
            Origin::Constant | Origin::Weight | Origin::Outside => {
                value.producer = value.producer.or(Some(at));
                value.span.end = value.span.end.max(Step(u64::from(at) + 1));
                return Ok(());
            }
            Origin::Computed if value.producer.is_none() => {}
            Origin::Computed | Origin::Input => {
                return Err(GraphError::MadeTwice { operator: operator.to_owned(), tensor: value.name.clone() });
            }
        }
        value.producer = Some(at);
        value.span = StepRange::steps(u64::from(from), u64::from(at) + 1);
        Ok(())
    }
}

fn resolve(
    frame: &Frame<'_>,
    operator: &Operator,
    ids: &[Option<TensorId>],
) -> Result<Vec<Option<ValueId>>, GraphError> {
    ids.iter()
        .map(|id| {
            let Some(id) = id else { return Ok(None) };
            let value = frame.values.get(id.index()).copied();
            value.map(Some).ok_or_else(|| GraphError::UnknownTensor {
                user: format!("operator '{}'", operator.name),
                id: *id,
                tensors: frame.values.len(),
            })
        })
        .collect()
}
