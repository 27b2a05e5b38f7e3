//! Queues of tiles between the matrix and the vector core: reserved memory, slots in rotation.

use super::Lowering;
use super::functions::Function;
use super::memory::access;
use crate::pto::parse::{Clause, Item, RawOp};
use crate::pto::scope::Value;
use crate::pto::types::{Type, space_name};
use crate::pto::{PtoError, Site, SiteForm, dialect};
use npumem_ir::program::{Affine, Assign, Buffer, Op, Operation, Role, Root, ScalarKind, Step};
use npumem_ir::{Alignment, BufferId, ScalarId};

/// A queue that this program takes tiles from or gives tiles to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// Its slots, when they lie in memory of this core.
    buffer: Option<BufferId>,
    slot_bytes: Option<u64>,
    /// The slot of the next tile.
    next: ScalarId,
    /// Which kind of pipe initialised it.
    from_cube: bool,
}

fn attribute<'s>(op: &RawOp<'s>, key: &str) -> Option<&'s str> {
    op.attributes().iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
}

impl<'s> Lowering<'s, '_> {
    fn number_attribute(&self, op: &RawOp<'s>, key: &str) -> Result<Option<u64>, PtoError> {
        match attribute(op, key) {
            None => Ok(None),
            Some(text) => {
                let number = text.parse::<u64>().ok().filter(|n| i64::try_from(*n).is_ok());
                number.map(Some).ok_or_else(|| self.error(op.start, format!("{key} = {text} is not a number of bytes")))
            }
        }
    }

    /// `pto.reserve_buffer {name, size, location, auto, base}`.
    pub(super) fn reserve(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let size = self.number_attribute(op, "size")?;
        let size = size.ok_or_else(|| self.error(op.start, "reserve_buffer needs 'size ='"))?;
        let location = attribute(op, "location").unwrap_or("");
        let space = space_name(location).ok_or_else(|| self.error(op.start, "reserve_buffer needs 'location ='"))?;
        let base = self.number_attribute(op, "base")?;
        let automatic = attribute(op, "auto").is_none_or(|value| value != "false");
        let id = match self.allocated.get(&op.start) {
            Some(id) => *id,
            None => {
                let name = self.buffer_name(attribute(op, "name").unwrap_or("queue").trim_matches('"'));
                let line = self.line(op.start);
                let address =
                    base.filter(|_| !automatic).map(|b| Affine::constant(i64::try_from(b).unwrap_or(i64::MAX)));
                let alignment = Alignment::new(32).unwrap_or_default();
                let id = self.add_buffer(Buffer {
                    role: Role::Queue,
                    line,
                    alignment,
                    address,
                    ..Buffer::tile(name, space.to_owned(), size)
                });
                self.allocated.insert(op.start, id);
                let body = self.functions[self.frames.last().map_or(0, |f| f.function)].body_byte;
                let start = op.name_end - op.name.len();
                self.sites.push(Site { buffer: id, form: SiteForm::Reserve, start, end: op.end, body, address: None });
                id
            }
        };
        let memory = super::memory::access_whole(id, space);
        self.set_results(&op.results, vec![Value::Memory(Box::new(memory))]);
        Ok(())
    }

    /// The other core's memory: only its address is used.
    pub(super) fn import_reserved(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        self.give_opaque(op);
        Ok(())
    }

    /// `pto.aiv_initialize_pipe {dir_mask, slot_size}(c2v_consumer_buf = %a : i32, v2c_consumer_buf = %b : i32)`.
    pub(super) fn initialize_pipes(&mut self, op: &RawOp<'s>, short: &str) -> Result<(), PtoError> {
        let slot = self.number_attribute(op, "slot_size")?;
        let Some((items, _)) = op.group("") else {
            return Err(self.error(op.start, "expected (c2v_consumer_buf = %a : i32, v2c_consumer_buf = %b : i32)"));
        };
        for item in items {
            let from_cube = match item.key {
                Some("c2v_consumer_buf") => true,
                Some("v2c_consumer_buf") => false,
                _ => continue,
            };
            // The vector core takes what comes from the cube, and the other way round.
            if from_cube == (short == "aiv_initialize_pipe") {
                let value = self.get(item.text, item.at)?;
                self.add_queue(op, value, slot, from_cube);
            }
        }
        Ok(())
    }

    /// `pto.initialize_l2l_pipe {..}(%a, %b) -> !pto.pipe`.
    pub(super) fn initialize_pipe(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let slot = self.number_attribute(op, "slot_size")?;
        let Some((items, _)) = op.group("") else {
            return Err(self.error(op.start, "expected the slot memory in (...)"));
        };
        let mut local = Value::Other;
        for item in items {
            let value = self.get(item.text, item.at)?;
            let is_queue = matches!(&value, Value::Memory(memory) if matches!(memory.root, Root::Buffer(id)
                if self.builder.program().buffer(id).role == Role::Queue));
            if is_queue {
                local = value;
            }
        }
        let index = self.add_queue(op, local, slot, true);
        self.set_results(&op.results, vec![Value::Pipe(index)]);
        Ok(())
    }

    fn add_queue(&mut self, op: &RawOp<'s>, value: Value, slot: Option<u64>, from_cube: bool) -> usize {
        let mut buffer = None;
        if let Value::Memory(memory) = value
            && let Root::Buffer(id) = memory.root
            && self.builder.program().buffer(id).role == Role::Queue
        {
            buffer = Some(id);
            let place = &mut self.builder.program_mut().buffers[id.index()];
            let total = place.total_bytes().unwrap_or(0);
            if let Some(slot) = slot.filter(|slot| *slot > 0 && slot.is_multiple_of(32) && total.is_multiple_of(*slot))
                && let Ok(slots) = u32::try_from(total / slot)
                && (1..=4096).contains(&slots)
            {
                place.bytes = Some(slot);
                place.slots = slots;
            }
        }
        let name = self.scalar_name("next_slot");
        let next = self.builder.scalar(name, ScalarKind::Variable);
        self.builder.assign(next, 0);
        let slot_bytes = buffer.and_then(|id| self.builder.program().buffer(id).bytes);
        let _ = op;
        self.queues.push(Queue { buffer, slot_bytes, next, from_cube });
        self.queues.len() - 1
    }

    /// A tile leaves for the other core.
    pub(super) fn push(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let found = self.all_memory(op);
        let Some(tile) = found.first() else { return Err(self.error(op.start, "a push needs a tile")) };
        let operation = Operation {
            reads: vec![access(tile)],
            core: self.core(),
            line: self.line(op.start),
            ..Operation::new(op.name.trim_start_matches("pto."), dialect::mover(&tile.space, "gm"))
        };
        self.builder.run(operation);
        Ok(())
    }

    /// A tile arrives from the other core: the next slot in rotation, written from outside.
    pub(super) fn pop(&mut self, op: &RawOp<'s>, short: &str) -> Result<(), PtoError> {
        let (queue, name, text) = if short == "tpop" {
            let Some((items, types)) = op.group("") else {
                return Err(self.error(op.start, "expected (%tile, %pipe)"));
            };
            let (Some(tile), Some(pipe), Some(ty)) = (items.first(), items.get(1), types.first()) else {
                return Err(self.error(op.start, "expected (%tile, %pipe : types)"));
            };
            let queue = match self.get(pipe.text, pipe.at)? {
                Value::Pipe(index) => self.queues.get(index).copied(),
                _ => None,
            };
            (queue, tile.text, *ty)
        } else {
            let from_cube = short == "tpop_from_aic";
            let queue = self.queues.iter().rev().find(|queue| queue.from_cube == from_cube).copied();
            let text = op.arrow().first().copied();
            let text = text.ok_or_else(|| self.error(op.end, "expected '-> !pto.tile_buf<...>'"))?;
            (queue, op.results.first().map_or("%tile", |(name, _)| *name), text)
        };
        let Type::Tile(tile) = self.ty(text, op.start)? else {
            return Err(self.error(op.start, format!("'{text}' is not a tile type")));
        };
        let memory = match queue.and_then(|queue| queue.buffer.map(|buffer| (queue, buffer))) {
            Some((queue, buffer)) => {
                let slots = i64::from(self.builder.program().buffer(buffer).slots);
                let this_name = self.scalar_name(&format!("{name}.slot"));
                let this = self.builder.variable(this_name);
                let after = Affine::scalar(queue.next).plus(&1.into());
                let after = self.builder.value(Op::Rem, vec![after, slots.into()]);
                self.step(Step::Assign(Assign {
                    scalars: vec![(this, queue.next.into()), (queue.next, after)],
                    handles: Vec::new(),
                }));
                self.queue_memory(Root::Buffer(buffer), &tile, this.into(), queue.slot_bytes)
            }
            None => match super::memory::external_memory(self, name, &Type::Tile(tile), op.start)? {
                Value::Memory(memory) => *memory,
                _ => return Ok(()),
            },
        };
        let operation = Operation {
            writes: vec![access(&memory)],
            core: self.core(),
            line: self.line(op.start),
            ..Operation::new(short, "mte2")
        };
        self.builder.run(operation);
        self.set(name, Value::Memory(Box::new(memory)));
        Ok(())
    }
}

