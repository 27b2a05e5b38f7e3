//! Bars and the live-load chart, in block characters.

use npumem_ir::{Bytes, Step, StepRange};

const UP: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const RIGHT: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// A bar of `part / whole` in exactly `room` columns; something that is there is never drawn as nothing.
#[must_use]
pub fn bar(part: u64, whole: u64, room: usize) -> String {
    let eighths = eighths(part, whole, room);
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(RIGHT[eighths % 8]);
    }
    let used = eighths.div_ceil(8);
    bar + &" ".repeat(room - used)
}

/// How many eighths of `room` cells `part / whole` takes.
fn eighths(part: u64, whole: u64, room: usize) -> usize {
    if whole == 0 || part == 0 {
        return 0;
    }
    let exact = u128::from(part.min(whole)) * room as u128 * 8 / u128::from(whole);
    usize::try_from(exact).unwrap_or(room * 8).max(1)
}

/// The most that is live in each of `columns` equal parts of the steps.
#[must_use]
pub fn columns(curve: &[(Step, Bytes)], steps: StepRange, columns: usize) -> Vec<Bytes> {
    let span = u128::from(steps.len());
    let edge = |column: usize| steps.start.0 + (span * column as u128 / columns as u128) as u64;
    let mut next = 0;
    let mut live = Bytes::ZERO;
    (0..columns)
        .map(|column| {
            let (from, to) = (edge(column), edge(column + 1).max(edge(column) + 1));
            while next < curve.len() && curve[next].0.0 <= from {
                live = curve[next].1;
                next += 1;
            }
            let mut most = live;
            while next < curve.len() && curve[next].0.0 < to {
                live = curve[next].1;
                most = most.max(live);
                next += 1;
            }
            most
        })
        .collect()
}

/// Columns of `height` cells, top line first; `top` is the value of a full column.
#[must_use]
pub fn area(columns: &[Bytes], top: Bytes, height: usize) -> Vec<String> {
    let filled: Vec<usize> = columns.iter().map(|bytes| eighths(bytes.0, top.0, height)).collect();
    (0..height)
        .rev()
        .map(|line| filled.iter().map(|eighths| UP[eighths.saturating_sub(line * 8).min(8)]).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_they_say() {
        assert_eq!(bar(1, 2, 4), "██  ");
        assert_eq!(bar(5, 16, 4), "█▎  ");
        assert_eq!(bar(u64::MAX, u64::MAX, 3), "███");
        assert_eq!(bar(1, u64::MAX, 3), "▏  ");
        assert_eq!(bar(0, 9, 3), "   ");
        assert_eq!(bar(1, 0, 3), "   ");
    }

    #[test]
    fn a_column_shows_the_most_of_its_steps() {
        let curve = [(Step(0), Bytes(8)), (Step(1), Bytes(2)), (Step(5), Bytes(4)), (Step(8), Bytes(0))];
        assert_eq!(columns(&curve, StepRange::steps(0, 8), 4), [8, 2, 4, 4].map(Bytes));
        assert_eq!(columns(&curve, StepRange::steps(0, 2), 4), [8, 8, 2, 2].map(Bytes));
        assert_eq!(area(&[8, 2, 4, 1].map(Bytes), Bytes(8), 2), ["█   ", "█▄█▂"]);
    }
}
