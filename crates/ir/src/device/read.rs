//! From the tree of a text to a [`Device`].

use std::collections::BTreeMap;

use super::error::{DeviceError, DeviceProblem};
use super::node::{self, Node};
use super::table::{Context, Read, Table, count, list_names, real, shape, wrong};
use super::{
    Banks, ComputeUnit, Core, CoreId, DRAM_TIMINGS, Device, Dram, Engine, EngineKind, FORMAT, Figure, Link, Precision,
    Reserved, Scope, Space, SpaceKind, VERSION, validate,
};
use crate::ids::{EngineId, SpaceId};
use crate::interval::Interval;
use crate::units::Offset;

const DEVICE_KEYS: [&str; 12] = [
    "format", "version", "name", "title", "vendor", "aliases", "notes", "clock_hz", "sources", "core", "space",
    "engine",
];
const CORE_KEYS: [&str; 3] = ["name", "title", "count"];
const SPACE_KEYS: [&str; 17] = [
    "name",
    "title",
    "role",
    "aliases",
    "kind",
    "scope",
    "core",
    "count",
    "capacity_bytes",
    "usable_bytes",
    "reserved",
    "alignment_bytes",
    "latency_cycles",
    "bandwidth_bytes_per_cycle",
    "bandwidth_bytes_per_second",
    "banks",
    "dram",
];
const RESERVED_KEYS: [&str; 3] = ["start_bytes", "end_bytes", "why"];
const BANK_KEYS: [&str; 4] = ["count", "groups", "size_bytes", "width_bytes"];
const DRAM_KEYS: [&str; 10] = [
    "standard",
    "mapping",
    "channels",
    "channel_width_bits",
    "bank_groups",
    "banks",
    "row_bytes",
    "burst_bytes",
    "clock_hz",
    "timing_clocks",
];
const ENGINE_KEYS: [&str; 14] = [
    "name",
    "title",
    "kind",
    "core",
    "count",
    "outstanding",
    "startup_cycles",
    "operations_per_cycle",
    "fractal",
    "vector_width_bytes",
    "block_bytes",
    "repeats",
    "reads",
    "writes",
];
const LINK_KEYS: [&str; 12] = [
    "name",
    "from",
    "to",
    "engine",
    "bytes_per_cycle",
    "bytes_per_second",
    "startup_cycles",
    "granularity_bytes",
    "alignment_bytes",
    "unaligned_share",
    "best_transfer_bytes",
    "largest_transfer_bytes",
];

impl Device {
    /// Reads a description in TOML.
    ///
    /// # Errors
    /// The first mistake, with line and column, what was found and what was expected.
    pub fn from_toml(text: &str) -> Result<Device, DeviceError> {
        read(text, &node::from_toml(text)?)
    }

    /// Reads a description in JSON, as [`Device::to_json`] writes it.
    ///
    /// # Errors
    /// The first mistake; line and column only where the text is not JSON at all.
    pub fn from_json(text: &str) -> Result<Device, DeviceError> {
        read(text, &node::from_json(text)?)
    }
}

fn read(text: &str, document: &Node) -> Read<Device> {
    let context = Context { text, sources: sources(text, document)? };
    let mut keys = DEVICE_KEYS.to_vec();
    keys.push("link");
    let root = Table::open(&context, document, String::new(), &keys, None)?;
    check_header(&root)?;

    let mut names = Names::default();
    let cores = read_cores(&root, &mut names)?;
    let spaces = read_spaces(&root, &cores, &mut names)?;
    let engines = read_engines(&root, &cores, &spaces, &mut names)?;
    let links = read_links(&root, &spaces, &engines, &mut names)?;
    Ok(Device {
        name: name_of(&root)?,
        title: root.text("title")?,
        vendor: root.text("vendor")?,
        aliases: root.texts("aliases")?.into_iter().map(|(alias, _)| alias).collect(),
        notes: root.texts("notes")?.into_iter().map(|(note, _)| note).collect(),
        clock_hz: root.real("clock_hz")?,
        sources: context.sources.clone(),
        cores,
        spaces,
        engines,
        links,
    })
}

/// `[sources]` is read first: everything else may refer to it.
fn sources(text: &str, document: &Node) -> Read<BTreeMap<String, String>> {
    let context = Context { text, sources: BTreeMap::new() };
    let node::Value::Table(entries) = &document.value else {
        return Err(context.error(document.at, String::new(), wrong(document, "a table")));
    };
    let Some(entry) = entries.iter().find(|entry| entry.key == "sources") else { return Ok(BTreeMap::new()) };
    let node::Value::Table(entries) = &entry.node.value else {
        return Err(context.error(entry.node.at, "sources".to_owned(), wrong(&entry.node, "a table of texts")));
    };
    let mut sources = BTreeMap::new();
    for entry in entries {
        match &entry.node.value {
            node::Value::Text(text) if !text.trim().is_empty() => sources.insert(entry.key.clone(), text.clone()),
            _ => {
                let path = format!("sources.{}", entry.key);
                return Err(context.error(entry.node.at, path, wrong(&entry.node, "where to find the source")));
            }
        };
    }
    Ok(sources)
}

