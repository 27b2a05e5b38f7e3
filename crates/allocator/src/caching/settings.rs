//! The settings of PyTorch's allocator, as `PYTORCH_CUDA_ALLOC_CONF` spells them.

use std::fmt;

const MIB: u64 = 1 << 20;

/// What `PYTORCH_CUDA_ALLOC_CONF` can say about where blocks go.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Segments of reserved addresses that grow page by page.
    pub expandable_segments: bool,
    /// Blocks from this size on are never split. `u64::MAX` stands for no such size.
    pub max_split_size: u64,
    /// How much larger than asked for a block may be that is not split.
    pub max_non_split_rounding: u64,
    /// The segment size for requests between 1 and 10 MiB, and the page size of large expandable segments.
    pub large_segment_size: u64,
    /// From this share of the allowed memory on, old unused segments go back; zero turns it off.
    pub garbage_collection_threshold: f64,
    /// For sizes of `2^(20 + i)` to twice that: into how many steps a power of two is divided; 0 and 1 do not round.
    pub roundup_power2_divisions: [u64; 16],
    /// Ties between free blocks of one size go to the older segment (PyTorch 2.11 and later), before that to the lower address.
    pub ties_by_age: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            expandable_segments: false,
            max_split_size: u64::MAX,
            max_non_split_rounding: 20 * MIB,
            large_segment_size: 20 * MIB,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: [0; 16],
            ties_by_age: true,
        }
    }
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("allocator setting `{key}`: `{value}` {problem}")]
pub struct SettingError {
    /// The key.
    pub key: String,
    /// What stood after the colon.
    pub value: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Settings {
    /// Reads `key:value,key:value`. An empty text gives the defaults. Keys that do not move blocks are accepted and ignored.
    ///
    /// # Errors
    /// When a value is not one, or a key is unknown.
    pub fn parse(text: &str) -> Result<Self, SettingError> {
        let mut settings = Self::default();
        for item in split_outside_brackets(text) {
            let (key, value) = item.split_once(':').unwrap_or((item, ""));
            let (key, value) = (key.trim(), value.trim());
            let fault = |problem| SettingError { key: key.to_owned(), value: value.to_owned(), problem };
            match key {
                "" => {}
                "expandable_segments" => {
                    settings.expandable_segments = match value {
                        "True" | "true" | "1" => true,
                        "False" | "false" | "0" => false,
                        _ => return Err(fault("is neither True nor False")),
                    }
                }
                "max_split_size_mb" => settings.max_split_size = mebibytes(value).map_err(fault)?,
                "max_non_split_rounding_mb" => settings.max_non_split_rounding = mebibytes(value).map_err(fault)?,
                "large_segment_size_mb" => settings.large_segment_size = mebibytes(value).map_err(fault)?,
                "garbage_collection_threshold" => {
                    settings.garbage_collection_threshold = value
                        .parse()
                        .ok()
                        .filter(|share: &f64| (0.0..1.0).contains(share))
                        .ok_or_else(|| fault("is not a share between 0 and 1"))?;
                }
                "roundup_power2_divisions" => {
                    settings.roundup_power2_divisions = divisions(value).map_err(fault)?;
                }
                "backend"
                | "release_lock_on_cudamalloc"
                | "pinned_use_cuda_host_register"
                | "pinned_num_register_threads"
                | "per_process_memory_fraction"
                | "graph_capture_record_stream_reuse"
                | "pinned_use_background_threads" => {}
                _ => return Err(fault("is not a setting that is known here")),
            }
        }
        Ok(settings)
    }

    /// The size that a request is rounded up to; `None` past 64 bits.
    #[must_use]
    pub fn round(&self, bytes: u64) -> Option<u64> {
        if bytes < 512 {
            return Some(512);
        }
        let interval = (bytes.ilog2()).saturating_sub(20).min(15);
        let divisions = self.roundup_power2_divisions[interval as usize];
        if divisions > 1 && bytes > 512 * divisions {
            if bytes.is_power_of_two() {
                return Some(bytes);
            }
            let floor = 1_u64 << bytes.ilog2();
            let step = floor >> divisions.ilog2();
            return if step == 0 { floor.checked_mul(2) } else { bytes.checked_next_multiple_of(step) };
        }
        bytes.checked_next_multiple_of(512)
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expandable_segments:{}", if self.expandable_segments { "True" } else { "False" })?;
        if self.max_split_size != u64::MAX {
            write!(f, ",max_split_size_mb:{}", self.max_split_size / MIB)?;
        }
        if self.large_segment_size != 20 * MIB {
            write!(f, ",large_segment_size_mb:{}", self.large_segment_size / MIB)?;
        }
        if self.garbage_collection_threshold > 0.0 {
            write!(f, ",garbage_collection_threshold:{}", self.garbage_collection_threshold)?;
        }
        Ok(())
    }
}

fn split_outside_brackets(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |character| {
        match character {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        character == ',' && depth <= 0
    })
}

fn mebibytes(value: &str) -> Result<u64, &'static str> {
    let number: u64 = value.parse().map_err(|_| "is not a whole number of MiB")?;
    match number.checked_mul(MIB) {
        Some(bytes) if (1..=1 << 50).contains(&bytes) => Ok(bytes),
        _ => Err("is not between 1 MiB and 1 PiB"),
    }
}

