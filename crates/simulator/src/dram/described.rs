//! Parts from device descriptions, and the parts that the published references describe.

use super::error::PartError;
use super::mapping::Mapping;
use super::part::{Arbitration, Controller, Part, Timing};
use npumem_ir::device::{Dram, Figure, MissingFigure};

/// The standards whose transfers per clock are known, for messages.
pub(super) const STANDARDS: &str = "HBM, HBM2, HBM2e, HBM3, HBM3e, DDR3, DDR4, DDR5, LPDDR3, GDDR5, GDDR6";

/// Data transfers in one clock of the command clock.
fn transfers_per_clock(standard: &str) -> Option<u64> {
    Some(match standard.to_ascii_uppercase().as_str() {
        "HBM" | "HBM2" | "HBM2E" | "DDR3" | "DDR4" | "DDR5" | "LPDDR3" => 2,
        // The data strobe runs at twice the command clock and carries two transfers a cycle.
        "HBM3" | "HBM3E" | "GDDR5" => 4,
        "GDDR6" => 8,
        _ => return None,
    })
}

/// The part that the space `space` of `device` describes, with the controller's defaults.
///
/// A device's `channels` have each their own data bus; a description that means pseudo-channels counts those.
/// The turn from reading to writing is `rtw` where the device states it; otherwise the two clocks
/// beyond the data that DRAMsim3 leaves.
///
/// # Errors
/// Names the figure that is missing or that the model cannot work with.
pub fn from_device(device: &str, space: &str, dram: &Dram) -> Result<Part, PartError> {
    let path = |figure: &str| format!("{space}.dram.{figure}");
    let missing = |figure: &str| PartError::Missing(MissingFigure::new(device, &path(figure)));
    let number = |figure: &Figure<u64>, name: &'static str| -> Result<u32, PartError> {
        let value = *figure.known().ok_or_else(|| missing(name))?;
        u32::try_from(value).map_err(|_| PartError::Figure {
            part: device.to_owned(),
            figure: name,
            value,
            must: "at most 4294967295",
        })
    };
    let timing = |name: &'static str| -> Result<u32, PartError> {
        number(dram.timings.get(name).unwrap_or(&Figure::Unknown), name).map_err(|error| match error {
            PartError::Missing(_) => missing(&format!("timing_clocks.{name}")),
            other => other,
        })
    };
    let bytes = |figure: &Figure<npumem_ir::units::Bytes>, name: &str| -> Result<u64, PartError> {
        Ok(figure.known().ok_or_else(|| missing(name))?.get())
    };
    if dram.standard.is_empty() {
        return Err(missing("standard"));
    }
    if dram.mapping.is_empty() {
        return Err(missing("mapping"));
    }
    let transfers = transfers_per_clock(&dram.standard).ok_or_else(|| PartError::Standard {
        device: device.to_owned(),
        path: path("standard"),
        standard: dram.standard.clone(),
    })?;
    let width = u64::from(number(&dram.channel_width_bits, "channel_width_bits")?);
    let burst_bytes = bytes(&dram.burst, "burst_bytes")?;
    let bits_per_clock = width.saturating_mul(transfers);
    if width == 0 {
        return Err(PartError::Figure {
            part: device.to_owned(),
            figure: "channel_width_bits",
            value: 0,
            must: "at least 1",
        });
    }
    let burst = u32::try_from(burst_bytes.saturating_mul(8).div_ceil(bits_per_clock)).unwrap_or(u32::MAX);
    let (banks, groups) = (number(&dram.banks, "banks")?, number(&dram.bank_groups, "bank_groups")?);
    if groups == 0 || banks % groups != 0 {
        return Err(PartError::Figure {
            part: device.to_owned(),
            figure: "banks",
            value: u64::from(banks),
            must: "a multiple of bank_groups",
        });
    }
    let (cl, cwl) = (timing("cl")?, timing("cwl")?);
    let least_turn = cl.saturating_add(burst).saturating_sub(cwl);
    let rtw = if dram.timings.contains_key("rtw") { timing("rtw")? } else { least_turn.saturating_add(2) };
    let hbm = dram.standard.to_ascii_uppercase().starts_with("HBM");
    let part = Part {
        name: dram.standard.clone(),
        clock_hz: *dram.clock_hz.known().ok_or_else(|| missing("clock_hz"))?,
        channels: number(&dram.channels, "channels")?,
        pseudo_channels: 1,
        ranks: 1,
        bank_groups: groups,
        banks_per_group: banks / groups,
        row_bytes: bytes(&dram.row, "row_bytes")?,
        burst_bytes,
        timing: Timing {
            burst,
            cl,
            cwl,
            rcd: timing("rcd")?,
            rcd_write: timing("rcd_write")?,
            rp: timing("rp")?,
            ras: timing("ras")?,
            rc: timing("rc")?,
            ccd_s: timing("ccd_s")?,
            ccd_l: timing("ccd_l")?,
            rrd_s: timing("rrd_s")?,
            rrd_l: timing("rrd_l")?,
            faw: timing("faw")?,
            wr: timing("wr")?,
            wtr_s: timing("wtr_s")?,
            wtr_l: timing("wtr_l")?,
            rtp: timing("rtp")?,
            rtw,
            rank_switch: 0,
            refi: timing("refi")?,
            rfc: timing("rfc")?,
            act_command: 1,
        },
        mapping: Mapping::parse(&dram.mapping)?,
        controller: Controller { two_command_buses: hbm, precharge_all: !hbm, ..Controller::default() },
    };
    part.check()?;
    super::mapping::Placer::new(&part)?;
    Ok(part)
}

