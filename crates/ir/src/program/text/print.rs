//! Writing a program as text.

use super::MAGIC;
use crate::program::{
    Access, Affine, Assign, Buffer, Core, InPlace, Layout, Number, Op, Operation, Program, Role, Root, ScalarKind,
    Step, Sync,
};
use std::fmt::Write;

/// The text form of a program.
#[must_use]
pub fn print(program: &Program) -> String {
    let mut out = String::new();
    let _ = write!(out, "{MAGIC}\nprogram {}", name(&program.name));
    if let Some(target) = &program.target {
        let _ = write!(out, " target {}", name(target));
    }
    out.push('\n');
    for scalar in &program.scalars {
        let _ = write!(out, "scalar {} = ", name(&scalar.name));
        let _ = match &scalar.kind {
            ScalarKind::Argument(None) => write!(out, "argument"),
            ScalarKind::Argument(Some(value)) => write!(out, "argument {value}"),
            ScalarKind::Grid(None) => write!(out, "grid"),
            ScalarKind::Grid(Some(extent)) => write!(out, "grid {extent}"),
            ScalarKind::Counter => write!(out, "counter"),
            ScalarKind::Variable => write!(out, "variable"),
            ScalarKind::Computed(compute) => {
                let operands: Vec<String> = compute.operands.iter().map(|o| affine(program, o)).collect();
                write!(out, "{}({})", op_name(compute.op), operands.join(", "))
            }
        };
        out.push('\n');
    }
    for buffer in &program.buffers {
        print_buffer(&mut out, program, buffer);
    }
    for handle in &program.handles {
        let _ = writeln!(out, "handle {}", name(&handle.name));
    }
    out.push_str("steps\n");
    let mut depth: usize = 0;
    for (at, step) in program.steps.iter().enumerate() {
        if matches!(step, Step::Else | Step::End) {
            depth = depth.saturating_sub(1);
        }
        out.extend(std::iter::repeat_n("  ", depth.min(crate::program::MAX_DEPTH)));
        print_step(&mut out, program, step);
        let line = program.line(crate::StepId::new(at));
        if matches!(step, Step::Sync(_)) && line != 0 {
            let _ = write!(out, " line {line}");
        }
        out.push('\n');
        if matches!(step, Step::For { .. } | Step::Loop | Step::If(_) | Step::Else) {
            depth += 1;
        }
    }
    out
}

fn print_buffer(out: &mut String, program: &Program, buffer: &Buffer) {
    let word = if buffer.role == Role::External { "external" } else { "buffer" };
    let _ = write!(out, "{word} {} in {}", name(&buffer.name), name(&buffer.space));
    if let Some(bytes) = buffer.bytes {
        let _ = write!(out, " bytes {bytes}");
    }
    if buffer.slots != 1 {
        let _ = write!(out, " slots {}", buffer.slots);
    }
    if buffer.alignment.get() != 1 {
        let _ = write!(out, " align {}", buffer.alignment);
    }
    if let Some(address) = &buffer.address {
        let _ = write!(out, " at {}", affine(program, address));
    }
    if let Some(alias) = buffer.alias {
        let _ = write!(out, " alias {} {}", name(&program.buffer(alias.of).name), alias.delta);
    }
    let _ = write!(out, " : {}", buffer.element);
    if !buffer.shape.is_empty() {
        let dims: Vec<String> = buffer.shape.iter().map(u64::to_string).collect();
        let _ = write!(out, " shape {}", dims.join("x"));
    }
    print_layout(out, buffer.layout);
    match buffer.role {
        Role::Workspace => out.push_str(" workspace"),
        Role::Queue => out.push_str(" queue"),
        Role::Tile | Role::External => {}
    }
    if buffer.fixed {
        out.push_str(" fixed");
    }
    if buffer.line != 0 {
        let _ = write!(out, " line {}", buffer.line);
    }
    out.push('\n');
}

fn print_layout(out: &mut String, layout: Layout) {
    let side = |col: bool| if col { "col" } else { "row" };
    match layout {
        Layout::RowMajor => {}
        Layout::ColMajor => out.push_str(" col"),
        Layout::Fractal { outer_col, inner_col, bytes } => {
            let _ = write!(out, " fractal({}, {}, {bytes})", side(outer_col), side(inner_col));
        }
    }
}

fn print_step(out: &mut String, program: &Program, step: &Step) {
    let text = |value: &Affine| affine(program, value);
    let scalar = |id: crate::ScalarId| name(&program.scalar(id).name);
    let _ = match step {
        Step::Run(operation) => {
            print_operation(out, program, operation);
            Ok(())
        }
        Step::Sync(sync) => match sync {
            Sync::SetFlag { from, to, event } => write!(out, "set-flag {} {} {}", name(from), name(to), text(event)),
            Sync::WaitFlag { from, to, event } => write!(out, "wait-flag {} {} {}", name(from), name(to), text(event)),
            Sync::Barrier(None) => write!(out, "barrier"),
            Sync::Barrier(Some(engine)) if engine == "line" => write!(out, "barrier \"line\""),
            Sync::Barrier(Some(engine)) => write!(out, "barrier {}", name(engine)),
            Sync::Acquire { engine, token } => write!(out, "acquire {} {}", name(engine), text(token)),
            Sync::Release { engine, token } => write!(out, "release {} {}", name(engine), text(token)),
            Sync::Post { engine, flag } => write!(out, "post {} {}", name(engine), text(flag)),
            Sync::Await { engine, flag } => write!(out, "await {} {}", name(engine), text(flag)),
        },
        Step::Assign(Assign { scalars, handles }) => {
            let mut parts: Vec<String> =
                scalars.iter().map(|(id, value)| format!("{} = {}", scalar(*id), text(value))).collect();
            parts.extend(handles.iter().map(|(id, value, delta)| {
                let target = name(&program.handles[id.index()].name);
                format!("&{target} = {}[{}]", root(program, *value), text(delta))
            }));
            write!(out, "assign {}", parts.join(", "))
        }
        Step::For { counter, start, stop, step } => {
            write!(out, "for {} = {} to {} step {}", scalar(*counter), text(start), text(stop), text(step))
        }
        Step::Loop => write!(out, "loop"),
        Step::Leave(value) => write!(out, "leave {}", text(value)),
        Step::If(value) => write!(out, "if {}", text(value)),
        Step::Else => write!(out, "else"),
        Step::End => write!(out, "end"),
    };
}

