//! Taking a table apart: every key known, every value of the right kind, every error placed.

use std::collections::BTreeMap;

use super::error::{DeviceError, DeviceProblem, Position};
use super::figure::{Figure, Origin, Rate};
use super::node::{Entry, Node, Value};
use crate::units::{Alignment, Bytes, Cycles};

/// Most objects of one kind, and most items of one list.
const MAX_ITEMS: usize = 256;

/// The largest rate, clock or count of operations: products of four of them stay finite.
const MAX_REAL: f64 = 1e18;

/// What all tables of one text share.
pub struct Context<'a> {
    /// The text, for line and column.
    pub text: &'a str,
    /// The keys of `[sources]`.
    pub sources: BTreeMap<String, String>,
}

/// One table that is being read.
pub struct Table<'a> {
    context: &'a Context<'a>,
    entries: &'a [Entry],
    at: Option<usize>,
    /// Its name in errors, for example `space.ub`.
    pub path: String,
    /// Where figures come from that do not say so themselves.
    pub origin: Option<Origin>,
}

/// `Err` with a place.
pub type Read<T> = Result<T, DeviceError>;

impl<'a> Table<'a> {
    /// Opens `node`, refusing keys that are not among `keys` (`source` and `estimated` always are).
    pub fn open(
        context: &'a Context<'a>,
        node: &'a Node,
        path: String,
        keys: &[&str],
        origin: Option<&Origin>,
    ) -> Read<Self> {
        let Value::Table(entries) = &node.value else {
            let problem = wrong(node, "a table");
            return Err(context.error(node.at, path, problem));
        };
        let mut table = Table { context, entries, at: node.at, path, origin: origin.cloned() };
        for entry in entries {
            let key = entry.key.as_str();
            if !keys.contains(&key) && key != "source" && key != "estimated" {
                let problem = unknown_key(key, keys);
                return Err(context.error(entry.at, table.path, problem));
            }
        }
        if let Some(own) = table.own_origin()? {
            table.origin = Some(own);
        }
        Ok(table)
    }

    /// The `source` or `estimated` of this table.
    fn own_origin(&self) -> Read<Option<Origin>> {
        let source = self.entry("source");
        let estimated = self.entry("estimated");
        if let (Some(_), Some(entry)) = (source, estimated) {
            let both = "`source` and `estimated` exclude each other: an estimate has no source";
            return Err(self.at_entry(entry, DeviceProblem::Contradiction(both.to_owned())));
        }
        if let Some(entry) = source {
            let key = self.text_of(entry)?;
            if !self.context.sources.contains_key(&key) {
                let known = list_names("keys of [sources]", self.context.sources.keys());
                return Err(self.at_value(entry, DeviceProblem::UnknownName { what: "source", name: key, known }));
            }
            return Ok(Some(Origin::Source(key)));
        }
        match estimated {
            Some(entry) => Ok(Some(Origin::Estimated(self.text_of(entry)?))),
            None => Ok(None),
        }
    }

    /// The entry of a key.
    pub fn entry(&self, key: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// All entries, for tables whose keys are names.
    pub fn entries(&self) -> &'a [Entry] {
        self.entries
    }

    /// An error at the table itself.
    pub fn error(&self, problem: DeviceProblem) -> DeviceError {
        self.context.error(self.at, self.path.clone(), problem)
    }

    /// An error at a key.
    pub fn at_entry(&self, entry: &Entry, problem: DeviceProblem) -> DeviceError {
        self.context.error(entry.at, self.path_of(&entry.key), problem)
    }

    /// An error at the value of a key.
    pub fn at_value(&self, entry: &Entry, problem: DeviceProblem) -> DeviceError {
        self.context.error(entry.node.at, self.path_of(&entry.key), problem)
    }

    /// An error at the value of `key`, or at the table when the key is absent.
    pub fn at_key(&self, key: &str, problem: DeviceProblem) -> DeviceError {
        match self.entry(key) {
            Some(entry) => self.at_value(entry, problem),
            None => self.error(problem),
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The entry of a key that must be there.
    pub fn required(&self, key: &str, expected: &str) -> Read<&'a Entry> {
        self.entry(key)
            .ok_or_else(|| self.error(DeviceProblem::MissingKey { key: key.to_owned(), expected: expected.to_owned() }))
    }

    /// The text of an entry; empty text is refused.
    pub fn text_of(&self, entry: &Entry) -> Read<String> {
        match &entry.node.value {
            Value::Text(text) if !text.trim().is_empty() => Ok(text.clone()),
            _ => Err(self.at_value(entry, wrong(&entry.node, "a text that is not empty"))),
        }
    }

    /// The text of a key, or empty.
    pub fn text(&self, key: &str) -> Read<String> {
        self.entry(key).map_or(Ok(String::new()), |entry| self.text_of(entry))
    }

    /// The texts of a list, or none.
    pub fn texts(&self, key: &str) -> Read<Vec<(String, &'a Node)>> {
        let Some(entry) = self.entry(key) else { return Ok(Vec::new()) };
        let nodes = self.list_of(entry)?;
        let mut texts = Vec::with_capacity(nodes.len());
        for node in nodes {
            match &node.value {
                Value::Text(text) if !text.trim().is_empty() => texts.push((text.clone(), node)),
                _ => {
                    let problem = wrong(node, "a text that is not empty");
                    return Err(self.context.error(node.at, self.path_of(key), problem));
                }
            }
        }
        Ok(texts)
    }

    /// An error at an item of a list.
    pub fn at_item(&self, key: &str, node: &Node, problem: DeviceProblem) -> DeviceError {
        self.context.error(node.at, self.path_of(key), problem)
    }

    /// The items of a list, or none.
    pub fn list(&self, key: &str) -> Read<&'a [Node]> {
        self.entry(key).map_or(Ok(&[]), |entry| self.list_of(entry))
    }

