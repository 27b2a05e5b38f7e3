//! When does the next turn of a loop repeat an earlier one?
//!
//! The body of a loop sees its counter through the slots, starts and counts of its accesses, its branches and
//! the bounds of inner loops. Each of these either does not follow the counter, or follows it in a *finite* way:
//! with a period (a slot is taken modulo the number of slots) and with values at which it changes (`i == 0`,
//! `i < n`). If the state at the head of a turn equals the state one period earlier and no such value lies
//! between, all turns up to the next such value repeat, and may be passed over. An expression that follows the
//! counter in any other way makes the loop *open*: every turn is run.

use npumem_ir::program::{Affine, Op, Program, Role, Root, ScalarKind, Step, Structure, Sync};
use npumem_ir::{ScalarId, StepId};
use std::collections::BTreeMap;

/// The longest period that is looked for.
pub(super) const MAX_PERIOD: u64 = 1024;

/// How the body of one loop follows its counter.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    /// Turns after which everything but the values in `changes` repeats; `None`: open.
    pub period: Option<u64>,
    /// `factor * counter + rest` is compared with 0.
    changes: Vec<(i64, Affine)>,
}

impl Turns {
    /// Counter values at which something may change: known ones, ascending. The rests are fixed in the loop.
    pub fn changes(&self, mut value: impl FnMut(&Affine) -> Option<i64>) -> Vec<i64> {
        let mut list = Vec::new();
        for (factor, rest) in &self.changes {
            // Unknown: the comparison is unknown in every turn, so it changes nowhere.
            let Some(rest) = value(rest) else { continue };
            let Some(root) = rest.checked_neg().and_then(|n| n.checked_div_euclid(*factor)) else { continue };
            list.extend([root, root.saturating_add(1)]);
        }
        list.sort_unstable();
        list.dedup();
        list
    }
}

#[derive(Clone, Debug)]
enum Class {
    /// Does not follow the counter.
    Free,
    /// `factor * counter + rest`, the rest free; `fixed` when the rest has one value in all of the loop.
    Linear {
        factor: i64,
        rest: Affine,
        fixed: bool,
    },
    /// Follows it through periods and changes.
    Finite {
        period: u64,
        changes: Vec<(i64, Affine)>,
    },
    Open,
}

/// Scalars that decide which on-chip bytes are touched, by any way.
///
/// With `order`, also those that decide which flags and tokens are meant.
pub(super) fn relevant(program: &Program, order: bool) -> Vec<bool> {
    let mut relevant = vec![false; program.scalars.len()];
    let mut pending: Vec<ScalarId> = Vec::new();
    let mut add = |affine: &Affine| pending.extend(affine.terms.iter().map(|term| term.0));
    for step in &program.steps {
        match step {
            Step::Run(operation) => {
                for access in operation.reads.iter().chain(&operation.writes) {
                    if !on_chip(program, access.root) {
                        continue;
                    }
                    add(&access.slot);
                    add(&access.start);
                    access.extents.iter().for_each(|extent| add(&extent.count));
                }
            }
            Step::If(value) | Step::Leave(value) => add(value),
            Step::For { start, stop, step, .. } => [start, stop, step].into_iter().for_each(&mut add),
            Step::Assign(assign) => assign.handles.iter().for_each(|(_, _, delta)| add(delta)),
            Step::Sync(sync) if order => event(sync).into_iter().for_each(&mut add),
            _ => {}
        }
    }
    let mut by_target: BTreeMap<ScalarId, Vec<&Affine>> = BTreeMap::new();
    for step in &program.steps {
        if let Step::Assign(assign) = step {
            for (target, value) in &assign.scalars {
                by_target.entry(*target).or_default().push(value);
            }
        }
    }
    while let Some(scalar) = pending.pop() {
        if std::mem::replace(&mut relevant[scalar.index()], true) {
            continue;
        }
        if let ScalarKind::Computed(compute) = &program.scalar(scalar).kind {
            pending.extend(compute.operands.iter().flat_map(|o| o.terms.iter().map(|term| term.0)));
        }
        for value in by_target.get(&scalar).into_iter().flatten() {
            pending.extend(value.terms.iter().map(|term| term.0));
        }
    }
    relevant
}

/// The event, token or flag that a step of order names.
fn event(sync: &Sync) -> Option<&Affine> {
    match sync {
        Sync::SetFlag { event: value, .. }
        | Sync::WaitFlag { event: value, .. }
        | Sync::Acquire { token: value, .. }
        | Sync::Release { token: value, .. }
        | Sync::Post { flag: value, .. }
        | Sync::Await { flag: value, .. } => Some(value),
        Sync::Barrier(_) => None,
    }
}

