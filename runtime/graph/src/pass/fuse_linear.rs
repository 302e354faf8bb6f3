//! Merges linear layers with the same input into one: queries, keys and values; gate and up.

use crate::op::{Linear, SliceColumns};
use crate::{Graph, Node, Op, ValueId};

/// Merges every linear node into the first one with the same input, and slices its columns from there.
pub(super) fn run(graph: &Graph) -> Graph {
    let mut joined = Graph { nodes: Vec::new(), ..graph.clone() };
    let mut done: Vec<ValueId> = Vec::new();
    let remembered = remembered(graph);
    for node in &graph.nodes {
        if done.contains(&node.output) {
            continue;
        }
        let mut group = Vec::new();
        if matches!(node.op, Op::Linear(_)) && !remembered[node.output] {
            group = products_of(graph, node.inputs[0]);
            group.retain(|product| !remembered[product.output]);
        }
        if group.len() < 2 {
            joined.nodes.push(node.clone());
            continue;
        }
        let linears = group.iter().filter_map(|product| product.op.downcast_ref::<Linear>());
        let parts = linears.flat_map(|linear| linear.parts.clone()).collect();
        let whole = joined.push(Linear { parts }, &node.inputs);
        let mut start = 0;
        for product in group {
            let columns = graph.values[product.output].columns;
            let op = SliceColumns { start, columns }.into();
            joined.nodes.push(Node { op, inputs: vec![whole], output: product.output });
            start += columns;
            done.push(product.output);
        }
    }
    joined
}

/// Returns the values that are stored for another graph. They are not merged: those of all layers together would take
/// many megabytes.
fn remembered(graph: &Graph) -> Vec<bool> {
    let mut remembered = vec![false; graph.values.len()];
    let stores = graph.nodes.iter().filter(|node| matches!(node.op, Op::StoreCrossKv(_)));
    stores.flat_map(|node| &node.inputs).for_each(|&input| remembered[input] = true);
    remembered
}

fn products_of(graph: &Graph, input: ValueId) -> Vec<&Node> {
    graph.nodes.iter().filter(|node| matches!(node.op, Op::Linear(_)) && node.inputs[0] == input).collect()
}

#[cfg(test)]
mod tests {
    use crate::op::SliceColumns;
    use crate::{Attention, AttentionMask, Builder, Op};

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
        let products: Vec<_> = joined.nodes.iter().filter(|node| matches!(node.op, Op::Linear(_))).collect();
        assert_eq!(products.len(), 1);
        assert_eq!(joined.values[products[0].output].columns, 16);
        let starts: Vec<_> = joined
            .nodes
            .iter()
            .filter_map(|node| Some((node.output, node.op.downcast_ref::<SliceColumns>()?.start)))
            .collect();
        assert_eq!(starts, [(q, 0), (k, 8), (v, 12)]);
        assert!(joined.nodes.iter().any(|node| node.output == sum));
    }

    #[test]
    fn what_is_remembered_stays_apart() {
        let mut b = Builder::new(&|_| false);
        let x = b.embed("t", 10, 8);
        for layer in 0..2 {
            let [k, v] = ["k", "v"].map(|name| b.linear(x, &format!("{name}{layer}"), 8));
            b.store_cross_kv(k, v, memory(layer));
        }
        let hidden = b.select_outputs(x);
        let graph = b.finish(hidden);
        assert_eq!(super::run(&graph).nodes, graph.nodes);
    }

    fn memory(layer: usize) -> Attention {
        Attention { layer, attention_mask: AttentionMask::CrossAttention, ..Attention::causal(1, 8) }
    }
}
