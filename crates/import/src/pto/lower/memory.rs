//! Memory values: allocations, tensor views, tiles and the views of tiles.

use super::Lowering;
use crate::pto::parse::{Clause, Entry, RawOp};
use crate::pto::scope::{Memory, Value};
use crate::pto::types::{TileType, Type};
use crate::pto::{PtoError, Site, SiteForm};
use npumem_ir::program::{Access, Affine, Buffer, Extent, Layout, Role, Root};
use npumem_ir::{Alignment, BufferId, ElementType, HandleId};

/// Bytes of an element in memory, as strides count it; sub-byte elements have no stride of their own.
fn element_bytes(element: ElementType) -> i64 {
    i64::try_from(element.bits() / 8).unwrap_or(1)
}

/// Strides of a dense row-major shape; unknown from the first unknown dimension on.
fn dense_strides(shape: &[Affine], element: ElementType) -> Vec<Option<i64>> {
    let mut stride = Some(element_bytes(element)).filter(|bytes| *bytes > 0);
    let mut strides = Vec::new();
    for dim in shape.iter().rev() {
        strides.push(stride);
        stride = stride.zip(dim.as_constant()).and_then(|(stride, dim)| stride.checked_mul(dim));
    }
    strides.reverse();
    strides
}

fn affine_of(dim: u64) -> Affine {
    Affine::constant(i64::try_from(dim).unwrap_or(i64::MAX))
}

/// The memory of a tile whose storage is `root` from `start`.
fn tile_memory(root: Root, tile: &TileType, start: Affine) -> Memory {
    let bytes = element_bytes(tile.element);
    let dim = |at: usize| tile.shape.get(at).and_then(|d| i64::try_from(*d).ok()).unwrap_or(0);
    let strides = match (tile.layout, tile.shape.len()) {
        (Layout::RowMajor, _) => {
            let full: Vec<Affine> = tile.shape.iter().map(|d| affine_of(*d)).collect();
            dense_strides(&full, tile.element)
        }
        (Layout::ColMajor, 2) => vec![Some(bytes), dim(0).checked_mul(bytes)],
        _ => vec![None; tile.shape.len()],
    };
    let all_known = tile.valid.iter().all(Option::is_some);
    let whole = !all_known || tile.valid.iter().zip(&tile.shape).all(|(v, s)| v.is_some_and(|v| v == *s));
    let fractal = matches!(tile.layout, Layout::Fractal { .. });
    let shape = tile.valid.iter().zip(&tile.shape).map(|(valid, full)| affine_of(valid.unwrap_or(*full)));
    Memory {
        root,
        slot: Affine::constant(0),
        start,
        space: tile.space.clone(),
        element: tile.element,
        shape: shape.collect(),
        strides,
        layout: tile.layout,
        exact: true,
        // A fractal tile keeps padding between its blocks: its valid part is taken as the whole.
        whole: whole || fractal || bytes == 0,
    }
}

/// The same memory through a handle.
pub(super) fn handle_memory(id: HandleId, memory: &Memory) -> Memory {
    Memory { root: Root::Handle(id), start: Affine::constant(0), slot: Affine::constant(0), ..memory.clone() }
}

/// Memory of a declared type behind a handle.
pub(super) fn typed_memory(id: HandleId, ty: &Type) -> Memory {
    let root = Root::Handle(id);
    match ty {
        Type::Tile(tile) => tile_memory(root, tile, Affine::constant(0)),
        Type::Memref { shape, element, space, .. } => Memory {
            whole: true,
            ..dense(
                root,
                shape.iter().map(|d| affine_of(d.unwrap_or(0))).collect(),
                *element,
                space,
                shape.iter().all(Option::is_some),
            )
        },
        Type::View { shape, element } => {
            dense(root, shape.iter().map(|d| affine_of(d.unwrap_or(0))).collect(), *element, "gm", false)
        }
        Type::Pointer(element) => dense(root, Vec::new(), *element, "gm", false),
        Type::Int | Type::Real | Type::Other => dense(root, Vec::new(), ElementType::U8, "gm", false),
    }
}

