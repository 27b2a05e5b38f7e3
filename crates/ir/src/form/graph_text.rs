//! The text form of a graph.

use super::dim::{push_dim, push_symbol, read_dim};
use super::words::{Line, Names, Read, lines, push_name, push_quoted};
use super::{FormError, GRAPH, VERSION};
use crate::graph::{Attribute, Body, ElementType, Graph, Operator, Shape, Symbol, Tensor, TensorKind};
use crate::ids::{SymbolId, TensorId};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Bodies within bodies: no real model comes near, and a hostile file goes no further.
pub const MAX_BODY_DEPTH: usize = 32;

const KINDS: [(TensorKind, &str); 4] = [
    (TensorKind::Input, "input"),
    (TensorKind::Weight, "weight"),
    (TensorKind::Constant, "constant"),
    (TensorKind::Computed, "computed"),
];

impl Graph {
    /// The text form: one line an item, made to be read in a diff; bodies are indented.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{GRAPH} {VERSION}\n");
        write_graph(&mut text, self, 0);
        text
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// The first thing that is not as it should be, with line and character; or the first
    /// [contradiction](Graph::validate) in the graph.
    pub fn from_text(text: &str) -> Result<Graph, FormError> {
        let mut stack = vec![Open::default()];
        let mut last = 1;
        for mut line in lines(text, GRAPH)? {
            last = line.number;
            read_item(&mut stack, &mut line)?;
        }
        match (stack.pop(), stack.is_empty()) {
            (Some(open), true) => sound(open.graph),
            _ => Err(FormError::new(last, 0, "the end of the text", "'end' of a body")),
        }
    }
}

/// The graph, when its statement holds no contradiction.
pub(super) fn sound(graph: Graph) -> Read<Graph> {
    match graph.validate().first() {
        None => Ok(graph),
        Some(error) => Err(FormError::whole(error.to_string())),
    }
}

fn write_graph(text: &mut String, graph: &Graph, depth: usize) {
    let indent = "  ".repeat(depth);
    if !graph.name.is_empty() {
        let _ = write!(text, "{indent}name ");
        push_name(text, &graph.name);
        text.push('\n');
    }
    let symbols = Names::of(graph.symbols.iter().map(|symbol| symbol.name.as_str()));
    let tensors = Names::of(graph.tensors.iter().map(|tensor| tensor.name.as_str()));
    for symbol in &graph.symbols {
        let _ = write!(text, "{indent}symbol ");
        push_name(text, &symbol.name);
        if let Some((least, most)) = symbol.range {
            let _ = write!(text, " {least}..{most}");
        }
        text.push('\n');
    }
    let push_id = |text: &mut String, id: SymbolId| {
        let name = graph.symbols.get(id.index()).map(|symbol| symbol.name.as_str());
        let mut said = String::new();
        symbols.push(&mut said, id.index(), name);
        match name {
            Some(name) if !said.starts_with('#') && !name.starts_with('#') => push_symbol(text, name),
            _ => {
                let _ = write!(text, "#{}", id.0);
            }
        }
    };
    for tensor in &graph.tensors {
        text.push_str(&indent);
        write_tensor(text, tensor, &push_id);
    }
    let push_tensor = |text: &mut String, id: TensorId| {
        tensors.push(text, id.index(), graph.tensors.get(id.index()).map(|tensor| tensor.name.as_str()));
    };
    for (item, ids) in [("input ", &graph.inputs), ("output ", &graph.outputs)] {
        for id in ids {
            let _ = write!(text, "{indent}{item}");
            push_tensor(text, *id);
            text.push('\n');
        }
    }
    for operator in &graph.operators {
        text.push_str(&indent);
        write_operator(text, operator, &push_tensor);
        for body in &operator.bodies {
            let _ = write!(text, "{indent}body ");
            push_name(text, &body.name);
            text.push('\n');
            write_graph(text, &body.graph, depth + 1);
            let _ = writeln!(text, "{indent}end");
        }
    }
}

fn write_tensor(text: &mut String, tensor: &Tensor, push_id: &dyn Fn(&mut String, SymbolId)) {
    text.push_str("tensor ");
    push_name(text, &tensor.name);
    let _ = write!(text, " {} ", tensor.element);
    match &tensor.shape {
        Shape::Unknown => text.push_str("unknown"),
        Shape::Opaque => text.push_str("opaque"),
        Shape::Ranked(dims) => {
            text.push('[');
            for (index, dim) in dims.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                push_dim(text, dim, push_id);
            }
            text.push(']');
        }
    }
    match tensor.kind {
        TensorKind::Computed => {}
        TensorKind::Captured(outer) => {
            let _ = write!(text, " captured #{}", outer.0);
        }
        kind => {
            let word = KINDS.iter().find(|(candidate, _)| *candidate == kind).map_or("", |(_, word)| word);
            let _ = write!(text, " {word}");
        }
    }
    text.push('\n');
}

