//! The HTML report in a real browser, where one is installed: every number against the document, every control used.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod chromium;
mod example;

use chromium::{Chromium, Page};
use npumem_ir::units::grouped;
use npumem_ir::{BufferId, Plan, Problem};
use npumem_report::plan_report::{BufferReport, Extras, PlanReport};
use npumem_report::{html, text};
use std::path::{Path, PathBuf};

struct Browser {
    chromium: Chromium,
    folder: PathBuf,
}

impl Browser {
    fn open(&mut self, name: &str, report: &PlanReport) -> Page {
        let file = self.folder.join(format!("{name}.html"));
        std::fs::write(&file, html::render(report).unwrap()).unwrap();
        let page = self.chromium.open(&file);
        self.chromium.wait(&page, "Boolean(window.npumemReport && npumemReport.map.times.length)");
        page
    }

    /// Closes a page that must have had nothing to complain about.
    fn close(&mut self, page: Page) {
        assert_eq!(self.chromium.complaints(), Vec::<String>::new());
        self.chromium.close(page);
    }

    /// Where the centre of a buffer's first rectangle is in the window.
    fn centre(&mut self, page: &Page, buffer: usize) -> (f64, f64) {
        let place = self.chromium.value(page, &format!(
            "(() => {{ const {{ map }} = npumemReport, r = map.rectangles, [i] = r.of({buffer});
              document.getElementById('map').scrollIntoView({{ block: 'center' }});
              const box = document.getElementById('map').getBoundingClientRect();
              return [box.left + (map.x(r.left[i]) + map.x(r.right[i])) / 2, box.top + (map.y(r.low[i]) + map.y(r.high[i])) / 2]; }})()"
        ));
        (place[0].as_f64().unwrap(), place[1].as_f64().unwrap())
    }

    fn hover(&mut self, page: &Page, at: (f64, f64)) {
        self.chromium.mouse(page, "mouseMoved", at, 0);
        self.chromium.frame(page);
    }

    /// A place of the map above everything.
    fn corner(&mut self, page: &Page) -> (f64, f64) {
        let edge = "(({ left, top }) => [left, top])(document.getElementById('map').getBoundingClientRect())";
        let edge = self.chromium.value(page, edge);
        (edge[0].as_f64().unwrap() + 90.0, edge[1].as_f64().unwrap() + 12.0)
    }

    /// The colour of the map at a place of the window.
    fn pixel(&mut self, page: &Page, (x, y): (f64, f64)) -> String {
        self.chromium.text(
            page,
            &format!(
                "(() => {{ const canvas = npumemReport.map.plot.base, box = canvas.getBoundingClientRect();
              const one = new OffscreenCanvas(1, 1).getContext('2d', {{ willReadFrequently: true }});
              one.drawImage(canvas, Math.round(box.left - {x}), Math.round(box.top - {y}));
              return [...one.getImageData(0, 0, 1, 1).data].join(); }})()"
            ),
        )
    }

    fn view(&mut self, page: &Page) -> [f64; 4] {
        let view = self
            .chromium
            .value(page, "(({ left, right, low, high }) => [left, right, low, high])(npumemReport.map.view)");
        [0, 1, 2, 3].map(|index| view[index].as_f64().unwrap())
    }
}

fn exact(bytes: npumem_ir::Bytes) -> String {
    bytes.to_string()
}

fn pair(start: u64, end: u64) -> String {
    format!("[{}, {})", grouped(start), grouped(end))
}

/// Buffers that share no byte with another one, large enough to hit with a mouse.
fn alone(report: &PlanReport) -> Vec<usize> {
    let space = &report.spaces[0];
    let is_base = |id: usize| report.buffers.iter().any(|buffer| buffer.base == Some(BufferId::new(id)));
    let large = |buffer: &BufferReport| {
        buffer.live[0].steps.len() * 200 > report.steps.len() && buffer.size.0 * 20 > space.peak.0
    };
    let plain = |(id, buffer): &(usize, &BufferReport)| {
        buffer.base.is_none() && buffer.live.len() == 1 && !is_base(*id) && large(buffer)
    };
    report.buffers.iter().enumerate().filter(plain).map(|(id, _)| id).collect()
}

