//! Writing addresses back into a `.pto` text: only the allocations change, every other byte stays.

use super::{Kernel, SiteForm};
use npumem_ir::{BufferId, Offset};
use std::collections::{BTreeMap, BTreeSet};

/// Why a plan could not be written back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// One place of the text got two addresses (a function inlined into two kernels that are planned apart).
    #[error("byte {at} of the text allocates '{name}', which the plans place at {first} and at {second}")]
    TwoAddresses {
        /// Byte of the allocation.
        at: usize,
        /// The buffer.
        name: String,
        /// One address.
        first: u64,
        /// The other.
        second: u64,
    },
}

/// The text with `addr =` for every buffer that has an address in `plans` (one map per kernel, in order).
///
/// # Errors
/// When two kernels place one allocation differently.
pub fn write_plan(
    source: &str,
    kernels: &[Kernel],
    plans: &[BTreeMap<BufferId, Offset>],
) -> Result<String, WriteError> {
    // By place in the text: (first byte, past the last) -> what stands there from now on.
    let mut edits: BTreeMap<(usize, usize), String> = BTreeMap::new();
    let mut constants: BTreeMap<usize, BTreeMap<u64, ()>> = BTreeMap::new();
    let mut placed: BTreeMap<usize, u64> = BTreeMap::new();
    for (kernel, plan) in kernels.iter().zip(plans) {
        for site in &kernel.sites {
            let Some(address) = plan.get(&site.buffer).map(|offset| offset.0) else { continue };
            if let Some(first) = placed.insert(site.start, address)
                && first != address
            {
                let name = kernel.program.buffer(site.buffer).name.clone();
                return Err(WriteError::TwoAddresses { at: site.start, name, first, second: address });
            }
            let text = &source[site.start..site.end];
            let value = format!("%npumem_addr_{address}");
            match (site.form, site.address) {
                (SiteForm::Reserve, _) => {
                    if let Some(edit) = reserve(text, address) {
                        edits.insert((site.start, site.end), edit);
                    }
                    continue;
                }
                (_, Some((start, end))) => {
                    edits.insert((start, end), value);
                }
                (SiteForm::Memref, None) => {
                    let rest = text.find(')').map_or("", |close| &text[close + 1..]);
                    edits.insert((site.start, site.end), format!("pto.pointer_cast({value}){rest}"));
                }
                (_, None) => {
                    let end = site.start + "pto.alloc_tile".len();
                    edits.insert((end, end), format!(" addr = {value}"));
                }
            }
            constants.entry(site.body).or_default().insert(address, ());
        }
    }
    for (body, addresses) in constants {
        let (old, end) = own_constants(source, body);
        // Lines end here as they do around this place.
        let ending =
            if source[body..].split('\n').next().is_some_and(|rest| rest.ends_with('\r')) { "\r\n" } else { "\n" };
        let mut all = addresses;
        if !old.is_empty() {
            // What an allocation that is not placed still names stays.
            let named = named_constants(source, end, &edits);
            all.extend(old.into_iter().filter(|address| named.contains(address)).map(|address| (address, ())));
        }
        let mut lines = String::new();
        for address in all.keys() {
            lines.push_str(&format!("{ending}    %npumem_addr_{address} = arith.constant {address} : i64"));
        }
        edits.insert((body, end), lines);
    }
    let mut out = String::with_capacity(source.len() + edits.len() * 32);
    let mut at = 0;
    for ((start, end), text) in &edits {
        if *start < at {
            continue;
        }
        out.push_str(&source[at..*start]);
        out.push_str(text);
        at = *end;
    }
    out.push_str(&source[at..]);
    Ok(out)
}

/// Constants that an earlier write put at the start of a body: their addresses, and the byte past the last of them.
fn own_constants(source: &str, body: usize) -> (Vec<u64>, usize) {
    let (mut found, mut at) = (Vec::new(), body);
    loop {
        let rest = &source[at..];
        let line = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n')).unwrap_or("");
        let line = line.split(['\r', '\n']).next().unwrap_or("");
        let address = line.strip_prefix("    %npumem_addr_").and_then(|line| {
            let (name, value) = line.split_once(" = arith.constant ")?;
            let value = value.strip_suffix(" : i64")?;
            value.parse::<u64>().ok().filter(|_| name == value)
        });
        let Some(address) = address else { return (found, at) };
        found.push(address);
        at += rest.len() - rest.trim_start_matches(['\r', '\n']).len();
        at += line.len();
    }
}

/// Addresses whose constants are named from a byte on, outside of what is replaced.
fn named_constants(source: &str, from: usize, edits: &BTreeMap<(usize, usize), String>) -> BTreeSet<u64> {
    const NAME: &str = "%npumem_addr_";
    let places = source[from..].match_indices(NAME).map(|(at, _)| from + at);
    let kept = places.filter(|at| {
        let edit = edits.range(..=(*at, usize::MAX)).next_back();
        edit.is_none_or(|((_, end), _)| end <= at)
    });
    kept.filter_map(|at| source[at + NAME.len()..].split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()).collect()
}

/// `auto = true` becomes `auto = false, base = N`; a base that is there is replaced.
fn reserve(text: &str, address: u64) -> Option<String> {
    let open = text.find('{')?;
    let close = text.rfind('}')?;
    let fields: Vec<&str> = text[open + 1..close].split(',').map(str::trim).collect();
    let mut kept: Vec<String> =
        fields.iter().filter(|f| !f.starts_with("auto") && !f.starts_with("base")).map(|f| (*f).to_owned()).collect();
    kept.push("auto = false".into());
    kept.push(format!("base = {address}"));
    Some(format!("{}{{{}}}{}", &text[..open], kept.join(", "), &text[close + 1..]))
}