fn write_operator(text: &mut String, operator: &Operator, push_tensor: &dyn Fn(&mut String, TensorId)) {
    text.push_str("op ");
    push_name(text, &operator.name);
    text.push(' ');
    push_name(text, &operator.kind);
    if !operator.domain.is_empty() {
        text.push_str(" domain=");
        push_name(text, &operator.domain);
    }
    for (key, ids) in [(" in=", &operator.inputs), (" out=", &operator.outputs)] {
        for (index, id) in ids.iter().enumerate() {
            text.push_str(if index == 0 { key } else { "," });
            match id {
                Some(id) => push_tensor(text, *id),
                None => text.push('-'),
            }
        }
    }
    for (name, attribute) in &operator.attributes {
        text.push_str(" attr.");
        push_name(text, name);
        text.push('=');
        match attribute {
            Attribute::Int(value) => {
                let _ = write!(text, "{value}");
            }
            Attribute::Float(value) => {
                let _ = write!(text, "{value:?}");
            }
            Attribute::Text(value) => push_quoted(text, value),
            Attribute::Ints(values) => push_list(text, "", values),
            Attribute::Floats(values) => push_list(text, "f", values),
        }
    }
    for (index, values) in &operator.constants {
        let _ = write!(text, " const.{index}=");
        push_list(text, "", values);
    }
    text.push('\n');
}

fn push_list<T: std::fmt::Debug>(text: &mut String, mark: &str, values: &[T]) {
    let _ = write!(text, "{mark}[");
    for (index, value) in values.iter().enumerate() {
        let _ = write!(text, "{}{value:?}", if index == 0 { "" } else { "," });
    }
    text.push(']');
}

/// A graph that is being read, and the body that it is.
#[derive(Default)]
struct Open {
    graph: Graph,
    body: String,
    symbols: Names,
    symbol_ids: BTreeMap<String, Option<SymbolId>>,
    tensors: Names,
}

fn read_item(stack: &mut Vec<Open>, line: &mut Line<'_>) -> Read<()> {
    const ITEMS: &str = "name, symbol, tensor, input, output, op, body or end at the start of the line";
    line.skip_blanks();
    let at = line.at;
    let word = line.word(ITEMS)?;
    match word {
        "body" => {
            if stack.len() > MAX_BODY_DEPTH {
                return Err(line.fault_at(at, "a body deeper than that", format!("at most {MAX_BODY_DEPTH} levels")));
            }
            if stack.last().is_none_or(|open| open.graph.operators.is_empty()) {
                return Err(line.fault_at(at, "a body", "an op in the line above"));
            }
            let body = line.name("the body's name")?.into_owned();
            stack.push(Open { body, ..Open::default() });
        }
        "end" => {
            let inner = if stack.len() > 1 { stack.pop() } else { None };
            let owner = stack.last_mut().and_then(|open| open.graph.operators.last_mut());
            match (inner, owner) {
                (Some(inner), Some(owner)) => owner.bodies.push(Body { name: inner.body, graph: inner.graph }),
                _ => return Err(line.fault_at(at, "'end' without a body", "an item of the graph")),
            }
        }
        _ => {
            let Some(open) = stack.last_mut() else { return Ok(()) };
            match word {
                "name" => open.graph.name = line.name("the graph's name")?.into_owned(),
                "symbol" => open.symbol(line)?,
                "tensor" => open.tensor(line)?,
                "input" => open.graph.inputs.push(open.tensors.read(line)?),
                "output" => open.graph.outputs.push(open.tensors.read(line)?),
                "op" => open.operator(line)?,
                other => return Err(line.fault_at(at, format!("'{other}'"), ITEMS)),
            }
        }
    }
    line.finish()
}

impl Names {
    fn read(&self, line: &mut Line<'_>) -> Read<TensorId> {
        line.resolve("tensor", self).map(TensorId::new)
    }
}

impl Open {
    fn symbol(&mut self, line: &mut Line<'_>) -> Read<()> {
        let name = line.name("the symbol's name")?.into_owned();
        let mut range = None;
        if !line.is_done() {
            let at = line.at;
            let least = line.number()?;
            line.expect("..")?;
            let most = line.number()?;
            if least > most {
                return Err(line.fault_at(at, format!("{least}..{most}"), "the least, then the most"));
            }
            range = Some((least, most));
        }
        let id = SymbolId::new(self.graph.symbols.len());
        self.symbol_ids.entry(name.clone()).and_modify(|found| *found = None).or_insert(Some(id));
        self.symbols.declare(&name);
        self.graph.symbols.push(Symbol { name, range });
        Ok(())
    }

