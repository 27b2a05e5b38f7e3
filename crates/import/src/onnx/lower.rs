//! From the file's message to a [`Graph`]: names to ids, functions inlined, bodies, what is known before the run.
//!
//! A value is a [`Slot`] from the moment its name is known; it becomes a tensor of a graph only when an operator that
//! stays uses it. So weights that only folded operators read, and values nobody reads, do not appear.

mod control;
mod inputs;

use super::fact::{Fact, Scalar};
use super::infer::{self, Call, Trouble};
use super::order::{described, order};
use super::proto::{Attribute, Function, Model as Proto, Node, OperatorSet, Type};
use super::symbols::Symbols;
use super::{Model, Options, fact};
use crate::error::quoted;
use crate::{ErrorKind, ImportError};
use npumem_ir::graph::{self, Body, TensorKind};
use npumem_ir::{Dim, ElementType, Graph, Operator, Shape, Tensor, TensorId};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Bodies and function calls inside each other, at most.
const DEPTH: usize = 48;
/// Nodes that even a small file may come to once its functions and loops are expanded.
const SMALL_FILE: usize = 10_000;
/// Lists of an operator are kept up to this many elements.
const KEPT: usize = 64;
/// The newest version of the standard set that was looked at; nodes without a version are read as of it.
const NEWEST: i64 = 28;

type SlotId = usize;
type ScopeId = usize;

/// A value.
struct Slot {
    name: String,
    fact: Fact,
    kind: TensorKind,
    /// The type that its bytes have in memory, when not that of its elements: a dequantised weight stays quantised.
    stored: Option<ElementType>,
    /// The frame that it belongs to.
    frame: usize,
}

/// A graph that is being built; the one around it is the frame below.
#[derive(Default)]
struct Frame {
    graph: Graph,
    ids: HashMap<SlotId, TensorId>,
    names: HashSet<String>,
}

/// Where names are looked up.
#[derive(Default)]
struct Scope<'m> {
    /// `None` for a function's input that a call leaves out.
    names: HashMap<&'m str, Option<SlotId>>,
    /// The scope around it; a function has none.
    parent: Option<ScopeId>,
    frame: usize,
    /// Of a function: the attributes of the call.
    attributes: Option<HashMap<&'m str, &'m Attribute>>,
    /// What the file says of values.
    declared: HashMap<&'m str, &'m Type>,
    versions: &'m [OperatorSet],
    /// Before the name of everything that is made here.
    prefix: String,
}

/// A tensor whose shape only the caller can tell.
struct Need {
    tensor: String,
    node: String,
    why: String,
}

struct Lower<'m> {
    options: &'m Options,
    functions: HashMap<(&'m str, &'m str, &'m str), &'m Function>,
    symbols: Symbols,
    slots: Vec<Slot>,
    scopes: Vec<Scope<'m>>,
    frames: Vec<Frame>,
    folded: usize,
    notes: Vec<String>,
    needs: Vec<Need>,
    given: Vec<String>,
    depth: usize,
    /// Set with the error of an operator that cannot take the shapes it is given.
    misfit: bool,
    /// Nodes that may still be visited: functions and loops visit one many times.
    budget: usize,
}

/// What a node resolves to before anything is inferred.
struct Use<'m> {
    node: &'m Node,
    scope: ScopeId,
    label: String,
    domain: &'m str,
    attributes: Vec<(&'m str, &'m Attribute)>,
    inputs: Vec<Option<SlotId>>,
}

