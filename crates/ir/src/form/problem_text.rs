//! The text form of a problem.

use super::words::{Line, Names, Read, lines, push_name};
use super::{FormError, PROBLEM, VERSION};
use crate::ids::{BufferId, SpaceId};
use crate::interval::Interval;
use crate::problem::{
    Access, Buffer, BufferKind, Colocation, Goal, LiveRange, Location, Problem, ReusePenalty, Separation, Sizing,
    Space, Use,
};
use crate::units::{Alignment, Bytes, Offset, Step};
use std::fmt::Write;

/// The words of an enumeration, both ways.
pub(super) const GOALS: [(Goal, &str); 7] = [
    (Goal::Peak, "peak"),
    (Goal::TotalPeak, "total-peak"),
    (Goal::MaxPeak, "max-peak"),
    (Goal::Fit, "fit"),
    (Goal::ReuseCost, "reuse-cost"),
    (Goal::KeepHints, "keep-hints"),
    (Goal::Traffic, "traffic"),
];
const KINDS: [(BufferKind, &str); 6] = [
    (BufferKind::Activation, "activation"),
    (BufferKind::Weight, "weight"),
    (BufferKind::Constant, "constant"),
    (BufferKind::Input, "input"),
    (BufferKind::Output, "output"),
    (BufferKind::Workspace, "workspace"),
];
const SIZINGS: [(Sizing, &str); 3] =
    [(Sizing::Fixed, "fixed"), (Sizing::Ranged, "ranged"), (Sizing::Unbounded, "unbounded")];

pub(super) fn word_of<T: PartialEq + Copy>(words: &[(T, &'static str)], value: T) -> &'static str {
    words.iter().find(|(candidate, _)| *candidate == value).map_or("", |(_, word)| word)
}

pub(super) fn value_of<T: Copy>(line: &mut Line<'_>, words: &[(T, &'static str)]) -> Read<T> {
    line.skip_blanks();
    let at = line.at;
    let expected = || words.iter().map(|(_, word)| *word).collect::<Vec<_>>().join(", ");
    let word = line.word(&expected())?;
    let found = words.iter().find(|(_, candidate)| *candidate == word);
    found
        .map(|(value, _)| *value)
        .ok_or_else(|| line.fault_at(at, format!("'{word}'"), format!("one of {}", expected())))
}

impl Problem {
    /// The text form: one line an item, made to be read in a diff.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{PROBLEM} {VERSION}\n");
        if !self.name.is_empty() {
            text.push_str("name ");
            push_name(&mut text, &self.name);
            text.push('\n');
        }
        for goal in &self.goals {
            let _ = writeln!(text, "goal {}", word_of(&GOALS, *goal));
        }
        let writer = Writer {
            problem: self,
            spaces: Names::of(self.spaces.iter().map(|space| space.name.as_str())),
            buffers: Names::of(self.buffers.iter().map(|buffer| buffer.name.as_str())),
        };
        self.spaces.iter().for_each(|space| writer.space(&mut text, space));
        self.buffers.iter().for_each(|buffer| writer.buffer(&mut text, buffer));
        writer.constraints(&mut text);
        text
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// The first thing that is not as it should be, with line and character; or the first
    /// [contradiction](Problem::validate) in the statement.
    pub fn from_text(text: &str) -> Result<Problem, FormError> {
        let mut reader = Reader::default();
        for mut line in lines(text, PROBLEM)? {
            reader.item(&mut line)?;
        }
        sound(reader.problem)
    }
}

/// The problem, when its statement holds no contradiction.
pub(super) fn sound(problem: Problem) -> Read<Problem> {
    let mut errors = problem.validate();
    // What no plan satisfies can still be read: that there is none is for the planner to answer.
    errors.retain(|error| !error.kind.is_contradiction());
    match errors.first() {
        None => Ok(problem),
        Some(first) if errors.len() == 1 => Err(FormError::whole(first.to_string())),
        Some(first) => Err(FormError::whole(format!("{first} (and {} more)", errors.len() - 1))),
    }
}

struct Writer<'a> {
    problem: &'a Problem,
    spaces: Names,
    buffers: Names,
}

