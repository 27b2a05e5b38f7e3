//! Banks of an on-chip memory: what the rows that one step of a vector unit reads and writes wait for each other.
//!
//! ```text
//!   address  0      32     64          (groups - 1) * 32   groups * 32
//!            |group0|group1|  ...     |last group         |group0| ...      rows of `width` bytes, groups in turn
//!   after groups * size bytes the next bank of each group begins
//! ```
//!
//! In one cycle a group gives one row and takes one, and a bank does one of the two (Ascend C, best practices: eight
//! blocks written at a stride of 512 bytes take eight cycles, at 256 bytes four). That two reads, or a read and a
//! write, take one cycle more each is our reading of it: the vendor says only that they wait.

use super::touch::{Touch, element_bytes};
use npumem_ir::device::Space;
use serde::Serialize;

/// Steps of a statement that are looked at; the rest waits as long on average. Addresses repeat after a few steps.
const LOOKED_AT: u64 = 32;
/// Groups and banks that are told apart.
const MAX_BANKS: usize = 256;

/// How the addresses of a space are spread over its banks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Banks {
    groups: u64,
    width: u64,
    /// Bytes of one bank of each group together.
    layer: u64,
}

/// What the operands of a step have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conflict {
    /// Rows of one operand lie in one group.
    Rows,
    /// Two operands that are read lie in one group.
    Reads,
    /// What is read and what is written lies in one bank.
    ReadWrite,
}

/// How the elements of a statement are cut into steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    pub count: u64,
    /// Elements of one step.
    pub lanes: u64,
    /// Rows and columns of the largest operand; one row when all its elements lie side by side.
    pub rows: u64,
    pub columns: u64,
}

impl Banks {
    /// The banks of a space, when all their figures are known and its groups work side by side.
    pub fn of(space: &Space) -> Option<Self> {
        let banks = space.banks.as_ref()?;
        let groups = *banks.groups.known()?;
        let (count, size, width) = (*banks.count.known()?, banks.size.known()?.get(), banks.width.known()?.get());
        let fits = groups > 1 && width > 0 && size >= width && count >= groups && count <= MAX_BANKS as u64;
        fits.then_some(Banks { groups, width, layer: groups.checked_mul(size)? })
    }

    fn group(&self, row: u64) -> usize {
        (row % self.groups) as usize
    }

    fn bank(&self, row: u64) -> usize {
        let layer = row * self.width / self.layer;
        ((layer * self.groups + row % self.groups) as usize).min(MAX_BANKS - 1)
    }

    /// Cycles that the steps take beyond `pace` cycles each, and what most of them are for.
    pub fn lost(&self, steps: Steps, pace: f64, reads: &[Touch], writes: &[Touch]) -> Option<(f64, Conflict)> {
        let looked_at = steps.count.min(LOOKED_AT);
        let (mut lost, mut by_cause) = (0.0, [0.0_f64; 3]);
        for step in 0..looked_at {
            let (cycles, cause) = self.step(steps, step, reads, writes);
            let more = (cycles as f64 - pace).max(0.0);
            lost += more;
            by_cause[cause as usize] += more;
        }
        let all = [Conflict::Rows, Conflict::Reads, Conflict::ReadWrite];
        let most = all.into_iter().max_by(|a, b| by_cause[*a as usize].total_cmp(&by_cause[*b as usize]))?;
        (lost > 0.0).then(|| (lost * steps.count as f64 / looked_at as f64, most))
    }

