//! Scratch that an operation's library takes without an operand for it.
//!
//! On A2 and A3 the library keeps the last 8 KiB of the unified buffer for itself. Two kinds of operation use it:
//! `trowexpand*` without a `tmp` operand, when the operand that it spreads is a column (it is first spread to one
//! block per row there), and `textract` of an odd number of bytes per row from plain rows to fractals. A tile that
//! still holds something there is overwritten. On A5 neither needs scratch. Sources: `docs/formats/pto.md`.

use super::Lowering;
use crate::pto::scope::Memory;
use npumem_ir::program::{Access, Affine, Buffer, Layout, Role, Root};
use npumem_ir::{Alignment, BufferId, ElementType};

/// Where the library's bytes begin in the unified buffer of A2 and A3, and how many they are.
const OFFSET: i64 = 184 * 1024;
const BYTES: u64 = 8 * 1024;
/// Spreading rows: eight rows become eight blocks of 32 bytes; a longer column is worked off in pieces of 240 rows.
const BYTES_OF_EIGHT_ROWS: u64 = 256;
const MOST_ROWS: u64 = 240;

/// Whether an architecture's library has that scratch; PTOAS takes a3 where nothing is named.
pub(super) fn architecture_has_it(target: Option<&str>) -> bool {
    let name = target.unwrap_or("a3").to_ascii_lowercase();
    name.starts_with("a2") || name.starts_with("a3") || name.starts_with("ascend910")
}

/// Bytes of hidden scratch that an operation writes: how many, and whether all of them for sure.
fn needed(short: &str, read: &[Memory], written: &[Memory]) -> Option<(u64, bool)> {
    let [result, ..] = written else { return None };
    match (short, read) {
        (
            "trowexpandmul" | "trowexpanddiv" | "trowexpandsub" | "trowexpandadd" | "trowexpandmax" | "trowexpandmin"
            | "trowexpandexpdif",
            [first, second],
        ) => {
            // The full operand lies in rows; a column beside it is the one to spread.
            let is_column = |m: &Memory| m.layout == Layout::ColMajor;
            if !is_column(first) && !is_column(second) {
                return None;
            }
            let rows = result.shape.first().and_then(Affine::as_constant).and_then(|rows| u64::try_from(rows).ok());
            Some(match rows {
                Some(rows) => (rows.clamp(1, MOST_ROWS).div_ceil(8) * BYTES_OF_EIGHT_ROWS, true),
                None => (BYTES, false),
            })
        }
        ("textract", [source]) => {
            let plain_to_fractal = source.layout == Layout::RowMajor && matches!(result.layout, Layout::Fractal { .. });
            let bytes = result.element.bits() / 8;
            let columns = result.shape.last().and_then(Affine::as_constant);
            let odd = columns.is_none_or(|columns| columns % 2 != 0);
            (source.space == "vec" && result.space == "vec" && plain_to_fractal && bytes == 1 && odd)
                .then_some((BYTES, false))
        }
        _ => None,
    }
}

impl Lowering<'_, '_> {
    /// What an operation without a scratch operand writes beside its results.
    pub(super) fn hidden_scratch(&mut self, short: &str, read: &[Memory], written: &[Memory]) -> Option<Access> {
        if !architecture_has_it(self.architecture.as_deref()) {
            return None;
        }
        let (bytes, certain) = needed(short, read, written)?;
        let id = match self.hidden {
            Some(id) => id,
            None => self.add_hidden(),
        };
        let place = &mut self.builder.program_mut().buffers[id.index()];
        place.bytes = place.bytes.map(|before| before.max(bytes));
        Some(Access { certain, ..Access::bytes(Root::Buffer(id), Affine::constant(0), bytes) })
    }

    fn add_hidden(&mut self) -> BufferId {
        let name = self.buffer_name("library scratch");
        let id = self.add_buffer(Buffer {
            role: Role::Workspace,
            element: ElementType::U8,
            alignment: Alignment::new(32).unwrap_or_default(),
            address: Some(Affine::constant(OFFSET)),
            fixed: true,
            ..Buffer::tile(name, "vec", 0)
        });
        self.hidden = Some(id);
        id
    }
}