/// The model's graph.
pub(super) fn lower(model: &Proto, options: &Options) -> Result<Model, ImportError> {
    let graph = model.graph.as_ref().ok_or_else(|| {
        ImportError::new(ErrorKind::Missing, "the model")
            .found("no graph")
            .expected("an ONNX model")
            .hint("is this an ONNX file?")
    })?;
    if model.opset_import.is_empty() {
        return Err(ImportError::new(ErrorKind::Missing, "the model")
            .found("no version of an operator set")
            .expected("at least one: nodes cannot be read without it")
            .hint("the file is truncated, or older than ONNX 1.0: fetch or export it again"));
    }
    let mut functions = HashMap::new();
    for function in &model.functions {
        let key = (plain(&function.domain), function.name.as_str(), function.overload.as_str());
        if functions.insert(key, function).is_some() {
            return Err(ImportError::new(ErrorKind::Duplicate, format!("function {}", quoted(&function.name)))
                .expected("one definition of it"));
        }
    }
    let nodes = graph.node.len() + model.functions.iter().map(|function| function.node.len()).sum::<usize>();
    let mut lower = Lower {
        options,
        functions,
        symbols: Symbols::new(&options.dims),
        slots: Vec::new(),
        scopes: Vec::new(),
        frames: vec![Frame::default()],
        folded: 0,
        notes: Vec::new(),
        needs: Vec::new(),
        given: Vec::new(),
        depth: 0,
        misfit: false,
        budget: nodes.saturating_mul(64).saturating_add(SMALL_FILE).min(1 << 20),
    };
    let scope = lower.push_scope(Scope { versions: &model.opset_import, ..Scope::default() });
    lower.declare(scope, graph);
    lower.weights(scope, graph)?;
    lower.model_inputs(scope, graph)?;
    lower.nodes(scope, &graph.node)?;
    lower.graph_outputs(scope, graph)?;
    lower.finish(graph.name.clone())
}

/// The standard set goes by two names.
fn plain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

impl<'m> Lower<'m> {
    fn finish(mut self, name: String) -> Result<Model, ImportError> {
        if let Some(first) = self.needs.first() {
            let hint = "give each with --shape, the element type after a colon: ";
            let flags: Vec<String> =
                self.needs.iter().take(8).map(|need| format!("--shape {}=1x2x3:f32", need.tensor)).collect();
            let list: Vec<String> = self
                .needs
                .iter()
                .take(8)
                .map(|need| format!("{} of {} ({})", quoted(&need.tensor), need.node, need.why))
                .collect();
            let more = if self.needs.len() > 8 { format!(" and {} more", self.needs.len() - 8) } else { String::new() };
            return Err(ImportError::new(ErrorKind::NeedsAnswer, first.node.clone())
                .found(format!("outputs of unknown size: {}{more}", list.join("; ")))
                .expected("a shape for each")
                .hint(format!("{hint}{}", flags.join(" "))));
        }
        if let Some(unused) = self.options.shapes.keys().find(|name| !self.given.contains(name)) {
            return Err(ImportError::new(ErrorKind::Unknown, "--shape")
                .found_value(unused)
                .expected("the name of a tensor of the model"));
        }
        if let Some(unused) = self.symbols.unused_bindings().first() {
            let open: Vec<String> = self.symbols.list().iter().take(16).map(|symbol| quoted(&symbol.name)).collect();
            let open = if open.is_empty() {
                "it has no open dimension left".into()
            } else {
                format!("it has {}", open.join(", "))
            };
            return Err(ImportError::new(ErrorKind::Unknown, "--dim")
                .found_value(unused)
                .expected("the name of an open dimension of the model")
                .hint(open));
        }
        let mut graph = self.frames.pop().map(|frame| frame.graph).unwrap_or_default();
        graph.name = name;
        share_symbols(&mut graph, self.symbols.list());
        Ok(Model { graph, folded: self.folded, notes: self.notes })
    }

    fn push_scope(&mut self, scope: Scope<'m>) -> ScopeId {
        self.scopes.push(scope);
        self.scopes.len() - 1
    }

    fn push_slot(&mut self, name: String, fact: Fact, kind: TensorKind, frame: usize) -> SlotId {
        self.slots.push(Slot { name, fact, kind, stored: None, frame });
        self.slots.len() - 1
    }

    /// The value of that name: `None` when there is none, `Some(None)` for an input that a call leaves out.
    fn look_up(&self, scope: ScopeId, name: &str) -> Option<Option<SlotId>> {
        let mut at = Some(scope);
        while let Some(scope) = at {
            if let Some(slot) = self.scopes[scope].names.get(name) {
                return Some(*slot);
            }
            at = self.scopes[scope].parent;
        }
        None
    }

