//! What the raw arguments mean: devices, capacities, dimensions, goals.

use super::args::{DeviceArgs, EffortArg, GoalArg};
use npumem::catalogue::Catalogue;
use npumem::ir::problem::Goal;
use npumem::ir::{Bytes, Device, Problem};
use npumem::{Effort, PlacementOptions};

/// The device as it was named, or the default.
pub fn device_name(args: &DeviceArgs) -> &str {
    args.device.as_deref().unwrap_or(npumem::catalogue::DEFAULT_DEVICE)
}

/// The device that is meant.
pub fn device(args: &DeviceArgs) -> Result<Device, String> {
    let name = device_name(args);
    if args.devices.is_empty() {
        return npumem::catalogue::device(name).map_err(|error| error.to_string());
    }
    catalogue(args)?.resolve(name).map_err(|error| error.to_string())
}

/// Every device that is known: ours, and those of `--devices`.
pub fn catalogue(args: &DeviceArgs) -> Result<Catalogue, String> {
    let mut known = Catalogue::built_in().map_err(|error| error.to_string())?;
    for path in &args.devices {
        known.add(path).map_err(|error| error.to_string())?;
    }
    Ok(known)
}

/// `--capacity`: a size for every space, or for one by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacities(Vec<(Option<String>, Bytes)>);

impl Capacities {
    /// Reads `[SPACE=]BYTES`, once for each.
    pub fn parse(arguments: &[String]) -> Result<Capacities, String> {
        let one = |argument: &String| {
            let (space, size) = match argument.split_once('=') {
                Some((space, size)) => (Some(space.to_owned()), size),
                None => (None, argument.as_str()),
            };
            let size = Bytes::parse(size).map_err(|why| format!("--capacity {argument}: {why}"))?;
            Ok::<_, String>((space, size))
        };
        let mut all: Vec<(Option<String>, Bytes)> = Vec::new();
        for argument in arguments {
            let (space, size) = one(argument)?;
            if all.iter().any(|(before, _)| *before == space) {
                return Err(format!("--capacity {argument}: the same capacity was given before; give it once"));
            }
            all.push((space, size));
        }
        Ok(Capacities(all))
    }

    /// Puts the capacities into a problem; a bare size is for its only space.
    pub fn apply(&self, problem: &mut Problem) -> Result<(), String> {
        for (name, capacity) in &self.0 {
            let names = || problem.spaces.iter().map(|space| space.name.clone()).collect::<Vec<_>>().join(", ");
            let index = match name {
                Some(name) => {
                    let same = |space: &npumem::ir::Space| space.name.eq_ignore_ascii_case(name);
                    let found = problem.spaces.iter().position(same);
                    found.ok_or_else(|| {
                        format!("--capacity {name}=...: there is no such space; there are {}", names())
                    })?
                }
                None if problem.spaces.len() == 1 => 0,
                None => return Err(format!("--capacity needs a space, SPACE=BYTES; there are {}", names())),
            };
            problem.spaces[index].capacity = Some(*capacity);
        }
        Ok(())
    }

    /// The capacity for a device's main memory, the only space that a model's tensors are in.
    pub fn for_main(&self, device: &Device) -> Result<Option<Bytes>, String> {
        let main = device.main_memory().map(|id| device.space(id));
        let mut found = None;
        for (name, capacity) in &self.0 {
            let same = |name: &String| main.is_some_and(|main| main.name.eq_ignore_ascii_case(name));
            if name.as_ref().is_some_and(|name| !same(name)) {
                let main = main.map_or("none", |space| space.name.as_str());
                return Err(format!(
                    "--capacity {}=...: a model's tensors are in main memory ({main}) until tiles are assigned to SRAM",
                    name.as_deref().unwrap_or_default()
                ));
            }
            found = Some(*capacity);
        }
        Ok(found)
    }
}

/// How to place.
pub fn placement(
    effort: EffortArg,
    budget: Option<u64>,
    seed: u64,
    threads: usize,
    without: &[String],
) -> Result<PlacementOptions, String> {
    let effort = match effort {
        EffortArg::Fast => Effort::Fast,
        EffortArg::Normal => Effort::Normal,
        EffortArg::Thorough => Effort::Thorough,
    };
    if !(1..=64).contains(&threads) {
        return Err(format!("--threads {threads}: from 1 to 64"));
    }
    let mut options = PlacementOptions { effort, budget, seed, threads, ..PlacementOptions::default() };
    for part in without {
        if !options.switches.set(part, false) {
            let names: Vec<&str> = options.switches.list().into_iter().map(|(name, _)| name).collect();
            return Err(format!(
                "--without {part}: there is no such part of the search; there are {}",
                names.join(", ")
            ));
        }
    }
    Ok(options)
}

/// The goals as the library names them.
pub fn goals(arguments: &[GoalArg]) -> Vec<Goal> {
    let one = |goal: &GoalArg| match goal {
        GoalArg::Peak => Goal::Peak,
        GoalArg::TotalPeak => Goal::TotalPeak,
        GoalArg::MaxPeak => Goal::MaxPeak,
        GoalArg::Fit => Goal::Fit,
        GoalArg::ReuseCost => Goal::ReuseCost,
        GoalArg::KeepHints => Goal::KeepHints,
        GoalArg::Traffic => Goal::Traffic,
    };
    arguments.iter().map(one).collect()
}
