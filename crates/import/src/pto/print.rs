//! A program as `.pto` text.
//!
//! ```text
//!   buffer in n slots          n tiles, each at its address; scf.if yields the one of this turn
//!   bytes of global memory     addptr, make_tensor_view, partition_view
//!   part of a tile in blocks   textract with the row and the column that it starts at
//!   valid part of a tile       set_validshape before the statement that sees it
//! ```
//!
//! What the dialect does not say is refused by name; nothing is written that reads back as another program.

use super::dialect;
use npumem_ir::program::{
    Access, Affine, Buffer, Compute, Layout, Op, Operation, POINTS, Role, Root, ScalarKind, Step, UNWRITTEN, Values,
};
use npumem_ir::{BufferId, Device, ElementType, Program, ScalarId};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Why a program has no `.pto` text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{program}: {what} cannot be written as .pto; the tile program (.npumem) has it")]
pub struct PrintError {
    /// The program.
    pub program: String,
    /// What the dialect, or this writer, does not say.
    pub what: String,
}

/// Spaces of a device by the names that tiles have in the dialect.
const PLACES: [&str; 6] = ["mat", "left", "right", "acc", "vec", "bias"];

/// The text of a program whose buffers have their addresses, for a device.
///
/// # Errors
/// What the dialect does not say.
pub fn print(program: &Program, device: &Device) -> Result<String, PrintError> {
    let mut printer = Printer {
        program,
        device,
        out: String::new(),
        depth: 2,
        next: 0,
        scopes: vec![Scope::default()],
        tiles: BTreeMap::new(),
        places: Vec::new(),
    };
    printer.all().map_err(|what| PrintError { program: program.name.clone(), what })?;
    Ok(printer.out)
}

/// Names that one region gave.
#[derive(Default)]
struct Scope {
    scalars: BTreeMap<ScalarId, String>,
    /// Comparisons, as what `scf.if` takes.
    truths: BTreeMap<ScalarId, String>,
    numbers: BTreeMap<String, String>,
}

/// The tiles of a buffer.
struct Tiles {
    names: Vec<String>,
    ty: String,
    rows: u64,
    columns: u64,
}

struct Printer<'a> {
    program: &'a Program,
    device: &'a Device,
    out: String,
    depth: usize,
    next: usize,
    scopes: Vec<Scope>,
    tiles: BTreeMap<BufferId, Tiles>,
    places: Vec<&'static str>,
}

type Printed<T> = Result<T, String>;

