//! Counted work: the only clock that the placement knows.

use super::race::Halt;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// Counts work against a limit and watches the cancel flag.
pub(crate) struct Meter<'a> {
    spent: u64,
    limit: u64,
    halt: Halt<'a>,
    by_method: BTreeMap<&'static str, u64>,
}

impl<'a> Meter<'a> {
    pub fn new(limit: u64, cancel: Option<&'a AtomicBool>) -> Meter<'a> {
        Meter::within(limit, Halt::by(cancel))
    }

    /// A meter of its own for one attempt.
    pub fn within(limit: u64, halt: Halt<'a>) -> Meter<'a> {
        Meter { spent: 0, limit, halt, by_method: BTreeMap::new() }
    }

    /// Adds work that was done.
    pub fn spend(&mut self, work: u64) {
        self.spent = self.spent.saturating_add(work);
    }

    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// Work that may still be done.
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.spent)
    }

    /// Leaves at most `share` of what may still be done; returns the limit to give back to [`Meter::widen`].
    pub fn narrow(&mut self, share: u64) -> u64 {
        let limit = self.limit;
        self.limit = limit.min(self.spent.saturating_add(share));
        limit
    }

    /// Sets the limit as it was before [`Meter::narrow`].
    pub fn widen(&mut self, limit: u64) {
        self.limit = limit;
    }

    pub fn is_interrupted(&self) -> bool {
        self.halt.is_set()
    }

    pub fn halt(&self) -> Halt<'a> {
        self.halt
    }

    /// Books the work since `before` on a method.
    pub fn book(&mut self, method: &'static str, before: u64) {
        *self.by_method.entry(method).or_insert(0) += self.spent - before;
    }

    /// Counts something that is not work.
    pub fn note(&mut self, what: &'static str, count: u64) {
        *self.by_method.entry(what).or_insert(0) += count;
    }

    /// Work by method.
    pub fn by_method(&self) -> &BTreeMap<&'static str, u64> {
        &self.by_method
    }
}
