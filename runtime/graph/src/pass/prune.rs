//! Dead-code elimination.

use crate::{Graph, Op};

/// Keeps the nodes that the output depends on, and those that store cross-attention keys and values.
pub fn prune(graph: &Graph) -> Graph {
    let mut needed = vec![false; graph.values.len()];
    needed[graph.output] = true;
    let mut kept = Vec::new();
    for node in graph.nodes.iter().rev() {
        if needed[node.output] || matches!(node.op, Op::StoreCrossKv(_)) {
            node.inputs.iter().for_each(|&input| needed[input] = true);
            kept.push(node.clone());
        }
    }
    kept.reverse();
    Graph { nodes: kept, ..graph.clone() }
}

#[cfg(test)]
mod tests {
    use crate::{Builder, OutputHead};

    #[test]
    fn a_head_that_nobody_asks_for_is_not_computed() {
        let mut b = Builder::new(&|_| false);
        let x = b.embed("t", 10, 8);
        let hidden = b.linear(x, "body", 8);
        let scores = b.linear(hidden, "head", 3);
        let graph = b.finish_with(OutputHead::Class, hidden, scores);
        assert_eq!(super::prune(&graph).nodes.len(), 3);
        let body = super::prune(&graph.without_head());
        assert_eq!(body.nodes, graph.nodes[..2]);
        assert_eq!(body.output, hidden);
    }
}
