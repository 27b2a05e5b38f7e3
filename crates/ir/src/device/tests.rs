//! Tests of the device description: what is read, what is refused and where, what is answered.

use super::*;
use crate::units::Offset;

/// A small device that uses every kind of table; tests change one line of it.
const SMALL: &str = r#"format = "npumem-device"
version = 1
name = "small"
clock_hz = { value = 1e9, source = "book" }

[sources]
book = "the book, page 3"

[[core]]
name = "core"
count = { value = 4, source = "book" }

[[space]]
name = "ram"
role = "everything"
kind = "dram"
scope = "device"
source = "book"
capacity_bytes = "4 GiB"
bandwidth_bytes_per_second = 1e11
latency_cycles = "?"

[[space]]
name = "pad"
role = "tiles"
aliases = ["vec"]
kind = "scratchpad"
scope = "core"
core = "core"
source = "book"
capacity_bytes = 65536
usable_bytes = "60 KiB"
reserved = [{ start_bytes = 0, end_bytes = 64, why = "stack" }]
alignment_bytes = 32
bandwidth_bytes_per_cycle = { value = 128, estimated = "a guess" }
[space.banks]
count = 16
size_bytes = "4 KiB"

[[engine]]
name = "dma"
kind = "dma"
core = "core"

[[engine]]
name = "mac"
kind = "matrix"
core = "core"
count = { value = 2, source = "book" }
reads = ["pad"]
writes = ["pad"]
[engine.operations_per_cycle]
f16 = { value = 512, source = "book" }

[[link]]
from = "ram"
to = "pad"
engine = "dma"
source = "book"
bytes_per_cycle = 16
"#;

fn small() -> Device {
    Device::from_toml(SMALL).unwrap()
}

/// The error for [`SMALL`] with `old` replaced by `new`.
#[track_caller]
fn error(old: &str, new: &str) -> String {
    assert!(SMALL.contains(old), "{old}");
    Device::from_toml(&SMALL.replacen(old, new, 1)).unwrap_err().to_string()
}

#[test]
fn figures_keep_their_values_and_origins() {
    let device = small();
    let pad = device.space(device.space_named("VEC").unwrap());
    assert_eq!(pad.capacity, Figure::sourced(Bytes(65_536), "book"));
    assert_eq!(pad.usable, Figure::sourced(Bytes(61_440), "book"));
    assert_eq!(pad.bandwidth, Figure::estimated(Rate::BytesPerCycle(128.0), "a guess"));
    assert_eq!(pad.latency, Figure::Unknown);
    assert_eq!(pad.reserved[0].range, ByteRange::at(Offset(0), Bytes(64)).unwrap());
    assert_eq!(device.links[0].name, "ram->pad");
}

#[test]
fn questions_are_answered_with_their_figures() {
    let device = small();
    let ram = device.main_memory().unwrap();
    let pad = device.space_named("pad").unwrap();
    assert_eq!(device.space(ram).name, "ram");
    assert_eq!(device.bandwidth(ram).unwrap().value, 1e11);
    assert_eq!(device.instances(pad), Ok(4));
    assert_eq!(device.usable(pad), Ok(Bytes(61_440)));

    let bandwidth = device.bandwidth(pad).unwrap();
    assert_eq!(bandwidth.value, 128e9);
    assert!(bandwidth.is_estimated());

    let (kind, peak) = device.peak(Precision::F16).unwrap();
    assert_eq!((kind, peak.value), (EngineKind::Matrix, 512.0 * 2.0 * 4.0 * 1e9));
    let from: Vec<&str> = peak.from.iter().map(|row| row.path.as_str()).collect();
    assert_eq!(from, ["mac.operations.f16", "mac.count", "core.count", "device.clock"]);
    assert!(!peak.is_estimated());

    let space = device.problem_space(pad).unwrap();
    assert_eq!(space.capacity, Some(Bytes(61_440)));
    assert_eq!(space.alignment.get(), 32);
    assert_eq!(space.reserved.len(), 1);

    let (dma, mac) = (device.engine_named("dma").unwrap(), device.engine_named("mac").unwrap());
    assert!(device.reads(dma, ram) && device.writes(dma, pad) && !device.writes(dma, ram));
    assert!(device.reads(mac, pad) && !device.reads(mac, ram));
}

