//! Reading the text form of a program.

use super::{MAGIC, print::OPS};
use crate::program::{
    Access, Affine, Alias, Assign, Buffer, Compute, Core, Extent, Handle, InPlace, Layout, Number, Operation, Program,
    Role, Root, Scalar, ScalarKind, Step, Sync,
};
use crate::{Alignment, BufferId, ElementType, HandleId, ScalarId, StepId};
use std::collections::HashMap;

/// Where and why a program text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct TextError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What was expected, and what was found.
    pub problem: String,
}

/// Reads the text form.
///
/// # Errors
/// The first line that is not of the form, with the column, or a rule of programs that is broken.
pub fn parse(text: &str) -> Result<Program, TextError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate().filter(|(_, line)| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with('#')
    });
    let fail = |line: usize, column: usize, problem: String| TextError { line: line + 1, column, problem };
    match lines.next() {
        Some((_, line)) if line.trim() == MAGIC => {}
        Some((at, _)) => return Err(fail(at, 1, format!("expected '{MAGIC}'"))),
        None => return Err(fail(0, 1, format!("expected '{MAGIC}'"))),
    }
    let mut reader = Reader::default();
    let mut last = 0;
    for (at, line) in lines {
        last = at;
        let mut cursor = Cursor { text: line, at: 0 };
        reader
            .line(&mut cursor)
            .and_then(|()| cursor.finish())
            .map_err(|(byte, problem)| fail(at, line[..byte.min(line.len())].chars().count() + 1, problem))?;
    }
    if !reader.in_steps {
        return Err(fail(last, 1, "the file ends before 'steps'".into()));
    }
    reader.program.structure().map_err(|error| fail(last, 1, format!("{}: {}", error.place, error.problem)))?;
    Ok(reader.program)
}

/// A byte of the line and what is wrong there.
type Fault = (usize, String);

#[derive(Default)]
struct Reader {
    program: Program,
    named: bool,
    in_steps: bool,
    scalars: HashMap<String, ScalarId>,
    buffers: HashMap<String, BufferId>,
    handles: HashMap<String, HandleId>,
}

impl Reader {
    fn line(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        if self.in_steps {
            let step = self.step(cursor)?;
            self.program.steps.push(step);
            return Ok(());
        }
        let start = cursor.at;
        let word = cursor.word()?;
        match word.as_str() {
            "program" if !self.named => {
                self.named = true;
                self.program.name = cursor.name("a name")?;
                if cursor.eat_word("target") {
                    self.program.target = Some(cursor.name("a target")?);
                }
                Ok(())
            }
            "scalar" => self.scalar_line(cursor),
            "buffer" | "external" => self.buffer_line(cursor, word == "external"),
            "handle" => {
                let at = cursor.at;
                let name = cursor.name("a name")?;
                let id = HandleId::new(self.program.handles.len());
                self.program.handles.push(Handle { name: name.clone() });
                declare(&mut self.handles, name, id, at)
            }
            "steps" => {
                self.in_steps = true;
                Ok(())
            }
            _ => Err((start, format!("expected scalar, buffer, external, handle or steps, found '{word}'"))),
        }
    }

    fn scalar_line(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
        let at = cursor.at;
        let name = cursor.name("a name")?;
        cursor.expect('=')?;
        let start = cursor.at;
        let word = cursor.word()?;
        let kind = match word.as_str() {
            "argument" => ScalarKind::Argument(if cursor.is_done() { None } else { Some(cursor.signed()?) }),
            "grid" => ScalarKind::Grid(if cursor.is_done() { None } else { Some(cursor.number()?) }),
            "counter" => ScalarKind::Counter,
            "variable" => ScalarKind::Variable,
            word => {
                let op = OPS.iter().find(|(known, _)| *known == word).map(|(_, op)| *op);
                let op = op.ok_or_else(|| (start, format!("expected a kind of scalar, found '{word}'")))?;
                cursor.expect('(')?;
                let mut operands = Vec::new();
                if !cursor.eat(')') {
                    loop {
                        operands.push(self.affine(cursor)?);
                        if !cursor.eat(',') {
                            break;
                        }
                    }
                    cursor.expect(')')?;
                }
                ScalarKind::Computed(Compute { op, operands })
            }
        };
        let id = ScalarId::new(self.program.scalars.len());
        self.program.scalars.push(Scalar { name: name.clone(), kind });
        declare(&mut self.scalars, name, id, at)
    }