impl Writer<'_> {
    fn space(&self, text: &mut String, space: &Space) {
        text.push_str("space ");
        push_name(text, &space.name);
        if let Some(capacity) = space.capacity {
            let _ = write!(text, " capacity={}", capacity.0);
        }
        if space.alignment != Alignment::ONE {
            let _ = write!(text, " align={}", space.alignment);
        }
        for (index, range) in space.reserved.iter().enumerate() {
            text.push_str(if index == 0 { " reserved=" } else { "," });
            let _ = write!(text, "[{},{})", range.start, range.end);
        }
        text.push('\n');
    }

    fn push_space(&self, text: &mut String, id: SpaceId) {
        self.spaces.push(text, id.index(), self.problem.spaces.get(id.index()).map(|space| space.name.as_str()));
    }

    fn push_buffer(&self, text: &mut String, id: BufferId) {
        self.buffers.push(text, id.index(), self.problem.buffers.get(id.index()).map(|buffer| buffer.name.as_str()));
    }

    fn location(&self, text: &mut String, key: &str, location: Option<Location>) {
        if let Some(location) = location {
            text.push_str(key);
            self.push_space(text, location.space);
            let _ = write!(text, "+{}", location.offset);
        }
    }

    fn buffer(&self, text: &mut String, buffer: &Buffer) {
        text.push_str("buffer ");
        push_name(text, &buffer.name);
        let _ = write!(text, " size={}", buffer.size.0);
        for (index, range) in buffer.live.iter().enumerate() {
            text.push_str(if index == 0 { " live=" } else { "," });
            let _ = write!(text, "[{},{})", range.steps.start, range.steps.end);
            if let Some(window) = range.window {
                let _ = write!(text, "@[{},{})", window.start, window.end);
            }
        }
        if !(self.problem.spaces.len() == 1 && buffer.spaces == [SpaceId(0)]) {
            for (index, space) in buffer.spaces.iter().enumerate() {
                text.push_str(if index == 0 { " in=" } else { "," });
                self.push_space(text, *space);
            }
        }
        if buffer.alignment != Alignment::ONE {
            let _ = write!(text, " align={}", buffer.alignment);
        }
        if buffer.sizing != Sizing::Fixed {
            let _ = write!(text, " sizing={}", word_of(&SIZINGS, buffer.sizing));
        }
        if buffer.kind != BufferKind::Activation {
            let _ = write!(text, " kind={}", word_of(&KINDS, buffer.kind));
        }
        self.location(text, " pin=", buffer.pin);
        self.location(text, " hint=", buffer.hint);
        if let Some(producer) = &buffer.producer {
            text.push_str(" producer=");
            push_name(text, producer);
        }
        for (index, access) in buffer.uses.iter().enumerate() {
            text.push_str(if index == 0 { " uses=" } else { "," });
            let verb = if access.access == Access::Read { "read" } else { "write" };
            let _ = write!(text, "{verb}@{}*{}", access.step, access.bytes.0);
        }
        text.push('\n');
    }

    fn pair(&self, text: &mut String, item: &str, first: BufferId, second: BufferId) {
        text.push_str(item);
        text.push(' ');
        self.push_buffer(text, first);
        text.push(' ');
        self.push_buffer(text, second);
    }

    fn constraints(&self, text: &mut String) {
        let constraints = &self.problem.constraints;
        for entry in &constraints.colocated {
            self.pair(text, "colocated", entry.buffer, entry.base);
            let _ = writeln!(text, " delta={}", entry.delta.0);
        }
        for entry in &constraints.separated {
            self.pair(text, "separated", entry.first, entry.second);
            for (index, reason) in entry.reasons.iter().enumerate() {
                text.push_str(if index == 0 { " reasons=" } else { "," });
                push_name(text, reason);
            }
            text.push('\n');
        }
        for (first, second) in &constraints.never_coexist {
            self.pair(text, "never-coexist", *first, *second);
            text.push('\n');
        }
        for entry in &constraints.reuse_penalties {
            self.pair(text, "reuse-penalty", entry.first, entry.second);
            let _ = write!(text, " cost={}", entry.cost);
            if !entry.reason.is_empty() {
                text.push_str(" reason=");
                push_name(text, &entry.reason);
            }
            text.push('\n');
        }
    }
}

#[derive(Default)]
struct Reader {
    problem: Problem,
    spaces: Names,
    buffers: Names,
}

impl Reader {
    fn item(&mut self, line: &mut Line<'_>) -> Read<()> {
        const ITEMS: &str =
            "name, goal, space, buffer, colocated, separated, never-coexist or reuse-penalty at the start of the line";
        line.skip_blanks();
        let at = line.at;
        match line.word(ITEMS)? {
            "name" => self.problem.name = line.name("the problem's name")?.into_owned(),
            "goal" => self.problem.goals.push(value_of(line, &GOALS)?),
            "space" => self.space(line)?,
            "buffer" => self.buffer(line)?,
            item @ ("colocated" | "separated" | "never-coexist" | "reuse-penalty") => self.constraint(line, item)?,
            other => return Err(line.fault_at(at, format!("'{other}'"), ITEMS)),
        }
        line.finish()
    }

    fn space(&mut self, line: &mut Line<'_>) -> Read<()> {
        let mut space = Space::unbounded(line.name("the space's name")?);
        while let Some((at, key)) = line.key()? {
            match key {
                "capacity" => space.capacity = Some(Bytes(line.number()?)),
                "align" => space.alignment = alignment(line)?,
                "reserved" => space.reserved = line.list(Line::bytes)?,
                _ => return Err(line.fault_at(at, format!("'{key}'"), "capacity, align or reserved")),
            }
        }
        self.spaces.declare(&space.name);
        self.problem.spaces.push(space);
        Ok(())
    }