    /// The cycles of one step, and what makes them so many.
    fn step(&self, steps: Steps, step: u64, reads: &[Touch], writes: &[Touch]) -> (u32, Conflict) {
        let mut group_reads = [0_u32; MAX_BANKS];
        let mut group_writes = [0_u32; MAX_BANKS];
        let mut bank_uses = [0_u32; MAX_BANKS];
        let (mut alone, mut rows) = (1, Vec::new());
        for (write, list) in [(false, reads), (true, writes)] {
            for touch in list.iter().filter(|touch| touch.certain) {
                rows.clear();
                self.rows_of(steps, step, touch, &mut rows);
                let mut own = [0_u32; MAX_BANKS];
                for row in &rows {
                    let group = self.group(*row);
                    own[group] += 1;
                    alone = alone.max(own[group]);
                    if write {
                        group_writes[group] += 1
                    } else {
                        group_reads[group] += 1
                    }
                    bank_uses[self.bank(*row)] += 1;
                }
            }
        }
        let most = |counts: &[u32]| counts.iter().copied().max().unwrap_or(0);
        let (read, both) = (most(&group_reads).max(most(&group_writes)), most(&bank_uses));
        let cycles = alone.max(read).max(both);
        let cause = match cycles {
            _ if cycles == alone => Conflict::Rows,
            _ if cycles == read => Conflict::Reads,
            _ => Conflict::ReadWrite,
        };
        (cycles, cause)
    }