fn check_header(root: &Table<'_>) -> Read<()> {
    let format = root.required("format", "`format = \"npumem-device\"`")?;
    if root.text_of(format)? != FORMAT {
        return Err(root.at_value(format, wrong(&format.node, "\"npumem-device\"")));
    }
    let version = root.required("version", "`version = 1`")?;
    match count(&version.node) {
        Ok(VERSION) => Ok(()),
        _ => Err(root.at_value(version, wrong(&version.node, "version 1, the only one there is"))),
    }
}

/// Names that are taken in this device, in lower case, and by what.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    fn take(&mut self, name: &str, owner: &str) -> Result<(), DeviceProblem> {
        match self.0.get(&name.to_lowercase()) {
            Some(first) => Err(DeviceProblem::DuplicateName { name: name.to_owned(), first: first.clone() }),
            None => {
                self.0.insert(name.to_lowercase(), owner.to_owned());
                Ok(())
            }
        }
    }
}

fn name_of(table: &Table<'_>) -> Read<String> {
    let entry = table.required("name", "a name of letters, digits, `-` and `_`")?;
    let name = table.text_of(entry)?;
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '>';
    if name.len() <= 64 && name.chars().all(legal) {
        return Ok(name);
    }
    Err(table.at_value(entry, wrong(&entry.node, "a name of at most 64 letters, digits, `-` and `_`")))
}

/// The tables of one list, each renamed to its `name`, which is claimed.
fn objects<'a>(
    root: &Table<'a>,
    list: &'static str,
    keys: &[&str],
    names: &mut Names,
) -> Read<Vec<(String, Table<'a>)>> {
    let mut objects = Vec::new();
    for (index, node) in root.list(list)?.iter().enumerate() {
        // Errors before the name is checked are easier to place by name than by number.
        let path = match node.text_at("name") {
            Some(name) => format!("{list}.{}", name.chars().take(64).collect::<String>()),
            None => format!("{list}[{index}]"),
        };
        let mut table = root.item(node, path, keys)?;
        let name = match (list, table.entry("name")) {
            ("link", None) => link_name(&table)?,
            _ => name_of(&table)?,
        };
        let owner = format!("{list} `{name}`");
        names.take(&name, &owner).map_err(|problem| table.at_key("name", problem))?;
        table.path = format!("{list}.{name}");
        objects.push((name, table));
    }
    Ok(objects)
}

fn link_name(table: &Table<'_>) -> Read<String> {
    let from = table.text_of(table.required("from", "the name of a space")?)?;
    let to = table.text_of(table.required("to", "the name of a space")?)?;
    Ok(format!("{from}->{to}"))
}

fn read_cores(root: &Table<'_>, names: &mut Names) -> Read<Vec<Core>> {
    let mut cores = Vec::new();
    for (name, table) in objects(root, "core", &CORE_KEYS, names)? {
        table.required("count", "how many of these cores the device has, or \"?\"")?;
        cores.push(Core { name, title: table.text("title")?, count: table.count("count")? });
    }
    Ok(cores)
}

fn core_named(table: &Table<'_>, cores: &[Core]) -> Read<Option<CoreId>> {
    let Some(entry) = table.entry("core") else { return Ok(None) };
    let name = table.text_of(entry)?;
    match cores.iter().zip(0..).find(|(core, _)| core.name == name) {
        Some((_, index)) => Ok(Some(CoreId(index))),
        None => {
            let known = list_names("cores", cores.iter().map(|core| &core.name));
            Err(table.at_value(entry, DeviceProblem::UnknownName { what: "core", name, known }))
        }
    }
}

fn read_spaces(root: &Table<'_>, cores: &[Core], names: &mut Names) -> Read<Vec<Space>> {
    let mut spaces = Vec::new();
    for (name, table) in objects(root, "space", &SPACE_KEYS, names)? {
        let mut aliases = Vec::new();
        for (alias, node) in table.texts("aliases")? {
            let owner = format!("space `{name}`");
            names.take(&alias, &owner).map_err(|problem| table.at_item("aliases", node, problem))?;
            aliases.push(alias);
        }
        table.required("capacity_bytes", "the bytes of one instance, or \"?\"")?;
        let space = Space {
            title: table.text("title")?,
            role: table.text_of(table.required("role", "what the space is used for, in plain words")?)?,
            aliases,
            kind: choice(&table, "kind", SpaceKind::ALL, SpaceKind::text)?,
            scope: read_scope(&table, cores)?,
            capacity: table.bytes("capacity_bytes")?,
            usable: table.bytes("usable_bytes")?,
            reserved: read_reserved(&table)?,
            alignment: table.alignment("alignment_bytes")?,
            latency: table.cycles("latency_cycles")?,
            bandwidth: table.rate("bandwidth_bytes_per_cycle", "bandwidth_bytes_per_second")?,
            banks: read_banks(&table)?,
            dram: read_dram(&table)?,
            name,
        };
        validate::space(&space, &table)?;
        spaces.push(space);
    }
    if spaces.is_empty() {
        let expected = "at least one `[[space]]`".to_owned();
        return Err(root.error(DeviceProblem::MissingKey { key: "space".to_owned(), expected }));
    }
    Ok(spaces)
}

