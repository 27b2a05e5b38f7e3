//! The HTML report in a real browser, where one is installed.
#![allow(clippy::unwrap_used)]

mod example;

use npumem_report::html;
use std::path::{Path, PathBuf};

/// Writes the pages that the browser opens; their JSON is beside them.
fn write_pages(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let pages = [
        ("model", example::report(400, 1)),
        ("too-small", example::too_small()),
        ("10k", example::report(10_000, 2)),
        ("100k", example::report(100_000, 3)),
    ];
    for (name, report) in pages {
        std::fs::write(folder.join(format!("{name}.html")), html::render(&report).unwrap()).unwrap();
        std::fs::write(folder.join(format!("{name}.json")), report.to_json().unwrap()).unwrap();
    }
}

#[test]
fn the_page_works_in_a_browser() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report-pages");
    write_pages(&folder);
}