fn print_operation(out: &mut String, program: &Program, operation: &Operation) {
    let _ = write!(out, "{} @{}", quoted_keyword(&operation.name), name(&operation.engine));
    match operation.core {
        Core::Any => {}
        Core::Cube => out.push_str(" cube"),
        Core::Vector => out.push_str(" vector"),
    }
    match operation.in_place {
        InPlace::Never => {}
        InPlace::Elementwise => out.push_str(" elementwise"),
        InPlace::Always => out.push_str(" in-place"),
    }
    if !operation.known {
        out.push_str(" unknown");
    }
    for (word, accesses) in [("reads", &operation.reads), ("writes", &operation.writes)] {
        if !accesses.is_empty() {
            let list: Vec<String> = accesses.iter().map(|access| print_access(program, access)).collect();
            let _ = write!(out, " {word} {}", list.join(", "));
        }
    }
    if !operation.scalars.is_empty() {
        let list: Vec<String> = operation.scalars.iter().map(|number| print_number(program, number)).collect();
        let _ = write!(out, " with {}", list.join(", "));
    }
    for (key, value) in &operation.attributes {
        let _ = write!(out, " set {} = {}", quote(key), quote(value));
    }
    if operation.line != 0 {
        let _ = write!(out, " line {}", operation.line);
    }
}

fn print_number(program: &Program, number: &Number) -> String {
    match number {
        Number::Int(value) => affine(program, value),
        // `{:?}` of a float reads back to the same float.
        Number::Real(value) => format!("real {}", quote(&format!("{value:?}"))),
        Number::Named(value) => format!("named {}", quote(value)),
    }
}

fn print_access(program: &Program, access: &Access) -> String {
    let mut out = root(program, access.root);
    if access.slot != Affine::constant(0) {
        let _ = write!(out, "{{{}}}", affine(program, &access.slot));
    }
    let _ = write!(out, "[{}", affine(program, &access.start));
    for extent in &access.extents {
        let _ = write!(out, "; {} by {}", affine(program, &extent.count), extent.stride);
    }
    let _ = write!(out, "]:{}", access.element);
    if !access.shape.is_empty() {
        let dims: Vec<String> = access.shape.iter().map(|dim| affine(program, dim)).collect();
        let _ = write!(out, " shape({})", dims.join(", "));
    }
    print_layout(&mut out, access.layout);
    if !access.certain {
        out.push_str(" maybe");
    }
    out
}

fn root(program: &Program, root: Root) -> String {
    match root {
        Root::Buffer(id) => name(&program.buffer(id).name),
        Root::Handle(id) => format!("&{}", name(&program.handles[id.index()].name)),
    }
}

/// `2*i - j + 7`.
fn affine(program: &Program, affine: &Affine) -> String {
    let mut out = String::new();
    for (scalar, factor) in &affine.terms {
        let sign = match (out.is_empty(), *factor < 0) {
            (true, false) => "",
            (true, true) => "-",
            (false, false) => " + ",
            (false, true) => " - ",
        };
        out.push_str(sign);
        if factor.unsigned_abs() != 1 {
            let _ = write!(out, "{}*", factor.unsigned_abs());
        }
        out.push_str(&name(&program.scalar(*scalar).name));
    }
    let _ = match (out.is_empty(), affine.constant) {
        (true, constant) => write!(out, "{constant}"),
        (false, 0) => Ok(()),
        (false, constant) if constant < 0 => write!(out, " - {}", constant.unsigned_abs()),
        (false, constant) => write!(out, " + {constant}"),
    };
    out
}

/// The word of an operation on integers.
pub(super) fn op_name(op: Op) -> &'static str {
    OPS.iter().find(|(_, known)| *known == op).map_or("opaque", |(word, _)| word)
}

/// All operations on integers, by word.
pub(super) const OPS: [(&str, Op); 16] = [
    ("mul", Op::Mul),
    ("div", Op::Div),
    ("rem", Op::Rem),
    ("divz", Op::DivToZero),
    ("remz", Op::RemToZero),
    ("min", Op::Min),
    ("max", Op::Max),
    ("and", Op::And),
    ("or", Op::Or),
    ("xor", Op::Xor),
    ("eq", Op::Eq),
    ("ne", Op::Ne),
    ("lt", Op::Lt),
    ("le", Op::Le),
    ("select", Op::Select),
    ("opaque", Op::Opaque),
];

/// Words that open a step and so cannot name an operation without quotes.
const KEYWORDS: [&str; 14] = [
    "for",
    "loop",
    "leave",
    "if",
    "else",
    "end",
    "assign",
    "set-flag",
    "wait-flag",
    "barrier",
    "acquire",
    "release",
    "post",
    "await",
];

fn quoted_keyword(text: &str) -> String {
    if KEYWORDS.contains(&text) { quote(text) } else { name(text) }
}

/// A name as it is when it is a plain word, else in quotes.
fn name(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
    if plain { text.to_owned() } else { quote(text) }
}

/// In quotes, with quotes, backslashes and line ends escaped.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
