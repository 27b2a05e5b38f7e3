//! The vector instructions of an operator, tile by tile: what is emitted, and what the time is counted from.

use super::operator::{Axis, DimRole, OperandRole, Operator, OperatorKind};
use npumem_ir::program::InPlace;
use npumem_ir::program::points::{How, Join};

/// What keeps the root of a variance away from 0, as frameworks have it by default.
pub const EPSILON: f64 = 1e-5;

/// What an instruction goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The elements of this operand's tile.
    Operand(usize),
    /// Every iteration of the tile (windows).
    Points,
}

/// One vector instruction on tiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// Its name, in the words of tile programs.
    pub name: String,
    /// Operands that it reads.
    pub reads: Vec<usize>,
    /// The operand that it writes.
    pub writes: usize,
    /// Whether it may write over what it reads.
    pub in_place: InPlace,
    /// What it goes over.
    pub over: Over,
    /// How often the unit goes over it: an estimate, 1 for what one instruction does.
    pub passes: f64,
    /// In turns of the sum after the first it adds to what is there.
    pub accumulates: bool,
    /// Its scalar operand.
    pub scalar: Option<f64>,
    /// For a tile of results that is complete, not for every part of a sum.
    pub once: bool,
    /// What it combines index by index, where its name does not say it.
    pub meaning: Option<Meaning>,
}

/// What an instruction combines, each operand over its own axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Meaning {
    /// How terms become the result.
    pub how: How,
    /// The operands of a term.
    pub terms: Vec<(Join, usize)>,
}

