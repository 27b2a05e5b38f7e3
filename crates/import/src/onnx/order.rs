//! The order in which nodes run: the file's, where it is one; else the first that the names allow.

use super::proto::{Attribute, Graph, Node};
use crate::error::quoted;
use crate::{ErrorKind, ImportError};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

/// The positions of `nodes` in execution order. `given` says whether a name exists before any node ran,
/// `here` whether it does in the same graph (a body may use a name of the graph around it anew).
///
/// # Errors
/// A name made twice, a name that nothing makes, a cycle.
pub(super) fn order(
    nodes: &[Node],
    given: &dyn Fn(&str) -> bool,
    here: &dyn Fn(&str) -> bool,
) -> Result<Vec<usize>, ImportError> {
    let mut makers: HashMap<&str, usize> = HashMap::with_capacity(nodes.len());
    for (index, node) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|output| !output.is_empty()) {
            if let Some(other) = makers.insert(output, index) {
                return Err(ImportError::new(ErrorKind::Duplicate, described(node, index))
                    .found(format!(
                        "output {}, which {} makes as well",
                        quoted(output),
                        described(&nodes[other], other)
                    ))
                    .expected("a name of its own for each value"));
            }
            if here(output) {
                return Err(ImportError::new(ErrorKind::Duplicate, described(node, index))
                    .found(format!("output {}, which is an input or a weight as well", quoted(output)))
                    .expected("a name of its own for each value"));
            }
        }
    }
    let mut waits = vec![0_usize; nodes.len()];
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut sorted = true;
    for (index, node) in nodes.iter().enumerate() {
        let mut reads = Vec::new();
        reads.extend(node.input.iter().map(String::as_str).filter(|name| !name.is_empty()));
        for body in bodies(&node.attribute) {
            outer_names(body, &mut reads);
        }
        for name in reads {
            match makers.get(name) {
                Some(&maker) => {
                    waits[index] += 1;
                    users[maker].push(index);
                    sorted &= maker < index;
                }
                None if given(name) => {}
                None => {
                    return Err(ImportError::new(ErrorKind::Missing, described(node, index))
                        .found(format!("input {}, which nothing makes", quoted(name)))
                        .expected("an output of a node, an input or a weight of the graph"));
                }
            }
        }
    }
    if sorted {
        return Ok((0..nodes.len()).collect());
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        waits.iter().enumerate().filter(|(_, waits)| **waits == 0).map(|(index, _)| Reverse(index)).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for &user in &users[index] {
            waits[user] -= 1;
            if waits[user] == 0 {
                ready.push(Reverse(user));
            }
        }
    }
    if order.len() < nodes.len() {
        return Err(cycle(nodes, &waits, &users));
    }
    Ok(order)
}

/// Names one cycle: from any node that never became ready, back over makers that did not either.
fn cycle(nodes: &[Node], waits: &[usize], users: &[Vec<usize>]) -> ImportError {
    let mut maker = vec![usize::MAX; nodes.len()];
    for (index, users) in users.iter().enumerate().filter(|(index, _)| waits[*index] > 0) {
        for user in users {
            maker[*user] = index;
        }
    }
    let start = (0..nodes.len()).find(|index| waits[*index] > 0).unwrap_or(0);
    let mut at = start;
    // After as many steps as there are nodes the walk is on the cycle itself.
    for _ in 0..nodes.len() {
        at = *maker.get(at).unwrap_or(&start);
    }
    let (first, mut names, mut length) = (at, Vec::new(), 0_usize);
    loop {
        if names.len() < 6 {
            names.push(described(nodes.get(at).unwrap_or(&nodes[start]), at));
        }
        length += 1;
        at = *maker.get(at).unwrap_or(&first);
        if at == first || length > nodes.len() {
            break;
        }
    }
    let more = if length > names.len() { format!(" and {} more", length - names.len()) } else { String::new() };
    ImportError::new(ErrorKind::Inconsistent, "the graph")
        .found(format!("a cycle of {length} nodes, each needing the next: {}{more}", names.join(", ")))
        .expected("nodes that can run one after another")
}

/// How an error names a node.
pub(super) fn described(node: &Node, index: usize) -> String {
    if node.name.is_empty() {
        format!("node {index} ({})", quoted(&node.op_type))
    } else {
        format!("node {} ({})", quoted(&node.name), quoted(&node.op_type))
    }
}

/// The bodies among a node's attributes.
pub(super) fn bodies(attributes: &[Attribute]) -> impl Iterator<Item = &Graph> {
    attributes.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
}

/// The names that a body reads from the graph around it, those of bodies in it included.
pub(super) fn outer_names<'a>(body: &'a Graph, reads: &mut Vec<&'a str>) {
    // Names are unique across a body and what is inside of it, so one set of made names serves all levels.
    let mut made: HashSet<&str> = HashSet::new();
    let mut used: Vec<&str> = Vec::new();
    let mut todo = vec![body];
    while let Some(graph) = todo.pop() {
        made.extend(graph.input.iter().map(|value| value.name.as_str()));
        made.extend(graph.initializer.iter().map(|tensor| tensor.name.as_str()));
        made.extend(graph.sparse_initializer.iter().filter_map(|tensor| Some(tensor.values.as_ref()?.name.as_str())));
        for node in &graph.node {
            made.extend(node.output.iter().map(String::as_str));
            used.extend(node.input.iter().map(String::as_str));
            todo.extend(bodies(&node.attribute));
        }
        used.extend(graph.output.iter().map(|value| value.name.as_str()));
    }
    reads.extend(used.into_iter().filter(|name| !name.is_empty() && !made.contains(name)));
}
