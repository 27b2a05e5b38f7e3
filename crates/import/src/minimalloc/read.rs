//! Reading MiniMalloc's CSV.

use super::{Column, Document, SPACE};
use crate::error::{ErrorKind, ImportError, quoted};
use npumem_ir::interval::Interval;
use npumem_ir::problem::{LiveRange, Location};
use npumem_ir::{Alignment, Buffer, ByteRange, Bytes, Offset, Problem, Space, SpaceId, Step, StepRange};
use std::collections::HashSet;

/// Most gaps of one buffer: the work of placing a buffer grows with the square of its pieces.
const MAX_GAPS: usize = 4096;

/// Reads a file; the problem gets the given name.
///
/// # Errors
/// The first cell that is not as it should be, with its line and column.
pub fn read(bytes: &[u8], name: &str) -> Result<Document, ImportError> {
    let mut rows = Rows::new(bytes);
    let mut record = csv::ByteRecord::new();
    if !rows.next(&mut record)? {
        return Err(ImportError::new(ErrorKind::Missing, "header")
            .at_line(1)
            .found("an empty file")
            .expected("a line of column names, such as id,lower,upper,size"));
    }
    let header = Header::new(&record).map_err(|error| rows.at(&record, error))?;
    let mut document = Document {
        problem: Problem { name: name.to_owned(), spaces: vec![Space::unbounded(SPACE)], ..Problem::default() },
        offsets: Vec::new(),
    };
    while rows.next(&mut record)? {
        let row = Row { header: &header, record: &record };
        let (buffer, offset) = row.buffer().map_err(|error| rows.at(&record, error))?;
        if document.problem.buffers.len() == u32::MAX as usize {
            let error = ImportError::new(ErrorKind::Limit, "row").found("one more row").expected("at most 4294967295");
            return Err(rows.at(&record, error));
        }
        document.problem.buffers.push(buffer);
        if header.places[Column::Offset as usize].is_some() {
            document.offsets.push(offset);
        }
    }
    unique_ids(&document.problem, bytes)?;
    if let Some(error) = document.problem.validate().first() {
        return Err(ImportError::new(ErrorKind::Inconsistent, error.item.to_string()).found(error.kind.to_string()));
    }
    Ok(document)
}

/// The rows of a file that are not blank.
pub(super) struct Rows<'a> {
    bytes: &'a [u8],
    reader: csv::Reader<&'a [u8]>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        // Ragged rows are found here, where their line can be said.
        let reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes);
        Rows { bytes, reader }
    }

    /// Reads the next row that is not blank; false at the end.
    pub(super) fn next(&mut self, record: &mut csv::ByteRecord) -> Result<bool, ImportError> {
        loop {
            match self.reader.read_byte_record(record) {
                Ok(true) if record.len() == 1 && record[0].trim_ascii().is_empty() => {}
                Ok(more) => return Ok(more),
                Err(error) => {
                    return Err(ImportError::new(ErrorKind::Syntax, "CSV").found(error.to_string()));
                }
            }
        }
    }

    /// The error, at the record's line.
    pub(super) fn at(&self, record: &csv::ByteRecord, error: ImportError) -> ImportError {
        // The reader takes the blank lines before a record as part of it.
        let start = record.position().map_or(0, |position| usize::try_from(position.byte()).unwrap_or(0));
        let blank = self.bytes[start.min(self.bytes.len())..].iter().take_while(|b| b.is_ascii_whitespace()).count();
        let before = &self.bytes[..(start + blank).min(self.bytes.len())];
        error.at_line(1 + before.iter().filter(|byte| **byte == b'\n').count() as u64)
    }
}

/// Which column stands where.
pub(super) struct Header {
    pub(super) places: [Option<usize>; Column::COUNT],
    names: Vec<String>,
    inclusive: bool,
}

impl Header {
    pub(super) fn new(record: &csv::ByteRecord) -> Result<Self, ImportError> {
        let mut header = Header { places: [None; Column::COUNT], names: Vec::new(), inclusive: false };
        for (place, cell) in record.iter().enumerate() {
            let name = String::from_utf8_lossy(cell.trim_ascii()).into_owned();
            let Some((column, inclusive)) = Column::of_name(&name) else {
                return Err(ImportError::new(ErrorKind::Unknown, "header")
                    .found(format!("column {}", quoted(&name)))
                    .expected(
                        "id (or buffer, buffer_id), lower (or begin, start), upper (or end, inclusive), size, \
                         alignment, hint, gaps or offset",
                    )
                    .hint("columns are separated by commas; take out those that npumem does not know"));
            };
            if let Some(first) = header.places[column as usize].replace(place) {
                return Err(ImportError::new(ErrorKind::Duplicate, "header")
                    .found(format!("columns {} and {}", quoted(&header.names[first]), quoted(&name)))
                    .expected("one of them: they mean the same"));
            }
            header.inclusive |= inclusive;
            header.names.push(name);
        }
        for (column, names) in [
            (Column::Id, "id, buffer or buffer_id"),
            (Column::Lower, "lower, begin or start"),
            (Column::Upper, "upper (exclusive) or end (inclusive)"),
            (Column::Size, "size"),
        ] {
            if header.places[column as usize].is_none() {
                return Err(ImportError::new(ErrorKind::Missing, "header")
                    .found(format!("columns {}", quoted(&header.names.join(","))))
                    .expected(format!("also a column {names}")));
            }
        }
        Ok(header)
    }
}

