//! Dimensions while a model is read: names and their bindings, fresh names for what no file knows, arithmetic.
//!
//! Every sum is kept in one order (`a + b` and `b + a` are the same dimension, `a + b - b` is `a`),
//! so that two paths through a graph that compute the same length agree on it.

use super::Binding;
use npumem_ir::graph::{DimExpr, Symbol};
use npumem_ir::{Dim, SymbolId};
use std::collections::{BTreeMap, HashMap};

/// The named dimensions of a model, and what the caller said of them.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    list: Vec<Symbol>,
    /// Which of them no file named.
    made_up: Vec<bool>,
    by_name: HashMap<String, SymbolId>,
    bindings: BTreeMap<String, Binding>,
    /// Names that were looked up and are bound to a number.
    used: Vec<String>,
    /// Set when a number left 64 bits; whoever looks takes it.
    overflow: bool,
}

impl Symbols {
    pub(super) fn new(bindings: &BTreeMap<String, Binding>) -> Self {
        Symbols { bindings: bindings.clone(), ..Symbols::default() }
    }

    /// The dimension of that name: a number when it is bound to one.
    pub(super) fn named(&mut self, name: &str) -> Dim {
        self.look_up(name, false, None)
    }

    /// A dimension that no file names, under a name that tells where it comes from; it may be bound as well.
    pub(super) fn fresh(&mut self, name: &str, range: Option<(u64, u64)>) -> Dim {
        let mut unique = name.to_string();
        let mut count = 1;
        while self.by_name.contains_key(&unique) {
            count += 1;
            unique = format!("{name}~{count}");
        }
        self.look_up(&unique, true, range)
    }

    fn look_up(&mut self, name: &str, made_up: bool, range: Option<(u64, u64)>) -> Dim {
        let range = match self.bindings.get(name) {
            Some(binding) => {
                if self.used.last().is_none_or(|last| last != name) {
                    self.used.push(name.to_string());
                }
                match *binding {
                    Binding::Number(number) => return Dim::Known(number),
                    Binding::Range(low, high) => Some((low, high)),
                }
            }
            None => range,
        };
        if let Some(id) = self.by_name.get(name) {
            return Dim::Symbol(*id);
        }
        let id = SymbolId::new(self.list.len());
        self.by_name.insert(name.to_string(), id);
        self.list.push(Symbol { name: name.to_string(), range });
        self.made_up.push(made_up);
        Dim::Symbol(id)
    }

    /// Whether this is a dimension that npumem had to make up.
    pub(super) fn is_made_up(&self, dim: &Dim) -> bool {
        matches!(dim, Dim::Symbol(id) if self.made_up[id.index()])
    }

    /// Whether the symbol has neither a number nor a range.
    pub(super) fn is_open(&self, id: SymbolId) -> bool {
        self.list[id.index()].range.is_none()
    }

    pub(super) fn name(&self, id: SymbolId) -> &str {
        &self.list[id.index()].name
    }

    pub(super) fn list(&self) -> &[Symbol] {
        &self.list
    }

    /// The bindings that no dimension of the model answers to.
    pub(super) fn unused_bindings(&self) -> Vec<&str> {
        self.bindings.keys().filter(|name| !self.used.contains(name)).map(String::as_str).collect()
    }

    /// Whether a number left 64 bits since the last call.
    pub(super) fn take_overflow(&mut self) -> bool {
        std::mem::take(&mut self.overflow)
    }

    fn settle(&mut self, result: Option<Dim>, known: bool) -> Dim {
        match result {
            Some(dim) => dim,
            None if known => {
                self.overflow = true;
                Dim::Known(u64::MAX)
            }
            None => self.fresh("computed", None),
        }
    }

    /// `a + b`, in one order whatever way it is asked for.
    pub(super) fn add(&mut self, a: &Dim, b: &Dim) -> Dim {
        if let (Dim::Known(a), Dim::Known(b)) = (a, b) {
            let sum = a.checked_add(*b).map(Dim::Known);
            return self.settle(sum, true);
        }
        let mut sum = Linear::of(a);
        sum.add(b, 1);
        let dim = sum.into_dim();
        self.settle(dim, false)
    }

    /// `a - b`, held at zero.
    pub(super) fn sub(&mut self, a: &Dim, b: &Dim) -> Dim {
        if let (Dim::Known(a), Dim::Known(b)) = (a, b) {
            return Dim::Known(a.saturating_sub(*b));
        }
        let mut sum = Linear::of(a);
        sum.add(b, -1);
        let dim = sum.into_dim();
        self.settle(dim, false)
    }

