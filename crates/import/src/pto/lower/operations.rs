//! `pto` operations: what each reads and writes, and on which engine.

use super::Lowering;
use super::memory::access;
use crate::pto::PtoError;
use crate::pto::dialect::{self, Engine, Scratch};
use crate::pto::parse::{Entry, RawOp};
use crate::pto::scope::{Memory, Value};
use crate::pto::types::Type;
use npumem_ir::program::{Access, Affine, Buffer, Extent, InPlace, Number, Operation, Role, Root, ScalarKind, Step};

/// One element of a tile, by its number from the start; some of the tile where that is not plain.
fn one_element(memory: &Memory, index: Option<&Affine>) -> Access {
    let bytes = i64::try_from(memory.element.bits() / 8).unwrap_or(0);
    match index.filter(|_| memory.exact && bytes > 0) {
        Some(index) => {
            let extents = vec![Extent { count: Affine::constant(1), stride: bytes }];
            Access { start: memory.start.plus(&index.times(bytes)), extents, ..access(memory) }
        }
        None => Access { certain: false, ..access(memory) },
    }
}

impl<'s> Lowering<'s, '_> {
    pub(super) fn pto(&mut self, op: &RawOp<'s>, short: &'s str) -> Result<(), PtoError> {
        match short {
            "alloc_tile" => self.alloc_tile(op),
            "pointer_cast" => self.pointer_cast(op),
            "make_tensor_view" => self.tensor_view(op),
            // `%t, offsets = [..]`, or `%t[..]`.
            "partition_view" | "subview" if op.group("offsets").is_some() => self.part(op, "offsets"),
            "partition_view" | "subview" | "subset" => self.part(op, ""),
            "addptr" => self.add_pointer(op),
            "treshape" | "bitcast" | "bind_tile" | "tbitcast" => self.reshape(op),
            "tassign" => self.tassign(op),
            "declare_tile" => self.declare_tile(op),
            "reserve_buffer" => self.reserve(op),
            "import_reserved_buffer" => self.import_reserved(op),
            "aic_initialize_pipe" | "aiv_initialize_pipe" => self.initialize_pipes(op, short),
            "initialize_l2l_pipe" | "initialize_l2g2l_pipe" => self.initialize_pipe(op),
            "tpush_to_aiv" | "tpush_to_aic" | "tpush" => self.push(op),
            "tpop_from_aic" | "tpop_from_aiv" | "tpop" => self.pop(op, short),
            "get_block_idx" | "get_subblock_idx" | "get_block_num" | "get_subblock_num" => self.grid(op, short),
            // No memory: queue slots given back, shapes, declarations.
            "tfree_from_aic" | "tfree_from_aiv" | "tfree" | "set_ffts" | "tsync" => {
                self.give_opaque(op);
                Ok(())
            }
            "set_validshape" => self.set_valid(op),
            "declare_eventid_array" => self.declare_events(op),
            "eventid_array_set" | "eventid_array_get" => self.event_of_array(op, short),
            "get_tensor_view_dim" => {
                self.give_opaque(op);
                Ok(())
            }
            "barrier" | "barrier_sync" | "set_flag" | "wait_flag" | "set_flag_dyn" | "wait_flag_dyn"
            | "record_event" | "wait_event" | "get_buf" | "rls_buf" | "sync.set" | "sync.wait" => {
                self.synchronize(op, short)
            }
            "build_async_session" | "tput_async" | "tget_async" | "wait_async_event" | "test_async_event" => {
                self.transfer(op, short)
            }
            _ => self.tile_operation(op, short),
        }
    }

    fn grid(&mut self, op: &RawOp<'s>, short: &str) -> Result<(), PtoError> {
        let known = self.builder.program().scalars.iter().position(|s| s.name == short);
        let id = match known {
            Some(index) => npumem_ir::ScalarId::new(index),
            None => {
                let name = self.scalar_name(short);
                let bound = self.options.dims.get(short).copied();
                let kind = match (short.ends_with("_idx"), bound) {
                    (true, None) => ScalarKind::Grid(None),
                    (_, bound) => ScalarKind::Argument(bound),
                };
                self.builder.scalar(name, kind)
            }
        };
        self.set_results(&op.results, vec![Value::Int(Affine::scalar(id))]);
        Ok(())
    }

    /// The valid shape changes: from here on the operation sees the new one. Its bytes stay the whole tile.
    fn set_valid(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let values = op.values();
        let [(name, at), dims @ ..] = values.as_slice() else {
            return Err(self.error(op.start, "set_validshape needs a tile"));
        };
        if let Value::Memory(memory) = self.get(name, *at)? {
            let mut shape = Vec::new();
            for (dim, at) in dims {
                shape.push(self.int(dim, *at)?);
            }
            let changed = Memory { shape, whole: true, ..*memory };
            self.set(name, Value::Memory(Box::new(changed)));
        }
        Ok(())
    }

    /// Copies between cores over the network: not of this program's engines.
    fn transfer(&mut self, op: &RawOp<'s>, short: &str) -> Result<(), PtoError> {
        if short.ends_with("_async") && short.starts_with('t') && !short.starts_with("test") {
            let found = self.all_memory(op);
            if let [to, from, ..] = found.as_slice() {
                let operation = Operation {
                    reads: vec![access(from)],
                    writes: vec![access(to)],
                    core: self.core(),
                    line: self.line(op.start),
                    ..Operation::new(short, "mte3")
                };
                self.builder.run(operation);
            }
        }
        let values = op.results.iter().map(|_| Value::Other).collect();
        self.set_results(&op.results, values);
        Ok(())
    }

    /// `pto.name ins(..) outs(..)`, or the generic form.
    fn tile_operation(&mut self, op: &RawOp<'s>, short: &'s str) -> Result<(), PtoError> {
        let Some(known) = dialect::known(short) else { return self.unknown_operation(op) };
        let (ins, outs) = self.operands(op)?;
        let mut operation = Operation {
            core: self.core(),
            in_place: known.in_place,
            line: self.line(op.start),
            ..Operation::new(short, "")
        };
        for (key, value) in op.attributes() {
            operation.attributes.insert(key.to_owned(), value.to_owned());
        }
        let (mut read, mut written) = (Vec::new(), Vec::new());
        for entry in &ins {
            match self.get(entry.text, entry.at)? {
                Value::Memory(memory) => read.push(*memory),
                Value::Int(affine) => operation.scalars.push(Number::Int(affine)),
                Value::Real(number) => operation.scalars.push(Number::Real(number)),
                Value::NamedReal(name) => operation.scalars.push(Number::Named(name)),
                Value::Pipe(_) | Value::Events(_) | Value::Other => {}
            }
        }
        for entry in &outs {
            if let Value::Memory(memory) = self.get(entry.text, entry.at)? {
                written.push(*memory);
            }
        }
        let from = read.first().map_or("", |m| m.space.as_str());
        let to = written.first().map_or("", |m| m.space.as_str());
        if matches!(short, "tmov" | "tinsert" | "textract") && from != "acc" && to == "acc" {
            let problem = format!("no engine moves from {from} into acc: only matmul writes there");
            return Err(self.error(op.start, problem));
        }
        if short == "tget_scale_addr" && to != "scaling" {
            return Err(self.error(op.start, format!("tget_scale_addr writes to the scaling space, not to {to}")));
        }
        if short == "tcvt"
            && let ([source], [target]) = (read.as_slice(), written.as_slice())
            && source.shape.iter().chain(&target.shape).all(|d| d.as_constant().is_some())
            && source.shape != target.shape
        {
            return Err(self.error(op.start, "tcvt needs the same valid shape on both sides"));
        }
        operation.engine = match known.engine {
            Engine::Fixed(name) => name.to_owned(),
            Engine::ByMove => dialect::mover(from, to).to_owned(),
        };
        let Scratch::LastFrom(least) = (match known.scratch {
            Scratch::None => Scratch::LastFrom(usize::MAX),
            some => some,
        }) else {
            return Ok(());
        };
        let scratch = if ins.len() >= least { read.pop() } else { None };
        let hidden = if scratch.is_none() { self.hidden_scratch(short, &read, &written) } else { None };
        operation.reads = read.iter().map(access).collect();
        // Only part of a tile is written: what stays is read by nobody here, and is not written either.
        operation.writes = written.iter().map(access).collect();
        if short == "taxpy" {
            // y = a x + y
            operation.reads.extend(written.first().map(access));
        }
        if let Some(scratch) = scratch {
            operation.writes.push(access(&scratch));
            operation.attributes.insert("scratch".into(), "last write".into());
        }
        if let Some(hidden) = hidden {
            operation.writes.push(hidden);
            operation.attributes.insert("scratch".into(), "last write".into());
        }
        if matches!(short, "tinsert" | "tinsert_fp" | "tscatter" | "mscatter") {
            // Some of the target: which part is in operands that only the values need.
            for write in &mut operation.writes {
                write.certain = false;
            }
        }
        if matches!(short, "tsetval" | "tgetval") {
            let index = operation.scalars.iter().find_map(|scalar| match scalar {
                Number::Int(index) => Some(index.clone()),
                _ => None,
            });
            let (memory, list) = match short {
                "tsetval" => (written.first(), &mut operation.writes),
                _ => (read.first(), &mut operation.reads),
            };
            list.truncate(0);
            list.extend(memory.map(|memory| one_element(memory, index.as_ref())));
        }
        if short == "tprint" || short == "print" {
            operation.writes.clear();
        }
        self.builder.run(operation);
        self.give_opaque(op);
        Ok(())
    }

    /// Operands of the custom form, or of `"pto.name"(%a, %b) <{operandSegmentSizes = array<i32: 1, 1>}>`.
    fn operands(&self, op: &RawOp<'s>) -> Result<(Vec<Entry<'s>>, Vec<Entry<'s>>), PtoError> {
        let values = |list: &[Entry<'s>]| -> Vec<Entry<'s>> {
            list.iter().filter(|entry| entry.text.starts_with('%')).cloned().collect()
        };
        let (ins, outs) = (op.group("ins"), op.group("outs"));
        if ins.is_some() || outs.is_some() {
            let ins = ins.map(|(items, _)| values(items)).unwrap_or_default();
            let outs = outs.map(|(items, _)| values(items)).unwrap_or_default();
            return Ok((ins, outs));
        }
        let Some((items, _)) = op.group("") else {
            return Err(self.error(op.name_end, "expected 'ins(...)' and 'outs(...)'"));
        };
        // The generic form lists sources, one destination, then options.
        let all = values(items);
        let out = if all.len() >= 2 { 1 } else { 0 };
        let outs = all.get(out).cloned().into_iter().collect();
        let ins = all.iter().enumerate().filter(|(index, _)| *index != out).map(|(_, entry)| entry.clone()).collect();
        Ok((ins, outs))
    }

    /// An operation that is not known: it reads all its inputs and writes all its outputs.
    pub(super) fn unknown_operation(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        self.unknown.push((op.start, op.name));
        let outs = op.group("outs").map(|(items, _)| items.to_vec()).unwrap_or_default();
        let all = self.all_memory(op);
        let mut operation = Operation {
            core: self.core(),
            in_place: InPlace::Never,
            known: false,
            line: self.line(op.start),
            ..Operation::new(op.name, "v")
        };
        let named: Vec<Memory> = outs
            .iter()
            .filter_map(|entry| match self.frames.last()?.scope.get(entry.text)? {
                Value::Memory(memory) => Some((**memory).clone()),
                _ => None,
            })
            .collect();
        let split = op.group("ins").is_some() || op.group("outs").is_some();
        for memory in &all {
            let is_out = named.contains(memory);
            if !split || !is_out {
                // Without `ins` and `outs` nobody says which operands it reads, or how much of them.
                operation.reads.push(Access { certain: split, ..access(memory) });
            }
        }
        if split {
            // Perhaps all of them, perhaps a part.
            operation.writes = named.iter().map(|memory| Access { certain: false, ..access(memory) }).collect();
        } else {
            // Which operands it writes is not known: perhaps all of them.
            operation.in_place = InPlace::Always;
            for memory in &all {
                let mut write = access(memory);
                write.certain = false;
                operation.writes.push(write);
            }
        }
        let mut results = Vec::new();
        let types: Vec<&str> = if op.arrow().is_empty() { op.types().to_vec() } else { op.arrow().to_vec() };
        let names: Vec<(&str, usize)> = op.results.clone();
        for (index, (name, count)) in names.iter().enumerate() {
            for _ in 0..*count {
                let ty = types.get(index).map(|text| self.ty(text, op.start)).transpose()?.unwrap_or(Type::Other);
                results.push(match ty {
                    Type::Int => Value::Int(self.opaque()),
                    Type::Real => Value::NamedReal((*name).to_owned()),
                    Type::Other => Value::Other,
                    Type::Tile(tile) => {
                        let name = self.buffer_name(name);
                        let line = self.line(op.start);
                        let buffer = Buffer {
                            element: tile.element,
                            shape: tile.shape.clone(),
                            role: Role::External,
                            line,
                            ..Buffer::tile(name, tile.space.clone(), tile.bytes().unwrap_or(0))
                        };
                        let id = self.add_buffer(buffer);
                        let memory = self.queue_memory(Root::Buffer(id), &tile, Affine::constant(0), tile.bytes());
                        operation.writes.push(access(&memory));
                        Value::Memory(Box::new(memory))
                    }
                    ty => super::memory::external_memory(self, name, &ty, op.start)?,
                });
            }
        }
        self.step(Step::Run(operation));
        self.set_results(&op.results, results);
        Ok(())
    }
}