    fn buffer_line(&mut self, cursor: &mut Cursor<'_>, external: bool) -> Result<(), Fault> {
        let at = cursor.at;
        let name = cursor.name("a name")?;
        cursor.expect_word("in")?;
        let space = cursor.name("a space")?;
        let mut buffer = Buffer { bytes: None, ..Buffer::tile(name.clone(), space, 0) };
        if external {
            buffer.role = Role::External;
        }
        while !cursor.eat(':') {
            let start = cursor.at;
            match cursor.word()?.as_str() {
                "bytes" => buffer.bytes = Some(cursor.number()?),
                "slots" => {
                    let slots = cursor.number()?;
                    buffer.slots = u32::try_from(slots).map_err(|_| (start, format!("{slots} slots are too many")))?;
                }
                "align" => {
                    let bytes = cursor.number()?;
                    buffer.alignment = Alignment::new(bytes).ok_or((start, "an alignment of 0".to_owned()))?;
                }
                "at" => buffer.address = Some(self.affine(cursor)?),
                "alias" => {
                    let place = cursor.at;
                    let owner = cursor.name("a buffer")?;
                    let of = look_up(&self.buffers, &owner, "buffer", place)?;
                    buffer.alias = Some(Alias { of, delta: cursor.number()? });
                }
                word => {
                    return Err((start, format!("expected bytes, slots, align, at, alias or ':', found '{word}'")));
                }
            }
        }
        buffer.element = cursor.element()?;
        if cursor.eat_word("shape") {
            let start = cursor.at;
            let dims = cursor.raw_word();
            let dims: Result<Vec<u64>, _> = dims.split('x').map(str::parse).collect();
            buffer.shape = dims.map_err(|_| (start, "expected a shape such as 16x32".to_owned()))?;
        }
        buffer.layout = cursor.layout()?;
        if cursor.eat_word("workspace") {
            buffer.role = Role::Workspace;
        } else if cursor.eat_word("queue") {
            buffer.role = Role::Queue;
        }
        buffer.fixed = cursor.eat_word("fixed");
        if cursor.eat_word("line") {
            buffer.line = cursor.line_number()?;
        }
        let id = BufferId::new(self.program.buffers.len());
        self.program.buffers.push(buffer);
        declare(&mut self.buffers, name, id, at)
    }

    fn step(&mut self, cursor: &mut Cursor<'_>) -> Result<Step, Fault> {
        if cursor.peek() == Some('"') {
            return self.operation(cursor).map(Step::Run);
        }
        let start = cursor.at;
        let word = cursor.word()?;
        let mut has_line = false;
        let sync = match word.as_str() {
            "for" => {
                let counter = self.scalar_name(cursor)?;
                cursor.expect('=')?;
                let from = self.affine(cursor)?;
                cursor.expect_word("to")?;
                let stop = self.affine(cursor)?;
                cursor.expect_word("step")?;
                return Ok(Step::For { counter, start: from, stop, step: self.affine(cursor)? });
            }
            "loop" => return Ok(Step::Loop),
            "leave" => return Ok(Step::Leave(self.affine(cursor)?)),
            "if" => return Ok(Step::If(self.affine(cursor)?)),
            "else" => return Ok(Step::Else),
            "end" => return Ok(Step::End),
            "assign" => return self.assign(cursor).map(Step::Assign),
            "set-flag" | "wait-flag" => {
                let (from, to) = (cursor.name("an engine")?, cursor.name("an engine")?);
                let event = self.affine(cursor)?;
                if word == "set-flag" { Sync::SetFlag { from, to, event } } else { Sync::WaitFlag { from, to, event } }
            }
            "barrier" if cursor.is_done() => Sync::Barrier(None),
            "barrier" => {
                has_line = cursor.eat_word("line");
                Sync::Barrier(if has_line { None } else { Some(cursor.name("an engine")?) })
            }
            "acquire" => Sync::Acquire { engine: cursor.name("an engine")?, token: self.affine(cursor)? },
            "release" => Sync::Release { engine: cursor.name("an engine")?, token: self.affine(cursor)? },
            "post" => Sync::Post { engine: cursor.name("an engine")?, flag: self.affine(cursor)? },
            "await" => Sync::Await { engine: cursor.name("an engine")?, flag: self.affine(cursor)? },
            _ => {
                cursor.at = start;
                return self.operation(cursor).map(Step::Run);
            }
        };
        if has_line || cursor.eat_word("line") {
            let line = cursor.line_number()?;
            if line != 0 {
                self.program.sync_lines.insert(StepId::new(self.program.steps.len()), line);
            }
        }
        Ok(Step::Sync(sync))
    }

