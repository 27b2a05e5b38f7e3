//! The vector instructions of an operator, tile by tile: what is emitted, and what the time is counted from.

use super::operator::{Axis, DimRole, OperandRole, Operator, OperatorKind};
use npumem_ir::program::InPlace;

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
    };
    match operator.kind {
        OperatorKind::Elementwise => chain(operator, &inputs, out),
        OperatorKind::Reduce => {
            let word = operator.epilogue.first().map_or("sum", String::as_str);
            let last = operator.dims.last().is_some_and(|dim| dim.role == super::operator::DimRole::Reduction);
            let (name, passes) = if last { (format!("trow{word}"), 2.0) } else { (format!("tcol{word}"), 1.0) };
            let one = step(&name, vec![inputs[0]], out, passes);
            vec![Instruction { in_place: InPlace::Never, over: Over::Operand(inputs[0]), accumulates: true, ..one }]
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
                if named("bias").is_some() {
                    list.push(row("trowsum"));
                    list.push(step("trowexpandsub", vec![work, statistics], work, 1.0));
                }
                list.push(row("trowsum"));
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
            vec![Instruction { in_place: InPlace::Never, ..step("ttrans", vec![inputs[0]], out, 4.0) }]
        }
        OperatorKind::Gather => vec![step("tmov", vec![named("table").unwrap_or(0)], out, 1.0)],
        OperatorKind::Pool => {
            let word = if operator.epilogue.iter().any(|word| word == "max") { "tmax" } else { "tadd" };
            vec![Instruction { in_place: InPlace::Never, over: Over::Points, ..step(word, vec![inputs[0]], out, 1.0) }]
        }
        OperatorKind::Conv | OperatorKind::Matmul | OperatorKind::Attention => {
            // One multiply-add for each position of the window.
            vec![Instruction { in_place: InPlace::Never, over: Over::Points, ..step("taxpy", inputs, out, 1.0) }]
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
        list.push(Instruction {
            name,
            reads,
            writes: out,
            in_place: InPlace::Elementwise,
            over: Over::Operand(out),
            passes,
            accumulates: false,
        });
        now = out;
    }
    list
}

/// What the name of an instruction does not say of it, where a tile is more than rows and columns: `None` when the name is
/// the whole meaning.
#[must_use]
pub fn unsaid(operator: &Operator, instruction: &Instruction) -> Option<&'static str> {
    let own = |operand: usize| -> Vec<bool> {
        // Axes of one element say nothing; neighbours that are alike are one.
        let out = &operator.operands[operator.output()];
        let mut list: Vec<bool> = out
            .axes
            .iter()
            .zip(&operator.operands[operand].axes)
            .filter(|(all, _)| all.extent > 1)
            .map(|(all, own)| own.extent == all.extent)
            .collect();
        list.dedup();
        list
    };
    match operator.kind {
        OperatorKind::Elementwise => {
            let whole = |operand: usize| own(operand).iter().all(|own| *own);
            let along = |operand: usize| match own(operand).as_slice() {
                [true, false] => instruction.name.starts_with("trow"),
                [false, true] => instruction.name.starts_with("tcol"),
                list => list.iter().all(|own| *own),
            };
            let first = instruction.reads.first().is_none_or(|operand| whole(*operand));
            let fits = first && instruction.reads.iter().skip(1).all(|operand| along(*operand));
            (!fits).then_some("with an operand that is repeated along other axes than rows or columns")
        }
        OperatorKind::Reduce => {
            let roles: Vec<DimRole> = operator.dims.iter().filter(|dim| dim.extent > 1).map(|dim| dim.role).collect();
            let turns = roles.windows(2).filter(|pair| pair[0] != pair[1]).count();
            let ends = operator.dims.last().map(|dim| dim.role) == roles.last().copied();
            (turns > 1 || !(ends || roles.is_empty()))
                .then_some("over axes that are neither the first nor the last ones")
        }
        OperatorKind::Transpose => {
            let order = |operand: usize| -> Vec<usize> {
                let axes = operator.operands[operand].axes.iter();
                axes.filter(|axis| axis.extent > 1).filter_map(Axis::as_plain).collect()
            };
            let (from, to) = (order(0), order(operator.output()));
            let swapped = matches!((from.as_slice(), to.as_slice()), ([a, b], [c, d]) if a == d && b == c);
            (!(swapped || from == to && from.len() < 2)).then_some("of more than the rows and columns of a matrix")
        }
        OperatorKind::Norm if instruction.name == "trowsum" || instruction.name == "trowexpandmul" => {
            Some("of squares, and of the reciprocal root of their mean")
        }
        OperatorKind::Gather => Some("of the rows that the index names"),
        _ => None,
    }
}