fn dense(root: Root, shape: Vec<Affine>, element: ElementType, space: &str, exact: bool) -> Memory {
    let strides = dense_strides(&shape, element);
    Memory {
        root,
        slot: Affine::constant(0),
        start: Affine::constant(0),
        space: space.to_owned(),
        element,
        shape,
        strides,
        layout: Layout::RowMajor,
        exact,
        whole: false,
    }
}

/// The whole of a reserved buffer.
pub(super) fn access_whole(id: BufferId, space: &str) -> Memory {
    Memory { whole: true, ..dense(Root::Buffer(id), Vec::new(), ElementType::U8, space, true) }
}

/// Memory that the caller gives.
pub(super) fn external_memory(l: &mut Lowering<'_, '_>, name: &str, ty: &Type, at: usize) -> Result<Value, PtoError> {
    let (space, element, bytes) = match ty {
        Type::Tile(tile) => (tile.space.clone(), tile.element, tile.bytes()),
        Type::Memref { shape, element, space, .. } => {
            let count = shape.iter().try_fold(1_u64, |n, dim| n.checked_mul((*dim)?));
            (space.clone(), *element, count.and_then(|count| element.bytes(count)).map(|bytes| bytes.0))
        }
        Type::View { element, .. } | Type::Pointer(element) => ("gm".to_owned(), *element, None),
        Type::Int | Type::Real | Type::Other => ("gm".to_owned(), ElementType::U8, None),
    };
    let name = l.buffer_name(name);
    let line = l.line(at);
    let id = l.add_buffer(Buffer { element, line, ..Buffer::external(name, space, bytes) });
    let root = Root::Buffer(id);
    let memory = match ty {
        Type::Tile(tile) => tile_memory(root, tile, Affine::constant(0)),
        Type::Memref { shape, element, space, .. } => {
            let known = shape.iter().all(Option::is_some);
            let shape = shape.iter().map(|d| affine_of(d.unwrap_or(0))).collect();
            Memory { whole: known, ..dense(root, shape, *element, space, known) }
        }
        Type::View { shape, element } => {
            let known = shape.iter().all(Option::is_some);
            dense(root, shape.iter().map(|d| affine_of(d.unwrap_or(0))).collect(), *element, "gm", known)
        }
        _ => dense(root, Vec::new(), element, "gm", false),
    };
    Ok(Value::Memory(Box::new(memory)))
}

/// What an operation touches when it touches this memory.
pub(super) fn access(memory: &Memory) -> Access {
    let base = Access {
        slot: memory.slot.clone(),
        start: memory.start.clone(),
        shape: memory.shape.clone(),
        layout: memory.layout,
        ..Access::whole(memory.root, memory.element)
    };
    if memory.whole && memory.start == Affine::constant(0) {
        return base;
    }
    let strides: Option<Vec<i64>> = memory.strides.iter().copied().collect();
    match strides.filter(|_| memory.exact && !memory.shape.is_empty()) {
        Some(strides) => {
            let extents =
                memory.shape.iter().zip(strides).map(|(count, stride)| Extent { count: count.clone(), stride });
            Access { extents: extents.collect(), ..base }
        }
        None => Access { start: Affine::constant(0), certain: false, ..base },
    }
}