impl Printer<'_> {
    fn all(&mut self) -> Printed<()> {
        let program = self.program;
        self.places = program.buffers.iter().map(|buffer| self.place(buffer)).collect::<Printed<_>>()?;
        let used = |names: &[&str]| self.places.iter().any(|place| names.contains(place));
        let kind = match (used(&["mat", "left", "right", "acc"]), used(&["vec"])) {
            (true, false) => " attributes {pto.kernel_kind = #pto.kernel_kind<cube>}",
            (false, true) => " attributes {pto.kernel_kind = #pto.kernel_kind<vector>}",
            _ => "",
        };
        let target = program.target.as_deref().unwrap_or_default();
        let architecture = match target {
            name if name.starts_with("ascend-910b") => " attributes {pto.target_arch = \"a3\"}",
            name if name.starts_with("ascend-950") => " attributes {pto.target_arch = \"a5\"}",
            _ => "",
        };
        let mut arguments = Vec::new();
        for (_, buffer) in program.buffers().filter(|(_, buffer)| buffer.role == Role::External) {
            arguments.push(format!("%{}: !pto.ptr<{}>", word(&buffer.name), element(buffer.element)?));
        }
        let grid = program.scalars.iter().find_map(|scalar| match scalar.kind {
            ScalarKind::Grid(extent) => extent,
            _ => None,
        });
        if let Some(blocks) = grid {
            let _ = writeln!(self.out, "// For a grid of {blocks} blocks.");
        }
        let _ = writeln!(self.out, "module{architecture} {{");
        let _ = writeln!(self.out, "  func.func @{}({}){kind} {{", word(&program.name), arguments.join(", "));
        self.values()?;
        for (id, buffer) in program.buffers() {
            if buffer.role != Role::External {
                self.allocate(id, buffer)?;
            }
        }
        for step in &program.steps {
            self.step(step)?;
        }
        self.line("return");
        self.out.push_str("  }\n}\n");
        Ok(())
    }

    /// The dialect's name of a buffer's space.
    fn place(&self, buffer: &Buffer) -> Printed<&'static str> {
        let space = self.device.space_named(&buffer.space);
        if buffer.role == Role::External {
            return Ok("gm");
        }
        let found = PLACES.iter().find(|name| space.is_some() && self.device.space_named(name) == space);
        found.copied().ok_or_else(|| format!("a tile in {}, for which the dialect has no name,", buffer.space))
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:width$}{text}", "", width = self.depth * 2);
    }

    fn fresh(&mut self, hint: &str) -> String {
        self.next += 1;
        format!("%{}_{}", word(hint), self.next)
    }

    /// Gives a name to a text that makes one value.
    fn make(&mut self, hint: &str, text: &str) -> String {
        let name = self.fresh(hint);
        self.line(&format!("{name} = {text}"));
        name
    }

    fn known(&self, scalar: ScalarId) -> Option<&str> {
        self.scopes.iter().rev().find_map(|scope| scope.scalars.get(&scalar)).map(String::as_str)
    }

    fn give(&mut self, scalar: ScalarId, name: String) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.scalars.insert(scalar, name);
        }
    }

    fn number(&mut self, key: String, make: impl FnOnce(&mut Self) -> Printed<String>) -> Printed<String> {
        if let Some(name) = self.scopes.iter().rev().find_map(|scope| scope.numbers.get(&key)) {
            return Ok(name.clone());
        }
        let name = make(self)?;
        if let Some(scope) = self.scopes.last_mut() {
            scope.numbers.insert(key, name.clone());
        }
        Ok(name)
    }

    fn constant(&mut self, value: i64) -> Printed<String> {
        self.number(value.to_string(), |this| Ok(this.make("c", &format!("arith.constant {value} : index"))))
    }

    /// A sum of scalars.
    fn affine(&mut self, affine: &Affine) -> Printed<String> {
        if let Some(value) = affine.as_constant() {
            return self.constant(value);
        }
        let affine = affine.clone();
        self.number(format!("{affine:?}"), |this| {
            let mut sum: Option<String> = None;
            for (scalar, factor) in &affine.terms {
                let name = this.known(*scalar).ok_or("a value that is used before it is known")?.to_owned();
                let part = if *factor == 1 {
                    name
                } else {
                    let by = this.constant(*factor)?;
                    this.make("x", &format!("arith.muli {name}, {by} : index"))
                };
                sum = Some(match sum {
                    Some(sum) => this.make("x", &format!("arith.addi {sum}, {part} : index")),
                    None => part,
                });
            }
            let sum = sum.ok_or("an empty sum")?;
            if affine.constant == 0 {
                return Ok(sum);
            }
            let plus = this.constant(affine.constant)?;
            Ok(this.make("x", &format!("arith.addi {sum}, {plus} : index")))
        })
    }

    /// Makes all values that follow from what is known in this region; the others wait for a counter.
    fn values(&mut self) -> Printed<()> {
        for index in 0..self.program.scalars.len() {
            let id = ScalarId::new(index);
            if self.known(id).is_some() {
                continue;
            }
            let name = &self.program.scalars[index].name;
            match &self.program.scalars[index].kind {
                ScalarKind::Grid(extent) => {
                    let block = self.make("block", "pto.get_block_idx -> i64");
                    let mut core = self.make(name, &format!("arith.index_cast {block} : i64 to index"));
                    if let Some(extent) = extent {
                        let last = self.constant(i64::try_from(extent.saturating_sub(1)).unwrap_or(i64::MAX))?;
                        core = self.make(name, &format!("arith.minsi {core}, {last} : index"));
                    }
                    self.give(id, core);
                }
                ScalarKind::Computed(compute) => {
                    let ready = compute.operands.iter().flat_map(|operand| &operand.terms);
                    if ready.into_iter().all(|(scalar, _)| self.known(*scalar).is_some()) {
                        self.computed(id, compute)?;
                    }
                }
                ScalarKind::Counter => {}
                _ => return Err(format!("the value '{name}' from outside")),
            }
        }
        Ok(())
    }

    fn computed(&mut self, id: ScalarId, compute: &Compute) -> Printed<()> {
        let hint = self.program.scalar(id).name.clone();
        let mut operands = Vec::new();
        for operand in &compute.operands {
            operands.push(self.affine(operand)?);
        }
        let all = operands.join(", ");
        let compare = match compute.op {
            Op::Eq => Some("eq"),
            Op::Ne => Some("ne"),
            Op::Lt => Some("slt"),
            Op::Le => Some("sle"),
            _ => None,
        };
        if let Some(predicate) = compare {
            let truth = self.make(&hint, &format!("arith.cmpi {predicate}, {all} : index"));
            let wide = self.make(&hint, &format!("arith.extui {truth} : i1 to i64"));
            let value = self.make(&hint, &format!("arith.index_cast {wide} : i64 to index"));
            if let Some(scope) = self.scopes.last_mut() {
                scope.truths.insert(id, truth);
            }
            self.give(id, value);
            return Ok(());
        }
        let text = match compute.op {
            Op::Mul => format!("arith.muli {all} : index"),
            Op::Div => format!("arith.floordivsi {all} : index"),
            Op::Rem => format!("arith.remsi {all} : index"),
            Op::DivToZero => format!("arith.divsi {all} : index"),
            Op::RemToZero => format!("arith.remsi {all} : index"),
            Op::Min => format!("arith.minsi {all} : index"),
            Op::Max => format!("arith.maxsi {all} : index"),
            Op::Select => {
                let truth = self.truth(&compute.operands[0])?;
                format!("arith.select {truth}, {} : index", operands[1..].join(", "))
            }
            other => return Err(format!("the operation {other:?} on numbers")),
        };
        let name = self.make(&hint, &text);
        self.give(id, name);
        Ok(())
    }

    /// A value as what `scf.if` takes.
    fn truth(&mut self, affine: &Affine) -> Printed<String> {
        let own = affine.as_scalar().and_then(|id| self.scopes.iter().rev().find_map(|scope| scope.truths.get(&id)));
        if let Some(own) = own {
            return Ok(own.clone());
        }
        let (value, zero) = (self.affine(affine)?, self.constant(0)?);
        Ok(self.make("t", &format!("arith.cmpi ne, {value}, {zero} : index")))
    }

    fn allocate(&mut self, id: BufferId, buffer: &Buffer) -> Printed<()> {
        let address = buffer.address.as_ref().and_then(Affine::as_constant);
        let address = address.ok_or_else(|| format!("'{}', which has no address,", buffer.name))?;
        let bytes = buffer.bytes.ok_or_else(|| format!("'{}', whose size is open,", buffer.name))?;
        let pitch = buffer.pitch().and_then(|pitch| i64::try_from(pitch).ok()).unwrap_or(i64::MAX);
        let (rows, columns) = self.shape_of(id, buffer, bytes)?;
        let (outer, inner, fractal) = match buffer.layout {
            Layout::RowMajor => ("row_major", "none_box", 512),
            Layout::ColMajor => ("col_major", "none_box", 512),
            Layout::Fractal { outer_col, inner_col, bytes } => {
                let major = |col: bool| if col { "col_major" } else { "row_major" };
                (major(outer_col), major(inner_col), bytes)
            }
        };
        let ty = format!(
            "!pto.tile_buf<loc={}, dtype={}, rows={rows}, cols={columns}, v_row=?, v_col=?, blayout={outer}, \
             slayout={inner}, fractal={fractal}, pad=0>",
            self.places[id.index()],
            element(buffer.element)?
        );
        let mut names = Vec::new();
        for slot in 0..buffer.slots {
            let at = self.constant(address.saturating_add(pitch.saturating_mul(i64::from(slot))))?;
            let (r, c) = (self.count(rows)?, self.count(columns)?);
            let text = format!("pto.alloc_tile addr = {at} valid_row = {r} valid_col = {c} : {ty}");
            names.push(self.make(&buffer.name, &text));
        }
        self.tiles.insert(id, Tiles { names, ty, rows, columns });
        Ok(())
    }

    fn count(&mut self, value: u64) -> Printed<String> {
        self.constant(i64::try_from(value).map_err(|_| "a count beyond 63 bits")?)
    }

    /// Rows and columns of a whole tile: as declared, or from what statements see of it.
    fn shape_of(&self, id: BufferId, buffer: &Buffer, bytes: u64) -> Printed<(u64, u64)> {
        let size = buffer.element.bits() / 8;
        if size == 0 {
            return Err(format!("'{}' in elements smaller than a byte", buffer.name));
        }
        let all = bytes / size;
        if let [rows, columns] = buffer.shape.as_slice() {
            return Ok((*rows, *columns));
        }
        let mut widest = 1_u64;
        let runs = self.program.steps.iter().filter_map(|step| match step {
            Step::Run(operation) => Some(operation),
            _ => None,
        });
        for access in runs.flat_map(|run| run.reads.iter().chain(&run.writes)) {
            if access.root != Root::Buffer(id) {
                continue;
            }
            match access.shape.as_slice() {
                [] | [_] => return Ok((1, all)),
                [.., last] => {
                    let (_, most) = Values::new(self.program).range(self.program, last);
                    let most = most.and_then(|most| u64::try_from(most).ok());
                    widest = widest.max(most.ok_or_else(|| format!("the width of '{}'", buffer.name))?);
                }
            }
        }
        let block = (32 / size).max(1);
        let columns = widest.div_ceil(block) * block;
        if columns == 0 || !all.is_multiple_of(columns) {
            return Err(format!("'{}', whose rows are not whole blocks of 32 bytes,", buffer.name));
        }
        Ok((all / columns, columns))
    }

    fn step(&mut self, step: &Step) -> Printed<()> {
        match step {
            Step::Run(operation) => self.run(operation),
            Step::For { counter, start, stop, step } => {
                let (start, stop, by) = (self.affine(start)?, self.affine(stop)?, self.affine(step)?);
                let name = self.fresh(&self.program.scalar(*counter).name);
                self.line(&format!("scf.for {name} = {start} to {stop} step {by} {{"));
                self.enter();
                self.give(*counter, name);
                self.values()
            }
            Step::If(condition) => {
                let truth = self.truth(condition)?;
                self.line(&format!("scf.if {truth} {{"));
                self.enter();
                Ok(())
            }
            Step::Else => {
                self.leave();
                self.line("} else {");
                self.enter();
                Ok(())
            }
            Step::End => {
                self.leave();
                self.line("}");
                Ok(())
            }
            _ => Err("a step that states order, or an open loop,".to_owned()),
        }
    }

    fn enter(&mut self) {
        self.depth += 1;
        self.scopes.push(Scope::default());
    }

    fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.scopes.len() > 1 {
            self.scopes.pop();
        }
    }

    fn run(&mut self, operation: &Operation) -> Printed<()> {
        let name = operation.name.as_str();
        if let Some(why) = operation.attributes.get(UNWRITTEN) {
            return Err(format!("'{name}' {why}"));
        }
        if operation.attributes.contains_key(POINTS) {
            return Err(format!("'{name}' by indices that no operation of the dialect has"));
        }
        if dialect::known(name).is_none() || !operation.scalars.is_empty() || name == "taxpy" {
            return Err(format!("the statement '{name}'"));
        }
        let mut ins = Vec::new();
        let mut part = None;
        for access in &operation.reads {
            let (value, from) = self.operand(access, name == "tmov")?;
            part = part.or(from);
            ins.push(value);
        }
        if let Some((row, column)) = &part {
            ins.push((row.clone(), "index".to_owned()));
            ins.push((column.clone(), "index".to_owned()));
        }
        let mut outs = Vec::new();
        for access in &operation.writes {
            outs.push(self.operand(access, false)?.0);
        }
        let list = |all: &[(String, String)]| {
            let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
            let types: Vec<&str> = all.iter().map(|(_, ty)| ty.as_str()).collect();
            format!("{} : {}", names.join(", "), types.join(", "))
        };
        let name = if part.is_some() { "textract" } else { name };
        let text = format!("pto.{name} ins({}) outs({})", list(&ins), list(&outs));
        self.line(&text);
        Ok(())
    }

    /// An operand with its type, and where a part of a tile starts.
    #[allow(clippy::type_complexity)]
    fn operand(&mut self, access: &Access, parts: bool) -> Printed<((String, String), Option<(String, String)>)> {
        let Root::Buffer(id) = access.root else { return Err("a handle".to_owned()) };
        let buffer = self.program.buffer(id);
        if !access.certain || buffer.alias.is_some() {
            return Err(format!("bytes of '{}' that nobody can say", buffer.name));
        }
        if buffer.role == Role::External {
            return Ok((self.view(access, buffer)?, None));
        }
        let start = if access.extents.is_empty() && access.start == Affine::constant(0) {
            None
        } else if parts {
            Some(self.corner(access, id)?)
        } else {
            return Err(format!("a part of '{}' as an operand", buffer.name));
        };
        let tile = self.chosen(access, id)?;
        // What the statement sees; of a part, the target says it.
        let ty = self.tiles[&id].ty.clone();
        if start.is_none() && !access.shape.is_empty() {
            let [rows, columns] = self.valid(&access.shape)?;
            self.line(&format!("pto.set_validshape {tile}, {rows}, {columns} : {ty}"));
        }
        Ok(((tile, ty), start))
    }

    /// Rows and columns of what a statement sees: all but the last axis are rows.
    fn valid(&mut self, shape: &[Affine]) -> Printed<[String; 2]> {
        let (last, outer) = shape.split_last().ok_or("a tile without a shape")?;
        let mut rows: Option<String> = None;
        for axis in outer.iter().filter(|axis| axis.as_constant() != Some(1)) {
            let name = self.affine(axis)?;
            rows = Some(match rows {
                Some(rows) => self.make("rows", &format!("arith.muli {rows}, {name} : index")),
                None => name,
            });
        }
        let rows = match rows {
            Some(rows) => rows,
            None => self.constant(1)?,
        };
        Ok([rows, self.affine(last)?])
    }

    /// The tile of the slot that a statement touches.
    fn chosen(&mut self, access: &Access, id: BufferId) -> Printed<String> {
        let (names, ty) = (self.tiles[&id].names.clone(), self.tiles[&id].ty.clone());
        let [first, rest @ ..] = names.as_slice() else { return Err("a tile without slots".to_owned()) };
        if rest.is_empty() {
            return Ok(first.clone());
        }
        let many = i64::try_from(names.len()).map_err(|_| "too many slots")?;
        if let Some(slot) = access.slot.as_constant() {
            let at = usize::try_from(slot.rem_euclid(many)).unwrap_or(0);
            return Ok(names[at].clone());
        }
        self.number(format!("{id:?} {:?}", access.slot), |this| {
            let (slot, many) = (this.affine(&access.slot)?, this.constant(many)?);
            let at = this.make("slot", &format!("arith.remsi {slot}, {many} : index"));
            let mut chosen = first.clone();
            for (number, name) in rest.iter().enumerate() {
                let number = this.count(number as u64 + 1)?;
                let this_one = this.make("t", &format!("arith.cmpi eq, {at}, {number} : index"));
                let next = this.fresh("tile");
                this.line(&format!("{next} = scf.if {this_one} -> ({ty}) {{"));
                this.line(&format!("  scf.yield {name} : {ty}"));
                this.line("} else {");
                this.line(&format!("  scf.yield {chosen} : {ty}"));
                this.line("}");
                chosen = next;
            }
            Ok(chosen)
        })
    }

    /// The row and the column at which a part in whole blocks starts.
    fn corner(&mut self, access: &Access, id: BufferId) -> Printed<(String, String)> {
        let buffer = self.program.buffer(id);
        let (rows, columns) = (self.tiles[&id].rows, self.tiles[&id].columns);
        let size = buffer.element.bits() / 8;
        let Layout::Fractal { outer_col, inner_col, bytes } = buffer.layout else {
            return Err(format!("a part of '{}', which is not in blocks,", buffer.name));
        };
        let (short, long) = (16, bytes / 16 / size.max(1));
        let (high, wide) = if inner_col { (long, short) } else { (short, long) };
        let apart = if outer_col { rows / high.max(1) * bytes } else { columns / wide.max(1) * bytes };
        let (Ok(apart), Ok(bytes)) = (i64::try_from(apart), i64::try_from(bytes)) else {
            return Err("a tile beyond 63 bits".to_owned());
        };
        let (mut near, mut far) = (Affine::constant(0), Affine::constant(0));
        let own = [(None, access.start.constant)].into_iter();
        for (scalar, factor) in own.chain(access.start.terms.iter().map(|(scalar, factor)| (Some(*scalar), *factor))) {
            let one = scalar.map_or(Affine::constant(1), Affine::scalar);
            let (blocks, lines) = (factor / apart.max(1), factor % apart.max(1));
            if lines % bytes != 0 {
                return Err(format!("a part of '{}' that starts within a block", buffer.name));
            }
            far = far.plus(&one.times(blocks));
            near = near.plus(&one.times(lines / bytes));
        }
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let (row, column) = if outer_col {
            (near.times(signed(high)), far.times(signed(wide)))
        } else {
            (far.times(signed(high)), near.times(signed(wide)))
        };
        Ok((self.affine(&row)?, self.affine(&column)?))
    }

    /// A view of global memory.
    fn view(&mut self, access: &Access, buffer: &Buffer) -> Printed<(String, String)> {
        let ty = element(buffer.element)?;
        let size = i64::try_from(buffer.element.bits() / 8).unwrap_or(0);
        if size == 0 || access.extents.is_empty() {
            return Err(format!("'{}' as a whole, or in parts of a byte,", buffer.name));
        }
        let whole = |value: i64| value % size == 0;
        if !whole(access.start.constant)
            || !access.start.terms.iter().all(|(_, factor)| whole(*factor))
            || !access.extents.iter().all(|extent| whole(extent.stride))
        {
            return Err(format!("bytes of '{}' that are no whole elements", buffer.name));
        }
        let mut start = Affine::constant(access.start.constant / size);
        for (scalar, factor) in &access.start.terms {
            start = start.plus(&Affine::scalar(*scalar).times(factor / size));
        }
        let (mut counts, mut strides, mut zeros) = (Vec::new(), Vec::new(), Vec::new());
        for extent in &access.extents {
            counts.push(self.affine(&extent.count)?);
            strides.push(self.constant(extent.stride / size)?);
            zeros.push(self.constant(0)?);
        }
        let start = self.affine(&start)?;
        let open = "?x".repeat(counts.len());
        let (counts, strides, zeros) = (counts.join(", "), strides.join(", "), zeros.join(", "));
        let pointer = self.make(
            &buffer.name,
            &format!("pto.addptr %{}, {start} : !pto.ptr<{ty}> -> !pto.ptr<{ty}>", word(&buffer.name)),
        );
        let view = self.make(
            &buffer.name,
            &format!(
                "pto.make_tensor_view {pointer}, shape = [{counts}], strides = [{strides}] : !pto.tensor_view<{open}{ty}>"
            ),
        );
        let part = format!("!pto.partition_tensor_view<{open}{ty}>");
        let name = self.make(
            &buffer.name,
            &format!(
                "pto.partition_view {view}, offsets = [{zeros}], sizes = [{counts}] : !pto.tensor_view<{open}{ty}> -> {part}"
            ),
        );
        Ok((name, part))
    }
}

/// A name of letters, digits and underscores.
fn word(name: &str) -> String {
    let mut word: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if word.chars().next().is_none_or(|first| first.is_ascii_digit()) {
        word.insert(0, 'n');
    }
    word
}

/// The dialect's name of an element type.
fn element(element: ElementType) -> Printed<&'static str> {
    use ElementType::{Bf16, F8e4m3, F8e5m2, F16, F32, I8, I16, I32, I64, U8, U16, U32};
    Ok(match element {
        F32 => "f32",
        F16 => "f16",
        Bf16 => "bf16",
        F8e4m3 => "f8E4M3FN",
        F8e5m2 => "f8E5M2",
        I64 => "i64",
        I32 => "i32",
        I16 => "i16",
        I8 => "i8",
        U32 => "ui32",
        U16 => "ui16",
        U8 => "ui8",
        other => return Err(format!("elements of {}", other.name())),
    })
}
