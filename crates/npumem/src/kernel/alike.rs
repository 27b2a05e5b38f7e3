//! Whether two programs take the same way: the same loops and branches around the same statements.
//!
//! Values are compared by numbers, not by how they are computed: a compiler between the two files may have rewritten
//! the arithmetic. So a difference that is found is one; that none is found proves nothing for all inputs.

use npumem_ir::program::{Affine, Program, ScalarKind, Step, Values};
use npumem_ir::{ScalarId, StepId};

/// Numbers that the first argument gets in turn, and how far each argument is from the one before it.
const TRIED: std::ops::Range<i64> = -3..9;
const APART: [i64; 4] = [0, 1, -1, 5];
const CONDITION: &str = "a condition";

/// A step that makes the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Statement,
    For,
    Loop,
    Leave,
    If,
    Else,
    End,
}

impl Mark {
    fn words(self) -> &'static str {
        match self {
            Mark::Statement => "a statement",
            Mark::For => "a loop that counts",
            Mark::Loop => "a loop",
            Mark::Leave => "the test of a loop",
            Mark::If => "a branch",
            Mark::Else => "the other side of a branch",
            Mark::End => "the end of a loop or branch",
        }
    }
}

/// The first step of each at which their ways differ, and how.
pub(super) fn difference(first: &Program, second: &Program) -> Option<(StepId, StepId, String)> {
    let (ours, theirs) = (marks(first), marks(second));
    let last = |program: &Program| StepId::new(program.steps.len().saturating_sub(1));
    for index in 0..ours.len().max(theirs.len()) {
        let (own, other) = (ours.get(index), theirs.get(index));
        let words = |mark: Option<&(Mark, StepId)>| mark.map_or("nothing more", |mark| mark.0.words());
        if own.map(|mark| mark.0) != other.map(|mark| mark.0) {
            let (at, with) = (own.map_or(last(first), |mark| mark.1), other.map_or(last(second), |mark| mark.1));
            return Some((at, with, format!("{} in one, {} in the other", words(own), words(other))));
        }
    }
    let pairs: Vec<(StepId, StepId)> = ours.iter().zip(&theirs).map(|(own, other)| (own.1, other.1)).collect();
    let asking: Vec<(StepId, StepId)> =
        pairs.iter().copied().filter(|(at, _)| !asked(&first.steps[at.index()]).is_empty()).collect();
    let tried = TRIED.flat_map(|value| APART.map(|apart| (value, apart)));
    tried.into_iter().find_map(|(value, apart)| {
        let (ours, theirs) = (inputs(first, &pairs, value, apart, true), inputs(second, &pairs, value, apart, false));
        asking.iter().find_map(|(at, with)| {
            let (own, other) = (asked(&first.steps[at.index()]), asked(&second.steps[with.index()]));
            let unlike = own.into_iter().zip(other).find_map(|((what, own), (_, other))| {
                let (own, other) = (ours.affine(first, own)?, theirs.affine(second, other)?);
                let truth = |value: i64| if what == CONDITION { i64::from(value != 0) } else { value };
                let (own, other) = (truth(own), truth(other));
                (own != other).then(|| format!("{what} is {own} in one and {other} in the other for the same inputs"))
            })?;
            Some((*at, *with, unlike))
        })
    })
}

/// The steps that make the way; regions without a statement are left out.
fn marks(program: &Program) -> Vec<(Mark, StepId)> {
    let mut out: Vec<(Mark, StepId)> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    for (index, step) in program.steps.iter().enumerate() {
        let mark = match step {
            Step::Run(_) => Mark::Statement,
            Step::For { .. } => Mark::For,
            Step::Loop => Mark::Loop,
            Step::Leave(_) => Mark::Leave,
            Step::If(_) => Mark::If,
            Step::Else => Mark::Else,
            Step::End => Mark::End,
            Step::Sync(_) | Step::Assign(_) => continue,
        };
        match mark {
            Mark::For | Mark::Loop | Mark::If => open.push(out.len()),
            Mark::End => {
                // An empty other side, then an empty region.
                if out.last().is_some_and(|last| last.0 == Mark::Else) {
                    out.pop();
                }
                let start = open.pop().unwrap_or(0);
                if !out[start..].iter().any(|mark| mark.0 == Mark::Statement) {
                    out.truncate(start);
                    continue;
                }
            }
            _ => {}
        }
        out.push((mark, StepId::new(index)));
    }
    out
}