#[test]
fn a_missing_figure_is_named() {
    let device = small();
    let ram = device.main_memory().unwrap();
    let missing = device.latency(ram).unwrap_err();
    assert_eq!((missing.device.as_str(), missing.path.as_str()), ("small", "ram.latency"));
    assert!(missing.to_string().contains("device `small` has no figure for `ram.latency`"));
    assert_eq!(device.figure("ram.latency").unwrap_err(), missing);
    assert_eq!(device.figure("ram.bandwidth").unwrap().value, Some(FigureValue::Real(1e11)));
    assert_eq!(device.figure("nothing.at_all").unwrap_err().path, "nothing.at_all");

    let no_unit = device.peak_operations(EngineKind::Matrix, Precision::I8).unwrap_err();
    assert_eq!(no_unit.to_string(), "device `small` has no matrix unit for i8; its matrix units compute f16");
}

#[test]
fn a_rate_per_cycle_needs_the_clock() {
    let device = Device::from_toml(&SMALL.replace("{ value = 1e9, source = \"book\" }", "\"?\"")).unwrap();
    let pad = device.space_named("pad").unwrap();
    assert_eq!(device.bandwidth(pad).unwrap_err().path, "device.clock");
    assert_eq!(device.bandwidth(device.main_memory().unwrap()).unwrap().value, 1e11);
}

#[test]
fn main_memory_is_the_largest_shared_dram() {
    let two = SMALL.replace(
        "[[space]]\nname = \"pad\"",
        "[[space]]\nname = \"big\"\nrole = \"more\"\nkind = \"dram\"\nscope = \"device\"\nsource = \"book\"\n\
         capacity_bytes = \"8 GiB\"\n\n[[space]]\nname = \"cache\"\nrole = \"fast\"\nkind = \"cache\"\n\
         scope = \"device\"\nsource = \"book\"\ncapacity_bytes = \"16 GiB\"\n\n[[space]]\nname = \"pad\"",
    );
    let device = Device::from_toml(&two).unwrap();
    assert_eq!(device.space(device.main_memory().unwrap()).name, "big");
}

#[test]
fn both_syntaxes_read_back_to_the_same_device() {
    let device = small();
    assert_eq!(Device::from_toml(&device.to_toml()), Ok(device.clone()));
    assert_eq!(Device::from_json(&device.to_json().to_string()), Ok(device.clone()));
    assert_eq!(Device::from_toml(&device.to_toml()).unwrap().to_toml(), device.to_toml());
}

#[test]
fn awkward_texts_survive_writing() {
    let mut device = small();
    device.title = "quote \" backslash \\ tab \t newline \n bell \u{7} ü 昇腾".to_owned();
    device.notes = vec!["a = [1] # not a comment".to_owned()];
    device.sources.insert("needs quotes".to_owned(), "'\"'".to_owned());
    device.clock_hz = Figure::sourced(0.1, "needs quotes");
    assert_eq!(Device::from_toml(&device.to_toml()), Ok(device.clone()));
    assert_eq!(Device::from_json(&device.to_json().to_string()), Ok(device));
}

#[test]
fn crlf_is_read_and_a_byte_order_mark_too() {
    assert_eq!(Device::from_toml(&SMALL.replace('\n', "\r\n")), Ok(small()));
    assert_eq!(Device::from_toml(&format!("\u{feff}{SMALL}")), Ok(small()));
}

#[test]
fn a_missing_unit_is_shown_with_the_keys_that_have_one() {
    assert_eq!(
        error("capacity_bytes = 65536", "capacity = 65536"),
        "line 31, column 1: `space.pad`: `capacity` has no unit; expected `capacity_bytes`"
    );
    assert!(
        error("bandwidth_bytes_per_second", "bandwidth")
            .contains("`bandwidth` has no unit; expected `bandwidth_bytes_per_cycle` or `bandwidth_bytes_per_second`")
    );
    assert!(
        error("clock_hz", "clock_ghz").starts_with("line 4, column 1: `clock_ghz` has no unit; expected `clock_hz`")
    );
    assert!(error("capacity_bytes = 65536", "capacity_bytes = \"65536\"").starts_with(
        "line 31, column 18: `space.pad.capacity_bytes`: `\"65536\"` has no unit; expected a size such as"
    ));
}