struct Row<'a> {
    header: &'a Header,
    record: &'a csv::ByteRecord,
}

impl Row<'_> {
    fn buffer(&self) -> Result<(Buffer, Option<Offset>), ImportError> {
        let (found, expected) = (self.record.len(), self.header.names.len());
        if found != expected {
            return Err(ImportError::new(ErrorKind::Syntax, "row")
                .found(format!("{found} cells"))
                .expected(format!("{expected}, as in the header"))
                .hint("a cell with a comma in it stands in quotes"));
        }
        let id = std::str::from_utf8(self.required(Column::Id)?)
            .map_err(|_| self.wrong(Column::Id, "text in UTF-8").hint("save the file as UTF-8"))?;
        let lower = self.number(Column::Lower, self.required(Column::Lower)?)?;
        let upper = self.end(Column::Upper, self.required(Column::Upper)?)?;
        let size = self.number(Column::Size, self.required(Column::Size)?)?;
        if lower >= upper {
            let kind = if self.header.inclusive { "at least" } else { "more than" };
            let expected = format!("{kind} the {lower} of column '{}'", self.name(Column::Lower));
            let hint = "the columns are lower and upper, exclusive, or start and end, inclusive";
            return Err(self.wrong(Column::Upper, expected).hint(hint));
        }
        let lifetime = Interval { start: Step(lower), end: Step(upper) };
        let mut buffer = Buffer::new(id, Bytes(size), lifetime, SpaceId(0));
        if let Some(cell) = self.optional(Column::Alignment) {
            buffer.alignment = Alignment::new(self.number(Column::Alignment, cell)?)
                .ok_or_else(|| self.wrong(Column::Alignment, "at least 1"))?;
        }
        if let Some(offset) = self.offset(Column::Hint, size)? {
            buffer.hint = Some(Location { space: SpaceId(0), offset });
        }
        if let Some(cell) = self.optional(Column::Gaps) {
            buffer.live = self.live(cell, lifetime, size)?;
        }
        Ok((buffer, self.offset(Column::Offset, size)?))
    }

    fn cell(&self, column: Column) -> &[u8] {
        let place = self.header.places[column as usize];
        place.and_then(|place| self.record.get(place)).unwrap_or(b"").trim_ascii()
    }

    /// The cell, unless it is empty or its column is not there.
    fn optional(&self, column: Column) -> Option<&[u8]> {
        Some(self.cell(column)).filter(|cell| !cell.is_empty())
    }

    fn required(&self, column: Column) -> Result<&[u8], ImportError> {
        self.optional(column).ok_or_else(|| {
            let expected = if column == Column::Id { "a name" } else { "a number" };
            ImportError::new(ErrorKind::Missing, self.item(column)).found("an empty cell").expected(expected)
        })
    }

    fn name(&self, column: Column) -> &str {
        self.header.places[column as usize].map_or("", |place| self.header.names[place].as_str())
    }

    fn item(&self, column: Column) -> String {
        format!("column '{}'", self.name(column))
    }

    /// The cell of the column is not what it should be.
    fn wrong(&self, column: Column, expected: impl Into<Box<str>>) -> ImportError {
        ImportError::new(ErrorKind::Value, self.item(column))
            .found_value(&String::from_utf8_lossy(self.cell(column)))
            .expected(expected)
    }

    fn number(&self, column: Column, digits: &[u8]) -> Result<u64, ImportError> {
        number(digits).map_err(|expected| self.wrong(column, expected))
    }

    /// The end of a range, made exclusive.
    fn end(&self, column: Column, digits: &[u8]) -> Result<u64, ImportError> {
        let end = self.number(column, digits)?;
        end.checked_add(u64::from(self.header.inclusive))
            .ok_or_else(|| self.wrong(column, format!("an inclusive end below {}", u64::MAX)))
    }

    fn offset(&self, column: Column, size: u64) -> Result<Option<Offset>, ImportError> {
        let Some(cell) = self.optional(column) else { return Ok(None) };
        let offset = self.number(column, cell).map_err(|error| {
            if cell[0] == b'-' { error.hint("leave the cell empty where there is none") } else { error }
        })?;
        match offset.checked_add(size) {
            Some(_) => Ok(Some(Offset(offset))),
            None => Err(self.wrong(column, format!("an offset whose {size} bytes end within 64 bits"))),
        }
    }

    /// The live ranges that the gaps leave: without them, or with only a byte window where the gap has one.
    fn live(&self, cell: &[u8], lifetime: StepRange, size: u64) -> Result<Vec<LiveRange>, ImportError> {
        let mut gaps = Vec::new();
        for gap in cell.split(u8::is_ascii_whitespace).filter(|gap| !gap.is_empty()) {
            if gaps.len() == MAX_GAPS {
                return Err(ImportError::new(ErrorKind::Limit, "column 'gaps'")
                    .found("more gaps")
                    .expected(format!("at most {MAX_GAPS} gaps of one buffer")));
            }
            gaps.push(self.gap(gap, lifetime, size)?);
        }
        gaps.sort_by_key(|(steps, _)| (steps.start, steps.end));
        let mut live = Vec::with_capacity(2 * gaps.len() + 1);
        let mut at = lifetime.start;
        for (steps, window) in gaps {
            if steps.start < at {
                return Err(self.wrong(
                    Column::Gaps,
                    format!("gaps that do not overlap, but [{}, {}) does", steps.start, steps.end),
                ));
            }
            if at < steps.start {
                live.push(LiveRange { steps: Interval { start: at, end: steps.start }, window: None });
            }
            if window.is_some() {
                live.push(LiveRange { steps, window });
            }
            at = steps.end;
        }
        if at < lifetime.end {
            live.push(LiveRange { steps: Interval { start: at, end: lifetime.end }, window: None });
        }
        if live.is_empty() {
            return Err(self.wrong(Column::Gaps, "gaps that leave a step in which the buffer is live"));
        }
        Ok(live)
    }

    fn gap(&self, gap: &[u8], lifetime: StepRange, size: u64) -> Result<(StepRange, Option<ByteRange>), ImportError> {
        let shape = || self.wrong(Column::Gaps, "gaps such as 2-4 or 6-7@0:32, separated by blanks");
        let (steps, window) = match gap.iter().position(|byte| *byte == b'@') {
            Some(at) => (&gap[..at], Some(&gap[at + 1..])),
            None => (gap, None),
        };
        let (start, end) = split(steps, b'-').ok_or_else(shape)?;
        let steps =
            Interval { start: Step(self.number(Column::Gaps, start)?), end: Step(self.end(Column::Gaps, end)?) };
        if steps.is_empty() || !lifetime.covers(&steps) {
            let found = quoted(&String::from_utf8_lossy(gap));
            let expected = format!(
                "gaps that hold a step and lie within [{}, {}), but {found} does not",
                lifetime.start, lifetime.end
            );
            return Err(self.wrong(Column::Gaps, expected));
        }
        let Some(window) = window else { return Ok((steps, None)) };
        let (low, high) = split(window, b':').ok_or_else(shape)?;
        let window =
            Interval { start: Offset(self.number(Column::Gaps, low)?), end: Offset(self.number(Column::Gaps, high)?) };
        if window.is_empty() || window.end.0 > size {
            let expected = format!("byte windows that hold a byte and lie within [0, {size}), but {window} does not");
            return Err(self.wrong(Column::Gaps, expected).hint("a gap without a window is not live at all"));
        }
        Ok((steps, Some(window)))
    }
}