    fn tensor(&mut self, line: &mut Line<'_>) -> Read<()> {
        let name = line.name("the tensor's name")?.into_owned();
        line.skip_blanks();
        let at = line.at;
        let word = line.word("an element type, such as f32")?;
        let element = ElementType::from_name(word)
            .ok_or_else(|| line.fault_at(at, format!("'{word}'"), "an element type, such as f32, bf16, i8 or bool"))?;
        let shape = self.shape(line)?;
        let mut kind = TensorKind::Computed;
        if !line.is_done() {
            let at = line.at;
            let word = line.word("input, weight, constant or captured")?;
            kind = match KINDS.iter().find(|(_, candidate)| *candidate == word) {
                Some((kind, _)) => *kind,
                None if word == "captured" => {
                    line.skip_blanks();
                    line.expect("#")?;
                    let at = line.at;
                    let outer = line.number()?;
                    let outer = u32::try_from(outer)
                        .map_err(|_| line.fault_at(at, format!("#{outer}"), "a tensor of the graph around"))?;
                    TensorKind::Captured(TensorId(outer))
                }
                None => return Err(line.fault_at(at, format!("'{word}'"), "input, weight, constant or captured")),
            };
        }
        self.tensors.declare(&name);
        self.graph.tensors.push(Tensor { name, element, shape, kind });
        Ok(())
    }

    fn shape(&self, line: &mut Line<'_>) -> Read<Shape> {
        line.skip_blanks();
        if line.eat("unknown") {
            return Ok(Shape::Unknown);
        }
        if line.eat("opaque") {
            return Ok(Shape::Opaque);
        }
        if !line.eat("[") {
            return Err(line.unexpected("a shape such as [1,3,224,224], unknown or opaque"));
        }
        if line.eat("]") {
            return Ok(Shape::Ranked(Vec::new()));
        }
        let count = self.graph.symbols.len();
        let meaning = |name: &str| match name.strip_prefix('#') {
            Some(index) => index.parse().ok().filter(|index: &u32| (*index as usize) < count).map(SymbolId),
            None => self.symbol_ids.get(name).copied().flatten(),
        };
        let dims = line.list(|line| read_dim(line, &meaning))?;
        line.expect("]")?;
        Ok(Shape::Ranked(dims))
    }

    fn operator(&mut self, line: &mut Line<'_>) -> Read<()> {
        let mut operator = Operator {
            name: line.name("the operator's name")?.into_owned(),
            kind: line.name("the operator's kind")?.into_owned(),
            domain: String::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            attributes: BTreeMap::new(),
            constants: BTreeMap::new(),
            bodies: Vec::new(),
        };
        while !line.is_done() {
            if line.eat("attr.") {
                let name = line.name("an attribute's name")?.into_owned();
                line.expect("=")?;
                operator.attributes.insert(name, read_attribute(line)?);
            } else if line.eat("const.") {
                let index = usize::try_from(line.number()?).unwrap_or(usize::MAX);
                line.expect("=[")?;
                operator.constants.insert(index, read_values(line, Line::signed)?);
            } else if line.eat("domain=") {
                operator.domain = line.name("a domain")?.into_owned();
            } else if line.eat("in=") {
                operator.inputs = self.ports(line)?;
            } else if line.eat("out=") {
                operator.outputs = self.ports(line)?;
            } else {
                return Err(line.unexpected("in=, out=, domain=, attr.NAME= or const.INDEX="));
            }
        }
        self.graph.operators.push(operator);
        Ok(())
    }

    fn ports(&self, line: &mut Line<'_>) -> Read<Vec<Option<TensorId>>> {
        line.list(|line| {
            if line.eat("-") {
                return Ok(None);
            }
            self.tensors.read(line).map(Some)
        })
    }
}

/// The values up to a closing bracket, the opening one read.
fn read_values<'a, T>(line: &mut Line<'a>, item: impl FnMut(&mut Line<'a>) -> Read<T>) -> Read<Vec<T>> {
    if line.eat("]") {
        return Ok(Vec::new());
    }
    let values = line.list(item)?;
    line.expect("]")?;
    Ok(values)
}

fn read_attribute(line: &mut Line<'_>) -> Read<Attribute> {
    if line.rest().starts_with('"') {
        return line.name("text").map(|text| Attribute::Text(text.into_owned()));
    }
    if line.eat("f[") {
        return read_values(line, Line::float).map(Attribute::Floats);
    }
    if line.eat("[") {
        return read_values(line, Line::signed).map(Attribute::Ints);
    }
    let at = line.at;
    let word = line.numeral();
    if let Ok(value) = word.parse() {
        return Ok(Attribute::Int(value));
    }
    match word.parse() {
        Ok(value) => Ok(Attribute::Float(value)),
        Err(_) => Err(line.fault_at(at, format!("'{word}'"), "5, 0.5, \"text\", [1,2] or f[0.5]")),
    }
}