pub(super) fn on_chip(program: &Program, root: Root) -> bool {
    match root {
        Root::Buffer(id) => program.buffer(program.owner(id).0).role != Role::External,
        Root::Handle(_) => true,
    }
}

/// How the loop opened at `opener` follows its counter; with `order`, its flags and tokens too.
pub(super) fn turns(program: &Program, structure: &Structure, relevant: &[bool], opener: StepId, order: bool) -> Turns {
    let Step::For { counter, step, .. } = &program.steps[opener.index()] else {
        return Turns { period: Some(1), changes: Vec::new() };
    };
    let open = Turns { period: None, changes: Vec::new() };
    let Some(by) = step.as_constant() else { return open };
    let body = opener.index() + 1..structure.partner(opener).index();
    let mut local = vec![false; program.scalars.len()];
    for step in &program.steps[body.clone()] {
        match step {
            Step::For { counter, .. } => local[counter.index()] = true,
            Step::Assign(assign) => assign.scalars.iter().for_each(|(target, _)| local[target.index()] = true),
            _ => {}
        }
    }
    let all_slots = program.buffers.iter().fold(1, |all, buffer| lcm(all, u64::from(buffer.slots)).min(MAX_PERIOD + 1));
    let mut classes = Classes { program, counter: *counter, by, local, known: BTreeMap::new() };
    let (mut period, mut changes) = (1_u64, Vec::new());
    let mut meet = |class: Class| match class {
        Class::Free => true,
        Class::Finite { period: p, changes: c } => {
            period = lcm(period, p);
            changes.extend(c);
            period <= MAX_PERIOD
        }
        Class::Linear { .. } | Class::Open => false,
    };
    for step in &program.steps[body] {
        let fine = match step {
            Step::Run(operation) => operation.reads.iter().chain(&operation.writes).all(|access| {
                if !on_chip(program, access.root) {
                    return true;
                }
                let slots = match access.root {
                    Root::Buffer(id) => u64::from(program.buffer(program.owner(id).0).slots),
                    // Any buffer may be named: a period that is one of every number of slots.
                    Root::Handle(_) => all_slots,
                };
                let slot = match (classes.affine(&access.slot), slots) {
                    (_, 1) => Class::Free,
                    (Class::Linear { factor, .. }, slots) if slots > 1 => rotation(factor, by, slots),
                    (class, _) => class,
                };
                meet(slot)
                    && meet(classes.affine(&access.start))
                    && access.extents.iter().all(|extent| meet(classes.affine(&extent.count)))
            }),
            Step::If(value) | Step::Leave(value) => {
                let class = classes.affine(value);
                meet(compared(class, None))
            }
            Step::For { start, stop, step, .. } => {
                [start, stop, step].into_iter().all(|affine| meet(classes.affine(affine)))
            }
            Step::Assign(assign) => {
                let scalars = assign.scalars.iter().filter(|(target, _)| relevant[target.index()]);
                scalars
                    .map(|(_, value)| value)
                    .chain(assign.handles.iter().map(|(_, _, delta)| delta))
                    .all(|value| meet(classes.affine(value)))
            }
            Step::Sync(sync) if order => event(sync).is_none_or(|value| meet(classes.affine(value))),
            _ => true,
        };
        if !fine {
            return open;
        }
    }
    Turns { period: Some(period), changes }
}

struct Classes<'a> {
    program: &'a Program,
    counter: ScalarId,
    by: i64,
    /// Set somewhere in the body.
    local: Vec<bool>,
    known: BTreeMap<ScalarId, Class>,
}