impl<'s> Lowering<'s, '_> {
    fn memory(&self, name: &str, at: usize) -> Result<Memory, PtoError> {
        match self.get(name, at)? {
            Value::Memory(memory) => Ok(*memory),
            _ => Err(self.error(at, format!("'{name}' is not memory: expected a tile, a memref or a view"))),
        }
    }

    /// `pto.alloc_tile [addr = %a] [valid_row = %r] [valid_col = %c] : type`.
    pub(super) fn alloc_tile(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let text = op.types().first().copied();
        let text = text.ok_or_else(|| self.error(op.end, "expected ': !pto.tile_buf<...>' after alloc_tile"))?;
        let Type::Tile(tile) = self.ty(text, op.start)? else {
            return Err(self.error(op.start, format!("'{text}' is not a tile type")));
        };
        let (address, span) = match op.assigned("addr") {
            Some((value, at, end)) => (Some(self.address(value, at)?), Some((at, end))),
            None => (None, None),
        };
        let bytes = tile.bytes().unwrap_or(0);
        let buffer = Buffer {
            element: tile.element,
            shape: tile.shape.clone(),
            layout: tile.layout,
            address,
            ..Buffer::tile(String::new(), tile.space.clone(), bytes)
        };
        let id = self.allocate(op, buffer, SiteForm::Tile, span);
        let mut memory = tile_memory(Root::Buffer(id), &tile, Affine::constant(0));
        for (index, key) in ["valid_row", "valid_col"].into_iter().enumerate() {
            if let Some((value, at, _)) = op.assigned(key) {
                let value = self.int(value, at)?;
                if let Some(place) = memory.shape.get_mut(index).filter(|_| tile.valid[index].is_none()) {
                    *place = value;
                }
            }
        }
        if tile.valid.iter().any(Option::is_none) {
            let program = self.builder.program();
            let values = npumem_ir::program::Values::new(program);
            let known: Option<Vec<i64>> = memory.shape.iter().map(|dim| values.affine(program, dim)).collect();
            if let Some(known) = known.filter(|known| known.iter().all(|dim| *dim >= 0)) {
                // Given after all: as if the type said so.
                let valid = known.iter().map(|dim| u64::try_from(*dim).ok()).collect();
                memory = tile_memory(memory.root, &TileType { valid, ..tile }, Affine::constant(0));
            }
        }
        self.set_results(&op.results, vec![Value::Memory(Box::new(memory))]);
        Ok(())
    }

    /// An address operand; a constant must fit a space of 63 bits and not be negative.
    fn address(&mut self, value: &str, at: usize) -> Result<Affine, PtoError> {
        let address = self.int(value, at)?;
        match address.as_constant() {
            Some(number) if number < 0 => Err(self.error(at, format!("address {number} is negative"))),
            _ => Ok(address),
        }
    }

    /// The buffer of an allocation: the same one each time the same place of the text is walked.
    fn allocate(
        &mut self,
        op: &RawOp<'s>,
        buffer: Buffer,
        form: SiteForm,
        address: Option<(usize, usize)>,
    ) -> BufferId {
        if let Some(id) = self.allocated.get(&op.start) {
            return *id;
        }
        let name = op.results.first().map_or("tile", |(name, _)| *name);
        let name = self.buffer_name(name);
        let line = self.line(op.start);
        // On-chip addresses are multiples of a 32-byte block on every target of the dialect; the device
        // may ask for more.
        let alignment = Alignment::new(32).unwrap_or_default();
        let id = self.add_buffer(Buffer { name, line, alignment, ..buffer });
        self.allocated.insert(op.start, id);
        let body = self.functions[self.frames.last().map_or(0, |f| f.function)].body_byte;
        let start = op.name_end - op.name.len();
        self.sites.push(Site { buffer: id, form, start, end: op.end, body, address });
        id
    }

    pub(super) fn memref(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        match op.name {
            "memref.alloc" | "memref.alloca" => {
                let sizes: Vec<Entry<'s>> = op.group("").map(|(items, _)| items.to_vec()).unwrap_or_default();
                self.planned_memref(op, &sizes, None)
            }
            "memref.dealloc" => Ok(()),
            "memref.reinterpret_cast"
            | "memref.cast"
            | "memref.subview"
            | "memref.collapse_shape"
            | "memref.expand_shape" => {
                let values = op.values();
                let Some((name, at)) = values.first().copied() else { return Ok(()) };
                let memory = self.memory(name, at)?;
                // The view's offset may be anything in the source: some of its bytes.
                let view = Memory { exact: false, whole: false, ..memory };
                self.set_results(&op.results, vec![Value::Memory(Box::new(view))]);
                Ok(())
            }
            _ => self.unknown_operation(op),
        }
    }

    /// `memref.alloc(%n) : memref<..>`, `pto.pointer_cast(%addr) : memref<..>`.
    pub(super) fn planned_memref(
        &mut self,
        op: &RawOp<'s>,
        sizes: &[Entry<'s>],
        address: Option<(Affine, (usize, usize))>,
    ) -> Result<(), PtoError> {
        let text = op.types().first().copied().or_else(|| op.arrow().first().copied());
        let text = text.ok_or_else(|| self.error(op.end, "expected ': memref<...>'"))?;
        let (shape, element, space) = match self.ty(text, op.start)? {
            Type::Memref { shape, element, space, .. } => (shape, element, space),
            Type::Tile(tile) => (tile.shape.iter().map(|d| Some(*d)).collect(), tile.element, tile.space),
            _ => return Err(self.error(op.start, format!("'{text}' is not a memref type"))),
        };
        let mut sizes = sizes.iter();
        let mut known = Vec::new();
        for dim in &shape {
            known.push(match dim {
                Some(dim) => *dim,
                None => {
                    let size = match sizes.next() {
                        Some(entry) => self.int(entry.text, entry.at)?,
                        None => self.opaque(),
                    };
                    let number = size.as_constant().and_then(|n| u64::try_from(n).ok());
                    let number = number.or_else(|| {
                        let program = self.builder.program();
                        let value = npumem_ir::program::Values::new(program).affine(program, &size)?;
                        u64::try_from(value).ok()
                    });
                    number.ok_or_else(|| {
                        let asked = self.builder.program().unbound(&size);
                        let how = match asked.is_empty() {
                            true => "it is decided at run time, and no --dim can say it".to_owned(),
                            false => {
                                let dims: Vec<String> =
                                    asked.iter().map(|name| format!("--dim {name}=VALUE")).collect();
                                format!("give it with {}", dims.join(" "))
                            }
                        };
                        self.error(op.start, format!("the size of this buffer is not known: {how}"))
                    })?
                }
            });
        }
        let bytes = known.iter().try_fold(1_u64, |n, dim| n.checked_mul(*dim)).and_then(|n| element.bytes(n));
        let bytes = bytes.filter(|bytes| i64::try_from(bytes.0).is_ok());
        let bytes = bytes.ok_or_else(|| self.error(op.start, "the buffer takes more than 63 bits of bytes"))?;
        let form = if address.is_some() { SiteForm::PointerCast } else { SiteForm::Memref };
        let (address, span) = address.map_or((None, None), |(address, span)| (Some(address), Some(span)));
        let buffer =
            Buffer { element, shape: known.clone(), address, ..Buffer::tile(String::new(), space.clone(), bytes.0) };
        let root = if space == "gm" && form == SiteForm::Memref {
            let name = self.buffer_name(op.results.first().map_or("global", |(name, _)| *name));
            Root::Buffer(self.add_buffer(Buffer { name, role: Role::External, ..buffer }))
        } else {
            Root::Buffer(self.allocate(op, buffer, form, span))
        };
        let memory =
            Memory { whole: true, ..dense(root, known.iter().map(|d| affine_of(*d)).collect(), element, &space, true) };
        self.set_results(&op.results, vec![Value::Memory(Box::new(memory))]);
        Ok(())
    }

    pub(super) fn pointer_cast(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let entry = op.group("").and_then(|(items, _)| items.first().cloned());
        let entry = entry.ok_or_else(|| self.error(op.start, "pto.pointer_cast needs an address"))?;
        let address = self.address(entry.text, entry.at)?;
        self.planned_memref(op, &[], Some((address, (entry.at, entry.at + entry.text.len()))))
    }

    /// `pto.make_tensor_view %p, shape = [..], strides = [..]`.
    pub(super) fn tensor_view(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let values = op.values();
        let Some((name, at)) = values.first().copied() else {
            return Err(self.error(op.start, "make_tensor_view needs a pointer"));
        };
        let pointer = match self.get(name, at)? {
            Value::Memory(memory) => *memory,
            _ => return self.unknown_operation(op),
        };
        let shape = self.list(op, "shape")?;
        let strides = self.list(op, "strides")?;
        if shape.len() != strides.len() {
            let problem = format!("{} dimensions but {} strides", shape.len(), strides.len());
            return Err(self.error(op.start, problem));
        }
        let bytes = element_bytes(pointer.element);
        let strides: Vec<Option<i64>> = strides.iter().map(|s| s.as_constant()?.checked_mul(bytes)).collect();
        let exact = strides.iter().all(Option::is_some);
        let view = Memory { shape, strides, exact, whole: false, ..pointer };
        self.set_results(&op.results, vec![Value::Memory(Box::new(view))]);
        Ok(())
    }

    fn list(&mut self, op: &RawOp<'s>, keyword: &str) -> Result<Vec<Affine>, PtoError> {
        let Some((items, _)) = op.group(keyword) else { return Ok(Vec::new()) };
        let items = items.to_vec();
        items.iter().map(|item| self.int(item.text, item.at)).collect()
    }

    /// `pto.partition_view %v, offsets = [..], sizes = [..]`; `pto.subview`; `pto.subset %t[..] sizes [..]`.
    pub(super) fn part(&mut self, op: &RawOp<'s>, offsets: &str) -> Result<(), PtoError> {
        let values = op.values();
        let Some((name, at)) = values.first().copied() else {
            return Err(self.error(op.start, "a view needs the memory that it is a view of"));
        };
        let memory = self.memory(name, at)?;
        let offsets = self.list(op, offsets)?;
        let sizes = self.list(op, "sizes")?;
        let mut start = Some(memory.start.clone());
        let fits = offsets.len() == memory.strides.len() && sizes.len() == memory.strides.len();
        for (offset, stride) in offsets.iter().zip(&memory.strides) {
            start = match (start, stride) {
                (Some(start), Some(stride)) => Some(start.plus(&offset.times(*stride))),
                (start, None) if offset == &Affine::constant(0) => start,
                _ => None,
            };
        }
        let view = match start.filter(|_| fits) {
            Some(start) => {
                let exact = memory.exact && memory.strides.iter().all(Option::is_some);
                let all = memory.whole && start == memory.start && sizes == memory.shape;
                Memory { start, shape: sizes, exact, whole: all, ..memory }
            }
            None => Memory { shape: sizes, exact: false, whole: false, ..memory },
        };
        self.set_results(&op.results, vec![Value::Memory(Box::new(view))]);
        Ok(())
    }

    /// `pto.addptr %p, %n : <f32> -> <f32>`: moves by elements.
    pub(super) fn add_pointer(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let values = op.values();
        let [(name, at), (by, by_at)] = values.as_slice() else {
            return Err(self.error(op.start, "addptr needs a pointer and a number of elements"));
        };
        let memory = self.memory(name, *at)?;
        let by = self.int(by, *by_at)?;
        let start = memory.start.plus(&by.times(element_bytes(memory.element)));
        self.set_results(&op.results, vec![Value::Memory(Box::new(Memory { start, ..memory }))]);
        Ok(())
    }

    /// `pto.treshape %t : a -> b`, `pto.bitcast`: the same bytes under another type.
    pub(super) fn reshape(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let values = op.values();
        let found = values.first().copied().or_else(|| {
            let (items, _) = op.group("").or_else(|| op.group("ins"))?;
            items.first().map(|item| (item.text, item.at))
        });
        let Some((name, at)) = found else { return Err(self.error(op.start, "a reshape needs a tile")) };
        let memory = self.memory(name, at)?;
        let target = op.arrow().first().or_else(|| op.types().last()).copied();
        let view = match target.map(|text| self.ty(text, op.start)).transpose()? {
            Some(Type::Tile(tile)) => {
                let mut view = tile_memory(memory.root, &tile, memory.start.clone());
                view.slot = memory.slot.clone();
                let before: Option<i64> = memory.shape.iter().try_fold(1_i64, |n, d| n.checked_mul(d.as_constant()?));
                let after: Option<i64> = view.shape.iter().try_fold(1_i64, |n, d| n.checked_mul(d.as_constant()?));
                let same = before
                    .zip(after)
                    .is_some_and(|(a, b)| a * element_bytes(memory.element) == b * element_bytes(view.element));
                view.whole = view.whole && memory.whole && same;
                view
            }
            _ => memory,
        };
        self.set_results(&op.results, vec![Value::Memory(Box::new(view))]);
        Ok(())
    }

    /// `pto.tassign %t, %addr : a -> b`: the tile object moves to another address.
    pub(super) fn tassign(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let values = op.values();
        let [(name, at), (address, address_at)] = values.as_slice() else {
            return Err(self.error(op.start, "tassign needs a tile and an address"));
        };
        let memory = self.memory(name, *at)?;
        let address = self.address(address, *address_at)?;
        let Root::Buffer(of) = memory.root else { return self.unknown_operation(op) };
        let buffer = self.builder.program().buffer(of).clone();
        if buffer.address.is_none() {
            let problem = format!("'{name}' is moved by tassign but has no address: give its alloc_tile an 'addr ='");
            return Err(self.error(*at, problem));
        }
        let id = match self.allocated.get(&op.start) {
            Some(id) => *id,
            None => {
                let name = self.buffer_name(op.results.first().map_or("tile", |(name, _)| *name));
                let line = self.line(op.start);
                let id = self.add_buffer(Buffer { name, line, address: Some(address), ..buffer });
                self.allocated.insert(op.start, id);
                id
            }
        };
        let moved = Memory { root: Root::Buffer(id), ..memory };
        self.set_results(&op.results, vec![Value::Memory(Box::new(moved))]);
        Ok(())
    }

    /// `pto.declare_tile -> type`: a name that a later `tpop` binds.
    pub(super) fn declare_tile(&mut self, op: &RawOp<'s>) -> Result<(), PtoError> {
        let text = op.arrow().first().or_else(|| op.types().first()).copied();
        let text = text.ok_or_else(|| self.error(op.start, "declare_tile needs a type"))?;
        let ty = self.ty(text, op.start)?;
        let name = op.results.first().map_or("%tile", |(name, _)| *name);
        let value = external_memory(self, name, &ty, op.start)?;
        self.set_results(&op.results, vec![value]);
        Ok(())
    }

    /// A tile type as memory of a queue slot.
    pub(super) fn queue_memory(&self, root: Root, tile: &TileType, slot: Affine, slot_bytes: Option<u64>) -> Memory {
        let memory = tile_memory(root, tile, Affine::constant(0));
        // A tile that both vector cores share is larger than the slot of one: all of the slot is its own.
        let fills = slot_bytes.is_some() && tile.bytes() >= slot_bytes;
        let strides = if memory.strides.iter().all(Option::is_some) {
            memory.strides.clone()
        } else {
            dense_strides(&memory.shape, tile.element)
        };
        Memory { slot, whole: fills, strides, ..memory }
    }

    /// Everything of this operation that is memory, wherever it stands, in order.
    pub(super) fn all_memory(&self, op: &RawOp<'s>) -> Vec<Memory> {
        let mut found = Vec::new();
        let mut look = |name: &str| {
            if let Some(Value::Memory(memory)) = self.frames.last().and_then(|frame| frame.scope.get(name)) {
                found.push((**memory).clone());
            }
        };
        for clause in &op.clauses {
            match clause {
                Clause::Value(name, _) => look(name),
                Clause::Group { items, .. } => items.iter().for_each(|item| look(item.text)),
                Clause::Assign { value, .. } => look(value),
                _ => {}
            }
        }
        found
    }

    /// `Op::Opaque` that the program may not decide.
    pub(super) fn give_opaque(&mut self, op: &RawOp<'s>) {
        let mut values = Vec::new();
        for (_, count) in &op.results {
            for _ in 0..*count {
                let value = self.opaque();
                values.push(Value::Int(value));
            }
        }
        self.set_results(&op.results, values);
    }
}
