//! Types that an operation states of its operands, against what the operands are.

use super::Lowering;
use crate::pto::PtoError;
use crate::pto::parse::{Clause, Entry, RawOp};
use crate::pto::scope::{Memory, Value};
use crate::pto::types::Type;
use npumem_ir::program::{Affine, Role, Root};

impl<'s> Lowering<'s, '_> {
    /// Every type by name must be one of the file; a tile, a view and a number are not each other, and a whole tile has
    /// the bytes that its type says.
    pub(super) fn check_types(&self, op: &RawOp<'s>) -> Result<(), PtoError> {
        for clause in &op.clauses {
            match clause {
                Clause::Types(types) | Clause::Arrow(types) => self.are_defined(types, op.start)?,
                Clause::Group { keyword, items, types, .. } => {
                    self.are_defined(types, op.start)?;
                    for (index, item) in items.iter().enumerate() {
                        let ty = item.ty.or_else(|| types.get(index).copied());
                        if let Some(ty) = item.ty {
                            self.are_defined(&[ty], item.at)?;
                        }
                        if let (Some(ty), Some("ins" | "outs")) = (ty, keyword) {
                            self.is_of(item, ty)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn are_defined(&self, types: &[&'s str], at: usize) -> Result<(), PtoError> {
        for ty in types {
            let alias = ty.starts_with('!') && !ty.contains(['.', '<']);
            if alias && !self.aliases.is_some_and(|aliases| aliases.contains_key(ty.trim())) {
                // It says where the type stands and what was expected.
                self.ty(ty, at)?;
            }
        }
        Ok(())
    }

    fn is_of(&self, item: &Entry<'s>, ty: &'s str) -> Result<(), PtoError> {
        let Some(Value::Memory(memory)) = self.frames.last().and_then(|frame| frame.scope.get(item.text)) else {
            return Ok(());
        };
        // What a queue hands out has the type that the taker states, and memory of the caller many.
        let own = match memory.root {
            Root::Buffer(id) => matches!(self.builder.program().buffer(id).role, Role::Tile),
            Root::Handle(_) => false,
        };
        if !own {
            return Ok(());
        }
        // A type that this reader does not know says nothing.
        let Ok(stated) = self.ty(ty, item.at) else { return Ok(()) };
        let wrong = |what: &str| Err(self.error(item.at, format!("'{}' is {what}, not '{ty}'", item.text)));
        match stated {
            Type::View { .. } | Type::Pointer(_) if !ty.contains("tile_view") => wrong("a tile on the chip"),
            Type::Int | Type::Real => wrong("a tile on the chip"),
            Type::Tile(tile) if tile.element.bits() != memory.element.bits() => {
                wrong(&format!("of {}-bit elements", memory.element.bits()))
            }
            Type::Tile(tile) => match self.whole_bytes(memory) {
                Some(bytes) if tile.bytes().is_some_and(|stated| stated != bytes) => {
                    wrong(&format!("a tile of {bytes} bytes"))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Bytes of the tile, where the memory is all of one.
    fn whole_bytes(&self, memory: &Memory) -> Option<u64> {
        let Root::Buffer(id) = memory.root else { return None };
        let whole = memory.whole && memory.start == Affine::constant(0);
        self.builder.program().buffer(id).bytes.filter(|_| whole)
    }
}
