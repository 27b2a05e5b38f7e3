//! Functions of a file: where their bodies are, who calls whom, and calls themselves.

use super::memory::external_memory;
use super::{Frame, Lowering};
use crate::pto::PtoError;
use crate::pto::parse::{Clause, Item, RawOp};
use crate::pto::scope::{Scope, Value};
use crate::pto::types::Type;
use npumem_ir::program::{Affine, Core, MAX_STEPS};

/// A function of the file.
#[derive(Debug)]
pub(super) struct Function<'s> {
    pub name: &'s str,
    pub at: usize,
    /// Items of the body, without its brackets; `None` for a declaration.
    pub body: Option<(usize, usize)>,
    /// First byte inside the body.
    pub body_byte: usize,
    pub arguments: Vec<(&'s str, &'s str, usize)>,
    pub core: Core,
    /// Functions that it calls, with the byte of the call.
    pub calls: Vec<(usize, usize)>,
    /// Called by another.
    pub called: bool,
}

/// All functions, in order; refuses recursion and two functions of one name.
pub(super) fn find_functions<'s>(source: &str, items: &[Item<'s>]) -> Result<Vec<Function<'s>>, PtoError> {
    let mut functions: Vec<Function<'s>> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut close = vec![0; items.len()];
    for (index, item) in items.iter().enumerate() {
        match item {
            Item::Open => open.push(index),
            Item::Close => {
                if let Some(opener) = open.pop() {
                    close[opener] = index;
                }
            }
            _ => {}
        }
    }
    for (index, item) in items.iter().enumerate() {
        let Item::Op(op) = item else { continue };
        if !matches!(op.name, "func.func" | "func") {
            continue;
        }
        let name = op.clauses.iter().find_map(|clause| match clause {
            Clause::Literal(name, _) if name.starts_with('@') => Some(&name[1..]),
            _ => None,
        });
        let name = name.unwrap_or("");
        if functions.iter().any(|f| f.name == name) {
            return Err(PtoError::at(source, op.start, format!("a second function '@{name}'")));
        }
        let body = matches!(items.get(index + 1), Some(Item::Open)).then(|| (index + 2, close[index + 1]));
        let arguments = op.group("").map_or(&[][..], |(items, _)| items);
        let kind = op.attributes().iter().find(|(key, _)| *key == "pto.kernel_kind").map_or("", |(_, value)| *value);
        functions.push(Function {
            name,
            at: op.start,
            body,
            body_byte: source[op.end..].find('{').map_or(op.end, |brace| op.end + brace + 1),
            arguments: arguments.iter().map(|a| (a.text, a.ty.unwrap_or(""), a.at)).collect(),
            core: if kind.contains("cube") {
                Core::Cube
            } else if kind.contains("vector") {
                Core::Vector
            } else {
                Core::Any
            },
            calls: Vec::new(),
            called: false,
        });
    }
    find_calls(items, &mut functions);
    let order = refuse_recursion(source, &functions)?;
    refuse_growth(source, items, &functions, &order)?;
    Ok(functions)
}

/// Counts, callees first, what is walked once calls are inlined: two calls a function double at every level.
fn refuse_growth(
    source: &str,
    items: &[Item<'_>],
    functions: &[Function<'_>],
    order: &[usize],
) -> Result<(), PtoError> {
    // A file without calls is as long as it is; what calls add may come to a few items a statement.
    let most = MAX_STEPS.saturating_mul(4).saturating_add(items.len());
    let mut inlined = vec![0_usize; functions.len()];
    for function in order {
        let info = &functions[*function];
        let own = info.body.map_or(0, |(start, end)| end.saturating_sub(start));
        let total = info.calls.iter().fold(own, |sum, (callee, _)| sum.saturating_add(inlined[*callee]));
        inlined[*function] = total;
    }
    match roots(functions).into_iter().find(|root| inlined[*root] > most) {
        None => Ok(()),
        Some(root) => {
            let problem = format!(
                "'@{}' comes to {} operations once calls are inlined, more than {most}",
                functions[root].name, inlined[root]
            );
            Err(PtoError::at(source, functions[root].at, problem))
        }
    }
}

fn find_calls(items: &[Item<'_>], functions: &mut [Function<'_>]) {
    for caller in 0..functions.len() {
        let Some((start, end)) = functions[caller].body else { continue };
        for item in &items[start..end] {
            let Item::Op(op) = item else { continue };
            let Some(callee) = callee(op).and_then(|name| functions.iter().position(|f| f.name == name)) else {
                continue;
            };
            functions[caller].calls.push((callee, op.start));
            functions[callee].called = true;
        }
    }
}

fn callee<'s>(op: &RawOp<'s>) -> Option<&'s str> {
    if !matches!(op.name, "call" | "func.call") {
        return None;
    }
    op.clauses.iter().find_map(|clause| match clause {
        Clause::Literal(name, _) => name.strip_prefix('@'),
        Clause::Group { keyword: Some(name), .. } => name.strip_prefix('@'),
        _ => None,
    })
}