    fn assign(&mut self, cursor: &mut Cursor<'_>) -> Result<Assign, Fault> {
        let mut assign = Assign::default();
        if cursor.is_done() {
            return Ok(assign);
        }
        loop {
            if cursor.eat('&') {
                let place = cursor.at;
                let name = cursor.name("a handle")?;
                let target = look_up(&self.handles, &name, "handle", place)?;
                cursor.expect('=')?;
                let root = self.root(cursor)?;
                cursor.expect('[')?;
                let delta = self.affine(cursor)?;
                cursor.expect(']')?;
                assign.handles.push((target, root, delta));
            } else {
                let target = self.scalar_name(cursor)?;
                cursor.expect('=')?;
                assign.scalars.push((target, self.affine(cursor)?));
            }
            if !cursor.eat(',') {
                return Ok(assign);
            }
        }
    }

    fn operation(&mut self, cursor: &mut Cursor<'_>) -> Result<Operation, Fault> {
        let name = cursor.name("an operation")?;
        cursor.expect('@')?;
        let mut operation = Operation::new(name, cursor.name("an engine")?);
        while !cursor.is_done() {
            let start = cursor.at;
            match cursor.word()?.as_str() {
                "cube" => operation.core = Core::Cube,
                "vector" => operation.core = Core::Vector,
                "never" => operation.in_place = InPlace::Never,
                "elementwise" => operation.in_place = InPlace::Elementwise,
                "in-place" => operation.in_place = InPlace::Always,
                "unknown" => operation.known = false,
                "reads" => self.accesses(cursor, &mut operation.reads)?,
                "writes" => self.accesses(cursor, &mut operation.writes)?,
                "with" => loop {
                    let number = self.number(cursor)?;
                    operation.scalars.push(number);
                    if !cursor.eat(',') {
                        break;
                    }
                },
                "set" => {
                    let key = cursor.name("a key")?;
                    cursor.expect('=')?;
                    operation.attributes.insert(key, cursor.name("a value")?);
                }
                "line" => operation.line = cursor.line_number()?,
                word => return Err((start, format!("expected reads, writes, with, set or line, found '{word}'"))),
            }
        }
        Ok(operation)
    }

    fn accesses(&mut self, cursor: &mut Cursor<'_>, list: &mut Vec<Access>) -> Result<(), Fault> {
        loop {
            list.push(self.access(cursor)?);
            if !cursor.eat(',') {
                return Ok(());
            }
        }
    }

    fn access(&mut self, cursor: &mut Cursor<'_>) -> Result<Access, Fault> {
        let mut access = Access::whole(self.root(cursor)?, ElementType::U8);
        if cursor.eat('{') {
            access.slot = self.affine(cursor)?;
            cursor.expect('}')?;
        }
        cursor.expect('[')?;
        access.start = self.affine(cursor)?;
        while cursor.eat(';') {
            let count = self.affine(cursor)?;
            cursor.expect_word("by")?;
            access.extents.push(Extent { count, stride: cursor.signed()? });
        }
        cursor.expect(']')?;
        cursor.expect(':')?;
        access.element = cursor.element()?;
        if cursor.eat_word("shape") {
            cursor.expect('(')?;
            loop {
                access.shape.push(self.affine(cursor)?);
                if !cursor.eat(',') {
                    break;
                }
            }
            cursor.expect(')')?;
        }
        access.layout = cursor.layout()?;
        access.certain = !cursor.eat_word("maybe");
        Ok(access)
    }

