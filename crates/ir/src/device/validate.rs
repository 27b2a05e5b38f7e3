//! Figures of one space that contradict each other.

use super::Space;
use super::error::DeviceProblem;
use super::table::{Read, Table};
use crate::units::Bytes;

/// Refuses a space whose figures cannot all be true.
pub fn space(space: &Space, table: &Table<'_>) -> Read<()> {
    let Some(&capacity) = space.capacity.known() else { return Ok(()) };
    if let Some(&usable) = space.usable.known()
        && usable > capacity
    {
        let told = format!("usable are {usable}, but the capacity is {capacity}");
        return Err(table.at_key("usable_bytes", DeviceProblem::Contradiction(told)));
    }
    reserved(space, capacity, table)?;
    banks(space, capacity, table)
}

fn reserved(space: &Space, capacity: Bytes, table: &Table<'_>) -> Read<()> {
    let mut previous_end = 0;
    for reserved in &space.reserved {
        let range = reserved.range;
        let told = if range.end.get() > capacity.get() {
            format!("the reserved range {range} ends past the capacity of {capacity}")
        } else if range.start.get() < previous_end {
            format!("the reserved range {range} starts before the end {previous_end} of the one before it")
        } else {
            previous_end = range.end.get();
            continue;
        };
        return Err(table.at_key("reserved", DeviceProblem::Contradiction(told)));
    }
    Ok(())
}

fn banks(space: &Space, capacity: Bytes, table: &Table<'_>) -> Read<()> {
    let Some(banks) = &space.banks else { return Ok(()) };
    if let (Some(&count), Some(&size)) = (banks.count.known(), banks.size.known())
        && count.checked_mul(size.get()) != Some(capacity.get())
    {
        let told = format!("{count} banks of {size} do not make the capacity of {capacity}");
        return Err(table.at_key("banks", DeviceProblem::Contradiction(told)));
    }
    if let (Some(&count), Some(&groups)) = (banks.count.known(), banks.groups.known())
        && !count.is_multiple_of(groups)
    {
        let told = format!("{count} banks do not divide into {groups} groups");
        return Err(table.at_key("banks", DeviceProblem::Contradiction(told)));
    }
    Ok(())
}
