//! A DRAM part: channels, banks, rows, refresh and its controller, command by command.
//!
//! [`Part`] says what the memory is: [`described::from_device`] makes it from a device's description.
//! [`Detailed`] runs it command by command, [`Fast`] by the rate of each shape of transfer, [`Memory`] is either.
//! Requesters ([`Requester`]: a DMA queue, a core) submit
//! [`Transfer`]s, which are [`Runs`] of bytes; the memory is shared, and completions come out in order of time.
//! All times are clocks of the memory ([`Part::clock_at`], [`Part::cycles_at`] convert).
//!
//! A program simulator with events of its own runs the memory up to each of them:
//!
//! ```
//! use npumem_simulator::dram::{Detailed, Direction, Requester, Runs, Transfer, described};
//! # let mut memory = Detailed::new(&described::hbm2_8gb_x128())?;
//! # let dma = memory.add_requester(Requester::in_order(64))?;
//! # let transfer = Transfer { requester: dma, direction: Direction::Read, runs: Runs::one(0, 4096) };
//! # memory.submit(0, transfer)?;
//! # let mut my_events = vec![90, 40];
//! loop {
//!     let mine = my_events.last().copied().unwrap_or(u64::MAX);
//!     match memory.run_until(mine) {
//!         Some(done) => println!("transfer {:?} is done at clock {}", done.transfer, done.at),
//!         None if my_events.pop().is_none() => break,
//!         None => { /* handle my event at clock `mine`; submit transfers at that clock or later */ }
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod channel;
mod counts;
pub mod described;
mod detailed;
pub mod drive;
mod error;
mod fast;
pub mod fuzzing;
mod mapping;
mod memory;
mod part;
mod record;
mod rules;
mod transfer;

pub use counts::{ChannelCounts, Counts, IdleCauses, RequesterCounts};
pub use detailed::Detailed;
pub use error::{PartError, RequestError};
pub use fast::{Doubt, Estimate, Fast};
pub use mapping::{Mapping, Place, Placer};
pub use memory::{Detail, Memory};
pub use part::{Arbitration, Controller, MOST_BANKS, Part, Timing};
pub use record::{Command, Kind, Observer, Served, Unobserved};
pub use rules::{Rules, Violation};
pub use transfer::{Completion, Direction, Requester, RequesterId, Routing, Runs, Transfer, TransferId};
