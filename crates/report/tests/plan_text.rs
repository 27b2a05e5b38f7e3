//! The report as text, against files in `tests/expect/` (`UPDATE_EXPECT=1` writes them anew).
#![allow(clippy::unwrap_used)]

mod example;

use npumem_ir::{Bytes, Plan, Problem, Step};
use npumem_report::plan_report::{BuildError, Extras, PlanReport};
use npumem_report::text::{TextOptions, render};
use npumem_testing::expect_file;
use unicode_width::UnicodeWidthStr;

fn expect(name: &str, found: &str) {
    expect_file(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expect").join(name), found);
}

#[test]
fn a_model_that_fits() {
    let report = example::report(60, 1);
    expect("model.txt", &render(&report, &TextOptions::default()));
}

#[test]
fn a_model_on_a_narrow_terminal() {
    let report = example::report(60, 1);
    expect("model-narrow.txt", &render(&report, &TextOptions { width: 64, rows: 5, ..TextOptions::default() }));
}

#[test]
fn a_problem_that_does_not_fit() {
    expect("too-small.txt", &render(&example::too_small(), &TextOptions::default()));
}

#[test]
fn a_buffer_that_moves_between_spaces() {
    expect("two-spaces.txt", &render(&example::two_spaces(), &TextOptions::default()));
}

#[test]
fn colours_are_only_colours() {
    let report = example::report(60, 1);
    let painted = render(&report, &TextOptions { colour: true, ..TextOptions::default() });
    let mut plain = String::new();
    let mut pieces = painted.split('\u{1b}');
    plain.push_str(pieces.next().unwrap());
    for piece in pieces {
        plain.push_str(piece.split_once('m').unwrap().1);
    }
    assert!(painted.len() > plain.len());
    let trimmed = |text: &str| text.lines().map(|line| line.trim_end().to_owned() + "\n").collect::<String>();
    assert_eq!(trimmed(&plain), render(&report, &TextOptions::default()));
}

#[test]
fn nothing_hostile_and_nothing_wide_is_printed() {
    for seed in 0..20 {
        let report = example::report(50 + seed as usize, seed);
        for width in [60, 80, 100, 200] {
            for line in render(&report, &TextOptions { width, ..TextOptions::default() }).lines() {
                assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
                assert!(line.width() <= width, "{} > {width}: {line}", line.width());
            }
        }
    }
}

#[test]
fn an_empty_problem_prints() {
    let report = PlanReport::build(&Problem::default(), &Plan::default(), Extras::default()).unwrap();
    let text = render(&report, &TextOptions::default());
    assert!(text.starts_with("the problem holds no buffers: there is nothing to plan"), "{text}");
}

#[test]
fn the_document_survives_json() {
    for report in [example::report(200, 3), example::too_small()] {
        let text = report.to_json().unwrap();
        assert_eq!(PlanReport::from_json(&text).unwrap(), report);
    }
    let other = example::too_small().to_json().unwrap().replace("\"version\":1", "\"version\":2");
    assert!(PlanReport::from_json(&other).unwrap_err().to_string().contains("version 1; found"));
}

#[test]
fn the_numbers_are_those_of_the_plan() {
    let report = example::too_small();
    let space = &report.spaces[0];
    assert_eq!(space.live_peak, Bytes(65_536 + 98_304 + 65_536));
    assert_eq!(space.live_peak_step, Some(Step(2)));
    assert_eq!((space.over, space.fits, space.headroom), (Bytes(229_632 - 196_608), false, None));
    assert_eq!(
        space.curve,
        [(0, 65_536), (1, 163_840), (2, 229_376), (3, 163_840), (4, 65_536), (5, 0)].map(|(s, b)| (Step(s), Bytes(b)))
    );
    assert_eq!(space.reserved_bytes, Bytes(256));
    assert_eq!(report.pooled.total, None);
    assert!(!report.fits);

    let report = example::report(300, 9);
    let space = &report.spaces[0];
    let at = |step: Step| -> u64 {
        report.buffers.iter().filter(|b| b.live.iter().any(|l| l.steps.contains(step))).count() as u64
    };
    assert_eq!(space.at_peak.rows.len() as u64, at(space.live_peak_step.unwrap()));
    assert_eq!(space.at_peak.sum.0 - space.at_peak.shared.0, space.live_peak.0);
    assert!(space.live_peak <= space.peak && space.peak <= space.total);
}

/// Every key that a document can have is on the page that describes it.
#[test]
fn the_page_about_the_format_names_every_key() {
    let page = std::fs::read_to_string(npumem_testing::workspace_root().join("docs/formats/plan-report.md")).unwrap();
    for report in [example::report(400, 1), example::too_small(), example::two_spaces()] {
        let mut todo = vec![serde_json::to_value(&report).unwrap()];
        while let Some(value) = todo.pop() {
            match value {
                serde_json::Value::Array(items) => todo.extend(items),
                serde_json::Value::Object(fields) => {
                    for (key, value) in fields {
                        let named = page.contains(&format!("`{key}`")) || page.contains(&format!("\"{key}\""));
                        assert!(named, "docs/formats/plan-report.md does not name `{key}`");
                        // Under these the keys are foreign names.
                        if key != "work" && key != "options" {
                            todo.push(value);
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_plan_of_another_problem_is_an_error() {
    let (_, plan) = example::model(30, 1);
    let error = PlanReport::build(&Problem::default(), &plan, Extras::default()).unwrap_err();
    assert!(matches!(error, BuildError::UnknownBuffer { count: 0, .. }), "{error}");
}
