//! Every figure of a device as one flat list: for look-up by path, for the table of sources, and
//! for the test that nothing in the catalogue lacks an origin.

use std::fmt;

use super::{Banks, ComputeUnit, Device, Dram, Engine, Figure, Link, MissingFigure, Origin, Rate, Space};
use crate::units::{Alignment, Bytes, Cycles, grouped};

/// One figure, by path.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureRow {
    /// `object.figure`, for example `hbm.bandwidth`.
    pub path: String,
    /// The unit of the value.
    pub unit: &'static str,
    /// The value; absent when unknown.
    pub value: Option<FigureValue>,
    /// Where it comes from; absent when the value is.
    pub origin: Option<Origin>,
}

/// The value of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FigureValue {
    /// A count, a size or a number of cycles.
    Whole(u64),
    /// A rate or a clock.
    Real(f64),
    /// Rows, depth and columns.
    Shape([u64; 3]),
}

impl fmt::Display for FigureValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FigureValue::Whole(number) => f.write_str(&grouped(*number)),
            FigureValue::Real(number) if *number >= 1e6 => write!(f, "{number:.4e}"),
            FigureValue::Real(number) => write!(f, "{number}"),
            FigureValue::Shape([m, k, n]) => write!(f, "{m}x{k}x{n}"),
        }
    }
}

/// A type that a figure may have, and its unit when the figure's kind does not decide it.
trait Shown {
    fn shown(&self) -> FigureValue;
}

impl Shown for u64 {
    fn shown(&self) -> FigureValue {
        FigureValue::Whole(*self)
    }
}

impl Shown for Bytes {
    fn shown(&self) -> FigureValue {
        FigureValue::Whole(self.get())
    }
}

impl Shown for Alignment {
    fn shown(&self) -> FigureValue {
        FigureValue::Whole(self.get())
    }
}

impl Shown for Cycles {
    fn shown(&self) -> FigureValue {
        FigureValue::Whole(self.get())
    }
}

impl Shown for f64 {
    fn shown(&self) -> FigureValue {
        FigureValue::Real(*self)
    }
}

impl Shown for Rate {
    fn shown(&self) -> FigureValue {
        FigureValue::Real(self.number())
    }
}

impl Shown for [u64; 3] {
    fn shown(&self) -> FigureValue {
        FigureValue::Shape(*self)
    }
}

struct Rows(Vec<FigureRow>);

impl Rows {
    fn push<T: Shown>(&mut self, object: &str, name: &str, unit: &'static str, figure: &Figure<T>) {
        self.0.push(FigureRow {
            path: format!("{object}.{name}"),
            unit,
            value: figure.known().map(Shown::shown),
            origin: figure.origin().cloned(),
        });
    }

    /// A figure that not every object has: listed only when it is stated.
    fn push_stated<T: Shown>(&mut self, object: &str, name: &str, unit: &'static str, figure: &Figure<T>) {
        if figure.known().is_some() {
            self.push(object, name, unit, figure);
        }
    }

    fn push_rate(&mut self, object: &str, name: &str, figure: &Figure<Rate>) {
        let unit = match figure.known() {
            Some(Rate::BytesPerSecond(_)) => "bytes per second",
            _ => "bytes per cycle",
        };
        self.push(object, name, unit, figure);
    }

    fn space(&mut self, space: &Space) {
        let name = space.name.as_str();
        if let super::Scope::Cluster(count) = &space.scope {
            self.push(name, "count", "instances", count);
        }
        self.push(name, "capacity", "bytes", &space.capacity);
        self.push_stated(name, "usable", "bytes", &space.usable);
        self.push(name, "alignment", "bytes", &space.alignment);
        self.push(name, "latency", "cycles", &space.latency);
        self.push_rate(name, "bandwidth", &space.bandwidth);
        if let Some(banks) = &space.banks {
            self.banks(name, banks);
        }
        if let Some(dram) = &space.dram {
            self.dram(name, dram);
        }
    }

    fn banks(&mut self, name: &str, banks: &Banks) {
        self.push(name, "banks.count", "banks", &banks.count);
        self.push(name, "banks.groups", "groups", &banks.groups);
        self.push(name, "banks.size", "bytes", &banks.size);
        self.push(name, "banks.width", "bytes", &banks.width);
    }

    fn dram(&mut self, name: &str, dram: &Dram) {
        self.push(name, "dram.channels", "channels", &dram.channels);
        self.push(name, "dram.channel_width", "bits", &dram.channel_width_bits);
        self.push(name, "dram.bank_groups", "groups", &dram.bank_groups);
        self.push(name, "dram.banks", "banks", &dram.banks);
        self.push(name, "dram.row", "bytes", &dram.row);
        self.push(name, "dram.burst", "bytes", &dram.burst);
        self.push(name, "dram.clock", "hertz", &dram.clock_hz);
        for (rule, figure) in &dram.timings {
            self.push(name, &format!("dram.timing.{rule}"), "clocks", figure);
        }
    }

    fn engine(&mut self, engine: &Engine) {
        let name = engine.name.as_str();
        if let Some(count) = &engine.count {
            self.push(name, "count", "engines", count);
        }
        self.push(name, "outstanding", "in flight", &engine.outstanding);
        self.push(name, "startup", "cycles", &engine.startup);
        if let Some(unit) = &engine.compute {
            self.compute(name, unit);
        }
    }

    fn compute(&mut self, name: &str, unit: &ComputeUnit) {
        for (precision, figure) in &unit.operations_per_cycle {
            self.push(name, &format!("operations.{precision}"), "operations per cycle", figure);
        }
        for (precision, figure) in &unit.fractal {
            self.push(name, &format!("fractal.{precision}"), "m x k x n", figure);
        }
        self.push_stated(name, "vector_width", "bytes", &unit.vector_width);
        self.push_stated(name, "block", "bytes", &unit.block);
        self.push_stated(name, "repeats", "repeats", &unit.repeats);
    }

    fn link(&mut self, link: &Link) {
        let name = link.name.as_str();
        self.push_rate(name, "rate", &link.rate);
        self.push(name, "startup", "cycles", &link.startup);
        self.push(name, "granularity", "bytes", &link.granularity);
        self.push_stated(name, "alignment", "bytes", &link.alignment);
        self.push_stated(name, "unaligned_share", "of the rate", &link.unaligned_share);
        self.push_stated(name, "best_transfer", "bytes", &link.best_transfer);
        self.push_stated(name, "largest_transfer", "bytes", &link.largest_transfer);
    }
}

impl Device {
    /// Every figure in the order of the description: known ones, and the unknown ones that every object of the
    /// kind has (a link without a largest transfer is not missing anything).
    #[must_use]
    pub fn figures(&self) -> Vec<FigureRow> {
        let mut rows = Rows(Vec::new());
        rows.push("device", "clock", "hertz", &self.clock_hz);
        for core in &self.cores {
            rows.push(&core.name, "count", "cores", &core.count);
        }
        for space in &self.spaces {
            rows.space(space);
        }
        for engine in &self.engines {
            rows.engine(engine);
        }
        for link in &self.links {
            rows.link(link);
        }
        rows.0
    }

    /// The figure of that path, for example `hbm.bandwidth`, when it is known.
    ///
    /// # Errors
    /// The device and the path, when the figure is unknown or there is no such figure.
    pub fn figure(&self, path: &str) -> Result<FigureRow, MissingFigure> {
        self.figures()
            .into_iter()
            .find(|row| row.path == path && row.value.is_some())
            .ok_or_else(|| MissingFigure::new(&self.name, path))
    }
}
