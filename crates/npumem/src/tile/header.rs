//! A schedule as constants of a C header: what a tiling function or a kernel needs.

use super::device::spaces;
use npumem_planner::tiling::Schedule;
use std::fmt::Write as _;

/// The header.
#[must_use]
pub fn header(schedule: &Schedule) -> String {
    let mut out = String::new();
    let (operator, found, machine) = (&schedule.operator, &schedule.found, &schedule.machine);
    let guard = format!("NPUMEM_TILE_{}_H", upper(operator.kind.word()));
    // A comment cannot end itself early, whatever the operator is called.
    let said = operator.name.replace("*/", "* /").replace(|c: char| c.is_control() || !c.is_ascii(), " ");
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "/* npumem tile: {said}\n * on {}, objective {}. Sizes in bytes, tiles in elements. */",
        machine.device,
        schedule.goal.word()
    );
    let _ = writeln!(out, "#ifndef {guard}\n#define {guard}\n");
    let _ = writeln!(out, "#define TILE_CORES {}u", schedule.cores);
    for (at, dim) in operator.dims.iter().enumerate() {
        let name = upper(&dim.name);
        let (block, tile) = (schedule.block[at], found.tiles[at]);
        let _ = writeln!(out, "\n#define TILE_{name}_EXTENT {}ull", dim.extent);
        let _ = writeln!(out, "#define TILE_{name}_CORES {}u      /* parts over cores */", schedule.parts[at]);
        let _ = writeln!(out, "#define TILE_{name}_BLOCK {block}ull   /* of one core, at most */");
        let _ = writeln!(out, "#define TILE_{name}_TILE {tile}ull");
        let _ = writeln!(out, "#define TILE_{name}_COUNT {}u      /* tiles of a block */", block.div_ceil(tile));
        let _ = writeln!(
            out,
            "#define TILE_{name}_EDGE {}ull    /* length of the last tile of a whole block */",
            block - (block.div_ceil(tile) - 1) * tile
        );
    }
    let order: Vec<&str> = found.order.iter().map(|dim| operator.dims[*dim].name.as_str()).collect();
    let _ = writeln!(
        out,
        "\n/* loops, outermost first: {} */",
        if order.is_empty() { "none".to_owned() } else { order.join(" > ") }
    );
    for (place, dim) in found.order.iter().enumerate() {
        let _ = writeln!(out, "#define TILE_LOOP_{} {}u", upper(&operator.dims[*dim].name), place);
    }
    if let Some(feed) = schedule.feed.filter(|feed| feed.slots[0] > 0) {
        let [m, k, n] = feed.step;
        let _ = writeln!(
            out,
            "\n/* steps of the matrix unit */\n#define TILE_STEP_ROWS {m}u\n#define TILE_STEP_DEPTH {k}u\n#define TILE_STEP_COLUMNS {n}u"
        );
    }
    for buffer in &schedule.buffers {
        let name = upper(&buffer.name);
        let _ = writeln!(out, "\n#define TILE_{name}_SPACE \"{}\"", buffer.space_name);
        let _ = writeln!(out, "#define TILE_{name}_OFFSET {}ull", buffer.offset);
        let _ = writeln!(out, "#define TILE_{name}_BYTES {}ull      /* of one slot */", buffer.bytes);
        let _ = writeln!(out, "#define TILE_{name}_PITCH {}ull      /* from slot to slot */", buffer.pitch);
        let _ = writeln!(out, "#define TILE_{name}_SLOTS {}u", buffer.slots);
    }
    out.push('\n');
    for (name, used, _) in spaces(schedule) {
        let _ = writeln!(out, "#define TILE_SPACE_{}_BYTES {used}ull", upper(&name));
    }
    let _ = writeln!(out, "\n#endif");
    out
}

/// A name as a part of a macro.
fn upper(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}
