//! A device for the eye: a picture of its hierarchy, tables of its figures, and where they come from.
//!
//! `~` before a figure says that it is estimated, `?` that nobody knows it. The JSON form carries
//! every number that the text shows.

mod boxes;
mod tables;
#[cfg(test)]
mod tests;

use npumem_ir::device::{Device, EngineKind, Figure, FigureValue, Origin, Precision, Rate, Scope};
use npumem_ir::units::{Bytes, Cycles, grouped};
use npumem_ir::{EngineId, SpaceId};
use serde_json::{Value, json};

use crate::plan_report::{self, Hierarchy, Level, LevelLink};
use crate::text::figures;
use crate::text::ink::Ink;
use crate::text::{TextOptions, rate};

/// Everything that is known of a device, as text; it ends with a newline.
#[must_use]
pub fn render(device: &Device, options: &TextOptions) -> String {
    let options = TextOptions { width: options.width.max(60), ..*options };
    let mut page = Page { device, options, text: String::new() };
    page.head();
    page.picture();
    page.spaces();
    page.engines();
    page.links();
    page.peaks();
    page.origins();
    page.text
}

/// One line for each device, as a table.
#[must_use]
pub fn list<'a>(devices: impl IntoIterator<Item = &'a Device>, options: &TextOptions) -> String {
    let mut text = String::new();
    for line in tables::list(devices).lines(options.width.max(60), options.colour) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// Everything that [`render`] shows, as JSON.
#[must_use]
pub fn to_json(device: &Device) -> Value {
    let figures: Vec<Value> = device
        .figures()
        .into_iter()
        .map(|row| {
            let value = row.value.map(|value| match value {
                FigureValue::Whole(number) => json!(number),
                FigureValue::Real(number) => json!(number),
                FigureValue::Shape(shape) => json!(shape),
            });
            let (source, estimated) = match &row.origin {
                Some(Origin::Source(key)) => (device.sources.get(key), None),
                Some(Origin::Estimated(why)) => (None, Some(why)),
                None => (None, None),
            };
            json!({ "path": row.path, "unit": row.unit, "value": value, "source": source, "estimated": estimated })
        })
        .collect();
    let peaks: Vec<Value> = peaks(device)
        .into_iter()
        .map(|peak| {
            json!({
                "kind": peak.kind.text(),
                "precision": peak.precision.text(),
                "operations_per_second": peak.operations,
                "estimated": peak.estimated,
            })
        })
        .collect();
    json!({
        "format": "npumem-device-report",
        "version": 1,
        "name": device.name,
        "main_memory": device.main_memory().map(|id| device.space(id).name.as_str()),
        "peaks": peaks,
        "figures": figures,
        "device": device.to_json(),
    })
}

/// The levels of a device as a plan report shows them; what each holds is for the caller to fill in.
#[must_use]
pub fn hierarchy(device: &Device) -> Hierarchy {
    let levels = device.spaces().map(|(id, space)| Level {
        name: space.name.clone(),
        capacity: space.capacity.known().copied(),
        usable: device.usable(id).ok(),
        latency: marked(device, &space.latency, "cycles", |latency| latency.get() as f64),
        bandwidth: bandwidth(device, &space.bandwidth),
        scope: match space.scope {
            Scope::Device => "device".to_owned(),
            Scope::Cluster(_) => "cluster".to_owned(),
            Scope::Core(core) => device.cores[core.index()].name.clone(),
        },
        count: device.instances(id).ok(),
        holds: Vec::new(),
        note: Some(space.role.clone()),
    });
    let links = device.links.iter().map(|link| LevelLink {
        from: device.space(link.from).name.clone(),
        to: device.space(link.to).name.clone(),
        engine: device.engine(link.engine).name.clone(),
        bandwidth: bandwidth(device, &link.rate),
    });
    Hierarchy { device: device.name.clone(), levels: levels.collect(), links: links.collect() }
}

fn marked<T>(
    device: &Device,
    figure: &Figure<T>,
    unit: &str,
    number: impl Fn(&T) -> f64,
) -> Option<plan_report::Figure> {
    let Figure::Known { value, origin } = figure else { return None };
    let source = match origin {
        Origin::Source(key) => device.sources.get(key).cloned(),
        Origin::Estimated(_) => None,
    };
    Some(plan_report::Figure { value: number(value), unit: unit.to_owned(), source })
}

/// A rate in bytes per second where the clock is known, else per cycle.
fn bandwidth(device: &Device, figure: &Figure<Rate>) -> Option<plan_report::Figure> {
    match (figure.known()?, device.clock_hz.known()) {
        (Rate::BytesPerCycle(_), None) => marked(device, figure, "B/cycle", |rate| rate.number()),
        (_, clock) => {
            let clock = clock.copied().unwrap_or(1.0);
            marked(device, figure, "B/s", |rate| rate.per_second(clock))
        }
    }
}

/// The most operations that units of one kind do in a type.
struct Peak {
    kind: EngineKind,
    precision: Precision,
    operations: f64,
    estimated: bool,
}

fn peaks(device: &Device) -> Vec<Peak> {
    let mut peaks = Vec::new();
    for &precision in Precision::ALL {
        for kind in [EngineKind::Matrix, EngineKind::Vector] {
            if let Ok(peak) = device.peak_operations(kind, precision) {
                peaks.push(Peak { kind, precision, operations: peak.value, estimated: peak.is_estimated() });
            }
        }
    }
    peaks
}

/// A figure as text: `~` when estimated, `?` when unknown.
fn shown<T>(figure: &Figure<T>, text: impl Fn(&T) -> String) -> String {
    match figure {
        Figure::Known { value, origin: Origin::Estimated(_) } => format!("~{}", text(value)),
        Figure::Known { value, .. } => text(value),
        Figure::Unknown => "?".to_owned(),
    }
}

fn shown_size(figure: &Figure<Bytes>) -> String {
    shown(figure, |size| size.short())
}

fn shown_cycles(figure: &Figure<Cycles>) -> String {
    shown(figure, |cycles| format!("{} cy", grouped(cycles.get())))
}

/// Per cycle and per second where both can be said: `110 B/cy, 198 GB/s`.
fn shown_rate(device: &Device, figure: &Figure<Rate>) -> String {
    shown(figure, |value| match (value, device.clock_hz.known()) {
        (Rate::BytesPerCycle(bytes), Some(clock)) => format!("{bytes} B/cy, {}", rate(bytes * clock, "B/s")),
        (Rate::BytesPerCycle(bytes), None) => format!("{bytes} B/cy"),
        (Rate::BytesPerSecond(bytes), _) => rate(*bytes, "B/s"),
    })
}

/// In the unit of the source alone, for narrow columns.
fn shown_rate_short(figure: &Figure<Rate>) -> String {
    shown(figure, |value| match value {
        Rate::BytesPerCycle(bytes) => format!("{bytes} B/cy"),
        Rate::BytesPerSecond(bytes) => rate(*bytes, "B/s"),
    })
}

/// Who shares one of it and how many there are: `device`, `aic x24`.
fn shown_scope(device: &Device, id: SpaceId) -> String {
    let name = match device.space(id).scope {
        Scope::Device => return "device".to_owned(),
        Scope::Cluster(_) => "cluster",
        Scope::Core(core) => device.cores[core.index()].name.as_str(),
    };
    match device.instances(id) {
        Ok(count) => format!("{name} x{}", grouped(count)),
        Err(_) => format!("{name} x?"),
    }
}

/// How many of an engine there are: `aic x24`, `sm x132 x4`.
fn shown_engine_scope(device: &Device, id: EngineId) -> String {
    let engine = device.engine(id);
    let mut text = match engine.core {
        Some(core) => {
            let core = &device.cores[core.index()];
            format!("{} x{}", core.name, shown(&core.count, |count| grouped(*count)))
        }
        None => "device".to_owned(),
    };
    if let Some(count) = &engine.count {
        text.push_str(&format!(" x{}", shown(count, |count| grouped(*count))));
    }
    text
}

/// The text as it grows.
struct Page<'a> {
    device: &'a Device,
    options: TextOptions,
    text: String,
}

