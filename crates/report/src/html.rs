//! A plan report as one HTML file that needs nothing else: no network, no other file.
//!
//! ```text
//!   page.html   {{title}} {{style}} {{data}} {{script}}
//!                   |         |        |         `-- the scripts of `html/assets`, one after the other
//!                   |         |        `-- the report's JSON, escaped so that no name can end the element
//!                   |         `-- style.css
//!                   `-- the problem's name, escaped
//! ```
//! The page computes nothing that the JSON does not carry, except positions on the screen.

use crate::PlanReport;

const PAGE: &str = include_str!("html/assets/page.html");
const STYLE: &str = include_str!("html/assets/style.css");
/// In the order in which they build on each other.
const SCRIPTS: [&str; 7] = [
    include_str!("html/assets/figures.js"),
    include_str!("html/assets/rectangles.js"),
    include_str!("html/assets/paint.js"),
    include_str!("html/assets/map.js"),
    include_str!("html/assets/curve.js"),
    include_str!("html/assets/panels.js"),
    include_str!("html/assets/main.js"),
];

/// The report as a whole HTML file.
///
/// # Errors
/// Never for a document that [`PlanReport::build`] made; the serializer's own words otherwise.
pub fn render(report: &PlanReport) -> Result<String, serde_json::Error> {
    let data = escape_json(&report.to_json()?);
    let title = escape_text(&format!("{} · npumem plan", report.problem));
    let script = format!("(() => {{\n\"use strict\";\n{}\n}})();", SCRIPTS.join("\n"));
    let mut page = String::with_capacity(PAGE.len() + STYLE.len() + data.len() + script.len() + title.len());
    // Only the page itself is searched for places: what is filled in may hold anything, `{{script}}` too.
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        page.push_str(before);
        let (name, after) = after.split_once("}}").unwrap_or(("", after));
        page.push_str(match name {
            "title" => &title,
            "style" => STYLE,
            "data" => &data,
            "script" => &script,
            _ => "",
        });
        rest = after;
    }
    page.push_str(rest);
    Ok(page)
}

/// JSON that may stand in a `<script>` element: the same value, without a `<`, `>` or `&` and without the line ends
/// that only JavaScript knows.
fn escape_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => safe.push_str("\\u003c"),
            '>' => safe.push_str("\\u003e"),
            '&' => safe.push_str("\\u0026"),
            '\u{2028}' => safe.push_str("\\u2028"),
            '\u{2029}' => safe.push_str("\\u2029"),
            c => safe.push(c),
        }
    }
    safe
}

fn escape_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_can_end_the_element() {
        let json = escape_json("{\"name\":\"</script><!-- & \u{2028}\"}");
        assert_eq!(json, "{\"name\":\"\\u003c/script\\u003e\\u003c!-- \\u0026 \\u2028\"}");
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["name"], "</script><!-- & \u{2028}");
    }

    #[test]
    fn every_place_of_the_page_is_filled_and_scripts_cannot_end_themselves() {
        let places: Vec<&str> = PAGE.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()).collect();
        assert_eq!(places, ["title", "style", "data", "script"]);
        for script in SCRIPTS {
            assert!(!script.contains("</script") && !script.contains("<!--"));
        }
        assert!(!STYLE.contains("</style") && !STYLE.contains("url("));
    }
}