    /// The rows of the memory that a step touches of one operand, each once.
    ///
    /// An operand of one element a row gives that of the step's row; of one row, the step's columns; a smaller one of
    /// another shape is gone through again and again.
    fn rows_of(&self, steps: Steps, step: u64, touch: &Touch, rows: &mut Vec<u64>) {
        let size = element_bytes(touch.element);
        let elements = touch.region.bytes() / size;
        if elements == 0 || touch.region.run == 0 {
            return;
        }
        let in_row = steps.columns.div_ceil(steps.lanes).max(1);
        let (row, column) = (step / in_row, step % in_row * steps.lanes);
        let count = steps.lanes.min(steps.columns.saturating_sub(column));
        let (first, count) = match elements {
            _ if elements == steps.rows.saturating_mul(steps.columns) => (row * steps.columns + column, count),
            _ if elements == steps.columns => (column, count),
            _ if elements == steps.rows => (row, 1),
            _ => ((row * steps.columns + column) % elements, count),
        };
        let mut at = first * size;
        let end = (at + count * size).min(touch.region.bytes());
        while at < end {
            let (run, offset) = (at / touch.region.run, at % touch.region.run);
            let bytes = (touch.region.run - offset).min(end - at);
            let start = touch.region.start_of(run) + offset;
            for one in start / self.width..=(start + bytes - 1) / self.width {
                if rows.last() != Some(&one) {
                    rows.push(one);
                }
            }
            at += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::device_text;
    use crate::run::{Detail, Nothing, Options, Region, run};
    use npumem_ir::program::{Access, Buffer, Extent, Operation, Program, ProgramBuilder, Root};
    use npumem_ir::{BufferId, Device, ElementType};

    const BANKS: Banks = Banks { groups: 16, width: 32, layer: 65_536 };

    fn ascend() -> Device {
        Device::from_toml(&device_text("ascend-910b2")).unwrap()
    }

    /// `elements` f32 of a buffer, `in_row` side by side and the rows `pitch` bytes apart.
    fn rows(buffer: BufferId, elements: i64, in_row: i64, pitch: i64) -> Access {
        Access {
            extents: vec![
                Extent { count: (elements / in_row).into(), stride: pitch },
                Extent { count: in_row.into(), stride: 4 },
            ],
            ..Access::whole(Root::Buffer(buffer), ElementType::F32)
        }
    }

    fn at(b: &mut ProgramBuilder, name: &str, bytes: u64, address: i64) -> BufferId {
        b.buffer(Buffer { address: Some(address.into()), ..Buffer::tile(name, "vec", bytes) })
    }

    /// One addition of 4,096 f32, 64 steps of 256 bytes: the operands start at these bytes.
    fn addition(first: i64, second: i64, result: i64) -> Program {
        let mut b = ProgramBuilder::new("addition");
        let operands: Vec<Access> = [("a", first), ("b", second), ("c", result)]
            .map(|(name, address)| rows(at(&mut b, name, 16_384, address), 4096, 4096, 16_384))
            .into();
        b.run(Operation {
            reads: operands[..2].to_vec(),
            writes: operands[2..].to_vec(),
            ..Operation::new("tadd", "v")
        });
        b.finish().unwrap()
    }

    fn lost(program: &Program, detail: Detail) -> Option<(f64, Conflict)> {
        let done = run(program, &ascend(), &Options { detail, ..Options::default() }, &mut Nothing).unwrap();
        let engine = done.engines.iter().find(|engine| engine.statements > 0).unwrap();
        let found = done.steps.iter().find_map(|step| step.conflicts);
        assert_eq!(engine.conflicts, found.map_or(0.0, |(cycles, _)| cycles));
        let fast = run(program, &ascend(), &Options::default(), &mut Nothing).unwrap();
        let fast = fast.engines.iter().find(|engine| engine.statements > 0).unwrap().busy;
        assert_eq!(engine.busy, fast + engine.conflicts);
        found
    }

    /// The addresses of the vendor's page: 0x10000 is in bank 16, 0x10020 in bank 17, 0x20020 in bank 33.
    #[test]
    fn addresses_lie_in_the_banks_that_the_vendor_names() {
        let device = ascend();
        let ub = device.space(device.space_named("ub").unwrap());
        assert_eq!(Banks::of(ub), Some(BANKS));
        for (address, bank, group) in [(0x10000, 16, 0), (0x10020, 17, 1), (0x20020, 33, 1), (0x10E20, 17, 1)] {
            let row = address / 32;
            assert_eq!((BANKS.bank(row), BANKS.group(row)), (bank, group), "{address:#x}");
        }
    }

    #[test]
    fn operands_half_a_row_of_groups_apart_do_not_wait() {
        // 0 and 256 + 16,384 in the first banks of the groups, the result in the second.
        assert_eq!(lost(&addition(0, 16_384 + 256, 65_536), Detail::Detailed), None);
        // A whole row of groups apart: every step reads each group twice.
        assert_eq!(lost(&addition(0, 16_384, 65_536), Detail::Detailed), Some((64.0, Conflict::Reads)));
        // 32 bytes apart: seven groups of eight are still the same.
        assert_eq!(lost(&addition(0, 16_384 + 32, 65_536), Detail::Detailed), Some((64.0, Conflict::Reads)));
        // Other groups, and the result in the bank of the first operand.
        assert_eq!(lost(&addition(0, 16_384 + 256, 32_768), Detail::Detailed), Some((64.0, Conflict::ReadWrite)));
        assert_eq!(lost(&addition(0, 16_384, 65_536), Detail::Fast), None);
    }

    /// Eight blocks written at a stride of 512 bytes take eight cycles, at 256 bytes four (the vendor's examples).
    #[test]
    fn blocks_at_a_stride_wait_as_the_vendor_says() {
        let steps = Steps { count: 8, lanes: 64, rows: 1, columns: 512 };
        for (stride, cycles) in [(512, 8.0), (256, 4.0), (288, 1.0), (32, 1.0)] {
            let named = Access::whole(Root::Buffer(BufferId(0)), ElementType::F32);
            let region = Region::new(0x1FE00, 4, &[(64, stride), (8, 4)]).unwrap();
            let touch = Touch { region, certain: true, ..Touch::nowhere(&named) };
            let expected = (cycles > 1.0).then_some((8.0 * (cycles - 1.0), Conflict::Rows));
            assert_eq!(BANKS.lost(steps, 1.0, &[], &[touch]), expected, "{stride}");
            assert_eq!(BANKS.lost(steps, 8.0, &[], &[touch]), None, "a slow unit hides it");
        }
    }

    #[test]
    fn without_addresses_nothing_is_counted_and_it_says_so() {
        let mut b = ProgramBuilder::new("unplanned");
        let a = b.buffer(Buffer::tile("a", "vec", 4096));
        let c = b.buffer(Buffer::tile("c", "vec", 4096));
        let whole = |id| Access::whole(Root::Buffer(id), ElementType::F32);
        b.run(Operation { reads: vec![whole(a), whole(a)], writes: vec![whole(c)], ..Operation::new("tadd", "v") });
        let program = b.finish().unwrap();
        assert_eq!(lost(&program, Detail::Detailed), None);
        let options = Options { detail: Detail::Detailed, ..Options::default() };
        let done = run(&program, &ascend(), &options, &mut Nothing).unwrap();
        assert_eq!(done.assumed, ["no bank of ub is asked for twice at once: its buffers have no addresses"]);
    }
}
