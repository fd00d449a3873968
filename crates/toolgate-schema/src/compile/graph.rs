//! Passes over the graph of nodes: removes indirections, and marks cycles.

use super::rule::{Node, NodeId, Rule};
use crate::types::TypeSet;

/// Replaces nodes that consist of a `$ref` only by their targets.
pub(super) fn skip_pure_refs(nodes: &mut [Node]) {
    let ends: Vec<NodeId> = (0..nodes.len())
        .map(|start| {
            let mut id = NodeId::try_from(start).unwrap_or_default();
            for _ in 0..16 {
                match &nodes[id as usize] {
                    Node { types, rules, .. } if *types == TypeSet::ANY => match &**rules {
                        [Rule::Ref(next)] => id = *next,
                        _ => break,
                    },
                    _ => break,
                }
            }
            id
        })
        .collect();
    for node in nodes {
        node.rules.iter_mut().for_each(|rule| rule.for_each_node(&mut |id| *id = ends[*id as usize]));
    }
}

/// Marks at least one node of every cycle that does not descend into the value.
pub(super) fn mark_cycles(nodes: &mut [Node], dynamic: &[(u32, Box<str>, NodeId)]) {
    let next: Vec<Vec<NodeId>> = nodes
        .iter_mut()
        .map(|node| {
            let mut all = Vec::new();
            for rule in &mut node.rules {
                if let Rule::DynamicRef { name, .. } = &*rule {
                    all.extend(dynamic.iter().filter(|(_, known, _)| known == name).map(|(_, _, id)| *id));
                }
                rule.for_each_in_place_node(&mut |id| all.push(*id));
            }
            all
        })
        .collect();
    // 0: not visited, 1: on the current path, 2: done.
    let mut state = vec![0_u8; nodes.len()];
    for start in 0..nodes.len() {
        if state[start] != 0 {
            continue;
        }
        let mut path = vec![(start, 0)];
        state[start] = 1;
        while let Some((position, n_taken)) = path.last_mut() {
            let Some(to) = next[*position].get(*n_taken).map(|to| *to as usize) else {
                state[*position] = 2;
                path.pop();
                continue;
            };
            *n_taken += 1;
            match state[to] {
                0 => {
                    state[to] = 1;
                    path.push((to, 0));
                }
                1 => nodes[to].is_cyclic = true,
                _ => {}
            }
        }
    }
}
