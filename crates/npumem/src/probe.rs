//! What a probe measured, as a device description, as text with a picture, and as JSON.

use npumem_backend::probe::{Level, Measured, Point};
use npumem_ir::device::{ComputeUnit, Device};
use npumem_ir::device::{Core, CoreId, Engine, EngineKind, Figure, Link, Precision, Rate, Scope, Space, SpaceKind};
use npumem_ir::units::{Alignment, Cycles};
use npumem_ir::{Bytes, EngineId, SpaceId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What a probe does not measure but is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subject {
    /// The name of the description.
    pub name: String,
    /// The device's name for people.
    pub title: String,
    /// Who makes it.
    pub vendor: String,
    /// When it was measured.
    pub date: String,
    /// Its clock, and where that is from.
    pub clock: Option<(f64, String)>,
    /// Cores, and where that is from.
    pub units: (u64, String),
    /// All of its memory, and where that is from.
    pub memory: (Bytes, String),
    /// Memory of one core's work group, and where that is from.
    pub local: Option<(Bytes, String)>,
}

const MEASURED: &str = "probe";

/// The description of what was measured: it loads wherever `--device` takes a file.
#[must_use]
pub fn device(subject: &Subject, measured: &Measured) -> Device {
    let mut sources = BTreeMap::new();
    let said =
        format!("measured on {} on {} by npumem probe {}", subject.date, subject.title, env!("CARGO_PKG_VERSION"));
    sources.insert(MEASURED.to_owned(), said);
    let mut told = |key: &str, what: &str| {
        sources.insert(key.to_owned(), what.to_owned());
    };
    let clock = subject.clock.as_ref().map_or(Figure::Unknown, |(hz, from)| {
        told("clock", from);
        Figure::sourced(*hz, "clock")
    });
    told("cores", &subject.units.1);
    told("memory", &subject.memory.1);
    if let Some((_, from)) = &subject.local {
        told("local", from);
    }
    let mut device = Device {
        name: subject.name.clone(),
        title: subject.title.clone(),
        vendor: subject.vendor.clone(),
        aliases: Vec::new(),
        notes: vec![
            "Every figure is the least time of several short runs of npumem's own kernels, as this build compiles them: other \
             code may reach more."
                .to_owned(),
            "Caches are filled by hardware: nothing is placed in them.".to_owned(),
        ],
        clock_hz: clock,
        sources,
        cores: vec![Core {
            name: "core".to_owned(),
            title: "Core".to_owned(),
            count: Figure::sourced(subject.units.0, "cores"),
        }],
        spaces: Vec::new(),
        engines: Vec::new(),
        links: Vec::new(),
    };
    spaces(&mut device, subject, measured);
    engines(&mut device, subject, measured);
    device
}

fn spaces(device: &mut Device, subject: &Subject, measured: &Measured) {
    let hz = subject.clock.as_ref().map(|(hz, _)| *hz);
    let cycles = |ns: f64| {
        hz.map_or(Figure::Unknown, |hz| Figure::sourced(Cycles((ns * hz / 1e9).round().max(1.0) as u64), MEASURED))
    };
    let count = measured.levels.len();
    for (index, level) in measured.levels.iter().enumerate().rev() {
        let memory = index + 1 == count;
        let shared = memory || (index + 2 == count && count > 2);
        let rate = if shared { level.stream_all } else { level.stream };
        device.spaces.push(Space {
            name: if memory { "dram".to_owned() } else { format!("l{}", index + 1) },
            title: if memory { "Main memory".to_owned() } else { format!("Cache of level {}", index + 1) },
            role: if memory { "weights and activations" } else { "what was used last" }.to_owned(),
            aliases: if memory { ["hbm", "gm", "global"].map(str::to_owned).to_vec() } else { Vec::new() },
            kind: if memory { SpaceKind::Dram } else { SpaceKind::Cache },
            scope: if shared { Scope::Device } else { Scope::Core(CoreId(0)) },
            capacity: if memory {
                Figure::sourced(subject.memory.0, "memory")
            } else {
                Figure::sourced(level.capacity, MEASURED)
            },
            usable: Figure::Unknown,
            reserved: Vec::new(),
            alignment: if memory {
                Figure::estimated(Alignment::new(64).unwrap_or_default(), "a line of the cache in front of it")
            } else {
                Figure::Unknown
            },
            latency: cycles(level.latency_ns),
            bandwidth: Figure::sourced(Rate::BytesPerSecond(rate.round()), MEASURED),
            banks: None,
            dram: None,
        });
    }
    if let Some((bytes, _)) = &subject.local {
        device.spaces.push(Space {
            name: "local".to_owned(),
            title: "Local memory of a work group".to_owned(),
            role: "tiles of one work group".to_owned(),
            aliases: vec!["shared".to_owned()],
            kind: SpaceKind::Scratchpad,
            scope: Scope::Core(CoreId(0)),
            capacity: Figure::sourced(*bytes, "local"),
            usable: Figure::Unknown,
            reserved: Vec::new(),
            alignment: Figure::Unknown,
            latency: Figure::Unknown,
            bandwidth: Figure::Unknown,
            banks: None,
            dram: None,
        });
    }
}

fn engines(device: &mut Device, subject: &Subject, measured: &Measured) {
    let hz = subject.clock.as_ref().map(|(hz, _)| *hz);
    let per_cycle = |rate: f64| hz.map(|hz| Figure::sourced((rate / hz * 100.0).round() / 100.0, MEASURED));
    let nearest = SpaceId::new(measured.levels.len().saturating_sub(1));
    let startup = hz.map_or(Figure::Unknown, |hz| {
        Figure::sourced(Cycles((measured.copy_startup_ns * hz / 1e9).round() as u64), MEASURED)
    });
    let plain = |name: &str, title: &str, kind: EngineKind, core: Option<CoreId>| Engine {
        name: name.to_owned(),
        title: title.to_owned(),
        kind,
        core,
        count: None,
        outstanding: Figure::Unknown,
        startup: Figure::Unknown,
        compute: None,
    };
    let computes = |name: &str, title: &str, kind: EngineKind, rate: f64| {
        let mut operations = BTreeMap::new();
        operations.extend(per_cycle(rate).map(|figure| (Precision::F32, figure)));
        let reads_and_writes = vec![nearest];
        Engine {
            compute: Some(ComputeUnit {
                operations_per_cycle: operations,
                reads: reads_and_writes.clone(),
                writes: reads_and_writes,
                ..ComputeUnit::default()
            }),
            ..plain(name, title, kind, Some(CoreId(0)))
        }
    };
    device.engines = vec![
        Engine { startup, ..plain("copy", "Copy queue", EngineKind::Dma, None) },
        plain("load_store", "Loads and stores of a core", EngineKind::Dma, Some(CoreId(0))),
        computes("product", "Matrix product of this build on a core", EngineKind::Matrix, measured.product_rate),
        computes("sum", "Sum element by element of this build on a core", EngineKind::Vector, measured.add_rate),
    ];
    let link = |name: String, from: SpaceId, to: SpaceId, engine: u32, rate: f64| Link {
        name,
        from,
        to,
        engine: EngineId(engine),
        rate: Figure::sourced(Rate::BytesPerSecond(rate.round()), MEASURED),
        startup: Figure::Unknown,
        granularity: Figure::Unknown,
        alignment: Figure::Unknown,
        unaligned_share: Figure::Unknown,
        best_transfer: Figure::Unknown,
        largest_transfer: Figure::Unknown,
    };
    let main = SpaceId(0);
    device.links.push(link("dram->dram".to_owned(), main, main, 0, measured.copy_rate));
    // A core reads each level at that level's own rate; where it is comes nearer on the way.
    for (position, level) in measured.levels.iter().rev().enumerate().take(measured.levels.len().saturating_sub(1)) {
        let from = SpaceId::new(position);
        let name = format!("{}->{}", device.spaces[position].name, device.spaces[nearest.index()].name);
        device.links.push(link(name, from, nearest, 1, level.stream));
    }
}

fn name(index: usize, count: usize) -> String {
    if index + 1 == count { "memory".to_owned() } else { format!("L{}", index + 1) }
}

/// The textbook's table with measured numbers, and the curve that it was read from.
#[must_use]
pub fn to_text(subject: &Subject, measured: &Measured, notes: &[String]) -> String {
    let mut text = String::new();
    let giga = |rate: f64| format!("{:.2}", rate / 1e9);
    let hz = subject.clock.as_ref().map(|(hz, _)| *hz);
    // Writing to a String cannot fail.
    let _ = write!(text, "{}: {} cores", subject.title, subject.units.0);
    let _ = match hz {
        Some(hz) => writeln!(text, ", {:.2} GHz", hz / 1e9),
        None => writeln!(text),
    };
    let _ = writeln!(
        text,
        "\n  {:<7} {:>12}  {:>9} {:>7}  {:>9} {:>9} {:>9} {:>9} {:>9}",
        "level", "holds", "ns a load", "cycles", "stream", "all cores", "strided", "random", "copy"
    );
    let _ = writeln!(
        text,
        "  {:<7} {:>12}  {:>9} {:>7}  {:>9} {:>9} {:>9} {:>9} {:>9}",
        "", "", "", "", "GB/s", "GB/s", "GB/s", "GB/s", "GB/s"
    );
    let count = measured.levels.len();
    for (index, level) in measured.levels.iter().enumerate() {
        let holds = if index + 1 == count { subject.memory.0 } else { level.capacity };
        let cycles = hz.map_or("?".to_owned(), |hz| format!("{:.0}", level.latency_ns * hz / 1e9));
        let _ = writeln!(
            text,
            "  {:<7} {:>12}  {:>9.2} {cycles:>7}  {:>9} {:>9} {:>9} {:>9} {:>9}",
            name(index, count),
            short(holds),
            level.latency_ns,
            giga(level.stream),
            giga(level.stream_all),
            giga(level.strided),
            giga(level.random),
            giga(level.copy)
        );
    }
    let _ = writeln!(
        text,
        "\n  stream: in order; strided: one word of every fourth line; random: words at random (GB/s of bytes used, one core)"
    );
    let _ = writeln!(
        text,
        "  copy queue {} GB/s, smallest copy {:.2} us; matrix product {:.2} Gop/s, sum {:.2} Gop/s on one core",
        giga(measured.copy_rate),
        measured.copy_startup_ns / 1e3,
        measured.product_rate / 1e9,
        measured.add_rate / 1e9
    );
    let tiles = &measured.tiles;
    let _ = writeln!(
        text,
        "  tiles copied beside their products: {:.0} % of the copying hidden, {:.2} times as fast as one after the other",
        100.0 * tiles.overlapped.overlap().unwrap_or(0.0),
        tiles.serial.wall_ns as f64 / tiles.overlapped.wall_ns.max(1) as f64
    );
    text.push('\n');
    text.push_str(&picture(&measured.curve, &measured.levels));
    for note in notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// A size in few characters.
fn short(bytes: Bytes) -> String {
    let value = bytes.get();
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.iter().find(|(_, shift)| value >> shift > 0);
    unit.map_or_else(
        || format!("{value} B"),
        |(unit, shift)| {
            let scaled = value as f64 / (1_u64 << shift) as f64;
            if scaled >= 100.0 || scaled.fract() < 0.005 {
                format!("{scaled:.0} {unit}")
            } else {
                format!("{scaled:.1} {unit}")
            }
        },
    )
}

/// The curve, a row for each working set: a bar on a logarithmic scale, and where a level ends.
fn picture(curve: &[Point], levels: &[Level]) -> String {
    let mut text = String::from("  working set   ns a load (each column is 1.1 times the one before)\n");
    let least = curve.iter().map(|point| point.ns).fold(f64::INFINITY, f64::min).max(1e-3);
    for (index, point) in curve.iter().enumerate() {
        let columns = ((point.ns / least).ln() / 1.1_f64.ln()).round().clamp(0.0, 70.0) as usize;
        let _ = write!(text, "  {:>11}  {:>9.2}  {}", short(point.bytes), point.ns, "#".repeat(columns + 1));
        let next = curve.get(index + 1).map_or(Bytes::MAX, |next| next.bytes);
        for (at, level) in levels.iter().enumerate().take(levels.len().saturating_sub(1)) {
            if level.capacity >= point.bytes && level.capacity < next {
                let _ = write!(text, "  <- end of {}", name(at, levels.len()));
            }
        }
        text.push('\n');
    }
    text
}

/// Everything that was measured.
#[must_use]
pub fn to_json(subject: &Subject, measured: &Measured, device: &Device, notes: &[String]) -> Value {
    let count = measured.levels.len();
    let levels: Vec<Value> = measured
        .levels
        .iter()
        .enumerate()
        .map(|(index, level)| {
            json!({
                "level": name(index, count),
                "capacity_bytes": if index + 1 == count { subject.memory.0 } else { level.capacity },
                "latency_ns": level.latency_ns,
                "stream_bytes_per_second": level.stream,
                "stream_all_cores_bytes_per_second": level.stream_all,
                "strided_bytes_per_second": level.strided,
                "random_bytes_per_second": level.random,
                "copy_bytes_per_second": level.copy,
            })
        })
        .collect();
    json!({
        "format": "npumem-probe",
        "version": 1,
        "title": subject.title,
        "measured": subject.date,
        "clock_hz": subject.clock.as_ref().map(|(hz, _)| hz),
        "cores": subject.units.0,
        "levels": levels,
        "curve": measured.curve.iter().map(|point| json!({"bytes": point.bytes, "ns": point.ns})).collect::<Vec<_>>(),
        "copy_bytes_per_second": measured.copy_rate,
        "copy_startup_ns": measured.copy_startup_ns,
        "product_operations_per_second": measured.product_rate,
        "sum_operations_per_second": measured.add_rate,
        "tiles": {
            "overlap": measured.tiles.overlapped.overlap(),
            "one_after_the_other_ns": measured.tiles.serial.wall_ns,
            "overlapped_ns": measured.tiles.overlapped.wall_ns,
        },
        "device": device.to_json(),
        "notes": notes,
    })
}

#[cfg(test)]
mod tests {
    //! A description of made-up figures loads, and says what it is made of.
    #![allow(clippy::unwrap_used)]
    use super::*;
    use npumem_backend::executor::Outcome;

    fn measured(levels: usize) -> Measured {
        let level = |index: usize| Level {
            capacity: Bytes(32 << 10 << (4 * index)),
            latency_ns: 1.25 * 4_f64.powi(index as i32),
            stream: 20e9 / (index + 1) as f64,
            stream_all: 30e9 / (index + 1) as f64,
            strided: 4e9,
            random: 2e9,
            copy: 8e9,
        };
        Measured {
            curve: vec![Point { bytes: Bytes(4096), ns: 1.25 }, Point { bytes: Bytes(1 << 20), ns: 20.0 }],
            levels: (0..levels).map(level).collect(),
            copy_rate: 7e9,
            copy_startup_ns: 900.0,
            product_rate: 5e9,
            add_rate: 1e9,
            tiles: Outcome::default(),
        }
    }

    #[test]
    fn the_description_loads_with_every_figure_sourced() {
        for levels in 1..=4 {
            let subject = Subject {
                name: "here".to_owned(),
                title: "A machine".to_owned(),
                date: "2026-01-02".to_owned(),
                clock: Some((3.2e9, "a chain".to_owned())),
                units: (2, "the system".to_owned()),
                memory: (Bytes(8 << 30), "/proc/meminfo".to_owned()),
                local: (levels == 2).then(|| (Bytes(48 << 10), "the driver".to_owned())),
                ..Subject::default()
            };
            let made = device(&subject, &measured(levels));
            let read = Device::from_toml(&made.to_toml()).unwrap();
            assert_eq!(read.to_toml(), made.to_toml());
            assert_eq!(read.space(read.main_memory().unwrap()).capacity.known(), Some(&Bytes(8 << 30)));
            assert!(read.sources["probe"].contains("measured on 2026-01-02 on A machine by npumem probe"));
            let last = 1.25 * 4_f64.powi(levels as i32 - 1) * 3.2;
            assert_eq!(read.spaces[0].latency.known().unwrap().get(), last.round() as u64);
            let text = to_text(&subject, &measured(levels), &[]);
            assert!(text.contains("memory         8 GiB"), "{text}");
            let json = to_json(&subject, &measured(levels), &made, &[]);
            assert_eq!(json["levels"].as_array().unwrap().len(), levels);
        }
    }

    #[test]
    fn sizes_are_short() {
        let cases =
            [(512, "512 B"), (4096, "4 KiB"), (40 << 10, "40 KiB"), (1536 << 10, "1.5 MiB"), (31 << 30, "31 GiB")];
        for (bytes, wanted) in cases {
            assert_eq!(short(Bytes(bytes)), wanted);
        }
    }
}