    /// `dim + number`, held at zero.
    pub(super) fn offset(&mut self, dim: &Dim, number: i64) -> Dim {
        let distance = Dim::Known(number.unsigned_abs());
        if number < 0 { self.sub(dim, &distance) } else { self.add(dim, &distance) }
    }

    /// `a * b`.
    pub(super) fn mul(&mut self, a: &Dim, b: &Dim) -> Dim {
        if let (Dim::Known(a), Dim::Known(b)) = (a, b) {
            let product = a.checked_mul(*b).map(Dim::Known);
            return self.settle(product, true);
        }
        let dim = Product::of(&[a.clone(), b.clone()]).and_then(Product::into_dim);
        self.settle(dim, false)
    }

    /// The product of all.
    pub(super) fn product(&mut self, dims: &[Dim]) -> Dim {
        if dims.contains(&Dim::Known(0)) {
            return Dim::Known(0);
        }
        if dims.iter().all(|dim| dim.known().is_some()) {
            return dims.iter().fold(Dim::Known(1), |product, dim| self.mul(&product, dim));
        }
        match Product::of(dims) {
            Some(product) => {
                let dim = product.into_dim();
                self.settle(dim, false)
            }
            None => self.settle(None, true),
        }
    }

    /// The product of `all` divided by that of `by`; what is in both is left out of both.
    pub(super) fn quotient(&mut self, all: &[Dim], by: &[Dim]) -> Dim {
        let (Some(mut all), Some(mut by)) = (Product::of(all), Product::of(by)) else { return self.settle(None, true) };
        all.cancel(&mut by);
        let dim = all.into_dim().zip(by.into_dim()).and_then(|(all, by)| all.floor_div(by));
        self.settle(dim, false)
    }

    /// `a / b` rounded down.
    pub(super) fn floor_div(&mut self, a: &Dim, b: u64) -> Dim {
        if b > 1
            && a.known().is_none()
            && let Some(whole) = Linear::of(a).divided_by(b)
        {
            return self.settle(whole.into_dim(), false);
        }
        let dim = a.clone().floor_div(Dim::Known(b));
        self.settle(dim, false)
    }

    /// `a / b` rounded up.
    pub(super) fn ceil_div(&mut self, a: &Dim, b: u64) -> Dim {
        if b > 1
            && a.known().is_none()
            && let Some(whole) = Linear::of(a).divided_by(b)
        {
            return self.settle(whole.into_dim(), false);
        }
        let dim = a.clone().ceil_div(Dim::Known(b));
        self.settle(dim, false)
    }

    /// The larger one.
    pub(super) fn max(&mut self, a: &Dim, b: &Dim) -> Dim {
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        let dim = a.clone().max(b.clone());
        self.settle(dim, false)
    }

    /// The smaller one.
    pub(super) fn min(&mut self, a: &Dim, b: &Dim) -> Dim {
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        let dim = a.clone().min(b.clone());
        self.settle(dim, false)
    }
}

/// A sum of whole multiples: `3·s + t - 2`.
struct Linear {
    constant: i128,
    terms: BTreeMap<Dim, i128>,
}

impl Linear {
    fn of(dim: &Dim) -> Self {
        let mut sum = Linear { constant: 0, terms: BTreeMap::new() };
        sum.add(dim, 1);
        sum
    }

    fn add(&mut self, dim: &Dim, times: i128) {
        let mut todo = vec![(dim, times)];
        while let Some((dim, times)) = todo.pop() {
            match dim {
                Dim::Known(number) => {
                    self.constant = self.constant.saturating_add(times.saturating_mul(i128::from(*number)));
                }
                Dim::Expr(expr) => match &**expr {
                    DimExpr::Add(a, b) => todo.extend([(a, times), (b, times)]),
                    DimExpr::Sub(a, b) => todo.extend([(a, times), (b, -times)]),
                    DimExpr::Mul(Dim::Known(number), rest) | DimExpr::Mul(rest, Dim::Known(number)) => {
                        todo.push((rest, times.saturating_mul(i128::from(*number))));
                    }
                    _ => self.count(dim, times),
                },
                Dim::Symbol(_) => self.count(dim, times),
            }
        }
    }