    fn nodes(&mut self, scope: ScopeId, nodes: &'m [Node]) -> Result<(), ImportError> {
        let order = order(nodes, &|name| self.look_up(scope, name).is_some(), &|name| {
            self.scopes[scope].names.contains_key(name)
        })?;
        for index in order {
            self.node(scope, &nodes[index], index)?;
        }
        Ok(())
    }

    fn node(&mut self, scope: ScopeId, node: &'m Node, index: usize) -> Result<(), ImportError> {
        let label = described(node, index);
        self.budget = self.budget.checked_sub(1).ok_or_else(|| {
            ImportError::new(ErrorKind::Limit, label.clone())
                .found("more nodes than npumem follows, once functions and loops are expanded")
                .expected(format!("at most 64 times the nodes of the file and {SMALL_FILE}"))
        })?;
        let mut inputs = Vec::with_capacity(node.input.len());
        for name in &node.input {
            inputs.push(if name.is_empty() { None } else { self.look_up(scope, name).flatten() });
        }
        let attributes = self.resolve(scope, &node.attribute);
        let call = Use { node, scope, label, domain: plain(&node.domain), attributes, inputs };
        let key = (call.domain, node.op_type.as_str(), node.overload.as_str());
        if let Some(function) = self.functions.get(&key).copied() {
            return self.call(&call, function);
        }
        match (call.domain, node.op_type.as_str()) {
            ("", "Constant") => self.constant(&call),
            ("", "If") => self.if_else(&call),
            ("", "Loop") => self.repeat(&call),
            ("", "Scan") => self.scan(&call),
            ("", "SequenceMap") => self.map(&call),
            _ => self.operator(&call),
        }
    }

    /// A node's attributes, those that a function's call gives looked up.
    fn resolve(&self, scope: ScopeId, attributes: &'m [Attribute]) -> Vec<(&'m str, &'m Attribute)> {
        let mut resolved = Vec::with_capacity(attributes.len());
        for attribute in attributes {
            if attribute.ref_attr_name.is_empty() {
                resolved.push((attribute.name.as_str(), attribute));
                continue;
            }
            let mut at = Some(scope);
            while let Some(scope) = at {
                if let Some(given) = &self.scopes[scope].attributes {
                    let value = given.get(attribute.ref_attr_name.as_str());
                    resolved.extend(value.map(|value| (attribute.name.as_str(), *value)));
                    break;
                }
                at = self.scopes[scope].parent;
            }
        }
        resolved
    }

    fn version(&self, scope: ScopeId, domain: &str) -> i64 {
        let set = self.scopes[scope].versions.iter().find(|set| plain(&set.domain) == domain);
        set.map_or(if domain.is_empty() { NEWEST } else { 1 }, |set| set.version)
    }

