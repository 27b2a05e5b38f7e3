//! A figure is a number with an origin, or the honest statement that nobody knows it.
//!
//! Device descriptions mix figures that a vendor publishes, figures that somebody measured, and
//! figures that are guesses. They must not look alike in a report, so the origin travels with
//! the number, and a command that needs a figure that is not there says which one.

use std::fmt;

use thiserror::Error;

/// Where a known figure comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A key of the device's `[sources]` table.
    Source(String),
    /// Not confirmed by a source; the text says how it was arrived at.
    Estimated(String),
}

impl Origin {
    /// Whether the figure is only an estimate.
    pub fn is_estimated(&self) -> bool {
        matches!(self, Origin::Estimated(_))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Source(key) => f.write_str(key),
            Origin::Estimated(why) => write!(f, "estimated: {why}"),
        }
    }
}

/// A number with its origin, or unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Figure<T> {
    /// The value and where it comes from.
    Known {
        /// The number.
        value: T,
        /// Where it comes from.
        origin: Origin,
    },
    /// Written `"?"`, or left out.
    #[default]
    Unknown,
}

impl<T> Figure<T> {
    /// A figure that the named source gives.
    pub fn sourced(value: T, source: &str) -> Self {
        Figure::Known { value, origin: Origin::Source(source.to_owned()) }
    }

    /// A figure that nobody has confirmed.
    pub fn estimated(value: T, why: &str) -> Self {
        Figure::Known { value, origin: Origin::Estimated(why.to_owned()) }
    }

    /// The value, when it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Figure::Known { value, .. } => Some(value),
            Figure::Unknown => None,
        }
    }

    /// Where the value comes from, when it is known.
    pub fn origin(&self) -> Option<&Origin> {
        match self {
            Figure::Known { origin, .. } => Some(origin),
            Figure::Unknown => None,
        }
    }

    /// The value, or an error that names the device and the figure.
    pub fn require(&self, device: &str, path: &str) -> Result<&T, MissingFigure> {
        self.known().ok_or_else(|| MissingFigure::new(device, path))
    }

    /// The same figure with its value changed and its origin kept.
    pub fn map<U>(&self, change: impl FnOnce(&T) -> U) -> Figure<U> {
        match self {
            Figure::Known { value, origin } => Figure::Known { value: change(value), origin: origin.clone() },
            Figure::Unknown => Figure::Unknown,
        }
    }
}

/// A command needs a figure that this device's description does not have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "device `{device}` has no figure for `{path}`: write it in a copy of the device file, with a \
     source or `estimated = \"...\"`, and pass that file as the device"
)]
pub struct MissingFigure {
    /// The device's name.
    pub device: String,
    /// The figure, as `object.figure`, for example `hbm.bandwidth`.
    pub path: String,
}

impl MissingFigure {
    /// The figure `path` of the device named `device` is not known.
    pub fn new(device: &str, path: &str) -> Self {
        MissingFigure { device: device.to_owned(), path: path.to_owned() }
    }
}

/// How fast bytes move, in the unit that the source uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Bytes in one cycle of the device's clock.
    BytesPerCycle(f64),
    /// Bytes in one second.
    BytesPerSecond(f64),
}

impl Rate {
    /// Bytes per second at the given clock.
    pub fn per_second(self, clock_hz: f64) -> f64 {
        match self {
            Rate::BytesPerCycle(bytes) => bytes * clock_hz,
            Rate::BytesPerSecond(bytes) => bytes,
        }
    }

    /// Bytes per cycle at the given clock.
    pub fn per_cycle(self, clock_hz: f64) -> f64 {
        match self {
            Rate::BytesPerCycle(bytes) => bytes,
            Rate::BytesPerSecond(bytes) => bytes / clock_hz,
        }
    }

    /// The number as written, without its unit.
    pub fn number(self) -> f64 {
        match self {
            Rate::BytesPerCycle(bytes) | Rate::BytesPerSecond(bytes) => bytes,
        }
    }
}
