//! From a [`Device`] to text, in TOML and in JSON; both hold the same tree, and both read back
//! to the same device.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::{Device, Dram, Engine, FORMAT, Figure, Link, Origin, Rate, Scope, Space, VERSION};
use crate::ids::SpaceId;
use crate::units::{Alignment, Bytes, Cycles};

impl Device {
    /// The description in TOML; [`Device::from_toml`] reads it back.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        toml_table(&mut text, "", &self.tree());
        text
    }

    /// The description as a JSON value; [`Device::from_json`] reads its text back.
    #[must_use]
    pub fn to_json(&self) -> Value {
        Value::Object(self.tree())
    }

    fn tree(&self) -> Map<String, Value> {
        let mut tree = Map::new();
        tree.insert("format".to_owned(), json!(FORMAT));
        tree.insert("version".to_owned(), json!(VERSION));
        tree.insert("name".to_owned(), json!(self.name));
        put_text(&mut tree, "title", &self.title);
        put_text(&mut tree, "vendor", &self.vendor);
        put_texts(&mut tree, "aliases", &self.aliases);
        put_texts(&mut tree, "notes", &self.notes);
        put(&mut tree, "clock_hz", &self.clock_hz, |clock| number(*clock));
        if !self.sources.is_empty() {
            tree.insert("sources".to_owned(), json!(self.sources));
        }
        let cores = self.cores.iter().map(|core| {
            let mut row = named(&core.name, &core.title);
            put(&mut row, "count", &core.count, |count| json!(count));
            row
        });
        put_tables(&mut tree, "core", cores);
        put_tables(&mut tree, "space", self.spaces.iter().map(|space| self.space_tree(space)));
        put_tables(&mut tree, "engine", self.engines.iter().map(|engine| self.engine_tree(engine)));
        put_tables(&mut tree, "link", self.links.iter().map(|link| self.link_tree(link)));
        tree
    }

    fn space_name(&self, id: SpaceId) -> Value {
        json!(self.space(id).name)
    }

    fn space_tree(&self, space: &Space) -> Map<String, Value> {
        let mut row = named(&space.name, &space.title);
        row.insert("role".to_owned(), json!(space.role));
        put_texts(&mut row, "aliases", &space.aliases);
        row.insert("kind".to_owned(), json!(space.kind.text()));
        match &space.scope {
            Scope::Device => {
                row.insert("scope".to_owned(), json!("device"));
            }
            Scope::Cluster(count) => {
                row.insert("scope".to_owned(), json!("cluster"));
                put(&mut row, "count", count, |count| json!(count));
            }
            Scope::Core(core) => {
                row.insert("scope".to_owned(), json!("core"));
                row.insert("core".to_owned(), json!(self.cores[core.index()].name));
            }
        }
        put(&mut row, "capacity_bytes", &space.capacity, size);
        put_known(&mut row, "usable_bytes", &space.usable, size);
        if !space.reserved.is_empty() {
            let ranges = space.reserved.iter().map(|reserved| {
                json!({
                    "start_bytes": reserved.range.start.get(),
                    "end_bytes": reserved.range.end.get(),
                    "why": reserved.why,
                })
            });
            row.insert("reserved".to_owned(), ranges.collect());
        }
        put(&mut row, "alignment_bytes", &space.alignment, alignment);
        put(&mut row, "latency_cycles", &space.latency, cycles);
        put_rate(&mut row, "bandwidth_", &space.bandwidth);
        if let Some(banks) = &space.banks {
            let mut table = Map::new();
            put(&mut table, "count", &banks.count, |count| json!(count));
            put(&mut table, "groups", &banks.groups, |groups| json!(groups));
            put(&mut table, "size_bytes", &banks.size, size);
            put(&mut table, "width_bytes", &banks.width, size);
            row.insert("banks".to_owned(), Value::Object(table));
        }
        if let Some(dram) = &space.dram {
            row.insert("dram".to_owned(), Value::Object(dram_tree(dram)));
        }
        row
    }

    fn engine_tree(&self, engine: &Engine) -> Map<String, Value> {
        let mut row = named(&engine.name, &engine.title);
        row.insert("kind".to_owned(), json!(engine.kind.text()));
        if let Some(core) = engine.core {
            row.insert("core".to_owned(), json!(self.cores[core.index()].name));
        }
        if let Some(count) = &engine.count {
            put(&mut row, "count", count, |count| json!(count));
        }
        put(&mut row, "outstanding", &engine.outstanding, |outstanding| json!(outstanding));
        put(&mut row, "startup_cycles", &engine.startup, cycles);
        let Some(unit) = &engine.compute else { return row };
        put_known(&mut row, "vector_width_bytes", &unit.vector_width, size);
        put_known(&mut row, "block_bytes", &unit.block, size);
        put_known(&mut row, "repeats", &unit.repeats, |repeats| json!(repeats));
        for (key, ids) in [("reads", &unit.reads), ("writes", &unit.writes)] {
            if !ids.is_empty() {
                row.insert(key.to_owned(), ids.iter().map(|id| self.space_name(*id)).collect());
            }
        }
        put_table(&mut row, "operations_per_cycle", &unit.operations_per_cycle, |rate| number(*rate));
        put_table(&mut row, "fractal", &unit.fractal, |shape| json!(shape));
        row
    }

    fn link_tree(&self, link: &Link) -> Map<String, Value> {
        let mut row = Map::new();
        row.insert("name".to_owned(), json!(link.name));
        row.insert("from".to_owned(), self.space_name(link.from));
        row.insert("to".to_owned(), self.space_name(link.to));
        row.insert("engine".to_owned(), json!(self.engine(link.engine).name));
        put_rate(&mut row, "", &link.rate);
        put(&mut row, "startup_cycles", &link.startup, cycles);
        put(&mut row, "granularity_bytes", &link.granularity, size);
        put_known(&mut row, "alignment_bytes", &link.alignment, size);
        put_known(&mut row, "unaligned_share", &link.unaligned_share, |share| number(*share));
        put_known(&mut row, "best_transfer_bytes", &link.best_transfer, size);
        put_known(&mut row, "largest_transfer_bytes", &link.largest_transfer, size);
        row
    }
}