#[test]
fn unknown_keys_are_refused_with_a_hint() {
    assert_eq!(
        error("alignment_bytes", "alignmnt_bytes"),
        "line 34, column 1: `space.pad`: unknown key `alignmnt_bytes`; did you mean `alignment_bytes`?"
    );
    assert!(
        error("version = 1", "version = 1\ncolour = \"red\"")
            .contains("unknown key `colour`; the keys here are format")
    );
    assert!(error("f16 = {", "fp16 = {").contains("unknown key `fp16`; did you mean `f16`?"));
    assert!(error("start_bytes = 0,", "start_bytes = 0, size = 3,").contains("unknown key `size`"));
}

#[test]
fn rates_must_be_positive_and_finite() {
    for (value, shown) in
        [("0", "0"), ("-1", "-1"), ("nan", "NaN"), ("inf", "inf"), ("-0.0", "-0"), ("1e19", "10000000000000000000")]
    {
        assert_eq!(
            error("= 1e11", &format!("= {value}")),
            format!(
                "line 20, column 30: `space.ram.bandwidth_bytes_per_second`: found {shown}; \
                 expected a number above 0 and at most 1e18"
            )
        );
        assert!(
            error("bytes_per_cycle = 16", &format!("bytes_per_cycle = {value}")).contains("expected a number above 0")
        );
        assert!(
            error("{ value = 1e9,", &format!("{{ value = {value},"))
                .starts_with("line 4, column 22: `clock_hz`: found")
        );
    }
    assert!(
        error("count = { value = 4", "count = { value = 0").contains("found 0; expected a whole number of at least 1")
    );
    assert!(error("= 65536", "= 0").contains("found 0; expected a size"));
    assert!(error("= 65536", "= -4").contains("found -4; expected a size"));
    assert!(error("= 65536", "= 18446744073709551616").contains("expected a whole number of bytes below 2^64"));
    assert!(error("= 65536", "= \"99999999999 GiB\"").contains("past 64 bits"));
    assert!(error("= 65536", "= 1.5").contains("found 1.5; expected a size"));
    assert!(error("alignment_bytes = 32", "alignment_bytes = 0").contains("found 0; expected a size"));
    assert!(error("latency_cycles = \"?\"", "latency_cycles = -1").contains("0 or more"));
    assert!(error("bytes_per_cycle = 16", "bytes_per_cycle = 16\nunaligned_share = 1.5").contains("at most 1"));
}

#[test]
fn names_must_differ_and_references_must_exist() {
    assert_eq!(
        error("name = \"pad\"", "name = \"ram\""),
        "line 24, column 8: `space.ram.name`: the name `ram` is taken by space `ram`; names and aliases must differ"
    );
    assert!(
        error("[\"vec\"]", "[\"RAM\"]").starts_with("line 26, column 12: `space.pad.aliases`: the name `RAM` is taken")
    );
    assert!(error("name = \"mac\"", "name = \"pad\"").contains("the name `pad` is taken by space `pad`"));
    assert!(
        error("[[link]]", "[[link]]\nfrom = \"ram\"\nto = \"pad\"\nengine = \"dma\"\n\n[[link]]")
            .contains("`ram->pad` is taken")
    );
    assert_eq!(
        error("to = \"pad\"", "to = \"l7\""),
        "line 57, column 6: `link.ram->l7.to`: there is no space named `l7`; the spaces are ram, pad"
    );
    assert!(
        error("engine = \"dma\"", "engine = \"x\"").contains("there is no engine named `x`; the engines are dma, mac")
    );
    assert!(error("reads = [\"pad\"]", "reads = [\"l1\"]").contains("line 50, column 10: `engine.mac.reads`"));
    assert!(error("core = \"core\"", "core = \"c\"").contains("there is no core named `c`; the cores are core"));
    assert!(error("source = \"book\"\ncapacity", "source = \"b\"\ncapacity").contains("there is no source named `b`"));
}

#[test]
fn every_figure_says_where_it_comes_from() {
    assert!(
        error("{ value = 4, source = \"book\" }", "4")
            .starts_with("line 11, column 9: `core.core.count`: the figure does not say where it comes from")
    );
    let both = error("{ value = 4, source", "{ value = 4, estimated = \"x\", source");
    assert!(both.contains("exclude each other"), "{both}");
    assert!(error("estimated = \"a guess\"", "estimated = \"\"").contains("expected a text that is not empty"));
    assert!(error("{ value = 4, ", "{ ").contains("`value` is missing"));
}

