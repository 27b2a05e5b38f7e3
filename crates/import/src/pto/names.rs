//! Each name is defined once where it is seen: the rule of MLIR, on the flat list of items.
//!
//! ```text
//!   %a = ..             seen to the end of its region, and in the regions within
//!   scf.if .. { %b }    %b is gone here: it may be defined again
//!   func.func           sees nothing from outside
//! ```
//!
//! The results of an operation with regions are defined when its last region has closed.

use super::PtoError;
use super::parse::{Item, RawOp};
use std::collections::HashMap;

/// A region, the names that it defined, and what its operation defines once the last region closes.
struct Region<'s> {
    defined: Vec<&'s str>,
    results: Vec<&'s str>,
    /// Names of the functions around it, put aside: nothing is seen through a function's edge.
    outside: Option<HashMap<&'s str, usize>>,
}

/// Refuses the first name that is defined where it is still seen.
pub(super) fn check<'s>(source: &'s str, items: &[Item<'s>]) -> Result<(), PtoError> {
    let mut names = Names { source, seen: HashMap::new(), regions: Vec::new() };
    let mut pending: Option<&RawOp<'s>> = None;
    let mut results: Vec<&'s str> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match item {
            Item::Op(op) => match items.get(index + 1) {
                Some(Item::Open) => pending = Some(op),
                _ => op.results.iter().try_for_each(|(name, _)| names.define(name))?,
            },
            Item::Open => {
                let op = pending.take();
                let isolated = op.is_some_and(|op| matches!(op.name, "func.func" | "func"));
                if let Some(op) = op {
                    results = op.results.iter().map(|(name, _)| *name).collect();
                }
                names.enter(std::mem::take(&mut results), isolated);
                if let Some(op) = op {
                    arguments(op).into_iter().try_for_each(|name| names.define(name))?;
                }
            }
            // The operation goes on with another region; aliases name no value.
            Item::Next(_) | Item::Alias { .. } => {}
            Item::Label(list) => list.iter().try_for_each(|argument| names.define(argument.value))?,
            Item::Close => {
                let given = names.leave();
                if matches!(items.get(index + 1), Some(Item::Next(_))) {
                    results = given;
                } else {
                    given.into_iter().try_for_each(|name| names.define(name))?;
                }
            }
        }
    }
    Ok(())
}

/// Names that an operation's first region begins with.
fn arguments<'s>(op: &RawOp<'s>) -> Vec<&'s str> {
    let keys = |group: &str| -> Vec<&'s str> {
        op.group(group).map_or(&[][..], |(items, _)| items).iter().filter_map(|item| item.key).collect()
    };
    match op.name {
        "func.func" | "func" => op.group("").map_or(&[][..], |(items, _)| items).iter().map(|item| item.text).collect(),
        "scf.for" => op.values().first().map(|(name, _)| *name).into_iter().chain(keys("iter_args")).collect(),
        "scf.while" => keys(""),
        _ => Vec::new(),
    }
}

struct Names<'s> {
    source: &'s str,
    /// Where each name that is seen here was defined.
    seen: HashMap<&'s str, usize>,
    regions: Vec<Region<'s>>,
}

impl<'s> Names<'s> {
    fn enter(&mut self, results: Vec<&'s str>, isolated: bool) {
        let outside = isolated.then(|| std::mem::take(&mut self.seen));
        self.regions.push(Region { defined: Vec::new(), results, outside });
    }

    /// Forgets what the region defined; the results of its operation.
    fn leave(&mut self) -> Vec<&'s str> {
        let Some(region) = self.regions.pop() else { return Vec::new() };
        for name in region.defined {
            self.seen.remove(name);
        }
        if let Some(outside) = region.outside {
            self.seen = outside;
        }
        region.results
    }

    fn define(&mut self, name: &'s str) -> Result<(), PtoError> {
        if !name.starts_with('%') {
            return Ok(());
        }
        // `name` is a piece of the source.
        let at = (name.as_ptr() as usize).saturating_sub(self.source.as_ptr() as usize);
        if let Some(first) = self.seen.insert(name, at) {
            let first = PtoError::at(self.source, first, "");
            let problem = format!(
                "'{name}' is defined a second time; it was first defined at line {}, column {}",
                first.line, first.column
            );
            return Err(PtoError::at(self.source, at, problem));
        }
        if let Some(region) = self.regions.last_mut() {
            region.defined.push(name);
        }
        Ok(())
    }
}
