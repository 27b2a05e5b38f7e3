//! Tables: columns aligned by terminal width, names shortened and side columns left out where it is too narrow.

use super::figures::{printable, shorten, width, wrap};
use super::ink::Ink;

/// Between two columns.
const GAP: usize = 2;
/// Shorter than this a name says nothing.
const SHORTEST_NAME: usize = 12;

/// Prose narrower than this is not worth wrapping.
const NARROWEST_PROSE: usize = 20;

/// How a column behaves when the terminal is too narrow for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Text at the left edge, never cut.
    Left,
    /// Numbers at the right edge, never cut.
    Right,
    /// A name: shortened in the middle.
    Name,
    /// A sentence: wrapped under itself.
    Prose,
    /// A name that is shortened, then left out.
    SideName,
    /// Text or a bar that is left out.
    Side,
    /// Numbers that are left out.
    SideNumber,
}

impl Column {
    fn narrowest(self) -> Option<usize> {
        match self {
            Column::Name | Column::SideName => Some(SHORTEST_NAME),
            Column::Prose => Some(NARROWEST_PROSE),
            _ => None,
        }
    }

    fn optional(self) -> bool {
        matches!(self, Column::SideName | Column::Side | Column::SideNumber)
    }

    fn right(self) -> bool {
        matches!(self, Column::Right | Column::SideNumber)
    }
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    ink: Ink,
}

impl Cell {
    /// Text in its role.
    pub fn new(text: impl Into<String>, ink: Ink) -> Self {
        let text = text.into();
        Cell { text: printable(&text).into_owned(), ink }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::new(text, Ink::Plain)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::new(text, Ink::Plain)
    }
}

/// Rows under headers.
#[derive(Debug, Default)]
pub struct Table {
    columns: Vec<Column>,
    headers: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table; a header that is empty stays empty, and when all are there is no header line.
    pub fn new(columns: &[(Column, &'static str)]) -> Self {
        let (columns, headers) = columns.iter().copied().unzip();
        Table { columns, headers, rows: Vec::new() }
    }

    /// Adds a row; cells that are missing at its end are empty.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The lines, at most `room` columns wide where names allow it, each indented by two spaces.
    pub fn lines(&self, room: usize, colour: bool) -> Vec<String> {
        let kept = self.fit(room.saturating_sub(2));
        let headers: Vec<Cell> = self.headers.iter().map(|header| Cell::new(*header, Ink::Dim)).collect();
        let headed = self.headers.iter().any(|header| !header.is_empty());
        let all = headed.then_some(&headers).into_iter().chain(&self.rows);
        all.flat_map(|row| self.row_lines(row, &kept, colour)).collect()
    }

    /// The columns that are shown, with their widths.
    fn fit(&self, room: usize) -> Vec<(usize, usize)> {
        let natural = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(&cell.text));
            // A column without a single cell is not there, whatever its header.
            match cells.max().unwrap_or(0) {
                0 => 0,
                widest => widest.max(width(self.headers[column])),
            }
        };
        let mut kept: Vec<(usize, usize)> =
            (0..self.columns.len()).map(|column| (column, natural(column))).filter(|(_, widest)| *widest > 0).collect();
        loop {
            let total: usize = kept.iter().map(|(_, width)| width + GAP).sum::<usize>().saturating_sub(GAP);
            let Some(excess) = total.checked_sub(room).filter(|excess| *excess > 0) else { return kept };
            let narrowest = |column: usize| self.columns[column].narrowest();
            let widest = (kept.iter_mut())
                .filter(|(column, width)| narrowest(*column).is_some_and(|least| *width > least))
                .max_by_key(|(_, width)| *width);
            if let Some((column, width)) = widest {
                // The widest gives first, a step at a time, so that two long ones end up alike.
                *width = (*width - excess.min(4)).max(narrowest(*column).unwrap_or(0));
            } else if let Some(side) = kept.iter().rposition(|(column, _)| self.columns[*column].optional()) {
                kept.remove(side);
                for (column, width) in &mut kept {
                    *width = natural(*column);
                }
            } else {
                return kept;
            }
        }
    }

    /// One line, or several where prose is wrapped.
    fn row_lines(&self, row: &[Cell], kept: &[(usize, usize)], colour: bool) -> Vec<String> {
        let empty = Cell::default();
        let cells: Vec<(Vec<String>, Ink)> = (kept.iter())
            .map(|&(column, room)| {
                let cell = row.get(column).unwrap_or(&empty);
                let lines = match self.columns[column] {
                    Column::Prose if width(&cell.text) > room => wrap(&cell.text, room),
                    _ => vec![shorten(&cell.text, room).into_owned()],
                };
                (lines, cell.ink)
            })
            .collect();
        let height = cells.iter().map(|(lines, _)| lines.len()).max().unwrap_or(0);
        let line = |index: usize| {
            let mut line = String::from(" ");
            for (position, (&(column, room), (lines, ink))) in kept.iter().zip(&cells).enumerate() {
                let text = lines.get(index).map_or("", String::as_str);
                let padding = " ".repeat(room.saturating_sub(width(text)));
                let painted = ink.paint(text, colour);
                line.push_str(if position == 0 { " " } else { "  " });
                let (first, second) =
                    if self.columns[column].right() { (padding, painted) } else { (painted, padding) };
                line.push_str(&first);
                line.push_str(&second);
            }
            line.trim_end().to_owned()
        };
        (0..height).map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(&[(Column::Right, "bytes"), (Column::Name, "name"), (Column::SideName, "by")]);
        table.row(vec!["1,024".into(), "层.0.注意力".into(), "MatMul_with_a_long_name".into()]);
        table.row(vec!["7".into(), "a_rather_long_tensor_name".into()]);
        table
    }

    #[test]
    fn columns_line_up_by_terminal_width() {
        let lines = sample().lines(100, false);
        assert_eq!(lines[0], "  bytes  name                       by");
        assert_eq!(lines[1], "  1,024  层.0.注意力                MatMul_with_a_long_name");
        assert_eq!(lines[2], "      7  a_rather_long_tensor_name");
    }

    #[test]
    fn prose_is_wrapped_under_itself() {
        let mut table = Table::new(&[(Column::Left, ""), (Column::Prose, "")]);
        table.row(vec!["bound".into(), "the largest live load at step 12".into()]);
        assert_eq!(table.lines(30, false), ["  bound  the largest live load", "         at step 12"]);
    }

    #[test]
    fn a_narrow_terminal_shortens_names_then_drops_side_columns() {
        for room in 20..70 {
            for line in sample().lines(room, false) {
                assert!(width(&line) <= room.max(21), "{room}: {line}");
            }
        }
        assert!(!sample().lines(30, false).concat().contains("MatMul"));
        assert!(sample().lines(50, false)[2].contains('…'), "{:?}", sample().lines(50, false));
    }
}