fn dram_tree(dram: &Dram) -> Map<String, Value> {
    let mut table = Map::new();
    put_text(&mut table, "standard", &dram.standard);
    put_text(&mut table, "mapping", &dram.mapping);
    put(&mut table, "channels", &dram.channels, |channels| json!(channels));
    put(&mut table, "channel_width_bits", &dram.channel_width_bits, |bits| json!(bits));
    put(&mut table, "bank_groups", &dram.bank_groups, |groups| json!(groups));
    put(&mut table, "banks", &dram.banks, |banks| json!(banks));
    put(&mut table, "row_bytes", &dram.row, size);
    put(&mut table, "burst_bytes", &dram.burst, size);
    put(&mut table, "clock_hz", &dram.clock_hz, |clock| number(*clock));
    put_table(&mut table, "timing_clocks", &dram.timings, |clocks| json!(clocks));
    table
}

fn named(name: &str, title: &str) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert("name".to_owned(), json!(name));
    put_text(&mut row, "title", title);
    row
}

fn put_text(row: &mut Map<String, Value>, key: &str, text: &str) {
    if !text.is_empty() {
        row.insert(key.to_owned(), json!(text));
    }
}

fn put_texts(row: &mut Map<String, Value>, key: &str, texts: &[String]) {
    if !texts.is_empty() {
        row.insert(key.to_owned(), json!(texts));
    }
}

fn put_tables(row: &mut Map<String, Value>, key: &str, tables: impl Iterator<Item = Map<String, Value>>) {
    let tables: Vec<Value> = tables.map(Value::Object).collect();
    if !tables.is_empty() {
        row.insert(key.to_owned(), Value::Array(tables));
    }
}