/// One of a few words.
fn choice<T: Copy>(table: &Table<'_>, key: &str, all: &[T], text: impl Fn(T) -> &'static str) -> Read<T> {
    let words: Vec<&str> = all.iter().map(|choice| text(*choice)).collect();
    let expected = format!("one of {}", words.join(", "));
    let entry = table.required(key, &expected)?;
    let found = table.text_of(entry)?;
    all.iter()
        .copied()
        .find(|choice| text(*choice) == found)
        .ok_or_else(|| table.at_value(entry, wrong(&entry.node, &expected)))
}

fn read_scope(table: &Table<'_>, cores: &[Core]) -> Read<Scope> {
    let word = choice(table, "scope", &["device", "cluster", "core"], |word| word)?;
    let stray = |key: &str, scope: &str| match table.entry(key) {
        Some(entry) => {
            let told = format!("`{key}` belongs to a space of scope \"{scope}\", and this one is of scope \"{word}\"");
            Err(table.at_entry(entry, DeviceProblem::Contradiction(told)))
        }
        None => Ok(()),
    };
    match word {
        "core" => {
            stray("count", "cluster")?;
            table.required("core", "the kind of core that has the space")?;
            match core_named(table, cores)? {
                Some(core) => Ok(Scope::Core(core)),
                None => Ok(Scope::Device),
            }
        }
        "cluster" => {
            stray("core", "core")?;
            table.required("count", "how many instances the device has, or \"?\"")?;
            Ok(Scope::Cluster(table.count("count")?))
        }
        _ => {
            stray("core", "core")?;
            stray("count", "cluster")?;
            Ok(Scope::Device)
        }
    }
}

fn read_reserved(table: &Table<'_>) -> Read<Vec<Reserved>> {
    let mut reserved = Vec::new();
    for (index, node) in table.list("reserved")?.iter().enumerate() {
        let item = table.item(node, format!("{}.reserved[{index}]", table.path), &RESERVED_KEYS)?;
        let (start, end) = (item.plain_bytes("start_bytes")?, item.plain_bytes("end_bytes")?);
        let why = item.text_of(item.required("why", "who keeps the range and for what")?)?;
        match Interval::new(Offset(start), Offset(end)).filter(|range| !range.is_empty()) {
            Some(range) => reserved.push(Reserved { range, why }),
            None => {
                let told = format!("the range [{start}, {end}) is empty or reversed");
                return Err(item.at_key("end_bytes", DeviceProblem::Contradiction(told)));
            }
        }
    }
    Ok(reserved)
}

fn read_banks(table: &Table<'_>) -> Read<Option<Banks>> {
    let Some(banks) = table.table("banks", &BANK_KEYS)? else { return Ok(None) };
    Ok(Some(Banks {
        count: banks.count("count")?,
        groups: banks.count("groups")?,
        size: banks.bytes("size_bytes")?,
        width: banks.bytes("width_bytes")?,
    }))
}

fn read_dram(table: &Table<'_>) -> Read<Option<Dram>> {
    let Some(dram) = table.table("dram", &DRAM_KEYS)? else { return Ok(None) };
    let mut timings = BTreeMap::new();
    if let Some(rules) = dram.table("timing_clocks", &DRAM_TIMINGS)? {
        for entry in rules.entries() {
            if DRAM_TIMINGS.contains(&entry.key.as_str()) {
                timings.insert(entry.key.clone(), rules.figure_of(entry, count)?);
            }
        }
    }
    Ok(Some(Dram {
        standard: dram.text("standard")?,
        mapping: dram.text("mapping")?,
        channels: dram.count("channels")?,
        channel_width_bits: dram.count("channel_width_bits")?,
        bank_groups: dram.count("bank_groups")?,
        banks: dram.count("banks")?,
        row: dram.bytes("row_bytes")?,
        burst: dram.bytes("burst_bytes")?,
        clock_hz: dram.real("clock_hz")?,
        timings,
    }))
}