    fn location(&self, line: &mut Line<'_>) -> Read<Location> {
        let space = SpaceId::new(line.resolve("space", &self.spaces)?);
        line.expect("+")?;
        Ok(Location { space, offset: Offset(line.number()?) })
    }

    fn buffer(&mut self, line: &mut Line<'_>) -> Read<()> {
        const KEYS: &str = "size, live, in, align, sizing, kind, pin, hint, producer or uses";
        if self.problem.buffers.len() > u32::MAX as usize - 1 {
            return Err(line.fault("more buffers than ids can count", "at most 4294967295"));
        }
        let mut buffer = Buffer::new(line.name("the buffer's name")?, Bytes::ZERO, Interval::steps(0, 0), SpaceId(0));
        buffer.live.clear();
        let (mut sized, mut placed) = (false, false);
        while let Some((at, key)) = line.key()? {
            match key {
                "size" => (buffer.size, sized) = (Bytes(line.number()?), true),
                "live" => buffer.live = line.list(live_range)?,
                "in" => {
                    placed = true;
                    buffer.spaces = line.list(|line| line.resolve("space", &self.spaces).map(SpaceId::new))?;
                }
                "align" => buffer.alignment = alignment(line)?,
                "sizing" => buffer.sizing = value_of(line, &SIZINGS)?,
                "kind" => buffer.kind = value_of(line, &KINDS)?,
                "pin" => buffer.pin = Some(self.location(line)?),
                "hint" => buffer.hint = Some(self.location(line)?),
                "producer" => buffer.producer = Some(line.name("a name")?.into_owned()),
                "uses" => buffer.uses = line.list(access)?,
                _ => return Err(line.fault_at(at, format!("'{key}'"), KEYS)),
            }
        }
        if !sized {
            return Err(line.fault("", "size=BYTES"));
        }
        if buffer.live.is_empty() {
            return Err(line.fault("", "live=[START,END)"));
        }
        if !placed && self.problem.spaces.len() != 1 {
            let count = self.problem.spaces.len();
            return Err(line.fault(format!("{count} spaces and no choice among them"), "in=SPACE"));
        }
        self.buffers.declare(&buffer.name);
        self.problem.buffers.push(buffer);
        Ok(())
    }

    fn constraint(&mut self, line: &mut Line<'_>, item: &str) -> Read<()> {
        let first = BufferId::new(line.resolve("buffer", &self.buffers)?);
        let second = BufferId::new(line.resolve("buffer", &self.buffers)?);
        let (mut delta, mut cost, mut reasons, mut reason) = (None, None, Vec::new(), String::new());
        while let Some((at, key)) = line.key()? {
            match (item, key) {
                ("colocated", "delta") => delta = Some(Bytes(line.number()?)),
                ("separated", "reasons") => {
                    reasons = line.list(|line| line.name("a reason").map(Into::into))?;
                }
                ("reuse-penalty", "cost") => cost = Some(line.number()?),
                ("reuse-penalty", "reason") => reason = line.name("a reason")?.into_owned(),
                _ => return Err(line.fault_at(at, format!("'{key}'"), format!("a key of {item}"))),
            }
        }
        let lists = &mut self.problem.constraints;
        match item {
            "colocated" => {
                let delta = delta.ok_or_else(|| line.fault("", "delta=BYTES"))?;
                lists.colocated.push(Colocation { buffer: first, base: second, delta });
            }
            "separated" => lists.separated.push(Separation { first, second, reasons }),
            "never-coexist" => lists.never_coexist.push((first, second)),
            _ => {
                let cost = cost.ok_or_else(|| line.fault("", "cost=NUMBER"))?;
                lists.reuse_penalties.push(ReusePenalty { first, second, cost, reason });
            }
        }
        Ok(())
    }
}

fn alignment(line: &mut Line<'_>) -> Read<Alignment> {
    let at = line.at;
    let number = line.number()?;
    Alignment::new(number).ok_or_else(|| line.fault_at(at, "0", "an alignment of at least 1 byte"))
}

fn live_range(line: &mut Line<'_>) -> Read<LiveRange> {
    let steps = line.steps()?;
    let window = if line.eat("@") { Some(line.bytes()?) } else { None };
    Ok(LiveRange { steps, window })
}

fn access(line: &mut Line<'_>) -> Read<Use> {
    let access = if line.eat("read@") {
        Access::Read
    } else if line.eat("write@") {
        Access::Write
    } else {
        return Err(line.unexpected("read@STEP*BYTES or write@STEP*BYTES"));
    };
    let step = Step(line.number()?);
    line.expect("*")?;
    Ok(Use { step, access, bytes: Bytes(line.number()?) })
}