    fn number(&mut self, cursor: &mut Cursor<'_>) -> Result<Number, Fault> {
        let start = cursor.at;
        if cursor.eat_word("real") {
            let text = cursor.name("a number in quotes")?;
            return text.parse().map(Number::Real).map_err(|_| (start, format!("'{text}' is not a number")));
        }
        if cursor.eat_word("named") {
            return Ok(Number::Named(cursor.name("a name")?));
        }
        self.affine(cursor).map(Number::Int)
    }

    fn root(&mut self, cursor: &mut Cursor<'_>) -> Result<Root, Fault> {
        let handle = cursor.eat('&');
        let place = cursor.skip();
        if handle {
            let name = cursor.name("a handle")?;
            return look_up(&self.handles, &name, "handle", place).map(Root::Handle);
        }
        let name = cursor.name("a buffer")?;
        look_up(&self.buffers, &name, "buffer", place).map(Root::Buffer)
    }

    fn scalar_name(&mut self, cursor: &mut Cursor<'_>) -> Result<ScalarId, Fault> {
        let place = cursor.skip();
        let name = cursor.name("a scalar")?;
        look_up(&self.scalars, &name, "scalar", place)
    }

    /// `[-] term (+|- term)*` with `term = number [* name] | name`.
    fn affine(&mut self, cursor: &mut Cursor<'_>) -> Result<Affine, Fault> {
        let mut sum = Affine::constant(0);
        let mut negative = cursor.eat('-');
        loop {
            let term = if cursor.peek().is_some_and(|c| c.is_ascii_digit()) {
                let place = cursor.at;
                let digits = cursor.digits()?;
                let signed = if negative { -digits } else { digits };
                let number = i64::try_from(signed).map_err(|_| (place, format!("{signed} is past 64 bits")))?;
                if cursor.eat('*') {
                    Affine::scalar(self.scalar_name(cursor)?).times(number)
                } else {
                    Affine::constant(number)
                }
            } else {
                Affine::scalar(self.scalar_name(cursor)?).times(if negative { -1 } else { 1 })
            };
            sum = sum.plus(&term);
            negative = match cursor.peek() {
                Some('+') => false,
                Some('-') => true,
                _ => return Ok(sum),
            };
            cursor.at += 1;
        }
    }
}

fn declare<Id>(names: &mut HashMap<String, Id>, name: String, id: Id, at: usize) -> Result<(), Fault> {
    match names.insert(name.clone(), id) {
        Some(_) => Err((at, format!("'{name}' is named twice"))),
        None => Ok(()),
    }
}

fn look_up<Id: Copy>(names: &HashMap<String, Id>, name: &str, what: &str, at: usize) -> Result<Id, Fault> {
    names.get(name).copied().ok_or_else(|| (at, format!("no {what} '{name}'")))
}

