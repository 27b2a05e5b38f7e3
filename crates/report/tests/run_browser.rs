//! The page of a run in a real browser, where one is installed: hover, zoom, drag, cores, and the way of one tile.
#![allow(clippy::unwrap_used, clippy::print_stdout)]
#![allow(dead_code, reason = "the other page's test uses more of the browser")]

mod chromium;

use chromium::{Chromium, Page};
use npumem_report::perfetto::{Part, Slice, Timeline};
use npumem_report::run_report::{self, RunReport};
use std::path::{Path, PathBuf};

const TURNS: u64 = 40;

fn part(buffer: &str, slot: u32) -> Part {
    Part { buffer: buffer.to_owned(), slot, space: "ub".to_owned(), bytes: 4096 }
}

/// On two cores, `TURNS` tiles in two slots: loaded in 100 cycles, doubled in 60, stored in 80. The second core is half as fast.
fn timeline() -> Timeline {
    let mut slices = Vec::new();
    for core in 0..2_u64 {
        let pace = (core + 1) as f64;
        for turn in 0..TURNS {
            let (at, slot) = (turn as f64 * 100.0, (turn % 2) as u32);
            let one = |engine: u16, name: &str, from: f64, cycles: f64, reads: Vec<Part>, writes: Vec<Part>| Slice {
                core,
                engine,
                name: name.to_owned(),
                step: u32::from(engine) + 1,
                line: u32::from(engine) + 10,
                start: (at + from) * pace,
                freed: (at + from + cycles) * pace,
                end: (at + from + cycles) * pace,
                bytes: 4096,
                waited: if engine == 1 { "the data of 'in' is not there yet".to_owned() } else { String::new() },
                waited_cycles: if engine == 1 { 40.0 * pace } else { 0.0 },
                reads,
                writes,
            };
            slices.push(one(0, "tload", 0.0, 100.0, vec![], vec![part("in", slot)]));
            slices.push(one(1, "t</script>adds", 100.0, 60.0, vec![part("in", slot)], vec![part("out", slot)]));
            slices.push(one(2, "tstore", 160.0, 80.0, vec![part("out", slot)], vec![]));
        }
    }
    let engines = ["mte2", "vector", "mte3"].map(str::to_owned).to_vec();
    Timeline { title: "double on a device".to_owned(), clock_hz: 1e9, engines, slices, dropped: 0 }
}

struct Open {
    chromium: Chromium,
    page: Page,
}

impl Open {
    /// The middle of a statement of the core at hand in the window: by its engine and turn.
    fn middle(&mut self, engine: u16, turn: u64) -> (f64, f64) {
        let place = self.chromium.value(
            &self.page,
            &format!(
                "(() => {{ canvas.scrollIntoView({{ block: 'center' }}); const box = canvas.getBoundingClientRect(),
                 s = mine.filter(s => s.engine === {engine})[{turn}];
                 return [box.left + X((s.start + s.freed) / 2), box.top + rows.findIndex(r => r.i === {engine}) * ROW + ROW / 2]; }})()"
            ),
        );
        (place[0].as_f64().unwrap(), place[1].as_f64().unwrap())
    }

    fn view(&mut self) -> (f64, f64) {
        let view = self.chromium.value(&self.page, "[from, to]");
        (view[0].as_f64().unwrap(), view[1].as_f64().unwrap())
    }

    fn mouse(&mut self, kind: &str, at: (f64, f64), clicks: u32) {
        self.chromium.mouse(&self.page, kind, at, clicks);
    }

    fn click(&mut self, at: (f64, f64), clicks: u32) {
        for click in 1..=clicks {
            self.mouse("mousePressed", at, click);
            self.mouse("mouseReleased", at, click);
        }
        self.chromium.frame(&self.page);
    }

    /// The lit statements: name and start of each, or nothing when all are.
    fn marked(&mut self) -> Option<Vec<(String, f64)>> {
        let list = self.chromium.value(
            &self.page,
            "marked && [...marked].map(i => [mine[i].name, mine[i].start]).sort((a, b) => a[1] - b[1])",
        );
        let one = |pair: &serde_json::Value| (pair[0].as_str().unwrap().to_owned(), pair[1].as_f64().unwrap());
        Some(list.as_array()?.iter().map(one).collect())
    }
}

