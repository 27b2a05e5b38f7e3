//! The least time that each engine needs for a graph: bytes over bandwidth, operations over rate.
//!
//! ```text
//!   time of an operator >= max(bytes / bandwidth, matrix operations / rate, vector operations / rate)
//!   time of the graph   >= max over engines of (all of that engine's work / its rate)     engines run side by side
//!                       <= sum over operators of their largest                            one operator after another
//! ```
//!
//! Both are bounds from the shapes alone, without start-up costs or tiling; a real run is slower than the first.

use super::line::Line;
use super::storage::Storage;
use super::work;
use npumem_ir::problem::Access;
use npumem_ir::{Bytes, ElementType, Step};
use std::collections::BTreeMap;

/// What a device can do at most. What is missing is named in the result, not made up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Bytes per second of the space that holds the tensors.
    pub bandwidth: Option<f64>,
    /// Operations per second of the matrix units, by element type (a multiply-accumulate is two).
    pub matrix: BTreeMap<ElementType, f64>,
    /// Operations per second of the vector units, by element type.
    pub vector: BTreeMap<ElementType, f64>,
}

/// An engine that can bound the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bounding {
    /// Moving bytes.
    Memory,
    /// The matrix units.
    Matrix,
    /// The vector units.
    Vector,
}

impl Bounding {
    /// Its name in a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Bounding::Memory => "memory",
            Bounding::Matrix => "matrix units",
            Bounding::Vector => "vector units",
        }
    }
}

/// One operator's part.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorRoof {
    /// The step.
    pub step: Step,
    /// The operator.
    pub operator: String,
    /// Its kind.
    pub kind: String,
    /// Bytes that it reads.
    pub read: Bytes,
    /// Bytes that it writes.
    pub written: Bytes,
    /// Operations of the matrix units.
    pub matrix: u64,
    /// Operations of the vector units.
    pub vector: u64,
    /// The type that it computes in.
    pub element: ElementType,
    /// The least time in seconds, and what bounds it; `None` where no rate that it needs is known.
    pub seconds: Option<(f64, Bounding)>,
}

/// One engine's part.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineRoof {
    /// Which.
    pub engine: Bounding,
    /// Bytes or operations, all together.
    pub amount: u64,
    /// The least time in seconds; `None` where a rate is missing.
    pub seconds: Option<f64>,
}

/// The roofline of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Roofline {
    /// Each operator, in step order.
    pub operators: Vec<OperatorRoof>,
    /// Memory, matrix units, vector units.
    pub engines: Vec<EngineRoof>,
    /// The engine that needs the most time, and that time: no schedule of this graph is faster. `None` where a rate that
    /// it takes is missing.
    pub bound: Option<(Bounding, f64)>,
    /// The operators' times one after another; only where every operator has one.
    pub one_after_another: Option<f64>,
    /// Rates that would be needed and are not known: `matrix f16`, `bandwidth`.
    pub missing: Vec<String>,
    /// Kinds whose operations are not counted (unknown kind or shape), with how many operators; their bytes are.
    pub uncounted: BTreeMap<String, usize>,
    /// Operators in loop bodies, counted for one turn.
    pub one_turn: usize,
}

