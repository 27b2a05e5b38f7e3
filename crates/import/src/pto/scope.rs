//! SSA names and what they stand for.

use npumem_ir::program::{Affine, Layout, Root};
use npumem_ir::{ElementType, ScalarId};
use std::collections::HashMap;

/// What a `%name` stands for.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// An integer.
    Int(Affine),
    /// A float constant.
    Real(f64),
    /// A float from outside, by name.
    NamedReal(String),
    /// Memory: a tile, a memref, a tensor view, a pointer.
    Memory(Box<Memory>),
    /// The queue number of a pipe.
    Pipe(usize),
    /// An array of event numbers: a variable for each.
    Events(Vec<ScalarId>),
    /// Events, sessions, vectors.
    Other,
}

/// A place in memory with the shape that operations see.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Memory {
    pub root: Root,
    pub slot: Affine,
    /// Byte where it starts.
    pub start: Affine,
    pub space: String,
    pub element: ElementType,
    pub shape: Vec<Affine>,
    /// Bytes from one to the next along each dimension; `None` when it is not a number.
    pub strides: Vec<Option<i64>>,
    pub layout: Layout,
    /// Whether an access covers exactly `shape` by `strides`; else it touches some of the whole slot.
    pub exact: bool,
    /// Whether it covers its whole slot.
    pub whole: bool,
}

/// Names of one function body, with an undo list per region.
#[derive(Debug, Default)]
pub(super) struct Scope {
    values: HashMap<String, Value>,
    marks: Vec<Vec<(String, Option<Value>)>>,
}

impl Scope {
    pub fn enter(&mut self) {
        self.marks.push(Vec::new());
    }

    pub fn leave(&mut self) {
        for (name, before) in self.marks.pop().unwrap_or_default().into_iter().rev() {
            match before {
                Some(value) => self.values.insert(name, value),
                None => self.values.remove(&name),
            };
        }
    }

    pub fn set(&mut self, name: &str, value: Value) {
        let before = self.values.insert(name.to_owned(), value);
        if let Some(mark) = self.marks.last_mut() {
            mark.push((name.to_owned(), before));
        }
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }
}