fn hovering_tells_the_statement(open: &mut Open) {
    let at = open.middle(1, 3);
    open.mouse("mouseMoved", at, 0);
    open.chromium.frame(&open.page);
    let shown = open.chromium.text(&open.page, "tip.style.display + '\\n' + tip.textContent");
    let expected = "block\nt</script>adds  step 2, line 11\n400 to 460: 60.0 cycles, results at 460\n4,096 bytes\nreads in[1]\nwrites out[1]\n\
                    waited 40 cycles: the data of 'in' is not there yet";
    assert_eq!(shown, expected);
    open.mouse("mouseMoved", (at.0, at.1 - 2000.0), 0);
    open.chromium.frame(&open.page);
}

fn the_wheel_keeps_the_cycle_under_the_mouse(open: &mut Open) {
    let whole = open.view();
    assert_eq!(whole, (0.0, TURNS as f64 * 200.0 + 280.0));
    let middle = open.middle(0, 20);
    // A browser tells whole pixels.
    let at = (middle.0.floor(), middle.1.floor());
    let under = format!("T({} - canvas.getBoundingClientRect().left)", at.0);
    let before = open.chromium.number(&open.page, &under);
    for _ in 0..6 {
        open.chromium.wheel(&open.page, at, -120.0);
    }
    let near = open.view();
    assert!(near.1 - near.0 < 0.25 * (whole.1 - whole.0), "{near:?}");
    let now = open.chromium.number(&open.page, &under);
    assert!((now - before).abs() < 1e-6 * whole.1, "{before} {now}");

    open.mouse("mousePressed", at, 1);
    open.mouse("mouseMoved", (at.0 - 100.0, at.1), 1);
    open.mouse("mouseReleased", (at.0 - 100.0, at.1), 1);
    open.chromium.frame(&open.page);
    let moved = open.view();
    assert!(moved.0 > near.0 && ((moved.1 - moved.0) - (near.1 - near.0)).abs() < 1e-6, "{near:?} {moved:?}");
    assert_eq!(open.marked(), None, "a drag is no click");
    open.click(at, 2);
    assert_eq!(open.view(), whole, "a double click shows all of it");
    // The clicks of it marked and unmarked a statement.
    open.chromium.value(&open.page, "marked = null");
}

fn a_click_follows_one_tile(open: &mut Open) {
    let at = open.middle(1, 5);
    open.click(at, 1);
    let way = ["tload", "t</script>adds", "tstore"].map(str::to_owned);
    let expected: Vec<(String, f64)> = way.into_iter().zip([500.0, 600.0, 660.0]).collect();
    assert_eq!(open.marked().unwrap(), expected);
    // Beside all statements: back to all.
    let row = open.middle(2, 0);
    let left = open.chromium.number(&open.page, "canvas.getBoundingClientRect().left");
    open.click((left + 5.0, row.1), 1);
    assert_eq!(open.marked(), None);
}

fn the_other_core_is_shown(open: &mut Open) {
    assert_eq!(open.chromium.number(&open.page, "mine.length"), 3.0 * TURNS as f64);
    open.chromium.value(&open.page, "pick.value = '1', pick.dispatchEvent(new Event('change'))");
    assert_eq!(open.chromium.number(&open.page, "mine[0].core"), 1.0);
    let at = open.middle(1, 3);
    open.mouse("mouseMoved", at, 0);
    open.chromium.frame(&open.page);
    assert!(open.chromium.text(&open.page, "tip.textContent").contains("800 to 920: 120.0 cycles"));
}

#[test]
fn the_page_of_a_run_works_in_a_browser() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("run-pages");
    std::fs::create_dir_all(&folder).unwrap();
    let Some(mut chromium) = Chromium::start(Path::new(env!("CARGO_TARGET_TMPDIR"))) else {
        return npumem_testing::skipped("no chromium here (install it, or name one in NPUMEM_CHROMIUM)");
    };
    let file = folder.join("run.html");
    let report =
        RunReport { program: "double".to_owned(), cycles: TURNS as f64 * 200.0 + 280.0, ..RunReport::default() };
    std::fs::write(&file, run_report::page(&report, &timeline())).unwrap();
    let page = chromium.open(&file);
    let mut open = Open { chromium, page };
    assert_eq!(open.chromium.text(&open.page, "document.getElementById('title').textContent"), "double on a device");
    hovering_tells_the_statement(&mut open);
    the_wheel_keeps_the_cycle_under_the_mouse(&mut open);
    a_click_follows_one_tile(&mut open);
    the_other_core_is_shown(&mut open);
    assert_eq!(open.chromium.complaints(), Vec::<String>::new());
}
