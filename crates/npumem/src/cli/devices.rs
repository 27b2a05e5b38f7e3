//! `npumem devices`: the catalogue.

use super::args::DevicesArgs;
use super::output::{self, Color};
use super::{Answer, Outcome};
use npumem::catalogue::Catalogue;
use npumem::report::device;
use npumem::report::text::TextOptions;
use serde_json::json;

/// Runs it.
pub fn run(args: &DevicesArgs, color: Color) -> Outcome {
    let mut known = Catalogue::built_in().map_err(|error| error.to_string())?;
    for path in &args.devices {
        known.add(path).map_err(|error| error.to_string())?;
    }
    let options = TextOptions { width: output::width(), colour: color.on_stdout(), ..TextOptions::default() };
    match &args.name {
        Some(name) => {
            let one = known.resolve(name).map_err(|error| error.to_string())?;
            if args.json {
                output::print(&format!("{:#}\n", device::to_json(&one)));
            } else {
                output::print(&device::render(&one, &options));
            }
        }
        None if args.json => {
            let list: Vec<_> = known.entries().iter().map(|entry| device::to_json(&entry.device)).collect();
            output::print(&format!("{:#}\n", json!({"format": "npumem-devices", "version": 1, "devices": list})));
        }
        None => {
            output::print(&device::list(known.entries().iter().map(|entry| &entry.device), &options));
        }
    }
    Ok(Answer::Yes)
}
