//! Writing MiniMalloc's CSV: a problem afresh, or a file again with the offsets of a plan.

use super::Column;
use super::read::{Header, Rows};
use crate::error::{ErrorKind, ImportError};
use npumem_ir::interval::Interval;
use npumem_ir::problem::{Buffer, Sizing};
use npumem_ir::{Alignment, BufferId, Offset, Plan, Problem, StepRange};
use std::collections::HashSet;

/// A problem as CSV: `id,lower,upper,size`, then `alignment`, `hint`, `gaps` and `offset` where anything has them.
///
/// The offsets are the plan's, or the pins where no plan is given. What CSV has no column for and no plan is wrong
/// without (the capacity, goals, kinds, producers, uses) is left out.
///
/// # Errors
/// A problem that CSV has no words for: several spaces, constraints, reserved ranges, sizes that are not fixed;
/// a plan with moves.
pub fn write(problem: &Problem, plan: Option<&Plan>) -> Result<Vec<u8>, ImportError> {
    expressible(problem)?;
    let space = &problem.spaces[0];
    let mut rows = Vec::with_capacity(problem.buffers.len());
    for (id, buffer) in problem.buffers() {
        let alignment = buffer.alignment.and(space.alignment).ok_or_else(|| {
            ImportError::new(ErrorKind::Value, format!("buffer '{}'", buffer.name))
                .found("an alignment of its own and of its space that are past 64 bits together")
        })?;
        let offset = match plan {
            Some(plan) => offset_in(plan, id, buffer)?,
            None => buffer.pin.map(|pin| pin.offset),
        };
        rows.push(OutRow { buffer, alignment, gaps: gaps(buffer), offset });
    }
    let has = [
        rows.iter().any(|row| row.alignment != Alignment::ONE),
        rows.iter().any(|row| row.buffer.hint.is_some()),
        rows.iter().any(|row| !row.gaps.is_empty()),
        plan.is_some() || rows.iter().any(|row| row.offset.is_some()),
    ];
    let mut writer = csv::Writer::from_writer(Vec::new());
    let extras = ["alignment", "hint", "gaps", "offset"];
    let header = ["id", "lower", "upper", "size"].into_iter();
    row(&mut writer, header.chain(extras.into_iter().zip(has).filter(|(_, has)| *has).map(|(name, _)| name)))?;
    for out in rows {
        // Gaps at the ends of the lifetime are written, so the lifetime is the hull of all.
        let lifetime = out.buffer.lifetime().unwrap_or(Interval::steps(0, 0));
        let offset = |offset: Option<Offset>| offset.map_or(String::new(), |offset| offset.to_string());
        let cells =
            [out.alignment.to_string(), offset(out.buffer.hint.map(|hint| hint.offset)), out.gaps, offset(out.offset)];
        let first = [
            out.buffer.name.clone(),
            lifetime.start.to_string(),
            lifetime.end.to_string(),
            out.buffer.size.0.to_string(),
        ];
        row(
            &mut writer,
            first.into_iter().chain(cells.into_iter().zip(has).filter(|(_, has)| *has).map(|(cell, _)| cell)),
        )?;
    }
    finish(writer)
}

struct OutRow<'a> {
    buffer: &'a Buffer,
    alignment: Alignment,
    gaps: String,
    offset: Option<Offset>,
}

/// The file again, its columns and rows as they were, with the plan's offsets in an `offset` column.
///
/// Blank lines and needless quotes go; the line ends stay as they are.
///
/// # Errors
/// A file that [`super::read`] refuses, a plan that is not of this file or that moves a buffer.
pub fn add_offsets(input: &[u8], plan: &Plan) -> Result<Vec<u8>, ImportError> {
    let problem = super::read(input, "")?.problem;
    let crlf = input.iter().position(|byte| *byte == b'\n').is_some_and(|at| at > 0 && input[at - 1] == b'\r');
    let terminator = if crlf { csv::Terminator::CRLF } else { csv::Terminator::Any(b'\n') };
    let mut writer =
        csv::WriterBuilder::new().terminator(terminator).from_writer(Vec::with_capacity(input.len() * 5 / 4));
    let mut rows = Rows::new(input);
    let mut record = csv::ByteRecord::new();
    rows.next(&mut record)?;
    let place = Header::new(&record)?.places[Column::Offset as usize];
    let with_cell = |record: &csv::ByteRecord, cell: &[u8]| -> csv::ByteRecord {
        let mut out: csv::ByteRecord =
            record.iter().enumerate().map(|(index, old)| if Some(index) == place { cell } else { old }).collect();
        if place.is_none() {
            out.push_field(cell);
        }
        out
    };
    writer.write_byte_record(&with_cell(&record, b"offset")).map_err(broken)?;
    for (id, buffer) in problem.buffers() {
        rows.next(&mut record)?;
        let offset = offset_in(plan, id, buffer)?.map_or(String::new(), |offset| offset.to_string());
        writer.write_byte_record(&with_cell(&record, offset.as_bytes())).map_err(broken)?;
    }
    finish(writer)
}