impl Classes<'_> {
    fn affine(&mut self, affine: &Affine) -> Class {
        let (mut factor, mut rest, mut fixed) = (0, Affine::constant(affine.constant), true);
        let (mut period, mut changes, mut finite) = (1, Vec::new(), false);
        for (scalar, by) in &affine.terms {
            match self.scalar(*scalar) {
                Class::Open => return Class::Open,
                Class::Free => {
                    fixed &= self.is_fixed(*scalar);
                    rest = rest.plus(&Affine::scalar(*scalar).times(*by));
                }
                Class::Linear { factor: f, rest: r, fixed: x } => {
                    factor += f.saturating_mul(*by);
                    rest = rest.plus(&r.times(*by));
                    fixed &= x;
                }
                Class::Finite { period: p, changes: c } => {
                    period = lcm(period, p);
                    changes.extend(c);
                    finite = true;
                }
            }
        }
        match (factor, finite) {
            (0, false) => Class::Free,
            (0, true) => Class::Finite { period, changes },
            (factor, false) => Class::Linear { factor, rest, fixed },
            (_, true) => Class::Open,
        }
    }

    /// Free and of one value in all of the loop.
    fn is_fixed(&self, scalar: ScalarId) -> bool {
        // A computed scalar is fixed when everything under it is; ids under it are smaller, so this ends.
        let mut pending = vec![scalar];
        let mut seen = std::collections::BTreeSet::new();
        while let Some(next) = pending.pop() {
            if self.local[next.index()] {
                return false;
            }
            if let ScalarKind::Computed(compute) = &self.program.scalar(next).kind
                && seen.insert(next)
            {
                pending.extend(compute.operands.iter().flat_map(|o| o.terms.iter().map(|term| term.0)));
            }
        }
        true
    }

    fn scalar(&mut self, scalar: ScalarId) -> Class {
        if scalar == self.counter {
            return Class::Linear { factor: 1, rest: Affine::constant(0), fixed: true };
        }
        if let Some(class) = self.known.get(&scalar) {
            return class.clone();
        }
        let program = self.program;
        if !matches!(program.scalar(scalar).kind, ScalarKind::Computed(_)) {
            return Class::Free;
        }
        // Operands have smaller ids: from the bottom up, no recursion deeper than one.
        let mut needed = vec![scalar];
        let mut index = 0;
        while let Some(next) = needed.get(index).copied() {
            index += 1;
            if let ScalarKind::Computed(compute) = &program.scalar(next).kind {
                for term in compute.operands.iter().flat_map(|o| &o.terms) {
                    let computed = matches!(program.scalar(term.0).kind, ScalarKind::Computed(_));
                    if computed && !self.known.contains_key(&term.0) && !needed.contains(&term.0) {
                        needed.push(term.0);
                    }
                }
            }
            if needed.len() > 4096 {
                return Class::Open;
            }
        }
        needed.sort_unstable();
        for next in needed {
            if let ScalarKind::Computed(compute) = &program.scalar(next).kind {
                let classes: Vec<Class> = compute.operands.iter().map(|operand| self.affine(operand)).collect();
                let class = self.computed(compute.op, &compute.operands, classes);
                self.known.insert(next, class);
            }
        }
        self.known.get(&scalar).cloned().unwrap_or(Class::Open)
    }

    fn computed(&mut self, op: Op, operands: &[Affine], classes: Vec<Class>) -> Class {
        if op == Op::Opaque || classes.iter().all(|class| matches!(class, Class::Free)) {
            return Class::Free;
        }
        let linear = classes.iter().any(|class| matches!(class, Class::Linear { .. }));
        match op {
            Op::Rem => match (&classes[0], operands[1].as_constant()) {
                (Class::Linear { factor, .. }, Some(modulus)) if modulus > 0 => {
                    return rotation(*factor, self.by, modulus.unsigned_abs());
                }
                _ if linear => return Class::Open,
                _ => {}
            },
            Op::Eq | Op::Ne | Op::Lt | Op::Le if linear => {
                let difference = operands[0].minus(&operands[1]);
                let class = self.affine(&difference);
                return compared(class, Some(op));
            }
            _ if linear => return Class::Open,
            _ => {}
        }
        let (mut period, mut changes) = (1, Vec::new());
        for class in classes {
            match class {
                Class::Free => {}
                Class::Finite { period: p, changes: c } => {
                    period = lcm(period, p);
                    changes.extend(c);
                }
                Class::Linear { .. } | Class::Open => return Class::Open,
            }
        }
        Class::Finite { period, changes }
    }
}

/// A value that is compared with 0, or used as a truth.
fn compared(class: Class, _op: Option<Op>) -> Class {
    match class {
        Class::Linear { factor, rest, fixed: true } => Class::Finite { period: 1, changes: vec![(factor, rest)] },
        Class::Linear { .. } => Class::Open,
        other => other,
    }
}

/// `factor * counter` modulo `slots`, the counter going up by `by`.
fn rotation(factor: i64, by: i64, slots: u64) -> Class {
    let step = (i128::from(factor) * i128::from(by)).unsigned_abs() % u128::from(slots.max(1));
    let step = u64::try_from(step).unwrap_or(0);
    let period = slots / gcd(slots, step).max(1);
    if period <= 1 { Class::Free } else { Class::Finite { period, changes: Vec::new() } }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

pub(super) fn lcm(a: u64, b: u64) -> u64 {
    (a / gcd(a, b).max(1)).saturating_mul(b)
}