fn split(text: &[u8], mark: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == mark)?;
    Some((&text[..at], &text[at + 1..]))
}

/// The number, or what was expected.
fn number(text: &[u8]) -> Result<u64, String> {
    let mut value = 0_u64;
    for byte in text {
        let digit = match byte {
            b'0'..=b'9' => u64::from(byte - b'0'),
            b'-' => return Err("a whole number of at least 0".into()),
            _ => return Err("a whole number".into()),
        };
        value = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(digit))
            .ok_or_else(|| format!("a number of 64 bits, at most {}", u64::MAX))?;
    }
    if text.is_empty() { Err("a whole number".into()) } else { Ok(value) }
}

fn unique_ids(problem: &Problem, bytes: &[u8]) -> Result<(), ImportError> {
    let mut seen = HashSet::with_capacity(problem.buffers.len());
    let Some(repeat) = problem.buffers.iter().position(|buffer| !seen.insert(buffer.name.as_str())) else {
        return Ok(());
    };
    // Read once more to say the line: no line numbers are kept for a file that is fine.
    let mut rows = Rows::new(bytes);
    let mut record = csv::ByteRecord::new();
    for _ in 0..repeat + 2 {
        rows.next(&mut record)?;
    }
    let error = ImportError::new(ErrorKind::Duplicate, "column of ids")
        .found(format!("{} a second time", quoted(&problem.buffers[repeat].name)))
        .expected("an id that no row above has");
    Err(rows.at(&record, error))
}
