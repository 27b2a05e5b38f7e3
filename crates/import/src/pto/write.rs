//! Writing addresses back into a `.pto` text: only the allocations change, every other byte stays.

use super::{Kernel, SiteForm};
use npumem_ir::{BufferId, Offset};
use std::collections::BTreeMap;

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
        let mut lines = String::new();
        for address in addresses.keys() {
            lines.push_str(&format!("\n    %npumem_addr_{address} = arith.constant {address} : i64"));
        }
        edits.insert((body, body), lines);
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