/// The vector instructions of one tile of an operator of a vector unit.
#[must_use]
pub fn instructions(operator: &Operator) -> Vec<Instruction> {
    let out = operator.output();
    let inputs: Vec<usize> = operator
        .operands
        .iter()
        .enumerate()
        .filter(|(_, operand)| operand.role == OperandRole::Input)
        .map(|(at, _)| at)
        .collect();
    let named = |name: &str| operator.operands.iter().position(|operand| operand.name == name);
    let step = |name: &str, reads: Vec<usize>, writes: usize, passes: f64| Instruction {
        name: name.to_owned(),
        over: Over::Operand(if operator.operands[writes].name == "statistics" { reads[0] } else { writes }),
        reads,
        writes,
        in_place: InPlace::Elementwise,
        passes,
        accumulates: false,
        scalar: None,
        once: false,
        meaning: None,
    };
    let combines =
        |how: How, terms: &[usize]| Some(Meaning { how, terms: terms.iter().map(|at| (Join::Mul, *at)).collect() });
    // The sum over how many there are.
    let mean =
        || Instruction { once: true, meaning: combines(How::Mean, &[inputs[0]]), ..step("tmuls", vec![out], out, 1.0) };
    match operator.kind {
        OperatorKind::Elementwise => chain(operator, &inputs, out),
        OperatorKind::Reduce => {
            let word = operator.epilogue.first().map_or("sum", String::as_str);
            let last = operator.dims.last().is_some_and(|dim| dim.role == DimRole::Reduction);
            let averages = word == "mean";
            let word = if averages { "sum" } else { word };
            let (name, passes) = if last { (format!("trow{word}"), 2.0) } else { (format!("tcol{word}"), 1.0) };
            let how = match word {
                "max" => How::Max,
                "min" => How::Min,
                "prod" => How::Product,
                _ => How::Sum,
            };
            let one = Instruction {
                in_place: InPlace::Never,
                over: Over::Operand(inputs[0]),
                accumulates: true,
                meaning: if is_rows_or_columns(operator) { None } else { combines(how, &[inputs[0]]) },
                ..step(&name, vec![inputs[0]], out, passes)
            };
            std::iter::once(one).chain(averages.then(mean)).collect()
        }
        OperatorKind::Softmax | OperatorKind::Norm => {
            let (Some(work), Some(statistics)) = (named("work"), named("statistics")) else { return Vec::new() };
            let mut list = vec![step("tcvt", vec![inputs[0]], work, 1.0)];
            let row = |name: &str| Instruction { in_place: InPlace::Never, ..step(name, vec![work], statistics, 2.0) };
            if operator.kind == OperatorKind::Softmax {
                list.push(row("trowmax"));
                list.push(step("trowexpandsub", vec![work, statistics], work, 1.0));
                list.push(step("texp", vec![work], work, 2.0));
                list.push(row("trowsum"));
                list.push(step("trowexpanddiv", vec![work, statistics], work, 2.0));
            } else {
                if let Some(residual) = named("residual") {
                    list.push(step("tadd", vec![work, residual], work, 1.0));
                }
                let with = |name: &str, scalar: f64| Instruction {
                    scalar: Some(scalar),
                    ..step(name, vec![statistics], statistics, 1.0)
                };
                let columns = operator.dims.last().map_or(1, |dim| dim.extent);
                let over_columns = with("tmuls", 1.0 / columns as f64);
                if named("bias").is_some() {
                    list.extend([row("trowsum"), over_columns.clone()]);
                    list.push(step("trowexpandsub", vec![work, statistics], work, 1.0));
                }
                list.push(Instruction { meaning: combines(How::Sum, &[work, work]), ..row("trowsum") });
                list.extend([over_columns, with("tadds", EPSILON)]);
                list.push(step("trsqrt", vec![statistics], statistics, 2.0));
                list.push(step("trowexpandmul", vec![work, statistics], work, 1.0));
                list.push(step("tcolexpandmul", vec![work, named("weight").unwrap_or(work)], work, 1.0));
                if let Some(bias) = named("bias") {
                    list.push(step("tcolexpandadd", vec![work, bias], work, 1.0));
                }
            }
            list.push(step("tcvt", vec![work], out, 1.0));
            list
        }
        OperatorKind::Transpose => {
            let meaning = if is_matrix(operator) { None } else { combines(How::Set, &[inputs[0]]) };
            vec![Instruction { in_place: InPlace::Never, meaning, ..step("ttrans", vec![inputs[0]], out, 4.0) }]
        }
        OperatorKind::Gather => vec![step("tmov", vec![named("table").unwrap_or(0)], out, 1.0)],
        OperatorKind::Pool => {
            let most = operator.epilogue.iter().any(|word| word == "max");
            let (word, how) = if most { ("tmax", How::Max) } else { ("tadd", How::Sum) };
            let meaning = combines(how, &[inputs[0]]);
            let over = Over::Points;
            let one = Instruction { in_place: InPlace::Never, over, meaning, ..step(word, vec![inputs[0]], out, 1.0) };
            std::iter::once(one).chain((!most).then(mean)).collect()
        }
        OperatorKind::Conv | OperatorKind::Matmul | OperatorKind::Attention => {
            // One multiply-add for each position of the window.
            let meaning = combines(How::Sum, &inputs);
            let over = Over::Points;
            let taps = Instruction { in_place: InPlace::Never, over, meaning, ..step("taxpy", inputs, out, 1.0) };
            let late = (0..operator.operands.len()).filter(|at| operator.operands[*at].role == OperandRole::Late);
            let added = late.map(|at| Instruction {
                once: true,
                meaning: Some(Meaning { how: How::Set, terms: vec![(Join::Add, out), (Join::Add, at)] }),
                ..step("tadd", vec![out, at], out, 1.0)
            });
            let functions = operator
                .epilogue
                .iter()
                .map(|word| Instruction { once: true, ..step(&format!("t{word}"), vec![out], out, passes(word)) });
            std::iter::once(taps).chain(added).chain(functions).collect()
        }
    }
}

/// How often the unit goes over the elements for one function: an estimate.
#[must_use]
pub fn passes(word: &str) -> f64 {
    match word {
        "div" | "exp" | "log" | "sqrt" | "rsqrt" | "recip" => 2.0,
        "sigmoid" => 3.0,
        "silu" | "tanh" => 4.0,
        "swiglu" => 5.0,
        "gelu" | "erf" | "pow" => 8.0,
        _ => 1.0,
    }
}

