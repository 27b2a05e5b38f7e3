//! `npumem lecture`: what every course says of accelerator memory, measured here.

use super::args::{LectureArgs, OnArg};
use super::{Answer, Outcome, interrupt, output, real};
use npumem::backend::backend::SpaceInfo;
use npumem::backend::{Cuda, Host, Memory, MemoryOptions, OpenCl};
use npumem::ir::Bytes;
use npumem::lecture::{self, LectureOptions};

/// Runs it.
pub fn run(args: &LectureArgs) -> Outcome {
    let options = if args.quick { LectureOptions::quick() } else { LectureOptions::full() };
    // Says first, in the device's words, that it is not there.
    let (_, name) = real::open(args.on, Bytes(1 << 20))?;
    if args.on == OnArg::Cuda {
        return Err(format!("--on cuda: {name} is there, and its backend has no kernels yet"));
    }
    let progress = interrupt::Progress::start("measuring");
    let open = |bytes| real::device(args.on, bytes).map(|(device, _)| device);
    let memory = |bytes: Bytes, options: MemoryOptions| match args.on {
        OnArg::Host => {
            let space = SpaceInfo { name: "hbm".to_owned(), capacity: bytes, page: Bytes(2 << 20) };
            Memory::new(Host::new(vec![space])?, options)
        }
        OnArg::Opencl => Memory::new(OpenCl::open(0, Some(bytes))?, options),
        OnArg::Cuda => Memory::new(Cuda::open(0, Some(bytes))?, options),
    };
    let sections =
        lecture::lecture(&open, &memory, &options).map_err(|error| format!("--on {}: {error}", real::word(args.on)))?;
    drop(progress);
    if args.json {
        output::print(&format!("{:#}\n", lecture::to_json(&name, &sections)));
    } else {
        output::print(&lecture::to_text(&name, &sections));
    }
    Ok(Answer::Yes)
}