/// Eight channels of HBM2, 256 GB/s: DRAMsim3's `HBM2_8Gb_x128.ini` (umd-memsys 2981759) as that program runs it.
///
/// The file says 64 columns and `tRTP_L` 6; the program doubles an HBM part's columns, so that a row is 2 KiB
/// (and 32,768 rows of 16 banks the stated 1,024 MB a channel), and reads no `tRTP_L` but `tRTP`, 5 by default.
#[must_use]
pub fn hbm2_8gb_x128() -> Part {
    Part {
        name: "HBM2 8Gb x128".to_owned(),
        clock_hz: 1e9,
        channels: 8,
        pseudo_channels: 1,
        ranks: 1,
        bank_groups: 4,
        banks_per_group: 4,
        row_bytes: 2048,
        burst_bytes: 64,
        timing: Timing {
            burst: 2,
            cl: 14,
            cwl: 4,
            rcd: 14,
            rcd_write: 14,
            rp: 14,
            ras: 34,
            rc: 48,
            ccd_s: 1,
            ccd_l: 2,
            rrd_s: 4,
            rrd_l: 6,
            faw: 30,
            wr: 16,
            wtr_s: 6,
            wtr_l: 8,
            rtp: 5,
            rtw: 14,
            rank_switch: 2,
            refi: 3900,
            rfc: 260,
            act_command: 1,
        },
        mapping: known_mapping("rorabgbachco"),
        controller: Controller::default(),
    }
}

/// One channel of HBM3 at 6.4 Gb/s, 51.2 GB/s: Ramulator 2.1's `HBM3_16Gb_8hi` and `HBM3_6400Mbps` (CMU-SAFARI c5b1c3a).
///
/// Two pseudo-channels of 32 bits share one pool of 128 requests, served oldest first; a refresh every 3.9 us
/// takes 350 ns (JESD238, 8 Gb a channel). Activate commands hold the row bus for 1.5 clocks, counted as two;
/// the two stacks of dies share the limits of a pseudo-channel there and are bank groups here.
#[must_use]
pub fn hbm3_16gb_8hi() -> Part {
    Part {
        name: "HBM3 16Gb 8hi".to_owned(),
        clock_hz: 1.6e9,
        channels: 1,
        pseudo_channels: 2,
        ranks: 1,
        bank_groups: 8,
        banks_per_group: 4,
        row_bytes: 1024,
        burst_bytes: 32,
        timing: Timing {
            burst: 2,
            cl: 20,
            cwl: 10,
            rcd: 31,
            rcd_write: 15,
            rp: 26,
            ras: 45,
            rc: 72,
            ccd_s: 2,
            ccd_l: 4,
            rrd_s: 4,
            rrd_l: 5,
            faw: 24,
            wr: 33,
            wtr_s: 7,
            wtr_l: 10,
            rtp: 9,
            rtw: 20,
            rank_switch: 1,
            refi: 6240,
            rfc: 560,
            act_command: 2,
        },
        mapping: known_mapping("rocobabgpcco2+xorco"),
        controller: Controller {
            transactions: 128,
            bank_queue: 128,
            one_pool: true,
            arbitration: Arbitration::Oldest,
            row_hits: 0,
            precharge_all: true,
            refresh_together: true,
            write_high: 102,
            write_low: 25,
            ..Controller::default()
        },
    }
}

