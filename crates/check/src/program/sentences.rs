//! Findings as sentences for people.

use super::finding::{At, Finding, Kind, Unseen};
use npumem_ir::program::{Program, Step};
use npumem_ir::{BufferId, ByteRange, Bytes, StepId};
use std::fmt::Write;

/// `statement 8 (line 12)`.
fn statement(program: &Program, step: StepId) -> String {
    let name = match program.steps.get(step.index()) {
        Some(Step::Run(operation)) => format!(" '{}'", operation.name),
        _ => String::new(),
    };
    match program.line(step) {
        0 => format!("statement {step}{name}"),
        line => format!("statement {step}{name} (line {line})"),
    }
}

/// `statement 8 (line 12), i = 1, first branch of statement 3`.
fn moment(program: &Program, at: &At) -> String {
    let mut out = statement(program, at.step);
    for (counter, value) in &at.turns {
        let name = &program.scalar(*counter).name;
        let _ = match value {
            Some(value) => write!(out, ", {name} = {value}"),
            None => write!(out, ", {name} in any turn"),
        };
    }
    for (step, turn) in &at.rounds {
        let _ = write!(out, ", turn {turn} of the 'while' at statement {step}");
    }
    for (step, taken) in &at.branches {
        let _ = write!(out, ", {} branch of the 'if' at statement {step}", if *taken { "first" } else { "other" });
    }
    out
}

impl Finding {
    /// One sentence for people, with names, bytes and statements.
    #[must_use]
    pub fn message(&self, program: &Program) -> String {
        let mut message = self.sentence(program);
        for (index, (scalar, value)) in self.example.iter().enumerate() {
            let head = if index == 0 { "; for example with" } else { "," };
            let _ = write!(message, "{head} {} = {value}", program.scalar(*scalar).name);
        }
        message
    }

