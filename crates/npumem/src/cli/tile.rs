//! `npumem tile`: the tile sizes, buffers and copies of one operator.

use super::output::{self, Color};
use super::tile_args::{ObjectiveArg, SlotsArg, TileArgs};
use super::{Answer, Outcome, resolve};
use npumem::ir::Bytes;
use npumem::tile::{self, plan_two_level};
use npumem::tiling::{self, Goal, Operator, Slots, TileError};
use std::io::Read as _;

/// The example of the help and of the errors.
const EXAMPLE: &str = "npumem tile \"matmul m=4096 n=4096 k=4096 a=f16 b=f16 c=f32\"";

/// Runs it.
pub fn run(args: &TileArgs, _color: Color) -> Outcome {
    let operator = operator(args)?;
    let Some(sram) = &args.sram else { return on_device(args, &operator) };
    let capacity = Bytes::parse(sram).map_err(|why| format!("--sram: {why}"))?;
    let slots = match args.slots {
        SlotsArg::None => Slots::Single,
        SlotsArg::Inputs => Slots::Inputs,
        SlotsArg::All => Slots::All,
    };
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
    match tiling::schedule(operator, &device, goal) {
        Ok(schedule) => {
            if args.json {
                output::print(&format!("{:#}\n", tile::device::json(&schedule)));
            } else {
                output::print(&tile::device::text(&schedule));
            }
            Ok(Answer::Yes)
        }
        Err(why @ TileError::DoesNotFit { .. }) => {
            output::complain(&format!("npumem: {why}"));
            Ok(Answer::No)
        }
        Err(why) => Err(why.to_string()),
    }
}

fn operator(args: &TileArgs) -> Result<Operator, String> {
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