/// Bytes, operations and the least time of every operator, of every engine, of the whole.
#[must_use]
pub fn roofline(line: &Line<'_>, storage: &Storage, rates: &Rates) -> Roofline {
    let mut sums = Sums::default();
    let mut operators = Vec::with_capacity(line.steps.len());
    let mut one_after_another = Some(0.0);
    let mut uncounted: BTreeMap<String, usize> = BTreeMap::new();
    for (index, step) in line.steps.iter().enumerate() {
        let (mut read, mut written) = (0_u64, 0_u64);
        for (_, access, bytes) in work::traffic(line, storage, index as u32) {
            let sum = if access == Access::Read { &mut read } else { &mut written };
            *sum = sum.saturating_add(bytes);
        }
        let done = work::work(line, step);
        if done.is_none() {
            *uncounted.entry(step.operator.kind.clone()).or_default() += 1;
        }
        let (matrix, vector) = done.map_or((0, 0), |work| (work.matrix, work.vector));
        let element = done.map_or(ElementType::F32, |work| work.element);
        let times = sums.add(rates, read.saturating_add(written), matrix, vector, element);
        // Ties go to memory, then to the matrix units.
        let seconds = times.into_iter().try_fold(None, |worst: Option<(f64, Bounding)>, (engine, time)| {
            let time = time?;
            Some(if worst.is_none_or(|(most, _)| time > most) { Some((time, engine)) } else { worst })
        });
        let seconds = seconds.flatten();
        one_after_another = one_after_another.zip(seconds).map(|(sum, (time, _))| sum + time);
        operators.push(OperatorRoof {
            step: Step(index as u64),
            operator: step.name.clone(),
            kind: step.operator.kind.clone(),
            read: Bytes(read),
            written: Bytes(written),
            matrix,
            vector,
            element,
            seconds,
        });
    }
    let engines = sums.engines(rates);
    let known: Option<Vec<(Bounding, f64)>> =
        engines.iter().map(|engine| Some((engine.engine, engine.seconds?))).collect();
    let slower = |worst: (Bounding, f64), one: (Bounding, f64)| if one.1 > worst.1 { one } else { worst };
    let bound = known.and_then(|engines| engines.into_iter().reduce(slower));
    Roofline {
        operators,
        engines,
        bound,
        one_after_another,
        missing: sums.missing(rates),
        uncounted,
        one_turn: line.steps.iter().filter(|step| step.repeats).count(),
    }
}

#[derive(Default)]
struct Sums {
    bytes: u64,
    matrix: BTreeMap<ElementType, u64>,
    vector: BTreeMap<ElementType, u64>,
}

impl Sums {
    /// Adds an operator; its time on each engine, `None` where the rate is missing.
    fn add(
        &mut self,
        rates: &Rates,
        bytes: u64,
        matrix: u64,
        vector: u64,
        element: ElementType,
    ) -> [(Bounding, Option<f64>); 3] {
        self.bytes = self.bytes.saturating_add(bytes);
        for (sums, amount) in [(&mut self.matrix, matrix), (&mut self.vector, vector)] {
            if amount > 0 {
                let sum = sums.entry(element).or_default();
                *sum = sum.saturating_add(amount);
            }
        }
        let rate = |rates: &BTreeMap<ElementType, f64>| rates.get(&element).copied();
        [
            (Bounding::Memory, time(bytes, rates.bandwidth)),
            (Bounding::Matrix, time(matrix, rate(&rates.matrix))),
            (Bounding::Vector, time(vector, rate(&rates.vector))),
        ]
    }

    fn engines(&self, rates: &Rates) -> Vec<EngineRoof> {
        let by_type = |sums: &BTreeMap<ElementType, u64>, rates: &BTreeMap<ElementType, f64>| {
            let amount = sums.values().copied().fold(0, u64::saturating_add);
            let mut parts = sums.iter().map(|(element, amount)| time(*amount, rates.get(element).copied()));
            let seconds = parts.try_fold(0.0, |sum, part| Some(sum + part?));
            (amount, seconds)
        };
        let (matrix, matrix_seconds) = by_type(&self.matrix, &rates.matrix);
        let (vector, vector_seconds) = by_type(&self.vector, &rates.vector);
        vec![
            EngineRoof { engine: Bounding::Memory, amount: self.bytes, seconds: time(self.bytes, rates.bandwidth) },
            EngineRoof { engine: Bounding::Matrix, amount: matrix, seconds: matrix_seconds },
            EngineRoof { engine: Bounding::Vector, amount: vector, seconds: vector_seconds },
        ]
    }

    fn missing(&self, rates: &Rates) -> Vec<String> {
        let mut missing = Vec::new();
        if self.bytes > 0 && time(1, rates.bandwidth).is_none() {
            missing.push("bandwidth".to_owned());
        }
        for (name, sums, rates) in [("matrix", &self.matrix, &rates.matrix), ("vector", &self.vector, &rates.vector)] {
            for element in sums.keys().filter(|element| time(1, rates.get(element).copied()).is_none()) {
                missing.push(format!("{name} {element}"));
            }
        }
        missing
    }
}

/// Nothing takes no time, whatever the rate; a rate that is not positive is none.
fn time(amount: u64, rate: Option<f64>) -> Option<f64> {
    if amount == 0 {
        return Some(0.0);
    }
    rate.filter(|rate| rate.is_finite() && *rate > 0.0).map(|rate| amount as f64 / rate)
}
