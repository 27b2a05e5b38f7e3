//! `npumem tile`: the tile sizes, buffers and copies of one operator.

use super::args::DeviceArgs;
use super::output::{self, Color};
use super::tile_args::{ObjectiveArg, SlotsArg, TileArgs};
use super::{Answer, Outcome, resolve};
use npumem::ir::{Bytes, Device};
use npumem::tile::{self, plan_two_level};
use npumem::tiling::{self, Goal, Operator, Request, Schedule, Slots, TileError};
use std::io::Read as _;
use std::path::Path;

/// The example of the help and of the errors.
const EXAMPLE: &str = "npumem tile \"matmul m=4096 n=4096 k=4096 a=f16 b=f16 c=f32\"";

/// Runs it.
pub fn run(args: &TileArgs, _color: Color) -> Outcome {
    let operator = operator(args)?;
    if args.fit {
        return fit(args, &operator);
    }
    let Some(sram) = &args.sram else { return on_device(args, &operator) };
    let capacity = Bytes::parse(sram).map_err(|why| format!("--sram: {why}"))?;
    let slots = slots(args);
    let name = operator.name.clone();
    match plan_two_level(operator, capacity.0, slots) {
        Ok(plan) => {
            if args.json {
                output::print(&format!("{:#}\n", plan.to_json()));
            } else {
                output::print(&plan.text());
            }
            Ok(Answer::Yes)
        }
        Err(why) => {
            output::complain(&format!("npumem: {name}: {why}"));
            Ok(Answer::No)
        }
    }
}

fn on_device(args: &TileArgs, operator: &Operator) -> Outcome {
    let device = resolve::device(&args.device)?;
    let goal = match args.objective {
        ObjectiveArg::Time => Goal::Time,
        ObjectiveArg::Traffic => Goal::Traffic,
        ObjectiveArg::Memory => Goal::Memory,
    };
    let mut request = Request { goal, tiles: None, slots: asked_slots(args) };
    if !args.tile.is_empty() {
        let pairs = tile_pairs(&args.tile)?;
        let best = tiling::schedule(operator, &device, goal).ok();
        let tiles = tiling::given_tile(operator, &pairs, best.as_ref().map(|best| best.found.tiles.as_slice()));
        request.tiles = Some(tiles.map_err(|error| error.to_string())?);
    }
    match tiling::schedule_as(operator, &device, &request) {
        Ok(schedule) => {
            for path in &args.output {
                write(path, &schedule, &device)?;
            }
            let explanation = args.explain.then(|| tiling::explain(&schedule, &device));
            if args.json {
                let mut json = tile::device::json(&schedule);
                if let Some(explanation) = &explanation {
                    json["explanation"] = tile::fit::explanation_json(explanation);
                }
                output::print(&format!("{json:#}\n"));
            } else {
                let mut text = tile::device::text(&schedule);
                if args.picture {
                    text.push('\n');
                    text.push_str(&tile::picture::picture(&schedule, &device));
                }
                if let Some(explanation) = &explanation {
                    text.push('\n');
                    text.push_str(&tile::fit::explained(&schedule, explanation));
                }
                output::print(&text);
            }
            Ok(Answer::Yes)
        }
        Err(why @ TileError::DoesNotFit { .. }) => {
            let hint = if args.tile.is_empty() { "" } else { "; --fit says by how much, and the nearest that fits" };
            output::complain(&format!("npumem: {why}{hint}"));
            Ok(Answer::No)
        }
        Err(why) => Err(why.to_string()),
    }
}

/// A file by its ending, or all of them into a folder.
fn write(path: &Path, schedule: &Schedule, device: &Device) -> Result<(), String> {
    if path.is_dir() {
        for name in ["schedule.json", "schedule.h", "schedule.npumem"] {
            write(&path.join(name), schedule, device)?;
        }
        return Ok(());
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
        return Err(format!("{}: there is no folder {}; make it first", path.display(), folder.display()));
    }
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    let content = match ending.as_deref() {
        Some("json") => format!("{:#}\n", tile::device::json(schedule)),
        Some("h") => tile::header::header(schedule),
        Some("pto") => tile::pto_text(schedule, device)?,
        Some("npumem" | "txt") => npumem::ir::program::text::print(&tile::proven_program(schedule, device)?),
        _ => return Err(format!("{}: the ending says the format: .json, .h, .npumem or .pto", path.display())),
    };
    output::write_whole(path, content.as_bytes())
}

fn asked_slots(args: &TileArgs) -> Option<Slots> {
    args.slots.map(|slots| match slots {
        SlotsArg::None => Slots::Single,
        SlotsArg::Streamed => Slots::Streamed,
        SlotsArg::Inputs => Slots::Inputs,
        SlotsArg::All => Slots::All,
    })
}

fn slots(args: &TileArgs) -> Slots {
    asked_slots(args).unwrap_or_default()
}