/// The one offset of a buffer; `None` when the plan leaves it to a pool.
fn offset_in(plan: &Plan, id: BufferId, buffer: &Buffer) -> Result<Option<Offset>, ImportError> {
    let item = || format!("buffer {id} '{}'", buffer.name);
    match plan.residencies_of(id) {
        [one] => Ok(Some(one.offset)),
        [] if plan.pooled.binary_search(&id).is_ok() => Ok(None),
        [] => Err(ImportError::new(ErrorKind::Missing, item())
            .found("no place in the plan")
            .expected("one")
            .hint("is it the plan of this problem?")),
        several => Err(ImportError::new(ErrorKind::Unsupported, item())
            .found(format!("{} places in the plan", several.len()))
            .expected("one: CSV has one offset for a buffer")
            .hint("write the plan as JSON")),
    }
}

fn expressible(problem: &Problem) -> Result<(), ImportError> {
    let refuse = |found: String| {
        Err(ImportError::new(ErrorKind::Unsupported, format!("problem '{}'", problem.name))
            .found(found)
            .expected("what MiniMalloc's CSV has columns for")
            .hint("write the problem as JSON"))
    };
    if problem.spaces.len() != 1 {
        return refuse(format!("{} spaces", problem.spaces.len()));
    }
    if !problem.spaces[0].reserved.is_empty() {
        return refuse("reserved ranges".into());
    }
    let lists = &problem.constraints;
    for (name, count) in [
        ("colocations", lists.colocated.len()),
        ("separations", lists.separated.len()),
        ("pairs that never coexist", lists.never_coexist.len()),
        ("reuse penalties", lists.reuse_penalties.len()),
    ] {
        if count > 0 {
            return refuse(format!("{count} {name}"));
        }
    }
    let mut seen = HashSet::with_capacity(problem.buffers.len());
    for buffer in &problem.buffers {
        if buffer.sizing != Sizing::Fixed {
            return refuse(format!("buffer '{}', whose size is not fixed", buffer.name));
        }
        if buffer.name.trim().is_empty() || !seen.insert(buffer.name.trim()) {
            return refuse(format!("two buffers called '{}', or one without a name", buffer.name));
        }
    }
    Ok(())
}

/// The holes between live ranges, and the ranges that keep only a window.
fn gaps(buffer: &Buffer) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut previous: Option<StepRange> = None;
    for range in &buffer.live {
        if let Some(previous) = previous.filter(|previous| previous.end < range.steps.start) {
            words.push(format!("{}-{}", previous.end, range.steps.start));
        }
        if let Some(window) = range.window {
            words.push(format!("{}-{}@{}:{}", range.steps.start, range.steps.end, window.start, window.end));
        }
        previous = Some(range.steps);
    }
    words.join(" ")
}

fn row(writer: &mut csv::Writer<Vec<u8>>, cells: impl Iterator<Item = impl AsRef<[u8]>>) -> Result<(), ImportError> {
    writer.write_record(cells).map_err(broken)
}

fn broken(error: csv::Error) -> ImportError {
    ImportError::new(ErrorKind::Syntax, "CSV").found(error.to_string())
}

fn finish(writer: csv::Writer<Vec<u8>>) -> Result<Vec<u8>, ImportError> {
    writer.into_inner().map_err(|error| ImportError::new(ErrorKind::Syntax, "CSV").found(error.to_string()))
}