/// An order of fields written in this file.
fn known_mapping(text: &str) -> Mapping {
    #[expect(clippy::expect_used, reason = "a literal of this file, read in its tests")]
    Mapping::parse(text).expect("a mapping written here is well formed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use npumem_ir::units::Bytes;

    fn dram() -> Dram {
        let known = |value| Figure::sourced(value, "test");
        let timings = hbm2_8gb_x128()
            .timing
            .named()
            .into_iter()
            .filter(|(name, _)| npumem_ir::device::DRAM_TIMINGS.contains(name))
            .map(|(name, value)| (name.to_owned(), known(u64::from(value))))
            .collect();
        Dram {
            standard: "HBM2".to_owned(),
            mapping: "rorabgbachco".to_owned(),
            channels: known(8),
            channel_width_bits: known(128),
            bank_groups: known(4),
            banks: known(16),
            row: Figure::sourced(Bytes(2048), "test"),
            burst: Figure::sourced(Bytes(64), "test"),
            clock_hz: Figure::sourced(1e9, "test"),
            timings,
        }
    }

    #[test]
    fn a_described_device_becomes_the_part() {
        let part = from_device("npu", "hbm", &dram()).unwrap();
        let expected = hbm2_8gb_x128();
        assert_eq!(part.timing, Timing { rank_switch: 0, ..expected.timing });
        assert_eq!(part.peak_bytes_per_second(), 256e9);
        assert_eq!((part.banks(), part.columns()), (16, 32));
    }

    #[test]
    fn a_missing_figure_is_named() {
        for name in ["cl", "cwl", "rcd", "rp", "ras", "rc", "faw", "rtp", "refi", "rfc", "wtr_l", "ccd_s"] {
            let mut dram = dram();
            dram.timings.remove(name);
            let error = from_device("npu", "hbm", &dram).unwrap_err().to_string();
            assert!(error.contains(&format!("no figure for `hbm.dram.timing_clocks.{name}`")), "{error}");
        }
        let error = from_device("npu", "hbm", &Dram { banks: Figure::Unknown, ..dram() }).unwrap_err().to_string();
        assert!(error.contains("`hbm.dram.banks`"), "{error}");
        let error = from_device("npu", "hbm", &Dram { mapping: String::new(), ..dram() }).unwrap_err().to_string();
        assert!(error.contains("`hbm.dram.mapping`"), "{error}");
        let error = from_device("npu", "hbm", &Dram { standard: "FRAM".into(), ..dram() }).unwrap_err().to_string();
        assert!(error.contains("`FRAM`"), "{error}");
    }

    #[test]
    fn figures_without_sense_are_refused_by_name() {
        let zero = || Figure::sourced(0, "test");
        let cases = [
            ("channels", Dram { channels: zero(), ..dram() }),
            ("channel_width_bits", Dram { channel_width_bits: zero(), ..dram() }),
            ("banks", Dram { bank_groups: zero(), ..dram() }),
            ("burst_bytes", Dram { burst: Figure::sourced(Bytes(0), "test"), ..dram() }),
            ("burst_bytes", Dram { burst: Figure::sourced(Bytes(1 << 40), "test"), ..dram() }),
            ("row_bytes", Dram { row: Figure::sourced(Bytes(100), "test"), ..dram() }),
        ];
        for (name, dram) in cases {
            let error = from_device("npu", "hbm", &dram).unwrap_err().to_string();
            assert!(error.contains(name), "{name}: {error}");
        }
    }

    #[test]
    fn the_references_are_sound() {
        for part in [hbm2_8gb_x128(), hbm3_16gb_8hi()] {
            part.check().unwrap();
            super::super::mapping::Placer::new(&part).unwrap();
        }
        assert_eq!(hbm3_16gb_8hi().peak_bytes_per_second(), 51.2e9);
    }
}
