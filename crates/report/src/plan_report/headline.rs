//! The verdict as one sentence.

use super::PlanReport;
use npumem_ir::Bytes;
use npumem_ir::units::grouped;

/// Whether it fits, and if not, what is missing where.
pub(super) fn headline(report: &PlanReport) -> String {
    let name = if report.problem.is_empty() { "the problem" } else { &report.problem };
    let mut bounds = report.spaces.iter().filter_map(|space| space.capacity);
    let only = bounds.next().filter(|_| bounds.next().is_none());
    let onto = |verb: &str| match (&report.device, only) {
        (Some(device), _) => format!("{name} {verb} {device}"),
        (None, Some(capacity)) => format!("{name} {verb} {capacity}"),
        (None, None) => format!("{name} {verb}"),
    };
    let over: Vec<String> = (report.spaces.iter())
        .filter(|space| space.over > Bytes::ZERO)
        .map(|space| format!("{} is short of {}", space.name, space.over))
        .collect();
    if !over.is_empty() {
        // Only a proof says "does not fit"; a search that came up short says that.
        let verb = if report.infeasible.is_some() { "does not fit" } else { "may or may not fit" };
        let whose = if report.infeasible.is_some() { "" } else { "the best plan found: " };
        return format!("{}: {whose}{}", onto(verb), over.join(", "));
    }
    if let Some(infeasible) = &report.infeasible {
        let short = infeasible.needed.saturating_sub(infeasible.capacity.unwrap_or(Bytes::MAX).0);
        return if short > Bytes::ZERO {
            format!("{}: {} is short of {short}", onto("does not fit"), infeasible.space)
        } else {
            format!("{}: {}", onto("does not fit"), infeasible.reason)
        };
    }
    if !report.unplaced.is_empty() {
        let count = grouped(report.unplaced.len() as u64);
        return format!("{name} is not planned: no place was found for {count} of its buffers");
    }
    if report.buffers.is_empty() {
        return format!("{name} holds no buffers: there is nothing to plan");
    }
    let bounded = report.spaces.iter().any(|space| space.buffers > 0 && space.capacity.is_some());
    if bounded { onto("fits") } else { format!("{name} is planned; no capacity was given to fit it into") }
}
