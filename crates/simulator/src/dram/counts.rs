//! What a run counts: commands, row hits, bytes, and why a data bus was idle.

use std::ops::AddAssign;

/// Counts of one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelCounts {
    /// Bursts read from the banks.
    pub reads: u64,
    /// Bursts written to the banks.
    pub writes: u64,
    /// Requests that found a waiting write of the same burst: reads answered from it, writes that joined it.
    pub answered_in_queue: u64,
    /// Bursts whose row was open.
    pub row_hits: u64,
    /// Bursts whose bank had no open row.
    pub row_misses: u64,
    /// Bursts whose bank had another row open.
    pub row_conflicts: u64,
    /// Activate commands.
    pub activates: u64,
    /// Precharge commands (one for all banks counts once).
    pub precharges: u64,
    /// Refresh commands.
    pub refreshes: u64,
    /// The clock after the last data.
    pub last_data: u64,
}

/// Clocks in which the data buses of a channel carried nothing, by what the next burst waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleCauses {
    /// Nothing was asked for.
    pub no_request: u64,
    /// The bank had no open row.
    pub row_miss: u64,
    /// The bank had another row open, which had to stay for a while and then be closed.
    pub bank_conflict: u64,
    /// The rank may not open rows faster (tRRD, tFAW).
    pub activate_rate: u64,
    /// The rank was being refreshed.
    pub refresh: u64,
    /// The bus turned from reading to writing or back.
    pub turnaround: u64,
    /// The row was open, and the bank group or a queue held the command.
    pub bank_group: u64,
}

impl IdleCauses {
    /// The causes by name.
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("no request", self.no_request),
            ("row miss", self.row_miss),
            ("bank conflict", self.bank_conflict),
            ("activate rate", self.activate_rate),
            ("refresh", self.refresh),
            ("turnaround", self.turnaround),
            ("bank group", self.bank_group),
        ]
    }
}

impl AddAssign for IdleCauses {
    fn add_assign(&mut self, other: Self) {
        self.no_request += other.no_request;
        self.row_miss += other.row_miss;
        self.bank_conflict += other.bank_conflict;
        self.activate_rate += other.activate_rate;
        self.refresh += other.refresh;
        self.turnaround += other.turnaround;
        self.bank_group += other.bank_group;
    }
}

impl AddAssign for ChannelCounts {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.answered_in_queue += other.answered_in_queue;
        self.row_hits += other.row_hits;
        self.row_misses += other.row_misses;
        self.row_conflicts += other.row_conflicts;
        self.activates += other.activates;
        self.precharges += other.precharges;
        self.refreshes += other.refreshes;
        self.last_data = self.last_data.max(other.last_data);
    }
}

/// Counts of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequesterCounts {
    /// Bursts that came back.
    pub bursts: u64,
    /// Clocks in which it had something to ask for and all its outstanding bursts were under way.
    pub window_full: u64,
    /// Clocks in which it had something to ask for and the queue of a channel was full.
    pub queue_full: u64,
}

/// Counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By channel.
    pub channels: Vec<ChannelCounts>,
    /// By channel.
    pub idle: Vec<IdleCauses>,
    /// By requester.
    pub requesters: Vec<RequesterCounts>,
    /// Bytes of one burst.
    pub burst_bytes: u64,
}

impl Counts {
    /// All channels together.
    #[must_use]
    pub fn total(&self) -> ChannelCounts {
        let mut total = ChannelCounts::default();
        self.channels.iter().for_each(|one| total += *one);
        total
    }

    /// The idle clocks of all channels together.
    #[must_use]
    pub fn total_idle(&self) -> IdleCauses {
        let mut total = IdleCauses::default();
        self.idle.iter().for_each(|one| total += *one);
        total
    }

    /// Bytes that crossed the data bus of each channel.
    #[must_use]
    pub fn bytes_per_channel(&self) -> Vec<u64> {
        self.channels.iter().map(|one| (one.reads + one.writes) * self.burst_bytes).collect()
    }
}
