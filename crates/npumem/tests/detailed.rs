//! `npumem run --detail detailed`: the main memory command by command beneath a program.
#![allow(clippy::unwrap_used)]

use npumem::ir::Device;
use npumem::report::RunReport;
use npumem::simulate::{Request, simulate};
use npumem::simulator::{Cause, Detail, Options, Outcome};
use npumem::{catalogue, kernel};
use std::collections::BTreeMap;

const DETAILED: [&str; 2] = ["generic-npu", "ascend-910b2"];

fn example(name: &str) -> String {
    let path = npumem_testing::workspace_root().join(format!("examples/lecture/{name}.npumem"));
    std::fs::read_to_string(path).unwrap()
}

fn run(text: &str, device: &Device, detail: Detail) -> (Outcome, RunReport) {
    let program = kernel::read(text, &BTreeMap::new()).unwrap().kernels.remove(0).program;
    let options = Options { detail, ..Options::default() };
    let request = Request { options, advice: Some(false), ..Request::default() };
    let done = simulate(&program, device, &request, &[]).unwrap();
    assert_eq!(done.report.end, "complete");
    (done.outcome, done.report)
}

/// A part of `random_hbm`, which is as random as the whole.
fn random() -> String {
    example("random_hbm").replace("for i = 0 to 65536", "for i = 0 to 4096")
}

#[test]
fn two_runs_are_equal_to_the_byte() {
    let device = catalogue::device("ascend-910b2").unwrap();
    for text in [example("stream_hbm"), random(), example("conv_tiled")] {
        let json = || run(&text, &device, Detail::Detailed).1.to_json().unwrap();
        assert_eq!(json(), json());
    }
}

#[test]
fn detailed_is_slower_than_fast_and_than_the_peak_of_the_dram() {
    for name in DETAILED {
        let device = catalogue::device(name).unwrap();
        for text in [example("stream_hbm"), random(), example("matmul_double"), example("conv_direct")] {
            let (fast, _) = run(&text, &device, Detail::Fast);
            let (detailed, report) = run(&text, &device, Detail::Detailed);
            let ahead = fast.cycles - detailed.cycles;
            assert!(ahead < 1e-6, "{name} {}: {} {}", fast.program, fast.cycles, detailed.cycles);
            assert_eq!(fast.links, detailed.links, "the same bytes go over the same links");
            let dram = detailed.dram.as_ref().unwrap();
            let bytes: u64 = dram.channels.iter().map(|channel| channel.read + channel.written).sum();
            assert!(bytes as f64 <= dram.peak_bytes_per_second * detailed.seconds());
            assert!(report.dram.unwrap().share <= 1.0);
            for engine in &detailed.engines {
                let all = engine.busy + engine.idle_total();
                assert!((all - detailed.cycles).abs() < 1e-6 * all, "{name} {}: {all}", engine.name);
            }
        }
    }
}

#[test]
fn a_stream_with_slots_enough_is_as_fast_as_fast() {
    for name in DETAILED {
        let device = catalogue::device(name).unwrap();
        let text = example("stream_hbm").replace("slots 2", "slots 4");
        let (fast, _) = run(&text, &device, Detail::Fast);
        let (detailed, _) = run(&text, &device, Detail::Detailed);
        let ratio = detailed.cycles / fast.cycles;
        assert!((1.0..1.10).contains(&ratio), "{name}: {ratio}");
        let dram = detailed.dram.unwrap();
        let read: u64 = dram.channels.iter().map(|channel| channel.read).sum();
        assert_eq!(read, 4 << 20, "every byte once");
        let bursts = dram.row_hits + dram.row_misses + dram.row_conflicts;
        assert!(dram.row_hits as f64 > 0.95 * bursts as f64 && dram.refreshes > 0, "{dram:?}");
    }
}

#[test]
fn random_is_slower_than_a_stream_and_the_rows_say_why() {
    for name in DETAILED {
        let device = catalogue::device(name).unwrap();
        let stream = example("stream_hbm").replace("for i = 0 to 64 ", "for i = 0 to 4 ");
        let (stream, _) = run(&stream, &device, Detail::Detailed);
        let (random, _) = run(&random(), &device, Detail::Detailed);
        // The same 256 KiB.
        assert!(random.cycles > 10.0 * stream.cycles, "{name}: {} {}", random.cycles, stream.cycles);
        let (of_stream, of_random) = (stream.dram.unwrap(), random.dram.unwrap());
        assert!(of_random.activates > 4 * of_stream.activates, "{name}: {of_random:?} {of_stream:?}");
        let named = |outcome: &[npumem::simulator::EngineTotals]| {
            let memory = |cause: &Cause| matches!(cause, Cause::RowMiss | Cause::BankConflict | Cause::Refresh);
            let idle = outcome.iter().flat_map(|engine| &engine.idle);
            idle.filter(|(cause, _)| memory(cause)).map(|(_, cycles)| cycles).sum::<f64>()
        };
        assert!(named(&random.engines) > 0.0, "{name}");
    }
}

#[test]
fn a_device_without_the_figure_is_refused_by_its_name() {
    let path = npumem_testing::workspace_root().join("devices/generic-npu.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let without = Device::from_toml(&text.replace("\nrfc = 260\n", "\n")).unwrap();
    let program = kernel::read(&random(), &BTreeMap::new()).unwrap().kernels.remove(0).program;
    let options = Options { detail: Detail::Detailed, ..Options::default() };
    let request = Request { options, ..Request::default() };
    let refused = |device: &Device| simulate(&program, device, &request, &[]).unwrap_err().to_string();
    assert!(refused(&without).contains("`hbm.dram.timing_clocks.rfc`"), "{}", refused(&without));
    let none = catalogue::device("ascend-950").unwrap();
    assert!(refused(&none).contains("`hbm.dram`"), "{}", refused(&none));
}

/// The numbers of `docs/simulator.md` and `docs/lecture.md`.
#[test]
fn the_pages_say_what_the_runs_say() {
    let expected = [
        ("stream_hbm", [20_973.0, 158_517.0]),
        ("random_hbm", [2_875_578.0, 9_121_355.0]),
        ("matmul_double", [183_561.0, 519_607.0]),
        ("conv_tiled", [51_094.0, 56_513.0]),
    ];
    for (name, cycles) in expected {
        for (device, told) in DETAILED.iter().zip(cycles) {
            let (found, _) = run(&example(name), &catalogue::device(device).unwrap(), Detail::Detailed);
            assert!((found.cycles - told).abs() <= 0.5, "{name} on {device}: {}", found.cycles);
        }
    }
}

#[test]
fn more_bytes_than_can_be_run_are_refused_at_once() {
    let huge = example("stream_hbm").replace("[65536*i; 65536 by 1]", "[0; 1099511627776 by 1]");
    let huge = huge.replace("bytes 4194304", "bytes 1099511627776");
    let program = kernel::read(&huge, &BTreeMap::new()).unwrap().kernels.remove(0).program;
    let options = Options { detail: Detail::Detailed, ..Options::default() };
    let request = Request { options, ..Request::default() };
    let error = simulate(&program, &catalogue::device("generic-npu").unwrap(), &request, &[]).unwrap_err();
    assert!(error.to_string().contains("--detail fast"), "{error}");
}