fn figures_are_those_of_the_document(browser: &mut Browser) {
    let report = example::report(400, 1);
    let page = browser.open("model", &report);
    let space = &report.spaces[0];
    assert_eq!(browser.chromium.text(&page, "document.title"), format!("{} · npumem plan", report.problem));
    assert_eq!(browser.chromium.text(&page, "document.getElementById('headline').textContent"), report.headline);
    let tiles = browser.chromium.text(&page, "document.getElementById('tiles').innerText");
    for bytes in [space.peak, space.lower_bound, space.capacity.unwrap(), space.total] {
        assert!(
            tiles.contains(&format!("{} B", grouped(bytes.0))) && tiles.contains(&bytes.short()),
            "{bytes}: {tiles}"
        );
    }
    let pages = browser.chromium.text(&page, "document.body.innerText");
    for bound in &report.bounds {
        assert!(pages.contains(&exact(bound.bytes)));
    }
    for row in &report.roofline.as_ref().unwrap().rows {
        assert!(pages.contains(&grouped(row.work)));
        assert!(row.seconds.is_none_or(|time| pages.contains(&text::seconds(time))));
        let rate = row.rate.as_ref().map(|figure| text::rate(figure.value, &figure.unit));
        assert!(rate.is_none_or(|rate| pages.contains(&rate)));
    }
    for strategy in &report.strategies {
        assert!(pages.contains(&exact(strategy.planned)) && pages.contains(&grouped(strategy.allocator_calls)));
    }
    for word in ["not yet assigned to SRAM", "~300", "estimated"] {
        assert!(word == "~300" || pages.contains(word), "{word}");
    }
    // The first line of the table of the peak is the largest buffer that is no weight.
    let fixed =
        |kind| matches!(kind, npumem_ir::problem::BufferKind::Weight | npumem_ir::problem::BufferKind::Constant);
    let rows: Vec<_> = space.at_peak.rows.iter().filter(|row| !fixed(row.kind)).collect();
    let cells = "[...document.querySelectorAll('#peak tbody tr')].map((row) => row.cells[0].textContent + '|' + row.cells[1].textContent)";
    let shown = browser.chromium.value(&page, cells);
    let expected: Vec<String> = rows.iter().map(|row| format!("{}|{}", row.name, exact(row.bytes))).collect();
    assert_eq!(shown, serde_json::json!(expected));
    let all = format!("document.querySelector('#peak input').click(); {cells}.length");
    assert_eq!(browser.chromium.number(&page, &all) as usize, space.at_peak.rows.len().min(100));
    // Sorted by name after a press on the header.
    let names = format!("document.querySelector('#peak thead button').click(); {cells}");
    let by_name = browser.chromium.value(&page, &names);
    assert_ne!(by_name, shown);
    browser.close(page);
}

fn hovering_names_the_buffer(browser: &mut Browser) {
    let report = example::report(400, 1);
    let page = browser.open("hover", &report);
    let buffers = alone(&report);
    assert!(buffers.len() > 10, "{}", buffers.len());
    for &id in buffers.iter().take(12) {
        let at = browser.centre(&page, id);
        browser.hover(&page, at);
        let buffer = &report.buffers[id];
        let tooltip = browser.chromium.value(&page, "[document.getElementById('tooltip').hidden, document.querySelector('#tooltip b')?.textContent, document.getElementById('tooltip').innerText]");
        assert_eq!(tooltip[0], false, "{id}");
        assert_eq!(tooltip[1], buffer.name.as_str());
        let words = tooltip[2].as_str().unwrap();
        let place = &buffer.places[0];
        let live = buffer.live[0].steps;
        for part in
            [exact(buffer.size), pair(place.offset.0, place.offset.0 + buffer.size.0), pair(live.start.0, live.end.0)]
        {
            assert!(words.contains(&part), "{part} is not in {words}");
        }
        assert!(buffer.producer.as_ref().is_none_or(|producer| words.contains(producer.as_str())), "{words}");
        // The pixel under the mouse is the buffer's, not the background's.
        let corner = browser.corner(&page);
        let (painted, background) = (browser.pixel(&page, (at.0, at.1 + 9.0)), browser.pixel(&page, corner));
        assert_ne!(painted, background, "buffer {id} is not painted where it is named");
    }
    // Above everything there is nothing.
    let corner = browser.corner(&page);
    browser.hover(&page, corner);
    assert_eq!(browser.chromium.value(&page, "document.getElementById('tooltip').hidden"), true);
    // The curve says what the document says at a step.
    let step = report.spaces[0].live_peak_step.unwrap().0;
    let live = browser.chromium.number(&page, &format!("npumemReport.curve.live({step})"));
    assert_eq!(live as u64, report.spaces[0].live_peak.0);
    browser.close(page);
}