    fn count(&mut self, dim: &Dim, times: i128) {
        let count = self.terms.entry(dim.clone()).or_insert(0);
        *count = count.saturating_add(times);
        if *count == 0 {
            self.terms.remove(dim);
        }
    }

    /// The sum divided by `by`, when every part of it is a multiple.
    fn divided_by(mut self, by: u64) -> Option<Linear> {
        let by = i128::from(by);
        if self.constant % by != 0 || self.terms.values().any(|times| times % by != 0) {
            return None;
        }
        self.constant /= by;
        for times in self.terms.values_mut() {
            *times /= by;
        }
        Some(self)
    }

    /// Positive parts first, then what is taken away; `None` when too large.
    fn into_dim(self) -> Option<Dim> {
        let mut sum: Option<Dim> = None;
        let mut taken: Option<Dim> = None;
        for (dim, times) in self.terms {
            let number = Dim::Known(u64::try_from(times.unsigned_abs()).ok()?);
            let term = number.times(dim)?;
            let side = if times > 0 { &mut sum } else { &mut taken };
            *side = Some(match side.take() {
                Some(dim) => dim.plus(term)?,
                None => term,
            });
        }
        let constant = Dim::Known(u64::try_from(self.constant.unsigned_abs()).ok()?);
        let (mut sum, mut taken) = (sum.unwrap_or(Dim::Known(0)), taken.unwrap_or(Dim::Known(0)));
        if self.constant >= 0 {
            sum = sum.plus(constant)?;
        } else {
            taken = taken.plus(constant)?;
        }
        sum.minus(taken)
    }
}

/// A number times dimensions that are not products themselves.
struct Product {
    number: u64,
    factors: Vec<Dim>,
}

impl Product {
    /// `None` past 64 bits.
    fn of(dims: &[Dim]) -> Option<Self> {
        let mut product = Product { number: 1, factors: Vec::new() };
        let mut todo: Vec<&Dim> = dims.iter().rev().collect();
        while let Some(dim) = todo.pop() {
            match dim {
                Dim::Known(number) => product.number = product.number.checked_mul(*number)?,
                Dim::Expr(expr) => match &**expr {
                    DimExpr::Mul(a, b) => todo.extend([b, a]),
                    _ => product.factors.push(dim.clone()),
                },
                Dim::Symbol(_) => product.factors.push(dim.clone()),
            }
        }
        product.factors.sort_unstable();
        Some(product)
    }

    fn cancel(&mut self, other: &mut Product) {
        self.factors.retain(|factor| match other.factors.iter().position(|f| f == factor) {
            Some(index) => {
                other.factors.remove(index);
                false
            }
            None => true,
        });
        let (mut a, mut b) = (self.number, other.number);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        if a > 1 {
            self.number /= a;
            other.number /= a;
        }
    }

    fn into_dim(self) -> Option<Dim> {
        self.factors.into_iter().try_fold(Dim::Known(self.number), Dim::times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_length_is_the_same_dimension() {
        let mut symbols = Symbols::default();
        let (s, past) = (symbols.named("s"), symbols.named("past"));
        let ab = symbols.add(&s, &past);
        assert_eq!(ab, symbols.add(&past, &s));
        assert_eq!(symbols.sub(&ab, &past), s);
        let doubled = symbols.mul(&ab, &Dim::Known(2));
        assert_eq!(symbols.floor_div(&doubled, 2), ab);
        let three = symbols.offset(&s, 3);
        assert_eq!(symbols.offset(&three, -3), s);
    }

    #[test]
    fn a_quotient_leaves_out_what_is_in_both() {
        let mut symbols = Symbols::default();
        let (b, s) = (symbols.named("b"), symbols.named("s"));
        let all = [b.clone(), Dim::Known(12), s.clone(), Dim::Known(64)];
        assert_eq!(symbols.quotient(&all, &[s, b]), Dim::Known(768));
    }

    #[test]
    fn a_bound_name_is_a_number_and_an_unused_one_is_told() {
        let bindings = [("n".into(), Binding::Number(4)), ("m".into(), Binding::Range(1, 8))].into();
        let mut symbols = Symbols::new(&bindings);
        assert_eq!(symbols.named("n"), Dim::Known(4));
        assert_eq!(symbols.unused_bindings(), ["m"]);
        let m = symbols.named("m");
        assert!(symbols.unused_bindings().is_empty());
        assert!(matches!(m, Dim::Symbol(id) if !symbols.is_open(id)));
    }
}
