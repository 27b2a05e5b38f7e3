//! `npumem probe`: measures this machine and writes its description.

use super::args::{OnArg, ProbeArgs};
use super::{Answer, Outcome, interrupt, output, real};
use npumem::backend::probe::{self, ProbeError, ProbeOptions};
use npumem::backend::{Compute, OpenCl};
use npumem::ir::Bytes;
use npumem::probe::{Subject, device, to_json, to_text};

/// Runs it.
pub fn run(args: &ProbeArgs) -> Outcome {
    output::check_writable(args.output.as_deref())?;
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if let Some(name) = args.name.as_ref().filter(|name| !(1..=64).contains(&name.len()) || !name.bytes().all(may_be)) {
        return Err(format!("--name {name}: from 1 to 64 letters, digits, `-` and `_`"));
    }
    let lanes = std::thread::available_parallelism().map_or(1, |count| count.get() as u32).min(64);
    let free = real::free_memory().unwrap_or(Bytes(1 << 30));
    let wanted = match &args.largest {
        Some(text) => Bytes::parse(text).map_err(|why| format!("--largest {text}: {why}"))?,
        None => Bytes(if args.quick { 64 << 20 } else { 256 << 20 }),
    };
    if wanted.get() > free.get() / 2 || wanted.get() > 1 << 31 {
        let most = Bytes((free.get() / 2).min(1 << 31));
        return Err(format!("--largest {wanted}: at most half of the free memory and 2 GiB: {most}"));
    }
    let mut options = if args.quick { ProbeOptions::quick(wanted, lanes) } else { ProbeOptions::full(wanted, lanes) };
    let (mut memory, subject, mut notes) = open(args, &options)?;
    if args.on == OnArg::Opencl {
        options.lanes = options.lanes.max(1);
    }
    let progress = interrupt::Progress::start("measuring");
    let measured = probe::probe(memory.as_mut(), &options, interrupt::flag()).map_err(|error| match error {
        ProbeError::Interrupted => "interrupted: nothing was written".to_owned(),
        error => format!("--on {}: {error}", real::word(args.on)),
    })?;
    drop(progress);
    let described = device(&subject, &measured);
    if args.on == OnArg::Host {
        notes.extend(real::system_caches());
    }
    if let Some(path) = &args.output {
        output::write_whole(path, described.to_toml().as_bytes())?;
        if path.as_os_str() == "-" {
            return Ok(Answer::Yes);
        }
    }
    if args.json {
        output::print(&format!("{:#}\n", to_json(&subject, &measured, &described, &notes)));
    } else {
        output::print(&to_text(&subject, &measured, &notes));
        if let Some(path) = &args.output {
            output::print(&format!("written: {} (use it with --device {})\n", path.display(), path.display()));
        } else {
            output::print("-o FILE.toml writes the device file that --device takes\n");
        }
    }
    Ok(Answer::Yes)
}

/// The device, what it is called, and remarks.
type Opened = (Box<dyn Compute>, Subject, Vec<String>);

fn open(args: &ProbeArgs, options: &ProbeOptions) -> Result<Opened, String> {
    let date = real::today();
    let needed = probe::memory(options);
    let name = args.name.clone();
    let named = |fallback: &str| name.clone().unwrap_or_else(|| fallback.to_owned());
    match args.on {
        OnArg::Host => {
            let (memory, _) = real::open(args.on, needed)?;
            let hz = probe::clock::chain_hz(if args.quick { 5 } else { 15 });
            let cores = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
            let subject = Subject {
                name: named("host"),
                title: real::processor().unwrap_or_else(|| "This machine's CPU".to_owned()),
                vendor: String::new(),
                date: date.clone(),
                clock: Some((
                    hz.round(),
                    format!(
                        "measured on {date} by npumem probe: a chain of dependent shifts and exclusive ors, each a cycle"
                    ),
                )),
                units: (cores, "processors that this process may run on, as the system says".to_owned()),
                memory: real::all_memory().ok_or("this system does not say how much memory it has (/proc/meminfo)")?,
                local: None,
            };
            Ok((memory, subject, Vec::new()))
        }
        OnArg::Opencl => {
            let opened = OpenCl::open(0, Some(needed)).map_err(|error| format!("--on opencl: {error}"))?;
            let about = opened.about().clone();
            let said =
                |what: &str| format!("{what}, as the OpenCL driver says ({}, {})", about.platform, about.version);
            let subject = Subject {
                name: named("opencl"),
                title: format!("{} (OpenCL)", about.name),
                vendor: about.platform.clone(),
                date,
                clock: (about.clock_mhz > 0).then(|| (f64::from(about.clock_mhz) * 1e6, said("the highest clock"))),
                units: (u64::from(about.units.max(1)), said("compute units")),
                memory: (about.memory, said("global memory")),
                local: (about.local_memory > Bytes::ZERO).then(|| (about.local_memory, said("local memory"))),
            };
            let note =
                "times are the device's own (profiling events); a chain of loads runs in one work item".to_owned();
            Ok((Box::new(opened), subject, vec![note]))
        }
        OnArg::Cuda => {
            let (_, name) = real::open(args.on, needed)?;
            Err(format!("--on cuda: {name} is there, and its backend has no kernels yet: nothing can be measured"))
        }
    }
}