fn zoom_pan_and_keys_work(browser: &mut Browser) {
    let report = example::report(400, 1);
    let page = browser.open("zoom", &report);
    let id = alone(&report)[3];
    let whole = browser.view(&page);
    let at = browser.centre(&page, id);
    let step = |browser: &mut Browser, page: &Page| {
        let x = at.0;
        browser.chromium.number(
            page,
            &format!("npumemReport.map.step({x} - document.getElementById('map').getBoundingClientRect().left)"),
        )
    };
    let before = step(browser, &page);
    for _ in 0..4 {
        browser.chromium.wheel(&page, at, -120.0);
    }
    let near = browser.view(&page);
    assert!(
        near[1] - near[0] < 0.5 * (whole[1] - whole[0]) && near[3] - near[2] < 0.5 * (whole[3] - whole[2]),
        "{near:?}"
    );
    assert!((step(browser, &page) - before).abs() < 0.01 * (whole[1] - whole[0]), "the step under the mouse moved");
    browser.chromium.mouse(&page, "mousePressed", at, 1);
    browser.chromium.mouse(&page, "mouseMoved", (at.0 - 60.0, at.1), 1);
    browser.chromium.mouse(&page, "mouseReleased", (at.0 - 60.0, at.1), 1);
    browser.chromium.frame(&page);
    let moved = browser.view(&page);
    assert!(moved[0] > near[0] && (moved[2] - near[2]).abs() < 1e-6 * near[3], "{near:?} {moved:?}");
    for click in [1, 2] {
        browser.chromium.mouse(&page, "mousePressed", at, click);
        browser.chromium.mouse(&page, "mouseReleased", at, click);
    }
    browser.chromium.frame(&page);
    assert_eq!(browser.view(&page), whole, "a double click shows everything");

    browser.chromium.value(&page, "document.getElementById('map').focus()");
    browser.chromium.key(&page, "+");
    browser.chromium.key(&page, "+");
    let near = browser.view(&page);
    browser.chromium.key(&page, "ArrowRight");
    assert!(browser.view(&page)[0] > near[0]);
    browser.chromium.key(&page, "0");
    assert_eq!(browser.view(&page), whole);
    browser.chromium.key(&page, "g");
    let peak = browser.view(&page);
    let step = report.spaces[0].live_peak_step.unwrap().0 as f64;
    assert!(peak[0] <= step && step < peak[1] && peak[1] - peak[0] < whole[1] - whole[0]);
    browser.close(page);
}

fn search_finds_and_shows(browser: &mut Browser) {
    let report = example::report(400, 1);
    let page = browser.open("search", &report);
    browser.chromium.key(&page, "/");
    browser.chromium.type_text(&page, "block1/");
    let matching = |buffer: &&BufferReport| buffer.name.contains("block1/");
    let count = report.buffers.iter().filter(matching).count();
    let words = browser.chromium.text(&page, "document.getElementById('matches').textContent");
    assert_eq!(words, format!("{} of {} buffers", count, report.buffers.len()));
    assert_eq!(browser.chromium.number(&page, "npumemReport.map.faded.filter((f) => !f).length") as usize, count);
    browser.chromium.key(&page, "Enter");
    let selected = browser.chromium.text(&page, "document.getElementById('selected').textContent");
    let first = report.buffers.iter().filter(matching).min_by_key(|buffer| buffer.live[0].steps.start).unwrap();
    assert!(selected.starts_with(&first.name) && selected.contains(&exact(first.size)), "{selected}");
    browser.chromium.key(&page, "Escape");
    assert_eq!(browser.chromium.number(&page, "npumemReport.map.faded.filter((f) => f).length"), 0.0);
    // A hostile name is found, shown, and does nothing else.
    browser.chromium.key(&page, "/");
    browser.chromium.type_text(&page, "</SCRIPT>");
    browser.chromium.key(&page, "Enter");
    let selected = browser.chromium.text(&page, "document.getElementById('selected').textContent");
    assert!(selected.starts_with(example::HOSTILE[0]), "{selected}");
    let harm = "[typeof window.hacked, document.scripts.length, document.querySelectorAll('#selected *').length]";
    assert_eq!(browser.chromium.value(&page, harm), serde_json::json!(["undefined", 2, 1]));
    browser.close(page);
}

fn both_themes_are_drawn(browser: &mut Browser) {
    let page = browser.open("theme", &example::report(100, 5));
    let theme = "document.documentElement.dataset.theme";
    let corner = browser.corner(&page);
    let before = (browser.chromium.text(&page, theme), browser.pixel(&page, corner));
    browser.chromium.value(&page, "document.getElementById('theme').click()");
    browser.chromium.frame(&page);
    let after = (browser.chromium.text(&page, theme), browser.pixel(&page, corner));
    assert!(before.0 != after.0 && before.1 != after.1, "{before:?} {after:?}");
    browser.close(page);
}