    fn list_of(&self, entry: &'a Entry) -> Read<&'a [Node]> {
        match &entry.node.value {
            Value::List(nodes) if nodes.len() <= MAX_ITEMS => Ok(nodes),
            Value::List(_) => {
                Err(self.at_entry(entry, DeviceProblem::TooMany { what: "items in a list", limit: MAX_ITEMS }))
            }
            _ => Err(self.at_value(entry, wrong(&entry.node, "a list"))),
        }
    }

    /// A subtable, when it is there.
    pub fn table(&self, key: &str, keys: &[&str]) -> Read<Option<Table<'a>>> {
        self.entry(key)
            .map(|entry| Table::open(self.context, &entry.node, self.path_of(key), keys, self.origin.as_ref()))
            .transpose()
    }

    /// The item of a list of tables, called `path` until its name is known.
    pub fn item(&self, node: &'a Node, path: String, keys: &[&str]) -> Read<Table<'a>> {
        Table::open(self.context, node, path, keys, self.origin.as_ref())
    }

    /// The figure of an entry.
    pub fn figure_of<T>(
        &self,
        entry: &'a Entry,
        convert: impl Fn(&Node) -> Result<T, DeviceProblem>,
    ) -> Read<Figure<T>> {
        let (node, origin) = match &entry.node.value {
            Value::Table(_) => {
                let path = self.path_of(&entry.key);
                let inner = Table::open(self.context, &entry.node, path, &["value"], self.origin.as_ref())?;
                (&inner.required("value", "the number, or \"?\"")?.node, inner.origin)
            }
            _ => (&entry.node, self.origin.clone()),
        };
        if node.value == Value::Text("?".to_owned()) {
            return Ok(Figure::Unknown);
        }
        let fail = |problem| self.context.error(node.at, self.path_of(&entry.key), problem);
        let value = convert(node).map_err(fail)?;
        match origin {
            Some(origin) => Ok(Figure::Known { value, origin }),
            None => Err(fail(DeviceProblem::NoOrigin { value: node.shown() })),
        }
    }

    /// The figure of a key; unknown when the key is absent.
    fn figure<T>(&self, key: &str, convert: impl Fn(&Node) -> Result<T, DeviceProblem>) -> Read<Figure<T>> {
        self.entry(key).map_or(Ok(Figure::Unknown), |entry| self.figure_of(entry, convert))
    }

    /// A count, at least one.
    pub fn count(&self, key: &str) -> Read<Figure<u64>> {
        self.figure(key, count)
    }

    /// A number of bytes, at least one.
    pub fn bytes(&self, key: &str) -> Read<Figure<Bytes>> {
        self.figure(key, bytes)
    }

    /// An alignment, at least one.
    pub fn alignment(&self, key: &str) -> Read<Figure<Alignment>> {
        self.figure(key, |node| {
            let Bytes(size) = bytes(node)?;
            Alignment::new(size).ok_or_else(|| not_positive(node, "an alignment of at least one byte"))
        })
    }

    /// A number of cycles, zero allowed.
    pub fn cycles(&self, key: &str) -> Read<Figure<Cycles>> {
        self.figure(key, cycles)
    }

    /// A positive real number.
    pub fn real(&self, key: &str) -> Read<Figure<f64>> {
        self.figure(key, real)
    }

    /// A share of one.
    pub fn share(&self, key: &str) -> Read<Figure<f64>> {
        self.figure(key, |node| match real(node)? {
            share if share <= 1.0 => Ok(share),
            _ => Err(wrong(node, "a share above 0 and at most 1")),
        })
    }

    /// A rate, under one of two keys.
    pub fn rate(&self, per_cycle: &str, per_second: &str) -> Read<Figure<Rate>> {
        if let (Some(_), Some(entry)) = (self.entry(per_cycle), self.entry(per_second)) {
            let both = format!("`{per_cycle}` and `{per_second}` are the same figure: write one of them");
            return Err(self.at_entry(entry, DeviceProblem::Contradiction(both)));
        }
        if self.entry(per_cycle).is_some() {
            Ok(self.real(per_cycle)?.map(|rate| Rate::BytesPerCycle(*rate)))
        } else {
            Ok(self.real(per_second)?.map(|rate| Rate::BytesPerSecond(*rate)))
        }
    }

    /// A value that is a plain number of bytes without an origin (offsets of reserved ranges).
    pub fn plain_bytes(&self, key: &str) -> Read<u64> {
        let entry = self.required(key, "an offset in bytes, for example 188416 or \"184 KiB\"")?;
        if let Value::Whole(0) = entry.node.value {
            return Ok(0);
        }
        bytes(&entry.node).map(Bytes::get).map_err(|problem| self.at_value(entry, problem))
    }
}

impl Context<'_> {
    /// An error at a byte of the text.
    pub fn error(&self, at: Option<usize>, path: String, problem: DeviceProblem) -> DeviceError {
        DeviceError { position: at.map(|at| Position::of(self.text, at)), path, problem }
    }
}

