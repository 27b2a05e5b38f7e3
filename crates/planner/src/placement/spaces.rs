//! Which space each buffer lives in, where it has a choice.
//!
//! Spaces are listed fastest first. A buffer's value in a space is the traffic that its accesses
//! save against the slowest space it may live in.

use super::statement;
use npumem_ir::{BufferId, Problem, SpaceId};

/// Gives every placed buffer a space: the pinned or only one, else the first with room for its load.
pub(crate) fn assign(problem: &Problem, root: &[u32], allowed: &[Vec<SpaceId>]) -> Vec<Option<SpaceId>> {
    let mut home: Vec<Option<SpaceId>> = vec![None; problem.buffers.len()];
    let placed = statement::placed_groups(problem, root);
    for (id, _) in problem.buffers() {
        if placed[root[id.index()] as usize] != Some(true) {
            continue;
        }
        let choices = &allowed[root[id.index()] as usize];
        home[id.index()] =
            choices.iter().copied().find(|&s| group_fits(problem, root, id, s)).or(choices.first().copied());
    }
    home
}

fn group_fits(problem: &Problem, root: &[u32], buffer: BufferId, space: SpaceId) -> bool {
    let _ = root;
    problem.space(space).capacity.is_none_or(|c| problem.buffer(buffer).size <= c)
}
