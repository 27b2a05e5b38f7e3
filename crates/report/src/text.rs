//! A plan report for a terminal: the verdict first, then what an engineer asks next.
//!
//! Every size is exact bytes and a binary unit. Names are shown as far as the width allows,
//! shortened in the middle; control characters in them are shown escaped and never reach the terminal.

mod chart;
pub(crate) mod figures;
pub(crate) mod ink;
mod sections;
pub(crate) mod table;

pub use figures::{printable, rate, seconds, share};

use crate::PlanReport;
use ink::Ink;

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// Columns of the terminal; less than 40 counts as 40.
    pub width: usize,
    /// Whether to colour.
    pub colour: bool,
    /// How many rows of the table of the peak to show; the rest is added up in one line.
    pub rows: usize,
}

impl Default for TextOptions {
    fn default() -> Self {
        TextOptions { width: 100, colour: false, rows: 12 }
    }
}

/// The report as text; it ends with a newline.
#[must_use]
pub fn render(report: &PlanReport, options: &TextOptions) -> String {
    let mut page =
        Page { report, options: TextOptions { width: options.width.max(40), ..*options }, text: String::new() };
    page.verdict();
    page.infeasible();
    for space in &report.spaces {
        page.space(space);
    }
    page.pooled();
    for space in report.spaces.iter().filter(|space| !space.at_peak.rows.is_empty()) {
        page.live_load(space);
        page.peak_table(space);
    }
    page.bounds();
    page.strategies();
    page.roofline();
    page.hierarchy();
    page.totals();
    page.origin();
    page.notes();
    page.text
}

/// A verdict in one word: `SOUND`, `UNSOUND`; in its colour when `colour` is set.
#[must_use]
pub fn verdict_word(word: &str, good: bool, colour: bool) -> String {
    if good { Ink::Good } else { Ink::Bad }.paint(word, colour)
}

/// The text as it grows.
struct Page<'a> {
    report: &'a PlanReport,
    options: TextOptions,
    text: String,
}

impl Page<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn heading(&mut self, title: &str) {
        let title = self.ink(Ink::Heading, title);
        self.text.push('\n');
        self.line(&title);
    }

    fn ink(&self, ink: Ink, text: &str) -> String {
        ink.paint(text, self.options.colour)
    }

    /// A paragraph, broken between words; continuation lines start with `indent` spaces.
    fn paragraph(&mut self, ink: Ink, first: &str, text: &str, indent: usize) {
        let room = self.options.width.saturating_sub(indent);
        for (index, piece) in figures::wrap(&figures::printable(text), room).iter().enumerate() {
            let start = if index == 0 { format!("{first:<indent$}") } else { " ".repeat(indent) };
            let line = format!("{}{piece}", self.ink(ink, &start));
            self.line(&line);
        }
    }
}