/// Depth-first over the calls, with an explicit stack; the functions, callees first.
fn refuse_recursion(source: &str, functions: &[Function<'_>]) -> Result<Vec<usize>, PtoError> {
    let mut order = Vec::with_capacity(functions.len());
    let mut state = vec![0_u8; functions.len()];
    for root in 0..functions.len() {
        let mut stack = vec![(root, 0)];
        while let Some((function, next)) = stack.pop() {
            if next == 0 {
                if state[function] == 2 {
                    continue;
                }
                state[function] = 1;
            }
            match functions[function].calls.get(next) {
                None => {
                    state[function] = 2;
                    order.push(function);
                }
                Some((callee, at)) => {
                    if state[*callee] == 1 {
                        let problem = format!(
                            "'@{}' calls itself through '@{}': recursion has no static memory plan",
                            functions[*callee].name, functions[function].name
                        );
                        return Err(PtoError::at(source, *at, problem));
                    }
                    stack.push((function, next + 1));
                    stack.push((*callee, 0));
                }
            }
        }
    }
    Ok(order)
}

/// Functions with a body that nothing calls.
pub(super) fn roots(functions: &[Function<'_>]) -> Vec<usize> {
    (0..functions.len()).filter(|f| functions[*f].body.is_some() && !functions[*f].called).collect()
}

impl<'s> Lowering<'s, '_> {
    /// Starts walking a function; its arguments are given, or come from outside.
    pub(super) fn enter_function(
        &mut self,
        function: usize,
        arguments: Option<Vec<Value>>,
        results: Vec<(&'s str, usize)>,
    ) -> Result<(), PtoError> {
        let info = &self.functions[function];
        let Some((cursor, end)) = info.body else { return Ok(()) };
        let core = if info.core == Core::Any { self.core() } else { info.core };
        self.frames.push(Frame {
            function,
            cursor,
            end,
            scope: Scope::default(),
            regions: Vec::new(),
            results,
            returned: Vec::new(),
            core,
        });
        match arguments {
            Some(values) => {
                for ((name, ..), value) in info.arguments.iter().zip(values) {
                    self.set(name, value);
                }
            }
            None => {
                for (name, ty, at) in &info.arguments {
                    let value = self.outside(name, ty, *at)?;
                    self.set(name, value);
                }
            }
        }
        Ok(())
    }

    /// An argument of the kernel.
    fn outside(&mut self, name: &str, ty: &str, at: usize) -> Result<Value, PtoError> {
        let plain = name.trim_start_matches('%');
        Ok(match self.ty(ty, at)? {
            Type::Int => {
                let bound = self.options.dims.get(plain).copied();
                let name = self.scalar_name(plain);
                let value = Affine::scalar(self.builder.argument(name, bound));
                Value::Int(if ty.trim() == "i1" { self.truth(value) } else { value })
            }
            Type::Real => Value::NamedReal(plain.to_owned()),
            Type::Other => Value::Other,
            ty => external_memory(self, name, &ty, at)?,
        })
    }

    /// A call: inlined, or opaque when the function has no body here.
    pub(super) fn call(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let name = callee(op).ok_or_else(|| self.error(op.start, "a call needs the function's @name"))?;
        let index = self.functions.iter().position(|f| f.name == name);
        let Some(index) = index else { return Err(self.error(op.start, format!("no function '@{name}'"))) };
        let mut values = Vec::new();
        for clause in &op.clauses {
            if let Clause::Group { items, .. } = clause {
                for item in items {
                    values.push((item.text, item.at));
                }
            }
        }
        let function = &self.functions[index];
        if values.len() != function.arguments.len() {
            let problem = format!("'@{name}' takes {} arguments, {} given", function.arguments.len(), values.len());
            return Err(self.error(op.start, problem));
        }
        if function.body.is_none() {
            return self.unknown_operation(op);
        }
        let mut arguments = Vec::new();
        for (value, at) in values {
            arguments.push(self.get(value, at)?);
        }
        // A parameter type that does not parse is an error of the file, found where it stands.
        for (_, ty, at) in &function.arguments {
            self.ty(ty, *at)?;
        }
        self.enter_function(index, Some(arguments), op.results.clone())
    }
}
