//! From operations to programs: functions, calls, loops and branches.
//!
//! A call of a function of the file is inlined: its body is walked with a frame of its own. The walk keeps
//! its frames and open regions on explicit stacks, so depth costs memory that [`MAX_STEPS`] bounds, never the
//! machine's stack.

mod arith;
mod functions;
mod integers;
mod memory;
mod operations;
mod queues;
mod regions;
mod scratch;
mod stated;
mod sync;

use super::lines::Lines;
use super::names;
use super::parse::{Item, RawOp, parse};
use super::scope::{Scope, Value};
use super::types::{self, Type};
use super::{Kernel, Module, Options, PtoError, Site, UnknownOperation};
use functions::{Function, find_functions, roots};
use npumem_ir::program::{Affine, Buffer, Core, MAX_STEPS, Op, ProgramBuilder, Step};
use npumem_ir::{BufferId, ScalarId};
use queues::Queue;
use regions::Region;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Reads a file.
pub(super) fn lower(source: &str, options: &Options) -> Result<Module, PtoError> {
    let items = parse(source)?;
    names::check(source, &items)?;
    let aliases = aliases(source, &items)?;
    let functions = find_functions(source, &items)?;
    let target = items.iter().find_map(|item| match item {
        Item::Op(op) if op.name.ends_with("module") => op
            .attributes()
            .iter()
            .find(|(key, _)| matches!(*key, "pto.target_arch" | "pto.device-spec"))
            .map(|(_, value)| value.trim_matches('"').to_owned()),
        _ => None,
    });
    queues::check_peers(source, &items, &functions)?;
    let mut module =
        Module { programs: Vec::new(), target, unknown: Vec::new(), notes: Vec::new(), dims: BTreeSet::new() };
    let mut unknown = BTreeSet::new();
    let lines = Lines::new(source);
    for root in roots(&functions) {
        let mut lowering = Lowering::new(&lines, (source, &items), &functions, options, root);
        lowering.aliases = Some(&aliases);
        lowering.builder.program_mut().target = module.target.clone();
        lowering.architecture = module.target.clone().or_else(|| options.architecture.clone());
        lowering.function(root)?;
        for (at, name) in lowering.unknown {
            if unknown.insert(at) {
                let (line, column) = lines.position(at);
                module.unknown.push(UnknownOperation { name: name.to_owned(), line, column });
            }
        }
        for note in lowering.notes {
            if !module.notes.contains(&note) {
                module.notes.push(note);
            }
        }
        let at = functions[root].at;
        let program = lowering.builder.finish();
        let mut program = program.map_err(|e| PtoError::at(source, at, format!("{}: {}", e.place, e.problem)))?;
        program.settle_addresses();
        for (at, buffer) in &lowering.allocated {
            let address = program.buffer(*buffer).address.as_ref().and_then(Affine::as_constant);
            if let Some(address) = address.filter(|address| *address < 0) {
                let name = &program.buffer(*buffer).name;
                return Err(PtoError::at(
                    source,
                    *at,
                    format!("the address of '{name}' comes to {address}, which is negative"),
                ));
            }
        }
        module.dims.extend(program.dimensions().map(str::to_owned));
        module.programs.push(Kernel { program, sites: lowering.sites });
    }
    Ok(module)
}

/// Types that the file names at its top; a name of a name is followed.
fn aliases<'s>(source: &str, items: &[Item<'s>]) -> Result<BTreeMap<&'s str, &'s str>, PtoError> {
    let mut aliases = BTreeMap::new();
    for item in items {
        if let Item::Alias { name, ty } = item {
            // Only names that stand before it are followed, so there is no circle.
            let ty = aliases.get(ty).copied().unwrap_or(*ty);
            if aliases.insert(*name, ty).is_some() {
                let at = (name.as_ptr() as usize).saturating_sub(source.as_ptr() as usize);
                return Err(PtoError::at(source, at, format!("the type '{name}' is defined a second time")));
            }
        }
    }
    Ok(aliases)
}

/// One function body being walked.
struct Frame<'s> {
    function: usize,
    /// Next item, and the item that closes the body.
    cursor: usize,
    end: usize,
    scope: Scope,
    regions: Vec<Region<'s>>,
    /// Names in the caller that the results are given to.
    results: Vec<(&'s str, usize)>,
    returned: Vec<Value>,
    /// How many regions of the program enclose the call.
    core: Core,
}

