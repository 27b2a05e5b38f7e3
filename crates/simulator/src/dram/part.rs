//! What a DRAM part is: its organisation, its timing rules, and the controller in front of it.

use super::error::PartError;
use super::mapping::Mapping;

/// Most banks that one channel may have, all ranks and pseudo-channels together: a set of banks is one machine word.
pub const MOST_BANKS: u64 = 64;

/// A DRAM memory: equal channels, each with its controller.
///
/// ```text
///   channel 0          channel 1 ...
///   +---------------------------------------------+
///   | controller: read and write queue, a command |   one command bus (or one for rows, one for columns)
///   | queue per bank                              |
///   +----------- pseudo-channel 0 --------+-- 1 --+   a data bus each
///   | rank 0                    | rank 1  |       |   refreshed as a whole; tRRD and tFAW count here
///   | group 0   | group 1       |         |       |   tCCD_L, tRRD_L, tWTR_L within, _S across
///   | bank bank | bank bank ... |         |       |   one open row each
///   +---------------------------+---------+-------+
/// ```
///
/// All times are clocks of the memory (`clock_hz`), counted from zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The name for reports, for example `HBM2`.
    pub name: String,
    /// The memory's clock.
    pub clock_hz: f64,
    /// Independent channels.
    pub channels: u32,
    /// Pseudo-channels in a channel: each has a data bus of its own, all share the channel's queues and command bus.
    pub pseudo_channels: u32,
    /// Ranks on one data bus.
    pub ranks: u32,
    /// Bank groups in a rank.
    pub bank_groups: u32,
    /// Banks in a group.
    pub banks_per_group: u32,
    /// Bytes of one open row, over the width of one data bus.
    pub row_bytes: u64,
    /// Bytes of one burst, the smallest transfer.
    pub burst_bytes: u64,
    /// The timing rules.
    pub timing: Timing,
    /// How an address becomes a channel, a bank, a row and a column.
    pub mapping: Mapping,
    /// The queues and how they are served.
    pub controller: Controller,
}

/// The timing rules of a part, in clocks of the memory, by their JEDEC names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Clocks that one burst takes on the data bus.
    pub burst: u32,
    /// Read command to first data.
    pub cl: u32,
    /// Write command to first data.
    pub cwl: u32,
    /// Activate to read of the same bank.
    pub rcd: u32,
    /// Activate to write of the same bank.
    pub rcd_write: u32,
    /// Precharge to activate of the same bank.
    pub rp: u32,
    /// Activate to precharge of the same bank.
    pub ras: u32,
    /// Activate to activate of the same bank.
    pub rc: u32,
    /// Column command to column command of the same direction, another bank group.
    pub ccd_s: u32,
    /// Column command to column command of the same direction, same bank group.
    pub ccd_l: u32,
    /// Activate to activate, another bank group.
    pub rrd_s: u32,
    /// Activate to activate, same bank group.
    pub rrd_l: u32,
    /// No more than four activates of one rank in this many clocks.
    pub faw: u32,
    /// End of write data to precharge.
    pub wr: u32,
    /// End of write data to read, another bank group.
    pub wtr_s: u32,
    /// End of write data to read, same bank group.
    pub wtr_l: u32,
    /// Read to precharge.
    pub rtp: u32,
    /// Read command to write command.
    pub rtw: u32,
    /// Data bus clocks lost when another rank takes over.
    pub rank_switch: u32,
    /// Refresh interval of a rank.
    pub refi: u32,
    /// Refresh to activate.
    pub rfc: u32,
    /// Clocks that an activate command holds the command bus.
    pub act_command: u32,
}

