//! Kernels on the command line: `plan` writes addresses back, `check` is a gate.

mod check;
mod plan;
mod sarif;

pub use check::{device, is_kernel_call, run as check};
pub use plan::run as plan;

use std::collections::BTreeMap;

/// `--dim n=64`, once for each.
pub fn dims(arguments: &[String]) -> Result<BTreeMap<String, i64>, String> {
    let mut dims = BTreeMap::new();
    for argument in arguments {
        let expected = || format!("--dim {argument}: expected NAME=NUMBER");
        let (name, value) = argument.split_once('=').ok_or_else(expected)?;
        // In the text of a kernel it stands with its sign.
        let name = name.trim().trim_start_matches('%');
        if dims.insert(name.to_owned(), value.trim().parse().map_err(|_| expected())?).is_some() {
            return Err(format!("--dim {name}: given twice"));
        }
    }
    Ok(dims)
}
