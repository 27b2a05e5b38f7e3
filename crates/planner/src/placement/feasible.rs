//! Does an instance fit below a ceiling? The cheap answers first, then an exact one.

use super::board::{Board, Fit};
use super::counters::Meter;
use super::disjunction;
use super::greedy::{self, Keys, ORDERS};
use super::instance::{Instance, UNLIMITED};
use super::local;
use super::options::PlacementOptions;
use super::sections::Sections;
use super::valley::{Found, Search};

/// Whether something fits.
pub(crate) enum Answer {
    Fits(Vec<i64>),
    Fails,
    Unknown,
}

/// A greedy order that keeps the ceiling, if one of the first `orders` does.
pub(crate) fn greedy_only(instance: &Instance, ceiling: i64, orders: usize, meter: &mut Meter) -> Option<Vec<i64>> {
    let keys = Keys::new(instance);
    let mut passes = greedy::Passes::new(instance);
    for order in ORDERS.into_iter().take(orders) {
        let sorted = keys.sorted(instance, order);
        for fit in [Fit::First, Fit::Best] {
            if let Ok(offsets) = passes.run(&sorted, fit, ceiling, u64::MAX, meter) {
                return Some(offsets);
            }
        }
    }
    None
}

/// A greedy order that keeps the ceiling, or one repaired until it does.
pub(crate) fn quick(instance: &Instance, ceiling: i64, meter: &mut Meter) -> Option<Vec<i64>> {
    if let Some(offsets) = greedy_only(instance, ceiling, ORDERS.len(), meter) {
        return Some(offsets);
    }
    let keys = Keys::new(instance);
    local::squeeze(instance, &keys.sorted(instance, ORDERS[0]), Fit::First, ceiling, 60, 2_000_000, meter)
        .map(|found| found.0)
}

/// Are the pinned items clear of each other and of the reserved ranges? The searches take that for granted.
fn pins_agree(instance: &Instance) -> bool {
    let mut board = Board::new(instance);
    let pinned = (0..instance.items.len()).filter(|&i| instance.items[i].pin.is_some());
    for i in pinned {
        match board.find(i, Fit::First, UNLIMITED) {
            Some(at) => board.put(i, at),
            None => return false,
        }
    }
    true
}

/// Exact answer by the search that suits the instance, within a limit of work.
pub(crate) fn decide(
    kept: &Instance,
    ceiling: i64,
    options: &PlacementOptions,
    limit: u64,
    meter: &mut Meter,
) -> Answer {
    if !options.switches.exact || !kept.can_be_searched() {
        return Answer::Unknown;
    }
    if !pins_agree(kept) {
        return Answer::Fails;
    }
    if kept.flat {
        let sections = Sections::new(kept, options.switches.dominate);
        let mut search = Search::new(kept, &sections, options.switches);
        let found = search.run(ceiling, limit, options.seed, meter.halt());
        meter.spend(search.work + sections.work);
        match found {
            Found::Placed(offsets) => Answer::Fits(offsets),
            Found::Impossible => Answer::Fails,
            Found::Unknown => Answer::Unknown,
        }
    } else {
        match disjunction::search(kept, &disjunction::Ask::below(ceiling), limit, meter) {
            disjunction::Outcome::Placed(offsets) => Answer::Fits(offsets),
            disjunction::Outcome::Impossible => Answer::Fails,
            disjunction::Outcome::Unknown => Answer::Unknown,
        }
    }
}
