//! Products of the same value become one product with several parts: queries, keys and values; gate and up.

use crate::graph::{Graph, Node, Op, Value, ValueId};

/// Joins every product with the first product of its input, and takes its columns from there.
pub(super) fn run(graph: &Graph) -> Graph {
    let mut joined = Graph { nodes: Vec::new(), ..graph.clone() };
    let mut done: Vec<ValueId> = Vec::new();
    for node in &graph.nodes {
        if done.contains(&node.output) {
            continue;
        }
        let group = match node.op {
            Op::Linear { .. } => products_of(graph, node.inputs[0]),
            _ => Vec::new(),
        };
        if group.len() < 2 {
            joined.nodes.push(node.clone());
            continue;
        }
        let parts = group.iter().flat_map(|product| match &product.op {
            Op::Linear { parts } => parts.clone(),
            _ => Vec::new(),
        });
        let parts = parts.collect();
        let columns = group.iter().map(|product| graph.values[product.output].columns).sum();
        joined.values.push(Value { rows: graph.values[node.output].rows, columns });
        let whole = joined.values.len() - 1;
        joined.nodes.push(Node { op: Op::Linear { parts }, inputs: node.inputs.clone(), output: whole });
        let mut start = 0;
        for product in group {
            joined.nodes.push(Node {
                op: Op::Columns { start },
                inputs: vec![whole],
                output: product.output,
            });
            start += graph.values[product.output].columns;
            done.push(product.output);
        }
    }
    joined
}

fn products_of(graph: &Graph, input: ValueId) -> Vec<&Node> {
    graph
        .nodes
        .iter()
        .filter(|node| matches!(node.op, Op::Linear { .. }) && node.inputs[0] == input)
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::graph::{Builder, Op};

    #[test]
    fn three_products_of_one_value_become_one_and_keep_their_values() {
        let mut b = Builder::new(&|_| false);
        let x = b.embed("t", 10, 8);
        let q = b.linear(x, "q", 8);
        let k = b.linear(x, "k", 4);
        let sum = b.add(q, q);
        let v = b.linear(x, "v", 4);
        let last = b.add(k, v);
        let graph = b.finish(last);
        let joined = super::run(&graph);
        let products: Vec<_> =
            joined.nodes.iter().filter(|node| matches!(node.op, Op::Linear { .. })).collect();
        assert_eq!(products.len(), 1);
        assert_eq!(joined.values[products[0].output].columns, 16);
        let starts: Vec<_> = joined
            .nodes
            .iter()
            .filter_map(|node| match node.op {
                Op::Columns { start } => Some((node.output, start)),
                _ => None,
            })
            .collect();
        assert_eq!(starts, [(q, 0), (k, 8), (v, 12)]);
        assert!(joined.nodes.iter().any(|node| node.output == sum));
    }
}