/// Two-operand functions take the next input, the others what is there so far.
fn chain(operator: &Operator, inputs: &[usize], out: usize) -> Vec<Instruction> {
    let two = |word: &str| matches!(word, "add" | "sub" | "mul" | "div" | "max" | "min");
    let mut words: Vec<String> = operator.epilogue.clone();
    // Inputs that no function takes are added.
    let taken = words.iter().filter(|word| two(word)).count();
    for _ in taken + 1..inputs.len() {
        words.push("add".to_owned());
    }
    if words.is_empty() {
        words.push("cast".to_owned());
    }
    let mut list = Vec::new();
    let (mut now, mut next) = (inputs[0], 1);
    for word in words {
        let mut reads = vec![now];
        let mut name = format!("t{word}");
        if two(&word) {
            let mut other = inputs.get(next).copied().unwrap_or(now);
            next += 1;
            let repeated = |at: usize| operator.operands[at].elements() != operator.operands[out].elements();
            if repeated(now) && !repeated(other) && matches!(word.as_str(), "add" | "mul" | "max" | "min") {
                // The second one is the one that is repeated.
                reads = vec![std::mem::replace(&mut other, now)];
            }
            let rows = operator.operands[other].axes.last().is_some_and(|axis| axis.terms.is_empty());
            if repeated(other) {
                name = format!("{}expand{word}", if rows { "trow" } else { "tcol" });
            }
            reads.push(other);
        }
        if word == "cast" {
            name = "tcvt".to_owned();
        }
        let passes = passes(&word);
        let meaning = Join::of(&word)
            .filter(|_| !lies_along(operator, &name, &reads))
            .map(|join| Meaning { how: How::Set, terms: reads.iter().map(|at| (join, *at)).collect() });
        list.push(Instruction {
            name,
            reads,
            writes: out,
            in_place: InPlace::Elementwise,
            over: Over::Operand(out),
            passes,
            accumulates: false,
            scalar: None,
            once: false,
            meaning,
        });
        now = out;
    }
    list
}

/// Whether operands are repeated along rows or columns, as the name of an elementwise instruction says.
fn lies_along(operator: &Operator, name: &str, reads: &[usize]) -> bool {
    let own = |operand: usize| -> Vec<bool> {
        // Axes of one element say nothing; neighbours that are alike are one.
        let out = &operator.operands[operator.output()];
        let mut list: Vec<bool> = (out.axes.iter())
            .zip(&operator.operands[operand].axes)
            .filter(|(all, _)| all.extent > 1)
            .map(|(all, own)| own.extent == all.extent)
            .collect();
        list.dedup();
        list
    };
    let whole = |operand: usize| own(operand).iter().all(|own| *own);
    let along = |operand: usize| match own(operand).as_slice() {
        [true, false] => name.starts_with("trow"),
        [false, true] => name.starts_with("tcol"),
        list => list.iter().all(|own| *own),
    };
    reads.first().is_none_or(|operand| whole(*operand)) && reads.iter().skip(1).all(|operand| along(*operand))
}

/// Whether a reduction is over the first or the last axes: of rows or of columns.
fn is_rows_or_columns(operator: &Operator) -> bool {
    let roles: Vec<DimRole> = operator.dims.iter().filter(|dim| dim.extent > 1).map(|dim| dim.role).collect();
    let turns = roles.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let ends = operator.dims.last().map(|dim| dim.role) == roles.last().copied();
    turns <= 1 && (ends || roles.is_empty())
}

/// Whether a transpose exchanges the rows and the columns of a matrix.
fn is_matrix(operator: &Operator) -> bool {
    let order =
        |operand: usize| -> Vec<usize> { operator.operands[operand].axes.iter().filter_map(Axis::as_plain).collect() };
    matches!((order(0).as_slice(), order(operator.output()).as_slice()), ([a, b], [c, d]) if a == d && b == c && a != b)
}