    fn enter(&mut self, label: &str) -> Result<(), ImportError> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(ImportError::new(ErrorKind::Limit, label)
                .found(format!("bodies and functions nested more than {DEPTH} deep"))
                .expected(format!("at most {DEPTH}"))
                .hint("does a function call itself?"));
        }
        Ok(())
    }

    /// Puts a function's nodes in place of the call.
    fn call(&mut self, call: &Use<'m>, function: &'m Function) -> Result<(), ImportError> {
        self.enter(&call.label)?;
        let mut attributes: HashMap<&str, &Attribute> = HashMap::new();
        attributes.extend(function.attribute_proto.iter().map(|attribute| (attribute.name.as_str(), attribute)));
        attributes.extend(call.attributes.iter().copied());
        let outer = &self.scopes[call.scope];
        let name = if call.node.name.is_empty() { &call.node.op_type } else { &call.node.name };
        let mut inner = Scope {
            frame: outer.frame,
            prefix: format!("{}{name}/", outer.prefix),
            attributes: Some(attributes),
            versions: if function.opset_import.is_empty() { outer.versions } else { &function.opset_import },
            ..Scope::default()
        };
        for (index, name) in function.input.iter().enumerate() {
            inner.names.insert(name, call.inputs.get(index).copied().flatten());
        }
        let inner = self.push_scope(inner);
        let first = self.slots.len();
        self.nodes(inner, &function.node)?;
        for (name, output) in function.output.iter().zip(&call.node.output) {
            self.hand_out(call, inner, name, output, first)?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Gives a value that was made in an inner scope its name outside.
    fn hand_out(
        &mut self,
        call: &Use<'m>,
        inner: ScopeId,
        name: &str,
        output: &'m str,
        first: SlotId,
    ) -> Result<(), ImportError> {
        if output.is_empty() {
            return Ok(());
        }
        let slot = self.look_up(inner, name).flatten().ok_or_else(|| {
            ImportError::new(ErrorKind::Missing, call.label.clone())
                .found(format!("output {}, which nothing in the function or body makes", quoted(name)))
                .expected("a node that makes it")
        })?;
        if slot >= first {
            let outside = format!("{}{output}", self.scopes[call.scope].prefix);
            self.rename(slot, outside);
        }
        self.scopes[call.scope].names.insert(output, Some(slot));
        Ok(())
    }

    fn rename(&mut self, slot: SlotId, name: String) {
        let frame = &mut self.frames[self.slots[slot].frame];
        if let Some(id) = frame.ids.get(&slot) {
            if !frame.names.insert(name.clone()) {
                return;
            }
            frame.graph.tensors[id.index()].name.clone_from(&name);
        }
        self.slots[slot].name = name;
    }

    fn constant(&mut self, call: &Use<'m>) -> Result<(), ImportError> {
        let bad = |what: String| {
            ImportError::new(ErrorKind::Value, call.label.clone())
                .found(what)
                .expected("a value of a known element type")
        };
        let int = |number: &i64| Scalar::Int(*number);
        let float = |number: &f32| Scalar::Float(f64::from(*number));
        let list = |element, value: Vec<Scalar>| {
            let fact = Fact { constant: true, ..Fact::tensor(Some(element), vec![Dim::Known(value.len() as u64)]) };
            fact.with_value(Some(value))
        };
        let one = |element, value: Option<Scalar>| {
            let fact = Fact { constant: true, ..Fact::tensor(Some(element), Vec::new()) };
            fact.with_value(value.map(|value| vec![value]))
        };
        let mut made = None;
        for (name, attribute) in &call.attributes {
            made = Some(match *name {
                "value" => {
                    let tensor = attribute.t.as_ref().ok_or_else(|| bad("no tensor in its attribute".into()))?;
                    fact::carried(tensor).map_err(bad)?
                }
                "sparse_value" => {
                    let sparse =
                        attribute.sparse_tensor.as_ref().ok_or_else(|| bad("no tensor in its attribute".into()))?;
                    inputs::sparse_fact(sparse).map_err(bad)?
                }
                "value_int" => one(ElementType::I64, attribute.i.as_ref().map(int)),
                "value_float" => one(ElementType::F32, attribute.f.as_ref().map(float)),
                "value_ints" => list(ElementType::I64, attribute.ints.iter().map(int).collect()),
                "value_floats" => list(ElementType::F32, attribute.floats.iter().map(float).collect()),
                "value_string" => one(ElementType::Text, None),
                "value_strings" => {
                    let count = Dim::Known(attribute.strings.len() as u64);
                    Fact { constant: true, ..Fact::tensor(Some(ElementType::Text), vec![count]) }
                }
                _ => continue,
            });
        }
        let fact = made.ok_or_else(|| bad("no value".into()))?;
        self.folded += 1;
        self.put_out(call, 0, fact, TensorKind::Constant)?;
        Ok(())
    }

    /// A node that is not control flow: infer, then fold or keep.
    fn operator(&mut self, call: &Use<'m>) -> Result<(), ImportError> {
        let node = call.node;
        let version = self.version(call.scope, call.domain);
        let mut inference = Call {
            kind: &node.op_type,
            domain: call.domain,
            version,
            attributes: &call.attributes,
            inputs: call.inputs.iter().map(|slot| slot.map(|slot| &self.slots[slot].fact)).collect(),
            outputs: &node.output,
            symbols: &mut self.symbols,
        };
        let known = inference.inputs.iter().flatten().all(|fact| fact.shape != Shape::Unknown);
        let result = infer::infer(&mut inference);
        if self.symbols.take_overflow() {
            return Err(ImportError::new(ErrorKind::Value, call.label.clone())
                .found("a length or a number of elements past 64 bits")
                .expected("sizes below 2^64"));
        }
        let (facts, trouble) = match result {
            Ok(facts) => (facts, None),
            Err(trouble) => (Vec::new(), Some(trouble)),
        };
        if let Some(Trouble::Bad(what)) = &trouble {
            if !self.all_declared(call) {
                self.misfit = true;
                return Err(ImportError::new(ErrorKind::Inconsistent, call.label.clone())
                    .found(what.clone())
                    .expected(format!("what {} of version {version} allows", node.op_type)));
            }
            self.notes.push(format!("{}: {what}; the shapes that the file states are taken", call.label));
        }
        let facts = self.settle(call, facts, trouble.as_ref(), known)?;
        self.keep_or_fold(call, facts)
    }

    fn all_declared(&self, call: &Use<'m>) -> bool {
        let declared = &self.scopes[call.scope].declared;
        call.node.output.iter().all(|name| {
            name.is_empty() || declared.contains_key(name.as_str()) || self.options.shapes.contains_key(name)
        })
    }

    /// The facts of the named outputs: the caller's word, then inference and the file's description together.
    fn settle(
        &mut self,
        call: &Use<'m>,
        facts: Vec<Fact>,
        trouble: Option<&Trouble>,
        inputs_known: bool,
    ) -> Result<Vec<Fact>, ImportError> {
        let mut facts = facts.into_iter();
        let mut settled = Vec::with_capacity(call.node.output.len());
        for name in &call.node.output {
            let mut fact = facts.next().unwrap_or_else(Fact::unknown);
            if name.is_empty() {
                settled.push(fact);
                continue;
            }
            self.with_declared(call, name, &mut fact)?;
            let full = format!("{}{name}", self.scopes[call.scope].prefix);
            if let Some(given) = self.options.shapes.get(&full) {
                let first = call.inputs.iter().flatten().find_map(|slot| self.slots[*slot].fact.element);
                let element = given.element.or(fact.element).or(first).unwrap_or(ElementType::F32);
                fact = Fact::tensor(Some(element), given.dims.iter().copied().map(Dim::Known).collect());
                if !self.given.contains(&full) {
                    self.given.push(full.clone());
                }
            }
            if fact.shape == Shape::Unknown || fact.element.is_none() && fact.shape != Shape::Opaque {
                let why = match trouble {
                    Some(Trouble::UnknownOperator) if call.domain.is_empty() => {
                        "an operator that npumem does not know".into()
                    }
                    Some(Trouble::UnknownOperator) => {
                        format!("an operator of {} that npumem does not know", quoted(call.domain))
                    }
                    Some(Trouble::Open(why)) => (*why).to_string(),
                    Some(Trouble::Bad(why)) => why.clone(),
                    None => "its inputs leave it open".into(),
                };
                if inputs_known || matches!(trouble, Some(Trouble::UnknownOperator)) {
                    self.needs.push(Need { tensor: full, node: call.label.clone(), why });
                }
            }
            settled.push(fact);
        }
        Ok(settled)
    }

    /// Joins what the file says of a value with what was inferred: a number wins over an open length.
    fn with_declared(&mut self, call: &Use<'m>, name: &str, fact: &mut Fact) -> Result<(), ImportError> {
        let Some(declared) = self.scopes[call.scope].declared.get(name) else { return Ok(()) };
        if fact.element.is_some() && fact.shape.dims().is_some_and(|dims| dims.iter().all(|dim| dim.known().is_some()))
        {
            self.compare(call, name, fact, declared);
            return Ok(());
        }
        let declared = inputs::declared_fact(declared, name, &mut self.symbols)?;
        fact.element = fact.element.or(declared.element);
        match (&mut fact.shape, declared.shape) {
            (shape @ Shape::Unknown, other) => *shape = other,
            (Shape::Ranked(ours), Shape::Ranked(theirs)) if ours.len() == theirs.len() => {
                for (ours, theirs) in ours.iter_mut().zip(theirs) {
                    let better = match (&ours, &theirs) {
                        (Dim::Known(_), _) => false,
                        (_, Dim::Known(_)) => true,
                        (ours, theirs) => self.symbols.is_made_up(ours) && !self.symbols.is_made_up(theirs),
                    };
                    if better {
                        *ours = theirs;
                    }
                }
            }
            _ => {}
        }
        if fact.holds.is_none() {
            fact.holds = declared.holds;
        }
        Ok(())
    }

    /// Notes a number that the file states and the operators contradict.
    fn compare(&mut self, call: &Use<'m>, name: &str, fact: &Fact, declared: &Type) {
        use super::proto::{DimensionValue, TypeKind};
        let Some(TypeKind::Tensor(tensor)) = &declared.kind else { return };
        let (Some(stated), Some(dims)) = (&tensor.shape, fact.shape.dims()) else { return };
        let differs = stated.dim.len() != dims.len()
            || stated.dim.iter().zip(dims).any(|(stated, dim)| {
                matches!(&stated.value, Some(DimensionValue::Number(number))
                    if *number >= 0 && dim.known() != Some(number.unsigned_abs()))
            });
        if differs && self.notes.len() < 64 {
            let dims: Vec<String> = dims.iter().map(|dim| dim.known().unwrap_or(0).to_string()).collect();
            let dims = dims.join("x");
            self.notes.push(format!(
                "{}: the file states another shape for {} than {dims}, which follows from its inputs",
                call.label,
                quoted(name)
            ));
        }
    }

    fn keep_or_fold(&mut self, call: &Use<'m>, mut facts: Vec<Fact>) -> Result<(), ImportError> {
        let kind = call.node.op_type.as_str();
        let random =
            ["RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"];
        let fixed = call.inputs.iter().flatten().all(|slot| self.slots[*slot].fact.constant);
        let foldable = !random.contains(&kind) && facts.iter().all(|fact| fact.shape != Shape::Opaque);
        let known = || facts.iter().zip(&call.node.output).all(|(fact, name)| name.is_empty() || fact.is_known());
        if foldable && (fixed && facts.iter().all(|fact| fact.shape != Shape::Unknown) || known()) {
            self.folded += 1;
            // A weight that is dequantised where it is used lies in memory as it is in the file.
            let first = call.inputs.first().copied().flatten();
            let stored = match kind {
                "DequantizeLinear" => first.and_then(|slot| self.slots[slot].fact.element),
                "Transpose" | "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" | "Identity" => {
                    first.and_then(|slot| self.slots[slot].stored)
                }
                _ => None,
            };
            for (index, mut fact) in facts.into_iter().enumerate() {
                fact.constant = true;
                if let Some(slot) = self.put_out(call, index, fact, TensorKind::Constant)? {
                    self.slots[slot].stored = stored;
                }
            }
            return Ok(());
        }
        for fact in &mut facts {
            fact.constant = false;
        }
        self.keep(call, facts, Vec::new())
    }

    /// Names an output's value; `None` when the node leaves it out.
    fn put_out(
        &mut self,
        call: &Use<'m>,
        index: usize,
        fact: Fact,
        kind: TensorKind,
    ) -> Result<Option<SlotId>, ImportError> {
        let Some(name) = call.node.output.get(index).filter(|name| !name.is_empty()) else { return Ok(None) };
        check_size(&fact, &call.label, name)?;
        let scope = &self.scopes[call.scope];
        let (full, frame) = (format!("{}{name}", scope.prefix), scope.frame);
        let slot = self.push_slot(full, fact, kind, frame);
        self.scopes[call.scope].names.insert(name, Some(slot));
        Ok(Some(slot))
    }

    /// Adds the operator to its graph.
    fn keep(&mut self, call: &Use<'m>, facts: Vec<Fact>, bodies: Vec<Body>) -> Result<(), ImportError> {
        let node = call.node;
        let frame = self.scopes[call.scope].frame;
        let mut constants = BTreeMap::new();
        let mut inputs = Vec::with_capacity(call.inputs.len());
        for (index, slot) in call.inputs.iter().enumerate() {
            if let Some(value) = slot.and_then(|slot| self.slots[slot].fact.ints())
                && value.len() <= KEPT
            {
                constants.insert(index, value);
            }
            inputs.push(slot.map(|slot| self.tensor_in(frame, slot)));
        }
        let mut outputs = Vec::with_capacity(node.output.len());
        for (index, fact) in facts.into_iter().enumerate().take(node.output.len()) {
            let slot = self.put_out(call, index, fact, TensorKind::Computed)?;
            outputs.push(slot.map(|slot| self.tensor_in(frame, slot)));
        }
        let prefix = &self.scopes[call.scope].prefix;
        let position = self.frames[frame].graph.operators.len();
        let name = if node.name.is_empty() {
            format!("{prefix}{}_{position}", node.op_type)
        } else {
            format!("{prefix}{}", node.name)
        };
        let attributes =
            call.attributes.iter().filter_map(|(name, value)| Some(((*name).to_string(), kept(value)?))).collect();
        let operator = Operator {
            name,
            kind: node.op_type.clone(),
            domain: call.domain.to_string(),
            inputs,
            outputs,
            attributes,
            constants,
            bodies,
        };
        self.frames[frame].graph.operators.push(operator);
        Ok(())
    }

    /// The tensor of a value in a frame: its own, or one captured through every frame between.
    fn tensor_in(&mut self, frame: usize, slot: SlotId) -> TensorId {
        let mut outer = None;
        for at in self.slots[slot].frame..=frame {
            let value = &self.slots[slot];
            let frame = &mut self.frames[at];
            let id = match frame.ids.get(&slot) {
                Some(id) => *id,
                None => {
                    let id = TensorId::new(frame.graph.tensors.len());
                    let mut name = value.name.clone();
                    let mut count = 1;
                    while !frame.names.insert(name.clone()) {
                        count += 1;
                        name = format!("{}~{count}", value.name);
                    }
                    let element = value.stored.or(value.fact.element);
                    let text = element == Some(ElementType::Text);
                    frame.graph.tensors.push(Tensor {
                        name,
                        element: element.unwrap_or(ElementType::F32),
                        shape: if text { Shape::Opaque } else { value.fact.shape.clone() },
                        kind: outer.map_or(value.kind, TensorKind::Captured),
                    });
                    frame.ids.insert(slot, id);
                    id
                }
            };
            outer = Some(id);
        }
        outer.unwrap_or(TensorId(0))
    }
}

/// A tensor of more bytes than 64 bits count is refused where it appears.
fn check_size(fact: &Fact, label: &str, name: &str) -> Result<(), ImportError> {
    let Some(dims) = fact.shape.dims() else { return Ok(()) };
    if dims.contains(&Dim::Known(0)) {
        return Ok(());
    }
    let known = dims.iter().filter_map(Dim::known).try_fold(1_u64, u64::checked_mul);
    let element = fact.element.unwrap_or(ElementType::F32);
    match known.and_then(|count| element.bytes(count)) {
        Some(_) => Ok(()),
        None => Err(ImportError::new(ErrorKind::Value, label)
            .found(format!("tensor {} of {dims:?} elements of {element}, past 64 bits of bytes", quoted(name)))
            .expected("sizes below 2^64")),
    }
}

/// An attribute as the graph keeps it: small ones only.
fn kept(attribute: &Attribute) -> Option<graph::Attribute> {
    if let Some(int) = attribute.i {
        return Some(graph::Attribute::Int(int));
    }
    if let Some(float) = attribute.f {
        return Some(graph::Attribute::Float(float));
    }
    if let Some(text) = &attribute.s {
        return (text.len() <= 256).then(|| graph::Attribute::Text(String::from_utf8_lossy(text).into_owned()));
    }
    if !attribute.ints.is_empty() {
        return (attribute.ints.len() <= KEPT).then(|| graph::Attribute::Ints(attribute.ints.clone()));
    }
    if !attribute.floats.is_empty() {
        return (attribute.floats.len() <= KEPT).then(|| graph::Attribute::Floats(attribute.floats.clone()));
    }
    None
}

/// Every body carries the same symbols as the graph around it, so an id means one thing at every level.
fn share_symbols(graph: &mut Graph, symbols: &[graph::Symbol]) {
    let mut todo = vec![graph];
    while let Some(graph) = todo.pop() {
        graph.symbols = symbols.to_vec();
        for operator in &mut graph.operators {
            todo.extend(operator.bodies.iter_mut().map(|body| &mut body.graph));
        }
    }
}