    fn sentence(&self, program: &Program) -> String {
        let name = |id: &BufferId| format!("'{}'", program.buffer(*id).name);
        let size = |bytes: &ByteRange| format!("bytes {bytes} ({})", bytes.size());
        let space = |id: &BufferId| program.buffer(*id).space.clone();
        match &self.kind {
            Kind::Overwritten { reader, other, bytes, written, overwritten, read, partly, .. } => {
                let written = written
                    .as_ref()
                    .map_or(String::new(), |at| format!("; they were written at {}", moment(program, at)));
                format!(
                    "{} reads {} of {} in {} that {} has overwritten at {}{written}{}",
                    moment(program, read),
                    size(bytes),
                    name(reader),
                    space(reader),
                    name(other),
                    moment(program, overwritten),
                    if *partly { "; the rest of what it reads is right" } else { "" },
                )
            }
            Kind::Foreign { reader, other, bytes, read } => format!(
                "{} reads {} of {} in {}, which it never wrote; {} wrote there. If the two are one buffer this is right, else it is wrong; the program before planning decides it (check --against), or a declared alias",
                moment(program, read),
                size(bytes),
                name(reader),
                space(reader),
                name(other),
            ),
            Kind::NeverWritten { buffer, bytes, read } => format!(
                "{} reads {} of {}, which nothing has written on some path",
                moment(program, read),
                size(bytes),
                name(buffer)
            ),
            Kind::Torn { buffer, first, second, read } => format!(
                "{} reads {} of which one part was written by {} and another by {} over it",
                moment(program, read),
                name(buffer),
                statement(program, *first),
                statement(program, *second)
            ),
            Kind::OwnInput { reader, other, bytes, read } => format!(
                "{} writes {} over {} of {}, which it reads",
                moment(program, read),
                name(other),
                size(bytes),
                name(reader)
            ),
            Kind::Outside { buffer, bytes, capacity } => format!(
                "{} takes {} of {}, which ends at {capacity}: {} too far",
                name(buffer),
                size(bytes),
                space(buffer),
                Bytes(bytes.end.0.saturating_sub(capacity.0))
            ),
            Kind::PastUsable { buffer, bytes, usable } => format!(
                "{} takes {} of {}; the toolchain leaves kernels {usable}",
                name(buffer),
                size(bytes),
                space(buffer)
            ),
            Kind::Reserved { buffer, bytes, why } => {
                format!("{} takes {} of {}, which are reserved: {why}", name(buffer), size(bytes), space(buffer))
            }
            Kind::Misaligned { buffer, address, unit, step } => {
                let at = step.map_or(String::new(), |step| format!("{}: ", statement(program, step)));
                format!(
                    "{at}{} is touched at address {address} of {}, which is not a multiple of {unit} bytes",
                    name(buffer),
                    space(buffer)
                )
            }
            Kind::Rows { buffer, pitch, unit, step } => format!(
                "{}: rows of {} lie {pitch} bytes apart, not a multiple of {unit}, and are not one run of bytes: this copy cannot be expressed",
                statement(program, *step),
                name(buffer)
            ),
            Kind::PastBuffer { buffer, bytes, size: whole, at } => {
                format!("{} touches {} of {}, whose slot has {whole}", moment(program, at), size(bytes), name(buffer))
            }
            Kind::AliasMoved { buffer, owner, expected, found } => format!(
                "{} is a name for bytes of {} and must lie at {expected}; it lies at {found}",
                name(buffer),
                name(owner)
            ),
            Kind::RunTimeAddress { buffer } => format!(
                "the address of {} is decided at run time: its bytes cannot be compared with others'. Bind its inputs with --dim",
                name(buffer)
            ),
            Kind::UnknownSpace { buffer } => {
                format!("{} lies in '{}', a space that the device does not have", name(buffer), space(buffer))
            }
            Kind::Unreachable { step, engine, space, reads } => format!(
                "{}: no {engine} engine of the device {} {space}",
                statement(program, *step),
                if *reads { "reads" } else { "writes" }
            ),
            Kind::OtherSum { step, input, output } => format!(
                "{} adds to the sum in {} and leaves it in {}, at another address: the engine adds to what lies at the output and never reads the input. Give both one address",
                statement(program, *step),
                name(input),
                name(output)
            ),
            Kind::NoLink { step, from, to } => {
                format!("{}: no link of the device moves from {from} to {to}", statement(program, *step))
            }
            Kind::DirectOperand { step, space, staged_cycles } => format!(
                "{} takes an operand straight from {space}; a copy into the core first would let loads run ahead{}",
                statement(program, *step),
                staged_cycles.map_or(String::new(), |c| format!(" (about {c} cycles for the copy)"))
            ),
            Kind::UnusedSlots { buffer, used, slots } => {
                let used: Vec<String> = used.iter().map(u32::to_string).collect();
                format!(
                    "{} has {slots} slots and only slot {} is ever used: nothing overlaps, and the rest of its bytes are wasted",
                    name(buffer),
                    used.join(", ")
                )
            }
            Kind::Race { first, second, buffers, bytes } => {
                let same = if buffers.0 == buffers.1 {
                    name(&buffers.0)
                } else {
                    format!("{} and {}", name(&buffers.0), name(&buffers.1))
                };
                format!(
                    "nothing orders {} before {}: both touch {} of {same}, on two engines",
                    moment(program, first),
                    moment(program, second),
                    size(bytes)
                )
            }
            Kind::Deadlock { at, flag: (from, to, event), behind } => {
                let why = behind.as_ref().map_or("which is not set".to_owned(), |at| {
                    format!("which is set at {}, behind what waits for this one: a circle", moment(program, at))
                });
                format!("{} waits on {to} for event {event} of {from}, {why}; it waits for ever", moment(program, at))
            }
            Kind::OrderUnknown { step, why } => {
                format!("{}: the order of the engines cannot be told: {why}", statement(program, *step))
            }
            Kind::Together { first, second, inputs } => {
                let names: Vec<String> =
                    inputs.iter().map(|id| format!("--dim {}=..", program.scalar(*id).name)).collect();
                let bind = if names.is_empty() {
                    "they follow from values that are decided at run time".to_owned()
                } else {
                    format!("{} decides it", names.join(" "))
                };
                let at = match first == second {
                    true => format!("around {}", statement(program, *second)),
                    false => format!("at {} and at {}", statement(program, *first), statement(program, *second)),
                };
                format!(
                    "what is told above takes decisions {at} that hang together: whether a run takes them all cannot be told; {bind}"
                )
            }
            Kind::Budget { step, why } => {
                let turns = format!("not every turn of the loop at {} was looked at", statement(program, *step));
                match why {
                    Unseen::Work => {
                        format!(
                            "{turns}: the work of one check ended there. Give its bounds with --dim, or fewer turns"
                        )
                    }
                    Unseen::FollowsCounter => format!(
                        "{turns}: what its turns touch follows the counter, and where it ends is not known. Give its bounds with --dim"
                    ),
                    Unseen::Conditions => format!(
                        "{turns}: conditions in it compare the counter with inputs that other conditions ask for too. Give these inputs with --dim"
                    ),
                    Unseen::NoRepeat => format!(
                        "{turns}: they do not come to repeat, and where it ends is not known. Give its bounds with --dim"
                    ),
                    Unseen::Handles => format!(
                        "too many paths meet at {}, on which handles name different buffers: what goes through these handles behind it is not looked at. Give the inputs of the branches before it with --dim",
                        statement(program, *step)
                    ),
                }
            }
        }
    }
}