/// The state of one program being built.
struct Lowering<'s, 'i> {
    source: &'s str,
    lines: &'i Lines<'s>,
    items: &'i [Item<'s>],
    functions: &'i [Function<'s>],
    /// Types that the file names.
    aliases: Option<&'i BTreeMap<&'s str, &'s str>>,
    options: &'i Options,
    builder: ProgramBuilder,
    frames: Vec<Frame<'s>>,
    sites: Vec<Site>,
    /// Buffers by the byte where they are allocated: a body inlined twice allocates once.
    allocated: BTreeMap<usize, BufferId>,
    buffer_names: Taken,
    scalar_names: Taken,
    handle_names: Taken,
    queues: Vec<Queue>,
    /// Counters of loops that start at 0 or above.
    counters_from_zero: BTreeSet<ScalarId>,
    /// What the library is for: the file's target, else the caller's.
    architecture: Option<String>,
    /// The library's own scratch, once an operation uses it.
    hidden: Option<BufferId>,
    unknown: Vec<(usize, &'s str)>,
    notes: Vec<String>,
}

impl<'s, 'i> Lowering<'s, 'i> {
    fn new(
        lines: &'i Lines<'s>,
        (source, items): (&'s str, &'i [Item<'s>]),
        functions: &'i [Function<'s>],
        options: &'i Options,
        root: usize,
    ) -> Self {
        Lowering {
            source,
            lines,
            items,
            functions,
            aliases: None,
            options,
            builder: ProgramBuilder::new(functions[root].name),
            frames: Vec::new(),
            sites: Vec::new(),
            allocated: BTreeMap::new(),
            buffer_names: Taken::default(),
            scalar_names: Taken::default(),
            handle_names: Taken::default(),
            queues: Vec::new(),
            counters_from_zero: BTreeSet::new(),
            architecture: None,
            hidden: None,
            unknown: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn error(&self, at: usize, problem: impl Into<String>) -> PtoError {
        PtoError::at(self.source, at, problem)
    }

    fn line(&self, at: usize) -> u32 {
        self.lines.line(at)
    }

    fn frame(&mut self) -> &mut Frame<'s> {
        // The walk only runs while a frame is open.
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    fn core(&self) -> Core {
        self.frames.last().map_or(Core::Any, |frame| frame.core)
    }

    fn set(&mut self, name: &str, value: Value) {
        self.frame().scope.set(name, value);
    }

    /// Gives an operation's results, in order; `%a:2` is `%a#0` and `%a#1`.
    fn set_results(&mut self, results: &[(&'s str, usize)], values: Vec<Value>) {
        let mut values = values.into_iter();
        for (name, count) in results {
            for index in 0..*count {
                let value = values.next().unwrap_or(Value::Other);
                if index == 0 {
                    self.set(name, value.clone());
                }
                self.set(&format!("{name}#{index}"), value);
            }
        }
    }

    fn get(&self, name: &str, at: usize) -> Result<Value, PtoError> {
        let found = self.frames.last().and_then(|frame| frame.scope.get(name));
        found.cloned().ok_or_else(|| self.error(at, format!("'{name}' is used before it is defined")))
    }

    /// An integer operand: a `%value` or a literal. What is no integer is a value nobody knows.
    fn int(&mut self, text: &str, at: usize) -> Result<Affine, PtoError> {
        if text.starts_with('%') {
            return match self.get(text, at)? {
                Value::Int(affine) => Ok(affine),
                _ => Ok(self.opaque()),
            };
        }
        arith::literal(text)
            .map(Affine::constant)
            .ok_or_else(|| self.error(at, format!("'{text}' is not a number that fits 64 bits")))
    }

    /// A value that nobody knows: one for each turn of the loops around it, the same for the whole run outside of them.
    fn opaque(&mut self) -> Affine {
        let mut of = vec![Affine::constant(0)];
        for region in self.frames.iter().flat_map(|frame| &frame.regions) {
            match region {
                Region::For { counter, .. } => of.push(Affine::scalar(*counter)),
                Region::If { .. } | Region::Section(_) => {}
                // Turns without a counter: another value at every look.
                Region::Before { .. } | Region::After { .. } | Region::Unknown => {
                    of.clear();
                    break;
                }
            }
        }
        Affine::scalar(self.builder.computed(Op::Opaque, of))
    }

    /// A value of type `i1` as 0 or 1.
    fn truth(&mut self, value: Affine) -> Affine {
        self.builder.value(Op::Ne, vec![value, Affine::constant(0)])
    }

    /// A type; `text` is a piece of the source, so a fault is shown where it stands.
    fn ty(&self, text: &str, at: usize) -> Result<Type, PtoError> {
        let named = self.aliases.and_then(|aliases| aliases.get(text.trim()));
        let text = named.copied().unwrap_or(text);
        types::parse(text).map_err(|problem| {
            let place = (text.as_ptr() as usize).checked_sub(self.source.as_ptr() as usize);
            self.error(place.filter(|place| *place <= self.source.len()).unwrap_or(at), problem)
        })
    }

    /// A name that no other buffer of the program has.
    fn buffer_name(&mut self, name: &str) -> String {
        unique(&mut self.buffer_names, name)
    }

    fn scalar_name(&mut self, name: &str) -> String {
        unique(&mut self.scalar_names, name)
    }

    fn handle_name(&mut self, name: &str) -> String {
        unique(&mut self.handle_names, name)
    }

    fn add_buffer(&mut self, buffer: Buffer) -> BufferId {
        self.builder.buffer(buffer)
    }

    /// Walks a function and everything it calls.
    fn function(&mut self, root: usize) -> Result<(), PtoError> {
        self.enter_function(root, None, Vec::new())?;
        while let Some(frame) = self.frames.last_mut() {
            if frame.cursor >= frame.end {
                if let Some(done) = self.frames.pop()
                    && !self.frames.is_empty()
                {
                    self.set_results(&done.results, done.returned);
                }
                continue;
            }
            let at = frame.cursor;
            frame.cursor += 1;
            if self.builder.program().steps.len() > MAX_STEPS {
                let at = self.functions[root].at;
                return Err(self.error(at, format!("more than {MAX_STEPS} statements once calls are inlined")));
            }
            match &self.items[at] {
                Item::Op(op) => self.operation(op)?,
                Item::Open | Item::Alias { .. } => {}
                Item::Next(word) => self.next_region(word)?,
                Item::Label(arguments) => self.label(arguments)?,
                Item::Close => self.close_region(at)?,
            }
        }
        Ok(())
    }

    fn operation(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        self.check_types(op)?;
        match op.name {
            "return" | "func.return" => {
                let mut returned = Vec::new();
                for (name, at) in op.values() {
                    returned.push(self.get(name, at)?);
                }
                self.frame().returned = returned;
                Ok(())
            }
            "call" | "func.call" => self.call(op),
            "module" | "builtin.module" => Ok(()),
            name if name.starts_with("scf.") => self.control(op),
            name if name.starts_with("pto.section") => {
                let before = self.core();
                self.frame().core = if name.ends_with("cube") { Core::Cube } else { Core::Vector };
                self.frame().regions.push(Region::Section(before));
                self.frame().scope.enter();
                Ok(())
            }
            name if name.starts_with("arith.") || name.starts_with("index.") || name.starts_with("math.") => {
                self.arith(op)
            }
            name if name.starts_with("memref.") => self.memref(op),
            name => match name.strip_prefix("pto.") {
                Some(short) => self.pto(op, short),
                None => self.unknown_operation(op),
            },
        }
    }

    fn step(&mut self, step: Step) {
        self.builder.step(step);
    }
}

/// Names that are given, each with the number that its next namesake tries first: a thousand loops may all count `%i`.
type Taken = HashMap<String, u64>;

fn unique(taken: &mut Taken, name: &str) -> String {
    let name = name.trim_start_matches('%');
    let Some(next) = taken.get(name).copied() else {
        taken.insert(name.to_owned(), 2);
        return name.to_owned();
    };
    let mut number = next;
    loop {
        let candidate = format!("{name}.{number}");
        number += 1;
        if !taken.contains_key(&candidate) {
            taken.insert(name.to_owned(), number);
            taken.insert(candidate.clone(), 2);
            return candidate;
        }
    }
}
