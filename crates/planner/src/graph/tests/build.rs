//! Small graphs, written as they read: `b.op("Relu", &[x], &[("y", &[1, 8])])`.

use npumem_ir::graph::{Attribute, Body, Dim, Graph, Operator, Shape, Symbol, Tensor, TensorKind};
use npumem_ir::{Alignment, ElementType, SymbolId, TensorId};

use crate::graph::problem::MainSpace;

/// A graph under construction.
#[derive(Default)]
pub struct Build {
    pub graph: Graph,
}

impl Build {
    pub fn new() -> Build {
        Build { graph: Graph { name: "test".to_owned(), ..Graph::default() } }
    }

    pub fn tensor(&mut self, name: &str, element: ElementType, shape: Shape, kind: TensorKind) -> TensorId {
        let id = TensorId::new(self.graph.tensors.len());
        self.graph.tensors.push(Tensor { name: name.to_owned(), element, shape, kind });
        id
    }

    pub fn f32(&mut self, name: &str, dims: &[u64], kind: TensorKind) -> TensorId {
        self.tensor(name, ElementType::F32, Shape::known(dims), kind)
    }

    pub fn input(&mut self, name: &str, dims: &[u64]) -> TensorId {
        let id = self.f32(name, dims, TensorKind::Input);
        self.graph.inputs.push(id);
        id
    }

    pub fn weight(&mut self, name: &str, dims: &[u64]) -> TensorId {
        self.f32(name, dims, TensorKind::Weight)
    }

    /// An operator with one f32 output.
    pub fn op(&mut self, kind: &str, inputs: &[TensorId], name: &str, dims: &[u64]) -> TensorId {
        let out = self.f32(name, dims, TensorKind::Computed);
        self.raw(kind, inputs, &[out]);
        out
    }

    pub fn raw(&mut self, kind: &str, inputs: &[TensorId], outputs: &[TensorId]) -> &mut Operator {
        let name = format!("{kind}_{}", self.graph.operators.len());
        self.graph.operators.push(Operator {
            name,
            kind: kind.to_owned(),
            domain: String::new(),
            inputs: inputs.iter().copied().map(Some).collect(),
            outputs: outputs.iter().copied().map(Some).collect(),
            attributes: Default::default(),
            constants: Default::default(),
            bodies: Vec::new(),
        });
        self.graph.operators.last_mut().unwrap()
    }

    pub fn last(&mut self) -> &mut Operator {
        self.graph.operators.last_mut().unwrap()
    }

    pub fn attribute(&mut self, name: &str, value: Attribute) {
        self.last().attributes.insert(name.to_owned(), value);
    }

    pub fn body(&mut self, name: &str, graph: Graph) {
        self.last().bodies.push(Body { name: name.to_owned(), graph });
    }

    pub fn output(&mut self, id: TensorId) {
        self.graph.outputs.push(id);
    }

    pub fn symbol(&mut self, name: &str, range: Option<(u64, u64)>) -> Dim {
        self.graph.symbols.push(Symbol { name: name.to_owned(), range });
        Dim::Symbol(SymbolId::new(self.graph.symbols.len() - 1))
    }
}

pub fn space(alignment: u64) -> MainSpace {
    MainSpace {
        name: "HBM".to_owned(),
        capacity: None,
        alignment: Alignment::new(alignment).unwrap(),
        reserved: Vec::new(),
    }
}