#[test]
fn contradictions_are_refused() {
    assert!(
        error("\"60 KiB\"", "\"65 KiB\"").contains("line 32, column 16: `space.pad.usable_bytes`: usable are 66,560 B")
    );
    assert!(error("end_bytes = 64", "end_bytes = 0").contains("the range [0, 0) is empty or reversed"));
    assert!(error("end_bytes = 64", "end_bytes = 65537").contains("ends past the capacity"));
    assert!(
        error("why = \"stack\" }", "why = \"stack\" }, { start_bytes = 32, end_bytes = 96, why = \"x\" }")
            .contains("starts before the end 64")
    );
    assert!(error("count = 16", "count = 15").contains("15 banks of 4,096 B (4.00 KiB) do not make the capacity"));
    assert!(error("count = 16", "count = 16\ngroups = 3").contains("do not divide into 3 groups"));
    assert!(
        error("scope = \"device\"", "scope = \"device\"\ncount = 2")
            .contains("belongs to a space of scope \"cluster\"")
    );
    assert!(error("kind = \"dma\"", "kind = \"dma\"\nreads = [\"ram\"]").contains("moves bytes and has no `reads`"));
    assert!(
        error("bytes_per_cycle = 16", "bytes_per_cycle = 16\nbytes_per_second = 1e9").contains("are the same figure")
    );
}

#[test]
fn missing_and_mistyped_keys_are_refused() {
    assert!(error("role = \"tiles\"\n", "").contains("`role` is missing; expected what the space is used for"));
    assert!(error("capacity_bytes = 65536\n", "").contains("`capacity_bytes` is missing"));
    assert!(error("core = \"core\"\nsource", "source").contains("`core` is missing"));
    assert!(
        error("kind = \"scratchpad\"", "kind = \"sram\"").contains("found \"sram\"; expected one of dram, scratchpad")
    );
    assert!(error("version = 1", "version = 2").contains("found 2; expected version 1"));
    assert!(error("\"npumem-device\"", "\"npumem-plan\"").contains("expected \"npumem-device\""));
    assert!(error("name = \"small\"", "name = \"a b\"").contains("expected a name of at most 64"));
    assert!(error("aliases = [\"vec\"]", "aliases = \"vec\"").contains("expected a list"));
    assert!(error("aliases = [\"vec\"]", "aliases = [1979-05-27]").contains("found a date"));
    let no_space = Device::from_toml("format = \"npumem-device\"\nversion = 1\nname = \"x\"").unwrap_err();
    assert!(no_space.to_string().contains("`space` is missing"));
}

#[test]
fn broken_texts_are_refused_with_their_place() {
    assert!(error("version = 1", "version = ").starts_with("line 2, column"));
    assert!(error("version = 1", "version = 1\nversion = 1").starts_with("line 3, column 1"));
    let json = Device::from_json("{\n\"format\": }").unwrap_err();
    assert_eq!(json.position.unwrap().line, 2);
    let deep = format!("x = {}{}", "[".repeat(60), "]".repeat(60));
    assert!(Device::from_toml(&deep).unwrap_err().to_string().contains("levels of nesting"));
    let very_deep = "[".repeat(100_000);
    assert!(Device::from_toml(&format!("x = {very_deep}")).is_err());
    assert!(Device::from_json(&very_deep).is_err());
    let long = " ".repeat(2 << 20);
    assert!(Device::from_toml(&long).unwrap_err().to_string().contains("at most 1048576"));
    let many = SMALL.replace("[\"vec\"]", &format!("[{}]", "\"v\",".repeat(300)));
    assert!(Device::from_toml(&many).unwrap_err().to_string().contains("more than 256 items"));
}

#[test]
fn the_fuzz_body_holds() {
    fuzzing::check(SMALL);
    for seed in 0..20_000 {
        fuzzing::check(&fuzzing::mutate(SMALL, seed));
    }
}

#[test]
fn the_fuzz_body_holds_near_the_shipped_descriptions() {
    for file in npumem_testing::files_under(&npumem_testing::workspace_root().join("devices"), ".toml") {
        let text = std::fs::read_to_string(file).unwrap();
        fuzzing::check(&text);
        for seed in 0..40 {
            fuzzing::check(&fuzzing::mutate(&text, seed));
        }
    }
}