/// A place in one line.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl Cursor<'_> {
    /// Skips blanks; the byte of what comes next.
    fn skip(&mut self) -> usize {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.at
    }

    fn peek(&mut self) -> Option<char> {
        self.skip();
        self.text[self.at..].chars().next()
    }

    fn is_done(&mut self) -> bool {
        self.peek().is_none()
    }

    fn finish(&mut self) -> Result<(), Fault> {
        match self.peek() {
            None => Ok(()),
            Some(c) => Err((self.at, format!("expected the end of the line, found '{c}'"))),
        }
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    fn expect(&mut self, c: char) -> Result<(), Fault> {
        match self.peek() {
            Some(found) if found == c => {
                self.at += c.len_utf8();
                Ok(())
            }
            Some(found) => Err((self.at, format!("expected '{c}', found '{found}'"))),
            None => Err((self.at, format!("expected '{c}', found the end of the line"))),
        }
    }

    fn raw_word(&mut self) -> String {
        self.skip();
        let rest = &self.text[self.at..];
        let end = rest
            .char_indices()
            .find(|(at, c)| {
                // `-` joins the keywords `set-flag`, `wait-flag` and `in-place`; elsewhere it is a sign.
                let joins = *c == '-' && matches!(&rest[..*at], "set" | "wait" | "in");
                !(c.is_ascii_alphanumeric() || *c == '_' || *c == '.' || joins)
            })
            .map_or(rest.len(), |(at, _)| at);
        self.at += end;
        rest[..end].to_owned()
    }

    fn word(&mut self) -> Result<String, Fault> {
        let start = self.skip();
        let word = self.raw_word();
        if word.is_empty() { Err((start, format!("expected a word, found {}", self.found()))) } else { Ok(word) }
    }

    fn found(&mut self) -> String {
        self.peek().map_or("the end of the line".to_owned(), |c| format!("'{c}'"))
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let start = self.skip();
        let found = self.raw_word() == word;
        if !found {
            self.at = start;
        }
        found
    }

    fn expect_word(&mut self, word: &str) -> Result<(), Fault> {
        if self.eat_word(word) {
            return Ok(());
        }
        let found = self.found();
        Err((self.at, format!("expected '{word}', found {found}")))
    }

    /// A plain word, or anything in quotes.
    fn name(&mut self, what: &str) -> Result<String, Fault> {
        let start = self.skip();
        if !self.eat('"') {
            let word = self.raw_word();
            let plain = word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            return if plain { Ok(word) } else { Err((start, format!("expected {what}"))) };
        }
        let mut out = String::new();
        let mut chars = self.text[self.at..].char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += at + 1;
                    return Ok(out);
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => out.push('\n'),
                    Some((_, 'r')) => out.push('\r'),
                    Some((_, c)) => out.push(c),
                    None => break,
                },
                c => out.push(c),
            }
        }
        Err((start, "the quote is never closed".into()))
    }

    fn digits(&mut self) -> Result<i128, Fault> {
        let start = self.skip();
        let rest = &self.text[start..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if end == 0 {
            let word = self.raw_word();
            let found = if word.is_empty() { self.found() } else { format!("'{word}'") };
            return Err((start, format!("expected a number, found {found}")));
        }
        self.at += end;
        rest[..end].parse().map_err(|_| (start, format!("{} is past 64 bits", &rest[..end])))
    }

    fn number(&mut self) -> Result<u64, Fault> {
        let start = self.skip();
        let number = self.digits()?;
        u64::try_from(number).map_err(|_| (start, format!("{number} is past 64 bits")))
    }

    fn signed(&mut self) -> Result<i64, Fault> {
        let start = self.skip();
        let negative = self.eat('-');
        let digits = self.digits()?;
        let signed = if negative { -digits } else { digits };
        i64::try_from(signed).map_err(|_| (start, format!("{signed} is past 64 bits")))
    }

    fn line_number(&mut self) -> Result<u32, Fault> {
        let start = self.skip();
        let number = self.number()?;
        u32::try_from(number).map_err(|_| (start, format!("line {number} is too large")))
    }

    fn element(&mut self) -> Result<ElementType, Fault> {
        let start = self.skip();
        let word = self.word()?;
        ElementType::from_name(&word).ok_or_else(|| (start, format!("'{word}' is not an element type")))
    }

    fn layout(&mut self) -> Result<Layout, Fault> {
        if self.eat_word("col") {
            return Ok(Layout::ColMajor);
        }
        if !self.eat_word("fractal") {
            return Ok(Layout::RowMajor);
        }
        self.expect('(')?;
        let outer_col = self.side()?;
        self.expect(',')?;
        let inner_col = self.side()?;
        self.expect(',')?;
        let bytes = self.number()?;
        self.expect(')')?;
        Ok(Layout::Fractal { outer_col, inner_col, bytes })
    }

    fn side(&mut self) -> Result<bool, Fault> {
        let start = self.skip();
        match self.word()?.as_str() {
            "col" => Ok(true),
            "row" => Ok(false),
            word => Err((start, format!("expected row or col, found '{word}'"))),
        }
    }
}
