//! A run as one page without anything from outside: engines over time, memories below them, the text of the run.

use super::{RunReport, render};
use crate::perfetto::{Part, Timeline};
use crate::text::TextOptions;
use serde_json::json;

const PAGE: &str = include_str!("assets/timeline.html");

/// Statements on one page; a longer run shows its beginning, and says so.
pub const MOST_SLICES: usize = 100_000;

/// The page.
#[must_use]
pub fn page(report: &RunReport, timeline: &Timeline) -> String {
    let names = |parts: &[Part]| parts.iter().map(|part| format!("{}[{}]", part.buffer, part.slot)).collect::<Vec<_>>();
    let shown = &timeline.slices[..timeline.slices.len().min(MOST_SLICES)];
    let slices: Vec<_> = shown
        .iter()
        .map(|slice| {
            json!({
                "core": slice.core, "engine": slice.engine, "name": slice.name, "step": slice.step, "line": slice.line,
                "start": slice.start, "freed": slice.freed, "end": slice.end, "bytes": slice.bytes,
                "waited": slice.waited, "wait": slice.waited_cycles, "reads": names(&slice.reads), "writes": names(&slice.writes),
            })
        })
        .collect();
    let occupancy: Vec<_> = timeline
        .occupancy()
        .into_iter()
        .map(|((core, space), steps)| json!({"core": core, "space": space, "steps": steps}))
        .collect();
    let mut text = render(report, &TextOptions { width: 140, colour: false, rows: 40 });
    if shown.len() < timeline.slices.len() {
        text.push_str(&format!(
            "\nThe picture shows the first {MOST_SLICES} of {} statements.\n",
            timeline.slices.len()
        ));
    }
    let data = json!({
        "title": timeline.title, "cycles": report.cycles, "engines": timeline.engines, "slices": slices,
        "occupancy": occupancy, "text": text,
    });
    // No name may end the script element.
    PAGE.replace("@DATA@", &data.to_string().replace('<', "\\u003c"))
}
