//! Every number of `docs/lecture.md` comes from a run.
#![allow(clippy::unwrap_used)]

use npumem::simulate::{Request, simulate};
use npumem::{catalogue, kernel};
use std::collections::BTreeMap;

fn cycles(name: &str, device: &str) -> (f64, f64) {
    let path = npumem_testing::workspace_root().join(format!("examples/lecture/{name}.npumem"));
    let program = kernel::read(&std::fs::read_to_string(path).unwrap(), &BTreeMap::new()).unwrap().kernels.remove(0);
    let request = Request { advice: Some(false), ..Request::default() };
    let done = simulate(&program.program, &catalogue::device(device).unwrap(), &request, &[]).unwrap();
    assert_eq!(done.report.end, "complete");
    (done.outcome.cycles, done.report.bound.cycles)
}

#[test]
fn the_page_says_what_the_runs_say() {
    let page = std::fs::read_to_string(npumem_testing::workspace_root().join("docs/lecture.md")).unwrap();
    let number = |cell: &str| cell.split_whitespace().next().unwrap().replace(',', "").parse::<f64>().unwrap();
    let (mut programs, mut ratios) = (BTreeMap::new(), 0);
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let name = cells[0].trim_matches('`');
        if let [_, generic, bound, ascend, other_bound, _] = cells.as_slice() {
            for (device, told, bound) in [("generic-npu", generic, bound), ("ascend-910b2", ascend, other_bound)] {
                let (found, least) = cycles(name, device);
                assert!((found - number(told)).abs() <= 0.5, "{name} on {device}: {found}");
                assert!((least - number(bound)).abs() <= 0.5, "{name} on {device}: {least}");
                programs.insert((name.to_owned(), device), found);
            }
        } else if let [_, against, generic, ascend] = cells.as_slice() {
            let against = against.trim_matches('`');
            for (device, told) in [("generic-npu", generic), ("ascend-910b2", ascend)] {
                let ratio = programs[&(name.to_owned(), device)] / programs[&(against.to_owned(), device)];
                assert!((ratio - number(told)).abs() < 0.006, "{name} against {against} on {device}: {ratio}");
                ratios += 1;
            }
        }
    }
    assert_eq!((programs.len(), ratios), (24, 14));
}

/// The latencies that the page quotes are those of the device file.
#[test]
fn the_latencies_are_those_of_the_device() {
    let page = std::fs::read_to_string(npumem_testing::workspace_root().join("docs/lecture.md")).unwrap();
    let device = catalogue::device("generic-npu").unwrap();
    for (word, space) in [("SRAM (", "sram"), ("registers (", "reg"), ("320 cycles a load on `generic-npu` (", "hbm")] {
        let rest = page.split(word).nth(1).unwrap_or_else(|| panic!("the page lacks {word}"));
        let told: u64 = rest.split(|letter: char| !letter.is_ascii_digit()).next().unwrap().parse().unwrap();
        let known = device.space(device.space_named(space).unwrap()).latency.known().unwrap().0;
        assert_eq!(told, known, "{space}");
    }
}