/// The reserved memory of a queue is placed by agreement of both cores: a pipe without `flag_base` must get
/// memory that was reserved or imported, and the peer function must initialise its end.
pub(super) fn check_peers(source: &str, items: &[Item<'_>], functions: &[Function<'_>]) -> Result<(), PtoError> {
    struct Reserved<'s> {
        function: usize,
        result: &'s str,
        name: &'s str,
        peer: Option<&'s str>,
    }
    let (mut reserved, mut pipes) = (Vec::<Reserved<'_>>::new(), Vec::new());
    for (index, function) in functions.iter().enumerate() {
        let Some((start, end)) = function.body else { continue };
        for item in &items[start..end] {
            let Item::Op(op) = item else { continue };
            match op.name {
                "pto.reserve_buffer" | "pto.import_reserved_buffer" => reserved.push(Reserved {
                    function: index,
                    result: op.results.first().map_or("", |(name, _)| *name),
                    name: attribute(op, "name").unwrap_or(""),
                    peer: attribute(op, "peer_func").map(|name| name.trim_start_matches('@')),
                }),
                "pto.initialize_l2l_pipe" if attribute(op, "flag_base").is_none() => {
                    let operands = op.clauses.iter().find_map(|clause| match clause {
                        Clause::Group { items, .. } => items.first().map(|item| item.text),
                        _ => None,
                    });
                    pipes.push((index, operands.unwrap_or(""), op.start));
                }
                _ => {}
            }
        }
    }
    for (function, operand, at) in &pipes {
        let Some(own) = reserved.iter().find(|r| r.function == *function && r.result == *operand) else {
            let problem =
                format!("the pipe's memory '{operand}' is neither reserved nor imported, and it has no flag_base");
            return Err(PtoError::at(source, *at, problem));
        };
        let peers = reserved.iter().filter(|r| r.name == own.name && r.function != *function);
        let mut ends = peers.filter(|r| own.peer.is_some() || r.peer == Some(functions[*function].name));
        let complete = ends.any(|r| pipes.iter().any(|(f, operand, _)| *f == r.function && *operand == r.result));
        if !complete {
            let problem = format!("no peer function initialises the other end of {}", own.name);
            return Err(PtoError::at(source, *at, problem));
        }
    }
    Ok(())
}