/// What a step asks of values.
fn asked(step: &Step) -> Vec<(&'static str, &Affine)> {
    match step {
        Step::For { start, stop, step, .. } => {
            vec![("the first value of a loop", start), ("the end of a loop", stop), ("the step of a loop", step)]
        }
        Step::If(condition) | Step::Leave(condition) => vec![(CONDITION, condition)],
        _ => Vec::new(),
    }
}

/// Numbers for all that a program is given, and for the counters of the loops that both have.
fn inputs(program: &Program, pairs: &[(StepId, StepId)], value: i64, apart: i64, first: bool) -> Values {
    let mut values = Values::new(program);
    let given = (0..program.scalars.len())
        .map(ScalarId::new)
        .filter(|id| matches!(program.scalar(*id).kind, ScalarKind::Argument(None) | ScalarKind::Grid(_)));
    given.zip(0..).for_each(|(id, next)| values.set(id, Some(value + apart * next)));
    let loops = pairs.iter().map(|pair| if first { pair.0 } else { pair.1 });
    let counters = loops.filter_map(|at| match &program.steps[at.index()] {
        Step::For { counter, .. } => Some(*counter),
        _ => None,
    });
    counters.zip(0..).for_each(|(id, next)| values.set(id, Some(value + 2 * next)));
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn program(body: &str) -> Program {
        let tile = "!pto.tile_buf<loc=vec, dtype=f32, rows=8, cols=32>";
        let text = format!(
            "func.func @k(%p: memref<8x32xf32>, %n: index, %m: index) {{\n  %a = pto.alloc_tile : {tile}\n  \
             %c0 = arith.constant 0 : index\n  %c1 = arith.constant 1 : index\n  %c2 = arith.constant 2 : index\n{body}  return\n}}\n"
        );
        let load = format!("pto.tload ins(%p : memref<8x32xf32>) outs(%a : {tile})");
        let file = crate::kernel::read(&text.replace("LOAD", &load), &BTreeMap::new()).unwrap();
        file.kernels[0].program.clone()
    }

    #[test]
    fn ways_differ_by_their_loops_branches_and_numbers() {
        let branch =
            |condition: &str| program(&format!("  %t = {condition} : index\n  scf.if %t {{\n    LOAD\n  }}\n"));
        let less = branch("arith.cmpi slt, %n, %m");
        let same = [branch("arith.cmpi sgt, %m, %n"), less.clone()];
        for other in &same {
            assert_eq!(difference(&less, other), None);
        }
        let unlike = [
            branch("arith.cmpi sle, %n, %m"),
            program("  LOAD\n"),
            program("  scf.for %i = %c0 to %n step %c1 {\n    LOAD\n  }\n"),
            program("  %t = arith.cmpi slt, %n, %m : index\n  scf.if %t {\n  } else {\n    LOAD\n  }\n"),
        ];
        for other in &unlike {
            assert!(difference(&less, other).is_some());
            assert!(difference(other, &less).is_some());
        }
        // A loop that turns as often, written otherwise, and a region without a statement.
        let doubled = |bound: &str| {
            program(&format!("  %b = {bound} : index\n  scf.for %i = %c0 to %b step %c1 {{\n    LOAD\n  }}\n"))
        };
        let (sum, product) = (doubled("arith.addi %n, %n"), doubled("arith.muli %n, %c2"));
        assert_eq!(difference(&sum, &product), None);
        assert!(difference(&sum, &doubled("arith.addi %n, %c2")).unwrap().2.starts_with("the end of a loop is"));
        let idle = program("  scf.for %i = %c0 to %n step %c1 {\n  }\n  LOAD\n");
        assert_eq!(difference(&idle, &program("  LOAD\n")), None);
    }
}