impl Page<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn heading(&mut self, title: &str) {
        let title = Ink::Heading.paint(title, self.options.colour);
        self.text.push('\n');
        self.line(&title);
    }

    fn paragraph(&mut self, first: &str, text: &str, indent: usize) {
        let room = self.options.width.saturating_sub(indent);
        for (index, piece) in figures::wrap(&figures::printable(text), room).iter().enumerate() {
            let start = if index == 0 { format!("{first:<indent$}") } else { " ".repeat(indent) };
            self.line(&format!("{start}{piece}"));
        }
    }

    fn head(&mut self) {
        let device = self.device;
        let title = if device.title.is_empty() { &device.name } else { &device.title };
        let title = Ink::Heading.paint(&figures::printable(title), self.options.colour);
        self.line(&title);
        let clock = shown(&device.clock_hz, |clock| rate(*clock, "Hz"));
        let mut about = format!("{}: clock {clock}", figures::printable(&device.name));
        if !device.aliases.is_empty() {
            about.push_str(&format!("; also called {}", device.aliases.join(", ")));
        }
        self.paragraph("  ", &about, 2);
        for note in &device.notes {
            self.paragraph("  - ", note, 4);
        }
        self.paragraph("  ", "~ estimated; ? not known; cy: cycles of the clock", 2);
    }

    fn picture(&mut self) {
        self.heading("Hierarchy");
        for line in boxes::picture(self.device, self.options.width.min(110)) {
            self.line(&line);
        }
    }
}