/// `4`, or `[256:1,512:2,>:8]`: the first key also fills what lies below, `>` what lies above the last.
fn divisions(value: &str) -> Result<[u64; 16], &'static str> {
    let number = |text: &str| match text.trim().parse::<u64>() {
        Ok(0) => Ok(0),
        Ok(number) if number.is_power_of_two() && number <= 1 << 20 => Ok(number),
        _ => Err("is not a power of two"),
    };
    let Some(list) = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return Ok([number(value)?; 16]);
    };
    let mut divisions = [0; 16];
    let mut first = true;
    let mut last = 0;
    for item in list.split(',') {
        let (key, value) = item.split_once(':').ok_or("is not a list of size:divisions")?;
        let steps = number(value)?;
        if key.trim() == ">" {
            divisions[last..].fill(steps);
            continue;
        }
        let size: u64 = key.trim().parse().map_err(|_| "has a size that is not a whole number of MiB")?;
        if !size.is_power_of_two() {
            return Err("has a size that is not a power of two");
        }
        let index = (size.ilog2() as usize).min(15);
        if first {
            divisions[..index].fill(steps);
            first = false;
        }
        divisions[index] = steps;
        last = (index + 1).min(16);
    }
    Ok(divisions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_users_write() {
        let settings = Settings::parse(
            "expandable_segments:True, max_split_size_mb:128,roundup_power2_divisions:[2:1,4:2,16:4,>:8]",
        )
        .unwrap();
        assert!(settings.expandable_segments);
        assert_eq!(settings.max_split_size, 128 * MIB);
        // Between the listed keys nothing is rounded.
        assert_eq!(settings.roundup_power2_divisions[..7], [1, 1, 2, 0, 4, 8, 8]);
        assert_eq!(Settings::parse("").unwrap(), Settings::default());
    }

    #[test]
    fn refuses_what_is_no_setting() {
        for text in [
            "max_split_size_mb:x",
            "expandable_segments:maybe",
            "max_splt_size_mb:1",
            "garbage_collection_threshold:7",
            "roundup_power2_divisions:3",
            "roundup_power2_divisions:[3:1]",
            "large_segment_size_mb:0",
            "max_split_size_mb:99999999999999999999",
        ] {
            assert!(Settings::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rounds_like_the_original() {
        let plain = Settings::default();
        assert_eq!([1, 511, 512, 513, 1024].map(|bytes| plain.round(bytes)), [512, 512, 512, 1024, 1024].map(Some));
        let eight = Settings::parse("roundup_power2_divisions:8").unwrap();
        assert_eq!(eight.round(1200 << 10), Some(1280 << 10));
        assert_eq!(eight.round(1 << 30), Some(1 << 30));
        assert_eq!(plain.round(u64::MAX), None);
    }
}