fn what_does_not_fit_says_why(browser: &mut Browser) {
    let report = example::too_small();
    let page = browser.open("too-small", &report);
    let words = browser.chromium.text(&page, "document.getElementById('infeasible').innerText");
    let infeasible = report.infeasible.as_ref().unwrap();
    assert!(words.contains(&infeasible.reason) && words.contains(&exact(infeasible.needed)), "{words}");
    for buffer in &infeasible.conflicts[0].buffers {
        assert!(words.contains(&exact(buffer.size)), "{words}");
    }
    let pool = browser.chromium.text(&page, "document.getElementById('pooled').innerText");
    assert!(pool.contains("kv") && pool.contains("unbounded"), "{pool}");
    browser.close(page);

    let empty = PlanReport::build(&Problem::default(), &Plan::default(), Extras::default()).unwrap();
    let file = browser.folder.join("empty.html");
    std::fs::write(&file, html::render(&empty).unwrap()).unwrap();
    let page = browser.chromium.open(&file);
    browser.chromium.wait(&page, "Boolean(window.npumemReport)");
    browser.close(page);
}

fn spaces_are_tabs(browser: &mut Browser) {
    let report = example::two_spaces();
    let page = browser.open("two-spaces", &report);
    let tabs =
        browser.chromium.value(&page, "[...document.querySelectorAll('#spaces button')].map((tab) => tab.textContent)");
    assert_eq!(tabs, serde_json::json!(["HBM", "UB"]));
    let first = "[npumemReport.map.rectangles.count, document.querySelector('#tiles .exact').textContent]";
    let shown = browser.chromium.value(&page, first);
    assert_eq!(shown, serde_json::json!([1, format!("{} B", grouped(report.spaces[0].peak.0))]));
    browser.chromium.value(&page, "document.querySelectorAll('#spaces button')[1].click()");
    browser.chromium.frame(&page);
    let shown = browser.chromium.value(&page, first);
    assert_eq!(shown, serde_json::json!([3, format!("{} B", grouped(report.spaces[1].peak.0))]));
    let tiles = browser.chromium.text(&page, "document.getElementById('tiles').innerText");
    assert!(tiles.contains("2 copies") && tiles.contains(&grouped(2 * 4096)), "{tiles}");
    browser.close(page);
}

/// How long a frame takes to draw, in milliseconds, with everything in sight and while zooming in and out by steps:
/// median and worst.
fn frames(browser: &mut Browser, page: &Page) -> (f64, f64) {
    let times = browser.chromium.value(
        page,
        "(async () => {
          const { map } = npumemReport, drawn = [];
          map.reset();
          for (let i = 0; i < 36; i++) {
            if (i < 12) map.pan(0, 0);
            else map.zoom(i < 24 ? 0.95 : 1 / 0.95, 600, 250, true, false);
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
            drawn.push(map.times.at(-1));
          }
          drawn.sort((a, b) => a - b);
          return [drawn[18], drawn[35]];
        })()",
    );
    (times[0].as_f64().unwrap(), times[1].as_f64().unwrap())
}

fn many_buffers_stay_smooth(browser: &mut Browser) {
    for (name, count, limit) in [("10k", 10_000, 16.0), ("100k", 100_000, 100.0)] {
        let report = example::report(count, 2);
        let page = browser.open(name, &report);
        assert_eq!(browser.chromium.number(&page, "npumemReport.report.buffers.length") as usize, report.buffers.len());
        let (median, worst) = frames(browser, &page);
        println!(
            "{name}: a frame of {} buffers is drawn in {median:.1} ms (worst {worst:.1} ms)",
            report.buffers.len()
        );
        assert!(median < limit, "{name}: {median} ms a frame");
        let id = report.buffers.len() / 2;
        browser.chromium.value(&page, &format!("npumemReport.map.focus({id})"));
        browser.chromium.frame(&page);
        let at = browser.centre(&page, id);
        browser.hover(&page, at);
        let named = browser.chromium.text(&page, "document.querySelector('#tooltip').innerText");
        assert!(named.contains(&report.buffers[id].name), "{named}");
        browser.close(page);
    }
}

#[test]
fn the_page_works_in_a_browser() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report-pages");
    std::fs::create_dir_all(&folder).unwrap();
    let Some(chromium) = Chromium::start(Path::new(env!("CARGO_TARGET_TMPDIR"))) else {
        return npumem_testing::skipped("no chromium here (install it, or name one in NPUMEM_CHROMIUM)");
    };
    let mut browser = Browser { chromium, folder };
    figures_are_those_of_the_document(&mut browser);
    hovering_names_the_buffer(&mut browser);
    zoom_pan_and_keys_work(&mut browser);
    search_finds_and_shows(&mut browser);
    both_themes_are_drawn(&mut browser);
    what_does_not_fit_says_why(&mut browser);
    spaces_are_tabs(&mut browser);
    many_buffers_stay_smooth(&mut browser);
}
