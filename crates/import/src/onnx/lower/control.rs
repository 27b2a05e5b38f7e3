//! Control flow: bodies, what they capture, and the shapes that come out of them.

use super::{Fact, ImportError, Lower, Scope, ScopeId, Use};
use crate::ErrorKind;
use crate::onnx::infer::sequence::either;
use crate::onnx::proto::Graph as Proto;
use npumem_ir::graph::{Body, TensorKind};
use npumem_ir::{Dim, ElementType, Graph, Shape};

/// A loop's body is read again when what it hands on has another shape than what it took, so many times at most.
const ROUNDS: usize = 3;

impl<'m> Lower<'m> {
    fn body_of(&self, call: &Use<'m>, name: &str) -> Result<&'m Proto, ImportError> {
        let found = call.attributes.iter().find(|(known, _)| *known == name);
        found.and_then(|(_, attribute)| attribute.g.as_ref()).ok_or_else(|| {
            ImportError::new(ErrorKind::Missing, call.label.clone())
                .found(format!("no body in attribute '{name}'"))
                .expected("a graph")
        })
    }

    fn inner_scope(&mut self, call: &Use<'m>, frame: usize) -> ScopeId {
        let outer = &self.scopes[call.scope];
        let (versions, prefix) = (outer.versions, outer.prefix.clone());
        self.push_scope(Scope { parent: Some(call.scope), frame, versions, prefix, ..Scope::default() })
    }

    /// Reads a body as a graph of its own; its inputs are `inputs`, joined with what the file says of them.
    fn body(&mut self, call: &Use<'m>, body: &'m Proto, inputs: &[Fact]) -> Result<(Graph, Vec<Fact>), ImportError> {
        self.enter(&call.label)?;
        let frame = self.frames.len();
        self.frames.push(super::Frame::default());
        let scope = self.inner_scope(call, frame);
        self.declare(scope, body);
        self.weights(scope, body)?;
        let takes = body.input.iter().filter(|input| !self.scopes[scope].names.contains_key(input.name.as_str()));
        let takes: Vec<&'m str> = takes.map(|input| input.name.as_str()).collect();
        if takes.len() != inputs.len() {
            return Err(ImportError::new(ErrorKind::Inconsistent, call.label.clone())
                .found(format!("a body of {} inputs, given {}", takes.len(), inputs.len()))
                .expected("as many as it is given"));
        }
        for (name, fact) in takes.into_iter().zip(inputs) {
            let slot = self.start_value(scope, name, fact.clone(), TensorKind::Input)?;
            let id = self.tensor_in(frame, slot);
            self.frames[frame].graph.inputs.push(id);
        }
        self.nodes(scope, &body.node)?;
        let facts = self.graph_outputs(scope, body)?;
        let mut graph = self.frames.pop().map(|frame| frame.graph).unwrap_or_default();
        graph.name.clone_from(&body.name);
        self.depth -= 1;
        Ok((graph, facts))
    }

    pub(super) fn if_else(&mut self, call: &Use<'m>) -> Result<(), ImportError> {
        let (then_body, else_body) = (self.body_of(call, "then_branch")?, self.body_of(call, "else_branch")?);
        let condition = call.inputs.first().copied().flatten();
        let known = condition.and_then(|slot| self.slots[slot].fact.ints()).and_then(|value| value.first().copied());
        if let Some(known) = known {
            return self.in_place(call, if known != 0 { then_body } else { else_body });
        }
        let (then_side, else_side) = (self.branch(call, then_body)?, self.branch(call, else_body)?);
        let ((then_graph, then_facts), (else_graph, else_facts)) = match (then_side, else_side) {
            (Ok(then_side), Ok(else_side)) => (then_side, else_side),
            (Err(error), Err(_)) => return Err(error),
            (Ok(_), Err(error)) => return self.only_branch(call, then_body, "then", "else", &error),
            (Err(error), Ok(_)) => return self.only_branch(call, else_body, "else", "then", &error),
        };
        if then_facts.len() != else_facts.len() || then_facts.len() < call.node.output.len() {
            return Err(ImportError::new(ErrorKind::Inconsistent, call.label.clone())
                .found(format!(
                    "branches of {} and {} outputs for {}",
                    then_facts.len(),
                    else_facts.len(),
                    call.node.output.len()
                ))
                .expected("as many in each branch as the node has"));
        }
        let mut facts = Vec::with_capacity(then_facts.len());
        for ((a, b), name) in then_facts.iter().zip(&else_facts).zip(&call.node.output) {
            facts.push(either(&mut self.symbols, name, a, b, true));
        }
        let bodies = vec![
            Body { name: "then_branch".into(), graph: then_graph },
            Body { name: "else_branch".into(), graph: else_graph },
        ];
        let facts = self.settle(call, facts, None, true)?;
        self.keep(call, facts, bodies)
    }

    /// Reads a branch; the inner error is that of an operator that cannot take the shapes it is given.
    #[allow(clippy::type_complexity)]
    fn branch(
        &mut self,
        call: &Use<'m>,
        body: &'m Proto,
    ) -> Result<Result<(Graph, Vec<Fact>), ImportError>, ImportError> {
        let (frames, depth, folded) = (self.frames.len(), self.depth, self.folded);
        let (needs, notes) = (self.needs.len(), self.notes.len());
        match self.body(call, body, &[]) {
            Ok(side) => Ok(Ok(side)),
            Err(error) if self.misfit => {
                self.misfit = false;
                self.frames.truncate(frames);
                self.depth = depth;
                self.folded = folded;
                self.needs.truncate(needs);
                self.notes.truncate(notes);
                Ok(Err(error))
            }
            Err(error) => Err(error),
        }
    }

    /// The other branch cannot run with these lengths (a model for two sample rates, say): this one is taken.
    fn only_branch(
        &mut self,
        call: &Use<'m>,
        body: &'m Proto,
        taken: &str,
        other: &str,
        error: &ImportError,
    ) -> Result<(), ImportError> {
        self.notes.push(format!(
            "{}: the {taken} branch is taken, for the {other} branch cannot run with these lengths: {error}",
            call.label
        ));
        self.in_place(call, body)
    }

    /// A branch that is known to be taken: its nodes stand in place of the `If`.
    fn in_place(&mut self, call: &Use<'m>, body: &'m Proto) -> Result<(), ImportError> {
        self.enter(&call.label)?;
        self.folded += 1;
        let frame = self.scopes[call.scope].frame;
        let scope = self.inner_scope(call, frame);
        let first = self.slots.len();
        self.declare(scope, body);
        self.weights(scope, body)?;
        self.nodes(scope, &body.node)?;
        for (inner, output) in body.output.iter().zip(&call.node.output) {
            self.hand_out(call, scope, &inner.name, output, first)?;
        }
        self.depth -= 1;
        Ok(())
    }

    pub(super) fn repeat(&mut self, call: &Use<'m>) -> Result<(), ImportError> {
        let body = self.body_of(call, "body")?;
        let carried: Vec<Fact> = call.inputs.iter().skip(2).map(|slot| self.at_run_time(*slot)).collect();
        let count = carried.len();
        let scalar = |element| Fact::tensor(Some(element), Vec::new());
        let mut inputs = vec![scalar(ElementType::I64), scalar(ElementType::Bool)];
        inputs.extend(carried);
        let (graph, outputs) = self.settled_body(call, body, &mut inputs, 2, 1, count)?;
        let times = self.trip_count(call);
        let mut facts = inputs[2..].to_vec();
        for (index, fact) in outputs.iter().enumerate().skip(1 + count) {
            let times = match &times {
                Some(times) if keeps_going(&graph) => times.clone(),
                other => {
                    let most = other.as_ref().and_then(Dim::known).map(|most| (0, most));
                    let name = call.node.output.get(index - 1).map_or("loop", String::as_str);
                    self.symbols.fresh(&format!("{name}[0]"), most)
                }
            };
            facts.push(stacked(fact, times, 0));
        }
        let facts = self.settle(call, facts, None, true)?;
        self.keep(call, facts, vec![Body { name: "body".into(), graph }])
    }

    /// Reads the body until what it hands on fits what it takes. `takes` and `hands` are where the carried values
    /// start among its inputs and outputs.
    fn settled_body(
        &mut self,
        call: &Use<'m>,
        body: &'m Proto,
        inputs: &mut [Fact],
        takes: usize,
        hands: usize,
        count: usize,
    ) -> Result<(Graph, Vec<Fact>), ImportError> {
        for round in 1.. {
            let (needs, notes, folded) = (self.needs.len(), self.notes.len(), self.folded);
            let (graph, outputs) = self.body(call, body, inputs)?;
            if outputs.len() < hands + count {
                return Err(ImportError::new(ErrorKind::Inconsistent, call.label.clone())
                    .found(format!("a body of {} outputs for {count} carried values", outputs.len()))
                    .expected("an output for each carried value"));
            }
            let mut stable = true;
            for index in 0..count {
                let name = call.node.output.get(index).map_or("carried", String::as_str);
                let (before, after) = (&inputs[takes + index], &outputs[hands + index]);
                let joined = either(&mut self.symbols, name, before, after, false);
                stable &= joined.shape == before.shape;
                inputs[takes + index] = joined;
            }
            if stable || round == ROUNDS {
                return Ok((graph, outputs));
            }
            self.needs.truncate(needs);
            self.notes.truncate(notes);
            self.folded = folded;
        }
        Err(ImportError::new(ErrorKind::Limit, call.label.clone()))
    }

    /// A value as a body sees it: its elements may change from one iteration to the next.
    fn at_run_time(&self, slot: Option<super::SlotId>) -> Fact {
        let fact = slot.map_or_else(Fact::unknown, |slot| self.slots[slot].fact.clone());
        Fact { value: None, constant: false, ..fact }
    }

    fn trip_count(&self, call: &Use<'m>) -> Option<Dim> {
        let slot = call.inputs.first().copied().flatten()?;
        let value = self.slots[slot].fact.value.as_ref()?.first()?.dim()?;
        // Exporters write the largest number for "no limit".
        value.known().is_none_or(|count| count < 1 << 62).then_some(value)
    }

    pub(super) fn scan(&mut self, call: &Use<'m>) -> Result<(), ImportError> {
        let body = self.body_of(call, "body")?;
        // Version 8 has a batch before everything, and the lengths of the sequences as its first input.
        let batched = self.version(call.scope, "") < 9;
        let ints = |name: &str| {
            let found = call.attributes.iter().find(|(known, _)| *known == name);
            found.map(|(_, attribute)| attribute.ints.clone()).unwrap_or_default()
        };
        let scanned =
            call.attributes.iter().find(|(name, _)| *name == "num_scan_inputs").and_then(|(_, value)| value.i);
        let values = &call.inputs[usize::from(batched).min(call.inputs.len())..];
        let scanned = scanned.and_then(|count| usize::try_from(count).ok()).filter(|count| *count <= values.len());
        let Some(scanned) = scanned else {
            return Err(self.refuse(call, "no number of scan inputs that fits its inputs"));
        };
        let states = values.len() - scanned;
        let mut facts: Vec<Fact> = values.iter().map(|slot| self.at_run_time(*slot)).collect();
        let mut length = None;
        let mut batch = None;
        for (index, fact) in facts.iter_mut().enumerate() {
            if batched {
                batch = batch.or(take_axis(fact, 0));
            }
            if index >= states {
                let axis = ints("scan_input_axes").get(index - states).copied().unwrap_or(0);
                length = length.or(take_axis(fact, axis));
            }
        }
        let (graph, outputs) = self.settled_body(call, body, &mut facts, 0, 0, states)?;
        let length = length.unwrap_or_else(|| self.symbols.fresh("scan", None));
        let mut results = facts[..states].to_vec();
        for (index, fact) in outputs.iter().enumerate().skip(states) {
            let axis = ints("scan_output_axes").get(index - states).copied().unwrap_or(0);
            results.push(stacked(fact, length.clone(), axis));
        }
        if let Some(batch) = batch {
            results = results.iter().map(|fact| stacked(fact, batch.clone(), 0)).collect();
        }
        let results = self.settle(call, results, None, true)?;
        self.keep(call, results, vec![Body { name: "body".into(), graph }])
    }

    pub(super) fn map(&mut self, call: &Use<'m>) -> Result<(), ImportError> {
        let body = self.body_of(call, "body")?;
        let mut inputs = Vec::with_capacity(call.inputs.len());
        for slot in &call.inputs {
            let fact = self.at_run_time(*slot);
            inputs.push(match (&fact.shape, fact.holds.as_deref()) {
                (Shape::Opaque, Some(held)) => held.clone(),
                (Shape::Opaque, None) => Fact { element: fact.element, ..Fact::unknown() },
                _ => fact,
            });
        }
        let (graph, outputs) = self.body(call, body, &inputs)?;
        let facts = outputs.into_iter().map(|fact| Fact::holder(Some(Fact { value: None, constant: false, ..fact })));
        let facts = self.settle(call, facts.collect(), None, true)?;
        self.keep(call, facts, vec![Body { name: "body".into(), graph }])
    }

    fn refuse(&self, call: &Use<'m>, what: &str) -> ImportError {
        ImportError::new(ErrorKind::Value, call.label.clone()).found(what).expected("what the standard allows")
    }
}

/// Whether the body hands its condition on as it took it, so that only the trip count ends the loop.
fn keeps_going(body: &Graph) -> bool {
    let (Some(taken), Some(handed)) = (body.inputs.get(1), body.outputs.first()) else { return false };
    let mut at = *handed;
    // At most as many copies as there are operators.
    for operator in body.operators.iter().rev() {
        if at == *taken {
            break;
        }
        if operator.kind == "Identity" && operator.outputs.first() == Some(&Some(at)) {
            match operator.inputs.first() {
                Some(Some(source)) => at = *source,
                _ => return false,
            }
        }
    }
    at == *taken || matches!(body.tensor(at).kind, TensorKind::Constant | TensorKind::Weight)
}

/// The fact with one more dimension at `axis`.
fn stacked(fact: &Fact, length: Dim, axis: i64) -> Fact {
    let shape = match &fact.shape {
        Shape::Ranked(dims) => {
            let rank = dims.len() as i64 + 1;
            let at = (if axis < 0 { axis.saturating_add(rank) } else { axis }).clamp(0, rank - 1);
            let mut dims = dims.clone();
            dims.insert(at as usize, length);
            Shape::Ranked(dims)
        }
        other => other.clone(),
    };
    Fact { shape, value: None, constant: false, ..fact.clone() }
}

/// Takes a dimension out of the fact's shape.
fn take_axis(fact: &mut Fact, axis: i64) -> Option<Dim> {
    let Shape::Ranked(dims) = &mut fact.shape else { return None };
    let rank = dims.len() as i64;
    let at = usize::try_from(if axis < 0 { axis.saturating_add(rank) } else { axis }).ok()?;
    (at < dims.len()).then(|| dims.remove(at))
}