/// "expected ..., found ...".
pub fn wrong(node: &Node, expected: &str) -> DeviceProblem {
    DeviceProblem::WrongValue { found: node.shown(), expected: expected.to_owned() }
}

fn not_positive(node: &Node, expected: &str) -> DeviceProblem {
    DeviceProblem::NotPositive { found: node.shown(), expected: expected.to_owned() }
}

/// A count of at least one.
pub fn count(node: &Node) -> Result<u64, DeviceProblem> {
    let expected = "a whole number of at least 1";
    match node.value {
        Value::Whole(number) if number <= 0 => Err(not_positive(node, expected)),
        Value::Whole(number) => u64::try_from(number).map_err(|_| wrong(node, "a whole number below 2^64")),
        _ => Err(wrong(node, expected)),
    }
}

fn cycles(node: &Node) -> Result<Cycles, DeviceProblem> {
    match node.value {
        Value::Whole(number) if number < 0 => Err(not_positive(node, "a number of cycles, 0 or more")),
        Value::Whole(number) => u64::try_from(number).map(Cycles).map_err(|_| wrong(node, "a whole number below 2^64")),
        _ => Err(wrong(node, "a whole number of cycles")),
    }
}

fn bytes(node: &Node) -> Result<Bytes, DeviceProblem> {
    let expected = "a size such as 65536 or \"64 KiB\"";
    let size = match &node.value {
        Value::Text(text) if text.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') => {
            return Err(DeviceProblem::MissingUnit { found: node.shown(), expected: expected.to_owned() });
        }
        Value::Text(text) => {
            Bytes::parse(text).map_err(|found| DeviceProblem::WrongValue { found, expected: expected.to_owned() })?
        }
        Value::Whole(number) if *number < 0 => return Err(not_positive(node, expected)),
        Value::Whole(number) => {
            Bytes(u64::try_from(*number).map_err(|_| wrong(node, "a whole number of bytes below 2^64"))?)
        }
        _ => return Err(wrong(node, expected)),
    };
    if size == Bytes::ZERO { Err(not_positive(node, expected)) } else { Ok(size) }
}

/// A positive, finite real number.
pub fn real(node: &Node) -> Result<f64, DeviceProblem> {
    let expected = "a number above 0 and at most 1e18";
    let number = match node.value {
        // Figures have far fewer than the 15 digits that a 64-bit float keeps.
        Value::Whole(number) => number as f64,
        Value::Real(number) => number,
        _ => return Err(wrong(node, expected)),
    };
    if number > 0.0 && number <= MAX_REAL { Ok(number) } else { Err(not_positive(node, expected)) }
}

/// Rows, depth and columns.
pub fn shape(node: &Node) -> Result<[u64; 3], DeviceProblem> {
    let expected = "three whole numbers [m, k, n]";
    let Value::List(items) = &node.value else { return Err(wrong(node, expected)) };
    let [m, k, n] = items.as_slice() else { return Err(wrong(node, expected)) };
    Ok([count(m)?, count(k)?, count(n)?])
}

/// "the WHAT are a, b, c".
pub fn list_names<'n>(what: &str, names: impl Iterator<Item = &'n String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() { format!("there are no {what}") } else { format!("the {what} are {}", names.join(", ")) }
}

/// The units that a key may end in.
const UNITS: [&str; 8] =
    ["_bytes_per_second", "_bytes_per_cycle", "_per_cycle", "_bytes", "_cycles", "_clocks", "_bits", "_hz"];

fn unknown_key(key: &str, keys: &[&str]) -> DeviceProblem {
    for known in keys {
        let Some(stem) = UNITS.iter().find_map(|unit| known.strip_suffix(unit)) else { continue };
        if key == stem || key.strip_prefix(stem).is_some_and(|rest| rest.starts_with('_')) {
            let same_stem: Vec<String> =
                keys.iter().filter(|other| other.starts_with(stem)).map(|other| format!("`{other}`")).collect();
            return DeviceProblem::MissingUnit { found: key.to_owned(), expected: same_stem.join(" or ") };
        }
    }
    let near = keys.iter().map(|known| (distance(key, known), known)).min();
    let hint = match near {
        Some((steps, known)) if steps <= 2 => format!("did you mean `{known}`?"),
        _ => format!("the keys here are {}", keys.join(", ")),
    };
    DeviceProblem::UnknownKey { key: key.chars().take(60).collect(), hint }
}

/// How many characters must be inserted, removed or replaced (both keys cut at 40).
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().take(40).collect();
    let right: Vec<char> = right.chars().take(40).collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}