/// The memory controller of one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Reads (and as many writes) that a channel takes in before it refuses.
    pub transactions: u32,
    /// Commands that wait at one bank.
    pub bank_queue: u32,
    /// Whether [`Controller::transactions`] counts the requests at the banks too: one pool, looked at as a whole.
    /// A request leaves it when a row is opened for it.
    pub one_pool: bool,
    /// Which of several ready commands goes first.
    pub arbitration: Arbitration,
    /// An older request to another row waits for at most this many uses of the open row.
    pub row_hits: u32,
    /// Row and column commands travel side by side (HBM), one of each in a clock.
    pub two_command_buses: bool,
    /// A refresh closes all banks with one command instead of one command a bank.
    pub precharge_all: bool,
    /// All ranks and pseudo-channels are refreshed at the same time instead of one after the other.
    pub refresh_together: bool,
    /// Waiting writes at which they are served before reads.
    pub write_high: u32,
    /// Waiting writes at which reads go first again.
    pub write_low: u32,
}

/// The order among ready commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arbitration {
    /// Banks in turn; within a bank a ready row hit before older requests (FR-FCFS per bank).
    RoundRobin,
    /// The oldest request whose command is ready (FR-FCFS over the whole channel).
    Oldest,
}

impl Default for Controller {
    /// A queue of 32 reads and 32 writes a channel and of 8 commands a bank: the defaults of DRAMsim3's HBM2 files.
    fn default() -> Self {
        Controller {
            transactions: 32,
            bank_queue: 8,
            one_pool: false,
            arbitration: Arbitration::RoundRobin,
            row_hits: 4,
            two_command_buses: true,
            precharge_all: false,
            refresh_together: false,
            write_high: 32,
            write_low: 0,
        }
    }
}

impl Part {
    /// Banks of one channel, all pseudo-channels, ranks and groups together.
    #[must_use]
    pub fn banks(&self) -> u64 {
        [self.pseudo_channels, self.ranks, self.bank_groups, self.banks_per_group]
            .iter()
            .fold(1, |product: u64, count| product.saturating_mul(u64::from(*count)))
    }

    /// Bursts in one row.
    #[must_use]
    pub fn columns(&self) -> u64 {
        self.row_bytes / self.burst_bytes.max(1)
    }

    /// Bytes that the data buses carry in one clock at most.
    #[must_use]
    pub fn peak_bytes_per_clock(&self) -> f64 {
        f64::from(self.channels) * f64::from(self.pseudo_channels) * self.burst_bytes as f64
            / f64::from(self.timing.burst.max(1))
    }

    /// The largest bandwidth, in bytes per second.
    #[must_use]
    pub fn peak_bytes_per_second(&self) -> f64 {
        self.peak_bytes_per_clock() * self.clock_hz
    }

    /// The clock of this memory at or after `cycles` of another clock.
    #[must_use]
    pub fn clock_at(&self, cycles: u64, cycles_hz: f64) -> u64 {
        (cycles as f64 * (self.clock_hz / cycles_hz)).ceil() as u64
    }

    /// The cycle of another clock at or after `clock` of this memory.
    #[must_use]
    pub fn cycles_at(&self, clock: u64, cycles_hz: f64) -> u64 {
        (clock as f64 * (cycles_hz / self.clock_hz)).ceil() as u64
    }