fn put_table<K: std::fmt::Display, T>(
    row: &mut Map<String, Value>,
    key: &str,
    figures: &BTreeMap<K, Figure<T>>,
    value: impl Fn(&T) -> Value,
) {
    if figures.is_empty() {
        return;
    }
    let mut table = Map::new();
    for (name, figure) in figures {
        put(&mut table, &name.to_string(), figure, &value);
    }
    row.insert(key.to_owned(), Value::Object(table));
}

/// A figure, `"?"` when unknown.
fn put<T>(row: &mut Map<String, Value>, key: &str, figure: &Figure<T>, value: impl Fn(&T) -> Value) {
    let shown = match figure {
        Figure::Unknown => json!("?"),
        Figure::Known { value: number, origin: Origin::Source(source) } => {
            json!({ "value": value(number), "source": source })
        }
        Figure::Known { value: number, origin: Origin::Estimated(why) } => {
            json!({ "value": value(number), "estimated": why })
        }
    };
    row.insert(key.to_owned(), shown);
}

/// A figure, left out when unknown.
fn put_known<T>(row: &mut Map<String, Value>, key: &str, figure: &Figure<T>, value: impl Fn(&T) -> Value) {
    if figure.known().is_some() {
        put(row, key, figure, value);
    }
}

fn put_rate(row: &mut Map<String, Value>, stem: &str, figure: &Figure<Rate>) {
    let unit = match figure.known() {
        Some(Rate::BytesPerSecond(_)) => "bytes_per_second",
        _ => "bytes_per_cycle",
    };
    put(row, &format!("{stem}{unit}"), figure, |rate| number(rate.number()));
}

fn size(size: &Bytes) -> Value {
    json!(size.get())
}

fn alignment(alignment: &Alignment) -> Value {
    json!(alignment.get())
}

fn cycles(cycles: &Cycles) -> Value {
    json!(cycles.get())
}

/// A real number without a fraction is written as a whole one: 1800000000, not 1.8e9 or 1800000000.0.
fn number(real: f64) -> Value {
    // The reader admits real numbers up to 1e18 only, so the cast is exact.
    if real.fract() == 0.0 && (0.0..=1e18).contains(&real) { json!(real as u64) } else { json!(real) }
}

/// Plain keys, then subtables, then lists of tables, as TOML wants it.
fn toml_table(text: &mut String, path: &str, table: &Map<String, Value>) {
    for (key, value) in table.iter().filter(|(_, value)| !is_toml_section(value)) {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{} = {}", toml_key(key), toml_value(value));
    }
    for (key, value) in table.iter().filter(|(_, value)| is_toml_section(value)) {
        let path = if path.is_empty() { toml_key(key) } else { format!("{path}.{}", toml_key(key)) };
        match value {
            Value::Object(inner) => {
                let _ = writeln!(text, "\n[{path}]");
                toml_table(text, &path, inner);
            }
            Value::Array(items) => {
                for inner in items.iter().filter_map(Value::as_object) {
                    let _ = writeln!(text, "\n[[{path}]]");
                    toml_table(text, &path, inner);
                }
            }
            _ => {}
        }
    }
}

/// Whether a value gets a header of its own: tables except figures, and lists of tables except ranges.
fn is_toml_section(value: &Value) -> bool {
    match value {
        Value::Object(table) => !table.contains_key("value"),
        Value::Array(items) => {
            items.first().is_some_and(|item| item.as_object().is_some_and(|table| !table.contains_key("start_bytes")))
        }
        _ => false,
    }
}

fn toml_value(value: &Value) -> String {
    match value {
        Value::String(text) => toml_text(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(toml_value).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(table) => {
            let pairs: Vec<String> =
                table.iter().map(|(key, value)| format!("{} = {}", toml_key(key), toml_value(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        Value::Number(number) => match number.as_u64() {
            Some(whole) => whole.to_string(),
            // `{:?}` keeps a point or an exponent, which makes it a TOML float, and reads back exactly.
            None => format!("{:?}", number.as_f64().unwrap_or_default()),
        },
        Value::Bool(truth) => truth.to_string(),
        Value::Null => "\"?\"".to_owned(),
    }
}

fn toml_key(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if bare { key.to_owned() } else { toml_text(key) }
}

fn toml_text(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
