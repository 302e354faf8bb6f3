//! Inserts adapters of which each applies to some rows of a batch.

use super::part_weights::PartWeights;
use super::{LoraMatrix, takes};
use crate::op::{Affine, LoraWeights, MultiLora};
use crate::{AdapterSlot, Graph, Node, Op, RowKind, WeightId};
use siskin_format::{Error, Result};

/// Adds a part to every linear node with its matrix; returns whether there was one.
pub(super) fn insert(
    graph: &mut Graph,
    weight: WeightId,
    part: &LoraMatrix,
    slot: AdapterSlot,
) -> Result<bool> {
    let mut products = graph.nodes.iter().filter(|node| takes(&node.op, weight)).peekable();
    if products.peek().is_none() {
        return Ok(false);
    }
    if !products.all(|node| matches!(graph.values[node.output].rows, RowKind::Tokens | RowKind::Outputs)) {
        let message = "its layer computes features, not tokens; open the model with this adapter alone";
        return Err(Error::unsupported(part.place(), message));
    }
    let weights = PartWeights::new(graph, part, slot);
    let mut at = 0;
    while at < graph.nodes.len() {
        if takes(&graph.nodes[at].op, weight) {
            add(graph, at, slot, &weights);
        }
        at += 1;
    }
    Ok(true)
}

/// Adds an adapter to the linear node `at`.
fn add(graph: &mut Graph, at: usize, slot: AdapterSlot, weights: &PartWeights) {
    let sum_at = sum_of(graph, at);
    let [product, sum] = match graph.nodes.get_disjoint_mut([at, sum_at]) {
        Ok(nodes) => nodes.map(|node| &mut node.op),
        Err(_) => return,
    };
    let (Op::Linear(product), Op::MultiLora(sum)) = (product, sum) else { return };
    let scaling = weights.scaling.map(|[weight, zeros]| {
        let bias = product.parts.iter_mut().find_map(|part| part.1.take());
        sum.bias = sum.bias.or(bias);
        Affine { weight, bias: sum.bias.unwrap_or(zeros) }
    });
    sum.adapters.push(LoraWeights { slot, a: weights.a, b: weights.b, scaling });
}

/// Returns the index of the node that adds adapters to the linear node `at`, which is inserted if there is none.
fn sum_of(graph: &mut Graph, at: usize) -> usize {
    let (input, product) = (graph.nodes[at].inputs[0], graph.nodes[at].output);
    let adds = |node: &Node| matches!(node.op, Op::MultiLora(_)) && node.inputs.get(1) == Some(&product);
    if let Some(found) = graph.nodes.iter().position(adds) {
        return found;
    }
    graph.values.push(graph.values[product]);
    let plain = graph.values.len() - 1;
    graph.nodes[at].output = plain;
    let op = MultiLora { adapters: Vec::new(), bias: None }.into();
    graph.nodes.insert(at + 1, Node { op, inputs: vec![input, plain], output: product });
    at + 1
}