    /// Whether the figures make a memory that this model can run.
    ///
    /// # Errors
    /// Names the figure, its value and what it must be.
    pub fn check(&self) -> Result<(), PartError> {
        let wrong = |figure: &'static str, value: u64, must: &'static str| {
            Err(PartError::Figure { part: self.name.clone(), figure, value, must })
        };
        for (figure, value) in [
            ("channels", self.channels),
            ("pseudo_channels", self.pseudo_channels),
            ("ranks", self.ranks),
            ("bank_groups", self.bank_groups),
            ("banks_per_group", self.banks_per_group),
        ] {
            if value == 0 || value > 4096 {
                return wrong(figure, u64::from(value), "between 1 and 4096");
            }
        }
        if self.banks() > MOST_BANKS {
            return wrong("banks of a channel", self.banks(), "at most 64");
        }
        if !self.clock_hz.is_finite() || self.clock_hz <= 0.0 {
            return wrong("clock_hz", 0, "a positive number");
        }
        if !self.burst_bytes.is_power_of_two() || self.burst_bytes > 4096 {
            return wrong("burst_bytes", self.burst_bytes, "a power of two, at most 4096");
        }
        if self.row_bytes < self.burst_bytes || !self.row_bytes.is_power_of_two() {
            return wrong("row_bytes", self.row_bytes, "a power of two, a burst at least");
        }
        if self.row_bytes / self.burst_bytes > 1 << 16 {
            return wrong("row_bytes", self.row_bytes, "at most 65536 bursts");
        }
        self.check_timing()?;
        let controller = &self.controller;
        for (figure, value) in [
            ("controller.transactions", controller.transactions),
            ("controller.bank_queue", controller.bank_queue),
            ("controller.write_high", controller.write_high),
        ] {
            if value == 0 || value > 1024 {
                return wrong(figure, u64::from(value), "between 1 and 1024");
            }
        }
        if controller.write_low >= controller.write_high || controller.write_high > controller.transactions {
            return wrong(
                "controller.write_low",
                u64::from(controller.write_low),
                "below write_high, and that at most transactions",
            );
        }
        Ok(())
    }

    fn check_timing(&self) -> Result<(), PartError> {
        let timing = &self.timing;
        let wrong = |figure: &'static str, value: u32, must: &'static str| {
            Err(PartError::Figure { part: self.name.clone(), figure, value: u64::from(value), must })
        };
        for (figure, value) in timing.named() {
            let least = u32::from(!matches!(figure, "rank_switch"));
            if value < least || value > 1 << 24 {
                return wrong(figure, value, "between 1 and 16777216 clocks");
            }
        }
        if timing.ccd_l < timing.ccd_s {
            return wrong("ccd_l", timing.ccd_l, "ccd_s at least");
        }
        if timing.rrd_l < timing.rrd_s {
            return wrong("rrd_l", timing.rrd_l, "rrd_s at least");
        }
        if timing.wtr_l < timing.wtr_s {
            return wrong("wtr_l", timing.wtr_l, "wtr_s at least");
        }
        if timing.rtw + timing.cwl < timing.cl + timing.burst {
            return wrong("rtw", timing.rtw, "cl + burst - cwl at least: the data bus turns round");
        }
        // Between two refreshes of a rank every bank must have time to be closed and one row to be used.
        let share = u64::from(timing.refi) / u64::from(self.ranks * self.pseudo_channels);
        let need = u64::from(timing.rfc) + 2 * u64::from(timing.rc) + 2 * MOST_BANKS;
        if share < need {
            return wrong(
                "refi",
                timing.refi,
                "long enough for the refreshes (rfc and 2 rc for each rank) and some use",
            );
        }
        Ok(())
    }
}

impl Timing {
    /// The figures by name, as a device file writes them.
    #[must_use]
    pub fn named(&self) -> [(&'static str, u32); 22] {
        [
            ("burst", self.burst),
            ("cl", self.cl),
            ("cwl", self.cwl),
            ("rcd", self.rcd),
            ("rcd_write", self.rcd_write),
            ("rp", self.rp),
            ("ras", self.ras),
            ("rc", self.rc),
            ("ccd_s", self.ccd_s),
            ("ccd_l", self.ccd_l),
            ("rrd_s", self.rrd_s),
            ("rrd_l", self.rrd_l),
            ("faw", self.faw),
            ("wr", self.wr),
            ("wtr_s", self.wtr_s),
            ("wtr_l", self.wtr_l),
            ("rtp", self.rtp),
            ("rtw", self.rtw),
            ("rank_switch", self.rank_switch),
            ("refi", self.refi),
            ("rfc", self.rfc),
            ("act_command", self.act_command),
        ]
    }

    /// Read command to last data.
    #[must_use]
    pub fn read_data(&self) -> u64 {
        u64::from(self.cl) + u64::from(self.burst)
    }

    /// Write command to last data.
    #[must_use]
    pub fn write_data(&self) -> u64 {
        u64::from(self.cwl) + u64::from(self.burst)
    }
}