fn read_engines(root: &Table<'_>, cores: &[Core], spaces: &[Space], names: &mut Names) -> Read<Vec<Engine>> {
    let mut engines = Vec::new();
    for (name, table) in objects(root, "engine", &ENGINE_KEYS, names)? {
        let kind = choice(&table, "kind", EngineKind::ALL, EngineKind::text)?;
        engines.push(Engine {
            title: table.text("title")?,
            kind,
            core: core_named(&table, cores)?,
            count: table.entry("count").map(|entry| table.figure_of(entry, count)).transpose()?,
            outstanding: table.count("outstanding")?,
            startup: table.cycles("startup_cycles")?,
            compute: read_compute(&table, kind, spaces)?,
            name,
        });
    }
    Ok(engines)
}

const COMPUTE_KEYS: [&str; 7] =
    ["operations_per_cycle", "fractal", "vector_width_bytes", "block_bytes", "repeats", "reads", "writes"];

fn read_compute(table: &Table<'_>, kind: EngineKind, spaces: &[Space]) -> Read<Option<ComputeUnit>> {
    if kind == EngineKind::Dma {
        if let Some(entry) = COMPUTE_KEYS.iter().find_map(|key| table.entry(key)) {
            let told = format!(
                "an engine of kind \"dma\" moves bytes and has no `{}`; its spaces are those of its links",
                entry.key
            );
            return Err(table.at_entry(entry, DeviceProblem::Contradiction(told)));
        }
        return Ok(None);
    }
    Ok(Some(ComputeUnit {
        operations_per_cycle: by_precision(table, "operations_per_cycle", real)?,
        fractal: by_precision(table, "fractal", shape)?,
        vector_width: table.bytes("vector_width_bytes")?,
        block: table.bytes("block_bytes")?,
        repeats: table.count("repeats")?,
        reads: spaces_named(table, "reads", spaces)?,
        writes: spaces_named(table, "writes", spaces)?,
    }))
}

fn by_precision<T>(
    table: &Table<'_>,
    key: &str,
    convert: impl Fn(&Node) -> Result<T, DeviceProblem>,
) -> Read<BTreeMap<Precision, Figure<T>>> {
    let words: Vec<&str> = Precision::ALL.iter().map(|precision| precision.text()).collect();
    let mut figures = BTreeMap::new();
    if let Some(rows) = table.table(key, &words)? {
        for entry in rows.entries() {
            if let Some(precision) = Precision::from_text(&entry.key) {
                figures.insert(precision, rows.figure_of(entry, &convert)?);
            }
        }
    }
    Ok(figures)
}

fn space_named(spaces: &[Space], name: &str) -> Result<SpaceId, DeviceProblem> {
    match spaces.iter().position(|space| space.name == name) {
        Some(index) => Ok(SpaceId::new(index)),
        None => {
            let known = list_names("spaces", spaces.iter().map(|space| &space.name));
            Err(DeviceProblem::UnknownName { what: "space", name: name.to_owned(), known })
        }
    }
}

fn spaces_named(table: &Table<'_>, key: &str, spaces: &[Space]) -> Read<Vec<SpaceId>> {
    let mut ids = Vec::new();
    for (name, node) in table.texts(key)? {
        ids.push(space_named(spaces, &name).map_err(|problem| table.at_item(key, node, problem))?);
    }
    Ok(ids)
}

fn read_links(root: &Table<'_>, spaces: &[Space], engines: &[Engine], names: &mut Names) -> Read<Vec<Link>> {
    let mut links = Vec::new();
    for (name, table) in objects(root, "link", &LINK_KEYS, names)? {
        let end = |key: &str| -> Read<SpaceId> {
            let entry = table.required(key, "the name of a space")?;
            let name = table.text_of(entry)?;
            space_named(spaces, &name).map_err(|problem| table.at_value(entry, problem))
        };
        let entry = table.required("engine", "the engine that moves the bytes")?;
        let engine_name = table.text_of(entry)?;
        let Some(engine) = engines.iter().position(|engine| engine.name == engine_name) else {
            let known = list_names("engines", engines.iter().map(|engine| &engine.name));
            let problem = DeviceProblem::UnknownName { what: "engine", name: engine_name, known };
            return Err(table.at_value(entry, problem));
        };
        links.push(Link {
            from: end("from")?,
            to: end("to")?,
            engine: EngineId::new(engine),
            rate: table.rate("bytes_per_cycle", "bytes_per_second")?,
            startup: table.cycles("startup_cycles")?,
            granularity: table.bytes("granularity_bytes")?,
            alignment: table.bytes("alignment_bytes")?,
            unaligned_share: table.share("unaligned_share")?,
            best_transfer: table.bytes("best_transfer_bytes")?,
            largest_transfer: table.bytes("largest_transfer_bytes")?,
            name,
        });
    }
    Ok(links)
}