/// `m=128 n=256`, in one argument or several, spaces or commas between.
fn tile_pairs(arguments: &[String]) -> Result<Vec<(String, u64)>, String> {
    let words = arguments.iter().flat_map(|argument| argument.split([' ', ',']).filter(|word| !word.is_empty()));
    words
        .map(|word| {
            let wrong = || format!("--tile: '{word}' is no pair; expected DIM=SIZE, for example m=128");
            let (name, size) = word.split_once('=').ok_or_else(wrong)?;
            Ok((name.to_owned(), size.parse().map_err(|_| wrong())?))
        })
        .collect()
}

fn fit(args: &TileArgs, operator: &Operator) -> Outcome {
    let pairs = tile_pairs(&args.tile)?;
    let names: Vec<String> = resolve::device_name(&args.device).split(',').map(|name| name.trim().to_owned()).collect();
    let (mut all, mut texts, mut documents) = (true, Vec::new(), Vec::new());
    for name in names {
        let device = resolve::device(&DeviceArgs { device: Some(name), devices: args.device.devices.clone() })?;
        let given =
            operator.dims.iter().filter(|dim| !dim.whole).all(|dim| pairs.iter().any(|(name, _)| *name == dim.name));
        let best = if given { None } else { Some(tiling::schedule(operator, &device, Goal::Time)) };
        let best = match best.transpose() {
            Ok(best) => best,
            Err(why @ TileError::DoesNotFit { .. }) => {
                all = false;
                documents.push(serde_json::json!({"device": device.name, "fits": false, "why": why.to_string()}));
                texts.push(format!("{}: no tile fits: {why}\n", device.name));
                continue;
            }
            Err(why) => return Err(why.to_string()),
        };
        let tiles = tiling::given_tile(operator, &pairs, best.as_ref().map(|best| best.found.tiles.as_slice()));
        let tiles = tiles.map_err(|error| error.to_string())?;
        let result = tiling::fit(operator, &device, &tiles, slots(args)).map_err(|error| error.to_string())?;
        all &= result.fits();
        documents.push(tile::fit::json(operator, &result));
        texts.push(tile::fit::text(operator, &result));
    }
    if args.json {
        let document = serde_json::json!({"format": "npumem-tile-fit", "version": 1, "operator": operator.name,
            "slots": slots(args).word(), "devices": documents});
        output::print(&format!("{document:#}\n"));
    } else {
        output::print(&format!("{}\n\n{}", npumem::report::text::printable(&operator.name), texts.join("\n")));
    }
    Ok(if all { Answer::Yes } else { Answer::No })
}

/// The operator that a node of a model is.
fn node(path: &Path, name: &str, dims: &[String]) -> Result<Operator, String> {
    let mut input = npumem::open::open(path).map_err(|error| error.to_string())?;
    let mut options = npumem::onnx::Options { keep_open: true, ..npumem::onnx::Options::default() };
    for dim in dims {
        options.bind(dim).map_err(|error| error.to_string())?;
    }
    let graph = input.graph(&options).map_err(|error| error.to_string())?.graph;
    let Some(at) = graph.operators.iter().position(|operator| operator.name == name) else {
        let names: Vec<&str> = graph.operators.iter().take(12).map(|operator| operator.name.as_str()).collect();
        let more = if graph.operators.len() > 12 { ", ..." } else { "" };
        return Err(format!("{}: there is no node '{name}'; there are {}{more}", path.display(), names.join(", ")));
    };
    match tile::node::operator(&graph, npumem::ir::OperatorId::new(at)) {
        tile::node::Node::Tiled(operator) => Ok(*operator),
        tile::node::Node::Moves => {
            Err(format!("{}: '{name}' only moves bytes; there is nothing to tile", path.display()))
        }
        tile::node::Node::Unknown(why) => Err(format!("{}: '{name}': {why}", path.display())),
    }
}

fn operator(args: &TileArgs) -> Result<Operator, String> {
    match (&args.onnx, &args.node) {
        (Some(path), Some(name)) => return node(path, name, &args.dim),
        (None, Some(name)) => return Err(format!("--node {name}: of which model? Give it with --onnx")),
        _ => {}
    }
    if let Some(path) = &args.file {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut text = String::new();
        // A device or a pipe has no length to ask for.
        let most = std::fs::File::open(path).map_err(failed)?.take((1 << 20) + 1);
        std::io::BufReader::new(most).read_to_string(&mut text).map_err(failed)?;
        if text.len() > 1 << 20 {
            return Err(format!("{}: more than 1 MiB; an operator has at most that", path.display()));
        }
        return tile::toml_file::read(&text).map_err(|error| format!("{}: {error}", path.display()));
    }
    let text = match args.operator.as_deref() {
        Some("-") => {
            let mut text = String::new();
            let most = tiling::spec::MAX_SPEC as u64 + 1;
            std::io::stdin()
                .take(most)
                .read_to_string(&mut text)
                .map_err(|error| format!("standard input: {error}"))?;
            text
        }
        Some(text) => text.to_owned(),
        None => return Err(format!("which operator? For example: {EXAMPLE}")),
    };
    tiling::parse(&text).map_err(|error| error.to_string())
}
